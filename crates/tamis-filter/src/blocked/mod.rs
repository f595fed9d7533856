//! The cache-line-blocked Bloom filter: one key, one 64-byte line, one cache miss.
//!
//! The remixed digest's top bits choose a line of 512 bits, its low 32 bits choose *k* bits in that
//! line. Up to 2^32 lines the two halves do not overlap, so the rate holds far beyond the tens of
//! millions of keys where filters on 32-bit hashes degrade. The positions are defined in
//! `portable.rs`; `x86.rs` computes the same with AVX2, and `arm.rs` with NEON.
//!
//! # Invariants
//! * There is always at least one line, so every hash has a line; without keys it is all zero and
//!   nothing matches.
//! * `1 <= probes <= 16`.
//! * Every path (build, one probe, batch, bytes in place, the concurrent filter) uses the same line
//!   and positions.
//!
//! # Threads
//! Immutable after building. Cloning shares the lines.

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod arm;
mod build;
mod lines;
#[cfg_attr(
    all(target_arch = "aarch64", target_endian = "little"),
    allow(dead_code, reason = "all such processors have NEON; tests compare with it")
)]
pub(crate) mod portable;
mod view;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::fmt;

use crate::bloom::reduce;
use crate::digest::{Digest, SpreadSalt};
use crate::theory;
use crate::words::prefetch;

pub use build::BlockedBloomBuilder;
pub(crate) use lines::Lines;
pub use view::BlockedBloomRef;

/// Maximum number of filters, or keys, in one batch: a result is one bit of a `u64`.
pub const BATCH: usize = 64;

/// Lines prefetched before the first is tested. Some cores track no more misses than this at once,
/// and the arrays of this size live on the stack.
const GROUP: usize = 32;

/// One 512-bit line of sixteen words, with bit `p` being bit `p % 32` of word `p / 32`.
#[repr(C, align(64))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line(pub(crate) [u32; 16]);

impl Line {
    pub(crate) const ZERO: Self = Self([0; 16]);
}

static ZERO_LINE: Line = Line::ZERO;

/// The parameters of a blocked filter: everything but its lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockedShape {
    pub(crate) salt: u64,
    pub(crate) keys: u64,
    pub(crate) probes: u8,
}

impl BlockedShape {
    pub(crate) fn bits_per_key(&self, lines: usize) -> f64 {
        lines as f64 * f64::from(theory::LINE_BITS) / self.keys as f64
    }

    pub(crate) fn expected_rate(&self, lines: usize) -> f64 {
        theory::blocked_bloom_rate_of(self.keys, lines as u64, u32::from(self.probes))
    }
}

/// Returns the line number among `lines` and low half for the positions, of a remixed digest.
#[inline(always)]
pub(crate) fn locate(hash: u64, lines: usize) -> (usize, u32) {
    (reduce(hash, lines as u64) as usize, hash as u32)
}

/// A blocked Bloom filter over a run's digests. Cloning shares the lines.
#[derive(Clone)]
pub struct BlockedBloom {
    lines: Lines,
    spread: SpreadSalt,
    salt: u64,
    probes: u8,
    keys: u64,
}

impl BlockedBloom {
    pub(crate) fn from_parts(shape: BlockedShape, lines: Lines) -> Self {
        let spread = SpreadSalt::new(shape.salt);
        Self { lines, spread, salt: shape.salt, probes: shape.probes, keys: shape.keys }
    }

    pub(crate) fn shape(&self) -> BlockedShape {
        BlockedShape { salt: self.salt, keys: self.keys, probes: self.probes }
    }

    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    #[inline(always)]
    fn line_of(&self, digest: Digest) -> (&Line, u32) {
        let (at, low) = locate(digest.mix(self.spread), self.lines.len());
        (&self.lines[at], low)
    }

    /// Returns whether the run may hold the key. At most one cache miss.
    #[inline]
    pub fn contains(&self, digest: Digest) -> bool {
        let (line, low) = self.line_of(digest);
        line_contains(line, low, self.probes)
    }

    /// Prefetches the line that [`BlockedBloom::contains`] will read. Does nothing where the
    /// platform has no stable prefetch.
    #[inline]
    pub fn prefetch(&self, digest: Digest) {
        prefetch(self.line_of(digest).0);
    }

    /// Returns the bytes of filter lines: the payload's size on disk.
    pub fn line_bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    /// Returns the bytes held in memory, shared ones included.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.line_bytes()
    }

    /// Returns how many of them lie in bytes that were [opened in
    /// place](crate::Filter::open_in_place).
    pub fn in_place_bytes(&self) -> usize {
        if self.lines.are_in_place() { self.line_bytes() } else { 0 }
    }

    /// Returns the number of keys the filter was built over.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Returns the number of bits set and tested per key.
    pub fn probes(&self) -> u32 {
        u32::from(self.probes)
    }

    /// Returns the salt digests are remixed with.
    pub fn salt(&self) -> u64 {
        self.salt
    }

    /// Returns the bits used per key, rounding included; infinite for no keys.
    pub fn bits_per_key(&self) -> f64 {
        self.shape().bits_per_key(self.lines.len())
    }

    /// Returns the theoretical false-positive rate; 0 for no keys.
    pub fn expected_rate(&self) -> f64 {
        self.shape().expected_rate(self.lines.len())
    }
}

impl fmt::Debug for BlockedBloom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockedBloom")
            .field("lines", &self.lines.len())
            .field("shape", &self.shape())
            .finish_non_exhaustive()
    }
}

/// Probes many runs for one key: bit `j` of the result is set if `filters[chosen[j]]` may contain
/// it.
///
/// All lines are located and prefetched before any is tested, so the cache misses of up to 32
/// filters overlap instead of following each other; the tests then do not branch on their outcome.
///
/// # Panics
/// If `chosen` holds more than [`BATCH`] entries or one that is not an index of `filters`.
#[inline]
pub fn probe_selected(filters: &[BlockedBloom], chosen: &[u32], digest: Digest) -> u64 {
    probe_batch(chosen, |&i| (&filters[i as usize], digest))
}

/// Probes one run for many keys: bit `j` of the result is set if `filter` may contain `digests[j]`.
/// Overlaps the cache misses like [`probe_selected`].
///
/// # Panics
/// If there are more than [`BATCH`] digests.
#[inline]
pub fn probe_many_keys(filter: &BlockedBloom, digests: &[Digest]) -> u64 {
    probe_batch(digests, |&digest| (filter, digest))
}

/// Probes each run for its own key: bit `j` of the result is set if `filters[pairs[j].0]` may
/// contain `pairs[j].1`. Overlaps the cache misses like [`probe_selected`].
///
/// # Panics
/// If there are more than [`BATCH`] pairs, or one is not an index of `filters`.
#[inline]
pub fn probe_pairs(filters: &[BlockedBloom], pairs: &[(u32, Digest)]) -> u64 {
    probe_batch(pairs, |&(i, digest)| (&filters[i as usize], digest))
}

#[inline]
fn probe_batch<'a, T>(items: &[T], resolve: impl Fn(&T) -> (&'a BlockedBloom, Digest)) -> u64 {
    assert!(items.len() <= BATCH, "a batch holds at most {BATCH} probes, not {}", items.len());
    // Clearing the arrays costs as much as a few probes, hence a small size for small trees.
    if items.len() <= 8 {
        return Batch::<'a, 8>::locate(items, resolve).test();
    }
    let mut found = 0;
    for (g, group) in items.chunks(GROUP).enumerate() {
        found |= Batch::<'a, GROUP>::locate(group, &resolve).test() << (g * GROUP);
    }
    found
}

/// The located lines of up to `N` probes, being prefetched.
pub(crate) struct Batch<'a, const N: usize> {
    lines: [&'a Line; N],
    lows: [u32; N],
    probes: [u8; N],
    len: usize,
}

impl<'a, const N: usize> Batch<'a, N> {
    /// Locates and prefetches the line of every item; `items.len() <= N`.
    #[inline]
    fn locate<T>(items: &[T], resolve: impl Fn(&T) -> (&'a BlockedBloom, Digest)) -> Self {
        let mut batch = Self { lines: [&ZERO_LINE; N], lows: [0; N], probes: [1; N], len: items.len() };
        let slots = batch.lines.iter_mut().zip(&mut batch.lows).zip(&mut batch.probes);
        for (item, ((line, low), probes)) in items.iter().zip(slots) {
            let (filter, digest) = resolve(item);
            (*line, *low) = filter.line_of(digest);
            *probes = filter.probes;
            prefetch(*line);
        }
        batch
    }

    #[inline]
    fn test(&self) -> u64 {
        #[cfg(target_arch = "x86_64")]
        return x86::dispatch_batch(self);
        #[cfg(not(target_arch = "x86_64"))]
        return self.test_each();
    }

    fn test_each(&self) -> u64 {
        let mut found = 0;
        for j in 0..self.len {
            found |= u64::from(line_contains(self.lines[j], self.lows[j], self.probes[j])) << j;
        }
        found
    }
}

/// Returns the kernel of this platform.
#[inline]
fn line_contains<L: portable::CacheLine>(line: &L, low: u32, probes: u8) -> bool {
    #[cfg(target_arch = "x86_64")]
    return x86::dispatch(line, low, probes);
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    return arm::line_contains(line, low, probes);
    #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))))]
    return portable::line_contains(line, low, probes);
}

#[cfg(test)]
mod tests;
