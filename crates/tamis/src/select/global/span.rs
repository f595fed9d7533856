//! Key ranges, and the epochs that tables have in them.

use tamis_base::epochs::EpochMap;
use tamis_base::key::KeyBytes;
use tamis_filter::global::{Epoch, Epochs};

use crate::tree::open_table::OpenTable;

/// A key range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    pub(crate) start: KeyBytes,
    pub(crate) end: Option<KeyBytes>,
}

impl Span {
    /// Reports whether the two have keys in common.
    pub(super) fn meets(&self, other: &Span) -> bool {
        let begins_before = |a: &Span, b: &Span| b.end.as_ref().is_none_or(|end| a.start < *end);
        begins_before(self, other) && begins_before(other, self)
    }

    pub(super) fn overlaps(&self, table: &OpenTable) -> bool {
        let meta = &table.meta;
        meta.largest.reaches(&self.start) && self.end.as_ref().is_none_or(|end| meta.smallest < *end)
    }
}

/// Reports whether a table with these epochs may hold writes of the flush `epoch`.
pub(super) fn holds(epochs: &EpochMap, epoch: Epoch) -> bool {
    epochs.segments().iter().any(|s| (s.lo..s.hi).contains(&epoch))
}

/// Returns the epochs of a table in the range from `start` up to `end`.
pub(super) fn spans_within(
    epochs: &EpochMap,
    start: &[u8],
    end: Option<&[u8]>,
) -> impl Iterator<Item = Epochs> {
    let segments = epochs.segments();
    let first = segments.partition_point(|segment| &segment.start[..] <= start).saturating_sub(1);
    let last = end.map_or(segments.len(), |end| segments.partition_point(|segment| &segment.start[..] < end));
    // A key before the first segment belongs to that segment.
    let within = &segments[first..last.max(first + 1)];
    within.iter().filter(|s| s.lo < s.hi).map(|s| Epochs { lo: s.lo, hi: s.hi })
}
