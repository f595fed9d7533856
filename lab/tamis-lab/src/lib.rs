//! The laboratory: measures the tables and figures of the papers behind tamis again.
//!
//! Key sets, workloads and measurements come from [`tamis_bench`], which the program `tamis` uses, too. [`figures`]
//! defines what an experiment is; the other modules are the experiments.

pub mod advised;
pub mod documents;
pub mod elastic;
pub mod figures;
pub mod filters;
pub mod grf_theory;
pub mod growth;
pub mod hash_functions;
pub mod hashing;
pub mod machine;
mod medium;
pub mod model_check;
pub mod page;
pub mod samples;
pub mod ycsb;
