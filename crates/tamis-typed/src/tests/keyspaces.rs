//! Typed keyspaces of a database.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::ops::Bound;

use proptest::collection::vec;
use proptest::prelude::*;
use tamis::{Db, Durability, Options, Readable, Slice, WriteBatch};

use crate::{Error, Json, Key, Typed, Value};

fn db() -> Db {
    Options::in_memory().open("typed").expect("opens")
}

fn typed<K: Key, V: Value>(db: &Db) -> Typed<K, V> {
    Typed::new(db.default_keyspace().clone())
}

#[test]
fn entries_are_read_from_both_ends() -> Result<(), Error> {
    let db = db();
    let numbers: Typed<i32, String> = typed(&db);
    assert!(numbers.is_empty()?);
    for n in [3, -5, 0, 7] {
        numbers.put(n, &n.to_string())?;
    }
    numbers.put_with(9, "nine", Durability::Sync)?;
    let keys = |iter: crate::Iter<i32, String>| iter.keys().collect::<Result<Vec<_>, _>>();
    assert_eq!(keys(numbers.iter())?, [-5, 0, 3, 7, 9]);
    assert_eq!(keys(numbers.range(-5..3))?, [-5, 0]);
    assert_eq!(keys(numbers.range(..=3))?, [-5, 0, 3]);
    assert_eq!(keys(numbers.range((Bound::Excluded(0), Bound::Unbounded)))?, [3, 7, 9]);
    let (from, to) = (3, 0);
    assert_eq!(keys(numbers.range(from..to))?, [0; 0]);
    let backwards: Result<Vec<_>, _> = numbers.range(-1..).rev().map(|entry| entry.map(|(n, _)| n)).collect();
    assert_eq!(backwards?, [9, 7, 3, 0]);
    assert_eq!(numbers.iter().keys().next_back().transpose()?, Some(9));
    assert_eq!(numbers.first()?, Some((-5, "-5".to_owned())));
    assert_eq!(numbers.last()?, Some((9, "nine".to_owned())));
    let mut iter = numbers.iter();
    iter.seek(1)?;
    assert_eq!(iter.next().transpose()?, Some((3, "3".to_owned())));
    assert_eq!((&numbers).into_iter().count(), 5);

    numbers.delete(3)?;
    assert!(!numbers.contains_key(3)? && numbers.contains_key(0)?);
    assert_eq!(numbers.multi_get(&[0, 3, 9])?, [Some("0".to_owned()), None, Some("nine".to_owned())]);
    numbers.delete_range(..7)?;
    assert_eq!(keys(numbers.iter())?, [7, 9]);
    assert_eq!(numbers.keyspace().get(numbers.key_bytes(7))?.unwrap(), "7");
    Ok(())
}

#[test]
fn prefixes_are_whole_components() -> Result<(), Error> {
    let db = db();
    let triples: Typed<(String, u8, String), ()> = typed(&db);
    for key in [("a", 1, "x"), ("a", 1, ""), ("a", 2, "x"), ("a\0", 1, "x"), ("aa", 1, "x"), ("", 1, "x")] {
        triples.put(key, ())?;
    }
    let count = |iter: crate::Iter<_, ()>| iter.keys().collect::<Result<Vec<(String, u8, String)>, _>>();
    assert_eq!(count(triples.prefix("a"))?.len(), 3);
    assert_eq!(count(triples.prefix("a\0"))?.len(), 1);
    assert_eq!(count(triples.prefix(""))?.len(), 1);
    let ones = count(triples.prefix2("a", 1))?;
    assert_eq!(ones[1].borrowed(), ("a", 1, "x"));
    assert_eq!(ones.len(), 2);

    // Of strings and bytes, a prefix is any beginning.
    let db = self::db();
    let texts: Typed<String, ()> = typed(&db);
    for text in ["a", "ab", "b"] {
        texts.put(text, ())?;
    }
    assert_eq!(texts.prefix("a").count(), 2);
    assert_eq!(typed::<Vec<u8>, ()>(&db).prefix(b"ab").count(), 1);
    Ok(())
}

#[test]
fn batches_snapshots_and_transactions() -> Result<(), Error> {
    let db = db();
    let counts: Typed<(String, u32), u64> = typed(&db);
    counts.put(("a", 1), 10)?;
    let before = db.snapshot();
    let mut batch = WriteBatch::new();
    counts.put_in(&mut batch, ("a", 2), 20)?;
    counts.delete_in(&mut batch, ("a", 1))?;
    db.write(batch)?;

    fn sum<R: Readable>(counts: &Typed<(String, u32), u64, R>) -> Result<u64, Error> {
        counts.prefix("a").try_fold(0, |sum, entry| Ok(sum + entry?.1))
    }
    assert_eq!((sum(&counts.at(&before))?, sum(&counts)?), (10, 20));

    db.transact(|transaction| {
        let count = counts.within(transaction).get(("a", 2))?.unwrap_or(0);
        counts.put_in(transaction, ("a", 3), count + 1)?;
        counts.delete_in(transaction, ("a", 2))?;
        assert_eq!(sum(&counts.within(transaction))?, 21);
        assert_eq!(sum(&counts)?, 20);
        Ok::<_, Error>(())
    })?;
    assert_eq!(sum(&counts)?, 21);

    let mut transaction = db.lock_transaction()?;
    counts.put_in(&mut transaction, ("a", 4), 4)?;
    counts.delete_in(&mut transaction, ("a", 3))?;
    transaction.commit()?;
    assert_eq!(sum(&counts)?, 4);
    Ok(())
}

/// An entry of other types is an error with a reason, and hides none of the others.
#[test]
fn entries_of_other_types_are_errors() -> Result<(), Error> {
    let db = db();
    let numbers: Typed<u16, bool> = typed(&db);
    numbers.put(1, true)?;
    db.put(numbers.key_bytes(2), [7u8])?;
    db.put("three", [1u8])?;
    numbers.put(u16::MAX, false)?;
    let entries: Vec<_> = numbers.iter().collect();
    assert!(matches!(
        entries[..],
        [Ok((1, true)), Err(Error::Value(_)), Err(Error::Key(_)), Ok((u16::MAX, false))]
    ));
    let reasons: Vec<_> =
        entries.iter().filter_map(|entry| entry.as_ref().err()?.source().map(ToString::to_string)).collect();
    assert_eq!(reasons, ["bool: no such value", "u16: wrong number of bytes"]);
    assert_eq!(entries[1].as_ref().unwrap_err().to_string(), "a stored value could not be decoded");
    assert!(matches!(numbers.get(2), Err(Error::Value(_))));
    assert!(matches!(numbers.multi_get(&[1, 2]), Err(Error::Value(_))));
    assert!(numbers.contains_key(2)?);
    assert_eq!(numbers.iter().keys().filter(Result::is_err).count(), 1);

    let lists: Typed<u16, Json<Vec<u8>>> = typed(&db);
    let error = lists.get(1).unwrap_err();
    assert!(error.source().is_some_and(|source| source.is::<serde_json::Error>()));
    // JSON has only strings as keys of maps.
    let maps: Typed<u16, Json<BTreeMap<Option<u8>, u8>>> = typed(&db);
    let error = maps.put(9, &BTreeMap::from([(None, 1)])).unwrap_err();
    assert_eq!(error.to_string(), "a value could not be encoded");
    assert!(!maps.contains_key(9)?);

    // The database's own errors are passed on.
    let long: Typed<Vec<u8>, Slice> = typed(&db);
    let error = long.put(&[0; tamis::MAX_KEY_BYTES + 1], b"").unwrap_err();
    assert!(matches!(error, Error::Tamis(tamis::Error::Write(tamis::WriteError::KeyTooLong { .. }))));
    Ok(())
}

type Pair = (Vec<u8>, i8);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Ranges and prefixes are those of a sorted map.
    #[test]
    fn a_typed_keyspace_is_a_sorted_map(
        entries in vec(((vec(0..2u8, 0..3), -2..2i8), any::<u32>()), 0..40),
        ranges in vec(((vec(0..2u8, 0..3), -2..2i8), (vec(0..2u8, 0..3), -2..2i8)), 8),
    ) {
        let db = db();
        let stored: Typed<Pair, u32> = typed(&db);
        let mut model = BTreeMap::new();
        for (i, (key, value)) in entries.into_iter().enumerate() {
            stored.put(key.borrowed(), value)?;
            model.insert(key, value);
            if i == 20 {
                db.flush()?;
            }
        }
        let all = |iter: crate::Iter<_, _>| iter.collect::<Result<Vec<(Pair, u32)>, _>>();
        let some = |keep: &dyn Fn(&Pair) -> bool| -> Vec<_> {
            model.iter().filter(|(key, _)| keep(key)).map(|(key, value)| (key.clone(), *value)).collect()
        };
        prop_assert_eq!(all(stored.iter())?, some(&|_| true));
        for (from, to) in &ranges {
            prop_assert_eq!(stored.get(from.borrowed())?, model.get(from).copied());
            let between = stored.range(from.borrowed()..to.borrowed());
            prop_assert_eq!(all(between)?, some(&|key| from <= key && key < to));
            prop_assert_eq!(all(stored.range(..=to.borrowed()))?, some(&|key| key <= to));
            let behind = (Bound::Excluded(from.borrowed()), Bound::Unbounded);
            let mut backwards = some(&|key| key > from);
            backwards.reverse();
            prop_assert_eq!(stored.range(behind).rev().collect::<Result<Vec<_>, _>>()?, backwards);
            prop_assert_eq!(all(stored.prefix(&from.0))?, some(&|key| key.0 == from.0));
        }
    }
}
