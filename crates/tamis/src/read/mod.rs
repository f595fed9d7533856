//! The read path: digest, memtables, selector, tables, block, value.

mod blobs;
mod bounds;
mod counters;
mod covers;
pub(crate) mod explain;
#[cfg(feature = "measure")]
pub(crate) mod filters_alone;
mod gaps;
pub(crate) mod habits;
mod iter;
mod life;
mod lookup;
pub(crate) mod merge;
mod multi_get;
mod operands;
mod overlay;
pub(crate) mod pending;
mod read_at;
pub(crate) mod run_cursor;
mod sample;
pub(crate) mod start;
#[cfg(test)]
mod tests;
mod view;
mod watch;

pub(crate) use bounds::Bounds;
pub(crate) use counters::{AllReads, CountedGet, OwnReads, ReadCounters};
pub use explain::{
    ExplainBlock, ExplainOutcome, ExplainStep, ExplainUnits, Explanation, RangeExplanation, RangeSource,
};
pub(crate) use gaps::{Gaps, LastNumber, Numbering, Standpoint, Stretch, WORTH};
pub(crate) use iter::reader::IterContext;
pub use iter::{Iter, Keys};
pub(crate) use life::Life;
pub use lookup::FilterAnswer;
pub(crate) use lookup::{Lookup, Recorder};
pub(crate) use overlay::Overlay;
pub(crate) use read_at::ReadAt;
pub(crate) use view::{MemtableSlot, Memtables, View, key_range};
pub(crate) use watch::RangeRead;
