//! Where a table comes from: what a manifest says of it and the table's contents do not. It is written into the table's
//! properties for the day on which the manifest is lost ([`salvage`](crate::db)); nothing else reads it.

use super::frame::Damage;
use crate::codec::{Decoder, Encode};
use crate::key::SeqNo;

const CUT: Damage = Damage("an origin that ends within a field");

/// Where a table comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The number of the keyspace that it was written for. `None` in tables of before and in external ones.
    pub(crate) keyspace: Option<u32>,
    /// What the keyspace is called.
    pub(crate) keyspace_name: String,
    /// When the oldest and the newest of its data was flushed, in seconds since 1970; 0: not known.
    pub(crate) written: (u64, u64),
    /// Every write to the keyspace up to this one is in this table, or was in tables before it; 0: not known.
    pub(crate) flushed: SeqNo,
    /// What it was merged from; `None` for a flush.
    pub(crate) merged: Option<Merged>,
}

/// What a table was merged from: all that its inputs held of a stretch of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Merged {
    /// The number that the next file would have had when the merge began: inputs have smaller ones, outputs none below it.
    /// Of two merges of one table the one with the larger mark came later.
    pub(crate) mark: u64,
    /// The first key of the stretch.
    pub(crate) from: Vec<u8>,
    /// The first key behind it; `None` if it has no end.
    pub(crate) to: Option<Vec<u8>>,
    /// Which flushes the inputs' entries in it come from; opaque here. Unlike the table's own record of that it goes from end to
    /// end of the stretch, also where the merge left nothing.
    pub(crate) epochs: Vec<u8>,
    /// All tables of the merge, ascending, whether they had keys of the stretch or not.
    pub(crate) inputs: Vec<u64>,
    /// Those that the inputs were made from, over any number of merges, and whose files were still there, ascending.
    pub(crate) before: Vec<u64>,
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
            _ => return Err(Damage("an origin whose stretch ends in an unknown way")),
        };
        let epochs = input.bytes().ok_or(CUT)?.to_vec();
        let merged = Merged { mark, from, to, epochs, inputs: ids(&mut input)?, before: ids(&mut input)? };
        if !input.is_empty() {
            return Err(Damage("an origin with something behind it"));
        }
        Ok(merged)
    }
}

/// A number of bytes, and in these each number as its difference from the one before.
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
    fn what_a_table_was_merged_from_round_trips() {
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
    fn hostile_origins_are_refused() {
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
