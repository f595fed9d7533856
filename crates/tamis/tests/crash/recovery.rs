//! Crashes and failures during recovery itself.

use std::path::Path;

use tamis::io::{FileSystem, Usage};
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs};

use crate::history::{Session, Step, steps, tour};
use crate::lab::{self, MODES, scale};
use crate::ledger::Ledger;

/// Databases that crashed at various moments.
fn wrecks(count: usize) -> Vec<(String, FaultyFs, Ledger, usize)> {
    let mut wrecks = Vec::new();
    for seed in 0..count as u64 {
        let history: Vec<Step> = match seed {
            0 => tour(),
            _ => lab::sample(&steps(60), seed),
        };
        let fs = FaultyFs::new(seed);
        let mut session = Session::open(&fs).unwrap();
        for step in &history {
            session.run(step, false).unwrap();
        }
        session.ledger.checkpoints.clear();
        for mode in MODES {
            let promised = session.ledger.order.promised(mode);
            wrecks.push((
                format!("seed {seed}, {mode:?}"),
                fs.after_crash(mode),
                session.ledger.clone(),
                promised,
            ));
        }
    }
    wrecks
}

/// Crashes recovery at each of its operations, then recovers again, which must succeed.
#[test]
fn a_crash_at_any_operation_of_a_recovery_changes_nothing() {
    for (context, wreck, ledger, promised) in wrecks(2 + 4 * scale()) {
        // The state that survived the first crash is fixed; an interrupted recovery may not lose
        // more of it than the first one.
        let settled = {
            let mut ledger = ledger.clone();
            let db = lab::open(&wreck.after_crash(CrashMode::KeepAll)).unwrap();
            ledger.judge(&db, promised).unwrap_or_else(|e| panic!("{context}: {e}"))
        };
        for stop in 0.. {
            let fs = wreck.after_crash(CrashMode::KeepAll);
            fs.plan(FaultPlan { fail_at: Some(stop), sticky: true, ..FaultPlan::none() });
            let opened = lab::open(&fs);
            let done = opened.is_ok() && fs.failures() == 0;
            for mode in MODES {
                let context = format!("{context}, recovery stopped at {stop}, then {mode:?}");
                let again = fs.after_crash(mode);
                let db = lab::open(&again).unwrap_or_else(|e| panic!("{context}: {e}"));
                // An opening that was reported as done has made its state durable, and so has any
                // crash that left the first wreck's contents on the medium.
                let least = match (opened.is_ok(), mode, context.contains("KeepAll, recovery")) {
                    (true, ..) | (_, CrashMode::KeepAll, _) | (_, _, false) => settled,
                    _ => ledger.order.safe(),
                };
                let kept = ledger.clone().judge(&db, least).unwrap_or_else(|e| panic!("{context}: {e}"));
                assert!(kept <= settled.max(least), "{context}");
            }
            let _ = fs.crash(CrashMode::KeepAll);
            if done {
                assert!(stop > 20, "{context}: only {stop} operations");
                break;
            }
        }
    }
    lab::assert_no_background_panics(&"crashes during recovery");
}

/// One operation of a recovery fails, and the next attempt, without a crash in between, must
/// succeed.
#[test]
fn a_failed_recovery_can_be_retried() {
    for (context, wreck, ledger, promised) in wrecks(3) {
        for stop in 0.. {
            let fs = wreck.after_crash(CrashMode::KeepAll);
            fs.plan(FaultPlan { fail_at: Some(stop), partial_append: true, ..FaultPlan::none() });
            let context = format!("{context}, operation {stop} of the recovery failed");
            let first = lab::open(&fs);
            let failures = fs.failures();
            drop(first);
            fs.plan(FaultPlan::none());
            let db = lab::open(&fs).unwrap_or_else(|e| panic!("{context}: {e}"));
            ledger.clone().judge(&db, promised).unwrap_or_else(|e| panic!("{context}: {e}"));
            if failures == 0 {
                break;
            }
        }
    }
    lab::assert_no_background_panics(&"failures during recovery");
}

/// A read-only open of a crashed database shows the state that a recovery will find, and so does a
/// follower. A log that lost its header was missing in what the follower verified and copied.
#[test]
fn a_read_only_open_of_a_crashed_database_shows_its_state_and_changes_nothing() {
    for (context, wreck, ledger, promised) in wrecks(4 + 4 * scale()) {
        let before = wreck.files();
        let reader = lab::tiny(&wreck).open_read_only(lab::DIR).unwrap_or_else(|e| panic!("{context}: {e}"));
        let seen = ledger.clone().judge(&reader, promised).unwrap_or_else(|e| panic!("{context}: {e}"));
        let follower = lab::tiny(&wreck).open_follower(lab::DIR).unwrap();
        assert_eq!(ledger.clone().judge(&follower, promised), Ok(seen), "{context}, a follower");
        assert_eq!(wreck.files(), before, "{context}");
        let copy = FaultyFs::new(1);
        copy.create_dir_all(Path::new(lab::DIR)).unwrap();
        for file in follower.live_files().unwrap().files() {
            let mut bytes = vec![0; file.len() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            let path = Path::new(lab::DIR).join(file.name());
            copy.create(&path, Usage::Table).unwrap().append(&bytes).unwrap();
        }
        let copy = lab::open(&copy).unwrap_or_else(|e| panic!("{context}, a copy: {e}"));
        assert_eq!(ledger.clone().judge(&copy, promised), Ok(seen), "{context}, a copy");
        let db = lab::open(&wreck).unwrap();
        let found = ledger.clone().judge(&db, promised).unwrap();
        assert_eq!(seen, found, "{context}");
        // The reader's open files are unchanged, although the logs and tables have been removed.
        db.compact().unwrap();
        drop(db);
        ledger.clone().judge(&reader, promised).unwrap_or_else(|e| panic!("{context}, afterwards: {e}"));
    }
}
