//! The payloads of records of the write-ahead log: a header, and the operations of one or more
//! batches.
//!
//! `docs/formats/logs.md` specifies the bytes. An encoded range is never empty and its end is
//! exclusive or open; keys and values are within their limits. Nothing of that is trusted when it
//! is read.

use tamis_base::ids::KeyspaceId;
use tamis_base::key::{MAX_KEY_BYTES, MAX_SEQNO, MAX_VALUE_BYTES, SeqNo};

use super::DecodeError;
use crate::codec::{Decoder, Encode};

/// The first byte of an operation.
pub mod tag {
    /// A delete of a key.
    pub const DELETE: u8 = 0;
    /// A key and its value.
    pub const PUT: u8 = 1;
    /// A delete of a range.
    pub const DELETE_RANGE: u8 = 2;
    /// A delete of all keys from one on.
    pub const DELETE_FROM: u8 = 3;
    /// A key and an operand.
    pub const MERGE: u8 = 4;
    /// An ingestion. Set apart from the other tags: the ingested tables are in the manifest.
    pub const INGESTION: u8 = 16;
}

/// The end or start of a range may be one byte longer than a key: the first key after `k` is `k\0`.
const MAX_BOUND_BYTES: usize = MAX_KEY_BYTES + 1;

/// One operation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchOp<'a> {
    /// Sets a key to a value.
    Put {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// Applies an operand to a key's value.
    Merge {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The key.
        key: &'a [u8],
        /// The operand.
        operand: &'a [u8],
    },
    /// Deletes a key.
    Delete {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The key.
        key: &'a [u8],
    },
    /// Deletes all keys from `start` up to but not including `end`. Never empty.
    DeleteRange {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The first key of the range.
        start: &'a [u8],
        /// The first key after the range; `None` if it is unbounded.
        end: Option<&'a [u8]>,
    },
    /// Marks the sequence number of an ingestion. Either the tables are in the manifest or the
    /// ingestion failed: there is nothing to apply.
    Ingestion {
        /// The first keyspace that got a table.
        keyspace: KeyspaceId,
    },
}

impl BatchOp<'_> {
    /// Reports whether this is an ingestion, which only takes a sequence number.
    pub fn is_ingestion(&self) -> bool {
        matches!(self, BatchOp::Ingestion { .. })
    }

    /// The key, if the operation concerns a single one.
    pub fn key(&self) -> Option<&[u8]> {
        match self {
            BatchOp::Put { key, .. } | BatchOp::Merge { key, .. } | BatchOp::Delete { key, .. } => Some(key),
            BatchOp::DeleteRange { .. } | BatchOp::Ingestion { .. } => None,
        }
    }

    /// The keyspace written to.
    pub fn keyspace(&self) -> KeyspaceId {
        match *self {
            BatchOp::Put { keyspace, .. }
            | BatchOp::Merge { keyspace, .. }
            | BatchOp::Delete { keyspace, .. }
            | BatchOp::DeleteRange { keyspace, .. }
            | BatchOp::Ingestion { keyspace } => keyspace,
        }
    }
}

/// An iterator that decodes operations; it ends after the first error.
#[derive(Clone, Debug)]
pub struct Ops<'a> {
    rest: Decoder<'a>,
}

impl<'a> Ops<'a> {
    /// Decodes the operations in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Ops<'a> {
        Ops { rest: Decoder::new(bytes) }
    }

    fn decode(&mut self) -> Result<BatchOp<'a>, DecodeError> {
        const CUT: DecodeError = DecodeError("an operation is cut short");
        let tag = self.rest.u8().ok_or(CUT)?;
        let keyspace = self.rest.varint().ok_or(CUT)?;
        let keyspace = KeyspaceId::try_from(keyspace).map_err(|_| DecodeError("no such keyspace number"))?;
        let is_bound = matches!(tag, tag::DELETE_RANGE | tag::DELETE_FROM);
        let max = if is_bound { MAX_BOUND_BYTES } else { MAX_KEY_BYTES };
        let key = self.rest.bytes().ok_or(CUT)?;
        if key.len() > max {
            return Err(DecodeError("a key is too long"));
        }
        match tag {
            tag::DELETE => Ok(BatchOp::Delete { keyspace, key }),
            tag::PUT | tag::MERGE => {
                let value = self.rest.bytes().ok_or(CUT)?;
                match tag {
                    _ if value.len() > MAX_VALUE_BYTES => Err(DecodeError("a value is too long")),
                    tag::PUT => Ok(BatchOp::Put { keyspace, key, value }),
                    _ => Ok(BatchOp::Merge { keyspace, key, operand: value }),
                }
            }
            tag::DELETE_RANGE => {
                let end = self.rest.bytes().ok_or(CUT)?;
                match end.len() <= MAX_BOUND_BYTES && key < end {
                    true => Ok(BatchOp::DeleteRange { keyspace, start: key, end: Some(end) }),
                    false => Err(DecodeError("a range ends before it starts or has too long an end")),
                }
            }
            tag::DELETE_FROM => Ok(BatchOp::DeleteRange { keyspace, start: key, end: None }),
            tag::INGESTION if key.is_empty() => Ok(BatchOp::Ingestion { keyspace }),
            _ => Err(DecodeError("an operation of an unknown type")),
        }
    }
}

impl<'a> Iterator for Ops<'a> {
    type Item = Result<BatchOp<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let op = self.decode();
        if op.is_err() {
            self.rest = Decoder::new(&[]);
        }
        Some(op)
    }
}

impl std::iter::FusedIterator for Ops<'_> {}

/// The header of every write-ahead log record, before the operations of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// The first operation's sequence number; the others follow consecutively.
    pub first_seq: SeqNo,
    /// The number of operations that follow, at least one.
    pub count: u64,
    /// All earlier logs were synced when this record was written: if one of them is cut short, it
    /// is damaged.
    pub older_logs_synced: bool,
}

impl GroupHeader {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(u64::from(self.older_logs_synced));
        out.put_varint(self.first_seq);
        out.put_varint(self.count);
    }

    /// Decodes the header and returns it with the encoded operations after it.
    pub fn decode(payload: &[u8]) -> Result<(GroupHeader, &[u8]), DecodeError> {
        let mut rest = Decoder::new(payload);
        let mut number = || rest.varint().ok_or(DecodeError("a group whose header is cut short"));
        let (flags, first_seq, count) = (number()?, number()?, number()?);
        if flags > 1 {
            return Err(DecodeError("a group with unknown flags"));
        }
        // An operation takes at least two bytes.
        if count == 0 || count > rest.remaining() as u64 || first_seq == 0 || first_seq > MAX_SEQNO - count {
            return Err(DecodeError("a group with impossible numbers"));
        }
        let header = GroupHeader { first_seq, count, older_logs_synced: flags == 1 };
        let operations = rest.take(rest.remaining()).ok_or(DecodeError("a group without operations"))?;
        Ok((header, operations))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let mut bytes = vec![tag, 3];
        for part in parts {
            bytes.put_varint(part.len() as u64);
            bytes.extend_from_slice(part);
        }
        bytes
    }

    fn is_accepted(tag: u8, parts: &[&[u8]]) -> bool {
        let bytes = encoded(tag, parts);
        let all: Vec<_> = Ops::new(&bytes).collect();
        assert_eq!(all.len(), 1);
        all[0].is_ok()
    }

    /// Keys that are too long would not fit into a table.
    #[test]
    fn keys_and_bounds_are_as_long_as_they_may_be() {
        let long = |byte: u8, more: usize| vec![byte; MAX_KEY_BYTES + more];
        for more in 0..3 {
            let (key, end) = (long(b'a', more), long(b'b', more));
            assert_eq!(is_accepted(tag::PUT, &[&key, b"value"]), more == 0, "{more}");
            assert_eq!(is_accepted(tag::MERGE, &[&key, b"value"]), more == 0, "{more}");
            assert_eq!(is_accepted(tag::DELETE, &[&key]), more == 0, "{more}");
            // The first key after the longest one is one byte longer.
            assert_eq!(is_accepted(tag::DELETE_FROM, &[&key]), more <= 1, "{more}");
            assert_eq!(is_accepted(tag::DELETE_RANGE, &[&key, b"b"]), more <= 1, "{more}");
            assert_eq!(is_accepted(tag::DELETE_RANGE, &[b"a", &end]), more <= 1, "{more}");
        }
    }

    #[test]
    fn a_range_is_not_empty() {
        assert!(is_accepted(tag::DELETE_RANGE, &[b"a", b"a\0"]));
        assert!(!is_accepted(tag::DELETE_RANGE, &[b"a", b"a"]));
        assert!(!is_accepted(tag::DELETE_RANGE, &[b"b", b"a"]));
    }

    #[test]
    fn the_numbers_of_a_group_are_possible() {
        let is_accepted = |flags: u64, first_seq: u64, count: u64, operations: usize| {
            let mut bytes = Vec::new();
            [flags, first_seq, count].into_iter().for_each(|number| bytes.put_varint(number));
            let header_len = bytes.len();
            bytes.resize(header_len + operations, 0);
            let Ok((header, rest)) = GroupHeader::decode(&bytes) else { return false };
            let older_logs_synced = flags == 1;
            assert_eq!(header, GroupHeader { first_seq, count, older_logs_synced });
            assert_eq!(rest.len(), operations);
            true
        };
        for flags in 0..4 {
            assert_eq!(is_accepted(flags, 1, 1, 3), flags <= 1, "{flags}");
        }
        for count in 0..5 {
            assert_eq!(is_accepted(0, 1, count, 3), (1..=3).contains(&count), "{count}");
        }
        for count in [1, 2, 300] {
            let last = MAX_SEQNO - count;
            assert!(is_accepted(0, last, count, 300) && is_accepted(0, 1, count, 300));
            assert!(!is_accepted(0, last + 1, count, 300) && !is_accepted(0, 0, count, 300));
        }
    }
}
