//! The same expectation for any list of runs, each with its own size and rate: trees that no ratio
//! describes, and filters whose bits differ by run (Monkey, ElasticBF).

use super::{Counts, Policy, Sharing, Tree, Workload};
use crate::numbers::{fraction, normalized};

/// A run, as a lookup sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RunShare {
    /// Its share of the entries, in any unit: only the ratios count. Negative, infinite and NaN are
    /// treated as 0.
    pub entries: f64,
    /// False-positive rate of its filter, clamped to `0..=1`, NaN to 0. 1 if it has none.
    pub false_positive: f64,
}

/// Returns the expected counts of one lookup in these runs, newest first: `empty` of the lookups
/// are for absent keys, the others for all entries equally. Equations 10 and 14 with their levels
/// separated.
///
/// A run of rate 1 counts as probed, since that is what the model does; a caller without a filter
/// there subtracts it. If no run has entries, all lookups are empty ones. Without runs nothing is
/// done, except the hash if it is shared.
pub fn counts_of_runs(runs: &[RunShare], sharing: Sharing, empty: f64) -> Counts {
    let parts = normalized(runs.iter().map(|run| run.entries));
    let found = if parts.iter().any(|&part| part > 0.0) { 1.0 - fraction(empty) } else { 0.0 };
    // From the last run up: the lookups that reach a run find their key there, further down, or
    // nowhere.
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

/// Returns the runs of a tree, newest first, each level cut into equal ones.
pub fn runs_of(tree: Tree, policy: Policy, workload: Workload) -> Vec<RunShare> {
    let false_positive = workload.clamped().false_positive;
    let runs = policy.runs(tree);
    let level = |share: f64| {
        std::iter::repeat_n(RunShare { entries: share / f64::from(runs), false_positive }, runs as usize)
    };
    tree.level_shares().into_iter().flat_map(level).collect()
}
