//! Replaying the logs after a crash or a clean close.
//!
//! Logs are replayed in order of their numbers; sequence numbers continue without a gap from record
//! to record and from log to log. Where the sequence breaks, there are two cases:
//!
//! * **Torn**: the writes after the break were not synced, so their survival was never promised.
//!   They are dropped, with a warning, and so is everything after them, so that a prefix of all
//!   writes remains.
//! * **Damaged**: a later record says that the missing part had been synced. That is an error,
//!   unless salvage is enabled: then everything readable is replayed, with a warning for each gap.
//!
//! No log that holds a synced write can go missing unnoticed: the manifest names the first log that
//! is needed, and each rolled log names its successor in its closing record, which is synced before
//! any write of that successor is.

use std::path::Path;

use tamis_base::ids::LogId;
use tamis_base::key::SeqNo;
use tamis_env::io::{Access, FileSystem};

use super::files::log_path;
use crate::error::{FileError, StorageError};
use crate::wal::ops::{BatchOp, GroupHeader, Ops};
use crate::wal::{End, LogKind, LogReader, ReadOptions};

/// The result of a replay.
#[derive(Debug)]
pub struct Replayed {
    /// The last sequence number read; 0 if there were no records.
    pub last_seq: SeqNo,
    /// What was dropped, in words.
    pub warnings: Vec<String>,
    /// The first log whose end is missing, and what was found instead.
    pub broken: Option<(LogId, u64, String)>,
    /// Whether any log that was read to its end has a closing record.
    pub any_closed: bool,
    /// Whether the last log holds records and has a closing record.
    pub last_closed: bool,
    /// Whether the last log is empty and not closed.
    pub last_empty: bool,
    /// The log that has the first record that was not to be read, and the number of its first
    /// write.
    pub stopped: Option<(LogId, SeqNo)>,
}

/// How to replay logs.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayOptions {
    /// Replay everything readable.
    pub salvage: bool,
    /// The last write to be replayed; records with later ones are not read, nor is what is behind
    /// them.
    pub until: Option<SeqNo>,
}

/// Reads `logs` (ascending) and passes every operation with its log and sequence number to `apply`.
///
/// # Errors
///
/// Failed reads; damage, unless it is salvaged; those of `apply`.
pub fn replay<E: From<FileError> + From<StorageError>>(
    fs: &dyn FileSystem,
    dir: &Path,
    logs: &[LogId],
    options: ReplayOptions,
    mut apply: impl FnMut(LogId, SeqNo, &BatchOp<'_>) -> Result<(), E>,
) -> Result<Replayed, E> {
    let mut replayed = Replayed {
        last_seq: 0,
        warnings: Vec::new(),
        broken: None,
        any_closed: false,
        last_closed: false,
        last_empty: false,
        stopped: None,
    };
    let ReplayOptions { salvage, until } = options;
    // The warning for a log without a closing record. Not issued if only empty logs follow: the
    // process ended before it needed the next log, which is created ahead.
    let mut unclosed = None;
    for (i, &id) in logs.iter().enumerate() {
        let path = log_path(dir, id);
        let last = i + 1 == logs.len();
        let file = fs.open(&path, Access::Sequential).map_err(|e| StorageError::io("open", &path, e))?;
        let how = ReadOptions { expect_complete: false, salvage };
        let mut reader = LogReader::open(file, &path, LogKind::Writes, id, how)?;
        let (mut dropped, mut records) = (0u64, 0u64);
        while let Some(record) = reader.next_record()? {
            records += 1;
            replayed.warnings.extend(unclosed.take());
            let offset = record.offset;
            let damaged = |what: &str| StorageError::corrupt(&path, offset, what);
            let (header, operations) =
                GroupHeader::decode(record.payload).map_err(|e| damaged(&e.to_string()))?;
            if let Some((log, at, what)) = replayed.broken.as_ref().filter(|_| !salvage) {
                if header.older_logs_synced {
                    return Err(StorageError::corrupt(&log_path(dir, *log), *at, what.clone()).into());
                }
                dropped += 1;
                continue;
            }
            let last = header.first_seq.saturating_add(header.count.saturating_sub(1));
            if until.is_some_and(|until| last > until) {
                replayed.stopped = Some((id, header.first_seq));
                return Ok(replayed);
            }
            let expected = replayed.last_seq + 1;
            if replayed.last_seq > 0 && header.first_seq != expected {
                let mut what = format!("its first write is number {}, expected {expected}", header.first_seq);
                if records == 1 {
                    what.push_str("; a log before it is missing");
                }
                if !salvage || header.first_seq <= replayed.last_seq {
                    return Err(damaged(&what).into());
                }
                replayed.warnings.push(format!("{} at offset {offset}: {what}", path.display()));
            }
            let mut seq = header.first_seq;
            for op in Ops::new(operations) {
                let op = op.map_err(|e| damaged(&format!("{e}")))?;
                apply(id, seq, &op)?;
                seq += 1;
            }
            if seq - header.first_seq != header.count {
                return Err(damaged("a record whose count of operations is wrong").into());
            }
            replayed.last_seq = seq - 1;
        }
        for gap in reader.gaps() {
            replayed.warnings.push(format!("{}: {gap}", path.display()));
        }
        if dropped > 0 {
            let note =
                format!("{}: dropped {dropped} records after the torn end of an older log", path.display());
            replayed.warnings.push(note);
        }
        let torn = match reader.end().expect("the reader came to its end") {
            End::Closed { successor, .. } => {
                replayed.any_closed = true;
                replayed.last_closed = last && records > 0;
                if let Some(successor) = *successor
                    && logs.get(i + 1) != Some(&successor)
                {
                    let what = format!("the log is missing, and {} says that it follows", path.display());
                    let missing = StorageError::corrupt(&log_path(dir, successor), None, what);
                    if !salvage {
                        return Err(missing.into());
                    }
                    replayed.warnings.push(missing.to_string());
                }
                None
            }
            End::Clean { offset } => {
                replayed.last_empty = last && records == 0;
                (!last).then_some((*offset, "the log ends without its closing record"))
            }
            End::Torn { offset } => Some((*offset, "a record is torn")),
            // One of the gaps, which are told above; without salvage it was an error.
            End::Damaged { .. } => None,
        };
        let is_clean = matches!(reader.end(), Some(End::Clean { .. }));
        if let (Some((offset, what)), None) = (torn, &replayed.broken) {
            let note = format!("{}: cut at offset {offset}: {what}; it was never synced", path.display());
            // A log that was created and never written to needs no warning.
            if is_clean {
                unclosed = Some(note);
            } else if offset != 0 {
                replayed.warnings.push(note);
            }
            replayed.broken = Some((id, offset, what.to_owned()));
        }
    }
    Ok(replayed)
}

/// Returns the number of a log's first write and the size of its file; `None` if it holds no
/// record.
///
/// # Errors
///
/// A failed system call, or damage.
pub fn first_write(fs: &dyn FileSystem, path: &Path, id: LogId) -> Result<Option<(SeqNo, u64)>, FileError> {
    let io = |operation, e| StorageError::io(operation, path, e);
    let file = fs.open(path, Access::Sequential).map_err(|e| io("open", e))?;
    let bytes = file.len().map_err(|e| io("read the length of", e))?;
    let mut reader = LogReader::open(file, path, LogKind::Writes, id, ReadOptions::default())?;
    let Some(record) = reader.next_record()? else { return Ok(None) };
    let offset = record.offset;
    let (header, _) = GroupHeader::decode(record.payload)
        .map_err(|e| StorageError::corrupt(path, offset, e.to_string()))?;
    Ok(Some((header.first_seq, bytes)))
}

#[cfg(test)]
mod tests;
