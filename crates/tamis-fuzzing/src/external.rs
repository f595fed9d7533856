//! External tables, as `ingest` reads them.

use std::path::Path;
use std::sync::Arc;

use crate::reseal;
use tamis::ingest::IngestOptions;
use tamis::io::{FileSystem, MemFs};
use tamis::{Db, KeyspaceOptions, Options};

use crate::{empty_fs, put};

fn options(fs: &MemFs) -> Options {
    Options {
        cache_bytes: 1 << 16,
        background_threads: 1,
        keyspace: KeyspaceOptions {
            auto_compaction: false,
            memtable_bytes: 16 << 10,
            ..KeyspaceOptions::default()
        },
        file_system: Some(Arc::new(fs.clone())),
        ..Options::default()
    }
}

/// Checks a file passed to `ingest`, as it is and with its checksums corrected.
pub fn external(bytes: &[u8]) {
    check_external(bytes);
    let sealed = reseal::table(bytes, true);
    if sealed != bytes {
        check_external(&sealed);
    }
}

/// A refused file changes nothing. An ingested file was checked: it can be read, and all its
/// contents are present after reopening.
fn check_external(bytes: &[u8]) {
    let fs = empty_fs();
    put(&fs, Path::new("a.tam"), bytes);
    let db = options(&fs).open("db").expect("in-memory write");
    for i in 0..4 {
        db.put(format!("key {i}"), "old").expect("in-memory write");
    }
    let content = |db: &Db| {
        let pairs = db.iter().map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())));
        pairs.collect::<Result<Vec<_>, _>>()
    };
    let before = content(&db).expect("in-memory read");
    let taken = db.default_keyspace().ingest(&["a.tam"], IngestOptions::default());
    let after = content(&db).expect("a checked file can be read");
    let Ok(report) = taken else {
        assert_eq!(after, before, "a refused file changed the database");
        assert!(fs.exists(Path::new("a.tam")).is_ok_and(|there| there), "a refused file was removed");
        return;
    };
    assert!(after.windows(2).all(|pair| pair[0].0 < pair[1].0), "keys do not ascend");
    assert!(after.len() as u64 <= report.entries + before.len() as u64, "more keys than were ingested");
    for (key, value) in &after {
        assert_eq!(db.get(key).expect("it was just read").as_deref(), Some(&value[..]), "{key:?}");
    }
    assert_eq!(db.verify().expect("in-memory read").problems, Vec::<String>::new());
    db.close().expect("in-memory write");
    let db = options(&fs).open("db").expect("a closed database opens");
    assert_eq!(content(&db).expect("a checked file can be read"), after, "reopening changes the contents");
}
