//! The file-system seam. Nothing of an engine outside this module makes a system call on a file.
//!
//! [`FileSystem`] is what an engine needs of an operating system. Three implementations:
//!
//! * [`DiskFs`]: the operating system's files through its page cache; tables may be mapped.
//! * [`DirectFs`]: the same files, but table reads and writes bypass the page cache (`O_DIRECT`).
//! * [`MemFs`]: files in memory, for tests and for throw-away databases.
//!
//! Two more are in the crate `tamis-testkit`: one that forgets what was not synced when told to crash, and fails chosen
//! operations; and one whose table reads cost what they cost on a given device, and are timed.
//!
//! Reads of several stretches at once go through a [`BatchReader`](batch::BatchReader), which overlaps those of files
//! that [can](ReadFile::overlap).
//!
//! # What the engine assumes of a medium
//!
//! * Bytes are durable after `sync` of the file that holds them *and* of the directory that names it.
//! * A rename within one directory replaces its target atomically, and is durable after `sync_dir`.
//! * Without a sync, any subset of the written sectors (512 bytes) may survive a power cut, in any order,
//!   and a file's name may be lost or the old name may come back.
//! * After a failed sync nothing is known about the bytes written since the last good one.
//!
//! Every method may be called from any thread.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

pub mod batch;
mod direct;
mod disk;
mod memory;

pub use direct::DirectFs;
pub use disk::{DiskFs, memory_bytes};
pub use memory::{MemFs, slice_at};

/// A file opened for appending (or, when [reused](FileSystem::reuse), for overwriting from its start).
/// One owner at a time; dropping it without `sync` loses nothing that was appended in a process crash.
pub trait WriteFile: Send + Sync + Debug {
    /// Appends all of `bytes` at the current end of what this handle wrote. On return the operating system
    /// has them: they survive a crash of the process.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything appended so far survive a power cut (`fdatasync`, and the length if it changed).
    fn sync(&mut self) -> io::Result<()>;

    /// Reserves room for `bytes` in all, so that appends up to there change no metadata and cannot run
    /// out of space. A hint: a file system that cannot do it does nothing. The reserved part reads as zeros.
    fn preallocate(&mut self, bytes: u64) -> io::Result<()>;

    /// Cuts the file to what was appended by this handle (removing preallocated or reused bytes behind it).
    fn truncate_to_written(&mut self) -> io::Result<()>;
}

/// A file opened for reading at any offset.
#[allow(
    clippy::len_without_is_empty,
    reason = "asking for the length can fail, and nobody asks for emptiness"
)]
pub trait ReadFile: Send + Sync + Debug {
    /// Fills `buf` from `offset`; an error of kind `UnexpectedEof` if the file ends before.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// The file's length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// The whole file as memory that stays valid and unchanged as long as the mapping lives, if this file
    /// system can give that. The file must not be written any more: the engine maps finished tables only.
    fn map(&self) -> io::Result<Option<Mapping>> {
        Ok(None)
    }

    /// How reads of this file may overlap when several are asked for at once. What is said here changes how they are
    /// done, never what they give.
    fn overlap(&self) -> Overlap<'_> {
        Overlap::Never
    }
}

/// How several reads of a file may overlap.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Overlap<'f> {
    /// Not at all: whoever asks for several reads them one after the other.
    Never,
    /// By several threads that each call [`ReadFile::read_exact_at`].
    Threads,
    /// By several threads, or by whatever reads a descriptor.
    #[cfg(unix)]
    Descriptor {
        /// Open for reading, as long as the file lives.
        fd: std::os::fd::BorrowedFd<'f>,
        /// What memory address, offset and length of a transfer must be multiples of: a power of two.
        align: usize,
    },
}

/// What a reader intends to do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Point reads all over the file.
    Random,
    /// From start to end, once (recovery, compaction, verification).
    Sequential,
}

/// What a writer intends to do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A table: written in large pieces, then immutable.
    Table,
    /// A log: small appends, often synced.
    Log,
}

/// A held lock on a database directory; released when dropped, and by the operating system when the
/// process dies.
pub trait DirLock: Send + Sync + Debug {}

/// The operating system as the engine sees it.
pub trait FileSystem: Send + Sync + Debug {
    /// Creates `path` empty, replacing any file of that name.
    fn create(&self, path: &Path, usage: Usage) -> io::Result<Box<dyn WriteFile>>;

    /// Renames `old` to `new` and opens it for overwriting from its start without truncating it: the way a
    /// log file is recycled. The bytes behind what is written stay those of the old file.
    fn reuse(&self, old: &Path, new: &Path) -> io::Result<Box<dyn WriteFile>>;

    /// Opens `path` for reading.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>>;

    /// Renames a file, replacing the target.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory and all that it holds.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Gives `from` a second name, or copies it (synced) where the file system has no hard links.
    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Creates a directory and its parents; fine if it exists.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Names (not paths) of the entries of a directory, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes all of a finished file survive a power cut, whoever wrote it (not its name).
    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.reuse(path, path)?.sync()
    }

    /// Makes creations, renames and removals in `dir` survive a power cut.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Whether `path` exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// The length of a file in bytes.
    fn file_len(&self, path: &Path) -> io::Result<u64>;

    /// Takes the exclusive lock named by `path`, or gives `None` if somebody else has it.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DirLock>>>;

    /// Free bytes on the device of `path`, if the file system can tell.
    fn available_space(&self, path: &Path) -> io::Result<Option<u64>>;
}

/// A whole file as memory.
#[derive(Clone)]
pub struct Mapping {
    /// What `owner` gave. Never handed out for longer than the mapping is borrowed. Asking the owner each time is a call
    /// that cannot be inlined, a few for each entry that a cursor passes.
    bytes: NonNull<[u8]>,
    _owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
}

impl Mapping {
    /// Wraps bytes whose address and content do not change while the owner lives.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        // A pointer, not a reference: a reference that a call is given must be good until the call returns, and dropping the
        // last mapping frees the bytes within one.
        let bytes = NonNull::from((*owner).as_ref());
        Mapping { bytes, _owner: owner }
    }
}

// SAFETY: the bytes are only ever read, as by `&[u8]`, which any thread may have and share; and the owner can be sent and shared.
unsafe impl Send for Mapping {}
// SAFETY: the same.
unsafe impl Sync for Mapping {}

impl std::ops::Deref for Mapping {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes were borrowed from what the owner points at. That stays where it is and is only shared as long as
        // there is an `Arc`, and this value keeps one; so they are good for as long as it is borrowed.
        unsafe { self.bytes.as_ref() }
    }
}

impl Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mapping({} bytes)", self.len())
    }
}

/// Reads a whole file.
pub fn read_file(fs: &dyn FileSystem, path: &Path) -> io::Result<Vec<u8>> {
    let file = fs.open(path, Access::Sequential)?;
    let mut bytes = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Replaces `path` by `bytes` so that after a crash either the old content or all of the new is there:
/// written beside it, synced, renamed over it, directory synced.
pub fn write_file_atomically(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = PathBuf::from(path).into_os_string();
    beside.push(".tmp");
    let beside = PathBuf::from(beside);
    let mut file = fs.create(&beside, Usage::Log)?;
    file.append(bytes)?;
    file.sync()?;
    drop(file);
    fs.rename(&beside, path)?;
    fs.sync_dir(path.parent().unwrap_or(Path::new(".")))
}
