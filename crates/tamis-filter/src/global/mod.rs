//! Filters for a whole tree: where in the tree may a key, or a key of a range, be?
//!
//! Local filters are probed once per sorted run. A global filter is probed once per lookup and
//! names the runs (GRF: H. Wang, T. Guo, J. Yang, H. Zhang, "GRF: A Global Range Filter for
//! LSM-Trees with Shape Encoding", SIGMOD 2024; Chucky: N. Dayan, M. Twitto, SIGMOD 2021; REMIX: W.
//! Zhong et al., FAST 2021).

#[cfg(any(test, feature = "run-index"))]
mod chucky;
pub mod grf;
#[cfg(test)]
mod model;
#[cfg(any(test, feature = "run-index"))]
mod prefix_code;
#[cfg(any(test, feature = "run-index"))]
mod remix;
#[cfg(any(test, feature = "run-index"))]
pub mod run_index;

#[cfg(any(test, feature = "run-index"))]
pub use chucky::Chucky;
#[cfg(any(test, feature = "run-index"))]
pub use remix::Remix;
#[cfg(any(test, feature = "run-index"))]
pub use run_index::{RunIndex, RunIndexKind, RunIndexSpec, RunTag, Tagged, TagsAhead, build};

use crate::digest::Digest;
use crate::keys::KeyList;

#[cfg(any(test, feature = "run-index"))]
pub use grf::GrfHuffman;
pub use grf::{MapReason, NO_BOUND, Partition, PartitionSpec, Review, shape};

/// The number of a flush within a tree; orders flushes in time.
pub type Epoch = u64;

/// Epochs from `lo` (included) to `hi` (excluded; [`u64::MAX`]: no end).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Epochs {
    /// The first epoch.
    pub lo: Epoch,
    /// The first epoch after the range.
    pub hi: Epoch,
}

impl Epochs {
    /// All epochs.
    pub const ALL: Epochs = Epochs { lo: 0, hi: Epoch::MAX };

    /// Returns whether the two have an epoch in common.
    #[inline]
    pub const fn intersects(self, other: Epochs) -> bool {
        self.lo < other.hi && other.lo < self.hi
    }

    /// Returns whether all of `other` is in `self`.
    #[inline]
    pub const fn contains(self, other: Epochs) -> bool {
        self.lo <= other.lo && other.hi <= self.hi
    }
}

/// Keys for a global filter, ascending; a key held by several runs appears once for each.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    keys: KeyList,
    digests: Vec<Digest>,
    epochs: Vec<Epochs>,
}

impl Batch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key that a table of these epochs holds.
    ///
    /// # Panics
    /// If it is smaller than the previous one.
    pub fn push(&mut self, key: &[u8], digest: Digest, epochs: Epochs) {
        assert!(self.keys.last().is_none_or(|last| last <= key), "keys of a batch ascend");
        self.keys.push(key);
        self.digests.push(digest);
        self.epochs.push(epochs);
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.digests.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    /// Entry `at`.
    ///
    /// # Panics
    /// If `at` is out of range.
    pub fn get(&self, at: usize) -> (&[u8], Digest, Epochs) {
        (self.keys.get(at), self.digests[at], self.epochs[at])
    }

    /// Returns the keys.
    pub fn keys(&self) -> &KeyList {
        &self.keys
    }

    /// Returns all entries.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], Digest, Epochs)> + Clone {
        (0..self.len()).map(|at| self.get(at))
    }
}

/// Where the epochs of a tree's tables begin and end, in all versions of the tree that are still
/// readable.
///
/// Two epochs with no cut between them are *alike*: no table of any of these versions holds one and
/// not the other. Since merges only join neighbours, they stay alike in all later versions. A code
/// may therefore name either.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cuts {
    /// Ascending cuts.
    bounds: Vec<Epoch>,
    /// For each `i`, the tables that have the epochs from `bounds[i]` to the next bound: the latest of
    /// their first epochs. `None` if there is no such table.
    held: Vec<Option<Epoch>>,
}

impl Cuts {
    /// Returns the cuts of these tables. Epochs after all of them count as held: their tables may
    /// be under construction.
    pub fn of(tables: impl IntoIterator<Item = Epochs>) -> Self {
        let mut spans: Vec<Epochs> = tables.into_iter().filter(|span| span.lo < span.hi).collect();
        spans.sort_unstable();
        spans.dedup();
        let mut bounds: Vec<Epoch> = spans.iter().flat_map(|span| [span.lo, span.hi]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut held = vec![None; bounds.len()];
        for span in &spans {
            let from = bounds.partition_point(|&bound| bound < span.lo);
            let to = bounds.partition_point(|&bound| bound < span.hi);
            // Later ones begin later.
            held[from..to].fill(Some(span.lo));
        }
        if let Some(last) = held.last_mut() {
            *last = bounds.last().copied();
        }
        Cuts { bounds, held }
    }

    /// Returns the epochs that are alike with `epoch`, and the latest first epoch of tables that may
    /// hold them; `None` if no table may.
    pub fn around(&self, epoch: Epoch) -> (Epochs, Option<Epoch>) {
        let next = self.bounds.partition_point(|&bound| bound <= epoch);
        let lo = next.checked_sub(1).map_or(0, |at| self.bounds[at]);
        let hi = self.bounds.get(next).copied().unwrap_or(Epoch::MAX);
        // Without cuts, nothing is known.
        let first = next.checked_sub(1).map_or(self.bounds.is_empty().then_some(0), |at| self.held[at]);
        (Epochs { lo, hi }, first)
    }

    /// Returns whether no table has an epoch before this one.
    pub fn all_begin_at(&self, epoch: Epoch) -> bool {
        self.bounds.first().is_some_and(|first| *first >= epoch)
    }
}

/// How a partition maps keys to positions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MapChoice {
    /// Chooses the map that keeps the rate on a hold-out set, preferring one that preserves order.
    #[default]
    Auto,
    /// A learned, monotone map: serves points and ranges, for integer or near-integer keys.
    Learned,
    /// The digest: serves points, for any keys.
    Digest,
    /// Preserves order between segments and uses the digest within: serves points for any keys, and
    /// ranges at segment granularity.
    Mixed,
    /// Preserves order between segments and distances of numbers within: serves points, and short
    /// ranges at a rate that holds for any integer keys and any queries.
    Local,
}

/// The queries that a map is chosen for. By default there are no samples, and a tenth of the
/// queries are ranges.
#[derive(Clone, PartialEq, Debug)]
pub struct QueryMix {
    /// The share of ranges and seeks among queries; the others are gets of absent keys.
    pub range_share: f64,
    /// Absent keys that were asked for. If there are none, keys that are held out take their place.
    pub points: Vec<Vec<u8>>,
    /// Start and end (excluded; `None` for a seek) of ranges. If there are none, ranges and seeks
    /// from keys that are held out take their place.
    pub ranges: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Whether the map must have an order whatever these queries cost: a filter of prefixes is only
    /// asked where it has.
    pub needs_order: bool,
}

impl Default for QueryMix {
    fn default() -> Self {
        Self { range_share: 0.1, points: Vec::new(), ranges: Vec::new(), needs_order: false }
    }
}

/// What a walk from some key on has found about a key range.
#[derive(Clone, Debug, Default)]
pub struct Ahead {
    /// Epochs that may have a key in the range, each with the number of its first (backwards: last)
    /// possible key, for [`Partition::lower_key`] (backwards: the number after it, or
    /// [`NO_BOUND`]). In the order in which the walk met them; epochs may overlap and repeat.
    pub found: Vec<(Epochs, u64)>,
    /// The number at which the range ends; `None` if it ends where the partition ends.
    pub until: Option<u64>,
    /// Input: after this many entries the walk may end within a segment, if it has found one; 0
    /// means no limit. A caller that wants one key then pays for a few entries rather than for a
    /// segment.
    pub most: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(lo: u64, hi: u64) -> Epochs {
        Epochs { lo, hi }
    }

    #[test]
    fn epochs_between_two_cuts_are_alike() {
        let cuts = Cuts::of([epochs(0, 10), epochs(12, 13), epochs(10, 12), epochs(15, 16), epochs(0, 4)]);
        assert_eq!(cuts.around(3), (epochs(0, 4), Some(0)));
        assert_eq!(cuts.around(4), (epochs(4, 10), Some(0)));
        assert_eq!(cuts.around(11), (epochs(10, 12), Some(10)));
        assert_eq!(cuts.around(14), (epochs(13, 15), None), "nobody holds them");
        assert_eq!(cuts.around(16), (epochs(16, u64::MAX), Some(16)), "they may come");
        assert_eq!(Cuts::default().around(5), (epochs(0, u64::MAX), Some(0)));
        assert_eq!(Cuts::of([epochs(3, 5)]).around(1), (epochs(0, 3), None));
    }
}
