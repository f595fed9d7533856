//! The XOR filter: T. M. Graf, D. Lemire, "Xor Filters: Faster and Smaller Than Bloom and Cuckoo
//! Filters" (ACM JEA 2020).
//!
//! The slots form three blocks of equal length. A key has one slot in each, and its fingerprint is
//! the exclusive or of the three. This is the ancestor of [`BinaryFuse`](crate::BinaryFuse), which
//! is smaller from about 20,000 keys on and faster to build; it serves as the baseline.
//!
//! # Invariants
//! * The rate is `2^-width`, whatever the keys; `width` is the widest that the bits per key pay
//!   for, at most 32 bits. A width of 8, 16 or 32 is probed with three plain loads.
//! * `1.23 * keys + 32` slots (the paper's), with which most salts succeed.
//! * The filter never takes more bits than requested, except to round up to whole words. If not
//!   even one-bit fingerprints fit (four bits per key are always enough for them), the filter has
//!   none, takes one word and accepts everything.
//!
//! The three slots come from one hash, rotated by a third of a word each, as in the paper; unlike
//! in the paper, all 64 bits take part in the reduction. Fingerprints may have any width.
//!
//! # Threads
//! Immutable after building. Cloning shares the words.

use std::fmt;

use crate::bits;
use crate::bloom::reduce;
use crate::digest::{Digest, SpreadSalt};
use crate::error::FilterError;
use crate::fingerprints::peel::{self, Peeled};
use crate::fingerprints::{Slots, XorTable, hash};
use crate::format::{FilterKind, Head, WordFilter};
use crate::words::{Owned, Words};

/// An XOR filter over a run's digests. Cloning shares the words.
#[derive(Clone, Copy)]
pub struct Xor<W: Words = Owned> {
    head: Head,
    spread: SpreadSalt,
    blocks: Blocks,
    table: XorTable,
    words: W,
}

impl Xor {
    /// Builds a filter of all digests, in any order; duplicates count once. Takes expected linear
    /// time and about 20 bytes of temporary memory per key.
    ///
    /// # Errors
    /// [`FilterError::BitsPerKey`] for values outside `(0, 64]`, [`FilterError::TooLarge`] beyond
    /// 2^31 keys, [`FilterError::Construction`] if 64 salts fail, which no set of keys is known to
    /// make likely.
    pub fn build(digests: &[Digest], bits_per_key: f64, salt: u64) -> Result<Self, FilterError> {
        peel::build(digests, bits_per_key, salt)
    }
}

/// Three blocks of this many slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Blocks(u64);

impl Slots for Blocks {
    #[inline(always)]
    fn of(&self, hash: u64) -> [u64; 3] {
        [
            reduce(hash, self.0),
            reduce(hash.rotate_left(21), self.0) + self.0,
            reduce(hash.rotate_left(42), self.0) + 2 * self.0,
        ]
    }

    fn count(&self) -> u64 {
        3 * self.0
    }

    fn order_bits(&self) -> u32 {
        0
    }
}

impl Peeled for Xor {
    type Slots = Blocks;

    fn slots_for(keys: u64) -> (u64, u8) {
        // 1.23 keys + 32, in integer arithmetic.
        ((keys * 123).div_ceil(100).saturating_add(32).div_ceil(3) * 3, 0)
    }

    fn parts(&self) -> (Blocks, XorTable) {
        (self.blocks, self.table)
    }
}

impl<W: Words> WordFilter<W> for Xor<W> {
    const KIND: FilterKind = FilterKind::Xor;

    fn from_parts(head: Head, words: W) -> Result<Self, FilterError> {
        let table = XorTable::new(head)?;
        if head.params[1] != 0 {
            return Err(FilterError::Corrupt("second parameter"));
        }
        let (count, width) = (words.count() as u64, u64::from(table.width()));
        let block = match width {
            0 => 1,
            _ => count * 64 / width / 3,
        };
        if block == 0 || bits::words_for(3 * block * width).max(1) != count {
            return Err(FilterError::Corrupt("size"));
        }
        Ok(Self { head, spread: SpreadSalt::new(head.salt), blocks: Blocks(block), table, words })
    }

    fn head(&self) -> Head {
        self.head
    }

    fn words(&self) -> &W {
        &self.words
    }
}

impl<W: Words> Xor<W> {
    /// Returns whether the run may hold the key. Up to three cache misses, which overlap.
    #[inline]
    pub fn contains(&self, digest: Digest) -> bool {
        let hash = hash(digest, self.spread);
        self.table.contains(&self.words, self.blocks.of(hash), hash)
    }

    /// Prefetches the three lines that [`Xor::contains`] will read.
    #[inline]
    pub fn prefetch(&self, digest: Digest) {
        self.table.prefetch(&self.words, self.blocks.of(hash(digest, self.spread)));
    }

    /// Returns the number of distinct keys the filter was built over.
    pub fn keys(&self) -> u64 {
        self.head.keys
    }

    /// Returns the bits in a fingerprint: 1 to 32; 0 without keys, or without room for one bit.
    pub fn fingerprint_bits(&self) -> u32 {
        self.table.width()
    }

    /// Returns the bits used per key, rounding included; infinite for no keys.
    pub fn bits_per_key(&self) -> f64 {
        (self.words.count() * 64) as f64 / self.head.keys as f64
    }

    /// Returns the theoretical false-positive rate: `2^-fingerprint_bits`; 0 for no keys.
    pub fn expected_rate(&self) -> f64 {
        self.table.expected_rate()
    }

    /// Returns the bytes held in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.words.count() * 8
    }

    /// Copies the filter into owned memory.
    pub fn to_owned(&self) -> Xor {
        Xor {
            head: self.head,
            spread: self.spread,
            blocks: self.blocks,
            table: self.table,
            words: self.words.to_owned_words(),
        }
    }
}

impl<W: Words> fmt::Debug for Xor<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Xor").field("head", &self.head).field("blocks", &self.blocks).finish_non_exhaustive()
    }
}
