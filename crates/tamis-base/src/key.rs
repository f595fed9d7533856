//! Keys as the engine orders them: user key ascending, then sequence number descending.

use std::cmp::Ordering;
use std::sync::Arc;

use smallvec::SmallVec;

/// The longest key, in bytes (64 KiB).
pub const MAX_KEY_BYTES: usize = 64 << 10;

/// The longest value, in bytes (4 GiB minus one).
pub const MAX_VALUE_BYTES: usize = u32::MAX as usize;

/// A sequence number: the position of one operation in the total order of a database's writes. 56
/// bits; 0 means "older than anything a reader can still ask for".
pub type SeqNo = u64;

/// The largest sequence number (2^56 − 1), used in seeks to mean "the newest version".
pub const MAX_SEQNO: SeqNo = (1 << 56) - 1;

/// The kind of one version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The key is deleted.
    Delete = 0,
    /// The key has the value that follows.
    Put = 1,
    /// An operand follows: the keyspace's merge operator applies it to the result of the key's
    /// older versions.
    Merge = 2,
    /// The key has a value that lies in a blob file or a log; a reference to it follows.
    PutBlob = 3,
}

impl Kind {
    /// Returns the kind with this byte, if there is one.
    pub fn from_byte(byte: u8) -> Option<Kind> {
        match byte {
            0 => Some(Kind::Delete),
            1 => Some(Kind::Put),
            2 => Some(Kind::Merge),
            3 => Some(Kind::PutBlob),
            _ => None,
        }
    }
}

/// One version of a key as found in a block, a table or a memtable, with its value in the form it
/// has there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<V> {
    /// Its sequence number.
    pub seq: SeqNo,
    /// Its kind.
    pub kind: Kind,
    /// Its value; empty for a delete.
    pub value: V,
}

/// Orders two versions: by user key ascending, then by sequence number descending (newest first).
#[inline]
pub fn compare_versions(a_key: &[u8], a_seq: SeqNo, b_key: &[u8], b_seq: SeqNo) -> Ordering {
    a_key.cmp(b_key).then(b_seq.cmp(&a_seq))
}

/// Returns the first eight bytes of `key` as a big-endian number, padded with zeros: an
/// order-preserving digest of the key's start. `a < b` implies `prefix_of(a) <= prefix_of(b)`;
/// equal prefixes say nothing.
#[inline]
pub fn prefix_of(key: &[u8]) -> u64 {
    if let Some(head) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0u8; 8];
    head[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(head)
}

/// Returns the number of leading bytes that `a` and `b` share.
#[inline]
pub fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    let mut shared = 0;
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    for (x, y) in words {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if difference != 0 {
            return shared + difference.trailing_zeros() as usize / 8;
        }
        shared += 8;
    }
    shared + a[shared..].iter().zip(&b[shared..]).take_while(|(x, y)| x == y).count()
}

/// Returns the smallest key greater than every key that starts with `prefix`, or `None` if there is
/// none (the prefix is empty or consists of 0xFF bytes only).
#[inline]
pub fn prefix_successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&b| b != 0xFF)?;
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    Some(next)
}

/// A shared, immutable key.
pub type KeyBytes = Arc<[u8]>;

/// One delete of a key range, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeTombstone {
    /// The first key deleted.
    pub start: KeyBytes,
    /// The first key behind the range; `None` if it is unbounded.
    pub end: Option<KeyBytes>,
    /// The tombstone's sequence number: older versions are deleted.
    pub seq: SeqNo,
}

impl RangeTombstone {
    /// Reports whether the range ends behind `key`.
    #[inline]
    pub fn ends_behind(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_none_or(|end| **end > *key)
    }
}

/// A stretch of keys over which the newest range tombstone is the same, or over which there is
/// none. By default all keys, without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cover {
    /// The first key; `None`: from the smallest key.
    pub from: Option<KeyBytes>,
    /// The first key behind the stretch; `None`: it has no end.
    pub until: Option<KeyBytes>,
    /// The tombstone's number, or 0.
    pub seq: SeqNo,
}

impl Cover {
    /// Reports whether the stretch contains `key`.
    #[inline]
    pub fn holds(&self, key: &[u8]) -> bool {
        self.until.as_ref().is_none_or(|until| *key < **until)
            && self.from.as_ref().is_none_or(|from| **from <= *key)
    }

    fn cut(&mut self, from: Option<&KeyBytes>, until: Option<&KeyBytes>) {
        if let Some(from) = from.filter(|from| self.from.as_ref().is_none_or(|old| old < from)) {
            self.from = Some(from.clone());
        }
        if let Some(until) = until.filter(|until| self.until.as_ref().is_none_or(|old| *until < old)) {
            self.until = Some(until.clone());
        }
    }

    /// Cuts the stretch around a key to the part that is also in another, under the newer of the
    /// two tombstones.
    #[inline]
    pub fn meet(&mut self, other: &Cover) {
        self.cut(other.from.as_ref(), other.until.as_ref());
        self.seq = self.seq.max(other.seq);
    }

    /// Cuts the stretch around `key` to the part under `tombstone`, if that is over `key`, or to
    /// the part beside it. Returns whether it is over `key`.
    #[inline]
    pub fn narrow(&mut self, tombstone: &RangeTombstone, key: &[u8]) -> bool {
        let RangeTombstone { start, end, seq } = tombstone;
        if *key < **start {
            self.cut(None, Some(start));
            return false;
        }
        if !tombstone.ends_behind(key) {
            self.cut(end.as_ref(), None);
            return false;
        }
        self.cut(Some(start), end.as_ref());
        self.seq = self.seq.max(*seq);
        true
    }
}

/// A border between keys, built on demand; mostly short.
pub type BorderKey = SmallVec<[u8; 24]>;

/// The end of a key range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyEnd {
    /// The last key of the range.
    Included(KeyBytes),
    /// The first key after the range.
    Excluded(KeyBytes),
    /// The range has no end.
    Unbounded,
}

impl KeyEnd {
    /// Reports whether a range with this end, started early enough, holds keys at or after `key`.
    #[inline]
    pub fn reaches(&self, key: &[u8]) -> bool {
        match self {
            KeyEnd::Included(end) => key <= &end[..],
            KeyEnd::Excluded(end) => key < &end[..],
            KeyEnd::Unbounded => true,
        }
    }
}

impl Ord for KeyEnd {
    fn cmp(&self, other: &KeyEnd) -> Ordering {
        use KeyEnd::*;
        match (self, other) {
            (Unbounded, Unbounded) => Ordering::Equal,
            (Unbounded, _) => Ordering::Greater,
            (_, Unbounded) => Ordering::Less,
            (Included(a), Included(b)) | (Excluded(a), Excluded(b)) => a.cmp(b),
            (Included(a), Excluded(b)) => a.cmp(b).then(Ordering::Greater),
            (Excluded(a), Included(b)) => a.cmp(b).then(Ordering::Less),
        }
    }
}

impl PartialOrd for KeyEnd {
    fn partial_cmp(&self, other: &KeyEnd) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_keep_the_order_of_keys() {
        let keys: [&[u8]; 7] =
            [b"", b"\0", b"a", b"a\0", b"abcdefgh", b"abcdefghi", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"];
        for pair in keys.windows(2) {
            assert!(pair[0] < pair[1]);
            assert!(prefix_of(pair[0]) <= prefix_of(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn a_prefix_successor_is_the_first_key_after_the_prefix() {
        assert_eq!(prefix_successor(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_successor(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_successor(b"\xff\xff"), None);
        assert_eq!(prefix_successor(b""), None);
    }

    /// A kind added by a later format version must not be misread.
    #[test]
    fn every_kind_has_a_byte_and_no_other_byte_is_a_kind() {
        let known = (0..=u8::MAX).filter_map(|byte| Kind::from_byte(byte).map(|kind| (byte, kind as u8)));
        assert_eq!(known.collect::<Vec<_>>(), [(0, 0), (1, 1), (2, 2), (3, 3)]);
    }

    #[test]
    fn range_ends_are_ordered_by_the_keys_they_include() {
        let (x, y): (KeyBytes, KeyBytes) = (b"x"[..].into(), b"y"[..].into());
        let ordered = [
            KeyEnd::Excluded(x.clone()),
            KeyEnd::Included(x),
            KeyEnd::Excluded(y.clone()),
            KeyEnd::Included(y),
            KeyEnd::Unbounded,
        ];
        assert!(ordered.is_sorted());
        assert!(!ordered[0].reaches(b"x"));
        assert!(ordered[1].reaches(b"x"));
    }
}
