//! The same data and the same reads under several filters: the figures of the GRF paper as commands, and two of our own with every
//! filter.
//!
//! Every side has a database of its own, filled equally up to just before the merge into the last level ([`load`]),
//! when a read meets the most runs. Then the sides are interleaved: a round runs one workload on all sides, then the
//! next workload, so that temporary load on the machine affects all of them. Figures are medians of the rounds, with
//! the fastest and the slowest.
//!
//! * [`catalogue`]: the experiments, their defaults, and the paper's results.
//! * [`side`]: filters by name.
//! * `job`: an experiment with all settings resolved and checked; `stand`: one side of it.
//! * [`rows`]: the measurements.
//! * [`figures`]: the experiments as [figures](crate::figures): sizes, pictures, tables, verdicts.
//!
//! All databases of one point are open at once and removed before the next: they need the number of sides times the
//! data on disk. One thread loads; reads use the experiment's number of threads.

pub mod catalogue;
pub mod figures;
mod job;
pub mod load;
mod probe_time;
pub mod rows;
pub mod side;
mod stand;

use std::fmt;

use tamis_bench::keys::Distribution;
use tamis_bench::workload::Workload;

pub use catalogue::{Axis, Experiment, Metric};
pub use rows::{LoadRow, ReadRow};
pub use side::Side;

/// The source of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// Drawn from a distribution.
    Drawn(Distribution),
    /// Names of places, from the sample included here: strings.
    Places,
}

impl KeySource {
    /// Returns every name accepted by [`str::parse`].
    pub fn names() -> Vec<&'static str> {
        Distribution::ALL.iter().map(|d| d.name()).chain(["geonames"]).collect()
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            KeySource::Drawn(from) => from.name(),
            KeySource::Places => "geonames",
        })
    }
}

impl std::str::FromStr for KeySource {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let drawn = Distribution::ALL.into_iter().find(|d| d.name() == name).map(KeySource::Drawn);
        drawn.or((name == "geonames").then_some(KeySource::Places)).ok_or_else(|| {
            format!("no key set is called `{name}`; known are {}", KeySource::names().join(", "))
        })
    }
}

/// Adjustable settings of an experiment; `None` is its own default.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of keys; limited to the size of the sample for places.
    pub keys: u64,
    /// The only source of keys.
    pub source: Option<KeySource>,
    /// Size of every value in bytes.
    pub value_bytes: usize,
    /// The sides.
    pub filters: Option<Vec<Side>>,
    /// Bits per key; several only where they vary.
    pub bits: Option<Vec<f64>>,
    /// The workloads.
    pub workloads: Option<Vec<Workload>>,
    /// Numbers of threads; several only where they vary.
    pub threads: Option<Vec<usize>>,
    /// The size ratio.
    pub size_ratio: Option<u64>,
    /// Operations per workload and round.
    pub ops: Option<u64>,
    /// Number of rounds.
    pub repeats: Option<u32>,
    /// Whether reads bypass the page cache.
    pub direct: Option<bool>,
    /// Size of the block cache in bytes.
    pub cache_bytes: Option<u64>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Options of the database by name, set last.
    pub options: Vec<(String, String)>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            keys: 200_000,
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
