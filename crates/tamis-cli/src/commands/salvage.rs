//! `tamis salvage`: rebuilds a sound database from the readable parts of a damaged one.

use std::fmt::Write as _;

use clap::Args;
use serde_json::json;
use tamis::operators::Operators;
use tamis::{OpenError, Options};
use tamis_bench::report::{counted, grouped};
use tamis_doctor::{SalvageReport, TableFate};

use crate::args::{DirArgs, refuse_file};
use crate::failure::{Failure, Outcome};
use crate::output::Out;
use crate::values::OptionArgs;

/// Rebuild a sound database from everything that can still be read in a damaged one
#[derive(Args)]
#[command(after_help = "\
A damaged, truncated or missing manifest is rebuilt from the existing tables and logs. No file is removed: files that are\n\
no longer part of the database are renamed to NAME.aside or NAME.damaged, and the report says why. A sound database is\n\
left unchanged.\n\n\
Exits with 0 if nothing was lost, with 1 if something is or may be lost; the report then says what.\n\n\
Examples:\n  tamis salvage --db ./places --dry-run\n  tamis salvage --db ./places")]
pub(crate) struct SalvageArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// Change nothing; report what would be done
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    options: OptionArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: SalvageArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let dir = args.dir.path();
    refuse_file(dir)?;
    if !dir.exists() {
        return Err(Failure::missing(dir));
    }
    // The options that the database was last opened with, unless they are damaged, too.
    let mut options = match Options::stored_in(dir) {
        Err(foreign @ OpenError::Foreign { .. }) => return Err(foreign.into()),
        stored => stored.ok().flatten().unwrap_or_default(),
    };
    options.operators = Operators::new().with_unknown();
    args.options.apply(&mut options)?;
    let report = tamis_doctor::salvage(dir, options, args.dry_run)?;
    match args.json {
        true => out.json(&as_json(&report))?,
        false => out.page(&page(&report), 2)?,
    }
    Ok(if report.losses.is_empty() { Outcome::Done } else { Outcome::Negative })
}

fn as_json(report: &SalvageReport) -> serde_json::Value {
    let tables = report.tables.iter().map(|table| {
        json!({
            "file": table.file, "keyspace": table.keyspace, "entries": table.entries,
            "fate": table.fate.name(), "why": table.why,
        })
    });
    let logs = report.logs.iter().map(|log| {
        json!({
            "file": log.file, "writes": log.writes, "replayed": log.replayed, "problems": log.problems,
        })
    });
    let keyspaces = report.keyspaces.iter().map(|keyspace| {
        json!({
            "name": keyspace.name, "source": keyspace.source, "tables": keyspace.tables,
            "entries": keyspace.entries,
        })
    });
    json!({
        "dry_run": report.dry_run, "needed": report.is_needed(), "rebuilt": report.rebuilt,
        "manifest": report.manifest, "tables": tables.collect::<Vec<_>>(), "logs": logs.collect::<Vec<_>>(),
        "keyspaces": keyspaces.collect::<Vec<_>>(), "others": report.others,
        "moved": report.moved.iter().map(|(file, name)| json!({"file": file, "name": name})).collect::<Vec<_>>(),
        "entries_found": report.entries_found, "entries_kept": report.entries_kept,
        "writes_replayed": report.writes_replayed, "losses": report.losses, "notes": report.notes,
    })
}

fn page(report: &SalvageReport) -> String {
    let mut out = String::new();
    if !report.is_needed() {
        return "nothing to salvage; the database was left unchanged (`tamis verify` also checks the contents of tables and blob files)\n"
            .to_owned();
    }
    for what in &report.manifest {
        let _ = writeln!(out, "{what}");
    }
    for table in &report.tables {
        let (file, fate, entries) = (&table.file, table.fate.name(), counted(table.entries, "entries"));
        let keyspace = match table.keyspace.is_empty() {
            true => String::new(),
            false => format!(" of `{}`", table.keyspace),
        };
        let why = if table.why.is_empty() { String::new() } else { format!(": {}", table.why) };
        let _ = writeln!(out, "{file}: {fate}, {entries}{keyspace}{why}");
    }
    for log in &report.logs {
        let (writes, replayed) = (counted(log.writes, "writes"), grouped(log.replayed));
        let _ = writeln!(out, "{}: {replayed} of {writes} replayed", log.file);
        for problem in &log.problems {
            let _ = writeln!(out, "  {problem}");
        }
    }
    for keyspace in &report.keyspaces {
        let (tables, entries) =
            (counted(keyspace.tables as u64, "tables"), counted(keyspace.entries, "entries"));
        let (name, source) = (&keyspace.name, &keyspace.source);
        let _ = writeln!(out, "keyspace `{name}`: {tables}, {entries}; known from {source}");
    }
    if report.dry_run {
        for other in &report.others {
            let _ = writeln!(out, "{other}: would be set aside");
        }
    } else {
        for (file, name) in &report.moved {
            let _ = writeln!(out, "{file}: kept as {name}");
        }
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    for loss in &report.losses {
        let _ = writeln!(out, "LOST: {loss}");
    }
    let count = |fate: TableFate| report.tables.iter().filter(|table| table.fate == fate).count();
    let kept = count(TableFate::Kept);
    let done = match (report.dry_run, kept) {
        (true, _) => "would be",
        (_, 1) => "was",
        _ => "were",
    };
    let _ = writeln!(
        out,
        "{} {done} kept, {} superseded and {} others set aside; {} in tables, {} from logs: {}",
        counted(kept as u64, "tables"),
        count(TableFate::Superseded),
        count(TableFate::SetAside),
        counted(report.entries_kept, "entries"),
        counted(report.writes_replayed, "writes"),
        match report.losses.len() {
            0 => "nothing was lost".to_owned(),
            n => counted(n as u64, "losses"),
        }
    );
    out
}
