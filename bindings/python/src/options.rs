//! Options from Python: by the engine's names, as text or as plain values.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyDict, PyFloat, PyInt, PyString};
use tamis::operators::Operators;
use tamis::{KeyspaceOptions, Options};
use tamis_bindings::options::{BESIDE, Opening};

use crate::errors::failed;
use crate::operators::PythonMerge;

/// Returns the value of an option as the engine reads it.
fn text(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(flag.is_true().to_string());
    }
    if value.is_none() {
        return Ok("none".to_owned());
    }
    if value.is_instance_of::<PyDelta>() {
        let micros = value.call_method1("__floordiv__", (one_microsecond(value.py())?,))?;
        return Ok(format!("{micros} us"));
    }
    if value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyInt>()
        || value.is_instance_of::<PyFloat>()
    {
        return Ok(value.str()?.to_string());
    }
    let found = value.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "option `{name}` takes text, a number, a bool, a timedelta or None, not {found}"
    )))
}

fn one_microsecond(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("datetime")?.getattr("timedelta")?.call1((0, 0, 1))
}

/// Returns options as pairs of name and text.
pub(crate) fn pairs(given: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<(String, String)>> {
    let pair = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name: String = name.extract()?;
        let text = text(&name, &value)?;
        Ok((name, text))
    };
    given.map_or(Ok(Vec::new()), |given| given.iter().map(pair).collect())
}

/// Reads the options of a keyspace.
pub(crate) fn of_keyspace(given: Option<&Bound<'_, PyDict>>) -> PyResult<KeyspaceOptions> {
    let mut options = KeyspaceOptions::default();
    for (name, value) in pairs(given)? {
        tamis_bindings::options::set_of_keyspace(&mut options, &name, &value).map_err(failed)?;
    }
    Ok(options)
}

/// Reads the options of a database and, by their bare names, those of its default keyspace and of new ones.
pub(crate) fn of_database(operators: &Bound<'_, PyAny>, given: &Bound<'_, PyDict>) -> PyResult<Opening> {
    let mut options = Opening::default();
    for (name, value) in pairs(Some(given))? {
        tamis_bindings::options::set(&mut options, &name, &value).map_err(failed)?;
    }
    let mut known = Operators::new();
    for operator in operators.try_iter()? {
        known = known.with_merge(Arc::new(PythonMerge::from_object(&operator?)?));
    }
    options.operators = known;
    Ok(options)
}

/// Returns options by name from their text form: lines of `name = value`.
pub(crate) fn dict<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyDict>> {
    let options = PyDict::new(py);
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or("");
        if let Some((name, value)) = line.split_once('=') {
            options.set_item(name.trim(), value.trim())?;
        }
    }
    Ok(options)
}

/// Returns the options of databases and of keyspaces: name, default and documentation of each.
#[pyfunction]
pub(crate) fn _describe_options() -> (Vec<OptionRow>, Vec<OptionRow>) {
    let rows = |options: Vec<tamis::options::OptionInfo>| -> Vec<OptionRow> {
        options.into_iter().map(|option| (option.name, option.default, option.takes, option.doc)).collect()
    };
    let mut of_database = rows(Options::describe());
    of_database
        .extend(BESIDE.map(|option| (option.name, option.default, option.takes.to_owned(), option.doc)));
    (of_database, rows(KeyspaceOptions::describe()))
}

type OptionRow = (&'static str, &'static str, String, &'static str);
