//! `tamis export`: writes keyspaces in a form that `tamis import` reads back exactly.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use tamis::{Db, Keyspace};
use tamis_bench::Progress;
use tamis_bench::report::counted;

use crate::args::{DbArgs, KEYS_HELP};
use crate::complete;
use crate::failure::{Failure, Outcome};
use crate::output::{Out, note};
use crate::progress::Reporter;
use crate::text::{self, end_of_prefix};
use crate::transfer::{Counts, TransferFormat, Writer};

/// Entries between two progress reports.
const STEP: u64 = 10_000;

/// Write keyspaces to a file or the output, for `tamis import`
#[derive(Args)]
#[command(after_help = KEYS_HELP, after_long_help = format!("{KEYS_HELP}\n\nThe entries of all keyspaces are those of one moment. Both formats end with a \
    record that counts what came before, so\n\
    that a part is never taken for the whole; the binary one has checksums, too. docs/formats/exports.md describes them. A file\n\
    gets its name once it is complete and synced; it is gzip if its name ends in .gz. Options of keyspaces and deleted keys\n\
    are not exported.\n\nExamples:\n  \
    tamis export --db ./data > data.jsonl\n  \
    tamis export --db ./data --keyspace users --format binary --out users.tamis.gz\n  \
    tamis export --db ./tamis-demo --prefix IS/ | tamis import --db ./iceland"))]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    db: DbArgs,
    /// Only this keyspace; may be repeated [default: all]
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(complete::keyspaces))]
    keyspace: Vec<String>,
    /// The first key, in each keyspace [default: the first of all]
    #[arg(long, value_name = "KEY")]
    start: Option<OsString>,
    /// The key to stop before [default: none]
    #[arg(long, value_name = "KEY")]
    end: Option<OsString>,
    /// Only keys that start with PREFIX
    #[arg(long, conflicts_with_all = ["start", "end"])]
    prefix: Option<OsString>,
    /// Bounds are hexadecimal
    #[arg(long)]
    hex: bool,
    /// The format
    #[arg(long, value_enum, default_value = "jsonl")]
    format: TransferFormat,
    /// Write to a new file instead of the output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print one JSON object at the end
    #[arg(long, requires = "out")]
    json: bool,
}

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

pub(crate) fn run(args: ExportArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let bounds = args.bounds()?;
    if args.out.is_none() && args.format == TransferFormat::Binary && io::stdout().is_terminal() {
        return Err(Failure::usage("the binary format goes to a file (--out) or a pipe"));
    }
    let db = args.db.open_read_only()?;
    let mut names = args.keyspace.clone();
    if names.is_empty() {
        names = db.keyspaces();
    }
    for (at, name) in names.iter().enumerate() {
        if names[..at].contains(name) {
            return Err(Failure::usage(format!("the keyspace `{name}` is named twice")));
        }
    }
    let keyspaces = names.iter().map(|name| db.keyspace(name)).collect::<Result<Vec<_>, _>>()?;
    let Some(path) = &args.out else {
        let (_, counts) = write(&keyspaces, &bounds, args.format, &mut *out)?;
        out.flush()?;
        note(&summary(counts));
        return Ok(Outcome::Done);
    };
    let counts = to_file(path, |file| write(&keyspaces, &bounds, args.format, file))?;
    match args.json {
        true => {
            let Counts { keyspaces, entries } = counts;
            let bytes = fs::metadata(path).map_or(0, |file| file.len());
            out.json(&json!({ "keyspaces": keyspaces, "entries": entries, "bytes": bytes }))?;
        }
        false => writeln!(out, "{}", summary(counts))?,
    }
    drop(Db::close(db));
    Ok(Outcome::Done)
}

fn summary(Counts { keyspaces, entries }: Counts) -> String {
    format!("{} of {} exported", counted(entries, "entries"), counted(keyspaces, "keyspaces"))
}

impl ExportArgs {
    fn bounds(&self) -> Result<Bounds, Failure> {
        let typed = |key: &Option<OsString>| key.as_deref().map(|key| text::typed(key, self.hex)).transpose();
        if let Some(prefix) = typed(&self.prefix)? {
            let end = end_of_prefix(&prefix);
            return Ok((Bound::Included(prefix), end.map_or(Bound::Unbounded, Bound::Excluded)));
        }
        let (start, end) = (typed(&self.start)?, typed(&self.end)?);
        if let (Some(start), Some(end)) = (&start, &end)
            && start > end
        {
            return Err(Failure::usage("the start lies after the end"));
        }
        Ok((start.map_or(Bound::Unbounded, Bound::Included), end.map_or(Bound::Unbounded, Bound::Excluded)))
    }
}

fn write<W: Write>(
    keyspaces: &[Keyspace],
    bounds: &Bounds,
    format: TransferFormat,
    out: W,
) -> Result<(W, Counts), Failure> {
    let progress = Reporter::new();
    progress.begin("export", 0, "entries");
    let mut writer = Writer::new(out, format)?;
    let mut counts = Counts::default();
    for keyspace in keyspaces {
        writer.keyspace(keyspace.name())?;
        counts.keyspaces += 1;
        for entry in keyspace.range(bounds.clone()) {
            let (key, value) = entry?;
            writer.entry(&key, &value)?;
            counts.entries += 1;
            if counts.entries.is_multiple_of(STEP) {
                progress.advance(STEP);
            }
        }
    }
    progress.end();
    Ok((writer.finish()?, counts))
}

/// A new file under a temporary name, plain or compressed.
enum Target {
    Plain(BufWriter<File>),
    Packed(GzEncoder<BufWriter<File>>),
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Target::Plain(file) => file.write(bytes),
            Target::Packed(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Target::Plain(file) => file.flush(),
            Target::Packed(file) => file.flush(),
        }
    }
}

impl Target {
    /// Completes the file and makes it durable.
    fn finish(self) -> io::Result<()> {
        let file = match self {
            Target::Plain(file) => file,
            Target::Packed(file) => file.finish()?,
        };
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    }
}

/// Has a file written that appears under its name once it is complete and durable, and not at all
/// if that fails.
fn to_file(
    path: &Path,
    write: impl FnOnce(Target) -> Result<(Target, Counts), Failure>,
) -> Result<Counts, Failure> {
    let failed = |error: io::Error| Failure::usage(format!("could not write {}: {error}", path.display()));
    if path.try_exists().map_err(failed)? {
        return Err(Failure::usage(format!("{} exists already", path.display())));
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let file = BufWriter::with_capacity(
        256 << 10,
        File::create_new(&partial)
            .map_err(|error| Failure::usage(format!("could not create {}: {error}", partial.display())))?,
    );
    let packed = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
    let target = match packed {
        true => Target::Packed(GzEncoder::new(file, Compression::default())),
        false => Target::Plain(file),
    };
    let written = write(target).and_then(|(target, counts)| {
        target.finish().map_err(failed)?;
        // A hard link, unlike a rename, does not replace a file that has appeared meanwhile.
        fs::hard_link(&partial, path).or_else(|_| fs::rename(&partial, path)).map_err(failed)?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        #[cfg(unix)]
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)?;
        #[cfg(not(unix))]
        let _ = dir;
        Ok(counts)
    });
    // After a rename there is none.
    let _ = fs::remove_file(&partial);
    written
}
