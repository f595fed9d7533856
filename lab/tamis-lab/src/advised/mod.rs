//! Accuracy of the advisor: ten workloads, every candidate measured, and the rank of the advised one.
//!
//! A step is one workload. Every candidate (a filter over a tree) is loaded with the same keys in the same order and
//! serves the same operations, in rounds over all candidates; every answer is checked. The advisor sees neither times
//! nor counters of these databases: its input is the unit costs measured by
//! [`Calibration`](tamis_advisor::Calibration), the number and sizes of the entries, the declared workload and a budget
//! of ten bits per key. It advises the first candidate of its ranking.
//!
//! Trees grow between rounds, so that each round sees another moment between two large merges: the model predicts the
//! mean.
//!
//! An operation's time is that of the calling thread, including stalls caused by flushes and merges, plus the processor
//! time of the merges that remain at the end; keys are generated beforehand. Values have 100 bytes, keys have 8.

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
    /// Number of the workload, from 1.
    pub number: usize,
    /// The workload as text.
    pub workload: String,
    /// The filter and the tree as text.
    pub side: String,
    /// The filter.
    pub filter: String,
    /// Whether the advisor ranks it first among the candidates.
    pub advised: bool,
    /// Whether it is the default configuration.
    pub usual: bool,
    /// Predicted nanoseconds per operation.
    pub predicted_ns: f64,
    /// Measured nanoseconds per operation: the mean of the rounds.
    pub ns: f64,
    /// Nanoseconds per operation of the fastest round.
    pub min_ns: f64,
    /// Nanoseconds per operation of the slowest round.
    pub max_ns: f64,
    /// Number of runs: the mean of the rounds.
    pub runs: f64,
    /// Filter bits per key in memory.
    pub filter_bits_per_key: f64,
}

const ABOUT: About = About {
    name: "advise-ten",
    paper: Paper::Ours,
    place: "",
    title: "ten workloads: the advice compared with all candidates measured",
    claim: "For each of ten different workloads the advised filter and tree are within 10 % of the best one measured.",
    differs: "",
};

/// Returns the figures of this family.
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

    #[cfg(test)]
    fn trial(&self) -> crate::figures::trial::Trial {
        tests::trial()
    }
}
