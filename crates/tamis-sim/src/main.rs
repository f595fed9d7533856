//! `tamis-sim`: the whole engine in a deterministic simulation. See the README beside this crate.

mod client;
mod coverage;
mod disk;
mod feed;
mod hunt;
mod listener;
mod machine;
mod mutations;
mod oracle;
mod plan;
mod run;
mod settings;
mod shrink;
mod transactions;

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::{Args, Parser, Subcommand};

use crate::hunt::{Hunt, Tally};
use crate::plan::Plan;

/// Runs the whole engine (threads, clock and disk) under one seed, with exact replay.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: Run,
}

#[derive(Args)]
struct Run {
    /// The maximum number of seeds to run.
    #[arg(long, default_value_t = u64::MAX)]
    seeds: u64,
    /// The maximum time to run, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0, conflicts_with = "daily")]
    from: u64,
    /// Begins at a seed that changes every day.
    #[arg(long)]
    daily: bool,
    /// The number of concurrent simulations [default: the number of processors].
    #[arg(long)]
    jobs: Option<u64>,
    /// Continues after a failure.
    #[arg(long)]
    keep_going: bool,
    /// The time for shrinking the first failing plan, in seconds; 0 disables it.
    #[arg(long, default_value_t = 60)]
    shrink_seconds: u64,
}

#[derive(Subcommand)]
enum Command {
    /// Runs one plan twice and reports the result.
    Replay {
        /// A seed, a file, or `-` for standard input.
        plan: String,
        /// Prints the actions of clients and disk on standard error.
        #[arg(long)]
        verbose: bool,
    },
    /// Prints the plan of a seed as JSON.
    Plan {
        /// The seed.
        seed: u64,
    },
    /// Shrinks a failing plan and prints it as JSON.
    Shrink {
        /// A seed, a file, or `-` for standard input.
        plan: String,
        /// The time limit in seconds.
        #[arg(long, default_value_t = 300)]
        seconds: u64,
    },
    /// Runs concurrent transactions under the schedules of seeds, and judges what they saw.
    Transactions {
        /// The maximum number of seeds to run.
        #[arg(long, default_value_t = u64::MAX)]
        seeds: u64,
        /// The maximum time to run, in seconds.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        from: u64,
    },
    /// Injects known bugs into copies of the engine, one at a time, and reports which are found.
    Mutations {
        /// The root of the repository.
        #[arg(long, default_value = ".")]
        root: PathBuf,
        /// The time limit per bug in seconds.
        #[arg(long, default_value_t = 120)]
        seconds: u64,
        /// Only bugs with this in their name.
        #[arg(long)]
        only: Option<String>,
        /// Only checks that every bug can still be injected into the engine.
        #[arg(long)]
        check: bool,
    },
    /// Runs seeds with instrumentation, and prints which share of each room of the engine they execute.
    Coverage {
        /// The root of the repository.
        #[arg(long, default_value = ".")]
        root: PathBuf,
        /// The number of seeds to run.
        #[arg(long, default_value_t = 500)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// The number of concurrent processes [default: the number of processors].
        #[arg(long)]
        jobs: Option<u64>,
        /// The directory of the build [default: a temporary one].
        #[arg(long)]
        target: Option<PathBuf>,
    },
    /// Runs every `stride`th seed and reports its result.
    #[command(hide = true)]
    Work {
        from: u64,
        stride: u64,
        #[arg(default_value_t = u64::MAX)]
        end: u64,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => run_seeds(&cli.run),
        Some(Command::Replay { plan, verbose }) => replay(&plan, verbose),
        Some(Command::Plan { seed }) => print_plan(&plan::plan(seed)).map(|()| true),
        Some(Command::Shrink { plan, seconds }) => shrink_plan(&plan, seconds),
        Some(Command::Mutations { root, check: true, .. }) => mutations::check(&root),
        Some(Command::Mutations { root, seconds, only, .. }) => {
            mutations::hunt_all(&root, Duration::from_secs(seconds), only.as_deref())
        }
        Some(Command::Transactions { seeds, seconds, from }) => Ok(run_transactions(from, seeds, seconds)),
        Some(Command::Coverage { root, seeds, from, jobs: asked, target }) => {
            coverage::coverage(&root, from, seeds, jobs(asked), target.as_deref())
        }
        Some(Command::Work { from, stride, end }) => {
            hunt::work(from..end, stride);
            Ok(true)
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tamis-sim: {error}");
            ExitCode::from(2)
        }
    }
}

fn jobs(asked: Option<u64>) -> u64 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    asked.unwrap_or(cores).max(1)
}

/// The distance between the seeds of successive days.
const SEEDS_A_DAY: u64 = 1 << 24;

fn run_seeds(run: &Run) -> io::Result<bool> {
    let from = if run.daily {
        let today =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        (today / 86_400) * SEEDS_A_DAY
    } else {
        run.from
    };
    println!("seeds from {from}");
    let started = std::time::Instant::now();
    let hunt = Hunt {
        from,
        seeds: run.seeds.min(u64::MAX - from),
        limit: Duration::from_secs(run.seconds),
        jobs: jobs(run.jobs),
        stop: !run.keep_going,
    };
    let Tally { seeds, steps, failures } = hunt::hunt(hunt, |line| println!("{line}"))?;
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{seeds} simulations, {steps} steps in {seconds:.0} s ({:.1} million a minute), {} failed",
        steps as f64 / seconds * 60.0 / 1e6,
        failures.len(),
    );
    let Some((seed, _)) = failures.first() else { return Ok(true) };
    println!("again: tamis-sim replay {seed}");
    if run.shrink_seconds > 0 {
        println!("shrinking the plan …");
        let (plan, failure) = shrink::shrink(plan::plan(*seed), Duration::from_secs(run.shrink_seconds))?;
        print_plan(&plan)?;
        println!("{failure}");
    }
    Ok(false)
}

fn run_transactions(from: u64, seeds: u64, seconds: u64) -> bool {
    let seeds = seeds.min(u64::MAX - from);
    let (ran, failure) = transactions::hunt(from, seeds, Duration::from_secs(seconds));
    println!("{ran} histories of transactions");
    if let Some((seed, failure)) = &failure {
        println!("{seed} failed: {failure}");
        println!("again: tamis-sim transactions --from {seed} --seeds 1");
    }
    failure.is_none()
}

fn load(plan: &str) -> io::Result<Plan> {
    if let Ok(seed) = plan.parse() {
        return Ok(plan::plan(seed));
    }
    let mut text = String::new();
    match plan {
        "-" => io::stdin().read_to_string(&mut text)?,
        path => std::fs::File::open(path)?.read_to_string(&mut text)?,
    };
    serde_json::from_str(&text).map_err(io::Error::other)
}

fn replay(which: &str, verbose: bool) -> io::Result<bool> {
    let plan = load(which)?;
    let first = run::run_telling(&plan, verbose);
    let summary = |report: &machine::Report| {
        format!(
            "{} steps, {:.3} s of its time, trace {:016x}; longest, with {:.3} s: {}",
            report.steps,
            report.clock.as_secs_f64(),
            report.trace,
            report.longest.1.as_secs_f64(),
            report.longest.0,
        )
    };
    if let Some(failure) = &first.failure {
        println!("failed after {}: {failure}", summary(&first));
        return Ok(false);
    }
    let second = run::run(&plan);
    if (first.steps, first.trace) != (second.steps, second.trace) {
        println!("the two runs differ: {} and {}", summary(&first), summary(&second));
        return Ok(false);
    }
    println!("passed, both runs identical: {}", summary(&first));
    Ok(true)
}

fn print_plan(plan: &Plan) -> io::Result<()> {
    println!("{}", serde_json::to_string(plan).map_err(io::Error::other)?);
    Ok(())
}

fn shrink_plan(which: &str, seconds: u64) -> io::Result<bool> {
    let (plan, failure) = shrink::shrink(load(which)?, Duration::from_secs(seconds))?;
    print_plan(&plan)?;
    eprintln!("{failure}");
    Ok(true)
}
