//! The properties recorded in a table.
//!
//! They are a record of tagged fields: varint tag, varint length, that many bytes. A reader skips
//! unknown tags, so later versions may add fields. A missing field has its default.

use tamis_base::ids::BlobFileId;
use tamis_base::key::SeqNo;

use super::frame::Damage;
use super::origin::{Merged, Origin};
use crate::codec::{Decoder, Encode};

/// The name of the digest function.
pub(crate) const DIGEST_FUNCTION: &str = "xxh3-64";

/// The tag of [`Properties::external`].
const EXTERNAL: u64 = 20;

/// The tags of [`Properties::origin`].
const KEYSPACE: u64 = 21;
const KEYSPACE_NAME: u64 = 22;
const WRITTEN: u64 = 23;
const FLUSHED: u64 = 24;
const MERGED: u64 = 25;

/// The tag of [`Properties::blobs`].
const BLOBS: u64 = 26;

/// Facts about one table. Counts and bounds cover only point entries (puts and deletes), unless the
/// field says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Key versions, deletes included.
    pub entries: u64,
    /// The number of deletes among the entries.
    pub deletes: u64,
    /// The number of range tombstones, as counted by the caller.
    pub range_tombstones: u64,
    /// Bytes of all user keys.
    pub raw_key_bytes: u64,
    /// Bytes of all values.
    pub raw_value_bytes: u64,
    /// The number of data blocks.
    pub data_blocks: u64,
    /// The smallest key; empty in a table without entries.
    pub smallest: Vec<u8>,
    /// The largest key; empty in a table without entries.
    pub largest: Vec<u8>,
    /// The smallest sequence number; 0 in a table without entries.
    pub min_seq: SeqNo,
    /// The largest sequence number; 0 in a table without entries.
    pub max_seq: SeqNo,
    /// The tree's record of the flushes that the entries come from; opaque here.
    pub epochs: Vec<u8>,
    /// The function that computed the digests in hash indexes and filters.
    pub digest_function: String,
    /// The kind of the filter, as named by the caller; empty without a filter.
    pub filter_kind: String,
    /// The library and version that wrote the table.
    pub created_by: String,
    /// The version of the rules for tables built outside a database (`docs/formats/tables.md`); 0 in
    /// a database's own tables.
    pub external: u64,
    /// The table's origin.
    pub origin: Origin,
    /// The blob files that entries refer to, by ascending number, each with the bytes of the
    /// referenced records.
    pub blobs: Vec<(BlobFileId, u64)>,
}

impl Properties {
    /// Appends the record to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let numbers = [
            (1, self.entries),
            (2, self.deletes),
            (3, self.range_tombstones),
            (4, self.raw_key_bytes),
            (5, self.raw_value_bytes),
            (6, self.data_blocks),
            (9, self.min_seq),
            (10, self.max_seq),
            (EXTERNAL, self.external),
        ];
        let mut number_bytes = Vec::new();
        // A database's own tables omit this field.
        for (tag, number) in numbers.into_iter().filter(|&(tag, number)| tag != EXTERNAL || number > 0) {
            number_bytes.clear();
            number_bytes.put_varint(number);
            out.put_varint(tag);
            out.put_bytes(&number_bytes);
        }
        for (tag, bytes) in [
            (7, &self.smallest[..]),
            (8, &self.largest),
            (11, &self.epochs),
            (12, self.digest_function.as_bytes()),
            (13, self.filter_kind.as_bytes()),
            (14, self.created_by.as_bytes()),
        ] {
            out.put_varint(tag);
            out.put_bytes(bytes);
        }
        let origin = &self.origin;
        let mut put = |tag: u64, numbers: &[u64]| {
            number_bytes.clear();
            numbers.iter().for_each(|&number| number_bytes.put_varint(number));
            out.put_varint(tag);
            out.put_bytes(&number_bytes);
        };
        if let Some(keyspace) = origin.keyspace {
            put(KEYSPACE, &[keyspace.into()]);
        }
        if origin.written != (0, 0) {
            put(WRITTEN, &[origin.written.0, origin.written.1]);
        }
        if origin.flushed > 0 {
            put(FLUSHED, &[origin.flushed]);
        }
        if !self.blobs.is_empty() {
            put(BLOBS, &self.blobs.iter().flat_map(|&(file, bytes)| [file, bytes]).collect::<Vec<_>>());
        }
        if !origin.keyspace_name.is_empty() {
            out.put_varint(KEYSPACE_NAME);
            out.put_bytes(origin.keyspace_name.as_bytes());
        }
        if let Some(merged) = &origin.merged {
            out.put_varint(MERGED);
            out.put_bytes(&merged.encode());
        }
    }

    /// Decodes a record.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Properties, Damage> {
        const CUT: Damage = Damage("properties that end within a field");
        let mut properties = Properties::default();
        let mut input = Decoder::new(bytes);
        while !input.is_empty() {
            let tag = input.varint().ok_or(CUT)?;
            let field = input.bytes().ok_or(CUT)?;
            let p = &mut properties;
            match tag {
                1 => p.entries = number(field)?,
                2 => p.deletes = number(field)?,
                3 => p.range_tombstones = number(field)?,
                4 => p.raw_key_bytes = number(field)?,
                5 => p.raw_value_bytes = number(field)?,
                6 => p.data_blocks = number(field)?,
                7 => p.smallest = field.to_vec(),
                8 => p.largest = field.to_vec(),
                9 => p.min_seq = number(field)?,
                10 => p.max_seq = number(field)?,
                11 => p.epochs = field.to_vec(),
                12 => p.digest_function = digest_function(field)?,
                13 => p.filter_kind = text(field)?,
                14 => p.created_by = text(field)?,
                EXTERNAL => p.external = number(field)?,
                KEYSPACE => {
                    let id = u32::try_from(number(field)?);
                    p.origin.keyspace = Some(id.map_err(|_| Damage("a keyspace number out of range"))?);
                }
                KEYSPACE_NAME => p.origin.keyspace_name = text(field)?,
                WRITTEN => p.origin.written = pair(field)?,
                FLUSHED => p.origin.flushed = number(field)?,
                BLOBS => p.blobs = blobs(field)?,
                MERGED => p.origin.merged = Some(Merged::decode(field)?),
                _ => {}
            }
        }
        Ok(properties)
    }
}

fn blobs(field: &[u8]) -> Result<Vec<(BlobFileId, u64)>, Damage> {
    const WRONG: Damage = Damage("properties with a list of blob files that is none");
    let (mut input, mut blobs) = (Decoder::new(field), Vec::<(BlobFileId, u64)>::new());
    while !input.is_empty() {
        let blob = (input.varint().ok_or(WRONG)?, input.varint().ok_or(WRONG)?);
        if blobs.last().is_some_and(|last| last.0 >= blob.0) {
            return Err(WRONG);
        }
        blobs.push(blob);
    }
    Ok(blobs)
}

fn number(field: &[u8]) -> Result<u64, Damage> {
    let mut input = Decoder::new(field);
    input.varint().filter(|_| input.is_empty()).ok_or(Damage("a property that is not a number"))
}

fn pair(field: &[u8]) -> Result<(u64, u64), Damage> {
    let mut input = Decoder::new(field);
    let pair = input.varint().zip(input.varint()).filter(|(oldest, newest)| oldest <= newest);
    pair.filter(|_| input.is_empty()).ok_or(Damage("a property that is not a pair of times"))
}

/// With the digests of another function, filters and hash indexes would miss keys that are there.
fn digest_function(field: &[u8]) -> Result<String, Damage> {
    let name = text(field)?;
    if name == DIGEST_FUNCTION { Ok(name) } else { Err(Damage("a table with digests of another function")) }
}

fn text(field: &[u8]) -> Result<String, Damage> {
    String::from_utf8(field.to_vec()).map_err(|_| Damage("a property that is not text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Properties {
        Properties {
            entries: 3,
            deletes: 1,
            raw_key_bytes: u64::MAX,
            smallest: b"a".to_vec(),
            largest: vec![0xFF; 300],
            max_seq: 77,
            external: 1,
            epochs: vec![1, 2, 3],
            digest_function: DIGEST_FUNCTION.into(),
            blobs: vec![(4, 1000), (9, 1 << 40)],
            origin: Origin {
                keyspace: Some(0),
                keyspace_name: "default".into(),
                written: (5, 7),
                flushed: 70,
                merged: Some(Merged {
                    mark: 9,
                    from: b"a".to_vec(),
                    to: None,
                    epochs: vec![4],
                    inputs: vec![3, 8],
                    before: vec![1],
                }),
            },
            ..Properties::default()
        }
    }

    #[test]
    fn properties_round_trip_and_unknown_fields_are_skipped() {
        let mut bytes = Vec::new();
        sample().encode(&mut bytes);
        assert_eq!(Properties::decode(&bytes), Ok(sample()));
        bytes.put_varint(999);
        bytes.put_bytes(b"from the future");
        assert_eq!(Properties::decode(&bytes), Ok(sample()));
    }

    #[test]
    fn truncated_or_malformed_fields_are_rejected() {
        let mut bytes = Vec::new();
        sample().encode(&mut bytes);
        assert!(Properties::decode(&bytes[..bytes.len() - 1]).is_err());
        let mut bad = Vec::new();
        bad.put_varint(1);
        bad.put_bytes(&[1, 1]);
        assert!(Properties::decode(&bad).is_err());
    }

    /// Regression: the name was read and never compared. A table with the digests of another
    /// function would have opened, and its filter would have rejected keys that are there.
    #[test]
    fn a_table_with_digests_of_another_function_is_refused() {
        let mut bytes = Vec::new();
        Properties { digest_function: "xxh3-128".into(), ..sample() }.encode(&mut bytes);
        assert_eq!(Properties::decode(&bytes), Err(Damage("a table with digests of another function")));
    }
}
