//! The newest versions of a keyspace, in memory, until a flush writes them to a table.
//!
//! A memtable is a skip list in arena memory with an optional filter in front of it and a small list of range
//! tombstones beside it. Versions are ordered by [`crate::key::compare_versions`]: user key ascending, sequence
//! number descending.
//!
//! # Invariants
//! * A version is a user key and a sequence number that no other version of the memtable has together; the
//!   caller assigns sequence numbers.
//! * Nothing is removed or moved before the memtable drops, so readers need no reclamation scheme.
//! * A key's filter bits are set before its version is linked, and counters are raised before [`MemWriter::insert`]
//!   returns: whoever learns of a sequence number after the insertion gets no false "no" for it.
//!
//! # Threads
//! One writer at a time (a mutex inside sees to it); readers take no lock and wait for nobody. A version that is
//! inserted during a read may or may not be seen, but never half: a reader decides by sequence number what it
//! shows.
//!
//! # Why a list of its own
//! A memtable removes nothing before it drops, so it can do without the reclamation that a general concurrent map
//! needs, and lay out node and key as one piece. 250 000 entries of 8-byte keys and 256-byte values, nanoseconds
//! per entry on a 2-core machine with other work on it (the best of 23 interleaved rounds, release profile; 307
//! bytes of memory per entry without the filter):
//!
//! | | insert | get, present | get, absent | iterate |
//! | --- | --: | --: | --: | --: |
//! | random keys: this list | 388 | 563 | 353 | 72 |
//! | random keys: this list with filter | 406 | 577 | (not asked) | 80 |
//! | random keys: `crossbeam-skiplist` 0.1, `(Vec<u8>, Reverse<u64>)` | 1025 | 1599 | | 158 |
//! | ascending keys: this list | 48 | 489 | | 8 |
//! | ascending keys: this list with filter | 90 | 497 | | 8 |
//! | ascending keys: `crossbeam-skiplist` 0.1 | 130 | 1282 | | 61 |
//!
//! Of that, long values in chunks of their own are worth the most (random keys: insert 440 instead of 846, get 773
//! instead of 1187 with all values behind their keys, on the same machine under more load); prefetching the next
//! lower level takes a tenth off a get. Nodes on cache-line boundaries were no faster, and larger.

mod arena;
mod cursor;
#[cfg(all(test, loom))]
mod model;
mod node;
mod skiplist;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use cursor::{MemCursor, PinnedMemValue};

use std::mem::size_of;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crossbeam_utils::CachePadded;
use tamis_filter::{AtomicBlockedBloom, Digest};

use crate::key::{Entry, KeyBytes, KeyEnd, Kind, MAX_KEY_BYTES, MAX_SEQNO, MAX_VALUE_BYTES, SeqNo};
use node::Version;
use skiplist::{ListWriter, SkipList};

/// The filter takes one part in this many of the budget.
const FILTER_SHARE: usize = 50;

/// Bits per key: the best for about 10 bits a key, which entries of about 65 bytes leave.
const FILTER_PROBES: u8 = 6;

/// Unlike the salts of tables, which are small numbers.
const FILTER_SALT: u64 = 0x6d65_6d74_6162_6c65;

/// The bytes of one filter line.
const FILTER_LINE_BYTES: usize = 64;

/// Versions and range tombstones in memory. See the module's documentation.
pub(crate) struct Memtable {
    /// What readers read. On cache lines of its own: neither the writer's counters nor the counter of the `Arc`
    /// around the memtable invalidate it.
    shared: CachePadded<Shared>,
    counters: CachePadded<Counters>,
    range_tombstones: Mutex<Vec<RangeTombstone>>,
}

struct Shared {
    list: SkipList,
    /// Made by the first insertion: a database may have thousands of keyspaces that nobody writes to, and a manifest may
    /// claim millions.
    filter: OnceLock<AtomicBlockedBloom>,
    /// How long the filter is, or is going to be; `None` if there is to be none.
    filter_lines: Option<usize>,
}

/// Raised by whoever holds the list's lock (the first three) or the tombstones' lock (the fourth).
struct Counters {
    entries: AtomicUsize,
    data_bytes: AtomicUsize,
    arena_bytes: AtomicUsize,
    range_tombstones: AtomicUsize,
    range_tombstone_bytes: AtomicUsize,
    /// `u64::MAX` while there is none.
    min_seq: AtomicU64,
    max_seq: AtomicU64,
}

/// A deletion of all keys from `start` up to `end`, for versions older than `seq`.
pub(crate) type RangeTombstone = (KeyBytes, KeyEnd, SeqNo);

impl std::fmt::Debug for Memtable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memtable").field("entries", &self.entries()).finish_non_exhaustive()
    }
}

impl Memtable {
    /// An empty memtable that is meant to be flushed at about `budget_bytes`. The budget sizes the filter (2 %)
    /// and the steps in which memory is taken (16 KiB to 2 MiB); nothing enforces it.
    pub(crate) fn new(budget_bytes: usize, with_filter: bool) -> Memtable {
        let chunk_bytes = match budget_bytes / 16 {
            sixteenth if sixteenth >= 2 << 20 => 2 << 20,
            sixteenth => sixteenth.clamp(16 << 10, 1 << 20),
        };
        let lines = (budget_bytes / FILTER_SHARE / FILTER_LINE_BYTES).max(1);
        let filter_lines = with_filter.then_some(lines);
        let list = SkipList::new(chunk_bytes);
        let arena_bytes = list.lock().used();
        Memtable {
            shared: CachePadded::new(Shared { list, filter: OnceLock::new(), filter_lines }),
            counters: CachePadded::new(Counters {
                entries: AtomicUsize::new(0),
                data_bytes: AtomicUsize::new(0),
                arena_bytes: AtomicUsize::new(arena_bytes),
                range_tombstones: AtomicUsize::new(0),
                range_tombstone_bytes: AtomicUsize::new(0),
                min_seq: AtomicU64::new(u64::MAX),
                max_seq: AtomicU64::new(0),
            }),
            range_tombstones: Mutex::new(Vec::new()),
        }
    }

    #[inline]
    fn list(&self) -> &SkipList {
        &self.shared.list
    }

    /// Makes the caller the writer, for as long as it keeps the guard. Waits for the writer before.
    pub(crate) fn writer(&self) -> MemWriter<'_> {
        MemWriter { list: self.list().lock(), memtable: self }
    }

    /// Inserts one version; see [`MemWriter::insert`].
    pub(crate) fn insert(&self, key: &[u8], digest: Digest, seq: SeqNo, kind: Kind, value: &[u8]) {
        self.writer().insert(key, digest, seq, kind, value);
    }

    /// Deletes the keys from `start` up to but without `end` (`None`: up to the last key there is) in all
    /// versions older than `seq`. A range that holds no key is not kept.
    ///
    /// Does not touch versions already inserted: readers combine both. Takes a lock of its own, so it may be
    /// called beside a writer.
    pub(crate) fn insert_range_tombstone(&self, start: &[u8], end: Option<&[u8]>, seq: SeqNo) {
        assert!(seq <= MAX_SEQNO, "sequence number {seq} has more than 56 bits");
        self.note_seq(seq);
        if end.is_some_and(|end| end <= start) {
            return;
        }
        let mut bytes = start.len() + end.map_or(0, <[u8]>::len) + size_of::<RangeTombstone>();
        let end = end.map_or(KeyEnd::Unbounded, |end| KeyEnd::Excluded(end.into()));
        let mut tombstones = self.range_tombstones.lock().unwrap_or_else(PoisonError::into_inner);
        // Readers search them cut at each other's borders. If they are nested, each is listed in the pieces of all others:
        // counted, so that a memtable is flushed before its search form outgrows it. Thousands fit, not millions.
        bytes += tombstones.len() * size_of::<SeqNo>();
        tombstones.push((start.into(), end, seq));
        self.counters.range_tombstone_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.counters.range_tombstones.store(tombstones.len(), Ordering::Release);
    }

    /// All range tombstones in the order of their insertion, at least [`Memtable::range_tombstone_count`] of
    /// them. Takes a lock and copies the list, but not the keys.
    pub(crate) fn range_tombstones(&self) -> Vec<RangeTombstone> {
        self.range_tombstones.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many range tombstones there are: one atomic load. The list only grows, so what was derived from a
    /// listing is up to date as long as this is the listing's length.
    #[inline]
    pub(crate) fn range_tombstone_count(&self) -> usize {
        self.counters.range_tombstones.load(Ordering::Acquire)
    }

    /// Whether there are any range tombstones: one atomic load.
    #[inline]
    pub(crate) fn has_range_tombstones(&self) -> bool {
        self.range_tombstone_count() > 0
    }

    /// Whether there is a filter to ask.
    #[inline]
    pub(crate) fn has_filter(&self) -> bool {
        self.shared.filter_lines.is_some()
    }

    /// Whether a version of the key with this digest may be here; `false` is certain for every version whose
    /// insertion happened before. Always `true` without a filter.
    #[inline]
    pub(crate) fn may_contain(&self, digest: Digest) -> bool {
        match self.shared.filter.get() {
            Some(filter) => filter.contains(digest),
            // Whoever learns of a sequence number finds the filter that was made before it was given.
            None => self.shared.filter_lines.is_none(),
        }
    }

    /// The newest version of `key` that is not newer than `snapshot`. Does not ask the filter.
    ///
    /// Cost: O(log n) comparisons, about one cache miss each in a large memtable.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], snapshot: SeqNo) -> Option<Entry<&[u8]>> {
        let node = self.list().get(key, snapshot)?;
        Some(Entry { seq: node.seq(), kind: node.kind(), value: node.value() })
    }

    /// The same with a value that outlives the borrow, at the price of one change of the memtable's reference
    /// count if there is such a version.
    pub(crate) fn get_pinned(self: &Arc<Self>, key: &[u8], snapshot: SeqNo) -> Option<Entry<PinnedMemValue>> {
        let node = self.list().get(key, snapshot)?;
        // SAFETY: the node was found in this memtable.
        let value = unsafe { PinnedMemValue::new(self.clone(), node) };
        Some(Entry { seq: node.seq(), kind: node.kind(), value })
    }

    /// A cursor over all versions, on none of them yet.
    pub(crate) fn cursor(self: &Arc<Self>) -> MemCursor {
        MemCursor::new(self.clone())
    }

    /// The number of versions, without range tombstones.
    #[inline]
    pub(crate) fn entries(&self) -> usize {
        self.counters.entries.load(Ordering::Relaxed)
    }

    /// Whether there is neither a version nor a range tombstone: nothing to flush.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries() == 0 && !self.has_range_tombstones()
    }

    /// The bytes of memory in use: keys, values, nodes, what alignment and full chunks waste, the filter and the
    /// range tombstones, in search form, as if they were nested. The unused rest of the current chunks is not counted.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Memtable>()
            + self.shared.filter.get().and(self.shared.filter_lines).unwrap_or(0) * FILTER_LINE_BYTES
            + self.counters.arena_bytes.load(Ordering::Relaxed)
            + self.counters.range_tombstone_bytes.load(Ordering::Relaxed)
    }

    /// The bytes of all keys and values inserted, without range tombstones.
    #[cfg(test)]
    #[inline]
    pub(crate) fn data_bytes(&self) -> usize {
        self.counters.data_bytes.load(Ordering::Relaxed)
    }

    /// The smallest sequence number of all insertions, range tombstones included.
    #[cfg(test)]
    pub(crate) fn min_seq(&self) -> Option<SeqNo> {
        let seq = self.counters.min_seq.load(Ordering::Relaxed);
        (seq != u64::MAX).then_some(seq)
    }

    /// The largest sequence number of all insertions, range tombstones included.
    #[cfg(test)]
    pub(crate) fn max_seq(&self) -> Option<SeqNo> {
        self.min_seq().map(|_| self.counters.max_seq.load(Ordering::Relaxed))
    }

    /// Widens the range of sequence numbers. Writers of versions and of range tombstones may do so at once;
    /// mostly a sequence number is inside or next to the range, and only one end moves.
    #[inline]
    fn note_seq(&self, seq: SeqNo) {
        // The maximum first: who sees a minimum may ask for the maximum.
        if seq > self.counters.max_seq.load(Ordering::Relaxed) {
            self.counters.max_seq.fetch_max(seq, Ordering::Relaxed);
        }
        if seq < self.counters.min_seq.load(Ordering::Relaxed) {
            self.counters.min_seq.fetch_min(seq, Ordering::Relaxed);
        }
    }
}

/// The right to insert, held by one thread at a time.
pub(crate) struct MemWriter<'m> {
    list: ListWriter<'m>,
    memtable: &'m Memtable,
}

impl MemWriter<'_> {
    /// Inserts the version `(key, seq)`, which must not be there yet, and whose `digest` is that of `key`.
    /// Readers may see it at once. Cost: O(log n) comparisons and a copy of key and value; constant if the
    /// version directly follows the one inserted last.
    ///
    /// # Panics
    /// If the key is longer than [`MAX_KEY_BYTES`], the value longer than [`MAX_VALUE_BYTES`], or the sequence
    /// number greater than [`MAX_SEQNO`].
    pub(crate) fn insert(&mut self, key: &[u8], digest: Digest, seq: SeqNo, kind: Kind, value: &[u8]) {
        assert!(key.len() <= MAX_KEY_BYTES, "a key of {} bytes is too long", key.len());
        assert!(value.len() <= MAX_VALUE_BYTES, "a value of {} bytes is too long", value.len());
        assert!(seq <= MAX_SEQNO, "sequence number {seq} has more than 56 bits");
        let Memtable { shared, counters, .. } = self.memtable;
        if let Some(lines) = shared.filter_lines {
            let make =
                || AtomicBlockedBloom::new(lines, FILTER_PROBES, FILTER_SALT).expect("sizes within bounds");
            shared.filter.get_or_init(make).insert(digest);
        }
        self.list.insert(&Version { key, seq, kind, value });
        self.memtable.note_seq(seq);
        // Only the writer stores these, so no addition gets lost.
        let raise = |counter: &AtomicUsize, by: usize| {
            counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
        };
        raise(&counters.entries, 1);
        raise(&counters.data_bytes, key.len() + value.len());
        counters.arena_bytes.store(self.list.used(), Ordering::Relaxed);
    }
}
