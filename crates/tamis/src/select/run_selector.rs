//! The interface of all selectors. See the [parent module](super) for the contract.

use std::fmt::Debug;
use std::ops::Range;

use smallvec::SmallVec;
use tamis_filter::Digest;

use super::probe::{LeanKey, Probe};
use crate::observe::cost::ReadCost;
use crate::selector::RangeRuns;
use crate::tree::version::Version;

/// A table that may hold the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The run's place in [`Version::runs`].
    pub(crate) run: usize,
    /// The table's number within the version.
    pub(crate) table: usize,
    /// Whether a filter said "maybe" (so that not finding the key is a false positive).
    pub(crate) filtered: bool,
}

pub(crate) type Candidates = SmallVec<[Candidate; 16]>;

/// The most runs that the read path probes at once.
pub(crate) const MAX_STEP: usize = 32;

/// The most keys per call of [`RunSelector::select_many`].
pub(crate) const MAX_BATCH: usize = 32;

/// Returns the runs to probe next, starting at `first`, out of `count`. The first step has eight,
/// so that few runs behind the one with the key are probed; later steps have more, so that the
/// cache misses of their filters overlap. With `one_by_one`, a step has one.
#[inline]
pub(crate) fn next_step(first: usize, count: usize, one_by_one: bool) -> Range<usize> {
    let step = match first {
        _ if one_by_one => 1,
        0 => 8,
        _ => MAX_STEP,
    };
    first..count.min(first + step)
}

/// Decides which tables may hold a key. See the module's contract.
pub(crate) trait RunSelector: Send + Sync + Debug {
    /// Appends to `out` the tables of `runs` that may hold the probe's key, newest run first.
    /// `runs` are places in [`Version::runs`]: at most [`MAX_STEP`] of them, or all where one
    /// filter answers for the whole tree.
    fn select(
        &self,
        version: &Version,
        probe: &mut Probe<'_>,
        runs: Range<usize>,
        out: &mut Candidates,
        cost: &mut ReadCost,
    );

    /// Reports whether [`select_many`](RunSelector::select_many) is supported.
    fn answers_many(&self) -> bool {
        false
    }

    /// Probes many keys at once: sets bit `i` of `masks[k]` if run `runs.start + i` may hold
    /// `keys[k]`. Takes at most [`MAX_BATCH`] keys and [`MAX_STEP`] runs. Without
    /// [`answers_many`](RunSelector::answers_many), includes every run.
    fn select_many(
        &self,
        _version: &Version,
        _keys: &[LeanKey<'_>],
        runs: Range<usize>,
        masks: &mut [u32],
        _cost: &mut ReadCost,
    ) {
        masks.fill(u32::MAX >> (32 - runs.len().clamp(1, 32)));
    }

    /// Starts fetching what [`select`](RunSelector::select) will read, for batches of keys.
    fn prefetch(&self, version: &Version, probe: &Probe<'_>, digest: Digest, runs: Range<usize>);
}

/// A selector for the whole tree: one probe serves all runs. [`select`](RunSelector::select) is
/// called once with all runs of the version, however many.
pub(crate) trait WholeTree: RunSelector {
    /// Finds the runs that may have keys from `from` up to the end set in `out`, at most `end`.
    /// Returns `false` and leaves `out` empty if nothing is known. Always makes progress: the range
    /// holds at least `from`. Called with an empty `out`, and only with `from` before `end`. The
    /// caller counts the probe; `cost` takes any other cost.
    fn ahead(
        &self,
        version: &Version,
        from: &[u8],
        end: Option<&[u8]>,
        out: &mut RangeRuns,
        cost: &mut ReadCost,
    ) -> bool;

    /// Like [`ahead`](WholeTree::ahead), backwards: keys below `before` (`None`: all), down to
    /// the end set in `out`, at least `start`. Always makes progress: the range is empty only if
    /// nothing lies between `start` and `before`.
    fn behind(
        &self,
        version: &Version,
        before: Option<&[u8]>,
        start: &[u8],
        out: &mut RangeRuns,
        cost: &mut ReadCost,
    ) -> bool;
}
