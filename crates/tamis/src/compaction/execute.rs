//! Execution of a plan: merges what the plan names, knows nothing of policies.

use std::collections::HashSet;
use std::sync::Arc;

use crate::compaction::plan::Plan;
use crate::compaction::writer::{MergeOutput, Older, TableSink, write_tables};
use crate::error::StorageError;
use crate::key::{KeyBytes, KeyEnd};
use crate::read::merge::{MergeCursor, Tables};
use crate::table::CursorOptions;
use crate::tree::epochs::EpochMap;
use crate::tree::meta::TableId;
use crate::tree::open_table::OpenTable;
use crate::tree::tombstones::Tombstones;
use crate::tree::version::Version;

/// How far a merge reads ahead in files that are not mapped, in bytes.
const READAHEAD_BYTES: u64 = 1 << 20;

/// The tables that a plan names, per run, newest run first.
pub(crate) fn input_tables(version: &Version, plan: &Plan) -> Vec<Vec<Arc<OpenTable>>> {
    let named: HashSet<TableId> = plan.tables().collect();
    let of_run = |tables: &[Arc<OpenTable>]| -> Vec<_> {
        tables.iter().filter(|t| named.contains(&t.meta.id)).cloned().collect()
    };
    version
        .runs
        .iter()
        .map(|run| of_run(&version.tables[run.tables.clone()]))
        .filter(|t| !t.is_empty())
        .collect()
}

/// Merges the plan's inputs into new tables; `None` if cancelled.
///
/// # Invariant
///
/// The inputs are neighbours in age wherever they overlap: no table outside the plan is both newer than one
/// input and older than another and shares keys with them. Policies guarantee it; debug builds check it.
pub(crate) fn merge(
    version: &Version,
    plan: &Plan,
    sink: &TableSink<'_>,
) -> Result<Option<MergeOutput>, StorageError> {
    let runs = input_tables(version, plan);
    let inputs: Vec<Arc<OpenTable>> = runs.iter().flatten().cloned().collect();
    let mut older = OlderTables::of(version, &inputs);
    debug_assert!(neighbours_in_age(version, &inputs), "a plan skips a run between its inputs: {plan:?}");

    let options = CursorOptions { fill_cache: false, read_ahead: READAHEAD_BYTES };
    let mut cursor = MergeCursor::new(Tables::List(inputs.clone()), options, runs.len());
    let mut first = 0;
    for run in &runs {
        cursor.add_run(first..first + run.len());
        first += run.len();
    }
    let tombstones = Tombstones::merge(inputs.iter().filter_map(|t| t.tombstones.as_deref()));
    let epochs = |smallest: &KeyBytes, largest: &KeyEnd| {
        let maps: Vec<_> =
            inputs.iter().map(|t| (&t.meta.epochs, &t.meta.smallest[..], &t.meta.largest)).collect();
        let merged = EpochMap::merge(&maps, smallest, largest);
        if plan.bottommost { merged.reaching_down() } else { merged }
    };
    write_tables(sink, &mut cursor, tombstones, &mut older, &epochs)
}

/// The tables older than the inputs of a merge that overlap it: where an old version may still lie hidden.
struct OlderTables {
    /// Per run, the tables that overlap the merge, and how far the ascending questions have come.
    runs: Vec<(Vec<Arc<OpenTable>>, usize)>,
}

impl OlderTables {
    fn of(version: &Version, inputs: &[Arc<OpenTable>]) -> Self {
        let ids: HashSet<TableId> = inputs.iter().map(|t| t.meta.id).collect();
        let is_input = |t: &Arc<OpenTable>| ids.contains(&t.meta.id);
        // Runs are listed newest first: what is older than every input comes after the first run that has one.
        let newest =
            version.runs.iter().position(|run| version.tables[run.tables.clone()].iter().any(is_input));
        let runs = version.runs[newest.unwrap_or(0)..].iter().map(|run| {
            let overlapping = version.tables[run.tables.clone()]
                .iter()
                .filter(|t| !is_input(t) && inputs.iter().any(|i| i.meta.overlaps(&t.meta)));
            (overlapping.cloned().collect::<Vec<_>>(), 0)
        });
        OlderTables { runs: runs.filter(|(tables, _)| !tables.is_empty()).collect() }
    }
}

impl Older for OlderTables {
    fn may_hold(&mut self, key: &[u8]) -> bool {
        self.runs.iter_mut().any(|(tables, at)| {
            while tables.get(*at).is_some_and(|t| !t.meta.largest.reaches(key)) {
                *at += 1;
            }
            tables.get(*at).is_some_and(|t| t.meta.covers(key))
        })
    }

    fn any(&self) -> bool {
        !self.runs.is_empty()
    }
}

fn neighbours_in_age(version: &Version, inputs: &[Arc<OpenTable>]) -> bool {
    let ids: HashSet<TableId> = inputs.iter().map(|t| t.meta.id).collect();
    let runs: Vec<_> = version.runs.iter().map(|run| &version.tables[run.tables.clone()]).collect();
    let is_input = |t: &Arc<OpenTable>| ids.contains(&t.meta.id);
    let first = runs.iter().position(|tables| tables.iter().any(is_input)).unwrap_or(0);
    let last = runs.iter().rposition(|tables| tables.iter().any(is_input)).unwrap_or(0);
    runs[first..=last.max(first)].iter().enumerate().all(|(i, tables)| {
        tables.iter().filter(|t| !is_input(t)).all(|outside| {
            let overlaps_in = |runs: &[&[Arc<OpenTable>]]| {
                runs.iter().any(|ts| ts.iter().any(|t| is_input(t) && t.meta.overlaps(&outside.meta)))
            };
            let runs = runs.iter().map(|r| &r[..]).collect::<Vec<_>>();
            !(overlaps_in(&runs[..first + i]) && overlaps_in(&runs[first + i + 1..]))
        })
    })
}
