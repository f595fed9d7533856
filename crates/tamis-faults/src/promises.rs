//! The engine's promises beyond "nothing wrong, nothing lost, no panic". A run that sees a `true` promise broken fails;
//! breaches of a `false` one are only counted.

/// Writes resume with the same handle once a full file system has space again.
pub(crate) const WRITES_RESUME_WITH_SPACE: bool = true;

/// A database can be opened while its file system is full.
pub(crate) const OPENS_WHILE_FULL: bool = true;

/// Writes resume with the same handle once descriptors are available again.
pub(crate) const WRITES_RESUME_WITH_DESCRIPTORS: bool = true;

/// How many files of tables the suite of limits lets a database keep open: its `max_open_files`.
pub(crate) const MOST_TABLE_FILES: usize = 24;

/// How many descriptors a process with a database of a few hundred tables has open at most, if it is bounded, while one thread
/// writes and looks: those files; lock, log, the next log, manifest and the next manifest; 4 for each of up to 3 background threads
/// and 2 parts of their jobs (an output, a directory that is synced, an input, a ring); the 32 blocks that the one reader reads at a
/// time, with a ring of its own; and 8 that the worker itself has.
pub(crate) const MOST_DESCRIPTORS: Option<u64> = Some(MOST_TABLE_FILES as u64 + 5 + 4 * (3 + 2) + 33 + 8);

/// With memtables and logs at their defaults two thousand writes, flushed every ten and copied every two hundred, do not
/// fill twenty times the space that they need.
pub(crate) const SMALL_FLUSHES_FIT: bool = true;
