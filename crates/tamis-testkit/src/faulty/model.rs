//! The content of a medium, and the operating system's view of it.
//!
//! # Invariants
//!
//! * A file's durable and volatile bytes are equal wherever both exist, outside the unsynced and
//!   the abandoned ranges; volatile bytes behind the durable end are zeros outside those ranges.
//! * A directory's durable names with the pending changes applied in order are its volatile names.
//!
//! The machine's mutex is held whenever a node's is taken, and never more than one node's.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::CrashMode;
use super::ranges::Ranges;
use crate::Rng;

/// The unit that a device writes whole or, when torn, in part. In bytes.
pub(super) const SECTOR: usize = 512;

pub(super) type File = Mutex<FileState>;
pub(super) type Dir = Mutex<DirState>;

/// Locks a node. A panic elsewhere leaves nodes as they are: test threads die by design.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Debug)]
pub(super) enum Node {
    File(Arc<File>),
    Dir(Arc<Dir>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct FileState {
    /// The bytes that a reader sees.
    pub(super) volatile: Vec<u8>,
    /// The state that is certain to survive a power cut.
    pub(super) durable: Vec<u8>,
    /// Written since the last sync, good or failed.
    unsynced: Ranges,
    /// Unsynced when a sync failed, and not written since: no later sync writes these, because the
    /// operating system considers them clean.
    abandoned: Ranges,
    /// The number of names of the file; without any it takes no space.
    pub(super) links: usize,
}

impl FileState {
    /// Writes `bytes` at `at`, growing the file where needed.
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        if self.volatile.len() < end {
            self.set_len(end);
        }
        self.volatile[at..end].copy_from_slice(bytes);
        self.unsynced.add(at..end);
        self.abandoned.remove(at..end);
    }

    /// Truncates the file or extends it with zeros.
    pub(super) fn set_len(&mut self, len: usize) {
        let old = self.volatile.len();
        self.volatile.resize(len, 0);
        if len < old {
            self.unsynced.remove(len..old);
            self.abandoned.remove(len..old);
        } else {
            // Truncated earlier and not synced since: the medium still has the old bytes where
            // zeros are now.
            self.unsynced.add(old..len.min(self.durable.len()));
        }
    }

    pub(super) fn sync(&mut self) {
        self.durable.resize(self.volatile.len(), 0);
        for range in std::mem::take(&mut self.unsynced).iter() {
            self.durable[range.clone()].copy_from_slice(&self.volatile[range]);
        }
    }

    pub(super) fn fail_sync(&mut self) {
        for range in std::mem::take(&mut self.unsynced).iter() {
            self.abandoned.add(range);
        }
    }

    /// Returns the file as the restarted machine finds it.
    fn after_crash(&self, mode: CrashMode, rng: &mut Rng) -> FileState {
        match mode {
            CrashMode::KeepAll => FileState { links: 0, ..self.clone() },
            CrashMode::DropUnsynced => FileState::settled(self.durable.clone()),
            CrashMode::Random => FileState::settled(self.random_survivor(rng)),
        }
    }

    fn settled(bytes: Vec<u8>) -> FileState {
        FileState { durable: bytes.clone(), volatile: bytes, ..FileState::default() }
    }

    fn random_survivor(&self, rng: &mut Rng) -> Vec<u8> {
        let (old, new) = (self.durable.len(), self.volatile.len());
        let len = match rng.up_to(2) {
            0 => old,
            1 => new,
            _ => old.min(new) + rng.up_to(old.abs_diff(new)),
        };
        let mut bytes = self.durable.clone();
        bytes.resize(len, 0);

        let mut sectors: Vec<usize> = Vec::new();
        for range in self.unsynced.iter().chain(self.abandoned.iter()) {
            sectors.extend(range.start / SECTOR..range.end.div_ceil(SECTOR));
        }
        sectors.sort_unstable();
        sectors.dedup();

        // Independent coin flips alone would hardly ever produce the plain cases: everything,
        // nothing, a prefix.
        let first_lost = match rng.up_to(3) {
            0 => Some(0),
            1 => Some(sectors.len()),
            2 => Some(rng.up_to(sectors.len())),
            _ => None,
        };
        let eighths = [1, 4, 7][rng.up_to(2)];
        // At most one sector was being written when the power failed.
        let torn = match (sectors.len().checked_sub(1), rng.chance(3)) {
            (Some(last), true) => Some(if rng.chance(4) { last } else { rng.up_to(last) }),
            _ => None,
        };
        for (index, sector) in sectors.iter().enumerate() {
            let kept = if torn == Some(index) {
                rng.up_to(SECTOR)
            } else if first_lost.map_or_else(|| rng.chance(eighths), |first| index < first) {
                SECTOR
            } else {
                0
            };
            let start = sector * SECTOR;
            let end = (start + kept).min(len).min(new);
            if start < end {
                bytes[start..end].copy_from_slice(&self.volatile[start..end]);
            }
        }
        bytes
    }
}

pub(super) type Names = BTreeMap<String, Node>;

/// One step that a file system's journal keeps or loses atomically.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Set(String, Node),
    Remove(String),
    /// Within the directory.
    Rename(String, String),
}

impl Change {
    fn apply(self, names: &mut Names) {
        match self {
            Change::Set(name, node) => {
                names.insert(name, node);
            }
            Change::Remove(name) => {
                names.remove(&name);
            }
            Change::Rename(from, to) => {
                if let Some(node) = names.remove(&from) {
                    names.insert(to, node);
                }
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct DirState {
    /// The state that a program sees.
    pub(super) names: Names,
    /// The state that is certain to survive a power cut.
    pub(super) durable: Names,
    /// The changes since the last successful sync, oldest first.
    pending: Vec<Change>,
}

impl DirState {
    pub(super) fn change(&mut self, change: Change) {
        change.clone().apply(&mut self.names);
        self.pending.push(change);
    }

    pub(super) fn sync(&mut self) {
        self.durable = self.names.clone();
        self.pending.clear();
    }
}

/// Copies the tree below `root` as the restarted machine finds it. A file with several names stays
/// one file.
pub(super) fn survivors(root: &Arc<Dir>, mode: CrashMode, rng: &mut Rng) -> Arc<Dir> {
    Survivors { mode, rng, files: HashMap::new(), dirs: HashMap::new() }.dir(root)
}

struct Survivors<'a> {
    mode: CrashMode,
    rng: &'a mut Rng,
    /// By the address of the original.
    files: HashMap<*const File, Arc<File>>,
    dirs: HashMap<*const Dir, Arc<Dir>>,
}

impl Survivors<'_> {
    fn node(&mut self, node: &Node) -> Node {
        match node {
            Node::File(file) => {
                let (mode, rng) = (self.mode, &mut *self.rng);
                let copy = self
                    .files
                    .entry(Arc::as_ptr(file))
                    .or_insert_with(|| Arc::new(Mutex::new(lock(file).after_crash(mode, rng))));
                Node::File(copy.clone())
            }
            Node::Dir(dir) => Node::Dir(self.dir(dir)),
        }
    }

    fn names(&mut self, names: &Names) -> Names {
        names.iter().map(|(name, node)| (name.clone(), self.node(node))).collect()
    }

    fn dir(&mut self, dir: &Arc<Dir>) -> Arc<Dir> {
        if let Some(copy) = self.dirs.get(&Arc::as_ptr(dir)) {
            return copy.clone();
        }
        // Registered before it is filled, and without the lock of the original: renamed directories
        // may have swapped places, so the durable and the volatile tree together can hold a cycle.
        let copy = Arc::new(Dir::default());
        self.dirs.insert(Arc::as_ptr(dir), copy.clone());
        let original = lock(dir).clone();
        let survivor = match self.mode {
            CrashMode::KeepAll => DirState {
                names: self.names(&original.names),
                durable: self.names(&original.durable),
                pending: original
                    .pending
                    .into_iter()
                    .map(|change| match change {
                        Change::Set(name, node) => Change::Set(name, self.node(&node)),
                        other => other,
                    })
                    .collect(),
            },
            CrashMode::DropUnsynced | CrashMode::Random => {
                let mut names = original.durable;
                if self.mode == CrashMode::Random {
                    // A journal is replayed from its start.
                    let kept = self.rng.up_to(original.pending.len());
                    original.pending.into_iter().take(kept).for_each(|change| change.apply(&mut names));
                }
                let names = self.names(&names);
                DirState { durable: names.clone(), names, pending: Vec::new() }
            }
        };
        *lock(&copy) = survivor;
        copy
    }
}
