//! `tamis ingest`: adds externally built tables to a database.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tamis::ingest::IngestOptions;
use tamis_bench::report::{counted, grouped};

use crate::args::{DbArgs, KeyspaceArgs};
use crate::failure::{Failure, Outcome};
use crate::output::{Out, note};
use crate::values::FilterArgs;

/// Add tables built by `tamis build-table` to a database, atomically
#[derive(Args)]
#[command(after_help = "\
All files are added in one atomic write. Their entries replace older ones of the database. The files must not overlap\n\
each other. Creates the database if there is none. A file that is damaged, incomplete, or not built for this database is\n\
bad input (exit code 2), and nothing changes.\n\n\
Examples:\n  tamis ingest --db ./places places.tam\n  \
tamis ingest --db ./big --move part-*.tam\n  tamis ingest --db ./users --keyspace names names.tam")]
pub(crate) struct IngestArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// The tables
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Move the files into the database instead of copying them
    #[arg(long = "move")]
    move_files: bool,
    /// Add the files without first reading all of their contents
    #[arg(long)]
    no_verify: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: IngestArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let keyspace = args.keyspace.open_or_create(&args.db.with(&args.filter))?;
    let db = keyspace.database();
    let options = IngestOptions { move_files: args.move_files, verify: !args.no_verify };
    let report = keyspace.ingest(&args.files, options)?;
    drop(keyspace);
    db.close()?;
    for path in &report.left {
        note(&format!("{} could not be removed; it was nevertheless added to the database", path.display()));
    }
    if args.json {
        let tables: Vec<_> = report
            .tables
            .iter()
            .map(|table| {
                json!({
                    "source": table.source.display().to_string(), "table": table.table, "level": table.level,
                    "entries": table.entries, "bytes": table.bytes,
                })
            })
            .collect();
        let object =
            json!({ "seq": report.seq, "entries": report.entries, "bytes": report.bytes, "tables": tables });
        out.json(&object)?;
        return Ok(Outcome::Done);
    }
    for table in &report.tables {
        let (source, entries) = (table.source.display(), counted(table.entries, "entries"));
        let (table, level) = (table.table, table.level);
        out.page(&format!("{source}: {entries} into table {table} of level {level}\n"), 2)?;
    }
    let (tables, entries) =
        (counted(report.tables.len() as u64, "tables"), counted(report.entries, "entries"));
    let bytes = counted(report.bytes, "bytes");
    writeln!(out, "{tables}, {entries}, {bytes} as write {}", grouped(report.seq))?;
    Ok(Outcome::Done)
}
