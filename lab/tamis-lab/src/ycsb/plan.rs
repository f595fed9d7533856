//! The figure with all settings resolved: sizes, sides, steps, and all checks that do not need loaded data.

use std::cell::OnceCell;

use tamis::options::{CompactionChoice, MergeGranularity, ReadMode};
use tamis::{Durability, Options};
use tamis_bench::BenchError;
use tamis_bench::keys::{Distribution, KeySet};
use tamis_bench::progress::Progress;
use tamis_bench::report::{bytes, grouped};
use tamis_bench::sample::Sample;
use tamis_bench::workload::Workload::{self, *};

use crate::elastic::database::{Bases, Data};
use crate::figures::{Custom, Plan, Row, Scale};
use crate::filters::KeySource;
use crate::filters::load::{FEW_TABLES, Plan as LoadPlan};
use crate::ycsb::run;
use crate::ycsb::side::YcsbSide;
use crate::ycsb::view::threads_of;

/// The figure's name.
pub(super) const NAME: &str = "ycsb";

/// The mixes.
pub(super) const MIXES: [Workload; 6] = [YcsbA, YcsbB, YcsbC, YcsbD, YcsbE, YcsbF];

/// Every filter of the engine, those with several forms in the one that their options recommend, and two with the
/// memory of ElasticBF's paper.
const SIDES: [&str; 20] = [
    "none",
    "bloom",
    "blocked-bloom",
    "monkey",
    "ribbon",
    "fuse",
    "xor",
    "cuckoo",
    "elastic",
    "surf-real",
    "snarf",
    "rosetta",
    "rencoder",
    "grafite",
    "grf",
    "grf-huffman",
    "chucky",
    "remix",
    "bloom@4",
    "elastic@4",
];

/// The sides of a small run.
const FEW_SIDES: [&str; 4] = ["bloom", "grf", "bloom@4", "elastic@4"];

/// Number of levels of the tree, including level 0.
const LEVELS: usize = 3;

/// Ratio of data size to block cache, which is at most [`MOST_CACHE`].
const DATA_BY_CACHE: u64 = 10;

/// Maximum size of the block cache.
const MOST_CACHE: u64 = 1 << 30;

/// Minimum number of elastic filter segments of a database, unless their units would get too small.
const SEGMENTS: u64 = 4000;

/// Limits of unit sizes.
const UNIT_BYTES: std::ops::RangeInclusive<u64> = 1024..=4096;

/// E has this factor fewer operations, since its scans take longer.
const SCANS_SHARE: u64 = 5;

/// The options that have an effect.
const TAKEN: [&str; 16] = [
    "--keys",
    "--key-set",
    "--value-bytes",
    "--filters",
    "--bits",
    "--workload",
    "--threads",
    "--size-ratio",
    "--ops",
    "--repeat",
    "--direct",
    "--mapped",
    "--warmup",
    "--cache",
    "--db",
    "--option",
];

/// Options that would contradict a side's name, and what to use instead.
const OWN_OPTIONS: [(&str, &str); 5] = [
    ("keyspace.filter", "--filters"),
    ("keyspace.filter_allocation", "--filters monkey"),
    ("keyspace.bits_per_key", "--bits, or --filters NAME@BITS"),
    ("filter_budget_bytes", "--bits, or --filters NAME@BITS"),
    ("read_memory_bytes", "--bits and --cache"),
];

/// Settings that depend on the scale.
pub(super) struct Sizes {
    pub(super) keys: u64,
    pub(super) value_bytes: usize,
    size_ratio: u64,
    sides: &'static [&'static str],
    threads: &'static [usize],
    /// Operations of a mix per round, over all threads.
    ops: u64,
    repeats: u32,
}

/// Returns the sizes of a scale.
pub(super) fn sizes(scale: Scale) -> Sizes {
    let large = Sizes {
        keys: 200_000,
        value_bytes: 256,
        size_ratio: 10,
        sides: &SIDES,
        threads: &[1, 2, 4, 8],
        ops: 2_000,
        repeats: 3,
    };
    match scale {
        Scale::Small => Sizes {
            keys: 20_000,
            value_bytes: 100,
            size_ratio: 4,
            sides: &FEW_SIDES,
            threads: &[1, 2],
            ops: 500,
            repeats: 2,
        },
        Scale::Default => large,
        Scale::Paper => Sizes { keys: 10_000_000, value_bytes: 1016, ops: 50_000, ..large },
    }
}

/// One mix with one number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) workload: Workload,
    pub(super) threads: usize,
}

/// All settings resolved. Databases are built when the first step needs them, and kept for the others.
pub(super) struct Job {
    source: KeySource,
    /// Generated on demand: ten million keys take a while.
    keys: OnceCell<KeySet>,
    pub(super) value_bytes: usize,
    pub(super) sides: Vec<YcsbSide>,
    pub(super) steps: Vec<Step>,
    pub(super) ops: u64,
    pub(super) warmup: u64,
    pub(super) repeats: u32,
    pub(super) seed: u64,
    plan: LoadPlan,
    bits: Option<f64>,
    cache_bytes: u64,
    direct: bool,
    scaled: Vec<String>,
    more_options: Vec<(String, String)>,
    dir: Option<std::path::PathBuf>,
    bases: OnceCell<Bases>,
}

impl Job {
    /// Fails with [`BenchError::Request`] if the custom settings do not fit.
    pub(super) fn new(scale: Scale, custom: &Custom) -> Result<Job, BenchError> {
        custom.refuse_all_but(NAME, &TAKEN)?;
        let sizes = sizes(scale);
        let source = custom.key_set.unwrap_or(KeySource::Drawn(Distribution::Uniform50));
        let mut asked = custom.keys.unwrap_or(sizes.keys);
        let keys = OnceCell::new();
        if source == KeySource::Places {
            // The sample has a limited number of keys.
            let made = key_set(source, asked, custom.seed)?;
            asked = made.len();
            let _ = keys.set(made);
        }
        let plan = LoadPlan::new(asked, custom.size_ratio.unwrap_or(sizes.size_ratio), LEVELS)?;
        let value_bytes = custom.value_bytes.unwrap_or(sizes.value_bytes);
        let names = match custom.filters.is_empty() {
            true => sizes.sides.iter().map(|name| (*name).to_owned()).collect(),
            false => custom.filters.clone(),
        };
        let ops = custom.ops.unwrap_or(sizes.ops).max(1);
        let mut job = Job {
            source,
            keys,
            value_bytes,
            sides: names.iter().map(|name| name.parse()).collect::<Result<_, _>>().map_err(request)?,
            steps: Vec::new(),
            ops,
            warmup: custom.warmup.unwrap_or(ops),
            repeats: custom.repeats.unwrap_or(sizes.repeats).max(1),
            seed: custom.seed,
            plan,
            bits: one_number(&custom.bits)?,
            cache_bytes: 0,
            direct: custom.direct.unwrap_or(true),
            scaled: Vec::new(),
            more_options: custom.options.clone(),
            dir: custom.dir.clone(),
            bases: OnceCell::new(),
        };
        job.cache_bytes = custom.cache_bytes.unwrap_or((job.data_bytes() / DATA_BY_CACHE).min(MOST_CACHE));
        let workloads = if custom.workloads.is_empty() { &MIXES[..] } else { &custom.workloads };
        let threads = if custom.threads.is_empty() { sizes.threads } else { &custom.threads };
        job.steps = workloads
            .iter()
            .flat_map(|&workload| {
                threads.iter().map(move |&threads| Step { workload, threads: threads.max(1) })
            })
            .collect();
        job.scaled = job.what_is_scaled(scale, custom);
        job.check()?;
        Ok(job)
    }

    /// Performs all checks that do not need loaded data.
    fn check(&self) -> Result<(), BenchError> {
        for (at, side) in self.sides.iter().enumerate() {
            if self.sides[..at].iter().any(|other| other.name() == side.name()) {
                return Err(request(format!("--filters names {side} twice")));
            }
        }
        for (at, step) in self.steps.iter().enumerate() {
            if self.steps[..at].contains(step) {
                return Err(request(format!("{} is given twice", name_of(step))));
            }
            if !MIXES.contains(&step.workload) {
                let names = MIXES.map(Workload::name).join(", ");
                return Err(request(format!("{NAME} is about {names}, not {}", step.workload)));
            }
        }
        for (name, instead) in OWN_OPTIONS {
            if self.more_options.iter().any(|(given, _)| given == name) {
                return Err(request(format!("{name} differs between sides; use {instead}")));
            }
        }
        if self.loaded() == 0 {
            return Err(request(format!(
                "the writes of {} rounds leave nothing to load first: use more --keys, or reduce --ops or --repeat",
                self.repeats
            )));
        }
        for side in &self.sides {
            self.options(side)?.check()?;
        }
        Ok(())
    }

    /// Returns the number of operations of a step per round.
    pub(super) fn ops_of(&self, workload: Workload) -> u64 {
        if workload == YcsbE { (self.ops / SCANS_SHARE).max(1) } else { self.ops }
    }

    /// Returns the number of keys at the beginning of a step. The flushes left before the merge into the last level
    /// suffice for the mix that writes most, so all mixes begin on one tree and none pays for that merge.
    pub(super) fn loaded(&self) -> u64 {
        let flushes = |step: &Step| {
            self.plan.flushes_of(step.workload.writes_of(self.ops_of(step.workload)))
                * u64::from(self.repeats)
        };
        let most = self.steps.iter().map(flushes).max().unwrap_or(0).max(1);
        self.plan.keys_after(self.plan.flushes.saturating_sub(most))
    }

    /// Returns the keys, generating them on first use.
    pub(super) fn keys(&self) -> Result<&KeySet, BenchError> {
        match self.keys.get() {
            Some(keys) => Ok(keys),
            None => {
                let made = key_set(self.source, self.plan.keys, self.seed)?;
                Ok(self.keys.get_or_init(|| made))
            }
        }
    }

    /// Returns the directory of the databases; unless one was given, a temporary one that is removed on drop.
    pub(super) fn bases(&self) -> Result<&Bases, BenchError> {
        match self.bases.get() {
            Some(bases) => Ok(bases),
            None => {
                let made = Bases::in_dir(self.dir.as_deref())?;
                Ok(self.bases.get_or_init(|| made))
            }
        }
    }

    /// Returns the contents of a side's database.
    pub(super) fn data<'a>(&self, keys: &'a KeySet) -> Data<'a> {
        let portions = Some((self.plan, self.loaded()));
        Data { keys, value_bytes: self.value_bytes, seed: self.seed, portions }
    }

    /// Returns the intended bits per key of a side.
    pub(super) fn bits_of(&self, side: &YcsbSide) -> f64 {
        side.bits(self.bits)
    }

    /// Returns the options of a side's database: the same tree for all.
    pub(super) fn options(&self, side: &YcsbSide) -> Result<Options, BenchError> {
        let mut options = Options::default();
        options.set("keyspace.compression", "none")?;
        options.durability = Durability::Buffered;
        options.cache_bytes = self.cache_bytes;
        if self.direct {
            options.read_mode = ReadMode::Direct;
        }
        let keyspace = &mut options.keyspace;
        keyspace.read_compaction = false;
        keyspace.compaction = CompactionChoice::LazyLeveling;
        keyspace.deterministic = true;
        keyspace.merge = MergeGranularity::Partitioned;
        keyspace.filter_unit_bytes = unit_bytes(self.plan.keys);
        self.plan.apply(self.entry_bytes(), FEW_TABLES, &mut options);
        side.apply(self.bits, self.loaded(), &mut options)?;
        for (name, value) in &self.more_options {
            options.set(name, value)?;
        }
        Ok(options)
    }

    fn entry_bytes(&self) -> u64 {
        let number_bytes = 8.0;
        let key_bytes = self.keys.get().map_or(number_bytes, KeySet::key_bytes);
        key_bytes.ceil() as u64 + self.value_bytes as u64
    }

    fn data_bytes(&self) -> u64 {
        self.plan.keys.saturating_mul(self.entry_bytes())
    }

    fn what_is_scaled(&self, scale: Scale, custom: &Custom) -> Vec<String> {
        let paper = sizes(Scale::Paper);
        let mut said = Vec::new();
        if self.plan.keys < paper.keys || self.value_bytes < paper.value_bytes {
            said.push(format!(
                "{} of data instead of 10 GB; {LEVELS} levels with size ratio {} and a block cache of a tenth of the \
                 data are kept.",
                bytes(self.data_bytes()),
                self.plan.size_ratio
            ));
        }
        if scale == Scale::Small && custom.filters.is_empty() {
            said.push(format!("{} of {} sides.", FEW_SIDES.len(), SIDES.len()));
        }
        said.push(format!(
            "{} operations per round instead of 10 million; {} of E.",
            grouped(self.ops),
            grouped(self.ops_of(YcsbE))
        ));
        if !self.direct {
            said.push("Tables are mapped through the page cache, so no read waits for the disk.".into());
        }
        said
    }
}

impl Plan for Job {
    fn setting(&self) -> String {
        format!(
            "{} sides, {} keys of {} bytes each, values of {} bytes, {} of them there at the beginning; lazy leveling with \
             {LEVELS} levels and size ratio {}; block cache {}, {}; {} unmeasured operations of C, then {} rounds of {} \
             operations over all threads",
            self.sides.len(),
            grouped(self.plan.keys),
            self.entry_bytes() - self.value_bytes as u64,
            self.value_bytes,
            grouped(self.loaded()),
            self.plan.size_ratio,
            bytes(self.cache_bytes),
            if self.direct { "direct I/O" } else { "tables mapped through the page cache" },
            grouped(self.warmup),
            self.repeats,
            grouped(self.ops),
        )
    }

    fn scaled(&self) -> Vec<String> {
        self.scaled.clone()
    }

    fn steps(&self) -> Vec<String> {
        self.steps.iter().map(name_of).collect()
    }

    fn run(&mut self, step: usize, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        let step = *self.steps.get(step).ok_or_else(|| request(format!("{NAME} has no step {step}")))?;
        run::step(self, step, progress)
    }
}

pub(super) fn name_of(step: &Step) -> String {
    format!("{} {}", step.workload, threads_of(step.threads))
}

fn key_set(source: KeySource, keys: u64, seed: u64) -> Result<KeySet, BenchError> {
    Ok(match source {
        KeySource::Drawn(from) => KeySet::drawn(from, keys, seed)?,
        // Every tenth key is held out, and the list is truncated before that.
        KeySource::Places => Sample::load().key_set(keys.saturating_mul(10) / 9 + 1)?,
    })
}

/// Returns the size of a unit of elastic filters in bytes: half a byte per key of a segment.
fn unit_bytes(keys: u64) -> u64 {
    let wanted = (keys / SEGMENTS / 2).max(1);
    (1 << wanted.ilog2()).clamp(*UNIT_BYTES.start(), *UNIT_BYTES.end())
}

fn one_number(bits: &[f64]) -> Result<Option<f64>, BenchError> {
    match bits {
        [] => Ok(None),
        [bits] => Ok(Some(*bits)),
        _ => Err(request(format!(
            "{NAME} takes one number of --bits; sides with others are --filters NAME@BITS"
        ))),
    }
}

pub(super) fn request(why: impl ToString) -> BenchError {
    BenchError::Request(why.to_string())
}
