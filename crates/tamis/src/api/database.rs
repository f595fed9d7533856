//! The database as programs see it: the methods of its handle.

use std::ops::RangeBounds;
use std::path::Path;

use crate::api::snapshot::Snapshot;
use crate::batch::WriteBatch;
use crate::error::{AdminError, Error, OpenError, ReadError, StorageError, WriteError};
use crate::handles::handle::{Db, Keyspace};
use crate::handles::memory_report::MemoryReport;
use crate::handles::stats::Stats;
use crate::jobs::control::CompactionPause;
use crate::jobs::ingest::{IngestOptions, IngestReport};
use crate::jobs::verify::VerifyReport;
use crate::open::follow;
use crate::options::{Durability, Options};
use crate::read::{Explanation, RangeExplanation};
use crate::session::elastic::report::SegmentStats;

impl Db {
    /// Opens the database in `path` with default options, creating it if there is none. For other
    /// options, see [`Options::open`].
    ///
    /// # Errors
    ///
    /// Those of [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Db, OpenError> {
        Options::default().open(path)
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

    /// Sets the value of `key` to `value` with its own durability, as
    /// [`write_with`](Db::write_with) does for a batch.
    ///
    /// # Errors
    ///
    /// Those of [`put`](Db::put).
    ///
    /// ```
    /// use tamis::{Durability, Options};
    ///
    /// let db = Options::in_memory().open("accounts")?;
    /// db.put_with("balance", "100", Durability::Sync)?; // survives a power failure
    /// # Ok::<(), tamis::Error>(())
    /// ```
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<(), WriteError> {
        self.default.put_with(key, value, durability)
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
    /// let db = options.open(dir.path())?;
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
    /// # let db = tamis::Db::open(dir.path())?;
    /// # for key in ["a", "b", "c"] { db.put(key, "value")?; }
    /// db.delete_range("a".."c")?;
    /// assert!(!db.contains_key("b")? && db.contains_key("c")?);
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
    /// # let db = tamis::Db::open(dir.path())?;
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
    /// # let db = tamis::Db::open(dir.path())?;
    /// let mut batch = tamis::WriteBatch::new();
    /// batch.put("a", "1").delete("b");
    /// db.write(batch)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write(&self, batch: WriteBatch) -> Result<(), WriteError> {
        self.handle().write(batch, None)
    }

    /// Commits a batch with its own durability. [`Durability::Sync`] returns once the batch and
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
        let mut all = inner.keyspaces.filled.list();
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
    /// # let db = tamis::Db::open(dir.path())?;
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

    /// Waits until the global and the elastic filters of all keyspaces are complete: after opening,
    /// when reads do without them, and after any change that makes parts of them due for a rebuild
    /// or a load. Returns at once if there are none. Does not wait for a filter that could not be completed (this shows
    /// as a [warning](Stats::warnings), or for failed reads as a line in the log).
    ///
    /// # Errors
    ///
    /// [`AdminError::Write`] if the database is closed or writes stop meanwhile.
    pub fn wait_for_filters(&self) -> Result<(), AdminError> {
        self.inner().wait_for_filters()
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
    /// let db = tamis::Db::open(dir.path())?;
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
    pub fn wait_for_compaction(&self) -> Result<(), AdminError> {
        self.inner().wait_for_compaction()
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
    /// # let db = tamis::Db::open(dir.path().join("db"))?;
    /// db.put("key", "value")?;
    /// db.checkpoint(dir.path().join("copy"))?;
    /// let copy = tamis::Db::open(dir.path().join("copy"))?;
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
    /// # use tamis::{Db, KeyspaceOptions};
    /// # let dir = tempfile::tempdir()?;
    /// # let db = Db::open(dir.path().join("db"))?;
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

    /// Returns the memory that the database takes, by owner. Costs a walk over the list of tables.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path())?;
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
    /// Those of [`get`](crate::Readable::get).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path())?;
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
    /// # let db = tamis::Db::open(dir.path())?;
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
        self.handle().close()
    }
}

impl Db {
    /// Shows what the writer has done since; returns the number of the last write shown. For a
    /// [follower](Options::open_follower), from any thread; readers do not wait.
    ///
    /// Costs a read of what was added to the manifest and to the log, and an opening of each table
    /// that is new.
    ///
    /// # Errors
    ///
    /// [`OpenError::NotFollower`] for another database; [`OpenError::Changing`] if the writer
    /// replaced files during every attempt; damage or a failed system call, with the file. After an
    /// error everything is shown as before, and a later call may succeed.
    pub fn catch_up(&self) -> Result<u64, OpenError> {
        let inner = &self.handle().inner;
        inner.gate.check_process()?;
        match &self.handle().follower {
            Some(follower) => follow::catch_up(inner, follower),
            None => Err(OpenError::NotFollower { path: inner.dir.clone() }),
        }
    }
}
