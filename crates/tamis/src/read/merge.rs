//! Merges sorted sources into one sequence of versions.

use std::ops::Range;

use lazy::LazyRuns;
use smallvec::SmallVec;
use tamis_base::key::{Kind, MAX_SEQNO, SeqNo, compare_versions};
use tamis_files::table::CursorOptions;

use crate::error::StorageError;
use crate::memtable::MemCursor;
use crate::observe::cost::ReadCost;
use crate::read::blobs::Holder;
use crate::read::covers::{Border, Covers};
use crate::read::merge::source::{ASLEEP, MergeSource, Ranked, rank_of};
use crate::read::run_cursor::{RunContext, RunCursor};
use crate::read::start::MergeStart;
use crate::slice::Slice;

pub(crate) use crate::read::run_cursor::RunTables;

mod ahead;
mod lazy;
mod ranges;
mod source;
mod together;

pub(crate) use ahead::Ahead;

/// Applies an expression to a source's cursor at its position, which must not be lazy.
macro_rules! at {
    ($source:expr, $cursor:ident => $e:expr) => {
        match $source {
            MergeSource::Memtable($cursor) => $e,
            MergeSource::Run(run) => {
                let $cursor = run.current();
                $e
            }
            MergeSource::Asleep(_) => unreachable!("{ASLEEP}"),
        }
    };
}

/// A version without its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'c> {
    /// `prefix_of` the key.
    pub(crate) prefix: u64,
    pub(crate) key: &'c [u8],
    pub(crate) seq: SeqNo,
    pub(crate) kind: Kind,
}

/// Merges all versions of several sources in version order, forwards or backwards, with a binary
/// heap of sources.
///
/// Moves in one direction at a time: after a forward seek call only [`next`](MergeCursor::next),
/// after a backward seek only [`prev`](MergeCursor::prev), or a [`climb`](MergeCursor::climb) and
/// back. Cost on top of the sources' own: one comparison of two numbers per move while one source
/// supplies consecutive keys, otherwise O(log sources). Keys are compared only if their first eight
/// bytes are equal.
///
/// Invariant: every move but a seek leads strictly onward in this direction, or ends. The sources
/// guarantee this whatever their bytes ([`RunCursor`]), so every iteration ends. Debug builds check
/// it.
#[derive(Debug)]
pub(crate) struct MergeCursor {
    context: RunContext,
    sources: Vec<MergeSource>,
    /// The valid sources as a heap. The source of the next version is first.
    heap: Vec<Ranked>,
    /// The smallest rank of the sources behind the first; `u64::MAX` if there are none.
    runner_up: u64,
    backward: bool,
    /// Set if the tables belong to a version with a global filter.
    lazy_runs: Option<Box<LazyRuns>>,
    /// The current version and its source, to check the order of versions. Not in fuzzing builds,
    /// which open tables with bytes out of order.
    #[cfg(all(debug_assertions, not(feature = "fuzzing")))]
    trail: Option<(Vec<u8>, SeqNo, u32)>,
}

/// What a backward merge sets aside while it visits the versions of one key; see
/// [`MergeCursor::climb`].
#[derive(Debug)]
pub(crate) struct Climb {
    /// The sources on other keys.
    aside: Vec<Ranked>,
    /// The sources on the key.
    sources: SmallVec<[u32; 8]>,
}

impl MergeCursor {
    /// Returns a merge without sources, with capacity for `sources`.
    pub(crate) fn new(tables: RunTables, options: CursorOptions, sources: usize) -> Self {
        let lazy_runs = LazyRuns::of(&tables).map(Box::new);
        MergeCursor {
            context: RunContext {
                ahead: Ahead::of(&tables, &options),
                tables,
                options,
                start: Vec::new(),
                end: None,
                until: None,
            },
            sources: Vec::with_capacity(sources),
            heap: Vec::with_capacity(sources),
            runner_up: u64::MAX,
            backward: false,
            lazy_runs,
            #[cfg(all(debug_assertions, not(feature = "fuzzing")))]
            trail: None,
        }
    }

    /// Promises that no key before `start` or from `end` on will be requested. The merge may end
    /// there, and need not open runs without keys in between.
    pub(crate) fn set_bounds(&mut self, start: &[u8], end: Option<&[u8]>) {
        (self.context.start, self.context.end) = (start.to_vec(), end.map(<[u8]>::to_vec));
    }

    /// Returns the promised bounds: the first key, and the end (excluded).
    pub(crate) fn bounds(&self) -> (&[u8], Option<&[u8]>) {
        (&self.context.start, self.context.end.as_deref())
    }

    /// Adds a memtable. Add sources newest first.
    pub(crate) fn add_memtable(&mut self, cursor: MemCursor) {
        self.sources.push(MergeSource::Memtable(cursor));
    }

    /// Adds a run: a sorted, disjoint range of the merge's tables. Add sources newest first. If the
    /// tables belong to a version, the run is one of the version's runs or part of one, and no run
    /// is added twice.
    pub(crate) fn add_run(&mut self, tables: Range<usize>) {
        if !tables.is_empty() {
            if let (Some(lazy_runs), RunTables::Of(view)) = (&mut self.lazy_runs, &self.context.tables) {
                lazy_runs.add_run(&view.version, &tables, self.sources.len());
                return self.sources.push(MergeSource::Asleep(tables));
            }
            self.sources.push(MergeSource::Run(Box::new(RunCursor::new(tables))));
        }
    }

    /// Moves to the first version at or after (`key`, `seq`) in version order. The merge then goes
    /// forwards.
    pub(crate) fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<(), StorageError> {
        self.seek_to(MergeStart::At(key, seq))
    }

    pub(crate) fn seek_to_first(&mut self) -> Result<(), StorageError> {
        let first = self.context.start.clone();
        self.seek(&first, MAX_SEQNO)
    }

    /// Moves to the oldest version of the last key before `key`. The merge then goes backwards.
    pub(crate) fn seek_before(&mut self, key: &[u8]) -> Result<(), StorageError> {
        self.seek_to(MergeStart::Before(Some(key)))
    }

    pub(crate) fn seek_to_last(&mut self) -> Result<(), StorageError> {
        self.seek_to(MergeStart::Before(None))
    }

    fn seek_to(&mut self, start: MergeStart<'_>) -> Result<(), StorageError> {
        self.context.start_scan();
        if self.lazy_runs.is_some() {
            return self.start(start);
        }
        // On a forward seek to a later key, sources already there, or exhausted, need not move.
        let stays = |source: &MergeSource| match start {
            MergeStart::At(key, seq) => {
                !source.valid() || !(*source.key() < *key || (seq < MAX_SEQNO && *source.key() == *key))
            }
            MergeStart::Before(_) => false,
        };
        let ahead = match start {
            MergeStart::At(key, _) => !self.backward && self.valid() && *self.key() < *key,
            MergeStart::Before(_) => false,
        };
        let moving: SmallVec<[bool; 32]> =
            self.sources.iter().map(|source| !ahead || !stays(source)).collect();
        for (source, _) in self.sources.iter_mut().zip(&moving).filter(|(_, moves)| **moves) {
            if let MergeSource::Run(run) = source {
                run.prepare_for(&self.context, start)?;
            }
        }
        self.backward = start.is_backward();
        // From the end, nothing is prepared: blocks are read as the merge gets to them.
        if !matches!(start, MergeStart::Before(None)) {
            together::fetch_prepared(&mut self.context, &mut self.sources, self.backward);
        }
        self.heap.clear();
        for (i, (source, moves)) in self.sources.iter_mut().zip(moving).enumerate() {
            match source {
                MergeSource::Memtable(cursor) if moves => start.seek_in(cursor),
                MergeSource::Run(run) if moves => run.seek_for(&self.context, start)?,
                _ => {}
            }
            if source.valid() {
                self.heap.push(Ranked { rank: rank_of(source.key(), self.backward), source: i as u32 });
            }
        }
        self.heapify();
        self.unpark_top()?;
        self.arrived(false);
        Ok(())
    }

    fn heapify(&mut self) {
        for i in (0..self.heap.len() / 2).rev() {
            self.sift_down(i);
        }
        self.find_runner_up();
    }

    #[inline]
    fn find_runner_up(&mut self) {
        self.runner_up = match &self.heap[..] {
            [_, a, b, ..] => a.rank.min(b.rank),
            [_, a] => a.rank,
            _ => u64::MAX,
        };
    }

    /// Opens lazy sources at the top of the heap until a version is there, or nothing remains
    /// before the end. At the end of the current range, activates runs without a position.
    #[inline]
    fn unpark_top(&mut self) -> Result<(), StorageError> {
        loop {
            if self.context.until.is_some() && self.listed_range_is_over() {
                self.go_on()?;
                continue;
            }
            let Some(&top) = self.heap.first() else { break };
            let MergeSource::Run(run) = &self.sources[top.source as usize] else { break };
            if !run.is_lazy() {
                break;
            }
            if !self.backward && self.context.ends_before(run.key()) {
                // Every other source is at least as far.
                self.heap.clear();
                break;
            }
            if self.context.ahead.is_some() {
                together::fetch_next(
                    &mut self.context,
                    &mut self.sources,
                    self.backward,
                    top.source as usize,
                );
            }
            if let MergeSource::Run(run) = &mut self.sources[top.source as usize] {
                run.unpark(&self.context, self.backward)?;
            }
            self.replace_top();
        }
        Ok(())
    }

    /// Restores the heap after its top source moved.
    #[inline]
    fn replace_top(&mut self) {
        let source = &self.sources[self.heap[0].source as usize];
        if source.valid() {
            let rank = rank_of(source.key(), self.backward);
            self.heap[0].rank = rank;
            if rank < self.runner_up {
                return;
            }
        } else {
            self.heap.swap_remove(0);
        }
        self.sift_down(0);
        self.find_runner_up();
    }

    pub(crate) fn next(&mut self) -> Result<(), StorageError> {
        debug_assert!(!self.backward, "next after a backward seek");
        self.advance(RunCursor::next, MemCursor::next)?;
        self.arrived(true);
        Ok(())
    }

    pub(crate) fn prev(&mut self) -> Result<(), StorageError> {
        debug_assert!(self.backward, "prev after a forward seek");
        self.advance(RunCursor::prev, MemCursor::prev)?;
        self.arrived(true);
        Ok(())
    }

    /// In debug builds, checks that a move led on from the last version, unless it was a seek.
    #[inline]
    fn arrived(&mut self, on: bool) {
        let _ = on;
        #[cfg(all(debug_assertions, not(feature = "fuzzing")))]
        {
            let source = self.heap.first().map(|top| top.source);
            let at = source.map(|source| (self.key().to_vec(), self.seq(), source));
            if let (true, Some(from), Some(to)) = (on, &self.trail, &at) {
                let order = compare_versions(&to.0, to.1, &from.0, from.1).then(to.2.cmp(&from.2));
                assert!(
                    if self.backward { order.is_lt() } else { order.is_gt() },
                    "a merge does not move (backwards: {}): from {from:?} to {to:?}",
                    self.backward
                );
            }
            self.trail = at;
        }
    }

    #[inline]
    fn advance(
        &mut self,
        in_run: impl Fn(&mut RunCursor, &RunContext) -> Result<(), StorageError>,
        in_memtable: impl Fn(&mut MemCursor),
    ) -> Result<(), StorageError> {
        match &mut self.sources[self.heap[0].source as usize] {
            MergeSource::Memtable(cursor) => in_memtable(cursor),
            MergeSource::Run(run) => {
                in_run(run, &self.context)?;
                // Mostly the same run has the next version as well.
                if let Some(key) = run.open_key() {
                    let rank = rank_of(key, self.backward);
                    if rank < self.runner_up && self.context.until.is_none() {
                        self.heap[0].rank = rank;
                        return Ok(());
                    }
                }
            }
            MergeSource::Asleep(_) => unreachable!("{ASLEEP}"),
        }
        self.replace_top();
        self.unpark_top()
    }

    /// Skips versions of the current `key`. Forwards, moves to the first version at or after
    /// (`key`, `seq`); backwards, to the last version of the last key before `key`. Costs a step in
    /// every source with one version in between, plus a seek in every source with several.
    ///
    /// Returns the number of versions stepped over.
    #[cold]
    pub(crate) fn pass(&mut self, key: &[u8], seq: SeqNo) -> Result<u64, StorageError> {
        let backward = self.backward;
        let mut passed = 0;
        let comes_before =
            |at: &MergeSource| at.valid() && at.key() == key && (backward || at.seq(false) > seq);
        while let Some(top) = self.heap.first()
            && comes_before(&self.sources[top.source as usize])
        {
            // A lazy position is never at the top.
            let source = &mut self.sources[top.source as usize];
            passed += 1;
            match (&mut *source, backward) {
                (MergeSource::Memtable(cursor), false) => cursor.next(),
                (MergeSource::Memtable(cursor), true) => cursor.prev(),
                (MergeSource::Run(run), false) => run.next(&self.context)?,
                (MergeSource::Run(run), true) => run.prev(&self.context)?,
                (MergeSource::Asleep(_), _) => unreachable!("{ASLEEP}"),
            }
            if comes_before(source) {
                match source {
                    MergeSource::Memtable(cursor) if backward => cursor.seek_before(key),
                    MergeSource::Memtable(cursor) => cursor.seek(key, seq),
                    MergeSource::Run(run) if !run.is_lazy() => {
                        run.leave(&self.context, key, seq, backward)?
                    }
                    _ => {}
                }
            }
            self.replace_top();
            self.unpark_top()?;
        }
        self.arrived(passed > 0);
        Ok(passed)
    }

    /// If range tombstones newer than everything in the current memtable or table cover the current
    /// key, moves its source past the keys they cover, in the direction of the merge. Returns
    /// whether they do. Costs a search of the tombstones and a seek.
    #[cold]
    pub(crate) fn pass_deleted(&mut self, covers: &Covers) -> Result<bool, StorageError> {
        let Some(top) = self.heap.first() else { return Ok(false) };
        let backward = self.backward;
        let moved = match &mut self.sources[top.source as usize] {
            MergeSource::Memtable(cursor) => {
                let border = covers.reach(cursor.key(), cursor.max_version(), backward);
                match &border {
                    None => {}
                    Some(Border::At(key)) if backward => cursor.seek_before(key),
                    Some(Border::At(key)) => cursor.seek(key, MAX_SEQNO),
                    Some(Border::Last) => cursor.finish(),
                }
                border.is_some()
            }
            MergeSource::Run(run) if backward => run.pass_deleted_backward(&self.context, covers)?,
            MergeSource::Run(run) => run.pass_deleted_forward(&self.context, covers)?,
            MergeSource::Asleep(_) => unreachable!("{ASLEEP}"),
        };
        if moved {
            self.replace_top();
            self.unpark_top()?;
        }
        Ok(moved)
    }

    /// Climbs, in a backward merge, from the current version of `key` to the newest version of
    /// `key` not newer than `seq`, in the sources that the merge has not left yet. Then
    /// [`climb_down`](Self::climb_down) leads to older versions, and the merge is
    /// [`valid`](Self::valid) while there is one. [`leave`](Self::leave) must follow, except after
    /// an error.
    #[cold]
    pub(crate) fn climb(&mut self, key: &[u8], seq: SeqNo) -> Result<Climb, StorageError> {
        debug_assert!(self.backward, "a climb after a forward seek");
        let prefix = !self.heap[0].rank;
        let mut climb = Climb { aside: std::mem::take(&mut self.heap), sources: SmallVec::new() };
        let sources = &mut self.sources;
        climb.aside.retain(|at| match &sources[at.source as usize] {
            // A lazy position at this key would come before the key's versions; the merge has left
            // it.
            MergeSource::Run(run) if run.is_lazy() => true,
            source if source.key() == key => {
                climb.sources.push(at.source);
                false
            }
            _ => true,
        });
        self.backward = false;
        for &source in &climb.sources {
            let on_key = match &mut self.sources[source as usize] {
                MergeSource::Memtable(cursor) => {
                    cursor.seek(key, seq);
                    cursor.valid() && cursor.key() == key
                }
                MergeSource::Run(run) => {
                    run.seek_within(key, seq)?;
                    run.is_within(key)
                }
                MergeSource::Asleep(_) => unreachable!("{ASLEEP}"),
            };
            if on_key {
                self.heap.push(Ranked { rank: prefix, source });
            }
        }
        self.heapify();
        Ok(climb)
    }

    /// Moves to the next older version of `key` on a [`climb`](Self::climb), if any.
    pub(crate) fn climb_down(&mut self, key: &[u8]) -> Result<(), StorageError> {
        let on_key = match &mut self.sources[self.heap[0].source as usize] {
            MergeSource::Memtable(cursor) => {
                cursor.next();
                cursor.valid() && cursor.key() == key
            }
            MergeSource::Run(run) => {
                run.next_within()?;
                run.is_within(key)
            }
            MergeSource::Asleep(_) => unreachable!("{ASLEEP}"),
        };
        if !on_key {
            self.heap.swap_remove(0);
        }
        self.sift_down(0);
        Ok(())
    }

    /// Ends a [`climb`](Self::climb): moves backwards to the last version of the last key before
    /// `key`.
    pub(crate) fn leave(&mut self, climb: Climb, key: &[u8]) -> Result<(), StorageError> {
        self.backward = true;
        self.heap = climb.aside;
        for &source in &climb.sources {
            let at = &mut self.sources[source as usize];
            match at {
                MergeSource::Memtable(cursor) => cursor.seek_before(key),
                MergeSource::Run(run) => run.leave(&self.context, key, 0, true)?,
                MergeSource::Asleep(_) => unreachable!("{ASLEEP}"),
            }
            if at.valid() {
                self.heap.push(Ranked { rank: rank_of(at.key(), true), source });
            }
        }
        self.heapify();
        self.unpark_top()?;
        self.arrived(true);
        Ok(())
    }

    /// Reports whether source `a`'s version comes before source `b`'s.
    #[inline]
    fn precedes(&self, a: Ranked, b: Ranked) -> bool {
        if a.rank == b.rank { self.precedes_by_key(a.source, b.source) } else { a.rank < b.rank }
    }

    fn precedes_by_key(&self, a: u32, b: u32) -> bool {
        let (x, y) = (&self.sources[a as usize], &self.sources[b as usize]);
        let order =
            compare_versions(x.key(), x.seq(self.backward), y.key(), y.seq(self.backward)).then(a.cmp(&b));
        if self.backward { order.is_gt() } else { order.is_lt() }
    }

    #[inline]
    fn sift_down(&mut self, mut i: usize) {
        let Some(&moving) = self.heap.get(i) else { return };
        loop {
            let left = 2 * i + 1;
            let Some(&(mut next)) = self.heap.get(left) else { break };
            let mut first = left;
            if let Some(&right) = self.heap.get(left + 1)
                && self.precedes(right, next)
            {
                (first, next) = (left + 1, right);
            }
            if !self.precedes(next, moving) {
                break;
            }
            self.heap[i] = next;
            i = first;
        }
        self.heap[i] = moving;
    }

    pub(crate) fn valid(&self) -> bool {
        !self.heap.is_empty()
    }

    /// Leaves nothing in this direction.
    pub(crate) fn finish(&mut self) {
        self.heap.clear();
    }

    #[inline]
    fn top(&self) -> &MergeSource {
        &self.sources[self.heap[0].source as usize]
    }

    /// Returns `prefix_of` the key.
    #[inline]
    pub(crate) fn prefix(&self) -> u64 {
        if self.backward { !self.heap[0].rank } else { self.heap[0].rank }
    }

    /// Returns key, sequence number, kind and value.
    #[inline]
    pub(crate) fn version(&self) -> (&[u8], SeqNo, Kind, &[u8]) {
        at!(self.top(), cursor => cursor.version())
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.top().key()
    }

    #[inline]
    pub(crate) fn seq(&self) -> SeqNo {
        self.top().seq(self.backward)
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        at!(self.top(), cursor => cursor.kind())
    }

    /// Returns the fields that decide whether the version counts, if there is a version.
    #[inline]
    pub(crate) fn head(&self) -> Option<Head<'_>> {
        let &Ranked { rank, source } = self.heap.first()?;
        let prefix = if self.backward { !rank } else { rank };
        let (key, seq, kind) = at!(&self.sources[source as usize], cursor => cursor.head());
        Some(Head { prefix, key, seq, kind })
    }

    /// Reports whether a backward merge's version is known to be the only one of its key, so that
    /// it can be used in place. `false` also if only another block could tell.
    #[inline]
    pub(crate) fn is_only_version(&self) -> bool {
        match self.top() {
            MergeSource::Run(run) => self.heap[0].rank < self.runner_up && run.current().begins_key(),
            _ => false,
        }
    }

    /// Returns key and value.
    #[inline]
    pub(crate) fn entry(&self) -> (&[u8], &[u8]) {
        let (key, _, _, value) = self.version();
        (key, value)
    }

    /// Returns the key. Copies it only if it is short or stored in pieces.
    #[inline]
    pub(crate) fn pinned_key(&self) -> Slice {
        let key = self.key();
        match self.top() {
            MergeSource::Run(run) if key.len() > Slice::INLINE => {
                run.current().pinned_key().map_or_else(|| Slice::copy_of(key), Slice::from_block)
            }
            _ => Slice::copy_of(key),
        }
    }

    /// Returns what has the current version.
    pub(crate) fn holder(&self) -> Holder {
        match self.top() {
            MergeSource::Run(run) => Holder::Table(self.context.all()[run.table()].clone()),
            MergeSource::Memtable(cursor) => Holder::Memtable(cursor.memtable().clone()),
            MergeSource::Asleep(_) => unreachable!("{ASLEEP}"),
        }
    }

    /// Returns the value without a copy.
    #[inline]
    pub(crate) fn pinned_value(&self) -> Slice {
        match self.top() {
            MergeSource::Memtable(cursor) => Slice::from_memtable(cursor.pinned_value()),
            MergeSource::Run(run) => Slice::from_block(run.current().pinned_value()),
            MergeSource::Asleep(_) => unreachable!("{ASLEEP}"),
        }
    }

    /// Returns key and value, as [`pinned_key`](Self::pinned_key) and
    /// [`pinned_value`](Self::pinned_value) do.
    #[inline]
    pub(crate) fn pinned_entry(&self) -> (Slice, Slice) {
        match self.top() {
            MergeSource::Run(run) if run.current().key().len() <= Slice::INLINE => {
                let cursor = run.current();
                (Slice::copy_of(cursor.key()), Slice::from_block(cursor.pinned_value()))
            }
            _ => (self.pinned_key(), self.pinned_value()),
        }
    }

    /// Records what the scan was like, for later reads to learn from. A merge dropped without this
    /// call teaches nothing.
    pub(crate) fn end_scan(&mut self) {
        if let Some(lazy_runs) = &mut self.lazy_runs {
            lazy_runs.end_scan(&self.sources);
        }
    }

    /// Moves each run's read cost so far into `costs`, in the order of addition. Leaves out the
    /// global filter's cost.
    pub(crate) fn drain_each(&mut self, costs: &mut Vec<ReadCost>) {
        for source in &mut self.sources {
            let mut cost = ReadCost::default();
            match source {
                MergeSource::Memtable(_) => continue,
                MergeSource::Run(run) => run.drain_cost(&mut cost),
                MergeSource::Asleep(_) => {}
            }
            costs.push(cost);
        }
    }

    /// Moves the sources' read cost so far into `cost`.
    pub(crate) fn drain_cost(&mut self, cost: &mut ReadCost) {
        for source in &mut self.sources {
            if let MergeSource::Run(run) = source {
                run.drain_cost(cost);
            }
        }
        if let Some(lazy_runs) = &mut self.lazy_runs {
            lazy_runs.drain_cost(cost);
        }
    }
}
