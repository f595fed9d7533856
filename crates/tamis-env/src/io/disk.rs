//! [`DiskFs`]: the operating system's files, through its page cache.
//!
//! # Invariants
//!
//! * A file that exists under a name is never truncated by [`create`](FileSystem::create): a new
//!   file takes its name, so existing readers, mappings and hard links keep the old bytes.
//! * A writer's position counts only bytes written successfully; the next append overwrites a
//!   failed one.
//!
//! # Platforms
//!
//! Preallocation and access hints work on Linux and Android (hints also on FreeBSD) and are no-ops
//! elsewhere. `sync_dir` is a no-op on Windows, where directories cannot be synced. The crate
//! compiles on systems that are neither Unix nor Windows, but reading and locking fail with
//! `Unsupported` there.
//!
//! Everything here may be called from any thread; only the directory lock takes a lock.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

#[cfg(target_os = "linux")]
use super::mapped::MappedWriter;
use super::pages::MappedBytes;
use super::place::{Mode, Places};
use super::{Access, DirLock, FileSystem, Mapping, Overlap, ReadFile, Usage, WriteFile, lock, memory_bytes};

/// The operating system's files, through its page cache.
#[derive(Clone, Debug)]
pub struct DiskFs {
    map: bool,
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "logs are mapped on Linux only"))]
    map_logs: bool,
    mapped: Arc<MappedBytes>,
    pub(super) places: Places,
}

impl DiskFs {
    /// Creates a file system whose files can be mapped: [`ReadFile::map`] returns the page cache's
    /// own memory.
    ///
    /// If another program truncates a mapped file, touching a lost page kills the process with
    /// `SIGBUS`; choose [`without_mapping`](Self::without_mapping) where that can happen.
    pub fn new() -> Self {
        DiskFs {
            map: true,
            map_logs: false,
            mapped: Arc::new(MappedBytes::new(memory_bytes())),
            places: Places::default(),
        }
    }

    /// Creates a file system that only reads by copying; [`ReadFile::map`] returns `None`.
    pub fn without_mapping() -> Self {
        DiskFs {
            map: false,
            map_logs: false,
            mapped: Arc::new(MappedBytes::new(0)),
            places: Places::default(),
        }
    }

    /// Reckons with `bytes` of memory for the pages of mapped files, in place of what the machine
    /// or the control group allows: beyond half of it they are
    /// [scarce](super::MappedPages::are_scarce). For files that were mapped before, nothing
    /// changes.
    pub fn with_memory(self, bytes: u64) -> Self {
        DiskFs { mapped: Arc::new(MappedBytes::new(bytes)), ..self }
    }

    /// Lets logs be appended to through a mapping, without a system call each, where that is safe:
    /// see the module `mapped`. Elsewhere, and without this, appends are system calls.
    pub fn with_mapped_logs(self, mapped: bool) -> Self {
        DiskFs { map_logs: mapped, ..self }
    }

    /// Returns this file system with a directory held.
    pub(super) fn holding(&self, dir: &Path) -> io::Result<DiskFs> {
        Ok(DiskFs { places: self.places.hold(dir)?, ..self.clone() })
    }
}

impl Default for DiskFs {
    fn default() -> Self {
        DiskFs::new()
    }
}

/// Reserves `bytes` from the start of `file`, extending its length; the first `written` are already
/// allocated. Succeeds without effect where the system or the file system does not support it;
/// running out of space is an error.
pub(super) fn preallocate(file: &File, written: u64, bytes: u64) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if bytes > written {
        return match extend(file, written, bytes) {
            Err(e) if !is_unsupported(e) => Err(e.into()),
            _ => Ok(()),
        };
    }
    // Elsewhere the call either does not exist or, on Apple's systems, would also cut a longer
    // file.
    let _ = (file, written, bytes);
    Ok(())
}

/// Provides the bytes in `from..to` of a file. After an error the file is as long as before, unless
/// that fails, too.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn extend(file: &File, from: u64, to: u64) -> rustix::io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate, fstat, ftruncate};
    let before = fstat(file)?.st_size as u64;
    // Without KEEP_SIZE the length grows now, so that a later fdatasync finds no changed length to
    // write.
    let result = fallocate(file, FallocateFlags::empty(), from, to - from);
    // ext4 and XFS keep the part that they found space for.
    if result.is_err_and(|e| !is_unsupported(e))
        && let Err(e) = ftruncate(file, before)
    {
        log::warn!("space that could not be reserved as a whole is still taken: {e}");
    }
    result
}

/// Reports whether an error says that the file system cannot reserve space.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn is_unsupported(error: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(error, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)
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

/// Reports whether a read of `len` bytes at `offset` lies within the largest possible file. Offsets
/// come from bytes on disk; beyond this the system would report an invalid argument instead of the
/// end of the file.
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

/// Writes all of two pieces, the second behind the first, at `offset`: one system call.
#[cfg(target_os = "linux")]
pub(super) fn write_both_at(file: &File, first: &[u8], second: &[u8], offset: u64) -> io::Result<()> {
    let pieces = [io::IoSlice::new(first), io::IoSlice::new(second)];
    let written = match rustix::io::pwritev(file, &pieces, offset) {
        Ok(written) => written,
        Err(rustix::io::Errno::INTR) => 0,
        Err(e) => return Err(e.into()),
    };
    // Hardly ever is anything left: a full disk, a signal.
    let (of_first, of_second) = (written.min(first.len()), written.saturating_sub(first.len()));
    if of_first < first.len() {
        write_all_at(file, &first[of_first..], offset + of_first as u64)?;
    }
    write_all_at(file, &second[of_second..], offset + (first.len() + of_second) as u64)
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

    #[cfg(target_os = "linux")]
    fn append_both(&mut self, first: &[u8], second: &[u8]) -> io::Result<()> {
        write_both_at(&self.file, first, second, self.written)?;
        self.written += (first.len() + second.len()) as u64;
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

    /// Also returns `None` if the system has no room for another mapping, or its file system cannot
    /// map.
    fn map(&self) -> io::Result<Option<Mapping>> {
        if !self.map {
            return Ok(None);
        }
        if self.len()? == 0 {
            return Ok(Some(Mapping::new(Arc::new(Vec::new()))));
        }
        // SAFETY: the slice handed out must not change while it lives. By the contract of
        // `ReadFile::map` the engine maps only files it finished writing; it never writes to or
        // truncates one afterwards, only removes it, which leaves the mapped pages in place, and
        // `create` gives a reused name to a new file.
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

impl FileSystem for DiskFs {
    fn hold(&self, dir: &Path) -> io::Result<Option<Arc<dyn FileSystem>>> {
        Ok(Some(Arc::new(self.holding(dir)?)))
    }

    fn create(&self, path: &Path, usage: Usage) -> io::Result<Box<dyn WriteFile>> {
        #[cfg(target_os = "linux")]
        if self.map_logs && usage == Usage::Log {
            let file = self.places.create_fresh(path, Mode::READ_WRITE)?;
            return Ok(Box::new(MappedWriter::new(file, 0)));
        }
        let _ = usage;
        let file = self.places.create_fresh(path, Mode::WRITE)?;
        Ok(Box::new(DiskWriter { file, written: 0 }))
    }

    fn reuse(&self, old: &Path, new: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.places.rename(old, new)?;
        #[cfg(target_os = "linux")]
        if self.map_logs {
            let file = self.places.open(new, Mode::READ_WRITE)?;
            let len = file.metadata()?.len();
            return Ok(Box::new(MappedWriter::new(file, len)));
        }
        let file = self.places.open(new, Mode::WRITE)?;
        Ok(Box::new(DiskWriter { file, written: 0 }))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        let file = self.places.open(path, Mode::READ)?;
        advise(&file, access);
        Ok(Arc::new(DiskReader { file, access, map: self.map, mapped: self.mapped.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.places.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.places.remove(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.places.remove_dir_all(path)
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.places.link_or_copy(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.places.link(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.places.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.places.list(dir)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        // Unix syncs through any kind of handle, so a file without write permission can be synced
        // too.
        let mode = if cfg!(unix) { Mode::READ } else { Mode::READ_WRITE };
        self.places.open(path, mode)?.sync_all()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.places.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.places.exists(path)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.places.len(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        Ok(lock::take(&self.places, path)?.map(|lock| Box::new(lock) as Box<dyn DirLock>))
    }

    fn is_locked_here(&self, path: &Path) -> io::Result<bool> {
        lock::is_held_here(&self.places, path)
    }

    fn available_space(&self, path: &Path) -> io::Result<Option<u64>> {
        self.places.available_space(path)
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
