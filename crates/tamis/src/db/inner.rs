//! The shared core of an open database, and which lock guards what.
//!
//! # Locks
//!
//! Taken in this order; none is held while a read is served. The lock of a session that has not begun
//! ([`begin`](super::begin)) comes before all of them.
//!
//! 1. A keyspace's filter work ([`Grf::work`](crate::select::Grf::work)): held while keys are added to its global filter.
//! 2. `log`: the write-ahead log and the next sequence number. Its holder is the only writer: only it appends to the log,
//!    inserts into memtables and advances `visible_seq`. Group commit leaders, sealing, checkpoints and periodic syncs take
//!    it.
//! 3. `state`: the durable tree, jobs and keyspaces. Every change of a keyspace's view is made under it.
//! 4. `closed_logs`: rolled logs that are not synced yet.
//! 5. `snapshots`: live snapshots.
//! 6. `expiry.times`: samples of when writes were made.
//! 7. The in-memory state of elastic filters ([`Elastic`]).
//!
//! The mutexes within [`Background`] (free space, the budget of background writes) may be taken while any of these is held;
//! no lock is taken while they are held.
//!
//! # Publishing
//!
//! A writer inserts into memtables and then stores `visible_seq` (Release). A reader loads the view, then `visible_seq`
//! (Acquire): it sees every entry at or below that number that the view can hold. The view is complete up to that number, or
//! lacks only writes made after the view was replaced, which form a suffix. Between the two loads the reader loads the
//! keyspace's expiry horizon, below which entries have expired ([`expiry`](super::expiry)).

use crate::collections::{HashMap, HashSet};
use crate::sync::{self, Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::advise::Workload;
use crate::clock::{Clock, SystemClock};
use crate::compaction::shape::{LevelShape, RunShape, Shape, TableShape};
use crate::compaction::versions::Rules;
use crate::db::begin::Beginning;
use crate::db::commit::{CommitQueue, LogState, new_memtable};
use crate::db::counters::WriteCounters;
use crate::db::elastic::Elastic;
use crate::db::expiry::{Age, Expiry};
use crate::db::for_reads::{Account, Quiet};
use crate::db::health::{Health, RETRY};
use crate::db::jobs::{ActiveJob, Aside, Background};
use crate::db::log_space::LogSpace;
use crate::db::pressure::KnownPressure;
use crate::db::reshape::Shaping;
use crate::db::salvage::SalvageReport;
use crate::db::scrub::Scrub;
use crate::db::snapshot::Held;
use crate::db::tune::{Decisions, Measured, Tuning};
use crate::error::{StorageError, WriteError};
use crate::heat::Sampler;
use crate::ids::{KeyspaceId, LogId, TableId};
use crate::io::{DirLock, FileSystem};
use crate::key::SeqNo;
use crate::operators::KeyspaceOperators;
use crate::options::{KeyspaceOptions, Options};
use crate::read::{AllReads, ReadCounters};
use crate::read::{MemtableSlot, Memtables, View};
use crate::select::TreeFilter;
use crate::table::ReaderConfig;
use crate::table::cache::BlockCache;
use crate::tree::edit::VersionEdit;
use crate::tree::manifest::{Manifest, set_current};
use crate::tree::open_table::{Garbage, OpenTable};
use crate::tree::state::ManifestState;
use crate::tree::version::Version;
use crate::wal::LogWriter;

/// One keyspace of an open database.
#[derive(Debug)]
pub(crate) struct KeyspaceInner {
    pub(crate) id: KeyspaceId,
    pub(crate) name: String,
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
    pub(crate) dropped: AtomicBool,
    /// How writers must behave; see [`DbInner::update_pressure`].
    pub(crate) pressure: KnownPressure,
    pub(crate) age: Age,
    /// The cost of reads of this keyspace.
    pub(crate) reads: Arc<ReadCounters>,
}

impl KeyspaceInner {
    /// A keyspace without tables.
    pub(crate) fn empty(
        id: KeyspaceId,
        name: &str,
        options: KeyspaceOptions,
        operators: KeyspaceOperators,
        sampler: &Arc<Sampler>,
        reads: Arc<ReadCounters>,
    ) -> KeyspaceInner {
        let state = crate::tree::state::KeyspaceState::default();
        let none = |_| unreachable!("a new keyspace has no tables");
        let filter = TreeFilter::new(&options, sampler);
        let version = Version::build(&state, none);
        KeyspaceInner::with_version(id, name, options, operators, filter, version, reads)
    }

    pub(crate) fn with_version(
        id: KeyspaceId,
        name: &str,
        options: KeyspaceOptions,
        operators: KeyspaceOperators,
        filter: TreeFilter,
        version: Arc<Version>,
        reads: Arc<ReadCounters>,
    ) -> KeyspaceInner {
        let memtables = Memtables::new(MemtableSlot::new(new_memtable(&options), 0));
        let selector = filter.selector(&version);
        KeyspaceInner {
            id,
            name: name.to_owned(),
            age: Age::new(&options, None, 0),
            shaping: ArcSwap::from_pointee(Shaping::new(options.clone())),
            declared: options.workload,
            options,
            operators,
            filter,
            view: ArcSwap::from_pointee(View { memtables, version, selector }),
            dropped: AtomicBool::new(false),
            pressure: KnownPressure::default(),
            reads,
        }
    }

    /// Returns the view of a new version. Under the `state` lock.
    pub(crate) fn view_of(&self, memtables: Memtables, version: Arc<Version>) -> View {
        View { memtables, selector: self.filter.selector(&version), version }
    }

    /// Returns how merges treat the versions of the keyspace's keys, given this horizon.
    pub(crate) fn rules(&self, expired: Option<SeqNo>) -> Rules<'_> {
        Rules { operator: self.operators.merge.as_deref(), filter: self.operators.filter.as_deref(), expired }
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// What background work is doing in one keyspace.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    pub(crate) flushing: bool,
    /// Whether a thread is working on the keyspace's global filter.
    pub(crate) filtering: bool,
    /// Whether the last work on the filter failed, or is under way: it must not be retried before the tree has changed.
    pub(crate) filter_failed: bool,
    /// Inputs of running compactions.
    pub(crate) busy: HashSet<TableId>,
    pub(crate) running: Vec<ActiveJob>,
    /// Tables emptied by range deletes and dropped unread, whose files may still exist. Since nothing was made from them, no
    /// origin records them; the next merge checks which are gone.
    pub(crate) dropped: Vec<TableId>,
    /// Whether a caller is compacting by hand, so that no new automatic jobs start.
    pub(crate) manual: bool,
    /// The backoff after a failed compaction.
    pub(crate) aside: Option<Aside>,
    /// The backoff after a failed flush.
    pub(crate) flush_aside: Option<Aside>,
    /// Why a compaction that is due lacks room, in words.
    pub(crate) no_room: Option<String>,
    /// Whether the lack of room was already warned of.
    pub(crate) warned_of_room: bool,
    /// The cost to its reads of runs beyond the first.
    pub(crate) reads: Account,
    /// Its workload as far as known, and the options change under consideration.
    pub(crate) tuning: Tuning,
    /// Options that take effect when the running compaction round ends.
    pub(crate) next_shaping: Option<Arc<Shaping>>,
}

impl Jobs {
    /// Creates the jobs of a keyspace that is being opened, whose workload was seen before.
    pub(crate) fn having_seen(workload: Workload) -> Jobs {
        Jobs { tuning: Tuning::having_seen(workload), ..Jobs::default() }
    }

    /// Marks the start of work on the keyspace's global filter. Until the work succeeds it counts as failed: a change of the
    /// tree in the meantime clears that mark, and so is not forgotten if the work does fail.
    pub(crate) fn start_filtering(&mut self) {
        (self.filtering, self.filter_failed) = (true, true);
    }
}

/// A log file that takes no more writes.
#[derive(Debug)]
pub(crate) struct ClosedLog {
    pub(crate) id: LogId,
    pub(crate) bytes: u64,
    /// The size of the file on disk, in bytes.
    pub(crate) allocated: u64,
    /// Whether the file has another name (in a checkpoint), so that it must not be overwritten.
    pub(crate) linked: bool,
}

/// The state after a failed edit: it is unknown whether the edit is on disk, and perhaps even which manifest is in force.
/// Nothing that either may name is removed before a new manifest is in force.
#[derive(Debug)]
pub(crate) struct Unsettled {
    pub(crate) cause: String,
    /// Tables that only a failed edit names.
    tables: Vec<Arc<OpenTable>>,
    /// Manifests that may be in force, apart from the one that was in use before.
    manifests: Vec<PathBuf>,
}

/// Everything behind the `state` lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) manifest: Option<Manifest>,
    /// Set if the last edit failed.
    pub(crate) unsettled: Option<Unsettled>,
    pub(crate) manifest_number: u64,
    pub(crate) tree: ManifestState,
    pub(crate) keyspaces: BTreeMap<KeyspaceId, Arc<KeyspaceInner>>,
    pub(crate) jobs: HashMap<KeyspaceId, Jobs>,
    pub(crate) next_job: u64,
    /// Rolled logs that are still needed, oldest first.
    pub(crate) logs: Vec<ClosedLog>,
    pub(crate) current_log: LogId,
    /// Obsolete logs kept to be overwritten.
    pub(crate) recyclable: Vec<ClosedLog>,
    pub(crate) closing: bool,
    /// Where the search for the next compaction starts, so that no keyspace starves.
    pub(crate) round_robin: usize,
    /// How long nothing has been written.
    pub(crate) quiet: Quiet,
}

/// An open database.
#[derive(Debug)]
pub(crate) struct DbInner {
    pub(crate) dir: PathBuf,
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) options: Options,
    pub(crate) read_only: bool,
    /// Distinguishes this open database from all others in the process.
    pub(crate) instance: u64,
    pub(crate) cache: Option<Arc<BlockCache>>,
    pub(crate) reader_config: ReaderConfig,
    pub(crate) garbage: Arc<Garbage>,

    pub(crate) queue: CommitQueue,
    pub(crate) log: Mutex<LogState>,
    pub(crate) state: Mutex<State>,
    /// Signalled after every change of `state` that a thread may wait for.
    pub(crate) changed: Condvar,
    pub(crate) closed_logs: Mutex<Vec<(LogId, LogWriter)>>,
    pub(crate) snapshots: Mutex<BTreeMap<SeqNo, Vec<Arc<Held>>>>,
    /// The report if this opening was a salvage.
    pub(crate) salvaged: Mutex<Option<SalvageReport>>,
    pub(crate) expiry: Expiry,

    /// The newest sequence number visible to readers.
    pub(crate) visible_seq: AtomicU64,
    pub(crate) next_file: AtomicU64,
    /// The length of the current log, for threads that must not wait for the log's owner (which may be stalled).
    pub(crate) log_bytes: AtomicU64,
    pub(crate) log_space: LogSpace,
    pub(crate) beginning: Beginning,
    /// The keyspaces by id, for the write path (which does not take `state`).
    pub(crate) directory: ArcSwap<HashMap<KeyspaceId, Arc<KeyspaceInner>>>,
    pub(crate) health: Health,
    pub(crate) closed: AtomicBool,
    pub(crate) warnings: Mutex<Vec<String>>,
    /// The changes made by the cost model.
    pub(crate) decisions: Mutex<Decisions>,
    /// The measured costs of operations here, if they were needed.
    pub(crate) measured: Measured,
    pub(crate) read_counters: Arc<AllReads>,
    pub(crate) write_counters: WriteCounters,
    pub(crate) background: Background,
    pub(crate) scrub: Scrub,
    pub(crate) elastic: Arc<Elastic>,
    /// The directory lock; taken out by `close`.
    pub(crate) lock: Mutex<Option<Box<dyn DirLock>>>,
}

impl DbInner {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        let state = self.state.lock();
        if self.state.was_poisoned() {
            self.stop_writes("a panic while the database's state was being changed");
        }
        state
    }

    /// Waits for a change of the state, for at most a second.
    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, Duration::from_secs(1))
    }

    /// Waits for a change of the state, or until failed work may be retried.
    pub(crate) fn wait_for_retry<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let fails =
            self.health.check().is_err() || state.jobs.values().any(|jobs| jobs.flush_aside.is_some());
        if fails {
            return self.changed.wait_timeout(state, RETRY.0);
        }
        self.wait(state)
    }

    /// Waits for a change of the state, but no longer than a flag that is set without a signal may go unnoticed.
    pub(crate) fn wait_briefly<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, Duration::from_millis(20))
    }

    /// Returns the newest sequence number visible to readers. Load the view before this.
    #[inline]
    pub(crate) fn visible(&self) -> SeqNo {
        sync::point();
        self.visible_seq.load(Ordering::Acquire)
    }

    pub(crate) fn warn(&self, message: String) {
        log::warn!("{}: {message}", self.dir.display());
        self.warnings.lock().push(message);
    }

    /// Records why writes stop, unless they have stopped already. For callers that hold the `state` lock.
    #[cold]
    fn stop_writes(&self, cause: impl std::fmt::Display) {
        if self.health.stop(cause.to_string()) {
            log::error!("{}: writes stop: {cause}", self.dir.display());
        }
    }

    /// Stops all writes for good, after a panic.
    pub(crate) fn poison(&self, cause: &dyn std::fmt::Display) {
        self.stop_writes(cause);
        let _state = self.state();
        self.changed.notify_all();
    }

    pub(crate) fn check_writable(&self) -> Result<(), WriteError> {
        if self.read_only {
            return Err(WriteError::ReadOnly);
        }
        if self.closed.load(Ordering::Relaxed) || self.background.leaving.load(Ordering::Relaxed) {
            return Err(WriteError::Closed);
        }
        self.health.check()
    }

    /// Returns the live snapshots, ascending. A snapshot taken later is at or above everything that is in a table or sealed
    /// memtable now, so a merge of these may rely on this list.
    pub(crate) fn live_snapshots(&self) -> Vec<SeqNo> {
        self.snapshots.lock().keys().copied().collect()
    }

    /// Makes an edit durable and publishes its changes in the trees of `keyspaces`. `opened` are the tables that the edit adds.
    /// On an error nothing is published and the tree in memory is unchanged. The edit may or may not be on disk, so its tables
    /// stay until the next edit has begun a new manifest. Attempts nothing if the database is closed or writes stopped for good.
    pub(crate) fn commit_edit(
        &self,
        state: &mut State,
        mut edit: VersionEdit,
        opened: Vec<Arc<OpenTable>>,
        change: impl FnMut(KeyspaceId, &Memtables) -> Memtables,
    ) -> Result<(), StorageError> {
        // The caller began before the database was closed.
        if state.manifest.is_none() {
            let closed = std::io::Error::other("the database is closed");
            return Err(StorageError::io("append to the manifest in", &self.dir, closed));
        }
        // After a panic the tree in memory may be in any state.
        if let Some(cause) = self.health.stopped() {
            let stopped =
                std::io::Error::other(format!("nothing is changed after an earlier failure: {cause}"));
            added(&edit, opened).iter().for_each(|table| table.mark_obsolete());
            return Err(StorageError::io("append to the manifest in", &self.dir, stopped));
        }
        // The effect of a failed edit on disk is unknown, so no edit may build on it.
        let mut settled = self.settle_manifest(state);
        // A copy, which shares the tables: on any failure, the tree remains that of the versions in use.
        let mut tree = state.tree.clone();
        self.complete_edit(state, &mut edit);
        if settled.is_ok() {
            settled = tree.apply(&edit).map_err(|what| StorageError::corrupt(&self.dir, None, what));
        }
        if let Err(error) = settled {
            // The edit was not written, so nothing names its tables.
            added(&edit, opened).iter().for_each(|table| table.mark_obsolete());
            return Err(error);
        }
        let manifest = state.manifest.as_mut().expect("a writable database has a manifest");
        if let Err(error) = manifest.append(&edit) {
            self.unsettle(state, &error).tables.extend(added(&edit, opened));
            self.changed.notify_all();
            return Err(error);
        }
        let rolls = manifest.should_roll();
        state.tree = tree;
        if rolls && let Err(error) = self.roll_manifest(state) {
            // The edit is durable regardless of which manifest is in force.
            log::warn!("{}: the manifest was not rolled: {error}", self.dir.display());
        }
        self.publish_edit(state, &edit, &opened, change);
        Ok(())
    }

    /// Adds to an edit what every edit records.
    pub(crate) fn complete_edit(&self, state: &State, edit: &mut VersionEdit) {
        self.save_ages(state, edit);
        edit.heat = self.elastic.heat_to_save();
        edit.next_file = Some(self.next_file.load(Ordering::Relaxed));
        // An ingestion's number is in the edit before it becomes visible.
        edit.last_seq = edit.last_seq.max(Some(self.visible()));
    }

    /// Publishes the changes of a durable edit in the trees of keyspaces; `state.tree` already has them.
    pub(crate) fn publish_edit(
        &self,
        state: &mut State,
        edit: &VersionEdit,
        opened: &[Arc<OpenTable>],
        mut change: impl FnMut(KeyspaceId, &Memtables) -> Memtables,
    ) {
        let mut touched: Vec<KeyspaceId> =
            edit.added.iter().map(|a| a.0).chain(edit.removed.iter().map(|r| r.0)).collect();
        touched.sort_unstable();
        touched.dedup();
        for id in touched {
            let Some(keyspace) = state.keyspaces.get(&id) else { continue };
            let old = keyspace.view.load_full();
            let version = self.build_version(&state.tree, keyspace, &old.version, opened);
            let kept: HashSet<TableId> = version.tables.iter().map(|t| t.meta.id).collect();
            for table in old.version.tables.iter().filter(|t| !kept.contains(&t.meta.id)) {
                table.mark_obsolete();
            }
            let keyspace = keyspace.clone();
            let new = Arc::new(keyspace.view_of(change(id, &old.memtables), version));
            keyspace.view.store(new.clone());
            self.elastic.change(&old, &new);
            state.jobs.entry(id).or_default().filter_failed = false;
            self.warn_of_filter(&keyspace);
            self.update_pressure(state, &keyspace);
        }
        self.changed.notify_all();
    }

    /// Returns the version that the durable tree describes, built from tables that are already open.
    pub(crate) fn build_version(
        &self,
        tree: &ManifestState,
        keyspace: &KeyspaceInner,
        old: &Version,
        opened: &[Arc<OpenTable>],
    ) -> Arc<Version> {
        let known: HashMap<TableId, &Arc<OpenTable>> =
            old.tables.iter().chain(opened).map(|t| (t.meta.id, t)).collect();
        Version::build(&tree.keyspaces[&keyspace.id], |id| {
            (*known.get(&id).expect("every table of a durable version is open")).clone()
        })
    }

    /// Records that the state on disk is unknown.
    fn unsettle<'s>(&self, state: &'s mut State, error: &StorageError) -> &'s mut Unsettled {
        log::error!("{}: the manifest has to be rewritten: {error}", self.dir.display());
        let none = || Unsettled { cause: String::new(), tables: Vec::new(), manifests: Vec::new() };
        let unsettled = state.unsettled.get_or_insert_with(none);
        unsettled.cause = error.to_string();
        unsettled
    }

    /// After a failed edit: writes the tree in memory to a new manifest and puts it in force, so that the state on disk is
    /// known again.
    pub(crate) fn settle_manifest(&self, state: &mut State) -> Result<(), StorageError> {
        if state.unsettled.is_none() {
            return Ok(());
        }
        self.roll_manifest(state)?;
        if let Some(unsettled) = state.unsettled.take() {
            unsettled.tables.iter().for_each(|table| table.mark_obsolete());
            unsettled.manifests.into_iter().for_each(|path| self.garbage.push(path));
            log::info!("{}: a new manifest is in force", self.dir.display());
        }
        Ok(())
    }

    /// Writes the tree to a new manifest and switches to it. After an error either manifest may be in force.
    pub(crate) fn roll_manifest(&self, state: &mut State) -> Result<(), StorageError> {
        let number = self.next_file.fetch_add(1, Ordering::Relaxed);
        let path = |number| crate::tree::files::manifest_path(&self.dir, number);
        state.tree.next_file = number + 1;
        let manifest = match Manifest::create(&*self.fs, &self.dir, number, &state.tree) {
            Ok(manifest) => manifest,
            Err(error) => {
                // Nothing names it, and it may be what filled the disk.
                self.garbage.push(path(number));
                return Err(error);
            }
        };
        if let Err(error) = set_current(&*self.fs, &self.dir, number) {
            self.unsettle(state, &error).manifests.push(path(number));
            return Err(error);
        }
        if state.manifest.replace(manifest).is_some() {
            self.garbage.push(path(state.manifest_number));
        }
        state.manifest_number = number;
        Ok(())
    }

    /// Returns the shape of a keyspace's tree as the policy sees it.
    pub(crate) fn shape(&self, state: &State, keyspace: &KeyspaceInner) -> Shape {
        let view = keyspace.view.load();
        let none = Jobs::default();
        let jobs = state.jobs.get(&keyspace.id).unwrap_or(&none);
        // Before the list of snapshots: a snapshot taken later sees nothing of what has expired by now.
        let expired = self.expired(keyspace);
        let mut levels = vec![LevelShape::default(); keyspace.options.levels];
        for run in &view.version.runs {
            let tables = view.version.tables[run.tables.clone()].iter();
            let tables = tables
                .map(|t| {
                    let taken = jobs.busy.contains(&t.meta.id);
                    TableShape {
                        meta: t.meta.clone(),
                        busy: taken || t.table.flaw().is_known(),
                        free: !taken,
                    }
                })
                .collect();
            levels[run.level].runs.push(RunShape { id: run.id, tables });
        }
        Shape {
            levels,
            running: jobs.running.iter().map(|job| job.shape.clone()).collect(),
            room: self.room(state),
            now: self.now(),
            expired,
            snapshots: self.live_snapshots(),
        }
    }

    /// Returns the current time in seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        self.options.clock.as_ref().map_or_else(|| SystemClock.now(), |clock| clock.now())
    }

    /// Syncs the rolled logs, oldest first. Afterwards, every write before the first write of the current log survives a
    /// power failure. If a sync fails, writes are suspended.
    pub(crate) fn sync_closed_logs(&self) -> Result<(), StorageError> {
        let mut closed = self.closed_logs.lock();
        while let Some((_, writer)) = closed.first_mut() {
            writer.sync().inspect_err(|error| self.suspend(error))?;
            self.write_counters.log_syncs.add(1);
            closed.remove(0);
        }
        Ok(())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Returns the tables of an edit that are new: those that it moves are already in use.
fn added(edit: &VersionEdit, opened: Vec<Arc<OpenTable>>) -> Vec<Arc<OpenTable>> {
    let moved = |id: TableId| edit.removed.iter().any(|removed| removed.1 == id);
    opened.into_iter().filter(|table| !moved(table.meta.id)).collect()
}

#[cfg(test)]
mod tests;
