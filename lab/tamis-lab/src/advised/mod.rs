//! Whether the advisor is right: ten workloads, every candidate measured, and where the advised one stands.
//!
//! A step is one workload. Every candidate (a filter over a tree) is loaded with the same keys in the same order and asked the
//! same operations in rounds that go round all candidates; every answer is checked. The advisor sees neither times nor counters
//! of these databases: it has the unit costs that [`Calibration`](tamis_advisor::Calibration) measures, the number and sizes of the entries, the
//! declared workload and the memory of ten bits a key. The first of its ranking among the candidates is what it advises.
//!
//! Trees grow between rounds, so that each round has another moment of a tree between two large merges: the mean is what the
//! model gives.
//!
//! An operation's time is that of the thread that asks, the stalls that flushes and merges cause included, and the part of a
//! core that what is left to merge at the end takes; keys are made before. Values are of 100 bytes, keys of 8.

mod plan;
mod view;
mod workloads;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use tamis_bench::BenchError;

use crate::figures::{About, Custom, Figure, Needs, Paper, Plan, Row, Scale, View};

/// One candidate under one workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CandidateRow {
    /// `candidate`.
    pub kind: String,
    /// The workload's number, from 1.
    pub number: usize,
    /// The workload as text.
    pub workload: String,
    /// The filter and the tree in words.
    pub side: String,
    /// The filter.
    pub filter: String,
    /// Whether it is what the advisor ranks first among the candidates.
    pub advised: bool,
    /// Whether it is what the options are by default.
    pub usual: bool,
    /// Nanoseconds an operation by prediction.
    pub predicted_ns: f64,
    /// Nanoseconds an operation as measured, the mean of the rounds.
    pub ns: f64,
    /// The fastest round.
    pub min_ns: f64,
    /// The slowest round.
    pub max_ns: f64,
    /// Runs, the mean of the rounds.
    pub runs: f64,
    /// Bits of filters a key in memory.
    pub filter_bits_per_key: f64,
}

const ABOUT: About = About {
    name: "advise-ten",
    paper: Paper::Ours,
    place: "",
    title: "ten workloads: what the advisor says against all candidates measured",
    claim: "For each of ten different workloads the advised filter and tree are within 10 % of the best one measured.",
    differs: "",
};

/// The figures of this family.
pub fn figures() -> Vec<Box<dyn Figure>> {
    vec![Box::new(Ten)]
}

struct Ten;

impl Figure for Ten {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn needs(&self, scale: Scale) -> Needs {
        const MIB: u64 = 1 << 20;
        match scale {
            Scale::Small => Needs { seconds: 30, disk_bytes: 60 * MIB, memory_bytes: 100 * MIB },
            Scale::Default => Needs { seconds: 400, disk_bytes: 2048 * MIB, memory_bytes: 400 * MIB },
            Scale::Paper => Needs { seconds: 20_000, disk_bytes: 80_000 * MIB, memory_bytes: 4000 * MIB },
        }
    }

    fn plan<'f>(&'f self, scale: Scale, custom: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError> {
        Ok(Box::new(plan::Job::new(scale, custom)?))
    }

    fn view(&self, rows: &[Row]) -> View {
        view::view(rows)
    }
}
