//! The second stage of an iteration: of the versions of each key, the one that shows, or none.
//!
//! Forwards the newest version of a key comes first, backwards the oldest. That is the only
//! difference between the two directions.

use tamis_base::key::{Kind, SeqNo, prefix_of};

use super::end::{End, Way};
use super::reader::Reader;
use crate::error::ReadError;
use crate::operators::MergeOperator;
use crate::read::blobs::Holder;
use crate::read::merge::{Head, MergeCursor};
use crate::read::operands::{BaseValue, Operands, Order};
use crate::slice::Slice;

/// Versions of one key to step over one by one before a seek skips the rest.
const STEPS: u64 = 4;

/// What a reader sees of the key [`End::coming`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Resolved {
    /// The version under the cursor, as it is.
    Here,
    /// The item that the reader keeps.
    Made,
    Dead(Dead),
}

/// A key without a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Dead {
    /// Whether it is known to be deleted. It may have expired otherwise.
    pub(super) deleted: bool,
    /// Whether a range tombstone lies over it.
    pub(super) covered: bool,
}

impl End {
    /// Moves to the next key in this direction that has a visible version.
    #[inline]
    pub(super) fn resolve<const BACK: bool>(
        &mut self,
        reader: &mut Reader,
        way: &Way<'_>,
    ) -> Result<Option<Resolved>, ReadError> {
        if BACK { self.resolve_backward(reader, way) } else { self.resolve_forward(reader, way) }
    }

    #[inline]
    fn resolve_forward(&mut self, reader: &mut Reader, way: &Way<'_>) -> Result<Option<Resolved>, ReadError> {
        let End { cursor, last, coming, .. } = self;
        let cursor = cursor.as_mut().expect("positioned");
        if std::mem::take(&mut self.stands) {
            cursor.next()?;
        }
        let last = last.get();
        let last_prefix = last.map_or(0, prefix_of);
        let mut stepped = 0;
        while let Some(Head { prefix, key, seq, kind }) = cursor.head() {
            if way.ends_before::<false>(prefix, key) {
                return Ok(None);
            }
            let too_new = seq > reader.context.snapshot;
            if too_new || (last_prefix == prefix && last == Some(key)) {
                reader.cost.versions_skipped += 1;
                stepped += 1;
                if stepped > STEPS {
                    // The newest visible version may be far down, and so may the next key.
                    let target = if too_new { reader.context.snapshot } else { 0 };
                    coming.clear();
                    coming.extend_from_slice(key);
                    stepped = 0;
                    reader.cost.versions_skipped += cursor.pass(coming, target)?.saturating_sub(1);
                } else {
                    cursor.next()?;
                }
                continue;
            }
            // The newest visible version of the next key.
            coming.clear();
            coming.extend_from_slice(key);
            self.stands = true;
            let cover = reader.covers.as_mut().map_or(0, |covers| covers.at(key));
            if cover > seq || kind == Kind::Delete {
                return Ok(Some(Resolved::Dead(Dead { deleted: true, covered: cover > seq })));
            }
            if reader.context.horizon > seq {
                return Ok(Some(Resolved::Dead(Dead { deleted: false, covered: false })));
            }
            if kind == Kind::Put || reader.keys_only {
                return Ok(Some(Resolved::Here));
            }
            return self.make_forward(reader, kind, cover).map(Some);
        }
        Ok(None)
    }

    /// Makes the item of the key at the cursor, whose newest visible version is not a whole value.
    /// Leaves the cursor on its base or behind the key.
    #[cold]
    fn make_forward(&mut self, reader: &mut Reader, kind: Kind, cover: SeqNo) -> Result<Resolved, ReadError> {
        let cursor = self.cursor.as_mut().expect("positioned");
        let key = cursor.pinned_key();
        let value = if kind == Kind::PutBlob {
            reader.blobs.read(&cursor.holder(), cursor.version().3, &mut reader.cost)?
        } else {
            let oldest = cover.max(reader.context.horizon);
            self.stands = false;
            let mut versions = KeyVersions::new(Order::NewestFirst);
            while cursor.valid() && cursor.key() == &self.coming[..] && cursor.seq() >= oldest {
                if versions.add(&self.coming, cursor, reader.operator()) {
                    break;
                }
                cursor.next()?;
            }
            versions.value(&self.coming, reader)?.expect("there are operands")
        };
        reader.make(key, value);
        Ok(Resolved::Made)
    }

    #[inline]
    fn resolve_backward(
        &mut self,
        reader: &mut Reader,
        way: &Way<'_>,
    ) -> Result<Option<Resolved>, ReadError> {
        let cursor = self.cursor.as_mut().expect("positioned");
        if std::mem::take(&mut self.stands) {
            cursor.prev()?;
        }
        let Some(Head { prefix, key, seq, kind }) = cursor.head() else { return Ok(None) };
        if way.ends_before::<true>(prefix, key) {
            return Ok(None);
        }
        self.coming.clear();
        self.coming.extend_from_slice(key);
        let cover = reader.covers.as_mut().map_or(0, |covers| covers.at(key));
        let oldest = cover.max(reader.context.horizon);
        if kind == Kind::Put && (oldest..=reader.context.snapshot).contains(&seq) && cursor.is_only_version()
        {
            self.stands = true;
            return Ok(Some(Resolved::Here));
        }
        // An error before the end of the key leaves it to the front.
        let Some(value) = self.gather(reader, oldest)? else {
            // Where entries expire, this may be one that has.
            let dead = Dead { deleted: reader.context.horizon == 0, covered: cover > 0 };
            return Ok(Some(Resolved::Dead(dead)));
        };
        reader.make(Slice::copy_of(&self.coming), value);
        Ok(Some(Resolved::Made))
    }

    /// Passes the versions of the key at the cursor, the oldest first. Returns the key's value, if
    /// any: of the visible versions from the number `oldest` on.
    fn gather(&mut self, reader: &mut Reader, oldest: SeqNo) -> Result<Option<Slice>, ReadError> {
        let (cursor, key) = (self.cursor.as_mut().expect("positioned"), &self.coming[..]);
        let snapshot = reader.context.snapshot;
        let mut versions = KeyVersions::new(Order::OldestFirst);
        let mut stepped = 0;
        while cursor.valid() && cursor.key() == key {
            let seq = cursor.seq();
            if stepped == STEPS {
                if seq > snapshot {
                    stepped += cursor.pass(key, 0)?;
                    break;
                }
                // From the newest visible version down, as forwards: no older one than those left
                // counts if that is a value.
                let mut newer = KeyVersions::new(Order::NewestFirst);
                let climb = cursor.climb(key, snapshot)?;
                while cursor.valid() && cursor.seq() >= seq.max(oldest) {
                    stepped += 1;
                    if newer.add(key, cursor, reader.operator()) {
                        break;
                    }
                    cursor.climb_down(key)?;
                }
                versions.add_newer(newer);
                cursor.leave(climb, key)?;
                break;
            }
            stepped += 1;
            if (oldest..=snapshot).contains(&seq) {
                versions.add(key, cursor, reader.operator());
            }
            cursor.prev()?;
        }
        reader.cost.versions_skipped += stepped - versions.count().max(1).min(stepped);
        versions.value(key, reader)
    }
}

/// The versions of one key that make its value.
#[derive(Debug)]
struct KeyVersions {
    order: Order,
    /// What is below the operands; `None` if it was not seen yet.
    base: Option<Below>,
    operands: Operands,
}

/// What is below operands.
#[derive(Debug)]
enum Below {
    Nothing,
    Value(Slice),
    /// A value that is not read before it is known to be needed: what has the reference to it.
    Blob(Holder, Slice),
}

impl KeyVersions {
    fn new(order: Order) -> KeyVersions {
        KeyVersions { order, base: None, operands: Operands::new(order) }
    }

    /// Adds the version at the cursor. Returns whether no older one counts.
    #[inline]
    fn add(&mut self, key: &[u8], cursor: &MergeCursor, operator: Option<&dyn MergeOperator>) -> bool {
        let base = match cursor.kind() {
            Kind::Merge => {
                self.operands.push(key, cursor.pinned_value(), operator);
                return false;
            }
            Kind::Put => Below::Value(cursor.pinned_value()),
            Kind::PutBlob => Below::Blob(cursor.holder(), cursor.pinned_value()),
            Kind::Delete => Below::Nothing,
        };
        if self.order == Order::OldestFirst {
            self.operands.clear();
        }
        self.base = Some(base);
        true
    }

    /// Adds versions newer than all of these and in the opposite order.
    fn add_newer(&mut self, newer: KeyVersions) {
        if newer.base.is_some() {
            self.operands.clear();
            self.base = newer.base;
        }
        self.operands.add_newer(newer.operands);
    }

    /// The number of versions that make the value.
    fn count(&self) -> u64 {
        self.operands.count() + u64::from(matches!(self.base, Some(Below::Value(_) | Below::Blob(..))))
    }

    /// Returns the value that they make; an empty one if only keys are wanted.
    fn value(mut self, key: &[u8], reader: &mut Reader) -> Result<Option<Slice>, ReadError> {
        if self.count() == 0 {
            return Ok(None);
        }
        if reader.keys_only {
            return Ok(Some(Slice::default()));
        }
        let base = match self.base {
            Some(Below::Value(value)) => BaseValue::Value(value),
            Some(Below::Blob(table, reference)) => {
                BaseValue::Value(reader.blobs.read(&table, &reference, &mut reader.cost)?)
            }
            Some(Below::Nothing) | None => BaseValue::Nothing,
        };
        match base {
            BaseValue::Value(value) if self.operands.is_empty() => Ok(Some(value)),
            base => {
                let operator = reader.context.operator.as_deref();
                self.operands.resolve(key, &base, operator, &mut reader.cost).map(Some)
            }
        }
    }
}
