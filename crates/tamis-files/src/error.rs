//! File errors: failed system calls, damaged bytes, unsupported formats.
//!
//! Messages give the file, the offset if there is one, and what the caller can do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A system call that failed. Its [`source`](std::error::Error::source) is the [`io::Error`]; the
/// message includes that error's message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct IoFailure {
    /// What was attempted, as a verb ("read", "sync", "rename").
    pub operation: &'static str,
    /// The file or directory concerned.
    pub path: PathBuf,
    source: Arc<io::Error>,
}

impl IoFailure {
    /// Wraps a system call's error with the operation and the file it concerns.
    pub fn new(operation: &'static str, path: &Path, source: io::Error) -> Self {
        IoFailure { operation, path: path.to_owned(), source: Arc::new(source) }
    }

    /// Returns the system call's error.
    pub fn io_error(&self) -> &io::Error {
        &self.source
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// Returns the operating system's error code, if the error has one.
    pub fn code(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

impl fmt::Display for IoFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not {} {}: {}", self.operation, self.path.display(), self.source)
    }
}

impl std::error::Error for IoFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // Return the error itself rather than the `Arc`, so it can be downcast.
        Some(&*self.source)
    }
}

/// Bytes on disk that differ from what was written.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{} is damaged{}: {what}; run `tamis verify` to see how far it goes, and restore the file from a \
         checkpoint, or salvage the database", path.display(), at(offset))]
#[non_exhaustive]
pub struct Corruption {
    /// The damaged file.
    pub path: PathBuf,
    /// The byte offset of the damaged record or block, if known.
    pub offset: Option<u64>,
    /// What is wrong there.
    pub what: String,
}

fn at(offset: &Option<u64>) -> String {
    offset.map(|o| format!(" at offset {o}")).unwrap_or_default()
}

/// What can go wrong below the engine: a failed system call or damaged bytes.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
    /// Bytes on disk are damaged.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
    /// The database was opened before this process was forked, so this handle was inherited.
    /// Handles work only in the process that opened them. In its children every operation returns
    /// this error, and dropping or closing a handle has no effect on the parent.
    #[error(
        "{} belongs to another process, from which this one was forked: its handles cannot be used here; open it anew once the \
         other process has closed it",
        path.display()
    )]
    Forked {
        /// The database's directory.
        path: PathBuf,
    },
}

impl StorageError {
    /// Creates an error for a failed system call on `path`.
    pub fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        StorageError::Io(IoFailure::new(operation, path, source))
    }

    /// Creates an error for damaged bytes in `path`.
    pub fn corrupt(path: &Path, offset: impl Into<Option<u64>>, what: impl Into<String>) -> Self {
        StorageError::Corrupt(Corruption { path: path.to_owned(), offset: offset.into(), what: what.into() })
    }

    /// Returns the file or directory concerned.
    pub fn path(&self) -> &Path {
        match self {
            StorageError::Io(failure) => &failure.path,
            StorageError::Corrupt(damage) => &damage.path,
            StorageError::Forked { path } => path,
        }
    }

    /// Reports whether the device or quota ran out of space.
    pub fn is_out_of_space(&self) -> bool {
        matches!(self, StorageError::Io(e)
            if matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }
}

/// Creates an error for a file that a newer version of this library wrote. Nothing is wrong with
/// it, so it is not [lasting](is_lasting): it must not be set aside.
pub(crate) fn newer(path: &Path, what: &'static str) -> StorageError {
    StorageError::io("read", path, io::Error::new(io::ErrorKind::Unsupported, what))
}

/// Reports whether a retry would fail the same way: damage, a file that is missing or cut short, or
/// a failing device.
pub fn is_lasting(error: &StorageError) -> bool {
    match error {
        StorageError::Forked { .. } => false,
        StorageError::Corrupt(_) => true,
        StorageError::Io(e) => {
            let is_gone = matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof);
            is_gone || is_device_error(error)
        }
    }
}

/// Reports whether the device failed (`EIO`).
pub fn is_device_error(error: &StorageError) -> bool {
    #[cfg(unix)]
    return matches!(error, StorageError::Io(e) if e.code() == Some(rustix::io::Errno::IO.raw_os_error()));
    #[cfg(not(unix))]
    {
        let _ = error;
        false
    }
}

/// Why a log or a manifest could not be opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FileError {
    /// The file has a format version that this library does not read.
    #[error("{} has format version {found}; this library reads up to {supported}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format version.
        found: u32,
        /// The newest version this library reads.
        supported: u32,
    },
    /// There is no manifest in the directory.
    #[error("there is no database in {}", path.display())]
    NotFound {
        /// The directory.
        path: PathBuf,
    },
    /// A failed system call or damaged bytes.
    #[error(transparent)]
    Storage(#[from] StorageError),
}
