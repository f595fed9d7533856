//! Files that are gone.

use tamis::Db;
use tamis::io::{CrashMode, FaultyFs, FileSystem};

use crate::damage::{closed, crashed, right_or_error};
use crate::lab;
use crate::ledger::Ledger;

/// Deletes each file in turn. Files that nobody needs any more and that were not removed yet may go unnoticed;
/// how many tables are needed, a reader knows.
fn delete_each(database: fn() -> (FaultyFs, Ledger)) {
    let (fs, ledger) = database();
    let needed = Db::open_read_only(lab::DIR, lab::tiny(&fs)).unwrap().verify().unwrap().tables;
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

/// Otherwise a lost `CURRENT` would let a new database be made over the old one's data, and remove it.
#[test]
fn without_current_no_new_database_is_made_over_the_data() {
    for (fs, _) in [closed(), crashed()] {
        fs.remove("/db/CURRENT".as_ref()).unwrap();
        let before = fs.files();
        let error = lab::open(&fs).unwrap_err().to_string();
        assert!(error.contains("CURRENT is damaged: it is missing although there is data"), "{error}");
        assert_eq!(fs.files(), before);
    }
}
