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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ages(time_to_live: Option<Duration>, known: Option<Ages>) -> EntryAges {
        EntryAges::new(&KeyspaceOptions { time_to_live, ..KeyspaceOptions::default() }, known, 40)
    }

    #[test]
    fn no_entry_lives_for_less_than_its_time() {
        let seconds = |nanos| ages(Some(Duration::from_nanos(nanos)), None).ttl;
        let lives = [1, 1_000_000_000, 1_000_000_001, 2_999_999_999].map(seconds);
        assert_eq!(lives, [1, 1, 2, 3].map(Some));
        assert_eq!(ages(Some(Duration::MAX), None).ttl, Some(u64::MAX));
    }

    #[test]
    fn the_horizon_continues_where_it_was_and_only_rises() {
        assert_eq!(ages(None, None).ages(), None);
        let fresh = ages(Some(Duration::from_secs(1)), None);
        assert_eq!(fresh.ages(), Some(Ages { since: 40, expired: 0 }));
        let known = ages(None, Some(Ages { since: 7, expired: 5 }));
        assert_eq!(known.ages(), Some(Ages { since: 7, expired: 5 }));
        known.raise(&Ages { since: 9, expired: 8 });
        known.raise(&Ages { since: 9, expired: 6 });
        assert_eq!(known.ages(), Some(Ages { since: 7, expired: 8 }));
    }
}
