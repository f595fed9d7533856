//! Leveled compaction: level 0 collects one run for each flush, every deeper level is one run, each about
//! `size_ratio` times larger than the one above.
//!
//! # Targets follow the last level
//!
//! The last level's size is what the data takes; the levels above get that divided by the ratio once, twice,
//! and so on, up to the *base level*, the first whose target would not exceed `base_bytes`. Level 0 compacts
//! into the base level; the levels between them stay empty. An empty tree fills its last level first, and the
//! base moves up as the data grows.
//!
//! The alternative, fixed targets `base · T^(n−1)` counted from the top, is simpler and rewrites a little
//! less while the last level is young. But then the last level may be hardly larger than the one above, and
//! nearly every key may be stored twice. With targets that follow the last level, superseded versions take at
//! most about 1/T + 1/T² + … of the data (11 % for T = 10) at any time, the number of levels in use is the
//! same, and the last level, most of the data, is compressed as the last level from the first byte on.
//!
//! # What it costs
//!
//! Each byte is written once by its flush, at most about twice on its way into the base level (a level-0
//! batch is about as large as that level may be), and at most about T + 2 times for each level below the
//! base: itself, T bytes of the next level on average, and about one more for tables that overlap only in
//! part. Choosing the table with the least overlap keeps it well below that average: the simulation of the
//! tests measures 10.2 in all for T = 4 with five levels below level 0, and 11.5 for T = 10 with three. When
//! even level 1 would have to be larger than `base_bytes` and no deeper level is free, the step from level 0
//! becomes dearer in proportion: raise `levels`.
//!
//! # Invariants of every plan
//!
//! * No input is busy, and at the output level no running job's range overlaps the plan's.
//! * Inputs hold all tables of the output level that overlap the plan's range, and all tables of the input
//!   level that share a key with an input.
//! * At most one job reads level 0, and it reads all runs there are: a newer run never passes an older one.
//! * A level that is empty is filled by one job at a time.

use std::ops::Range;

use crate::compaction::plan::{OutputRun, Plan, PlanInput, Reason, Work};
use crate::compaction::policy::{CompactionPolicy, Pressure, Promise};
use crate::compaction::shape::{KeyRange, RunShape, Shape, TableShape};
use crate::key::KeyBytes;
use crate::options::KeyspaceOptions;

/// The leveled policy and its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Leveled {
    /// How many times larger each level is than the one above (T).
    pub(crate) size_ratio: u64,
    /// Runs in level 0 that start a compaction.
    pub(crate) level0_runs: usize,
    /// The largest size of the base level, in bytes.
    pub(crate) base_bytes: u64,
    /// Levels, level 0 among them.
    pub(crate) levels: usize,
    /// Size at which an output table is ended, in bytes.
    pub(crate) table_bytes: u64,
    /// Runs in level 0 from which on writes slow down.
    pub(crate) slowdown_runs: usize,
    /// Runs in level 0 at which writes wait.
    pub(crate) stop_runs: usize,
}

/// Where the data should be.
struct Layout {
    /// By level; 0 above the base level.
    targets: Vec<u64>,
    /// The deepest level to fill.
    last: usize,
    /// The level that level 0 compacts into.
    level0_output: usize,
}

/// A level that is due, by urgency.
struct Due {
    level: usize,
    /// Above 1: over the target by that factor.
    score: f64,
}

/// Tables of one run that are to be compacted.
struct Selected<'a> {
    level: usize,
    run: &'a RunShape,
    tables: Range<usize>,
}

impl Selected<'_> {
    fn tables(&self) -> &[TableShape] {
        &self.run.tables[self.tables.clone()]
    }
}

impl Leveled {
    /// The policy that a keyspace's options ask for. The base level holds as much as level 0 when it is due.
    pub(crate) fn new(options: &KeyspaceOptions) -> Self {
        Leveled {
            size_ratio: options.size_ratio.at(1),
            level0_runs: options.level0_runs,
            base_bytes: options.memtable_bytes.saturating_mul(options.level0_runs as u64),
            levels: options.levels,
            table_bytes: options.table_bytes,
            slowdown_runs: options.slowdown_runs,
            stop_runs: options.stop_runs,
        }
    }

    /// How many bytes of the next level one table may overlap before it is cut: twice the average of a full
    /// table, so that cutting is the exception.
    fn max_overlap(&self) -> u64 {
        self.table_bytes.saturating_mul(self.size_ratio).saturating_mul(2)
    }

    fn layout(&self, shape: &Shape) -> Layout {
        let bytes: Vec<u64> = shape.levels.iter().map(|level| level.bytes()).collect();
        let count = self.levels.max(bytes.len());
        let mut last = match shape.deepest() {
            None | Some(0) => self.levels - 1,
            Some(deepest) => deepest,
        };
        // What the last level will hold once the levels above are as small as they should be.
        let total: u64 = bytes.iter().skip(1).sum();
        let goal = bytes.get(last).copied().unwrap_or(0).max(total - total / self.size_ratio);
        loop {
            let mut targets = vec![0; count];
            let (mut base, mut target) = (last, goal.max(1));
            while target > self.base_bytes && base > 1 {
                targets[base] = target;
                base -= 1;
                target = (target / self.size_ratio).max(1);
            }
            // Options may have been given more levels than the tree was made with.
            if target > self.base_bytes && last + 1 < self.levels {
                last += 1;
                continue;
            }
            targets[base] = target.max(if base == last { self.base_bytes } else { 1 });
            let first_used = (1..bytes.len()).find(|&n| !shape.levels[n].is_empty());
            return Layout { targets, last, level0_output: first_used.map_or(base, |used| used.min(base)) };
        }
    }

    /// The levels that are due, most urgent first; level 0 before others of the same urgency.
    fn due(&self, shape: &Shape, layout: &Layout) -> Vec<Due> {
        let mut due = Vec::new();
        let runs = shape.levels.first().map_or(0, |level| level.runs.len());
        if runs >= self.level0_runs {
            due.push(Due { level: 0, score: runs as f64 / self.level0_runs as f64 });
        }
        for level in 1..layout.last {
            // Busy tables are on their way down, or as large a part of the level as they were before.
            let waiting: u64 =
                shape.sorted_level(level).iter().filter(|t| !t.busy).map(TableShape::bytes).sum();
            match layout.targets[level] {
                0 if waiting > 0 => {
                    // Above the base level: to be emptied, the sooner the fuller it is.
                    let relative = waiting as f64 * self.size_ratio as f64 / self.base_bytes as f64;
                    due.push(Due { level, score: relative.max(1.0) });
                }
                target if waiting > target => due.push(Due { level, score: waiting as f64 / target as f64 }),
                _ => {}
            }
        }
        due.sort_by(|a, b| b.score.total_cmp(&a.score));
        due
    }

    /// Level 0 as a whole into `output_level`.
    fn plan_level0(&self, shape: &Shape, output_level: usize, reason: Reason) -> Option<Plan> {
        let runs = shape.levels.first()?.runs.iter().filter(|run| !run.tables.is_empty());
        let selected: Vec<_> =
            runs.map(|run| Selected { level: 0, run, tables: 0..run.tables.len() }).collect();
        self.build(shape, &selected, output_level, reason)
    }

    /// Some tables of `level`, which is `excess` bytes too large, into the next one: those whose move costs
    /// least for each byte.
    fn plan_level(&self, shape: &Shape, level: usize, excess: u64) -> Option<Plan> {
        let run = shape.levels.get(level)?.runs.first()?;
        let below = shape.sorted_level(level + 1);
        let mut by_cost: Vec<(f64, usize)> = (0..run.tables.len())
            .filter(|&i| !run.tables[i].busy)
            .map(|i| {
                let overlapped: u64 =
                    below[run.tables[i].range().overlap(below)].iter().map(TableShape::bytes).sum();
                (overlapped as f64 / run.tables[i].bytes() as f64, i)
            })
            .collect();
        by_cost.sort_by(|a, b| a.0.total_cmp(&b.0));
        by_cost.into_iter().find_map(|(_, i)| {
            let tables = self.grow(shape, level, with_shared_keys(&run.tables, i..i + 1), excess);
            self.build(shape, &[Selected { level, run, tables }], level + 1, Reason::LevelSize)
        })
    }

    /// Adds neighbours that cost nothing: they overlap no table of the next level that is not an input
    /// already (up to a size), or none at all and can be moved as they are (up to what the level has in
    /// excess).
    fn grow(&self, shape: &Shape, level: usize, tables: Range<usize>, excess: u64) -> Range<usize> {
        let run = shape.sorted_level(level);
        let below = shape.sorted_level(level + 1);
        let Some(range) = KeyRange::hull(&run[tables.clone()]) else { return tables };
        let overlap = range.overlap(below);
        let moves = overlap.is_empty();
        if moves && !run[tables.clone()].iter().all(|t| self.may_move(shape, t, level + 1)) {
            return tables;
        }
        let limit = if moves { excess } else { self.max_overlap() };
        let fits = |grown: &Range<usize>| {
            let Some(range) = KeyRange::hull(&run[grown.clone()]) else { return false };
            let overlap_now = range.overlap(below);
            (overlap_now == overlap || moves && overlap_now.is_empty())
                && run[grown.clone()]
                    .iter()
                    .all(|t| !t.busy && (!moves || self.may_move(shape, t, level + 1)))
        };
        let mut bytes: u64 = run[tables.clone()].iter().map(TableShape::bytes).sum();
        let mut tables = tables;
        loop {
            let right = with_shared_keys(run, tables.start..(tables.end + 1).min(run.len()));
            let left = with_shared_keys(run, tables.start.saturating_sub(1)..tables.end);
            let Some(grown) = [right, left].into_iter().find(|grown| *grown != tables && fits(grown)) else {
                return tables;
            };
            bytes = run[grown.clone()].iter().map(TableShape::bytes).sum::<u64>().max(bytes);
            if bytes > limit {
                return tables;
            }
            tables = grown;
        }
    }

    /// Whether a table that overlaps nothing in `output_level` may go there as it is: it must not overlap too
    /// much further down, and a table with deletes that nothing older lies below is worth rewriting, as
    /// nothing later would drop them.
    fn may_move(&self, shape: &Shape, table: &TableShape, output_level: usize) -> bool {
        let range = table.range();
        let overlapped: u64 = below(shape, output_level, &range).iter().map(TableShape::bytes).sum();
        overlapped <= self.max_overlap()
            && !(table.holds_deletes() && is_bottommost(shape, output_level, &range))
    }

    /// Completes a plan with what the selected tables (newest run first) overlap in the output level; `None`
    /// if it would conflict with a running job.
    fn build(
        &self,
        shape: &Shape,
        selected: &[Selected<'_>],
        output_level: usize,
        reason: Reason,
    ) -> Option<Plan> {
        let own = || selected.iter().flat_map(|s| s.tables());
        let mut range = KeyRange::hull(own())?;
        let target = shape.sorted_level(output_level);
        let overlap = with_shared_keys(target, range.overlap(target));
        target[overlap.clone()].iter().for_each(|table| range.extend(table));
        if own().chain(&target[overlap.clone()]).any(|table| table.busy) {
            return None;
        }
        let fills_empty_level = target.is_empty();
        let conflicts = shape
            .running
            .iter()
            .any(|job| job.output_level == output_level && (fills_empty_level || job.range.overlaps(&range)));
        if conflicts {
            return None;
        }

        let ids = |tables: &[TableShape]| tables.iter().map(TableShape::id).collect();
        let mut inputs: Vec<PlanInput> = selected
            .iter()
            .map(|s| PlanInput { level: s.level, run: s.run.id, tables: ids(s.tables()) })
            .collect();
        let output_run = shape.levels.get(output_level).and_then(|level| level.runs.first());
        if let Some(run) = output_run.filter(|_| !overlap.is_empty()) {
            inputs.push(PlanInput {
                level: output_level,
                run: run.id,
                tables: ids(&target[overlap.clone()]),
            });
        }
        let trivial_move = overlap.is_empty()
            && are_disjoint(own().collect())
            && own().all(|table| self.may_move(shape, table, output_level));
        Some(Plan {
            inputs,
            output_level,
            output: output_run
                .filter(|_| !fills_empty_level)
                .map_or(OutputRun::New, |run| OutputRun::Into(run.id)),
            max_table_bytes: self.table_bytes,
            borders: self.borders(shape, output_level, &range),
            bottommost: is_bottommost(shape, output_level, &range),
            range,
            reason,
            work: if trivial_move { Work::Move } else { Work::Merge },
            guard_bits: None,
        })
    }

    /// Where outputs must be cut so that none overlaps much more than [`max_overlap`](Self::max_overlap)
    /// bytes below its level.
    fn borders(&self, shape: &Shape, output_level: usize, range: &KeyRange) -> Vec<KeyBytes> {
        let mut borders = Vec::new();
        let mut overlapped = 0u64;
        for table in below(shape, output_level, range) {
            if overlapped > 0 && overlapped + table.bytes() > self.max_overlap() {
                borders.push(table.meta.smallest.clone());
                overlapped = 0;
            }
            overlapped += table.bytes();
        }
        borders
    }
}

impl CompactionPolicy for Leveled {
    /// O(tables · log tables).
    fn plan(&self, shape: &Shape) -> Option<Plan> {
        let layout = self.layout(shape);
        let reads_level0 = shape.levels.first().is_some_and(|level| level.tables().any(|table| table.busy));
        let mut level0_waits = false;
        for due in self.due(shape, &layout) {
            // Level 0 needs nearly all of its output level at once: if short jobs there kept coming, it would
            // wait for ever. Jobs of levels that are more urgent came first.
            if level0_waits && (due.level == layout.level0_output || due.level + 1 == layout.level0_output) {
                continue;
            }
            let plan = if due.level > 0 {
                let waiting: u64 =
                    shape.sorted_level(due.level).iter().filter(|t| !t.busy).map(TableShape::bytes).sum();
                self.plan_level(shape, due.level, waiting.saturating_sub(layout.targets[due.level]))
            } else if !reads_level0 {
                let plan = self.plan_level0(shape, layout.level0_output, Reason::Level0Runs);
                level0_waits = plan.is_none();
                plan
            } else {
                None
            };
            if plan.is_some() {
                return plan;
            }
        }
        None
    }

    fn write_pressure(&self, shape: &Shape) -> Pressure {
        Pressure::of(shape.runs(0).len() as u64, self.slowdown_runs as u64, self.stop_runs as u64)
    }

    fn debt(&self, _shape: &Shape) -> u64 {
        0
    }

    fn promise(&self, _shape: &Shape) -> Promise {
        Promise::default()
    }

    fn ends_round(&self, _shape: &Shape, _plan: &Plan) -> bool {
        true
    }

    fn level_targets(&self, shape: &Shape) -> Vec<u64> {
        self.layout(shape).targets
    }

    /// Level 0 as a whole, then deeper levels piece by piece, so that no step needs much free space and
    /// pieces can run at once. Tables that are in the last level already are left alone.
    fn manual(&self, shape: &Shape, range: Option<&KeyRange>) -> Option<Plan> {
        let concerns = |table: &TableShape| range.is_none_or(|range| range.overlaps_table(table));
        let layout = self.layout(shape);
        if shape.levels.first()?.tables().any(concerns) {
            return self.plan_level0(shape, layout.level0_output, Reason::Manual);
        }
        let deepest = shape.deepest().filter(|deepest| *deepest > 0)?;
        let level = (1..deepest).find(|&n| shape.sorted_level(n).iter().any(concerns))?;
        let output_level = (level + 1..=deepest).find(|&n| !shape.levels[n].is_empty())?;
        let run = shape.levels[level].runs.first()?;
        (0..run.tables.len()).filter(|&i| concerns(&run.tables[i]) && !run.tables[i].busy).find_map(|from| {
            let mut bytes = 0;
            let piece = run.tables[from..].iter().take_while(|table| {
                let fits = bytes < self.max_overlap() && concerns(table) && !table.busy;
                bytes += table.bytes();
                fits
            });
            let tables = with_shared_keys(&run.tables, from..from + piece.count());
            self.build(shape, &[Selected { level, run, tables }], output_level, Reason::Manual)
        })
    }

    fn name(&self) -> String {
        "leveling".into()
    }
}

/// Widens a stretch of a run by the neighbours that share a user key with it. In a sound tree there are none.
fn with_shared_keys(run: &[TableShape], mut tables: Range<usize>) -> Range<usize> {
    if tables.is_empty() {
        return tables;
    }
    let share = |i: usize| run[i].meta.largest.reaches(&run[i + 1].meta.smallest);
    while tables.start > 0 && share(tables.start - 1) {
        tables.start -= 1;
    }
    while tables.end < run.len() && share(tables.end - 1) {
        tables.end += 1;
    }
    tables
}

/// The tables that overlap `range` in the first level below `level` that has tables.
fn below<'a>(shape: &'a Shape, level: usize, range: &KeyRange) -> &'a [TableShape] {
    let next = (level + 1..shape.levels.len()).map(|n| shape.sorted_level(n)).find(|run| !run.is_empty());
    next.map_or(&[], |run| &run[range.overlap(run)])
}

/// Whether nothing below `level` overlaps `range`.
fn is_bottommost(shape: &Shape, level: usize, range: &KeyRange) -> bool {
    (level + 1..shape.levels.len()).all(|n| range.overlap(shape.sorted_level(n)).is_empty())
}

fn are_disjoint(mut tables: Vec<&TableShape>) -> bool {
    tables.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
    tables.windows(2).all(|pair| !pair[0].meta.largest.reaches(&pair[1].meta.smallest))
}

#[cfg(test)]
mod tests;
