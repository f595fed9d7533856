//! Directories of a few files, and what is found in them.

use tamis_env::io::Usage;
use tamis_testkit::{FaultPlan, FaultyFs};

use super::*;

const DIR: &str = "place";

/// The names and contents of files.
type Files<'a> = &'a [(&'a str, &'a [u8])];

fn write(fs: &FaultyFs, path: &Path, bytes: &[u8]) {
    fs.create(path, Usage::Log).unwrap().append(bytes).unwrap();
}

fn directory(files: Files<'_>) -> FaultyFs {
    let fs = FaultyFs::new(1);
    fs.create_dir_all(Path::new(DIR)).unwrap();
    files.iter().for_each(|(name, bytes)| write(&fs, &Path::new(DIR).join(name), bytes));
    fs
}

fn place(files: Files<'_>) -> Place {
    look_at(&directory(files), Path::new(DIR)).unwrap()
}

fn others(what: &str) -> Place {
    Place::Others(format!("files of others: {what}"))
}

fn foreign(what: &str) -> Place {
    Place::Foreign(format!("files of others: {what}"))
}

/// A file of the length of a footer, with these last bytes.
fn ending(magic: &[u8]) -> Vec<u8> {
    let mut bytes = vec![7; Footer::BYTES as usize - magic.len()];
    bytes.extend(magic);
    bytes
}

#[test]
fn one_file_with_the_mark_of_its_kind_is_a_database() {
    let marked = [
        ("000001.log", b"TAMISLOG".to_vec()),
        ("MANIFEST-000001", b"TAMISLOG".to_vec()),
        ("000001.tam", ending(b"tamis\0tb")),
        ("000001.blb", ending(b"tamis\0bl")),
        ("000001.flt", ending(b"tamis\0fi")),
    ];
    for (name, bytes) in &marked {
        assert_eq!(place(&[(name, bytes)]), Place::Headless, "{name}");
        assert_eq!(place(&[("stranger", b""), (name, bytes)]), Place::Headless, "{name}");
        assert_eq!(place(&[("CURRENT", b"?"), (name, bytes)]), Place::Database, "{name}");
        let current = format!("{name}\n");
        assert_eq!(place(&[("CURRENT", current.as_bytes()), (name, bytes)]), Place::Database, "{name}");
        let mut hurt = bytes.clone();
        *hurt.last_mut().unwrap() ^= 1;
        assert_eq!(place(&[(name, &hurt)]), foreign(&format!("`{name}`")));
        assert_eq!(place(&[("CURRENT", b"?"), (name, &hurt)]), Place::Unproven, "{name}");
        assert_eq!(place(&[("CURRENT", b"?"), (name, b"")]), Place::Unproven, "{name}");
        // Too short to end with more than the mark.
        if let Some(start) = bytes.len().checked_sub(9) {
            assert_eq!(place(&[(name, &bytes[start..])]), foreign(&format!("`{name}`")));
        }
    }
}

#[test]
fn a_place_is_free_but_for_furniture_and_an_unfinished_manifest() {
    assert_eq!(look_at(&FaultyFs::new(1), Path::new(DIR)).unwrap(), Place::Free);
    assert_eq!(place(&[]), Place::Free);
    assert_eq!(place(&[(".hidden", b"x"), ("lost+found", b""), ("LOCK", b"")]), Place::Free);
    for unfinished in [&b""[..], b"TAM", b"TAMISLO", b"\0\0\0\0\0\0\0\0\0"] {
        assert_eq!(place(&[("MANIFEST-000001", unfinished)]), Place::Free, "{unfinished:?}");
    }
    assert_eq!(place(&[("MANIFEST-000001", b"TAX")]), foreign("`MANIFEST-000001`"));
}

#[test]
fn databases_of_other_engines_are_named() {
    let leveldb = "LevelDB or RocksDB";
    let options = "..\x0aleveldb.BytewiseComparator";
    let found: [(&[(&str, &str)], &str); 15] = [
        (&[("marker.format-version.000001.013", "")], "Pebble"),
        (&[("KEYREGISTRY", "")], "Badger"),
        (&[("MANIFEST", ""), ("000000.vlog", "")], "Badger"),
        (&[("IDENTITY", "")], "RocksDB"),
        (&[("OPTIONS-000007", "")], "RocksDB"),
        (&[("CURRENT", "MANIFEST-000004\n"), ("LOG", "")], leveldb),
        (&[("CURRENT", "MANIFEST-000004\n"), ("000005.ldb", "")], leveldb),
        (&[("CURRENT", "MANIFEST-000004\n"), ("000005.sst", "")], leveldb),
        (&[("MANIFEST-000004", options)], leveldb),
        (&[("000003.log", ""), ("MANIFEST-000004", options)], leveldb),
        (&[("version", "FJL\x02")], "fjall"),
        (&[("data.mdb", "")], "LMDB"),
        (&[("mdbx.dat", "")], "MDBX"),
        (&[("WiredTiger", "")], "WiredTiger"),
        (&[("WiredTiger", ""), ("stranger", "")], "WiredTiger"),
    ];
    for (files, engine) in found {
        let files: Vec<_> = files.iter().map(|(name, bytes)| (*name, bytes.as_bytes())).collect();
        assert_eq!(place(&files), Place::Foreign(format!("a database of {engine}")), "{files:?}");
    }
    // Each of these names alone says nothing, nor does another content.
    for name in ["MANIFEST", "000000.vlog", "LOG", "000005.ldb", "000005.sst", "version"] {
        assert_eq!(place(&[(name, b"1.0")]), others(&format!("`{name}`")));
    }
    assert_eq!(place(&[("MANIFEST-000004", b"leveldb")]), foreign("`MANIFEST-000004`"));
}

#[test]
fn three_files_of_others_are_named_in_order() {
    assert_eq!(place(&[("b", b""), ("a", b"")]), others("`a`, `b`"));
    assert_eq!(place(&[("c", b""), ("b", b""), ("a", b"")]), others("`a`, `b`, `c`"));
    let five: [(&str, &[u8]); 5] = [("e", b""), ("d", b""), ("c", b""), ("b", b""), ("a", b"")];
    assert_eq!(place(&five), others("`a`, `b`, `c` and 2 more"));
    // One under the name of a log comes no earlier for it.
    assert_eq!(place(&[("000001.log", b"other"), ("#notes", b"")]), foreign("`#notes`, `000001.log`"));
    assert_eq!(place(&[("CURRENT", b"?"), ("b", b""), ("a", b"")]), foreign("`a`, `b`"));
}

#[test]
fn a_file_in_place_of_a_directory_is_named() {
    let at = |at: usize, magic: &[u8]| [&vec![1; at][..], magic, &[1; 60]].concat();
    for (bytes, what) in [
        (at(0, b"SQLite format 3\0"), "a file, a database of SQLite"),
        (at(0, b"redb\x1a\x0a\xa9\x0d\x0a"), "a file, a database of redb"),
        (at(16, &0xbeef_c0de_u32.to_le_bytes()), "a file, a database of LMDB"),
        (at(16, &0xed0c_daed_u32.to_le_bytes()), "a file, a database of bbolt"),
        (at(1, b"SQLite format 3\0"), "a file, not a directory"),
        (b"SQLite".to_vec(), "a file, not a directory"),
        (Vec::new(), "a file, not a directory"),
    ] {
        let fs = FaultyFs::new(1);
        write(&fs, Path::new(DIR), &bytes);
        assert_eq!(look_at(&fs, Path::new(DIR)).unwrap(), Place::Foreign(what.to_owned()));
    }
}

/// Whoever took a database that cannot be read for a free place would create another one in it.
#[test]
fn what_cannot_be_read_is_an_error() {
    let manifest = ("MANIFEST-000001", &b"TAMISLOG"[..]);
    let table = ending(b"tamis\0tb");
    let directories: [(Files<'_>, Place); 3] = [
        (&[("CURRENT", b"MANIFEST-000001\n"), manifest], Place::Database),
        (&[("CURRENT", b"?"), ("000001.tam", &table)], Place::Database),
        (&[manifest], Place::Headless),
    ];
    for (files, found) in directories {
        let fs = directory(files);
        for at in 0.. {
            let failures = fs.failures();
            fs.plan(FaultPlan { fail_at: Some(fs.operations() + at), ..FaultPlan::none() });
            let looked = look_at(&fs, Path::new(DIR));
            if fs.failures() == failures {
                assert_eq!(looked.unwrap(), found);
                assert!(at > 3, "only {at} operations");
                break;
            }
            assert!(matches!(looked, Err(StorageError::Io(_))), "{at}: {looked:?}");
        }
    }
}
