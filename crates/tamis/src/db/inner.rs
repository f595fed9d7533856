//! The shared core of an open database, and which lock guards what.
//!
//! # Owners
//!
//! Each keeps its fields to itself and says in its module what it promises, who may call what, and
//! what holds after a failure:
//!
//! | owner | what it owns |
//! | --- | --- |
//! | [`Committer`] | the queue of writers, and the newest visible write |
//! | [`Throttle`] | why and how long writes wait |
//! | [`Log`] | the write-ahead log, and the files and disk space of all logs |
//! | [`Gate`] | whether writes may proceed |
//! | [`Reserve`] | space on the device that is held in reserve |
//! | [`Expiry`] | when writes were made |
//! | [`History`] | recent commits that transactions may have to be validated against |
//! | [`Locks`] | which transactions hold which keys and ranges |
//! | [`Prepared`] | which transactions are prepared |
//! | [`Consumers`] | named readers of changes |
//! | [`FilterFiles`] | the filter files that were opened |
//! | [`Monitor`] | the `state` lock, and waiting for a change of what is behind it: |
//! | [`Catalogue`] | – the keyspaces, their trees, and the manifest |
//! | [`Scheduler`] | – flushes and compactions under way, due or in backoff |
//! | [`FilterUpkeep`] | – work on global filters |
//! | [`Reshaping`] | – options that are about to change |
//! | [`ReadDebts`] | – what reads have paid for |
//!
//! They do not know [`DbInner`]. Work that needs several of them (flushes, compactions, ingestion,
//! checkpoints, opening, the end of a suspension) is a method of `DbInner` and calls theirs.
//!
//! # Locks
//!
//! Taken in this order; none is held while a read is served. The lock of a session that has not
//! begun ([`begin`](super::begin)) comes before all of them, then those of [`Prepared`] and
//! [`Consumers`], and then the one that is held while images of filters are saved
//! ([`images`](super::images)). The lock of memory that several databases share
//! ([`memory`](crate::memory)) is taken with none of these held; under it only the division of read
//! memory and what follows it here are taken, of any of these databases. That of the memory for
//! memtables ([`memory::writes`](crate::memory::writes)) is a leaf but for the list of filled
//! keyspaces.
//!
//! 1. A keyspace's filter work ([`Grf::work`](crate::select::Grf::work)): held while keys are added
//!    to its global filter.
//! 2. `log`: the current [log](Log) and the next sequence number. Only its holder appends to the
//!    log. Batches that commit alone release it before they are in the memtables and visible
//!    ([`commit`](super::commit)); group commit leaders, sealing, checkpoints and periodic syncs
//!    take it by [`lock_log`](DbInner::lock_log), which waits for those: then only its holder
//!    writes. Under it, the log's `next`: the log to come.
//! 3. `state` ([`Monitor`]): the [catalogue](Catalogue), the [scheduler](Scheduler) and what else
//!    [`State`] lists. Every change of a keyspace's view is made under it.
//! 4. The log's `unsynced`: rolled logs that are not synced yet.
//! 5. `snapshots`: live snapshots.
//! 6. `expiry.times`: samples of when writes were made.
//! 7. The division of read memory between block cache and filters, and under it, or under any of
//!    the above:
//! 8. The in-memory state of elastic filters ([`Elastic`]).
//!
//! Leaf locks, which may be taken while any of these is held and under which no other is taken: the
//! queue of writers and their turns, of threads that wait until a number is visible, a memtable's,
//! the chunks that memtables hand on, a keyspace's [views that were replaced](super::readers), the
//! list of [filled keyspaces](Filled), its [gaps](crate::read::Gaps) (whose holder may *try* to
//! take the log) and the place of its last deletions, since when a log is idle, recent commits
//! ([`History`]), the table of [`Locks`], the reserve's, the list of opened filter files, the cause
//! of a late beginning, those within a global filter, obsolete files, scrub, warnings, decisions,
//! the directory lock, the queue of [events](crate::observe).
//!
//! The mutexes within [`Background`], [`Room`] and [`Gate`] (free space, the budget of background
//! writes, why writes are suspended) may be taken while any of these is held; no lock is taken
//! while they are held.
//!
//! # Publishing
//!
//! A writer inserts into memtables; then `visible_seq` is stored (Release), in the order of the
//! log. A reader loads the view, then `visible_seq` (Acquire): it sees every entry at or below that
//! number that the view can hold. The view is complete up to that number, or lacks only writes made
//! after the view was replaced, which form a suffix. Between the two loads the reader loads the
//! keyspace's expiry horizon, below which entries have expired ([`expiry`](super::expiry)).

use crate::sync::{self, Mutex, MutexGuard};
use crate::tree::new_tables::NewTables;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use tamis_base::ids::{KeyspaceId, LogId};
use tamis_base::key::SeqNo;
use tamis_files::table::ReaderConfig;
use tamis_files::table::cache::BlockCache;
use tamis_files::tree::edit::VersionEdit;
use tamis_files::tree::files::current_path;
use tamis_files::tree::state::KeyspaceState;
use tamis_model::engine::Workload;
use tamis_policy::compaction::shape::{LevelShape, RunShape, Shape, TableShape};

use crate::compaction::filters::FilterBits;
use crate::compaction::versions::Rules;
use crate::db::begin::Pending;
use crate::db::catalogue::{Catalogue, FileNumbers, Keyspaces};
use crate::db::commit::Committer;
use crate::db::consumers::Consumers;
use crate::db::counters::WriteCounters;
use crate::db::elastic::Elastic;
use crate::db::expiry::{Age, Expiry};
use crate::db::filled::Filled;
use crate::db::filters::FilterUpkeep;
use crate::db::follow::Follower;
use crate::db::for_reads::ReadDebts;
use crate::db::gate::Gate;
use crate::db::health::Warnings;
use crate::db::history::History;
use crate::db::images::FilterFiles;
use crate::db::jobs::Background;
use crate::db::keyspaces::HIDDEN_PREFIX;
use crate::db::log::{Log, LogFiles};
use crate::db::monitor::Monitor;
use crate::db::pressure::KnownPressure;
use crate::db::readers::OldViews;
use crate::db::reserve::Reserve;
use crate::db::reshape::{Reshaping, Shaping};
use crate::db::room::Room;
use crate::db::salvage::SalvageReport;
use crate::db::scheduler::Scheduler;
use crate::db::scrub::Scrub;
use crate::db::snapshot::LiveSnapshots;
use crate::db::throttle::Throttle;
use crate::db::transaction::locks::Locks;
use crate::db::transaction::prepared::Prepared;
use crate::db::tune::Decisions;
use crate::error::{StorageError, WriteError};
use crate::io::{DirLock, FileSystem};
use crate::memtable::{ChunkPool, Memtable};
use crate::observe::Observer;
use crate::observe::events::Event;
use crate::observe::latency::Operation;
use crate::operators::{KeyspaceOperators, Unregistered};
use crate::options::{KeyspaceOptions, Options};
use crate::read::{AllReads, Gaps, Numbering, ReadCounters};
use crate::read::{MemtableSlot, Memtables, View};
use crate::sampling::Sampler;
use crate::select::{Task, TreeFilter};
use crate::tree::open_table::{Garbage, OpenTable};
use crate::tree::version::Version;
use tamis_base::collections::HashSet;

/// The names that a keyspace has had while it is open, the last one in use. Former names stay in
/// memory, since callers may still look at them.
#[derive(Debug)]
pub(crate) struct Names {
    name: String,
    next: OnceLock<Box<Names>>,
}

impl Names {
    fn new(name: &str) -> Names {
        Names { name: name.to_owned(), next: OnceLock::new() }
    }

    fn last(&self) -> &str {
        let mut names = self;
        while let Some(next) = names.next.get() {
            names = next;
        }
        &names.name
    }

    /// Adds a name. Under the `state` lock.
    pub(crate) fn add(&self, name: &str) {
        let mut names = self;
        while let Some(next) = names.next.get() {
            names = next;
        }
        let added = names.next.set(Box::new(Names::new(name)));
        debug_assert!(added.is_ok(), "one thread adds at a time");
    }
}

/// One keyspace of an open database.
pub(crate) struct KeyspaceInner {
    pub(crate) id: KeyspaceId,
    /// Changed under `state`, read without a lock.
    pub(crate) names: Names,
    /// The options at opening; those that may change since are in `shaping`.
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
    /// Former ones that are still being read.
    pub(crate) old_views: OldViews,
    pub(crate) dropped: AtomicBool,
    /// How writers must behave; see [`DbInner::update_pressure`].
    pub(crate) pressure: KnownPressure,
    pub(crate) age: Age,
    /// The cost of reads of this keyspace.
    pub(crate) reads: Arc<ReadCounters>,
    /// Where memtables take their memory from.
    chunks: Arc<ChunkPool>,
}

debug_as!(KeyspaceInner, "KeyspaceInner", keyspace => "name": keyspace.name());

/// What a keyspace shares with the others of its database.
pub(crate) struct SharedParts<'a> {
    pub(crate) sampler: &'a Arc<Sampler>,
    pub(crate) reads: &'a AllReads,
    pub(crate) chunks: &'a Arc<ChunkPool>,
    pub(crate) numbering: &'a Arc<Numbering>,
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
        let (reads, chunks) = (shared.reads.counters(name, filter.queries().cloned()), shared.chunks.clone());
        let memtables = Memtables::new(fresh_memtable(&options, &chunks, 0));
        let selector = Arc::new(filter.selector(&version, options.filter_allocation));
        let gaps = Arc::new(Gaps::new(shared.numbering.clone()));
        KeyspaceInner {
            id,
            names: Names::new(name),
            age: Age::new(&options, None, 0),
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
            }),
            old_views: OldViews::new(),
            dropped: AtomicBool::new(false),
            pressure: KnownPressure::default(),
            reads,
            chunks,
        }
    }

    /// Returns the keyspace's current name.
    pub(crate) fn name(&self) -> &str {
        self.names.last()
    }

    /// Reports whether programs do not see the keyspace.
    pub(crate) fn is_hidden(&self) -> bool {
        self.name().starts_with(HIDDEN_PREFIX)
    }

    /// Returns an empty memtable whose writes go into `log` or a later one.
    pub(crate) fn fresh_memtable(&self, log: LogId) -> Arc<MemtableSlot> {
        fresh_memtable(&self.options, &self.chunks, log)
    }

    /// Under the `state` lock.
    pub(crate) fn replace_memtables(&self, memtables: Memtables) {
        self.replace_view(Arc::new(self.view.load().with_memtables(memtables)));
    }

    /// Under the `state` lock.
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

    /// Returns the view of a new version. Under the `state` lock.
    pub(crate) fn view_of(&self, memtables: Memtables, version: Arc<Version>) -> View {
        let allocation = self.shaping.load().options.filter_allocation;
        let selector = Arc::new(self.filter.selector(&version, allocation));
        let old = self.view.load();
        let (rotation, edition) = (old.rotation_of(&memtables), old.edition + 1);
        let (gaps, habits) = (old.gaps.clone(), old.habits.clone());
        View { rotation, edition, memtables, selector, version, gaps, habits }
    }

    /// The same for a version that brings values which are not in the memtables before it: a reader
    /// that has a former view does not have all writes up to its number, and must prove nothing
    /// about gaps.
    pub(crate) fn view_with_values(&self, memtables: Memtables, version: Arc<Version>) -> View {
        let view = self.view_of(memtables, version);
        View { rotation: view.gaps.rotate(), ..view }
    }

    /// Tells a table that joins the tree above `version`, and that nobody reads yet, what gets it
    /// has to expect.
    pub(crate) fn inherit_accesses(&self, version: &Version, table: &Arc<OpenTable>) {
        let shaping = self.shaping.load();
        let accesses = self.filter.accesses().map(|accesses| &**accesses);
        let range = || Some((table.meta.smallest.clone(), table.meta.largest.clone()));
        let bits = FilterBits::for_flush(&shaping.options, version, accesses, table.meta.entries, range);
        bits.inherit(std::slice::from_ref(table));
    }

    /// Returns how merges treat the versions of the keyspace's keys, given this horizon.
    pub(crate) fn rules(&self, expired: Option<SeqNo>) -> Rules<'_> {
        // With one operator missing, everything stays as it is until a program comes that has them
        // all.
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

    /// Reports whether its entries, or its deletes, are to go within some time.
    pub(crate) fn is_timed(&self) -> bool {
        self.options.time_to_live.is_some() || self.options.max_tombstone_age.is_some()
    }

    /// Reports whether the keyspace was dropped. Whoever asks after loading the view has one from
    /// before the drop if this is `false`.
    #[inline]
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Lets go of the memtables and tables of a keyspace that is dropped: they are kept by their
    /// readers, not by handles. Under the `state` lock.
    pub(crate) fn let_go(&self) {
        // Before the view is replaced (which is a release), for those who load the view first.
        self.dropped.store(true, Ordering::Relaxed);
        let nothing = KeyspaceState::default();
        let version = Version::build(&nothing, None, |_| unreachable!("there are no tables"));
        let memtables = Memtables::new(self.fresh_memtable(0));
        self.replace_view(Arc::new(self.view_of(memtables, version)));
    }
}

fn fresh_memtable(options: &KeyspaceOptions, chunks: &Arc<ChunkPool>, log: LogId) -> Arc<MemtableSlot> {
    // With 32-bit addresses the largest budget does not fit; no memtable can be that full there.
    let budget = usize::try_from(options.memtable_bytes).unwrap_or(usize::MAX);
    let memtable = Memtable::with_chunks(budget, Some(chunks.clone()));
    MemtableSlot::new(Arc::new(memtable), log)
}

/// Everything behind the `state` lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) catalogue: Catalogue,
    pub(crate) scheduler: Scheduler,
    pub(crate) filters: FilterUpkeep,
    pub(crate) reshaping: Reshaping,
    pub(crate) read_debts: ReadDebts,
    pub(crate) logs: LogFiles,
}

impl State {
    /// Returns the next work on a filter of any keyspace.
    pub(crate) fn next_filter_work(&mut self) -> Option<(Arc<KeyspaceInner>, Task)> {
        self.filters.next(&self.catalogue)
    }
}

/// An open database.
pub(crate) struct DbInner {
    pub(crate) dir: PathBuf,
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) options: Options,
    /// Whether some keyspace lacks an operator. Keyspaces created later never do.
    pub(crate) lacks_operators: bool,
    /// Distinguishes this open database from all others in the process.
    pub(crate) instance: u64,
    pub(crate) cache: Option<Arc<BlockCache>>,
    pub(crate) reader_config: ReaderConfig,
    pub(crate) garbage: Arc<Garbage>,

    pub(crate) committer: Arc<Committer>,
    pub(crate) throttle: Throttle,
    pub(crate) log: Arc<Log>,
    /// What gaps of keyspaces ask for numbers: the log.
    pub(crate) numbering: Arc<Numbering>,
    pub(crate) monitor: Arc<Monitor>,
    pub(crate) snapshots: Mutex<LiveSnapshots>,
    /// The report if this opening was a salvage.
    pub(crate) salvaged: Mutex<Option<SalvageReport>>,
    pub(crate) expiry: Expiry,
    /// Recent commits, for transactions.
    pub(crate) history: History,
    /// The locks of transactions that lock.
    pub(crate) locks: Locks,
    pub(crate) prepared: Prepared,
    pub(crate) consumers: Consumers,
    /// Of a database that is opened to be followed.
    pub(crate) follower: Option<Mutex<Follower>>,

    pub(crate) numbers: Arc<FileNumbers>,
    /// What a session that waits for room needs to begin.
    pub(crate) beginning: Mutex<Pending>,
    /// The keyspaces by id, for the write path (which does not take `state`).
    pub(crate) directory: Arc<Keyspaces>,
    /// The keyspaces whose memtables may hold something.
    pub(crate) filled: Arc<Filled>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) room: Arc<Room>,
    pub(crate) reserve: Reserve,
    pub(crate) warnings: Arc<Warnings>,
    /// The changes made by the tuner.
    pub(crate) decisions: Mutex<Decisions>,
    pub(crate) read_counters: Arc<AllReads>,
    pub(crate) write_counters: Arc<WriteCounters>,
    pub(crate) observer: Arc<Observer>,
    /// The memory of dropped memtables, for the next ones.
    pub(crate) chunks: Arc<ChunkPool>,
    pub(crate) background: Background,
    pub(crate) scrub: Scrub,
    pub(crate) filter_files: Arc<FilterFiles>,
    pub(crate) elastic: Arc<Elastic>,
    /// The directory lock; taken out by `close`.
    pub(crate) lock: Mutex<Option<Box<dyn DirLock>>>,
}

debug_as!(DbInner, "DbInner", db => "path": db.dir);

impl DbInner {
    /// Panics in the child of a fork, where the lock may never be released: what can return an
    /// error there has done so before.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        if !self.gate.is_ours() {
            panic!("{}", self.gate.forked());
        }
        self.monitor.lock()
    }

    /// Returns the newest sequence number visible to readers. Load the view before this.
    #[inline]
    pub(crate) fn visible(&self) -> SeqNo {
        self.committer.visible()
    }

    pub(crate) fn warn(&self, message: String) {
        self.warnings.add(message);
    }

    /// Returns the live snapshots, ascending. A snapshot taken later is at or above everything that
    /// is in a table or sealed memtable now, so a merge of these may rely on this list.
    pub(crate) fn live_snapshots(&self) -> Vec<SeqNo> {
        self.snapshots.lock().numbers()
    }

    /// Makes an edit durable and publishes its changes in the trees of keyspaces; `change` gives
    /// each its new memtables. `opened` are the tables that the edit adds. On an error nothing is
    /// published: see [`Catalogue::commit`].
    pub(crate) fn commit_edit(
        &self,
        state: &mut State,
        edit: VersionEdit,
        opened: NewTables,
        change: impl FnMut(KeyspaceId, &Memtables) -> Memtables,
    ) -> Result<(), StorageError> {
        let complete = |catalogue: &Catalogue, edit: &mut VersionEdit| self.complete_edit(catalogue, edit);
        let started = sync::now();
        let (edit, opened) = state.catalogue.commit(edit, opened, complete).inspect_err(|_| {
            self.elastic.was_not_saved();
            self.monitor.notify();
        })?;
        self.observer.record(Operation::ManifestEdit, sync::since(started));
        self.publish_edit(state, &edit, &opened, change);
        Ok(())
    }

    /// Fails if somebody has removed the database's files: what is written to them is lost.
    pub(crate) fn check_named(&self) -> Result<(), StorageError> {
        let path = current_path(&self.dir);
        let found = self.fs.exists(&path).map_err(|e| StorageError::io("look for", &path, e))?;
        let gone = || StorageError::io("find", &path, std::io::ErrorKind::NotFound.into());
        found.then_some(()).ok_or_else(gone)
    }

    /// Adds to an edit what every edit records.
    ///
    /// No edit records the number of a write that a power failure may take back, except where it
    /// comes with that write's age. So numbers go on where the logs end, and readers of changes
    /// meet no jump.
    pub(crate) fn complete_edit(&self, catalogue: &Catalogue, edit: &mut VersionEdit) {
        self.expiry.save_ages(catalogue, edit);
        if edit.hotness.is_empty() {
            edit.hotness = self.elastic.hotness_to_save();
        }
        edit.next_file = Some(self.numbers.next());
        let ages = edit.ages.iter().map(|(_, ages)| ages.since.max(ages.expired)).max();
        edit.last_seq = edit.last_seq.max(ages).max(Some(self.log.durable()));
    }

    /// Publishes the changes of an edit that the catalogue already has.
    pub(crate) fn publish_edit(
        &self,
        state: &mut State,
        edit: &VersionEdit,
        opened: &[Arc<OpenTable>],
        change: impl FnMut(KeyspaceId, &Memtables) -> Memtables,
    ) {
        for (keyspace, old, new) in state.catalogue.publish(edit, opened, change) {
            self.elastic.change(&old, &new);
            state.filters.tree_changed(&keyspace);
            state.scheduler.note_change(keyspace.id);
            state.scheduler.note_memtables(&keyspace);
            self.warn_of_filter(&keyspace);
            self.update_pressure(state, &keyspace);
        }
        if self.observer.queue().has_listeners() {
            self.tell_of_tables(state, edit);
        }
        self.monitor.notify();
    }

    /// Raises events for the tables that joined and left the tree; those that were moved did
    /// neither.
    fn tell_of_tables(&self, state: &State, edit: &VersionEdit) {
        let name = |id: &KeyspaceId| {
            state
                .catalogue
                .keyspaces()
                .get(id)
                .map_or_else(String::new, |keyspace| keyspace.name().to_owned())
        };
        let removed: HashSet<_> = edit.removed.iter().copied().collect();
        let added: HashSet<_> = edit.added.iter().map(|(id, _, _, meta)| (*id, meta.id)).collect();
        for (id, level, _, meta) in &edit.added {
            if !removed.contains(&(*id, meta.id)) {
                let (keyspace, table, level, bytes) = (name(id), meta.id, *level as usize, meta.file_bytes);
                self.observer.raise(|| Event::TableCreated { keyspace, table, level, bytes });
            }
        }
        for (id, table) in &edit.removed {
            if !added.contains(&(*id, *table)) {
                let (keyspace, table) = (name(id), *table);
                self.observer.raise(|| Event::TableRemoved { keyspace, table });
            }
        }
    }

    /// Returns the shape of a keyspace's tree as the policy sees it.
    pub(crate) fn shape(&self, state: &State, keyspace: &KeyspaceInner) -> Shape {
        let view = keyspace.view.load();
        let busy = state.scheduler.busy(keyspace.id);
        // Before the list of snapshots: a snapshot taken later sees nothing of what has expired by
        // now.
        let expired = self.expiry.expired(keyspace);
        let mut levels = vec![LevelShape::default(); keyspace.options.levels];
        for run in &view.version.runs {
            let tables = view.version.tables[run.tables.clone()].iter();
            let tables = tables
                .map(|t| {
                    let taken = busy.is_some_and(|busy| busy.contains(&t.meta.id));
                    TableShape {
                        meta: t.meta.clone(),
                        busy: taken || t.table.flaw().stops_merges(),
                        free: !taken,
                    }
                })
                .collect();
            levels[run.level].runs.push(RunShape { id: run.id, tables });
        }
        Shape {
            levels,
            running: state.scheduler.running(keyspace.id).iter().map(|job| job.shape.clone()).collect(),
            room: self.room(state),
            now: self.now(),
            expired,
            snapshots: self.live_snapshots(),
            settling: self.background.is_settling(),
        }
    }

    /// Returns the current time in seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        self.expiry.now()
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

#[cfg(test)]
mod tests;
