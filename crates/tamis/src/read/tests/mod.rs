//! Reads under a global filter.

mod costs;
mod model;
mod points;
mod scripts;
mod truth;
