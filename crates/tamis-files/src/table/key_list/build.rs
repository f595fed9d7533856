//! Builds a key list.

use xxhash_rust::xxh3::xxh3_64;

use super::{LONG, MAGIC, TRAILER_BYTES, VERSION};
use crate::codec::Encode;

/// A chunk ends after this many keys, …
const CHUNK_KEYS: u64 = 4096;

/// … or with the key that brings it to this many bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Builds a key list from ascending keys. Memory: the list and two keys.
#[derive(Debug, Default)]
pub struct KeyListBuilder {
    chunks: Vec<u8>,
    /// Entries of the complete chunks.
    directory: Vec<u8>,
    /// The open chunk: its start in `chunks`, its number of keys, and its first key.
    chunk_start: usize,
    chunk_keys: u64,
    chunk_first: Vec<u8>,
    last: Vec<u8>,
    keys: u64,
}

impl KeyListBuilder {
    /// Creates an empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `key`, which must not be less than the last one; an equal key is ignored. Returns
    /// whether it was added. Cost: one comparison with the last key, and the bytes written.
    pub fn add(&mut self, key: &[u8]) -> bool {
        let shared = key.iter().zip(&self.last).take_while(|(a, b)| a == b).count();
        if self.keys > 0 && shared == key.len() && shared == self.last.len() {
            return false;
        }
        debug_assert!(self.keys == 0 || self.last[..] < *key, "keys of a list ascend");
        if self.chunk_keys == CHUNK_KEYS || self.chunks.len() - self.chunk_start >= CHUNK_BYTES {
            self.end_chunk();
        }
        if self.chunk_keys == 0 {
            self.chunk_first.clear();
            self.chunk_first.extend_from_slice(key);
        } else {
            let rest = &key[shared..];
            // A greater key has at least one byte that the previous key does not share.
            let more = rest.len().saturating_sub(1);
            self.chunks.put_u8((shared.min(LONG) << 4 | more.min(LONG)) as u8);
            for long in [shared, more].into_iter().filter(|len| *len >= LONG) {
                self.chunks.put_varint((long - LONG) as u64);
            }
            self.chunks.extend_from_slice(rest);
        }
        self.last.truncate(shared);
        self.last.extend_from_slice(&key[shared..]);
        self.chunk_keys += 1;
        self.keys += 1;
        true
    }

    fn end_chunk(&mut self) {
        if self.chunk_keys > 0 {
            self.directory.put_varint((self.chunks.len() - self.chunk_start) as u64);
            self.directory.put_varint(self.chunk_keys);
            self.directory.put_bytes(&self.chunk_first);
        }
        (self.chunk_start, self.chunk_keys) = (self.chunks.len(), 0);
    }

    /// Returns the encoded list. Even an empty list has a trailer.
    pub fn finish(mut self) -> Vec<u8> {
        self.end_chunk();
        let mut out = self.chunks;
        let directory_at = out.len();
        out.reserve_exact(self.directory.len() + self.last.len() + 10 + TRAILER_BYTES);
        if self.keys > 0 {
            out.put_bytes(&self.last);
            out.extend_from_slice(&self.directory);
        }
        let directory_bytes = out.len() - directory_at;
        out.put_u64(self.keys);
        out.put_u64(directory_bytes as u64);
        out.put_u32(VERSION);
        out.put_u32(0);
        let sum = xxh3_64(&out);
        out.put_u64(sum);
        out.extend_from_slice(&MAGIC);
        out
    }
}
