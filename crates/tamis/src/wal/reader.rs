//! Reading a log back, and telling how it ends.
//!
//! A bad record is either *torn* (it was being written when the power went, or the process died) or *damaged*
//! (it was on disk once and is not any more). A torn record and all behind it may be dropped, since nobody
//! was told that it is durable; dropping a damaged one would lose acknowledged writes in silence. The two are
//! told apart by the records behind the bad one. Each says up to where the log had been synced when it was
//! written; if that is beyond the bad record, the bad record is damage. If no intact record says so, the bad
//! one is torn, even where intact records follow: sectors that were not synced may survive in any order.
//!
//! The search for later records is linear in the file's length: the check over a record's head dismisses
//! nearly every place without hashing a payload, and a budget bounds what hostile bytes can make it hash.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::format::{
    FORMAT_VERSION, HEADER_BYTES, LogKind, MAX_HEAD_BYTES, MIN_RECORD_BYTES, RawHeader, RecordHead,
    RecordType, TYPE_AT, seed,
};
use super::window::{CHUNK_BYTES, Window};
use crate::error::{OpenError, StorageError};
use crate::ids::LogId;
use crate::io::ReadFile;

/// How to read a log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadOptions {
    /// The log was finished before anything that depends on it happened (a later log exists), so that
    /// anything but a closing record at its end is damage.
    pub(crate) expect_complete: bool,
    /// Go on behind damage with the next intact record, and keep a list of what was skipped.
    pub(crate) salvage: bool,
}

/// One record's payload and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// Where the record starts in the file.
    pub(crate) offset: u64,
    /// Where the record ends.
    pub(crate) end: u64,
    /// The log was durable up to here when the record was written.
    pub(crate) synced: u64,
    /// The payload.
    pub(crate) payload: &'a [u8],
}

/// How a log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With a closing record: the log is complete.
    Closed {
        /// The end of the closing record.
        offset: u64,
        /// The log that goes on where this one ends, if it says so: there was one when it was closed.
        successor: Option<LogId>,
    },
    /// With its last record; behind it are only zeros or what a reused file held before.
    Clean {
        /// The end of the last record.
        offset: u64,
    },
    /// With a record that never was whole on disk, as far as anyone can tell.
    Torn {
        /// The start of the bad record; everything from here on is to be dropped.
        offset: u64,
    },
    /// With bytes that had been synced and are not what was written. A salvaging reader ends like this where
    /// nothing intact is left behind the damage.
    Damaged {
        /// The start of the bad record.
        offset: u64,
        /// What is wrong.
        what: String,
    },
}

/// A damaged part of a log that was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// The first byte skipped.
    pub(crate) start: u64,
    /// The first byte behind what was skipped.
    pub(crate) end: u64,
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
pub(crate) struct LogReader {
    window: Window,
    id: LogId,
    options: ReadOptions,
    reused: bool,
    /// Where the next record starts.
    pos: u64,
    /// Everything before this offset was synced once: the largest claim of all intact records seen so far.
    proven: u64,
    /// How many bytes searches for records may still hash.
    budget: u64,
    gaps: Vec<Gap>,
    end: Option<End>,
}

/// What is at a place where a record should be.
enum Place {
    Record(RecordHead),
    FileEnd,
    Bad { what: &'static str, head_intact: bool },
}

impl LogReader {
    /// Opens log `id` of the given kind in `file`, which is called `path` in errors.
    ///
    /// Errors: [`OpenError::Format`] for a newer format, damage where the header is bad although the log
    /// had been synced (unless salvaging), failed reads. A file without any trace of the log (created but
    /// never synced) is no error: it has no records.
    pub(crate) fn open(
        file: Arc<dyn ReadFile>,
        path: &Path,
        kind: LogKind,
        id: LogId,
        options: ReadOptions,
    ) -> Result<LogReader, OpenError> {
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
                    return Err(OpenError::Format { path: path.to_owned(), found, supported });
                }
                if header.kind != kind as u8 {
                    let what = format!("it is a log of kind {}, not {}", header.kind, kind as u8);
                    return Err(StorageError::corrupt(path, 0, what).into());
                }
                reader.reused = header.reused;
            }
            // Files are reused for later logs, never for earlier ones.
            Some(header) if header.id > id && !options.salvage => {
                let what = format!("it holds log {}, which is a later one", header.id);
                return Err(StorageError::corrupt(path, 0, what).into());
            }
            other => {
                // An earlier log's header: the file was reused and the new header did not reach the disk.
                reader.reused = other.is_some();
                reader.pos = 0;
                reader.resolve("the header is not intact", false)?;
            }
        }
        Ok(reader)
    }

    /// The next record, or `None` at the end, about which [`end`](Self::end) says more. Damage is an error
    /// that names the offset, unless the reader salvages. The payload is held in memory whole.
    pub(crate) fn next_record(&mut self) -> Result<Option<Record<'_>>, StorageError> {
        while self.end.is_none() {
            match self.look(self.pos)? {
                Place::Record(head) => {
                    let offset = self.pos;
                    self.pos = head.end(offset);
                    self.proven = self.proven.max(head.synced);
                    if head.kind == RecordType::Close {
                        let payload = self.window.get(offset + head.head_len as u64, head.payload_len)?;
                        // Logs of before say nothing.
                        let successor = payload.first_chunk().map(|bytes| LogId::from_le_bytes(*bytes));
                        self.end = Some(End::Closed { offset: self.pos, successor });
                        break;
                    }
                    let payload = self.window.get(offset + head.head_len as u64, head.payload_len)?;
                    return Ok(Some(Record { offset, end: self.pos, synced: head.synced, payload }));
                }
                Place::FileEnd if self.options.expect_complete => {
                    self.resolve("there is no closing record", false)?;
                }
                Place::FileEnd => self.end = Some(End::Clean { offset: self.pos }),
                Place::Bad { what, head_intact } => self.resolve(what, head_intact)?,
            }
        }
        Ok(None)
    }

    /// How the log ends, once [`next_record`](Self::next_record) gave `None` or damage.
    pub(crate) fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// What was skipped so far because it is damaged. Empty unless salvaging.
    pub(crate) fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    fn look(&mut self, offset: u64) -> Result<Place, StorageError> {
        if offset >= self.window.len {
            return Ok(Place::FileEnd);
        }
        let (id, file_len) = (self.id, self.window.len);
        let bytes = self.window.get(offset, MAX_HEAD_BYTES as u64)?;
        let Some(head) = RecordHead::parse(bytes, id, offset, file_len) else {
            return Ok(Place::Bad { what: "no record starts here", head_intact: false });
        };
        let bytes = self.window.get(offset, head.end(offset) - offset)?;
        let intact = bytes.first_chunk::<8>().is_some_and(|stored| {
            u64::from_le_bytes(*stored) == xxh3_64_with_seed(&bytes[8..], seed(id, offset))
        });
        Ok(match intact {
            true => Place::Record(head),
            false => Place::Bad { what: "the checksum of a record does not match", head_intact: true },
        })
    }

    /// Decides what the bad place at `self.pos` is: sets the end of the log, or (salvaging) goes on behind
    /// the damage.
    fn resolve(&mut self, what: &'static str, head_intact: bool) -> Result<(), StorageError> {
        let bad = self.pos;
        let mut damaged = self.options.expect_complete || self.proven > bad;
        let mut next = None;
        let mut from = if bad == 0 { HEADER_BYTES } else { bad + MIN_RECORD_BYTES };
        let mut undecided = false;
        // Once the verdict is damage, only salvaging needs to know where the next record is.
        while !damaged || (self.options.salvage && next.is_none()) {
            let Search::Found { offset, head } = self.find_record(from, &mut undecided)? else { break };
            next.get_or_insert(offset);
            self.proven = self.proven.max(head.synced);
            // The header and a record right behind it are in one sector, so the header was lost later.
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

    /// The first intact record at or after `from`. Sets `exhausted` if the budget ended the search.
    fn find_record(&mut self, mut from: u64, exhausted: &mut bool) -> Result<Search, StorageError> {
        let (id, file_len) = (self.id, self.window.len);
        while from.saturating_add(MIN_RECORD_BYTES) <= file_len {
            let bytes = self.window.ahead(from, MIN_RECORD_BYTES.max(MAX_HEAD_BYTES as u64))?;
            let at_file_end = from + bytes.len() as u64 == file_len;
            // A head that runs over the end of these bytes is looked at again with the next ones.
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
        let mut stored = [0; 8];
        stored.copy_from_slice(self.window.get(offset, 8)?);
        Ok(u64::from_le_bytes(stored) == self.window.hash(seed(self.id, offset), offset + 8, end)?)
    }
}

enum Search {
    Found { offset: u64, head: RecordHead },
    Nothing,
}

/// The first of the `places` first positions in `bytes` where the head of a record is. `bytes` lie at `base`
/// of log `id`, a file of `file_len` bytes.
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
            // Preallocated tails are long and zero, and no type is.
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
