//! Deletes that go before their level is full: where they are dense, and where they are old.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tamis::clock::ManualClock;
use tamis::options::{CompactionChoice, MergeGranularity};
use tamis::stats::KeyspaceStats;
use tamis::{Db, Durability, KeyspaceOptions, Options, WriteBatch};
use tamis_testkit::{CrashMode, FaultyFs};

const START: u64 = 1_700_000_000;

/// A table with fewer deletes is not dense.
const DENSE: u32 = 4096;

fn shapes() -> Vec<(CompactionChoice, MergeGranularity)> {
    use CompactionChoice::{Fragmented, Hybrid, LazyLeveling, Leveling, Tiering};
    use MergeGranularity::{Auto, Full, Partitioned};
    vec![
        (Leveling, Auto),
        (Leveling, Full),
        (Leveling, Partitioned),
        (Tiering, Auto),
        (LazyLeveling, Auto),
        (Hybrid(2), Auto),
        (Fragmented, Auto),
    ]
}

fn options(fs: &FaultyFs, (compaction, merge): (CompactionChoice, MergeGranularity)) -> Options {
    Options {
        background_threads: 2,
        file_system: Some(Arc::new(fs.clone())),
        keyspace: KeyspaceOptions {
            compaction,
            merge,
            memtable_bytes: 1 << 20,
            table_bytes: 32 << 10,
            size_ratio: 3.into(),
            read_compaction: false,
            ..KeyspaceOptions::default()
        },
        ..Options::default()
    }
}

fn key(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

/// Writes one batch of operations on keys.
fn write(db: &Db, keys: impl IntoIterator<Item = u32>, mut op: impl FnMut(&mut WriteBatch, [u8; 4])) {
    let mut batch = WriteBatch::new();
    keys.into_iter().for_each(|i| op(&mut batch, key(i)));
    db.write(batch).unwrap();
}

fn put_all(db: &Db, keys: impl IntoIterator<Item = u32>) {
    write(db, keys, |batch, key| _ = batch.put(key, [key[3]; 20]));
}

fn delete_all(db: &Db, keys: impl IntoIterator<Item = u32>) {
    write(db, keys, |batch, key| _ = batch.delete(key));
}

fn stats(db: &Db) -> KeyspaceStats {
    db.stats().keyspaces[0].clone()
}

#[test]
fn a_run_of_deleted_keys_is_gone_soon_after_its_flush() {
    for shape in shapes() {
        let db = options(&FaultyFs::new(1), shape).open("/db").unwrap();
        for part in 0..6 {
            put_all(&db, part * 5000..(part + 1) * 5000);
            db.flush().unwrap();
        }
        db.wait_for_compaction().unwrap();
        delete_all(&db, 3000..3000 + 3 * DENSE);
        db.flush().unwrap();
        db.wait_for_compaction().unwrap();
        let stats = stats(&db);
        assert_eq!((stats.deletes, stats.entries), (0, u64::from(30_000 - 3 * DENSE)), "{shape:?}");
        assert_eq!(db.iter().count() as u64, stats.entries);
        assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn a_snapshot_keeps_them_and_nothing_is_rewritten_again_and_again_meanwhile() {
    let db = options(&FaultyFs::new(1), shapes()[0]).open("/db").unwrap();
    put_all(&db, 0..20_000);
    db.flush().unwrap();
    db.wait_for_compaction().unwrap();
    let before = db.snapshot();
    delete_all(&db, 0..2 * DENSE);
    db.flush().unwrap();
    db.wait_for_compaction().unwrap();
    let compactions = db.stats().write.compactions;
    assert_eq!(stats(&db).deletes, u64::from(2 * DENSE));
    db.compact().unwrap();
    db.wait_for_compaction().unwrap();
    let deletes = stats(&db).deletes;
    assert!(deletes > 0, "the snapshot needs what they hide");
    let again = db.stats().write.compactions;
    assert!(again > compactions);
    db.wait_for_compaction().unwrap();
    assert_eq!(db.stats().write.compactions, again);
    assert_eq!(before.iter().count(), 20_000);
    drop(before);
    db.wait_for_compaction().unwrap();
    assert_eq!(stats(&db).deletes, 0);
    assert_eq!(db.iter().count(), 20_000 - 2 * DENSE as usize);
}

#[derive(Clone, Debug)]
enum Op {
    Put(u32),
    Take(u32),
    Flush,
    Settle,
    Snapshot,
    DropSnapshot,
    Reopen,
    Crash,
}

fn an_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (1000..9000u32).prop_map(Op::Put),
        6 => (1000..9000u32).prop_map(Op::Take),
        4 => Just(Op::Flush),
        1 => Just(Op::Settle),
        1 => Just(Op::Snapshot),
        1 => Just(Op::DropSnapshot),
        1 => Just(Op::Reopen),
        1 => Just(Op::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    /// Entries are put at the end and taken from the head.
    #[test]
    fn a_queue_loses_nothing_and_nothing_comes_back(
        seed in any::<u64>(),
        shape in prop::sample::select(shapes()),
        ops in prop::collection::vec(an_op(), 10..40),
    ) {
        let mut fs = FaultyFs::new(seed);
        let open = |fs: &FaultyFs| {
            Options { durability: Durability::Sync, ..options(fs, shape) }.open("/db").unwrap()
        };
        let mut db = Some(open(&fs));
        let (mut queue, mut next) = (VecDeque::<u32>::new(), 0);
        let mut snapshots = Vec::new();
        for op in &ops {
            let here = db.as_ref().expect("open");
            match *op {
                Op::Put(count) => {
                    put_all(here, next..next + count);
                    queue.extend(next..next + count);
                    next += count;
                }
                Op::Take(count) => delete_all(here, queue.drain(..queue.len().min(count as usize))),
                Op::Flush => here.flush().unwrap(),
                Op::Settle => here.wait_for_compaction().unwrap(),
                Op::Snapshot => snapshots.push((here.snapshot(), queue.clone())),
                Op::DropSnapshot => drop(snapshots.pop()),
                Op::Reopen => {
                    snapshots.clear();
                    db.take().unwrap().close().unwrap();
                    db = Some(open(&fs));
                }
                Op::Crash => {
                    snapshots.clear();
                    let after = fs.crash(CrashMode::DropUnsynced);
                    drop(db.take());
                    fs = after;
                    db = Some(open(&fs));
                }
            }
            let keys = |iter: tamis::Iter| iter.map(|item| item.unwrap().0.to_vec()).collect::<Vec<_>>();
            let expected = |queue: &VecDeque<u32>| queue.iter().map(|&i| key(i).to_vec()).collect::<Vec<_>>();
            prop_assert_eq!(keys(db.as_ref().unwrap().iter()), expected(&queue));
            for (snapshot, queue) in &snapshots {
                prop_assert_eq!(keys(snapshot.iter()), expected(queue));
            }
        }
        snapshots.clear();
        let db = db.unwrap();
        db.flush().unwrap();
        db.wait_for_compaction().unwrap();
        prop_assert_eq!(db.iter().count(), queue.len());
        prop_assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
    }
}

const AGE: u64 = 1000;

struct Aged {
    fs: FaultyFs,
    clock: Arc<ManualClock>,
    shape: (CompactionChoice, MergeGranularity),
}

impl Aged {
    fn new(shape: (CompactionChoice, MergeGranularity)) -> Aged {
        Aged { fs: FaultyFs::new(1), clock: Arc::new(ManualClock::new(START)), shape }
    }

    fn open(&self, age: Option<u64>) -> Db {
        let mut options = options(&self.fs, self.shape);
        options.clock = Some(self.clock.clone());
        options.durability = Durability::Sync;
        options.keyspace.max_tombstone_age = age.map(Duration::from_secs);
        options.open("/db").unwrap()
    }

    /// Opens it with a tree of several levels.
    fn filled(&self, age: Option<u64>) -> Db {
        let db = self.open(age);
        for part in 0..6 {
            put_all(&db, part * 3000..(part + 1) * 3000);
            db.flush().unwrap();
        }
        db.wait_for_compaction().unwrap();
        db
    }
}

/// Deletes here and there: 40 keys, and 3 ranges of 10 keys.
fn delete_some(db: &Db) {
    delete_all(db, (0..40).map(|i| i * 400 + 7));
    for i in 0..3 {
        db.delete_range(key(i * 5000 + 100)..key(i * 5000 + 110)).unwrap();
    }
}

const LEFT: usize = 18_000 - 40 - 30;

fn deletes(db: &Db) -> (u64, u64) {
    let stats = stats(db);
    (stats.deletes, stats.range_tombstones)
}

/// Waits for a background thread, which looks once a second.
fn wait_until(what: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !what() {
        assert!(Instant::now() < deadline, "nothing happened within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn old_deletes_are_gone_whatever_the_shape() {
    for shape in shapes() {
        for age in [Some(AGE), None] {
            let aged = Aged::new(shape);
            let db = aged.filled(age);
            delete_some(&db);
            db.flush().unwrap();
            aged.clock.advance(AGE / 2);
            db.wait_for_compaction().unwrap();
            let (points, ranges) = deletes(&db);
            assert!(points > 0 && ranges > 0, "{shape:?}");
            assert_eq!(stats(&db).oldest_delete_seconds, Some(AGE / 2));
            aged.clock.advance(AGE / 4);
            db.wait_for_compaction().unwrap();
            match age {
                Some(_) => {
                    assert_eq!(deletes(&db), (0, 0), "{shape:?}");
                    assert_eq!(stats(&db).entries as usize, LEFT);
                    assert_eq!(stats(&db).oldest_delete_seconds, None);
                }
                None => assert_eq!(deletes(&db), (points, ranges), "{shape:?}"),
            }
            assert_eq!(db.iter().count(), LEFT);
            let compactions = db.stats().write.compactions;
            aged.clock.advance(AGE);
            db.wait_for_compaction().unwrap();
            assert_eq!(db.stats().write.compactions, compactions, "nothing is left to do");
            assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
        }
    }
}

#[test]
fn memtables_with_old_deletes_are_flushed_and_others_are_not() {
    let aged = Aged::new(shapes()[0]);
    let db = aged.filled(Some(AGE));
    let in_memory = |db: &Db| stats(db).memtable_entries;
    put_all(&db, 0..10);
    aged.clock.advance(10 * AGE);
    // Long enough for a thread that would do it.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(in_memory(&db), 10, "there is no delete");
    db.delete(key(3)).unwrap();
    aged.clock.advance(AGE / 4);
    wait_until(|| in_memory(&db) == 0);
    assert_eq!(deletes(&db).0, 1);
    assert_eq!(stats(&db).oldest_delete_seconds, Some(AGE / 4), "the delete counts, not the puts");
    aged.clock.advance(AGE / 2);
    wait_until(|| deletes(&db).0 == 0);
    db.delete_range(key(50)..key(60)).unwrap();
    aged.clock.advance(AGE / 4);
    wait_until(|| deletes(&db).1 > 0);
    aged.clock.advance(AGE / 2);
    wait_until(|| deletes(&db).1 == 0);
    assert_eq!(db.iter().count(), 18_000 - 11);
}

#[test]
fn a_snapshot_holds_deletes_after_it_and_no_others() {
    let aged = Aged::new(shapes()[0]);
    let db = aged.filled(Some(AGE));
    delete_some(&db);
    db.flush().unwrap();
    let snapshot = db.snapshot();
    delete_all(&db, [1, 2, 3]);
    db.flush().unwrap();
    aged.clock.advance(AGE);
    db.wait_for_compaction().unwrap();
    assert_eq!(deletes(&db), (3, 0));
    assert_eq!((snapshot.iter().count(), db.iter().count()), (LEFT, LEFT - 3));
    let compactions = db.stats().write.compactions;
    aged.clock.advance(AGE);
    db.wait_for_compaction().unwrap();
    assert_eq!(db.stats().write.compactions, compactions, "they are left alone");
    drop(snapshot);
    db.wait_for_compaction().unwrap();
    assert_eq!(deletes(&db), (0, 0));
    assert_eq!(db.iter().count(), LEFT - 3);
}

#[test]
fn the_age_of_deletes_survives_a_close_and_a_crash() {
    for crash in [false, true] {
        for in_log in [false, true] {
            let mut aged = Aged::new(shapes()[0]);
            let db = aged.filled(Some(AGE));
            delete_some(&db);
            if !in_log {
                db.flush().unwrap();
            }
            let reopen = |aged: &mut Aged, db: Db| {
                if crash {
                    let after = aged.fs.crash(CrashMode::DropUnsynced);
                    drop(db);
                    aged.fs = after;
                } else {
                    db.close().unwrap();
                }
                aged.clock.advance(AGE / 2);
                let db = aged.open(Some(AGE));
                db.wait_for_compaction().unwrap();
                db
            };
            let db = reopen(&mut aged, db);
            assert!(deletes(&db).0 > 0, "crash: {crash}, in the log: {in_log}");
            assert_eq!(
                stats(&db).oldest_delete_seconds,
                Some(AGE / 2),
                "crash: {crash}, in the log: {in_log}"
            );
            let db = reopen(&mut aged, db);
            assert_eq!(deletes(&db), (0, 0), "crash: {crash}, in the log: {in_log}");
            assert_eq!(db.iter().count(), LEFT);
        }
    }
}

#[test]
fn the_option_is_refused_where_nothing_can_be_promised() {
    let fs = FaultyFs::new(1);
    let refused = |change: fn(&mut KeyspaceOptions)| {
        let mut options = options(&fs, shapes()[0]);
        options.keyspace.max_tombstone_age = Some(Duration::from_secs(AGE));
        change(&mut options.keyspace);
        options.open("/db").err().map(|error| error.to_string())
    };
    for change in [
        (|keyspace| keyspace.compaction = CompactionChoice::Fifo) as fn(&mut KeyspaceOptions),
        |keyspace| keyspace.compaction = CompactionChoice::TimeWindow,
        |keyspace| (keyspace.deterministic, keyspace.merge) = (true, MergeGranularity::Full),
    ] {
        let why = refused(change).expect("refused");
        assert!(why.contains("max_tombstone_age"), "{why}");
    }
    assert_eq!(refused(|_| {}), None);
}
