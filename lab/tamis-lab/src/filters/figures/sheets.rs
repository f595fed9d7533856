//! Tables.

use tamis_bench::report::{bytes, grouped, mean};

use super::facts::{Facts, is_grf};
use crate::figures::Sheet;
use crate::figures::compare::{Better, Gain, Unit, memory};

/// Returns the databases, a table for each workload, the rank of GRF, and warnings about misleading figures.
pub(super) fn all(facts: &Facts<'_>) -> Vec<Sheet> {
    let mut sheets = vec![loads(facts), warnings(facts)];
    sheets.extend(facts.workloads().into_iter().map(|workload| reads(facts, workload)));
    sheets.push(standing(facts));
    sheets.retain(|sheet| !sheet.rows.is_empty());
    sheets
}

fn ns(ns: f64) -> String {
    grouped(ns.round() as u64)
}

fn loads(facts: &Facts<'_>) -> Sheet {
    let mut sheet = Sheet::new(
        "Databases, loaded equally up to just before the merge into the last level",
        &[
            "<keys",
            "<at",
            "<filter",
            "runs",
            "runs at\nthe end",
            "filter\nmemory",
            "bits\n/key",
            "load\nns/key",
            "put p50\nns",
            "put p99\nns",
            "flush p50\nµs",
            "flush p99\nµs",
            "write amplif.\nof the load",
            "of all",
        ],
    );
    for row in &facts.loads {
        sheet.row([
            row.key_set.clone(),
            row.point.clone(),
            row.filter.clone(),
            row.runs.to_string(),
            row.runs_at_end.to_string(),
            bytes(row.filter_bytes),
            memory(row.filter_bits_per_key, facts.first_memory(&row.key_set, &row.point)),
            ns(row.load_ns_per_key),
            grouped(row.put_p50_ns),
            grouped(row.put_p99_ns),
            grouped(row.flush_p50_ns / 1000),
            grouped(row.flush_p99_ns / 1000),
            mean(row.load_write_amplification),
            mean(row.write_amplification),
        ]);
    }
    sheet
}

fn warnings(facts: &Facts<'_>) -> Sheet {
    let mut sheet = Sheet::new("Not at equal memory", &["<what to keep in mind"]);
    facts.warnings().into_iter().for_each(|line| sheet.row([line]));
    sheet
}

fn reads(facts: &Facts<'_>, workload: &str) -> Sheet {
    let mut sheet = Sheet::new(
        &format!("{workload}: medians of the rounds"),
        &[
            "<keys",
            "<at",
            "<filter",
            "threads",
            "bits\n/key",
            "ns/op",
            "fastest–slowest\nround",
            "filter\nns",
            "shaded\n%",
            "p99\nns",
            "thousand\nops/s",
            "digests\n/op",
            "filters\nprobed/op",
            "runs\nsought/op",
            "false\npositives/op",
            "blocks\nread/op",
            "reads from\ndisk/op",
        ],
    );
    for row in facts.rows_of(workload) {
        let m = &row.measurement;
        sheet.row([
            m.key_set.clone(),
            row.point.clone(),
            row.side.clone(),
            m.threads.to_string(),
            memory(facts.memory(row), facts.first_memory(&m.key_set, &row.point)),
            ns(m.ns_per_op),
            format!("{}–{}", ns(row.min_ns), ns(row.max_ns)),
            row.filter_ns.map_or_else(|| "-".to_owned(), ns),
            facts
                .shade(row)
                .map_or_else(|| "-".to_owned(), |part| format!("{:.0}", 100.0 * part / m.ns_per_op)),
            grouped(m.p99_ns),
            mean(m.wall_ops_per_second / 1000.0),
            mean(m.digests_per_op),
            mean(m.filter_probes_per_op),
            mean(m.runs_searched_per_op + m.seeks_per_op),
            mean(m.false_positives_per_op),
            mean(m.block_reads_per_op),
            mean(m.io_reads_per_op),
        ]);
    }
    sheet
}

/// Compares GRF with the best of the other filters, wherever both were measured.
fn standing(facts: &Facts<'_>) -> Sheet {
    let mut sheet = Sheet::new(
        "grf against the best other",
        &["<workload", "<keys", "<at", "threads", "<best other", "times\nas fast", "<"],
    );
    let better = facts.better();
    for workload in facts.workloads() {
        for at in facts.places(workload) {
            let Some(ours) = facts.side_at(at, super::facts::OURS) else { continue };
            let others = facts.rows_at(at).filter(|row| !is_grf(&row.side));
            let best = others.min_by(|a, b| {
                let (a, b) = (facts.metric(a).value, facts.metric(b).value);
                if better == Better::Less { a.total_cmp(&b) } else { b.total_cmp(&a) }
            });
            let Some(best) = best else { continue };
            let Some(gain) = Gain::of(facts.metric(ours), facts.metric(best), better) else { continue };
            let note = if facts.is_bare(ours) || facts.is_bare(best) {
                "one of them without its filter: not comparable"
            } else if !gain.clear() {
                "within the spread of the rounds"
            } else {
                ""
            };
            sheet.row([
                workload.to_owned(),
                at.key_set.to_owned(),
                at.point.to_owned(),
                at.threads.to_string(),
                best.side.clone(),
                Unit::Times.of(gain.times),
                note.to_owned(),
            ]);
        }
    }
    sheet
}
