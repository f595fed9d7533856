//! Turns what is due into a plan: what must be included, where it goes, and whether it has to wait.

use super::Fragmented;
use super::layout::Layout;
use crate::compaction::plan::{OutputRun, Plan, PlanInput, Reason, Work};
use crate::compaction::policy::fragmented::guards::{oldest_run, place};
use crate::compaction::shape::{KeyRange, Shape, TableShape};

impl Fragmented {
    /// Plans the merge of all of level 0 into `output_level`.
    pub(super) fn plan_level0(
        &self,
        shape: &Shape,
        layout: &Layout<'_>,
        output_level: usize,
        reason: Reason,
    ) -> Result<Plan, Option<KeyRange>> {
        let seed = KeyRange::hull(shape.levels.first().into_iter().flat_map(|level| level.tables()));
        let seed = seed.ok_or(None)?;
        self.build(shape, layout, &seed, 0, output_level, reason)
    }

    /// Plans the merge of everything at `level` that overlaps `seed`, and of what must be included
    /// with it, into `output_level`. If the plan has to wait for a running job, returns the range
    /// that it would take.
    pub(super) fn build(
        &self,
        shape: &Shape,
        layout: &Layout<'_>,
        seed: &KeyRange,
        level: usize,
        output_level: usize,
        reason: Reason,
    ) -> Result<Plan, Option<KeyRange>> {
        // From the newest run to the oldest: data that is older than an input and overlaps it comes
        // later.
        let mut closure = seed.clone();
        let mut inputs = Vec::new();
        let mut tables: Vec<&TableShape> = Vec::new();
        for run in shape.runs(level) {
            let taken = &run.tables[closure.overlap(&run.tables)];
            if taken.is_empty() {
                continue;
            }
            taken.iter().for_each(|table| closure.extend(table));
            inputs.push(PlanInput { level, run: run.id, tables: taken.iter().map(TableShape::id).collect() });
            tables.extend(taken);
        }
        let range = KeyRange::hull(tables.iter().copied()).ok_or(None)?;
        let written = || shape.running.iter().filter(|job| job.output_level == output_level);
        if tables.iter().any(|t| t.busy) || written().any(|job| job.range.overlaps(&range)) {
            return Err(Some(range));
        }
        let is_within = level == output_level;
        let output = if is_within {
            oldest_run(shape, level).map_or(OutputRun::New, OutputRun::Into)
        } else {
            place(shape, output_level, &range)
        };
        if output == OutputRun::New && written().any(|job| job.output == OutputRun::New) {
            return Err(Some(range));
        }
        let older = output_level + usize::from(is_within)..shape.levels.len();
        let bottommost = older.flat_map(|n| shape.runs(n)).all(|run| range.overlap(&run.tables).is_empty());
        let moves = self.may_move(shape, layout, &mut tables, output_level, is_within, bottommost);
        let bytes: u64 = tables.iter().map(|t| t.bytes()).sum();
        if !moves && shape.room.is_some_and(|room| bytes > room) {
            return Err(None);
        }
        Ok(Plan {
            inputs,
            output_level,
            output,
            max_table_bytes: self.table_bytes,
            borders: layout.guards.within(output_level, &range),
            edges: Vec::new(),
            range,
            reason,
            work: if moves { Work::Move } else { Work::Merge },
            guard_bits: Some(layout.guards.bits(output_level)),
            bottommost,
            stretch: None,
        })
    }

    /// Reports whether tables may move to a level unchanged: they are disjoint and not tiny, no
    /// deletes are to be dropped, and none straddles a guard there with data below it.
    pub(super) fn may_move(
        &self,
        shape: &Shape,
        layout: &Layout<'_>,
        tables: &mut [&TableShape],
        output_level: usize,
        is_within: bool,
        bottommost: bool,
    ) -> bool {
        tables.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
        let bytes: u64 = tables.iter().map(|t| t.bytes()).sum();
        let disjoint = tables.windows(2).all(|pair| !pair[0].meta.largest.reaches(&pair[1].meta.smallest));
        if !disjoint || tables.len() > 1 && bytes / (tables.len() as u64) < self.table_bytes / 8 {
            return false;
        }
        tables.iter().all(|table| {
            let range = table.range();
            let covers = || shape.runs(output_level).iter().any(|run| !range.overlap(&run.tables).is_empty());
            !(bottommost && table.holds_deletes())
                && (is_within || layout.guards.within(output_level, &range).is_empty() || !covers())
        })
    }

    /// Moves tables of one run of a level with many runs into the next older run where that is
    /// free. A merge puts all of its outputs into one run, above everything in its range; where
    /// less lies below, they float. Each move costs a manifest edit and lowers the number of runs
    /// below a table.
    pub(super) fn sink(&self, shape: &Shape, layout: &Layout<'_>, level: usize) -> Option<Plan> {
        let runs = shape.runs(level);
        if runs.len() <= self.most_runs(level) {
            return None;
        }
        let jobs = || shape.running.iter().filter(|job| job.output_level == level);
        runs.windows(2).rev().find_map(|pair| {
            let (upper, lower) = (&pair[0], &pair[1]);
            let floats = |table: &&TableShape| !table.busy && table.range().overlap(&lower.tables).is_empty();
            let mut range: Option<KeyRange> = None;
            let mut tables = Vec::new();
            for table in upper.tables.iter().filter(floats) {
                let mut grown = range.clone().unwrap_or_else(|| table.range());
                grown.extend(table);
                if !jobs().any(|job| job.range.overlaps(&grown)) {
                    range = Some(grown);
                    tables.push(table.id());
                } else if range.is_some() {
                    break;
                }
            }
            Some(Plan {
                inputs: vec![PlanInput { level, run: upper.id, tables }],
                output_level: level,
                output: OutputRun::Into(lower.id),
                range: range?,
                max_table_bytes: self.table_bytes,
                borders: Vec::new(),
                edges: Vec::new(),
                reason: Reason::Joining,
                work: Work::Move,
                guard_bits: Some(layout.guards.bits(level)),
                bottommost: false,
                stretch: None,
            })
        })
    }

    /// The number of runs in a level above which tables sink.
    pub(super) fn most_runs(&self, level: usize) -> usize {
        2 * self.ratio(level) as usize
    }
}
