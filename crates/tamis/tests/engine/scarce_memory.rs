//! Filters where mapped files pass half of the memory: those of mapped tables move from the page
//! cache, which is reclaimed there, into memory.

use std::sync::Arc;

use tamis::explain::ExplainOutcome;
use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::io::DiskFs;
use tamis::options::Compression;
use tamis::{Db, Keyspace, KeyspaceOptions, Options};

/// Keys of a table: of about 460 KiB, with a filter of more than a page, as smaller ones are always
/// copied.
const KEYS: u32 = 5000;

/// Four tables are half of it, but not five.
const MEMORY: u64 = 4 << 20;

fn options() -> Options {
    let fs = DiskFs::new().with_memory(MEMORY);
    Options { file_system: Some(Arc::new(fs)), keyspace: quiet(), ..Options::default() }
}

fn quiet() -> KeyspaceOptions {
    // The ingested table would be compressed to nothing.
    let compression = Compression::None.into();
    KeyspaceOptions { auto_compaction: false, compression, ..KeyspaceOptions::default() }
}

fn key(table: u32, i: u32) -> Vec<u8> {
    format!("key{i:08}of{table}").into_bytes()
}

fn write(db: &Db, keyspace: &Keyspace, table: u32) {
    for i in 0..KEYS {
        keyspace.put(key(table, i), [7; 80]).unwrap();
    }
    db.flush().unwrap();
}

/// Filters in mapped tables, and in memory besides.
fn filters(db: &Db) -> (u64, u64) {
    let stats = db.stats();
    (stats.filter_mapped_bytes, stats.memory.filters)
}

/// The same when what is in mapped tables is copied, which the thread of a flush or a compaction
/// does after those who wait for it were told that it has ended.
fn copied(db: &Db) -> (u64, u64) {
    for _ in 0..10_000 {
        if filters(db).0 == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    filters(db)
}

/// Every key is found, and nearly no other one needs a block.
fn check(keyspace: &Keyspace, tables: u32) {
    let (mut blocks, mut absent) = (0, 0);
    for i in (0..KEYS).step_by(7) {
        for table in 0..tables {
            assert!(keyspace.get(key(table, i)).unwrap().is_some(), "{i} of {table}");
        }
        let read = keyspace.explain_get(key(9, i)).unwrap();
        assert_eq!(read.outcome, ExplainOutcome::Absent);
        assert_eq!(read.cost.filter_probes, u64::from(tables), "each table has a usable filter");
        blocks += read.cost.block_reads;
        absent += 1;
    }
    assert!(blocks < absent * u64::from(tables) / 20, "{blocks} blocks for {absent} absent keys");
}

/// The filters of tables from before the limit was passed stayed in their files, where an absent
/// key took 4.9 µs of page faults.
#[test]
#[cfg_attr(target_endian = "big", ignore = "filters are not used in place there")]
fn filters_of_all_keyspaces_move_into_memory() {
    let dir = tempfile::tempdir().unwrap();
    let db = options().open(dir.path()).unwrap();
    let (first, other) = (db.default_keyspace(), db.create_keyspace("other", quiet()).unwrap());
    write(&db, first, 0);
    write(&db, first, 1);
    write(&db, &other, 0);
    let (mapped, held) = filters(&db);
    assert!(mapped > 3 * u64::from(KEYS) && held < 4096, "in the files: {mapped}, {held}");
    let old = db.snapshot();
    write(&db, &other, 1);
    write(&db, first, 2);
    let all = db.stats().filter_bytes;
    let (mapped, held) = copied(&db);
    assert!(mapped == 0 && held >= all && all > 5 * u64::from(KEYS), "copied: {mapped}, {held} of {all}");
    check(first, 3);
    check(&other, 2);
    assert!(old.get(key(1, 5)).unwrap().is_some());
}

#[test]
#[cfg_attr(target_endian = "big", ignore = "filters are not used in place there")]
fn an_opening_a_follower_and_an_ingestion_copy_them_too() {
    let dir = tempfile::tempdir().unwrap();
    let db = options().open(dir.path()).unwrap();
    let (first, other) = (db.default_keyspace(), db.create_keyspace("other", quiet()).unwrap());
    let follower = options().open_follower(dir.path()).unwrap();
    write(&db, first, 0);
    write(&db, first, 1);
    follower.catch_up().unwrap();
    assert!(filters(&follower).0 > 2 * u64::from(KEYS));
    write(&db, &other, 0);
    write(&db, &other, 1);
    follower.catch_up().unwrap();
    assert!(filters(&follower).0 > 4 * u64::from(KEYS));

    let file = dir.path().join("ingested");
    let mut builder = ExternalTableBuilder::create(&file, &quiet()).unwrap();
    (0..KEYS).for_each(|i| builder.put(key(2, i), [7; 80]).unwrap());
    builder.finish().unwrap();
    assert!(filters(&db).0 > 4 * u64::from(KEYS));
    let report = first.ingest(&[&file], IngestOptions::default()).unwrap();
    assert!(report.bytes > 400 << 10);
    assert_eq!(filters(&db).0, 0, "a table that came by ingestion counts");
    check(first, 3);
    follower.catch_up().unwrap();
    assert_eq!(filters(&follower).0, 0);
    check(follower.default_keyspace(), 3);
    check(&follower.keyspace("other").unwrap(), 2);
    drop((first, other, follower));
    db.close().unwrap();

    let db = options().open(dir.path()).unwrap();
    assert_eq!(filters(&db).0, 0, "also of the keyspace that was opened before the other");
    check(db.default_keyspace(), 3);
    check(&db.keyspace("other").unwrap(), 2);
}
