//! What a commit conflicts with, and what not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::transactions::{Isolation, TransactionOptions};
use tamis::{Db, Durability, Error, Options, Transaction, TransactionError, WriteBatch};

use crate::support::{begin, get, items, keyspace_options, open, options, text};

/// Runs `inside` in a transaction and `outside` beside it, and returns the key in conflict, if any.
fn conflict(
    isolation: Isolation,
    inside: impl FnOnce(&mut Transaction),
    outside: impl FnOnce(&Db),
) -> Option<String> {
    let db = open();
    for key in ["a", "b", "c", "d"] {
        db.put(key, "old").unwrap();
    }
    let mut tx = begin(&db, isolation);
    inside(&mut tx);
    // A write of its own makes it more than a reader.
    tx.put("own", "").unwrap();
    outside(&db);
    match tx.commit() {
        Ok(seq) => {
            assert_eq!(seq, db.stats().visible_seq);
            assert_eq!(get(&db, "own").as_deref(), Some(""));
            None
        }
        Err(TransactionError::Conflict { keyspace, key }) => {
            assert_eq!((keyspace, get(&db, "own")), ("default".into(), None));
            assert_eq!(db.stats().write.conflicts, 1);
            Some(text(key))
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_serializable_commit_conflicts_with_writes_of_what_it_read() {
    use Isolation::Serializable;
    let put = |key: &'static str| move |db: &Db| db.put(key, "new").unwrap();
    let get = |key: &'static str| move |tx: &mut Transaction| drop(tx.get(key).unwrap());
    assert_eq!(conflict(Serializable, get("a"), put("a")).as_deref(), Some("a"));
    assert_eq!(conflict(Serializable, get("a"), put("b")), None);
    assert_eq!(conflict(Serializable, get("x"), put("x")).as_deref(), Some("x"), "absent when read");
    assert_eq!(conflict(Serializable, get("a"), |db| db.delete("a").unwrap()).as_deref(), Some("a"));
    assert_eq!(conflict(Serializable, get("a"), |db| db.merge("a", "x").unwrap()).as_deref(), Some("a"));
    assert_eq!(
        conflict(Serializable, get("b"), |db| db.delete_range("a".."c").unwrap()).as_deref(),
        Some("b")
    );
    assert_eq!(conflict(Serializable, get("c"), |db| db.delete_range("a".."c").unwrap()), None);
    let many = |tx: &mut Transaction| drop(tx.multi_get(&["a", "x"]).unwrap());
    assert_eq!(conflict(Serializable, many, put("x")).as_deref(), Some("x"));
    let written = |tx: &mut Transaction| tx.put("a", "mine").unwrap();
    assert_eq!(conflict(Serializable, written, put("a")), None, "written, not read");
    let own = |tx: &mut Transaction| {
        tx.put("a", "mine").unwrap();
        tx.get("a").unwrap();
    };
    assert_eq!(conflict(Serializable, own, put("a")), None, "it read its own write");
    let merged = |tx: &mut Transaction| {
        tx.merge("a", "mine").unwrap();
        tx.get("a").unwrap();
    };
    assert_eq!(conflict(Serializable, merged, put("a")).as_deref(), Some("a"));
}

#[test]
fn a_serializable_commit_conflicts_with_phantoms_up_to_where_it_read() {
    use Isolation::Serializable;
    let put = |key: &'static str| move |db: &Db| db.put(key, "new").unwrap();
    let all = |tx: &mut Transaction| assert_eq!(tx.range("a".."c").count(), 2);
    assert_eq!(conflict(Serializable, all, put("a5")).as_deref(), Some("a5"));
    assert_eq!(conflict(Serializable, all, put("b")).as_deref(), Some("b"));
    assert_eq!(conflict(Serializable, all, put("c")), None);
    let first = |tx: &mut Transaction| drop(tx.range("a"..).next().unwrap().unwrap());
    assert_eq!(conflict(Serializable, first, put("a")).as_deref(), Some("a"));
    assert_eq!(conflict(Serializable, first, put("a5")), None, "it stopped before");
    let last = |tx: &mut Transaction| drop(tx.range("a"..).next_back().unwrap().unwrap());
    assert_eq!(conflict(Serializable, last, put("z")).as_deref(), Some("z"));
    assert_eq!(conflict(Serializable, last, put("c")), None);
    let none = |tx: &mut Transaction| assert!(tx.prefix("x").next().is_none());
    assert_eq!(conflict(Serializable, none, put("x1")).as_deref(), Some("x1"));
    assert_eq!(conflict(Serializable, none, |db| db.delete_range("w".."y").unwrap()).as_deref(), Some("x"));
    let unread = |tx: &mut Transaction| drop(tx.iter());
    assert_eq!(conflict(Serializable, unread, put("b")), None);
    let through_own = |tx: &mut Transaction| {
        tx.put("a1", "mine").unwrap();
        assert_eq!(items(tx.range("a0"..).take(1)), ["a1=mine"]);
    };
    assert_eq!(conflict(Serializable, through_own, put("a05")).as_deref(), Some("a05"));
    assert_eq!(conflict(Serializable, through_own, put("a2")), None);
}

#[test]
fn the_first_committer_wins_under_snapshot_isolation() {
    use Isolation::Snapshot;
    let put = |key: &'static str| move |db: &Db| db.put(key, "new").unwrap();
    let written = |tx: &mut Transaction| tx.put("a", "mine").unwrap();
    assert_eq!(conflict(Snapshot, written, put("a")).as_deref(), Some("a"));
    assert_eq!(conflict(Snapshot, written, put("b")), None);
    assert_eq!(conflict(Snapshot, written, |db| db.delete_range(.."b").unwrap()).as_deref(), Some("a"));
    assert_eq!(conflict(Snapshot, |tx| drop(tx.get("a").unwrap()), put("a")), None, "read, not written");
    assert_eq!(conflict(Snapshot, |tx| tx.delete("a").unwrap(), put("a")).as_deref(), Some("a"));
    assert_eq!(conflict(Snapshot, |tx| tx.merge("a", "x").unwrap(), put("a")).as_deref(), Some("a"));
    let range = |tx: &mut Transaction| tx.delete_range("a".."c").unwrap();
    assert_eq!(conflict(Snapshot, range, put("bb")).as_deref(), Some("bb"));
    assert_eq!(conflict(Snapshot, range, put("c")), None);
    assert_eq!(conflict(Snapshot, range, |db| db.delete_range("b".."d").unwrap()).as_deref(), Some("b"));
    let undone = |tx: &mut Transaction| {
        let before = tx.savepoint();
        tx.put("a", "mine").unwrap();
        tx.rollback_to(before).unwrap();
    };
    assert_eq!(conflict(Snapshot, undone, put("a")), None, "undone");
}

#[test]
fn conflicts_are_found_wherever_the_other_write_is_by_now() {
    for flushes in 0..3 {
        let read = |tx: &mut Transaction| {
            drop(tx.get("a").unwrap());
            assert!(tx.prefix("x").next().is_none());
        };
        for key in ["a", "x"] {
            let outside = |db: &Db| {
                db.put(key, "new").unwrap();
                for _ in 0..flushes {
                    db.flush().unwrap();
                    db.put("other", "").unwrap();
                }
                if flushes > 0 {
                    db.compact().unwrap();
                    assert!(db.stats().transaction_history_bytes > 0);
                }
            };
            assert_eq!(conflict(Isolation::Serializable, read, outside).as_deref(), Some(key), "{flushes}");
        }
        // Even if a merge leaves no trace of it: written and deleted, with nothing below.
        let outside = |db: &Db| {
            db.put("x", "").unwrap();
            db.delete("x").unwrap();
            for _ in 0..flushes {
                db.flush().unwrap();
                db.compact().unwrap();
            }
        };
        assert_eq!(conflict(Isolation::Serializable, read, outside).as_deref(), Some("x"), "{flushes}");
    }
}

#[test]
fn history_is_kept_for_open_transactions_only() {
    let db = open();
    let filled = |db: &Db| {
        for i in 0..100 {
            db.put(format!("fill{i}"), vec![0; 100]).unwrap();
        }
        db.flush().unwrap();
    };
    filled(&db);
    assert_eq!(db.stats().transaction_history_bytes, 0);
    let snapshot = db.snapshot();
    filled(&db);
    assert_eq!(db.stats().transaction_history_bytes, 0, "a snapshot needs none");
    drop(snapshot);
    let first = db.transaction();
    filled(&db);
    let second = db.transaction();
    let kept = db.stats().transaction_history_bytes;
    assert!(kept > 10_000, "{kept}");
    filled(&db);
    assert!(db.stats().transaction_history_bytes > kept);
    drop(first);
    let left = db.stats().transaction_history_bytes;
    assert!(0 < left && left <= kept + 100, "{left} of twice {kept}");
    drop(second);
    assert_eq!(db.stats().transaction_history_bytes, 0);
}

#[test]
fn a_transaction_that_outlives_the_history_is_refused_and_says_so() {
    let db = Options { transaction_history_bytes: 64 << 10, ..options() }.open("/db").unwrap();
    let mut tx = db.transaction();
    tx.get("key").unwrap();
    tx.put("key", "").unwrap();
    let mut early = db.transaction();
    early.put("blind", "").unwrap();
    let mut most = 0;
    for i in 0..3000 {
        db.put(format!("{i}"), vec![0; 100]).unwrap();
        most = most.max(db.stats().transaction_history_bytes);
    }
    db.flush().unwrap();
    assert!(0 < most && most <= 64 << 10, "{most}");
    let refused = tx.commit().unwrap_err();
    assert!(matches!(&refused, TransactionError::TooOld { keyspace } if keyspace == "default"), "{refused}");
    assert!(refused.is_retryable());
    early.commit().expect("it has read nothing, so there is nothing to validate");
    assert_eq!(db.stats().transaction_history_bytes, 0);
}

/// With the default options the history was as large as one memtable, and a full memtable takes a
/// little more than its limit: none was ever kept. Every transaction that was open across one flush
/// failed with `TooOld`, whatever it had read.
#[test]
fn a_transaction_outlives_two_full_memtables_with_default_options() {
    let options = Options { file_system: options().file_system, ..Options::default() };
    let memtable_bytes = options.keyspace.memtable_bytes;
    let db = options.open("/db").unwrap();
    let mut tx = db.transaction();
    tx.get("key").unwrap();
    tx.put("key", "").unwrap();
    let value = vec![0; 256 << 10];
    for memtable in 0..2 {
        for i in 0..memtable_bytes as usize / value.len() {
            db.put(format!("{memtable}/{i:04}"), &value).unwrap();
        }
        db.flush().unwrap();
    }
    assert!(db.stats().transaction_history_bytes >= 2 * memtable_bytes);
    tx.commit().expect("nothing that it has read was written");
}

#[test]
fn an_ingestion_conflicts_with_what_it_covers() {
    for (key, conflicts) in [("b", true), ("z", false)] {
        let db = open();
        let fs = db.options().file_system.clone().unwrap();
        db.put("b", "old").unwrap();
        let mut tx = db.transaction();
        tx.get(key).unwrap();
        tx.put("own", "").unwrap();
        let mut table = ExternalTableBuilder::create_on(fs, "/in.tam", &keyspace_options()).unwrap();
        table.put("a", "in").unwrap();
        table.put("c", "in").unwrap();
        table.finish().unwrap();
        db.default_keyspace().ingest(&["/in.tam"], IngestOptions::default()).unwrap();
        assert_eq!(tx.commit().is_err(), conflicts, "{key}");
        let mut later = db.transaction();
        assert_eq!(get(&later, "a").unwrap(), "in");
        later.put("own", "2").unwrap();
        later.commit().unwrap();
    }
}

#[test]
fn a_commit_spans_keyspaces_and_has_its_own_durability() {
    let db = open();
    let other = db.create_keyspace("other", keyspace_options()).unwrap();
    let syncs = || db.stats().write.log_syncs;
    let before = syncs();
    let mut tx = db.transaction_with(TransactionOptions {
        durability: Some(Durability::Sync),
        ..TransactionOptions::default()
    });
    tx.put("a", "1").unwrap();
    tx.put_in(&other, "a", "2").unwrap();
    tx.delete_range_in(&other, "x"..).unwrap();
    tx.commit().unwrap();
    assert!(syncs() > before);
    assert_eq!((get(&db, "a").unwrap(), get(&other, "a").unwrap()), ("1".into(), "2".into()));
    let mut tx = db.transaction();
    tx.keyspace(&other).get("a").unwrap();
    tx.put("a", "3").unwrap();
    other.put("a", "4").unwrap();
    let refused = tx.commit().unwrap_err();
    assert!(matches!(refused, TransactionError::Conflict { keyspace, .. } if keyspace == "other"));
}

#[test]
fn a_reader_never_conflicts_and_needs_no_write() {
    let db = open();
    db.put("a", "1").unwrap();
    let tx = db.transaction();
    assert_eq!(get(&tx, "a").unwrap(), "1");
    db.put("a", "2").unwrap();
    assert_eq!(tx.seq(), 1);
    assert_eq!(tx.commit().unwrap(), 1);
}

#[test]
fn transact_repeats_after_conflicts_as_often_as_it_is_told() {
    let db = open();
    let mut calls = 0;
    let done = db.transact(|tx| {
        calls += 1;
        let value = get(tx, "n").unwrap_or_default();
        if calls < 4 {
            db.put("n", format!("{value}x")).unwrap();
        }
        tx.put("n", format!("{value}!"))?;
        Ok::<_, Error>(calls)
    });
    assert_eq!((done.unwrap(), get(&db, "n").unwrap()), (4, "xxx!".into()));
    let mut calls = 0;
    let options = TransactionOptions { attempts: 3, ..TransactionOptions::default() };
    let refused = db.transact_with(options, |tx| {
        calls += 1;
        tx.get("n")?;
        db.put("n", "")?;
        tx.put("m", "")?;
        Ok::<_, Error>(())
    });
    assert!(matches!(refused, Err(Error::Transaction(TransactionError::Conflict { .. }))));
    assert_eq!(calls, 3);
    let own: Result<(), Error> = db.transact(|_| Err(tamis::AdminError::Cancelled.into()));
    assert!(own.unwrap_err().to_string().contains("cancelled"));
}

struct SetWhenDropped<'f>(&'f AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Transactions of several threads, with plain writes between them, so that groups mix both.
#[test]
fn transfers_of_many_threads_keep_the_total() {
    for durability in [Durability::Buffered, Durability::Sync] {
        let db = Arc::new(Options { durability, ..options() }.open("/db").unwrap());
        let rounds = if durability == Durability::Sync { 100 } else { 500 };
        for account in 0..8 {
            db.put(format!("account{account}"), "100").unwrap();
        }
        let done = AtomicBool::new(false);
        let checked = AtomicU64::new(0);
        // A slow machine may begin to check when all rounds are over: transfers go on until some
        // were checked.
        let enough = &|| checked.load(Relaxed) >= 10 || done.load(Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _whatever_happens = SetWhenDropped(&done);
                while !done.load(Relaxed) {
                    let snapshot = db.snapshot();
                    let total: i64 = snapshot
                        .prefix("account")
                        .map(|item| text(item.unwrap().1).parse::<i64>().unwrap())
                        .sum();
                    assert_eq!(total, 800);
                    checked.fetch_add(1, Relaxed);
                }
            });
            let workers: Vec<_> = (0..4u64)
                .map(|thread| {
                    let db = &db;
                    scope.spawn(move || {
                        let mut random = tamis_testkit::Rng::new(thread + 1);
                        for _ in (0..).take_while(|round| *round < rounds || !enough()) {
                            let (from, to) = (random.below(8), random.below(8));
                            db.transact(|tx| {
                                let balance = |tx: &Transaction, account: u64| -> i64 {
                                    get(tx, &format!("account{account}")).unwrap().parse().unwrap()
                                };
                                let (a, b) = (balance(tx, from) - 5, balance(tx, to) + 5);
                                if from != to {
                                    tx.put(format!("account{from}"), a.to_string())?;
                                    tx.put(format!("account{to}"), b.to_string())?;
                                }
                                Ok::<_, Error>(())
                            })
                            .unwrap();
                            let mut batch = WriteBatch::new();
                            batch.put(format!("noise{thread}"), "x");
                            db.write(batch).unwrap();
                        }
                    })
                })
                .collect();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            done.store(true, Relaxed);
        });
        assert!(checked.load(Relaxed) > 0);
    }
}
