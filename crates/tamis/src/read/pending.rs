//! A transaction's uncommitted writes to one keyspace, as plain data.
//!
//! Keeps only the outcome for each key, not the sequence of writes: a base (a value, nothing, or
//! the committed state) and the operands merged into it since. Deleted ranges are kept apart,
//! disjoint and joined where they touch.
//!
//! # Invariants
//!
//! * A key whose base is [`PendingBase::Committed`] has operands and lies in no deleted range: an
//!   operand merged into a key of a deleted range has the base `Nothing`, and deleting a range
//!   forgets the keys in it.
//! * Committing the ranges before the keys gives the same result as the writes in their order.

use std::collections::BTreeMap;
use std::ops::Bound;

use tamis_base::ids::KeyspaceId;
use tamis_filter::Digest;

use crate::batch::WriteBatch;
use crate::error::ReadError;
use crate::operators::{MergeOperator, merge};
use crate::slice::Slice;

/// A key range: an inclusive start and an exclusive end (`None`: unbounded).
pub(crate) type PendingSpan = (Vec<u8>, Option<Vec<u8>>);

/// Reports whether a range with this end extends beyond `key`.
pub(crate) fn reaches(end: Option<&[u8]>, key: &[u8]) -> bool {
    end.is_none_or(|end| key < end)
}

/// All keys up to `key`.
fn up_to(key: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Unbounded, Bound::Included(key))
}

/// All keys from `key` on.
fn from(key: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Included(key), Bound::Unbounded)
}

/// Disjoint ranges in key order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans(BTreeMap<Vec<u8>, Option<Vec<u8>>>);

impl Spans {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a non-empty range. Joins the ranges that it overlaps or touches.
    pub(crate) fn add(&mut self, (mut start, mut end): PendingSpan) {
        let touches = |end: &Option<Vec<u8>>, start: &[u8]| end.as_ref().is_none_or(|end| &end[..] >= start);
        if let Some((first, last)) = self.0.range::<[u8], _>(up_to(&start)).next_back()
            && touches(last, &start)
        {
            start.clone_from(first);
        }
        while let Some((first, last)) = self.0.range::<[u8], _>(from(&start)).next() {
            if !touches(&end, first) {
                break;
            }
            end = match (end, last) {
                (Some(a), Some(b)) => Some(a.max(b.clone())),
                _ => None,
            };
            let first = first.clone();
            self.0.remove(&first);
        }
        self.0.insert(start, end);
    }

    /// Reports whether a range holds `key`.
    pub(crate) fn cover(&self, key: &[u8]) -> bool {
        !self.0.is_empty()
            && self
                .0
                .range::<[u8], _>(up_to(key))
                .next_back()
                .is_some_and(|(_, end)| reaches(end.as_deref(), key))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.0.iter().map(|(start, end)| (&start[..], end.as_deref()))
    }
}

/// What a key's operands apply to.
#[derive(Clone, Debug)]
pub(crate) enum PendingBase {
    /// The committed state.
    Committed,
    Value(Slice),
    Nothing,
}

/// The outcome of a key's writes.
#[derive(Clone, Debug)]
pub(crate) struct PendingKey {
    pub(crate) digest: Digest,
    base: PendingBase,
    /// Oldest first.
    operands: Vec<Slice>,
}

impl PendingKey {
    /// Reports whether the value depends on the committed state.
    pub(crate) fn needs_committed(&self) -> bool {
        matches!(self.base, PendingBase::Committed)
    }

    /// Returns the value, given the committed value.
    pub(crate) fn value(
        &self,
        key: &[u8],
        committed: Option<Slice>,
        operator: Option<&dyn MergeOperator>,
    ) -> Result<Option<Slice>, ReadError> {
        let base = match &self.base {
            PendingBase::Committed => committed,
            PendingBase::Value(value) => Some(value.clone()),
            PendingBase::Nothing => None,
        };
        if self.operands.is_empty() {
            return Ok(base);
        }
        let failed = |what: String| ReadError::Merge { key: key.to_vec(), what };
        let operator = operator.ok_or_else(|| failed("the keyspace has no merge operator".into()))?;
        let operands: Vec<&[u8]> = self.operands.iter().map(|operand| &operand[..]).collect();
        let value = merge(operator, key, base.as_deref(), &operands);
        let value = value.map_err(|error| failed(format!("operator `{}`: {error}", operator.name())))?;
        Ok(Some(Slice::from(value)))
    }
}

/// The state before a change, used to undo it.
#[derive(Debug)]
pub(crate) enum Before {
    Key(Box<[u8]>, Option<PendingKey>),
    Range(Vec<(Box<[u8]>, PendingKey)>, Spans),
}

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    keys: BTreeMap<Box<[u8]>, PendingKey>,
    deleted: Spans,
}

impl Pending {
    /// Returns the number of keys and ranges written.
    pub(crate) fn changes(&self) -> usize {
        self.keys.len() + self.deleted.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.deleted.is_empty()
    }

    /// Returns a key's writes, if any.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&PendingKey> {
        if self.keys.is_empty() { None } else { self.keys.get(key) }
    }

    /// Reports whether a deleted range hides the committed state of `key`.
    pub(crate) fn hides(&self, key: &[u8]) -> bool {
        self.deleted.cover(key)
    }

    fn set(&mut self, key: &[u8], pending: PendingKey, undo: bool) -> Option<Before> {
        let before = self.keys.insert(key.into(), pending);
        undo.then(|| Before::Key(key.into(), before))
    }

    /// Sets a key's value. Like every change, returns the state to undo it with, if `undo`.
    pub(crate) fn put(&mut self, key: &[u8], digest: Digest, value: &[u8], undo: bool) -> Option<Before> {
        let base = PendingBase::Value(Slice::copy_of(value));
        self.set(key, PendingKey { digest, base, operands: Vec::new() }, undo)
    }

    pub(crate) fn delete(&mut self, key: &[u8], digest: Digest, undo: bool) -> Option<Before> {
        self.set(key, PendingKey { digest, base: PendingBase::Nothing, operands: Vec::new() }, undo)
    }

    pub(crate) fn merge(&mut self, key: &[u8], digest: Digest, operand: &[u8], undo: bool) -> Option<Before> {
        let operand = Slice::copy_of(operand);
        if let Some(known) = self.keys.get_mut(key) {
            let before = undo.then(|| Before::Key(key.into(), Some(known.clone())));
            known.operands.push(operand);
            return before;
        }
        let base = if self.hides(key) { PendingBase::Nothing } else { PendingBase::Committed };
        self.set(key, PendingKey { digest, base, operands: vec![operand] }, undo)
    }

    /// Deletes a non-empty range.
    pub(crate) fn delete_range(&mut self, span: PendingSpan, undo: bool) -> Option<Before> {
        let within = match &span.1 {
            Some(end) => {
                self.keys.range::<[u8], _>((Bound::Included(&span.0[..]), Bound::Excluded(&end[..])))
            }
            None => self.keys.range::<[u8], _>(from(&span.0)),
        };
        let keys: Vec<Box<[u8]>> = within.map(|(key, _)| key.clone()).collect();
        let forgotten = keys.into_iter().filter_map(|key| self.keys.remove_entry(&key)).collect();
        let before = undo.then(|| Before::Range(forgotten, self.deleted.clone()));
        self.deleted.add(span);
        before
    }

    /// Undoes the last change not undone yet.
    pub(crate) fn undo(&mut self, before: Before) {
        match before {
            Before::Key(key, Some(known)) => _ = self.keys.insert(key, known),
            Before::Key(key, None) => _ = self.keys.remove(&key),
            Before::Range(keys, deleted) => {
                self.keys.extend(keys);
                self.deleted = deleted;
            }
        }
    }

    /// Returns the first key between two bounds.
    pub(crate) fn first(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Option<(&[u8], &PendingKey)> {
        self.between(from, to).next().map(|(key, pending)| (&key[..], pending))
    }

    /// Returns the last key between two bounds.
    pub(crate) fn last(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Option<(&[u8], &PendingKey)> {
        self.between(from, to).next_back().map(|(key, pending)| (&key[..], pending))
    }

    /// Returns the keys between two bounds, which may be crossed.
    fn between(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> std::collections::btree_map::Range<'_, Box<[u8]>, PendingKey> {
        use Bound::*;
        let crossed = match (from, to) {
            (Included(a), Included(b)) => a > b,
            (Included(a) | Excluded(a), Included(b) | Excluded(b)) => a >= b,
            _ => false,
        };
        if crossed {
            return self.keys.range::<[u8], _>((Unbounded, Excluded(&[][..])));
        }
        self.keys.range::<[u8], _>((from, to))
    }

    /// Returns all keys with their writes, in order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&[u8], &PendingKey)> {
        self.keys.iter().map(|(key, pending)| (&key[..], pending))
    }

    /// Returns the deleted ranges.
    pub(crate) fn deleted(&self) -> &Spans {
        &self.deleted
    }

    /// Returns approximately how many bytes the writes take in a batch.
    pub(crate) fn batch_bytes(&self) -> usize {
        let bytes = |(key, writes): (&[u8], &PendingKey)| {
            let value = if let PendingBase::Value(value) = &writes.base { value.len() } else { 0 };
            let operands = writes.operands.iter().map(|operand| key.len() + operand.len() + 16);
            key.len() + value + 16 + operands.sum::<usize>()
        };
        self.keys().map(bytes).sum()
    }

    /// Adds the writes to a batch.
    pub(crate) fn write_to(&self, keyspace: KeyspaceId, batch: &mut WriteBatch) {
        for (start, end) in self.deleted.iter() {
            let end = end.map_or(Bound::Unbounded, Bound::Excluded);
            batch.delete_range_id::<&[u8]>(keyspace, (Bound::Included(start), end));
        }
        for (key, PendingKey { digest, base, operands }) in &self.keys {
            match base {
                PendingBase::Committed => {}
                PendingBase::Value(value) => batch.put_digested(keyspace, key, *digest, value),
                PendingBase::Nothing => batch.delete_digested(keyspace, key, *digest),
            }
            operands.iter().for_each(|operand| batch.merge_digested(keyspace, key, *digest, operand));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type List<'a> = &'a [(&'a str, Option<&'a str>)];

    fn spans(list: List<'_>) -> Vec<PendingSpan> {
        list.iter()
            .map(|(start, end)| (start.as_bytes().to_vec(), end.map(|end| end.as_bytes().to_vec())))
            .collect()
    }

    #[test]
    fn ranges_that_overlap_or_touch_become_one() {
        let cases: [(List<'_>, List<'_>); 5] = [
            (&[("b", Some("d")), ("f", Some("h"))], &[("b", Some("d")), ("f", Some("h"))]),
            (&[("b", Some("d")), ("f", Some("h")), ("d", Some("f"))], &[("b", Some("h"))]),
            (&[("b", Some("d")), ("f", Some("h")), ("a", Some("g"))], &[("a", Some("h"))]),
            (&[("b", None), ("f", Some("h")), ("a", Some("a1"))], &[("a", Some("a1")), ("b", None)]),
            (&[("b", Some("d")), ("c", None)], &[("b", None)]),
        ];
        for (added, expected) in cases {
            let mut set = Spans::default();
            spans(added).into_iter().for_each(|span| set.add(span));
            let found: Vec<PendingSpan> =
                set.iter().map(|(s, e)| (s.to_vec(), e.map(<[u8]>::to_vec))).collect();
            assert_eq!(found, spans(expected), "{added:?}");
        }
    }

    #[test]
    fn a_range_holds_its_start_and_not_its_end() {
        let mut set = Spans::default();
        spans(&[("b", Some("d")), ("x", None)]).into_iter().for_each(|span| set.add(span));
        let covered: Vec<&str> =
            ["a", "b", "c", "d", "w", "x", "z"].into_iter().filter(|key| set.cover(key.as_bytes())).collect();
        assert_eq!(covered, ["b", "c", "x", "z"]);
    }

    #[test]
    fn an_operand_in_a_deleted_range_has_no_base_and_undoing_restores_it() {
        let digest = Digest::of(b"k");
        let mut pending = Pending::default();
        let merged = pending.merge(b"k", digest, b"1", true).unwrap();
        assert!(pending.get(b"k").is_some_and(PendingKey::needs_committed));
        let deleted = pending.delete_range((b"a".to_vec(), None), true).unwrap();
        assert!(pending.get(b"k").is_none() && pending.hides(b"k"));
        let again = pending.merge(b"k", digest, b"2", true).unwrap();
        assert!(pending.get(b"k").is_some_and(|key| !key.needs_committed()));
        pending.undo(again);
        pending.undo(deleted);
        assert!(
            pending
                .get(b"k")
                .is_some_and(|key| key.needs_committed() && key.operands == [Slice::copy_of(b"1")])
        );
        pending.undo(merged);
        assert!(pending.is_empty());
    }
}
