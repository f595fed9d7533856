//! Damaged bytes: flips and cuts, in closed and in crashed databases.

use std::path::Path;

use tamis::io::FileSystem;
use tamis::options::FilterChoice;
use tamis::{Db, OpenError, Options};
use tamis_testkit::{CrashMode, FaultyFs};

use crate::history::{Session, Step, Write};
use crate::lab::{self, scale};
use crate::ledger::{Ledger, read_all};

fn put(space: usize, key: u8, len: usize) -> Step {
    Step::Write { writes: vec![Write::Put { space, key, len }], synced: false }
}

/// Room for more than one log, since one keyspace holds back the first.
fn options(fs: &FaultyFs) -> Options {
    Options { max_log_bytes: 1 << 20, recycled_logs: 0, create_if_missing: false, ..lab::tiny(fs) }
}

/// A database with tables in two keyspaces, and three logs.
pub(crate) fn specimen() -> Session {
    let fs = FaultyFs::new(11);
    let mut session = Session::open(&fs).unwrap();
    let mut steps = vec![Step::Create(1)];
    steps.extend((0..12).map(|i| put(0, i, 300)));
    steps.extend((0..6).map(|i| put(1, i, 300)));
    steps.push(Step::Write { writes: vec![Write::DeleteRange { space: 0, from: 2, to: 5 }], synced: false });
    steps.push(Step::Reopen);
    steps.extend([put(1, 20, 30), put(0, 12, 400), put(0, 13, 400), Step::FlushOne(0)]);
    steps.extend([put(0, 14, 200), Step::FlushOne(0), Step::Sync]);
    steps.extend([put(0, 15, 100), put(1, 3, 50), Step::Sync, put(0, 16, 100), put(0, 17, 60)]);
    steps.iter().for_each(|step| session.run(step, false).unwrap());
    session.db.as_ref().unwrap().wait_for_compaction().unwrap();
    session
}

pub(crate) fn closed() -> (FaultyFs, Ledger) {
    let mut session = specimen();
    session.db.take().unwrap().close().unwrap();
    session.ledger.order.all_is_safe();
    let alive: Vec<_> = session.fs.files().into_iter().map(|(path, _)| path).collect();
    let left = session.fs.crash(CrashMode::DropUnsynced);
    // Removals are not synced: a power cut may bring back files that no version names.
    for (path, _) in left.files().iter().filter(|(path, _)| !alive.contains(path)) {
        left.remove(path).unwrap();
    }
    (left, session.ledger)
}

/// The process was killed: all bytes are there, but not all of them were synced.
pub(crate) fn crashed() -> (FaultyFs, Ledger) {
    let session = specimen();
    (session.fs.crash(CrashMode::KeepAll), session.ledger)
}

/// Opens and reads everything. Each result must be right or an error that names a file; `verify`
/// must find damage that neither opening nor reading found. Returns the error, if there was one.
pub(crate) fn right_or_error(fs: &FaultyFs, ledger: &Ledger, hurt: &Path, context: &str) -> Option<String> {
    let gone = fs.files().iter().all(|(path, _)| path != hurt);
    let named = |error: &dyn std::fmt::Display| {
        let text = error.to_string();
        let name = hurt.file_name().unwrap().to_str().unwrap();
        // Whatever file CURRENT or an older manifest wrongly names is missing.
        let missing = text.contains("missing") || text.contains("not found");
        let ok = text.contains(name) || (missing && (name == "CURRENT" || name.starts_with("MANIFEST")));
        // A log under an unknown name is missed by its neighbours.
        let ok = ok || (gone && name.ends_with(".log") && text.contains(".log"));
        assert!(ok, "{context}: the error does not name the file: {text}");
        text
    };
    let db = match options(fs).open(lab::DIR) {
        Ok(db) => db,
        Err(error @ (OpenError::Storage(_) | OpenError::Format { .. })) => return Some(named(&error)),
        Err(OpenError::NotFound { .. }) if hurt.ends_with("CURRENT") => return Some(String::new()),
        Err(error) => panic!("{context}: {error}"),
    };
    // So that global filters are used; whatever prevents their construction is found below.
    let _ = db.wait_for_filters();
    if let Err(error) = read_all_or_errors(&db, ledger, context) {
        assert_ne!(db.verify().unwrap().problems, Vec::<String>::new(), "{context}: verify finds nothing");
        return Some(named(&error));
    }
    let problems = db.verify().unwrap().problems;
    if let Some(problem) = problems.first() {
        return Some(named(problem));
    }
    let mut judged = ledger.clone();
    judged.judge(&db, ledger.order.safe()).unwrap_or_else(|e| panic!("{context}: {e}"));
    None
}

/// Reads key by key and by an iterator, since one may fail where the other does not.
fn read_all_or_errors(db: &Db, ledger: &Ledger, context: &str) -> Result<(), tamis::Error> {
    let mut first = Ok(());
    let states: Vec<_> =
        (ledger.order.safe()..=ledger.order.writes().len()).map(|n| ledger.order.state_after(n)).collect();
    for name in db.keyspaces() {
        let keyspace = db.keyspace(&name)?;
        let id = ledger.names.get(&name).unwrap_or_else(|| panic!("{context}: keyspace `{name}`")).0;
        for key in (0..crate::history::KEYS).map(crate::history::key) {
            match keyspace.get(&key) {
                Ok(value) => {
                    let value = value.map(|v| v.to_vec());
                    let right = states.iter().any(|s| s.get(&id).and_then(|c| c.get(&key)) == value.as_ref());
                    assert!(right, "{context}: {name} {} is {value:?}", key.escape_ascii());
                }
                Err(e) => first = first.and(Err(e.into())),
            }
        }
    }
    if first.is_ok() { read_all(db).map(drop) } else { first }
}

fn files(fs: &FaultyFs) -> Vec<(std::path::PathBuf, u64)> {
    fs.files().into_iter().filter(|(path, _)| path.starts_with(lab::DIR) && !path.ends_with("LOCK")).collect()
}

/// Positions in a file of `len` bytes: all of a small one, about `many` of a larger one.
fn positions(len: u64, many: u64) -> impl Iterator<Item = u64> {
    (0..len).step_by((len / (many * scale() as u64)).max(1) as usize)
}

fn flip_everywhere(database: fn() -> (FaultyFs, Ledger)) {
    flip(database, 350);
}

/// Flips about `many` bytes of each file, one at a time.
fn flip(database: fn() -> (FaultyFs, Ledger), many: u64) {
    let (fs, ledger) = database();
    let mut detected = 0u64;
    for (path, len) in files(&fs) {
        for at in positions(len, many) {
            let hurt = fs.after_crash(CrashMode::KeepAll);
            hurt.corrupt(&path, at, 1 << (at % 8)).unwrap();
            let context = format!("{} with byte {at} of {len} flipped", path.display());
            detected += u64::from(right_or_error(&hurt, &ledger, &path, &context).is_some());
        }
    }
    assert!(detected > many, "only {detected} flips were noticed");
    lab::assert_no_background_panics(&"flips");
    lab::assert_no_huge_allocation();
}

#[test]
fn a_flipped_byte_in_a_closed_database_is_an_error_or_harmless() {
    flip_everywhere(closed);
}

#[test]
fn a_flipped_byte_in_a_crashed_database_is_an_error_or_loses_only_unsynced_writes() {
    flip_everywhere(crashed);
}

/// Tables with key lists, and filter files; or tables with units.
#[test]
fn a_flipped_byte_under_another_filter_is_an_error_or_harmless() {
    for filter in lab::FILTERS {
        lab::set_filter(filter);
        flip(closed, 90);
        flip(crashed, 60);
    }
    lab::set_filter(FilterChoice::BlockedBloom);
}

fn cut_everywhere(database: fn() -> (FaultyFs, Ledger)) {
    let (fs, ledger) = database();
    let mut detected = 0;
    for (path, len) in files(&fs) {
        for at in positions(len, 500) {
            let hurt = fs.after_crash(CrashMode::KeepAll);
            hurt.truncate(&path, at).unwrap();
            let context = format!("{} cut from {len} to {at} bytes", path.display());
            detected += u32::from(right_or_error(&hurt, &ledger, &path, &context).is_some());
        }
    }
    assert!(detected > 400, "only {detected} cuts were noticed");
    lab::assert_no_background_panics(&"cuts");
    lab::assert_no_huge_allocation();
}

#[test]
fn a_file_cut_short_in_a_closed_database_is_an_error_or_harmless() {
    cut_everywhere(closed);
}

/// A file cut short in a crashed database may lose only what a crash may lose, except where nothing
/// else can tell (see the end of "Torn or damaged" in `docs/formats/logs.md`): the end of the last
/// log and of the manifest, which are left out here.
#[test]
fn a_table_or_finished_log_cut_short_in_a_crashed_database_is_an_error_or_harmless() {
    let (fs, ledger) = crashed();
    let last = files(&fs).into_iter().map(|(path, _)| path).rfind(|p| p.extension() == Some("log".as_ref()));
    for (path, len) in files(&fs) {
        if Some(&path) == last.as_ref() || path.to_string_lossy().contains("MANIFEST") {
            continue;
        }
        for at in positions(len, 300) {
            let hurt = fs.after_crash(CrashMode::KeepAll);
            hurt.truncate(&path, at).unwrap();
            let context = format!("{} cut from {len} to {at} bytes", path.display());
            right_or_error(&hurt, &ledger, &path, &context);
        }
    }
    lab::assert_no_huge_allocation();
}

/// Cuts the manifest of a crashed database at every length.
fn cut_manifest(session: Session) {
    let (fs, ledger) = (session.fs.crash(CrashMode::KeepAll), session.ledger);
    let manifest = |path: &Path| path.to_string_lossy().contains("MANIFEST");
    let (path, len) = files(&fs).into_iter().rfind(|(path, _)| manifest(path)).unwrap();
    for at in 0..len {
        let hurt = fs.after_crash(CrashMode::KeepAll);
        hurt.truncate(&path, at).unwrap();
        let context = format!("{} cut from {len} to {at} bytes", path.display());
        let db = match options(&hurt).open(lab::DIR) {
            Ok(db) => db,
            Err(OpenError::Storage(_)) => continue,
            Err(error) => panic!("{context}: {error}"),
        };
        ledger.clone().judge(&db, ledger.order.safe()).unwrap_or_else(|e| panic!("{context}: {e}"));
    }
}

/// Regression: a new database's manifest begins with a record that names nothing. Cut back to that,
/// the database opened as an empty one, and its tables were removed like those of an unfinished
/// flush.
#[test]
fn a_new_manifest_that_lost_its_edits_is_not_an_empty_database() {
    let fs = FaultyFs::new(2);
    let mut session = Session::open(&fs).unwrap();
    session.run(&put(0, 1, 100), false).unwrap();
    session.run(&Step::Flush, false).unwrap();
    // Obsolete; it is kept for reuse, or will be removed in the background.
    let log = std::path::Path::new("/db/000001.log");
    let removed = tamis::io::FileSystem::remove(&fs, log);
    assert!(removed.is_ok() || !tamis::io::FileSystem::exists(&fs, log).unwrap());
    cut_manifest(session);
}

/// Writes to a keyspace are replayed into it. Regression: if the manifest had lost the edit that
/// created the keyspace, they were skipped like those to a dropped one.
#[test]
fn writes_to_a_keyspace_lost_from_the_manifest_are_not_dropped_silently() {
    let fs = FaultyFs::new(2);
    let mut session = Session::open(&fs).unwrap();
    for step in [put(0, 1, 10), Step::Reopen, put(0, 2, 10), Step::Create(1), put(1, 1, 10), Step::Sync] {
        session.run(&step, false).unwrap();
    }
    cut_manifest(session);
}
