//! Filters for the whole tree, supplied by the program: the interface behind the feature
//! `unstable-selector`.
//!
//! The engine ships filters per table, elastic filters and GRF. Any other filter that answers for
//! all runs at once is a [`SelectorKind`], registered with
//! [`Operators::with_selector`](crate::operators::Operators::with_selector) and chosen by
//! [`FilterChoice::external`](crate::options::FilterChoice::external). The interface follows the
//! engine's internals and may change in any release.
//!
//! # Contract
//!
//! * **No false negative**: for every key of every table, the selector of a version names the run
//!   that holds it, or lists that run among [`VersionSelector::unknown_runs`]. Debug builds check
//!   every rejection against the data.
//! * Versions are published one after the other: [`TreeSelector::next_version`] is called by one
//!   thread at a time, and flushes and compactions wait for it. Readers do not.
//! * A [`VersionSelector`] is immutable and shared by all threads that read its version.

use std::ops::Range;
#[cfg(feature = "unstable-selector")]
use std::{fmt::Debug, sync::Arc};

use smallvec::SmallVec;
#[cfg(feature = "unstable-selector")]
use tamis_filter::Digest;

/// What a global filter knows about a key range of an iteration: which runs may have keys in it.
///
/// Forwards, the range goes from some key up to [`RangeRuns::until`] (excluded); backwards, from
/// below some key down to `until` (included). A run that is not listed has no key in the range.
#[derive(Debug, Default)]
pub struct RangeRuns {
    runs: SmallVec<[(u32, Range<u32>); 24]>,
    keys: SmallVec<[u8; 256]>,
    until: Option<Vec<u8>>,
    wanted: usize,
}

impl RangeRuns {
    /// Resets the answer: no runs, and the range extends to the end of the iteration.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.keys.clear();
        self.until = None;
    }

    /// Lists a run by its place in the version. Forwards, none of its keys in the range is less
    /// than `bound`. Backwards, all of them are less than `bound`; an empty bound is then no bound,
    /// since there is no greatest key to name. Each run is listed once.
    pub fn push(&mut self, run: usize, bound: &[u8]) {
        let start = self.keys.len() as u32;
        self.keys.extend_from_slice(bound);
        self.runs.push((run as u32, start..self.keys.len() as u32));
    }

    /// Ends the range.
    pub fn end_at(&mut self, until: &[u8]) {
        self.until = Some(until.to_vec());
    }

    /// Returns the runs with their bounds.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = (usize, &[u8])> {
        self.runs
            .iter()
            .map(|(run, bound)| (*run as usize, &self.keys[bound.start as usize..bound.end as usize]))
    }

    /// Returns the end of the range; `None` means the end of the iteration.
    pub fn until(&self) -> Option<&[u8]> {
        self.until.as_deref()
    }

    /// Returns the number of keys after which the range may end. Small at first, when perhaps one
    /// key is wanted; larger as the iteration goes on.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    pub(crate) fn set_wanted(&mut self, keys: usize) {
        self.wanted = keys;
    }
}

/// A kind of filter for the whole tree, under its name.
#[cfg(feature = "unstable-selector")]
pub trait SelectorKind: Send + Sync + Debug {
    /// The name that options refer to: see
    /// [`FilterChoice::external`](crate::options::FilterChoice::external).
    fn name(&self) -> &str;

    /// Returns the filter of a keyspace about whose tree nothing is known yet.
    fn create(&self, spec: &SelectorSpec) -> Box<dyn TreeSelector>;
}

/// The options of a keyspace that concern its filter.
#[cfg(feature = "unstable-selector")]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SelectorSpec {
    /// Memory for each entry, in bits.
    pub bits_per_key: f64,
    /// By level, the most runs that compaction leaves there.
    pub runs_per_level: Vec<u32>,
    /// The ratio of the sizes of adjacent levels.
    pub size_ratio: f64,
}

#[cfg(feature = "unstable-selector")]
impl SelectorSpec {
    /// Returns the options with these values.
    pub fn new(bits_per_key: f64, runs_per_level: Vec<u32>, size_ratio: f64) -> SelectorSpec {
        SelectorSpec { bits_per_key, runs_per_level, size_ratio }
    }
}

/// The filter of one keyspace.
#[cfg(feature = "unstable-selector")]
pub trait TreeSelector: Send + Sync + Debug {
    /// Returns the selector of the version with these runs, newest first, which follows the version
    /// of the previous call.
    fn next_version(&self, runs: &[SelectorRun]) -> Arc<dyn VersionSelector>;

    /// Returns the statistics of the newest version's selector.
    fn stats(&self) -> SelectorStats;
}

/// A sorted run of a version.
#[cfg(feature = "unstable-selector")]
#[derive(Clone, Debug)]
pub struct SelectorRun {
    /// Its level.
    pub level: usize,
    /// Its number, unique within the level.
    pub id: u64,
    /// Its tables, in key order.
    pub tables: Vec<Arc<dyn SelectorTable>>,
}

/// A table. Its files exist as long as this handle.
#[cfg(feature = "unstable-selector")]
pub trait SelectorTable: Send + Sync + Debug {
    /// Its number, unique in the database.
    fn id(&self) -> u64;

    /// The number of its entries as its metadata claims. Nothing may be allocated by it: the
    /// metadata may be damaged.
    fn entries(&self) -> u64;

    /// Passes every distinct key to `f`, ascending, deleted ones included. Reads the table's key
    /// list, or its data if the list is missing or damaged; the engine reports the damage.
    ///
    /// # Errors
    /// If the keys cannot be read: the run is then [unknown](VersionSelector::unknown_runs). `f`
    /// may have been called by then.
    fn for_each_key(&self, f: &mut dyn FnMut(&[u8])) -> Result<(), KeysUnavailable>;
}

/// Why a table's keys are not available.
#[cfg(feature = "unstable-selector")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeysUnavailable {
    /// The table is damaged: another attempt fails as well.
    Damaged,
    /// A system call failed: another attempt may succeed.
    Now,
}

/// Which runs of a version may hold a key.
#[cfg(feature = "unstable-selector")]
pub trait VersionSelector: Send + Sync + Debug {
    /// Passes the place of each known run that may hold the key to `found`, in any order, possibly
    /// more than once. Counts as one probe.
    fn probe(&self, key: &[u8], digest: Digest, found: &mut dyn FnMut(usize));

    /// Returns the places of the runs about which nothing is known, ascending. They are searched
    /// for every key.
    fn unknown_runs(&self) -> &[usize];

    /// Starts fetching what [`probe`](Self::probe) will read, for batches of keys.
    fn prefetch(&self, _key: &[u8], _digest: Digest) {}

    /// Finds the runs that may have keys from `from` on, up to the end set in `out`, at most `end`;
    /// lists unknown runs, too. Returns `false` and leaves `out` empty if nothing is known. The
    /// range must hold at least `from`. Called with an empty `out`, and only with `from` before
    /// `end`.
    fn ahead(&self, _from: &[u8], _end: Option<&[u8]>, _out: &mut RangeRuns) -> bool {
        false
    }

    /// The same backwards: keys below `before` (`None`: all), down to the end set in `out`, at
    /// least `start`. The range must not be empty unless nothing lies between `start` and `before`.
    fn behind(&self, _before: Option<&[u8]>, _start: &[u8], _out: &mut RangeRuns) -> bool {
        false
    }
}

/// Statistics of a [`TreeSelector`].
#[cfg(feature = "unstable-selector")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SelectorStats {
    /// Entries of the filter.
    pub entries: u64,
    /// Its memory, in bytes.
    pub bytes: u64,
    /// Keys added by changes since opening, and the time this took in nanoseconds.
    pub inserted: (u64, u64),
    /// Rebuilds since opening, and the time they took in nanoseconds.
    pub rebuilt: (u64, u64),
}
