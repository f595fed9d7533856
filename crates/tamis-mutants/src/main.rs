//! `tamis-mutants`: mutation tests of the engine. See the README beside this crate.

mod build;
mod child;
mod compile;
mod copy;
mod find;
mod report;
mod results;
mod rewrite;
mod rooms;
mod run;
mod select;
mod site;
mod suite;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::select::Selection;

/// Makes thousands of small mistakes in one build of the engine, and asks its tests to find each.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Args)]
struct Place {
    /// Where mutants are built: gigabytes.
    #[arg(long, default_value = "target/mutants")]
    scratch: PathBuf,
}

#[derive(Subcommand)]
enum Command {
    /// Lists mutants, one JSON object a line.
    List {
        /// The root of the repository.
        #[arg(long, default_value = "../..")]
        root: PathBuf,
        #[command(flatten)]
        selection: Selection,
    },
    /// Builds a copy of the repository with the mutants in it.
    Build {
        /// The root of the repository.
        #[arg(long, default_value = "../..")]
        root: PathBuf,
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        selection: Selection,
        /// The command that stands for cargo.
        #[arg(long, default_value = "cargo")]
        cargo: String,
    },
    /// Lets the tests look for each mutant of the build.
    Run {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        plan: run::Plan,
    },
    /// Prints the results of a run.
    Report {
        /// The directory of results.
        directory: PathBuf,
        /// The mutants that are no mistakes, with the reasons.
        #[arg(long, default_value = "EQUIVALENT.md")]
        equivalent: PathBuf,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::List { root, selection } => list(&root, &selection),
        Command::Report { directory, equivalent } => {
            report::report(&directory, &equivalent).map(|text| print!("{text}"))
        }
        Command::Run { place, plan } => run::run(&place.scratch, &plan),
        Command::Build { root, place, selection, cargo } => {
            build::build(&root, &place.scratch, &selection, &cargo).map(|_| ())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tamis-mutants: {error}");
            ExitCode::from(2)
        }
    }
}

fn list(root: &std::path::Path, selection: &Selection) -> io::Result<()> {
    for mutant in selection.choose(&find::find(root)?.mutants) {
        println!("{}", serde_json::to_string(mutant)?);
    }
    Ok(())
}
