//! The statistics of a [tamis] database as metrics, for whoever collects them.
//!
//! | what | for |
//! | --- | --- |
//! | [`to_prometheus`] | a scraper: the text format of Prometheus |
//! | `facade::MetricsExporter` | the recorder of the crate `metrics`, with the feature of that name |
//! | [`Publisher`], [`published`] | other processes: the file `STATS` in the database's directory |
//!
//! Invariants:
//! * This stands on the public interface of `tamis`; the engine knows nothing of metrics.
//! * All of it comes from one table, which [`metrics`] lists, and `docs/metrics.md` as well: a test
//!   compares them. Metrics are pulled: nothing is counted for them alone, and one reading of the
//!   statistics serves all of them.
//! * Nothing here can fail a database: what cannot be published is logged.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

#[cfg(feature = "metrics")]
pub mod facade;
mod publish;
mod rows;
#[cfg(test)]
mod tests;
mod text;

pub use publish::{Publisher, published};
pub use rows::{MetricInfo, MetricKind, metrics};
pub use text::to_prometheus;
