//! Turns chosen tables into a plan: which tables of the output level join, whether a running job
//! conflicts, and whether a move is enough.

use super::*;
use crate::compaction::plan::{PlanInput, Work};
use crate::compaction::shape::RunningJob;

impl Layered {
    pub(super) fn draft<'a>(
        &self,
        selected: Vec<Selected<'a>>,
        output_level: usize,
        place: OutputPlace,
        reason: Reason,
    ) -> Draft<'a> {
        let max_table_bytes = self.table_bytes;
        Draft { selected, output_level, place, reason, besides: 0..0, max_table_bytes, stretch: None }
    }

    /// Completes a plan; `None` if it would conflict with a running job or if the device has no
    /// room for it.
    pub(super) fn build(&self, shape: &Shape, layout: &Layout, draft: &Draft<'_>) -> Option<Plan> {
        let Draft { selected, output_level, place, .. } = draft;
        let output_level = *output_level;
        let own = || selected.iter().flat_map(|s| s.tables());
        let mut range = KeyRange::hull(own())?;
        let joins = matches!(place, OutputPlace::Joined | OutputPlace::JoinedWhole);
        let runs = shape.runs(output_level);
        if joins && runs.len() > 1 {
            return None;
        }
        let target: &[TableShape] =
            if joins { runs.first().map_or(&[], |run| &run.tables) } else { Default::default() };
        let overlap = with_shared_keys(target, range.overlap(target));
        let may_move = overlap.is_empty()
            && draft.besides.is_empty()
            && are_disjoint(own().collect())
            && own().all(|table| self.may_move(shape, layout, table, output_level));
        let joined = match place {
            OutputPlace::JoinedWhole if !may_move => 0..target.len(),
            _ if draft.besides.is_empty() => overlap,
            _ if overlap.is_empty() => draft.besides.clone(),
            _ => overlap.start.min(draft.besides.start)..overlap.end.max(draft.besides.end),
        };
        target[joined.clone()].iter().for_each(|table| range.extend(table));
        if own().chain(&target[joined.clone()]).any(|table| table.busy) {
            return None;
        }
        // An empty level is filled by one job at a time, and so is a stack.
        let alone = !joins || target.is_empty();
        let first = selected.iter().map(|s| s.level).min()?;
        if shape.running.iter().any(|job| is_in_the_way(job, first, output_level, &range, alone)) {
            return None;
        }

        let ids = |tables: &[TableShape]| tables.iter().map(TableShape::id).collect();
        let mut inputs: Vec<PlanInput> = selected
            .iter()
            .filter(|s| !s.tables.is_empty())
            .map(|s| PlanInput { level: s.level, run: s.run.id, tables: ids(s.tables()) })
            .collect();
        if let Some(run) = runs.first().filter(|_| !joined.is_empty()) {
            inputs.push(PlanInput { level: output_level, run: run.id, tables: ids(&target[joined.clone()]) });
        }
        let output = match place {
            OutputPlace::Stacked => OutputRun::New,
            OutputPlace::NewestInput => {
                OutputRun::Into(selected.iter().find(|s| s.level == output_level)?.run.id)
            }
            OutputPlace::Joined | OutputPlace::JoinedWhole => runs
                .first()
                .filter(|_| !target.is_empty())
                .map_or(OutputRun::New, |run| OutputRun::Into(run.id)),
        };
        let named: HashSet<TableId> = inputs.iter().flat_map(|input| input.tables.iter().copied()).collect();
        let stays =
            |run: &RunShape| run.tables[range.overlap(&run.tables)].iter().any(|t| !named.contains(&t.id()));
        let plan = Plan {
            output_level,
            output,
            max_table_bytes: draft.max_table_bytes,
            borders: self.borders(shape, layout, output_level, &range),
            edges: self.edges(shape, layout, output_level, &range),
            bottommost: !older(shape, output_level, output).any(stays),
            stretch: (output_level == layout.last)
                .then(|| draft.stretch.clone().or_else(|| self.stretch(shape, layout)))
                .flatten(),
            range,
            reason: draft.reason,
            work: if may_move { Work::Move } else { Work::Merge },
            guard_bits: None,
            inputs,
        };
        let bytes: u64 = own().chain(&target[joined]).map(TableShape::bytes).sum();
        let fits = plan.work == Work::Move || layout.room.is_none_or(|room| bytes <= room);
        fits.then_some(plan)
    }

    /// Reports whether a table that overlaps nothing in `output_level` may move there unchanged. It
    /// must not overlap too much further down; and a table with deletes above no older data is
    /// worth rewriting, as nothing would drop them later. Tables that move to the last level in
    /// groups must not straddle its tables.
    pub(super) fn may_move(
        &self,
        shape: &Shape,
        layout: &Layout,
        table: &TableShape,
        output_level: usize,
    ) -> bool {
        let range = table.range();
        let overlapped = below(shape, output_level).map(|run| &run.tables[range.overlap(&run.tables)]);
        if self.is_partitioned(layout, output_level) && overlapped.clone().any(|tables| tables.len() > 1) {
            return false;
        }
        let bytes: u64 = overlapped.flatten().map(TableShape::bytes).sum();
        let is_bottommost = || {
            let overlapping =
                |run: &RunShape| run.tables[range.overlap(&run.tables)].iter().any(|t| t.id() != table.id());
            !older(shape, output_level, OutputRun::New).any(overlapping)
        };
        bytes <= self.max_overlap(output_level) && !(table.holds_deletes() && is_bottommost())
    }

    /// The keys at which outputs must be cut: in a level that is later merged down in groups, at
    /// every table of the last level; elsewhere, so that no output overlaps much more than
    /// [`max_overlap`](Self::max_overlap) bytes of the next level in use.
    pub(super) fn borders(
        &self,
        shape: &Shape,
        layout: &Layout,
        output_level: usize,
        range: &KeyRange,
    ) -> Vec<KeyBytes> {
        if self.is_partitioned(layout, output_level) {
            let last = shape.runs(layout.last).first();
            let last = last.map_or(&[][..], |run| &run.tables[range.overlap(&run.tables)]);
            return last.iter().map(|table| table.meta.smallest.clone()).collect();
        }
        let mut borders = Vec::new();
        let mut overlapped = 0u64;
        // Of several runs, the oldest: a whole level is merged at once, whatever its tables
        // overlap.
        let run = below(shape, output_level).last();
        for table in run.map_or(&[][..], |run| &run.tables[range.overlap(&run.tables)]) {
            if overlapped > 0 && overlapped + table.bytes() > self.max_overlap(output_level) {
                borders.push(table.meta.smallest.clone());
                overlapped = 0;
            }
            overlapped += table.bytes();
        }
        borders
    }

    /// The keys at which tables of the next level begin, if outputs are later merged into it with
    /// what they overlap: a table that ends at one spares the rewriting of a table that it would
    /// only touch.
    fn edges(&self, shape: &Shape, layout: &Layout, output_level: usize, range: &KeyRange) -> Vec<KeyBytes> {
        let next = output_level + 1;
        let by_pieces = self.granularity == Granularity::Partial
            && output_level < layout.last
            && self.kind(next, layout.last) == Kind::Leveling;
        let below = shape.runs(next).first().filter(|_| by_pieces);
        let tables = below.map_or(&[][..], |run| &run.tables[range.overlap(&run.tables)]);
        tables.iter().map(|table| table.meta.smallest.clone()).collect()
    }

    /// Merges runs of one level (newest first, adjacent in age) into one, in place of the newest.
    pub(super) fn in_place(
        &self,
        shape: &Shape,
        layout: &Layout,
        level: usize,
        runs: &[RunShape],
        reason: Reason,
    ) -> Option<Plan> {
        let selected = runs.iter().map(|run| Selected::whole(level, run)).collect();
        self.build(shape, layout, &self.draft(selected, level, OutputPlace::NewestInput, reason))
    }

    /// Merges the two oldest adjacent runs of a level that fit into the remaining room, if `plan` [is
    /// too much](Layout::is_too_much); `None` if the shape must not depend on that.
    pub(super) fn merge_neighbours(
        &self,
        shape: &Shape,
        layout: &Layout,
        level: usize,
        reason: Reason,
        plan: impl FnOnce(&Layout) -> Option<Plan>,
    ) -> Option<Plan> {
        let runs = shape.runs(level);
        // The number of runs first: the question costs another plan.
        if self.deterministic || runs.len() < 2 || !layout.is_too_much(plan) {
            return None;
        }
        let pairs = runs.windows(2).rev();
        pairs.into_iter().find_map(|pair| self.in_place(shape, layout, level, pair, reason))
    }
}

/// Reports whether a running job forbids a plan that takes tables from level `first` to
/// `output_level` within `range`.
///
/// Data that a running job brings to a level below `first`, down to the output level, is older than
/// the plan's newest inputs, and they must not pass it. Data that it writes to level `first` itself
/// is newer if it came from above, but of unknown age if it was there before.
fn is_in_the_way(job: &RunningJob, first: usize, output_level: usize, range: &KeyRange, alone: bool) -> bool {
    let overlaps = || job.range.overlaps(range);
    let at = job.output_level;
    if at == output_level {
        return alone || overlaps();
    }
    let passes = first < at && at < output_level;
    let joins_first = at == first && job.input_levels.0 == first;
    (passes || joins_first) && overlaps()
}

/// The runs whose data is older than data written to `output` of `level`.
fn older<'a>(
    shape: &'a Shape,
    level: usize,
    output: OutputRun,
) -> impl Iterator<Item = &'a RunShape> + Clone + 'a {
    let at = shape.runs(level);
    let from = match output {
        OutputRun::New => 0,
        OutputRun::Into(id) => at.partition_point(|run| run.id >= id),
    };
    at[from..].iter().chain((level + 1..shape.levels.len()).flat_map(|n| shape.runs(n)))
}

/// The runs of the first nonempty level below `level`.
fn below(shape: &Shape, level: usize) -> std::slice::Iter<'_, RunShape> {
    let next = (level + 1..shape.levels.len()).find(|&n| !shape.levels[n].is_empty());
    next.map_or(&[][..], |n| shape.runs(n)).iter()
}

fn are_disjoint(mut tables: Vec<&TableShape>) -> bool {
    tables.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
    tables.windows(2).all(|pair| !pair[0].meta.largest.reaches(&pair[1].meta.smallest))
}
