//! Builds data blocks. `docs/formats/tables.md` describes the layout.

use tamis_base::key::{Kind, SeqNo, common_prefix_len};
use tamis_env::memory::PageVec;
use tamis_filter::Digest;

use super::block::{BLOCK_FOOTER_BYTES, MAX_HASHED_ENTRIES, fingerprint};
use super::frame::TRAILER_BYTES;
use crate::codec::Encode;

/// Collects the entries of one data block; reusable through [`reset`](BlockBuilder::reset). A block
/// begins with its values, so these go straight to the output. [`finish`](BlockBuilder::finish)
/// appends the rest.
///
/// Invariants: entries come in version order (key ascending, sequence number descending). Nobody
/// else appends to the output between the first entry and [`finish`](BlockBuilder::finish).
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    restart_shift: u8,
    hash_index: bool,
    /// Bytes of the block's values in the output.
    inside: usize,
    /// Bytes of a value that the caller writes itself.
    outside: usize,
    keys: Vec<u8>,
    /// The range of the current group's first key in `keys`.
    restart_key: (usize, usize),
    rows: Vec<Row>,
    /// The number of entries that are not puts; a block of puts alone stores no kinds.
    marked: usize,
    min_seq: SeqNo,
    max_seq: SeqNo,
}

/// An entry's values for the block's arrays.
#[derive(Clone, Copy, Debug)]
struct Row {
    key_end: u64,
    value_end: u64,
    seq: SeqNo,
    kind: Kind,
    fingerprint: u8,
}

/// Returns the bytes per number for numbers up to `max`: 2, 4 or 8.
fn end_width(max: u64) -> usize {
    match max {
        0..=0xFFFF => 2,
        0x1_0000..=0xFFFF_FFFF => 4,
        _ => 8,
    }
}

/// Returns the bytes per number for numbers up to `max`; 0 to 7 for any sequence number.
fn delta_width(max: u64) -> usize {
    (u64::BITS - max.leading_zeros()).div_ceil(8) as usize
}

/// Appends one number per row in `width` bytes, which every number must fit.
fn put_column(out: &mut PageVec<u8>, rows: &[Row], width: usize, number: impl Fn(&Row) -> u64) {
    let mut at = out.len();
    // Stores one whole word per number, each over the trailing zeros of the one before, so every
    // store has a fixed size.
    out.resize(at + rows.len() * width + 8, 0);
    for row in rows {
        out[at..at + 8].copy_from_slice(&number(row).to_le_bytes());
        at += width;
    }
    out.truncate(at);
}

impl BlockBuilder {
    /// Creates an empty block. `restart_interval` (entries per group of keys compressed against the
    /// group's first) is rounded up to a power of two. `hash_index` adds a hash index if the block
    /// has few enough entries.
    pub(crate) fn new(restart_interval: usize, hash_index: bool) -> BlockBuilder {
        let interval = restart_interval.clamp(1, 1 << 16).next_power_of_two();
        BlockBuilder {
            restart_shift: interval.trailing_zeros() as u8,
            hash_index,
            inside: 0,
            outside: 0,
            keys: Vec::new(),
            restart_key: (0, 0),
            rows: Vec::new(),
            marked: 0,
            min_seq: SeqNo::MAX,
            max_seq: 0,
        }
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Reports whether no entry was added since the last reset.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes at the end of the output that belong to the block under construction.
    #[inline]
    pub(crate) fn inside(&self) -> usize {
        self.inside
    }

    /// The last key added; empty before the first.
    pub(crate) fn last_key(&self) -> Vec<u8> {
        let start = match &self.rows[..] {
            [] => return Vec::new(),
            [_] => 0,
            [.., before, _] => before.key_end as usize,
        };
        let (shared, (first, _)) = (usize::from(self.keys[start]), self.restart_key);
        [&self.keys[first..first + shared], &self.keys[start + 1..]].concat()
    }

    /// Adds an entry and appends its value to `out`. `digest` is the key's.
    #[inline]
    pub(crate) fn add(
        &mut self,
        key: &[u8],
        digest: Digest,
        seq: SeqNo,
        kind: Kind,
        value: &[u8],
        out: &mut PageVec<u8>,
    ) {
        out.extend_from_slice(value);
        self.inside += value.len();
        self.add_with_value_outside(key, digest, seq, kind, 0);
    }

    /// Adds the block's only entry. The caller itself writes the value, of `value_len` bytes, to
    /// the file before the output of [`finish`](Self::finish).
    #[inline]
    pub(crate) fn add_with_value_outside(
        &mut self,
        key: &[u8],
        digest: Digest,
        seq: SeqNo,
        kind: Kind,
        value_len: usize,
    ) {
        self.outside += value_len;
        if self.len() & ((1 << self.restart_shift) - 1) == 0 {
            self.keys.push(0);
            self.restart_key = (self.keys.len(), key.len());
            self.keys.extend_from_slice(key);
        } else {
            let (start, len) = self.restart_key;
            let shared = common_prefix_len(&self.keys[start..start + len.min(255)], key);
            self.keys.push(shared as u8);
            self.keys.extend_from_slice(&key[shared..]);
        }
        self.rows.push(Row {
            key_end: self.keys.len() as u64,
            value_end: (self.inside + self.outside) as u64,
            seq,
            kind,
            fingerprint: fingerprint(digest),
        });
        self.marked += usize::from(kind != Kind::Put);
        self.min_seq = self.min_seq.min(seq);
        self.max_seq = self.max_seq.max(seq);
    }

    /// Returns the bytes of the finished block without its trailer, with `more` further entries of
    /// `key_len` and `value_len` bytes in total, `marked` of them not puts, and all sequence
    /// numbers between `min_seq` and `max_seq`.
    fn bytes_with(
        &self,
        more: usize,
        key_len: usize,
        value_len: usize,
        marked: usize,
        (min_seq, max_seq): (SeqNo, SeqNo),
    ) -> usize {
        let count = self.len() + more;
        let values = self.inside + self.outside + value_len;
        let keys = self.keys.len() + key_len + more;
        let per_entry = end_width(keys as u64)
            + end_width(values as u64)
            + delta_width(max_seq.saturating_sub(min_seq))
            + usize::from(self.marked + marked > 0)
            + usize::from(self.hash_index && count <= MAX_HASHED_ENTRIES);
        values + keys + count * per_entry + BLOCK_FOOTER_BYTES
    }

    /// Returns an upper bound on the bytes of the finished block with one more entry of `key_len`
    /// and `value_len` bytes, including the trailer. Cheaper than the exact number.
    #[inline]
    fn bound_with(&self, key_len: usize, value_len: usize, end_width: usize) -> usize {
        // Two ends, a sequence number of up to 7 bytes, a kind, a fingerprint, and the key's
        // shared-length byte.
        let per_entry = 2 * end_width + 10;
        let content = self.inside + self.outside + value_len + self.keys.len() + key_len;
        content + (self.len() + 1) * per_entry + BLOCK_FOOTER_BYTES + TRAILER_BYTES
    }

    /// Returns a cheap upper bound on the [estimated bytes](Self::estimated_bytes).
    #[inline]
    pub(crate) fn bound(&self) -> usize {
        self.bound_with(0, 0, 8)
    }

    /// Returns the bytes of the block if it were finished now, uncompressed, without its trailer.
    pub(crate) fn estimated_bytes(&self) -> usize {
        self.bytes_with(0, 0, 0, 0, (self.min_seq, self.max_seq))
    }

    /// Reports whether the block, with this entry added, stays within `limit` bytes uncompressed,
    /// including the trailer.
    #[inline]
    pub(crate) fn fits(
        &self,
        key_len: usize,
        seq: SeqNo,
        kind: Kind,
        value_len: usize,
        limit: usize,
    ) -> bool {
        // Ends below 64 KiB take two bytes each. Only a block's last few entries need the exact
        // number.
        if self.bound_with(key_len, value_len, 2) <= limit.min(0xFFFF) {
            return true;
        }
        let seqs = (self.min_seq.min(seq), self.max_seq.max(seq));
        let marked = usize::from(kind != Kind::Put);
        self.bytes_with(1, key_len, value_len, marked, seqs) + TRAILER_BYTES <= limit
    }

    /// Appends the rest of the block, uncompressed and without trailer, to `out`, which ends with
    /// the block's values. The block must not be empty.
    pub(crate) fn finish(&mut self, out: &mut PageVec<u8>) {
        debug_assert!(!self.is_empty(), "a data block has an entry");
        let start = out.len() - self.inside;
        let expected = self.estimated_bytes() - self.outside;
        out.reserve(expected - self.inside + TRAILER_BYTES + 8);
        out.extend_from_slice(&self.keys);
        let key_end_width = end_width(self.keys.len() as u64);
        let value_end_width = end_width((self.inside + self.outside) as u64);
        let seq_width = delta_width(self.max_seq - self.min_seq);
        let base = self.min_seq;
        put_column(out, &self.rows, key_end_width, |row| row.key_end);
        put_column(out, &self.rows, value_end_width, |row| row.value_end);
        if seq_width > 0 {
            put_column(out, &self.rows, seq_width, |row| row.seq - base);
        }
        if self.marked > 0 {
            out.extend(self.rows.iter().map(|row| row.kind as u8));
        }
        let hashed = self.hash_index && self.len() <= MAX_HASHED_ENTRIES;
        if hashed {
            out.extend(self.rows.iter().map(|row| row.fingerprint));
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

    /// Removes all entries and keeps the memory.
    pub(crate) fn reset(&mut self) {
        (self.inside, self.outside) = (0, 0);
        self.keys.clear();
        self.rows.clear();
        self.marked = 0;
        self.min_seq = SeqNo::MAX;
        self.max_seq = 0;
    }
}
