//! The choice between a filter per table and [`Selector::Grf`] in a predicted tree: that of `filter
//! = auto`.
//!
//! The predictions of this model are in more detail, but two answers to one question would be worse
//! than either: advice to use `grf` in a tree in which `auto` keeps filters per table, or the
//! reverse. So [`rank`](super::rank) has no candidate that the rule of [`tree_filter`] rejects. The
//! rule is about filters of equal memory. It stands for all filters per table that answer points
//! only, have equally many bits in each run and all of them in memory: they are variants of the one
//! that it knows. Range filters, elastic ones and Monkey's allocation are not in it, and are left
//! to predictions. So are writes.

use super::inputs::{Allocation, Configuration, Data, ReadPath, Workload};
use super::selector::Selector;
use super::shape::Tree;
use crate::tree_filter::{Comparison, Costs, Reads, Runs, TreeFilter, compare_states};

/// Returns the side of the rule that a configuration is on, if any.
pub(super) fn side(configuration: &Configuration) -> Option<TreeFilter> {
    use Selector::{BlockedBloom, Bloom, Cuckoo, Fuse, Grf, Ribbon, Xor};
    match (configuration.selector, configuration.allocation) {
        (Grf, _) => Some(TreeFilter::Global),
        (Bloom | BlockedBloom | Ribbon | Fuse | Xor | Cuckoo, Allocation::Uniform) => {
            Some(TreeFilter::PerTable)
        }
        _ => None,
    }
}

/// Compares both kinds of filters in all states of a tree, by the rule that `filter = auto`
/// follows: with the constants of the rule, not the costs of a machine. `keeps_order` says whether
/// the global filter's map does.
pub fn between(
    current: Option<TreeFilter>,
    tree: &Tree,
    data: &Data,
    workload: &Workload,
    bits_per_key: f64,
    keeps_order: bool,
) -> Comparison {
    let reads = Reads {
        absent_gets: workload.empty_gets,
        existing_gets: workload.existing_gets,
        empty_ranges: workload.empty_ranges,
        filled_ranges: workload.seeks + workload.scans,
    };
    let costs = if data.read_path == ReadPath::Direct { Costs::DIRECT } else { Costs::MEMORY };
    let of = |runs: &Vec<f64>| Runs { entries: runs.clone(), bits_per_key, ordered: keeps_order };
    let states: Vec<Runs> = tree.states.iter().map(|state| of(&state.runs)).collect();
    compare_states(current, &states, &reads, &costs)
}
