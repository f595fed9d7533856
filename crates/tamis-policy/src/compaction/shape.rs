//! The shape of a keyspace's tree: everything that a compaction policy may know.
//!
//! Invariants:
//! * A level holds any number of runs, newest first.
//! * The tables of a run are sorted by key and have no key in common.
//! * Age: the versions of a key in one level are newer than those in any deeper level.
//! * `busy` tables are damaged, or are inputs of running jobs (see [`Shape::running`]): no job may
//!   read them.
//!
//! A shape is a value built from one version of the tree and the list of running jobs, both read
//! under the lock that guards the list. It costs a few words and a reference count per table.

use std::sync::Arc;

use tamis_base::ids::{RunId, TableId};
use tamis_base::key::{KeyBytes, KeyEnd, SeqNo};
use tamis_base::meta::TableMeta;

/// A table, and whether it may be compacted.
#[derive(Clone, Debug)]
pub struct TableShape {
    /// Its record.
    pub meta: Arc<TableMeta>,
    /// No job may take it: it is an input of a running job, or damaged.
    pub busy: bool,
    /// No running job has it: it may be dropped unread, even if damaged.
    pub free: bool,
}

impl TableShape {
    /// Returns its number.
    pub fn id(&self) -> TableId {
        self.meta.id
    }

    /// The file's length in bytes; never 0, so that callers may divide by it.
    pub fn bytes(&self) -> u64 {
        self.meta.file_bytes.max(1)
    }

    /// Returns the keys that it covers.
    pub fn range(&self) -> KeyRange {
        KeyRange { smallest: self.meta.smallest.clone(), largest: self.meta.largest.clone() }
    }

    /// Reports whether a compaction into the deepest data could drop any of its entries.
    pub fn holds_deletes(&self) -> bool {
        self.meta.deletes > 0 || self.meta.range_tombstones > 0
    }
}

/// A sorted run.
#[derive(Clone, Debug)]
pub struct RunShape {
    /// Its number.
    pub id: RunId,
    /// Sorted by key, disjoint.
    pub tables: Vec<TableShape>,
}

impl RunShape {
    /// Bytes of all its tables.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(TableShape::bytes).sum()
    }
}

/// A level.
#[derive(Clone, Debug, Default)]
pub struct LevelShape {
    /// Newest first.
    pub runs: Vec<RunShape>,
}

impl LevelShape {
    /// Bytes of all its tables.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(RunShape::bytes).sum()
    }

    /// Reports whether no run has a table.
    pub fn is_empty(&self) -> bool {
        self.runs.iter().all(|run| run.tables.is_empty())
    }

    /// Returns the tables of all runs.
    pub fn tables(&self) -> impl Iterator<Item = &TableShape> {
        self.runs.iter().flat_map(|run| &run.tables)
    }
}

/// A table of a shape, and where it is.
#[derive(Clone, Copy, Debug)]
pub struct Spot<'s> {
    /// The level.
    pub level: usize,
    /// The position of its run in the level.
    pub run: usize,
    /// The table.
    pub table: &'s TableShape,
}

/// A running compaction or trivial move.
#[derive(Clone, Debug)]
pub struct RunningJob {
    /// The first and the last level of its inputs.
    pub input_levels: (usize, usize),
    /// The level of its outputs.
    pub output_level: usize,
    /// The run that they join.
    pub output: OutputRun,
    /// The hull of its inputs; its outputs stay within.
    pub range: KeyRange,
}

/// The shape of a tree.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// From level 0; levels beyond the end are empty.
    pub levels: Vec<LevelShape>,
    /// The jobs that are under way.
    pub running: Vec<RunningJob>,
    /// Bytes that new tables may take on the device; `None` if unknown or unlimited.
    pub room: Option<u64>,
    /// Seconds since 1970.
    pub now: u64,
    /// Everything up to and including this sequence number has outlived the keyspace's time to
    /// live.
    pub expired: SeqNo,
    /// Live snapshots, ascending.
    pub snapshots: Vec<SeqNo>,
    /// A caller waits until nothing is due: defer nothing.
    pub settling: bool,
}

impl Shape {
    /// Returns the runs of a level, newest first.
    pub fn runs(&self, level: usize) -> &[RunShape] {
        self.levels.get(level).map_or(&[], |level| &level.runs[..])
    }

    /// Returns all tables with the spots where they are, from level 0.
    pub fn spots(&self) -> impl Iterator<Item = Spot<'_>> {
        self.levels.iter().enumerate().flat_map(|(level, l)| {
            l.runs
                .iter()
                .enumerate()
                .flat_map(move |(run, r)| r.tables.iter().map(move |table| Spot { level, run, table }))
        })
    }

    /// Returns the deepest level that holds a table.
    pub fn deepest(&self) -> Option<usize> {
        self.levels.iter().rposition(|level| !level.is_empty())
    }
}

/// A key range, including its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    pub smallest: KeyBytes,
    /// The end.
    pub largest: KeyEnd,
}

impl KeyRange {
    /// Reports whether two ranges have a key in common.
    pub fn overlaps(&self, other: &KeyRange) -> bool {
        self.largest.reaches(&other.smallest) && other.largest.reaches(&self.smallest)
    }

    /// Reports whether a table may hold a key of the range.
    pub fn overlaps_table(&self, table: &TableShape) -> bool {
        self.largest.reaches(&table.meta.smallest) && table.meta.largest.reaches(&self.smallest)
    }

    /// Extends the range to include a table.
    pub fn extend(&mut self, table: &TableShape) {
        if table.meta.smallest < self.smallest {
            self.smallest = table.meta.smallest.clone();
        }
        if table.meta.largest > self.largest {
            self.largest = table.meta.largest.clone();
        }
    }

    /// Returns the smallest range that includes all of `tables`; `None` if there are none.
    pub fn hull<'a>(tables: impl IntoIterator<Item = &'a TableShape>) -> Option<KeyRange> {
        let mut tables = tables.into_iter();
        let mut hull = tables.next()?.range();
        tables.for_each(|table| hull.extend(table));
        Some(hull)
    }

    /// Returns the positions in a sorted run of the tables that overlap this range. O(log n).
    pub fn overlap(&self, run: &[TableShape]) -> std::ops::Range<usize> {
        let from = run.partition_point(|t| !t.meta.largest.reaches(&self.smallest));
        let len = run[from..].partition_point(|t| self.largest.reaches(&t.meta.smallest));
        from..from + len
    }
}

/// The run that the outputs join. Every table of it within the plan's range must be an input, or
/// the outputs must fit between such tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputRun {
    /// An existing run of the output level. If another job has taken its last table meanwhile, it
    /// is recreated under the same number, which keeps its place by age. A merge within one level
    /// joins one of its runs; nothing that overlaps it lies between that run and the inputs.
    Into(RunId),
    /// A new run, the newest of its level.
    New,
}
