//! The clock of an emulated device: reading it, and waiting.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// The part of a wait that is never slept: a sleep ends late by what a timer's slack and a switch
/// of threads take.
const AWAKE_NS: u64 = 200_000;

/// A shorter rest is spun even if other threads wait: a yield may take microseconds.
const NO_YIELD_NS: u64 = 5_000;

/// A clock to read and wait on. Any thread may use it.
pub(super) trait Time: Send + Sync + Debug {
    /// Returns nanoseconds since an arbitrary moment.
    fn now(&self) -> u64;

    /// Waits until `end` and returns the time then; `alone`: no other thread waits.
    fn wait_until(&self, end: u64, alone: bool) -> u64;
}

/// The machine's monotonic clock.
#[derive(Debug)]
pub(super) struct MachineTime {
    start: Instant,
    /// What one reading of the clock takes. A wait ends where the next reading would come later
    /// than the end by more than it comes before it now.
    reading_ns: u64,
}

impl MachineTime {
    /// Measures the cost of a reading: the smallest difference of two consecutive ones, of a few
    /// hundred.
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
                // Spinning keeps a CPU from threads whose wait is over.
                _ if !alone && left > NO_YIELD_NS => std::thread::yield_now(),
                // A pause may take longer than what is left, so there is none at the end.
                _ if left > 200 => std::hint::spin_loop(),
                _ => {}
            }
        }
    }
}
