//! A file system that runs a test's action just before it answers a certain call: events between
//! two steps of the engine are then deterministic.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

use tamis::io::{Access, DirLock, FileSystem, ReadFile, Usage, WriteFile};
use tamis_testkit::FaultyFs;

type Action = Box<dyn FnOnce() + Send>;

/// The creations of tables that have to wait.
#[derive(Default)]
struct Held {
    /// Whether they have to.
    hold: bool,
    /// How many may go all the same.
    passes: usize,
    waiting: usize,
}

/// Runs an action before the first call that checks whether a path exists.
#[derive(Clone)]
pub(crate) struct Gate {
    fs: FaultyFs,
    path: PathBuf,
    action: Arc<Mutex<Option<Action>>>,
    held: Arc<(Mutex<Held>, Condvar)>,
}

impl Gate {
    pub(crate) fn new(fs: &FaultyFs, path: &str) -> Gate {
        Gate { fs: fs.clone(), path: path.into(), action: Arc::default(), held: Arc::default() }
    }

    /// Makes every creation of a table wait until this is called with `false`.
    pub(crate) fn hold_tables(&self, hold: bool) {
        self.held.0.lock().unwrap().hold = hold;
        self.held.1.notify_all();
    }

    /// Lets one creation of a table go.
    pub(crate) fn pass_one_table(&self) {
        self.held.0.lock().unwrap().passes += 1;
        self.held.1.notify_all();
    }

    /// Returns once a thread waits to create a table.
    pub(crate) fn wait_for_a_table(&self) {
        let held = self.held.0.lock().unwrap();
        drop(self.held.1.wait_while(held, |held| held.waiting == 0).unwrap());
    }

    pub(crate) fn before_it_answers(&self, action: impl FnOnce() + Send + 'static) {
        *self.action.lock().unwrap() = Some(Box::new(action));
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gate({})", self.path.display())
    }
}

impl FileSystem for Gate {
    fn exists(&self, path: &Path) -> io::Result<bool> {
        let action = self.action.lock().unwrap().take_if(|_| path == self.path);
        if let Some(action) = action {
            action();
        }
        self.fs.exists(path)
    }

    fn create(&self, path: &Path, usage: Usage) -> io::Result<Box<dyn WriteFile>> {
        if usage == Usage::Table {
            let mut held = self.held.0.lock().unwrap();
            held.waiting += 1;
            self.held.1.notify_all();
            held = self.held.1.wait_while(held, |held| held.hold && held.passes == 0).unwrap();
            held.waiting -= 1;
            held.passes = held.passes.saturating_sub(1);
        }
        self.fs.create(path, usage)
    }

    fn reuse(&self, old: &Path, new: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.fs.reuse(old, new)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        self.fs.open(path, access)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.fs.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.fs.remove(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.fs.remove_dir_all(path)
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.fs.link_or_copy(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.fs.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.fs.list(dir)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.fs.sync_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.fs.sync_dir(dir)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.fs.file_len(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        self.fs.lock(path)
    }

    fn available_space(&self, path: &Path) -> io::Result<Option<u64>> {
        self.fs.available_space(path)
    }
}
