//! Reads data blocks. `docs/formats/tables.md` describes the layout.
//!
//! The structures that a search needs sit together at the block's end, so a point lookup touches
//! the cache lines of the tail, one key and one value. Fixed-width arrays locate every entry in
//! constant time.
//!
//! # Invariants
//!
//! [`BlockShape::parse`] checks in constant time that all arrays lie within the block. The arrays'
//! contents are checked on use. Any input yields an answer or [`Damage`], never a panic.

use std::cmp::Ordering;

use tamis_base::key::{Kind, SeqNo};
use tamis_filter::Digest;

use super::compare::{compare, equal};
use super::frame::Damage;

/// Bytes of the fixed-size footer of a block.
pub(crate) const BLOCK_FOOTER_BYTES: usize = 24;

/// The most entries that a block with a hash index may have. Eight fingerprints are compared at a
/// time; beyond this many entries a binary search over keys is faster.
pub(crate) const MAX_HASHED_ENTRIES: usize = 512;

/// Returns the fingerprint of a key in a block's hash index: one byte of the digest, mixed once
/// more. Filters use the digest's own bits, so the fingerprint stays independent among keys that
/// pass a filter.
#[inline]
pub(crate) fn fingerprint(digest: Digest) -> u8 {
    (digest.get().wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 56) as u8
}

/// The result of looking up a key at a snapshot in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InBlock {
    /// The newest version visible at the snapshot is the entry with this number.
    Here(usize),
    /// The key has no such version, in this block or a later one.
    Absent,
    /// All versions of the key in this block are too new, and the next block may hold older ones.
    PerhapsNext,
}

/// What a block's hash index answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashAnswer {
    /// The block has no hash index, or no digest was passed.
    #[default]
    NotAsked,
    /// The first matching fingerprint was the key's.
    Hit,
    /// It ruled out the key.
    Absent,
    /// The first matching fingerprint was another key's.
    Collision,
}

/// The layout of a block, as plain numbers, so that a cursor can keep it beside the block's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockShape {
    count: usize,
    /// Start of the keys, which is the length of the values (and any padding).
    keys: usize,
    key_ends: usize,
    value_ends: usize,
    seqs: usize,
    kinds: usize,
    fingerprints: usize,
    has_fingerprints: bool,
    base_seq: SeqNo,
    key_end_width: u8,
    value_end_width: u8,
    seq_width: u8,
    has_kinds: bool,
    restart_shift: u8,
}

impl BlockShape {
    /// The number of entries, at least one.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Reads and checks the footer of the uncompressed block `data`. Takes constant time and
    /// touches the last cache line.
    #[inline]
    pub(crate) fn parse(data: &[u8]) -> Result<BlockShape, Damage> {
        let Some((body, f)) = data.split_last_chunk::<BLOCK_FOOTER_BYTES>() else {
            return Err(Damage("a data block shorter than its footer"));
        };
        let u32_at = |i: usize| u32::from_le_bytes([f[i], f[i + 1], f[i + 2], f[i + 3]]);
        let count = u64::from(u32_at(0));
        let keys_len = u64::from(u32_at(4));
        let base = u64::from(u32_at(8)) | u64::from(u32_at(12)) << 32;
        let hash_index = u16::from_le_bytes([f[16], f[17]]);
        let (restart_shift, key_end_width, value_end_width, has_kinds) = (f[18], f[19], f[20], f[21]);
        let seq_width = (base >> 56) as u8;
        let widths_known = matches!(key_end_width, 2 | 4 | 8) && matches!(value_end_width, 2 | 4 | 8);
        if count == 0 || !widths_known || seq_width > 7 || has_kinds > 1 || restart_shift > 31 {
            return Err(Damage("a data block with an impossible footer"));
        }
        if hash_index > 1 {
            return Err(Damage("a data block with an unknown kind of hash index"));
        }
        // At most 2^32 entries of at most 25 bytes, so nothing overflows.
        let arrays =
            count * u64::from(key_end_width + value_end_width + seq_width + has_kinds + hash_index as u8);
        let Some(keys) = (body.len() as u64).checked_sub(arrays + keys_len) else {
            return Err(Damage("a data block shorter than its arrays"));
        };
        // Every sum below is at most `body.len()`.
        let count = count as usize;
        let keys = keys as usize;
        let key_ends = keys + keys_len as usize;
        let value_ends = key_ends + count * usize::from(key_end_width);
        let seqs = value_ends + count * usize::from(value_end_width);
        let kinds = seqs + count * usize::from(seq_width);
        let fingerprints = kinds + count * usize::from(has_kinds);
        Ok(BlockShape {
            count,
            keys,
            key_ends,
            value_ends,
            seqs,
            kinds,
            fingerprints,
            has_fingerprints: hash_index == 1,
            base_seq: base & ((1 << 56) - 1),
            key_end_width,
            value_end_width,
            seq_width,
            has_kinds: has_kinds == 1,
            restart_shift,
        })
    }
}

/// An uncompressed data block whose footer has been checked.
#[derive(Clone, Copy, Debug)]
pub struct BlockView<'a> {
    data: &'a [u8],
    shape: BlockShape,
}

/// A byte range within a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte within the block.
    pub(crate) start: usize,
    /// Bytes.
    pub len: usize,
}

/// Loads a number of `width` bytes (0 to 8) at `at`. The footer after every array guarantees that
/// the eight-byte load fits.
#[inline]
fn load(data: &[u8], at: usize, width: u8) -> Result<u64, Damage> {
    match data.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        Some(bytes) if width < 8 => Ok(u64::from_le_bytes(*bytes) & ((1 << (8 * width)) - 1)),
        Some(bytes) => Ok(u64::from_le_bytes(*bytes)),
        None => Err(Damage("a data block that ends within an array")),
    }
}

/// Compares a key in two pieces with `key`.
#[inline]
fn compare_parts((head, tail): (&[u8], &[u8]), key: &[u8]) -> Ordering {
    match key.split_at_checked(head.len()) {
        Some((key_head, key_tail)) => compare(head, key_head).then_with(|| compare(tail, key_tail)),
        None => compare(head, key),
    }
}

impl<'a> BlockView<'a> {
    /// Views `data`, checking its footer. Constant time.
    #[inline]
    pub fn parse(data: &'a [u8]) -> Result<BlockView<'a>, Damage> {
        BlockShape::parse(data).map(|shape| BlockView { data, shape })
    }

    /// Views `data` with the shape returned by parsing the same bytes.
    #[inline]
    pub(crate) fn with_shape(data: &'a [u8], shape: BlockShape) -> BlockView<'a> {
        BlockView { data, shape }
    }

    /// The number of entries, at least one.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.shape.count
    }

    /// Reports whether the block has a hash index.
    pub(crate) fn has_hash_index(&self) -> bool {
        self.shape.has_fingerprints
    }

    /// Finds the first entry from `from` on whose fingerprint is `wanted`, comparing eight at a
    /// time.
    #[inline]
    fn next_with_fingerprint(&self, mut from: usize, wanted: u8) -> Result<Option<usize>, Damage> {
        const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;
        let pattern = u64::from_ne_bytes([wanted; 8]);
        while from < self.shape.count {
            let difference = load(self.data, self.shape.fingerprints + from, 8)? ^ pattern;
            // The high bit of every byte that is zero in `difference`, exactly.
            let equal = !(((difference & LOW) + LOW) | difference | LOW);
            if equal != 0 {
                let found = from + equal.trailing_zeros() as usize / 8;
                return Ok((found < self.shape.count).then_some(found));
            }
            from += 8;
        }
        Ok(None)
    }

    /// The fingerprint stored for entry `i`. There must be a hash index.
    pub(crate) fn fingerprint(&self, i: usize) -> Result<u8, Damage> {
        let byte = self.data[self.shape.fingerprints..].get(..self.shape.count).and_then(|all| all.get(i));
        byte.copied().ok_or(Damage("an entry number beyond a data block's end"))
    }

    /// Returns the stored key record of entry `i` (shared-length byte and suffix) as a range of
    /// `data`. It is never empty.
    #[inline]
    pub fn key_record(&self, i: usize) -> Result<Span, Damage> {
        let s = &self.shape;
        if i >= s.count {
            return Err(Damage("an entry number beyond a data block's end"));
        }
        let width = usize::from(s.key_end_width);
        let start = match i {
            0 => 0,
            _ => load(self.data, s.key_ends + (i - 1) * width, s.key_end_width)?,
        };
        let end = load(self.data, s.key_ends + i * width, s.key_end_width)?;
        if start >= end || end > (s.key_ends - s.keys) as u64 {
            return Err(Damage("a data block with a key outside its keys"));
        }
        Ok(Span { start: s.keys + start as usize, len: (end - start) as usize })
    }

    /// Returns the range of the key with this record if the key is contiguous. Otherwise assembles
    /// the key in `out` and returns `None`. `group` is the record of its group's first key. The
    /// first `held` bytes of `out` are already that first key's and are not copied again.
    #[inline]
    pub fn key_of(
        &self,
        record: Span,
        group: Span,
        out: &mut Vec<u8>,
        held: &mut usize,
    ) -> Result<Option<Span>, Damage> {
        let bytes = &self.data[record.start..record.start + record.len];
        let shared = usize::from(bytes[0]);
        if shared == 0 {
            return Ok(Some(Span { start: record.start + 1, len: record.len - 1 }));
        }
        if shared > *held {
            let first = &self.data[group.start..group.start + group.len];
            let Some(head) = first[1..].get(..shared).filter(|_| first[0] == 0) else {
                return Err(Damage(
                    "a data block with a key that shares more than its group's first key has",
                ));
            };
            out.clear();
            out.extend_from_slice(head);
        }
        out.truncate(shared);
        out.extend_from_slice(&bytes[1..]);
        *held = shared;
        Ok(None)
    }

    /// Returns the key record and value of entry `i` (not the first) as ranges of `data`, given
    /// where those of the preceding entry end.
    #[inline]
    pub(crate) fn following(
        &self,
        i: usize,
        key_start: usize,
        value_start: usize,
    ) -> Result<(Span, Span), Damage> {
        let s = &self.shape;
        if i >= s.count {
            return Err(Damage("an entry number beyond a data block's end"));
        }
        let end = load(self.data, s.key_ends + i * usize::from(s.key_end_width), s.key_end_width)?;
        if end > (s.key_ends - s.keys) as u64 || s.keys + end as usize <= key_start {
            return Err(Damage("a data block with a key outside its keys"));
        }
        let key = Span { start: key_start, len: s.keys + end as usize - key_start };
        let end = load(self.data, s.value_ends + i * usize::from(s.value_end_width), s.value_end_width)?;
        if end > s.keys as u64 || (end as usize) < value_start {
            return Err(Damage("a data block with a value outside its values"));
        }
        Ok((key, Span { start: value_start, len: end as usize - value_start }))
    }

    /// Returns the key record and value of entry `i` (not the last) as ranges of `data`, given
    /// where those of the following entry start.
    #[inline]
    pub(crate) fn preceding(
        &self,
        i: usize,
        key_end: usize,
        value_end: usize,
    ) -> Result<(Span, Span), Damage> {
        let s = &self.shape;
        let (mut key_start, mut value_start) = (s.keys, 0);
        if let Some(before) = i.checked_sub(1) {
            let (key_ends, value_ends) = (usize::from(s.key_end_width), usize::from(s.value_end_width));
            let start = load(self.data, s.key_ends + before * key_ends, s.key_end_width)?;
            // The following entry was checked to end within the keys.
            key_start = start.checked_add(s.keys as u64).map_or(usize::MAX, |start| start as usize);
            value_start = load(self.data, s.value_ends + before * value_ends, s.value_end_width)? as usize;
        }
        if key_start >= key_end || value_start > value_end {
            return Err(Damage("a data block with an entry that ends before it starts"));
        }
        let key = Span { start: key_start, len: key_end - key_start };
        Ok((key, Span { start: value_start, len: value_end - value_start }))
    }

    /// Reports whether the entry before entry `i` (with this key record) is known to have another
    /// key. Also `false` if the two belong to different groups or share prefixes of different
    /// lengths with their group's first key.
    #[inline]
    pub(crate) fn differs_from_preceding(&self, i: usize, record: Span) -> bool {
        let s = &self.shape;
        if i == 0 || self.begins_group(i) {
            return false;
        }
        let width = usize::from(s.key_end_width);
        let start = match i.checked_sub(2) {
            None => Ok(0),
            Some(before) => load(self.data, s.key_ends + before * width, s.key_end_width),
        };
        let start = start.ok().and_then(|start| s.keys.checked_add(start as usize));
        let preceding = start.and_then(|start| self.data.get(start..record.start));
        let this = &self.data[record.start..record.start + record.len];
        // After a shared prefix of the same length, the suffixes decide.
        preceding.is_some_and(|preceding| preceding.first() == this.first() && preceding != this)
    }

    /// Reports whether entry `i` is the first of its group.
    #[inline]
    pub(crate) fn begins_group(&self, i: usize) -> bool {
        i & ((1usize << self.shape.restart_shift) - 1) == 0
    }

    /// Returns the key record of the first entry of entry `i`'s group.
    #[inline]
    pub fn group_record(&self, i: usize) -> Result<Span, Damage> {
        self.key_record(i >> self.shape.restart_shift << self.shape.restart_shift)
    }

    /// Returns the key of entry `i` in two pieces: the prefix shared with its group's first key and
    /// the rest.
    #[inline]
    pub(crate) fn key_parts(&self, i: usize) -> Result<(&'a [u8], &'a [u8]), Damage> {
        self.parts_of(self.key_record(i)?, || self.group_record(i))
    }

    /// Returns the two pieces of the key with this record; `group` returns that of its group's
    /// first key.
    #[inline]
    fn parts_of(
        &self,
        record: Span,
        group: impl FnOnce() -> Result<Span, Damage>,
    ) -> Result<(&'a [u8], &'a [u8]), Damage> {
        let bytes = &self.data[record.start..record.start + record.len];
        let shared = usize::from(bytes[0]);
        if shared == 0 {
            return Ok((&[], &bytes[1..]));
        }
        let first = group()?;
        let whole = &self.data[first.start..first.start + first.len];
        match whole[1..].get(..shared) {
            Some(head) if whole[0] == 0 => Ok((head, &bytes[1..])),
            _ => Err(Damage("a data block with a key that shares more than its group's first key has")),
        }
    }

    /// Replaces `out` with the key of entry `i`.
    #[inline]
    pub fn copy_key(&self, i: usize, out: &mut Vec<u8>) -> Result<(), Damage> {
        let (head, tail) = self.key_parts(i)?;
        out.clear();
        out.extend_from_slice(head);
        out.extend_from_slice(tail);
        Ok(())
    }

    /// Compares the key of entry `i` with `key` without assembling it.
    #[inline]
    pub fn compare_key(&self, i: usize, key: &[u8]) -> Result<Ordering, Damage> {
        self.key_parts(i).map(|parts| compare_parts(parts, key))
    }

    /// Reports whether the key of entry `i` is `key`.
    #[inline]
    pub fn key_equals(&self, i: usize, key: &[u8]) -> Result<bool, Damage> {
        let (head, tail) = self.key_parts(i)?;
        Ok(key.split_at_checked(head.len()).is_some_and(|(h, t)| equal(h, head) && equal(t, tail)))
    }

    /// The sequence number of entry `i`.
    #[inline]
    pub fn seq(&self, i: usize) -> Result<SeqNo, Damage> {
        let s = &self.shape;
        let delta = load(self.data, s.seqs + i * usize::from(s.seq_width), s.seq_width)?;
        Ok(s.base_seq + delta)
    }

    /// The kind of entry `i`.
    #[inline]
    pub fn kind(&self, i: usize) -> Result<Kind, Damage> {
        if !self.shape.has_kinds {
            return Ok(Kind::Put);
        }
        let byte = self.data.get(self.shape.kinds + i).copied();
        byte.and_then(Kind::from_byte).ok_or(Damage("a data block with an entry of no known kind"))
    }

    /// The range of the value of entry `i`.
    #[inline]
    pub(crate) fn value_span(&self, i: usize) -> Result<Span, Damage> {
        let s = &self.shape;
        let width = usize::from(s.value_end_width);
        let start = match i {
            0 => 0,
            _ => load(self.data, s.value_ends + (i - 1) * width, s.value_end_width)?,
        };
        let end = load(self.data, s.value_ends + i * width, s.value_end_width)?;
        if start > end || end > s.keys as u64 {
            return Err(Damage("a data block with a value outside its values"));
        }
        Ok(Span { start: start as usize, len: (end - start) as usize })
    }

    /// The value of entry `i`.
    #[inline]
    pub fn value(&self, i: usize) -> Result<&'a [u8], Damage> {
        let span = self.value_span(i)?;
        Ok(&self.data[span.start..span.start + span.len])
    }

    /// The first entry from `from` on that is at or after (`key`, `seq`) in version order, or
    /// [`len`](Self::len).
    fn lower_bound_from(&self, from: usize, key: &[u8], seq: SeqNo) -> Result<usize, Damage> {
        let (mut low, mut high) = (from, self.len());
        // The first record of the group that was compared last.
        let mut group = (usize::MAX, Span { start: 0, len: 0 });
        while low < high {
            let middle = low + (high - low) / 2;
            let first = middle >> self.shape.restart_shift << self.shape.restart_shift;
            if first != group.0 {
                group = (first, self.key_record(first)?);
            }
            let parts = self.parts_of(self.key_record(middle)?, || Ok(group.1))?;
            let before = match compare_parts(parts, key) {
                Ordering::Less => true,
                Ordering::Equal => self.seq(middle)? > seq,
                Ordering::Greater => false,
            };
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The first entry at or after (`key`, `seq`) in version order, or [`len`](Self::len) if there
    /// is none.
    #[inline]
    pub fn lower_bound(&self, key: &[u8], seq: SeqNo) -> Result<usize, Damage> {
        self.lower_bound_from(0, key, seq)
    }

    /// Finds the newest version of `key` with a sequence number of at most `snapshot`, and reports
    /// how the hash index answered. The block must be the first that may hold `key`, or one that an
    /// earlier block's [`InBlock::PerhapsNext`] led to. With a hash index and a digest this reads a
    /// few words of fingerprints. In all but a few percent of lookups it then takes one key
    /// comparison if the key is here, none if it is not.
    #[inline]
    pub fn find(
        &self,
        key: &[u8],
        digest: Option<Digest>,
        snapshot: SeqNo,
    ) -> Result<(InBlock, HashAnswer), Damage> {
        let mut from = 0;
        let mut answer = HashAnswer::NotAsked;
        if let Some(digest) = digest
            && self.shape.has_fingerprints
        {
            let wanted = fingerprint(digest);
            answer = HashAnswer::Hit;
            loop {
                // The first entry of a key is its newest version.
                match self.next_with_fingerprint(from, wanted)? {
                    None if answer == HashAnswer::Hit => return Ok((InBlock::Absent, HashAnswer::Absent)),
                    None => return Ok((InBlock::Absent, answer)),
                    Some(i) if !self.key_equals(i, key)? => {
                        answer = HashAnswer::Collision;
                        from = i + 1;
                    }
                    Some(i) if self.seq(i)? <= snapshot => return Ok((InBlock::Here(i), answer)),
                    Some(i) => {
                        from = i + 1;
                        break;
                    }
                }
            }
        }
        let index = self.lower_bound_from(from, key, snapshot)?;
        let lookup = if index < self.len() {
            if self.key_equals(index, key)? { InBlock::Here(index) } else { InBlock::Absent }
        } else if self.key_equals(index - 1, key)? {
            InBlock::PerhapsNext
        } else {
            InBlock::Absent
        };
        Ok((lookup, answer))
    }
}
