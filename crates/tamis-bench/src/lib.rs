//! Key sets, workloads, measurements and reports.
//!
//! The project's only measurement harness: used by `tamis bench` and by the laboratory (`lab/`),
//! which has the papers' figures and the comparison with other engines. A measurement combines four
//! independent parts:
//!
//! * a [`KeySet`]: existing keys, keys known to be absent, and empty ranges;
//! * a [`Workload`]: the operations, their order and the number of threads ([`run`]);
//! * a [`Measurement`]: the time of one run and the cost of its reads, as one JSON object;
//! * a [`report`]: the measurements as a readable table.
//!
//! In addition, [`picture`] draws SVG, and [`random`] is the source of all random numbers.
//!
//! Every answer of the database is checked during the measurement: a wrong one ends the run with
//! [`BenchError::WrongAnswer`]. The inputs of the checks (keys, values, expected answers) are
//! computed outside the timed part.

pub mod bench;
pub mod compact;
mod error;
pub mod histogram;
pub mod keys;
pub mod measure;
pub mod mixgraph;
pub mod pareto;
pub mod pattern;
pub mod progress;
pub mod random;
pub mod report;
pub mod run;
pub mod sample;
pub mod shapes;
pub mod store;
pub mod value;
pub mod workload;
pub mod zipf;

pub use bench::{Bench, BenchConfig};
pub use error::BenchError;
pub use keys::{KeySet, KeySetError};
pub use measure::Measurement;
pub use progress::{NoProgress, Progress};
pub use tamis_show::picture;
pub use value::ValueSizes;
pub use workload::Workload;

/// The version of the engine and of this harness. Figures of different versions are not comparable.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
