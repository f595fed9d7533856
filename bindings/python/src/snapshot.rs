//! Snapshots: the database as of one moment.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tamis::Snapshot;

use crate::errors::ended;
use crate::handle::{Core, Slot};
use crate::keyspace::PyKeyspace;
use crate::reader::{Reader, Source};

const RELEASED: &str = "the snapshot was released";

/// All keyspaces of the database as of one moment, to be read.
///
/// Its methods read the default keyspace; those of `of(keyspace)` any other. Old versions stay on disk while it lives: use it as a
/// context manager, or call `close`.
#[pyclass(module = "tamis", extends = Reader, frozen, name = "Snapshot")]
pub(crate) struct PySnapshot;

impl PySnapshot {
    pub(crate) fn take(py: Python<'_>, core: &Arc<Core>) -> PyResult<Py<PySnapshot>> {
        let db = core.db()?;
        let snapshot = py.detach(|| db.snapshot());
        let source = Source::Snapshot(Arc::new(Slot::new(snapshot, RELEASED)));
        let reader = Reader::new(core.clone(), db.default_keyspace().clone(), source);
        Py::new(py, PyClassInitializer::from(reader).add_subclass(PySnapshot))
    }

    fn slot<'a>(slf: &'a Bound<'_, Self>) -> PyResult<&'a Arc<Slot<Snapshot>>> {
        let reader = slf.as_super().get();
        reader.core.db()?;
        match &reader.source {
            Source::Snapshot(slot) => Ok(slot),
            Source::Now | Source::Transaction(_) => Err(ended(RELEASED)),
        }
    }
}

#[pymethods]
impl PySnapshot {
    /// Return `keyspace` as of this snapshot.
    fn keyspace(slf: &Bound<'_, Self>, keyspace: &Bound<'_, PyKeyspace>) -> PyResult<Reader> {
        let slot = Self::slot(slf)?;
        let keyspace = keyspace.as_super().get().keyspace.clone().into_inner();
        Ok(Reader::new(slf.as_super().get().core.clone(), keyspace, Source::Snapshot(slot.clone())))
    }

    /// The sequence number of the last write that the snapshot sees.
    #[getter]
    fn seq(slf: &Bound<'_, Self>) -> PyResult<u64> {
        Self::slot(slf)?.with(|snapshot| Ok(snapshot.seq()))
    }

    /// Release what the snapshot keeps; iterators of it go on. A second call does nothing.
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        match Self::slot(slf) {
            Ok(slot) => slf.py().detach(|| slot.take().map(drop)),
            Err(_) => Ok(()),
        }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exc_info))]
    fn __exit__(slf: &Bound<'_, Self>, _exc_info: &Bound<'_, PyTuple>) -> PyResult<()> {
        Self::close(slf)
    }
}
