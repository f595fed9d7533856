//! An experiment with all settings resolved: its points, and all checks that do not need loaded data.

use std::cell::RefCell;

use tamis::options::{CompactionChoice, MergeGranularity, ReadMode};
use tamis::{Durability, Options};
use tamis_bench::BenchError;
use tamis_bench::keys::KeySet;
use tamis_bench::progress::Progress;
use tamis_bench::report::{bytes, grouped};
use tamis_bench::sample::Sample;
use tamis_bench::workload::Workload;

use super::load::Plan;
use super::probe_time::Nothing;
use super::stand::Stand;
use super::{Axis, Experiment, KeySource, LoadRow, ReadRow, Settings, Side};

/// Options that would contradict a side's name, and what to use instead.
const OWN_OPTIONS: [(&str, &str); 3] = [
    ("keyspace.filter", "--filters"),
    ("keyspace.filter_allocation", "--filters monkey"),
    ("keyspace.bits_per_key", "--bits"),
];

/// Size of a numeric key in bytes.
const NUMBER_BYTES: f64 = 8.0;

/// Data size of the paper, for the ratio of data to block cache: its cache has 8 MiB, or 1 GiB for skewed mixes, with
/// 40 million entries of 264 bytes.
pub(super) const PAPER_DATA_BYTES: u64 = 40_000_000 * 264;

/// Minimum size of the block cache: a smaller one could not hold the blocks in use.
const LEAST_CACHE: u64 = 64 << 10;

/// One setting, for which all databases are loaded.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) source: KeySource,
    /// The varied value besides the key set; empty if nothing varies.
    pub(super) label: String,
    /// `None`: each side's default.
    pub(super) bits: Option<f64>,
    /// Set where they vary.
    pub(super) leveling_levels: Option<usize>,
    pub(super) compaction: CompactionChoice,
}

/// An experiment with all settings resolved. Used by one thread at a time.
pub(super) struct Job {
    pub(super) experiment: Experiment,
    pub(super) settings: Settings,
    sources: Vec<KeySource>,
    /// Those of the point measured last: forty million keys take a while to generate, and memory.
    keys: RefCell<Option<(KeySource, KeySet)>>,
    pub(super) key_bytes: f64,
    pub(super) plan: Plan,
    pub(super) sides: Vec<Side>,
    pub(super) workloads: Vec<Workload>,
    pub(super) threads: Vec<usize>,
    pub(super) points: Vec<Point>,
    pub(super) repeats: u32,
    pub(super) ops: u64,
    pub(super) direct: bool,
    pub(super) cache_bytes: u64,
}

impl Job {
    /// Fails with [`BenchError::Request`] if the settings do not fit the experiment.
    pub(super) fn new(experiment: &Experiment, settings: &Settings) -> Result<Job, BenchError> {
        let ratio = settings.size_ratio.unwrap_or(experiment.size_ratio);
        let sources: Vec<KeySource> = match settings.source {
            Some(source) => vec![source],
            None => experiment.keys.to_vec(),
        };
        let mut plan = Plan::new(settings.keys, ratio, experiment.levels)?;
        let keys = RefCell::new(None);
        let mut key_bytes = NUMBER_BYTES;
        sources.iter().try_for_each(|&source| check_source(experiment, source))?;
        if let [source @ KeySource::Places] = sources[..] {
            // The sample has a limited number of keys.
            let made = key_set(experiment, source, &plan, settings.seed)?;
            plan = Plan::new(made.len(), ratio, experiment.levels)?;
            key_bytes = made.key_bytes();
            keys.replace(Some((source, made)));
        }
        let sides = match &settings.filters {
            Some(sides) => sides.clone(),
            None => experiment
                .filters
                .iter()
                .map(|name| name.parse())
                .collect::<Result<_, _>>()
                .map_err(request)?,
        };
        let (points, threads) = points(experiment, settings, &sources)?;
        let data = plan.keys.saturating_mul(key_bytes.ceil() as u64 + settings.value_bytes as u64);
        let job = Job {
            sources,
            keys,
            key_bytes,
            plan,
            sides,
            workloads: settings.workloads.clone().unwrap_or_else(|| experiment.workloads.to_vec()),
            threads,
            points,
            repeats: settings.repeats.unwrap_or(experiment.repeats).max(1),
            ops: settings.ops.unwrap_or(experiment.ops),
            direct: settings.direct.unwrap_or(experiment.direct),
            cache_bytes: settings.cache_bytes.unwrap_or_else(|| cache_of(experiment, data)),
            experiment: experiment.clone(),
            settings: settings.clone(),
        };
        job.check()?;
        Ok(job)
    }

    /// Returns the keys of a point, generating them if the point before had others. A clone shares them.
    pub(super) fn keys(&self, point: &Point) -> Result<KeySet, BenchError> {
        let mut known = self.keys.borrow_mut();
        if let Some((_, keys)) = known.as_ref().filter(|(source, _)| *source == point.source) {
            return Ok(keys.clone());
        }
        // Before the next are generated: both may not fit into memory.
        known.take();
        let made = key_set(&self.experiment, point.source, &self.plan, self.settings.seed)?;
        Ok(known.insert((point.source, made)).1.clone())
    }

    /// Returns the name of a point, unique within the experiment; `all sides` if nothing varies.
    pub(super) fn name_of(&self, point: &Point) -> String {
        let source = (self.sources.len() > 1).then(|| point.source.to_string());
        let label = (!point.label.is_empty()).then(|| point.label.clone());
        let parts: Vec<String> = source.into_iter().chain(label).collect();
        if parts.is_empty() { "all sides".to_owned() } else { parts.join(", ") }
    }

    /// Performs all checks that do not need loaded data.
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
                "{fill} fills a database, but those of an experiment are already full; choose another workload"
            )));
        }
        let names: Vec<&str> = self.sides.iter().map(Side::name).collect();
        refuse_twice("--filters", &names)?;
        let of_first = self.points.iter().filter(|point| Some(&point.source) == self.sources.first());
        refuse_twice("--bits", &of_first.map(|point| &point.label).collect::<Vec<_>>())?;
        refuse_twice("--threads", &self.threads)?;
        for (name, instead) in OWN_OPTIONS {
            if self.settings.options.iter().any(|(given, _)| given == name) {
                return Err(request(format!("{name} differs between sides; use {instead}")));
            }
        }
        for point in &self.points {
            for side in &self.sides {
                self.options(side, point)?.check()?;
            }
        }
        if self.plan.keys_after(self.flushes_first()) == 0 {
            return Err(request(format!(
                "the writes of {} rounds leave nothing to load first: use more --keys, or reduce --ops, --repeat \
                 or --threads",
                self.repeats
            )));
        }
        Ok(())
    }

    /// Returns the number of the plan's flushes before the first measurement. The mixes' writes do the remaining ones,
    /// so that the tree has its planned shape at the end.
    pub(super) fn flushes_first(&self) -> u64 {
        let runs = self.workloads.iter().map(|workload| self.plan.flushes_of(workload.writes_of(self.ops)));
        let all = runs.sum::<u64>() * self.threads.len() as u64 * u64::from(self.repeats);
        self.plan.flushes.saturating_sub(all)
    }

    /// Returns the size of an entry in bytes.
    pub(super) fn entry_bytes(&self) -> u64 {
        self.key_bytes.ceil() as u64 + self.settings.value_bytes as u64
    }

    pub(super) fn options(&self, side: &Side, point: &Point) -> Result<Options, BenchError> {
        let mut options = Options::default();
        options.set("keyspace.compression", "none")?;
        options.durability = Durability::Buffered;
        options.cache_bytes = self.cache_bytes;
        if self.direct {
            options.read_mode = ReadMode::Direct;
        }
        let keyspace = &mut options.keyspace;
        // The shape is part of the comparison.
        keyspace.read_compaction = false;
        keyspace.compaction = point.compaction;
        let counted = self.experiment.counted || side.is_global();
        keyspace.deterministic = counted;
        keyspace.merge = match point.compaction {
            CompactionChoice::Leveling if counted => MergeGranularity::Full,
            CompactionChoice::LazyLeveling | CompactionChoice::Hybrid(_) => MergeGranularity::Partitioned,
            _ => MergeGranularity::Auto,
        };
        self.plan.apply(self.entry_bytes(), self.experiment.tables, &mut options);
        side.apply(point.bits.unwrap_or(side.default_bits()), &mut options)?;
        for (name, value) in &self.settings.options {
            options.set(name, value)?;
        }
        Ok(options)
    }

    pub(super) fn describe(&self) -> String {
        let Plan { size_ratio, levels, flushes, keys } = self.plan;
        let kind = |source: &KeySource| match (self.experiment.shift_from, source) {
            (Some(from), KeySource::Drawn(to)) => format!("{}-then-{}", from.name(), to.name()),
            (_, source) => source.to_string(),
        };
        let kind = self.sources.iter().map(kind).collect::<Vec<_>>().join(", ");
        format!(
            "{} keys of {} bytes ({kind}), values of {} bytes; {levels} levels, size ratio {size_ratio}, {flushes} flushes; \
             {} rounds of {} operations; {}, block cache of {}",
            grouped(keys),
            self.key_bytes.round(),
            self.settings.value_bytes,
            self.repeats,
            grouped(self.ops),
            match self.direct {
                true => "direct I/O",
                false => "tables mapped through the page cache",
            },
            bytes(self.cache_bytes),
        )
    }

    /// Measures one point: loads all sides, and interleaves their measurements.
    pub(super) fn run_point(
        &self,
        point: &Point,
        progress: &dyn Progress,
    ) -> Result<(Vec<LoadRow>, Vec<ReadRow>), BenchError> {
        let mut stands = Vec::new();
        for side in &self.sides {
            progress.note(&format!("{} {}: {side}", self.experiment.name, self.name_of(point)));
            stands.push(Stand::load(self, side, point, progress)?);
        }
        let nothing = Nothing::open()?;
        for round in 0..self.repeats {
            for &threads in &self.threads {
                for (at, &workload) in self.workloads.iter().enumerate() {
                    for stand in &mut stands {
                        stand.read(self, workload, at, threads, round)?;
                        if threads == 1 {
                            stand.time_filters(at, &nothing)?;
                        }
                    }
                }
            }
        }
        let (mut loads, mut reads) = (Vec::new(), Vec::new());
        for stand in stands {
            let (load, of_side) = stand.finish(self, point)?;
            loads.push(load);
            reads.extend(of_side);
        }
        Ok((loads, reads))
    }
}

/// Returns the varied values, key set by key set, and the numbers of threads.
fn points(
    experiment: &Experiment,
    settings: &Settings,
    sources: &[KeySource],
) -> Result<(Vec<Point>, Vec<usize>), BenchError> {
    let bits = settings.bits.clone();
    let one = |what: &str, several: bool| match several {
        true => Err(request(format!(
            "{} takes one {what}, not a list, since it does not vary them",
            experiment.name
        ))),
        false => Ok(()),
    };
    let varies_bits = matches!(experiment.axis, Axis::Bits(_));
    one("number of --bits", !varies_bits && bits.as_ref().is_some_and(|bits| bits.len() > 1))?;
    let mut points = Vec::new();
    for &source in sources {
        let point = Point {
            source,
            label: String::new(),
            bits: bits.as_ref().and_then(|bits| bits.first().copied()),
            leveling_levels: None,
            compaction: experiment.compaction,
        };
        match experiment.axis {
            Axis::Bits(default) => {
                let bits = bits.clone().unwrap_or_else(|| default.to_vec());
                points.extend(bits.into_iter().map(|bits| Point {
                    label: format!("{bits} bits"),
                    bits: Some(bits),
                    ..point.clone()
                }));
            }
            Axis::LevelingLevels(counts) => points.extend(counts.iter().map(|&count| Point {
                label: format!("{count} leveling"),
                leveling_levels: Some(count),
                compaction: CompactionChoice::Hybrid(count),
                ..point.clone()
            })),
            Axis::None | Axis::Threads(_) | Axis::InFlight(_) => points.push(point),
        }
    }
    let threads = match (experiment.axis, &settings.threads) {
        (Axis::Threads(_) | Axis::InFlight(_), Some(given)) => given.clone(),
        (Axis::Threads(default) | Axis::InFlight(default), None) => default.to_vec(),
        (_, Some(given)) => {
            one("number of --threads", given.len() > 1)?;
            given.clone()
        }
        (_, None) => vec![1],
    };
    Ok((points, threads))
}

fn refuse_twice<T: PartialEq + std::fmt::Display>(flag: &str, given: &[T]) -> Result<(), BenchError> {
    let twice = given.iter().enumerate().find(|(at, value)| given[..*at].contains(value));
    match twice {
        Some((_, value)) => Err(request(format!("{flag} names {value} twice"))),
        None => Ok(()),
    }
}

/// Returns the size of the block cache: the same share of the data as in the paper, and no larger than there.
fn cache_of(experiment: &Experiment, data: u64) -> u64 {
    let share = u128::from(experiment.cache_bytes) * u128::from(data) / u128::from(PAPER_DATA_BYTES);
    u64::try_from(share).unwrap_or(u64::MAX).min(experiment.cache_bytes).max(LEAST_CACHE)
}

/// Checks that the last level has another kind of keys, since there would be no shift otherwise.
fn check_source(experiment: &Experiment, source: KeySource) -> Result<(), BenchError> {
    let Some(from) = experiment.shift_from else { return Ok(()) };
    match source {
        KeySource::Drawn(to) if from != to => Ok(()),
        _ => {
            let name = from.name();
            Err(request(format!(
                "the last level of {} has {name} keys; those above must be numbers from a set other than {name}",
                experiment.name
            )))
        }
    }
}

pub(super) fn key_set(
    experiment: &Experiment,
    source: KeySource,
    plan: &Plan,
    seed: u64,
) -> Result<KeySet, BenchError> {
    check_source(experiment, source)?;
    Ok(match (experiment.shift_from, source) {
        (Some(from), KeySource::Drawn(to)) => {
            KeySet::shifted(from, to, plan.keys_in_last_level(), plan.keys, seed)?
        }
        (_, KeySource::Drawn(from)) => KeySet::drawn(from, plan.keys, seed)?,
        // Every tenth key is held out, and the list is truncated before that.
        (_, KeySource::Places) => Sample::load().key_set(plan.keys.saturating_mul(10) / 9 + 1)?,
    })
}

pub(super) fn request(why: impl ToString) -> BenchError {
    BenchError::Request(why.to_string())
}
