//! Flushed tables whose keys the filter does not have yet.
//!
//! A flush whose keys come from all over the key space copies the whole filter, however few they
//! are. So a background thread adds the keys of several flushes at once, in key order, and each
//! partition is copied once for all of them. Until then, a young table is asked by a filter of its
//! own, which is in memory only.
//!
//! # Threads
//! Flushes add tables, under the `state` lock; the thread that works on the filter removes them.
//! Behind one leaf lock.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tamis_filter::{BlockedBloom, Digest, Filter, PointFilter};

use super::grf::Grf;
use crate::idle::IdleTimer;
use crate::select::keys::for_each_key;
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

/// The most young tables: as many as runs make up a merge by default. Each of them costs gets a
/// probe, and seeks a run.
const MOST: usize = 4;

/// If no table was added for this long, those that there are do not wait for more.
const IDLE: Duration = Duration::from_secs(1);

/// A table that is about to be published, and its own filter: none if its keys cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct YoungTable {
    table: Arc<OpenTable>,
    filter: Option<Arc<Filter>>,
}

impl YoungTable {
    pub(crate) fn without_filter(table: &Arc<OpenTable>) -> YoungTable {
        YoungTable { table: table.clone(), filter: None }
    }
}

/// All young tables of a keyspace.
#[derive(Debug, Default)]
pub(super) struct Young {
    tables: Vec<YoungTable>,
    /// The number of tables ever added.
    count: u64,
    idle: IdleTimer<u64>,
    /// So many of all tables ever added wait for no others.
    ripe: u64,
}

impl Young {
    pub(super) fn tables(&self) -> Vec<Arc<OpenTable>> {
        self.tables.iter().map(|young| young.table.clone()).collect()
    }

    /// Returns the filter of a table.
    pub(super) fn filter_of(&self, table: &OpenTable) -> Option<&Arc<Filter>> {
        self.tables.iter().find(|young| young.table.meta.id == table.meta.id)?.filter.as_ref()
    }

    pub(super) fn forget(&mut self, tables: &[Arc<OpenTable>]) {
        self.tables.retain(|young| !tables.iter().any(|gone| Arc::ptr_eq(gone, &young.table)));
    }

    fn is_ripe(&self) -> bool {
        // Those that were added last are the last ones here.
        self.tables.len() as u64 > self.count - self.ripe
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.tables.iter().filter_map(|young| young.filter.as_ref()).map(|filter| filter.memory_bytes()).sum()
    }
}

impl Grf {
    /// Returns flushed tables with a filter each. Reads their keys. Call with no lock held.
    pub(crate) fn young_of(&self, tables: &[Arc<OpenTable>]) -> Vec<YoungTable> {
        let filter = |table: &OpenTable| {
            let mut digests = Vec::with_capacity(table.meta.entries.min(1 << 20) as usize);
            for_each_key(table, &[], None, &mut |key| digests.push(Digest::of(key))).ok()?;
            let filter = BlockedBloom::build(&digests, self.spec.bits_per_key, table.meta.id).ok()?;
            Some(Arc::new(PointFilter::from(filter).into()))
        };
        tables.iter().map(|table| YoungTable { table: table.clone(), filter: filter(table) }).collect()
    }

    /// Records tables that are published next. Call under the `state` lock under which they are.
    pub(crate) fn note_young(&self, tables: Vec<YoungTable>) {
        tables.iter().for_each(|young| self.note_incomplete(&young.table));
        let mut young = self.young.lock();
        young.count += tables.len() as u64;
        young.tables.extend(tables);
    }

    /// Forgets tables that will not be published, and their epochs, under the same `state` lock.
    pub(crate) fn forget_young(&self, tables: &[Arc<OpenTable>]) {
        self.young.lock().forget(tables);
        self.forget_missing(tables);
    }

    /// Reports whether any table is young, once the filter is loaded.
    pub(crate) fn has_young(&self) -> bool {
        self.loaded.load(Relaxed) && !self.young.lock().tables.is_empty()
    }

    /// Lets go of all young tables of a dropped keyspace.
    pub(crate) fn let_go(&self) {
        *self.young.lock() = Young::default();
    }

    /// Lets young tables wait no longer if none was added for a second, as far as calls to this
    /// function show; if `now` is `None`, at once. Reports whether this changes what is due.
    pub(crate) fn ripen(&self, now: Option<Instant>) -> bool {
        let young = &mut *self.young.lock();
        let rests = now.is_none_or(|now| young.idle.has_lasted(young.count, now, IDLE));
        let ripens = rests && !young.is_ripe() && !young.tables.is_empty();
        if ripens {
            young.ripe = young.count;
        }
        ripens
    }

    /// Reports whether keys are to be added that the version's tables have and the filter lacks.
    pub(super) fn is_insert_due(&self, version: &Version) -> bool {
        {
            let young = self.young.lock();
            if young.is_ripe() || young.tables.len() >= MOST {
                return true;
            }
        }
        let lacking = self.lacking(version);
        let young = self.young.lock();
        // Merged or ingested: gets search such a table for every key.
        lacking.iter().any(|table| young.filter_of(table).is_none())
    }
}
