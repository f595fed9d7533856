//! Filters for the whole tree.

#![allow(missing_docs, reason = "tests")]

mod auto;
mod images;
mod suite;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::io::FileSystem;
use tamis::operators::Operators;
use tamis::options::{CompactionChoice, FilterChoice, KeyMapChoice, PrefixFilter};
use tamis::stats::GlobalFilterStats;

use suite::{cost, filled, histories, options, report, spread};

fn filters() -> Vec<FilterChoice> {
    vec![FilterChoice::Grf]
}

fn operators() -> Operators {
    Operators::new()
}

/// Reports whether the filter names most runs for most keys.
fn names_many_runs(_: FilterChoice) -> bool {
    false
}

#[test]
fn grf_never_rejects_a_present_key() {
    let (rebuilt, collected) = histories(FilterChoice::Grf, 0);
    assert!(rebuilt > 0 && collected > 0, "{rebuilt} rebuilds, {collected} collections");
}

#[test]
fn auto_never_rejects_a_present_key() {
    histories(FilterChoice::Auto, 100);
}

#[test]
fn a_range_without_keys_opens_hardly_any_run() {
    let mut options = options(FilterChoice::Grf);
    options.keyspace.auto_compaction = false;
    let db = options.open("/db").expect("opening");
    filled(&db, 8000);
    let present: BTreeMap<Vec<u8>, ()> = (0..8000).map(|n| (spread(n), ())).collect();
    let mut asked = 0u64;
    let ((), used) = cost(&db, || {
        for n in 8000..10000 {
            let low = spread(n);
            let high = u64::from_be_bytes(low[..].try_into().expect("eight bytes")) | 0xffff_ffff;
            let high = high.to_be_bytes().to_vec();
            if present.range(low.clone()..high.clone()).next().is_none() {
                asked += 2;
                assert_eq!(db.range(low.clone()..high.clone()).count(), 0);
                assert_eq!(db.range(low..high).rev().count(), 0);
            }
        }
    });
    assert!(asked > 3900 && used.seeks < 200, "{asked} ranges, {used:?}");
}

/// A walk through a segment of strings names all nine runs. Iterators do without, but for a prefix
/// that the filter knows.
#[test]
fn strings_of_many_runs_are_walked_only_for_prefixes() {
    for prefix_filter in [PrefixFilter::None, PrefixFilter::Delimiter(b'#')] {
        let mut options = options(FilterChoice::Grf);
        options.keyspace.auto_compaction = false;
        options.keyspace.key_map = KeyMapChoice::Mixed;
        options.keyspace.prefix_filter = prefix_filter;
        let db = options.open("/db").expect("opening");
        let key = |run: usize, n: usize| {
            format!("{}#{:07}{run}", (b'a' + (n % 20) as u8) as char, n * 7919 % 1_000_003)
        };
        for run in 0..9 {
            (0..3000).for_each(|n| db.put(key(run, n), "value").expect("a write"));
            // One run has a prefix of its own between the others.
            if run == 4 {
                (0..30).for_each(|n| db.put(format!("bb#{n}"), "value").expect("a write"));
            }
            db.flush().expect("a flush");
        }
        db.wait_for_filters().expect("settling");
        let (count, used) = cost(&db, || db.prefix("bb#").count());
        assert_eq!(count, 30);
        let (most, least) = if prefix_filter == PrefixFilter::None { (9, 9) } else { (2, 1) };
        assert!((least..=most).contains(&used.seeks), "{prefix_filter:?}: {used:?}");
        let back = db.prefix("bb#").rev().count();
        assert_eq!((back, db.iter().count()), (30, 9 * 3000 + 30));
    }
}

/// Keys written again and again in a large tree: their codes must continue to distinguish runs.
#[test]
fn keys_rewritten_forever_are_found_in_one_run() {
    for compaction in [CompactionChoice::Leveling, CompactionChoice::LazyLeveling, CompactionChoice::Tiering]
    {
        let mut options = options(FilterChoice::Grf);
        options.keyspace.bits_per_key = 16.0;
        options.keyspace.compaction = compaction;
        options.keyspace.size_ratio = 10.into();
        let db = options.open("/db").expect("opening");
        (0..20_000).for_each(|n| db.put(spread(n), [1; 20]).expect("a write"));
        db.compact().expect("a compaction");
        let (mut gets, mut searched) = (0, 0);
        for round in 0..400u64 {
            for n in 0..100u64 {
                db.put(spread((n * 131 + round % 3) % 20_000), round.to_be_bytes()).expect("a write");
            }
            db.flush().expect("a flush");
            db.wait_for_compaction().expect("settling");
            let (_, used) = cost(&db, || {
                for n in 0..300u64 {
                    assert!(db.get(spread((n / 3 * 131 + n % 3) % 20_000)).expect("a get").is_some());
                }
            });
            (gets, searched) = (gets + 300, searched + used.runs_searched);
        }
        assert!(searched < gets + gets / 10, "{compaction:?}: {searched} runs searched by {gets} gets");
    }
}

/// Regression: key ranges whose tables were dropped kept their partitions forever; a time series
/// that retains only its newest part made the filter grow without bound.
#[test]
fn partitions_without_tables_release_their_memory() {
    let mut options = options(FilterChoice::Grf);
    options.keyspace.compaction = CompactionChoice::Fifo;
    options.keyspace.retain_bytes = 512 << 10;
    let db = options.open("/db").expect("opening");
    let mut most = 0;
    for round in 0..400u64 {
        for n in 0..300u64 {
            db.put((round * 300 + n).to_be_bytes(), [7; 20]).expect("a write");
        }
        db.flush().expect("a flush");
        db.wait_for_compaction().expect("settling");
        if round == 120 {
            most = report(&db).bytes;
        }
    }
    let (filter, entries) = (report(&db), db.default_keyspace().stats().entries);
    assert!(entries < 30_000, "{entries} entries");
    assert!(
        filter.bytes <= 2 * most && filter.entries <= 3 * entries,
        "{entries} entries, {most}: {filter:?}"
    );
}

/// Regression: the digits of seven levels with ratio 1000 need more bits than a code has, so no
/// partition of such a tree could be built. A policy without level sizes treats all levels as used.
#[test]
fn a_deep_tree_with_a_large_ratio_gets_its_filter() {
    for ratio in [2, 300, 1000] {
        let mut options = options(FilterChoice::Grf);
        let fs: Arc<dyn FileSystem> = options.file_system.clone().expect("one");
        fs.create_dir_all(Path::new("/out")).expect("a directory");
        options.keyspace.compaction = CompactionChoice::Leveling;
        options.keyspace.size_ratio = ratio.into();
        options.keyspace.levels = 16;
        options.keyspace.auto_compaction = false;
        let db = options.clone().open("/db").expect("opening");
        // The first table of an empty tree goes into its last level.
        let path = Path::new("/out/first.tam");
        let mut table =
            ExternalTableBuilder::create_on(fs, path, &db.default_keyspace().options()).expect("a table");
        (0..500u64).for_each(|n| table.put(n.to_be_bytes(), "ingested").expect("an entry"));
        table.finish().expect("a table");
        let ingested = db.default_keyspace().ingest(&[path], IngestOptions::default()).expect("an ingestion");
        assert_eq!(ingested.tables[0].level, 15);
        db.close().expect("closing");
        options.keyspace.compaction = CompactionChoice::Fifo;
        let db = options.open("/db").expect("opening");
        for n in 0..100u64 {
            db.put(n.to_be_bytes(), "written").expect("a write");
        }
        db.flush().expect("a flush");
        db.wait_for_filters().expect("settling");
        let filter = report(&db);
        assert_eq!((filter.unbuilt, filter.tables_outside), (0, 0), "{ratio}: {:?}", db.stats().warnings);
        assert_eq!(db.stats().warnings, Vec::<String>::new(), "{ratio}");
        assert_eq!(db.get(7u64.to_be_bytes()).expect("a get").expect("a value"), "written");
        assert_eq!(db.get(400u64.to_be_bytes()).expect("a get").expect("a value"), "ingested");
    }
}

/// The filter is built for what readers ask, so the engine has to notice that: every kind of read,
/// wherever it begins.
#[test]
fn reads_are_sampled_by_kind_where_the_filter_goes_by_them() {
    let reads = |filter| {
        let mut options = options(filter);
        options.keyspace.auto_compaction = false;
        let db = options.open("/db").expect("opening");
        filled(&db, 4000);
        let keys: Vec<Vec<u8>> = (4000..8000).map(spread).collect();
        for _ in 0..20 {
            keys.iter().for_each(|key| assert_eq!(db.get(key).expect("a get"), None));
            keys.chunks(100).for_each(|keys| drop(db.multi_get(keys).expect("gets")));
        }
        let absent = db.default_keyspace().stats().queries;
        for _ in 0..10 {
            for n in 0..2000 {
                let low = spread(n);
                assert!(db.range(low.clone()..=low.clone()).next().is_some());
                assert!(db.range([&low[..], &[0]].concat()..[&low[..], &[1]].concat()).next_back().is_none());
                assert!(db.range(low.clone()..).next().is_some());
                let mut iter = db.iter();
                iter.seek(&low).expect("a seek");
                assert!(iter.next().is_some());
            }
        }
        (absent, db.default_keyspace().stats().queries)
    };
    assert_eq!(reads(FilterChoice::BlockedBloom), (None, None), "other keyspaces pay nothing");
    let (Some(gets), Some(all)) = reads(FilterChoice::Grf) else { panic!("no sample") };
    // Decay and chance leave a tenth of room.
    assert!(gets.absent_gets > 0.9 && gets.observed > 150_000 && gets.kept == (256, 0, 0), "{gets:?}");
    assert_eq!(all.kept, (256, 256, 256));
    assert!((all.ranges - all.seeks).abs() < 0.1 * all.ranges, "{all:?}");
    assert!((all.empty_ranges - all.ranges / 2.0).abs() < 0.15 * all.ranges, "{all:?}");
    assert!(all.absent_gets < gets.absent_gets && all.found_gets < 0.05, "{all:?}");
}

/// Maps were chosen when partitions were built, so those of a load stayed, whatever was asked
/// afterwards: ranges right behind keys, as of the next page of a listing, opened a run each.
#[test]
fn maps_follow_the_reads() {
    let mut options = options(FilterChoice::Grf);
    options.keyspace.auto_compaction = false;
    options.keyspace.bits_per_key = 14.0;
    let db = options.open("/db").expect("opening");
    filled(&db, 40_000);
    db.wait_for_filters().expect("settling");
    let maps = || -> Vec<String> { report(&db).maps.into_iter().map(|map| map.map).collect() };
    let rebuilt = || report(&db).rebuilt.0;
    assert_eq!(maps(), ["learned"]);
    let behind_keys = || {
        for n in 0..8000 {
            let key = u64::from_be_bytes(spread(n)[..].try_into().expect("eight bytes"));
            let next = |by: u64| (key + by).to_be_bytes();
            assert_eq!(db.range(next(1)..next(33)).count(), 0);
        }
    };
    let ((), before) = cost(&db, behind_keys);
    assert!(before.range_false_positives > 6000, "{before:?}");
    behind_keys();
    behind_keys();
    db.wait_for_filters().expect("settling");
    assert_eq!(maps(), ["local"]);
    let ((), after) = cost(&db, behind_keys);
    assert!(after.range_false_positives * 10 < before.range_false_positives, "{after:?}");
    // More of the same changes nothing, and neither does another kind of reads that the map serves.
    let built = rebuilt();
    (0..8).for_each(|_| behind_keys());
    db.wait_for_filters().expect("settling");
    assert_eq!((rebuilt(), maps()), (built, vec!["local".into()]));
    // Seeks opened all runs under this map, and nobody noticed: they are as many of the reads as
    // the ranges were.
    let seeks = || {
        for n in 0..8000 {
            let key = u64::from_be_bytes(spread(n)[..].try_into().expect("eight bytes"));
            assert!(db.range((key + 1).to_be_bytes()..).next().is_some() || key > u64::MAX / 40_000 * 39_990);
        }
    };
    let ((), before) = cost(&db, seeks);
    (0..8).for_each(|_| seeks());
    db.wait_for_filters().expect("settling");
    assert_eq!(maps(), ["learned"]);
    let ((), after) = cost(&db, seeks);
    assert!(after.runs_opened * 3 < before.runs_opened, "{before:?}, {after:?}");
}

/// A map is not rebuilt for what chance makes of queries that it answers as well as any.
#[test]
fn uniform_reads_rebuild_nothing() {
    let mut options = options(FilterChoice::Grf);
    options.keyspace.auto_compaction = false;
    let db = options.open("/db").expect("opening");
    filled(&db, 40_000);
    db.wait_for_filters().expect("settling");
    let built = report(&db).rebuilt.0;
    for round in 0..10 {
        for n in 0..20_000 {
            assert_eq!(db.get(spread(40_000 + round * 20_000 + n)).expect("a get"), None);
        }
        db.wait_for_filters().expect("settling");
    }
    assert_eq!(report(&db).rebuilt.0, built);
    // Keys that were absent when they were asked for, and are there now.
    for n in 40_000..44_000 {
        for _ in 0..10 {
            assert_eq!(db.get(spread(n)).expect("a get"), None);
        }
        db.put(spread(n), "value").expect("a put");
    }
    db.flush().expect("a flush");
    db.wait_for_filters().expect("settling");
    assert_eq!(report(&db).rebuilt.0, built);
}

/// The parts of a partition that do not depend on its size, and the directory, took up to 0.4 bits
/// a key on top of ten.
#[test]
fn all_memory_is_within_two_percent_of_what_was_asked() {
    for (runs, table_bytes) in [(1u64, 256 << 10), (4, 256 << 10), (4, 64 << 20), (19, 256 << 10)] {
        for built_late in [true, false] {
            let mut options =
                options(if built_late { FilterChoice::BlockedBloom } else { FilterChoice::Grf });
            options.keyspace.auto_compaction = false;
            options.keyspace.table_bytes = table_bytes;
            options.keyspace.memtable_bytes = 64 << 20;
            options.keyspace.bits_per_key = 10.0;
            let mut db = options.clone().open("/db").expect("opening");
            let keys = 152_000;
            for run in 0..runs {
                for n in (0..keys).filter(|n| n % runs == run) {
                    db.put(spread(n), [7; 20]).expect("a write");
                }
                db.flush().expect("a flush");
                // A flush during a build is inserted after it: then partitions differ by a few
                // percent from time to time.
                db.wait_for_filters().expect("settling");
                if run == 0 {
                    db.compact().expect("a compaction");
                }
            }
            if built_late {
                db.close().expect("closing");
                options.keyspace.filter = FilterChoice::Grf.into();
                db = options.open("/db").expect("opening");
            }
            db.wait_for_filters().expect("settling");
            let GlobalFilterStats { bytes, partitions, .. } = report(&db);
            let bits = bytes as f64 * 8.0 / keys as f64;
            let what = format!("{runs} runs, tables of {table_bytes}, built late: {built_late}");
            assert!(bits <= 10.2, "{what}: {bits:.3} bits a key, {partitions} partitions");
        }
    }
}
