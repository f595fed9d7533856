//! External tables: sorted tables that are built outside a database and [ingested](crate::Db::ingest) later.
//!
//! An external table is a table file like a database's own (`docs/table-format.md`) with three rules more, which its
//! `external` property promises: every entry is stored with sequence number 0, every key occurs once, and every range
//! tombstone is stored with number 1. What number they really have is decided by the database that ingests the file,
//! and recorded in its manifest: the file itself is never written again.
//!
//! All that a file holds happens at one moment. So its range deletes delete what the database held before, and never
//! an entry of the file itself.
//!
//! * [`ExternalTableBuilder`] writes one, with as little memory as a flush takes.
//! * [`describe`] reads what one says about itself; nothing that it says is trusted.
//!
//! A builder belongs to one thread at a time; files that are finished are immutable.

mod builder;
mod describe;

use std::ops::Bound;
use std::path::{Path, PathBuf};

use crate::error::{ExternalTableError, excerpt_of_key};
use crate::io::{DiskFs, FileSystem};
use crate::key::KeyEnd;

pub use builder::ExternalTableBuilder;
pub(crate) use describe::{Described, describe};

/// The version of the rules that this library writes and reads.
pub(crate) const EXTERNAL_VERSION: u64 = 1;

/// What an external table holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExternalTableInfo {
    /// The file.
    pub path: PathBuf,
    /// Keys in it, deletes included.
    pub entries: u64,
    /// How many of the entries are deletes.
    pub deletes: u64,
    /// Ranges that are deleted, after overlapping ones were joined.
    pub range_deletes: u64,
    /// The file's length in bytes.
    pub bytes: u64,
    /// Bytes of all keys and values before compression.
    pub raw_bytes: u64,
    /// The first key that the table says something about.
    pub smallest: Vec<u8>,
    /// Where the keys end that the table says something about.
    pub largest: Bound<Vec<u8>>,
}

impl ExternalTableInfo {
    /// Reads what the external table `path` says about itself: its last bytes and its index, not its entries.
    ///
    /// Errors: a failed system call; a file that is no external table, or not a complete one.
    pub fn read(path: impl AsRef<Path>) -> Result<ExternalTableInfo, ExternalTableError> {
        ExternalTableInfo::read_on(&DiskFs::without_mapping(), path)
    }

    /// [`read`](Self::read) on another file system.
    pub fn read_on(fs: &dyn FileSystem, path: impl AsRef<Path>) -> Result<Self, ExternalTableError> {
        Ok(describe(fs, path.as_ref())?.info())
    }

    /// The key range in words, for messages.
    pub(crate) fn range_text(&self) -> String {
        let smallest = excerpt_of_key(&self.smallest);
        match &self.largest {
            Bound::Included(key) => format!("{smallest} to {}", excerpt_of_key(key)),
            Bound::Excluded(key) => format!("{smallest} to before {}", excerpt_of_key(key)),
            Bound::Unbounded => format!("{smallest} on"),
        }
    }
}

fn bound_of(end: &KeyEnd) -> Bound<Vec<u8>> {
    match end {
        KeyEnd::Included(key) => Bound::Included(key.to_vec()),
        KeyEnd::Excluded(key) => Bound::Excluded(key.to_vec()),
        KeyEnd::Unbounded => Bound::Unbounded,
    }
}

#[cfg(test)]
mod tests;
