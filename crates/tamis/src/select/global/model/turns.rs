//! The turns of `filter = auto` from per-table to global and back, beside a flush and a reader.
//!
//! A table's own filter denies none of its keys, so a version that is read by them can lose
//! nothing. One that is read by the global filter must find every table in it. There are two
//! directories: the second is the empty one that is left when the filter is dropped.

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    PerTable,
    Building,
    Global,
}

/// Set in a version that is read by the global filter.
const BY_FILTER: u64 = 1 << 16;
/// The place of the number of a version's directory.
const DIRECTORY: u32 = 17;
/// The place of the tables that are candidates for every key.
const LACKING: u32 = 8;

struct Tree {
    /// Held while cells or the directory change.
    work: Mutex<()>,
    missing: Mutex<u64>,
    /// Changed under `work` and `state` together, so read under either.
    stage: Mutex<Stage>,
    state: Mutex<()>,
    view: AtomicU64,
    directory: AtomicU64,
    cells: [AtomicU64; 2],
}

impl Tree {
    fn new() -> Arc<Tree> {
        Arc::new(Tree {
            work: Mutex::new(()),
            missing: Mutex::new(0),
            stage: Mutex::new(Stage::PerTable),
            state: Mutex::new(()),
            view: AtomicU64::new(0),
            directory: AtomicU64::new(0),
            cells: [AtomicU64::new(0), AtomicU64::new(0)],
        })
    }

    fn stage(&self) -> Stage {
        *self.stage.lock().unwrap()
    }

    fn tables(&self) -> u64 {
        self.view.load(Ordering::Acquire) & 0xff
    }

    /// Under `state`.
    fn publish(&self, tables: u64) {
        let mut missing = self.missing.lock().unwrap();
        if self.stage() == Stage::PerTable {
            *missing = 0;
        }
        let by_filter = if self.stage() == Stage::Global { BY_FILTER } else { 0 };
        let directory = self.directory.load(Ordering::Acquire);
        let lacking = *missing & tables;
        self.view.store(tables | lacking << LACKING | by_filter | directory << DIRECTORY, Ordering::Release);
    }

    fn flush(&self, epoch: u64) {
        let _state = self.state.lock().unwrap();
        if self.stage() != Stage::PerTable {
            *self.missing.lock().unwrap() |= 1 << epoch;
        }
        self.publish(self.tables() | 1 << epoch);
    }

    fn turn(&self, to: Stage) {
        let _work = self.work.lock().unwrap();
        let _state = self.state.lock().unwrap();
        *self.stage.lock().unwrap() = to;
        if to == Stage::PerTable {
            self.directory.store(1, Ordering::Release);
        }
        self.publish(self.tables());
    }

    /// Builds what the version has. What is flushed meanwhile is missing.
    fn build(&self) {
        let seen = self.tables();
        let _work = self.work.lock().unwrap();
        let _state = self.state.lock().unwrap();
        self.cells[0].store(seen, Ordering::Release);
        self.publish(self.tables());
    }

    fn insert(&self) {
        let _work = self.work.lock().unwrap();
        let missing = *self.missing.lock().unwrap();
        let cell = &self.cells[self.directory.load(Ordering::Acquire) as usize];
        cell.store(cell.load(Ordering::Acquire) | missing, Ordering::Release);
        *self.missing.lock().unwrap() &= !missing;
        let _state = self.state.lock().unwrap();
        self.publish(self.tables());
    }

    fn read(&self) -> u64 {
        let view = self.view.load(Ordering::Acquire);
        let (tables, lacking) = (view & 0xff, view >> LACKING & 0xff);
        let cell = self.cells[(view >> DIRECTORY) as usize].load(Ordering::Acquire);
        assert!(view & BY_FILTER == 0 || tables & !(cell | lacking) == 0, "denied");
        tables
    }
}

#[test]
fn a_filter_that_comes_and_goes_denies_nothing() {
    loom::model(|| {
        let tree = Tree::new();
        tree.flush(1);
        let flush = thread::spawn({
            let tree = tree.clone();
            move || tree.flush(2)
        });
        let turns = thread::spawn({
            let tree = tree.clone();
            move || {
                tree.turn(Stage::Building);
                tree.build();
                tree.turn(Stage::Global);
                tree.insert();
                tree.turn(Stage::PerTable);
            }
        });
        let first = tree.read();
        assert_eq!(first & !tree.read(), 0, "keys once seen stay visible");
        flush.join().unwrap();
        turns.join().unwrap();
        assert_eq!(tree.read(), 0b110);
    });
}
