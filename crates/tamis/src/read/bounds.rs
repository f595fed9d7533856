//! The key range of an iterator.

use std::ops::{Bound, RangeBounds};

use tamis_base::key::prefix_successor;

/// The normalised key range of an iterator: from `start` (included) up to `end` (excluded; `None`:
/// no end).
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Option<Vec<u8>>,
}

impl Bounds {
    pub(crate) fn of<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> Bounds {
        let after = |key: &K| [key.as_ref(), &[0]].concat();
        Bounds {
            start: match range.start_bound() {
                Bound::Included(key) => key.as_ref().to_vec(),
                Bound::Excluded(key) => after(key),
                Bound::Unbounded => Vec::new(),
            },
            end: match range.end_bound() {
                Bound::Included(key) => Some(after(key)),
                Bound::Excluded(key) => Some(key.as_ref().to_vec()),
                Bound::Unbounded => None,
            },
        }
    }

    pub(crate) fn prefix(prefix: &[u8]) -> Bounds {
        Bounds { start: prefix.to_vec(), end: prefix_successor(prefix) }
    }
}
