//! State shared by the run cursors of one merge, and their filter probes.
//!
//! Belongs to its merge, and changes only between two moves of its cursors.

use std::ops::{Bound, Range};
use std::sync::Arc;

use tamis_files::table::CursorOptions;
use tamis_filter::{KeyRange, Next};

use crate::observe::cost::ReadCost;
use crate::read::merge::Ahead;
use crate::read::run_cursor::tables::RunTables;
use crate::tree::open_table::OpenTable;

/// The end of the range that a global filter answered for: forwards the first key behind it,
/// backwards its last key.
#[derive(Debug)]
pub(crate) struct Until {
    pub(crate) prefix: u64,
    pub(crate) key: Vec<u8>,
}

/// State shared by all run cursors of a merge.
#[derive(Debug)]
pub(crate) struct RunContext {
    pub(crate) tables: RunTables,
    pub(crate) options: CursorOptions,
    /// No key before `start` or from `end` on is ever requested.
    pub(crate) start: Vec<u8>,
    pub(crate) end: Option<Vec<u8>>,
    /// The end of the range in which lazy runs have nothing. `None`: no run is lazy, or the range
    /// extends to the end of the iteration.
    pub(crate) until: Option<Until>,
    /// What to read ahead, where reads of the tables overlap.
    pub(crate) ahead: Option<Box<Ahead>>,
}

impl RunContext {
    /// Ends the scan, if there is one, and begins the next.
    pub(crate) fn start_scan(&mut self) {
        if let Some(ahead) = &mut self.ahead {
            ahead.start();
        }
    }

    pub(crate) fn all(&self) -> &[Arc<OpenTable>] {
        match &self.tables {
            RunTables::Of(view) => &view.version.tables,
            RunTables::List(tables) => tables,
        }
    }

    /// Reports whether the iteration ends before `key`.
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        self.end.as_deref().is_some_and(|end| key >= end)
    }

    /// Reports whether the range that a global filter answered for includes `key`.
    pub(super) fn stretch_reaches(&self, key: &[u8], backward: bool) -> bool {
        match (&self.until, backward) {
            (Some(until), false) => key < &until.key[..],
            (Some(until), true) => key >= &until.key[..],
            (None, false) => !self.ends_before(key),
            (None, true) => key >= &self.start[..],
        }
    }

    /// Returns what the filter of `table` knows about the versions from `from` on.
    #[inline]
    pub(super) fn next(&self, table: usize, from: &[u8], counts: &mut Counts) -> Next<Vec<u8>> {
        let RunTables::Of(view) = &self.tables else { return Next::Unknown };
        match view.selector.range_filters() {
            Some(filters) => {
                counts.of(|cost| filters.next(&view.version, table, from, self.end.as_deref(), cost))
            }
            None => Next::Unknown,
        }
    }

    /// Reports whether the filter of `table` excludes keys from the start up to `before`.
    #[inline]
    pub(super) fn denies_before(&self, table: usize, before: &[u8], counts: &mut Counts) -> bool {
        let RunTables::Of(view) = &self.tables else { return false };
        view.selector.range_filters().is_some_and(|filters| {
            let range = KeyRange::new(Bound::Included(&self.start), Bound::Excluded(before));
            counts.of(|cost| filters.may_hold(&view.version, table, range, cost)) == Some(false)
        })
    }

    /// Returns the first of `tables` whose range reaches `key`.
    #[inline]
    pub(super) fn first_reaching(&self, tables: &Range<usize>, key: &[u8]) -> usize {
        match &self.tables {
            RunTables::Of(view) => view.version.first_reaching(tables, key),
            RunTables::List(all) => {
                tables.start + all[tables.clone()].partition_point(|t| !t.meta.largest.reaches(key))
            }
        }
    }

    /// Reports whether the range of `table` starts after `key`.
    #[inline]
    pub(super) fn starts_after(&self, table: usize, key: &[u8]) -> bool {
        match &self.tables {
            RunTables::Of(view) => view.version.starts_after(table, key),
            RunTables::List(all) => all[table].meta.smallest[..] > *key,
        }
    }
}

/// Counters of a run cursor besides the cost of its blocks. Every iterator has one per run, so it
/// is small.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) seeks: u64,
    pub(super) opened: u64,
    pub(super) probes: u64,
    negatives: u64,
    pub(super) false_positives: u64,
}

impl Counts {
    /// Counts the filter probes of `ask`.
    fn of<T>(&mut self, ask: impl FnOnce(&mut ReadCost) -> T) -> T {
        let mut cost = ReadCost::default();
        let answer = ask(&mut cost);
        self.probes += cost.range_probes;
        self.negatives += cost.range_negatives;
        answer
    }

    pub(super) fn drain(&mut self, cost: &mut ReadCost) {
        let Counts { seeks, opened, probes, negatives, false_positives } = std::mem::take(self);
        cost.seeks += seeks;
        cost.runs_opened += opened;
        cost.range_probes += probes;
        cost.range_negatives += negatives;
        cost.range_false_positives += false_positives;
    }
}
