//! What can go wrong: the database, the bytes of a key, the bytes of a value.

use std::fmt;
use std::sync::Arc;

use tamis::{AdminError, OpenError, ReadError, TransactionError, WriteError};

/// Any error of a typed keyspace. The errors of `tamis` convert into it, so that a function that
/// also opens databases or commits transactions needs no other.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// From the database.
    #[error(transparent)]
    Tamis(#[from] tamis::Error),
    /// The bytes of a stored key are none of the keyspace's type of key.
    #[error("a stored key could not be decoded")]
    Key(#[source] DecodeError),
    /// A value could not be encoded, or the bytes of a stored one are none of the keyspace's type
    /// of value.
    #[error(transparent)]
    Value(#[from] ValueError),
}

macro_rules! by_way_of_tamis {
    ($($error:ty),*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Error {
                Error::Tamis(error.into())
            }
        }
    )*};
}

by_way_of_tamis!(AdminError, OpenError, ReadError, TransactionError, WriteError);

/// The bytes are none that a type encodes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct DecodeError {
    what: &'static str,
}

impl DecodeError {
    /// Creates an error that says what is wrong with the bytes: `"Date: no such day"`.
    pub const fn new(what: &'static str) -> DecodeError {
        DecodeError { what }
    }
}

/// Why a value was not encoded or decoded; its source says more.
#[derive(Debug, Clone)]
pub struct ValueError {
    what: &'static str,
    source: Arc<dyn std::error::Error + Send + Sync>,
}

impl ValueError {
    /// Wraps the reason why a value cannot be encoded: an error or a message.
    pub fn encoding(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ValueError {
        ValueError { what: "a value could not be encoded", source: Arc::from(reason.into()) }
    }

    /// Wraps the reason why bytes are not a value: an error or a message.
    pub fn decoding(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ValueError {
        ValueError { what: "a stored value could not be decoded", source: Arc::from(reason.into()) }
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

impl std::error::Error for ValueError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}
