//! The laboratory: the tables and figures of the papers behind tamis, measured again.
//!
//! Key sets, workloads and measurements are those of [`tamis_bench`], which the program `tamis` measures with, too. Here is
//! what they are put to: [`figures`] is what every experiment is, the other modules are the experiments.

pub mod advised;
pub mod elastic;
pub mod figures;
pub mod filters;
pub mod grf_theory;
pub mod hash_functions;
pub mod hashing;
pub mod machine;
mod medium;
pub mod model_check;
pub mod page;
pub mod ycsb;
