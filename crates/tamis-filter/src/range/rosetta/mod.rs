//! Rosetta: a Bloom filter per prefix length over integers, for points and short ranges.
//!
//! S. Luo et al., "Rosetta: A Robust Space-Time Optimized Range Filter for Key-Value Stores"
//! (SIGMOD 2020), sections 2 and 3. Every key is inserted as itself and as its prefixes: one Bloom
//! filter for each *height* (number of bits cut off). A range is decomposed into nodes of these
//! heights, and a node that is accepted is *doubted*: its halves are probed, down to single
//! numbers.
//!
//! # Differences from the paper
//! * The paper probes the canonical dyadic intervals that make up a range. Here all kept ancestors
//!   of a number are probed before it, from the topmost kept height down: the rate becomes the
//!   product of the rates of all heights, for points as well, and far from all keys the first one
//!   or two answers end the walk.
//! * *Allocation* is the paper's first-cut scheme: above the bottom a filter gets `1/ln 2` bits per
//!   node and one probe, which errs half of the time, so that doubting meets one false node per
//!   height on average; the bottom gets the rest. Heights are those that ranges of up to
//!   `max_range` numbers touch, with lengths equally likely: 0 to `ceil(log2(max_range))`. The
//!   paper's optimised allocation, by how often each height is probed, is not used: with ancestors
//!   probed, every split of the bits has the same product of rates, and bits that are not at the
//!   bottom do not help ranges close to keys. For the same reason all upper heights together get at
//!   most half of the bits.
//! * Where that is not enough, the highest are omitted, and a range is probed as up to 64 nodes of
//!   the topmost one kept. Where the rate for ranges of `max_range` would then exceed a tenth, or
//!   there would be too many nodes, the topmost is kept after all and those below it are omitted,
//!   `d + 1` of them if `d` are too many: errors at the top become as rare as the gap below it
//!   makes them expensive. Wide ranges far from keys are then still rejected.
//! * Filters are sized by the distinct nodes of their height, so dense keys pay less for the upper
//!   ones.
//! * Low bits that are zero in all keys are dropped from keys and bounds, which loses nothing.
//!
//! # Invariants
//! * Words: one of parameters, `levels + 1` for the starts of the filters, the filters, bottom
//!   first; then whatever the owner appended. Starts ascend and lie within the words, which is
//!   checked on opening.
//! * Work per range is bounded ([`dyadic::walk`]): a range that touches more than 64 nodes of the
//!   topmost height, or would probe more than 1024 nodes, is accepted.
//!
//! # Threads
//! Immutable; shared freely.

use crate::bits::mask;
use crate::bloom::{reduce, units_for};
use crate::error::FilterError;
use crate::format::{FilterKind, Head, WordFilter};
use crate::range::dyadic::{self, Nodes};
use crate::range::{IntegerProbe, Next};
use crate::theory;
use crate::words::{Owned, Words};

/// Bits per node of a filter that errs half of the time with one probe.
const HALF: f64 = std::f64::consts::LOG2_E;

/// Maximum number of nodes of the topmost height that a range may touch to be probed at all: each
/// is a cache miss.
const MAX_TOP_NODES: u64 = 64;

/// Factor by which each additional bit per key multiplies the rate of a Bloom filter.
const RATE_OF_ONE_BIT: f64 = 0.6185;

/// Maximum bits per key of any one height: beyond, a Bloom filter would exceed its maximum number
/// of probes.
const MOST_BITS: f64 = 40.0;

/// Index of the word with the start of the bottom filter. Word 0: bits 0 to 6 are the shift, bit 8
/// tells whether the rate is known; the kept heights are the second header word.
const STARTS: usize = 2;

/// Bits of a start word that hold the start.
const START_BITS: u32 = 40;

/// Bit position of the number of probes in it.
const PROBES_AT: u32 = 56;

/// Rosetta over integers: a false-positive rate of about `len * 0.62^bits_per_key` for ranges of
/// `len` numbers far from all keys.
#[derive(Clone, Debug)]
pub struct Rosetta<W: Words = Owned> {
    head: Head,
    words: W,
    /// Bit `h`: height `h` has a filter. Bit 0 is always set.
    kept: u64,
    shift: u32,
}

/// One filter: where it lies and how it is probed.
#[derive(Clone, Copy)]
struct Level {
    start: u64,
    words: u64,
    probes: u8,
}

impl Level {
    /// Parses the header words of the filter and of its successor.
    #[inline(always)]
    fn of(word: u64, next: u64) -> Self {
        let start = word & mask(START_BITS);
        let words = (next & mask(START_BITS)).wrapping_sub(start);
        Self { start, words, probes: (word >> PROBES_AT) as u8 }
    }

    fn bits(&self) -> u64 {
        self.words * 64
    }

    /// Calls `each` with word and bit of every probe until it returns `false`; returns whether it
    /// never did.
    #[inline(always)]
    fn all(&self, hash: u64, mut each: impl FnMut(usize, u64) -> bool) -> bool {
        // Like a Bloom filter's rotation scheme.
        let (mut hash, step) = (hash, hash.rotate_left(32) | 1);
        for _ in 0..self.probes {
            let bit = reduce(hash, self.bits());
            if !each((self.start + bit / 64) as usize, 1 << (bit % 64)) {
                return false;
            }
            hash = hash.wrapping_add(step);
        }
        true
    }
}

impl Rosetta {
    /// Builds a filter over `keys`, in any order; duplicates are allowed. Takes the requested size,
    /// a header of at most 66 words (about 10 for ranges of hundreds), and at most one more word
    /// per height for rounding. O(keys * heights) random writes.
    ///
    /// # Errors
    /// [`FilterError::BitsPerKey`], [`FilterError::TooLarge`]; [`FilterError::Parameter`] if
    /// `max_range` is 0.
    pub fn build(keys: &[u64], bits_per_key: f64, max_range: u64, salt: u64) -> Result<Self, FilterError> {
        let (head, words) = Self::encode(&dyadic::ascending(keys), bits_per_key, max_range, salt)?;
        Self::from_parts(head, words.into())
    }

    /// Returns the parameters and words of a filter over `keys`, which ascend (and may repeat).
    pub(crate) fn encode(
        keys: &[u64],
        bits_per_key: f64,
        max_range: u64,
        salt: u64,
    ) -> Result<(Head, Vec<u64>), FilterError> {
        if max_range == 0 {
            return Err(FilterError::Parameter("ranges of no numbers"));
        }
        let total = units_for(keys.len() as u64, bits_per_key, 64.0)?;
        let nodes = Nodes::of(keys);
        let sizes = allocate(&nodes, total, ((max_range - 1) >> nodes.shift) + 1);
        let kept = sizes.iter().fold(0u64, |kept, (height, _)| kept | 1 << height);
        let known = nodes.sparse(keys.len(), kept.ilog2());
        let header = STARTS + sizes.len() + 1;
        let mut words =
            Vec::with_capacity(header + sizes.iter().map(|(_, size)| *size as usize).sum::<usize>());
        words.push(u64::from(nodes.shift) | u64::from(known) << 8);
        words.push(kept);
        let mut start = header as u64;
        for &(height, size) in &sizes {
            let per_node = (size * 64) as f64 / nodes.counts[height as usize].max(1) as f64;
            let probes = u64::from(theory::optimal_probes(per_node));
            words.push(start | probes << PROBES_AT);
            start += size;
        }
        words.push(start);
        words.resize(start as usize, 0);
        // One height at a time, so that one filter at a time is in the cache.
        for (at, &(height, _)) in sizes.iter().enumerate() {
            let level = Level::of(words[STARTS + at], words[STARTS + at + 1]);
            let mut last = None;
            for key in keys {
                let prefix = key >> nodes.shift >> height;
                if last != Some(prefix) {
                    level.all(dyadic::hash(salt, height, prefix), |word, bit| {
                        words[word] |= bit;
                        true
                    });
                }
                last = Some(prefix);
            }
        }
        Ok((Head { salt, keys: keys.len() as u64, params: [0, 0] }, words))
    }
}

/// Returns the heights that get a filter, ascending, with its words; `total` words or (at least one
/// for each) a few more.
fn allocate(nodes: &Nodes, total: u64, max_range: u64) -> Vec<(u32, u64)> {
    let count = |height: u32| nodes.counts[height as usize].max(1) as f64;
    // Ranges of `max_range` touch at most two nodes of this height.
    let top = (64 - (max_range - 1).leading_zeros()).min(63 - nodes.shift);
    let bits = (total * 64) as f64;
    let half = bits / 2.0;
    let mut upper: Vec<(u32, f64)> = (1..=top).map(|height| (height, HALF * count(height))).collect();
    if upper.iter().map(|(_, bits)| bits).sum::<f64>() > half {
        // Lower heights have no fewer nodes, and sometimes many more: each uses its own count.
        let mut left = half;
        let paid = upper.iter().take_while(|(_, bits)| {
            left -= bits;
            left >= 0.0
        });
        let affordable = (paid.count() as u32).min(top - 1);
        let missing = top - affordable;
        let rate = max_range as f64 * RATE_OF_ONE_BIT.powf(bits / count(0));
        if rate <= 0.1 && max_range >> affordable < MAX_TOP_NODES - 1 {
            upper.truncate(affordable as usize);
        } else {
            upper.truncate(affordable.saturating_sub(missing + 1) as usize);
            let rest = half - upper.iter().map(|(_, bits)| bits).sum::<f64>();
            upper.push((top, rest.clamp(0.0, MOST_BITS * count(top))));
        }
    }
    let mut sizes = vec![(0, 1)];
    // Rounded up to whole words, the minimum for a filter; the bottom pays for it.
    sizes.extend(upper.iter().map(|&(height, bits)| (height, ((bits / 64.0).round() as u64).max(1))));
    let spent: u64 = sizes[1..].iter().map(|(_, size)| size).sum();
    sizes[0].1 = total.saturating_sub(spent).max(1);
    sizes
}

impl<W: Words> Rosetta<W> {
    /// Returns whether the node may hold a key. `height` is a kept one.
    #[inline]
    fn node(&self, height: u32, prefix: u64) -> bool {
        let at = (self.kept & mask(height)).count_ones() as usize;
        let hash = dyadic::hash(self.head.salt, height, prefix);
        self.level(at).all(hash, |word, bit| self.words.word(word) & bit != 0)
    }

    /// Returns filter number `at` from the bottom.
    #[inline(always)]
    fn level(&self, at: usize) -> Level {
        Level::of(self.words.word(STARTS + at), self.words.word(STARTS + at + 1))
    }

    /// Number of filters.
    fn levels(&self) -> usize {
        self.kept.count_ones() as usize
    }

    /// Returns the heights that have a filter, bit `h` for height `h`: a node of height `h` is
    /// `2^h` neighbouring numbers, after the low bits that are zero in all keys were dropped.
    pub fn kept_heights(&self) -> u64 {
        self.kept
    }
}

impl<W: Words> WordFilter<W> for Rosetta<W> {
    const KIND: FilterKind = FilterKind::Rosetta;

    fn from_parts(head: Head, words: W) -> Result<Self, FilterError> {
        let (info, kept) = (words.word(0), words.word(1));
        let shift = (info & 0xff) as u32;
        if head.params != [0, 0] || info >> 9 != 0 || shift > 63 {
            return Err(FilterError::Corrupt("rosetta parameters"));
        }
        // Also bounds the shifts by heights.
        if kept & 1 == 0 || kept.ilog2() + shift > 63 {
            return Err(FilterError::Corrupt("rosetta heights"));
        }
        let filter = Self { head, words, kept, shift };
        let mut start = (STARTS + filter.levels() + 1) as u64;
        for at in 0..filter.levels() {
            let level = filter.level(at);
            let probes = u32::from(level.probes);
            if !(1..=theory::MAX_PROBES).contains(&probes) {
                return Err(FilterError::Probes(level.probes));
            }
            // The comparison of words includes the bits between start and probes, which are zero.
            if filter.words.word(STARTS + at) != start | u64::from(level.probes) << PROBES_AT
                || level.words.wrapping_sub(1) >= filter.words.count() as u64
            {
                return Err(FilterError::Corrupt("rosetta sizes"));
            }
            start += level.words;
        }
        if filter.words.word(STARTS + filter.levels()) != start || start > filter.words.count() as u64 {
            return Err(FilterError::Corrupt("rosetta sizes"));
        }
        Ok(filter)
    }

    fn head(&self) -> Head {
        self.head
    }

    fn words(&self) -> &W {
        &self.words
    }
}

impl<W: Words> IntegerProbe for Rosetta<W> {
    /// Probes the bottom first, which rejects most, then the nodes around it. One cache miss per
    /// probe, about two for an absent key.
    #[inline]
    fn contains(&self, key: u64) -> bool {
        if key & mask(self.shift) != 0 {
            return false;
        }
        let (key, mut left) = (key >> self.shift, self.kept);
        while left != 0 {
            let height = left.trailing_zeros();
            if !self.node(height, key >> height) {
                return false;
            }
            left &= left - 1;
        }
        true
    }

    #[inline]
    fn contains_range(&self, first: u64, last: u64) -> bool {
        let (first, last) = dyadic::shifted(first, last, self.shift);
        if first > last || self.head.keys == 0 {
            return false;
        }
        if first == last {
            return self.contains(first << self.shift);
        }
        dyadic::walk((first, last), self.kept, MAX_TOP_NODES, |height, prefix| self.node(height, prefix))
    }

    fn next(&self, _from: u64) -> Next<u64> {
        if self.head.keys == 0 { Next::Nothing } else { Next::Unknown }
    }

    /// Known for widely spaced keys: so far apart that random ranges rarely touch the topmost node
    /// of any. Holds for uniformly distributed ranges; ranges next to keys are accepted more often.
    fn expected_rate(&self, keys: u64) -> Option<f64> {
        if self.head.keys == 0 {
            return Some(0.0);
        }
        if self.words.word(0) >> 8 & 1 == 0 {
            return None;
        }
        let top = self.kept.ilog2();
        let mut rates = vec![1.0; top as usize + 1];
        for (height, rate) in rates.iter_mut().enumerate().filter(|(height, _)| self.kept >> height & 1 == 1)
        {
            let level = self.level((self.kept & mask(height as u32)).count_ones() as usize);
            *rate = theory::bloom_rate(level.bits() as f64 / self.head.keys as f64, level.probes.into());
        }
        Some(dyadic::expected_rate_shifted(&rates, MAX_TOP_NODES, keys, self.shift))
    }
}

#[cfg(test)]
mod tests;
