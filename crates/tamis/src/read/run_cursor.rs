//! A cursor over the tables of one run. It opens them one at a time, as late as possible.
//!
//! A table's smallest key or a range filter may show, without reading a block, that the next
//! version lies at or beyond some key. The cursor then takes a *lazy* position there (`LazyAt`): it
//! takes part in a merge with that key, and opens its table only when the merge gets there. A run
//! without versions before the end of the iteration is never opened.
//!
//! Where table reads overlap, the cursor is also lazy (`LazyAtEdge`) between two blocks of an open
//! table. The index bounds what follows, and the next blocks of several runs are read together (see
//! [`together`](super::merge)).
//!
//! Under a global filter, a cursor may also be lazy without a position (`Unopened`): the filter
//! excluded the run from the key range that the merge goes through (see [`lazy`](super::merge)).
//!
//! # Invariants
//! * The key of a lazy position is a bound: no remaining version of the run lies before it (behind
//!   it, when moving backwards).
//! * Every move but a seek leads strictly onward in the direction of the merge, or ends, whatever
//!   the tables' bytes: from a version or a lazy position to one behind it ([`RunCursor::place`]).
//!   So does [`leave`](RunCursor::leave), which seeks from where it is. Debug builds check every
//!   move.
//! * The bounds of the iteration hold for the cursor's whole life, so tables skipped because of
//!   them stay skipped at the next seek.

use std::ops::Range;

use tamis_base::key::{KeyEnd, MAX_SEQNO, SeqNo};
use tamis_files::table::{EntryIndex, TableCursor, TouchCounts, is_beyond};
use tamis_filter::Next;

use crate::error::StorageError;
use crate::observe::cost::ReadCost;
use crate::read::covers::{Border, Covers};
use crate::read::start::MergeStart;

mod context;
mod tables;

use context::Counts;
pub(crate) use context::{RunContext, Until};
pub(crate) use tables::RunTables;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Position {
    /// Nothing left in this direction.
    Done,
    /// Lazy, without a position.
    Unopened,
    /// Lazy at this table, at or beyond `lazy_key`.
    LazyAt(usize),
    /// Lazy in this table, below `lazy_key`; backwards only.
    LazyBelow(usize),
    /// Lazy in the open table: between two of its blocks, with the rest at or beyond `lazy_key`.
    LazyAtEdge,
    /// In the open table.
    Open,
}

/// Why the table being opened, or the table of a lazy position, was not skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Admitted {
    /// No filter was probed.
    Unasked,
    /// The table's own filter admitted it.
    ByTable,
    /// The global filter listed the run.
    ByTree,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct RunCursor {
    tables: Range<usize>,
    position: Position,
    lazy_key: Vec<u8>,
    /// The table of `cursor`.
    at: usize,
    cursor: Option<TableCursor>,
    /// Counts of cursors over earlier tables.
    touched: TouchCounts,
    counts: Counts,
    admitted: Admitted,
    /// Whether the lazy position's table is prepared for a seek to its key.
    prepared: bool,
    /// Whether any table was opened.
    opened: bool,
}

impl RunCursor {
    /// Returns a cursor over a non-empty range of the merge's tables.
    pub(crate) fn new(tables: Range<usize>) -> Self {
        RunCursor {
            at: tables.start,
            tables,
            position: Position::Done,
            lazy_key: Vec::new(),
            cursor: None,
            touched: TouchCounts::default(),
            counts: Counts::default(),
            admitted: Admitted::Unasked,
            prepared: false,
            opened: false,
        }
    }

    /// Reports whether there is a position, lazy or not.
    pub(crate) fn valid(&self) -> bool {
        !matches!(self.position, Position::Done | Position::Unopened)
    }

    #[inline]
    pub(crate) fn is_lazy(&self) -> bool {
        matches!(self.position, Position::LazyAt(_) | Position::LazyBelow(_) | Position::LazyAtEdge)
    }

    pub(crate) fn is_unopened(&self) -> bool {
        self.position == Position::Unopened
    }

    /// Returns the key at the position, or a lazy position's bound.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        match self.position {
            Position::LazyAt(_) | Position::LazyBelow(_) | Position::LazyAtEdge => &self.lazy_key,
            _ => self.current().key(),
        }
    }

    /// Returns the sequence number at the position. A lazy position comes before all versions of
    /// its key: forwards it comes first; backwards, where the oldest version comes first, it counts
    /// as older than any. A lazy position below the key comes after them.
    #[inline]
    pub(crate) fn seq(&self, backward: bool) -> SeqNo {
        match self.position {
            Position::LazyAt(_) | Position::LazyAtEdge if backward => 0,
            Position::LazyAt(_) | Position::LazyAtEdge => MAX_SEQNO,
            Position::LazyBelow(_) => SeqNo::MAX,
            _ => self.current().seq(),
        }
    }

    /// Returns the open table's cursor. The position must not be lazy.
    #[inline]
    pub(crate) fn current(&self) -> &TableCursor {
        self.cursor.as_ref().expect("a position in an open table")
    }

    /// Returns the key at the position, unless it is lazy or missing.
    #[inline]
    pub(crate) fn open_key(&self) -> Option<&[u8]> {
        match (self.position, &self.cursor) {
            (Position::Open, Some(cursor)) => Some(cursor.key()),
            _ => None,
        }
    }

    /// Returns the number of the open table. The position must not be lazy.
    pub(crate) fn table(&self) -> usize {
        self.at
    }

    fn open(&mut self, context: &RunContext, table: usize) -> &mut TableCursor {
        if self.at != table || self.cursor.is_none() {
            self.retire();
            self.at = table;
            self.counts.opened += u64::from(!std::mem::replace(&mut self.opened, true));
            let mut cursor = TableCursor::new(context.all()[table].table.clone(), context.options);
            cursor.within(&context.start, context.end.as_deref());
            cursor.defer();
            self.cursor = Some(cursor);
        }
        self.cursor.as_mut().expect("just opened")
    }

    fn retire(&mut self) {
        if let Some(mut cursor) = self.cursor.take() {
            self.touched.add(&cursor.take_counts());
        }
    }

    /// Moves the cost since the last call into `cost`.
    pub(crate) fn drain_cost(&mut self, cost: &mut ReadCost) {
        if let Some(cursor) = &mut self.cursor {
            self.touched.add(&cursor.take_counts());
        }
        cost.add_touched(&std::mem::take(&mut self.touched));
        self.counts.drain(cost);
    }

    fn park(&mut self, table: usize, key: &[u8]) {
        self.lazy_key.clear();
        self.lazy_key.extend_from_slice(key);
        self.position = Position::LazyAt(table);
    }

    /// Takes a lazy position at the first table from `table` on, if the iteration gets there.
    fn park_at_start_of(&mut self, context: &RunContext, table: usize) {
        (self.position, self.admitted) = (Position::Done, Admitted::Unasked);
        if table < self.tables.end {
            let smallest = &context.all()[table].meta.smallest;
            if !context.ends_before(smallest) {
                self.park(table, smallest);
            }
        }
    }

    /// Takes a lazy position at the end of the last table before `table`, if the iteration gets
    /// there. That table must have an end: only the last table of a run may lack one.
    fn park_at_end_before(&mut self, context: &RunContext, table: usize) {
        (self.position, self.admitted) = (Position::Done, Admitted::Unasked);
        if table > self.tables.start {
            let largest = &context.all()[table - 1].meta.largest;
            if let KeyEnd::Included(key) | KeyEnd::Excluded(key) = largest
                && largest.reaches(&context.start)
            {
                self.park(table - 1, key);
            }
        }
    }

    /// Drops any position until the cursor is activated.
    pub(crate) fn sleep(&mut self) {
        // A table prepared for one seek must not be sought elsewhere.
        if std::mem::take(&mut self.prepared) {
            self.retire();
        }
        self.position = Position::Unopened;
    }

    /// Drops the position, and any prepared seek that did not happen.
    pub(crate) fn reset(&mut self) {
        self.retire();
        self.position = Position::Done;
    }

    /// Activates the cursor: [`prepare`](RunCursor::prepare)s a seek to `from`, where the run's
    /// keys may begin according to the global filter.
    pub(crate) fn wake_at(&mut self, context: &RunContext, from: &[u8]) -> Result<(), StorageError> {
        self.prepare(context, from)?;
        self.admitted = Admitted::ByTree;
        Ok(())
    }

    /// Activates the cursor: takes a lazy position at `bound`. According to the global filter the
    /// run has nothing before `bound`, which lies before the end of the iteration.
    pub(crate) fn wake_from(&mut self, context: &RunContext, bound: &[u8]) {
        let table = context.first_reaching(&self.tables, bound);
        if table == self.tables.end || context.starts_after(table, bound) {
            self.park_at_start_of(context, table);
        } else {
            self.park(table, bound);
        }
        self.admitted = Admitted::ByTree;
    }

    /// Records that no filter listed the run just activated.
    pub(crate) fn was_not_listed(&mut self) {
        self.admitted = Admitted::Unasked;
    }

    /// Reports whether the last seek, or a move after it, had to look into a table.
    pub(crate) fn was_needed(&self) -> bool {
        matches!(self.position, Position::Open | Position::LazyAtEdge)
    }

    /// Starts fetching the blocks that opening the lazy position's table will read.
    pub(crate) fn prepare_lazy(&mut self, context: &RunContext, backward: bool) -> Result<(), StorageError> {
        if !self.is_elsewhere() {
            return Ok(());
        }
        let (table, below) = match self.position {
            Position::LazyAt(table) => (table, false),
            Position::LazyBelow(table) => (table, true),
            _ => return Ok(()),
        };
        let key = std::mem::take(&mut self.lazy_key);
        let cursor = self.open(context, table);
        let prepared = match (backward, below) {
            (false, _) => cursor.prepare(&key),
            (true, true) => cursor.prepare_before(Some(&key)),
            (true, false) => cursor.prepare_before(None),
        };
        self.lazy_key = key;
        self.prepared = true;
        prepared
    }

    /// Forgets that the lazy position's table was prepared.
    fn unprepare(&mut self) {
        if std::mem::take(&mut self.prepared)
            && let Some(cursor) = &mut self.cursor
        {
            cursor.unprepare();
        }
    }

    /// Reports whether the position is lazy, in a table not prepared for it.
    pub(crate) fn is_elsewhere(&self) -> bool {
        !self.prepared && matches!(self.position, Position::LazyAt(_) | Position::LazyBelow(_))
    }

    /// Activates the cursor: takes a lazy position below `bound`. According to the global filter
    /// the run has nothing at or behind `bound`. Without a bound, the position is at the end of the
    /// run, or in its last table if that has no end.
    pub(crate) fn wake_below(
        &mut self,
        context: &RunContext,
        bound: Option<&[u8]>,
    ) -> Result<(), StorageError> {
        let Some(bound) = bound else { return self.park_last(context, Admitted::ByTree) };
        match self.reaching_from_below(context, bound) {
            Ok(table) => {
                self.park(table, bound);
                self.position = Position::LazyBelow(table);
            }
            Err(after) => self.park_at_end_before(context, after),
        }
        self.admitted = Admitted::ByTree;
        Ok(())
    }

    /// The first half of a seek to `key`: finds the table to open, if any, and starts fetching what
    /// the second half, [`RunCursor::seek`], will read.
    pub(crate) fn prepare(&mut self, context: &RunContext, key: &[u8]) -> Result<(), StorageError> {
        self.unprepare();
        let table = context.first_reaching(&self.tables, key);
        if table == self.tables.end || context.starts_after(table, key) {
            self.park_at_start_of(context, table);
            return Ok(());
        }
        self.admitted = Admitted::Unasked;
        let asked_before = self.counts.probes;
        let next = context.next(table, key, &mut self.counts);
        if self.counts.probes > asked_before {
            self.admitted = Admitted::ByTable;
        }
        match next {
            Next::Nothing => self.park_at_start_of(context, table + 1),
            Next::NotBelow(next) if next[..] > *key && context.ends_before(&next) => {
                self.position = Position::Done
            }
            Next::NotBelow(next) if next[..] > *key => self.park(table, &next),
            Next::NotBelow(_) | Next::Unknown => {
                self.position = Position::Open;
                self.open(context, table).prepare(key)?;
            }
        }
        Ok(())
    }

    /// Returns the cursor over the position's table, unless the table is still to be opened.
    pub(crate) fn reading(&mut self) -> Option<&mut TableCursor> {
        let here = self.valid() && !self.is_elsewhere();
        self.cursor.as_mut().filter(|_| here)
    }

    /// Moves to the first version at or after (`key`, `seq`). [`RunCursor::prepare`] for this key
    /// comes first.
    pub(crate) fn seek(&mut self, context: &RunContext, key: &[u8], seq: SeqNo) -> Result<(), StorageError> {
        if self.position != Position::Open {
            return Ok(());
        }
        self.counts.seeks += 1;
        let table = self.at;
        let cursor = self.open(context, table);
        cursor.seek(key, seq)?;
        self.opened(context, false);
        Ok(())
    }

    /// Returns the last table that starts before `key` if it reaches `key`. Otherwise returns, as
    /// an error, the first table behind it.
    fn reaching_from_below(&self, context: &RunContext, key: &[u8]) -> Result<usize, usize> {
        let all = context.all();
        let run = &all[self.tables.clone()];
        let after = self.tables.start + run.partition_point(|t| t.meta.smallest[..] < *key);
        if after == self.tables.start || !all[after - 1].meta.largest.reaches(key) {
            return Err(after);
        }
        Ok(after - 1)
    }

    /// The first half of a backward seek below `key`, like [`prepare`](RunCursor::prepare). The
    /// second half is [`RunCursor::seek_before`].
    pub(crate) fn prepare_before(&mut self, context: &RunContext, key: &[u8]) -> Result<(), StorageError> {
        self.unprepare();
        let table = match self.reaching_from_below(context, key) {
            Ok(table) => table,
            Err(after) => {
                self.park_at_end_before(context, after);
                return Ok(());
            }
        };
        self.admitted = Admitted::Unasked;
        let asked_before = self.counts.probes;
        if context.denies_before(table, key, &mut self.counts) {
            self.park_at_end_before(context, table);
            return Ok(());
        }
        if self.counts.probes > asked_before {
            self.admitted = Admitted::ByTable;
        }
        self.position = Position::Open;
        self.open(context, table).prepare_before(Some(key))
    }

    /// Moves to the last version of the last key before `key`. [`RunCursor::prepare_before`] for
    /// this key comes first.
    pub(crate) fn seek_before(&mut self, context: &RunContext, key: &[u8]) -> Result<(), StorageError> {
        if self.position != Position::Open {
            return Ok(());
        }
        self.counts.seeks += 1;
        let table = self.at;
        self.open(context, table).seek_before(key)?;
        self.opened(context, true);
        Ok(())
    }

    /// The first half of a move to `start`, or the whole of it if it has no halves.
    pub(crate) fn prepare_for(
        &mut self,
        context: &RunContext,
        start: MergeStart<'_>,
    ) -> Result<(), StorageError> {
        match start {
            MergeStart::At(key, _) => self.prepare(context, key),
            MergeStart::Before(Some(key)) => self.prepare_before(context, key),
            MergeStart::Before(None) => self.park_last(context, Admitted::Unasked),
        }
    }

    /// The second half.
    pub(crate) fn seek_for(
        &mut self,
        context: &RunContext,
        start: MergeStart<'_>,
    ) -> Result<(), StorageError> {
        match start {
            MergeStart::At(key, seq) => self.seek(context, key, seq),
            MergeStart::Before(Some(key)) => self.seek_before(context, key),
            MergeStart::Before(None) => Ok(()),
        }
    }

    fn park_last(&mut self, context: &RunContext, admitted: Admitted) -> Result<(), StorageError> {
        self.unprepare();
        if context.all()[self.tables.end - 1].meta.largest != KeyEnd::Unbounded {
            self.park_at_end_before(context, self.tables.end);
            self.admitted = admitted;
            return Ok(());
        }
        self.counts.seeks += 1;
        self.open(context, self.tables.end - 1).seek_to_last()?;
        self.admitted = admitted;
        self.opened(context, true);
        Ok(())
    }

    /// Returns the cursor's table and its place there, to compare with other places of the run. A
    /// lazy position at a table comes before all places in it.
    pub(crate) fn place(&self, backward: bool) -> Option<(usize, EntryIndex)> {
        match self.position {
            Position::Done | Position::Unopened => None,
            Position::LazyAt(table) if !backward => Some((table, (0, 0))),
            Position::LazyAt(table) | Position::LazyBelow(table) => Some((table, (usize::MAX, usize::MAX))),
            Position::LazyAtEdge | Position::Open => Some((self.at, self.cursor.as_ref()?.place()?)),
        }
    }

    /// In debug builds, checks that a move leads on.
    #[inline]
    fn moving(
        &mut self,
        backward: bool,
        step: impl FnOnce(&mut Self) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let from = if cfg!(debug_assertions) { self.place(backward) } else { None };
        step(self)?;
        debug_assert!(
            from.zip(self.place(backward)).is_none_or(|(from, to)| is_beyond(from, to, backward)),
            "a run does not move: from {from:?} to {:?}",
            self.place(backward)
        );
        Ok(())
    }

    /// Moves from a lazy position to a version, to another lazy position, or to none.
    pub(crate) fn unpark(&mut self, context: &RunContext, backward: bool) -> Result<(), StorageError> {
        self.moving(backward, |run| run.open_parked(context, backward))
    }

    fn open_parked(&mut self, context: &RunContext, backward: bool) -> Result<(), StorageError> {
        let (table, below) = match self.position {
            Position::LazyAt(table) => (table, false),
            Position::LazyBelow(table) => (table, true),
            Position::LazyAtEdge => {
                self.open_cursor().resume()?;
                self.opened(context, backward);
                return Ok(());
            }
            _ => return Ok(()),
        };
        self.prepared = false;
        self.counts.seeks += 1;
        let key = std::mem::take(&mut self.lazy_key);
        let cursor = self.open(context, table);
        let sought = match (backward, below) {
            (false, _) => cursor.seek(&key, MAX_SEQNO),
            (true, true) => cursor.seek_before(&key),
            // Backwards, a lazy position not below a key is at the end of a table.
            (true, false) => cursor.seek_to_last(),
        };
        self.lazy_key = key;
        sought?;
        self.opened(context, backward);
        Ok(())
    }

    #[inline]
    fn open_cursor(&mut self) -> &mut TableCursor {
        self.cursor.as_mut().expect("a position in an open table")
    }

    /// Moves within the open table, from a version of `key` to the first version at or after
    /// (`key`, `seq`). Behind all versions of `key` the cursor may have no version until it moves
    /// on.
    pub(crate) fn seek_within(&mut self, key: &[u8], seq: SeqNo) -> Result<(), StorageError> {
        self.open_cursor().seek(key, seq)
    }

    /// Reports whether the open table's cursor is on a version of `key`.
    #[inline]
    pub(crate) fn is_within(&self, key: &[u8]) -> bool {
        self.cursor.as_ref().is_some_and(|cursor| cursor.valid() && cursor.key() == key)
    }

    /// Moves to the next version of the open table, or to none.
    pub(crate) fn next_within(&mut self) -> Result<(), StorageError> {
        let cursor = self.open_cursor();
        cursor.next()?;
        cursor.resume()
    }

    /// Leaves a version of `key`, or the place behind them all, for the next version in the
    /// direction of the merge. Forwards, that is the first version at or after (`key`, `seq`),
    /// which must lie behind the current one; backwards, the last version before all of `key`.
    pub(crate) fn leave(
        &mut self,
        context: &RunContext,
        key: &[u8],
        seq: SeqNo,
        backward: bool,
    ) -> Result<(), StorageError> {
        self.moving(backward, |run| {
            let cursor = run.open_cursor();
            if backward {
                cursor.pass_before(key)?;
            } else {
                cursor.pass(key, seq)?;
            }
            run.settle(context, backward);
            Ok(())
        })
    }

    /// If range tombstones newer than the whole table cover the current key, moves forwards past
    /// the keys they cover. Returns whether they do. Opens no table.
    pub(crate) fn pass_deleted_forward(
        &mut self,
        context: &RunContext,
        covers: &Covers,
    ) -> Result<bool, StorageError> {
        let mut at = self.at;
        while at < self.tables.end {
            let meta = &context.all()[at].meta;
            let is_open = at == self.at;
            if !is_open && context.ends_before(&meta.smallest) {
                break;
            }
            let from = if is_open { self.current().key() } else { &meta.smallest };
            match covers.reach(from, meta.max_seq, false) {
                None if is_open => return Ok(false),
                None => break,
                Some(Border::At(key)) if meta.largest.reaches(&key) => {
                    if is_open {
                        self.leave(context, &key, MAX_SEQNO, false)?;
                    } else if context.ends_before(&key) {
                        self.position = Position::Done;
                    } else {
                        (self.admitted, self.prepared) = (Admitted::Unasked, false);
                        self.park(at, &key);
                    }
                    return Ok(true);
                }
                Some(_) => at += 1,
            }
        }
        self.park_at_start_of(context, at);
        Ok(true)
    }

    /// The same, backwards.
    pub(crate) fn pass_deleted_backward(
        &mut self,
        context: &RunContext,
        covers: &Covers,
    ) -> Result<bool, StorageError> {
        let mut at = self.at;
        loop {
            let meta = &context.all()[at].meta;
            let is_open = at == self.at;
            if !is_open && !meta.largest.reaches(&context.start) {
                break;
            }
            let border = match &meta.largest {
                _ if is_open => covers.reach(self.current().key(), meta.max_seq, true),
                KeyEnd::Included(last) => covers.reach(last, meta.max_seq, true),
                _ => None,
            };
            match border {
                None if is_open => return Ok(false),
                None => break,
                Some(Border::At(key)) if key > meta.smallest => {
                    if is_open {
                        self.leave(context, &key, 0, true)?;
                    } else if *key <= context.start[..] {
                        self.position = Position::Done;
                    } else {
                        (self.admitted, self.prepared) = (Admitted::Unasked, false);
                        self.park(at, &key);
                        self.position = Position::LazyBelow(at);
                    }
                    return Ok(true);
                }
                Some(_) if at == self.tables.start => {
                    self.position = Position::Done;
                    return Ok(true);
                }
                Some(_) => at -= 1,
            }
        }
        self.park_at_end_before(context, at + 1);
        Ok(true)
    }

    #[inline]
    pub(crate) fn next(&mut self, context: &RunContext) -> Result<(), StorageError> {
        self.moving(false, |run| {
            let cursor = run.open_cursor();
            cursor.next()?;
            if !cursor.valid() {
                run.settle(context, false);
            }
            Ok(())
        })
    }

    #[inline]
    pub(crate) fn prev(&mut self, context: &RunContext) -> Result<(), StorageError> {
        self.moving(true, |run| {
            let cursor = run.open_cursor();
            cursor.prev()?;
            if !cursor.valid() {
                run.settle(context, true);
            }
            Ok(())
        })
    }

    /// Called after a seek in the open table: counts it, and moves on if the table has nothing.
    fn opened(&mut self, context: &RunContext, backward: bool) {
        let admitted = std::mem::replace(&mut self.admitted, Admitted::Unasked);
        let key = self.cursor.as_ref().filter(|cursor| cursor.valid()).map(TableCursor::key);
        let found = match backward {
            // Without an end, anything that comes next is within the bounds.
            false if context.end.is_none() => true,
            false => key.is_some_and(|key| !context.ends_before(key)),
            true => key.is_some_and(|key| *key >= context.start[..]),
        };
        self.settle(context, backward);
        self.count_false_positive(context, admitted, found, backward);
    }

    /// Counts a table (`found`: within the bounds) or a run (within the range) that was opened in
    /// vain.
    fn count_false_positive(
        &mut self,
        context: &RunContext,
        admitted: Admitted,
        found: bool,
        backward: bool,
    ) {
        if self.position == Position::LazyAtEdge {
            // Not known until it moves on.
            self.admitted = admitted;
            return;
        }
        let vain = match admitted {
            Admitted::Unasked => false,
            Admitted::ByTable => !found,
            Admitted::ByTree => !(self.valid() && context.stretch_reaches(self.key(), backward)),
        };
        self.counts.false_positives += u64::from(vain);
    }

    /// Moves on from a table without further entries (it may hold only range tombstones).
    fn settle(&mut self, context: &RunContext, backward: bool) {
        if self.cursor.as_ref().is_some_and(TableCursor::valid) {
            self.position = Position::Open;
        } else if let Some(bound) = self.cursor.as_ref().and_then(TableCursor::deferred_bound) {
            let is_over = if backward { bound < context.start } else { context.ends_before(&bound) };
            match is_over {
                true => self.position = Position::Done,
                false => self.park_at_edge(&bound),
            }
        } else if backward {
            self.park_at_end_before(context, self.at);
        } else {
            self.park_at_start_of(context, self.at + 1);
        }
    }

    fn park_at_edge(&mut self, bound: &[u8]) {
        self.lazy_key.clear();
        self.lazy_key.extend_from_slice(bound);
        self.position = Position::LazyAtEdge;
    }

    /// In debug builds, checks the global filter's claim that the run has nothing from `from` up to
    /// `to`.
    pub(crate) fn check_gap(&self, context: &RunContext, from: &[u8], to: Option<&[u8]>) {
        if !cfg!(debug_assertions) {
            return;
        }
        for table in &context.all()[context.first_reaching(&self.tables, from)..self.tables.end] {
            let mut cursor = TableCursor::new(table.table.clone(), context.options);
            // An unreadable table is the reader's error to report, not the filter's.
            if cursor.seek(from, MAX_SEQNO).is_ok() && cursor.valid() {
                assert!(
                    to.is_some_and(|to| cursor.key() >= to),
                    "the global filter denies {:?} of table {} between {from:?} and {to:?}",
                    cursor.key(),
                    table.meta.id
                );
                return;
            }
        }
    }
}
