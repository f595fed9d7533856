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
    /// The tables that are candidates for every key.
    lacking: u64,
    directory: u64,
}

impl Version {
    fn from(bits: u64) -> Version {
        Version { tables: bits & 0xff, lacking: bits >> 8 & 0xff, directory: bits >> 16 }
    }

    fn bits(self) -> u64 {
        self.tables | self.lacking << 8 | self.directory << 16
    }
}

struct Tree {
    /// Held while cells or the directory change.
    work: Mutex<()>,
    /// Guards the replacement of `view`.
    state: Mutex<()>,
    missing: Mutex<u64>,
    view: AtomicU64,
    directory: AtomicU64,
    cells: [AtomicU64; 2],
}

impl Tree {
    fn new() -> Arc<Tree> {
        Arc::new(Tree {
            work: Mutex::new(()),
            state: Mutex::new(()),
            missing: Mutex::new(0),
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
        let lacking = *self.missing.lock().unwrap() & tables;
        self.view.store(Version { tables, lacking, directory }.bits(), Ordering::Release);
    }

    fn flush(&self, epoch: u64) {
        let _state = self.state.lock().unwrap();
        *self.missing.lock().unwrap() |= 1 << epoch;
        self.publish(Version::from(self.view.load(Ordering::Acquire)).tables | 1 << epoch);
    }

    /// By the thread that works on the filter.
    fn insert(&self) {
        let _work = self.work.lock().unwrap();
        let missing = *self.missing.lock().unwrap();
        self.add(self.directory.load(Ordering::Acquire), missing);
        *self.missing.lock().unwrap() &= !missing;
        let _state = self.state.lock().unwrap();
        self.publish(Version::from(self.view.load(Ordering::Acquire)).tables);
    }

    /// By the same thread.
    fn rebuild(&self) {
        let seen = Version::from(self.view.load(Ordering::Acquire));
        let old = seen.directory;
        self.cells[1 - old as usize].store(seen.tables, Ordering::Release);
        let _work = self.work.lock().unwrap();
        {
            let _state = self.state.lock().unwrap();
            self.directory.store(1 - old, Ordering::Release);
            self.publish(Version::from(self.view.load(Ordering::Acquire)).tables);
        }
        // Only entries of the last level are removed, and shrunk cells do not deny those.
        self.add(old, SHRUNK);
    }

    /// Reads like any reader; everything in the version must be found.
    fn read(&self) -> u64 {
        let version = Version::from(self.view.load(Ordering::Acquire));
        let entries = self.cells[version.directory as usize].load(Ordering::Acquire);
        assert_eq!(version.tables & !(entries | version.lacking), 0, "denied");
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
            move || {
                tree.insert();
                tree.rebuild();
                tree.insert();
            }
        });
        let first = tree.read();
        assert_eq!(first & !tree.read(), 0, "keys once seen stay visible");
        flush.join().unwrap();
        rebuild.join().unwrap();
        tree.insert();
        assert_eq!(tree.read(), 0b110);
        assert_eq!(Version::from(tree.view.load(Ordering::Acquire)).lacking, 0);
    });
}

#[test]
fn a_compaction_during_a_rebuild_takes_the_current_directory() {
    loom::model(|| {
        let tree = Tree::new();
        tree.flush(1);
        tree.insert();
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
