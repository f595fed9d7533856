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
use std::time::{Duration, Instant};

use tamis_filter::Filter;

use crate::idle::IdleTimer;
use crate::tree::open_table::OpenTable;

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
    pub(super) fn new(table: &Arc<OpenTable>, filter: Option<Arc<Filter>>) -> YoungTable {
        YoungTable { table: table.clone(), filter }
    }

    pub(super) fn table(&self) -> &Arc<OpenTable> {
        &self.table
    }

    pub(crate) fn without_filter(table: &Arc<OpenTable>) -> YoungTable {
        YoungTable::new(table, None)
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

    pub(super) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    pub(super) fn add(&mut self, tables: Vec<YoungTable>) {
        self.count += tables.len() as u64;
        self.tables.extend(tables);
    }

    pub(super) fn forget(&mut self, tables: &[Arc<OpenTable>]) {
        self.tables.retain(|young| !tables.iter().any(|gone| Arc::ptr_eq(gone, &young.table)));
    }

    /// Lets the tables wait no longer if none was added for a while, as far as calls to this function
    /// show; if `now` is `None`, at once. Reports whether this makes a difference.
    pub(super) fn ripen(&mut self, now: Option<Instant>) -> bool {
        let rests = now.is_none_or(|now| self.idle.has_lasted(self.count, now, IDLE));
        let ripens = rests && !self.is_ripe() && !self.is_empty();
        if ripens {
            self.ripe = self.count;
        }
        ripens
    }

    fn is_ripe(&self) -> bool {
        // Those that were added last are the last ones here.
        self.tables.len() as u64 > self.count - self.ripe
    }

    /// Reports whether the keys of the tables are to be added now.
    pub(super) fn is_due(&self) -> bool {
        self.is_ripe() || self.tables.len() >= MOST
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.tables.iter().filter_map(|young| young.filter.as_ref()).map(|filter| filter.memory_bytes()).sum()
    }
}
