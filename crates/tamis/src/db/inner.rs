//! The shared heart of an open database, and who guards what.
//!
//! # Locks
//!
//! Taken in this order; none is held while a read is served. Before all of them comes that of a session which has not begun
//! ([`begin`](super::begin)).
//!
//! 1. A keyspace's filter work ([`Grf::work`](crate::select::Grf::work)): whoever puts keys into its global filter.
//! 2. `log`: the write-ahead log and the next sequence number. Whoever holds it is the one writer: it alone
//!    appends to the log, inserts into memtables and advances `visible_seq`. Group commit leaders, sealing,
//!    checkpoints and periodic syncs take it.
//! 3. `state`: the durable tree, jobs and keyspaces. Every change of a keyspace's view is made under it.
//! 4. `closed_logs`: logs that were rolled and are not synced yet.
//! 5. `snapshots`: live snapshots.
//! 6. `expiry.times`: by when writes were made.
//! 7. What elastic filters have in memory ([`Elastic`]).
//!
//! The mutexes within [`Background`] (free space, the budget of background writes) may be taken with any of these held,
//! and no lock is taken within them.
//!
//! # Publishing
//!
//! A writer inserts into memtables and then stores `visible_seq` (Release). A reader loads the view, then
//! `visible_seq` (Acquire): it sees every entry at or below that number that the view can hold, and the view
//! is complete up to it or is missing only writes that came after the view was replaced, which form a suffix.
//! Between the two it loads the keyspace's horizon, below which entries have expired ([`expiry`](super::expiry)).

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
    /// As the keyspace was opened; what may change since then is in `shaping`.
    pub(crate) options: KeyspaceOptions,
    /// The workload that whoever opened or made it declared.
    pub(crate) declared: Option<Workload>,
    /// What `options` name.
    pub(crate) operators: KeyspaceOperators,
    /// Where versions get their selectors from.
    pub(crate) filter: TreeFilter,
    /// Replaced under `state`, read without a lock.
    pub(crate) shaping: ArcSwap<Shaping>,
    /// Replaced under `state`, read without a lock.
    pub(crate) view: ArcSwap<View>,
    pub(crate) dropped: AtomicBool,
    /// How writers must behave; see [`DbInner::update_pressure`].
    pub(crate) pressure: KnownPressure,
    pub(crate) age: Age,
    /// What reads of it cost.
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

    /// The view of a new version. Under the `state` lock.
    pub(crate) fn view_of(&self, memtables: Memtables, version: Arc<Version>) -> View {
        View { memtables, selector: self.filter.selector(&version), version }
    }

    /// What merges do to the versions of the keyspace's keys, with this horizon.
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
    /// A thread works on the keyspace's global filter.
    pub(crate) filtering: bool,
    /// Its last work on it failed, or is under way: not to be tried again before the tree has changed.
    pub(crate) filter_failed: bool,
    /// Inputs of running compactions.
    pub(crate) busy: HashSet<TableId>,
    pub(crate) running: Vec<ActiveJob>,
    /// Tables that range deletes had emptied, dropped unread, whose files may be there yet. Nothing was made from them that could
    /// say so; the next merge looks which are gone.
    pub(crate) dropped: Vec<TableId>,
    /// A caller compacts by hand: no new automatic jobs.
    pub(crate) manual: bool,
    /// The last compaction failed.
    pub(crate) aside: Option<Aside>,
    /// The last flush failed.
    pub(crate) flush_aside: Option<Aside>,
    /// A compaction is due and there is no room for it, in words.
    pub(crate) no_room: Option<String>,
    /// It was told that there is no room.
    pub(crate) warned_of_room: bool,
    /// What its reads have lost to runs beyond the first.
    pub(crate) reads: Account,
    /// What is known of its workload, and what was thought of changing.
    pub(crate) tuning: Tuning,
    /// Options that take effect when the running compaction round ends.
    pub(crate) next_shaping: Option<Arc<Shaping>>,
}

impl Jobs {
    /// Of a keyspace that is being opened, whose workload was seen before.
    pub(crate) fn having_seen(workload: Workload) -> Jobs {
        Jobs { tuning: Tuning::having_seen(workload), ..Jobs::default() }
    }

    /// A thread begins to work on the keyspace's global filter. Until that has succeeded it counts as failed, so that a
    /// change of the tree meanwhile, which makes it count as not failed, is not forgotten when it fails.
    pub(crate) fn start_filtering(&mut self) {
        (self.filtering, self.filter_failed) = (true, true);
    }
}

/// A log file that takes no more writes.
#[derive(Debug)]
pub(crate) struct ClosedLog {
    pub(crate) id: LogId,
    pub(crate) bytes: u64,
    /// Bytes that the file takes.
    pub(crate) allocated: u64,
    /// Another name points at the file (a checkpoint), so it must not be overwritten.
    pub(crate) linked: bool,
}

/// After an edit that failed: nobody knows whether it is on disk, nor perhaps which manifest is in force. Nothing that may be
/// named by any of them goes before a new one is.
#[derive(Debug)]
pub(crate) struct Unsettled {
    pub(crate) cause: String,
    /// Tables that only an edit that failed names.
    tables: Vec<Arc<OpenTable>>,
    /// Manifests that may be in force, but for the one that was in use before.
    manifests: Vec<PathBuf>,
}

/// Everything behind the `state` lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) manifest: Option<Manifest>,
    /// The last edit failed.
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
    /// Since when nothing was written.
    pub(crate) quiet: Quiet,
}

/// An open database.
#[derive(Debug)]
pub(crate) struct DbInner {
    pub(crate) dir: PathBuf,
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) options: Options,
    pub(crate) read_only: bool,
    /// Tells this open database from all others of the process.
    pub(crate) instance: u64,
    pub(crate) cache: Option<Arc<BlockCache>>,
    pub(crate) reader_config: ReaderConfig,
    pub(crate) garbage: Arc<Garbage>,

    pub(crate) queue: CommitQueue,
    pub(crate) log: Mutex<LogState>,
    pub(crate) state: Mutex<State>,
    /// Signalled after every change of `state` that somebody may wait for.
    pub(crate) changed: Condvar,
    pub(crate) closed_logs: Mutex<Vec<(LogId, LogWriter)>>,
    pub(crate) snapshots: Mutex<BTreeMap<SeqNo, Vec<Arc<Held>>>>,
    /// What the salvage found that this opening was.
    pub(crate) salvaged: Mutex<Option<SalvageReport>>,
    pub(crate) expiry: Expiry,

    /// The newest sequence number that readers see.
    pub(crate) visible_seq: AtomicU64,
    pub(crate) next_file: AtomicU64,
    /// The length of the current log, for who must not wait for the log's owner (which may be stalled).
    pub(crate) log_bytes: AtomicU64,
    pub(crate) log_space: LogSpace,
    pub(crate) beginning: Beginning,
    /// The keyspaces by id, for the write path (which does not take `state`).
    pub(crate) directory: ArcSwap<HashMap<KeyspaceId, Arc<KeyspaceInner>>>,
    pub(crate) health: Health,
    pub(crate) closed: AtomicBool,
    pub(crate) warnings: Mutex<Vec<String>>,
    /// What the cost model has changed.
    pub(crate) decisions: Mutex<Decisions>,
    /// What operations cost here, as far as it was needed.
    pub(crate) measured: Measured,
    pub(crate) read_counters: Arc<AllReads>,
    pub(crate) write_counters: WriteCounters,
    pub(crate) background: Background,
    pub(crate) scrub: Scrub,
    pub(crate) elastic: Arc<Elastic>,
    /// Held while the database is open; taken out by `close`.
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

    /// Waits for a change of the state, or for a second.
    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, Duration::from_secs(1))
    }

    /// Waits for a change of the state, or until something may be tried again that failed.
    pub(crate) fn wait_for_retry<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let fails =
            self.health.check().is_err() || state.jobs.values().any(|jobs| jobs.flush_aside.is_some());
        if fails {
            return self.changed.wait_timeout(state, RETRY.0);
        }
        self.wait(state)
    }

    /// Waits for a change of the state, but no longer than a flag that comes without a signal may stay unnoticed.
    pub(crate) fn wait_briefly<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, Duration::from_millis(20))
    }

    /// The newest sequence number that readers see. Load the view before this.
    #[inline]
    pub(crate) fn visible(&self) -> SeqNo {
        sync::point();
        self.visible_seq.load(Ordering::Acquire)
    }

    pub(crate) fn warn(&self, message: String) {
        log::warn!("{}: {message}", self.dir.display());
        self.warnings.lock().push(message);
    }

    /// Notes why writes stop, unless they have stopped already. For callers that hold the `state` lock.
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

    /// Live snapshots, ascending. A snapshot taken later is at or above everything that is in a table or in a
    /// sealed memtable now, so a merge of these may go by this list.
    pub(crate) fn live_snapshots(&self) -> Vec<SeqNo> {
        self.snapshots.lock().keys().copied().collect()
    }

    /// Makes an edit durable and publishes what it changes in the trees of `keyspaces`. `opened` are the
    /// tables that the edit adds. On an error nothing is published and the tree in memory is what it was. The edit may or may not be
    /// on disk, so its tables stay until the next edit has begun a new manifest. If the database is closed or writes stopped for
    /// good, nothing is tried.
    pub(crate) fn commit_edit(
        &self,
        state: &mut State,
        mut edit: VersionEdit,
        opened: Vec<Arc<OpenTable>>,
        change: impl FnMut(KeyspaceId, &Memtables) -> Memtables,
    ) -> Result<(), StorageError> {
        // A caller that began before the database was closed.
        if state.manifest.is_none() {
            let closed = std::io::Error::other("the database is closed");
            return Err(StorageError::io("append to the manifest in", &self.dir, &closed));
        }
        // After a panic the tree in memory may be anything.
        if let Some(cause) = self.health.stopped() {
            let stopped =
                std::io::Error::other(format!("nothing is changed after an earlier failure: {cause}"));
            added(&edit, opened).iter().for_each(|table| table.mark_obsolete());
            return Err(StorageError::io("append to the manifest in", &self.dir, &stopped));
        }
        // What an earlier edit did on disk is not known, so none may build on it.
        let mut settled = self.settle_manifest(state);
        // A copy, which shares the tables: whatever fails, the tree goes on to be that of the versions in use.
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
            // The edit is durable whichever manifest is in force.
            log::warn!("{}: the manifest was not rolled: {error}", self.dir.display());
        }
        self.publish_edit(state, &edit, &opened, change);
        Ok(())
    }

    /// Adds to an edit what every edit says.
    pub(crate) fn complete_edit(&self, state: &State, edit: &mut VersionEdit) {
        self.save_ages(state, edit);
        edit.heat = self.elastic.heat_to_save();
        edit.next_file = Some(self.next_file.load(Ordering::Relaxed));
        // An ingestion's number is in the edit before it is visible.
        edit.last_seq = edit.last_seq.max(Some(self.visible()));
    }

    /// Publishes what a durable edit changed in the trees of keyspaces; `state.tree` has it already.
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

    /// The version that the durable tree describes, from tables that are open already.
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

    /// Notes that it is not known any more what is on disk.
    fn unsettle<'s>(&self, state: &'s mut State, error: &StorageError) -> &'s mut Unsettled {
        log::error!("{}: the manifest is to be written anew: {error}", self.dir.display());
        let none = || Unsettled { cause: String::new(), tables: Vec::new(), manifests: Vec::new() };
        let unsettled = state.unsettled.get_or_insert_with(none);
        unsettled.cause = error.to_string();
        unsettled
    }

    /// After an edit that failed: writes the tree in memory to a new manifest and puts it in force, so that it is known again what
    /// is on disk.
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
                // Nothing names it, and it may be what fills the disk.
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

    /// The shape of a keyspace's tree as the policy sees it.
    pub(crate) fn shape(&self, state: &State, keyspace: &KeyspaceInner) -> Shape {
        let view = keyspace.view.load();
        let none = Jobs::default();
        let jobs = state.jobs.get(&keyspace.id).unwrap_or(&none);
        // Before the list of snapshots: one that is taken later sees nothing of what has expired by now.
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

    /// Seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        self.options.clock.as_ref().map_or_else(|| SystemClock.now(), |clock| clock.now())
    }

    /// Syncs the logs that were rolled, oldest first: after it, every write before the current log's first
    /// survives a power cut. If a sync fails, writes are suspended.
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

/// Of the tables that an edit brings along those that are new: one that is moved is in use.
fn added(edit: &VersionEdit, opened: Vec<Arc<OpenTable>>) -> Vec<Arc<OpenTable>> {
    let moved = |id: TableId| edit.removed.iter().any(|removed| removed.1 == id);
    opened.into_iter().filter(|table| !moved(table.meta.id)).collect()
}

#[cfg(test)]
mod tests;
