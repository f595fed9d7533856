//! Chunks of memory that memtables pass on to each other, and the count of the memory of all
//! memtables of a database.
//!
//! A fresh chunk costs a page fault and clearing for each of its pages, by far the longest wait of
//! a put. Under a steady load, every dropped memtable leaves its chunks to the next one. Until then
//! a background thread makes the next large chunk while the present one fills: to provide a huge
//! page takes Linux a tenth of a millisecond, and several where memory is fragmented.
//!
//! # What is counted
//! A [`ChunkAccount`] counts one memtable's memory: filters, range tombstones, and whole chunks,
//! since all of a chunk may be resident once it is touched. The pool has the sums over all
//! memtables of its database, so nothing has to visit them. A memtable's memory is first *active*,
//! then *sealed*. Once *retired* it no longer counts, since only readers hold it. Each move takes
//! the amount counted at that moment out of one sum, so the sums match the accounts whatever grows
//! meanwhile.
//!
//! # Threads
//! Any thread may take and give; one mutex is held for a push or a pop. Any thread may make a chunk
//! ahead; `wanted` lets only one do so, and publishes nothing. Accounts are atomic additions that
//! publish nothing (`Relaxed`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use memmap2::MmapMut;

use crate::idle::IdleTimer;
use crate::sync::Condvar;

/// Chunks of at least this size ask for huge pages: a search touches pages all over a large
/// memtable. In a smaller chunk, a huge page would make memory resident that the chunk does not
/// have.
const HUGE_BYTES: usize = 2 << 20;

/// The smallest page of any system.
const PAGE_BYTES: usize = 4 << 10;

/// Maps a chunk of zeros.
pub(super) fn new_chunk(bytes: usize) -> std::io::Result<MmapMut> {
    let map = MmapMut::map_anon(bytes)?;
    #[cfg(target_os = "linux")]
    if bytes >= HUGE_BYTES {
        let _ = map.advise(memmap2::Advice::HugePage); // only a hint
    }
    Ok(map)
}

/// A pool unused for this long is idle.
const IDLE: Duration = Duration::from_secs(1);

/// Unused chunks, up to a limit.
pub(crate) struct ChunkPool {
    free: Mutex<Free>,
    /// The most bytes to keep.
    most: usize,
    /// The bytes of memtables that take writes.
    active: AtomicU64,
    /// The bytes of memtables that wait for their flush.
    sealed: AtomicU64,
    /// The bytes of values in logs that unflushed memtables refer to.
    in_logs: AtomicU64,
    /// The bytes ever taken by all memtables.
    taken: AtomicU64,
    /// Whether a chunk of [`HUGE_BYTES`] is to be made ahead of need.
    wanted: AtomicBool,
    /// Wakes the threads that make it; none in a database that is read-only.
    makers: OnceLock<Arc<Condvar>>,
}

#[derive(Default)]
struct Free {
    chunks: Vec<MmapMut>,
    bytes: usize,
    /// The number of takes and gives.
    uses: u64,
    idle: IdleTimer<u64>,
}

impl std::fmt::Debug for ChunkPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkPool").field("bytes", &self.bytes()).field("most", &self.most).finish()
    }
}

impl ChunkPool {
    /// Creates an empty pool that keeps up to `most` bytes.
    pub(crate) fn new(most: usize) -> ChunkPool {
        ChunkPool {
            free: Mutex::default(),
            most,
            active: AtomicU64::new(0),
            sealed: AtomicU64::new(0),
            in_logs: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            makers: OnceLock::new(),
        }
    }

    /// Lets threads that wait for `makers`, and then call [`ChunkPool::make_ahead`], make chunks.
    pub(crate) fn made_by(&self, makers: Arc<Condvar>) {
        let _ = self.makers.set(makers); // once for each database
    }

    /// Returns the bytes ever taken by all memtables. Grows as they do.
    #[inline]
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// Returns the bytes of memtables that take writes.
    #[inline]
    pub(crate) fn active(&self) -> u64 {
        self.active.load(Relaxed)
    }

    /// Returns the bytes of memtables that wait for their flush.
    #[inline]
    pub(crate) fn sealed(&self) -> u64 {
        self.sealed.load(Relaxed)
    }

    /// Returns the bytes of values in logs that unflushed memtables refer to. They are no memory.
    #[inline]
    pub(crate) fn in_logs(&self) -> u64 {
        self.in_logs.load(Relaxed)
    }

    /// Returns the bytes of unused chunks.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Returns a chunk of exactly `bytes`, with arbitrary contents. If there is no other one, the
    /// next large one is made ahead.
    pub(super) fn take(&self, bytes: usize) -> Option<MmapMut> {
        let mut free = self.lock();
        let at = free.chunks.iter().rposition(|chunk| chunk.len() == bytes);
        let taken = at.map(|at| free.chunks.swap_remove(at));
        if taken.is_some() {
            free.uses += 1;
            free.bytes -= bytes;
        }
        let is_last = free.bytes.saturating_add(bytes) <= self.most
            && !free.chunks.iter().any(|chunk| chunk.len() == bytes);
        drop(free);
        // A larger chunk is for one large value, and the next one has another size.
        if is_last
            && bytes == HUGE_BYTES
            && let Some(makers) = self.makers.get()
        {
            self.wanted.store(true, Relaxed);
            // Without the state locked: a thread that does not hear it looks within a second.
            makers.notify_all();
        }
        taken
    }

    /// Makes the chunk that will be needed next, if there is one, with its memory provided.
    pub(crate) fn make_ahead(&self) {
        if !self.wanted.swap(false, Relaxed) {
            return;
        }
        if let Ok(mut chunk) = new_chunk(HUGE_BYTES) {
            // Faults lock only this mapping, where an advice to populate it locks all of them:
            // appends to the log, which map windows, would wait.
            chunk.chunks_mut(PAGE_BYTES).for_each(|page| page[0] = 0);
            self.give(chunk);
        }
    }

    /// Keeps a chunk, or returns it to the system if there are enough.
    pub(super) fn give(&self, chunk: MmapMut) {
        let mut free = self.lock();
        if free.bytes.saturating_add(chunk.len()) > self.most {
            // Unmapping is slow.
            drop(free);
            return drop(chunk);
        }
        free.uses += 1;
        free.bytes += chunk.len();
        free.chunks.push(chunk);
    }

    /// Returns all chunks to the system if none was taken or given for a second, as far as calls to
    /// this function show.
    pub(crate) fn release_if_idle(&self, now: Instant) {
        let unused = {
            let mut free = self.lock();
            let uses = free.uses;
            if !free.idle.has_lasted(uses, now, IDLE) {
                return;
            }
            free.bytes = 0;
            std::mem::take(&mut free.chunks)
        };
        drop(unused);
    }

    /// Every change leaves the fields consistent, so another thread's panic is harmless.
    fn lock(&self) -> std::sync::MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memory of one memtable.
#[derive(Default)]
pub(super) struct ChunkAccount {
    pool: Option<Arc<ChunkPool>>,
    /// The memtable's parts of the pool's sums.
    active: AtomicU64,
    sealed: AtomicU64,
    in_logs: AtomicU64,
}

impl ChunkAccount {
    pub(super) fn new(pool: Option<Arc<ChunkPool>>) -> ChunkAccount {
        let mut account = ChunkAccount::default();
        account.pool = pool;
        account
    }

    pub(super) fn pool(&self) -> Option<&ChunkPool> {
        self.pool.as_deref()
    }

    /// Counts `bytes` more.
    pub(super) fn grow(&self, bytes: usize) {
        if let Some(pool) = &self.pool {
            pool.active.fetch_add(bytes as u64, Relaxed);
            pool.taken.fetch_add(bytes as u64, Relaxed);
            self.active.fetch_add(bytes as u64, Relaxed);
        }
    }

    /// Counts a value of so many bytes in a log.
    pub(super) fn refer(&self, bytes: usize) {
        if let Some(pool) = &self.pool {
            pool.in_logs.fetch_add(bytes as u64, Relaxed);
            self.in_logs.fetch_add(bytes as u64, Relaxed);
        }
    }

    /// Records that the memtable now waits for its flush.
    pub(super) fn seal(&self) {
        if let Some(pool) = &self.pool {
            let bytes = self.active.swap(0, Relaxed);
            // Added first, so that a comparison of the sum with a limit never sees less than the
            // memtables hold.
            pool.sealed.fetch_add(bytes, Relaxed);
            pool.active.fetch_sub(bytes, Relaxed);
            self.sealed.fetch_add(bytes, Relaxed);
        }
    }

    /// Records that only readers hold the memtable now.
    pub(super) fn retire(&self) {
        if let Some(pool) = &self.pool {
            pool.active.fetch_sub(self.active.swap(0, Relaxed), Relaxed);
            pool.sealed.fetch_sub(self.sealed.swap(0, Relaxed), Relaxed);
            pool.in_logs.fetch_sub(self.in_logs.swap(0, Relaxed), Relaxed);
        }
    }
}

impl Drop for ChunkAccount {
    fn drop(&mut self) {
        self.retire();
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    fn chunk(bytes: usize) -> MmapMut {
        MmapMut::map_anon(bytes).unwrap()
    }

    #[test]
    fn chunks_are_kept_up_to_the_limit_and_found_by_their_size() {
        let pool = ChunkPool::new(5 << 20);
        assert!(pool.take(2 << 20).is_none());
        pool.give(chunk(2 << 20));
        pool.give(chunk(1 << 20));
        pool.give(chunk(2 << 20));
        pool.give(chunk(1 << 20));
        assert_eq!(pool.bytes(), 5 << 20);
        assert_eq!(pool.take(2 << 20).unwrap().len(), 2 << 20);
        assert_eq!(pool.take(1 << 20).unwrap().len(), 1 << 20);
        assert!(pool.take(1 << 20).is_none());
        assert_eq!(pool.bytes(), 2 << 20);
    }

    #[test]
    fn the_next_large_chunk_is_made_ahead() {
        let pool = ChunkPool::new(4 << 20);
        assert!(pool.take(2 << 20).is_none());
        pool.make_ahead();
        assert_eq!(pool.bytes(), 0, "nobody is there to make it");
        pool.made_by(Arc::default());
        assert!(pool.take(1 << 20).is_none());
        pool.make_ahead();
        assert!(pool.take(3 << 20).is_none());
        pool.make_ahead();
        assert_eq!(pool.bytes(), 0, "a small one is quickly made, and others are for single values");
        assert!(pool.take(2 << 20).is_none());
        pool.make_ahead();
        pool.make_ahead();
        assert_eq!(pool.bytes(), 2 << 20, "one, even if two threads heard of it");
        // The last one is taken: another will be needed. Not if there is one.
        assert_eq!(pool.take(2 << 20).unwrap()[..], vec![0; 2 << 20]);
        pool.make_ahead();
        pool.give(chunk(2 << 20));
        pool.take(2 << 20).unwrap();
        pool.make_ahead();
        assert_eq!(pool.bytes(), 2 << 20);
        // Nor if it could not be kept.
        let pool = ChunkPool::new(1 << 20);
        pool.made_by(Arc::default());
        pool.take(2 << 20);
        pool.make_ahead();
        assert_eq!(pool.bytes(), 0);
    }

    #[test]
    fn the_sums_are_those_of_the_accounts_at_each_moment() {
        let pool = Arc::new(ChunkPool::new(0));
        let sums = || (pool.active(), pool.sealed());
        let [one, other] = [(); 2].map(|()| ChunkAccount::new(Some(pool.clone())));
        one.grow(100);
        other.grow(30);
        assert_eq!(sums(), (130, 0));
        one.seal();
        // Of a keyspace that was dropped, whose writer did not know yet.
        other.retire();
        other.grow(7);
        assert_eq!(sums(), (7, 100));
        one.seal();
        one.retire();
        one.retire();
        assert_eq!(sums(), (7, 0));
        drop((one, other));
        assert_eq!(sums(), (0, 0));
    }

    #[test]
    fn an_idle_pool_gives_its_memory_back() {
        let pool = ChunkPool::new(4 << 20);
        pool.give(chunk(2 << 20));
        let start = Instant::now();
        pool.release_if_idle(start);
        assert_eq!(pool.bytes(), 2 << 20, "it was used just now");
        pool.give(chunk(2 << 20));
        pool.release_if_idle(start + IDLE);
        assert_eq!(pool.bytes(), 4 << 20, "it was used again");
        pool.release_if_idle(start + IDLE * 2);
        assert_eq!(pool.bytes(), 0);
    }
}
