//! A transaction reads its own writes over its snapshot.

use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::prelude::*;
use tamis::transactions::{Isolation, Savepoint, TransactionOptions};
use tamis::{Iter, ReadError, Slice, Transaction, WriteError};

use crate::support::{get, items, keyspace_options, open, options, text};

#[test]
fn a_transaction_sees_its_own_writes_and_nobody_elses() {
    let db = open();
    for key in ["a", "b", "c", "d"] {
        db.put(key, "old").unwrap();
    }
    let mut tx = db.transaction();
    db.put("a", "later").unwrap();
    db.put("e", "later").unwrap();
    tx.put("b", "new").unwrap();
    tx.delete("c").unwrap();
    tx.merge("d", "er").unwrap();
    tx.put("f", "new").unwrap();
    assert_eq!(items(tx.iter()), ["a=old", "b=new", "d=older", "f=new"]);
    assert_eq!(items(tx.iter().rev()), ["f=new", "d=older", "b=new", "a=old"]);
    assert_eq!(items(tx.range("b"..="d")), ["b=new", "d=older"]);
    assert_eq!(items(tx.prefix("f")), ["f=new"]);
    let many = tx.multi_get(&["a", "b", "c", "d", "e", "f"]).unwrap();
    let many: Vec<Option<String>> = many.into_iter().map(|value| value.map(text)).collect();
    let expected = [Some("old"), Some("new"), None, Some("older"), None, Some("new")];
    assert_eq!(many, expected.map(|value| value.map(str::to_owned)));
    assert!(tx.contains_key("b").unwrap() && !tx.contains_key("c").unwrap());
    assert_eq!(get(&db, "b").unwrap(), "old");
}

#[test]
fn ranges_deleted_in_a_transaction_hide_what_is_committed_and_forget_what_is_pending() {
    let db = open();
    for key in ["a", "b", "c", "d"] {
        db.put(key, "old").unwrap();
    }
    let mut tx = db.transaction();
    tx.put("b1", "new").unwrap();
    tx.delete_range("b".."d").unwrap();
    tx.put("c", "new").unwrap();
    tx.merge("b", "x").unwrap();
    assert_eq!(items(tx.iter()), ["a=old", "b=x", "c=new", "d=old"]);
    tx.commit().unwrap();
    assert_eq!(items(db.iter()), ["a=old", "b=x", "c=new", "d=old"]);
}

#[test]
fn an_iterator_shows_the_state_at_its_creation() {
    let db = open();
    db.put("a", "1").unwrap();
    let mut tx = db.transaction();
    tx.put("b", "2").unwrap();
    let before = tx.iter();
    tx.put("c", "3").unwrap();
    tx.delete("a").unwrap();
    assert_eq!(items(before), ["a=1", "b=2"]);
    assert_eq!(items(tx.iter()), ["b=2", "c=3"]);
}

/// It outlived its transaction once, and returned what had been rolled back. Now it says so, once,
/// and is at its end, however the transaction ended and whatever it had written.
#[test]
fn an_iterator_ends_with_its_transaction() {
    let db = open();
    db.put("a", "1").unwrap();
    db.put("b", "2").unwrap();
    let ended = |iter: &mut Iter| {
        assert!(matches!(iter.seek("b"), Err(ReadError::Ended)));
        assert!(matches!(iter.next(), Some(Err(ReadError::Ended))));
        assert!(iter.next().is_none() && iter.next_back().is_none() && iter.next_ref().is_none());
    };
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        for writes in [false, true] {
            for end in [Transaction::rollback as fn(Transaction), drop, |tx| drop(tx.commit())] {
                let mut tx = db.transaction_with(TransactionOptions { isolation, ..Default::default() });
                if writes {
                    tx.put("a", "3").unwrap();
                }
                let (mut begun, mut unread) = (tx.iter(), tx.iter());
                let mut keys = tx.iter().keys();
                begun.next().unwrap().unwrap();
                keys.next_back().unwrap().unwrap();
                end(tx);
                ended(&mut begun);
                ended(&mut unread);
                assert!(matches!(keys.next(), Some(Err(ReadError::Ended))));
                assert!(keys.next_ref().is_none());
            }
        }
    }
    let mut locking = db.lock_transaction().unwrap();
    let mut begun = locking.range("a"..).unwrap();
    begun.next_back().unwrap().unwrap();
    locking.prepare("name").unwrap().abort().unwrap();
    ended(&mut begun);
}

#[test]
fn savepoints_are_nested_and_a_rollback_forgets_the_later_ones() {
    let db = open();
    db.put("k", "committed").unwrap();
    let mut tx = db.transaction();
    tx.put("k", "1").unwrap();
    let first = tx.savepoint();
    tx.delete_range::<&str>(..).unwrap();
    let second = tx.savepoint();
    tx.merge("k", "2").unwrap();
    assert_eq!(get(&tx, "k").unwrap(), "2");
    tx.rollback_to(second).unwrap();
    assert_eq!(get(&tx, "k"), None);
    tx.rollback_to(first).unwrap();
    assert_eq!(get(&tx, "k").unwrap(), "1");
    assert!(tx.rollback_to(second).is_err(), "forgotten");
    tx.put("k", "3").unwrap();
    tx.rollback_to(first).unwrap();
    assert_eq!(get(&tx, "k").unwrap(), "1", "a savepoint remains");
    let mut other = db.transaction();
    assert!(other.rollback_to(first).is_err(), "another transaction's");
}

#[test]
fn what_a_write_would_refuse_is_refused_at_once() {
    let db = open();
    let other = options().open("/other").unwrap();
    let plain = db.create_keyspace("plain", tamis::KeyspaceOptions::default()).unwrap();
    let mut tx = db.transaction();
    let long = vec![0; tamis::MAX_KEY_BYTES + 1];
    assert!(matches!(tx.put(&long, ""), Err(WriteError::KeyTooLong { .. })));
    assert!(matches!(tx.delete_range("b".."a"), Err(WriteError::ReversedRange)));
    assert!(matches!(tx.merge_in(&plain, "k", "x"), Err(WriteError::NoMergeOperator { .. })));
    let foreign = tx.put_in(other.default_keyspace(), "k", "v");
    assert!(matches!(foreign, Err(WriteError::ForeignKeyspace { .. })));
    tx.put_in(&plain, "k", "v").unwrap();
    db.drop_keyspace("plain").unwrap();
    assert!(matches!(tx.put_in(&plain, "k", "v"), Err(WriteError::Dropped { .. })));
    assert!(matches!(tx.keyspace(&plain).get("x"), Err(ReadError::Dropped { .. })));
    let refused = tx.commit().unwrap_err().to_string();
    assert!(refused.contains("keyspace `plain` was dropped"), "{refused}");
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Merge(u8, u8),
    DeleteRange(u8, u8),
    Savepoint,
    Rollback,
    Get(u8),
    MultiGet(Vec<u8>),
    /// Bounds, and from which end each item is taken; `Some` seeks first.
    Scan(u8, u8, Vec<Move>),
    /// A write by somebody else, which the transaction must not see.
    Outside(u8, u8),
    Flush,
}

#[derive(Clone, Debug)]
enum Move {
    Front,
    Back,
    /// The same by `next_ref` and `next_back_ref`.
    LentFront,
    LentBack,
    Seek(u8),
    Refresh,
}

fn key(n: u8) -> String {
    format!("k{n:02}")
}

fn step() -> impl Strategy<Value = Step> {
    let n = || 0u8..20;
    let moves = prop_oneof![
        4 => Just(Move::Front),
        4 => Just(Move::Back),
        2 => Just(Move::LentFront),
        2 => Just(Move::LentBack),
        1 => n().prop_map(Move::Seek),
        1 => Just(Move::Refresh),
    ];
    prop_oneof![
        4 => (n(), any::<u8>()).prop_map(|(k, v)| Step::Put(k, v)),
        2 => n().prop_map(Step::Delete),
        3 => (n(), any::<u8>()).prop_map(|(k, v)| Step::Merge(k, v)),
        1 => (n(), 0u8..8).prop_map(|(k, len)| Step::DeleteRange(k, k + len)),
        1 => Just(Step::Savepoint),
        1 => Just(Step::Rollback),
        4 => n().prop_map(Step::Get),
        1 => prop::collection::vec(n(), 0..6).prop_map(Step::MultiGet),
        5 => (n(), 0u8..20, prop::collection::vec(moves, 0..30))
            .prop_map(|(k, len, moves)| Step::Scan(k, k + len, moves)),
        2 => (n(), any::<u8>()).prop_map(|(k, v)| Step::Outside(k, v)),
        1 => Just(Step::Flush),
    ]
}

type Model = BTreeMap<String, String>;

/// Takes items from both ends of an iterator and of the model, which must agree.
fn compare_scan(tx: &Transaction, model: &Model, from: u8, to: u8, moves: &[Move]) {
    let (from, to) = (key(from), key(to));
    let mut iter = tx.range(&from[..]..&to[..]);
    let (mut low, mut high) = (Bound::Included(from.clone()), Bound::Excluded(to));
    for step in moves {
        let within = |low: &Bound<String>, high: &Bound<String>| -> Vec<(String, String)> {
            let inside = |key: &String| std::ops::RangeBounds::contains(&(low.as_ref(), high.as_ref()), key);
            model.iter().filter(|(key, _)| inside(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
        };
        let left = within(&low, &high);
        let (found, expected) = match step {
            Move::Front | Move::LentFront => {
                let expected = left.first().cloned();
                if let Some((key, _)) = &expected {
                    low = Bound::Excluded(key.clone());
                }
                let lent = matches!(step, Move::LentFront);
                (if lent { iter.next_ref().map(copied) } else { iter.next() }, expected)
            }
            Move::Back | Move::LentBack => {
                let expected = left.last().cloned();
                if let Some((key, _)) = &expected {
                    high = Bound::Excluded(key.clone());
                }
                let lent = matches!(step, Move::LentBack);
                (if lent { iter.next_back_ref().map(copied) } else { iter.next_back() }, expected)
            }
            Move::Seek(n) => {
                iter.seek(key(*n)).unwrap();
                low = Bound::Included(key(*n).max(from.clone()));
                continue;
            }
            Move::Refresh => {
                iter.refresh(tx);
                continue;
            }
        };
        let found = found.map(|item| item.map(|(key, value)| (text(key), text(value))).unwrap());
        assert_eq!(found, expected, "{step:?} of {moves:?}");
    }
    let keys: Vec<_> = tx.range(&from[..]..).keys().map(|key| text(key.unwrap())).collect();
    assert!(keys.iter().eq(model.keys().filter(|key| **key >= from)), "{keys:?}");
}

/// A key that the iterator had passed, because it was deleted, counted as one that it had returned.
#[test]
fn a_refreshed_iterator_finds_what_was_deleted_when_it_passed() {
    let db = open();
    for key in ["a", "b", "c"] {
        db.put(key, "old").unwrap();
    }
    let mut tx = db.transaction();
    tx.delete("b").unwrap();
    tx.delete("c").unwrap();
    let (mut front, mut back) = (tx.range("a"..), tx.range(.."d"));
    assert_eq!(front.next().unwrap().unwrap().0, "a");
    assert!(front.next().is_none());
    assert_eq!(back.next_back().unwrap().unwrap().0, "a");
    tx.put("b", "new").unwrap();
    front.refresh(&tx);
    back.refresh(&tx);
    assert_eq!(front.next().unwrap().unwrap(), (Slice::from(&b"b"[..]), Slice::from(&b"new"[..])));
    assert!(front.next().is_none() && back.next_back().is_none());
    let mut back = tx.range(.."d");
    assert_eq!(back.next_back().unwrap().unwrap().0, "b");
    tx.put("c", "new").unwrap();
    back.refresh(&tx);
    assert_eq!(back.next_back().unwrap().unwrap().0, "a");
}

fn copied(item: Result<(&[u8], &[u8]), ReadError>) -> Result<(Slice, Slice), ReadError> {
    item.map(|(key, value)| (Slice::from(key), Slice::from(value)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_transactions_read_what_a_map_would_hold(
        committed in prop::collection::btree_map(0u8..20, any::<u8>(), 0..20),
        in_tables in any::<bool>(),
        steps in prop::collection::vec(step(), 1..40),
        own_keyspace in any::<bool>(),
    ) {
        let db = open();
        let keyspace = match own_keyspace {
            true => db.create_keyspace("own", keyspace_options()).unwrap(),
            false => db.default_keyspace().clone(),
        };
        let mut model = Model::new();
        for (k, v) in &committed {
            keyspace.put(key(*k), v.to_string()).unwrap();
            model.insert(key(*k), v.to_string());
        }
        if in_tables {
            db.flush().unwrap();
        }
        let mut tx = db.transaction();
        let mut saved: Vec<(Savepoint, Model)> = Vec::new();
        for step in &steps {
            match step {
                Step::Put(k, v) => {
                    tx.put_in(&keyspace, key(*k), v.to_string()).unwrap();
                    model.insert(key(*k), v.to_string());
                }
                Step::Delete(k) => {
                    tx.delete_in(&keyspace, key(*k)).unwrap();
                    model.remove(&key(*k));
                }
                Step::Merge(k, v) => {
                    tx.merge_in(&keyspace, key(*k), v.to_string()).unwrap();
                    model.entry(key(*k)).or_default().push_str(&v.to_string());
                }
                Step::DeleteRange(from, to) => {
                    tx.delete_range_in(&keyspace, key(*from)..key(*to)).unwrap();
                    model.retain(|k, _| !(key(*from)..key(*to)).contains(k));
                }
                Step::Savepoint => saved.push((tx.savepoint(), model.clone())),
                Step::Rollback => if let Some((savepoint, then)) = saved.last() {
                    tx.rollback_to(*savepoint).unwrap();
                    model = then.clone();
                },
                Step::Get(k) => {
                    prop_assert_eq!(tx.keyspace(&keyspace).get(key(*k)).unwrap().map(text), model.get(&key(*k)).cloned());
                }
                Step::MultiGet(ks) => {
                    let keys: Vec<String> = ks.iter().map(|k| key(*k)).collect();
                    let found = tx.keyspace(&keyspace).multi_get(&keys).unwrap();
                    let found: Vec<Option<String>> = found.into_iter().map(|v| v.map(text)).collect();
                    let expected: Vec<Option<String>> = keys.iter().map(|k| model.get(k).cloned()).collect();
                    prop_assert_eq!(found, expected);
                }
                Step::Scan(from, to, moves) => {
                    if !own_keyspace {
                        compare_scan(&tx, &model, *from, *to, moves);
                    } else {
                        let found = items(tx.keyspace(&keyspace).range(key(*from)..key(*to)));
                        let expected: Vec<String> =
                            model.range(key(*from)..key(*to)).map(|(k, v)| format!("{k}={v}")).collect();
                        prop_assert_eq!(found, expected);
                    }
                }
                Step::Outside(k, v) => keyspace.put(key(*k), v.to_string()).unwrap(),
                Step::Flush => db.flush().unwrap(),
            }
        }
        let expected: Vec<String> = model.iter().map(|(k, v)| format!("{k}={v}")).collect();
        prop_assert_eq!(items(tx.keyspace(&keyspace).iter()), expected.clone());
        // What it saw is what its commit makes, unless somebody else wrote.
        if !steps.iter().any(|step| matches!(step, Step::Outside(..))) {
            tx.commit().unwrap();
            prop_assert_eq!(items(keyspace.iter()), expected);
        }
    }
}
