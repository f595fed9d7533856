//! An experiment with all settings resolved: its points, and all checks that do not need loaded data.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::Arc;

use tamis::clock::Clock;
use tamis::options::ReadMode;
use tamis::{Db, Durability, Options};
use tamis_bench::BenchError;
use tamis_bench::keys::KeySet;
use tamis_bench::pattern::Pattern;
use tamis_bench::progress::Progress;
use tamis_bench::report::{bytes, grouped};
use tamis_bench::run::Fill;
use tamis_bench::workload::Workload;
use tamis_testkit::EmulatedFs;

use crate::elastic::catalogue::{ElasticExperiment, Kind, Vary};
use crate::elastic::database::{Bases, Copy, Data, FEWEST_KEYS, LoadRow, loaded_of};
use crate::elastic::device::Drive;
use crate::elastic::memory::{bytes_of, common, equalize, filter_bytes_of};
use crate::elastic::points::{Point, Variant, points, unit_bytes};
use crate::elastic::rows::{MissingRow, Rows};
use crate::elastic::side::ElasticSide;
use crate::elastic::warmup::Warmup;
use crate::elastic::{restart, rounds, skew, windows};
use crate::figures::compose::distinct;

/// Size of every key in bytes.
pub(super) const KEY_BYTES: usize = 16;

/// Adjustable settings of an experiment; `None` is its own default.
#[derive(Clone, Debug)]
pub struct ElasticSettings {
    /// Number of all keys; a fiftieth is held back for workloads that insert.
    pub keys: u64,
    /// Size of every value in bytes.
    pub value_bytes: usize,
    /// Bits of filter memory per key.
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
    /// Numbers of threads.
    pub threads: Option<Vec<usize>>,
    /// Operations per workload and round, over all threads; gets per window in a shift.
    pub ops: Option<u64>,
    /// Number of unmeasured gets; without one, until the placement of filters has settled.
    pub warmup: Option<u64>,
    /// Number of gets after which it is asked whether the placement has settled.
    pub warm_window: u64,
    /// Number of rounds.
    pub repeats: Option<u32>,
    /// Bytes of the block cache.
    pub cache_bytes: Option<u64>,
    /// Whether reads bypass the page cache.
    pub direct: Option<bool>,
    /// Names of devices: one, or those to compare where they vary.
    pub devices: Option<Vec<String>>,
    /// Size of a filter unit in bytes where it does not vary.
    pub unit_bytes: Option<u64>,
    /// Directory in which databases are kept; a temporary one if absent.
    pub dir: Option<PathBuf>,
    /// Seed of all random choices.
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
            warm_window: 50_000,
            repeats: None,
            cache_bytes: None,
            direct: None,
            devices: None,
            unit_bytes: None,
            dir: None,
            seed: 1,
            options: Vec::new(),
        }
    }
}

/// Options that would contradict a side's name, and what to use instead.
const OWN_OPTIONS: [(&str, &str); 6] = [
    ("keyspace.filter", "--filters"),
    ("keyspace.filter_allocation", "--filters monkey"),
    ("keyspace.bits_per_key", "--bits"),
    ("filter_budget_bytes", "--bits"),
    ("read_memory_bytes", "--bits and --cache"),
    ("heat_inheritance", "--filters elastic-cold"),
];

/// The unit of measurement.
pub(super) enum Step<'a> {
    /// Loading, in rounds.
    Loads,
    /// A point.
    Point(&'a Point),
}

/// One side's database, ready to be measured.
pub(super) struct Opened {
    pub(super) copy: Copy,
    /// The emulated device that slows its reads of tables down, if any: off.
    pub(super) fs: Option<EmulatedFs>,
    pub(super) load: LoadRow,
    /// The options that it was opened with.
    pub(super) options: Options,
}

/// An experiment with all settings resolved. Used by one thread at a time.
pub(super) struct Job {
    pub(super) experiment: ElasticExperiment,
    pub(super) settings: ElasticSettings,
    /// The keys of all variants, one set for each number.
    key_sets: Vec<KeySet>,
    pub(super) sides: Vec<ElasticSide>,
    pub(super) points: Vec<Point>,
    pub(super) repeats: u32,
    /// Operations per round, except for [slow devices](Job::ops).
    pub(super) base_ops: u64,
    pub(super) warmup: Warmup,
    /// Created on demand.
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
                "{} keys are too few for a tree of several levels: use --keys {FEWEST_KEYS} or more",
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
        let points = points(experiment, settings)?;
        let numbers = distinct(points.iter().map(|point| point.variant.keys));
        let key_sets = numbers.into_iter().map(|keys| KeySet::sequential(keys, KEY_BYTES));
        let job = Job {
            experiment: experiment.clone(),
            settings: settings.clone(),
            key_sets: key_sets.collect::<Result<_, _>>()?,
            sides,
            points,
            repeats: settings.repeats.unwrap_or(experiment.repeats).max(1),
            base_ops: ops,
            warmup: match settings.warmup {
                Some(gets) => Warmup::Gets(gets),
                None if !experiment.warm || from_cold(experiment) => Warmup::Gets(0),
                None if experiment.kind == Kind::Replay => Warmup::Settled(ops),
                None => Warmup::Settled(settings.warm_window),
            },
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
                    "{side} is one filter for the whole tree; choose filters of single tables"
                )));
            }
        }
        for (option, instead) in OWN_OPTIONS {
            if self.settings.options.iter().any(|(given, _)| given == option) {
                return Err(request(format!("{option} depends on the side; use {instead}")));
            }
        }
        let one_pass = one_pass(&self.experiment);
        if one_pass && self.repeats > 1 {
            return Err(request(format!("{name} has no rounds: omit --repeat, or use another --seed")));
        }
        if one_pass
            && (self.settings.workloads.is_some() || self.points.iter().any(|point| point.threads != 1))
        {
            return Err(request(format!(
                "{name} has gets of one thread only: omit --workload and --threads"
            )));
        }
        if from_cold(&self.experiment) && self.settings.warmup.is_some() {
            return Err(request(format!("{name} counts from the first get on: omit --warmup")));
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
                    "{} does not follow hotness; known are {names}",
                    point.workload
                )));
            }
            let inserts = Fill::inserts(point.workload, self.ops(&point.variant)) * u64::from(self.repeats);
            let held_back = point.variant.keys - loaded_of(point.variant.keys);
            if inserts > held_back {
                return Err(request(format!(
                    "{} inserts {inserts} keys, but {held_back} are held back: use more --keys, or reduce --ops or \
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

    /// Returns the options of one side's database.
    pub(super) fn options(&self, side: &ElasticSide, variant: &Variant) -> Result<Options, BenchError> {
        let mut options = Options::default();
        options.set("keyspace.compression", "none")?;
        options.durability = Durability::Buffered;
        // The shape must be the same for all sides.
        options.keyspace.read_compaction = false;
        // Counted reads are those that were needed: none ahead, and no second candidate beside the first.
        options.read_queue_depth = 1;
        options.cache_bytes = variant.cache_bytes;
        match &variant.drive {
            Some(drive) => options.read_mode = drive.read_mode(),
            None if self.direct() => options.read_mode = ReadMode::Direct,
            None => {}
        }
        self.data(variant).apply(&mut options);
        options.keyspace.filter_unit_bytes = unit_bytes(&self.settings);
        side.apply(self.settings.bits, loaded_of(variant.keys), &mut options)?;
        for (name, value) in &variant.options {
            options.set(name, value)?;
        }
        for (name, value) in &self.settings.options {
            options.set(name, value)?;
        }
        Ok(options)
    }

    pub(super) fn data(&self, variant: &Variant) -> Data<'_> {
        Data {
            keys: self.keys(variant),
            value_bytes: variant.value_bytes,
            seed: self.settings.seed,
            portions: None,
        }
    }

    /// Returns the directory of databases, creating it on first use.
    pub(super) fn bases(&self) -> Result<&Bases, BenchError> {
        match self.bases.get() {
            Some(bases) => Ok(bases),
            None => {
                let made = Bases::in_dir(self.settings.dir.as_deref())?;
                Ok(self.bases.get_or_init(|| made))
            }
        }
    }

    /// Returns the keys of a variant's databases.
    pub(super) fn keys(&self, variant: &Variant) -> &KeySet {
        let found = self.key_sets.iter().find(|keys| keys.len() == variant.keys);
        found.expect("every variant's keys were generated with the job")
    }

    /// Returns the bytes asked for every side's filters.
    pub(super) fn filter_bytes(&self, variant: &Variant) -> u64 {
        bytes_of(self.settings.bits, loaded_of(variant.keys))
    }

    /// Gives the elastic filters of a point's sides as much memory as the fixed ones have. Returns its bytes.
    pub(super) fn equalize_all<'d>(
        &self,
        variant: &Variant,
        sides: impl Iterator<Item = (&'d ElasticSide, &'d Db)> + Clone,
    ) -> Result<u64, BenchError> {
        let fixed = sides.clone().filter(|(side, _)| !side.is_elastic());
        let bytes = common(self.filter_bytes(variant), fixed.map(|(_, db)| filter_bytes_of(&db.stats())));
        for (_, db) in sides {
            equalize(db, bytes)?;
        }
        Ok(bytes)
    }

    /// Returns the number of operations per round: fewer on a slow device, unless a number was given.
    pub(super) fn ops(&self, variant: &Variant) -> u64 {
        match &variant.drive {
            Some(drive) if self.settings.ops.is_none() => drive.part_of(self.base_ops),
            _ => self.base_ops,
        }
    }

    /// Returns the storage of tables: a device's name, `disk` bypassing the page cache, `mapped` through it.
    pub(super) fn device_name<'v>(&self, variant: &'v Variant) -> &'v str {
        match &variant.drive {
            Some(drive) => &drive.name,
            None if self.direct() => "disk",
            None => "mapped",
        }
    }

    /// Reports whether reads of tables bypass the page cache, where no device is named.
    pub(super) fn direct(&self) -> bool {
        self.settings.direct.unwrap_or(self.experiment.direct)
    }

    /// Returns the directory for copies of a variant's databases, if they do not go beside their bases, or why its
    /// device is not available.
    fn place(&self, variant: &Variant) -> Result<Result<Option<PathBuf>, String>, BenchError> {
        let Some(drive) = &variant.drive else { return Ok(Ok(None)) };
        let of_one = loaded_of(variant.keys) * (KEY_BYTES + variant.value_bytes) as u64;
        Ok(drive.place(self.bases()?.dir(), of_one * self.sides.len() as u64 / 10 * 11))
    }

    /// Opens a copy of a side's database, which is loaded first unless it exists. An emulated device is off.
    pub(super) fn open(
        &self,
        side: &ElasticSide,
        variant: &Variant,
        progress: &dyn Progress,
    ) -> Result<Opened, BenchError> {
        self.open_with(side, variant, None, progress)
    }

    /// Like [`open`](Job::open), with another clock than the system's.
    pub(super) fn open_with(
        &self,
        side: &ElasticSide,
        variant: &Variant,
        clock: Option<Arc<dyn Clock>>,
        progress: &dyn Progress,
    ) -> Result<Opened, BenchError> {
        let place = self.place(variant)?.map_err(request)?;
        let (mut options, data) = (self.options(side, variant)?, self.data(variant));
        let bases = self.bases()?;
        let mut load = bases.base(side.filter(), &options, &data, progress)?;
        load.experiment = self.experiment.name.into();
        // The database is the same on every device.
        let same = self.experiment.vary == Some(Vary::Device);
        load.point = if same { String::new() } else { variant.label.clone() };
        let fs = variant.drive.as_ref().and_then(Drive::file_system);
        if let Some(fs) = &fs {
            options.file_system = Some(Arc::new(fs.clone()));
        }
        options.clock = clock;
        let copy = bases.copy_in(place.as_deref(), side.filter(), &options, &data)?;
        if let Some(drive) = &variant.drive {
            drive.prepare(&copy.path())?;
        }
        Ok(Opened { copy, fs, load, options })
    }

    /// Returns the distribution of hot keys, also after a shift.
    pub(super) fn pattern(&self, point: &Point, moved: bool) -> Result<Pattern, BenchError> {
        let (keys, spec) = (point.variant.keys, point.spec);
        Pattern::new(keys, spec, self.settings.seed.wrapping_mul(2) + u64::from(moved))
    }

    /// Returns the steps: loads, where they are measured, and the points.
    pub(super) fn steps(&self) -> Vec<Step<'_>> {
        let loads = (self.experiment.kind == Kind::Loads).then_some(Step::Loads);
        loads.into_iter().chain(self.points.iter().map(Step::Point)).collect()
    }

    /// Returns the unique name of a point: its varied settings.
    pub(super) fn step_of(&self, point: &Point) -> String {
        let several = self.points.iter().any(|other| other.workload != point.workload);
        match (several, point.label.is_empty()) {
            (true, true) => point.workload.to_string(),
            (true, false) => format!("{}, {}", point.workload, point.label),
            (false, true) => "all sides".to_owned(),
            (false, false) => point.label.clone(),
        }
    }

    /// Measures one step with interleaved sides.
    pub(super) fn run(&self, step: &Step<'_>, progress: &dyn Progress) -> Result<Rows, BenchError> {
        if let Step::Point(Point { label, variant: variant @ Variant { drive: Some(drive), .. }, .. }) = step
            && let Err(why) = self.place(variant)?
        {
            progress.note(&format!("{} is omitted: {why}", drive.name));
            let (point, device) = (label.clone(), drive.name.clone());
            let missing = vec![MissingRow { kind: "missing".into(), point, device, why }];
            return Ok(Rows { missing, ..Rows::default() });
        }
        match (step, self.experiment.kind) {
            (Step::Loads, _) => rounds::loads(self, progress),
            (Step::Point(point), Kind::Rounds | Kind::Replay | Kind::Loads) => {
                rounds::run(self, point, progress)
            }
            (Step::Point(point), Kind::TableSkew | Kind::RegionSkew) => skew::run(self, point, progress),
            (Step::Point(point), Kind::Shift | Kind::Cold) => windows::run(self, point, progress),
            (Step::Point(point), Kind::Restart) => restart::run(self, point, progress),
        }
    }

    /// Returns the distinct texts of all variants.
    pub(super) fn each(&self, of: impl Fn(&Variant) -> String) -> String {
        distinct(self.points.iter().map(|point| of(&point.variant))).join(" / ")
    }

    pub(super) fn describe(&self) -> String {
        let first = &self.points[0].variant;
        // Where these vary, the points name them.
        let cache = |variant: &Variant| match self.experiment.vary {
            Some(Vary::Cache | Vary::Value) => bytes(first.cache_bytes),
            _ => bytes(variant.cache_bytes),
        };
        let filters = |variant: &Variant| self.filter_bytes(variant);
        let reads = match &first.drive {
            Some(_) => {
                let drives = self.points.iter().filter_map(|point| point.variant.drive.as_ref());
                distinct(drives.map(Drive::describe)).join(", ")
            }
            None if self.direct() => "direct I/O".to_owned(),
            None => "tables mapped through the page cache".to_owned(),
        };
        let fewer = distinct(self.points.iter().map(|point| &point.variant));
        let fewer = fewer.into_iter().filter(|variant| self.ops(variant) < self.base_ops);
        let fewer: String =
            fewer.map(|v| format!("; {} on {}", grouped(self.ops(v)), self.device_name(v))).collect();
        format!(
            "{} keys of {KEY_BYTES} bytes, values of {} bytes; {} bits per key for filters, {} in total, units of {}; block \
             cache {}, {reads}; {}, then {} of {} operations{fewer}",
            self.each(|variant| grouped(loaded_of(variant.keys))),
            first.value_bytes,
            self.settings.bits,
            self.each(|variant| bytes(filters(variant))),
            bytes(unit_bytes(&self.settings)),
            self.each(cache),
            self.warmup.describe(),
            match self.experiment.kind {
                Kind::Shift | Kind::Cold => format!("{} windows", windows::count(self.experiment.kind)),
                Kind::Restart => format!(
                    "{} windows before a restart and {} after it",
                    restart::BEFORE + restart::LOST,
                    restart::AFTER
                ),
                Kind::TableSkew | Kind::RegionSkew => "one pass".to_owned(),
                Kind::Rounds | Kind::Loads => format!("{} rounds", self.repeats),
                Kind::Replay => format!("{} replays", self.repeats),
            },
            grouped(self.base_ops),
        )
    }
}

/// Reports whether the procedure is gets of one thread instead of rounds.
fn one_pass(experiment: &ElasticExperiment) -> bool {
    from_cold(experiment) || experiment.kind == Kind::Restart
}

/// Reports whether the procedure is gets from a cold start on.
fn from_cold(experiment: &ElasticExperiment) -> bool {
    matches!(experiment.kind, Kind::Shift | Kind::Cold | Kind::TableSkew | Kind::RegionSkew)
}

/// Reports whether a pattern determines the keys of a workload.
fn drawn_by_pattern(workload: Workload) -> bool {
    use Workload::*;
    matches!(
        workload,
        GetZipf
            | SeekNext50
            | SeekNext20
            | SeekNext10000
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
