//! Only the filters' part of a read: what the read path asks the selector, without memtables,
//! indexes or blocks. For measurements: a read itself is not timed in parts, since two clock
//! readings take as long as a probe.
//!
//! Counts nothing in the statistics, and elastic filters learn nothing.

use tamis_filter::Next;

use crate::observe::cost::ReadCost;
use crate::read::View;
use crate::select::{Candidates, LeanKey, Probe, next_step};
use crate::selector::RangeRuns;

/// Asks what a get asks if no table has the key: all runs, with one digest.
pub(crate) fn of_absent_key(view: &View, key: &[u8]) -> ReadCost {
    let (version, selector, mut cost) = (&view.version, &view.selector, ReadCost::default());
    let mut probe = Probe::of(&LeanKey::new(key, &mut cost));
    let (mut candidates, mut first) = (Candidates::new(), 0);
    while first < version.runs.len() {
        let runs = match version.runs.len() {
            count if selector.is_global() => 0..count,
            count => next_step(first, count, false),
        };
        first = runs.end;
        candidates.clear();
        selector.select(version, &mut probe, runs, &mut candidates, &mut cost);
        cost.runs_searched += candidates.len() as u64;
    }
    cost
}

/// Asks what the first item of an iteration from `from` up to `end` asks. Filters of tables answer
/// once each. A filter for the tree answers for a stretch: up to the first one in which some run
/// may have keys, or for all stretches if `end` is given.
pub(crate) fn of_range(view: &View, from: &[u8], end: Option<&[u8]>) -> ReadCost {
    let (version, selector, mut cost) = (&view.version, &view.selector, ReadCost::default());
    if let Some(filter) = selector.tree() {
        let (mut out, mut start) = (RangeRuns::default(), from.to_vec());
        loop {
            out.clear();
            cost.range_probes += 1;
            if !filter.ahead(version, &start, end, &mut out, &mut cost) {
                cost.runs_searched += version.runs.len() as u64;
                return cost;
            }
            cost.runs_searched += out.runs().len() as u64;
            match out.until() {
                // Nothing is known about a stretch that made no progress.
                Some(until) if until > &start[..] && (end.is_some() || out.runs().len() == 0) => {
                    start.clear();
                    start.extend_from_slice(until);
                }
                _ => return cost,
            }
            if end.is_some_and(|end| start[..] >= *end) {
                return cost;
            }
        }
    }
    for run in &version.runs {
        let table = version.first_reaching(&run.tables, from);
        if table == run.tables.end || version.starts_after(table, from) {
            continue;
        }
        let next = match selector.range_filters() {
            Some(filters) => filters.next(version, table, from, end, &mut cost),
            None => Next::Unknown,
        };
        let may_hold = match next {
            Next::Nothing => false,
            Next::NotBelow(next) => end.is_none_or(|end| next[..] < *end),
            Next::Unknown => true,
        };
        cost.runs_searched += u64::from(may_hold);
    }
    cost
}
