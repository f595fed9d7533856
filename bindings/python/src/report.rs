//! Statistics and reports as frozen dataclasses.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use serde::Serialize;

/// Returns a report, or a list of them, as the dataclass `name` of `tamis._reports`.
pub(crate) fn report<'py>(
    py: Python<'py>,
    name: &str,
    report: &impl Serialize,
) -> PyResult<Bound<'py, PyAny>> {
    static LOAD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let load =
        LOAD.get_or_try_init(py, || py.import("tamis._reports")?.getattr("load").map(Bound::unbind))?;
    load.bind(py).call1((name, tamis_bindings::json::text(report)))
}
