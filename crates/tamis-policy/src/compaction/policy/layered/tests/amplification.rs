//! Bytes written by the default policy while a database is loaded and overwritten, at the sizes of
//! real ones, in simulated time: flushes arrive at a steady rate and merges share the rate of the
//! device, so that runs wait in level 0 as they do beside a writer that does not wait for
//! compaction.
//!
//! `cargo test -p tamis-policy amplification -- --nocapture` prints the measurements.

use super::shapes_only::Sizes;
use super::*;
use crate::compaction::plan::Work;
use crate::compaction::shape::RunningJob;

/// Bytes of a put (a key of 8 and a value of 256), and of its entry in a table, filter and index
/// included.
const PUT: f64 = 264.0;
const STORED: f64 = 273.0;
/// The keys that fill a memtable of 64 MiB.
const FLUSH_KEYS: f64 = 217_000.0;
/// The log's bytes for each byte put.
const LOG: f64 = 1.06;

/// A simulated byte is an [`ENTRY`]th of an entry.
fn scaled(bytes: f64) -> u64 {
    (bytes * ENTRY as f64 / STORED) as u64
}

/// A tree whose merges take time.
struct Timed {
    sizes: Sizes,
    /// Running merges, and the bytes that each has still to write and has written.
    jobs: Vec<(Plan, f64, f64)>,
    /// Seconds.
    clock: f64,
    /// Real bytes a second of puts, and of all merges together.
    put_rate: f64,
    merge_rate: f64,
    /// The greatest number of runs that a read met, and its average over flushes.
    most_runs: usize,
    runs: f64,
    flushes: f64,
    /// The most bytes of tables, those being written included.
    most_bytes: f64,
}

const THREADS: usize = 2;

impl Timed {
    fn new(policy: Layered, keys: f64, put_rate: f64, merge_rate: f64) -> Timed {
        let mut sizes = Sizes::new(policy, keys);
        sizes.flush_keys = FLUSH_KEYS;
        sizes.distinct = true;
        Timed {
            sizes,
            jobs: Vec::new(),
            clock: 1e9,
            put_rate,
            merge_rate,
            most_runs: 0,
            runs: 0.0,
            flushes: 0.0,
            most_bytes: 0.0,
        }
    }

    fn start(&mut self) {
        while self.jobs.len() < THREADS {
            let Some(plan) = self.sizes.policy.plan(&self.sizes.shape) else { return };
            if plan.work == Work::Move {
                self.sizes.apply(&plan);
                continue;
            }
            let named: HashSet<TableId> = plan.tables().collect();
            let mut bytes = 0;
            let shape = &mut self.sizes.shape;
            for table in
                shape.levels.iter_mut().flat_map(|level| &mut level.runs).flat_map(|run| &mut run.tables)
            {
                if named.contains(&table.id()) {
                    (table.busy, table.free) = (true, false);
                    bytes += table.bytes();
                }
            }
            let levels = || plan.inputs.iter().map(|input| input.level);
            shape.running.push(RunningJob {
                input_levels: (levels().min().unwrap(), levels().max().unwrap()),
                output_level: plan.output_level,
                output: plan.output,
                range: plan.range.clone(),
            });
            self.jobs.push((plan, bytes as f64, 0.0));
        }
    }

    /// Lets `seconds` pass, or the time until a merge ends if that is less; returns what is left.
    fn pass(&mut self, seconds: f64) -> f64 {
        self.start();
        let rate = self.merge_rate * ENTRY as f64 / STORED / self.jobs.len().max(1) as f64;
        let next = self.jobs.iter().map(|job| job.1 / rate).fold(seconds, f64::min);
        self.clock += next;
        self.sizes.shape.now = self.clock as u64;
        for job in &mut self.jobs {
            (job.1, job.2) = (job.1 - next * rate, job.2 + next * rate);
        }
        self.most_bytes = self.most_bytes.max(self.bytes());
        if let Some(i) = self.jobs.iter().position(|job| job.1 <= 1.0) {
            let (plan, ..) = self.jobs.remove(i);
            self.sizes.shape.running.remove(i);
            self.sizes.apply(&plan);
        }
        seconds - next
    }

    fn bytes(&self) -> f64 {
        self.sizes.total as f64 + self.jobs.iter().map(|job| job.2).sum::<f64>()
    }

    fn write(&mut self, keys: f64) {
        for _ in 0..(keys / FLUSH_KEYS).round() as usize {
            let mut left = FLUSH_KEYS * PUT / self.put_rate;
            while left > 0.0 {
                left = match self.sizes.policy.write_pressure(&self.sizes.shape) {
                    Pressure::None => self.pass(left),
                    Pressure::Slowdown(severity) => self.pass(left * (1.0 + severity)) / (1.0 + severity),
                    Pressure::Stop => {
                        self.pass(left);
                        left
                    }
                };
            }
            self.sizes.flush();
            let runs = self.sizes.shape.levels.iter().map(|level| level.runs.len()).sum::<usize>();
            self.most_runs = self.most_runs.max(runs);
            self.runs += runs as f64;
            self.flushes += 1.0;
        }
    }

    fn settle(&mut self) {
        loop {
            self.sizes.shape.settling = true;
            self.start();
            if self.jobs.is_empty() {
                self.sizes.shape.settling = false;
                return;
            }
            self.pass(1.0);
        }
    }

    /// Returns the write amplification since `from`, log included, and takes it as the new start.
    fn amplification(&mut self, from: &mut (u64, u64)) -> f64 {
        let (flushed, written) = (self.sizes.flushed - from.0, self.sizes.written - from.1);
        *from = (self.sizes.flushed, self.sizes.written);
        LOG + written as f64 / flushed as f64 * STORED / PUT
    }
}

fn default_policy() -> Layered {
    let settings = Settings::default();
    let scaled = |bytes: u64| scaled(bytes as f64);
    Layered {
        base_bytes: scaled(settings.memtable_bytes * settings.level0_runs as u64),
        table_bytes: scaled(settings.table_bytes),
        slowdown_debt: scaled(settings.slowdown_debt_bytes),
        stop_debt: scaled(settings.stop_debt_bytes),
        ..Layered::new(&settings)
    }
}

/// What a load of distinct keys in random order, and random overwrites of all of them three times,
/// cost.
#[derive(Debug)]
#[expect(dead_code, reason = "printed")]
struct Figures {
    /// Bytes written by bytes put, log included.
    load: f64,
    overwrites: f64,
    /// Runs once the load has settled; the most at a flush, and on average, during the load and
    /// during the overwrites.
    settled_runs: usize,
    most_runs: (usize, usize),
    mean_runs: (f64, f64),
    /// The most bytes of tables during the load, by bytes of data at its end.
    most_space: f64,
}

fn measure(policy: Layered, millions: f64, merge_rate: f64) -> Figures {
    let keys = millions * 1e6;
    let mut tree = Timed::new(policy, keys, 60e6, merge_rate);
    let mut from = (0, 0);
    tree.write(keys);
    let most_space = tree.most_bytes / (keys * ENTRY as f64);
    tree.settle();
    let settled_runs = tree.sizes.shape.levels.iter().map(|level| level.runs.len()).sum();
    let load = tree.amplification(&mut from);
    let loading = (tree.most_runs, tree.runs / tree.flushes);
    (tree.most_runs, tree.runs, tree.flushes) = (0, 0.0, 0.0);
    tree.sizes.distinct = false;
    // The first of them meet a tree that distinct keys left.
    tree.write(keys);
    tree.amplification(&mut from);
    tree.write(2.0 * keys);
    let overwrites = tree.amplification(&mut from);
    Figures {
        load,
        overwrites,
        settled_runs,
        most_runs: (loading.0, tree.most_runs),
        mean_runs: (loading.1, tree.runs / tree.flushes),
        most_space,
    }
}

/// Bounds are what was simulated when this test was written, plus three percent.
#[test]
fn loads_and_overwrites_write_little_while_level_0_collects() {
    for (millions, load, overwrites) in [(4.0, 3.58, 4.62), (8.0, 5.10, 6.04), (20.0, 6.68, 8.44)] {
        let collecting = default_policy();
        let at_once = Layered { batch_runs: collecting.level0_runs, ..default_policy() };
        let slowly = measure(collecting.clone(), millions, 250e6);
        let with = measure(collecting, millions, 500e6);
        let without = measure(at_once, millions, 500e6);
        #[expect(clippy::print_stdout, reason = "measurements, visible with --nocapture")]
        {
            println!("{millions} million keys, merges of 250 MB/s: {slowly:.2?}");
            println!("{millions} million keys, merges of 500 MB/s: {with:.2?}");
            println!("{millions} million keys, merges of 500 MB/s, level 0 merged at once: {without:.2?}");
        }
        assert!(with.load <= load && with.overwrites <= overwrites, "{millions}: {with:?}");
        assert!(slowly.load <= load, "{millions}: {slowly:?}");
        assert!(
            with.load < 0.95 * without.load && with.overwrites < 0.95 * without.overwrites,
            "{without:?}"
        );
        assert!(with.settled_runs <= 5, "{millions}: {with:?}");
    }
}
