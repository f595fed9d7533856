//! The native part of the Python package `tamis`. The package's own Python files stand beside it in `python/tamis`.

mod batch;
mod bytes;
mod database;
mod errors;
mod handle;
mod heatmap;
mod iter;
mod keyspace;
mod memory;
mod operators;
mod options;
mod reader;
mod report;
mod snapshot;
mod table;
mod transaction;

/// The module `tamis._tamis`.
#[pyo3::pymodule(gil_used = false)]
mod _tamis {
    use pyo3::prelude::*;

    /// The version of the engine and of this package.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "its name in Python")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// What is here belongs to the process, and is closed when the main interpreter ends.
    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::handle::refuse_subinterpreters()
    }

    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::database::{_salvage, _verify_at, Database};
    #[pymodule_export]
    use crate::handle::_after_fork_in_child;
    #[pymodule_export]
    use crate::iter::Items;
    #[pymodule_export]
    use crate::keyspace::PyKeyspace;
    #[pymodule_export]
    use crate::memory::{SharedReadMemory, SharedWriteMemory};
    #[pymodule_export]
    use crate::options::_describe_options;
    #[pymodule_export]
    use crate::reader::Reader;
    #[pymodule_export]
    use crate::snapshot::PySnapshot;
    #[pymodule_export]
    use crate::table::TableBuilder;
    #[pymodule_export]
    use crate::transaction::{PyLockTransaction, PyPrepared, PySavepoint, PyTransaction, TransactionView};
}
