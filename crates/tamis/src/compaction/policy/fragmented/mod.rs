//! Fragmented compaction: the fragmented log-structured merge tree of PebblesDB (Raju, Kadekodi, Chidambaram, Abraham,
//! SOSP 2017), on sorted runs.
//!
//! A level is cut by *guards*, keys chosen by their digest alone, into [groups](guards::Group), and a group is a stack of
//! *fragments*: tables that overlap, the newer ones in newer runs. A compaction takes a group of level n, merges its
//! fragments, cuts the result at the guards of level n+1 and lays the pieces on top of the groups there, without reading
//! or rewriting anything of level n+1. Only in the last level a group is merged in place. Deeper levels have more
//! guards, and every guard of a level is one of all deeper ones (PebblesDB, section 3.2), so fragments of one level do
//! not lie across the guards of the same level.
//!
//! # Which guards
//!
//! A group should hold as much as `size_ratio` tables when its level is full; then a compaction, which gives something
//! to about `size_ratio` groups of the next level, makes tables of about `table_bytes`. From this and the average size of
//! an entry follows the number of zero bits of a guard's digest: it changes by one when the average doubles, by the
//! logarithm of the size ratio from level to level, and not with the amount of data.
//!
//! # When a group is due
//!
//! * Level 0 is merged as a whole into the first level that is used once it has `level0_runs` runs.
//! * In the levels between, a group is due when more than `size_ratio` tables lie over one key; and when the level
//!   is larger than its target, the group with most bytes is. Targets follow the last level, as in leveling, but the
//!   first level is used up to the size of `size_ratio` merges of level 0: so many it collects.
//! * In the last level a group is due when more than `size_ratio` tables lie over one key, or when all its tables
//!   together are more than twice as large as those of its largest run.
//!
//! # Where a fragment goes
//!
//! Into the oldest run of its level that has no table over the range of the plan, nor has any newer run: so a level has
//! about as many runs as tables over one key, not as many as there were merges. Else it starts a new run. A merge in place
//! goes into the oldest run of all. When a level has more than twice `size_ratio` runs all the same, tables sink into
//! older runs where these are free, without being read.
//!
//! # Invariants of every plan
//!
//! * No input is busy, and no running job that writes to the same level overlaps the plan's range. A level gets one
//!   new run at a time.
//! * Inputs are a suffix by age: with a table go all tables of its level that are older and share keys with it. What
//!   stays of the level is newer wherever it overlaps an input; nothing passes anything older.
//! * Everything at the output level that overlaps the range lies in older runs than the one the outputs join. Between
//!   plan and commit tables may leave the output level for a deeper one, and runs with them; nothing that overlaps the
//!   range comes in, as only this job writes to it there. So the place remains right, also when the run has vanished and
//!   comes back under its number, and when a new run gets the largest number of all.
//! * A table sinks by one run at a time, past nothing, as no other run lies between.
//! * Merges in place: nothing older than an input remains at the level, so any run that is as old as the oldest input
//!   or older is a right place; the oldest run of the level is.
//!
//! # What it costs
//!
//! Each byte is written by its flush, once for each level from the first used one to the last, and at most about four
//! times by merges in place: a group whose tables are twice as large as its largest run was filled by as many bytes as
//! were there before, and of the merges that are due by depth there are no more than one a group for `size_ratio` merges
//! of the parent group, which brought about as many bytes. A read may have to ask `size_ratio` tables at each level. Space:
//! the last level holds at most twice what is live (deletes aside), the others as much as leveling's.

mod guards;

use std::cmp::Ordering;

use crate::compaction::plan::{OutputRun, Plan, PlanInput, Reason, Work};
use crate::compaction::policy::{CompactionPolicy, Pressure, Promise};
use crate::compaction::shape::{KeyRange, Shape, TableShape};
use crate::options::{KeyspaceOptions, PerLevel};
use guards::{Group, Guards, groups};

/// Bytes of a group in the last level by those of its largest run: beyond, it is merged.
const LAST_LEVEL_AMPLIFICATION: f64 = 2.0;

/// The fragmented policy and its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Fragmented {
    /// How many times larger each level is than the one above, and how many tables of it may lie over one key.
    pub(crate) size_ratio: PerLevel<u64>,
    /// Runs in level 0 that start a compaction.
    pub(crate) level0_runs: usize,
    /// Bytes of a memtable.
    pub(crate) memtable_bytes: u64,
    /// Levels, level 0 among them.
    pub(crate) levels: usize,
    /// Size at which an output table is ended, in bytes.
    pub(crate) table_bytes: u64,
    /// Runs in level 0 from which on writes slow down, and at which they wait.
    pub(crate) runs_limits: (u64, u64),
    /// Debt in bytes from which on writes slow down, and at which they wait.
    pub(crate) debt_limits: (u64, u64),
}

/// Where the data should be, and how it is cut.
struct Layout<'a> {
    /// By level; 0 above the first level that is used.
    targets: Vec<u64>,
    /// The deepest level to fill.
    last: usize,
    /// The level that level 0 compacts into.
    level0_output: usize,
    guards: Guards<'a>,
}

/// A group that is due.
struct Due {
    level: usize,
    group: usize,
    /// Above 1: over its limit by that factor.
    score: f64,
    reason: Reason,
}

impl Due {
    /// The most urgent first.
    fn urgency(&self, other: &Due) -> Ordering {
        other.score.total_cmp(&self.score)
    }
}

impl Fragmented {
    /// The policy that a keyspace's options ask for.
    pub(crate) fn new(options: &KeyspaceOptions) -> Self {
        Fragmented {
            size_ratio: options.size_ratio.clone(),
            level0_runs: options.level0_runs,
            memtable_bytes: options.memtable_bytes,
            levels: options.levels,
            table_bytes: options.table_bytes,
            runs_limits: (options.slowdown_runs as u64, options.stop_runs as u64),
            debt_limits: (options.slowdown_debt_bytes, options.stop_debt_bytes),
        }
    }

    fn ratio(&self, level: usize) -> u64 {
        self.size_ratio.at(level).max(2)
    }

    /// What a full group holds, in bytes.
    fn group_bytes(&self, level: usize) -> u64 {
        self.table_bytes.saturating_mul(self.ratio(level))
    }

    /// The largest size of the first level that is used, if it is `level`.
    fn first_level_bytes(&self, level: usize) -> u64 {
        let batch = self.memtable_bytes.saturating_mul(self.level0_runs as u64);
        batch.saturating_mul(self.ratio(level)).max(1)
    }

    fn layout<'a>(&self, shape: &'a Shape) -> Layout<'a> {
        let bytes: Vec<u64> = shape.levels.iter().map(|level| level.bytes()).collect();
        let count = self.levels.max(bytes.len());
        let mut last = match shape.deepest() {
            None | Some(0) => self.levels - 1,
            Some(deepest) => deepest,
        };
        // What the last level will hold once the levels above are as small as they should be.
        let total: u64 = bytes.iter().skip(1).sum();
        let goal =
            bytes.get(last).copied().unwrap_or(0).max(total - total / self.ratio(last.saturating_sub(1)));
        let (targets, first) = loop {
            let mut targets = vec![0; count];
            let (mut first, mut target) = (last, goal.max(1));
            while target > self.first_level_bytes(first) && first > 1 {
                targets[first] = target;
                first -= 1;
                target = (target / self.ratio(first)).max(1);
            }
            // Options may have been given more levels than the tree was made with.
            if target > self.first_level_bytes(first) && last + 1 < self.levels {
                last += 1;
                continue;
            }
            targets[first] = target.max(if first == last { self.first_level_bytes(last) } else { 1 });
            break (targets, first);
        };
        let first_used = (1..bytes.len()).find(|&n| !shape.levels[n].is_empty());
        Layout {
            last,
            level0_output: first_used.map_or(first, |used| used.min(first)),
            guards: Guards::of(shape, self.guard_bits(shape, count, last)),
            targets,
        }
    }

    /// By level, the number of zero bits of a guard's digest: the fewer, the deeper the level.
    fn guard_bits(&self, shape: &Shape, count: usize, last: usize) -> Vec<u32> {
        let tables = || shape.levels.iter().flat_map(|level| level.tables());
        let bytes: u64 = tables().map(TableShape::bytes).sum();
        let entries: u64 = tables().map(|t| t.meta.entries).sum();
        let entry_bytes = bytes.max(1) as f64 / entries.max(1) as f64;
        let mut bits = vec![0; count.max(last + 1)];
        let mut keys_per_group = 0.0;
        for level in (1..bits.len()).rev() {
            if level < last {
                keys_per_group += (self.ratio(level) as f64).log2();
            }
            let own = keys_per_group + (self.group_bytes(level) as f64 / entry_bytes).log2();
            let deeper = if level < last { bits[level + 1] } else { 0 };
            bits[level] = (own.max(0.0) as u32).min(60).max(deeper);
        }
        bits[0] = bits.get(1).copied().unwrap_or(0);
        bits
    }

    fn groups(&self, shape: &Shape, layout: &Layout<'_>, level: usize) -> Vec<Group> {
        let Some(tables) = shape.levels.get(level) else { return Vec::new() };
        groups(tables, layout.guards.at(level), self.group_bytes(level).saturating_mul(2))
    }

    /// The groups of a level that are due, in any order.
    fn due(&self, shape: &Shape, layout: &Layout<'_>, level: usize, groups: &[Group]) -> Vec<Due> {
        let allowed = self.ratio(level) as f64;
        let due = |group: usize, score: f64, reason| Due { level, group, score, reason };
        let too_deep = |i: usize| {
            let score = groups[i].depth as f64 / allowed;
            (score > 1.0).then(|| due(i, score, Reason::Guard))
        };
        let mut found: Vec<Due> = (0..groups.len()).filter_map(too_deep).collect();
        if level >= layout.last {
            found.extend((0..groups.len()).filter(|&i| groups[i].depth > 1).filter_map(|i| {
                let score = groups[i].amplification() / LAST_LEVEL_AMPLIFICATION;
                (score > 1.0).then(|| due(i, score, Reason::Guard))
            }));
            return found;
        }
        // Busy tables are on their way down.
        let tables = shape.levels.get(level).into_iter().flat_map(|level| level.tables());
        let waiting: u64 = tables.filter(|t| !t.busy).map(TableShape::bytes).sum();
        let score = match layout.targets[level] {
            // Above the first level to be used: to be emptied, the sooner the fuller it is.
            0 => (waiting as f64 * allowed / self.first_level_bytes(level) as f64).max(1.0),
            target => waiting as f64 / target as f64,
        };
        if waiting > layout.targets[level] {
            let mut by_size: Vec<usize> = (0..groups.len()).filter(|&i| !groups[i].busy).collect();
            by_size.sort_by_key(|&i| std::cmp::Reverse(groups[i].bytes));
            found.extend(by_size.into_iter().map(|i| due(i, score, Reason::LevelSize)));
        }
        found
    }

    /// Everything that level 0 holds, into `output_level`.
    fn plan_level0(
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

    /// The plan that takes what overlaps `seed` at `level`, and what must go with it, to `output_level`. If it has to
    /// wait for a running job, the range that it would take.
    fn build(
        &self,
        shape: &Shape,
        layout: &Layout<'_>,
        seed: &KeyRange,
        level: usize,
        output_level: usize,
        reason: Reason,
    ) -> Result<Plan, Option<KeyRange>> {
        // From the newest run to the oldest: what is older than an input and overlaps it comes later.
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
            range,
            reason,
            work: if moves { Work::Move } else { Work::Merge },
            guard_bits: Some(layout.guards.bits(output_level)),
            bottommost,
        })
    }

    /// Whether tables may go to a level as they are: they are disjoint and not crumbs, no deletes are to be dropped,
    /// and none lies across a guard there with something below it.
    fn may_move(
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

    /// Moves tables of one run of a level with many runs into the next older run where that is free. A merge joins one
    /// run with all of its outputs, above everything in its range: where less lies below, they float. Costs an edit of
    /// the manifest, and each one lowers the number of runs below a table.
    fn sink(&self, shape: &Shape, layout: &Layout<'_>, level: usize) -> Option<Plan> {
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
                reason: Reason::Joining,
                work: Work::Move,
                guard_bits: Some(layout.guards.bits(level)),
                bottommost: false,
            })
        })
    }

    /// Runs of a level beyond which tables sink.
    fn most_runs(&self, level: usize) -> usize {
        2 * self.ratio(level) as usize
    }

    /// A group and those after it that are due as well, as long as together they are no larger than a full one.
    fn stretch(&self, level: usize, groups: &[Group], due: &[bool], first: usize) -> KeyRange {
        let mut range = groups[first].range();
        let mut bytes = groups[first].bytes;
        for (group, _) in
            groups[first + 1..].iter().zip(&due[first + 1..]).take_while(|(g, due)| **due && !g.busy)
        {
            bytes += group.bytes;
            if bytes > self.group_bytes(level) {
                break;
            }
            range.largest = group.range().largest;
        }
        range
    }
}

impl CompactionPolicy for Fragmented {
    /// O(tables · (runs of a level + log tables)).
    fn plan(&self, shape: &Shape) -> Option<Plan> {
        let layout = self.layout(shape);
        let runs = shape.runs(0).len();
        let level0 = runs as f64 / self.level0_runs as f64;
        let by_level: Vec<Vec<Group>> = (0..=layout.last)
            .map(|n| if n > 0 { self.groups(shape, &layout, n) } else { Vec::new() })
            .collect();
        let mut due: Vec<Due> =
            (1..=layout.last).flat_map(|n| self.due(shape, &layout, n, &by_level[n])).collect();
        if runs >= self.level0_runs {
            due.push(Due { level: 0, group: 0, score: level0, reason: Reason::Level0Runs });
        }
        // Stable: of a level that is too large the fullest groups stay first.
        due.sort_by(Due::urgency);
        let mut is_deep: Vec<Vec<bool>> = by_level.iter().map(|groups| vec![false; groups.len()]).collect();
        for due in due.iter().filter(|due| due.reason == Reason::Guard) {
            is_deep[due.level][due.group] = true;
        }
        // What had to wait for running jobs keeps what is less urgent from taking its place, or it would wait for
        // ever. One of a level: the fullest group must not hold up all others.
        let mut waiting: Vec<(usize, usize, KeyRange)> = Vec::new();
        for Due { level, group, reason, .. } in due {
            let plan = if level == 0 {
                self.plan_level0(shape, &layout, layout.level0_output, reason)
            } else {
                let range = match reason {
                    Reason::Guard => self.stretch(level, &by_level[level], &is_deep[level], group),
                    _ => by_level[level][group].range(),
                };
                self.build(shape, &layout, &range, level, (level + 1).min(layout.last), reason)
            };
            match plan {
                Ok(plan) => {
                    let output = plan.output_level;
                    if !waiting.iter().any(|(_, n, range)| *n == output && range.overlaps(&plan.range)) {
                        return Some(plan);
                    }
                }
                Err(Some(range)) if !waiting.iter().any(|(from, _, _)| *from == level) => {
                    let output = if level == 0 { layout.level0_output } else { (level + 1).min(layout.last) };
                    waiting.push((level, output, range));
                }
                Err(_) => {}
            }
        }
        (1..=layout.last).find_map(|level| self.sink(shape, &layout, level))
    }

    fn write_pressure(&self, shape: &Shape) -> Pressure {
        let runs = Pressure::of(shape.runs(0).len() as u64, self.runs_limits.0, self.runs_limits.1);
        runs.max(Pressure::of(self.debt(shape), self.debt_limits.0, self.debt_limits.1))
    }

    /// Level 0 and what levels have in excess, once for each level they have to pass, and the groups that are too deep.
    fn debt(&self, shape: &Shape) -> u64 {
        let layout = self.layout(shape);
        let steps = |level: usize| (layout.last.saturating_sub(level) as u64).max(1);
        let mut debt = 0u64;
        if shape.runs(0).len() >= self.level0_runs {
            debt = shape.levels[0].bytes().saturating_mul(steps(layout.level0_output.saturating_sub(1)));
        }
        for level in 1..=layout.last.min(shape.levels.len().saturating_sub(1)) {
            let groups = self.groups(shape, &layout, level);
            let mut due: Vec<usize> = self
                .due(shape, &layout, level, &groups)
                .iter()
                .filter(|due| due.reason == Reason::Guard)
                .map(|due| due.group)
                .collect();
            due.sort_unstable();
            due.dedup();
            let deep: u64 = due.iter().map(|&i| groups[i].bytes).sum();
            let excess = match level {
                _ if level < layout.last => shape.levels[level].bytes().saturating_sub(layout.targets[level]),
                _ => 0,
            };
            debt = debt.saturating_add(deep.max(excess.saturating_mul(steps(level))));
        }
        debt
    }

    fn level_targets(&self, shape: &Shape) -> Vec<u64> {
        self.layout(shape).targets
    }

    /// Tables over one key: below `level0_runs` in level 0, and `size_ratio` in each level that is used. Space: at most
    /// twice in the last level, and what the levels above may hold; nothing is promised of data that deletes hide. Writes:
    /// the flush, each level once, and four times for the merges of the last level.
    fn promise(&self, shape: &Shape) -> Promise {
        let layout = self.layout(shape);
        let first = layout.targets.iter().position(|target| *target > 0).unwrap_or(layout.last);
        let runs = |level: usize| match level {
            0 => self.level0_runs - 1,
            _ if (first..=layout.last).contains(&level) => self.ratio(level) as usize,
            _ => 0,
        };
        let level0 = (self.level0_runs as u64 - 1).saturating_mul(self.memtable_bytes);
        let above =
            layout.targets[..layout.last].iter().fold(level0, |sum, target| sum.saturating_add(*target));
        let last = shape.levels.get(layout.last).map_or(0, |level| level.bytes());
        Promise {
            runs_per_level: (0..layout.targets.len()).map(|level| Some(runs(level))).collect(),
            space_amplification: (last > 0)
                .then(|| LAST_LEVEL_AMPLIFICATION * (1.0 + above as f64 / last as f64)),
            write_amplification: Some(1.0 + (layout.last + 1 - first) as f64 + 4.0),
        }
    }

    /// Level 0 as a whole; then the uppermost level that holds something, group by group, into the next one that does;
    /// then the groups of the last level that are not in its oldest run alone, in place.
    fn manual(&self, shape: &Shape, range: Option<&KeyRange>) -> Option<Plan> {
        let concerns = |table: &TableShape| range.is_none_or(|range| range.overlaps_table(table));
        let layout = self.layout(shape);
        if shape.levels.first()?.tables().any(concerns) {
            return self.plan_level0(shape, &layout, layout.level0_output, Reason::Manual).ok();
        }
        let deepest = shape.deepest().filter(|deepest| *deepest > 0)?;
        let level = (1..=deepest).find(|&n| shape.levels[n].tables().any(concerns))?;
        let output_level = (level + 1..=deepest).find(|&n| !shape.levels[n].is_empty()).unwrap_or(level);
        let oldest = oldest_run(shape, level)?;
        let is_done = |group: &Group| {
            let in_oldest = |(run, _): &(usize, u64)| shape.levels[level].runs[*run].id == oldest;
            level == deepest && group.runs.iter().all(in_oldest)
        };
        self.groups(shape, &layout, level)
            .iter()
            .filter(|group| !is_done(group) && range.is_none_or(|range| range.overlaps(&group.range())))
            .find_map(|group| {
                self.build(shape, &layout, &group.range(), level, output_level, Reason::Manual).ok()
            })
    }

    fn ends_round(&self, _shape: &Shape, _plan: &Plan) -> bool {
        true
    }

    fn name(&self) -> String {
        "fragmented".into()
    }
}

/// The runs of a level by number, newest first, with the tables there are; with those that running jobs will bring back.
fn runs_to_be(shape: &Shape, level: usize) -> Vec<(u64, &[TableShape])> {
    let mut runs: Vec<(u64, &[TableShape])> =
        shape.runs(level).iter().map(|run| (run.id, &run.tables[..])).collect();
    for job in shape.running.iter().filter(|job| job.output_level == level) {
        if let OutputRun::Into(id) = job.output
            && let Err(at) = runs.binary_search_by(|(run, _)| id.cmp(run))
        {
            runs.insert(at, (id, &[]));
        }
    }
    runs
}

/// The run of a level that is older than all others, or will be.
fn oldest_run(shape: &Shape, level: usize) -> Option<u64> {
    runs_to_be(shape, level).last().map(|(id, _)| *id)
}

/// The oldest run of `level` such that neither it nor a newer one has a table in `range`. No running job that writes to
/// the level may overlap the range.
fn place(shape: &Shape, level: usize, range: &KeyRange) -> OutputRun {
    let runs = runs_to_be(shape, level);
    let free = runs.iter().take_while(|(_, tables)| range.overlap(tables).is_empty());
    free.last().map_or(OutputRun::New, |(id, _)| OutputRun::Into(*id))
}

#[cfg(test)]
mod tests;
