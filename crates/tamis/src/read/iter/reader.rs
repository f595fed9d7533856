//! What both ends of an iteration read with.

use std::sync::Arc;

use tamis_base::key::SeqNo;

use crate::observe::cost::ReadCost;
use crate::operators::MergeOperator;
use crate::read::blobs::BlobScan;
use crate::read::covers::Covers;
use crate::read::gaps::{Gaps, Jump, Standpoint};
use crate::read::{ReadCounters, View};
use crate::slice::Slice;

#[derive(Debug)]
pub(super) struct Reader {
    pub(super) context: IterContext,
    /// The range tombstones, if any.
    pub(super) covers: Option<Box<Covers>>,
    pub(super) blobs: BlobScan,
    pub(super) cost: ReadCost,
    /// Whether the iterator uses and learns gaps.
    pub(super) knows_gaps: bool,
    /// Whether to return keys only: no value is read or merged.
    pub(super) keys_only: bool,
    /// The last item that was made, since the cursor does not stand on it as it is.
    made: Option<Box<(Slice, Slice)>>,
}

impl Reader {
    pub(super) fn new(context: IterContext) -> Reader {
        Reader {
            covers: Covers::of(&context.view, context.snapshot),
            blobs: BlobScan::default(),
            cost: ReadCost::default(),
            knows_gaps: context.view.has_all(),
            keys_only: false,
            made: None,
            context,
        }
    }

    /// Returns the merge operator, if operands are merged.
    pub(super) fn operator(&self) -> Option<&dyn MergeOperator> {
        self.context.operator.as_deref().filter(|_| !self.keys_only)
    }

    fn standpoint(&self) -> Standpoint {
        let IterContext { view, snapshot, .. } = &self.context;
        Standpoint { seq: *snapshot, edition: view.edition, rotation: view.rotation }
    }

    /// Returns the gap that holds `key`, if it is known.
    #[inline]
    pub(super) fn gap_at(&self, key: &[u8]) -> Option<Jump> {
        let gaps = &self.context.view.gaps;
        if gaps.is_empty() || !self.knows_gaps { None } else { gaps.jump(key, self.standpoint()) }
    }

    /// Returns the gaps that the iterator adds to, if any, and where it stands.
    pub(super) fn learning(&self) -> Option<(&Gaps, Standpoint)> {
        self.knows_gaps.then(|| (&*self.context.view.gaps, self.standpoint()))
    }

    /// Keeps an item that was made.
    pub(super) fn make(&mut self, key: Slice, value: Slice) {
        **self.made.get_or_insert_default() = (key, value);
    }

    /// Takes the last item that was made.
    pub(super) fn take_made(&mut self) -> (Slice, Slice) {
        self.made.as_deref_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Lends the last item that was made.
    pub(super) fn lend_made(&self) -> (&[u8], &[u8]) {
        self.made.as_deref().map_or((&[], &[]), |(key, value)| (key, value))
    }
}

/// What an iterator keeps alive, and the counters it reports to.
#[derive(Clone, Debug)]
pub(crate) struct IterContext {
    pub(crate) view: Arc<View>,
    pub(crate) snapshot: SeqNo,
    /// Anything older has expired.
    pub(crate) horizon: SeqNo,
    pub(crate) counters: Arc<ReadCounters>,
    /// Merges operands.
    pub(crate) operator: Option<Arc<dyn MergeOperator>>,
    /// Whether the keyspace was dropped before the iterator was created.
    pub(crate) dropped: bool,
    /// The registered snapshot that the iterator reads from, if any. It must outlive the iterator.
    pub(crate) _pin: Option<Arc<dyn std::any::Any + Send + Sync>>,
}
