//! Bits within words: fields of any width, and select.

use crate::words::Words;

/// Returns a word whose low `width <= 64` bits are ones.
#[inline(always)]
pub(crate) const fn mask(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// Returns the `width` bits (at most 64) that start at bit `at` of `words`; bits beyond the end are
/// zero.
#[inline(always)]
pub(crate) fn read<W: Words>(words: &W, at: u64, width: u32) -> u64 {
    let (word, shift) = ((at / 64) as usize, (at % 64) as u32);
    let low = words.word(word) >> shift;
    if shift + width <= 64 {
        return low & mask(width);
    }
    // Here `shift > 0`, since `width <= 64`.
    (low | words.word(word + 1) << (64 - shift)) & mask(width)
}

/// Writes the low `width` bits of `value` at bit `at` of `words`, whose bits there must be zero.
///
/// # Panics
/// If the field does not lie within `words`.
#[inline]
pub(crate) fn write(words: &mut [u64], at: u64, width: u32, value: u64) {
    let (word, shift) = ((at / 64) as usize, (at % 64) as u32);
    let value = value & mask(width);
    if width == 0 {
        return;
    }
    words[word] |= value << shift;
    if shift + width > 64 {
        words[word + 1] |= value >> (64 - shift);
    }
}

/// Appends fields one after the other, a word at a time: equivalent to repeated [`write`], in a
/// third of the time.
pub(crate) struct Appender<'w> {
    words: &'w mut [u64],
    /// The word being filled.
    at: usize,
    filled: u32,
    word: u64,
}

impl<'w> Appender<'w> {
    /// Starts at bit `at` of `words`; the bits from there to the end of the appended fields must be
    /// zero.
    #[inline]
    pub(crate) fn new(words: &'w mut [u64], at: u64) -> Self {
        let place = (at / 64) as usize;
        let word = words.get(place).copied().unwrap_or(0);
        Self { words, at: place, filled: (at % 64) as u32, word }
    }

    /// Appends the low `width` bits of `value`, `width` at most 63.
    ///
    /// # Panics
    /// If they do not fit.
    #[inline(always)]
    pub(crate) fn push(&mut self, width: u32, value: u64) {
        let value = value & mask(width);
        self.word |= value << self.filled;
        self.filled += width;
        if self.filled >= 64 {
            self.words[self.at] = self.word;
            self.at += 1;
            self.filled -= 64;
            // The part that did not fit; nothing if `filled` is 0 now, as `width` is below 64.
            self.word = if self.filled == 0 { 0 } else { value >> (width - self.filled) };
        }
    }

    /// Returns the bit behind the last one appended.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.at as u64 * 64 + u64::from(self.filled)
    }

    /// Writes the last, partial word.
    #[inline]
    pub(crate) fn finish(self) {
        if self.filled > 0 {
            // Later bits belong to others, or are zero.
            self.words[self.at] |= self.word;
        }
    }
}

/// Returns the number of words that hold `bits` bits.
#[inline]
pub(crate) const fn words_for(bits: u64) -> u64 {
    bits.div_ceil(64)
}

/// Returns the position of the one with `rank` ones below it in `word`; 64 if there are too few.
/// About 4 ns, without data-dependent branches.
#[inline]
pub(crate) fn select_in_word(word: u64, rank: u32) -> u32 {
    if rank >= word.count_ones() {
        return 64;
    }
    // Count the ones up to and including each byte, then find the first byte where the count
    // exceeds the rank by comparing all eight at once (S. Vigna, "Broadword implementation of
    // rank/select queries", WEA 2008).
    const L8: u64 = 0x0101_0101_0101_0101;
    const H8: u64 = 0x8080_8080_8080_8080;
    let pairs = word - (word >> 1 & 0x5555_5555_5555_5555);
    let nibbles = (pairs & 0x3333_3333_3333_3333) + (pairs >> 2 & 0x3333_3333_3333_3333);
    let sums = ((nibbles + (nibbles >> 4)) & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(L8);
    let below = (((u64::from(rank) * L8) | H8) - sums) & H8;
    let at = below.count_ones() * 8;
    let before = (sums << 8 >> at & 0xff) as u32;
    at + u32::from(SELECT_IN_BYTE[(word >> at & 0xff) as usize][(rank - before) as usize])
}

/// Position of the `r`-th one in each byte.
static SELECT_IN_BYTE: [[u8; 8]; 256] = {
    let mut table = [[8u8; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut bit, mut rank) = (0, 0);
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                table[byte][rank] = bit as u8;
                rank += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn select_finds_each_one(word: u64, sparse: u64) {
            for word in [word, word & sparse, word | sparse, 0, u64::MAX, 1 << 63] {
                let ones: Vec<u32> = (0..64).filter(|i| word >> i & 1 == 1).collect();
                for rank in 0..=64u32 {
                    prop_assert_eq!(select_in_word(word, rank), ones.get(rank as usize).copied().unwrap_or(64));
                }
            }
        }

        #[test]
        fn appended_fields_are_those_written(
            start in 0u64..200,
            fields in prop::collection::vec((any::<u64>(), 0u32..64), 0..50),
        ) {
            let (mut written, mut appended) = (vec![0; 60], vec![0; 60]);
            write(&mut written, start.saturating_sub(3), 3, 5);
            write(&mut appended, start.saturating_sub(3), 3, 5);
            let start = start.max(3);
            let mut at = start;
            let mut appender = Appender::new(&mut appended, start);
            for &(value, width) in &fields {
                write(&mut written, at, width, value);
                appender.push(width, value);
                at += u64::from(width);
            }
            appender.finish();
            prop_assert_eq!(written, appended);
        }

        #[test]
        fn fields_come_back(fields in prop::collection::vec((any::<u64>(), 0u32..=64), 0..50)) {
            let mut words = vec![0; 51];
            let mut at = 0;
            for &(value, width) in &fields {
                write(&mut words, at, width, value);
                at += u64::from(width);
            }
            let words: Arc<[u64]> = words.into();
            at = 0;
            for &(value, width) in &fields {
                prop_assert_eq!(read(&words, at, width), value & mask(width));
                at += u64::from(width);
            }
            prop_assert_eq!(read(&words, 51 * 64 - 3, 64), 0);
        }
    }
}
