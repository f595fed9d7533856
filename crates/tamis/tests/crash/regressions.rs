//! Bugs found by this suite, each with its story.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tamis::{Durability, Options, WriteBatch};
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs, OpClass};

use crate::gate::Gate;
use crate::lab;

/// A checkpoint could not be opened when nothing had been written since the log was last rolled:
/// the copy's manifest said that the logs start with the current one, which is empty and was not
/// linked, and opening reported it as lost. The copy now has an empty log of that name.
#[test]
fn a_checkpoint_of_a_database_with_an_empty_log_can_be_opened() {
    let fs = FaultyFs::new(1);
    let db = lab::open(&fs).unwrap();
    db.checkpoint("/new").unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    db.checkpoint("/flushed").unwrap();
    assert_eq!(lab::open_existing(&fs, "/new").unwrap().iter().count(), 0);
    assert_eq!(lab::open_existing(&fs, "/flushed").unwrap().iter().count(), 1);
}

/// `close` reported success when an earlier failure had suspended writes: it silently skipped the
/// sync of the log, so that a caller had reason to believe that its writes were safe.
#[test]
fn closing_while_writes_are_suspended_is_an_error() {
    let fs = FaultyFs::new(1);
    let db = lab::open(&fs).unwrap();
    db.put("key", "value").unwrap();
    fs.plan(FaultPlan { fail_at: Some(0), only: Some(OpClass::Sync), sticky: true, ..FaultPlan::none() });
    db.sync().unwrap_err();
    let error = db.close().unwrap_err().to_string();
    assert!(error.contains("suspended"), "{error}");
}

/// Opening a database in a directory whose parent did not exist either made only the last
/// directory's name durable. A power cut removed the parent's name, and with it every write
/// acknowledged as synced. Now each created directory is synced into its parent.
#[test]
fn directories_above_a_new_database_survive_a_power_cut() {
    let fs = FaultyFs::new(1);
    let open = |fs: &FaultyFs| lab::tiny(fs).open("/some/where/deep/db");
    let db = open(&fs).unwrap();
    let mut batch = WriteBatch::new();
    batch.put("key", "value");
    db.write_with(batch, Durability::Sync).unwrap();
    db.checkpoint("/other/place/copy").unwrap();
    let fs = fs.crash(CrashMode::DropUnsynced);
    assert_eq!(open(&fs).unwrap().get("key").unwrap().unwrap(), "value");
    assert_eq!(lab::open_existing(&fs, "/other/place/copy").unwrap().get("key").unwrap().unwrap(), "value");
}

/// The sync thread of a database with periodic durability could wake up after closing had taken the
/// log away and before the thread was told to end. It then found writes to sync but no log,
/// panicked with the log locked, and from then on every call for statistics panicked too.
#[test]
fn periodic_syncs_do_not_race_with_closing() {
    let options = |fs: &FaultyFs| Options {
        durability: Durability::Every(std::time::Duration::from_millis(1)),
        ..lab::tiny(fs)
    };
    lab::listen_for_panics();
    for seed in 0..200 * lab::scale() as u64 {
        let fs = FaultyFs::new(seed);
        let db = options(&fs).open(lab::DIR).unwrap();
        std::thread::sleep(std::time::Duration::from_micros(seed * 37 % 1500));
        db.put("key", "value").unwrap();
        db.clone().close().unwrap();
        assert!(db.stats().poisoned.is_none());
    }
    lab::assert_no_background_panics(&"periodic syncs");
}

/// A flush that failed to make its edit durable left the edit in the in-memory tree, in no view. A
/// checkpoint already in progress copied that tree with the tables of the view, reported success,
/// and could not be opened. It now checks once more, under the locks, whether the database still
/// accepts writes.
#[test]
fn a_checkpoint_beside_a_failing_flush_is_whole_or_an_error() {
    let mut refused = 0;
    for at in 0..40 {
        let fs = FaultyFs::new(at);
        let gate = Gate::new(&fs, "/copy");
        let db =
            Options { file_system: Some(Arc::new(gate.clone())), ..lab::tiny(&fs) }.open(lab::DIR).unwrap();
        db.put("key", "value").unwrap();
        // The checkpoint has seen no error. Now the flush fails.
        gate.before_it_answers({
            let (db, fs) = (db.clone(), fs.clone());
            move || {
                let fail_at = Some(fs.operations() + at);
                fs.plan(FaultPlan { fail_at, only: Some(OpClass::Sync), sticky: true, ..FaultPlan::none() });
                let _ = db.flush();
                fs.plan(FaultPlan::none());
            }
        });
        match db.checkpoint("/copy") {
            Ok(()) => {
                let copy = lab::open_existing(&fs, "/copy").unwrap_or_else(|e| panic!("{at}: {e}"));
                assert_eq!(copy.get("key").unwrap().unwrap(), "value", "{at}");
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused < 40, "{refused} checkpoints were refused");
}

/// Closing between a checkpoint's first check and its locking of the log took the log away: the
/// checkpoint had nothing to roll, linked only the older logs, and reported success, without the
/// newest writes.
#[test]
fn a_checkpoint_beside_a_close_is_whole_or_an_error() {
    let fs = FaultyFs::new(1);
    let gate = Gate::new(&fs, "/copy");
    let db = Options { file_system: Some(Arc::new(gate.clone())), ..lab::tiny(&fs) }.open(lab::DIR).unwrap();
    db.put("key", "value").unwrap();
    gate.before_it_answers({
        let db = db.clone();
        move || db.close().unwrap()
    });
    let error = db.checkpoint("/copy").unwrap_err().to_string();
    assert!(error.contains("closed"), "{error}");
}

/// `stats` used to take the log's lock, which a stalled writer holds, so that the reason for a
/// stall could be seen only after its end. Here flushes are held until `stats` has reported the
/// stall.
#[test]
fn stats_report_a_stall_while_it_lasts() {
    let fs = FaultyFs::new(5);
    let gate = Gate::new(&fs, "/nothing");
    let mut options = lab::tiny(&fs);
    options.file_system = Some(Arc::new(gate.clone()));
    options.keyspace.max_memtables = 2;
    let db = options.open(lab::DIR).unwrap();
    gate.hold_tables(true);
    let (told, stalled) = mpsc::channel();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for i in 0..2000u32 {
                db.put(i.to_be_bytes(), [7; 100]).unwrap();
            }
        });
        scope.spawn(|| {
            while db.stats().write.stalls == 0 {
                thread::yield_now();
            }
            let _ = told.send(db.stats().write);
        });
        // Without an answer the flushes resume anyway, so that the test fails instead of hanging.
        let write = stalled.recv_timeout(Duration::from_secs(30));
        let was_stalled = !writer.is_finished();
        gate.hold_tables(false);
        writer.join().unwrap();
        assert!(write.is_ok_and(|write| write.flushes == 0) && was_stalled);
    });
    assert!(db.stats().write.stall_nanos > 0);
    assert_eq!(db.iter().count(), 2000);
}

/// A flush on request waited until no memtable was sealed: under a writer that filled them as fast
/// as they were flushed, for ever.
#[test]
fn a_flush_does_not_wait_for_what_is_written_after_it() {
    let fs = FaultyFs::new(6);
    let gate = Gate::new(&fs, "/nothing");
    let mut options = lab::tiny(&fs);
    options.file_system = Some(Arc::new(gate.clone()));
    let db = options.open(lab::DIR).unwrap();
    gate.hold_tables(true);
    let (told, flushed) = mpsc::channel();
    thread::scope(|scope| {
        db.put("first", "value").unwrap();
        scope.spawn(|| told.send(db.flush()));
        gate.wait_for_a_table();
        db.put("second", "value").unwrap();
        let later = scope.spawn(|| db.flush());
        while db.stats().keyspaces[0].memtables < 3 {
            thread::yield_now();
        }
        gate.pass_one_table();
        // Without an answer the other table is let go, too, so that the test fails instead of
        // hanging.
        let first = flushed.recv_timeout(Duration::from_secs(30));
        let flushes = db.stats().write.flushes;
        gate.hold_tables(false);
        assert!(
            first.is_ok_and(|flushed| flushed.is_ok()) && flushes == 1,
            "{flushes} memtables were flushed"
        );
        later.join().unwrap().unwrap();
    });
}
