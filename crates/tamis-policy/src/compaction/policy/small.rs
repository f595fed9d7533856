//! Small tables, joined with their neighbours.
//!
//! Tables that overlap nothing are moved and never merged, and every merge ends with a table that
//! is not full. Left alone, a load of ascending keys would leave a table for each flush. So a run
//! with too many tables for its bytes joins neighbours in place: no run and no level changes.
//!
//! # Promise
//!
//! When nothing is due, a run of B bytes has at most B / (`table_bytes` / 2) tables, one more for
//! each *wall*, and [`SPARE`] more. A wall is a key at which the policy ends tables on purpose: a
//! guard, a border of a partition, or where a table would overlap too much of the next level. No
//! table is joined across one. Tables that no job may read (damaged ones) are not counted, and are
//! walls themselves.
//!
//! The promise can be kept: with more tables than that, two neighbours without a wall between them
//! have at most `table_bytes` together. If no two had, each stretch of b bytes between walls would
//! have at most 2b / `table_bytes` + 1 tables.
//!
//! # Cost
//!
//! A run joins only once it has more tables than it may have, and then the stretch that grows most:
//! whose result is the largest multiple of its largest table. So small tables are joined with small
//! ones, many at a time, and a large table is rewritten only together with others of its size. Of n
//! tables of equal size that come one after the other, each byte is rewritten about as often as the
//! least k for which (`SPARE` + k over k) ≥ n: 4 times for 4,800 tables, 6 for 74,000. The worst
//! case is a small table between two nearly full ones: it costs what it costs everywhere to write a
//! few keys into the midst of a full table.
//!
//! Each join removes at least one table, so joins end.

use std::ops::Range;

use tamis_base::key::KeyBytes;

use crate::compaction::plan::{OutputRun, Plan, PlanInput, Reason, Work};
use crate::compaction::released::nothing_older;
use crate::compaction::shape::{KeyRange, Shape, TableShape};

/// Tables that a run may have beyond what its bytes and walls allow. Each costs a file handle and
/// some memory; fewer would have each byte rewritten more often.
pub(super) const SPARE: usize = 16;

/// Most inputs of one job.
const MOST_INPUTS: usize = 256;

/// A stretch that grows as many times is joined without a look at the others.
const ENOUGH: f64 = 16.0;

/// A run, or a part of it.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) level: usize,
    /// The position of its run in the level.
    pub(super) run: usize,
    pub(super) tables: Range<usize>,
}

impl Part {
    /// Returns all runs.
    pub(super) fn whole_runs(shape: &Shape) -> impl Iterator<Item = Part> + '_ {
        let levels = shape.levels.iter().enumerate();
        levels.flat_map(|(level, l)| {
            let runs = l.runs.iter().enumerate();
            runs.map(move |(run, r)| Part { level, run, tables: 0..r.tables.len() })
        })
    }

    /// Returns the tables that overlap `range` (all if `None`), if they are all in one run.
    pub(super) fn only_run(shape: &Shape, range: Option<&KeyRange>) -> Option<Part> {
        let overlap = |part: Part| {
            let tables = &shape.levels[part.level].runs[part.run].tables;
            let tables = range.map_or(0..tables.len(), |range| range.overlap(tables));
            Part { tables, ..part }
        };
        let mut parts = Part::whole_runs(shape).map(overlap).filter(|part| !part.tables.is_empty());
        parts.next().filter(|_| parts.next().is_none())
    }

    pub(super) fn tables<'s>(&self, shape: &'s Shape) -> &'s [TableShape] {
        &shape.levels[self.level].runs[self.run].tables[self.tables.clone()]
    }

    pub(super) fn range(&self, shape: &Shape) -> Option<KeyRange> {
        KeyRange::hull(self.tables(shape))
    }
}

/// Joins small tables of a policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joiner {
    /// Most bytes of a table that is made by joining.
    pub(super) table_bytes: u64,
    /// Tables that a run may have beyond what its bytes and walls allow; at least 1.
    pub(super) spare: usize,
}

impl Joiner {
    /// Returns the number of tables that `bytes` of a run may be in.
    fn most(&self, bytes: u64, walls: usize) -> usize {
        let by_bytes = u128::from(bytes) * 2 / u128::from(self.table_bytes.max(1));
        usize::try_from(by_bytes).unwrap_or(usize::MAX).saturating_add(walls).saturating_add(self.spare)
    }

    /// Returns the most tables that a tree of this shape has when nothing is due. `walls` of a run
    /// ascend.
    pub(super) fn promised(
        &self,
        shape: &Shape,
        parts: impl Iterator<Item = Part>,
        walls: impl Fn(&Part) -> Vec<KeyBytes>,
    ) -> usize {
        parts.fold(0, |sum: usize, part| {
            let tables = part.tables(shape);
            let stretches = stretches(tables, &walls(&part));
            let joined = || stretches.iter().flat_map(|stretch| &tables[stretch.clone()]);
            let busy = tables.len() - joined().count();
            let bytes = joined().map(TableShape::bytes).sum();
            sum.saturating_add(self.most(bytes, stretches.len().saturating_sub(1))).saturating_add(busy)
        })
    }

    /// Returns how often at most data is written that overlaps nothing, and so is moved where other
    /// data is merged: once by its flush, of `flushed` bytes, and then by joins.
    pub(super) fn writes(&self, flushed: u64) -> f64 {
        let flushes = u128::from(self.table_bytes / flushed.max(1));
        let (mut reached, mut joins) = (1u128, 0u32);
        while reached < flushes {
            joins += 1;
            reached = reached * (SPARE as u128 + u128::from(joins)) / u128::from(joins);
        }
        f64::from(1 + joins)
    }

    /// Plans a join in the first part that has too many tables. O(tables), and O(log tables) for
    /// each table of such a part.
    pub(super) fn plan(
        &self,
        shape: &Shape,
        mut parts: impl Iterator<Item = Part>,
        walls: impl Fn(&Part) -> Vec<KeyBytes>,
        reason: Reason,
    ) -> Option<Plan> {
        parts.find_map(|part| self.join(shape, &part, &walls, reason))
    }

    fn join(
        &self,
        shape: &Shape,
        part: &Part,
        walls: impl Fn(&Part) -> Vec<KeyBytes>,
        reason: Reason,
    ) -> Option<Plan> {
        let tables = part.tables(shape);
        let free = || tables.iter().filter(|table| !table.busy);
        let (count, bytes) = (free().count(), free().map(TableShape::bytes).sum());
        // Nearly always so; walls only allow more.
        if count <= self.most(bytes, 0) {
            return None;
        }
        let stretches = stretches(tables, &walls(part));
        if count <= self.most(bytes, stretches.len().saturating_sub(1)) {
            return None;
        }
        let mut found = Vec::new();
        for at in
            stretches.into_iter().flat_map(|stretch| stretch.clone().map(move |at| (stretch.clone(), at)))
        {
            let Some((growth, joined)) = self.around(tables, at) else { continue };
            if growth >= ENOUGH
                && let Some(plan) = self.build(shape, part, joined.clone(), reason)
            {
                return Some(plan);
            }
            found.push((growth, joined));
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        found.into_iter().find_map(|(_, joined)| self.build(shape, part, joined, reason))
    }

    /// Returns the neighbours in a stretch around the table `at` that are no larger and fit into
    /// one table with it, and how many times as large as that table they are together; `None` if
    /// there are none.
    fn around(
        &self,
        tables: &[TableShape],
        (stretch, at): (Range<usize>, usize),
    ) -> Option<(f64, Range<usize>)> {
        let own = tables[at].bytes();
        let (mut joined, mut bytes) = (at..at + 1, own);
        let mut takes = |i: usize, count: usize| {
            let more = tables[i].bytes();
            let fits = more <= own && bytes.saturating_add(more) <= self.table_bytes && count < MOST_INPUTS;
            bytes += if fits { more } else { 0 };
            fits
        };
        while joined.start > stretch.start && takes(joined.start - 1, joined.len()) {
            joined.start -= 1;
        }
        while joined.end < stretch.end && takes(joined.end, joined.len()) {
            joined.end += 1;
        }
        (joined.len() > 1).then_some((bytes as f64 / own as f64, joined))
    }

    fn build(&self, shape: &Shape, part: &Part, of: Range<usize>, reason: Reason) -> Option<Plan> {
        let run = &shape.levels[part.level].runs[part.run];
        let joined = &part.tables(shape)[of];
        let range = KeyRange::hull(joined)?;
        // A run of a sound tree holds a key once.
        let is_alone = range.overlap(&run.tables).len() == joined.len();
        // A job that brings data past this level takes what overlaps it there, and the joined table
        // will.
        let is_near =
            |levels: (usize, usize), output| levels.0 <= part.level && part.level <= levels.1.max(output);
        let conflicts = shape
            .running
            .iter()
            .any(|job| is_near(job.input_levels, job.output_level) && job.range.overlaps(&range));
        let bytes: u64 = joined.iter().map(TableShape::bytes).sum();
        if !is_alone || conflicts || shape.room.is_some_and(|room| bytes > room) {
            return None;
        }
        Some(Plan {
            inputs: vec![PlanInput {
                level: part.level,
                run: run.id,
                tables: joined.iter().map(TableShape::id).collect(),
            }],
            output_level: part.level,
            output: OutputRun::Into(run.id),
            bottommost: nothing_older(shape, (part.level, part.run), &range),
            range,
            // One table, whatever encoding makes of it: a join that leaves as many tables would be
            // made again.
            max_table_bytes: u64::MAX,
            borders: Vec::new(),
            edges: Vec::new(),
            reason,
            work: Work::Merge,
            guard_bits: None,
            stretch: None,
        })
    }
}

/// Returns the stretches of tables that jobs may read, without a wall between them.
fn stretches(tables: &[TableShape], walls: &[KeyBytes]) -> Vec<Range<usize>> {
    let (mut found, mut start) = (Vec::new(), None);
    let mut walls = walls.iter().peekable();
    for (i, table) in tables.iter().enumerate() {
        let mut ends = table.busy;
        while walls.next_if(|wall| **wall <= table.meta.smallest).is_some() {
            ends = true;
        }
        if ends {
            found.extend(start.take().map(|start| start..i));
        }
        if !table.busy {
            start = start.or(Some(i));
        }
    }
    found.extend(start.map(|start| start..tables.len()));
    found
}
