//! The points of an experiment: all combinations of its grids and of the variants of the varied setting.

use std::collections::BTreeSet;

use tamis_bench::BenchError;
use tamis_bench::pattern::PatternSpec;
use tamis_bench::report::{bytes, grouped};
use tamis_bench::workload::Workload;

use crate::elastic::ElasticSettings;
use crate::elastic::catalogue::{ElasticExperiment, Kind, Vary};
use crate::elastic::device::Drive;
use crate::elastic::plan::{KEY_BYTES, request};

/// Minimum number of segments of a database, unless units would get too small.
const SEGMENTS: u64 = 4000;

/// Limits of unit sizes. The smallest has 24 blocks, for 2048 keys of three bits: bookkeeping weighs more in smaller ones, and
/// the hotness of larger ones is less even.
const UNIT_BYTES: std::ops::RangeInclusive<u64> = 808..=4096;

/// Bits of a unit per key, where they do not vary.
const UNIT_BITS: u64 = 3;

/// Approximate bits of all units of a segment per key.
const GROUP_BITS: u64 = 24;

/// Ratio of data size to block cache, which is at most [`MOST_CACHE`]: 8 MiB of 10 GiB.
const DATA_BY_CACHE: u64 = 1280;

/// Maximum size of the block cache.
const MOST_CACHE: u64 = 8 << 20;

/// Varied sizes of databases, relative to the smallest.
const SIZES: [u64; 3] = [1, 2, 4];

/// Varied trees: the engine with such trees, and the options.
const TREES: [(&str, &[(&str, &str)]); 3] = [
    (
        "leveldb",
        &[
            ("keyspace.compaction", "leveling"),
            ("keyspace.merge", "partial"),
            ("keyspace.picker", "round-robin"),
        ],
    ),
    (
        "rocksdb",
        &[
            ("keyspace.compaction", "leveling"),
            ("keyspace.merge", "partial"),
            ("keyspace.picker", "least-overlap"),
        ],
    ),
    ("pebblesdb", &[("keyspace.compaction", "fragmented")]),
];

/// Varied devices: the paper's two, two later ones, and this machine's.
const DEVICES: [&str; 5] = ["hdd", "ssd", "pcie-ssd", "nvm", "disk"];

/// A configuration of loading or opening databases.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Variant {
    pub(super) label: String,
    /// The varied setting, if it is a number.
    pub(super) setting: Option<f64>,
    /// Number of all keys: a fiftieth is held back.
    pub(super) keys: u64,
    pub(super) value_bytes: usize,
    pub(super) cache_bytes: u64,
    /// The named device; without one reads are direct or mapped, as set by the experiment or an option.
    pub(super) drive: Option<Drive>,
    /// Options of the database by name.
    pub(super) options: Vec<(&'static str, String)>,
}

/// One point of a figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) label: String,
    pub(super) variant: Variant,
    pub(super) workload: Workload,
    pub(super) spec: PatternSpec,
    pub(super) threads: usize,
}

/// Returns the size of a unit in bytes: the largest that permits [`SEGMENTS`] segments, if possible.
pub(super) fn unit_bytes(settings: &ElasticSettings) -> u64 {
    if let Some(given) = settings.unit_bytes {
        return given;
    }
    let wanted = (settings.keys / SEGMENTS * UNIT_BITS / 8).max(1);
    (1 << wanted.ilog2()).clamp(*UNIT_BYTES.start(), *UNIT_BYTES.end())
}

/// Returns all points, without duplicates.
pub(super) fn points(
    experiment: &ElasticExperiment,
    settings: &ElasticSettings,
) -> Result<Vec<Point>, BenchError> {
    let variants = variants(experiment, settings)?;
    let workloads = settings.workloads.clone().unwrap_or_else(|| experiment.workloads.to_vec());
    let mut points: Vec<Point> = Vec::new();
    for variant in &variants {
        for grid in experiment.grids {
            let mut absents = settings.absents.clone().unwrap_or_else(|| grid.absents.to_vec());
            let mut localities = match &settings.localities {
                Some(given) => given.clone(),
                // A tiny database is a single neighbourhood.
                None => grid.localities.iter().map(|&locality| locality.min(variant.keys)).collect(),
            };
            match experiment.vary {
                Some(Vary::Absent) if settings.absents.is_none() => absents = vec![0, 25, 50, 75, 100],
                Some(Vary::Locality) if settings.localities.is_none() => {
                    localities =
                        [1, 16, 256, 4096, 65_536].into_iter().filter(|&l| l <= variant.keys).collect();
                }
                _ => {}
            }
            for &workload in &workloads {
                for &skew in settings.skews.as_deref().unwrap_or(grid.skews) {
                    for &absent_percent in &absents {
                        for &locality in &localities {
                            for &threads in settings.threads.as_deref().unwrap_or(grid.threads) {
                                let mut spec = PatternSpec { skew, absent_percent, locality };
                                spec.check(variant.keys)?;
                                if skew == 0.0 {
                                    // Locality has no effect without hot keys.
                                    spec.locality = 1;
                                }
                                let variant = variant.clone();
                                let point = Point { label: String::new(), variant, workload, spec, threads };
                                if !points.contains(&point) {
                                    points.push(point);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    label(&mut points);
    Ok(points)
}

/// Names the differences between points.
fn label(points: &mut [Point]) {
    let differs = |of: &dyn Fn(&Point) -> String| {
        let values: BTreeSet<String> = points.iter().map(of).filter(|value| !value.is_empty()).collect();
        values.len() > 1
    };
    let parts: [&dyn Fn(&Point) -> String; 5] = [
        &|point| point.variant.label.clone(),
        &|point| match point.spec.skew {
            0.0 => "uniform".into(),
            skew => format!("skew {skew}"),
        },
        &|point| format!("{} % absent", point.spec.absent_percent),
        &|point| match point.spec.skew {
            0.0 => String::new(),
            _ => format!("locality {}", point.spec.locality),
        },
        &|point| format!("{} threads", point.threads),
    ];
    let named: Vec<_> = parts.into_iter().filter(|part| differs(*part)).collect();
    let name = |point: &Point| {
        let parts: Vec<String> =
            named.iter().map(|part| part(point)).filter(|part| !part.is_empty()).collect();
        parts.join(", ")
    };
    let labels: Vec<String> = points.iter().map(name).collect();
    points.iter_mut().zip(labels).for_each(|(point, label)| point.label = label);
}

/// Returns the configurations of loading and opening databases.
fn variants(experiment: &ElasticExperiment, settings: &ElasticSettings) -> Result<Vec<Variant>, BenchError> {
    let drives = drives(experiment, settings)?;
    let data = |keys: u64, value_bytes: usize| keys * (KEY_BYTES + value_bytes) as u64;
    let cache = |keys, value_bytes| {
        let part = (data(keys, value_bytes) / DATA_BY_CACHE).min(MOST_CACHE);
        settings.cache_bytes.unwrap_or(part)
    };
    let base = Variant {
        label: String::new(),
        setting: None,
        keys: settings.keys,
        value_bytes: settings.value_bytes,
        cache_bytes: cache(settings.keys, settings.value_bytes),
        drive: if experiment.vary == Some(Vary::Device) { None } else { drives.first().cloned() },
        options: Vec::new(),
    };
    let with = |label: String, setting: Option<u64>, options: Vec<(&'static str, String)>| Variant {
        label,
        setting: setting.map(|setting| setting as f64),
        options,
        ..base.clone()
    };
    let unit = unit_bytes(settings);
    Ok(match experiment.vary {
        Some(Vary::Cache) => {
            // None, 8 MiB and 64 MiB of 100 GB, or about the same shares of less.
            let some = (data(settings.keys, settings.value_bytes) / DATA_BY_CACHE).min(MOST_CACHE);
            [0, some, 8 * some]
                .map(|cache_bytes| Variant {
                    label: format!("cache {}", bytes(cache_bytes)),
                    setting: Some(cache_bytes as f64),
                    cache_bytes,
                    ..base.clone()
                })
                .to_vec()
        }
        Some(Vary::Value) => [128, 256, 512, 1024]
            .map(|value_bytes| Variant {
                label: format!("values of {value_bytes}"),
                setting: Some(value_bytes as f64),
                value_bytes,
                cache_bytes: cache(settings.keys, value_bytes),
                ..base.clone()
            })
            .to_vec(),
        Some(Vary::UnitSize) => [unit / 4, unit / 2, unit, unit * 4, unit * 16]
            .map(|size| {
                with(
                    format!("units of {}", bytes(size)),
                    Some(size),
                    vec![("keyspace.filter_unit_bytes", size.to_string())],
                )
            })
            .to_vec(),
        Some(Vary::LifeTime) => {
            let segments = (settings.keys * UNIT_BITS / 8 / unit).max(1);
            let auto = vec![("filter_life_time", "auto".into())];
            let mut variants = vec![with("life time auto".into(), None, auto)];
            variants.extend([1, 4, 16, 64].map(|times| {
                let gets = segments * times;
                with(format!("life time {gets}"), Some(gets), vec![("filter_life_time", gets.to_string())])
            }));
            variants
        }
        // Segments stay the same, so a unit's size depends on its bits.
        Some(Vary::UnitBits) => [2, 3, 4, 6, 8, 12]
            .map(|bits| {
                let options = vec![
                    ("keyspace.filter_unit_bits", bits.to_string()),
                    ("keyspace.filter_units", (GROUP_BITS / bits).to_string()),
                    ("keyspace.filter_unit_bytes", (unit * bits / UNIT_BITS).to_string()),
                ];
                with(format!("{bits} bits a unit"), Some(bits), options)
            })
            .to_vec(),
        Some(Vary::Keys) => SIZES
            .map(|times| settings.keys.saturating_mul(times))
            .map(|keys| Variant {
                label: format!("{} keys", grouped(keys)),
                setting: Some(keys as f64),
                keys,
                cache_bytes: cache(keys, settings.value_bytes),
                ..base.clone()
            })
            .to_vec(),
        Some(Vary::Device) => drives
            .into_iter()
            .map(|drive| Variant { label: drive.name.clone(), drive: Some(drive), ..base.clone() })
            .collect(),
        Some(Vary::Tree) => {
            if let Some((given, _)) = settings.options.iter().find(|(given, _)| varies_with_trees(given)) {
                return Err(request(format!(
                    "{given} depends on the tree, which {} varies",
                    experiment.name
                )));
            }
            TREES
                .map(|(engine, options)| {
                    let options = options.iter().map(|&(name, value)| (name, value.to_owned())).collect();
                    with(format!("tree as of {engine}"), None, options)
                })
                .to_vec()
        }
        Some(Vary::Absent | Vary::Locality) | None => vec![base],
    })
}

/// Reports whether a varied tree sets this option.
fn varies_with_trees(option: &str) -> bool {
    TREES.iter().any(|(_, options)| options.iter().any(|(name, _)| *name == option))
}

/// Returns the named devices: several only where they vary.
fn drives(experiment: &ElasticExperiment, settings: &ElasticSettings) -> Result<Vec<Drive>, BenchError> {
    let (name, varies) = (experiment.name, experiment.vary == Some(Vary::Device));
    let named = match &settings.devices {
        None if varies => DEVICES.map(str::to_owned).to_vec(),
        None => return Ok(Vec::new()),
        Some(named) => named.clone(),
    };
    if matches!(experiment.kind, Kind::TableSkew | Kind::RegionSkew) {
        return Err(request(format!("{name} only counts which tables are queried: omit --device")));
    }
    if experiment.kind == Kind::Loads {
        return Err(request(format!(
            "{name} measures loading, but a device emulates reads only: omit --device"
        )));
    }
    if !varies && named.len() > 1 {
        return Err(request(format!("{name} takes one --device: only elastic-fig16-device varies it")));
    }
    if settings.direct.is_some() {
        return Err(request(format!(
            "--device {} determines how tables are read: omit --direct and --mapped",
            named.join(",")
        )));
    }
    if settings.options.iter().any(|(option, _)| option == "read_mode") {
        return Err(request("read_mode depends on the device: omit it, or --device"));
    }
    named.iter().map(|name| Drive::of(name)).collect()
}
