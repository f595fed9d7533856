//! Failed work in backoff: it is not retried for a while.

use std::time::{Duration, Instant};

use crate::error::StorageError;
use crate::sync;

/// The backoff after a failed flush, or a failed attempt to resume writes: initial and maximum.
pub(crate) const RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(2));

/// The backoff after a compaction failure: initial and maximum.
pub(crate) const RETRY_COMPACTION: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The same after running out of space. Shorter, since a delete may have made the merge fit.
pub(crate) const RETRY_WITHOUT_ROOM: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));

/// Waiting callers are told of a failure from the second one in a row on: the first may be
/// transient.
const TOLD_AFTER: u32 = 2;

/// Additional free bytes needed before work that ran out of space is retried ahead of schedule.
const MORE_ROOM_BYTES: u64 = 64 << 10;

/// Failed work in backoff: it is not retried for a while.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    pub(crate) until: Instant,
    pub(crate) pause: Duration,
    pub(crate) tries: u32,
    pub(crate) cause: String,
    /// The free bytes on the device when the work failed for lack of room.
    pub(crate) short: Option<u64>,
}

impl Backoff {
    /// Returns the backoff after one more failure: twice the previous delay, starting at `first`,
    /// at most `longest`.
    pub(crate) fn after(
        before: Option<Backoff>,
        (first, longest): (Duration, Duration),
        error: &StorageError,
    ) -> Backoff {
        let (pause, tries) = before.map_or((first, 1), |before| (before.pause * 2, before.tries + 1));
        let pause = pause.min(longest);
        Backoff { until: sync::now() + pause, pause, tries, cause: error.to_string(), short: None }
    }

    pub(crate) fn is_over(&self) -> bool {
        sync::now() >= self.until
    }

    /// Reports whether there is clearly more free space than when the work ran out of it.
    pub(crate) fn has_more_room(&self, free: Option<u64>) -> bool {
        self.short.zip(free).is_some_and(|(then, now)| now > then + then / 4 + MORE_ROOM_BYTES)
    }

    /// Returns the last failure if there were several in a row.
    pub(crate) fn told(&self) -> Option<&str> {
        (self.tries >= TOLD_AFTER).then_some(&*self.cause)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn work_is_retried_early_when_a_quarter_and_64_kib_more_are_free() {
        let error = StorageError::io("write", Path::new("x"), std::io::ErrorKind::StorageFull.into());
        let mut backoff = Backoff::after(None, RETRY, &error);
        assert!(!backoff.has_more_room(Some(u64::MAX)), "it did not fail for lack of room");
        for (then, enough) in [(0, 64 << 10), (4000, 5000 + (64 << 10))] {
            backoff.short = Some(then);
            assert!(!backoff.has_more_room(Some(enough)) && backoff.has_more_room(Some(enough + 1)));
        }
        assert!(!backoff.has_more_room(None), "it is not known what is free");
    }
}
