//! Reading: one implementation for keyspaces, snapshots and transactions.

use std::sync::Arc;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use tamis::maintenance::is_interrupted;
use tamis::{Iter, Keyspace, Slice, Snapshot};

use crate::bytes::{Bytes, Range, range};
use crate::errors::{OrRaise, interrupted};
use crate::handle::{Core, Held, Slot, patiently};
use crate::iter::{Items, Part, pair};
use crate::transaction::Open;

/// What is read of the keyspace.
#[derive(Clone)]
pub(crate) enum Source {
    /// Its state as of now.
    Now,
    Snapshot(Arc<Slot<Snapshot>>),
    Transaction(Arc<Slot<Open>>),
}

/// A keyspace as it can be read: as of now, as of a snapshot, or within a transaction.
///
/// Keys are bytes-like objects of up to 64 KiB, in the order of their bytes. Values are returned as 'bytes'. All methods may be called
/// from several threads at once, and let other threads run Python code while they read.
///
/// All of them raise ClosedError after a close, Corruption or IoError for what the disk does, and TypeError for keys that are not
/// bytes-like (str must be encoded first).
#[pyclass(module = "tamis", subclass, frozen)]
pub(crate) struct Reader {
    pub(crate) keyspace: Held<Keyspace>,
    pub(crate) source: Source,
    // After what belongs to the database: the last of them may wait for its end.
    pub(crate) core: Arc<Core>,
}

impl Reader {
    pub(crate) fn new(core: Arc<Core>, keyspace: Keyspace, source: Source) -> Reader {
        Reader { keyspace: Held::new(keyspace), source, core }
    }

    /// Looks up a key, detached.
    pub(crate) fn look_up(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Slice>> {
        self.core.db()?;
        patiently(py, || match &self.source {
            Source::Now => self.keyspace.get(key).or_raise(),
            Source::Snapshot(slot) => self.snapshot(slot)?.keyspace(&self.keyspace).get(key).or_raise(),
            Source::Transaction(slot) => slot.with(|open| open.get(&self.keyspace, key)),
        })
    }

    /// A handle of the snapshot, so that threads that read from it do not wait for each other.
    fn snapshot(&self, slot: &Slot<Snapshot>) -> PyResult<Held<Snapshot>> {
        slot.with(|snapshot| Ok(Held::new(snapshot.clone())))
    }

    fn scan(&self, range: Range) -> PyResult<Iter> {
        match &self.source {
            Source::Now => Ok(self.keyspace.range(range)),
            Source::Snapshot(slot) => Ok(self.snapshot(slot)?.keyspace(&self.keyspace).range(range)),
            Source::Transaction(slot) => slot.with(|open| open.range(&self.keyspace, range)),
        }
    }

    fn iterator(&self, py: Python<'_>, range: Range, part: Part, reverse: bool) -> PyResult<Items> {
        self.core.db()?;
        let iter = patiently(py, || self.scan(range))?;
        let precise = matches!(self.source, Source::Transaction(_));
        Ok(Items::new(self.core.clone(), iter, part, reverse, precise))
    }

    fn end<'py>(&self, py: Python<'py>, last: bool) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.core.db()?;
        let item = patiently(py, || {
            let mut iter = self.scan(range(None, None, None, true, false))?;
            let item = if last { iter.next_back() } else { iter.next() };
            item.transpose().or_raise()
        })?;
        item.map(|(key, value)| pair(py, &key, &value)).transpose()
    }
}

/// Returns bytes for Python.
pub(crate) fn bytes<'py>(py: Python<'py>, value: &[u8]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, value)
}

#[pymethods]
impl Reader {
    /// Returns the value of `key`, or raises KeyError.
    fn __getitem__<'py>(&self, py: Python<'py>, key: Bytes<'py>) -> PyResult<Bound<'py, PyBytes>> {
        match self.look_up(py, &key)? {
            Some(value) => Ok(bytes(py, &value)),
            None => Err(PyKeyError::new_err(bytes(py, &key).unbind())),
        }
    }

    /// Return the value of `key`, or `default` if it has none.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(match self.look_up(py, &key)? {
            Some(value) => Some(bytes(py, &value).into_any()),
            None => default,
        })
    }

    fn __contains__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<bool> {
        Ok(self.look_up(py, &key)?.is_some())
    }

    /// Return the values of several keys in their order; None for keys that have none.
    ///
    /// Cheaper than as many gets: their cache misses, or reads of the disk, overlap. All are read from one state.
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        self.core.db()?;
        let keys = keys.try_iter()?.map(|key| key?.extract::<Bytes<'_>>()).collect::<PyResult<Vec<_>>>()?;
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        let values = patiently(py, || match &self.source {
            Source::Now => self.keyspace.multi_get(&keys).or_raise(),
            Source::Snapshot(slot) => {
                self.snapshot(slot)?.keyspace(&self.keyspace).multi_get(&keys).or_raise()
            }
            Source::Transaction(slot) => slot.with(|open| open.multi_get(&self.keyspace, &keys)),
        })?;
        Ok(values.into_iter().map(|value| value.map(|value| bytes(py, &value))).collect())
    }

    /// Return an iterator over the keys.
    fn __iter__(&self, py: Python<'_>) -> PyResult<Items> {
        self.iterator(py, range(None, None, None, true, false), Part::Keys, false)
    }

    /// Return an iterator over the keys, the last one first.
    fn __reversed__(&self, py: Python<'_>) -> PyResult<Items> {
        self.iterator(py, range(None, None, None, true, false), Part::Keys, true)
    }

    /// Return an iterator over pairs of key and value, in the order of keys (with `reverse`, the last one first).
    ///
    /// `prefix`: only keys that begin with it. `start`, `stop`: only keys between them; `include_start` and `include_stop` say whether
    /// they belong to it. Shows exactly the state at the time of the call, whatever is written meanwhile, and keeps that from being
    /// freed until it is exhausted, closed or dropped.
    #[pyo3(signature = (prefix=None, start=None, stop=None, *, reverse=false, include_start=true, include_stop=false))]
    #[allow(clippy::too_many_arguments, reason = "named in Python")]
    fn items(
        &self,
        py: Python<'_>,
        prefix: Option<Bytes<'_>>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        reverse: bool,
        include_start: bool,
        include_stop: bool,
    ) -> PyResult<Items> {
        let range = range(prefix.as_deref(), start.as_deref(), stop.as_deref(), include_start, include_stop);
        self.iterator(py, range, Part::Items, reverse)
    }

    /// Return an iterator over keys; arguments as for `items`.
    #[pyo3(signature = (prefix=None, start=None, stop=None, *, reverse=false, include_start=true, include_stop=false))]
    #[allow(clippy::too_many_arguments, reason = "named in Python")]
    fn keys(
        &self,
        py: Python<'_>,
        prefix: Option<Bytes<'_>>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        reverse: bool,
        include_start: bool,
        include_stop: bool,
    ) -> PyResult<Items> {
        let range = range(prefix.as_deref(), start.as_deref(), stop.as_deref(), include_start, include_stop);
        self.iterator(py, range, Part::Keys, reverse)
    }

    /// Return an iterator over values; arguments as for `items`.
    #[pyo3(signature = (prefix=None, start=None, stop=None, *, reverse=false, include_start=true, include_stop=false))]
    #[allow(clippy::too_many_arguments, reason = "named in Python")]
    fn values(
        &self,
        py: Python<'_>,
        prefix: Option<Bytes<'_>>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        reverse: bool,
        include_start: bool,
        include_stop: bool,
    ) -> PyResult<Items> {
        let range = range(prefix.as_deref(), start.as_deref(), stop.as_deref(), include_start, include_stop);
        self.iterator(py, range, Part::Values, reverse)
    }

    /// Return the first key and its value; None if there is none.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.end(py, false)
    }

    /// Return the last key and its value; None if there is none.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.end(py, true)
    }

    /// Return the exact number of keys. Costs a scan of all of them, without their values: `approximate_len` is the cheap one.
    ///
    /// Python asks for it, too, when it makes a list of a mapping: `list(db.keys())` scans once, and `list(db)` twice.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.core.db()?;
        patiently(py, || {
            let mut keys = self.scan(range(None, None, None, true, false))?.keys();
            let mut count = 0;
            while let Some(key) = keys.next_ref() {
                key.or_raise()?;
                count += 1;
                if count % 1024 == 0 && is_interrupted() {
                    return Err(interrupted());
                }
            }
            Ok(count)
        })
    }

    /// Report whether there is any key. Costs the look at the first one.
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.end(py, false)?.is_some())
    }

    /// The keyspace's name.
    #[getter]
    fn name(&self) -> &str {
        self.keyspace.name()
    }
}
