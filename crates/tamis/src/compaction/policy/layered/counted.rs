//! Deterministic shapes: what is due follows from the number of flushes.
//!
//! Flush number f of a keyspace has epoch f (epochs are assigned from 1 without gaps). Level 0 passes down blocks of
//! C₀ = `level0_runs` flushes, the base level blocks of C = C₀·T, the level below it C·T, and so on. Level n passes down the
//! block (k−1)·Cₙ < f ≤ k·Cₙ when flush k·Cₙ has arrived, and the block goes at once to the first level whose own block does
//! not end there, too. After F flushes the shape is the number F in the mixed radix (C₀, T, T, …): digit n is the number of
//! runs of level n if it is tiering, and the number of merges that its only run has seen if it is leveling (GRF, SIGMOD 2024,
//! sections 4.2 and 5). A level kept small by deletes and updates is forced down all the same; a larger `size_ratio` there
//! (the paper's T′) lets it fill up.
//!
//! Whole blocks of the one counter are counted, and not flushes since the level below was written, for two reasons. The newest
//! epoch in the result of a merge may be lower than the newest of the inputs (deletes are dropped with their epochs), but
//! never leaves its block; and blocks that queue up because no thread had time to merge them stay apart. Only the upper ends
//! of epoch maps are used: the lower ends may reach down.
//!
//! The price: when the base level moves, blocks change their lengths, and the digits of the first round after it may be
//! smaller than the counter's (that round is shorter). Empty runs do not exist.
//!
//! The last level of pure tiering has no next level: its first run and every T − 1 runs on top of it are merged into one.

use super::*;
use crate::tree::epochs::Epoch;

/// The number of the newest flush in the given tables; 0 if there are none.
fn newest<'a>(tables: impl IntoIterator<Item = &'a TableShape>) -> Epoch {
    tables.into_iter().map(|table| table.meta.epochs.hull().1.saturating_sub(1)).max().unwrap_or(0)
}

/// The last flush of the block that holds flush `flush`, for blocks of `flushes`.
fn block_end(flush: Epoch, flushes: u64) -> Epoch {
    flush.div_ceil(flushes).saturating_mul(flushes)
}

impl Layered {
    /// The number of flushes in a block of each level. Levels above the base, which should be empty, pass down their
    /// data with level 0's blocks.
    pub(super) fn block_flushes(&self, layout: &Layout) -> Vec<u64> {
        let mut blocks = vec![(self.level0_runs as u64).max(1)];
        for level in 1..=layout.last {
            let above = blocks[level - 1];
            let ratio = if level < layout.base { 1 } else { self.ratio(level) };
            blocks.push(above.saturating_mul(ratio));
        }
        blocks
    }

    /// The bytes of `level` whose block has ended.
    pub(super) fn overdue_bytes(&self, shape: &Shape, layout: &Layout, level: usize) -> u64 {
        let flushed = newest(shape.levels.iter().flat_map(|level| level.tables()));
        let flushes = self.block_flushes(layout)[level];
        let overdue =
            shape.runs(level).iter().filter(|run| block_end(newest(&run.tables), flushes) <= flushed);
        overdue.map(RunShape::bytes).sum()
    }

    /// Plans the oldest block that has ended, the deepest level first: deeper blocks must make way, or later ones have
    /// to stop above them.
    pub(super) fn plan_counted(&self, shape: &Shape, layout: &Layout) -> Option<Plan> {
        let flushed = newest(shape.levels.iter().flat_map(|level| level.tables()));
        let blocks = self.block_flushes(layout);
        let mut limit = self.full_limit(layout);
        for level in (0..=layout.last).rev() {
            let runs = shape.runs(level);
            let Some(oldest) = runs.last() else { continue };
            let end = block_end(newest(&oldest.tables), blocks[level]);
            let stacks = self.kind(level, layout.last) == Kind::Tiering;
            let in_groups = self.is_partitioned(layout, level);
            // Groups merged earlier may have moved the base level, and so the ends of blocks; the rest follows.
            let drains = in_groups && self.mixes_epochs(shape, level, layout.last);
            if !drains && (end > flushed || level == layout.last) {
                // Only another policy, or other block lengths, can have left this many runs in one block.
                let is_foreign = level > 0 && stacks && runs.len() as u64 >= self.ratio(level);
                if let Some(plan) =
                    self.in_place(shape, layout, level, runs, Reason::Joining).filter(|_| is_foreign)
                {
                    return Some(plan);
                }
                continue;
            }
            let in_block = |run: &RunShape| newest(&run.tables) <= end;
            // The end of the block comes in first; groups leave after that.
            if in_groups && !drains && (0..level).any(|n| shape.runs(n).iter().any(in_block)) {
                continue;
            }
            let plan = match in_groups {
                true => self.plan_group(shape, layout),
                false => self.plan_block(shape, layout, level, end, limit, &blocks),
            };
            if plan.is_some() {
                return plan;
            }
            // This block waits: runs may be stacked on top of it, but nothing may join a run that should have left.
            limit = limit.min(if stacks && !in_groups { level } else { level.saturating_sub(1) });
        }
        None
    }

    /// Plans the block of `level` that ends with flush `end`, including its parts in the levels above, down to `limit`
    /// at most.
    fn plan_block(
        &self,
        shape: &Shape,
        layout: &Layout,
        level: usize,
        end: Epoch,
        limit: usize,
        blocks: &[u64],
    ) -> Option<Plan> {
        let next = match level {
            0 => layout.level0_output,
            // Left behind above the base level: skips the empty levels.
            _ => (level + 1..layout.base)
                .find(|&n| !shape.runs(n).is_empty())
                .unwrap_or(layout.base.max(level + 1)),
        };
        if next > limit {
            return None;
        }
        let to = (next..limit).find(|&n| n >= layout.base && !end.is_multiple_of(blocks[n])).unwrap_or(limit);
        let in_block = |run: &&RunShape| newest(&run.tables) <= end;
        // By level from the deepest up, each without data newer than the block; nothing passes data that stays.
        let mut parts: Vec<Vec<Selected<'_>>> = Vec::new();
        for from in (0..=level).rev() {
            let runs = shape.runs(from);
            let part: Vec<_> =
                runs.iter().rev().take_while(in_block).map(|run| Selected::whole(from, run)).collect();
            let complete = part.len() == runs.len();
            parts.push(part);
            if !complete {
                break;
            }
        }
        let mut selected: Vec<Selected<'_>> = parts.into_iter().flatten().rev().collect();
        for between in level + 1..to {
            selected.extend(shape.runs(between).iter().map(|run| Selected::whole(between, run)));
        }
        let closes = to == layout.last && self.closes_stack(to, end, blocks) && !shape.runs(to).is_empty();
        let place = match self.kind(to, layout.last) {
            Kind::Leveling if self.granularity == MergeGranularity::Full => Place::JoinedWhole,
            Kind::Leveling => Place::Joined,
            Kind::Tiering if closes => {
                selected.extend(shape.runs(to).iter().map(|run| Selected::whole(to, run)));
                Place::NewestInput
            }
            Kind::Tiering => Place::Stacked,
        };
        self.build(shape, layout, &self.draft(selected, to, place, Reason::FlushCount))
    }

    /// Reports whether the run that ends with flush `end` completes the stack in the last level of pure tiering.
    fn closes_stack(&self, last: usize, end: Epoch, blocks: &[u64]) -> bool {
        let number = end / blocks[last - 1];
        (number.saturating_sub(1)).is_multiple_of(self.ratio(last) - 1)
    }
}
