//! Counters of the cost of reads.

use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tamis_files::table::{BlockTouch, ReadTrace, TouchCounts};

macro_rules! counters {
    ($(#[$meta:meta])* pub struct $name:ident / $cells:ident { $($(#[doc = $doc:literal])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        pub struct $name {
            $($(#[doc = $doc])* pub $field: u64,)*
        }

        impl $name {
            /// Each counter's name and documentation, in the order of the struct.
            pub const DOCS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($field), concat!($($doc),*)),)*];

            /// Returns the counters with their names, in the order of the struct.
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

        /// The difference between two readings, the later one first.
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
            /// Called by the one thread that owns these cells, so a plain load and store suffice.
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
    /// The cost of reads. Sums over operations; subtract two readings to get the cost in between.
    #[non_exhaustive]
    pub struct ReadCost / ReadCells {
        /// Point lookups: a `get` or `contains_key` counts as one, a `multi_get` of n keys as n.
        gets,
        /// Point lookups that found a value.
        found,
        /// Digests computed from keys.
        digests,
        /// Memtable filters probed.
        memtable_probes,
        /// Point lookups that the record cache answered.
        record_hits,
        /// Table filters probed. A probe of a global filter counts once, however many runs it
        /// covers.
        filter_probes,
        /// Table filter probes that ruled out the key.
        filter_negatives,
        /// Table filter probes that passed a key that was not there.
        false_positives,
        /// Table filters probed by iterators, for a key range. A probe of a global filter counts
        /// once, however many runs it covers; one that the filter cannot answer does not count.
        range_probes,
        /// Range probes that ruled out the range, or everything before some later key. For a global
        /// filter: those that named no run.
        range_negatives,
        /// Range probes after which a table was opened that had nothing within the iterator's
        /// bounds. Under a global filter: runs that were opened because it named them but had
        /// nothing in the key range.
        range_false_positives,
        /// Merge operands applied.
        merge_operands,
        /// Runs whose data was searched by a point lookup.
        runs_searched,
        /// Data blocks touched, from any source.
        block_reads,
        /// Data blocks, and values of blob files, found in the block cache.
        cache_hits,
        /// Data blocks, and values of blob files, looked up in the block cache and not found.
        cache_misses,
        /// Bytes of the blocks touched, as stored.
        bytes_read,
        /// Values read from blob files.
        blob_reads,
        /// Bytes of the records of those values, as stored.
        blob_bytes,
        /// Read system calls for data, index and filter blocks, and for records of blob files.
        io_reads,
        /// Bytes read by those system calls.
        io_bytes,
        /// Those of `io_reads` that were issued together with others, so that their latencies
        /// overlap.
        batched_reads,
        /// Cursors positioned in a run by iterators.
        seeks,
        /// Runs of which iterators opened a table; counted once for each end of an iterator.
        runs_opened,
        /// Iterators positioned, by a seek or by the first item requested at an end.
        scans,
        /// Scans that ended without returning an entry.
        empty_scans,
        /// Entries returned by iterators.
        entries,
        /// Versions that iterators stepped over: newer than what they read, or older than the one
        /// that counts. Not counted are those that they passed by a seek.
        versions_skipped,
        /// Keys without a value that iterators stepped over: deleted, or expired.
        tombstones_skipped,
        /// Blocks and records of blob files whose checksum was computed.
        checksums_verified,
    }
}

impl ReadCost {
    /// Adds what a cursor touched.
    #[inline]
    pub(crate) fn add_touched(&mut self, counts: &TouchCounts) {
        self.block_reads += counts.blocks;
        self.bytes_read += counts.stored_bytes;
        self.blob_reads += counts.blobs;
        self.blob_bytes += counts.blob_bytes;
        self.cache_hits += counts.cache_hits;
        self.cache_misses += counts.cache_misses;
        self.io_reads += counts.io_reads;
        self.io_bytes += counts.io_bytes;
        self.batched_reads += counts.batched_reads;
        self.checksums_verified += counts.checksums;
    }
}

// Hidden, since users do not read tables themselves.
#[doc(hidden)]
/// Every source reports the way a cursor does; the sums are kept under the public names.
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
    fn blob_touched(&mut self, touch: BlockTouch) {
        let mut counts = TouchCounts::default();
        counts.blob_touched(touch);
        self.add_touched(&counts);
    }

    #[inline]
    fn checksum_verified(&mut self) {
        self.checksums_verified += 1;
    }
}

impl ReadCells {
    /// Point lookups. For the thread that owns these cells.
    #[inline]
    pub(crate) fn gets(&self) -> u64 {
        self.gets.load(Relaxed)
    }

    /// Lookups that found a value. For the thread that owns these cells.
    #[inline]
    pub(crate) fn found(&self) -> u64 {
        self.found.load(Relaxed)
    }
}
