//! Partial merges: some tables of a level and those they overlap in the next level, which is
//! leveling.

use super::*;

impl Layered {
    /// Plans a merge of some tables of `level`, which is `excess` bytes too large, into
    /// `output_level`, chosen by the picker. Of several runs the tables come from the oldest, so
    /// that nothing passes older data; tables of newer runs within their range are included if all
    /// older tables under them are.
    pub(super) fn plan_pieces(
        &self,
        shape: &Shape,
        layout: &Layout,
        level: usize,
        output_level: usize,
        excess: u64,
        reason: Reason,
    ) -> Option<Plan> {
        if shape.runs(output_level).len() > 1 {
            return None;
        }
        let run = shape.runs(level).iter().rev().find(|run| is_waiting(run))?;
        self.order(shape, run, output_level).into_iter().find_map(|i| {
            let one = with_shared_keys(&run.tables, i..i + 1);
            let grown = self.grow(shape, layout, level, run, output_level, one.clone(), excess);
            let build = |layout: &Layout, tables: Range<usize>| {
                let selected = with_newer(shape, level, Selected { level, run, tables });
                self.build(shape, layout, &self.draft(selected, output_level, OutputPlace::Joined, reason))
            };
            let whole = |layout: &Layout| build(layout, grown.clone());
            let smaller = || (grown != one && layout.is_too_much(whole)).then(|| build(layout, one.clone()));
            whole(layout).or_else(|| smaller().flatten())
        })
    }

    /// Adds neighbours that cost nothing: tables that overlap no table of the next level that is
    /// not already an input (up to a size), or that overlap none at all and can be moved unchanged
    /// (up to the level's excess).
    #[expect(clippy::too_many_arguments, reason = "the only caller has them all at hand")]
    fn grow(
        &self,
        shape: &Shape,
        layout: &Layout,
        level: usize,
        run: &RunShape,
        output_level: usize,
        tables: Range<usize>,
        excess: u64,
    ) -> Range<usize> {
        let run = &run.tables[..];
        let below: &[TableShape] = shape.runs(output_level).first().map_or(&[], |run| &run.tables);
        let Some(range) = KeyRange::hull(&run[tables.clone()]) else { return tables };
        let overlap = range.overlap(below);
        let moves = overlap.is_empty();
        let may_move = |t: &TableShape| self.may_move(shape, layout, t, output_level);
        if moves && !run[tables.clone()].iter().all(may_move) {
            return tables;
        }
        let limit = if moves { excess } else { self.max_overlap(level) };
        let fits = |grown: &Range<usize>| {
            let Some(range) = KeyRange::hull(&run[grown.clone()]) else { return false };
            let overlap_now = range.overlap(below);
            (overlap_now == overlap || moves && overlap_now.is_empty())
                && run[grown.clone()].iter().all(|t| !t.busy && (!moves || may_move(t)))
        };
        let mut bytes: u64 = run[tables.clone()].iter().map(TableShape::bytes).sum();
        let mut tables = tables;
        loop {
            let right = with_shared_keys(run, tables.start..(tables.end + 1).min(run.len()));
            let left = with_shared_keys(run, tables.start.saturating_sub(1)..tables.end);
            let Some(grown) = [right, left].into_iter().find(|grown| *grown != tables && fits(grown)) else {
                return tables;
            };
            bytes = run[grown.clone()].iter().map(TableShape::bytes).sum::<u64>().max(bytes);
            if bytes > limit {
                return tables;
            }
            tables = grown;
        }
    }
}

/// Returns the tables of newer runs that lie within the range of `chosen` and under which every
/// older table of the level is included as well; newest run first, `chosen` last.
fn with_newer<'a>(shape: &'a Shape, level: usize, chosen: Selected<'a>) -> Vec<Selected<'a>> {
    let runs = shape.runs(level);
    let Some(range) = KeyRange::hull(chosen.tables()) else { return vec![chosen] };
    let at = runs.iter().position(|run| run.id == chosen.run.id).unwrap_or(0);
    let mut selected = vec![chosen];
    for newer in runs[..at].iter().rev() {
        let within = |t: &TableShape| {
            !t.busy
                && range.smallest <= t.meta.smallest
                && t.meta.largest <= range.largest
                && runs[at + 1..].iter().all(|older| t.range().overlap(&older.tables).is_empty())
                && selected
                    .iter()
                    .all(|s: &Selected<'_>| t.range().overlap(&s.run.tables).all(|i| s.tables.contains(&i)))
        };
        let overlapped = range.overlap(&newer.tables);
        // One contiguous range of the run: the first such tables.
        let Some(start) = overlapped.clone().find(|&i| within(&newer.tables[i])) else {
            // Newer data must still not pass this run's tables.
            if overlapped.is_empty() {
                continue;
            }
            break;
        };
        let end = (start..overlapped.end).find(|&i| !within(&newer.tables[i])).unwrap_or(overlapped.end);
        let tables = start..end;
        if with_shared_keys(&newer.tables, tables.clone()) != tables {
            break;
        }
        selected.push(Selected { level, run: newer, tables });
    }
    selected.reverse();
    selected
}
