//! The file system as the engine sees it: [`FileSystem`], and what implements it.
//!
//! This re-exports [`tamis_env::io`], which states what the engine assumes of a medium.
//! [`Options::file_system`] takes any implementation; the test implementations (one that crashes
//! and fails on demand, one that emulates the cost of a device) are in the crate `tamis-testkit`.
//!
//! [`Options::file_system`]: crate::Options::file_system

pub(crate) use tamis_env::io::batch;
pub use tamis_env::io::{
    Access, DirLock, DirectFs, DiskFs, FileSystem, MappedPages, Mapping, MemFs, Overlap, ReadFile,
    SCRATCH_PREFIX, Submit, Ticket, Touch, Usage, WriteFile, memory_bytes, read_file, write_file_atomically,
};
