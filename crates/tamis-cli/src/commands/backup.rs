//! `tamis backup`: backups on object storage.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tamis::Db;
use tamis::operators::Operators;
use tamis_bench::Progress as _;
use tamis_bench::report::{Align, Table, bytes, counted, grouped};
use tamis_remote::{
    BackupOptions, Error, OnProgress, Repository, RestoreOptions, Restored, Retention, ShipOptions, Transfer,
    Which, Written,
};

use crate::args::stored_options;
use crate::failure::{Failure, Outcome};
use crate::output::{Out, note};
use crate::progress::Reporter;
use crate::values;

/// Beside the database: what is known about its files.
const CACHE: &str = "backup-cache.json";

/// Back up to object storage, and restore from it
#[derive(Subcommand)]
#[command(after_help = "\
A repository is a directory, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX; it holds the backups of one database. Keys,
regions and endpoints come from the environment (AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT, …), as `object_store` documents.

Examples:
  tamis backup create s3://backups/places --db ./places
  tamis backup list s3://backups/places
  tamis backup restore s3://backups/places ./restored
  tamis backup prune s3://backups/places --keep-last 10 --keep-within 7d
  tamis backup ship s3://backups/places --db ./places")]
pub(crate) enum BackupCommand {
    Create(CreateArgs),
    List(ListArgs),
    Verify(VerifyArgs),
    Restore(RestoreArgs),
    Prune(PruneArgs),
    Ship(ShipArgs),
}

#[derive(Args)]
struct RepositoryArgs {
    /// The repository
    #[arg(value_name = "URL")]
    url: String,
    /// Transfer at most this many bytes a second (20MiB)
    #[arg(long, value_name = "BYTES", value_parser = values::bytes)]
    bandwidth: Option<u64>,
    /// Transfer this many files at a time
    #[arg(long, value_name = "N", default_value_t = 8)]
    parallel: usize,
    /// Try a request again after this time (60s, 5m); 8 MiB must get through in it
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    timeout: Duration,
    /// Print JSON: one object, or one per backup of a list and per state shipped
    #[arg(long)]
    json: bool,
}

/// Back up a database; sends only what the newest backup does not have
#[derive(Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    repository: RepositoryArgs,
    /// The database's directory
    #[arg(long, value_name = "DIR")]
    db: PathBuf,
    /// Continue the backups of another copy of the database, which can write no more
    #[arg(long)]
    takeover: bool,
}

/// List the backups
#[derive(Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    repository: RepositoryArgs,
}

/// Check that a backup can be restored: exits with 1 if not
#[derive(Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    repository: RepositoryArgs,
    #[command(flatten)]
    which: WhichArgs,
    /// Compare sizes only, without fetching
    #[arg(long)]
    quick: bool,
}

/// Restore a backup to a new directory; continues where an interrupted restore stopped
#[derive(Args)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    repository: RepositoryArgs,
    /// The new directory
    #[arg(value_name = "DIR")]
    target: PathBuf,
    #[command(flatten)]
    which: WhichArgs,
    /// Up to this sequence number: the newest backup before it, and logs of later ones
    #[arg(long, value_name = "N", conflicts_with_all = ["state", "before"])]
    to_seq: Option<u64>,
}

/// Remove old backups, and what no backup needs any more
#[derive(Args)]
pub(crate) struct PruneArgs {
    #[command(flatten)]
    repository: RepositoryArgs,
    /// Keep so many of the newest
    #[arg(long, value_name = "N", default_value_t = 1)]
    keep_last: usize,
    /// Keep those that are not older (90m, 48h, 7d)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    keep_within: Option<Duration>,
    /// Keep the last of each of so many days
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep_daily: usize,
    /// Keep what is younger in any case
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    grace: Duration,
    /// Remove nothing; report what would go
    #[arg(long)]
    dry_run: bool,
}

/// Ship every change, for replicas and for restores to any moment; runs beside the writer until it
/// is killed
#[derive(Args)]
pub(crate) struct ShipArgs {
    #[command(flatten)]
    repository: RepositoryArgs,
    /// The database's directory
    #[arg(long, value_name = "DIR")]
    db: PathBuf,
    /// Look for changes so often
    #[arg(long, value_name = "N", default_value_t = 1000)]
    interval_ms: u64,
    /// Continue the states of another copy of the database, which can write no more
    #[arg(long)]
    takeover: bool,
}

#[derive(Args)]
#[group(multiple = false)]
struct WhichArgs {
    /// The backup of this number rather than the newest
    #[arg(long, value_name = "N")]
    state: Option<u64>,
    /// The newest backup that is at least so old (90m, 48h, 7d)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    before: Option<Duration>,
}

impl WhichArgs {
    fn which(&self) -> Which {
        match (self.state, self.before) {
            (Some(number), _) => Which::Number(number),
            (None, Some(age)) => {
                Which::At(SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH))
            }
            (None, None) => Which::Latest,
        }
    }
}

impl RepositoryArgs {
    fn open(&self) -> Result<Repository, Failure> {
        let mut transfer = Transfer::default();
        transfer.parallel = self.parallel.max(1);
        transfer.bytes_per_second = self.bandwidth;
        transfer.timeout = self.timeout.max(Duration::from_secs(1));
        Ok(Repository::open(&self.url, transfer)?)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Url { .. }
            | Error::NotEmpty { .. }
            | Error::NoState { .. }
            | Error::AnotherWriter { .. }
            | Error::Unreachable { .. } => Failure::usage(error),
            Error::Damaged { .. } | Error::Gone { .. } => Failure::Problem(error.to_string()),
            Error::Open(error) => error.into(),
            Error::Admin(error) => error.into(),
            other => Failure::database(other),
        }
    }
}

pub(crate) fn run(command: BackupCommand, out: &mut Out) -> Result<Outcome, Failure> {
    match command {
        BackupCommand::Create(args) => create(&args, out),
        BackupCommand::List(args) => list(&args, out),
        BackupCommand::Verify(args) => verify(&args, out),
        BackupCommand::Restore(args) => restore(&args, out),
        BackupCommand::Prune(args) => prune(&args, out),
        BackupCommand::Ship(args) => ship(&args, out),
    }
}

fn create(args: &CreateArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let repository = args.repository.open()?;
    let source = follower(&args.db)?;
    let reporter = Arc::new(Reporter::new());
    let progress = Some(told(&reporter, "backup"));
    let options = BackupOptions { cache: Some(args.db.join(CACHE)), takeover: args.takeover, progress };
    let written = repository.backup(&source, options);
    reporter.end();
    print_written(&written?, &args.repository, out)?;
    Ok(Outcome::Done)
}

/// Opens a database beside its writer, if there is one.
fn follower(dir: &Path) -> Result<Db, Failure> {
    Ok(stored_options(dir)?.open_follower(dir)?)
}

fn ship(args: &ShipArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let repository = args.repository.open()?;
    let mut options = ShipOptions::default();
    options.interval = Duration::from_millis(args.interval_ms.max(1));
    options.backup =
        BackupOptions { cache: Some(args.db.join(CACHE)), takeover: args.takeover, progress: None };
    let shipper = repository.ship(Arc::new(follower(&args.db)?), options, |_| Ok(()))?;
    let (mut told, mut failure) = (0, None);
    while shipper.is_running() {
        std::thread::sleep(Duration::from_secs(1));
        let shipped = shipper.shipped();
        if shipped.failure != failure {
            match &shipped.failure {
                Some(why) => note(&format!("could not ship, and try again: {why}")),
                None => note("shipping again"),
            }
            failure = shipped.failure;
        }
        // Progress for people, a line for each power of two, and then every thousand; for programs
        // the newest state, whenever it is another one.
        if args.repository.json {
            if let Some(last) = shipped.last.filter(|_| shipped.states > told) {
                let mut object = written_object(&last);
                object["seconds"] = shipped.took.as_secs_f64().into();
                out.json(&object)?;
                out.flush()?;
                told = shipped.states;
            }
        } else if let Some(last) = shipped.last.filter(|_| shipped.states >= told) {
            note(&format!(
                "state {}, up to sequence number {}: sent {} in {} ms",
                last.number,
                grouped(last.last_seq),
                bytes(last.bytes_sent),
                shipped.took.as_millis()
            ));
            told = shipped.states + shipped.states.clamp(1, 1000);
        }
    }
    shipper.close()?;
    Ok(Outcome::Done)
}

fn written_object(written: &Written) -> Value {
    let Written { number, last_seq, files, bytes: all, objects_sent, bytes_sent, .. } = written;
    json!({ "number": number, "last_seq": last_seq, "files": files, "bytes": all, "objects_sent": objects_sent,
        "bytes_sent": bytes_sent })
}

fn print_written(written: &Written, args: &RepositoryArgs, out: &mut Out) -> Result<(), Failure> {
    let Written { number, last_seq, files, bytes: all, objects_sent, bytes_sent, .. } = written;
    match args.json {
        true => out.json(&written_object(written))?,
        false => writeln!(
            out,
            "backup {number}: {} in {}, up to sequence number {}; sent {} in {}",
            bytes(*all),
            counted(*files, "files"),
            grouped(*last_seq),
            bytes(*bytes_sent),
            counted(*objects_sent, "objects")
        )?,
    }
    Ok(())
}

fn list(args: &ListArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let repository = args.repository.open()?;
    let mut table = Table::new(&[
        ("backup", Align::Right),
        ("age", Align::Right),
        ("sequence number", Align::Right),
        ("files", Align::Right),
        ("bytes", Align::Right),
        ("writer", Align::Left),
    ]);
    let mut damaged = Vec::new();
    for listing in repository.states()? {
        // A prune may remove it meanwhile.
        let state = match repository.state(listing.number) {
            Err(Error::NoState { .. }) => continue,
            Err(error @ (Error::Damaged { .. } | Error::Gone { .. })) => {
                damaged.push((listing.number, error.to_string()));
                continue;
            }
            state => state?,
        };
        let age = listing.written.elapsed().unwrap_or_default();
        if args.repository.json {
            let written = listing.written.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let row = json!({ "number": state.number, "written_unix_seconds": written.as_secs(), "last_seq": state.last_seq,
                "files": state.files.len(), "bytes": state.bytes(), "writer": state.writer, "epoch": state.epoch });
            out.json(&row)?;
            continue;
        }
        table.row([
            state.number.to_string(),
            age_text(age),
            grouped(state.last_seq),
            grouped(state.files.len() as u64),
            bytes(state.bytes()),
            state.writer,
        ]);
    }
    if !args.repository.json {
        let width = out.width();
        write!(out, "{}", table.within(width))?;
    }
    for (number, what) in &damaged {
        match args.repository.json {
            true => out.json(&json!({ "number": number, "damaged": what }))?,
            false => writeln!(out, "backup {number} cannot be restored: {what}")?,
        }
    }
    Ok(if damaged.is_empty() { Outcome::Done } else { Outcome::Negative })
}

fn verify(args: &VerifyArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let repository = args.repository.open()?;
    let (state, passed_over) = repository.find_readable(args.which.which())?;
    let reporter = Arc::new(Reporter::new());
    let verified = repository.verify(&state, args.quick, Some(told(&reporter, "verify")));
    reporter.end();
    let mut verified = verified?;
    verified.problems.extend(passed_over.iter().map(ToString::to_string));
    if args.repository.json {
        let row = json!({ "number": state.number, "objects": verified.objects, "bytes": verified.bytes,
            "problems": verified.problems });
        out.json(&row)?;
    } else {
        for problem in &verified.problems {
            out.page(&format!("{problem}\n"), 2)?;
        }
        let (objects, all, problems) =
            (counted(verified.objects, "objects"), bytes(verified.bytes), verified.problems.len() as u64);
        writeln!(out, "backup {}: {objects}, {all}: {}", state.number, counted(problems, "problems"))?;
    }
    Ok(if verified.problems.is_empty() { Outcome::Done } else { Outcome::Negative })
}

fn restore(args: &RestoreArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let repository = args.repository.open()?;
    let reporter = Arc::new(Reporter::new());
    let mut options = RestoreOptions::default();
    options.progress = Some(told(&reporter, "restore"));
    let restored = match args.to_seq {
        // Operators that the database's program supplies are unknown here, and not needed.
        Some(seq) => repository.restore_to(seq, &args.target, Operators::new(), &options),
        None => repository.find_readable(args.which.which()).and_then(|(state, damaged)| {
            let mut restored = repository.restore(&state, &args.target, &options)?;
            restored.passed_over = damaged.iter().map(ToString::to_string).collect();
            Ok(restored)
        }),
    };
    reporter.end();
    let Restored { number, last_seq, files, bytes: all, bytes_there, passed_over, .. } = restored?;
    if !args.repository.json {
        for what in &passed_over {
            writeln!(out, "passed over: {what}")?;
        }
    }
    match args.repository.json {
        true => out.json(&json!({ "number": number, "last_seq": last_seq, "files": files, "bytes": all,
            "bytes_there": bytes_there, "passed_over": passed_over }))?,
        false => writeln!(
            out,
            "restored backup {number} up to sequence number {}: {} in {}",
            grouped(last_seq),
            bytes(all),
            counted(files, "files")
        )?,
    }
    Ok(Outcome::Done)
}

fn prune(args: &PruneArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let repository = args.repository.open()?;
    let mut retention = Retention::default();
    retention.keep_last = args.keep_last;
    retention.keep_within = args.keep_within;
    retention.keep_daily = args.keep_daily;
    retention.grace = args.grace;
    retention.dry_run = args.dry_run;
    let pruned = repository.prune(&retention)?;
    if args.repository.json {
        let row = json!({ "states_kept": pruned.states_kept, "states_removed": pruned.states_removed,
            "objects_kept": pruned.objects_kept, "bytes_kept": pruned.bytes_kept,
            "objects_removed": pruned.objects_removed, "bytes_removed": pruned.bytes_removed, "failed": pruned.failed, "damaged": pruned.damaged });
        out.json(&row)?;
    } else {
        let done = if args.dry_run { "would be removed" } else { "removed" };
        writeln!(
            out,
            "{} and {} ({}) {done}; {} and {} ({}) kept",
            counted(pruned.states_removed, "backups"),
            counted(pruned.objects_removed, "objects"),
            bytes(pruned.bytes_removed),
            counted(pruned.states_kept, "backups"),
            counted(pruned.objects_kept, "objects"),
            bytes(pruned.bytes_kept)
        )?;
        for what in &pruned.damaged {
            writeln!(out, "a backup cannot be restored, and stays: {what}")?;
        }
        if pruned.failed > 0 {
            writeln!(out, "{} could not be removed; the next prune tries again", grouped(pruned.failed))?;
        }
    }
    Ok(if pruned.failed == 0 { Outcome::Done } else { Outcome::Negative })
}

/// Returns a function that tells the reporter about megabytes.
fn told(reporter: &Arc<Reporter>, name: &'static str) -> OnProgress {
    let (reporter, told, begun) = (reporter.clone(), AtomicU64::new(0), AtomicU64::new(0));
    Arc::new(move |progress| {
        if begun.swap(1, Relaxed) == 0 {
            reporter.begin(name, progress.bytes_total >> 20, "MiB");
        }
        let now = progress.bytes_done >> 20;
        let before = told.fetch_max(now, Relaxed);
        reporter.advance(now.saturating_sub(before));
    })
}

/// Reads a time: a number and s, m, h or d.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a number with s, m, h or d");
    let (at, unit) = text.char_indices().last().ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..at].parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

/// Writes an age in its largest unit.
fn age_text(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("90m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("7d"), Ok(Duration::from_secs(604_800)));
        for bad in ["", "7", "d", "-1s", "1.5h", "7é", "99999999999999999999s", "18446744073709551615d"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert_eq!(age_text(Duration::from_secs(7300)), "2 h");
    }
}
