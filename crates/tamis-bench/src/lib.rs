//! Key sets, workloads, measurements and reports.
//!
//! The one harness of the project: `tamis bench` measures with it, and so does the laboratory (`lab/`), where the papers'
//! figures and the comparison with other engines are. A measurement is made of four independent things:
//!
//! * a [`KeySet`]: which keys exist, which certainly do not, and ranges that hold no key;
//! * a [`Workload`]: what is asked, in which order, by how many threads ([`run`]);
//! * a [`Measurement`]: what one run took and what its reads cost, one JSON object each;
//! * a [`report`]: the measurements as a table for people.
//!
//! Beside these, [`picture`] draws, and [`random`] is where all random numbers come from.
//!
//! Every answer of the database is checked while it is measured: a wrong one ends the run with
//! [`BenchError::WrongAnswer`]. What a check needs (keys, values, expected answers) is computed outside the
//! timed part.

pub mod bench;
mod error;
pub mod histogram;
pub mod keys;
pub mod measure;
pub mod mixgraph;
pub mod pareto;
pub mod pattern;
pub mod picture;
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
pub use value::ValueSizes;
pub use workload::Workload;

/// The version of the engine and of what measures it. Figures of different versions do not stand side by side.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
