//! Full merges: whole levels at once, down to the first level that is not due when it has received
//! them.

use super::*;

/// In pure tiering, a merge of level 0 takes levels along that have at most so many times its bytes.
const LONGEST: u64 = 4;

impl Layered {
    /// Merges all of `from` one or more levels down, including all levels between that would be due
    /// at once. If that is [too much](Layout::is_too_much), merges some tables into a leveling level,
    /// or two runs of the level into one.
    pub(super) fn plan_full(
        &self,
        shape: &Shape,
        layout: &Layout,
        from: usize,
        reason: Reason,
    ) -> Option<Plan> {
        let (levels, to) = self.levels_of_full(shape, layout, from);
        if from == to && shape.runs(from).len() < 2 {
            return None;
        }
        let selected = levels
            .flat_map(|level| shape.runs(level).iter().map(move |run| Selected::whole(level, run)))
            .collect::<Vec<_>>();
        let place = match self.kind(to, layout.last) {
            Kind::Tiering if selected.iter().any(|s| s.level == to) => OutputPlace::NewestInput,
            Kind::Tiering => OutputPlace::Stacked,
            Kind::Leveling if self.granularity == Granularity::Full => OutputPlace::JoinedWhole,
            Kind::Leveling => OutputPlace::Joined,
        };
        let draft = self.draft(selected, to, place, reason);
        let build = |layout: &Layout| self.build(shape, layout, &draft);
        let plan = build(layout);
        if plan.is_some() || self.deterministic || !layout.is_too_much(build) {
            return plan;
        }
        let next = if from == 0 { layout.level0_output } else { from + 1 };
        // The last level of pure tiering has none below it.
        let leveling = next <= layout.last && self.kind(next, layout.last) == Kind::Leveling;
        let pieces = (leveling && from > 0)
            .then(|| self.plan_pieces(shape, layout, from, next, self.table_bytes, reason))
            .flatten();
        pieces.or_else(|| self.merge_neighbours(shape, layout, from, reason, build))
    }

    /// The levels that a full merge of `from` takes whole, and the level it writes to. The two
    /// overlap at the last level of pure tiering, which is merged in place.
    fn levels_of_full(
        &self,
        shape: &Shape,
        layout: &Layout,
        from: usize,
    ) -> (std::ops::RangeInclusive<usize>, usize) {
        let limit = self.full_limit(layout);
        if from >= limit && from > 0 && !layout.counts_bytes {
            return (from..=from, from);
        }
        let mut to = if from == 0 { layout.level0_output } else { from + 1 };
        if from > 0 && to < layout.base {
            // Left behind above the base level: skips the empty levels.
            to = (to..layout.base).find(|&n| !shape.runs(n).is_empty()).unwrap_or(layout.base);
        }
        let mut incoming: u64 = shape.levels[from].bytes();
        let mut end = from;
        loop {
            let level = shape.levels.get(to);
            let is_taken = level.is_some_and(|level| level.tables().any(|table| table.busy));
            let bytes = level.map_or(0, LevelShape::bytes);
            let over = self.is_over(layout, to, shape.runs(to).len() + 1, bytes.saturating_add(incoming));
            // Flushes go on while the merge runs, and nothing else may take their runs: newer ones in a
            // level below would be read too late. So level 0 is merged alone, and the level below next
            // to it.
            let is_long = from == 0 && self.leveling == 0 && bytes / LONGEST > shape.levels[0].bytes();
            if is_taken || !over || is_long {
                return (from..=end, to);
            }
            if to >= limit {
                let in_place = to == layout.last && !layout.counts_bytes;
                return (from..=if in_place { to } else { end }, to);
            }
            // From here on the level is merged down piece by piece.
            let by_pieces =
                self.granularity == Granularity::Partial && self.kind(to + 1, layout.last) == Kind::Leveling;
            if by_pieces {
                return (from..=end, to);
            }
            incoming = incoming.saturating_add(bytes);
            end = to;
            to += 1;
        }
    }
}
