//! What reads cost, as counters.

use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::table::{BlockTouch, ReadTrace, TouchCounts};

macro_rules! counters {
    ($(#[$meta:meta])* pub struct $name:ident / $cells:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl $name {
            /// The counters with their names, in the order of the struct.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }
        }

        impl Add for $name {
            type Output = $name;
            fn add(self, other: $name) -> $name {
                $name { $($field: self.$field + other.$field,)* }
            }
        }

        /// The difference of two readings, the later one first.
        impl Sub for $name {
            type Output = $name;
            fn sub(self, earlier: $name) -> $name {
                $name { $($field: self.$field - earlier.$field,)* }
            }
        }

        /// One thread's share of the counters.
        #[derive(Debug, Default)]
        pub(crate) struct $cells { $($field: AtomicU64,)* }

        impl $cells {
            /// Called by the one thread that owns these cells; a plain load and store suffice.
            #[inline]
            pub(crate) fn add(&self, cost: &$name) {
                $(if cost.$field != 0 {
                    self.$field.store(self.$field.load(Relaxed) + cost.$field, Relaxed);
                })*
            }

            pub(crate) fn read(&self) -> $name {
                $name { $($field: self.$field.load(Relaxed),)* }
            }
        }
    };
}

counters! {
    /// What reads cost. Sums over operations; subtract two readings to get what happened in between.
    pub struct ReadCost / ReadCells {
        /// Point lookups: a `get` or `contains` counts one, a `multi_get` of n counts n.
        gets,
        /// Those that found a value.
        found,
        /// Digests computed over a key.
        digests,
        /// Memtable filters asked.
        memtable_probes,
        /// Table filters asked. A question to a global filter counts one, however many runs it is about.
        filter_probes,
        /// Table filters that said "not here".
        filter_negatives,
        /// Table filters that said "maybe" of a key that was not there.
        false_positives,
        /// Table filters asked by iterators, for a range of keys. A question to a global filter counts one, however
        /// many runs it is about; one that the filter cannot answer counts none.
        range_probes,
        /// Those that said "nothing there", or nothing before some later key. Of a global filter: those that named no
        /// run.
        range_negatives,
        /// Those that let a table be opened that had nothing within the iterator's bounds. Under a global filter: runs
        /// that were opened because it named them, and had nothing in the stretch of keys asked about.
        range_false_positives,
        /// Operands of merges that were applied.
        merge_operands,
        /// Runs whose data was searched by a point lookup.
        runs_searched,
        /// Data blocks touched, wherever they came from.
        block_reads,
        /// Data blocks found decoded in the block cache.
        cache_hits,
        /// Data blocks looked for in the block cache and not found.
        cache_misses,
        /// Bytes of the blocks touched, as stored.
        bytes_read,
        /// Read system calls for data, index and filter blocks.
        io_reads,
        /// Bytes that those system calls read.
        io_bytes,
        /// Those of them that were made together with others, so that their waiting times overlap.
        batched_reads,
        /// Cursors positioned in a run by iterators.
        seeks,
        /// Iterators positioned: by the first item that was asked for at an end, or by a seek.
        scans,
        /// Those that came to their end without giving an entry.
        empty_scans,
        /// Entries that iterators gave.
        entries,
        /// Blocks whose checksum was computed.
        checksums_verified,
    }
}

impl ReadCost {
    /// Adds what a cursor touched.
    #[inline]
    pub(crate) fn add_touched(&mut self, counts: &TouchCounts) {
        self.block_reads += counts.blocks;
        self.bytes_read += counts.stored_bytes;
        self.cache_hits += counts.cache_hits;
        self.cache_misses += counts.cache_misses;
        self.io_reads += counts.io_reads;
        self.io_bytes += counts.io_bytes;
        self.batched_reads += counts.batched_reads;
        self.checksums_verified += counts.checksums;
    }
}

/// One source counts as a cursor does; the sums are kept under the names that users see.
impl ReadTrace for ReadCost {
    #[inline]
    fn block_touched(&mut self, touch: BlockTouch) {
        let mut counts = TouchCounts::default();
        counts.block_touched(touch);
        self.add_touched(&counts);
    }

    #[inline]
    fn metadata_touched(&mut self, touch: BlockTouch) {
        let mut counts = TouchCounts::default();
        counts.metadata_touched(touch);
        self.add_touched(&counts);
    }

    #[inline]
    fn checksum_verified(&mut self) {
        self.checksums_verified += 1;
    }
}

impl ReadCells {
    /// Lookups that found a value. For the thread that owns these cells.
    #[inline]
    pub(crate) fn found(&self) -> u64 {
        self.found.load(Relaxed)
    }
}
