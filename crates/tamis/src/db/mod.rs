//! The database: the public handle, and the state shared by opening, writing and background work.

mod approximate;
mod atomic;
mod background;
mod begin;
mod beside;
mod catalogue;
pub(crate) mod changes;
mod checkpoint;
mod commit;
mod compact;
pub(crate) mod consumers;
mod counters;
mod covered;
mod deletions;
pub(crate) mod elastic;
pub(crate) mod expiry;
mod filled;
mod filters;
mod flush;
mod follow;
mod for_reads;
mod foreign;
mod gate;
mod health;
mod history;
pub(crate) mod images;
mod ingest;
mod inner;
pub mod inspect;
mod jobs;
mod keyspace;
mod keyspaces;
mod layout;
pub(crate) mod live_files;
mod log;
mod maintain;
mod memory_report;
pub(crate) mod metrics;
mod monitor;
mod open;
mod pace;
mod pressure;
mod publish;
mod readable;
mod readers;
pub(crate) mod replay;
mod reserve;
mod reshape;
mod room;
mod salvage;
mod scheduler;
mod scrub;
mod snapshot;
mod stats;
mod throttle;
pub(crate) mod transaction;
mod tune;
mod verify;

use crate::sync::Mutex;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

use crate::batch::WriteBatch;
use crate::error::{AdminError, Error, OpenError, ReadError, StorageError, WriteError};
use crate::options::{Durability, Options};
use crate::read::{Explanation, RangeExplanation};

pub use approximate::KeyRange;
pub use atomic::Mismatch;
use background::Workers;
pub use counters::WriteCost;
pub use elastic::{ElasticStats, SegmentStats};
pub use ingest::{IngestOptions, IngestReport, IngestedTable};
use inner::DbInner;
pub use jobs::{CancelToken, CompactOptions, CompactionPause, JobStats};
pub use keyspace::Keyspace;
pub use layout::TableStats;
pub use memory_report::MemoryReport;
pub use metrics::{MetricInfo, MetricKind};
pub use readable::Readable;
pub use readers::ReaderStats;
pub use salvage::{SalvageReport, SalvagedKeyspace, SalvagedLog, SalvagedTable, TableFate};
pub use scrub::{DamagedTable, ScrubStats};
pub use snapshot::{Snapshot, SnapshotView};
pub use stats::ConsumerStats;
pub use stats::{KeyspaceStats, LevelStats, OverlapStats, RunStats, SnapshotStats, Stats};
use tamis_base::ids::DEFAULT_KEYSPACE;
use tamis_files::tree::edit::VersionEdit;
pub use transaction::{
    Isolation, LockOptions, LockTransaction, PreparedTransaction, Savepoint, Transaction, TransactionOptions,
    TransactionView,
};
pub use tune::TuningDecision;
pub use verify::{VerifiedFile, VerifiedKind, VerifyReport};

/// The state shared by all handles of one open database; dropping the last handle closes the
/// database.
pub(crate) struct Handle {
    pub(crate) inner: Arc<DbInner>,
    workers: Mutex<Option<Workers>>,
}

debug_as!(Handle, "Handle", handle => "db": handle.inner);

impl Handle {
    /// Commits a batch of this database; without a durability of its own, with the database's.
    pub(crate) fn write(&self, batch: WriteBatch, durability: Option<Durability>) -> Result<(), WriteError> {
        batch.check_owner(self.inner.instance)?;
        let durability = durability.unwrap_or(self.inner.options.durability);
        self.inner.write(batch, durability == Durability::Synced)
    }

    /// Ends background work, syncs the log and releases the directory. Only the first call has an
    /// effect.
    ///
    /// The order lets the next opening tell a clean shutdown from a crash: the log is synced;
    /// background work ends; a last edit records how far the log goes, and the manifest is closed;
    /// the log is closed. So a closed manifest means that the log is complete, and a closed log
    /// that holds records and has no successor means that the manifest is closed.
    fn shut_down(&self) -> Result<(), AdminError> {
        self.inner.gate.check_process()?;
        let db = &self.inner;
        // A stalled writer holds the log lock; it gives up when it sees this.
        if !db.gate.leave() {
            return Ok(());
        }
        drop(db.state());
        db.monitor.notify();
        // Under the log lock, so that every write is either acknowledged before this point or
        // refused.
        let mut log = db.lock_log();
        db.gate.close();
        let mut last = None;
        let mut closed = Ok(());
        let healthy = db.gate.check();
        if !db.gate.is_read_only() && healthy.is_ok() {
            closed = db.log.end(&mut log).map(|writer| last = writer);
        }
        drop(log);
        {
            let _state = db.state();
            db.gate.end();
        }
        db.monitor.notify();
        let workers = self.workers.lock().take().map(Workers::join);
        // At the end, however this ends.
        let _events = EndEvents(workers);
        db.elastic.stop();
        db.throttle.leave_shared();
        // Caller-started compactions give up when they see that the database is closed.
        let mut state = db.state();
        while state.scheduler.has_manual() {
            state = db.monitor.wait(state);
        }
        drop(state);
        if closed.is_ok() && healthy.is_ok() {
            db.save_filters_at_close();
        }
        let mut state = db.state();
        let set_options = db.seen_workloads(&mut state);
        if closed.is_ok() && healthy.is_ok() && !db.gate.is_read_only() {
            closed = state.catalogue.settle();
        }
        let manifest = state.catalogue.end();
        let times = db.expiry.unsaved(&state.catalogue.tree().times);
        drop(state);
        db.log.remove_obsolete();
        db.garbage.remove_all(&*db.fs);
        let healthy = healthy.and_then(|()| db.gate.check());
        if let (Some(mut manifest), Ok(()), Ok(())) = (manifest, &closed, &healthy) {
            closed = db
                .check_named()
                .and_then(|()| {
                    manifest.append(&VersionEdit {
                        times,
                        hotness: db.elastic.hotness(),
                        last_seq: Some(db.visible()),
                        set_options,
                        ..VersionEdit::default()
                    })
                })
                .and_then(|()| manifest.close())
                .and_then(|()| last.map_or(Ok(()), |log| log.close().map(drop)));
        }
        db.lock.lock().take();
        closed?;
        Ok(healthy?)
    }
}

/// Ends the thread of the listeners.
struct EndEvents(Option<Workers>);

impl Drop for EndEvents {
    fn drop(&mut self) {
        if let Some(workers) = self.0.take() {
            workers.end_events();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.inner.gate.is_ours() {
            // What the child of a fork has of it stays as it is: files, locks and threads are the
            // parent's.
            std::mem::forget((self.inner.clone(), std::mem::take(&mut self.workers)));
            return;
        }
        if let Err(error) = self.shut_down() {
            ::log::error!("closing {}: {error}", self.inner.dir.display());
        }
    }
}

/// An open database: a handle that is cheap to clone and usable from any thread. Methods that name
/// no keyspace use the default one. Its reads are those of [`Readable`], which need no import here.
///
/// ```
/// use tamis::{Db, Options};
///
/// # let dir = tempfile::tempdir()?;
/// let db = Db::open(dir.path(), Options::default())?;
/// db.put("key", "value")?;
/// assert_eq!(db.get("key")?.unwrap(), "value");
/// for item in db.prefix("k") {
///     let (key, value) = item?;
///     println!("{key:?} = {value:?}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Db {
    default: Keyspace,
}

debug_as!(Db, "Db", db => "path": db.inner().dir, "keyspaces": db.inner().directory.load().len());

impl Db {
    /// Opens the database in `path`, creating it if the options allow.
    ///
    /// Replays the log. A torn tail that was never synced is cut off with a warning (see
    /// [`Stats::warnings`]). Costs one read of each table's metadata and one flush of the log's
    /// contents.
    ///
    /// # Errors
    ///
    /// [`OpenError::OpenHere`] if this process has the database open, [`OpenError::Locked`] if
    /// another one has; [`OpenError::Foreign`] if there is something else than a database, and
    /// [`OpenError::NotEmpty`] if one would have to be created among files of others: then nothing
    /// was touched; [`OpenError::Incompatible`] if an option contradicts the stored database,
    /// naming the option; damage, with its file and offset.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Db, OpenError> {
        let inner = open::open(path.as_ref(), options, open::Role::Writer)?;
        let db = Db::with(inner.clone(), None);
        db.load_consumers();
        let workers = Workers::start(&inner)
            .map_err(|e| OpenError::Storage(StorageError::io("start a thread for", path.as_ref(), e)))?;
        *db.handle().workers.lock() = Some(workers);
        Ok(db)
    }

    /// Opens the database in `path` without changing anything there and without taking its lock.
    /// The log is replayed into memory, and the handle keeps showing the state at that moment.
    /// Writes are refused.
    ///
    /// Alongside a writer, that is a state which a crash of the writer might have left during the
    /// call: everything acknowledged before, and possibly writes that are not acknowledged yet, or
    /// that failed while the writer's [suspension](WriteError::Suspended) lasts.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Db::open), except that no lock is asked for and nothing is created;
    /// [`OpenError::Changing`] if the writer replaced files during every attempt.
    pub fn open_read_only(path: impl AsRef<Path>, options: Options) -> Result<Db, OpenError> {
        let inner = beside::open(path.as_ref(), &options)?;
        let workers = Workers::start_reading(&inner)
            .map_err(|e| OpenError::Storage(StorageError::io("start a thread for", path.as_ref(), e)))?;
        Ok(Db::with(inner, Some(workers)))
    }

    /// Checks the database in `path` like [`verify`](Db::verify), without its lock and without
    /// changing anything. If damage keeps it from being opened, the report says so in
    /// [`VerifyReport::unopenable`](crate::maintenance::VerifyReport::unopenable), and everything
    /// that can be read is checked all the same. Costs an opening (two, if it fails) and a read of
    /// every file.
    ///
    /// # Errors
    ///
    /// Those of [`open_read_only`](Db::open_read_only), except that damage is no error: it is in
    /// the report.
    pub fn verify_at(path: impl AsRef<Path>, options: Options) -> Result<VerifyReport, Error> {
        verify::verify_at(path.as_ref(), options)
    }

    /// Opens the damaged database in `path` with everything that can still be read, restores it to
    /// a consistent state, and closes it. No file is removed or overwritten: files that are no
    /// longer part of the database are renamed to `….aside` (or `….damaged`), `CURRENT` and
    /// `OPTIONS` are copied there before they are replaced, and the report lists them all. A
    /// directory in which no file bears the mark of a database is [not
    /// touched](OpenError::Foreign).
    ///
    /// If the manifest is damaged or missing, the tree is rebuilt from the tables and logs found.
    /// An intact database is left as it is. With `dry_run` nothing is changed, and the report says
    /// what would be done.
    ///
    /// Opening with [`Options::salvage`] does the same.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Db::open), except that damage is no error: it is in the report.
    pub fn salvage(
        path: impl AsRef<Path>,
        options: Options,
        dry_run: bool,
    ) -> Result<SalvageReport, OpenError> {
        let path = path.as_ref();
        let mut report = salvage::look(path, &options)?;
        report.dry_run = dry_run;
        if dry_run || !report.is_needed() {
            return Ok(report);
        }
        let options = Options { salvage: true, create_if_missing: true, error_if_exists: false, ..options };
        // Without background work, which would merge tables before anyone could inspect them.
        let inner = open::open(path, options, open::Role::Writer)?;
        let done = inner.salvaged.lock().take();
        let db = Db::with(inner, None);
        db.close().map_err(|error| {
            OpenError::Storage(StorageError::io("close", path, std::io::Error::other(error)))
        })?;
        Ok(done.unwrap_or(report))
    }

    fn with(inner: Arc<DbInner>, workers: Option<Workers>) -> Db {
        Db::from_handle(Arc::new(Handle { inner, workers: Mutex::new(workers) }))
    }

    pub(crate) fn from_handle(handle: Arc<Handle>) -> Db {
        let inner = handle.inner.directory.load()[&DEFAULT_KEYSPACE].clone();
        Db { default: Keyspace { handle, inner } }
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.default.handle
    }

    fn inner(&self) -> &DbInner {
        &self.default.handle.inner
    }

    /// Sets the value of `key` (up to 64 KiB) to `value` (up to 4 GiB − 1), with the database's
    /// durability.
    ///
    /// # Errors
    ///
    /// [`WriteError::KeyTooLong`], [`WriteError::ValueTooLong`], and those of [`write`](Db::write).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), WriteError> {
        self.default.put(key, value)
    }

    /// Applies `operand` to the value of `key` with the merge operator of the default keyspace (its
    /// option `merge_operator`), without reading the value: it costs as much as a put. Reads apply
    /// the pending operands.
    ///
    /// # Errors
    ///
    /// [`WriteError::NoMergeOperator`], and those of [`put`](Db::put).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let mut options = tamis::Options::default();
    /// options.keyspace.merge_operator = Some("add".into());
    /// let db = tamis::Db::open(dir.path(), options)?;
    /// db.merge("visits", 1u64.to_le_bytes())?;
    /// db.merge("visits", 41u64.to_le_bytes())?;
    /// assert_eq!(db.get("visits")?.unwrap(), 42u64.to_le_bytes());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<(), WriteError> {
        self.default.merge(key, operand)
    }

    /// Deletes `key`. Deleting a key that does not exist is not an error.
    ///
    /// # Errors
    ///
    /// [`WriteError::KeyTooLong`], and those of [`write`](Db::write).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<(), WriteError> {
        self.default.delete(key)
    }

    /// Deletes all keys in a range, at the cost of one write regardless of how many there are.
    ///
    /// # Errors
    ///
    /// [`WriteError::ReversedRange`] if the range ends before it starts,
    /// [`WriteError::KeyTooLong`], and those of [`write`](Db::write).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path(), tamis::Options::default())?;
    /// # for key in ["a", "b", "c"] { db.put(key, "value")?; }
    /// db.delete_range("a".."c")?;
    /// assert!(!db.contains("b")? && db.contains("c")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<(), WriteError> {
        self.default.delete_range(range)
    }

    /// Deletes all keys of the default keyspace that start with `prefix`: see
    /// [`Keyspace::delete_prefix`].
    ///
    /// # Errors
    ///
    /// Those of [`delete_range`](Db::delete_range).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path(), tamis::Options::default())?;
    /// # for key in ["a/1", "a/2", "b/1"] { db.put(key, "value")?; }
    /// db.delete_prefix("a/")?;
    /// assert_eq!(db.first()?.unwrap().0, "b/1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<(), WriteError> {
        self.default.delete_prefix(prefix)
    }

    /// Commits a batch atomically, across keyspaces, with the database's durability.
    ///
    /// # Errors
    ///
    /// What the batch itself refused first: a key or value that is too long, a reversed range.
    /// [`WriteError::ForeignKeyspace`] or [`WriteError::Dropped`] for its keyspaces,
    /// [`WriteError::NoMergeOperator`]. [`WriteError::ReadOnly`] or [`WriteError::Closed`] for the
    /// handle. [`WriteError::Suspended`] while a failed write to the disk is retried,
    /// [`WriteError::Poisoned`] after a panic in the engine, [`WriteError::Storage`] for a failed
    /// system call. Nothing of a refused batch is visible to reads.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path(), tamis::Options::default())?;
    /// let mut batch = tamis::WriteBatch::new();
    /// batch.put("a", "1").delete("b");
    /// db.write(batch)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write(&self, batch: WriteBatch) -> Result<(), WriteError> {
        self.handle().write(batch, None)
    }

    /// Commits a batch with its own durability. [`Durability::Synced`] returns once the batch and
    /// everything before it would survive a power failure; the others return once the operating
    /// system has the data.
    ///
    /// # Errors
    ///
    /// Those of [`write`](Db::write).
    pub fn write_with(&self, batch: WriteBatch, durability: Durability) -> Result<(), WriteError> {
        self.handle().write(batch, Some(durability))
    }

    /// Makes every write acknowledged so far durable across a power failure.
    ///
    /// # Errors
    ///
    /// [`WriteError::ReadOnly`], [`WriteError::Closed`], [`WriteError::Suspended`],
    /// [`WriteError::Poisoned`] or [`WriteError::Storage`], as for a [`write`](Db::write).
    pub fn sync(&self) -> Result<(), WriteError> {
        self.inner().write(WriteBatch::new(), true)
    }

    /// Returns a snapshot of all keyspaces as of now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self)
    }

    /// Writes all memtables to tables and waits until that is done.
    ///
    /// # Errors
    ///
    /// [`AdminError::Write`] if the handle is read-only or closed, or writes are stopped or
    /// suspended; a failed system call.
    pub fn flush(&self) -> Result<(), AdminError> {
        let inner = self.inner();
        inner.gate.check_process()?;
        let mut all = inner.filled.list();
        all.extend(inner.state().scheduler.sealed());
        inner.flush(&all)
    }

    /// Merges everything in the default keyspace into the last level that holds data, and waits
    /// until that is done.
    ///
    /// # Errors
    ///
    /// Those of [`Keyspace::compact_range`].
    pub fn compact(&self) -> Result<(), AdminError> {
        self.default.compact()
    }

    /// Pauses compactions until the guard is dropped: none starts, and running ones wait where they
    /// are. Several guards may be alive at once. Flushes, reads and writes continue until level 0
    /// is full enough for writes to wait for compactions; from then on they wait for the end of the
    /// pause. Compactions requested by the caller wait too. Closing the database ends all
    /// compactions without waiting for the pause.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path(), tamis::Options::default())?;
    /// let pause = db.pause_compaction();
    /// db.put("key", "value")?;
    /// db.flush()?;
    /// drop(pause);
    /// db.compact()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause_compaction(&self) -> CompactionPause {
        CompactionPause::new(&self.handle().inner)
    }

    /// Cancels all running compactions, removes their partial output, and waits until they have
    /// ended. Compactions requested by a caller return [`AdminError::Cancelled`]; automatic ones
    /// may start again at once, unless they are [paused](Db::pause_compaction).
    pub fn cancel_compactions(&self) {
        self.inner().cancel_compactions();
    }

    /// Waits until the global filters of all keyspaces are complete: after opening, when reads do
    /// without them, and after any change that makes parts of them due for a rebuild. Returns at
    /// once if there are none. Does not wait for a filter that could not be completed (this shows
    /// as a [warning](Stats::warnings), or for failed reads as a line in the log).
    ///
    /// # Errors
    ///
    /// [`AdminError::Write`] if the database is closed or writes stop meanwhile.
    pub fn settle_filters(&self) -> Result<(), AdminError> {
        self.inner().settle_filters()
    }

    /// Changes [`filter_budget_bytes`](Options::filter_budget_bytes) while the database is in use,
    /// until it is closed. Units beyond a smaller budget are evicted before this returns, those
    /// whose bytes save least first; a larger budget fills with the gets to come.
    ///
    /// # Errors
    ///
    /// [`AdminError::Options`] if the database was opened with `read_memory_bytes`, see
    /// [`Db::set_read_memory`], or with `shared_read_memory`, see
    /// [`SharedReadMemory::set_bytes`](crate::options::SharedReadMemory::set_bytes).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let db = tamis::Db::open(dir.path(), tamis::Options::default())?;
    /// db.set_filter_budget(8 << 20)?;
    /// assert!(db.set_read_memory(8 << 20).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_filter_budget(&self, bytes: u64) -> Result<(), AdminError> {
        self.check_process()?;
        Ok(self.inner().elastic.set_filter_budget(bytes)?)
    }

    /// Changes [`read_memory_bytes`](Options::read_memory_bytes) while the database is in use,
    /// until it is closed. Block cache and elastic filters keep their shares of it, and what
    /// exceeds a smaller budget is evicted before this returns.
    ///
    /// # Errors
    ///
    /// [`AdminError::Options`] if the database was opened without `read_memory_bytes` or with
    /// `shared_read_memory`, or for less than an eighth of what it was opened with.
    pub fn set_read_memory(&self, bytes: u64) -> Result<(), AdminError> {
        self.check_process()?;
        Ok(self.inner().elastic.set_read_memory(bytes)?)
    }

    /// Waits until the database is idle: no flush or compaction is running or due. Compactions that
    /// are paused or lack disk space do not count.
    ///
    /// # Errors
    ///
    /// [`AdminError::Write`] if the handle is read-only or closed, or writes are stopped or
    /// suspended.
    pub fn settle(&self) -> Result<(), AdminError> {
        self.inner().settle()
    }

    /// Copies the database as of now to the new directory `path`, where it can be opened like any
    /// other. Files are hard-linked if the file system supports it (which takes neither time nor
    /// space), and copied otherwise. Writes wait while the files are linked.
    ///
    /// # Errors
    ///
    /// [`AdminError::TargetExists`] if there is something at `path`; those of [`flush`](Db::flush).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path().join("db"), tamis::Options::default())?;
    /// db.put("key", "value")?;
    /// db.checkpoint(dir.path().join("copy"))?;
    /// let copy = tamis::Db::open(dir.path().join("copy"), tamis::Options::default())?;
    /// assert_eq!(copy.get("key")?.unwrap(), "value");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<(), AdminError> {
        self.inner().checkpoint(path.as_ref())
    }

    /// Ingests [external tables](crate::ingest::ExternalTableBuilder) atomically into any number of
    /// keyspaces. Their contents are newer than every write acknowledged before and older than
    /// every later one; a snapshot taken before does not see them. Files for the same keyspace must
    /// not overlap each other.
    ///
    /// Nothing is rewritten. Each file becomes a table of the deepest level such that nothing in it
    /// or above overlaps the file (otherwise, and always with `deterministic` options, of level 0).
    /// Costs reading each file once (see [`IngestOptions::verify`]), copying it (see
    /// [`IngestOptions::move_files`]), a flush of the memtables that overlap, and a sync of the log
    /// and of the manifest, during which writers wait.
    ///
    /// # Errors
    ///
    /// A file that is damaged, incomplete, empty, not an external table, or overlaps another; a
    /// keyspace that was dropped or belongs to another database; a failed system call. In these
    /// cases nothing has changed and the files are where they were. If writing the manifest fails,
    /// writes are suspended until a new manifest, without the tables, is in force; if the process
    /// ends before that, the next opening shows whether the tables were ingested.
    ///
    /// ```
    /// # use tamis::ingest::{ExternalTableBuilder, IngestOptions};
    /// # use tamis::{Db, KeyspaceOptions, Options};
    /// # let dir = tempfile::tempdir()?;
    /// # let db = Db::open(dir.path().join("db"), Options::default())?;
    /// let names = db.create_keyspace("names", KeyspaceOptions::default())?;
    /// let build = |name: &str, key: &str, value: &str| {
    ///     let path = dir.path().join(name);
    ///     let mut table = ExternalTableBuilder::create(&path, &KeyspaceOptions::default())?;
    ///     table.put(key, value)?;
    ///     table.finish().map(|info| info.path)
    /// };
    /// let (ids, by_name) = (build("ids.tam", "1", "ada")?, build("names.tam", "ada", "1")?);
    /// let report = db.ingest(
    ///     &[(db.default_keyspace(), &[ids]), (&names, &[by_name])],
    ///     IngestOptions { move_files: true, ..IngestOptions::default() },
    /// )?;
    /// assert_eq!(report.entries, 2);
    /// assert_eq!(names.get("ada")?.unwrap(), "1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ingest<P: AsRef<Path>, F: AsRef<[P]>>(
        &self,
        files: &[(&Keyspace, F)],
        options: IngestOptions,
    ) -> Result<IngestReport, AdminError> {
        let groups = files.iter().map(|(keyspace, paths)| {
            if keyspace.handle.inner.instance != self.inner().instance {
                return Err(WriteError::ForeignKeyspace { name: keyspace.inner.name().to_owned() });
            }
            let paths = paths.as_ref().iter().map(|path| path.as_ref().to_owned()).collect();
            Ok((keyspace.inner.clone(), paths))
        });
        self.inner().ingest(groups.collect::<Result<_, _>>()?, options)
    }

    /// Returns the counters and the shape of the database as of now. Costs a walk over the list of
    /// tables.
    pub fn stats(&self) -> Stats {
        Stats::of(self.inner())
    }

    /// Returns the metrics that the process that has the database in `path` open for writing
    /// published last, in the form of [`Stats::to_prometheus`](crate::stats::Stats::to_prometheus),
    /// if it has the option [`publish_stats`](crate::Options::publish_stats). Besides the others
    /// they have `tamis_published_timestamp_seconds`, when that was, `tamis_uptime_seconds`, and
    /// `tamis_publish_interval_seconds`, after which to expect the next. After a crash the last
    /// ones stay until the next opening.
    ///
    /// # Errors
    ///
    /// A failed read, or a file that no database has written.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let options = tamis::Options::default();
    /// assert_eq!(tamis::Db::published_stats(dir.path(), &options)?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn published_stats(
        path: impl AsRef<Path>,
        options: &Options,
    ) -> Result<Option<String>, StorageError> {
        publish::published(&*open::file_system(options), path.as_ref())
    }

    /// Returns the memory that the database takes, by owner. Costs a walk over the list of tables.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path(), tamis::Options::default())?;
    /// db.put("key", "value")?;
    /// let report = db.memory_report();
    /// assert!(report.memtables > 0 && report.total() >= report.memtables);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn memory_report(&self) -> MemoryReport {
        MemoryReport::of(self.inner(), &self.inner().state())
    }

    /// Returns every segment of every table with an elastic filter: how often it is probed, and
    /// which of its filter units are in memory. Ordered by keyspace, level, run (newest first) and
    /// key. Costs a walk over all segments.
    pub fn segments(&self) -> Vec<SegmentStats> {
        self.inner().segments()
    }

    /// Returns the path that a get of `key` would take now, step by step.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Readable::get).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path(), tamis::Options::default())?;
    /// db.put("key", "value")?;
    /// let explanation = db.explain_get("key")?;
    /// assert_eq!(explanation.cost.digests, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn explain_get(&self, key: impl AsRef<[u8]>) -> Result<Explanation, ReadError> {
        self.default.explain_get(key)
    }

    /// Returns what an iteration over the first `limit` entries of `range` touches now, by memtable
    /// and run. Costs that iteration.
    ///
    /// # Errors
    ///
    /// Those of an [`Iter`](crate::Iter).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path(), tamis::Options::default())?;
    /// db.put("a", "value")?;
    /// db.delete("b")?;
    /// db.put("c", "value")?;
    /// let explanation = db.explain_range("a".., 10)?;
    /// assert_eq!((explanation.entries, explanation.cost.tombstones_skipped), (2, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn explain_range<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        limit: usize,
    ) -> Result<RangeExplanation, ReadError> {
        self.default.explain_range(range, limit)
    }

    /// Reads every block of every table and every log record, and checks checksums, order, counts,
    /// filters and the invariants of the tree. Damage is listed in the report rather than returned
    /// as an error.
    ///
    /// # Errors
    ///
    /// Only what keeps the check from running, such as a failed system call.
    pub fn verify(&self) -> Result<VerifyReport, Error> {
        self.inner().verify()
    }

    /// Returns an error if this process is the child of a fork and has inherited the handle. All
    /// operations that can fail return the same by themselves; those that cannot, such as
    /// [`stats`](Db::stats), panic. Costs a load from memory.
    ///
    /// # Errors
    ///
    /// [`StorageError::Forked`].
    pub fn check_process(&self) -> Result<(), StorageError> {
        self.inner().gate.check_process()
    }

    /// Returns the default keyspace, which always exists.
    pub fn default_keyspace(&self) -> &Keyspace {
        &self.default
    }

    /// Returns the database's directory.
    pub fn path(&self) -> &Path {
        self.inner().dir()
    }

    /// Returns the options that the database was opened with.
    pub fn options(&self) -> &Options {
        &self.inner().options
    }

    /// Ends background work, syncs the log and releases the directory. Dropping the last handle
    /// does the same, but cannot report an error. Other handles of the database refuse writes
    /// afterwards.
    ///
    /// # Errors
    ///
    /// The last failure of the log or the manifest. The database is closed all the same, and the
    /// next opening recovers what was acknowledged.
    pub fn close(self) -> Result<(), AdminError> {
        self.handle().shut_down()
    }
}

impl Options {
    /// Returns the options that the database in `path` was last opened with, if it exists.
    ///
    /// # Errors
    ///
    /// [`OpenError::Foreign`] if there is something else than a database; the file of options
    /// cannot be read, is no text, or does not [parse](Options::from_text). Options that
    /// this build does not have are ignored.
    pub fn stored_in(path: impl AsRef<Path>) -> Result<Option<Options>, OpenError> {
        let fs = open::file_system(&Options::default());
        // Others have files of this name, too.
        match foreign::look_at(&*fs, path.as_ref())? {
            foreign::Place::Free | foreign::Place::Others(_) => return Ok(None),
            _ => {}
        }
        let path = tamis_files::tree::files::options_path(path.as_ref());
        let failed = |e: std::io::Error| StorageError::io("read", &path, e);
        if !fs.exists(&path).map_err(failed)? {
            return Ok(None);
        }
        let bytes = crate::io::read_file(&*fs, &path).map_err(failed)?;
        let text = String::from_utf8(bytes).map_err(|_| {
            OpenError::Storage(StorageError::corrupt(&path, None, "the options are not text"))
        })?;
        Ok(Some(Options::from_stored(&text)?))
    }
}
