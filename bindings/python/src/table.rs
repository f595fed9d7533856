//! Tables built outside a database, to be ingested.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tamis::ingest::ExternalTableBuilder;

use crate::bytes::{Bytes, range};
use crate::errors::OrRaise;
use crate::handle::Slot;
use crate::options;
use crate::report::report;

/// Builds a table in the new file `path`, for `Keyspace.ingest`. `options` are those of a keyspace, which its own should be like.
///
/// Keys are added in strictly ascending order. As a context manager it is finished at the end of the block, and removed by an exception.
///
/// Raises:
///     Exists: if there is a file at `path`.
///     InvalidArgument: for a key out of order, a reversed range, and a table without entries.
///     IoError: if the file cannot be written.
#[pyclass(module = "tamis", frozen)]
pub(crate) struct TableBuilder {
    builder: Slot<ExternalTableBuilder>,
}

#[pymethods]
impl TableBuilder {
    #[new]
    #[pyo3(signature = (path, **options))]
    fn new(py: Python<'_>, path: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<TableBuilder> {
        let options = options::of_keyspace(options)?;
        let path = tamis_bindings::absolute(path);
        let builder = py.detach(|| ExternalTableBuilder::create(path, &options)).or_raise()?;
        Ok(TableBuilder { builder: Slot::new(builder, "the table was finished or dropped") })
    }

    /// Add `key` with its value.
    fn put(&self, py: Python<'_>, key: Bytes<'_>, value: Bytes<'_>) -> PyResult<()> {
        let (key, value) = (&*key, &*value);
        py.detach(|| self.builder.with(|builder| builder.put(key, value).or_raise()))
    }

    /// Add a delete of `key`, which hides a value that the keyspace has.
    fn delete(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<()> {
        let key = &*key;
        py.detach(|| self.builder.with(|builder| builder.delete(key).or_raise()))
    }

    /// Add a delete of all keys from `start` on and before `stop` that the keyspace has; the table's own keys are not hidden.
    #[pyo3(signature = (start=None, stop=None, *, include_start=true, include_stop=false))]
    fn delete_range(
        &self,
        py: Python<'_>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        include_start: bool,
        include_stop: bool,
    ) -> PyResult<()> {
        let range = range(None, start.as_deref(), stop.as_deref(), include_start, include_stop);
        py.detach(|| self.builder.with(|builder| builder.delete_range(range).or_raise()))
    }

    /// Return the number of keys added, deletes included.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let entries = py.detach(|| self.builder.with(|builder| Ok(builder.entries())))?;
        Ok(usize::try_from(entries).unwrap_or(usize::MAX))
    }

    /// Complete the file, and return an ExternalTableInfo.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let info = py.detach(|| self.builder.end()?.finish().or_raise())?;
        report(py, "ExternalTableInfo", &info)
    }

    fn __enter__(slf: Py<TableBuilder>) -> Py<TableBuilder> {
        slf
    }

    #[pyo3(signature = (exc_type, *_exc_info))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: Option<&Bound<'_, PyAny>>,
        _exc_info: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        match py.detach(|| self.builder.take())? {
            Some(builder) if exc_type.is_none() => py.detach(|| builder.finish()).or_raise().map(drop),
            _ => Ok(()),
        }
    }
}
