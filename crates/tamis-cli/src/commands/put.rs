//! `tamis put`: stores one key and its value.

use std::ffi::OsString;
use std::io::Read;

use clap::Args;
use tamis::{Durability, WriteBatch};

use crate::args::{DbArgs, KEYS_HELP, KeyspaceArgs};
use crate::failure::{Failure, Outcome};
use crate::text;
use crate::values::FilterArgs;

/// Store a value under a key
#[derive(Args)]
#[command(after_help = KEYS_HELP, after_long_help = format!("{KEYS_HELP}\n\nCreates the database if there is none.\n\nExamples:\n  \
    tamis put --db ./data greeting hello\n  \
    tamis put --db ./data picture - < picture.png\n  \
    tamis put --db ./data --hex 00ff10 cafe\n  \
    tamis put --db ./data -- -5 -17"))]
pub(crate) struct PutArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// The key
    key: OsString,
    /// The value; `-` reads it from standard input
    value: OsString,
    /// Key and value are hexadecimal (except a value from standard input)
    #[arg(long)]
    hex: bool,
    /// Sync: return once the write would survive a power failure
    #[arg(long)]
    sync: bool,
}

pub(crate) fn run(args: PutArgs) -> Result<Outcome, Failure> {
    let key = text::typed(&args.key, args.hex)?;
    let value = if args.value == "-" {
        let mut value = Vec::new();
        let read = std::io::stdin().lock().read_to_end(&mut value);
        read.map_err(|e| Failure::usage(format!("could not read the standard input: {e}")))?;
        value
    } else {
        text::typed(&args.value, args.hex)?
    };
    let keyspace = args.keyspace.open_or_create(&args.db.with(&args.filter))?;
    let mut batch = WriteBatch::new();
    batch.put_in(&keyspace, key, value);
    let db = keyspace.database();
    write(&db, batch, args.sync)?;
    db.close()?;
    Ok(Outcome::Done)
}

/// Writes a batch: synced if requested, otherwise as the database's options say.
pub(crate) fn write(db: &tamis::Db, batch: WriteBatch, sync: bool) -> Result<(), Failure> {
    if sync {
        db.write_with(batch, Durability::Sync)?
    } else {
        db.write(batch)?
    }
    Ok(())
}
