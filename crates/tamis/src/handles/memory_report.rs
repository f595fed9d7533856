//! The memory of an open database: every byte by its owner.
//!
//! Owners know their own sizes; nothing is counted while the database works. Small values that come
//! and go with an operation (batches, iterators, the buffers of running merges) and thread stacks
//! are not included.

use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::state::State;
use crate::handles::readers::Readers;
use crate::observe::latency::LatencyCounters;
use crate::session::Session;

macro_rules! parts {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// The memory of an open database by owner, in bytes. See
        /// [`Db::memory_report`](crate::Db::memory_report).
        ///
        /// Mapped tables, and the filters in them, are page cache and belong to no part: the system
        /// reclaims what is not read
        /// ([`Stats::filter_mapped_bytes`](crate::stats::Stats::filter_mapped_bytes) has the
        /// filters).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct MemoryReport { $($(#[$doc])* pub $field: u64,)* }

        impl MemoryReport {
            /// Returns the parts with their names, in the order of the struct.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }
        }
    };
}

parts! {
    /// Memtables, active and waiting for their flush, with their filters.
    memtables,
    /// Memtables already written to tables, but that iterators or other reads still hold.
    held_memtables,
    /// Memtables already written to tables, but kept for open transactions. A memtable that a
    /// reader holds as well counts in both parts.
    transaction_history,
    /// Memory for the next memtables: that of flushed ones, or made ahead.
    spare_memtables,
    /// Blocks and blob file values in the block cache, with the overhead of each.
    block_cache,
    /// Records in the record cache, with all overhead.
    record_cache,
    /// Table filters, and units of elastic filters, on the heap.
    filters,
    /// Global filters.
    global_filters,
    /// Table indexes, and what is known of their blocks.
    indexes,
    /// What is known of each table and blob file without opening it, in the tree and in the
    /// manifest's state, including range tombstones.
    metadata,
    /// Samples of reads, used to choose and size filters and caches.
    samples,
    /// Gaps between keys that iterators jump over.
    gaps,
    /// Locks that transactions hold.
    locks,
    /// Log records being assembled.
    log_buffers,
    /// Latency histograms, and events waiting for listeners.
    observers,
}

impl MemoryReport {
    /// Returns the sum of all parts.
    pub fn total(&self) -> u64 {
        self.fields().map(|(_, bytes)| bytes).sum()
    }

    /// O(tables).
    pub(crate) fn of(db: &Session, state: &State) -> MemoryReport {
        let mut report = MemoryReport {
            held_memtables: Readers::of(state.catalogue.keyspaces().values()).memtable_bytes,
            transaction_history: db.transactions.history.bytes(),
            spare_memtables: db.keyspaces.chunks.bytes() as u64,
            block_cache: db.files.cache.as_ref().map_or(0, |cache| cache.used_bytes()),
            record_cache: db.files.records.as_ref().map_or(0, |records| records.used_bytes()),
            locks: db.transactions.locks.memory_bytes() as u64,
            log_buffers: db.log.memory_bytes() as u64,
            observers: (LatencyCounters::memory_bytes() + db.observed.observer.queue().memory_bytes()) as u64,
            ..MemoryReport::default()
        };
        state.catalogue.keyspaces().values().for_each(|keyspace| report.add(keyspace));
        report
    }

    fn add(&mut self, keyspace: &KeyspaceInner) {
        let view = keyspace.view.load();
        self.memtables += view.memtables.iter().map(|slot| slot.memtable.memory_bytes() as u64).sum::<u64>();
        for table in &view.version.tables {
            self.filters += (table.filter_memory() - table.mapped_filter_memory()) as u64;
            self.indexes += table.table.memory_bytes() as u64;
            self.metadata += table.metadata_memory() as u64;
        }
        let blobs = view.version.blobs.iter();
        self.metadata += blobs.map(|blob| blob.file.file.memory_bytes() as u64).sum::<u64>();
        let global = keyspace.filter.report();
        self.global_filters += global.map_or(0, |filter| filter.bytes + filter.old_bytes);
        self.samples += keyspace.reads.memory_bytes() as u64;
        self.gaps += view.gaps.memory_bytes() as u64;
    }
}
