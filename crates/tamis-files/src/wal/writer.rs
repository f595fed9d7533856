//! The log writer.

use std::path::{Path, PathBuf};

use tamis_base::ids::LogId;
use tamis_env::io::WriteFile;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use super::format::{HEADER_BYTES, LogHeader, RecordHead, RecordType, seed};
use crate::error::StorageError;

/// A part of a record of at least so many bytes is written from where it is. Shorter ones are
/// assembled in memory.
const LONG_PART: usize = 4 << 10;

/// So many bytes are assembled in memory at most, and a short part.
const ASSEMBLE_BYTES: usize = 1 << 20;

/// Appends records to one log file.
///
/// After a failed append or sync the state of the file's end is unknown. The writer is then
/// poisoned: every later call returns the first error and does nothing.
#[derive(Debug)]
pub struct LogWriter {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    id: LogId,
    len: u64,
    /// The log is durable up to here.
    synced: u64,
    /// The end of the file's allocated space, if beyond `len`: preallocated, or the old content of
    /// a recycled file.
    reserved: u64,
    /// The size of a refused reservation; none is retried before the log reaches this length.
    refused: u64,
    /// The record being assembled; kept for its allocation.
    buf: Vec<u8>,
    failure: Option<StorageError>,
}

impl LogWriter {
    /// Returns the memory of the record buffer, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.buf.capacity()
    }

    /// Starts a log in `file`, an empty or recycled file at `path`, by writing the header. Neither
    /// the file nor its name is synced yet.
    pub fn create(
        file: Box<dyn WriteFile>,
        path: &Path,
        header: LogHeader,
    ) -> Result<LogWriter, StorageError> {
        let mut writer = LogWriter {
            file,
            path: path.to_owned(),
            id: header.id,
            len: 0,
            synced: 0,
            reserved: 0,
            refused: 0,
            buf: header.encode(),
            failure: None,
        };
        writer.flush_buf()?;
        Ok(writer)
    }

    /// Appends one record with the concatenated `parts` as its payload, and returns the offset of
    /// its end. On return the operating system has the record. Costs one append to the file, and one
    /// more for each further part of 4 KiB or more. These are not copied.
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<u64, StorageError> {
        self.append_record(RecordType::Data, parts)
    }

    /// Makes all appended records durable.
    pub fn sync(&mut self) -> Result<(), StorageError> {
        self.check()?;
        if let Err(e) = self.file.sync() {
            return Err(self.poison("sync", e));
        }
        self.synced = self.len;
        Ok(())
    }

    /// Allows refused reservations to be retried.
    pub fn retry_preallocation(&mut self) {
        self.refused = 0;
    }

    /// Records that the recycled file held this many bytes before.
    pub fn in_file_of(mut self, bytes: u64) -> LogWriter {
        self.reserved = bytes;
        self
    }

    /// Reserves space for a log of `bytes` in total; returns `false` if the reservation was refused
    /// just now. A failure does not poison the writer, since the append that needs the space will
    /// fail anyway. No reservation is retried before the log reaches `bytes`.
    pub fn preallocate(&mut self, bytes: u64) -> bool {
        if bytes <= self.allocated() || self.len < self.refused || self.failure.is_some() {
            return true;
        }
        match self.file.preallocate(bytes) {
            Ok(()) => self.reserved = bytes,
            Err(e) => {
                log::debug!("could not reserve {bytes} bytes for {}: {e}", self.path.display());
                self.refused = bytes;
                return false;
            }
        }
        true
    }

    /// Cuts off the space reserved after the records or left over from a recycled file. A failure
    /// only wastes space.
    pub fn give_back(&mut self) {
        // After a failure the file's end is unknown; the next opening judges it.
        if self.failure.is_some() || self.reserved <= self.len {
            return;
        }
        match self.file.truncate_to_written() {
            Ok(()) => self.reserved = self.len,
            Err(e) => log::warn!("could not give back the unused end of {}: {e}", self.path.display()),
        }
    }

    /// Finishes the log: appends the closing record, releases the space reserved after it, and
    /// syncs. Returns the log's length.
    pub fn close(mut self) -> Result<u64, StorageError> {
        let end = self.finish(None)?;
        self.give_back();
        self.sync()?;
        Ok(end)
    }

    /// Appends the closing record without syncing. Nothing may be appended after it. `successor` is
    /// the log that continues this one; its name must already be durable.
    pub fn finish(&mut self, successor: Option<LogId>) -> Result<u64, StorageError> {
        match successor {
            Some(id) => self.append_record(RecordType::Close, &[&id.to_le_bytes()]),
            None => self.append_record(RecordType::Close, &[]),
        }
    }

    /// Reports whether nothing has been appended yet.
    pub fn is_empty(&self) -> bool {
        self.len <= HEADER_BYTES
    }

    /// Returns the bytes written: header and records, without preallocated space.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns how many of the bytes were written through a mapping.
    pub fn mapped(&self) -> u64 {
        self.file.mapped()
    }

    /// Returns the bytes that the file occupies, including space reserved after the records or left
    /// over from a recycled file.
    pub fn allocated(&self) -> u64 {
        self.len.max(self.reserved)
    }

    /// Returns the offset up to which the log is known to be durable.
    #[cfg(test)]
    pub(crate) fn synced(&self) -> u64 {
        self.synced
    }

    /// Returns the first failure, which every later call repeats.
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn append_record(&mut self, kind: RecordType, parts: &[&[u8]]) -> Result<u64, StorageError> {
        self.check()?;
        let offset = self.len;
        let payload_len: u64 = parts.iter().map(|p| p.len() as u64).sum();
        let seed = seed(self.id, offset);
        RecordHead::encode(&mut self.buf, self.id, offset, kind, payload_len, self.synced);
        if parts.iter().all(|part| part.len() < LONG_PART) && payload_len <= ASSEMBLE_BYTES as u64 {
            parts.iter().for_each(|p| self.buf.extend_from_slice(p));
            let checksum = xxh3_64_with_seed(&self.buf[8..], seed);
            self.buf[..8].copy_from_slice(&checksum.to_le_bytes());
            self.flush_buf()?;
            return Ok(self.len);
        }
        let mut hasher = Xxh3::with_seed(seed);
        hasher.update(&self.buf[8..]);
        parts.iter().for_each(|p| hasher.update(p));
        self.buf[..8].copy_from_slice(&hasher.digest().to_le_bytes());
        for part in parts {
            if part.len() >= LONG_PART {
                self.flush_buf_and(part)?;
            } else {
                self.buf.extend_from_slice(part);
                if self.buf.len() >= ASSEMBLE_BYTES {
                    self.flush_buf()?;
                }
            }
        }
        self.flush_buf()?;
        Ok(self.len)
    }

    fn flush_buf(&mut self) -> Result<(), StorageError> {
        if self.buf.is_empty() {
            return Ok(());
        }
        let written = self.file.append(&self.buf);
        self.note_written(written, self.buf.len())
    }

    /// Writes the buffer, and a part behind it.
    fn flush_buf_and(&mut self, part: &[u8]) -> Result<(), StorageError> {
        let written = match self.buf.is_empty() {
            true => self.file.append(part),
            false => self.file.append_both(&self.buf, part),
        };
        self.note_written(written, self.buf.len() + part.len())
    }

    fn note_written(&mut self, written: std::io::Result<()>, bytes: usize) -> Result<(), StorageError> {
        self.buf.clear();
        written.map_err(|e| self.poison("append to", e))?;
        self.len += bytes as u64;
        Ok(())
    }

    fn poison(&mut self, operation: &'static str, source: std::io::Error) -> StorageError {
        let failure = StorageError::io(operation, &self.path, source);
        self.failure = Some(failure.clone());
        failure
    }
}

#[cfg(test)]
mod tests;
