//! Range filters for iterators: runs without matching keys stay closed, and nothing else changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tamis::io::MemFs;
use tamis::options::{FilterAllocation, FilterChoice, FilterPolicy, ReadMode};
use tamis::stats::ReadCost;
use tamis::{Db, Options};
use tamis_testkit::{FaultPlan, FaultyFs, OpClass};

const RUNS: u64 = 12;
const KEYS: u64 = 2000;

fn options(filter: FilterChoice) -> Options {
    let mut options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
    options.keyspace.auto_compaction = false;
    options.keyspace.filter = filter.into();
    options.keyspace.bits_per_key = 20.0;
    options
}

/// Spread over all 64-bit numbers, the same on every machine; the last byte is the run's.
fn key(i: u64, run: u64) -> [u8; 8] {
    let spread = (i * RUNS + run).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (spread & !0xff | run).to_be_bytes()
}

/// Twelve runs over the same key range, and their contents.
fn filled(options: Options) -> (Db, BTreeMap<[u8; 8], u64>) {
    let db = options.open("/db").expect("opening");
    let mut model = BTreeMap::new();
    for run in 0..RUNS {
        for i in 0..KEYS {
            db.put(key(i, run), run.to_le_bytes()).expect("a write");
            model.insert(key(i, run), run);
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

fn range_filters() -> impl Iterator<Item = FilterChoice> {
    FilterChoice::all().filter(|filter| filter.is_range())
}

#[test]
fn a_short_range_opens_only_runs_that_may_hold_a_key_in_it() {
    for filter in range_filters() {
        let (db, model) = filled(options(filter));
        let (mut asked, mut opened, mut denied) = (0, 0, 0);
        for i in 0..400u64 {
            let from = i.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 8 << 8;
            let (low, high) = (from.to_be_bytes(), from.saturating_add(32).to_be_bytes());
            let expected: Vec<_> = model.range(low..high).map(|(k, _)| k.to_vec()).collect();
            let (found, forward) = cost(&db, || {
                db.range(low..high).map(|e| e.expect("an entry").0.to_vec()).collect::<Vec<_>>()
            });
            assert_eq!(found, expected, "{filter:?}");
            let (mut found, backward) = cost(&db, || {
                db.range(low..high).rev().map(|e| e.expect("an entry").0.to_vec()).collect::<Vec<_>>()
            });
            found.reverse();
            assert_eq!(found, expected, "{filter:?} backwards");
            for cost in [forward, backward] {
                asked += cost.range_probes;
                denied += cost.range_negatives;
                opened += cost.seeks;
                // A run that starts or ends outside the range is not even probed.
                assert!(cost.range_probes <= RUNS && cost.seeks <= RUNS, "{filter:?}: {cost:?}");
                assert!(cost.seeks >= expected.len() as u64, "{filter:?}: {cost:?}");
                assert!(
                    cost.range_false_positives <= cost.seeks - expected.len() as u64,
                    "{filter:?}: {cost:?}"
                );
            }
        }
        assert!(asked * 100 > 2 * 400 * RUNS * 99, "{filter:?}: {asked} filters asked");
        assert!(
            denied * 10 > asked * 9,
            "{filter:?}: of {asked} filters asked, {denied} denied, {opened} runs opened"
        );
    }
}

/// Every run opened for an empty range passed its filter: a false positive, even if the filter only
/// returned a lower bound for the next key and the run was opened when the iteration reached it.
/// (Regression: those were not counted.)
#[test]
fn every_run_opened_for_an_empty_range_is_a_false_positive() {
    for filter in range_filters() {
        let (db, model) = filled(options(filter));
        let (mut opened, mut ranges) = (0, 0);
        for (key, _) in model.iter().step_by(37) {
            let key = u64::from_be_bytes(*key);
            // Up to the key, from nearby and from farther away.
            for width in [1u64, 1 << 8, 1 << 24, 1 << 40] {
                let (low, high) = (key.saturating_sub(width).to_be_bytes(), key.to_be_bytes());
                if low >= high || model.range(low..high).next().is_some() {
                    continue;
                }
                ranges += 1;
                for rev in [false, true] {
                    let (found, used) = cost(&db, || {
                        let iter = db.range(low..high);
                        if rev { iter.rev().count() } else { iter.count() }
                    });
                    assert_eq!(found, 0, "{filter:?}");
                    assert_eq!(
                        used.range_false_positives, used.seeks,
                        "{filter:?}, backwards: {rev}: {used:?}"
                    );
                    opened += used.seeks;
                }
            }
        }
        assert!(ranges > 1000 && opened > 0, "{filter:?}: {opened} runs opened for {ranges} ranges");
    }
}

/// Order-preserving filters return a lower bound for the next key: an open-ended seek opens a run
/// only when the iteration reaches it.
#[test]
fn an_open_ended_seek_opens_runs_one_after_the_other() {
    for filter in range_filters() {
        let ordered = matches!(filter, FilterChoice::Surf(_) | FilterChoice::Snarf);
        let (db, model) = filled(options(filter));
        let mut opened = 0;
        for i in 0..200u64 {
            let from = i.wrapping_mul(0xd6e8_feb8_6659_fd93).to_be_bytes();
            let expected = model.range(from..).next().map(|(k, _)| k.to_vec());
            let (found, cost) = cost(&db, || {
                let mut iter = db.iter();
                iter.seek(from).expect("a seek");
                iter.next().map(|e| e.expect("an entry").0.to_vec())
            });
            assert_eq!(found, expected, "{filter:?}");
            opened += cost.seeks;
        }
        let every = 200 * RUNS;
        if ordered {
            assert!(opened * 2 < every, "{filter:?}: {opened} of {every} runs opened");
        } else {
            assert!(opened <= every, "{filter:?}");
        }
        let all: Vec<_> = db.iter().map(|e| e.expect("an entry").0.to_vec()).collect();
        assert!(all.iter().eq(model.keys().map(|k| k.as_slice())), "{filter:?}");
    }
}

#[test]
fn prefixes_of_strings_are_filtered() {
    for filter in [
        FilterChoice::Surf(tamis::options::SurfSuffix::Real),
        FilterChoice::Surf(tamis::options::SurfSuffix::None),
    ] {
        let db = options(filter).open("/db").expect("opening");
        for run in 0..RUNS {
            for i in 0..500 {
                db.put(format!("country/{run:02}/city/{i:04}"), "x").expect("a write");
            }
            // So that every run spans the whole range.
            db.put("country", "").expect("a write");
            db.put("country/zz", "").expect("a write");
            db.flush().expect("a flush");
        }
        let (found, used) = cost(&db, || db.prefix("country/07/").count());
        assert_eq!(found, 500);
        assert_eq!(used.seeks, 1, "{filter:?}");
        assert!(used.range_negatives >= RUNS - 1, "{filter:?}");
        let (found, used) = cost(&db, || db.prefix("country/07/").rev().count());
        assert_eq!((found, used.seeks), (500, 1), "{filter:?}");
        let (found, used) = cost(&db, || db.prefix("country/20/").count());
        assert_eq!((found, used.seeks), (0, 0), "{filter:?}");
        assert_eq!(used.block_reads, 0, "{filter:?}");
    }
}

/// Even without range filters, a run whose tables are all outside the range is not opened.
#[test]
fn a_run_beyond_the_range_is_not_opened() {
    let (mut options, fs) = (options(FilterChoice::BlockedBloom), Arc::new(MemFs::new()));
    options.file_system = Some(fs);
    let db = options.open("/db").expect("opening");
    for run in 0..8 {
        for i in 0..100 {
            db.put(format!("{run}-{i:03}"), "x").expect("a write");
        }
        db.flush().expect("a flush");
    }
    for (range, opened) in [("3-".."4-", 1), ("3-050".."5-", 2), ("8-".."9-", 0), ("0-0990".."1-", 0)] {
        let count = |rev: bool| {
            let (found, cost) = cost(&db, || {
                let iter = db.range(range.clone());
                if rev { iter.rev().count() } else { iter.count() }
            });
            (found, cost.seeks)
        };
        assert_eq!(count(false).1, opened, "{range:?}");
        assert_eq!(count(true), count(false), "{range:?}");
    }
    let (first, used) = cost(&db, || db.iter().next().expect("an item").expect("an entry").0.to_vec());
    assert_eq!((&first[..], used.seeks), (&b"0-000"[..], 1));
    let (last, used) = cost(&db, || db.iter().next_back().expect("an item").expect("an entry").0.to_vec());
    assert_eq!((&last[..], used.seeks), (&b"7-099"[..], 1));
}

#[test]
fn each_level_has_its_own_filter() {
    let mut options = options(FilterChoice::None);
    options.keyspace.filter = FilterPolicy::split(1, FilterChoice::BlockedBloom, FilterChoice::Ribbon);
    let (db, model) = filled(options);
    let kinds = |db: &Db| -> Vec<Vec<String>> {
        let stats = db.stats();
        let levels = stats.keyspaces[0].levels.iter();
        levels.map(|level| level.runs.iter().flat_map(|run| run.filters.clone()).collect()).collect()
    };
    assert!(kinds(&db)[0].iter().all(|kind| kind == "blocked-bloom"));
    db.compact().expect("a compaction");
    let after = kinds(&db);
    assert!(after[0].is_empty() && after.iter().flatten().eq(["ribbon"]), "{after:?}");
    assert!(model.keys().all(|key| db.contains_key(key).expect("a get")));
}

/// Monkey's rule: the same memory, divided so that small runs are hardly ever searched in vain.
#[test]
fn monkey_gives_small_runs_more_bits_and_all_runs_fewer_false_positives() {
    let build = |allocation| {
        let mut options = options(FilterChoice::Bloom(tamis::options::BloomHashing::Rotation));
        options.keyspace.bits_per_key = 5.0;
        options.keyspace.filter_allocation = allocation;
        let db = options.open("/db").expect("opening");
        for i in 0..60_000u64 {
            db.put(key(i, 0), "x").expect("a write");
        }
        db.flush().expect("a flush");
        db.compact().expect("a compaction");
        for run in 1..6 {
            for i in 0..600 {
                db.put(key(i, run), "x").expect("a write");
            }
            db.flush().expect("a flush");
        }
        db
    };
    let measure = |db: &Db| {
        let ((), used) = cost(db, || {
            for i in 0..20_000 {
                assert!(!db.contains_key(key(i, 9)).expect("a get"));
            }
        });
        used.false_positives
    };
    let (uniform, monkey) = (build(FilterAllocation::Uniform), build(FilterAllocation::Monkey));
    let bytes = |db: &Db| db.stats().keyspaces[0].filter_bytes as f64;
    // The last level got its bits when it was the only one; the next compaction takes some of them
    // back.
    assert!(bytes(&monkey) < bytes(&uniform) * 1.12, "{} against {}", bytes(&monkey), bytes(&uniform));
    let (plain, optimal) = (measure(&uniform), measure(&monkey));
    assert!(optimal * 2 < plain, "{optimal} false positives with Monkey, {plain} without");
}

/// A read that fails while a lazy run is opened is reported by the end that needed it, and ends
/// that end. All items returned before are right, and after the fault a seek finds everything
/// again.
#[test]
fn a_failing_read_is_an_error_and_never_a_gap() {
    let choices = range_filters().chain([FilterChoice::None, FilterChoice::BlockedBloom]);
    // First one read at a time; then combined reads and readahead, which make fewer reads. What
    // could not be read ahead is read again when it is needed, so one fault may have no effect.
    let ways = [(false, 1, Some(20)), (true, 1, Some(20)), (true, 32, Some(3)), (false, 32, None)];
    let all = choices.flat_map(|filter| ways.map(|(sticky, depth, least)| (filter, sticky, depth, least)));
    for (filter, sticky, depth, least) in all {
        let fs = FaultyFs::new(1);
        let mut options = options(filter);
        options.file_system = Some(Arc::new(fs.clone()));
        // Every block and, without pinning, every filter is read again.
        (options.read_mode, options.cache_bytes, options.pin_metadata) = (ReadMode::Buffered, 4 << 10, false);
        options.read_queue_depth = depth;
        options.keyspace.block_bytes = 256;
        let db = options.open("/db").expect("opening");
        let mut keys = Vec::new();
        for run in 0..4 {
            for i in 0..60 {
                db.put(key(i, run), [7; 50]).expect("a write");
                keys.push(key(i, run).to_vec());
            }
            db.flush().expect("a flush");
        }
        keys.sort();
        let item = |item: Result<(tamis::Slice, tamis::Slice), _>| item.map(|(key, _)| key.to_vec());
        let (low, high) = (keys[20].clone(), keys[200].clone());
        for rev in [false, true] {
            let mut expected = keys[20..200].to_vec();
            if rev {
                expected.reverse();
            }
            let mut failures = 0;
            for at in 0.. {
                let mut iter = db.range(&low[..]..&high[..]);
                let failed_before = fs.failures();
                fs.plan(FaultPlan {
                    fail_at: Some(fs.operations() + at),
                    only: Some(OpClass::Read),
                    sticky,
                    ..FaultPlan::none()
                });
                let mut next = || if rev { iter.next_back() } else { iter.next() };
                let mut given = Vec::new();
                let error = loop {
                    match next().map(item) {
                        Some(Ok(key)) => given.push(key),
                        Some(Err(_)) => break true,
                        None => break false,
                    }
                };
                let context = format!("{filter:?}, read {at} fails, sticky: {sticky}, backwards: {rev}");
                assert_eq!(given[..], expected[..given.len()], "{context}");
                let failed = fs.failures() > failed_before;
                // An unreadable filter is skipped.
                assert!(failed || !error, "{context}: an error without a fault");
                assert!(error || given.len() == expected.len(), "{context}: a gap");
                assert!(!error || next().is_none(), "{context}: an error is the end");
                fs.plan(FaultPlan::none());
                failures += u64::from(error);
                // The front may be repositioned; the back stays at its end after an error.
                iter.seek(&keys[30]).expect("a seek");
                let after: Vec<_> = iter.by_ref().map(|i| item(i).expect("an item")).collect();
                let left = if rev { 200 - given.len() } else { 200 };
                assert_eq!(after[..], keys[30.min(left)..left], "{context}: after a seek");
                if !failed {
                    break;
                }
            }
            assert!(least.is_none_or(|least| failures > least), "{filter:?}: {failures} reads failed");
        }
    }
}

/// A failed seek leaves some runs prepared for it and others not. The next seek starts from
/// scratch.
#[test]
fn a_seek_after_a_failed_seek_finds_everything() {
    for filter in range_filters().chain([FilterChoice::BlockedBloom]) {
        let fs = FaultyFs::new(1);
        let mut options = options(filter);
        options.file_system = Some(Arc::new(fs.clone()));
        (options.read_mode, options.cache_bytes, options.keyspace.block_bytes) = (ReadMode::Buffered, 0, 256);
        let db = options.open("/db").expect("opening");
        let mut keys = Vec::new();
        for run in 0..4 {
            for i in 0..60 {
                db.put(key(i, run), [7; 50]).expect("a write");
                keys.push(key(i, run).to_vec());
            }
            db.flush().expect("a flush");
        }
        keys.sort();
        let mut iter = db.iter();
        let mut failures = 0;
        for n in 0..1000 {
            let fail_at = Some(fs.operations() + n % 3);
            // What could not be read ahead is read again when it is needed.
            fs.plan(FaultPlan { fail_at, sticky: true, only: Some(OpClass::Read), ..FaultPlan::none() });
            let place = n as usize * 101 % keys.len();
            let failed = iter.seek(&keys[place]).is_err();
            fs.plan(FaultPlan::none());
            failures += u64::from(failed);
            let place = if failed {
                assert!(iter.next().is_none(), "{filter:?}: an error is the end");
                if n % 2 == 0 {
                    // It goes on where the failed seek should have led.
                    iter.refresh(&db);
                    place
                } else {
                    let other = n as usize * 67 % keys.len();
                    iter.seek(&keys[other]).expect("a seek");
                    other
                }
            } else {
                place
            };
            let given: Vec<_> = iter.by_ref().take(5).map(|item| item.expect("an item").0.to_vec()).collect();
            assert_eq!(given[..], keys[place..(place + 5).min(keys.len())], "{filter:?}");
        }
        assert!(failures > 10, "{filter:?}: {failures} seeks failed");
    }
}
