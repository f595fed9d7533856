//! Obsolete logs that are kept for [readers of changes](crate::db::changes).
//!
//! A log is kept while a named consumer has not acknowledged all of its writes, while it is younger
//! than [`changes_keep_time`](crate::Options::changes_keep_time), and while all kept logs take no
//! more than [`changes_keep_bytes`](crate::Options::changes_keep_bytes); but the oldest go, whoever
//! needs them, beyond [`changes_max_bytes`](crate::Options::changes_max_bytes).
//!
//! # Which records count
//!
//! A log that was given up may hold a record that never was part of the database, for its sync
//! failed. Its numbers were given again, to writes of a later log. So of the logs that hold a
//! number, the last one counts, and a log counts up to the first number of every later one
//! ([`LogFiles::place_of`]). Nothing else need be known about how a log ended, and what a crash
//! leaves behind is read as what a running database keeps. Where logs are kept, they are synced
//! before tables that hold the same writes are published, so that they are not cut short by a power
//! failure that the tables survive. After one, numbers go on where the logs end. They are missing
//! in between only where a log could not be synced: readers are told as if they had fallen behind.
//!
//! # Consumers
//!
//! What a consumer acknowledges holds no log back once the acknowledgement is durable: if it is
//! lost, the consumer begins again where it was before, and finds the logs that it needs.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Acquire, Release};

use tamis_base::ids::LogId;
use tamis_base::key::SeqNo;

use super::{ClosedLog, Log, LogFiles};
use crate::error::StorageError;
use crate::options::Options;

/// The part of the changes that one log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) log: LogId,
    /// Records from this number on are not part of the database.
    pub(crate) until: SeqNo,
}

/// How far a named consumer is.
#[derive(Clone, Copy, Debug)]
struct Consumer {
    /// The last number that it has acknowledged.
    position: SeqNo,
    /// The last acknowledgement that is known to be durable.
    held: SeqNo,
    /// An acknowledgement that is durable once everything up to the second number is.
    pending: Option<(SeqNo, SeqNo)>,
    /// A number at or behind that of the last acknowledgement's own write.
    written: SeqNo,
}

/// The limits, the consumers, and the logs.
#[derive(Debug, Default)]
pub(super) struct RetainedLogs {
    keep_bytes: u64,
    /// In seconds.
    keep_time: Option<u64>,
    most_bytes: u64,
    consumers: BTreeMap<String, Consumer>,
    /// Why there may be consumers that are not known.
    keeps_all: Option<StorageError>,
    /// Oldest first, each with the time from which it was obsolete, in seconds since 1970.
    logs: Vec<(ClosedLog, u64)>,
}

impl RetainedLogs {
    /// Reports whether any log may be kept.
    fn keeps_any(&self) -> bool {
        self.keep_bytes > 0 || self.keep_time.is_some() || !self.consumers.is_empty()
    }

    pub(super) fn allocated(&self) -> u64 {
        self.logs.iter().map(|(log, _)| log.allocated).sum()
    }

    pub(super) fn extend(&mut self, logs: Vec<ClosedLog>, now: u64) {
        self.logs.extend(logs.into_iter().map(|log| (log, now)));
    }

    /// Keeps logs of earlier sessions.
    pub(super) fn extend_found(&mut self, logs: impl Iterator<Item = ClosedLog>, now: u64) {
        let known: Vec<LogId> = self.logs.iter().map(|(log, _)| log.id).collect();
        self.logs.extend(logs.filter(|log| !known.contains(&log.id)).map(|log| (log, now)));
        self.logs.sort_by_key(|(log, _)| log.id);
    }

    /// Returns the last number that every consumer has acknowledged durably, if everything up to
    /// `durable` is.
    fn acknowledged(&mut self, durable: SeqNo) -> SeqNo {
        for consumer in self.consumers.values_mut() {
            while let Some((position, _)) = consumer.pending.filter(|(_, written)| *written <= durable) {
                consumer.held = position;
                let is_newer = consumer.position > position;
                consumer.pending = is_newer.then_some((consumer.position, consumer.written));
            }
        }
        match self.keeps_all {
            Some(_) => 0,
            None => self.consumers.values().map(|consumer| consumer.held).min().unwrap_or(SeqNo::MAX),
        }
    }
}

impl ClosedLog {
    /// A log of an earlier session, which nobody overwrites.
    pub(super) fn found(id: LogId, first_seq: Option<SeqNo>, bytes: u64) -> ClosedLog {
        ClosedLog { id, first_seq, bytes, allocated: bytes, keep: true, syncs: 0, abandoned: false }
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

    /// Returns all logs but the current one that are needed, for the database or for readers of
    /// changes, oldest first with their lengths.
    pub(crate) fn closed(&self) -> impl Iterator<Item = (LogId, u64)> + '_ {
        let retained = self.retained.logs.iter().map(|(log, _)| log).filter(|log| !log.abandoned);
        retained.chain(&self.rolled).map(|log| (log.id, log.bytes))
    }

    /// Returns the logs that can be read, oldest first, each with its first number.
    fn readable(&self) -> impl DoubleEndedIterator<Item = (LogId, SeqNo)> + '_ {
        // What is before a log that cannot be read may have been given up for what is in it.
        let unknown = self.retained.logs.iter().rposition(|(log, _)| log.first_seq.is_none());
        let known = &self.retained.logs[unknown.map_or(0, |unknown| unknown + 1)..];
        let closed = known.iter().map(|(log, _)| log).chain(&self.rolled);
        let closed = closed.filter_map(|log| Some((log.id, log.first_seq?)));
        closed.chain((self.current_first > 0).then_some((self.current, self.current_first)))
    }

    /// Returns the log that holds the write of this number, or will hold it; `None` if it is gone.
    pub(crate) fn place_of(&self, seq: SeqNo) -> Option<Place> {
        let mut until = SeqNo::MAX;
        for (log, first) in self.readable().rev() {
            if first <= seq {
                return Some(Place { log, until });
            }
            until = until.min(first);
        }
        None
    }

    /// Returns the oldest number whose write can be read, or will be.
    pub(crate) fn oldest_change(&self) -> SeqNo {
        self.readable().map(|(_, first)| first).min().unwrap_or(0)
    }

    /// Returns the number of logs that are kept for readers of changes, and their size on disk in
    /// bytes.
    pub(crate) fn retained(&self) -> (usize, u64) {
        (self.retained.logs.len(), self.retained.allocated())
    }

    /// Reports whether a log of an earlier session is kept.
    pub(crate) fn retains(&self, id: LogId) -> bool {
        self.retained.logs.iter().any(|(log, _)| log.id == id)
    }

    /// Reports whether logs of earlier sessions are to be kept for readers of changes.
    pub(crate) fn keeps_changes(&self) -> bool {
        self.retained.keeps_any()
    }

    /// Keeps logs of earlier sessions whose writes are in tables, given by their numbers, first
    /// writes and sizes; without a first write, if they cannot be read now, for the next session.
    pub(crate) fn retain_found(&mut self, logs: &[(LogId, Option<SeqNo>, u64)], now: u64) {
        let found = logs.iter().map(|&(id, first, bytes)| ClosedLog::found(id, first, bytes));
        self.retained.extend_found(found, now);
    }

    /// Keeps all logs, since it is not known who needs them.
    pub(crate) fn keep_all(&mut self, error: StorageError) {
        self.retained.keeps_all = Some(error);
    }

    /// Returns why there may be consumers that are not known.
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

    /// Adds a consumer that has acknowledged everything up to `position`, unless there is one of
    /// this name.
    pub(crate) fn add_consumer(&mut self, name: &str, position: SeqNo) {
        let new = Consumer { position, held: position, pending: None, written: 0 };
        self.retained.consumers.entry(name.to_owned()).or_insert(new);
    }

    /// Removes a consumer; `false` if there is none of this name.
    pub(crate) fn remove_consumer(&mut self, name: &str) -> bool {
        self.retained.consumers.remove(name).is_some()
    }

    /// Records an acknowledgement that was written at or before the number `written`. `false` if
    /// there is no such consumer.
    pub(crate) fn acknowledge(&mut self, name: &str, position: SeqNo, written: SeqNo) -> bool {
        let Some(consumer) = self.retained.consumers.get_mut(name) else { return false };
        (consumer.position, consumer.written) = (consumer.position.max(position), written);
        // An earlier one is not forgotten, or nothing would become durable where acknowledgements
        // are frequent.
        consumer.pending.get_or_insert((consumer.position, written));
        true
    }
}

impl Log {
    /// Records that every write up to `seq` survives a power failure.
    pub(super) fn note_durable(&self, seq: SeqNo) {
        self.durable.fetch_max(seq, Release);
    }

    /// Returns the last number up to which every write survives a power failure, as far as is
    /// known.
    pub(crate) fn durable(&self) -> SeqNo {
        self.durable.load(Acquire)
    }

    /// Gives up the retained logs that nobody needs any more, to be overwritten or
    /// [removed](Log::remove_obsolete). `now` is in seconds since 1970. Reports whether there were
    /// any.
    pub(crate) fn expire(&self, files: &mut LogFiles, now: u64) -> bool {
        // The next session may keep what this one cannot tell yet.
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
