//! Recent reads of a keyspace, to guess what the next ones will be like.
//!
//! A few relaxed numbers shared by all readers. A lost update or a stale number makes a read
//! slower, never wrong.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The fixed-point unit: 1.0.
const ONE: u32 = 1 << 8;

/// The most blocks that one scan counts for: an export does not foretell the next scans.
const MOST_BLOCKS: u32 = 64;

/// Chances below this are worth a second read at the same time.
const SURE: u32 = ONE * 3 / 4;

/// One in this many scans asks a filter that scans otherwise skip.
const ASKS_ONE_IN: u32 = 16;

/// Whether a scan has a bound in its direction. A bounded scan may end before the keys of many
/// runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounded(pub(crate) bool);

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct ReadHabits {
    /// Blocks that a scan needed beyond its seek, in units of `1 / ONE`.
    blocks: AtomicU32,
    /// How often a get with several candidates found its answer in the first, in `1 / ONE` units.
    first_answers: AtomicU32,
    /// How often scans that asked a global filter still needed most runs, in units of `1 / ONE`.
    /// The second is for bounded scans.
    needed_most: [AtomicU32; 2],
    /// The number of scans that might have skipped the filter.
    might_ask: AtomicU32,
}

impl ReadHabits {
    /// Learns how many blocks a scan needed beyond its seek. Rises faster than it falls, since a
    /// block read in vain costs less than a wait for one. For scans of even lengths up to some
    /// maximum, it settles at two thirds of that.
    pub(crate) fn scanned(&self, blocks: usize) {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX).min(MOST_BLOCKS) * ONE;
        let known = self.blocks.load(Relaxed);
        let learned = match blocks >= known {
            true => known + (blocks - known) / 4,
            false => known - (known - blocks).div_ceil(16),
        };
        if learned != known {
            self.blocks.store(learned, Relaxed);
        }
    }

    /// Returns the number of blocks that the next scan will probably need beyond its seek.
    pub(crate) fn blocks_per_scan(&self) -> usize {
        ((self.blocks.load(Relaxed) + ONE / 2) / ONE) as usize
    }

    /// Reports whether the next scan should ask the global filter.
    pub(crate) fn asks_filter(&self, Bounded(bounded): Bounded) -> bool {
        self.needed_most[usize::from(bounded)].load(Relaxed) < SURE
            || self.might_ask.fetch_add(1, Relaxed).is_multiple_of(ASKS_ONE_IN)
    }

    /// Learns whether a scan that asked the global filter still needed most runs.
    pub(crate) fn asked_filter(&self, Bounded(bounded): Bounded, needed_most: bool) {
        let number = &self.needed_most[usize::from(bounded)];
        let known = number.load(Relaxed);
        let learned = match needed_most {
            true => known + (ONE - known.min(ONE)).div_ceil(8),
            false => known - known.div_ceil(4),
        };
        if learned != known {
            number.store(learned, Relaxed);
        }
    }

    /// Learns whether a get with several candidates found its answer in the first.
    pub(crate) fn got(&self, first_answered: bool) {
        let known = self.first_answers.load(Relaxed);
        let learned = match first_answered {
            true => known + (ONE - known.min(ONE)).div_ceil(16),
            false => known - known.div_ceil(16),
        };
        if learned != known {
            self.first_answers.store(learned, Relaxed);
        }
    }

    /// Reports whether the first of several candidates is so unlikely to have the answer that the
    /// second should be read with it.
    pub(crate) fn reads_candidates_together(&self) -> bool {
        self.first_answers.load(Relaxed) < SURE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_of_one_length_are_expected_again_and_rare_long_ones_are_forgotten() {
        let habits = ReadHabits::default();
        assert_eq!(habits.blocks_per_scan(), 0);
        for _ in 0..20 {
            habits.scanned(7);
        }
        assert_eq!(habits.blocks_per_scan(), 7);
        habits.scanned(usize::MAX);
        for _ in 0..300 {
            habits.scanned(0);
        }
        assert_eq!(habits.blocks_per_scan(), 0);
        for n in 0..3000 {
            habits.scanned(n * 7 % 31);
        }
        assert!((17..24).contains(&habits.blocks_per_scan()), "{habits:?}");
    }

    #[test]
    fn scans_stop_asking_a_filter_that_nearly_always_lists_most_runs_but_try_again() {
        let habits = ReadHabits::default();
        let (open, bounded) = (Bounded(false), Bounded(true));
        // Returns how many of some scans ask.
        let scans = |which: Bounded, needed_most: &dyn Fn(u32) -> bool| {
            let asks = (0..160).filter(|&n| {
                let asks = habits.asks_filter(which);
                if asks {
                    habits.asked_filter(which, needed_most(n));
                }
                asks
            });
            asks.count()
        };
        assert_eq!(scans(open, &|_| false), 160);
        assert_eq!(scans(open, &|n| n % 2 == 0), 160);
        scans(open, &|_| true);
        assert_eq!(scans(open, &|_| true), 10);
        assert_eq!(scans(bounded, &|_| false), 160, "these are others");
        assert!(scans(open, &|_| false) > 100);
        assert_eq!(scans(open, &|_| false), 160);
    }

    #[test]
    fn candidates_are_read_together_until_the_first_mostly_answers() {
        let habits = ReadHabits::default();
        assert!(habits.reads_candidates_together());
        (0..100).for_each(|_| habits.got(true));
        assert!(!habits.reads_candidates_together());
        (0..100).for_each(|n| habits.got(n % 2 == 0));
        assert!(habits.reads_candidates_together());
        (0..1000).for_each(|_| habits.got(false));
        assert!(habits.reads_candidates_together());
    }
}
