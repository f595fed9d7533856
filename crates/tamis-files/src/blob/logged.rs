//! Finds large values in a log, so that tables can refer to them there.

use std::path::Path;

use tamis_base::ids::{KeyspaceId, LogId};
use tamis_base::key::SeqNo;
use tamis_env::io::{Access, FileSystem};

use super::reference::Reference;
use crate::error::{FileError, StorageError};
use crate::wal::ops::{BatchOp, GroupHeader, Ops};
use crate::wal::{LogKind, LogReader, ReadOptions};

/// The large values that a log has of one keyspace.
#[derive(Debug, Default)]
pub struct LoggedValues {
    /// Their places, in the order of their sequence numbers.
    pub places: Vec<(SeqNo, Reference)>,
    /// The length of the log.
    pub log_bytes: u64,
}

impl LoggedValues {
    /// Reads a complete log, and lists the keyspace's values of at least `threshold` bytes. Every
    /// record is checked. Errors: failed reads, damage, a log without its closing record.
    pub fn find(
        fs: &dyn FileSystem,
        path: &Path,
        id: LogId,
        keyspace: KeyspaceId,
        threshold: u64,
    ) -> Result<LoggedValues, FileError> {
        let file = fs.open(path, Access::Sequential).map_err(|e| StorageError::io("open", path, e))?;
        let log_bytes = file.len().map_err(|e| StorageError::io("read", path, e))?;
        let options = ReadOptions { expect_complete: true, salvage: false };
        let mut log = LogReader::open(file, path, LogKind::Writes, id, options)?;
        let mut found = LoggedValues { places: Vec::new(), log_bytes };
        let threshold = threshold.max(Reference::MIN_SPAN as u64);
        while let Some(record) = log.next_record()? {
            let corrupt = |e: crate::wal::DecodeError| StorageError::corrupt(path, record.offset, e.0);
            let payload_start = record.end - record.payload.len() as u64;
            let (header, operations) = GroupHeader::decode(record.payload).map_err(corrupt)?;
            for (seq, op) in (header.first_seq..).zip(Ops::new(operations)) {
                if let BatchOp::Put { keyspace: of, value, .. } = op.map_err(corrupt)?
                    && of == keyspace
                    && value.len() as u64 >= threshold
                {
                    let within = value.as_ptr().addr() - record.payload.as_ptr().addr();
                    found.places.push((seq, Reference::in_log(id, payload_start + within as u64, value)));
                }
            }
        }
        Ok(found)
    }

    /// The bytes of the values.
    pub fn value_bytes(&self) -> u64 {
        self.places.iter().map(|(_, at)| at.len).sum()
    }
}
