//! The point at which a read stands. A get, a multi-get, an iteration and an explanation all start from one.
//!
//! # Invariant: the view before the number
//!
//! Whoever makes a [`ReadAt`] loads the view first, then the horizon, then the visible sequence number. So the view holds
//! every write up to that number, and nothing the read may ask for has been dropped by a later compaction; and what has expired
//! by the horizon has expired for whoever reads at a later number, too (see [`expiry`](crate::db::expiry)). A read at a snapshot takes
//! the snapshot's number and horizon.
//!
//! A read point belongs to one read of one thread. While it lives, no memtable and no table of its view is freed.

use std::any::Any;
use std::sync::Arc;

use arc_swap::Guard;

use crate::error::ReadError;
use crate::key::SeqNo;
use crate::operators::MergeOperator;
use crate::read::lookup::{KeyLookup, Lookup, Recorder};
use crate::read::{Bounds, Iter, IterContext, ReadCounters, View};

/// What a read sees, and how it makes values of operands. See the module.
#[derive(Debug)]
pub(crate) struct ReadAt<'k> {
    pub(crate) view: Guard<Arc<View>>,
    /// The newest sequence number that is seen.
    pub(crate) seq: SeqNo,
    /// The oldest that is: what is below has expired, as if a range tombstone of this number covered all keys.
    pub(crate) horizon: SeqNo,
    /// The keyspace's merge operator.
    pub(crate) operator: Option<&'k Arc<dyn MergeOperator>>,
    /// Whether one digest serves all filters of a key.
    pub(crate) sharing: bool,
}

impl ReadAt<'_> {
    /// The newest of the range tombstones that the read sees over `key`, and of the horizon: what is older is deleted. 0: nothing.
    #[inline]
    pub(super) fn cover(&self, key: &[u8]) -> SeqNo {
        self.view.cover(key, self.seq).max(self.horizon)
    }

    #[inline]
    pub(super) fn operator(&self) -> Option<&dyn MergeOperator> {
        self.operator.map(|operator| &**operator)
    }

    /// What is seen of `key`. Allocates nothing unless more than eight runs of one step hold candidates, or operands have
    /// to be merged.
    pub(crate) fn get<R: Recorder>(&self, key: &[u8], recorder: &mut R) -> Result<Lookup, ReadError> {
        recorder.cost().gets += 1;
        let mut lookup = KeyLookup::new(self, key, recorder);
        if let Some(answer) = lookup.search_memtables(self, recorder)? {
            return Ok(answer);
        }
        let answer = lookup.search_runs(self, recorder);
        lookup.report(self);
        answer
    }

    /// All that is seen within `bounds`, in order. Costs are added to `counters`; `pin` is kept as long as the iterator.
    pub(crate) fn iter(
        self,
        bounds: Bounds,
        counters: Arc<ReadCounters>,
        pin: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Iter {
        let (snapshot, horizon, operator) = (self.seq, self.horizon, self.operator.cloned());
        let view = Guard::into_inner(self.view);
        Iter::new(IterContext { view, snapshot, horizon, counters, operator, _pin: pin }, bounds)
    }
}
