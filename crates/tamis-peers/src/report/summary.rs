//! From rows to medians: which suites there are, what each system took under each conditions, and who is the best.
//!
//! A figure of a system under some conditions is the median over the rounds; its spread goes from the least to the
//! most. The best is the best median of RocksDB, LevelDB and fjall: redb, a B-tree, is shown and not counted. Of two
//! rows of the same system, conditions and round the later one counts: files of rows are appended to.

use std::collections::BTreeMap;

use super::figure::Figure;
use crate::record::{Conditions, Row};

/// The systems that tamis is held against.
const PEERS: [&str; 3] = ["rocksdb", "leveldb", "fjall"];

/// Suites in the order of reports; others follow by name.
const SUITES: [&str; 9] = ["settled", "runs", "load", "ycsb", "mixgraph", "cold", "direct", "keys", "sync"];

/// Fewer rounds than this are marked.
pub(super) const ENOUGH_ROUNDS: usize = 5;

/// A spread wider than this part of the median is marked.
const WIDE: f64 = 0.2;

/// Ratios that differ from 1 by less than this are neither won nor lost.
const EVEN: f64 = 0.02;

/// What a figure was over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    /// Over how many rounds.
    pub(super) rounds: usize,
}

/// One system under some conditions.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// It could not be measured, for this reason.
    Refused(String),
    /// What it took. Figures that say nothing are left out.
    Measured(BTreeMap<Figure, Spread>),
}

/// Rows of equal conditions.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) conditions: Conditions,
    /// By system.
    pub(super) outcomes: BTreeMap<String, Outcome>,
}

/// One suite.
#[derive(Clone, Debug)]
pub(super) struct Suite {
    pub(super) name: String,
    /// Systems with a row in it: tamis and its variants, then the peers, then others.
    pub(super) systems: Vec<String>,
    /// Workloads in the order in which they were measured first; conditions in their own order within.
    pub(super) groups: Vec<Group>,
}

/// What a system is: its versions, and the options that it was given.
#[derive(Clone, Debug)]
pub(super) struct System {
    pub(super) name: String,
    pub(super) versions: Vec<String>,
    /// Each set of options, with the suites that used it.
    pub(super) options: Vec<(BTreeMap<String, String>, Vec<String>)>,
}

/// All of it.
#[derive(Clone, Debug)]
pub(super) struct Summary {
    pub(super) suites: Vec<Suite>,
    /// In the same order as in suites.
    pub(super) systems: Vec<System>,
}

/// Whether a ratio is won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Behind,
    Even,
    Ahead,
}

/// A variant of tamis against the best of the peers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison<'a> {
    pub(super) ours: Spread,
    pub(super) best: (&'a str, Spread),
    /// Above 1: tamis is ahead.
    pub(super) ratio: f64,
}

impl Spread {
    /// Of some values; `None` of none.
    pub(super) fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let rounds = values.len();
        let (low, high) = (values[(rounds - 1) / 2], values[rounds / 2]);
        Some(Spread { median: low + (high - low) / 2.0, min, max, rounds })
    }

    /// Whether the rounds differ so much that the median says little.
    pub(super) fn is_wide(&self) -> bool {
        self.max - self.min > WIDE * self.median
    }

    /// Whether there are too few rounds for a median that says something.
    pub(super) fn is_thin(&self) -> bool {
        self.rounds < ENOUGH_ROUNDS
    }

    fn overlaps(&self, other: &Spread) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}

impl Standing {
    /// Of a ratio.
    pub(super) fn of(ratio: f64) -> Standing {
        match ratio {
            r if r > 1.0 + EVEN => Standing::Ahead,
            r if r < 1.0 - EVEN => Standing::Behind,
            _ => Standing::Even,
        }
    }
}

impl Comparison<'_> {
    /// Whether some round of one side was within the rounds of the other: then the ratio is not certain.
    pub(super) fn overlaps(&self) -> bool {
        self.ours.overlaps(&self.best.1)
    }
}

impl Group {
    /// What a system took, if it was measured.
    pub(super) fn spread(&self, system: &str, figure: Figure) -> Option<Spread> {
        match self.outcomes.get(system)? {
            Outcome::Measured(figures) => figures.get(&figure).copied(),
            Outcome::Refused(_) => None,
        }
    }

    /// The best of the peers that were measured. Of equal ones the first by the order of reports.
    pub(super) fn best(&self, figure: Figure) -> Option<(&'static str, Spread)> {
        let measured = PEERS.into_iter().filter_map(|peer| Some((peer, self.spread(peer, figure)?)));
        measured.reduce(|best, next| if figure.better(next.1.median, best.1.median) { next } else { best })
    }

    /// A system against the best of the peers, if both were measured.
    pub(super) fn compare(&self, system: &str, figure: Figure) -> Option<Comparison<'_>> {
        let ours = self.spread(system, figure)?;
        let best = self.best(figure)?;
        Some(Comparison { ours, best, ratio: figure.ratio(ours.median, best.1.median) })
    }
}

impl Suite {
    /// What a suite is about.
    pub(super) fn headline(&self) -> Figure {
        Figure::headline(&self.name)
    }

    /// tamis and its variants in this suite.
    pub(super) fn variants(&self) -> impl Iterator<Item = &str> {
        self.systems.iter().map(String::as_str).filter(|name| is_tamis(name))
    }

    /// The group of the same conditions but another workload or another number of threads.
    pub(super) fn sibling(&self, group: &Group, workload: &str, threads: usize) -> Option<&Group> {
        let mut wanted = group.conditions.clone();
        workload.clone_into(&mut wanted.workload);
        wanted.threads = threads;
        self.groups.iter().find(|group| group.conditions == wanted)
    }

    /// Whether any system has this figure in any group, and not only zeros.
    pub(super) fn has(&self, figure: Figure) -> bool {
        let mut all = self.groups.iter().flat_map(|g| self.systems.iter().map(move |s| g.spread(s, figure)));
        all.any(|spread| spread.is_some_and(|spread| spread.max > 0.0))
    }

    /// Who was not measured, why, and for which workloads.
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

/// Whether a system is tamis or a variant of it.
pub(super) fn is_tamis(system: &str) -> bool {
    system.strip_prefix("tamis").is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', ':']))
}

/// Where a system stands in reports: tamis, its variants, the peers, redb, others.
fn rank(system: &str) -> (usize, &str) {
    let peer = PEERS.iter().chain(&["redb"]).position(|peer| *peer == system);
    match (is_tamis(system), peer) {
        (true, _) => (0, system),
        (false, Some(at)) => (1 + at, system),
        (false, None) => (usize::MAX, system),
    }
}

impl Summary {
    /// Of all rows.
    pub(super) fn of(rows: &[Row]) -> Summary {
        let mut latest: BTreeMap<(&Conditions, &str), BTreeMap<u32, &Row>> = BTreeMap::new();
        let mut first_seen: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for (at, row) in rows.iter().enumerate() {
            latest.entry((&row.conditions, &row.system)).or_default().insert(row.round, row);
            first_seen.entry((&row.conditions.suite, &row.conditions.workload)).or_insert(at);
        }
        let mut suites: BTreeMap<(usize, &str), BTreeMap<(usize, &Conditions), Group>> = BTreeMap::new();
        for ((conditions, system), rounds) in &latest {
            let suite = conditions.suite.as_str();
            let place = SUITES.iter().position(|name| *name == suite).unwrap_or(SUITES.len());
            let workload = first_seen[&(suite, conditions.workload.as_str())];
            let new = || Group { conditions: (*conditions).clone(), outcomes: BTreeMap::new() };
            let groups = suites.entry((place, suite)).or_default();
            let group = groups.entry((workload, conditions)).or_insert_with(new);
            group.outcomes.insert((*system).to_owned(), outcome(rounds));
        }
        let suites = suites.into_iter().map(|((_, name), groups)| {
            let groups: Vec<Group> = groups.into_values().collect();
            let mut systems: Vec<String> = groups.iter().flat_map(|g| g.outcomes.keys().cloned()).collect();
            systems.sort_by(|a, b| rank(a).cmp(&rank(b)));
            systems.dedup();
            Suite { name: name.to_owned(), systems, groups }
        });
        Summary { suites: suites.collect(), systems: systems(latest.values().flat_map(BTreeMap::values)) }
    }

    /// Every row of tamis and its variants against the best of the peers, worst first.
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

/// What the rounds of one system under some conditions say. One that was measured in some round counts as measured.
fn outcome(rounds: &BTreeMap<u32, &Row>) -> Outcome {
    let measured: Vec<&Row> = rounds.values().filter(|row| row.refused.is_none()).copied().collect();
    if measured.is_empty() {
        let reason = rounds.values().find_map(|row| row.refused.clone());
        return Outcome::Refused(reason.unwrap_or_default());
    }
    let figures = Figure::ALL.into_iter().filter_map(|figure| {
        let values = measured.iter().filter_map(|row| figure.of(&row.figures)).collect();
        Some((figure, Spread::of(values)?))
    });
    Outcome::Measured(figures.collect())
}

/// The systems with their versions and options, of the rows that count.
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
