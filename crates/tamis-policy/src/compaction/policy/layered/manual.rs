//! Manual compaction: step by step to one run in the deepest level.
//!
//! Where a level holds several runs, they are merged once, together with all newer data. Then level
//! 0 is merged as a whole, and deeper levels piece by piece, so that no step needs much free space
//! and pieces can run concurrently. Tables that overlap nothing and are already in the last level
//! stay untouched, but for small ones, which are joined when everything is in one run.

use super::*;

impl Layered {
    pub(super) fn plan_manual(&self, shape: &Shape, range: Option<&KeyRange>) -> Option<Plan> {
        let layout = self.layout(shape);
        self.plan_to_one_run(shape, &layout, range).or_else(|| {
            let part = Part::only_run(shape, range).into_iter();
            self.plan_small(shape, &layout, part, 1, Reason::Manual)
        })
    }

    fn plan_to_one_run(&self, shape: &Shape, layout: &Layout, range: Option<&KeyRange>) -> Option<Plan> {
        let concerns = |table: &TableShape| range.is_none_or(|range| range.overlaps_table(table));
        let is_concerned = |run: &&RunShape| run.tables.iter().any(concerns);
        let stacked =
            (1..shape.levels.len()).rev().find(|&n| shape.runs(n).iter().filter(is_concerned).count() > 1);
        let level0 = shape.levels.first()?.tables().any(concerns);
        if let Some(deepest) = stacked {
            return self.plan_closed(shape, layout, deepest, concerns);
        }
        if level0 {
            let to = layout.level0_output;
            let selected = shape.runs(0).iter().map(|run| Selected::whole(0, run)).collect();
            return match self.kind(to, layout.last) {
                Kind::Leveling => {
                    self.build(shape, layout, &self.draft(selected, to, OutputPlace::Joined, Reason::Manual))
                }
                Kind::Tiering => match (1..shape.levels.len())
                    .find(|&n| shape.runs(n).iter().any(|run| is_concerned(&run)))
                {
                    Some(first) => self.plan_closed(shape, layout, first, concerns),
                    None => {
                        let place = OutputPlace::Stacked;
                        self.build(shape, layout, &self.draft(selected, to, place, Reason::Manual))
                    }
                },
            };
        }
        let deepest = shape.deepest().filter(|deepest| *deepest > 0)?;
        // If the deepest level that holds data is too small for all of it, it would be due at once.
        let deepest = match self.kind(layout.last, layout.last) {
            Kind::Leveling if range.is_none() => deepest.max(layout.last),
            _ => deepest,
        };
        let level = (1..deepest).find(|&n| shape.runs(n).iter().any(|run| is_concerned(&run)))?;
        let output_level = (level + 1..deepest).find(|&n| !shape.levels[n].is_empty()).unwrap_or(deepest);
        let run = shape.runs(level).iter().find(is_concerned)?;
        // Other runs of the next level must not be passed: they hold nothing of the range, but may
        // overlap its pieces.
        let several = shape.runs(output_level).len() > 1 || shape.runs(level).len() > 1;
        if several {
            // Tables that overlap nothing there continue to the first level where they do.
            let mut levels = (output_level..=deepest).filter(|&n| !shape.levels[n].is_empty());
            return levels.find_map(|n| self.plan_closed(shape, layout, n, concerns));
        }
        (0..run.tables.len()).filter(|&i| concerns(&run.tables[i]) && !run.tables[i].busy).find_map(|from| {
            let mut bytes = 0;
            let piece = run.tables[from..].iter().take_while(|table| {
                let fits = bytes < self.max_overlap(level) && concerns(table) && !table.busy;
                bytes += table.bytes();
                fits
            });
            let tables = with_shared_keys(&run.tables, from..from + piece.count());
            let selected = vec![Selected { level, run, tables }];
            self.build(
                shape,
                layout,
                &self.draft(selected, output_level, OutputPlace::Joined, Reason::Manual),
            )
        })
    }

    /// Merges all tables from level 0 to `deepest` that overlap the range or such a table, directly
    /// or through others, into one run in place of the newest of them in `deepest`.
    fn plan_closed(
        &self,
        shape: &Shape,
        layout: &Layout,
        deepest: usize,
        concerns: impl Fn(&TableShape) -> bool,
    ) -> Option<Plan> {
        let runs = || (0..=deepest).flat_map(|level| shape.runs(level).iter().map(move |run| (level, run)));
        let mut range = KeyRange::hull(runs().flat_map(|(_, run)| &run.tables).filter(|t| concerns(t)))?;
        loop {
            let before = range.clone();
            for (_, run) in runs() {
                let tables = with_shared_keys(&run.tables, before.overlap(&run.tables));
                run.tables[tables].iter().for_each(|table| range.extend(table));
            }
            if range == before {
                break;
            }
        }
        let selected = runs()
            .map(|(level, run)| Selected { level, run, tables: range.overlap(&run.tables) })
            .filter(|selected| !selected.tables.is_empty())
            .collect();
        self.build(shape, layout, &self.draft(selected, deepest, OutputPlace::NewestInput, Reason::Manual))
    }
}
