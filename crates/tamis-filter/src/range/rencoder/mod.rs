//! REncoder: the prefixes of a key as the path through a small tree, stored whole in one cache
//! line.
//!
//! Z. Wang et al., "REncoder: A Space-Time Efficient Range Filter with Local Encoder" (ICDE 2023).
//! As in Rosetta, every key is inserted with its prefixes of several heights, but the prefixes of
//! one group of heights share their hash: that of the group's root chooses where the group's
//! *bitmap tree* goes, and the path to the key is set in it. A range query walks such trees: one
//! hash and `rows` cache lines for all heights of a group.
//!
//! # Differences from the paper and its public code
//! * A group is 9 heights in 512 bits, the root included (the paper: 4 heights in 32 bits or 8 in
//!   512, without). The tree is in heap order: bit 1 is the root, the children of bit `i` are `2i`
//!   and `2i+1`. One cache line holds it either way, and the number of keys in it varies less than
//!   in a word: 6 heights in 64 bits gave 1.1, 1.3, 1.8 and 3 times the rate at 10, 14, 18 and 22
//!   bits per key.
//! * Trees that share a line must not map their roots to the same bits, or those bits would always
//!   be set. The paper lets a tree start at any bit of the array; here it stays in its line, and
//!   its bit numbers are XORed with 9 hashed bits.
//! * Heights are kept from the bottom up; their number is the one that minimises the rate, which
//!   happens with about half of the bits set, where the paper stops as well (0.435 to 0.5). It
//!   follows from the number of distinct nodes of each height, known from one pass over the sorted
//!   keys: no trial insertions are needed. Heights are weighted by the chance that one of their
//!   nodes holds no key: over dense keys, high nodes cost few bits, but reject nothing either.
//! * There are 3 rows, as in the paper. Far from keys, 2 to 4 perform alike; close to keys, where
//!   only the lowest heights are informative, more is better; each costs a cache line.
//! * None of the paper's variants is implemented: omitting the lowest heights (SS) fails on ranges
//!   close to keys, and sampling queries (SE) needs queries. Only low bits that are zero in all
//!   keys are dropped, which loses nothing.
//!
//! # Invariants
//! * Words: 8 of parameters, 8 per line, then whatever the owner appended.
//! * Work per range is bounded like Rosetta's ([`dyadic::walk`]).
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

/// Heights of one group.
const GROUP: u32 = 9;

/// Lines that each tree is written to.
const ROWS: u32 = 3;

/// Logarithm (base 2) of a rate below which further heights are not worth their cache lines: those
/// of dense keys have few nodes, and would lower the rate almost for free. Widely spaced keys do
/// not get there with 64 bits per key.
const LOW_ENOUGH: f64 = -48.0;

/// Maximum number of nodes of the topmost height that a range may touch to be probed at all. More
/// than Rosetta's, because those of 512 neighbouring numbers share their lines.
const MAX_TOP_NODES: u64 = 512;

/// Words per line and of the header, so that lines are cache lines where the payload is aligned to
/// them.
const LINE: usize = 8;

/// Maximum number of rows that the header can name and the offsets have bits for.
const MAX_ROWS: u32 = 7;

/// REncoder over integers: a false-positive rate of about `len * 0.63^bits_per_key` for ranges of
/// `len` numbers far from all keys.
#[derive(Clone, Debug)]
pub struct REncoder<W: Words = Owned> {
    head: Head,
    words: W,
    lines: u64,
    levels: u32,
    rows: u32,
    shift: u32,
}

/// Where the trees of one group root are stored.
#[derive(Clone, Copy)]
struct Trees {
    /// The line of each row.
    at: [u32; MAX_ROWS as usize],
    /// The 9-bit values that its bit numbers are XORed with.
    flips: u64,
}

impl Trees {
    #[inline]
    fn of(salt: u64, group: u32, root: u64, rows: u32, lines: u64) -> Self {
        let mut hash = dyadic::hash(salt, group, root);
        let (step, flips) = (hash.rotate_left(33) | 1, hash.wrapping_mul(FLIP) >> 1);
        let mut at = [0; MAX_ROWS as usize];
        for at in at.iter_mut().take(rows as usize) {
            *at = reduce(hash, lines) as u32;
            hash = hash.wrapping_add(step);
        }
        Self { at, flips }
    }

    /// Returns the word (of the payload) and bit of a heap index in row `row`.
    #[inline(always)]
    fn bit(&self, row: usize, heap: u32) -> (usize, u64) {
        let bit = (heap ^ (self.flips >> (row as u32 * GROUP)) as u32) & mask(GROUP) as u32;
        (LINE + self.at[row] as usize * LINE + (bit / 64) as usize, 1 << (bit % 64))
    }
}

/// An odd constant, drawn at random.
const FLIP: u64 = 0xd6e8_feb8_6659_fd93;

/// Returns the group, root prefix and heap index of a node.
#[inline(always)]
fn place(height: u32, prefix: u64) -> (u32, u64, u32) {
    let group = height / GROUP;
    let depth = GROUP - 1 - (height - group * GROUP);
    (group, prefix >> depth, 1 << depth | (prefix & mask(depth)) as u32)
}

impl REncoder {
    /// Builds a filter over `keys`, in any order; duplicates are allowed. Takes the requested size,
    /// rounded up to whole cache lines, plus one line of header. O(keys * heights) writes, `rows`
    /// cache misses per group of 9 heights.
    ///
    /// # Errors
    /// [`FilterError::BitsPerKey`], [`FilterError::TooLarge`].
    pub fn build(keys: &[u64], bits_per_key: f64, salt: u64) -> Result<Self, FilterError> {
        let (head, words) = Self::encode(&dyadic::ascending(keys), bits_per_key, salt)?;
        Self::from_parts(head, words.into())
    }

    /// Returns the parameters and words of a filter over `keys`, which ascend (and may repeat).
    pub(crate) fn encode(
        keys: &[u64],
        bits_per_key: f64,
        salt: u64,
    ) -> Result<(Head, Vec<u64>), FilterError> {
        let lines = units_for(keys.len() as u64, bits_per_key, 512.0)?;
        if lines > u64::from(u32::MAX) / LINE as u64 {
            return Err(FilterError::TooLarge { keys: keys.len() as u64 });
        }
        let nodes = Nodes::of(keys);
        let levels = heights(&nodes, lines);
        let known = nodes.sparse(keys.len(), levels - 1);
        let mut words = vec![0; LINE + lines as usize * LINE];
        words[0] =
            u64::from(levels) | u64::from(nodes.shift) << 8 | u64::from(ROWS) << 16 | u64::from(known) << 24;
        words[1] = lines;
        let mut last: Option<u64> = None;
        for &key in keys {
            let key = key >> nodes.shift;
            // Heights from which on this key's path equals the previous key's.
            let new = last.map_or(64, |last| 64 - (last ^ key).leading_zeros()).min(levels);
            last = Some(key);
            let mut trees = Trees { at: [0; MAX_ROWS as usize], flips: 0 };
            for height in 0..new {
                let (group, root, heap) = place(height, key >> height);
                if height % GROUP == 0 {
                    trees = Trees::of(salt, group, root, ROWS, lines);
                }
                for row in 0..ROWS as usize {
                    let (word, bit) = trees.bit(row, heap);
                    words[word] |= bit;
                }
            }
        }
        Ok((Head { salt, keys: keys.len() as u64, params: [0, 0] }, words))
    }
}

/// Returns the heights that minimise the rate of a filter of `lines` lines, for ranges somewhere
/// between the keys.
fn heights(nodes: &Nodes, lines: u64) -> u32 {
    let bits = (lines * 512) as f64;
    let (mut best, mut levels) = (0.0, 1);
    let (mut set, mut denying) = (0.0, 0.0);
    for height in 0..64 - nodes.shift {
        set += f64::from(ROWS) * nodes.counts[height as usize] as f64;
        // A node that holds a key rejects nothing, however few bits its height costs.
        denying += f64::from(ROWS) * (1.0 - nodes.occupied(height));
        let fill = -(-set / bits).exp_m1();
        let rate = denying * fill.log2();
        if rate < best {
            (best, levels) = (rate, height + 1);
        }
        if rate < LOW_ENOUGH {
            break;
        }
    }
    levels
}

impl<W: Words> REncoder<W> {
    /// Probes nodes, remembering the trees of the last root.
    #[inline]
    fn asker(&self) -> impl FnMut(u32, u64) -> bool {
        let mut of = (u32::MAX, 0);
        let mut trees = Trees { at: [0; MAX_ROWS as usize], flips: 0 };
        move |height, prefix| {
            let (group, root, heap) = place(height, prefix);
            if of != (group, root) {
                of = (group, root);
                trees = Trees::of(self.head.salt, group, root, self.rows, self.lines);
            }
            (0..self.rows as usize).all(|row| {
                let (word, bit) = trees.bit(row, heap);
                self.words.word(word) & bit != 0
            })
        }
    }

    fn kept(&self) -> u64 {
        mask(self.levels)
    }

    /// Returns the number of kept heights: prefixes of a key that are in the filter, the key itself
    /// included.
    pub fn levels(&self) -> u32 {
        self.levels
    }

    /// Returns the number of copies of each tree: cache lines per group of 9 heights.
    pub fn rows(&self) -> u32 {
        self.rows
    }
}

impl<W: Words> WordFilter<W> for REncoder<W> {
    const KIND: FilterKind = FilterKind::REncoder;

    fn from_parts(head: Head, words: W) -> Result<Self, FilterError> {
        let (info, lines) = (words.word(0), words.word(1));
        let [levels, shift, rows] =
            [info & 0xff, info >> 8 & 0xff, info >> 16 & 0xff].map(|field| field as u32);
        if head.params != [0, 0] || info >> 25 != 0 || !(1..=MAX_ROWS).contains(&rows) {
            return Err(FilterError::Corrupt("rencoder parameters"));
        }
        // Also bounds the shifts by heights.
        if !(1..=64).contains(&levels) || shift > 63 || levels + shift > 64 {
            return Err(FilterError::Corrupt("rencoder heights"));
        }
        if (2..LINE).any(|at| words.word(at) != 0) {
            return Err(FilterError::Corrupt("rencoder header"));
        }
        let held = (words.count() / LINE).saturating_sub(1) as u64;
        if lines == 0 || lines > held || lines > u64::from(u32::MAX) {
            return Err(FilterError::Corrupt("rencoder size"));
        }
        Ok(Self { head, words, lines, levels, rows, shift })
    }

    fn head(&self) -> Head {
        self.head
    }

    fn words(&self) -> &W {
        &self.words
    }
}

impl<W: Words> IntegerProbe for REncoder<W> {
    /// Probes from the bottom up: one hash and up to `rows` cache misses per group of 9 heights.
    #[inline]
    fn contains(&self, key: u64) -> bool {
        if key & mask(self.shift) != 0 {
            return false;
        }
        let (key, mut affirmed) = (key >> self.shift, self.asker());
        (0..self.levels).all(|height| affirmed(height, key >> height))
    }

    #[inline]
    fn contains_range(&self, first: u64, last: u64) -> bool {
        let (first, last) = dyadic::shifted(first, last, self.shift);
        if first > last || self.head.keys == 0 {
            return false;
        }
        dyadic::walk((first, last), self.kept(), MAX_TOP_NODES, self.asker())
    }

    fn next(&self, _from: u64) -> Next<u64> {
        if self.head.keys == 0 { Next::Nothing } else { Next::Unknown }
    }

    /// Known for widely spaced keys, as in Rosetta, and up to 9 heights (about 38 bits per key). A
    /// row is then a blocked Bloom filter: every key sets one bit per height in one line.
    fn expected_rate(&self, keys: u64) -> Option<f64> {
        let held = self.head.keys;
        if held == 0 {
            return Some(0.0);
        }
        if self.words.word(0) >> 24 & 1 == 0 || self.levels > GROUP {
            return None;
        }
        let rows = u64::from(self.rows);
        let row = theory::blocked_bloom_rate_of(held.saturating_mul(rows), self.lines, self.levels);
        let node = row.powf(rows as f64 / f64::from(self.levels));
        let rates = vec![node; self.levels as usize];
        Some(dyadic::expected_rate_shifted(&rates, MAX_TOP_NODES, keys, self.shift))
    }
}

#[cfg(test)]
mod tests;
