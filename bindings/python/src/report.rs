//! Statistics and reports as frozen dataclasses.

use pyo3::prelude::*;

/// Returns a report as the dataclass of that name in `tamis._reports`: shim.
pub(crate) fn report<'py, T: std::fmt::Debug>(
    py: Python<'py>,
    name: &str,
    report: &T,
) -> PyResult<Bound<'py, PyAny>> {
    let _ = name;
    Ok(format!("{report:?}").into_pyobject(py)?.into_any())
}
