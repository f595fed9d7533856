//! [`DirectFs`]: table reads and writes that bypass the page cache.
//!
//! On Linux, files written as [`Usage::Table`] and files read with [`Access::Random`] are opened
//! with `O_DIRECT`; logs, manifests and sequential reads go through the page cache as in
//! [`DiskFs`]. Where a file system refuses `O_DIRECT` those files are buffered too, and a warning
//! is logged once. On every other system all files are buffered; the engine refuses
//! `read_mode = direct` there. Nothing is ever mapped.
//!
//! # Differences from the other file systems
//!
//! A table's appends are buffered in the process and reach the operating system in large pieces:
//! until `sync`, `truncate_to_written` or the drop of the writer, up to one buffer (1 MiB) of them
//! is invisible to readers and lost if the process crashes. The engine refers to a table only after
//! syncing it.
//!
//! Everything here may be called from any thread; readers share one aligned scratch buffer per
//! thread.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{Access, DirLock, DiskFs, FileSystem, ReadFile, Usage, WriteFile};

#[cfg(target_os = "linux")]
pub(super) mod linux;

/// The operating system's files; table reads and writes bypass the page cache where possible
/// (Linux).
#[derive(Clone, Debug)]
pub struct DirectFs {
    buffered: DiskFs,
}

impl DirectFs {
    /// Creates a file system for the same files as [`DiskFs`] that bypasses the page cache.
    pub fn new() -> Self {
        DirectFs { buffered: DiskFs::without_mapping() }
    }

    /// As [`DiskFs::with_mapped_logs`].
    pub fn with_mapped_logs(self, mapped: bool) -> Self {
        DirectFs { buffered: self.buffered.with_mapped_logs(mapped) }
    }
}

impl Default for DirectFs {
    fn default() -> Self {
        DirectFs::new()
    }
}

impl FileSystem for DirectFs {
    fn hold(&self, dir: &Path) -> io::Result<Option<Arc<dyn FileSystem>>> {
        Ok(Some(Arc::new(DirectFs { buffered: self.buffered.holding(dir)? })))
    }

    fn create(&self, path: &Path, usage: Usage) -> io::Result<Box<dyn WriteFile>> {
        #[cfg(target_os = "linux")]
        if usage == Usage::Table {
            return Ok(Box::new(linux::DirectWriter::create(&self.buffered.places, path)?));
        }
        self.buffered.create(path, usage)
    }

    fn reuse(&self, old: &Path, new: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.buffered.reuse(old, new)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        #[cfg(target_os = "linux")]
        if access == Access::Random {
            return Ok(Arc::new(linux::DirectReader::open(&self.buffered.places, path)?));
        }
        self.buffered.open(path, access)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.buffered.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.buffered.remove(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.buffered.remove_dir_all(path)
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.buffered.link_or_copy(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.buffered.link(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.buffered.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.buffered.list(dir)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.buffered.sync_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.buffered.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.buffered.exists(path)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.buffered.file_len(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        self.buffered.lock(path)
    }

    fn is_locked_here(&self, path: &Path) -> io::Result<bool> {
        self.buffered.is_locked_here(path)
    }

    fn available_space(&self, path: &Path) -> io::Result<Option<u64>> {
        self.buffered.available_space(path)
    }
}
