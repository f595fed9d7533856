//! The origin of a table: facts that the manifest records and the table's entries do not. It is
//! written to the table's properties in case the manifest is lost; only salvage reads it.

use tamis_base::key::SeqNo;

use super::frame::Damage;
use crate::codec::{Decoder, Encode};

const CUT: Damage = Damage("an origin that ends within a field");

/// The origin of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The number of the keyspace that the table was written for. `None` in external tables and
    /// those of older versions.
    pub keyspace: Option<u32>,
    /// The keyspace's name.
    pub keyspace_name: String,
    /// When its oldest and its newest data was flushed, in seconds since 1970; 0: unknown.
    pub written: (u64, u64),
    /// Every write to the keyspace up to this one is in this table or was in earlier tables; 0:
    /// unknown.
    pub flushed: SeqNo,
    /// The inputs of the merge; `None` for a flush.
    pub merged: Option<Merged>,
}

/// The inputs of a merge, which took all their data in a key range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// The next file number when the merge began: inputs have smaller numbers, outputs do not. Of
    /// two merges of one table, the one with the larger mark is later.
    pub mark: u64,
    /// The first key of the range.
    pub from: Vec<u8>,
    /// The exclusive end of the range; `None` if unbounded.
    pub to: Option<Vec<u8>>,
    /// The flushes that the inputs' entries in the range come from; opaque here. Unlike the table's
    /// own record, this covers the whole range, even where the merge left nothing.
    pub epochs: Vec<u8>,
    /// All input tables of the merge, ascending, whether or not they had keys in the range.
    pub inputs: Vec<u64>,
    /// The tables that the inputs were made from, over any number of merges, if their files still
    /// existed; ascending.
    pub before: Vec<u64>,
}

impl Merged {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_varint(self.mark);
        out.put_bytes(&self.from);
        out.put_u8(u8::from(self.to.is_some()));
        if let Some(to) = &self.to {
            out.put_bytes(to);
        }
        out.put_bytes(&self.epochs);
        put_ids(&mut out, &self.inputs);
        put_ids(&mut out, &self.before);
        out
    }

    pub(super) fn decode(field: &[u8]) -> Result<Merged, Damage> {
        let mut input = Decoder::new(field);
        let mark = input.varint().ok_or(CUT)?;
        let from = input.bytes().ok_or(CUT)?.to_vec();
        let to = match input.u8().ok_or(CUT)? {
            0 => None,
            1 => Some(input.bytes().ok_or(CUT)?.to_vec()),
            _ => return Err(Damage("an origin whose key range has an unknown kind of end")),
        };
        let epochs = input.bytes().ok_or(CUT)?.to_vec();
        let merged = Merged { mark, from, to, epochs, inputs: ids(&mut input)?, before: ids(&mut input)? };
        if !input.is_empty() {
            return Err(Damage("an origin with trailing bytes"));
        }
        Ok(merged)
    }
}

/// Appends the length in bytes, then each number as the difference from the previous one.
fn put_ids(out: &mut Vec<u8>, ids: &[u64]) {
    let (mut bytes, mut last) = (Vec::new(), 0);
    for &id in ids {
        bytes.put_varint(id - last);
        last = id;
    }
    out.put_bytes(&bytes);
}

fn ids(input: &mut Decoder<'_>) -> Result<Vec<u64>, Damage> {
    let mut list = Decoder::new(input.bytes().ok_or(CUT)?);
    let (mut ids, mut last) = (Vec::new(), 0u64);
    while !list.is_empty() {
        let next = last.checked_add(list.varint().ok_or(CUT)?);
        let next = next.filter(|next| *next > last || ids.is_empty());
        last = next.ok_or(Damage("an origin whose tables do not ascend"))?;
        ids.push(last);
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inputs_of_a_merge_round_trip() {
        for merged in [
            Merged {
                mark: 9,
                from: vec![],
                to: None,
                epochs: vec![7; 3],
                inputs: vec![0, 1, 8],
                before: vec![2],
            },
            Merged { mark: 1 << 40, from: b"a".to_vec(), to: Some(b"b".to_vec()), ..Merged::default() },
        ] {
            assert_eq!(Merged::decode(&merged.encode()), Ok(merged));
        }
    }

    #[test]
    fn hostile_origins_are_rejected() {
        let to = Some(b"b".to_vec());
        let whole =
            Merged { mark: 9, from: b"a".to_vec(), to, inputs: vec![7], ..Merged::default() }.encode();
        for cut in 0..whole.len() {
            assert!(Merged::decode(&whole[..cut]).is_err(), "cut at {cut}");
        }
        assert!(Merged::decode(&[&whole[..], &[0]].concat()).is_err(), "something behind it");
        let list = |numbers: &[u64]| {
            let mut bytes = Vec::new();
            numbers.iter().for_each(|&n| bytes.put_varint(n));
            let mut field = Vec::new();
            field.put_bytes(&bytes);
            ids(&mut Decoder::new(&field))
        };
        assert_eq!(list(&[0, 1, 7]), Ok(vec![0, 1, 8]));
        assert!(list(&[7, 0]).is_err(), "the same table twice");
        assert!(list(&[7, u64::MAX]).is_err(), "beyond all numbers");
    }
}
