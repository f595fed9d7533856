//! The file system as the engine sees it: [`FileSystem`], and what implements it.
//!
//! All of this is [`tamis_env::io`], which says what the engine assumes of a medium. [`Options::file_system`] takes any
//! implementation; those for tests (one that crashes and fails on demand, one that costs what a device costs) are in the
//! crate `tamis-testkit`.
//!
//! [`Options::file_system`]: crate::Options::file_system

pub use tamis_env::io::{
    Access, DirLock, DirectFs, DiskFs, FileSystem, Mapping, MemFs, Overlap, ReadFile, Usage, WriteFile,
    read_file, write_file_atomically,
};
pub(crate) use tamis_env::io::{batch, memory_bytes};
