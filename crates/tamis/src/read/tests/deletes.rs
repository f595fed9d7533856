//! Range deletes cost what they are, not what they hide: counters instead of times.

use std::sync::Arc;

use crate::io::MemFs;
use crate::observe::cost::ReadCost;
use crate::options::CompactionChoice;
use crate::{Db, Options};

const KEYS: u32 = 3000;

fn key(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

fn open(adjust: impl FnOnce(&mut Options)) -> Db {
    let mut options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
    options.keyspace.auto_compaction = false;
    options.keyspace.block_bytes = 256;
    adjust(&mut options);
    let db = options.open("/db").expect("opening");
    for i in 0..KEYS {
        db.put(key(i), "value").expect("a write");
    }
    db
}

fn cost<T>(db: &Db, work: impl FnOnce() -> T) -> (T, ReadCost) {
    let before = db.stats().read;
    let result = work();
    (result, db.stats().read - before)
}

/// The first iteration, forwards and backwards, over a hole from key 10 to ten before the end.
fn check_first_reads(db: &Db, most: u64) {
    let (low, high) = (10, KEYS - 10);
    let snapshot = db.snapshot();
    // An iterator that learns nothing for the next one.
    let (found, used) = cost(db, || snapshot.range(key(low)..).next().expect("an item").expect("no error").0);
    assert_eq!(found, key(high));
    assert!(used.tombstones_skipped < most, "{used:?}");
    let (found, used) =
        cost(db, || snapshot.range(..key(high)).next_back().expect("an item").expect("no error").0);
    assert_eq!(found, key(low - 1));
    assert!(used.tombstones_skipped < most, "{used:?}");
    let (count, used) = cost(db, || db.iter().count());
    assert_eq!(count as u32, low + KEYS - high);
    assert!(used.tombstones_skipped < most, "{used:?}");
}

/// The first iteration behind a range delete stepped over each key in it.
#[test]
fn the_first_iteration_jumps_to_the_end_of_a_range_delete_in_a_memtable() {
    let db = open(|_| {});
    db.delete_range(key(10)..key(KEYS - 10)).expect("a write");
    check_first_reads(&db, 20);
    // Newer entries in the same memtable.
    let db = open(|_| {});
    db.delete_range(key(10)..key(KEYS - 10)).expect("a write");
    db.put(key(0), "newer").expect("a write");
    check_first_reads(&db, 20);
    // Sealed by a snapshot's flush, or not: an old snapshot still sees all.
    let db = open(|_| {});
    let before = db.snapshot();
    db.delete_range(key(10)..key(KEYS - 10)).expect("a write");
    assert_eq!(before.iter().count() as u32, KEYS);
    assert_eq!(before.iter().rev().count() as u32, KEYS);
    check_first_reads(&db, 20);
}

/// The same in tables, of one run and of several, with the delete in memory and in a table of its
/// own. Tables that lie in the hole are not opened: their blocks are not read.
#[test]
fn the_first_iteration_jumps_to_the_end_of_a_range_delete_in_tables() {
    for flushed in [false, true] {
        let db = open(|options| {
            options.keyspace.table_bytes = 4 << 10;
            options.keyspace.memtable_bytes = 1 << 20;
        });
        db.compact().expect("a compaction");
        assert!(db.default_keyspace().inner.view.load().version.tables.len() > 5);
        // A snapshot keeps the tables that the delete covers.
        let all = db.snapshot();
        db.delete_range(key(10)..key(KEYS - 10)).expect("a write");
        if flushed {
            db.flush().expect("a flush");
        }
        check_first_reads(&db, 40);
        let (_, used) = cost(&db, || db.range(key(10)..).next());
        assert!(used.block_reads < 8, "{used:?}");
        assert_eq!((all.iter().count() as u32, all.iter().rev().count() as u32), (KEYS, KEYS));
    }
}

/// A get of a key under a newer range delete does not look into tables that are older as a whole.
#[test]
fn a_get_under_a_range_delete_searches_no_older_table() {
    let db = open(|_| {});
    db.flush().expect("a flush");
    let all = db.snapshot();
    db.delete_range(key(10)..key(KEYS - 10)).expect("a write");
    let (found, used) = cost(&db, || db.get(key(500)).expect("a get"));
    assert_eq!((found, used.runs_searched), (None, 0), "{used:?}");
    let keys = [5, 500, 2995].map(key);
    let (found, used) = cost(&db, || db.multi_get(&keys).expect("a read"));
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(used.runs_searched, 2, "{used:?}");
    assert!(all.get(key(500)).expect("a get").is_some());
}

/// Everything that a range delete or a reader of many does was done for each of them again.
#[test]
fn a_moving_cutoff_leaves_one_fragment_and_nested_ranges_two_for_each() {
    let db = open(|_| {});
    let fragments = |db: &Db| {
        let mut count = 0;
        let view = db.default_keyspace().inner.view.load();
        view.memtables.active.memtable.range_map().for_each(|_| count += 1);
        count
    };
    for i in 0..1000 {
        db.delete_range(..key(i)).expect("a write");
    }
    assert_eq!(fragments(&db), 1);
    assert_eq!(db.iter().next().expect("an item").expect("no error").0, key(999));
    let middle = KEYS / 2 + 500;
    for i in 0..400 {
        db.delete_range(key(middle - 400 + i)..key(middle + 400 - i)).expect("a write");
    }
    assert_eq!(fragments(&db), 1 + 799);
    let (count, used) = cost(&db, || db.iter().count());
    assert_eq!(count as u32, KEYS - 999 - 800);
    assert!(used.tombstones_skipped < 30, "{used:?}");
    db.flush().expect("a flush");
    assert_eq!(db.stats().keyspaces[0].range_tombstones, 800);
    assert_eq!(db.iter().count() as u32, KEYS - 999 - 800);
}

/// With every compaction policy, and many range deletes between snapshots, all readers see what
/// they should.
#[test]
fn snapshots_between_many_range_deletes_see_their_keys_in_memory_and_in_tables() {
    for compaction in [CompactionChoice::Leveling, CompactionChoice::Tiering, CompactionChoice::Fragmented] {
        let db = open(|options| options.keyspace.compaction = compaction);
        let mut snapshots = Vec::new();
        for i in 0..60 {
            db.delete_range(key(50 * i)..key(50 * i + 25)).expect("a write");
            db.delete_range(..key(10 * i)).expect("a write");
            if i % 7 == 0 {
                let live = |k: &u32| *k >= 10 * i && (k / 50 > i || k % 50 >= 25);
                snapshots.push((db.snapshot(), (0..KEYS).filter(live).collect::<Vec<_>>()));
            }
        }
        let check = || {
            for (snapshot, expected) in &snapshots {
                let keys = |k: &u32| key(*k).to_vec();
                let found = snapshot.iter().map(|item| item.expect("an item").0.to_vec());
                assert!(found.eq(expected.iter().map(keys)));
                let found = snapshot.iter().rev().map(|item| item.expect("an item").0.to_vec());
                assert!(found.eq(expected.iter().rev().map(keys)));
                for k in (0..KEYS).step_by(13) {
                    assert_eq!(snapshot.get(key(k)).expect("a get").is_some(), expected.contains(&k));
                }
            }
        };
        check();
        db.flush().expect("a flush");
        check();
        db.compact().expect("a compaction");
        check();
    }
}
