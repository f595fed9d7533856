//! Bugs found by the other tests of this directory, each with a minimal reproduction.

use std::sync::Arc;

use tamis::Options;
use tamis::io::MemFs;
use tamis::options::ReadMode;
use tamis_testkit::{FaultPlan, FaultyFs, OpClass};

fn tiny() -> Options {
    let mut options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
    options.keyspace.memtable_bytes = 4 << 10;
    options.keyspace.table_bytes = 4 << 10;
    options.keyspace.auto_compaction = false;
    options
}

fn keys(iter: impl Iterator<Item = Result<(tamis::Slice, tamis::Slice), tamis::ReadError>>) -> Vec<Vec<u8>> {
    iter.map(|item| item.expect("an item").0.to_vec()).collect()
}

/// `seek` forgot the last key returned from the front and put nothing in its place: `next_back`
/// continued below the sought key, and returned items before the front.
#[test]
fn the_back_of_an_iterator_stops_at_a_front_moved_by_seek() {
    let db = tiny().open("/db").expect("opening");
    for key in ["a", "b", "c", "d"] {
        db.put(key, "").expect("a write");
    }
    let mut iter = db.iter();
    iter.seek("c").expect("a seek");
    assert_eq!(keys(iter.by_ref().rev()), [b"d", b"c"]);
    assert!(iter.next().is_none());
}

/// An exhausted end stayed exhausted when a seek backwards put items between the ends again.
#[test]
fn a_seek_backwards_leaves_items_for_the_back_too() {
    let db = tiny().open("/db").expect("opening");
    for key in ["a", "b", "c", "d"] {
        db.put(key, "").expect("a write");
    }
    let mut iter = db.iter();
    assert_eq!(iter.next_back().expect("an item").expect("an item").0, "d");
    assert_eq!(iter.by_ref().count(), 3);
    assert!(iter.next_back().is_none());
    iter.seek("b").expect("a seek");
    assert_eq!(keys(iter.by_ref().rev()), [b"c", b"b"]);
}

/// A checkpoint linked the rolled logs. The current one is not rolled while it is empty, but the
/// manifest names it as the first log needed, so the copy could not be opened: "the log is
/// missing".
#[test]
fn a_checkpoint_right_after_opening_or_flushing_can_be_opened() {
    let options = tiny();
    let db = options.clone().open("/db").expect("opening");
    db.checkpoint("/empty").expect("a checkpoint");
    db.put("key", "value").expect("a write");
    db.flush().expect("a flush");
    db.checkpoint("/flushed").expect("a checkpoint");
    assert_eq!(options.clone().open("/empty").expect("opening").iter().count(), 0);
    assert_eq!(options.open("/flushed").expect("opening").iter().count(), 1);
}

/// A compaction reset the sequence number of a version to 0 when no older table held the version's
/// key, but kept a range tombstone over it (older than the version) because an older table held
/// other keys of its range. The tombstone then hid the version: a put after a `delete_range` was
/// lost.
#[test]
fn a_put_after_a_delete_range_survives_a_compaction_above_older_data_beside_it() {
    let mut options = tiny();
    options.keyspace.levels = 3;
    options.keyspace.size_ratio = 2.into();
    options.keyspace.level0_runs = 1;
    let db = options.clone().open("/db").expect("opening");
    // Enough data in the last level that level 0 compacts into the one above it.
    for i in 0..1000 {
        db.put(format!("m{i:03}"), [b'x'; 200]).expect("a write");
    }
    db.compact().expect("a compaction");
    db.close().expect("closing");
    options.keyspace.auto_compaction = true;
    let db = options.open("/db").expect("opening");
    db.wait_for_compaction().expect("settling");
    let below = || db.stats().keyspaces[0].levels[2].runs.clone();
    let untouched = below();
    assert_eq!(untouched.len(), 1);
    // No table is entirely covered by it, or it would be dropped.
    db.delete_range("a".."m001").expect("a write");
    db.put("k", "after").expect("a write");
    db.flush().expect("a flush");
    db.put("k1", "after").expect("a write");
    db.flush().expect("a flush");
    db.wait_for_compaction().expect("settling");
    assert_eq!(below(), untouched, "the compaction ended above the last level");
    assert_eq!(db.get("k").expect("a get").expect("it was put after the delete"), "after");
    assert_eq!(db.iter().count(), 1001);
}

/// The front advanced before it returned an item: when that failed, the error replaced the item,
/// and neither end returned it any more. The same happened at the back for a key whose older
/// version could not be read.
#[test]
fn an_error_loses_no_item() {
    // First one read at a time; then combined reads and readahead, which make fewer reads.
    for (depth, least) in [(1, 20), (32, 8)] {
        let fs = FaultyFs::new(1);
        let mut options = tiny();
        options.file_system = Some(Arc::new(fs.clone()));
        (options.read_mode, options.cache_bytes) = (ReadMode::Buffered, 0);
        options.read_queue_depth = depth;
        (options.keyspace.block_bytes, options.keyspace.memtable_bytes) = (256, 64 << 10);
        let db = options.open("/db").expect("opening");
        let all: Vec<_> = (0..50).map(|i| format!("{i:03}").into_bytes()).collect();
        for _ in 0..2 {
            for key in &all {
                db.put(key, [b'x'; 60]).expect("a write");
            }
            db.flush().expect("a flush");
        }
        let mut failures = 0;
        for (at, rev) in (0..40).flat_map(|at| [(at, false), (at, true)]) {
            let mut iter = db.iter();
            let fail_at = Some(fs.operations() + at);
            // What could not be read ahead is read again when it is needed.
            let sticky = depth > 1;
            fs.plan(FaultPlan { fail_at, sticky, only: Some(OpClass::Read), ..FaultPlan::none() });
            let mut given: Vec<Vec<u8>> = Vec::new();
            while let Some(item) = if rev { iter.next_back() } else { iter.next() } {
                match item {
                    Ok((key, _)) => given.push(key.to_vec()),
                    Err(_) => failures += 1,
                }
            }
            fs.plan(FaultPlan::none());
            given.extend(if rev { keys(iter) } else { keys(iter.rev()) });
            given.sort();
            assert_eq!(given, all, "read {at} failed, backwards: {rev}");
        }
        assert!(failures > least, "{failures} reads failed");
    }
}
