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
use crate::read::Iter;
use crate::{Db, Options, Snapshot};

const KEYS: u16 = 120;

#[derive(Clone, Debug)]
enum Op {
    Put(u16),
    Delete(u16),
    Merge(u16),
    DeleteRange(u16, u16),
    Snapshot,
    Flush,
    Compact,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        50 => (0..KEYS).prop_map(Op::Put),
        10 => (0..KEYS).prop_map(Op::Delete),
        10 => (0..KEYS).prop_map(Op::Merge),
        3 => (0..KEYS, 0..KEYS).prop_map(|(a, b)| Op::DeleteRange(a.min(b), a.max(b))),
        1 => Just(Op::Snapshot),
        5 => Just(Op::Flush),
        1 => Just(Op::Compact),
    ]
}

/// Returns key number `i`, ascending: the empty key, keys that are prefixes of others, and keys that share their first
/// eight bytes.
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

/// Returns a database after these operations, with its expected contents, including those of snapshots.
fn carry_out(ops: &[Op]) -> (Db, Content, Vec<(Snapshot, Content)>) {
    let db = Db::open("/db", options()).expect("opening");
    let (mut model, mut snapshots) = (Content::new(), Vec::new());
    for (serial, op) in ops.iter().enumerate() {
        match *op {
            Op::Put(k) => {
                let value = format!("{serial}{}", "v".repeat(serial * 31 % 300)).into_bytes();
                db.put(key(k), &value).expect("a write");
                model.insert(key(k), value);
            }
            Op::Delete(k) => {
                db.delete(key(k)).expect("a write");
                model.remove(&key(k));
            }
            Op::Merge(k) => {
                let operand = format!("+{serial}").into_bytes();
                db.merge(key(k), &operand).expect("a write");
                model.entry(key(k)).or_default().extend(operand);
            }
            Op::DeleteRange(from, to) => {
                db.delete_range(key(from)..key(to)).expect("a write");
                model.retain(|k, _| !(key(from)..key(to)).contains(k));
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
    ) {
        let (db, model, snapshots) = carry_out(&ops);
        for manner in manners {
            let asked = install(&db, manner);
            for walk in &walks {
                check(db.range(bounds(walk)), walk, &model);
                for (snapshot, content) in &snapshots {
                    check(snapshot.of(db.default_keyspace()).range(bounds(walk)), walk, content);
                }
            }
            for i in 0..KEYS {
                let value = db.get(key(i)).unwrap();
                prop_assert_eq!(value.as_deref(), model.get(&key(i)).map(Vec::as_slice));
            }
            let runs = db.stats().keyspaces[0].runs;
            prop_assert!(runs == 0 || asked.select.load(Relaxed) > 0);
        }
    }
}

/// A read that fails when runs are activated in the middle of an iteration leaves some of them prepared for a seek that
/// does not happen. After another seek, a run that is then opened at a later bound must not start at the block prepared
/// for the old seek.
#[test]
fn a_seek_after_a_failed_activation_starts_afresh() {
    let fs = FaultyFs::new(1);
    let mut options = Options { file_system: Some(Arc::new(fs.clone())), ..options() };
    (options.read_mode, options.cache_bytes, options.pin_metadata) = (ReadMode::Buffered, 0, false);
    let db = Db::open("/db", options).expect("opening");
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
        fs.plan(FaultPlan { fail_at, only: Some(OpClass::Read), ..FaultPlan::none() });
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
        let db = Db::open("/db", options).expect("opening");
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
                fs.plan(FaultPlan { fail_at, only: Some(OpClass::Read), ..FaultPlan::none() });
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
        assert!(failures > 50, "{failures} reads failed");
    }
}
