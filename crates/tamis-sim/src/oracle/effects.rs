//! What operations write, and which keys an observation covers.

use std::collections::{BTreeMap, BTreeSet};

use crate::oracle::lives::Life;
use crate::plan::Change;

/// A key by its keyspace and its bytes.
pub type Place = (Life, Vec<u8>);

/// An observation: the value of every key in the observed range.
pub type Seen = BTreeMap<Place, Vec<u8>>;

/// Returns the bytes of a client's key.
pub fn key(client: usize, key: u8) -> Vec<u8> {
    format!("{}/{key:03}", char::from(b'a' + client as u8)).into_bytes()
}

/// A change with the bytes that it writes.
#[derive(Clone, Debug)]
pub enum Effect {
    /// This value.
    Put(Place, Vec<u8>),
    /// The previous value with this appended.
    Append(Place, Vec<u8>),
    /// No value.
    Delete(Place),
}

/// Returns the effects of a change of the keyspace `life` by operation `number` of a client.
pub fn effects(client: usize, number: usize, change: &Change, life: Life) -> Vec<Effect> {
    match change {
        Change::Put { key: k, len, .. } => {
            vec![Effect::Put((life, key(client, *k)), value(client, number, usize::from(*len)))]
        }
        Change::Merge { key: k, .. } => {
            vec![Effect::Append((life, key(client, *k)), value(client, number, 0))]
        }
        Change::Delete { key: k, .. } => vec![Effect::Delete((life, key(client, *k)))],
        Change::DeleteRange { from, to, .. } => {
            (*from..*to).map(|k| Effect::Delete((life, key(client, k)))).collect()
        }
    }
}

/// Returns a value that only this operation writes.
pub fn value(client: usize, number: usize, len: usize) -> Vec<u8> {
    let mut value = format!("<{client}.{number}>").into_bytes();
    while value.len() < len {
        value.push(b'a' + (value.len() * 7 + number) as u8 % 26);
    }
    value
}

/// The observed keyspaces.
#[derive(Clone, Debug)]
pub enum Spaces {
    /// The two that are never dropped.
    Fixed,
    /// One.
    One(Life),
    /// These.
    These(BTreeSet<Life>),
}

/// The observed keys.
#[derive(Clone, Debug)]
pub struct Within {
    /// The keyspaces.
    pub spaces: Spaces,
    /// The client; all if `None`.
    pub client: Option<usize>,
    /// The key; all if `None`.
    pub key: Option<u8>,
}

impl Within {
    /// All keys of the two keyspaces that are never dropped.
    pub const FIXED: Within = Within { spaces: Spaces::Fixed, client: None, key: None };

    pub(super) fn holds(&self, place: &Place) -> bool {
        let in_spaces = match &self.spaces {
            Spaces::Fixed => place.0 < Life::FIXED,
            Spaces::One(life) => place.0 == *life,
            Spaces::These(lives) => lives.contains(&place.0),
        };
        in_spaces
            && match (self.client, self.key) {
                (Some(client), Some(k)) => place.1 == key(client, k),
                (Some(client), None) => place.1.starts_with(&key(client, 0)[..2]),
                (None, _) => true,
            }
    }
}
