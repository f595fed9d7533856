//! Why the slowest puts are slow: `tamis-peers waits` times every put of a run, and asks the kernel's scheduler what the thread
//! did in those over a threshold.
//!
//! The kernel records every switch, every waking and every page fault, and where each thread is 10,000 times a second
//! ([`trace`]). A slow put is divided between causes ([`blame`]): what it ran, who ran when it could have, and what it slept
//! for. If it slept for another thread, that one's time counts. Recording takes time itself: shares count, not durations.

mod blame;
mod trace;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::time::{ClockId, clock_gettime};
use tamis_bench::run::{Fill, RunSpec, run as run_workload};
use tamis_bench::value::ValueSizes;
use tamis_bench::{BenchError, KeySet, NoProgress, Workload};

use self::blame::Timeline;
use self::trace::Recording;
use crate::args::{bytes, value_sizes};
use crate::counted::{Counted, Slow};
use crate::engines::system::{System, Visitor};
use crate::engines::{Compression, Engine, Setup};
use crate::failure::Failure;

const HELP: &str = "\
Needs `perf` and the rights of root. Fills measure the load of an empty database; other workloads a loaded and settled one.

Examples:
  tamis-peers waits --workload fill-random --keys 4000000
  tamis-peers waits --workload ycsb-a --threads 2 --over 500
  tamis-peers waits --system rocksdb --workload overwrite --value-bytes 16384 --keys 50000";

/// What to measure.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(crate) struct WaitsArgs {
    /// The system
    #[arg(long, default_value = "tamis")]
    system: System,
    /// A workload with puts
    #[arg(long, default_value = "fill-random")]
    workload: Workload,
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(100..=1 << 36))]
    keys: u64,
    /// Size of a value
    #[arg(long, value_name = "BYTES", default_value = "256", value_parser = value_sizes)]
    value_bytes: ValueSizes,
    /// Number of operations of other workloads than fills
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    ops: u64,
    /// Number of threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Number of puts that are written together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    batch: u16,
    /// Puts that take longer than so many microseconds are slow
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 200)]
    over: u64,
    /// Size of a memtable and of table files
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = bytes)]
    memtable: u64,
    /// Size of the block cache
    #[arg(long, value_name = "BYTES", default_value = "8MiB", value_parser = bytes)]
    cache: u64,
    /// Values of at least so many bytes go to files of their own, where an engine has this
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    separated: Option<u64>,
    /// Whether every put is synced
    #[arg(long)]
    sync: bool,
    /// Directory for the database and the recording [default: the system's for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// Measures, and returns the report.
pub(crate) fn run(args: &WaitsArgs, dir: &Path) -> Result<String, Failure> {
    struct Measure<'a>(&'a WaitsArgs, &'a Path);

    impl Visitor for Measure<'_> {
        type Output = Result<String, Failure>;

        fn visit<E: Engine>(self) -> Result<String, Failure> {
            measure::<E>(self.0, self.1)
        }
    }

    args.system.clone().with(Measure(args, dir))
}

fn measure<E: Engine>(args: &WaitsArgs, dir: &Path) -> Result<String, Failure> {
    let setup = Setup {
        dir: dir.join("db"),
        cache_bytes: args.cache,
        metadata_bytes: 0,
        memtable_bytes: args.memtable,
        filter_bits: 10,
        compression: Compression::None,
        sync: args.sync,
        direct_io: false,
        compaction: true,
        separated_bytes: args.separated,
        overrides: args.system.overrides().to_vec(),
    };
    if let Some(why) = E::refuses(&setup).or_else(|| E::lacks(args.workload, usize::from(args.batch))) {
        return Err(Failure::Usage(format!("{}: {why}", args.system.name())));
    }
    if !args.workload.writes() {
        return Err(Failure::Usage(format!("{} has no puts", args.workload.name())));
    }
    let failed = |error: BenchError| match error {
        BenchError::WrongAnswer { .. } => Failure::WrongAnswer(error.to_string()),
        error => Failure::System(error.to_string()),
    };
    let inserts = Fill::inserts(args.workload, args.ops);
    let keys = KeySet::uniform(args.keys + inserts, 8, 1).map_err(|error| failed(error.into()))?;
    let mut fill = Fill::random(&keys, 1);
    fill.loaded = args.keys;
    let spec = |workload, threads| RunSpec {
        workload,
        keys: &keys,
        value_bytes: args.value_bytes,
        threads,
        ops: args.ops,
        seed: 1,
        fill: fill.clone(),
        pattern: None,
        progress: &NoProgress,
    };
    let (engine, _) = E::open(&setup).map_err(failed)?;
    if !args.workload.is_fill() {
        run_workload(&engine, &spec(Workload::FillRandom, 1)).map_err(failed)?;
        engine.settle().map_err(failed)?;
    }
    let file = dir.join("events");
    let unrecorded = |error| Failure::System(format!("perf could not record: {error}"));
    let recording = Recording::start(&file).map_err(unrecorded)?;
    // The first events are there once perf has begun.
    std::thread::sleep(Duration::from_secs(1));
    let store = Counted::new(&engine, usize::from(args.batch)).with_slow(Duration::from_micros(args.over));
    let (zero, now) = (clock_gettime(ClockId::Monotonic), Instant::now());
    let zero = zero.tv_sec as u64 * 1_000_000_000 + zero.tv_nsec as u64;
    let done = run_workload(&store, &spec(args.workload, usize::from(args.threads)));
    recording.end().map_err(unrecorded)?;
    done.map_err(failed)?;
    let puts = store.puts().map_err(failed)?;
    engine.close().map_err(failed)?;
    let events = trace::read(&file).map_err(|error| Failure::System(format!("the recording: {error}")))?;
    let line = Timeline::new(events);
    let at = |instant: Instant| zero + u64::try_from((instant - now).as_nanos()).unwrap_or(u64::MAX);
    let slow: Vec<_> =
        puts.slow.iter().map(|slow: &Slow| (slow.thread, at(slow.begun), at(slow.ended))).collect();
    let quantiles = [0.5, 0.99, 0.999, 0.9999].map(|share| puts.latency.quantile(share));
    Ok(report(args, &line, &slow, (quantiles, puts.slowest_ns)))
}

fn report(
    args: &WaitsArgs,
    line: &Timeline,
    slow: &[(u32, u64, u64)],
    (quantiles, slowest): ([u64; 4], u64),
) -> String {
    let mut text = String::new();
    let [p50, p99, p999, p9999] = quantiles.map(|ns| ns as f64 / 1e3);
    let total: u64 = slow.iter().map(|(_, from, to)| to - from).sum();
    let mut shares: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut faults = 0;
    for &(tid, from, to) in slow {
        faults += line.faults(tid, from, to);
        let causes = line.causes(tid, from, to);
        let most = causes.iter().max_by_key(|(_, ns)| **ns).map(|(cause, _)| cause.clone());
        for (cause, ns) in causes {
            let share = shares.entry(cause.clone()).or_default();
            share.0 += ns;
            share.1 += u64::from(most.as_ref() == Some(&cause));
        }
    }
    // Nothing is lost if this fails: writing to a string does not.
    let _ = writeln!(
        text,
        "{} {}: puts p50 {p50:.1}, p99 {p99:.1}, p99.9 {p999:.1}, p99.99 {p9999:.1}, slowest {:.1} µs\n{} took over {} µs, \
         {:.1} ms together, with {faults} page faults\n",
        args.system.name(),
        args.workload.name(),
        slowest as f64 / 1e3,
        slow.len(),
        args.over,
        total as f64 / 1e6,
    );
    let mut shares: Vec<_> = shares.into_iter().collect();
    shares.sort_by_key(|(_, (ns, _))| std::cmp::Reverse(*ns));
    let _ = writeln!(text, "{:>7} {:>9} {:>8}  cause", "share", "ms", "most of");
    for (cause, (ns, most)) in shares.iter().take_while(|(_, (ns, _))| ns * 200 >= total) {
        let _ = writeln!(
            text,
            "{:>6.1}% {:>9.2} {most:>8}  {cause}",
            *ns as f64 * 100.0 / total.max(1) as f64,
            *ns as f64 / 1e6
        );
    }
    text
}
