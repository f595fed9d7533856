//! Keys and values from Python, and back.
//!
//! `bytes` are used in place: they cannot change while other threads run Python code. Everything else with the buffer protocol
//! (`bytearray`, `memoryview`, arrays) is copied once, as it can.

use std::ops::{Bound as End, Deref};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::errors::{invalid_argument, too_long};

/// A bytes-like object.
pub(crate) struct Bytes<'py>(Bound<'py, PyBytes>);

impl<'py> FromPyObject<'_, 'py> for Bytes<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Bytes<'py>> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Bytes(bytes.to_owned()));
        }
        let Ok(view) = PyMemoryView::from(&object) else {
            let name = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!("a bytes-like object is required, not '{name}'")));
        };
        // Pointers, which mean nothing elsewhere.
        let format: String = view.getattr("format")?.extract()?;
        if has_objects(&format) {
            return Err(PyTypeError::new_err(
                "a bytes-like object is required, not an array of Python objects",
            ));
        }
        // What is refused is not copied before.
        let len: usize = view.getattr("nbytes")?.extract()?;
        if len > tamis::MAX_VALUE_BYTES {
            return Err(too_long(len));
        }
        Ok(Bytes(view.call_method0("tobytes")?.cast_into::<PyBytes>()?))
    }
}

/// Reports whether a buffer's format, as the module `struct` and PEP 3118 have it, has Python objects. Names of fields are between colons.
fn has_objects(format: &str) -> bool {
    format.split(':').step_by(2).any(|types| types.contains('O'))
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl AsRef<[u8]> for Bytes<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// A range of keys.
pub(crate) type Range = (End<Vec<u8>>, End<Vec<u8>>);

/// Returns the range of keys that begin with `prefix`, come from `start` on and before `stop`, where given.
pub(crate) fn range(
    prefix: Option<&[u8]>,
    start: Option<&[u8]>,
    stop: Option<&[u8]>,
    include_start: bool,
    include_stop: bool,
) -> Range {
    let end = |key: &[u8], included| {
        if included { End::Included(key.to_vec()) } else { End::Excluded(key.to_vec()) }
    };
    let mut from = start.map_or(End::Unbounded, |key| end(key, include_start));
    let mut to = stop.map_or(End::Unbounded, |key| end(key, include_stop));
    if let Some(prefix) = prefix {
        if start.is_none_or(|start| start < prefix) {
            from = End::Included(prefix.to_vec());
        }
        if let Some(after) = after_prefix(prefix)
            && stop.is_none_or(|stop| stop >= &after[..])
        {
            to = End::Excluded(after);
        }
    }
    (from, to)
}

/// Returns the first key after all that begin with `prefix`, if there is one.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < 0xFF)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

/// Reads a duration in seconds.
pub(crate) fn seconds(name: &str, number: f64) -> PyResult<std::time::Duration> {
    std::time::Duration::try_from_secs_f64(number)
        .map_err(|error| PyValueError::new_err(format!("{name} is not a time in seconds: {error}")))
}

/// Reads a durability by name; `None` stands for that of the database.
pub(crate) fn durability(name: Option<&str>) -> PyResult<Option<tamis::Durability>> {
    name.map(|name| name.parse().map_err(|error| invalid_argument(format!("durability: {error}"))))
        .transpose()
}
