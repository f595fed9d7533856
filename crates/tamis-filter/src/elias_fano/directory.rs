//! Finds where a bucket of a long sequence starts, in constant time for evenly spread values and in
//! logarithmic time for any: sequential keys hash to sequential values, which crowd a few buckets
//! and leave long gaps.
//!
//! The unary part is cut into blocks of 512 bits. Every block stores the number of zeros before it:
//! 16 bits relative to its superblock of 128 blocks, which stores 64. Every 2048th zero has a
//! *hint*: its block. The blocks between two hints, six or seven for evenly spread values, are
//! searched by their counts, then the words of one block. In all, the directory takes about 0.05
//! bits per bit of the unary part.
//!
//! A unary part of two blocks or less has no directory.

use std::hint::select_unpredictable;

use super::{Sequence, select_zero};
use crate::bits;
use crate::words::Words;

const BLOCK: u64 = 512;
const SUPER: u64 = 128;
const HINT: u64 = 2048;

/// The directory of a [`Sequence`], whose words precede or follow it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Directory {
    /// Word where the superblocks' counts start.
    supers: u64,
    /// Word where the blocks' counts start, four to a word.
    blocks: u64,
    /// Word where the hints start, two to a word: one per 2048 zeros, and the last block.
    hints: u64,
    /// First word past the end.
    end: u64,
    /// Whether the directory is empty.
    absent: bool,
}

impl Directory {
    /// Returns the directory, from word `at` on, of a sequence of `count` values in `buckets`
    /// buckets, at least one.
    pub(crate) const fn new(at: u64, count: u64, buckets: u64) -> Self {
        let all = (count + buckets).div_ceil(BLOCK);
        if count + buckets <= Self::LEAST {
            return Self { supers: at, blocks: at, hints: at, end: at, absent: true };
        }
        let blocks = at + all.div_ceil(SUPER);
        let hints = blocks + all.div_ceil(4);
        let end = hints + ((buckets - 1) / HINT + 2).div_ceil(2);
        Self { supers: at, blocks, hints, end, absent: false }
    }

    /// Unary parts up to this size have no directory: counting a few words is as fast.
    pub(crate) const LEAST: u64 = 2 * BLOCK;

    /// Returns the first word after the directory.
    pub(crate) const fn end(&self) -> u64 {
        self.end
    }

    /// Returns the bits of directory per bit of the unary part, and more per zero.
    pub(crate) const SHARES: (f64, f64) =
        (16.0 / BLOCK as f64 + 64.0 / (BLOCK * SUPER) as f64, 32.0 / HINT as f64);

    /// Counts the zeros of `sequence`, which is in `words` already.
    pub(crate) fn fill(&self, words: &mut [u64], sequence: &Sequence) {
        if self.absent {
            return;
        }
        let (mut zeros, mut before, mut hints) = (0u64, 0u64, 0u64);
        let blocks = sequence.unary.div_ceil(BLOCK);
        for block in 0..blocks {
            if block % SUPER == 0 {
                words[(self.supers + block / SUPER) as usize] = zeros;
                before = zeros;
            }
            bits::write(words, self.blocks * 64 + block * 16, 16, zeros - before);
            let place = block * BLOCK;
            let len = BLOCK.min(sequence.unary - place);
            zeros += len - ones(words, sequence.at + place, sequence.at + place + len);
            while hints * HINT < zeros {
                bits::write(words, self.hints * 64 + hints * 32, 32, block);
                hints += 1;
            }
        }
        bits::write(words, self.hints * 64 + hints * 32, 32, blocks - 1);
    }

    /// Returns the zeros before block `block`.
    #[inline(always)]
    fn zeros_before<W: Words>(&self, words: &W, block: u64) -> u64 {
        let before = words.word((self.supers + block / SUPER) as usize);
        before.wrapping_add(bits::read(words, self.blocks * 64 + block * 16, 16))
    }

    /// Returns where bucket `bucket` starts in the unary part of `sequence`.
    #[inline]
    pub(crate) fn start_of<W: Words>(&self, words: &W, sequence: &Sequence, bucket: u64) -> u64 {
        let Some(rank) = bucket.checked_sub(1) else { return 0 };
        if self.absent {
            return sequence.scan(words, bucket);
        }
        let hint = self.hints * 64 + rank / HINT * 32;
        let (low, high) = (bits::read(words, hint, 32), bits::read(words, hint + 32, 32));
        // The last block with no more than `rank` zeros before it.
        let (mut block, mut len) = (low, high.saturating_sub(low));
        while len > 0 {
            let half = len.div_ceil(2);
            let before = self.zeros_before(words, block + half) <= rank;
            block = select_unpredictable(before, block + half, block);
            len -= half;
        }
        let rank = rank.wrapping_sub(self.zeros_before(words, block));
        block * BLOCK + select_zero(words, sequence.at + block * BLOCK, BLOCK, rank) + 1
    }
}

/// Counts the ones in bits `from..to`.
fn ones(words: &[u64], from: u64, to: u64) -> u64 {
    let word = |at: u64| {
        let cut_low = u64::MAX << from.saturating_sub(at * 64).min(63);
        let cut_high = bits::mask((to - at * 64).min(64) as u32);
        u64::from((words[at as usize] & cut_low & cut_high).count_ones())
    };
    (from / 64..to.div_ceil(64)).map(word).sum()
}
