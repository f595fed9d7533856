//! Tests tamis on real failing file systems. `README.md` describes each suite, its requirements and
//! its duration.

// Only the suite of flips uses some parts, and it knows only the registers of x86-64.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

mod desk;
mod disks;
mod inject;
mod machine;
mod oracle;
mod promises;
mod report;
#[cfg(target_arch = "x86_64")]
mod strike;
mod suites;
mod turns;
mod wire;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser as _;

use report::Report;
use suites::{Amount, Bench, Suite};

/// Power cuts, errors of system calls, full file systems, limits and kills, each judged by an
/// oracle.
#[derive(Debug, clap::Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    worker: Option<Hidden>,
    /// The suites to run [default: all].
    suites: Vec<Suite>,
    #[command(flatten)]
    amount: Amount,
    /// The directory for temporary databases and images [default: in memory, if there is space].
    #[arg(long)]
    work: Option<PathBuf>,
    /// The directory for evidence of failures [default: a new temporary directory].
    #[arg(long)]
    evidence: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Hidden {
    /// Runs a worker; started by the suites.
    #[command(hide = true)]
    Worker {
        #[command(subcommand)]
        job: worker::Job,
    },
}

/// Space needed for working in memory: images are sparse, but a suite may fill one, and sessions
/// are stored there as well.
const MEMORY_BYTES: u64 = 2 << 30;

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(Hidden::Worker { job }) = args.worker {
        return worker::run(job);
    }
    report::stop_on_interrupt();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("the suites could not be run: {error}");
            2.into()
        }
    }
}

/// Returns whether nothing failed.
fn run(args: &Args) -> Result<bool, String> {
    let parent = args.work.clone().unwrap_or_else(default_work);
    let work = tempfile::Builder::new().prefix("tamis-faults-").tempdir_in(&parent);
    let work = work.map_err(|error| format!("{}: {error}", parent.display()))?;
    let evidence = match &args.evidence {
        Some(dir) => dir.clone(),
        None => std::env::temp_dir().join(format!("tamis-faults-evidence-{}", std::process::id())),
    };
    let report = Report::new(evidence);
    let suites = match args.suites.as_slice() {
        [] => clap::ValueEnum::value_variants(),
        named => named,
    };
    let bench = Bench { amount: &args.amount, report: &report, work: work.path().to_owned() };
    println!("seed {}, working in {}", args.amount.seed, work.path().display());
    for suite in suites {
        if !report::stopped() {
            println!("running {suite:?}…");
            bench.run(*suite)?;
        }
    }
    if report::stopped() {
        report.skip("everything after an interrupt");
    }
    Ok(report.print() && !report::stopped())
}

fn default_work() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let roomy = rustix::fs::statvfs(&memory).is_ok_and(|stat| stat.f_bavail * stat.f_frsize >= MEMORY_BYTES);
    if roomy { memory } else { std::env::temp_dir() }
}
