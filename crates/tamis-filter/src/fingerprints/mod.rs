//! What the filters of fingerprints share: the hash of a key, and the table of small equal fields.
//!
//! [`BinaryFuse`](crate::BinaryFuse), [`Xor`](crate::Xor) and [`Cuckoo`](crate::Cuckoo) keep no bits that a key sets,
//! but a few bits of its hash, in a table of slots of equal width without gaps. `peel.rs` fills the table of the first
//! two, which differ only in where the three slots of a key are.
//!
//! # Invariants
//! * Slot `i` of width `w` is bits `i*w .. (i+1)*w` of the payload, bit `p` being bit `p % 64` of word `p / 64`.
//! * The table is the whole payload: width and number of words give the number of slots. There is no other header.
//! * [`hash`] is a bijection for one salt: distinct digests have distinct hashes, so another salt can tell apart what
//!   one salt could not place.
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

/// Widest fingerprint, in bits: the hash has no more to give once the slots are chosen.
pub(crate) const MAX_WIDTH: u32 = 32;

/// Most keys of these filters: slots are counted in 32 bits while building.
pub(crate) const MAX_KEYS: u64 = 1 << 31;

/// Salts tried before building gives up.
pub(crate) const ATTEMPTS: u64 = 64;

/// The salt of a further attempt; the one that succeeds is what the trailer stores. The step is no likely difference
/// of two runs' salts.
pub(crate) fn salt_of(salt: u64, attempt: u64) -> u64 {
    salt.wrapping_add(attempt.wrapping_mul(0xd1b5_4a32_d192_ed03))
}

/// The hash that places a key. The remix leaves its low bits weaker than its high ones, and here both choose slots:
/// hence the fold.
#[inline(always)]
pub(crate) fn hash(digest: Digest, spread: SpreadSalt) -> u64 {
    let h = digest.mix(spread);
    h ^ h >> 32
}

/// The field of `width <= 64` bits at bit `at`, with other bits above it. Two loads and no branch on `at`, which is as
/// good as random; the second load never leaves the field's own words, so it costs no cache line of its own.
#[inline(always)]
pub(crate) fn field(word: impl Fn(usize) -> u64, at: u64, width: u32) -> u64 {
    let (index, shift) = ((at / 64) as usize, (at % 64) as u32);
    let next = index + usize::from(shift + width > 64);
    // If both loads are of one word, what the second contributes lies at `64 - shift >= width` and above.
    word(index) >> shift | word(next) << 1 << (63 - shift)
}

/// As [`field`] for slot `slot` of `N` whole bytes: one plain load.
#[inline(always)]
fn aligned<const N: usize>(bytes: &[u8], slot: u64) -> u64 {
    let mut word = [0; 8];
    word[..N].copy_from_slice(&bytes.as_chunks::<N>().0[slot as usize]);
    u64::from_le_bytes(word)
}

/// As [`field`] for a field of up to 57 bits within eight or more bytes: one load, which need not be aligned. It
/// starts at the byte where the field starts, or at the last one where eight are left.
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

/// Where the three slots of a hash are. The three are always different, and below [`Slots::count`].
pub(crate) trait Slots: Copy {
    /// The slots of a hash.
    fn of(&self, hash: u64) -> [u64; 3];

    /// Number of slots.
    fn count(&self) -> u64;

    /// Keys in the order of this many top bits of their hashes touch slots in nearly ascending order; 0 if no order
    /// of hashes does that.
    fn order_bits(&self) -> u32;
}

/// A table in which the fingerprint of a key is the exclusive or of its three slots. Of width 0 it says yes to
/// everything, and without keys to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct XorTable {
    width: u32,
    mask: u64,
    /// 0. Without keys 1, which no comparison under an empty mask yields.
    target: u64,
}

impl XorTable {
    /// The table of a filter with `head`, whose first parameter is the width: 0 to 32, 0 without keys.
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

    /// The fingerprint: bits from the middle of a product, which depend on more of the hash than the bits that choose
    /// slots. 0 for width 0.
    #[inline(always)]
    fn fingerprint(&self, hash: u64) -> u64 {
        hash.wrapping_mul(0x9fb2_1c65_1e98_df25) >> 32 & self.mask
    }

    /// Whether the three slots yield the fingerprint of `hash`.
    #[inline(always)]
    pub(crate) fn contains<W: Words>(&self, words: &W, slots: [u64; 3], hash: u64) -> bool {
        // The filter's `from_parts` saw to it that the words hold all slots. Loads of a slot's own width make a hot
        // probe an eighth cheaper than whole words and shifts.
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

    /// Asks the cache for the words in which the three slots start.
    #[inline(always)]
    pub(crate) fn prefetch<W: Words>(&self, words: &W, slots: [u64; 3]) {
        for slot in slots {
            words.prefetch((slot * u64::from(self.width) / 64) as usize);
        }
    }

    /// `2^-width`, the fingerprint of a stranger being uniform whatever its slots hold; 0 without keys.
    pub(crate) fn expected_rate(&self) -> f64 {
        if self.target == 1 { 0.0 } else { (-f64::from(self.width)).exp2() }
    }
}
