//! Codes: compact intervals of epochs. The parent module documents their meaning and correctness.

use crate::bits::mask;
use crate::error::FilterError;
use crate::global::{Cuts, Epoch, Epochs};

/// Maximum number of levels above the last.
pub(super) const MAX_LEVELS: usize = 16;
/// Maximum bits of all digits together.
const MAX_BITS: u32 = 48;

/// The code of an entry: its number of digits (0: "last"), and the digits, the highest level's first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Code(u64);

impl Code {
    /// The code of the last level: all epochs before the base.
    pub(super) const LAST: Code = Code(0);

    /// Returns the number of digits, and of extra bits of position.
    #[inline(always)]
    pub(super) fn digits(self) -> u32 {
        (self.0 >> 56) as u32
    }

    #[inline(always)]
    pub(super) fn new(digits: u32, fields: u64) -> Self {
        Code(u64::from(digits) << 56 | fields)
    }

    /// The digits, each in as many bits as its level needs.
    #[inline(always)]
    pub(super) fn fields(self) -> u64 {
        self.0 & mask(56)
    }

    /// Returns a number that spreads codes over small tables.
    #[inline(always)]
    fn hash(self) -> usize {
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize
    }
}

/// Properties of the codes with one more digit than those before.
#[derive(Clone, Copy, Debug)]
struct Level {
    radix: u64,
    /// Bits of the digit.
    width: u32,
    /// Bits of the digits from the highest level's down to this one.
    bits: u32,
    /// Number of epochs that a code ending with this digit stands for.
    unit: u64,
    /// The greatest such code: it stands for all later epochs, too.
    greatest: u64,
}

/// The digits of a tree: its radices and its base.
#[derive(Clone, Debug)]
pub(super) struct Coder {
    base: Epoch,
    /// The levels, highest first.
    levels: Vec<Level>,
}

impl Coder {
    pub(super) fn new(base: Epoch, radices: &[u32]) -> Result<Self, FilterError> {
        if radices.is_empty() || radices.len() > MAX_LEVELS || radices.contains(&0) {
            return Err(FilterError::Parameter("a code has 1 to 16 digits, none of radix 0"));
        }
        let width = |radix: u32| 32 - (radix - 1).leading_zeros();
        if radices.iter().map(|&radix| width(radix)).sum::<u32>() > MAX_BITS {
            return Err(FilterError::Parameter("the digits of a code take more than 48 bits"));
        }
        let mut unit: u64 = radices[..radices.len() - 1].iter().map(|&radix| u64::from(radix)).product();
        // The highest digit has no level above it to carry to, so every value its bits can hold is useful.
        let tops = mask(width(radices[radices.len() - 1])) + 1;
        let end = tops * unit;
        let mut bits = 0;
        let mut levels = Vec::with_capacity(radices.len());
        for (level, &radix) in radices.iter().enumerate().rev() {
            bits += width(radix);
            let greatest = end / unit - 1;
            levels.push(Level { radix: radix.into(), width: width(radix), bits, unit, greatest });
            unit /= level.checked_sub(1).map_or(1, |below| u64::from(radices[below]));
        }
        Ok(Self { base, levels })
    }

    pub(super) fn base(&self) -> Epoch {
        self.base
    }

    /// Returns the number of digits of the longest codes.
    #[inline(always)]
    pub(super) fn depth(&self) -> u32 {
        self.levels.len() as u32
    }

    /// Bits of `digits` digits, at least one.
    #[inline(always)]
    pub(super) fn field_bits(&self, digits: u32) -> u32 {
        self.levels[digits as usize - 1].bits
    }

    /// Returns the bits that encode the number of digits, at least one, after the bit that says whether there are
    /// any. All except the longest are terminated by a one.
    #[inline(always)]
    pub(super) fn indicator_bits(&self, digits: u32) -> u32 {
        digits.min(self.depth() - 1)
    }

    /// Returns the bits of an entry with this code: indicator, digits, extra bits of the position.
    pub(super) fn bits(&self, digits: u32) -> u32 {
        if digits == 0 { 1 } else { 1 + self.indicator_bits(digits) + self.field_bits(digits) + digits }
    }

    /// Returns the expected bits of a code for entries outside the last level: each level holds as many as all those
    /// above it, times its radix.
    pub(super) fn expected_bits(&self) -> f64 {
        let (mut bits, mut share) = (0.0, 1.0);
        for (digits, level) in (1..).zip(&self.levels) {
            let rest = if digits == self.depth() { 0.0 } else { share / level.radix.max(2) as f64 };
            bits += (share - rest) * f64::from(self.bits(digits));
            share = rest;
        }
        bits
    }

    /// Returns the epochs that a code stands for.
    #[inline]
    pub(super) fn epochs(&self, code: Code) -> Epochs {
        let digits = code.digits() as usize;
        let Some(last) = digits.checked_sub(1).and_then(|at| self.levels.get(at)) else {
            return Epochs { lo: 0, hi: self.base };
        };
        let number = self.levels[..digits].iter().fold(0, |number, level| {
            number * level.radix + (code.fields() >> (last.bits - level.bits) & mask(level.width))
        });
        let lo = self.base.saturating_add(number * last.unit);
        let hi = if number >= last.greatest { Epoch::MAX } else { lo.saturating_add(last.unit) };
        Epochs { lo, hi }
    }

    /// Returns the code of `digits` digits with this number.
    fn encode(&self, digits: u32, mut number: u64) -> Code {
        let levels = &self.levels[..digits as usize];
        let (mut fields, mut at) = (0, 0);
        for level in levels[1..].iter().rev() {
            fields |= (number % level.radix) << at;
            number /= level.radix;
            at += level.width;
        }
        Code::new(digits, fields | number << at)
    }

    /// Returns the shortest code that stands only for epochs of `gap`; "last" if the gap begins before the base. For
    /// a gap so late that no code stands only for it, returns the greatest code.
    pub(super) fn choose(&self, gap: Epochs) -> Code {
        if gap.lo < self.base {
            return Code::LAST;
        }
        let (lo, hi) = (gap.lo - self.base, gap.hi - self.base);
        for (digits, level) in (1..).zip(&self.levels) {
            let number = lo.div_ceil(level.unit);
            // Compared in units, as the end of the code's interval may lie beyond all epochs.
            if number < level.greatest && number < hi / level.unit {
                return self.encode(digits, number);
            }
        }
        self.encode(self.depth(), self.levels[self.levels.len() - 1].greatest)
    }

    /// Returns the code of a new entry, of a table with these epochs. Its table is a cut of the versions that will
    /// see the entry, whether or not `cuts` contains it, so the code stays within the table, too.
    pub(super) fn assign(&self, table: Epochs, cuts: &Cuts) -> Code {
        if table.lo < self.base {
            return Code::LAST;
        }
        let (gap, _) = cuts.around(table.lo);
        let hi = gap.hi.min(table.hi).max(table.lo.saturating_add(1));
        self.choose(Epochs { lo: table.lo, hi })
    }

    /// Returns the code that an entry with code `code` gets by garbage collection; `None` if no table holds the entry
    /// any more.
    pub(super) fn collect(&self, code: Code, cuts: &Cuts) -> Option<Code> {
        if code == Code::LAST {
            return Some(code);
        }
        let own = self.epochs(code);
        let (gap, held) = cuts.around(own.lo);
        // Nothing is known of epochs after all cuts: future tables will cut them.
        if gap.hi == Epoch::MAX || !gap.contains(own) {
            return Some(code);
        }
        if !held {
            return None;
        }
        let chosen = self.choose(gap);
        // It is never longer, since the old code fits the gap; the extra position bits rely on that.
        Some(if chosen.digits() <= code.digits() { chosen } else { code })
    }
}

/// Garbage collection of many entries with few different codes.
pub(super) struct Collector<'a> {
    coder: &'a Coder,
    cuts: &'a Cuts,
    /// Memoized results, by [`Code::hash`]; "last" where there is none.
    known: [(Code, Option<Code>); 64],
}

impl<'a> Collector<'a> {
    pub(super) fn new(coder: &'a Coder, cuts: &'a Cuts) -> Self {
        Self { coder, cuts, known: [(Code::LAST, Some(Code::LAST)); 64] }
    }

    /// Same as [`Coder::collect`].
    #[inline]
    pub(super) fn collect(&mut self, code: Code) -> Option<Code> {
        let known = &mut self.known[code.hash()];
        if known.0 != code {
            *known = (code, self.coder.collect(code, self.cuts));
        }
        known.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(lo: u64, hi: u64) -> Epochs {
        Epochs { lo, hi }
    }

    #[test]
    fn codes_are_aligned_and_within_the_gap() {
        for radices in [vec![10, 10], vec![3, 4, 5], vec![4, 4, 4], vec![1, 2, 1, 3], vec![1], vec![7]] {
            let coder = Coder::new(100, &radices).expect("valid radices");
            let end = 100 + coder.levels[radices.len() - 1].greatest;
            for lo in 90..end + 5 {
                for hi in lo + 1..end + 7 {
                    let code = coder.choose(epochs(lo, hi));
                    let stands = coder.epochs(code);
                    if lo < 100 {
                        assert_eq!((code, stands), (Code::LAST, epochs(0, 100)));
                    } else if stands.hi == u64::MAX {
                        assert!(lo >= end && stands.lo == end && code.digits() == coder.depth());
                    } else {
                        assert!(epochs(lo, hi).contains(stands), "{lo}..{hi}: {stands:?}");
                        let shorter = &coder.levels[..code.digits() as usize - 1];
                        let fits = |unit: u64| (lo - 100).div_ceil(unit) * unit + unit <= hi - 100;
                        assert!(!shorter.iter().any(|level| {
                            fits(level.unit) && (lo - 100).div_ceil(level.unit) < level.greatest
                        }));
                    }
                }
            }
        }
    }

    #[test]
    fn an_entry_of_an_ongoing_flush_gets_no_future_epochs() {
        // After the last cut all epochs are in one gap, but the next flushes will cut it.
        let coder = Coder::new(0, &[4, 4]).expect("valid radices");
        let cuts = Cuts::of([epochs(0, 4)]);
        let code = coder.assign(epochs(4, 5), &cuts);
        assert_eq!(coder.epochs(code), epochs(4, 5));
        assert_eq!(coder.collect(code, &cuts), Some(code));
        let later = Cuts::of([epochs(0, 4), epochs(4, 8)]);
        assert_eq!(coder.collect(code, &later).map(|code| coder.epochs(code)), Some(epochs(4, 8)));
    }

    #[test]
    fn entries_of_unheld_epochs_are_dropped() {
        let coder = Coder::new(0, &[4, 4]).expect("valid radices");
        let code = coder.choose(epochs(5, 6));
        assert_eq!(coder.collect(code, &Cuts::of([epochs(0, 4), epochs(8, 9)])), None);
    }

    #[test]
    fn invalid_radices_are_rejected() {
        for radices in [vec![], vec![3, 0], vec![2; 17], vec![u32::MAX, 1 << 17]] {
            assert!(Coder::new(0, &radices).is_err());
        }
        assert!(Coder::new(0, &[u32::MAX, 1 << 16]).is_ok());
    }
}
