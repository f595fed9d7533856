//! What a directory is before anything in it is touched: a database, a place for one, or something
//! of others.
//!
//! Several engines use the same names: `CURRENT`, `LOCK`, `MANIFEST-000004` and `000005.log` are
//! files of LevelDB and RocksDB, too. So names prove nothing. A directory is a database if at least
//! one of its files bears a mark of this engine: the magic number at the start of a log or
//! manifest, or at the end of a table, blob file or filter file. Any one will do, so damage to some
//! files hides a database only if it hides everything in it that could be salvaged.
//!
//! Nothing here changes anything, takes a lock, or trusts a byte: a file's first and last bytes are
//! compared, and no more is read.

use std::io;
use std::path::Path;

use tamis_env::io::{Access, FileSystem};

use super::files::{FileKind, manifest_path, parse};
use super::manifest::read_current;
use crate::error::StorageError;
use crate::table::Footer;
use crate::{blob, images, wal};

/// The number of names in a message.
const NAMED: usize = 3;

/// The length of the mark at the start of a file.
const MARK: u64 = 8;

/// The bytes at the start of another engine's file that are looked at.
const START: u64 = 4096;

/// A directory as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// There is no such directory, or nothing in it but what an interrupted creation leaves behind.
    Free,
    /// A database.
    Database,
    /// Files of a database without `CURRENT`.
    Headless,
    /// `CURRENT`, and names of a database only, but no file with its mark.
    Unproven,
    /// No database, but files of others, in words.
    Others(String),
    /// A database of another engine, a file, or files of others under the names of a database's, in
    /// words. Nothing can be created here.
    Foreign(String),
}

/// Finds out what is in `dir`. For a database whose manifest is whole that costs a read of
/// `CURRENT` and of a few bytes.
///
/// # Errors
///
/// Failed system calls.
pub fn look_at(fs: &dyn FileSystem, dir: &Path) -> Result<Place, StorageError> {
    let io = |operation, e| StorageError::io(operation, dir, e);
    match read_current(fs, dir) {
        Ok(Some(number)) => {
            if bears_mark(fs, &manifest_path(dir, number), FileKind::Manifest(number))? {
                return Ok(Place::Database);
            }
        }
        // Damage, a file in place of the directory, a file that its writer has just replaced.
        Ok(None) | Err(StorageError::Corrupt(_)) => {}
        Err(StorageError::Io(e)) if is_answer(e.io_error()) => {}
        Err(error) => return Err(error),
    }
    if !fs.exists(dir).map_err(|e| io("look for", e))? {
        return Ok(Place::Free);
    }
    let names = match fs.list(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            return Ok(Place::Foreign(kind_of_file(fs, dir)));
        }
        names => names.map_err(|e| io("list", e))?,
    };
    let has = |name: &str| names.iter().any(|there| there == name);
    let mut marked = false;
    for (name, kind) in names.iter().filter_map(|name| Some((name, parse(name)?))) {
        marked = marked || bears_mark(fs, &dir.join(name), kind)?;
    }
    if marked {
        return Ok(if has("CURRENT") { Place::Database } else { Place::Headless });
    }
    if let Some(engine) = engine_of(fs, dir, &names) {
        return Ok(Place::Foreign(engine));
    }
    let mut strangers: Vec<&str> = Vec::new();
    let mut disguised: Vec<&str> = Vec::new();
    for name in names.iter().filter(|name| !is_furniture(name)) {
        match parse(name) {
            None => strangers.push(name),
            Some(FileKind::Table(_) | FileKind::Log(_) | FileKind::Blob(_) | FileKind::Filter(_)) => {
                disguised.push(name);
            }
            // The manifest of a creation that a crash interrupted may lack any of its bytes.
            Some(FileKind::Manifest(_)) if !has("CURRENT") && is_unfinished(fs, &dir.join(name)) => {}
            Some(FileKind::Manifest(_)) => disguised.push(name),
            Some(_) => {}
        }
    }
    if has("CURRENT") {
        return match strangers.is_empty() {
            true => Ok(Place::Unproven),
            false => Ok(Place::Foreign(in_words(&mut strangers))),
        };
    }
    match (disguised.is_empty(), strangers.is_empty()) {
        (false, _) => {
            disguised.append(&mut strangers);
            Ok(Place::Foreign(in_words(&mut disguised)))
        }
        (true, false) => Ok(Place::Others(in_words(&mut strangers))),
        (true, true) => Ok(Place::Free),
    }
}

/// Reports whether the file `path`, which has the name of this kind, begins or ends as it should.
/// Errors: it cannot be read.
fn bears_mark(fs: &dyn FileSystem, path: &Path, kind: FileKind) -> Result<bool, StorageError> {
    let (is_marked, bytes): (fn(&[u8]) -> bool, _) = match kind {
        FileKind::Log(_) | FileKind::Manifest(_) => (wal::is_marked, ends(fs, path, MARK, 0)),
        FileKind::Table(_) => (Footer::is_marked, ends(fs, path, 0, Footer::BYTES)),
        FileKind::Blob(_) => (blob::is_marked, ends(fs, path, 0, Footer::BYTES)),
        FileKind::Filter(_) => (images::is_marked, ends(fs, path, 0, Footer::BYTES)),
        _ => return Ok(false),
    };
    match bytes {
        Ok((start, end)) => Ok(is_marked(if start.is_empty() { &end } else { &start })),
        Err(e) if is_answer(&e) => Ok(false),
        Err(e) => Err(StorageError::io("read", path, e)),
    }
}

/// Reports whether an error says what there is: nothing (any more), or something else than a file.
fn is_answer(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, IsADirectory, NotADirectory, NotFound, UnexpectedEof};
    matches!(error.kind(), NotFound | NotADirectory | IsADirectory | InvalidInput | UnexpectedEof)
}

/// Returns at most so many bytes of the start and of the end of a file.
fn ends(fs: &dyn FileSystem, path: &Path, start: u64, end: u64) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let file = fs.open(path, Access::Sequential)?;
    let len = file.len()?;
    let (mut first, mut last) = (vec![0; start.min(len) as usize], vec![0; end.min(len) as usize]);
    file.read_exact_at(&mut first, 0)?;
    file.read_exact_at(&mut last, len - end.min(len))?;
    Ok((first, last))
}

/// Reports whether a file may be a manifest of which a crash kept no byte, or only the first few.
fn is_unfinished(fs: &dyn FileSystem, path: &Path) -> bool {
    ends(fs, path, MARK, 0)
        .is_ok_and(|(start, _)| start.iter().all(|byte| *byte == 0) || wal::begins_mark(&start))
}

/// Reports whether a name is that of a file that may be in any directory: hidden ones (of editors,
/// of the desktop, sockets), and what a new file system has in its root.
fn is_furniture(name: &str) -> bool {
    name.starts_with('.') || name == "lost+found"
}

/// Names the engine that the files of a directory are of, if it is known. A few names are enough to
/// tell what somebody has there; for the decision to touch nothing they are not needed.
fn engine_of(fs: &dyn FileSystem, dir: &Path, names: &[String]) -> Option<String> {
    let has = |name: &str| names.iter().any(|there| there == name);
    let any = |test: &dyn Fn(&str) -> bool| names.iter().any(|name| test(name));
    let begins = |name: &str, with: &[u8]| {
        has(name) && ends(fs, &dir.join(name), START, 0).is_ok_and(|(start, _)| start.starts_with(with))
    };
    if any(&|name| name.starts_with("marker.format-version.")) {
        return Some("a database of Pebble".to_owned());
    }
    if has("KEYREGISTRY") || has("MANIFEST") && any(&|name| name.ends_with(".vlog")) {
        return Some("a database of Badger".to_owned());
    }
    if has("IDENTITY") || any(&|name| name.starts_with("OPTIONS-")) {
        return Some("a database of RocksDB".to_owned());
    }
    let manifests = names.iter().filter(|name| matches!(parse(name), Some(FileKind::Manifest(_))));
    let of_leveldb = |name: &String| {
        let start = ends(fs, &dir.join(name), START, 0).unwrap_or_default().0;
        start.windows(8).any(|part| part == b"leveldb.")
    };
    let tables = any(&|name| name.ends_with(".ldb") || name.ends_with(".sst"));
    if has("CURRENT") && (has("LOG") || tables) || manifests.clone().any(of_leveldb) {
        return Some("a database of LevelDB or RocksDB".to_owned());
    }
    if begins("version", b"FJL") {
        return Some("a database of fjall".to_owned());
    }
    if has("data.mdb") {
        return Some("a database of LMDB".to_owned());
    }
    if has("mdbx.dat") {
        return Some("a database of MDBX".to_owned());
    }
    if has("WiredTiger") {
        return Some("a database of WiredTiger".to_owned());
    }
    None
}

/// Returns what a file is that somebody took for a directory.
fn kind_of_file(fs: &dyn FileSystem, path: &Path) -> String {
    let start = ends(fs, path, 64, 0).unwrap_or_default().0;
    let is = |at: usize, magic: &[u8]| start.get(at..).is_some_and(|rest| rest.starts_with(magic));
    let what = if is(0, b"SQLite format 3\0") {
        "a file, a database of SQLite"
    } else if is(0, b"redb\x1a\x0a\xa9\x0d\x0a") {
        "a file, a database of redb"
    } else if is(16, &0xbeef_c0de_u32.to_le_bytes()) {
        "a file, a database of LMDB"
    } else if is(16, &0xed0c_daed_u32.to_le_bytes()) {
        "a file, a database of bbolt"
    } else {
        "a file, not a directory"
    };
    what.to_owned()
}

/// Names a few files, in the order of their names.
fn in_words(names: &mut [&str]) -> String {
    names.sort_unstable();
    let named: Vec<String> =
        names.iter().take(NAMED).map(|name| format!("`{}`", name.escape_debug())).collect();
    let more = match names.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("files of others: {}{more}", named.join(", "))
}

#[cfg(test)]
mod tests;
