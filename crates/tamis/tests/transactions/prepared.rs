//! Two-phase commit.

use std::time::Duration;

use tamis::transactions::{LockOptions, LockTransaction};
use tamis::{AdminError, Db, TransactionError, WriteError};

use crate::support::{get, items, keyspace_options, open, options};

fn hasty(db: &Db) -> LockTransaction {
    db.lock_transaction_with(LockOptions { timeout: Duration::ZERO, ..LockOptions::default() }).unwrap()
}

#[test]
fn a_prepared_transaction_is_invisible_and_holds_its_locks_until_it_is_committed() {
    let db = open();
    let other = db.create_keyspace("other", keyspace_options()).unwrap();
    for key in ["a", "b", "c", "d"] {
        db.put(key, "old").unwrap();
    }
    let mut tx = db.lock_transaction().unwrap();
    tx.get("d").unwrap();
    tx.put("a", "new").unwrap();
    tx.merge("b", "er").unwrap();
    tx.delete("c").unwrap();
    tx.delete_range_in(&other, "x"..).unwrap();
    let prepared = tx.prepare("transfer 7").unwrap();
    assert_eq!(prepared.name(), b"transfer 7");
    assert_eq!(items(db.iter()), ["a=old", "b=old", "c=old", "d=old"]);
    let mut second = hasty(&db);
    for key in ["a", "b", "c"] {
        assert!(matches!(second.get(key), Err(TransactionError::LockTimeout { .. })), "{key}");
    }
    assert!(second.put_in(&other, "y", "").is_err());
    second.put("d", "mine").expect("shared locks are given up");
    let taken = second.prepare("transfer 7").unwrap_err();
    assert!(matches!(taken, TransactionError::PreparedExists { .. }), "{taken}");
    assert_eq!((db.keyspaces().len(), db.stats().keyspaces.len()), (2, 2), "its keyspace is not shown");
    prepared.commit().unwrap();
    assert_eq!(items(db.iter()), ["a=new", "b=older", "d=old"]);
    assert!(matches!(prepared.abort(), Err(TransactionError::NotPrepared { .. })));
    hasty(&db).put("a", "").unwrap();
    assert!(db.prepared_transactions().unwrap().is_empty());
}

#[test]
fn an_aborted_one_leaves_nothing() {
    let db = open();
    db.put("a", "old").unwrap();
    let mut tx = db.lock_transaction().unwrap();
    tx.put("a", "new").unwrap();
    let prepared = tx.prepare("x").unwrap();
    drop(prepared);
    let prepared = db.prepared_transactions().unwrap().remove(0);
    prepared.abort().unwrap();
    assert_eq!(get(&db, "a").unwrap(), "old");
    hasty(&db).put("a", "").unwrap();
    assert!(matches!(prepared.commit(), Err(TransactionError::NotPrepared { .. })));
}

/// A handle that came too late ended whatever was prepared under its name by then.
#[test]
fn a_late_handle_does_not_end_a_later_transaction_of_its_name() {
    let db = open();
    let prepare = |value: &str| {
        let mut tx = db.lock_transaction().unwrap();
        tx.put("a", value).unwrap();
        tx.prepare("x").unwrap()
    };
    let first = prepare("1");
    db.prepared_transactions().unwrap().remove(0).commit().unwrap();
    let second = prepare("2");
    for late in [first.commit(), first.abort()] {
        assert!(matches!(late, Err(TransactionError::NotPrepared { .. })));
    }
    assert!(matches!(hasty(&db).get("a"), Err(TransactionError::LockTimeout { .. })), "its locks are held");
    assert_eq!(get(&db, "a").unwrap(), "1");
    second.commit().unwrap();
    assert_eq!(get(&db, "a").unwrap(), "2");
}

#[test]
fn prepared_transactions_outlive_the_process_with_their_locks() {
    let options = options();
    let db = options.clone().open("/db").unwrap();
    for (name, key) in [("one", "a"), ("two", "b")] {
        let mut tx = db.lock_transaction().unwrap();
        tx.put(key, "new").unwrap();
        tx.delete_range(format!("{key}x")..format!("{key}z")).unwrap();
        let _ = tx.prepare(name).unwrap();
    }
    drop(db);
    for round in 0..2 {
        let db = options.clone().open("/db").unwrap();
        assert!(db.is_empty().unwrap());
        let mut tx = hasty(&db);
        for key in ["a", "ay", "b", "by"] {
            assert!(matches!(tx.get(key), Err(TransactionError::LockTimeout { .. })), "{key}");
        }
        tx.put("c", "").unwrap();
        drop(tx);
        let names: Vec<_> = db.prepared_transactions().unwrap().iter().map(|p| p.name().to_vec()).collect();
        assert_eq!(names, [b"one", b"two"]);
        if round == 0 {
            db.flush().unwrap();
            db.compact().unwrap();
        }
    }
    let db = options.open("/db").unwrap();
    let prepared = db.prepared_transactions().unwrap();
    prepared[0].commit().unwrap();
    prepared[1].abort().unwrap();
    assert_eq!(items(db.iter()), ["a=new"]);
    assert!(db.verify().unwrap().problems.is_empty());
}

#[test]
fn preparing_validates_what_was_read() {
    let db = open();
    let mut tx = db.lock_transaction().unwrap();
    tx.get("a").unwrap();
    tx.put("b", "").unwrap();
    // A writer that takes no lock.
    db.put("a", "").unwrap();
    assert!(matches!(tx.prepare("x"), Err(TransactionError::Conflict { .. })));
    assert!(db.prepared_transactions().unwrap().is_empty());
    hasty(&db).put("b", "").unwrap();
}

#[test]
fn the_keyspace_of_prepared_transactions_is_out_of_reach() {
    let db = open();
    let mut tx = db.lock_transaction().unwrap();
    tx.put("a", "").unwrap();
    let prepared = tx.prepare("x").unwrap();
    let name = "\0prepared";
    assert!(matches!(db.keyspace(name), Err(AdminError::NoKeyspace { .. })));
    assert!(matches!(db.drop_keyspace(name), Err(AdminError::NoKeyspace { .. })));
    assert!(matches!(db.rename_keyspace(name, "x"), Err(AdminError::NoKeyspace { .. })));
    assert!(matches!(db.create_keyspace(name, keyspace_options()), Err(AdminError::BadName { .. })));
    prepared.commit().unwrap();
}

#[test]
fn one_whose_keyspace_was_dropped_can_only_be_aborted() {
    let db = open();
    let gone = db.create_keyspace("gone", keyspace_options()).unwrap();
    let mut tx = db.lock_transaction().unwrap();
    tx.put("a", "").unwrap();
    tx.put_in(&gone, "a", "").unwrap();
    let prepared = tx.prepare("x").unwrap();
    db.drop_keyspace("gone").unwrap();
    let refused = prepared.commit().unwrap_err();
    assert!(matches!(refused, TransactionError::Write(WriteError::Dropped { .. })), "{refused}");
    assert!(db.is_empty().unwrap());
    prepared.abort().unwrap();
}
