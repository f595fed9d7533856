//! Global filters of hostile tables.

use std::path::Path;

use std::sync::Arc;

use crate::fuzzing::reseal;
use crate::io::{FileSystem, MemFs, Usage, read_file};
use crate::options::FilterChoice;
use crate::tree::edit::VersionEdit;
use crate::tree::files::table_path;
use crate::tree::manifest::{Manifest, set_current};
use crate::{Db, KeyspaceOptions, Options};

fn options(fs: &MemFs) -> Options {
    Options {
        file_system: Some(Arc::new(fs.clone())),
        background_threads: 1,
        keyspace: KeyspaceOptions { filter: FilterChoice::Grf.into(), ..KeyspaceOptions::default() },
        ..Options::default()
    }
}

/// Creates a database of one table whose properties and manifest record claim `claimed` entries.
fn database(claimed: u64) -> MemFs {
    let (fs, dir) = (MemFs::new(), Path::new("db"));
    let db = Db::open(dir, options(&fs)).unwrap();
    for i in 0..100 {
        db.put(format!("key {i:03}"), "value").unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let loaded = Manifest::open(&fs, dir).unwrap().unwrap();
    let mut state = loaded.state;
    let (&(level, run), tables) = state.keyspaces[&0].runs.first_key_value().unwrap();
    let mut meta = (**tables.iter().next().unwrap()).clone();
    let path = table_path(dir, meta.id);
    let file = reseal::claiming_entries(&read_file(&fs, &path).unwrap(), claimed);
    fs.create(&path, Usage::Table).unwrap().append(&file).unwrap();
    (meta.entries, meta.file_bytes) = (claimed, file.len() as u64);
    let edit = VersionEdit {
        removed: vec![(0, meta.id)],
        added: vec![(0, level, run, meta)],
        ..VersionEdit::default()
    };
    state.apply(&edit).unwrap();
    let number = loaded.number + 100;
    Manifest::create(&fs, dir, number, &state).unwrap().close().unwrap();
    set_current(&fs, dir, number).unwrap();
    fs
}

/// A filter for the whole tree was sized by the number of keys that the tables claimed, so a damaged table of a kilobyte could make
/// it allocate gigabytes.
#[test]
fn a_claimed_entry_count_takes_no_memory() {
    for claimed in [100, 1 << 30, 1 << 45] {
        let fs = database(claimed);
        let db = Db::open("db", options(&fs)).unwrap();
        db.settle_filters().unwrap();
        let bytes: u64 = db.default_keyspace().stats().global_filter.map_or(0, |filter| filter.bytes);
        assert!(bytes < 1 << 20, "a table that claims {claimed} entries: {bytes} bytes");
        assert_eq!(db.get("key 042").unwrap().as_deref(), Some(&b"value"[..]));
        assert_eq!(db.get("key 100").unwrap(), None);
    }
}
