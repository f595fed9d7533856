//! Keeps a limited number of unmapped tables' files open. Doubles as the file system for the rest
//! of the database, which closes these files when descriptors run out.
//!
//! A mapped table keeps no descriptor. Any other table opens its file when it is read and may find
//! it closed the next time. Beyond the limit, the least recently read files are closed, as
//! approximated by a clock algorithm.
//!
//! # Threads
//!
//! A read of an open file takes no lock. It loads a pointer, sets a flag to record the use, and
//! takes a reference, which keeps the descriptor open during the read even if the file is closed
//! meanwhile. Reads in flight may thus exceed the limit by their number. Opening and closing take
//! the clock's mutex. The flag is a hint and publishes nothing (`Relaxed`).
//!
//! # Invariants
//!
//! A file is removed only once nothing holds its table, so a closed file can always be reopened. A
//! reopened file of the same length is assumed to be the same file; checksums protect its blocks.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tamis_env::io::{Access, DirLock, FileSystem, ReadFile, Usage, WriteFile};
use tamis_env::sync::Mutex;
use tamis_env::sync::thread::sleep;

/// After descriptors ran out, this many table files are reopened before batches of reads may be
/// large again.
const CAREFUL: u32 = 10_000;

/// How often to retry when no descriptor is available; others may take what was freed.
const TRIES: u32 = 5;

/// The open files of a database's tables. As a [`FileSystem`], it closes them when descriptors run
/// out.
#[derive(Debug)]
pub struct OpenFiles {
    fs: Arc<dyn FileSystem>,
    most: usize,
    /// How many further openings to make with care after descriptors ran out. A hint.
    scarce: AtomicU32,
    /// Open files, possibly including some of dropped tables. The next candidate for closing comes
    /// first.
    clock: Mutex<VecDeque<Weak<SharedFile>>>,
}

/// How one table accesses its file.
#[derive(Debug)]
pub(crate) enum TableFile {
    /// By its mapping, which needs no open file.
    Mapped,
    /// Not at all: the table could not be opened.
    Lost,
    /// The table keeps the file open.
    Own(Arc<dyn ReadFile>),
    /// The file is open while there is room.
    Shared(Arc<SharedFile>),
}

#[derive(Debug)]
pub(crate) struct SharedFile {
    files: Arc<OpenFiles>,
    path: PathBuf,
    len: u64,
    held: ArcSwapOption<Held>,
    /// Whether it was read since the clock last passed.
    used: AtomicBool,
}

/// A wrapper that makes the pointer thin, as `ArcSwapOption` requires.
#[derive(Debug)]
struct Held(Arc<dyn ReadFile>);

/// Reports whether the process or the system has no descriptor left.
fn out_of_descriptors(error: &io::Error) -> bool {
    #[cfg(unix)]
    {
        let errno = |errno: rustix::io::Errno| error.raw_os_error() == Some(errno.raw_os_error());
        errno(rustix::io::Errno::MFILE) || errno(rustix::io::Errno::NFILE)
    }
    #[cfg(not(unix))]
    {
        let _ = error;
        false
    }
}

impl OpenFiles {
    /// Creates a set of at most `most` open files; 0 means no limit.
    pub fn new(fs: Arc<dyn FileSystem>, most: usize) -> OpenFiles {
        let most = if most == 0 { usize::MAX } else { most };
        OpenFiles { fs, most, scarce: AtomicU32::new(0), clock: Mutex::default() }
    }

    /// Reports whether descriptors ran out recently.
    fn are_scarce(&self) -> bool {
        self.scarce.load(Relaxed) > 0
    }

    /// Runs `act`, which may need a descriptor. If none is left, closes all files of the clock and
    /// runs `act` again. A call that failed this way is assumed to have had no effect; `act` must
    /// handle any exception.
    fn with_room<T>(&self, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        for attempt in 0..TRIES {
            match act() {
                Err(error) if out_of_descriptors(&error) => {
                    self.scarce.store(CAREFUL, Relaxed);
                    // If there was nothing to close, other threads may free descriptors soon: they
                    // are reading, or have just closed all files.
                    if !self.close_all() && attempt > 0 {
                        sleep(Duration::from_millis(1 << attempt));
                    }
                }
                result => return result,
            }
        }
        act()
    }

    /// The number of open files.
    pub fn count(&self) -> usize {
        let clock = self.clock.lock();
        clock.iter().filter_map(Weak::upgrade).filter(|file| file.held.load().is_some()).count()
    }

    /// Registers a table's open file.
    pub(crate) fn share(self: &Arc<Self>, path: &Path, file: Arc<dyn ReadFile>, len: u64) -> TableFile {
        let (held, used) = (ArcSwapOption::empty(), AtomicBool::new(false));
        let shared = Arc::new(SharedFile { files: self.clone(), path: path.to_owned(), len, held, used });
        self.hold(&shared, file);
        TableFile::Shared(shared)
    }

    /// Keeps a just opened file open and closes files beyond the limit. Returns the file, or
    /// another handle to it if another thread was faster.
    fn hold(&self, shared: &Arc<SharedFile>, file: Arc<dyn ReadFile>) -> Arc<dyn ReadFile> {
        let mut clock = self.clock.lock();
        if let Some(held) = &*shared.held.load() {
            return held.0.clone();
        }
        shared.held.store(Some(Arc::new(Held(file.clone()))));
        clock.push_back(Arc::downgrade(shared));
        // Spare at most as many files as there are, so that the loop ends.
        let mut passes = clock.len();
        while clock.len() > self.most {
            let Some(next) = clock.pop_front() else { break };
            let Some(open) = next.upgrade() else { continue };
            if passes > 0 && open.used.swap(false, Relaxed) {
                passes -= 1;
                clock.push_back(next);
            } else {
                open.held.store(None);
            }
        }
        // Dropped tables do not deregister.
        if clock.len() > 64 && clock.len() == clock.capacity() {
            clock.retain(|file| file.strong_count() > 0);
        }
        file
    }

    /// Closes all files; returns `false` if there were none.
    fn close_all(&self) -> bool {
        let mut clock = self.clock.lock();
        clock.drain(..).filter_map(|file| file.upgrade()).fold(false, |_, file| {
            file.held.store(None);
            true
        })
    }
}

impl FileSystem for OpenFiles {
    fn create(&self, path: &Path, usage: Usage) -> io::Result<Box<dyn WriteFile>> {
        self.with_room(|| self.fs.create(path, usage))
    }

    fn reuse(&self, old: &Path, new: &Path) -> io::Result<Box<dyn WriteFile>> {
        let mut renamed = false;
        self.with_room(|| {
            if renamed {
                return self.fs.reuse(new, new);
            }
            let reused = self.fs.reuse(old, new);
            // The file is renamed first, which needs no descriptor.
            renamed = reused.is_err() && !self.fs.exists(old).unwrap_or(true);
            reused
        })
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        self.with_room(|| self.fs.open(path, access))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.fs.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.fs.remove(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.with_room(|| self.fs.remove_dir_all(path))
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.with_room(|| self.fs.link_or_copy(from, to))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.fs.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.with_room(|| self.fs.list(dir))
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.with_room(|| self.fs.sync_file(path))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.with_room(|| self.fs.sync_dir(dir))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.fs.exists(path)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.fs.file_len(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        self.with_room(|| self.fs.lock(path))
    }

    fn is_locked_here(&self, path: &Path) -> io::Result<bool> {
        self.fs.is_locked_here(path)
    }

    fn available_space(&self, path: &Path) -> io::Result<Option<u64>> {
        self.fs.available_space(path)
    }
}

impl TableFile {
    /// Reports whether few files should be held open at a time because descriptors ran out
    /// recently.
    pub(crate) fn is_scarce(&self) -> bool {
        matches!(self, TableFile::Shared(shared) if shared.files.are_scarce())
    }

    /// Returns the file for a read. Errors: it cannot be reopened, or its length has changed.
    /// Panics if it is mapped.
    #[inline]
    pub(crate) fn get(&self) -> io::Result<Arc<dyn ReadFile>> {
        match self {
            TableFile::Mapped => unreachable!("a mapped table reads its mapping"),
            TableFile::Lost => Err(io::ErrorKind::NotFound.into()),
            TableFile::Own(file) => Ok(file.clone()),
            TableFile::Shared(shared) => shared.get(),
        }
    }
}

impl SharedFile {
    fn get(self: &Arc<Self>) -> io::Result<Arc<dyn ReadFile>> {
        if let Some(held) = &*self.held.load() {
            // Not setting a flag that is already set keeps its cache line shared between cores.
            if !self.used.load(Relaxed) {
                self.used.store(true, Relaxed);
            }
            return Ok(held.0.clone());
        }
        if self.files.are_scarce() {
            // Lost decrements do not matter.
            self.files.scarce.store(self.files.scarce.load(Relaxed).saturating_sub(1), Relaxed);
        }
        let file = self.files.open(&self.path, Access::Random)?;
        let len = file.len()?;
        if len != self.len {
            let what = format!("it had {} bytes when it was first opened, and has {len} now", self.len);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(self.files.hold(self, file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tamis_env::io::MemFs;

    fn file(fs: &MemFs, name: &str, content: &[u8]) -> PathBuf {
        let path = PathBuf::from(name);
        fs.create(&path, Usage::Table).unwrap().append(content).unwrap();
        path
    }

    fn share(files: &Arc<OpenFiles>, path: &Path) -> TableFile {
        let file = files.open(path, Access::Random).unwrap();
        let len = file.len().unwrap();
        files.share(path, file, len)
    }

    fn read(file: &TableFile) -> u8 {
        let mut byte = [0];
        file.get().unwrap().read_exact_at(&mut byte, 0).unwrap();
        byte[0]
    }

    #[test]
    fn no_more_files_are_open_than_the_limit_says_and_all_can_be_read() {
        let fs = MemFs::new();
        let files = Arc::new(OpenFiles::new(Arc::new(fs.clone()), 3));
        let tables: Vec<TableFile> =
            (0..10u8).map(|i| share(&files, &file(&fs, &format!("/{i}"), &[i]))).collect();
        assert_eq!(files.count(), 3);
        for round in 0..50 {
            let i = round * 7 % 10;
            assert_eq!(read(&tables[i]), i as u8);
            assert_eq!(files.count(), 3);
        }
        drop(tables);
        assert_eq!(files.count(), 0);
        let _new = share(&files, &file(&fs, "/new", &[1]));
        assert_eq!(files.count(), 1);
    }

    #[test]
    fn recently_read_files_stay_open() {
        let fs = MemFs::new();
        let files = Arc::new(OpenFiles::new(Arc::new(fs.clone()), 4));
        let tables: Vec<TableFile> =
            (0..20u8).map(|i| share(&files, &file(&fs, &format!("/{i}"), &[i]))).collect();
        let is_open = |i: usize| match &tables[i] {
            TableFile::Shared(shared) => shared.held.load().is_some(),
            _ => false,
        };
        read(&tables[0]);
        for i in 1..20 {
            read(&tables[0]);
            read(&tables[i]);
            assert!(is_open(0), "{i}");
        }
    }

    #[test]
    fn a_file_that_was_replaced_while_closed_is_an_error() {
        let fs = MemFs::new();
        let files = Arc::new(OpenFiles::new(Arc::new(fs.clone()), 1));
        let (first, second) = (share(&files, &file(&fs, "/1", &[1])), share(&files, &file(&fs, "/2", &[2])));
        file(&fs, "/1", &[1, 1]);
        assert_eq!(first.get().unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(read(&second), 2);
    }

    #[test]
    fn threads_that_read_many_files_beyond_the_limit_get_right_answers() {
        let fs = MemFs::new();
        let files = Arc::new(OpenFiles::new(Arc::new(fs.clone()), 2));
        let tables: Vec<TableFile> =
            (0..6u8).map(|i| share(&files, &file(&fs, &format!("/{i}"), &[i]))).collect();
        std::thread::scope(|scope| {
            for t in 0..4 {
                let tables = &tables;
                scope.spawn(move || {
                    for round in 0..2000 {
                        let i = (round * (t + 1) + t) % 6;
                        assert_eq!(read(&tables[i]), i as u8);
                    }
                });
            }
        });
        assert!(files.count() <= 2);
    }

    #[test]
    fn without_a_limit_nothing_is_closed() {
        let fs = MemFs::new();
        let files = Arc::new(OpenFiles::new(Arc::new(fs.clone()), 0));
        let tables: Vec<TableFile> =
            (0..200u8).map(|i| share(&files, &file(&fs, &format!("/{i}"), &[i]))).collect();
        assert_eq!(files.count(), tables.len());
    }
}
