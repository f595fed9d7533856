//! Transactions that meet in one group: none of them is in a memtable while the others are judged.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicUsize, Ordering};

use tamis_testkit::isolation::{Kind, Txn, anomalies};

use crate::Db;
use crate::conflicts::bugs::Bug;
use crate::options::Durability;
use crate::sync;
use crate::transaction::options::Isolation;
use crate::transaction::options::Isolation::Serializable;
use crate::transaction::options::Isolation::Snapshot;
use crate::transaction::tests::Recorded;
use crate::transaction::tests::open;

/// Lets the work of every thread begin, and their commits meet in one group, or two. Returns their
/// history.
fn meet(db: &Db, isolation: Isolation, work: impl Fn(usize, &mut Recorded) + Sync) -> Vec<Txn> {
    const THREADS: usize = 5;
    let begun = AtomicUsize::new(0);
    // Nobody commits while the log is taken: one waits for it, and the others queue up.
    let log = db.inner().log.lock();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (work, begun) = (&work, &begun);
                scope.spawn(move || {
                    let mut tx = Recorded::begin(db, isolation);
                    work(thread, &mut tx);
                    begun.fetch_add(1, Relaxed);
                    tx.commit()
                })
            })
            .collect();
        let queued =
            || begun.load(Ordering::Relaxed) == THREADS && db.inner().committer.queued() == THREADS - 1;
        while !queued() {
            sync::thread::sleep(std::time::Duration::from_micros(100));
        }
        drop(log);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn committed(history: &[Txn]) -> usize {
    history.iter().filter(|txn| txn.committed.is_some()).count()
}

fn add_one(thread: usize, tx: &mut Recorded) {
    tx.read(0);
    tx.write(0, Some(thread as u64 + 1));
}

#[test]
fn of_a_group_that_wants_the_same_key_one_commits() {
    for isolation in [Snapshot, Serializable] {
        let db = open();
        let groups = db.stats().write.groups;
        let history = meet(&db, isolation, add_one);
        assert_eq!(committed(&history), 1);
        assert_eq!(anomalies(&history), []);
        assert_eq!(db.stats().write.groups - groups, 1, "one record");
        assert_eq!(db.stats().write.conflicts, 4);
    }
}

#[test]
fn of_a_group_that_wants_different_keys_all_commit_in_one_record() {
    let db = open();
    let groups = db.stats().write.groups;
    let history = meet(&db, Serializable, |thread, tx| {
        tx.read(thread as u32);
        tx.write(thread as u32, Some(thread as u64 + 1));
    });
    assert_eq!((committed(&history), db.stats().write.groups - groups), (5, 1));
    let mut seqs: Vec<u64> = history.iter().filter_map(|txn| txn.committed).collect();
    seqs.sort_unstable();
    assert_eq!(seqs, [1, 2, 3, 4, 5], "each knows its own number");
}

#[test]
fn phantoms_within_a_group_are_found() {
    let db = open();
    let history = meet(&db, Serializable, |thread, tx| {
        tx.scan(0, 8, false);
        tx.write(thread as u32, Some(thread as u64 + 1));
    });
    assert_eq!(committed(&history), 1);
}

#[test]
fn the_checker_finds_a_group_that_is_not_compared_with_itself() {
    let db = open();
    db.inner().transactions.history.bugs.set(Bug::Ahead);
    let history = meet(&db, Serializable, add_one);
    assert_eq!(anomalies(&history)[0].kind, Kind::GSingle);
}

#[test]
fn a_group_without_any_commit_writes_nothing() {
    let db = open();
    let mut first = Recorded::begin(&db, Serializable);
    add_one(7, &mut first);
    db.put(crate::transaction::tests::key(0), crate::transaction::tests::value(100)).unwrap();
    let before = db.stats();
    assert_eq!(first.commit().committed, None);
    let after = db.stats();
    assert_eq!((after.write.log_bytes, after.visible_seq), (before.write.log_bytes, before.visible_seq));
    db.write_with(crate::WriteBatch::new(), Durability::Sync).unwrap();
}
