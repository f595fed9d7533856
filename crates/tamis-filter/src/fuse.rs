//! The binary fuse filter: T. M. Graf, D. Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor
//! Filters" (ACM JEA 2022), the 3-wise one.
//!
//! The slots form segments of equal length, a power of two. A key has one slot in each of three
//! neighbouring segments, and its fingerprint is the exclusive or of the three. Because the keys
//! are spread over windows, peeling starts at both ends and works inwards, and 1.13 slots per key
//! suffice for large sets. Smaller and faster than a Bloom filter of the same rate, but it needs
//! all keys at once: suited to long-lived runs.
//!
//! # Invariants
//! * The rate is `2^-width`, whatever the keys; `width` is the widest that the bits per key pay
//!   for, at most 32 bits. A width of 8, 16 or 32 is probed with three plain loads.
//! * Slots per key follow the paper's formula (section 4), rounded up to segments: 1.92 for 100
//!   keys, 1.41 for 1,000, 1.28 for 10,000, 1.19 for 100,000, 1.13 from a million on. So 8-bit
//!   fingerprints need 9.1 bits per key in a large run and 11.3 in one of 1,000 keys.
//! * The filter never takes more bits than requested, except to round up to whole words. If not
//!   even one-bit fingerprints fit (four bits per key are always enough for them), the filter has
//!   none, takes one word and accepts everything.
//!
//! Unlike in the paper's code, fingerprints may have any width, and are the top bits of a further
//! product instead of the folded hash: the fold shares its low bits with two of the three slots.
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

/// Longest segments, as a power of two: the second and third slot each take that many bits of the
/// hash.
const MAX_SEGMENT_BITS: u32 = 18;

/// A binary fuse filter over a run's digests. Cloning shares the words.
#[derive(Clone, Copy)]
pub struct BinaryFuse<W: Words = Owned> {
    head: Head,
    spread: SpreadSalt,
    segments: Segments,
    table: XorTable,
    words: W,
}

impl BinaryFuse {
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

/// The number of windows of three segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segments {
    /// Slots in which a window may start: those of all segments but the last two.
    starts: u64,
    /// Length of a segment, a power of two.
    length: u64,
}

impl Slots for Segments {
    #[inline(always)]
    fn of(&self, hash: u64) -> [u64; 3] {
        let first = reduce(hash, self.starts);
        let within = self.length - 1;
        [
            first,
            (first + self.length) ^ ((hash >> MAX_SEGMENT_BITS) & within),
            (first + 2 * self.length) ^ (hash & within),
        ]
    }

    fn count(&self) -> u64 {
        self.starts + 2 * self.length
    }

    fn order_bits(&self) -> u32 {
        // With more parts, scattering into them costs more than the order saves.
        (self.starts / self.length).ilog2().min(10)
    }
}

impl Peeled for BinaryFuse {
    type Slots = Segments;

    fn slots_for(keys: u64) -> (u64, u8) {
        let ln = (keys as f64).ln();
        let segment_bits = ((ln / 3.33f64.ln() + 2.25) as u32).min(MAX_SEGMENT_BITS);
        // For one key the quotient is infinite, and the smallest table is enough.
        let factor = (0.875 + 0.25 * 1e6f64.ln() / ln).max(1.125);
        let slots = if keys > 1 { (keys as f64 * factor).round() as u64 } else { 0 };
        let segments = slots.div_ceil(1 << segment_bits).max(3);
        (segments << segment_bits, segment_bits as u8)
    }

    fn parts(&self) -> (Segments, XorTable) {
        (self.segments, self.table)
    }
}

impl<W: Words> WordFilter<W> for BinaryFuse<W> {
    const KIND: FilterKind = FilterKind::BinaryFuse;

    fn from_parts(head: Head, words: W) -> Result<Self, FilterError> {
        let (table, segment_bits) = (XorTable::new(head)?, u32::from(head.params[1]));
        if segment_bits > MAX_SEGMENT_BITS {
            return Err(FilterError::Corrupt("segment length"));
        }
        let (count, width) = (words.count() as u64, u64::from(table.width()));
        let segments = match width {
            0 => 3,
            _ => (count * 64 / width) >> segment_bits,
        };
        let used = bits::words_for((segments << segment_bits) * width).max(1);
        if segments < 3 || used != count || (width == 0 && segment_bits != 0) {
            return Err(FilterError::Corrupt("size"));
        }
        let segments = Segments { starts: (segments - 2) << segment_bits, length: 1 << segment_bits };
        Ok(Self { head, spread: SpreadSalt::new(head.salt), segments, table, words })
    }

    fn head(&self) -> Head {
        self.head
    }

    fn words(&self) -> &W {
        &self.words
    }
}

impl<W: Words> BinaryFuse<W> {
    /// Returns whether the run may hold the key. Up to three cache misses, which overlap.
    #[inline]
    pub fn contains(&self, digest: Digest) -> bool {
        let hash = hash(digest, self.spread);
        self.table.contains(&self.words, self.segments.of(hash), hash)
    }

    /// Prefetches the three lines that [`BinaryFuse::contains`] will read.
    #[inline]
    pub fn prefetch(&self, digest: Digest) {
        self.table.prefetch(&self.words, self.segments.of(hash(digest, self.spread)));
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
    pub fn to_owned(&self) -> BinaryFuse {
        BinaryFuse {
            head: self.head,
            spread: self.spread,
            segments: self.segments,
            table: self.table,
            words: self.words.to_owned_words(),
        }
    }
}

impl<W: Words> fmt::Debug for BinaryFuse<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BinaryFuse")
            .field("head", &self.head)
            .field("segments", &self.segments)
            .finish_non_exhaustive()
    }
}
