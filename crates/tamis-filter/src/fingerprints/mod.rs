//! Shared parts of the fingerprint filters: the hash of a key, and the table of small equal fields.
//!
//! [`BinaryFuse`](crate::BinaryFuse), [`Xor`](crate::Xor) and [`Cuckoo`](crate::Cuckoo) do not set
//! bits for a key; they store a few bits of its hash in a gapless table of equally wide slots.
//! `peel.rs` fills the table of the first two, which differ only in where the three slots of a key
//! are.
//!
//! # Invariants
//! * Slot `i` of width `w` is bits `i*w .. (i+1)*w` of the payload; bit `p` is bit `p % 64` of word
//!   `p / 64`.
//! * The table is the whole payload: width and number of words give the number of slots. There is
//!   no other header.
//! * [`hash`] is a bijection for a fixed salt: distinct digests have distinct hashes, so another
//!   salt can separate keys that one salt could not place.
//!
//! # Threads
//! Values only.

pub(crate) mod peel;
#[cfg(test)]
mod tests;

use crate::bits;
use crate::digest::{Digest, SpreadSalt};
use crate::error::FilterError;
use crate::format::Head;
use crate::words::Words;

/// Widest fingerprint, in bits: the hash has no more bits left once the slots are chosen.
pub(crate) const MAX_WIDTH: u32 = 32;

/// Maximum number of keys in these filters: slots are counted in 32 bits while building.
pub(crate) const MAX_KEYS: u64 = 1 << 31;

/// Salts tried before the builder gives up.
pub(crate) const ATTEMPTS: u64 = 64;

/// Returns the salt of a retry; the trailer stores the one that succeeds. The step is unlikely to
/// be the difference of two runs' salts.
pub(crate) fn salt_of(salt: u64, attempt: u64) -> u64 {
    salt.wrapping_add(attempt.wrapping_mul(0xd1b5_4a32_d192_ed03))
}

/// Returns the hash that places a key. The remix leaves its low bits weaker than its high ones, and
/// here both choose slots: hence the fold.
#[inline(always)]
pub(crate) fn hash(digest: Digest, spread: SpreadSalt) -> u64 {
    let h = digest.mix(spread);
    h ^ h >> 32
}

/// Returns the field of `width <= 64` bits at bit `at`, with other bits above it. Two loads and no
/// branch on `at`, which is as good as random; the second load never leaves the field's own words,
/// so it costs no extra cache line.
#[inline(always)]
pub(crate) fn field(word: impl Fn(usize) -> u64, at: u64, width: u32) -> u64 {
    let (index, shift) = ((at / 64) as usize, (at % 64) as u32);
    let next = index + usize::from(shift + width > 64);
    // If both loads hit the same word, what the second contributes lies at `64 - shift >= width`
    // and above.
    word(index) >> shift | word(next) << 1 << (63 - shift)
}

/// Like [`field`] for slot `slot` of `N` whole bytes: one plain load.
#[inline(always)]
fn aligned<const N: usize>(bytes: &[u8], slot: u64) -> u64 {
    let mut word = [0; 8];
    word[..N].copy_from_slice(&bytes.as_chunks::<N>().0[slot as usize]);
    u64::from_le_bytes(word)
}

/// Like [`field`] for a field of up to 57 bits within eight or more bytes: one load, which need not
/// be aligned. It starts at the byte where the field starts, or at the last byte that has eight to
/// read.
#[inline(always)]
fn unaligned(bytes: &[u8], at: u64) -> u64 {
    let start = (at / 8).min((bytes.len() as u64).saturating_sub(8));
    let word = bytes[start as usize..].first_chunk().copied().unwrap_or_default();
    u64::from_le_bytes(word) >> ((at - start * 8) & 63)
}

#[inline(always)]
fn sum_of([a, b, c]: [u64; 3], field: impl Fn(u64) -> u64) -> u64 {
    field(a) ^ field(b) ^ field(c)
}

/// Maps a hash to its three slots, which are always distinct and below [`Slots::count`].
pub(crate) trait Slots: Copy {
    /// The slots of a hash.
    fn of(&self, hash: u64) -> [u64; 3];

    /// Number of slots.
    fn count(&self) -> u64;

    /// Number of top hash bits to sort by so that keys touch slots in nearly ascending order; 0 if
    /// no order of hashes achieves that.
    fn order_bits(&self) -> u32;
}

/// A table in which the fingerprint of a key is the exclusive or of its three slots. With width 0
/// it accepts everything, and without keys nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct XorTable {
    width: u32,
    mask: u64,
    /// 0, or 1 without keys, which no comparison under an empty mask yields.
    target: u64,
}

impl XorTable {
    /// Returns the table of a filter with `head`, whose first parameter is the width: 0 to 32, 0
    /// without keys.
    pub(crate) fn new(head: Head) -> Result<Self, FilterError> {
        let width = u32::from(head.params[0]);
        if width > MAX_WIDTH || (head.keys == 0 && width > 0) {
            return Err(FilterError::Corrupt("fingerprint width"));
        }
        Ok(Self { width, mask: bits::mask(width), target: u64::from(head.keys == 0) })
    }

    pub(crate) fn width(&self) -> u32 {
        self.width
    }

    /// Returns the fingerprint: bits from the middle of a product, which depend on more of the hash
    /// than the bits that choose slots. 0 for width 0.
    #[inline(always)]
    fn fingerprint(&self, hash: u64) -> u64 {
        hash.wrapping_mul(0x9fb2_1c65_1e98_df25) >> 32 & self.mask
    }

    /// Returns whether the three slots yield the fingerprint of `hash`.
    #[inline(always)]
    pub(crate) fn contains<W: Words>(&self, words: &W, slots: [u64; 3], hash: u64) -> bool {
        // The filter's `from_parts` checked that the words hold all slots. Loads of a slot's own
        // width make a hot probe an eighth cheaper than whole words and shifts.
        let width = u64::from(self.width);
        let sum = match (words.bytes(), width) {
            (Some(bytes), 8) => sum_of(slots, |slot| aligned::<1>(bytes, slot)),
            (Some(bytes), 16) => sum_of(slots, |slot| aligned::<2>(bytes, slot)),
            (Some(bytes), 32) => sum_of(slots, |slot| aligned::<4>(bytes, slot)),
            (Some(bytes), _) => sum_of(slots, |slot| unaligned(bytes, slot * width)),
            (None, _) => sum_of(slots, |slot| field(|at| words.word_within(at), slot * width, self.width)),
        };
        (sum ^ self.fingerprint(hash)) & self.mask == self.target
    }

    /// Prefetches the words in which the three slots start.
    #[inline(always)]
    pub(crate) fn prefetch<W: Words>(&self, words: &W, slots: [u64; 3]) {
        for slot in slots {
            words.prefetch((slot * u64::from(self.width) / 64) as usize);
        }
    }

    /// Returns `2^-width`, as the fingerprint of an absent key is uniform whatever its slots hold;
    /// 0 without keys.
    pub(crate) fn expected_rate(&self) -> f64 {
        if self.target == 1 { 0.0 } else { (-f64::from(self.width)).exp2() }
    }
}
