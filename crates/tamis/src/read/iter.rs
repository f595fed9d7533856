//! The public iterator: keys in order, one visible version each.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Instant;

use crate::error::{ReadError, StorageError};
use crate::observe::Explained;
use crate::observe::cost::ReadCost;
use crate::observe::latency::Operation;
use crate::operators::MergeOperator;
use crate::read::ReadCounters;
use crate::read::View;
use crate::read::blobs::BlobScan;
use crate::read::covers::{Covers, Strides};
use crate::read::gaps::{DeadKeys, Jump, Standpoint};
use crate::read::life::Ended;
use crate::read::merge::{MergeCursor, Tables};
use crate::read::overlay::Overlay;
use crate::read::watch::RangeRead;
use crate::slice::Slice;
use crate::sync::Process;

mod backward;
mod explain;
mod forward;
mod keys;
mod last;
mod moving;

pub use keys::Keys;
use last::LastKey;
use tamis_base::key::{MAX_SEQNO, SeqNo, prefix_successor};
use tamis_files::table::CursorOptions;

/// Versions of one key to step over one by one before a seek skips the rest.
const STEPS: u64 = 4;

/// The most dead keys that the explanation of a slow seek steps over.
const SLOW_STEPS: u64 = 10_000;

/// The normalised key range of an iterator: from `start` (included) up to `end` (excluded; `None`:
/// no end).
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Option<Vec<u8>>,
}

impl Bounds {
    pub(crate) fn of<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> Bounds {
        let after = |key: &K| [key.as_ref(), &[0]].concat();
        Bounds {
            start: match range.start_bound() {
                Bound::Included(key) => key.as_ref().to_vec(),
                Bound::Excluded(key) => after(key),
                Bound::Unbounded => Vec::new(),
            },
            end: match range.end_bound() {
                Bound::Included(key) => Some(after(key)),
                Bound::Excluded(key) => Some(key.as_ref().to_vec()),
                Bound::Unbounded => None,
            },
        }
    }

    pub(crate) fn prefix(prefix: &[u8]) -> Bounds {
        Bounds { start: prefix.to_vec(), end: prefix_successor(prefix) }
    }
}

/// What an iterator keeps alive, and the counters it reports to.
#[derive(Clone, Debug)]
pub(crate) struct IterContext {
    pub(crate) view: Arc<View>,
    pub(crate) snapshot: SeqNo,
    /// Anything older has expired.
    pub(crate) horizon: SeqNo,
    pub(crate) counters: Arc<ReadCounters>,
    /// Merges operands.
    pub(crate) operator: Option<Arc<dyn MergeOperator>>,
    /// Whether the keyspace was dropped before the iterator was created.
    pub(crate) dropped: bool,
    /// The registered snapshot that the iterator reads from, if any. It must outlive the iterator.
    pub(crate) _pin: Option<Arc<dyn std::any::Any + Send + Sync>>,
}

impl IterContext {
    #[inline]
    fn standpoint(&self) -> Standpoint {
        Standpoint { seq: self.snapshot, edition: self.view.edition, rotation: self.view.rotation }
    }
}

/// A double-ended iterator over keys in ascending order. It sees exactly the state at its creation.
///
/// An iterator keeps its memtables and tables from being freed, on disk too. Items are key-value
/// pairs. An error at one end ends the iteration at that end. Creation costs nothing until the
/// first item is requested. The first item costs a seek in every run that no filter excludes; each
/// later one costs about one comparison and one copy of the key. Under a global filter, a run is
/// opened only when the iteration reaches its keys.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let db = tamis::Db::open(dir.path(), tamis::Options::default())?;
/// for key in ["a", "b", "c", "d"] {
///     db.put(key, "value")?;
/// }
/// let mut iter = db.range("b"..);
/// let (first, _) = iter.next().expect("an item")?;
/// let (last, _) = iter.next_back().expect("an item")?;
/// assert_eq!((&first[..], &last[..]), (&b"b"[..], &b"d"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "an iterator reads nothing until it is asked for an item"]
pub struct Iter {
    context: IterContext,
    bounds: Bounds,
    /// The range tombstones, if any.
    covers: Option<Box<Covers>>,
    /// Where the last [`seek`](Iter::seek) placed the front. The back does not go below it.
    floor: Option<Vec<u8>>,
    /// Whether nothing was found since an end was positioned.
    empty: bool,
    /// The process that opened the database.
    process: Process,
    front: End,
    back: End,
    /// Whether the iterator uses and learns gaps.
    knows_gaps: bool,
    cost: ReadCost,
    blobs: BlobScan,
    /// The last positioning, if timed or sampled as a query; until its first item is known.
    sampled: Option<Sample>,
    /// In a transaction: its own writes, and the record of its reads.
    within: Option<Box<Within>>,
    /// Whether to return keys only: no value is read or merged.
    keys_only: bool,
    /// The item lent last, unless the cursor stands on it.
    lent: Option<Box<(Slice, Slice)>>,
}

debug_as!(Iter, "Iter", iter => "keys_only": iter.keys_only, "transaction": iter.within.is_some(), "empty": iter.empty);

/// The part of an iterator that only transactions need.
#[derive(Debug)]
struct Within {
    overlay: Option<Overlay>,
    watch: Option<Arc<RangeRead>>,
    ended: Ended,
    /// Whether the end was reported.
    told: bool,
}

impl Within {
    /// Returns what the iterator yields after its transaction's end: one error, then nothing.
    fn end(&mut self) -> Option<Item> {
        let told = std::mem::replace(&mut self.told, true);
        (!told).then_some(Err(ReadError::Ended))
    }

    /// Called before the first item, with the starting points of the two ends in place of the
    /// bounds.
    fn resume(&mut self, floor: Option<&[u8]>, before: Option<&[u8]>) {
        if let (Some(watch), Some(floor)) = (&self.watch, floor) {
            watch.seek(floor);
        }
        if let Some(overlay) = &mut self.overlay {
            overlay.resume(floor, before);
        }
    }
}

/// The end that was positioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sampled {
    Front,
    Back,
}

/// A positioning to record.
#[derive(Clone, Copy, Debug)]
struct Sample {
    end: Sampled,
    /// Whether it counts as one of the keyspace's queries.
    is_query: bool,
    /// The start time, if timed.
    started: Option<Instant>,
}

/// What a move of an end found.
#[derive(Debug)]
enum Found {
    Nothing,
    /// The version under the end's cursor; its key is the end's last.
    Here,
    /// An item with a value that was read or merged.
    Item(Slice, Slice),
}

/// How a move of an end ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Item,
    End,
    Failed,
}

impl Found {
    /// Returns the item found at an end.
    #[inline]
    fn item(self, end: &End) -> Option<(Slice, Slice)> {
        match self {
            Found::Nothing => None,
            Found::Here => Some((end.here().pinned_key(), end.here().pinned_value())),
            Found::Item(key, value) => Some((key, value)),
        }
    }

    /// Returns only the key.
    fn key(self, end: &End) -> Option<Slice> {
        match self {
            Found::Nothing => None,
            Found::Here => Some(end.here().pinned_key()),
            Found::Item(key, _) => Some(key),
        }
    }
}

impl End {
    #[inline]
    fn conclude(&mut self, outcome: Outcome) {
        (self.finished, self.failed) = (outcome != Outcome::Item, outcome == Outcome::Failed);
    }

    /// Returns the cursor on the version of [`Found::Here`].
    #[inline]
    fn here(&self) -> &MergeCursor {
        self.cursor.as_ref().expect("the end stands on a version")
    }
}

/// One end of the iteration.
#[derive(Debug, Default)]
struct End {
    cursor: Option<MergeCursor>,
    /// On this side, nothing is left at or beyond it.
    last: LastKey,
    /// Buffer for the key after `last`.
    coming: Vec<u8>,
    /// Whether the cursor still stands on the last item returned. The next call moves it, which may
    /// open a run or fail.
    given: bool,
    finished: bool,
    /// Whether it finished because of an error.
    failed: bool,
    dead: DeadKeys,
    strides: Strides,
}

impl Iter {
    pub(crate) fn new(context: IterContext, bounds: Bounds) -> Iter {
        let covers = Covers::of(&context.view, context.snapshot);
        Iter {
            knows_gaps: context.view.has_all(),
            process: context.counters.process(),
            context,
            bounds,
            covers,
            floor: None,
            empty: true,
            front: End::default(),
            back: End::default(),
            cost: ReadCost::default(),
            blobs: BlobScan::default(),
            sampled: None,
            within: None,
            keys_only: false,
            lent: None,
        }
    }

    /// Makes this a transaction's iterator: overlays its pending writes, records its reads, and
    /// ends with it.
    pub(crate) fn within(
        mut self,
        overlay: Option<Overlay>,
        watch: Option<Arc<RangeRead>>,
        ended: Ended,
    ) -> Iter {
        self.within = Some(Box::new(Within { overlay, watch, ended, told: false }));
        self
    }

    /// Makes every positioning an error if the keyspace was `dropped`.
    pub(crate) fn of_dropped(mut self, dropped: bool) -> Iter {
        self.context.dropped = dropped;
        self
    }

    /// Ends the iteration at each end after `dead_keys` keys without a value.
    pub(crate) fn with_patience(mut self, dead_keys: u64) -> Iter {
        (self.front.dead.limit, self.back.dead.limit) = (dead_keys, dead_keys);
        self
    }

    /// Called after an end was positioned, with the start time if timed.
    #[inline]
    fn positioned(&mut self, end: Sampled, started: Option<Instant>) {
        let is_query = self.context.counters.samples_scan();
        self.sampled = (is_query || started.is_some()).then_some(Sample { end, is_query, started });
    }

    /// Records the last positioning once its result is known: its time, and the keyspace's query.
    #[cold]
    fn record(&mut self, Sample { end, is_query, started }: Sample) {
        if let Some(started) = started {
            self.timed(started, end);
        }
        if !is_query {
            return;
        }
        let Some(queries) = self.context.counters.queries() else { return };
        let start = self.floor.as_ref().unwrap_or(&self.bounds.start);
        match &self.bounds.end {
            Some(end) => queries.record_range(start, Some(end), self.empty),
            None if end == Sampled::Back && !start.is_empty() => {
                queries.record_range(start, None, self.empty);
            }
            None => queries.record_seek(start),
        }
    }

    fn cursor(&self) -> Result<MergeCursor, ReadError> {
        if self.context.dropped {
            return Err(ReadError::Dropped { name: self.context.counters.keyspace().to_owned() });
        }
        let version = &self.context.view.version;
        let mut cursor = MergeCursor::new(
            Tables::Of(self.context.view.clone()),
            CursorOptions::default(),
            version.runs.len() + 1 + self.context.view.memtables.sealed.len(),
        )
        .within(&self.bounds.start, self.bounds.end.as_deref());
        for slot in self.context.view.memtables.iter().filter(|slot| !slot.memtable.is_empty()) {
            cursor.add_memtable(slot.memtable.cursor());
        }
        for run in &version.runs {
            cursor.add_run(run.tables.clone());
        }
        Ok(cursor)
    }

    /// Moves the front to the first key at or after `key`, within the iterator's bounds, forwards
    /// or backwards. The back stays. Everything between the two can be read from either end, even
    /// if the iterator had already ended. Cheaper than a new iterator. After an error the front is
    /// at its end, as after an error of `next`.
    ///
    /// # Errors
    ///
    /// [`ReadError::Storage`] for a failed system call or damaged bytes on the way;
    /// [`ReadError::Ended`] once the iterator's transaction has ended.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path(), tamis::Options::default())?;
    /// # for key in ["a", "b", "c"] { db.put(key, "value")?; }
    /// let mut iter = db.iter();
    /// iter.seek("bb")?;
    /// assert_eq!(iter.next().expect("an item")?.0, "c");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<(), ReadError> {
        if !self.process.is_current() {
            return Err(self.context.counters.forked());
        }
        if self.within.as_ref().is_some_and(|within| within.ended.is_so()) {
            return Err(ReadError::Ended);
        }
        let started = self.context.counters.starts();
        let sought = self.seek_committed(key.as_ref());
        if let Some(started) = started {
            self.timed(started, Sampled::Front);
        }
        if let Some(within) = &mut self.within {
            let start = key.as_ref().max(&self.bounds.start[..]);
            if let Some(watch) = &within.watch {
                watch.seek(start);
            }
            if let Some(overlay) = &mut within.overlay {
                overlay.seek(start, sought.is_err());
            }
        }
        sought
    }

    fn seek_committed(&mut self, key: &[u8]) -> Result<(), ReadError> {
        let start = key.max(&self.bounds.start[..]);
        let mut cursor = match self.front.cursor.take() {
            Some(mut failed) if self.front.failed => {
                failed.drain_cost(&mut self.cost);
                self.cursor()?
            }
            Some(cursor) => cursor,
            None => self.cursor()?,
        };
        self.front = End { finished: true, failed: true, ..End::default() };
        self.cost.scans += 1;
        self.empty = true;
        let mut dead = DeadKeys::default();
        let target = self.leap(start, &mut dead);
        let target = target.as_deref().unwrap_or(start);
        self.floor = Some(start.to_vec());
        counted(&mut cursor, &mut self.cost, |cursor| cursor.seek(target, MAX_SEQNO))?;
        // The caller times it: the program may do other work before the first item.
        self.positioned(Sampled::Front, None);
        self.front = End { cursor: Some(cursor), dead, ..End::default() };
        self.back.finished = self.back.failed;
        Ok(())
    }

    /// If `start` lies in a gap, returns where the front may begin instead.
    #[inline]
    fn leap(&self, start: &[u8], dead: &mut DeadKeys) -> Option<Vec<u8>> {
        let gaps = &self.context.view.gaps;
        if gaps.is_empty() || !self.knows_gaps {
            return None;
        }
        let Jump { start, end } = gaps.jump(start, self.context.standpoint())?;
        let bound = self.back.last.get().or(self.bounds.end.as_deref());
        let end = end.filter(|end| bound.is_none_or(|bound| &end[..] < bound))?;
        (dead.jumped, dead.start) = (true, start);
        Some(end)
    }

    /// Counts a move of an end, and returns its outcome.
    #[inline]
    fn count(&mut self, found: &Result<Found, ReadError>) -> Outcome {
        let outcome = match found {
            Ok(Found::Nothing) => Outcome::End,
            Ok(_) => Outcome::Item,
            Err(_) => Outcome::Failed,
        };
        match outcome {
            Outcome::Item => {
                self.cost.entries += 1;
                self.empty = false;
            }
            // Once for each empty end.
            Outcome::End => self.cost.empty_scans += u64::from(self.empty),
            Outcome::Failed => {}
        }
        if let Some(sample) = self.sampled.take()
            && outcome != Outcome::Failed
        {
            self.record(sample);
        }
        outcome
    }
}

/// Positions a cursor. After a failure the cursor must not be used again, since some sources may be
/// prepared for a seek that did not happen; its cost so far is counted here.
fn counted(
    cursor: &mut MergeCursor,
    cost: &mut ReadCost,
    position: impl FnOnce(&mut MergeCursor) -> Result<(), StorageError>,
) -> Result<(), StorageError> {
    position(cursor).inspect_err(|_| cursor.drain_cost(cost))
}

/// An item of the iteration.
type Item = Result<(Slice, Slice), ReadError>;

/// Returns the key to record as read. After an error, everything that remains counts as read.
fn key_of(item: &Option<Item>) -> Option<&[u8]> {
    match item {
        Some(Ok((key, _))) => Some(key),
        _ => None,
    }
}

impl Iter {
    #[cold]
    fn next_within(&mut self, mut within: Box<Within>) -> Option<Item> {
        if within.ended.is_so() {
            return self.within.insert(within).end();
        }
        let item = match &mut within.overlay {
            Some(overlay) => overlay.next(self),
            None => self.next_committed(),
        };
        if let Some(watch) = &within.watch {
            watch.front(key_of(&item));
        }
        self.within = Some(within);
        item
    }

    #[cold]
    fn next_back_within(&mut self, mut within: Box<Within>) -> Option<Item> {
        if within.ended.is_so() {
            return self.within.insert(within).end();
        }
        let item = match &mut within.overlay {
            Some(overlay) => overlay.next_back(self),
            None => self.next_back_committed(),
        };
        if let Some(watch) = &within.watch {
            watch.back(key_of(&item));
        }
        self.within = Some(within);
        item
    }

    /// Moves the front to the next committed item.
    #[inline]
    fn find(&mut self) -> Result<Found, ReadError> {
        if self.front.finished {
            return Ok(Found::Nothing);
        }
        let found = self.forward();
        let outcome = self.count(&found);
        self.front.conclude(outcome);
        found
    }

    /// Moves the back to the next committed item.
    #[inline]
    fn find_back(&mut self) -> Result<Found, ReadError> {
        if self.back.finished {
            return Ok(Found::Nothing);
        }
        let found = self.backward();
        let outcome = self.count(&found);
        self.back.conclude(outcome);
        found
    }

    /// Records how long a positioning took.
    #[cold]
    fn timed(&self, started: Instant, end: Sampled) {
        let start = self.floor.as_ref().unwrap_or(&self.bounds.start);
        let key = match end {
            Sampled::Front => Some(start),
            Sampled::Back => self.bounds.end.as_ref(),
        };
        let explain = || {
            let explanation = match end {
                Sampled::Front => {
                    let context = IterContext { counters: Arc::default(), ..self.context.clone() };
                    let bounds = Bounds { start: start.clone(), end: self.bounds.end.clone() };
                    // The reader is waiting, so this is bounded.
                    let again = Iter::new(context, bounds).with_patience(SLOW_STEPS).explain(1);
                    again.map_or_else(|error| error.to_string(), |e| e.to_string())
                }
                // Explanations only go forwards.
                Sampled::Back => "backwards, from the end of the range".to_owned(),
            };
            let keyspace = self.context.counters.keyspace().to_owned();
            Explained { keyspace, key: key.cloned(), explanation }
        };
        self.context.counters.timed(Operation::Seek, started, explain);
    }

    /// The only item in a forked child: an error.
    #[cold]
    fn forked(&mut self) -> Option<Item> {
        let ended = std::mem::replace(&mut self.front.finished, true);
        self.back.finished = true;
        (!ended).then(|| Err(self.context.counters.forked()))
    }

    /// Returns the next committed item from the front.
    #[inline]
    pub(super) fn next_committed(&mut self) -> Option<Item> {
        self.find().map(|found| found.item(&self.front)).transpose()
    }

    /// Returns the next committed item from the back.
    #[inline]
    pub(super) fn next_back_committed(&mut self) -> Option<Item> {
        self.find_back().map(|found| found.item(&self.back)).transpose()
    }
}

impl Iterator for Iter {
    type Item = Result<(Slice, Slice), ReadError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if !self.process.is_current() {
            return self.forked();
        }
        match self.within.take() {
            None => self.next_committed(),
            Some(within) => self.next_within(within),
        }
    }
}

impl DoubleEndedIterator for Iter {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if !self.process.is_current() {
            return self.forked();
        }
        match self.within.take() {
            None => self.next_back_committed(),
            Some(within) => self.next_back_within(within),
        }
    }
}

impl std::iter::FusedIterator for Iter {}

impl Drop for Iter {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // Cursors and counters take locks that nothing in a forked child may release.
            let cursors = (self.front.cursor.take(), self.back.cursor.take());
            std::mem::forget((cursors, self.context.view.clone()));
            return;
        }
        for cursor in [&mut self.front.cursor, &mut self.back.cursor].into_iter().flatten() {
            cursor.end_scan();
            cursor.drain_cost(&mut self.cost);
        }
        self.context.counters.add(&self.cost);
    }
}
