//! Interrupted ingestions and failing devices: either all of the files are ingested or none,
//! everything acknowledged before is there with them, and no source is lost.

use std::path::Path;
use std::sync::Arc;

use tamis::ingest::{ExternalTableBuilder, ExternalTableInfo, IngestOptions, IngestReport};
use tamis::io::FileSystem;
use tamis::{AdminError, Db, Options};
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs, OpClass};

use crate::lab::{self, MODES};

const FILES: [&str; 3] = ["/out/first.tam", "/out/second.tam", "/out/other.tam"];

/// A machine with a database of two keyspaces, with writes both in tables and in memory, and three
/// files to be ingested. Everything so far is durable, including files and their names.
fn machine(seed: u64) -> (FaultyFs, Db) {
    let fs = FaultyFs::new(seed);
    fs.create_dir_all(Path::new("/out")).unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    let build = |path: &str, keys: &[&str]| {
        let mut table =
            ExternalTableBuilder::create_on(Arc::new(fs.clone()), path, &lab::tiny_keyspace()).unwrap();
        keys.iter().for_each(|key| table.put(key, "new").unwrap());
        table.delete_range(format!("{}-", keys[0])..format!("{}-z", keys[0])).unwrap();
        table.finish().unwrap();
    };
    build(FILES[0], &["b", "d"]);
    build(FILES[1], &["m", "n"]);
    build(FILES[2], &["b", "m"]);
    let db = lab::open(&fs).unwrap();
    let other = db.create_keyspace("other", lab::tiny_keyspace()).unwrap();
    for key in ["a", "b", "b-x", "c"] {
        db.put(key, "old").unwrap();
        other.put(key, "old").unwrap();
    }
    db.flush().unwrap();
    db.put("d", "old").unwrap();
    db.sync().unwrap();
    (fs, db)
}

fn ingest(db: &Db, move_files: bool) -> Result<IngestReport, AdminError> {
    let other = db.keyspace("other")?;
    let options = IngestOptions { move_files, ..IngestOptions::default() };
    db.ingest(&[(db.default_keyspace(), &FILES[..2]), (&other, &FILES[2..])], options)
}

fn contents(db: &Db, keyspace: &str) -> Vec<(String, String)> {
    let text = |slice: tamis::Slice| String::from_utf8(slice.to_vec()).unwrap();
    let keyspace = db.keyspace(keyspace).unwrap();
    keyspace.iter().map(|item| item.map(|(k, v)| (text(k), text(v))).unwrap()).collect()
}

/// The expected contents of the default keyspace and of the other, with or without the files.
fn expected(ingested: bool) -> [Vec<(String, String)>; 2] {
    let pairs = |list: &[(&str, &str)]| list.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    match ingested {
        true => [
            pairs(&[("a", "old"), ("b", "new"), ("c", "old"), ("d", "new"), ("m", "new"), ("n", "new")]),
            pairs(&[("a", "old"), ("b", "new"), ("c", "old"), ("m", "new")]),
        ],
        false => [
            pairs(&[("a", "old"), ("b", "old"), ("b-x", "old"), ("c", "old"), ("d", "old")]),
            pairs(&[("a", "old"), ("b", "old"), ("b-x", "old"), ("c", "old")]),
        ],
    }
}

/// Reports whether all of the files are ingested, as opposed to none. `early` and `late` are
/// unsynced writes before and after.
fn judge(db: &Db, context: &str) -> bool {
    let take = |list: &mut Vec<(String, String)>, key: &str| {
        let at = list.iter().position(|(k, _)| k == key);
        at.map(|at| list.remove(at)).is_some()
    };
    let (mut default, other) = (contents(db, "default"), contents(db, "other"));
    let (early, late) = (take(&mut default, "early"), take(&mut default, "late"));
    let ingested = default.iter().any(|(k, v)| k == "b" && v == "new");
    assert_eq!([default, other], expected(ingested), "{context}");
    assert!(early || !ingested, "{context}: a write made before the ingestion is missing");
    assert!(ingested || !late, "{context}: a write made after the ingestion is there without the files");
    // If a read fails while a background thread opens a table, the table has no filter until it is
    // reopened.
    let mut problems = db.verify().unwrap().problems;
    problems.retain(|problem| !problem.contains("found unusable before"));
    assert_eq!(problems, [""; 0], "{context}");
    ingested
}

/// Opens after a crash or failure; nothing fails any more.
fn reopen(fs: &FaultyFs, ingested: Option<bool>, moved: bool, context: &str) {
    let db = lab::open_existing(fs, lab::DIR).unwrap_or_else(|e| panic!("{context}: opening: {e}"));
    let is_in = judge(&db, context);
    assert!(ingested.is_none_or(|known| known == is_in), "{context}: {is_in}, but reported {ingested:?}");
    // A file is removed only once its contents are durable in the database.
    for path in FILES {
        if !(is_in && moved) || fs.exists(Path::new(path)).unwrap() {
            ExternalTableInfo::read_on(fs, path).unwrap_or_else(|e| panic!("{context}: {e}"));
        }
    }
    // Compactions may be running: wait until idle.
    db.wait_for_compaction().unwrap();
    let named: usize = db
        .stats()
        .keyspaces
        .iter()
        .flat_map(|ks| &ks.levels)
        .flat_map(|level| &level.runs)
        .map(|run| run.tables)
        .sum();
    let tables =
        || fs.list(Path::new(lab::DIR)).unwrap().iter().filter(|name| name.ends_with(".tam")).count();
    for _ in 0..1000 {
        // The inputs of a compaction are removed by a background thread.
        if tables() == named {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(tables(), named, "{context}: stray tables");
    if !is_in {
        ingest(&db, false).unwrap_or_else(|e| panic!("{context}: again: {e}"));
        db.put("early", "1").unwrap();
        assert!(judge(&db, context), "{context}");
    }
}

#[test]
fn a_crash_at_any_operation_leaves_all_files_ingested_or_none() {
    for moved in [false, true] {
        let (mut stop, mut outcomes) = (0, [0, 0]);
        loop {
            let context = format!("moved: {moved}, stopped at operation {stop}");
            let (fs, db) = machine(stop);
            db.put("early", "1").unwrap();
            let fail_at = Some(fs.operations() + stop);
            fs.plan(FaultPlan { fail_at, sticky: true, partial_append: true, ..FaultPlan::none() });
            let result = ingest(&db, moved);
            if result.is_ok() {
                let _ = db.put("late", "1");
            }
            let failures = fs.failures();
            let machine = fs.after_crash(CrashMode::KeepAll);
            // So that closing can do nothing.
            let _ = fs.crash(CrashMode::KeepAll);
            drop(db);
            for mode in MODES {
                let after = machine.after_crash(mode);
                let known = result.is_ok().then_some(true);
                outcomes[usize::from(known.is_some())] += 1;
                reopen(&after, known, moved, &format!("{context}, {mode:?}"));
            }
            if failures == 0 {
                break;
            }
            stop += 1;
        }
        assert!(stop > 20 && outcomes[0] > 20 && outcomes[1] > 0, "{stop} operations, {outcomes:?}");
    }
}

#[test]
fn one_failing_operation_changes_nothing_or_is_reported_at_the_next_opening() {
    for (moved, only) in
        [(false, None), (true, None), (true, Some(OpClass::Sync)), (false, Some(OpClass::Write))]
    {
        let (mut at, mut refused) = (0, 0);
        loop {
            let context = format!("moved: {moved}, {only:?}, operation {at} fails");
            let (fs, db) = machine(at);
            db.put("early", "1").unwrap();
            let fail_at = Some(fs.operations() + at);
            fs.plan(FaultPlan { fail_at, only, partial_append: true, ..FaultPlan::none() });
            let result = ingest(&db, moved);
            let failures = fs.failures();
            fs.plan(FaultPlan::none());
            // The failed operation may have been a compaction's, which reports it when it ends.
            let _ = db.wait_for_compaction();
            assert_eq!(db.stats().poisoned, None, "{context}");
            if at % 2 == 0 && result.is_err() {
                drop(db);
                reopen(&fs, None, moved, &context);
                refused += 1;
                at += 1;
                continue;
            }
            while db.stats().suspended.is_some() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            // After a reported success the files are there; after a reported failure the caller may
            // try again.
            assert_eq!(judge(&db, &context), result.is_ok(), "{context}: {result:?}");
            if result.is_err() {
                refused += 1;
                ingest(&db, moved).unwrap_or_else(|e| panic!("{context}: again: {e}"));
            }
            db.put("late", "1").unwrap();
            assert!(judge(&db, &context), "{context}");
            db.close().unwrap();
            reopen(&fs, Some(true), moved, &context);
            if failures == 0 {
                break;
            }
            at += 1;
        }
        assert!(at > 5 && refused > 0, "{at} operations, {refused} refused");
    }
    lab::assert_no_background_panics(&"ingestions");
}

#[test]
fn a_full_disk_refuses_the_files_and_nothing_else() {
    let (fs, db) = machine(1);
    db.put("early", "1").unwrap();
    let used: u64 = fs.files().iter().map(|(_, len)| len).sum();
    fs.set_capacity(Some(used + 300));
    let error = ingest(&db, false).unwrap_err();
    let AdminError::Storage(error) = error else { panic!("{error}") };
    // The second one, if the log has given back space meanwhile.
    assert!(error.is_out_of_space() && error.to_string().contains(".tam"), "{error}");
    assert!(!judge(&db, "full") && db.stats().poisoned.is_none());
    fs.set_capacity(None);
    ingest(&db, false).unwrap();
    assert!(judge(&db, "after room was made"));
}

/// An unsynced file may be ingested as a second name for it: it is synced then.
#[test]
fn an_unsynced_file_survives_once_it_is_ingested() {
    let (fs, db) = machine(1);
    let bytes = tamis::io::read_file(&fs, Path::new(FILES[0])).unwrap();
    let mut copy = fs.create(Path::new("/out/copy.tam"), tamis::io::Usage::Table).unwrap();
    copy.append(&bytes).unwrap();
    drop(copy);
    let options = IngestOptions { move_files: true, ..IngestOptions::default() };
    db.default_keyspace().ingest(&["/out/copy.tam"], options).unwrap();
    let after = fs.crash(CrashMode::DropUnsynced);
    let db = lab::open_existing(&after, lab::DIR).unwrap();
    assert_eq!(db.get("d").unwrap().unwrap(), "new");
}

/// Opening compares log and manifest. The number of an ingestion is in both; a manifest that has it
/// beside a log that lost it would be damage.
#[test]
fn the_number_of_an_ingestion_is_in_the_log_before_it_is_in_the_manifest() {
    for mode in MODES {
        let (fs, db) = machine(3);
        db.put("early", "1").unwrap();
        let seq = ingest(&db, true).unwrap().seq;
        let after = fs.after_crash(mode);
        let db = Options { create_if_missing: false, ..lab::tiny(&after) }.open(lab::DIR).unwrap();
        assert_eq!(db.snapshot().seq(), seq, "{mode:?}");
        assert_eq!(db.stats().warnings, [""; 0], "{mode:?}");
        db.put("late", "1").unwrap();
        assert_eq!(db.snapshot().seq(), seq + 1, "{mode:?}");
    }
}
