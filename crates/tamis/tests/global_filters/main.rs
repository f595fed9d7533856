//! Filters for the whole tree.

#![allow(missing_docs, reason = "tests")]

mod suite;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tamis::Db;
use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::io::FileSystem;
use tamis::operators::Operators;
use tamis::options::{CompactionChoice, FilterChoice};

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
    histories(FilterChoice::Grf, 0);
}

/// Fewer deletes than make a partition due by growth: with `eager_filter_rebuild` their entries go with the next
/// compaction.
#[test]
fn filter_entries_of_deleted_keys_are_removed_at_once_or_later() {
    let entries = [false, true].map(|eager| {
        let mut options = options(FilterChoice::Grf);
        options.keyspace.compaction = CompactionChoice::Leveling;
        options.keyspace.eager_filter_rebuild = eager;
        let db = Db::open("/db", options).expect("opening");
        (0..4000).for_each(|n| db.put(spread(n), [1; 20]).expect("a write"));
        db.compact().expect("a compaction");
        db.settle_filters().expect("settling");
        let full = report(&db).entries;
        (0..300).for_each(|n| db.delete(spread(n * 13)).expect("a write"));
        db.compact().expect("a compaction");
        db.settle_filters().expect("settling");
        assert_eq!(db.iter().count(), 3700);
        (full, report(&db).entries)
    });
    let [(full, lazy), (_, eager)] = entries;
    assert!(lazy >= full, "{entries:?}");
    assert!(eager <= 3700, "{entries:?}");
}

#[test]
fn a_range_without_keys_opens_hardly_any_run() {
    let mut options = options(FilterChoice::Grf);
    options.keyspace.auto_compaction = false;
    let db = Db::open("/db", options).expect("opening");
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

/// Keys written again and again in a large tree: their codes must continue to distinguish runs.
#[test]
fn keys_rewritten_forever_are_found_in_one_run() {
    for compaction in [CompactionChoice::Leveling, CompactionChoice::LazyLeveling, CompactionChoice::Tiering]
    {
        let mut options = options(FilterChoice::Grf);
        options.keyspace.bits_per_key = 16.0;
        options.keyspace.compaction = compaction;
        options.keyspace.size_ratio = 10.into();
        let db = Db::open("/db", options).expect("opening");
        (0..20_000).for_each(|n| db.put(spread(n), [1; 20]).expect("a write"));
        db.compact().expect("a compaction");
        let (mut gets, mut searched) = (0, 0);
        for round in 0..400u64 {
            for n in 0..100u64 {
                db.put(spread((n * 131 + round % 3) % 20_000), round.to_be_bytes()).expect("a write");
            }
            db.flush().expect("a flush");
            db.settle().expect("settling");
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

/// Regression: key ranges whose tables were dropped kept their partitions forever; a time series that retains only its
/// newest part made the filter grow without bound.
#[test]
fn partitions_without_tables_release_their_memory() {
    let mut options = options(FilterChoice::Grf);
    options.keyspace.compaction = CompactionChoice::Fifo;
    options.keyspace.retain_bytes = 512 << 10;
    let db = Db::open("/db", options).expect("opening");
    let mut most = 0;
    for round in 0..400u64 {
        for n in 0..300u64 {
            db.put((round * 300 + n).to_be_bytes(), [7; 20]).expect("a write");
        }
        db.flush().expect("a flush");
        db.settle().expect("settling");
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

/// Regression: the digits of seven levels with ratio 1000 need more bits than a code has, so no partition of such a
/// tree could be built. A policy without level sizes treats all levels as used.
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
        let db = Db::open("/db", options.clone()).expect("opening");
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
        let db = Db::open("/db", options).expect("opening");
        for n in 0..100u64 {
            db.put(n.to_be_bytes(), "written").expect("a write");
        }
        db.flush().expect("a flush");
        db.settle_filters().expect("settling");
        let filter = report(&db);
        assert_eq!((filter.unbuilt, filter.tables_outside), (0, 0), "{ratio}: {:?}", db.stats().warnings);
        assert_eq!(db.stats().warnings, Vec::<String>::new(), "{ratio}");
        assert_eq!(db.get(7u64.to_be_bytes()).expect("a get").expect("a value"), "written");
        assert_eq!(db.get(400u64.to_be_bytes()).expect("a get").expect("a value"), "ingested");
    }
}
