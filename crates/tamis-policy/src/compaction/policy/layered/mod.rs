//! The layered policies. Every level is either *tiering*, a stack of runs merged together into one
//! run of the next level, or *leveling*, one run that grows as data is merged into it. The four
//! policies differ only in the kind of each level:
//!
//! | policy | level 0 | between | last level |
//! | --- | --- | --- | --- |
//! | leveling | tiering | leveling | leveling |
//! | tiering | tiering | tiering | tiering |
//! | lazy leveling (Dostoevsky, Dayan and Idreos, SIGMOD 2018) | tiering | tiering | leveling |
//! | hybrid:N | tiering | tiering, then N − 1 leveling | leveling |
//!
//! # Sizes
//!
//! [`layout`] determines how large levels may be: targets follow the last level if it is leveling,
//! and pure tiering counts only runs. A leveling level is *due* when it holds more bytes than its
//! target; a tiering level when it holds T runs or more bytes than its target, so that both its
//! runs and its space are bounded.
//!
//! # Merge granularity
//!
//! * [`full`]: whole levels, directly into the first level that is not due after receiving them
//!   (GRF, SIGMOD 2024, section 2), so that nothing is written only to be read again. In pure
//!   tiering, level 0 is merged alone if the levels below it are large, as only one job at a time
//!   can read level 0. With `deterministic`, the same by the number of flushes ([`counted`]).
//! * [`pieces`]: some tables, chosen by a [`pick`]er, and the tables they overlap in the next
//!   level, which is leveling. Only whole levels are merged into a tiering level: a run made from
//!   part of a level would stay beside the rest forever.
//! * [`partition`]: full merges down to the last level but one; from there in groups of tables that
//!   overlap perfectly (Spooky, VLDB 2022).
//!
//! # Invariants of every plan
//!
//! * No input is busy, and no running job's output falls between the plan's inputs and its output,
//!   or over its range at the output level.
//! * Inputs include all tables of a leveling output level that overlap the plan's range, and all
//!   tables of the input run that share a key with an input.
//! * Age: where data of the levels between (first input level included) overlaps, an older table is
//!   an input if a newer one is. At most one job reads level 0, or a tiering level that is merged
//!   whole.
//! * An empty level is filled by one job at a time, and so is a tiering level: its runs arrive in
//!   order of age.
//!
//! # Shapes of other policies
//!
//! Several runs in a leveling level are joined first ([`Reason::Joining`]). Levels above the base
//! level, and levels that are too deep, are due until they are empty or the last.
//!
//! All functions are pure; a plan costs O(tables · log tables).

use std::ops::Range;

use crate::compaction::plan::{OutputRun, Plan, Reason};
use crate::compaction::policy::small::{Joiner, Part, SPARE};
use crate::compaction::policy::{CompactionPolicy, Pressure, Promise};
use crate::compaction::settings::{Form, Granularity, Picker, Ratios, Settings};
use crate::compaction::shape::{KeyRange, LevelShape, RunShape, Shape, Spot, TableShape};

mod build;
mod counted;
mod deeper;
mod draft;
mod full;
mod layout;
mod manual;
mod partition;
mod pick;
mod pieces;
mod promise;

use draft::{Draft, Kind, Layout, OutputPlace, Selected};

use tamis_base::collections::HashSet;
use tamis_base::ids::TableId;
use tamis_base::key::KeyBytes;

/// A layered policy and its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Layered {
    pub(crate) form: Form,
    /// The number of leveling levels at the bottom: 0 for tiering, `usize::MAX` for leveling.
    pub(crate) leveling: usize,
    pub(crate) granularity: Granularity,
    pub(crate) picker: Picker,
    pub(crate) deterministic: bool,
    /// The size ratio T: level n + 1 is T times larger than level n, or T runs of level n make one
    /// run of level n + 1.
    pub(crate) size_ratio: Ratios,
    /// Runs in level 0 that start a compaction.
    pub level0_runs: usize,
    /// Runs in level 0 that start a compaction while flushes follow each other quickly; at least
    /// `level0_runs`.
    pub(crate) batch_runs: usize,
    /// Bytes in a run merged from level 0; the largest size of a leveling base level, or half of it
    /// under partial merges.
    pub(crate) base_bytes: u64,
    /// Number of levels, including level 0.
    pub(crate) levels: usize,
    /// Size at which an output table ends, in bytes.
    pub(crate) table_bytes: u64,
    /// Runs in level 0 at which writes slow down.
    pub(crate) slowdown_runs: usize,
    /// Runs in level 0 at which writes stall.
    pub(crate) stop_runs: usize,
    /// Debt in bytes at which writes slow down.
    pub(crate) slowdown_debt: u64,
    /// Debt in bytes at which writes stall.
    pub(crate) stop_debt: u64,
}

/// How long after a flush a level 0 that has `level0_runs` runs waits for another one.
const COLLECTING_SECONDS: u64 = 5;

/// A level that is due, with its urgency.
struct Due {
    level: usize,
    /// The factor by which it exceeds its limit; above 1.
    score: f64,
    reason: Reason,
}

/// Bytes of the tables that no running job is moving away.
fn waiting(level: &LevelShape) -> u64 {
    level.tables().filter(|table| !table.busy).map(TableShape::bytes).sum()
}

/// Reports whether part of the run is not being moved away.
fn is_waiting(run: &RunShape) -> bool {
    run.tables.iter().any(|table| !table.busy)
}

impl Layered {
    /// Creates the policy from a keyspace's settings; leveling if they name no policy of this
    /// family.
    pub(crate) fn new(settings: &Settings) -> Self {
        Layered {
            form: settings.form,
            leveling: match settings.form {
                Form::Tiering => 0,
                Form::LazyLeveling => 1,
                Form::Hybrid(levels) => levels,
                _ => usize::MAX,
            },
            granularity: settings.granularity,
            picker: settings.picker,
            deterministic: settings.deterministic,
            size_ratio: settings.size_ratio.clone(),
            level0_runs: settings.level0_runs,
            batch_runs: settings
                .level0_runs
                .saturating_mul(2)
                .min(settings.slowdown_runs.saturating_sub(1))
                .max(settings.level0_runs),
            base_bytes: settings.memtable_bytes.saturating_mul(settings.level0_runs as u64),
            levels: settings.levels,
            table_bytes: settings.table_bytes,
            slowdown_runs: settings.slowdown_runs,
            stop_runs: settings.stop_runs,
            slowdown_debt: settings.slowdown_debt_bytes,
            stop_debt: settings.stop_debt_bytes,
        }
    }

    /// Returns the size ratio between `level` and the next, at least 2.
    fn ratio(&self, level: usize) -> u64 {
        self.size_ratio.at(level).max(2)
    }

    /// The bytes of the next level that a table of `level` may overlap before it is cut: twice the
    /// average of a full table, so that cutting is the exception.
    fn max_overlap(&self, level: usize) -> u64 {
        self.table_bytes.saturating_mul(self.ratio(level)).saturating_mul(2)
    }

    /// The deepest level that full merges reach; groups take over below it. A tree so small that
    /// level 0 compacts directly into the last level has no groups.
    fn full_limit(&self, layout: &Layout) -> usize {
        let partitioned = layout.partitioned().filter(|level| layout.base <= *level);
        match self.granularity {
            Granularity::Partitioned => partitioned.unwrap_or(layout.last),
            _ => layout.last,
        }
    }

    /// Reports whether `level` is merged down in groups.
    fn is_partitioned(&self, layout: &Layout, level: usize) -> bool {
        self.granularity == Granularity::Partitioned && layout.partitioned() == Some(level)
    }

    /// Reports whether `level` would exceed its limits with `runs` runs of `bytes` bytes.
    fn is_over(&self, layout: &Layout, level: usize, runs: usize, bytes: u64) -> bool {
        let too_large = layout.counts_bytes && bytes > layout.targets[level];
        match self.kind(level, layout.last) {
            Kind::Leveling => too_large,
            Kind::Tiering if level == 0 => runs >= self.level0_runs,
            Kind::Tiering => too_large || runs as u64 >= self.ratio(level),
        }
    }

    /// Returns the levels that are due, most urgent first; level 0 before others of the same
    /// urgency, and before levels that are merged down in groups.
    fn due(&self, shape: &Shape, layout: &Layout) -> Vec<Due> {
        let mut due = Vec::new();
        let runs = shape.runs(0).len();
        if runs >= self.level0_runs && !self.may_collect(shape, layout) {
            let score = runs as f64 / self.level0_runs as f64;
            due.push(Due { level: 0, score, reason: Reason::Level0Runs });
        }
        // Pure tiering has no level below its last one to move data to: that one is merged in
        // place.
        let end = if layout.counts_bytes { layout.last } else { layout.last + 1 };
        for level in 1..end.min(shape.levels.len()) {
            // Busy tables are on their way down, or make up as large a part of the level as before.
            let waiting = waiting(&shape.levels[level]);
            let runs = shape.runs(level).iter().filter(|run| is_waiting(run)).count();
            let target = layout.targets[level];
            let kind = self.kind(level, layout.last);
            if waiting == 0 {
                continue;
            }
            if layout.counts_bytes && target == 0 {
                // Above the base level: to be emptied, and more urgent the fuller it is.
                let relative = waiting as f64 * self.ratio(level) as f64 / self.base_bytes as f64;
                due.push(Due { level, score: relative.max(1.0), reason: Reason::LevelSize });
            } else if self.is_over(layout, level, runs, waiting) {
                let by_size = if layout.counts_bytes { waiting as f64 / target.max(1) as f64 } else { 0.0 };
                let by_runs =
                    if kind == Kind::Tiering { runs as f64 / self.ratio(level) as f64 } else { 0.0 };
                let reason = if by_runs > by_size { Reason::RunCount } else { Reason::LevelSize };
                due.push(Due { level, score: by_size.max(by_runs), reason });
            } else if self.is_partitioned(layout, level) && self.is_draining(shape, layout) {
                due.push(Due { level, score: 1.0, reason: Reason::Partition });
            }
        }
        // Groups come after level 0, for which writers may wait, whatever their level exceeds.
        let yields = |due: &Due| runs >= self.level0_runs && self.is_partitioned(layout, due.level);
        due.sort_by(|a, b| yields(a).cmp(&yields(b)).then(b.score.total_cmp(&a.score)));
        due
    }

    /// Reports whether level 0 may keep collecting runs although it has enough. Runs arrive
    /// quickly, and the more are merged at once, the less of a leveling level each one rewrites.
    /// Not if space is short, debt is high or a caller waits.
    fn may_collect(&self, shape: &Shape, layout: &Layout) -> bool {
        let runs = shape.runs(0);
        let flushes = runs.iter().flat_map(|run| &run.tables).map(|table| table.meta.extra.written.1);
        // 0 is unknown.
        let newest = flushes.max().filter(|&flushed| flushed > 0);
        let is_young = |flushed| shape.now.checked_sub(flushed).is_some_and(|age| age < COLLECTING_SECONDS);
        let bytes = |level: usize| shape.levels.get(level).map_or(0, LevelShape::bytes);
        let output = layout.level0_output;
        runs.len() < self.batch_runs
            && !shape.settling
            && newest.is_some_and(is_young)
            && self.kind(output, layout.last) == Kind::Leveling
            && shape.room.is_none_or(|room| room / 4 > bytes(0).saturating_add(bytes(output)))
            && self.debt(shape) < self.slowdown_debt
    }

    /// Plans one step for a level that is due.
    fn plan_due(&self, shape: &Shape, layout: &Layout, due: &Due) -> Option<Plan> {
        let Due { level, reason, .. } = *due;
        if self.is_partitioned(layout, level) {
            return self.plan_group(shape, layout);
        }
        let next = if level == 0 { layout.level0_output } else { level + 1 };
        let by_pieces = level > 0
            && self.granularity == Granularity::Partial
            && layout.counts_bytes
            && self.kind(next, layout.last) == Kind::Leveling;
        if by_pieces {
            let excess = waiting(&shape.levels[level]).saturating_sub(layout.targets[level]);
            let pieces = |layout: &Layout| self.plan_pieces(shape, layout, level, next, excess, reason);
            return pieces(layout).or_else(|| self.merge_neighbours(shape, layout, level, reason, pieces));
        }
        self.plan_full(shape, layout, level, reason)
    }

    /// Plans the merge of a leveling level's several runs into one.
    fn plan_joining(&self, shape: &Shape, layout: &Layout) -> Option<Plan> {
        let several =
            |level: &usize| shape.runs(*level).len() > 1 && self.kind(*level, layout.last) == Kind::Leveling;
        (1..shape.levels.len()).filter(several).find_map(|level| {
            let runs = shape.runs(level);
            let whole = |layout: &Layout| self.in_place(shape, layout, level, runs, Reason::Joining);
            whole(layout).or_else(|| self.merge_neighbours(shape, layout, level, Reason::Joining, whole))
        })
    }

    /// Plans a join of small tables in the first of these parts with too many. Runs and levels stay
    /// as they are, so it is made even where they are to follow from the number of flushes alone.
    fn plan_small(
        &self,
        shape: &Shape,
        layout: &Layout,
        parts: impl Iterator<Item = Part>,
        spare: usize,
        reason: Reason,
    ) -> Option<Plan> {
        let joiner = Joiner { table_bytes: self.table_bytes, spare };
        let mut plan = joiner.plan(shape, parts, |part| self.walls(shape, layout, part), reason)?;
        plan.stretch = self.stretch(shape, layout).filter(|_| plan.output_level == layout.last);
        Some(plan)
    }

    /// Returns the keys at which the tables of a part were, or will be, cut on purpose.
    fn walls(&self, shape: &Shape, layout: &Layout, part: &Part) -> Vec<KeyBytes> {
        let range = part.range(shape).filter(|_| part.level > 0);
        range.map_or_else(Vec::new, |range| self.borders(shape, layout, part.level, &range))
    }

    fn plan_sized(&self, shape: &Shape, layout: &Layout) -> Option<Plan> {
        let reads_level0 = shape.levels.first().is_some_and(|level| level.tables().any(|table| table.busy));
        let mut level0_waits = false;
        for due in self.due(shape, layout) {
            // Level 0 needs nearly all of its output level at once; a steady supply of short jobs
            // there would make it wait forever. Jobs of more urgent levels came first. Groups are
            // never held up: they keep nothing from entering their level.
            let competes = due.level == layout.level0_output || due.level + 1 == layout.level0_output;
            if level0_waits && competes && !self.is_partitioned(layout, due.level) {
                continue;
            }
            if due.level == 0 && reads_level0 {
                continue;
            }
            let plan = self.plan_due(shape, layout, &due);
            level0_waits |= due.level == 0 && plan.is_none();
            if plan.is_some() {
                return plan;
            }
        }
        None
    }
}

impl CompactionPolicy for Layered {
    /// O(tables · log tables).
    fn plan(&self, shape: &Shape) -> Option<Plan> {
        let layout = self.layout(shape);
        let joining = self.plan_joining(shape, &layout);
        let due = joining.or_else(|| match self.deterministic {
            true => self.plan_counted(shape, &layout),
            false => self.plan_sized(shape, &layout),
        });
        due.or_else(|| self.plan_small(shape, &layout, Part::whole_runs(shape), SPARE, Reason::SmallTables))
    }

    fn write_pressure(&self, shape: &Shape) -> Pressure {
        let runs = Pressure::of(shape.runs(0).len() as u64, self.slowdown_runs as u64, self.stop_runs as u64);
        let debt = Pressure::of(self.debt(shape), self.slowdown_debt, self.stop_debt);
        runs.max(debt).max(self.pressure_of_drain(shape))
    }

    /// The bytes that are due; each level's excess is carried down as far as it makes further
    /// levels due. Data that joins a leveling level counts the bytes it rewrites there in
    /// proportion, too.
    fn debt(&self, shape: &Shape) -> u64 {
        let layout = self.layout(shape);
        let (mut debt, mut carried) = (0u64, 0u64);
        for level in 0..layout.last.min(shape.levels.len()) {
            let bytes = shape.levels[level].bytes().saturating_add(carried);
            if bytes == 0 {
                continue;
            }
            let runs = shape.runs(level).len() + usize::from(carried > 0);
            let next = if level == 0 { layout.level0_output } else { level + 1 };
            let over = match self.deterministic {
                true => self.overdue_bytes(shape, &layout, level) > 0,
                false => self.is_over(&layout, level, runs, bytes),
            };
            let by_pieces = level > 0
                && !self.deterministic
                && self.granularity == Granularity::Partial
                && self.kind(next, layout.last) == Kind::Leveling;
            let leaving = match over {
                true if by_pieces && self.kind(level, layout.last) == Kind::Leveling => {
                    bytes - layout.targets[level].min(bytes)
                }
                true => bytes,
                false => 0,
            };
            let below = match self.kind(next, layout.last) {
                Kind::Leveling => shape.levels.get(next).map_or(0, LevelShape::bytes),
                Kind::Tiering => 0,
            };
            let met = (below as f64 * (leaving as f64 / bytes as f64)) as u64;
            debt = debt.saturating_add(leaving).saturating_add(met);
            // Level 0 skips the levels above the base.
            carried = if next == level + 1 { leaving } else { 0 };
        }
        debt
    }

    fn level_targets(&self, shape: &Shape) -> Vec<u64> {
        self.layout(shape).targets
    }

    fn promise(&self, shape: &Shape) -> Promise {
        self.promised(shape)
    }

    fn manual(&self, shape: &Shape, range: Option<&KeyRange>) -> Option<Plan> {
        self.plan_manual(shape, range)
    }

    fn deepen(&self, shape: &Shape, spot: &Spot<'_>, reason: Reason) -> Option<Plan> {
        self.plan_deeper(shape, spot, reason)
    }

    /// With `deterministic`, a round ends with the merge that leaves nothing between level 0 and
    /// the run it writes.
    fn ends_round(&self, shape: &Shape, plan: &Plan) -> bool {
        let named: HashSet<TableId> = plan.tables().collect();
        let grows = |level: usize, run: &RunShape| {
            level == plan.output_level && plan.output == OutputRun::Into(run.id)
        };
        let leaves = |run: &RunShape| run.tables.iter().all(|table| named.contains(&table.id()));
        let mut runs = (1..shape.levels.len()).flat_map(|n| shape.runs(n).iter().map(move |run| (n, run)));
        !self.deterministic || runs.all(|(level, run)| grows(level, run) || leaves(run))
    }

    fn name(&self) -> String {
        self.form.to_string()
    }
}

/// Extends a range of a run by the neighbours that share a user key with it. A sound tree has none.
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

#[cfg(test)]
mod tests;
