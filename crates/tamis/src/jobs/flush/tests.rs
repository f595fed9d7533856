use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use tamis_testkit::{CrashMode, FaultPlan, FaultyFs, OpClass};

use crate::catalogue::scheduler::Scheduler;
use crate::ingest::{ExternalTableBuilder, IngestOptions};
use crate::sync;
use crate::{Db, KeyspaceOptions, Options};

fn open(fs: &FaultyFs) -> Db {
    let keyspace =
        KeyspaceOptions { memtable_bytes: 64 << 10, max_memtables: 8, ..KeyspaceOptions::default() };
    let options = Options { file_system: Some(Arc::new(fs.clone())), keyspace, ..Options::default() };
    options.open("/db").unwrap()
}

/// A run was made of each memtable, and a value that was overwritten four times while flushes
/// waited was written five times.
#[test]
fn memtables_that_wait_are_flushed_into_one_run() {
    let fs = FaultyFs::new(11);
    let db = open(&fs);
    let keyspace = db.inner().keyspaces.directory.load().values().next().unwrap().clone();
    // The flush thread leaves the keyspace alone meanwhile.
    db.inner().state().scheduler.start_flush(keyspace.id);
    let before = db.stats().write.flushes;
    let mut snapshot = None;
    for round in 0..5u32 {
        for i in 0..100u32 {
            db.put(format!("key{i:03}"), format!("{round}")).unwrap();
        }
        // Each hides what was put before it, in the same memtable and in older ones.
        db.delete_range(format!("key{:03}", 10 * round)..format!("key{:03}", 10 * round + 5)).unwrap();
        if round == 2 {
            snapshot = Some(db.snapshot());
        }
        let mut log = db.inner().lock_log();
        db.inner().seal(&mut log, std::slice::from_ref(&keyspace)).unwrap();
    }
    let contents = |entries: crate::Iter| {
        entries
            .map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
            .collect::<Vec<_>>()
    };
    let (now, then) = (contents(db.iter()), contents(snapshot.as_ref().unwrap().iter()));
    assert_eq!((now.len(), then.len()), (95, 95));
    assert_eq!(keyspace.view.load().memtables.sealed.len(), 5);

    db.inner().state().scheduler.end_flush(keyspace.id);
    db.inner().monitor.notify();
    db.flush().unwrap();
    assert_eq!(db.stats().write.flushes, before + 1);
    let view = keyspace.view.load_full();
    assert!(view.memtables.sealed.is_empty() && view.version.runs.len() == 1);
    // The versions of now, and those that the snapshot sees beside them.
    let entries: u64 = view.version.tables.iter().map(|table| table.meta.entries).sum();
    assert!(entries <= 200, "{entries} versions were written");
    assert_eq!(contents(db.iter()), now);
    assert_eq!(contents(snapshot.as_ref().unwrap().iter()), then);
    // All logs behind them are given up.
    assert_eq!(db.inner().state().logs.rolled().0, 0);
    drop(snapshot);
    for mode in [CrashMode::DropUnsynced, CrashMode::KeepAll] {
        assert_eq!(contents(open(&fs.after_crash(mode)).iter()), now, "{mode:?}");
    }
}

/// What did not fit together was tried together again, for ever.
#[test]
fn after_a_failed_flush_memtables_go_alone() {
    let fs = FaultyFs::new(12);
    let db = open(&fs);
    let keyspace = db.inner().keyspaces.directory.load().values().next().unwrap().clone();
    db.inner().state().scheduler.start_flush(keyspace.id);
    let before = db.stats().write.flushes;
    for round in 0..4u32 {
        db.put("key", format!("{round}")).unwrap();
        let mut log = db.inner().lock_log();
        db.inner().seal(&mut log, std::slice::from_ref(&keyspace)).unwrap();
    }
    // Not a full disk, for which the reserve is spent first.
    let (error, only) = (ErrorKind::Other, Some(OpClass::Write));
    fs.plan(FaultPlan { fail_at: Some(0), error, sticky: true, only, partial_append: true });
    db.inner().state().scheduler.end_flush(keyspace.id);
    db.inner().monitor.notify();
    while db.stats().write.failed_flushes == 0 {
        sync::thread::sleep(Duration::from_millis(1));
    }
    fs.plan(FaultPlan::none());
    // By itself: whoever asks for a flush has it tried anew.
    while !keyspace.view.load().memtables.sealed.is_empty() {
        sync::thread::sleep(Duration::from_millis(1));
    }
    // The oldest, and once that has succeeded, the others.
    assert_eq!(db.stats().write.flushes, before + 2);
    assert_eq!(db.get("key").unwrap().unwrap(), "3");
}

/// The table of several memtables covers what lies between them. A file that was ingested there in
/// the meantime got a later epoch and an older run, and `verify` called a sound database damaged.
#[test]
fn an_ingestion_between_memtables_that_are_flushed_together_waits() {
    let fs = FaultyFs::new(13);
    let db = open(&fs);
    let keyspace = db.inner().keyspaces.directory.load().values().next().unwrap().clone();
    let options = KeyspaceOptions::default();
    let mut file = ExternalTableBuilder::create_on(Arc::new(fs.clone()), "/m.tam", &options).unwrap();
    file.put("m", "ingested").unwrap();
    file.finish().unwrap();
    db.inner().state().scheduler.start_flush(keyspace.id);
    for key in ["a", "z"] {
        db.put(key, "value").unwrap();
        let mut log = db.inner().lock_log();
        db.inner().seal(&mut log, std::slice::from_ref(&keyspace)).unwrap();
    }
    sync::thread::scope(|scope| {
        let ingestion = scope
            .spawn("ingestion".to_owned(), || {
                db.ingest(&[(db.default_keyspace(), ["/m.tam"])], IngestOptions::default())
            })
            .unwrap();
        sync::thread::sleep(Duration::from_millis(200));
        assert_eq!(db.get("m").unwrap(), None, "it waits for the flush under way");
        db.inner().state().scheduler.end_flush(keyspace.id);
        db.inner().monitor.notify();
        ingestion.join().unwrap().unwrap();
    });
    db.flush().unwrap();
    assert_eq!(db.get("m").unwrap().unwrap(), "ingested");
    assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
}

/// Stopped writers wait for one memtable, not for all.
#[test]
fn as_many_are_flushed_together_as_do_not_keep_writers_waiting() {
    let together = |sizes: &[u64], most| Scheduler::flushed_together(sizes.iter().copied(), 64, most);
    assert_eq!(together(&[64], 2), 1);
    assert_eq!(together(&[64, 64], 2), 1);
    assert_eq!(together(&[65], 1), 1);
    assert_eq!(together(&[20, 20, 20, 20], 4), 3);
    assert_eq!(together(&[65, 65, 65], 4), 2);
    assert_eq!(together(&[20, 20, 20, 20], 8), 4);
}
