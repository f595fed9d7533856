//! The way of a read: digest, memtables, selector, tables, block, value.

mod chain;
mod counters;
pub(crate) mod explain;
mod get;
mod iter;
pub(crate) mod merge;
mod multi;
pub(crate) mod run_cursor;
mod sample;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use counters::{AllReads, Counted, ReadCounters};
pub use explain::{ExplainBlock, ExplainOutcome, ExplainStep, ExplainUnits, Explanation, FilterAnswer};
pub(crate) use get::{Lookup, Recorder, get};
pub use iter::Iter;
pub(crate) use iter::{Bounds, IterContext};
pub(crate) use multi::multi_get;
pub(crate) use view::{MemtableSlot, Memtables, View};
