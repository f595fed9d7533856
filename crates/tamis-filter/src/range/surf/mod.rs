//! The succinct range filter: a trie of the keys, each truncated where it differs from its
//! neighbours, in about ten bits per label, plus a few bits per key from the truncated part.
//!
//! Source: H. Zhang et al., "SuRF: Practical Range Query Filtering with Fast Succinct Tries",
//! SIGMOD 2018. Differences from the paper or its public code:
//! * **A key that is a prefix of another** has one bit at its node, in the dense levels (as in the
//!   paper) and in the sparse ones, too. The paper's sparse levels write a label 255 for it, which
//!   must then be distinguished from a key's own byte 255. Such a key is known exactly and takes no
//!   suffix. Sets without such keys, such as integers, pay nothing.
//! * **Dense levels** are chosen by size as in the public code (ratio 16), where the dense levels
//!   may cost up to 1/16 of the sparse ones below. Here this bounds what dense levels cost *more*
//!   than the smallest form does: full nodes, which dense labels hold in a fourth of the space,
//!   stay dense.
//! * **Ranges need no iterator** and no stack: see `search.rs`. The public code's iterator is known
//!   to break on a filter that was read back; here the same code walks owned and borrowed words and
//!   keeps no state between calls.
//! * **Bounds are exact**: excluded bounds are distinguished from included ones wherever the
//!   lengths of the run's keys and the real bits allow it.
//! * **The common prefix of all keys** is kept once and left out of the trie: a run's keys are
//!   neighbours, and each such byte would cost every probe a step.
//! * **Rank and select**: see `blocks.rs`; "is it a leaf", "which child", "which suffix" cost one
//!   or two cache lines. Select starts from hints about a block apart, so no skew of the nodes'
//!   sizes makes it slow.
//! * **Hash bits** are the top bits of the remixed digest: a probe never hashes.
//!
//! # Invariants
//! * Nodes are numbered level by level, so a child's number is above its parent's and every descent
//!   ends. A descent is also no longer than the bound it follows, or than the height of the trie.
//! * All counts and offsets come from the header and are checked against the number of words when
//!   opened. Words beyond the end read as 0, so that damaged sections mislead but never reach
//!   outside.
//! * A leaf's real bits are the bits of its key after the path, padded with zeros. Padding never
//!   reverses the order of two keys, so comparing padded bits with a bound's excludes only keys
//!   that certainly lie outside.
//!
//! # Threads
//! Immutable once built. Cloning shares the words.

mod blocks;
mod build;
mod search;
mod shape;
#[cfg(test)]
mod tests;
mod trie;

use crate::digest::Digest;
use crate::error::FilterError;
use crate::format::{FilterKind, Head, WordFilter};
use crate::keys::KeyRange;
use crate::range::Next;
use crate::words::{Owned, Words};
use shape::Shape;

/// The suffix a [`Surf`] keeps of a key, beyond the part that distinguishes it from its neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SurfSuffix {
    /// Nothing.
    None,
    /// Bits of the digest, for points.
    Hash,
    /// The next bits of the key, for points and ranges.
    Real,
    /// Half of each.
    Mixed,
}

/// A succinct range filter over byte strings. See the module's documentation.
///
/// A probe costs one step per byte of the key's path: a few ns in dense levels, a few tens of ns in
/// sparse ones. Uniform 64-bit integers take 9 to 12 bits per key without suffixes, words and paths
/// 20 to 45; the header and partly filled blocks add up to about 50 words.
#[derive(Clone, Debug)]
pub struct Surf<W: Words = Owned> {
    head: Head,
    shape: Shape,
    words: W,
}

impl<W: Words> WordFilter<W> for Surf<W> {
    const KIND: FilterKind = FilterKind::Surf;

    fn from_parts(head: Head, words: W) -> Result<Self, FilterError> {
        let shape = Shape::read(head, &words)?;
        Ok(Self { head, shape, words })
    }

    fn head(&self) -> Head {
        self.head
    }

    fn words(&self) -> &W {
        &self.words
    }
}

impl<W: Words> Surf<W> {
    /// Same as [`RangeProbe::contains_range`](crate::RangeProbe::contains_range). Allocates
    /// nothing.
    pub fn contains_range(&self, range: KeyRange<'_>) -> bool {
        self.search_range(range)
    }

    /// Same as [`RangeProbe::contains_key`](crate::RangeProbe::contains_key).
    pub fn contains_key(&self, key: &[u8], digest: Digest) -> bool {
        self.search_key(key, digest)
    }

    /// Same as [`RangeProbe::next`](crate::RangeProbe::next): returns the path of the first leaf
    /// whose key may be at or after `from`, with the nonzero real bits, and at least as long as the
    /// shortest key. [`Next::Unknown`] for damaged words only.
    pub fn next(&self, from: &[u8]) -> Next<Vec<u8>> {
        self.search_next(from)
    }

    /// Same as [`RangeProbe::expected_rate`](crate::RangeProbe::expected_rate): for points probed
    /// with [`Surf::contains_key`], the rate of the hash bits. This is an upper bound, because many
    /// absent keys leave the trie before they reach a leaf. A range of a single key comes without a
    /// digest, so hash bits reject none.
    pub fn expected_rate(&self, keys: u64) -> Option<f64> {
        if self.head.keys == 0 {
            return Some(0.0);
        }
        (keys == 1 && self.shape.hash_bits > 0).then(|| 0.5f64.powi(self.shape.hash_bits as i32))
    }

    /// Returns the hash bits and real bits kept per key.
    pub fn suffix_bits(&self) -> (u32, u32) {
        (self.shape.hash_bits, self.shape.real_bits)
    }
}

/// Returns the first `bits` bits (at most 32) of `rest`, padded with zeros, as a number.
#[inline]
fn real_bits_of(rest: &[u8], bits: u32) -> u64 {
    let bytes = match rest.first_chunk::<4>() {
        Some(bytes) => *bytes,
        None => {
            let mut bytes = [0; 4];
            bytes[..rest.len()].copy_from_slice(rest);
            bytes
        }
    };
    u64::from(u32::from_be_bytes(bytes)) >> (32 - bits)
}
