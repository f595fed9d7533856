//! The rows of a figure on disk, step by step.
//!
//! # Rules
//!
//! * A step's rows are appended and synced, and then its line `{"kind":"done","step":…,"seconds":…,"rows":…}`, which is
//!   synced too. So whatever was on disk when that line was has its rows on disk.
//! * What has no such line behind it is of an interrupted step and does not count: torn lines there are dropped in
//!   silence. A damaged line before it is an error. `kind` `done` is taken: no figure may have it.
//! * Steps are done in the order of [`Setup::steps`], so that what is left to do is known by their number.
//! * Resuming writes the rows that count to a new file that takes the name of the old one, and goes on appending there.
//! * Starting over removes the rows before the setup is replaced: rows never lie beside another setup.
//!
//! All work on files goes through a [`FileSystem`]. Whoever has a [`Store`] holds the directory's lock; one thread uses
//! it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tamis::io::{DirLock, FileSystem, Usage, WriteFile, read_file, write_file_atomically};
use tamis_bench::BenchError;

use super::Setup;
use crate::figures::Row;

/// The file that says what was measured.
pub(super) const SETUP: &str = "setup.json";
/// The file of rows.
const ROWS: &str = "rows.jsonl";
/// The file whose lock keeps two runs apart.
const LOCK: &str = "lock";
/// The `kind` of the line behind a finished step.
const DONE: &str = "done";

/// A finished step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Its name.
    pub step: String,
    /// How long it took.
    pub seconds: f64,
    /// How many rows it gave.
    pub rows: usize,
}

/// What a directory holds.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::figures) struct Stored {
    /// What was measured.
    pub(in crate::figures) setup: Setup,
    /// Rows of finished steps.
    pub(in crate::figures) rows: Vec<Row>,
    /// The finished steps.
    pub(in crate::figures) done: Vec<Done>,
    /// The lines of both, as they are on disk.
    lines: Vec<u8>,
}

/// What is in a directory; `None` without a setup, that is if nothing was begun there.
pub(super) fn read(fs: &dyn FileSystem, dir: &Path) -> Result<Option<Stored>, BenchError> {
    let path = dir.join(SETUP);
    let Some(bytes) = read_if_there(fs, &path)? else { return Ok(None) };
    let setup: Setup = serde_json::from_slice(&bytes).map_err(|error| damaged(&path, error))?;
    let path = dir.join(ROWS);
    let mut lines = read_if_there(fs, &path)?.unwrap_or_default();
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

fn read_if_there(fs: &dyn FileSystem, path: &Path) -> Result<Option<Vec<u8>>, BenchError> {
    match read_file(fs, path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(BenchError::Io { operation: "read", path: path.to_owned(), source }),
    }
}

fn damaged(path: &Path, reason: impl std::fmt::Display) -> BenchError {
    BenchError::Request(format!("{} is damaged: {reason}; --restart measures it anew", path.display()))
}

/// Rows and finished steps, and how many bytes they have. What is behind the last of these is left out, be it damaged
/// or not.
fn parse(bytes: &[u8]) -> Result<(Vec<Row>, Vec<Done>, usize), String> {
    let (mut rows, mut done) = (Vec::new(), Vec::new());
    let (mut read_to, mut kept) = (0, 0);
    // Of the step that is being read.
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
                    return Err(format!("step `{step}` has {} rows in place of {rows}", begun.len()));
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
    /// Released when this is dropped.
    _lock: Box<dyn DirLock>,
}

impl<'f> Store<'f> {
    /// Opens a directory for the rest of the steps of `setup`, making it if there is none, and says what it has
    /// already. With `restart` that is nothing, whatever is there. Writes what is there anew, once.
    ///
    /// # Errors
    ///
    /// Another process has it; what is there was measured otherwise, or is damaged; a file cannot be read or written.
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
        // Their names have to last as long as what will be in them.
        for parent in fresh.iter().rev().filter_map(|dir| dir.parent()) {
            fs.sync_dir(parent).map_err(io("sync", parent))?;
        }
        let path = dir.join(LOCK);
        let lock = fs.lock(&path).map_err(io("lock", &path))?;
        let lock = lock.ok_or_else(|| {
            BenchError::Request(format!(
                "another process is measuring into {}: wait for its end",
                dir.display()
            ))
        })?;
        let there = if restart { None } else { there(fs, dir, setup)? };
        let path = dir.join(ROWS);
        let stored = match there {
            Some(stored) => stored,
            None => {
                // Rows first: what is made of them must not outlive them.
                let names = fs.list(dir).map_err(io("list", dir))?;
                let made =
                    |name: &String| name == "rows.csv" || name == "verdicts.json" || name.ends_with(".svg");
                let made = names.iter().filter(|name| made(name)).map(|name| dir.join(name));
                for path in std::iter::once(path.clone()).chain(made) {
                    match fs.remove(&path) {
                        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                        removed => removed.map_err(io("remove", &path))?,
                    }
                }
                fs.sync_dir(dir).map_err(io("sync", dir))?;
                let json =
                    serde_json::to_string_pretty(setup).expect("strings and numbers have a form in JSON");
                replace(fs, &dir.join(SETUP), &(json + "\n"))?;
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

    /// Adds a finished step to those on disk. It counts when this has returned without an error; after an error nothing
    /// more may be added.
    pub(in crate::figures) fn add(
        &mut self,
        step: &str,
        rows: &[Row],
        seconds: f64,
    ) -> Result<Done, BenchError> {
        if rows.iter().any(|row| row.get("kind") == Some(&DONE.into())) {
            return Err(BenchError::Request(format!(
                "step `{step}` has a row of the kind `{DONE}`, which is taken"
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
        replace(self.fs, &path, text)?;
        Ok(path)
    }

    /// Removes the files whose names `stale` says yes to.
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

/// What is in a directory if it can be gone on with; an error in words if it cannot.
pub(in crate::figures) fn there(
    fs: &dyn FileSystem,
    dir: &Path,
    setup: &Setup,
) -> Result<Option<Stored>, BenchError> {
    let Some(stored) = read(fs, dir)? else { return Ok(None) };
    match stored.setup.difference(setup) {
        None => Ok(Some(stored)),
        Some(difference) => Err(BenchError::Request(format!(
            "{} was measured otherwise ({difference}): --restart measures it anew, --out goes elsewhere",
            dir.display()
        ))),
    }
}

fn replace(fs: &dyn FileSystem, path: &Path, text: &str) -> Result<(), BenchError> {
    let failed = |source| BenchError::Io { operation: "write", path: path.to_owned(), source };
    write_file_atomically(fs, path, text.as_bytes()).map_err(failed)
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
