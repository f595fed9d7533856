//! Cache keys and how they are hashed.

use std::hash::{BuildHasher, Hasher};

/// Identifies an entry: the table's number and the block's offset in its file. Table numbers are
/// never reused, so entries of deleted tables are harmless and age out. Blob records share this key
/// space, with their checksum in place of the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey {
    /// The table's number.
    pub(crate) table: u64,
    /// The block's offset in the file.
    pub(crate) offset: u64,
}

/// The overhead per entry, in bytes: the cache's own slot and the allocation's header.
pub(crate) const ENTRY_OVERHEAD: usize = 96;

#[derive(Clone, Debug)]
pub(crate) struct Mix;

impl BuildHasher for Mix {
    type Hasher = MixHasher;

    fn build_hasher(&self) -> MixHasher {
        MixHasher(0)
    }
}

/// Multiplies and folds each number: a few cycles, and every bit affects all bits.
pub(crate) struct MixHasher(u64);

impl Hasher for MixHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut number = [0; 8];
            number[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(number));
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number ^ 0x9E37_79B9_7F4A_7C15) * 0xD1B5_4A32_D192_ED03;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
