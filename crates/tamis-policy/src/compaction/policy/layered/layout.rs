//! Where the data should be.
//!
//! # Targets follow the last level
//!
//! A leveling last level is as large as the data. The levels above get that size divided by the
//! ratio once, twice, and so on, up to the *base level*, the first whose target does not exceed its
//! [cap](Layered::cap). Level 0 compacts into the base level; the levels between stay empty. An
//! empty tree fills its last level first, and the base moves up as the data grows.
//!
//! Fixed targets `base · T^(n−1)` counted from the top are simpler and rewrite a little less while
//! the last level is young. But then the last level may be hardly larger than the one above, and
//! nearly every key may be stored twice. With targets that follow the last level, superseded
//! versions never take more than about 1/T + 1/T² + … of the data (11 % for T = 10). The number of
//! levels in use is the same. The last level, which holds most of the data, uses its own
//! compression from the first byte.
//!
//! Pure tiering has no such last level: every level takes part and is measured in runs.
//!
//! With `deterministic`, the base level depends only on the bytes of the last level (and of the
//! level being merged into it in groups), so it changes only at the end of a round.

use super::*;

/// The largest target of a leveling base level under partial merges, in batches of level 0.
///
/// A batch that is merged into a level of g batches costs 1 + g. With a level of g/T batches before
/// it, it costs 1 + g/T there, and then 1 + g/(1 + g/T), as more of it meets the same tables. That
/// is less only from g = T/(√T − 1) on, between 4 and 5 for usual T. But such a batch is merged as
/// a whole, and the tables it replaces stay until its end: 2 saves nearly as much and leaves half
/// of the space to be kept free.
pub(super) const BASE_BATCHES: u64 = 2;

impl Layered {
    /// Returns the kind of a level in a tree with this last level.
    pub(super) fn kind(&self, level: usize, last: usize) -> Kind {
        match level > 0 && level.saturating_add(self.leveling) > last {
            true => Kind::Leveling,
            false => Kind::Tiering,
        }
    }

    /// The largest target that the base level may have. A leveling base level takes one batch of
    /// level 0 at a time and should not be much larger; one that counts T batches, or one whose
    /// rewriting a tiering level above would save, may hold T.
    fn cap(&self, level: usize, last: usize) -> u64 {
        let stacks = |n: usize| n > 0 && self.kind(n, last) == Kind::Tiering;
        match self.deterministic || stacks(level) || stacks(level - 1) {
            true if stacks(level) || level < 2 => self.base_bytes.saturating_mul(self.ratio(level)),
            true => self.base_bytes.saturating_mul(self.ratio(level - 1)),
            false if self.granularity == Granularity::Partial => self.base_bytes.saturating_mul(BASE_BATCHES),
            false => self.base_bytes,
        }
    }

    pub(super) fn layout(&self, shape: &Shape) -> Layout {
        let bytes: Vec<u64> = shape.levels.iter().map(LevelShape::bytes).collect();
        let count = self.levels.max(bytes.len());
        let mut tables = shape.levels.iter().flat_map(LevelShape::tables);
        let (room, is_damaged) = (shape.room, tables.any(|table| table.busy && table.free));
        let first_used = (1..bytes.len()).find(|&n| !shape.levels[n].is_empty());
        if self.leveling == 0 {
            let last = (self.levels - 1).max(shape.deepest().unwrap_or(0));
            let targets = vec![0; count];
            let (counts_bytes, base, level0_output) = (false, 1, 1);
            return Layout { targets, counts_bytes, base, last, level0_output, room, is_damaged };
        }
        let mut last = match shape.deepest() {
            None | Some(0) => self.levels - 1,
            Some(deepest) => deepest,
        };
        let at = |level: usize| bytes.get(level).copied().unwrap_or(0);
        let goal = if self.deterministic {
            let draining = self.granularity == Granularity::Partitioned
                && last > 1
                && self.mixes_epochs(shape, last - 1, last);
            at(last) + if draining { at(last - 1) } else { 0 }
        } else {
            // The expected size of the last level once the levels above have shrunk to their
            // targets.
            let total: u64 = bytes.iter().skip(1).sum();
            at(last).max(total - total / self.ratio(last - 1))
        };
        loop {
            let mut targets = vec![0; count];
            let (mut base, mut target) = (last, goal.max(1));
            while target > self.cap(base, last) && base > 1 {
                targets[base] = target;
                base -= 1;
                target = (target / self.ratio(base)).max(1);
            }
            // The options may specify more levels than the tree was created with.
            if target > self.cap(base, last) && last + 1 < self.levels {
                last += 1;
                continue;
            }
            targets[base] = target.max(if base == last { self.cap(base, last) } else { 1 });
            let level0_output = first_used.map_or(base, |used| used.min(base));
            let counts_bytes = true;
            return Layout { targets, counts_bytes, base, last, level0_output, room, is_damaged };
        }
    }
}
