//! Elastic filters: their memory follows the reads, stays within its budget, and never causes a
//! wrong answer.
//!
//! Debug builds compare every rejection with the data. Nothing here is timed; the tests wait for
//! background threads. `TAMIS_TEST_SCALE=10` runs ten times as many histories.

#![allow(missing_docs, reason = "tests")]

mod adjusting;
mod batches;
mod corners;
mod faults;
mod histories;
mod memory;
mod shared;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tamis::io::FileSystem;
use tamis::options::{FilterPolicy, ReadMode};
use tamis::stats::{ElasticStats, SegmentStats};
use tamis::{Db, KeyspaceOptions, Options};
use tamis_testkit::Rng;

fn scale() -> u64 {
    std::env::var("TAMIS_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Segments of 128 keys, units of one cache line, tables of a few hundred keys.
fn small_keyspace() -> KeyspaceOptions {
    KeyspaceOptions {
        filter: FilterPolicy::elastic(),
        filter_unit_bytes: 128,
        memtable_bytes: 64 << 10,
        table_bytes: 64 << 10,
        block_bytes: 512,
        level0_runs: 2,
        size_ratio: 4.into(),
        ..KeyspaceOptions::default()
    }
}

/// Options of a database of such keyspaces, in which every get is counted and every block is read
/// from a file.
fn small(fs: Arc<dyn FileSystem>, budget: u64) -> Options {
    Options {
        file_system: Some(fs),
        read_mode: ReadMode::Buffered,
        cache_bytes: 0,
        filter_budget_bytes: budget,
        heat_sampling: Some(1),
        filter_life_time: Some(1000),
        keyspace: small_keyspace(),
        ..Options::default()
    }
}

fn open(options: &Options) -> Db {
    let db = options.clone().open(Path::new("/db")).expect("opening");
    db.wait_for_filters().expect("settling");
    db
}

/// Key number `i`: every other number exists, so that each absent key has neighbours that exist.
fn key(i: u64) -> [u8; 8] {
    (i * 2).to_be_bytes()
}

fn absent(i: u64) -> [u8; 8] {
    (i * 2 + 1).to_be_bytes()
}

fn value(i: u64) -> Vec<u8> {
    (0..10).flat_map(|j| (i * 10 + j).to_le_bytes()).collect()
}

/// Puts keys 0 to `count` in random order and waits for compactions.
fn fill(db: &Db, count: u64) {
    let mut order: Vec<u64> = (0..count).collect();
    Rng::new(count).shuffle(&mut order);
    order.iter().for_each(|&i| db.put(key(i), value(i)).expect("a put"));
    settle(db);
}

fn settle(db: &Db) {
    db.flush().expect("a flush");
    db.wait_for_compaction().expect("settling");
    db.wait_for_filters().expect("settling");
}

fn stats(db: &Db) -> ElasticStats {
    db.stats().elastic.expect("elastic filters")
}

/// Gets an absent key or, rarely, an existing one; nine times out of ten within `hot`, otherwise
/// below `count`.
fn get_one(db: &Db, rng: &mut Rng, hot: &std::ops::Range<u64>, count: u64) {
    let i = match rng.below(10) {
        0 => rng.below(count),
        _ => hot.start + rng.below(hot.end - hot.start),
    };
    match rng.below(8) {
        0 => assert_eq!(db.get(key(i)).expect("a get").as_deref(), Some(&value(i)[..]), "key {i}"),
        _ => assert_eq!(db.get(absent(i)).expect("a get"), None, "absent key {i}"),
    }
}

/// Waits for a background thread to do something.
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(60), "timed out after a minute waiting for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// False positives per get of absent keys of a range.
fn false_positives(db: &Db, range: std::ops::Range<u64>) -> f64 {
    let before = db.stats().read;
    let count = range.end - range.start;
    range.for_each(|i| assert_eq!(db.get(absent(i)).expect("a get"), None));
    (db.stats().read - before).false_positives as f64 / count as f64
}

/// The budget for one unit of every segment, and the segments.
fn one_each(db: &Db) -> (u64, Vec<SegmentStats>) {
    let segments = db.segments();
    let units: u64 = segments.iter().map(|segment| segment.unit_bytes + 16).sum();
    (units + stats(db).index_bytes, segments)
}

/// Memory is within the budget, unless what is always needed is not.
fn fits(stats: &ElasticStats, budget: u64) -> bool {
    stats.used_bytes <= budget.max(stats.index_bytes)
}

/// Waits until every counted get has been processed.
fn quiet(db: &Db) {
    let mut before = 0;
    wait_until("the background thread to be idle", || {
        std::thread::sleep(Duration::from_millis(20));
        std::mem::replace(&mut before, stats(db).gets) == stats(db).gets
    });
}
