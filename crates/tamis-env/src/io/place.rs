//! Where paths lead: names of files to system calls.
//!
//! A path in a directory that is [held](Places::hold) leads through the descriptor of that
//! directory (`openat` and its kin). So it leads to the same files once the directory is renamed,
//! once another one has its name, and once the process has another working directory. Every other
//! path is looked up as it is. On systems that are not Unix there are no such descriptors, but a
//! directory cannot be renamed there while a file in it is open; what is held is its absolute path.
//!
//! # Invariants
//!
//! * Only regular files are opened: a FIFO of a file's name would stop its reader for ever, and a
//!   device could do anything. The open itself never waits.
//! * Directories are closed without a look at the result, which says nothing about what was read.
//!   `std::fs::read_dir` panics where that fails.
//!
//! Everything here may be called from any thread.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mode {
    pub(super) read: bool,
    pub(super) write: bool,
    /// Bypassing the page cache.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "no other system has it"))]
    pub(super) direct: bool,
}

impl Mode {
    pub(super) const READ: Mode = Mode { read: true, write: false, direct: false };
    pub(super) const WRITE: Mode = Mode { read: false, write: true, direct: false };
    pub(super) const READ_WRITE: Mode = Mode { read: true, write: true, direct: false };
}

/// A directory that stays the same whatever its name.
#[derive(Debug)]
struct Held {
    path: PathBuf,
    #[cfg(unix)]
    dir: std::os::fd::OwnedFd,
    #[cfg(not(unix))]
    absolute: PathBuf,
}

/// The directories that are held.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    held: Vec<Arc<Held>>,
}

fn not_a_file(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a regular file", path.display()))
}

impl Places {
    /// Returns these places and `dir`, which has to exist.
    pub(super) fn hold(&self, dir: &Path) -> io::Result<Places> {
        let held = Held {
            path: dir.to_owned(),
            #[cfg(unix)]
            dir: self.open_dir(dir)?,
            #[cfg(not(unix))]
            absolute: std::path::absolute(dir)?,
        };
        let mut places = self.clone();
        // The last comes first: it may be within another one.
        places.held.insert(0, Arc::new(held));
        Ok(places)
    }

    /// Returns the held directory that `path` lies in, and the rest of the path, which is empty for
    /// the directory itself.
    fn held<'p>(&self, path: &'p Path) -> Option<(&Held, &'p Path)> {
        self.held.iter().find_map(|held| Some((&**held, path.strip_prefix(&held.path).ok()?)))
    }

    /// Creates and opens a file of a name that must not exist.
    pub(super) fn create_new(&self, path: &Path, mode: Mode) -> io::Result<File> {
        self.open_with(path, mode, true)
    }

    /// Opens an existing regular file.
    pub(super) fn open(&self, path: &Path, mode: Mode) -> io::Result<File> {
        let file = self.open_with(path, mode, false)?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(not_a_file(path)),
        }
    }

    /// Opens a new file under `path`. An old file of that name loses the name but keeps its bytes
    /// for handles, mappings and links that still refer to it.
    pub(super) fn create_fresh(&self, path: &Path, mode: Mode) -> io::Result<File> {
        match self.create_new(path, mode) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                self.remove(path)?;
                self.create_new(path, mode)
            }
            other => other,
        }
    }

    /// Copies to a file that must not exist, and syncs it. Leaves nothing behind on failure.
    fn copy_synced(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut source = self.open(from, Mode::READ)?;
        let mut target = self.create_new(to, Mode::WRITE)?;
        let copied = io::copy(&mut source, &mut target).and_then(|_| target.sync_all());
        if copied.is_err() {
            let _ = self.remove(to);
        }
        copied
    }

    /// Creates a hard link, or copies the file where that is impossible.
    pub(super) fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        match self.link(from, to) {
            Err(e) if !matches!(e.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {
                self.copy_synced(from, to)
            }
            linked => linked,
        }
    }
}

#[cfg(unix)]
mod system {
    use std::ffi::OsString;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::os::unix::ffi::OsStringExt;

    use rustix::fs::{AtFlags, CWD, FileType, OFlags};
    use rustix::io::{Errno, retry_on_intr};

    use super::*;

    /// The permissions of new files and directories, less the process's mask.
    const FILE: rustix::fs::Mode = rustix::fs::Mode::from_raw_mode(0o666);
    const DIRECTORY: rustix::fs::Mode = rustix::fs::Mode::from_raw_mode(0o777);

    impl Places {
        /// Returns what a system call is to look up, and from where.
        fn at<'p>(&'p self, path: &'p Path) -> (BorrowedFd<'p>, &'p Path) {
            match self.held(path) {
                Some((held, rest)) if rest.as_os_str().is_empty() => (held.dir.as_fd(), Path::new(".")),
                Some((held, rest)) => (held.dir.as_fd(), rest),
                None => (CWD, path),
            }
        }

        pub(super) fn open_dir(&self, path: &Path) -> io::Result<OwnedFd> {
            let (dir, path) = self.at(path);
            // The parent of a path of one component is the empty path.
            let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            Ok(retry_on_intr(|| rustix::fs::openat(dir, path, flags, rustix::fs::Mode::empty()))?)
        }

        pub(super) fn open_with(&self, path: &Path, mode: Mode, create: bool) -> io::Result<File> {
            let (dir, name) = self.at(path);
            let mut flags = match mode {
                Mode { write: false, .. } => OFlags::RDONLY,
                Mode { read: false, .. } => OFlags::WRONLY,
                _ => OFlags::RDWR,
            };
            // Of no effect on regular files once they are open.
            flags |= OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
            flags.set(OFlags::CREATE | OFlags::EXCL, create);
            #[cfg(target_os = "linux")]
            flags.set(OFlags::DIRECT, mode.direct);
            let opened = retry_on_intr(|| rustix::fs::openat(dir, name, flags, FILE));
            match opened {
                // A FIFO that nobody reads, a socket.
                Err(Errno::NXIO) => Err(not_a_file(path)),
                opened => Ok(File::from(opened?)),
            }
        }

        /// Opens a file for reading and writing, and creates it if need be.
        pub(in crate::io) fn open_or_create(&self, path: &Path) -> io::Result<File> {
            let (dir, name) = self.at(path);
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
            let file = File::from(retry_on_intr(|| rustix::fs::openat(dir, name, flags, FILE))?);
            match file.metadata()?.is_file() {
                true => Ok(file),
                false => Err(not_a_file(path)),
            }
        }

        pub(in crate::io) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            let ((from_dir, from), (to_dir, to)) = (self.at(from), self.at(to));
            Ok(rustix::fs::renameat(from_dir, from, to_dir, to)?)
        }

        pub(in crate::io) fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
            let ((from_dir, from), (to_dir, to)) = (self.at(from), self.at(to));
            Ok(rustix::fs::linkat(from_dir, from, to_dir, to, AtFlags::empty())?)
        }

        pub(in crate::io) fn remove(&self, path: &Path) -> io::Result<()> {
            let (dir, path) = self.at(path);
            Ok(rustix::fs::unlinkat(dir, path, AtFlags::empty())?)
        }

        pub(in crate::io) fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
            let (dir, path) = self.at(path);
            remove_tree(dir, path)
        }

        pub(in crate::io) fn create_dir_all(&self, path: &Path) -> io::Result<()> {
            let Some((held, rest)) = self.held(path) else { return fs::create_dir_all(path) };
            let mut below: Vec<&Path> = rest.ancestors().collect();
            below.retain(|part| !part.as_os_str().is_empty());
            for part in below.into_iter().rev() {
                match rustix::fs::mkdirat(&held.dir, part, DIRECTORY) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            self.open_dir(path).map(drop)
        }

        pub(in crate::io) fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
            let names = names(self.open_dir(dir)?)?;
            Ok(names.into_iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect())
        }

        pub(in crate::io) fn sync_dir(&self, dir: &Path) -> io::Result<()> {
            // Not `fsync`: on macOS, that leaves the names in the device's cache.
            File::from(self.open_dir(dir)?).sync_all()
        }

        pub(in crate::io) fn exists(&self, path: &Path) -> io::Result<bool> {
            match self.stat(path) {
                Ok(_) => Ok(true),
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(e) => Err(e),
            }
        }

        pub(in crate::io) fn len(&self, path: &Path) -> io::Result<u64> {
            Ok(self.stat(path)?.st_size as u64)
        }

        /// Returns what tells the file from all others of the machine: its device, and its number
        /// there.
        pub(in crate::io) fn identity(&self, path: &Path) -> io::Result<(u64, u64)> {
            let stat = self.stat(path)?;
            #[allow(clippy::unnecessary_cast, reason = "narrower on some systems")]
            Ok((stat.st_dev as u64, stat.st_ino as u64))
        }

        fn stat(&self, path: &Path) -> io::Result<rustix::fs::Stat> {
            let (dir, path) = self.at(path);
            Ok(rustix::fs::statat(dir, path, AtFlags::empty())?)
        }

        pub(in crate::io) fn available_space(&self, path: &Path) -> io::Result<Option<u64>> {
            let stat = match self.held(path) {
                Some((held, _)) => rustix::fs::fstatvfs(&held.dir)?,
                None => rustix::fs::statvfs(path)?,
            };
            Ok(Some(stat.f_bavail.saturating_mul(stat.f_frsize)))
        }
    }

    /// Returns the names in a directory, and what they name.
    fn names(dir: OwnedFd) -> io::Result<Vec<(OsString, FileType)>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push((OsString::from_vec(name.to_vec()), entry.file_type()));
            }
        }
        Ok(names)
    }

    /// Removes a directory with all that is in it, and follows no symbolic link.
    fn remove_tree(parent: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let dir = match retry_on_intr(|| rustix::fs::openat(parent, path, flags, rustix::fs::Mode::empty())) {
            Err(Errno::LOOP | Errno::NOTDIR) if is_link(parent, path)? => {
                return Ok(rustix::fs::unlinkat(parent, path, AtFlags::empty())?);
            }
            dir => dir?,
        };
        for (name, kind) in names(dir.try_clone()?)? {
            let name = Path::new(&name);
            let kind = match kind {
                FileType::Unknown => {
                    let stat = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    FileType::from_raw_mode(stat.st_mode)
                }
                kind => kind,
            };
            match kind {
                FileType::Directory => remove_tree(dir.as_fd(), name)?,
                _ => rustix::fs::unlinkat(&dir, name, AtFlags::empty())?,
            }
        }
        Ok(rustix::fs::unlinkat(parent, path, AtFlags::REMOVEDIR)?)
    }

    fn is_link(parent: BorrowedFd<'_>, path: &Path) -> io::Result<bool> {
        let stat = rustix::fs::statat(parent, path, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    }
}

#[cfg(not(unix))]
mod system {
    use std::borrow::Cow;
    use std::fs::OpenOptions;

    use super::*;

    impl Places {
        fn at<'p>(&self, path: &'p Path) -> Cow<'p, Path> {
            match self.held(path) {
                Some((held, rest)) => Cow::Owned(held.absolute.join(rest)),
                None => Cow::Borrowed(path),
            }
        }

        pub(super) fn open_with(&self, path: &Path, mode: Mode, create: bool) -> io::Result<File> {
            let mut options = OpenOptions::new();
            options.read(mode.read).write(mode.write).create_new(create).open(self.at(path))
        }

        /// Opens a file for reading and writing that nobody else has open, and creates it if need
        /// be.
        #[cfg(windows)]
        pub(in crate::io) fn open_alone(&self, path: &Path) -> io::Result<File> {
            use std::os::windows::fs::OpenOptionsExt;
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).share_mode(0);
            options.open(self.at(path))
        }

        pub(in crate::io) fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
            fs::canonicalize(self.at(path))
        }

        pub(in crate::io) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            fs::rename(self.at(from), self.at(to))
        }

        pub(in crate::io) fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
            fs::hard_link(self.at(from), self.at(to))
        }

        pub(in crate::io) fn remove(&self, path: &Path) -> io::Result<()> {
            fs::remove_file(self.at(path))
        }

        pub(in crate::io) fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
            fs::remove_dir_all(self.at(path))
        }

        pub(in crate::io) fn create_dir_all(&self, path: &Path) -> io::Result<()> {
            fs::create_dir_all(self.at(path))
        }

        pub(in crate::io) fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
            let entries = fs::read_dir(self.at(dir))?;
            entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
        }

        /// Windows flushes what a directory holds through a handle to it that may write.
        #[cfg(windows)]
        pub(in crate::io) fn sync_dir(&self, dir: &Path) -> io::Result<()> {
            use std::os::windows::fs::OpenOptionsExt;
            /// `FILE_FLAG_BACKUP_SEMANTICS`: without it, directories cannot be opened.
            const DIRECTORIES_TOO: u32 = 0x0200_0000;
            let mut options = OpenOptions::new();
            options.write(true).custom_flags(DIRECTORIES_TOO).open(self.at(dir))?.sync_all()
        }

        #[cfg(not(windows))]
        pub(in crate::io) fn sync_dir(&self, _: &Path) -> io::Result<()> {
            Ok(())
        }

        pub(in crate::io) fn exists(&self, path: &Path) -> io::Result<bool> {
            fs::exists(self.at(path))
        }

        pub(in crate::io) fn len(&self, path: &Path) -> io::Result<u64> {
            Ok(fs::metadata(self.at(path))?.len())
        }

        #[cfg(windows)]
        pub(in crate::io) fn available_space(&self, path: &Path) -> io::Result<Option<u64>> {
            fs4::available_space(self.at(path)).map(Some)
        }

        #[cfg(not(windows))]
        pub(in crate::io) fn available_space(&self, _: &Path) -> io::Result<Option<u64>> {
            Ok(None)
        }
    }
}
