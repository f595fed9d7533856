//! `filter = auto` as a program sees it: background threads change the filter under readers and
//! writers, by the reads that they see.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tamis::options::FilterChoice;
use tamis::stats::AutoFilterStats;
use tamis::{Db, Options};

use tamis_testkit::FaultyFs;

use crate::suite::{options, report, spread};

fn auto() -> Options {
    let mut options = options(FilterChoice::Auto);
    options.keyspace.auto_compaction = false;
    options.keyspace.read_compaction = false;
    options
}

fn choice(db: &Db) -> AutoFilterStats {
    db.default_keyspace().stats().auto_filter.expect("a choice")
}

fn run(db: &Db, keys: std::ops::Range<u64>) {
    keys.for_each(|n| db.put(spread(n), n.to_be_bytes()).expect("a write"));
    db.flush().expect("a flush");
    db.wait_for_filters().expect("settling");
}

/// Empty ranges make a filter for the tree worth its while even over one run, gets do not: the
/// engine notices which it serves. And it does not change back and forth within a round, nor before
/// it has seen enough.
#[test]
fn the_filter_follows_the_reads() {
    let mut options = auto();
    options.keyspace.bits_per_key = 14.0;
    let db = options.open("/db").expect("opening");
    run(&db, 0..6000);
    let ranges = |count: u64| {
        for n in 0..count {
            let from = spread(10_000 + n);
            let mut end = from.clone();
            end.push(1);
            assert_eq!(db.range(from..end).count(), 0);
        }
    };
    let keys: Vec<Vec<u8>> = (0..9000).map(spread).collect();
    let gets = |times: u64| {
        for _ in 0..times {
            for (at, keys) in keys.chunks(500).enumerate() {
                assert!(db.multi_get(keys).expect("gets").iter().all(|found| found.is_some() == (at < 12)));
            }
        }
    };
    ranges(10_000);
    db.wait_for_filters().expect("settling");
    let early = choice(&db);
    assert_eq!((&early.in_force[..], &early.wanted[..]), ("per-table", "per-table"), "{early:?}");
    assert!(early.reason.contains("fewer than 16384 reads"), "{early:?}");

    ranges(15_000);
    db.wait_for_filters().expect("settling");
    let now = choice(&db);
    assert_eq!((&now.in_force[..], &now.wanted[..], now.changes), ("global", "global", 1), "{now:?}");
    assert!(now.global_ns < 0.8 * now.per_table_ns && now.reason.contains("1 runs take"), "{now:?}");
    let queries = db.default_keyspace().stats().queries.expect("a sample");
    assert!(queries.ranges > 0.8 && queries.empty_ranges > 0.8, "{queries:?}");

    // A second run is written for the global filter; it is less than a quarter of the tree.
    run(&db, 0..300);
    assert_eq!(db.default_keyspace().stats().tables_with_key_list, 1);
    gets(220);
    db.wait_for_filters().expect("settling");
    let waiting = choice(&db);
    assert_eq!((&waiting.in_force[..], &waiting.wanted[..]), ("global", "global"), "{waiting:?}");
    assert!(waiting.reason.contains("the next round may change it"), "{waiting:?}");

    // With a quarter of the entries rewritten, new tables have filters again. The second run still
    // has none, so the global filter stays until it is merged.
    run(&db, 6000..9000);
    let leaving = choice(&db);
    assert_eq!((&leaving.in_force[..], &leaving.wanted[..]), ("global", "per-table"), "{leaving:?}");
    assert_eq!(leaving.tables_without_own_filter, 1);
    assert!(leaving.reason.contains("1 tables still need"), "{leaving:?}");
    db.compact().expect("a compaction");
    db.wait_for_filters().expect("settling");
    let end = choice(&db);
    assert_eq!((&end.in_force[..], end.changes), ("per-table", 2), "{end:?}");
    assert!((0..9000).all(|n| db.get(spread(n)).expect("a get").is_some()));
}

/// Readers and a writer do not notice the changes: every reader sees at least what was acknowledged
/// before it began.
#[test]
fn readers_miss_nothing_while_the_filter_changes() {
    const KEYS: u64 = 3000;
    let mut options = auto();
    options.set("keyspace.workload", "get 10, empty-get 10, seek 1").expect("a workload");
    let db = options.open("/db").expect("opening");
    let (written, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let value = |n: u64, round: u64| [n.to_be_bytes(), round.to_be_bytes()].concat();
    let round_of = |value: &[u8]| u64::from_be_bytes(value[8..].try_into().expect("eight bytes"));
    std::thread::scope(|scope| {
        let (db, written, stop) = (&db, &written, &stop);
        for reader in 0..2u64 {
            scope.spawn(move || {
                let mut n = reader;
                while !stop.load(Relaxed) {
                    n = (n * 31 + 7) % (2 * KEYS);
                    let round = written.load(Relaxed);
                    let found = db.get(spread(n)).expect("a get");
                    match round {
                        0 => assert!(found.is_none() || n < KEYS, "{n}"),
                        _ => assert_eq!(found.is_some(), n < KEYS, "{n}"),
                    }
                    assert!(
                        found.is_none_or(|value| round_of(&value) + 8 >= round),
                        "{n}: older than {round}"
                    );
                    if n % 64 == 0 && round > 0 {
                        let keys =
                            db.iter().filter(|item| item.as_ref().expect("an item").0.len() == 8).count()
                                as u64;
                        assert_eq!(keys, KEYS);
                        let from = spread(n);
                        let first = db.range(from.clone()..).next().map(|item| item.expect("an item").0);
                        assert!(n >= KEYS || first.as_deref() == Some(&from[..]), "{n}: {first:?}");
                    }
                }
            });
        }
        // Every eighth key in each round after the first.
        for round in 1..=24u64 {
            for n in (0..KEYS).filter(|n| round == 1 || (n + round) % 8 == 0) {
                db.put(spread(n), value(n, round)).expect("a write");
            }
            written.store(round, Relaxed);
            db.flush().expect("a flush");
            if round == 14 {
                db.wait_for_filters().expect("settling");
                assert_eq!(choice(db).in_force, "global");
            }
            if round % 20 == 16 {
                db.compact().expect("a compaction");
                db.wait_for_filters().expect("settling");
                assert_eq!(choice(db).in_force, "per-table");
            }
        }
        db.wait_for_filters().expect("settling");
        stop.store(true, Relaxed);
    });
    assert!(choice(&db).changes >= 3, "{:?}", choice(&db));
    let found: BTreeMap<Vec<u8>, Vec<u8>> = db
        .iter()
        .map(|item| item.expect("an item"))
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect();
    assert!(found.len() as u64 == KEYS && found.values().all(|value| round_of(value) >= 17));
}

/// While the filter of the tree is in force it is saved, and an opening takes it from its files:
/// merged tables have no list to build it from. Once each table has its own filter again, the files
/// go with the next opening.
#[test]
fn the_filter_of_the_tree_is_saved_while_it_is_in_force() {
    let mut options = auto();
    options.set("keyspace.workload", "get 10, empty-get 10, seek 10").expect("a workload");
    let fs = FaultyFs::new(1);
    options.file_system = Some(Arc::new(fs.clone()));
    let db = options.clone().open("/db").expect("opening");
    let all = |db: &Db| (0..6000).all(|n| db.get(spread(n)).expect("a get").is_some());
    // Merges among many runs leave many runs.
    (0..10).for_each(|n| run(&db, n * 300..(n + 1) * 300));
    assert_eq!(choice(&db).in_force, "global");
    db.default_keyspace().change_options(|options| options.auto_compaction = true).expect("options");
    (10..20).for_each(|n| run(&db, n * 300..(n + 1) * 300));
    db.wait_for_compaction().expect("settling");
    let (stats, now) = (db.default_keyspace().stats(), choice(&db));
    assert_eq!(now.in_force, "global", "{stats:?}");
    assert!(
        now.tables_without_own_filter > stats.tables_with_key_list,
        "merged tables have neither: {stats:?}"
    );
    assert!(stats.filter_files > 0, "{stats:?}");
    assert!(all(&db));
    db.close().expect("closing");

    let db = options.clone().open("/db").expect("opening");
    db.wait_for_filters().expect("settling");
    let filter = report(&db);
    assert_eq!((&choice(&db).in_force[..], filter.unbuilt), ("global", 0));
    assert_eq!((filter.keys_from_lists, filter.keys_from_data, filter.rebuilt.0), (0, 0, 0), "{filter:?}");
    assert!(filter.images_loaded > 0 && all(&db), "{filter:?}");
    db.compact().expect("a compaction");
    db.wait_for_filters().expect("settling");
    assert_eq!(choice(&db).in_force, "per-table");
    db.close().expect("closing");

    let db = options.open("/db").expect("opening");
    assert_eq!((&choice(&db).in_force[..], db.default_keyspace().stats().filter_files), ("per-table", 0));
    assert!(all(&db));
    db.close().expect("closing");
    assert!(fs.files().iter().all(|(path, _)| path.extension().is_none_or(|e| e != "flt")));
}
