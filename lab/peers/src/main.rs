//! Comparison of tamis with other storage engines.
//!
//! `run` conducts a comparison ([`conduct`](mod@conduct)): suites ([`suites`]) become requests ([`protocol`]) to one
//! process per system ([`link`], [`worker`]), answers become rows ([`record`], [`rows`]). [`transactions`](mod@transactions)
//! is a comparison of its own.

mod args;
mod conduct;
mod counted;
mod directory;
pub mod engines;
mod failure;
mod instructions;
mod link;
mod memory;
mod native;
mod process;
mod protocol;
pub mod record;
pub mod report;
mod rows;
mod show;
mod source;
mod suites;
mod transactions;
mod waits;
mod worker;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tamis_lab::documents::DocumentError;

use crate::args::{Cli, Command, RunArgs};
use crate::conduct::{Audience, Stage, conduct, version_of};
use crate::engines::Engine;
use crate::engines::system::{System, Visitor};
use crate::failure::Failure;
use crate::instructions::Start;
use crate::link::Link;
use crate::memory::Group;
use crate::report::pages;
use crate::report::{Context, ReportError};
use crate::rows::Writer;
use crate::show::Show;
use crate::suites::{Plan, Suite};
use crate::transactions::TransactionsArgs;
use crate::waits::WaitsArgs;

const DEBUG_BUILD: &str = "this is a debug build, whose figures are meaningless: build with --release";

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(args) => run(&args),
        Command::Report { dir } => report_of(&dir),
        Command::Condense { dir, out } => condense(&dir, &out),
        Command::Tables { root, check } => tables(&root, check),
        Command::Transactions(args) => transactions(&args),
        Command::Waits(args) => waits(&args),
        Command::List => list(),
        Command::Worker { system } => serve(&system),
        Command::TransactionsWorker { side } => transactions::serve(side),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // There is no way to report that this failed.
            let _ = writeln!(std::io::stderr(), "tamis-peers: {failure}");
            failure.exit_code()
        }
    }
}

fn run(args: &RunArgs) -> Result<(), Failure> {
    let native = native::program(args.native.as_deref());
    let (sizes, systems) = (args.sizes()?, args.systems(native.is_some())?);
    let of_suites: Vec<Vec<Plan>> =
        args.suites().into_iter().map(|suite| suite.plans(&sizes)).collect::<Result<_, Failure>>()?;
    let mut plans = of_suites.concat();
    let mut left_out = None;
    if let Some(bytes) = plans.iter().filter_map(|plan| plan.memory_bytes).min()
        && let Err(error) = Group::new(bytes)
    {
        if args.memory.is_some() || !args.suites.is_empty() {
            return Err(Failure::System(format!("memory cannot be limited: {error}")));
        }
        plans.retain(|plan| plan.memory_bytes.is_none());
        left_out = Some(format!("suites that need a limit of memory are left out: {error}"));
    }
    make_dir(&args.out)?;
    let path = args.out.join(rows::FILE);
    let (writer, there) = Writer::open(&path, args.resume, &plans, &systems)?;
    let unwritten = |error: ReportError| Failure::System(error.to_string());
    let place = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    Context::note(&args.out, &command_line(), &place).map_err(unwritten)?;
    plans.retain(|plan| !there.contains(&plan.suite));
    let dir = databases(&place)?;
    if let Some(system) = systems.iter().find(|system| system.is_native()) {
        native::check(native.as_deref(), system, &sizes, dir.path())?;
    }
    let this = std::env::current_exe()
        .map_err(|error| Failure::System(format!("this program cannot be found: {error}")))?;
    let steps = |plan: &Plan| plan.steps.len() as u64 * u64::from(plan.rounds);
    let total = plans.iter().map(steps).sum::<u64>() * systems.len() as u64;
    let mut show = Show::new(writer, total, args.verbose);
    if cfg!(debug_assertions) && !args.quick {
        show.note(DEBUG_BUILD);
    }
    if let Some(why) = left_out {
        show.note(&why);
    }
    let limit = Duration::from_secs(args.limit);
    let program = |system: &System| native.as_deref().filter(|_| system.is_native()).unwrap_or(&this);
    let spawn = |system: &System| Link::spawn(program(system), system, limit);
    let count = |system: &System| instructions::spawn(program(system), system, limit);
    let counts = args.counts_instructions() && instructions::is_possible();
    if args.counts_instructions() && !counts {
        show.note("valgrind is not installed: instructions are not counted");
    }
    let count = counts.then_some(&count as &Start<'_>);
    let stage = Stage { systems: &systems, spawn: &spawn, count, dir: dir.path(), audience: &mut show };
    let done = conduct(&plans, stage);
    show.end();
    let troubles = done?;
    report_of(&args.out)?;
    if troubles.is_empty() {
        return Ok(());
    }
    Err(Failure::System(format!("not everything could be measured:\n{}", troubles.join("\n"))))
}

fn transactions(args: &TransactionsArgs) -> Result<(), Failure> {
    make_dir(&args.out)?;
    let place = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = databases(&place)?;
    if cfg!(debug_assertions) && !args.quick {
        // Nothing is lost if this cannot be said.
        let _ = writeln!(std::io::stderr(), "{DEBUG_BUILD}");
    }
    transactions::run(args, &command_line(), &place, dir.path())
}

fn waits(args: &WaitsArgs) -> Result<(), Failure> {
    let place = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = databases(&place)?;
    print(&waits::run(args, dir.path())?)
}

/// Arguments with a path of this machine, and the words that stand for it in what is kept.
const PATHS: [(&str, &str); 4] =
    [("--out", "DIR"), ("--dir", "DIR"), ("--native", "PROGRAM"), ("--key-file", "FILE")];

/// Replaces paths of this machine by words.
fn without_paths(arguments: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut value_of = None;
    let word = |argument: String| {
        if let Some(word) = value_of.take() {
            return String::from(word);
        }
        if let Some((name, word)) = PATHS.into_iter().find(|(name, _)| argument.starts_with(name)) {
            match &argument[name.len()..] {
                "" => value_of = Some(word),
                rest if rest.starts_with('=') => return format!("{name}={word}"),
                _ => {}
            }
        }
        argument
    };
    arguments.into_iter().map(word).collect()
}

/// Returns the arguments, quoted for a shell, with words for paths of this machine.
fn command_line() -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=.,:/+".contains(c);
    let quoted = |argument: String| match !argument.is_empty() && argument.chars().all(plain) {
        true => argument,
        false => format!("'{}'", argument.replace('\'', "'\\''")),
    };
    // Paths need not be UTF-8.
    let arguments = std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    let arguments = without_paths(arguments).into_iter().map(quoted);
    std::iter::once("tamis-peers".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}

fn report_of(dir: &Path) -> Result<(), Failure> {
    let failed = |error: ReportError| Failure::Usage(error.to_string());
    let rows = report::load(&dir.join(rows::FILE)).map_err(failed)?;
    let context = Context::load(dir).map_err(failed)?;
    report::write(&rows, &context, dir).map_err(|error| match error {
        ReportError::Empty => Failure::Usage(format!("{}: {error}", dir.display())),
        error => Failure::System(error.to_string()),
    })
}

fn condense(dir: &Path, out: &Path) -> Result<(), Failure> {
    let failed = |error: ReportError| Failure::Usage(error.to_string());
    let rows = report::load(&dir.join(rows::FILE)).map_err(failed)?;
    let context = Context::load(dir).map_err(failed)?;
    make_dir(out)?;
    context.save(out).map_err(failed)?;
    let path = out.join(rows::FILE);
    let text = report::condense(&rows).map_err(failed)?;
    std::fs::write(&path, text).map_err(|error| Failure::file("write", &path, &error))
}

fn tables(root: &Path, check: bool) -> Result<(), Failure> {
    let failed = |error: DocumentError| Failure::Usage(error.to_string());
    let outdated = || Ok(pages::outdated(root).map_err(failed)?.into_iter().map(|(path, _)| path).collect());
    let found: Vec<PathBuf> = if check { outdated()? } else { pages::refresh(root).map_err(failed)? };
    let names = || found.iter().map(|path| format!("{}\n", path.display())).collect::<String>();
    match check && !found.is_empty() {
        true => Err(Failure::Usage(format!("these differ from their rows:\n{}", names().trim_end()))),
        false => print(&names()),
    }
}

/// Creates a temporary directory for databases.
fn databases(parent: &Path) -> Result<tempfile::TempDir, Failure> {
    make_dir(parent)?;
    let made = tempfile::Builder::new().prefix("tamis-peers-").tempdir_in(parent);
    made.map_err(|error| Failure::file("make a directory in", parent, &error))
}

fn make_dir(dir: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(dir).map_err(|error| Failure::file("make", dir, &error))
}

fn list() -> Result<(), Failure> {
    let mut text = String::from("Suites:\n");
    for suite in Suite::ALL {
        let workloads: Vec<&str> = suite.workloads().iter().map(|workload| workload.name()).collect();
        text.push_str(&format!("  {suite:9} {}\n            {}\n", suite.about(), workloads.join(", ")));
    }
    text.push_str("\nSystems:\n");
    for name in System::compiled_in() {
        let system: System = name.parse().map_err(|error| Failure::System(format!("{error}")))?;
        text.push_str(&format!("  {name:9} {}\n", version_of(&system)));
    }
    if cfg!(feature = "rocksdb") {
        text.push_str("  rocksdb-native, with --native PROGRAM\n");
    }
    text.push_str("  tamis:OPTION=VALUE,OPTION=VALUE\n");
    text.push('\n');
    text.push_str(&transactions::about());
    print(&text)
}

/// Writes to standard output. Who stops reading early has seen enough.
fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::System(format!("could not write the output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Runs as a worker.
fn serve(system: &System) -> Result<(), Failure> {
    struct Serve;

    impl Visitor for Serve {
        type Output = std::io::Result<()>;

        fn visit<E: Engine>(self) -> std::io::Result<()> {
            worker::serve::<E>(std::io::stdin().lock(), std::io::stdout().lock())
        }
    }

    system.with(Serve).map_err(|error| Failure::System(format!("the conductor is gone: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_kept_without_paths() {
        let arguments =
            "run --out /a/b --keys 5 --native=/c/d --outer x --key-file /e".split(' ').map(str::to_owned);
        let kept = without_paths(arguments).join(" ");
        assert_eq!(kept, "run --out DIR --keys 5 --native=PROGRAM --outer x --key-file FILE");
    }
}
