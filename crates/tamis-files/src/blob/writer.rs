//! Writes a blob file.

use std::path::PathBuf;

use tamis_base::ids::BlobFileId;
use tamis_env::io::WriteFile;
use tamis_env::memory::PageVec;

use super::format::Footer;
use super::reference::Reference;
use crate::error::StorageError;
use crate::settings::Compression;
use crate::table::frame::{self, Sealer};

/// As in tables, appends end at multiples of this file offset, so that the page cache may use huge
/// pages. Exceptions are the last append and those next to a huge value.
const APPEND_BYTES: usize = 2 << 20;

/// Uncompressed values of at least this length are appended without a copy.
const HUGE_VALUE_BYTES: usize = 1 << 20;

/// Bytes of a checksum at the end of a record.
const SUM_BYTES: usize = 8;

/// Writes one blob file. After an error the file is incomplete and the writer must not be used.
#[derive(Debug)]
pub struct BlobWriter {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    compression: Compression,
    footer: Footer,
    /// Records not yet written to the file.
    pending: PageVec<u8>,
    /// Bytes written to the file.
    appended: u64,
    sealer: Sealer,
}

impl BlobWriter {
    /// Starts blob file `id` in the empty file `file`. Errors name `path`.
    pub fn new(
        file: Box<dyn WriteFile>,
        path: PathBuf,
        id: BlobFileId,
        compression: Compression,
    ) -> BlobWriter {
        BlobWriter {
            file,
            path,
            compression,
            footer: Footer { id, ..Footer::default() },
            pending: PageVec::new(),
            appended: 0,
            sealer: Sealer::default(),
        }
    }

    /// Bytes of the records so far.
    pub fn bytes(&self) -> u64 {
        self.appended + self.pending.len() as u64
    }

    /// Adds a value. Cost: a checksum, plus a copy and compression (huge uncompressed values are
    /// not copied).
    pub fn add(&mut self, value: &[u8]) -> Result<Reference, StorageError> {
        let offset = self.bytes();
        let raw = self.compression == Compression::None || value.len() > frame::MAX_DECODED_BYTES;
        if raw && value.len() >= HUGE_VALUE_BYTES {
            self.append_to(self.pending.len())?;
            self.append(value)?;
            self.pending.extend_from_slice(&frame::trailer_of_pieces(value, &[], offset));
        } else {
            let start = self.pending.len();
            self.pending.extend_from_slice(value);
            self.sealer.seal_next(&mut self.pending, start, offset, self.compression);
        }
        let sum = self.pending.last_chunk::<SUM_BYTES>().expect("a record ends with its checksum");
        let checksum = u64::from_le_bytes(*sum);
        self.footer.records += 1;
        self.footer.value_bytes += value.len() as u64;
        let span = self.bytes() - offset;
        let boundary = self.bytes() & !(APPEND_BYTES as u64 - 1);
        if boundary > self.appended {
            self.append_to((boundary - self.appended) as usize)?;
        }
        Ok(Reference { file: self.footer.id, offset, span, len: value.len() as u64, checksum })
    }

    /// Writes the footer and syncs the file (not its directory). Returns the file's length.
    pub fn finish(mut self) -> Result<u64, StorageError> {
        self.footer.encode(self.bytes(), &mut self.pending);
        self.append_to(self.pending.len())?;
        self.file.truncate_to_written().map_err(|e| StorageError::io("truncate", &self.path, e))?;
        self.file.sync().map_err(|e| StorageError::io("sync", &self.path, e))?;
        Ok(self.appended)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        self.file.append(bytes).map_err(|e| StorageError::io("write", &self.path, e))?;
        self.appended += bytes.len() as u64;
        Ok(())
    }

    /// Writes the first `len` pending bytes.
    fn append_to(&mut self, len: usize) -> Result<(), StorageError> {
        if len == 0 {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.pending);
        let done = self.append(&pending[..len]);
        pending.remove_front(len);
        self.pending = pending;
        done
    }
}
