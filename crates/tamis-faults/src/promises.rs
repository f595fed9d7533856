//! The engine's promises beyond "nothing wrong, nothing lost, no panic". A run that sees a `true`
//! promise broken fails; breaches of a `false` one are only counted.

/// Writes resume with the same handle once a full file system has space again.
pub(crate) const WRITES_RESUME_WITH_SPACE: bool = true;

/// A database can be opened while its file system is full.
pub(crate) const OPENS_WHILE_FULL: bool = true;

/// Writes resume with the same handle once descriptors are available again.
pub(crate) const WRITES_RESUME_WITH_DESCRIPTORS: bool = true;

/// Maximum number of table files kept open in the suite of limits: the option `max_open_files`.
pub(crate) const MOST_TABLE_FILES: usize = 24;

/// Maximum number of open descriptors of a process with a database of a few hundred tables, if
/// bounded, while one thread writes and reads: those files; lock, log, the next log, manifest and
/// the next manifest; 4 for each of up to 3 background threads and 2 parts of their jobs (an
/// output, a directory that is synced, an input, a ring); the 32 blocks that the one reader reads
/// at a time, and its ring; and 8 of the worker itself.
pub(crate) const MOST_DESCRIPTORS: Option<u64> = Some(MOST_TABLE_FILES as u64 + 5 + 4 * (3 + 2) + 33 + 8);

/// With default memtables and logs, two thousand writes, flushed every ten and copied every two
/// hundred, do not fill twenty times the space that they need.
pub(crate) const SMALL_FLUSHES_FIT: bool = true;
