//! `tamis load`: many records from a file.

use std::io::Write;
use std::time::Instant;

use clap::Args;
use serde_json::json;
use tamis::{Db, WriteBatch};
use tamis_bench::Progress;
use tamis_bench::report::grouped;

use crate::args::{DbArgs, KEYS_HELP};
use crate::failure::{Failure, Outcome};
use crate::input::InputArgs;
use crate::output::{Out, note};
use crate::progress::Reporter;
use crate::records::RecordError;

/// So many bad records are described one by one; the others are counted.
const BAD_SHOWN: u64 = 10;

/// A batch is written when it holds so many bytes, whatever --batch says.
const BATCH_BYTES: usize = 8 << 20;

/// Load records from lines, TSV or CSV
#[derive(Args)]
#[command(after_help = KEYS_HELP, after_long_help = format!("{KEYS_HELP}\n\nMakes the database if there is none. A file packed with gzip is unpacked.\n\
    Bad records (a missing column, a key beyond 64 KiB, wrong hexadecimal digits, broken CSV) are left out,\n\
    told with their line, and make the exit code 2.\n\nExamples:\n  \
    tamis load --db ./words /usr/share/dict/words                    each line a key\n  \
    tamis load --db ./places data/geonames-cities.tsv.gz             first column the key, the others the value\n  \
    tamis load --db ./users --header --key-column email --value-column name users.csv\n  \
    zcat big.tsv.gz | tamis load --db ./big --format tsv -"))]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    input: InputArgs,
    /// Records per write; a batch is stored as a whole or not at all
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: u32,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: LoadArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let (records, columns) = args.input.open()?;

    let db = args.db.open_or_create()?;
    let progress = Reporter::new();
    let mut loader =
        Loader { db: &db, batch: WriteBatch::new(), batch_bytes: 0, loaded: 0, bytes: 0, bad: 0 };
    let start = Instant::now();
    progress.begin("load", 0, "records");
    for record in records {
        let (line, entry) = match record {
            Ok(record) => (record.line, columns.entry(record)),
            Err(RecordError::Bad { line, reason }) => (line, Err(reason)),
            Err(RecordError::Io(error)) => return Err(args.input.unreadable(error)),
        };
        match entry {
            Ok((key, value)) => loader.add(&key, &value),
            Err(reason) => {
                loader.bad += 1;
                if loader.bad <= BAD_SHOWN {
                    progress.note(&format!("line {line}: {reason}"));
                }
            }
        }
        if loader.batch.len() >= args.batch as usize || loader.batch_bytes >= BATCH_BYTES {
            progress.advance(loader.batch.len() as u64);
            loader.write()?;
        }
    }
    loader.write()?;
    progress.end();
    let (loaded, bytes, bad) = (loader.loaded, loader.bytes, loader.bad);
    db.close()?;
    let seconds = start.elapsed().as_secs_f64();
    if bad > BAD_SHOWN {
        note(&format!("{} more bad records", grouped(bad - BAD_SHOWN)));
    }
    if args.json {
        writeln!(out, "{}", json!({ "loaded": loaded, "bad": bad, "bytes": bytes, "seconds": seconds }))?;
    } else {
        let rate = (loaded as f64 / seconds.max(1e-9)) as u64;
        writeln!(
            out,
            "{} records loaded, {} bad, {seconds:.2} s, {} records/s",
            grouped(loaded),
            grouped(bad),
            grouped(rate)
        )?;
    }
    Ok(if bad == 0 { Outcome::Done } else { Outcome::BadInput })
}

struct Loader<'a> {
    db: &'a Db,
    batch: WriteBatch,
    batch_bytes: usize,
    loaded: u64,
    bytes: u64,
    bad: u64,
}

impl Loader<'_> {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.batch.put(key, value);
        self.batch_bytes += key.len() + value.len();
        self.bytes += (key.len() + value.len()) as u64;
        self.loaded += 1;
    }

    fn write(&mut self) -> Result<(), Failure> {
        self.batch_bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        if !batch.is_empty() {
            self.db.write(batch)?;
        }
        Ok(())
    }
}
