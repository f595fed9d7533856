//! One measurement: a fresh database, loaded, warmed, worked on by threads that start together, and checked.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tamis_bench::histogram::Histogram;
use tamis_bench::random::Random;

use super::data::{Audit, Data};
use super::side::{Session, Side, SideError};
use super::workload::{Actor, Workload};
use crate::engines::Setup;

/// Operations that a thread claims at once, so that all threads end together.
const CLAIM: u64 = 32;

/// One of so many operations is timed on its own, and looks whether the time is up.
const SAMPLE: u64 = 8;

/// What to measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Task {
    /// The workload.
    pub(crate) workload: Workload,
    /// Number of threads, without the one that scans.
    pub(crate) threads: usize,
    /// Number of keys of workloads that have no number of their own.
    pub(crate) keys: u64,
    /// Size of a value in bytes.
    pub(crate) value_bytes: usize,
    /// Maximum number of operations over all threads.
    pub(crate) ops: u64,
    /// Maximum duration in seconds.
    pub(crate) seconds: f64,
    /// Seed of all random choices.
    pub(crate) seed: u64,
    /// The setup of the database, whose directory does not exist yet.
    pub(crate) setup: Setup,
}

/// The measured values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Number of acknowledged operations over all threads.
    pub(crate) ops: u64,
    /// Nanoseconds from the common start until the last thread has ended.
    pub(crate) wall_ns: u64,
    /// Nanoseconds of one operation on its thread: wall time × threads / operations.
    pub(crate) ns_per_op: f64,
    /// Operations per second over all threads.
    pub(crate) ops_per_second: f64,
    /// Failed attempts of transactions, which were repeated.
    pub(crate) retries: u64,
    /// Failed attempts per operation.
    pub(crate) retries_per_op: f64,
    /// Quantiles of the durations of single operations in nanoseconds, repeated attempts included, from a sample.
    pub(crate) p50_ns: u64,
    /// See `p50_ns`.
    pub(crate) p99_ns: u64,
    /// Increments that were overwritten, in `get-put` only.
    pub(crate) lost_updates: u64,
    /// Complete passes of the thread that scans, each with the right sum.
    pub(crate) scans: u64,
    /// The same per second.
    pub(crate) scans_per_second: f64,
    /// Passes that others have made fail.
    pub(crate) failed_scans: u64,
}

/// Measures one side. The database remains in its directory.
pub(crate) fn measure<S: Side>(task: &Task) -> Result<Figures, SideError> {
    let data = task.workload.data(task.keys, task.value_bytes);
    let side = S::open(&task.setup)?;
    side.load(data.entries())?;
    side.settle()?;
    warm(&side, &data)?;
    let mut figures = work(&side, task, data)?;
    let mut audit = Audit::of(data);
    while !side.session().scan(|key, value| audit.look(key, value))? {
        audit = Audit::of(data);
    }
    figures.lost_updates = task.workload.check(&audit, &data, task.threads, figures.ops)?;
    side.close()?;
    Ok(figures)
}

/// Gets every key once.
fn warm<S: Side>(side: &S, data: &Data) -> Result<(), SideError> {
    let (mut session, mut value) = (side.session(), Vec::new());
    (0..data.keys).try_for_each(|i| session.get(&super::data::key(i), &mut value))
}

/// What one thread did.
struct Share {
    start: Instant,
    end: Instant,
    ops: u64,
    retries: u64,
    latencies: Histogram,
}

/// Says that a thread has ended, also if it panics.
struct Ending<'a>(&'a AtomicUsize);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

fn work<S: Side>(side: &S, task: &Task, data: Data) -> Result<Figures, SideError> {
    let scanners = usize::from(task.workload.scans());
    let barrier = Barrier::new(task.threads + scanners);
    let (claimed, working) = (AtomicU64::new(0), AtomicUsize::new(task.threads));
    let limit = Duration::from_secs_f64(task.seconds);

    let worker = |thread: usize| -> Result<Share, SideError> {
        let _ending = Ending(&working);
        let random = Random::part(task.seed, thread as u64);
        let mut actor = Actor::new(side.session(), task.workload, data, random);
        let (mut ops, mut retries, mut latencies) = (0, 0, Histogram::default());
        barrier.wait();
        let start = Instant::now();
        let end = 'work: loop {
            let from = claimed.fetch_add(CLAIM, Relaxed);
            if from >= task.ops {
                break Instant::now();
            }
            for _ in 0..CLAIM.min(task.ops - from) {
                if ops % SAMPLE != 0 {
                    retries += actor.act()?;
                    ops += 1;
                    continue;
                }
                let before = Instant::now();
                retries += actor.act()?;
                ops += 1;
                let after = Instant::now();
                latencies.record((after - before).as_nanos() as u64);
                if after - start >= limit {
                    break 'work after;
                }
            }
        };
        Ok(Share { start, end, ops, retries, latencies })
    };
    let scanner = || -> Result<(u64, u64, Duration), SideError> {
        let mut session = side.session();
        let (mut scans, mut failed) = (0, 0);
        barrier.wait();
        let start = Instant::now();
        loop {
            let mut audit = Audit::of(data);
            if session.scan(|key, value| audit.look(key, value))? {
                // Transfers leave the sum as it is.
                task.workload.check(&audit, &data, task.threads, 0)?;
                scans += 1;
            } else {
                failed += 1;
            }
            if working.load(Relaxed) == 0 {
                return Ok((scans, failed, start.elapsed()));
            }
        }
    };

    let (shares, scanned) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..task.threads)
            .map(|thread| {
                scope.spawn({
                    let worker = &worker;
                    move || worker(thread)
                })
            })
            .collect();
        let scanner = (scanners > 0).then(|| scope.spawn(scanner));
        let joined = |panic| std::panic::resume_unwind(panic);
        let shares: Vec<_> = workers.into_iter().map(|thread| thread.join().unwrap_or_else(joined)).collect();
        (shares, scanner.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))))
    });
    let shares = shares.into_iter().collect::<Result<Vec<Share>, _>>()?;
    let mut figures = summed(&shares);
    if let Some(scanned) = scanned {
        let (scans, failed, time) = scanned?;
        figures.scans = scans;
        figures.failed_scans = failed;
        figures.scans_per_second = scans as f64 / time.as_secs_f64();
    }
    Ok(figures)
}

/// Adds up what the threads did.
fn summed(shares: &[Share]) -> Figures {
    let mut latencies = Histogram::default();
    shares.iter().for_each(|share| latencies.merge(&share.latencies));
    let start = shares.iter().map(|share| share.start).min();
    let end = shares.iter().map(|share| share.end).max();
    let wall = start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start);
    let ops: u64 = shares.iter().map(|share| share.ops).sum();
    let retries: u64 = shares.iter().map(|share| share.retries).sum();
    let per_op = |number: f64| number / ops.max(1) as f64;
    Figures {
        ops,
        wall_ns: wall.as_nanos() as u64,
        ns_per_op: per_op(wall.as_nanos() as f64 * shares.len() as f64),
        ops_per_second: ops as f64 / wall.as_secs_f64().max(1e-9),
        retries,
        retries_per_op: per_op(retries as f64),
        p50_ns: latencies.quantile(0.5),
        p99_ns: latencies.quantile(0.99),
        ..Figures::default()
    }
}
