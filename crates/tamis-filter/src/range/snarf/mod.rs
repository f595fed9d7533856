//! SNARF: a range filter that learns where keys are (K. Vaidya, S. Chatterjee, E. Knorr, M.
//! Mitzenmacher, S. Idreos, T. Kraska, "SNARF: A Learning-Enhanced Range Filter", VLDB 2022).
//!
//! A monotone model of the keys' distribution maps every integer to one of many times as many
//! positions as there are keys. The positions of the keys are stored; a range is rejected if none
//! lies between the positions of its ends. For queries distributed like the keys, the rate is about
//! one in the number of positions per key. Queries *close to keys* are another matter: neighbours
//! share positions, and the rate goes to 1. See [`Grafite`](crate::Grafite) for those.
//!
//! # Structure
//! Every 64th to 256th key is a *knot*, stored exactly, and so are the keys at both ends of very
//! wide gaps. Between two knots lies a *segment*, with a line as its model (`line.rs`) and a block
//! of positions in Elias–Fano coding ([`Sequence`]). The knots serve as the model, as the directory
//! of the blocks (`knots.rs`), and as the smallest and largest key. All blocks have the same shape,
//! so there are no pointers. `shape.rs` chooses the number of knots and positions.
//!
//! # Differences from the paper
//! * The paper has a spline with few knots and blocks of positions independent of them. Here a
//!   block is a segment: a model that bends every hundred keys follows clusters closely, and no
//!   block border can fall inside a segment. (Public code loses keys at both kinds of border.)
//! * Knots are keys. A range that contains a knot is answered at once and with certainty, one
//!   beyond the first or last key is rejected, and only ranges strictly between two knots are
//!   looked up, in one block.
//! * Where a gap within a segment is so wide that the keys next to it would share a few positions,
//!   the gap becomes a segment of its own. Otherwise the few segments between clusters would set a
//!   floor under the overall rate.
//! * Elias–Fano instead of Golomb coding: about 0.4 bits per key more, and no decoding.
//! * The positions per key need not be a power of two: all requested bits are used.
//!
//! # Invariants
//! * Building and probing compute positions by the same [`Line`], which is monotone: no key is ever
//!   rejected.
//! * A segment with no more integers than positions is exact, and so is one without keys between
//!   its knots.
//! * Whatever the words hold, a knot found is one of them, positions lie within their block, and
//!   blocks within the words.
//!
//! # Threads
//! Immutable after building; shared freely.

mod knots;
mod shape;

use crate::bloom::units_for;
use crate::elias_fano::Sequence;
use crate::error::FilterError;
use crate::format::{FilterInfo, FilterKind, Head, WordFilter};
use crate::line::Line;
use crate::range::{IntegerProbe, Next};
use crate::words::{Owned, Words};

use knots::Knots;

use shape::{Block, Shape};

/// Words before the knots: number of knots, shape of a block.
const HEADER: u64 = 2;

/// A learned filter over integers. Cloning shares its memory (with the default words).
///
/// Best for queries distributed like the keys, or anywhere except close to keys.
#[derive(Clone, Debug)]
pub struct Snarf<W: Words = Owned> {
    head: Head,
    words: W,
    knots: Knots,
    block: Block,
}

/// A segment that contains a query, strictly between its knots.
struct Segment {
    lower: u64,
    upper: u64,
    /// Its number.
    at: u64,
}

impl Segment {
    #[inline(always)]
    fn line(&self, positions: u64) -> Line {
        Line::new(self.upper.wrapping_sub(self.lower), positions)
    }
}

/// Where a query lies relative to the knots.
enum Located {
    /// Below the first key, which is included.
    Below(u64),
    /// At a key.
    Knot,
    /// Between two knots.
    Between(Segment),
    /// Above the last key.
    Above,
}

impl Snarf {
    /// Builds a filter over `keys`, in any order; duplicates are allowed. It takes `bits_per_key`,
    /// knots included, plus up to five words; less where everything is known exactly or positions
    /// run out (beyond 40 bits per key). Below 3 bits per key it filters hardly anything. Sorts a
    /// copy of the keys; the rest is linear, in several passes.
    ///
    /// # Errors
    /// [`FilterError::BitsPerKey`] and [`FilterError::TooLarge`] for invalid sizes.
    pub fn build(keys: &[u64], bits_per_key: f64) -> Result<Self, FilterError> {
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        let (head, words) = Self::encode(&sorted, bits_per_key)?;
        Self::from_parts(head, words.into())
    }

    /// Returns the parameters and words of a filter over `keys`, which ascend (and may repeat).
    pub(crate) fn encode(keys: &[u64], bits_per_key: f64) -> Result<(Head, Vec<u64>), FilterError> {
        let all = keys.len() as u64;
        units_for(all, bits_per_key, 64.0)?;
        let distinct: Vec<u64>;
        let repeats = keys.windows(2).any(|pair| pair[0] == pair[1]);
        let keys = if repeats {
            distinct = keys.chunk_by(|a, b| a == b).map(|same| same[0]).collect();
            &distinct
        } else {
            keys
        };
        let shape = Shape::choose(keys, (all as f64 * bits_per_key) as u64);
        let (knots, block) = (shape.directory(), shape.block);
        let mut words = vec![0; shape.words(all)?];
        words[0] = knots.count();
        words[1] = block.header();
        for (word, &at) in words[HEADER as usize..].iter_mut().zip(&shape.knots) {
            *word = keys[at];
        }
        knots.fill(&mut words);
        if block.has_positions() {
            for (at, pair) in (0..).zip(shape.knots.windows(2)) {
                let (lower, upper) = (keys[pair[0]], keys[pair[1]]);
                let line = Line::new(upper - lower, block.positions());
                let positions = keys[pair[0] + 1..pair[1]].iter().map(|key| line.position(key - lower));
                block.sequence(knots.end(), at).encode(&mut words, positions);
            }
        }
        Ok((Head { salt: 0, keys: all, params: [block.width as u8, 0] }, words))
    }
}

impl<W: Words> Snarf<W> {
    /// Locates `key`. The only search of a query.
    #[inline]
    fn locate(&self, key: u64) -> Located {
        let Some(last) = self.knots.count().checked_sub(1) else { return Located::Above };
        let at = self.knots.locate(&self.words, key);
        let lower = self.knots.get(&self.words, at);
        if key <= lower {
            return if key == lower { Located::Knot } else { Located::Below(lower) };
        }
        if at == last {
            return Located::Above;
        }
        Located::Between(Segment { lower, upper: self.knots.get(&self.words, at + 1), at })
    }

    #[inline]
    fn sequence(&self, segment: &Segment) -> Sequence {
        self.block.sequence(self.knots.end(), segment.at)
    }

    /// Returns whether a key may lie in `first..=last`, which lies strictly within `segment`.
    #[inline]
    fn any_within(&self, segment: &Segment, first: u64, last: u64) -> bool {
        if !self.block.has_positions() {
            return self.block.keys > 0;
        }
        let line = segment.line(self.block.positions());
        let from = line.position(first.wrapping_sub(segment.lower));
        let to = line.position(last.wrapping_sub(segment.lower));
        let sequence = self.sequence(segment);
        sequence.any_within(&self.words, from, to, |bucket| sequence.scan(&self.words, bucket))
    }

    /// The rate for single integers drawn from the keys' own distribution, if it is smooth at the
    /// distance of knots: the share of positions in use. It does not cover clusters smaller than a
    /// segment, nor queries correlated with keys.
    pub fn smooth_rate(&self) -> f64 {
        match (self.block.keys, self.block.has_positions()) {
            (0, _) => 0.0,
            (_, false) => 1.0,
            (keys, true) => 1.0 - (-(keys as f64) / self.block.positions() as f64).exp(),
        }
    }
}

impl<W: Words> WordFilter<W> for Snarf<W> {
    const KIND: FilterKind = FilterKind::Snarf;

    fn from_parts(head: Head, words: W) -> Result<Self, FilterError> {
        let count = words.word(0);
        let block = Block::read(words.word(1), head.params)?;
        let room = words.count() as u64;
        if count > room {
            return Err(FilterError::Corrupt("knots"));
        }
        let knots = Knots::new(HEADER, count);
        let bits = u128::from(block.bits()) * u128::from(count.saturating_sub(1));
        if u128::from(knots.end()) + bits.div_ceil(64) > u128::from(room) {
            return Err(FilterError::Corrupt("snarf size"));
        }
        Ok(Self { head, words, knots, block })
    }

    fn head(&self) -> Head {
        self.head
    }

    fn words(&self) -> &W {
        &self.words
    }
}

impl<W: Words> IntegerProbe for Snarf<W> {
    #[inline]
    fn contains(&self, key: u64) -> bool {
        match self.locate(key) {
            Located::Below(_) | Located::Above => false,
            Located::Knot => true,
            Located::Between(segment) => self.any_within(&segment, key, key),
        }
    }

    #[inline]
    fn contains_range(&self, first: u64, last: u64) -> bool {
        if first > last {
            return false;
        }
        match self.locate(first) {
            Located::Below(key) => last >= key,
            Located::Knot => true,
            Located::Between(segment) => last >= segment.upper || self.any_within(&segment, first, last),
            Located::Above => false,
        }
    }

    fn next(&self, from: u64) -> Next<u64> {
        let segment = match self.locate(from) {
            Located::Below(key) => return Next::NotBelow(key),
            Located::Knot => return Next::NotBelow(from),
            Located::Between(segment) => segment,
            Located::Above => return Next::Nothing,
        };
        if !self.block.has_positions() {
            let unknown = self.block.keys > 0;
            return Next::NotBelow(if unknown { from } else { segment.upper.max(from) });
        }
        let line = segment.line(self.block.positions());
        let position = line.position(from.wrapping_sub(segment.lower));
        let next = match self.sequence(&segment).successor(&self.words, position) {
            Some(next) => segment.lower.saturating_add(line.first_at(next)).min(segment.upper),
            None => segment.upper,
        };
        Next::NotBelow(next.max(from))
    }

    fn expected_rate(&self, _keys: u64) -> Option<f64> {
        (self.knots.count() == 0 || !self.block.has_positions() && self.block.keys == 0).then_some(0.0)
    }
}

impl<W: Words> FilterInfo for Snarf<W> {
    fn kind(&self) -> FilterKind {
        FilterKind::Snarf
    }

    fn keys(&self) -> u64 {
        self.head.keys
    }

    fn bits_per_key(&self) -> f64 {
        self.words.count() as f64 * 64.0 / self.head.keys as f64
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.words.count() * 8
    }
}

#[cfg(test)]
mod tests;
