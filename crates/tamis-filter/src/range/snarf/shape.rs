//! Chooses the number of knots, and of positions between them, from the keys and the requested
//! bits.

use super::HEADER;
use super::knots::Knots;
use crate::bloom::MAX_UNITS;
use crate::elias_fano::Sequence;
use crate::error::FilterError;
use crate::line::MAX_POSITIONS;

/// Candidate numbers of keys per segment, unless there are very few or very many bits per key.
/// Uniform keys favour long segments, to save bits; the more the density varies, the shorter the
/// segments should be.
const SEGMENTS: [u64; 3] = [64, 128, 256];
/// Number of segments sampled per shape to choose one.
const SAMPLE: usize = 128;
/// Segments are not made shorter than this for finer positions.
const SHORTEST: u64 = 4;
/// Maximum number of keys in a block that a reader accepts, so that no bytes can make a probe slow.
const MAX_BLOCK: u64 = 1 << 13;

/// The shape of every block, that is, of the positions between two knots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    /// Keys between two knots, at most.
    pub(super) keys: u64,
    /// Buckets of the coding; 0 if no positions are stored.
    pub(super) buckets: u64,
    /// Low bits of the coding.
    pub(super) width: u32,
}

impl Block {
    /// Nothing is stored: there is nothing between knots, or no way to tell.
    const fn without_positions(keys: u64) -> Self {
        Self { keys: if keys == 0 { 0 } else { 1 }, buckets: 0, width: 0 }
    }

    /// Returns a block of at most `bits` bits for `keys` keys.
    fn within(bits: u64, keys: u64) -> Self {
        if keys == 0 || bits <= keys {
            return Self::without_positions(keys);
        }
        // Between one and two buckets per key are best, if there are enough bits.
        let width = (bits / keys).saturating_sub(2).min(63) as u32;
        Self { keys, buckets: bits - keys * (u64::from(width) + 1), width }
    }

    /// Returns the block for `keys` keys in which `positions` (more than `keys`) are enough.
    fn of_positions(positions: u64, keys: u64) -> Self {
        if keys == 0 {
            return Self::without_positions(0);
        }
        let width = (positions / keys).ilog2();
        Self { keys, buckets: positions.div_ceil(1 << width), width }
    }

    pub(super) fn header(&self) -> u64 {
        self.keys | self.buckets << 32
    }

    /// Parses what [`Block::header`] wrote, and the parameters.
    pub(super) fn read(header: u64, params: [u8; 2]) -> Result<Self, FilterError> {
        let [width, zero] = params;
        let block = Self { keys: header & 0xffff_ffff, buckets: header >> 32, width: u32::from(width) };
        let small = block.keys <= MAX_BLOCK && block.buckets <= 2 * MAX_BLOCK && width < 32;
        if zero != 0 || !small || block.buckets << block.width > MAX_POSITIONS {
            return Err(FilterError::Corrupt("snarf block"));
        }
        Ok(block)
    }

    #[inline(always)]
    pub(super) fn has_positions(&self) -> bool {
        self.buckets > 0
    }

    /// Returns the positions that the line of a segment may use, at most [`MAX_POSITIONS`].
    #[inline(always)]
    pub(super) fn positions(&self) -> u64 {
        self.buckets << self.width
    }

    /// Same as [`Block::positions`], for a shape that is not final.
    fn wanted_positions(&self) -> u128 {
        u128::from(self.buckets) << self.width
    }

    /// Bits of one block.
    #[inline(always)]
    pub(super) fn bits(&self) -> u64 {
        if self.buckets == 0 { 0 } else { self.keys * (u64::from(self.width) + 1) + self.buckets }
    }

    /// Returns block `at` of those that start at word `start`.
    #[inline(always)]
    pub(super) fn sequence(&self, start: u64, at: u64) -> Sequence {
        Sequence::new(start * 64 + at * self.bits(), self.keys, self.buckets, self.width)
    }
}

/// The shape of a filter: which keys are knots, and what is stored between them.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// The knots as indices of keys, ascending, the first and the last key among them.
    pub(super) knots: Vec<usize>,
    pub(super) block: Block,
}

impl Shape {
    /// Returns the shape for `keys`, distinct and ascending, in `bits` bits.
    pub(super) fn choose(keys: &[u64], bits: u64) -> Self {
        let count = keys.len() as u64;
        // Knots take a quarter of the bits at most.
        let mut shortest = SEGMENTS[0];
        while 256 * u128::from(count) > u128::from(shortest) * u128::from(bits) && shortest < count {
            shortest *= 2;
        }
        let longer = SEGMENTS.into_iter().filter(|&length| length > shortest);
        let shapes =
            std::iter::once(shortest).chain(longer).map(|length| Self::of_length(keys, bits, length));
        // Among equals, such as sets known exactly, the last has the fewest knots.
        let best =
            shapes.map(|shape| (shape.rate_between(keys), shape)).rev().min_by(|a, b| a.0.total_cmp(&b.0));
        best.map_or_else(|| Self::of_length(keys, bits, shortest), |(_, shape)| shape)
    }

    /// Returns the shape with segments of up to `length` keys.
    fn of_length(keys: &[u64], bits: u64, mut length: u64) -> Self {
        loop {
            let even = Self::over(keys, bits, evenly(keys.len(), length));
            if even.block.wanted_positions() <= u128::from(MAX_POSITIONS) {
                return even.cut(keys, bits).limited();
            }
            // More positions than the arithmetic supports: use more knots instead, as long as that
            // is possible.
            if length == SHORTEST {
                return even.limited();
            }
            length /= 2;
        }
    }

    /// Returns the shape limited to the positions that the arithmetic supports.
    fn limited(self) -> Self {
        if self.block.wanted_positions() <= u128::from(MAX_POSITIONS) {
            return self;
        }
        // Rounding up to whole buckets may double them.
        Self { block: Block::of_positions(MAX_POSITIONS / 2, self.block.keys), ..self }
    }

    /// Estimates the rate for queries that fall between keys as other keys would: each gap between
    /// neighbours equally likely, anywhere in it. Uses a sample of the segments.
    fn rate_between(&self, keys: &[u64]) -> f64 {
        let (mut hits, mut asked) = (0.0, 0usize);
        let step = self.knots.len() / SAMPLE + 1;
        for pair in self.knots.windows(2).step_by(step) {
            asked += pair[1] - pair[0];
            let segment = &keys[pair[0]..=pair[1]];
            let span = segment[segment.len() - 1] - segment[0];
            if segment.len() < 3 || u128::from(span) <= self.block.wanted_positions() {
                continue;
            }
            // The part of a gap that shares the position of the key at either end.
            let position = span as f64 / self.block.wanted_positions() as f64;
            hits +=
                segment.windows(2).map(|pair| (position / (pair[1] - pair[0]) as f64).min(1.0)).sum::<f64>();
        }
        hits / asked.max(1) as f64
    }

    /// Returns the shape with these knots.
    fn over(keys: &[u64], bits: u64, knots: Vec<usize>) -> Self {
        let segments = knots.len().saturating_sub(1) as u64;
        let (mut inner, mut widest) = (0, 0);
        for pair in knots.windows(2).filter(|pair| pair[1] - pair[0] > 1) {
            inner = inner.max(pair[1] - pair[0] - 1);
            widest = widest.max(keys[pair[1]] - keys[pair[0]]);
        }
        let block = Block::within(bits_of_blocks(bits, segments) / segments.max(1), inner as u64);
        // Enough positions for every integer of every segment: more would add no information.
        let exact = block.wanted_positions() >= u128::from(widest);
        Self { knots, block: if exact { Block::of_positions(widest, inner as u64) } else { block } }
    }

    /// Returns the shape with more knots, at both ends of gaps so wide that the line across them
    /// leaves hardly any positions to the keys on either side. Their number is the one that
    /// promises the lowest rate to queries distributed like the keys: a cut segment becomes two
    /// good ones and an empty one, but every knot and block takes bits from all the others.
    fn cut(self, keys: &[u64], bits: u64) -> Self {
        let segments = self.knots.len().saturating_sub(1) as u64;
        if !self.block.has_positions() {
            return self;
        }
        // How much too coarse each segment's positions are, worst first, and where its widest gap
        // is.
        let mut gaps: Vec<(f64, usize)> = self.knots.windows(2).filter_map(|pair| gap(keys, pair)).collect();
        gaps.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        let rate = |cuts: usize| {
            let segments = segments + 2 * cuts as u64;
            let block = Block::within(bits_of_blocks(bits, segments) / segments, self.block.keys);
            let smooth = (block.keys as f64 / block.wanted_positions() as f64).min(1.0);
            let excess = |loss: f64| (smooth * loss).min(1.0) - smooth;
            let coarse: f64 = gaps[cuts..].iter().map(|&(loss, _)| excess(loss)).sum();
            smooth + coarse / segments as f64
        };
        let numbers = (0..usize::BITS).map(|log| 1 << log).take_while(|&cuts| cuts < gaps.len());
        let numbers = [0, gaps.len()].into_iter().chain(numbers);
        let best = numbers.min_by(|&a, &b| rate(a).total_cmp(&rate(b))).unwrap_or(0);
        if best == 0 {
            return self;
        }
        let mut knots = self.knots;
        knots.extend(gaps[..best].iter().flat_map(|&(_, at)| [at, at + 1]));
        knots.sort_unstable();
        knots.dedup();
        Self::over(keys, bits, knots)
    }

    pub(super) fn directory(&self) -> Knots {
        Knots::new(HEADER, self.knots.len() as u64)
    }

    /// Returns the words of the payload of a filter over `keys` keys.
    pub(super) fn words(&self, keys: u64) -> Result<usize, FilterError> {
        let blocks = self.knots.len().saturating_sub(1) as u128 * u128::from(self.block.bits());
        let words = u128::from(self.directory().end()) + blocks.div_ceil(64);
        if words > u128::from(MAX_UNITS) { Err(FilterError::TooLarge { keys }) } else { Ok(words as usize) }
    }
}

/// Returns the knots that cut `count` keys into the fewest segments of no more than `length`, equal
/// but for one key.
fn evenly(count: usize, length: u64) -> Vec<usize> {
    let Some(last) = count.checked_sub(1) else { return Vec::new() };
    let segments = (last as u64).div_ceil(length);
    (0..=segments).map(|at| (u128::from(at) * last as u128 / u128::from(segments.max(1))) as usize).collect()
}

/// Returns the part of `bits` bits that is left for the blocks of this many segments. The two outer
/// knots, without which there is no filter, come on top.
fn bits_of_blocks(bits: u64, segments: u64) -> u64 {
    let directory = Knots::new(0, segments + 1).end().saturating_sub(2);
    bits.saturating_sub(directory * 64)
}

/// Returns the key before the widest gap in the segment between two knots, and by how much the gap
/// coarsens the segment's positions, if by more than half.
fn gap(keys: &[u64], pair: &[usize]) -> Option<(f64, usize)> {
    let segment = &keys[pair[0]..=pair[1]];
    if segment.len() < 3 {
        return None;
    }
    let gaps = segment.windows(2).map(|pair| pair[1] - pair[0]).enumerate();
    let (at, widest) = gaps.max_by_key(|&(_, gap)| gap)?;
    let span = segment[segment.len() - 1] - segment[0];
    let loss = span as f64 / (span - widest) as f64;
    (loss > 2.0).then_some((loss, pair[0] + at))
}
