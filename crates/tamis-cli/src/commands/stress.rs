//! `tamis stress`: kills a writing process again and again; its acknowledged writes must be there.
//!
//! The child reports each acknowledged write over a pipe (the ledger). The parent kills it at a
//! random moment, opens the database, and for each thread looks for a number of operations whose
//! effect matches the contents exactly. That number must be at least that of the last acknowledged
//! operation and at most one more (the one in flight). This detects a lost write, half a batch, a
//! write without its predecessor, and a key that was never written.

pub(crate) mod child;
mod history;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use tamis::Db;
use tamis_bench::Progress;
use tamis_bench::random::Random;
use tamis_bench::report::grouped;

use crate::failure::{Failure, Outcome};
use crate::output::Out;
use crate::progress::Reporter;
use crate::values::{FilterArgs, OptionArgs};
use history::{Model, find_state, operation, prefix};

/// `verify` runs once in this many rounds, and after the last.
const VERIFY_EVERY: u64 = 5;

/// The percentage of children whose time to live counts from their start, so that they may die
/// during recovery. For the others it counts from the opening of the database.
const KILLED_EARLY_PERCENT: u64 = 20;

/// Kill a writing process again and again; check that nothing acknowledged is lost
#[derive(Args)]
#[command(after_help = "\
A child process writes with several threads: puts, deletes, range deletes and batches, a fifth of them synced.
It is killed (SIGKILL) at a random moment, the database is opened, and every acknowledged write must be there,
batches whole, each thread's writes without a gap. Otherwise the program exits with 1 and keeps the directory.

Killing a process does not lose data that the operating system holds, so this tests recovery, not the disk;
the library's tests simulate power cuts.

Examples:
  tamis stress --rounds 20
  tamis stress --rounds 1000000 --seconds 3600 --threads 8 --seed 7")]
pub(crate) struct StressArgs {
    /// The number of kills
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Stop after this many seconds even if rounds are left
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// The maximum time until a kill, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    kill_within: u64,
    /// The number of writing threads
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=999))]
    threads: u16,
    /// The seed of the writes and of the times of the kills
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A new or empty directory for the database, kept [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
    #[command(flatten)]
    options: OptionArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(mut args: StressArgs, out: &mut Out) -> Result<Outcome, Failure> {
    args.options = args.filter.among(&args.options);
    // Wrong options should be an error here rather than a dead child.
    child::options(&args.options)?;
    let temporary = tempfile::Builder::new().prefix("tamis-stress-").tempdir();
    let temporary = temporary.map_err(|e| Failure::database(format!("could not make a directory: {e}")))?;
    let dir = args.db.clone().unwrap_or_else(|| temporary.path().join("db"));
    if std::fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failure::usage(format!("{} is not empty", dir.display())));
    }
    let progress = Reporter::new();
    let mut stress = Stress::new(&args, &dir);
    let start = Instant::now();
    let within = |seconds: u64| start.elapsed() < Duration::from_secs(seconds);
    progress.begin("stress", args.rounds, "kills");
    let mut result = Ok(());
    while result.is_ok() && stress.tally.kills < args.rounds && args.seconds.is_none_or(within) {
        result = stress.round();
        progress.advance(1);
    }
    progress.end();
    let result = result.and_then(|()| stress.verify());
    if let Err(Failure::Problem(problem)) = result {
        let kept = if args.db.is_none() { temporary.keep().join("db") } else { dir.clone() };
        return Err(Failure::Problem(format!(
            "round {}, seed {}: {problem}; the database is kept in {}",
            stress.tally.kills,
            args.seed,
            kept.display()
        )));
    }
    result?;
    stress.tally.print(args.json, start.elapsed(), out)?;
    Ok(Outcome::Done)
}

/// The totals of all rounds.
#[derive(Default)]
struct Tally {
    kills: u64,
    acknowledged: u64,
    synced: u64,
    in_flight_kept: u64,
    in_flight_gone: u64,
    slowest_open: Duration,
}

impl Tally {
    fn print(&self, json: bool, elapsed: Duration, out: &mut Out) -> Result<(), Failure> {
        let open_ms = self.slowest_open.as_secs_f64() * 1000.0;
        if json {
            let object = json!({
                "experiment": "stress", "kills": self.kills, "acknowledged": self.acknowledged,
                "acknowledged_synced": self.synced, "lost": 0, "in_flight_kept": self.in_flight_kept,
                "in_flight_gone": self.in_flight_gone, "slowest_open_ms": open_ms,
                "seconds": elapsed.as_secs_f64(),
            });
            out.json(&object)?;
            return Ok(());
        }
        writeln!(
            out,
            "{} kills in {:.1} s: {} writes acknowledged ({} synced), none lost; of those in flight, {} were kept \
             whole and {} are gone; slowest open {open_ms:.0} ms",
            grouped(self.kills),
            elapsed.as_secs_f64(),
            grouped(self.acknowledged),
            grouped(self.synced),
            grouped(self.in_flight_kept),
            grouped(self.in_flight_gone)
        )?;
        Ok(())
    }
}

/// The parent's view of one writing thread.
struct Thread {
    /// The number of operations in the database.
    done: u64,
    /// Their result.
    model: Model,
}

/// The acknowledged operations of a child, per thread.
struct Ledger {
    /// The number of acknowledged operations from the start of the history, and of the synced ones
    /// in this round.
    acknowledged: Vec<u64>,
    /// The number of operations up to the last synced one.
    synced: Vec<u64>,
    synced_in_round: u64,
}

struct Stress<'a> {
    args: &'a StressArgs,
    dir: &'a Path,
    random: Random,
    threads: Vec<Thread>,
    tally: Tally,
}

impl<'a> Stress<'a> {
    fn new(args: &'a StressArgs, dir: &'a Path) -> Self {
        let thread = |_| Thread { done: 0, model: Model::new() };
        Stress {
            args,
            dir,
            random: Random::new(args.seed),
            threads: (0..args.threads).map(thread).collect(),
            tally: Tally::default(),
        }
    }

    fn round(&mut self) -> Result<(), Failure> {
        let ledger = self.write_and_kill()?;
        self.tally.kills += 1;
        let opening = Instant::now();
        let db = child::options(&self.args.options)?.open(self.dir)?;
        self.tally.slowest_open = self.tally.slowest_open.max(opening.elapsed());
        for thread in 0..self.threads.len() {
            self.check(&db, thread, &ledger)?;
        }
        self.tally.synced += ledger.synced_in_round;
        db.close()?;
        if self.tally.kills.is_multiple_of(VERIFY_EVERY) { self.verify() } else { Ok(()) }
    }

    fn write_and_kill(&mut self) -> Result<Ledger, Failure> {
        let mut child = self.spawn()?;
        let stdout = child.stdout.take().expect("the child's output is a pipe");
        let mut ledger = Ledger {
            acknowledged: self.threads.iter().map(|thread| thread.done).collect(),
            synced: self.threads.iter().map(|thread| thread.done).collect(),
            synced_in_round: 0,
        };
        let (ready, is_ready) = mpsc::channel();
        let life = Duration::from_millis(1 + self.random.below(self.args.kill_within));
        let early = self.random.chance(KILLED_EARLY_PERCENT);
        let read = std::thread::scope(|scope| {
            let reader = scope.spawn(|| ledger.read(BufReader::new(stdout), &ready));
            if !early {
                // An error means that the child died before it was ready; its status is checked
                // below.
                let _ = is_ready.recv_timeout(Duration::from_secs(60));
            }
            std::thread::sleep(life);
            let alive = matches!(child.try_wait(), Ok(None));
            let killed = child.kill().and_then(|()| child.wait());
            // The pipe ends with the child, and with it the reader.
            let read = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match (alive, killed) {
                (true, Ok(_)) => read,
                (_, Err(error)) => Err(Failure::database(format!("could not kill the child: {error}"))),
                (false, Ok(status)) => Err(Failure::Problem(format!("the child exited by itself: {status}"))),
            }
        });
        read?;
        Ok(ledger)
    }

    fn spawn(&self) -> Result<Child, Failure> {
        let failed = |error| Failure::database(format!("could not start a child process: {error}"));
        let from: Vec<String> = self.threads.iter().map(|thread| thread.done.to_string()).collect();
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("stress-child").arg("--db").arg(self.dir);
        command.args(["--seed", &self.args.seed.to_string(), "--from", &from.join(",")]);
        for (name, value) in &self.args.options.set {
            command.arg("-o").arg(format!("{name}={value}"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)
    }

    /// Compares a thread's keys in the database with its history.
    fn check(&mut self, db: &Db, thread: usize, ledger: &Ledger) -> Result<(), Failure> {
        let mut found = Model::new();
        for entry in db.prefix(prefix(thread)) {
            let (key, value) = entry?;
            found.insert(key.to_vec(), value.to_vec());
        }
        let acknowledged = ledger.acknowledged[thread];
        let state = &mut self.threads[thread];
        let history = |n| operation(self.args.seed, thread, n);
        let Some(there) = find_state(&mut state.model, &found, history, state.done, acknowledged + 1) else {
            return Err(Failure::Problem(format!(
                "thread {thread}: the database is in no state that its operations {} to {acknowledged} lead to",
                state.done
            )));
        };
        if there < acknowledged {
            let synced = ledger.synced[thread];
            let kind = if there < synced { "synced " } else { "" };
            return Err(Failure::Problem(format!(
                "thread {thread}: {acknowledged} operations were acknowledged ({synced} up to the last synced \
                 one), but only {there} are there: an acknowledged {kind}write is lost"
            )));
        }
        self.tally.acknowledged += acknowledged - state.done;
        if there > acknowledged {
            self.tally.in_flight_kept += 1;
        } else {
            self.tally.in_flight_gone += 1;
        }
        state.done = there;
        Ok(())
    }

    fn verify(&self) -> Result<(), Failure> {
        let db = child::options(&self.args.options)?.open(self.dir)?;
        let report = db.verify()?;
        db.close()?;
        match report.problems.first() {
            None => Ok(()),
            Some(problem) => Err(Failure::Problem(problem.clone())),
        }
    }
}

impl Ledger {
    /// Reads lines until the child is gone. A last line without a line end was cut by the kill and
    /// counts as not acknowledged: like any operation in flight, it may be in the database or not.
    fn read(&mut self, mut lines: impl BufRead, ready: &mpsc::Sender<()>) -> Result<(), Failure> {
        let mut line = String::new();
        loop {
            line.clear();
            let read = lines.read_line(&mut line);
            read.map_err(|e| Failure::database(format!("could not read the ledger: {e}")))?;
            let Some(text) = line.strip_suffix('\n') else { return Ok(()) };
            if text == child::READY {
                // The other side may have given up waiting.
                let _ = ready.send(());
                continue;
            }
            self.enter(text)
                .ok_or_else(|| Failure::database(format!("`{text}` is not a line of a ledger")))?;
        }
    }

    fn enter(&mut self, text: &str) -> Option<()> {
        let mut words = text.split(' ');
        let thread: usize = words.next()?.parse().ok()?;
        let n: u64 = words.next()?.parse().ok()?;
        let acknowledged = self.acknowledged.get_mut(thread)?;
        // A thread acknowledges its operations in order.
        (n == *acknowledged).then(|| *acknowledged += 1)?;
        if words.next()? == "synced" {
            self.synced[thread] = n + 1;
            self.synced_in_round += 1;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_counts_whole_lines_in_order() {
        let ledger = || Ledger { acknowledged: vec![5, 0], synced: vec![5, 0], synced_in_round: 0 };
        let (ready, is_ready) = mpsc::channel();
        let mut good = ledger();
        good.read(&b"ready\n0 5 synced\n1 0 buffered\n0 6 buffered\n1 1 syn"[..], &ready).unwrap();
        assert_eq!((good.acknowledged, good.synced, good.synced_in_round), (vec![7, 1], vec![6, 0], 1));
        assert!(is_ready.try_recv().is_ok());
        for bad in ["0 6 synced\n", "2 0 synced\n", "x\n", "0 5\n"] {
            assert!(ledger().read(bad.as_bytes(), &ready).is_err(), "{bad}");
        }
    }
}
