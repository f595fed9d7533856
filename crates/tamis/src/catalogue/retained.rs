//! Obsolete logs kept for [readers of changes](crate::handles::changes).
//!
//! A log is kept as long as any of these holds: a named consumer has not acknowledged all of its
//! writes; it is younger than [`changes_keep_time`](crate::Options::changes_keep_time); all kept
//! logs take no more than [`changes_keep_bytes`](crate::Options::changes_keep_bytes). Beyond
//! [`changes_max_bytes`](crate::Options::changes_max_bytes), the oldest logs go even if they are
//! needed.
//!
//! # Which records count
//!
//! An abandoned log may hold a record that never became part of the database, because its sync
//! failed. The record's numbers were then assigned again, to writes in a later log. So a number
//! counts only in the last log that holds it: each log counts up to the first number of every later
//! one ([`LogFiles::place_of`](crate::catalogue::log_files::LogFiles::place_of)). How a log ended
//! does not matter otherwise, so logs left by a crash are read like those of a running database.
//! Where logs are kept, they are synced before tables with the same writes are published, so that
//! no power failure cuts them short while the tables survive. After a power failure, numbering
//! continues where the logs end. Numbers are missing in between only if a log could not be synced:
//! readers are then told that they have fallen behind.
//!
//! # Consumers
//!
//! An acknowledgement releases logs only once it is durable. If it is lost, the consumer starts
//! again from its previous position and finds the logs that it needs.

use std::collections::BTreeMap;

use tamis_base::ids::LogId;
use tamis_base::key::SeqNo;

use crate::error::StorageError;

/// The part of the changes that one log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPart {
    pub(crate) log: LogId,
    /// Records from this number on are not part of the database.
    pub(crate) until: SeqNo,
}

/// How far a named consumer has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConsumerPosition {
    /// The last number acknowledged.
    pub(crate) position: SeqNo,
    /// The last acknowledgement known to be durable.
    pub(crate) held: SeqNo,
    /// An acknowledgement that is durable once everything up to the second number is durable.
    pub(crate) pending: Option<(SeqNo, SeqNo)>,
    /// A number at or behind that of the last acknowledgement's own write.
    pub(crate) written: SeqNo,
}

/// The limits, the consumers, and the logs.
#[derive(Debug, Default)]
pub(crate) struct RetainedLogs {
    pub(crate) keep_bytes: u64,
    /// In seconds.
    pub(crate) keep_time: Option<u64>,
    pub(crate) most_bytes: u64,
    pub(crate) consumers: BTreeMap<String, ConsumerPosition>,
    /// Why there may be unknown consumers.
    pub(crate) keeps_all: Option<StorageError>,
    /// Oldest first, each with the time at which it became obsolete, in seconds since 1970.
    pub(crate) logs: Vec<(ClosedLog, u64)>,
}

impl RetainedLogs {
    /// Reports whether any log may be kept.
    pub(crate) fn keeps_any(&self) -> bool {
        self.keep_bytes > 0 || self.keep_time.is_some() || !self.consumers.is_empty()
    }

    pub(crate) fn allocated(&self) -> u64 {
        self.logs.iter().map(|(log, _)| log.allocated).sum()
    }

    pub(crate) fn extend(&mut self, logs: Vec<ClosedLog>, now: u64) {
        self.logs.extend(logs.into_iter().map(|log| (log, now)));
    }

    /// Keeps logs of earlier sessions.
    pub(crate) fn extend_found(&mut self, logs: impl Iterator<Item = ClosedLog>, now: u64) {
        let known: Vec<LogId> = self.logs.iter().map(|(log, _)| log.id).collect();
        self.logs.extend(logs.filter(|log| !known.contains(&log.id)).map(|log| (log, now)));
        self.logs.sort_by_key(|(log, _)| log.id);
    }

    /// Returns the last number that every consumer has acknowledged durably, given that everything
    /// up to `durable` is durable.
    pub(crate) fn acknowledged(&mut self, durable: SeqNo) -> SeqNo {
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
    /// A log of an earlier session, which is never overwritten.
    pub(crate) fn found(id: LogId, first_seq: Option<SeqNo>, bytes: u64) -> ClosedLog {
        ClosedLog {
            id,
            first_seq,
            bytes,
            allocated: bytes,
            keep: true,
            has_values: false,
            syncs: 0,
            abandoned: false,
        }
    }
}

/// A log file that takes no more writes.
#[derive(Clone, Debug)]
pub(crate) struct ClosedLog {
    pub(crate) id: LogId,
    /// The number of its first write; `None` if that is unknown, or there is none.
    pub(crate) first_seq: Option<SeqNo>,
    pub(crate) bytes: u64,
    /// The size of the file on disk, in bytes.
    pub(crate) allocated: u64,
    /// Whether the file must not be overwritten: it has another name (in a checkpoint), or its
    /// state on the device is unknown.
    pub(crate) keep: bool,
    /// Whether memtables referred to values in it: the file must not be overwritten.
    pub(crate) has_values: bool,
    /// How often it was synced while it took writes.
    pub(crate) syncs: u64,
    /// Whether it was abandoned: its end is unreliable.
    pub(crate) abandoned: bool,
}

impl ClosedLog {
    /// Reports whether overwriting the file is cheaper than creating one. For synced writes it is:
    /// the file system has nothing to record about blocks that exist.
    pub(crate) fn was_synced(&self) -> bool {
        self.syncs.saturating_mul(BYTES_BY_SYNC) >= self.bytes
    }
}

/// An obsolete log is kept only if it was synced at least once per this many bytes.
pub(crate) const BYTES_BY_SYNC: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(id: LogId, bytes: u64) -> ClosedLog {
        ClosedLog::found(id, Some(10 * id), bytes)
    }

    #[test]
    fn logs_are_kept_for_any_of_the_limits_or_a_consumer() {
        let none = RetainedLogs::default;
        assert!(!none().keeps_any());
        assert!(RetainedLogs { keep_bytes: 1, ..none() }.keeps_any());
        assert!(RetainedLogs { keep_time: Some(0), ..none() }.keeps_any());
        let consumer = ConsumerPosition { position: 0, held: 0, pending: None, written: 0 };
        let consumers = BTreeMap::from([("one".to_owned(), consumer)]);
        assert!(RetainedLogs { consumers, ..none() }.keeps_any());
    }

    #[test]
    fn logs_of_earlier_sessions_are_kept_once_and_in_order() {
        let mut retained = RetainedLogs::default();
        retained.extend(vec![found(5, 50), found(7, 70)], 1000);
        retained.extend_found([9, 7, 3].map(|id| found(id, 1)).into_iter(), 2000);
        let logs: Vec<_> = retained.logs.iter().map(|(log, since)| (log.id, log.bytes, *since)).collect();
        assert_eq!(logs, [(3, 1, 2000), (5, 50, 1000), (7, 70, 1000), (9, 1, 2000)]);
        assert_eq!(retained.allocated(), 122);
    }

    /// Their names are not known, so none of them may lose a log.
    #[test]
    fn unknown_consumers_have_acknowledged_nothing() {
        let mut retained = RetainedLogs::default();
        assert_eq!(retained.acknowledged(100), SeqNo::MAX);
        let consumer = |held| ConsumerPosition { position: held, held, pending: None, written: 0 };
        retained.consumers = BTreeMap::from([("a".into(), consumer(30)), ("b".into(), consumer(20))]);
        assert_eq!(retained.acknowledged(100), 20);
        retained.keeps_all = Some(StorageError::corrupt(std::path::Path::new("x"), None, "damaged"));
        assert_eq!(retained.acknowledged(100), 0);
    }

    #[test]
    fn a_log_is_worth_overwriting_if_it_was_synced_often_enough() {
        let log = |syncs, bytes| ClosedLog { syncs, ..found(1, bytes) };
        assert!(log(2, 2 * BYTES_BY_SYNC).was_synced());
        assert!(!log(2, 2 * BYTES_BY_SYNC + 1).was_synced());
        // How often one of an earlier session was synced is not known.
        assert!(!found(1, 1).was_synced() && found(1, 1).keep);
    }
}
