//! Which operations of one thread are sampled, and how many each stands for.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Draws one operation in `interval` at random, so that a pattern of the caller's is neither always
/// sampled nor always missed. A sampled operation stands for all since the last one that was
/// recorded.
///
/// Belongs to one thread, which alone calls it; the atomics are relaxed and only make that safe.
#[derive(Debug)]
pub(crate) struct Stride {
    /// Operations until the next sampled one.
    left: AtomicU32,
    /// Operations since the last recorded one.
    since: AtomicU32,
    random: AtomicU64,
}

impl Stride {
    /// `thread` differs between threads, so that they do not draw the same numbers.
    pub(crate) fn new(thread: usize, interval: u32) -> Stride {
        // Any odd multiple of the constant is a seed.
        let seed = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(2 * thread as u64 + 1);
        let stride =
            Stride { left: AtomicU32::new(1), since: AtomicU32::new(0), random: AtomicU64::new(seed) };
        stride.left.store(stride.draw(interval), Relaxed);
        stride
    }

    /// Called once for each operation; returns whether it is sampled. `interval` is at least 1.
    #[inline]
    pub(crate) fn tick(&self, interval: u32) -> bool {
        self.since.store(self.since.load(Relaxed).saturating_add(1), Relaxed);
        let left = self.left.load(Relaxed);
        if left > 1 {
            self.left.store(left - 1, Relaxed);
            return false;
        }
        self.left.store(self.draw(interval), Relaxed);
        true
    }

    /// Returns the number of operations that a sample stands for.
    pub(crate) fn weight(&self) -> u32 {
        self.since.load(Relaxed)
    }

    /// Called when a sample is recorded. If it is dropped instead, its operations count with the
    /// next one.
    pub(crate) fn recorded(&self) {
        self.since.store(0, Relaxed);
    }

    /// A number from 1 to twice the interval less one, `interval` on average. Xorshift is good
    /// enough here.
    fn draw(&self, interval: u32) -> u32 {
        let mut x = self.random.load(Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.store(x, Relaxed);
        1 + ((u128::from(x) * u128::from(2 * u64::from(interval) - 1)) >> 64) as u32
    }
}
