//! The sizes of the experiments, and their differences from the paper.

use tamis_bench::BenchError;
use tamis_bench::report::{bytes, grouped};
use tamis_bench::workload::Workload;

use crate::figures::{Custom, Needs, Paper, Scale};
use crate::filters::job::{Job, request};
use crate::filters::{Axis, Experiment, Settings};
use tamis::options::CompactionChoice;

/// Number of keys of the paper's databases, size of their values, and their size ratio.
const PAPER_KEYS: u64 = 40_000_000;
const PAPER_VALUE_BYTES: usize = 256;
const PAPER_SIZE_RATIO: u64 = 10;

/// Number of keys of our own experiments at the largest scale: as many as in the comparison with other engines.
const MOST_KEYS: u64 = 4_000_000;

/// Operations per round at the paper's scale; the paper does not give a number.
const PAPER_OPS: u64 = 100_000;

/// The same where updates shape the tree: they take two rounds of flushes in all.
const PAPER_UPDATES: u64 = 3_200_000;

/// The options that these figures accept.
const TAKEN: [&str; 14] = [
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
    "--cache",
    "--option",
];

/// Returns the experiment and its sizes at a scale.
pub(super) fn sized(experiment: &Experiment, scale: Scale) -> (Experiment, Settings) {
    let (mut experiment, settings) = (experiment.clone(), Settings::default());
    match scale {
        Scale::Small => {
            experiment.axis = match experiment.axis {
                Axis::Bits(_) => Axis::Bits(&[6.0, 10.0]),
                Axis::Threads(threads) => Axis::Threads(&threads[..threads.len().min(2)]),
                Axis::InFlight(counts) => Axis::InFlight(&counts[..counts.len().min(2)]),
                other => other,
            };
            experiment.keys = &experiment.keys[..experiment.keys.len().min(2)];
            experiment.size_ratio = if experiment.levels > 3 { 3 } else { 4 };
            experiment.ops = experiment.ops.min(if experiment.direct { 100 } else { 500 });
            experiment.repeats = 2;
            (experiment, Settings { keys: 12_000, ..settings })
        }
        Scale::Default => {
            let keys = experiment.default_keys;
            (experiment, Settings { keys, ..settings })
        }
        Scale::Paper if experiment.of == Paper::Ours => {
            experiment.ops = PAPER_OPS;
            (experiment, Settings { keys: MOST_KEYS, ..settings })
        }
        Scale::Paper => {
            experiment.size_ratio = PAPER_SIZE_RATIO;
            experiment.ops = if experiment.counted { PAPER_OPS } else { PAPER_UPDATES };
            experiment.direct |= !experiment.cached;
            experiment.axis = match experiment.axis {
                Axis::Bits(_) => Axis::Bits(&[6.0, 8.0, 10.0, 12.0, 14.0]),
                Axis::Threads(_) => Axis::Threads(&[4, 8, 16, 32, 64]),
                other => other,
            };
            (experiment, Settings { keys: PAPER_KEYS, ..settings })
        }
    }
}

/// Applies the custom settings.
pub(super) fn customized(
    experiment: &Experiment,
    settings: Settings,
    custom: &Custom,
) -> Result<Settings, BenchError> {
    fn some<T: Clone>(list: &[T]) -> Option<Vec<T>> {
        (!list.is_empty()).then(|| list.to_vec())
    }
    custom.refuse_all_but(experiment.name, &TAKEN)?;
    let sides = custom.filters.iter().map(|name| name.parse()).collect::<Result<Vec<_>, _>>();
    Ok(Settings {
        keys: custom.keys.unwrap_or(settings.keys),
        source: custom.key_set,
        value_bytes: custom.value_bytes.unwrap_or(settings.value_bytes),
        filters: some(&sides.map_err(request)?),
        bits: some(&custom.bits),
        workloads: some(&custom.workloads),
        threads: some(&custom.threads),
        size_ratio: custom.size_ratio,
        ops: custom.ops,
        repeats: custom.repeats,
        direct: custom.direct,
        cache_bytes: custom.cache_bytes,
        seed: custom.seed,
        options: custom.options.clone(),
    })
}

/// Returns the maximum number of runs of a tree with this policy.
fn most_runs(compaction: CompactionChoice, levels: usize, size_ratio: u64) -> u64 {
    let leveling = match compaction {
        CompactionChoice::Hybrid(count) => count,
        CompactionChoice::Leveling => levels - 1,
        _ => 1,
    };
    let tiering = levels.saturating_sub(leveling).max(1) as u64;
    tiering * (size_ratio - 1) + leveling as u64
}

/// Lists the differences from the paper, and what was preserved.
pub(super) fn scaled(job: &Job) -> Vec<String> {
    let mut told = Vec::new();
    if job.experiment.of == Paper::Ours {
        return told;
    }
    let (keys, values) = (job.plan.keys, job.settings.value_bytes);
    if keys != PAPER_KEYS || values != PAPER_VALUE_BYTES {
        told.push(format!(
            "{} keys with values of {values} bytes instead of 40 million with 256.",
            grouped(keys)
        ));
    }
    let (ratio, levels) = (job.plan.size_ratio, job.plan.levels);
    let runs = |ratio| {
        let of = |compaction| most_runs(compaction, levels, ratio).to_string();
        let runs = job.points.iter().map(|point| of(point.compaction));
        crate::figures::compose::distinct(runs).join(", ")
    };
    if ratio != PAPER_SIZE_RATIO {
        told.push(format!(
            "Size ratio {ratio} instead of {PAPER_SIZE_RATIO}, so that a read meets up to {} runs instead of {}.",
            runs(ratio),
            runs(PAPER_SIZE_RATIO)
        ));
    }
    if !job.direct && !job.experiment.cached {
        told.push("Tables are read through the page cache instead of direct I/O.".into());
    }
    if job.direct {
        told.push(match job.cache_bytes == job.experiment.cache_bytes {
            true => format!("The block cache has {}, as in the paper.", bytes(job.cache_bytes)),
            false => format!(
                "The block cache has {}: about the same share of {} of data as {} of the paper's.",
                bytes(job.cache_bytes),
                bytes(keys.saturating_mul(job.entry_bytes())),
                bytes(job.experiment.cache_bytes)
            ),
        });
    }
    let by_threads = matches!(job.experiment.axis, Axis::Threads(_));
    if by_threads && job.threads.len() > 2 && job.threads.last() != Some(&64) {
        told.push(format!(
            "{} threads instead of 4 to 64.",
            job.threads.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
        ));
    }
    told.push(format!(
        "Kept: {levels} levels, full up to just before the merge into the last one, and the bits per key."
    ));
    told
}

/// Returns the duration of an operation with direct reads in microseconds: YCSB mostly finds its blocks in the cache,
/// iterators read one block of each run.
fn direct_micros(workload: Workload) -> u64 {
    use Workload::*;
    match workload {
        YcsbA | YcsbB | YcsbC | YcsbD | YcsbE | YcsbF => 40,
        RangeEmpty | RangeAbsent | Seek | SeekZipf | SeekNext20 | SeekNext50 | ReverseNext50 => 700,
        SeekNext10000 => 20_000,
        _ => 150,
    }
}

/// Estimates costs from runs on two cores: loading takes a few microseconds per key and a few milliseconds per flush, a
/// mapped read about ten microseconds.
pub(super) fn needs(job: &Job) -> Needs {
    let (sides, points) = (job.sides.len() as u64, job.points.len() as u64);
    let data = job.plan.keys.saturating_mul(job.entry_bytes());
    let load = job.plan.keys * 3 + job.plan.flushes * 3_000;
    let rounds = match job.experiment.axis {
        // Reads in flight overlap: the synchronous ones take most of the time.
        Axis::InFlight(_) => u64::from(job.repeats),
        _ => u64::from(job.repeats) * job.threads.len() as u64,
    };
    let micros = |workload: &Workload| if job.direct { direct_micros(*workload) } else { 12 };
    let reads = rounds * job.ops * job.workloads.iter().map(micros).sum::<u64>();
    Needs {
        seconds: (sides * points * (load + reads)).div_ceil(1_000_000),
        // All sides of a point exist at once, and one of them may be in the middle of its last merge.
        disk_bytes: data / 8 * 9 * sides + data,
        memory_bytes: (64 << 20) + job.plan.keys * 16 + sides * (job.cache_bytes + job.plan.keys * 4),
    }
}
