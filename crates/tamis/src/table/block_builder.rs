//! Writing data blocks. The layout is in `docs/table-format.md`.

use tamis_filter::Digest;

use super::block::{BLOCK_FOOTER_BYTES, MAX_HASHED_ENTRIES, fingerprint};
use super::frame::TRAILER_BYTES;
use crate::codec::Encode;
use crate::key::{Kind, SeqNo, common_prefix_len};

/// Collects the entries of one data block; reusable through [`reset`](BlockBuilder::reset).
///
/// Invariant: entries come in version order (key ascending, sequence number descending).
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    restart_shift: u8,
    hash_index: bool,
    values: Vec<u8>,
    /// Bytes of a value that the caller writes itself, beyond those in `values`.
    outside: usize,
    keys: Vec<u8>,
    /// The range of the current group's first key in `keys`.
    restart_key: (usize, usize),
    key_ends: Vec<u64>,
    value_ends: Vec<u64>,
    seqs: Vec<SeqNo>,
    kinds: Vec<Kind>,
    /// The number of entries that are not puts: a block without any stores no kinds.
    marked: usize,
    min_seq: SeqNo,
    max_seq: SeqNo,
    /// The last key added, uncompressed.
    last_key: Vec<u8>,
    /// One per entry, if there is to be a hash index.
    fingerprints: Vec<u8>,
}

/// The number of bytes for a number up to `max`: 2, 4 or 8.
fn end_width(max: u64) -> usize {
    match max {
        0..=0xFFFF => 2,
        0x1_0000..=0xFFFF_FFFF => 4,
        _ => 8,
    }
}

/// The number of bytes for a number up to `max`: 0 to 7 for any sequence number.
fn delta_width(max: u64) -> usize {
    (u64::BITS - max.leading_zeros()).div_ceil(8) as usize
}

fn put_fixed(out: &mut Vec<u8>, numbers: impl Iterator<Item = u64>, width: usize) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes()[..width]);
    }
}

impl BlockBuilder {
    /// Creates an empty block. `restart_interval` (entries per group of keys compressed against one) is rounded up to a power
    /// of two; `hash_index` adds a hash index if the block has few enough entries.
    pub(crate) fn new(restart_interval: usize, hash_index: bool) -> BlockBuilder {
        let interval = restart_interval.clamp(1, 1 << 16).next_power_of_two();
        BlockBuilder {
            restart_shift: interval.trailing_zeros() as u8,
            hash_index,
            values: Vec::new(),
            outside: 0,
            keys: Vec::new(),
            restart_key: (0, 0),
            key_ends: Vec::new(),
            value_ends: Vec::new(),
            seqs: Vec::new(),
            kinds: Vec::new(),
            marked: 0,
            min_seq: SeqNo::MAX,
            max_seq: 0,
            last_key: Vec::new(),
            fingerprints: Vec::new(),
        }
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.seqs.len()
    }

    /// Reports whether no entry was added since the last reset.
    pub(crate) fn is_empty(&self) -> bool {
        self.seqs.is_empty()
    }

    /// The last key added; empty before the first.
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Appends an entry. `digest` is the key's.
    pub(crate) fn add(&mut self, key: &[u8], digest: Digest, seq: SeqNo, kind: Kind, value: &[u8]) {
        self.values.extend_from_slice(value);
        self.add_with_value_outside(key, digest, seq, kind, 0);
    }

    /// Appends an entry whose value of `value_len` bytes the caller writes to the file itself, before the output of
    /// [`finish`](Self::finish); it must be the block's only entry.
    pub(crate) fn add_with_value_outside(
        &mut self,
        key: &[u8],
        digest: Digest,
        seq: SeqNo,
        kind: Kind,
        value_len: usize,
    ) {
        let i = self.len();
        self.outside += value_len;
        self.value_ends.push((self.values.len() + self.outside) as u64);
        if i & ((1 << self.restart_shift) - 1) == 0 {
            self.keys.push(0);
            self.restart_key = (self.keys.len(), key.len());
            self.keys.extend_from_slice(key);
        } else {
            let (start, len) = self.restart_key;
            let shared = common_prefix_len(&self.keys[start..start + len.min(255)], key);
            self.keys.push(shared as u8);
            self.keys.extend_from_slice(&key[shared..]);
        }
        self.key_ends.push(self.keys.len() as u64);
        if self.hash_index {
            self.fingerprints.push(fingerprint(digest));
        }
        self.seqs.push(seq);
        self.kinds.push(kind);
        self.marked += usize::from(kind != Kind::Put);
        self.min_seq = self.min_seq.min(seq);
        self.max_seq = self.max_seq.max(seq);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
    }

    /// Bytes of the finished block without its trailer, with `more` further entries of `key_len` and `value_len` bytes in total
    /// and sequence numbers between `min_seq` and `max_seq`.
    fn bytes_with(
        &self,
        more: usize,
        key_len: usize,
        value_len: usize,
        marked: usize,
        (min_seq, max_seq): (SeqNo, SeqNo),
    ) -> usize {
        let count = self.len() + more;
        let values = self.values.len() + self.outside + value_len;
        let keys = self.keys.len() + key_len + more;
        let per_entry = end_width(keys as u64)
            + end_width(values as u64)
            + delta_width(max_seq.saturating_sub(min_seq))
            + usize::from(self.marked + marked > 0)
            + usize::from(self.hash_index && count <= MAX_HASHED_ENTRIES);
        values + keys + count * per_entry + BLOCK_FOOTER_BYTES
    }

    /// Bytes of the finished block in its current state, uncompressed, without its trailer.
    pub(crate) fn estimated_bytes(&self) -> usize {
        self.bytes_with(0, 0, 0, 0, (self.min_seq, self.max_seq))
    }

    /// Reports whether the block with this entry added certainly stays within `limit` bytes, trailer included.
    pub(crate) fn fits(
        &self,
        key_len: usize,
        seq: SeqNo,
        kind: Kind,
        value_len: usize,
        limit: usize,
    ) -> bool {
        let seqs = (self.min_seq.min(seq), self.max_seq.max(seq));
        let marked = usize::from(kind != Kind::Put);
        self.bytes_with(1, key_len, value_len, marked, seqs) + TRAILER_BYTES <= limit
    }

    /// Appends the finished block, uncompressed and without trailer, to `out`. The block must not be empty.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        debug_assert!(!self.is_empty(), "a data block has an entry");
        let start = out.len();
        let expected = self.estimated_bytes() - self.outside;
        out.reserve(expected + TRAILER_BYTES);
        out.extend_from_slice(&self.values);
        out.extend_from_slice(&self.keys);
        let key_end_width = end_width(self.keys.len() as u64);
        let value_end_width = end_width((self.values.len() + self.outside) as u64);
        let seq_width = delta_width(self.max_seq - self.min_seq);
        let base = self.min_seq;
        put_fixed(out, self.key_ends.iter().copied(), key_end_width);
        put_fixed(out, self.value_ends.iter().copied(), value_end_width);
        put_fixed(out, self.seqs.iter().map(|seq| seq - base), seq_width);
        if self.marked > 0 {
            out.extend(self.kinds.iter().map(|&kind| kind as u8));
        }
        let hashed = self.hash_index && self.len() <= MAX_HASHED_ENTRIES;
        if hashed {
            out.extend_from_slice(&self.fingerprints);
        }
        out.put_u32(self.len() as u32);
        out.put_u32(self.keys.len() as u32);
        out.put_u64(base | (seq_width as u64) << 56);
        out.put_u16(u16::from(hashed));
        out.put_u8(self.restart_shift);
        out.put_u8(key_end_width as u8);
        out.put_u8(value_end_width as u8);
        out.put_u8(u8::from(self.marked > 0));
        out.put_u16(0);
        debug_assert_eq!(out.len() - start, expected, "the estimate is exact");
    }

    /// Removes all entries; memory is kept unless one huge entry inflated it.
    pub(crate) fn reset(&mut self) {
        const KEPT: usize = 1 << 20;
        self.values.clear();
        self.values.shrink_to(KEPT);
        self.outside = 0;
        self.keys.clear();
        self.key_ends.clear();
        self.value_ends.clear();
        self.seqs.clear();
        self.kinds.clear();
        self.marked = 0;
        self.min_seq = SeqNo::MAX;
        self.max_seq = 0;
        self.last_key.clear();
        self.fingerprints.clear();
    }
}
