//! Compares shapes of the tree under the same load and reads.
//!
//! Every shape gets its own database. Each is filled with all keys in random order and then
//! receives as many overwrites, so that merges have something to drop; load time counts until
//! compaction is idle. Then the reads visit all databases in turn, so that a slow minute of the
//! machine affects all of them, and each figure is the median of the rounds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tamis::options::{CompactionChoice, MergeGranularity};
use tamis::{Db, Options};

use crate::bench::{Bench, BenchConfig};
use crate::error::BenchError;
use crate::measure::{Measurement, ratio};
use crate::progress::Progress;
use crate::report::{Align, Table, mean};
use crate::workload::Workload;

/// The read workloads, in the order of the columns.
const READS: [Workload; 4] =
    [Workload::GetEmpty, Workload::GetExisting, Workload::Seek, Workload::SeekNext50];

/// A shape of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapeChoice {
    /// The compaction policy.
    pub compaction: CompactionChoice,
    /// The granularity of a merge.
    pub merge: MergeGranularity,
    /// The size ratio between adjacent levels; also the number of runs that level 0 collects.
    pub size_ratio: u64,
}

impl ShapeChoice {
    /// Returns all combinations that the engine accepts. A policy without a size ratio (`fifo`) is
    /// included once.
    pub fn grid(
        compactions: &[CompactionChoice],
        merges: &[MergeGranularity],
        ratios: &[u64],
    ) -> Vec<ShapeChoice> {
        let mut grid = Vec::new();
        for &compaction in compactions {
            let own_way = matches!(
                compaction,
                CompactionChoice::Tiering
                    | CompactionChoice::Fragmented
                    | CompactionChoice::Fifo
                    | CompactionChoice::TimeWindow
            );
            let merges = if own_way { &[MergeGranularity::Auto][..] } else { merges };
            let ratios = if compaction == CompactionChoice::Fifo { &ratios[..1] } else { ratios };
            for &size_ratio in ratios {
                grid.extend(merges.iter().map(|&merge| ShapeChoice { compaction, merge, size_ratio }));
            }
        }
        grid
    }

    /// Sets the options of this shape.
    pub fn apply(&self, options: &mut Options) {
        let keyspace = &mut options.keyspace;
        // The shape left by the writes is measured.
        keyspace.read_compaction = false;
        keyspace.compaction = self.compaction;
        keyspace.merge = self.merge;
        keyspace.size_ratio = self.size_ratio.into();
        keyspace.level0_runs = usize::try_from(self.size_ratio).unwrap_or(usize::MAX);
        keyspace.slowdown_runs = keyspace.slowdown_runs.max(keyspace.level0_runs.saturating_mul(3));
        keyspace.stop_runs = keyspace.stop_runs.max(keyspace.slowdown_runs.saturating_mul(2));
    }
}

/// The cost of one shape. Times are nanoseconds per operation, the median of the rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShapeRow {
    /// The compaction policy.
    pub compaction: String,
    /// The granularity of a merge.
    pub merge: String,
    /// The size ratio.
    pub size_ratio: u64,
    /// Bytes written to tables per byte of keys and values written.
    pub write_amplification: f64,
    /// Bytes of the tables per byte of live keys and values, with no compaction due.
    pub space_amplification: f64,
    /// Its maximum during the load, including tables being written; sampled.
    pub peak_space_amplification: f64,
    /// Sorted runs.
    pub runs: usize,
    /// Levels that hold a run.
    pub levels: usize,
    /// Time of a write, including its share of the final wait for compaction.
    pub load_ns: f64,
    /// Milliseconds that writers were slowed down or stopped.
    pub stall_ms: u64,
    /// Get of an absent key.
    pub get_empty_ns: f64,
    /// Filters probed by it.
    pub get_empty_filters: f64,
    /// Get of an existing key.
    pub get_existing_ns: f64,
    /// Blocks read by it.
    pub get_existing_blocks: f64,
    /// Seek of an existing key.
    pub seek_ns: f64,
    /// Seek and the next fifty entries.
    pub scan_ns: f64,
}

/// A database under one shape, loaded.
struct Loaded<'a> {
    bench: Bench<'a>,
    row: ShapeRow,
    reads: [Vec<Measurement>; READS.len()],
}

/// Loads and reads under every shape of `grid`; `base` has the other settings, with `base.repeats`
/// rounds.
pub fn compare(
    base: &BenchConfig,
    grid: &[ShapeChoice],
    progress: &dyn Progress,
) -> Result<Vec<ShapeRow>, BenchError> {
    let mut loaded = Vec::new();
    for (i, shape) in grid.iter().enumerate() {
        progress.note(&format!(
            "{} of {}: {}, {:?}, T = {}",
            i + 1,
            grid.len(),
            shape.compaction,
            shape.merge,
            shape.size_ratio
        ));
        loaded.push(Loaded::new(base, *shape, progress)?);
    }
    for round in 0..base.repeats.max(1) {
        for shape in &mut loaded {
            for (workload, kept) in READS.iter().zip(&mut shape.reads) {
                kept.push(shape.bench.measure_once(*workload, u64::from(round))?);
            }
        }
    }
    loaded.into_iter().map(Loaded::finish).collect()
}

impl<'a> Loaded<'a> {
    fn new(base: &BenchConfig, shape: ShapeChoice, progress: &'a dyn Progress) -> Result<Self, BenchError> {
        let mut config = base.clone();
        shape.apply(&mut config.options);
        config.settled = true;
        config.ops = Some(config.keys.len());
        let live_bytes = config.keys.len() as f64 * (config.keys.key_bytes() + config.value_bytes.mean());
        let mut bench = Bench::open(config, progress)?;
        let (fill, overwrite, peak) = with_peak(bench.db(), || {
            Ok::<_, BenchError>((
                bench.measure_once(Workload::FillRandom, 0)?,
                bench.measure_once(Workload::Overwrite, 0)?,
            ))
        })?;
        bench.set_ops(base.ops);
        let stats = bench.db().stats();
        let tree = &stats.keyspaces[0];
        let write = &stats.write;
        let total_ns = |m: &Measurement| m.ns_per_op * m.ops as f64 + m.settle_ms as f64 * 1e6;
        let row = ShapeRow {
            compaction: shape.compaction.to_string(),
            merge: crate::measure::option_text(bench.db().options(), "keyspace.merge"),
            size_ratio: shape.size_ratio,
            write_amplification: ratio(write.flush_bytes + write.compaction_write_bytes, write.user_bytes),
            space_amplification: tree.table_bytes as f64 / live_bytes,
            peak_space_amplification: peak.max(tree.table_bytes) as f64 / live_bytes,
            runs: tree.runs,
            levels: tree.levels.iter().filter(|level| !level.runs.is_empty()).count(),
            load_ns: (total_ns(&fill) + total_ns(&overwrite)) / (fill.ops + overwrite.ops) as f64,
            stall_ms: fill.stall_ms + overwrite.stall_ms,
            ..ShapeRow::default()
        };
        Ok(Loaded { bench, row, reads: Default::default() })
    }

    fn finish(self) -> Result<ShapeRow, BenchError> {
        let Loaded { bench, mut row, reads } = self;
        let [empty, existing, seek, scan] = reads.map(|runs| Measurement::median(runs).unwrap_or_default());
        (row.get_empty_ns, row.get_empty_filters) = (empty.ns_per_op, empty.filter_probes_per_op);
        (row.get_existing_ns, row.get_existing_blocks) = (existing.ns_per_op, existing.block_reads_per_op);
        (row.seek_ns, row.scan_ns) = (seek.ns_per_op, scan.ns_per_op);
        bench.close()?;
        Ok(row)
    }
}

/// Runs `work` and returns its results and the peak size of the tables meanwhile, in bytes.
fn with_peak<A, B, E: Send>(db: &Db, work: impl FnOnce() -> Result<(A, B), E>) -> Result<(A, B, u64), E> {
    let (done, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                let stats = db.stats();
                let tables: u64 = stats.keyspaces.iter().map(|keyspace| keyspace.table_bytes).sum();
                let coming: u64 = stats.jobs.iter().map(|job| job.bytes_written).sum();
                peak.fetch_max(tables + coming, Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        // The watcher must end even if the work panics.
        let _done = SetWhenDropped(&done);
        work()
    })
    .map(|(a, b)| (a, b, peak.load(Relaxed)))
}

struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Returns the rows as a readable table.
pub fn shapes_table(rows: &[ShapeRow]) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("compaction", Left),
        ("merge", Left),
        ("T", Right),
        ("write\namplif.", Right),
        ("space\namplif.", Right),
        ("peak\nspace", Right),
        ("runs", Right),
        ("load\nns/op", Right),
        ("empty get\nns", Right),
        ("filters\nasked", Right),
        ("existing\nget ns", Right),
        ("blocks\nread", Right),
        ("seek\nns", Right),
        ("seek+50\nns", Right),
    ]);
    for row in rows {
        let ns = |ns: f64| crate::report::grouped(ns.round() as u64);
        table.row([
            row.compaction.clone(),
            row.merge.clone(),
            row.size_ratio.to_string(),
            mean(row.write_amplification),
            mean(row.space_amplification),
            mean(row.peak_space_amplification),
            row.runs.to_string(),
            ns(row.load_ns),
            ns(row.get_empty_ns),
            mean(row.get_empty_filters),
            ns(row.get_existing_ns),
            mean(row.get_existing_blocks),
            ns(row.seek_ns),
            ns(row.scan_ns),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeySet;
    use crate::progress::NoProgress;

    #[test]
    fn the_grid_has_every_accepted_shape_once() {
        use CompactionChoice::*;
        let merges = [MergeGranularity::Full, MergeGranularity::Partial];
        let grid = ShapeChoice::grid(&[Leveling, Tiering, Fifo, Hybrid(2)], &merges, &[2, 4]);
        assert_eq!(grid.len(), 4 + 2 + 1 + 4);
        for shape in &grid {
            let mut options = Options::default();
            shape.apply(&mut options);
            options.check().unwrap();
        }
    }

    #[test]
    fn every_shape_is_loaded_and_read() {
        let config = BenchConfig {
            experiment: "shapes".into(),
            workloads: Vec::new(),
            keys: KeySet::uniform(3_000, 8, 1).unwrap(),
            value_bytes: 40.into(),
            threads: 1,
            ops: Some(500),
            warmup: Some(0),
            repeats: 2,
            pattern: None,
            seed: 1,
            settled: true,
            options: {
                let mut options = Options::default();
                options.keyspace.memtable_bytes = 16 << 10;
                options.keyspace.table_bytes = 16 << 10;
                options
            },
            dir: None,
        };
        let choices = [CompactionChoice::Leveling, CompactionChoice::Tiering];
        let grid = ShapeChoice::grid(&choices, &[MergeGranularity::Auto], &[4]);
        let rows = compare(&config, &grid, &NoProgress).unwrap();
        assert_eq!(rows.len(), 2);
        for row in &rows {
            assert!(row.write_amplification > 1.0 && row.space_amplification > 0.5, "{row:?}");
            assert!(row.peak_space_amplification >= row.space_amplification, "{row:?}");
            assert!(row.runs > 0 && row.get_empty_ns > 0.0 && row.scan_ns > row.seek_ns / 2.0, "{row:?}");
        }
        let table = shapes_table(&rows).render();
        assert!(table.contains("leveling") && table.contains("tiering"), "{table}");
    }
}
