//! The comparison as HTML and Markdown.
//!
//! Rows are lines of JSON, one per round ([`Row`]). [`summary`] computes medians and spreads of them, for each system
//! under each set of conditions, and finds the best of the peers; [`targets`] checks tamis against its targets;
//! [`tables`] formats this in words ([`text`]); [`markdown`] and [`html`] write the same tables.
//!
//! Invariants: rows that tamis lost are shown like those it won, and first. Missing measurements are listed with their
//! reasons. No content of a row or a command line becomes markup. The same rows and the same context give the same
//! bytes.
//!
//! Threads: everything here is a pure function except for files read and written on behalf of the caller. Costs: linear
//! in the rows, which are all held in memory (a few kilobytes each).

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::record::Row;

mod condensed;
mod context;
mod figure;
mod front;
mod html;
mod markdown;
pub mod pages;
mod summary;
#[cfg(test)]
mod synthetic;
mod tables;
mod targets;
mod text;
mod trees;

pub use context::Context;
// For the tables of `transactions`.
pub(crate) use markdown::{ended, titled};
pub(crate) use summary::Spread;
pub(crate) use tables::{Grid, GridRow};
pub(crate) use text::{marks, ratio};

/// Maximum length of a line of rows in bytes. A real one has about two thousand.
const LONGEST_LINE: u64 = 1 << 20;

/// The reason why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A line is not a row.
    #[error("{}: line {line} is not a row: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A file is not the context of a comparison.
    #[error("{}: it does not describe a run: {reason}", path.display())]
    Context {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// There are rows of another machine, which are not comparable.
    #[error("{}: these rows were measured on another machine ({there}), this one is {here}", path.display())]
    OtherMachine {
        /// The file that names the machine.
        path: PathBuf,
        /// The machine of the rows.
        there: String,
        /// This machine.
        here: String,
    },
    /// There are no rows.
    #[error("there are no rows to report")]
    Empty,
}

impl ReportError {
    fn io(path: &Path, source: io::Error) -> ReportError {
        ReportError::Io { path: path.to_owned(), source }
    }
}

/// A line of a file of rows. The order decides: condensed lines have fields that rows do not have.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Line {
    Condensed(Box<condensed::Condensed>),
    Row(Box<Row>),
}

/// Returns rows in the form that is kept in the repository: see [`condensed`](mod@condensed).
pub fn condense(rows: &[Row]) -> Result<String, ReportError> {
    let unwritten = |error: serde_json::Error| ReportError::io(Path::new("rows"), error.into());
    let lines = condensed::condense(rows);
    lines.iter().map(|line| Ok(serde_json::to_string(line).map_err(unwritten)? + "\n")).collect()
}

/// Reads a file of JSON lines, rows or condensed ones. Empty lines are skipped.
///
/// # Errors
///
/// The file cannot be read, or a line is longer than 1 MiB, truncated, or not a row: the error names the file and the
/// line.
pub fn load(path: &Path) -> Result<Vec<Row>, ReportError> {
    let file = File::open(path).map_err(|source| ReportError::io(path, source))?;
    let mut reader = BufReader::new(file);
    let mut rows = Vec::new();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = (&mut reader).take(LONGEST_LINE + 1).read_until(b'\n', &mut line);
        if read.map_err(|source| ReportError::io(path, source))? == 0 {
            break;
        }
        let bad = |reason: String| ReportError::Line { path: path.to_owned(), line: number, reason };
        if line.len() as u64 > LONGEST_LINE {
            return Err(bad(format!("it is longer than {LONGEST_LINE} bytes")));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice(&line).map_err(|error| bad(error.to_string()))? {
            Line::Condensed(condensed) => rows.extend(condensed.rows().map_err(bad)?),
            Line::Row(row) => rows.push(*row),
        }
    }
    Ok(rows)
}

/// Writes `report.html`, `report.md` and `summary.md` (the main rows only) into the directory `out`, which is created
/// if missing. Existing files are replaced.
///
/// # Errors
///
/// There are no rows, or a file cannot be written.
pub fn write(rows: &[Row], context: &Context, out: &Path) -> Result<(), ReportError> {
    if rows.is_empty() {
        return Err(ReportError::Empty);
    }
    let summary = summary::Summary::of(rows);
    fs::create_dir_all(out).map_err(|source| ReportError::io(out, source))?;
    let files = [
        ("report.html", html::page(&summary, context)),
        ("report.md", markdown::report(&summary, context)),
        ("summary.md", markdown::short(&summary, context)),
    ];
    for (name, content) in files {
        let path = out.join(name);
        fs::write(&path, content).map_err(|source| ReportError::io(&path, source))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::synthetic::{context, row, rows_of};
    use super::*;

    fn file(content: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.jsonl");
        fs::write(&path, content).unwrap();
        (dir, path)
    }

    #[test]
    fn rows_read_back_as_they_were_written() {
        let rows = rows_of("settled", "get-empty", &[("tamis", &[1.0, 2.5]), ("rocksdb", &[3.0])]);
        let mut text = String::from("\n");
        for row in &rows {
            text += &serde_json::to_string(row).unwrap();
            text += "\n\n";
        }
        let (_dir, path) = file(text.as_bytes());
        assert_eq!(load(&path).unwrap(), rows);
        let (_dir, path) = file(b"");
        assert_eq!(load(&path).unwrap(), []);
    }

    #[test]
    fn a_bad_line_is_named_with_its_file_and_number() {
        let good = serde_json::to_string(&row("settled", "get-empty", "tamis", 0, 1.0)).unwrap();
        let torn = &good[..good.len() / 2];
        let long = format!("{}{good}", " ".repeat(1 << 20));
        let deep = "[".repeat(200_000);
        let infinite = good.replace("\"ns_per_op\":1.0", "\"ns_per_op\":1e999");
        assert_ne!(infinite, good);
        for bad in
            [torn.as_bytes(), b"{}", b"null", b"\xff\xfe", b"[1, 2", deep.as_bytes(), infinite.as_bytes()]
        {
            let (_dir, path) = file(&[good.as_bytes(), b"\n", bad, b"\n", good.as_bytes()].concat());
            let error = load(&path).unwrap_err().to_string();
            assert!(error.contains("rows.jsonl") && error.contains("line 2 "), "{error}");
        }
        let (_dir, path) = file(long.as_bytes());
        assert!(load(&path).unwrap_err().to_string().contains("longer than"));
        let error = load(&path.with_file_name("absent")).unwrap_err();
        assert!(matches!(error, ReportError::Io { .. }) && error.to_string().contains("absent"), "{error}");
    }

    #[test]
    fn three_files_are_written_and_none_for_no_rows() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("a/b");
        assert!(matches!(write(&[], &context(), &out), Err(ReportError::Empty)));
        assert!(!out.exists());
        let rows = rows_of("settled", "get-empty", &[("tamis", &[1.0]), ("rocksdb", &[3.0])]);
        write(&rows, &context(), &out).unwrap();
        for name in ["report.html", "report.md", "summary.md"] {
            assert!(fs::read_to_string(out.join(name)).unwrap().contains("get-empty"), "{name}");
        }
    }
}
