//! Closing, locking, and handles that outlive the database.

use std::sync::Arc;
use std::time::Duration;

use tamis::{Durability, OpenError, Options};
use tamis_testkit::{CrashMode, FaultyFs};

use crate::history::{Session, steps};
use crate::lab::{self, scale};
use crate::ledger::read_all;

#[test]
fn a_directory_can_be_open_only_once_at_a_time() {
    let fs = FaultyFs::new(1);
    let db = lab::open(&fs).unwrap();
    assert!(matches!(lab::open(&fs), Err(OpenError::OpenHere { .. })));
    let clone = db.clone();
    drop(db);
    assert!(matches!(lab::open(&fs), Err(OpenError::OpenHere { .. })), "a clone holds it");
    let iter = clone.iter();
    clone.close().unwrap();
    let again = lab::open(&fs).expect("an iterator does not hold it");
    drop((iter, again));
    let snapshot = lab::open(&fs).unwrap().snapshot();
    assert!(matches!(lab::open(&fs), Err(OpenError::OpenHere { .. })), "a snapshot holds it");
    drop(snapshot);
    lab::open(&fs).unwrap();
}

/// A failed opening releases the lock.
#[test]
fn a_failed_opening_releases_the_directory_lock() {
    let fs = FaultyFs::new(1);
    drop(lab::open(&fs).unwrap());
    fs.corrupt("/db/CURRENT", 0, 1).unwrap();
    assert!(matches!(lab::open(&fs), Err(OpenError::Storage(_))));
    fs.corrupt("/db/CURRENT", 0, 1).unwrap();
    lab::open(&fs).unwrap();
}

/// Whatever was running, closing makes everything durable, and the next opening has nothing to warn
/// about.
#[test]
fn a_power_cut_after_a_clean_close_loses_nothing_and_causes_no_warning() {
    for seed in 0..30 * scale() as u64 {
        let history = lab::sample(&steps(40), seed);
        let fs = FaultyFs::new(seed);
        let mut session = Session::open(&fs).unwrap();
        for step in &history {
            session.run(step, false).unwrap();
        }
        session.db.take().unwrap().close().unwrap();
        for mode in [CrashMode::DropUnsynced, CrashMode::Random] {
            let after = fs.after_crash(mode);
            let db = lab::open(&after).unwrap();
            assert_eq!(db.stats().warnings, Vec::<String>::new(), "seed {seed}");
            let mut ledger = session.ledger.clone();
            let acked = ledger.order.acknowledged();
            ledger.judge(&db, acked).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{history:#?}"));
        }
    }
}

/// An iterator that outlives the database still reads its tables, even if their names are gone.
#[test]
fn an_iterator_that_outlives_the_database_keeps_reading() {
    let fs = FaultyFs::new(5);
    let db = lab::open(&fs).unwrap();
    for i in 0..200u32 {
        db.put(format!("key{i:04}"), [i as u8; 100]).unwrap();
    }
    db.flush().unwrap();
    let mut iter = db.iter();
    iter.next().unwrap().unwrap();
    db.close().unwrap();
    let db = lab::open(&fs).unwrap();
    db.delete_range(.."z").unwrap();
    db.compact().unwrap();
    db.close().unwrap();
    lab::open(&fs).unwrap();
    assert_eq!(iter.filter(|item| item.is_ok()).count(), 199);
}

/// Closing waits for compactions in callers' threads: otherwise they would find the manifest gone,
/// or write their tables into a directory that has another owner by then.
#[test]
fn closing_during_a_manual_compaction_neither_panics_nor_does_harm() {
    for seed in 0..30 * scale() as u64 {
        let fs = FaultyFs::new(seed);
        let options = Options { durability: Durability::Every(Duration::from_millis(1)), ..lab::tiny(&fs) };
        let db = options.clone().open(lab::DIR).unwrap();
        for i in 0..150u32 {
            db.put(format!("key{:04}", i * 7919 % 150), [i as u8; 200]).unwrap();
        }
        let expected = read_all(&db).unwrap();
        let handles: Vec<_> = (0..3)
            .map(|i| {
                let db = db.clone();
                std::thread::spawn(move || match i {
                    0 => drop(db.compact()),
                    1 => {
                        (0..20).for_each(|i| drop(db.create_keyspace(&format!("k{i}"), lab::tiny_keyspace())))
                    }
                    _ => (0..3).for_each(|i| drop(db.checkpoint(format!("/copy{i}")))),
                })
            })
            .collect();
        std::thread::sleep(Duration::from_micros(seed * 150 % 4000));
        db.clone().close().unwrap();
        let again = options.clone().open(lab::DIR).unwrap();
        again.put("new", "owner").unwrap();
        again.flush().unwrap();
        for handle in handles {
            handle.join().expect("no panic");
        }
        assert!(db.put("x", "y").is_err());
        assert!(db.stats().poisoned.is_none(), "seed {seed}: {:?}", db.stats().poisoned);
        let mut found = read_all(&again).unwrap();
        found.get_mut("default").unwrap().remove(&b"new"[..]).expect("the new owner's write");
        assert_eq!(found["default"], expected["default"]);
        assert_eq!(again.verify().unwrap().problems, Vec::<String>::new());
        for i in 0..3 {
            let path = format!("/copy{i}");
            let reopened = Options {
                create_if_missing: false,
                file_system: Some(Arc::new(fs.clone())),
                ..lab::tiny(&fs)
            };
            match reopened.open(&path) {
                Ok(copy) => assert_eq!(read_all(&copy).unwrap()["default"], expected["default"], "{path}"),
                Err(OpenError::NotFound { .. }) => {}
                Err(e) => panic!("seed {seed}: {path}: {e}"),
            }
        }
        lab::assert_no_background_panics(&format!("seed {seed}"));
    }
}
