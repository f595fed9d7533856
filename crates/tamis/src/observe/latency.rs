//! How long operations take: one histogram for each kind, always on.
//!
//! A histogram counts durations in buckets, eight to each power of two, so that a percentile is
//! exact to within an eighth. It is an array of atomics that publish nothing (`Relaxed`). Any
//! thread may record, and a reading is not a consistent snapshot.
//!
//! Operations that cost about as much as reading the clock twice are sampled: each thread times
//! about one [`get`](Operation::Get) in [`GETS`], at random distances, so that no rhythm of the
//! program coincides with them. Operations that wait for a device or move megabytes are always
//! timed. If slow operations are to be reported, everything is timed.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

mod histogram;

pub use histogram::LatencyHistogram;
use histogram::{BUCKETS, bucket_of};

/// About one in this many gets of a thread is timed.
pub(crate) const GETS: u64 = 256;

/// One in this many writes, seeks and multi-gets of a thread is timed.
const OTHERS: u32 = 16;

macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident $field:ident,)*) => {
        /// A kind of timed operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
        #[non_exhaustive]
        pub enum Operation { $($(#[$doc])* $variant,)* }

        impl Operation {
            /// Every kind.
            pub const ALL: &'static [Operation] = &[$(Operation::$variant,)*];

            /// Returns its name, as in statistics.
            pub fn name(self) -> &'static str {
                match self { $(Operation::$variant => stringify!($field),)* }
            }
        }

        /// How long operations took since the database was opened.
        #[derive(Clone, Debug, Default, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct Latencies { $($(#[$doc])* pub $field: LatencyHistogram,)* }

        impl Latencies {
            /// Returns the histogram of one kind of operation.
            pub fn of(&self, operation: Operation) -> &LatencyHistogram {
                match operation { $(Operation::$variant => &self.$field,)* }
            }
        }

        impl LatencyCounters {
            pub(crate) fn read(&self) -> Latencies {
                Latencies { $($field: self.0[Operation::$variant as usize].read(),)* }
            }
        }
    };
}

operations! {
    /// A `get` or `contains_key`; one in about 256 of each thread.
    Get get,
    /// A `multi_get` of any number of keys; one in 16 of each thread.
    MultiGet multi_get,
    /// The positioning of an iterator, including its first item if that is what positions it; one
    /// in 16 of each thread.
    Seek seek,
    /// A write that is not synced, from the call to its return, with all stalls; one in 16 of each
    /// thread.
    Write write,
    /// A write or a commit of a transaction that waits for the log's sync or has a condition to
    /// check.
    GroupWrite group_write,
    /// A sync of the log.
    LogSync log_sync,
    /// A flush of memtables to a table.
    Flush flush,
    /// A compaction that rewrote tables.
    Compaction compaction,
    /// An ingestion of external tables.
    Ingestion ingestion,
    /// A write's wait for a flush or compaction.
    Stall stall,
    /// An edit of the manifest, with its sync.
    ManifestEdit manifest_edit,
}

const OPERATIONS: usize = Operation::ALL.len();

/// The histograms of one database.
#[derive(Debug)]
pub(crate) struct LatencyCounters([OperationCounters; OPERATIONS]);

impl Default for LatencyCounters {
    fn default() -> Self {
        LatencyCounters(std::array::from_fn(|_| OperationCounters::default()))
    }
}

impl LatencyCounters {
    pub(crate) fn record(&self, operation: Operation, took: Duration) {
        self.0[operation as usize].record(took);
    }

    /// Returns the heap memory that the histograms take.
    pub(crate) fn memory_bytes() -> usize {
        OPERATIONS * size_of::<OperationCounters>()
    }
}

#[derive(Debug)]
struct OperationCounters {
    buckets: [AtomicU64; BUCKETS],
    total_nanos: AtomicU64,
    max_nanos: AtomicU64,
}

impl Default for OperationCounters {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        OperationCounters { buckets: std::array::from_fn(|_| zero()), total_nanos: zero(), max_nanos: zero() }
    }
}

impl OperationCounters {
    fn record(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if nanos > self.max_nanos.load(Relaxed) {
            self.max_nanos.fetch_max(nanos, Relaxed);
        }
        self.buckets[bucket_of(nanos)].fetch_add(1, Relaxed);
        self.total_nanos.fetch_add(nanos, Relaxed);
    }

    fn read(&self) -> LatencyHistogram {
        let counts = self.buckets.iter().map(|count| count.load(Relaxed));
        LatencyHistogram::new(counts, self.total_nanos.load(Relaxed), self.max_nanos.load(Relaxed))
    }
}

thread_local! {
    static OPERATIONS_SEEN: Cell<u32> = const { Cell::new(0) };
    static DRAWN: Cell<u32> = const { Cell::new(0x9E37_79B9) };
}

/// Reports whether to time this operation of the thread, which is neither a get nor a rare one.
#[inline]
pub(crate) fn is_due() -> bool {
    OPERATIONS_SEEN.with(|seen| {
        let left = seen.get();
        if left > 0 {
            seen.set(left - 1);
            return false;
        }
        seen.set(draw(OTHERS));
        true
    })
}

/// Returns how many gets to let pass before timing the next one.
#[cold]
pub(crate) fn next_get() -> u64 {
    1 + u64::from(draw(GETS as u32))
}

/// Returns a number below twice `mean`, on average `mean` less a half: xorshift32.
fn draw(mean: u32) -> u32 {
    DRAWN.with(|drawn| {
        let mut x = drawn.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        drawn.set(x);
        x % (2 * mean)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_so_many_is_due() {
        let due = (0..16_000).filter(|_| is_due()).count();
        assert!((800..1200).contains(&due), "{due}");
        let gets = (0..1000).map(|_| next_get()).sum::<u64>();
        assert!((200_000..320_000).contains(&gets), "{gets}");
    }

    #[test]
    fn no_duration_is_lost_between_threads() {
        let counters = LatencyCounters::default();
        std::thread::scope(|scope| {
            for thread in 1..=4 {
                let counters = &counters;
                scope.spawn(move || {
                    for _ in 0..1000 {
                        counters.record(Operation::Write, Duration::from_nanos(thread * 100));
                    }
                });
            }
        });
        let read = counters.read();
        assert_eq!(read.write.samples(), 4000);
        assert_eq!(read.write.total(), Duration::from_nanos(1_000_000));
        assert_eq!(read.write.max(), Duration::from_nanos(400));
        assert_eq!(read.of(Operation::Get).samples(), 0);
    }
}
