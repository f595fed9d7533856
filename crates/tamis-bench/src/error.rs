//! The errors of benchmark runs.

use std::path::PathBuf;

use crate::keys::KeySetError;

/// The reason why a benchmark ended early.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The database returned an error.
    #[error(transparent)]
    Database(#[from] tamis::Error),
    /// The key set cannot be generated.
    #[error(transparent)]
    Keys(#[from] KeySetError),
    /// The database gave an answer that contradicts what was loaded.
    #[error(
        "wrong answer in {workload}: key {key}: expected {expected}, got {got}; if the directory was filled by \
         another run, repeat its --keys, --key-bytes, --value-bytes, --seed and key set"
    )]
    WrongAnswer {
        /// The workload that detected it.
        workload: String,
        /// The key in hex.
        key: String,
        /// The answer according to the loaded data.
        expected: String,
        /// The database's answer.
        got: String,
    },
    /// An engine other than tamis returned an error.
    #[error("{system}: {source}")]
    Store {
        /// The engine.
        system: &'static str,
        /// Its error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The request cannot be carried out; the text says what is possible.
    #[error("{0}")]
    Request(String),
    /// A temporary directory could not be made, or a file could not be read.
    #[error("could not {operation} {}: {source}", path.display())]
    Io {
        /// The attempted operation, as a verb phrase.
        operation: &'static str,
        /// The file or directory concerned.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
}

impl BenchError {
    /// Reports whether the data was wrong, as opposed to the request or the system.
    pub fn is_wrong_answer(&self) -> bool {
        matches!(self, BenchError::WrongAnswer { .. })
    }
}

macro_rules! from_database {
    ($($error:ty),*) => {$(
        impl From<$error> for BenchError {
            fn from(error: $error) -> Self {
                BenchError::Database(error.into())
            }
        }
    )*};
}

from_database!(tamis::OpenError, tamis::ReadError, tamis::WriteError, tamis::AdminError, tamis::OptionsError);
