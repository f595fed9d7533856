//! How large the experiments are, and what is smaller than in the paper.

use crate::elastic::catalogue::{Grid, Kind};
use crate::elastic::database::loaded_of;
use crate::elastic::plan::{Job, KEY_BYTES, request};
use crate::elastic::points::unit_bytes;
use crate::elastic::{ElasticExperiment, ElasticSettings, Vary};
use crate::error::BenchError;
use crate::figures::compose::distinct;
use crate::figures::{Custom, Needs, Scale};
use crate::report::{bytes, grouped};

/// Keys of the paper's databases: 100 GB of pairs of 1 KiB.
const PAPER_KEYS: u64 = 100_000_000;
const PAPER_VALUE_BYTES: usize = 1024 - KEY_BYTES;

/// Gets of a figure in the paper, over all rounds.
const PAPER_OPS: u64 = 10_000_000;

/// Bytes of a unit there: 4 bits for each of the 4,096 keys of a segment of 4 MiB.
const PAPER_UNIT_BYTES: u64 = 2048;

/// Threads of its Figure 10d.
const PAPER_THREADS: &[usize] = &[1, 16];

/// The flags that these figures take.
const TAKEN: [&str; 17] = [
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
    "--skew",
    "--absent",
    "--locality",
    "--warmup",
    "--cache",
    "--db",
    "--option",
];

/// The experiment and its sizes at a scale.
pub(super) fn sized(experiment: &ElasticExperiment, scale: Scale) -> (ElasticExperiment, ElasticSettings) {
    let (mut experiment, settings) = (experiment.clone(), ElasticSettings::default());
    match scale {
        Scale::Small => {
            let most = match experiment.kind {
                Kind::TableSkew | Kind::RegionSkew => 10_000,
                Kind::Shift => 200,
                Kind::Rounds | Kind::Loads => 500,
            };
            experiment.ops = experiment.ops.min(most);
            experiment.repeats = experiment.repeats.min(2);
            // Segments enough to tell hot from cold.
            (experiment, ElasticSettings { keys: 50_000, unit_bytes: Some(512), ..settings })
        }
        Scale::Default => (experiment, settings),
        Scale::Paper => {
            if experiment.name == "elastic-fig10" {
                experiment.grids = &[Grid {
                    skews: &[0.99],
                    absents: &[50],
                    localities: &[1, 4096],
                    threads: PAPER_THREADS,
                }];
            }
            experiment.ops = match experiment.kind {
                // Ten million scans of 50 take days, and loading three times, too.
                Kind::Loads => PAPER_OPS / 10,
                Kind::Shift => PAPER_OPS / 40,
                _ => PAPER_OPS / u64::from(experiment.repeats),
            };
            if experiment.kind == Kind::Loads {
                experiment.repeats = 1;
            }
            let cache = (experiment.vary != Some(Vary::Cache)).then_some(0);
            let settings = ElasticSettings {
                keys: PAPER_KEYS,
                value_bytes: PAPER_VALUE_BYTES,
                unit_bytes: Some(PAPER_UNIT_BYTES),
                cache_bytes: cache,
                ..settings
            };
            (experiment, settings)
        }
    }
}

/// With what was asked for.
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
        return Err(request(format!("{} does not take {flag}: it is what varies", experiment.name)));
    }
    let bits = match custom.bits[..] {
        [] => settings.bits,
        [bits] => bits,
        _ => return Err(request("--bits is one number here: all sides have the same memory")),
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
        repeats: custom.repeats,
        cache_bytes: custom.cache_bytes.or(settings.cache_bytes),
        direct: custom.direct,
        unit_bytes: settings.unit_bytes,
        dir: custom.dir.clone(),
        seed: custom.seed,
        options: custom.options.clone(),
    })
}

/// What is other than in the paper, and what is kept.
pub(super) fn scaled(job: &Job) -> Vec<String> {
    let mut told = Vec::new();
    let first = &job.points[0].variant;
    let (keys, values) = (job.keys.len(), first.value_bytes);
    let varies = |vary| job.experiment.vary == Some(vary);
    if keys != PAPER_KEYS || (values != PAPER_VALUE_BYTES && !varies(Vary::Value)) {
        told.push(match varies(Vary::Value) {
            true => format!("{} keys in place of 100 million.", grouped(keys)),
            false => format!(
                "{} keys with values of {values} bytes in place of 100 million pairs of 1 KiB.",
                grouped(keys)
            ),
        });
    }
    let rounds = u64::from(job.repeats);
    let asked = job.ops.saturating_mul(rounds);
    if asked < PAPER_OPS && job.experiment.kind != Kind::Shift {
        told.push(format!("{} operations a point in place of 10 million.", grouped(asked)));
    }
    if !varies(Vary::UnitSize) && !varies(Vary::UnitBits) && unit_bytes(&job.settings) != PAPER_UNIT_BYTES {
        told.push(format!(
            "Filter units of {} in place of 2 KiB, so that there are enough segments to tell hot from cold.",
            bytes(unit_bytes(&job.settings))
        ));
    }
    if !varies(Vary::Cache) && first.cache_bytes > 0 {
        told.push(format!("A block cache of {}; the paper has none by default.", bytes(first.cache_bytes)));
    }
    if !job.direct() && job.experiment.direct {
        told.push("Tables are read through the page cache in place of direct I/O.".into());
    }
    told.push(format!(
        "Kept: {} bits of filter a key for all sides, and a tree with three runs in level 0 and one in each level below.",
        job.settings.bits
    ));
    told
}

/// Roughly, from runs on two cores: loading takes some four microseconds a key with its compactions, a direct read some two
/// hundred, a mapped one some five.
pub(super) fn needs(job: &Job) -> Needs {
    let bases = distinct(job.points.iter().flat_map(|point| {
        let options = point.variant.options.iter().filter(|(name, _)| name.starts_with("keyspace."));
        let options: Vec<_> = options.cloned().collect();
        let base = (point.variant.value_bytes, options);
        job.sides.iter().map(move |side| (side.filter().to_owned(), base.clone()))
    }));
    let keys = loaded_of(job.keys.len());
    let data = |value_bytes: usize| keys * (KEY_BYTES + value_bytes) as u64;
    let kept: u64 = bases.iter().map(|(_, (value_bytes, _))| data(*value_bytes) / 10 * 11).sum();
    let largest = bases.iter().map(|(_, (value_bytes, _))| data(*value_bytes)).max().unwrap_or(0);
    let loads = bases.len() as u64
        + match job.experiment.kind {
            Kind::Loads => u64::from(job.repeats) * job.sides.len() as u64,
            _ => 0,
        };
    let of_one = match job.experiment.kind {
        Kind::Shift => job.ops * 40,
        Kind::TableSkew | Kind::RegionSkew => job.ops * 2,
        Kind::Rounds | Kind::Loads => job.warmup + job.ops * u64::from(job.repeats),
    };
    let asked = of_one * job.points.len() as u64 * job.sides.len() as u64;
    let read = if job.direct() { 200 } else { 5 };
    // A scan reads some blocks.
    let read = if job.experiment.kind == Kind::Loads { 5 * read } else { read };
    Needs {
        seconds: (loads * keys * 4 + asked * read).div_ceil(1_000_000) + 1,
        disk_bytes: kept + largest / 10 * 11,
        memory_bytes: (128 << 20) + (job.settings.bits * keys as f64 / 4.0) as u64 + keys / 2,
    }
}
