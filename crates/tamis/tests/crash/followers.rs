//! Logs and manifests that are hurt while no writer is there, as a follower sees them: it shows
//! everything that was promised, or reports the damage.

use std::path::{Path, PathBuf};

use tamis::io::FileSystem;
use tamis::{Durability, OpenError};
use tamis_testkit::{CrashMode, FaultyFs};

use crate::damage::closed;
use crate::deleted::logs_with;
use crate::lab;
use crate::ledger::Ledger;

/// The logs and the manifest in the database's directory, with their lengths.
fn logs_and_manifest(fs: &FaultyFs) -> Vec<(PathBuf, u64)> {
    let is_record_log = |path: &Path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        path.starts_with(lab::DIR) && (name.ends_with(".log") || name.starts_with("MANIFEST"))
    };
    fs.files().into_iter().filter(|(path, _)| is_record_log(path)).collect()
}

/// Reports whether a follower refuses the database. One that it shows must be complete.
fn refused(fs: &FaultyFs, ledger: &Ledger, context: &str) -> bool {
    match lab::tiny(fs).open_follower(lab::DIR) {
        Ok(db) => {
            ledger.clone().judge(&db, ledger.order.safe()).unwrap_or_else(|e| panic!("{context}: {e}"));
            false
        }
        Err(OpenError::Storage(_)) => true,
        Err(error) => panic!("{context}: {error}"),
    }
}

#[test]
fn a_follower_notices_what_is_hurt_in_a_closed_database() {
    let (fs, ledger) = closed();
    let mut noticed = 0;
    for (path, len) in logs_and_manifest(&fs) {
        let mut hurt = |context: &str, act: &dyn Fn(&FaultyFs)| {
            let hurt = fs.after_crash(CrashMode::KeepAll);
            act(&hurt);
            noticed += u32::from(refused(&hurt, &ledger, &format!("{}, {context}", path.display())));
        };
        hurt("deleted", &|fs| fs.remove(&path).unwrap());
        let is_log = path.extension().is_some();
        for at in (0..len).step_by((len / if is_log { 100 } else { 30 }).max(1) as usize) {
            hurt(&format!("cut from {len} to {at} bytes"), &|fs| fs.truncate(&path, at).unwrap());
            hurt(&format!("byte {at} of {len} flipped"), &|fs| fs.corrupt(&path, at, 1).unwrap());
        }
    }
    assert!(noticed > 100, "only {noticed} were noticed");
    lab::assert_no_background_panics(&"followers of hurt databases");
}

/// Regression: if the logs of a closed database had lost all of their records, a follower took
/// this for a session without writes. It showed the database without its last writes, where an
/// opening reports the damage. Now a log without records must have its closing record.
#[test]
fn a_follower_notices_that_all_records_of_a_closed_database_are_lost() {
    for history in [&[3][..], &[3, 2], &[1, 0], &[2, 0, 2]] {
        let (fs, written) = logs_with(history, Durability::Buffered, true);
        let logs: Vec<_> =
            logs_and_manifest(&fs).into_iter().filter(|(path, _)| path.extension().is_some()).collect();
        for (index, (path, len)) in logs.iter().enumerate() {
            // Its records take less than that.
            for at in 0..*len.min(&400) {
                let hurt = fs.after_crash(CrashMode::KeepAll);
                hurt.truncate(path, at).unwrap();
                let context = format!("{history:?}, log {index} cut from {len} to {at} bytes");
                let all_is_there = |db: tamis::Db| assert_eq!(db.iter().count(), written, "{context}");
                let shown = lab::tiny(&hurt).open_follower(lab::DIR).map(all_is_there).is_ok();
                let read = lab::tiny(&hurt).open_read_only(lab::DIR).map(all_is_there).is_ok();
                let opened = lab::tiny(&hurt).open(lab::DIR).map(all_is_there).is_ok();
                assert_eq!((shown, read), (opened, opened), "{context}");
            }
        }
        let follower = lab::tiny(&fs).open_follower(lab::DIR).unwrap();
        assert_eq!(follower.iter().count(), written);
    }
}

/// Regression: a follower did not compare the end of the last log with that of the manifest. If the
/// manifest of a closed database had lost its last edits, it showed an older state.
#[test]
fn a_follower_notices_that_the_manifest_of_a_closed_database_lost_its_last_edits() {
    let fs = FaultyFs::new(9);
    let db = lab::tiny(&fs).open(lab::DIR).unwrap();
    db.put("before", "value").unwrap();
    let other = db.create_keyspace("other", lab::tiny_keyspace()).unwrap();
    other.put("key", "value").unwrap();
    db.drop_keyspace("other").unwrap();
    db.put("after", "value").unwrap();
    drop(other);
    db.close().unwrap();
    let is_manifest = |(path, _): &(PathBuf, u64)| path.extension().is_none();
    let (path, len) = logs_and_manifest(&fs).into_iter().find(is_manifest).unwrap();
    let mut noticed = 0;
    for at in 0..len {
        let hurt = fs.after_crash(CrashMode::KeepAll);
        hurt.truncate(&path, at).unwrap();
        match lab::tiny(&hurt).open_follower(lab::DIR) {
            Ok(db) => {
                let shown = (db.keyspaces(), db.iter().count());
                assert_eq!(shown, (vec!["default".to_owned()], 2), "cut to {at}");
            }
            Err(_) => noticed += 1,
        }
    }
    assert!(noticed > 50, "only {noticed} were noticed");
}
