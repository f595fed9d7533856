//! A bump allocator: hands memory out front to back and frees it all at once.
//!
//! # Invariants
//! * A piece is never moved, reused or freed before its arena drops, so a pointer to it stays valid
//!   while the arena lives.
//! * A piece carries the provenance of its own chunk and overlaps no other piece.
//! * The contents are never dropped: only plain data belongs here.
//!
//! # Threads
//! Any number of threads allocate at a time. Only a new chunk takes a lock. A piece is a range of
//! its chunk's counter, so two threads never get the same bytes (an atomic addition; nothing else
//! depends on its order, hence `Relaxed`). The chunk is published with `Release` and found with
//! `Acquire`. Any thread may read the pieces.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::MmapMut;

use super::chunks::{ChunkAccount, new_chunk};

/// Every chunk starts on a cache line.
const CHUNK_ALIGN: usize = 64;

/// Chunks of at least this size are mapped: an allocator may long hold on to the large memory of a
/// freed memtable.
const MAPPED_BYTES: usize = 1 << 20;

/// The size of the first chunk. Each next one is as large as all before it. An arena has at most
/// about twice the memory that it needs, and a large one soon gets chunks of the largest size.
const FIRST_BYTES: usize = 1 << 10;

/// A bump allocator over chunks of growing size. A piece that would waste much of a chunk gets its
/// own.
pub(super) struct Arena {
    /// The chunk to take pieces from, also in `chunks`; null before the first.
    current: AtomicPtr<Chunk>,
    /// The size of the largest chunks, except chunks of single pieces.
    chunk_bytes: usize,
    /// Pieces begin and end at multiples of this power of two, up to [`CHUNK_ALIGN`].
    align: usize,
    /// Bytes handed out beyond the current chunk: full chunks with their waste, and pieces with
    /// their own chunks.
    full: AtomicUsize,
    /// The bytes of all chunks. Changed under the lock of `chunks`.
    held: AtomicUsize,
    /// All chunks, made by `Box::into_raw` and freed with the arena.
    chunks: Mutex<Vec<NonNull<Chunk>>>,
    account: Arc<ChunkAccount>,
}

// SAFETY: the pointers lead to chunks that the arena owns.
unsafe impl Send for Arena {}
// SAFETY: as above; chunks are shared by atomics and a mutex, and their memory is handed out in
// disjoint pieces.
unsafe impl Sync for Arena {}

struct Chunk {
    start: NonNull<u8>,
    len: usize,
    /// The bytes taken. Beyond `len` once the chunk is full.
    taken: AtomicUsize,
    memory: Memory,
}

enum Memory {
    Allocated(Layout),
    /// Goes to the pool, or is unmapped, when the arena drops.
    Mapped(MmapMut),
}

impl Arena {
    /// Creates an arena that allocates in chunks of up to `chunk_bytes`. Chunks come on demand,
    /// from the pool of `account` if it has any, and are counted there.
    pub(super) fn new(chunk_bytes: usize, align: usize, account: Arc<ChunkAccount>) -> Arena {
        assert!(align.is_power_of_two() && align <= CHUNK_ALIGN);
        Arena {
            current: AtomicPtr::new(ptr::null_mut()),
            chunk_bytes: chunk_bytes.next_multiple_of(align),
            align,
            full: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            chunks: Mutex::default(),
            account,
        }
    }

    /// Returns the bytes of all chunks.
    #[inline]
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns the bytes handed out so far, including alignment waste and the ends of full chunks.
    /// May miss concurrent allocations.
    pub(super) fn used(&self) -> usize {
        let of_current = self.current().map_or(0, |chunk| chunk.taken.load(Ordering::Relaxed).min(chunk.len));
        self.full.load(Ordering::Relaxed) + of_current
    }

    #[inline]
    fn current(&self) -> Option<&Chunk> {
        // SAFETY: null, or a chunk that lives as long as the arena and was complete before it was
        // published.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    /// Returns an uninitialised piece of `bytes` bytes at a multiple of the alignment.
    ///
    /// Aborts the process when the system is out of memory, like every allocation in the process.
    #[inline]
    pub(super) fn alloc(&self, bytes: usize) -> NonNull<u8> {
        let bytes = (bytes + self.align - 1) & !(self.align - 1);
        match self.current() {
            Some(chunk) if bytes <= chunk.len / 4 => {
                chunk.take(bytes).unwrap_or_else(|| self.alloc_slow(bytes))
            }
            _ => self.alloc_slow(bytes),
        }
    }

    #[cold]
    fn alloc_slow(&self, bytes: usize) -> NonNull<u8> {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have added a chunk meanwhile.
        if let Some(piece) =
            self.current().filter(|chunk| bytes <= chunk.len / 4).and_then(|chunk| chunk.take(bytes))
        {
            return piece;
        }
        let next = self.next_bytes();
        if bytes > next / 4 {
            self.full.fetch_add(bytes, Ordering::Relaxed);
            let chunk = self.chunk(bytes);
            chunks.push(chunk);
            // SAFETY: just made; it lives as long as the arena, and nothing else takes from it.
            return unsafe { chunk.as_ref() }.start;
        }
        let chunk = self.chunk(next);
        chunks.push(chunk);
        // SAFETY: as above.
        let piece = unsafe { chunk.as_ref() }.take(bytes).expect("a quarter of a fresh chunk");
        // The end of the full chunk is wasted and counts as used.
        self.full.fetch_add(self.current().map_or(0, |full| full.len), Ordering::Relaxed);
        self.current.store(chunk.as_ptr(), Ordering::Release);
        piece
    }

    /// Returns the size of the next chunk: a power of two, so that chunks fit other arenas, or the
    /// largest size.
    fn next_bytes(&self) -> usize {
        match self.held() {
            held if held >= self.chunk_bytes => self.chunk_bytes,
            held => (1 << held.max(FIRST_BYTES).ilog2()).min(self.chunk_bytes),
        }
    }

    fn chunk(&self, bytes: usize) -> NonNull<Chunk> {
        let mapped = || {
            let known = self.account.pool().and_then(|pool| pool.take(bytes));
            known.or_else(|| new_chunk(bytes).ok())
        };
        self.held.fetch_add(bytes, Ordering::Relaxed);
        self.account.grow(bytes);
        let (start, memory) = match (bytes >= MAPPED_BYTES && cfg!(not(miri))).then(mapped).flatten() {
            Some(mut map) => (NonNull::from(&mut map[..]).cast(), Memory::Mapped(map)),
            None => {
                let layout = Layout::from_size_align(bytes.max(1), CHUNK_ALIGN);
                let layout = layout.expect("a piece fits the address space");
                // SAFETY: the layout has at least one byte.
                let start = NonNull::new(unsafe { alloc(layout) });
                (start.unwrap_or_else(|| handle_alloc_error(layout)), Memory::Allocated(layout))
            }
        };
        NonNull::from(Box::leak(Box::new(Chunk { start, len: bytes, taken: AtomicUsize::new(0), memory })))
    }
}

impl Chunk {
    /// Takes the next `bytes` if that many are left. A failure leaves the chunk full.
    #[inline]
    fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        let at = self.taken.fetch_add(bytes, Ordering::Relaxed);
        // A new chunk follows each failure, so the counter stays far from its end.
        // SAFETY: the range lies in the chunk, and no other call got any of it.
        (at + bytes <= self.len).then(|| unsafe { self.start.add(at) })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for chunk in self.chunks.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // SAFETY: made by `Box::leak` in `chunk`, and freed only here.
            let Chunk { start, memory, .. } = *unsafe { Box::from_raw(chunk.as_ptr()) };
            match (memory, self.account.pool()) {
                // SAFETY: allocated in `chunk` with this layout, and freed only here.
                (Memory::Allocated(layout), _) => unsafe { dealloc(start.as_ptr(), layout) },
                (Memory::Mapped(map), Some(pool)) => pool.give(map),
                (Memory::Mapped(map), None) => drop(map),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memtable::ChunkPool;

    #[test]
    fn pieces_are_aligned_and_do_not_overlap() {
        for align in [1, 8, 64] {
            let arena = Arena::new(4096, align, Arc::default());
            // From several threads at once.
            let take = |thread: usize| {
                let piece = |i: usize| {
                    let bytes = (i * 37) % 1500;
                    let piece = arena.alloc(bytes);
                    assert_eq!(piece.addr().get() % align, 0, "piece {i}");
                    // SAFETY: the piece has `bytes` bytes, and nothing else uses them.
                    unsafe { piece.as_ptr().write_bytes((i + thread) as u8, bytes) };
                    (piece.addr().get(), bytes)
                };
                (0..if cfg!(miri) { 100 } else { 2000 }).map(piece).collect::<Vec<_>>()
            };
            let mut pieces: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || take(thread))).collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            assert!(arena.used() >= pieces.iter().map(|p| p.1).sum());
            pieces.retain(|p| p.1 > 0);
            pieces.sort_unstable();
            assert!(pieces.windows(2).all(|p| p[0].0 + p[0].1 <= p[1].0));
        }
    }

    #[test]
    fn a_dropped_arena_leaves_its_mapped_chunks_to_the_next() {
        let pool = Arc::new(ChunkPool::new(64 << 20));
        let fill = || {
            let arena = Arena::new(2 << 20, 8, Arc::new(ChunkAccount::new(Some(pool.clone()))));
            (0..6 << 10).for_each(|_| _ = arena.alloc(1 << 10));
            arena
        };
        let arena = fill();
        assert_eq!(pool.active(), arena.held() as u64);
        drop(arena);
        let left = pool.bytes();
        assert_eq!((left >= 4 << 20, pool.active()), (cfg!(not(miri)), 0));
        let _arena = fill();
        assert_eq!(pool.bytes(), 0);
    }

    #[test]
    fn a_large_piece_leaves_the_current_chunk_unchanged() {
        let arena = Arena::new(4096, 8, Arc::default());
        let first = arena.alloc(16).addr().get();
        arena.alloc(100_000);
        assert_eq!(arena.alloc(16).addr().get(), first + 16);
        assert_eq!((arena.used(), arena.held()), (100_032, FIRST_BYTES + 100_000));
    }

    #[test]
    fn large_chunks_are_mapped_and_hold_their_contents() {
        let arena = Arena::new(2 << 20, 64, Arc::default());
        let pieces: Vec<NonNull<u8>> = (0..200).map(|_| arena.alloc(50_000)).collect();
        for (i, piece) in pieces.iter().enumerate() {
            // SAFETY: the piece has this many bytes, and nothing else uses them.
            unsafe { piece.as_ptr().write_bytes(i as u8, 50_000) };
        }
        let large = arena.alloc(3 << 20);
        assert_eq!(large.addr().get() % 8, 0);
        for (i, piece) in pieces.iter().enumerate() {
            // SAFETY: written above.
            let bytes = unsafe { std::slice::from_raw_parts(piece.as_ptr(), 50_000) };
            assert!(bytes.iter().all(|&byte| byte == i as u8), "piece {i}");
        }
        let chunks = arena.chunks.lock().unwrap();
        for chunk in &*chunks {
            // SAFETY: chunks live as long as the arena.
            let chunk = unsafe { chunk.as_ref() };
            let is_mapped = matches!(chunk.memory, Memory::Mapped(_));
            assert_eq!(is_mapped, chunk.len >= MAPPED_BYTES && cfg!(not(miri)), "{} bytes", chunk.len);
        }
    }

    /// The first small write to each of some hundred keyspaces took gigabytes.
    #[test]
    fn an_arena_holds_at_most_about_twice_what_it_hands_out() {
        for piece in [1, 40, 300, 5000, 100_000, 1 << 20] {
            let arena = Arena::new(2 << 20, 1, Arc::default());
            let (mut handed, mut largest) = (0, 0);
            while handed < if cfg!(miri) { 1 << 16 } else { 32 << 20 } {
                arena.alloc(piece);
                handed += piece;
                largest = largest.max(arena.held() - handed);
                let most = 5 * handed / 2 + FIRST_BYTES;
                assert!(arena.held() <= most, "{} bytes for {handed} in pieces of {piece}", arena.held());
            }
            // Of a large arena the chunk that pieces are taken from, and a part of each full one.
            assert!(largest <= (2 << 20) + handed / 8, "{largest} bytes too many for pieces of {piece}");
        }
    }

    #[test]
    fn an_arena_takes_no_memory_before_the_first_piece() {
        let arena = Arena::new(1 << 20, 8, Arc::default());
        assert_eq!((arena.used(), arena.held()), (0, 0));
        assert!(arena.chunks.lock().unwrap().is_empty());
    }
}
