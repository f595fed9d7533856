//! Tables with elastic filters, inside and outside a database: written by flushes, compactions and
//! external builders, read, verified, dumped, damaged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::io::{FileSystem, MemFs};
use tamis::options::{BloomHashing, FilterChoice};
use tamis::{Db, KeyspaceOptions, Options};
use tamis_doctor::inspect;
use tamis_testkit::{CrashMode, FaultyFs};

const HASHINGS: [BloomHashing; 3] = [BloomHashing::Rotation, BloomHashing::Double, BloomHashing::Independent];

/// Segments of 64 keys.
fn keyspace(hashing: BloomHashing) -> KeyspaceOptions {
    KeyspaceOptions {
        filter: FilterChoice::Elastic(hashing).into(),
        filter_units: 3,
        filter_unit_bits: 8.0,
        filter_unit_bytes: 128,
        block_bytes: 512,
        memtable_bytes: 1 << 20,
        ..KeyspaceOptions::default()
    }
}

fn options(fs: impl FileSystem + 'static, hashing: BloomHashing) -> Options {
    Options {
        file_system: Some(Arc::new(fs)),
        background_threads: 1,
        keyspace: keyspace(hashing),
        ..Options::default()
    }
}

fn key(i: u32) -> String {
    format!("key/{:06}", i * 2)
}

/// Each key twice, some deleted, with a snapshot that keeps all of it; one hundred of them deleted
/// as a range.
fn fill(db: &Db) {
    (0..1500).for_each(|i| db.put(key(i), "old").unwrap());
    let held = db.snapshot();
    (0..1500).for_each(|i| db.put(key(i), format!("value {i}")).unwrap());
    (0..1500).step_by(7).for_each(|i| db.delete(key(i)).unwrap());
    db.delete_range(key(600)..key(700)).unwrap();
    db.flush().unwrap();
    (1500..2000).for_each(|i| db.put(key(i), format!("value {i}")).unwrap());
    db.flush().unwrap();
    drop(held);
}

fn check(db: &Db) {
    for i in 0..2000 {
        let deleted = i < 1500 && (i % 7 == 0 || (600..700).contains(&i));
        let expected = (!deleted).then(|| format!("value {i}").into_bytes());
        assert_eq!(db.get(key(i)).unwrap().as_deref(), expected.as_deref(), "{i}");
        assert_eq!(db.get(format!("key/{:06}", i * 2 + 1)).unwrap(), None);
    }
    let (below, beyond) = (db.get("").unwrap(), db.get("zzz").unwrap());
    assert_eq!((below, beyond), (None, None));
}

fn tables(fs: &dyn FileSystem) -> Vec<PathBuf> {
    let names = fs.list(Path::new("/db")).unwrap();
    names.into_iter().filter(|name| name.ends_with(".tam")).map(|name| Path::new("/db").join(name)).collect()
}

#[test]
fn flushes_and_compactions_write_elastic_filters() {
    for hashing in HASHINGS {
        for pin_metadata in [true, false] {
            let fs = MemFs::new();
            let options = Options { pin_metadata, ..options(fs.clone(), hashing) };
            let db = options.clone().open("/db").unwrap();
            fill(&db);
            check(&db);
            assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
            db.compact().unwrap();
            check(&db);
            db.close().unwrap();
            let db = options.open("/db").unwrap();
            check(&db);
            let stats = &db.stats().keyspaces[0];
            assert_eq!((stats.tables_without_filter, stats.tables_with_unusable_filter), (0, 0));
            assert!(stats.filter_bytes > 0, "directories are in memory");
            assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
        }
    }
}

/// A table of range deletes alone has no keys, and no filter.
#[test]
fn a_table_without_keys_has_no_filter() {
    let fs = MemFs::new();
    let db = options(fs, BloomHashing::Rotation).open("/db").unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    db.delete_range("a".."z").unwrap();
    db.flush().unwrap();
    assert_eq!(db.get("k").unwrap(), None);
    assert_eq!(db.stats().keyspaces[0].tables_without_filter, 1);
    assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_dump_shows_segments_and_units() {
    let fs = MemFs::new();
    let db = options(fs.clone(), BloomHashing::Double).open("/db").unwrap();
    (0..300).for_each(|i| db.put(key(i), "value").unwrap());
    db.flush().unwrap();
    let mut shown = Vec::new();
    inspect::dump_table(&fs, &tables(&fs)[0], &mut shown).unwrap();
    let shown = String::from_utf8(shown).unwrap();
    // The last 44 keys form their own segment, as they are more than a quarter of one.
    for expected in [
        "filter elastic-double, 5 segments of 3 units of 8 bits per key, 300 keys, ",
        "expected false-positive rate 2.4",
        "    segment 1: 64 keys from \"key/000128\", 104 bytes per unit",
        "    segment 4: 44 keys from \"key/000512\", 104 bytes per unit",
    ] {
        assert!(shown.contains(expected), "{expected}\n{shown}");
    }
    assert!(!shown.contains("segment 5") && !shown.contains("unusable"));
}

#[test]
fn external_tables_have_elastic_filters() {
    for hashing in HASHINGS {
        let fs = MemFs::new();
        let db = options(fs.clone(), hashing).open("/db").unwrap();
        fs.create_dir_all(Path::new("/in")).unwrap();
        let path = Path::new("/in/external.tam");
        let mut builder =
            ExternalTableBuilder::create_on(Arc::new(fs.clone()), path, &keyspace(hashing)).unwrap();
        (0..1000).for_each(|i| builder.put(key(i), format!("external {i}")).unwrap());
        builder.finish().unwrap();
        db.default_keyspace().ingest(&[path], IngestOptions::default()).unwrap();
        for i in 0..1000 {
            assert_eq!(db.get(key(i)).unwrap().as_deref(), Some(format!("external {i}").as_bytes()));
        }
        let mut shown = Vec::new();
        inspect::dump_table(&fs, &tables(&fs)[0], &mut shown).unwrap();
        assert!(String::from_utf8(shown).unwrap().contains("16 segments of 3 units"));
        assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
    }
}

/// Damages each of a series of bytes: `verify` finds the damage, and no answer is wrong.
#[test]
fn damage_causes_no_wrong_answers_and_verify_finds_it() {
    let fs = FaultyFs::new(1);
    let db = options(fs.clone(), BloomHashing::Rotation).open("/db").unwrap();
    (0..300).for_each(|i| db.put(key(i), "value").unwrap());
    db.compact().unwrap();
    db.close().unwrap();
    let (path, len) =
        fs.files().into_iter().find(|(path, _)| path.extension() == Some("tam".as_ref())).unwrap();
    let (mut units, mut directories) = (0, 0);
    for at in (0..len).step_by(47) {
        let fs = fs.after_crash(CrashMode::KeepAll);
        fs.corrupt(&path, at, 0x10).unwrap();
        let Ok(db) = options(fs.clone(), BloomHashing::Rotation).open("/db") else { continue };
        let problems = db.verify().unwrap().problems;
        assert!(!problems.is_empty(), "byte {at}");
        let unusable = db.stats().keyspaces[0].tables_with_unusable_filter;
        let in_unit = problems.iter().any(|problem| problem.contains("of segment"));
        if unusable == 1 || in_unit {
            (units, directories) = (units + u32::from(in_unit), directories + unusable);
            for i in 0..300 {
                assert_eq!(db.get(key(i)).unwrap().as_deref(), Some(&b"value"[..]));
                assert_eq!(db.get(format!("{}x", key(i))).unwrap(), None);
            }
            let mut shown = Vec::new();
            inspect::dump_table(&fs, &path, &mut shown).unwrap();
            assert!(String::from_utf8(shown).unwrap().contains("unusable"));
        }
    }
    assert!(units > 10 && directories > 1, "{units} {directories}");
}
