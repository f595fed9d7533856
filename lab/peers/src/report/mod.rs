//! The comparison as HTML and Markdown.
//!
//! Rows come in as lines of JSON, one a round ([`Row`]). [`summary`] makes medians and spreads of them, for each system
//! under each conditions, and says who is the best of the peers; [`targets`] holds tamis to what it promises;
//! [`tables`] puts that in words ([`text`]); [`markdown`] and [`html`] write the same tables down.
//!
//! Invariants: rows that tamis lost are shown like those it won, and first. What could not be measured is named with
//! its reason. Nothing that stands in a row or on a command line becomes markup. The same rows and the same context
//! give the same bytes.
//!
//! Threads: everything here is a pure function but for the files read and written by its caller.
//! Costs: linear in the rows, which are all held in memory (some kilobytes each).

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::record::Row;

mod context;
mod figure;
mod html;
mod markdown;
mod summary;
#[cfg(test)]
mod synthetic;
mod tables;
mod targets;
mod text;

pub use context::Context;

/// The longest line of rows that is read, in bytes. A real one has about two thousand.
const LONGEST_LINE: u64 = 1 << 20;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line is no row.
    #[error("{}: line {line} is no row: {reason}", path.display())]
    Line {
        /// Of which file.
        path: PathBuf,
        /// From 1 on.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A file is no context of a comparison.
    #[error("{}: it does not say what was run: {reason}", path.display())]
    Context {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Rows of another machine are there already, and rows of two machines cannot be compared.
    #[error("{}: these rows were measured on another machine ({there}), this one is {here}", path.display())]
    OtherMachine {
        /// The file that says so.
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

/// The rows of a file of JSON lines, in its order. Empty lines are passed over.
///
/// # Errors
///
/// The file cannot be read, or a line is longer than 1 MiB, cut off, or no row: the error names the file and the line.
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
        rows.push(serde_json::from_slice(&line).map_err(|error| bad(error.to_string()))?);
    }
    Ok(rows)
}

/// Writes `report.html`, `report.md` and `summary.md` (the main rows only) into the directory `out`, which is made if
/// it is not there. What was there under these names is replaced.
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
