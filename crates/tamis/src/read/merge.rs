//! Merging sorted sources into one sequence of versions.

use std::ops::Range;
use std::sync::Arc;

use crate::error::StorageError;
use crate::key::{Kind, SeqNo, compare_versions, prefix_of};
use crate::memtable::MemCursor;
use crate::read::ReadCost;
use crate::slice::Slice;
use crate::table::{CursorOptions, TableCursor, TouchCounts};
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

/// The tables that the run cursors of one merge walk over.
#[derive(Debug)]
pub(crate) enum Tables {
    Of(Arc<Version>),
    List(Vec<Arc<OpenTable>>),
}

impl Tables {
    fn all(&self) -> &[Arc<OpenTable>] {
        match self {
            Tables::Of(version) => &version.tables,
            Tables::List(tables) => tables,
        }
    }
}

/// A cursor over the tables of one run, which it opens one at a time.
#[derive(Debug)]
struct RunCursor {
    tables: Range<usize>,
    at: usize,
    cursor: Option<TableCursor>,
    /// What cursors over earlier tables touched.
    touched: TouchCounts,
}

impl RunCursor {
    fn open(&mut self, all: &[Arc<OpenTable>], table: usize, options: CursorOptions) -> &mut TableCursor {
        if self.at != table || self.cursor.is_none() {
            self.touched = self.take_counts();
            self.at = table;
            self.cursor = Some(TableCursor::new(all[table].table.clone(), options));
        }
        self.cursor.as_mut().expect("just opened")
    }

    /// What was touched since this was last asked.
    fn take_counts(&mut self) -> TouchCounts {
        let mut counts = std::mem::take(&mut self.touched);
        if let Some(cursor) = &mut self.cursor {
            counts.add(&cursor.take_counts());
        }
        counts
    }

    fn valid(&self) -> bool {
        self.cursor.as_ref().is_some_and(TableCursor::valid)
    }

    fn current(&self) -> &TableCursor {
        self.cursor.as_ref().expect("a valid cursor")
    }

    /// The first half of a seek to `key`: see [`TableCursor::prepare`].
    fn prepare(&mut self, all: &[Arc<OpenTable>], key: &[u8], o: CursorOptions) -> Result<(), StorageError> {
        let run = &all[self.tables.clone()];
        let table = self.tables.start + run.partition_point(|t| !t.meta.largest.reaches(key));
        if table == self.tables.end {
            return Ok(());
        }
        self.open(all, table, o).prepare(key)
    }

    fn seek(
        &mut self,
        all: &[Arc<OpenTable>],
        key: &[u8],
        seq: SeqNo,
        o: CursorOptions,
    ) -> Result<(), StorageError> {
        let run = &all[self.tables.clone()];
        let table = self.tables.start + run.partition_point(|t| !t.meta.largest.reaches(key));
        if table == self.tables.end {
            self.touched = self.take_counts();
            self.cursor = None;
            return Ok(());
        }
        self.open(all, table, o).seek(key, seq)?;
        self.skip_forward(all, o)
    }

    /// To the last version of the last key before `key`.
    fn seek_before(
        &mut self,
        all: &[Arc<OpenTable>],
        key: &[u8],
        o: CursorOptions,
    ) -> Result<(), StorageError> {
        let run = &all[self.tables.clone()];
        let after = self.tables.start + run.partition_point(|t| t.meta.smallest[..] < *key);
        if after == self.tables.start {
            self.touched = self.take_counts();
            self.cursor = None;
            return Ok(());
        }
        self.open(all, after - 1, o).seek_before(key)?;
        self.skip_backward(all, o)
    }

    fn seek_to_first(&mut self, all: &[Arc<OpenTable>], o: CursorOptions) -> Result<(), StorageError> {
        self.open(all, self.tables.start, o).seek_to_first()?;
        self.skip_forward(all, o)
    }

    fn seek_to_last(&mut self, all: &[Arc<OpenTable>], o: CursorOptions) -> Result<(), StorageError> {
        self.open(all, self.tables.end - 1, o).seek_to_last()?;
        self.skip_backward(all, o)
    }

    fn next(&mut self, all: &[Arc<OpenTable>], o: CursorOptions) -> Result<(), StorageError> {
        self.cursor.as_mut().expect("a valid cursor").next()?;
        if self.valid() { Ok(()) } else { self.skip_forward(all, o) }
    }

    fn prev(&mut self, all: &[Arc<OpenTable>], o: CursorOptions) -> Result<(), StorageError> {
        self.cursor.as_mut().expect("a valid cursor").prev()?;
        if self.valid() { Ok(()) } else { self.skip_backward(all, o) }
    }

    /// Moves on over tables that have nothing at or after the position (a table may hold range tombstones only).
    fn skip_forward(&mut self, all: &[Arc<OpenTable>], o: CursorOptions) -> Result<(), StorageError> {
        while !self.valid() && self.at + 1 < self.tables.end {
            self.open(all, self.at + 1, o).seek_to_first()?;
        }
        Ok(())
    }

    fn skip_backward(&mut self, all: &[Arc<OpenTable>], o: CursorOptions) -> Result<(), StorageError> {
        while !self.valid() && self.at > self.tables.start {
            self.open(all, self.at - 1, o).seek_to_last()?;
        }
        Ok(())
    }
}

/// Sources are few and moved never after being made, so the size of the larger variant costs nothing.
#[expect(clippy::large_enum_variant, reason = "see above")]
#[derive(Debug)]
enum Source {
    Memtable(MemCursor),
    Run(RunCursor),
}

/// Applies one expression to whichever cursor a source holds at its position.
macro_rules! at {
    ($source:expr, $cursor:ident => $e:expr) => {
        match $source {
            Source::Memtable($cursor) => $e,
            Source::Run(run) => {
                let $cursor = run.current();
                $e
            }
        }
    };
}

impl Source {
    fn valid(&self) -> bool {
        match self {
            Source::Memtable(cursor) => cursor.valid(),
            Source::Run(run) => run.valid(),
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        at!(self, cursor => cursor.key())
    }

    #[inline]
    fn seq(&self) -> SeqNo {
        at!(self, cursor => cursor.seq())
    }
}

/// All versions of several sources in version order, forwards or backwards: a binary heap of sources.
///
/// One direction at a time: after a forward seek only [`next`](MergeCursor::next) may be called, after a
/// backward seek only [`prev`](MergeCursor::prev). Costs, beyond the sources' own: one comparison per move
/// while one source supplies a stretch of keys, O(log sources) otherwise.
#[derive(Debug)]
pub(crate) struct MergeCursor {
    tables: Tables,
    sources: Vec<Source>,
    /// `prefix_of` each source's current key.
    prefixes: Vec<u64>,
    /// Valid sources as a heap, the next one to give a version first.
    heap: Vec<u32>,
    backward: bool,
    options: CursorOptions,
    seeks: u64,
}

impl MergeCursor {
    /// A merge of no sources yet; room is made for `sources` of them.
    pub(crate) fn new(tables: Tables, options: CursorOptions, sources: usize) -> Self {
        MergeCursor {
            tables,
            sources: Vec::with_capacity(sources),
            prefixes: Vec::with_capacity(sources),
            heap: Vec::with_capacity(sources),
            backward: false,
            options,
            seeks: 0,
        }
    }

    /// Adds a memtable. Sources are added newest first.
    pub(crate) fn add_memtable(&mut self, cursor: MemCursor) {
        self.push(Source::Memtable(cursor));
    }

    /// Adds a run: a stretch of the merge's tables, sorted and disjoint. Sources are added newest first.
    pub(crate) fn add_run(&mut self, tables: Range<usize>) {
        if !tables.is_empty() {
            self.push(Source::Run(RunCursor {
                at: tables.start,
                tables,
                cursor: None,
                touched: TouchCounts::default(),
            }));
        }
    }

    fn push(&mut self, source: Source) {
        self.sources.push(source);
        self.prefixes.push(0);
    }

    /// To the first version at or after (`key`, `seq`) in version order; moves forward from there.
    pub(crate) fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<(), StorageError> {
        for source in &mut self.sources {
            if let Source::Run(run) = source {
                run.prepare(self.tables.all(), key, self.options)?;
            }
        }
        self.position(false, |source, all, o| match source {
            Source::Memtable(cursor) => {
                cursor.seek(key, seq);
                Ok(())
            }
            Source::Run(run) => run.seek(all, key, seq, o),
        })
    }

    pub(crate) fn seek_to_first(&mut self) -> Result<(), StorageError> {
        self.position(false, |source, all, o| match source {
            Source::Memtable(cursor) => {
                cursor.seek_to_first();
                Ok(())
            }
            Source::Run(run) => run.seek_to_first(all, o),
        })
    }

    /// To the oldest version of the last key before `key`; moves backward from there.
    pub(crate) fn seek_before(&mut self, key: &[u8]) -> Result<(), StorageError> {
        self.position(true, |source, all, o| match source {
            Source::Memtable(cursor) => {
                cursor.seek_before(key);
                Ok(())
            }
            Source::Run(run) => run.seek_before(all, key, o),
        })
    }

    pub(crate) fn seek_to_last(&mut self) -> Result<(), StorageError> {
        self.position(true, |source, all, o| match source {
            Source::Memtable(cursor) => {
                cursor.seek_to_last();
                Ok(())
            }
            Source::Run(run) => run.seek_to_last(all, o),
        })
    }

    fn position(
        &mut self,
        backward: bool,
        mut seek: impl FnMut(&mut Source, &[Arc<OpenTable>], CursorOptions) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        self.backward = backward;
        self.heap.clear();
        self.seeks += self.sources.len() as u64;
        for (i, source) in self.sources.iter_mut().enumerate() {
            seek(source, self.tables.all(), self.options)?;
            if source.valid() {
                self.prefixes[i] = prefix_of(source.key());
                self.heap.push(i as u32);
            }
        }
        for i in (0..self.heap.len() / 2).rev() {
            self.sift_down(i);
        }
        Ok(())
    }

    pub(crate) fn next(&mut self) -> Result<(), StorageError> {
        debug_assert!(!self.backward, "next after a backward seek");
        self.advance(|run, all, o| run.next(all, o), MemCursor::next)
    }

    pub(crate) fn prev(&mut self) -> Result<(), StorageError> {
        debug_assert!(self.backward, "prev after a forward seek");
        self.advance(|run, all, o| run.prev(all, o), MemCursor::prev)
    }

    #[inline]
    fn advance(
        &mut self,
        in_run: impl Fn(&mut RunCursor, &[Arc<OpenTable>], CursorOptions) -> Result<(), StorageError>,
        in_memtable: impl Fn(&mut MemCursor),
    ) -> Result<(), StorageError> {
        let top = self.heap[0] as usize;
        let source = &mut self.sources[top];
        match source {
            Source::Memtable(cursor) => in_memtable(cursor),
            Source::Run(run) => in_run(run, self.tables.all(), self.options)?,
        }
        if source.valid() {
            self.prefixes[top] = prefix_of(source.key());
        } else {
            self.heap.swap_remove(0);
        }
        self.sift_down(0);
        Ok(())
    }

    /// Whether source `a` gives its version before source `b`.
    #[inline]
    fn precedes(&self, a: u32, b: u32) -> bool {
        let (a, b) = (a as usize, b as usize);
        let order = self.prefixes[a].cmp(&self.prefixes[b]).then_with(|| {
            let (x, y) = (&self.sources[a], &self.sources[b]);
            compare_versions(x.key(), x.seq(), y.key(), y.seq()).then(a.cmp(&b))
        });
        if self.backward { order.is_gt() } else { order.is_lt() }
    }

    #[inline]
    fn sift_down(&mut self, mut i: usize) {
        loop {
            let left = 2 * i + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let first = if right < self.heap.len() && self.precedes(self.heap[right], self.heap[left]) {
                right
            } else {
                left
            };
            if !self.precedes(self.heap[first], self.heap[i]) {
                return;
            }
            self.heap.swap(i, first);
            i = first;
        }
    }

    pub(crate) fn valid(&self) -> bool {
        !self.heap.is_empty()
    }

    #[inline]
    fn top(&self) -> &Source {
        &self.sources[self.heap[0] as usize]
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.top().key()
    }

    #[inline]
    pub(crate) fn seq(&self) -> SeqNo {
        self.top().seq()
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        at!(self.top(), cursor => cursor.kind())
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        at!(self.top(), cursor => cursor.value())
    }

    /// The key, copied only if it is short or stored in pieces.
    pub(crate) fn pinned_key(&self) -> Slice {
        let key = self.key();
        match self.top() {
            Source::Run(run) if key.len() > Slice::INLINE => {
                run.current().pinned_key().map_or_else(|| Slice::copy_of(key), Slice::from_block)
            }
            _ => Slice::copy_of(key),
        }
    }

    /// The value without a copy.
    pub(crate) fn pinned_value(&self) -> Slice {
        match self.top() {
            Source::Memtable(cursor) => Slice::from_memtable(cursor.pinned_value()),
            Source::Run(run) => Slice::from_block(run.current().pinned_value()),
        }
    }

    /// Adds what the sources read so far to `cost`, and forgets it.
    pub(crate) fn drain_cost(&mut self, cost: &mut ReadCost) {
        cost.seeks += std::mem::take(&mut self.seeks);
        for source in &mut self.sources {
            if let Source::Run(run) = source {
                cost.add_touched(&run.take_counts());
            }
        }
    }
}
