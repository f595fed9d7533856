//! Which tables are dropped, and which must not be.

use std::sync::Arc;

use tamis_testkit::{FaultPlan, FaultyFs};

use crate::error::StorageError;
use crate::io::MemFs;
use crate::{Db, KeyspaceOptions, Options};

fn open(fs: &MemFs, changes: impl Fn(&mut KeyspaceOptions)) -> Db {
    let mut options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
    options.keyspace.table_bytes = 4 << 10;
    options.keyspace.block_bytes = 256;
    changes(&mut options.keyspace);
    options.open("db").unwrap()
}

fn key(i: u32) -> String {
    format!("key {i:05}")
}

fn fill(db: &Db, round: u32) {
    for i in 0..1000 {
        db.put(key(i), format!("{round} {:0>60}", i.wrapping_mul(2_654_435_761))).unwrap();
    }
    db.compact().unwrap();
}

fn tables(db: &Db) -> usize {
    db.default_keyspace().tables().len()
}

#[test]
fn tables_emptied_by_a_range_delete_are_dropped_unread() {
    let fs = MemFs::new();
    let db = open(&fs, |_| {});
    fill(&db, 0);
    assert!(tables(&db) > 8);
    let before = db.stats().write;
    db.default_keyspace().delete_range(key(0)..key(900)).unwrap();
    db.flush().unwrap();
    db.wait_for_compaction().unwrap();
    let after = db.stats().write;
    assert!(after.dropped_tables - before.dropped_tables >= 7, "{} dropped", after.dropped_tables);
    let read = after.compaction_read_bytes - before.compaction_read_bytes;
    assert_eq!(read, 0, "nothing but what is dropped is due");
    assert_eq!(db.iter().count(), 100);
    for i in 0..1000 {
        assert_eq!(db.get(key(i)).unwrap().is_some(), i >= 900, "{i}");
    }
    drop(db);
    assert_eq!(open(&fs, |_| {}).iter().count(), 100);
}

/// On a full disk merges had failed for so long that the next was a minute away. A range delete
/// then freed nothing, since drops waited too, although they need no room.
#[test]
fn a_drop_does_not_wait_for_merges_that_failed() {
    let db = open(&MemFs::new(), |_| {});
    fill(&db, 0);
    let id = *db.inner().state().catalogue.keyspaces().keys().next().unwrap();
    let error = StorageError::io("write", std::path::Path::new("x"), std::io::ErrorKind::Other.into());
    (0..7).for_each(|_| db.inner().state().scheduler.compaction_failed(id, &error, None));
    db.default_keyspace().delete_range(key(0)..key(900)).unwrap();
    db.flush().unwrap();
    while db.stats().write.dropped_tables < 7 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(db.inner().state().scheduler.is_aside(id), "merges still wait");
}

/// While the manifest had to be rewritten and could not be, a drop was tried again and again,
/// without a pause.
#[test]
fn a_drop_whose_edit_failed_is_not_tried_again_at_once() {
    let fs = FaultyFs::new(1);
    let mut options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
    options.keyspace.table_bytes = 4 << 10;
    let db = options.open("/db").unwrap();
    fill(&db, 0);
    let pause = db.pause_compaction();
    db.default_keyspace().delete_range(key(0)..key(900)).unwrap();
    db.flush().unwrap();
    let error = std::io::ErrorKind::Other;
    fs.plan(FaultPlan { fail_at: Some(fs.operations()), error, sticky: true, ..FaultPlan::none() });
    drop(pause);
    let inner = db.inner();
    let keyspace = inner.keyspaces.directory.load()[&0].clone();
    let error = StorageError::io("write", std::path::Path::new("x"), error.into());
    loop {
        let mut state = inner.state();
        if state.catalogue.unsettled().is_some() && state.scheduler.running(0).is_empty() {
            // For a minute.
            (0..7).for_each(|_| state.scheduler.compaction_failed(0, &error, None));
            assert!(inner.next_plan(&state, &keyspace).is_none());
            break;
        }
        drop(state);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    fs.plan(FaultPlan::none());
}

#[test]
fn adjacent_deletes_cover_a_table_but_not_across_a_gap() {
    for gap in [false, true] {
        let db = open(&MemFs::new(), |options| options.auto_compaction = false);
        fill(&db, 0);
        let before = tables(&db);
        for i in (0..1000).step_by(10) {
            // In two tables, so that no fragments are joined.
            db.default_keyspace().delete_range(key(i)..key(i + 5)).unwrap();
        }
        db.flush().unwrap();
        for i in (5..1000).step_by(10) {
            let end = if gap { key(i + 4) } else { key(i + 5) };
            db.default_keyspace().delete_range(key(i)..end).unwrap();
        }
        db.flush().unwrap();
        let dropped = || db.stats().write.dropped_tables;
        assert_eq!(dropped(), 0);
        db.default_keyspace().set_options(&[("auto_compaction", "true")]).unwrap();
        db.wait_for_compaction().unwrap();
        if gap {
            assert_eq!(dropped(), 0);
            assert_eq!(db.iter().count(), 100);
        } else {
            assert_eq!(dropped(), before as u64);
            assert_eq!(db.iter().count(), 0);
        }
    }
}

#[test]
fn a_snapshot_keeps_what_it_sees_until_it_is_dropped() {
    let db = open(&MemFs::new(), |_| {});
    fill(&db, 0);
    let snapshot = db.snapshot();
    db.default_keyspace().delete_range(key(0)..).unwrap();
    db.flush().unwrap();
    db.wait_for_compaction().unwrap();
    assert_eq!(db.stats().write.dropped_tables, 0);
    let seen = snapshot.iter().count();
    assert_eq!((seen, db.iter().count()), (1000, 0));
    drop(snapshot);
    db.compact().unwrap();
    assert_eq!((db.iter().count(), tables(&db)), (0, 0));
}

#[test]
fn writes_after_the_delete_stay() {
    let db = open(&MemFs::new(), |options| options.auto_compaction = false);
    fill(&db, 0);
    db.default_keyspace().delete_range(key(0)..).unwrap();
    (0..1000).step_by(100).for_each(|i| db.put(key(i), "new").unwrap());
    db.flush().unwrap();
    db.default_keyspace().set_options(&[("auto_compaction", "true")]).unwrap();
    db.wait_for_compaction().unwrap();
    assert!(db.stats().write.dropped_tables > 0);
    assert_eq!(db.iter().count(), 10);
    db.compact().unwrap();
    assert_eq!(db.iter().count(), 10);
}

/// Of two deletes that together cover a table, a snapshot between them sees only the first: what
/// lies under the second must stay. The older one alone decided, and the snapshot lost data that it
/// saw.
#[test]
fn a_snapshot_between_two_deletes_keeps_what_the_second_one_covers() {
    let db = open(&MemFs::new(), |options| options.auto_compaction = false);
    db.put("a", "1").unwrap();
    db.put("z", "2").unwrap();
    db.compact().unwrap();
    db.default_keyspace().delete_range("a".."m").unwrap();
    let snapshot = db.snapshot();
    db.default_keyspace().delete_range("m".."zz").unwrap();
    db.flush().unwrap();
    db.default_keyspace().set_options(&[("auto_compaction", "true")]).unwrap();
    db.wait_for_compaction().unwrap();
    assert_eq!(snapshot.get("z").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!((snapshot.iter().count(), db.iter().count()), (1, 0));
}
