//! Optimistic transactions. See the [module above](super).

use std::cell::RefCell;
use std::ops::RangeBounds;
use std::sync::Arc;

use smallvec::SmallVec;
use tamis_filter::Digest;

use crate::conflicts::bugs::{Bug, Bugs};
use crate::conflicts::condition::Condition;
use crate::conflicts::footprint::KeyspaceFootprint;
use crate::error::{ReadError, TransactionError, WriteError};
use crate::handles::handle::{Db, Keyspace};
use crate::handles::pin::SnapshotPin;
use crate::options::Durability;
use crate::read::{Bounds, Iter, Life, Lookup, Overlay};
use crate::slice::Slice;
use crate::transaction::options::{Isolation, TransactionOptions};
use crate::transaction::reads::Reads;
use crate::transaction::savepoint::Savepoint;
use crate::transaction::writes::Writes;

/// An optimistic transaction: it sees the database as of its beginning with its own writes on top,
/// across keyspaces. When it commits, its writes become visible together, or not at all.
///
/// Nothing is locked. Instead, the commit fails with [`TransactionError::Conflict`] if somebody
/// else has meanwhile written what the transaction depends on (see [`Isolation`]); [`Db::transact`]
/// then tries again. Plain writes count like transactions. Dropping a transaction discards its
/// writes. Its iterators end with it: from then on they return [`ReadError::Ended`].
///
/// It has the read methods of [`Readable`](crate::Readable), no import needed: they read the
/// default keyspace. For any other keyspace, use [`Transaction::keyspace`].
///
/// Beginning one costs as much as a snapshot. A read costs as much as a snapshot's, plus a few tens
/// of nanoseconds to note it if it will be validated. Pending writes are in memory, and so are the
/// keys read. Like a snapshot, an open transaction keeps old versions on disk;
/// [`transaction_history_bytes`](crate::Options::transaction_history_bytes) limits how long it may
/// stay open.
///
/// ```
/// use tamis::Db;
///
/// # let dir = tempfile::tempdir()?;
/// let db = Db::open(dir.path())?;
/// db.put("ada", "100")?;
/// let mut transaction = db.transaction();
/// let mut balance: u64 = std::str::from_utf8(&transaction.get("ada")?.unwrap())?.parse()?;
/// balance -= 30;
/// transaction.put("ada", balance.to_string())?;
/// transaction.put("kurt", "30")?;
/// assert_eq!(transaction.get("ada")?.unwrap(), "70");
/// assert_eq!(db.get("ada")?.unwrap(), "100");
/// transaction.commit()?;
/// assert_eq!(db.get("kurt")?.unwrap(), "30");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a transaction that is dropped forgets its writes"]
pub struct Transaction {
    pub(crate) db: Db,
    pin: Arc<SnapshotPin>,
    options: TransactionOptions,
    /// What was read, if the commit validates it.
    reads: RefCell<Reads>,
    writes: Writes,
    /// Its iterators end with it.
    life: Life,
}

debug_as!(Transaction, "Transaction", transaction =>
    "seq": transaction.pin.seq,
    "writes": transaction.writes.changes(),
    "path": transaction.db.inner().dir
);

impl Transaction {
    pub(crate) fn begin(db: &Db, options: TransactionOptions) -> Transaction {
        Transaction {
            db: db.clone(),
            pin: SnapshotPin::new(db.handle(), true),
            options,
            reads: RefCell::default(),
            writes: Writes::new(db.handle().inner.instance),
            life: Life::default(),
        }
    }

    /// Returns the sequence number up to which the transaction sees others' writes.
    pub fn seq(&self) -> u64 {
        self.pin.seq
    }

    /// Sets the value of `key` to `value`.
    ///
    /// # Errors
    ///
    /// [`WriteError::KeyTooLong`], [`WriteError::ValueTooLong`].
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), WriteError> {
        self.writes.put(self.db.default_keyspace(), key.as_ref(), value.as_ref())
    }

    /// Deletes `key`; it need not exist.
    ///
    /// # Errors
    ///
    /// [`WriteError::KeyTooLong`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<(), WriteError> {
        self.writes.delete(self.db.default_keyspace(), key.as_ref())
    }

    /// Applies `operand` to the value of `key` with the merge operator of the default keyspace,
    /// without reading the value: merging alone counts as a write of the key, not as a read.
    ///
    /// # Errors
    ///
    /// [`WriteError::NoMergeOperator`], and those of [`put`](Transaction::put).
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<(), WriteError> {
        self.writes.merge(self.db.default_keyspace(), key.as_ref(), operand.as_ref())
    }

    /// Deletes all keys in a range: those that the transaction sees, and those that others write
    /// before it commits. With [`Isolation::Snapshot`] the whole range counts as written.
    /// # Errors
    ///
    /// [`WriteError::ReversedRange`], [`WriteError::KeyTooLong`].
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, range: impl RangeBounds<K>) -> Result<(), WriteError> {
        self.writes.delete_range(self.db.default_keyspace(), range)
    }

    /// Like [`put`](Transaction::put), in `keyspace`.
    ///
    /// # Errors
    ///
    /// Those of [`put`](Transaction::put), [`WriteError::ForeignKeyspace`] and
    /// [`WriteError::Dropped`].
    pub fn put_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), WriteError> {
        self.writes.put(keyspace, key.as_ref(), value.as_ref())
    }

    /// Like [`delete`](Transaction::delete), in `keyspace`.
    ///
    /// # Errors
    ///
    /// Those of [`delete`](Transaction::delete), [`WriteError::ForeignKeyspace`] and
    /// [`WriteError::Dropped`].
    pub fn delete_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<(), WriteError> {
        self.writes.delete(keyspace, key.as_ref())
    }

    /// Like [`merge`](Transaction::merge), in `keyspace`.
    ///
    /// # Errors
    ///
    /// Those of [`merge`](Transaction::merge), [`WriteError::ForeignKeyspace`] and
    /// [`WriteError::Dropped`].
    pub fn merge_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<(), WriteError> {
        self.writes.merge(keyspace, key.as_ref(), operand.as_ref())
    }

    /// Like [`delete_range`](Transaction::delete_range), in `keyspace`.
    ///
    /// # Errors
    ///
    /// Those of [`delete_range`](Transaction::delete_range), [`WriteError::ForeignKeyspace`] and
    /// [`WriteError::Dropped`].
    pub fn delete_range_in<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> Result<(), WriteError> {
        self.writes.delete_range(keyspace, range)
    }

    /// Returns a savepoint for [`rollback_to`](Transaction::rollback_to). From now until the end of
    /// the transaction, each write takes memory for undoing it.
    pub fn savepoint(&mut self) -> Savepoint {
        self.writes.savepoint()
    }

    /// Undoes all writes made since `savepoint`, and discards the savepoints set since; this one
    /// remains. Reads stay noted: what the program has seen may have influenced it.
    ///
    /// # Errors
    ///
    /// [`TransactionError::NoSavepoint`] if the savepoint was discarded or belongs to another
    /// transaction.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path())?;
    /// let mut transaction = db.transaction();
    /// transaction.put("a", "1")?;
    /// let before = transaction.savepoint();
    /// transaction.delete("a")?;
    /// transaction.rollback_to(before)?;
    /// assert_eq!(transaction.get("a")?.unwrap(), "1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<(), TransactionError> {
        self.writes.rollback_to(savepoint)
    }

    /// Reports whether the transaction has written anything.
    pub fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Commits, and returns the sequence number of the transaction's last write; without writes,
    /// that of its snapshot. Concurrent commits and plain writes share one log record, and one sync
    /// if any of them asks for one.
    ///
    /// # Errors
    ///
    /// [`TransactionError::Conflict`] if somebody else has written what the transaction depends on:
    /// nothing was committed, and a new attempt may succeed. [`TransactionError::TooOld`] if that
    /// is no longer known. [`TransactionError::Write`] for any other error of a [write](Db::write).
    /// After a failed system call, the transaction may or may not be there when the database is
    /// opened again.
    pub fn commit(self) -> Result<u64, TransactionError> {
        if !self.has_writes() {
            return Ok(self.seq());
        }
        let inner = &self.db.handle().inner;
        let durability = self.options.durability.unwrap_or(inner.options.durability);
        let condition = Condition::new(self.footprint());
        inner.write_if(self.writes.batch(), durability == Durability::Sync, condition)
    }

    /// Discards the transaction's writes, as dropping it does.
    pub fn rollback(self) {}

    /// Returns what others must not have written when the transaction commits.
    fn footprint(&self) -> SmallVec<[KeyspaceFootprint; 1]> {
        let since = self.seq();
        if self.notes_reads() {
            let mut parts = self.reads.borrow_mut().take_parts(self.bugs());
            // Keyspaces that were only written to must still exist.
            for keyspace in self.writes.keyspaces() {
                if !parts.iter().any(|part| part.keyspace.id == keyspace.id) {
                    parts.push(KeyspaceFootprint::existence(keyspace.clone()));
                }
            }
            return parts;
        }
        let mut parts = SmallVec::new();
        for (keyspace, mut points, mut ranges) in self.writes.written(since) {
            points.retain(|_| !self.bugs().make(Bug::Points));
            ranges.retain(|_| !self.bugs().make(Bug::Ranges));
            parts.push(KeyspaceFootprint::new(keyspace.clone(), since, points, ranges));
        }
        parts
    }

    fn bugs(&self) -> &Bugs {
        &self.db.handle().inner.transactions.history.bugs
    }

    fn notes_reads(&self) -> bool {
        self.options.isolation == Isolation::Serializable
    }

    /// Looks up what is committed as of the transaction's snapshot.
    fn lookup_committed(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Slice>, ReadError> {
        let pin = (!self.bugs().make(Bug::Unpinned)).then_some(&*self.pin);
        let (found, digest) = keyspace.lookup_digested(key, pin);
        if self.notes_reads() {
            let digest = digest.unwrap_or_else(|| Digest::of(key));
            self.reads.borrow_mut().note(&keyspace.inner, key, digest, self.seq());
        }
        Ok(found?.value())
    }

    pub(crate) fn lookup(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Lookup, ReadError> {
        let value = match self.writes.of(keyspace.inner.id) {
            None => self.lookup_committed(keyspace, key)?,
            Some(pending) => match pending.get(key) {
                None if pending.hides(key) => None,
                None => self.lookup_committed(keyspace, key)?,
                Some(writes) => {
                    let committed = match writes.needs_committed() {
                        true => self.lookup_committed(keyspace, key)?,
                        false => None,
                    };
                    writes.value(key, committed, keyspace.inner.operators.merge.as_deref())?
                }
            },
        };
        // No number, because the value may be pending.
        Ok(value.map_or(Lookup::Absent, |value| Lookup::Found { seq: 0, value }))
    }

    pub(crate) fn lookup_many<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Option<Slice>>, ReadError> {
        let pending = self.writes.of(keyspace.inner.id);
        let is_committed = |key: &&[u8]| {
            pending.is_none_or(|pending| match pending.get(key) {
                Some(writes) => writes.needs_committed(),
                None => !pending.hides(key),
            })
        };
        let asked: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).filter(is_committed).collect();
        if self.notes_reads() {
            let mut reads = self.reads.borrow_mut();
            asked.iter().for_each(|key| reads.note(&keyspace.inner, key, Digest::of(key), self.seq()));
        }
        let mut committed = keyspace.lookup_many(&asked, Some(&self.pin))?.into_iter();
        let Some(pending) = pending else { return Ok(committed.collect()) };
        let value = |key: &K| {
            let key = key.as_ref();
            let found = if is_committed(&key) { committed.next().flatten() } else { None };
            match pending.get(key) {
                Some(writes) => writes.value(key, found, keyspace.inner.operators.merge.as_deref()),
                None => Ok(found),
            }
        };
        keys.iter().map(value).collect()
    }

    pub(crate) fn scan(&self, keyspace: &Keyspace, bounds: Bounds) -> Iter {
        let pending = self.writes.of(keyspace.inner.id).cloned();
        let operator = keyspace.inner.operators.merge.clone();
        let overlay = pending.map(|pending| Overlay::new(pending, operator, &bounds));
        let watch =
            self.notes_reads().then(|| self.reads.borrow_mut().watch(&keyspace.inner, &bounds, self.seq()));
        keyspace.scan(bounds, Some(&self.pin)).within(overlay, watch, self.life.ended())
    }
}
