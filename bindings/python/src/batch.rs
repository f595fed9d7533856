//! Batches: writes that are committed together.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tamis::{Durability, Keyspace, WriteBatch};

use crate::bytes::{Bytes, range};
use crate::errors::OrRaise;
use crate::handle::{Core, Held, Slot};
use crate::keyspace::PyKeyspace;

/// Writes that are committed together, across keyspaces: all of them are recovered after a crash, or none.
///
/// As a context manager it commits at the end of the block, and is dropped by an exception. Later writes of a batch win over earlier ones.
/// Nothing is checked before the commit, which raises what a write raises.
#[pyclass(module = "tamis", frozen)]
pub(crate) struct Batch {
    batch: Slot<WriteBatch>,
    keyspace: Held<Keyspace>,
    durability: Option<Durability>,
    core: Arc<Core>,
}

impl Batch {
    pub(crate) fn new(core: Arc<Core>, keyspace: Keyspace, durability: Option<Durability>) -> Batch {
        let batch = Slot::new(WriteBatch::new(), "the batch was committed or dropped");
        Batch { batch, keyspace: Held::new(keyspace), durability, core }
    }

    /// Calls `op` with the batch and the keyspace that is meant. Nothing that holds the batch waits for anything.
    fn with<R>(
        &self,
        keyspace: Option<&Bound<'_, PyKeyspace>>,
        op: impl FnOnce(&mut WriteBatch, &Keyspace) -> R,
    ) -> PyResult<R> {
        self.core.db()?;
        let keyspace = keyspace.map_or(&self.keyspace, |keyspace| &keyspace.as_super().get().keyspace);
        self.batch.with(|batch| Ok(op(batch, keyspace)))
    }
}

#[pymethods]
impl Batch {
    fn __setitem__(&self, key: Bytes<'_>, value: Bytes<'_>) -> PyResult<()> {
        self.put(key, value, None)
    }

    fn __delitem__(&self, key: Bytes<'_>) -> PyResult<()> {
        self.delete(key, None)
    }

    /// Set the value of `key`, in `keyspace` or the one that the batch is of.
    #[pyo3(signature = (key, value, *, keyspace=None))]
    fn put(
        &self,
        key: Bytes<'_>,
        value: Bytes<'_>,
        keyspace: Option<&Bound<'_, PyKeyspace>>,
    ) -> PyResult<()> {
        self.with(keyspace, |batch, keyspace| {
            batch.put_in(keyspace, &key, &value);
        })
    }

    /// Delete `key`; one that has no value may be deleted.
    #[pyo3(signature = (key, *, keyspace=None))]
    fn delete(&self, key: Bytes<'_>, keyspace: Option<&Bound<'_, PyKeyspace>>) -> PyResult<()> {
        self.with(keyspace, |batch, keyspace| {
            batch.delete_in(keyspace, &key);
        })
    }

    /// Apply `operand` to the value of `key` with the keyspace's merge operator.
    #[pyo3(signature = (key, operand, *, keyspace=None))]
    fn merge(
        &self,
        key: Bytes<'_>,
        operand: Bytes<'_>,
        keyspace: Option<&Bound<'_, PyKeyspace>>,
    ) -> PyResult<()> {
        self.with(keyspace, |batch, keyspace| {
            batch.merge_in(keyspace, &key, &operand);
        })
    }

    /// Delete all keys from `start` on and before `stop`.
    #[pyo3(signature = (start=None, stop=None, *, include_start=true, include_stop=false, keyspace=None))]
    fn delete_range(
        &self,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        include_start: bool,
        include_stop: bool,
        keyspace: Option<&Bound<'_, PyKeyspace>>,
    ) -> PyResult<()> {
        let range = range(None, start.as_deref(), stop.as_deref(), include_start, include_stop);
        self.with(keyspace, |batch, keyspace| {
            batch.delete_range_in(keyspace, range);
        })
    }

    /// Delete all keys that begin with `prefix`.
    #[pyo3(signature = (prefix, *, keyspace=None))]
    fn delete_prefix(&self, prefix: Bytes<'_>, keyspace: Option<&Bound<'_, PyKeyspace>>) -> PyResult<()> {
        let range = range(Some(&prefix), None, None, true, false);
        self.with(keyspace, |batch, keyspace| {
            batch.delete_range_in(keyspace, range);
        })
    }

    /// Forget the writes so far.
    fn clear(&self) -> PyResult<()> {
        self.with(None, |batch, _| batch.clear())
    }

    /// Return the number of writes.
    fn __len__(&self) -> PyResult<usize> {
        self.with(None, |batch, _| batch.len())
    }

    /// The size in memory, in bytes.
    #[getter]
    fn byte_len(&self) -> PyResult<usize> {
        self.with(None, |batch, _| batch.byte_len())
    }

    /// Commit the writes. The batch has ended then, also after an error.
    ///
    /// Writes to a keyspace that was dropped since they were added are left out.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let db = self.core.db()?;
        let batch = self.batch.end()?;
        py.detach(|| match self.durability {
            Some(durability) => db.write_with(batch, durability).or_raise(),
            None => db.write(batch).or_raise(),
        })
    }

    fn __enter__(slf: Py<Batch>) -> Py<Batch> {
        slf
    }

    /// Commits, or forgets the writes after an exception.
    #[pyo3(signature = (exc_type, *_exc_info))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: Option<&Bound<'_, PyAny>>,
        _exc_info: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        if exc_type.is_some() {
            return self.batch.take().map(drop);
        }
        self.commit(py)
    }
}
