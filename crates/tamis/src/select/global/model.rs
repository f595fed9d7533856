//! Checks the publishing protocol under every interleaving and every value that the memory model
//! lets a load return.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test -p tamis --lib global::model
//! ```
//!
//! The protocol of the parent module with the smallest values that can go wrong: one key, written
//! by the flushes of epochs 1 and 2. A partition is the set of epochs of its entries. A version is
//! the set of epochs of its tables and the number of its directory, which has one cell. Pointers
//! are these values themselves, stored and loaded in the order of `ArcSwap`. `images` adds crashes,
//! and `turns` a filter that is not always in force.

mod images;
mod turns;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// Set in a shrunk cell: keys not in it may be in the last level.
const SHRUNK: u64 = 1 << 32;

#[derive(Clone, Copy)]
struct Version {
    tables: u64,
    directory: u64,
}

impl Version {
    fn from(bits: u64) -> Version {
        Version { tables: bits & 0xffff, directory: bits >> 16 }
    }

    fn bits(self) -> u64 {
        self.tables | self.directory << 16
    }
}

struct Tree {
    /// Tables flushed since a rebuild began, if one is running.
    work: Mutex<Option<u64>>,
    /// Guards the replacement of `view`.
    state: Mutex<()>,
    view: AtomicU64,
    directory: AtomicU64,
    cells: [AtomicU64; 2],
}

impl Tree {
    fn new() -> Arc<Tree> {
        Arc::new(Tree {
            work: Mutex::new(None),
            state: Mutex::new(()),
            view: AtomicU64::new(0),
            directory: AtomicU64::new(0),
            cells: [AtomicU64::new(0), AtomicU64::new(0)],
        })
    }

    fn add(&self, directory: u64, epochs: u64) {
        let cell = &self.cells[directory as usize];
        cell.store(cell.load(Ordering::Acquire) | epochs, Ordering::Release);
    }

    /// Under `state`.
    fn publish(&self, tables: u64) {
        let directory = self.directory.load(Ordering::Acquire);
        self.view.store(Version { tables, directory }.bits(), Ordering::Release);
    }

    fn flush(&self, epoch: u64) {
        let mut work = self.work.lock().unwrap();
        self.add(self.directory.load(Ordering::Acquire), 1 << epoch);
        if let Some(since) = &mut *work {
            *since |= 1 << epoch;
        }
        let state = self.state.lock().unwrap();
        self.publish(Version::from(self.view.load(Ordering::Acquire)).tables | 1 << epoch);
        drop(state);
        drop(work);
    }

    fn rebuild(&self) {
        let seen = {
            let mut work = self.work.lock().unwrap();
            *work = Some(0);
            Version::from(self.view.load(Ordering::Acquire))
        };
        let old = seen.directory;
        self.cells[1 - old as usize].store(seen.tables, Ordering::Release);
        let mut work = self.work.lock().unwrap();
        self.add(1 - old, work.take().unwrap());
        {
            let _state = self.state.lock().unwrap();
            self.directory.store(1 - old, Ordering::Release);
            self.publish(Version::from(self.view.load(Ordering::Acquire)).tables);
        }
        // Only entries of the last level are removed, and shrunk cells do not deny those.
        self.add(old, SHRUNK);
        drop(work);
    }

    /// Reads like any reader; everything in the version must be found.
    fn read(&self) -> u64 {
        let version = Version::from(self.view.load(Ordering::Acquire));
        let entries = self.cells[version.directory as usize].load(Ordering::Acquire);
        assert_eq!(version.tables & !entries, 0, "denied");
        version.tables
    }
}

#[test]
fn flushes_during_a_rebuild_are_found_in_every_version() {
    loom::model(|| {
        let tree = Tree::new();
        tree.flush(1);
        let flush = thread::spawn({
            let tree = tree.clone();
            move || tree.flush(2)
        });
        let rebuild = thread::spawn({
            let tree = tree.clone();
            move || tree.rebuild()
        });
        let first = tree.read();
        assert_eq!(first & !tree.read(), 0, "keys once seen stay visible");
        flush.join().unwrap();
        rebuild.join().unwrap();
        assert_eq!(tree.read(), 0b110);
    });
}

#[test]
fn a_compaction_during_a_rebuild_takes_the_current_directory() {
    loom::model(|| {
        let tree = Tree::new();
        tree.flush(1);
        tree.flush(2);
        let rebuild = thread::spawn({
            let tree = tree.clone();
            move || tree.rebuild()
        });
        // A move: the same tables elsewhere.
        let compaction = thread::spawn({
            let tree = tree.clone();
            move || {
                let _state = tree.state.lock().unwrap();
                tree.publish(Version::from(tree.view.load(Ordering::Acquire)).tables);
            }
        });
        assert_eq!(tree.read(), 0b110);
        rebuild.join().unwrap();
        compaction.join().unwrap();
        assert_eq!(tree.read(), 0b110);
        assert_eq!(Version::from(tree.view.load(Ordering::Acquire)).directory, 1);
    });
}
