//! Keys that were found once.

use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Relaxed;

use tamis_filter::Digest;

/// The bytes of the cache for each place here: a key should be remembered for about as many others
/// as the cache has entries.
const BYTES_PER_PLACE: u64 = 64;

/// The digests that were found once: 16 bits of each, in a place that other bits choose. A later
/// one takes the place of an earlier one, so what was found long ago is forgotten. A scan of keys
/// that are read once fills this, and not the cache.
///
/// Any thread at any time; a lost update costs another miss.
#[derive(Debug)]
pub(super) struct Seen {
    places: Box<[AtomicU16]>,
}

impl Seen {
    pub(super) fn for_capacity(bytes: u64) -> Seen {
        let places = 1u64 << (bytes / BYTES_PER_PLACE).max(1).ilog2();
        Seen { places: (0..places).map(|_| AtomicU16::new(0)).collect() }
    }

    /// Reports whether the digest was here, and notes it.
    #[inline]
    pub(super) fn is_second(&self, digest: Digest) -> bool {
        let bits = digest.get();
        let place = &self.places[(bits >> 16) as usize & (self.places.len() - 1)];
        // 0 is an empty place.
        let mark = bits as u16 | 1;
        let before = place.load(Relaxed);
        if before != mark {
            place.store(mark, Relaxed);
        }
        before == mark
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.places) as u64
    }
}
