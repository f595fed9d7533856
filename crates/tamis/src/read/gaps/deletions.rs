//! Which keys were deleted lately.
//!
//! The first reader that comes to a long stretch of deleted keys would walk over all of them. So
//! writers count deletions, and a background thread [takes](Deletions::take) the place of the last
//! ones now and then and walks over what is dead around it: that finds gaps, as every walk does.
//!
//! A writer notes a key after its insertion, under no lock of its own; the place is under one that
//! is taken once in [`EVERY`] deletions. The counter is a hint and publishes nothing. All is done
//! as well by a reader that comes first.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::sync::Mutex;

/// A walk follows so many deletions. Few where assertions are checked, so that tests see walks.
const EVERY: u64 = if cfg!(debug_assertions) { 64 } else { 1024 };

/// A walk gives up after so many dead keys for each deletion since the last walk.
const DEAD_KEYS: u64 = 16;

/// But after no more than this: others go on from there, and whoever closes the database waits for
/// a walk.
const MOST_DEAD_KEYS: u64 = 1 << 16;

/// The most that a failed walk delays the next one, in deletions.
const LONGEST: u64 = 1 << 20;

/// Deletions of single keys in one keyspace.
#[derive(Debug)]
pub(crate) struct Deletions {
    count: AtomicU64,
    place: Mutex<LastDeleted>,
}

#[derive(Debug)]
struct LastDeleted {
    /// One of the keys deleted last, unless it was taken.
    key: Option<Vec<u8>>,
    /// The count at the last walk.
    walked: u64,
    /// Deletions between two walks: more after walks that found nothing.
    every: u64,
}

/// Where a walk begins.
#[derive(Debug)]
pub(crate) struct Stretch {
    pub(crate) key: Vec<u8>,
    /// How many dead keys it passes at most in each direction.
    pub(crate) limit: u64,
}

impl Default for Deletions {
    fn default() -> Deletions {
        let place = LastDeleted { key: None, walked: 0, every: EVERY };
        Deletions { count: AtomicU64::new(0), place: Mutex::new(place) }
    }
}

impl Deletions {
    /// Called by a writer that has deleted `key`.
    #[inline]
    pub(crate) fn note(&self, key: &[u8]) {
        if (self.count.fetch_add(1, Relaxed) + 1).is_multiple_of(EVERY) {
            self.note_place(key);
        }
    }

    #[cold]
    fn note_place(&self, key: &[u8]) {
        let mut place = self.place.lock();
        let last = place.key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
    }

    /// Returns where a walk is due. Called under the `state` lock, so that counts do not pass each
    /// other.
    pub(crate) fn take(&self) -> Option<Stretch> {
        let count = self.count.load(Relaxed);
        let mut place = self.place.lock();
        let since = count - place.walked;
        if since < place.every {
            return None;
        }
        let key = place.key.take()?;
        place.walked = count;
        Some(Stretch { key, limit: since.saturating_mul(DEAD_KEYS).min(MOST_DEAD_KEYS) })
    }

    /// Called after a walk, with whether it knows more now: if not, the next is less urgent.
    pub(crate) fn walked(&self, learnt: bool) {
        let mut place = self.place.lock();
        place.every = if learnt { EVERY } else { (place.every * 2).min(LONGEST) };
    }
}
