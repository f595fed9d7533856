//! How the positions of a set are divided, and by how many bits they are cut to fit a budget.
//!
//! What a set takes follows from the number of its positions and entries, so a layout is computed
//! before anything is written.

use crate::bits::mask;

/// Buckets per block, as a power of two.
pub(super) const BLOCK_BITS: u32 = 7;
/// Buckets per block.
pub(super) const BUCKETS: u64 = 1 << BLOCK_BITS;
/// Maximum bits of a remainder: together with the bit at which it starts they fit a word.
pub(super) const MAX_WIDTH: u32 = 56;
/// Positions per entry below which a filter names nearly everything.
const FEWEST_BUCKETS: f64 = 0.2;
/// Bits per block beside its entries and buckets: the directory, and half a byte on average that
/// remains unused.
const BLOCK_OVERHEAD: f64 = 32.0 + 4.0;

/// How positions are divided into blocks, buckets and remainders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    /// Number of positions.
    pub(super) positions: u64,
    /// Bits of a remainder.
    pub(super) width: u32,
    /// Blocks before this one keep one bit less.
    pub(super) coarse: u32,
}

impl Layout {
    /// Number of blocks.
    pub(super) fn blocks(&self) -> u64 {
        ((self.positions.max(1) - 1) >> (self.width + BLOCK_BITS)) + 1
    }

    /// Returns the block of a position.
    #[inline(always)]
    pub(super) fn block(&self, position: u64) -> u64 {
        position >> (self.width + BLOCK_BITS)
    }

    /// Returns the number of low bits that the block of a position does not keep: 0 or 1.
    #[inline(always)]
    pub(super) fn cut(&self, position: u64) -> u32 {
        u32::from(self.block(position) < u64::from(self.coarse))
    }

    /// Returns the position as its block keeps it.
    #[inline(always)]
    pub(super) fn kept(&self, position: u64) -> u64 {
        position & !mask(self.cut(position))
    }

    /// Returns the expected bits of so many entries, without their symbols.
    fn bits(positions: u64, width: u32, entries: f64) -> f64 {
        let buckets = (positions >> width) as f64 + 1.0;
        entries * f64::from(width + 1) + buckets * (1.0 + BLOCK_OVERHEAD / BUCKETS as f64) + BUCKETS as f64
    }

    /// Returns the width at which so many entries take the fewest bits.
    fn best_width(positions: u64, entries: f64) -> u32 {
        let per_entry = positions as f64 / entries.max(1.0);
        let near = per_entry.log2().max(0.0) as u32;
        (near.saturating_sub(1)..=near + 1)
            .min_by(|a, b| Self::bits(positions, *a, entries).total_cmp(&Self::bits(positions, *b, entries)))
            .unwrap_or(near)
            .min(MAX_WIDTH)
    }

    /// Returns the most positions for which so many entries take `budget` bits, up to `most`.
    pub(super) fn most_positions(budget: f64, entries: u64, most: u64) -> u64 {
        let entries = entries.max(1) as f64;
        let per_bucket = 1.0 + BLOCK_OVERHEAD / BUCKETS as f64;
        let positions = |width: u32| {
            let buckets = (budget - BUCKETS as f64 - entries * f64::from(width + 1)) / per_bucket - 1.0;
            // Fewer buckets than half the entries make long runs: fewer bits of the positions do
            // better, until there are none.
            let fewest = if width == 0 { FEWEST_BUCKETS } else { 0.5 };
            (buckets > entries * fewest).then(|| (buckets * f64::from(width).exp2()).min(most as f64) as u64)
        };
        let fewest = (entries / 2.0).max(1.0) as u64;
        (0..MAX_WIDTH).filter_map(positions).max().unwrap_or(fewest).clamp(1, most.max(1))
    }

    /// Returns the layout of `entries` entries in `positions` positions that keeps as many bits of
    /// the positions as `budget` bits allow, and the number of low bits to cut from all positions.
    /// A budget below a bit or so per entry, or of a block or less, is exceeded.
    pub(super) fn fit(positions: u64, entries: u64, budget: f64) -> (Layout, u32) {
        let entries = entries.max(1) as f64;
        let (mut positions, mut cut) = (positions, 0);
        loop {
            let width = Self::best_width(positions, entries);
            let over = Self::bits(positions, width, entries) - budget;
            let layout = Layout { positions, width, coarse: 0 };
            // Fewer than one position for two entries would name everything.
            if over <= 0.0 || positions as f64 <= (entries / 2.0).max(1.0) {
                return (layout, cut);
            }
            if width > 0 && over <= entries {
                let coarse = (over / entries * layout.blocks() as f64).ceil() as u64;
                return (Layout { coarse: coarse.min(layout.blocks()) as u32, ..layout }, cut);
            }
            positions = after_cut(positions, 1);
            cut += 1;
        }
    }

    /// The same for entries that have lost bits of their positions already: these stay cut, whether
    /// or not the budget has room for them, as a probe asks for every bit that the layout has.
    pub(super) fn refit(positions: u64, entries: u64, budget: f64, lost: Lost) -> (Layout, u32) {
        let (mut layout, mut cut) = Self::fit(positions, entries, budget);
        if cut > lost.cut {
            return (layout, cut);
        }
        let anew = |cut: u32| {
            let positions = after_cut(positions, cut);
            Layout { positions, width: Self::best_width(positions, entries.max(1) as f64), coarse: 0 }
        };
        if cut < lost.cut {
            (layout, cut) = (anew(lost.cut), lost.cut);
        }
        let coarse = (lost.below >> cut).div_ceil(BUCKETS << layout.width).min(layout.blocks()) as u32;
        if coarse <= layout.coarse {
            return (layout, cut);
        }
        if layout.width == 0 {
            return (anew(cut + 1), cut + 1);
        }
        (Layout { coarse, ..layout }, cut)
    }

    /// Returns what a set with this layout, of positions cut by `cut` bits, does not know of the
    /// map's positions, all of which then move by `shift`: a multiple of twice the smallest
    /// position that is known.
    pub(super) fn lost(&self, cut: u32, shift: u64) -> Lost {
        let below = u64::from(self.coarse) << (self.width + BLOCK_BITS);
        // The last block may end beyond the positions.
        let below = if below == 0 { 0 } else { (below.min(self.positions) << cut) + shift };
        Lost { cut, below }
    }
}

impl Lost {
    /// Returns a position of the map as far as entries have it.
    pub(super) fn kept(&self, position: u64) -> u64 {
        let cut = self.cut + u32::from(position < self.below);
        position >> cut << cut
    }
}

/// Bits of the map's positions that entries no longer have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lost {
    /// Low bits of all of them.
    cut: u32,
    /// Positions of the map below this one have lost another bit.
    below: u64,
}

/// Returns how many positions are left after cutting low bits.
pub(super) fn after_cut(positions: u64, cut: u32) -> u64 {
    ((positions - 1) >> cut) + 1
}
