//! Failing reads, damaged units, crashes: they cost reads, but cause no wrong answers.

use std::path::PathBuf;
use std::sync::Arc;

use tamis::Options;
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs, OpClass};

use crate::{absent, fill, fits, key, open, settle, small, stats, value, wait_until};

fn tables(fs: &FaultyFs) -> Vec<(PathBuf, u64)> {
    let is_table = |path: &PathBuf| path.extension().is_some_and(|e| e == "tam");
    fs.files().into_iter().filter(|(path, _)| is_table(path)).collect()
}

fn database(seed: u64, keys: u64) -> (FaultyFs, Options) {
    let fs = FaultyFs::new(seed);
    let options = small(Arc::new(fs.clone()), u64::MAX);
    let db = open(&options);
    fill(&db, keys);
    db.close().expect("closing");
    (fs, options)
}

/// Each read in turn fails, while opening, loading units or getting keys: the result is an error or
/// the right answer.
#[test]
fn a_failing_read_causes_at_most_an_error() {
    let (fs, options) = database(1, 1500);
    for nth in 0..60 {
        fs.plan(FaultPlan {
            only: Some(OpClass::Read),
            fail_at: Some(fs.operations() + nth),
            ..FaultPlan::none()
        });
        if let Ok(db) = options.clone().open("/db") {
            db.wait_for_filters().expect("settling");
            for i in (0..1500).step_by(11) {
                if let Ok(found) = db.get(key(i)) {
                    assert_eq!(found.as_deref(), Some(&value(i)[..]), "read {nth} failed, key {i}");
                }
                if let Ok(found) = db.get(absent(i)) {
                    assert_eq!(found, None, "read {nth} failed, absent key {i}");
                }
            }
            drop(db);
        }
        fs.plan(FaultPlan::none());
    }
    let db = open(&options);
    (0..1500).for_each(|i| assert_eq!(db.get(key(i)).expect("a get").unwrap(), value(i)));
    assert!(fs.failures() > 20);
}

/// From here on every read of a unit fails, but the device works again when the gets come.
#[test]
fn unreadable_units_are_skipped() {
    let (fs, options) = database(2, 1500);
    let db = options.open("/db").expect("opening");
    drop(db);
    let options = small(Arc::new(fs.clone()), u64::MAX);
    // Opening reads the directories; the reads after that are of units.
    let reads_of_opening = {
        let none = small(Arc::new(fs.clone()), 0);
        let before = fs.operations();
        drop(open(&none));
        fs.operations() - before
    };
    fs.plan(FaultPlan {
        only: Some(OpClass::Read),
        fail_at: Some(fs.operations() + reads_of_opening / 2),
        sticky: true,
        ..FaultPlan::none()
    });
    let opened = options.clone().open("/db");
    if let Ok(db) = &opened {
        db.wait_for_filters().expect("settling");
    }
    fs.plan(FaultPlan::none());
    let db = opened.unwrap_or_else(|_| open(&options));
    (0..1500).for_each(|i| assert_eq!(db.get(key(i)).expect("a get").unwrap(), value(i)));
    (0..1500).for_each(|i| assert_eq!(db.get(absent(i)).expect("a get"), None));
}

/// Damages each of a series of bytes of the filter parts: no wrong answer, no panic, and `verify`
/// finds the damage.
#[test]
fn damaged_filters_cause_no_wrong_answers() {
    let (fs, options) = database(3, 700);
    let mut noticed = 0;
    for (path, len) in tables(&fs) {
        for back in (70..len.min(4000)).step_by(97) {
            fs.corrupt(&path, len - back, 0x41).expect("a file");
            if let Ok(db) = options.clone().open("/db") {
                db.wait_for_filters().expect("settling");
                for i in 0..700 {
                    if let Ok(found) = db.get(key(i)) {
                        assert_eq!(found.as_deref(), Some(&value(i)[..]), "{} byte -{back}", path.display());
                    }
                    if let Ok(found) = db.get(absent(i)) {
                        assert_eq!(found, None);
                    }
                }
                let whole = db.verify().is_ok_and(|report| report.problems.is_empty());
                noticed += u64::from(!whole);
            } else {
                noticed += 1;
            }
            fs.corrupt(&path, len - back, 0x41).expect("a file");
        }
    }
    assert!(noticed > 20, "{noticed}");
    let db = open(&options);
    assert_eq!(stats(&db).failed_loads, 0);
}

/// Hotness not yet recorded in the manifest is lost in a crash, and nothing else is.
#[test]
fn a_crash_loses_no_data_and_at_most_recent_hotness() {
    for seed in 0..8 {
        let fs = FaultyFs::new(seed);
        let options = small(Arc::new(fs.clone()), 4000);
        let db = open(&options);
        (0..1200).for_each(|i| db.put(key(i), value(i)).expect("a put"));
        settle(&db);
        (0..3000).for_each(|i| assert_eq!(db.get(absent(i % 50)).expect("a get"), None));
        wait_until("the gets to be counted", || stats(&db).gets > 0);
        db.sync().expect("a sync");
        let after = fs.after_crash(CrashMode::DropUnsynced);
        drop(db);
        let db = open(&small(Arc::new(after), 4000));
        (0..1200).for_each(|i| assert_eq!(db.get(key(i)).expect("a get").unwrap(), value(i)));
        assert!(fits(&stats(&db), 4000));
    }
}
