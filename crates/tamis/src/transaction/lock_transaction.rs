//! Pessimistic transactions: they lock what they read and write first, so that other locking
//! transactions wait instead of failing late.
//!
//! Two-phase locking: locks are taken before each read and write, and released together when the
//! transaction ends. A read sees the latest committed state, under its lock, with the transaction's
//! own writes on top.
//!
//! Plain writes and optimistic transactions take no locks and are not held off. To stay correct
//! next to them, the commit is validated like an optimistic transaction's: nothing that was read
//! may have been written since. Among locking transactions, validation never fails.

use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::batch::{check_key, normalize_range};
use crate::conflicts::condition::Condition;
use crate::conflicts::footprint::KeyspaceFootprint;
use crate::conflicts::locks::{Mode, NotGranted, Owner, Target};
use crate::error::TransactionError;
use crate::handles::handle::{Db, Keyspace};
use crate::handles::pin::SnapshotPin;
use crate::options::Durability;
use crate::read::{Bounds, Iter, Life, Overlay};
use crate::slice::Slice;
use crate::transaction::prepared::PreparedTransaction;
use crate::transaction::reads::Reads;
use crate::transaction::savepoint::Savepoint;
use crate::transaction::writes::Writes;

/// The options of a locking transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockOptions {
    /// How long it waits for each lock.
    pub timeout: Duration,
    /// When the commit survives a power failure; `None`: the database's option applies.
    pub durability: Option<Durability>,
}

impl Default for LockOptions {
    /// One second, with the database's durability.
    fn default() -> LockOptions {
        LockOptions { timeout: Duration::from_secs(1), durability: None }
    }
}

/// A transaction that locks the keys and ranges it reads and writes: other locking transactions
/// wait, and its commit does not conflict with them. Meant for keys under heavy contention; where
/// conflicts are rare, a [`Transaction`](crate::Transaction) costs less.
///
/// Serializable. Reads take shared locks and see what is committed at that moment;
/// [`get_for_update`](LockTransaction::get_for_update) and writes take exclusive locks. Locks are
/// held until the transaction ends. A lock that is not granted in time, or whose wait would
/// deadlock, is an error that names the transactions involved: drop the transaction, which releases
/// its locks, and start over.
///
/// Writers that take no locks are not held off. If one of them writes what this transaction has
/// read, the commit is refused with [`TransactionError::Conflict`].
///
/// Methods without a keyspace use the default one. Each lock costs a search under a mutex of the
/// database, and memory until the transaction ends.
///
/// ```
/// use tamis::Db;
///
/// # let dir = tempfile::tempdir()?;
/// let db = Db::open(dir.path())?;
/// db.put("seats", [2])?;
/// let mut transaction = db.lock_transaction()?;
/// let seats = transaction.get_for_update("seats")?.unwrap()[0];
/// transaction.put("seats", [seats - 1])?;
/// transaction.commit()?;
/// assert_eq!(db.get("seats")?.unwrap(), [1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a transaction that is dropped forgets its writes"]
pub struct LockTransaction {
    db: Db,
    options: LockOptions,
    /// Keeps recent commits for validation.
    _pin: Arc<SnapshotPin>,
    held: Held,
    /// What was read, each item as of its own moment.
    reads: Reads,
    writes: Writes,
    /// Its iterators end with it.
    life: Life,
}

debug_as!(LockTransaction, "LockTransaction", transaction =>
    "writes": transaction.writes.changes(),
    "path": transaction.db.inner().dir
);

/// The locks of a transaction, released when this is dropped.
#[derive(Debug)]
struct Held {
    db: Db,
    owner: Owner,
    /// Whether they now belong to a prepared transaction.
    passed_on: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        let db = &self.db.handle().inner;
        if !self.passed_on && db.gate.is_ours() {
            db.transactions.locks.release(self.owner);
        }
    }
}

impl Db {
    /// Begins a locking transaction. It costs as much as a [snapshot](Db::snapshot).
    ///
    /// # Errors
    ///
    /// [`TransactionError::Read`] if the transactions prepared before the database was opened,
    /// which hold locks, cannot be read.
    pub fn lock_transaction(&self) -> Result<LockTransaction, TransactionError> {
        self.lock_transaction_with(LockOptions::default())
    }

    /// Begins a locking transaction with its own timeout and durability.
    ///
    /// # Errors
    ///
    /// Those of [`lock_transaction`](Db::lock_transaction).
    pub fn lock_transaction_with(&self, options: LockOptions) -> Result<LockTransaction, TransactionError> {
        self.load_prepared()?;
        let inner = &self.handle().inner;
        Ok(LockTransaction {
            db: self.clone(),
            options,
            _pin: SnapshotPin::new(self.handle(), true),
            held: Held { db: self.clone(), owner: inner.transactions.locks.owner(), passed_on: false },
            reads: Reads::default(),
            writes: Writes::new(inner.instance),
            life: Life::default(),
        })
    }
}

impl LockTransaction {
    /// Returns the number that identifies this transaction in other transactions' errors.
    pub fn number(&self) -> u64 {
        self.held.owner
    }

    fn default_keyspace(&self) -> Keyspace {
        self.db.default_keyspace().clone()
    }

    fn lock(&self, keyspace: &Keyspace, target: Target, mode: Mode) -> Result<(), TransactionError> {
        self.writes.check(keyspace)?;
        let (locks, owner) = (&self.db.handle().inner.transactions.locks, self.held.owner);
        let place = (keyspace.inner.id, keyspace.name());
        locks.acquire(owner, place, &target, mode, self.options.timeout).map_err(|why| match why {
            NotGranted::Timeout { holders } => {
                let key = target.first().to_vec();
                TransactionError::LockTimeout { keyspace: keyspace.name().to_owned(), key, holders }
            }
            NotGranted::Deadlock(cycle) => TransactionError::Deadlock { cycle },
            NotGranted::Interrupted => TransactionError::Interrupted,
        })
    }

    fn lock_key(&self, keyspace: &Keyspace, key: &[u8], mode: Mode) -> Result<(), TransactionError> {
        check_key(key).map_err(TransactionError::Write)?;
        self.lock(keyspace, Target::key(key), mode)
    }

    /// Reads a key already locked.
    fn read(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Slice>, TransactionError> {
        let pending = self.writes.of(keyspace.inner.id).cloned();
        let writes = pending.as_ref().and_then(|pending| pending.get(key));
        let hidden = writes.is_none() && pending.as_ref().is_some_and(|pending| pending.hides(key));
        let committed = match writes {
            Some(writes) if !writes.needs_committed() => None,
            None if hidden => None,
            _ => {
                let (value, digest, since) = keyspace.lookup_now(key)?;
                self.reads.note(&keyspace.inner, key, digest, since);
                value
            }
        };
        let operator = keyspace.inner.operators.merge.as_deref();
        Ok(writes.map_or(Ok(committed.clone()), |writes| writes.value(key, committed, operator))?)
    }

    /// Returns the value of `key`, under a shared lock.
    ///
    /// # Errors
    ///
    /// [`TransactionError::LockTimeout`], [`TransactionError::Deadlock`], and
    /// [`TransactionError::Read`] as for [`Db::get`].
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Slice>, TransactionError> {
        self.get_in(&self.default_keyspace(), key)
    }

    /// Returns the value of `key`, under an exclusive lock: for a key that will be written. Two
    /// transactions that first took shared locks on it would deadlock.
    ///
    /// # Errors
    ///
    /// Those of [`get`](LockTransaction::get).
    pub fn get_for_update(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Slice>, TransactionError> {
        self.get_for_update_in(&self.default_keyspace(), key)
    }

    /// Iterates over the keys in a range as of this call, under a shared lock on all of it,
    /// existing keys or not. The iterator ends with the transaction.
    ///
    /// # Errors
    ///
    /// Those of [`get`](LockTransaction::get); [`TransactionError::Write`] for a reversed range.
    /// Errors of reading are items.
    pub fn range<K: AsRef<[u8]>>(&mut self, range: impl RangeBounds<K>) -> Result<Iter, TransactionError> {
        self.range_in(&self.default_keyspace(), range)
    }

    /// Sets the value of `key` to `value`, under an exclusive lock.
    ///
    /// # Errors
    ///
    /// [`TransactionError::LockTimeout`], [`TransactionError::Deadlock`], and
    /// [`TransactionError::Write`] as for [`Transaction::put`](crate::Transaction::put).
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), TransactionError> {
        self.put_in(&self.default_keyspace(), key, value)
    }

    /// Deletes `key`, under an exclusive lock.
    ///
    /// # Errors
    ///
    /// Those of [`put`](LockTransaction::put).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<(), TransactionError> {
        self.delete_in(&self.default_keyspace(), key)
    }

    /// Applies `operand` to the value of `key` with the keyspace's merge operator, under an
    /// exclusive lock, without reading it.
    ///
    /// # Errors
    ///
    /// Those of [`put`](LockTransaction::put).
    pub fn merge(
        &mut self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<(), TransactionError> {
        self.merge_in(&self.default_keyspace(), key, operand)
    }

    /// Deletes all keys in a range, under an exclusive lock on all of it.
    ///
    /// # Errors
    ///
    /// Those of [`put`](LockTransaction::put).
    pub fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        range: impl RangeBounds<K>,
    ) -> Result<(), TransactionError> {
        self.delete_range_in(&self.default_keyspace(), range)
    }

    /// Like [`get`](LockTransaction::get), in `keyspace`.
    ///
    /// # Errors
    ///
    /// Those of [`get`](LockTransaction::get).
    pub fn get_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Slice>, TransactionError> {
        self.lock_key(keyspace, key.as_ref(), Mode::Shared)?;
        self.read(keyspace, key.as_ref())
    }

    /// Like [`get_for_update`](LockTransaction::get_for_update), in `keyspace`.
    ///
    /// # Errors
    ///
    /// Those of [`get`](LockTransaction::get).
    pub fn get_for_update_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Slice>, TransactionError> {
        self.lock_key(keyspace, key.as_ref(), Mode::Exclusive)?;
        self.read(keyspace, key.as_ref())
    }

    /// Like [`range`](LockTransaction::range), in `keyspace`.
    ///
    /// # Errors
    ///
    /// Those of [`range`](LockTransaction::range).
    pub fn range_in<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> Result<Iter, TransactionError> {
        let bounds = Bounds::of(&range);
        if let Some(span) = normalize_range(range)? {
            self.lock(keyspace, Target::range(span.clone()), Mode::Shared)?;
            // Load the number before creating the iterator: the iterator sees all writes up to it,
            // and perhaps more.
            let since = self.db.handle().inner.visible();
            self.reads.note_range(&keyspace.inner, span, since);
        }
        let operator = keyspace.inner.operators.merge.clone();
        let pending = self.writes.of(keyspace.inner.id).cloned();
        let overlay = pending.map(|pending| Overlay::new(pending, operator, &bounds));
        Ok(keyspace.scan(bounds, None).within(overlay, None, self.life.ended()))
    }

    /// Like [`put`](LockTransaction::put), in `keyspace`.
    ///
    /// # Errors
    ///
    /// Those of [`put`](LockTransaction::put).
    pub fn put_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), TransactionError> {
        self.lock_key(keyspace, key.as_ref(), Mode::Exclusive)?;
        Ok(self.writes.put(keyspace, key.as_ref(), value.as_ref())?)
    }

    /// Like [`delete`](LockTransaction::delete), in `keyspace`.
    ///
    /// # Errors
    ///
    /// Those of [`put`](LockTransaction::put).
    pub fn delete_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<(), TransactionError> {
        self.lock_key(keyspace, key.as_ref(), Mode::Exclusive)?;
        Ok(self.writes.delete(keyspace, key.as_ref())?)
    }

    /// Like [`merge`](LockTransaction::merge), in `keyspace`.
    ///
    /// # Errors
    ///
    /// Those of [`put`](LockTransaction::put).
    pub fn merge_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<(), TransactionError> {
        self.lock_key(keyspace, key.as_ref(), Mode::Exclusive)?;
        Ok(self.writes.merge(keyspace, key.as_ref(), operand.as_ref())?)
    }

    /// Like [`delete_range`](LockTransaction::delete_range), in `keyspace`.
    ///
    /// # Errors
    ///
    /// Those of [`put`](LockTransaction::put).
    pub fn delete_range_in<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> Result<(), TransactionError> {
        let Some((start, end)) = normalize_range(range)? else { return Ok(()) };
        self.lock(keyspace, Target::range((start.clone(), end.clone())), Mode::Exclusive)?;
        let end = end.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        Ok(self.writes.delete_range(keyspace, (std::ops::Bound::Included(start), end))?)
    }

    /// Returns a savepoint for [`rollback_to`](LockTransaction::rollback_to).
    pub fn savepoint(&mut self) -> Savepoint {
        self.writes.savepoint()
    }

    /// Undoes all writes made since `savepoint`. Locks stay.
    ///
    /// # Errors
    ///
    /// [`TransactionError::NoSavepoint`] if the savepoint was forgotten or is another
    /// transaction's.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<(), TransactionError> {
        self.writes.rollback_to(savepoint)
    }

    /// Commits, releases all locks, and returns the sequence number of the last write. Without
    /// writes, returns the last visible number.
    ///
    /// # Errors
    ///
    /// [`TransactionError::Conflict`] if a writer without locks has written what the transaction
    /// has read; [`TransactionError::TooOld`] and [`TransactionError::Write`] as for
    /// [`Transaction::commit`](crate::Transaction::commit). Locks are released in any case.
    pub fn commit(mut self) -> Result<u64, TransactionError> {
        if self.writes.is_empty() {
            return Ok(self.db.handle().inner.visible());
        }
        let parts = self.take_parts();
        let inner = &self.db.handle().inner;
        let durability = self.options.durability.unwrap_or(inner.options.durability);
        let batch = self.writes.batch();
        let sync = durability == Durability::Sync;
        // The locks are released at the end of this call, after the commit is visible.
        inner.write_if(batch, sync, Condition::new(parts))
    }

    /// Returns what the commit depends on: that others have not written what was read, and that the
    /// keyspaces written to exist.
    fn take_parts(&mut self) -> SmallVec<[KeyspaceFootprint; 1]> {
        let mut parts = self.reads.take_parts(&self.db.handle().inner.transactions.history.bugs);
        parts.extend(self.writes.keyspaces().cloned().map(KeyspaceFootprint::existence));
        parts
    }

    /// Discards the transaction's writes and releases its locks, as dropping it does.
    pub fn rollback(self) {}

    /// Prepares the transaction for a commit that cannot fail for reasons of its own. Its writes
    /// are stored durably under `name`, whatever the durability option, and become visible when the
    /// transaction is [committed](PreparedTransaction::commit), by this process or, after a crash,
    /// by the next one. For coordinating with another system: prepare both, then commit both.
    ///
    /// Shared locks are released; exclusive ones are held until the commit or abort, by whichever
    /// process has the database open. Writers without locks are not held off, and the commit
    /// overwrites what they write in between: write such keys only in locking transactions.
    ///
    /// # Errors
    ///
    /// Those of [`commit`](LockTransaction::commit): then nothing is prepared.
    /// [`TransactionError::PreparedExists`] if another transaction is prepared under this name.
    /// After a failed system call, the next opening shows whether this one was prepared.
    pub fn prepare(mut self, name: impl AsRef<[u8]>) -> Result<PreparedTransaction, TransactionError> {
        check_key(name.as_ref()).map_err(TransactionError::Write)?;
        let (name, owner) = (name.as_ref().to_vec(), self.held.owner);
        let parts = self.take_parts();
        let prepared = self.db.store_prepared(&name, owner, &self.writes.batch(), parts)?;
        self.held.passed_on = true;
        self.db.handle().inner.transactions.locks.release_shared(owner);
        Ok(prepared)
    }
}
