//! Which gets are counted, and what they asked.
//!
//! Counting every get would cost the reads more than it tells: one get of `interval` is drawn at random (so that no pattern of the
//! caller's is counted with or always missed), and stands for those since the last that its thread counted.
//!
//! # Threads
//!
//! Every reading thread has a [`Shard`] of its own and writes to no memory that another reading thread writes to. The background
//! thread takes the samples out now and then; if it is at it at that moment, or if too many wait, the reader drops its sample
//! instead of waiting. All counters are relaxed: they tell amounts and guard nothing; samples pass through the shard's mutex.
//!
//! The background thread sleeps when there was nothing to do. It says so first, looks once more, and only then sleeps; a reader hands
//! over its sample first, and then looks whether it has to wake it. Both go through the shard's mutex in between: either the thread
//! finds the sample, or the reader finds it asleep. (Of a thread's very first sample neither need be so. It waits for the next one.)

use crate::sync::thread::Thread;
use crate::sync::{self, Mutex};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use thread_local::ThreadLocal;

use super::SegmentId;

/// Samples of one thread that may wait: two hundred gets of a tree of ten runs. What a busy reader brings within the
/// background thread's pause.
const MOST_WAITING: usize = 2048;

/// Of the segments that one get asked so many are taken account of, those of the newest runs.
const MOST_RUNS: usize = 64;

/// A segment that a counted get asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) id: SegmentId,
    /// How many gets it stands for.
    pub(crate) weight: u32,
    /// Whether the segment held the key.
    pub(crate) held: bool,
}

/// What one reading thread counts. Only that thread writes the atomics.
#[derive(Debug)]
struct Shard {
    /// Gets until the next one that is counted.
    left: AtomicU32,
    /// Gets since the last one that was counted.
    since: AtomicU32,
    gets: AtomicU64,
    random: AtomicU64,
    samples: Mutex<Vec<Sample>>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Sampler {
    shards: ThreadLocal<Shard>,
    interval: AtomicU32,
    dropped: AtomicU64,
    asleep: AtomicBool,
    worker: OnceLock<Thread>,
}

impl Sampler {
    /// Counts one get of `interval`, at least 1.
    pub(crate) fn new(interval: u32) -> Sampler {
        Sampler {
            shards: ThreadLocal::new(),
            interval: AtomicU32::new(interval.max(1)),
            dropped: AtomicU64::new(0),
            asleep: AtomicBool::new(false),
            worker: OnceLock::new(),
        }
    }

    /// Called once for each get that asks an elastic filter: whether it is to be counted.
    #[inline]
    pub(crate) fn tick(&self) -> bool {
        let shard = self.shards.get_or(|| self.new_shard());
        shard.gets.store(shard.gets.load(Relaxed) + 1, Relaxed);
        shard.since.store(shard.since.load(Relaxed).saturating_add(1), Relaxed);
        let left = shard.left.load(Relaxed);
        if left > 1 {
            shard.left.store(left - 1, Relaxed);
            return false;
        }
        shard.left.store(shard.draw(self.interval.load(Relaxed)), Relaxed);
        true
    }

    #[cold]
    fn new_shard(&self) -> Shard {
        // Threads must not draw alike; any odd number that differs will do.
        let seed = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(2 * self.shards.iter().count() as u64 + 1);
        let shard = Shard {
            left: AtomicU32::new(1),
            since: AtomicU32::new(0),
            gets: AtomicU64::new(0),
            random: AtomicU64::new(seed),
            // A get allocates nothing.
            samples: Mutex::new(Vec::with_capacity(MOST_WAITING)),
        };
        shard.left.store(shard.draw(self.interval.load(Relaxed)), Relaxed);
        shard
    }

    /// Takes what a counted get asked: each segment, and whether it held the key.
    pub(crate) fn record(&self, asked: impl Iterator<Item = (SegmentId, bool)>) {
        let shard = self.shards.get_or(|| self.new_shard());
        let weight = shard.since.load(Relaxed);
        match shard.samples.try_lock() {
            Some(mut samples) if samples.len() + MOST_RUNS <= MOST_WAITING => {
                shard.since.store(0, Relaxed);
                samples.extend(asked.take(MOST_RUNS).map(|(id, held)| Sample { id, weight, held }));
            }
            // Its gets count with the next one.
            _ => _ = self.dropped.fetch_add(1, Relaxed),
        }
        if self.asleep.load(Relaxed) {
            self.wake();
        }
    }

    /// Takes all samples that wait, and says how many gets there were in all.
    pub(crate) fn drain(&self, into: &mut Vec<Sample>) -> u64 {
        let mut gets = 0;
        for shard in &self.shards {
            gets += shard.gets.load(Relaxed);
            into.append(&mut shard.samples.lock());
        }
        gets
    }

    /// One get of so many is counted.
    pub(crate) fn interval(&self) -> u32 {
        self.interval.load(Relaxed)
    }

    pub(crate) fn set_interval(&self, interval: u32) {
        self.interval.store(interval.max(1), Relaxed);
    }

    /// Samples that were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Names the background thread, which calls this first of all.
    pub(crate) fn serve(&self) {
        let _ = self.worker.set(sync::thread::current());
    }

    /// The background thread sleeps, at most `longest`, unless there is `work`, which does it.
    pub(crate) fn sleep_unless(&self, work: impl FnOnce() -> bool, longest: Duration) {
        self.asleep.store(true, Relaxed);
        if !work() {
            sync::thread::park_timeout(longest);
        }
        self.asleep.store(false, Relaxed);
    }

    /// Wakes the background thread.
    pub(crate) fn wake(&self) {
        self.asleep.store(false, Relaxed);
        if let Some(worker) = self.worker.get() {
            worker.unpark();
        }
    }
}

impl Shard {
    /// A number from 1 to twice the interval less one: `interval` on average. Xorshift: it need not be better.
    fn draw(&self, interval: u32) -> u32 {
        let mut x = self.random.load(Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.store(x, Relaxed);
        1 + ((u128::from(x) * u128::from(2 * u64::from(interval) - 1)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(table: u64) -> impl Iterator<Item = (SegmentId, bool)> {
        std::iter::once((SegmentId { table, segment: 0 }, false))
    }

    #[test]
    fn weights_add_up_to_the_gets() {
        for interval in [1, 2, 7, 64] {
            let sampler = Sampler::new(interval);
            let mut counted = 0u64;
            let mut samples = Vec::new();
            for get in 1..=10_000 {
                if sampler.tick() {
                    counted += 1;
                    sampler.record(asked(1));
                }
                if get % 500 == 0 {
                    assert_eq!(sampler.drain(&mut samples), get);
                }
            }
            let weight: u64 = samples.iter().map(|sample| u64::from(sample.weight)).sum();
            assert!((10_000 - 2 * u64::from(interval)..=10_000).contains(&weight), "{interval}: {weight}");
            let expected = 10_000 / u64::from(interval);
            assert!((expected * 8 / 10..=expected * 12 / 10 + 1).contains(&counted), "{interval}: {counted}");
        }
    }

    /// A caller that gets present and absent keys in turn had only the one or the other counted by a fixed stride.
    #[test]
    fn a_pattern_of_the_caller_is_not_counted_with() {
        let sampler = Sampler::new(4);
        let mut counts = [0u32; 4];
        for get in 0..40_000usize {
            if sampler.tick() {
                counts[get % 4] += 1;
                sampler.record(asked(1));
            }
        }
        assert!(counts.iter().all(|count| (2200..2800).contains(count)), "{counts:?}");
    }

    #[test]
    fn who_finds_no_room_drops_and_its_gets_are_counted_with_the_next() {
        let sampler = Sampler::new(1);
        let count = |gets: usize| {
            for _ in 0..gets {
                assert!(sampler.tick());
                sampler.record(asked(1));
            }
        };
        let most = MOST_WAITING - MOST_RUNS + 1;
        count(most + 10);
        assert_eq!(sampler.dropped(), 10);
        let mut samples = Vec::new();
        sampler.drain(&mut samples);
        assert_eq!(samples.len(), most);
        count(1);
        samples.clear();
        sampler.drain(&mut samples);
        assert_eq!(samples, [Sample { id: SegmentId { table: 1, segment: 0 }, weight: 11, held: false }]);
    }

    #[test]
    fn threads_count_side_by_side() {
        let sampler = Sampler::new(1);
        std::thread::scope(|scope| {
            for table in 0..4 {
                let sampler = &sampler;
                scope.spawn(move || {
                    for _ in 0..400 {
                        assert!(sampler.tick());
                        sampler.record(asked(table));
                    }
                });
            }
        });
        let mut samples = Vec::new();
        assert_eq!(sampler.drain(&mut samples), 1600);
        let of = |table| samples.iter().filter(|sample| sample.id.table == table).count();
        assert_eq!([0, 1, 2, 3].map(of), [400; 4]);
    }
}
