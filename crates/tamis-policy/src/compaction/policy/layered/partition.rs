//! Partitioned merges, as in Spooky (Dayan et al., VLDB 2022; GRF, SIGMOD 2024, section 2 and
//! figure 2).
//!
//! The last level but one, P, is filled by full merges whose outputs end where tables of the last
//! level begin. When it is due, it is merged down in *groups*: one table of the last level with
//! everything that P's runs hold over it. A group overlaps nothing else, so groups run
//! concurrently, each needs little room, and no byte of the last level is rewritten for a table of
//! P that only touches it.
//!
//! # Draining
//!
//! What flows into P meanwhile is stacked on it, and stays for the next time: a drain that took it
//! along would rewrite the last level for a little data, and might never end. Whether P is draining
//! follows from the shape. Let m be the lowest epoch in P. Everything in the last level is older
//! than m (P was filled after the last level was written) until the first group is merged, whose
//! output then holds epochs both below m and from m on. So **P is draining if a table of the last
//! level holds epochs on both sides of m**, and the drain has the runs that begin before the end of
//! these tables' epochs. In detail:
//!
//! * A group that was moved instead of merged leaves no trace. If that holds for all groups so far,
//!   P counts as a level that is not yet full, and the tables it lost have cost nothing.
//! * If the rest of P is newer than all groups merged so far, m lies above their epochs: the drain is
//!   over.
//! * Until the first group has been merged, groups take all runs.
//! * A table that was ingested into the last level holds one epoch, above m, and nothing below: no
//!   trace either.
//! * P's tables hold epochs from 0 on if nothing lay below them when they were written. Nothing is
//!   below m = 0: P is not draining until it is due for its size.
//! * Partial merges of an earlier policy mix epochs, and P is emptied first. Reopening changes
//!   nothing: epochs are part of the manifest.
//!
//! Writers are slowed down once P has [`SLOWED`] times what it should have, and stop at [`FULLEST`]
//! times: P takes space, and reads ask its runs.
//!
//! An error in either direction costs rewriting, never data: groups and full merges are sound in
//! any shape. With `deterministic`, the number of flushes determines when the first group is
//! merged.
//!
//! # Groups where tables do not fit
//!
//! A group grows until it straddles nothing on either level: needed for shapes of other policies,
//! and when the last level had other borders. Groups smaller than half a table absorb their
//! neighbour; a group that exceeds a table is written as several of about equal size.

use super::*;
use tamis_base::epochs::Epoch;

/// How many times its target, or what one merge of level 0 brings if that is more, the level that is
/// merged down in groups has when writers are slowed down, and when they stop.
const SLOWED: u64 = 2;
const FULLEST: u64 = 6;

/// Tables of several runs between two keys that no table straddles, as positions in each run.
struct Group {
    range: KeyRange,
    /// Per run of P, newest first; may be empty.
    upper: Vec<Range<usize>>,
    lower: Range<usize>,
    bytes: u64,
    busy: bool,
}

impl Layered {
    /// Reports whether the last level but one is draining into the last one.
    pub(super) fn is_draining(&self, shape: &Shape, layout: &Layout) -> bool {
        if self.granularity != Granularity::Partitioned {
            return false;
        }
        let Some(level) = layout.partitioned() else { return false };
        self.mixes_epochs(shape, level, layout.last)
            || self.deterministic && self.overdue_bytes(shape, layout, level) > 0
    }

    /// Reports whether a table of level `last` holds epochs on both sides of the lowest one in
    /// `level`.
    pub(super) fn mixes_epochs(&self, shape: &Shape, level: usize, last: usize) -> bool {
        self.end_of_drain(shape, level, last).is_some()
    }

    /// Returns the end of the epochs of the tables of level `last` that hold epochs on both sides of
    /// the lowest one in `level`.
    fn end_of_drain(&self, shape: &Shape, level: usize, last: usize) -> Option<Epoch> {
        let hulls = |level: usize| {
            let tables = shape.levels.get(level).into_iter().flat_map(|level| level.tables());
            tables.map(|table| table.meta.epochs.hull()).filter(|(lo, hi)| lo < hi)
        };
        let lowest = hulls(level).map(|(lo, _)| lo).min()?;
        hulls(last).filter(|(lo, hi)| *lo < lowest && lowest < *hi).map(|(_, hi)| hi).max()
    }

    /// Returns the pressure of what has flowed into a level that drains too slowly.
    pub(super) fn pressure_of_drain(&self, shape: &Shape) -> Pressure {
        let layout = self.layout(shape);
        let drains = |level: &usize| self.is_partitioned(&layout, *level) && !self.deterministic;
        let Some(level) = layout.partitioned().filter(drains) else { return Pressure::None };
        let bytes = shape.levels.get(level).map_or(0, LevelShape::bytes);
        let usual = layout.targets[level].max(self.base_bytes);
        Pressure::of(bytes, usual.saturating_mul(SLOWED), usual.saturating_mul(FULLEST))
    }

    /// Returns the runs of `level` that groups take: the older ones, if others came while it drained.
    pub(super) fn drained<'s>(&self, shape: &'s Shape, level: usize, last: usize) -> &'s [RunShape] {
        let runs = shape.runs(level);
        let Some(end) = self.end_of_drain(shape, level, last) else { return runs };
        let begins_before = |run: &RunShape| run.tables.iter().any(|t| t.meta.epochs.hull().0 < end);
        &runs[runs.iter().position(begins_before).unwrap_or(0)..]
    }

    /// Plans the next group to be merged into the last level that no running job touches.
    pub(super) fn plan_group(&self, shape: &Shape, layout: &Layout) -> Option<Plan> {
        let level = layout.partitioned()?;
        let upper = self.drained(shape, level, layout.last);
        if shape.runs(layout.last).len() > 1 {
            return None;
        }
        let lower: &[TableShape] = shape.runs(layout.last).first().map_or(&[], |run| &run.tables);
        let mut seeds: Vec<&TableShape> = upper.iter().flat_map(|run| &run.tables).collect();
        seeds.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
        let mut seen: Option<KeyRange> = None;
        for seed in seeds {
            if seen.as_ref().is_some_and(|seen| seen.overlaps_table(seed)) {
                continue;
            }
            let mut group = Group::around(seed.range(), upper, lower);
            seen = Some(group.range.clone());
            if group.busy {
                continue;
            }
            if group.bytes < self.table_bytes / 2 {
                group = self.with_neighbour(group, upper, lower);
            }
            if let Some(plan) = self.build_group(shape, layout, level, group, Reason::Partition) {
                return Some(plan);
            }
        }
        None
    }

    /// Plans the merge of the group around `range`.
    pub(super) fn plan_group_of(
        &self,
        shape: &Shape,
        layout: &Layout,
        range: &KeyRange,
        reason: Reason,
    ) -> Option<Plan> {
        let level = layout.partitioned()?;
        if shape.runs(layout.last).len() > 1 {
            return None;
        }
        let lower: &[TableShape] = shape.runs(layout.last).first().map_or(&[], |run| &run.tables);
        let group = Group::around(range.clone(), shape.runs(level), lower);
        self.build_group(shape, layout, level, group, reason)
    }

    fn build_group(
        &self,
        shape: &Shape,
        layout: &Layout,
        level: usize,
        group: Group,
        reason: Reason,
    ) -> Option<Plan> {
        let runs = shape.runs(level);
        // The oldest ones.
        let selected = runs[runs.len() - group.upper.len()..]
            .iter()
            .zip(&group.upper)
            .filter(|(_, tables)| !tables.is_empty())
            .map(|(run, tables)| Selected { level, run, tables: tables.clone() })
            .collect();
        let mut draft = self.draft(selected, layout.last, OutputPlace::Joined, reason);
        draft.besides = group.lower;
        let pieces = group.bytes.div_ceil(self.table_bytes).max(1);
        draft.max_table_bytes = self.table_bytes.min(group.bytes.div_ceil(pieces)).max(1);
        self.build(shape, layout, &draft)
    }

    /// Combines a small group with its successor, or its predecessor, if the result is at most one
    /// table.
    fn with_neighbour(&self, group: Group, upper: &[RunShape], lower: &[TableShape]) -> Group {
        let next = lower.get(group.lower.end).filter(|_| !group.lower.is_empty());
        let before = group.lower.start.checked_sub(1).and_then(|i| lower.get(i));
        let before = before.filter(|_| !group.lower.is_empty());
        let joined = next.into_iter().chain(before).find_map(|neighbour| {
            let mut range = group.range.clone();
            range.extend(neighbour);
            let joined = Group::around(range, upper, lower);
            (!joined.busy && joined.bytes <= self.table_bytes).then_some(joined)
        });
        joined.unwrap_or(group)
    }
}

impl Group {
    /// Returns the smallest group that contains `range`. O(runs · log tables) for each table that
    /// it grows by.
    fn around(mut range: KeyRange, upper: &[RunShape], lower: &[TableShape]) -> Group {
        loop {
            let before = range.clone();
            let stretches = upper.iter().map(|run| &run.tables[..]).chain([lower]);
            let places: Vec<Range<usize>> =
                stretches.clone().map(|tables| with_shared_keys(tables, before.overlap(tables))).collect();
            let members =
                || stretches.clone().zip(&places).flat_map(|(tables, place)| &tables[place.clone()]);
            members().for_each(|table| range.extend(table));
            if range == before {
                let bytes = members().map(TableShape::bytes).sum();
                let busy = members().any(|table| table.busy);
                let (upper, lower) = places.split_at(upper.len());
                return Group { range, upper: upper.to_vec(), lower: lower[0].clone(), bytes, busy };
            }
        }
    }
}
