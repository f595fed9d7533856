//! The file system interface. Engine code outside this module makes no system calls on files.
//!
//! [`FileSystem`] is what an engine needs of an operating system. There are three implementations:
//!
//! * [`DiskFs`]: the operating system's files through its page cache; tables may be mapped.
//! * [`DirectFs`]: the same files, but table reads and writes bypass the page cache (`O_DIRECT`).
//! * [`MemFs`]: files in memory, for tests and throw-away databases.
//!
//! Two more are in the crate `tamis-testkit`: one that loses unsynced data when told to crash and
//! fails chosen operations, and one that emulates a device's cost of table reads and times them.
//!
//! Reads of several byte ranges at once go through a [`BatchReader`](batch::BatchReader), which
//! overlaps them for files that [support it](ReadFile::overlap).
//!
//! # What the engine assumes of a medium
//!
//! * Bytes are durable after `sync` of the file that holds them *and* of the directory that names
//!   it.
//! * A rename within one directory replaces its target atomically, and is durable after `sync_dir`.
//! * Without a sync, any subset of the written sectors (512 bytes) may survive a power cut, in any
//!   order, and a file's name may be lost or the old name may come back.
//! * After a failed sync the state of the bytes written since the last successful one is unknown.
//!
//! Every method may be called from any thread.

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

pub mod batch;
mod direct;
mod disk;
mod lock;
mod machine;
#[cfg(target_os = "linux")]
mod mapped;
mod memory;
mod pages;
mod place;
mod read_around;

/// Files of this prefix, followed by anything and `.tmp`, are scratch files in a database's
/// directory: programs that time its device may create them, and the next opening removes what is
/// left.
pub const SCRATCH_PREFIX: &str = "calibration-";

pub use direct::DirectFs;
pub use disk::DiskFs;
#[cfg(unix)]
pub(crate) use lock::{after_fork, before_fork};
pub use machine::memory_bytes;
pub use memory::{MemFs, slice_at};

/// A file opened for appending (or, when [reused](FileSystem::reuse), for overwriting from its
/// start). One owner at a time; dropping it without `sync` loses nothing that was appended in a
/// process crash.
pub trait WriteFile: Send + Sync + Debug {
    /// Appends all of `bytes` at the current end of what this handle wrote. On return the operating
    /// system has them: they survive a crash of the process.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Appends two pieces, as [`append`](WriteFile::append) does their concatenation. After a
    /// failure, any part may have been appended.
    fn append_both(&mut self, first: &[u8], second: &[u8]) -> io::Result<()> {
        self.append(first)?;
        self.append(second)
    }

    /// Returns how many of the appended bytes reached the system by a mapping, without a call.
    fn mapped(&self) -> u64 {
        0
    }

    /// Makes all appended bytes survive a power cut (`fdatasync`, and the length if it changed).
    fn sync(&mut self) -> io::Result<()>;

    /// Reserves space for `bytes` in total, so that appends up to there change no metadata and
    /// cannot run out of space. A hint: a file system that cannot do it does nothing. The reserved
    /// part reads as zeros. After an error the file has the space that it had, and if possible no
    /// more.
    fn preallocate(&mut self, bytes: u64) -> io::Result<()>;

    /// Truncates the file to what this handle appended, removing preallocated or recycled bytes
    /// after it.
    fn truncate_to_written(&mut self) -> io::Result<()>;
}

/// A file opened for reading at any offset.
#[allow(clippy::len_without_is_empty, reason = "reading the length can fail, and no caller needs is_empty")]
pub trait ReadFile: Send + Sync + Debug {
    /// Fills `buf` from `offset`; fails with `UnexpectedEof` if the file ends before.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Returns the file's length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Maps the whole file into memory that stays valid and unchanged as long as the mapping lives,
    /// if this file system supports it. The file must not be written any more: the engine maps
    /// finished tables only.
    fn map(&self) -> io::Result<Option<Mapping>> {
        Ok(None)
    }

    /// Returns how several reads of this file may overlap. This affects how they are made, never
    /// their results.
    fn overlap(&self) -> Overlap<'_> {
        Overlap::Never
    }
}

/// How several reads of a file may overlap.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Overlap<'f> {
    /// Not at all: several reads are made one after the other.
    Never,
    /// In several threads that each call [`ReadFile::read_exact_at`].
    Threads,
    /// The file takes in any number of reads before it completes the first.
    Submitted(&'f dyn Submit),
    /// In several threads, or through the file descriptor (io_uring).
    #[cfg(unix)]
    Descriptor {
        /// A descriptor open for reading as long as the file lives.
        fd: std::os::fd::BorrowedFd<'f>,
        /// The required alignment of a transfer's memory address, offset and length: a power of
        /// two.
        align: usize,
    },
}

/// A file that takes reads in and completes them later.
pub trait Submit: Send + Sync {
    /// Takes in a read of `len` bytes.
    fn submit(&self, len: usize) -> Ticket;

    /// Completes a read that was taken in, like [`ReadFile::read_exact_at`].
    fn complete(&self, ticket: Ticket, buf: &mut [u8], offset: u64) -> io::Result<()>;
}

impl std::fmt::Debug for dyn Submit + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Submit")
    }
}

/// A read that a file took in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// When it was taken in, by the file's clock.
    pub begin: u64,
    /// When it ends, by the same clock; `None` if that depends on its completion.
    pub end: Option<u64>,
}

/// What a reader intends to do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Point reads all over the file.
    Random,
    /// One pass from start to end (recovery, compaction, verification).
    Sequential,
}

/// What a writer intends to do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Usage {
    /// A table: written in large pieces, then immutable.
    Table,
    /// A log: small appends, synced often.
    Log,
}

/// A held lock on a database directory; released when dropped, and by the operating system when the
/// process dies. The child of a fork does not hold it, and releases nothing when it drops its copy.
pub trait DirLock: Send + Sync + Debug {}

/// The operating system as the engine sees it.
pub trait FileSystem: Send + Sync + Debug {
    /// Returns the same file system with the directory `dir`, which exists, held: paths in it lead
    /// to the directory that has that name now, also when it is renamed later, when another one
    /// takes the name, or when the process changes its working directory. `None`, the default: this
    /// file system looks paths up each time.
    fn hold(&self, _dir: &Path) -> io::Result<Option<Arc<dyn FileSystem>>> {
        Ok(None)
    }

    /// Creates `path` empty, replacing any file of that name.
    fn create(&self, path: &Path, usage: Usage) -> io::Result<Box<dyn WriteFile>>;

    /// Renames `old` to `new` and opens it for overwriting from its start without truncating it, to
    /// recycle a log file. The bytes after the written ones stay those of the old file.
    fn reuse(&self, old: &Path, new: &Path) -> io::Result<Box<dyn WriteFile>>;

    /// Opens `path` for reading. An error if that is something else than a file, and never a wait.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>>;

    /// Renames a file, replacing the target.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory and everything in it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Creates a hard link to `from`, or copies it (synced) where the file system has no hard
    /// links.
    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Creates a hard link to `from`. Fails where the file system has no hard links; the default
    /// copies there.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.link_or_copy(from, to)
    }

    /// Creates a directory and its parents; succeeds if it exists.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Returns the names (not paths) of a directory's entries, in no particular order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes the content (not the name) of a finished file survive a power cut, whichever handle
    /// wrote it.
    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.reuse(path, path)?.sync()
    }

    /// Makes creations, renames and removals in `dir` survive a power cut.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Reports whether `path` exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Returns the length of a file in bytes.
    fn file_len(&self, path: &Path) -> io::Result<u64>;

    /// Takes the exclusive lock named by `path`, or returns `None` if it is already held.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DirLock>>>;

    /// Reports whether this process holds the lock named by `path`, rather than another one. For
    /// messages: if that is not known, the answer is `false`.
    fn is_locked_here(&self, _path: &Path) -> io::Result<bool> {
        Ok(false)
    }

    /// Returns the free bytes on the device of `path`, if known.
    fn available_space(&self, path: &Path) -> io::Result<Option<u64>>;
}

/// When an announced part of a mapping is touched, and what is after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Next. If parts are announced in order, more may be read ahead.
    Next,
    /// Next, and nothing is to be read ahead: the reader knows what it will touch.
    Alone,
    /// After other parts have been announced: reading begins at once, so that the device works on
    /// all of them.
    Later,
}

/// Bytes of a file that may have to be read from a device when they are touched.
pub trait MappedPages: AsRef<[u8]> + Send + Sync {
    /// Begins to read `part` from the device, and perhaps bytes around it. A hint: it may do
    /// nothing, and errors are left to the touch.
    fn will_need(&self, part: Range<usize>, touch: Touch);

    /// Whether memory is too scarce for the pages to stay: then each touch of a part is better
    /// announced, not the first alone.
    fn are_scarce(&self) -> bool {
        false
    }
}

/// Who keeps the bytes of a mapping.
#[derive(Clone)]
enum Owner {
    Bytes { _bytes: Arc<dyn AsRef<[u8]> + Send + Sync> },
    Pages(Arc<dyn MappedPages>),
}

/// A whole file as memory.
#[derive(Clone)]
pub struct Mapping {
    /// The owner's bytes, cached: asking `owner` each time is a call that cannot be inlined, a few
    /// for each entry that a cursor passes. Never handed out for longer than the mapping is
    /// borrowed.
    bytes: NonNull<[u8]>,
    owner: Owner,
}

impl Mapping {
    /// Wraps bytes whose address and content do not change while the owner lives.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        // A pointer, not a reference: a reference passed to a call must stay valid until the call
        // returns, and dropping the last mapping frees the bytes within one.
        let bytes = NonNull::from((*owner).as_ref());
        Mapping { bytes, owner: Owner::Bytes { _bytes: owner } }
    }

    /// Wraps bytes that are better [announced](Self::will_need) before they are touched. Their
    /// address and content do not change while the owner lives.
    pub fn of_pages(owner: Arc<dyn MappedPages>) -> Self {
        let bytes = NonNull::from((*owner).as_ref());
        Mapping { bytes, owner: Owner::Pages(owner) }
    }

    /// Announces that `part` is touched, for the first time, or [again](Self::is_scarce): see
    /// [`MappedPages::will_need`].
    #[inline]
    pub fn will_need(&self, part: Range<usize>, touch: Touch) {
        if let Owner::Pages(pages) = &self.owner {
            pages.will_need(part, touch);
        }
    }

    /// Reports whether each touch is better announced: see [`MappedPages::are_scarce`].
    #[inline]
    pub fn is_scarce(&self) -> bool {
        matches!(&self.owner, Owner::Pages(pages) if pages.are_scarce())
    }
}

// SAFETY: the bytes are only ever read, as by `&[u8]`, which any thread may have and share; and the
// owner can be sent and shared.
unsafe impl Send for Mapping {}
// SAFETY: the same.
unsafe impl Sync for Mapping {}

impl std::ops::Deref for Mapping {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes were borrowed from what the owner points at. That stays where it is and
        // is only shared as long as there is an `Arc`, and this value keeps one; so they are good
        // for as long as it is borrowed.
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

/// Atomically replaces the content of `path` with `bytes`: writes a temporary file next to it,
/// syncs that, renames it over `path` and syncs the directory.
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
