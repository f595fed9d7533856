//! What queries cost under the map that a partition has, and would cost under others.
//!
//! A map is chosen when a partition is built, by the queries of then. Whether those of now would
//! choose another is known for certain only with the keys. But what queries name in vain can be
//! counted without them, and the costs of two maps hold for any keys: a local map opens a short
//! range at the rate of its numbers, a digest map names absent keys at the rate of all and opens
//! every run.

use crate::digest::Digest;
use crate::global::{Ahead, Epochs, MapChoice};

use super::Partition;
use super::build::FINE_KEYS;
use super::choose::local_bits;

/// Runs named or opened in vain by queries that find nothing, in all.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Review {
    /// Under the map that there is.
    pub now: f64,
    /// Under a local map; under one by the digest where numbers do not tell keys apart.
    pub local: f64,
    /// Under a map by the digest.
    pub digest: f64,
    /// Under a map that tells all keys apart as well as its memory allows, and knows all ranges: no
    /// map has less.
    pub least: f64,
}

impl Partition {
    /// Returns what gets of these absent keys cost. O(blocks), and a probe for each key.
    pub fn review_points<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> Review {
        let rate = self.expected_rate();
        let mut review = Review::default();
        for key in keys {
            let mut found: Vec<Epochs> = Vec::new();
            self.probe(key, Digest::of(key), |code| found.push(code));
            found.sort_unstable();
            found.dedup();
            review.now += found.len() as f64;
            review.local += rate;
            review.digest += rate;
            review.least += rate;
        }
        review
    }

    /// Returns what these ranges cost, all of which are empty and have an end (excluded).
    /// O(blocks), and a walk for each range.
    pub fn review_ranges<'k>(&self, ranges: impl IntoIterator<Item = (&'k [u8], &'k [u8])>) -> Review {
        let (rate, keys) = (self.expected_rate(), &self.inner.map.keys);
        let runs = self.inner.book.gaps().max(1) as f64;
        let positions = FINE_KEYS as f64 / rate.max(f64::MIN_POSITIVE);
        let bits = local_bits(positions.min(u64::MAX as f64) as u64);
        let (mut review, mut ahead) = (Review::default(), Ahead::default());
        for (start, end) in ranges {
            let walks = !self.walks_in_vain(start, Some(end)) && self.ahead(start, Some(end), &mut ahead);
            review.now += if walks { (ahead.found.len() as f64).min(runs) } else { runs };
            let numbers = keys.clamped(end).saturating_sub(keys.clamped(start)).max(1);
            let is_short = !keys.is_blind() && numbers <= 1 << bits;
            review.local += if is_short { (numbers as f64 * rate).min(runs) } else { runs };
            review.digest += runs;
            review.least += rate;
        }
        review
    }

    /// Returns what seeks to these keys cost, each of which finds a key in one run. O(blocks), and
    /// a walk for each.
    pub fn review_seeks<'k>(&self, starts: impl IntoIterator<Item = &'k [u8]>) -> Review {
        let rate = self.expected_rate();
        let others = self.inner.book.gaps().saturating_sub(1) as f64;
        let (mut review, mut ahead) = (Review::default(), Ahead::default());
        for start in starts {
            let walks = !self.walks_in_vain(start, None) && self.ahead(start, None, &mut ahead);
            // Runs are opened at the numbers of their entries, and only those at the lowest before
            // anything is found.
            let lowest = ahead.found.iter().map(|(_, number)| *number).min();
            let opened = ahead.found.iter().filter(|(_, number)| Some(*number) == lowest).count();
            review.now += if walks { (opened as f64 - 1.0).clamp(0.0, others) } else { others };
            // A segment has keys of all runs, or nearly.
            review.local += others;
            review.digest += others;
            review.least += rate.min(others);
        }
        review
    }

    /// Returns whether the map follows the order of keys within segments, so that only the keys say
    /// what queries cost.
    pub fn is_learned(&self) -> bool {
        self.inner.reason.chosen == MapChoice::Learned
    }
}

impl std::ops::AddAssign for Review {
    fn add_assign(&mut self, other: Review) {
        self.now += other.now;
        self.local += other.local;
        self.digest += other.digest;
        self.least += other.least;
    }
}

impl std::ops::Mul<f64> for Review {
    type Output = Review;

    fn mul(self, by: f64) -> Review {
        let Review { now, local, digest, least } = self;
        Review { now: now * by, local: local * by, digest: digest * by, least: least * by }
    }
}
