//! The layout of a fragmented tree: where the data should be, how it is divided into groups, and
//! what is due.

use super::guards::{Group, Guards, groups};
use super::{Fragmented, LAST_LEVEL_AMPLIFICATION};
use crate::compaction::plan::Reason;
use crate::compaction::policy::fragmented::guards::Due;
use crate::compaction::shape::{Shape, TableShape};

/// Where the data should be, and how it is divided.
pub(super) struct Layout<'a> {
    /// Per level; 0 above the first used level.
    pub(super) targets: Vec<u64>,
    /// The deepest level to fill.
    pub(super) last: usize,
    /// The level that level 0 compacts into.
    pub(super) level0_output: usize,
    pub(super) guards: Guards<'a>,
}

impl Fragmented {
    pub(super) fn layout<'a>(&self, shape: &'a Shape) -> Layout<'a> {
        let bytes: Vec<u64> = shape.levels.iter().map(|level| level.bytes()).collect();
        let count = self.levels.max(bytes.len());
        let mut last = match shape.deepest() {
            None | Some(0) => self.levels - 1,
            Some(deepest) => deepest,
        };
        // The expected size of the last level once the levels above have shrunk to their targets.
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
            // The options may specify more levels than the tree was created with.
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

    /// The number of zero bits of a guard's digest, per level: the deeper the level, the fewer.
    pub(super) fn guard_bits(&self, shape: &Shape, count: usize, last: usize) -> Vec<u32> {
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

    pub(super) fn groups(&self, shape: &Shape, layout: &Layout<'_>, level: usize) -> Vec<Group> {
        let Some(tables) = shape.levels.get(level) else { return Vec::new() };
        groups(tables, layout.guards.at(level), self.group_bytes(level).saturating_mul(2))
    }

    /// Returns the groups of a level that are due, in any order.
    pub(super) fn due(&self, shape: &Shape, layout: &Layout<'_>, level: usize, groups: &[Group]) -> Vec<Due> {
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
            // Above the first level to be used: to be emptied, and more urgent the fuller it is.
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
}
