//! Reads under a global filter.

mod costs;
mod model;
mod points;
mod truth;
