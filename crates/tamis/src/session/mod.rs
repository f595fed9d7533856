//! The shared core of an open database, and which lock guards what.
//!
//! # Owners
//!
//! The module of each owner says what it promises, who may call what, and what holds after a
//! failure:
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
//! | [`FilterFiles`] | the filter files that were opened |
//! | [`Monitor`] | the `state` lock, and waiting for changes of the state behind it: |
//! | [`Catalogue`] | – the keyspaces, their trees, and the manifest |
//! | [`Scheduler`](crate::catalogue::scheduler::Scheduler) | – flushes and compactions under way, due or in backoff |
//! | [`FilterUpkeep`](crate::catalogue::filter_upkeep::FilterUpkeep) | – work on global filters |
//! | [`Reshaping`](crate::catalogue::reshaping::Reshaping) | – options that are about to change |
//! | [`ReadDebts`](crate::catalogue::read_debts::ReadDebts) | – what reads have paid for |
//!
//! Owners do not know [`Session`]. Work that needs several of them (flushes, compactions,
//! ingestion, checkpoints, opening, the end of a suspension) is a method of `Session` that calls
//! theirs.
//!
//! # Locks
//!
//! Locks are taken in the order of the list below; none is held while a read is served. Before the
//! list come, in this order: the lock of a session that has not begun
//! ([`begin`](crate::jobs::begin)), the locks of [`Prepared`] and of consumers of changes, and the
//! lock held while images of filters are saved ([`images`](crate::jobs::images)).
//!
//! The lock of memory shared by several databases ([`memory`](crate::memory)) is taken with none of
//! these held. Under it, only the division of read memory and the locks after it in the list are
//! taken, for any of these databases. The lock of the memory for memtables
//! ([`memory::writes`](crate::memory::writes)) is a leaf, except that the list of filled keyspaces
//! may be taken under it.
//!
//! 1. A keyspace's filter work ([`Grf::work`](crate::select::Grf::work)): held while keys are added
//!    to its global filter.
//! 2. `log`: the current [log](Log) and the next sequence number. Only its holder appends to the
//!    log. A batch that commits alone releases it before the batch is in the memtables and visible
//!    ([`commit`](crate::write::commit)). Group commit leaders, sealing, checkpoints and periodic
//!    syncs take it by [`lock_log`](Session::lock_log), which waits for such batches: from then on
//!    only the holder writes. Under it comes the log's `next`: the log to come.
//! 3. `state` ([`Monitor`]): the [catalogue](Catalogue), the
//!    [scheduler](crate::catalogue::scheduler) and the rest of [`State`]. Every change to a
//!    keyspace's view is made under it.
//! 4. The log's `unsynced`: rolled logs that are not synced yet.
//! 5. `snapshots`: live snapshots.
//! 6. `expiry.times`: samples of when writes were made.
//! 7. The division of read memory between block cache and filters. Under it, or under any of the
//!    above:
//! 8. The in-memory state of elastic filters ([`Elastic`]).
//!
//! Leaf locks may be taken while any of these is held, and no other lock is taken under them: the
//! queue of writers and their turns; threads that wait for a number to become visible; a
//! memtable's; the chunks that memtables hand on; a keyspace's [replaced
//! views](crate::handles::readers), its [gaps](crate::read::Gaps) (whose holder may *try* to take
//! the log) and the place of its last deletions; the list of [filled keyspaces](Filled); since when
//! a log has been idle; recent commits ([`History`]); the table of [`Locks`]; the reserve's; the
//! list of opened filter files; the cause of a delayed start; those within a global filter;
//! obsolete files, scrub, warnings, decisions, the directory lock, the queue of
//! [events](crate::observe).
//!
//! The mutexes within [`Background`], [`Room`] and [`Gate`] (the budget of background writes, free
//! space, why writes are suspended) may be taken while any of these is held; no lock is taken under
//! them.
//!
//! # Publishing
//!
//! A writer inserts into memtables, then publishes its number ([`Committer::visible`]), in the
//! log's order. A reader loads the view, then that number: it sees every entry at or below that
//! number that the view can hold. The view is complete up to that number, or lacks only writes made after the
//! view was replaced, which form a suffix. Between the two loads the reader loads the keyspace's
//! expiry horizon, below which entries have expired ([`expiry`](crate::session::expiry)).

pub(crate) mod beginning;
pub(crate) mod committer;
pub(crate) mod elastic;
pub(crate) mod expiry;
pub(crate) mod live_snapshots;
pub(crate) mod repair;
pub(crate) mod throttle;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use arc_swap::ArcSwap;
use tamis_base::collections::HashSet;
use tamis_base::ids::KeyspaceId;
use tamis_base::key::SeqNo;
use tamis_files::table::ReaderConfig;
use tamis_files::table::cache::BlockCache;
use tamis_files::tree::edit::VersionEdit;
use tamis_files::tree::files::current_path;
use tamis_policy::compaction::policy::Pressure;
use tamis_policy::compaction::shape::{LevelShape, RunShape, Shape, TableShape};

use crate::catalogue::age::live_from;
use crate::catalogue::filled::Filled;
use crate::catalogue::filter_files::FilterFiles;
use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::monitor::Monitor;
use crate::catalogue::pressure::pressure_of;
use crate::catalogue::progress::Background;
use crate::catalogue::state::State;
use crate::catalogue::tuning::Decisions;
use crate::catalogue::{Catalogue, FileNumbers, Keyspaces};
use crate::conflicts::history::{History, Ingested};
use crate::conflicts::locks::Locks;
use crate::conflicts::prepared_names::Prepared;
use crate::error::StorageError;
use crate::gate::Gate;
use crate::gate::pace::Urgency;
use crate::gate::reserve::{Reserve, bytes_of};
use crate::gate::room::{LEFT_FREE, Room};
use crate::io::{DirLock, FileSystem};
use crate::log::{Current, Log};
use crate::memtable::ChunkPool;
use crate::observe::Observer;
use crate::observe::events::Event;
use crate::observe::latency::Operation;
use crate::observe::warnings::Warnings;
use crate::observe::write_counters::WriteCounters;
use crate::options::Options;
use crate::read::{AllReads, MemtableSlot, Memtables, Numbering, ReadAt};
use crate::records::RecordCache;
use crate::session::beginning::Beginning;
use crate::session::committer::Committer;
use crate::session::elastic::Elastic;
use crate::session::expiry::Expiry;
use crate::session::live_snapshots::{LiveSnapshots, ViewList};
use crate::session::repair::Repaired;
use crate::session::throttle::Throttle;
use crate::sync::{self, Mutex, MutexGuard};
use crate::tree::garbage::Garbage;
use crate::tree::new_tables::NewTables;
use crate::tree::open_table::OpenTable;

/// The files of an open database, and what opening one takes.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) numbers: Arc<FileNumbers>,
    pub(crate) garbage: Arc<Garbage>,
    pub(crate) reader_config: ReaderConfig,
    pub(crate) cache: Option<Arc<BlockCache>>,
    pub(crate) records: Option<Arc<RecordCache>>,
    pub(crate) filter_files: Arc<FilterFiles>,
}

/// The keyspaces, and what they share.
#[derive(Debug)]
pub(crate) struct OpenKeyspaces {
    /// The keyspaces by id, for the write path (which does not take `state`).
    pub(crate) directory: Arc<Keyspaces>,
    /// The keyspaces whose memtables may hold writes.
    pub(crate) filled: Arc<Filled>,
    /// Whether some keyspace lacks an operator. Keyspaces created later never lack one.
    pub(crate) lacks_operators: bool,
    pub(crate) read_counters: Arc<AllReads>,
    /// Memory for the next memtables.
    pub(crate) chunks: Arc<ChunkPool>,
    /// Where gaps of keyspaces get sequence numbers: the log.
    pub(crate) numbering: Arc<Numbering>,
}

/// What transactions are judged by.
#[derive(Debug)]
pub(crate) struct Transactions {
    /// Recent commits.
    pub(crate) history: History,
    /// The locks of transactions that lock.
    pub(crate) locks: Locks,
    pub(crate) prepared: Prepared,
}

/// The space on the device.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) room: Arc<Room>,
    pub(crate) reserve: Reserve,
}

/// What is counted, timed and told.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) observer: Arc<Observer>,
    pub(crate) warnings: Arc<Warnings>,
    pub(crate) write_counters: Arc<WriteCounters>,
    /// The changes made by the tuner.
    pub(crate) decisions: Mutex<Decisions>,
}

/// How the session was opened, begins and ends.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    /// What a session that waits for room needs in order to begin.
    pub(crate) beginning: Mutex<Beginning>,
    /// The directory lock; taken out by `close`.
    pub(crate) lock: Mutex<Option<Box<dyn DirLock>>>,
    /// What was done, if this opening repaired the database.
    pub(crate) repaired: Option<Repaired>,
}

/// An open database, made of its parts. Each has its own invariants; what needs several of them is
/// a method here.
pub(crate) struct Session {
    pub(crate) dir: PathBuf,
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) options: Options,
    /// Distinguishes this open database from all others in the process.
    pub(crate) instance: u64,
    pub(crate) gate: Arc<Gate>,
    pub(crate) log: Arc<Log>,
    pub(crate) committer: Arc<Committer>,
    pub(crate) throttle: Throttle,
    pub(crate) monitor: Arc<Monitor>,
    pub(crate) keyspaces: OpenKeyspaces,
    pub(crate) files: Files,
    pub(crate) snapshots: Mutex<LiveSnapshots>,
    pub(crate) expiry: Expiry,
    pub(crate) transactions: Transactions,
    pub(crate) space: Space,
    pub(crate) elastic: Arc<Elastic>,
    pub(crate) background: Background,
    pub(crate) observed: Observed,
    pub(crate) lifecycle: Lifecycle,
}

debug_as!(Session, "Session", db => "path": db.dir);

impl Session {
    /// Panics in the child of a fork, where the lock may never be released. Callers that can return
    /// an error have done so before.
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
        self.observed.warnings.add(message);
    }

    /// Returns the live snapshots, ascending. A snapshot taken later is at or above everything that
    /// is in a table or sealed memtable now, so a merge of these may rely on the list.
    pub(crate) fn live_snapshots(&self) -> Vec<SeqNo> {
        self.snapshots.lock().numbers()
    }

    /// Makes an edit durable and publishes its changes in the trees of keyspaces. `change` returns
    /// a keyspace's new memtables. `opened` are the tables that the edit adds. On an error nothing
    /// is published: see [`Catalogue::commit`].
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
            self.elastic.note_unsaved();
            self.monitor.notify();
        })?;
        self.observed.observer.record(Operation::ManifestEdit, sync::since(started));
        self.publish_edit(state, &edit, &opened, change);
        Ok(())
    }

    /// The same for an edit that changes no tables.
    pub(crate) fn commit_without_tables(
        &self,
        state: &mut State,
        edit: VersionEdit,
    ) -> Result<(), StorageError> {
        let none = |_, _: &Memtables| unreachable!("no tables change");
        self.commit_edit(state, edit, NewTables::default(), none)
    }

    /// Fails if the database's files were removed from outside: what is written to them is lost.
    pub(crate) fn check_named(&self) -> Result<(), StorageError> {
        let path = current_path(&self.dir);
        let found = self.fs.exists(&path).map_err(|e| StorageError::io("look for", &path, e))?;
        let gone = || StorageError::io("find", &path, std::io::ErrorKind::NotFound.into());
        found.then_some(()).ok_or_else(gone)
    }

    /// Adds to an edit what every edit records.
    ///
    /// No edit records the number of a write that a power failure may take back, except together
    /// with that write's age. So numbering continues where the logs end, and readers of changes see
    /// no jump.
    pub(crate) fn complete_edit(&self, catalogue: &Catalogue, edit: &mut VersionEdit) {
        self.expiry.save_ages(catalogue, edit);
        if edit.hotness.is_empty() {
            edit.hotness = self.elastic.hotness_to_save();
        }
        edit.next_file = Some(self.files.numbers.next());
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
        if self.observed.observer.queue().has_listeners() {
            self.tell_of_tables(state, edit);
        }
        self.monitor.notify();
    }

    /// Raises events for the tables that joined and left the tree; a moved table did neither.
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
                self.observed.observer.raise(|| Event::TableCreated { keyspace, table, level, bytes });
            }
        }
        for (id, table) in &edit.removed {
            if !added.contains(&(*id, *table)) {
                let (keyspace, table) = (name(id), *table);
                self.observed.observer.raise(|| Event::TableRemoved { keyspace, table });
            }
        }
    }

    /// Returns the shape of a keyspace's tree as the policy sees it.
    pub(crate) fn shape(&self, state: &State, keyspace: &KeyspaceInner) -> Shape {
        let view = keyspace.view.load();
        let busy = state.scheduler.busy(keyspace.id);
        // Before the list of snapshots: a snapshot taken later sees nothing that has expired by
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

    /// Makes the caller the only writer, once every logged write is in the memtables. Must not be
    /// called with the state locked.
    pub(crate) fn lock_log(&self) -> MutexGuard<'_, Current> {
        let log = self.log.lock();
        if self.log.was_poisoned() {
            // A number may have been assigned that will never be published.
            self.committer.give_up();
        }
        // After a panic there is nothing to wait for; writers find that writes have stopped.
        self.wait_for_flights(&log);
        log
    }

    /// Like [`lock_log`](Self::lock_log), but returns `None` while a writer holds the log or is in
    /// flight.
    pub(crate) fn try_lock_log(&self) -> Option<MutexGuard<'_, Current>> {
        let log = self.log.try_lock()?;
        (self.committer.visible() >= log.last_seq()).then_some(log)
    }

    /// Waits until nothing is in flight. Returns `false` if a panic has stopped writes for good, so
    /// that this will never happen.
    pub(crate) fn wait_for_flights(&self, log: &Current) -> bool {
        self.committer.wait_for(log.last_seq())
    }

    pub(crate) fn pace(&self, urgency: Urgency, bytes: u64, give_up: &dyn Fn() -> bool) {
        let waited = self.background.pace.wait(urgency, bytes, give_up);
        self.observed.write_counters.pace_nanos.add(waited.as_nanos() as u64);
    }

    /// Returns the number of bytes that a new compaction may write; see
    /// [`room`](crate::gate::room). O(jobs + keyspaces that hold writes).
    pub(crate) fn room(&self, state: &State) -> Option<u64> {
        let free = self.space.room.free()?;
        let taken = state.scheduler.promised().saturating_add(self.bytes_to_flush());
        Some(free.saturating_sub(taken.saturating_add(LEFT_FREE)))
    }

    /// Cancels all running compactions and waits until they have ended.
    pub(crate) fn cancel_compactions(&self) {
        let mut state = self.state();
        let cancelled = state.scheduler.cancel();
        self.monitor.notify();
        while state.scheduler.runs_any(&cancelled) {
            state = self.monitor.wait(state);
        }
    }

    /// Returns an upper bound on the bytes of tables and blob files that all memtables will turn
    /// into. Values in logs count, those of active memtables twice. O(keyspaces that hold writes).
    pub(crate) fn bytes_to_flush(&self) -> u64 {
        let of = |keyspace: &Arc<KeyspaceInner>| bytes_of(&keyspace.view.load().memtables.active);
        let active = self.keyspaces.filled.list().iter().map(of).sum::<u64>();
        active + self.keyspaces.chunks.sealed() + self.keyspaces.chunks.in_logs()
    }

    /// Must be called before flushed memtables leave the keyspace's view.
    pub(crate) fn keep_for_transactions(&self, keyspace: &KeyspaceInner, slots: &[Arc<MemtableSlot>]) {
        // Under the lock, so that no transaction begins between the two. One that begins later sees
        // these memtables whole, since they were sealed before.
        let live = self.snapshots.lock();
        let given_up = self.transactions.history.keep(keyspace.id, slots, live.oldest_transaction());
        drop(live);
        drop(given_up);
    }

    /// Must be called before the number of an ingestion becomes visible.
    pub(crate) fn note_ingested(&self, ingested: impl Iterator<Item = Ingested>) {
        self.transactions.history.note_ingested(ingested);
    }

    /// Drops the history that no open transaction needs. Called when a transaction has ended, and
    /// when an ingestion has become visible.
    pub(crate) fn trim_history(&self) {
        if self.transactions.history.any.load(Relaxed) {
            let live = self.snapshots.lock();
            // A transaction that begins now still has to be validated against what is not visible
            // yet.
            let given_up =
                self.transactions.history.trim(live.oldest_transaction().unwrap_or_else(|| self.visible()));
            drop(live);
            drop(given_up);
        }
    }

    /// Pins the keyspace's view in all live snapshots if its policy drops data. Called with the
    /// policy in place and under the `state` lock, so that nothing is dropped meanwhile and the
    /// view still holds everything that they see.
    pub(crate) fn hold_for_snapshots(&self, keyspace: &KeyspaceInner) {
        if !keyspace.shaping.load().policy.drops_data() {
            return;
        }
        let live = self.snapshots.lock();
        for held in live.holders().filter(|held| held.view(keyspace.id).is_none()) {
            let mut views = held.views().map_or_else(ViewList::new, |views| (*views).clone());
            views.push((keyspace.id, keyspace.view.load_full()));
            match held.views.get() {
                Some(known) => known.store(Arc::new(views)),
                None => _ = held.views.set(ArcSwap::from_pointee(views)),
            }
        }
    }
}

impl Session {
    /// Recomputes the pressure on a keyspace's writers. Called with the state locked after a change
    /// to the tree or to the list of jobs. O(tables).
    pub(crate) fn update_pressure(&self, state: &State, keyspace: &KeyspaceInner) {
        let shaping = keyspace.shaping.load();
        // With manual compaction only, writers must not be stopped for work that nothing else does.
        keyspace.pressure.set(match shaping.options.auto_compaction {
            true => pressure_of(&*shaping.policy, self.shape(state, keyspace)),
            false => Pressure::None,
        });
        if !shaping.options.auto_compaction {
            keyspace.limited_at.store(0, Relaxed);
        }
    }
}

impl Session {
    /// Forwards the warnings of a keyspace's filter.
    pub(crate) fn warn_of_filter(&self, keyspace: &KeyspaceInner) {
        let warnings = keyspace.filter.take_warnings().into_iter();
        warnings.for_each(|warning| self.warn(format!("keyspace `{}`: {warning}", keyspace.name())));
    }
}

impl Session {
    /// Returns what a read of the current state sees. The order of the loads is an invariant of
    /// [`ReadAt`].
    #[inline]
    pub(crate) fn read_now<'k>(&self, keyspace: &'k KeyspaceInner) -> ReadAt<'k> {
        let mut view = keyspace.view.load();
        let (horizon, seq) = loop {
            let expired = self.expiry.expired(keyspace);
            if expired > 0 {
                let newest = keyspace.view.load();
                if !Arc::ptr_eq(&view, &newest) {
                    // The replaced view may lack the writes that renewed what this horizon hides.
                    view = newest;
                    continue;
                }
            }
            break (live_from(expired), self.visible());
        };
        let (operator, sharing) = (keyspace.operators.merge.as_ref(), self.options.hash_sharing);
        ReadAt { view, seq, horizon, operator, sharing, records: keyspace.records.as_ref() }
    }
}

#[cfg(test)]
mod tests;
