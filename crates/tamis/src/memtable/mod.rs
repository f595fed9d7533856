//! The newest versions of a keyspace, in memory until a flush writes them to a table.
//!
//! A memtable is a skip list in arena memory, with filters in front of it and the [range
//! tombstones](ranges) beside it. Versions are ordered by [`tamis_base::key::compare_versions`]:
//! user key ascending, sequence number descending.
//!
//! # Invariants
//! * Each pair of user key and sequence number is unique within a memtable. The caller assigns
//!   sequence numbers.
//! * Nothing is removed or moved before the memtable drops, so readers need no reclamation scheme.
//! * A key's filter bits are set before its version is linked, and counters are raised before
//!   [`MemWriter::insert`] returns. A reader that learns a sequence number after the insertion gets
//!   no false negative for it.
//!
//! # Threads
//! Any number of writers and readers. None takes a lock or waits for another, with four
//! exceptions: an insertion that needs a new chunk takes the arena's lock, range tombstones have
//! one writer at a time, a reader at a snapshot takes a lock where newer range tombstones hide
//! older ones, and values in logs have a lock ([`logged`]). A read sees a concurrently inserted
//! version whole or not at all, and filters versions by sequence number. Counters only count, so
//! `Relaxed` suffices: a thread that learns a sequence number by an ordered load sees what its
//! writer counted.
//!
//! # Growth
//! A database may have thousands of keyspaces with a few entries each, so a memtable starts small.
//! Chunks grow with what they hold ([`arena`]). Filters come one after another, each larger than
//! the last. A key goes into the newest filter at its insertion. A reader asks all filters, newest
//! first; the newest soon has nearly all keys.
//!
//! # Why a custom skip list
//! A memtable removes nothing before it drops. Unlike a general concurrent map, it needs no
//! reclamation scheme and can store node and key in one allocation. Nanoseconds per entry, for
//! 250 000 entries of 8-byte keys and 256-byte values on a 2-core machine with other load (best of
//! 23 interleaved rounds, release profile; 307 bytes of memory per entry without the filter):
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
//! Separate chunks for long values help most (random keys: insert 440 instead of 846, get 773
//! instead of 1187 with all values after their keys, on the same machine under more load).
//! Prefetching the next lower level makes a get a tenth faster. Nodes aligned to cache lines were
//! larger and no faster.

mod arena;
mod chunks;
mod cursor;
mod logged;
#[cfg(all(test, loom))]
mod model;
mod node;
mod ranges;
mod skiplist;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use chunks::ChunkPool;
pub(crate) use cursor::{MemCursor, PinnedMemValue};
pub(crate) use logged::InLog;
pub(crate) use ranges::RangeMap;
use tamis_base::key::{Cover, Entry, Kind, MAX_KEY_BYTES, MAX_SEQNO, MAX_VALUE_BYTES, RangeTombstone, SeqNo};
use tamis_env::memory::PageBox;
use tamis_files::blob::BlobFile;
use tamis_files::sums::{RecordHash, RecordSum};
use tamis_files::table::{PinnedValue, ReadTrace};
use tamis_files::wal::ops::BatchOp;
use tamis_filter::{AtomicBlockedBloom, AtomicLine, Digest};

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;

use crate::error::StorageError;

use chunks::ChunkAccount;
use logged::LoggedValues;
use node::{NewEntry, Target};
use ranges::Ranges;
use skiplist::{ListWriter, SkipList};

/// The last filter's size is the budget divided by this.
const FILTER_SHARE: usize = 50;

/// Probes per key: the optimum for about 10 bits per key, as with entries of about 65 bytes.
const FILTER_PROBES: u8 = 6;

/// Distinct from the salts of tables, which are small numbers.
const FILTER_SALT: u64 = 0x6d65_6d74_6162_6c65;

/// The size of one filter line in bytes.
const FILTER_LINE_BYTES: usize = 64;

/// The size of the first filter, in lines.
const FIRST_FILTER_LINES: usize = 16;

/// Each filter is at least this many times as large as the one before.
const FILTER_GROWTH: usize = 32;

/// The most filters, enough for the largest budget.
const MOST_FILTERS: usize = 4;

/// A filter takes this many keys per line before the next one takes over: about 20 bits per key, so
/// the filters before the last let hardly anything pass.
const KEYS_PER_LINE: usize = 25;

/// Versions and range tombstones in memory; see the module documentation.
pub(crate) struct Memtable {
    /// What readers use, on its own cache lines: neither the writers' counters nor the `Arc`'s
    /// reference count invalidate it.
    shared: CachePadded<Shared>,
    counters: CachePadded<MemtableCounters>,
    ranges: Ranges,
    /// The large values, which are not here.
    logged: LoggedValues,
    /// Counts everything beyond an empty memtable.
    account: Arc<ChunkAccount>,
    /// Whether it keeps the sum of its versions.
    keeps_sum: bool,
}

struct Shared {
    list: SkipList,
    /// The filters, oldest first, each created by the first insertion that needs it.
    filters: [OnceLock<Filter>; MOST_FILTERS],
    /// The index of the newest filter.
    newest: AtomicUsize,
    /// The length of the last filter, created or not.
    filter_lines: usize,
}

type Filter = AtomicBlockedBloom<PageBox<AtomicLine>>;

/// Returns the lines of the filter at `at`. The last one has `last` lines.
fn lines_of(at: usize, last: usize) -> usize {
    let lines = FIRST_FILTER_LINES * FILTER_GROWTH.pow(at as u32);
    // Skip a filter that is not much smaller than the last.
    if at + 1 == MOST_FILTERS || lines > last / 4 { last } else { lines }
}

struct MemtableCounters {
    entries: AtomicUsize,
    /// From this many entries on, keys go to another filter than the newest.
    filter_room: AtomicUsize,
    data_bytes: AtomicUsize,
    /// Whether any version is a delete.
    deletes: AtomicBool,
    range_tombstone_bytes: AtomicUsize,
    /// `u64::MAX` while there is none.
    min_seq: AtomicU64,
    /// The maximum of versions.
    max_version: AtomicU64,
    /// The maximum of range tombstones.
    max_range: AtomicU64,
    /// The sum of the versions, if the memtable keeps one.
    sum: AtomicU64,
}

impl std::fmt::Debug for Memtable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memtable").field("entries", &self.entries()).finish_non_exhaustive()
    }
}

impl Memtable {
    /// Creates an empty memtable to be flushed at about `budget_bytes`. The budget sizes the last
    /// filter (2 %) and the largest allocation chunks (16 KiB to 2 MiB). It is not enforced.
    #[cfg(test)]
    pub(crate) fn new(budget_bytes: usize) -> Memtable {
        Memtable::with_chunks(budget_bytes, 0, None)
    }

    /// The same, with chunks from a pool that counts the memtable's memory. Values of at least
    /// `in_log` bytes may stay in the log; 0: none do.
    pub(crate) fn with_chunks(budget_bytes: usize, in_log: u64, pool: Option<Arc<ChunkPool>>) -> Memtable {
        let chunk_bytes = match budget_bytes / 16 {
            sixteenth if sixteenth >= 2 << 20 => 2 << 20,
            sixteenth => sixteenth.clamp(16 << 10, 1 << 20),
        };
        let filter_lines = (budget_bytes / FILTER_SHARE / FILTER_LINE_BYTES).max(1);
        let account = Arc::new(ChunkAccount::new(pool));
        let list = SkipList::new(chunk_bytes, &account);
        let (filters, newest) = (Default::default(), AtomicUsize::new(0));
        Memtable {
            shared: CachePadded::new(Shared { list, filters, newest, filter_lines }),
            counters: CachePadded::new(MemtableCounters {
                entries: AtomicUsize::new(0),
                filter_room: AtomicUsize::new(0),
                data_bytes: AtomicUsize::new(0),
                deletes: AtomicBool::new(false),
                range_tombstone_bytes: AtomicUsize::new(0),
                min_seq: AtomicU64::new(u64::MAX),
                max_version: AtomicU64::new(0),
                max_range: AtomicU64::new(0),
                sum: AtomicU64::new(0),
            }),
            ranges: Ranges::default(),
            logged: LoggedValues::new(in_log),
            account,
            keeps_sum: false,
        }
    }

    /// The same, keeping the [`sum`](Self::sum) of its versions if `keeps_sum`.
    pub(crate) fn with_sum(self, keeps_sum: bool) -> Memtable {
        Memtable { keeps_sum, ..self }
    }

    /// Returns the sum of all versions as they were inserted, each with its sequence number; `None`
    /// if it was not kept. Complete for callers ordered after the insertions.
    pub(crate) fn sum(&self) -> Option<RecordSum> {
        self.keeps_sum.then(|| RecordSum::from_u64(self.counters.sum.load(Ordering::Relaxed)))
    }

    /// Records that the memtable waits for its flush. Its memory now counts as sealed.
    pub(crate) fn seal(&self) {
        self.account.seal();
    }

    /// Records that only readers hold the memtable. Its memory no longer counts.
    pub(crate) fn retire(&self) {
        self.account.retire();
    }

    #[inline]
    fn list(&self) -> &SkipList {
        &self.shared.list
    }

    /// Returns a writer for one thread. There may be others.
    pub(crate) fn writer(&self) -> MemWriter<'_> {
        MemWriter { list: self.list().writer(), memtable: self }
    }

    /// Prefetches what inserting the key with this digest touches first.
    #[inline]
    pub(crate) fn prefetch(&self, digest: Digest) {
        if let Some(filter) = self.shared.filters[self.shared.newest.load(Ordering::Relaxed)].get() {
            filter.prefetch(digest);
        }
    }

    /// Inserts one version; see [`MemWriter::insert`].
    #[cfg(test)]
    pub(crate) fn insert(&self, key: &[u8], digest: Digest, seq: SeqNo, kind: Kind, value: &[u8]) {
        self.writer().insert(key, digest, seq, kind, value);
    }

    /// Deletes all versions older than `seq` of the keys from `start` up to but excluding `end`
    /// (`None`: no end). An empty range, or one that deletes nothing, is not stored.
    ///
    /// Inserted versions stay: readers combine both. Tombstones are inserted by one writer at a
    /// time, in the order of their numbers; versions may be inserted at the same time. O(log n).
    pub(crate) fn insert_range_tombstone(&self, start: &[u8], end: Option<&[u8]>, seq: SeqNo) {
        assert!(seq <= MAX_SEQNO, "sequence number {seq} has more than 56 bits");
        self.note_seq(seq, &self.counters.max_range);
        if seq == 0 || end.is_some_and(|end| end <= start) {
            return;
        }
        let tombstone = RangeTombstone { start: start.into(), end: end.map(Into::into), seq };
        let bytes = Ranges::bytes_of(&tombstone);
        self.counters.range_tombstone_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.account.grow(bytes);
        self.ranges.insert(tombstone);
    }

    /// Returns all range tombstones in the order of their numbers. Takes a lock; copies the list
    /// but not the keys.
    pub(crate) fn range_tombstones(&self) -> Vec<RangeTombstone> {
        self.ranges.all()
    }

    /// Returns the newest range tombstone over each key, for
    /// [`covers_around`](Self::covers_around). Later insertions do not change it.
    pub(crate) fn range_map(&self) -> RangeMap {
        self.ranges.map()
    }

    /// Returns the number of the newest range tombstone over `key` that a reader at `snapshot`
    /// sees, or 0. One load if there are none, otherwise O(log n); more if there is a newer one
    /// that the reader does not see.
    #[inline]
    pub(crate) fn cover(&self, key: &[u8], snapshot: SeqNo) -> SeqNo {
        if self.has_range_tombstones() { self.ranges.cover(key, snapshot) } else { 0 }
    }

    /// The same, with the keys around `key` that share the answer. `map` has everything that the
    /// reader sees.
    pub(crate) fn covers_around(&self, map: &RangeMap, key: &[u8], snapshot: SeqNo) -> Cover {
        self.ranges.around(map, key, snapshot)
    }

    /// Reports whether there are any range tombstones: one atomic load.
    #[inline]
    pub(crate) fn has_range_tombstones(&self) -> bool {
        self.ranges.count() > 0
    }

    /// Reports whether the memtable may hold a version of the key with this digest. No false
    /// negatives for versions whose insertion happened before.
    #[inline]
    pub(crate) fn may_contain(&self, digest: Digest) -> bool {
        // A reader that knows a sequence number sees its key's filter, which was the newest before
        // the number was published.
        let newest = self.shared.newest.load(Ordering::Relaxed);
        let has = |filter: &OnceLock<Filter>| filter.get().is_some_and(|filter| filter.contains(digest));
        self.shared.filters[..=newest].iter().rev().any(has)
    }

    /// Returns the newest version of `key` that is not newer than `snapshot`. Does not ask the
    /// filter. A version of the kind [`Kind::PutBlob`] has a reference, as everywhere here: see
    /// [`read_logged`](Self::read_logged).
    ///
    /// Cost: O(log n) comparisons, about one cache miss each in a large memtable.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], snapshot: SeqNo) -> Option<Entry<&[u8]>> {
        let node = self.list().get(key, snapshot)?;
        Some(Entry { seq: node.seq(), kind: node.kind(), value: node.value() })
    }

    /// The same, with a value that outlives the borrow. Costs a reference count update if there is
    /// such a version.
    pub(crate) fn get_pinned(self: &Arc<Self>, key: &[u8], snapshot: SeqNo) -> Option<Entry<PinnedMemValue>> {
        let node = self.list().get(key, snapshot)?;
        // SAFETY: the node was found in this memtable.
        let value = unsafe { PinnedMemValue::new(self.clone(), node) };
        Some(Entry { seq: node.seq(), kind: node.kind(), value })
    }

    /// Reports whether a value of so many bytes may stay in the log.
    #[inline]
    pub(crate) fn leaves_in_log(&self, bytes: usize) -> bool {
        self.logged.takes(bytes)
    }

    /// Reads the value that a reference in this memtable stands for. Errors: its log cannot be read,
    /// or does not have the value any more. Costs a system call, a copy and a checksum.
    pub(crate) fn read_logged<T: ReadTrace>(
        &self,
        reference: &[u8],
        trace: &mut T,
    ) -> Result<PinnedValue, StorageError> {
        self.logged.read(reference, trace)
    }

    /// Returns the logs that references in this memtable lead into.
    pub(crate) fn logs(&self) -> Vec<Arc<BlobFile>> {
        self.logged.logs()
    }

    /// Estimates the number of versions of keys from `start` up to but excluding `end` (`None`: no
    /// end). Costs a search and a few hundred steps.
    pub(crate) fn estimate(&self, start: &[u8], end: Option<&[u8]>) -> usize {
        let end = end.map(|end| Target::new(end, MAX_SEQNO));
        self.list().estimate(&Target::new(start, MAX_SEQNO), end.as_ref())
    }

    /// Passes evenly spread keys of versions, in order, from `start` up to but excluding `end`
    /// (`None`: no end). Returns how many versions each key stands for. Costs a search and a few
    /// hundred steps.
    pub(crate) fn sample(&self, start: &[u8], end: Option<&[u8]>, mut pass: impl FnMut(&[u8])) -> usize {
        let end = end.map(|end| Target::new(end, MAX_SEQNO));
        self.list().sample(&Target::new(start, MAX_SEQNO), end.as_ref(), |node| pass(node.key()))
    }

    /// Returns an unpositioned cursor over all versions.
    pub(crate) fn cursor(self: &Arc<Self>) -> MemCursor {
        MemCursor::new(self.clone())
    }

    /// Returns the number of versions, without range tombstones.
    #[inline]
    pub(crate) fn entries(&self) -> usize {
        self.counters.entries.load(Ordering::Relaxed)
    }

    /// Reports whether there is nothing to flush: no version and no range tombstone.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries() == 0 && !self.has_range_tombstones()
    }

    /// Reports whether there is a delete or a range tombstone. Complete for callers ordered after
    /// the insertion.
    #[inline]
    pub(crate) fn has_deletes(&self) -> bool {
        self.counters.deletes.load(Ordering::Relaxed) || self.has_range_tombstones()
    }

    /// Returns the bytes that the entries take, to decide whether the memtable is full: keys,
    /// values, nodes, alignment waste, full chunks' waste, filters and range tombstones. Leaves out
    /// the unused rest of the current chunks. Values in logs count.
    #[inline]
    pub(crate) fn used_bytes(&self) -> usize {
        self.list().used() + self.beside_list() + self.logged.bytes()
    }

    /// Returns the bytes of memory that the memtable holds: the same without values in logs and
    /// with whole chunks, since all of a chunk may be resident.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.list().held() + self.beside_list()
    }

    /// Returns the bytes of values in logs, which stay on disk as long as the memtable lives.
    pub(crate) fn logged_bytes(&self) -> usize {
        self.logged.bytes()
    }

    #[inline]
    fn beside_list(&self) -> usize {
        let newest = self.shared.newest.load(Ordering::Relaxed);
        let lines = match self.shared.filters[0].get() {
            Some(_) => (0..=newest).map(|at| lines_of(at, self.shared.filter_lines)).sum(),
            None => 0,
        };
        lines * FILTER_LINE_BYTES + self.counters.range_tombstone_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of all keys and values inserted, without range tombstones.
    #[inline]
    pub(crate) fn data_bytes(&self) -> usize {
        self.counters.data_bytes.load(Ordering::Relaxed) + self.logged.bytes()
    }

    /// Returns the smallest sequence number inserted, range tombstones included.
    pub(crate) fn min_seq(&self) -> Option<SeqNo> {
        let seq = self.counters.min_seq.load(Ordering::Relaxed);
        (seq != u64::MAX).then_some(seq)
    }

    /// Returns the largest sequence number inserted, range tombstones included. Complete for
    /// callers ordered after the insertion.
    #[inline]
    pub(crate) fn max_seq(&self) -> Option<SeqNo> {
        let seq = self.max_version().max(self.counters.max_range.load(Ordering::Relaxed));
        (seq > 0).then_some(seq)
    }

    /// Returns the largest sequence number of a version, or 0. Complete for callers ordered after
    /// the insertion.
    #[inline]
    pub(crate) fn max_version(&self) -> SeqNo {
        self.counters.max_version.load(Ordering::Relaxed)
    }

    /// Passes the range tombstones after `since`, newest first, to `ask` until it answers. Takes
    /// the tombstones' lock if there are any.
    pub(crate) fn newest_range_tombstones<T>(
        &self,
        since: SeqNo,
        ask: impl FnMut(&RangeTombstone) -> Option<T>,
    ) -> Option<T> {
        if self.has_range_tombstones() { self.ranges.newest(since, ask) } else { None }
    }

    /// Returns the filter for the next key.
    #[inline]
    fn filter(&self) -> &Filter {
        // A thread that sees the newest filter also sees how much room it has.
        let newest = self.shared.newest.load(Ordering::Acquire);
        match self.shared.filters[newest].get() {
            Some(filter) if self.entries() < self.counters.filter_room.load(Ordering::Relaxed) => filter,
            _ => self.next_filter(newest),
        }
    }

    #[cold]
    fn next_filter(&self, newest: usize) -> &Filter {
        // Other threads may do the same.
        let at = newest + usize::from(self.shared.filters[newest].get().is_some());
        let last = self.shared.filter_lines;
        let lines = lines_of(at, last);
        let filter = self.shared.filters[at].get_or_init(|| {
            self.account.grow(lines * FILTER_LINE_BYTES);
            empty_filter(lines)
        });
        let room = if lines == last { usize::MAX } else { lines * KEYS_PER_LINE };
        self.counters.filter_room.fetch_max(room, Ordering::Relaxed);
        self.shared.newest.fetch_max(at, Ordering::Release);
        filter
    }

    /// Widens the range of sequence numbers. Writers of versions and of range tombstones may call
    /// this concurrently. Usually the number is inside or next to the range, and only one end
    /// moves.
    #[inline]
    fn note_seq(&self, seq: SeqNo, max: &AtomicU64) {
        // The maximum first: a reader that sees a minimum may ask for the maximum.
        if seq > max.load(Ordering::Relaxed) {
            max.fetch_max(seq, Ordering::Relaxed);
        }
        if seq < self.counters.min_seq.load(Ordering::Relaxed) {
            self.counters.min_seq.fetch_min(seq, Ordering::Relaxed);
        }
    }
}

#[cold]
fn empty_filter(lines: usize) -> Filter {
    // SAFETY: an empty line is 64 zero bytes.
    let lines = unsafe { PageBox::zeroed(lines.max(1)) };
    AtomicBlockedBloom::over(lines, FILTER_PROBES, FILTER_SALT).expect("sizes within bounds")
}

/// Inserts versions, for one thread.
pub(crate) struct MemWriter<'m> {
    list: ListWriter<'m>,
    memtable: &'m Memtable,
}

impl MemWriter<'_> {
    /// See [`Memtable::insert_range_tombstone`].
    pub(crate) fn insert_range_tombstone(&self, start: &[u8], end: Option<&[u8]>, seq: SeqNo) {
        self.memtable.insert_range_tombstone(start, end, seq);
    }

    /// Inserts one operation of a batch, with the digest of its key if it has one, and the place of
    /// its value in the log if a large one is to stay there.
    pub(crate) fn insert_op(
        &mut self,
        op: &BatchOp<'_>,
        digest: Option<Digest>,
        seq: SeqNo,
        in_log: Option<InLog<'_>>,
    ) {
        let memtable = self.memtable;
        let mut put = |key: &[u8], kind, value: &[u8]| {
            self.insert(key, digest.expect("the digest of its key"), seq, kind, value);
        };
        match op {
            BatchOp::Put { key, value, .. } => match in_log {
                Some(place) if memtable.leaves_in_log(value.len()) => {
                    memtable.account.refer(value.len());
                    put(key, Kind::PutBlob, &memtable.logged.add(place, value).encode());
                }
                _ => put(key, Kind::Put, value),
            },
            BatchOp::Merge { key, operand, .. } => put(key, Kind::Merge, operand),
            BatchOp::Delete { key, .. } => put(key, Kind::Delete, &[]),
            BatchOp::DeleteRange { start, end, .. } => self.insert_range_tombstone(start, *end, seq),
            BatchOp::Ingestion { .. } => {}
        }
    }

    /// Inserts the version `(key, seq)`, which must not exist yet; `digest` is `key`'s digest.
    /// Readers may see it at once. Cost: O(log n) comparisons and a copy of key and value; a
    /// constant number of comparisons if the version directly follows the last one inserted.
    ///
    /// # Panics
    /// If the key is longer than [`MAX_KEY_BYTES`], the value longer than [`MAX_VALUE_BYTES`], or
    /// the sequence number greater than [`MAX_SEQNO`].
    pub(crate) fn insert(&mut self, key: &[u8], digest: Digest, seq: SeqNo, kind: Kind, value: &[u8]) {
        assert!(key.len() <= MAX_KEY_BYTES, "a key of {} bytes is too long", key.len());
        assert!(value.len() <= MAX_VALUE_BYTES, "a value of {} bytes is too long", value.len());
        assert!(seq <= MAX_SEQNO, "sequence number {seq} has more than 56 bits");
        let counters = &self.memtable.counters;
        if self.memtable.keeps_sum {
            let term = RecordSum::term(RecordHash::of(kind as u8, key, value), seq);
            counters.sum.fetch_add(term, Ordering::Relaxed);
        }
        self.memtable.filter().insert(digest);
        self.list.insert(&NewEntry { key, seq, kind, value });
        self.memtable.note_seq(seq, &counters.max_version);
        if kind == Kind::Delete && !counters.deletes.load(Ordering::Relaxed) {
            counters.deletes.store(true, Ordering::Relaxed);
        }
        counters.entries.fetch_add(1, Ordering::Relaxed);
        counters.data_bytes.fetch_add(key.len() + value.len(), Ordering::Relaxed);
    }
}
