//! Finds large values in a log, so that tables can refer to them there.

use std::path::Path;

use tamis_base::ids::LogId;
use tamis_base::key::SeqNo;
use tamis_env::io::{Access, FileSystem};

use super::reference::Reference;
use crate::error::{FileError, StorageError};
use crate::wal::ops::{BatchOp, GroupHeader, Ops};
use crate::wal::{DecodeError, End, LogKind, LogReader, ReadOptions};

/// Returns the places of the values of some puts in a complete log, in the order of their sequence
/// numbers; `None` if more than `most_else` of the log's bytes are something else, or something
/// follows its closing record. Every record is checked. Errors: failed reads, damage, a log without
/// its closing record.
pub fn find_in_log(
    fs: &dyn FileSystem,
    path: &Path,
    id: LogId,
    is_wanted: impl Fn(SeqNo) -> bool,
    most_else: u64,
) -> Result<Option<Vec<(SeqNo, Reference)>>, FileError> {
    let file = fs.open(path, Access::Sequential).map_err(|e| StorageError::io("open", path, e))?;
    let len = file.len().map_err(|e| StorageError::io("read", path, e))?;
    let options = ReadOptions { expect_complete: true, salvage: false };
    let mut log = LogReader::open(file, path, LogKind::Writes, id, options)?;
    let (mut places, mut value_bytes) = (Vec::new(), 0);
    while let Some(record) = log.next_record()? {
        let corrupt = |e: DecodeError| StorageError::corrupt(path, record.offset, e.0);
        let payload_start = record.end - record.payload.len() as u64;
        let (header, operations) = GroupHeader::decode(record.payload).map_err(corrupt)?;
        for (seq, op) in (header.first_seq..).zip(Ops::new(operations)) {
            if let BatchOp::Put { value, .. } = op.map_err(corrupt)?
                && value.len() >= Reference::MIN_SPAN
                && is_wanted(seq)
            {
                let within = value.as_ptr().addr() - record.payload.as_ptr().addr();
                places.push((seq, Reference::in_log(id, payload_start + within as u64, value)));
                value_bytes += value.len() as u64;
            }
        }
        if record.end - value_bytes > most_else {
            return Ok(None);
        }
    }
    // Space that was reserved behind the closing record could not be given back.
    let is_trimmed = matches!(log.end(), Some(End::Closed { offset, .. }) if *offset == len);
    Ok(is_trimmed.then_some(places))
}
