//! One digest for all filters of a get against one for each: the figures of the hash-sharing paper that need a tree
//! (Zhu, Mun, Raman, Athanassoulis: "Reducing Bloom Filter CPU Overhead in LSM-Trees on Modern Storage Devices", DaMoN
//! 2021, Figures 1, 2 and 8–14).
//!
//! # Method
//!
//! One database, loaded once, with its files in two directories, is opened with the option `hash_sharing` off and on:
//! the sides. Short pieces of one sequence of gets, about 0.3 ms each, run on one side and immediately afterwards on
//! the other, alternating which is first, so that both are affected equally by other activity on the machine. A round
//! is the whole sequence; all rounds are equal. Figures are sums over pieces of each piece's median round: an
//! interruption makes one piece of one round long, and is dropped. Minimum and maximum are the same sums with any one
//! round left out.
//!
//! # Trees
//!
//! `tree` builds every run of a tree in the paper's shape, each level T times as large as the one above, and ingests
//! them oldest first. Compaction is off. A get proceeds by runs: the level of a run makes no difference to it, and the
//! engine files all but the oldest under level 0. Every run spans all keys, with one key below and one above all
//! others, so that a get of an absent key queries one filter per run, however small the smallest run is. (Occasionally
//! a key falls between two tables of the oldest run.)
//!
//! # Parts of the time
//!
//! Nothing within a get reads a clock except the file system (the emulated one has to anyway).
//!
//! * *total*: the wall clock around pieces.
//! * *data*: the time of the table reads of the same gets, summed by [`EmulatedFs`](tamis_testkit::EmulatedFs).
//! * *hashing*: a separate pass that computes exactly the counted number of digests of the same keys in the same order.
//! * *probing*: a separate pass that queries the counted number of filters, with the sizes of the tree's runs, for the
//!   same digests and in the way of the side: several at once with sharing, one after the other without.
//! * *rest*: the total less these. Separate passes run with warmer caches than the get, so their missing cache misses
//!   are part of the rest; where they took longer than the get, the rest is 0 and the row says so (`parts_exceed`).
//!
//! # The gain, and the digests' part of it
//!
//! Without sharing the engine takes its general path: it queries one filter after the other, whatever their kind; with
//! sharing all filters of a step are queried together and their cache misses overlap. That difference contributes to
//! the gain but has nothing to do with hashing. The *digests' part* is the difference of the two hashing passes alone;
//! it corresponds to the paper's gain, and verdicts are based on it.
//!
//! # The model
//!
//! `model::predicted_gain` evaluates the paper's Equation 8 (Equation 6 for tiering) with the measured times of a
//! digest, a probe and a block read. The equation has no rest, which is most of our get on the fastest devices; so a
//! prediction that includes the measured rest in the cost is given as well.
//!
//! One thread plans, loads and measures.

mod catalogue;
mod design;
mod model;
mod passes;
mod plan;
pub(crate) mod replay;
mod rows;
mod sums;
#[cfg(test)]
mod tests;
mod tree;
#[cfg(test)]
mod trial;
mod verdicts;
mod view;

use tamis_bench::BenchError;

use crate::figures::{About, Custom, Figure, Needs, Plan, Row, Scale, View};

use design::Design;
use rows::Measured;

/// Returns the figures of this family in the paper's order.
pub fn figures() -> Vec<Box<dyn Figure>> {
    catalogue::FIGURES.iter().map(|figure| Box::new(figure) as Box<dyn Figure>).collect()
}

/// One figure.
#[derive(Debug)]
struct HashFigure {
    about: About,
    design: Design,
    /// Duration at each scale in seconds.
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
        // Filters and indexes of two open copies; the RAM disk, if among the devices, holds another copy.
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

    #[cfg(test)]
    fn trial(&self) -> crate::figures::trial::Trial {
        trial::of(self)
    }
}
