//! What can end a run.

use std::path::PathBuf;

use crate::keys::KeySetError;

/// Why a benchmark ended early.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The database refused or failed.
    #[error(transparent)]
    Database(#[from] tamis::Error),
    /// The key set cannot be made.
    #[error(transparent)]
    Keys(#[from] KeySetError),
    /// The database gave an answer that contradicts what was loaded.
    #[error(
        "wrong answer in {workload}: key {key}: expected {expected}, got {got}; if the directory was filled by \
         another run, give the same --keys, --key-bytes, --value-bytes, --seed and key set as then"
    )]
    WrongAnswer {
        /// The workload that noticed.
        workload: String,
        /// The key in hex.
        key: String,
        /// What the loaded data says.
        expected: String,
        /// What the database said.
        got: String,
    },
    /// An engine other than tamis refused or failed.
    #[error("{system}: {source}")]
    Store {
        /// The engine.
        system: &'static str,
        /// What it says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What was asked for cannot be done; the text says what can.
    #[error("{0}")]
    Request(String),
    /// A picture could not be drawn.
    #[error("could not draw `{panel}`: {text}")]
    Draw {
        /// Its title.
        panel: String,
        /// What the drawing library says.
        text: String,
    },
    /// A temporary directory could not be made, or a file not be read.
    #[error("could not {operation} {}: {source}", path.display())]
    Io {
        /// What was attempted, as a verb.
        operation: &'static str,
        /// The file or directory concerned.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
}

impl BenchError {
    /// Whether the data was wrong, as opposed to the request or the system.
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
