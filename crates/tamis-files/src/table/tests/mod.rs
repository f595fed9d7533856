//! Tests of whole tables: against a model, under damage, and against a stored file.

mod damage;
mod fixture;
mod model;
mod reading;
pub(crate) mod support;
mod units;
