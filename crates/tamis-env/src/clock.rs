//! The engine's clock: whole seconds since 1970, behind a trait so that tests can set it.
//!
//! Time decides when entries expire and which window a table belongs to. It never decides which
//! version is newer; sequence numbers do. A clock that goes back only makes data expire later.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A source of time. Any thread may use it.
pub trait Clock: Send + Sync + Debug {
    /// Returns the seconds since 1970-01-01 00:00 UTC.
    fn now(&self) -> u64;
}

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}

/// A clock that stands still until it is set, for tests of expiry and time windows.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Creates a clock that shows `now`, in seconds since 1970.
    pub fn new(now: u64) -> ManualClock {
        ManualClock(AtomicU64::new(now))
    }

    /// Sets the clock.
    pub fn set(&self, now: u64) {
        // Relaxed: nothing else is published with the time.
        self.0.store(now, Ordering::Relaxed);
    }

    /// Advances the clock by this many seconds.
    pub fn advance(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
