//! The ids of files, runs and keyspaces. They are a module of their own so that code can name a
//! thing without depending on it.

/// Names a table file within a database; never used twice.
pub type TableId = u64;

/// Names a sorted run within a keyspace. Of two runs in one level the one with the larger id is
/// newer.
pub type RunId = u64;

/// Names a keyspace within a database; never used twice.
pub type KeyspaceId = u32;

/// Names a log file within a database; drawn from the same counter as [`TableId`].
pub type LogId = u64;

/// Names a filter file within a database; drawn from the same counter as [`TableId`].
pub type FilterFileId = u64;

/// Names a blob file within a database; drawn from the same counter as [`TableId`].
pub type BlobFileId = u64;

/// The default keyspace, which always exists.
pub const DEFAULT_KEYSPACE: KeyspaceId = 0;
