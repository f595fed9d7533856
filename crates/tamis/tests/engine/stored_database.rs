//! A stored database of format version 1: every later release must be able to read it.
//!
//! `tests/fixtures/db-v1` is a complete directory as a crash would leave it: tables without
//! compression and with LZ4, with and without filters, range tombstones, two keyspaces, a log with
//! writes that are in no table, a manifest with several edits. It was written by [`write_history`];
//! `TAMIS_WRITE_FIXTURES=1 cargo test -p tamis --test stored_database` writes it again, which is
//! right only for a new format version, and then under a new name.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tamis::io::DiskFs;
use tamis::options::{BloomHashing, Compression, CompressionPerLevel, FilterChoice, ReadMode};
use tamis::{Db, Keyspace, KeyspaceOptions, Options, WriteBatch};
use tamis_doctor::inspect;

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/db-v1");

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    let mut options = Options { max_log_bytes: 8 << 10, ..Options::default() };
    options.keyspace = KeyspaceOptions {
        memtable_bytes: 64 << 10,
        block_bytes: 1024,
        auto_compaction: false,
        compression: CompressionPerLevel::new(vec![Compression::None, Compression::Lz4]).unwrap(),
        ..KeyspaceOptions::default()
    };
    options
}

fn second_options() -> KeyspaceOptions {
    KeyspaceOptions {
        filter: FilterChoice::Bloom(BloomHashing::Independent).into(),
        compression: CompressionPerLevel::uniform(Compression::Lz4),
        ..options().keyspace
    }
}

fn city(i: u32) -> Vec<u8> {
    format!("city/{i:03}").into_bytes()
}

fn population(i: u32) -> Vec<u8> {
    format!("population {}, mayor {}", i * i * 100, i % 7).into_bytes()
}

/// Writes the fixture's history.
fn write_history(db: &Db) {
    let second = db.create_keyspace("second", second_options()).unwrap();
    db.put("", "the empty key").unwrap();
    db.put([0xFF; 40], [0xEE; 3000]).unwrap();
    (0..200).for_each(|i| db.put(city(i), population(i)).unwrap());
    (0..50).for_each(|i| second.put(city(i), "in second").unwrap());
    db.flush().unwrap();
    // Level 1, with LZ4.
    db.compact().unwrap();
    second.compact().unwrap();
    // Level 0 above it: overwritten, deleted, deleted by range.
    (0..200).step_by(3).for_each(|i| db.put(city(i), "moved").unwrap());
    (0..200).step_by(10).for_each(|i| db.delete(city(i)).unwrap());
    db.delete_range(city(50)..city(60)).unwrap();
    db.put(city(55), "rebuilt").unwrap();
    db.flush().unwrap();
    second.delete_range(city(40)..).unwrap();
    db.flush().unwrap();
    // In no table.
    let mut batch = WriteBatch::new();
    batch
        .put("log/1", "one")
        .delete(city(1))
        .delete_range(city(190)..=city(195))
        .put_in(&second, "log/1", "two");
    db.write(batch).unwrap();
    db.put("log/2", [7; 100]).unwrap();
    db.sync().unwrap();
}

/// The contents of the default keyspace and of the second one after the history.
fn content() -> (Content, Content) {
    let mut default: Content = (0..200).map(|i| (city(i), population(i))).collect();
    default.insert(Vec::new(), b"the empty key".to_vec());
    default.insert(vec![0xFF; 40], vec![0xEE; 3000]);
    (0..200).step_by(3).for_each(|i| _ = default.insert(city(i), b"moved".to_vec()));
    (0..200).step_by(10).for_each(|i| _ = default.remove(&city(i)));
    (50..60).for_each(|i| _ = default.remove(&city(i)));
    default.insert(city(55), b"rebuilt".to_vec());
    default.insert(b"log/1".to_vec(), b"one".to_vec());
    default.remove(&city(1));
    (190..=195).for_each(|i| _ = default.remove(&city(i)));
    default.insert(b"log/2".to_vec(), vec![7; 100]);
    let mut second: Content = (0..40).map(|i| (city(i), b"in second".to_vec())).collect();
    second.insert(b"log/1".to_vec(), b"two".to_vec());
    (default, second)
}

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    // On some systems a locked lock file cannot be read.
    let entries = entries.filter(|entry| entry.file_name() != "LOCK");
    entries.map(|entry| (entry.file_name().into(), fs::read(entry.path()).unwrap())).collect()
}

/// The fixture, rewritten if requested.
fn fixture() -> BTreeMap<PathBuf, Vec<u8>> {
    if std::env::var_os("TAMIS_WRITE_FIXTURES").is_some() {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            let dir = tempfile::tempdir().unwrap();
            let db = options().open(dir.path()).unwrap();
            write_history(&db);
            // Copied while the database is open, as a crash would leave it.
            let _ = fs::remove_dir_all(FIXTURE);
            fs::create_dir_all(FIXTURE).unwrap();
            for (name, bytes) in files(dir.path()) {
                fs::write(Path::new(FIXTURE).join(name), bytes).unwrap();
            }
        });
    }
    files(Path::new(FIXTURE))
}

/// A copy of the fixture to work on.
fn copy() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in fixture() {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    dir
}

fn check_keyspace(keyspace: &Keyspace, content: &Content) {
    let pairs: Vec<_> = keyspace.iter().map(|item| item.unwrap()).collect();
    assert!(pairs.iter().map(|(k, v)| (&k[..], &v[..])).eq(content.iter().map(|(k, v)| (&k[..], &v[..]))));
    let mut back: Vec<_> = keyspace.iter().rev().map(|item| item.unwrap().0.to_vec()).collect();
    back.reverse();
    assert!(back.iter().eq(content.keys()));
    let cities: Vec<Vec<u8>> = (0..210).map(city).collect();
    let asked: Vec<&Vec<u8>> = cities.iter().chain(content.keys()).collect();
    for key in &asked {
        assert_eq!(keyspace.get(key).unwrap().as_deref(), content.get(*key).map(|v| &v[..]), "{key:?}");
    }
    let many = keyspace.multi_get(&asked).unwrap();
    assert!(
        many.iter().zip(&asked).all(|(found, key)| found.as_deref() == content.get(*key).map(|v| &v[..]))
    );
}

fn check(db: &Db) {
    let (default, second) = content();
    assert_eq!(db.keyspaces(), ["default", "second"]);
    check_keyspace(db.default_keyspace(), &default);
    check_keyspace(&db.keyspace("second").unwrap(), &second);
    assert_eq!(db.stats().warnings, Vec::<String>::new());
    let report = db.verify().unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

#[test]
fn the_fixture_covers_its_cases_and_stays_small() {
    let files = fixture();
    let of_kind = |suffix: &str| files.keys().filter(|name| name.to_string_lossy().ends_with(suffix)).count();
    assert!(of_kind(".tam") >= 4, "tables of both keyspaces and two levels");
    assert!(of_kind(".log") >= 1, "a log");
    assert!(files.values().map(Vec::len).sum::<usize>() < 100_000);
    // Regression: a database opened read-only did not count its logs among its files, and `verify`
    // read none of them.
    let db = options().open_read_only(FIXTURE).unwrap();
    let stats = db.stats();
    assert!(stats.log_files >= 1 && stats.log_bytes > 0);
    let default = &stats.keyspaces[0];
    assert!(default.levels.iter().filter(|level| !level.runs.is_empty()).count() >= 2, "{default:#?}");
    assert!(db.verify().unwrap().log_writes > 0, "writes that are in no table");
}

#[test]
fn the_stored_database_of_version_1_is_read_without_being_changed() {
    let dir = copy();
    let before = files(dir.path());
    for &read_mode in ReadMode::available() {
        let db = Options { read_mode, ..options() }.open_read_only(dir.path()).unwrap();
        check(&db);
        drop(db);
        assert!(files(dir.path()) == before, "a read-only open changes nothing");
    }
}

#[test]
fn the_stored_database_of_version_1_is_opened_written_and_compacted() {
    let dir = copy();
    for (round, &read_mode) in ReadMode::available().iter().enumerate() {
        let db = Options { read_mode, ..options() }.open(dir.path()).unwrap();
        check(&db);
        db.put("new", "value").unwrap();
        assert_eq!(db.get("new").unwrap().unwrap(), "value");
        db.delete("new").unwrap();
        if round > 0 {
            db.flush().unwrap();
            db.compact().unwrap();
            db.keyspace("second").unwrap().compact().unwrap();
        }
        check(&db);
        db.close().unwrap();
    }
    check(&options().open(dir.path()).unwrap());
}

#[test]
fn the_stored_options_of_version_1_are_read() {
    // Not compared as a whole: defaults may change, stored values may not.
    let stored = Options::stored_in(FIXTURE).unwrap().unwrap();
    assert_eq!((stored.max_log_bytes, stored.keyspace.block_bytes), (8 << 10, 1024));
    assert_eq!(stored.keyspace.compression, options().keyspace.compression);
    let db = stored.open_read_only(FIXTURE).unwrap();
    let second = db.keyspace("second").unwrap();
    let (stored, made) = (second.options(), second_options());
    assert_eq!(stored.filter, made.filter);
    assert_eq!((&stored.compression, stored.auto_compaction), (&made.compression, false));
}

#[test]
fn every_file_of_the_stored_database_can_be_dumped() {
    let fs = DiskFs::new();
    for name in fixture().keys() {
        let (path, mut out) = (Path::new(FIXTURE).join(name), Vec::new());
        match name.to_string_lossy() {
            name if name.ends_with(".tam") => inspect::dump_table(&fs, &path, &mut out).unwrap(),
            name if name.ends_with(".log") => inspect::dump_log(&fs, &path, &mut out).unwrap(),
            name if name.starts_with("MANIFEST") => inspect::dump_manifest(&fs, &path, &mut out).unwrap(),
            _ => continue,
        }
        assert!(out.len() > 50, "{}", String::from_utf8_lossy(&out));
    }
}
