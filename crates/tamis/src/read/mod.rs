//! The way of a read: digest, memtables, selector, tables, block, value.

mod chain;
mod cost;
pub(crate) mod explain;
mod get;
mod iter;
pub(crate) mod merge;
mod multi;
pub(crate) mod run_cursor;
mod sample;
#[cfg(test)]
mod tests;

pub use cost::ReadCost;
pub(crate) use cost::{AllReads, Counted, ReadCounters};
pub use explain::{ExplainBlock, ExplainOutcome, ExplainStep, ExplainUnits, Explanation, FilterAnswer};
pub(crate) use get::{Lookup, Recorder, get};
pub use iter::Iter;
pub(crate) use iter::{Bounds, IterContext};
pub(crate) use multi::multi_get;
