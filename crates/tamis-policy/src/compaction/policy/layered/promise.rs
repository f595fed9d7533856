//! The promises of the layered policies while nothing is due and level 0 is not collecting runs of
//! a load. T is each level's own ratio, B the size of level 0 when it is due (`level0_runs`
//! memtables), and G the size that the last level grows towards.
//!
//! **Runs.** Level 0 holds at most `level0_runs` − 1, a tiering level T − 1, a leveling level one:
//! a level that would have more is merged first. Levels between level 0 and the base level hold
//! none.
//!
//! **Space**, as bytes of all tables divided by live bytes, without deletes. A leveling last level
//! holds every key once, and the levels above may be superseded entirely: at most the targets,
//! G/T + G/T² + …, and level 0's B. So 1 + Σ targets/G + B/G; tiering levels between cost no space.
//! With `deterministic`, the levels above hold the data written since the round began, at most B·ΠT
//! ≤ G, however large: 2 + B/G; where updates have lengthened blocks by a factor E (at most 4), 1 +
//! E + B/G. Pure tiering may hold every key in each of its runs: space amplification is at most the
//! maximum number of runs.
//!
//! **Writes**, as bytes written by flushes and compactions divided by bytes flushed. One for the
//! flush. A tiering level adds 1: a byte is written once when it arrives, and not again before it
//! leaves. A full merge into a leveling level rewrites what up to T earlier merges have added: at
//! most (T + 1)/2 times each on average where a level is emptied every T merges, and T + 1 for the
//! last level, which is never emptied: it is rewritten once for every G/T incoming bytes. Under
//! partial merges the base level of a leveling tree receives batches of B and holds up to two: 1 +
//! its target/B, at most 3; the levels below it add one for tables that overlap only in part, as
//! leveled trees are known for: T + 2. Skipping levels only saves writes, and so do larger batches.
//! Pure tiering: one for every level in use; and the last allowed level, which is merged in place,
//! is rewritten for every T − 1 incoming runs. Data that overlaps nothing costs none of this, but
//! may have to be [joined](crate::compaction::policy::small).

use super::*;

impl Layered {
    pub(super) fn promised(&self, shape: &Shape) -> Promise {
        let layout = self.layout(shape);
        let deepest = shape.deepest().unwrap_or(0);
        let count = self.levels.max(shape.levels.len());
        let runs = |level: usize| match self.kind(level, layout.last) {
            Kind::Tiering if level == 0 => Some(self.level0_runs - 1),
            _ if level < layout.level0_output || level > layout.last => Some(0),
            Kind::Tiering => Some(usize::try_from(self.ratio(level)).map_or(usize::MAX, |t| t - 1)),
            Kind::Leveling => Some(1),
        };
        let runs_per_level: Vec<Option<usize>> = (0..count).map(runs).collect();
        let goal = layout.targets.get(layout.last).copied().unwrap_or(0).max(1) as f64;
        let level0 = self.base_bytes as f64 / goal;
        let space = if !layout.counts_bytes {
            runs_per_level.iter().take(deepest + 1).flatten().sum::<usize>() as f64
        } else if self.deterministic {
            1.0 + self.stretched(shape, &layout, 1..layout.last) + level0
        } else {
            1.0 + layout.targets[1..layout.last].iter().map(|&target| target as f64 / goal).sum::<f64>()
                + level0
        };
        let partial = self.granularity == Granularity::Partial;
        let writes = |level: usize| {
            let above = self.ratio(level.saturating_sub(1)) as f64;
            let is_base = level == layout.base;
            match self.kind(level, layout.last) {
                _ if level < layout.base || !layout.counts_bytes && level > deepest => 0.0,
                Kind::Tiering if level == layout.last => 1.0 + self.closing(shape, &layout),
                Kind::Tiering => 1.0,
                Kind::Leveling if partial && is_base && level == layout.last => self.fill(&layout) + 1.0,
                Kind::Leveling if partial && is_base => {
                    1.0 + layout.targets[level] as f64 / self.base_bytes as f64
                }
                Kind::Leveling if partial => above + 2.0,
                // Full merges into the level until it is due, by its own ratio.
                Kind::Leveling if level < layout.last => {
                    let batches = self.ratio(level) as f64 * self.stretched(shape, &layout, level..level + 1);
                    (batches + 1.0) / 2.0 + 1.0
                }
                Kind::Leveling if is_base => self.fill(&layout) + 1.0,
                Kind::Leveling => above + 1.0,
            }
        };
        let memtable_bytes = self.base_bytes / (self.level0_runs as u64).max(1);
        let joiner = Joiner { table_bytes: self.table_bytes, spare: SPARE };
        let walls = |part: &Part| self.walls(shape, &layout, part);
        Promise {
            runs_per_level,
            tables: Some(joiner.promised(shape, Part::whole_runs(shape), walls)),
            space_amplification: Some(space),
            write_amplification: Some(
                (1.0 + (1..=layout.last).map(writes).sum::<f64>()).max(joiner.writes(memtable_bytes)),
            ),
        }
    }

    /// How much longer than without superseded entries blocks are, of the deepest of these levels
    /// as multiples of blocks of the level above the first.
    fn stretched(&self, shape: &Shape, layout: &Layout, levels: Range<usize>) -> f64 {
        if !self.deterministic || levels.is_empty() {
            return 1.0;
        }
        let flushes = self.blocks(shape, layout).flushes;
        let levels = levels.start.max(layout.base)..levels.end;
        let plain: f64 = levels.clone().map(|level| self.ratio(level) as f64).product();
        flushes[levels.end - 1] as f64 / flushes[levels.start - 1] as f64 / plain
    }

    /// How often the last level of pure tiering is rewritten per incoming byte: as a whole for
    /// every T − 1 runs.
    fn closing(&self, shape: &Shape, layout: &Layout) -> f64 {
        let run =
            (1..layout.last).map(|level| self.ratio(level) as f64).product::<f64>() * self.base_bytes as f64;
        let bytes = shape.levels.get(layout.last).map_or(0, LevelShape::bytes);
        bytes as f64 / (run * (self.ratio(layout.last) - 1) as f64).max(1.0)
    }

    /// The number of batches of level 0 in the last level when level 0 compacts directly into it.
    fn fill(&self, layout: &Layout) -> f64 {
        layout.targets[layout.last] as f64 / self.base_bytes.max(1) as f64
    }
}
