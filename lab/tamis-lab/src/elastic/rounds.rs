//! Workloads in rounds over all sides, and loads.

use tamis::Db;
use tamis_bench::BenchError;
use tamis_bench::measure::{Labels, Measurement};
use tamis_bench::pattern::Pattern;
use tamis_bench::progress::Progress;
use tamis_bench::run::{Fill, RunSpec, run as run_workload};
use tamis_testkit::EmulatedFs;

use crate::elastic::catalogue::Kind;
use crate::elastic::database::{Copy, LoadRow};
use crate::elastic::device::paid;
use crate::elastic::memory::{bits_per_key, filter_bytes_of};
use crate::elastic::plan::{Job, Opened};
use crate::elastic::points::Point;
use crate::elastic::rows::{ReadRow, Rows};
use crate::elastic::side::ElasticSide;
use crate::elastic::warmup::{Warmed, warm_up};
use crate::figures::compare::median;

/// One run of a workload.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) measurement: Measurement,
    /// Runs searched without finding the key, per operation; `None` where values may come from memtables.
    pub(super) in_vain: Option<f64>,
    /// Reads that loaded units, per operation.
    pub(super) load_reads: f64,
}

/// Runs `ops` operations, with new keys for each `part`, and counts their costs.
pub(super) fn read(
    job: &Job,
    point: &Point,
    pattern: &Pattern,
    db: &Db,
    fill: &Fill,
    (ops, part): (u64, u64),
    progress: &dyn Progress,
) -> Result<Reading, BenchError> {
    let spec = RunSpec {
        workload: point.workload,
        keys: job.keys(&point.variant),
        value_bytes: point.variant.value_bytes.into(),
        threads: point.threads,
        ops,
        seed: job.settings.seed.wrapping_mul(1000).wrapping_add(part),
        fill: fill.clone(),
        pattern: Some(pattern),
        progress,
    };
    let before = db.stats();
    let timing = run_workload(db, &spec)?;
    let after = db.stats();
    let labels = Labels {
        experiment: job.experiment.name.into(),
        workload: point.workload.name().into(),
        key_set: job.keys(&point.variant).name().into(),
        keys: fill.loaded,
        key_bytes: job.keys(&point.variant).key_bytes(),
        value_bytes: point.variant.value_bytes as f64,
        threads: point.threads.max(1),
        settled: true,
    };
    let measurement = Measurement::new(labels, &timing, &before, db);
    let searched = (after.read - before.read).runs_searched;
    let in_vain = searched as f64 - timing.hits as f64;
    let loads = |stats: &tamis::stats::Stats| stats.elastic.as_ref().map_or(0, |elastic| elastic.load_reads);
    Ok(Reading {
        measurement,
        in_vain: (!point.workload.writes()).then(|| in_vain / timing.ops.max(1) as f64),
        load_reads: (loads(&after).saturating_sub(loads(&before))) as f64 / timing.ops.max(1) as f64,
    })
}

/// The part of the seeds whose gets a replay repeats.
pub(super) const REPLAYED: u64 = 1;

/// One side's copy at one point.
pub(super) struct Stand {
    pub(super) side: ElasticSide,
    pub(super) copy: Copy,
    pub(super) fs: Option<EmulatedFs>,
    pub(super) fill: Fill,
    rounds: Vec<Reading>,
}

impl Stand {
    pub(super) fn new(side: ElasticSide, copy: Copy, fs: Option<EmulatedFs>, fill: Fill) -> Stand {
        Stand { side, copy, fs, fill, rounds: Vec::new() }
    }
}

/// Measures one point.
pub(super) fn run(job: &Job, point: &Point, progress: &dyn Progress) -> Result<Rows, BenchError> {
    let mut rows = Rows::default();
    let pattern = job.pattern(point, false)?;
    let mut stands = Vec::new();
    for side in &job.sides {
        let Opened { copy, fs, load, .. } = job.open(side, &point.variant, progress)?;
        rows.add_load(load);
        let fill = job.data(&point.variant).fill();
        stands.push(Stand::new(side.clone(), copy, fs, fill));
    }
    progress.note(&format!("{} {}", job.experiment.name, job.step_of(point)));
    let sides = stands.iter().map(|stand| (&stand.side, stand.copy.db()));
    let filter_bytes = job.equalize_all(&point.variant, sides)?;
    let warmed = warm_up(job, point, &pattern, (&stands, filter_bytes), progress)?;
    let ops = job.ops(&point.variant);
    for round in 0..job.repeats {
        for stand in &mut stands {
            let part = if job.experiment.kind == Kind::Replay { REPLAYED } else { 1 + u64::from(round) };
            let reading = paid(stand.fs.as_ref(), stand.copy.db(), || {
                read(job, point, &pattern, stand.copy.db(), &stand.fill, (ops, part), progress)
            })?;
            stand.rounds.push(reading);
            let inserts = Fill::inserts(point.workload, ops);
            stand.fill.loaded = (stand.fill.loaded + inserts).min(point.variant.keys);
        }
    }
    for stand in stands {
        rows.reads.push(row(job, point, &warmed, &stand));
        stand.copy.close()?;
    }
    rows.warmups = warmed.windows;
    Ok(rows)
}

fn row(job: &Job, point: &Point, warmed: &Warmed, stand: &Stand) -> ReadRow {
    let rounds = &stand.rounds;
    let mean = |of: &dyn Fn(&Reading) -> f64| rounds.iter().map(of).sum::<f64>() / rounds.len().max(1) as f64;
    let ns = || rounds.iter().map(|reading| reading.measurement.ns_per_op);
    let rate = || rounds.iter().map(|reading| reading.measurement.wall_ops_per_second);
    let in_vain = |reading: &Reading| reading.in_vain;
    let stats = stand.copy.db().stats();
    let elastic = stats.elastic.clone().unwrap_or_default();
    let filter_bytes = filter_bytes_of(&stats);
    let without_units =
        stand.side.is_elastic() && elastic.by_units.iter().skip(1).all(|&segments| segments == 0);
    let device = stand.fs.as_ref().map(EmulatedFs::time);
    let measured = (job.ops(&point.variant) * rounds.len() as u64).max(1) as f64;
    let by_units = elastic.by_units.iter().map(u64::to_string).collect::<Vec<_>>().join("/");
    ReadRow {
        kind: "read".into(),
        side: stand.side.name().into(),
        point: point.label.clone(),
        device: job.device_name(&point.variant).into(),
        device_reads_per_op: device.map(|time| time.reads as f64 / measured),
        device_ns_per_op: device.map(|time| time.ns as f64 / measured),
        late_reads_per_op: device.map(|time| time.late as f64 / measured),
        setting: point.variant.setting,
        skew: point.spec.skew,
        absent_percent: point.spec.absent_percent,
        locality: point.spec.locality,
        warmup: warmed.gets,
        warmup_settled: warmed.settled,
        min_ns: ns().fold(f64::INFINITY, f64::min),
        max_ns: ns().fold(0.0, f64::max),
        min_ops_per_second: rate().fold(f64::INFINITY, f64::min),
        max_ops_per_second: rate().fold(0.0, f64::max),
        in_vain_per_op: rounds
            .first()
            .and_then(in_vain)
            .map(|_| mean(&|reading| reading.in_vain.unwrap_or(0.0))),
        in_vain_first: rounds.first().and_then(in_vain),
        in_vain_last: rounds.last().and_then(in_vain),
        blocks_per_op: mean(&|reading| reading.measurement.block_reads_per_op),
        false_positives_mean: mean(&|reading| reading.measurement.false_positives_per_op),
        load_reads_per_op: mean(&|reading| reading.load_reads),
        elastic: stand.side.is_elastic(),
        without_filter: (filter_bytes == 0 || without_units) && stand.side.filter() != "none",
        filter_memory: filter_bytes,
        memory_bits_per_key: bits_per_key(&stats),
        bits_asked: if stand.side.filter() == "none" { 0.0 } else { job.settings.bits },
        index_bytes: elastic.index_bytes,
        segments: elastic.segments,
        by_units,
        life_time: elastic.life_time,
        sampling: elastic.sampling,
        expected_extra_reads: elastic.expected_extra_reads,
        evictions: elastic.evictions,
        failed_loads: elastic.failed_loads,
        measurement: Measurement::median(rounds.iter().map(|reading| reading.measurement.clone()).collect())
            .unwrap_or_default(),
    }
}

/// The `point` of rows of [`loads`].
pub(super) const TIMED: &str = "timed";

/// Loads a temporary database for every side in each round, with interleaved sides.
pub(super) fn loads(job: &Job, progress: &dyn Progress) -> Result<Rows, BenchError> {
    let mut told = Rows::default();
    let variant = &job.points[0].variant;
    let mut rows: Vec<Vec<LoadRow>> = vec![Vec::new(); job.sides.len()];
    for _ in 0..job.repeats {
        for (side, rows) in job.sides.iter().zip(&mut rows) {
            let options = job.options(side, variant)?;
            rows.push(job.bases()?.load_once(side.filter(), &options, &job.data(variant), progress)?);
        }
    }
    for (side, mut rows) in job.sides.iter().zip(rows) {
        rows.sort_by(|a, b| a.load_ns_per_key.total_cmp(&b.load_ns_per_key));
        let (min, max) = (rows[0].load_ns_per_key, rows[rows.len() - 1].load_ns_per_key);
        let load_ns_per_key = median(rows.iter().map(|row| row.load_ns_per_key)).unwrap_or(0.0);
        let middle = rows[rows.len() / 2].clone();
        told.loads.push(LoadRow {
            experiment: job.experiment.name.into(),
            filter: side.name().into(),
            point: TIMED.into(),
            min_ns_per_key: min,
            max_ns_per_key: max,
            repeats: job.repeats,
            load_ns_per_key,
            ..middle
        });
    }
    Ok(told)
}
