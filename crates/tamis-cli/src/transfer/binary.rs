//! The binary form: a head, then frames, each with its length and a checksum.

use std::io::{self, BufRead, Read, Write};

use tamis::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use xxhash_rust::xxh3::Xxh3;

use super::{Counts, Item, Part, TransferError};

/// The head: what it is, and the version of the format.
const MAGIC: &[u8; 8] = b"TAMISEXP";
const VERSION: u32 = 1;

/// Kinds of frames.
const KEYSPACE: u8 = 1;
const ENTRIES: u8 = 2;
const END: u8 = 3;

/// Kind, length and checksum.
const FRAME_HEAD: usize = 1 + 8 + 8;

/// A frame of entries is written when it has this many bytes.
const FRAME_BYTES: usize = 256 << 10;

/// The longest frame that is read: one entry, as large as it may be. Longer ones hold several.
const MAX_FRAME: u64 = (8 + MAX_KEY_BYTES + FRAME_BYTES) as u64 + MAX_VALUE_BYTES as u64;

/// The number of the frame is part of its checksum, so that none can be left out, doubled or moved.
fn checksum(number: u64, kind: u8, payload: &[u8]) -> u64 {
    let mut hasher = Xxh3::with_seed(number);
    hasher.update(&[kind]);
    hasher.update(&(payload.len() as u64).to_le_bytes());
    hasher.update(payload);
    hasher.digest()
}

pub(crate) struct BinaryWriter<W: Write> {
    out: W,
    frames: u64,
    counts: Counts,
    entries: Vec<u8>,
}

impl<W: Write> BinaryWriter<W> {
    pub(super) fn new(mut out: W) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        Ok(BinaryWriter { out, frames: 0, counts: Counts::default(), entries: Vec::new() })
    }

    pub(super) fn keyspace(&mut self, name: &str) -> io::Result<()> {
        self.flush_entries()?;
        self.counts.keyspaces += 1;
        self.frame(KEYSPACE, name.as_bytes())
    }

    pub(super) fn entry(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let length =
            |bytes: &[u8]| u32::try_from(bytes.len()).expect("keys and values are shorter").to_le_bytes();
        self.entries.extend(length(key));
        self.entries.extend(length(value));
        self.entries.extend_from_slice(key);
        self.entries.extend_from_slice(value);
        self.counts.entries += 1;
        if self.entries.len() >= FRAME_BYTES { self.flush_entries() } else { Ok(()) }
    }

    pub(super) fn finish(mut self) -> io::Result<W> {
        self.flush_entries()?;
        let Counts { keyspaces, entries } = self.counts;
        self.frame(END, &[keyspaces.to_le_bytes(), entries.to_le_bytes()].concat())?;
        Ok(self.out)
    }

    fn flush_entries(&mut self) -> io::Result<()> {
        let mut entries = std::mem::take(&mut self.entries);
        if !entries.is_empty() {
            self.frame(ENTRIES, &entries)?;
        }
        entries.clear();
        // One large value must not cost its memory until the end.
        entries.shrink_to(2 * FRAME_BYTES);
        self.entries = entries;
        Ok(())
    }

    fn frame(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        let mut head = [0; FRAME_HEAD];
        head[0] = kind;
        head[1..9].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        head[9..].copy_from_slice(&checksum(self.frames, kind, payload).to_le_bytes());
        self.frames += 1;
        self.out.write_all(&head)?;
        self.out.write_all(payload)
    }
}

pub(crate) struct BinaryReader<R: BufRead> {
    input: R,
    frames: u64,
    /// The offset of the frame read last, and that of the next.
    frame_at: u64,
    next_at: u64,
    /// The entries of the frame read last, and how many of their bytes were returned.
    entries: Vec<u8>,
    taken: usize,
}

impl<R: BufRead> BinaryReader<R> {
    pub(super) fn new(input: R) -> Result<Self, TransferError> {
        let mut reader =
            BinaryReader { input, frames: 0, frame_at: 0, next_at: 0, entries: Vec::new(), taken: 0 };
        let head = reader.exactly(MAGIC.len() as u64 + 4)?;
        if head.get(..8) != Some(MAGIC) {
            return Err(reader.bad("this is no export of tamis"));
        }
        match <[u8; 4]>::try_from(&head[8..]).map(u32::from_le_bytes) {
            Ok(VERSION) => Ok(reader),
            Ok(other) => {
                let what = format!("an export of version {other}; this program reads version {VERSION}");
                Err(reader.bad(what))
            }
            Err(_) => Err(reader.bad("it was cut off")),
        }
    }

    pub(super) fn place(&self) -> String {
        format!("byte {}", self.frame_at)
    }

    fn bad(&self, what: impl Into<String>) -> TransferError {
        TransferError::Bad { place: self.place(), what: what.into() }
    }

    /// Reads this many bytes, or fewer at the end of the input. Memory grows with what is there,
    /// whatever was announced.
    fn exactly(&mut self, bytes: u64) -> Result<Vec<u8>, TransferError> {
        let mut read = Vec::new();
        self.input.by_ref().take(bytes).read_to_end(&mut read)?;
        self.next_at += read.len() as u64;
        Ok(read)
    }

    pub(super) fn part(&mut self) -> Result<Part, TransferError> {
        loop {
            if let Some(entry) = self.next_entry()? {
                return Ok(Part::Item(entry));
            }
            let (kind, payload) = self.frame()?;
            match kind {
                KEYSPACE => {
                    let name = String::from_utf8(payload);
                    let name = name.map_err(|_| self.bad("the name of a keyspace is not UTF-8"))?;
                    return Ok(Part::Item(Item::Keyspace(name)));
                }
                ENTRIES => (self.entries, self.taken) = (payload, 0),
                END => {
                    let (keyspaces, entries) = payload.split_at_checked(8).unwrap_or_default();
                    let number = |bytes: &[u8]| <[u8; 8]>::try_from(bytes).map(u64::from_le_bytes);
                    let (Ok(keyspaces), Ok(entries)) = (number(keyspaces), number(entries)) else {
                        return Err(self.bad("the frame at the end is malformed"));
                    };
                    if !self.input.fill_buf()?.is_empty() {
                        self.frame_at = self.next_at;
                        return Err(self.bad("something follows the end"));
                    }
                    return Ok(Part::End(Counts { keyspaces, entries }));
                }
                _ => return Err(self.bad(format!("a frame of the unknown kind {kind}"))),
            }
        }
    }

    /// Returns the next entry of the frame read last, if one is left.
    fn next_entry(&mut self) -> Result<Option<Item>, TransferError> {
        let rest = &self.entries[self.taken..];
        if rest.is_empty() {
            return Ok(None);
        }
        let split = |bytes: &[u8]| {
            let (lengths, rest) = bytes.split_first_chunk::<8>()?;
            let length = |at: usize| {
                u32::from_le_bytes([lengths[at], lengths[at + 1], lengths[at + 2], lengths[at + 3]])
            };
            let (key, rest) = rest.split_at_checked(usize::try_from(length(0)).ok()?)?;
            let (value, _) = rest.split_at_checked(usize::try_from(length(4)).ok()?)?;
            Some((key.to_vec(), value.to_vec()))
        };
        let Some((key, value)) = split(rest) else { return Err(self.bad("an entry goes beyond its frame")) };
        self.taken += 8 + key.len() + value.len();
        Ok(Some(Item::Entry(key, value)))
    }

    fn frame(&mut self) -> Result<(u8, Vec<u8>), TransferError> {
        self.frame_at = self.next_at;
        let head = self.exactly(FRAME_HEAD as u64)?;
        let Ok(head) = <[u8; FRAME_HEAD]>::try_from(head) else {
            return Err(self.bad("it was cut off: the frame at the end is missing"));
        };
        let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let (kind, length, stored) = (head[0], number(1), number(9));
        if length > MAX_FRAME {
            return Err(self.bad(format!("a frame of {length} bytes, which no export has: it is damaged")));
        }
        let payload = self.exactly(length)?;
        if payload.len() as u64 != length {
            return Err(self.bad("it was cut off within a frame, or is damaged"));
        }
        if checksum(self.frames, kind, &payload) != stored {
            return Err(self.bad("the checksum of a frame does not match: it is damaged"));
        }
        self.frames += 1;
        Ok((kind, payload))
    }
}
