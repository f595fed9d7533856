//! Taking one table deeper although no level is due.

use super::*;

impl Layered {
    /// Level 0 and levels that are merged whole are taken whole, and so are all runs of a stack
    /// that has nothing below it. Otherwise it is the table and what it overlaps in the next level,
    /// or its group.
    pub(super) fn plan_deeper(&self, shape: &Shape, spot: &Spot<'_>, reason: Reason) -> Option<Plan> {
        let layout = self.layout(shape);
        let (level, runs) = (spot.level, shape.runs(spot.level));
        if level == 0 {
            return self.plan_full(shape, &layout, 0, reason);
        }
        let Some(next) = (level + 1..shape.levels.len()).find(|&n| !shape.levels[n].is_empty()) else {
            return (runs.len() > 1).then(|| self.in_place(shape, &layout, level, runs, reason)).flatten();
        };
        if self.is_partitioned(&layout, level) {
            return self.plan_group_of(shape, &layout, &spot.table.range(), reason);
        }
        let by_pieces = self.granularity == Granularity::Partial
            && runs.len() == 1
            && self.kind(next, layout.last) == Kind::Leveling;
        if !by_pieces {
            return self.plan_full(shape, &layout, level, reason);
        }
        let run = &runs[spot.run];
        let at = run.tables.iter().position(|table| table.id() == spot.table.id())?;
        let selected = vec![Selected { level, run, tables: with_shared_keys(&run.tables, at..at + 1) }];
        self.build(shape, &layout, &self.draft(selected, next, OutputPlace::Joined, reason))
    }
}
