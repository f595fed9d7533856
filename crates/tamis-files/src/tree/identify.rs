//! Identifies a file by its contents, ignoring its name.

use std::fmt;
use std::path::Path;

use tamis_env::io::{Access, FileSystem, ReadFile};

use crate::blob;
use crate::error::StorageError;
use crate::images;
use crate::table::{Footer, ReaderConfig, Table};
use crate::wal::{HEADER_BYTES, LogHeader, LogKind};

/// How many bytes at the start decide whether a file is text.
const TEXT_BYTES: u64 = 4096;

/// What a file contains, as found by [`identify`]. `Display` gives a noun with an article.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contents {
    /// Nothing: the file is empty.
    Nothing,
    /// A table of a database.
    Table,
    /// A table built outside any database.
    ExternalTable,
    /// A filter file: partitions of a global filter.
    FilterImages,
    /// A blob file: large values.
    Blobs,
    /// The write-ahead log of this number.
    Log(u64),
    /// The manifest of this number.
    Manifest(u64),
    /// Text: a `CURRENT` or `OPTIONS` file, or a file that is not part of a database.
    Text,
    /// No known magic number: a damaged file (such as a table without its end or a log without its
    /// start), or not a database file.
    Unknown,
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contents::Nothing => f.write_str("an empty file"),
            Contents::Table => f.write_str("a table"),
            Contents::ExternalTable => f.write_str("an external table"),
            Contents::FilterImages => f.write_str("a filter file"),
            Contents::Blobs => f.write_str("a blob file"),
            Contents::Log(number) => write!(f, "the log {number}"),
            Contents::Manifest(number) => write!(f, "the manifest {number}"),
            Contents::Text => f.write_str("a text file"),
            Contents::Unknown => f.write_str("a file of no kind that is known"),
        }
    }
}

/// Identifies the contents of a file. Reads its start and its end, and for a table also its
/// properties and index. Damage is not an error.
///
/// # Errors
///
/// Returns an error if a system call fails.
pub fn identify(fs: &dyn FileSystem, path: &Path) -> Result<Contents, StorageError> {
    let failed = |e: std::io::Error| StorageError::io("read", path, e);
    let file = fs.open(path, Access::Random).map_err(|e| StorageError::io("open", path, e))?;
    let len = file.len().map_err(failed)?;
    if len == 0 {
        return Ok(Contents::Nothing);
    }
    let start = read(&*file, 0, len.min(TEXT_BYTES)).map_err(failed)?;
    if let Some(header) = start.get(..HEADER_BYTES as usize).and_then(LogHeader::decode) {
        return Ok(match header.kind {
            LogKind::Writes => Contents::Log(header.id),
            LogKind::Manifest => Contents::Manifest(header.id),
        });
    }
    let end = len.min(Footer::BYTES);
    let end = read(&*file, len - end, end).map_err(failed)?;
    if Footer::is_marked(&end) {
        return Ok(match is_external(fs, path) {
            true => Contents::ExternalTable,
            false => Contents::Table,
        });
    }
    if images::is_marked(&end) {
        return Ok(Contents::FilterImages);
    }
    if blob::is_marked(&end) {
        return Ok(Contents::Blobs);
    }
    Ok(if is_text(&start) { Contents::Text } else { Contents::Unknown })
}

fn read(file: &dyn ReadFile, offset: u64, bytes: u64) -> std::io::Result<Vec<u8>> {
    let mut read = vec![0; bytes as usize];
    file.read_exact_at(&mut read, offset)?;
    Ok(read)
}

fn is_external(fs: &dyn FileSystem, path: &Path) -> bool {
    let config = ReaderConfig::for_a_look();
    Table::open(fs, path, 0, config).is_ok_and(|table| table.properties().external > 0)
}

/// Reports whether the start of a file is text. The start may be cut within a character.
fn is_text(start: &[u8]) -> bool {
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&start[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.is_empty() && !text.contains(|c: char| c.is_control() && !c.is_ascii_whitespace())
}
