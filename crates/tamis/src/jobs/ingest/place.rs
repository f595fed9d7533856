//! Choosing where in the tree an ingested table goes.

use tamis_base::ids::RunId;
use tamis_policy::compaction::shape::{KeyRange, Shape};

use crate::options::{CompactionChoice, KeyspaceOptions};

/// A place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Destination {
    pub(super) level: usize,
    /// The run that the table joins; `None`: a new run, the newest of the level.
    pub(super) run: Option<RunId>,
}

const NEWEST: Destination = Destination { level: 0, run: None };

/// How deep a policy lets new tables go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Only into level 0: the policy depends on the age of tables or flushes.
    Top,
    /// Into levels that already are a single run.
    Joining,
    /// Also into an empty level where the policy would fill it.
    Leveled,
}

impl Depth {
    /// Returns the depth for a keyspace. `drops_data`: its policy drops old data.
    pub(super) fn of(options: &KeyspaceOptions, drops_data: bool) -> Depth {
        match options.compaction {
            _ if options.deterministic || drops_data => Depth::Top,
            CompactionChoice::Leveling => Depth::Leveled,
            CompactionChoice::Tiering | CompactionChoice::LazyLeveling | CompactionChoice::Hybrid(_) => {
                Depth::Joining
            }
            _ => Depth::Top,
        }
    }
}

/// Returns the deepest level that is a single run, which the table then joins, such that no table
/// in it or above overlaps `range`, and no output of a running job does. Otherwise returns level 0,
/// as a run of its own. The contents of deeper levels do not matter: they are older.
///
/// The memtables must hold nothing in the range. Then everything that the tree holds in the range
/// lies deeper than the table, now and after all running jobs have ended: a job whose inputs
/// overlap the range is deeper, and a job whose outputs may overlap it writes at its output level
/// or above.
pub(super) fn place(shape: &Shape, range: &KeyRange, depth: Depth) -> Destination {
    let mut best = NEWEST;
    if depth == Depth::Top {
        return best;
    }
    let used = |level: usize| !shape.runs(level).iter().all(|run| run.tables.is_empty());
    let first = (1..shape.levels.len()).find(|&level| used(level));
    let last = (1..shape.levels.len()).rfind(|&level| used(level));
    for (level, holds) in shape.levels.iter().enumerate() {
        let overlapped = holds.tables().any(|table| range.overlaps_table(table));
        let mut outputs = shape.running.iter().filter(|job| job.output_level == level);
        if overlapped || outputs.any(|job| job.range.overlaps(range)) {
            break;
        }
        let run = match &holds.runs[..] {
            _ if level == 0 => continue,
            [only] => Some(only.id),
            [] => {
                // Two jobs filling an empty level at once would leave two runs in it.
                let free =
                    depth == Depth::Leveled && shape.running.iter().all(|job| job.output_level != level);
                let usual = match (first, last) {
                    (Some(first), Some(last)) => (first..=last).contains(&level),
                    _ => level + 1 == shape.levels.len(),
                };
                if !(free && usual) {
                    continue;
                }
                None
            }
            _ => continue,
        };
        best = Destination { level, run };
    }
    best
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::tree::tests::table;
    use tamis_base::key::KeyEnd;
    use tamis_policy::compaction::plan::OutputRun;
    use tamis_policy::compaction::shape::{LevelShape, RunShape, RunningJob, TableShape};

    fn range(from: &str, to: &str) -> KeyRange {
        KeyRange { smallest: from.as_bytes().into(), largest: KeyEnd::Included(to.as_bytes().into()) }
    }

    type Tables<'a> = &'a [(u64, &'a str, &'a str)];

    /// Five levels of runs of tables, by number and range; a run's number is its first table's.
    fn shape(levels: &[(usize, Tables<'_>)]) -> Shape {
        let mut shape = Shape { levels: vec![LevelShape::default(); 5], ..Shape::default() };
        for (level, tables) in levels {
            let tables: Vec<_> = tables
                .iter()
                .map(|(id, from, to)| TableShape {
                    meta: Arc::new(table(*id, from, to)),
                    busy: false,
                    free: true,
                })
                .collect();
            shape.levels[*level].runs.push(RunShape { id: tables[0].id(), tables });
        }
        shape
    }

    fn at(level: usize, run: impl Into<Option<RunId>>) -> Destination {
        Destination { level, run: run.into() }
    }

    fn job(input: usize, output: usize, range: KeyRange) -> RunningJob {
        RunningJob { input_levels: (input, output), output_level: output, output: OutputRun::New, range }
    }

    #[test]
    fn an_empty_tree_is_filled_from_its_last_level() {
        assert_eq!(place(&shape(&[]), &range("a", "b"), Depth::Leveled), at(4, None));
        assert_eq!(place(&shape(&[]), &range("a", "b"), Depth::Joining), NEWEST);
        assert_eq!(place(&shape(&[]), &range("a", "b"), Depth::Top), NEWEST);
        let young = shape(&[(0, &[(1, "a", "b")])]);
        assert_eq!(place(&young, &range("c", "d"), Depth::Leveled), at(4, None));
        assert_eq!(place(&young, &range("b", "d"), Depth::Leveled), NEWEST);
    }

    #[test]
    fn a_table_sinks_until_something_overlaps_it() {
        let tree =
            shape(&[(0, &[(9, "x", "z")]), (2, &[(5, "g", "k")]), (4, &[(1, "a", "c"), (2, "m", "p")])]);
        let goes = |from, to| place(&tree, &range(from, to), Depth::Leveled);
        assert_eq!(goes("d", "e"), at(4, 1), "nothing is there");
        assert_eq!(goes("b", "e"), at(3, None), "above the last level, in an empty one");
        assert_eq!(goes("h", "i"), NEWEST, "an empty level above all that are used stays empty");
        assert_eq!(goes("y", "y"), NEWEST);
        assert_eq!(goes("c", "n"), NEWEST);
        assert_eq!(place(&tree, &range("b", "e"), Depth::Joining), at(2, 5));
        assert_eq!(place(&tree, &range("d", "e"), Depth::Top), NEWEST);
    }

    #[test]
    fn a_level_of_several_runs_is_skipped() {
        let tree = shape(&[(1, &[(5, "a", "b")]), (1, &[(4, "a", "b")]), (4, &[(1, "a", "z")])]);
        assert_eq!(place(&tree, &range("m", "n"), Depth::Joining), NEWEST);
        let tree = shape(&[(1, &[(5, "a", "b")]), (1, &[(4, "a", "b")]), (4, &[(1, "a", "c")])]);
        assert_eq!(place(&tree, &range("m", "n"), Depth::Joining), at(4, 1));
    }

    #[test]
    fn pending_outputs_of_running_jobs_count_as_written() {
        let mut tree = shape(&[(0, &[(9, "a", "b")]), (2, &[(5, "k", "l")]), (4, &[(1, "a", "c")])]);
        assert_eq!(place(&tree, &range("e", "f"), Depth::Leveled), at(4, 1));
        tree.running = vec![job(2, 4, range("d", "g"))];
        assert_eq!(place(&tree, &range("e", "f"), Depth::Leveled), at(3, None));
        tree.running = vec![job(0, 2, range("d", "g"))];
        assert_eq!(place(&tree, &range("e", "f"), Depth::Leveled), NEWEST);
        // Outside the range, the job counts only where a level would get a second run.
        tree.running = vec![job(0, 4, range("a", "b"))];
        assert_eq!(place(&tree, &range("e", "f"), Depth::Leveled), at(4, 1));
        let mut young = shape(&[(0, &[(1, "a", "b")])]);
        young.running = vec![job(0, 4, range("a", "b"))];
        assert_eq!(place(&young, &range("c", "d"), Depth::Leveled), NEWEST);
    }
}
