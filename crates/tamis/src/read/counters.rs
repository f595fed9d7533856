//! Read counters: one set of cells per thread and keyspace, summed when read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use tamis_files::table::{BlockTouch, ReadTrace};
use tamis_filter::Digest;
use thread_local::ThreadLocal;

use crate::error::{ReadError, StorageError};
use crate::observe::cost::{ReadCells, ReadCost};
use crate::observe::latency::{self, Operation};
use crate::observe::{Explained, Observer};
use crate::read::sample::{KeySample, SAMPLED};
use crate::select::QuerySampler;
use crate::slice::Slice;
use crate::sync::{self, Mutex, Process};

/// The record of a user's point lookup: its cost, and the key's digest if computed.
#[derive(Debug, Default)]
pub(crate) struct CountedGet {
    pub(crate) cost: ReadCost,
    pub(crate) digest: Option<Digest>,
}

impl ReadTrace for CountedGet {
    #[inline]
    fn block_touched(&mut self, touch: BlockTouch) {
        self.cost.block_touched(touch);
    }

    #[inline]
    fn metadata_touched(&mut self, touch: BlockTouch) {
        self.cost.metadata_touched(touch);
    }

    #[inline]
    fn blob_touched(&mut self, touch: BlockTouch) {
        self.cost.blob_touched(touch);
    }

    #[inline]
    fn checksum_verified(&mut self) {
        self.cost.checksum_verified();
    }
}

/// One thread's share of a keyspace's counters. Only that thread writes it.
#[derive(Debug, Default)]
pub(crate) struct OwnReads {
    cells: ReadCells,
    /// The number of gets from which the next one is timed.
    next_timed: AtomicU64,
}

impl OwnReads {
    /// Reports whether to time the next get.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.cells.gets() >= self.next_timed.load(Relaxed)
    }
}

/// The counters of one keyspace: one set of cells per thread, so that counting shares no cache
/// line. A reading sums them and sees every operation that happened before it in the reading
/// thread's order.
#[derive(Debug, Default)]
pub(crate) struct ReadCounters {
    cells: ThreadLocal<OwnReads>,
    /// A sample of the keys found.
    sample: KeySample,
    /// A sample of queries, if the keyspace's filter uses it.
    queries: Option<Arc<QuerySampler>>,
    /// Receives latencies, if requested.
    observer: Option<Arc<Observer>>,
    /// The keyspace's name when opened or created.
    keyspace: Box<str>,
}

impl ReadCounters {
    /// Returns the process that opened the database.
    pub(crate) fn process(&self) -> Process {
        self.observer.as_ref().map_or_else(Process::current, |observer| observer.process())
    }

    /// Returns the error for a read in another process.
    #[cold]
    pub(crate) fn forked(&self) -> ReadError {
        let path = self.observer.as_ref().map_or_else(Default::default, |observer| observer.dir().to_owned());
        StorageError::Forked { path }.into()
    }

    #[inline]
    pub(crate) fn add(&self, cost: &ReadCost) {
        self.cells.get_or_default().cells.add(cost);
    }

    /// Returns the calling thread's share.
    #[inline]
    pub(crate) fn own(&self) -> &OwnReads {
        self.cells.get_or_default()
    }

    /// Records the latency of a get that was [due](OwnReads::is_due).
    #[cold]
    pub(crate) fn timed_get(&self, own: &OwnReads, started: Instant, explain: impl FnOnce() -> Explained) {
        let Some(observer) = &self.observer else { return };
        if !observer.times_all() {
            own.next_timed.store(own.cells.gets() + latency::next_get(), Relaxed);
        }
        observer.timed(Operation::Get, started, explain);
    }

    /// Returns the keyspace's name when opened or created.
    pub(crate) fn keyspace(&self) -> &str {
        &self.keyspace
    }

    /// Called when an operation on several keys begins. Returns the time if it is to be timed.
    #[inline]
    pub(crate) fn starts(&self) -> Option<Instant> {
        let observer = self.observer.as_ref()?;
        (latency::is_due() || observer.times_all()).then(sync::now)
    }

    /// Records the latency of an operation that [started](Self::starts) at `started`.
    #[cold]
    pub(crate) fn timed(&self, operation: Operation, started: Instant, explain: impl FnOnce() -> Explained) {
        if let Some(observer) = &self.observer {
            observer.timed(operation, started, explain);
        }
    }

    /// Like [`add`](Self::add), for one get of `key`. Occasionally adds it to the samples.
    #[inline]
    pub(crate) fn add_get(&self, own: &OwnReads, key: &[u8], get: &CountedGet) {
        let cells = &own.cells;
        cells.add(&get.cost);
        if get.cost.found > 0 && cells.found().is_multiple_of(SAMPLED) {
            self.sample.add(get.digest);
        }
        if let Some(queries) = &self.queries
            && reached_tables(&get.cost)
            && queries.tick()
        {
            queries.record_get(key, get.cost.found > 0, get.cost.false_positives as f64);
        }
    }

    /// Like [`add`](Self::add), for a batch of gets of `keys`. After an error there are no
    /// `values`.
    pub(crate) fn add_gets<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        values: Option<&[Option<Slice>]>,
        cost: &ReadCost,
    ) {
        self.add(cost);
        let (Some(queries), Some(values)) = (&self.queries, values) else { return };
        if reached_tables(cost) {
            for (key, value) in keys.iter().zip(values) {
                if queries.tick() {
                    // It is not known which keys met the false positives.
                    let false_positives = cost.false_positives as f64 / keys.len() as f64;
                    queries.record_get(key.as_ref(), value.is_some(), false_positives);
                }
            }
        }
    }

    /// Called when an iteration is positioned. Returns whether to sample it as one of the
    /// keyspace's queries.
    #[inline]
    pub(crate) fn samples_scan(&self) -> bool {
        self.queries.as_ref().is_some_and(|queries| queries.tick())
    }

    /// Returns the sampler of queries, if the keyspace has one.
    pub(crate) fn queries(&self) -> Option<&QuerySampler> {
        self.queries.as_deref()
    }

    /// Returns the memory in bytes, apart from what grows only with the number of threads that have
    /// read.
    pub(crate) fn memory_bytes(&self) -> usize {
        KeySample::MEMORY_BYTES + self.queries.as_ref().map_or(0, |queries| queries.memory_bytes())
    }

    /// Returns the skew of reads: see [`KeySample::collisions`].
    pub(crate) fn collisions(&self) -> Option<f64> {
        self.sample.collisions()
    }

    pub(crate) fn read(&self) -> ReadCost {
        self.cells.iter().fold(ReadCost::default(), |sum, own| sum + own.cells.read())
    }
}

/// Reports whether a filter was probed or a table searched.
#[inline]
fn reached_tables(cost: &ReadCost) -> bool {
    cost.filter_probes > 0 || cost.runs_searched > 0
}

/// The counters of all keyspaces of one database, dropped ones included. Usable from any thread.
/// Adding or dropping a keyspace takes a lock, and so does reading.
#[derive(Debug)]
pub(crate) struct AllReads {
    observer: Arc<Observer>,
    keyspaces: Mutex<(Vec<Arc<ReadCounters>>, ReadCost)>,
}

impl AllReads {
    pub(crate) fn new(observer: &Arc<Observer>) -> AllReads {
        AllReads { observer: observer.clone(), keyspaces: Mutex::default() }
    }

    /// Returns counters for another keyspace, with its sampler of queries if it has one.
    pub(crate) fn counters(&self, keyspace: &str, queries: Option<Arc<QuerySampler>>) -> Arc<ReadCounters> {
        let observer = Some(self.observer.clone());
        let counters =
            ReadCounters { queries, observer, keyspace: keyspace.into(), ..ReadCounters::default() };
        let counters = Arc::new(counters);
        let (live, gone) = &mut *self.keyspaces.lock();
        // Only before the list grows: half of it is new by then.
        if live.len() == live.capacity() {
            // A dropped keyspace's counters stop changing once this is their last reference.
            live.retain_mut(|counters| {
                // Unlike the reference count, this also synchronizes with the last increments of
                // other threads.
                let counted = Arc::get_mut(counters).is_none();
                if !counted {
                    *gone = *gone + counters.read();
                }
                counted
            });
        }
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
        let all = AllReads::new(&Observer::new("/db".as_ref(), &[], None));
        let one = ReadCost { gets: 1, ..ReadCost::default() };
        for kept in 1..=5 {
            let counters = all.counters("default", None);
            counters.add(&one);
            assert_eq!(all.read().gets, kept);
        }
        assert_eq!(all.keyspaces.lock().0.len(), 1);
    }
}
