//! Building a blocked filter: collect digests, size the filter once their number is known, set the
//! bits.
//!
//! A filter larger than the cache is built at the pace of its cache misses, so the writes run
//! [`AHEAD`] keys behind the prefetches of their lines. Partitioning the digests by line first
//! would touch each of them twice more, and pays off only where the prefetch misses themselves
//! saturate the machine.

use super::portable::line_insert;
use super::{BlockedBloom, BlockedShape, Line, Lines, locate};
use crate::bloom::units_for;
use crate::digest::Digest;
use crate::error::FilterError;
use crate::theory;
use crate::words::prefetch;

/// Keys between the prefetch of a line and the write to it.
const AHEAD: usize = 16;

/// Collects the digests of a run's keys, in the order the run is written: 8 bytes per distinct key.
#[derive(Clone, Debug, Default)]
pub struct BlockedBloomBuilder {
    digests: Vec<Digest>,
}

impl BlockedBloomBuilder {
    /// Creates an empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty builder with room for `keys` keys.
    pub fn with_capacity(keys: usize) -> Self {
        Self { digests: Vec::with_capacity(keys) }
    }

    /// Adds a key. A key equal to the previous one (another version of it) is not counted again.
    #[inline]
    pub fn add(&mut self, digest: Digest) {
        if self.digests.last() != Some(&digest) {
            self.digests.push(digest);
        }
    }

    /// Returns the number of keys so far, consecutive duplicates counted once.
    pub fn len(&self) -> usize {
        self.digests.len()
    }

    /// Returns whether no key was added.
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    /// Returns the digests so far, for building other structures over the same keys.
    pub fn digests(&self) -> &[Digest] {
        &self.digests
    }

    /// Removes the keys and keeps the memory, for the next filter.
    pub fn clear(&mut self) {
        self.digests.clear();
    }

    /// Builds the filter over the keys added; the builder keeps them until
    /// [`BlockedBloomBuilder::clear`].
    ///
    /// # Errors
    /// Same as [`BlockedBloom::build`].
    pub fn finish(&self, bits_per_key: f64, salt: u64) -> Result<BlockedBloom, FilterError> {
        build(&self.digests, self.digests.len() as u64, bits_per_key, salt)
    }
}

impl BlockedBloom {
    /// Builds a filter over `digests` (consecutive duplicates count once) of `bits_per_key`,
    /// rounded up to whole lines, with [`theory::optimal_blocked_probes`]. O(keys), one cache miss
    /// per key, overlapped.
    ///
    /// # Errors
    /// [`FilterError::BitsPerKey`] unless `0 < bits_per_key <= 64`; [`FilterError::TooLarge`]
    /// beyond 2^32 lines.
    pub fn build(digests: &[Digest], bits_per_key: f64, salt: u64) -> Result<Self, FilterError> {
        let repeats = digests.windows(2).filter(|pair| pair[0] == pair[1]).count();
        build(digests, (digests.len() - repeats) as u64, bits_per_key, salt)
    }
}

fn build(digests: &[Digest], keys: u64, bits_per_key: f64, salt: u64) -> Result<BlockedBloom, FilterError> {
    let count = units_for(keys, bits_per_key, f64::from(theory::LINE_BITS))?;
    let probes = theory::optimal_blocked_probes(bits_per_key) as u8;
    let mut lines: Box<[Line]> = std::iter::repeat_n(Line::ZERO, count as usize).collect();
    fill(&mut lines, digests, probes, salt);
    Ok(BlockedBloom::from_parts(BlockedShape { salt, keys, probes }, Lines::own(lines)))
}

fn fill(lines: &mut [Line], digests: &[Digest], probes: u8, salt: u64) {
    let mut pending = [(0usize, 0u32); AHEAD];
    for (i, digest) in digests.iter().enumerate() {
        let next = locate(digest.remix(salt), lines.len());
        prefetch(&lines[next.0]);
        let due = std::mem::replace(&mut pending[i % AHEAD], next);
        if i >= AHEAD {
            line_insert(&mut lines[due.0], due.1, probes);
        }
    }
    for &(at, low) in pending.iter().take(digests.len()) {
        line_insert(&mut lines[at], low, probes);
    }
}
