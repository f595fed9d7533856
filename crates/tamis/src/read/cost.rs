//! What reads cost, as counters.

use crate::sync::Mutex;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tamis_filter::Digest;
use thread_local::ThreadLocal;

use crate::read::sample::{KeySample, SAMPLED};
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

        #[derive(Debug, Default)]
        struct $cells { $($field: AtomicU64,)* }

        impl $cells {
            /// Called by the one thread that owns these cells; a plain load and store suffice.
            #[inline]
            fn add(&self, cost: &$name) {
                $(if cost.$field != 0 {
                    self.$field.store(self.$field.load(Relaxed) + cost.$field, Relaxed);
                })*
            }

            fn read(&self) -> $name {
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

/// What a point lookup of a user leaves behind: what it cost, and its key's digest if one was computed.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) cost: ReadCost,
    pub(crate) digest: Option<Digest>,
}

impl ReadTrace for Counted {
    #[inline]
    fn block_touched(&mut self, touch: BlockTouch) {
        self.cost.block_touched(touch);
    }

    #[inline]
    fn metadata_touched(&mut self, touch: BlockTouch) {
        self.cost.metadata_touched(touch);
    }

    #[inline]
    fn checksum_verified(&mut self) {
        self.cost.checksum_verified();
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

/// The counters of one keyspace: one set of cells per thread, so that counting costs no shared cache line;
/// readings sum them. A reading sees every operation that happened before it in the reading thread's order.
#[derive(Debug, Default)]
pub(crate) struct ReadCounters {
    cells: ThreadLocal<ReadCells>,
    /// Some of the keys that were found.
    sample: KeySample,
}

impl ReadCounters {
    #[inline]
    pub(crate) fn add(&self, cost: &ReadCost) {
        self.cells.get_or_default().add(cost);
    }

    /// As [`add`](Self::add) for one get; now and then its key becomes part of the sample.
    #[inline]
    pub(crate) fn add_get(&self, get: &Counted) {
        let cells = self.cells.get_or_default();
        cells.add(&get.cost);
        if get.cost.found > 0 && cells.found.load(Relaxed).is_multiple_of(SAMPLED) {
            self.sample.add(get.digest);
        }
    }

    /// How unequally keys are asked for: see [`KeySample::collisions`].
    pub(crate) fn collisions(&self) -> Option<f64> {
        self.sample.collisions()
    }

    pub(crate) fn read(&self) -> ReadCost {
        self.cells.iter().fold(ReadCost::default(), |sum, cells| sum + cells.read())
    }
}

/// The counters of all keyspaces of one database, also of those that are gone. Any thread may ask; a keyspace that comes or
/// goes, and a reading, take a lock.
#[derive(Debug, Default)]
pub(crate) struct AllReads {
    keyspaces: Mutex<(Vec<Arc<ReadCounters>>, ReadCost)>,
}

impl AllReads {
    /// Counters for one more keyspace.
    pub(crate) fn counters(&self) -> Arc<ReadCounters> {
        let counters = Arc::new(ReadCounters::default());
        let (live, gone) = &mut *self.keyspaces.lock();
        // Who holds the last reference to the counters of a keyspace that is gone counts no more.
        live.retain_mut(|counters| {
            // Unlike the number of references, this also waits for what the last of the others counted.
            let counted = Arc::get_mut(counters).is_none();
            if !counted {
                *gone = *gone + counters.read();
            }
            counted
        });
        live.push(counters.clone());
        counters
    }

    pub(crate) fn read(&self) -> ReadCost {
        let (live, gone) = &*self.keyspaces.lock();
        live.iter().fold(*gone, |sum, counters| sum + counters.read())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_count_is_lost_when_threads_come_and_go() {
        let counters = ReadCounters::default();
        for _ in 0..8 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..1000 {
                            counters.add(&ReadCost { gets: 1, digests: 2, ..ReadCost::default() });
                        }
                    });
                }
            });
        }
        let sum = counters.read();
        assert_eq!((sum.gets, sum.digests, sum.seeks), (32_000, 64_000, 0));
    }

    #[test]
    fn what_a_keyspace_counted_stays_when_it_goes() {
        let all = AllReads::default();
        let one = ReadCost { gets: 1, ..ReadCost::default() };
        for kept in 1..=5 {
            let counters = all.counters();
            counters.add(&one);
            assert_eq!(all.read().gets, kept);
        }
        assert_eq!(all.keyspaces.lock().0.len(), 1);
    }
}
