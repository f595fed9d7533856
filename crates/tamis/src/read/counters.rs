//! The counters of reads: one set of cells per thread and keyspace, summed when they are read.

use std::sync::Arc;

use tamis_filter::Digest;
use thread_local::ThreadLocal;

use crate::read::sample::{KeySample, SAMPLED};
use crate::sync::Mutex;
use crate::table::{BlockTouch, ReadCells, ReadCost, ReadTrace};

/// The record of a user's point lookup: its cost, and its key's digest if one was computed.
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

/// The counters of one keyspace: one set of cells per thread, so that counting shares no cache line; readings sum them.
/// A reading sees every operation that happened before it in the reading thread's order.
#[derive(Debug, Default)]
pub(crate) struct ReadCounters {
    cells: ThreadLocal<ReadCells>,
    /// A sample of the keys found.
    sample: KeySample,
}

impl ReadCounters {
    #[inline]
    pub(crate) fn add(&self, cost: &ReadCost) {
        self.cells.get_or_default().add(cost);
    }

    /// Like [`add`](Self::add), for one get; occasionally adds its key to the sample.
    #[inline]
    pub(crate) fn add_get(&self, get: &Counted) {
        let cells = self.cells.get_or_default();
        cells.add(&get.cost);
        if get.cost.found > 0 && cells.found().is_multiple_of(SAMPLED) {
            self.sample.add(get.digest);
        }
    }

    /// Returns the skew of reads: see [`KeySample::collisions`].
    pub(crate) fn collisions(&self) -> Option<f64> {
        self.sample.collisions()
    }

    pub(crate) fn read(&self) -> ReadCost {
        self.cells.iter().fold(ReadCost::default(), |sum, cells| sum + cells.read())
    }
}

/// The counters of all keyspaces of one database, including dropped ones. May be used from any thread; adding or
/// dropping a keyspace, and reading, take a lock.
#[derive(Debug, Default)]
pub(crate) struct AllReads {
    keyspaces: Mutex<(Vec<Arc<ReadCounters>>, ReadCost)>,
}

impl AllReads {
    /// Returns counters for another keyspace.
    pub(crate) fn counters(&self) -> Arc<ReadCounters> {
        let counters = Arc::new(ReadCounters::default());
        let (live, gone) = &mut *self.keyspaces.lock();
        // The counters of a dropped keyspace no longer change once this is their last reference.
        live.retain_mut(|counters| {
            // Unlike the number of references, this also synchronizes with the last increments of the others.
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
    fn no_count_is_lost_when_threads_start_and_end() {
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
    fn counts_of_a_dropped_keyspace_are_kept() {
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
