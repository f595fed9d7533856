//! What the engine promises beyond "nothing wrong, nothing lost, no panic". A promise that is kept is `true` here, and
//! a run that sees it broken fails; one that is `false` is only counted. To tighten the suites, change a word.

/// After a full file system has space again writes go on with the same handle.
pub(crate) const WRITES_RESUME_WITH_SPACE: bool = true;

/// A database can be opened while its file system is full.
pub(crate) const OPENS_WHILE_FULL: bool = true;

/// When descriptors are to be had again writes go on with the same handle.
pub(crate) const WRITES_RESUME_WITH_DESCRIPTORS: bool = true;

/// How many descriptors a database of a few hundred tables has open at most, if it is bounded.
pub(crate) const MOST_DESCRIPTORS: Option<u64> = None;

/// With memtables and logs at their defaults two thousand writes, flushed every ten and copied every two hundred, do not
/// fill twenty times the space that they need.
pub(crate) const SMALL_FLUSHES_FIT: bool = true;
