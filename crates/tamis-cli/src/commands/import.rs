//! `tamis import`: reads what `tamis export` wrote.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde_json::json;
use tamis::{AdminError, Db, Keyspace, KeyspaceOptions, WriteBatch};
use tamis_bench::Progress;
use tamis_bench::report::counted;

use crate::args::{DEFAULT, DbArgs};
use crate::failure::{Failure, Outcome};
use crate::output::Out;
use crate::progress::Reporter;
use crate::records::unpacked;
use crate::transfer::{Counts, Item, Reader, TransferError};
use crate::values::{FilterArgs, PublishArgs};

/// A batch is written when it has this many entries or bytes.
const BATCH: usize = 1000;
const BATCH_BYTES: usize = 8 << 20;

/// Read keyspaces that `tamis export` wrote
#[derive(Args)]
#[command(after_help = "\
The format, and whether the input is gzip, are taken from its contents. Creates the database and the keyspaces that are missing, with
the options `keyspace.…` given here. Entries replace older ones under the same key; other entries stay. Everything imported is in
tables at the end.

A file is checked as a whole first: one that is damaged or incomplete changes nothing (exit code 2). Of the standard input, the
entries before the damage are imported; the message says so. Importing the same input again does no harm.

Examples:
  tamis import --db ./copy data.jsonl
  tamis import --db ./copy --keyspace users --into people data.tamis.gz
  tamis export --db ./data --format binary | tamis import --db ./copy")]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    publish: PublishArgs,
    /// The file; `-` is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Only this keyspace of the input
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    /// Import that keyspace under another name
    #[arg(long, value_name = "NAME", requires = "keyspace")]
    into: Option<String>,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

type Input = Reader<Box<dyn BufRead>>;

pub(crate) fn run(args: ImportArgs, out: &mut Out) -> Result<Outcome, Failure> {
    if !args.is_stream() {
        args.check_file()?;
    }
    let start = Instant::now();
    let reader = args.open()?;
    let database = args.db.with(&args.filter);
    let (_, own) = database.options.split();
    let mut options = KeyspaceOptions::default();
    for (name, value) in &own {
        options.set(name, value)?;
    }
    let db = database.open_or_create()?;
    let publisher = args.publish.start(&db)?;
    let progress = Reporter::new();
    progress.begin("import", 0, "entries");
    let mut import = Import {
        db: &db,
        options,
        progress: &progress,
        keyspace: None,
        batch: WriteBatch::new(),
        batch_bytes: 0,
        done: Counts::default(),
    };
    let result = import.take(&args, reader);
    progress.end();
    let done = import.done;
    let result = result.and_then(|()| Ok(db.flush()?));
    drop(publisher);
    let closed = db.close();
    result.map_err(|failure| match done.entries {
        0 => failure,
        entries => failure.with(&format!(
            "Imported before that: {}. Import the whole input again: they are replaced by themselves.",
            counted(entries, "entries")
        )),
    })?;
    closed?;
    let wanted = args.keyspace.as_deref().filter(|_| done.keyspaces == 0);
    if let Some(name) = wanted {
        return Err(Failure::usage(format!("the input has no keyspace `{name}`")));
    }
    let seconds = start.elapsed().as_secs_f64();
    let Counts { keyspaces, entries } = done;
    match args.json {
        true => out.json(&json!({ "keyspaces": keyspaces, "entries": entries, "seconds": seconds }))?,
        false => writeln!(
            out,
            "{} of {} imported, {seconds:.2} s",
            counted(entries, "entries"),
            counted(keyspaces, "keyspaces")
        )?,
    }
    Ok(Outcome::Done)
}

impl ImportArgs {
    fn is_stream(&self) -> bool {
        self.file.as_os_str() == OsStr::new("-")
    }

    fn open(&self) -> Result<Input, Failure> {
        let unreadable = |e| Failure::usage(format!("could not read {}: {e}", self.file.display()));
        let input: Box<dyn Read> = match self.is_stream() {
            true => Box::new(std::io::stdin().lock()),
            false => Box::new(File::open(&self.file).map_err(unreadable)?),
        };
        let name = self.file.to_str().filter(|_| !self.is_stream());
        let input = unpacked(input, name).map_err(unreadable)?;
        Reader::new(input).map_err(|error| self.wrong(error))
    }

    fn wrong(&self, error: TransferError) -> Failure {
        let file = self.file.display();
        match error {
            TransferError::Bad { place, what } => Failure::usage(format!("{file}, {place}: {what}")),
            TransferError::Io(error) => Failure::usage(format!("could not read {file}: {error}")),
        }
    }

    /// Reads a file to its end and writes nothing.
    fn check_file(&self) -> Result<(), Failure> {
        let mut found = false;
        for item in self.open()? {
            if let Item::Keyspace(name) = item.map_err(|error| self.wrong(error))? {
                found |= self.keyspace.as_ref().is_none_or(|wanted| *wanted == name);
            }
        }
        match &self.keyspace {
            Some(name) if !found => Err(Failure::usage(format!("the input has no keyspace `{name}`"))),
            _ => Ok(()),
        }
    }
}

struct Import<'a> {
    db: &'a Db,
    /// For keyspaces that are created.
    options: KeyspaceOptions,
    progress: &'a Reporter,
    /// The one whose entries come now, unless they are skipped.
    keyspace: Option<Keyspace>,
    batch: WriteBatch,
    batch_bytes: usize,
    /// What was written.
    done: Counts,
}

impl Import<'_> {
    /// Writes everything that is wanted. If the input is bad, what came before is written all the
    /// same.
    fn take(&mut self, args: &ImportArgs, reader: Input) -> Result<(), Failure> {
        for item in reader {
            match item {
                Ok(Item::Keyspace(name)) => {
                    self.write()?;
                    self.keyspace = None;
                    if args.keyspace.as_ref().is_none_or(|wanted| *wanted == name) {
                        self.keyspace = Some(self.target(args.into.as_deref().unwrap_or(&name))?);
                        self.done.keyspaces += 1;
                    }
                }
                Ok(Item::Entry(key, value)) => {
                    let Some(keyspace) = &self.keyspace else { continue };
                    self.batch_bytes += key.len() + value.len();
                    self.batch.put_in(keyspace, key, value);
                    if self.batch.len() >= BATCH || self.batch_bytes >= BATCH_BYTES {
                        self.write()?;
                    }
                }
                Err(error) => {
                    self.write()?;
                    return Err(args.wrong(error));
                }
            }
        }
        self.write()
    }

    /// Returns the keyspace of this name, created if there is none.
    fn target(&self, name: &str) -> Result<Keyspace, Failure> {
        match self.db.keyspace(name) {
            Err(AdminError::NoKeyspace { .. }) if name != DEFAULT => {
                Ok(self.db.create_keyspace(name, self.options.clone())?)
            }
            found => Ok(found?),
        }
    }

    fn write(&mut self) -> Result<(), Failure> {
        let batch = std::mem::take(&mut self.batch);
        let entries = batch.len() as u64;
        self.batch_bytes = 0;
        if entries > 0 {
            self.db.write(batch)?;
            self.done.entries += entries;
            self.progress.advance(entries);
        }
        Ok(())
    }
}
