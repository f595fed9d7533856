//! One digest for all filters of a get against one for each: the figures of the hash-sharing paper that need a tree
//! (Zhu, Mun, Raman, Athanassoulis: "Reducing Bloom Filter CPU Overhead in LSM-Trees on Modern Storage Devices", DaMoN
//! 2021, Figures 1, 2 and 8–14).
//!
//! # What is compared
//!
//! One database, loaded once, its files under two directories, opened with the option `hash_sharing` off and on: the
//! sides. Small pieces of one sequence of gets, about 0.3 ms each, are asked of one side and at once of the other, the
//! first one taking turns, so that whatever the machine does meanwhile happens to both. A round is the whole sequence,
//! every round the same. Figures are the sums over pieces of each piece's median round: an interruption makes one piece
//! of one round long and drops out. Least and most are the same sums with any one round left out.
//!
//! # Trees
//!
//! `tree` builds every run of a tree as the paper's shape wants it, level by level T times larger, and takes them in
//! oldest first. Compaction is off. A get goes by runs: which level the engine files a run under makes no difference to
//! it, and it files all but the oldest under level 0. Every run spans all keys by a key below and one above all others,
//! so that a get of an absent key asks as many filters as there are runs, however small the smallest run is. (Now and
//! then a key falls between two tables of the oldest run.)
//!
//! # Where the time goes
//!
//! Nothing within a get reads a clock but the file system (the emulated one has to anyway).
//!
//! * *total*: the wall clock around pieces.
//! * *data*: what the table reads of the same gets took, summed by [`EmulatedFs`](tamis_testkit::EmulatedFs).
//! * *hashing*: a pass of its own that computes exactly as many digests as the counters say over the same keys in the
//!   same order.
//! * *probing*: a pass of its own that asks as many filters of the sizes of the tree's runs for the same digests, in
//!   the way of the side: several at once with sharing, one after the other without.
//! * *rest*: the total less these. Passes of their own run with warmer caches than the get does, so what they miss is
//!   in the rest; where they took longer than the get, the rest is 0 and the row says so (`parts_exceed`).
//!
//! # The gain, and the digests' part of it
//!
//! Without sharing the engine takes its general path: it asks one filter after the other, whatever its kind; with
//! sharing all filters of a step lie side by side and their cache misses overlap. That difference is in the gain and is
//! none of hashing. The *digests' part* is the difference of the two hashing passes alone; it is what the paper calls
//! gain, and what verdicts go by.
//!
//! # The model
//!
//! `model::predicted_gain` says what the paper's Equation 8 (Equation 6 for tiering) makes of the measured times of a
//! digest, a probe and a block read. The equation knows no rest, which is most of our get on the fastest devices; so
//! the prediction with the measured rest in the cost stands beside it.
//!
//! One thread plans, loads and measures.

mod catalogue;
mod design;
mod model;
mod passes;
mod plan;
mod rows;
mod sums;
#[cfg(test)]
mod tests;
mod tree;
mod verdicts;
mod view;

use tamis_bench::BenchError;

use crate::figures::{About, Custom, Figure, Needs, Plan, Row, Scale, View};

use design::Design;
use rows::Measured;

/// The figures of this family in the paper's order.
pub fn figures() -> Vec<Box<dyn Figure>> {
    catalogue::FIGURES.iter().map(|figure| Box::new(figure) as Box<dyn Figure>).collect()
}

/// One figure.
#[derive(Debug)]
struct HashFigure {
    about: About,
    design: Design,
    /// Seconds at each scale.
    seconds: [u64; 3],
    judge: verdicts::Judge,
}

impl Figure for &'static HashFigure {
    fn about(&self) -> &About {
        &self.about
    }

    fn needs(&self, scale: Scale) -> Needs {
        let seconds = self.seconds[scale as usize];
        let bytes = self.design.most_bytes(scale);
        // Filters and indexes of two open copies; the RAM disk, if it is among the devices, holds one more.
        let memory_bytes = bytes / 10 + if self.design.devices.contains(&"ram-disk") { bytes } else { 0 };
        Needs { seconds, disk_bytes: bytes + bytes / 10, memory_bytes }
    }

    fn plan<'f>(&'f self, scale: Scale, custom: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError> {
        Ok(Box::new(plan::HashPlan::new(self.about.name, &self.design, scale, custom)?))
    }

    fn view(&self, rows: &[Row]) -> View {
        let measured = Measured::of(rows);
        View {
            panels: view::panels(&self.design, &measured),
            sheets: view::sheets(&measured),
            verdicts: (self.judge)(&measured),
        }
    }
}
