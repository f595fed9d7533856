//! Run selectors: the one seam between the tree and all filters.
//!
//! Given a pinned version and a key, a [`RunSelector`] says which tables may hold the key, newest run first.
//! The read path does not know how it knows: a filter per table, units that come and go, or one filter for
//! the whole tree.
//!
//! # Contract
//!
//! * No false negative: a table of the version that holds a version of the key is always among the candidates
//!   of its run, and a table that holds a version of any key in a range is not denied it. Debug builds check every rejection against the data.
//! * A selector belongs to one version and is immutable once published; any thread may call it.

use crate::collections::HashSet;
use crate::sync::{Mutex, MutexGuard};
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use tamis_filter::{Digest, IndependentDigests, KeyRange, Next};

use crate::heat::Sampler;
use crate::ids::TableId;
use crate::key::prefix_of;
use crate::options::{FilterChoice, KeyspaceOptions};
use crate::table::ReadCost;
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

mod current_runs;
mod elastic;
mod global;
pub(crate) mod keys;
mod run_ids;
mod table_filters;

use current_runs::CurrentRuns;
use elastic::Asked;
use elastic::Counting;
pub use global::{GlobalFilterStats, KeyMapStats};
pub(crate) use global::{Grf, Span, Task};
pub(crate) use keys::key_list_problem;
pub(crate) use table_filters::{TableFilters, Unchecked, ask_filter};

/// What a point read carries along: the key, its first bytes as a number, and its digest.
///
/// With hash sharing (always, except to measure what it saves) the digest is computed here, once, and serves
/// every memtable filter, table filter and block hash index of the operation.
#[derive(Debug)]
pub(crate) struct Probe<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) prefix: u64,
    digest: Option<Digest>,
    sharing: bool,
    independent: Option<Box<IndependentDigests>>,
    counting: Counting,
}

impl<'k> Probe<'k> {
    /// For a key whose digest was computed already. With hash sharing.
    #[inline]
    pub(crate) fn of(lean: &LeanKey<'k>) -> Self {
        Probe {
            key: lean.key,
            prefix: lean.prefix,
            digest: Some(lean.digest),
            sharing: true,
            independent: None,
            counting: Counting::Undecided,
        }
    }

    /// For a key with the digest that everybody is to share; without one every filter has one computed.
    #[inline]
    pub(crate) fn new(key: &'k [u8], shared: Option<Digest>) -> Self {
        Probe {
            key,
            prefix: prefix_of(key),
            digest: shared,
            sharing: shared.is_some(),
            independent: None,
            counting: Counting::Undecided,
        }
    }

    fn compute(&mut self, cost: &mut ReadCost) -> Digest {
        cost.digests += 1;
        *self.digest.insert(Digest::of(self.key))
    }

    /// The digest for one filter: the shared one, or without sharing a new one each time.
    #[inline]
    pub(crate) fn digest_for_filter(&mut self, cost: &mut ReadCost) -> Digest {
        match self.digest {
            Some(digest) if self.sharing => digest,
            _ => self.compute(cost),
        }
    }

    /// The digest for a block's hash index: whichever this operation computed last.
    #[inline]
    pub(crate) fn digest_for_block(&mut self, cost: &mut ReadCost) -> Digest {
        match self.digest {
            Some(digest) => digest,
            None => self.compute(cost),
        }
    }

    #[inline]
    pub(crate) fn sharing(&self) -> bool {
        self.sharing
    }

    /// As [`counted`](Self::counted), for a get that asks an elastic filter: the first time it is drawn whether it is counted.
    #[inline]
    fn count_with(&mut self, sampler: &Sampler) -> Option<&mut Asked> {
        if matches!(self.counting, Counting::Undecided) {
            self.counting = if sampler.tick() { Counting::Yes(Asked::default()) } else { Counting::No };
        }
        self.counted()
    }

    /// What is kept of a get that is counted, if this one is.
    #[inline]
    pub(crate) fn counted(&mut self) -> Option<&mut Asked> {
        match &mut self.counting {
            Counting::Yes(asked) => Some(asked),
            _ => None,
        }
    }

    /// The `count` seeded digests that a Bloom filter with independent hash functions takes.
    pub(crate) fn independent(&mut self, count: u32, cost: &mut ReadCost) -> &IndependentDigests {
        let shared = self.independent.take().filter(|d| self.sharing && d.as_slice().len() >= count as usize);
        let digests = shared.unwrap_or_else(|| {
            cost.digests += u64::from(count);
            Box::new(IndependentDigests::of(self.key, count))
        });
        self.independent.insert(digests)
    }
}

/// A key of a batch of which no run was found to be a candidate yet: what filters need of it, and little enough that many
/// stay in the first-level cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeanKey<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) prefix: u64,
    pub(crate) digest: Digest,
}

impl<'k> LeanKey<'k> {
    /// Computes the digest.
    #[inline]
    pub(crate) fn new(key: &'k [u8], cost: &mut ReadCost) -> Self {
        cost.digests += 1;
        LeanKey { key, prefix: prefix_of(key), digest: Digest::of(key) }
    }
}

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

/// What a global filter knows of a stretch of an iteration: which runs may have keys in it.
///
/// Forwards a stretch goes from some key up to [`Stretch::until`] (excluded). Backwards it goes from below some key down to
/// `until` (included). A run that is not listed has no key in the stretch.
#[derive(Debug, Default)]
pub(crate) struct Stretch {
    runs: SmallVec<[(usize, Range<usize>); 8]>,
    keys: Vec<u8>,
    until: Option<Vec<u8>>,
    /// Asked for: that it may end after so many keys. Small at first, when perhaps one key is wanted; more when an iteration
    /// goes on.
    pub(crate) wanted: usize,
}

impl Stretch {
    /// Forgets everything that was answered: no runs, and the stretch goes on to the end of the iteration.
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.keys.clear();
        self.until = None;
    }

    /// Lists a run (its place in [`Version::runs`]). Forwards none of its keys in the stretch lies before `bound`; backwards
    /// none lies at or behind it; an empty bound is then no bound, as there is no greatest key to name. Each run is listed
    /// once.
    pub(crate) fn push(&mut self, run: usize, bound: &[u8]) {
        let start = self.keys.len();
        self.keys.extend_from_slice(bound);
        self.runs.push((run, start..self.keys.len()));
    }

    /// Ends the stretch.
    pub(crate) fn end_at(&mut self, until: &[u8]) {
        self.until = Some(until.to_vec());
    }

    /// The runs with their bounds.
    pub(crate) fn runs(&self) -> impl ExactSizeIterator<Item = (usize, &[u8])> {
        self.runs.iter().map(|(run, bound)| (*run, &self.keys[bound.clone()]))
    }

    /// Where the stretch ends; `None`: where the iteration ends.
    pub(crate) fn until(&self) -> Option<&[u8]> {
        self.until.as_deref()
    }
}

pub(crate) type Candidates = SmallVec<[Candidate; 8]>;

/// The most runs that the read path asks about at once.
pub(crate) const MAX_STEP: usize = 32;

/// The most keys that [`RunSelector::select_many`] is asked for at once.
pub(crate) const MAX_BATCH: usize = 32;

/// The runs that the read path asks about next, after those before `first`, of `count` in all: eight at first,
/// so that few are asked behind the one that has the key; then many, so that the cache misses of their filters
/// overlap. With `one_by_one`, one.
#[inline]
pub(crate) fn next_step(first: usize, count: usize, one_by_one: bool) -> Range<usize> {
    let step = match first {
        _ if one_by_one => 1,
        0 => 8,
        _ => MAX_STEP,
    };
    first..count.min(first + step)
}

/// Says which tables may hold a key. See the module's contract.
pub(crate) trait RunSelector: Send + Sync + Debug {
    /// Appends to `out` the tables of `runs` (places in [`Version::runs`], at most [`MAX_STEP`] of them) that may
    /// hold the probe's key, newest run first.
    fn select(
        &self,
        version: &Version,
        probe: &mut Probe<'_>,
        runs: Range<usize>,
        out: &mut Candidates,
        cost: &mut ReadCost,
    );

    /// Whether [`select_many`](RunSelector::select_many) can be asked.
    fn answers_many(&self) -> bool {
        false
    }

    /// Asks for many keys at once: bit `i` of `masks[k]` becomes whether run `runs.start + i` may hold `keys[k]`. There are
    /// at most [`MAX_BATCH`] keys and [`MAX_STEP`] runs. Only where [`answers_many`](RunSelector::answers_many); elsewhere
    /// every run is named.
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

    /// Told when a get has ended of which it keeps what was asked ([`Probe::counted`]).
    fn ended(&self, _probe: &mut Probe<'_>) {}

    /// Starts fetching what [`select`](RunSelector::select) will look at, for batches of keys.
    fn prefetch(&self, version: &Version, probe: &Probe<'_>, digest: Digest, runs: Range<usize>);

    /// Whether one question serves all runs: [`select`](RunSelector::select) is then called once, with all runs of the
    /// version, however many, and iterators ask [`ahead`](RunSelector::ahead) and [`behind`](RunSelector::behind).
    fn is_global(&self) -> bool {
        false
    }

    /// Which runs may have keys from `from` on, up to where `out` says, at most `end`; `false` if nothing is known, and
    /// then `out` says nothing. Makes progress: the stretch holds at least `from`. Asked with an empty `out`, and only with
    /// `from` before `end`. The caller counts the question; `cost` takes what else it costs.
    fn ahead(
        &self,
        _version: &Version,
        _from: &[u8],
        _end: Option<&[u8]>,
        _out: &mut Stretch,
        _cost: &mut ReadCost,
    ) -> bool {
        false
    }

    /// The same backwards: keys below `before` (`None`: all), down to where `out` says, at least `start`. Makes progress:
    /// the stretch is not empty unless nothing lies between `start` and `before`.
    fn behind(
        &self,
        _version: &Version,
        _before: Option<&[u8]>,
        _start: &[u8],
        _out: &mut Stretch,
        _cost: &mut ReadCost,
    ) -> bool {
        false
    }

    /// Whether [`next`](RunSelector::next) and [`may_hold`](RunSelector::may_hold) can ever tell anything.
    /// Selectors that answer for the tree and not for one table leave all three as they are here.
    fn answers_ranges(&self) -> bool {
        false
    }

    /// What is known of the first key at or after `from` that `table` (its number within the version) holds, of
    /// interest only if it lies before `end`.
    fn next(
        &self,
        _version: &Version,
        _table: usize,
        _from: &[u8],
        _end: Option<&[u8]>,
        _cost: &mut ReadCost,
    ) -> Next<Vec<u8>> {
        Next::Unknown
    }

    /// Whether `table` may hold a key in `range`; `None` if nothing is known.
    fn may_hold(
        &self,
        _version: &Version,
        _table: usize,
        _range: KeyRange<'_>,
        _cost: &mut ReadCost,
    ) -> Option<bool> {
        None
    }
}

/// What users must know of, each table's once, until it is fetched. Any thread may add.
#[derive(Debug, Default)]
struct Warnings(Mutex<(HashSet<TableId>, Vec<String>)>);

impl Warnings {
    fn add(&self, table: TableId, message: impl FnOnce() -> String) {
        let mut warnings = self.0.lock();
        if warnings.0.insert(table) {
            warnings.1.push(message());
        }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().1)
    }
}

fn damaged_list(table: TableId) -> String {
    format!("the key list of table {table} is damaged: the global filter is built from its data")
}

/// Where the versions of a keyspace get their selectors from.
#[derive(Debug)]
pub(crate) enum TreeFilter {
    /// Each table has a filter of its own. Counted is what is asked of elastic ones.
    PerTable(Arc<Sampler>),
    /// One filter for all versions of the tree.
    Grf(Box<Grf>),
    /// One for each version.
    CurrentRuns(Box<CurrentRuns>),
}

impl TreeFilter {
    /// What a keyspace's options ask for, for a tree of which nothing is known yet.
    pub(crate) fn new(options: &KeyspaceOptions, sampler: &Arc<Sampler>) -> TreeFilter {
        if options.filter.global() == Some(FilterChoice::Grf) {
            return TreeFilter::Grf(Box::new(Grf::new(options)));
        }
        match CurrentRuns::new(options) {
            Some(runs) => TreeFilter::CurrentRuns(Box::new(runs)),
            None => TreeFilter::PerTable(sampler.clone()),
        }
    }

    /// The selector of a new version, which follows the one for which this was called last. Under the `state` lock.
    pub(crate) fn selector(&self, version: &Version) -> Arc<dyn RunSelector> {
        let Version { runs, tables, .. } = version;
        match self {
            TreeFilter::PerTable(sampler) => Arc::new(TableFilters::new(tables, sampler)),
            TreeFilter::Grf(grf) => Arc::new(grf.selector(runs, tables)),
            TreeFilter::CurrentRuns(filter) => filter.selector(runs, tables),
        }
    }

    /// Before flushed tables are published: puts their keys in. What it gives is to be held until they are. Not with the
    /// `state` lock held.
    pub(crate) fn insert_flushed(&self, tables: &[Arc<OpenTable>]) -> Option<MutexGuard<'_, global::Work>> {
        let TreeFilter::Grf(grf) = self else { return None };
        let mut work = grf.work();
        grf.insert_flushed(&mut work, tables);
        Some(work)
    }

    /// Before tables of this epoch are published whose keys are not put in.
    pub(crate) fn note_missing(&self, epoch: u64) {
        if let TreeFilter::Grf(grf) = self {
            grf.note_missing(epoch);
        }
    }

    /// What there is to warn of since this was called last.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        match self {
            TreeFilter::PerTable(_) => Vec::new(),
            TreeFilter::Grf(grf) => grf.take_warnings(),
            TreeFilter::CurrentRuns(runs) => runs.take_warnings(),
        }
    }

    /// What it is like, if it is a global one.
    pub(crate) fn report(&self) -> Option<GlobalFilterStats> {
        match self {
            TreeFilter::PerTable(_) => None,
            TreeFilter::Grf(grf) => Some(grf.report()),
            TreeFilter::CurrentRuns(runs) => Some(runs.report()),
        }
    }

    /// What is to be done for the filter in the background.
    pub(crate) fn task(&self, version: &Version) -> Option<global::Task> {
        match self {
            TreeFilter::PerTable(_) | TreeFilter::CurrentRuns(_) => None,
            TreeFilter::Grf(grf) => grf.task(version),
        }
    }
}
