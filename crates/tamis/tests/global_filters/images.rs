//! Filters that are made of filter files: what an opening reads, and that answers are right
//! whatever became of the files. Debug builds compare every rejection with the data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::options::{FilterChoice, KeyMapChoice, PrefixFilter};
use tamis::{Db, Durability, Options, WriteBatch};
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs};

use crate::suite::{cost, report, spread};

const MODES: [CrashMode; 3] = [CrashMode::KeepAll, CrashMode::DropUnsynced, CrashMode::Random];

fn options(fs: &FaultyFs) -> Options {
    let mut options = crate::suite::options(FilterChoice::Grf);
    options.file_system = Some(Arc::new(fs.clone()));
    options.reserve_bytes = 0;
    options.cache_bytes = 64 << 10;
    options.keyspace.auto_compaction = false;
    options
}

fn open(fs: &FaultyFs) -> Db {
    options(fs).open("/db").expect("opening")
}

fn put(db: &Db, keys: impl Iterator<Item = u64>, value: u64) {
    keys.for_each(|n| db.put(spread(n), value.to_be_bytes()).expect("a write"));
}

fn flushed(db: &Db, keys: impl Iterator<Item = u64>, value: u64) {
    put(db, keys, value);
    db.flush().expect("a flush");
}

/// A database of 20,000 keys in two partitions with two newer runs, whose filter is saved.
fn saved(fs: &FaultyFs) -> Db {
    let db = open(fs);
    flushed(&db, 0..20_000, 0);
    db.compact().expect("a compaction");
    flushed(&db, (0..20_000).step_by(40), 1);
    flushed(&db, (0..20_000).step_by(50), 2);
    db.wait_for_filters().expect("settling");
    db
}

fn value_of(n: u64) -> Option<u64> {
    (n < 20_000).then_some(match n {
        n if n.is_multiple_of(50) => 2,
        n if n.is_multiple_of(40) => 1,
        _ => 0,
    })
}

fn get(db: &Db, n: u64) -> Option<u64> {
    let value = db.get(spread(n)).expect("a get")?;
    Some(u64::from_be_bytes(value[..].try_into().expect("eight bytes")))
}

fn check(db: &Db, context: &str) {
    (0..22_000).step_by(7).for_each(|n| assert_eq!(get(db, n), value_of(n), "{context}: {n}"));
}

/// Checks that the filter is complete, and that no key was read from a table.
fn check_loaded(db: &Db, context: &str) {
    db.wait_for_filters().expect("settling");
    let filter = report(db);
    assert_eq!(
        (filter.images_loaded, filter.unbuilt),
        (filter.partitions as u64, 0),
        "{context}: {filter:?}"
    );
    assert_eq!(
        (filter.inserted.0, filter.rebuilt.0, filter.keys_from_lists, filter.keys_from_data),
        (0, 0, 0, 0),
        "{context}: {filter:?}"
    );
    assert!(filter.partitions >= 2, "{context}: {filter:?}");
    let ((), used) = cost(db, || (30_000..30_500).for_each(|n| assert_eq!(get(db, n), None)));
    assert!(used.filter_probes == 500 && used.filter_negatives > 450, "{context}: {used:?}");
}

fn filter_files(fs: &FaultyFs) -> Vec<PathBuf> {
    let files = fs.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.extension().is_some_and(|e| e == "flt")).collect()
}

#[test]
fn after_a_clean_close_no_key_is_read_from_a_table() {
    let fs = FaultyFs::new(1);
    saved(&fs).close().expect("closing");
    for round in 0..3 {
        let db = open(&fs);
        check_loaded(&db, &format!("opening {round}"));
        check(&db, &format!("opening {round}"));
        assert_eq!(report(&db).images_saved, 0, "nothing has changed");
        db.close().expect("closing");
    }
    // A key in one partition: the table covers one key range alone, and the next opening needs no
    // table again.
    let db = open(&fs);
    flushed(&db, 0..1, 2);
    db.compact().expect("a compaction");
    flushed(&db, (0..20_000).step_by(5_000), 2);
    db.close().expect("closing");
    let db = open(&fs);
    check_loaded(&db, "after flushes and a compaction");
    check(&db, "after flushes and a compaction");
    assert_eq!(db.stats().warnings, Vec::<String>::new());
}

/// A merge's output brings no key that the filter lacks, so it has no list; flushed tables have
/// one. Without its files the filter is built from both.
#[test]
fn without_filter_files_the_filter_is_built_from_lists_and_data() {
    let fs = FaultyFs::new(8);
    let db = saved(&fs);
    let stats = db.default_keyspace().stats();
    assert_eq!((stats.runs, stats.tables_with_key_list, stats.tables_without_filter), (3, 2, 0), "{stats:?}");
    db.close().expect("closing");
    for path in filter_files(&fs) {
        tamis::io::FileSystem::remove(&fs, &path).expect("a file");
    }
    let reader = options(&fs).open_read_only("/db").expect("opening");
    for (db, context) in [(&reader, "a reader"), (&open(&fs), "a writer")] {
        check(db, context);
        db.wait_for_filters().expect("settling");
        let filter = report(db);
        assert_eq!(
            (filter.images_loaded, filter.unbuilt, filter.damaged_lists),
            (0, 0, 0),
            "{context}: {filter:?}"
        );
        // The lists of the two flushed tables are read once for each group of partitions, by its
        // key range.
        assert_eq!((filter.keys_from_lists, filter.keys_from_data), (900, 20_000), "{context}: {filter:?}");
        check(db, context);
        let ((), used) = cost(db, || (30_000..30_500).for_each(|n| assert_eq!(get(db, n), None)));
        assert!(used.filter_probes == 500 && used.filter_negatives > 450, "{context}: {used:?}");
    }
}

/// The tables that came after the images are their log.
#[test]
fn after_a_crash_only_newer_tables_are_read() {
    let fs = FaultyFs::new(2);
    let db = saved(&fs);
    let partitions = report(&db).partitions as u64;
    let late: Vec<u64> = (0..300).map(|n| n * 50).collect();
    flushed(&db, late.iter().copied(), 2);
    let crashed = fs.after_crash(CrashMode::DropUnsynced);
    let db = open(&crashed);
    db.wait_for_filters().expect("settling");
    let filter = report(&db);
    assert_eq!((filter.images_loaded, filter.unbuilt, filter.rebuilt.0), (partitions, 0, 0), "{filter:?}");
    // The two flushes before were added to partitions that were saved before them.
    assert!(filter.inserted.0 >= 300 && filter.inserted.0 <= 300 + 500 + 400, "{filter:?}");
    check(&db, "after a crash");
    // Merged with older tables, the log is a larger table.
    drop(db);
    let db = open(&fs.after_crash(CrashMode::KeepAll));
    db.compact().expect("a compaction");
    let crashed = fs.after_crash(CrashMode::KeepAll);
    check(&open(&crashed), "merged");
}

#[test]
fn readers_and_checkpoints_use_the_images() {
    let fs = FaultyFs::new(3);
    saved(&fs).close().expect("closing");
    let files = filter_files(&fs);
    let reader = options(&fs).open_read_only("/db").expect("opening");
    check_loaded(&reader, "read-only");
    check(&reader, "read-only");
    drop(reader);
    assert_eq!(filter_files(&fs), files, "a reader saves nothing");
    let db = open(&fs);
    db.checkpoint("/copy").expect("a checkpoint");
    let copy = options(&fs).open("/copy").expect("opening");
    check_loaded(&copy, "a checkpoint");
    check(&copy, "a checkpoint");
}

/// With any byte of a filter file changed, or the file missing, answers are right and the filter is
/// complete in the end.
#[test]
fn damaged_filter_files_cost_no_answer() {
    let fs = FaultyFs::new(4);
    saved(&fs).close().expect("closing");
    let mut rebuilt = 0;
    for path in filter_files(&fs) {
        let len = fs.files().into_iter().find(|(file, _)| *file == path).expect("a file").1;
        let first = (0..len).step_by(1 + len as usize / 40);
        for at in first.chain(len - 70..len).map(Some).chain([None]) {
            let context = format!("{} at {at:?}", path.display());
            let hurt = fs.after_crash(CrashMode::KeepAll);
            match at {
                Some(at) => hurt.corrupt(&path, at, 4).expect("a byte"),
                None => tamis::io::FileSystem::remove(&hurt, &path).expect("a file"),
            }
            let db = open(&hurt);
            (0..22_000).step_by(997).for_each(|n| assert_eq!(get(&db, n), value_of(n), "{context}: {n}"));
            db.wait_for_filters().expect("settling");
            (0..22_000).step_by(499).for_each(|n| assert_eq!(get(&db, n), value_of(n), "{context}: {n}"));
            let filter = report(&db);
            assert_eq!((filter.unbuilt, db.stats().warnings.len()), (0, 1), "{context}: {filter:?}");
            // What was lost was in force, or an older image has come in its place.
            assert!(filter.rebuilt.0 + filter.inserted.0 > 0, "{context}: {filter:?}");
            rebuilt += u64::from(filter.rebuilt.0 > 0);
            db.close().expect("closing");
            let db = open(&hurt);
            check_loaded(&db, &context);
        }
    }
    assert!(rebuilt > 0);
}

/// Images that were built with other options are used until the background has rebuilt their
/// ranges.
#[test]
fn images_of_other_options_are_replaced() {
    let fs = FaultyFs::new(5);
    saved(&fs).close().expect("closing");
    let changes: [fn(&mut Options); 4] = [
        |options| options.keyspace.bits_per_key = 14.0,
        |options| options.keyspace.key_map = KeyMapChoice::Digest,
        |options| options.keyspace.prefix_filter = PrefixFilter::Length(3),
        |options| options.keyspace.prefix_filter = PrefixFilter::Lengths(1, 4),
    ];
    let mut wanted = options(&fs);
    for (number, change) in changes.into_iter().enumerate() {
        change(&mut wanted);
        let db = wanted.clone().open("/db").expect("opening");
        check(&db, &format!("change {number}"));
        db.wait_for_filters().expect("settling");
        let filter = report(&db);
        assert!(filter.images_loaded > 0 && filter.rebuilt.0 > 0, "change {number}: {filter:?}");
        db.close().expect("closing");
        let db = wanted.clone().open("/db").expect("opening");
        check_loaded(&db, &format!("after change {number}"));
        check(&db, &format!("after change {number}"));
        for n in (0..20_000).step_by(1_001) {
            let key = spread(n);
            assert!(db.prefix(&key[..3]).any(|item| item.expect("a step").0[..] == key[..]), "{n}");
        }
        db.close().expect("closing");
    }
}

#[test]
fn files_go_with_their_keyspace() {
    let fs = FaultyFs::new(6);
    let db = open(&fs);
    let keyspace = db.create_keyspace("k", options(&fs).keyspace).expect("a keyspace");
    keyspace.put("key", "value").expect("a write");
    keyspace.flush().expect("a flush");
    db.wait_for_filters().expect("settling");
    assert_eq!((keyspace.stats().filter_files, filter_files(&fs).len()), (1, 1));
    drop(keyspace);
    db.drop_keyspace("k").expect("dropping");
    db.close().expect("closing");
    assert_eq!(filter_files(&fs), Vec::<PathBuf>::new());
}

type Model = BTreeMap<Vec<u8>, u64>;

/// Writes, flushes, merges, ingests and opens again, and records in `model` what was acknowledged.
/// Stops at the first failure, and returns the entries that may or may not be there then.
fn tour(options: &Options, fs: &FaultyFs, model: &mut Model) -> Result<(), Model> {
    for session in 0..3u64 {
        let Ok(db) = options.clone().open("/db") else { return Err(Model::new()) };
        for round in 0..3u64 {
            let number = session * 3 + round;
            let new: Model = (0..60).map(|n| (spread((n * 17 + number * 29) % 400), number)).collect();
            let written = if round == 1 {
                ingest(fs, &db, &new, number)
            } else {
                let mut batch = WriteBatch::new();
                for (key, value) in &new {
                    batch.put(key, value.to_be_bytes());
                }
                db.write_with(batch, Durability::Sync).is_ok()
            };
            if !written {
                return Err(new);
            }
            model.extend(new);
            let went =
                db.flush().is_ok() && (number != 4 || db.compact().is_ok()) && db.wait_for_filters().is_ok();
            if !went {
                return Err(Model::new());
            }
        }
        if db.close().is_err() {
            return Err(Model::new());
        }
    }
    Ok(())
}

fn ingest(fs: &FaultyFs, db: &Db, entries: &Model, number: u64) -> bool {
    let build = || -> Option<()> {
        let path = PathBuf::from(format!("/out/{number}.tam"));
        let options = db.default_keyspace().options();
        tamis::io::FileSystem::create_dir_all(fs, Path::new("/out")).ok()?;
        let mut table = ExternalTableBuilder::create_on(Arc::new(fs.clone()), &path, &options).ok()?;
        entries.iter().try_for_each(|(key, value)| table.put(key, value.to_be_bytes())).ok()?;
        table.finish().ok()?;
        db.default_keyspace().ingest(&[path], IngestOptions::default()).ok().map(drop)
    };
    build().is_some()
}

fn with_prefixes(fs: &FaultyFs) -> Options {
    let mut options = options(fs);
    options.keyspace.prefix_filter = PrefixFilter::Length(2);
    options
}

#[test]
fn a_crash_at_any_moment_leaves_right_answers() {
    crash_at_any_moment(with_prefixes);
}

/// Likewise where the filter comes and goes, and images with it.
#[test]
fn a_crash_at_any_moment_under_auto_leaves_right_answers() {
    crash_at_any_moment(|fs| {
        let mut options = with_prefixes(fs);
        options.keyspace.filter = FilterChoice::Auto.into();
        options.keyspace.bits_per_key = 14.0;
        options.set("keyspace.workload", "empty-range 10").expect("a workload");
        options
    });
}

/// The world stops at each operation in turn. The next opening has every answer right before its
/// filter is complete, and after.
fn crash_at_any_moment(options: fn(&FaultyFs) -> Options) {
    let (mut stops, mut loaded) = (0, 0);
    for stop in 0.. {
        let fs = FaultyFs::new(stop);
        fs.plan(FaultPlan { fail_at: Some(stop), sticky: true, partial_append: true, ..FaultPlan::none() });
        let mut model = Model::new();
        let ended = tour(&options(&fs), &fs, &mut model);
        if ended.is_ok() && fs.failures() == 0 {
            break;
        }
        let open = ended.err().unwrap_or_default();
        for mode in MODES {
            let context = format!("stopped at operation {stop}, {mode:?}");
            let after = fs.after_crash(mode);
            let db = options(&after).open("/db").unwrap_or_else(|e| panic!("{context}: {e}"));
            let check = |when: &str| {
                for n in 0..500 {
                    let key = spread(n);
                    let found = get(&db, n);
                    let right = found == model.get(&key).copied() || found == open.get(&key).copied();
                    assert!(right, "{context}, {when}: {n} has {found:?}");
                }
                let found = db.iter().map(|item| item.expect("a step").0.to_vec());
                let found: Vec<Vec<u8>> = found.collect();
                assert!(model.keys().all(|key| found.binary_search(key).is_ok()), "{context}, {when}");
            };
            check("at once");
            db.wait_for_filters().unwrap_or_else(|e| panic!("{context}: {e}"));
            check("settled");
            loaded += db.default_keyspace().stats().global_filter.map_or(0, |filter| filter.images_loaded);
            assert_eq!(db.verify().expect("verifying").problems, Vec::<String>::new(), "{context}");
        }
        stops += 1;
    }
    assert!(stops > 100 && loaded > 100, "{stops} stops, {loaded} images loaded");
}
