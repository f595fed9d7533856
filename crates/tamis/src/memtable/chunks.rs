//! Chunks of memory that memtables hand on to each other.
//!
//! A fresh chunk costs a page fault and the clearing of each of its pages, by far the longest wait of a put. In a steady load every
//! memtable that is dropped leaves its chunks to the next one.
//!
//! # Threads
//! Any thread may take and give; one mutex, held for a push or a pop.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use memmap2::MmapMut;

use crate::idle::IdleTimer;

/// A pool that nobody used for so long is idle.
const IDLE: Duration = Duration::from_secs(1);

/// Unused chunks, up to a limit.
pub(crate) struct ChunkPool {
    free: Mutex<Free>,
    /// The most bytes to keep.
    most: usize,
}

#[derive(Default)]
struct Free {
    chunks: Vec<MmapMut>,
    bytes: usize,
    /// How often chunks were taken or given.
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
        ChunkPool { free: Mutex::default(), most }
    }

    /// Returns the bytes of unused chunks.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Returns a chunk of exactly `bytes`, with arbitrary contents.
    pub(super) fn take(&self, bytes: usize) -> Option<MmapMut> {
        let mut free = self.lock();
        let at = free.chunks.iter().rposition(|chunk| chunk.len() == bytes)?;
        free.uses += 1;
        free.bytes -= bytes;
        Some(free.chunks.swap_remove(at))
    }

    /// Keeps a chunk, or returns it to the system if there are enough.
    pub(super) fn give(&self, chunk: MmapMut) {
        let mut free = self.lock();
        if free.bytes.saturating_add(chunk.len()) > self.most {
            // Unmapping takes long.
            drop(free);
            return drop(chunk);
        }
        free.uses += 1;
        free.bytes += chunk.len();
        free.chunks.push(chunk);
    }

    /// Returns all chunks to the system if none was taken or given for a second, as far as calls of this show.
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

    /// Every change leaves the fields in agreement, so a panic of another thread is harmless.
    fn lock(&self) -> std::sync::MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
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
