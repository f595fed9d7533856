//! [`DiskFs`]: the operating system's files, through its page cache.
//!
//! # Invariants
//!
//! * A file that exists under a name is never truncated by [`create`](FileSystem::create): a new file takes its name,
//!   so existing readers, mappings and hard links keep the old bytes.
//! * A writer's position counts only bytes written successfully; the next append overwrites a failed one.
//!
//! # Platforms
//!
//! Preallocation and access hints work on Linux and Android (hints also on FreeBSD) and are no-ops elsewhere.
//! `sync_dir` is a no-op on Windows, where directories cannot be synced. The crate compiles on systems that are
//! neither Unix nor Windows, but reading and locking fail with `Unsupported` there.
//!
//! Everything here may be called from any thread; nothing takes a lock.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(target_os = "linux")]
use super::mapped::MappedWriter;
use super::pages::MappedBytes;
use super::{Access, DirLock, FileSystem, Mapping, Overlap, ReadFile, Usage, WriteFile, memory_bytes};

/// The operating system's files, through its page cache.
#[derive(Clone, Debug)]
pub struct DiskFs {
    map: bool,
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "logs are mapped on Linux only"))]
    map_logs: bool,
    mapped: Arc<MappedBytes>,
}

impl DiskFs {
    /// Creates a file system whose files can be mapped: [`ReadFile::map`] returns the page cache's own memory.
    ///
    /// If another program truncates a mapped file, touching a lost page kills the process with `SIGBUS`; choose
    /// [`without_mapping`](Self::without_mapping) where that can happen.
    pub fn new() -> Self {
        DiskFs { map: true, map_logs: false, mapped: Arc::new(MappedBytes::new(memory_bytes())) }
    }

    /// Creates a file system that only reads by copying; [`ReadFile::map`] returns `None`.
    pub fn without_mapping() -> Self {
        DiskFs { map: false, map_logs: false, mapped: Arc::new(MappedBytes::new(0)) }
    }

    /// Reckons with `bytes` of memory for the pages of mapped files, in place of what the machine or the control group allows: beyond
    /// half of it they are [scarce](super::MappedPages::are_scarce). For files that were mapped before, nothing changes.
    pub fn with_memory(self, bytes: u64) -> Self {
        DiskFs { mapped: Arc::new(MappedBytes::new(bytes)), ..self }
    }

    /// Lets logs be appended to through a mapping, without a system call each, where that is safe: see the module `mapped`. Elsewhere,
    /// and without this, appends are system calls.
    pub fn with_mapped_logs(self, mapped: bool) -> Self {
        DiskFs { map_logs: mapped, ..self }
    }
}

impl Default for DiskFs {
    fn default() -> Self {
        DiskFs::new()
    }
}

/// Opens a new file under `path`. An old file of that name loses the name but keeps its bytes for handles, mappings
/// and links that still refer to it.
pub(super) fn create_fresh(path: &Path, options: &OpenOptions) -> io::Result<File> {
    let mut options = options.clone();
    options.write(true).create_new(true);
    match options.open(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            options.open(path)
        }
        other => other,
    }
}

/// Reserves `bytes` from the start of `file`, extending its length; the first `written` are already allocated.
/// Succeeds without effect where the system or the file system does not support it; running out of space is an error.
pub(super) fn preallocate(file: &File, written: u64, bytes: u64) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if bytes > written {
        use rustix::io::Errno;
        // Without KEEP_SIZE the length grows now, so that a later fdatasync finds no changed length to write.
        return match rustix::fs::fallocate(
            file,
            rustix::fs::FallocateFlags::empty(),
            written,
            bytes - written,
        ) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
            Err(e) => Err(e.into()),
        };
    }
    // Elsewhere the call either does not exist or, on Apple's systems, would also cut a longer file.
    let _ = (file, written, bytes);
    Ok(())
}

/// Tells the kernel how the file will be read. Only a hint: failures are ignored.
fn advise(file: &File, access: Access) {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    {
        let advice = match access {
            Access::Random => rustix::fs::Advice::Random,
            Access::Sequential => rustix::fs::Advice::Sequential,
        };
        let _ = rustix::fs::fadvise(file, 0, None, advice);
    }
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    let _ = (file, access);
}

/// Reports whether a read of `len` bytes at `offset` lies within the largest possible file. Offsets come from bytes
/// on disk; beyond this the system would report an invalid argument instead of the end of the file.
pub(super) fn check_range(offset: u64, len: usize) -> io::Result<()> {
    match offset.checked_add(len as u64) {
        Some(end) if end <= i64::MAX as u64 => Ok(()),
        _ if len == 0 => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buf, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !buf.is_empty() {
        match file.seek_read(buf, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                buf = &mut buf[n..];
                offset += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(not(any(unix, windows)))]
fn read_exact_at(_: &File, _: &mut [u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Writes all of `bytes` at `offset`.
#[cfg(unix)]
pub(super) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

/// Writes all of `bytes` at `offset`.
#[cfg(not(unix))]
pub(super) fn write_all_at(mut file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    use std::io::{Seek, SeekFrom, Write};
    file.seek(SeekFrom::Start(offset))?;
    file.write_all(bytes)
}

#[derive(Debug)]
struct DiskWriter {
    file: File,
    /// The offset of the next append: the total length of the successful ones.
    written: u64,
}

impl WriteFile for DiskWriter {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        write_all_at(&self.file, bytes, self.written)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn preallocate(&mut self, bytes: u64) -> io::Result<()> {
        preallocate(&self.file, self.written, bytes)
    }

    fn truncate_to_written(&mut self) -> io::Result<()> {
        self.file.set_len(self.written)
    }
}

#[derive(Debug)]
struct DiskReader {
    file: File,
    access: Access,
    map: bool,
    mapped: Arc<MappedBytes>,
}

impl ReadFile for DiskReader {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        check_range(offset, buf.len())?;
        read_exact_at(&self.file, buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn overlap(&self) -> Overlap<'_> {
        #[cfg(unix)]
        return Overlap::Descriptor { fd: std::os::fd::AsFd::as_fd(&self.file), align: 1 };
        #[cfg(not(unix))]
        Overlap::Threads
    }

    /// Also returns `None` if the system has no room for another mapping, or its file system cannot map.
    fn map(&self) -> io::Result<Option<Mapping>> {
        if !self.map {
            return Ok(None);
        }
        if self.len()? == 0 {
            return Ok(Some(Mapping::new(Arc::new(Vec::new()))));
        }
        // SAFETY: the slice handed out must not change while it lives. By the contract of `ReadFile::map` the
        // engine maps only files it finished writing; it never writes to or truncates one afterwards, only
        // removes it, which leaves the mapped pages in place, and `create` gives a reused name to a new file.
        let map = match unsafe { memmap2::Mmap::map(&self.file) } {
            Ok(map) => map,
            Err(e) => {
                log::debug!("a file could not be mapped, it will be read instead: {e}");
                return Ok(None);
            }
        };
        Ok(Some(Mapping::of_pages(self.mapped.keep(map, self.access))))
    }
}

/// The canonical paths of the locks that this process holds.
static HELD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn held() -> std::sync::MutexGuard<'static, BTreeSet<PathBuf>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock lives as long as the open file.
#[derive(Debug)]
struct DiskLock {
    _file: File,
    /// Its path among those held.
    path: Option<PathBuf>,
}

impl DiskLock {
    fn new(file: File, path: &Path) -> DiskLock {
        let path = fs::canonicalize(path).ok();
        held().extend(path.clone());
        DiskLock { _file: file, path }
    }
}

impl Drop for DiskLock {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            held().remove(path);
        }
    }
}

impl DirLock for DiskLock {}

/// `flock` belongs to the open file description, so that a second handle in this process is refused too,
/// and closing some other handle of the same file releases nothing (as it would with `fcntl` locks).
#[cfg(unix)]
fn lock(path: &Path) -> io::Result<Option<DiskLock>> {
    use rustix::fs::{FlockOperation, flock};
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(DiskLock::new(file, path))),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

#[cfg(windows)]
fn lock(path: &Path) -> io::Result<Option<DiskLock>> {
    use std::os::windows::fs::OpenOptionsExt;
    /// `ERROR_SHARING_VIOLATION`: the file is open elsewhere, and this call asks for exclusive access.
    const SHARING_VIOLATION: i32 = 32;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).share_mode(0);
    match options.open(path) {
        Ok(file) => Ok(Some(DiskLock::new(file, path))),
        Err(e) if e.raw_os_error() == Some(SHARING_VIOLATION) => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(not(any(unix, windows)))]
fn lock(_: &Path) -> io::Result<Option<DiskLock>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Copies to a file that must not exist, and syncs it. Leaves nothing behind on failure.
fn copy_synced(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut target = File::create_new(to)?;
    let copied = io::copy(&mut source, &mut target).and_then(|_| target.sync_all());
    if copied.is_err() {
        let _ = fs::remove_file(to);
    }
    copied
}

impl FileSystem for DiskFs {
    fn create(&self, path: &Path, usage: Usage) -> io::Result<Box<dyn WriteFile>> {
        #[cfg(target_os = "linux")]
        if self.map_logs && usage == Usage::Log {
            let file = create_fresh(path, OpenOptions::new().read(true))?;
            return Ok(Box::new(MappedWriter::new(file, 0)));
        }
        let _ = usage;
        let file = create_fresh(path, &OpenOptions::new())?;
        Ok(Box::new(DiskWriter { file, written: 0 }))
    }

    fn reuse(&self, old: &Path, new: &Path) -> io::Result<Box<dyn WriteFile>> {
        fs::rename(old, new)?;
        #[cfg(target_os = "linux")]
        if self.map_logs {
            let file = OpenOptions::new().read(true).write(true).open(new)?;
            let len = file.metadata()?.len();
            return Ok(Box::new(MappedWriter::new(file, len)));
        }
        let file = OpenOptions::new().write(true).open(new)?;
        Ok(Box::new(DiskWriter { file, written: 0 }))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        let file = File::open(path)?;
        advise(&file, access);
        Ok(Arc::new(DiskReader { file, access, map: self.map, mapped: self.mapped.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::hard_link(from, to) {
            Err(e) if !matches!(e.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {
                copy_synced(from, to)
            }
            linked => linked,
        }
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        // Unix syncs through any kind of handle, so a file without write permission can be synced too.
        OpenOptions::new().read(true).write(cfg!(not(unix))).open(path)?.sync_all()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        #[cfg(unix)]
        {
            // The parent of a single-component path is the empty path.
            let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
            File::open(dir)?.sync_all()
        }
        #[cfg(not(unix))]
        {
            let _ = dir;
            Ok(())
        }
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        fs::exists(path)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.len())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        Ok(lock(path)?.map(|lock| Box::new(lock) as Box<dyn DirLock>))
    }

    fn is_locked_here(&self, path: &Path) -> io::Result<bool> {
        Ok(held().contains(&fs::canonicalize(path)?))
    }

    fn available_space(&self, path: &Path) -> io::Result<Option<u64>> {
        #[cfg(unix)]
        {
            let stat = rustix::fs::statvfs(path)?;
            Ok(Some(stat.f_bavail.saturating_mul(stat.f_frsize)))
        }
        #[cfg(not(unix))]
        {
            let _ = path;
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_counts_while_it_lives() {
        let dir = tempfile::tempdir().unwrap();
        let fs = DiskFs::new();
        let path = dir.path().join("file");
        fs.create(&path, Usage::Table).unwrap().append(&[7; 5000]).unwrap();
        let map = fs.open(&path, Access::Random).unwrap().map().unwrap();
        assert_eq!(fs.mapped.now(), 5000);
        assert_eq!(map.as_ref().map(|map| map[4999]), Some(7));
        drop(map);
        assert_eq!(fs.mapped.now(), 0);
    }
}
