//! The rule of validity, case by case; and a shard beside a model.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tamis_filter::Digest;

use super::shard::{Name, Shard};
use super::{KeyspaceRecords, RecordCache, RunsChange, Sight};
use crate::clock::ManualClock;
use crate::explain::ExplainStep;
use crate::operators::{CompactionFilter, Decision, Operators};
use crate::options::{CompactionChoice, KeyspaceOptions, Options};
use crate::{Db, WriteBatch};

fn options() -> Options {
    let keyspace = KeyspaceOptions::default().auto_compaction(false);
    Options::in_memory().record_cache_bytes(1 << 20).keyspace(keyspace)
}

fn hits(db: &Db) -> u64 {
    db.stats().read.record_hits
}

/// Reads a key often enough to cache it, and checks that the last read was a hit.
fn warm(db: &Db, key: &str) {
    for _ in 0..3 {
        db.get(key).unwrap();
    }
    let before = hits(db);
    db.get(key).unwrap();
    assert_eq!(hits(db), before + 1, "{key} is cached");
}

/// A database with `k` = `old` in a run, cached.
fn warmed() -> Db {
    let db = options().open("db").unwrap();
    db.put("k", "old").unwrap();
    db.flush().unwrap();
    warm(&db, "k");
    db
}

#[test]
fn what_is_read_again_and_again_asks_no_filter() {
    let db = warmed();
    let before = db.stats().read;
    assert_eq!(db.get("k").unwrap().unwrap(), "old");
    let cost = db.stats().read - before;
    assert_eq!((cost.record_hits, cost.filter_probes, cost.block_reads, cost.digests), (1, 0, 0, 1));
}

#[test]
fn a_newer_value_counts_in_a_memtable_and_in_a_run() {
    let db = warmed();
    db.put("k", "new").unwrap();
    assert_eq!(db.get("k").unwrap().unwrap(), "new");
    db.flush().unwrap();
    assert_eq!(db.get("k").unwrap().unwrap(), "new");
    warm(&db, "k");
    db.compact().unwrap();
    assert_eq!(db.get("k").unwrap().unwrap(), "new");
}

#[test]
fn a_snapshot_reads_its_own_value() {
    let db = warmed();
    let old = db.snapshot();
    db.put("k", "new").unwrap();
    db.flush().unwrap();
    warm(&db, "k");
    assert_eq!(old.get("k").unwrap().unwrap(), "old");
    assert_eq!(db.get("k").unwrap().unwrap(), "new");
    // What a snapshot reads is not the newest version, and is not cached.
    for _ in 0..4 {
        assert_eq!(old.get("k").unwrap().unwrap(), "old");
    }
    assert_eq!(db.get("k").unwrap().unwrap(), "new");
}

#[test]
fn deletes_hide_what_is_cached() {
    for step in 0..3 {
        let db = warmed();
        match step {
            0 => db.delete("k").unwrap(),
            1 => db.delete_range("a".."z").unwrap(),
            _ => db.default_keyspace().clear().unwrap(),
        }
        assert_eq!(db.get("k").unwrap(), None, "{step}: in the memtable");
        db.flush().unwrap();
        assert_eq!(db.get("k").unwrap(), None, "{step}: in a run");
        db.compact().unwrap();
        assert_eq!(db.get("k").unwrap(), None, "{step}: merged");
    }
}

#[test]
fn what_expires_is_not_returned() {
    let clock = Arc::new(ManualClock::new(1_000));
    let keyspace = KeyspaceOptions::default().time_to_live(Some(Duration::from_secs(10)));
    let db = options().clock(Some(clock.clone())).keyspace(keyspace).open("db").unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    warm(&db, "k");
    clock.advance(100);
    db.put("other", "v").unwrap();
    clock.advance(100);
    assert_eq!(db.get("k").unwrap(), None);
}

#[test]
fn an_ingestion_replaces_what_is_cached() {
    let dir = tempfile::tempdir().unwrap();
    let db = options().file_system(None).open(dir.path().join("db")).unwrap();
    db.put("k", "old").unwrap();
    db.flush().unwrap();
    warm(&db, "k");
    let path = dir.path().join("new.tam");
    let mut table =
        crate::ingest::ExternalTableBuilder::create(&path, &db.default_keyspace().options()).unwrap();
    table.put("k", "new").unwrap();
    table.finish().unwrap();
    db.default_keyspace().ingest(&[&path], Default::default()).unwrap();
    assert_eq!(db.get("k").unwrap().unwrap(), "new");
    warm(&db, "k");
    assert_eq!(db.get("k").unwrap().unwrap(), "new");
}

#[test]
fn keyspaces_are_told_apart() {
    let db = options().open("db").unwrap();
    let other = db.create_keyspace("other", KeyspaceOptions::default()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put("k", "default").put_in(&other, "k", "other");
    db.write(batch).unwrap();
    db.flush().unwrap();
    other.flush().unwrap();
    for _ in 0..5 {
        assert_eq!(db.get("k").unwrap().unwrap(), "default");
        assert_eq!(other.get("k").unwrap().unwrap(), "other");
    }
    db.drop_keyspace("other").unwrap();
    let again = db.create_keyspace("other", KeyspaceOptions::default()).unwrap();
    assert_eq!(again.get("k").unwrap(), None);
}

#[test]
fn a_follower_does_not_return_what_the_writer_has_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let with = || options().file_system(None);
    let db = with().open(dir.path()).unwrap();
    db.put("k", "old").unwrap();
    db.flush().unwrap();
    let follower = with().open_follower(dir.path()).unwrap();
    warm(&follower, "k");
    for flushed in [false, true] {
        db.put("k", if flushed { "newer" } else { "new" }).unwrap();
        if flushed {
            db.flush().unwrap();
        }
        follower.catch_up().unwrap();
        assert_eq!(follower.get("k").unwrap(), db.get("k").unwrap());
    }
}

#[derive(Debug)]
struct DropAll;

impl CompactionFilter for DropAll {
    fn name(&self) -> &str {
        "drop-all"
    }

    fn filter(&self, _: usize, _: &[u8], _: &[u8]) -> Decision {
        Decision::Remove
    }
}

#[test]
fn what_a_compaction_filter_removes_is_gone() {
    let operators = Operators::new().with_filter(Arc::new(DropAll));
    let keyspace = KeyspaceOptions::default().compaction_filter(Some("drop-all".into()));
    let keyspace = keyspace.auto_compaction(false);
    let db = options().operators(operators).keyspace(keyspace).open("db").unwrap();
    // A snapshot keeps the value from the filter until it is dropped.
    db.put("k", "v").unwrap();
    let snapshot = db.snapshot();
    db.flush().unwrap();
    warm(&db, "k");
    drop(snapshot);
    db.compact().unwrap();
    assert_eq!(db.get("k").unwrap(), None);
}

#[test]
fn what_retention_drops_is_gone_and_stays_gone_under_another_policy() {
    let keyspace = KeyspaceOptions::default().compaction(CompactionChoice::Fifo).retain_bytes(100 << 10);
    let db = options().keyspace(keyspace).open("db").unwrap();
    let pause = db.pause_compaction();
    db.put("k", [7; 300]).unwrap();
    db.flush().unwrap();
    warm(&db, "k");
    (0..500).for_each(|i| db.put(format!("z{i:03}"), [i as u8; 300]).unwrap());
    db.flush().unwrap();
    drop(pause);
    db.wait_for_compaction().unwrap();
    assert_eq!(db.get("k").unwrap(), None);
    db.default_keyspace().set_options(&[("compaction", "leveling")]).unwrap();
    db.put("other", "v").unwrap();
    db.flush().unwrap();
    assert_eq!(db.get("k").unwrap(), None);
}

#[test]
fn operands_are_applied_to_what_is_cached() {
    let keyspace = KeyspaceOptions::default().merge_operator(Some("append".into()));
    let db = options().keyspace(keyspace).open("db").unwrap();
    db.put("k", "a").unwrap();
    db.flush().unwrap();
    warm(&db, "k");
    for (operand, expected) in [("b", "ab"), ("c", "abc")] {
        db.merge("k", operand).unwrap();
        for flushed in [false, true] {
            if flushed {
                db.flush().unwrap();
            }
            assert_eq!(db.get("k").unwrap().unwrap(), expected);
            assert_eq!(db.multi_get(&["k"]).unwrap()[0].as_ref().unwrap(), expected);
        }
    }
}

#[test]
fn a_batch_of_keys_is_answered_and_remembered() {
    let db = options().open("db").unwrap();
    let keys: Vec<String> = (0..100).map(|i| format!("{i:03}")).collect();
    keys.iter().for_each(|key| db.put(key, key).unwrap());
    db.flush().unwrap();
    for _ in 0..3 {
        let values = db.multi_get(&keys).unwrap();
        assert!(values.iter().zip(&keys).all(|(value, key)| value.as_ref().unwrap() == key));
    }
    let before = db.stats().read;
    db.multi_get(&keys).unwrap();
    let cost = db.stats().read - before;
    assert_eq!((cost.record_hits, cost.block_reads, cost.digests), (100, 0, 100));
}

#[test]
fn an_explanation_shows_the_cache() {
    let db = warmed();
    let explained = db.explain_get("k").unwrap();
    let last = explained.steps.last().unwrap();
    assert_eq!(*last, ExplainStep::RecordCache { found: true }, "{explained}");
    assert!(explained.to_string().contains("found in the record cache"), "{explained}");
}

/// A reader of an old version must not bring back what a flush has removed.
#[test]
fn a_pass_closes_the_cache_to_old_readers() {
    let records = KeyspaceRecords::new(0, Arc::new(RecordCache::new(1 << 20, 1 << 20, 0)));
    let sight = |edition| Sight { edition, floor: 0, seq: 10 };
    let digest = Digest::of(b"k");
    let is_cached = |edition| {
        (0..2).for_each(|_| records.found(sight(edition), digest, b"k", (1, b"v")));
        records.get(sight(edition), digest, b"k").is_some()
    };
    assert!(is_cached(0));
    let pass = records.pass(|| 1);
    pass.forget(digest);
    assert!(!is_cached(0) && !is_cached(1), "while it lasts");
    drop(pass);
    assert!(!is_cached(0), "what it found may be in the new run");
    assert!(is_cached(1));
}

#[test]
fn only_a_flush_with_a_pass_keeps_the_floor() {
    let records = KeyspaceRecords::new(0, Arc::new(RecordCache::new(1 << 20, 1 << 20, 0)));
    assert_eq!(records.next_floor(1, RunsChange::Merged), 0);
    assert_eq!(records.next_floor(2, RunsChange::Flushed), 2);
    let pass = records.pass(|| 3);
    assert_eq!(records.next_floor(3, RunsChange::Flushed), 3, "by another, while it has not come to its end");
    pass.complete();
    assert_eq!(records.next_floor(4, RunsChange::Flushed), 3);
    assert_eq!(records.next_floor(5, RunsChange::Flushed), 5, "it was for one version");
    pass.complete();
    drop(pass);
    assert_eq!(records.next_floor(6, RunsChange::Flushed), 6, "it was never published");
    assert_eq!(records.next_floor(7, RunsChange::Other), 7);
    assert_eq!(records.next_floor(8, RunsChange::Merged), 7);
}

#[test]
fn a_cache_holds_no_more_than_its_capacity() {
    let cache = Arc::new(RecordCache::new(1 << 20, 1 << 20, 0));
    let records = KeyspaceRecords::new(0, cache.clone());
    let sight = Sight { edition: 0, floor: 0, seq: 10 };
    let mut most = 1 << 20;
    for i in 0..60_000u32 {
        let key = i.to_be_bytes();
        let value = vec![7; i as usize % 700];
        for _ in 0..2 {
            records.found(sight, Digest::of(&key), &key, (1, &value));
        }
        if i % 1000 == 0 {
            let bytes = cache.used_bytes();
            assert!(bytes <= most, "{bytes} of {most} after {i}");
            assert!(i % 20_000 < 2000 || bytes > most / 4 * 3, "{bytes} of {most} after {i}");
        }
        if i % 20_000 == 19_999 {
            most = if most == 1 << 20 { 300_000 } else { 800_000 };
            cache.set_capacity(most);
        }
    }
}

/// The tables of a cache without limit did not fit the address space.
#[test]
fn a_cache_without_limit_is_opened() {
    for options in
        [options().record_cache_bytes(u64::MAX), options().record_cache_bytes(0).read_memory_bytes(u64::MAX)]
    {
        let db = options.open("db").unwrap();
        db.put("k", "v").unwrap();
        db.flush().unwrap();
        warm(&db, "k");
        assert!(db.stats().record_cache_capacity_bytes <= 1 << 30);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, u16),
    Get(u8),
    Forget(u8),
    Resize(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => (any::<u8>(), 0..400u16).prop_map(|(key, len)| Step::Insert(key, len)),
        20 => any::<u8>().prop_map(Step::Get),
        5 => any::<u8>().prop_map(Step::Forget),
        1 => (0..40_000u16).prop_map(Step::Resize),
    ];
    prop::collection::vec(step, 1..600)
}

proptest! {
    /// A shard returns what was inserted last, or nothing; and what was just inserted.
    #[test]
    fn a_shard_returns_what_was_inserted_last(mut capacity in 0..40_000u16, steps in steps()) {
        let shard = Shard::new(usize::from(capacity), 0);
        let sight = Sight { edition: 0, floor: 0, seq: 0 };
        let mut model: HashMap<u8, (u64, Vec<u8>)> = HashMap::new();
        fn of(key: &[u8; 1]) -> Name<'_> {
            Name { keyspace: 3, digest: Digest::of(key), key }
        }
        for (seq, step) in (0u64..).zip(steps) {
            match step {
                Step::Insert(key, len) => {
                    let value = vec![seq as u8; len as usize];
                    shard.insert(of(&[key]), sight, (seq, &value), || true);
                    let known = shard.get(of(&[key]), |_| true);
                    let fits = 33 + value.len() + 7 + 7 <= usize::from(capacity) / 8;
                    prop_assert!(known.is_some() || !fits, "{key} of {len} in {capacity}");
                    model.insert(key, (seq, value));
                }
                Step::Get(key) => {
                    if let Some((seq, value)) = shard.get(of(&[key]), |_| true) {
                        let expected = model.get(&key).expect("it was inserted");
                        prop_assert_eq!((seq, &value[..]), (expected.0, &expected.1[..]));
                    }
                }
                Step::Forget(key) => {
                    shard.forget(3, Digest::of(&[key]));
                    model.remove(&key);
                }
                Step::Resize(bytes) => {
                    capacity = bytes;
                    shard.resize(usize::from(bytes));
                }
            }
            let bytes = shard.used_bytes();
            prop_assert!(bytes <= Shard::bytes_for(capacity.into()), "{} of {}", bytes, capacity);
        }
    }
}

/// A slice narrows while nothing is answered, and widens again.
#[test]
fn a_shard_that_answers_nothing_is_asked_less() {
    let shard = Shard::new(100_000, 0);
    let sight = Sight { edition: 0, floor: 0, seq: 0 };
    let keys: Vec<[u8; 4]> = (0..3200u32).map(u32::to_be_bytes).collect();
    let name = |key| Name { keyspace: 0, digest: Digest::of(key), key };
    let covered = || keys.iter().filter(|key| shard.covers(Digest::of(*key))).count();
    assert_eq!(covered(), keys.len());
    // Keys that are never there.
    (0..300).for_each(|_| keys.iter().for_each(|key| assert!(shard.get(name(key), |_| true).is_none())));
    assert!((20..100).contains(&covered()), "one in 64 of {}: {}", keys.len(), covered());
    // Few keys, again and again.
    for key in keys.iter().take(100).cycle().take(4_000_000) {
        if shard.covers(Digest::of(key)) && shard.get(name(key), |_| true).is_none() {
            shard.insert(name(key), sight, (1, b"value"), || true);
        }
    }
    assert_eq!(covered(), keys.len());
    // More keys than fit, each as often.
    let value = [0; 500];
    for key in keys.iter().cycle().take(1_000_000) {
        if shard.covers(Digest::of(key)) && shard.get(name(key), |_| true).is_none() {
            shard.insert(name(key), sight, (1, &value), || true);
        }
    }
    assert!(covered() < keys.len() / 2, "{}", covered());
}
