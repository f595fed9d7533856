//! Errors of the engine as Python exceptions.
//!
//! Which exception stands for a code is decided in Python, by `tamis._errors.raised`, beside the classes.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;
use tamis::{
    AdminError, Error, ExternalTableError, OpenError, ReadError, StorageError, TransactionError, WriteError,
};
use tamis_bindings::{Code, Failure};

/// Turns an error of the engine into an exception.
pub(crate) trait OrRaise<T> {
    fn or_raise(self) -> PyResult<T>;
}

impl<T, E: Into<Error>> OrRaise<T> for Result<T, E> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| raised(error.into()))
    }
}

/// Returns the exception for an error of the engine.
pub(crate) fn raised(error: Error) -> PyErr {
    let io = match storage(&error) {
        Some(StorageError::Io(failure)) => Some((failure.code(), failure.path.clone())),
        _ => None,
    };
    exception(Failure::from(error), io)
}

/// Returns the exception for an error of the bindings.
pub(crate) fn failed(failure: Failure) -> PyErr {
    exception(failure, None)
}

/// Returns the exception for the use of something that has ended.
pub(crate) fn ended(what: &str) -> PyErr {
    exception(Failure::new(Code::Ended, what), None)
}

/// Returns the exception for the use of a database that is closed.
pub(crate) fn closed() -> PyErr {
    exception(Failure::closed(), None)
}

/// Returns the exception for the use of a database of the process that this one was forked off.
pub(crate) fn forked() -> PyErr {
    let what = "it was opened by the process that this one was forked off, and only that one can use it";
    exception(Failure::new(Code::Forked, what), None)
}

/// Returns the exception for a call that was given up. What made it so is raised instead.
pub(crate) fn interrupted() -> PyErr {
    exception(Failure::from(AdminError::Interrupted), None)
}

/// Returns the exception for bytes that are too many for a value.
pub(crate) fn too_long(len: usize) -> PyErr {
    exception(Failure::from(WriteError::ValueTooLong { len, max: tamis::MAX_VALUE_BYTES }), None)
}

/// Returns the exception for an argument that is out of range.
pub(crate) fn invalid_argument(what: impl Into<String>) -> PyErr {
    exception(Failure::argument(what), None)
}

fn exception(failure: Failure, io: Option<(Option<i32>, std::path::PathBuf)>) -> PyErr {
    static RAISED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let (errno, path) = io.map_or((None, None), |(errno, path)| (errno, Some(path)));
    Python::attach(|py| {
        let key = failure.key.map(|key| PyBytes::new(py, &key));
        let arguments = (failure.code.name(), failure.text, key, failure.keyspace, errno, path);
        let made = RAISED
            .get_or_try_init(py, || py.import("tamis._errors")?.getattr("raised").map(Bound::unbind))
            .and_then(|raised| raised.bind(py).call1(arguments));
        made.map_or_else(|error| error, PyErr::from_value)
    })
}

/// Returns what went wrong below the engine, if that is what the error is about.
fn storage(error: &Error) -> Option<&StorageError> {
    match error {
        Error::Storage(storage)
        | Error::Open(OpenError::Storage(storage))
        | Error::Read(ReadError::Storage(storage))
        | Error::Write(WriteError::Storage(storage))
        | Error::Transaction(
            TransactionError::Read(ReadError::Storage(storage))
            | TransactionError::Write(WriteError::Storage(storage)),
        )
        | Error::Admin(
            AdminError::Storage(storage)
            | AdminError::Write(WriteError::Storage(storage))
            | AdminError::External(ExternalTableError::Storage(storage)),
        )
        | Error::External(
            ExternalTableError::Storage(storage) | ExternalTableError::Write(WriteError::Storage(storage)),
        ) => Some(storage),
        _ => None,
    }
}
