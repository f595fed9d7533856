//! Images of a partition that is added to while they are taken, and a crash at any moment after.
//!
//! What lies on disk is the tables of the manifest and one image: the epochs of its entries, and
//! `until`. It is one value, since the manifest is a log: a crash leaves what some moment had. A
//! key list is the epoch of its table.

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// What is on disk.
#[derive(Clone, Copy)]
struct Disk {
    tables: u64,
    image: u64,
    until: u64,
}

impl Disk {
    fn from(bits: u64) -> Disk {
        Disk { tables: bits & 0xff, image: bits >> 8 & 0xff, until: bits >> 16 }
    }

    fn bits(self) -> u64 {
        self.tables | self.image << 8 | self.until << 16
    }

    /// What an opening makes of it: the image, and the tables that may have later epochs.
    fn load(self) {
        let log = self.tables & (u64::MAX << self.until);
        assert_eq!(self.tables & !(self.image | log), 0, "denied after a crash");
    }
}

/// Behind the `state` lock.
struct State {
    next_epoch: u64,
}

struct Tree {
    /// Guards additions to `cell`.
    work: Mutex<()>,
    state: Mutex<State>,
    unpublished: Mutex<u64>,
    missing: Mutex<u64>,
    cell: AtomicU64,
    /// What readers have: the tables, and those that are candidates for every key.
    view: AtomicU64,
    disk: AtomicU64,
}

impl Tree {
    fn new() -> Arc<Tree> {
        Arc::new(Tree {
            work: Mutex::new(()),
            state: Mutex::new(State { next_epoch: 1 }),
            unpublished: Mutex::new(0),
            missing: Mutex::new(0),
            cell: AtomicU64::new(0),
            view: AtomicU64::new(0),
            disk: AtomicU64::new(Disk { tables: 0, image: 0, until: 0 }.bits()),
        })
    }

    fn on_disk(&self) -> Disk {
        Disk::from(self.disk.load(Ordering::Acquire))
    }

    /// Under `state`: the manifest first, then the view, which lacks what is missing.
    fn publish(&self, tables: u64) {
        self.disk.store(Disk { tables, ..self.on_disk() }.bits(), Ordering::Release);
        let lacking = *self.missing.lock().unwrap() & tables;
        self.view.store(tables | lacking << 8, Ordering::Release);
    }

    fn take_epoch(state: &mut State) -> u64 {
        state.next_epoch += 1;
        state.next_epoch - 1
    }

    fn add(&self, epochs: u64) {
        self.cell.store(self.cell.load(Ordering::Acquire) | epochs, Ordering::Release);
    }

    fn flush(&self) {
        let epoch = {
            let mut state = self.state.lock().unwrap();
            let epoch = Tree::take_epoch(&mut state);
            *self.unpublished.lock().unwrap() |= 1 << epoch;
            epoch
        };
        {
            let _state = self.state.lock().unwrap();
            *self.missing.lock().unwrap() |= 1 << epoch;
            self.publish(self.on_disk().tables | 1 << epoch);
        }
        *self.unpublished.lock().unwrap() &= !(1 << epoch);
    }

    fn ingest(&self) {
        let mut state = self.state.lock().unwrap();
        let epoch = Tree::take_epoch(&mut state);
        *self.missing.lock().unwrap() |= 1 << epoch;
        self.publish(self.on_disk().tables | 1 << epoch);
    }

    /// Adds what flushes and ingestions have brought, or are about to.
    fn insert_lacking(&self) {
        let _work = self.work.lock().unwrap();
        let missing = *self.missing.lock().unwrap();
        self.add(missing);
        *self.missing.lock().unwrap() &= !missing;
        let _state = self.state.lock().unwrap();
        self.publish(self.on_disk().tables);
    }

    fn save(&self) {
        let (image, until) = {
            let _work = self.work.lock().unwrap();
            let state = self.state.lock().unwrap();
            let missing = *self.missing.lock().unwrap() & self.on_disk().tables;
            let excluded = missing | *self.unpublished.lock().unwrap();
            let first = if excluded == 0 { u64::MAX } else { u64::from(excluded.trailing_zeros()) };
            (self.cell.load(Ordering::Acquire), state.next_epoch.min(first))
        };
        // The file is written without a lock, and then named by an edit.
        let _state = self.state.lock().unwrap();
        self.disk.store(Disk { image, until, ..self.on_disk() }.bits(), Ordering::Release);
    }

    fn read(&self) {
        let view = self.view.load(Ordering::Acquire);
        let (tables, lacking) = (view & 0xff, view >> 8);
        assert_eq!(tables & !(self.cell.load(Ordering::Acquire) | lacking), 0, "denied");
    }
}

fn beside(tree: &Arc<Tree>, work: fn(&Tree)) -> thread::JoinHandle<()> {
    let tree = tree.clone();
    thread::spawn(move || work(&tree))
}

/// A flush takes an epoch and publishes later than one that has taken the next, or not before the
/// crash.
#[test]
fn an_image_beside_flushes_denies_nothing_after_a_crash() {
    loom::model(|| {
        let tree = Tree::new();
        let flushes = [
            beside(&tree, Tree::flush),
            beside(&tree, |tree| {
                tree.flush();
                tree.insert_lacking();
                tree.save();
            }),
        ];
        tree.on_disk().load();
        tree.read();
        flushes.into_iter().for_each(|flush| flush.join().unwrap());
        tree.on_disk().load();
        tree.read();
    });
}

/// The epochs of an ingestion are published before they are in the filter.
#[test]
fn an_image_beside_an_ingestion_denies_nothing_after_a_crash() {
    loom::model(|| {
        let tree = Tree::new();
        let ingestion = beside(&tree, Tree::ingest);
        let flush = beside(&tree, |tree| {
            tree.flush();
            tree.insert_lacking();
            tree.save();
        });
        tree.read();
        tree.on_disk().load();
        ingestion.join().unwrap();
        flush.join().unwrap();
        tree.read();
        tree.on_disk().load();
    });
}
