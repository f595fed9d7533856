//! `tamis get`: prints the value of one key.

use std::ffi::OsString;
use std::io::Write;

use clap::Args;
use tamis_bench::report::counted;

use crate::args::{DbArgs, KEYS_HELP, KeyspaceArgs};
use crate::failure::{Failure, Outcome};
use crate::json;
use crate::output::{Out, note};
use crate::text;

/// Print the value of a key
#[derive(Args)]
#[command(after_help = KEYS_HELP, after_long_help = format!("{KEYS_HELP}\n\nExits with 1 if the key has no value. On a terminal, characters that would control it are escaped, and a value of more than 4,000 \
    characters is cut; a pipe or a file gets all of its bytes.\n\nExamples:\n  \
    tamis get --db ./tamis-demo 'FR/Auvergne-Rhône-Alpes/Lyon@45.74906,4.84789'\n  \
    tamis get --db ./data --hex 00ff10"))]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// The key
    key: OsString,
    /// The key is hexadecimal, and so is the value printed
    #[arg(long)]
    hex: bool,
    /// Print the value's bytes and nothing else, not even a newline
    #[arg(long, conflicts_with = "hex")]
    raw: bool,
    /// Print a huge value whole on a terminal, too
    #[arg(long)]
    full: bool,
    /// Print one JSON object: the key and its value, as `tamis scan --json`
    #[arg(long, conflicts_with_all = ["raw", "full"])]
    json: bool,
}

pub(crate) fn run(args: GetArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let key = text::typed(&args.key, args.hex)?;
    let keyspace = args.keyspace.open_read_only(&args.db)?;
    let Some(value) = keyspace.get(&key)? else {
        note("not found");
        return Ok(Outcome::Negative);
    };
    if args.json {
        out.json(&json::entry(&key, Some(&value), args.hex))?;
        return Ok(Outcome::Done);
    }
    if out.is_terminal() && !args.raw {
        let most = if args.full { usize::MAX } else { text::MOST_SHOWN };
        let (shown, was_cut) = match args.hex {
            true => text::cut(text::hex(&value), value.len(), most),
            false => text::on_terminal(&value, most),
        };
        writeln!(out, "{shown}")?;
        if was_cut {
            out.flush()?;
            let size = counted(value.len() as u64, "bytes");
            note(&format!("the value has {size}; --full prints all of it, and so does a pipe or a file"));
        }
        return Ok(Outcome::Done);
    }
    match (args.hex, args.raw) {
        (true, _) => writeln!(out, "{}", text::hex(&value))?,
        (_, true) => out.write_all(&value)?,
        _ => {
            out.write_all(&value)?;
            out.write_all(b"\n")?;
        }
    }
    Ok(Outcome::Done)
}
