//! `tamis soak`: threads use one database for a long time, and know exactly what must be in it.
//!
//! The database has a keyspace for each kind of filter; each takes one compaction policy after the other. Every thread
//! has keys of its own in all keyspaces and a map of what is in them, so that every answer can be checked at once,
//! while the other threads' flushes and compactions go on around it. Between sessions of the threads the database is
//! closed and opened again.
//!
//! Memory, descriptors and threads of the process are noted all the while. What grows from the second quarter of the
//! time to the last is a leak, and fails the run as a wrong answer does.

mod session;
mod watch;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use tamis::{CompactionChoice, Db, FilterChoice, KeyspaceOptions, Options};
use tamis_bench::random::Random;
use tamis_bench::report::grouped;

use crate::failure::{Failure, Outcome};
use crate::output::Out;
use crate::values::OptionArgs;
use session::Session;
use watch::Watch;

/// Another policy for the next keyspace so often: none stays for long with one that merges nothing, and so does not
/// collect ever more tables.
const POLICY_EVERY: Duration = Duration::from_millis(500);

const POLICIES: [CompactionChoice; 7] = {
    use CompactionChoice::*;
    [Leveling, Tiering, LazyLeveling, Hybrid(2), Fragmented, Fifo, TimeWindow]
};

/// Use a database of all filters and policies for long; check every answer, and that nothing grows
#[derive(Args)]
#[command(after_help = "\
Each thread puts, merges, deletes, deletes ranges, writes batches across keyspaces, gets, gets many, and iterates both ways,
also in snapshots, and compares every answer with a map of its own. Exits with 1 and keeps the directory if an answer is
wrong, `verify` finds something, or memory, descriptors or threads of the process grow from the second quarter of the
time to the last (memory by more than a tenth and 24 MiB, descriptors by more than a quarter and 32, threads by any).

Examples:
  tamis soak --seconds 60
  tamis soak --seconds 1800 --threads 4 --json")]
pub(crate) struct SoakArgs {
    /// How long
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Threads that write and read
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=99))]
    threads: u16,
    /// Close and open the database so often, in seconds
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    reopen: u64,
    /// Drives what is done
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A directory for the database, new or empty, and kept; without it a temporary one
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

/// Small, so that all that happens in the background happens often.
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

/// The names of the keyspaces, one for each filter.
fn names() -> Vec<(String, FilterChoice)> {
    FilterChoice::all().enumerate().map(|(i, filter)| (format!("filter-{i:02}"), filter)).collect()
}

/// What the threads share.
struct Shared {
    /// Sessions hold it for reading; who closes and opens the database holds it for writing.
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
    let db = Db::open(dir, options.clone())?;
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
                // Whatever was left out on the way.
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

/// Until the time is over: samples, other policies, reopenings. Gives how many of those there were.
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
            *db = Some(Db::open(dir, options.clone())?);
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
        writeln!(out, "{object}")?;
        return Ok(());
    }
    writeln!(
        out,
        "{} operations in {seconds:.0} s over {} filters and {} policies, {reopened} reopenings: every answer right",
        grouped(operations),
        names().len(),
        POLICIES.len(),
    )?;
    Ok(())
}
