//! The log files behind the `state` lock, rolled and retained, and the limits of all logs. See
//! [`log`](super).

use tamis_base::ids::LogId;
use tamis_base::key::SeqNo;
use tamis_files::wal::LogWriter;

use crate::catalogue::retained::{ClosedLog, ConsumerPosition, LogPart, RetainedLogs};
use crate::error::StorageError;
use crate::options::Options;

/// The files of all logs.
#[derive(Debug, Default)]
pub(crate) struct LogFiles {
    /// Rolled logs that are still needed, oldest first.
    pub(crate) rolled: Vec<ClosedLog>,
    pub(crate) current: LogId,
    /// The number of the current log's first write, once there is one; 0 before the session has
    /// begun.
    pub(crate) current_first: SeqNo,
    /// Obsolete logs kept for readers of changes.
    pub(crate) retained: RetainedLogs,
    /// Obsolete logs kept to be overwritten.
    pub(crate) recyclable: Vec<ClosedLog>,
    /// Obsolete logs to be removed.
    pub(crate) obsolete: Vec<ClosedLog>,
}

impl LogFiles {
    /// Returns the current log: every later write is in it or in a later one.
    pub(crate) fn current(&self) -> LogId {
        self.current
    }

    /// Sets the log from which on files count, before a session has begun.
    pub(crate) fn wait_at(&mut self, floor: LogId) {
        self.current = floor;
    }

    /// Returns the rolled logs from `floor` on, oldest first.
    pub(crate) fn rolled_from(&self, floor: LogId) -> impl Iterator<Item = LogId> + '_ {
        self.rolled.iter().map(|log| log.id).filter(move |id| *id >= floor)
    }

    /// Returns the length of a log that is still needed, if it is complete and reliable, and its
    /// file has nothing behind it.
    pub(crate) fn complete(&self, id: LogId) -> Option<u64> {
        let is_complete = |log: &&ClosedLog| !log.abandoned && log.allocated == log.bytes;
        self.rolled.iter().find(|log| log.id == id).filter(is_complete).map(|log| log.bytes)
    }

    /// Returns the rolled logs that are still needed, oldest first, to be linked elsewhere. From
    /// now on their files are never overwritten.
    pub(crate) fn share(&mut self) -> impl Iterator<Item = LogId> + '_ {
        self.rolled.iter_mut().map(|log| {
            log.keep = true;
            log.id
        })
    }

    /// Returns the number of rolled logs that are still needed, and the bytes of their records.
    pub(crate) fn rolled(&self) -> (usize, u64) {
        (self.rolled.len(), self.rolled.iter().map(|log| log.bytes).sum())
    }

    /// Returns the oldest log that is still needed.
    pub(crate) fn oldest(&self) -> LogId {
        self.rolled.first().map_or(self.current, |log| log.id)
    }

    pub(crate) fn recyclable_bytes(&self) -> u64 {
        self.recyclable.iter().map(|log| log.allocated).sum()
    }

    pub(crate) fn obsolete_bytes(&self) -> u64 {
        self.obsolete.iter().map(|log| log.allocated).sum()
    }
}

/// The limits that the options set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most that all logs may take, in bytes.
    pub(crate) most: u64,
    /// The expected size of a log when it is rolled, in bytes.
    pub(crate) expected: u64,
    /// The number of obsolete logs that may be kept.
    pub(crate) recycled: usize,
}

impl Limits {
    pub(crate) fn new(options: &Options) -> Limits {
        let bytes = options.keyspace.memtable_bytes.min(options.max_log_bytes);
        Limits {
            most: options.max_log_bytes,
            expected: bytes.saturating_add(bytes / 8),
            recycled: options.recycled_logs,
        }
    }

    /// Returns the most that all logs may take when `free` bytes are free and needed logs take
    /// `needed`. The limit falls as space gets scarce, since flushing their contents needs as much
    /// again. It is never much less than one memtable's writes.
    pub(crate) fn most(&self, needed: u64, free: Option<u64>) -> u64 {
        let least = self.expected.saturating_mul(2).min(LEAST_LOGS);
        let part = free.map_or(u64::MAX, |free| free.saturating_add(needed) / PART_OF_FREE);
        self.most.min(part.max(least))
    }

    /// Returns the size of the next reservation of a log of `len` bytes.
    pub(crate) fn step(&self, len: u64) -> u64 {
        let of_all = (self.most / 8).max(1);
        let first = FIRST_STEP.min(self.expected).min(of_all);
        (len / 2).clamp(first, LARGEST_STEP.min(of_all).max(first))
    }

    /// Returns how much space appending `bytes` would add to the log.
    pub(crate) fn growth(&self, log: &LogWriter, bytes: u64) -> u64 {
        let end = log.len().saturating_add(bytes).saturating_add(RECORD_BYTES);
        // Half a step ahead of need: the file system prepares whole pieces of reserved space for
        // appends.
        let step = self.step(end);
        if end.saturating_add(step / 2) <= log.allocated() {
            return 0;
        }
        end.saturating_add(step).saturating_sub(log.allocated())
    }
}

impl LogFiles {
    /// Creates the list of a database whose session has not begun.
    pub(crate) fn new(options: &Options) -> LogFiles {
        let mut files = LogFiles::default();
        files.retained.keep_bytes = options.changes_keep_bytes;
        files.retained.keep_time = options.changes_keep_time.map(|time| time.as_secs());
        files.retained.most_bytes = options.changes_max_bytes;
        files
    }

    /// Returns all logs but the current one that are needed, by the database or by readers of
    /// changes, oldest first with their lengths.
    pub(crate) fn closed(&self) -> impl Iterator<Item = (LogId, u64)> + '_ {
        let retained = self.retained.logs.iter().map(|(log, _)| log).filter(|log| !log.abandoned);
        retained.chain(&self.rolled).map(|log| (log.id, log.bytes))
    }

    /// Returns the logs that can be read, oldest first, each with its first number.
    fn readable(&self) -> impl DoubleEndedIterator<Item = (LogId, SeqNo)> + '_ {
        // Writes before a log that cannot be read may have been superseded by writes in it.
        let unknown = self.retained.logs.iter().rposition(|(log, _)| log.first_seq.is_none());
        let known = &self.retained.logs[unknown.map_or(0, |unknown| unknown + 1)..];
        let closed = known.iter().map(|(log, _)| log).chain(&self.rolled);
        let closed = closed.filter_map(|log| Some((log.id, log.first_seq?)));
        closed.chain((self.current_first > 0).then_some((self.current, self.current_first)))
    }

    /// Returns the log that holds the write with this number, or will hold it; `None` if the log is
    /// gone.
    pub(crate) fn place_of(&self, seq: SeqNo) -> Option<LogPart> {
        let mut until = SeqNo::MAX;
        for (log, first) in self.readable().rev() {
            if first <= seq {
                return Some(LogPart { log, until });
            }
            until = until.min(first);
        }
        None
    }

    /// Returns the smallest number whose write can be read, or will be.
    pub(crate) fn oldest_change(&self) -> SeqNo {
        self.readable().map(|(_, first)| first).min().unwrap_or(0)
    }

    /// Returns the number of logs kept for readers of changes, and their size on disk in bytes.
    pub(crate) fn retained(&self) -> (usize, u64) {
        (self.retained.logs.len(), self.retained.allocated())
    }

    /// Reports whether a log of an earlier session is kept.
    pub(crate) fn retains(&self, id: LogId) -> bool {
        self.retained.logs.iter().any(|(log, _)| log.id == id)
    }

    /// Reports whether logs of earlier sessions should be kept for readers of changes.
    pub(crate) fn keeps_changes(&self) -> bool {
        self.retained.keeps_any()
    }

    /// Keeps logs of earlier sessions whose writes are in tables, given by their numbers, first
    /// writes and sizes. A log that cannot be read now has no first write, and is kept for the next
    /// session.
    pub(crate) fn retain_found(&mut self, logs: &[(LogId, Option<SeqNo>, u64)], now: u64) {
        let found = logs.iter().map(|&(id, first, bytes)| ClosedLog::found(id, first, bytes));
        self.retained.extend_found(found, now);
    }

    /// Keeps all logs, since it is unknown who needs them.
    pub(crate) fn keep_all(&mut self, error: StorageError) {
        self.retained.keeps_all = Some(error);
    }

    /// Returns why there may be unknown consumers.
    pub(crate) fn unknown_consumers(&self) -> Option<&StorageError> {
        self.retained.keeps_all.as_ref()
    }

    /// Returns the consumers with the last number that each has acknowledged.
    pub(crate) fn consumers(&self) -> impl Iterator<Item = (&str, SeqNo)> {
        self.retained.consumers.iter().map(|(name, consumer)| (&name[..], consumer.position))
    }

    /// Returns the position of a consumer.
    pub(crate) fn consumer(&self, name: &str) -> Option<SeqNo> {
        self.retained.consumers.get(name).map(|consumer| consumer.position)
    }

    /// Adds a consumer that has acknowledged everything up to `position`, unless the name is taken.
    pub(crate) fn add_consumer(&mut self, name: &str, position: SeqNo) {
        let new = ConsumerPosition { position, held: position, pending: None, written: 0 };
        self.retained.consumers.entry(name.to_owned()).or_insert(new);
    }

    /// Removes a consumer. Returns `false` if there is none of this name.
    pub(crate) fn remove_consumer(&mut self, name: &str) -> bool {
        self.retained.consumers.remove(name).is_some()
    }

    /// Records an acknowledgement that was written at or before the number `written`. Returns
    /// `false` if there is no such consumer.
    pub(crate) fn acknowledge(&mut self, name: &str, position: SeqNo, written: SeqNo) -> bool {
        let Some(consumer) = self.retained.consumers.get_mut(name) else { return false };
        (consumer.position, consumer.written) = (consumer.position.max(position), written);
        // An earlier one stays: otherwise frequent acknowledgements would never become durable.
        consumer.pending.get_or_insert((consumer.position, written));
        true
    }
}

/// The first step of a log, in bytes.
pub(crate) const FIRST_STEP: u64 = 256 << 10;

/// The largest step, in bytes.
pub(crate) const LARGEST_STEP: u64 = 4 << 20;

/// An upper bound on a record's size without its batches, in bytes: two heads (one is the closing
/// record's) and a group's header.
pub(crate) const RECORD_BYTES: u64 = 96;

/// All logs take at most the free space divided by this, or [`LEAST_LOGS`] if that is more.
pub(crate) const PART_OF_FREE: u64 = 4;

/// Logs may take this many bytes however little is free.
pub(crate) const LEAST_LOGS: u64 = 128 << 10;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tamis_files::wal::{LogHeader, LogKind};

    use super::*;
    use crate::io::{FileSystem, MemFs, Usage};

    fn limits() -> Limits {
        Limits { most: 1 << 30, expected: 64 << 20, recycled: 0 }
    }

    fn log() -> LogWriter {
        let (fs, path) = (MemFs::new(), Path::new("/000001.log"));
        let header = LogHeader { kind: LogKind::Writes, id: 1, reused: false };
        LogWriter::create(fs.create(path, Usage::Log).unwrap(), path, header).unwrap()
    }

    /// Otherwise a synced append would wait for a reservation that could have been made before.
    #[test]
    fn a_log_grows_by_a_step_once_less_than_half_a_step_is_left() {
        let (limits, mut log) = (limits(), log());
        let first = limits.growth(&log, 0);
        assert_eq!(log.allocated() + first, log.len() + RECORD_BYTES + FIRST_STEP);
        assert!(log.preallocate(log.allocated() + first));
        assert_eq!(limits.growth(&log, 0), 0);
        assert_eq!(limits.growth(&log, FIRST_STEP / 2), 0, "half a step is left");
        assert_eq!(limits.growth(&log, FIRST_STEP / 2 + 1), FIRST_STEP / 2 + 1, "less is left");
    }

    #[test]
    fn steps_are_half_of_the_log_and_at_most_an_eighth_of_all_logs() {
        let limits = limits();
        assert_eq!(limits.step(0), FIRST_STEP);
        assert_eq!(limits.step(2 * FIRST_STEP), FIRST_STEP);
        assert_eq!(limits.step(3 << 20), 3 << 19);
        assert_eq!(limits.step(1 << 30), LARGEST_STEP);
        let few = Limits { most: 1 << 20, ..limits };
        assert_eq!((few.step(0), few.step(1 << 30)), (128 << 10, 128 << 10));
        let tiny = Limits { expected: 1000, ..limits };
        assert_eq!(tiny.step(0), 1000, "no more than such a log usually gets");
    }

    #[test]
    fn the_limit_of_all_logs_falls_with_the_free_space_but_leaves_room_for_a_few_writes() {
        let limits = limits();
        assert_eq!(limits.most(0, None), 1 << 30);
        assert_eq!(limits.most(0, Some(1 << 40)), 1 << 30);
        assert_eq!(limits.most(3 << 20, Some(5 << 20)), 2 << 20, "a quarter of what logs could take");
        assert_eq!(limits.most(0, Some(0)), LEAST_LOGS);
        let small = Limits { expected: 10 << 10, ..limits };
        assert_eq!(small.most(0, Some(0)), 20 << 10, "two logs of small memtables");
    }

    fn closed(id: LogId, bytes: u64, allocated: u64) -> ClosedLog {
        ClosedLog { allocated, ..ClosedLog::found(id, Some(10 * id), bytes) }
    }

    /// A sum that is too small lets logs take more space than they may.
    #[test]
    fn obsolete_logs_count_with_their_size_on_disk() {
        let files = LogFiles {
            recyclable: vec![closed(1, 10, 100), closed(2, 10, 200)],
            obsolete: vec![closed(3, 10, 400), closed(4, 10, 800)],
            ..LogFiles::default()
        };
        assert_eq!((files.recyclable_bytes(), files.obsolete_bytes()), (300, 1200));
        assert_eq!(files.rolled(), (0, 0));
    }

    /// The memtables that hold it back are flushed first when logs take too much.
    #[test]
    fn the_oldest_log_is_the_first_rolled_one_or_the_current_one() {
        let mut files = LogFiles { current: 9, ..LogFiles::default() };
        assert_eq!(files.oldest(), 9);
        files.rolled = vec![closed(5, 10, 10), closed(7, 20, 20)];
        assert_eq!(files.oldest(), 5);
        assert_eq!(files.rolled(), (2, 30));
        assert_eq!(files.rolled_from(6).collect::<Vec<_>>(), [7]);
    }

    /// A log with an unreliable end, or with space behind it, is not whole when it is copied.
    #[test]
    fn only_a_reliable_log_without_space_behind_it_is_complete() {
        let files = LogFiles {
            rolled: vec![
                closed(1, 10, 10),
                closed(2, 10, 11),
                ClosedLog { abandoned: true, ..closed(3, 10, 10) },
            ],
            ..LogFiles::default()
        };
        assert_eq!([1, 2, 3, 4].map(|id| files.complete(id)), [Some(10), None, None, None]);
    }

    /// Writes before a log that cannot be read may have been superseded by writes in it.
    #[test]
    fn changes_can_be_read_only_behind_a_log_that_cannot() {
        let unknown = |id| ClosedLog::found(id, None, 10);
        let mut files = LogFiles { current: 9, current_first: 90, ..LogFiles::default() };
        let kept = [closed(1, 10, 10), unknown(2), closed(3, 10, 10), unknown(4), closed(5, 10, 10)];
        files.retained.logs = kept.into_iter().map(|log| (log, 0)).collect();
        files.rolled = vec![closed(7, 10, 10)];
        assert_eq!(files.oldest_change(), 50);
        assert_eq!(files.place_of(49), None);
        assert_eq!(files.place_of(50), Some(LogPart { log: 5, until: 70 }));
        assert_eq!(files.place_of(89), Some(LogPart { log: 7, until: 90 }));
        assert_eq!(files.place_of(90), Some(LogPart { log: 9, until: SeqNo::MAX }));
    }

    #[test]
    fn a_session_that_has_not_begun_waits_at_the_first_log_that_is_needed() {
        let mut files = LogFiles::default();
        files.wait_at(5);
        assert_eq!((files.current(), files.oldest()), (5, 5));
        assert_eq!((files.place_of(1), files.oldest_change()), (None, 0), "it has no writes");
        files.current_first = 1;
        assert_eq!(files.place_of(1), Some(LogPart { log: 5, until: SeqNo::MAX }));
        assert_eq!((files.place_of(0), files.oldest_change()), (None, 1));
    }

    /// The end of a log that was abandoned is unreliable.
    #[test]
    fn logs_that_were_abandoned_are_not_needed_by_readers_of_changes() {
        let mut files = LogFiles { current: 9, rolled: vec![closed(7, 70, 70)], ..LogFiles::default() };
        let abandoned = ClosedLog { abandoned: true, ..closed(4, 40, 40) };
        files.retained.logs = [closed(3, 30, 30), abandoned].into_iter().map(|log| (log, 0)).collect();
        assert_eq!(files.closed().collect::<Vec<_>>(), [(3, 30), (7, 70)]);
    }

    #[test]
    fn a_step_is_at_least_a_byte() {
        let none = Limits { most: 7, ..limits() };
        assert_eq!((none.step(0), none.step(1 << 30)), (1, 1));
    }
}
