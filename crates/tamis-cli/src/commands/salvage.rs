//! `tamis salvage`: rebuilds a sound database from the readable parts of a damaged one.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tamis::maintenance::{SalvageReport, TableFate};
use tamis::operators::Operators;
use tamis::{Db, OpenError, Options};
use tamis_bench::report::grouped;

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
Examples:\n  tamis salvage ./places --dry-run\n  tamis salvage ./places")]
pub(crate) struct SalvageArgs {
    /// The database's directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
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
    // The options that the database was last opened with, unless they are damaged, too.
    let mut options = match Options::stored_in(&args.dir) {
        Err(foreign @ OpenError::Foreign { .. }) => return Err(foreign.into()),
        stored => stored.ok().flatten().unwrap_or_default(),
    };
    options.operators = Operators::new().with_unknown();
    args.options.apply(&mut options)?;
    let report = Db::salvage(&args.dir, options, args.dry_run)?;
    match args.json {
        true => writeln!(out, "{}", as_json(&report))?,
        false => print(&report, out)?,
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

fn print(report: &SalvageReport, out: &mut Out) -> Result<(), Failure> {
    if !report.is_needed() {
        writeln!(out, "nothing is wrong; the database was left unchanged")?;
        return Ok(());
    }
    for what in &report.manifest {
        writeln!(out, "{what}")?;
    }
    for table in &report.tables {
        let (file, fate, entries) = (&table.file, table.fate.name(), grouped(table.entries));
        let keyspace = match table.keyspace.is_empty() {
            true => String::new(),
            false => format!(" of `{}`", table.keyspace),
        };
        let why = if table.why.is_empty() { String::new() } else { format!(": {}", table.why) };
        writeln!(out, "{file}: {fate}, {entries} entries{keyspace}{why}")?;
    }
    for log in &report.logs {
        let (writes, replayed) = (grouped(log.writes), grouped(log.replayed));
        writeln!(out, "{}: {replayed} of {writes} writes replayed", log.file)?;
        for problem in &log.problems {
            writeln!(out, "  {problem}")?;
        }
    }
    for keyspace in &report.keyspaces {
        let (tables, entries) = (keyspace.tables, grouped(keyspace.entries));
        let (name, source) = (&keyspace.name, &keyspace.source);
        writeln!(out, "keyspace `{name}`: {tables} tables, {entries} entries; known from {source}")?;
    }
    match report.dry_run {
        true => report.others.iter().try_for_each(|other| writeln!(out, "{other}: would be set aside"))?,
        false => report.moved.iter().try_for_each(|(file, name)| writeln!(out, "{file}: kept as {name}"))?,
    }
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    for loss in &report.losses {
        writeln!(out, "LOST: {loss}")?;
    }
    let count = |fate: TableFate| report.tables.iter().filter(|table| table.fate == fate).count();
    let done = if report.dry_run { "would be" } else { "were" };
    writeln!(
        out,
        "{} tables {done} kept, {} superseded ones and {} others set aside; {} entries in tables, {} writes from logs: {}",
        count(TableFate::Kept),
        count(TableFate::Superseded),
        count(TableFate::SetAside),
        grouped(report.entries_kept),
        grouped(report.writes_replayed),
        match report.losses.len() {
            0 => "nothing was lost".to_owned(),
            n => format!("{n} losses"),
        }
    )?;
    Ok(())
}
