//! Merge operators written in Python.

use std::fmt;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use tamis::operators::{MergeError, MergeOperator};

use crate::bytes::Bytes;

/// A merge operator whose functions are Python callables. Any thread of the engine may call it: it waits for the interpreter, which the
/// callers of the engine give up.
pub(crate) struct PythonMerge {
    name: String,
    merge: Py<PyAny>,
    partial_merge: Option<Py<PyAny>>,
}

impl fmt::Debug for PythonMerge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PythonMerge").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PythonMerge {
    /// Reads an object with the attributes `name`, `merge` and `partial_merge` (or None).
    pub(crate) fn from_object(object: &Bound<'_, PyAny>) -> PyResult<PythonMerge> {
        let partial_merge = object.getattr("partial_merge")?;
        Ok(PythonMerge {
            name: object.getattr("name")?.extract()?,
            merge: object.getattr("merge")?.unbind(),
            partial_merge: (!partial_merge.is_none()).then(|| partial_merge.unbind()),
        })
    }
}

/// Returns operands as a list.
fn list<'py>(py: Python<'py>, operands: &[&[u8]]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, operands.iter().map(|operand| PyBytes::new(py, operand)))
}

impl MergeOperator for PythonMerge {
    fn name(&self) -> &str {
        &self.name
    }

    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
        let merged = Python::try_attach(|py| -> PyResult<Vec<u8>> {
            let base = base.map(|base| PyBytes::new(py, base));
            let answer = self.merge.bind(py).call1((PyBytes::new(py, key), base, list(py, operands)?))?;
            Ok(answer.extract::<Bytes<'_>>()?.to_vec())
        });
        match merged {
            Some(merged) => merged.map_err(|error| MergeError::new(format!("{}: {error}", self.name))),
            None => Err(MergeError::new(format!("{}: the interpreter has ended", self.name))),
        }
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let function = self.partial_merge.as_ref()?;
        // Without a result operands stay as they are, and the error is met again by whoever reads the key.
        Python::try_attach(|py| {
            let answer = function.bind(py).call1((PyBytes::new(py, key), list(py, operands).ok()?)).ok()?;
            Some(answer.extract::<Option<Bytes<'_>>>().ok()??.to_vec())
        })?
    }
}
