//! Reads a log back and determines how it ends.
//!
//! A bad record is either *torn* (it was being written when the power failed or the process died)
//! or *damaged* (it was once intact on disk and no longer is). A torn record and everything after
//! it may be dropped, since none of it was reported as durable. Dropping a damaged record would
//! silently lose acknowledged writes.
//!
//! The records after the bad one tell the two apart. Each states how far the log had been synced
//! when it was written; if that is beyond the start of the bad record, the bad record is damaged.
//! If no intact record says so, the bad one is torn, even if intact records follow: unsynced
//! sectors may survive in any order.
//!
//! The search for later records is linear in the file's length. The check over a record's head
//! dismisses nearly every position without hashing a payload, and a budget bounds the hashing that
//! hostile bytes can cause.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tamis_base::ids::LogId;
use tamis_env::io::ReadFile;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::format::{
    FORMAT_VERSION, HEADER_BYTES, LogKind, MAX_HEAD_BYTES, MIN_RECORD_BYTES, RawHeader, RecordHead,
    RecordType, TYPE_AT, seed,
};
use super::window::{CHUNK_BYTES, Window};
use crate::error::{FileError, StorageError};

/// How to read a log.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions {
    /// The log was finished before anything relied on it (a later log exists), so any end other
    /// than a closing record is damage.
    pub expect_complete: bool,
    /// Continue after damage with the next intact record, and list what was skipped.
    pub salvage: bool,
}

/// One record's payload and position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where the record starts in the file.
    pub offset: u64,
    /// Where the record ends.
    pub end: u64,
    /// The log was durable up to here when the record was written.
    pub synced: u64,
    /// The payload.
    pub payload: &'a [u8],
}

/// How a log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A closing record: the log is complete.
    Closed {
        /// The end of the closing record.
        offset: u64,
        /// The log that continues this one, if the closing record names one.
        successor: Option<LogId>,
    },
    /// The last record, followed by nothing, zeros, or the old content of a recycled file.
    Clean {
        /// The end of the last record.
        offset: u64,
    },
    /// A record that, as far as can be determined, was never whole on disk.
    Torn {
        /// The start of the bad record; everything from here on must be dropped.
        offset: u64,
    },
    /// Synced bytes that differ from what was written. A salvaging reader ends like this if no
    /// intact record follows the damage.
    Damaged {
        /// The start of the bad record.
        offset: u64,
        /// What is wrong.
        what: String,
    },
}

/// A damaged part of a log that the reader skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first byte skipped.
    pub start: u64,
    /// The first byte after the skipped part.
    pub end: u64,
    /// What was wrong at the start.
    pub(crate) what: String,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "skipped the {} bytes from offset {} on: {}", self.end - self.start, self.start, self.what)
    }
}

/// Reads the records of one log in order.
#[derive(Debug)]
pub struct LogReader {
    window: Window,
    id: LogId,
    options: ReadOptions,
    reused: bool,
    /// Where the next record starts.
    pos: u64,
    /// Everything before this offset was once synced, according to the records that searches found.
    /// Those read say nothing of what follows them.
    proven: u64,
    /// How many bytes the searches for records may still hash.
    budget: u64,
    gaps: Vec<Gap>,
    end: Option<End>,
}

/// What was found where a record should be.
enum Look {
    Record(RecordHead),
    FileEnd,
    Bad { what: &'static str, head_intact: bool },
}

impl LogReader {
    /// Opens log `id` of the given kind in `file`. Errors name the file `path`.
    ///
    /// Errors: [`FileError::Format`] for another format version; damage, if the header is bad
    /// although the log had been synced (unless salvaging); failed reads. A file without any trace
    /// of the log (created but never synced) is not an error and has no records.
    pub fn open(
        file: Arc<dyn ReadFile>,
        path: &Path,
        kind: LogKind,
        id: LogId,
        options: ReadOptions,
    ) -> Result<LogReader, FileError> {
        let mut window = Window::new(file, path.to_owned())?;
        let header = RawHeader::decode(window.get(0, HEADER_BYTES)?);
        let budget = window.len.saturating_mul(8).saturating_add(1 << 20);
        let mut reader = LogReader {
            window,
            id,
            options,
            reused: false,
            pos: HEADER_BYTES,
            proven: 0,
            budget,
            gaps: Vec::new(),
            end: None,
        };
        match header {
            Some(header) if header.id == id => {
                if header.version != FORMAT_VERSION {
                    let (found, supported) = (header.version, FORMAT_VERSION);
                    return Err(FileError::Format { path: path.to_owned(), found, supported });
                }
                if header.kind != kind as u8 {
                    let what = format!("it is a log of kind {}, not {}", header.kind, kind as u8);
                    return Err(StorageError::corrupt(path, 0, what).into());
                }
                reader.reused = header.reused;
            }
            // Files are recycled for later logs, never for earlier ones.
            Some(header) if header.id > id && !options.salvage => {
                let what = format!("it holds log {}, which is a later one", header.id);
                return Err(StorageError::corrupt(path, 0, what).into());
            }
            other => {
                // If this is an earlier log's header, the file was recycled and the new header
                // never reached the disk.
                reader.reused = other.is_some();
                reader.pos = 0;
                reader.resolve("the header is not intact", false)?;
            }
        }
        Ok(reader)
    }

    /// Returns the next record, or `None` at the end, which [`end`](Self::end) then describes.
    /// Damage is an error that gives the offset, unless the reader salvages. The whole payload is
    /// held in memory.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, StorageError> {
        while self.end.is_none() {
            match self.look(self.pos)? {
                Look::Record(head) => return self.pass(head),
                Look::FileEnd if self.options.expect_complete => {
                    self.resolve("there is no closing record", false)?;
                }
                Look::FileEnd => self.end = Some(End::Clean { offset: self.pos }),
                Look::Bad { what, head_intact } => self.resolve(what, head_intact)?,
            }
        }
        Ok(None)
    }

    /// Returns the next record of a log that another process appends to, or `None` if there is none
    /// yet; the next call looks again. Once the log is closed, [`end`](Self::end) says so. Whatever
    /// else follows the last record is not judged.
    pub fn poll(&mut self) -> Result<Option<Record<'_>>, StorageError> {
        let mut is_fresh = false;
        while self.end.is_none() {
            match self.look(self.pos)? {
                Look::Record(head) => return self.pass(head),
                _ if is_fresh => break,
                _ => {
                    self.window.refresh()?;
                    is_fresh = true;
                }
            }
        }
        Ok(None)
    }

    /// Examines what follows the last record. Damage is an error; nothing else is concluded.
    pub fn look_behind(&mut self) -> Result<(), StorageError> {
        if self.end.is_none()
            && let Look::Bad { what, head_intact } = self.look(self.pos)?
        {
            self.resolve(what, head_intact)?;
            self.resume();
        }
        Ok(())
    }

    /// Continues past an end that may be temporary, so that later records can be read.
    pub(crate) fn resume(&mut self) {
        if matches!(self.end, Some(End::Clean { .. } | End::Torn { .. })) {
            self.end = None;
        }
    }

    /// Returns the offset of the next record.
    pub fn pos(&self) -> u64 {
        self.pos
    }

    /// Advances past the record found and returns it, unless it is the closing one.
    fn pass(&mut self, head: RecordHead) -> Result<Option<Record<'_>>, StorageError> {
        let offset = self.pos;
        self.pos = head.end(offset);
        let (end, synced, is_close) = (self.pos, head.synced, head.kind == RecordType::Close);
        let payload = self.window.get(offset + head.head_len as u64, head.payload_len)?;
        if is_close {
            // Logs written by earlier versions do not name a successor.
            let successor = payload.first_chunk().map(|bytes| LogId::from_le_bytes(*bytes));
            self.end = Some(End::Closed { offset: end, successor });
            return Ok(None);
        }
        Ok(Some(Record { offset, end, synced, payload }))
    }

    /// Drops the buffered bytes and picks up what was appended. Only for a log that has grown: its
    /// next record must be complete by now.
    pub fn refresh(&mut self) -> Result<(), StorageError> {
        self.window.refresh()
    }

    /// Refreshes, and reports whether the file has become shorter: a full log gives back the space
    /// after its last record.
    pub fn was_cut(&mut self) -> Result<bool, StorageError> {
        let known = self.window.len;
        self.window.refresh()?;
        Ok(self.window.len < known)
    }

    /// Returns the path of the log.
    pub fn path(&self) -> &Path {
        &self.window.path
    }

    /// Returns how the log ends, once [`next_record`](Self::next_record) has returned `None` or
    /// damage.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Returns the damaged parts skipped so far. Empty unless salvaging.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    fn look(&mut self, offset: u64) -> Result<Look, StorageError> {
        if offset >= self.window.len {
            return Ok(Look::FileEnd);
        }
        let (id, file_len) = (self.id, self.window.len);
        let bytes = self.window.get(offset, MAX_HEAD_BYTES as u64)?;
        let Some(head) = RecordHead::parse(bytes, id, offset, file_len) else {
            return Ok(Look::Bad { what: "no record starts here", head_intact: false });
        };
        let bytes = self.window.get(offset, head.end(offset) - offset)?;
        let intact = bytes.first_chunk::<8>().is_some_and(|stored| {
            u64::from_le_bytes(*stored) == xxh3_64_with_seed(&bytes[8..], seed(id, offset))
        });
        Ok(match intact {
            true => Look::Record(head),
            false => Look::Bad { what: "the checksum of a record does not match", head_intact: true },
        })
    }

    /// Classifies the bad record at `self.pos`. Sets the end of the log, or, when salvaging,
    /// continues after the damage.
    fn resolve(&mut self, what: &'static str, head_intact: bool) -> Result<(), StorageError> {
        let bad = self.pos;
        let mut damaged = self.options.expect_complete || self.proven > bad;
        let mut next = None;
        let mut from = if bad == 0 { HEADER_BYTES } else { bad + MIN_RECORD_BYTES };
        let mut undecided = false;
        // Once damage is established, only salvaging needs the position of the next record.
        while !damaged || (self.options.salvage && next.is_none()) {
            let Search::Found { offset, head } = self.find_record(from, &mut undecided)? else { break };
            next.get_or_insert(offset);
            self.proven = self.proven.max(head.synced);
            // The header shares a sector with the record right after it. If that record survived,
            // the header reached the disk too and was lost later.
            damaged |= self.proven > bad || (bad == 0 && offset == HEADER_BYTES);
            from = head.end(offset);
        }
        if damaged || undecided {
            let why = if !damaged {
                "and what follows is too odd to tell whether it had been synced"
            } else if self.options.expect_complete {
                "though the log was finished"
            } else {
                "though the log had been synced beyond"
            };
            let what = format!("{what}, {why}");
            return self.damage(bad, next, what);
        }
        let torn = head_intact || next.is_some() || !(self.reused || self.window.zeros_from(bad)?);
        self.end = Some(match torn {
            true => End::Torn { offset: bad },
            false => End::Clean { offset: bad },
        });
        Ok(())
    }

    fn damage(&mut self, bad: u64, next: Option<u64>, what: String) -> Result<(), StorageError> {
        if !self.options.salvage {
            self.end = Some(End::Damaged { offset: bad, what: what.clone() });
            return Err(StorageError::corrupt(&self.window.path, bad, what));
        }
        self.gaps.push(Gap { start: bad, end: next.unwrap_or(self.window.len).max(bad), what: what.clone() });
        match next {
            Some(next) => self.pos = next,
            None => self.end = Some(End::Damaged { offset: bad, what }),
        }
        Ok(())
    }

    /// Finds the first intact record at or after `from`. Sets `exhausted` if the budget ran out
    /// first.
    fn find_record(&mut self, mut from: u64, exhausted: &mut bool) -> Result<Search, StorageError> {
        let (id, file_len) = (self.id, self.window.len);
        while from.saturating_add(MIN_RECORD_BYTES) <= file_len {
            let bytes = self.window.ahead(from, MIN_RECORD_BYTES.max(MAX_HEAD_BYTES as u64))?;
            let at_file_end = from + bytes.len() as u64 == file_len;
            // A head that may cross the end of these bytes is checked with the next chunk.
            let places = if at_file_end { bytes.len() } else { bytes.len() - MAX_HEAD_BYTES + 1 };
            let Some((skip, head)) = first_head(bytes, places, id, from, file_len) else {
                from += places as u64;
                continue;
            };
            let offset = from + skip as u64;
            let end = head.end(offset);
            let Some(left) = self.budget.checked_sub(end - offset) else {
                *exhausted = true;
                return Ok(Search::Nothing);
            };
            self.budget = left;
            if self.is_intact(offset, end)? {
                return Ok(Search::Found { offset, head });
            }
            from = offset + 1;
        }
        Ok(Search::Nothing)
    }

    fn is_intact(&mut self, offset: u64, end: u64) -> Result<bool, StorageError> {
        let stored = self.window.get(offset, 8)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        Ok(stored == Some(self.window.hash(seed(self.id, offset), offset + 8, end)?))
    }
}

/// Reports whether `file` still has the header of log `id`, and so was not recycled for a later
/// log.
pub fn is_header_of(file: &dyn ReadFile, id: LogId) -> std::io::Result<bool> {
    let mut bytes = [0; HEADER_BYTES as usize];
    if file.len()? < HEADER_BYTES {
        return Ok(false);
    }
    file.read_exact_at(&mut bytes, 0)?;
    Ok(RawHeader::decode(&bytes).is_some_and(|header| header.id == id))
}

/// Returns the id of a log of writes that ends with its closing record; `None` if it is something
/// else. `start` is its beginning and `end` its end, of a file of `len` bytes. Errors: the version
/// of a later format.
pub(crate) fn identify_complete(start: &[u8], end: &[u8], len: u64) -> Option<Result<LogId, u32>> {
    let header = RawHeader::decode(start)?;
    if header.version != FORMAT_VERSION {
        return Some(Err(header.version));
    }
    let from = len.checked_sub(end.len() as u64)?;
    let closes = |at: &usize| {
        let (offset, bytes) = (from + *at as u64, &end[*at..]);
        let head = RecordHead::parse(bytes, header.id, offset, len);
        let sum = || xxh3_64_with_seed(&bytes[8..], seed(header.id, offset)).to_le_bytes();
        head.is_some_and(|head| head.kind == RecordType::Close && head.end(offset) == len)
            && bytes.starts_with(&sum())
    };
    let is_complete = header.kind == LogKind::Writes as u8 && (0..end.len()).any(|at| closes(&at));
    is_complete.then_some(Ok(header.id))
}

enum Search {
    Found { offset: u64, head: RecordHead },
    Nothing,
}

/// Finds the first record head among the first `places` positions of `bytes`, which were read at
/// offset `base` of log `id`, a file of `file_len` bytes.
fn first_head(
    bytes: &[u8],
    places: usize,
    id: LogId,
    base: u64,
    file_len: u64,
) -> Option<(usize, RecordHead)> {
    const ZEROS: [u8; 64] = [0; 64];
    let mut at = 0;
    while at < places {
        match bytes.get(at + TYPE_AT)? {
            // Preallocated tails are long runs of zeros, and no record type is zero.
            0 if bytes[at + TYPE_AT..].starts_with(&ZEROS) => at += ZEROS.len(),
            &byte if RecordType::from_byte(byte).is_some() => {
                match RecordHead::parse(&bytes[at..], id, base + at as u64, file_len) {
                    Some(head) => return Some((at, head)),
                    None => at += 1,
                }
            }
            _ => at += 1,
        }
    }
    None
}

const _: () = assert!(CHUNK_BYTES > MAX_HEAD_BYTES);

#[cfg(test)]
mod tests;
