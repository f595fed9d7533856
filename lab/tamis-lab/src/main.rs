//! `tamis-lab`: measures the tables and figures of the papers again.

mod experiment;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tamis_cli::output::Out;

/// The laboratory of tamis: measures the tables and figures of the papers behind it
#[derive(Parser)]
#[command(
    name = "tamis-lab",
    version = tamis_bench::VERSION,
    after_help = "Exit codes: 0 done, 1 a problem found, 2 wrong usage or bad input, 3 the database failed.\n\n\
                  Examples:\n  tamis-lab experiment list\n  tamis-lab experiment run grf-fig10"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Experiment(Box<experiment::ExperimentArgs>),
    /// Measure a workload of your own, as `tamis bench` does; --filter also takes chucky, remix and grf-huffman
    Bench(Box<tamis_cli::bench::BenchArgs>),
}

fn main() -> ExitCode {
    let mut out = Out::stdout();
    let result = match Cli::parse().command {
        Command::Experiment(args) => experiment::run(*args, &mut out),
        Command::Bench(args) => tamis_cli::bench::run(*args, tamis_rivals::set_filter, &mut out),
    };
    tamis_cli::end("tamis-lab", out, result)
}
