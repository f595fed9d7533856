//! A database that is only read, whose machine crashes or whose device fails.

use crate::session::elastic::saved::SAVE_EVERY;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tamis_testkit::{CrashMode, FaultPlan, FaultyFs};

use super::*;
use crate::clock::ManualClock;
use crate::options::{FilterPolicy, ReadMode};
use crate::{Db, Options};

const DIR: &str = "/db";
const KEYS: u64 = 3000;
const MODES: [CrashMode; 3] = [CrashMode::KeepAll, CrashMode::DropUnsynced, CrashMode::Random];

type Stored = BTreeMap<TableId, Vec<u8>>;

/// Segments of 128 keys; every get is counted.
fn options(fs: &FaultyFs, clock: &Arc<ManualClock>) -> Options {
    let mut options = Options {
        file_system: Some(Arc::new(fs.clone())),
        clock: Some(clock.clone()),
        read_mode: ReadMode::Buffered,
        heat_sampling: Some(1),
        reserve_bytes: 0,
        ..Options::default()
    };
    options.keyspace.filter = FilterPolicy::elastic();
    options.keyspace.filter_unit_bytes = 128;
    options.keyspace.block_bytes = 512;
    options
}

fn key(i: u64) -> [u8; 8] {
    (i * 2).to_be_bytes()
}

/// A machine with a closed database of one table.
fn machine(seed: u64) -> (FaultyFs, Arc<ManualClock>) {
    let (fs, clock) = (FaultyFs::new(seed), Arc::new(ManualClock::new(1000)));
    let db = options(&fs, &clock).open(DIR).expect("opening");
    (0..KEYS).for_each(|i| db.put(key(i), b"value").expect("a put"));
    db.flush().expect("a flush");
    db.wait_for_compaction().expect("settling");
    db.close().expect("closing");
    (fs, clock)
}

fn open(fs: &FaultyFs, clock: &Arc<ManualClock>) -> Db {
    let db = options(fs, clock).open(DIR).expect("opening");
    db.wait_for_filters().expect("settling");
    db
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(60), "a minute is over: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Gets absent keys, hot ones between these, until all have been counted.
fn learn(db: &Db, hot: std::ops::Range<u64>) {
    let elastic = &db.handle().inner.elastic;
    let before = elastic.inner().gets;
    for i in 0..2000 {
        let i = hot.start + i % (hot.end - hot.start);
        assert_eq!(db.get((i * 2 + 1).to_be_bytes()).expect("a get"), None);
    }
    wait_until("counting", || elastic.inner().gets == before + 2000);
    db.wait_for_filters().expect("settling");
}

/// What the manifest has, according to the tree in memory.
fn stored(db: &Db) -> Stored {
    let state = db.handle().inner.state();
    let tree = state.catalogue.tree();
    let tables = tree.keyspaces.values().flat_map(|keyspace| keyspace.tables());
    tables.filter_map(|table| Some((table.id, tree.hotness(table.id)?.to_vec()))).collect()
}

fn known(db: &Db) -> Stored {
    db.handle().inner.elastic.hotness().into_iter().collect()
}

/// Opens what a crash leaves, checks the data, and returns the stored hotness.
fn after_crash(fs: &FaultyFs, mode: CrashMode, clock: &Arc<ManualClock>) -> Stored {
    let db = open(&fs.after_crash(mode), clock);
    (0..KEYS).for_each(|i| assert_eq!(db.get(key(i)).expect("a get").expect("a value"), "value"));
    stored(&db)
}

#[test]
fn what_reads_taught_survives_a_crash_but_for_half_a_minute() {
    let (fs, clock) = machine(1);
    let db = open(&fs, &clock);
    let cold = stored(&db);
    learn(&db, 0..100);
    let early = known(&db);
    assert_ne!(early, cold);
    clock.advance(SAVE_EVERY - 1);
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(stored(&db), cold, "the flush thread looks every second, and it is too early");
    clock.advance(1);
    wait_until("saving", || stored(&db) == early);
    // Without gets nothing is written.
    let written = fs.operations();
    clock.advance(10 * SAVE_EVERY);
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(fs.operations(), written);
    // What was learned since is lost.
    clock.advance(1);
    learn(&db, 2000..2100);
    wait_until("saving", || stored(&db) == known(&db));
    let later = known(&db);
    assert_ne!(later, early);
    clock.advance(SAVE_EVERY - 1);
    learn(&db, 500..600);
    assert_ne!(known(&db), later);
    for mode in MODES {
        assert_eq!(after_crash(&fs, mode, &clock), later, "{mode:?}");
    }
    // A clock that goes back does not put it off.
    clock.set(5);
    wait_until("saving", || stored(&db) == known(&db));
}

#[test]
fn a_database_opened_to_read_saves_nothing() {
    let (fs, clock) = machine(2);
    let db = options(&fs, &clock).open_read_only(DIR).expect("opening");
    let files = fs.files();
    learn(&db, 0..100);
    clock.advance(2 * SAVE_EVERY);
    db.handle().inner.save_hotness();
    drop(db);
    assert_eq!(fs.files(), files);
}

/// Opens the database without the threads that would save in between, and lets it learn.
fn learned(fs: &FaultyFs, clock: &Arc<ManualClock>) -> Db {
    let inner = crate::open::open(DIR.as_ref(), options(fs, clock), None).expect("opening");
    inner.elastic.allow_worker();
    let db = Db::with(inner, None);
    learn(&db, 0..100);
    clock.advance(SAVE_EVERY);
    db
}

#[test]
fn a_crash_at_any_operation_of_a_save_leaves_the_hotness_before_or_after_it() {
    for stop in 0.. {
        let (fs, clock) = machine(stop);
        let db = learned(&fs, &clock);
        let (before, after) = (stored(&db), known(&db));
        fs.plan(FaultPlan {
            fail_at: Some(fs.operations() + stop),
            sticky: true,
            partial_append: true,
            ..FaultPlan::none()
        });
        db.handle().inner.save_hotness();
        let done = fs.failures() == 0;
        for mode in MODES {
            let found = after_crash(&fs, mode, &clock);
            assert!(found == after || !done && found == before, "stopped at {stop}, {mode:?}");
        }
        let _ = fs.crash(CrashMode::KeepAll);
        if done {
            assert!(stop >= 2, "an append and a sync");
            break;
        }
    }
}

#[test]
fn a_failed_save_suspends_nothing_and_is_repeated() {
    for at in 0.. {
        let (fs, clock) = machine(at);
        let db = learned(&fs, &clock);
        let (before, after) = (stored(&db), known(&db));
        let fail_at = Some(fs.operations() + at);
        fs.plan(FaultPlan { fail_at, partial_append: true, ..FaultPlan::none() });
        db.handle().inner.save_hotness();
        let failed = fs.failures() > 0;
        assert_eq!(stored(&db), if failed { before } else { after.clone() }, "at {at}");
        let stats = db.stats();
        assert_eq!(
            (stats.suspended, stats.poisoned, stats.troubles.len()),
            (None, None, usize::from(failed))
        );
        db.put("more", "value").expect("writes go on");
        db.sync().expect("writes go on");
        if failed {
            clock.advance(SAVE_EVERY - 1);
            db.handle().inner.save_hotness();
            assert_eq!(db.stats().troubles.len(), 1, "not yet");
            clock.advance(1);
            db.handle().inner.save_hotness();
            assert_eq!((stored(&db), db.stats().troubles.len()), (after.clone(), 0), "at {at}");
        }
        for mode in MODES {
            assert_eq!(after_crash(&fs, mode, &clock), after, "at {at}, {mode:?}");
        }
        db.close().expect("closing");
        if !failed {
            break;
        }
    }
}

#[test]
fn nothing_is_saved_while_writes_are_suspended_the_device_is_full_or_the_database_closes() {
    let (fs, clock) = machine(7);
    let db = learned(&fs, &clock);
    let (inner, before) = (&db.handle().inner, stored(&db));
    let error = crate::StorageError::io("sync", DIR.as_ref(), std::io::Error::other("a test"));
    inner.gate.suspend(&error);
    inner.save_hotness();
    assert_eq!(stored(&db), before);
    drop(db);

    let (fs, clock) = machine(8);
    let db = learned(&fs, &clock);
    let inner = &db.handle().inner;
    fs.set_capacity(Some(fs.files().iter().map(|(_, len)| len).sum::<u64>() + 4096));
    inner.space.room.outdated();
    inner.space.room.refresh(&*inner.fs, DIR.as_ref());
    inner.save_hotness();
    assert_eq!(stored(&db), before);
    fs.set_capacity(None);
    inner.space.room.outdated();
    inner.space.room.refresh(&*inner.fs, DIR.as_ref());
    let after = known(&db);
    let inner = inner.clone();
    db.close().expect("closing");
    // A thread that is late.
    inner.save_hotness();
    assert_eq!(stored(&open(&fs, &clock)), after);
}
