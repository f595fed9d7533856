//! Whether the chosen key maps still suit the reads.
//!
//! `key_map = auto` chooses a partition's map when the partition is built, by the reads seen so
//! far; after a load, by a guess. A tree that is only read is never rebuilt for another reason. So
//! now and then the sampled reads are tried on the partitions themselves ([`Review`]). Partitions
//! that do clearly worse than another map would are stale.
//!
//! # What is compared
//! The cost of a learned map depends on keys and queries. It is measured, and compared with the
//! costs of a local and a digest map, which follow from the partition's size. The cost of any other
//! map is known, but not what a learned map would cost in its place. Such a partition is rebuilt
//! only if the shares of ranges and seeks have changed since its map was chosen, and the best of
//! all maps would do clearly better.
//!
//! # Why nothing oscillates
//! A partition is reviewed [`FEWEST_READS`] reads after its map was chosen. Each rebuild of a key
//! range for this reason doubles its wait, whichever map is chosen. Chance does not count
//! ([`is_clear`]).
//!
//! # Threads
//! Reviews run under the `state` lock, once in [`FEWEST_READS`] / 4 reads: a probe or walk for each
//! of at most 768 samples.

use std::sync::atomic::Ordering::Relaxed;

use tamis_base::key::prefix_of;
use tamis_filter::global::{MapChoice, Review};

use super::cell::CellDirectory;
use super::chosen::{Chosen, FEWEST_READS, Shares};
use super::grf::Grf;
use crate::select::queries::Queries;

/// Another map must save this part of the cost or more.
const MARGIN: f64 = 1.5;
/// Up to this many runs named in vain by all samples together may be chance.
const CHANCE: f64 = 8.0;
/// The cost of the samples in one cell, unweighted and weighted by the reads they stand for.
#[derive(Clone, Copy, Default)]
struct Sum {
    samples: Review,
    reads: Review,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.samples += other.samples;
        self.reads += other.reads;
    }

    /// Returns the costs of the samples and the reads now, and under the map to compare with.
    fn compared(&self, learned: bool) -> [(f64, f64); 2] {
        let Sum { samples, reads } = *self;
        match learned {
            false => [(samples.now, samples.least), (reads.now, reads.least)],
            true if reads.local <= reads.digest => [(samples.now, samples.local), (reads.now, reads.local)],
            true => [(samples.now, samples.digest), (reads.now, reads.digest)],
        }
    }

    /// Reports whether another map costs clearly less.
    fn is_worse(&self, learned: bool) -> bool {
        let [_, (now, other)] = self.compared(learned);
        now > MARGIN * other
    }

    /// Reports whether another map costs clearly less, by more than chance.
    fn is_clear(&self, learned: bool) -> bool {
        let [(now, other), _] = self.compared(learned);
        self.is_worse(learned) && now - other > CHANCE + 3.0 * other.sqrt()
    }
}

impl Grf {
    /// Marks the cells whose map does clearly worse for the current reads than another would. Call
    /// under the `state` lock.
    pub(super) fn review(&self, directory: &CellDirectory) {
        if self.spec.map != MapChoice::Auto {
            return;
        }
        let (rates, observed) = self.queries.rates();
        if observed < self.reviewed.load(Relaxed) + FEWEST_READS / 4 {
            return;
        }
        self.reviewed.store(observed, Relaxed);
        let shares = Shares::of(&rates);
        let waits = |chosen: &Chosen| observed < chosen.observed.saturating_add(chosen.wait);
        if directory.parts.iter().all(|(_, cell)| waits(&cell.chosen)) {
            return;
        }
        let sums = self.sums(directory);
        for learned in [false, true] {
            let is_doubtful = |at: &usize| {
                let cell = directory.cell(*at);
                let kind = cell.partition.load().as_ref().is_some_and(|part| part.is_learned() == learned);
                kind && !waits(&cell.chosen) && (learned || cell.chosen.has_moved(shares))
            };
            let doubtful: Vec<usize> = (0..sums.len()).filter(is_doubtful).collect();
            let mut all = Sum::default();
            doubtful.iter().for_each(|at| all.add(sums[*at]));
            // In a large tree each cell has few samples: only their sum shows whether they are
            // chance.
            if all.is_clear(learned) {
                let worse = doubtful.into_iter().filter(|at| sums[*at].is_worse(learned));
                worse.for_each(|at| directory.cell(at).chosen.is_unsuited.store(true, Relaxed));
            }
        }
    }

    /// Returns the cost of the samples in each cell.
    fn sums(&self, directory: &CellDirectory) -> Vec<Sum> {
        let Queries { absent, ranges, seeks, rates, .. } = self.queries.snapshot();
        let mut sums = vec![Sum::default(); directory.parts.len()];
        let mut points = vec![Vec::new(); sums.len()];
        let mut empty = vec![Vec::new(); sums.len()];
        let mut sought = vec![Vec::new(); sums.len()];
        absent.iter().for_each(|key| points[directory.find(key, prefix_of(key))].push(&key[..]));
        seeks.iter().for_each(|key| sought[directory.find(key, prefix_of(key))].push(&key[..]));
        for range in &ranges {
            // Reads of what a range finds are not in vain, and a range without an end has no
            // length.
            if let Some(end) = range.end.as_deref().filter(|_| range.empty) {
                let start = &range.start[..];
                let at = directory.find(start, prefix_of(start));
                let end = directory.end(at).map_or(end, |border| end.min(border));
                empty[at].push((start, end));
            }
        }
        let weight = |reads: f64, samples: usize| reads / rates.reads() / samples.max(1) as f64;
        let by_point = weight(rates.absent_gets, absent.len());
        let by_seek = weight(rates.seeks, seeks.len());
        let by_range = weight(rates.empty_ranges, empty.iter().map(Vec::len).sum());
        let review = |at: usize, of: &dyn Fn(&tamis_filter::global::Partition) -> Review| {
            directory.cell(at).partition.load().as_ref().map(|partition| of(partition)).unwrap_or_default()
        };
        let of_points: Vec<Review> = (0..sums.len())
            .map(|at| review(at, &|part| part.review_points(points[at].iter().copied())))
            .collect();
        // Keys put since are named rightly. How often gets searched in vain is known.
        let named = of_points.iter().map(|review| review.now).sum::<f64>() / absent.len().max(1) as f64;
        let searched = rates.false_positives / rates.absent_gets.max(f64::MIN_POSITIVE);
        let in_vain = if named > searched { searched / named } else { 1.0 };
        for (at, sum) in sums.iter_mut().enumerate() {
            let now = of_points[at].now * in_vain;
            let points = Review { now, ..of_points[at] };
            let ranges = review(at, &|part| part.review_ranges(empty[at].iter().copied()));
            let seeks = review(at, &|part| part.review_seeks(sought[at].iter().copied()));
            sum.add(Sum { samples: seeks, reads: seeks * by_seek });
            sum.add(Sum { samples: points, reads: points * by_point });
            sum.add(Sum { samples: ranges, reads: ranges * by_range });
        }
        sums
    }
}
