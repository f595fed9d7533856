//! The process that is killed: writes its history and reports each acknowledged operation on
//! standard output.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use tamis::{Db, Durability, Options, WriteBatch};

use crate::commands::stress::history::{Change, Operation, operation};
use crate::failure::{Failure, Outcome};
use crate::output::Out;
use crate::values::OptionArgs;

/// Small, so that flushes and compactions are under way whenever the process is killed.
const MEMTABLE_BYTES: u64 = 256 << 10;

/// The first thread flushes once in this many of its operations.
const FLUSH_EVERY: u64 = 5000;

/// The line that reports that the database is open.
pub(super) const READY: &str = "ready";

#[derive(Args)]
pub(crate) struct ChildArgs {
    #[arg(long)]
    db: PathBuf,
    #[arg(long)]
    seed: u64,
    /// The next operation of each thread.
    #[arg(long, value_delimiter = ',', required = true)]
    from: Vec<u64>,
    #[command(flatten)]
    options: OptionArgs,
}

/// Returns the options with which parent and child open the database.
pub(super) fn options(args: &OptionArgs) -> Result<Options, Failure> {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = MEMTABLE_BYTES;
    options.keyspace.table_bytes = MEMTABLE_BYTES;
    args.apply(&mut options)?;
    Ok(options)
}

/// Writes until the process is killed or the pipe is closed.
pub(crate) fn run(args: ChildArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let db = options(&args.options)?.open(&args.db)?;
    writeln!(out, "{READY}")?;
    out.flush()?;
    let results: Vec<Result<(), Failure>> = std::thread::scope(|scope| {
        let (db, seed) = (&db, args.seed);
        let spawn = |(thread, &from)| scope.spawn(move || write(db, seed, thread, from));
        let handles: Vec<_> = args.from.iter().enumerate().map(spawn).collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, _>| {
            handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        handles.into_iter().map(join).collect()
    });
    results.into_iter().collect::<Result<Vec<()>, Failure>>()?;
    Ok(Outcome::Done)
}

fn write(db: &Db, seed: u64, thread: usize, from: u64) -> Result<(), Failure> {
    for n in from.. {
        let operation = operation(seed, thread, n);
        perform(db, &operation)?;
        let durability = if operation.synced { "synced" } else { "buffered" };
        // One write call per line: a line reaches the pipe whole or not at all, and before the next
        // operation starts.
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(format!("{thread} {n} {durability}\n").as_bytes())?;
        stdout.flush()?;
        drop(stdout);
        if thread == 0 && n % FLUSH_EVERY == FLUSH_EVERY - 1 {
            db.flush()?;
        }
    }
    Ok(())
}

/// Performs one operation, by the plain call where there is one.
fn perform(db: &Db, operation: &Operation) -> Result<(), Failure> {
    match (&operation.changes[..], operation.synced) {
        ([Change::Put(key, value)], false) => db.put(key, value)?,
        ([Change::Delete(key)], false) => db.delete(key)?,
        ([Change::DeleteRange(start, end)], false) => db.delete_range(&start[..]..&end[..])?,
        (changes, synced) => {
            let mut batch = WriteBatch::new();
            for change in changes {
                match change {
                    Change::Put(key, value) => batch.put(key, value),
                    Change::Delete(key) => batch.delete(key),
                    Change::DeleteRange(start, end) => batch.delete_range(&start[..]..&end[..]),
                };
            }
            db.write_with(batch, if synced { Durability::Sync } else { Durability::Buffered })?;
        }
    }
    Ok(())
}
