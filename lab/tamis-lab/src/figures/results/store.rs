//! The rows of a figure on disk, step by step.
//!
//! # Rules
//!
//! * A step's rows are appended and synced, then its line `{"kind":"done","step":…,"seconds":…,"rows":…}` is appended
//!   and synced. So whenever that line is on disk, its rows are, too.
//! * Rows without such a line after them belong to an interrupted step and do not count: torn lines there are dropped
//!   silently. A damaged line before it is an error. The `kind` `done` is reserved.
//! * Steps are done in the order of [`Setup::steps`], so their number determines the remaining ones.
//! * Resuming writes the rows that count to a new file, which replaces the old one, and appends to it.
//! * Starting over removes the rows before the setup is replaced: rows never coexist with another setup.
//!
//! Kept results ([`keep`]) have their rows compressed in `rows.jsonl.gz`. They are read like others where there are no rows beside
//! them.
//!
//! All file operations go through a [`FileSystem`]. A [`Store`] holds the directory's lock; one thread uses it.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tamis::io::{DirLock, FileSystem, Usage, WriteFile, read_file, write_file_atomically};
use tamis_bench::BenchError;

use super::Setup;
use crate::figures::Row;

/// The file that describes the setting and the machine.
pub(super) const SETUP: &str = "setup.json";
/// The file of rows.
const ROWS: &str = "rows.jsonl";
/// The file of rows of kept results.
const KEPT: &str = "rows.jsonl.gz";
/// Kept rows must not be larger than this, in bytes: a small file could otherwise fill all memory.
const LARGEST: u64 = 256 << 20;
/// The lock file, which excludes concurrent runs.
const LOCK: &str = "lock";
/// The `kind` of the line after a finished step.
const DONE: &str = "done";

/// A finished step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Its name.
    pub step: String,
    /// Its duration.
    pub seconds: f64,
    /// Its number of rows.
    pub rows: usize,
}

/// The contents of a directory.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::figures) struct Stored {
    /// The setting and the machine.
    pub(in crate::figures) setup: Setup,
    /// Rows of finished steps.
    pub(in crate::figures) rows: Vec<Row>,
    /// The finished steps.
    pub(in crate::figures) done: Vec<Done>,
    /// The lines of both as stored on disk.
    lines: Vec<u8>,
}

/// Reads a directory; `None` if it has no setup, that is, if nothing was begun there.
pub(super) fn read(fs: &dyn FileSystem, dir: &Path) -> Result<Option<Stored>, BenchError> {
    let path = dir.join(SETUP);
    let Some(bytes) = read_if_there(fs, &path)? else { return Ok(None) };
    let setup: Setup = serde_json::from_slice(&bytes).map_err(|error| damaged(&path, error))?;
    let (path, mut lines) = rows_of(fs, dir)?;
    let (rows, done, kept) = parse(&lines).map_err(|reason| damaged(&path, reason))?;
    lines.truncate(kept);
    for (number, done) in done.iter().enumerate() {
        let expected = setup.steps.get(number).map_or("no more steps", String::as_str);
        if done.step != expected {
            let reason = format!("step {} is `{}`, and {SETUP} has `{expected}`", number + 1, done.step);
            return Err(damaged(&path, reason));
        }
    }
    Ok(Some(Stored { setup, rows, done, lines }))
}

/// Returns the lines of a directory, and the file that has them.
fn rows_of(fs: &dyn FileSystem, dir: &Path) -> Result<(PathBuf, Vec<u8>), BenchError> {
    let path = dir.join(ROWS);
    if let Some(lines) = read_if_there(fs, &path)? {
        return Ok((path, lines));
    }
    let kept = dir.join(KEPT);
    let Some(packed) = read_if_there(fs, &kept)? else { return Ok((path, Vec::new())) };
    let mut lines = Vec::new();
    let read = MultiGzDecoder::new(&packed[..]).take(LARGEST + 1).read_to_end(&mut lines);
    match read.map_err(|error| damaged(&kept, error))? as u64 > LARGEST {
        true => Err(damaged(&kept, format!("more than {LARGEST} bytes of rows"))),
        false => Ok((kept, lines)),
    }
}

/// Writes the results of directory `from` to directory `to` in the form in which they are kept: setup and compressed rows, from which
/// everything else can be derived. Returns whether there were complete ones; nothing is written otherwise. The same results give the
/// same bytes.
///
/// # Errors
///
/// A file is damaged, or cannot be read or written.
pub(in crate::figures) fn keep(fs: &dyn FileSystem, from: &Path, to: &Path) -> Result<bool, BenchError> {
    let Some(stored) = read(fs, from)? else { return Ok(false) };
    if stored.done.len() != stored.setup.steps.len() {
        return Ok(false);
    }
    if stored.lines.len() as u64 > LARGEST {
        let (dir, bytes) = (from.display(), stored.lines.len());
        return Err(BenchError::Request(format!("{dir} has {bytes} bytes of rows, too many to be kept")));
    }
    let failed = |operation, path: &Path, source| BenchError::Io { operation, path: path.to_owned(), source };
    fs.create_dir_all(to).map_err(|source| failed("make", to, source))?;
    // Rows that were there must not stand beside another setup, nor be read in place of these.
    for name in [ROWS, KEPT] {
        remove_if_there(fs, &to.join(name))?;
    }
    fs.sync_dir(to).map_err(|source| failed("sync", to, source))?;
    // Neither a name nor a time is stored in it.
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&stored.lines).expect("a vector takes everything");
    let packed = packed.finish().expect("a vector takes everything");
    let json = serde_json::to_string_pretty(&stored.setup).expect("strings and numbers have a form in JSON");
    replace(fs, &to.join(SETUP), (json + "\n").as_bytes())?;
    replace(fs, &to.join(KEPT), &packed)?;
    Ok(true)
}

fn remove_if_there(fs: &dyn FileSystem, path: &Path) -> Result<(), BenchError> {
    match fs.remove(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(BenchError::Io { operation: "remove", path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

fn read_if_there(fs: &dyn FileSystem, path: &Path) -> Result<Option<Vec<u8>>, BenchError> {
    match read_file(fs, path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(BenchError::Io { operation: "read", path: path.to_owned(), source }),
    }
}

fn damaged(path: &Path, reason: impl std::fmt::Display) -> BenchError {
    BenchError::Request(format!("{} is damaged: {reason}; --restart measures it again", path.display()))
}

/// Parses rows and finished steps, and returns their length in bytes. Everything after the last finished step is
/// ignored, damaged or not.
fn parse(bytes: &[u8]) -> Result<(Vec<Row>, Vec<Done>, usize), String> {
    let (mut rows, mut done) = (Vec::new(), Vec::new());
    let (mut read_to, mut kept) = (0, 0);
    // Rows of the current step.
    let mut begun: Vec<Row> = Vec::new();
    let mut damage: Option<String> = None;
    for (number, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        read_to += line.len();
        let read = match serde_json::from_slice::<Row>(line) {
            Ok(_) if !line.ends_with(b"\n") => Err("it has no end".to_owned()),
            Ok(row) if row.get("kind") == Some(&DONE.into()) => {
                serde_json::from_value::<Done>(Value::Object(row))
                    .map(Some)
                    .map_err(|error| error.to_string())
            }
            Ok(row) => {
                begun.push(row);
                Ok(None)
            }
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok(None) => {}
            Ok(Some(step)) => {
                if let Some(damage) = damage {
                    return Err(damage);
                }
                if step.rows != begun.len() {
                    let Done { step, rows, .. } = step;
                    return Err(format!("step `{step}` has {} rows instead of {rows}", begun.len()));
                }
                rows.append(&mut begun);
                done.push(step);
                kept = read_to;
            }
            Err(reason) => {
                damage.get_or_insert_with(|| format!("line {}: {reason}", number + 1));
            }
        }
    }
    Ok((rows, done, kept))
}

/// A directory that is being measured into.
#[derive(Debug)]
pub(in crate::figures) struct Store<'f> {
    fs: &'f dyn FileSystem,
    dir: PathBuf,
    rows: Box<dyn WriteFile>,
    /// Released on drop.
    _lock: Box<dyn DirLock>,
}

impl<'f> Store<'f> {
    /// Opens a directory for the remaining steps of `setup`, creating it if necessary, and returns what it already has.
    /// With `restart` existing results are discarded. Rewrites the rows once.
    ///
    /// # Errors
    ///
    /// Another process uses the directory; its results have another setting or are damaged; a file cannot be read or
    /// written.
    pub(in crate::figures) fn open(
        fs: &'f dyn FileSystem,
        dir: &Path,
        setup: &Setup,
        restart: bool,
    ) -> Result<(Store<'f>, Stored), BenchError> {
        let io = |operation, path: &Path| {
            let path = path.to_owned();
            move |source| BenchError::Io { operation, path, source }
        };
        let fresh: Vec<&Path> = dir.ancestors().take_while(|dir| !fs.exists(dir).unwrap_or(true)).collect();
        fs.create_dir_all(dir).map_err(io("make", dir))?;
        // The names of new directories must be durable before their contents.
        for parent in fresh.iter().rev().filter_map(|dir| dir.parent()) {
            fs.sync_dir(parent).map_err(io("sync", parent))?;
        }
        let path = dir.join(LOCK);
        let lock = fs.lock(&path).map_err(io("lock", &path))?;
        let lock = lock.ok_or_else(|| {
            BenchError::Request(format!(
                "another process is measuring into {}: wait until it ends",
                dir.display()
            ))
        })?;
        let there = if restart { None } else { there(fs, dir, setup)? };
        let path = dir.join(ROWS);
        let stored = match there {
            Some(stored) => stored,
            None => {
                // Derived files go first: they must not outlive the rows.
                let names = fs.list(dir).map_err(io("list", dir))?;
                let made = |name: &String| {
                    name == "rows.csv" || name == KEPT || name == "verdicts.json" || name.ends_with(".svg")
                };
                let made = names.iter().filter(|name| made(name)).map(|name| dir.join(name));
                for path in std::iter::once(path.clone()).chain(made) {
                    remove_if_there(fs, &path)?;
                }
                fs.sync_dir(dir).map_err(io("sync", dir))?;
                let json =
                    serde_json::to_string_pretty(setup).expect("strings and numbers have a form in JSON");
                replace(fs, &dir.join(SETUP), (json + "\n").as_bytes())?;
                Stored { setup: setup.clone(), rows: Vec::new(), done: Vec::new(), lines: Vec::new() }
            }
        };
        let beside = dir.join(format!("{ROWS}.tmp"));
        let mut rows = fs.create(&beside, Usage::Log).map_err(io("create", &beside))?;
        rows.append(&stored.lines).map_err(io("write", &beside))?;
        rows.sync().map_err(io("sync", &beside))?;
        fs.rename(&beside, &path).map_err(io("rename", &beside))?;
        fs.sync_dir(dir).map_err(io("sync", dir))?;
        Ok((Store { fs, dir: dir.to_owned(), rows, _lock: lock }, stored))
    }

    /// Appends a finished step. It counts once this has returned without an error; after an error nothing more may be
    /// added.
    pub(in crate::figures) fn add(
        &mut self,
        step: &str,
        rows: &[Row],
        seconds: f64,
    ) -> Result<Done, BenchError> {
        if rows.iter().any(|row| row.get("kind") == Some(&DONE.into())) {
            return Err(BenchError::Request(format!(
                "step `{step}` has a row of the kind `{DONE}`, which is reserved"
            )));
        }
        let done = Done { step: step.to_owned(), seconds, rows: rows.len() };
        let mut write = |text: String| {
            self.rows.append(text.as_bytes())?;
            self.rows.sync()
        };
        let written = write(lines(rows)).and_then(|()| write(done_line(&done)));
        let path = self.dir.join(ROWS);
        written.map_err(|source| BenchError::Io { operation: "write", path, source })?;
        Ok(done)
    }

    /// Replaces a file of the directory as a whole.
    pub(in crate::figures) fn replace(&self, name: &str, text: &str) -> Result<PathBuf, BenchError> {
        let path = self.dir.join(name);
        replace(self.fs, &path, text.as_bytes())?;
        Ok(path)
    }

    /// Removes the files whose names satisfy `stale`.
    pub(in crate::figures) fn remove(&self, stale: impl Fn(&str) -> bool) -> Result<(), BenchError> {
        let io = |operation, path: &Path, source| BenchError::Io { operation, path: path.to_owned(), source };
        let names = self.fs.list(&self.dir).map_err(|source| io("read", &self.dir, source))?;
        for name in names.iter().filter(|name| stale(name)) {
            let path = self.dir.join(name);
            self.fs.remove(&path).map_err(|source| io("remove", &path, source))?;
        }
        Ok(())
    }
}

/// Returns the contents of a directory if its run can be continued, or the reason why it cannot.
pub(in crate::figures) fn there(
    fs: &dyn FileSystem,
    dir: &Path,
    setup: &Setup,
) -> Result<Option<Stored>, BenchError> {
    let Some(stored) = read(fs, dir)? else { return Ok(None) };
    let complete = stored.done.len() == stored.setup.steps.len();
    // The rows of one run are of one engine. What is complete may be printed by any program.
    let commits = (!complete && stored.setup.commit != setup.commit).then(|| {
        format!("commit: {} there, {} now", or_unknown(&stored.setup.commit), or_unknown(&setup.commit))
    });
    match stored.setup.difference(setup).or(commits) {
        None => Ok(Some(stored)),
        Some(difference) => Err(BenchError::Request(format!(
            "{} was measured with other settings ({difference}): pass --restart to measure it again, or another --out",
            dir.display()
        ))),
    }
}

fn replace(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) -> Result<(), BenchError> {
    let failed = |source| BenchError::Io { operation: "write", path: path.to_owned(), source };
    write_file_atomically(fs, path, bytes).map_err(failed)
}

fn or_unknown(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}

fn lines(rows: &[Row]) -> String {
    let line =
        |row: &Row| serde_json::to_string(row).expect("a map of JSON values has a form in JSON") + "\n";
    rows.iter().map(line).collect()
}

fn done_line(done: &Done) -> String {
    let Done { step, seconds, rows } = done;
    format!("{}\n", serde_json::json!({"kind": DONE, "step": step, "seconds": seconds, "rows": rows}))
}
