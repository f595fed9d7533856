//! The `tamis` program ([`program`]), and the code that it shares with the laboratory's programs
//! (`lab/`): printing ([`output`]), progress reports ([`progress`]), exit codes ([`failure`],
//! [`end`]), common arguments ([`values`]), the benchmark ([`mod@bench`]).
//!
//! Each subcommand is a file of `commands/`: its arguments and one `run`. Without a subcommand the
//! program runs the main job: it loads the sample, reads it back and shows what the reads cost.
//! Subcommands print only through [`output::Out`] and fail with a [`failure::Failure`], which
//! determines the exit code.

/// Builds a struct of the engine's statistics, which are `#[non_exhaustive]`, for a test: as a
/// literal, with `..base`.
#[cfg(test)]
macro_rules! filled {
    ($type:path { $($field:ident $(: $value:expr)?,)+ ..$base:expr $(,)? }) => {{
        let mut filled: $type = $base;
        $(filled.$field = filled!(@ $field $($value)?);)+
        filled
    }};
    (@ $field:ident $value:expr) => { $value };
    (@ $field:ident) => { $field };
}

mod args;
mod commands;
mod complete;
mod input;
mod json;
mod records;
mod text;
mod transfer;

pub mod failure;
mod http;
pub mod output;
pub mod progress;
pub mod values;
mod watch;

use std::io::Write;
use std::process::ExitCode;

use clap::FromArgMatches as _;

use crate::args::{Cli, Command};
use crate::failure::{Failure, Outcome};
use crate::output::{Out, note};

pub mod bench {
    //! The command `bench`, for programs that have filters of their own.

    pub use crate::commands::bench::{BenchArgs, SetFilter, run};
}

/// What a terminal shows for `tamis` alone.
const GREETING: &str = "\
tamis, an embeddable key-value storage engine: look into its databases, and try it.

  tamis --db ./tamis-demo             load a sample of real places, and show what reads cost
  tamis explain --db ./tamis-demo K   the way of one read
  tamis stats --db ./tamis-demo       the tree

`tamis --help` has all commands.
";

/// Runs the program `tamis`.
pub fn program() -> ExitCode {
    // A shell that asks for completions gets them here, and nothing else happens.
    clap_complete::CompleteEnv::with_factory(args::command).var(complete::ASKED).complete();
    let cli = match parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let mut out = Out::stdout();
    // `cargo run` is the main job, and says so in the environment.
    let is_bare = std::env::args_os().len() == 1 && std::env::var_os("CARGO_MANIFEST_DIR").is_none();
    if is_bare && out.is_terminal() {
        let greeted = write!(out, "{GREETING}").map_err(Failure::from);
        return end("tamis", out, greeted.map(|()| Outcome::Done));
    }
    let result = dispatch(cli, &mut out);
    end("tamis", out, result)
}

/// Parses the command line; otherwise prints what is wrong with it, or the help that it asks for,
/// and returns the exit code.
fn parse() -> Result<Cli, ExitCode> {
    let parsed = args::command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|error| match error.use_stderr() {
        // It quotes arguments, which may be anything.
        true => {
            note(error.render().to_string().trim_end());
            ExitCode::from(2)
        }
        false => {
            // A reader that closes the pipe has had enough.
            let _ = error.print();
            ExitCode::SUCCESS
        }
    })
}

fn dispatch(cli: Cli, out: &mut Out) -> Result<Outcome, Failure> {
    use commands::*;
    match cli.command {
        None => demo::run(cli.demo, out),
        Some(Command::Load(args)) => load::run(args, out),
        Some(Command::BuildTable(args)) => build_table::run(args, out),
        Some(Command::Ingest(args)) => ingest::run(args, out),
        Some(Command::Export(args)) => export::run(args, out),
        Some(Command::Import(args)) => import::run(args, out),
        Some(Command::Get(args)) => get::run(args, out),
        Some(Command::Put(args)) => put::run(args),
        Some(Command::Del(args)) => del::run(args, out),
        Some(Command::Scan(args)) => scan::run(args, out),
        Some(Command::Explain(args)) => explain::run(args, out),
        Some(Command::Stats(args)) => stats::run(args, out),
        Some(Command::Top(args)) => top::run(&args, out),
        Some(Command::Serve(args)) => serve::run(&args, out),
        Some(Command::Heatmap(args)) => heatmap::run(args, out),
        Some(Command::Dump(args)) => dump::run(args, out),
        Some(Command::Verify(args)) => verify::run(args, out),
        Some(Command::Salvage(args)) => salvage::run(args, out),
        Some(Command::Keyspaces(command)) => keyspaces::run(command, out),
        Some(Command::Checkpoint(args)) => checkpoint::run(args),
        #[cfg(feature = "object-store")]
        Some(Command::Backup(command)) => backup::run(command, out),
        #[cfg(not(feature = "object-store"))]
        Some(Command::Backup(args)) => no_backup::run(&args),
        Some(Command::Compact(args)) => compact::run(args, out),
        Some(Command::Options(args)) => options::run(args, out),
        Some(Command::Advise(args)) => advise::run(&args, out),
        Some(Command::Bench(args)) => bench::run(*args, set_filter, out),
        Some(Command::Experiment(args)) => experiment::run(&args),
        Some(Command::Stress(args)) => stress::run(args, out),
        Some(Command::Soak(args)) => soak::run(args, out),
        Some(Command::Completions(args)) => completions::run(&args, out),
        Some(Command::Man(args)) => man::run(&args, out),
        Some(Command::StressChild(args)) => stress::child::run(args, out),
    }
}

/// Sets a filter by its text.
fn set_filter(options: &mut tamis::Options, filter: &str) -> Result<(), tamis::OptionsError> {
    options.set("keyspace.filter", filter)
}

/// Ends a program: writes buffered output and reports a failure on standard error, prefixed with
/// the program's name.
pub fn end(program: &str, mut out: Out, result: Result<Outcome, Failure>) -> ExitCode {
    let result = result.and_then(|outcome| {
        out.flush()?;
        Ok(outcome)
    });
    match result {
        Ok(outcome) => outcome.exit_code(),
        // The reader of the output has had enough: not a failure.
        Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(failure) => {
            // Earlier output goes before the failure's message. There is nowhere left to report a
            // failure of these two writes.
            let _ = out.flush();
            note(&format!("{program}: {failure}"));
            failure.exit_code()
        }
    }
}
