//! How long the leader of a synced group waits for more members.
//!
//! Without this, threads that commit and sync in a loop split into two groups: while the device
//! syncs the batches of one half, the other half queues up, and starts as soon as the sync ends,
//! before the first half has come back. Each thread then waits for two syncs. So a new leader gives
//! the members of the previous group time to come back: a few microseconds each, and never longer
//! than a sync. Where they don't come back, leaders soon stop waiting, and try again less and less
//! often.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use crate::sync;

/// How long a thread takes to be woken, return to its caller and commit again.
const BY_MEMBER: Duration = Duration::from_micros(15);

/// After failures in a row, at most this many groups in a row do not wait.
const MOST_SKIPPED: u32 = 255;

/// What recent synced groups showed. Only the leader uses it. The lead is handed over under a lock,
/// so `Relaxed` suffices.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    /// The duration of a synced group, a moving average.
    nanos: AtomicU64,
    /// How many groups will skip waiting after the next one that waits in vain.
    penalty: AtomicU32,
    /// How many groups from now on skip waiting.
    skipped: AtomicU32,
}

impl Gathering {
    /// Reports whether the members of a group that ended at `ended` may still be on their way back.
    pub(super) fn is_recent(&self, ended: Instant) -> bool {
        sync::since(ended).as_nanos() < u128::from(self.nanos.load(Relaxed))
    }

    /// Returns how long a leader may wait for `members` returning writers; `None` if it should not
    /// wait.
    pub(super) fn limit(&self, members: usize) -> Option<Duration> {
        let skipped = self.skipped.load(Relaxed);
        if skipped > 0 {
            self.skipped.store(skipped - 1, Relaxed);
            return None;
        }
        let sync = Duration::from_nanos(self.nanos.load(Relaxed));
        // Two groups that take turns keep the device busy if each takes longer than a sync to come
        // back.
        let limit = BY_MEMBER * (1 + members as u32);
        (limit <= sync).then_some(limit)
    }

    /// Records that `came` of the `members` expected writers came back in time.
    pub(super) fn note_returned(&self, came: usize, members: usize) {
        // Waiting for fewer than half would not pay.
        if came * 2 >= members {
            self.penalty.store(0, Relaxed);
            return;
        }
        let penalty = self.penalty.load(Relaxed);
        self.skipped.store(penalty, Relaxed);
        self.penalty.store((2 * penalty + 1).min(MOST_SKIPPED), Relaxed);
    }

    /// Records that a synced group took `time`.
    pub(super) fn note_group(&self, time: Duration) {
        let now = time.as_nanos() as u64;
        let average = match self.nanos.load(Relaxed) {
            0 => now,
            // A group that had to wait for a flush says little about syncs.
            before => before - before / 8 + now.min(4 * before) / 8,
        };
        self.nanos.store(average, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_waits_no_longer_than_a_sync() {
        let gathering = Gathering::default();
        assert_eq!(gathering.limit(4), None, "nothing was synced yet");
        gathering.note_group(Duration::from_micros(100));
        assert_eq!(gathering.limit(2), Some(3 * BY_MEMBER));
        assert_eq!(gathering.limit(100), None);
        let as_long = Gathering::default();
        as_long.note_group(3 * BY_MEMBER);
        assert_eq!((as_long.limit(2), as_long.limit(3)), (Some(3 * BY_MEMBER), None));
        // A stalled group counts as four.
        gathering.note_group(Duration::from_secs(1));
        assert_eq!(gathering.limit(10), None);
        assert!(gathering.is_recent(sync::now()));
    }

    #[test]
    fn waiting_in_vain_becomes_rare_and_ends_with_the_first_success() {
        let gathering = Gathering::default();
        gathering.note_group(Duration::from_micros(200));
        let waits = |groups: usize, came: usize| {
            let waits = |_: &usize| {
                let waits = gathering.limit(8).is_some();
                if waits {
                    gathering.note_returned(came, 8);
                }
                waits
            };
            (0..groups).filter(waits).count()
        };
        // After 0, 1, 3, 7, ... and 127 groups that did not.
        assert_eq!(waits(500, 3), 9);
        let before = waits(20_000, 0);
        assert!((60..100).contains(&before), "{before} of 20,000");
        while gathering.limit(8).is_none() {}
        gathering.note_returned(4, 8);
        assert_eq!(waits(100, 8), 100);
        // A failure after a success is the first in a row.
        gathering.note_returned(0, 8);
        assert!(gathering.limit(8).is_some());
    }

    #[test]
    fn a_group_counts_an_eighth_and_at_most_four_times_the_average() {
        let gathering = Gathering::default();
        let after = |nanos: u64| {
            gathering.note_group(Duration::from_nanos(nanos));
            gathering.nanos.load(Relaxed)
        };
        assert_eq!(after(8000), 8000, "the first one");
        assert_eq!(after(16_000), 9000);
        assert_eq!(after(1 << 40), 9000 - 1125 + 4500);
    }

    #[test]
    fn a_group_that_ended_longer_ago_than_a_sync_takes_is_not_recent() {
        let gathering = Gathering::default();
        gathering.note_group(Duration::from_millis(1));
        let now = sync::now();
        let before = now.checked_sub(Duration::from_millis(2)).unwrap_or(now);
        // A clock that has just begun to run knows no earlier time.
        assert!(before == now || !gathering.is_recent(before));
    }
}
