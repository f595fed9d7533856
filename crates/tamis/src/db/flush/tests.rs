use std::sync::Arc;

use tamis_testkit::{CrashMode, FaultyFs};

use crate::db::scheduler::Scheduler;
use crate::{Db, KeyspaceOptions, Options};

fn open(fs: &FaultyFs) -> Db {
    let keyspace =
        KeyspaceOptions { memtable_bytes: 64 << 10, max_memtables: 8, ..KeyspaceOptions::default() };
    let options = Options { file_system: Some(Arc::new(fs.clone())), keyspace, ..Options::default() };
    Db::open("/db", options).unwrap()
}

/// A run was made of each memtable, and a value that was overwritten four times while flushes waited was written five times.
#[test]
fn memtables_that_wait_are_flushed_into_one_run() {
    let fs = FaultyFs::new(11);
    let db = open(&fs);
    let keyspace = db.inner().directory.load().values().next().unwrap().clone();
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
