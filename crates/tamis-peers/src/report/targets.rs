//! What tamis is to reach, as ratios to the best of RocksDB, LevelDB and fjall in the same run.
//!
//! Targets are for keys of 8 and values of 256 bytes, and for exactly the system they name: `tamis` is tamis by its
//! defaults. A target is judged where its row was measured; without anything to compare with it is neither met nor
//! missed.

use super::figure::Figure;
use super::summary::{Group, Suite};

/// Of which conditions targets tell.
const KEY_BYTES: u64 = 8;
const VALUE_BYTES: u64 = 256;

/// Ratios are quotients of medians: one that is short by less than this is a rounding error.
const EXACT: f64 = 1e-9;

/// What a figure is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    /// The best of the peers in the same row.
    Best,
    /// The best of the peers at another workload under the same conditions.
    BestAt(&'static str),
    /// The same system with so many threads.
    OwnThreads(usize),
}

/// One target. `None` is any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) suite: Option<&'static str>,
    pub(super) workload: Option<&'static str>,
    pub(super) threads: Option<usize>,
    pub(super) system: &'static str,
    pub(super) figure: Figure,
    pub(super) of: Reference,
    /// The ratio to be reached.
    pub(super) at_least: f64,
}

/// What became of a target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict<'a> {
    pub(super) target: &'a Target,
    /// `None`: nothing to compare with.
    pub(super) ratio: Option<f64>,
}

impl Verdict<'_> {
    /// Whether it is reached.
    pub(super) fn is_met(&self) -> bool {
        self.ratio.is_some_and(|ratio| ratio >= self.target.at_least * (1.0 - EXACT))
    }
}

/// `tamis` at one thread, its time against the best.
const fn time(suite: &'static str, workload: &'static str, at_least: f64) -> Target {
    Target {
        suite: Some(suite),
        workload: Some(workload),
        threads: Some(1),
        system: "tamis",
        figure: Figure::NsPerOp,
        of: Reference::Best,
        at_least,
    }
}

const fn batched(workload: &'static str, single: &'static str, at_least: f64) -> Target {
    Target { of: Reference::BestAt(single), ..time("settled", workload, at_least) }
}

const fn grf(workload: &'static str, at_least: f64) -> Target {
    Target { system: "tamis-grf", ..time("runs", workload, at_least) }
}

const fn tail(workload: &'static str) -> Target {
    Target { figure: Figure::P999, ..time("load", workload, 1.0) }
}

const fn ycsb(workload: &'static str, threads: usize) -> Target {
    Target { threads: Some(threads), figure: Figure::OpsPerSecond, ..time("ycsb", workload, 1.2) }
}

const fn cost(figure: Figure) -> Target {
    Target {
        suite: None,
        workload: None,
        threads: None,
        system: "tamis",
        figure,
        of: Reference::Best,
        at_least: 1.0,
    }
}

/// All targets.
pub(super) const TARGETS: &[Target] = &[
    time("settled", "get-empty", 2.0),
    time("settled", "get-existing", 1.5),
    time("settled", "get-zipf", 1.5),
    batched("multi-get-empty", "get-empty", 6.0),
    batched("multi-get-existing", "get-existing", 2.5),
    time("settled", "seek", 1.3),
    time("settled", "seek-next50", 1.3),
    time("settled", "range-empty", 1.3),
    Target {
        threads: Some(2),
        figure: Figure::OpsPerSecond,
        of: Reference::OwnThreads(1),
        ..time("settled", "get-existing", 1.9)
    },
    time("runs", "get-empty", 4.0),
    time("runs", "seek", 3.0),
    time("runs", "seek-next50", 3.0),
    time("runs", "range-empty", 3.0),
    grf("get-empty", 10.0),
    grf("range-empty", 50.0),
    grf("seek", 10.0),
    time("load", "fill-random", 1.3),
    time("load", "fill-seq", 1.3),
    tail("fill-random"),
    tail("fill-seq"),
    ycsb("ycsb-a", 1),
    ycsb("ycsb-b", 1),
    ycsb("ycsb-c", 1),
    ycsb("ycsb-d", 1),
    ycsb("ycsb-e", 1),
    ycsb("ycsb-f", 1),
    ycsb("ycsb-a", 2),
    ycsb("ycsb-b", 2),
    ycsb("ycsb-c", 2),
    ycsb("ycsb-d", 2),
    ycsb("ycsb-e", 2),
    ycsb("ycsb-f", 2),
    cost(Figure::WriteAmplification),
    cost(Figure::SpaceAmplification),
    cost(Figure::Resident),
];

impl Target {
    /// What it is about, for lists: the system if it is a variant, the figure if it is not the suite's own, and what it
    /// is compared with if that is not the row's best.
    pub(super) fn label(&self) -> String {
        let mut words = vec![self.system.to_owned()];
        if self.figure != Figure::headline(self.suite.unwrap_or("")) && !self.is_scaling() {
            words.push(self.figure.name().to_owned());
        }
        match self.of {
            Reference::Best => {}
            Reference::BestAt(workload) => words.push(format!("against the best {workload}")),
            Reference::OwnThreads(1) => words.push("against its own 1 thread".to_owned()),
            Reference::OwnThreads(n) => words.push(format!("against its own {n} threads")),
        }
        words.join(" ")
    }

    fn is_scaling(&self) -> bool {
        matches!(self.of, Reference::OwnThreads(_))
    }

    fn is_about(&self, suite: &Suite, group: &Group) -> bool {
        let conditions = &group.conditions;
        self.suite.is_none_or(|name| name == suite.name)
            && self.workload.is_none_or(|name| name == conditions.workload)
            && self.threads.is_none_or(|threads| threads == conditions.threads)
            && (conditions.key_bytes, conditions.value_bytes) == (KEY_BYTES, VALUE_BYTES)
    }

    fn ratio(&self, suite: &Suite, group: &Group, ours: f64) -> Option<f64> {
        let conditions = &group.conditions;
        let other = match self.of {
            Reference::Best => group.best(self.figure)?.1,
            Reference::BestAt(workload) => {
                suite.sibling(group, workload, conditions.threads)?.best(self.figure)?.1
            }
            Reference::OwnThreads(threads) => {
                suite.sibling(group, &conditions.workload, threads)?.spread(self.system, self.figure)?
            }
        };
        Some(self.figure.ratio(ours, other.median))
    }
}

/// What became of the targets that are about a group and for which their system was measured. `costs`: those about
/// costs, which hold for every row, or the others.
pub(super) fn judge(suite: &Suite, group: &Group, costs: bool) -> Vec<Verdict<'static>> {
    let about = TARGETS.iter().filter(|target| target.suite.is_none() == costs);
    let about = about.filter(|target| target.is_about(suite, group));
    let judged = about.filter_map(|target| {
        let ours = group.spread(target.system, target.figure)?.median;
        Some(Verdict { target, ratio: target.ratio(suite, group, ours) })
    });
    judged.collect()
}
