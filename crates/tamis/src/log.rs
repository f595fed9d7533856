//! The write-ahead log: the log that takes writes, the logs rolled before it, and their disk space.
//!
//! # Invariants
//!
//! * The records of the current log and of the logs rolled before it have consecutive sequence
//!   numbers.
//! * A rolled log names its successor in its closing record; the successor's file name is durable
//!   by then. Rolled logs are synced oldest first, and before the current one: a power failure
//!   leaves a prefix of all writes.
//! * Besides the current log, at most one log exists that no closing record names: the next one,
//!   which is empty. The flush thread creates it ahead of need, since creating a file and syncing
//!   its name may take a tenth of a second while the device is busy. A second one would look like
//!   damage, so a log whose name could not be synced is kept for the next attempt.
//! * A log is overwritten only if every write in it is in a table, its file has no other name, and
//!   no memtable ever referred to values in it.
//!
//! # Space
//!
//! Logs count with their size on disk: their records, the space reserved after them, and the
//! remaining contents of reused files. Obsolete logs count, too, until their files are gone,
//! whether they are kept to be overwritten or not.
//!
//! * The current log reserves space in steps, so that a synced append changes nothing but data. A
//!   step is a quarter of a megabyte at first, then half of the log's length, at most 4 MiB. The
//!   appending thread reserves before the append, half a step ahead of need: the file system may
//!   prepare reserved space for appends without a system call
//!   ([`LogWrites`](crate::options::LogWrites)).
//! * A log that takes no more records releases the space after its last record before it is synced,
//!   and before its file can get another name. The flush thread [trims](Log::trim) it, since that
//!   may take milliseconds.
//! * After idle seconds, obsolete logs are removed, and the next log gives its space back.
//! * Logs kept for [readers of changes](crate::handles::changes) are
//!   [retained](crate::catalogue::retained) first, with limits of their own.
//! * Before a step that would exceed [`max_log_bytes`](crate::Options::max_log_bytes), or a quarter
//!   of the free space, obsolete logs are removed, and the memtables that hold back the oldest log
//!   are flushed: see [`throttle`](crate::session::throttle).
//!
//! # Locks and threads
//!
//! Four parts, in the order of their locks:
//!
//! 1. [`Current`], behind the lock of this type (`log` in the list of [all locks](crate::session)).
//!    Only its holder appends.
//! 2. The next log. Held while it is created, so that there is only one.
//! 3. [`LogFiles`], behind the `state` lock, since floors are computed from it and from views
//!    together.
//! 4. `unsynced`: the writers of rolled logs. Held while these are synced.
//!
//! Before the third, `removing` is held while obsolete logs are removed.
//!
//! The size counters are statistics and hints (`Relaxed`). Those of the current log are written
//! only by the log's holder, that of rolled logs under the `state` lock.
//!
//! # Failures and poison
//!
//! A failed append or sync suspends writes ([`health`](crate::jobs::health)). Neither is retried,
//! and the suspension ends once the log has been [abandoned](Log::abandon). A failure to create the
//! next log changes nothing. After a panic under the lock, writes stop for good.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use tamis_base::ids::{KeyspaceId, LogId};
use tamis_base::key::SeqNo;
use tamis_files::blob::BlobFile;
use tamis_files::tree::files::{first_log_path, log_path};
use tamis_files::wal::ops::GroupHeader;
use tamis_files::wal::{LogHeader, LogKind, LogWriter};

use crate::batch::WriteBatch;
use crate::catalogue::FileNumbers;
use crate::catalogue::log_files::Limits;
use crate::catalogue::log_files::LogFiles;
use crate::catalogue::monitor::Monitor;
use crate::catalogue::retained::ClosedLog;
use crate::error::StorageError;
use crate::gate::Gate;
use crate::gate::room::Room;
use crate::idle::IdleTimer;
use crate::io::{FileSystem, Usage};
use crate::observe::Observer;
use crate::observe::latency::Operation;
use crate::observe::write_counters::WriteCounters;
use crate::options::Options;
use crate::read::LastNumber;
use crate::sync::{self, Mutex, MutexGuard};

/// After this long without an append, logs that are not needed are given back.
const IDLE: Duration = Duration::from_secs(5);

/// An obsolete log is kept only if the free space is this many times the size of all kept logs.
const FREE_TO_KEEP: u64 = 8;

/// The log that takes writes, and the last sequence number.
#[derive(Debug)]
pub(crate) struct Current {
    /// `None` in a database that is open read-only, or whose session has not begun.
    writer: Option<LogWriter>,
    id: LogId,
    /// The last sequence number assigned.
    last_seq: SeqNo,
    /// The number of this log's first write, if there is one.
    first_seq: SeqNo,
    /// The last number of the newest record. `last_seq` follows once that record is as durable as
    /// its writers asked for.
    appended_seq: SeqNo,
    /// Whether anything was appended since the last sync.
    dirty: bool,
    /// How often this log was synced.
    syncs: u64,
    /// This log, open for reading since the first value that stays in it; an error if it could not
    /// be opened.
    readable: Option<Result<Arc<BlobFile>, ()>>,
    /// Kept for its allocation.
    header: Vec<u8>,
}

impl Current {
    fn new(writer: Option<LogWriter>, id: LogId, last_seq: SeqNo) -> Current {
        let (first_seq, appended_seq) = (last_seq + 1, last_seq);
        let (dirty, syncs, readable, header) = (false, 0, None, Vec::new());
        Current { writer, id, last_seq, first_seq, appended_seq, dirty, syncs, readable, header }
    }

    /// Returns the number of the log.
    pub(crate) fn id(&self) -> LogId {
        self.id
    }

    /// Returns the last sequence number assigned.
    pub(crate) fn last_seq(&self) -> SeqNo {
        self.last_seq
    }

    /// Returns the log's length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.writer.as_ref().map_or(0, LogWriter::len)
    }

    /// Reports whether values may stay in the log.
    #[cfg(test)]
    pub(crate) fn has_values(&self) -> bool {
        self.readable.is_some()
    }

    /// Assigns the next `count` sequence numbers, those of the newest record. Returns the last of
    /// them.
    pub(crate) fn assign(&mut self, count: u64) -> SeqNo {
        self.last_seq += count;
        self.last_seq
    }

    /// Sets the last number that the writer has assigned, in a database that follows it.
    pub(crate) fn follow(&mut self, last_seq: SeqNo) {
        (self.last_seq, self.appended_seq) = (last_seq, last_seq);
    }

    /// Reports whether the log takes writes.
    pub(crate) fn is_open(&self) -> bool {
        self.writer.is_some()
    }

    /// Makes `next` the log that takes writes, and returns what its predecessor was, if there was
    /// one.
    fn replace(&mut self, next: NextLog) -> Option<(ClosedLog, LogWriter)> {
        let closed = self.writer.replace(next.writer).map(|old| {
            let closed = ClosedLog {
                id: self.id,
                first_seq: Some(self.first_seq),
                bytes: old.len(),
                allocated: old.allocated(),
                keep: false,
                has_values: self.readable.take().is_some(),
                syncs: self.syncs,
                abandoned: false,
            };
            (closed, old)
        });
        (self.id, self.dirty, self.syncs) = (next.id, false, 0);
        (self.first_seq, self.appended_seq) = (self.last_seq + 1, self.last_seq);
        closed
    }

    fn writer(&mut self) -> &mut LogWriter {
        self.writer.as_mut().expect("a writable database has a log")
    }
}

/// A log that can become the current one.
#[derive(Debug)]
pub(crate) struct NextLog {
    id: LogId,
    writer: LogWriter,
    /// Whether its name is durable.
    named: bool,
}

impl NextLog {
    pub(crate) fn id(&self) -> LogId {
        self.id
    }
}

/// A log that was rolled and is not synced yet.
#[derive(Debug)]
struct RolledLog {
    id: LogId,
    /// The last sequence number before the next log.
    last_seq: SeqNo,
    writer: LogWriter,
    /// Whether giving back the space after its last record was attempted.
    is_trimmed: bool,
}

/// What the log shares with the other owners.
pub(crate) struct LogParts<'a> {
    pub(crate) fs: &'a Arc<dyn FileSystem>,
    pub(crate) numbers: &'a Arc<FileNumbers>,
    pub(crate) monitor: &'a Arc<Monitor>,
    pub(crate) gate: &'a Arc<Gate>,
    pub(crate) room: &'a Arc<Room>,
    pub(crate) counters: &'a Arc<WriteCounters>,
    pub(crate) observer: &'a Arc<Observer>,
}

/// The write-ahead log of an open database.
#[derive(Debug)]
pub(crate) struct Log {
    /// Held while the list of consumers of changes is changed, together with its entry.
    pub(crate) consumers: Mutex<()>,
    dir: PathBuf,
    fs: Arc<dyn FileSystem>,
    limits: Limits,
    /// The most that all logs may take, given the free space [last seen](Log::note_free).
    most: AtomicU64,
    current: Mutex<Current>,
    /// The next log, if created ahead.
    next: Mutex<Option<NextLog>>,
    /// Rolled logs that are not synced yet, oldest first.
    unsynced: Mutex<Vec<RolledLog>>,
    /// Every write up to this number survives a power failure: in synced logs, or in tables. Raised
    /// (`Release`) only once that is true.
    durable: AtomicU64,
    /// Whether `unsynced` has any: set under the log's lock, cleared when the last one was synced.
    /// `Release` and `Acquire`: a thread that reads `false` comes after that sync.
    has_unsynced: AtomicBool,
    /// The length of the current log, for threads that must not wait for its holder (which may be
    /// stalled).
    len: AtomicU64,
    /// The size of the current log on disk.
    allocated: AtomicU64,
    /// Whether the session has ended: no more logs are created.
    has_ended: AtomicBool,
    /// How long the current log has not grown.
    idle: Mutex<IdleTimer<u64>>,
    /// The size on disk of rolled logs that are still needed.
    rolled_allocated: AtomicU64,
    /// The size on disk of the next log.
    next_allocated: AtomicU64,
    removing: Mutex<()>,
    numbers: Arc<FileNumbers>,
    monitor: Arc<Monitor>,
    gate: Arc<Gate>,
    room: Arc<Room>,
    counters: Arc<WriteCounters>,
    observer: Arc<Observer>,
}

impl LastNumber for Log {
    fn held(&self, then: &mut dyn FnMut(SeqNo)) -> bool {
        let Some(current) = self.current.try_lock() else { return false };
        then(current.last_seq());
        true
    }
}

impl Log {
    /// Creates the log of a database whose session has not begun.
    pub(crate) fn new(dir: PathBuf, options: &Options, parts: LogParts<'_>) -> Log {
        Log {
            dir,
            fs: parts.fs.clone(),
            limits: Limits::new(options),
            most: AtomicU64::new(options.max_log_bytes),
            current: Mutex::new(Current::new(None, 0, 0)),
            next: Mutex::default(),
            unsynced: Mutex::default(),
            durable: AtomicU64::new(0),
            has_unsynced: AtomicBool::new(false),
            len: AtomicU64::new(0),
            allocated: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
            idle: Mutex::default(),
            rolled_allocated: AtomicU64::new(0),
            next_allocated: AtomicU64::new(0),
            removing: Mutex::default(),
            consumers: Mutex::default(),
            numbers: parts.numbers.clone(),
            monitor: parts.monitor.clone(),
            gate: parts.gate.clone(),
            room: parts.room.clone(),
            counters: parts.counters.clone(),
            observer: parts.observer.clone(),
        }
    }

    /// Returns the memory for records being assembled; 0 while the log is locked.
    pub(crate) fn memory_bytes(&self) -> usize {
        let current = self.current.try_lock();
        current.and_then(|log| Some(log.writer.as_ref()?.memory_bytes())).unwrap_or(0)
    }

    /// Makes the caller the only thread that appends. Some appended writes may not be in the
    /// memtables yet: [`lock_log`](crate::session::Session::lock_log) waits for them. Must not be
    /// called with the state locked.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Current> {
        let current = self.current.lock();
        if self.current.was_poisoned() {
            self.monitor.poison(&"a panic while the log was being written");
        }
        current
    }

    /// Reports whether a thread panicked while it held the lock.
    pub(crate) fn was_poisoned(&self) -> bool {
        self.current.was_poisoned()
    }

    /// Like [`lock`](Self::lock), but only if the log is not locked.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Current>> {
        let current = self.current.try_lock()?;
        if self.current.was_poisoned() {
            self.monitor.poison(&"a panic while the log was being written");
        }
        Some(current)
    }

    /// Returns the current log, open for reading. From now on its file is never overwritten: values
    /// may stay there. `None` if it cannot be opened.
    pub(crate) fn readable(&self, log: &mut Current) -> Option<Arc<BlobFile>> {
        let open = || {
            let opened = BlobFile::of_log(&*self.fs, &log_path(&self.dir, log.id), log.id);
            opened.map(Arc::new).map_err(|why| log::warn!("large values are copied to memory: {why}"))
        };
        log.readable.get_or_insert_with(open).clone().ok()
    }

    /// Appends a record of `count` operations, which get the next sequence numbers. Returns the
    /// offset of the first operation in the log. On failure, writes are suspended.
    pub(crate) fn append<'o>(
        &self,
        log: &mut Current,
        count: u64,
        operations: impl Iterator<Item = &'o [u8]>,
    ) -> Result<u64, StorageError> {
        let older_logs_synced = !self.has_unsynced.load(Acquire);
        let mut header = std::mem::take(&mut log.header);
        header.clear();
        GroupHeader { first_seq: log.last_seq + 1, count, older_logs_synced }.encode(&mut header);
        let mut parts = SmallVec::<[&[u8]; 8]>::from_slice(&[&header]);
        operations.for_each(|part| parts.push(part));
        let writer = log.writer();
        let bytes = parts[1..].iter().map(|part| part.len() as u64).sum();
        // As in `growth`: a log must not grow more than the caller checked for.
        self.reserve(writer, bytes);
        let before = (writer.len(), writer.mapped());
        let result = writer.append(&parts);
        self.note_size(writer);
        self.counters.log_bytes.add_locked(writer.len() - before.0);
        self.counters.log_mapped_bytes.add_locked(writer.mapped() - before.1);
        self.counters.groups.add_locked(1);
        drop(parts);
        (log.dirty, log.header) = (true, header);
        let end = result.inspect_err(|error| self.gate.suspend(error))?;
        log.appended_seq = log.last_seq + count;
        Ok(end - bytes)
    }

    /// Takes the next sequence number for an ingestion whose first keyspace is `keyspace`. Returns
    /// once the log up to that number would survive a power failure, so that ingested data never
    /// outlives earlier writes. The number must become visible before the log's lock is released.
    /// On failure, writes are suspended.
    pub(crate) fn append_ingestion(
        &self,
        log: &mut Current,
        keyspace: KeyspaceId,
    ) -> Result<SeqNo, StorageError> {
        self.append(log, 1, std::iter::once(WriteBatch::ingestion(keyspace).bytes()))?;
        self.sync(log)?;
        Ok(log.assign(1))
    }

    /// Syncs the log, earlier logs first. On failure, writes are suspended.
    pub(crate) fn sync(&self, log: &mut Current) -> Result<(), StorageError> {
        self.sync_rolled()?;
        if log.dirty {
            let started = sync::now();
            log.writer().sync().inspect_err(|error| self.gate.suspend(error))?;
            self.observer.record(Operation::LogSync, sync::since(started));
            self.counters.log_syncs.add(1);
            (log.dirty, log.syncs) = (false, log.syncs + 1);
            self.note_durable(log.appended_seq);
        }
        Ok(())
    }

    /// Syncs the rolled logs, oldest first. Afterwards, every write before the current log survives
    /// a power failure. On failure, writes are suspended.
    pub(crate) fn sync_rolled(&self) -> Result<(), StorageError> {
        while self.has_unsynced.load(Acquire) {
            self.trim();
            let mut unsynced = self.unsynced.lock();
            while let Some(oldest) = unsynced.first_mut().filter(|oldest| oldest.is_trimmed) {
                let started = sync::now();
                oldest.writer.sync().inspect_err(|error| self.gate.suspend(error))?;
                self.observer.record(Operation::LogSync, sync::since(started));
                self.counters.log_syncs.add(1);
                self.note_durable(unsynced.remove(0).last_seq);
            }
            // Otherwise another log was rolled meanwhile.
            if unsynced.is_empty() {
                self.has_unsynced.store(false, Release);
            }
        }
        Ok(())
    }

    /// Ends the current log and starts the next, unless the current one is empty.
    pub(crate) fn roll(&self, log: &mut Current) -> Result<(), StorageError> {
        if log.writer.as_ref().is_none_or(|w| w.is_empty()) {
            return Ok(());
        }
        let next = self.next()?;
        let id = next.id;
        let (mut closed, mut old) = log.replace(next).expect("checked above");
        let finished = old.finish(Some(id));
        if let Err(error) = &finished {
            // The log ends with a torn record, after everything acknowledged, and the next log is
            // empty.
            self.gate.suspend(error);
        }
        (closed.bytes, closed.allocated) = (old.len(), old.allocated());
        let rolled = RolledLog { id: closed.id, last_seq: log.last_seq, writer: old, is_trimmed: false };
        {
            let mut state = self.monitor.lock();
            state.logs.rolled.push(closed);
            (state.logs.current, state.logs.current_first) = (id, log.first_seq);
            // In this order: for a moment the rolled log counts twice, but it never counts as nothing.
            self.note_rolled(&state.logs);
            self.note_size(log.writer());
        }
        // Without the state locked, since a log may be being synced. A flush that comes in between
        // concerns earlier logs.
        self.unsynced.lock().push(rolled);
        self.has_unsynced.store(true, Release);
        finished.map(drop)
    }

    /// Returns the successor of the current log, its name durable. On failure, nothing has changed.
    /// The caller holds the log's lock.
    pub(crate) fn next(&self) -> Result<NextLog, StorageError> {
        let mut next = self.next.lock();
        self.make_next(&mut next, false)?;
        let made = next.take().expect("just made");
        self.next_allocated.store(0, Relaxed);
        Ok(made)
    }

    /// Creates the next log if there is none, `ahead` of need or not, and makes its name durable if
    /// it is not yet.
    fn make_next(&self, next: &mut Option<NextLog>, ahead: bool) -> Result<(), StorageError> {
        let made = match next {
            Some(made) => made,
            None => {
                let id = self.numbers.take();
                let recycled = self.monitor.lock().logs.recyclable.pop();
                let old = recycled.clone();
                // It takes space all the while.
                self.next_allocated.store(old.as_ref().map_or(0, |old| old.allocated), Relaxed);
                let created = self.create(id, recycled, ahead);
                next.insert(created.inspect_err(|_| {
                    self.monitor.lock().logs.obsolete.extend(old);
                    self.next_allocated.store(0, Relaxed);
                })?)
            }
        };
        self.reserve(&mut made.writer, 0);
        self.next_allocated.store(made.writer.allocated(), Relaxed);
        if !made.named {
            self.fs.sync_dir(&self.dir).map_err(|e| StorageError::io("sync", &self.dir, e))?;
            made.named = true;
        }
        Ok(())
    }

    /// Creates the next log ahead of need: if `soon`, or once the current log is half as long as
    /// logs usually get. A failure is left to the writer that needs the log. For the flush thread,
    /// with no lock held.
    pub(crate) fn prepare(&self, soon: bool) {
        if !soon && self.len.load(Relaxed) < self.limits.expected / 2 {
            return;
        }
        let mut next = self.next.lock();
        // The session has ended, or logs are near their limit.
        if self.has_ended.load(Relaxed) || self.is_near_limit(self.limits().step(0)) {
            return;
        }
        if !next.as_ref().is_some_and(|made| made.named)
            && let Err(error) = self.make_next(&mut next, true)
        {
            log::debug!("the next log could not be created ahead: {error}");
        }
    }

    /// Gives back the space after the last record of rolled logs that are not synced yet. Skips
    /// logs that have another name: the log of a finished checkpoint must not change. Must not be
    /// called with the state locked.
    pub(crate) fn trim(&self) {
        // Without the state locked, since a log may be being synced.
        if self.unsynced.lock().iter().all(|rolled| rolled.is_trimmed) {
            return;
        }
        let mut state = self.monitor.lock();
        let mut trimmed = false;
        for rolled in self.unsynced.lock().iter_mut().filter(|rolled| !rolled.is_trimmed) {
            // Once, so that a thread that trimmed them under the log's lock knows that they no
            // longer change.
            rolled.is_trimmed = true;
            let closed = state.logs.rolled.iter_mut().find(|closed| closed.id == rolled.id && !closed.keep);
            if let Some(closed) = closed {
                rolled.writer.give_back();
                (closed.allocated, trimmed) = (rolled.writer.allocated(), true);
            }
        }
        if trimmed {
            self.note_rolled(&state.logs);
        }
    }

    /// Removes the obsolete logs and gives back the space of the next one, once calls of this have
    /// seen no append for [`IDLE`].
    pub(crate) fn release_if_idle(&self, now: Instant) {
        let is_idle = self.idle.lock().has_lasted(self.len.load(Relaxed), now, IDLE);
        if is_idle {
            self.release_recyclable();
            self.shrink_next();
        }
    }

    /// Gives back the space of the next log. Reports whether it had any.
    fn shrink_next(&self) -> bool {
        // The thread that is creating it may be the caller.
        let Some(mut next) = self.next.try_lock() else { return false };
        let Some(made) = &mut *next else { return false };
        let before = made.writer.allocated();
        made.writer.give_back();
        self.next_allocated.store(made.writer.allocated(), Relaxed);
        made.writer.allocated() < before
    }

    /// Creates a log file, from an obsolete one if possible. Its name is not durable yet. Until its
    /// header is written it has another name, so that a failed attempt leaves no log behind. If
    /// created ahead, its header and length are durable before its name.
    fn create(
        &self,
        id: LogId,
        recycled: Option<ClosedLog>,
        has_time: bool,
    ) -> Result<NextLog, StorageError> {
        let (path, beside) = (log_path(&self.dir, id), first_log_path(&self.dir));
        let io = |e| StorageError::io("create", &path, e);
        let file = match &recycled {
            Some(old) => self.fs.reuse(&log_path(&self.dir, old.id), &beside),
            None => self.fs.create(&beside, Usage::Log),
        };
        let header = LogHeader { kind: LogKind::Writes, id, reused: recycled.is_some() };
        let mut writer = LogWriter::create(file.map_err(io)?, &path, header)?;
        if let Some(old) = recycled {
            writer = writer.in_file_of(old.allocated);
        }
        if has_time {
            self.reserve(&mut writer, 0);
            writer.sync()?;
        }
        self.fs.rename(&beside, &path).map_err(io)?;
        Ok(NextLog { id, writer, named: false })
    }

    /// Creates the first log of a session. It has another name until its header is durable: an
    /// opening that fails midway, say on a full disk, must not leave a log with a torn header,
    /// which the next opening would take for damage. It reserves no space, since opening may need
    /// it.
    pub(crate) fn create_first(&self, id: LogId) -> Result<NextLog, StorageError> {
        let (path, beside) = (log_path(&self.dir, id), first_log_path(&self.dir));
        let io = |operation, e| StorageError::io(operation, &path, e);
        let file = self.fs.create(&beside, Usage::Log).map_err(|e| io("create", e))?;
        let header = LogHeader { kind: LogKind::Writes, id, reused: false };
        let mut writer = LogWriter::create(file, &path, header)?;
        writer.sync()?;
        self.fs.rename(&beside, &path).map_err(|e| io("create", e))?;
        self.fs.sync_dir(&self.dir).map_err(|e| StorageError::io("sync", &self.dir, e))?;
        Ok(NextLog { id, writer, named: true })
    }

    /// Makes `first` the log of a session in which `last_seq` is the last number assigned. Earlier
    /// logs are no longer needed.
    pub(crate) fn begin(&self, log: &mut Current, files: &mut LogFiles, first: NextLog, last_seq: SeqNo) {
        self.note_size(&first.writer);
        files.rolled.clear();
        self.note_rolled(files);
        *log = Current::new(Some(first.writer), first.id, last_seq);
        (files.current, files.current_first) = (log.id, log.first_seq);
        self.note_durable(last_seq);
    }

    /// Puts `next` in place of the current log, whose records are unreliable. Neither it nor
    /// earlier logs are synced again, and it is never overwritten. Returns the number of `next`.
    pub(crate) fn abandon(&self, log: &mut Current, files: &mut LogFiles, next: NextLog) -> LogId {
        if let Some((closed, _)) = log.replace(next) {
            files.rolled.push(ClosedLog { keep: true, abandoned: true, ..closed });
            self.note_rolled(files);
        }
        self.note_size(log.writer());
        (files.current, files.current_first) = (log.id, log.first_seq);
        self.unsynced.lock().clear();
        self.has_unsynced.store(false, Release);
        log.id
    }

    /// Ends the last log of a session, synced. Returns a log that holds records, to be closed after
    /// the manifest; an empty log is closed at once.
    pub(crate) fn end(&self, log: &mut Current) -> Result<Option<LogWriter>, StorageError> {
        self.sync(log)?;
        self.has_ended.store(true, Relaxed);
        if let Some(NextLog { id, .. }) = self.next.lock().take() {
            // If it cannot be removed, it still passes for an empty log, since no earlier log names
            // it.
            self.next_allocated.store(0, Relaxed);
            let path = log_path(&self.dir, id);
            if let Err(e) = self.fs.remove(&path) {
                log::warn!("could not remove the unused log {}: {e}", path.display());
            }
        }
        match log.writer.take() {
            Some(writer) if writer.is_empty() => writer.close().map(|_| None),
            writer => Ok(writer),
        }
    }

    /// Sets the logs of other sessions that are part of the visible state, with their lengths: for
    /// `verify` and statistics.
    pub(crate) fn note_found(&self, files: &mut LogFiles, logs: &[(LogId, u64)]) {
        files.rolled = logs.iter().map(|&(id, bytes)| ClosedLog::found(id, None, bytes)).collect();
        self.note_rolled(files);
    }

    /// Retains, recycles or removes the logs below `floor`, whose writes are all in tables. `now`
    /// is in seconds since 1970.
    pub(crate) fn release(&self, files: &mut LogFiles, floor: LogId, now: u64) {
        let floor = floor.min(files.current);
        let obsolete: Vec<_> = files.rolled.extract_if(.., |log| log.id < floor).collect();
        if obsolete.is_empty() {
            return;
        }
        // Closes the handles: the contents are in durable tables.
        self.unsynced.lock().retain(|rolled| rolled.id >= floor);
        self.note_rolled(files);
        let first_after = files.rolled.first().and_then(|log| log.first_seq);
        self.note_durable(first_after.unwrap_or(files.current_first).saturating_sub(1));
        files.retained.extend(obsolete, now);
        self.expire(files, now);
    }

    /// Returns the bytes of the records of all logs.
    pub(crate) fn bytes(&self, files: &LogFiles) -> u64 {
        self.len.load(Relaxed) + files.rolled().1
    }

    /// Returns the size on disk of all logs, except those kept for readers of changes.
    pub(crate) fn allocated(&self, files: &LogFiles) -> u64 {
        self.needed() + self.next_allocated.load(Relaxed) + files.recyclable_bytes() + files.obsolete_bytes()
    }

    /// Returns the size on disk of the logs that are still needed.
    pub(crate) fn needed(&self) -> u64 {
        self.allocated.load(Relaxed) + self.rolled_allocated.load(Relaxed)
    }

    /// Returns how much space appending `bytes` would add.
    pub(crate) fn growth(&self, log: &Current, bytes: usize) -> u64 {
        log.writer.as_ref().map_or(0, |writer| self.limits().growth(writer, bytes as u64))
    }

    /// Reports whether the logs that are needed would exceed their limit with `growth`.
    pub(crate) fn is_over(&self, growth: u64) -> bool {
        self.needed().saturating_add(growth) > self.most()
    }

    /// Returns the most that all logs may take now.
    fn most(&self) -> u64 {
        self.most.load(Relaxed)
    }

    /// Adapts the limit to the free space. The caller holds the log's lock, and calls this before
    /// the log grows.
    pub(crate) fn note_free(&self, free: Option<u64>) {
        self.most.store(self.limits.most(self.needed(), free), Relaxed);
    }

    /// Returns the current limits.
    fn limits(&self) -> Limits {
        Limits { most: self.most(), ..self.limits }
    }

    /// Gives back obsolete logs and the space of the next log. Returns `false` if there was nothing
    /// to give back.
    pub(crate) fn give_back(&self) -> bool {
        self.release_recyclable() | self.shrink_next()
    }

    /// Removes obsolete logs if all logs together would exceed their limit with `growth`.
    pub(crate) fn shed(&self, growth: u64) {
        if self.allocated(&self.monitor.lock().logs).saturating_add(growth) > self.most() {
            self.give_back();
        }
    }

    /// Returns the oldest log if the logs would come near their limit with `growth`: the memtables
    /// that hold it back should then be flushed.
    pub(crate) fn oldest_if_near_limit(&self, files: &LogFiles, growth: u64) -> Option<LogId> {
        self.is_near_limit(growth).then(|| files.oldest())
    }

    /// Reports whether the logs that are needed would come near their limit with `growth`.
    pub(crate) fn is_near_limit(&self, growth: u64) -> bool {
        let most = self.most();
        self.needed().saturating_add(growth) > most - most / 4
    }

    /// Records the size of the current log.
    fn note_size(&self, log: &LogWriter) {
        self.len.store(log.len(), Relaxed);
        self.allocated.store(log.allocated(), Relaxed);
    }

    /// Records the size of the rolled logs. Must be called after every change to their list.
    fn note_rolled(&self, files: &LogFiles) {
        self.rolled_allocated.store(files.rolled.iter().map(|log| log.allocated).sum(), Relaxed);
    }

    /// Reserves space for a record of `bytes`, if needed. On a full disk this removes obsolete logs
    /// and tries again.
    fn reserve(&self, log: &mut LogWriter, bytes: u64) {
        let size = log.allocated() + self.limits().growth(log, bytes);
        if log.preallocate(size) {
            return;
        }
        self.room.outdated();
        if self.give_back() {
            // If this fails, too, the append reports it.
            log.retry_preallocation();
            log.preallocate(size);
        }
    }

    /// Reports whether an obsolete log may be kept to be overwritten: it was synced often and is
    /// not much longer than expected, few such logs are kept, all logs are far from their limit,
    /// and the disk has room.
    fn may_recycle(&self, files: &LogFiles, log: &ClosedLog) -> bool {
        let (most, kept) = (self.most(), files.recyclable_bytes() + log.allocated);
        log.was_synced()
            && !log.has_values
            && files.recyclable.len() < self.limits.recycled
            && log.allocated <= self.limits.expected.saturating_mul(2)
            && self.needed() + kept <= most - most / 4
            && self.room.free().is_none_or(|free| kept.saturating_mul(FREE_TO_KEEP) <= free)
    }

    /// Removes all obsolete logs, including those kept to be overwritten. Returns `false` if none
    /// was removed.
    pub(crate) fn release_recyclable(&self) -> bool {
        {
            let mut state = self.monitor.lock();
            let LogFiles { recyclable, obsolete, .. } = &mut state.logs;
            obsolete.append(recyclable);
        }
        self.remove_obsolete()
    }

    /// Removes obsolete logs. Returns `false` if none was removed. Each counts until its file is
    /// gone; a file that cannot be removed is left to the next call. Must not be called with the
    /// state locked.
    pub(crate) fn remove_obsolete(&self) -> bool {
        let _removing = self.removing.lock();
        let obsolete: Vec<LogId> = self.monitor.lock().logs.obsolete.iter().map(|log| log.id).collect();
        let mut any = false;
        for id in obsolete {
            let path = log_path(&self.dir, id);
            match self.fs.remove(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    log::debug!("could not remove {}: {e}; it is tried again", path.display());
                }
                _ => {
                    self.monitor.lock().logs.obsolete.retain(|log| log.id != id);
                    any = true;
                }
            }
        }
        any
    }
}

impl Log {
    /// Records that every write up to `seq` survives a power failure.
    pub(crate) fn note_durable(&self, seq: SeqNo) {
        self.durable.fetch_max(seq, Release);
    }

    /// Returns the last number up to which every write is known to survive a power failure.
    pub(crate) fn durable(&self) -> SeqNo {
        self.durable.load(Acquire)
    }

    /// Releases the retained logs that nobody needs, to be overwritten or
    /// [removed](Log::remove_obsolete). `now` is in seconds since 1970. Reports whether there were
    /// any.
    pub(crate) fn expire(&self, files: &mut LogFiles, now: u64) -> bool {
        // The session has not begun: it is not known yet which logs will be needed.
        if files.current_first == 0 {
            return false;
        }
        let acknowledged = files.retained.acknowledged(self.durable());
        let mut bytes = files.retained.allocated();
        let mut gone = 0;
        for (at, (log, since)) in files.retained.logs.iter().enumerate() {
            let later = files.retained.logs[at + 1..].iter().map(|(log, _)| log).chain(&files.rolled);
            let first_after = later.filter_map(|log| log.first_seq).next().unwrap_or(files.current_first);
            let retained = &files.retained;
            let is_needed = acknowledged < first_after.saturating_sub(1)
                || bytes <= retained.keep_bytes
                || retained.keep_time.is_some_and(|time| now.saturating_sub(*since) < time);
            if is_needed && bytes <= retained.most_bytes {
                break;
            }
            bytes -= log.allocated;
            gone = at + 1;
        }
        let given_up = |(log, _): &mut (ClosedLog, u64)| log.abandoned;
        let unreliable = files.retained.logs.extract_if(gone.., given_up).collect::<Vec<_>>();
        let any = gone > 0 || !unreliable.is_empty();
        for (log, _) in files.retained.logs.drain(..gone).chain(unreliable).collect::<Vec<_>>() {
            if !log.keep && self.may_recycle(files, &log) {
                files.recyclable.push(log);
            } else {
                files.obsolete.push(log);
            }
        }
        any
    }
}

#[cfg(test)]
mod tests;
