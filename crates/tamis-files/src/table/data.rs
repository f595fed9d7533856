//! Table bytes that outlive the call that found them.
//!
//! A mapped table keeps several handles to its mapping, one per group of threads, so that threads
//! pinning values at the same time rarely write to the same reference count.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tamis_env::io::Mapping;

/// How many handles to its mapping a table keeps.
const PINS: usize = 8;

/// Keeps a mapping alive. The alignment gives its reference count cache lines of its own, apart
/// even from the pointer to the mapping, which readers on other cores use.
#[derive(Debug)]
#[repr(align(128))]
pub struct MapPin(Mapping);

/// The handles of one table, chosen by thread.
#[derive(Debug)]
pub(crate) struct Pins([Arc<MapPin>; PINS]);

impl Pins {
    pub(crate) fn new(mapping: &Mapping) -> Pins {
        Pins(std::array::from_fn(|_| Arc::new(MapPin(mapping.clone()))))
    }

    /// The handle for this thread. Threads get handles in turn, in the order of their first calls,
    /// so every [`PINS`]th thread shares one.
    #[inline]
    pub(crate) fn mine(&self) -> Arc<MapPin> {
        Arc::clone(&self.0[thread_slot()])
    }
}

#[inline]
fn thread_slot() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // Relaxed: the counter only spreads threads evenly and publishes nothing.
        static SLOT: usize = NEXT.fetch_add(1, Ordering::Relaxed) % PINS;
    }
    // A thread being torn down no longer has a slot; any handle will do.
    SLOT.try_with(|slot| *slot).unwrap_or(0)
}

/// An uncompressed block on the heap, which may be part of a larger piece read at once.
#[derive(Clone, Debug)]
pub struct HeapBlock {
    /// The allocation.
    pub(crate) bytes: Arc<[u8]>,
    /// Where the block starts in it.
    pub(crate) start: usize,
    /// The block's length, without its trailer.
    pub(crate) len: usize,
}

impl Deref for HeapBlock {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

/// Shared bytes of a mapping or of a block on the heap. Cheap to clone. Keeps the table's file
/// mapped, or the block in memory, while it lives.
#[derive(Clone, Debug)]
pub enum BlockData {
    /// `start..start + len` of a mapped file.
    Mapped {
        /// Keeps the mapping.
        pin: Arc<MapPin>,
        /// First byte.
        start: usize,
        /// Length in bytes.
        len: usize,
    },
    /// `start..start + len` of a block (or a piece of a file) on the heap.
    Heap {
        /// The allocation.
        bytes: Arc<[u8]>,
        /// First byte.
        start: usize,
        /// Length in bytes.
        len: usize,
    },
}

impl AsRef<[u8]> for BlockData {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// A pinned value, key or opaque part of a table.
pub type PinnedValue = BlockData;

impl Deref for BlockData {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            BlockData::Mapped { pin, start, len } => &pin.0[*start..start + len],
            BlockData::Heap { bytes, start, len } => &bytes[*start..start + len],
        }
    }
}

/// A block as a lookup uses it: borrowed from the table's mapping, or shared with the cache.
#[derive(Clone, Debug)]
pub(crate) enum BlockRef<'t> {
    /// In place.
    Mapped {
        /// The block without its trailer.
        bytes: &'t [u8],
        /// Its offset in the mapping.
        start: usize,
    },
    /// On the heap.
    Heap(HeapBlock),
}

impl Deref for BlockRef<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            BlockRef::Mapped { bytes, .. } => bytes,
            BlockRef::Heap(block) => block,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_bytes_outlive_the_pins_they_came_from() {
        let pins = Pins::new(&Mapping::new(Arc::new(b"0123456789".to_vec())));
        let value = BlockData::Mapped { pin: pins.mine(), start: 3, len: 4 };
        drop(pins);
        assert_eq!(&value[..], b"3456");
    }

    #[test]
    fn reference_counts_of_two_pins_share_no_line() {
        assert_eq!(align_of::<MapPin>(), 128);
    }
}
