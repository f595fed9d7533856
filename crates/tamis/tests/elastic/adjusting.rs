//! Hotness and its effects.

use std::sync::Arc;

use tamis::Db;
use tamis::io::{FileSystem, MemFs};
use tamis::options::{BloomHashing, FilterChoice};
use tamis_testkit::Rng;

use crate::{
    absent, false_positives, fill, fits, get_one, key, one_each, open, quiet, settle, small, stats, value,
    wait_until,
};

const KEYS: u64 = 20_000;

/// A database of one run, with a budget of one unit per segment.
///
/// What compactions leave otherwise depends on how busy the machine is: once the deepest level held
/// no segment of a range whose hotness was looked at.
fn filled(fs: &Arc<MemFs>) -> (Db, u64) {
    let fs: Arc<dyn FileSystem> = fs.clone();
    let db = open(&small(fs.clone(), u64::MAX));
    fill(&db, KEYS);
    db.compact().expect("a compaction");
    db.wait_for_filters().expect("settling");
    let (budget, _) = one_each(&db);
    db.close().expect("closing");
    (open(&small(fs, budget)), budget)
}

/// Reads until the background thread has counted this many gets.
fn read(db: &Db, hot: std::ops::Range<u64>, gets: u64) {
    let mut rng = Rng::new(gets);
    let before = stats(db).gets;
    let mut done = 0;
    while stats(db).gets < before + gets {
        for _ in 0..500 {
            get_one(db, &mut rng, &hot, KEYS);
        }
        done += 500;
        assert!(done < 100 * gets, "the background thread counts nothing");
    }
}

fn units_within(db: &Db, hot: &std::ops::Range<u64>) -> (f64, f64) {
    let (from, to) = (key(hot.start).to_vec(), key(hot.end).to_vec());
    let segments = db.segments();
    let deepest = segments.iter().map(|segment| segment.level).max().unwrap();
    let mean = |within: bool| {
        let chosen: Vec<f64> = segments
            .iter()
            .filter(|s| s.level == deepest && (s.smallest >= from && s.end < to) == within)
            .map(|s| f64::from(s.enabled))
            .collect();
        assert!(!chosen.is_empty(), "no segment of level {deepest} lies within: {within}");
        chosen.iter().sum::<f64>() / chosen.len() as f64
    };
    (mean(true), mean(false))
}

#[test]
fn memory_follows_hotness_and_its_changes() {
    let (db, budget) = filled(&Arc::default());
    assert!(fits(&stats(&db), budget));
    let hot = 4000..5000;
    let cold = false_positives(&db, hot.clone());
    read(&db, hot.clone(), 40_000);
    let (within, outside) = units_within(&db, &hot);
    assert!(within >= 2.0 && within > outside + 1.0, "{within} units in the hot range, {outside} elsewhere");
    let warm = false_positives(&db, hot.clone());
    assert!(warm < cold / 2.0, "false positives per get: {cold} at first, {warm} when hot");
    let other = 12_000..13_000;
    read(&db, other.clone(), 60_000);
    let (within, _) = units_within(&db, &other);
    let (left, _) = units_within(&db, &hot);
    assert!(within >= 2.0 && within > left, "{within} units in the hot range, {left} in the former one");
    let stats = stats(&db);
    assert!(stats.evictions > 0 && stats.loads > 0 && fits(&stats, budget), "{stats:?}");
    assert_eq!(stats.by_units.iter().sum::<u64>(), stats.segments);
    assert_eq!(stats.failed_loads, 0);
}

#[test]
fn hotness_survives_closing() {
    let fs: Arc<MemFs> = Arc::default();
    let (db, budget) = filled(&fs);
    let hot = 7000..8000;
    read(&db, hot.clone(), 30_000);
    quiet(&db);
    let before = db.segments();
    db.close().expect("closing");
    let db = open(&small(fs, budget));
    let after = db.segments();
    assert_eq!(before.len(), after.len());
    for (was, is) in before.iter().zip(&after) {
        assert_eq!((was.table, was.segment, &was.smallest), (is.table, is.segment, &is.smallest));
        // One byte each: steps of 9 %, up to once per get. What was sampled may come to more: once
        // 1.14.
        let near = |was: f64, is: f64| (was.min(1.0) - is).abs() <= 0.1 * is.max(was.min(1.0)) + 1e-9;
        assert!(near(was.hotness, is.hotness) && near(was.asked, is.asked), "{was:?} {is:?}");
    }
    let (within, outside) = units_within(&db, &hot);
    assert!(within > outside + 0.5, "{within} {outside}");
}

/// Probes of the lower levels per get, inside and outside the hot range.
fn hotness_of_the_last_level(db: &Db, hot: &std::ops::Range<u64>) -> (f64, f64) {
    let (from, to) = (key(hot.start).to_vec(), key(hot.end).to_vec());
    let segments = db.segments();
    let deepest = segments.iter().map(|segment| segment.level).max().unwrap();
    let sum = |within: bool| {
        let last = segments.iter().filter(|s| s.level == deepest);
        last.filter(|s| (s.end > from && s.smallest < to) == within).map(|s| s.hotness).sum::<f64>()
    };
    (sum(true), sum(false))
}

#[test]
fn merged_tables_inherit_hotness_if_enabled() {
    for inheritance in [true, false] {
        let fs: Arc<MemFs> = Arc::default();
        let (db, budget) = filled(&fs);
        db.close().expect("closing");
        let mut options = small(fs, budget);
        options.heat_inheritance = inheritance;
        options.keyspace.auto_compaction = false;
        let db = open(&options);
        let hot = 10_000..11_000;
        read(&db, hot.clone(), 30_000);
        let (before, _) = hotness_of_the_last_level(&db, &hot);
        let old: Vec<u64> = db.segments().iter().map(|s| s.table).collect();
        (0..KEYS).step_by(7).for_each(|i| db.put(key(i), value(i)).expect("a put"));
        db.compact().expect("a compaction");
        db.wait_for_filters().expect("settling");
        assert!(db.segments().iter().all(|s| !old.contains(&s.table)), "every table is rewritten");
        let (within, outside) = hotness_of_the_last_level(&db, &hot);
        if inheritance {
            // All other keys together, 19 times as many: how far hotness has faded and spread by
            // now depends on how busy the machine is.
            assert!(
                within > before / 3.0 && within > outside,
                "{before} before, {within} and {outside} after"
            );
            let (within, outside) = units_within(&db, &hot);
            assert!(within > outside, "{within} {outside}");
        } else {
            assert_eq!((within, outside), (0.0, 0.0));
        }
    }
}

#[test]
fn a_flushed_table_starts_with_the_hotness_of_the_run_below() {
    let (db, _) = filled(&Arc::default());
    read(&db, 0..1000, 30_000);
    let _pause = db.pause_compaction();
    (0..KEYS).step_by(40).for_each(|i| db.put(key(i), value(i)).expect("a put"));
    db.flush().expect("a flush");
    db.wait_for_filters().expect("settling");
    let newest: Vec<_> = db.segments().into_iter().filter(|s| s.level == 0).collect();
    assert!(newest.len() > 2);
    let hottest = newest.iter().max_by(|a, b| a.hotness.total_cmp(&b.hotness)).unwrap();
    assert!(hottest.smallest[..] < key(1000)[..] && hottest.enabled >= 1, "{newest:#?}");
    let others: f64 = newest.iter().filter(|s| s.smallest[..] > key(1000)[..]).map(|s| s.hotness).sum();
    // All other keys together, several times as many. The segment beside it has a part of what a
    // segment below both had.
    assert!(hottest.hotness > others && hottest.hotness > 0.5, "{newest:#?}");
}

/// A table that only changes its level keeps its number, and with it its recorded hotness.
#[test]
fn moved_tables_keep_hotness_and_units() {
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new());
    let mut options = small(fs.clone(), u64::MAX);
    options.keyspace.auto_compaction = false;
    let db = open(&options);
    (0..400).for_each(|i| db.put(key(i), value(i)).expect("a put"));
    db.flush().expect("a flush");
    db.wait_for_filters().expect("settling");
    for _ in 0..20 {
        (0..100).for_each(|i| assert_eq!(db.get(absent(i)).expect("a get"), None));
    }
    wait_until("the gets to be counted", || stats(&db).gets >= 2000 && db.segments()[0].hotness > 0.0);
    let before = db.segments();
    assert_eq!(before[0].level, 0);
    db.close().expect("closing");
    options.keyspace.auto_compaction = true;
    options.keyspace.level0_runs = 1;
    let db = open(&options);
    settle(&db);
    let after = db.segments();
    assert!(after[0].level > 0, "the table was moved");
    for (was, is) in before.iter().zip(&after) {
        assert_eq!((was.table, was.enabled), (is.table, is.enabled));
        assert!((was.hotness - is.hotness).abs() <= 0.1 * was.hotness + 1e-9, "{was:?} {is:?}");
    }
    // And the hotness recorded in the manifest, too.
    db.close().expect("closing");
    let again = open(&options).segments();
    assert!(again.iter().zip(&after).all(|(a, b)| (a.hotness - b.hotness).abs() <= 0.2 * b.hotness + 1e-9));
}

#[test]
fn explain_shows_which_units_were_probed() {
    let (db, _) = filled(&Arc::default());
    read(&db, 3000..4000, 20_000);
    // On a busy machine the thread that moves units is still at it.
    let enabled = || db.segments().iter().map(|segment| segment.enabled).collect::<Vec<_>>();
    let explanation = loop {
        let before = enabled();
        let explanation = db.explain_get(absent(3500)).expect("an explanation");
        if enabled() == before {
            break explanation;
        }
    };
    let mut elastic = 0;
    for step in &explanation.steps {
        let tamis::explain::ExplainStep::Run { table: Some(table), units: Some(units), .. } = step else {
            continue;
        };
        elastic += 1;
        let known =
            db.segments().into_iter().find(|s| s.table == *table && s.segment == units.segment).unwrap();
        assert_eq!((known.units, known.enabled), (units.units, units.enabled));
        assert!(known.smallest <= absent(3500).to_vec() && known.end >= absent(3500).to_vec());
        assert!(units.hotness > 0.0);
    }
    assert!(elastic > 0, "{explanation:?}");
}

/// One digest per get, however many units of however many runs it probes; independent hashing costs
/// as many as documented.
#[test]
fn all_units_of_all_runs_are_probed_with_one_digest() {
    for hashing in [BloomHashing::Rotation, BloomHashing::Double, BloomHashing::Independent] {
        let mut options = small(Arc::new(MemFs::new()), u64::MAX);
        options.keyspace.filter = FilterChoice::Elastic(hashing).into();
        options.keyspace.auto_compaction = false;
        let db = open(&options);
        for run in 0..4 {
            (0..300).for_each(|i| db.put(key(run + 4 * i), value(run + 4 * i)).expect("a put"));
            db.flush().expect("a flush");
        }
        db.wait_for_filters().expect("settling");
        let before = db.stats().read;
        (0..1200).for_each(|i| assert_eq!(db.get(absent(i)).expect("a get"), None));
        (0..1200).for_each(|i| assert_eq!(db.get(key(i)).expect("a get").unwrap(), value(i)));
        let cost = db.stats().read - before;
        let (digests, gets) = (cost.digests, cost.gets);
        match hashing {
            // Each of eight units has two probes; block indexes take one digest of their own.
            BloomHashing::Independent => assert!((16 * gets..=18 * gets).contains(&digests), "{digests}"),
            _ => assert_eq!(digests, gets),
        }
        assert!(cost.false_positives * 200 < gets, "24 bits per key: {cost:?}");
    }
}
