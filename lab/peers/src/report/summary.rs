//! From rows to medians: the suites, the figures of each system under each set of conditions, and the best peer.
//!
//! A figure of a system under some conditions is the median over the rounds; its spread extends from minimum to
//! maximum. The best is the best median of all other engines. Of two rows with the same system, conditions and round the
//! later one counts, since files of rows are appended to.

use std::collections::BTreeMap;

use super::figure::{Figure, Unit};
use crate::record::{Conditions, Row};

/// The systems that tamis is compared with, in the order of reports.
pub(super) const PEERS: [&str; 11] = [
    "rocksdb",
    "rocksdb-native",
    "rocksdb-row-cache",
    "leveldb",
    "fjall",
    "tidesdb",
    "surrealkv",
    "lmdb",
    "mdbx",
    "redb",
    "bf-tree",
];

/// Suites in the order of reports; others follow by name.
const SUITES: [&str; 22] = [
    "compacted",
    "cached",
    "settled",
    "overwritten",
    "runs",
    "load",
    "inline",
    "batch",
    "writers",
    "sync",
    "steady",
    "large",
    "space",
    "ycsb",
    "mixgraph",
    "cold",
    "opening",
    "direct",
    "hot-gets",
    "beyond-memory",
    "keys",
    "real",
];

/// Smaller numbers of rounds are marked.
pub(super) const ENOUGH_ROUNDS: usize = 5;

/// Relative spreads above this are marked.
const WIDE: f64 = 0.2;

/// Amounts of memory that differ by a greater share are marked.
const SAME_MEMORY: f64 = 0.02;

/// Ratios that differ from 1 by less than this are neither won nor lost.
pub(super) const EVEN: f64 = 0.02;

/// A figure over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Number of rounds.
    pub(crate) rounds: usize,
}

/// One system under some conditions.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// It could not be measured, for this reason.
    Refused(String),
    /// Its figures, without meaningless ones.
    Measured(BTreeMap<Figure, Spread>),
}

/// Rows of equal conditions.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) conditions: Conditions,
    /// By system.
    pub(super) outcomes: BTreeMap<String, Outcome>,
    /// The puts of each whole second in the last measured round, by system.
    pub(super) seconds: BTreeMap<String, Vec<u32>>,
}

/// One suite.
#[derive(Clone, Debug)]
pub(super) struct Suite {
    pub(super) name: String,
    /// Systems with a row in it: tamis and its variants, then the peers, then others.
    pub(super) systems: Vec<String>,
    /// Workloads in the order of their first measurement; within them, conditions in their own order.
    pub(super) groups: Vec<Group>,
    /// Where a put is when it returns, with the systems of which that is true.
    pub(super) durability: Vec<(String, Vec<String>)>,
}

/// A system's versions and options.
#[derive(Clone, Debug)]
pub(super) struct System {
    pub(super) name: String,
    pub(super) versions: Vec<String>,
    /// Each set of options, with the suites that used it.
    pub(super) options: Vec<(BTreeMap<String, String>, Vec<String>)>,
}

/// All suites and systems.
#[derive(Clone, Debug)]
pub(super) struct Summary {
    pub(super) suites: Vec<Suite>,
    /// In the same order as in suites.
    pub(super) systems: Vec<System>,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Behind,
    Even,
    Ahead,
}

/// A comparison of a variant of tamis with the best of the peers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison<'a> {
    pub(super) ours: Spread,
    pub(super) best: (&'a str, Spread),
    /// Above 1: tamis is ahead.
    pub(super) ratio: f64,
}

impl Spread {
    /// Summarises some values; `None` for none.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let rounds = values.len();
        let (low, high) = (values[(rounds - 1) / 2], values[rounds / 2]);
        Some(Spread { median: low + (high - low) / 2.0, min, max, rounds })
    }

    /// Reports whether the rounds differ too much for a significant median.
    pub(super) fn is_wide(&self) -> bool {
        self.max - self.min > WIDE * self.median
    }

    /// Reports whether there are too few rounds for a significant median.
    pub(super) fn is_thin(&self) -> bool {
        self.rounds < ENOUGH_ROUNDS
    }

    fn overlaps(&self, other: &Spread) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}

impl Standing {
    /// Returns the result of a ratio.
    pub(super) fn of(ratio: f64) -> Standing {
        match ratio {
            r if r > 1.0 + EVEN => Standing::Ahead,
            r if r < 1.0 - EVEN => Standing::Behind,
            _ => Standing::Even,
        }
    }
}

impl Comparison<'_> {
    /// Reports whether a round of one side was within the rounds of the other: then the ratio is not certain.
    pub(super) fn overlaps(&self) -> bool {
        self.ours.overlaps(&self.best.1)
    }
}

impl Group {
    /// Returns a system's figure, if measured.
    pub(super) fn spread(&self, system: &str, figure: Figure) -> Option<Spread> {
        match self.outcomes.get(system)? {
            Outcome::Measured(figures) => figures.get(&figure).copied(),
            Outcome::Refused(_) => None,
        }
    }

    /// Returns the best of the measured peers; the first one of equals in the order of reports.
    pub(super) fn best(&self, figure: Figure) -> Option<(&'static str, Spread)> {
        let measured = PEERS.into_iter().filter_map(|peer| Some((peer, self.spread(peer, figure)?)));
        measured.reduce(|best, next| if figure.better(next.1.median, best.1.median) { next } else { best })
    }

    /// Reports whether the filters of some systems take another amount of memory than those of the first: by more than [`SAME_MEMORY`].
    pub(super) fn differs_in_memory(&self, systems: &[String]) -> bool {
        let mut bits = systems.iter().filter_map(|system| self.spread(system, Figure::FilterBits));
        let Some(first) = bits.next() else { return false };
        bits.any(|other| (other.median / first.median - 1.0).abs() > SAME_MEMORY)
    }

    /// Compares a system with the best of the peers, if both were measured.
    pub(super) fn compare(&self, system: &str, figure: Figure) -> Option<Comparison<'_>> {
        let ours = self.spread(system, figure)?;
        let best = self.best(figure)?;
        // Fractions of a byte are shown as none.
        if figure.unit() == Unit::Bytes && ours.median < 1.0 && best.1.median < 1.0 {
            return None;
        }
        Some(Comparison { ours, best, ratio: figure.ratio(ours.median, best.1.median) })
    }
}

impl Suite {
    /// Returns the figure by which the suite is judged.
    pub(super) fn headline(&self) -> Figure {
        Figure::headline(&self.name)
    }

    /// Returns tamis and its variants in this suite.
    pub(super) fn variants(&self) -> impl Iterator<Item = &str> {
        self.systems.iter().map(String::as_str).filter(|name| is_tamis(name))
    }

    /// Reports whether any system has a value of this figure other than 0 in any group.
    pub(super) fn has(&self, figure: Figure) -> bool {
        let mut all = self.groups.iter().flat_map(|g| self.systems.iter().map(move |s| g.spread(s, figure)));
        all.any(|spread| spread.is_some_and(|spread| spread.max > 0.0))
    }

    /// Returns the systems that were not measured, with reasons and workloads.
    pub(super) fn refusals(&self) -> BTreeMap<(&str, &str), Vec<&str>> {
        let mut refusals: BTreeMap<_, Vec<&str>> = BTreeMap::new();
        for group in &self.groups {
            for (system, outcome) in &group.outcomes {
                let Outcome::Refused(reason) = outcome else { continue };
                let workloads = refusals.entry((system.as_str(), reason.as_str())).or_default();
                if !workloads.contains(&group.conditions.workload.as_str()) {
                    workloads.push(&group.conditions.workload);
                }
            }
        }
        refusals
    }
}

/// Reports whether a system is tamis or a variant of it.
pub(super) fn is_tamis(system: &str) -> bool {
    system.strip_prefix("tamis").is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', ':']))
}

/// Returns the position of a system in reports: tamis, its variants, the peers, others.
fn rank(system: &str) -> (usize, &str) {
    let peer = PEERS.iter().position(|peer| *peer == system);
    match (is_tamis(system), peer) {
        (true, _) => (0, system),
        (false, Some(at)) => (1 + at, system),
        (false, None) => (usize::MAX, system),
    }
}

/// The groups of a suite by the first measurement of their workload, and by conditions.
type Placed<'a> = BTreeMap<(usize, &'a Conditions), Group>;

impl Summary {
    /// Summarises all rows.
    pub(super) fn of(rows: &[Row]) -> Summary {
        let mut latest: BTreeMap<(&Conditions, &str), BTreeMap<u32, &Row>> = BTreeMap::new();
        let mut first_seen: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for (at, row) in rows.iter().enumerate() {
            latest.entry((&row.conditions, &row.system)).or_default().insert(row.round, row);
            first_seen.entry((&row.conditions.suite, &row.conditions.workload)).or_insert(at);
        }
        let mut suites: BTreeMap<(usize, &str), Placed<'_>> = BTreeMap::new();
        for ((conditions, system), rounds) in &latest {
            let suite = conditions.suite.as_str();
            let place = SUITES.iter().position(|name| *name == suite).unwrap_or(SUITES.len());
            let workload = first_seen[&(suite, conditions.workload.as_str())];
            let new = || Group {
                conditions: (*conditions).clone(),
                outcomes: BTreeMap::new(),
                seconds: BTreeMap::new(),
            };
            let groups = suites.entry((place, suite)).or_default();
            let group = groups.entry((workload, conditions)).or_insert_with(new);
            group.outcomes.insert((*system).to_owned(), outcome(rounds));
            if let Some(last) = rounds.values().rev().find(|row| row.refused.is_none() && !row.is_counted())
                && let [whole @ .., _] = last.figures.puts_by_second.as_slice()
            {
                group.seconds.insert((*system).to_owned(), whole.to_vec());
            }
        }
        let suites = suites.into_iter().map(|((_, name), groups)| {
            let groups: Vec<Group> = groups.into_values().collect();
            let mut systems: Vec<String> = groups.iter().flat_map(|g| g.outcomes.keys().cloned()).collect();
            systems.sort_by(|a, b| rank(a).cmp(&rank(b)));
            systems.dedup();
            let durability = durability(rows, name, &systems);
            Suite { name: name.to_owned(), systems, groups, durability }
        });
        Summary { suites: suites.collect(), systems: systems(latest.values().flat_map(BTreeMap::values)) }
    }

    /// Returns every row of tamis and its variants compared with the best of the peers, worst first.
    pub(super) fn overview(&self) -> Vec<(&Suite, &Group, &str, Comparison<'_>)> {
        let mut all: Vec<_> = self
            .suites
            .iter()
            .flat_map(|suite| suite.groups.iter().map(move |group| (suite, group)))
            .flat_map(|(suite, group)| suite.variants().map(move |system| (suite, group, system)))
            .filter_map(|(suite, group, system)| {
                Some((suite, group, system, group.compare(system, suite.headline())?))
            })
            .collect();
        all.sort_by(|a, b| a.3.ratio.total_cmp(&b.3.ratio));
        all
    }
}

fn durability(rows: &[Row], suite: &str, systems: &[String]) -> Vec<(String, Vec<String>)> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for system in systems {
        let its =
            |row: &&Row| row.conditions.suite == suite && row.system == *system && !row.durability.is_empty();
        let Some(row) = rows.iter().find(its) else { continue };
        match all.iter_mut().find(|(what, _)| *what == row.durability) {
            Some((_, systems)) => systems.push(system.clone()),
            None => all.push((row.durability.clone(), vec![system.clone()])),
        }
    }
    all
}

/// Summarises the rounds of one system under some conditions. One measured round makes it measured.
fn outcome(rounds: &BTreeMap<u32, &Row>) -> Outcome {
    let measured: Vec<&Row> = rounds.values().filter(|row| row.refused.is_none()).copied().collect();
    if measured.is_empty() {
        let reason = rounds.values().find_map(|row| row.refused.clone());
        return Outcome::Refused(reason.unwrap_or_default());
    }
    let figures = Figure::ALL.into_iter().filter_map(|figure| {
        let values = measured.iter().filter_map(|row| figure.of(row)).collect();
        Some((figure, Spread::of(values)?))
    });
    Outcome::Measured(figures.collect())
}

/// Returns the systems with the versions and options of the rows that count.
fn systems<'a>(rows: impl Iterator<Item = &'a &'a Row>) -> Vec<System> {
    let mut systems: BTreeMap<(usize, &str), System> = BTreeMap::new();
    for row in rows {
        let new = || System { name: row.system.clone(), versions: Vec::new(), options: Vec::new() };
        let system = systems.entry(rank(&row.system)).or_insert_with(new);
        if !system.versions.contains(&row.version) {
            system.versions.push(row.version.clone());
        }
        if row.refused.is_some() {
            continue;
        }
        let suite = &row.conditions.suite;
        match system.options.iter_mut().find(|(options, _)| *options == row.options) {
            Some((_, suites)) if suites.contains(suite) => {}
            Some((_, suites)) => suites.push(suite.clone()),
            None => system.options.push((row.options.clone(), vec![suite.clone()])),
        }
    }
    systems.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{refused, row, rows_of};

    fn group(rows: &[Row]) -> Group {
        let summary = Summary::of(rows);
        assert_eq!((summary.suites.len(), summary.suites[0].groups.len()), (1, 1));
        summary.suites[0].groups[0].clone()
    }

    #[test]
    fn medians_and_spreads_are_exact() {
        let of = |values: &[f64]| Spread::of(values.to_vec()).map(|s| (s.median, s.min, s.max, s.rounds));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[7.0]), Some((7.0, 7.0, 7.0, 1)));
        assert_eq!(of(&[4.0, 1.0]), Some((2.5, 1.0, 4.0, 2)));
        assert_eq!(of(&[9.0, 1.0, 5.0]), Some((5.0, 1.0, 9.0, 3)));
        assert_eq!(of(&[8.0, 2.0, 6.0, 4.0]), Some((5.0, 2.0, 8.0, 4)));
        let group = group(&rows_of("settled", "seek", &[("tamis", &[3.0, 1.0, 2.0, 5.0, 4.0])]));
        let spread = group.spread("tamis", Figure::NsPerOp).unwrap();
        assert_eq!((spread.median, spread.min, spread.max, spread.rounds), (3.0, 1.0, 5.0, 5));
        assert!(spread.is_wide() && !spread.is_thin());
    }

    #[test]
    fn any_other_engine_may_be_the_best_and_strangers_never() {
        let systems: &[(&str, &[f64])] = &[
            ("tamis", &[10.0]),
            ("rocksdb", &[30.0]),
            ("leveldb", &[20.0]),
            ("tidesdb", &[25.0]),
            ("mdbx", &[20.5]),
            ("rocks", &[1.0]),
        ];
        let group = group(&rows_of("settled", "seek", systems));
        let found = group.compare("tamis", Figure::NsPerOp).unwrap();
        assert_eq!((found.best.0, found.ratio), ("leveldb", 2.0));
        // The highest throughput is the best.
        let found = group.compare("tamis", Figure::OpsPerSecond).unwrap();
        assert_eq!(found.best.0, "leveldb");
        assert!((found.ratio - 2.0).abs() < 1e-12 && !found.overlaps());
        let b_tree = self::group(&rows_of("settled", "seek", &[("tamis", &[10.0]), ("lmdb", &[5.0])]));
        assert_eq!(b_tree.compare("tamis", Figure::NsPerOp).unwrap().best.0, "lmdb");
    }

    #[test]
    fn ties_are_even_and_the_first_peer_is_named() {
        let tie = rows_of("settled", "seek", &[("tamis", &[10.0]), ("fjall", &[10.0]), ("leveldb", &[10.0])]);
        let group = group(&tie);
        let found = group.compare("tamis", Figure::NsPerOp).unwrap();
        assert_eq!((found.best.0, found.ratio, Standing::of(found.ratio)), ("leveldb", 1.0, Standing::Even));
        assert!(found.overlaps());
        let standings = [0.0, 0.97, 0.99, 1.01, 1.03, f64::INFINITY].map(Standing::of);
        use Standing::*;
        assert_eq!(standings, [Behind, Behind, Even, Even, Ahead, Ahead]);
    }

    #[test]
    fn missing_values_and_zeros_are_not_compared() {
        let mut rows =
            rows_of("settled", "seek", &[("tamis", &[10.0]), ("rocksdb", &[0.0]), ("rocks", &[5.0])]);
        rows.push(refused("settled", "seek", "leveldb", "no"));
        let group = group(&rows);
        assert!(group.compare("tamis", Figure::NsPerOp).is_none());
        assert!(group.compare("tamis-grf", Figure::NsPerOp).is_none());
        assert_eq!(group.outcomes["leveldb"], Outcome::Refused("no".to_owned()));
        // Its memory was measured nevertheless.
        assert_eq!(group.compare("tamis", Figure::Resident).unwrap().ratio, 1.0);
    }

    /// Some pages of a whole load, 0 B beside 0 B in the table, had a ratio of 2.50.
    #[test]
    fn fractions_of_a_byte_are_not_compared() {
        let read = |tamis: f64, rocksdb: f64| {
            let mut rows = rows_of("load", "fill-random", &[("tamis", &[10.0]), ("rocksdb", &[10.0])]);
            for (row, bytes) in rows.iter_mut().zip([tamis, rocksdb]) {
                row.figures.device_read_bytes_per_op = bytes;
            }
            group(&rows).compare("tamis", Figure::DeviceReadBytes).map(|comparison| comparison.ratio)
        };
        assert_eq!(read(0.2, 0.5), None);
        assert_eq!(read(0.5, 2.0), Some(4.0));
        assert_eq!(read(4.0, 2.0), Some(0.5));
    }

    #[test]
    fn a_round_refused_among_others_does_not_count() {
        let mut rows = rows_of("settled", "seek", &[("rocksdb", &[4.0, 6.0])]);
        rows.push(Row { round: 2, ..refused("settled", "seek", "rocksdb", "for once") });
        let spread = group(&rows).spread("rocksdb", Figure::NsPerOp).unwrap();
        assert_eq!((spread.median, spread.rounds), (5.0, 2));
    }

    /// A repeated run appends its rounds to the file of the first one.
    #[test]
    fn the_later_of_two_measurements_of_a_round_counts() {
        let mut rows = rows_of("settled", "seek", &[("tamis", &[1.0, 2.0, 3.0])]);
        rows.push(row("settled", "seek", "tamis", 0, 30.0));
        let spread = group(&rows).spread("tamis", Figure::NsPerOp).unwrap();
        assert_eq!((spread.median, spread.min, spread.max, spread.rounds), (3.0, 2.0, 30.0, 3));
    }

    #[test]
    fn suites_workloads_and_systems_have_an_order() {
        let mut rows = rows_of("strange", "b", &[("zebra", &[1.0])]);
        rows.extend(rows_of("load", "b", &[("redb", &[1.0]), ("fjall", &[1.0]), ("tamis:x=1", &[1.0])]));
        rows.extend(rows_of("load", "a", &[("rocksdb", &[1.0]), ("tamis", &[1.0]), ("tamish", &[1.0])]));
        rows.extend(rows_of("settled", "a", &[("tamis-grf", &[1.0])]));
        let summary = Summary::of(&rows);
        let suites: Vec<&str> = summary.suites.iter().map(|suite| suite.name.as_str()).collect();
        assert_eq!(suites, ["settled", "load", "strange"]);
        let load = &summary.suites[1];
        let workloads: Vec<&str> = load.groups.iter().map(|g| g.conditions.workload.as_str()).collect();
        assert_eq!(workloads, ["b", "a"]);
        assert_eq!(load.systems, ["tamis", "tamis:x=1", "rocksdb", "fjall", "redb", "tamish"]);
        assert_eq!(load.variants().collect::<Vec<_>>(), ["tamis", "tamis:x=1"]);
        let systems: Vec<&str> = summary.systems.iter().map(|system| system.name.as_str()).collect();
        assert_eq!(
            systems,
            ["tamis", "tamis-grf", "tamis:x=1", "rocksdb", "fjall", "redb", "tamish", "zebra"]
        );
    }

    #[test]
    fn options_that_differ_are_listed_by_suite() {
        let mut rows = rows_of("settled", "seek", &[("tamis", &[1.0])]);
        rows.extend(rows_of("runs", "seek", &[("tamis", &[1.0])]));
        rows.extend(rows_of("ycsb", "ycsb-a", &[("tamis", &[1.0])]));
        rows[2].options.insert("cache".to_owned(), "1 GiB".to_owned());
        rows.push(refused("runs", "seek", "redb", "no"));
        let systems = Summary::of(&rows).systems;
        let suites: Vec<Vec<String>> = systems[0].options.iter().map(|(_, suites)| suites.clone()).collect();
        assert_eq!(suites, [vec!["runs".to_owned(), "settled".to_owned()], vec!["ycsb".to_owned()]]);
        assert_eq!((systems[1].name.as_str(), systems[1].options.len()), ("redb", 0));
    }
}
