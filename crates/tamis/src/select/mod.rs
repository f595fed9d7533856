//! Run selectors: the single interface between the tree and all filters.
//!
//! Given a pinned version and a key, a [`Selector`] returns the tables that may hold the key,
//! newest run first. The read path is the same whether a filter per table, loadable filter units or
//! one filter for the whole tree decides.
//!
//! Implementations: `table_filters` (the default: one filter per table, including elastic ones),
//! `global` (one for the tree) and `external` (supplied by the program). `auto` switches between
//! the first two.
//!
//! # Contract
//!
//! * No false negatives. If a table holds any version of the key, it is among the candidates of its
//!   run. If it holds a version of any key in a range, it is not denied for that range. Debug
//!   builds check every rejection against the data.
//! * A selector belongs to one version and is immutable once published; any thread may call it.

use crate::observe::cost::ReadCost;
use crate::sync::{Mutex, MutexGuard};
use std::fmt::Debug;
use std::ops::{Deref, Range};
use std::sync::Arc;

use smallvec::SmallVec;
use tamis_base::collections::HashSet;
use tamis_base::ids::TableId;
use tamis_base::key::prefix_of;
use tamis_filter::{Digest, IndependentDigests, KeyRange, Next};
use tamis_model::tree_filter::Costs;

use crate::operators::KeyspaceOperators;
use crate::options::{FilterAllocation, FilterChoice, KeyspaceOptions, Options, ReadMode};
use crate::sampling::Sampler;
use crate::selector::RangeRuns;
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

mod accesses;
mod auto;
mod elastic;
#[cfg(feature = "unstable-selector")]
mod external;
mod global;
pub(crate) mod keys;
mod queries;
mod table_filters;

pub(crate) use accesses::AccessSampler;
pub use auto::AutoFilterStats;
pub(crate) use auto::Turn;
use auto::{Auto, Building};
use elastic::Counting;
use elastic::SampledProbes;
pub use global::{GlobalFilterStats, KeyMapStats};
pub(crate) use global::{GlobalSelector, Grf, Moment, Part, Restored, Span, TakenEpoch, Task};
pub(crate) use keys::key_list_problem;
pub(crate) use queries::QuerySampler;
pub use queries::QueryStats;
pub use table_filters::without_rejection_checks;
pub(crate) use table_filters::{TableFilters, ask_filter};

/// The state of a point read: the key, its first bytes as a number, and its digest.
///
/// The digest is computed once and serves every memtable filter, table filter and block hash index
/// of the operation. Only builds with the feature `measure` can turn this hash sharing off, to
/// measure its benefit.
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
    /// Returns a probe for a key whose digest is already computed, with hash sharing.
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

    /// Returns a probe that shares the given digest; without one, every filter computes its own.
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

    /// Returns the digest for one filter: the shared one, or a new one each time without sharing.
    #[inline]
    pub(crate) fn digest_for_filter(&mut self, cost: &mut ReadCost) -> Digest {
        match self.digest {
            Some(digest) if self.sharing() => digest,
            _ => self.compute(cost),
        }
    }

    /// Returns the digest for a block's hash index: the last one this operation computed.
    #[inline]
    pub(crate) fn digest_for_block(&mut self, cost: &mut ReadCost) -> Digest {
        match self.digest {
            Some(digest) => digest,
            None => self.compute(cost),
        }
    }

    #[inline]
    pub(crate) fn sharing(&self) -> bool {
        !cfg!(feature = "measure") || self.sharing
    }

    /// Like [`counted`](Self::counted), but the first call decides with `draw` whether the get is
    /// sampled.
    #[inline]
    fn count_with(&mut self, draw: impl FnOnce() -> bool) -> Option<&mut SampledProbes> {
        if matches!(self.counting, Counting::Undecided) {
            self.counting = if draw() { Counting::Yes(SampledProbes::default()) } else { Counting::No };
        }
        self.counted()
    }

    /// Sets whether the get is sampled.
    pub(crate) fn set_counted(&mut self, counted: bool) {
        self.counting = if counted { Counting::Yes(SampledProbes::default()) } else { Counting::No };
    }

    /// Returns the record of probes if the get is sampled.
    #[inline]
    pub(crate) fn counted(&mut self) -> Option<&mut SampledProbes> {
        match &mut self.counting {
            Counting::Yes(asked) => Some(asked),
            _ => None,
        }
    }

    /// Returns the `count` seeded digests for a Bloom filter with independent hash functions.
    pub(crate) fn independent(&mut self, count: u32, cost: &mut ReadCost) -> &IndependentDigests {
        let shared =
            self.independent.take().filter(|d| self.sharing() && d.as_slice().len() >= count as usize);
        let digests = shared.unwrap_or_else(|| {
            cost.digests += u64::from(count);
            Box::new(IndependentDigests::of(self.key, count))
        });
        self.independent.insert(digests)
    }
}

/// A batch key with no known candidate run yet. It has only what filters need, so that many keys
/// fit into the L1 cache.
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
    /// `runs` are places in [`Version::runs`], at most [`MAX_STEP`] of them.
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

    /// Draws whether a batch key is sampled and therefore looked up individually. Called once for
    /// each key that [`select_many`](RunSelector::select_many) would serve, before that call.
    fn samples(&self) -> bool {
        false
    }

    /// Called when a sampled get finishes (see [`Probe::counted`]).
    fn ended(&self, _version: &Version, _probe: &mut Probe<'_>) {}

    /// Starts fetching what [`select`](RunSelector::select) will read, for batches of keys.
    fn prefetch(&self, version: &Version, probe: &Probe<'_>, digest: Digest, runs: Range<usize>);

    /// Reports whether one probe serves all runs. If so, [`select`](RunSelector::select) is called
    /// once with all runs of the version, however many, and iterators call
    /// [`ahead`](RunSelector::ahead) and [`behind`](RunSelector::behind).
    fn is_global(&self) -> bool {
        false
    }

    /// Finds the runs that may have keys from `from` up to the end set in `out`, at most `end`.
    /// Returns `false` and leaves `out` empty if nothing is known. Always makes progress: the range
    /// holds at least `from`. Called with an empty `out`, and only with `from` before `end`. The
    /// caller counts the probe; `cost` takes any other cost.
    fn ahead(
        &self,
        _version: &Version,
        _from: &[u8],
        _end: Option<&[u8]>,
        _out: &mut RangeRuns,
        _cost: &mut ReadCost,
    ) -> bool {
        false
    }

    /// Like [`ahead`](RunSelector::ahead), backwards: keys below `before` (`None`: all), down to
    /// the end set in `out`, at least `start`. Always makes progress: the range is empty only if
    /// nothing lies between `start` and `before`.
    fn behind(
        &self,
        _version: &Version,
        _before: Option<&[u8]>,
        _start: &[u8],
        _out: &mut RangeRuns,
        _cost: &mut ReadCost,
    ) -> bool {
        false
    }

    /// Reports whether [`next`](RunSelector::next) and [`may_hold`](RunSelector::may_hold) can ever
    /// tell anything. Selectors for the whole tree keep these three defaults.
    fn answers_ranges(&self) -> bool {
        false
    }

    /// Returns what is known about the first key at or after `from` in `table` (its number within
    /// the version). The key matters only if it lies before `end`.
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

    /// Reports whether `table` may hold a key in `range`; `None` if nothing is known.
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

/// The selector of one version, built in or supplied by the program.
#[derive(Debug)]
pub(crate) enum Selector {
    /// A filter per table, including elastic ones.
    PerTable(TableFilters),
    /// One filter for the tree.
    Global(GlobalSelector),
    /// A filter per table while the tree's filter is being built.
    Building(Building),
    /// One filter for the tree, supplied by the program.
    #[cfg(feature = "unstable-selector")]
    External(external::ExternalSelector),
    /// A test's.
    #[cfg(test)]
    Test(Box<dyn RunSelector>),
}

impl Selector {
    /// See [`RunSelector::select`]. The built-in selectors need no virtual call.
    #[inline]
    pub(crate) fn select(
        &self,
        version: &Version,
        probe: &mut Probe<'_>,
        runs: Range<usize>,
        out: &mut Candidates,
        cost: &mut ReadCost,
    ) {
        match self {
            Selector::PerTable(filters) => filters.select(version, probe, runs, out, cost),
            Selector::Global(filter) => filter.select(version, probe, runs, out, cost),
            Selector::Building(filters) => filters.tables.select(version, probe, runs, out, cost),
            #[cfg(any(test, feature = "unstable-selector"))]
            other => (**other).select(version, probe, runs, out, cost),
        }
    }
}

impl Selector {
    /// Names the scope of the answering filter.
    pub(crate) fn whose(&self) -> &'static str {
        match self {
            Selector::PerTable(_) | Selector::Building(_) => "per table",
            Selector::Global(_) => "for the tree",
            #[cfg(feature = "unstable-selector")]
            Selector::External(_) => "external",
            #[cfg(test)]
            Selector::Test(_) => "a test's",
        }
    }
}

impl Deref for Selector {
    type Target = dyn RunSelector;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Selector::PerTable(filters) => filters,
            Selector::Global(filter) => filter,
            Selector::Building(filters) => &filters.tables,
            #[cfg(feature = "unstable-selector")]
            Selector::External(filter) => filter,
            #[cfg(test)]
            Selector::Test(selector) => &**selector,
        }
    }
}

/// Warnings for users, one per table, kept until taken. Any thread may add.
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

/// The source of the selectors of a keyspace's versions.
#[derive(Debug)]
pub(crate) enum TreeFilter {
    /// Each table has its own filter. Probes of elastic filters are sampled; if filter memory is
    /// allocated by access, so are probes of other filters.
    PerTable(Arc<Sampler>, Arc<AccessSampler>),
    /// One filter for all versions of the tree.
    Grf(Box<Grf>),
    /// One or the other.
    Auto(Box<Auto>),
    /// A filter that the program supplies.
    #[cfg(feature = "unstable-selector")]
    External(Box<external::External>),
}

impl TreeFilter {
    /// Returns the filter that the keyspace's options ask for, for a tree about which nothing is
    /// known yet. `read_only`: no tables are written while it is open.
    pub(crate) fn new(
        options: &KeyspaceOptions,
        database: &Options,
        read_only: bool,
        sampler: &Arc<Sampler>,
        _operators: &KeyspaceOperators,
    ) -> TreeFilter {
        #[cfg(feature = "unstable-selector")]
        if let Some(kind) = &_operators.selector {
            return TreeFilter::External(Box::new(external::External::new(&**kind, options)));
        }
        match options.filter.of_tree() {
            Some(FilterChoice::Grf) => TreeFilter::Grf(Box::new(Grf::new(options))),
            Some(FilterChoice::Auto) => {
                let costs = match database.read_mode {
                    ReadMode::Direct => Costs::DIRECT,
                    _ => Costs::MEMORY,
                };
                TreeFilter::Auto(Box::new(Auto::new(options, sampler, costs, read_only)))
            }
            _ => TreeFilter::PerTable(sampler.clone(), Arc::default()),
        }
    }

    /// Passes the tables of a stored tree to the filter, before any read.
    pub(crate) fn open(&self, tables: &[Arc<OpenTable>]) {
        if let TreeFilter::Auto(auto) = self {
            auto.open(tables);
        }
    }

    /// Returns the filter for the tables of a flush of `entries` entries.
    pub(crate) fn for_flush(
        &self,
        options: &KeyspaceOptions,
        version: &Version,
        entries: u64,
    ) -> FilterChoice {
        self.for_table(options, 0, || {
            let run =
                |tables: Range<usize>| version.tables[tables].iter().map(|table| table.meta.entries).sum();
            let runs = version.runs.iter().map(|run_of| run(run_of.tables.clone()));
            std::iter::once(entries).chain(runs).collect()
        })
    }

    /// Returns the filter for new tables at `level` of a tree whose runs will have these entries,
    /// newest first.
    pub(crate) fn for_table(
        &self,
        options: &KeyspaceOptions,
        level: usize,
        runs: impl FnOnce() -> Vec<u64>,
    ) -> FilterChoice {
        match self {
            TreeFilter::Auto(auto) => {
                let entries = runs().into_iter().map(|entries| entries as f64).collect();
                if auto.lists_keys(entries) { FilterChoice::Grf } else { FilterChoice::BlockedBloom }
            }
            _ => options.filter.at(level),
        }
    }

    /// Returns the global filter, if there is one or may be.
    pub(crate) fn grf(&self) -> Option<&Grf> {
        match self {
            TreeFilter::Grf(grf) => Some(grf),
            TreeFilter::Auto(auto) => Some(auto.grf()),
            _ => None,
        }
    }

    /// Performs `turn`, which changes the tree's filter, if still due. Call with `work` and `state`
    /// held; the caller publishes a selector before it releases either.
    pub(crate) fn turn(&self, work: &global::Work, turn: Turn, version: &Version) {
        if let TreeFilter::Auto(auto) = self {
            auto.turn(work, turn, version);
        }
    }

    /// Returns what `filter = auto` has chosen for a version, and why.
    pub(crate) fn choice(&self, version: &Version) -> Option<AutoFilterStats> {
        match self {
            TreeFilter::Auto(auto) => Some(auto.report(version)),
            _ => None,
        }
    }

    /// Returns the sampler of the keyspace's reads, if the filter depends on them.
    pub(crate) fn queries(&self) -> Option<&Arc<QuerySampler>> {
        match self {
            TreeFilter::Grf(grf) => Some(grf.queries()),
            TreeFilter::Auto(auto) => Some(auto.queries()),
            _ => None,
        }
    }

    /// Returns the sampler of probes that guides the allocation of filter memory; `None` for a
    /// filter of the whole tree.
    pub(crate) fn accesses(&self) -> Option<&Arc<AccessSampler>> {
        match self {
            TreeFilter::PerTable(_, accesses) => Some(accesses),
            _ => None,
        }
    }

    /// Returns the selector of a new version, the successor of the previous call's version. Call
    /// under the `state` lock.
    pub(crate) fn selector(&self, version: &Version, allocation: FilterAllocation) -> Selector {
        let Version { runs, tables, .. } = version;
        match self {
            TreeFilter::PerTable(sampler, accesses) => {
                let accesses = (allocation == FilterAllocation::Mnemosyne).then_some(accesses);
                Selector::PerTable(TableFilters::new(tables, sampler, accesses))
            }
            TreeFilter::Grf(grf) => Selector::Global(grf.selector(runs, tables)),
            TreeFilter::Auto(auto) => auto.selector(version),
            #[cfg(feature = "unstable-selector")]
            TreeFilter::External(filter) => Selector::External(filter.selector(version)),
        }
    }

    /// Adds the keys of flushed tables before the tables are published. Hold the returned guard
    /// until they are. Do not call with the `state` lock held.
    pub(crate) fn insert_flushed(&self, tables: &[Arc<OpenTable>]) -> Option<MutexGuard<'_, global::Work>> {
        match self {
            TreeFilter::Grf(grf) => {
                let mut work = grf.work();
                grf.insert_flushed(&mut work, tables);
                Some(work)
            }
            TreeFilter::Auto(auto) => Some(auto.insert_flushed(tables)),
            _ => None,
        }
    }

    /// Records that an epoch was taken for future tables. Drop the result after they are published,
    /// or once they certainly will not be. Call under the `state` lock under which the epoch was
    /// taken.
    pub(crate) fn note_taken(&self, epoch: u64) -> Option<TakenEpoch> {
        Some(self.grf()?.note_taken(epoch))
    }

    /// Records an epoch whose tables are about to be published without their keys in the filter.
    pub(crate) fn note_missing(&self, epoch: u64) {
        if let Some(grf) = self.grf() {
            grf.note_missing(epoch);
        }
    }

    /// Returns the warnings since the last call.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        match self {
            TreeFilter::PerTable(..) => Vec::new(),
            TreeFilter::Grf(grf) => grf.take_warnings(),
            TreeFilter::Auto(auto) => auto.grf().take_warnings(),
            #[cfg(feature = "unstable-selector")]
            TreeFilter::External(filter) => filter.take_warnings(),
        }
    }

    /// Returns the statistics of the filter, if it is a global one.
    pub(crate) fn report(&self) -> Option<GlobalFilterStats> {
        match self {
            TreeFilter::PerTable(..) => None,
            TreeFilter::Grf(grf) => Some(grf.report()),
            TreeFilter::Auto(auto) => auto.has_global().then(|| auto.grf().report()),
            #[cfg(feature = "unstable-selector")]
            TreeFilter::External(filter) => Some(filter.report()),
        }
    }

    /// Reports whether images of the filter are kept on disk. Call under the `state` lock, before
    /// any read, or after background work has ended.
    pub(crate) fn has_images(&self) -> bool {
        match self {
            TreeFilter::Grf(_) => true,
            TreeFilter::Auto(auto) => auto.has_images(),
            _ => false,
        }
    }

    /// Returns the background work due for the filter, including images if the database `saves`
    /// any.
    pub(crate) fn task(&self, version: &Version, saves: bool) -> Option<global::Task> {
        match self {
            TreeFilter::Grf(grf) => grf.task(version, saves),
            TreeFilter::Auto(auto) => auto.task(version, saves),
            _ => None,
        }
    }
}
