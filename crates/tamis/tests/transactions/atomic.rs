//! Atomic changes of one key.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::{ReadError, TransactionError, WriteError};

use crate::support::{get, keyspace_options, open, text};

/// Four threads that got and put lost more than a thousand of eight thousand counts.
#[test]
fn threads_that_count_through_updates_lose_nothing() {
    let db = open();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    db.update("text", |old| {
                        let old: u64 = old.map_or(0, |old| text(old).parse().unwrap());
                        Some((old + 1).to_string().into_bytes())
                    })
                    .unwrap();
                    db.increment("number", 1).unwrap();
                    loop {
                        let old = db.get("swapped").unwrap();
                        let count: u64 = old.as_ref().map_or(0, |old| text(old).parse().unwrap());
                        let new = (count + 1).to_string();
                        if db
                            .compare_and_swap("swapped", old.as_deref(), Some(new.as_bytes()))
                            .unwrap()
                            .is_ok()
                        {
                            break;
                        }
                    }
                }
            });
        }
    });
    assert_eq!((get(&db, "text").unwrap(), get(&db, "swapped").unwrap()), ("2000".into(), "2000".into()));
    assert_eq!(db.increment("number", 0).unwrap(), 2000);
}

/// An ingestion between the read and the commit of a change was forgotten at once if no transaction
/// was open, and overwritten.
#[test]
fn a_change_sees_what_was_ingested_meanwhile() {
    let db = open();
    let fs = db.options().file_system.clone().unwrap();
    let mut table = ExternalTableBuilder::create_on(fs, "/in.tam", &keyspace_options()).unwrap();
    table.put("key", "100").unwrap();
    table.finish().unwrap();
    db.put("key", "1").unwrap();
    let mut seen = Vec::new();
    let new = db.update("key", |old| {
        let old: u64 = text(old.unwrap()).parse().unwrap();
        if seen.is_empty() {
            db.default_keyspace().ingest(&["/in.tam"], IngestOptions::default()).unwrap();
        }
        seen.push(old);
        Some((old + 1).to_string().into_bytes())
    });
    assert_eq!((seen, new.unwrap().unwrap()), (vec![1, 100], b"101".to_vec()));
    assert_eq!(get(&db, "key").unwrap(), "101");
}

#[test]
fn one_thread_inserts_and_one_takes() {
    let db = open();
    let (inserted, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    for round in 0..50 {
        let key = format!("key{round}");
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (db, key, inserted) = (&db, &key, &inserted);
                scope.spawn(move || {
                    if db.insert_if_absent(key, format!("{thread}")).unwrap().is_none() {
                        inserted.fetch_add(1, Relaxed);
                    }
                });
            }
        });
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| taken.fetch_add(u64::from(db.take(&key).unwrap().is_some()), Relaxed));
            }
        });
        assert_eq!(get(&db, &key), None);
    }
    assert_eq!((inserted.into_inner(), taken.into_inner()), (50, 50));
}

#[test]
fn a_change_that_changes_nothing_writes_nothing() {
    let db = open();
    db.put("a", "1").unwrap();
    let before = db.stats().visible_seq;
    assert_eq!(db.update("a", |old| old.map(<[u8]>::to_vec)).unwrap().unwrap(), b"1");
    assert_eq!(db.update("b", |_| None).unwrap(), None);
    assert_eq!(db.compare_and_swap("a", Some(b"1"), Some(b"1")).unwrap(), Ok(()));
    assert_eq!(db.compare_and_swap("b", Some(b"1"), None).unwrap().unwrap_err().current, None);
    assert_eq!(db.insert_if_absent("a", "2").unwrap().unwrap(), "1");
    assert_eq!(db.take("b").unwrap(), None);
    assert_eq!(db.stats().visible_seq, before);
    assert_eq!(db.update("a", |_| None).unwrap(), None);
    assert_eq!(get(&db, "a"), None);
}

#[test]
fn what_is_no_counter_or_no_key_is_refused() {
    let db = open();
    db.put("text", "seven").unwrap();
    let refused = db.increment("text", 1).unwrap_err();
    assert!(matches!(refused, TransactionError::Read(ReadError::Merge { .. })), "{refused}");
    assert_eq!(get(&db, "text").unwrap(), "seven");
    let long = vec![0; tamis::MAX_KEY_BYTES + 1];
    let refused = db.update(&long, |_| Some(Vec::new())).unwrap_err();
    assert!(matches!(refused, TransactionError::Write(WriteError::KeyTooLong { .. })), "{refused}");
    assert_eq!(db.increment("n", i64::MAX).unwrap(), i64::MAX);
    assert_eq!(db.increment("n", 1).unwrap(), i64::MIN);
}
