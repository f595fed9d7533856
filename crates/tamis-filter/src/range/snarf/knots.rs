//! The directory: every knot in order, stored exactly, and a tree above them.
//!
//! Each level above the knots holds every sixteenth entry of the level below. A search goes from
//! the top through two neighbouring cache lines per level; for a million keys, all but the last are
//! hot. A plain binary search of the same knots would touch ten lines far apart. The tree costs a
//! fifteenth of the knots.

use crate::words::Words;

const FANOUT: u64 = 16;
/// Maximum number of levels for `2^36` knots, more than a filter can hold.
const MAX_LEVELS: usize = 9;

/// Positions of the knots and of the levels above them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Knots {
    /// First word and number of entries of each level, the knots first.
    levels: [(u64, u64); MAX_LEVELS],
    /// Levels in use, at least 1.
    depth: usize,
    /// First word after them.
    end: u64,
}

impl Knots {
    /// `count` knots from word `at` on.
    pub(super) fn new(at: u64, count: u64) -> Self {
        debug_assert!(count <= 1 << 36);
        let mut knots = Self { levels: [(at, count); MAX_LEVELS], depth: 1, end: at + count };
        let mut len = count;
        while len > FANOUT && knots.depth < MAX_LEVELS {
            len = len.div_ceil(FANOUT);
            knots.levels[knots.depth] = (knots.end, len);
            knots.depth += 1;
            knots.end += len;
        }
        knots
    }

    /// Returns the first word after the knots and their tree.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Number of knots.
    pub(super) fn count(&self) -> u64 {
        self.levels[0].1
    }

    /// Writes the levels above the knots, which are in `words` already.
    pub(super) fn fill(&self, words: &mut [u64]) {
        for pair in self.levels[..self.depth].windows(2) {
            let ((below, _), (at, len)) = (pair[0], pair[1]);
            for i in 0..len {
                words[(at + i) as usize] = words[(below + i * FANOUT) as usize];
            }
        }
    }

    /// Returns knot `at`, which must exist.
    #[inline(always)]
    pub(super) fn get<W: Words>(&self, words: &W, at: u64) -> u64 {
        words.word((self.levels[0].0 + at) as usize)
    }

    /// Returns the last knot not above `key`; the first if all are above it.
    #[inline]
    pub(super) fn locate<W: Words>(&self, words: &W, key: u64) -> u64 {
        let mut at = 0;
        for &(start, count) in self.levels[..self.depth].iter().rev() {
            // The entry found above is the first of this group: the group is not empty.
            let group = at * FANOUT;
            let len = FANOUT.min(count - group);
            // Counting all is faster than bisection: the comparisons neither wait for each other
            // nor branch.
            let entries = (0..len).map(|i| words.word((start + group + i) as usize));
            let not_above: u64 = entries.map(|entry| u64::from(entry <= key)).sum();
            at = group + not_above.saturating_sub(1);
        }
        at
    }
}
