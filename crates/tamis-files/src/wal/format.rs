//! Encodes log headers and record heads, as specified in `docs/formats/logs.md`.

use tamis_base::ids::LogId;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::codec::{Decoder, Encode};

/// The length of a log's header, in bytes. The first record starts here.
pub(crate) const HEADER_BYTES: u64 = 32;

/// The format version that this code writes, and the only one that it reads.
pub(super) const FORMAT_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"TAMISLOG";
const FLAG_REUSED: u8 = 1;

/// Reports whether a file's first bytes mark it as a log or a manifest.
pub fn is_marked(start: &[u8]) -> bool {
    start.starts_with(&MAGIC)
}

/// Reports whether these could be the first bytes of [such a file](is_marked), but are too few to
/// tell.
pub fn begins_mark(start: &[u8]) -> bool {
    start.len() < MAGIC.len() && MAGIC.starts_with(start)
}

/// The offset of a record's type byte: after the checksum and the head check.
pub(super) const TYPE_AT: usize = 12;

/// The shortest record: checksum, head check, type, two one-byte numbers.
pub(super) const MIN_RECORD_BYTES: u64 = TYPE_AT as u64 + 3;

/// The longest head, with both numbers ten bytes long.
pub(super) const MAX_HEAD_BYTES: usize = TYPE_AT + 1 + 10 + 10;

/// The kind of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LogKind {
    /// Groups of committed batches.
    Writes = 1,
    /// Edits of the tree's shape.
    Manifest = 2,
}

/// The content of a log's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHeader {
    /// The kind of the records.
    pub kind: LogKind,
    /// The log's id, which is also in its file name.
    pub id: LogId,
    /// True if the file was recycled, so bytes of its old content may follow the log's last record.
    pub reused: bool,
}

impl LogHeader {
    /// Decodes the header at the start of `bytes`; `None` if it is cut short, damaged, or of an
    /// unknown kind.
    pub(crate) fn decode(bytes: &[u8]) -> Option<LogHeader> {
        let raw = RawHeader::decode(bytes)?;
        let kind = [LogKind::Writes, LogKind::Manifest].into_iter().find(|kind| *kind as u8 == raw.kind)?;
        Some(LogHeader { kind, id: raw.id, reused: raw.reused })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES as usize);
        bytes.extend_from_slice(&MAGIC);
        bytes.put_u32(FORMAT_VERSION);
        bytes.put_u8(self.kind as u8);
        bytes.put_u8(if self.reused { FLAG_REUSED } else { 0 });
        bytes.put_u16(0);
        bytes.put_u64(self.id);
        bytes.put_u64(xxh3_64(&bytes));
        bytes
    }
}

/// A header with a valid checksum; its fields are not yet validated.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawHeader {
    pub(super) version: u32,
    pub(super) kind: u8,
    pub(super) reused: bool,
    pub(super) id: LogId,
}

impl RawHeader {
    /// Decodes the header at the start of `bytes`; `None` if it is cut short or damaged.
    pub(super) fn decode(bytes: &[u8]) -> Option<RawHeader> {
        let mut d = Decoder::new(bytes);
        let magic = d.take(MAGIC.len())?;
        let version = d.u32()?;
        let kind = d.u8()?;
        let flags = d.u8()?;
        d.u16()?;
        let id = d.u64()?;
        let checksum = d.u64()?;
        let intact = magic == MAGIC && checksum == xxh3_64(&bytes[..HEADER_BYTES as usize - 8]);
        intact.then_some(RawHeader { version, kind, reused: flags & FLAG_REUSED != 0, id })
    }
}

/// The type of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RecordType {
    /// A payload.
    Data = 1,
    /// The log ends here and is complete.
    Close = 2,
}

impl RecordType {
    pub(super) fn from_byte(byte: u8) -> Option<RecordType> {
        match byte {
            1 => Some(RecordType::Data),
            2 => Some(RecordType::Close),
            _ => None,
        }
    }
}

/// Returns the checksum seed of the record at `offset` of log `id`.
pub(super) fn seed(id: LogId, offset: u64) -> u64 {
    // A multiplication spreads the id, then a bijective finaliser mixes: the seeds of two places
    // differ unless their ids and offsets were chosen to collide.
    let mut x = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ offset;
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Returns the check over type, length and distance alone (`bytes` starts at the type byte). It
/// lets a search for records dismiss a false match without hashing a payload of the claimed length.
fn head_check(seed: u64, bytes: &[u8]) -> u32 {
    xxh3_64_with_seed(bytes, !seed) as u32
}

/// The head of a record: everything but checksum and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHead {
    pub(super) kind: RecordType,
    pub(super) payload_len: u64,
    /// The log was durable up to here when the record was written.
    pub(super) synced: u64,
    /// The number of bytes from the record's start to its payload.
    pub(super) head_len: usize,
}

impl RecordHead {
    /// Replaces the content of `buf` by the head of a record at `offset`, with zeros for the
    /// checksum.
    pub(super) fn encode(
        buf: &mut Vec<u8>,
        id: LogId,
        offset: u64,
        kind: RecordType,
        payload_len: u64,
        synced: u64,
    ) {
        buf.clear();
        buf.extend_from_slice(&[0; TYPE_AT]);
        buf.put_u8(kind as u8);
        buf.put_varint(payload_len);
        buf.put_varint(offset - synced);
        let check = head_check(seed(id, offset), &buf[TYPE_AT..]);
        buf[8..TYPE_AT].copy_from_slice(&check.to_le_bytes());
    }

    /// Parses the head at the start of `bytes`, which were read at `offset` of a log of `file_len`
    /// bytes. Returns `None` if the head is damaged or its record would not fit.
    pub(super) fn parse(bytes: &[u8], id: LogId, offset: u64, file_len: u64) -> Option<RecordHead> {
        let mut d = Decoder::new(bytes);
        d.u64()?;
        let check = d.u32()?;
        let kind = RecordType::from_byte(d.u8()?)?;
        let payload_len = d.varint()?;
        let synced = offset.checked_sub(d.varint()?)?;
        let head_len = bytes.len() - d.remaining();
        if file_len.checked_sub(offset)?.checked_sub(head_len as u64)? < payload_len {
            return None;
        }
        let intact = check == head_check(seed(id, offset), &bytes[TYPE_AT..head_len]);
        intact.then_some(RecordHead { kind, payload_len, synced, head_len })
    }

    /// Returns the offset just past the record, if it starts at `offset`.
    pub(super) fn end(&self, offset: u64) -> u64 {
        offset + self.head_len as u64 + self.payload_len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_and_any_flipped_bit_is_detected() {
        let header = LogHeader { kind: LogKind::Manifest, id: 77, reused: true };
        let bytes = header.encode();
        assert_eq!(bytes.len() as u64, HEADER_BYTES);
        let raw = RawHeader::decode(&bytes).unwrap();
        assert_eq!((raw.version, raw.kind, raw.reused, raw.id), (FORMAT_VERSION, 2, true, 77));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(RawHeader::decode(&bad).is_none(), "bit {bit}");
        }
        assert!(RawHeader::decode(&bytes[..31]).is_none());
    }

    #[test]
    fn a_head_belongs_to_one_log_and_one_offset() {
        let mut buf = Vec::new();
        RecordHead::encode(&mut buf, 5, 1000, RecordType::Data, 3, 900);
        let len = buf.len();
        buf.extend_from_slice(b"abc");
        let head = RecordHead::parse(&buf, 5, 1000, 2000).unwrap();
        assert_eq!((head.payload_len, head.synced, head.head_len), (3, 900, len));
        assert_eq!(head.end(1000), 1000 + buf.len() as u64);
        assert!(RecordHead::parse(&buf, 6, 1000, 2000).is_none(), "another log");
        assert!(RecordHead::parse(&buf, 5, 1001, 2000).is_none(), "another offset");
        assert!(RecordHead::parse(&buf, 5, 1000, head.end(1000) - 1).is_none(), "beyond the file");
    }

    #[test]
    fn the_longest_and_the_shortest_head_have_the_stated_lengths() {
        let mut buf = Vec::new();
        RecordHead::encode(&mut buf, 1, u64::MAX, RecordType::Data, u64::MAX, 0);
        assert_eq!(buf.len(), MAX_HEAD_BYTES);
        RecordHead::encode(&mut buf, 1, 32, RecordType::Close, 0, 32);
        assert_eq!(buf.len() as u64, MIN_RECORD_BYTES);
    }

    /// Other versions read these bytes.
    #[test]
    fn headers_and_heads_have_the_specified_bytes() {
        for (kind, reused) in [(LogKind::Writes, false), (LogKind::Manifest, true)] {
            let bytes = LogHeader { kind, id: 0x0102, reused }.encode();
            let fields = [1, 0, 0, 0, kind as u8, u8::from(reused), 0, 0, 2, 1, 0, 0, 0, 0, 0, 0];
            assert_eq!(bytes[..24], [&b"TAMISLOG"[..], &fields].concat());
            assert_eq!(bytes[24..], xxh3_64(&bytes[..24]).to_le_bytes());
        }
        let mut head = b"what was there before".to_vec();
        RecordHead::encode(&mut head, 5, 1000, RecordType::Data, 300, 900);
        assert_eq!(head[..8], [0; 8], "the checksum comes later");
        assert_eq!(head[8..12], head_check(seed(5, 1000), &head[12..]).to_le_bytes());
        assert_eq!(head[12..], [1, 0xAC, 2, 100]);
    }

    #[test]
    fn a_mark_begins_with_every_shorter_part_of_it() {
        for len in 0..=MAGIC.len() + 1 {
            let start = &b"TAMISLOG\x01"[..len];
            assert_eq!((is_marked(start), begins_mark(start)), (len >= 8, len < 8), "{len} bytes");
        }
        for other in [&b"X"[..], b"TAMISLOX", b"TAMISLX", b"another file"] {
            assert!(!is_marked(other) && !begins_mark(other), "{other:?}");
        }
    }
}
