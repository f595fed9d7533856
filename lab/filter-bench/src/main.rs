//! `filter-bench`: measures the filters of tamis. See README.md.

#![forbid(unsafe_code)]

mod args;
mod filters;
mod keysets;
mod measure;
mod peers;
mod plots;
mod progress;
mod queries;
mod report;
mod stats;
mod table;

use std::error::Error;
use std::fs;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;
use tamis_lab::machine::Machine;

use args::{Cli, Command, Common};
use progress::Progress;
use report::Report;

/// Instructions for getting the larger key sets.
const FETCHING: &str = include_str!("../KEYS.md");

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // There is no way to report that this failed.
            let _ = writeln!(io::stderr(), "filter-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), Box<dyn Error>> {
    let machine = report::this_machine();
    let (report, common) = match &command {
        Command::Table(options) => {
            let progress = start(&options.common)?;
            (table::run(options, &machine, &progress)?, &options.common)
        }
        Command::Peers(options) => {
            let progress = start(&options.common)?;
            (peers::run(options, &machine, &progress)?, &options.common)
        }
        Command::FetchKeys => {
            return print(FETCHING);
        }
    };
    write(&report, common, &machine)
}

/// Checks that results can be written before hours are spent on them.
fn start(common: &Common) -> Result<Progress, Box<dyn Error>> {
    for file in [&common.json, &common.markdown].into_iter().flatten() {
        fs::write(file, "").map_err(|error| format!("could not write {}: {error}", file.display()))?;
    }
    if let Some(directory) = &common.svg {
        fs::create_dir_all(directory)
            .map_err(|error| format!("could not create {}: {error}", directory.display()))?;
    }
    Ok(Progress::new(!common.quiet))
}

fn write(report: &Report, common: &Common, machine: &Machine) -> Result<(), Box<dyn Error>> {
    if let Some(file) = &common.json {
        fs::write(file, serde_json::to_string_pretty(&report.to_json(machine))? + "\n")?;
    }
    if let Some(file) = &common.markdown {
        fs::write(file, report.to_markdown(machine))?;
    }
    if let Some(directory) = &common.svg {
        for plot in &report.plots {
            plot.write(directory)?;
        }
    }
    print(&report.to_text(machine))
}

/// Prints, ignoring a closed pipe.
fn print(text: &str) -> Result<(), Box<dyn Error>> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
