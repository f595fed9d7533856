//! What writes, flushes and compactions cost.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter that any thread adds to.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! write_counters {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// What writes cost, summed since opening. Times are in nanoseconds, sizes in bytes.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct WriteCost { $($(#[$doc])* pub $field: u64,)* }

        impl WriteCost {
            /// The counters with their names, in the order of the struct.
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

        /// The difference of two readings, the later one first.
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
    /// Operations written (each put, delete or range delete of a batch counts one).
    writes,
    /// Bytes of the keys and values given.
    user_bytes,
    /// Bytes appended to the log.
    log_bytes,
    /// Syncs of a log file.
    log_syncs,
    /// Records appended to the log: each is one group of batches committed together.
    groups,
    /// Memtables flushed.
    flushes,
    /// Bytes of the tables that flushes wrote.
    flush_bytes,
    /// Tables ingested.
    ingested_tables,
    /// Bytes of the tables ingested.
    ingested_bytes,
    /// Compactions that rewrote tables.
    compactions,
    /// Compactions that only moved tables a level down.
    trivial_moves,
    /// Tables dropped whole because what they held was too old to be kept.
    dropped_tables,
    /// Bytes of the tables that compactions read.
    compaction_read_bytes,
    /// Bytes of the tables that compactions wrote.
    compaction_write_bytes,
    /// Parts of merges that were cut into parts.
    sub_jobs,
    /// Compactions that were cancelled; what they had written was removed.
    cancelled,
    /// Compactions that met a full disk and were undone, to be tried again later.
    set_aside,
    /// How often the reserve was given up on a full disk.
    reserves_spent,
    /// Flushes that failed and were tried again.
    failed_flushes,
    /// How often writes were suspended until the logs were replaced.
    suspensions,
    /// Time that flushes and compactions waited for the limit of background writes.
    pace_nanos,
    /// Commits that were delayed because compactions or flushes lag behind.
    slowdowns,
    /// Time that commits were delayed.
    slowdown_nanos,
    /// Times that writes stopped until a flush or compaction was done.
    stalls,
    /// Time that writes stood still.
    stall_nanos,
}
