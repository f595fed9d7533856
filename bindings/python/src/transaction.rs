//! Transactions: optimistic ones, and ones that lock.

use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use tamis::transactions::{
    Isolation, LockOptions, LockTransaction, PreparedTransaction, Savepoint, TransactionOptions,
};
use tamis::{Db, Iter, Keyspace, Slice, Transaction, TransactionError};

use crate::bytes::{Bytes, durability, range, seconds};
use crate::errors::{OrRaise, ended, invalid_argument};
use crate::handle::{Core, Held, Slot, patiently};
use crate::keyspace::PyKeyspace;
use crate::reader::{Reader, Source, bytes};

const ENDED: &str = "the transaction was committed, rolled back or prepared already";

/// A transaction that has not ended. It belongs to one thread at a time, which its slot sees to.
pub(crate) enum Open {
    Optimistic(Transaction),
    Lock(LockTransaction),
}

impl Open {
    pub(crate) fn get(&mut self, keyspace: &Keyspace, key: &[u8]) -> PyResult<Option<Slice>> {
        match self {
            Open::Optimistic(open) => open.keyspace(keyspace).get(key).or_raise(),
            Open::Lock(open) => open.get_in(keyspace, key).or_raise(),
        }
    }

    pub(crate) fn multi_get(&mut self, keyspace: &Keyspace, keys: &[&[u8]]) -> PyResult<Vec<Option<Slice>>> {
        match self {
            Open::Optimistic(open) => open.keyspace(keyspace).multi_get(keys).or_raise(),
            Open::Lock(open) => keys.iter().map(|key| open.get_in(keyspace, key).or_raise()).collect(),
        }
    }

    pub(crate) fn range(&mut self, keyspace: &Keyspace, range: impl RangeBounds<Vec<u8>>) -> PyResult<Iter> {
        match self {
            Open::Optimistic(open) => Ok(open.keyspace(keyspace).range(range)),
            Open::Lock(open) => open.range_in(keyspace, range).or_raise(),
        }
    }

    fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> PyResult<()> {
        match self {
            Open::Optimistic(open) => open.put_in(keyspace, key, value).or_raise(),
            Open::Lock(open) => open.put_in(keyspace, key, value).or_raise(),
        }
    }

    fn delete(&mut self, keyspace: &Keyspace, key: &[u8]) -> PyResult<()> {
        match self {
            Open::Optimistic(open) => open.delete_in(keyspace, key).or_raise(),
            Open::Lock(open) => open.delete_in(keyspace, key).or_raise(),
        }
    }

    fn merge(&mut self, keyspace: &Keyspace, key: &[u8], operand: &[u8]) -> PyResult<()> {
        match self {
            Open::Optimistic(open) => open.merge_in(keyspace, key, operand).or_raise(),
            Open::Lock(open) => open.merge_in(keyspace, key, operand).or_raise(),
        }
    }

    fn delete_range(&mut self, keyspace: &Keyspace, range: impl RangeBounds<Vec<u8>>) -> PyResult<()> {
        match self {
            Open::Optimistic(open) => open.delete_range_in(keyspace, range).or_raise(),
            Open::Lock(open) => open.delete_range_in(keyspace, range).or_raise(),
        }
    }

    fn savepoint(&mut self) -> Savepoint {
        match self {
            Open::Optimistic(open) => open.savepoint(),
            Open::Lock(open) => open.savepoint(),
        }
    }

    fn rollback_to(&mut self, savepoint: Savepoint) -> PyResult<()> {
        match self {
            Open::Optimistic(open) => open.rollback_to(savepoint).or_raise(),
            Open::Lock(open) => open.rollback_to(savepoint).or_raise(),
        }
    }

    fn commit(self) -> Result<u64, TransactionError> {
        match self {
            Open::Optimistic(open) => open.commit(),
            Open::Lock(open) => open.commit(),
        }
    }
}

/// One keyspace as a transaction sees and changes it.
///
/// Writes are seen by this transaction's reads at once, and by others when it commits. All methods raise ClosedError once it has ended.
#[pyclass(module = "tamis", extends = Reader, subclass, frozen)]
pub(crate) struct TransactionView;

impl TransactionView {
    /// Calls `op` with the transaction and the keyspace, detached: it may wait for a lock.
    fn with<R: Send>(
        slf: &Bound<'_, Self>,
        op: impl FnOnce(&mut Open, &Keyspace) -> PyResult<R> + Send,
    ) -> PyResult<R> {
        let (reader, slot) = parts(slf.as_super().get())?;
        patiently(slf.py(), || slot.with(|open| op(open, &reader.keyspace)))
    }
}

/// Returns the reader of a transaction with the transaction.
fn parts(reader: &Reader) -> PyResult<(&Reader, &Arc<Slot<Open>>)> {
    reader.core.db()?;
    match &reader.source {
        Source::Transaction(slot) => Ok((reader, slot)),
        Source::Now | Source::Snapshot(_) => Err(ended(ENDED)),
    }
}

#[pymethods]
impl TransactionView {
    fn __setitem__(slf: &Bound<'_, Self>, key: Bytes<'_>, value: Bytes<'_>) -> PyResult<()> {
        Self::put(slf, key, value)
    }

    /// Deletes `key`, or raises KeyError if it has no value.
    fn __delitem__(slf: &Bound<'_, Self>, key: Bytes<'_>) -> PyResult<()> {
        let found = {
            let key = &*key;
            Self::with(slf, |open, keyspace| {
                let found = open.get(keyspace, key)?.is_some();
                if found { open.delete(keyspace, key).map(|()| true) } else { Ok(false) }
            })?
        };
        if found { Ok(()) } else { Err(crate::keyspace::absent(slf.py(), &key)) }
    }

    /// Set the value of `key`.
    ///
    /// Raises:
    ///     InvalidArgument: for a key or value that is too long.
    ///     Conflict: if a transaction that locks waited too long for the key, or would have waited in a circle.
    fn put(slf: &Bound<'_, Self>, key: Bytes<'_>, value: Bytes<'_>) -> PyResult<()> {
        let (key, value) = (&*key, &*value);
        Self::with(slf, |open, keyspace| open.put(keyspace, key, value))
    }

    /// Delete `key`; one that has no value may be deleted. Raises what `put` raises.
    fn delete(slf: &Bound<'_, Self>, key: Bytes<'_>) -> PyResult<()> {
        let key = &*key;
        Self::with(slf, |open, keyspace| open.delete(keyspace, key))
    }

    /// Apply `operand` to the value of `key` with the keyspace's merge operator. Raises what `put` raises.
    fn merge(slf: &Bound<'_, Self>, key: Bytes<'_>, operand: Bytes<'_>) -> PyResult<()> {
        let (key, operand) = (&*key, &*operand);
        Self::with(slf, |open, keyspace| open.merge(keyspace, key, operand))
    }

    /// Delete all keys from `start` on and before `stop`. Raises what `put` raises, and InvalidArgument for a reversed range.
    #[pyo3(signature = (start=None, stop=None, *, include_start=true, include_stop=false))]
    fn delete_range(
        slf: &Bound<'_, Self>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        include_start: bool,
        include_stop: bool,
    ) -> PyResult<()> {
        let range = range(None, start.as_deref(), stop.as_deref(), include_start, include_stop);
        Self::with(slf, |open, keyspace| open.delete_range(keyspace, range))
    }

    /// Delete all keys that begin with `prefix`. Raises what `put` raises.
    fn delete_prefix(slf: &Bound<'_, Self>, prefix: Bytes<'_>) -> PyResult<()> {
        let range = range(Some(&prefix), None, None, true, false);
        Self::with(slf, |open, keyspace| open.delete_range(keyspace, range))
    }
}

/// A transaction: it reads one state with its own writes on top, and its writes become visible together, or not at all.
///
/// As a context manager it commits at the end of the block, and is rolled back by an exception. Its methods read and write the default
/// keyspace; those of `of(keyspace)` any other. `Database.transaction` and `Database.transact` begin one.
#[pyclass(module = "tamis", extends = TransactionView, subclass, frozen, name = "Transaction")]
pub(crate) struct PyTransaction;

/// A point in a transaction to return to, of `Transaction.savepoint`.
#[pyclass(module = "tamis", frozen, name = "Savepoint")]
pub(crate) struct PySavepoint(Savepoint);

/// What a transaction is validated against, by its name in `docs/transactions.md`.
pub(crate) fn options(isolation: &str, durable: Option<&str>, attempts: u32) -> PyResult<TransactionOptions> {
    let isolation = match isolation {
        "serializable" => Isolation::Serializable,
        "snapshot" => Isolation::Snapshot,
        other => {
            return Err(invalid_argument(format!(
                "isolation is `serializable` or `snapshot`, not `{other}`"
            )));
        }
    };
    if attempts == 0 {
        return Err(invalid_argument("attempts is at least 1"));
    }
    Ok(TransactionOptions { isolation, durability: durability(durable)?, attempts })
}

impl PyTransaction {
    pub(crate) fn begin(py: Python<'_>, core: &Arc<Core>, options: TransactionOptions) -> PyResult<Py<Self>> {
        let db = core.db()?;
        let open = py.detach(|| Open::Optimistic(db.transaction_with(options)));
        Py::new(py, Self::initializer(core, db, open))
    }

    fn initializer(core: &Arc<Core>, db: &Db, open: Open) -> PyClassInitializer<Self> {
        let source = Source::Transaction(Arc::new(Slot::new(open, ENDED)));
        let reader = Reader::new(core.clone(), db.default_keyspace().clone(), source);
        PyClassInitializer::from(reader).add_subclass(TransactionView).add_subclass(PyTransaction)
    }

    fn slot<'a>(slf: &'a Bound<'_, Self>) -> PyResult<&'a Arc<Slot<Open>>> {
        parts(slf.as_super().as_super().get()).map(|(_, slot)| slot)
    }

    /// Commits, and returns the engine's own error.
    pub(crate) fn try_commit(slf: &Bound<'_, Self>) -> PyResult<Result<u64, TransactionError>> {
        let slot = Self::slot(slf)?;
        slf.py().detach(|| slot.end().map(Open::commit))
    }

    /// Forgets the transaction, whatever its state.
    pub(crate) fn forget(slf: &Bound<'_, Self>) -> PyResult<()> {
        match Self::slot(slf) {
            Ok(slot) => slf.py().detach(|| slot.take().map(drop)),
            Err(_) => Ok(()),
        }
    }
}

#[pymethods]
impl PyTransaction {
    /// Return `keyspace` as this transaction sees and changes it.
    fn keyspace(slf: &Bound<'_, Self>, keyspace: &Bound<'_, PyKeyspace>) -> PyResult<Py<TransactionView>> {
        let (reader, slot) = parts(slf.as_super().as_super().get())?;
        let keyspace = keyspace.as_super().get().keyspace.clone().into_inner();
        let reader = Reader::new(reader.core.clone(), keyspace, Source::Transaction(slot.clone()));
        Py::new(slf.py(), PyClassInitializer::from(reader).add_subclass(TransactionView))
    }

    /// Commit, and return the sequence number of the commit. The transaction has ended then, also after an error.
    ///
    /// Raises:
    ///     Conflict: if somebody else has written what the transaction depends on; nothing was committed, and another attempt may succeed.
    ///     Error: for what keeps it from being written.
    fn commit(slf: &Bound<'_, Self>) -> PyResult<u64> {
        Self::try_commit(slf)?.or_raise()
    }

    /// Forget all writes, and end.
    ///
    /// Raises:
    ///     ClosedError: if it has ended already.
    fn rollback(slf: &Bound<'_, Self>) -> PyResult<()> {
        let slot = Self::slot(slf)?;
        slf.py().detach(|| slot.end().map(drop))
    }

    /// Return a point to come back to.
    fn savepoint(slf: &Bound<'_, Self>) -> PyResult<PySavepoint> {
        let slot = Self::slot(slf)?;
        slf.py().detach(|| slot.with(|open| Ok(PySavepoint(open.savepoint()))))
    }

    /// Undo all writes since a savepoint, and forget later savepoints. Reads and locks stay.
    ///
    /// Raises:
    ///     InvalidArgument: if a rollback to an earlier savepoint undid this one, or it belongs to another transaction.
    fn rollback_to(slf: &Bound<'_, Self>, savepoint: &Bound<'_, PySavepoint>) -> PyResult<()> {
        let (slot, savepoint) = (Self::slot(slf)?, savepoint.get().0);
        slf.py().detach(|| slot.with(|open| open.rollback_to(savepoint)))
    }

    /// Whether the transaction has ended.
    #[getter]
    fn ended(slf: &Bound<'_, Self>) -> bool {
        let slot = Self::slot(slf);
        slot.is_err() || slot.is_ok_and(|slot| slf.py().detach(|| slot.with(|_| Ok(())).is_err()))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Commits, or rolls back after an exception. A transaction that was ended within the block is left alone.
    #[pyo3(signature = (exc_type, *_exc_info))]
    fn __exit__(
        slf: &Bound<'_, Self>,
        exc_type: Option<&Bound<'_, PyAny>>,
        _exc_info: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        if exc_type.is_some() {
            return Self::forget(slf);
        }
        if Self::ended(slf) { Ok(()) } else { Self::commit(slf).map(drop) }
    }
}

/// A transaction that locks what it reads and writes, for keys that many want at once.
///
/// Others that lock wait for it; plain writers do not. Locks are held until it ends. A lock that is not granted in time, or that would
/// close a circle of waiting transactions, raises Conflict, which names them: then roll back and begin again.
#[pyclass(module = "tamis", extends = PyTransaction, frozen, name = "LockTransaction")]
pub(crate) struct PyLockTransaction;

impl PyLockTransaction {
    pub(crate) fn begin(
        py: Python<'_>,
        core: &Arc<Core>,
        timeout: f64,
        durable: Option<&str>,
    ) -> PyResult<Py<Self>> {
        let db = core.db()?;
        let options = LockOptions { timeout: seconds("timeout", timeout)?, durability: durability(durable)? };
        let open = Open::Lock(py.detach(|| db.lock_transaction_with(options)).or_raise()?);
        Py::new(py, PyTransaction::initializer(core, db, open).add_subclass(PyLockTransaction))
    }

    fn with<R: Send>(
        slf: &Bound<'_, Self>,
        op: impl FnOnce(&mut LockTransaction) -> PyResult<R> + Send,
    ) -> PyResult<R> {
        let slot = PyTransaction::slot(slf.as_super())?;
        patiently(slf.py(), || {
            slot.with(|open| match open {
                Open::Lock(open) => op(open),
                Open::Optimistic(_) => Err(ended(ENDED)),
            })
        })
    }
}

#[pymethods]
impl PyLockTransaction {
    /// Return the value of `key` (in `keyspace`, if given), and lock it against readers as well as writers.
    ///
    /// Raises:
    ///     Conflict: if the lock was not granted in time, or would close a circle of waiting transactions.
    #[pyo3(signature = (key, default=None, *, keyspace=None))]
    fn get_for_update<'py>(
        slf: &Bound<'py, Self>,
        key: Bytes<'_>,
        default: Option<Bound<'py, PyAny>>,
        keyspace: Option<&Bound<'py, PyKeyspace>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let key = &*key;
        let keyspace = keyspace.map(|keyspace| &*keyspace.as_super().get().keyspace);
        let value = Self::with(slf, |open| match keyspace {
            Some(keyspace) => open.get_for_update_in(keyspace, key).or_raise(),
            None => open.get_for_update(key).or_raise(),
        })?;
        Ok(value.map(|value| bytes(slf.py(), &value).into_any()).or(default))
    }

    /// The transaction's number, by which errors name it.
    #[getter]
    fn number(slf: &Bound<'_, Self>) -> PyResult<u64> {
        Self::with(slf, |open| Ok(open.number()))
    }

    /// Validate the transaction and store its writes durably under `name`, as the first phase of a two-phase commit. It ends.
    ///
    /// Raises:
    ///     Conflict: if somebody else has written what the transaction depends on.
    ///     InvalidArgument: if another transaction is prepared under this name.
    fn prepare(slf: &Bound<'_, Self>, name: Bytes<'_>) -> PyResult<PyPrepared> {
        let core = slf.as_super().as_super().as_super().get().core.clone();
        let slot = PyTransaction::slot(slf.as_super())?;
        let name = &*name;
        let prepared = slf.py().detach(|| match slot.end()? {
            Open::Lock(open) => open.prepare(name).or_raise(),
            Open::Optimistic(_) => Err(ended(ENDED)),
        })?;
        Ok(PyPrepared { prepared: Held::new(prepared), core })
    }
}

/// A transaction that was prepared and not ended: it survives a crash, and holds its locks until `commit` or `abort`.
#[pyclass(module = "tamis", frozen, name = "PreparedTransaction")]
pub(crate) struct PyPrepared {
    prepared: Held<PreparedTransaction>,
    core: Arc<Core>,
}

impl PyPrepared {
    pub(crate) fn all(py: Python<'_>, core: &Arc<Core>) -> PyResult<Vec<PyPrepared>> {
        let db = core.db()?;
        let all = py.detach(|| db.prepared_transactions()).or_raise()?;
        Ok(all.into_iter().map(|one| PyPrepared { prepared: Held::new(one), core: core.clone() }).collect())
    }
}

#[pymethods]
impl PyPrepared {
    /// The name under which it was prepared.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        bytes(py, self.prepared.name())
    }

    /// Make its writes visible and durable.
    ///
    /// Raises:
    ///     InvalidArgument: if it was committed or aborted already.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        self.core.db()?;
        py.detach(|| self.prepared.commit()).or_raise()
    }

    /// Forget its writes. Raises what `commit` raises.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.core.db()?;
        py.detach(|| self.prepared.abort()).or_raise()
    }
}

/// Calls a function with transactions until one of them commits: see `Database.transact`.
pub(crate) fn repeat<'py>(
    py: Python<'py>,
    core: &Arc<Core>,
    options: TransactionOptions,
    function: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut attempt = 0;
    loop {
        let open = PyTransaction::begin(py, core, options)?.into_bound(py);
        // The function's own error is the one to raise.
        let result = function.call1((&open,)).inspect_err(|_| drop(PyTransaction::forget(&open)))?;
        match PyTransaction::try_commit(&open)? {
            Ok(_) => return Ok(result),
            Err(error) if error.is_retryable() && attempt + 1 < options.attempts => {
                attempt += 1;
                py.detach(|| std::thread::sleep(pause(attempt)));
                py.check_signals()?;
            }
            error => return error.or_raise().map(|_| result),
        }
    }
}

/// Returns the pause after a number of conflicts: none at first, then a share of a range that doubles up to 10 ms, drawn by the clock.
fn pause(attempts: u32) -> Duration {
    let Some(doublings) = attempts.checked_sub(3) else { return Duration::ZERO };
    let longest = Duration::from_micros(1 << doublings.min(14)).min(Duration::from_millis(10));
    let drawn = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.subsec_nanos() % 1024);
    longest * drawn / 1024
}
