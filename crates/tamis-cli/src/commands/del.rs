//! `tamis del`: deletes keys, a range, or a prefix.

use std::ffi::OsString;
use std::io::Write;
use std::ops::Bound;

use clap::Args;
use serde_json::{Value, json};
use tamis::{Keyspace, ReadError, WriteBatch};
use tamis_bench::report::counted;

use crate::args::{DbArgs, KEYS_HELP, KeyspaceArgs};
use crate::commands::put::write;
use crate::failure::{Failure, Outcome};
use crate::output::{Out, note};
use crate::text::{self, end_of_prefix};

/// The most keys that are counted before they are deleted.
const COUNTED: u64 = 1_000_000;

/// Delete keys, a range of keys, all keys with a prefix, or all keys
#[derive(Args)]
#[command(after_help = KEYS_HELP, after_long_help = format!("{KEYS_HELP}\n\nDeleting an absent key is not an error. The deletions of one command are\n\
    atomic. --range, --prefix and --all say how many keys they deleted. They read them for that, as a scan does, up to 1,000,000; the deletion \
    itself is one record, whatever it covers.\n\nExamples:\n  \
    tamis del --db ./data greeting picture\n  \
    tamis del --db ./data -- -5                 the key -5\n  \
    tamis del --db ./data --range 2023 2024     from 2023 (included) to 2024 (excluded)\n  \
    tamis del --db ./data --prefix FR/\n  \
    tamis del --db ./data --keyspace users --all"))]
pub(crate) struct DelArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// The keys; with --range, two of them: START and END
    #[arg(required_unless_present_any = ["prefix", "all"])]
    keys: Vec<OsString>,
    /// Delete all keys from START (included) to END (excluded)
    #[arg(long, conflicts_with = "prefix")]
    range: bool,
    /// All keys that start with PREFIX, which must not be empty
    #[arg(long, conflicts_with = "keys")]
    prefix: Option<OsString>,
    /// All keys of the keyspace
    #[arg(long, conflicts_with_all = ["keys", "range", "prefix"])]
    all: bool,
    /// Keys and bounds are hexadecimal
    #[arg(long)]
    hex: bool,
    /// Sync: return once the deletion would survive a power failure
    #[arg(long)]
    sync: bool,
    /// Print one JSON object: the number of keys, as far as they were counted
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: DelArgs, out: &mut Out) -> Result<Outcome, Failure> {
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
        (false, None) if args.all => Some((Vec::new(), Bound::Unbounded)),
        (false, Some(prefix)) => {
            let prefix = typed(prefix)?;
            if prefix.is_empty() {
                // A variable that was never set, most likely.
                return Err(Failure::usage(
                    "the prefix is empty, and every key begins with that; --all deletes all keys",
                ));
            }
            let end = end_of_prefix(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
            Some((prefix, end))
        }
        (false, None) => None,
    };
    let keyspace = args.keyspace.open_existing(&args.db)?;
    let mut batch = WriteBatch::new();
    // This process alone writes, so these are the keys that go.
    let mut deleted = None;
    match range {
        Some((start, end)) => {
            let range = (Bound::Included(start), end);
            deleted = Some(count(&keyspace, range.clone()));
            batch.delete_range_in::<Vec<u8>>(&keyspace, range);
        }
        None => keys.iter().for_each(|key| {
            batch.delete_in(&keyspace, key);
        }),
    }
    let db = keyspace.database();
    write(&db, batch, args.sync)?;
    db.close()?;
    if args.json {
        out.json(&object(&deleted))?;
    }
    match deleted {
        None => {}
        Some(Ok(_)) if args.json => {}
        Some(Ok(keys)) if keys > COUNTED => writeln!(out, "deleted more than {}", counted(COUNTED, "keys"))?,
        Some(Ok(keys)) => writeln!(out, "deleted {}", counted(keys, "keys"))?,
        // What cannot be read can be deleted.
        Some(Err(error)) => note(&format!("deleted, and not counted: {error}")),
    }
    Ok(Outcome::Done)
}

/// Returns the number of deleted keys: null if it is not known, as keys that are named are deleted
/// without a look at them.
fn object(deleted: &Option<Result<u64, ReadError>>) -> Value {
    match deleted {
        Some(Ok(keys)) if *keys > COUNTED => json!({ "deleted": null, "more_than": COUNTED }),
        Some(Ok(keys)) => json!({ "deleted": keys }),
        Some(Err(_)) | None => json!({ "deleted": null }),
    }
}

/// Returns the number of keys in a range: one more than [`COUNTED`] if there are so many.
fn count(keyspace: &Keyspace, range: (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Result<u64, ReadError> {
    let (mut begin, end) = range;
    let mut keys = 0;
    'from: loop {
        for entry in keyspace.range((begin.clone(), end.clone())) {
            keys += 1;
            match entry {
                Ok(_) if keys > COUNTED => return Ok(keys),
                Ok(_) => {}
                // It counts even if this program cannot compute its value.
                Err(ReadError::Merge { key, .. }) => {
                    begin = Bound::Excluded(key);
                    continue 'from;
                }
                Err(error) => return Err(error),
            }
        }
        return Ok(keys);
    }
}
