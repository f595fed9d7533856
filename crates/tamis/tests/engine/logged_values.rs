//! Large values that are written once: tables refer to them in logs, which become blob files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tamis::changes::OperationKind;
use tamis::clock::ManualClock;
use tamis::io::{FileSystem, MemFs, Usage, read_file};
use tamis::operators::{CompactionFilter, Decision, Operators};
use tamis::options::ReadMode;
use tamis::stats::ScrubStats;
use tamis::{Db, Durability, KeyspaceOptions, Options, ReadError, StorageError, WriteBatch};
use tamis_testkit::{FaultPlan, FaultyFs, OpClass};

const DIR: &str = "db";
const KEYS: u32 = 200;
const LEN: usize = 5000;

fn options(fs: &MemFs) -> Options {
    let keyspace =
        KeyspaceOptions { blob_threshold: 1000, memtable_bytes: 256 << 10, ..KeyspaceOptions::default() };
    Options { keyspace, file_system: Some(Arc::new(fs.clone())), ..Options::default() }
}

fn key(i: u32) -> String {
    format!("key {i:05}")
}

fn value(i: u32, round: u32) -> Vec<u8> {
    format!("{i} in round {round}, ").into_bytes().into_iter().cycle().take(LEN).collect()
}

fn fill(db: &Db, round: u32) {
    (0..KEYS).rev().for_each(|i| db.put(key(i), value(i, round)).unwrap());
    db.flush().unwrap();
}

fn check(db: &Db, round: u32) {
    check_values(db, round);
    assert!(db.verify().unwrap().problems.is_empty());
}

fn check_values(db: &Db, round: u32) {
    (0..KEYS).for_each(|i| assert_eq!(db.get(key(i)).unwrap().unwrap(), value(i, round), "{i}"));
    let found: Vec<_> = db.iter().map(|item| item.unwrap().1.to_vec()).collect();
    assert_eq!(found, (0..KEYS).map(|i| value(i, round)).collect::<Vec<_>>());
}

fn files(fs: &MemFs, extension: &str) -> Vec<PathBuf> {
    let mut names = fs.list(Path::new(DIR)).unwrap();
    names.retain(|name| name.ends_with(extension));
    names.iter().map(|name| Path::new(DIR).join(name)).collect()
}

/// Whether the flushes so far have left all values where they were.
fn stayed(db: &Db) -> bool {
    let write = db.stats().write;
    assert!(write.flushes > 0);
    write.blob_write_bytes == 0
}

#[test]
fn a_large_value_is_written_once_and_read_by_every_path() {
    for mode in [ReadMode::Mapped, ReadMode::Buffered] {
        let fs = MemFs::new();
        let options = Options { read_mode: mode, ..options(&fs) };
        let db = options.clone().open(DIR).unwrap();
        fill(&db, 1);
        db.wait_for_compaction().unwrap();
        let write = db.stats().write;
        let written = write.log_bytes + write.flush_bytes + write.compaction_write_bytes;
        assert!(stayed(&db) && written < write.user_bytes * 105 / 100, "{write:?}");
        check(&db, 1);
        db.compact().unwrap();
        check(&db, 1);
        db.close().unwrap();
        assert!(files(&fs, ".blb").len() > 2);
        let db = options.open(DIR).unwrap();
        check(&db, 1);
    }
}

#[test]
fn space_comes_back_when_values_are_overwritten() {
    let fs = MemFs::new();
    let db = options(&fs).open(DIR).unwrap();
    (1..=6).for_each(|round| fill(&db, round));
    db.wait_for_compaction().unwrap();
    check(&db, 6);
    let (stats, live) = (db.default_keyspace().stats(), u64::from(KEYS) * LEN as u64);
    assert!(stats.blob_bytes < live * 2, "{stats:?}");
    db.close().unwrap();
    let bytes: u64 = files(&fs, "").iter().filter_map(|path| fs.file_len(path).ok()).sum();
    assert!(bytes < live * 2, "{bytes}");
}

/// The file has two names. It must not be overwritten by a later log.
#[test]
fn a_log_that_tables_refer_to_is_not_reused() {
    let fs = MemFs::new();
    let options = Options { recycled_logs: 4, ..options(&fs) };
    let db = options.open(DIR).unwrap();
    for round in 1..=4 {
        for i in (0..KEYS).filter(|i| i % 4 == round % 4) {
            db.put(key(i), value(i, 7)).unwrap();
            db.sync().unwrap();
        }
        db.flush().unwrap();
    }
    assert!(stayed(&db));
    check(&db, 7);
}

/// Small values would be garbage of the file from the start.
#[test]
fn a_log_with_many_small_values_is_left() {
    let fs = MemFs::new();
    let db = options(&fs).open(DIR).unwrap();
    for i in 0..KEYS {
        db.put(key(i), value(i, 1)).unwrap();
        (0..5).for_each(|j| db.put(format!("small {i} {j}"), [1; 300]).unwrap());
    }
    db.flush().unwrap();
    let write = db.stats().write;
    assert!(write.blob_write_bytes > u64::from(KEYS) * LEN as u64, "{write:?}");
    (0..KEYS).for_each(|i| assert_eq!(db.get(key(i)).unwrap().unwrap(), value(i, 1)));
}

/// Each keyspace would see the other's half of the file as garbage.
#[test]
fn a_log_of_two_keyspaces_is_left_and_one_of_a_single_keyspace_is_not() {
    let fs = MemFs::new();
    let db = options(&fs).open(DIR).unwrap();
    let other = db.create_keyspace("other", options(&fs).keyspace).unwrap();
    (0..KEYS).for_each(|i| other.put(key(i), value(i, 1)).unwrap());
    other.flush().unwrap();
    assert!(stayed(&db));
    for i in 0..KEYS {
        let mut batch = WriteBatch::new();
        batch.put(key(i), value(i, 2)).put_in(&other, key(i), value(i, 3));
        db.write(batch).unwrap();
    }
    db.flush().unwrap();
    other.flush().unwrap();
    assert!(!stayed(&db));
    check(&db, 2);
    (0..KEYS).for_each(|i| assert_eq!(other.get(key(i)).unwrap().unwrap(), value(i, 3)));
    drop(other);
    db.drop_keyspace("other").unwrap();
    check(&db, 2);
}

#[derive(Debug)]
struct Shout;

impl CompactionFilter for Shout {
    fn name(&self) -> &str {
        "shout"
    }

    fn filter(&self, _level: usize, _key: &[u8], value: &[u8]) -> Decision {
        Decision::Replace(value.to_ascii_uppercase())
    }
}

/// Under the number of the old value, which the log has.
#[test]
fn what_a_compaction_filter_makes_of_a_value_is_not_in_the_log() {
    let fs = MemFs::new();
    let mut options = options(&fs);
    options.keyspace.compaction_filter = Some("shout".into());
    options.operators = Operators::new().with_filter(Arc::new(Shout));
    let db = options.open(DIR).unwrap();
    fill(&db, 1);
    db.compact().unwrap();
    (0..KEYS).for_each(|i| {
        assert_eq!(db.get(key(i)).unwrap().unwrap(), value(i, 1).to_ascii_uppercase());
    });
}

/// The checkpoint has the log as it was, with space behind its end, so it cannot be a blob file.
#[test]
fn a_checkpoint_of_values_that_are_only_in_the_log_is_complete() {
    let fs = MemFs::new();
    let mut options = options(&fs);
    options.keyspace.memtable_bytes = 3 << 20;
    let db = options.clone().open(DIR).unwrap();
    for round in 1..4 {
        (0..KEYS).for_each(|i| db.put(key(i), value(i, round)).unwrap());
        db.checkpoint(format!("copy {round}")).unwrap();
        db.flush().unwrap();
        check(&db, round);
    }
    db.close().unwrap();
    check(&options.clone().open(DIR).unwrap(), 3);
    (1..4).for_each(|round| check(&options.clone().open(format!("copy {round}")).unwrap(), round));
}

/// Overwrites a byte of a file, for those who have it open, too.
fn damage(fs: &MemFs, path: &Path, at: usize) {
    let mut bytes = read_file(fs, path).unwrap();
    bytes[at] ^= 1;
    let aside = path.with_extension("aside");
    fs.reuse(path, &aside).unwrap().append(&bytes).unwrap();
    fs.rename(&aside, path).unwrap();
}

/// Only reads of its key fail, before the flush and after it, whether the values stay in the log or
/// not.
#[test]
fn a_damaged_value_in_a_log_is_an_error() {
    [3 << 20, 8 << 20].into_iter().for_each(with_a_damaged_value);
}

fn with_a_damaged_value(memtable_bytes: u64) {
    let fs = MemFs::new();
    let mut options = options(&fs);
    options.keyspace.memtable_bytes = memtable_bytes;
    let db = options.open(DIR).unwrap();
    (0..KEYS).for_each(|i| db.put(key(i), value(i, 1)).unwrap());
    let path = files(&fs, ".log").into_iter().max_by_key(|path| fs.file_len(path).unwrap()).unwrap();
    damage(&fs, &path, 200_000);
    let failed = || -> Vec<u32> {
        let fails = |&i: &u32| match db.get(key(i)) {
            Ok(found) => {
                assert_eq!(found.unwrap(), value(i, 1));
                false
            }
            Err(error) => {
                assert!(matches!(error, ReadError::Storage(StorageError::Corrupt(_))), "{error}");
                true
            }
        };
        (0..KEYS).filter(fails).collect()
    };
    let before = failed();
    assert_eq!(before.len(), 1);
    db.flush().unwrap();
    assert_eq!(stayed(&db), memtable_bytes == 3 << 20);
    assert_eq!(failed(), before);
    assert_eq!(db.verify().unwrap().problems.len(), 1);
    db.put(key(before[0]), value(before[0], 1)).unwrap();
    check_values(&db, 1);
}

/// A value that the device could not read for a moment was lost if the log's second name was taken,
/// as by another keyspace's flush: its reference stayed, and the log went.
#[test]
fn a_flush_does_not_lose_the_values_that_it_cannot_read() {
    for nth in 0.. {
        let fs = FaultyFs::new(nth);
        let mut options = Options { file_system: Some(Arc::new(fs.clone())), ..options(&MemFs::new()) };
        // Of so large a memtable the log is small, and its values are copied.
        options.keyspace.memtable_bytes = 8 << 20;
        let db = options.clone().open(DIR).unwrap();
        (0..20).for_each(|i| db.put(key(i), value(i, 1)).unwrap());
        let log = fs
            .files()
            .into_iter()
            .map(|(path, _)| path)
            .filter(|path| path.extension() == Some("log".as_ref()))
            .max();
        drop(fs.create(&log.unwrap().with_extension("blb"), Usage::Table).unwrap());
        let (fail_at, only) = (Some(fs.operations() + nth), Some(OpClass::Read));
        fs.plan(FaultPlan { fail_at, only, ..FaultPlan::none() });
        let flushed = db.flush();
        let failed = fs.failures() > 0;
        assert!(failed || flushed.is_ok(), "operation {nth}: {flushed:?}");
        fs.plan(FaultPlan::none());
        db.flush().unwrap();
        let check = |db: &Db| {
            (0..20)
                .for_each(|i| assert_eq!(db.get(key(i)).unwrap().unwrap(), value(i, 1), "operation {nth}"));
        };
        check(&db);
        db.close().unwrap();
        let db = options.open(DIR).unwrap();
        check(&db);
        let problems = db.verify().unwrap().problems;
        assert!(problems.is_empty(), "operation {nth}: {problems:?}");
        if !failed {
            assert!(nth > 20, "the reads of values were among them");
            break;
        }
    }
}

/// Gets, batches of gets, scans in both directions, merges, transactions and snapshots, of puts and
/// batches, synced or not.
#[test]
fn values_are_read_from_the_log_before_a_flush() {
    let fs = MemFs::new();
    let mut options = options(&fs);
    options.keyspace.memtable_bytes = 64 << 20;
    options.keyspace.merge_operator = Some("append".into());
    let db = options.clone().open(DIR).unwrap();
    for i in 0..KEYS {
        match i % 4 {
            0 => db.put(key(i), value(i, 1)).unwrap(),
            1 => db.put_with(key(i), value(i, 1), Durability::Sync).unwrap(),
            2 => {
                let mut batch = WriteBatch::new();
                batch.put("small", [7; 10]).delete("absent").put(key(i), value(i, 1)).put("small", [8; 70]);
                db.write(batch).unwrap();
            }
            _ => {
                let mut transaction = db.transaction();
                transaction.put(key(i), value(i, 1)).unwrap();
                transaction.commit().unwrap();
            }
        }
    }
    let snapshot = db.snapshot();
    let memory = db.stats().memtable_bytes;
    assert!(memory < u64::from(KEYS) * LEN as u64 / 2, "{memory} bytes of memory");
    db.delete("small").unwrap();
    check(&db, 1);
    let keys: Vec<String> = (0..KEYS).map(key).collect();
    let found = db.multi_get(&keys).unwrap();
    assert!((0..KEYS).all(|i| found[i as usize].as_deref() == Some(&value(i, 1)[..])));
    let back: Vec<_> = db.iter().rev().map(|item| item.unwrap().1.to_vec()).collect();
    assert_eq!(back, (0..KEYS).rev().map(|i| value(i, 1)).collect::<Vec<_>>());
    db.merge(key(5), "more").unwrap();
    db.put(key(6), value(6, 2)).unwrap();
    let longer = [&value(5, 1)[..], b"more"].concat();
    assert_eq!(db.get(key(5)).unwrap().unwrap(), longer);
    assert_eq!(db.iter().nth(5).unwrap().unwrap().1, longer);
    let mut iter = db.iter();
    let first = iter.next().unwrap().unwrap();
    assert_eq!(first.1, value(0, 1));
    // The logs lose their names, and what was pinned stays readable.
    db.flush().unwrap();
    (2..5).for_each(|round| fill(&db, round));
    db.compact().unwrap();
    assert_eq!(snapshot.get(key(6)).unwrap().unwrap(), value(6, 1));
    let rest: Vec<_> = iter.map(|item| item.unwrap().1.to_vec()).collect();
    assert!(rest[4] == longer && rest[5] == value(6, 2) && rest.len() == KEYS as usize - 1);
    drop(snapshot);
    check(&db, 4);
    drop(db);
    check(&options.open(DIR).unwrap(), 4);
}

#[test]
fn changes_checkpoints_and_snapshots_have_the_values() {
    let fs = MemFs::new();
    let options = Options { changes_keep_bytes: 1 << 30, ..options(&fs) };
    let db = options.clone().open(DIR).unwrap();
    fill(&db, 1);
    let snapshot = db.snapshot();
    fill(&db, 2);
    db.checkpoint("copy").unwrap();
    fill(&db, 3);
    db.compact().unwrap();
    db.wait_for_compaction().unwrap();
    assert_eq!(snapshot.get(key(3)).unwrap().unwrap(), value(3, 1));
    let mut puts = 0;
    for change in db.changes(0).unwrap() {
        for operation in change.unwrap().operations() {
            if let OperationKind::Put { value: found, .. } = operation.kind {
                puts += 1;
                assert_eq!(found.len(), LEN);
            }
        }
    }
    assert_eq!(puts, 3 * KEYS);
    drop(snapshot);
    check(&db, 3);
    db.close().unwrap();
    check(&options.clone().open("copy").unwrap(), 2);
    let db = options.open(DIR).unwrap();
    check(&db, 3);
}

/// A number within what tables have is refused, and a later one is restored with its values, which
/// the log alone has.
#[test]
fn a_moment_of_the_past_is_restored_with_its_values() {
    let fs = MemFs::new();
    let mut options = options(&fs);
    options.keyspace.memtable_bytes = 3 << 20;
    let db = options.clone().open(DIR).unwrap();
    fill(&db, 1);
    assert!(stayed(&db));
    let flushed = db.stats().visible_seq;
    (0..10).for_each(|i| db.put(key(i), value(i, 2)).unwrap());
    db.checkpoint("copy").unwrap();
    let cut = Options { recover_to: Some(flushed + 4), ..options.clone() };
    let restored = cut.open("copy").unwrap();
    let round = |i: u32| if i < 4 { 2 } else { 1 };
    (0..KEYS).for_each(|i| assert_eq!(restored.get(key(i)).unwrap().unwrap(), value(i, round(i)), "{i}"));
    db.checkpoint("other copy").unwrap();
    let refused = Options { recover_to: Some(flushed - 1), ..options }.open("other copy").unwrap_err();
    assert!(refused.to_string().contains("cannot be restored"), "{refused}");
}

#[test]
fn salvage_without_a_manifest_finds_the_values_in_logs() {
    let fs = MemFs::new();
    let db = options(&fs).open(DIR).unwrap();
    fill(&db, 1);
    assert!(stayed(&db));
    (0..KEYS).step_by(2).for_each(|i| db.put(key(i), value(i, 2)).unwrap());
    db.close().unwrap();
    files(&fs, "").iter().filter(|path| path.to_string_lossy().contains("MANIFEST")).for_each(|path| {
        fs.remove(path).unwrap();
    });
    tamis_doctor::salvage(DIR, options(&fs), false).unwrap();
    let db = options(&fs).open(DIR).unwrap();
    (0..KEYS).for_each(|i| assert_eq!(db.get(key(i)).unwrap().unwrap(), value(i, 2 - i % 2), "{i}"));
    assert!(db.verify().unwrap().problems.is_empty());
}

#[test]
fn values_in_logs_expire() {
    let (fs, clock) = (MemFs::new(), Arc::new(ManualClock::new(1_000_000)));
    let mut options = Options { clock: Some(clock.clone()), ..options(&fs) };
    options.keyspace.time_to_live = Some(Duration::from_secs(1000));
    let db = options.clone().open(DIR).unwrap();
    fill(&db, 1);
    assert!(stayed(&db));
    clock.advance(900);
    (0..KEYS).step_by(2).for_each(|i| db.put(key(i), value(i, 2)).unwrap());
    clock.advance(200);
    let expired = |db: &Db| {
        for i in 0..KEYS {
            let expected = (i % 2 == 0).then(|| value(i, 2));
            assert_eq!(db.get(key(i)).unwrap().as_deref(), expected.as_deref(), "{i}");
        }
    };
    expired(&db);
    db.flush().unwrap();
    db.compact().unwrap();
    expired(&db);
    db.close().unwrap();
    let db = options.open(DIR).unwrap();
    expired(&db);
    clock.advance(1000);
    assert_eq!(db.iter().count(), 0);
    db.compact().unwrap();
    assert_eq!(db.default_keyspace().stats().blob_files, 0);
}

#[test]
fn a_follower_reads_values_in_logs() {
    let fs = MemFs::new();
    let db = options(&fs).open(DIR).unwrap();
    fill(&db, 1);
    let follower = options(&fs).open_follower(DIR).unwrap();
    check_values(&follower, 1);
    for round in 2..6 {
        (0..KEYS).for_each(|i| db.put(key(i), value(i, round)).unwrap());
        follower.catch_up().unwrap();
        check_values(&follower, round);
        db.flush().unwrap();
        if round % 2 == 0 {
            db.compact().unwrap();
        }
        follower.catch_up().unwrap();
        check_values(&follower, round);
    }
    let (stats, write) = (db.default_keyspace().stats(), db.stats().write);
    assert!(stats.blob_bytes > 0 && write.blob_write_bytes < write.user_bytes / 2, "{write:?}");
}

/// Writes fail, are refused, and go on once there is space; what was acknowledged stays.
#[test]
fn a_full_disk_costs_no_value_in_a_log() {
    let fs = FaultyFs::new(2);
    let options = Options { file_system: Some(Arc::new(fs.clone())), ..options(&MemFs::new()) };
    let db = options.clone().open(DIR).unwrap();
    fill(&db, 1);
    assert!(stayed(&db));
    let used: u64 = fs.files().iter().map(|(_, bytes)| bytes).sum();
    fs.set_capacity(Some(used + 600_000));
    // New keys after the old ones: overwrites alone may be compacted as fast as they are written.
    let refused = (0..10 * KEYS).find(|i| db.put(key(*i), value(*i, 2)).is_err());
    let refused = refused.expect("the disk is full");
    let check = |db: &Db| {
        for i in (0..KEYS.max(refused)).filter(|i| *i != refused) {
            let round = if i < refused { 2 } else { 1 };
            assert_eq!(db.get(key(i)).unwrap().unwrap(), value(i, round), "{i}");
        }
    };
    check(&db);
    fs.set_capacity(None);
    let started = Instant::now();
    while db.put("after", "value").is_err() {
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", db.stats().poisoned);
        std::thread::sleep(Duration::from_millis(10));
    }
    check(&db);
    db.flush().unwrap();
    check(&db);
    db.close().unwrap();
    let db = options.open(DIR).unwrap();
    check(&db);
    assert!(db.verify().unwrap().problems.is_empty());
}

#[test]
fn the_scrub_reads_the_values_in_logs() {
    let fs = MemFs::new();
    let db = Options { scrub_bytes_per_second: 1 << 30, ..options(&fs) }.open(DIR).unwrap();
    fill(&db, 1);
    db.wait_for_compaction().unwrap();
    assert!(stayed(&db));
    let path = files(&fs, ".blb").into_iter().max_by_key(|path| fs.file_len(path).unwrap()).unwrap();
    let begun = db.stats().scrub.unwrap().passes;
    let started = Instant::now();
    let scrub = |until: &dyn Fn(&ScrubStats) -> bool| loop {
        let stats = db.stats().scrub.unwrap();
        if until(&stats) {
            break stats.problems;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{stats:?}");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(scrub(&|stats| stats.passes > begun + 1).is_empty());
    damage(&fs, &path, 20_000);
    let problems = scrub(&|stats| !stats.problems.is_empty());
    assert!(problems[0].contains(path.to_str().unwrap()), "{problems:?}");
}
