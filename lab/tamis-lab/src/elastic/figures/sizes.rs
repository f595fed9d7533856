//! The sizes of the experiments, and their differences from the paper.

use tamis_bench::BenchError;
use tamis_bench::report::{bytes, grouped};

use crate::elastic::catalogue::{Grid, Kind};
use crate::elastic::database::loaded_of;
use crate::elastic::device::Drive;
use crate::elastic::plan::{Job, KEY_BYTES, request};
use crate::elastic::points::{Point, unit_bytes};
use crate::elastic::{ElasticExperiment, ElasticSettings, Vary, restart, windows};
use crate::figures::compose::distinct;
use crate::figures::{Custom, Needs, Scale};

/// Number of keys of the paper's databases: 100 GB of pairs of 1 KiB.
const PAPER_KEYS: u64 = 100_000_000;
const PAPER_VALUE_BYTES: usize = 1024 - KEY_BYTES;

/// Number of gets of a figure in the paper, over all rounds.
const PAPER_OPS: u64 = 10_000_000;

/// Size of the paper's units in bytes: 4 bits for each of the 4,096 keys of a segment of 4 MiB.
const PAPER_UNIT_BYTES: u64 = 2048;

/// Duration of a get with direct reads.
const DIRECT_MICROS: u64 = 100;

/// Duration of a get with reads from memory.
const MAPPED_MICROS: u64 = 5;

/// Gets of a window of warming up at the small scale.
const SMALL_WINDOW: u64 = 250;

/// Numbers of threads of the paper's Figure 10d.
const PAPER_THREADS: &[usize] = &[1, 16];

/// The options that these figures accept.
const TAKEN: [&str; 18] = [
    "--keys",
    "--value-bytes",
    "--filters",
    "--bits",
    "--workload",
    "--threads",
    "--ops",
    "--repeat",
    "--direct",
    "--mapped",
    "--device",
    "--skew",
    "--absent",
    "--locality",
    "--warmup",
    "--cache",
    "--db",
    "--option",
];

/// Returns the experiment and its sizes at a scale.
pub(super) fn sized(experiment: &ElasticExperiment, scale: Scale) -> (ElasticExperiment, ElasticSettings) {
    let settings = ElasticSettings { bits: experiment.bits, ..ElasticSettings::default() };
    let mut experiment = experiment.clone();
    let times = experiment.half_keys;
    match scale {
        Scale::Small => {
            let most = match experiment.kind {
                Kind::TableSkew | Kind::RegionSkew => 10_000,
                Kind::Shift | Kind::Cold | Kind::Restart => 200,
                Kind::Rounds | Kind::Replay | Kind::Loads => 500,
            };
            experiment.ops = experiment.ops.min(most);
            experiment.repeats = experiment.repeats.min(2);
            // Enough segments to distinguish hot from cold.
            let keys = 25_000 * times;
            (
                experiment,
                ElasticSettings { keys, unit_bytes: Some(512), warm_window: SMALL_WINDOW, ..settings },
            )
        }
        Scale::Default => (experiment, ElasticSettings { keys: settings.keys / 2 * times, ..settings }),
        Scale::Paper => {
            if experiment.name == "elastic-fig10" {
                // As in the paper, which begins cold.
                experiment.warm = false;
                experiment.grids = &[Grid {
                    skews: &[0.99],
                    absents: &[50],
                    localities: &[1, 4096],
                    threads: PAPER_THREADS,
                }];
            }
            experiment.ops = match experiment.kind {
                // Ten million scans of 50 entries, or three loads, take days.
                Kind::Loads => PAPER_OPS / 10,
                Kind::Shift | Kind::Cold => PAPER_OPS / windows::count(experiment.kind),
                Kind::Restart => PAPER_OPS / restart::WINDOWS,
                // A replay is all of the paper's gets.
                Kind::Replay => PAPER_OPS,
                _ => PAPER_OPS / u64::from(experiment.repeats),
            };
            if experiment.kind == Kind::Loads {
                experiment.repeats = 1;
            }
            let cache = (experiment.vary != Some(Vary::Cache)).then_some(0);
            let settings = ElasticSettings {
                keys: paper_keys(&experiment),
                value_bytes: PAPER_VALUE_BYTES,
                unit_bytes: Some(PAPER_UNIT_BYTES),
                cache_bytes: cache,
                warm_window: PAPER_OPS / 10,
                ..settings
            };
            (experiment, settings)
        }
    }
}

/// Returns the number of keys of the paper's database in a figure, of the smallest one where it varies.
fn paper_keys(experiment: &ElasticExperiment) -> u64 {
    PAPER_KEYS / 2 * experiment.half_keys.max(2)
}

/// Applies the custom settings.
pub(super) fn customized(
    experiment: &ElasticExperiment,
    settings: ElasticSettings,
    custom: &Custom,
) -> Result<ElasticSettings, BenchError> {
    fn some<T: Clone>(list: &[T]) -> Option<Vec<T>> {
        (!list.is_empty()).then(|| list.to_vec())
    }
    custom.refuse_all_but(experiment.name, &TAKEN)?;
    let own = match experiment.vary {
        Some(Vary::Cache) if custom.cache_bytes.is_some() => Some("--cache"),
        Some(Vary::Value) if custom.value_bytes.is_some() => Some("--value-bytes"),
        _ => None,
    };
    if let Some(flag) = own {
        return Err(request(format!(
            "{} does not take {flag}, since it varies this setting",
            experiment.name
        )));
    }
    let bits = match custom.bits[..] {
        [] => settings.bits,
        [bits] => bits,
        _ => return Err(request("--bits must be one number here: all sides have the same memory")),
    };
    let sides = custom.filters.iter().map(|name| name.parse()).collect::<Result<Vec<_>, _>>();
    Ok(ElasticSettings {
        keys: custom.keys.unwrap_or(settings.keys),
        value_bytes: custom.value_bytes.unwrap_or(settings.value_bytes),
        bits,
        sides: some(&sides.map_err(request)?),
        workloads: some(&custom.workloads),
        skews: some(&custom.skews),
        absents: some(&custom.absents),
        localities: some(&custom.localities),
        threads: some(&custom.threads),
        ops: custom.ops,
        warmup: custom.warmup,
        warm_window: settings.warm_window,
        repeats: custom.repeats,
        cache_bytes: custom.cache_bytes.or(settings.cache_bytes),
        direct: custom.direct,
        devices: some(&custom.devices),
        unit_bytes: settings.unit_bytes,
        dir: custom.dir.clone(),
        seed: custom.seed,
        options: custom.options.clone(),
    })
}

/// Lists the differences from the paper, and what was preserved.
pub(super) fn scaled(job: &Job) -> Vec<String> {
    let mut told = Vec::new();
    let first = &job.points[0].variant;
    let (keys, values) = (first.keys, first.value_bytes);
    let paper = paper_keys(&job.experiment);
    let varies = |vary| job.experiment.vary == Some(vary);
    if keys != paper || (values != PAPER_VALUE_BYTES && !varies(Vary::Value)) {
        // Varied sizes have the paper's ratios to the smallest.
        let theirs = job.each(|variant| format!("{}", paper / 1_000_000 * (variant.keys / keys)));
        let ours = job.each(|variant| grouped(variant.keys));
        told.push(match varies(Vary::Value) {
            true => format!("{ours} keys instead of {theirs} million."),
            false => {
                format!(
                    "{ours} keys with values of {values} bytes instead of {theirs} million pairs of 1 KiB."
                )
            }
        });
    }
    let rounds = u64::from(job.repeats);
    let asked = job.base_ops.saturating_mul(rounds);
    if asked < PAPER_OPS && !matches!(job.experiment.kind, Kind::Shift | Kind::Cold | Kind::Restart) {
        told.push(format!("{} operations per point instead of 10 million.", grouped(asked)));
    }
    for variant in distinct(job.points.iter().map(|point| &point.variant)) {
        if job.ops(variant) < job.base_ops {
            told.push(format!(
                "{} operations on {}, whose reads take milliseconds.",
                grouped(job.ops(variant).saturating_mul(rounds)),
                job.device_name(variant)
            ));
        }
    }
    if !varies(Vary::UnitSize) && !varies(Vary::UnitBits) && unit_bytes(&job.settings) != PAPER_UNIT_BYTES {
        told.push(format!(
            "Filter units of {} instead of 2 KiB, so that there are enough segments to distinguish hot from cold.",
            bytes(unit_bytes(&job.settings))
        ));
    }
    if !varies(Vary::Cache) && first.cache_bytes > 0 {
        let caches = match varies(Vary::Keys) {
            true => job.each(|variant| bytes(variant.cache_bytes)),
            false => bytes(first.cache_bytes),
        };
        told.push(format!("A block cache of {caches}; the paper has none by default."));
    }
    let drives: Vec<_> = job.points.iter().filter_map(|point| point.variant.drive.as_ref()).collect();
    if !drives.is_empty() {
        let drives = distinct(drives.into_iter().map(Drive::describe)).join(", ");
        told.push(format!("Tables are on {drives}; the paper has an SSD, and an HDD in Figure 16a."));
    } else if !job.direct() && job.experiment.direct {
        told.push("Tables are read through the page cache instead of direct I/O.".into());
    }
    let tree = match varies(Vary::Tree) {
        true => "three runs in level 0 of every tree",
        false => "a tree with three runs in level 0 and one in each level below",
    };
    told.push(format!("Kept: {} filter bits per key for all sides, and {tree}.", job.settings.bits));
    told
}

/// Estimates costs from runs on two cores: loading takes about two microseconds per key and two per hundred bytes
/// including compactions, a get with direct reads about a hundred, a mapped one about five; on a device about 1.2
/// reads.
pub(super) fn needs(job: &Job) -> Needs {
    let bases = distinct(job.points.iter().flat_map(|point| {
        let variant = &point.variant;
        let options = variant.options.iter().filter(|(name, _)| name.starts_with("keyspace."));
        let options: Vec<_> = options.cloned().collect();
        let base = (variant.keys, variant.value_bytes, options);
        job.sides.iter().map(move |side| (side.filter().to_owned(), base.clone()))
    }));
    let data = |keys: u64, value_bytes: usize| loaded_of(keys) * (KEY_BYTES + value_bytes) as u64;
    let each = || bases.iter().map(|(_, (keys, value_bytes, _))| data(*keys, *value_bytes));
    let kept: u64 = each().map(|data| data / 10 * 11).sum();
    let largest = each().max().unwrap_or(0);
    let load_micros = |keys: u64, value_bytes: usize| 2 * loaded_of(keys) + data(keys, value_bytes) / 50;
    let mut loading: u64 =
        bases.iter().map(|(_, (keys, value_bytes, _))| load_micros(*keys, *value_bytes)).sum();
    let keys = job.points.iter().map(|point| loaded_of(point.variant.keys)).max().unwrap_or(0);
    if job.experiment.kind == Kind::Loads {
        let once = job.points.iter().map(|p| load_micros(p.variant.keys, p.variant.value_bytes)).max();
        loading += u64::from(job.repeats) * job.sides.len() as u64 * once.unwrap_or(0);
    }
    let micros = |point: &Point| {
        let variant = &point.variant;
        let ops = job.ops(variant);
        let (unmeasured, measured) = match job.experiment.kind {
            Kind::Shift | Kind::Cold => (0, ops * windows::count(job.experiment.kind)),
            Kind::Restart => (job.warmup.expected(), ops * restart::WINDOWS),
            Kind::TableSkew | Kind::RegionSkew => (0, ops * 2),
            Kind::Rounds | Kind::Replay | Kind::Loads => {
                (job.warmup.expected(), ops * u64::from(job.repeats))
            }
        };
        let read = match &variant.drive {
            Some(drive) => MAPPED_MICROS + (drive.expected_ns() * 1.2 / 1000.0) as u64,
            None if job.direct() => DIRECT_MICROS,
            None => MAPPED_MICROS,
        };
        let emulated = variant.drive.as_ref().is_some_and(Drive::is_emulated);
        let unmeasured = unmeasured * if emulated { MAPPED_MICROS } else { read };
        // A scan reads several blocks.
        let blocks = if job.experiment.kind == Kind::Loads { 5 } else { 1 };
        (unmeasured + measured * read) * blocks * job.sides.len() as u64
    };
    let asked: u64 = job.points.iter().map(micros).sum();
    Needs {
        seconds: (loading + asked).div_ceil(1_000_000) + 1,
        disk_bytes: kept + largest / 10 * 11,
        memory_bytes: (128 << 20) + (job.settings.bits * keys as f64 / 4.0) as u64 + keys / 2,
    }
}
