//! The same load and the same reads under several filters, side by side: the figures of the GRF paper as commands.
//!
//! Every side has a database of its own, filled alike up to just before the merge into the last level
//! ([`load`]), when a read meets the most runs. Then the reads go round the databases in turns: a round asks one
//! workload of all sides, then the next, so that a slow minute of the machine slows all of them. Figures are medians of
//! the rounds, with the fastest and the slowest.
//!
//! * [`catalogue`]: the experiments, their defaults, and what the paper saw.
//! * [`side`]: a filter by its name.
//! * [`outcome`]: the figures as rows, tables and comma-separated text.
//!
//! Databases of one point of a sweep are open at once and removed before the next: their disk space is the number of
//! sides times the data. One thread loads; reads have as many threads as an experiment says.

pub mod catalogue;
pub mod load;
pub mod outcome;
mod probe_time;
pub mod side;

use tamis::{CompactionChoice, Durability, MergeGranularity, Options, ReadMode};

use crate::bench::{Bench, BenchConfig};
use crate::error::BenchError;
use crate::keys::{Distribution, KeySet};
use crate::measure::{Measurement, write_amplification};
use crate::progress::Progress;
use crate::run::Fill;
use crate::sample::Sample;
use crate::workload::Workload;

pub use catalogue::{Axis, Experiment, Metric};
use load::{Loading, Plan};
pub use outcome::{LoadRow, Outcome, ReadRow};
use probe_time::{Nothing, SilentKeys};
pub use side::Side;

/// Where keys come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// Drawn from a distribution.
    Drawn(Distribution),
    /// Names of places, the sample that ships: strings.
    Places,
}

impl KeySource {
    /// Every name that [`str::parse`] takes.
    pub fn names() -> Vec<&'static str> {
        Distribution::ALL.iter().map(|d| d.name()).chain(["geonames"]).collect()
    }
}

impl std::str::FromStr for KeySource {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let drawn = Distribution::ALL.into_iter().find(|d| d.name() == name).map(KeySource::Drawn);
        drawn.or((name == "geonames").then_some(KeySource::Places)).ok_or_else(|| {
            format!("no key set is called `{name}`; there are {}", KeySource::names().join(", "))
        })
    }
}

/// What may be chosen about an experiment; `None` is its own default.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Keys that exist; of places at most as many as there are.
    pub keys: u64,
    /// Where they come from.
    pub source: Option<KeySource>,
    /// Bytes of every value.
    pub value_bytes: usize,
    /// The sides.
    pub filters: Option<Vec<Side>>,
    /// Bits a key; several only where they are what varies.
    pub bits: Option<Vec<f64>>,
    /// The workloads.
    pub workloads: Option<Vec<Workload>>,
    /// Threads; several only where they are what varies.
    pub threads: Option<Vec<usize>>,
    /// The size ratio.
    pub size_ratio: Option<u64>,
    /// Operations a workload and round.
    pub ops: Option<u64>,
    /// Rounds.
    pub repeats: Option<u32>,
    /// Read past the page cache.
    pub direct: bool,
    /// Drives every random choice.
    pub seed: u64,
    /// Options of the database by name, set last.
    pub options: Vec<(String, String)>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            keys: 400_000,
            source: None,
            value_bytes: 256,
            filters: None,
            bits: None,
            workloads: None,
            threads: None,
            size_ratio: None,
            ops: None,
            repeats: None,
            direct: false,
            seed: 1,
            options: Vec::new(),
        }
    }
}

/// Options that would make a side another than its name says, and what to use instead.
const OWN_OPTIONS: [(&str, &str); 3] = [
    ("keyspace.filter", "--filters"),
    ("keyspace.filter_allocation", "--filters monkey"),
    ("keyspace.bits_per_key", "--bits"),
];

/// One setting for which all databases are loaded.
#[derive(Clone, Debug)]
struct Point {
    label: String,
    /// `None`: each side's default.
    bits: Option<f64>,
    compaction: CompactionChoice,
}

/// An experiment with everything decided.
struct Job<'a> {
    experiment: &'a Experiment,
    settings: &'a Settings,
    keys: KeySet,
    plan: Plan,
    sides: Vec<Side>,
    workloads: Vec<Workload>,
    threads: Vec<usize>,
    points: Vec<Point>,
    repeats: u32,
    ops: u64,
    progress: &'a dyn Progress,
}

/// Runs an experiment. Every answer is checked; the first wrong one ends it, as does the first error.
///
/// Fails with [`BenchError::Request`] before anything is loaded if the settings do not fit the experiment.
pub fn run(
    experiment: &Experiment,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<Outcome, BenchError> {
    let job = Job::new(experiment, settings, progress)?;
    let mut outcome = Outcome::new(experiment, &job.describe());
    for point in &job.points {
        job.run_point(point, &mut outcome)?;
    }
    Ok(outcome)
}

impl<'a> Job<'a> {
    fn new(
        experiment: &'a Experiment,
        settings: &'a Settings,
        progress: &'a dyn Progress,
    ) -> Result<Self, BenchError> {
        let ratio = settings.size_ratio.unwrap_or(experiment.size_ratio);
        let source = settings.source.unwrap_or(KeySource::Drawn(experiment.keys));
        let plan = Plan::new(settings.keys, ratio, experiment.levels)?;
        let keys = key_set(experiment, source, &plan, settings.seed)?;
        let plan = Plan::new(keys.len(), ratio, experiment.levels)?;
        let sides = match &settings.filters {
            Some(sides) => sides.clone(),
            None => experiment
                .filters
                .iter()
                .map(|name| name.parse())
                .collect::<Result<_, _>>()
                .map_err(request)?,
        };
        let bits = settings.bits.clone();
        let one = |what: &str, several: bool| match several {
            true => Err(request(format!(
                "{} takes one {what}, not a list: they are not what varies",
                experiment.name
            ))),
            false => Ok(()),
        };
        let (mut threads, mut points) = (vec![1], Vec::new());
        let point = |label: String, bits, compaction| Point { label, bits, compaction };
        match experiment.axis {
            Axis::Bits(default) => {
                for bits in bits.unwrap_or_else(|| default.to_vec()) {
                    points.push(point(format!("{bits} bits"), Some(bits), experiment.compaction));
                }
            }
            axis => {
                one("number of --bits", bits.as_ref().is_some_and(|bits| bits.len() > 1))?;
                let bits = bits.and_then(|bits| bits.first().copied());
                match axis {
                    Axis::LevelingLevels(counts) => points.extend(counts.iter().map(|&count| {
                        point(format!("{count} leveling"), bits, CompactionChoice::Hybrid(count))
                    })),
                    _ => points.push(point(String::new(), bits, experiment.compaction)),
                }
            }
        }
        match (experiment.axis, &settings.threads) {
            (Axis::Threads(_), Some(given)) => threads = given.clone(),
            (Axis::Threads(default), None) => threads = default.to_vec(),
            (_, Some(given)) => {
                one("number of --threads", given.len() > 1)?;
                threads = given.clone();
            }
            (_, None) => {}
        }
        let job = Job {
            experiment,
            settings,
            keys,
            plan,
            sides,
            workloads: settings.workloads.clone().unwrap_or_else(|| experiment.workloads.to_vec()),
            threads,
            points,
            repeats: settings.repeats.unwrap_or(experiment.repeats).max(1),
            ops: settings.ops.unwrap_or(experiment.ops),
            progress,
        };
        job.check()?;
        Ok(job)
    }

    /// Whatever can be refused is refused before anything is loaded.
    fn check(&self) -> Result<(), BenchError> {
        let empty = [
            ("--filters", self.sides.is_empty()),
            ("--bits", self.points.is_empty()),
            ("--workload", self.workloads.is_empty()),
            ("--threads", self.threads.is_empty()),
        ];
        if let Some((name, _)) = empty.iter().find(|(_, empty)| *empty) {
            return Err(request(format!("{name} is an empty list")));
        }
        if let Some(fill) = self.workloads.iter().find(|workload| workload.is_fill()) {
            return Err(request(format!(
                "{fill} fills a database, and those of an experiment are full; take others"
            )));
        }
        for (at, side) in self.sides.iter().enumerate() {
            if self.sides[..at].contains(side) {
                return Err(request(format!("--filters names {side} twice")));
            }
        }
        for (name, instead) in OWN_OPTIONS {
            if self.settings.options.iter().any(|(given, _)| given == name) {
                return Err(request(format!("{name} is what sides differ in; use {instead}")));
            }
        }
        for point in &self.points {
            for side in &self.sides {
                self.options(side, point)?.check()?;
            }
        }
        if self.plan.keys_after(self.flushes_first()) == 0 {
            return Err(request(format!(
                "the writes of {} rounds leave nothing to load first: take more --keys, or less of --ops, --repeat \
                 or --threads",
                self.repeats
            )));
        }
        Ok(())
    }

    /// Of the plan's flushes those before the first measurement. What the mixes write is left for them, so that the
    /// tree is where the plan wants it at the end.
    fn flushes_first(&self) -> u64 {
        let runs = self.workloads.iter().map(|workload| self.plan.flushes_of(workload.writes_of(self.ops)));
        let all = runs.sum::<u64>() * self.threads.len() as u64 * u64::from(self.repeats);
        self.plan.flushes.saturating_sub(all)
    }

    fn options(&self, side: &Side, point: &Point) -> Result<Options, BenchError> {
        let mut options = Options::default();
        options.set("keyspace.compression", "none")?;
        options.durability = Durability::Buffered;
        options.cache_bytes = self.experiment.cache_bytes;
        if self.settings.direct || self.experiment.direct {
            options.read_mode = ReadMode::Direct;
        }
        let keyspace = &mut options.keyspace;
        // The shape is what is compared.
        keyspace.read_compaction = false;
        keyspace.compaction = point.compaction;
        let counted = self.experiment.counted || side.is_global();
        keyspace.deterministic = counted;
        keyspace.merge = match point.compaction {
            CompactionChoice::Leveling if counted => MergeGranularity::Full,
            CompactionChoice::LazyLeveling | CompactionChoice::Hybrid(_) => MergeGranularity::Partitioned,
            _ => MergeGranularity::Auto,
        };
        let entry = self.keys.key_bytes().ceil() as u64 + self.settings.value_bytes as u64;
        self.plan.apply(entry, &mut options);
        side.apply(point.bits.unwrap_or(side.default_bits()), &mut options);
        for (name, value) in &self.settings.options {
            options.set(name, value)?;
        }
        Ok(options)
    }

    fn describe(&self) -> String {
        let Plan { size_ratio, levels, flushes, .. } = self.plan;
        format!(
            "{} {} keys of {} bytes, values of {} bytes; {levels} levels, size ratio {size_ratio}, {flushes} flushes; \
             {} rounds of {} operations; {}",
            crate::report::grouped(self.keys.len()),
            self.keys.name(),
            self.keys.key_bytes().round(),
            self.settings.value_bytes,
            self.repeats,
            crate::report::grouped(self.ops),
            match self.settings.direct || self.experiment.direct {
                true => "direct I/O",
                false => "tables mapped through the page cache",
            }
        )
    }

    fn run_point(&self, point: &Point, outcome: &mut Outcome) -> Result<(), BenchError> {
        let mut stands = Vec::new();
        for side in &self.sides {
            self.progress.note(&format!("{} {}: {side}", self.experiment.name, point.label));
            stands.push(Stand::load(self, side, point)?);
        }
        let probes = self.workloads.contains(&Workload::GetEmpty);
        let nothing = if probes { Some(Nothing::open()?) } else { None };
        for round in 0..self.repeats {
            for &threads in &self.threads {
                for (at, &workload) in self.workloads.iter().enumerate() {
                    for stand in &mut stands {
                        stand.read(self, workload, at, threads, round)?;
                        if let (Workload::GetEmpty, Some(nothing), 1) = (workload, &nothing, threads) {
                            stand.time_filters(nothing)?;
                        }
                    }
                }
            }
        }
        for stand in stands {
            stand.finish(self, point, outcome)?;
        }
        Ok(())
    }
}

/// One side's database, and what was measured on it.
struct Stand<'a> {
    side: Side,
    bench: Bench<'a>,
    loading: Loading,
    load_write_amplification: f64,
    loaded_runs: usize,
    silent: SilentKeys,
    filter_ns: Vec<f64>,
    /// By workload and threads, in the order of the job.
    reads: Vec<(usize, usize, Vec<Measurement>)>,
}

impl<'a> Stand<'a> {
    fn load(job: &Job<'a>, side: &Side, point: &Point) -> Result<Self, BenchError> {
        let values = job.settings.value_bytes.into();
        let config = BenchConfig {
            experiment: job.experiment.name.to_owned(),
            workloads: Vec::new(),
            keys: job.keys.clone(),
            value_bytes: values,
            threads: 1,
            ops: Some(job.ops),
            warmup: None,
            repeats: job.repeats,
            seed: job.settings.seed,
            settled: true,
            options: job.options(side, point)?,
            dir: None,
        };
        let mut order = match job.experiment.shift_from {
            Some(_) => Fill::numbered(&job.keys),
            None => Fill::random(&job.keys, job.settings.seed),
        };
        order.loaded = job.plan.keys_after(job.flushes_first());
        let mut bench = Bench::open(config, job.progress)?;
        job.progress.begin("load", order.loaded, "keys");
        let advance = |n| job.progress.advance(n);
        let loading = load::fill(bench.db(), &job.keys, &order, &job.plan, values, false, &advance)?;
        job.progress.end();
        bench.set_fill(order);
        let stats = bench.db().stats();
        let silent = match job.workloads.contains(&Workload::GetEmpty) {
            true => SilentKeys::find(bench.db(), &job.keys, job.settings.seed)?,
            false => SilentKeys::default(),
        };
        Ok(Stand {
            side: side.clone(),
            loading,
            load_write_amplification: write_amplification(&stats),
            loaded_runs: stats.keyspaces.first().map_or(0, |tree| tree.runs),
            bench,
            silent,
            filter_ns: Vec::new(),
            reads: Vec::new(),
        })
    }

    fn read(
        &mut self,
        job: &Job<'_>,
        workload: Workload,
        at: usize,
        threads: usize,
        round: u32,
    ) -> Result<(), BenchError> {
        self.bench.set_threads(threads);
        let measurement = self.bench.measure_once(workload, u64::from(round))?;
        let mut fill = self.bench.fill().clone();
        fill.loaded = (fill.loaded + Fill::inserts(workload, job.ops)).min(job.keys.len());
        self.bench.set_fill(fill);
        match self.reads.iter_mut().find(|(of, with, _)| (*of, *with) == (at, threads)) {
            Some((_, _, rounds)) => rounds.push(measurement),
            None => self.reads.push((at, threads, vec![measurement])),
        }
        Ok(())
    }

    fn time_filters(&mut self, nothing: &Nothing) -> Result<(), BenchError> {
        let with = self.silent.get_ns(self.bench.db())?;
        let without = self.silent.get_ns(nothing.db())?;
        if let (Some(with), Some(without)) = (with, without) {
            self.filter_ns.push((with - without).max(0.0));
        }
        Ok(())
    }

    fn finish(self, job: &Job<'_>, point: &Point, outcome: &mut Outcome) -> Result<(), BenchError> {
        let Stand { side, bench, loading, mut filter_ns, reads, .. } = self;
        let stats = bench.db().stats();
        let tree = stats.keyspaces.first().cloned().unwrap_or_default();
        outcome.loads.push(LoadRow {
            kind: "load".into(),
            experiment: job.experiment.name.into(),
            filter: side.name().into(),
            point: point.label.clone(),
            keys: loading.keys,
            runs: self.loaded_runs,
            runs_at_end: tree.runs,
            bits_asked: if side.is_filter() { point.bits.unwrap_or(side.default_bits()) } else { 0.0 },
            filter_bytes: tree.filter_bytes,
            filter_bits_per_key: tree.filter_bits_per_key,
            load_ns_per_key: loading.ns as f64 / loading.keys.max(1) as f64,
            put_p50_ns: loading.puts.quantile(0.5),
            put_p99_ns: loading.puts.quantile(0.99),
            flush_p50_ns: loading.flushes.quantile(0.5),
            flush_p99_ns: loading.flushes.quantile(0.99),
            load_write_amplification: self.load_write_amplification,
            write_amplification: write_amplification(&stats),
            // Local filters are counted with their tables, global ones in the bytes of all filters alone.
            without_filter: side.is_filter() && tree.filter_bytes == 0,
        });
        filter_ns.sort_by(f64::total_cmp);
        let filter_ns = filter_ns.get(filter_ns.len() / 2).copied();
        for (at, threads, rounds) in reads {
            let workload = job.workloads[at];
            let of =
                |pick: fn(f64, f64) -> f64, from: f64| rounds.iter().map(|m| m.ns_per_op).fold(from, pick);
            let (min_ns, max_ns) = (of(f64::min, f64::INFINITY), of(f64::max, 0.0));
            let has_filter_ns = workload == Workload::GetEmpty && threads == 1;
            outcome.reads.push(ReadRow {
                kind: "read".into(),
                side: side.name().into(),
                point: point.label.clone(),
                min_ns,
                max_ns,
                filter_ns: filter_ns.filter(|_| has_filter_ns),
                measurement: match job.experiment.metric {
                    Metric::Time => Measurement::median(rounds),
                    Metric::Throughput => Measurement::median_by(rounds, |m| m.wall_ops_per_second),
                }
                .unwrap_or_default(),
            });
        }
        bench.close()
    }
}

fn key_set(experiment: &Experiment, source: KeySource, plan: &Plan, seed: u64) -> Result<KeySet, BenchError> {
    Ok(match (experiment.shift_from, source) {
        (Some(from), KeySource::Drawn(to)) if from != to => {
            KeySet::shifted(from, to, plan.keys_in_last_level(), plan.keys, seed)?
        }
        (Some(from), _) => {
            let name = from.name();
            return Err(request(format!(
                "the last level of {} has {name} keys; those above must be numbers of another set than {name}",
                experiment.name
            )));
        }
        (None, KeySource::Drawn(from)) => KeySet::drawn(from, plan.keys, seed)?,
        // Every tenth is held out, and the list is cut before that.
        (None, KeySource::Places) => Sample::load().key_set(plan.keys.saturating_mul(10) / 9 + 1)?,
    })
}

fn request(why: impl ToString) -> BenchError {
    BenchError::Request(why.to_string())
}

#[cfg(test)]
mod tests;
