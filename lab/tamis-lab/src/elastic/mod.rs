//! Filters whose memory follows hotness, compared with fixed ones: the figures of the ElasticBF paper as commands.
//!
//! Every side is a filter with the same memory, counted whole (`memory`): `--bits` per key for fixed filters, a budget
//! for elastic ones that leaves room for what they need besides. All have the same tree ([`database`]), and every point
//! of a figure begins on a fresh copy without hotness. Then come unmeasured gets until the placement of filters has
//! settled (`warmup`), unless the experiment has none, and rounds over interleaved sides, so that temporary load on the
//! machine affects all of them. Times are medians of the rounds with the fastest and the slowest, counters are means.
//!
//! * [`tamis_bench::pattern`]: the distribution of queried keys.
//! * [`side`]: filters by name.
//! * [`database`]: loading, reuse and copies.
//! * `device`: costs of reads of tables, where a device is named.
//! * [`catalogue`]: the experiments, their defaults, and the paper's results.
//! * `points`: the varied settings, and all their combinations.
//! * `plan`: an experiment with all settings resolved and checked.
//! * `rounds`, `windows`, `restart`, `skew`: the measurements.
//! * [`rows`]: their results.
//! * [`figures`]: the experiments as [figures](crate::figures): sizes, pictures, tables, verdicts.
//!
//! A *wasted read* is a run whose data a get searched without finding its key: the run's filter had a false positive,
//! or no unit in memory. Their number is runs searched less gets that found their value, which is exact if there are no
//! writes; in mixes some values come from a memtable, so there it is omitted, and `false positives` are counted by the
//! engine.

pub mod catalogue;
pub mod database;
mod device;
pub mod figures;
pub(crate) mod memory;
mod plan;
mod points;
mod restart;
mod rounds;
pub mod rows;
pub mod side;
mod skew;
mod warmup;
mod windows;

pub use catalogue::{ElasticExperiment, Kind, Vary};
pub use database::LoadRow;
pub use plan::ElasticSettings;
pub use rows::{MissingRow, ReadRow, RestartRow, ShiftRow, TableRow, WindowRow};
pub use side::ElasticSide;

#[cfg(test)]
mod tests;
