//! What a failed edit leaves behind.

use std::io::ErrorKind;
use std::time::Duration;

use tamis_testkit::{CrashMode, FaultPlan, FaultyFs, OpClass};

use super::*;
use crate::{Db, Options, WriteError};

fn open(fs: &FaultyFs) -> Db {
    let mut options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
    options.keyspace.auto_compaction = false;
    options.open("/db").unwrap()
}

/// Builds the edit of a compaction that moves the oldest table one level down.
fn late_edit(db: &Session) -> Result<(), StorageError> {
    let keyspace = db.keyspaces.directory.load()[&0].clone();
    let view = keyspace.view.load_full();
    let meta = (*view.version.tables.last().expect("a table").meta).clone();
    let edit =
        VersionEdit { removed: vec![(0, meta.id)], added: vec![(0, 1, 1 << 20, meta)], ..Default::default() };
    let mut state = db.state();
    db.commit_edit(&mut state, edit, NewTables::default(), |_, old| old.clone())
}

/// A flush failed to sync its edit. The tree in memory already had the new table, but no version
/// did, and the edit of a later compaction looked for it under the state lock: a panic, a poisoned
/// lock, and more panics in whatever took it next.
#[test]
fn an_edit_after_one_that_failed_is_an_error_and_reads_go_on() {
    for (class, later, sticky) in [OpClass::Write, OpClass::Sync, OpClass::Name]
        .into_iter()
        .flat_map(|c| [(c, 0, false), (c, 4, true), (c, 8, false)])
    {
        let fs = FaultyFs::new(1);
        let db = open(&fs);
        for round in 0..3 {
            db.put("key", format!("{round}")).unwrap();
            db.put(format!("key{round}"), "value").unwrap();
            db.flush().unwrap();
        }
        db.put("key", "last").unwrap();
        db.sync().unwrap();
        let plan = FaultPlan {
            fail_at: Some(fs.operations() + later),
            error: ErrorKind::Other,
            sticky,
            only: Some(class),
            partial_append: true,
        };
        fs.plan(plan);
        let flushed = db.flush();
        assert!(flushed.is_err() || !sticky, "{class:?} {later}: {flushed:?}");
        let failing = late_edit(db.inner());
        assert!(failing.is_err() || !sticky || class == OpClass::Name, "{class:?} {later}: {failing:?}");
        fs.plan(FaultPlan::none());
        if failing.is_err() {
            late_edit(db.inner()).unwrap();
        }
        assert_eq!(db.get("key").unwrap().unwrap(), "last", "{class:?} {later}");
        assert_eq!(db.iter().count(), 4, "{class:?} {later}");
        while let Err(error) = db.put("key", "more") {
            assert!(matches!(error, WriteError::Suspended { .. }), "{class:?} {later}: {error}");
            crate::sync::thread::sleep(Duration::from_millis(1));
        }
        db.flush().unwrap();
        assert_eq!(db.stats().troubles, Vec::<String>::new());
        let reopened = open(&fs.after_crash(CrashMode::DropUnsynced));
        assert_eq!(reopened.get("key").unwrap().unwrap(), "more", "{class:?} {later}");
        assert_eq!(reopened.verify().unwrap().problems, Vec::<String>::new());
        drop(reopened);
        db.close().unwrap();
        assert_eq!(open(&fs).iter().count(), 4);
    }
}

/// A panic under the state lock made every later use of the lock panic, including the bookkeeping
/// of reads.
#[test]
fn a_panic_under_the_state_lock_stops_writes_and_nothing_else() {
    let db = open(&FaultyFs::new(1));
    db.put("key", "value").unwrap();
    let inner = db.inner();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _state = inner.state();
        panic!("while the state is locked");
    }));
    assert!(panicked.is_err());
    assert!(db.stats().poisoned.is_none_or(|cause| cause.contains("panic")));
    assert_eq!(db.get("key").unwrap().unwrap(), "value");
    assert_eq!(db.snapshot().iter().count(), 1);
    assert!(matches!(db.put("key", "other"), Err(WriteError::Poisoned { .. })));
    assert!(db.flush().is_err());
    assert!(db.close().is_err());
}

/// The gaps of a keyspace held the log, which holds the state, which has the keyspaces: a closed
/// database kept its memory, and the operators of the program.
#[test]
fn nothing_of_a_closed_database_is_left() {
    let db = open(&FaultyFs::new(1));
    let other = db.create_keyspace("other", crate::KeyspaceOptions::default()).unwrap();
    (0..200).for_each(|i| other.put([i], "value").unwrap());
    (0..200).for_each(|i| other.delete([i]).unwrap());
    assert_eq!(other.iter().count(), 0);
    let view = other.inner.view.load_full();
    let parts = (Arc::downgrade(&db.inner().monitor), Arc::downgrade(&db.inner().log), Arc::downgrade(&view));
    drop((view, other));
    db.close().unwrap();
    assert!(parts.0.upgrade().is_none() && parts.1.upgrade().is_none() && parts.2.upgrade().is_none());
}

/// A reader loads its view, an ingestion ends, the reader loads the number: it does not see what
/// was ingested. Nor may it teach others a gap over it.
#[test]
fn a_reader_that_misses_an_ingestion_teaches_no_gap() {
    let fs = FaultyFs::new(1);
    let db = open(&fs);
    (0..200u8).for_each(|i| db.put([i], "value").unwrap());
    db.flush().unwrap();
    (0..200u8).for_each(|i| db.delete([i]).unwrap());
    db.flush().unwrap();
    let options = db.default_keyspace().options();
    let mut table =
        crate::ingest::ExternalTableBuilder::create_on(Arc::new(fs.clone()), "/table", &options).unwrap();
    table.put([100], "ingested").unwrap();
    table.finish().unwrap();
    let keyspace = db.inner().keyspaces.directory.load()[&0].clone();
    let view = keyspace.view.load();
    db.default_keyspace().ingest(&["/table"], crate::ingest::IngestOptions::default()).unwrap();
    let reader = crate::read::ReadAt {
        view,
        seq: db.inner().visible(),
        horizon: 0,
        operator: None,
        sharing: true,
        records: None,
    };
    assert_eq!(reader.iter(crate::read::Bounds::default(), keyspace.reads.clone(), None).count(), 0);
    assert_eq!(db.iter().map(|item| item.unwrap().0.to_vec()).collect::<Vec<_>>(), [[100]]);
}

/// A put would wait for its memory else.
#[cfg(not(miri))]
#[test]
fn the_next_memory_of_a_memtable_is_made_ahead() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    for key in 0..1500u32 {
        db.put(key.to_be_bytes(), [7; 4000]).unwrap();
    }
    let chunks = &db.handle().inner.keyspaces.chunks;
    let began = std::time::Instant::now();
    while chunks.bytes() == 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "nobody makes it");
        std::thread::sleep(Duration::from_millis(1));
    }
}
