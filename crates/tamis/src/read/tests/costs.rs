//! The cost of iterators under a global filter.

use std::collections::BTreeMap;
use std::sync::Arc;

use tamis_base::collections::HashSet;

use super::truth::{Manner, install};
use crate::io::MemFs;
use crate::observe::cost::ReadCost;
use crate::{Db, Options};

const RUNS: u64 = 12;

/// Returns a database with twelve runs over the same key range, and a map from each key to its run.
fn filled() -> (Db, BTreeMap<[u8; 8], u64>) {
    let mut options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
    options.keyspace.auto_compaction = false;
    options.keyspace.block_bytes = 256;
    let db = options.open("/db").expect("opening");
    let mut model = BTreeMap::new();
    for run in 0..RUNS {
        for i in 0..200 {
            let key = (i * RUNS + run).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            db.put(key, "value").expect("a write");
            model.insert(key, run);
        }
        db.flush().expect("a flush");
    }
    assert_eq!(db.stats().keyspaces[0].runs as u64, RUNS);
    (db, model)
}

fn cost<T>(db: &Db, work: impl FnOnce() -> T) -> (T, ReadCost) {
    let before = db.stats().read;
    let result = work();
    (result, db.stats().read - before)
}

#[test]
fn an_exact_filter_opens_only_the_runs_that_have_keys_on_the_way() {
    let (db, model) = filled();
    let keys: Vec<_> = model.keys().copied().collect();
    for stretch in [1, 3, 50, 10_000] {
        install(&db, Manner { keys: stretch, ..Manner::default() });
        let mut few = 0;
        for (place, count) in (0..keys.len()).step_by(23).zip((1..9).cycle()) {
            let passed =
                |keys: &[[u8; 8]]| keys.iter().map(|key| model[key]).collect::<HashSet<_>>().len() as u64;
            // Forwards from a key, without an end.
            let expected = &keys[place..(place + count).min(keys.len())];
            let (found, used) = cost(&db, || {
                let mut iter = db.iter();
                iter.seek(keys[place]).expect("a seek");
                iter.take(count).map(|item| item.expect("an item").0.to_vec()).collect::<Vec<_>>()
            });
            assert!(found.iter().eq(expected));
            assert_eq!(
                (used.seeks, used.range_false_positives),
                (passed(expected), 0),
                "{stretch}: {used:?}"
            );
            let questions = expected.len().div_ceil(stretch) as u64;
            assert!((1..=questions).contains(&used.range_probes), "{stretch}: {used:?}");
            few += u64::from(used.seeks < RUNS / 2);
            // Backwards from the end of a range that the iteration reaches.
            let (low, high) = (expected[0], *expected.last().expect("a key"));
            for rev in [false, true] {
                let (found, used) = cost(&db, || {
                    let iter = db.range(low..=high);
                    if rev { iter.rev().count() } else { iter.count() }
                });
                assert_eq!(found, expected.len());
                assert_eq!(
                    (used.seeks, used.range_false_positives),
                    (passed(expected), 0),
                    "{stretch}: {used:?}"
                );
                assert!(used.range_probes <= questions + 1, "{stretch}: {used:?}");
            }
        }
        assert!(few > 50, "{few} iterations left most runs closed");
    }
}

#[test]
fn an_empty_range_opens_nothing() {
    let (db, model) = filled();
    let keys: Vec<_> = model.keys().copied().collect();
    install(&db, Manner { keys: 4, ..Manner::default() });
    for pair in keys.windows(2).step_by(31) {
        let low = [&pair[0][..], &[0]].concat();
        for rev in [false, true] {
            let (found, used) = cost(&db, || {
                let iter = db.range(&low[..]..&pair[1][..]);
                if rev { iter.rev().count() } else { iter.count() }
            });
            let expected = ReadCost {
                scans: 1,
                empty_scans: 1,
                range_probes: 1,
                range_negatives: 1,
                ..ReadCost::default()
            };
            assert_eq!((found, used), (0, expected), "backwards: {rev}");
        }
    }
}

#[test]
fn a_seek_opens_only_the_run_that_has_the_next_key() {
    let (db, model) = filled();
    install(&db, Manner { keys: 20, ..Manner::default() });
    let mut iter = db.iter();
    let ((), used) = cost(&db, || {
        for i in 0..100u64 {
            let from = i.wrapping_mul(0xd6e8_feb8_6659_fd93).to_be_bytes();
            iter.seek(from).expect("a seek");
            let expected = model.range(from..).next().map(|(key, _)| &key[..]);
            assert_eq!(iter.next().map(|item| item.expect("an item").0).as_deref(), expected);
        }
        drop(iter);
    });
    assert_eq!((used.seeks, used.range_probes, used.range_false_positives), (100, 100, 0));
}

/// Where the keys ahead are those of most runs, the rest of the scan is merged as without a filter.
#[test]
fn a_scan_through_most_runs_stops_asking() {
    let (db, model) = filled();
    let keys: Vec<_> = model.keys().copied().collect();
    for rev in [false, true] {
        install(&db, Manner { keys: 20, ..Manner::default() });
        let (found, used) = cost(&db, || {
            let items = db.iter().map(|item| item.expect("an item").0.to_vec());
            let back = || db.iter().rev().map(|item| item.expect("an item").0.to_vec());
            if rev { back().collect::<Vec<_>>() } else { items.collect() }
        });
        assert!(if rev { found.iter().eq(keys.iter().rev()) } else { found.iter().eq(&keys) });
        assert_eq!(used.seeks, RUNS);
        assert!(used.range_probes <= 4, "{used:?}");
    }
}

/// Runs that are listed but have nothing are opened in vain and counted, each once per range.
#[test]
fn every_run_opened_for_an_empty_range_is_a_false_positive() {
    let (db, model) = filled();
    let keys: Vec<_> = model.keys().copied().collect();
    for (lies, opens) in [(128, 1..RUNS * 3 / 4), (256, RUNS..RUNS + 1)] {
        // A false claim names the start of the range, or a key before it.
        install(&db, Manner { keys: 4, lies, ..Manner::default() });
        let (mut opened, mut ranges) = (0, 0);
        for pair in keys[40..keys.len() - 40].windows(2).step_by(17) {
            let low = [&pair[0][..], &[0]].concat();
            for rev in [false, true] {
                let (found, used) = cost(&db, || {
                    let iter = db.range(&low[..]..&pair[1][..]);
                    if rev { iter.rev().count() } else { iter.count() }
                });
                assert_eq!(found, 0);
                assert_eq!((used.range_probes, used.range_negatives), (1, 0));
                assert_eq!(used.range_false_positives, used.seeks, "backwards: {rev}: {used:?}");
                (opened, ranges) = (opened + used.seeks, ranges + 1);
            }
        }
        // Some false claims name a place beyond the range: those runs stay closed.
        assert!(opened >= ranges * opens.start / 2 && opened < ranges * opens.end, "{opened} for {ranges}");
    }
}

/// A filter that knows nothing leaves costs as they are without one.
#[test]
fn a_filter_without_answers_costs_no_more_than_none() {
    let (db, _) = filled();
    let read = || {
        let forward = db.iter().filter(Result::is_ok).count();
        (forward, db.iter().rev().filter(Result::is_ok).count())
    };
    // The first read of a block computes its checksum.
    read();
    let (plain, without) = cost(&db, read);
    install(&db, Manner { silent: 256, ..Manner::default() });
    let (found, used) = cost(&db, read);
    assert_eq!((found, used), (plain, without));
    assert_eq!(used.range_probes, 0);
}
