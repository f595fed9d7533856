//! Full disks.

use std::io::ErrorKind;
use std::path::Path;

use tamis::WriteError;
use tamis::io::FileSystem;
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs};

use crate::history::{Session, Step, Write, steps, tour};
use crate::lab::{self, MODES, scale};
use crate::ledger::Ledger;

fn total(fs: &FaultyFs) -> u64 {
    fs.files().iter().map(|(_, len)| len).sum()
}

/// Removes the log without records, if the session that did not end had created one ahead: how much
/// room that leaves for its next opening depends on threads.
fn remove_log_ahead(fs: &FaultyFs) {
    let report = tamis_doctor::salvage(lab::DIR, lab::tiny(fs), true).unwrap();
    for log in report.logs.iter().filter(|log| log.writes == 0) {
        fs.remove(&Path::new(lab::DIR).join(&log.file)).unwrap();
    }
    fs.sync_dir(Path::new(lab::DIR)).unwrap();
}

/// Runs `history` on a disk of `capacity` bytes, then frees space and reopens.
fn fill_and_free(history: &[Step], capacity: u64, seed: u64) {
    let context = format!("capacity {capacity}, seed {seed}");
    let fs = FaultyFs::new(seed);
    fs.set_capacity(Some(capacity));
    let Ok(mut session) = Session::open(&fs) else {
        fs.set_capacity(None);
        lab::open(&fs).unwrap_or_else(|e| panic!("{context}: {e}"));
        return;
    };
    for (i, step) in history.iter().enumerate() {
        session.run(step, true).unwrap_or_else(|e| panic!("{context}: step {i} {step:?}: {e}"));
    }
    session.run(&Step::Read, false).unwrap_or_else(|e| panic!("{context}: {e}"));
    for mode in MODES {
        let after = fs.after_crash(mode);
        after.set_capacity(None);
        let mut ledger = session.ledger.clone();
        let promised = ledger.order.promised(mode);
        let db = lab::open(&after).unwrap_or_else(|e| panic!("{context}, {mode:?}: {e}"));
        ledger.judge(&db, promised).unwrap_or_else(|e| panic!("{context}, {mode:?}: {e}"));
    }
    // With room again, writes resume by themselves.
    fs.set_capacity(None);
    session.write_until_it_goes_on().unwrap_or_else(|e| panic!("{context}: {e}"));
    session.run(&Step::Read, false).unwrap_or_else(|e| panic!("{context}: {e}"));
    fs.set_capacity(Some(total(&fs)));
    session.run(&Step::Reopen, true).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert!(session.db.is_some(), "{context}: it must open on the full disk");
    fs.set_capacity(None);
    if session.db.is_none() {
        let acked = session.ledger.order.acknowledged();
        session = Session::recover(&fs, session.ledger, acked).unwrap_or_else(|e| panic!("{context}: {e}"));
    } else {
        session.run(&Step::Reopen, false).unwrap_or_else(|e| panic!("{context}: {e}"));
    }
    let put = Step::Write { writes: vec![Write::Put { space: 0, key: 0, len: 9 }], synced: true };
    session.run(&put, false).unwrap_or_else(|e| panic!("{context}: {e}"));
    lab::assert_no_background_panics(&context);
}

#[test]
fn a_full_disk_is_an_error_that_freeing_space_resolves() {
    let needed = {
        let fs = FaultyFs::new(0);
        let mut session = Session::open(&fs).unwrap();
        let mut most = 0;
        for step in &tour() {
            session.run(step, false).unwrap();
            most = most.max(total(&fs));
        }
        most
    };
    let points = 60 * scale() as u64;
    for i in 0..points {
        fill_and_free(&tour(), needed * i / points, i);
    }
    for seed in 0..20 * scale() as u64 {
        fill_and_free(&lab::sample(&steps(60), seed), 2000 + seed * 1999 % 60_000, seed);
    }
}

#[test]
fn the_error_says_that_the_disk_is_full() {
    let fs = FaultyFs::new(1);
    let db = lab::open(&fs).unwrap();
    fs.set_capacity(Some(total(&fs) + 3000));
    let error = (0..100).find_map(|_| db.put("key", vec![7; 500]).err()).expect("it is full");
    assert!(error.to_string().contains("storage") || error.to_string().contains("space"), "{error}");
}

/// The end of a session before its disk was full.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Closed,
    /// Closed with everything in tables, so that no log held anything.
    ClosedEmpty,
    /// The process was killed.
    Killed,
    /// The power was cut.
    Cut,
}

/// A database with tables, two keyspaces and more in its logs than a memtable holds, as the end of
/// a session leaves it.
fn left_behind(seed: u64, end: End) -> (FaultyFs, Ledger) {
    let fs = FaultyFs::new(seed);
    let mut session = Session::open(&fs).unwrap();
    let put = |space, key, len| Step::Write { writes: vec![Write::Put { space, key, len }], synced: true };
    // No memtable gets full: a flush in the background would leave more or less, as threads go.
    let mut steps = vec![Step::Create(1)];
    steps.extend((0..6).map(|i| put(0, i, 500)));
    steps.push(Step::Flush);
    steps.extend((0..3).map(|i| put(1, i, 500)));
    steps.extend((3..9).map(|i| put(0, i, 400)));
    steps.push(Step::Write { writes: vec![Write::DeleteRange { space: 0, from: 4, to: 6 }], synced: true });
    for step in &steps {
        session.run(step, false).unwrap();
    }
    let mode = match end {
        End::Closed | End::ClosedEmpty => {
            if end == End::ClosedEmpty {
                session.run(&Step::Flush, false).unwrap();
            }
            session.db.take().unwrap().close().unwrap();
            return (fs, session.ledger);
        }
        End::Killed => CrashMode::KeepAll,
        End::Cut => CrashMode::DropUnsynced,
    };
    let fs = fs.crash(mode);
    remove_log_ahead(&fs);
    (fs, session.ledger)
}

const ENDS: [End; 4] = [End::Closed, End::ClosedEmpty, End::Killed, End::Cut];

fn is_full(error: &WriteError) -> bool {
    matches!(error, WriteError::Suspended { cause } if cause.contains("no storage space"))
}

/// Reports whether the session has no log, and so takes no writes.
fn waits(db: &tamis::Db) -> bool {
    db.stats().warnings.iter().any(|warning| warning.contains("without room to write"))
}

/// Regression: opening wrote tables, a log, a manifest and `CURRENT`, and failed if there was no
/// room for one of them; the data was then only readable read-only, and nothing could be deleted.
#[test]
fn a_database_opens_on_a_full_disk_and_takes_writes_once_there_is_room() {
    for (seed, end) in ENDS.into_iter().enumerate() {
        let (mut free, mut waited, mut began) = (0, 0, 0);
        while began < 3 {
            let context = format!("{end:?}, {free} bytes free");
            let (fs, ledger) = left_behind(seed as u64, end);
            let room = total(&fs) + free;
            fs.set_capacity(Some(room));
            let acked = ledger.order.acknowledged();
            let mut session =
                Session::recover(&fs, ledger, acked).unwrap_or_else(|e| panic!("{context}: {e}"));
            let db = session.db.clone().unwrap();
            let waiting = waits(&db);
            (waited, began) = (waited + u32::from(waiting), began + u32::from(!waiting));
            if waiting {
                assert!(total(&fs) <= room, "{context}");
                let snapshot = db.snapshot();
                for error in [db.put("more", "value"), db.delete("key01"), db.sync()].map(Result::unwrap_err)
                {
                    assert!(is_full(&error), "{context}: {error}");
                }
                assert!(
                    db.flush().is_err() && db.compact().is_err() && db.wait_for_compaction().is_err(),
                    "{context}"
                );
                assert!(
                    db.checkpoint("/copy").is_err() && db.create_keyspace("k", lab::tiny_keyspace()).is_err()
                );
                assert_eq!(db.stats().poisoned, None, "{context}");
                assert_eq!(snapshot.get("more").unwrap(), None, "{context}");
                session.run(&Step::Read, false).unwrap_or_else(|e| panic!("{context}: {e}"));
                for mode in MODES {
                    let after = fs.after_crash(mode);
                    after.set_capacity(None);
                    let found =
                        Session::recover(&after, session.ledger.clone(), session.ledger.order.acknowledged());
                    found.unwrap_or_else(|e| panic!("{context}, {mode:?}: {e}"));
                }
            }
            fs.set_capacity(None);
            let steps = [
                Step::Write { writes: vec![Write::Put { space: 1, key: 7, len: 40 }], synced: true },
                Step::Write { writes: vec![Write::Delete { space: 0, key: 1 }], synced: true },
                Step::Read,
                Step::Flush,
                Step::Compact(0),
                Step::Settle,
            ];
            for (i, step) in steps.iter().enumerate() {
                session.run(step, false).unwrap_or_else(|e| panic!("{context}: {step:?}: {e}"));
                for mode in MODES {
                    let promised = session.ledger.order.promised(mode);
                    let found = Session::recover(&fs.after_crash(mode), session.ledger.clone(), promised);
                    found.unwrap_or_else(|e| panic!("{context}, step {i}, {mode:?}: {e}"));
                }
            }
            drop(db);
            session.run(&Step::Reopen, false).unwrap_or_else(|e| panic!("{context}: {e}"));
            assert!(session.db.as_ref().unwrap().stats().warnings.is_empty(), "{context}");
            let _ = fs.crash(CrashMode::KeepAll);
            free += 37 + 400 / scale() as u64;
        }
        // Obsolete files of the previous session are room enough where nothing has to be flushed.
        assert!(waited > 1 || end == End::ClosedEmpty, "{end:?}: it waited {waited} times");
    }
    lab::assert_no_background_panics(&"opening on a full disk");
}

/// Regression: each opening that got no further than its first log left that log behind, empty.
/// After two of them the next opening took the first log for one with a missing end, and refused a
/// database that had been closed cleanly.
#[test]
fn any_number_of_failed_openings_leave_a_database_that_opens() {
    for (seed, end) in ENDS.into_iter().enumerate() {
        // At each operation of an opening, several times.
        let mut stop = 0;
        loop {
            let (mut fs, ledger) = left_behind(seed as u64, end);
            let mut failed = 0;
            for _ in 0..3 {
                fs.plan(FaultPlan {
                    fail_at: Some(fs.operations() + stop),
                    sticky: true,
                    ..FaultPlan::none()
                });
                drop(lab::open(&fs));
                failed += u32::from(fs.failures() > 0);
                fs = fs.crash(CrashMode::KeepAll);
            }
            Session::recover(&fs, ledger.clone(), ledger.order.acknowledged())
                .unwrap_or_else(|e| panic!("{end:?}, stopped at {stop}: {e}"));
            if failed == 0 {
                break;
            }
            stop += 1;
        }
        assert!(stop > 20, "{end:?}: an opening took {stop} operations");
    }
}

#[test]
fn successive_openings_on_a_full_disk_leave_one_log() {
    for (seed, end) in ENDS.into_iter().enumerate() {
        let (mut fs, mut ledger) = left_behind(seed as u64, end);
        for round in 0..4 {
            // Room for an empty log, for none, and for a log and a manifest.
            fs.set_capacity(Some(total(&fs) + [60, 0, 900, 60][round]));
            let acked = ledger.order.acknowledged();
            let session =
                Session::recover(&fs, ledger, acked).unwrap_or_else(|e| panic!("{end:?}, {round}: {e}"));
            ledger = session.ledger.clone();
            if round % 2 == 0 {
                session.db.unwrap().close().unwrap();
            } else {
                fs = fs.crash(CrashMode::DropUnsynced);
            }
        }
        fs.set_capacity(None);
        let acked = ledger.order.acknowledged();
        let mut session = Session::recover(&fs, ledger, acked).unwrap();
        session
            .run(&Step::Write { writes: vec![Write::Put { space: 0, key: 1, len: 9 }], synced: true }, false)
            .unwrap();
        session.run(&Step::Reopen, false).unwrap();
        let logs = fs.files().iter().filter(|(path, _)| path.extension() == Some("log".as_ref())).count();
        assert_eq!(logs, 1, "{end:?}");
    }
}

/// A late session start does the work of an opening, beside readers: the world stops at each of its
/// operations, or one of them fails.
#[test]
fn a_late_session_start_may_fail_or_crash_anywhere() {
    let put = Step::Write { writes: vec![Write::Put { space: 0, key: 2, len: 300 }], synced: true };
    for (kind, sticky) in
        [(ErrorKind::Other, true), (ErrorKind::Other, false), (ErrorKind::StorageFull, false)]
    {
        for end in ENDS {
            let mut stop = 0;
            loop {
                let context = format!("{end:?}, {kind:?}, sticky {sticky}, operation {stop}");
                let (fs, ledger) = left_behind(stop, end);
                fs.set_capacity(Some(0));
                let acked = ledger.order.acknowledged();
                let mut session = Session::recover(&fs, ledger, acked).unwrap();
                assert!(waits(session.db.as_ref().unwrap()), "{context}");
                fs.plan(FaultPlan {
                    fail_at: Some(fs.operations() + stop),
                    sticky,
                    error: kind,
                    ..FaultPlan::none()
                });
                fs.set_capacity(None);
                session.run(&put, true).unwrap_or_else(|e| panic!("{context}: {e}"));
                let failed = fs.failures() > 0;
                if !sticky {
                    fs.plan(FaultPlan::none());
                }
                for mode in MODES {
                    let after = fs.after_crash(mode);
                    let promised = session.ledger.order.promised(mode);
                    Session::recover(&after, session.ledger.clone(), promised)
                        .unwrap_or_else(|e| panic!("{context}, {mode:?}: {e}"));
                }
                if !sticky {
                    session.run(&Step::Read, false).unwrap_or_else(|e| panic!("{context}: {e}"));
                    session.write_until_it_goes_on().unwrap_or_else(|e| panic!("{context}: again: {e}"));
                    session.run(&Step::Reopen, true).unwrap_or_else(|e| panic!("{context}: {e}"));
                }
                let _ = fs.crash(CrashMode::KeepAll);
                if !failed {
                    break;
                }
                stop += 1;
            }
            assert!(stop > 10, "{end:?}: beginning took {stop} operations");
        }
    }
    lab::assert_no_background_panics(&"beginning late");
}

/// Two attempts to begin fail, one after the other, each at any of its operations. A log of the
/// first attempt whose name could not be synced was once followed by a log of the second, which
/// looked like damage after a crash.
#[test]
fn two_failed_session_starts_leave_one_log() {
    for end in [End::Closed, End::ClosedEmpty] {
        for (first, second) in (0..8).flat_map(|first| (0..8).map(move |second| (first, second))) {
            let context = format!("{end:?}, operations {first} and {second}");
            let (fs, ledger) = left_behind(first, end);
            fs.set_capacity(Some(0));
            let acked = ledger.order.acknowledged();
            let mut session = Session::recover(&fs, ledger, acked).unwrap();
            fs.set_capacity(None);
            for stop in [first, second] {
                fs.plan(FaultPlan {
                    fail_at: Some(fs.operations() + stop),
                    sticky: false,
                    error: ErrorKind::StorageFull,
                    ..FaultPlan::none()
                });
                // Fails, unless the flush thread's attempt took the failure.
                let put =
                    Step::Write { writes: vec![Write::Put { space: 0, key: 2, len: 30 }], synced: true };
                session.run(&put, true).unwrap_or_else(|e| panic!("{context}: {e}"));
                for mode in MODES {
                    let after = fs.after_crash(mode);
                    let promised = session.ledger.order.promised(mode);
                    Session::recover(&after, session.ledger.clone(), promised)
                        .unwrap_or_else(|e| panic!("{context}, {mode:?}: {e}"));
                }
            }
            fs.plan(FaultPlan::none());
            session.write_until_it_goes_on().unwrap_or_else(|e| panic!("{context}: {e}"));
            session.run(&Step::Reopen, false).unwrap_or_else(|e| panic!("{context}: {e}"));
        }
    }
}
