//! Which slow operations are reported: those above a threshold, up to a limit per second.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::sync;

/// The maximum number of reports per second: explaining a read repeats it, and what makes one read
/// slow makes many slow.
const REPORTS_PER_SECOND: u64 = 10;

#[derive(Debug)]
pub(super) struct Slow {
    threshold: Duration,
    origin: Instant,
    /// In the upper bits, the second since `origin` in which operations were last reported; in the
    /// lowest eight, how many were.
    reported: AtomicU64,
    /// Slow operations not reported since the last report.
    suppressed: AtomicU64,
}

impl Slow {
    pub(super) fn new(threshold: Duration) -> Slow {
        Slow { threshold, origin: sync::now(), reported: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    pub(super) fn threshold(&self) -> Duration {
        self.threshold
    }

    /// Decides whether to report an operation that took this long. If so, returns how many slow
    /// ones went unreported since the last report.
    #[inline]
    pub(super) fn admits(&self, took: Duration) -> Option<u64> {
        if took < self.threshold { None } else { self.admits_at(sync::since(self.origin).as_secs()) }
    }

    fn admits_at(&self, second: u64) -> Option<u64> {
        let next = |reported: u64| match (reported >> 8, reported & 0xff) {
            (last, count) if last == second => (count < REPORTS_PER_SECOND).then_some(reported + 1),
            // A thread that is late for its second joins the newer second's count.
            (last, count) if last > second => (count < REPORTS_PER_SECOND).then_some(reported + 1),
            _ => Some(second << 8 | 1),
        };
        match self.reported.fetch_update(Relaxed, Relaxed, next) {
            Ok(_) => Some(self.suppressed.swap(0, Relaxed)),
            Err(_) => {
                self.suppressed.fetch_add(1, Relaxed);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_reported_each_second_and_the_others_counted() {
        let slow = Slow::new(Duration::from_millis(1));
        assert_eq!(slow.admits(Duration::from_micros(999)), None);
        let reported = (0..25).filter(|_| slow.admits_at(7).is_some()).count();
        assert_eq!(reported, 10);
        assert_eq!(slow.admits_at(6), None, "it is late");
        assert_eq!(slow.admits_at(8), Some(16));
        assert_eq!(slow.admits_at(8), Some(0));
    }
}
