//! Compactions that are paused, cancelled, or delayed by a full disk or a rate limit.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tamis::maintenance::CompactOptions;
use tamis::{AdminError, Db, KeyspaceOptions, Options, WriteError};
use tamis_testkit::{FaultPlan, FaultyFs, OpClass};

use crate::gate::Gate;
use crate::lab;

/// Waits for an event that must happen eventually.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60), "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the bytes of all files, once obsolete ones are removed.
fn used(fs: &FaultyFs) -> u64 {
    let bytes = || fs.files().iter().map(|(_, len)| len).sum::<u64>();
    let mut last = bytes();
    until("files that stay as they are", || {
        std::thread::sleep(Duration::from_millis(100));
        std::mem::replace(&mut last, bytes()) == last
    });
    last
}

/// Tiny, but with room for one `fill` in a memtable, so that every run is one flush.
fn tiny(fs: &FaultyFs) -> Options {
    let keyspace = KeyspaceOptions { memtable_bytes: 16 << 10, ..lab::tiny_keyspace() };
    Options { max_log_bytes: 256 << 10, keyspace, ..lab::tiny(fs) }
}

fn open(fs: &FaultyFs) -> Db {
    tiny(fs).open(lab::DIR).unwrap()
}

/// Writes overlapping runs into level 0.
fn fill(db: &Db, runs: u8) {
    for run in 0..runs {
        for i in 0..30u16 {
            db.put(format!("key{:03}", (i * 7 + u16::from(run)) % 50), vec![run; 150]).unwrap();
        }
        db.flush().unwrap();
    }
}

fn content(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    db.iter().map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

fn level0_runs(db: &Db) -> usize {
    db.stats().keyspaces[0].levels[0].runs.len()
}

/// Checks that every table file belongs to the tree once obsolete files are removed.
fn assert_no_leftovers(fs: &FaultyFs, db: &Db) {
    let files = || fs.files().iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "tam")).count();
    let levels = |db: &Db| db.stats().keyspaces.into_iter().flat_map(|k| k.levels).collect::<Vec<_>>();
    let tables = || levels(db).iter().flat_map(|l| &l.runs).map(|r| r.tables).sum::<usize>();
    until("removal of obsolete files", || files() == tables());
}

/// A database whose table writes wait when the gate says so.
fn gated(fs: &FaultyFs, change: impl FnOnce(&mut Options)) -> (Gate, Options) {
    lab::listen_for_panics();
    let gate = Gate::new(fs, "/nowhere");
    let mut options = Options { file_system: Some(Arc::new(gate.clone())), ..tiny(fs) };
    change(&mut options);
    (gate, options)
}

#[test]
fn during_a_pause_no_compaction_starts_and_flushes_continue() {
    let fs = FaultyFs::new(1);
    let db = open(&fs);
    let (first, second) = (db.pause_compaction(), db.pause_compaction());
    fill(&db, 6);
    assert_eq!((level0_runs(&db), db.stats().write.compactions), (6, 0));
    db.wait_for_compaction().expect("paused work does not count");
    let before = content(&db);
    drop(first);
    assert_eq!(level0_runs(&db), 6, "another guard is still held");
    drop(second);
    until("compactions", || db.stats().write.compactions > 0);
    db.wait_for_compaction().unwrap();
    assert!(level0_runs(&db) < 2);
    assert_eq!(content(&db), before);
}

/// Starts a merge and holds it in the middle with a pause, after some bytes were written.
fn held_merge(db: &Db, gate: &Gate, runs: u8) -> tamis::maintenance::CompactionPause {
    let pause = db.pause_compaction();
    fill(db, runs);
    gate.hold_tables(true);
    drop(pause);
    until("a merge", || db.stats().jobs.iter().any(|job| job.work == "merge"));
    let pause = db.pause_compaction();
    gate.hold_tables(false);
    until("bytes", || db.stats().jobs.iter().any(|job| job.bytes_written > 0));
    pause
}

#[test]
fn a_running_merge_waits_for_the_end_of_a_pause_and_can_be_cancelled_meanwhile() {
    let fs = FaultyFs::new(2);
    let (gate, options) = gated(&fs, |options| options.sub_jobs = Some(3));
    let db = options.open(lab::DIR).unwrap();
    let pause = held_merge(&db, &gate, 6);
    let before = content(&db);
    let jobs = db.stats().jobs;
    let job = &jobs[0];
    assert_eq!((jobs.len(), job.keyspace.as_str(), job.reason.as_str()), (1, "default", "level 0 runs"));
    assert!(job.paused && job.parts > 1 && job.runs_in == 6 && job.bytes_in > 4096, "{job:?}");
    assert_eq!(job.input_levels, (0, 0));
    db.put("meanwhile", "written").unwrap();
    assert_eq!(db.stats().write.compactions, 0);
    db.cancel_compactions();
    let stats = db.stats();
    assert_eq!((stats.jobs.len(), stats.write.cancelled, stats.write.compactions), (0, 1, 0));
    assert_eq!(level0_runs(&db), 6);
    assert_no_leftovers(&fs, &db);
    drop(pause);
    until("the merge again", || db.stats().write.compactions > 0);
    db.delete("meanwhile").unwrap();
    assert_eq!(content(&db), before);
    lab::assert_no_background_panics(&"paused and cancelled");
}

#[test]
fn closing_does_not_wait_for_a_pause() {
    let fs = FaultyFs::new(3);
    let (gate, options) = gated(&fs, |_| {});
    let db = options.open(lab::DIR).unwrap();
    let pause = held_merge(&db, &gate, 4);
    let before = content(&db);
    db.close().unwrap();
    let db = open(&fs);
    assert_eq!(content(&db), before);
    assert_no_leftovers(&fs, &db);
    drop(pause);
    lab::assert_no_background_panics(&"closed while paused");
}

/// Regression: a stalled writer holds the log, which closing needs, so closing waited for the end
/// of the stall.
#[test]
fn closing_ends_a_stall_and_the_write_is_refused() {
    let fs = FaultyFs::new(4);
    let mut options = tiny(&fs);
    (options.keyspace.slowdown_runs, options.keyspace.stop_runs) = (3, 4);
    let db = options.open(lab::DIR).unwrap();
    let pause = db.pause_compaction();
    fill(&db, 4);
    let writer = {
        let db = db.clone();
        std::thread::spawn(move || db.put("stalled", "value"))
    };
    until("a stall", || db.stats().write.stalls > 0);
    db.clone().close().unwrap();
    assert!(matches!(writer.join().unwrap(), Err(WriteError::Closed)));
    drop((pause, db));
    assert_eq!(open(&fs).get("stalled").unwrap(), None);
}

/// Writers that wait for level 0 to shrink resume as soon as it does.
#[test]
fn a_stall_for_compactions_ends_with_them() {
    let fs = FaultyFs::new(5);
    let mut options = tiny(&fs);
    (options.keyspace.slowdown_runs, options.keyspace.stop_runs) = (3, 4);
    let db = options.open(lab::DIR).unwrap();
    let pause = db.pause_compaction();
    fill(&db, 3);
    let before = db.stats().write;
    db.put("slowed", "value").unwrap();
    assert_eq!((db.stats().write - before).slowdowns, 1, "three runs slow writes down");
    db.flush().unwrap();
    let writer = {
        let db = db.clone();
        std::thread::spawn(move || db.put("stalled", "value"))
    };
    until("a stall", || db.stats().write.stalls > 0);
    assert!(!writer.is_finished());
    drop(pause);
    writer.join().unwrap().unwrap();
    assert_eq!(db.get("stalled").unwrap().unwrap(), "value");
}

#[test]
fn a_manual_compaction_can_be_cancelled() {
    let fs = FaultyFs::new(6);
    let (gate, options) = gated(&fs, |options| options.keyspace.auto_compaction = false);
    let db = options.open(lab::DIR).unwrap();
    fill(&db, 5);
    let before = content(&db);
    for by_token in [true, false] {
        gate.hold_tables(true);
        let options = CompactOptions::default();
        let token = options.cancel.clone();
        let caller = {
            let db = db.clone();
            std::thread::spawn(move || db.default_keyspace().compact_range::<&[u8]>(.., options))
        };
        until("a merge", || !db.stats().jobs.is_empty());
        if by_token {
            token.cancel();
            gate.hold_tables(false);
        } else {
            let db = db.clone();
            let canceller = std::thread::spawn(move || db.cancel_compactions());
            // The merge is blocked in the file system until the gate opens; give the canceller time
            // to call.
            std::thread::sleep(Duration::from_millis(20));
            gate.hold_tables(false);
            canceller.join().unwrap();
        }
        let result = caller.join().unwrap();
        if by_token {
            assert!(matches!(result, Err(AdminError::Cancelled)), "{result:?}");
            assert_eq!(level0_runs(&db), 5);
        }
        assert!(db.stats().jobs.is_empty());
        assert_eq!(content(&db), before);
        assert_no_leftovers(&fs, &db);
    }
    let cancelled = CompactOptions::default();
    cancelled.cancel.cancel();
    let result = db.default_keyspace().compact_range("a".."z", cancelled);
    assert!(matches!(result, Err(AdminError::Cancelled)));
    db.compact().unwrap();
    assert_eq!(content(&db), before);
}

#[test]
fn compacting_a_range_leaves_other_keys_alone() {
    let fs = FaultyFs::new(7);
    let keyspace = KeyspaceOptions { auto_compaction: false, ..tiny(&fs).keyspace };
    let db = Options { keyspace, ..tiny(&fs) }.open(lab::DIR).unwrap();
    fill(&db, 3);
    let default = db.default_keyspace();
    default.compact_range("x".."z", CompactOptions::default()).unwrap();
    default.compact_range("key040".."key020", CompactOptions::default()).unwrap();
    assert_eq!((level0_runs(&db), db.stats().write.compactions), (3, 0));
    default.compact_range("key020"..="key021", CompactOptions::default()).unwrap();
    assert_eq!(level0_runs(&db), 0);
}

/// Pauses and cancels continuously while other threads write and read.
#[test]
fn pausing_and_cancelling_under_load_does_no_harm() {
    let fs = FaultyFs::new(8);
    lab::listen_for_panics();
    let db = Options { sub_jobs: Some(3), background_threads: 2, ..tiny(&fs) }.open(lab::DIR).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for i in 0..1500u32 {
                db.put(format!("key{:03}", i * 31 % 200), format!("{i:06}{}", "v".repeat(120))).unwrap();
            }
        });
        let db = &db;
        scope.spawn(move || {
            while !writer.is_finished() {
                drop(db.pause_compaction());
                db.cancel_compactions();
                std::thread::yield_now();
            }
        });
    });
    db.wait_for_compaction().unwrap();
    for key in 0..200u32 {
        let newest = (0..1500u32).rev().find(|i| i * 31 % 200 == key).unwrap();
        let value = db.get(format!("key{key:03}")).unwrap().unwrap();
        assert!(value.starts_with(format!("{newest:06}").as_bytes()), "key {key}");
    }
    assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
    assert_no_leftovers(&fs, &db);
    assert_eq!(db.stats().poisoned, None);
    lab::assert_no_background_panics(&"under load");
}

#[test]
fn a_merge_that_may_not_fit_starts_only_when_there_is_room() {
    let fs = FaultyFs::new(9);
    let db = open(&fs);
    let pause = db.pause_compaction();
    fill(&db, 6);
    let before = content(&db);
    fs.set_capacity(Some(used(&fs) + 12_000));
    // The cached free space is at most one second old.
    std::thread::sleep(Duration::from_millis(1100));
    drop(pause);
    until("a warning", || !db.stats().warnings.is_empty());
    let warnings = db.stats().warnings;
    assert!(warnings[0].starts_with("compaction of keyspace `default` needs "), "{warnings:?}");
    let refused = db.compact();
    assert!(matches!(&refused, Err(AdminError::NoRoom { needed, free, .. }) if needed > free), "{refused:?}");
    db.put("written", "meanwhile").unwrap();
    db.delete("written").unwrap();
    let stats = db.stats();
    assert_eq!((stats.write.compactions, stats.poisoned, stats.warnings.len()), (0, None, 1));
    fs.set_capacity(None);
    until("the merge", || db.stats().write.compactions > 0);
    assert_eq!(content(&db), before);
}

/// The file system did not report that it would be full: the merge is undone, backs off, and is
/// retried.
#[test]
fn a_merge_that_meets_a_full_disk_is_retried_and_blocks_nothing_else() {
    let fs = FaultyFs::new(10);
    let db = open(&fs);
    let pause = db.pause_compaction();
    fill(&db, 6);
    let before = content(&db);
    fs.plan(FaultPlan {
        fail_at: Some(2),
        only: Some(OpClass::Write),
        error: ErrorKind::StorageFull,
        sticky: true,
        ..FaultPlan::none()
    });
    drop(pause);
    until("a backoff", || db.stats().write.set_aside > 0);
    assert_eq!(content(&db), before);
    fs.plan(FaultPlan::none());
    db.put("written", "meanwhile").unwrap();
    db.delete("written").unwrap();
    assert_eq!(db.stats().poisoned, None);
    assert!(db.stats().warnings.iter().any(|w| w.contains("will be retried later")));
    until("the merge", || db.stats().write.compactions > 0);
    assert_eq!(content(&db), before);
    db.wait_for_compaction().unwrap();
    assert_no_leftovers(&fs, &db);
}

/// The first flush exceeds the allowed burst, so the second has to wait for most of a second.
#[test]
fn flushes_obey_their_rate_limit_and_complete() {
    let fs = FaultyFs::new(11);
    let mut options = Options { background_bytes_per_second: 64 << 10, ..tiny(&fs) };
    options.keyspace.blob_threshold = 0;
    (options.keyspace.memtable_bytes, options.max_log_bytes) = (256 << 10, 1 << 20);
    let db = options.open(lab::DIR).unwrap();
    for round in 0..2 {
        for i in 0..60u32 {
            db.put(format!("key{i}"), vec![round; 1000]).unwrap();
        }
        db.flush().unwrap();
    }
    let write = db.stats().write;
    assert!(write.flush_bytes > 100_000 && write.pace_nanos > 0, "{write:?}");
    db.wait_for_compaction().unwrap();
    assert_eq!(db.get("key7").unwrap().unwrap(), vec![1; 1000]);
    // Closing does not wait for the rate limiter.
    db.put("last", vec![1; 60_000]).unwrap();
    db.close().unwrap();
    assert!(open(&fs).contains_key("last").unwrap());
}

/// Flushes are rate-limited, so memtables pile up: writers are slowed down before they stall.
#[test]
fn writers_are_slowed_down_while_the_last_memtable_fills() {
    let fs = FaultyFs::new(12);
    let mut options = Options { background_bytes_per_second: 64 << 10, ..tiny(&fs) };
    options.keyspace.auto_compaction = false;
    let db = options.open(lab::DIR).unwrap();
    for i in 0..700u32 {
        db.put(format!("key{i:03}"), [7; 150]).unwrap();
        if db.stats().write.slowdowns > 0 {
            break;
        }
    }
    let write = db.stats().write;
    assert!(write.slowdowns > 0 && write.pace_nanos + write.flushes > 0, "{write:?}");
    db.close().unwrap();
}

/// A keyspace without automatic compaction would never come out of its stall.
#[test]
fn a_stall_ends_when_automatic_compaction_is_disabled() {
    let fs = FaultyFs::new(13);
    let mut options = tiny(&fs);
    (options.keyspace.slowdown_runs, options.keyspace.stop_runs) = (3, 4);
    let db = options.open(lab::DIR).unwrap();
    let pause = db.pause_compaction();
    fill(&db, 4);
    let writer = {
        let db = db.clone();
        std::thread::spawn(move || db.put("stalled", "value"))
    };
    until("a stall", || db.stats().write.stalls > 0);
    db.default_keyspace().set_options(&[("auto_compaction", "false")]).unwrap();
    writer.join().unwrap().unwrap();
    drop(pause);
}
