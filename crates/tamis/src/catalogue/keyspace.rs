//! One keyspace of an open database: its options, its filter, and the view that readers load.
//!
//! Every change of a keyspace's view or names is made under the `state` lock; both are read without
//! a lock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use tamis_base::ids::{KeyspaceId, LogId};
use tamis_base::key::SeqNo;
use tamis_files::tree::state::KeyspaceState;
use tamis_model::engine::Workload;

use crate::catalogue::age::EntryAges;
use crate::catalogue::old_views::OldViews;
use crate::catalogue::pressure::KnownPressure;
use crate::catalogue::shaping::Shaping;
use crate::compaction::filters::FilterBits;
use crate::compaction::versions::Rules;
use crate::error::WriteError;
use crate::memtable::{ChunkPool, Memtable};
use crate::operators::{KeyspaceOperators, Unregistered};
use crate::options::{Compression, KeyspaceOptions, Options};
use crate::read::{AllReads, Gaps, MemtableSlot, Memtables, Numbering, ReadCounters, View};
use crate::records::{KeyspaceRecords, RecordCache, RunsChange};
use crate::sampling::Sampler;
use crate::select::TreeFilter;
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

/// The names that a keyspace has had while open; the last is current. Former names stay in memory,
/// since callers may still hold references to them.
#[derive(Debug)]
pub(crate) struct NameHistory {
    name: String,
    next: OnceLock<Box<NameHistory>>,
}

impl NameHistory {
    fn new(name: &str) -> NameHistory {
        NameHistory { name: name.to_owned(), next: OnceLock::new() }
    }

    fn last(&self) -> &str {
        let mut names = self;
        while let Some(next) = names.next.get() {
            names = next;
        }
        &names.name
    }

    /// Adds a name. Called under the `state` lock.
    pub(crate) fn add(&self, name: &str) {
        let mut names = self;
        while let Some(next) = names.next.get() {
            names = next;
        }
        let added = names.next.set(Box::new(NameHistory::new(name)));
        debug_assert!(added.is_ok(), "one thread adds at a time");
    }
}

/// One keyspace of an open database.
pub(crate) struct KeyspaceInner {
    pub(crate) id: KeyspaceId,
    /// Changed under `state`, read without a lock.
    pub(crate) names: NameHistory,
    /// The options at opening. Those that may have changed since are in `shaping`.
    pub(crate) options: KeyspaceOptions,
    /// The workload declared when the keyspace was opened or created.
    pub(crate) declared: Option<Workload>,
    /// The operators that `options` name.
    pub(crate) operators: KeyspaceOperators,
    /// The source of the versions' selectors.
    pub(crate) filter: TreeFilter,
    /// Replaced under `state`, read without a lock.
    pub(crate) shaping: ArcSwap<Shaping>,
    /// Replaced under `state`, read without a lock.
    pub(crate) view: ArcSwap<View>,
    /// Former views that are still being read.
    pub(crate) old_views: OldViews,
    pub(crate) dropped: AtomicBool,
    /// The pressure on writers; see `Session::update_pressure`.
    pub(crate) pressure: KnownPressure,
    /// When pressure last slowed writes down, as the throttle counts time; 0 if that is long ago.
    /// Changed by the holder of the log's lock, and reset while nothing compacts by itself.
    pub(crate) limited_at: AtomicU64,
    pub(crate) age: EntryAges,
    /// The cost of reads of this keyspace.
    pub(crate) reads: Arc<ReadCounters>,
    /// Where memtables get their memory.
    chunks: Arc<ChunkPool>,
    /// Whether they keep the sum of their versions.
    protect: bool,
    /// If the database has a record cache.
    pub(crate) records: Option<KeyspaceRecords>,
}

debug_as!(KeyspaceInner, "KeyspaceInner", keyspace => "name": keyspace.name());

/// What a keyspace shares with the other keyspaces of its database.
pub(crate) struct SharedParts<'a> {
    pub(crate) sampler: &'a Arc<Sampler>,
    pub(crate) reads: &'a AllReads,
    pub(crate) chunks: &'a Arc<ChunkPool>,
    pub(crate) numbering: &'a Arc<Numbering>,
    pub(crate) records: &'a Option<Arc<RecordCache>>,
    /// [`Options::protect_writes`].
    pub(crate) protect: bool,
}

impl KeyspaceInner {
    /// A keyspace without tables.
    pub(crate) fn empty(
        id: KeyspaceId,
        name: &str,
        options: KeyspaceOptions,
        database: &Options,
        operators: KeyspaceOperators,
        shared: &SharedParts<'_>,
    ) -> KeyspaceInner {
        let state = KeyspaceState::default();
        let none = |_| unreachable!("a new keyspace has no tables");
        let filter = TreeFilter::new(&options, database, false, shared.sampler, &operators);
        let version = Version::build(&state, None, none);
        KeyspaceInner::with_version(id, name, options, operators, filter, version, shared)
    }

    pub(crate) fn with_version(
        id: KeyspaceId,
        name: &str,
        options: KeyspaceOptions,
        operators: KeyspaceOperators,
        filter: TreeFilter,
        version: Arc<Version>,
        shared: &SharedParts<'_>,
    ) -> KeyspaceInner {
        let (reads, chunks) = (
            shared.reads.counters(name, filter.global().map(|global| global.grf.queries().clone())),
            shared.chunks.clone(),
        );
        let memtables = Memtables::new(fresh_memtable(&options, &chunks, shared.protect, 0));
        let selector = Arc::new(filter.selector(&version, options.filter_allocation));
        let gaps = Arc::new(Gaps::new(shared.numbering.clone()));
        KeyspaceInner {
            id,
            names: NameHistory::new(name),
            age: EntryAges::new(&options, None, 0),
            shaping: ArcSwap::from_pointee(Shaping::new(options.clone())),
            declared: options.workload,
            options,
            operators,
            filter,
            view: ArcSwap::from_pointee(View {
                memtables,
                version,
                selector,
                gaps,
                habits: Arc::default(),
                rotation: 0,
                edition: 0,
                floor: 0,
            }),
            old_views: OldViews::new(),
            dropped: AtomicBool::new(false),
            pressure: KnownPressure::default(),
            limited_at: AtomicU64::new(0),
            reads,
            chunks,
            protect: shared.protect,
            records: shared.records.clone().map(|cache| KeyspaceRecords::new(id, cache)),
        }
    }

    /// Returns the keyspace's current name.
    pub(crate) fn name(&self) -> &str {
        self.names.last()
    }

    /// Reports whether the keyspace is hidden from programs.
    pub(crate) fn is_hidden(&self) -> bool {
        self.name().starts_with(HIDDEN_PREFIX)
    }

    /// Returns an empty memtable whose writes will go into `log` or a later one.
    pub(crate) fn fresh_memtable(&self, log: LogId) -> Arc<MemtableSlot> {
        fresh_memtable(&self.shaping.load().options, &self.chunks, self.protect, log)
    }

    /// Called under the `state` lock.
    pub(crate) fn replace_memtables(&self, memtables: Memtables) {
        self.replace_view(Arc::new(self.view.load().with_memtables(memtables)));
    }

    /// Called under the `state` lock.
    pub(crate) fn replace_view(&self, view: Arc<View>) {
        let memtables = view.memtables.clone();
        let old = self.view.swap(view);
        for slot in old.memtables.iter() {
            let is_in = |slots: &[Arc<MemtableSlot>]| slots.iter().any(|other| Arc::ptr_eq(other, slot));
            match is_in(&memtables.sealed) {
                true => slot.memtable.seal(),
                false if !is_in(std::slice::from_ref(&memtables.active)) => slot.memtable.retire(),
                false => {}
            }
        }
        self.old_views.note(&old);
    }

    /// Returns the view of a new version. Called under the `state` lock.
    pub(crate) fn view_of(&self, memtables: Memtables, version: Arc<Version>) -> View {
        let allocation = self.shaping.load().options.filter_allocation;
        let selector = Arc::new(self.filter.selector(&version, allocation));
        let old = self.view.load();
        let (rotation, edition) = (old.rotation_of(&memtables), old.edition + 1);
        let (gaps, habits) = (old.gaps.clone(), old.habits.clone());
        let loses_values = self.operators.filter.is_some() || self.shaping.load().policy.drops_data();
        let change = match () {
            () if loses_values => RunsChange::Other,
            () if memtables.are(&old.memtables) => RunsChange::Merged,
            () => RunsChange::Flushed,
        };
        let floor = self.records.as_ref().map_or(edition, |records| records.next_floor(edition, change));
        View { rotation, edition, floor, memtables, selector, version, gaps, habits }
    }

    /// Returns the view of a version that brings values from outside the preceding memtables. A
    /// reader with a former view lacks some writes up to its number, so it must prove nothing about
    /// gaps.
    pub(crate) fn view_with_values(&self, memtables: Memtables, version: Arc<Version>) -> View {
        let view = self.view_of(memtables, version);
        let (rotation, edition) = (view.gaps.rotate(), view.edition);
        let other = |records: &KeyspaceRecords| records.next_floor(edition, RunsChange::Other);
        View { rotation, floor: self.records.as_ref().map_or(edition, other), ..view }
    }

    /// Tells a table that joins the tree above `version`, and has no readers yet, how many gets to
    /// expect.
    pub(crate) fn inherit_accesses(&self, version: &Version, table: &Arc<OpenTable>) {
        let shaping = self.shaping.load();
        let accesses = self.filter.accesses().map(|accesses| &**accesses);
        let range = || Some((table.meta.smallest.clone(), table.meta.largest.clone()));
        let bits = FilterBits::for_flush(&shaping.options, version, accesses, table.meta.entries, range);
        bits.inherit(std::slice::from_ref(table));
    }

    /// Returns how merges treat the versions of the keyspace's keys, given this horizon.
    pub(crate) fn rules(&self, expired: Option<SeqNo>) -> Rules<'_> {
        // With an operator missing, everything stays as it is until a program has them all.
        if self.operators.missing.is_some() {
            return Rules { operator: None, filter: None, expired };
        }
        Rules { operator: self.operators.merge.as_deref(), filter: self.operators.filter.as_deref(), expired }
    }

    /// Refuses writes to a keyspace that lacks an operator.
    pub(crate) fn check_operators(&self) -> Result<(), WriteError> {
        self.operators.check_complete().map_err(|Unregistered { option, name }| WriteError::Unregistered {
            keyspace: self.name().to_string(),
            option,
            name,
        })
    }

    /// Reports whether its entries or its deletes have a maximum age.
    pub(crate) fn is_timed(&self) -> bool {
        self.options.time_to_live.is_some() || self.options.max_tombstone_age.is_some()
    }

    /// Reports whether the keyspace was dropped. If this is `false` after the view was loaded, the
    /// view is from before the drop.
    #[inline]
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Releases the memtables and tables of a dropped keyspace: from now on readers keep them
    /// alive, handles do not. Called under the `state` lock.
    pub(crate) fn let_go(&self) {
        // Before the view is replaced (a release), for threads that load the view first.
        self.dropped.store(true, Ordering::Relaxed);
        let nothing = KeyspaceState::default();
        let version = Version::build(&nothing, None, |_| unreachable!("there are no tables"));
        let memtables = Memtables::new(self.fresh_memtable(0));
        self.replace_view(Arc::new(self.view_of(memtables, version)));
        if let Some(global) = self.filter.global() {
            global.grf.let_go();
        }
    }
}

fn fresh_memtable(
    options: &KeyspaceOptions,
    chunks: &Arc<ChunkPool>,
    protect: bool,
    log: LogId,
) -> Arc<MemtableSlot> {
    // The largest budget does not fit into 32-bit addresses; no memtable can be that full there.
    let budget = usize::try_from(options.memtable_bytes).unwrap_or(usize::MAX);
    // In a log, values are not compressed.
    let stay_in_log = options.compression.at(0) == Compression::None;
    let in_log = if stay_in_log { options.blob_threshold } else { 0 };
    let memtable = Memtable::with_chunks(budget, in_log, Some(chunks.clone())).with_sum(protect);
    MemtableSlot::new(Arc::new(memtable), log)
}

/// The keyspace that holds consumers, hidden from programs.
pub(crate) const CONSUMERS_KEYSPACE: &str = "\0consumers";

/// The first character of the names of keyspaces that are hidden from programs. It is a control
/// character, so no program can create such a name.
pub(crate) const HIDDEN_PREFIX: char = '\0';
