//! Two bit sequences over the same positions, with rank for both and select for one.
//!
//! A block of 19 words covers 512 places: the number of ones of each sequence before the block (two
//! halves of a word); per sequence a word with seven 9-bit fields, field `j` counting the ones in
//! the block's first `j + 1` words; then the words themselves, alternating between the sequences,
//! so that the two bits of a place share a cache line. The fields are those of S. Vigna, "Broadword
//! implementation of rank/select queries", WEA 2008 (rank9): a rank counts the ones of one word,
//! and a select finds the word by comparing all fields at once.
//!
//! # Invariants
//! Every function reads a bounded number of words, whatever the words hold.

use crate::bits;
use crate::words::Words;

/// Places per block.
pub(super) const PLACES: u64 = 512;
/// Words per block.
pub(super) const BLOCK: usize = 19;
/// The sequence "the label has a child".
pub(super) const CHILDREN: usize = 0;
/// The sequence of labels (dense) or of first labels of a node (sparse).
pub(super) const MARKS: usize = 1;
/// Words before the bits: totals and fields.
const COUNTS: usize = 3;

/// A one at the bottom of each field, and at its top.
const LOW: u64 = 0x0040_2010_0804_0201;
const HIGH: u64 = LOW << 8;

/// Returns the first word of the block of a place, and of its bits in a sequence.
#[inline]
fn places(sequences: usize, sequence: usize, at: u64) -> (usize, usize) {
    let block = sequences + (at / PLACES) as usize * BLOCK;
    (block, block + COUNTS + (at % PLACES / 64) as usize * 2 + sequence)
}

/// Returns the bit of a place.
#[inline]
pub(super) fn bit<W: Words>(words: &W, sequences: usize, sequence: usize, at: u64) -> bool {
    words.word(places(sequences, sequence, at).1) >> (at % 64) & 1 == 1
}

/// Sets the bit of a place.
pub(super) fn set(words: &mut [u64], sequences: usize, sequence: usize, at: u64) {
    words[places(sequences, sequence, at).1] |= 1 << (at % 64);
}

/// Returns the next set bit in `at..end`. Reads a word for every 64 places.
#[inline]
pub(super) fn next<W: Words>(words: &W, sequences: usize, mut at: u64, end: u64) -> Option<u64> {
    while at < end {
        let marks = words.word(places(sequences, MARKS, at).1) >> (at % 64);
        if marks != 0 {
            at += u64::from(marks.trailing_zeros());
            return (at < end).then_some(at);
        }
        at = (at | 63) + 1;
    }
    None
}

/// Counts the ones of a sequence before a place.
#[inline]
pub(super) fn rank<W: Words>(words: &W, sequences: usize, sequence: usize, at: u64) -> u32 {
    let (block, word) = places(sequences, sequence, at);
    let before = (words.word(block) >> (32 * sequence)) as u32;
    let within = field(words.word(block + 1 + sequence), at % PLACES / 64);
    let ones = (words.word(word) & bits::mask((at % 64) as u32)).count_ones();
    before.wrapping_add(within + ones)
}

/// Counts the ones in the first `word` words of a block. The field before the first is the top bit,
/// which is zero.
#[inline]
fn field(fields: u64, word: u64) -> u32 {
    (fields >> ((word.wrapping_sub(1) & 7) * 9) & 0x1ff) as u32
}

/// Counts the marks before a block.
#[inline]
pub(super) fn marks_before<W: Words>(words: &W, sequences: usize, block: u64) -> u32 {
    (words.word(sequences + block as usize * BLOCK) >> 32) as u32
}

/// Returns the place within `block` of the mark with `rank` marks before it in the block; `None` if
/// there are fewer.
#[inline]
pub(super) fn select_mark<W: Words>(words: &W, sequences: usize, block: u64, rank: u32) -> Option<u64> {
    if u64::from(rank) >= PLACES {
        return None;
    }
    let block = sequences + block as usize * BLOCK;
    let fields = words.word(block + 1 + MARKS);
    // The mark lies after as many whole words as there are fields of at most `rank`.
    let ranks = u64::from(rank) * LOW;
    let at_most = ((ranks | HIGH).wrapping_sub(fields & !HIGH) | (fields ^ ranks)) ^ (fields & !ranks);
    let word = ((at_most & HIGH) >> 8).wrapping_mul(LOW) >> 54 & 7;
    let marks = words.word(block + COUNTS + word as usize * 2 + MARKS);
    let at = bits::select_in_word(marks, rank.wrapping_sub(field(fields, word)));
    (at < 64).then(|| word * 64 + u64::from(at))
}

/// Writes the counts of a sequence of blocks; passes to `each` the number of every block and the
/// marks before and after it.
pub(super) fn count(words: &mut [u64], mut each: impl FnMut(u64, u32, u32)) {
    let mut totals = [0u32; 2];
    for (i, block) in words.chunks_exact_mut(BLOCK).enumerate() {
        block[0] = u64::from(totals[CHILDREN]) | u64::from(totals[MARKS]) << 32;
        let before = totals[MARKS];
        for (sequence, total) in totals.iter_mut().enumerate() {
            let mut ones = 0;
            for word in 0..8 {
                if word > 0 {
                    block[1 + sequence] |= u64::from(ones) << ((word - 1) * 9);
                }
                ones += block[COUNTS + word * 2 + sequence].count_ones();
            }
            *total += ones;
        }
        each(i as u64, before, totals[MARKS]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::words::Owned;

    proptest! {
        #[test]
        fn rank_select_and_next_agree_with_the_bits(
            pieces in prop::collection::vec((any::<bool>(), any::<bool>(), 1usize..150), 1..25),
            before in 0usize..3,
        ) {
            let bits: Vec<[bool; 2]> = pieces.iter().flat_map(|&(a, b, n)| vec![[a, b]; n]).collect();
            let blocks = bits.len().div_ceil(PLACES as usize);
            let mut words = vec![u64::MAX; before];
            words.resize(before + blocks * BLOCK, 0);
            for (at, pair) in bits.iter().enumerate() {
                for sequence in [CHILDREN, MARKS].into_iter().filter(|s| pair[*s]) {
                    set(&mut words, before, sequence, at as u64);
                }
            }
            let mut marks = 0;
            count(&mut words[before..], |_, from, to| {
                assert_eq!(from, marks);
                marks = to;
            });
            let words: Owned = words.into();
            let mut ranks = [0; 2];
            for (at, pair) in bits.iter().enumerate() {
                let place = at as u64;
                for sequence in [CHILDREN, MARKS] {
                    prop_assert_eq!(bit(&words, before, sequence, place), pair[sequence]);
                    prop_assert_eq!(rank(&words, before, sequence, place), ranks[sequence]);
                }
                let block = place / PLACES;
                if pair[MARKS] {
                    let within = ranks[MARKS] - marks_before(&words, before, block);
                    prop_assert_eq!(select_mark(&words, before, block, within), Some(place % PLACES));
                }
                let end = bits.len().min(at + 256);
                let following = (at..end).find(|i| bits[*i][MARKS]).map(|i| i as u64);
                prop_assert_eq!(next(&words, before, place, end as u64), following);
                ranks = [0, 1].map(|s| ranks[s] + u32::from(pair[s]));
            }
            prop_assert_eq!(marks, ranks[MARKS]);
            let last = blocks as u64 - 1;
            prop_assert_eq!(select_mark(&words, before, last, marks - marks_before(&words, before, last)), None);
        }

        #[test]
        fn any_words_and_ranks_are_safe(words in prop::collection::vec(any::<u64>(), 0..60), rank: u32, at in 0u64..3000) {
            let words: Owned = words.into();
            for rank in [rank, rank % 600, u32::MAX] {
                let found = select_mark(&words, 0, at / PLACES, rank);
                prop_assert!(found.is_none_or(|place| place < PLACES && u64::from(rank) < PLACES));
            }
            for sequence in [CHILDREN, MARKS] {
                std::hint::black_box(super::rank(&words, 0, sequence, at));
            }
            prop_assert!(next(&words, 0, at, at + 256).is_none_or(|found| (at..at + 256).contains(&found)));
        }
    }
}
