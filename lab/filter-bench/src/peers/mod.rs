//! `filter-bench peers`: filters of other crates compared with those of tamis, interleaved in one run.

mod candidates;
mod interface;

use std::error::Error;

use clap::Args;
use serde::Serialize;
use serde_json::json;
use tamis_bench::random::Random;
use tamis_lab::machine::Machine;

use crate::args::Common;
use crate::measure::interleaved;
use crate::progress::Progress;
use crate::report::{self, Report, Table};
use crate::stats::Spread;

use candidates as of;
use interface::{Built, Candidate, Keys};

/// Options of `peers`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Number of keys in the filter that is built, and in each of many filters that exceed the cache together
    #[arg(long, default_value_t = 1_000_000)]
    pub keys: usize,
    /// Number of keys in the filter that fits the cache
    #[arg(long, default_value_t = 10_000)]
    pub hot_keys: usize,
    /// Number of probes in a round
    #[arg(long, default_value_t = 1_000_000)]
    pub probes: usize,
    /// Also probe many filters that together are far larger than the cache
    #[arg(long)]
    pub large: bool,
    /// Memory of the many filters in MiB, for each candidate [default: four times the largest cache]
    #[arg(long, value_name = "MIB")]
    pub large_mib: Option<usize>,
    /// Measure only groups whose name contains this text
    #[arg(long, value_name = "TEXT")]
    pub group: Option<String>,
    #[command(flatten)]
    pub common: Common,
}

/// Number of distinct queries.
const QUERIES: usize = 1 << 15;

/// The bits per key of a group's filters.
#[derive(Clone, Copy)]
enum Bits {
    /// This number, for all of them.
    Asked(f64),
    /// The first filter determines the size; the others are built as large.
    AsFirst,
}

/// Filters compared with each other; the last one is ours.
struct Group {
    name: &'static str,
    bits: Bits,
    candidates: Vec<Box<dyn Candidate>>,
}

fn groups() -> Vec<Group> {
    let group = |name, bits, candidates| Group { name, bits, candidates };
    vec![
        group("Bloom, 10 bits", Bits::Asked(10.0), vec![of::fastbloom(), of::bloom()]),
        group("blocked Bloom, 10 bits", Bits::Asked(10.0), vec![of::sbbf(), of::blocked_bloom()]),
        group("blocked Bloom, 16 bits", Bits::Asked(16.0), vec![of::sbbf(), of::blocked_bloom()]),
        group("XOR, 8 bits", Bits::AsFirst, vec![of::xorf_xor8(), of::xor()]),
        group("binary fuse, 8 bits", Bits::AsFirst, vec![of::xorf_fuse8(), of::fuse()]),
        group("binary fuse, 16 bits", Bits::AsFirst, vec![of::xorf_fuse16(), of::fuse()]),
        group("ribbon, as large as binary fuse", Bits::AsFirst, vec![of::xorf_fuse8(), of::ribbon()]),
        group("cuckoo", Bits::AsFirst, vec![of::cuckoofilter(), of::scalable_cuckoo(), of::cuckoo()]),
        group("cuckoo, as large as quotient", Bits::AsFirst, vec![of::qfilter(), of::cuckoo()]),
        group("Grafite, ranges of 16, 14 bits", Bits::Asked(14.0), vec![of::grafite_crate(), of::grafite()]),
    ]
}

/// The measurements of one candidate.
#[derive(Clone, Debug, Serialize)]
struct Row {
    group: &'static str,
    filter: &'static str,
    note: &'static str,
    /// Bits per key of the filter of [`Options::keys`] keys.
    bits: f64,
    rate: f64,
    /// Number of false negatives; must be 0 for our filters.
    denied: usize,
    build: Spread,
    absent: Spread,
    absent_chained: Spread,
    present: Spread,
    large: Option<Spread>,
    large_chained: Option<Spread>,
}

/// A candidate ready to be measured.
struct Side {
    group: usize,
    at: usize,
    bits_asked: f64,
    bits: f64,
    rate: f64,
    denied: usize,
    hot: Box<dyn Built>,
    large: Option<Box<dyn Built>>,
}

/// Runs the command. A false negative of a filter of tamis is an error.
pub(crate) fn run(
    options: &Options,
    machine: &Machine,
    progress: &Progress,
) -> Result<Report, Box<dyn Error>> {
    let wanted = |group: &Group| options.group.as_ref().is_none_or(|text| group.name.contains(text.as_str()));
    let groups: Vec<Group> = groups().into_iter().filter(wanted).collect();
    let all = Keys::numbered(0, options.keys.max(2));
    let hot = Keys::numbered(0, options.hot_keys.clamp(2, all.len()));
    let absent = Keys::numbered(1 << 60, QUERIES).hashes;
    let mut random = Random::new(options.common.seed);
    let present: Vec<u64> = (0..QUERIES).map(|_| hot.hashes[random.index(hot.len())]).collect();
    let route: Vec<u32> = (0..QUERIES * 8).map(|_| random.next_u64() as u32).collect();
    let large_bytes = options.large_mib.map_or(machine.largest_cache() * 4, |mib| mib << 20);

    let mut left_out = Vec::new();
    let mut sides = Vec::new();
    for (at_group, group) in groups.iter().enumerate() {
        progress.phase(&format!("{}: building", group.name));
        let (mut asked_full, mut asked_hot) = match group.bits {
            Bits::Asked(bits) => (bits, bits),
            Bits::AsFirst => (0.0, 0.0),
        };
        for (at, candidate) in group.candidates.iter().enumerate() {
            let mut prepare = || -> Result<Side, String> {
                let full = candidate.build(&all, asked_full)?;
                let bits = full.bits() / all.len() as f64;
                let hot_filter = candidate.build(&hot, asked_hot)?;
                let bits_asked = asked_full;
                if at == 0 && matches!(group.bits, Bits::AsFirst) {
                    // Slightly more, so that differences by rounding are ignored.
                    let more = |bits: f64| (bits * 1.01 + 0.05).min(64.0);
                    (asked_full, asked_hot) = (more(bits), more(hot_filter.bits() / hot.len() as f64));
                }
                let large = if options.large {
                    let count = large_bytes.div_ceil((full.bits() / 8.0) as usize).max(2);
                    let keys = |i: usize| Keys::numbered((i as u64 + 1) << 32, all.len());
                    Some(candidate.build_many(count, &keys, bits_asked)?)
                } else {
                    None
                };
                let rate = full.positives(&absent) as f64 / absent.len() as f64;
                let denied =
                    all.len() - full.positives(&all.hashes) + hot.len() - hot_filter.positives(&hot.hashes);
                Ok(Side { group: at_group, at, bits_asked, bits, rate, denied, hot: hot_filter, large })
            };
            match prepare() {
                Ok(side) if side.denied > 0 && candidate.is_ours() => {
                    let name = candidate.name();
                    return Err(format!("FALSE NEGATIVE: {name} denies {} of its keys", side.denied).into());
                }
                Ok(side) => sides.push(side),
                Err(error) => left_out.push(format!("{} ({}): {error}", candidate.name(), group.name)),
            }
        }
    }

    let rounds = options.common.rounds;
    let candidate = |side: &Side| &groups[side.group].candidates[side.at];
    let measure = |what: &str, measure: &dyn Fn(&Side) -> Option<f64>| -> Vec<Option<Spread>> {
        let mut timed: Vec<Box<dyn FnMut() -> f64 + '_>> = Vec::new();
        let chosen: Vec<usize> =
            (0..sides.len()).filter(|&at| what != "beyond the cache" || sides[at].large.is_some()).collect();
        for &at in &chosen {
            let side = &sides[at];
            timed.push(Box::new(move || measure(side).unwrap_or(f64::NAN)));
        }
        progress.begin(what, timed.len() * (rounds + 1));
        let mut spreads = vec![None; sides.len()];
        for (at, spread) in chosen.into_iter().zip(interleaved(rounds, &mut timed, || progress.advance(1))) {
            spreads[at] = Some(spread);
        }
        spreads
    };
    let count = options.probes;
    let build = measure("building", &|side| Some(candidate(side).build_time(&all, side.bits_asked)));
    let hot_time = |what: &str, queries: &[u64], wait: bool| {
        measure(what, &|side| Some(side.hot.probe_time(queries, count, wait, &route)))
    };
    let absent_times = hot_time("absent keys", &absent, false);
    let chained_times = hot_time("absent keys, chained", &absent, true);
    let present_times = hot_time("present keys", &present, false);
    let large_time = |wait: bool| {
        measure("beyond the cache", &|side| {
            Some(side.large.as_ref()?.probe_time(&absent, count, wait, &route))
        })
    };
    let (large_times, large_chained) = (large_time(false), large_time(true));

    let nothing = Spread { median: f64::NAN, min: f64::NAN, max: f64::NAN };
    let rows: Vec<Row> = sides
        .iter()
        .enumerate()
        .map(|(at, side)| Row {
            group: groups[side.group].name,
            filter: candidate(side).name(),
            note: candidate(side).note(),
            bits: side.bits,
            rate: side.rate,
            denied: side.denied,
            build: build[at].unwrap_or(nothing),
            absent: absent_times[at].unwrap_or(nothing),
            absent_chained: chained_times[at].unwrap_or(nothing),
            present: present_times[at].unwrap_or(nothing),
            large: large_times[at],
            large_chained: large_chained[at],
        })
        .collect();
    Ok(render(options, &rows, left_out))
}

fn render(options: &Options, rows: &[Row], left_out: Vec<String>) -> Report {
    let mut report = Report::new("Filters of other crates compared with those of tamis");
    report.text(format!(
        "Keys are 64-bit hashes, the same for all. Bits per key, rate ({QUERIES} absent keys) and building are of a \
         filter of {} keys. Times in ns, medians of {} rounds of interleaved sides, with half the distance \
         between fastest and slowest round in percent; absent, chained (each probe waits for the answer of the one \
         before; with filters whose code exits through a branch, the processor guesses the answer and continues) and present are of a filter of {} keys, in the cache. In brackets: time of the other crate divided by that \
         of tamis in the same group; above 1 tamis is faster.",
        options.keys, options.common.rounds, options.hot_keys
    ));
    if options.large {
        report.text(
            "large: absent keys, each looked up in a random one of many filters that do not fit the cache together.",
        );
    }
    let mut columns = vec!["filter", "bits per key", "rate", "build", "absent", "chained", "present"];
    if options.large {
        columns.extend(["large", "large, chained"]);
    }
    let mut names: Vec<&str> = rows.iter().map(|row| row.group).collect();
    names.dedup();
    for name in names {
        let group: Vec<&Row> = rows.iter().filter(|row| row.group == name).collect();
        let ours = group.iter().find(|row| row.filter.starts_with("tamis"));
        let mut table = Table::new(1, columns.clone());
        for row in &group {
            let time = |of: &dyn Fn(&Row) -> Option<Spread>| {
                let Some(spread) = of(row) else { return "–".to_owned() };
                let mut text = format!("{} ±{:.0}%", report::ns(spread.median), spread.percent() / 2.0);
                if let Some(base) = ours.filter(|ours| ours.filter != row.filter).and_then(|ours| of(ours)) {
                    text.push_str(&format!(" ({:.2})", spread.median / base.median));
                }
                text
            };
            let mut cells = vec![row.filter.to_owned(), format!("{:.2}", row.bits), report::rate(row.rate)];
            cells.extend([
                time(&|row| Some(row.build)),
                time(&|row| Some(row.absent)),
                time(&|row| Some(row.absent_chained)),
                time(&|row| Some(row.present)),
            ]);
            if options.large {
                cells.extend([time(&|row| row.large), time(&|row| row.large_chained)]);
            }
            table.row(cells);
        }
        report.heading(name);
        report.table(table);
        let notes = group.iter().map(|row| format!("{}: {}", row.filter, row.note));
        report.text(format!("{}.", notes.collect::<Vec<_>>().join(". ")));
        for row in group.iter().filter(|row| row.denied > 0) {
            report.text(format!("{} denies {} of the keys it was built over.", row.filter, row.denied));
        }
    }
    if !left_out.is_empty() {
        report.text(format!("Omitted: {}.", left_out.join("; ")));
    }
    report.data = json!({ "rows": rows, "left_out": left_out });
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_keys_has_no_duplicates() {
        let mut all = Keys::numbered(0, 10_000).hashes;
        all.extend(Keys::numbered(1 << 60, 10_000).hashes);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 20_000);
    }

    #[test]
    fn every_group_ends_with_ours() {
        for group in groups() {
            let ours: Vec<bool> = group.candidates.iter().map(|candidate| candidate.is_ours()).collect();
            assert!(
                ours.len() > 1 && ours.iter().rposition(|ours| !ours) == Some(ours.len() - 2),
                "{}",
                group.name
            );
        }
    }
}
