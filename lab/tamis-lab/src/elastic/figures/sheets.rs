//! Tables.

use tamis_bench::report::{bytes, grouped, mean};

use super::facts::Facts;
use crate::elastic::catalogue::Kind;
use crate::elastic::rows::TableRow;
use crate::figures::Sheet;
use crate::figures::compare::{Better, Gain, Unit, first_memory, memory};
use crate::figures::compose::distinct;

/// Returns the databases, their measurements, comparisons of the sides, and warnings about misleading figures.
pub(super) fn all(facts: &Facts<'_>) -> Vec<Sheet> {
    let mut sheets = vec![loads(facts), warnings(facts)];
    sheets.extend(facts.workloads().into_iter().map(|workload| reads(facts, workload)));
    sheets.push(missing(facts));
    sheets.push(standing(facts));
    sheets.push(windows(facts));
    sheets.push(window_memory(facts));
    sheets.push(shifts(facts));
    sheets.push(restarts(facts));
    sheets.push(skew(facts));
    sheets.retain(|sheet| !sheet.rows.is_empty());
    sheets
}

fn ns(ns: f64) -> String {
    grouped(ns.round() as u64)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn option(number: Option<f64>) -> String {
    number.map_or_else(|| "-".into(), mean)
}

fn loads(facts: &Facts<'_>) -> Sheet {
    let mut sheet = Sheet::new(
        "Databases, loaded equally",
        &[
            "<at",
            "<filter",
            "keys",
            "<runs by\nlevel",
            "tables",
            "bytes",
            "bits\n/key",
            "load\nns/key",
            "fastest–slowest\nload",
            "put p99\nns",
            "write\namplif.",
            "<",
        ],
    );
    for row in &facts.loads {
        let here = facts.loads.iter().filter(|other| other.point == row.point);
        let first = first_memory(here.map(|other| other.filter_bits_per_key));
        sheet.row([
            row.point.clone(),
            row.filter.clone(),
            grouped(row.keys),
            row.runs.clone(),
            row.tables.to_string(),
            bytes(row.table_bytes),
            memory(row.filter_bits_per_key, first),
            ns(row.load_ns_per_key),
            format!("{}–{}", ns(row.min_ns_per_key), ns(row.max_ns_per_key)),
            grouped(row.put_p99_ns),
            mean(row.write_amplification),
            if row.reused { "loaded before".into() } else { String::new() },
        ]);
    }
    sheet
}

fn warnings(facts: &Facts<'_>) -> Sheet {
    let mut sheet = Sheet::new("Caveats", &["<what to keep in mind"]);
    facts.warnings().into_iter().for_each(|line| sheet.row([line]));
    sheet
}

fn missing(facts: &Facts<'_>) -> Sheet {
    let mut sheet = Sheet::new("Not available", &["<device", "<at", "<why"]);
    facts.missing.iter().for_each(|row| sheet.row([row.device.clone(), row.point.clone(), row.why.clone()]));
    sheet
}

fn reads(facts: &Facts<'_>, workload: &str) -> Sheet {
    let mut sheet = Sheet::new(
        &format!("{workload}: counters are means of the rounds, times medians"),
        &[
            "<at",
            "<filter",
            "threads",
            "wasted\n/op",
            "first–last\nround",
            "of the\nfixed",
            "false\npositives/op",
            "blocks\nread/op",
            "of the\nfixed",
            "unit loads\n/block read",
            "digests\n/op",
            "probes\n/op",
            "ns/op",
            "fastest–slowest\nround",
            "p50\nns",
            "p99\nns",
            "thousand\nops/s",
            "filter\nmemory",
            "bits\n/key",
            "of them\nno units",
            "E",
            "<segments by units",
        ],
    );
    for row in facts.rows_of(workload) {
        let m = &row.measurement;
        let fixed = facts.fixed_for(row).filter(|fixed| !std::ptr::eq(*fixed, row));
        let share = |part: Option<f64>, of: Option<f64>| match (part, of) {
            (Some(part), Some(of)) if of > 0.0 => percent(part / of),
            _ => "-".into(),
        };
        let fixed_bits = facts.fixed_for(row).map_or(0.0, |fixed| fixed.memory_bits_per_key);
        let of_elastic = |text: String| if row.elastic { text } else { "-".into() };
        sheet.row([
            row.point.clone(),
            row.side.clone(),
            m.threads.to_string(),
            option(row.in_vain_per_op),
            format!("{}–{}", option(row.in_vain_first), option(row.in_vain_last)),
            share(row.in_vain_per_op, fixed.and_then(|fixed| fixed.in_vain_per_op)),
            mean(row.false_positives_mean),
            mean(row.blocks_per_op),
            share(Some(row.blocks_per_op), fixed.map(|fixed| fixed.blocks_per_op)),
            of_elastic(share(Some(row.load_reads_per_op), Some(row.blocks_per_op))),
            mean(m.digests_per_op),
            mean(m.filter_probes_per_op),
            ns(m.ns_per_op),
            format!("{}–{}", ns(row.min_ns), ns(row.max_ns)),
            grouped(m.p50_ns),
            grouped(m.p99_ns),
            mean(m.wall_ops_per_second / 1000.0),
            bytes(row.filter_memory),
            memory(row.memory_bits_per_key, fixed_bits),
            of_elastic(mean(
                row.memory_bits_per_key * row.index_bytes as f64 / row.filter_memory.max(1) as f64,
            )),
            of_elastic(mean(row.expected_extra_reads)),
            of_elastic(row.by_units.clone()),
        ]);
    }
    sheet
}

/// Compares elastic filters with each fixed one at every point.
fn standing(facts: &Facts<'_>) -> Sheet {
    use super::facts::{blocks, in_vain, rate};
    let mut sheet = Sheet::new(
        "Elastic filters against fixed ones",
        &[
            "<workload",
            "<at",
            "<filter",
            "<fixed",
            "wasted\nreads",
            "blocks\nread",
            "operations\na second",
            "<",
        ],
    );
    let elastic = facts.reads.iter().filter(|row| row.elastic);
    for (row, fixed) in elastic.flat_map(|row| facts.all_fixed_for(row).map(move |fixed| (row, fixed))) {
        let gain = |of: fn(&_) -> Option<_>, better| Gain::of(of(row)?, of(fixed)?, better);
        let less = |gain: Option<Gain>| gain.map_or_else(|| "-".into(), |gain| Unit::Less.of(gain.times));
        let rates = gain(rate, Better::More);
        let note = match rates {
            _ if row.without_filter || fixed.without_filter => {
                "one of them without its filter: not comparable"
            }
            Some(gain) if !gain.clear() => "operations within the spread of the rounds",
            _ => "",
        };
        sheet.row([
            row.measurement.workload.clone(),
            row.point.clone(),
            row.side.clone(),
            fixed.side.clone(),
            less(gain(in_vain, Better::Less)),
            less(gain(blocks, Better::Less)),
            rates.map_or_else(|| "-".into(), |gain| Unit::Times.of(gain.times)),
            note.to_owned(),
        ]);
    }
    sheet
}

fn windows(facts: &Facts<'_>) -> Sheet {
    let columns = distinct(facts.windows.iter().map(|row| (row.point.as_str(), row.side.as_str())));
    let mut headers = vec!["gets".to_owned(), "<".to_owned()];
    headers.extend(columns.iter().map(|(point, side)| match point.is_empty() {
        true => (*side).to_owned(),
        false => format!("{point}\n{side}"),
    }));
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let mut sheet = Sheet::new("Wasted reads per get, by windows", &headers);
    let mut gets = distinct(facts.windows.iter().map(|row| row.gets));
    gets.sort_unstable();
    let event = if facts.experiment.kind == Kind::Restart { "restarted" } else { "moved" };
    for gets in gets {
        let of = |&(point, side): &(&str, &str)| {
            facts.windows.iter().find(|row| row.gets == gets && row.point == point && row.side == side)
        };
        let moved = columns.iter().find_map(of).is_some_and(|row| row.moved);
        let mut cells = vec![grouped(gets), if moved { event.into() } else { String::new() }];
        cells.extend(columns.iter().map(|c| of(c).map_or_else(String::new, |row| mean(row.in_vain_per_get))));
        sheet.row(cells);
    }
    sheet
}

/// Returns the filter memory of each side in its last window.
fn window_memory(facts: &Facts<'_>) -> Sheet {
    let mut sheet = Sheet::new("Filter memory after the last window", &["<at", "<filter", "bits\n/key"]);
    let last_of = |point: &str, side: &str| {
        let of_side = facts.windows.iter().filter(|row| row.point == point && row.side == side);
        of_side.max_by_key(|row| row.gets)
    };
    for (point, side) in distinct(facts.windows.iter().map(|row| (row.point.as_str(), row.side.as_str()))) {
        let sides =
            distinct(facts.windows.iter().filter(|row| row.point == point).map(|row| row.side.as_str()));
        let bits = |side: &str| last_of(point, side).map_or(0.0, |row| row.memory_bits_per_key);
        let first = first_memory(sides.into_iter().map(bits));
        sheet.row([point.to_owned(), side.to_owned(), memory(bits(side), first)]);
    }
    sheet
}

fn shifts(facts: &Facts<'_>) -> Sheet {
    let mut sheet = Sheet::new(
        "The effect of the shift, in wasted reads per get",
        &["<at", "<filter", "before", "first window\nafter", "at\nthe end", "<nine tenths of the way back"],
    );
    for row in &facts.shifts {
        let recovered = match row.gets_to_recover {
            Some(gets) => format!("within {} gets", grouped(gets)),
            None => "nothing to recover from".into(),
        };
        let figures = [row.before, row.first, row.end].map(mean);
        let mut cells = vec![row.point.clone(), row.side.clone()];
        cells.extend(figures);
        cells.push(recovered);
        sheet.row(cells);
    }
    sheet
}

fn restarts(facts: &Facts<'_>) -> Sheet {
    let mut sheet = Sheet::new(
        "The effect of a restart, in wasted reads per get",
        &[
            "<at",
            "<filter",
            "<restart",
            "before",
            "first window\nafter",
            "at\nthe end",
            "wasted in\naddition",
            "<back within a tenth",
        ],
    );
    for row in &facts.restarts {
        let back = match row.gets_until_back {
            Some(0) => "at once".into(),
            Some(gets) => format!("after {} gets", grouped(gets)),
            None => "not within these windows".into(),
        };
        let mut cells = vec![row.point.clone(), row.side.clone(), row.way.clone()];
        cells.extend([row.before, row.first, row.end].map(mean));
        cells.push(ns(row.more_wasted));
        cells.push(back);
        sheet.row(cells);
    }
    sheet
}

/// Returns the `q`-quantile, between two values where it falls between them, so that 0.5 is the median; `sorted` is
/// ascending and not empty.
pub(super) fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = (sorted.len() - 1) as f64 * q;
    let (lower, upper) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    lower + (upper - lower) * at.fract()
}

/// Returns quantiles of the tables of each level.
fn skew(facts: &Facts<'_>) -> Sheet {
    let regions = facts.experiment.kind == Kind::RegionSkew;
    let title = match regions {
        true => "(Most − least) / mean over 64 parts of each table, by level",
        false => "Queries of a table per thousand gets, by level",
    };
    let last = if regions { "above\n10" } else { "hotter than\np10 above" };
    let mut sheet = Sheet::new(
        title,
        &["<at", "<filter", "level", "tables", "mean", "least", "p10", "p50", "p90", "most", last],
    );
    for (point, side) in distinct(facts.tables.iter().map(|row| (row.point.as_str(), row.side.as_str()))) {
        let rows = || facts.tables.iter().filter(|row| row.point == point && row.side == side);
        let mut levels = distinct(rows().map(|row| row.level));
        levels.sort_unstable();
        let mut above = None;
        for level in levels {
            let figure = |row: &TableRow| if regions { row.spread } else { row.asked_per_get * 1000.0 };
            let mut figures: Vec<f64> = rows().filter(|row| row.level == level).map(figure).collect();
            figures.sort_by(f64::total_cmp);
            let limit = if regions { Some(10.0) } else { above };
            let hotter = |limit: f64| figures.iter().filter(|&&figure| figure > limit).count() as f64;
            sheet.row([
                point.to_owned(),
                side.to_owned(),
                level.to_string(),
                figures.len().to_string(),
                mean(figures.iter().sum::<f64>() / figures.len() as f64),
                mean(quantile(&figures, 0.0)),
                mean(quantile(&figures, 0.1)),
                mean(quantile(&figures, 0.5)),
                mean(quantile(&figures, 0.9)),
                mean(quantile(&figures, 1.0)),
                limit.map_or_else(|| "-".into(), |limit| percent(hotter(limit) / figures.len() as f64)),
            ]);
            above = Some(quantile(&figures, 0.1));
        }
    }
    sheet
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn quantiles_lie_between_values() {
        let of = |q| quantile(&[1.0, 2.0, 4.0, 8.0], q);
        assert_eq!([0.0, 0.5, 1.0].map(of), [1.0, 3.0, 8.0], "the upper of two was taken as the median");
        assert_eq!((of(0.25), quantile(&[7.0], 0.3)), (1.75, 7.0));
    }
}
