//! Views: everything that a read of one keyspace sees.
//!
//! Readers load a view through an [`arc_swap::ArcSwap`]. They take no lock, and a view stays intact
//! while a reader holds it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tamis_base::ids::LogId;
use tamis_base::key::{KeyBytes, KeyEnd, SeqNo};

use crate::memtable::Memtable;
use crate::read::gaps::Gaps;
use crate::read::habits::ReadHabits;
use crate::select::Selector;
use crate::tree::version::Version;

/// A memtable, and what the write path knows about it.
#[derive(Debug)]
pub(crate) struct MemtableSlot {
    pub(crate) memtable: Arc<Memtable>,
    /// The oldest log that holds any of its writes; meaningless while it is empty. Set under the
    /// log's lock before the first insertion, perhaps by several writers, but all to the same log:
    /// a log is not rolled while a write is in flight. Read under the `state` lock.
    pub(crate) first_log: AtomicU64,
    /// When its first delete was written, in seconds since 1970, if noted; otherwise `u64::MAX`.
    first_delete: AtomicU64,
}

impl MemtableSlot {
    pub(crate) fn new(memtable: Arc<Memtable>, first_log: LogId) -> Arc<MemtableSlot> {
        Arc::new(MemtableSlot {
            memtable,
            first_log: AtomicU64::new(first_log),
            first_delete: AtomicU64::new(u64::MAX),
        })
    }

    /// Notes that the latest insertion was written at `now`. Call before it becomes visible.
    #[inline]
    pub(crate) fn note_deletes(&self, now: u64) {
        if self.first_delete.load(Relaxed) > now && self.memtable.has_deletes() {
            self.first_delete.fetch_min(now, Relaxed);
        }
    }

    /// Returns when its first delete was written, if noted.
    pub(crate) fn first_delete(&self) -> Option<u64> {
        Some(self.first_delete.load(Relaxed)).filter(|&time| time != u64::MAX)
    }

    /// Returns the key range of the table it will become; `None` if it is empty.
    pub(crate) fn key_range(&self) -> Option<(KeyBytes, KeyEnd)> {
        let mut range: Option<(KeyBytes, KeyEnd)> = None;
        let mut cursor = self.memtable.cursor();
        cursor.seek_to_first();
        if cursor.valid() {
            let smallest = cursor.key().into();
            cursor.seek_to_last();
            range = Some((smallest, KeyEnd::Included(cursor.key().into())));
        }
        if let Some((start, end)) = self.memtable.range_map().hull() {
            let end = end.map_or(KeyEnd::Unbounded, KeyEnd::Excluded);
            range = Some(match range {
                None => (start, end),
                Some((smallest, largest)) => (smallest.min(start), largest.max(end)),
            });
        }
        range
    }
}

/// Returns the key range of the table that these memtables will become; `None` if they are empty.
pub(crate) fn key_range(slots: &[Arc<MemtableSlot>]) -> Option<(KeyBytes, KeyEnd)> {
    let ranges = slots.iter().filter_map(|slot| slot.key_range());
    ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// The memtables of one keyspace.
#[derive(Clone, Debug)]
pub(crate) struct Memtables {
    /// Takes the writes.
    pub(crate) active: Arc<MemtableSlot>,
    /// Full, waiting to be flushed, newest first.
    pub(crate) sealed: Vec<Arc<MemtableSlot>>,
}

impl Memtables {
    /// Returns an active memtable without sealed ones.
    pub(crate) fn new(active: Arc<MemtableSlot>) -> Memtables {
        Memtables { active, sealed: Vec::new() }
    }

    /// Iterates over all memtables, newest first.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<MemtableSlot>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }

    /// Returns these memtables with the active one sealed and `fresh` in its place.
    pub(crate) fn rotated(&self, fresh: Arc<MemtableSlot>) -> Memtables {
        Memtables { active: fresh, sealed: self.iter().cloned().collect() }
    }

    /// Returns the memtables left after the sealed ones in `gone` were flushed.
    pub(crate) fn without(&self, gone: &[Arc<MemtableSlot>]) -> Memtables {
        let stays = |slot: &&Arc<MemtableSlot>| !gone.iter().any(|gone| Arc::ptr_eq(gone, slot));
        Memtables { active: self.active.clone(), sealed: self.sealed.iter().filter(stays).cloned().collect() }
    }

    /// Reports whether the others are the same memtables.
    pub(crate) fn are(&self, others: &Memtables) -> bool {
        let same = |(one, other): (&Arc<MemtableSlot>, &Arc<MemtableSlot>)| Arc::ptr_eq(one, other);
        self.sealed.len() == others.sealed.len() && self.iter().zip(others.iter()).all(same)
    }
}

/// Everything that a read of one keyspace sees: memtables, a version, and the selector of the
/// version's candidate tables. Immutable except for the growing active memtable: a reader ignores
/// entries newer than its sequence number.
///
/// A reader loads the view *before* the visible sequence number: see [`read_at`](super::read_at).
pub(crate) struct View {
    pub(crate) memtables: Memtables,
    pub(crate) version: Arc<Version>,
    /// Belongs to the version.
    pub(crate) selector: Arc<Selector>,
    /// The same in all views of a keyspace.
    pub(crate) gaps: Arc<Gaps>,
    /// The same in all views of a keyspace.
    pub(crate) habits: Arc<ReadHabits>,
    /// How many memtables were active before the present one.
    pub(crate) rotation: u64,
    /// How many versions the tree had before the present one.
    pub(crate) edition: u64,
    /// The first version whose [cached records](crate::records) this one may use.
    pub(crate) floor: u64,
}

debug_as!(View, "View", view => "memtables": view.memtables.iter().count(), "tables": view.version.tables.len());

impl View {
    /// Returns the same tree under other memtables.
    pub(crate) fn with_memtables(&self, memtables: Memtables) -> View {
        View {
            rotation: self.rotation_of(&memtables),
            memtables,
            version: self.version.clone(),
            selector: self.selector.clone(),
            gaps: self.gaps.clone(),
            habits: self.habits.clone(),
            edition: self.edition,
            floor: self.floor,
        }
    }

    /// Returns the rotation of a view with these memtables that replaces this one. Call before the
    /// new view is published.
    pub(crate) fn rotation_of(&self, memtables: &Memtables) -> u64 {
        match Arc::ptr_eq(&self.memtables.active, &memtables.active) {
            true => self.rotation,
            false => self.gaps.rotate(),
        }
    }

    /// Reports whether the view has all writes up to a number read as visible before this call. If
    /// not, it may lack the newest ones; see [`read_at`](super::read_at).
    #[inline]
    pub(crate) fn has_all(&self) -> bool {
        self.rotation == self.gaps.rotations()
    }

    /// Returns the newest range tombstone at or below `snapshot` that covers `key`, or 0.
    #[inline]
    pub(crate) fn cover(&self, key: &[u8], snapshot: SeqNo) -> SeqNo {
        let in_memory = self.memtables.iter().map(|slot| slot.memtable.cover(key, snapshot));
        in_memory.fold(self.version.cover(key, snapshot), SeqNo::max)
    }
}
