//! Filters whose memory follows the heat against fixed ones: the figures of the ElasticBF paper as commands.
//!
//! Every side is a filter with the same memory: `--bits` a key for fixed filters, as many bytes as a budget for elastic ones.
//! All have the same tree ([`database`]), and every point of a figure begins on a fresh copy with cold heat. Then come
//! unmeasured gets, unless the experiment says otherwise, and rounds that go round the sides in turns, so that a slow minute of
//! the machine slows all of them. Times are medians of the rounds with the fastest and the slowest, counters are means.
//!
//! * [`pattern`]: which keys are asked for.
//! * [`side`]: a filter by its name.
//! * [`database`]: loading, reuse and copies.
//! * [`catalogue`]: the experiments, their defaults, and what the paper saw.
//! * `plan`: an experiment with everything decided, and what is refused.
//! * `rounds`, `shift`, `skew`: what is measured.
//! * [`outcome`]: rows, tables, comma-separated text.
//!
//! A *read in vain* is a run whose data a get searched without finding its key: the run's filter let the key through, or had
//! no unit in memory. It is counted as runs searched less gets that found their value, which is exact where nothing is
//! written; in mixes some values come from a memtable, so there it is left out, and `false positives` are what the engine
//! counts.

pub mod catalogue;
pub mod database;
pub mod outcome;
pub mod pattern;
mod plan;
mod rounds;
mod shift;
pub mod side;
mod skew;

pub use catalogue::{ElasticExperiment, Kind, Vary};
pub use database::LoadRow;
pub use outcome::{ElasticOutcome, ReadRow, TableRow, WindowRow};
pub use plan::ElasticSettings;
pub use side::ElasticSide;

use crate::error::BenchError;
use crate::progress::Progress;
use plan::Job;

/// Runs an experiment. Every answer is checked; the first wrong one ends it, as does the first error.
///
/// Fails with [`BenchError::Request`] before anything is loaded if the settings do not fit the experiment.
pub fn run(
    experiment: &ElasticExperiment,
    settings: &ElasticSettings,
    progress: &dyn Progress,
) -> Result<ElasticOutcome, BenchError> {
    let job = Job::new(experiment, settings, progress)?;
    let mut outcome = ElasticOutcome::new(experiment, &job.describe());
    match experiment.kind {
        Kind::Rounds => rounds::run(&job, &mut outcome)?,
        Kind::Loads => {
            rounds::loads(&job, &mut outcome)?;
            rounds::run(&job, &mut outcome)?;
        }
        Kind::TableSkew | Kind::RegionSkew => skew::run(&job, &mut outcome)?,
        Kind::Shift => shift::run(&job, &mut outcome)?,
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests;
