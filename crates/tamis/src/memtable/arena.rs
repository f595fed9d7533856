//! A bump allocator: memory is handed out front to back and freed all at once.
//!
//! # Invariants
//! * A piece is never moved, reused or freed before its arena drops, so a pointer to one stays valid as long as the
//!   arena lives.
//! * A piece carries the provenance of its own chunk and overlaps no other piece.
//! * The contents are never dropped: only plain data belongs here.
//!
//! One thread allocates at a time (`&mut self`); the pieces themselves may be read from anywhere.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use memmap2::MmapMut;

/// Every chunk starts on a cache line.
const CHUNK_ALIGN: usize = 64;

/// Chunks of at least this size are mapped, because an allocator may hold on to the large memory of a freed memtable
/// for long. They ask for huge pages, because a search touches pages all over a memtable.
const MAPPED_BYTES: usize = 1 << 20;

/// A bump allocator over chunks of one size; a piece that would waste much of a chunk gets its own.
pub(super) struct Arena {
    /// The next of the `left` free bytes of the current chunk. Dangling while `left` is 0.
    next: NonNull<u8>,
    left: usize,
    chunk_bytes: usize,
    chunks: Vec<Chunk>,
    used: usize,
}

enum Chunk {
    Allocated(NonNull<u8>, Layout),
    /// Unmapped when it is dropped.
    Mapped(#[expect(dead_code, reason = "kept for its drop")] MmapMut),
}

impl Arena {
    /// Creates an arena that allocates in chunks of `chunk_bytes`, the first one on demand.
    pub(super) fn new(chunk_bytes: usize) -> Arena {
        Arena { next: NonNull::dangling(), left: 0, chunk_bytes, chunks: Vec::new(), used: 0 }
    }

    /// Returns the bytes handed out so far, including waste by alignment and at the ends of full chunks.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Returns an uninitialised piece of `bytes` bytes at a multiple of `align` (a power of two up to 64).
    ///
    /// Aborts the process when the system is out of memory, like every allocation in the process.
    #[inline]
    pub(super) fn alloc(&mut self, bytes: usize, align: usize) -> NonNull<u8> {
        debug_assert!(align.is_power_of_two() && align <= CHUNK_ALIGN);
        let pad = self.next.addr().get().wrapping_neg() & (align - 1);
        if pad < self.left && bytes <= self.left - pad {
            // SAFETY: `pad + bytes` bytes from `next` lie in the current chunk.
            return unsafe { self.take(pad, bytes) };
        }
        self.alloc_slow(bytes)
    }

    #[cold]
    fn alloc_slow(&mut self, bytes: usize) -> NonNull<u8> {
        if bytes > self.chunk_bytes / 4 {
            self.used += bytes;
            return self.chunk(bytes);
        }
        // The end of the full chunk is wasted and counts as used.
        self.used += self.left;
        self.next = self.chunk(self.chunk_bytes);
        self.left = self.chunk_bytes;
        // SAFETY: `bytes` is at most a quarter of the fresh chunk, whose start is aligned for every piece.
        unsafe { self.take(0, bytes) }
    }

    /// Hands out `bytes` bytes after `pad` wasted ones.
    ///
    /// # Safety
    /// `pad + bytes` is at most `left`.
    #[inline]
    unsafe fn take(&mut self, pad: usize, bytes: usize) -> NonNull<u8> {
        // SAFETY: both ends stay within the current chunk or one past it, by the caller's promise.
        let (piece, next) = unsafe { (self.next.add(pad), self.next.add(pad + bytes)) };
        self.next = next;
        self.left -= pad + bytes;
        self.used += pad + bytes;
        piece
    }

    fn chunk(&mut self, bytes: usize) -> NonNull<u8> {
        if bytes >= MAPPED_BYTES
            && cfg!(not(miri))
            && let Ok(mut map) = MmapMut::map_anon(bytes)
        {
            #[cfg(target_os = "linux")]
            let _ = map.advise(memmap2::Advice::HugePage); // only a hint
            let start = NonNull::from(&mut map[..]).cast();
            self.chunks.push(Chunk::Mapped(map));
            return start;
        }
        let layout =
            Layout::from_size_align(bytes.max(1), CHUNK_ALIGN).expect("a piece fits the address space");
        // SAFETY: the layout has at least one byte.
        let Some(chunk) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        self.chunks.push(Chunk::Allocated(chunk, layout));
        chunk
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for chunk in &self.chunks {
            if let &Chunk::Allocated(chunk, layout) = chunk {
                // SAFETY: allocated in `chunk` with this layout, and freed only here.
                unsafe { dealloc(chunk.as_ptr(), layout) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_and_do_not_overlap() {
        let mut arena = Arena::new(4096);
        let mut pieces: Vec<(usize, usize)> = Vec::new();
        let mut asked = 0;
        for i in 0..2000usize {
            let (bytes, align) = ((i * 37) % 1500, 1 << (i % 7));
            let piece = arena.alloc(bytes, align);
            assert_eq!(piece.addr().get() % align, 0, "piece {i}");
            // SAFETY: the piece has `bytes` bytes, and nothing else uses them.
            unsafe { piece.as_ptr().write_bytes(i as u8, bytes) };
            pieces.push((piece.addr().get(), bytes));
            asked += bytes;
        }
        assert!(arena.used() >= asked);
        pieces.retain(|p| p.1 > 0);
        pieces.sort_unstable();
        assert!(pieces.windows(2).all(|p| p[0].0 + p[0].1 <= p[1].0));
    }

    #[test]
    fn a_large_piece_leaves_the_current_chunk_unchanged() {
        let mut arena = Arena::new(4096);
        let first = arena.alloc(16, 8).addr().get();
        arena.alloc(100_000, 8);
        assert_eq!(arena.alloc(16, 8).addr().get(), first + 16);
        assert_eq!(arena.used(), 100_032);
    }

    #[test]
    fn large_chunks_are_mapped_and_hold_their_contents() {
        let mut arena = Arena::new(2 << 20);
        let pieces: Vec<NonNull<u8>> = (0..100).map(|_| arena.alloc(50_000, 64)).collect();
        for (i, piece) in pieces.iter().enumerate() {
            // SAFETY: the piece has this many bytes, and nothing else uses them.
            unsafe { piece.as_ptr().write_bytes(i as u8, 50_000) };
        }
        let large = arena.alloc(3 << 20, 8);
        assert_eq!(large.addr().get() % 8, 0);
        for (i, piece) in pieces.iter().enumerate() {
            // SAFETY: written above.
            let bytes = unsafe { std::slice::from_raw_parts(piece.as_ptr(), 50_000) };
            assert!(bytes.iter().all(|&byte| byte == i as u8), "piece {i}");
        }
        let mapped = arena.chunks.iter().filter(|chunk| matches!(chunk, Chunk::Mapped(_))).count();
        assert_eq!(mapped, if cfg!(miri) { 0 } else { arena.chunks.len() });
    }

    #[test]
    fn an_arena_takes_no_memory_before_the_first_piece() {
        assert_eq!(Arena::new(1 << 20).used(), 0);
        assert!(Arena::new(1 << 20).chunks.is_empty());
    }
}
