//! Databases whose trees are shaped by policies other than leveling, and when level 0 of a leveled
//! one is merged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tamis::clock::ManualClock;
use tamis::options::CompactionChoice;
use tamis::{Db, KeyspaceOptions, Options};

fn options(compaction: CompactionChoice) -> Options {
    let keyspace = KeyspaceOptions {
        compaction,
        memtable_bytes: 4 << 10,
        table_bytes: 8 << 10,
        level0_runs: 3,
        slowdown_runs: 6,
        stop_runs: 12,
        size_ratio: tamis::options::PerLevel::new(vec![3]).unwrap(),
        levels: 5,
        ..KeyspaceOptions::default()
    };
    Options { keyspace, ..Options::default() }
}

/// Writes with overwrites and deletes; returns the expected contents in `expected`.
fn write(db: &Db, expected: &mut BTreeMap<Vec<u8>, Vec<u8>>, rounds: u64, seed: u64) {
    let mut random = seed;
    for i in 0..rounds {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let key = format!("key {:05}", (random >> 33) % 4000).into_bytes();
        if random >> 60 == 0 {
            db.delete(&key).unwrap();
            expected.remove(&key);
        } else {
            let value =
                format!("value {i} of {seed} {}", "x".repeat((random >> 40) as usize % 40)).into_bytes();
            db.put(&key, &value).unwrap();
            expected.insert(key, value);
        }
    }
}

fn check(db: &Db, expected: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let found: Vec<(Vec<u8>, Vec<u8>)> = db
        .range::<&[u8]>(..)
        .map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
        .collect();
    assert!(found.iter().map(|(key, value)| (key, value)).eq(expected), "an iteration differs");
    for i in 0..4000 {
        let key = format!("key {i:05}").into_bytes();
        assert_eq!(db.get(&key).unwrap().map(|value| value.to_vec()), expected.get(&key).cloned());
    }
}

#[test]
fn a_tree_of_fragments_reads_back_after_many_merges_reopening_and_a_manual_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = BTreeMap::new();
    for round in 0..3 {
        let db = options(CompactionChoice::Fragmented).open(dir.path()).unwrap();
        write(&db, &mut expected, 12_000, round);
        check(&db, &expected);
        db.verify().unwrap();
        if round == 2 {
            db.compact().unwrap();
            check(&db, &expected);
            db.verify().unwrap();
        }
        db.close().unwrap();
    }
}

#[test]
fn a_leveled_tree_becomes_fragmented_and_leveled_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = BTreeMap::new();
    for (round, policy) in
        [CompactionChoice::Leveling, CompactionChoice::Fragmented, CompactionChoice::Leveling]
            .into_iter()
            .enumerate()
    {
        if round == 2 {
            // Leveling takes over a tree whose levels are single runs.
            let db = options(CompactionChoice::Fragmented).open(dir.path()).unwrap();
            db.compact().unwrap();
            db.close().unwrap();
        }
        let db = options(policy).open(dir.path()).unwrap();
        write(&db, &mut expected, 8_000, round as u64);
        check(&db, &expected);
        db.verify().unwrap();
        db.close().unwrap();
    }
}

#[test]
fn first_in_first_out_keeps_the_newest_data_and_never_shows_overwritten_values() {
    for policy in [CompactionChoice::Fifo, CompactionChoice::TimeWindow] {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(policy);
        options.keyspace.retain_bytes = 64 << 10;
        let db = options.open(dir.path()).unwrap();
        let mut expected = BTreeMap::new();
        write(&db, &mut expected, 20_000, 1);
        db.flush().unwrap();
        db.compact().unwrap();
        let mut found = 0;
        for item in db.range::<&[u8]>(..) {
            let (key, value) = item.unwrap();
            assert_eq!(expected.get(&key.to_vec()), Some(&value.to_vec()), "an old version reappeared");
            found += 1;
        }
        assert!((100..expected.len()).contains(&found), "{found} of {}", expected.len());
        db.verify().unwrap();
        db.close().unwrap();
    }
}

/// Under updates of the same keys blocks of flushes get longer from round to round, and the
/// manifest keeps their length.
#[test]
fn a_deterministic_tree_keeps_the_lengths_of_its_blocks_over_a_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(CompactionChoice::Leveling);
    options.keyspace.merge = tamis::options::MergeGranularity::Full;
    options.keyspace.deterministic = true;
    options.keyspace.levels = 3;
    options.set("keyspace.compression", "none").unwrap();
    // The last flush in the last level, which changes when a round ends.
    let merged = |db: &Db| {
        let levels = &db.stats().keyspaces[0].levels;
        levels[2].runs.first().map_or(0, |run| run.epochs.1)
    };
    let mut db = options.clone().open(dir.path()).unwrap();
    for i in 0..2000 {
        db.put(format!("key {i:05}"), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    db.compact().unwrap();
    let (mut ends, mut last) = (Vec::new(), merged(&db));
    for flush in 0..150u64 {
        for i in 0..20 {
            db.put(format!("key {:05}", i * 100), format!("{flush}")).unwrap();
        }
        db.flush().unwrap();
        db.wait_for_compaction().unwrap();
        if merged(&db) != last {
            last = merged(&db);
            ends.push(last);
        }
        if flush % 20 == 19 {
            db.close().unwrap();
            db = options.clone().open(dir.path()).unwrap();
        }
    }
    let rounds: Vec<u64> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // Three flushes to level 1, and three batches of these to the last; at most four times as many.
    assert!(rounds.len() > 2 && rounds[1..].iter().all(|&flushes| flushes == 36), "{rounds:?} {ends:?}");
    for i in 0..2000 {
        let expected = if i % 100 == 0 { b"149".to_vec() } else { vec![7; 100] };
        assert_eq!(db.get(format!("key {i:05}")).unwrap().unwrap(), expected);
    }
}

/// Level 0 collects runs while flushes follow each other. Nothing but time or a caller that waits
/// ends that, and both do.
#[test]
fn collected_runs_are_merged_after_a_pause_without_a_write_and_by_settle() {
    let clock = Arc::new(ManualClock::new(1_700_000_000));
    let mut options = options(CompactionChoice::Leveling);
    options.clock = Some(clock.clone());
    options.keyspace.read_compaction = false;
    // No flush but those below.
    options.keyspace.memtable_bytes = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let db = options.open(dir.path()).unwrap();
    let level0 = || db.stats().keyspaces[0].levels[0].runs.len();
    let load = || {
        for run in 0..4u8 {
            (0..100u8).for_each(|key| db.put([key], [run]).unwrap());
            db.flush().unwrap();
        }
    };
    load();
    clock.advance(4);
    assert_eq!(level0(), 4, "three are enough, and five too many to collect");
    clock.advance(1);
    let deadline = Instant::now() + Duration::from_secs(60);
    while level0() > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(level0(), 0, "nothing was merged within a minute");
    load();
    assert_eq!(level0(), 4);
    db.wait_for_compaction().unwrap();
    assert_eq!(level0(), 0);
}
