//! `tamis load`: loads many records from a file.

use std::io::Write;
use std::time::Instant;

use clap::Args;
use serde_json::{Value, json};
use tamis::{Durability, Keyspace, WriteBatch};
use tamis_bench::Progress;
use tamis_bench::report::{counted, grouped};

use crate::args::{DbArgs, KEYS_HELP, KeyspaceArgs};
use crate::failure::{Failure, Outcome};
use crate::input::InputArgs;
use crate::output::{Out, note};
use crate::progress::Reporter;
use crate::records::{Place, RecordError};
use crate::values::{FilterArgs, PublishArgs};

/// The number of bad records described individually; the others are counted.
const BAD_SHOWN: u64 = 10;

/// A batch is written when it holds this many bytes, whatever --batch says.
const BATCH_BYTES: usize = 8 << 20;

/// Load records from lines, TSV or CSV
#[derive(Args)]
#[command(after_help = KEYS_HELP, after_long_help = format!("{KEYS_HELP}\n\nCreates the database if there is none. Gzip files are decompressed. Everything\n\
    loaded is in tables at the end.\n\
    Bad records (a missing column, a key longer than 64 KiB, wrong hexadecimal digits, broken CSV) are skipped and\n\
    reported with their line; the exit code is then 2. A last line without a line end is an ordinary record.\n\n\
    A load that fails keeps the records it has loaded. It reports their number, whether they are synced, and the line to\n\
    resume from: load the same input again with --from-line. Byte positions refer to the decompressed input.\n\nExamples:\n  \
    tamis load --db ./words /usr/share/dict/words                    each line is a key\n  \
    tamis load --db ./places places.tsv.gz                           first column: key, others: value\n  \
    tamis load --db ./names --filter grf names.tsv                   one filter for the whole tree\n  \
    tamis load --db ./users --header --key-column email --value-column name users.csv\n  \
    zcat big.tsv.gz | tamis load --db ./big --format tsv -"))]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    publish: PublishArgs,
    #[command(flatten)]
    input: InputArgs,
    /// Records per write batch; a batch is stored atomically
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: u32,
    /// Skip everything before this line except the header, to resume a failed load
    #[arg(long, value_name = "LINE", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    from_line: u64,
    /// Print one JSON object at the end, even if the load fails
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: LoadArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let (mut records, mut columns) = args.input.open()?;

    let keyspace = args.keyspace.open_or_create(&args.db.with(&args.filter))?;
    let db = keyspace.database();
    let publisher = args.publish.start(&db)?;
    let progress = Reporter::new();
    let mut loader = Loader::new(&keyspace, records.place());
    let start = Instant::now();
    progress.begin("load", 0, "records");
    let result = loop {
        let Some(record) = records.next() else { break loader.write() };
        let (line, entry) = match record {
            Ok(record) if record.line < args.from_line => {
                loader.skip(records.place());
                continue;
            }
            Ok(record) => (record.line, columns.entry(record)),
            Err(RecordError::Bad { line, .. }) if line < args.from_line => {
                loader.skip(records.place());
                continue;
            }
            Err(RecordError::Bad { line, reason }) => (line, Err(reason)),
            // The records before it are complete.
            Err(RecordError::Io(error)) => break loader.write().and(Err(args.input.unreadable(error))),
        };
        match entry {
            Ok((key, value)) => loader.add(&key, &value),
            Err(reason) => {
                loader.account.bad += 1;
                if loader.account.bad <= BAD_SHOWN {
                    progress.note(&format!("line {line}: {reason}"));
                }
            }
        }
        loader.account.read_to = records.place();
        if loader.batch.len() >= args.batch as usize || loader.batch_bytes >= BATCH_BYTES {
            let records = loader.batch.len() as u64;
            if let Err(error) = loader.write() {
                break Err(error);
            }
            progress.advance(records);
        }
    };
    progress.end();
    // Otherwise every later command would replay it from the log.
    let result = match loader.account.loaded {
        0 => result,
        _ => result.and_then(|()| Ok(keyspace.flush()?)),
    };
    let mut account = loader.account;
    let synced_one_by_one = matches!(db.options().durability, Durability::Sync);
    drop(publisher);
    let closed = db.close();
    account.closed = closed.is_ok();
    account.synced = account.closed || synced_one_by_one;
    let result = result.and(closed.map_err(Failure::from));
    let seconds = start.elapsed().as_secs_f64();
    if account.bad > BAD_SHOWN {
        note(&counted(account.bad - BAD_SHOWN, "more bad records"));
    }
    let Account { loaded, bad, bytes, .. } = account;
    if args.json {
        let mut object = json!({ "loaded": loaded, "bad": bad, "raw_bytes": bytes, "seconds": seconds });
        if let Err(failure) = &result {
            object["failed"] = account.failed(failure);
        }
        out.json(&object)?;
    }
    if let Err(failure) = result {
        return Err(failure.with(&account.text()));
    }
    if !args.json {
        let rate = (loaded as f64 / seconds.max(1e-9)) as u64;
        writeln!(
            out,
            "{} loaded, {} bad, {seconds:.2} s, {} records/s",
            counted(loaded, "records"),
            grouped(bad),
            grouped(rate)
        )?;
    }
    Ok(if bad == 0 { Outcome::Done } else { Outcome::BadInput })
}

struct Loader<'a> {
    keyspace: &'a Keyspace,
    batch: WriteBatch,
    batch_bytes: usize,
    account: Account,
}

impl<'a> Loader<'a> {
    fn new(keyspace: &'a Keyspace, start: Place) -> Loader<'a> {
        Loader { keyspace, batch: WriteBatch::new(), batch_bytes: 0, account: Account::from(start) }
    }

    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.batch.put_in(self.keyspace, key, value);
        self.batch_bytes += key.len() + value.len();
    }

    fn skip(&mut self, to: Place) {
        (self.account.loaded_to, self.account.read_to) = (to, to);
    }

    /// Writes the records read since the last call. Must not be called again after a failure.
    fn write(&mut self) -> Result<(), Failure> {
        let (batch, bytes) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.batch_bytes));
        let records = batch.len() as u64;
        if records > 0 {
            self.keyspace.database().write(batch).inspect_err(|_| self.account.refused = records)?;
        }
        self.account.loaded += records;
        self.account.bytes += bytes as u64;
        self.account.loaded_to = self.account.read_to;
        Ok(())
    }
}

/// The progress of a load, from which it can be resumed.
struct Account {
    /// The acknowledged records and their bytes.
    loaded: u64,
    bytes: u64,
    bad: u64,
    /// Records of the batch whose write failed.
    refused: u64,
    /// All good records before this place were acknowledged.
    loaded_to: Place,
    /// All records before this place were read.
    read_to: Place,
    /// Whether the database was closed cleanly: logs with a failed write no longer count then.
    closed: bool,
    synced: bool,
}

impl From<Place> for Account {
    /// The account of a load that has read nothing yet.
    fn from(start: Place) -> Account {
        Account {
            loaded: 0,
            bytes: 0,
            bad: 0,
            refused: 0,
            loaded_to: start,
            read_to: start,
            closed: false,
            synced: false,
        }
    }
}

impl Account {
    fn read(&self) -> u64 {
        self.loaded + self.refused + self.bad
    }

    fn text(&self) -> String {
        let Account { loaded_to: Place { line, byte }, .. } = self;
        let (read, loaded) = (grouped(self.read()), grouped(self.loaded));
        let bad = match self.bad {
            0 => String::new(),
            bad => format!(", {} were bad", grouped(bad)),
        };
        let mut text = format!(
            "{read} records were read{bad}, {loaded} are in the database: all good ones before line {line} (byte {byte})."
        );
        text += match (self.loaded, self.synced) {
            (0, _) => "",
            (_, true) => " They are synced.",
            (_, false) => {
                " They may not be synced: a power failure may lose the last of them; the end of this program does not."
            }
        };
        if self.refused > 0 {
            let (refused, last) = (grouped(self.refused), self.read_to.line - 1);
            let fate = match self.closed {
                true => "are not in the database",
                false => "are in the database all or not at all; the next opening decides",
            };
            text += &format!(" The {refused} in lines {line} to {last} were rejected and {fate}.");
        }
        text + &format!(" To resume, load the same input with --from-line {line}.")
    }

    fn failed(&self, failure: &Failure) -> Value {
        json!({
            "error": failure.to_string(), "read": self.read(), "refused": self.refused, "synced": self.synced,
            "from_line": self.loaded_to.line, "from_byte": self.loaded_to.byte,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Account {
        Account {
            loaded: 2000,
            bytes: 10_000,
            bad: 3,
            refused: 0,
            loaded_to: Place { line: 2004, byte: 12_003 },
            read_to: Place { line: 2004, byte: 12_003 },
            closed: true,
            synced: true,
        }
    }

    #[test]
    fn a_failed_load_reports_what_is_stored_and_where_to_resume() {
        let text = account().text();
        assert_eq!(
            text,
            "2,003 records were read, 3 were bad, 2,000 are in the database: all good ones before line 2004 (byte \
             12003). They are synced. To resume, load the same input with --from-line 2004."
        );
    }

    #[test]
    fn the_fate_of_a_rejected_batch_is_reported_as_far_as_known() {
        let refused = Account { refused: 100, read_to: Place { line: 2104, byte: 13_000 }, ..account() };
        let text = refused.text();
        assert!(text.contains("2,103 records were read"), "{text}");
        assert!(
            text.contains("The 100 in lines 2004 to 2103 were rejected and are not in the database."),
            "{text}"
        );
        let text = Account { closed: false, synced: false, ..refused }.text();
        assert!(text.contains("may not be synced"), "{text}");
        assert!(text.contains("all or not at all; the next opening decides"), "{text}");
        assert!(text.ends_with("--from-line 2004."), "{text}");
    }
}
