//! Merges in parts compared with merges in one piece.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use tamis_base::key::{Kind, MAX_SEQNO};
use tamis_files::table::CursorOptions;
use tamis_files::tree::tombstones::{RangeTombstone, Tombstones};
use tamis_testkit::FaultyFs;

use crate::read::merge::{MergeCursor, RunTables};
use crate::tree::version::Version;
use crate::{Db, KeyspaceOptions, Options, Snapshot};

#[derive(Clone, Debug)]
enum Op {
    Put(u16, usize),
    Delete(u16),
    DeleteRange(u16, u16),
    Snapshot,
    DropSnapshot,
    Flush,
    Compact,
}

const KEYS: u16 = 150;

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        60 => (0..KEYS, 0usize..400).prop_map(|(key, len)| Op::Put(key, len)),
        8 => (0..KEYS).prop_map(Op::Delete),
        6 => (0..KEYS, 0..KEYS).prop_map(|(a, b)| Op::DeleteRange(a.min(b), a.max(b))),
        4 => Just(Op::Snapshot),
        2 => Just(Op::DropSnapshot),
        8 => Just(Op::Flush),
        1 => Just(Op::Compact),
    ]
}

fn key(i: u16) -> Vec<u8> {
    format!("key{i:04}").into_bytes()
}

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// Everything on disk, version by version, and what a reader sees at each snapshot and at the end.
#[derive(Debug, PartialEq)]
struct Outcome {
    versions: Vec<(Vec<u8>, u64, Kind, Vec<u8>)>,
    tombstones: Vec<RangeTombstone>,
    seen: Vec<Content>,
}

fn read(items: impl Iterator<Item = Result<(crate::Slice, crate::Slice), crate::ReadError>>) -> Content {
    items.map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

fn options(sub_jobs: usize) -> Options {
    Options {
        sub_jobs: Some(sub_jobs as u64),
        keyspace: KeyspaceOptions {
            auto_compaction: false,
            // Flushes only where the history has one: which snapshots a background flush meets is a
            // matter of timing.
            memtable_bytes: 1 << 20,
            table_bytes: 4 << 10,
            block_bytes: 256,
            ..KeyspaceOptions::default()
        },
        file_system: Some(Arc::new(FaultyFs::new(1))),
        ..Options::default()
    }
}

/// Reports whether only visible data is left at the end of a history. Data that a compaction kept
/// for a snapshot released later stays until its table is rewritten; which tables a later
/// compaction rewrites depends on their borders, and so on the parts.
fn ends_clean(ops: &[Op]) -> bool {
    let compacted = ops.iter().position(|op| matches!(op, Op::Compact)).unwrap_or(ops.len());
    !ops[compacted..].iter().any(|op| matches!(op, Op::DropSnapshot))
}

/// Runs a history and compacts everything. Returns the result, and the number of parts of the
/// merges.
fn carry_out(ops: &[Op], sub_jobs: usize) -> (Outcome, u64) {
    let db = options(sub_jobs).open("/db").unwrap();
    let (mut model, mut snapshots) = (Content::new(), Vec::<(Snapshot, Content)>::new());
    for (serial, op) in ops.iter().enumerate() {
        match *op {
            Op::Put(k, len) => {
                let value = format!("{serial}{}", "v".repeat(len)).into_bytes();
                db.put(key(k), &value).unwrap();
                model.insert(key(k), value);
            }
            Op::Delete(k) => {
                db.delete(key(k)).unwrap();
                model.remove(&key(k));
            }
            Op::DeleteRange(from, to) => {
                db.delete_range(key(from)..key(to)).unwrap();
                model.retain(|k, _| !(key(from)..key(to)).contains(k));
            }
            Op::Snapshot => snapshots.push((db.snapshot(), model.clone())),
            Op::DropSnapshot => drop(snapshots.pop()),
            Op::Flush => db.flush().unwrap(),
            Op::Compact => db.compact().unwrap(),
        }
    }
    db.compact().unwrap();
    let default = db.default_keyspace();
    let mut seen: Vec<Content> = Vec::new();
    for (snapshot, expected) in &snapshots {
        seen.push(read(snapshot.keyspace(default).iter()));
        assert_eq!(seen.last().unwrap(), expected);
    }
    seen.push(read(db.iter()));
    assert_eq!(seen.last().unwrap(), &model);
    assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());

    let version = default.inner.view.load().version.clone();
    for run in &version.runs {
        let tables = &version.tables[run.tables.clone()];
        let metas: Vec<_> = tables.iter().map(|t| &t.meta).collect();
        assert!(metas.windows(2).all(|pair| !pair[0].largest.reaches(&pair[1].smallest)), "{metas:?}");
    }
    let tables = RunTables::List(version.tables.clone());
    let mut cursor = MergeCursor::new(tables, CursorOptions::default(), version.runs.len());
    version.runs.iter().for_each(|run| cursor.add_run(run.tables.clone()));
    let mut versions = Vec::new();
    cursor.seek(b"", MAX_SEQNO).unwrap();
    while cursor.valid() {
        versions.push((cursor.key().to_vec(), cursor.seq(), cursor.kind(), cursor.version().3.to_vec()));
        cursor.next().unwrap();
    }
    let tombstones = tombstones_of(&version);
    let parts = db.stats().write.sub_jobs;
    (Outcome { versions, tombstones, seen }, parts)
}

/// The range tombstones of all tables.
fn tombstones_of(version: &Version) -> Vec<RangeTombstone> {
    let sets = version.tables.iter().filter_map(|table| table.tombstones.as_deref());
    Tombstones::merge(sets).iter().collect()
}

/// Tombstones as readers see them: pieces cut at a table border count as one.
fn joined(tombstones: Vec<RangeTombstone>) -> Vec<RangeTombstone> {
    let mut joined: Vec<RangeTombstone> = Vec::new();
    let mut sorted = tombstones;
    sorted.sort_by(|a, b| (a.seq, &a.start).cmp(&(b.seq, &b.start)));
    for tombstone in sorted {
        match joined.last_mut() {
            Some(last) if last.seq == tombstone.seq && last.end.as_ref() == Some(&tombstone.start) => {
                last.end = tombstone.end;
            }
            _ => joined.push(tombstone),
        }
    }
    joined
}

#[test]
fn a_merge_in_parts_leaves_what_a_merge_in_one_piece_leaves() {
    let (parts_in_all, clean_in_all) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let config = ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() };
    let strategy = (proptest::collection::vec(op(), 50..400), 2usize..7, any::<bool>());
    proptest::test_runner::TestRunner::new(config)
        .run(&strategy, |(mut ops, sub_jobs, snapshots_stay)| {
            if snapshots_stay {
                ops.retain(|op| !matches!(op, Op::DropSnapshot));
            }
            let (mut one, none) = carry_out(&ops, 1);
            let (mut several, parts) = carry_out(&ops, sub_jobs);
            prop_assert_eq!(none, 0);
            parts_in_all.set(parts_in_all.get() + parts);
            prop_assert_eq!(&one.seen, &several.seen);
            if ends_clean(&ops) {
                clean_in_all.set(clean_in_all.get() + 1);
                one.tombstones = joined(one.tombstones);
                several.tombstones = joined(several.tombstones);
                prop_assert_eq!(one, several);
            }
            Ok(())
        })
        .unwrap();
    assert!(parts_in_all.get() > 20, "only {} parts", parts_in_all.get());
    assert!(clean_in_all.get() > 0, "no history was compared version by version");
}

/// A tombstone and a snapshot across every possible cut: the snapshot sees everything, later
/// readers nothing.
#[test]
fn a_range_tombstone_over_all_parts_is_clipped_exactly() {
    let db = options(4).open("/db").unwrap();
    for i in 0..KEYS {
        db.put(key(i), vec![b'v'; 300]).unwrap();
    }
    let before = db.snapshot();
    db.delete_range(key(10)..key(140)).unwrap();
    db.put(key(70), "after").unwrap();
    db.compact().unwrap();
    let write = db.stats().write;
    assert!(write.sub_jobs >= 4, "{write:?}");
    let version = db.default_keyspace().inner.view.load().version.clone();
    let with_tombstones = version.tables.iter().filter(|t| t.meta.range_tombstones > 0).count();
    assert!(with_tombstones >= 4, "every part has its piece");
    assert_eq!(joined(tombstones_of(&version)).len(), 1);
    assert_eq!(before.keyspace(db.default_keyspace()).iter().count(), usize::from(KEYS));
    assert_eq!(db.iter().count(), 10 + 10 + 1);
    drop(before);
    db.compact().unwrap();
    assert_eq!(db.stats().keyspaces[0].range_tombstones, 0);
    assert_eq!(db.stats().keyspaces[0].entries, 21);
}

/// The policy was replaced while a drop that it had planned was under way. A snapshot taken under
/// the new policy pinned no view, and lost what was dropped.
#[test]
fn a_snapshot_under_a_new_policy_loses_nothing_to_a_drop_of_the_old_one() {
    let mut options = options(1);
    options.keyspace.compaction = crate::options::CompactionChoice::Fifo;
    options.keyspace.retain_bytes = 4 << 10;
    let db = options.open("/db").unwrap();
    for i in 0..3 {
        db.put(key(i), vec![b'v'; 6 << 10]).unwrap();
        db.flush().unwrap();
    }
    let keyspace = db.default_keyspace().inner.clone();
    let inner = db.handle().inner.clone();
    let (plan, job) = {
        let mut state = inner.state();
        let shape = inner.shape(&state, &keyspace);
        let plan = keyspace.shaping.load().policy.plan(&shape).expect("all but the newest run is too much");
        let job = inner.start(&mut state, &keyspace, &plan);
        (plan, job)
    };
    let (send, receive) = std::sync::mpsc::channel();
    let changer = std::thread::spawn({
        let db = db.clone();
        move || {
            db.default_keyspace().set_options(&[("compaction", "leveling")]).unwrap();
            let snapshot = db.snapshot();
            let seen = read(snapshot.iter());
            send.send((snapshot, seen)).unwrap();
        }
    });
    // It may be taken now or later, but what it sees must not change.
    let early = receive.recv_timeout(std::time::Duration::from_millis(100));
    inner.run_plan(&keyspace, &plan, &job, None).unwrap();
    let (snapshot, seen) = early.or_else(|_| receive.recv()).unwrap();
    let keys = |content: Content| content.into_keys().collect::<Vec<_>>();
    assert_eq!(keys(read(snapshot.iter())), keys(seen));
    changer.join().unwrap();
}

fn tables(db: &Db) -> usize {
    db.default_keyspace().stats().levels.iter().flat_map(|level| &level.runs).map(|run| run.tables).sum()
}

/// 1,500 flushes of ten records with ascending keys left 1,500 tables, and so did a compaction by
/// hand.
#[test]
fn small_flushes_of_ascending_keys_leave_few_tables() {
    let options = Options { file_system: Some(Arc::new(FaultyFs::new(1))), ..Options::default() };
    let db = options.open("/db").unwrap();
    for i in 0..300u16 {
        (10 * i..10 * (i + 1)).for_each(|i| db.put(key(i), [b'v'; 50]).unwrap());
        db.flush().unwrap();
    }
    db.wait_for_compaction().unwrap();
    let promised = db.default_keyspace().stats().promise.tables.unwrap();
    assert!(tables(&db) <= promised.min(40), "{} tables of {promised}", tables(&db));
    assert!(db.default_keyspace().stats().filter_bits_per_key < 20.0);
    db.default_keyspace().compact().unwrap();
    assert_eq!((tables(&db), db.iter().count()), (1, 3000));
}

/// A large flush is moved to the last level as one table. When that was cleaned, it stayed one
/// table, whatever its size: what it was cut into could have been joined again.
#[test]
fn a_compaction_by_hand_cuts_a_large_flush_and_leaves_a_small_one_whole() {
    let value = |i: u16| -> Vec<u8> {
        (0..100).map(|n| (u32::from(i) * 100 + n).wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect()
    };
    for (keys, expected) in [(20, 1..=1), (1000, 20..=40)] {
        let db = options(1).open("/db").unwrap();
        (0..keys).for_each(|i| db.put(key(i), value(i)).unwrap());
        db.flush().unwrap();
        assert_eq!(tables(&db), 1);
        let snapshot = db.snapshot();
        db.compact().unwrap();
        drop(snapshot);
        // Again and again: nothing is left to clean or to join.
        for _ in 0..2 {
            db.compact().unwrap();
            assert!(expected.contains(&tables(&db)), "{} tables of {keys} keys", tables(&db));
        }
        assert!((0..keys).all(|i| db.get(key(i)).unwrap().as_deref() == Some(&value(i)[..])));
    }
}

/// The same with an opening for each ten records, as the program has them.
#[test]
fn openings_with_a_few_ascending_records_each_leave_few_tables() {
    let fs = Arc::new(FaultyFs::new(1));
    let open = || {
        let fs: Arc<dyn crate::io::FileSystem> = fs.clone();
        Options { file_system: Some(fs), ..Options::default() }.open("/db").unwrap()
    };
    for i in 0..120u16 {
        let db = open();
        (10 * i..10 * (i + 1)).for_each(|i| db.put(key(i), [b'v'; 50]).unwrap());
        db.close().unwrap();
    }
    let db = open();
    db.wait_for_compaction().unwrap();
    assert!(tables(&db) <= 40, "{} tables", tables(&db));
    assert_eq!(db.iter().count(), 1200);
}
