//! The public iterator: keys in order, one visible version each.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use crate::error::{ReadError, StorageError};
use crate::key::{Kind, MAX_SEQNO, SeqNo, prefix_of, prefix_successor};
use crate::operators::MergeOperator;
use crate::read::ReadCounters;
use crate::read::View;
use crate::read::blobs::BlobScan;
use crate::read::explain::{RangeExplanation, RangeSource};
use crate::read::gaps::{DeadKeys, Jump, Standpoint};
use crate::read::merge::{Head, MergeCursor, Tables};
use crate::read::operands::{Base, Operands, Order};
use crate::read::overlay::Overlay;
use crate::read::watch::RangeRead;
use crate::slice::Slice;
use crate::table::CursorOptions;
use crate::table::ReadCost;
use crate::tree::open_table::OpenTable;
use crate::tree::tombstones::Tombstones;

mod keys;
mod last;
mod moving;

pub use keys::Keys;
use last::LastKey;

/// How many versions of one key are stepped over, one by one, before a seek passes the rest.
const STEPS: u64 = 4;

/// The key range of an iterator, normalised: from `start` (included) up to `end` (excluded; `None`: no end).
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
    /// Everything below has expired.
    pub(crate) horizon: SeqNo,
    pub(crate) counters: Arc<ReadCounters>,
    /// Merges operands.
    pub(crate) operator: Option<Arc<dyn MergeOperator>>,
    /// A registered snapshot that must outlive the iterator, if it reads from one.
    pub(crate) _pin: Option<Arc<dyn std::any::Any + Send + Sync>>,
}

impl IterContext {
    #[inline]
    fn standpoint(&self) -> Standpoint {
        Standpoint { seq: self.snapshot, edition: self.view.edition }
    }
}

/// A double-ended iterator over keys in ascending order, over exactly the state at the time of its creation.
///
/// An iterator keeps its memtables and tables (on disk too) from being freed. Items are pairs of key and value; an
/// error ends the iteration at that end. Creating one costs nothing until the first item is requested. That item costs
/// a seek in every run that no filter excludes; later ones cost about one comparison and one copy of the key. Under a
/// global filter a run is opened only when the iteration reaches its keys.
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
#[derive(Debug)]
#[must_use = "an iterator reads nothing until it is asked for an item"]
pub struct Iter {
    context: IterContext,
    bounds: Bounds,
    tombstones: Option<Arc<Tombstones>>,
    /// The position of the front after the last [`seek`](Iter::seek): the back does not go below it.
    floor: Option<Vec<u8>>,
    /// Whether the iteration has been empty since an end was positioned.
    empty: bool,
    front: End,
    back: End,
    /// Whether the iterator uses gaps and learns of them.
    knows_gaps: bool,
    cost: ReadCost,
    blobs: BlobScan,
    /// The end that was positioned last, if that is a sample of the keyspace's queries; until its first item is known.
    sampled: Option<Sampled>,
    /// In a transaction: its own writes, and the record of what it reads.
    within: Option<Box<Within>>,
    /// Whether only keys are asked for: no value is read or merged.
    keys_only: bool,
    /// The item lent last, if the cursor does not stand on it.
    lent: Option<Box<(Slice, Slice)>>,
}

/// The part of an iterator that only a transaction has.
#[derive(Debug)]
struct Within {
    overlay: Option<Overlay>,
    watch: Option<Arc<RangeRead>>,
}

impl Within {
    /// Called before the first item, with where the ends begin in place of the bounds.
    fn resume(&mut self, floor: Option<&[u8]>, before: Option<&[u8]>) {
        if let (Some(watch), Some(floor)) = (&self.watch, floor) {
            watch.seek(floor);
        }
        if let Some(overlay) = &mut self.overlay {
            overlay.resume(floor, before);
        }
    }
}

/// An end whose positioning is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sampled {
    Front,
    Back,
}

/// What a move of an end found.
#[derive(Debug)]
enum Found {
    Nothing,
    /// The version that the end's cursor stands on; its key is the end's last.
    Here,
    /// An item whose value was read or merged.
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
    /// Returns the item that was found at an end.
    #[inline]
    fn item(self, end: &End) -> Option<(Slice, Slice)> {
        match self {
            Found::Nothing => None,
            Found::Here => Some((end.here().pinned_key(), end.here().pinned_value())),
            Found::Item(key, value) => Some((key, value)),
        }
    }

    /// Returns the key alone.
    fn key(self, end: &End) -> Option<Slice> {
        match self {
            Found::Nothing => None,
            Found::Here => Some(end.here().pinned_key()),
            Found::Item(key, _) => Some(key),
        }
    }
}

impl Outcome {
    #[inline]
    fn of(found: &Result<Found, ReadError>) -> Outcome {
        match found {
            Ok(Found::Nothing) => Outcome::End,
            Ok(_) => Outcome::Item,
            Err(_) => Outcome::Failed,
        }
    }
}

impl End {
    /// Returns the cursor that stands on what was [`Found::Here`].
    #[inline]
    fn here(&self) -> &MergeCursor {
        self.cursor.as_ref().expect("the end stands on a version")
    }
}

/// One end of the iteration.
#[derive(Debug, Default)]
struct End {
    cursor: Option<MergeCursor>,
    /// Nothing at or beyond it is left on this side.
    last: LastKey,
    /// Buffer for the key after `last`.
    coming: Vec<u8>,
    /// Whether the cursor still stands on the last item returned. Moving on may open a run or fail, and is left to the next call.
    given: bool,
    finished: bool,
    /// Whether it finished because of an error.
    failed: bool,
    dead: DeadKeys,
}

impl Iter {
    pub(crate) fn new(context: IterContext, bounds: Bounds) -> Iter {
        let tombstones = context.view.all_tombstones();
        Iter {
            knows_gaps: context.view.has_all(),
            context,
            bounds,
            tombstones,
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

    /// Returns the iterator of a transaction: with its pending writes laid over it, and with a record of what it reads.
    pub(crate) fn within(mut self, overlay: Option<Overlay>, watch: Option<Arc<RangeRead>>) -> Iter {
        if overlay.is_some() || watch.is_some() {
            self.within = Some(Box::new(Within { overlay, watch }));
        }
        self
    }

    /// Ends the iteration at each end after so many keys without a value.
    pub(crate) fn with_patience(mut self, dead_keys: u64) -> Iter {
        (self.front.dead.limit, self.back.dead.limit) = (dead_keys, dead_keys);
        self
    }

    /// Called when an end was positioned.
    #[inline]
    fn positioned(&mut self, end: Sampled) {
        self.sampled = self.context.counters.samples_scan().then_some(end);
    }

    /// Records the last positioning among the keyspace's queries, now that it is known what it found.
    #[cold]
    fn record(&mut self, end: Sampled) {
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

    fn cursor(&self) -> MergeCursor {
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
        cursor
    }

    /// Moves the front to the first key at or after `key` (within the iterator's bounds), forwards or backwards. The back stays
    /// where it is: everything between the two can be read from either end, even if the iterator had reached its end before.
    /// Cheaper than a new iterator. After an error the front is at its end, as after an error of `next`.
    ///
    /// # Errors
    ///
    /// [`ReadError::Storage`] for a failed system call or damaged bytes on the way.
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
        let sought = self.seek_committed(key.as_ref());
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
                self.cursor()
            }
            Some(cursor) => cursor,
            None => self.cursor(),
        };
        self.front = End { finished: true, failed: true, ..End::default() };
        self.cost.scans += 1;
        self.empty = true;
        let mut dead = DeadKeys::default();
        let target = self.leap(start, &mut dead);
        let target = target.as_deref().unwrap_or(start);
        self.floor = Some(start.to_vec());
        counted(&mut cursor, &mut self.cost, |cursor| cursor.seek(target, MAX_SEQNO))?;
        self.positioned(Sampled::Front);
        self.front = End { cursor: Some(cursor), dead, ..End::default() };
        self.back.finished = self.back.failed;
        Ok(())
    }

    /// Returns where the front may begin in place of `start`, if that lies in a gap.
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

    #[inline]
    fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Item => {
                self.cost.entries += 1;
                self.empty = false;
            }
            // Once for each empty end.
            Outcome::End => self.cost.empty_scans += u64::from(self.empty),
            Outcome::Failed => {}
        }
        if let Some(end) = self.sampled.take()
            && outcome != Outcome::Failed
        {
            self.record(end);
        }
    }

    #[inline]
    fn forward(&mut self) -> Result<Found, ReadError> {
        if self.front.cursor.is_none() {
            let mut cursor = self.cursor();
            self.cost.scans += 1;
            let mut dead = std::mem::take(&mut self.front.dead);
            let start = self.floor.as_ref().unwrap_or(&self.bounds.start);
            let target = self.leap(start, &mut dead);
            let target = target.as_ref().unwrap_or(start);
            counted(&mut cursor, &mut self.cost, |cursor| cursor.seek(target, MAX_SEQNO))?;
            self.positioned(Sampled::Front);
            (self.front.cursor, self.front.dead) = (Some(cursor), dead);
        }
        let cursor = self.front.cursor.as_mut().expect("positioned");
        if std::mem::take(&mut self.front.given) {
            cursor.next()?;
        }
        let end = self.back.last.get().or(self.bounds.end.as_deref());
        let end_prefix = end.map_or(u64::MAX, prefix_of);
        let mut stepped = 0;
        while let Some(Head { prefix, key, seq, kind }) = cursor.head() {
            if prefix >= end_prefix && end.is_some_and(|end| key >= end) {
                break;
            }
            let too_new = seq > self.context.snapshot;
            let last = self.front.last.get();
            let returned = last.is_some_and(|last| prefix_of(last) == prefix && last == key);
            if too_new || returned {
                self.cost.versions_skipped += 1;
                stepped += 1;
                if stepped > STEPS {
                    // The newest visible version may be far down, and so may the next key.
                    let target = if too_new { self.context.snapshot } else { 0 };
                    let coming = &mut self.front.coming;
                    coming.clear();
                    coming.extend_from_slice(key);
                    stepped = 0;
                    self.cost.versions_skipped += cursor.pass(coming, target)?.saturating_sub(1);
                } else {
                    cursor.next()?;
                }
                continue;
            }
            stepped = 0;
            // The newest visible version of a key not returned yet.
            let deleted = self.tombstones.as_ref().map_or(0, |t| t.cover(key, self.context.snapshot));
            let cover = deleted.max(self.context.horizon);
            let dead = &mut self.front.dead;
            if deleted > seq || kind == Kind::Delete {
                if dead.count == 0 && !dead.jumped {
                    // The first of all is the first behind where the iteration began.
                    let began = self.floor.as_ref().unwrap_or(&self.bounds.start);
                    let first = if self.front.last.get().is_some() { key } else { began };
                    dead.start.clear();
                    dead.start.extend_from_slice(first);
                }
                let ask = dead.add();
                self.cost.tombstones_skipped += 1;
                let gaps = &self.context.view.gaps;
                let at = self.context.standpoint();
                if ask
                    && self.knows_gaps
                    && !gaps.is_empty()
                    && let Some(Jump { start, end: gap_end }) = gaps.jump(key, at)
                {
                    if !dead.jumped && dead.count == 1 && start < dead.start {
                        dead.start = start;
                    }
                    // Those in the gap are known.
                    (dead.jumped, dead.since_jump) = (true, 0);
                    self.front.last.pass(key);
                    let target = gap_end.filter(|gap_end| end.is_none_or(|end| &gap_end[..] < end));
                    let Some(target) = target else {
                        dead.over(gaps, end, at, self.knows_gaps);
                        return Ok(Found::Nothing);
                    };
                    if let Err(error) = cursor.seek(&target, MAX_SEQNO) {
                        cursor.drain_cost(&mut self.cost);
                        self.front.cursor = None;
                        return Err(error.into());
                    }
                    continue;
                }
                if dead.tires() {
                    dead.over(gaps, Some(key), at, self.knows_gaps);
                    return Ok(Found::Nothing);
                }
                self.front.last.pass(key);
                cursor.next()?;
                continue;
            }
            if dead.are_any() {
                dead.over(&self.context.view.gaps, Some(key), self.context.standpoint(), self.knows_gaps);
            }
            let shows = cover <= seq;
            if shows && kind == Kind::Merge && !self.keys_only {
                // An error before the end of the merge leaves the key to the back.
                let coming = &mut self.front.coming;
                coming.clear();
                coming.extend_from_slice(key);
                let operator = self.context.operator.as_deref();
                let (key, value) =
                    merge_forward(cursor, &mut self.blobs, coming, cover, operator, &mut self.cost)?;
                self.front.last.give(coming);
                return Ok(Found::Item(key, value));
            }
            // A value that cannot be read leaves the key to the back, too.
            let separated = match kind {
                Kind::PutBlob if shows && !self.keys_only => {
                    Some(self.blobs.read(cursor.table(), cursor.version().3, &mut self.cost)?)
                }
                _ => None,
            };
            if shows {
                self.front.last.give(key);
                self.front.given = true;
                return Ok(match separated {
                    Some(value) => Found::Item(cursor.pinned_key(), value),
                    None => Found::Here,
                });
            }
            if dead.tires() {
                return Ok(Found::Nothing);
            }
            self.front.last.pass(key);
            self.cost.tombstones_skipped += 1;
            cursor.next()?;
        }
        let at = self.context.standpoint();
        self.front.dead.over(&self.context.view.gaps, end, at, self.knows_gaps);
        Ok(Found::Nothing)
    }

    #[inline]
    fn backward(&mut self) -> Result<Found, ReadError> {
        if self.back.cursor.is_none() {
            let mut cursor = self.cursor();
            self.cost.scans += 1;
            counted(&mut cursor, &mut self.cost, |cursor| {
                match self.back.last.get().or(self.bounds.end.as_deref()) {
                    Some(end) => cursor.seek_before(end),
                    None => cursor.seek_to_last(),
                }
            })?;
            self.positioned(Sampled::Back);
            self.back.cursor = Some(cursor);
        }
        let start = self.floor.as_ref().unwrap_or(&self.bounds.start);
        let cursor = self.back.cursor.as_mut().expect("positioned");
        if std::mem::take(&mut self.back.given) {
            cursor.prev()?;
        }
        let passed = self.front.last.get();
        while let Some(Head { key, seq, kind, .. }) = cursor.head() {
            if key < &start[..] || passed.is_some_and(|last| key <= last) {
                break;
            }
            if kind == Kind::Put
                && seq <= self.context.snapshot
                && cursor.is_only_version()
                && self.context.horizon <= seq
                && self.tombstones.as_ref().is_none_or(|t| t.cover(key, self.context.snapshot) <= seq)
            {
                let dead = &mut self.back.dead;
                if dead.are_any() {
                    let (gaps, at) = (&self.context.view.gaps, self.context.standpoint());
                    dead.over_backwards(gaps, self.back.last.get(), at);
                }
                self.back.last.give(key);
                self.back.given = true;
                return Ok(Found::Here);
            }
            // An error before the end of the key leaves it to the front.
            let coming = &mut self.back.coming;
            coming.clear();
            coming.extend_from_slice(key);
            let cover = self.tombstones.as_ref().map_or(0, |t| t.cover(coming, self.context.snapshot));
            let cover = cover.max(self.context.horizon);
            let operator = self.context.operator.as_deref().filter(|_| !self.keys_only);
            // Versions of one key come oldest first: the last visible one counts, and the operands after it.
            let mut newest = Base::Nothing;
            // In place of `newest`, a value that is not read before it is known to be needed.
            let mut separated: Option<(Arc<OpenTable>, Slice)> = None;
            let mut operands = Operands::new(Order::OldestFirst);
            let mut stepped = 0;
            while cursor.valid() && cursor.key() == &coming[..] {
                if stepped == STEPS {
                    let seq = cursor.seq();
                    if seq > self.context.snapshot {
                        stepped += cursor.pass(coming, 0)?;
                        break;
                    }
                    // From the newest visible version down, as forwards: no older one than those left counts if that is a value.
                    let mut newer = Operands::new(Order::NewestFirst);
                    let climb = cursor.climb(coming, self.context.snapshot)?;
                    while cursor.valid() && cursor.seq() >= seq.max(cover) {
                        stepped += 1;
                        match cursor.kind() {
                            Kind::Merge => newer.push(coming, cursor.pinned_value(), operator),
                            kind => {
                                operands.clear();
                                (newest, separated) = base_at(cursor, kind);
                                break;
                            }
                        }
                        cursor.climb_down(coming)?;
                    }
                    operands.add_newer(newer);
                    cursor.leave(climb, coming)?;
                    break;
                }
                stepped += 1;
                if (cover..=self.context.snapshot).contains(&cursor.seq()) {
                    match cursor.kind() {
                        Kind::Merge => operands.push(coming, cursor.pinned_value(), operator),
                        kind => {
                            operands.clear();
                            (newest, separated) = base_at(cursor, kind);
                        }
                    }
                }
                cursor.prev()?;
            }
            let counts =
                operands.count() + u64::from(separated.is_some() || matches!(newest, Base::Value(_)));
            self.cost.versions_skipped += stepped - counts.max(1).min(stepped);
            if self.keys_only && (separated.is_some() || !operands.is_empty()) {
                newest = Base::Value(Slice::default());
            } else if let Some((table, reference)) = separated {
                newest = Base::Value(self.blobs.read(&table, &reference, &mut self.cost)?);
            }
            if !operands.is_empty() && !self.keys_only {
                newest = Base::Value(operands.resolve(coming, &newest, operator, &mut self.cost)?);
            }
            let dead = &mut self.back.dead;
            let (gaps, at) = (&self.context.view.gaps, self.context.standpoint());
            if let Base::Value(value) = newest {
                dead.over_backwards(gaps, self.back.last.get(), at);
                self.back.last.give(coming);
                return Ok(Found::Item(Slice::copy_of(coming), value));
            }
            self.cost.tombstones_skipped += 1;
            if dead.count == 0 && !dead.jumped {
                let end = self.back.last.get().or(self.bounds.end.as_deref());
                dead.end = end.map(<[u8]>::to_vec);
            }
            self.back.last.pass(coming);
            if dead.tires() {
                break;
            }
            // Where entries expire, this may be one that has.
            if self.context.horizon > 0 || !self.knows_gaps {
                continue;
            }
            if dead.add()
                && !gaps.is_empty()
                && let Some(Jump { start: gap_start, .. }) = gaps.jump(coming, at)
            {
                (dead.jumped, dead.since_jump) = (true, 0);
                self.back.last.pass(&gap_start);
                if let Err(error) = cursor.seek_before(&gap_start) {
                    cursor.drain_cost(&mut self.cost);
                    self.back.cursor = None;
                    return Err(error.into());
                }
            }
        }
        let gaps = &self.context.view.gaps;
        self.back.dead.over_backwards(gaps, self.back.last.get(), self.context.standpoint());
        Ok(Found::Nothing)
    }
}

/// Returns what the version at the cursor, which is not an operand, is for newer operands. In place of a value that is not read before it
/// is known to be needed, its table and the reference to it.
#[inline]
fn base_at(cursor: &MergeCursor, kind: Kind) -> (Base, Option<(Arc<OpenTable>, Slice)>) {
    match kind {
        Kind::Put => (Base::Value(cursor.pinned_value()), None),
        Kind::PutBlob => (Base::Nothing, Some((cursor.table().clone(), cursor.pinned_value()))),
        Kind::Delete | Kind::Merge => (Base::Nothing, None),
    }
}

/// Returns the item of a key whose newest visible version is the operand at the cursor. Leaves the cursor on the base
/// or behind the key.
#[cold]
fn merge_forward(
    cursor: &mut MergeCursor,
    blobs: &mut BlobScan,
    key: &[u8],
    cover: SeqNo,
    operator: Option<&dyn MergeOperator>,
    cost: &mut ReadCost,
) -> Result<(Slice, Slice), ReadError> {
    let pinned_key = cursor.pinned_key();
    let mut operands = Operands::new(Order::NewestFirst);
    let mut base = Base::Nothing;
    while cursor.valid() && cursor.key() == key && cursor.seq() >= cover {
        match cursor.kind() {
            Kind::Merge => operands.push(key, cursor.pinned_value(), operator),
            Kind::Put | Kind::PutBlob => {
                base = Base::Value(value_at(cursor, blobs, cost)?);
                break;
            }
            Kind::Delete => break,
        }
        cursor.next()?;
    }
    Ok((pinned_key, operands.resolve(key, &base, operator, cost)?))
}

/// Returns the value of the put at the cursor, which is the base of operands.
#[inline]
fn value_at(cursor: &MergeCursor, blobs: &mut BlobScan, cost: &mut ReadCost) -> Result<Slice, StorageError> {
    match cursor.kind() {
        Kind::PutBlob => blobs.read(cursor.table(), cursor.version().3, cost),
        _ => Ok(cursor.pinned_value()),
    }
}

/// Positions a cursor. If that fails, some of its sources may be prepared for a seek that did not happen: the cursor
/// must not be used again, and its cost so far is counted here.
fn counted(
    cursor: &mut MergeCursor,
    cost: &mut ReadCost,
    position: impl FnOnce(&mut MergeCursor) -> Result<(), StorageError>,
) -> Result<(), StorageError> {
    position(cursor).inspect_err(|_| cursor.drain_cost(cost))
}

/// What an iterator returns.
type Item = Result<(Slice, Slice), ReadError>;

/// Returns the key of an item for the record of what was read. After an error the whole rest counts as read.
fn key_of(item: &Option<Item>) -> Option<&[u8]> {
    match item {
        Some(Ok((key, _))) => Some(key),
        _ => None,
    }
}

impl Iter {
    #[cold]
    fn next_within(&mut self, mut within: Box<Within>) -> Option<Item> {
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
        let outcome = Outcome::of(&found);
        self.count(outcome);
        self.front.finished = outcome != Outcome::Item;
        self.front.failed = outcome == Outcome::Failed;
        found
    }

    /// Moves the back to the next committed item.
    #[inline]
    fn find_back(&mut self) -> Result<Found, ReadError> {
        if self.back.finished {
            return Ok(Found::Nothing);
        }
        let found = self.backward();
        let outcome = Outcome::of(&found);
        self.count(outcome);
        self.back.finished = outcome != Outcome::Item;
        self.back.failed = outcome == Outcome::Failed;
        found
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

impl Iter {
    /// Takes up to `limit` items from the front, and tells what that touched; all but the filter.
    pub(crate) fn explain(mut self, limit: usize) -> Result<RangeExplanation, ReadError> {
        let (mut entries, mut last) = (0, None);
        for item in self.by_ref().take(limit) {
            last = Some(item?.0.to_vec());
            entries += 1;
        }
        let mut costs = Vec::new();
        if let Some(cursor) = &mut self.front.cursor {
            cursor.drain_each(&mut costs);
            cursor.drain_cost(&mut self.cost);
        }
        for &cost in &costs {
            self.cost = self.cost + cost;
        }
        let Bounds { start, end } = std::mem::take(&mut self.bounds);
        let View { memtables, version, .. } = &*self.context.view;
        let mut sources = Vec::new();
        for (i, slot) in memtables.iter().enumerate() {
            sources.push(RangeSource::Memtable {
                active: i == 0,
                entries: slot.memtable.entries() as u64,
                in_range: slot.memtable.estimate(&start, end.as_deref()) as u64,
            });
        }
        let mut costs = costs.into_iter();
        for run in &version.runs {
            let cost = match run.tables.is_empty() {
                true => ReadCost::default(),
                false => costs.next().unwrap_or_default(),
            };
            let reach = |table: &&Arc<OpenTable>| {
                table.meta.largest.reaches(&start)
                    && end.as_deref().is_none_or(|end| table.meta.smallest[..] < *end)
            };
            sources.push(RangeSource::Run {
                level: run.level,
                run: run.id,
                tables: version.tables[run.tables.clone()].iter().filter(reach).count(),
                seeks: cost.seeks,
                blocks: cost.block_reads,
                bytes: cost.bytes_read,
            });
        }
        let cost = std::mem::take(&mut self.cost);
        Ok(RangeExplanation { start, end, filter: String::new(), sources, entries, last, cost })
    }
}

impl Iterator for Iter {
    type Item = Result<(Slice, Slice), ReadError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self.within.take() {
            None => self.next_committed(),
            Some(within) => self.next_within(within),
        }
    }
}

impl DoubleEndedIterator for Iter {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        match self.within.take() {
            None => self.next_back_committed(),
            Some(within) => self.next_back_within(within),
        }
    }
}

impl std::iter::FusedIterator for Iter {}

impl Drop for Iter {
    fn drop(&mut self) {
        for cursor in [&mut self.front.cursor, &mut self.back.cursor].into_iter().flatten() {
            cursor.end_scan();
            cursor.drain_cost(&mut self.cost);
        }
        self.context.counters.add(&self.cost);
    }
}
