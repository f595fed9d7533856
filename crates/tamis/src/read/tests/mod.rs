//! Reads under a global filter, and behind range deletes.

mod costs;
mod deletes;
mod model;
mod points;
mod scripts;
mod truth;
