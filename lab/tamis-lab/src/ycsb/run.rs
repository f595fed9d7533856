//! One step: a mix with a number of threads, with all sides interleaved.
//!
//! Every side has a copy of its base database, so the writes of a mix are gone after the step. All copies are open at
//! once. Each round visits all sides, beginning one side further than the last, so that temporary load on the machine
//! affects all of them and none is always first. Writes are flushed and compacted after each round, untimed, so a round
//! begins on an idle tree.

use tamis::Db;
use tamis_bench::BenchError;
use tamis_bench::measure::{Labels, Measurement};
use tamis_bench::progress::Progress;
use tamis_bench::run::{Fill, RunSpec, run};
use tamis_bench::workload::Workload;

use crate::elastic::database::Copy;
use crate::elastic::memory::{bytes_of, equalize, filter_bytes_of};
use crate::figures::Row;
use crate::figures::rows::row;
use crate::ycsb::plan::{Job, NAME, Step, name_of};
use crate::ycsb::rows::{MixRow, READ};
use crate::ycsb::side::YcsbSide;

/// One side's copy.
struct Stand {
    side: YcsbSide,
    copy: Copy,
    fill: Fill,
    rounds: Vec<Measurement>,
}

/// Loads missing bases, and measures. Returns rows of new loads, then rows of sides.
pub(super) fn step(job: &Job, step: Step, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
    let (keys, bases) = (job.keys()?, job.bases()?);
    let data = job.data(keys);
    let mut rows = Vec::new();
    let mut stands = Vec::new();
    for side in &job.sides {
        let options = job.options(side)?;
        let mut load = bases.base(side.name(), &options, &data, progress)?;
        load.experiment = NAME.into();
        if !load.reused {
            rows.push(row(&load));
        }
        let copy = bases.copy(side.name(), &options, &data)?;
        equalize(copy.db(), bytes_of(job.bits_of(side), data.fill().loaded))?;
        stands.push(Stand { side: side.clone(), copy, fill: data.fill(), rounds: Vec::new() });
    }
    progress.note(&format!("{}: {} sides", name_of(&step), stands.len()));
    for stand in stands.iter().filter(|_| job.warmup > 0) {
        // Loads the hot keys of all mixes except the latest ones of D.
        measure(job, Workload::YcsbC, step.threads, job.warmup, 0, stand, progress)?;
    }
    for round in 0..job.repeats {
        let sides = stands.len();
        for at in 0..sides {
            let stand = &mut stands[(at + round as usize) % sides];
            let ops = job.ops_of(step.workload);
            let part = 1 + u64::from(round);
            stand.rounds.push(measure(job, step.workload, step.threads, ops, part, stand, progress)?);
            let there = stand.fill.loaded + Fill::inserts(step.workload, ops);
            stand.fill.loaded = there.min(keys.len());
        }
    }
    for stand in stands {
        rows.push(row(&mix_row(job, &stand)));
        stand.copy.close()?;
    }
    Ok(rows)
}

/// Runs a mix once. The operations are the same for every side.
fn measure(
    job: &Job,
    workload: Workload,
    threads: usize,
    ops: u64,
    part: u64,
    stand: &Stand,
    progress: &dyn Progress,
) -> Result<Measurement, BenchError> {
    let (keys, db) = (job.keys()?, stand.copy.db());
    let spec = RunSpec {
        workload,
        keys,
        value_bytes: job.value_bytes.into(),
        threads,
        ops,
        seed: job.seed.wrapping_mul(1000).wrapping_add(part),
        fill: stand.fill.clone(),
        pattern: None,
        progress,
    };
    let before = db.stats();
    let timing = run(db, &spec)?;
    let labels = Labels {
        experiment: NAME.into(),
        workload: workload.name().into(),
        key_set: keys.name().into(),
        keys: stand.fill.loaded,
        key_bytes: keys.key_bytes(),
        value_bytes: job.value_bytes as f64,
        threads,
        settled: true,
    };
    let mut measurement = Measurement::new(labels, &timing, &before, db);
    if workload.writes() {
        measurement.settle_ms = settle(db)?;
        measurement.set_tree(&db.stats());
    }
    Ok(measurement)
}

/// Flushes and waits for compaction; returns the time in milliseconds.
fn settle(db: &Db) -> Result<u64, BenchError> {
    let begun = std::time::Instant::now();
    db.flush()?;
    db.wait_for_compaction()?;
    db.wait_for_filters()?;
    Ok(begun.elapsed().as_millis() as u64)
}

fn mix_row(job: &Job, stand: &Stand) -> MixRow {
    let per_second = || stand.rounds.iter().map(|m| m.wall_ops_per_second);
    let p99 = || stand.rounds.iter().map(|m| m.p99_ns);
    let stats = stand.copy.db().stats();
    let tree = stats.keyspaces.first();
    let memory_bytes = filter_bytes_of(&stats);
    let entries = tree.map_or(0, |tree| tree.entries).max(1);
    MixRow {
        kind: READ.into(),
        side: stand.side.name().into(),
        selector: stand.side.filter().into(),
        bits_asked: job.bits_of(&stand.side),
        min_ops_per_second: per_second().fold(f64::INFINITY, f64::min),
        max_ops_per_second: per_second().fold(0.0, f64::max),
        min_p99_ns: p99().min().unwrap_or(0),
        max_p99_ns: p99().max().unwrap_or(0),
        memory_bytes,
        memory_bits_per_key: memory_bytes as f64 * 8.0 / entries as f64,
        measurement: Measurement::median_by(stand.rounds.clone(), |m| m.wall_ops_per_second)
            .unwrap_or_default(),
    }
}
