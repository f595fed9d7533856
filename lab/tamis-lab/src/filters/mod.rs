//! The same load and the same reads under several filters, side by side: the figures of the GRF paper as commands.
//!
//! Every side has a database of its own, filled alike up to just before the merge into the last level
//! ([`load`]), when a read meets the most runs. Then the reads go round the databases in turns: a round asks one
//! workload of all sides, then the next, so that a slow minute of the machine slows all of them. Figures are medians of
//! the rounds, with the fastest and the slowest.
//!
//! * [`catalogue`]: the experiments, their defaults, and what the paper saw.
//! * [`side`]: a filter by its name.
//! * `job`: an experiment with everything decided, and what is refused; `stand`: one side of it.
//! * [`rows`]: what is measured.
//! * [`figures`]: the experiments as [figures](crate::figures): sizes, pictures, tables, verdicts.
//!
//! Databases of one point of a sweep are open at once and removed before the next: their disk space is the number of
//! sides times the data. One thread loads; reads have as many threads as an experiment says.

pub mod catalogue;
pub mod figures;
mod job;
pub mod load;
mod probe_time;
pub mod rows;
pub mod side;
mod stand;

use tamis_bench::keys::Distribution;
use tamis_bench::workload::Workload;

pub use catalogue::{Axis, Experiment, Metric};
pub use rows::{LoadRow, ReadRow};
pub use side::Side;

/// Where keys come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// Drawn from a distribution.
    Drawn(Distribution),
    /// Names of places, the sample that ships: strings.
    Places,
}

impl KeySource {
    /// Every name that [`str::parse`] takes.
    pub fn names() -> Vec<&'static str> {
        Distribution::ALL.iter().map(|d| d.name()).chain(["geonames"]).collect()
    }
}

impl std::str::FromStr for KeySource {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let drawn = Distribution::ALL.into_iter().find(|d| d.name() == name).map(KeySource::Drawn);
        drawn.or((name == "geonames").then_some(KeySource::Places)).ok_or_else(|| {
            format!("no key set is called `{name}`; there are {}", KeySource::names().join(", "))
        })
    }
}

/// What may be chosen about an experiment; `None` is its own default.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Keys that exist; of places at most as many as there are.
    pub keys: u64,
    /// Where they come from.
    pub source: Option<KeySource>,
    /// Bytes of every value.
    pub value_bytes: usize,
    /// The sides.
    pub filters: Option<Vec<Side>>,
    /// Bits a key; several only where they are what varies.
    pub bits: Option<Vec<f64>>,
    /// The workloads.
    pub workloads: Option<Vec<Workload>>,
    /// Threads; several only where they are what varies.
    pub threads: Option<Vec<usize>>,
    /// The size ratio.
    pub size_ratio: Option<u64>,
    /// Operations a workload and round.
    pub ops: Option<u64>,
    /// Rounds.
    pub repeats: Option<u32>,
    /// Read past the page cache, or through it.
    pub direct: Option<bool>,
    /// Bytes of the block cache.
    pub cache_bytes: Option<u64>,
    /// Drives every random choice.
    pub seed: u64,
    /// Options of the database by name, set last.
    pub options: Vec<(String, String)>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            keys: 400_000,
            source: None,
            value_bytes: 256,
            filters: None,
            bits: None,
            workloads: None,
            threads: None,
            size_ratio: None,
            ops: None,
            repeats: None,
            direct: None,
            cache_bytes: None,
            seed: 1,
            options: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
