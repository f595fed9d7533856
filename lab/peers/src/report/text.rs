//! Numbers, names and remarks as plain text for both Markdown and HTML, which escape it.

use tamis_bench::report::{bytes, grouped, mean};

use super::figure::{Figure, Unit};
use super::summary::{Comparison, Group, Outcome, Spread, Standing};
use super::targets::Verdict;
use crate::record::Conditions;

/// Marks a figure of fewer than [`ENOUGH_ROUNDS`](super::summary::ENOUGH_ROUNDS) rounds.
const THIN: char = '*';
/// Marks a figure whose rounds differ by more than a fifth of it.
const WIDE: char = '†';
/// Marks a ratio whose two sides overlap.
pub(super) const OVERLAP: char = '‡';
/// Marks a row whose systems have different amounts of memory.
const MEMORY: char = '§';

/// The name of the row below a time or a throughput.
pub(super) const HAD: &str = "with";

/// How to read the report, in paragraphs. Part of all its forms.
pub(super) const HOW_TO_READ: [&str; 7] = [
    "Every figure is the median over the rounds; minimum and maximum are in brackets. In every round each system \
     executed the same operations on the same keys, in turn, in its own process, and every answer was checked.",
    "A ratio is the factor by which tamis is better than the best other engine in the same row, of those that were measured. Best \
     time / ours, our throughput / the best, best bytes / ours. Above 1 tamis is ahead, below 1 it is behind; within 2 % of 1 it counts as \
     even.",
    "Only figures within a table are comparable. Absolute times vary between machines and over time.",
    "* fewer than 5 rounds. † the rounds differ by more than 20 % of the median. ‡ the rounds of tamis and of the \
     best overlap, so the ratio is not certain. § the filters of some system take more than 2 % more or less memory per key \
     than those of the first.",
    "Below each time or throughput is what the system had: bits per key of all filters in memory + of all indexes; sorted \
     runs; anonymous memory of the process; instructions of the calling thread per operation, counted by callgrind in a pass \
     of its own, without background threads, and with the check of the answer. LevelDB, TidesDB and SurrealKV do not report filters \
     and indexes: LevelDB's are in mapped tables, the others' in their block caches, which are larger by about as much. Neither do LMDB, MDBX, \
     redb and Bf-Tree, B-trees.",
    "\"refused\": the engine does not support this; the reason is below the table. \"—\": not measured or not \
     reported.",
    "A target is a ratio that tamis should reach; \"missed by 20 %\" means that the ratio was a fifth below it. \
     Targets apply to keys of 8 and values of 256 bytes and to tamis with default options, or to the variant they name.",
];

/// Formats a figure with its unit's usual number of places, without the name of the unit (except for bytes).
pub(super) fn value(figure: Figure, value: f64) -> String {
    match figure.unit() {
        Unit::Nanoseconds => places(value),
        Unit::Thousands => places(value / 1000.0),
        Unit::Bytes => bytes(value.round() as u64),
        Unit::Plain => mean(value),
    }
}

fn places(number: f64) -> String {
    if (10.0..100.0).contains(&number) { format!("{number:.1}") } else { mean(number) }
}

/// Formats a ratio: 0.87×, 1.20×, 12.5×, 120×.
pub(crate) fn ratio(ratio: f64) -> String {
    match ratio {
        r if r.is_infinite() => "∞×".to_owned(),
        r if r < 0.01 && r > 0.0 => format!("{r:.1e}×"),
        r if r < 9.995 => format!("{r:.2}×"),
        r if r < 99.95 => format!("{r:.1}×"),
        r => format!("{}×", grouped(r.round() as u64)),
    }
}

/// Returns the marks of a figure's uncertainty; empty if there are none.
pub(crate) fn marks(spread: &Spread) -> String {
    let marks = [(spread.is_thin(), THIN), (spread.is_wide(), WIDE)];
    marks.iter().filter(|(there, _)| *there).map(|(_, mark)| mark).collect()
}

/// Formats a median with its marks.
pub(super) fn median(figure: Figure, spread: &Spread) -> String {
    value(figure, spread.median) + &marks(spread)
}

/// Formats a median with its spread in brackets and its marks.
pub(super) fn spread(figure: Figure, spread: &Spread) -> String {
    let [median, min, max] = [spread.median, spread.min, spread.max].map(|v| value(figure, v));
    let marks = marks(spread);
    if spread.rounds == 1 { format!("{median}{marks}") } else { format!("{median}{marks} ({min}–{max})") }
}

/// Returns the contents of a system's column. `brief` omits the spread.
pub(super) fn cell(group: &Group, system: &str, figure: Figure, brief: bool) -> String {
    match (group.outcomes.get(system), group.spread(system, figure)) {
        (Some(Outcome::Refused(_)), _) => "refused".to_owned(),
        (_, None) => "—".to_owned(),
        (_, Some(s)) if brief => median(figure, &s),
        (_, Some(s)) => spread(figure, &s),
    }
}

/// Returns what a system had while it was measured: filters, indexes, runs, memory, instructions. The same text for every table of
/// times, so that none is without it.
pub(super) fn had(group: &Group, system: &str) -> String {
    let of = |figure| group.spread(system, figure);
    let bits = |bytes: f64| mean(bytes * 8.0 / group.conditions.keys as f64);
    let mut parts = Vec::new();
    if let Some(filters) = of(Figure::FilterBits) {
        let indexes = of(Figure::Indexes).filter(|indexes| indexes.median > 0.0);
        let indexes = indexes.map_or(String::new(), |indexes| format!(" + {}", bits(indexes.median)));
        parts.push(format!("{}{indexes} bits", mean(filters.median)));
    }
    if let Some(runs) = of(Figure::Runs) {
        let (from, to) = (runs.min.round() as u64, runs.max.round() as u64);
        let number = if from == to { format!("{from}") } else { format!("{from}–{to}") };
        parts.push(format!("{number} run{}", if to == 1 { "" } else { "s" }));
    }
    if let Some(memory) = of(Figure::Resident) {
        parts.push(bytes(memory.median.round() as u64));
    }
    if let Some(instructions) = of(Figure::Instructions) {
        parts.push(format!("{} instr.", grouped(instructions.median.round() as u64)));
    }
    if parts.is_empty() { "—".to_owned() } else { parts.join(", ") }
}

/// Returns a mark for the name of a group whose systems have different amounts of memory.
pub(super) fn memory(group: &Group, systems: &[String]) -> String {
    if group.differs_in_memory(systems) { format!(" {MEMORY}") } else { String::new() }
}

/// Formats a comparison of a variant with the best: the ratio, and the best one's name.
pub(super) fn against(comparison: Option<Comparison<'_>>) -> String {
    match comparison {
        Some(found) => format!("{}{} {}", ratio(found.ratio), overlap(&found), found.best.0),
        None => "—".to_owned(),
    }
}

/// Returns a mark if the ratio is not certain.
pub(super) fn overlap(comparison: &Comparison<'_>) -> String {
    if comparison.overlaps() { OVERLAP.to_string() } else { String::new() }
}

/// Returns the result in a word.
pub(super) fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Behind => "behind",
        Standing::Even => "even",
        Standing::Ahead => "ahead",
    }
}

/// Formats the verdict on a target: `≥ 2.00×: 2.24× met, 12 % above`.
pub(super) fn verdict(verdict: &Verdict<'_>) -> String {
    let target = verdict.target;
    let label = target.label();
    let what = if label.is_empty() { String::new() } else { format!("{label} ") };
    let wanted = ratio(target.at_least);
    let Some(found) = verdict.ratio else { return format!("{what}≥ {wanted}: nothing to compare with") };
    let by = found / target.at_least - 1.0;
    let outcome = match (verdict.is_met(), by) {
        (true, by) if by.is_infinite() || by < 0.005 => "met".to_owned(),
        (true, by) => format!("met, {:.0} % above", by * 100.0),
        (false, by) => format!("missed by {}", percent(-by)),
    };
    format!("{what}≥ {wanted}: {} {outcome}", ratio(found))
}

/// Formats a share that is not 0, so that a narrow miss does not read as 0 %.
fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p < 0.1 => "less than 0.1 %".to_owned(),
        p if p < 1.0 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// Returns a suite's heading.
pub(super) fn suite(name: &str) -> String {
    match name {
        "compacted" => "Compacted: everything merged into one run".to_owned(),
        "cached" => "Cached: everything merged into one run, and read once before".to_owned(),
        "settled" => "Settled: compaction has finished".to_owned(),
        "overwritten" => "Overwritten: compaction has finished after as many overwrites as keys".to_owned(),
        "runs" => "Many runs: compaction held back".to_owned(),
        "load" => "Load".to_owned(),
        "inline" => "Load with values made right before their puts, which is timed as well".to_owned(),
        "batch" => "Load in batches of 100 puts".to_owned(),
        "writers" => "Load by several threads".to_owned(),
        "steady" => "Steady overwrites".to_owned(),
        "large" => "Large values, separated from their keys".to_owned(),
        "space" => "Space of a load, at rest".to_owned(),
        "ycsb" => "YCSB".to_owned(),
        "mixgraph" => "Mixgraph".to_owned(),
        "cold" => "Cold: nothing in the page cache".to_owned(),
        "opening" => "Openings".to_owned(),
        "direct" => "Direct I/O".to_owned(),
        "keys" => "Lengths of keys".to_owned(),
        "real" => "Real keys".to_owned(),
        "sync" => "Synced writes".to_owned(),
        "hot-gets" => "Gets of hot keys".to_owned(),
        "beyond-memory" => "Data larger than memory".to_owned(),
        other => other.to_owned(),
    }
}

/// Returns the parts of conditions in words, except suite and workload. Some are empty.
fn facets(conditions: &Conditions) -> [String; 14] {
    let word = |yes: bool, a: &str, b: &str| if yes { a.to_owned() } else { b.to_owned() };
    [
        format!("{} keys", grouped(conditions.keys)),
        match conditions.key_set.as_str() {
            "" | "uniform" => "random keys".to_owned(),
            name => name.to_owned(),
        },
        format!("keys of {} bytes", grouped(conditions.key_bytes)),
        format!("values of {} bytes", grouped(conditions.value_bytes)),
        format!("{} thread{}", conditions.threads, if conditions.threads == 1 { "" } else { "s" }),
        format!("block cache {}", bytes(conditions.cache_bytes)),
        format!("{} filter bits per key", conditions.filter_bits),
        word(conditions.direct_io, "direct I/O", "through the page cache"),
        match (conditions.cold, conditions.memory_bytes) {
            (true, _) => "page cache empty".to_owned(),
            (false, None) => "page cache warm".to_owned(),
            (false, Some(_)) => String::new(),
        },
        word(conditions.sync, "every write synced", "log written but not synced"),
        word(conditions.settled, "compaction finished", "compaction held back"),
        match conditions.compression.as_str() {
            "none" => "no compression".to_owned(),
            other => format!("compression {other}"),
        },
        conditions.hot_keys.clone(),
        match conditions.memory_bytes {
            Some(limit) => format!("all memory {}, page cache included", bytes(limit)),
            None => String::new(),
        },
    ]
}

/// The names of groups: the workload, and the conditions that differ between groups.
#[derive(Debug)]
pub(super) struct Labels {
    differs: [bool; 14],
    common: String,
}

impl Labels {
    /// Creates the names of groups of one suite.
    pub(super) fn of<'a>(groups: impl IntoIterator<Item = &'a Group>) -> Labels {
        let mut differs = [false; 14];
        let mut groups = groups.into_iter();
        let Some(first) = groups.next() else { return Labels { differs, common: String::new() } };
        let first = facets(&first.conditions);
        for group in groups {
            for ((differs, here), first) in differs.iter_mut().zip(facets(&group.conditions)).zip(&first) {
                *differs |= here != *first;
            }
        }
        let common: Vec<String> = first
            .into_iter()
            .zip(differs)
            .filter(|(text, differs)| !differs && !text.is_empty())
            .map(|(text, _)| text)
            .collect();
        Labels { differs, common: common.join(", ") }
    }

    /// Returns what all groups have in common.
    pub(super) fn common(&self) -> &str {
        &self.common
    }

    /// Returns a group's name; different groups have different names.
    pub(super) fn name(&self, group: &Group) -> String {
        let facets = facets(&group.conditions).into_iter().zip(self.differs);
        let own = facets.filter(|(text, differs)| *differs && !text.is_empty()).map(|(text, _)| text);
        std::iter::once(group.conditions.workload.clone()).chain(own).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::Summary;
    use crate::report::synthetic::row;

    #[test]
    fn numbers_have_significant_places_only() {
        let written = [7.2, 72.34, 1059.4, 35_123.0].map(|ns| value(Figure::NsPerOp, ns));
        assert_eq!(written, ["7.20", "72.3", "1,059", "35,123"]);
        assert_eq!(value(Figure::OpsPerSecond, 231_400.0), "231");
        assert_eq!(value(Figure::Resident, 3.5 * 1024.0 * 1024.0), "3.5 MiB");
        assert_eq!(value(Figure::WriteAmplification, 4.104), "4.10");
        let ratios = [0.0, 0.004, 0.873, 1.0, 9.99, 12.54, 120.4, f64::INFINITY].map(ratio);
        assert_eq!(ratios, ["0.00×", "4.0e-3×", "0.87×", "1.00×", "9.99×", "12.5×", "120×", "∞×"]);
    }

    #[test]
    fn uncertain_figures_are_marked() {
        let few = Spread::of(vec![100.0, 119.0, 110.0]).unwrap();
        assert_eq!(spread(Figure::NsPerOp, &few), "110* (100–119)");
        let wide = Spread::of(vec![100.0, 100.0, 100.0, 100.0, 121.0]).unwrap();
        assert_eq!(spread(Figure::NsPerOp, &wide), "100† (100–121)");
        let good = Spread::of(vec![100.0, 100.0, 100.0, 100.0, 120.0]).unwrap();
        assert_eq!(spread(Figure::NsPerOp, &good), "100 (100–120)");
        assert_eq!(spread(Figure::NsPerOp, &Spread::of(vec![10.0]).unwrap()), "10.0*");
    }

    #[test]
    fn labels_name_what_differs_and_nothing_else() {
        let mut rows = Vec::new();
        for (threads, key_bytes) in [(1, 8), (2, 8), (1, 1024)] {
            let mut row = row("keys", "get-empty", "tamis", 0, 1.0);
            row.conditions.threads = threads;
            row.conditions.key_bytes = key_bytes;
            rows.push(row);
        }
        let summary = Summary::of(&rows);
        let labels = Labels::of(&summary.suites[0].groups);
        let mut names: Vec<String> = summary.suites[0].groups.iter().map(|g| labels.name(g)).collect();
        names.sort();
        let expected = [
            "get-empty, keys of 1,024 bytes, 1 thread",
            "get-empty, keys of 8 bytes, 1 thread",
            "get-empty, keys of 8 bytes, 2 threads",
        ];
        assert_eq!(names, expected);
        assert!(
            labels
                .common()
                .starts_with("1,000,000 keys, random keys, values of 256 bytes, block cache 8.0 MiB")
        );
        assert!(!labels.common().contains("thread"));
    }
}
