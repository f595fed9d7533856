//! Deleted files.

use tamis::io::FileSystem;
use tamis::{Durability, WriteBatch};
use tamis_testkit::{CrashMode, FaultyFs};

use crate::damage::{closed, crashed, right_or_error};
use crate::lab;
use crate::ledger::Ledger;

/// Deletes each file in turn. Obsolete files that were not removed yet may go unnoticed; a reader
/// knows which tables are needed.
fn delete_each(database: fn() -> (FaultyFs, Ledger)) {
    let (fs, ledger) = database();
    let needed = lab::tiny(&fs).open_read_only(lab::DIR).unwrap().verify().unwrap().tables;
    let (mut tables, mut logs) = (0, 0);
    for (path, _) in fs.files() {
        let hurt = fs.after_crash(CrashMode::KeepAll);
        hurt.remove(&path).unwrap();
        let context = format!("without {}", path.display());
        let error = right_or_error(&hurt, &ledger, &path, &context);
        let noticed = error.is_some();
        match path.file_name().unwrap().to_str().unwrap() {
            "LOCK" | "OPTIONS" => assert_eq!(error, None),
            "CURRENT" => assert!(noticed),
            name if name.ends_with(".tam") => tables += usize::from(noticed),
            name if name.ends_with(".log") => logs += usize::from(noticed),
            name => assert!(noticed || !name.starts_with("MANIFEST"), "{context}"),
        }
    }
    assert_eq!((tables, logs), (needed, 3));
    lab::assert_no_background_panics(&"deleted files");
}

#[test]
fn a_deleted_file_of_a_closed_database_is_an_error() {
    delete_each(closed);
}

#[test]
fn a_deleted_file_of_a_crashed_database_is_an_error() {
    delete_each(crashed);
}

/// Otherwise a new database could be created over the old one's data after `CURRENT` is lost, and
/// remove that data.
#[test]
fn without_current_no_new_database_is_created_over_the_data() {
    for (fs, _) in [closed(), crashed()] {
        fs.remove("/db/CURRENT".as_ref()).unwrap();
        let before = fs.files();
        let error = lab::open(&fs).unwrap_err().to_string();
        assert!(error.contains("CURRENT is damaged: it is missing although there is data"), "{error}");
        assert_eq!(fs.files(), before);
    }
}

/// A database killed or closed with several logs: `writes` writes in each, the last of which may be
/// empty. Returns its files and the number of writes.
pub(crate) fn logs_with(writes: &[usize], durability: Durability, closed: bool) -> (FaultyFs, usize) {
    let fs = FaultyFs::new(7);
    let mut options = lab::tiny(&fs);
    options.keyspace.memtable_bytes = 1 << 20;
    options.memtable_budget_bytes = 1 << 20;
    options.max_log_bytes = 1 << 20;
    let db = options.open(lab::DIR).unwrap();
    let mut written = 0;
    for (number, &count) in writes.iter().enumerate() {
        if number > 0 {
            // A checkpoint rolls the log, and flushes nothing.
            db.checkpoint(format!("/copy-{number}")).unwrap();
        }
        for _ in 0..count {
            let mut batch = WriteBatch::new();
            batch.put(format!("key{written:04}"), "value");
            db.write_with(batch, durability).unwrap();
            written += 1;
        }
    }
    if closed {
        db.close().unwrap();
        return (fs, written);
    }
    (fs.crash(CrashMode::DropUnsynced), written)
}

/// Every log but the last was rolled. If one of them, or the last few, are missing, an opening is
/// an error unless all writes are there.
///
/// Regression: a missing log went unnoticed if all later ones were empty; six acknowledged writes
/// were lost, and verification found nothing. Now a rolled log names its successor.
#[test]
fn a_missing_log_is_an_error_whatever_follows_it() {
    let histories: [&[usize]; 8] =
        [&[3], &[3, 0], &[3, 6, 0], &[0, 3], &[2, 2, 2], &[1, 0, 1], &[4, 1, 0], &[1, 1, 1, 1]];
    let mut refused = 0;
    for (history, closed) in histories.into_iter().flat_map(|history| [(history, false), (history, true)]) {
        let (fs, written) = logs_with(history, Durability::Sync, closed);
        let is_log =
            |path: &std::path::Path| path.extension().is_some_and(|e| e == "log") && path.starts_with("/db");
        let logs: Vec<_> = fs.files().into_iter().map(|(path, _)| path).filter(|path| is_log(path)).collect();
        let single = logs.iter().map(std::slice::from_ref);
        let last = (0..logs.len()).map(|from| &logs[from..]);
        for missing in single.chain(last) {
            let hurt = fs.after_crash(CrashMode::KeepAll);
            missing.iter().for_each(|path| hurt.remove(path).unwrap());
            let context = format!("{history:?}, closed: {closed}, without {missing:?}");
            match lab::tiny(&hurt).open(lab::DIR) {
                Ok(db) => assert_eq!(db.iter().count(), written, "{context}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.contains(".log") || error.contains("MANIFEST"), "{context}: {error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 60, "only {refused} were refused");
}
