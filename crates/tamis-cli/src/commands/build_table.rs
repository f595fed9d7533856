//! `tamis build-table`: builds a sorted table outside any database, for `tamis ingest`.

use std::io::Write;
use std::ops::Bound;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use tamis::ingest::{ExternalTableBuilder, ExternalTableInfo};
use tamis::{ExternalTableError, Options};
use tamis_bench::Progress;
use tamis_bench::report::counted;

use crate::args::KEYS_HELP;
use crate::failure::{Failure, Outcome};
use crate::input::InputArgs;
use crate::json as to_json;
use crate::output::Out;
use crate::progress::Reporter;
use crate::records::RecordError;
use crate::text::excerpt;
use crate::values::OptionArgs;

/// The limit of --sort, in bytes of keys and values.
const SORT_BYTES: usize = 1 << 30;

/// Records between two progress reports.
const STEP: u64 = 10_000;

/// Build a sorted table outside a database, for `tamis ingest`
#[derive(Args)]
#[command(after_help = KEYS_HELP, after_long_help = format!("{KEYS_HELP}\n\n\
    Records must come in strictly ascending order of their keys, byte by byte (the order of LC_ALL=C sort), unless\n\
    --sort is given: it sorts up to 1 GiB of keys and values in memory; of records with the same key, the last one\n\
    wins. A bad record ends the build with exit code 2 and leaves no file. Gzip files are decompressed. Filter,\n\
    compression and block options are those of the last level; set them to the database's.\n\nExamples:\n  \
    tamis build-table --out words.tam /usr/share/dict/words --sort\n  \
    tamis build-table --out places.tam --sort places.tsv.gz\n  \
    LC_ALL=C sort -u big.txt | tamis build-table --out big.tam -o keyspace.compression=lz4 -\n  \
    tamis ingest --db ./places places.tam"))]
pub(crate) struct BuildTableArgs {
    /// The table to create; must not exist
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    input: InputArgs,
    /// Sort the records first, in memory
    #[arg(long)]
    sort: bool,
    #[command(flatten)]
    options: OptionArgs,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: BuildTableArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let mut options = Options::default();
    args.options.apply(&mut options)?;
    let (records, mut columns) = args.input.open()?;
    let mut table = ExternalTableBuilder::create(&args.out, &options.keyspace)?;
    let progress = Reporter::new();
    progress.begin("build", 0, "records");
    let mut unsorted: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let (mut bytes, mut added, mut replaced) = (0, 0u64, 0u64);
    for record in records {
        let (line, entry) = match record {
            Ok(record) => (record.line, columns.entry(record)),
            Err(RecordError::Bad { line, reason }) => (line, Err(reason)),
            Err(RecordError::Io(error)) => return Err(args.input.unreadable(error)),
        };
        let (key, value) = entry.map_err(|reason| Failure::usage(format!("line {line}: {reason}")))?;
        if args.sort {
            bytes += key.len() + value.len();
            if bytes > SORT_BYTES {
                let most = SORT_BYTES >> 30;
                return Err(Failure::usage(format!(
                    "--sort takes at most {most} GiB of keys and values; sort the input first, or build several tables"
                )));
            }
            unsorted.push((key, value));
        } else {
            table.put(&key, &value).map_err(|error| at_line(line, error))?;
        }
        added += 1;
        if added.is_multiple_of(STEP) {
            progress.advance(STEP);
        }
    }
    // Stable: among equal keys, the last one read comes last.
    unsorted.sort_by(|a, b| a.0.cmp(&b.0));
    let mut rest = unsorted.iter().peekable();
    while let Some((key, value)) = rest.next() {
        match rest.peek().is_some_and(|next| next.0 == *key) {
            true => replaced += 1,
            false => table.put(key, value)?,
        }
    }
    let info = table.finish()?;
    progress.end();
    print(&info, replaced, args.json, out)?;
    Ok(Outcome::Done)
}

fn at_line(line: u64, error: ExternalTableError) -> Failure {
    match error {
        ExternalTableError::OutOfOrder { .. } => {
            Failure::usage(format!("line {line}: {error}; sort the input (LC_ALL=C sort), or use --sort"))
        }
        ExternalTableError::Write(error) => Failure::usage(format!("line {line}: {error}")),
        other => other.into(),
    }
}

fn print(info: &ExternalTableInfo, replaced: u64, as_json: bool, out: &mut Out) -> Result<(), Failure> {
    let path = info.path.display();
    let largest = match &info.largest {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    };
    if as_json {
        let mut object = json!({
            "path": path.to_string(), "entries": info.entries, "replaced": replaced, "bytes": info.bytes,
            "raw_bytes": info.raw_bytes, "largest": null,
        });
        if let Value::Object(object) = &mut object {
            to_json::bytes(object, "smallest", &info.smallest, false);
            if let Some(key) = largest {
                object.remove("largest");
                to_json::bytes(object, "largest", key, false);
            }
        }
        out.json(&object)?;
        return Ok(());
    }
    let smallest = excerpt(&info.smallest, 64);
    let largest = largest.map_or_else(|| "the end".to_owned(), |key| excerpt(key, 64));
    let (entries, bytes) = (counted(info.entries, "entries"), counted(info.bytes, "bytes"));
    out.page(&format!("{path}: {entries} from {smallest} to {largest}, {bytes}\n"), 2)?;
    if replaced > 0 {
        writeln!(out, "replaced by later ones with the same key: {}", counted(replaced, "records"))?;
    }
    Ok(())
}
