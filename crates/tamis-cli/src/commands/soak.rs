//! `tamis soak`: threads use one database for a long time and know exactly what it must contain.
//!
//! The database has a keyspace for each kind of filter; each goes through all compaction policies
//! in turn. Every thread has its own keys in all keyspaces and a map of their values, so that every
//! answer can be checked at once, while other threads' flushes and compactions are under way.
//! Between sessions of the threads the database is closed and reopened.
//!
//! The memory, descriptors and threads of the process are sampled throughout. Growth from the
//! second quarter of the time to the last is a leak and, like a wrong answer, fails the run.

mod session;
mod watch;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use tamis::options::{CompactionChoice, FilterChoice};
use tamis::{Db, KeyspaceOptions, Options};
use tamis_bench::random::Random;
use tamis_bench::report::grouped;

use crate::failure::{Failure, Outcome};
use crate::output::Out;
use crate::values::OptionArgs;
use session::Session;
use watch::Watch;

/// The interval at which the next keyspace gets another policy: none stays long with one that
/// merges nothing and would collect ever more tables.
const POLICY_EVERY: Duration = Duration::from_millis(500);

const POLICIES: [CompactionChoice; 7] = {
    use CompactionChoice::*;
    [Leveling, Tiering, LazyLeveling, Hybrid(2), Fragmented, Fifo, TimeWindow]
};

/// Use a database with all filters and policies for a long time; check every answer and watch for
/// leaks
#[derive(Args)]
#[command(after_help = "\
Each thread puts, merges, deletes, deletes ranges, writes batches across keyspaces, gets, multi-gets, and iterates both ways,
also in snapshots, and compares every answer with its own map. Exits with 1 and keeps the directory if an answer is
wrong, `verify` finds a problem, or the memory, descriptors or threads of the process grow from the second quarter of the
time to the last (memory by more than a tenth and 24 MiB, descriptors by more than a quarter and 32, threads by any).

Examples:
  tamis soak --seconds 60
  tamis soak --seconds 1800 --threads 4 --json")]
pub(crate) struct SoakArgs {
    /// How long to run, in seconds
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// The number of threads that write and read
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=99))]
    threads: u16,
    /// Close and reopen the database every S seconds
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    reopen: u64,
    /// The seed of all operations
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A new or empty directory for the database, kept [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
    #[command(flatten)]
    options: OptionArgs,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: SoakArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let options = options(&args.options)?;
    let temporary = tempfile::Builder::new().prefix("tamis-soak-").tempdir();
    let temporary = temporary.map_err(|e| Failure::database(format!("could not make a directory: {e}")))?;
    let dir = args.db.clone().unwrap_or_else(|| temporary.path().join("db"));
    if std::fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failure::usage(format!("{} is not empty", dir.display())));
    }
    let result = soak(&args, &dir, &options, out);
    if let Err(Failure::Problem(problem)) = result {
        let kept = if args.db.is_none() { temporary.keep().join("db") } else { dir };
        let seed = args.seed;
        return Err(Failure::Problem(format!(
            "seed {seed}: {problem}; the database is kept in {}",
            kept.display()
        )));
    }
    result.map(|()| Outcome::Done)
}

/// Returns small limits, so that background work is frequent.
fn options(args: &OptionArgs) -> Result<Options, Failure> {
    let mut options = Options { cache_bytes: 4 << 20, filter_budget_bytes: 256 << 10, ..Options::default() };
    args.apply(&mut options)?;
    Ok(options)
}

fn keyspace_options(filter: FilterChoice) -> KeyspaceOptions {
    KeyspaceOptions {
        filter: filter.into(),
        memtable_bytes: 64 << 10,
        table_bytes: 64 << 10,
        block_bytes: 1 << 10,
        level0_runs: 3,
        size_ratio: 3.into(),
        levels: 4,
        merge_operator: Some("append".into()),
        ..KeyspaceOptions::default()
    }
}

/// Returns the names of the keyspaces, one per filter.
fn names() -> Vec<(String, FilterChoice)> {
    FilterChoice::all().enumerate().map(|(i, filter)| (format!("filter-{i:02}"), filter)).collect()
}

/// The state shared by the threads.
struct Shared {
    /// Sessions hold the lock for reading; reopening the database holds it for writing.
    db: RwLock<Option<Db>>,
    stop: AtomicBool,
    operations: AtomicU64,
    /// The first thing that went wrong.
    wrong: Mutex<Option<Failure>>,
}

impl Shared {
    fn fail(&self, failure: Failure) {
        self.wrong.lock().expect("no panic").get_or_insert(failure);
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn soak(args: &SoakArgs, dir: &Path, options: &Options, out: &mut Out) -> Result<(), Failure> {
    let db = options.clone().open(dir)?;
    for (name, filter) in names() {
        db.create_keyspace(&name, keyspace_options(filter))?;
    }
    let shared = Shared {
        db: RwLock::new(Some(db)),
        stop: AtomicBool::new(false),
        operations: AtomicU64::new(0),
        wrong: Mutex::new(None),
    };
    let start = Instant::now();
    let mut watch = Watch::new(start, Duration::from_secs(args.seconds));
    let conducted = std::thread::scope(|scope| {
        for thread in 0..usize::from(args.threads) {
            let shared = &shared;
            scope.spawn(move || {
                let mut session = Session::new(args.seed, thread, names().len());
                while !shared.stop.load(Ordering::Relaxed) {
                    let db = shared.db.read().expect("no panic");
                    let db = db.as_ref().expect("open between reopenings");
                    match session.run(db, &shared.operations) {
                        Ok(()) => {}
                        Err(failure) => shared.fail(failure),
                    }
                }
                // The final check covers all keys.
                if let Some(db) = shared.db.read().expect("no panic").as_ref()
                    && let Err(failure) = session.compare_all(db)
                {
                    shared.fail(failure);
                }
            });
        }
        let conducted = conduct(args, dir, options, &shared, &mut watch, out);
        shared.stop.store(true, Ordering::Relaxed);
        conducted
    });
    if let Some(failure) = shared.wrong.lock().expect("no panic").take() {
        return Err(failure);
    }
    let reopened = conducted?;
    let db = shared.db.into_inner().expect("no panic").expect("open");
    if let Some(problem) = db.verify()?.problems.first() {
        return Err(Failure::Problem(problem.clone()));
    }
    db.close()?;
    let operations = shared.operations.into_inner();
    report(args, operations, reopened, &watch, start.elapsed(), out)?;
    watch.judge().map_err(Failure::Problem)
}

/// Until the time is over, takes samples, changes policies and reopens the database. Returns the
/// number of reopenings.
fn conduct(
    args: &SoakArgs,
    dir: &Path,
    options: &Options,
    shared: &Shared,
    watch: &mut Watch,
    out: &mut Out,
) -> Result<u64, Failure> {
    let mut random = Random::part(args.seed, u64::MAX);
    let names = names();
    let (mut next_policy, mut changes, mut reopened) = (Instant::now(), 0, 0);
    let mut next_opening = Instant::now() + Duration::from_secs(args.reopen);
    while !watch.is_over() && !shared.stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        if Instant::now() >= next_policy {
            next_policy += POLICY_EVERY;
            let (name, _) = &names[changes % names.len()];
            changes += 1;
            let policy = POLICIES[random.below(POLICIES.len() as u64) as usize];
            let db = shared.db.read().expect("no panic");
            let keyspace = db.as_ref().expect("open").keyspace(name)?;
            keyspace.set_options(&[("compaction", &policy.to_string())])?;
        }
        if Instant::now() >= next_opening {
            next_opening += Duration::from_secs(args.reopen);
            let mut db = shared.db.write().expect("no panic");
            db.take().expect("open").close()?;
            *db = Some(options.clone().open(dir)?);
            reopened += 1;
        }
        if let Some(sample) = watch.look(shared.operations.load(Ordering::Relaxed))
            && !args.json
        {
            writeln!(out, "{sample}")?;
            out.flush()?;
        }
    }
    Ok(reopened)
}

fn report(
    args: &SoakArgs,
    operations: u64,
    reopened: u64,
    watch: &Watch,
    elapsed: Duration,
    out: &mut Out,
) -> Result<(), Failure> {
    let seconds = elapsed.as_secs_f64();
    if args.json {
        let samples: Vec<_> = watch.samples().iter().map(|sample| sample.to_json()).collect();
        let object = json!({
            "experiment": "soak", "seconds": seconds, "operations": operations, "wrong": 0, "reopened": reopened,
            "keyspaces": names().len(), "policies": POLICIES.len(), "samples": samples,
        });
        out.json(&object)?;
        return Ok(());
    }
    writeln!(
        out,
        "{} operations in {seconds:.0} s over {} filters and {} policies, {reopened} reopenings: every answer correct",
        grouped(operations),
        names().len(),
        POLICIES.len(),
    )?;
    Ok(())
}
