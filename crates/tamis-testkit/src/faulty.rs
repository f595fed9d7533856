//! [`FaultyFs`]: a file system that crashes and fails on demand.
//!
//! An in-memory file system that simulates power cuts and injected failures. It keeps two states of
//! everything: the *volatile* one, which programs see, and the *durable* one. `sync` makes a file's
//! bytes and length durable, `sync_dir` a directory's names. [`FaultyFs::crash`] starts a new
//! machine from what survives.
//!
//! # The model
//!
//! * Data survives in sectors of 512 bytes, in any combination; one sector of each file may be
//!   torn.
//! * Names survive change by change, in order, per directory. Renaming within a directory and
//!   linking are one change; replacing a file by `create` is two (removal, creation), as on a disk;
//!   moving between directories is one in each, with no order between them. A directory's own name
//!   must be synced in its parent; only the root (`/`, the same as the empty path) is always there.
//! * After a failed sync the bytes it should have written count as clean: no later sync makes them
//!   durable, unless they are written again. A failed `sync_dir` loses nothing; a later one may
//!   succeed.
//! * A full device writes the part of an append that fits and refuses the rest. A removed file
//!   frees its space at once, even while it is open.
//!
//! # Threads
//!
//! One mutex per machine: every operation is atomic, and a crash falls between two of them.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

mod files;
mod model;
mod ranges;
#[cfg(test)]
mod tests;

use crate::Rng;
use model::{Dir, DirState, File, Names, Node, lock};

/// What a failed device gives, on every Unix.
#[cfg(unix)]
const EIO: i32 = 5;

/// The kinds of operations a [`FaultPlan`] can be limited to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpClass {
    /// Opening and reading files, lengths, lists, existence.
    Read,
    /// Appends, preallocation and truncation.
    Write,
    /// Syncs of files and directories.
    Sync,
    /// Changes of names: creation (of directories and locks too), reuse, renaming, linking,
    /// removal.
    Name,
}

/// Which operations fail, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// The number of the operation that fails, as [`FaultyFs::operations`] counts: the first has
    /// number 0. If that operation is not in the class `only`, the next one that is.
    pub fail_at: Option<u64>,
    /// The kind of the error: `StorageFull` is what `ENOSPC` gives; `Other` is `EIO` where
    /// that exists.
    pub error: io::ErrorKind,
    /// If true, all later operations (of the class) fail too.
    pub sticky: bool,
    /// Only operations of this class fail; all do if `None`.
    pub only: Option<OpClass>,
    /// If true, a failing append may leave a prefix of its bytes in the file.
    pub partial_append: bool,
}

impl FaultPlan {
    /// Nothing fails.
    pub fn none() -> Self {
        FaultPlan {
            fail_at: None,
            error: io::ErrorKind::Other,
            sticky: false,
            only: None,
            partial_append: false,
        }
    }
}

/// What a crash leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashMode {
    /// The process dies but not the operating system: everything written survives, and stays
    /// unsynced.
    KeepAll,
    /// The power fails, and only synced data survives.
    DropUnsynced,
    /// The power fails, and some of the unsynced data survives: any sectors of the files, possibly
    /// part of one, a length between the old and the new, and a prefix of the changes of each
    /// directory.
    Random,
}

/// A file system in memory that fails and crashes on demand. Clones are the same machine.
#[derive(Clone, Debug)]
pub struct FaultyFs {
    machine: Arc<Mutex<Machine>>,
}

#[derive(Debug)]
struct Machine {
    root: Arc<Dir>,
    rng: Rng,
    plan: FaultPlan,
    operations: u64,
    failures: u64,
    capacity: Option<u64>,
    /// Bytes of all files that have a name.
    used: u64,
    locked: BTreeSet<Vec<String>>,
    crashed: bool,
}

impl FaultyFs {
    /// Creates an empty machine without limits or faults. Equal seeds and equal operations give
    /// equal crashes.
    pub fn new(seed: u64) -> Self {
        FaultyFs::start(Arc::default(), Rng::new(seed), None)
    }

    /// Creates an empty machine that stops at the operation with this number, counted from 0: it
    /// and all later ones fail, an append possibly half done. [`after_crash`](Self::after_crash)
    /// then returns the machine as of that moment.
    pub fn stopping_at(seed: u64, operation: u64) -> Self {
        let fs = FaultyFs::new(seed);
        fs.plan(FaultPlan {
            fail_at: Some(operation),
            sticky: true,
            partial_append: true,
            ..FaultPlan::none()
        });
        fs
    }

    fn start(root: Arc<Dir>, rng: Rng, capacity: Option<u64>) -> Self {
        let mut machine = Machine {
            root: root.clone(),
            rng,
            plan: FaultPlan::none(),
            operations: 0,
            failures: 0,
            capacity,
            used: 0,
            locked: BTreeSet::new(),
            crashed: false,
        };
        machine.count_links(&root, &mut HashSet::new());
        FaultyFs { machine: Arc::new(Mutex::new(machine)) }
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        lock(&self.machine)
    }

    /// Returns the number of operations on this machine that can fail: every trait call that
    /// touches a file, whether it succeeded or not. Queries of free space, mappings and dropped
    /// handles do not count.
    pub fn operations(&self) -> u64 {
        self.machine().operations
    }

    /// Returns the number of operations that failed by plan.
    pub fn failures(&self) -> u64 {
        self.machine().failures
    }

    /// Sets what fails from now on, replacing the last plan.
    pub fn plan(&self, plan: FaultPlan) {
        self.machine().plan = plan;
    }

    /// Limits all files together to this many bytes; existing content stays.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.machine().capacity = bytes;
    }

    /// Crashes this machine and returns the restarted one, which counts operations from 0 and has
    /// no plan, no locks and the same capacity. Every later operation through this machine, its
    /// clones and handles fails.
    pub fn crash(&self, mode: CrashMode) -> FaultyFs {
        let mut machine = self.machine();
        machine.crashed = true;
        machine.after_crash(mode)
    }

    /// Returns what [`crash`](Self::crash) would, while this machine goes on: to examine many
    /// crashes of one run.
    pub fn after_crash(&self, mode: CrashMode) -> FaultyFs {
        self.machine().after_crash(mode)
    }

    /// Damages one byte permanently. Fails if there is no such file or byte.
    pub fn corrupt(&self, path: impl AsRef<Path>, offset: u64, xor: u8) -> io::Result<()> {
        let machine = self.machine();
        let file = machine.file(&parts(path.as_ref())?)?;
        let mut file = lock(&file);
        let at = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        *file.volatile.get_mut(at).ok_or(io::ErrorKind::InvalidInput)? ^= xor;
        if let Some(byte) = file.durable.get_mut(at) {
            *byte ^= xor;
        }
        Ok(())
    }

    /// Truncates a file to `len` bytes permanently. Fails if there is no such file or it is
    /// shorter.
    pub fn truncate(&self, path: impl AsRef<Path>, len: u64) -> io::Result<()> {
        let mut machine = self.machine();
        let file = machine.file(&parts(path.as_ref())?)?;
        let mut file = lock(&file);
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let cut = file.volatile.len().checked_sub(len).ok_or(io::ErrorKind::InvalidInput)?;
        file.set_len(len);
        file.durable.truncate(len);
        machine.used -= cut as u64;
        Ok(())
    }

    /// Returns all files a program sees, with their lengths in bytes, ordered by path. Paths start
    /// at the root.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        fn walk(dir: &Dir, path: &Path, found: &mut Vec<(PathBuf, u64)>) {
            let names = lock(dir).names.clone();
            for (name, node) in names {
                match node {
                    Node::File(file) => found.push((path.join(name), lock(&file).volatile.len() as u64)),
                    Node::Dir(dir) => walk(&dir, &path.join(name), found),
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.machine().root, Path::new("/"), &mut found);
        found.sort();
        found
    }

    /// Returns the content that is certain to survive a power cut under `path`; `None` if the name
    /// might be lost.
    pub fn durable_bytes(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let machine = self.machine();
        let parts = parts(path.as_ref()).ok()?;
        match walk(&machine.root, &parts, |dir| &dir.durable)? {
            Node::File(file) => Some(lock(&file).durable.clone()),
            Node::Dir(_) => None,
        }
    }
}

/// Splits a path into names. The root and the current directory are the same place; `..` is
/// refused.
fn parts(path: &Path) -> io::Result<Vec<String>> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
            Component::ParentDir => return Err(io::ErrorKind::InvalidInput.into()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Ok(parts)
}

/// Follows `parts` from `root` through the names that `view` chooses.
fn walk(root: &Arc<Dir>, parts: &[String], view: fn(&DirState) -> &Names) -> Option<Node> {
    let mut node = Node::Dir(root.clone());
    for part in parts {
        let Node::Dir(dir) = node else { return None };
        node = view(&lock(&dir)).get(part)?.clone();
    }
    Some(node)
}

impl Machine {
    fn after_crash(&mut self, mode: CrashMode) -> FaultyFs {
        let root = model::survivors(&self.root, mode, &mut self.rng);
        let rng = Rng::new(self.rng.next_u64());
        FaultyFs::start(root, rng, self.capacity)
    }

    /// Counts the names of each file below a directory that was just restored, and the space they
    /// take.
    fn count_links(&mut self, dir: &Arc<Dir>, seen: &mut HashSet<*const Dir>) {
        if !seen.insert(Arc::as_ptr(dir)) {
            return;
        }
        let names = lock(dir).names.clone();
        for node in names.values() {
            match node {
                Node::File(file) => self.linked(file),
                Node::Dir(dir) => self.count_links(dir, seen),
            }
        }
    }

    fn alive(&self) -> io::Result<()> {
        if self.crashed { Err(io::Error::other("this machine has crashed")) } else { Ok(()) }
    }

    /// Counts an operation and fails it if the plan says so.
    fn step(&mut self, class: OpClass) -> io::Result<()> {
        self.alive()?;
        let number = self.operations;
        self.operations += 1;
        let due = self.plan.fail_at.is_some_and(|at| at <= number);
        if !due || self.plan.only.is_some_and(|only| only != class) {
            return Ok(());
        }
        if !self.plan.sticky {
            self.plan.fail_at = None;
        }
        self.failures += 1;
        Err(match self.plan.error {
            #[cfg(unix)]
            io::ErrorKind::Other => io::Error::from_raw_os_error(EIO),
            error => io::Error::new(error, format!("operation {number} ({class:?}) was planned to fail")),
        })
    }

    fn node(&self, parts: &[String]) -> io::Result<Node> {
        walk(&self.root, parts, |dir| &dir.names).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn file(&self, parts: &[String]) -> io::Result<Arc<File>> {
        match self.node(parts)? {
            Node::File(file) => Ok(file),
            Node::Dir(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn dir(&self, parts: &[String]) -> io::Result<Arc<Dir>> {
        match self.node(parts)? {
            Node::Dir(dir) => Ok(dir),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// Returns the directory that holds the last name of `parts`, and that name.
    fn parent<'a>(&self, parts: &'a [String]) -> io::Result<(Arc<Dir>, &'a String)> {
        let (name, above) = parts.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((self.dir(above)?, name))
    }

    /// Records one more name of a file.
    fn linked(&mut self, file: &File) {
        let mut file = lock(file);
        if file.links == 0 {
            self.used += file.volatile.len() as u64;
        }
        file.links += 1;
    }

    /// Records one name fewer of a file.
    fn unlinked(&mut self, file: &File) {
        let mut file = lock(file);
        file.links -= 1;
        if file.links == 0 {
            self.used -= file.volatile.len() as u64;
        }
    }

    /// Returns the length to which a file may grow; `None` without a limit.
    fn growth_limit(&self, file: &model::FileState) -> Option<u64> {
        if file.links == 0 {
            return None;
        }
        let free = self.capacity?.saturating_sub(self.used);
        Some(file.volatile.len() as u64 + free)
    }

    /// Applies `change` to a file and adjusts the space in use by the change of its length.
    fn resized<T>(
        &mut self,
        file: &mut model::FileState,
        change: impl FnOnce(&mut model::FileState) -> T,
    ) -> T {
        let before = file.volatile.len() as u64;
        let result = change(file);
        if file.links > 0 {
            self.used = self.used - before + file.volatile.len() as u64;
        }
        result
    }
}
