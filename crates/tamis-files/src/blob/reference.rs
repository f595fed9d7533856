//! What a table stores in place of a large value.

use tamis_base::ids::{BlobFileId, LogId};
use tamis_base::key::MAX_VALUE_BYTES;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::codec::{Decoder, Encode};
use crate::table::Damage;
use crate::table::frame::TRAILER_BYTES;

/// The place of a value in a blob file: of a record, or of the value itself in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The file.
    pub file: BlobFileId,
    /// The offset of the record in the file.
    pub offset: u64,
    /// Bytes of the record, including its trailer; in a log, those of the value.
    pub span: u64,
    /// Bytes of the value.
    pub len: u64,
    /// The checksum in the record's trailer; in a log, that of the value, seeded with its offset.
    pub checksum: u64,
}

impl Reference {
    /// The fewest bytes that a reference can stand for.
    pub const MIN_SPAN: usize = TRAILER_BYTES;

    /// Returns the place of a value of at least [`MIN_SPAN`](Self::MIN_SPAN) bytes in a log. Cost: a
    /// checksum.
    pub fn in_log(log: LogId, offset: u64, value: &[u8]) -> Reference {
        let len = value.len() as u64;
        Reference { file: log, offset, span: len, len, checksum: xxh3_64_with_seed(value, offset) }
    }

    /// Returns the bytes that a table stores.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 * 10 + 8);
        for number in [self.file, self.offset, self.span, self.len] {
            out.put_varint(number);
        }
        out.put_u64(self.checksum);
        out
    }

    /// Decodes what a table stores.
    pub fn decode(bytes: &[u8]) -> Result<Reference, Damage> {
        const WRONG: Damage = Damage("a reference to a blob file that cannot be one");
        let mut input = Decoder::new(bytes);
        let mut number = || input.varint().ok_or(WRONG);
        let (file, offset, span, len) = (number()?, number()?, number()?, number()?);
        let checksum = input.u64().ok_or(WRONG)?;
        let possible =
            input.is_empty() && span >= Reference::MIN_SPAN as u64 && len <= MAX_VALUE_BYTES as u64;
        match possible {
            true => Ok(Reference { file, offset, span, len, checksum }),
            false => Err(WRONG),
        }
    }
}
