//! The logs of a followed database, and the memtables that hold their writes.

use std::sync::Arc;

use tamis_base::collections::HashMap;
use tamis_base::ids::{KeyspaceId, LogId};
use tamis_base::key::SeqNo;
use tamis_files::tree::files::{log_path, manifest_path};
use tamis_files::tree::found::Files;
use tamis_files::tree::replay::first_write;
use tamis_files::tree::state::ManifestState;
use tamis_files::wal::ops::{GroupHeader, Ops};
use tamis_files::wal::{End, LogKind, LogReader, ReadOptions};
use tamis_filter::Digest;

use crate::catalogue::Directory;
use crate::catalogue::keyspace::KeyspaceInner;
use crate::error::{OpenError, StorageError};
use crate::io::Access;
use crate::read::{MemtableSlot, Memtables};
use crate::session::Session;

/// The maximum bytes of records held back until they are published.
const MOST_HELD: usize = 4 << 20;

/// Keyspaces not published yet.
pub(super) type Keyspaces = HashMap<KeyspaceId, Arc<KeyspaceInner>>;

/// The writes of one log to one keyspace.
#[derive(Debug)]
struct LogMemtable {
    log: LogId,
    slot: Arc<MemtableSlot>,
    /// Whether readers have it.
    published: bool,
}

/// A record of a log.
#[derive(Debug)]
struct HeldRecord {
    log: LogId,
    first_seq: SeqNo,
    operations: Box<[u8]>,
}

/// The log being read.
#[derive(Debug)]
struct Position {
    log: LogId,
    /// `None` after an error: the log is then reread from its beginning, skipping known records.
    reader: Option<LogReader>,
    /// The last of its writes in memtables or held back; 0 if there is none.
    last_seq: SeqNo,
    /// Whether logs before it were not read, so that its first write may have any number.
    jumped: bool,
    /// Where the reader stood when the bytes after the last record were last checked.
    looked_at: u64,
}

/// The logs of a followed database. See the documentation of [the module above](super).
#[derive(Debug, Default)]
pub(super) struct FollowedLogs {
    /// The logs in the directory when the manifest last changed, ascending.
    listed: Vec<LogId>,
    position: Option<Position>,
    /// Finished logs that are still needed, and their lengths.
    passed: Vec<(LogId, u64)>,
    /// The last write read.
    last_seq: SeqNo,
    memtables: HashMap<KeyspaceId, Vec<LogMemtable>>,
    /// Records that were read but are in no memtable yet, and their bytes.
    held: Vec<HeldRecord>,
    held_bytes: usize,
    /// Finished logs that were read only to find out what they hold.
    known: HashMap<LogId, FinishedLog>,
}

/// A log that takes no more writes and holds at least one record.
#[derive(Clone, Copy, Debug)]
struct FinishedLog {
    first_seq: SeqNo,
    last_seq: SeqNo,
    bytes: u64,
}

impl FinishedLog {
    /// Reads a log to its end. `None` if it is not closed or holds nothing.
    fn read(db: &Session, log: LogId) -> Result<Option<FinishedLog>, OpenError> {
        let path = log_path(&db.dir, log);
        let file = db.fs.open(&path, Access::Sequential).map_err(|e| StorageError::io("open", &path, e))?;
        let mut reader = LogReader::open(file, &path, LogKind::Writes, log, ReadOptions::default())?;
        let mut numbers: Option<(SeqNo, SeqNo)> = None;
        while let Some(record) = reader.next_record()? {
            let (header, _) = GroupHeader::decode(record.payload)
                .map_err(|e| StorageError::corrupt(&path, record.offset, e.to_string()))?;
            let last = header.first_seq.saturating_add(header.count).saturating_sub(1);
            numbers = Some((numbers.map_or(header.first_seq, |(first, _)| first), last));
        }
        let is_closed = matches!(reader.end(), Some(End::Closed { .. }));
        let finished = |(first_seq, last_seq)| FinishedLog { first_seq, last_seq, bytes: reader.pos() };
        Ok(numbers.filter(|_| is_closed).map(finished))
    }
}

impl FollowedLogs {
    /// Returns the last write read.
    pub(super) fn last_seq(&self) -> SeqNo {
        self.last_seq
    }

    /// Returns the last log reached.
    pub(super) fn current(&self) -> Option<LogId> {
        self.position.as_ref().map(|position| position.log)
    }

    /// Returns the logs that are needed, and their lengths.
    pub(super) fn ends(&self) -> Vec<(LogId, u64)> {
        let position = self.position.as_ref();
        // Without a header, the log is empty, and part of the database if another one names it.
        let end = |position: &Position| position.reader.as_ref().map_or(0, LogReader::pos);
        let last = position.map(|position| (position.log, end(position)));
        self.passed.iter().copied().chain(last).collect()
    }

    /// Returns the logs before `needed` that the writer still has, and their lengths: those that
    /// lead up to the write `next` without a gap, newest first. Reads each log once.
    pub(super) fn before(&mut self, db: &Session, needed: Option<LogId>, next: SeqNo) -> Vec<(LogId, u64)> {
        let Some(needed) = needed.filter(|_| self.list(db).is_ok()) else { return Vec::new() };
        self.known.retain(|log, _| self.listed.binary_search(log).is_ok());
        let Ok(first) = first_write(&*db.fs, &log_path(&db.dir, needed), needed) else { return Vec::new() };
        let mut next = first.map_or(next, |(first, _)| first);
        let mut found = Vec::new();
        for &log in self.listed.iter().rev().skip_while(|log| **log >= needed) {
            let finished = match self.known.get(&log) {
                Some(finished) => Some(*finished),
                // A log that cannot be read, or is overwritten meanwhile, is as good as gone.
                None => FinishedLog::read(db, log).ok().flatten(),
            };
            let Some(finished) = finished.filter(|log| log.last_seq.checked_add(1) == Some(next)) else {
                break;
            };
            self.known.insert(log, finished);
            found.push((log, finished.bytes));
            next = finished.first_seq;
        }
        found
    }

    /// Makes the next read reopen the last log.
    pub(super) fn open_anew(&mut self) {
        if let Some(position) = &mut self.position {
            position.reader = None;
        }
    }

    /// Forgets the writes to a keyspace.
    pub(super) fn forget(&mut self, keyspace: KeyspaceId) {
        self.memtables.remove(&keyspace);
    }

    /// Lists the logs in the directory.
    pub(super) fn list(&mut self, db: &Session) -> Result<(), StorageError> {
        self.listed = Files::list(&*db.fs, &db.dir)?.logs;
        Ok(())
    }

    /// Reads the logs to their end. Returns `false` if they hold more than the manifest that was
    /// read explains. With `is_first`, the end of a log that does not grow is checked for damage at
    /// once.
    pub(super) fn read(
        &mut self,
        db: &Session,
        state: &ManifestState,
        newcomers: &Keyspaces,
        is_first: bool,
    ) -> Result<bool, OpenError> {
        let floor = state.log_floor();
        if self.position.as_ref().is_none_or(|position| position.log < floor) {
            // Everything before the floor is in tables.
            self.position = Some(Position::new(floor, true));
            self.last_seq = 0;
        }
        self.passed.retain(|(log, _)| *log >= floor);
        loop {
            let position = self.position.as_mut().expect("set above");
            if position.reader.is_none() && !position.open(db)? {
                // A log without a header holds nothing yet.
                return Ok(true);
            }
            let before = self.last_seq;
            if !self.read_log(db, state, newcomers)? {
                return Ok(false);
            }
            let position = self.position.as_mut().expect("set above");
            let is_still = is_first || before == self.last_seq;
            let (is_closed, named) = match position.reader.as_ref().and_then(LogReader::end) {
                Some(End::Closed { successor, .. }) => (true, *successor),
                _ => (false, None),
            };
            let listed = self.listed.iter().copied().find(|id| *id > position.log);
            let Some(next) = named.or(listed) else {
                position.look_behind(is_still)?;
                return Ok(true);
            };
            let mut following = Position::new(next, position.jumped && position.last_seq == 0);
            let first = match following.first_record(db) {
                // A log that was created ahead and not needed.
                Err(OpenError::Storage(error)) if named.is_none() && is_missing(&error) => None,
                first => first?,
            };
            if !is_closed {
                let Some(first) = first else {
                    // The log that takes writes may already have a successor, which is empty.
                    position.look_behind(is_still)?;
                    return Ok(true);
                };
                // A writer closes a log before the next one gets its first record, so the closing
                // record must be there by now.
                if !self.read_log(db, state, newcomers)? {
                    return Ok(false);
                }
                let position = self.position.as_mut().expect("set above");
                if position.is_closed() {
                    continue;
                }
                position.look_behind(true)?;
                if first.older_logs_synced {
                    let at = position.reader.as_ref().map(LogReader::pos);
                    let what = "the log ends without its closing record";
                    return Err(StorageError::corrupt(&log_path(&db.dir, position.log), at, what).into());
                }
                // A power failure took the closing record: later logs do not count.
                return Ok(true);
            }
            let first = first.map(|first| first.first_seq);
            if let Some(first) = first.filter(|first| !following.jumped && *first != self.last_seq + 1) {
                let what = format!("its first write is number {first}, expected {}", self.last_seq + 1);
                return Err(StorageError::corrupt(&log_path(&db.dir, next), None, what).into());
            }
            if first.is_none() && named.is_none() {
                return Ok(true);
            }
            self.passed.push((position.log, position.reader.as_ref().map_or(0, LogReader::pos)));
            self.position = Some(following);
        }
    }

    /// Checks the end of the logs against that of manifest `number`, as an opening does (`wrong_end`
    /// in [`recover`](crate::open::recover)). Both were read to their ends, the logs last.
    /// `closed_after` is the last write that a closed manifest records.
    pub(super) fn wrong_end(
        &self,
        db: &Session,
        number: u64,
        closed_after: Option<SeqNo>,
    ) -> Option<StorageError> {
        let position = self.position.as_ref()?;
        let path = log_path(&db.dir, position.log);
        if let Some(known) = closed_after {
            // Without any record, everything is in tables, and the log was empty and was closed.
            let is_right = self.last_seq == known || (self.last_seq == 0 && position.is_closed());
            let what = || {
                let read = self.last_seq;
                format!("the log ends with write {read}, but the database was closed after write {known}")
            };
            return (!is_right).then(|| StorageError::corrupt(&path, None, what()));
        }
        let is_last = self.listed.last().is_none_or(|last| *last <= position.log);
        if position.is_closed() && position.last_seq > 0 && is_last {
            let manifest = manifest_path(&db.dir, number);
            let manifest = manifest.display();
            let what = format!(
                "it was finished, but neither a later log nor the closing record of {manifest} exists"
            );
            return Some(StorageError::corrupt(&path, None, what));
        }
        None
    }

    /// Reads the rest of the current log. Returns `false` at a write to a keyspace that `state`
    /// does not have yet.
    fn read_log(
        &mut self,
        db: &Session,
        state: &ManifestState,
        newcomers: &Keyspaces,
    ) -> Result<bool, OpenError> {
        let position = self.position.as_mut().expect("there is a log to be read");
        let log = position.log;
        let path = log_path(&db.dir, log);
        let reader = position.reader.as_mut().expect("open");
        let directory = db.keyspaces.directory.load_full();
        let mut unknown = false;
        while let Some(record) = reader.poll()? {
            let damaged = |what: &str| StorageError::corrupt(&path, record.offset, what);
            let (header, operations) =
                GroupHeader::decode(record.payload).map_err(|e| damaged(&e.to_string()))?;
            let last = header.first_seq.saturating_add(header.count).saturating_sub(1);
            if last <= position.last_seq {
                continue;
            }
            let begins = position.last_seq == 0 && position.jumped;
            if !begins && header.first_seq != self.last_seq + 1 {
                let what =
                    format!("its first write is number {}, expected {}", header.first_seq, self.last_seq + 1);
                return Err(damaged(&what).into());
            }
            // Take all of the record or nothing.
            let mut count = 0;
            for op in Ops::new(operations) {
                let op = op.map_err(|e| damaged(&e.to_string()))?;
                count += 1;
                unknown |= op.keyspace() >= state.next_keyspace;
            }
            if count != header.count {
                return Err(damaged("a record whose count of operations is wrong").into());
            }
            if unknown {
                break;
            }
            self.held_bytes += operations.len();
            self.held.push(HeldRecord { log, first_seq: header.first_seq, operations: operations.into() });
            (position.last_seq, self.last_seq) = (last, last);
            if self.held_bytes > MOST_HELD {
                apply(&mut self.memtables, self.held.drain(..), &directory, newcomers, state, |_| None);
                self.held_bytes = 0;
            }
        }
        if unknown {
            // The record is reread once the keyspace is known.
            position.reader = None;
        }
        Ok(!unknown)
    }

    /// Applies the records that were held back.
    pub(super) fn apply_held(
        &mut self,
        directory: &Directory,
        newcomers: &Keyspaces,
        state: &ManifestState,
        visible: impl Fn(KeyspaceId) -> Option<SeqNo>,
    ) {
        apply(&mut self.memtables, self.held.drain(..), directory, newcomers, state, visible);
        self.held_bytes = 0;
    }

    /// Reports whether there are writes that readers do not have yet.
    pub(super) fn has_unpublished(&self) -> bool {
        !self.held.is_empty() || self.memtables.values().flatten().any(|memtable| !memtable.published)
    }

    /// Drops the memtables whose writes are in tables. Returns the keyspace's current memtables if
    /// they changed.
    pub(super) fn memtables_of(
        &mut self,
        keyspace: &KeyspaceInner,
        floor: LogId,
        old: &Memtables,
    ) -> Option<Memtables> {
        let kept = self.memtables.entry(keyspace.id).or_default();
        kept.retain(|memtable| memtable.log >= floor);
        kept.iter_mut().for_each(|memtable| memtable.published = true);
        let mut slots: Vec<_> = kept.iter().rev().map(|memtable| memtable.slot.clone()).collect();
        if slots.is_empty() {
            // One empty memtable is as good as another.
            let is_empty = old.active.memtable.is_empty();
            slots.push(if is_empty { old.active.clone() } else { keyspace.fresh_memtable(0) });
        }
        let new = Memtables { active: slots.remove(0), sealed: slots };
        let same = old.sealed.len() == new.sealed.len()
            && old.iter().zip(new.iter()).all(|(old, new)| Arc::ptr_eq(old, new));
        (!same).then_some(new)
    }
}

impl Position {
    fn new(log: LogId, jumped: bool) -> Position {
        Position { log, reader: None, last_seq: 0, jumped, looked_at: 0 }
    }

    /// Opens the log; `false` if it has no header yet.
    fn open(&mut self, db: &Session) -> Result<bool, OpenError> {
        let path = log_path(&db.dir, self.log);
        let file = db.fs.open(&path, Access::Sequential).map_err(|e| StorageError::io("open", &path, e))?;
        let reader = LogReader::open(file, &path, LogKind::Writes, self.log, ReadOptions::default())?;
        let has_header = reader.end().is_none();
        self.reader = has_header.then_some(reader);
        Ok(has_header)
    }

    fn is_closed(&self) -> bool {
        matches!(self.reader.as_ref().and_then(LogReader::end), Some(End::Closed { .. }))
    }

    /// Returns what the log's first record says about itself, if there is one. To read the log,
    /// reopen it.
    fn first_record(&mut self, db: &Session) -> Result<Option<GroupHeader>, OpenError> {
        if !self.open(db)? {
            return Ok(None);
        }
        let path = log_path(&db.dir, self.log);
        let mut reader = self.reader.take().expect("just opened");
        let Some(record) = reader.poll()? else { return Ok(None) };
        let header = GroupHeader::decode(record.payload);
        let (header, _) = header.map_err(|e| StorageError::corrupt(&path, record.offset, e.to_string()))?;
        Ok(Some(header))
    }

    /// Checks the bytes after the last record of a log that has not grown: damage there is an
    /// error. Checks each position once.
    fn look_behind(&mut self, is_still: bool) -> Result<(), StorageError> {
        let Some(reader) = &mut self.reader else { return Ok(()) };
        if is_still && self.looked_at != reader.pos() {
            reader.look_behind()?;
            self.looked_at = reader.pos();
        }
        Ok(())
    }
}

fn is_missing(error: &StorageError) -> bool {
    matches!(error, StorageError::Io(failure) if failure.kind() == std::io::ErrorKind::NotFound)
}

/// Applies records to the memtables of their logs. `visible` returns the visible number if a
/// keyspace's published memtable may take more records.
fn apply(
    memtables: &mut HashMap<KeyspaceId, Vec<LogMemtable>>,
    records: impl Iterator<Item = HeldRecord>,
    directory: &Directory,
    newcomers: &Keyspaces,
    state: &ManifestState,
    visible: impl Fn(KeyspaceId) -> Option<SeqNo>,
) {
    for HeldRecord { log, first_seq, operations } in records {
        // The records were decoded successfully before.
        for (seq, op) in (first_seq..).zip(Ops::new(&operations).flatten()) {
            let id = op.keyspace();
            // Operations on dropped keyspaces are skipped.
            let Some(keyspace) = directory.get(&id).or_else(|| newcomers.get(&id)) else { continue };
            if state.keyspaces.get(&id).is_none_or(|stored| log < state.floor_of(stored)) {
                continue;
            }
            let memtables = memtables.entry(id).or_default();
            let takes_more = |last: &&LogMemtable| {
                last.log == log && (!last.published || visible(id).is_some_and(|visible| seq > visible))
            };
            if memtables.last().filter(takes_more).is_none() {
                memtables.push(LogMemtable { log, slot: keyspace.fresh_memtable(log), published: false });
            }
            let memtable = memtables.last().expect("just added");
            memtable.slot.memtable.writer().insert_op(&op, op.key().map(Digest::of), seq, None);
        }
    }
}

#[cfg(test)]
mod tests;
