//! The model: how a database of maps would answer.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

pub(crate) type Key = Arc<[u8]>;
pub(crate) type Value = Arc<[u8]>;

/// One keyspace at one moment. Cloning it is a snapshot and costs nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents(Arc<BTreeMap<Key, Value>>);

impl Contents {
    pub(crate) fn put(&mut self, key: &[u8], value: Value) {
        Arc::make_mut(&mut self.0).insert(key.into(), value);
    }

    /// Applies the operator of this name to the key's value and the operand.
    pub(crate) fn merge(&mut self, operator: &str, key: &[u8], operand: &[u8]) {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let value = match (operator, self.get(key)) {
            ("add", base) => {
                let sum = base.map_or(0, number).wrapping_add(number(operand));
                sum.to_le_bytes().to_vec()
            }
            ("append", base) => [base.unwrap_or_default(), operand].concat(),
            ("max", base) => base.unwrap_or_default().max(operand).to_vec(),
            ("bars", base) => [base.unwrap_or(b"none"), b"|", operand].concat(),
            (other, _) => panic!("no operator is called {other}"),
        };
        self.put(key, value.into());
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        Arc::make_mut(&mut self.0).remove(key);
    }

    pub(crate) fn delete_range(&mut self, range: &Range) {
        Arc::make_mut(&mut self.0).retain(|key, _| !range.holds(key));
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.0.get(key).map(|value| &value[..])
    }

    pub(crate) fn range(&self, range: &Range) -> Vec<(Vec<u8>, Vec<u8>)> {
        let held = self.0.iter().filter(|(key, _)| range.holds(key));
        held.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    }

    /// The first pair at or after `from` and before `to`.
    pub(crate) fn first(&self, from: &[u8], to: Option<&[u8]>) -> Option<(Key, Value)> {
        let found = self.0.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)).next();
        found.filter(|(key, _)| to.is_none_or(|to| &key[..] < to)).map(|(k, v)| (k.clone(), v.clone()))
    }

    /// The last pair at or after `from` and before `to`.
    pub(crate) fn last(&self, from: &[u8], to: Option<&[u8]>) -> Option<(Key, Value)> {
        let to = to.map_or(Bound::Unbounded, Bound::Excluded);
        let found = self.0.range::<[u8], _>((Bound::Unbounded, to)).next_back();
        found.filter(|(key, _)| &key[..] >= from).map(|(k, v)| (k.clone(), v.clone()))
    }
}

/// A key range with bounds of any kind.
#[derive(Clone, Debug)]
pub(crate) struct Range(pub(crate) Bound<Vec<u8>>, pub(crate) Bound<Vec<u8>>);

impl Range {
    pub(crate) fn all() -> Range {
        Range(Bound::Unbounded, Bound::Unbounded)
    }

    pub(crate) fn holds(&self, key: &[u8]) -> bool {
        let after_start = match &self.0 {
            Bound::Included(start) => key >= &start[..],
            Bound::Excluded(start) => key > &start[..],
            Bound::Unbounded => true,
        };
        after_start
            && match &self.1 {
                Bound::Included(end) => key <= &end[..],
                Bound::Excluded(end) => key < &end[..],
                Bound::Unbounded => true,
            }
    }

    /// Reports whether the end lies before the start, which a delete refuses.
    pub(crate) fn is_reversed(&self) -> bool {
        use Bound::{Excluded, Included};
        match (&self.0, &self.1) {
            (Included(start) | Excluded(start), Included(end) | Excluded(end)) => end < start,
            _ => false,
        }
    }

    /// The first key that the range may hold, and its exclusive end.
    pub(crate) fn half_open(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        let after = |key: &[u8]| [key, &[0]].concat();
        let start = match &self.0 {
            Bound::Included(start) => start.clone(),
            Bound::Excluded(start) => after(start),
            Bound::Unbounded => Vec::new(),
        };
        let end = match &self.1 {
            Bound::Included(end) => Some(after(end)),
            Bound::Excluded(end) => Some(end.clone()),
            Bound::Unbounded => None,
        };
        (start, end)
    }
}

impl RangeBounds<Vec<u8>> for Range {
    fn start_bound(&self) -> Bound<&Vec<u8>> {
        self.0.as_ref()
    }

    fn end_bound(&self) -> Bound<&Vec<u8>> {
        self.1.as_ref()
    }
}

/// The remaining items of an iterator: an interval that shrinks at both ends.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    contents: Contents,
    start: Vec<u8>,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
}

impl Cursor {
    pub(crate) fn new(contents: Contents, range: &Range) -> Cursor {
        let (start, to) = range.half_open();
        Cursor { contents, from: start.clone(), start, to }
    }

    pub(crate) fn next(&mut self) -> Option<(Key, Value)> {
        let found = self.contents.first(&self.from, self.to.as_deref())?;
        self.from = [&found.0[..], &[0]].concat();
        Some(found)
    }

    pub(crate) fn next_back(&mut self) -> Option<(Key, Value)> {
        let found = self.contents.last(&self.from, self.to.as_deref())?;
        self.to = Some(found.0.to_vec());
        Some(found)
    }

    /// Goes on in another state.
    pub(crate) fn refresh(&mut self, contents: Contents) {
        self.contents = contents;
    }

    pub(crate) fn seek(&mut self, key: &[u8]) {
        self.from = key.max(&self.start[..]).to_vec();
    }
}
