//! How many knots, and how many positions between them: from the keys and the bits asked for.

use super::knots::Knots;
use super::model::MAX_POSITIONS;
use super::HEADER;
use crate::bloom::MAX_UNITS;
use crate::elias_fano::Sequence;
use crate::error::FilterError;

/// Keys per segment, unless there are very few or very many bits per key.
const SEGMENT: u64 = 128;
/// Segments get no shorter than this for the sake of fine positions.
const SHORTEST: u64 = 4;
/// Keys in a block that a reader accepts, so that no bytes make a probe slow.
const MAX_BLOCK: u64 = 1 << 13;

/// The shape of every block: of the positions between two knots.
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
    /// Nothing is stored: either there is nothing between knots, or one cannot tell.
    const fn without_positions(keys: u64) -> Self {
        Self { keys: if keys == 0 { 0 } else { 1 }, buckets: 0, width: 0 }
    }

    /// A block of at most `bits` bits for `keys` keys.
    fn within(bits: u64, keys: u64) -> Self {
        if keys == 0 || bits <= keys {
            return Self::without_positions(keys);
        }
        // Between one and two buckets per key are best, if there are bits for as many.
        let width = (bits / keys).saturating_sub(2).min(63) as u32;
        Self { keys, buckets: bits - keys * (u64::from(width) + 1), width }
    }

    /// The block for `keys` keys in which `positions` (more than `keys`) are enough.
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

    /// Reads what [`Block::header`] gave, and the parameters.
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

    /// Positions that the line of a segment may use, at most [`MAX_POSITIONS`].
    #[inline(always)]
    pub(super) fn positions(&self) -> u64 {
        self.buckets << self.width
    }

    /// As [`Block::positions`], of a shape that is not final.
    fn wanted_positions(&self) -> u128 {
        u128::from(self.buckets) << self.width
    }

    /// Bits of one block.
    #[inline(always)]
    pub(super) fn bits(&self) -> u64 {
        if self.buckets == 0 { 0 } else { self.keys * (u64::from(self.width) + 1) + self.buckets }
    }

    /// Block `at` of those that start at word `start`.
    #[inline(always)]
    pub(super) fn sequence(&self, start: u64, at: u64) -> Sequence {
        Sequence::new(start * 64 + at * self.bits(), self.keys, self.buckets, self.width)
    }
}

/// The shape of a filter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Distinct keys.
    keys: u64,
    pub(super) segments: u64,
    pub(super) block: Block,
}

impl Shape {
    /// The shape for `keys`, distinct and ascending, in `bits` bits.
    pub(super) fn choose(keys: &[u64], bits: u64) -> Self {
        let count = keys.len() as u64;
        // Knots take a quarter of the bits at most.
        let mut length = SEGMENT;
        while 256 * u128::from(count) > u128::from(length) * u128::from(bits) && length < count {
            length *= 2;
        }
        loop {
            let shape = Self::of_segments(keys, bits, count.saturating_sub(1).div_ceil(length));
            if shape.block.wanted_positions() <= u128::from(MAX_POSITIONS) {
                return shape;
            }
            // More positions than the arithmetic has: more knots instead, as long as that is possible.
            if length == SHORTEST {
                let block = Block::of_positions(MAX_POSITIONS / 2, shape.block.keys);
                return Self { block, ..shape };
            }
            length /= 2;
        }
    }

    fn of_segments(keys: &[u64], bits: u64, segments: u64) -> Self {
        let count = keys.len() as u64;
        let none = Block::without_positions(0);
        let shape = Self { keys: count, segments, block: none };
        if segments == 0 {
            return shape;
        }
        let inner = (count - 1).div_ceil(segments) - 1;
        // The two outer knots, without which there is no filter, come on top of what is asked for.
        let directory = (shape.knots().end() - HEADER).saturating_sub(2) * 64;
        let block = Block::within(bits.saturating_sub(directory) / segments, inner);
        let widest = (0..segments).map(|at| keys[shape.key_of_knot(at + 1)] - keys[shape.key_of_knot(at)]);
        let widest = widest.max().unwrap_or(0);
        // Enough positions for every integer of every segment: more would tell nothing more.
        let exact = block.wanted_positions() >= u128::from(widest);
        Self { block: if exact { Block::of_positions(widest, inner) } else { block }, ..shape }
    }

    pub(super) fn knots(&self) -> Knots {
        Knots::new(HEADER, if self.keys == 0 { 0 } else { self.segments + 1 })
    }

    /// Which key knot `at` is: the segments differ by one key at most.
    pub(super) fn key_of_knot(&self, at: u64) -> usize {
        let last = u128::from(self.keys.saturating_sub(1));
        (u128::from(at) * last / u128::from(self.segments.max(1))) as usize
    }

    /// Words of the payload of a filter over `keys` keys.
    pub(super) fn words(&self, keys: u64) -> Result<usize, FilterError> {
        let blocks = u128::from(self.segments) * u128::from(self.block.bits());
        let words = u128::from(self.knots().end()) + blocks.div_ceil(64);
        if words > u128::from(MAX_UNITS) { Err(FilterError::TooLarge { keys }) } else { Ok(words as usize) }
    }
}
