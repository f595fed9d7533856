//! Versions: immutable shapes of one keyspace's tree on disk, and views, which add the memtables.
//!
//! A version keeps what the read path needs of its tables side by side in flat arrays, so that a read of many
//! runs does not chase a pointer per run. Tables are numbered `0..tables.len()` within a version; run `r` owns
//! a contiguous stretch of them.
//!
//! # Invariants
//!
//! * Runs are listed newest first: of two versions of one key, the newer is in an earlier run. Within a level
//!   runs are ordered by descending id; levels follow from 0 downwards.
//! * Tables of one run are sorted and disjoint by user key; all versions of a key in a run are in one table.
//!
//! Readers reach a view through an [`arc_swap::ArcSwap`]: they take no lock, and a view stays whole as long as
//! a reader holds it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::key::KeyEnd;
use crate::key::{KeyBytes, SeqNo, prefix_of};
use crate::memtable::Memtable;
use crate::select::RunSelector;
use crate::tree::meta::{LogId, RunId, TableId};
use crate::tree::open_table::OpenTable;
use crate::tree::state::KeyspaceState;
use crate::tree::tombstones::{RangeTombstone, Tombstones};

/// One sorted run of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) level: usize,
    pub(crate) id: RunId,
    /// Its tables, as numbers within the version.
    pub(crate) tables: Range<usize>,
}

/// The shape of a keyspace's tree on disk at one moment.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) runs: Vec<Run>,
    pub(crate) tables: Vec<Arc<OpenTable>>,
    /// `prefix_of` the smallest and the largest key of each table (all ones where there is no end).
    smallest: Vec<u64>,
    largest: Vec<u64>,
    /// The range tombstones of all tables, if there are any.
    pub(crate) tombstones: Option<Arc<Tombstones>>,
    pub(crate) selector: Box<dyn RunSelector>,
}

impl Version {
    /// The version with the durable shape `state`, whose tables `open` gives.
    pub(crate) fn build(
        state: &KeyspaceState,
        mut open: impl FnMut(TableId) -> Arc<OpenTable>,
        selector: impl FnOnce(&[Run], &[Arc<OpenTable>]) -> Box<dyn RunSelector>,
    ) -> Arc<Version> {
        let (mut runs, mut tables) = (Vec::new(), Vec::<Arc<OpenTable>>::new());
        let mut newest_first: Vec<_> = state.runs.iter().collect();
        newest_first.sort_by_key(|((level, run), _)| (*level, std::cmp::Reverse(*run)));
        for (&(level, id), metas) in newest_first {
            let first = tables.len();
            tables.extend(metas.iter().map(|meta| open(meta.id)));
            runs.push(Run { level: level as usize, id, tables: first..tables.len() });
        }
        let with_tombstones: Vec<_> = tables.iter().filter_map(|t| t.tombstones.as_deref()).collect();
        let tombstones = (!with_tombstones.is_empty())
            .then(|| Arc::new(Tombstones::merge(with_tombstones.iter().copied())));
        Arc::new(Version {
            smallest: tables.iter().map(|t| prefix_of(&t.meta.smallest)).collect(),
            largest: tables.iter().map(|t| largest_prefix(t)).collect(),
            selector: selector(&runs, &tables),
            runs,
            tables,
            tombstones,
        })
    }

    /// The table of `run` whose key range holds `key`, whose [`prefix_of`] is `prefix`. Costs a binary search
    /// over eight-byte prefixes; keys are compared only where prefixes are equal.
    #[inline]
    pub(crate) fn table_for(&self, run: &Run, key: &[u8], prefix: u64) -> Option<usize> {
        let table =
            if run.tables.len() == 1 { run.tables.start } else { self.last_starting_by(run, key, prefix)? };
        let (low, high) = (self.smallest[table], self.largest[table]);
        if low < prefix && prefix < high {
            return Some(table);
        }
        self.tables[table].meta.covers(key).then_some(table)
    }

    /// The first of `tables` whose range reaches `key`, or their end.
    #[inline]
    pub(crate) fn first_reaching(&self, tables: &Range<usize>, key: &[u8]) -> usize {
        let prefix = prefix_of(key);
        let ends = &self.largest[tables.clone()];
        // Largest keys ascend, and so do their prefixes: only among equal ones keys are compared.
        let first = tables.start + ends.partition_point(|&end| end < prefix);
        let ties = self.largest[first..tables.end].partition_point(|&end| end == prefix);
        first + self.tables[first..first + ties].partition_point(|t| !t.meta.largest.reaches(key))
    }

    /// Whether the range of `table` starts after `key`.
    #[inline]
    pub(crate) fn starts_after(&self, table: usize, key: &[u8]) -> bool {
        let (start, prefix) = (self.smallest[table], prefix_of(key));
        start > prefix || (start == prefix && self.tables[table].meta.smallest[..] > *key)
    }

    fn last_starting_by(&self, run: &Run, key: &[u8], prefix: u64) -> Option<usize> {
        let starts = &self.smallest[run.tables.clone()];
        let below = starts.partition_point(|&s| s < prefix);
        let ties = starts[below..].iter().take_while(|&&s| s == prefix).count();
        let tables = &self.tables[run.tables.start + below..][..ties];
        let after = below + tables.partition_point(|t| t.meta.smallest[..] <= *key);
        after.checked_sub(1).map(|i| run.tables.start + i)
    }

    pub(crate) fn table_bytes(&self) -> u64 {
        self.tables.iter().map(|t| t.meta.file_bytes).sum()
    }
}

fn largest_prefix(table: &OpenTable) -> u64 {
    use crate::key::KeyEnd::*;
    match &table.meta.largest {
        Included(key) | Excluded(key) => prefix_of(key),
        Unbounded => u64::MAX,
    }
}

/// A memtable with what the write path knows of it.
#[derive(Debug)]
pub(crate) struct MemtableSlot {
    pub(crate) memtable: Arc<Memtable>,
    /// The oldest log that holds any of its writes; means nothing while it is empty. Set by the one writer
    /// before the first insert, read under the `state` lock.
    pub(crate) first_log: AtomicU64,
    /// Its range tombstones in search form, made anew when their count has grown.
    fragments: arc_swap::ArcSwapOption<(usize, Tombstones)>,
}

impl MemtableSlot {
    pub(crate) fn new(memtable: Arc<Memtable>, first_log: LogId) -> Arc<MemtableSlot> {
        Arc::new(MemtableSlot {
            memtable,
            first_log: AtomicU64::new(first_log),
            fragments: arc_swap::ArcSwapOption::empty(),
        })
    }

    /// The range tombstones in search form, or `None` if there are none. Costs one atomic load when there are
    /// none; after a new one the first reader sorts them again.
    pub(crate) fn tombstones(&self) -> Option<Arc<(usize, Tombstones)>> {
        if !self.memtable.has_range_tombstones() {
            return None;
        }
        let count = self.memtable.range_tombstone_count();
        if let Some(known) = self.fragments.load_full().filter(|known| known.0 >= count) {
            return Some(known);
        }
        let list = self.memtable.range_tombstones();
        let list: Vec<RangeTombstone> = list
            .into_iter()
            .map(|(start, end, seq)| match end {
                KeyEnd::Excluded(end) => RangeTombstone { start, end: Some(end), seq },
                KeyEnd::Included(end) => RangeTombstone { start, end: Some(after(&end)), seq },
                KeyEnd::Unbounded => RangeTombstone { start, end: None, seq },
            })
            .collect();
        let made = Arc::new((list.len(), Tombstones::fragment(list)));
        self.fragments.store(Some(made.clone()));
        Some(made)
    }
}

/// The first key after `key`.
fn after(key: &[u8]) -> KeyBytes {
    [key, &[0]].concat().into()
}

/// All that a read of one keyspace sees: memtables and a version. Immutable but for the active memtable,
/// which grows; a reader ignores what is newer than the sequence number it reads at.
///
/// A reader loads the view *before* the visible sequence number. So the view holds a prefix of all writes up
/// to that number or more, and nothing it may ask for has been dropped by a later compaction.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) active: Arc<MemtableSlot>,
    /// Full memtables waiting to be flushed, newest first.
    pub(crate) sealed: Vec<Arc<MemtableSlot>>,
    pub(crate) version: Arc<Version>,
}

impl View {
    /// The memtables, newest first.
    #[inline]
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<MemtableSlot>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }

    /// The newest range tombstone at or below `snapshot` that covers `key`; 0 if there is none.
    #[inline]
    pub(crate) fn cover(&self, key: &[u8], snapshot: SeqNo) -> SeqNo {
        let mut cover = self.version.tombstones.as_ref().map_or(0, |t| t.cover(key, snapshot));
        for slot in self.memtables() {
            if let Some(t) = slot.tombstones() {
                cover = cover.max(t.1.cover(key, snapshot));
            }
        }
        cover
    }

    /// All range tombstones of the view in one search form, if there are any.
    pub(crate) fn all_tombstones(&self) -> Option<Arc<Tombstones>> {
        let in_memory: Vec<_> = self.memtables().filter_map(|slot| slot.tombstones()).collect();
        if in_memory.is_empty() {
            return self.version.tombstones.clone();
        }
        let all = in_memory.iter().map(|t| &t.1).chain(self.version.tombstones.as_deref());
        Some(Arc::new(Tombstones::merge(all)))
    }
}
