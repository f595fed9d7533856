//! Decides which gets are counted, and records what they asked.
//!
//! Counting every get would cost reads more than it is worth. One get in `interval` is drawn at
//! random, so that no pattern of the caller's is always counted or always missed. It stands for all
//! gets since the last one that its thread counted.
//!
//! # Threads
//!
//! Every reading thread has its own [`Shard`] and writes to no memory that another reading thread
//! writes to. The background thread collects the samples periodically. If it is doing so at that
//! moment, or if too many samples are queued, the reader drops its sample instead of waiting. All
//! counters are relaxed: they are statistics and guard nothing. Samples pass through the shard's
//! mutex.
//!
//! The background thread sleeps when there is no work. It first announces that, checks once more,
//! and only then sleeps; a reader first hands over its sample and then checks whether to wake the
//! thread. Both take the shard's mutex in between: either the thread finds the sample, or the
//! reader finds the thread asleep. (For a thread's very first sample, neither may hold. That sample
//! waits for the next one.)

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tamis_policy::hotness::{BlockRead, Sample, SegmentId};
use thread_local::ThreadLocal;

mod stride;

pub(crate) use stride::Stride;

use crate::sync::thread::Thread;
use crate::sync::{self, Mutex};

/// The maximum number of queued samples per thread: two hundred gets of a tree of ten runs, which
/// is what a busy reader produces during the background thread's pause.
const MOST_WAITING: usize = 2048;

/// The maximum number of segments recorded per get, newest runs first.
const MOST_RUNS: usize = 64;

/// A segment that a get asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AskedSegment {
    pub(crate) id: SegmentId,
    /// Whether the segment held the key.
    pub(crate) held: bool,
    pub(crate) read: BlockRead,
}

/// The counters of one reading thread. Only that thread writes the atomics.
#[derive(Debug)]
struct Shard {
    stride: Stride,
    gets: AtomicU64,
    samples: Mutex<Vec<Sample>>,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Sampler {
    shards: ThreadLocal<Shard>,
    interval: AtomicU32,
    dropped: AtomicU64,
    asleep: AtomicBool,
    worker: OnceLock<Thread>,
}

impl Sampler {
    /// Creates a sampler that counts one get in `interval`, which is at least 1.
    pub(crate) fn new(interval: u32) -> Sampler {
        Sampler {
            shards: ThreadLocal::new(),
            interval: AtomicU32::new(interval.max(1)),
            dropped: AtomicU64::new(0),
            asleep: AtomicBool::new(false),
            worker: OnceLock::new(),
        }
    }

    /// Called once for each get that asks an elastic filter. Returns whether to count that get.
    #[inline]
    pub(crate) fn tick(&self) -> bool {
        let shard = self.shards.get_or(|| self.new_shard());
        shard.gets.store(shard.gets.load(Relaxed) + 1, Relaxed);
        shard.stride.tick(self.interval.load(Relaxed))
    }

    #[cold]
    fn new_shard(&self) -> Shard {
        Shard {
            stride: Stride::new(self.shards.iter().count(), self.interval.load(Relaxed)),
            gets: AtomicU64::new(0),
            // Preallocated, so that a get does not allocate.
            samples: Mutex::new(Vec::with_capacity(MOST_WAITING)),
        }
    }

    /// Records what a counted get asked.
    pub(crate) fn record(&self, asked: impl Iterator<Item = AskedSegment>) {
        let shard = self.shards.get_or(|| self.new_shard());
        let weight = shard.stride.weight();
        match shard.samples.try_lock() {
            Some(mut samples) if samples.len() + MOST_RUNS <= MOST_WAITING => {
                shard.stride.recorded();
                let asked = asked.take(MOST_RUNS);
                samples.extend(asked.map(|AskedSegment { id, held, read }| Sample {
                    id,
                    weight,
                    held,
                    read,
                }));
            }
            // The next sample counts this one's gets.
            _ => _ = self.dropped.fetch_add(1, Relaxed),
        }
        if self.asleep.load(Relaxed) {
            self.wake();
        }
    }

    /// Moves all queued samples to `into` and returns the total number of gets.
    pub(crate) fn drain(&self, into: &mut Vec<Sample>) -> u64 {
        let mut gets = 0;
        for shard in &self.shards {
            gets += shard.gets.load(Relaxed);
            into.append(&mut shard.samples.lock());
        }
        gets
    }

    /// Returns the sampling interval: one get in this many is counted.
    pub(crate) fn interval(&self) -> u32 {
        self.interval.load(Relaxed)
    }

    pub(crate) fn set_interval(&self, interval: u32) {
        self.interval.store(interval.max(1), Relaxed);
    }

    /// Returns the number of dropped samples.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Registers the calling thread as the background thread; it calls this first.
    pub(crate) fn serve(&self) {
        let _ = self.worker.set(sync::thread::current());
    }

    /// Puts the background thread to sleep for at most `longest`, unless `work`, which does the
    /// pending work, returns `true`.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(table: u64) -> impl Iterator<Item = AskedSegment> {
        let id = SegmentId { table, segment: 0 };
        std::iter::once(AskedSegment { id, held: false, read: BlockRead::None })
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

    /// With a fixed stride, a caller that alternated present and absent keys had only one of the
    /// two kinds counted.
    #[test]
    fn sampling_does_not_follow_a_pattern_of_the_caller() {
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
    fn a_full_shard_drops_samples_and_counts_their_gets_with_the_next() {
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
        let id = SegmentId { table: 1, segment: 0 };
        assert_eq!(samples, [Sample { id, weight: 11, held: false, read: BlockRead::None }]);
    }

    #[test]
    fn threads_count_independently() {
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
