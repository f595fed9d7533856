//! How old the writes of a keyspace are: its time to live, and the horizon up to which they have
//! expired.

use std::sync::atomic::{AtomicU64, Ordering};

use tamis_base::key::SeqNo;
use tamis_files::tree::edit::Ages;

use crate::options::KeyspaceOptions;

/// What an open keyspace knows about the ages of its entries.
#[derive(Debug)]
pub(crate) struct EntryAges {
    /// How long an entry lives, in seconds.
    pub(crate) ttl: Option<u64>,
    /// See [`Ages::since`]; `None` in a keyspace that never had a time to live.
    pub(crate) since: Option<SeqNo>,
    /// The horizon: everything up to this write has expired. It only rises. Release and Acquire: a
    /// thread that sees a second in `checked` sees its horizon here.
    pub(crate) expired: AtomicU64,
    /// The first second for which the horizon has not been looked up yet.
    pub(crate) checked: AtomicU64,
}

impl EntryAges {
    /// Creates the ages of a keyspace with these options and the stored `known`. `last_seq` is at
    /// or above every number in its tables.
    pub(crate) fn new(options: &KeyspaceOptions, known: Option<Ages>, last_seq: SeqNo) -> EntryAges {
        let seconds =
            |ttl: std::time::Duration| ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
        let ttl = options.time_to_live.map(seconds);
        EntryAges {
            ttl,
            since: known.map(|ages| ages.since).or(ttl.map(|_| last_seq)),
            expired: AtomicU64::new(known.map_or(0, |ages| ages.expired)),
            checked: AtomicU64::new(0),
        }
    }

    /// Reports whether merges must keep the sequence numbers of entries.
    pub(crate) fn keep_seq(&self) -> bool {
        self.since.is_some()
    }

    /// Takes over what the writer has recorded, in a database that follows it.
    pub(crate) fn raise(&self, ages: &Ages) {
        self.expired.fetch_max(ages.expired, Ordering::AcqRel);
    }

    /// Returns the ages to store.
    pub(crate) fn ages(&self) -> Option<Ages> {
        self.since.map(|since| Ages { since, expired: self.expired.load(Ordering::Acquire) })
    }
}

/// Returns the first visible sequence number when everything up to `expired` is hidden. Reads use
/// the horizon in this form, like that of a range tombstone over all keys.
#[inline]
pub(crate) fn live_from(expired: SeqNo) -> SeqNo {
    expired + SeqNo::from(expired > 0)
}
