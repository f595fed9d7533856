//! An experiment with everything decided: its points, and whatever can be refused before anything is loaded.

use std::cell::OnceCell;
use std::path::PathBuf;

use tamis::{Durability, Options, ReadMode};

use crate::elastic::catalogue::{ElasticExperiment, Kind};
use crate::elastic::database::{Bases, Copy, Data, FEWEST_KEYS, LoadRow, loaded_of};
use crate::elastic::pattern::{Pattern, PatternSpec};
use crate::elastic::points::{Point, Variant, points, unit_bytes};
use crate::elastic::rows::Rows;
use crate::elastic::side::ElasticSide;
use crate::elastic::{rounds, shift, skew};
use crate::error::BenchError;
use crate::keys::KeySet;
use crate::progress::Progress;
use crate::report::{bytes, grouped};
use crate::run::Fill;
use crate::workload::Workload;

/// Bytes of every key.
pub(super) const KEY_BYTES: usize = 16;

/// What may be chosen about an experiment; `None` is its own default.
#[derive(Clone, Debug)]
pub struct ElasticSettings {
    /// Keys in all; a fiftieth is held back for workloads that insert.
    pub keys: u64,
    /// Bytes of every value.
    pub value_bytes: usize,
    /// Bits of filter memory a key.
    pub bits: f64,
    /// The sides.
    pub sides: Option<Vec<ElasticSide>>,
    /// The workloads.
    pub workloads: Option<Vec<Workload>>,
    /// Exponents of Zipf's law.
    pub skews: Option<Vec<f64>>,
    /// Shares of absent keys in percent.
    pub absents: Option<Vec<u64>>,
    /// Localities.
    pub localities: Option<Vec<u64>>,
    /// Threads.
    pub threads: Option<Vec<usize>>,
    /// Operations a workload and round, over all threads; gets a window in a shift.
    pub ops: Option<u64>,
    /// Unmeasured gets.
    pub warmup: Option<u64>,
    /// Rounds.
    pub repeats: Option<u32>,
    /// Bytes of the block cache.
    pub cache_bytes: Option<u64>,
    /// Read past the page cache, or through it.
    pub direct: Option<bool>,
    /// Bytes of a filter unit where they do not vary.
    pub unit_bytes: Option<u64>,
    /// Where databases are kept; a temporary directory, removed at the end, if nowhere.
    pub dir: Option<PathBuf>,
    /// Drives every random choice.
    pub seed: u64,
    /// Options of the database by name, set last.
    pub options: Vec<(String, String)>,
}

impl Default for ElasticSettings {
    fn default() -> Self {
        ElasticSettings {
            keys: 1_000_000,
            value_bytes: 100,
            bits: 4.0,
            sides: None,
            workloads: None,
            skews: None,
            absents: None,
            localities: None,
            threads: None,
            ops: None,
            warmup: None,
            repeats: None,
            cache_bytes: None,
            direct: None,
            unit_bytes: None,
            dir: None,
            seed: 1,
            options: Vec::new(),
        }
    }
}

/// Options that would make a side another than its name says, and what to use instead.
const OWN_OPTIONS: [(&str, &str); 6] = [
    ("keyspace.filter", "--filters"),
    ("keyspace.filter_allocation", "--filters monkey"),
    ("keyspace.bits_per_key", "--bits"),
    ("filter_budget_bytes", "--bits"),
    ("read_memory_bytes", "--bits and --cache"),
    ("heat_inheritance", "--filters elastic-cold"),
];

/// What is measured at once.
pub(super) enum Step<'a> {
    /// Loading, in rounds.
    Loads,
    /// A point.
    Point(&'a Point),
}

/// An experiment with everything decided. One thread at a time.
pub(super) struct Job {
    pub(super) experiment: ElasticExperiment,
    pub(super) settings: ElasticSettings,
    pub(super) keys: KeySet,
    pub(super) sides: Vec<ElasticSide>,
    pub(super) points: Vec<Point>,
    pub(super) repeats: u32,
    pub(super) ops: u64,
    pub(super) warmup: u64,
    /// Made when the first is needed.
    bases: OnceCell<Bases>,
}

impl Job {
    /// Fails with [`BenchError::Request`] if the settings do not fit the experiment.
    pub(super) fn new(
        experiment: &ElasticExperiment,
        settings: &ElasticSettings,
    ) -> Result<Self, BenchError> {
        if settings.keys < FEWEST_KEYS {
            return Err(request(format!(
                "{} keys are too few for a tree of several levels: take --keys {FEWEST_KEYS} or more",
                settings.keys
            )));
        }
        let sides = match &settings.sides {
            Some(sides) => sides.clone(),
            None => {
                experiment.sides.iter().map(|name| name.parse()).collect::<Result<_, _>>().map_err(request)?
            }
        };
        let ops = settings.ops.unwrap_or(experiment.ops);
        let job = Job {
            experiment: experiment.clone(),
            settings: settings.clone(),
            keys: KeySet::sequential(settings.keys, KEY_BYTES)?,
            sides,
            points: points(experiment, settings)?,
            repeats: settings.repeats.unwrap_or(experiment.repeats).max(1),
            ops,
            warmup: settings.warmup.unwrap_or(if experiment.warm && !one_pass(experiment) { ops } else { 0 }),
            bases: OnceCell::new(),
        };
        job.check()?;
        Ok(job)
    }

    fn check(&self) -> Result<(), BenchError> {
        let name = self.experiment.name;
        for (flag, empty) in
            [("--filters", self.sides.is_empty()), ("--workload and the others", self.points.is_empty())]
        {
            if empty {
                return Err(request(format!("{flag}: a list is empty")));
            }
        }
        for (at, side) in self.sides.iter().enumerate() {
            if self.sides[..at].contains(side) {
                return Err(request(format!("--filters names {side} twice")));
            }
            if side.is_global() {
                return Err(request(format!(
                    "{side} is one filter for the whole tree; take those of single tables"
                )));
            }
        }
        for (option, instead) in OWN_OPTIONS {
            if self.settings.options.iter().any(|(given, _)| given == option) {
                return Err(request(format!("{option} is what sides differ in or share; use {instead}")));
            }
        }
        let one_pass = one_pass(&self.experiment);
        if one_pass && self.repeats > 1 {
            return Err(request(format!("{name} has no rounds: leave out --repeat, or take another --seed")));
        }
        if one_pass
            && (self.settings.workloads.is_some() || self.points.iter().any(|point| point.threads != 1))
        {
            return Err(request(format!(
                "{name} has gets of one thread only: leave out --workload and --threads"
            )));
        }
        if one_pass && self.settings.warmup.is_some() {
            return Err(request(format!("{name} counts from the first get on: leave out --warmup")));
        }
        for point in &self.points {
            if point.workload.is_fill() {
                return Err(request(format!(
                    "{} fills a database, and those of an experiment are full",
                    point.workload
                )));
            }
            if !drawn_by_pattern(point.workload) {
                let names = Workload::ALL.into_iter().filter(|&workload| drawn_by_pattern(workload));
                let names = names.map(Workload::name).collect::<Vec<_>>().join(", ");
                return Err(request(format!(
                    "{} does not follow the heat; there are {names}",
                    point.workload
                )));
            }
            let inserts = Fill::inserts(point.workload, self.ops) * u64::from(self.repeats);
            let held_back = self.keys.len() - loaded_of(self.keys.len());
            if inserts > held_back {
                return Err(request(format!(
                    "{} inserts {inserts} keys, and {held_back} are held back: take more --keys, or less of --ops or \
                     --repeat",
                    point.workload
                )));
            }
            for side in &self.sides {
                self.options(side, &point.variant)?.check()?;
            }
        }
        Ok(())
    }

    /// The options of one side's database.
    pub(super) fn options(&self, side: &ElasticSide, variant: &Variant) -> Result<Options, BenchError> {
        let mut options = Options::default();
        options.set("keyspace.compression", "none")?;
        options.durability = Durability::Buffered;
        // The shape is the same for all sides.
        options.keyspace.read_compaction = false;
        options.cache_bytes = variant.cache_bytes;
        if self.direct() {
            options.read_mode = ReadMode::Direct;
        }
        self.data(variant).apply(&mut options);
        options.keyspace.filter_unit_bytes = unit_bytes(&self.settings);
        side.apply(self.settings.bits, loaded_of(self.keys.len()), &mut options);
        for (name, value) in &variant.options {
            options.set(name, value)?;
        }
        for (name, value) in &self.settings.options {
            options.set(name, value)?;
        }
        Ok(options)
    }

    pub(super) fn data(&self, variant: &Variant) -> Data<'_> {
        Data { keys: &self.keys, value_bytes: variant.value_bytes, seed: self.settings.seed, portions: None }
    }

    /// The directory of databases; made the first time.
    pub(super) fn bases(&self) -> Result<&Bases, BenchError> {
        match self.bases.get() {
            Some(bases) => Ok(bases),
            None => {
                let made = Bases::in_dir(self.settings.dir.as_deref())?;
                Ok(self.bases.get_or_init(|| made))
            }
        }
    }

    /// Whether tables are read past the page cache.
    pub(super) fn direct(&self) -> bool {
        self.settings.direct.unwrap_or(self.experiment.direct)
    }

    /// A copy of a side's database, which is loaded first if it is not there.
    pub(super) fn open(
        &self,
        side: &ElasticSide,
        variant: &Variant,
        progress: &dyn Progress,
    ) -> Result<(Copy, LoadRow), BenchError> {
        let (options, data) = (self.options(side, variant)?, self.data(variant));
        let bases = self.bases()?;
        let mut load = bases.base(side.filter(), &options, &data, progress)?;
        load.experiment = self.experiment.name.into();
        load.point = variant.label.clone();
        Ok((bases.copy(side.filter(), &options, &data)?, load))
    }

    /// Where the hot keys lie, and after a shift.
    pub(super) fn pattern(&self, spec: PatternSpec, moved: bool) -> Result<Pattern, BenchError> {
        Pattern::new(self.keys.len(), spec, self.settings.seed.wrapping_mul(2) + u64::from(moved))
    }

    /// The steps: loads, where they are measured, and the points.
    pub(super) fn steps(&self) -> Vec<Step<'_>> {
        let loads = (self.experiment.kind == Kind::Loads).then_some(Step::Loads);
        loads.into_iter().chain(self.points.iter().map(Step::Point)).collect()
    }

    /// The name of a point among all: what differs.
    pub(super) fn step_of(&self, point: &Point) -> String {
        let several = self.points.iter().any(|other| other.workload != point.workload);
        match (several, point.label.is_empty()) {
            (true, true) => point.workload.to_string(),
            (true, false) => format!("{}, {}", point.workload, point.label),
            (false, true) => "all sides".to_owned(),
            (false, false) => point.label.clone(),
        }
    }

    /// Measures one step, all sides in turns.
    pub(super) fn run(&self, step: &Step<'_>, progress: &dyn Progress) -> Result<Rows, BenchError> {
        match (step, self.experiment.kind) {
            (Step::Loads, _) => rounds::loads(self, progress),
            (Step::Point(point), Kind::Rounds | Kind::Loads) => rounds::run(self, point, progress),
            (Step::Point(point), Kind::TableSkew | Kind::RegionSkew) => skew::run(self, point, progress),
            (Step::Point(point), Kind::Shift) => shift::run(self, point, progress),
        }
    }

    pub(super) fn describe(&self) -> String {
        let first = &self.points[0].variant;
        format!(
            "{} keys of {KEY_BYTES} bytes, values of {} bytes; {} bits a key for filters, {} in all, units of {}; block \
             cache {}, {}; {} unmeasured gets, then {} of {} operations",
            grouped(loaded_of(self.keys.len())),
            first.value_bytes,
            self.settings.bits,
            bytes((self.settings.bits * loaded_of(self.keys.len()) as f64 / 8.0) as u64),
            bytes(unit_bytes(&self.settings)),
            bytes(first.cache_bytes),
            match self.direct() {
                true => "direct I/O",
                false => "tables mapped through the page cache",
            },
            grouped(self.warmup),
            match self.experiment.kind {
                Kind::Shift => "windows".to_owned(),
                Kind::TableSkew | Kind::RegionSkew => "one pass".to_owned(),
                Kind::Rounds | Kind::Loads => format!("{} rounds", self.repeats),
            },
            grouped(self.ops),
        )
    }
}

/// Whether there are no rounds, but gets from a cold start.
fn one_pass(experiment: &ElasticExperiment) -> bool {
    matches!(experiment.kind, Kind::Shift | Kind::TableSkew | Kind::RegionSkew)
}

/// Whether a pattern says which keys a workload is about.
fn drawn_by_pattern(workload: Workload) -> bool {
    use Workload::*;
    matches!(
        workload,
        GetZipf
            | SeekNext50
            | SeekNext20
            | Seek
            | SeekZipf
            | ReadWrite
            | ReadMostly
            | YcsbA
            | YcsbB
            | YcsbC
            | YcsbD
            | YcsbE
            | YcsbF
    )
}

pub(super) fn request(why: impl ToString) -> BenchError {
    BenchError::Request(why.to_string())
}
