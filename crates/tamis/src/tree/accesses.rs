//! How often sampled gets asked a table, and how often the table held the key: the basis for
//! dividing filter memory with `filter_allocation = mnemosyne`.
//!
//! Counts are halved once per *era*, a fixed number of sampled gets of the keyspace, so that they
//! follow recent reads. They are brought up to date when used: an era in which a table is not asked
//! costs nothing.
//!
//! Readers on any thread count, each with one atomic operation. The counts guard nothing else, so
//! all operations are relaxed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Fractional bits of a count: new tables inherit fractions.
const FRACTION_BITS: u32 = 8;

/// Bits of a count; the bits above them hold the era in which it was last changed.
const COUNT_BITS: u32 = 40;

const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const ERA_MASK: u64 = (1 << (64 - COUNT_BITS)) - 1;

/// A count that halves with each era.
#[derive(Debug, Default)]
struct Decaying(AtomicU64);

impl Decaying {
    fn now(word: u64, era: u64) -> u64 {
        let passed = era.wrapping_sub(word >> COUNT_BITS) & ERA_MASK;
        // A reader that was interrupted may arrive with the previous era.
        if passed > ERA_MASK / 2 { word & COUNT_MASK } else { (word & COUNT_MASK) >> passed.min(63) }
    }

    fn word(count: u64, era: u64) -> u64 {
        (era & ERA_MASK) << COUNT_BITS | count.min(COUNT_MASK)
    }

    fn add_one(&self, era: u64) {
        let add = |word| Some(Self::word(Self::now(word, era) + (1 << FRACTION_BITS), era));
        let _ = self.0.fetch_update(Relaxed, Relaxed, add);
    }

    fn get(&self, era: u64) -> f64 {
        Self::now(self.0.load(Relaxed), era) as f64 / f64::from(1 << FRACTION_BITS)
    }

    fn set(&self, era: u64, count: f64) {
        // The cast saturates.
        let count = (count * f64::from(1 << FRACTION_BITS)).round() as u64;
        self.0.store(Self::word(count, era), Relaxed);
    }
}

/// Sampled gets that had to ask a table for their key.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct AskedTimes {
    /// Those whose key the table did not hold.
    pub(crate) misses: f64,
    /// Those whose key it held.
    pub(crate) held: f64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Accesses {
    misses: Decaying,
    held: Decaying,
}

impl Accesses {
    /// Counts a sampled get that had to ask the table.
    pub(crate) fn count(&self, era: u64, held: bool) {
        if held { self.held.add_one(era) } else { self.misses.add_one(era) }
    }

    /// Returns the counts as of an era.
    pub(crate) fn get(&self, era: u64) -> AskedTimes {
        AskedTimes { misses: self.misses.get(era), held: self.held.get(era) }
    }

    /// Gives a new table the counts that it inherits, before it has readers.
    pub(crate) fn inherit(&self, era: u64, asked: AskedTimes) {
        self.misses.set(era, asked.misses);
        self.held.set(era, asked.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_halve_with_each_era() {
        let accesses = Accesses::default();
        for _ in 0..12 {
            accesses.count(5, false);
        }
        accesses.count(5, true);
        assert_eq!(accesses.get(5), AskedTimes { misses: 12.0, held: 1.0 });
        assert_eq!(accesses.get(7), AskedTimes { misses: 3.0, held: 0.25 });
        accesses.count(7, false);
        assert_eq!(accesses.get(7), AskedTimes { misses: 4.0, held: 0.25 });
        assert_eq!(accesses.get(8).misses, 2.0);
        assert_eq!(accesses.get(1 << 20), AskedTimes::default());
    }

    #[test]
    fn a_late_reader_counts_in_the_newer_era_without_halving() {
        let accesses = Accesses::default();
        accesses.inherit(9, AskedTimes { misses: 8.5, held: 2.0 });
        accesses.count(8, false);
        assert_eq!(accesses.get(8).misses, 9.5);
        // The era may exceed the bits stored of it.
        let wrapped = Accesses::default();
        wrapped.inherit(ERA_MASK, AskedTimes { misses: 8.0, held: 0.0 });
        assert_eq!(wrapped.get(ERA_MASK + 2).misses, 2.0);
    }

    #[test]
    fn full_counts_stay_full() {
        let accesses = Accesses::default();
        accesses.inherit(0, AskedTimes { misses: f64::INFINITY, held: f64::NAN });
        accesses.count(0, false);
        let most = accesses.get(0).misses;
        assert!(most > 4e9, "{most}");
        assert_eq!((accesses.get(0).held, accesses.get(1).misses < most), (0.0, true));
    }
}
