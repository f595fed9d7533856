//! Errors as LevelDB's callers see them: a kind, which programs recognise by its prefix, and a message.

use std::fmt;

use tamis::{AdminError, OpenError, ReadError, StorageError, WriteError};

/// The kind of an error, in LevelDB's division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Corruption,
    NotSupported,
    InvalidArgument,
    Io,
}

impl Kind {
    /// What messages of the kind begin with.
    fn prefix(self) -> &'static str {
        match self {
            Kind::Corruption => "Corruption",
            Kind::NotSupported => "Not implemented",
            Kind::InvalidArgument => "Invalid argument",
            Kind::Io => "IO error",
        }
    }
}

/// An error on its way to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    kind: Kind,
    what: String,
}

impl Failure {
    pub(crate) fn new(kind: Kind, what: impl Into<String>) -> Failure {
        Failure { kind, what: what.into() }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Failure {
        Failure::new(Kind::InvalidArgument, what)
    }

    /// The failure of a function that panicked: a bug in the engine.
    pub(crate) fn panicked() -> Failure {
        Failure::new(Kind::Io, "the engine failed unexpectedly; close the database and open it again")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.prefix(), self.what)
    }
}

fn kind_of_storage(error: &StorageError) -> Kind {
    match error {
        StorageError::Corrupt(_) => Kind::Corruption,
        _ => Kind::Io,
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Failure {
        Failure::new(kind_of_storage(&error), error.to_string())
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        let kind = match &error {
            OpenError::Storage(storage) => kind_of_storage(storage),
            OpenError::Locked { .. } | OpenError::Changing { .. } => Kind::Io,
            OpenError::OpenHere { path } => {
                return Failure::new(
                    Kind::Io,
                    format!("{} is locked: this process has the database open already", path.display()),
                );
            }
            OpenError::Format { .. } | OpenError::Unregistered { .. } => Kind::NotSupported,
            _ => Kind::InvalidArgument,
        };
        Failure::new(kind, error.to_string())
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Failure {
        let kind = match &error {
            ReadError::Storage(storage) => kind_of_storage(storage),
            _ => Kind::InvalidArgument,
        };
        Failure::new(kind, error.to_string())
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Failure {
        let kind = match &error {
            WriteError::Storage(storage) => kind_of_storage(storage),
            WriteError::KeyTooLong { .. } | WriteError::ValueTooLong { .. } => Kind::InvalidArgument,
            WriteError::Unregistered { .. } => Kind::NotSupported,
            _ => Kind::Io,
        };
        Failure::new(kind, error.to_string())
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Failure {
        Failure::new(Kind::Io, error.to_string())
    }
}
