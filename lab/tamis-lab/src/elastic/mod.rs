//! Filters whose memory follows the heat against fixed ones: the figures of the ElasticBF paper as commands.
//!
//! Every side is a filter with the same memory: `--bits` a key for fixed filters, as many bytes as a budget for elastic ones.
//! All have the same tree ([`database`]), and every point of a figure begins on a fresh copy with cold heat. Then come
//! unmeasured gets, unless the experiment says otherwise, and rounds that go round the sides in turns, so that a slow minute of
//! the machine slows all of them. Times are medians of the rounds with the fastest and the slowest, counters are means.
//!
//! * [`tamis_bench::pattern`]: which keys are asked for.
//! * [`side`]: a filter by its name.
//! * [`database`]: loading, reuse and copies.
//! * `device`: what reads of tables cost, where a device is named.
//! * [`catalogue`]: the experiments, their defaults, and what the paper saw.
//! * `points`: what varies, and every combination of it.
//! * `plan`: an experiment with everything decided, and what is refused.
//! * `rounds`, `shift`, `skew`: what is measured.
//! * [`rows`]: what is measured.
//! * [`figures`]: the experiments as [figures](crate::figures): sizes, pictures, tables, verdicts.
//!
//! A *read in vain* is a run whose data a get searched without finding its key: the run's filter let the key through, or had
//! no unit in memory. It is counted as runs searched less gets that found their value, which is exact where nothing is
//! written; in mixes some values come from a memtable, so there it is left out, and `false positives` are what the engine
//! counts.

pub mod catalogue;
pub mod database;
mod device;
pub mod figures;
mod plan;
mod points;
mod rounds;
pub mod rows;
mod shift;
pub mod side;
mod skew;

pub use catalogue::{ElasticExperiment, Kind, Vary};
pub use database::LoadRow;
pub use plan::ElasticSettings;
pub use rows::{MissingRow, ReadRow, ShiftRow, TableRow, WindowRow};
pub use side::ElasticSide;

#[cfg(test)]
mod tests;
