//! The model of one segment: a line from its lower knot to its upper knot, in exact integer
//! arithmetic.

/// Positions that a segment can have: products with a scale of 64 bits must fit 128.
pub(crate) const MAX_POSITIONS: u64 = u32::MAX as u64;

/// Maps offsets from a segment's lower knot, below `gap`, to positions below `positions`:
/// monotonically, and identically on every machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// Positions per integer, times `2^shift`.
    slope: u64,
    shift: u32,
    last: u64,
}

impl Line {
    /// Returns the line for knots `gap` apart; `1 <= positions <= MAX_POSITIONS`. One division of
    /// 64 bits.
    ///
    /// The slope is `positions / gap`, rounded down, with `gap` cut to 32 bits and rounded up. So
    /// the last offset stays below `positions`, and the line ends less than two positions (and a
    /// fraction of 2^-31) below its ideal end. A gap with no more integers than positions gives
    /// each integer its own.
    #[inline(always)]
    pub(crate) fn new(gap: u64, positions: u64) -> Self {
        let last = positions - 1;
        if gap <= positions {
            return Self { slope: 1, shift: 0, last };
        }
        let cut = 32u32.saturating_sub(gap.leading_zeros());
        let slope = (positions << 32) / ((gap >> cut) + 1);
        Self { slope, shift: 32 + cut, last }
    }

    /// Like [`Line::new`], but if there are fewer integers than positions they are spread over all
    /// positions: they then differ in the high bits of their positions, as far as there are high
    /// bits to differ in.
    #[inline(always)]
    pub(crate) fn spread(gap: u64, positions: u64) -> Self {
        let cut = 32u32.saturating_sub(gap.leading_zeros());
        // A gap that was not cut needs no rounding up: the last offset is `gap - 1`.
        let divisor = if cut == 0 { gap.max(1) } else { (gap >> cut) + 1 };
        Self { slope: (positions << 32) / divisor, shift: 32 + cut, last: positions - 1 }
    }

    /// Returns the position of the integer at `offset`.
    #[inline(always)]
    pub(crate) fn position(&self, offset: u64) -> u64 {
        // Below `positions` for every offset below the gap; the minimum guards against invalid
        // knots.
        let position = (u128::from(offset) * u128::from(self.slope)) >> self.shift;
        (position as u64).min(self.last)
    }

    /// Returns the smallest offset whose position is `position` or more.
    pub(crate) fn first_at(&self, position: u64) -> u64 {
        let scaled = u128::from(position) << self.shift;
        scaled.div_ceil(u128::from(self.slope).max(1)).try_into().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_line_that_spreads_rises_and_can_be_read_backwards(
            gap in prop_oneof![1u64..5000, 1..=u64::MAX],
            positions in prop_oneof![1u64..300, 1..=MAX_POSITIONS],
            offsets in prop::collection::vec(any::<u64>(), 1..20),
        ) {
            let line = Line::spread(gap, positions);
            let mut offsets: Vec<u64> = offsets.iter().map(|offset| offset % gap).chain([0, gap - 1]).collect();
            offsets.sort_unstable();
            offsets.dedup();
            for pair in offsets.windows(2) {
                prop_assert!(line.position(pair[0]) <= line.position(pair[1]));
                prop_assert!(gap > positions || line.position(pair[0]) < line.position(pair[1]));
            }
            for offset in offsets {
                let position = line.position(offset);
                prop_assert!(position < positions);
                let first = line.first_at(position);
                prop_assert!(first <= offset && line.position(first) == position);
            }
        }
    }
}
