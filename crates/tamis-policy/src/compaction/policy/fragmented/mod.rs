//! Fragmented compaction: the fragmented log-structured merge tree of PebblesDB (Raju, Kadekodi,
//! Chidambaram, Abraham, SOSP 2017), on sorted runs.
//!
//! *Guards*, keys chosen by their digest alone, divide a level into [groups](guards::Group). A
//! group is a stack of *fragments*: overlapping tables, the newer ones in newer runs. A compaction
//! merges the fragments of a group of level n, cuts the result at the guards of level n+1 and lays
//! the pieces on top of the groups there. It reads and rewrites nothing of level n+1. Only the last
//! level merges a group in place. Deeper levels have more guards, and every guard of a level is
//! also a guard of all deeper ones (PebblesDB, section 3.2), so no fragment straddles a guard of
//! its level.
//!
//! # Choice of guards
//!
//! When its level is full, a group should hold `size_ratio` tables' worth of data. A compaction
//! adds to about `size_ratio` groups of the next level, so it writes tables of about `table_bytes`.
//! This and the average entry size set the number of zero bits in a guard's digest. The number
//! changes by one when the average doubles, and by the logarithm of the size ratio from level to
//! level. It does not depend on the amount of data.
//!
//! # When a group is due
//!
//! * Level 0 is merged as a whole into the first used level once it has `level0_runs` runs.
//! * In the levels between, a group is due when more than `size_ratio` tables lie over one key;
//!   when the level is larger than its target, so is the group with the most bytes. Targets follow
//!   the last level, as in leveling, but the first level is used up to the size of `size_ratio`
//!   merges of level 0: that is the number it collects.
//! * In the last level a group is due when more than `size_ratio` tables lie over one key, or when
//!   all its tables together are more than twice as large as those of its largest run.
//!
//! # Where a fragment goes
//!
//! A fragment goes into the oldest run of its level such that neither this run nor any newer one
//! has a table over the plan's range. So a level has about as many runs as tables over one key, not
//! as many as merges. Without such a run, the fragment starts a new one. A merge in place goes into
//! the oldest run. If a level still exceeds twice `size_ratio` runs, tables sink, unread, into
//! older runs where these are free.
//!
//! # Invariants of every plan
//!
//! * No input is busy, and no running job that writes to the same level overlaps the plan's range.
//!   A level gets one new run at a time.
//! * Inputs are a suffix by age: a table is included with all tables of its level that are older
//!   and share keys with it. Whatever stays in the level is newer wherever it overlaps an input;
//!   nothing passes older data.
//! * Everything at the output level that overlaps the range lies in older runs than the one the
//!   outputs join. Between plan and commit, tables, and whole runs with them, may leave the output
//!   level for a deeper one. Nothing that overlaps the range arrives, as only this job writes
//!   there. So the place stays right even if the run has vanished and is recreated under its
//!   number, or if a new run gets the largest number of all.
//! * A table sinks by one run at a time and passes nothing, as no other run lies between.
//! * Merges in place: nothing older than an input remains at the level, so any run at least as old
//!   as the oldest input is a valid place; the oldest run of the level is one.
//!
//! # Cost
//!
//! Each byte is written by its flush, once for each level from the first used one to the last, and
//! at most about four times by merges in place. A group whose tables are twice as large as its
//! largest run has received as many bytes as it held before. Depth makes a group due at most once
//! per `size_ratio` merges of the parent group, which added about as many bytes. A read checks up
//! to `size_ratio` tables at each level. Space: the last level holds at most twice the live data
//! (deletes aside), the others as much as with leveling.

mod build;
mod guards;
mod layout;

use guards::{Due, Group, oldest_run};
use tamis_base::key::KeyBytes;

use crate::compaction::plan::{Plan, Reason};
use crate::compaction::policy::small::{Joiner, Part, SPARE};
use crate::compaction::policy::{CompactionPolicy, Pressure, Promise};
use crate::compaction::settings::{Ratios, Settings};
use crate::compaction::shape::{KeyRange, Shape, Spot, TableShape};

/// Bytes of a group in the last level divided by those of its largest run, above which it is
/// merged.
const LAST_LEVEL_AMPLIFICATION: f64 = 2.0;

/// The fragmented policy and its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Fragmented {
    /// Size ratio of each level to the one above, and the maximum number of its tables over one
    /// key.
    pub(crate) size_ratio: Ratios,
    /// Runs in level 0 that start a compaction.
    pub level0_runs: usize,
    /// Size of a memtable, in bytes.
    pub(crate) memtable_bytes: u64,
    /// Number of levels, including level 0.
    pub(crate) levels: usize,
    /// Size at which an output table ends, in bytes.
    pub(crate) table_bytes: u64,
    /// Runs in level 0 at which writes slow down, and at which they stall.
    pub(crate) runs_limits: (u64, u64),
    /// Debt in bytes at which writes slow down, and at which they stall.
    pub(crate) debt_limits: (u64, u64),
}

impl Fragmented {
    /// Creates the policy from a keyspace's settings.
    pub(crate) fn new(settings: &Settings) -> Self {
        Fragmented {
            size_ratio: settings.size_ratio.clone(),
            level0_runs: settings.level0_runs,
            memtable_bytes: settings.memtable_bytes,
            levels: settings.levels,
            table_bytes: settings.table_bytes,
            runs_limits: (settings.slowdown_runs as u64, settings.stop_runs as u64),
            debt_limits: (settings.slowdown_debt_bytes, settings.stop_debt_bytes),
        }
    }

    fn ratio(&self, level: usize) -> u64 {
        self.size_ratio.at(level).max(2)
    }

    /// The bytes held by a full group.
    fn group_bytes(&self, level: usize) -> u64 {
        self.table_bytes.saturating_mul(self.ratio(level))
    }

    /// The largest size of `level` if it is the first used level.
    fn first_level_bytes(&self, level: usize) -> u64 {
        let batch = self.memtable_bytes.saturating_mul(self.level0_runs as u64);
        batch.saturating_mul(self.ratio(level)).max(1)
    }

    /// Plans a join of small tables of a group in the first of these parts with too many.
    fn plan_small(
        &self,
        shape: &Shape,
        layout: &layout::Layout<'_>,
        parts: impl Iterator<Item = Part>,
        spare: usize,
        reason: Reason,
    ) -> Option<Plan> {
        let joiner = Joiner { table_bytes: self.table_bytes, spare };
        joiner.plan(shape, parts, |part| self.walls(shape, layout, part), reason)
    }

    /// Returns the guards that divide a part.
    fn walls(&self, shape: &Shape, layout: &layout::Layout<'_>, part: &Part) -> Vec<KeyBytes> {
        let range = part.range(shape).filter(|_| part.level > 0);
        range.map_or_else(Vec::new, |range| layout.guards.within(part.level, &range))
    }

    /// The range of a group and the groups after it that are also due, as long as together they do
    /// not exceed a full group.
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

    /// Level 0 as a whole; then the uppermost nonempty level, group by group, into the next
    /// nonempty one; then, in place, the groups of the last level that are not only in its oldest
    /// run.
    fn plan_to_one_run(
        &self,
        shape: &Shape,
        layout: &layout::Layout<'_>,
        range: Option<&KeyRange>,
    ) -> Option<Plan> {
        let concerns = |table: &TableShape| range.is_none_or(|range| range.overlaps_table(table));
        if shape.levels.first()?.tables().any(concerns) {
            return self.plan_level0(shape, layout, layout.level0_output, Reason::Manual).ok();
        }
        let deepest = shape.deepest().filter(|deepest| *deepest > 0)?;
        // If the deepest level that holds data is too small for all of it, it would be due at once.
        let deepest = if range.is_none() { deepest.max(layout.last) } else { deepest };
        let level = (1..=deepest).find(|&n| shape.levels[n].tables().any(concerns))?;
        let output_level = (level + 1..deepest).find(|&n| !shape.levels[n].is_empty()).unwrap_or(deepest);
        let oldest = oldest_run(shape, level)?;
        let is_done = |group: &Group| {
            let in_oldest = |(run, _): &(usize, u64)| shape.levels[level].runs[*run].id == oldest;
            level == deepest && group.runs.iter().all(in_oldest)
        };
        self.groups(shape, layout, level)
            .iter()
            .filter(|group| !is_done(group) && range.is_none_or(|range| range.overlaps(&group.range())))
            .find_map(|group| {
                self.build(shape, layout, &group.range(), level, output_level, Reason::Manual).ok()
            })
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
        // Stable, so that in a level that is too large the fullest groups stay first.
        due.sort_by(Due::urgency);
        let mut is_deep: Vec<Vec<bool>> = by_level.iter().map(|groups| vec![false; groups.len()]).collect();
        for due in due.iter().filter(|due| due.reason == Reason::Guard) {
            is_deep[due.level][due.group] = true;
        }
        // A plan that waits for running jobs keeps less urgent ones out of its range, or it would
        // wait forever. One per level: the fullest group must not hold up all others.
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
        (1..=layout.last)
            .find_map(|level| self.sink(shape, &layout, level))
            .or_else(|| self.plan_small(shape, &layout, Part::whole_runs(shape), SPARE, Reason::SmallTables))
    }

    fn write_pressure(&self, shape: &Shape) -> Pressure {
        let runs = Pressure::of(shape.runs(0).len() as u64, self.runs_limits.0, self.runs_limits.1);
        runs.max(Pressure::of(self.debt(shape), self.debt_limits.0, self.debt_limits.1))
    }

    /// Level 0 and the excess of each level, once for each level they still have to pass, plus the
    /// groups that are too deep.
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

    /// Tables over one key: below `level0_runs` in level 0, and `size_ratio` in each used level.
    /// Space: at most twice the live data in the last level, plus what the levels above may hold;
    /// no promise for data hidden by deletes. Writes: the flush, each level once, and four times
    /// for the merges of the last level.
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
        let joiner = Joiner { table_bytes: self.table_bytes, spare: SPARE };
        let walls = |part: &Part| self.walls(shape, &layout, part);
        Promise {
            tables: Some(joiner.promised(shape, Part::whole_runs(shape), walls)),
            runs_per_level: (0..layout.targets.len()).map(|level| Some(runs(level))).collect(),
            space_amplification: (last > 0)
                .then(|| LAST_LEVEL_AMPLIFICATION * (1.0 + above as f64 / last as f64)),
            write_amplification: Some(
                (1.0 + (layout.last + 1 - first) as f64 + 4.0).max(joiner.writes(self.memtable_bytes)),
            ),
        }
    }

    fn manual(&self, shape: &Shape, range: Option<&KeyRange>) -> Option<Plan> {
        let layout = self.layout(shape);
        self.plan_to_one_run(shape, &layout, range).or_else(|| {
            let part = Part::only_run(shape, range).into_iter();
            self.plan_small(shape, &layout, part, 1, Reason::Manual)
        })
    }

    /// Level 0 as a whole; deeper, the table's group.
    fn deepen(&self, shape: &Shape, spot: &Spot<'_>, reason: Reason) -> Option<Plan> {
        let layout = self.layout(shape);
        if spot.level == 0 {
            return self.plan_level0(shape, &layout, layout.level0_output, reason).ok();
        }
        let below = (spot.level + 1..shape.levels.len()).find(|&n| !shape.levels[n].is_empty());
        let groups = self.groups(shape, &layout, spot.level);
        let after = groups.partition_point(|group| group.from <= spot.table.meta.smallest);
        let group = groups.get(after.checked_sub(1)?)?;
        self.build(shape, &layout, &group.range(), spot.level, below.unwrap_or(spot.level), reason).ok()
    }

    fn ends_round(&self, _shape: &Shape, _plan: &Plan) -> bool {
        true
    }

    fn name(&self) -> String {
        "fragmented".into()
    }
}

#[cfg(test)]
mod tests;
