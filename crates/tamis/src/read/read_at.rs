//! The point at which a read happens. Gets, multi-gets, iterations and explanations all start from
//! one.
//!
//! # Invariant: a read sees a prefix of all writes that includes everything acknowledged before it began
//!
//! A [`ReadAt`] is made by loading the view first, then the horizon, then the visible sequence
//! number. So nothing that the read needs at that number has been dropped by a compaction. If the
//! view is replaced between the loads, it lacks only writes made after that, which form a suffix;
//! it is loaded again if the horizon hides anything. What has expired by the horizon has also
//! expired for every read at a later number (see [`expiry`](crate::db::expiry)). A read at a
//! snapshot uses the snapshot's number and horizon.
//!
//! A read point belongs to one read of one thread. While it lives, no memtable and no table of its
//! view is freed.

use std::any::Any;
use std::sync::Arc;

use arc_swap::Guard;
use tamis_base::key::SeqNo;

use crate::error::ReadError;
use crate::operators::MergeOperator;
use crate::read::lookup::{KeyLookup, Lookup, Recorder};
use crate::read::{Bounds, Iter, IterContext, ReadCounters, View};
use crate::slice::Slice;

/// What a read sees, and how it merges operands. See the module documentation.
#[derive(Debug)]
pub(crate) struct ReadAt<'k> {
    pub(crate) view: Guard<Arc<View>>,
    /// The newest visible sequence number.
    pub(crate) seq: SeqNo,
    /// The oldest visible sequence number: anything below has expired, as if a range tombstone of
    /// this number covered all keys.
    pub(crate) horizon: SeqNo,
    /// The keyspace's merge operator.
    pub(crate) operator: Option<&'k Arc<dyn MergeOperator>>,
    /// See [`sharing`](Self::sharing).
    pub(crate) sharing: bool,
}

impl ReadAt<'_> {
    /// Reports whether one digest serves all filters of a key: always, except in builds that
    /// measure what it saves.
    #[inline]
    pub(super) fn sharing(&self) -> bool {
        !cfg!(feature = "measure") || self.sharing
    }

    /// Returns the newest visible range tombstone over `key`, or the horizon if that is newer:
    /// older versions are deleted. 0: none.
    #[inline]
    pub(super) fn cover(&self, key: &[u8]) -> SeqNo {
        self.view.cover(key, self.seq).max(self.horizon)
    }

    #[inline]
    pub(super) fn operator(&self) -> Option<&dyn MergeOperator> {
        self.operator.map(|operator| &**operator)
    }

    /// Looks up `key`. Allocates nothing unless more than eight runs of one step hold candidates,
    /// or operands must be merged.
    pub(crate) fn get<R: Recorder>(&self, key: &[u8], recorder: &mut R) -> Result<Lookup, ReadError> {
        recorder.cost().gets += 1;
        let mut lookup = KeyLookup::new(self, key, recorder);
        if let Some(answer) = lookup.search_memtables(self, recorder)? {
            return Ok(answer);
        }
        let answer = lookup.search_runs(self, recorder);
        lookup.report(self);
        match answer {
            Ok(separated @ Lookup::Separated { .. }) => self.read_separated(separated, recorder),
            answer => answer,
        }
    }

    /// Reads the value of a result, if it is in a blob file.
    #[cold]
    pub(super) fn read_separated<R: Recorder>(
        &self,
        found: Lookup,
        recorder: &mut R,
    ) -> Result<Lookup, ReadError> {
        let Lookup::Separated { seq, table, reference } = found else { return Ok(found) };
        let value = self.view.version.tables[table].read_blob(&reference, true, recorder)?;
        Ok(Lookup::Found { seq, value: Slice::from_block(value) })
    }

    /// Iterates over everything visible within `bounds`, in order. Adds the cost to `counters`;
    /// keeps `pin` as long as the iterator.
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
