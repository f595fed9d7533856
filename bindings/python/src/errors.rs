//! Errors of the engine as Python exceptions.
//!
//! Which exception stands for a code is decided in Python, by `tamis._errors.raised`, beside the classes.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Turns an error of the engine into an exception.
pub(crate) trait OrRaise<T> {
    fn or_raise(self) -> PyResult<T>;
}

impl<T, E: Into<tamis::Error>> OrRaise<T> for Result<T, E> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| raised(&error.into()))
    }
}

/// Returns the exception for an error of the engine.
pub(crate) fn raised(error: &tamis::Error) -> PyErr {
    let (code, errno, path) = shim::parts(error);
    exception(code, error.to_string(), errno, path)
}

/// Returns the exception for the use of something that has ended.
pub(crate) fn closed(what: &str) -> PyErr {
    exception("closed", what.to_owned(), None, None)
}

/// Returns the exception for an argument that is out of range.
pub(crate) fn invalid_argument(what: String) -> PyErr {
    exception("invalid_argument", what, None, None)
}

fn exception(code: &str, message: String, errno: Option<i32>, path: Option<String>) -> PyErr {
    static RAISED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    Python::attach(|py| {
        let made = RAISED
            .get_or_try_init(py, || py.import("tamis._errors")?.getattr("raised").map(Bound::unbind))
            .and_then(|raised| raised.bind(py).call1((code, message, errno, path)));
        made.map_or_else(|error| error, PyErr::from_value)
    })
}

mod shim {
    use tamis::*;
    pub(super) fn parts(error: &Error) -> (&'static str, Option<i32>, Option<String>) {
        let code = match error {
            Error::Transaction(TransactionError::Conflict { .. }) => "conflict",
            Error::Open(OpenError::OpenHere { .. }) => "open_here",
            Error::Open(OpenError::Locked { .. }) => "locked",
            Error::Open(OpenError::Options(_)) | Error::Options(_) | Error::Admin(AdminError::Options(_)) => {
                "options"
            }
            Error::Write(WriteError::KeyTooLong { .. }) => "too_long",
            Error::Write(WriteError::ReadOnly) => "read_only",
            Error::Write(WriteError::Closed) => "closed",
            Error::Admin(AdminError::NoKeyspace { .. }) | Error::Open(OpenError::NotFound { .. }) => {
                "not_found"
            }
            Error::Admin(AdminError::KeyspaceExists { .. }) => "exists",
            Error::Storage(StorageError::Io(_)) | Error::Open(OpenError::Storage(StorageError::Io(_))) => {
                "io"
            }
            _ => "other",
        };
        (code, None, None)
    }
}
