//! Read points. Every get, multi-get, iteration and explanation starts from one.
//!
//! # Invariant: a read sees a prefix of all writes, including everything acknowledged before it
//!
//! Whoever makes a [`ReadAt`] (`Session::read_now`, and `Keyspace::at` for a snapshot) loads the
//! view first, then the horizon, then the visible sequence number. So no compaction has dropped
//! anything that the read needs at that number. A view replaced between the loads lacks only later
//! writes, and those form a suffix; it is loaded again if the horizon hides anything. What has
//! expired by the horizon has also expired for every read at a later number (see
//! [`expiry`](crate::session::expiry)). A read at a snapshot uses the snapshot's number and
//! horizon.
//!
//! A read point serves one read on one thread. While it lives, no memtable or table of its view is
//! freed.

use std::any::Any;
use std::sync::Arc;

use arc_swap::Guard;
use tamis_base::key::SeqNo;

use crate::operators::MergeOperator;
use crate::read::{Bounds, Iter, IterContext, ReadCounters, View};
use crate::records::KeyspaceRecords;

/// The state that a read sees, and the operator that merges its operands. See the module
/// documentation.
#[derive(Debug)]
pub(crate) struct ReadAt<'k> {
    pub(crate) view: Guard<Arc<View>>,
    /// The newest visible sequence number.
    pub(crate) seq: SeqNo,
    /// The oldest visible sequence number. Anything older has expired, as if a range tombstone with
    /// this number covered all keys.
    pub(crate) horizon: SeqNo,
    /// The keyspace's operator.
    pub(crate) operator: Option<&'k Arc<dyn MergeOperator>>,
    /// See [`sharing`](Self::sharing).
    pub(crate) sharing: bool,
    /// The record cache, if there is one.
    pub(crate) records: Option<&'k KeyspaceRecords>,
}

impl ReadAt<'_> {
    /// Reports whether all filters share one digest of a key. Always true, except in builds that
    /// measure the saving.
    #[inline]
    pub(super) fn sharing(&self) -> bool {
        !cfg!(feature = "measure") || self.sharing
    }

    /// Returns the newest visible range tombstone over `key`, or the horizon if newer. Older
    /// versions are deleted. 0: none.
    #[inline]
    pub(super) fn cover(&self, key: &[u8]) -> SeqNo {
        self.view.cover(key, self.seq).max(self.horizon)
    }

    #[inline]
    pub(super) fn operator(&self) -> Option<&dyn MergeOperator> {
        self.operator.map(|operator| &**operator)
    }

    /// Iterates in order over everything visible within `bounds`. Adds the cost to `counters` and
    /// keeps `pin` for the iterator's life.
    pub(crate) fn iter(
        self,
        bounds: Bounds,
        counters: Arc<ReadCounters>,
        pin: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Iter {
        let (snapshot, horizon, operator) = (self.seq, self.horizon, self.operator.cloned());
        let view = Guard::into_inner(self.view);
        Iter::new(
            IterContext { view, snapshot, horizon, counters, operator, dropped: false, _pin: pin },
            bounds,
        )
    }
}
