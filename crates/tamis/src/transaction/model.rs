//! Checks the validation protocol under every interleaving and every value that the memory model
//! lets a load return.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test -p tamis --lib transaction::model
//! ```
//!
//! One keyspace with one key and two memtables; the first is sealed and flushed. A memtable is the
//! number of its newest write; a view is the set of its memtables plus which one is active. That a
//! write can be found in a memtable once its number is visible is the subject of `memtable::model`.
//! There are no tables: validation never asks them. The steps are in the order of `Committer`,
//! `SnapshotPin::new`, `Session::judge_ahead` and `judge_part`, `keep_for_transactions` and
//! `trim_history`.
//!
//! The claims: a transaction commits only if no write has a number between its snapshot's and its
//! own; and nothing is kept without an open transaction. Each [`Mistake`] is an order of steps that
//! the protocol forbids, and the check must find that it breaks one of the claims.

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

#[derive(Clone, Copy, PartialEq)]
enum Mistake {
    None,
    /// A flush publishes the view before it keeps the memtable.
    PublishFirst,
    /// Validation asks the history before it loads the view.
    HistoryFirst,
    /// A flush checks for open transactions, but releases their lock before the memtable is kept.
    UnlockedList,
    /// Judging ahead reloads the visible number afterwards and counts everything up to it as
    /// judged.
    SeenAfter,
    /// Forgetting a kept memtable raises no floor.
    NoFloor,
}

/// A view: its two memtables as bits, and the active one.
const FIRST: u64 = 1;
const SECOND: u64 = 2;
const SECOND_ACTIVE: u64 = 4;

#[derive(Default)]
struct Kept {
    memtables: u64,
    floor: u64,
}

struct Db {
    mistake: Mistake,
    /// The number of the last write. Held while committing.
    log: Mutex<u64>,
    /// The numbers of all writes but the transaction's. Part of the check, not of the protocol.
    written: Mutex<Vec<u64>>,
    visible: AtomicU64,
    /// Guards the replacement of the view.
    state: Mutex<()>,
    view: AtomicU64,
    memtables: [AtomicU64; 2],
    /// The numbers at which the open transactions began.
    open: Mutex<Vec<u64>>,
    history: Mutex<Kept>,
}

impl Db {
    fn new(mistake: Mistake) -> Arc<Db> {
        Arc::new(Db {
            mistake,
            log: Mutex::new(0),
            written: Mutex::new(Vec::new()),
            visible: AtomicU64::new(0),
            state: Mutex::new(()),
            view: AtomicU64::new(FIRST),
            memtables: [AtomicU64::new(0), AtomicU64::new(0)],
            open: Mutex::new(Vec::new()),
            history: Mutex::default(),
        })
    }

    fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// Inserts the next write and makes it visible. The caller holds the log lock.
    fn assign(&self, last: &mut u64) {
        *last += 1;
        let active = usize::from(self.view.load(Ordering::Acquire) & SECOND_ACTIVE != 0);
        self.memtables[active].store(*last, Ordering::Release);
        self.visible.store(*last, Ordering::Release);
    }

    fn put(&self) {
        let mut last = self.log.lock().unwrap();
        self.assign(&mut last);
        self.written.lock().unwrap().push(*last);
    }

    fn seal(&self) {
        let _log = self.log.lock().unwrap();
        let _state = self.state.lock().unwrap();
        let view = self.view.load(Ordering::Acquire);
        self.view.store(view | SECOND | SECOND_ACTIVE, Ordering::Release);
    }

    /// The end of the first memtable's flush: the memtable leaves the view.
    fn flush(&self) {
        let _state = self.state.lock().unwrap();
        let publish = || {
            let view = self.view.load(Ordering::Acquire);
            self.view.store(view & !FIRST, Ordering::Release);
        };
        if self.mistake == Mistake::PublishFirst {
            publish();
        }
        let open = self.open.lock().unwrap();
        let oldest = open.iter().min().copied();
        let open = (self.mistake != Mistake::UnlockedList).then_some(open);
        let last = self.memtables[0].load(Ordering::Acquire);
        let mut kept = self.history.lock().unwrap();
        if oldest.is_some_and(|oldest| last > oldest) {
            kept.memtables |= FIRST;
        } else if self.mistake != Mistake::NoFloor {
            kept.floor = kept.floor.max(last);
        }
        drop(kept);
        drop(open);
        if self.mistake != Mistake::PublishFirst {
            publish();
        }
    }

    /// Drops what no open transaction needs.
    fn trim(&self) {
        let open = self.open.lock().unwrap();
        let seen = open.iter().min().copied().unwrap_or_else(|| self.visible());
        let mut kept = self.history.lock().unwrap();
        let last = self.memtables[0].load(Ordering::Acquire);
        if kept.memtables & FIRST != 0 && last <= seen {
            kept.memtables = 0;
            if self.mistake != Mistake::NoFloor {
                kept.floor = kept.floor.max(last);
            }
        }
    }

    fn begin(&self) -> u64 {
        let mut open = self.open.lock().unwrap();
        let since = self.visible();
        open.push(since);
        since
    }

    fn end(&self, since: u64) {
        let mut open = self.open.lock().unwrap();
        let place = open.iter().position(|other| *other == since).unwrap();
        open.remove(place);
        drop(open);
        self.trim();
    }

    /// Reports whether it is known that nothing was written after `since`.
    fn judge(&self, since: u64) -> bool {
        let kept = || {
            let kept = self.history.lock().unwrap();
            (kept.memtables, kept.floor)
        };
        let early = (self.mistake == Mistake::HistoryFirst).then(kept);
        let view = self.view.load(Ordering::Acquire);
        let (memtables, floor) = early.unwrap_or_else(kept);
        let newest = |bit: u64, place: usize| match (view | memtables) & bit {
            0 => 0,
            _ => self.memtables[place].load(Ordering::Acquire),
        };
        floor <= since && newest(FIRST, 0).max(newest(SECOND, 1)) <= since
    }

    /// An atomic change of one key, which is not among the open transactions: reads as of now, and
    /// commits if nothing came between.
    fn update(&self) {
        let since = self.visible();
        self.commit(since, since);
    }

    fn transact(&self) {
        let since = self.begin();
        let seen = self.visible();
        let ahead = since == seen || self.judge(since);
        let seen = if self.mistake == Mistake::SeenAfter { self.visible() } else { seen };
        if ahead {
            self.commit(since, seen);
        }
        self.end(since);
    }

    /// Commits a transaction that began at `since` and was judged up to `judged`, if nothing was
    /// written in between.
    fn commit(&self, since: u64, judged: u64) {
        let mut last = self.log.lock().unwrap();
        if judged < *last && !self.judge(judged) {
            return;
        }
        let lost = self.written.lock().unwrap().iter().any(|seq| *seq > since);
        assert!(!lost, "a transaction that began at {since} has committed over a later write");
        self.assign(&mut last);
        self.written.lock().unwrap().push(*last);
    }
}

/// Runs `one` beside `other` and a flush, after a write.
pub(crate) fn beside(mistake: Mistake, one: fn(&Db), other: fn(&Db)) {
    loom::model(move || {
        let db = Db::new(mistake);
        db.put();
        let spawn = |run: fn(&Db)| {
            let db = db.clone();
            thread::spawn(move || run(&db))
        };
        let others = [
            spawn(other),
            spawn(|db| {
                db.seal();
                db.flush();
            }),
        ];
        one(&db);
        others.map(|other| other.join().unwrap());
        let kept = db.history.lock().unwrap();
        assert_eq!(kept.memtables, 0, "nothing is kept without a transaction");
    });
}

#[test]
fn a_transaction_beside_a_write_and_a_flush() {
    beside(Mistake::None, Db::transact, Db::put);
}

#[test]
fn two_transactions_beside_a_flush() {
    beside(Mistake::None, Db::transact, Db::transact);
}

#[test]
fn a_change_of_one_key_beside_a_transaction_and_a_flush() {
    beside(Mistake::None, Db::update, Db::transact);
}

#[test]
#[should_panic(expected = "committed over a later write")]
fn a_view_that_is_published_before_the_memtable_is_kept_is_found() {
    beside(Mistake::PublishFirst, Db::transact, Db::put);
}

#[test]
#[should_panic(expected = "committed over a later write")]
fn a_history_that_is_asked_before_the_view_is_found() {
    beside(Mistake::HistoryFirst, Db::transact, Db::put);
}

#[test]
#[should_panic(expected = "nothing is kept without a transaction")]
fn a_list_of_transactions_that_changes_while_a_memtable_is_kept_is_found() {
    beside(Mistake::UnlockedList, Db::transact, Db::put);
}

#[test]
#[should_panic(expected = "committed over a later write")]
fn taking_too_much_for_judged_is_found() {
    beside(Mistake::SeenAfter, Db::transact, Db::put);
}

#[test]
#[should_panic(expected = "committed over a later write")]
fn a_floor_that_is_not_raised_is_found() {
    beside(Mistake::NoFloor, Db::update, Db::put);
}
