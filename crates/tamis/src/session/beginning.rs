//! What a session that waits for room needs in order to begin. See [`begin`](crate::jobs::begin).

use std::path::PathBuf;
use std::time::Instant;

use tamis_base::ids::LogId;
use tamis_files::tree::files::FileKind;

use crate::error::StorageError;
use crate::log::NextLog;

/// The state that a session needs to begin.
#[derive(Debug, Default)]
pub(crate) struct Beginning {
    /// The first log, if an attempt created it.
    pub(crate) first_log: Option<NextLog>,
    /// The number of an empty log to reuse.
    pub(crate) empty_log: Option<LogId>,
    /// The files present when the database was opened.
    pub(crate) files: Vec<(String, FileKind)>,
    /// Files created by an attempt that may have put its manifest in force: they stay until another
    /// manifest is in force.
    pub(crate) in_doubt: Vec<PathBuf>,
    /// The last failed attempt: its error, its time, and the free space afterwards.
    pub(crate) failed: Option<(StorageError, Instant, Option<u64>)>,
}
