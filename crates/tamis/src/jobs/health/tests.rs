//! Writes that resume after a failure.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use tamis_testkit::{CrashMode, FaultPlan, FaultyFs, OpClass};

use crate::ingest::{ExternalTableBuilder, IngestOptions};
use crate::io::read_file;
use crate::sync;
use crate::{Db, Durability, KeyspaceOptions, Options, WriteBatch, WriteError};

fn open(fs: &FaultyFs) -> Db {
    let keyspace = KeyspaceOptions { memtable_bytes: 64 << 10, ..KeyspaceOptions::default() };
    let options = Options { file_system: Some(Arc::new(fs.clone())), keyspace, ..Options::default() };
    options.open("/db").unwrap()
}

fn put(db: &Db, key: &str, value: &str, durability: Durability) -> Result<(), WriteError> {
    let mut batch = WriteBatch::new();
    batch.put(key, value);
    db.write_with(batch, durability)
}

/// Retries a write until it is acknowledged.
fn put_at_last(db: &Db, key: &str, value: &str) {
    while let Err(error) = put(db, key, value, Durability::Sync) {
        assert!(matches!(error, WriteError::Suspended { .. }), "{error}");
        sync::thread::sleep(Duration::from_millis(1));
    }
}

fn fail(fs: &FaultyFs, class: OpClass, error: ErrorKind) {
    let plan = FaultPlan { fail_at: Some(0), error, sticky: true, only: Some(class), partial_append: true };
    fs.plan(plan);
}

fn used(fs: &FaultyFs) -> u64 {
    fs.files().iter().map(|file| file.1).sum()
}

/// A failed sync of the log ended writing for good, until the database was opened again.
#[test]
fn after_a_failed_sync_acknowledged_writes_are_flushed_and_writes_resume() {
    let fs = FaultyFs::new(3);
    let db = open(&fs);
    let other = db.create_keyspace("other", KeyspaceOptions::default()).unwrap();
    put(&db, "synced", "1", Durability::Sync).unwrap();
    put(&db, "buffered", "1", Durability::Buffered).unwrap();
    other.put("elsewhere", "1").unwrap();
    fail(&fs, OpClass::Sync, ErrorKind::Other);
    assert!(matches!(put(&db, "failed", "1", Durability::Sync), Err(WriteError::Storage(_))));
    // Refused while it cannot be synced, whether or not a sync is requested; reads continue.
    assert!(matches!(put(&db, "refused", "1", Durability::Buffered), Err(WriteError::Suspended { .. })));
    assert!(db.stats().suspended.is_some() && db.stats().poisoned.is_none());
    assert_eq!(db.get("buffered").unwrap().unwrap(), "1");
    assert_eq!(db.get("failed").unwrap(), None);
    fs.plan(FaultPlan::none());
    put_at_last(&db, "after", "1");
    assert_eq!(db.stats().write.suspensions, 1);
    // What the failed sync had left in doubt is in tables; the refused record is in no log that
    // counts.
    for mode in [CrashMode::DropUnsynced, CrashMode::KeepAll] {
        let reopened = open(&fs.after_crash(mode));
        let keys: Vec<_> = reopened.iter().map(|item| item.unwrap().0.to_vec()).collect();
        assert_eq!(keys, [&b"after"[..], b"buffered", b"synced"], "{mode:?}");
        assert_eq!(reopened.keyspace("other").unwrap().get("elsewhere").unwrap().unwrap(), "1");
    }
    drop(other);
    db.close().unwrap();
    assert_eq!(open(&fs).iter().count(), 3);
}

/// The simulation's seed 502: an opening alongside the writer shows a write whose sync failed,
/// which the writer never shows. That is what a crash at that moment might leave; once writes have
/// resumed, no opening shows it.
#[test]
fn an_opening_shows_a_failed_write_only_until_writes_resume() {
    let fs = FaultyFs::new(7);
    let db = open(&fs);
    put(&db, "synced", "1", Durability::Sync).unwrap();
    fail(&fs, OpClass::Sync, ErrorKind::Other);
    assert!(matches!(put(&db, "failed", "1", Durability::Sync), Err(WriteError::Storage(_))));
    let beside = || {
        let options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
        let db = options.open_read_only("/db").unwrap();
        db.iter().map(|item| item.unwrap().0.to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(beside(), [&b"failed"[..], b"synced"], "the record is in the log");
    assert_eq!(db.get("failed").unwrap(), None);
    fs.plan(FaultPlan::none());
    put_at_last(&db, "after", "1");
    assert_eq!(beside(), [&b"after"[..], b"synced"]);
}

/// A large value is only in the log, which the failure may have damaged. Writes used to stay
/// suspended, since the log could not become a blob file.
#[test]
fn a_large_value_that_a_failed_log_has_lost_fails_reads_of_its_key_alone() {
    let fs = FaultyFs::new(8);
    let keyspace = KeyspaceOptions { blob_threshold: 100, ..KeyspaceOptions::default() };
    let options = || Options {
        file_system: Some(Arc::new(fs.clone())),
        keyspace: keyspace.clone(),
        ..Options::default()
    };
    let db = options().open("/db").unwrap();
    let value = |i: usize| i.to_string().repeat(1000);
    (0..5).for_each(|i| put(&db, &format!("key{i}"), &value(i), Durability::Buffered).unwrap());
    fail(&fs, OpClass::Sync, ErrorKind::Other);
    assert!(matches!(put(&db, "failed", "1", Durability::Sync), Err(WriteError::Storage(_))));
    let part = [b'3'; 50];
    let place = fs.files().into_iter().find_map(|(path, _)| {
        let bytes = read_file(&fs, &path).ok()?;
        Some((path, bytes.windows(50).position(|bytes| bytes == part)?))
    });
    let (log, at) = place.expect("the log has it");
    fs.corrupt(log, at as u64, 1).unwrap();
    fs.plan(FaultPlan::none());
    put_at_last(&db, "after", "1");
    let check = |db: &Db| {
        for i in 0..5 {
            match db.get(format!("key{i}")) {
                Ok(found) => assert!(i != 3 && found.unwrap() == value(i).as_bytes(), "{i}"),
                Err(error) => assert!(i == 3, "{i}: {error}"),
            }
        }
        assert_eq!(db.get("after").unwrap().unwrap(), "1");
    };
    check(&db);
    db.compact().unwrap();
    check(&db);
    db.close().unwrap();
    check(&options().open("/db").unwrap());
}

/// A full disk ended writing for good, even after space was freed.
#[test]
fn writes_resume_once_there_is_room_again() {
    let fs = FaultyFs::new(4);
    let db = open(&fs);
    let value = "v".repeat(3000);
    put(&db, "first", &value, Durability::Sync).unwrap();
    fs.set_capacity(Some(used(&fs) + 100_000));
    let mut acknowledged = 0;
    let refused = loop {
        match put(&db, &format!("key{acknowledged:04}"), &value, Durability::Sync) {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 1000, "the disk is never full");
    };
    assert!(refused.to_string().contains("full") || refused.to_string().contains("space"), "{refused}");
    assert_eq!(db.iter().count(), 1 + acknowledged);
    assert_ne!(db.stats().troubles, Vec::<String>::new());
    fs.set_capacity(None);
    put_at_last(&db, "last", "1");
    assert_eq!(db.iter().count(), 2 + acknowledged);
    let reopened = open(&fs.after_crash(CrashMode::DropUnsynced));
    assert_eq!(reopened.iter().count(), 2 + acknowledged);
}

/// Writers waited forever, without an error, for a flush that failed each time.
#[test]
fn a_writer_waiting_for_a_failing_flush_gets_the_reason() {
    let fs = FaultyFs::new(5);
    let db = open(&fs);
    // No more tables and logs can be created; the current log takes what fits into it.
    fail(&fs, OpClass::Name, ErrorKind::PermissionDenied);
    let value = "v".repeat(2000);
    let error = (0..1000).find_map(|i| put(&db, &format!("key{i:04}"), &value, Durability::Buffered).err());
    assert!(error.is_some());
    assert!(db.flush().is_err());
    assert!(db.stats().poisoned.is_none());
    fs.plan(FaultPlan::none());
    put_at_last(&db, "last", "1");
    db.flush().unwrap();
    assert_eq!(db.stats().troubles, Vec::<String>::new());
    db.close().unwrap();
}

/// A single failed read in a compaction ended writing for good.
#[test]
fn a_failed_compaction_is_retried_and_writes_continue() {
    let fs = FaultyFs::new(6);
    let keyspace = KeyspaceOptions { memtable_bytes: 64 << 10, level0_runs: 4, ..KeyspaceOptions::default() };
    let mut options = Options { file_system: Some(Arc::new(fs.clone())), keyspace, ..Options::default() };
    options.cache_bytes = 0;
    let db = options.open("/db").unwrap();
    let pause = db.pause_compaction();
    for round in 0..5 {
        (0..100).for_each(|i| db.put(format!("key{i:03}"), format!("{round}")).unwrap());
        db.flush().unwrap();
    }
    fail(&fs, OpClass::Read, ErrorKind::Other);
    drop(pause);
    let deadline = sync::now() + Duration::from_secs(60);
    while db.stats().write.set_aside == 0 && sync::now() < deadline {
        sync::thread::sleep(Duration::from_millis(5));
    }
    assert!(db.stats().write.set_aside > 0, "no compaction failed");
    db.put("key", "value").unwrap();
    fs.plan(FaultPlan::none());
    while db.stats().write.compactions == 0 && sync::now() < deadline {
        sync::thread::sleep(Duration::from_millis(5));
    }
    assert!(db.stats().write.compactions > 0, "{:?}", db.stats().troubles);
    assert_eq!(db.get("key007").unwrap().unwrap(), "4");
    assert_eq!(db.iter().count(), 101);
}

/// Whether the keyspace is gone is unknown until the manifest is known: writes made to it meanwhile
/// would be lost with it.
#[test]
fn after_a_failed_drop_of_a_keyspace_no_write_that_it_could_lose_is_acknowledged() {
    for class in [OpClass::Write, OpClass::Sync] {
        let fs = FaultyFs::new(7);
        let db = open(&fs);
        let other = db.create_keyspace("other", KeyspaceOptions::default()).unwrap();
        other.put("key", "1").unwrap();
        db.sync().unwrap();
        fail(&fs, class, ErrorKind::Other);
        assert!(db.drop_keyspace("other").is_err());
        assert!(other.put("key", "2").is_err(), "{class:?}");
        fs.plan(FaultPlan::none());
        while let Err(error) = other.put("key", "3") {
            assert!(matches!(error, WriteError::Suspended { .. }), "{error}");
            sync::thread::sleep(Duration::from_millis(1));
        }
        db.sync().unwrap();
        let reopened = open(&fs.after_crash(CrashMode::DropUnsynced));
        assert_eq!(reopened.keyspace("other").unwrap().get("key").unwrap().unwrap(), "3", "{class:?}");
    }
}

/// Tables that no manifest names any more take no space.
#[test]
fn leftovers_of_a_failed_edit_are_removed_once_that_is_safe() {
    let fs = FaultyFs::new(8);
    let db = open(&fs);
    for round in 0..20 {
        put_at_last(&db, &format!("key{round}"), "value");
        let plan = FaultPlan {
            fail_at: Some(fs.operations() + round),
            error: ErrorKind::Other,
            sticky: false,
            only: None,
            partial_append: true,
        };
        fs.plan(plan);
        let _ = db.flush();
        fs.plan(FaultPlan::none());
    }
    put_at_last(&db, "last", "value");
    db.flush().unwrap();
    db.wait_for_compaction().unwrap();
    let named = db.default_keyspace().tables().len();
    let deadline = sync::now() + Duration::from_secs(60);
    let tables = || fs.files().iter().filter(|file| file.0.extension().is_some_and(|x| x == "tam")).count();
    while tables() > named && sync::now() < deadline {
        sync::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(tables(), named);
    let manifests = fs.files().iter().filter(|file| file.0.to_string_lossy().contains("MANIFEST")).count();
    assert_eq!(manifests, 1);
    assert_eq!(db.iter().count(), 21);
}

/// A failed ingestion was found by the next opening, together with a write acknowledged after it:
/// the manifest held the edit, and writes continued in the existing log. The simulation found it
/// (seed 1165).
#[test]
fn a_failed_ingestion_is_not_found_after_a_later_write() {
    let (mut failed, mut at) = (0, 0);
    loop {
        let fs = FaultyFs::new(9);
        let db = open(&fs);
        put(&db, "before", "1", Durability::Sync).unwrap();
        let options = KeyspaceOptions::default();
        let mut table = ExternalTableBuilder::create_on(Arc::new(fs.clone()), "/table", &options).unwrap();
        table.put("ingested", "1").unwrap();
        table.finish().unwrap();
        let plan = FaultPlan {
            fail_at: Some(fs.operations() + at),
            error: ErrorKind::Other,
            sticky: false,
            only: None,
            partial_append: true,
        };
        let failures = fs.failures();
        fs.plan(plan);
        let ingested = db.default_keyspace().ingest(&["/table"], IngestOptions::default()).is_ok();
        fs.plan(FaultPlan::none());
        let hit = fs.failures() > failures;
        if !ingested {
            failed += 1;
            while let Err(error) = put(&db, "after", "1", Durability::Buffered) {
                assert!(matches!(error, WriteError::Suspended { .. }), "{error}");
                sync::thread::sleep(Duration::from_millis(1));
            }
            let reopened = open(&fs.after_crash(CrashMode::KeepAll));
            assert_eq!(reopened.get("after").unwrap().unwrap(), "1", "operation {at}");
            assert_eq!(reopened.get("ingested").unwrap(), None, "operation {at}");
        }
        if !hit {
            break;
        }
        at += 1;
    }
    assert!(at > 10 && failed > 5, "{failed} of {at}");
}

/// Several memtables were inserted into a global filter one after the other before their tables
/// were published together: at the second one the first one's epochs were unknown, its codes were
/// taken for old ones, and its keys were denied. The fault suite found it.
#[test]
fn a_global_filter_knows_all_tables_that_replace_logs() {
    let fs = FaultyFs::new(10);
    let mut options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
    options.background_bytes_per_second = 64 << 10;
    options.keyspace.memtable_bytes = 8 << 10;
    options.keyspace.max_memtables = 8;
    options.keyspace.auto_compaction = false;
    options.keyspace.set("filter", "grf").unwrap();
    let db = options.open("/db").unwrap();
    let (mut written, mut rescued) = (0u64, 0);
    for round in 0..4 {
        let deadline = sync::now() + Duration::from_secs(60);
        // Flushes are slow: the first one delays the others.
        while db.stats().keyspaces[0].memtables < 6 && sync::now() < deadline {
            let key = (written * 7919 % 1000).to_be_bytes();
            db.put(key, format!("{written} {:0>60}", round)).unwrap();
            written += 1;
        }
        fail(&fs, OpClass::Sync, ErrorKind::Other);
        put(&db, "failed", "1", Durability::Sync).unwrap_err();
        let before = db.stats().write.flushes;
        fs.plan(FaultPlan::none());
        put_at_last(&db, "after", "1");
        rescued += db.stats().write.flushes - before;
        db.wait_for_filters().unwrap();
        for i in written.saturating_sub(1000)..written {
            let key = (i * 7919 % 1000).to_be_bytes();
            let value = db.get(key).unwrap();
            assert!(value.is_some_and(|value| value.starts_with(format!("{i} ").as_bytes())), "{round} {i}");
        }
    }
    assert!(rescued >= 8, "{rescued} memtables in place of four logs");
}
