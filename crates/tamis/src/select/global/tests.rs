//! Global filters of hostile tables.

use std::path::Path;

use std::sync::Arc;

use tamis_files::tree::edit::VersionEdit;
use tamis_files::tree::files::table_path;
use tamis_files::tree::manifest::{Manifest, set_current};

use crate::io::{FileSystem, MemFs, Usage, read_file};
use crate::options::FilterChoice;
use crate::reseal;
use crate::{KeyspaceOptions, Options};

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
    let db = options(&fs).open(dir).unwrap();
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

/// A filter for the whole tree was sized by the number of keys that the tables claimed, so a
/// damaged table of a kilobyte could make it allocate gigabytes.
#[test]
fn a_claimed_entry_count_takes_no_memory() {
    for claimed in [100, 1 << 30, 1 << 45] {
        let fs = database(claimed);
        let db = options(&fs).open("db").unwrap();
        db.wait_for_filters().unwrap();
        let bytes: u64 = db.default_keyspace().stats().global_filter.map_or(0, |filter| filter.bytes);
        assert!(bytes < 1 << 20, "a table that claims {claimed} entries: {bytes} bytes");
        assert_eq!(db.get("key 042").unwrap().as_deref(), Some(&b"value"[..]));
        assert_eq!(db.get("key 100").unwrap(), None);
    }
}

/// All keys with another beginning than those of a partition had one number. They were in a single
/// segment, and nearly every absent one matched, until the partition had doubled.
#[test]
fn keys_with_another_beginning_get_a_partition_of_their_own() {
    let fs = MemFs::new();
    let mut options = options(&fs);
    options.keyspace.auto_compaction = false;
    let db = options.open("db").unwrap();
    let key =
        |beginning: &str, i: u64| format!("{beginning}/{:016}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12);
    let write = |beginning: &str, keys: std::ops::Range<u64>| {
        keys.for_each(|i| db.put(key(beginning, i), "value").unwrap());
        db.flush().unwrap();
        db.wait_for_filters().unwrap();
    };
    let stats = || db.default_keyspace().stats().global_filter.unwrap();
    write("accounts", 0..30_000);
    assert_eq!(stats().partitions, 1);
    for flush in 0..10 {
        write("blobs", flush * 2000..(flush + 1) * 2000);
    }
    let stats = stats();
    assert!(stats.partitions >= 2, "{} partitions", stats.partitions);
    assert!(stats.expected_rate < 0.2, "{}", stats.expected_rate);
    let before = db.stats().read.filter_negatives;
    for i in 20_000..24_000 {
        assert_eq!(db.get(key("blobs", i)).unwrap(), None);
    }
    let rejected = db.stats().read.filter_negatives - before;
    assert!(rejected > 3200, "{rejected} of 4000 absent keys were rejected");
    for i in (0..20_000).step_by(7) {
        assert!(db.get(key("blobs", i)).unwrap().is_some());
    }
}
