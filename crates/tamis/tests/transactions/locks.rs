//! Transactions that lock.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tamis::maintenance::interruptible;
use tamis::transactions::{LockOptions, LockTransaction};
use tamis::{Db, Error, TransactionError, WriteError};

use crate::support::{get, items, keyspace_options, open, text};

/// A transaction that does not wait.
fn hasty(db: &Db) -> LockTransaction {
    db.lock_transaction_with(LockOptions { timeout: Duration::ZERO, ..LockOptions::default() }).unwrap()
}

fn is_locked<T: std::fmt::Debug>(result: Result<T, TransactionError>) -> bool {
    matches!(result, Err(TransactionError::LockTimeout { .. }))
}

#[test]
fn what_is_read_is_shared_and_what_is_written_is_not() {
    let db = open();
    db.put("a", "1").unwrap();
    let (mut one, mut two) = (hasty(&db), hasty(&db));
    assert_eq!(one.get("a").unwrap().unwrap(), "1");
    assert_eq!(two.get("a").unwrap().unwrap(), "1");
    assert!(is_locked(two.put("a", "2")));
    assert!(is_locked(one.get_for_update("a")));
    drop(two);
    one.put("a", "2").unwrap();
    let mut two = hasty(&db);
    assert!(is_locked(two.get("a")) && is_locked(two.range("".."b")));
    assert_eq!(get(&db, "a").unwrap(), "1", "others read as before");
    one.commit().unwrap();
    assert_eq!(two.get("a").unwrap().unwrap(), "2");
}

#[test]
fn ranges_hold_off_phantoms() {
    let db = open();
    for key in ["a", "b", "x"] {
        db.put(key, "1").unwrap();
    }
    let (mut one, mut two) = (hasty(&db), hasty(&db));
    one.put("b", "2").unwrap();
    assert_eq!(items(one.range("a".."m").unwrap()), ["a=1", "b=2"]);
    assert_eq!(items(one.range("a".."m").unwrap().rev()), ["b=2", "a=1"]);
    assert!(is_locked(two.put("c", "")), "a phantom");
    two.put("m", "").unwrap();
    assert!(is_locked(two.delete_range("l"..)));
    one.delete_range("x"..).unwrap();
    assert!(is_locked(two.get("y")));
    one.commit().unwrap();
    two.commit().unwrap();
    assert_eq!(items(db.iter()), ["a=1", "b=2", "m="]);
}

#[test]
fn the_transaction_reads_its_own_writes_and_undoes_them() {
    let db = open();
    let other = db.create_keyspace("other", keyspace_options()).unwrap();
    db.put("a", "old").unwrap();
    let mut tx = db.lock_transaction().unwrap();
    tx.merge("a", "er").unwrap();
    let before = tx.savepoint();
    tx.delete_range("a".."b").unwrap();
    tx.put_in(&other, "a", "1").unwrap();
    assert_eq!(tx.get("a").unwrap(), None);
    assert_eq!(tx.get_in(&other, "a").unwrap().unwrap(), "1");
    tx.rollback_to(before).unwrap();
    assert_eq!(tx.get("a").unwrap().unwrap(), "older");
    assert_eq!(tx.get_in(&other, "a").unwrap(), None);
    tx.delete_in(&other, "b").unwrap();
    tx.commit().unwrap();
    assert_eq!((get(&db, "a").unwrap(), get(&other, "a")), ("older".into(), None));
}

#[test]
fn a_waiting_transaction_goes_on_when_the_lock_is_given_up() {
    let db = open();
    let mut one = db.lock_transaction().unwrap();
    one.put("a", "1").unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let long = LockOptions { timeout: Duration::from_secs(60), ..LockOptions::default() };
            let mut two = db.lock_transaction_with(long).unwrap();
            let found = two.get("a").unwrap().map(text);
            (found, two.commit().is_ok())
        });
        std::thread::sleep(Duration::from_millis(30));
        assert!(!waiting.is_finished());
        one.commit().unwrap();
        assert_eq!(waiting.join().unwrap(), (Some("1".into()), true), "it sees what it waited for");
    });
}

#[test]
fn a_deadlock_is_an_error_with_the_circle() {
    let db = open();
    let long = LockOptions { timeout: Duration::from_secs(60), ..LockOptions::default() };
    let begin = || db.lock_transaction_with(long).unwrap();
    let (mut one, mut two) = (begin(), begin());
    let (first, second) = (one.number(), two.number());
    one.put("a", "").unwrap();
    two.put("b", "").unwrap();
    let started = Instant::now();
    // Whichever of them waits first is granted what it waits for once the other one, which was
    // refused, is dropped.
    let go_on = |mut tx: LockTransaction, key: &str| {
        tx.put(key, "")?;
        tx.commit()
    };
    let results = std::thread::scope(|scope| {
        let threads = [(one, "b"), (two, "a")].map(|(tx, key)| scope.spawn(move || go_on(tx, key)));
        threads.map(|thread| thread.join().unwrap())
    });
    assert!(started.elapsed() < Duration::from_secs(30));
    let refused: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    let [refused] = refused[..] else { panic!("{results:?}") };
    let TransactionError::Deadlock { cycle } = refused else { panic!("{refused}") };
    let steps: Vec<_> = cycle.iter().map(|step| (step.transaction, text(&step.key), step.holder)).collect();
    let circle = [(second, "a".to_owned(), first), (first, "b".to_owned(), second)];
    let other = [circle[1].clone(), circle[0].clone()];
    assert!(steps == circle || steps == other, "{steps:?}");
    assert!(refused.is_retryable());
    assert!(refused.to_string().contains("in `default`, held by"), "{refused}");
}

#[test]
fn writers_that_take_no_locks_are_noticed() {
    let db = open();
    db.put("a", "1").unwrap();
    let mut tx = db.lock_transaction().unwrap();
    tx.get("a").unwrap();
    assert!(tx.range("x"..).unwrap().next().is_none());
    tx.put("own", "").unwrap();
    db.put("b", "").unwrap();
    db.flush().unwrap();
    let mut second = db.lock_transaction().unwrap();
    second.get("b").unwrap();
    second.put("own2", "").unwrap();
    tx.commit().expect("nothing that it has read was written");
    db.put("b", "2").unwrap();
    let refused = second.commit().unwrap_err();
    assert!(matches!(refused, TransactionError::Conflict { .. }), "{refused}");
    assert_eq!(get(&db, "own2"), None);
    // What it locks later, it sees as of then.
    let mut third = db.lock_transaction().unwrap();
    third.get("a").unwrap();
    db.put("c", "1").unwrap();
    assert_eq!(third.get("c").unwrap().unwrap(), "1");
    third.put("own3", "").unwrap();
    third.commit().unwrap();
}

#[test]
fn transfers_that_lock_need_no_second_attempt() {
    let db = open();
    for account in 0..4 {
        db.put(format!("account{account}"), "100").unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3u64)
            .map(|thread| {
                let db = &db;
                scope.spawn(move || {
                    let mut random = tamis_testkit::Rng::new(thread + 5);
                    for _ in 0..150 {
                        // In order, so that nobody waits in a circle.
                        let (a, b) = (random.below(3), 3);
                        let mut tx = db.lock_transaction().unwrap();
                        let mut change = |account: u64, by: i64| -> Result<(), Error> {
                            let key = format!("account{account}");
                            let balance: i64 = text(tx.get_for_update(&key)?.unwrap()).parse().unwrap();
                            Ok(tx.put(&key, (balance + by).to_string())?)
                        };
                        change(a, -1).unwrap();
                        change(b, 1).unwrap();
                        tx.commit().unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                let mut tx = db.lock_transaction().unwrap();
                let all = tx.range("account".."b").unwrap();
                let total: i64 = all.map(|item| text(item.unwrap().1).parse::<i64>().unwrap()).sum();
                assert_eq!(total, 400);
            }
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        stop.store(true, Relaxed);
    });
    assert_eq!(get(&db, "account3").unwrap(), "550");
    assert_eq!(db.stats().write.conflicts, 0);
}

#[test]
fn what_cannot_be_written_takes_no_lock() {
    let db = open();
    let mut tx = hasty(&db);
    let long = vec![0; tamis::MAX_KEY_BYTES + 1];
    assert!(matches!(tx.put(&long, ""), Err(TransactionError::Write(WriteError::KeyTooLong { .. }))));
    assert!(matches!(tx.get(&long), Err(TransactionError::Write(WriteError::KeyTooLong { .. }))));
    let reversed = tx.delete_range("b".."a");
    assert!(matches!(reversed, Err(TransactionError::Write(WriteError::ReversedRange))));
    tx.delete_range("a".."a").unwrap();
    assert_eq!(tx.commit().unwrap(), 0);
}

/// Ctrl-C and a thread's interruption waited for the lock, or the timeout. The transaction is as it
/// was before the call.
#[test]
fn a_wait_is_given_up_when_its_thread_is_interrupted() {
    let db = open();
    let mut holds = hasty(&db);
    holds.put("a", "1").unwrap();
    let patient = LockOptions { timeout: Duration::from_secs(3600), ..LockOptions::default() };
    let mut waits = db.lock_transaction_with(patient).unwrap();
    waits.put("b", "2").unwrap();
    for _ in 0..2 {
        let given_up = interruptible(|| true, || waits.get("a"));
        assert!(matches!(given_up, Err(TransactionError::Interrupted)), "{given_up:?}");
    }
    // Nothing of the wait is left that others would be blocked by, or wake.
    let given_up = interruptible(|| true, || waits.delete_range::<&str>(..).unwrap_err());
    assert!(matches!(given_up, TransactionError::Interrupted));
    assert_eq!(
        interruptible(|| true, || waits.get("free")).unwrap(),
        None,
        "what does not wait does not ask"
    );
    holds.commit().unwrap();
    assert_eq!(interruptible(|| false, || waits.get("a")).unwrap().unwrap(), "1");
    waits.commit().unwrap();
    assert_eq!(items(db.iter()), ["a=1", "b=2"]);
}
