//! The same expectation for any list of runs, each with its own size and rate: trees that no ratio describes, and
//! filters whose bits differ by run (Monkey, ElasticBF).

use super::{Counts, Policy, Sharing, Tree, Workload};
use crate::numbers::{fraction, normalized};

/// A run, as a lookup sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RunShare {
    /// Its part of the entries, in any unit: only the ratios count. Negative, infinite and NaN as 0.
    pub entries: f64,
    /// Rate of false positives of its filter, in `0..=1`; beyond as the nearest end, NaN as 0. 1 if it has none.
    pub false_positive: f64,
}

/// What one lookup is expected to do in these runs, newest first: `empty` of the lookups are for keys that are nowhere,
/// the others for all entries alike. Equations 10 and 14 with their levels taken apart.
///
/// A run of rate 1 counts as probed, since that is what the model does; who has no filter there subtracts it. If no run
/// has entries, all lookups are empty ones. Without runs nothing is done, except the hash if it is shared.
pub fn counts_of_runs(runs: &[RunShare], sharing: Sharing, empty: f64) -> Counts {
    let parts = normalized(runs.iter().map(|run| run.entries));
    let found = if parts.iter().any(|&part| part > 0.0) { 1.0 - fraction(empty) } else { 0.0 };
    // From the last run up: what reaches a run is what finds its key there or further down, or nowhere.
    let mut reaching = 1.0 - found;
    let mut counts = Counts { hits: found, ..Counts::default() };
    for (run, part) in runs.iter().zip(parts).rev() {
        counts.false_accesses += reaching * fraction(run.false_positive);
        reaching += found * part;
        counts.probes += reaching;
    }
    counts.hashes = match sharing {
        Sharing::PerFilter => counts.probes,
        Sharing::Shared => 1.0,
    };
    counts
}

/// The runs of a tree, newest first, each level cut into equal ones.
pub fn runs_of(tree: Tree, policy: Policy, workload: Workload) -> Vec<RunShare> {
    let false_positive = workload.clamped().false_positive;
    let runs = policy.runs(tree);
    let level = |share: f64| {
        std::iter::repeat_n(RunShare { entries: share / f64::from(runs), false_positive }, runs as usize)
    };
    tree.level_shares().into_iter().flat_map(level).collect()
}
