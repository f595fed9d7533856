//! Views: all that a read of one keyspace sees.
//!
//! Readers reach a view through an [`arc_swap::ArcSwap`]: they take no lock, and a view stays whole as long as
//! a reader holds it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::ids::LogId;
use crate::key::{KeyBytes, KeyEnd, SeqNo};
use crate::memtable::Memtable;
use crate::select::RunSelector;
use crate::tree::tombstones::{RangeTombstone, Tombstones};
use crate::tree::version::Version;

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

/// The memtables of one keyspace.
#[derive(Clone, Debug)]
pub(crate) struct Memtables {
    /// The one that takes writes.
    pub(crate) active: Arc<MemtableSlot>,
    /// Full ones waiting to be flushed, newest first.
    pub(crate) sealed: Vec<Arc<MemtableSlot>>,
}

impl Memtables {
    /// An active one alone.
    pub(crate) fn new(active: Arc<MemtableSlot>) -> Memtables {
        Memtables { active, sealed: Vec::new() }
    }

    /// All, newest first.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<MemtableSlot>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }

    /// The active one sealed, and `fresh` in its place.
    pub(crate) fn rotated(&self, fresh: Arc<MemtableSlot>) -> Memtables {
        Memtables { active: fresh, sealed: self.iter().cloned().collect() }
    }

    /// Those that stay when the sealed ones in `gone` were flushed.
    pub(crate) fn without(&self, gone: &[Arc<MemtableSlot>]) -> Memtables {
        let stays = |slot: &&Arc<MemtableSlot>| !gone.iter().any(|gone| Arc::ptr_eq(gone, slot));
        Memtables { active: self.active.clone(), sealed: self.sealed.iter().filter(stays).cloned().collect() }
    }
}

/// All that a read of one keyspace sees: memtables, a version, and what says which of its tables may hold a key. Immutable but for
/// the active memtable, which grows; a reader ignores what is newer than the sequence number it reads at.
///
/// A reader loads the view *before* the visible sequence number. So the view holds a prefix of all writes up
/// to that number or more, and nothing it may ask for has been dropped by a later compaction.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) memtables: Memtables,
    pub(crate) version: Arc<Version>,
    /// Belongs to the version.
    pub(crate) selector: Arc<dyn RunSelector>,
}

impl View {
    /// The same tree under other memtables.
    pub(crate) fn with_memtables(&self, memtables: Memtables) -> View {
        View { memtables, version: self.version.clone(), selector: self.selector.clone() }
    }

    /// The newest range tombstone at or below `snapshot` that covers `key`; 0 if there is none.
    #[inline]
    pub(crate) fn cover(&self, key: &[u8], snapshot: SeqNo) -> SeqNo {
        let mut cover = self.version.tombstones.as_ref().map_or(0, |t| t.cover(key, snapshot));
        for slot in self.memtables.iter() {
            if let Some(t) = slot.tombstones() {
                cover = cover.max(t.1.cover(key, snapshot));
            }
        }
        cover
    }

    /// All range tombstones of the view in one search form, if there are any.
    pub(crate) fn all_tombstones(&self) -> Option<Arc<Tombstones>> {
        let in_memory: Vec<_> = self.memtables.iter().filter_map(|slot| slot.tombstones()).collect();
        if in_memory.is_empty() {
            return self.version.tombstones.clone();
        }
        let all = in_memory.iter().map(|t| &t.1).chain(self.version.tombstones.as_deref());
        Some(Arc::new(Tombstones::merge(all)))
    }
}
