//! The public iterator: keys in order, one visible version each.
//!
//! An iteration is a pipeline of stages, and each moves the one before it:
//! 1. [`MergeCursor`] merges the versions of all sources.
//! 2. `resolve` finds the version of each key that the reader sees.
//! 3. `skip` passes the keys without a value.
//! 4. [`Iter`] keeps the two ends apart, counts, and lends or pins what was found.
//! 5. In a transaction, [`Overlay`] lays its own writes over the items.
//!
//! All but the second are written once for both directions, as functions of the constant `BACK`.

use std::sync::Arc;
use std::time::Instant;

use end::{End, Way};
use reader::Reader;
use tamis_base::key::MAX_SEQNO;
use tamis_files::table::CursorOptions;

use crate::error::ReadError;
use crate::observe::Explained;
use crate::observe::latency::Operation;
use crate::read::bounds::Bounds;
use crate::read::gaps::{DeadKeys, Jump};
use crate::read::iter::end::Outcome;
use crate::read::iter::reader::IterContext;
use crate::read::life::Ended;
use crate::read::merge::{MergeCursor, RunTables};
use crate::read::overlay::Overlay;
use crate::read::watch::RangeRead;
use crate::slice::Slice;
use crate::sync::Process;

mod end;
mod explain;
mod keys;
mod last;
mod moving;
pub(crate) mod reader;
mod resolve;
mod skip;

pub use keys::Keys;

/// The most dead keys that the explanation of a slow seek steps over.
const SLOW_STEPS: u64 = 10_000;

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
/// let db = tamis::Db::open(dir.path())?;
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
    reader: Reader,
    bounds: Bounds,
    /// Where the last [`seek`](Iter::seek) placed the front. The back does not go below it.
    floor: Option<Vec<u8>>,
    /// Whether nothing was found since an end was positioned.
    empty: bool,
    /// The process that opened the database.
    process: Process,
    front: End,
    back: End,
    /// The last positioning, if timed or sampled as a query; until its first item is known.
    sampled: Option<Sample>,
    /// In a transaction: its own writes, and the record of its reads.
    within: Option<Box<Within>>,
}

debug_as!(Iter, "Iter", iter => "keys_only": iter.reader.keys_only, "transaction": iter.within.is_some(), "empty": iter.empty);

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

/// A positioning to record.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Whether the back was positioned.
    back: bool,
    /// Whether it counts as one of the keyspace's queries.
    is_query: bool,
    /// The start time, if timed.
    started: Option<Instant>,
}

/// What a move of an end found. The key is the end's last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Nothing,
    /// The version under the end's cursor.
    Here,
    /// The item that the reader made.
    Made,
}

impl Iter {
    pub(crate) fn new(context: IterContext, bounds: Bounds) -> Iter {
        Iter {
            process: context.counters.process(),
            reader: Reader::new(context),
            bounds,
            floor: None,
            empty: true,
            front: End::default(),
            back: End::default(),
            sampled: None,
            within: None,
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
    pub(crate) fn set_dropped(&mut self, dropped: bool) {
        self.reader.context.dropped = dropped;
    }

    /// Ends the iteration at each end after `dead_keys` keys without a value.
    pub(crate) fn with_patience(mut self, dead_keys: u64) -> Iter {
        (self.front.dead.limit, self.back.dead.limit) = (dead_keys, dead_keys);
        self
    }

    /// Called after an end was positioned, with the start time if timed.
    #[inline]
    fn positioned(&mut self, back: bool, started: Option<Instant>) {
        let is_query = self.reader.context.counters.samples_scan();
        self.sampled = (is_query || started.is_some()).then_some(Sample { back, is_query, started });
    }

    /// Records the last positioning once its result is known: its time, and the keyspace's query.
    #[cold]
    fn record(&mut self, Sample { back, is_query, started }: Sample) {
        if let Some(started) = started {
            self.timed(started, back);
        }
        if !is_query {
            return;
        }
        let Some(queries) = self.reader.context.counters.queries() else { return };
        let start = self.floor.as_ref().unwrap_or(&self.bounds.start);
        match &self.bounds.end {
            Some(end) => queries.record_range(start, Some(end), self.empty),
            None if back && !start.is_empty() => {
                queries.record_range(start, None, self.empty);
            }
            None => queries.record_seek(start),
        }
    }

    fn cursor(&self) -> Result<Box<MergeCursor>, ReadError> {
        let IterContext { view, counters, dropped, .. } = &self.reader.context;
        if *dropped {
            return Err(ReadError::Dropped { name: counters.keyspace().to_owned() });
        }
        let sources = view.version.runs.len() + 1 + view.memtables.sealed.len();
        let mut cursor =
            Box::new(MergeCursor::new(RunTables::Of(view.clone()), CursorOptions::default(), sources));
        cursor.set_bounds(&self.bounds.start, self.bounds.end.as_deref());
        for slot in view.memtables.iter().filter(|slot| !slot.memtable.is_empty()) {
            cursor.add_memtable(slot.memtable.cursor());
        }
        for run in &view.version.runs {
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
    /// # let db = tamis::Db::open(dir.path())?;
    /// # for key in ["a", "b", "c"] { db.put(key, "value")?; }
    /// let mut iter = db.iter();
    /// iter.seek("bb")?;
    /// assert_eq!(iter.next().expect("an item")?.0, "c");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<(), ReadError> {
        if !self.process.is_current() {
            return Err(self.reader.context.counters.forked());
        }
        if self.within.as_ref().is_some_and(|within| within.ended.is_so()) {
            return Err(ReadError::Ended);
        }
        let started = self.reader.context.counters.starts();
        let sought = self.seek_committed(key.as_ref());
        if let Some(started) = started {
            self.timed(started, false);
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
        let mut cursor = self.front.cursor.take();
        if self.front.failed
            && let Some(mut failed) = cursor.take()
        {
            failed.drain_cost(&mut self.reader.cost);
        }
        self.front = End { finished: true, failed: true, ..End::default() };
        self.front.cursor = Some(match cursor {
            Some(cursor) => cursor,
            None => self.cursor()?,
        });
        self.empty = true;
        self.floor = Some(key.max(&self.bounds.start[..]).to_vec());
        self.seek_front()?;
        // The caller times it: the program may do other work before the first item.
        self.positioned(false, None);
        (self.front.finished, self.front.failed) = (false, false);
        self.back.finished = self.back.failed;
        Ok(())
    }

    /// Positions an end before its first item.
    fn position<const BACK: bool>(&mut self) -> Result<(), ReadError> {
        let started = self.reader.context.counters.starts();
        let cursor = Some(self.cursor()?);
        if BACK {
            self.back.cursor = cursor;
            self.seek_back()?;
        } else {
            self.front.cursor = cursor;
            self.seek_front()?;
        }
        self.positioned(BACK, started);
        Ok(())
    }

    /// Moves the front's cursor to where the front begins: behind the gap there, if any.
    fn seek_front(&mut self) -> Result<(), ReadError> {
        self.reader.cost.scans += 1;
        let Iter { front, back, reader, bounds, floor, .. } = self;
        let start = floor.as_ref().unwrap_or(&bounds.start);
        let end = back.last.get().or(bounds.end.as_deref());
        let mut leap = None;
        if let Some(Jump { start, end: Some(target) }) = reader.gap_at(start)
            && end.is_none_or(|end| &target[..] < end)
        {
            front.dead = DeadKeys { jumped: true, near: Some(start), ..front.dead };
            leap = Some(target);
        }
        let target = leap.as_ref().unwrap_or(start);
        front.reposition(reader, |cursor| cursor.seek(target, MAX_SEQNO))
    }

    /// Moves the back's cursor to where the back begins.
    fn seek_back(&mut self) -> Result<(), ReadError> {
        self.reader.cost.scans += 1;
        let end = self.bounds.end.as_deref();
        let end = self.back.last.get().or(end).map(<[u8]>::to_vec);
        self.back.reposition(&mut self.reader, |cursor| match end {
            Some(end) => cursor.seek_before(&end),
            None => cursor.seek_to_last(),
        })
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
                self.reader.cost.entries += 1;
                self.empty = false;
            }
            // Once for each empty end.
            Outcome::End => self.reader.cost.empty_scans += u64::from(self.empty),
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
    fn next_within<const BACK: bool>(&mut self, mut within: Box<Within>) -> Option<Item> {
        if within.ended.is_so() {
            return self.within.insert(within).end();
        }
        let item = match &mut within.overlay {
            Some(overlay) => overlay.next::<BACK>(|| self.next_committed::<BACK>()),
            None => self.next_committed::<BACK>(),
        };
        match &within.watch {
            Some(watch) if BACK => watch.back(key_of(&item)),
            Some(watch) => watch.front(key_of(&item)),
            None => {}
        }
        self.within = Some(within);
        item
    }

    #[inline]
    fn end<const BACK: bool>(&self) -> &End {
        if BACK { &self.back } else { &self.front }
    }

    /// Moves an end to its next committed item.
    #[inline]
    fn find<const BACK: bool>(&mut self) -> Result<Found, ReadError> {
        if self.end::<BACK>().finished {
            return Ok(Found::Nothing);
        }
        let found = self.advance::<BACK>();
        let outcome = self.count(&found);
        if BACK { &mut self.back } else { &mut self.front }.conclude(outcome);
        found
    }

    #[inline]
    fn advance<const BACK: bool>(&mut self) -> Result<Found, ReadError> {
        if self.end::<BACK>().cursor.is_none() {
            self.position::<BACK>()?;
        }
        let Iter { front, back, reader, bounds, floor, .. } = self;
        let (start, end) = (floor.as_ref().unwrap_or(&bounds.start), bounds.end.as_deref());
        if BACK {
            let way = Way::backward(end, start, front.last.get());
            back.find::<true>(reader, &way)
        } else {
            let way = Way::forward(start, back.last.get().or(end));
            front.find::<false>(reader, &way)
        }
    }

    /// Records how long a positioning took.
    #[cold]
    fn timed(&self, started: Instant, back: bool) {
        let start = self.floor.as_ref().unwrap_or(&self.bounds.start);
        let key = if back { self.bounds.end.as_ref() } else { Some(start) };
        let context = &self.reader.context;
        let explain = || {
            // Explanations only go forwards.
            let explanation = if back {
                "backwards, from the end of the range".to_owned()
            } else {
                let context = IterContext { counters: Arc::default(), ..context.clone() };
                let bounds = Bounds { start: start.clone(), end: self.bounds.end.clone() };
                // The reader is waiting, so this is bounded.
                let again = Iter::new(context, bounds).with_patience(SLOW_STEPS).explain(1);
                again.map_or_else(|error| error.to_string(), |e| e.to_string())
            };
            let keyspace = context.counters.keyspace().to_owned();
            Explained { keyspace, key: key.cloned(), explanation }
        };
        context.counters.timed(Operation::Seek, started, explain);
    }

    /// The only item in a forked child: an error.
    #[cold]
    fn forked(&mut self) -> Option<Item> {
        let ended = std::mem::replace(&mut self.front.finished, true);
        self.back.finished = true;
        (!ended).then(|| Err(self.reader.context.counters.forked()))
    }

    /// Returns the next committed item of an end.
    #[inline]
    pub(super) fn next_committed<const BACK: bool>(&mut self) -> Option<Item> {
        match self.find::<BACK>() {
            Ok(Found::Nothing) => None,
            Ok(Found::Here) => Some(Ok(self.end::<BACK>().here().pinned_entry())),
            Ok(Found::Made) => Some(Ok(self.reader.take_made())),
            Err(error) => Some(Err(error)),
        }
    }

    #[inline]
    fn next_item<const BACK: bool>(&mut self) -> Option<Item> {
        if !self.process.is_current() {
            return self.forked();
        }
        if let Some(within) = self.within.take() {
            return self.next_within::<BACK>(within);
        }
        self.next_committed::<BACK>()
    }
}

impl Iterator for Iter {
    type Item = Result<(Slice, Slice), ReadError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.next_item::<false>()
    }
}

impl DoubleEndedIterator for Iter {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_item::<true>()
    }
}

impl std::iter::FusedIterator for Iter {}

impl Drop for Iter {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // Cursors and counters take locks that nothing in a forked child may release.
            let cursors = (self.front.cursor.take(), self.back.cursor.take());
            std::mem::forget((cursors, self.reader.context.view.clone()));
            return;
        }
        for cursor in [&mut self.front.cursor, &mut self.back.cursor].into_iter().flatten() {
            cursor.end_scan();
            cursor.drain_cost(&mut self.reader.cost);
        }
        self.reader.context.counters.add(&self.reader.cost);
    }
}
