//! `multi_get` probes the units of a batch together: it answers and counts as single gets do.

use std::collections::BTreeMap;
use std::sync::Arc;

use tamis::io::{FileSystem, MemFs};
use tamis::options::ReadMode;
use tamis::stats::ReadCost;
use tamis::{Db, Options};
use tamis_testkit::Rng;

use crate::{key, open, scale, small, stats, wait_until};

/// What must not depend on whether keys are looked up one by one.
fn filters(cost: &ReadCost) -> [u64; 8] {
    let ReadCost { gets, found, digests, memtable_probes, filter_probes, .. } = *cost;
    let ReadCost { filter_negatives, false_positives, runs_searched, .. } = *cost;
    let probes = [memtable_probes, filter_probes, filter_negatives, false_positives];
    [gets, found, digests, probes[0], probes[1], probes[2], probes[3], runs_searched]
}

fn cost<T>(db: &Db, work: impl FnOnce() -> T) -> (T, ReadCost) {
    let before = db.stats().read;
    let result = work();
    (result, db.stats().read - before)
}

/// Writes values, operands and deletes of keys below `count`; after each of `runs` parts the
/// memtable is flushed.
fn write(db: &Db, rng: &mut Rng, model: &mut BTreeMap<u64, Vec<u8>>, count: u64, runs: u64) {
    for _ in 0..runs {
        for _ in 0..count / 4 {
            let i = rng.below(count);
            match rng.below(10) {
                0 => {
                    db.delete(key(i)).expect("a delete");
                    model.remove(&i);
                }
                1 => {
                    db.merge(key(i), b"+").expect("a merge");
                    model.entry(i).or_default().push(b'+');
                }
                _ => {
                    let value = vec![b'v'; rng.below(100) as usize];
                    db.put(key(i), &value).expect("a put");
                    model.insert(i, value);
                }
            }
        }
        db.flush().expect("a flush");
    }
}

#[test]
fn a_batch_is_answered_and_counted_as_its_gets_are() {
    let (mut some_loaded, mut unfiltered) = (0, 0);
    for seed in 0..12 * scale() {
        let mut rng = Rng::new(seed);
        let (fs, mut model): (Arc<dyn FileSystem>, _) = (Arc::new(MemFs::new()), BTreeMap::new());
        let budget = [0, 3000, 6000, 12_000, u64::MAX][rng.below(5) as usize];
        let mut options = Options { read_mode: ReadMode::Mapped, ..small(fs, budget) };
        options.keyspace.merge_operator = Some("append".into());
        options.keyspace.auto_compaction = rng.below(2) == 0;
        let db = open(&options);
        // Up to 20 runs, which are probed in two steps.
        let runs = 1 + rng.below(20);
        write(&db, &mut rng, &mut model, 1500, runs);
        db.wait_for_compaction().expect("settling");
        // A part of the tree is hot, so that segments differ in their units.
        (0..2000).for_each(|_| assert!(db.get((rng.below(400) * 2 + 1).to_be_bytes()).unwrap().is_none()));
        db.wait_for_filters().expect("settling");
        db.close().expect("closing");

        // Units stay where they are from now on.
        let mode = if rng.below(3) == 0 { ReadMode::Buffered } else { ReadMode::Mapped };
        options = Options { heat_sampling: Some(65_536), read_mode: mode, ..options };
        let db = open(&options);
        if rng.below(2) == 0 {
            for i in 0..50 {
                db.put(key(i * 30), b"in the memtable").expect("a put");
                db.merge(key(i * 30 + 7), b"!").expect("a merge");
                model.insert(i * 30, b"in the memtable".into());
                model.entry(i * 30 + 7).or_default().push(b'!');
            }
        }
        let by_units = stats(&db).by_units;
        some_loaded += u64::from(by_units.iter().filter(|&&segments| segments > 0).count() > 1);
        for _ in 0..20 {
            let keys: Vec<u64> = (0..1 + rng.below(100)).map(|_| rng.below(3200)).collect();
            let bytes: Vec<_> = keys.iter().map(|key| key.to_be_bytes()).collect();
            let (single, singly) =
                cost(&db, || -> Vec<_> { bytes.iter().map(|key| db.get(key).expect("a get")).collect() });
            let (batch, together) = cost(&db, || db.multi_get(&bytes).expect("gets"));
            assert_eq!(batch, single, "seed {seed}");
            for (key, value) in keys.iter().zip(&batch) {
                let expected = if key % 2 == 0 { model.get(&(key / 2)) } else { None };
                assert_eq!(value.as_deref(), expected.map(Vec::as_slice), "seed {seed}");
            }
            assert_eq!(filters(&together), filters(&singly), "seed {seed}: {together:?} {singly:?}");
            unfiltered += together.runs_searched - together.found.min(together.runs_searched);
            assert!(mode == ReadMode::Buffered || together.block_reads == singly.block_reads, "seed {seed}");
        }
        assert_eq!(stats(&db).by_units, by_units, "nothing moved in between");
    }
    assert!(some_loaded > 0 && unfiltered > 0, "{some_loaded} {unfiltered}");
}

/// What is learned from batches is what is learned from the same gets one by one. One in three is
/// sampled, and some keys are in a memtable, whose gets ask no filter.
#[test]
fn batches_are_sampled_as_gets_are() {
    let learned = |together: bool| {
        let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new());
        let mut options = small(fs, 4000);
        options.read_mode = ReadMode::Mapped;
        (options.heat_sampling, options.filter_life_time) = (Some(3), Some(100_000));
        options.keyspace.auto_compaction = false;
        let db = open(&options);
        crate::fill(&db, 2000);
        (0..50).for_each(|i| db.put(key(i * 40), b"in the memtable").expect("a put"));
        let (mut rng, mut asked) = (Rng::new(5), 0);
        for _ in 0..400 {
            let keys: Vec<_> = (0..50)
                .map(|n| match n % 5 {
                    0 => key(rng.below(50) * 40),
                    1 => key(rng.below(50) * 40 + 1 + rng.below(39)),
                    _ => crate::absent(rng.below(500)),
                })
                .collect();
            asked += 40;
            if together {
                db.multi_get(&keys).expect("gets");
            } else {
                keys.iter().for_each(|key| _ = db.get(key).expect("a get"));
            }
        }
        // What is dropped because a queue is full counts with the next sample.
        wait_until("all gets that asked a filter to be counted", || stats(&db).gets >= asked);
        assert_eq!(stats(&db).gets, asked);
        let sum = |of: fn(&tamis::stats::SegmentStats) -> f64| db.segments().iter().map(of).sum::<f64>();
        (sum(|segment| segment.hotness), sum(|segment| segment.asked))
    };
    let (singly, together) = (learned(false), learned(true));
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.1;
    assert!(near(singly.0, together.0) && near(singly.1, together.1), "{singly:?} {together:?}");
}
