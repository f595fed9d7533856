//! Reads a key list.

use tamis_base::key::MAX_KEY_BYTES;
use xxhash_rust::xxh3::xxh3_64;

use super::{LONG, MAGIC, TRAILER_BYTES, VERSION};
use crate::codec::Decoder;
use crate::table::frame::Damage;

const BAD_DIRECTORY: Damage = Damage("a key list whose directory does not decode");
const BAD_CHUNK: Damage = Damage("a key list with a chunk that does not decode");

/// One chunk, as the directory describes it.
#[derive(Clone, Copy, Debug)]
struct Chunk<'b> {
    /// Length of the chunk's bytes.
    len: usize,
    /// The number of keys, including the first one, which is not in the chunk's bytes.
    keys: u64,
    first: &'b [u8],
}

fn chunk<'b>(directory: &mut Decoder<'b>) -> Option<Chunk<'b>> {
    let (len, keys) = (directory.varint_usize()?, directory.varint()?);
    Some(Chunk { len, keys, first: directory.bytes()? })
}

/// A view of a key list's bytes. See the [module](super).
#[derive(Clone, Copy, Debug)]
pub struct KeyListReader<'b> {
    chunks: &'b [u8],
    /// Entries of the chunks, already validated.
    directory: Decoder<'b>,
    keys: u64,
    first: &'b [u8],
    last: &'b [u8],
}

impl<'b> KeyListReader<'b> {
    /// Verifies the checksum and directory of a key list. Cost: one pass over the bytes at checksum
    /// speed; no allocation. The chunks' contents are checked as they are decoded.
    pub fn open(bytes: &'b [u8]) -> Result<Self, Damage> {
        let Some((body, trailer)) = bytes.split_last_chunk::<TRAILER_BYTES>() else {
            return Err(Damage("a key list shorter than its trailer"));
        };
        let mut trailer = Decoder::new(trailer);
        let mut word = || trailer.u64().unwrap_or_default();
        let (keys, directory_bytes, version, sum) = (word(), word(), word(), word());
        if word() != u64::from_le_bytes(MAGIC) {
            return Err(Damage("a block that is not a key list"));
        }
        if version != u64::from(VERSION) {
            return Err(Damage("a key list of an unknown version"));
        }
        if xxh3_64(&bytes[..bytes.len() - 16]) != sum {
            return Err(Damage("the checksum of a key list does not match its bytes"));
        }
        let directory_bytes = usize::try_from(directory_bytes).ok().filter(|len| *len <= body.len());
        let (chunks, directory) = body.split_at(body.len() - directory_bytes.ok_or(BAD_DIRECTORY)?);
        let mut directory = Decoder::new(directory);
        let mut list = KeyListReader { chunks, directory, keys, first: &[], last: &[] };
        if !directory.is_empty() {
            list.last = directory.bytes().ok_or(BAD_DIRECTORY)?;
            list.directory = directory;
        }
        list.check_directory()?;
        Ok(list)
    }

    /// Checks that the chunks fill their part of the bytes and have as many keys as the trailer
    /// states. Sets the first key.
    fn check_directory(&mut self) -> Result<(), Damage> {
        let mut directory = self.directory;
        let (mut bytes, mut keys, mut before) = (0usize, 0u64, None);
        while !directory.is_empty() {
            let Chunk { len, keys: count, first } = chunk(&mut directory).ok_or(BAD_DIRECTORY)?;
            // Each further key takes at least two bytes.
            let others = count.checked_sub(1).ok_or(BAD_DIRECTORY)?;
            if others > (len / 2) as u64 || before.is_some_and(|before| before >= first) {
                return Err(BAD_DIRECTORY);
            }
            bytes = bytes.checked_add(len).ok_or(BAD_DIRECTORY)?;
            keys = keys.checked_add(count).ok_or(BAD_DIRECTORY)?;
            if before.is_none() {
                self.first = first;
            }
            before = Some(first);
        }
        let last_is_last = before.map_or(self.last.is_empty(), |first| first <= self.last);
        let longest = self.last.len().max(self.first.len());
        if bytes != self.chunks.len() || keys != self.keys || !last_is_last || longest > MAX_KEY_BYTES {
            return Err(BAD_DIRECTORY);
        }
        Ok(())
    }

    /// The number of keys.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> u64 {
        self.keys
    }

    /// The first and last keys; `None` for an empty list.
    #[inline]
    pub fn bounds(&self) -> Option<(&'b [u8], &'b [u8])> {
        (self.keys > 0).then_some((self.first, self.last))
    }

    /// Iterates over the keys from `start` to `end` (exclusive; unbounded if `None`). Cost: a pass
    /// over the directory, then half a chunk on average to reach the first key.
    pub fn range<'q>(&self, start: &'q [u8], end: Option<&'q [u8]>) -> KeyListCursor<'b, 'q> {
        let mut cursor = KeyListCursor {
            chunks: self.chunks,
            directory: self.directory,
            last: self.last,
            chunk: Decoder::new(&[]),
            left: 0,
            key: Vec::new(),
            entered: false,
            done: self.keys == 0 || self.last < start || end.is_some_and(|end| end <= start),
            start,
            end,
        };
        // A chunk holds nothing in the range if the next one starts at or before `start`.
        while !cursor.done {
            let (mut ahead, here) = (cursor.directory, cursor.directory);
            let skipped = chunk(&mut ahead);
            cursor.directory = ahead;
            match (skipped, chunk(&mut ahead)) {
                (Some(skipped), Some(next)) if next.first <= start => {
                    cursor.chunks = cursor.chunks.get(skipped.len..).unwrap_or_default();
                }
                _ => {
                    cursor.directory = here;
                    break;
                }
            }
        }
        cursor
    }
}

/// Iterates over the keys of a range. After an error it yields nothing more.
#[derive(Debug)]
pub struct KeyListCursor<'b, 'q> {
    /// What follows the current chunk: bytes, and directory entries.
    chunks: &'b [u8],
    directory: Decoder<'b>,
    /// The last key of the list.
    last: &'b [u8],
    chunk: Decoder<'b>,
    /// Keys left in the current chunk.
    left: u64,
    key: Vec<u8>,
    /// Whether `key` holds a key.
    entered: bool,
    done: bool,
    start: &'q [u8],
    end: Option<&'q [u8]>,
}

impl KeyListCursor<'_, '_> {
    /// Returns the next key, valid until the next call; `None` at the end of the range. Allocates
    /// only for a key longer than all before it.
    #[expect(clippy::should_implement_trait, reason = "it lends the key, and may fail")]
    pub fn next(&mut self) -> Result<Option<&[u8]>, Damage> {
        while !self.done {
            match self.step() {
                Ok(true) if self.key[..] < *self.start => {}
                Ok(true) => return Ok(Some(&self.key)),
                Ok(false) => self.done = true,
                Err(damage) => {
                    self.done = true;
                    return Err(damage);
                }
            }
        }
        Ok(None)
    }

    /// The last key decoded. After an error, exactly the keys of the range up to this one have been
    /// returned.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.entered.then_some(&self.key)
    }

    /// Decodes the next key into `key`; returns `false` past the end of the range. Changes `key`
    /// only on success.
    fn step(&mut self) -> Result<bool, Damage> {
        if self.left == 0 {
            return self.enter_chunk();
        }
        let head = usize::from(self.chunk.u8().ok_or(BAD_CHUNK)?);
        let (mut shared, mut more) = (head >> 4, head & LONG);
        for len in [&mut shared, &mut more].into_iter().filter(|len| **len == LONG) {
            let beyond = self.chunk.varint_usize().ok_or(BAD_CHUNK)?;
            *len = len.checked_add(beyond).filter(|len| *len <= MAX_KEY_BYTES).ok_or(BAD_CHUNK)?;
        }
        let rest = self.chunk.take(more + 1).ok_or(BAD_CHUNK)?;
        // Keys must ascend, and `shared` must be exactly their common prefix length.
        let ascends = match self.key.get(shared) {
            Some(byte) => rest[0] > *byte,
            None => shared == self.key.len(),
        };
        if !ascends || shared + rest.len() > MAX_KEY_BYTES {
            return Err(BAD_CHUNK);
        }
        if self.end.is_some_and(|end| is_from(end, &self.key[..shared], rest)) {
            return Ok(false);
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(rest);
        self.left -= 1;
        Ok(true)
    }

    fn enter_chunk(&mut self) -> Result<bool, Damage> {
        if !self.chunk.is_empty() {
            return Err(Damage("a key list with a chunk that has more bytes than keys"));
        }
        if self.directory.is_empty() {
            if self.entered && self.key[..] != *self.last {
                return Err(Damage("a key list whose last key is not the one its directory names"));
            }
            return Ok(false);
        }
        let Chunk { len, keys, first } = chunk(&mut self.directory).ok_or(BAD_DIRECTORY)?;
        let (chunk, rest) = self.chunks.split_at_checked(len).ok_or(BAD_DIRECTORY)?;
        if self.entered && self.key[..] >= *first || first.len() > MAX_KEY_BYTES {
            return Err(Damage("a key list whose chunks overlap"));
        }
        if self.end.is_some_and(|end| first >= end) {
            return Ok(false);
        }
        (self.chunk, self.chunks, self.left) = (Decoder::new(chunk), rest, keys - 1);
        self.key.clear();
        self.key.extend_from_slice(first);
        self.entered = true;
        Ok(true)
    }
}

/// Reports whether the concatenation of the two pieces is at or after `end`.
fn is_from(end: &[u8], head: &[u8], tail: &[u8]) -> bool {
    match end.split_at_checked(head.len()) {
        Some((start, rest)) => (head, tail) >= (start, rest),
        None => head >= end,
    }
}
