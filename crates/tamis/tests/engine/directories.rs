//! Directories that are not a database, or not any more where one was. Nothing that belongs to
//! others is changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tamis::{Db, OpenError, Options};

/// All that is in a directory: names, and what is behind them.
fn contents(dir: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).ok())).collect()
}

fn write(dir: &Path, files: &[(&str, &[u8])]) {
    fs::create_dir_all(dir).unwrap();
    for (name, bytes) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// A manifest as LevelDB writes it: a record of its log format whose first field is the comparator.
/// The checksum is made up: nobody reads it here.
const LEVELDB_MANIFEST: &[u8] = b"\x56\xf9\xb8\xf8\x1c\x00\x01\x01\x1aleveldb.BytewiseComparator";

/// A log of LevelDB with one record.
const LEVELDB_LOG: &[u8] = b"\x01\x02\x03\x04\x15\x00\x01\x01\0\0\0\0\0\0\0\x01\0\0\0\x01\x03key\x05value";

/// A file's name, and what is in it.
type NamedFile = (&'static str, &'static [u8]);

/// The files that each engine makes, named and begun as its sources and its own databases have
/// them.
fn others() -> Vec<(&'static str, Vec<NamedFile>)> {
    let leveldb: Vec<(&str, &[u8])> = vec![
        ("CURRENT", b"MANIFEST-000004\n"),
        ("MANIFEST-000004", LEVELDB_MANIFEST),
        ("000005.log", LEVELDB_LOG),
        ("000003.ldb", b"table"),
        ("LOCK", b""),
        ("LOG", b"2024/01/01-00:00:00.000000 7f Recovering log #3\n"),
    ];
    // Before its first table, with a comparator of its own, and without the file for people.
    let young: Vec<(&str, &[u8])> = vec![
        ("CURRENT", b"MANIFEST-000002\n"),
        ("MANIFEST-000002", b"\x56\xf9\xb8\xf8\x1c\x00\x01\x01\x04mine"),
        ("000003.log", b""),
        ("LOCK", b""),
        ("LOG", b""),
    ];
    let mut rocksdb = leveldb.clone();
    rocksdb.retain(|(name, _)| !name.ends_with(".ldb"));
    rocksdb.extend([
        ("IDENTITY", &b"0d9eb2f4-5a9b"[..]),
        ("OPTIONS-000007", b"[Version]\n  rocksdb_version=9.0.0\n"),
        ("000008.sst", b"table"),
    ]);
    // What is left of it once `CURRENT` is lost.
    let mut headless = leveldb.clone();
    headless.remove(0);
    vec![
        ("LevelDB", leveldb),
        ("LevelDB", young),
        ("LevelDB", headless),
        ("RocksDB", rocksdb),
        (
            "fjall",
            vec![
                ("version", b"FJL\x02"),
                ("lock", b""),
                ("journals/0", b"x"),
                ("keyspaces/0/manifest", b"x"),
            ],
        ),
        ("LMDB", vec![("data.mdb", b"\0\0\0\0"), ("lock.mdb", b"")]),
        ("Badger", vec![("MANIFEST", b"Bdgr"), ("000001.vlog", b""), ("KEYREGISTRY", b"")]),
        ("Badger", vec![("MANIFEST", b"Bdgr"), ("000001.vlog", b"")]),
        ("Badger", vec![("KEYREGISTRY", b"")]),
        ("Pebble", vec![("marker.format-version.000001.013", b""), ("CURRENT", b"MANIFEST-000001\n")]),
        ("RocksDB", vec![("IDENTITY", b"5c8c6a0f")]),
        ("RocksDB", vec![("OPTIONS-000005", b"[Version]")]),
        ("LevelDB", vec![("CURRENT", b"MANIFEST-000004\n"), ("000005.sst", b"x")]),
        ("LevelDB", vec![("CURRENT", b"MANIFEST-000004\n"), ("000005.ldb", b"x")]),
        ("MDBX", vec![("mdbx.dat", b"\0\0"), ("mdbx.lck", b"")]),
        ("WiredTiger", vec![("WiredTiger", b"WiredTiger 11"), ("sizeStorer.wt", b"")]),
        ("files of others: `version`", vec![("version", b"1.2.3")]),
        ("`a`, `b`, `c` and 1 more", vec![("c", b""), ("d", b""), ("b", b""), ("a", b"")]),
        ("files of others: `MANIFEST`", vec![("MANIFEST", b"of a ship")]),
        ("files of others: `1.vlog`", vec![("1.vlog", b"a video")]),
        (
            "files of others: `000001.log`, `letter.txt`",
            vec![("000001.log", b"Jan 1"), ("letter.txt", b"dear")],
        ),
        ("files of others", vec![("000001.log", b"Jan 1 00:00:00 started\n"), ("000002.log", b"Jan 2\n")]),
        ("files of others", vec![("MANIFEST-000001", b"Cargo manifest")]),
        ("files of others", vec![("CURRENT", b"MANIFEST-000001\n"), ("CURRENT.txt", b"the month")]),
        ("files of others", vec![("letter.txt", b"dear"), ("photos/1.jpg", b"x"), ("LOCK", b"mine")]),
    ]
}

/// `tamis salvage` on a directory of LevelDB, which has the same names, wrote a new `CURRENT`,
/// renamed log and manifest, and said that nothing was lost; LevelDB could not open it any more.
/// Opening and writing made databases among files of others.
#[test]
fn nothing_of_others_is_touched() {
    let root = tempfile::tempdir().unwrap();
    for (at, (engine, files)) in others().into_iter().enumerate() {
        let dir = &root.path().join(at.to_string());
        write(dir, &files);
        let before = contents(dir);
        let existing = Options { create_if_missing: false, ..Options::default() };
        let found = |what: &str, error: OpenError| {
            let text = error.to_string();
            assert!(text.contains(engine), "{what}: {text}");
            let known = matches!(error, OpenError::Foreign { .. } | OpenError::NotEmpty { .. });
            assert!(known, "{what}: {error:?}");
            assert_eq!(contents(dir), before, "{what}");
        };
        found("open", Db::open(dir).unwrap_err());
        found("open what is there", existing.open(dir).unwrap_err());
        found("read", Options::default().open_read_only(dir).unwrap_err());
        found("read to salvage", tamis_doctor::open_read_only(dir, Options::default()).unwrap_err());
        found("follow", Options::default().open_follower(dir).unwrap_err());
        found("look at", tamis_doctor::salvage(dir, Options::default(), true).unwrap_err());
        found("salvage", tamis_doctor::salvage(dir, Options::default(), false).unwrap_err());
        let verified = tamis_doctor::verify(dir, Options::default()).unwrap_err().to_string();
        assert!(verified.contains(engine), "{verified}");
        match Options::stored_in(dir) {
            Ok(stored) => assert_eq!(stored.map(|_| ()), None),
            Err(error) => found("read the options of", error),
        }
        assert_eq!(contents(dir), before);
    }
}

/// A file in place of a directory was "could not read …/OPTIONS: Not a directory".
#[test]
fn a_file_is_called_a_file() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("file");
    let cases: [(&[u8], &str); 6] = [
        (b"SQLite format 3\0\x10\0", "SQLite"),
        (b"redb\x1a\x0a\xa9\x0d\x0a\0", "redb"),
        (b"", "a file"),
        (b"dear", "a file"),
        (b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xde\xc0\xef\xbe\x01\0\0\0", "LMDB"),
        (b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xed\xda\x0c\xed\x02\0\0\0", "bbolt"),
    ];
    for (bytes, what) in cases {
        fs::write(&path, bytes).unwrap();
        let errors = [
            Db::open(&path).unwrap_err(),
            Options::default().open_read_only(&path).unwrap_err(),
            tamis_doctor::salvage(&path, Options::default(), false).unwrap_err(),
            Options::stored_in(&path).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");
            assert!(error.to_string().contains(what) && error.to_string().contains("a file"), "{error}");
        }
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}

/// A database is created in a directory that is missing or empty, and among others on request only.
/// What is in many directories anyway does not count, nor does what an interrupted creation leaves
/// behind.
#[test]
fn a_database_is_created_among_others_on_request_only() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    write(&dir, &[("letter.txt", b"dear")]);
    let refused = Db::open(&dir).unwrap_err();
    assert!(matches!(refused, OpenError::NotEmpty { .. }), "{refused:?}");
    assert!(refused.to_string().contains("`letter.txt`"), "{refused}");
    assert!(refused.to_string().contains("create_among_others"), "{refused}");
    let among = Options { create_among_others: true, ..Options::default() };
    among.clone().open(&dir).unwrap().put("key", "value").unwrap();
    // From then on it is one, whatever else is there.
    assert_eq!(Db::open(&dir).unwrap().get("key").unwrap().unwrap(), "value");
    assert!(!tamis_doctor::salvage(&dir, Options::default(), false).unwrap().is_needed());
    assert_eq!(fs::read(dir.join("letter.txt")).unwrap(), b"dear");

    // Under the names that a database needs nothing is replaced, even so.
    let disguised = root.path().join("disguised");
    write(&disguised, &[("000001.log", b"Jan 1 00:00:00 started\n")]);
    assert!(matches!(among.open(&disguised), Err(OpenError::Foreign { .. })));
    assert_eq!(contents(&disguised).len(), 1);

    for (at, files) in [
        &[(".directory", &b"[Desktop Entry]"[..]), ("lost+found/x", b""), (".#letter", b"")][..],
        &[("LOCK", b""), ("LOG.tmp", b"TAMISL"), ("MANIFEST-000001", b"")],
        &[("MANIFEST-000001", &[0; 600]), ("CURRENT.tmp", b"MAN")],
    ]
    .into_iter()
    .enumerate()
    {
        let dir = root.path().join(at.to_string());
        write(&dir, files);
        Db::open(&dir).unwrap().put("key", "value").unwrap();
    }
}

/// Who asks for a new database must not write into an old one. Readers create nothing, so they do
/// not ask.
#[test]
fn a_database_that_exists_is_refused_on_request() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    let new = || Options { error_if_exists: true, ..Options::default() };
    new().open(&dir).unwrap().put("key", "value").unwrap();
    let before = contents(&dir);
    let refused = new().open(&dir).unwrap_err();
    assert!(matches!(refused, OpenError::Exists { .. }), "{refused:?}");
    assert_eq!(contents(&dir), before, "nothing was changed");
    assert_eq!(new().open_read_only(&dir).unwrap().get("key").unwrap().unwrap(), "value");
    assert_eq!(Db::open(&dir).unwrap().get("key").unwrap().unwrap(), "value");
}

/// Of a creation, a crash may leave the first bytes of the manifest. They were taken for a file of
/// others, and the directory could not be opened any more.
#[test]
fn what_is_left_of_a_creation_is_not_a_file_of_others() {
    for len in 0..=8 {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &[("MANIFEST-000002", &b"TAMISLOG"[..len]), ("LOCK", b"")]);
        let db = Db::open(dir.path()).unwrap();
        db.put("key", "value").unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[("MANIFEST-000002", b"TAMISSED")]);
    assert!(matches!(Db::open(dir.path()), Err(OpenError::Foreign { .. })));
}

/// Salvage kept no copy of the `CURRENT` that it replaced, and did not say what it had moved.
#[test]
fn salvage_says_what_it_moved_and_overwrites_nothing() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    let db = Db::open(&dir).unwrap();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    db.put("b", "2").unwrap();
    db.close().unwrap();
    let manifest = contents(&dir).into_keys().find(|name| name.starts_with("MANIFEST")).unwrap();
    let mut bytes = fs::read(dir.join(&manifest)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(dir.join(&manifest), bytes).unwrap();
    // Somebody has been here before.
    fs::write(dir.join("CURRENT.aside"), "of an earlier time").unwrap();
    let before = contents(&dir);
    let dry = tamis_doctor::salvage(&dir, Options::default(), true).unwrap();
    assert!(dry.is_needed() && dry.moved.is_empty());
    assert_eq!(contents(&dir), before);

    let report = tamis_doctor::salvage(&dir, Options::default(), false).unwrap();
    let after = contents(&dir);
    for (name, bytes) in before {
        let kept = after.get(&name) == Some(&bytes);
        let moved = report.moved.iter().find(|(file, _)| *file == name).map(|(_, second)| second);
        assert!(
            kept || moved.is_some_and(|second| after.get(second) == Some(&bytes)),
            "{name} is gone: {:?}, {:?}",
            report.moved,
            after.keys()
        );
    }
    assert!(report.moved.contains(&("CURRENT".into(), "CURRENT.aside-1".into())), "{:?}", report.moved);
    let db = Db::open(&dir).unwrap();
    assert_eq!(db.get("a").unwrap().unwrap(), "1");
    assert_eq!(db.get("b").unwrap().unwrap(), "2");
}

/// A live directory was renamed, and a new database made where it had been. The old handle wrote
/// into the new one's directory, where both used the same numbers; `flush` and `close` said that
/// all was well, and the old database could not be opened again.
#[cfg(unix)]
#[test]
fn a_renamed_directory_stays_the_database() {
    use tamis::options::ReadMode;
    for mode in [ReadMode::Mapped, ReadMode::Buffered, ReadMode::Direct] {
        let root = tempfile::tempdir().unwrap();
        let (path, moved) = (root.path().join("db"), root.path().join("moved"));
        let mut options = Options { read_mode: mode, max_open_files: 1, ..Options::default() };
        options.keyspace.blob_threshold = 1000;
        let fill = |db: &Db, what: &str| {
            for round in 0..4 {
                for key in 0..50 {
                    db.put(format!("{key}"), format!("{what} {round} {}", "x".repeat(key * 40))).unwrap();
                }
                db.flush().unwrap();
            }
            db.put("last", what).unwrap();
        };
        let check = |db: &Db, what: &str| {
            assert_eq!(db.get("last").unwrap().unwrap(), what);
            for key in 0..50 {
                let value = db.get(format!("{key}")).unwrap().unwrap();
                assert!(value.starts_with(format!("{what} 3").as_bytes()), "{mode:?} {what} {key}");
            }
            let verified = db.verify().unwrap();
            assert!(verified.problems.is_empty(), "{:?}", verified.problems);
        };
        let old = options.clone().open(&path).unwrap();
        fill(&old, "earlier");
        let follower = options.clone().open_follower(&path).unwrap();
        fs::rename(&path, &moved).unwrap();
        let new = options.clone().open(&path).unwrap();
        fill(&new, "new");
        fill(&old, "old");
        // Each of them makes all kinds of files.
        old.compact().unwrap();
        new.compact().unwrap();
        old.checkpoint(root.path().join("copy")).unwrap();
        old.create_keyspace("more", Default::default()).unwrap().put("key", "value").unwrap();
        follower.catch_up().unwrap();
        check(&follower, "old");
        check(&old, "old");
        check(&new, "new");
        // Each holds the lock of its own directory.
        assert!(matches!(options.clone().open(&moved), Err(OpenError::OpenHere { .. })));
        assert!(matches!(options.clone().open(&path), Err(OpenError::OpenHere { .. })));
        drop(follower);
        old.close().unwrap();
        new.close().unwrap();
        check(&options.clone().open(&moved).unwrap(), "old");
        check(&options.clone().open(&path).unwrap(), "new");
        check(&options.open(root.path().join("copy")).unwrap(), "old");
    }
}

/// The directory is gone, and another one, or none, is in its place: work fails, and nothing of the
/// other one is changed.
#[cfg(unix)]
#[test]
fn a_removed_directory_is_not_replaced_by_another() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("db");
    let db = Db::open(&path).unwrap();
    db.put("a", "1").unwrap();
    fs::remove_dir_all(&path).unwrap();
    fs::create_dir(&path).unwrap();
    db.flush().unwrap_err();
    db.checkpoint(root.path().join("copy")).unwrap_err();
    assert!(db.close().is_err());
    assert!(contents(&path).is_empty(), "{:?}", contents(&path).keys());
}

/// A FIFO with the name of a log or a table stopped the opening for ever.
#[cfg(target_os = "linux")]
#[test]
fn a_fifo_is_not_waited_for() {
    let root = tempfile::tempdir().unwrap();
    let fifo = |path: &Path| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    for name in [
        "000999.log",
        "000998.tam",
        "000997.blb",
        "000996.flt",
        "MANIFEST-000995",
        "CURRENT",
        "OPTIONS",
        "LOCK",
        "STATS",
    ] {
        let dir = root.path().join(name);
        let db = Db::open(&dir).unwrap();
        db.put("key", "value").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let _ = fs::remove_file(dir.join(name));
        fifo(&dir.join(name));
        // Whether it is an error is another matter.
        let _ = Options::default().open_read_only(&dir);
        let _ = Options::stored_in(&dir);
        let _ = tamis_doctor::salvage(&dir, Options::default(), false);
        if let Ok(db) = Db::open(&dir) {
            assert_eq!(db.get("key").unwrap().unwrap(), "value", "{name}");
        }
        let alone = root.path().join(format!("only-{name}"));
        fs::create_dir(&alone).unwrap();
        fifo(&alone.join(name));
        let _ = Db::open(&alone);
        let _ = tamis_doctor::salvage(&alone, Options::default(), false);
    }
}
