//! From the flush of a table until the filter has its keys.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use tamis_filter::{BlockedBloom, Digest, PointFilter};

use super::grf::Grf;
use super::young::{Young, YoungTable};
use crate::select::keys::for_each_key;
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

impl Grf {
    /// Returns flushed tables with a filter each. Reads their keys. Call with no lock held.
    pub(crate) fn young_of(&self, tables: &[Arc<OpenTable>]) -> Vec<YoungTable> {
        let filter = |table: &OpenTable| {
            let mut digests = Vec::with_capacity(table.meta.entries.min(1 << 20) as usize);
            for_each_key(table, &[], None, &mut |key| digests.push(Digest::of(key))).ok()?;
            let filter = BlockedBloom::build(&digests, self.spec.bits_per_key, table.meta.id).ok()?;
            Some(Arc::new(PointFilter::from(filter).into()))
        };
        tables.iter().map(|table| YoungTable::new(table, filter(table))).collect()
    }

    /// Records tables that are published next. Call under the `state` lock under which they are.
    pub(crate) fn note_young(&self, tables: Vec<YoungTable>) {
        tables.iter().for_each(|young| self.note_incomplete(young.table()));
        self.young.lock().add(tables);
    }

    /// Forgets tables that will not be published, and their epochs, under the same `state` lock.
    pub(crate) fn forget_young(&self, tables: &[Arc<OpenTable>]) {
        self.young.lock().forget(tables);
        self.forget_missing(tables);
    }

    /// Reports whether any table is young, once the filter is loaded.
    pub(crate) fn has_young(&self) -> bool {
        self.loaded.load(Relaxed) && !self.young.lock().is_empty()
    }

    /// Lets go of all young tables of a dropped keyspace.
    pub(crate) fn let_go(&self) {
        *self.young.lock() = Young::default();
    }

    /// Lets young tables wait no longer if none was added for a second, as far as calls to this
    /// function show; if `now` is `None`, at once. Reports whether this changes what is due.
    pub(crate) fn ripen(&self, now: Option<Instant>) -> bool {
        self.young.lock().ripen(now)
    }

    /// Reports whether keys are to be added that the version's tables have and the filter lacks.
    pub(super) fn is_insert_due(&self, version: &Version) -> bool {
        if self.young.lock().is_due() {
            return true;
        }
        let lacking = self.lacking(version);
        let young = self.young.lock();
        // Merged or ingested: gets search such a table for every key.
        lacking.iter().any(|table| young.filter_of(table).is_none())
    }
}
