//! Time as an emulated device has it: read, and waited for.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// The part of a wait that is never slept: a sleep ends late by what a timer's slack and a switch of threads take.
const AWAKE_NS: u64 = 200_000;

/// A shorter rest is spun even if others wait, too: a yield may take microseconds.
const NO_YIELD_NS: u64 = 5_000;

/// Tells the time and lets it pass. Any thread.
pub(super) trait Time: Send + Sync + Debug {
    /// Nanoseconds since some moment.
    fn now(&self) -> u64;

    /// Returns when it is `end`; `alone`: no other thread waits. Gives the time then.
    fn wait_until(&self, end: u64, alone: bool) -> u64;
}

/// The machine's monotonic clock.
#[derive(Debug)]
pub(super) struct MachineTime {
    start: Instant,
    /// What one reading of the clock takes. A wait ends where the next reading would come later than the end by more
    /// than it comes before it now.
    reading_ns: u64,
}

impl MachineTime {
    /// Finds out what a reading takes: the least distance of two, of a few hundred.
    pub(super) fn new() -> MachineTime {
        let start = Instant::now();
        let mut before = start.elapsed();
        let mut least = Duration::from_micros(1);
        for _ in 0..500 {
            let now = start.elapsed();
            // A coarse clock shows no difference at all.
            least = least.min(now - before);
            before = now;
        }
        MachineTime { start, reading_ns: least.as_nanos() as u64 }
    }
}

impl Time for MachineTime {
    #[inline]
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn wait_until(&self, end: u64, alone: bool) -> u64 {
        loop {
            let now = self.now();
            let left = end.saturating_sub(now);
            if left <= self.reading_ns / 2 {
                return now;
            }
            match left {
                _ if left > 2 * AWAKE_NS => std::thread::sleep(Duration::from_nanos(left - AWAKE_NS)),
                // Whoever spins keeps a processor from those whose time has come.
                _ if !alone && left > NO_YIELD_NS => std::thread::yield_now(),
                // A pause may take longer than what is left, so there is none at the end.
                _ if left > 200 => std::hint::spin_loop(),
                _ => {}
            }
        }
    }
}
