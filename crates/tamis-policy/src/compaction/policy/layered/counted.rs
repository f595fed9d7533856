//! Deterministic shapes: what is due follows from the number of flushes.
//!
//! Flush number f of a keyspace has epoch f (epochs are assigned from 1 without gaps). Level 0
//! passes down blocks of C₀ = `level0_runs` flushes, the base level blocks of C = C₀·T, the level
//! below it C·T, and so on. Level n passes down the block (k−1)·Cₙ < f ≤ k·Cₙ when flush k·Cₙ has
//! arrived, and the block goes at once to the first level whose own block does not end there, too.
//! After F flushes the shape is the number F in the mixed radix (C₀, T, T, …): digit n is the
//! number of runs of level n if it is tiering, and the number of merges that its only run has seen
//! if it is leveling (GRF, SIGMOD 2024, sections 4.2 and 5).
//!
//! Whole blocks of the one counter are counted, and not flushes since the level below was written,
//! for two reasons. The newest epoch in the result of a merge may be lower than the newest of the
//! inputs (deletes are dropped with their epochs), but never leaves its block; and blocks that
//! queue up because no thread had time to merge them stay apart. Only the upper ends of epoch maps
//! are used: the lower ends may reach down.
//!
//! The price: when the base level moves, blocks change their lengths, and the digits of the first
//! round after it may be smaller than the counter's (that round is shorter). Empty runs do not
//! exist.
//!
//! The last level of pure tiering has no next level: its first run and every T − 1 runs on top of
//! it are merged into one.
//!
//! # Updates and deletes
//!
//! They keep a leveling level smaller than T batches, and passing it down after T merges would
//! rewrite the next level too often. So with full merges a leveling level above the last takes T′ ≥
//! T batches (GRF, section 5, generalization 3). The merge that ends a round knows how many entries
//! were flushed into each of these levels and how many were left. With E of them flushed for each
//! that is left, blocks of E times the plain length fill the level up to its capacity, which is
//! what T batches without superseded entries would be. Longer blocks hold more updates of the same
//! keys, so E grows with them, and the estimate approaches its fixed point from below, round by
//! round.
//!
//! T′ must not change within a round: the trace of a key through the levels is known when it is
//! flushed. So the estimate is a [`Stretch`] in the records of the tables that the merge writes. It
//! counts blocks from the end of that round, for the next round to have its full length. E is at
//! most [`MOST`]: if updates stop, levels exceed their capacity by that factor until the round
//! ends. Tiering levels keep T runs, however small, as reads pay for runs.

use tamis_base::epochs::Epoch;
use tamis_base::meta::Stretch;

use super::*;

/// The largest factor by which updates and deletes lengthen blocks.
pub(super) const MOST: u64 = 4;

/// The number of the newest flush in the given tables; 0 if there are none.
fn newest<'a>(tables: impl IntoIterator<Item = &'a TableShape>) -> Epoch {
    tables.into_iter().map(|table| table.meta.epochs.hull().1.saturating_sub(1)).max().unwrap_or(0)
}

/// How flushes are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    /// A block of every level begins behind this flush.
    pub(super) from: Epoch,
    /// The number of flushes in a block of each level: multiples of those of the level above.
    pub(super) flushes: Vec<u64>,
}

impl Blocks {
    /// The last flush of the block of `level` that holds flush `flush`.
    fn end(&self, level: usize, flush: Epoch) -> Epoch {
        let flushes = self.flushes[level];
        let counted = flush.saturating_sub(self.from).div_ceil(flushes);
        self.from.saturating_add(counted.saturating_mul(flushes))
    }

    /// Reports whether a block of `level` ends with flush `flush`.
    fn ends(&self, level: usize, flush: Epoch) -> bool {
        flush.saturating_sub(self.from).is_multiple_of(self.flushes[level])
    }
}

impl Layered {
    /// Reports whether some level may take more than T batches.
    pub(super) fn stretches(&self) -> bool {
        self.deterministic && self.leveling > 1 && self.granularity == Granularity::Full
    }

    /// The stretch in force: that of the last merge into the last level. None that begins in the
    /// future, as no block would end.
    pub(super) fn stretch(&self, shape: &Shape, layout: &Layout) -> Option<Stretch> {
        let tables = shape.levels.get(layout.last).filter(|_| self.stretches())?.tables();
        let known = tables.filter_map(|table| table.meta.extra.stretch.as_ref());
        let stretch = known.max_by_key(|stretch| stretch.from)?;
        let flushed = newest(shape.levels.iter().flat_map(|level| level.tables()));
        (stretch.from <= flushed).then(|| stretch.clone())
    }

    /// The blocks in force.
    pub(super) fn blocks(&self, shape: &Shape, layout: &Layout) -> Blocks {
        self.blocks_of(layout, &self.stretch(shape, layout).unwrap_or_default())
    }

    /// Levels above the base, which should be empty, pass down their data with level 0's blocks.
    /// The stretch may come from other options or from a damaged manifest.
    fn blocks_of(&self, layout: &Layout, stretch: &Stretch) -> Blocks {
        let level0 = (self.level0_runs as u64).max(1);
        let (mut flushes, mut plain, mut factor) = (vec![level0], level0, Stretch::UNIT);
        for level in 1..=layout.last {
            let above = flushes[level - 1];
            if level < layout.base {
                flushes.push(above);
                continue;
            }
            let ratio = self.ratio(level);
            plain = plain.saturating_mul(ratio);
            let batches = match self.is_stretched(layout, level) {
                true => {
                    let own = stretch.factors.get(level).copied().unwrap_or(Stretch::UNIT);
                    // What fills an upper level more slowly fills the lower ones more slowly, too.
                    factor = factor.max(own.min(MOST * Stretch::UNIT));
                    let wanted = u128::from(plain) * u128::from(factor) / u128::from(Stretch::UNIT);
                    u64::try_from(wanted / u128::from(above)).unwrap_or(u64::MAX).max(ratio)
                }
                false => ratio,
            };
            flushes.push(above.saturating_mul(batches));
        }
        // Level 0 counts the same with any stretch.
        Blocks { from: stretch.from / level0 * level0, flushes }
    }

    fn is_stretched(&self, layout: &Layout, level: usize) -> bool {
        self.stretches() && level < layout.last && self.kind(level, layout.last) == Kind::Leveling
    }

    /// The stretch after a merge of `selected` into the last level that ends a round with flush
    /// `end`. The former one where the merge cannot tell: the round was too short, or level 0 had
    /// nothing to count.
    fn next_stretch(
        &self,
        shape: &Shape,
        layout: &Layout,
        end: Epoch,
        blocks: &Blocks,
        selected: &[Selected<'_>],
    ) -> Option<Stretch> {
        if !self.stretches() {
            return None;
        }
        let former = self.stretch(shape, layout).unwrap_or_default();
        let entries = |level: usize| {
            let of_level = selected.iter().filter(|part| part.level == level);
            of_level.flat_map(Selected::tables).map(|table| u128::from(table.meta.entries)).sum::<u128>()
        };
        let begun = newest(shape.levels.get(layout.last)?.tables()).max(blocks.from);
        let flushed_at_once = entries(0);
        let factor = |level: usize| {
            let known = former.factors.get(level).copied().unwrap_or(Stretch::UNIT);
            if level < layout.base || !self.is_stretched(layout, level) {
                return Stretch::UNIT;
            }
            // The last batch passes this level by.
            let (block, batch) = (blocks.flushes[level], blocks.flushes[level - 1]);
            let flushes = end.saturating_sub(batch).saturating_sub(begun.max(end.saturating_sub(block)));
            if flushed_at_once == 0 || flushes.saturating_mul(2) < block.saturating_sub(batch) {
                return known;
            }
            let flushed = flushed_at_once * u128::from(flushes) / u128::from(blocks.flushes[0]);
            let factor = flushed.saturating_mul(Stretch::UNIT.into()) / entries(level).max(1);
            u64::try_from(factor).unwrap_or(u64::MAX).clamp(Stretch::UNIT, MOST * Stretch::UNIT)
        };
        let next = Stretch { from: end, factors: (0..layout.last).map(factor).collect() };
        let same = self.blocks_of(layout, &next).flushes == blocks.flushes;
        Some(if same { former } else { next })
    }

    /// The bytes of `level` whose block has ended.
    pub(super) fn overdue_bytes(&self, shape: &Shape, layout: &Layout, level: usize) -> u64 {
        let flushed = newest(shape.levels.iter().flat_map(|level| level.tables()));
        let blocks = self.blocks(shape, layout);
        let overdue =
            shape.runs(level).iter().filter(|run| blocks.end(level, newest(&run.tables)) <= flushed);
        overdue.map(RunShape::bytes).sum()
    }

    /// Plans the oldest block that has ended, the deepest level first: deeper blocks must make way,
    /// or later ones have to stop above them.
    pub(super) fn plan_counted(&self, shape: &Shape, layout: &Layout) -> Option<Plan> {
        let flushed = newest(shape.levels.iter().flat_map(|level| level.tables()));
        let blocks = self.blocks(shape, layout);
        let mut limit = self.full_limit(layout);
        for level in (0..=layout.last).rev() {
            let runs = shape.runs(level);
            let Some(oldest) = runs.last() else { continue };
            let end = blocks.end(level, newest(&oldest.tables));
            let stacks = self.kind(level, layout.last) == Kind::Tiering;
            let in_groups = self.is_partitioned(layout, level);
            // Groups merged earlier may have moved the base level, and so the ends of blocks; the
            // rest follows.
            let drains = in_groups && self.mixes_epochs(shape, level, layout.last);
            if !drains && (end > flushed || level == layout.last) {
                // Only another policy, or other block lengths, can have left this many runs in one
                // block.
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
            // This block waits: runs may be stacked on top of it, but nothing may join a run that
            // should have left.
            limit = limit.min(if stacks && !in_groups { level } else { level.saturating_sub(1) });
        }
        None
    }

    /// Plans the block of `level` that ends with flush `end`, including its parts in the levels
    /// above, down to `limit` at most.
    fn plan_block(
        &self,
        shape: &Shape,
        layout: &Layout,
        level: usize,
        end: Epoch,
        limit: usize,
        blocks: &Blocks,
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
        let to = (next..limit).find(|&n| n >= layout.base && !blocks.ends(n, end)).unwrap_or(limit);
        let in_block = |run: &&RunShape| newest(&run.tables) <= end;
        // By level from the deepest up, each without data newer than the block; nothing passes data
        // that stays.
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
            Kind::Leveling if self.granularity == Granularity::Full => OutputPlace::JoinedWhole,
            Kind::Leveling => OutputPlace::Joined,
            Kind::Tiering if closes => {
                selected.extend(shape.runs(to).iter().map(|run| Selected::whole(to, run)));
                OutputPlace::NewestInput
            }
            Kind::Tiering => OutputPlace::Stacked,
        };
        let stretch =
            (to == layout.last).then(|| self.next_stretch(shape, layout, end, blocks, &selected)).flatten();
        let draft = Draft { stretch, ..self.draft(selected, to, place, Reason::FlushCount) };
        self.build(shape, layout, &draft)
    }

    /// Reports whether the run that ends with flush `end` completes the stack in the last level of
    /// pure tiering.
    fn closes_stack(&self, last: usize, end: Epoch, blocks: &Blocks) -> bool {
        let number = end / blocks.flushes[last - 1];
        (number.saturating_sub(1)).is_multiple_of(self.ratio(last) - 1)
    }
}
