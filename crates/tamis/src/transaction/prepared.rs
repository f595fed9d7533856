//! Prepared transactions: durable, but neither committed nor aborted yet.
//!
//! A prepared transaction is one entry of a hidden keyspace, under its name: the operations that
//! its commit will write, encoded as in batches (`docs/transactions.md` has the bytes). So it is
//! recovered, checked, copied and compacted like all other data. Preparing writes the entry.
//! Committing deletes it and writes the operations in one batch. Aborting deletes it. Each is
//! atomic and synced.
//!
//! # Threads and locks
//!
//! Prepared transactions are read, and take their exclusive locks, when the first locking
//! transaction begins. The mutex of this type is held for that; it is taken before every lock of
//! the database except that of a session that has not begun.
//!
//! # Failures
//!
//! After a failed commit or abort the transaction is still prepared, unless the process ends: then
//! the next opening shows which.

use std::collections::btree_map::Entry;

use smallvec::SmallVec;
use tamis_filter::Digest;

use crate::batch::WriteBatch;
use crate::conflicts::condition::Condition;
use crate::conflicts::footprint::KeyspaceFootprint;
use crate::conflicts::locks::{Owner, Target};
use crate::conflicts::prepared_names::PreparedPhase;
use crate::error::{ReadError, StorageError, TransactionError, WriteError};
use crate::handles::handle::Db;

/// The keyspace of prepared transactions, hidden from programs.
pub(crate) const PREPARED_KEYSPACE: &str = "\0prepared";

/// The first byte of an entry.
const VERSION: u8 = 1;

/// A [prepared](crate::transaction::lock_transaction::LockTransaction::prepare) transaction: its
/// writes are durable but not visible, and its exclusive locks are held. Dropping this value
/// changes nothing; [`Db::prepared_transactions`] returns it again, also after a crash.
#[must_use = "it stays prepared, and holds its locks, until it is committed or aborted"]
pub struct PreparedTransaction {
    db: Db,
    name: Vec<u8>,
    /// Distinguishes it from a later transaction of the same name.
    owner: Owner,
}

debug_as!(PreparedTransaction, "PreparedTransaction", prepared =>
    "name": String::from_utf8_lossy(&prepared.name),
    "path": prepared.db.inner().dir
);

impl PreparedTransaction {
    /// Returns the name under which it was prepared.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Makes its writes visible and durable, and releases its locks.
    ///
    /// # Errors
    ///
    /// [`TransactionError::NotPrepared`] if it was committed or aborted through another handle,
    /// even if another transaction is now prepared under its name. [`WriteError::Dropped`] if one
    /// of its keyspaces was dropped: then it can only be aborted. Those of [`Db::write`]: it is
    /// still prepared, and may be committed later.
    pub fn commit(&self) -> Result<(), TransactionError> {
        self.end(|entry, batch| self.db.write_prepared(&self.name, entry, batch))
    }

    /// Discards its writes, durably, and releases its locks.
    ///
    /// # Errors
    ///
    /// [`TransactionError::NotPrepared`] if it was committed or aborted through another handle, and
    /// those of [`Db::write`].
    pub fn abort(&self) -> Result<(), TransactionError> {
        self.end(|_, _| Ok(()))
    }

    /// Deletes the entry, in one batch with what `and` adds.
    fn end(
        &self,
        and: impl FnOnce(&[u8], &mut WriteBatch) -> Result<(), TransactionError>,
    ) -> Result<(), TransactionError> {
        let inner = &self.db.handle().inner;
        inner.gate.check_process().map_err(WriteError::from)?;
        let not_prepared = || TransactionError::NotPrepared { name: self.name.clone() };
        match inner.transactions.prepared.names.lock().by_name.get_mut(&self.name) {
            Some((owner, phase @ PreparedPhase::Prepared)) if *owner == self.owner => {
                *phase = PreparedPhase::Busy
            }
            _ => return Err(not_prepared()),
        }
        let ended = (|| {
            let keyspace = self.db.hidden_keyspace(PREPARED_KEYSPACE).ok_or_else(not_prepared)?;
            let entry = keyspace.get(&self.name)?.ok_or_else(not_prepared)?;
            let mut batch = WriteBatch::with_capacity(entry.len() + self.name.len() + 16);
            batch.delete_in(&keyspace, &self.name);
            and(&entry, &mut batch)?;
            Ok(inner.write(batch, true)?)
        })();
        let mut names = inner.transactions.prepared.names.lock();
        match &ended {
            Ok(()) => _ = names.by_name.remove(&self.name),
            Err(_) => {
                if let Some((_, phase)) = names.by_name.get_mut(&self.name) {
                    *phase = PreparedPhase::Prepared;
                }
            }
        }
        drop(names);
        if ended.is_ok() {
            inner.transactions.locks.release(self.owner);
        }
        ended
    }
}

impl Db {
    /// Returns the prepared transactions, by name: those of this process, and those that a crash or
    /// a close left behind.
    ///
    /// # Errors
    ///
    /// [`TransactionError::Read`] if they cannot be read.
    pub fn prepared_transactions(&self) -> Result<Vec<PreparedTransaction>, TransactionError> {
        self.load_prepared()?;
        let names = self.handle().inner.transactions.prepared.names.lock();
        let prepared = names.by_name.iter().filter(|(_, (_, phase))| *phase == PreparedPhase::Prepared);
        let handle = |(name, (owner, _)): (&Vec<u8>, &(Owner, PreparedPhase))| PreparedTransaction {
            db: self.clone(),
            name: name.clone(),
            owner: *owner,
        };
        Ok(prepared.map(handle).collect())
    }

    /// Takes the locks of the transactions that were prepared before the database was opened. Only
    /// the first call has an effect.
    pub(crate) fn load_prepared(&self) -> Result<(), TransactionError> {
        self.check_process().map_err(ReadError::from)?;
        let inner = &self.handle().inner;
        let mut names = inner.transactions.prepared.names.lock();
        if names.loaded {
            return Ok(());
        }
        let mut found = Vec::new();
        if let Some(keyspace) = self.hidden_keyspace(PREPARED_KEYSPACE) {
            for item in keyspace.iter() {
                let (name, entry) = item?;
                let targets = operations(&entry).and_then(targets_of).ok_or_else(|| self.damaged(&name))?;
                found.push((name.to_vec(), targets));
            }
        }
        // No other transaction has locks yet.
        for (name, targets) in found {
            let owner = inner.transactions.locks.owner();
            for (keyspace, target) in targets {
                inner.transactions.locks.restore(owner, keyspace, target);
            }
            names.by_name.insert(name, (owner, PreparedPhase::Prepared));
        }
        names.loaded = true;
        Ok(())
    }

    fn damaged(&self, name: &[u8]) -> TransactionError {
        let what = format!("the prepared transaction `{}` cannot be understood", name.escape_ascii());
        ReadError::Storage(StorageError::corrupt(self.path(), None, what)).into()
    }

    /// Stores a transaction under a name, provided that nothing it has read was written since.
    pub(crate) fn store_prepared(
        &self,
        name: &[u8],
        owner: Owner,
        writes: &WriteBatch,
        parts: SmallVec<[KeyspaceFootprint; 1]>,
    ) -> Result<PreparedTransaction, TransactionError> {
        let inner = &self.handle().inner;
        match inner.transactions.prepared.names.lock().by_name.entry(name.to_vec()) {
            Entry::Occupied(_) => return Err(TransactionError::PreparedExists { name: name.to_vec() }),
            Entry::Vacant(free) => _ = free.insert((owner, PreparedPhase::Busy)),
        }
        let stored = (|| {
            inner.check_operators(writes)?;
            let keyspace = self.create_hidden_keyspace(PREPARED_KEYSPACE)?;
            let mut batch = WriteBatch::with_capacity(writes.byte_len() + name.len() + 16);
            batch.put_in(&keyspace, name, [&[VERSION], writes.bytes()].concat());
            batch.check()?;
            inner.write_if(batch, true, Condition::new(parts))
        })();
        let mut names = inner.transactions.prepared.names.lock();
        match stored {
            Ok(_) => {
                names.by_name.insert(name.to_vec(), (owner, PreparedPhase::Prepared));
                Ok(PreparedTransaction { db: self.clone(), name: name.to_vec(), owner })
            }
            Err(error) => {
                names.by_name.remove(name);
                Err(error)
            }
        }
    }

    /// Adds the operations of an entry to a batch.
    fn write_prepared(
        &self,
        name: &[u8],
        entry: &[u8],
        batch: &mut WriteBatch,
    ) -> Result<(), TransactionError> {
        let added = operations(entry).and_then(|operations| batch_of(operations, batch));
        added.ok_or_else(|| self.damaged(name))?;
        let directory = self.handle().inner.keyspaces.directory.load();
        match batch.keyspaces().iter().find(|id| !directory.contains_key(id)) {
            Some(gone) => Err(WriteError::Dropped { name: format!("number {gone}") }.into()),
            None => Ok(()),
        }
    }
}

/// Returns the encoded operations of an entry.
fn operations(entry: &[u8]) -> Option<&[u8]> {
    entry.split_first().filter(|(version, _)| **version == VERSION).map(|(_, operations)| operations)
}

/// Returns the exclusive locks that the writes of a batch need.
pub(crate) fn targets_of(batch: &[u8]) -> Option<Vec<(tamis_base::ids::KeyspaceId, Target)>> {
    use tamis_files::wal::ops::{BatchOp, Ops};
    let target = |op: BatchOp<'_>| match op {
        BatchOp::Put { keyspace, key, .. }
        | BatchOp::Merge { keyspace, key, .. }
        | BatchOp::Delete { keyspace, key } => Some((keyspace, Target::key(key))),
        BatchOp::DeleteRange { keyspace, start, end } => {
            Some((keyspace, Target::range((start.to_vec(), end.map(<[u8]>::to_vec)))))
        }
        BatchOp::Ingestion { .. } => None,
    };
    Ops::new(batch).map(|op| op.ok().and_then(target)).collect()
}

/// Rebuilds a batch from its encoded operations.
pub(crate) fn batch_of(bytes: &[u8], batch: &mut WriteBatch) -> Option<()> {
    use tamis_files::wal::ops::{BatchOp, Ops};
    for op in Ops::new(bytes) {
        match op.ok()? {
            BatchOp::Put { keyspace, key, value } => {
                batch.put_digested(keyspace, key, Digest::of(key), value)
            }
            BatchOp::Merge { keyspace, key, operand } => {
                batch.merge_digested(keyspace, key, Digest::of(key), operand);
            }
            BatchOp::Delete { keyspace, key } => batch.delete_digested(keyspace, key, Digest::of(key)),
            BatchOp::DeleteRange { keyspace, start, end } => {
                let end = end.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
                batch.delete_range_id::<&[u8]>(keyspace, (std::ops::Bound::Included(start), end));
            }
            BatchOp::Ingestion { .. } => return None,
        }
    }
    Some(())
}
