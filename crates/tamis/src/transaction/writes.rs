//! The pending writes of a transaction, in all keyspaces, with savepoints.

use std::ops::RangeBounds;
use std::sync::Arc;

use smallvec::SmallVec;
use tamis_base::ids::KeyspaceId;
use tamis_base::key::SeqNo;
use tamis_filter::Digest;

use crate::batch::{WriteBatch, check_key, check_value, normalize_range};
use crate::catalogue::keyspace::KeyspaceInner;
use crate::conflicts::footprint::{Point, Points, RangeReads};
use crate::error::{TransactionError, WriteError};
use crate::handles::handle::Keyspace;
use crate::read::pending::{Before, Pending};
use crate::transaction::savepoint::{Savepoint, Savepoints};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Writes {
    /// The open database that all keyspaces must belong to.
    instance: u64,
    /// In the order in which the keyspaces were first written to.
    keyspaces: SmallVec<[KeyspaceWrites; 1]>,
    savepoints: Savepoints,
}

/// The pending writes of one keyspace. Shared with iterators; changing them while an iterator is
/// alive copies them.
#[derive(Debug)]
struct KeyspaceWrites {
    keyspace: Arc<KeyspaceInner>,
    pending: Arc<Pending>,
}

impl Writes {
    pub(crate) fn new(instance: u64) -> Writes {
        Writes { instance, keyspaces: SmallVec::new(), savepoints: Savepoints::default() }
    }

    pub(crate) fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        check_key(key)?;
        check_value(value)?;
        self.change(keyspace, |pending, undo| pending.put(key, Digest::of(key), value, undo))
    }

    pub(crate) fn delete(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<(), WriteError> {
        check_key(key)?;
        self.change(keyspace, |pending, undo| pending.delete(key, Digest::of(key), undo))
    }

    pub(crate) fn merge(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        operand: &[u8],
    ) -> Result<(), WriteError> {
        check_key(key)?;
        check_value(operand)?;
        if keyspace.inner.operators.merge.is_none() {
            return Err(WriteError::NoMergeOperator { name: keyspace.name().to_owned() });
        }
        self.change(keyspace, |pending, undo| pending.merge(key, Digest::of(key), operand, undo))
    }

    pub(crate) fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> Result<(), WriteError> {
        match normalize_range(range)? {
            Some(span) => self.change(keyspace, |pending, undo| pending.delete_range(span, undo)),
            None => Ok(()),
        }
    }

    /// Fails if the keyspace cannot be written to.
    pub(crate) fn check(&self, keyspace: &Keyspace) -> Result<(), WriteError> {
        let name = || keyspace.name().to_owned();
        if self.instance != keyspace.handle.inner.instance {
            return Err(WriteError::ForeignKeyspace { name: name() });
        }
        keyspace.handle.inner.gate.check_process()?;
        if keyspace.inner.is_dropped() {
            return Err(WriteError::Dropped { name: name() });
        }
        Ok(())
    }

    fn change(
        &mut self,
        keyspace: &Keyspace,
        change: impl FnOnce(&mut Pending, bool) -> Option<Before>,
    ) -> Result<(), WriteError> {
        self.check(keyspace)?;
        let place = self.keyspaces.iter().position(|written| written.keyspace.id == keyspace.inner.id);
        let place = place.unwrap_or_else(|| {
            self.keyspaces.push(KeyspaceWrites { keyspace: keyspace.inner.clone(), pending: Arc::default() });
            self.keyspaces.len() - 1
        });
        let undo = self.savepoints.any();
        if let Some(before) = change(Arc::make_mut(&mut self.keyspaces[place].pending), undo) {
            self.savepoints.note(place, before);
        }
        Ok(())
    }

    pub(crate) fn savepoint(&mut self) -> Savepoint {
        self.savepoints.set()
    }

    pub(crate) fn rollback_to(&mut self, savepoint: Savepoint) -> Result<(), TransactionError> {
        for (place, before) in self.savepoints.undone(savepoint)? {
            Arc::make_mut(&mut self.keyspaces[place].pending).undo(before);
        }
        Ok(())
    }

    /// Returns the number of keys and ranges written.
    pub(crate) fn changes(&self) -> usize {
        self.keyspaces.iter().map(|written| written.pending.changes()).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keyspaces.iter().all(|written| written.pending.is_empty())
    }

    /// Returns the pending writes of a keyspace, if there are any.
    pub(crate) fn of(&self, keyspace: KeyspaceId) -> Option<&Arc<Pending>> {
        let written = self.keyspaces.iter().find(|written| written.keyspace.id == keyspace);
        written.map(|written| &written.pending).filter(|pending| !pending.is_empty())
    }

    /// Returns all writes as one batch.
    pub(crate) fn batch(&self) -> WriteBatch {
        let bytes = self.keyspaces.iter().map(|written| written.pending.batch_bytes()).sum();
        let mut batch = WriteBatch::with_capacity(bytes);
        for KeyspaceWrites { keyspace, pending } in &self.keyspaces {
            pending.write_to(keyspace.id, &mut batch);
        }
        batch
    }

    /// Returns the keyspaces written to.
    pub(crate) fn keyspaces(&self) -> impl Iterator<Item = &Arc<KeyspaceInner>> {
        self.keyspaces.iter().map(|written| &written.keyspace)
    }

    /// Returns what is written in each keyspace, all as of `since`: keys, and deleted ranges.
    pub(crate) fn written(
        &self,
        since: SeqNo,
    ) -> impl Iterator<Item = (&Arc<KeyspaceInner>, Points, RangeReads)> {
        self.keyspaces.iter().map(move |KeyspaceWrites { keyspace, pending }| {
            let points =
                pending.keys().map(|(key, writes)| Point { digest: writes.digest, since, key: key.into() });
            let deleted = pending.deleted().iter();
            let ranges = deleted.map(|(start, end)| (since, (start.to_vec(), end.map(<[u8]>::to_vec))));
            (keyspace, points.collect(), ranges.collect())
        })
    }
}
