//! `tamis del`: deletes keys, a range, or a prefix.

use std::ffi::OsString;
use std::ops::Bound;

use clap::Args;
use tamis::WriteBatch;

use crate::args::{DbArgs, KEYS_HELP, KeyspaceArgs};
use crate::commands::put::write;
use crate::failure::{Failure, Outcome};
use crate::text::{self, end_of_prefix};

/// Delete keys, a range of keys, or all keys with a prefix
#[derive(Args)]
#[command(after_help = KEYS_HELP, after_long_help = format!("{KEYS_HELP}\n\nDeleting an absent key is not an error. The deletions of one command are\n\
    atomic.\n\nExamples:\n  \
    tamis del --db ./data greeting picture\n  \
    tamis del --db ./data -- -5                 the key -5\n  \
    tamis del --db ./data --range 2023 2024     from 2023 (included) to 2024 (excluded)\n  \
    tamis del --db ./data --prefix FR/"))]
pub(crate) struct DelArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// The keys; with --range, two of them: START and END
    #[arg(required_unless_present = "prefix")]
    keys: Vec<OsString>,
    /// Delete all keys from START (included) to END (excluded)
    #[arg(long, conflicts_with = "prefix")]
    range: bool,
    /// All keys that start with PREFIX
    #[arg(long, conflicts_with = "keys")]
    prefix: Option<OsString>,
    /// Keys and bounds are hexadecimal
    #[arg(long)]
    hex: bool,
    /// Sync: return once the deletion would survive a power cut
    #[arg(long)]
    sync: bool,
}

pub(crate) fn run(args: DelArgs) -> Result<Outcome, Failure> {
    let typed = |key: &OsString| text::typed(key, args.hex);
    let keys = args.keys.iter().map(typed).collect::<Result<Vec<_>, _>>()?;
    let range = match (args.range, &args.prefix) {
        (true, _) => {
            let Ok([start, end]) = <[Vec<u8>; 2]>::try_from(keys.clone()) else {
                return Err(Failure::usage("--range takes two keys, START and END"));
            };
            if start > end {
                return Err(Failure::usage("the start of the range lies after its end"));
            }
            Some((start, Bound::Excluded(end)))
        }
        (false, Some(prefix)) => {
            let prefix = typed(prefix)?;
            let end = end_of_prefix(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
            Some((prefix, end))
        }
        (false, None) => None,
    };
    let keyspace = args.keyspace.open_existing(&args.db)?;
    let mut batch = WriteBatch::new();
    match range {
        Some((start, end)) => {
            batch.delete_range_in::<Vec<u8>>(&keyspace, (Bound::Included(start), end));
        }
        None => keys.iter().for_each(|key| {
            batch.delete_in(&keyspace, key);
        }),
    }
    let db = keyspace.database();
    write(&db, batch, args.sync)?;
    db.close()?;
    Ok(Outcome::Done)
}
