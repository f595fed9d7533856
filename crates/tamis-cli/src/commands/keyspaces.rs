//! `tamis keyspaces`: lists, creates and drops keyspaces, and changes their options.

use std::io::Write;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use serde_json::json;
use tamis::{Db, Keyspace, KeyspaceOptions};
use tamis_bench::report::{Align, Table, bytes, counted, grouped};

use crate::args::{DEFAULT, DbArgs};
use crate::complete;
use crate::failure::{Failure, Outcome};
use crate::output::Out;
use crate::text::printable;
use crate::values::{FilterArgs, KEYSPACE_PREFIX, assignment};

/// List, create or drop keyspaces: ordered maps of their own, each with its own options, in one
/// database
#[derive(Subcommand)]
#[command(after_help = "\
A keyspace is a tree of its own under the database's log: it has its own filters, compaction and memtables, and one write batch can
change several atomically. Every database has the keyspace `default`. Commands that read or write take --keyspace NAME.

Examples:
  tamis keyspaces list --db ./data
  tamis keyspaces create --db ./data users --filter grf -o keyspace.bits_per_key=14
  tamis keyspaces set --db ./data users bits_per_key=12
  tamis keyspaces drop --db ./data users")]
pub(crate) enum KeyspacesCommand {
    List(ListArgs),
    Create(CreateArgs),
    Set(SetArgs),
    Drop(DropArgs),
}

/// List all keyspaces in order of creation
#[derive(Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    db: DbArgs,
    /// Print one JSON object per keyspace
    #[arg(long)]
    json: bool,
}

/// Create a keyspace; creates the database if there is none
#[derive(Args)]
#[command(
    after_help = "Options named `keyspace.…` are those of the new keyspace (see `tamis options`); it keeps them."
)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// The name: 1 to 255 bytes without control characters
    name: String,
}

/// Change options of a keyspace, for tables written from now on
#[derive(Args)]
#[command(
    after_help = "Example:\n  tamis keyspaces set --db ./data users compaction=lazy-leveling size_ratio=4"
)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    db: DbArgs,
    /// The keyspace
    #[arg(add = ArgValueCompleter::new(complete::keyspaces))]
    name: String,
    /// The options, without the prefix `keyspace.`
    #[arg(required = true, value_name = "OPTION=VALUE", value_parser = assignment)]
    changes: Vec<(String, String)>,
}

/// Drop a keyspace with all its data; says how many entries it had, old versions and deletes among
/// them
#[derive(Args)]
pub(crate) struct DropArgs {
    #[command(flatten)]
    db: DbArgs,
    /// The keyspace
    #[arg(add = ArgValueCompleter::new(complete::keyspaces))]
    name: String,
    /// Print one JSON object: what it had
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: KeyspacesCommand, out: &mut Out) -> Result<Outcome, Failure> {
    match command {
        KeyspacesCommand::List(args) => list(&args, out)?,
        KeyspacesCommand::Create(args) => create(&args)?,
        KeyspacesCommand::Set(args) => {
            let db = args.db.open_existing()?;
            let without_prefix = |name| str::strip_prefix(name, KEYSPACE_PREFIX).unwrap_or(name);
            let set = args.changes.iter().map(|(name, value)| (without_prefix(name), &value[..]));
            db.keyspace(&args.name)?.set_options(&set.collect::<Vec<_>>())?;
            db.close()?;
        }
        KeyspacesCommand::Drop(args) => {
            let db = args.db.open_existing()?;
            let held = db.keyspace(&args.name)?.stats();
            db.drop_keyspace(&args.name)?;
            db.close()?;
            if args.json {
                out.json(&json!({
                    "name": held.name, "entries": held.entries, "memtable_entries": held.memtable_entries,
                    "table_bytes": held.table_bytes,
                }))?;
                return Ok(Outcome::Done);
            }
            let entries = counted(held.entries + held.memtable_entries, "entries");
            let name = printable(args.name.as_bytes());
            writeln!(out, "dropped keyspace {name}: {entries}, {} of tables", bytes(held.table_bytes))?;
        }
    }
    Ok(Outcome::Done)
}

fn create(args: &CreateArgs) -> Result<(), Failure> {
    let (database, own) = args.db.with(&args.filter).options.split();
    let mut options = KeyspaceOptions::default();
    for (name, value) in &own {
        options.set(name, value)?;
    }
    // Before a database is created for nothing.
    options.check()?;
    if args.name == DEFAULT {
        return Err(Failure::usage("every database has the keyspace `default`"));
    }
    let db = DbArgs { db: args.db.db.clone(), options: database }.open_or_create()?;
    db.create_keyspace(&args.name, options)?;
    db.close()?;
    Ok(())
}

fn list(args: &ListArgs, out: &mut Out) -> Result<(), Failure> {
    use Align::{Left, Right};
    let db: Db = args.db.open_to_look()?;
    let keyspaces: Vec<Keyspace> =
        db.keyspaces().iter().map(|name| db.keyspace(name)).collect::<Result<_, _>>()?;
    let mut table = Table::new(&[
        ("keyspace", Left),
        ("entries", Right),
        ("in memory", Right),
        ("tables", Right),
        ("runs", Right),
        ("filter", Left),
        ("bits\nper key", Right),
        ("compaction", Left),
        ("merge operator", Left),
    ]);
    for keyspace in &keyspaces {
        let (stats, options) = (keyspace.stats(), keyspace.options());
        let none = || "none".to_owned();
        if args.json {
            let object = json!({
                "name": stats.name, "entries": stats.entries, "memtable_entries": stats.memtable_entries,
                "table_bytes": stats.table_bytes, "runs": stats.runs, "filter": options.filter.to_string(),
                "bits_per_key": options.bits_per_key, "compaction": options.compaction.to_string(),
                "merge_operator": options.merge_operator, "compaction_filter": options.compaction_filter,
            });
            out.json(&object)?;
            continue;
        }
        table.row([
            printable(stats.name.as_bytes()),
            grouped(stats.entries),
            grouped(stats.memtable_entries),
            bytes(stats.table_bytes),
            stats.runs.to_string(),
            options.filter.to_string(),
            options.bits_per_key.to_string(),
            options.compaction.to_string(),
            options.merge_operator.unwrap_or_else(none),
        ]);
    }
    if !args.json {
        let table = table.within(out.width());
        out.write_all(table.as_bytes())?;
    }
    Ok(())
}
