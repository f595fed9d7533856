//! A bounded view of a log file that moves forward as the log is read.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tamis_env::io::ReadFile;
use xxhash_rust::xxh3::Xxh3;

use crate::error::StorageError;

/// The read size, in bytes. Only a longer record makes the window larger.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// Part of a file in memory. Invariant: `buf` holds the file's bytes from `base` on.
#[derive(Debug)]
pub(super) struct Window {
    file: Arc<dyn ReadFile>,
    pub(super) path: PathBuf,
    /// The file's length when it was opened or refreshed; nothing beyond it is read.
    pub(super) len: u64,
    base: u64,
    buf: Vec<u8>,
}

impl Window {
    pub(super) fn new(file: Arc<dyn ReadFile>, path: PathBuf) -> Result<Window, StorageError> {
        let len = file.len().map_err(|e| StorageError::io("read the length of", &path, e))?;
        Ok(Window { file, path, len, base: 0, buf: Vec::new() })
    }

    /// Forgets the bytes read and updates the file's length.
    pub(super) fn refresh(&mut self) -> Result<(), StorageError> {
        self.base = 0;
        self.buf.clear();
        self.len = self.file.len().map_err(|e| StorageError::io("read the length of", &self.path, e))?;
        Ok(())
    }

    /// Returns up to `max` bytes from `offset` on, fewer only at the end of the file.
    pub(super) fn get(&mut self, offset: u64, max: u64) -> Result<&[u8], StorageError> {
        let available = self.len.saturating_sub(offset);
        let wanted = usize::try_from(max.min(available)).map_err(|_| self.no_memory())?;
        let held = self.base + self.buf.len() as u64;
        if offset < self.base || offset + wanted as u64 > held {
            self.fill(offset, wanted.max(CHUNK_BYTES.min(available as usize)))?;
        }
        let start = (offset - self.base) as usize;
        Ok(&self.buf[start..start + wanted])
    }

    /// Returns all buffered bytes from `offset` on, at least `min` of them (fewer only at the end
    /// of the file).
    pub(super) fn ahead(&mut self, offset: u64, min: u64) -> Result<&[u8], StorageError> {
        self.get(offset, min)?;
        Ok(&self.buf[(offset - self.base) as usize..])
    }

    fn fill(&mut self, offset: u64, len: usize) -> Result<(), StorageError> {
        self.buf.clear();
        self.buf.shrink_to(CHUNK_BYTES);
        self.base = offset;
        self.buf.try_reserve_exact(len).map_err(|_| self.no_memory())?;
        self.buf.resize(len, 0);
        if let Err(e) = self.file.read_exact_at(&mut self.buf, offset) {
            self.buf.clear();
            return Err(StorageError::io("read", &self.path, e));
        }
        Ok(())
    }

    fn no_memory(&self) -> StorageError {
        StorageError::io("hold a record of", &self.path, io::Error::from(io::ErrorKind::OutOfMemory))
    }

    /// Returns the seeded XXH3-64 of the bytes in `start..end`, read in chunks. `end` must lie
    /// within the file.
    pub(super) fn hash(&mut self, seed: u64, start: u64, end: u64) -> Result<u64, StorageError> {
        debug_assert!(end <= self.len);
        let mut hasher = Xxh3::with_seed(seed);
        let mut at = start;
        while at < end {
            let bytes = self.get(at, (end - at).min(CHUNK_BYTES as u64))?;
            hasher.update(bytes);
            at += bytes.len() as u64;
        }
        Ok(hasher.digest())
    }

    /// Reports whether all bytes from `offset` to the end of the file are zero. Stops reading after
    /// the first chunk with another byte.
    pub(super) fn zeros_from(&mut self, offset: u64) -> Result<bool, StorageError> {
        let mut at = offset;
        while at < self.len {
            let bytes = self.get(at, CHUNK_BYTES as u64)?;
            if bytes.iter().any(|&b| b != 0) {
                return Ok(false);
            }
            at += bytes.len() as u64;
        }
        Ok(true)
    }
}
