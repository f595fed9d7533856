//! Checks iterators under many variants of global filters against an ordered map.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;
use tamis_testkit::{FaultPlan, FaultyFs, OpClass};

use super::truth::{Manner, install};
use crate::io::MemFs;
use crate::options::ReadMode;
use crate::read::{Bounds, Iter, IterContext};
use crate::{Db, Options, Snapshot};

const KEYS: u16 = 120;

#[derive(Clone, Debug)]
enum Op {
    Put(u16),
    Delete(u16),
    Merge(u16),
    DeleteRange(u16, u16),
    /// Writes of one key, many times over, with snapshots and flushes between them.
    Hot(u16, Vec<Again>),
    /// Deletes of neighbours, and a walk over them, at an end and now or in the newest snapshot.
    Drain(u16, u16, bool, bool),
    Snapshot,
    Flush,
    Compact,
}

/// What becomes of a hot key next, and how often.
#[derive(Clone, Copy, Debug)]
enum Again {
    Put(u8),
    Merge(u8),
    Delete,
    DeleteRange,
    Snapshot,
    Flush,
}

fn hot() -> impl Strategy<Value = Op> {
    let again = prop_oneof![
        6 => (1..12u8).prop_map(Again::Put),
        3 => (1..8u8).prop_map(Again::Merge),
        1 => Just(Again::Delete),
        1 => Just(Again::DeleteRange),
        2 => Just(Again::Snapshot),
        1 => Just(Again::Flush),
    ];
    // Few keys, one after the other: an iteration goes from one into the next. And more of them,
    // that begin with these versions.
    let key = prop_oneof![50..56u16, 60..95u16];
    (key, proptest::collection::vec(again, 1..10)).prop_map(|(key, all)| Op::Hot(key, all))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        50 => (0..KEYS).prop_map(Op::Put),
        10 => (0..KEYS).prop_map(Op::Delete),
        10 => (0..KEYS).prop_map(Op::Merge),
        3 => (0..KEYS, 0..KEYS).prop_map(|(a, b)| Op::DeleteRange(a.min(b), a.max(b))),
        4 => hot(),
        3 => (0..KEYS, 3..60u16, any::<bool>(), any::<bool>())
            .prop_map(|(from, count, forward, now)| Op::Drain(from, (from + count).min(KEYS), forward, now)),
        1 => Just(Op::Snapshot),
        5 => Just(Op::Flush),
        1 => Just(Op::Compact),
    ]
}

/// Returns key number `i`, ascending: the empty key, keys that are prefixes of others, and keys
/// that share their first eight bytes.
fn key(i: u16) -> Vec<u8> {
    match i {
        0 => Vec::new(),
        1..40 => vec![b'a'; i.into()],
        40..100 => format!("in-common-{i:03}").into_bytes(),
        _ => vec![0xfe, i as u8, 0],
    }
}

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// The steps of one iterator.
#[derive(Clone, Debug)]
struct Walk {
    low: Option<u16>,
    high: Option<(u16, bool)>,
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    Next(u8),
    Back(u8),
    Seek(u16, bool),
}

fn walk() -> impl Strategy<Value = Walk> {
    let step = prop_oneof![
        3 => (1..20u8).prop_map(Step::Next),
        3 => (1..20u8).prop_map(Step::Back),
        2 => (0..KEYS, any::<bool>()).prop_map(|(key, behind)| Step::Seek(key, behind)),
        1 => Just(Step::Next(u8::MAX)),
        1 => Just(Step::Back(u8::MAX)),
    ];
    let low = proptest::option::of(0..KEYS);
    let high = proptest::option::of((0..KEYS, any::<bool>()));
    (low, high, proptest::collection::vec(step, 1..8)).prop_map(|(low, high, steps)| Walk {
        low,
        high,
        steps,
    })
}

fn manner() -> impl Strategy<Value = Manner> {
    let share = || prop_oneof![Just(0u64), Just(60), Just(200)];
    (any::<u64>(), 0..12usize, share(), share(), prop_oneof![3 => Just(0u64), 1 => Just(40)], 0..10u8)
        .prop_map(|(seed, keys, lies, loose, silent, stuck)| Manner {
            seed,
            keys,
            lies,
            loose,
            silent,
            stuck: stuck == 0,
        })
}

pub(super) fn options() -> Options {
    let mut options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
    options.keyspace.auto_compaction = false;
    options.keyspace.merge_operator = Some("append".into());
    (options.keyspace.table_bytes, options.keyspace.block_bytes) = (4 << 10, 256);
    options
}

/// Returns a database after these operations, with its expected contents, including those of
/// snapshots.
fn carry_out(ops: &[Op], read_mode: ReadMode) -> (Db, Content, Vec<(Snapshot, Content)>) {
    let mut options = Options { read_mode, ..options() };
    options.keyspace.block_bytes = 128;
    let db = options.open("/db").expect("opening");
    let (mut model, mut snapshots) = (Content::new(), Vec::<(Snapshot, Content)>::new());
    for (serial, op) in ops.iter().enumerate() {
        match op {
            &Op::Put(k) => {
                let value = format!("{serial}{}", "v".repeat(serial * 31 % 300)).into_bytes();
                db.put(key(k), &value).expect("a write");
                model.insert(key(k), value);
            }
            &Op::Delete(k) => {
                db.delete(key(k)).expect("a write");
                model.remove(&key(k));
            }
            &Op::Merge(k) => {
                let operand = format!("+{serial}").into_bytes();
                db.merge(key(k), &operand).expect("a write");
                model.entry(key(k)).or_default().extend(operand);
            }
            &Op::DeleteRange(from, to) => {
                db.delete_range(key(from)..key(to)).expect("a write");
                model.retain(|k, _| !(key(from)..key(to)).contains(k));
            }
            &Op::Drain(from, to, forward, now) => {
                for k in from..to {
                    db.delete(key(k)).expect("a write");
                    model.remove(&key(k));
                }
                let (iter, content) = match snapshots.last() {
                    Some((snapshot, content)) if !now => {
                        (snapshot.keyspace(db.default_keyspace()).iter(), content)
                    }
                    _ => (db.iter(), &model),
                };
                let steps = vec![if forward { Step::Next(u8::MAX) } else { Step::Back(u8::MAX) }];
                check(iter, &Walk { low: None, high: None, steps }, content);
            }
            Op::Hot(k, all) => {
                for (i, &again) in all.iter().enumerate() {
                    let times = match again {
                        Again::Put(times) | Again::Merge(times) => times,
                        _ => 1,
                    };
                    for time in 0..times {
                        let value = format!("{serial}.{i}.{time}").into_bytes();
                        match again {
                            Again::Put(_) => {
                                db.put(key(*k), &value).expect("a write");
                                model.insert(key(*k), value);
                            }
                            Again::Merge(_) => {
                                db.merge(key(*k), &value).expect("a write");
                                model.entry(key(*k)).or_default().extend(value);
                            }
                            Again::Delete => {
                                db.delete(key(*k)).expect("a write");
                                model.remove(&key(*k));
                            }
                            Again::DeleteRange => {
                                db.delete_range(key(*k)..key(*k + 1)).expect("a write");
                                model.remove(&key(*k));
                            }
                            Again::Snapshot => snapshots.push((db.snapshot(), model.clone())),
                            Again::Flush => db.flush().expect("a flush"),
                        }
                    }
                }
            }
            Op::Snapshot => snapshots.push((db.snapshot(), model.clone())),
            Op::Flush => db.flush().expect("a flush"),
            Op::Compact => db.compact().expect("a compaction"),
        }
    }
    (db, model, snapshots)
}

fn bounds(walk: &Walk) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let high = match walk.high {
        Some((high, true)) => Bound::Included(key(high)),
        Some((high, false)) => Bound::Excluded(key(high)),
        None => Bound::Unbounded,
    };
    (walk.low.map_or(Bound::Unbounded, |low| Bound::Included(key(low))), high)
}

/// Performs the walk, comparing every item with the model.
fn check(mut iter: Iter, walk: &Walk, content: &Content) {
    let (low, high) = bounds(walk);
    let inside = |key: &Vec<u8>| {
        let above = !matches!(&low, Bound::Included(low) if key < low);
        above
            && !matches!(&high, Bound::Included(high) if key > high)
            && !matches!(&high, Bound::Excluded(high) if key >= high)
    };
    let items: Vec<_> = content.iter().filter(|(key, _)| inside(key)).collect();
    let (mut front, mut back) = (0, items.len());
    let plain = |item: Result<(crate::Slice, crate::Slice), _>| {
        let (key, value) = item.expect("an item");
        (key.to_vec(), value.to_vec())
    };
    for step in &walk.steps {
        match *step {
            Step::Next(count) => {
                for _ in 0..count {
                    let expected = (front < back).then(|| items[front]);
                    let given = iter.next().map(plain);
                    assert_eq!(given.as_ref().map(|(k, v)| (k, v)), expected, "{step:?}");
                    front += usize::from(expected.is_some());
                }
            }
            Step::Back(count) => {
                for _ in 0..count {
                    let expected = (front < back).then(|| items[back.wrapping_sub(1)]);
                    let given = iter.next_back().map(plain);
                    assert_eq!(given.as_ref().map(|(k, v)| (k, v)), expected, "{step:?}");
                    back -= usize::from(expected.is_some());
                }
            }
            Step::Seek(place, behind) => {
                let mut sought = key(place);
                if behind {
                    sought.push(0);
                }
                iter.seek(&sought).expect("a seek");
                front = items.partition_point(|(key, _)| **key < sought);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn every_walk_returns_the_items_of_the_model(
        ops in proptest::collection::vec(op(), 1..400),
        manners in proptest::collection::vec(manner(), 4),
        walks in proptest::collection::vec(walk(), 1..12),
        read_mode in proptest::sample::select(ReadMode::available()),
    ) {
        let (db, model, snapshots) = carry_out(&ops, read_mode);
        for manner in manners {
            let asked = install(&db, manner);
            for walk in &walks {
                check(db.range(bounds(walk)), walk, &model);
                for (snapshot, content) in &snapshots {
                    check(snapshot.keyspace(db.default_keyspace()).range(bounds(walk)), walk, content);
                }
            }
            // The last key was never written nor deleted: memory alone may answer for all others.
            for i in 0..=KEYS {
                let value = db.get(key(i)).unwrap();
                prop_assert_eq!(value.as_deref(), model.get(&key(i)).map(Vec::as_slice));
            }
            let runs = db.stats().keyspaces[0].runs;
            prop_assert!(runs == 0 || asked.select.load(Relaxed) > 0);
        }
    }
}

/// Versions of one key that an iterator does not return are passed by a seek, in memory and on
/// disk, whatever it reads.
#[test]
fn an_iterator_steps_over_few_of_many_versions() {
    const VERSIONS: u64 = 3000;
    let db = options().open("/db").expect("opening");
    let around = |place: u64| format!("{place:02}").into_bytes();
    for place in (0..40).filter(|&place| place != 20) {
        db.put(around(place), "once").expect("a write");
    }
    let mut snapshots = Vec::new();
    for version in 0..VERSIONS {
        if version % 300 == 150 {
            snapshots.push((db.snapshot(), Some(version - 1)));
        }
        db.put(around(20), version.to_string()).expect("a write");
    }
    snapshots.push((db.snapshot(), Some(VERSIONS - 1)));
    db.merge(around(20), "+").expect("a write");
    let check = |what: &str| {
        for (snapshot, version) in &snapshots {
            let before = db.stats().read;
            let reader = snapshot.keyspace(db.default_keyspace());
            let plain =
                |item: Result<(crate::Slice, crate::Slice), _>| item.map(|(k, v)| (k.to_vec(), v.to_vec()));
            let items: Vec<_> = reader.iter().map(plain).collect::<Result<_, _>>().expect("items");
            let mut back: Vec<_> = reader.iter().rev().map(plain).collect::<Result<_, _>>().expect("items");
            back.reverse();
            assert_eq!(items, back, "{what}");
            let here = version.map(|version| (around(20), version.to_string().into_bytes()));
            assert_eq!((items.len(), items.get(20)), (40, here.as_ref()), "{what}");
            let cost = db.stats().read - before;
            assert!((1..40).contains(&cost.versions_skipped), "{what}: {cost:?}");
        }
        assert_eq!(db.iter().nth(20).expect("an item").expect("an item").1, "2999+", "{what}");
        assert_eq!(db.iter().rev().nth(19).expect("an item").expect("an item").1, "2999+", "{what}");
    };
    check("in memory");
    db.flush().expect("a flush");
    check("flushed");
    // Over other versions of it: in runs that an iteration meets at once.
    for version in 0..VERSIONS {
        db.put(around(20), format!("later {version}")).expect("a write");
    }
    for (snapshot, version) in &snapshots {
        let here =
            snapshot.keyspace(db.default_keyspace()).iter().rev().nth(19).expect("an item").expect("an item");
        assert_eq!(here.1, version.expect("one").to_string());
    }
    // A table in which every version counts for some snapshot: they fill many blocks.
    let kept: Vec<_> = (0..600u64)
        .map(|version| {
            db.put(around(20), format!("kept {version:>80}")).expect("a write");
            db.snapshot()
        })
        .collect();
    db.flush().expect("a flush");
    for (version, snapshot) in kept.iter().enumerate().step_by(37) {
        let before = db.stats().read;
        let reader = snapshot.keyspace(db.default_keyspace());
        let value = format!("kept {version:>80}");
        assert_eq!(reader.get(around(20)).expect("a get").expect("a value"), value);
        let cost = db.stats().read - before;
        assert!(cost.block_reads <= 12, "a get of {version}: {cost:?}");
        assert_eq!(reader.iter().nth(20).expect("an item").expect("an item").1, value);
        assert_eq!(reader.iter().rev().nth(19).expect("an item").expect("an item").1, value);
        let cost = db.stats().read - before;
        assert!(cost.versions_skipped < 40 && cost.block_reads < 80, "{version}: {cost:?}");
    }
}

/// However the versions of a key are divided between those that an iterator steps over and those
/// that it climbs to, it uses each operand once.
#[test]
fn an_iterator_uses_each_of_many_operands_once() {
    for (base, flushed, count) in
        [(false, false, 3), (false, false, 9), (true, false, 9), (true, true, 9), (true, true, 4)]
    {
        let db = options().open("/db").expect("opening");
        let mut value = Vec::new();
        if base {
            db.put("k", "base").expect("a write");
            value.extend(b"base");
        }
        if flushed {
            db.flush().expect("a flush");
        }
        let mut held = vec![(db.snapshot(), value.clone())];
        for operand in 0..count {
            db.merge("k", operand.to_string()).expect("a write");
            value.extend(operand.to_string().into_bytes());
            held.push((db.snapshot(), value.clone()));
        }
        for (snapshot, value) in held.iter().filter(|(_, value)| !value.is_empty()) {
            let reader = snapshot.keyspace(db.default_keyspace());
            for item in [reader.iter().next(), reader.iter().next_back()] {
                assert_eq!(item.expect("an item").expect("an item").1, value[..], "{base} {flushed} {count}");
            }
        }
    }
}

/// A queue whose head is taken steps over few deleted keys, whatever was taken before and wherever
/// the deletions are, also while a snapshot is held.
#[test]
fn a_queue_steps_over_few_of_the_keys_taken() {
    for held in [false, true] {
        let db = options().open("/db").expect("opening");
        let entry = |i: u32| i.to_be_bytes();
        (0..100).for_each(|i| db.put(entry(i), "value").expect("a write"));
        let snapshot = held.then(|| db.snapshot());
        for i in 0..3000 {
            db.put(entry(100 + i), "value").expect("a write");
            let before = db.stats().read;
            let (first, _) = db.iter().next().expect("an item").expect("an item");
            assert_eq!(first, entry(i));
            let cost = db.stats().read - before;
            assert!(cost.tombstones_skipped < 8 && cost.versions_skipped < 20, "take {i}: {cost:?}");
            db.delete(&first).expect("a write");
            if i % 700 == 699 {
                db.flush().expect("a flush");
            }
        }
        if let Some(snapshot) = snapshot {
            let all: Vec<_> = snapshot.iter().map(|item| item.expect("an item").0.to_vec()).collect();
            assert_eq!(all, (0..100).map(|i| entry(i).to_vec()).collect::<Vec<_>>());
        }
        db.put(entry(1500), "again").expect("a write");
        assert_eq!(db.iter().next().expect("an item").expect("an item").0, entry(1500));
        assert_eq!(db.iter().rev().last().expect("an item").expect("an item").0, entry(1500));
    }
}

/// A reader whose view was replaced before it read the visible number reads an older state than
/// that number says: it neither learns nor jumps.
#[test]
fn a_reader_with_a_view_that_lacks_writes_has_nothing_to_do_with_gaps() {
    let db = options().open("/db").expect("opening");
    let keyspace = db.default_keyspace();
    let entry = |i: u32| i.to_be_bytes();
    (0..100).for_each(|i| db.put(entry(i), "value").expect("a write"));
    (10..90).for_each(|i| db.delete(entry(i)).expect("a write"));
    let old = keyspace.inner.view.load_full();
    db.flush().expect("a flush");
    db.put(entry(50), "in a new memtable").expect("a write");
    db.delete(entry(95)).expect("a write");
    let between = || {
        let context = IterContext {
            view: old.clone(),
            snapshot: db.snapshot().seq(),
            horizon: 0,
            counters: Arc::default(),
            operator: None,
            dropped: false,
            _pin: None,
        };
        Iter::new(context, Bounds::default())
    };
    assert_eq!((between().count(), between().rev().count()), (20, 20));
    assert!(old.gaps.is_empty(), "a value is not in the view");
    for _ in 0..2 {
        assert_eq!((db.iter().count(), db.iter().rev().count()), (20, 20));
    }
    assert!(!old.gaps.is_empty());
    // The deletion of a later key is not seen, so nothing that came before it may be either.
    (85..96).for_each(|i| db.delete(entry(i)).expect("a write"));
    assert_eq!(db.iter().count(), 15);
    assert_eq!((between().count(), between().rev().count()), (20, 20));
}

/// The second walk over deleted keys jumps, from either end. The first steps over each deletion of
/// a key, and soon jumps to the end of a range delete.
#[test]
fn the_second_walk_over_deleted_keys_jumps() {
    let db = options().open("/db").expect("opening");
    let entry = |i: u32| i.to_be_bytes();
    (0..1000).for_each(|i| db.put(entry(i), "value").expect("a write"));
    (100..500).for_each(|i| db.delete(entry(i)).expect("a write"));
    db.delete_range(entry(500)..entry(900)).expect("a write");
    let walk = |back: bool| {
        let before = db.stats().read;
        let count = if back { db.iter().rev().count() } else { db.iter().count() };
        let cost = db.stats().read - before;
        (count, cost.tombstones_skipped)
    };
    let (count, skipped) = walk(false);
    assert_eq!(count, 200);
    assert!((401..420).contains(&skipped), "{skipped}");
    assert_eq!(walk(false), (200, 1));
    // Backwards, the end of the range delete comes before the gap is asked for.
    let (count, skipped) = walk(true);
    assert_eq!(count, 200);
    assert!((1..=2).contains(&skipped), "{skipped}");
    db.compact().expect("a compaction");
    // Every other write into the gap leaves two parts of it.
    db.put(entry(300), "again").expect("a write");
    db.merge(entry(700), "again").expect("a write");
    assert_eq!(walk(true).0, 202);
    assert_eq!(walk(false).0, 202);
}

/// A read that fails when runs are activated in the middle of an iteration leaves some of them
/// prepared for a seek that does not happen. After another seek, a run that is then opened at a
/// later bound must not start at the block prepared for the old seek.
#[test]
fn a_seek_after_a_failed_activation_starts_afresh() {
    let fs = FaultyFs::new(1);
    let mut options = Options { file_system: Some(Arc::new(fs.clone())), ..options() };
    (options.read_mode, options.cache_bytes, options.pin_metadata) = (ReadMode::Buffered, 0, false);
    let db = options.open("/db").expect("opening");
    let mut all = Vec::new();
    for run in 0..12u64 {
        for i in 0..20u64 {
            let key = (i * 12 + run).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            db.put(key, [7; 90]).expect("a write");
            all.push(key.to_vec());
        }
        db.flush().expect("a flush");
    }
    all.sort();
    let mut failures = 0;
    for n in 0..240 {
        install(&db, Manner { keys: 2, lies: 60, seed: n / 12, ..Manner::default() });
        let mut iter = db.iter();
        // Late in key order, where most runs are still lazy.
        iter.seek(&all[180]).expect("a seek");
        let fail_at = Some(fs.operations() + n % 12 * 3);
        // A single failure of a read ahead is made good when its block is needed.
        let sticky = n % 4 > 0;
        fs.plan(FaultPlan { fail_at, sticky, only: Some(OpClass::Read), ..FaultPlan::none() });
        failures += u64::from(iter.by_ref().any(|item| item.is_err()));
        fs.plan(FaultPlan::none());
        let place = n as usize % 60;
        iter.seek(&all[place]).expect("a seek");
        let again: Vec<_> = iter.map(|item| item.expect("an item").0.to_vec()).collect();
        assert_eq!(again[..], all[place..], "{n}");
    }
    assert!(failures > 40, "{failures} reads failed");
}

/// A read that fails is an error, and all items before it are correct.
#[test]
fn a_failing_read_is_an_error_not_a_gap() {
    // With single reads, and with batched and read-ahead reads, of which there are fewer.
    for (keys, depth, step) in [(1, 1, 3), (7, 1, 3), (1, 32, 1), (7, 32, 1)] {
        let fs = FaultyFs::new(1);
        let mut options = Options { file_system: Some(Arc::new(fs.clone())), ..options() };
        (options.read_mode, options.cache_bytes, options.pin_metadata) = (ReadMode::Buffered, 0, false);
        options.read_queue_depth = depth;
        let db = options.open("/db").expect("opening");
        let mut all = Vec::new();
        for run in 0..5u64 {
            for i in 0..40u64 {
                let key = (i * 5 + run).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
                db.put(key, [7; 90]).expect("a write");
                all.push(key.to_vec());
            }
            db.flush().expect("a flush");
        }
        all.sort();
        // False claims cause many runs to be activated at once.
        install(&db, Manner { keys, lies: 100, loose: 200, ..Manner::default() });
        let mut failures = 0;
        for rev in [false, true] {
            for at in (0..).step_by(step) {
                let mut expected = all.clone();
                if rev {
                    expected.reverse();
                }
                let mut iter = db.iter();
                let failed_before = fs.failures();
                let fail_at = Some(fs.operations() + at);
                // A single failure of a read ahead is made good when its block is needed.
                let sticky = depth > 1;
                fs.plan(FaultPlan { fail_at, sticky, only: Some(OpClass::Read), ..FaultPlan::none() });
                let mut given = Vec::new();
                let error = loop {
                    match if rev { iter.next_back() } else { iter.next() } {
                        Some(Ok((key, _))) => given.push(key.to_vec()),
                        Some(Err(_)) => break true,
                        None => break false,
                    }
                };
                fs.plan(FaultPlan::none());
                let context = format!("{keys} keys per range, read {at} fails, backwards: {rev}");
                assert_eq!(given[..], expected[..given.len()], "{context}");
                assert!(error || given.len() == expected.len(), "{context}: a gap");
                failures += u64::from(error);
                let place = at as usize * 37 % 190;
                iter.seek(&all[place]).expect("a seek");
                let left = if rev { all.len() - given.len() } else { all.len() };
                let again: Vec<_> = iter.by_ref().map(|item| item.expect("an item").0.to_vec()).collect();
                assert_eq!(again[..], all[place.min(left)..left], "{context}: after a seek");
                if fs.failures() == failed_before {
                    break;
                }
            }
        }
        assert!(failures > 30, "{failures} reads failed");
    }
}
