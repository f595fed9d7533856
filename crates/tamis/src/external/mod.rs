//! External tables: sorted tables that are built outside a database and
//! [ingested](crate::Db::ingest) later.
//!
//! An external table is a table file like a database's own (`docs/formats/tables.md`) with three
//! additional rules, which its `external` property promises: every entry is stored with sequence
//! number 0, every key occurs once, and every range tombstone is stored with sequence number 1. The
//! database that ingests the file assigns the actual sequence number and records it in its
//! manifest; the file itself is never rewritten.
//!
//! All contents of a file take effect at once. So its range deletes delete what the database held
//! before, never an entry of the file itself.
//!
//! * [`ExternalTableBuilder`] writes an external table, with as little memory as a flush needs.
//! * [`describe`] reads a table's description of itself, without trusting it.
//!
//! A builder is used by one thread at a time; finished files are immutable.

mod builder;
mod describe;

use std::ops::Bound;
use std::path::{Path, PathBuf};

use crate::error::{ExternalTableError, excerpt_of_key};
use crate::io::{DiskFs, FileSystem};

pub use builder::ExternalTableBuilder;
pub(crate) use describe::{Described, describe};
use tamis_base::key::KeyEnd;

/// The version of these rules that this library writes and reads.
pub(crate) const EXTERNAL_VERSION: u64 = 1;

/// A summary of an external table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ExternalTableInfo {
    /// The file.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::path"))]
    pub path: PathBuf,
    /// Number of entries, deletes included.
    pub entries: u64,
    /// Number of entries that are deletes.
    pub deletes: u64,
    /// Number of deleted ranges, after joining overlapping ones.
    pub range_deletes: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Bytes of all keys and values before compression.
    pub raw_bytes: u64,
    /// The smallest key covered by an entry or a range delete.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::bytes"))]
    pub smallest: Vec<u8>,
    /// The end of the covered key range.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::bound"))]
    pub largest: Bound<Vec<u8>>,
}

impl ExternalTableInfo {
    /// Reads the self-description of the external table `path`: the end of the file and its index,
    /// not its entries.
    ///
    /// # Errors
    ///
    /// A failed system call; a file that is not an external table, or an incomplete one.
    pub fn read(path: impl AsRef<Path>) -> Result<ExternalTableInfo, ExternalTableError> {
        ExternalTableInfo::read_on(&DiskFs::without_mapping(), path)
    }

    /// Like [`read`](Self::read), on another file system.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read).
    pub fn read_on(fs: &dyn FileSystem, path: impl AsRef<Path>) -> Result<Self, ExternalTableError> {
        Ok(describe(fs, path.as_ref())?.info())
    }

    /// Returns the key range as text, for messages.
    pub(crate) fn range_text(&self) -> String {
        let smallest = excerpt_of_key(&self.smallest);
        match &self.largest {
            Bound::Included(key) => format!("{smallest} to {}", excerpt_of_key(key)),
            Bound::Excluded(key) => format!("{smallest} up to {} (excluded)", excerpt_of_key(key)),
            Bound::Unbounded => format!("{smallest} and above"),
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
