//! Files that are gone.

use tamis::io::{CrashMode, FaultyFs, FileSystem};

use crate::damage::{closed, crashed, right_or_error};
use crate::lab;
use crate::ledger::Ledger;

fn delete_each(database: fn() -> (FaultyFs, Ledger)) -> Vec<String> {
    let (fs, ledger) = database();
    let mut harmless = Vec::new();
    for (path, _) in fs.files() {
        let hurt = fs.after_crash(CrashMode::KeepAll);
        hurt.remove(&path).unwrap();
        let context = format!("without {}", path.display());
        match right_or_error(&hurt, &ledger, &path, &context) {
            Some(error) => println!("{context}: {error}"),
            None => harmless.push(path.file_name().unwrap().to_str().unwrap().to_owned()),
        }
    }
    lab::assert_no_background_panics(&"deleted files");
    harmless
}

#[test]
fn a_deleted_file_of_a_closed_database_is_an_error() {
    assert_eq!(delete_each(closed), ["LOCK", "OPTIONS"]);
}

#[test]
fn a_deleted_file_of_a_crashed_database_is_an_error() {
    assert_eq!(delete_each(crashed), ["LOCK", "OPTIONS"]);
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
