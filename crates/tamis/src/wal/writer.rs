//! Writing a log.

use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use super::format::{HEADER_BYTES, LogHeader, RecordHead, RecordType, seed};
use crate::error::StorageError;
use crate::ids::LogId;
use crate::io::WriteFile;

/// Records up to this size are assembled in memory and written by one call. Longer ones are written part by
/// part, so that a huge value is not held twice.
const ASSEMBLE_BYTES: u64 = 1 << 20;

/// Appends records to one log file.
///
/// After a failed append or sync nothing is known about the file's end, so the writer is poisoned: every
/// later call returns the first error and touches nothing.
#[derive(Debug)]
pub(crate) struct LogWriter {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    id: LogId,
    len: u64,
    /// The log is durable up to here.
    synced: u64,
    /// The file takes room up to here, if that is more than `len`: what was reserved, or what a reused file held before.
    reserved: u64,
    /// A reservation was refused; none is tried again before the log is so long.
    refused: u64,
    /// The record being assembled; kept for its allocation.
    buf: Vec<u8>,
    failure: Option<StorageError>,
}

impl LogWriter {
    /// Starts a log in `file`, an empty or reused file called `path`, by writing the header. Nothing is
    /// synced yet, neither the file nor its name.
    pub(crate) fn create(
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

    /// Appends one record whose payload is `parts` one after the other, and gives the offset of its end. On
    /// return the operating system has it. One write call for a record of up to 1 MiB; above that, parts of
    /// that size are passed on without being copied.
    pub(crate) fn append(&mut self, parts: &[&[u8]]) -> Result<u64, StorageError> {
        self.append_record(RecordType::Data, parts)
    }

    /// Makes all records appended so far survive a power cut.
    pub(crate) fn sync(&mut self) -> Result<(), StorageError> {
        self.check()?;
        if let Err(e) = self.file.sync() {
            return Err(self.poison("sync", &e));
        }
        self.synced = self.len;
        Ok(())
    }

    /// Reservations that were refused may be tried again.
    pub(crate) fn retry_preallocation(&mut self) {
        self.refused = 0;
    }

    /// The file was reused and held so many bytes before.
    pub(crate) fn in_file_of(mut self, bytes: u64) -> LogWriter {
        self.reserved = bytes;
        self
    }

    /// Reserves room for a log of `bytes` in all; `false` if there is none. A hint: that poisons nothing, since a lack of room
    /// shows at the append that needs it. It is not tried again before the log is that long.
    pub(crate) fn preallocate(&mut self, bytes: u64) -> bool {
        if bytes <= self.allocated() || self.len < self.refused || self.failure.is_some() {
            return true;
        }
        match self.file.preallocate(bytes) {
            Ok(()) => self.reserved = bytes,
            Err(e) => {
                log::debug!("could not reserve {bytes} bytes for {}: {e}", self.path.display());
                self.refused = bytes;
                // A part of it may have been reserved: that is for others to have.
                self.reserved = bytes;
                self.give_back();
                return false;
            }
        }
        true
    }

    /// Cuts off what is reserved behind the records, or left there of a former log. Failing to do it costs room, nothing else.
    pub(crate) fn give_back(&mut self) {
        // After a failed append the file's end is not known, and stays as it is for the next opening to judge.
        if self.failure.is_some() || self.reserved <= self.len {
            return;
        }
        match self.file.truncate_to_written() {
            Ok(()) => self.reserved = self.len,
            Err(e) => log::warn!("could not give back the unused end of {}: {e}", self.path.display()),
        }
    }

    /// Finishes the log: appends the closing record, gives back what is reserved behind it, and syncs. Gives the log's length.
    pub(crate) fn close(mut self) -> Result<u64, StorageError> {
        let end = self.finish(None)?;
        self.give_back();
        self.sync()?;
        Ok(end)
    }

    /// Appends the closing record, and leaves the sync for later. Nothing may be appended after it. `successor` is the log that
    /// goes on, whose name is durable.
    pub(crate) fn finish(&mut self, successor: Option<LogId>) -> Result<u64, StorageError> {
        match successor {
            Some(id) => self.append_record(RecordType::Close, &[&id.to_le_bytes()]),
            None => self.append_record(RecordType::Close, &[]),
        }
    }

    /// Whether nothing has been appended yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.len <= HEADER_BYTES
    }

    /// Bytes written: the header and all records. What is preallocated behind them does not count.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes that the file takes: what is written, and what is reserved behind it or left there of a former log.
    pub(crate) fn allocated(&self) -> u64 {
        self.len.max(self.reserved)
    }

    /// The offset up to which the log is known to survive a power cut.
    #[cfg(test)]
    pub(crate) fn synced(&self) -> u64 {
        self.synced
    }

    /// The first failure, which every later call repeats.
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn append_record(&mut self, kind: RecordType, parts: &[&[u8]]) -> Result<u64, StorageError> {
        self.check()?;
        let offset = self.len;
        let payload_len: u64 = parts.iter().map(|p| p.len() as u64).sum();
        let seed = seed(self.id, offset);
        self.buf.clear();
        RecordHead::encode(&mut self.buf, self.id, offset, kind, payload_len, self.synced);
        if payload_len <= ASSEMBLE_BYTES {
            parts.iter().for_each(|p| self.buf.extend_from_slice(p));
            let checksum = xxh3_64_with_seed(&self.buf[8..], seed);
            self.buf[..8].copy_from_slice(&checksum.to_le_bytes());
            self.flush_buf()?;
        } else {
            let mut hasher = Xxh3::with_seed(seed);
            hasher.update(&self.buf[8..]);
            parts.iter().for_each(|p| hasher.update(p));
            self.buf[..8].copy_from_slice(&hasher.digest().to_le_bytes());
            for part in parts {
                if part.len() as u64 >= ASSEMBLE_BYTES {
                    self.flush_buf()?;
                    self.write(part)?;
                } else {
                    self.buf.extend_from_slice(part);
                    if self.buf.len() as u64 >= ASSEMBLE_BYTES {
                        self.flush_buf()?;
                    }
                }
            }
            self.flush_buf()?;
        }
        Ok(self.len)
    }

    fn flush_buf(&mut self) -> Result<(), StorageError> {
        if self.buf.is_empty() {
            return Ok(());
        }
        let mut buf = std::mem::take(&mut self.buf);
        let written = self.write(&buf);
        buf.clear();
        self.buf = buf;
        written
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        if let Err(e) = self.file.append(bytes) {
            return Err(self.poison("append to", &e));
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn poison(&mut self, operation: &'static str, source: &std::io::Error) -> StorageError {
        let failure = StorageError::io(operation, &self.path, source);
        self.failure = Some(failure.clone());
        failure
    }
}
