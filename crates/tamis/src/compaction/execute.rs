//! Executes plans: merges the inputs that a plan names. Independent of the policies.
//!
//! A large merge is split into [parts](crate::compaction::parts), which several threads execute.
//! Each part has its own cursor, its own list of older tables and its own piece of the range
//! tombstones; the parts share the immutable inputs and, behind a mutex, the list of results. If
//! one part fails, the others stop at their next check of the job control, and everything that any
//! part has written is removed.

use tamis_base::collections::HashSet;
use tamis_base::epochs::EpochMap;
use tamis_base::ids::TableId;
use tamis_base::key::{KeyBytes, KeyEnd};
use tamis_files::table::CursorOptions;
use tamis_files::tree::tombstones::Tombstones;
use tamis_policy::compaction::plan::Plan;

use crate::sync::{Mutex, thread};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::compaction::parts::PartRange;
use crate::compaction::sink::{JobControl, Older, TableSink};
use crate::compaction::writer::{MergeOutput, write_tables};
use crate::error::StorageError;
use crate::read::merge::{MergeCursor, RunTables};
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

/// How far a merge reads ahead in files that are not mapped, in bytes.
const READAHEAD_BYTES: u64 = 1 << 20;

/// The tables named by a plan, per run, newest run first.
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

/// Merges the plan's inputs into new tables, in the parts given by
/// [`cuts`](crate::compaction::parts::cuts). Returns `None` if cancelled. All or nothing: unless
/// every part completes, no output of any part remains.
///
/// # Invariant
///
/// The inputs are adjacent in age wherever they overlap: no table outside the plan is newer than
/// one input, older than another, and shares keys with both. The policies guarantee this; debug
/// builds check it.
pub(crate) fn merge(
    version: &Version,
    plan: &Plan,
    sink: &TableSink<'_>,
    cuts: &[KeyBytes],
    helpers: &Helpers,
) -> Result<Option<MergeOutput>, StorageError> {
    let runs = input_tables(version, plan);
    let inputs: Vec<Arc<OpenTable>> = runs.iter().flatten().cloned().collect();
    debug_assert!(neighbours_in_age(version, &inputs), "a plan skips a run between its inputs: {plan:?}");
    let tombstones = inputs.iter().filter_map(|table| table.tombstones.as_deref());
    let tombstones = Tombstones::merge_for(tombstones, &sink.readers());
    let merge = Merge { version, plan, runs, inputs, tombstones };
    let parts = PartRange::between(cuts);
    match &parts[..] {
        [all] => merge.part(all, sink),
        _ => merge.in_parts(&parts, sink, helpers),
    }
}

/// Threads that may help with merges, in addition to each job's own thread. All jobs of a database
/// share the pool. A job that finds no free helper merges its parts one after the other.
#[derive(Debug)]
pub(crate) struct Helpers {
    free: AtomicUsize,
}

impl Helpers {
    pub(crate) fn new(count: usize) -> Helpers {
        Helpers { free: AtomicUsize::new(count) }
    }

    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.free.load(Relaxed)
    }

    /// Takes up to `wanted` helpers. The counter guards no other memory.
    fn take(&self, wanted: usize) -> TakenHelpers<'_> {
        let take = |free: usize| Some(free - free.min(wanted));
        let before = self.free.fetch_update(Relaxed, Relaxed, take).expect("always some");
        TakenHelpers { of: self, count: before.min(wanted) }
    }
}

struct TakenHelpers<'h> {
    of: &'h Helpers,
    count: usize,
}

impl Drop for TakenHelpers<'_> {
    fn drop(&mut self) {
        self.of.free.fetch_add(self.count, Relaxed);
    }
}

/// Passes the job's control on to each of its parts, and stops the parts once one of them has
/// failed.
struct Together<'c> {
    whole: &'c dyn JobControl,
    /// Set once and never cleared; orders no other memory.
    failed: &'c AtomicBool,
}

impl JobControl for Together<'_> {
    fn go_on(&self, written: u64) -> bool {
        !self.failed.load(Relaxed) && self.whole.go_on(written) && !self.failed.load(Relaxed)
    }
}

/// Stops the other parts if this one panics.
struct TellOfPanic<'f>(&'f AtomicBool);

impl Drop for TellOfPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Relaxed);
        }
    }
}

type PartResult = Result<Option<MergeOutput>, StorageError>;

/// The state shared by all parts of a merge.
struct Merge<'m> {
    version: &'m Version,
    plan: &'m Plan,
    /// Per run, newest first.
    runs: Vec<Vec<Arc<OpenTable>>>,
    inputs: Vec<Arc<OpenTable>>,
    /// The range tombstones of all inputs, as far as readers can tell them apart.
    tombstones: Tombstones,
}

impl Merge<'_> {
    fn part(&self, part: &PartRange, sink: &TableSink<'_>) -> PartResult {
        let mut older = OlderTables::of(self.version, &self.inputs, part);
        let in_part = |run: &Vec<Arc<OpenTable>>| -> Vec<_> {
            run.iter().filter(|t| part.overlaps(&t.meta)).cloned().collect()
        };
        let runs: Vec<Vec<Arc<OpenTable>>> = self.runs.iter().map(in_part).collect();
        let options = CursorOptions { fill_cache: false, read_ahead: READAHEAD_BYTES };
        let tables = RunTables::List(runs.concat());
        let mut cursor = MergeCursor::new(tables, options, runs.len());
        cursor.set_bounds(&part.start, part.end.as_deref());
        let mut first = 0;
        for run in &runs {
            cursor.add_run(first..first + run.len());
            first += run.len();
        }
        let tombstones = self.tombstones.clip(&part.start, part.end.as_deref());
        let epochs = |smallest: &KeyBytes, largest: &KeyEnd| {
            let maps: Vec<_> =
                self.inputs.iter().map(|t| (&t.meta.epochs, &t.meta.smallest[..], &t.meta.largest)).collect();
            let merged = EpochMap::merge(&maps, smallest, largest);
            if self.plan.bottommost { merged.reaching_down() } else { merged }
        };
        write_tables(sink, &mut cursor, tombstones, &mut older, &epochs)
    }

    /// The calling thread and its helpers each take the next unclaimed part until none is left.
    fn in_parts(&self, parts: &[PartRange], sink: &TableSink<'_>, helpers: &Helpers) -> PartResult {
        let failed = AtomicBool::new(false);
        let control = Together { whole: sink.control, failed: &failed };
        let part_sink = TableSink { control: &control, ..*sink };
        let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            let _tell = TellOfPanic(&failed);
            loop {
                let number = next.fetch_add(1, Relaxed);
                let Some(part) = parts.get(number).filter(|_| !failed.load(Relaxed)) else { return };
                let result = self.part(part, &part_sink);
                if !matches!(result, Ok(Some(_))) {
                    failed.store(true, Relaxed);
                }
                results.lock().push((number, result));
            }
        };
        let helping = helpers.take(parts.len() - 1);
        let panicked = thread::scope(|scope| {
            let start = |i| {
                // Failing to spawn a thread costs only speed.
                scope.spawn(format!("tamis-merge-{i}"), work).ok()
            };
            let started: Vec<_> = (0..helping.count).filter_map(start).collect();
            let own = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let others = started.into_iter().map(|thread| thread.join());
            others.fold(own.err(), |panic, other| panic.or(other.err()))
        });
        drop(helping);

        let mut results = results.into_inner();
        results.sort_by_key(|(number, _)| *number);
        let whole = panicked.is_none() && !failed.load(Relaxed);
        let (mut output, mut error) = (MergeOutput::new(sink), None::<StorageError>);
        for (_, result) in results {
            match result {
                Ok(Some(part)) => {
                    output.written_bytes += part.written_bytes;
                    output.blob_bytes += part.blob_bytes;
                    output.files.append(part.files);
                    output.tables.extend(part.tables);
                    output.sums.extend(part.sums);
                }
                Ok(None) => {}
                // A full disk is the mildest error; any other one replaces it.
                Err(e) if error.as_ref().is_none_or(|known| known.is_out_of_space()) => error = Some(e),
                Err(_) => {}
            }
        }
        if whole {
            return Ok(Some(output));
        }
        if let Some(panic) = panicked {
            std::panic::resume_unwind(panic);
        }
        error.map_or(Ok(None), Err)
    }
}

/// The tables that are older than a merge's inputs and overlap one of its parts: they may hold
/// older versions.
struct OlderTables {
    /// Per run: the tables that overlap the merge, and the position that the ascending lookups have
    /// reached.
    runs: Vec<(Vec<Arc<OpenTable>>, usize)>,
}

impl OlderTables {
    fn of(version: &Version, inputs: &[Arc<OpenTable>], part: &PartRange) -> Self {
        let ids: HashSet<TableId> = inputs.iter().map(|t| t.meta.id).collect();
        let is_input = |t: &Arc<OpenTable>| ids.contains(&t.meta.id);
        // Runs are listed newest first, so everything older than all inputs comes after the first
        // run that has one.
        let newest =
            version.runs.iter().position(|run| version.tables[run.tables.clone()].iter().any(is_input));
        let runs = version.runs[newest.unwrap_or(0)..].iter().map(|run| {
            let overlapping = version.tables[run.tables.clone()]
                .iter()
                .filter(|t| !is_input(t) && part.overlaps(&t.meta))
                .filter(|t| inputs.iter().any(|i| i.meta.overlaps(&t.meta)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_merges_together_share_one_pool_of_helpers() {
        let helpers = Helpers::new(3);
        let first = helpers.take(2);
        let second = helpers.take(2);
        assert_eq!((first.count, second.count, helpers.take(5).count), (2, 1, 0));
        drop(first);
        assert_eq!(helpers.take(5).count, 2);
        drop(second);
        assert_eq!(helpers.take(5).count, 3);
    }
}
