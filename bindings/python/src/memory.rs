//! Memory that several databases share.

use pyo3::prelude::*;
use tamis::options;

use crate::report::report;

/// Memory for the block caches and elastic filters of several databases in this process, divided between them to save the most block
/// reads: ``tamis.open(path, shared_read_memory=memory)``.
///
/// ``bytes``, the total, may be changed in use; what exceeds a smaller one is evicted at once.
#[pyclass(module = "tamis", frozen)]
pub(crate) struct SharedReadMemory(pub(crate) options::SharedReadMemory);

#[pymethods]
impl SharedReadMemory {
    #[new]
    fn new(bytes: u64) -> SharedReadMemory {
        SharedReadMemory(options::SharedReadMemory::new(bytes))
    }

    /// The total in bytes.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    #[setter]
    fn set_bytes(&self, py: Python<'_>, bytes: u64) {
        py.detach(|| self.0.set_bytes(bytes));
    }

    /// Return the shares of all open databases, in the order in which they were opened.
    fn members<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let members = py.detach(|| self.0.members());
        report(py, "ReadMemoryShare", &members)
    }
}

/// Memory for the memtables of several databases in this process: ``tamis.open(path, shared_write_memory=memory)``.
///
/// Beyond half of it the largest memtable of all is flushed, also that of an idle database; beyond all of it writers wait for flushes of
/// their database. ``bytes``, the total, may be changed in use.
#[pyclass(module = "tamis", frozen)]
pub(crate) struct SharedWriteMemory(pub(crate) options::SharedWriteMemory);

#[pymethods]
impl SharedWriteMemory {
    #[new]
    fn new(bytes: u64) -> SharedWriteMemory {
        SharedWriteMemory(options::SharedWriteMemory::new(bytes))
    }

    /// The total in bytes.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    #[setter]
    fn set_bytes(&self, bytes: u64) {
        self.0.set_bytes(bytes);
    }

    /// Return what the memtables of all open databases take, in the order in which they were opened.
    fn members<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        report(py, "WriteMemoryUse", &self.0.members())
    }
}
