//! The positions of a ribbon filter's slots, and the equation of a key. Shared by building and
//! probing.

use crate::bits;
use crate::bloom::reduce;
use crate::error::FilterError;
use crate::words::Words;

use super::MAX_COLUMNS;

/// Slots that a key's coefficients span: the width of the ribbon.
pub(super) const WIDTH: u64 = 128;

/// Slots of a block: the bits of a word.
pub(super) const BLOCK: u64 = 64;

/// Maximum number of slots. Beyond, starts and coefficients would share more of a 64-bit hash than
/// they should.
pub(super) const MAX_SLOTS: u64 = 1 << 32;

/// Number of words before the first block.
pub(super) const HEADER: u64 = 1;

/// Bits of the header word that hold the number of slots; the others hold the first upper block.
const SLOT_BITS: u32 = 36;

// Odd, half of their bits set. Products of one hash by different constants show no linear relation
// when folded, unlike their low halves.
const LOW: u64 = 0xdd2d_8167_82f2_681f;
const HIGH: u64 = 0xa63a_de4f_9013_6cc3;
const RESULT: u64 = 0x9ced_8f42_c62a_2f51;

/// The shape of a filter: everything but salt, seed and words.
///
/// Blocks `0..whole` have 64 slots. If `tail` is not 0, one more has `tail` slots. Blocks from
/// `upper` on have `lower_columns + 1` columns, those before it `lower_columns`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    slots: u64,
    /// Positions where an equation can start, at least 1; fixed by `slots`.
    starts: u64,
    lower_columns: u32,
    upper: u64,
}

impl Layout {
    pub(super) fn new(slots: u64, lower_columns: u32, upper: u64) -> Self {
        Self { slots, starts: slots.saturating_sub(WIDTH - 1).max(1), lower_columns, upper }
    }

    /// The layout without slots.
    pub(super) const EMPTY: Self = Self { slots: 0, starts: 1, lower_columns: 0, upper: 0 };

    /// Returns the layout that gives `1..=MAX_SLOTS` slots as much of `words` words (excluding the
    /// header) as is useful: all, except for filters narrower than about 192 slots or wider than
    /// [`MAX_COLUMNS`].
    pub(super) fn fitting(slots: u64, words: u64) -> Self {
        let columns = (words * BLOCK / slots).min(u64::from(MAX_COLUMNS)) as u32;
        let mut layout = Self::new(slots, columns, 0);
        layout.upper = layout.blocks();
        if columns < MAX_COLUMNS {
            let tail = (layout.tail() * u64::from(columns + 1)).div_ceil(BLOCK);
            let least = layout.whole() * u64::from(columns) + tail;
            let upper = words.checked_sub(least).map(|spare| layout.whole().saturating_sub(spare));
            // Blocks in which no equation starts would have an unused extra column.
            layout.upper = upper.filter(|upper| upper * BLOCK < layout.starts).unwrap_or(layout.upper);
        }
        layout
    }

    /// Returns the layout of a filter with this first parameter, word 0 and number of words. O(1).
    pub(super) fn open(columns: u8, header: u64, words: u64) -> Result<Self, FilterError> {
        let (slots, upper) = (header & bits::mask(SLOT_BITS), header >> SLOT_BITS);
        if slots > MAX_SLOTS {
            return Err(FilterError::Corrupt("slots"));
        }
        let layout = Self::new(slots, u32::from(columns), upper);
        if upper > layout.blocks() || (slots == 0 && columns != 0) {
            return Err(FilterError::Corrupt("blocks"));
        }
        if u32::from(columns) + u32::from(upper < layout.blocks()) > MAX_COLUMNS {
            return Err(FilterError::Corrupt("columns"));
        }
        if words != layout.words() {
            return Err(FilterError::Corrupt("size"));
        }
        Ok(layout)
    }

    /// Returns word 0.
    pub(super) fn header(&self) -> u64 {
        self.slots | self.upper << SLOT_BITS
    }

    pub(super) fn slots(&self) -> u64 {
        self.slots
    }

    pub(super) fn lower_columns(&self) -> u32 {
        self.lower_columns
    }

    /// Returns the first block with one column more than [`Layout::lower_columns`]; the number of
    /// blocks if there is none.
    #[cfg(test)]
    pub(super) fn upper(&self) -> u64 {
        self.upper
    }

    /// Columns of the widest block.
    pub(super) fn most_columns(&self) -> u32 {
        self.lower_columns + u32::from(self.upper < self.blocks())
    }

    /// Blocks of 64 slots.
    #[inline(always)]
    pub(super) fn whole(&self) -> u64 {
        self.slots / BLOCK
    }

    /// Slots of the block after the whole ones.
    #[inline(always)]
    pub(super) fn tail(&self) -> u64 {
        self.slots % BLOCK
    }

    /// Number of blocks, including the cut one.
    pub(super) fn blocks(&self) -> u64 {
        self.slots.div_ceil(BLOCK)
    }

    /// Columns of block `block`.
    #[inline(always)]
    pub(super) fn columns(&self, block: u64) -> u32 {
        self.lower_columns + u32::from(block >= self.upper)
    }

    /// The first word of block `block <= whole + 2`. The cut block starts there, too.
    #[inline(always)]
    pub(super) fn base(&self, block: u64) -> u64 {
        HEADER + block * u64::from(self.lower_columns) + block.saturating_sub(self.upper)
    }

    /// Words of the payload, header included. At most 2^31 + 1.
    pub(super) fn words(&self) -> u64 {
        let tail = self.tail() * u64::from(self.columns(self.whole()));
        self.base(self.whole()) + tail.div_ceil(BLOCK)
    }

    /// Bit of the payload at which column `column` of the cut block starts.
    #[inline]
    pub(super) fn tail_bit(&self, column: u64) -> u64 {
        self.base(self.whole()) * BLOCK + column * self.tail()
    }

    /// The slots of column `column` of block `block`; zeros after the last slot.
    #[inline]
    pub(super) fn read<W: Words>(&self, words: &W, block: u64, column: u64) -> u64 {
        match block.cmp(&self.whole()) {
            std::cmp::Ordering::Less => words.word((self.base(block) + column) as usize),
            std::cmp::Ordering::Equal => bits::read(words, self.tail_bit(column), self.tail() as u32),
            std::cmp::Ordering::Greater => 0,
        }
    }

    /// Returns the equation of a remixed digest.
    #[inline(always)]
    pub(super) fn locate(&self, hash: u64) -> Equation {
        Equation {
            start: reduce(hash, self.starts),
            low: fold(hash, LOW) | 1,
            high: fold(hash, HIGH),
            result: (fold(hash, RESULT) >> 32) as u32,
        }
    }

    /// Returns the share of absent keys that satisfy the equations of their start.
    pub(super) fn rate(&self) -> f64 {
        let lower = (self.upper * BLOCK).min(self.starts) as f64 / self.starts as f64;
        let rate = 0.5f64.powi(self.lower_columns as i32);
        rate * lower + rate / 2.0 * (1.0 - lower)
    }
}

/// Both halves of a product, XORed.
#[inline(always)]
fn fold(hash: u64, factor: u64) -> u64 {
    let product = u128::from(hash) * u128::from(factor);
    product as u64 ^ (product >> 64) as u64
}

/// The equations of a key.
#[derive(Clone, Copy, Default)]
pub(super) struct Equation {
    /// The slot of the first coefficient.
    pub(super) start: u64,
    /// Coefficients of the first 64 slots, lowest bit first; the first is always 1.
    low: u64,
    /// Coefficients of the other 64.
    high: u64,
    /// The required parity of column `i` is bit `31 - i`.
    pub(super) result: u32,
}

impl Equation {
    /// Returns the block of the start.
    #[inline(always)]
    pub(super) fn block(&self) -> u64 {
        self.start / BLOCK
    }

    /// All coefficients, that of the start in the lowest bit.
    #[inline]
    pub(super) fn coefficients(&self) -> u128 {
        u128::from(self.low) | u128::from(self.high) << 64
    }

    /// The coefficients moved to their places within the three blocks from the start's block on.
    #[inline(always)]
    pub(super) fn masks(&self) -> [u64; 3] {
        let shift = self.start % BLOCK;
        // `x >> 1 >> (63 - shift)` is `x >> (64 - shift)` where `shift` may be 0.
        let over = |word: u64| word >> 1 >> (BLOCK - 1 - shift);
        [self.low << shift, self.high << shift | over(self.low), over(self.high)]
    }
}
