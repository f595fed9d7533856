//! Torn and damaged logs: cut tails, salvage, and reads without damaged filters.

use tamis::{Db, Durability, Options, WriteBatch};
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs};

use crate::lab;

fn put(db: &Db, i: u32, durability: Durability) {
    let mut batch = WriteBatch::new();
    batch.put(format!("key{i:03}"), format!("value {i} {}", "x".repeat(60)));
    db.write_with(batch, durability).unwrap();
}

fn keys(db: &Db) -> Vec<String> {
    db.iter().map(|item| String::from_utf8(item.unwrap().0.to_vec()).unwrap()).collect()
}

fn names(numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
    numbers.into_iter().map(|i| format!("key{i:03}")).collect()
}

fn roomy(fs: &FaultyFs) -> Options {
    let mut options = lab::tiny(fs);
    options.keyspace.memtable_bytes = 1 << 20;
    options.max_log_bytes = 1 << 20;
    options
}

/// A crashed database with ten writes in its log, and the end offset of each. The first `synced` of
/// them are synced.
fn ten_writes(synced: u32) -> (FaultyFs, Vec<u64>) {
    let fs = FaultyFs::new(1);
    let db = roomy(&fs).open(lab::DIR).unwrap();
    let mut ends = vec![db.stats().log_bytes];
    for i in 0..10 {
        put(&db, i, if i < synced { Durability::Sync } else { Durability::Buffered });
        ends.push(db.stats().log_bytes);
    }
    (fs.crash(CrashMode::KeepAll), ends)
}

fn log(fs: &FaultyFs) -> std::path::PathBuf {
    fs.files()
        .into_iter()
        .map(|(path, _)| path)
        .rfind(|path| path.extension() == Some("log".as_ref()))
        .unwrap()
}

#[test]
fn a_torn_tail_is_cut_with_a_warning_at_any_length() {
    let (fs, ends) = ten_writes(0);
    for cut in ends[0]..ends[10] {
        let fs = fs.after_crash(CrashMode::KeepAll);
        fs.truncate(log(&fs), cut).unwrap();
        let whole = ends[1..].iter().filter(|end| **end <= cut).count() as u32;
        let db = roomy(&fs).open(lab::DIR).unwrap();
        assert_eq!(keys(&db), names(0..whole), "cut at {cut}");
        let warnings = db.stats().warnings;
        match ends.contains(&cut) {
            true => assert_eq!(warnings, Vec::<String>::new(), "between two records nothing is torn"),
            false => assert!(
                warnings.len() == 1
                    && warnings[0].contains(&format!("cut at offset {}", ends[whole as usize])),
                "{warnings:?}"
            ),
        }
        put(&db, 99, Durability::Sync);
        drop(db);
        let db = roomy(&fs).open(lab::DIR).unwrap();
        assert_eq!(keys(&db), names((0..whole).chain([99])), "writes continue after the cut");
        assert_eq!(db.stats().warnings, Vec::<String>::new());
    }
}

/// Damage before the synced end is refused by default. Salvage recovers the intact records on both
/// sides.
#[test]
fn salvage_recovers_writes_after_the_damage_and_warns() {
    let (fs, ends) = ten_writes(10);
    for broken in 0..9u32 {
        for offset in [ends[broken as usize], ends[broken as usize] + 40, ends[broken as usize + 1] - 1] {
            let fs = fs.after_crash(CrashMode::KeepAll);
            fs.corrupt(log(&fs), offset, 0x55).unwrap();
            let error = roomy(&fs).open(lab::DIR).unwrap_err().to_string();
            let place = format!("at offset {}", ends[broken as usize]);
            assert!(error.contains(&place) && error.contains("salvage"), "{error}");
            let (db, report) = lab::open_salvaged(roomy(&fs)).unwrap();
            assert_eq!(keys(&db), names((0..10).filter(|i| *i != broken)));
            let warnings = report.warnings;
            assert!(
                warnings.iter().any(|w| w.contains(&format!("offset {}", ends[broken as usize]))),
                "{warnings:?}"
            );
            put(&db, 50, Durability::Sync);
            db.close().unwrap();
            let db = roomy(&fs).open(lab::DIR).expect("what was salvaged is whole");
            assert_eq!(keys(&db), names((0..10).filter(|i| *i != broken).chain([50])));
            assert_eq!(db.stats().warnings, Vec::<String>::new());
        }
    }
}

/// A salvaged database that crashes again is consistent: the numbers of the lost writes are not
/// reused, and their absence is not new damage.
#[test]
fn a_salvaged_database_survives_a_crash() {
    let (fs, ends) = ten_writes(10);
    fs.corrupt(log(&fs), ends[4] + 20, 0xff).unwrap();
    let (db, _) = lab::open_salvaged(roomy(&fs)).unwrap();
    put(&db, 50, Durability::Sync);
    put(&db, 51, Durability::Buffered);
    for mode in lab::MODES {
        let db = roomy(&fs.after_crash(mode)).open(lab::DIR).unwrap();
        let found = keys(&db);
        let least = names((0..10).filter(|i| *i != 4).chain([50]));
        assert!(found.starts_with(&least) && found.len() <= least.len() + 1, "{mode:?}: {found:?}");
    }
}

/// Salvaging without the newest log recovers the older ones, with a warning.
#[test]
fn salvage_continues_without_a_missing_log() {
    let (fs, ledger) = crate::damage::closed();
    let path = log(&fs);
    tamis::io::FileSystem::remove(&fs, &path).unwrap();
    lab::open(&fs).unwrap_err();
    let (db, report) = lab::open_salvaged(lab::tiny(&fs)).unwrap();
    assert!(!report.warnings.is_empty());
    let found = db.iter().count();
    assert!(found > 0 && found <= ledger.order.visible()[&0].len());
}

/// A damaged filter costs block reads, but no answers: the table is read without it, and a warning
/// says so.
#[test]
fn a_table_with_a_damaged_filter_is_read_without_it() {
    let fs = FaultyFs::new(1);
    let db = lab::open(&fs).unwrap();
    for i in 0..300 {
        put(&db, i, Durability::Buffered);
    }
    db.compact().unwrap();
    let expected = keys(&db);
    assert_eq!(db.stats().keyspaces[0].tables_with_unusable_filter, 0);
    db.close().unwrap();
    let table = fs.files().into_iter().find(|(path, _)| path.extension() == Some("tam".as_ref())).unwrap();
    let mut without_filter = 0;
    for at in (0..table.1).step_by(29) {
        let fs = fs.after_crash(CrashMode::KeepAll);
        fs.corrupt(&table.0, at, 0x10).unwrap();
        let Ok(db) = lab::open(&fs) else { continue };
        if db.stats().keyspaces[0].tables_with_unusable_filter == 1 {
            without_filter += 1;
            assert_eq!(keys(&db), expected);
            assert!((0..300).all(|i| db.contains_key(format!("key{i:03}")).unwrap()
                && !db.contains_key(format!("no{i}")).unwrap()));
            let problems = db.verify().unwrap().problems;
            assert!(problems.iter().any(|p| p.contains("filter")), "{problems:?}");
            db.compact().unwrap();
        }
    }
    assert!(without_filter > 0);
}

/// A damaged key list is not a damaged filter: reads do not touch it, and `verify` reports it.
#[test]
fn a_damaged_key_list_causes_no_wrong_answers_and_verify_finds_it() {
    let fs = FaultyFs::new(1);
    let with_list = |fs: &FaultyFs| {
        let mut options = lab::tiny(fs);
        options.keyspace.filter = tamis::options::FilterPolicy::grf();
        // A merge would write tables without lists.
        options.keyspace.auto_compaction = false;
        options
    };
    let db = with_list(&fs).open(lab::DIR).unwrap();
    for i in 0..300 {
        put(&db, i, Durability::Buffered);
    }
    db.flush().unwrap();
    let expected = keys(&db);
    let stats = &db.stats().keyspaces[0];
    assert!(stats.tables_with_key_list > 0);
    assert_eq!((stats.tables_without_filter, stats.tables_with_unusable_filter), (0, 0));
    assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
    db.close().unwrap();
    let table = fs.files().into_iter().find(|(path, _)| path.extension() == Some("tam".as_ref())).unwrap();
    let mut damaged_lists = 0;
    for at in (0..table.1).step_by(29) {
        let fs = fs.after_crash(CrashMode::KeepAll);
        fs.corrupt(&table.0, at, 0x10).unwrap();
        let Ok(db) = with_list(&fs).open(lab::DIR) else { continue };
        assert_eq!(db.stats().keyspaces[0].tables_with_unusable_filter, 0);
        let problems = db.verify().unwrap().problems;
        assert!(!problems.is_empty(), "byte {at}");
        if problems.iter().any(|p| p.contains("key list is damaged")) {
            damaged_lists += 1;
            assert_eq!(keys(&db), expected);
            db.compact().unwrap();
        }
    }
    assert!(damaged_lists > 0);
}

/// An unreadable table keeps the whole database closed, unless salvage is requested: then it is set
/// aside with a warning, everything else is there, and the next opening needs no salvage.
#[test]
fn salvage_sets_aside_an_unreadable_table() {
    let fs = FaultyFs::new(2);
    let mut options = roomy(&fs);
    options.keyspace.auto_compaction = false;
    let db = options.clone().open(lab::DIR).unwrap();
    for first in [0, 10] {
        for i in first..first + 10 {
            put(&db, i, Durability::Sync);
        }
        db.flush().unwrap();
    }
    db.close().unwrap();
    let (oldest, bytes) =
        fs.files().into_iter().find(|(path, _)| path.extension().is_some_and(|e| e == "tam")).unwrap();
    fs.corrupt(&oldest, bytes - 1, 1).unwrap();

    let refused = options.clone().open(lab::DIR).unwrap_err().to_string();
    assert!(refused.contains(oldest.to_str().unwrap()), "{refused}");

    let warned = |warnings: &[String]| {
        assert!(warnings.iter().any(|w| w.contains("left out with its 10 entries")), "{warnings:?}");
    };
    let db = tamis_doctor::open_read_only(lab::DIR, options.clone()).unwrap();
    assert_eq!(keys(&db), names(10..20));
    warned(&db.stats().warnings);
    drop(db);
    let (db, report) = lab::open_salvaged(options.clone()).unwrap();
    assert_eq!(keys(&db), names(10..20));
    warned(&report.warnings);
    put(&db, 20, Durability::Sync);
    drop(db);
    let aside = format!("{}.damaged", oldest.to_str().unwrap());
    assert!(fs.files().iter().any(|(path, _)| path.to_str() == Some(&aside)));

    let db = options.open(lab::DIR).unwrap();
    assert_eq!(keys(&db), names(10..21));
    assert!(db.verify().unwrap().problems.is_empty());
}

/// Regression: a checkpoint that failed half-way left its directory, and trying again was refused:
/// "exists already".
#[test]
fn a_failed_checkpoint_leaves_nothing_and_can_be_repeated() {
    let (fs, _) = ten_writes(10);
    let db = roomy(&fs).open(lab::DIR).unwrap();
    db.flush().unwrap();
    let before = fs.files();
    fs.plan(FaultPlan {
        fail_at: Some(fs.operations() + 8),
        error: std::io::ErrorKind::StorageFull,
        ..FaultPlan::none()
    });
    let result = db.checkpoint("/copy");
    fs.plan(FaultPlan::none());
    assert!(result.is_err(), "the fault was meant to hit the checkpoint");
    assert_eq!(fs.files().iter().filter(|(path, _)| path.starts_with("/copy")).count(), 0, "{before:?}");
    db.checkpoint("/copy").unwrap();
    let mut options = roomy(&fs);
    options.create_if_missing = false;
    assert_eq!(keys(&options.open("/copy").unwrap()), names(0..10));
}

/// Regression: a manifest that was cut short no longer named most tables, and salvage removed them:
/// of 1,347 keys 93 were left.
#[test]
fn salvage_removes_no_table_and_no_log() {
    let fs = FaultyFs::new(11);
    let db = lab::open(&fs).unwrap();
    for i in 0..300 {
        put(&db, i, Durability::Buffered);
        if i % 40 == 39 {
            db.flush().unwrap();
        }
    }
    drop(db);
    let data = |fs: &FaultyFs| -> Vec<Vec<u8>> {
        let files = fs.files().into_iter().map(|(path, _)| path);
        let is_data = |path: &std::path::PathBuf| {
            path.to_str().is_some_and(|name| name.contains(".tam") || name.contains(".log"))
        };
        files.filter(is_data).map(|path| tamis::io::read_file(fs, &path).unwrap()).collect()
    };
    let manifest = |path: &std::path::Path| path.to_str().is_some_and(|name| name.contains("MANIFEST"));
    let (path, len) = fs.files().into_iter().find(|(path, _)| manifest(path)).unwrap();
    for tenths in 1..10 {
        let hurt = fs.after_crash(CrashMode::KeepAll);
        hurt.truncate(&path, len * tenths / 10).unwrap();
        let before = data(&hurt);
        let mut options = lab::tiny(&hurt);
        options.keyspace.auto_compaction = false;
        // A manifest cut within its first record is refused.
        drop(lab::open_salvaged(options));
        let after = data(&hurt);
        assert!(before.iter().all(|file| after.contains(file)), "cut to {tenths} tenths");
    }
}
