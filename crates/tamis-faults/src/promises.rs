//! What the engine promises beyond "nothing wrong, nothing lost, no panic". A promise that is kept is `true` here, and
//! a run that sees it broken fails; one that is `false` is only counted. To tighten the suites, change a word.

/// After a full file system has space again writes go on with the same handle.
pub(crate) const WRITES_RESUME_WITH_SPACE: bool = false;

/// A database can be opened while its file system is full.
pub(crate) const OPENS_WHILE_FULL: bool = false;

/// When descriptors are to be had again writes go on with the same handle.
pub(crate) const WRITES_RESUME_WITH_DESCRIPTORS: bool = false;

/// How many descriptors a database of a few hundred tables has open at most, if it is bounded.
pub(crate) const MOST_DESCRIPTORS: Option<u64> = None;

/// Of a file system's space that is there when writing begins, at least so many hundredths are taken by what was written
/// when it is full, with memtables and logs at their defaults and a flush every ten writes.
pub(crate) const LEAST_SPACE_USED: Option<u64> = None;
