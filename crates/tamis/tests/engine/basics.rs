//! The public API in everyday use.

use std::ops::Bound;

use tamis::options::CompactionChoice;
use tamis::{
    AdminError, Db, KeyspaceOptions, OpenError, Options, OptionsError, ReadError, WriteBatch, WriteError,
};

fn small() -> Options {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 64 << 10;
    options.keyspace.table_bytes = 64 << 10;
    options
}

fn key(i: u32) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

fn value(i: u32) -> Vec<u8> {
    format!("value {i} {}", "x".repeat(i as usize % 200)).into_bytes()
}

#[test]
fn writes_read_back_through_flush_compaction_and_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let count = 20_000u32;
    {
        let db = small().open(dir.path()).unwrap();
        for i in 0..count {
            let i = i.wrapping_mul(7919) % count;
            db.put(key(i), value(i)).unwrap();
        }
        for i in (0..count).step_by(10) {
            db.delete(key(i)).unwrap();
        }
        db.wait_for_compaction().unwrap();
        check(&db, count);
        db.close().unwrap();
    }
    let db = small().open(dir.path()).unwrap();
    check(&db, count);
    db.compact().unwrap();
    check(&db, count);
    let stats = db.stats();
    let keyspace = &stats.keyspaces[0];
    assert_eq!(keyspace.runs, 1, "{keyspace:#?}");
    assert_eq!(keyspace.deletes, 0, "a full compaction leaves no delete");
    assert_eq!(keyspace.entries, u64::from(count - count / 10));
    assert!(db.verify().unwrap().problems.is_empty());
}

fn check(db: &Db, count: u32) {
    let keys: Vec<_> = (0..count).map(key).collect();
    let found = db.multi_get(&keys).unwrap();
    for i in 0..count {
        let expected = (i % 10 != 0).then(|| value(i));
        assert_eq!(db.get(key(i)).unwrap().map(|v| v.to_vec()), expected, "key {i}");
        assert_eq!(found[i as usize].as_ref().map(|v| v.to_vec()), expected, "key {i} in a batch");
    }
    let alive: Vec<_> = (0..count).filter(|i| i % 10 != 0).map(|i| (key(i), value(i))).collect();
    let forward: Vec<_> = db.iter().map(|kv| kv.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    assert_eq!(forward, alive);
    let backward: Vec<_> =
        db.iter().rev().map(|kv| kv.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    assert!(backward.iter().eq(alive.iter().rev()));
}

#[test]
fn a_get_computes_one_digest_for_all_runs_or_one_per_filter_without_sharing() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = small();
    options.keyspace.auto_compaction = false;
    for sharing in [true, false] {
        options.hash_sharing = sharing;
        let db = options.clone().open(dir.path()).unwrap();
        for round in 0..12 {
            for i in 0..300 {
                db.put(key(i * 12 + round), value(i)).unwrap();
            }
            db.flush().unwrap();
        }
        let runs = db.stats().keyspaces[0].runs as u64;
        assert!(runs >= 12);
        let before = db.stats().read;
        let (absent, present) = (500, 500);
        for i in 0..absent {
            // Within the key range of every run.
            assert_eq!(db.get(format!("key{:06}x", 20 + i * 7)).unwrap(), None);
        }
        let empty = db.stats().read - before;
        assert_eq!(empty.gets, absent);
        assert_eq!(empty.filter_probes, absent * runs);
        assert_eq!(empty.digests, if sharing { absent } else { absent * runs });
        let before = db.stats().read;
        let keys: Vec<_> = (0..present as u32).map(key).collect();
        assert!(db.multi_get(&keys).unwrap().iter().all(Option::is_some));
        let batch = db.stats().read - before;
        assert_eq!(batch.gets, present);
        assert_eq!(batch.digests, if sharing { present } else { batch.filter_probes });
        assert!(batch.block_reads >= present && batch.block_reads < present + present / 5);
    }
}

#[test]
fn snapshots_and_iterators_see_the_state_at_their_creation() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    for i in 0..3000 {
        db.put(key(i), "old").unwrap();
    }
    let snapshot = db.snapshot();
    let mut iter = db.range(key(100)..key(200));
    assert_eq!(iter.next().unwrap().unwrap().0, key(100));
    for i in 0..3000 {
        db.put(key(i), "new").unwrap();
    }
    db.delete_range(key(150)..key(1000)).unwrap();
    db.compact().unwrap();
    assert_eq!(snapshot.get(key(500)).unwrap().unwrap(), "old");
    assert_eq!(db.get(key(500)).unwrap(), None);
    assert_eq!(db.get(key(100)).unwrap().unwrap(), "new");
    assert!(iter.by_ref().all(|item| item.unwrap().1 == "old"));
    assert_eq!(snapshot.range(key(100)..key(200)).rev().count(), 100);
    assert_eq!(snapshot.prefix("key").filter(|item| item.as_ref().unwrap().1 == "old").count(), 3000);
    drop((snapshot, iter));
    db.put("more", "data").unwrap();
    db.compact().unwrap();
    assert_eq!(db.stats().keyspaces[0].entries, 3000 - 850 + 1);
}

#[test]
fn ranges_with_all_kinds_of_bounds_work_from_both_ends() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    for k in ["a", "b", "b\0", "c", "d"] {
        db.put(k, k).unwrap();
    }
    let keys = |iter: tamis::Iter| iter.map(|item| item.unwrap().0.to_vec()).collect::<Vec<_>>();
    assert_eq!(keys(db.range("b".."d")), [&b"b"[..], b"b\0", b"c"]);
    assert_eq!(keys(db.range("b"..="d")), [&b"b"[..], b"b\0", b"c", b"d"]);
    assert_eq!(keys(db.range::<&str>((Bound::Excluded("b"), Bound::Unbounded))), [&b"b\0"[..], b"c", b"d"]);
    assert_eq!(keys(db.range("d".."b")), Vec::<Vec<u8>>::new());
    assert_eq!(keys(db.prefix("b")), [&b"b"[..], b"b\0"]);
    let mut both = db.iter();
    let mut order = Vec::new();
    while let Some(item) = both.next() {
        order.push(item.unwrap().0.to_vec());
        order.extend(both.next_back().map(|item| item.unwrap().0.to_vec()));
    }
    assert_eq!(order, [&b"a"[..], b"d", b"b", b"c", b"b\0"]);
    assert!(both.next().is_none() && both.next_back().is_none());
}

#[test]
fn batches_are_atomic_across_keyspaces_and_limits_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    let users = db.create_keyspace("users", KeyspaceOptions::default()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put("a", "1").put_in(&users, "b", "2").delete("c");
    db.write(batch).unwrap();
    assert_eq!(users.get("b").unwrap().unwrap(), "2");
    assert!(matches!(
        db.create_keyspace("users", KeyspaceOptions::default()),
        Err(AdminError::KeyspaceExists { .. })
    ));
    assert!(matches!(
        db.put(vec![0; (64 << 10) + 1], ""),
        Err(WriteError::KeyTooLong { len: 65537, max: 65536 })
    ));
    db.put(vec![0; 64 << 10], "long key").unwrap();
    db.put("", "empty key").unwrap();
    assert_eq!(db.get("").unwrap().unwrap(), "empty key");
    assert!(matches!(db.delete_range("b".."a"), Err(WriteError::ReversedRange)));
    db.flush().unwrap();
    db.close().unwrap();

    let db = small().open(dir.path()).unwrap();
    assert_eq!(db.keyspaces(), ["default", "users"]);
    let users = db.keyspace("users").unwrap();
    assert_eq!(users.get("b").unwrap().unwrap(), "2");
    assert_eq!(db.get(vec![0; 64 << 10]).unwrap().unwrap(), "long key");
    db.drop_keyspace("users").unwrap();
    assert!(matches!(users.get("b"), Err(ReadError::Dropped { .. })));
    assert!(matches!(users.put("b", "3"), Err(WriteError::Dropped { .. })));
    assert!(matches!(db.drop_keyspace("default"), Err(AdminError::DefaultKeyspace)));
    let elsewhere = tempfile::tempdir().unwrap();
    let other = small().open(elsewhere.path()).unwrap();
    let foreign = other.create_keyspace("foreign", KeyspaceOptions::default()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put_in(&foreign, "x", "y");
    assert!(matches!(db.write(batch), Err(WriteError::ForeignKeyspace { .. })));
}

#[test]
fn a_second_open_is_refused_and_a_read_only_one_shows_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    db.put("in the log", "yes").unwrap();
    assert!(matches!(small().open(dir.path()), Err(OpenError::OpenHere { .. })));
    let reader = small().open_read_only(dir.path()).unwrap();
    assert_eq!(reader.get("in the log").unwrap().unwrap(), "yes");
    assert!(matches!(reader.put("x", "y"), Err(WriteError::ReadOnly)));
    db.close().unwrap();
    assert!(small().open(dir.path()).is_ok());
    let missing = Options { create_if_missing: false, ..small() };
    assert!(matches!(missing.open(dir.path().join("no")), Err(OpenError::NotFound { .. })));
}

#[test]
fn a_checkpoint_is_a_database_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path().join("db")).unwrap();
    for i in 0..5000 {
        db.put(key(i), value(i)).unwrap();
    }
    db.checkpoint(dir.path().join("copy")).unwrap();
    for i in 0..5000 {
        db.delete(key(i)).unwrap();
    }
    db.compact().unwrap();
    let copy = small().open(dir.path().join("copy")).unwrap();
    assert_eq!(copy.iter().count(), 5000);
    assert_eq!(copy.get(key(4999)).unwrap().unwrap(), value(4999));
    assert!(matches!(db.checkpoint(dir.path().join("copy")), Err(AdminError::TargetExists { .. })));
}

#[test]
fn explain_shows_what_an_iteration_touches() {
    use tamis::explain::RangeSource;
    let dir = tempfile::tempdir().unwrap();
    let mut options = small();
    options.keyspace.auto_compaction = false;
    let db = options.open(dir.path()).unwrap();
    for run in 0..2 {
        for i in 0..10 {
            db.put(format!("{run}-{i}"), "value").unwrap();
        }
        db.flush().unwrap();
    }
    db.put("0-3", "newer").unwrap();
    db.delete("0-4").unwrap();
    let before = db.stats().read;
    let explanation = db.explain_range("0-2".."1-3", 6).unwrap();
    assert_eq!(db.stats().read, before, "it is not counted");
    assert_eq!((explanation.entries, explanation.last.as_deref()), (6, Some(&b"0-8"[..])));
    assert_eq!((&explanation.start[..], explanation.end.as_deref()), (&b"0-2"[..], Some(&b"1-3"[..])));
    let cost = &explanation.cost;
    assert_eq!((cost.runs_opened, cost.versions_skipped, cost.tombstones_skipped), (1, 2, 1), "{cost:?}");
    let [RangeSource::Memtable { active: true, entries: 2, in_range: 2 }, runs @ ..] =
        &explanation.sources[..]
    else {
        panic!("{explanation:?}")
    };
    let seeks: Vec<_> = runs
        .iter()
        .map(|run| match run {
            RangeSource::Run { tables: 1, seeks, blocks, .. } => (*seeks, *blocks),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(seeks, [(0, 0), (1, 1)], "the second run is not reached: {explanation:?}");
    assert_eq!(db.explain_range::<&str>(.., 1000).unwrap().entries, 19);
    assert_eq!(db.explain_range("x".., 1000).unwrap().last, None);
}

#[test]
fn explain_shows_the_path_of_a_get() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    let explanation = db.explain_get("key").unwrap();
    assert_eq!(explanation.cost.digests, 1);
    assert_eq!(explanation.cost.block_reads, 1);
    assert!(matches!(explanation.outcome, tamis::explain::ExplainOutcome::Found { value_bytes: 5, .. }));
    assert!(
        matches!(
            explanation.steps.last(),
            Some(tamis::explain::ExplainStep::Run { level: 0, filter: tamis::explain::FilterAnswer::Maybe, found: true, block: Some(block), .. })
                if block.hash_index == "hit"
        ),
        "{explanation:#?}"
    );
}

/// Regression: verifying an open database left out the active log, which holds the newest writes.
#[test]
fn verifying_reads_the_active_log() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    for i in 0..10 {
        db.put(key(i), value(i)).unwrap();
    }
    db.sync().unwrap();
    db.put("after", "the sync").unwrap();
    let report = db.verify().unwrap();
    assert_eq!((report.log_writes, report.problems.len()), (11, 0), "{report:?}");
    let log = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let log = log.filter(|path| path.extension().is_some_and(|e| e == "log")).max().unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let problems = db.verify().unwrap().problems;
    assert!(problems.iter().any(|p| p.contains(log.to_str().unwrap())), "{problems:?}");
}

#[test]
fn shape_options_change_while_the_keyspace_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let other = {
        let db = small().open(dir.path()).unwrap();
        let other = db.create_keyspace("other", small().keyspace).unwrap();
        for i in 0..5_000 {
            other.put(key(i), value(i)).unwrap();
        }
        other.set_options(&[("level0_runs", "2"), ("size_ratio", "3,4")]).unwrap();
        for i in 5_000..10_000 {
            other.put(key(i), value(i)).unwrap();
        }
        // All or nothing.
        let refused = other.set_options(&[("level0_runs", "3"), ("block_bytes", "8 KiB")]).unwrap_err();
        assert!(matches!(refused, AdminError::Options(OptionsError::Fixed { .. })), "{refused}");
        let refused = other.set_options(&[("slowdown_runs", "1"), ("stop_runs", "1")]).unwrap_err();
        assert!(matches!(refused, AdminError::Options(OptionsError::Value { .. })), "{refused}");
        assert!(other.set_options(&[("no_such", "1")]).is_err());
        for i in 0..10_000 {
            assert_eq!(other.get(key(i)).unwrap().unwrap(), value(i));
        }
        let options = other.options();
        db.close().unwrap();
        options
    };
    assert_eq!((other.level0_runs, other.size_ratio.at(1), other.size_ratio.at(9)), (2, 4, 4));
    let db = small().open(dir.path()).unwrap();
    assert_eq!(db.keyspace("other").unwrap().options(), other, "changed options are stored");
    assert!(db.verify().unwrap().problems.is_empty());
}

/// Tables keep the filter that they were written with, and new tables get the new one; a global
/// filter applies at the next opening.
#[test]
fn the_filter_of_new_tables_changes_while_the_keyspace_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    let keyspace = db.default_keyspace();
    let kinds = || -> std::collections::BTreeSet<String> {
        let levels = db.stats().keyspaces[0].levels.clone();
        levels.into_iter().flat_map(|level| level.runs).flat_map(|run| run.filters).collect()
    };
    (0..5_000).for_each(|i| db.put(key(i), value(i)).unwrap());
    db.compact().unwrap();
    let old = kinds();
    keyspace.set_options(&[("filter", "ribbon"), ("bits_per_key", "12")]).unwrap();
    assert_eq!(kinds(), old, "no table is rewritten for it");
    (5_000..6_000).for_each(|i| db.put(key(i), value(i)).unwrap());
    db.flush().unwrap();
    assert!(kinds().contains("ribbon"), "{:?}", kinds());
    for global in ["grf", "external:mine"] {
        let refused = keyspace.set_options(&[("filter", global)]).unwrap_err();
        assert!(matches!(refused, AdminError::Options(OptionsError::Fixed { .. })), "{refused}");
    }
    // Tables below no newer data would only be moved.
    (0..6_000).for_each(|i| db.put(key(i), value(i)).unwrap());
    db.compact().unwrap();
    assert_eq!(kinds(), ["ribbon".to_owned()].into());
    for i in 0..7_000 {
        assert_eq!(db.get(key(i)).unwrap().map(|v| v.to_vec()), (i < 6_000).then(|| value(i)), "{i}");
    }
}

/// Parts of a range have all of its keys once, and about equal bytes, wherever the keys are.
#[test]
fn a_range_is_split_into_parts_of_about_equal_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    (options.keyspace.memtable_bytes, options.keyspace.table_bytes) = (8 << 20, 256 << 10);
    let db = options.open(dir.path()).unwrap();
    assert_eq!(db.split_range::<&str>(.., 4).unwrap(), [(Bound::Included(Vec::new()), Bound::Unbounded)]);
    let mut keys: Vec<String> =
        (0..20_000u32).map(|i| format!("{:08x}", i.wrapping_mul(0x9e37_79b9))).collect();
    for (i, key) in keys.iter().enumerate() {
        // The upper half of the keys has longer values.
        let len = if key[..] < *"8" { 50 } else { 250 };
        db.put(key, vec![i as u8; len]).unwrap();
        if i == 15_000 {
            // The last quarter stays in the memtable, whatever the background does.
            db.flush().unwrap();
            db.wait_for_compaction().unwrap();
        }
    }
    keys.sort();
    let bytes = |keys: &[String]| -> usize { keys.iter().map(|k| if k[..] < *"8" { 58 } else { 258 }).sum() };
    for (from, to) in [(0, 20_000), (3_000, 17_000), (0, 400), (19_990, 20_000)] {
        for parts in [1, 2, 7, 50] {
            let range =
                (Bound::Included(&keys[from]), keys.get(to).map_or(Bound::Unbounded, Bound::Excluded));
            let split = db.split_range::<&String>(range, parts).unwrap();
            assert!((1..=parts).contains(&split.len()));
            let mut at = from;
            for part in &split {
                let count = db.range(part.clone()).count();
                let share =
                    bytes(&keys[at..at + count]) as f64 * parts as f64 / bytes(&keys[from..to]) as f64;
                assert!(to - from < 10_000 || (0.3..3.0).contains(&share), "{share} of a part of {parts}");
                at += count;
            }
            assert_eq!(at, to, "{parts} parts");
            assert!(to - from < 10_000 || split.len() == parts);
            // Neighbours share their border.
            assert!(split.windows(2).all(|pair| match (&pair[0].1, &pair[1].0) {
                (Bound::Excluded(end), Bound::Included(start)) => start == end,
                _ => false,
            }));
        }
    }
    assert_eq!(db.split_range("b".."a", 3).unwrap(), []);
    assert_eq!(db.split_range("a".."b", 0).unwrap().len(), 1);
}

/// Iterators at one number jumped over what a later view had lost by retention and an earlier one,
/// of a snapshot, still had.
#[test]
fn a_snapshot_keeps_what_retention_drops_beside_a_stretch_of_deleted_keys() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.keyspace.compaction = CompactionChoice::Fifo;
    options.keyspace.retain_bytes = 100 << 10;
    let db = options.open(dir.path()).unwrap();
    let pause = db.pause_compaction();
    (200..400).for_each(|i| db.put(key(i), [7; 300]).unwrap());
    db.flush().unwrap();
    (0..300).for_each(|i| db.put(format!("z{i:03}"), [i as u8; 300]).unwrap());
    db.flush().unwrap();
    // In the memtable, so that no merge drops them.
    (0..200).for_each(|i| db.delete(key(i)).unwrap());
    // No number is given, and no memtable replaced, from here on.
    let snapshot = db.snapshot();
    // Neither has walked yet.
    let mut early = db.iter();
    drop(pause);
    while db.stats().keyspaces[0].runs > 1 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let seen = |iter: &mut dyn Iterator<Item = Result<(tamis::Slice, tamis::Slice), ReadError>>| {
        iter.map(|item| item.unwrap().0.to_vec()).collect::<Vec<_>>()
    };
    // The first run is gone; twice, so that the second walk may use what the first one noted.
    for _ in 0..2 {
        assert_eq!(seen(&mut db.iter()).len(), 300);
        assert_eq!(seen(&mut snapshot.iter()).len(), 500);
        assert_eq!(seen(&mut snapshot.iter().rev()).len(), 500);
        assert_eq!(seen(&mut snapshot.range(key(100)..)).len(), 500);
    }
    assert_eq!(seen(&mut early).len(), 500);
}
