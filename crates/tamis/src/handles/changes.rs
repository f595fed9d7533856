//! The change feed: committed batches in the order in which they took effect, read from the logs.
//!
//! A reader goes from record to record and from log to log. It consults the list of logs when it
//! opens a log, and again before it reads records that became visible since
//! ([`LogFiles::place_of`](crate::catalogue::log_files::LogFiles::place_of)). Before every record
//! it loads the visible number. A record that holds a visible number is whole: its append came
//! before the number was published (`Release`, with `Acquire` in
//! [`visible`](crate::session::committer::Committer::visible)), and a mapped log is written through
//! the same pages that its file is read from. So the reader never reads a record while it is being
//! written, a bad record means damage, and writers do no work for readers that are not waiting.
//!
//! If a log is removed while it is being read, the reader loses it, too: it gets the same error as
//! a reader that fell behind. A log overwritten meanwhile no longer holds records of the old log
//! (checksums are seeded with the log's number), with the same result.
//!
//! # Choices
//!
//! * **No file says which records count.** If a number was assigned twice, after a failed sync or a
//!   torn record, the last log that begins at or below it counts. So a crash leaves nothing to
//!   repair, and this needs no extra writes.
//! * **The manifest records no number that a power failure may take back.** Numbering continues
//!   where the logs end, so a reader of durable changes sees no jump after a power failure. When a
//!   failed sync abandons a log, numbers jump, which is an error for readers.
//!
//! # Threads
//!
//! A [`Changes`] has one owner at a time. It takes the `state` lock to open a log, and to tell
//! damage from a log that is gone. It sleeps where writers of groups wait for their turn to become
//! visible.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tamis_base::key::SeqNo;
use tamis_files::tree::files::log_path;
use tamis_files::wal::ops::{BatchOp, GroupHeader, Ops};
use tamis_files::wal::{LogKind, LogReader, ReadOptions};

use crate::catalogue::Sorted;
use crate::catalogue::retained::LogPart;
use crate::error::{ChangesError, OpenError, StorageError, WriteError};
use crate::handles::handle::{Db, Handle};
use crate::io::Access;
use crate::session::Session;
use crate::sync;

/// How often a waiting reader checks whether the database was closed.
const LOOK: Duration = Duration::from_millis(50);

/// For this long after a change, a reader polls for the next one, so that a writer in full flow
/// wakes nobody.
const FLOW: Duration = Duration::from_millis(2);

/// How often it polls.
const LOOK_IN_FLOW: Duration = Duration::from_micros(100);

/// How many times to try to open a log that changes meanwhile. A log is removed once and cut once.
const ATTEMPTS: u32 = 4;

/// How often a reader of durable changes polls.
const LOOK_FOR_DURABLE: Duration = Duration::from_millis(5);

/// A committed batch, or several that were committed together: the operations of one log record.
/// They took effect at once.
#[derive(Clone)]
pub struct Change {
    first: SeqNo,
    last: SeqNo,
    /// The sequence number of the first operation in `operations`.
    start: SeqNo,
    operations: Vec<u8>,
    durable: bool,
    keyspaces: Arc<Sorted>,
}

debug_as!(Change, "Change", change => "first_seq": change.first, "last_seq": change.last, "bytes": change.operations.len());

impl Change {
    /// Returns the sequence number of the change's first operation.
    pub fn first_seq(&self) -> u64 {
        self.first
    }

    /// Returns the sequence number of the change's last operation: the position of a reader that
    /// has applied the change.
    pub fn last_seq(&self) -> u64 {
        self.last
    }

    /// Reports whether the change was known to survive a power failure when it was read: its log
    /// was synced, or its writes were in tables.
    pub fn is_durable(&self) -> bool {
        self.durable
    }

    /// Returns the change's operations in order.
    pub fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        let operations = Ops::new(&self.operations).map(|op| op.expect("decoded when it was read"));
        let numbered = operations.zip(self.start..).filter(|(_, seq)| *seq >= self.first);
        numbered.filter_map(|(op, seq)| {
            let keyspace = self.keyspaces.get(&op.keyspace());
            if keyspace.is_some_and(|keyspace| keyspace.is_hidden()) {
                return None;
            }
            let kind = match op {
                BatchOp::Put { key, value, .. } => OperationKind::Put { key, value },
                BatchOp::Merge { key, operand, .. } => OperationKind::Merge { key, operand },
                BatchOp::Delete { key, .. } => OperationKind::Delete { key },
                BatchOp::DeleteRange { start, end, .. } => OperationKind::DeleteRange { start, end },
                BatchOp::Ingestion { .. } => OperationKind::Ingestion,
            };
            let name = keyspace.map(|keyspace| keyspace.name());
            Some(Operation { seq, keyspace: name, keyspace_id: op.keyspace(), kind })
        })
    }
}

/// One operation of a [`Change`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operation<'c> {
    /// The operation's sequence number.
    pub seq: u64,
    /// The name of the operation's keyspace when the change was read; `None` if it had been
    /// dropped.
    pub keyspace: Option<&'c str>,
    /// The number of the operation's keyspace. It is never reused, and renaming the keyspace does
    /// not change it.
    pub keyspace_id: u32,
    /// What the operation does.
    pub kind: OperationKind<'c>,
}

/// What an [`Operation`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationKind<'c> {
    /// Sets a key to a value.
    Put {
        /// The key.
        key: &'c [u8],
        /// The value.
        value: &'c [u8],
    },
    /// Applies an operand to a key's value, with the merge operator of the keyspace.
    Merge {
        /// The key.
        key: &'c [u8],
        /// The operand.
        operand: &'c [u8],
    },
    /// Deletes a key, which need not have existed.
    Delete {
        /// The key.
        key: &'c [u8],
    },
    /// Deletes all keys from `start` up to but not including `end`.
    DeleteRange {
        /// The first key of the range.
        start: &'c [u8],
        /// The first key after the range; `None` if the range is unbounded.
        end: Option<&'c [u8]>,
    },
    /// An ingestion of tables; this is its first keyspace. The log holds neither the tables'
    /// contents nor whether the ingestion succeeded: read the keyspace.
    Ingestion,
}

/// A reader of the change feed, started by [`Db::changes`].
///
/// It is also an iterator, which returns `None` when there are no more changes for now and can
/// continue later. It keeps the database open as any handle does, but keeps no logs: a
/// [`Consumer`](crate::changes::Consumer) does.
pub struct Changes {
    handle: Arc<Handle>,
    /// The sequence number of the next operation.
    next: SeqNo,
    durable_only: bool,
    log: Option<OpenLog>,
    /// When a wait last returned a change.
    last_wait: Option<Instant>,
}

debug_as!(Changes, "Changes", changes => "path": changes.handle.inner.dir, "next": changes.next);

/// A log that is being read.
#[derive(Debug)]
struct OpenLog {
    place: LogPart,
    reader: LogReader,
    /// Records up to this number were whole when the file's length was last read.
    whole: SeqNo,
}

impl Changes {
    /// Leaves out changes that a power failure might take back; their numbers would be assigned
    /// again. By default they are included and [marked](Change::is_durable): without synced writes,
    /// changes become durable only when the log is full.
    pub fn durable_only(mut self, durable_only: bool) -> Changes {
        self.durable_only = durable_only;
        self
    }

    /// Returns the sequence number of the last operation read or skipped.
    pub fn last_seq(&self) -> u64 {
        self.next - 1
    }

    /// Returns the next change, or `None` if there is none yet. Reads one record of the log; the
    /// first call also reads the log up to it.
    ///
    /// # Errors
    ///
    /// [`ChangesError::FellBehind`] if the log that holds the next change is gone; failed reads;
    /// damage. The next call tries again.
    pub fn poll(&mut self) -> Result<Option<Change>, ChangesError> {
        let handle = self.handle.clone();
        let db = &*handle.inner;
        db.gate.check_process()?;
        loop {
            let limit = self.limit(db);
            if self.next > limit {
                return Ok(None);
            }
            if let Some(change) = self.advance(db, limit)? {
                return Ok(Some(change));
            }
        }
    }

    /// Waits up to `timeout` for the next change. Returns `None` if none came.
    ///
    /// # Errors
    ///
    /// Those of [`poll`](Changes::poll). Once all changes are read, [`ChangesError::Closed`] if the
    /// database is closed, and [`WriteError::Poisoned`] if writes have stopped for good.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Change>, ChangesError> {
        let started = sync::now();
        loop {
            // Checked before polling, since a write may be acknowledged until then.
            let ended = match self.handle.inner.gate.check_writable() {
                Err(WriteError::Closed) => Some(ChangesError::Closed),
                Err(error @ WriteError::Poisoned { .. }) => Some(ChangesError::Write(error)),
                _ => None,
            };
            if let Some(change) = self.poll()? {
                self.last_wait = Some(sync::now());
                return Ok(Some(change));
            }
            if let Some(ended) = ended {
                return Err(ended);
            }
            let db = &*self.handle.inner;
            let left = timeout.saturating_sub(sync::since(started));
            if left.is_zero() {
                return Ok(None);
            }
            match db.visible() >= self.next {
                // Nothing signals that writes became durable.
                true => sync::thread::sleep(left.min(LOOK_FOR_DURABLE)),
                false if self.last_wait.is_some_and(|last| sync::since(last) < FLOW) => {
                    sync::thread::sleep(left.min(LOOK_IN_FLOW));
                }
                false => db.committer.sleep_until(self.next, left.min(LOOK)),
            }
        }
    }

    /// Returns the last sequence number that may be read now.
    fn limit(&self, db: &Session) -> SeqNo {
        match self.durable_only {
            true => db.visible().min(db.log.durable()),
            false => db.visible(),
        }
    }

    /// Reads one record; records up to `limit` are whole. `None` if the record holds nothing for
    /// the reader, or if the log ended.
    fn advance(&mut self, db: &Session, limit: SeqNo) -> Result<Option<Change>, ChangesError> {
        if let Some(log) = self.log.as_mut().filter(|log| self.next > log.whole) {
            // `next` was not visible when the log was opened: it may be in a later log by now, and
            // this log's record of it may have failed.
            let place = place_of(db, self.next)?;
            match place.log == log.place.log {
                true => log.place = place,
                false => self.log = None,
            }
        }
        let log = match &mut self.log {
            Some(log) => log,
            none => none.insert(open_log(db, self.next, limit, None)?),
        };
        let read = read_record(log, self.next, limit);
        let place = log.place;
        match read {
            Ok(Read::Record { start, last, operations }) => {
                let first = start.max(self.next);
                if last < first {
                    return Ok(None);
                }
                self.next = last + 1;
                let durable = last <= db.log.durable();
                let keyspaces = db.keyspaces.directory.load_full();
                let change = Change { first, last, start, operations, durable, keyspaces };
                let is_shown = change.operations().next().is_some();
                Ok(is_shown.then_some(change))
            }
            Ok(Read::End) => {
                self.log = None;
                self.log = Some(open_log(db, self.next, limit, Some(place))?);
                Ok(None)
            }
            Err(error) => {
                self.log = None;
                // The log may have been removed or overwritten meanwhile.
                match place_of(db, self.next)? {
                    found if found.log == place.log => Err(error.into()),
                    _ => Ok(None),
                }
            }
        }
    }
}

impl Iterator for Changes {
    type Item = Result<Change, ChangesError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.poll().transpose()
    }
}

/// What was read from a log.
enum Read {
    Record { start: SeqNo, last: SeqNo, operations: Vec<u8> },
    End,
}

/// Reads the next record of a log whose next visible number is `next`, and checks that it decodes.
fn read_record(log: &mut OpenLog, next: SeqNo, limit: SeqNo) -> Result<Read, StorageError> {
    if next > log.whole {
        log.reader.refresh()?;
        log.whole = limit;
    }
    match next_record(log, next) {
        Err(StorageError::Io(failure))
            if failure.kind() == io::ErrorKind::UnexpectedEof && log.reader.was_cut()? =>
        {
            next_record(log, next)
        }
        read => read,
    }
}

fn next_record(log: &mut OpenLog, next: SeqNo) -> Result<Read, StorageError> {
    let path = log.reader.path().to_owned();
    let Some(record) = log.reader.next_record()? else { return Ok(Read::End) };
    let damaged = |what: String| StorageError::corrupt(&path, record.offset, what);
    let (header, operations) = GroupHeader::decode(record.payload).map_err(|e| damaged(e.to_string()))?;
    if header.first_seq >= log.place.until {
        return Ok(Read::End);
    }
    if header.first_seq > next {
        return Err(damaged(format!("its first write is number {}, expected {next}", header.first_seq)));
    }
    let mut count = 0;
    for op in Ops::new(operations) {
        op.map_err(|e| damaged(e.to_string()))?;
        count += 1;
    }
    if count != header.count {
        return Err(damaged("a record whose count of operations is wrong".to_owned()));
    }
    let last = header.first_seq + count - 1;
    let operations = if last >= next { operations.to_vec() } else { Vec::new() };
    Ok(Read::Record { start: header.first_seq, last, operations })
}

/// Opens the log that holds `seq`; all numbers up to `limit` are visible. `ended` is a log that
/// turned out not to hold it.
fn open_log(db: &Session, seq: SeqNo, limit: SeqNo, ended: Option<LogPart>) -> Result<OpenLog, ChangesError> {
    for attempt in 1.. {
        let place = place_of(db, seq)?;
        let path = log_path(&db.dir, place.log);
        if ended.is_some_and(|ended| ended.log == place.log) {
            // A power failure took the rest of the log back, or a failed sync abandoned the log and
            // its contents went to tables.
            if place.until < SeqNo::MAX {
                return Err(ChangesError::FellBehind { wanted: seq, oldest: place.until });
            }
            let what = format!("it ends before write {seq}, which is visible");
            return Err(StorageError::corrupt(&path, None, what).into());
        }
        let opened = db.fs.open(&path, Access::Sequential).map_err(|e| StorageError::io("open", &path, e));
        let reader = opened.map_err(OpenError::Storage).and_then(|file| {
            Ok(LogReader::open(file, &path, LogKind::Writes, place.log, ReadOptions::default())?)
        });
        match reader {
            Ok(reader) => return Ok(OpenLog { place, reader, whole: limit }),
            // The log was removed after it was found, or cut behind its last record.
            Err(OpenError::Storage(StorageError::Io(failure)))
                if attempt < ATTEMPTS
                    && matches!(failure.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => {}
            // Or it was overwritten.
            Err(_) if place_of(db, seq)? != place => {}
            Err(OpenError::Storage(error)) => return Err(error.into()),
            Err(other) => return Err(StorageError::corrupt(&path, 0, other.to_string()).into()),
        }
    }
    unreachable!("the last attempt returns")
}

/// Returns the log that holds, or will hold, `wanted`.
fn place_of(db: &Session, wanted: SeqNo) -> Result<LogPart, ChangesError> {
    let state = db.state();
    let place = state.logs.place_of(wanted);
    place.ok_or_else(|| ChangesError::FellBehind { wanted, oldest: state.logs.oldest_change() })
}

impl Db {
    /// Returns a reader of all changes after the sequence number `since`, in order. Pass a
    /// [`Snapshot::seq`](crate::Snapshot::seq) or the position of an earlier reader; 0 starts with
    /// the first write of the database. The feed covers all keyspaces.
    ///
    /// Changes are read from the logs. A log is gone soon after its writes are in tables, unless it
    /// is kept for a [consumer](Db::change_consumer) or by the options
    /// [`changes_keep_bytes`](crate::Options::changes_keep_bytes) and
    /// [`changes_keep_time`](crate::Options::changes_keep_time). A reader whose next change is gone
    /// gets an error, never a feed with a hole. These are not changes: creating, renaming or
    /// dropping a keyspace, entries that expire, and the contents of ingested tables.
    ///
    /// # Errors
    ///
    /// [`ChangesError::FellBehind`] if the next change is gone; [`ChangesError::Ahead`] if no write
    /// has the number `since` yet; [`ChangesError::ReadOnly`]; [`ChangesError::Write`] while a
    /// database without room has not begun its session.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let db = tamis::Db::open(dir.path())?;
    /// let snapshot = db.snapshot();
    /// db.put("key", "value")?;
    /// let mut changes = db.changes(snapshot.seq())?;
    /// let change = changes.poll()?.expect("a change");
    /// let operation = change.operations().next().expect("an operation");
    /// assert_eq!(operation.kind, tamis::changes::OperationKind::Put { key: b"key", value: b"value" });
    /// assert!(changes.poll()?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn changes(&self, since: u64) -> Result<Changes, ChangesError> {
        self.check_process()?;
        let db = self.inner();
        if db.gate.is_read_only() {
            return Err(ChangesError::ReadOnly);
        }
        if let Some(cause) = db.gate.held_up().filter(|_| db.gate.is_waiting()) {
            return Err(WriteError::Suspended { cause }.into());
        }
        let last = db.visible();
        if since > last {
            return Err(ChangesError::Ahead { since, last });
        }
        let next = since + 1;
        // The log may still be lost before the first read, but an early error is better than a late
        // one.
        place_of(db, next)?;
        Ok(Changes { handle: self.handle().clone(), next, durable_only: false, log: None, last_wait: None })
    }
}

#[cfg(test)]
mod tests;
