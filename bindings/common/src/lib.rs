//! What all bindings of tamis share, so that names, defaults and error texts are the same in every language.
//!
//! * [`Code`] and [`Failure`]: every error as a stable number, a name and the engine's own text.
//! * [`Database`]: a database that can be closed while others hold its handles; they answer [`Code::Closed`] from then on.
//! * [`options`]: options by name and text.
//! * [`json`]: statistics, explanations and reports as JSON.
//!
//! Merge operators need nothing here: the engine has `add` (what `increment` stores: eight bytes, little-endian), `append` and
//! `max` built in, so every language can read what another one merged.
//!
//! `../conformance` says, as data, how all languages behave; this crate's test `conformance` runs it over the Rust interface.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod code;
mod database;
mod failure;
pub mod json;
pub mod options;
mod path;

pub use code::Code;
pub use database::Database;
pub use failure::Failure;
pub use path::absolute;
pub use tamis_metrics::Publisher;
