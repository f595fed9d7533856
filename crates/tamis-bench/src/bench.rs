//! `tamis bench`: runs workloads on one database, one after the other.
//!
//! An empty database is filled first unless a fill is listed. After every workload that writes,
//! memtables are flushed and (settled) compaction runs until idle; unsettled, compaction is off
//! throughout, so that every flushed memtable remains a separate run.

use std::path::PathBuf;
use std::time::Instant;

use tamis::stats::Stats;
use tamis::{Db, Options};
use tempfile::TempDir;

use crate::compact;
use crate::error::BenchError;
use crate::keys::KeySet;
use crate::measure::{Labels, Measurement};
use crate::pattern::{Pattern, PatternSpec};
use crate::progress::Progress;
use crate::report::grouped;
use crate::run::{Fill, RunSpec, run};
use crate::value::ValueSizes;
use crate::workload::Workload;

/// The default maximum of measured reads.
pub const DEFAULT_READS: u64 = 1_000_000;

/// The number of runs at which writes slow down while compaction is off: more than ever accumulate.
pub(crate) const MANY_RUNS: usize = 1 << 20;

/// The configuration of a benchmark.
#[derive(Clone, Debug)]
pub struct BenchConfig {
    /// The name in the measurements.
    pub experiment: String,
    /// The workloads in order.
    pub workloads: Vec<Workload>,
    /// The keys.
    pub keys: KeySet,
    /// The sizes of values in bytes.
    pub value_bytes: ValueSizes,
    /// The number of concurrent threads.
    pub threads: usize,
    /// Operations per workload other than fills; by default the number of keys, at most
    /// [`DEFAULT_READS`].
    pub ops: Option<u64>,
    /// Unmeasured operations before each read-only workload; by default a tenth of its operations.
    pub warmup: Option<u64>,
    /// The number of runs of each workload other than fills; the median is reported.
    pub repeats: u32,
    /// The distribution of accessed keys in place of the workloads', for
    /// [ordered](KeySet::is_ordered) keys.
    pub pattern: Option<PatternSpec>,
    /// The seed of every random choice.
    pub seed: u64,
    /// Whether compaction is idle before reads start; otherwise it is off.
    pub settled: bool,
    /// The database's options; `settled` turns compaction on or off.
    pub options: Options,
    /// The database's directory; `None` for a temporary one, removed at the end.
    pub dir: Option<PathBuf>,
}

/// Makes a directory that is removed at the end.
pub(crate) fn temporary_dir() -> Result<TempDir, BenchError> {
    let made = tempfile::Builder::new().prefix("tamis-bench-").tempdir();
    let path = std::env::temp_dir();
    made.map_err(|source| BenchError::Io { operation: "make a directory in", path, source })
}

/// An open database and its benchmark configuration.
pub struct Bench<'a> {
    config: BenchConfig,
    /// The keys in the database.
    fill: Fill,
    pattern: Option<Pattern>,
    db: Db,
    progress: &'a dyn Progress,
    // Dropped after the database.
    _temporary: Option<TempDir>,
}

impl<'a> Bench<'a> {
    /// Opens or creates the database.
    pub fn open(mut config: BenchConfig, progress: &'a dyn Progress) -> Result<Self, BenchError> {
        let pattern = config.pattern.map(|spec| match config.keys.is_ordered() {
            true => Pattern::new(config.keys.len(), spec, config.seed),
            false => Err(BenchError::Request(
                "--skew, --absent and --locality need keys whose order is known: add --key-set sequential"
                    .to_owned(),
            )),
        });
        let pattern = pattern.transpose()?;
        config.options.create_if_missing = true;
        config.options.keyspace.auto_compaction = config.settled;
        if !config.settled {
            config.options.keyspace.slowdown_runs = MANY_RUNS;
            config.options.keyspace.stop_runs = MANY_RUNS;
        }
        let (dir, temporary) = match &config.dir {
            Some(dir) => (dir.clone(), None),
            None => {
                let made = temporary_dir()?;
                (made.path().join("db"), Some(made))
            }
        };
        let db = config.options.clone().open(dir)?;
        let fill = Fill::random(&config.keys, config.seed);
        Ok(Bench { config, fill, pattern, db, progress, _temporary: temporary })
    }

    /// Runs all workloads; `done` is called with each measurement as soon as it is complete.
    pub fn run<E: From<BenchError>>(
        self,
        mut done: impl FnMut(&Measurement) -> Result<(), E>,
    ) -> Result<Vec<Measurement>, E> {
        let mut measurements = Vec::new();
        let workloads = &self.config.workloads;
        if workloads.iter().any(|w| w.is_run()) && !workloads.iter().any(|w| w.is_fill()) {
            self.fill_if_empty()?;
        }
        for &workload in &self.config.workloads {
            let measurement = self.measure(workload)?;
            done(&measurement)?;
            measurements.push(measurement);
        }
        self.db.close().map_err(BenchError::from)?;
        Ok(measurements)
    }

    /// Returns the measured database.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Sets the number of operations of subsequent workloads, except fills.
    pub fn set_ops(&mut self, ops: Option<u64>) {
        self.config.ops = ops;
    }

    /// Sets the number of threads of subsequent workloads.
    pub fn set_threads(&mut self, threads: usize) {
        self.config.threads = threads;
    }

    /// Declares which keys the caller has put into the database, and in which order.
    pub fn set_fill(&mut self, fill: Fill) {
        self.fill = fill;
    }

    /// Returns the keys in the database and their fill order.
    pub fn fill(&self) -> &Fill {
        &self.fill
    }

    /// Closes the database.
    ///
    /// # Errors
    ///
    /// Fails if the database could not be closed cleanly.
    pub fn close(self) -> Result<(), BenchError> {
        Ok(self.db.close()?)
    }

    fn fill_if_empty(&self) -> Result<(), BenchError> {
        if self.db.iter().next().transpose()?.is_some() {
            return self.settle().map(|_| ());
        }
        let m = self.measure(Workload::FillRandom)?;
        self.progress.note(&format!(
            "filled the database with {} keys first: {} ns/op, write amplification {:.1}",
            grouped(m.keys),
            grouped(m.ns_per_op.round() as u64),
            m.write_amplification
        ));
        Ok(())
    }

    fn measure(&self, workload: Workload) -> Result<Measurement, BenchError> {
        let repeats = if workload.is_fill() { 1 } else { self.config.repeats.max(1) };
        let mut runs = Vec::new();
        for repeat in 0..repeats {
            runs.push(self.measure_once(workload, u64::from(repeat))?);
        }
        Ok(Measurement::median(runs).expect("at least one run"))
    }

    /// Runs a workload once, as the `repeat`-th of several runs with independent random draws.
    ///
    /// # Errors
    ///
    /// Fails if the database fails or returns a wrong answer.
    pub fn measure_once(&self, workload: Workload, repeat: u64) -> Result<Measurement, BenchError> {
        let config = &self.config;
        if workload == Workload::Compact {
            let labels = Labels { threads: 1, settled: false, ..self.labels(workload) };
            let input = (&config.keys, config.value_bytes);
            let seed = config.seed.wrapping_add(repeat);
            return compact::measure(labels, input, &config.options, seed, self.progress);
        }
        let ops = config.ops.unwrap_or_else(|| config.keys.len().min(DEFAULT_READS)).max(1);
        let mut spec = RunSpec {
            workload,
            keys: &config.keys,
            value_bytes: config.value_bytes,
            threads: config.threads,
            ops,
            seed: config.seed.wrapping_add(1 + 2 * repeat),
            fill: self.fill.clone(),
            pattern: self.pattern.as_ref(),
            progress: self.progress,
        };
        let warmup = if repeat > 0 { 0 } else { config.warmup.unwrap_or(ops / 10) };
        if !workload.writes() && warmup > 0 {
            let seed = spec.seed.wrapping_sub(1);
            run(&self.db, &RunSpec { ops: warmup, seed, ..spec.clone() })?;
        }
        if workload.is_fill() {
            spec.seed = config.seed;
        }
        let before = self.db.stats();
        let timing = run(&self.db, &spec)?;
        let mut measurement = Measurement::new(self.labels(workload), &timing, &before, &self.db);
        if workload.writes() {
            let (settle_ms, after) = self.settle()?;
            measurement.settle_ms = settle_ms;
            measurement.set_tree(&after);
        }
        Ok(measurement)
    }

    /// Flushes, and waits until compaction is idle if it is on. Returns the milliseconds taken and
    /// the tree's statistics.
    fn settle(&self) -> Result<(u64, Stats), BenchError> {
        let start = Instant::now();
        self.progress.begin(if self.config.settled { "flush and compact" } else { "flush" }, 0, "");
        self.db.flush()?;
        if self.config.settled {
            self.db.wait_for_compaction()?;
        }
        self.db.wait_for_filters()?;
        self.progress.end();
        Ok((start.elapsed().as_millis() as u64, self.db.stats()))
    }

    fn labels(&self, workload: Workload) -> Labels {
        Labels {
            experiment: self.config.experiment.clone(),
            workload: workload.name().to_owned(),
            key_set: self.config.keys.name().to_owned(),
            keys: self.config.keys.len(),
            key_bytes: self.config.keys.key_bytes(),
            value_bytes: self.config.value_bytes.mean(),
            threads: self.config.threads.max(1),
            settled: self.config.settled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::NoProgress;

    fn config(workloads: &[Workload], keys: KeySet) -> BenchConfig {
        BenchConfig {
            experiment: "test".into(),
            workloads: workloads.to_vec(),
            keys,
            value_bytes: 40.into(),
            threads: 2,
            ops: Some(3000),
            warmup: None,
            repeats: 2,
            pattern: None,
            seed: 7,
            settled: true,
            options: Options::default(),
            dir: None,
        }
    }

    fn run_all(config: BenchConfig) -> Result<Vec<Measurement>, BenchError> {
        Bench::open(config, &NoProgress)?.run(|_| Ok::<(), BenchError>(()))
    }

    #[test]
    fn every_workload_runs_with_correct_answers() {
        for keys in [KeySet::uniform(5000, 8, 1).unwrap(), KeySet::sequential(5000, 16).unwrap()] {
            let measurements = run_all(config(&Workload::ALL, keys)).unwrap();
            assert_eq!(measurements.len(), Workload::ALL.len());
            for m in measurements {
                let fill = m.workload.starts_with("fill");
                let whole = fill || m.workload == "compact";
                let expected = if whole { 5000..=5000 } else { 3000..=3064 };
                assert!(expected.contains(&m.ops), "{m:?}");
                assert!(m.ns_per_op > 0.0 && m.p50_ns <= m.p99_ns && m.repeats == if fill { 1 } else { 2 });
            }
        }
    }

    #[test]
    fn every_workload_runs_with_mixed_values_and_correct_answers() {
        for keys in [KeySet::uniform(4000, 8, 1).unwrap(), KeySet::sequential(4000, 16).unwrap()] {
            let config = BenchConfig { value_bytes: ValueSizes::Pareto, ..config(&Workload::ALL, keys) };
            let measurements = run_all(config).unwrap();
            assert_eq!(measurements.len(), Workload::ALL.len());
            for m in measurements {
                assert_eq!(m.value_bytes, ValueSizes::Pareto.mean().round() as u64, "{}", m.workload);
            }
        }
    }

    #[test]
    fn gets_take_one_digest_each() {
        let reads = [Workload::GetEmpty, Workload::GetExisting, Workload::GetZipf, Workload::MultiGet];
        for m in run_all(config(&reads, KeySet::uniform(2000, 8, 1).unwrap())).unwrap() {
            assert_eq!(m.digests_per_op, 1.0, "{}", m.workload);
        }
    }

    #[test]
    fn a_pattern_decides_which_keys_are_asked_for() {
        let pattern = Some(PatternSpec { skew: 0.99, absent_percent: 60, locality: 64 });
        let with =
            |keys| BenchConfig { pattern, ..config(&[Workload::GetZipf, Workload::GetExisting], keys) };
        for m in run_all(with(KeySet::sequential(4000, 16).unwrap())).unwrap() {
            // A get of a present key reads a block, another one hardly ever.
            assert!((0.34..0.50).contains(&m.block_reads_per_op), "{m:?}");
        }
        let refused = run_all(with(KeySet::uniform(4000, 8, 1).unwrap())).unwrap_err().to_string();
        assert!(refused.contains("--key-set sequential"), "{refused}");
    }

    #[test]
    fn a_missing_key_or_a_wrong_value_ends_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let db_dir = dir.path().join("db");
        let at = |workloads: &[Workload], seed, value_bytes: ValueSizes| {
            let keys = KeySet::uniform(500, 8, seed).unwrap();
            run_all(BenchConfig { dir: Some(db_dir.clone()), value_bytes, ..config(workloads, keys) })
        };
        at(&[Workload::FillRandom], 1, 40.into()).unwrap();
        assert!(at(&[Workload::GetExisting, Workload::SeekNext50], 1, 40.into()).is_ok());
        for workload in [Workload::GetExisting, Workload::MultiGet, Workload::Seek, Workload::Mixgraph] {
            assert!(at(&[workload], 2, 40.into()).unwrap_err().is_wrong_answer(), "{workload}: other keys");
            assert!(at(&[workload], 1, 41.into()).unwrap_err().is_wrong_answer(), "{workload}: other values");
            let mixed = at(&[workload], 1, ValueSizes::Pareto);
            assert!(mixed.unwrap_err().is_wrong_answer(), "{workload}: other lengths");
        }
        let db = Db::open(&db_dir).unwrap();
        let mut key = Vec::new();
        for i in 0..500 {
            key.clear();
            KeySet::uniform(500, 8, 1).unwrap().existing(i, &mut key);
            key[7] = key[7].wrapping_add(1); // a neighbour that was never loaded
            db.put(&key, b"stray").unwrap();
        }
        db.close().unwrap();
        assert!(at(&[Workload::RangeEmpty], 1, 40.into()).unwrap_err().is_wrong_answer());
    }
}
