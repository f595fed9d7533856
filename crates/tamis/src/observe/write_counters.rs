//! The cost of writes, flushes and compactions.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A counter that any thread may increment.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Like `add`, but for a counter that only the holder of a certain lock raises: a plain
    /// addition.
    #[inline]
    pub(crate) fn add_locked(&self, n: u64) {
        self.0.store(self.0.load(Relaxed) + n, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! write_counters {
    ($($(#[doc = $doc:literal])* $field:ident,)*) => {
        /// The cost of writes since the database was opened. Times are in nanoseconds, sizes in
        /// bytes.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct WriteCost { $($(#[doc = $doc])* pub $field: u64,)* }

        impl WriteCost {
            /// Each counter's name and documentation, in the order of the struct.
            pub const DOCS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($field), concat!($($doc),*)),)*];

            /// Returns the counters with their names, in the order of the struct.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }
        }

        impl std::ops::Add for WriteCost {
            type Output = WriteCost;
            fn add(self, other: WriteCost) -> WriteCost {
                WriteCost { $($field: self.$field + other.$field,)* }
            }
        }

        /// Returns the difference of two readings, the later one first.
        impl std::ops::Sub for WriteCost {
            type Output = WriteCost;
            fn sub(self, earlier: WriteCost) -> WriteCost {
                WriteCost { $($field: self.$field - earlier.$field,)* }
            }
        }

        #[derive(Debug, Default)]
        pub(crate) struct WriteCounters { $(pub(crate) $field: Counter,)* }

        impl WriteCounters {
            pub(crate) fn read(&self) -> WriteCost {
                WriteCost { $($field: self.$field.get(),)* }
            }
        }
    };
}

write_counters! {
    /// Operations written (each put, merge, delete or range delete of a batch counts as one).
    writes,
    /// Commits of transactions, and attempts to change one key, that were refused because of a
    /// conflict.
    conflicts,
    /// Bytes of the keys and values written.
    user_bytes,
    /// Bytes appended to the log.
    log_bytes,
    /// Those of them that were copied into a mapping of the log, without a write call.
    log_mapped_bytes,
    /// Syncs of a log file.
    log_syncs,
    /// Records appended to the log: each is one group of batches committed together.
    groups,
    /// Memtables flushed.
    flushes,
    /// Bytes of the tables and blob files that flushes wrote.
    flush_bytes,
    /// Tables ingested.
    ingested_tables,
    /// Bytes of the tables ingested.
    ingested_bytes,
    /// Compactions that rewrote tables.
    compactions,
    /// Compactions that only moved tables a level down.
    trivial_moves,
    /// Tables dropped whole because their contents were too old to keep.
    dropped_tables,
    /// Bytes of the tables that compactions read, and of the values in blob files that they moved.
    compaction_read_bytes,
    /// Bytes of the tables and blob files that compactions wrote.
    compaction_write_bytes,
    /// Bytes of the blob files among those that flushes and compactions wrote.
    blob_write_bytes,
    /// Parts of merges that were split into parts.
    sub_jobs,
    /// Compactions that were cancelled; their partial output was removed.
    cancelled,
    /// Compactions that failed or met a full disk, and were undone, to be retried later.
    set_aside,
    /// How often the reserve was released on a full disk.
    reserves_spent,
    /// Flushes that failed and were retried.
    failed_flushes,
    /// How often writes were suspended until the logs were replaced.
    suspensions,
    /// Time that flushes and compactions waited for the rate limit of background writes.
    pace_nanos,
    /// Commits that were delayed because compactions or flushes lagged behind.
    slowdowns,
    /// Time that commits were delayed.
    slowdown_nanos,
    /// How often writes stalled until a flush or compaction was done.
    stalls,
    /// Time that writes were stalled.
    stall_nanos,
}
