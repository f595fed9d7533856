//! What is kept of recent commits, and for how long.

use crate::transaction::options::Isolation::Serializable;
use crate::transaction::tests::begin;
use crate::transaction::tests::key;
use crate::transaction::tests::open;
use crate::transaction::tests::value;
use crate::{Db, TransactionError};

fn fill(db: &Db, count: u64) {
    for i in 0..count {
        db.put(format!("fill{i}"), value(i)).unwrap();
    }
    db.flush().unwrap();
}

#[test]
fn a_dropped_keyspace_leaves_nothing_behind() {
    let db = open();
    let keyspace = db.create_keyspace("k", crate::KeyspaceOptions::default()).unwrap();
    let mut tx = begin(&db, Serializable);
    tx.keyspace(&keyspace).get("x").unwrap();
    tx.put("own", "").unwrap();
    keyspace.put("x", value(1)).unwrap();
    keyspace.flush().unwrap();
    assert!(db.inner().transactions.history.bytes() > 0);
    db.drop_keyspace("k").unwrap();
    assert_eq!(db.inner().transactions.history.bytes(), 0);
    assert!(matches!(tx.commit(), Err(TransactionError::Write(crate::WriteError::Dropped { .. }))));
}

/// A transaction that begins while a memtable is being flushed has seen all of it.
#[test]
fn what_was_sealed_before_a_transaction_began_is_nothing_to_it() {
    let db = open();
    for round in 0..20 {
        std::thread::scope(|scope| {
            let filler = scope.spawn(|| fill(&db, 60));
            loop {
                let mut tx = begin(&db, Serializable);
                tx.get(key(1)).unwrap();
                tx.put(key(2), value(round)).unwrap();
                tx.commit().unwrap();
                if filler.is_finished() {
                    break;
                }
            }
        });
        assert_eq!(db.inner().transactions.history.bytes(), 0);
    }
}
