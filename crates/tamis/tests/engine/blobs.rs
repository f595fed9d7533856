//! Large values in blob files: read by every path, dropped with their tables, moved out of files
//! that are mostly garbage.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tamis::io::{FileSystem, MemFs, Usage, read_file};
use tamis::options::{AsyncReads, CompactionChoice, OnDamage, ReadMode};
use tamis::{Db, KeyspaceOptions, Options, ReadError};

const DIR: &str = "db";
const KEYS: u32 = 300;
const LEN: usize = 2000;

fn options(fs: &MemFs) -> Options {
    let keyspace = KeyspaceOptions {
        blob_threshold: 1000,
        blob_file_bytes: 64 << 10,
        memtable_bytes: 256 << 10,
        ..KeyspaceOptions::default()
    };
    Options { keyspace, file_system: Some(Arc::new(fs.clone())), ..Options::default() }
}

fn open(fs: &MemFs) -> Db {
    options(fs).open(DIR).unwrap()
}

/// Options under which no value stays in a log. [`value`] does not compress.
fn copying(fs: &MemFs) -> Options {
    let mut options = options(fs);
    options.keyspace.compression = "lz4".parse().unwrap();
    options
}

fn key(i: u32) -> String {
    format!("key {i:05}")
}

/// A value that does not compress and says what it is.
fn value(i: u32, round: u32) -> Vec<u8> {
    let mut x = (u64::from(i) << 32 | u64::from(round)).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = format!("{i} {round} ").into_bytes();
    bytes.resize_with(LEN, || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    });
    bytes
}

fn fill(db: &Db, round: u32) {
    (0..KEYS).for_each(|i| db.put(key(i), value(i, round)).unwrap());
    db.flush().unwrap();
}

fn files(fs: &MemFs, extension: &str) -> Vec<PathBuf> {
    let mut names = fs.list(Path::new(DIR)).unwrap();
    names.retain(|name| name.ends_with(extension));
    names.sort();
    names.iter().map(|name| Path::new(DIR).join(name)).collect()
}

fn blob_bytes(fs: &MemFs) -> u64 {
    files(fs, ".blb").iter().map(|path| fs.file_len(path).unwrap()).sum()
}

#[test]
fn every_read_returns_the_values_and_counts_them() {
    for (mode, reads) in [
        (ReadMode::Mapped, AsyncReads::Off),
        (ReadMode::Buffered, AsyncReads::Off),
        (ReadMode::Buffered, AsyncReads::Threads),
    ] {
        for cache_bytes in [0, 16 << 20] {
            let dir = tempfile::tempdir().unwrap();
            let mut options = Options {
                file_system: None,
                read_mode: mode,
                async_reads: reads,
                cache_bytes,
                ..options(&MemFs::new())
            };
            options.keyspace.compression = "lz4".parse().unwrap();
            let db = options.open(dir.path()).unwrap();
            (0..KEYS).for_each(|i| {
                db.put(key(i), if i % 3 == 0 { vec![b'v'; LEN] } else { value(i, 1) }).unwrap()
            });
            (0..KEYS).step_by(5).for_each(|i| db.put(key(i), "small").unwrap());
            db.flush().unwrap();
            let expected = |i: u32| match i {
                i if i % 5 == 0 => b"small".to_vec(),
                i if i % 3 == 0 => vec![b'v'; LEN],
                i => value(i, 1),
            };
            let large = (0..KEYS).filter(|i| i % 5 != 0).count() as u64;
            let reads = || db.stats().read.blob_reads;
            let before = reads();
            for i in 0..KEYS {
                assert_eq!(db.get(key(i)).unwrap().unwrap(), expected(i), "{i}");
            }
            assert_eq!(reads() - before, large);
            let keys: Vec<String> = (0..KEYS + 10).rev().map(key).collect();
            let found = db.multi_get(&keys).unwrap();
            for (at, value) in found.iter().enumerate() {
                let i = KEYS + 9 - at as u32;
                assert_eq!(
                    value.as_ref().map(|value| value.to_vec()),
                    (i < KEYS).then(|| expected(i)),
                    "{i}"
                );
            }
            assert_eq!(reads() - before, 2 * large);
            for (at, item) in db.iter().enumerate() {
                assert_eq!(item.unwrap().1, expected(at as u32));
            }
            for (at, item) in db.iter().rev().enumerate() {
                assert_eq!(item.unwrap().1, expected(KEYS - 1 - at as u32));
            }
            assert_eq!(reads() - before, 4 * large);
            assert_eq!(db.prefix("key 0010").count(), 10);
            let explained = db.explain_get(key(1)).unwrap();
            assert_eq!((explained.cost.blob_reads, explained.cost.block_reads), (1, 1));
            assert!(explained.cost.blob_bytes as usize > LEN);
            let stats = &db.default_keyspace().stats();
            assert!(stats.blob_files > 1 && stats.table_bytes < 64 << 10, "{stats:?}");
            assert_eq!(stats.blob_garbage_bytes, 0);
            let size = db.approximate_size("key".."kez").unwrap();
            assert!(size > stats.blob_bytes / 2 && size < 2 * stats.blob_bytes, "{size}");
            assert!(db.verify().unwrap().problems.is_empty());
        }
    }
}

/// In files that are not mapped, a scan reads many values at a time.
#[test]
fn scans_read_ahead() {
    for of in [options, copying] {
        let fs = MemFs::new();
        let db = Options { read_mode: ReadMode::Buffered, ..of(&fs) }.open(DIR).unwrap();
        fill(&db, 1);
        db.compact().unwrap();
        let before = db.stats().read;
        assert_eq!(db.iter().map(|item| item.unwrap().1.len()).sum::<usize>(), LEN * KEYS as usize);
        let cost = db.stats().read - before;
        assert_eq!(cost.blob_reads, u64::from(KEYS));
        assert!(cost.io_reads < u64::from(KEYS) / 3, "{cost:?}");
    }
}

#[test]
fn compactions_carry_references_along() {
    let fs = MemFs::new();
    let db = open(&fs);
    for part in 0..6 {
        (0..KEYS).filter(|i| i % 6 == part).for_each(|i| db.put(key(i), value(i, 1)).unwrap());
        db.flush().unwrap();
    }
    db.compact().unwrap();
    let write = db.stats().write;
    assert!(write.compactions > 0);
    assert_eq!(write.blob_write_bytes, 0, "the values stay in the logs");
    assert!(write.compaction_write_bytes < write.user_bytes / 10, "{write:?}");
    assert!(write.flush_bytes < write.user_bytes / 10, "{write:?}");
    assert_eq!(db.iter().count(), KEYS as usize);
}

#[test]
fn space_comes_back_after_overwrites_and_deletes() {
    for compaction in [CompactionChoice::Leveling, CompactionChoice::Tiering, CompactionChoice::Fragmented] {
        let fs = MemFs::new();
        let mut options = options(&fs);
        options.keyspace.compaction = compaction;
        let db = options.open(DIR).unwrap();
        for round in 0..8 {
            fill(&db, round);
        }
        db.compact().unwrap();
        db.wait_for_compaction().unwrap();
        let (live, stats) = ((KEYS as usize * LEN) as u64, db.default_keyspace().stats());
        assert!(stats.blob_bytes < live * 3 / 2, "{compaction:?}: {} for {live}", stats.blob_bytes);
        drop(db);
        assert_eq!(blob_bytes(&fs), stats.blob_bytes, "{compaction:?}: nothing else is left");
        let db = open(&fs);
        (0..KEYS).for_each(|i| assert_eq!(db.get(key(i)).unwrap().unwrap(), value(i, 7)));
        (0..KEYS).for_each(|i| db.delete(key(i)).unwrap());
        db.compact().unwrap();
        drop(db);
        assert_eq!(blob_bytes(&fs), 0, "{compaction:?}");
    }
}

/// Every second value becomes garbage, in every file: no compaction of the policy is due, but
/// tables are rewritten.
#[test]
fn files_of_which_much_is_garbage_are_rewritten() {
    let fs = MemFs::new();
    let mut settings = options(&fs);
    settings.keyspace.blob_garbage = 1.0;
    let db = settings.open(DIR).unwrap();
    fill(&db, 1);
    db.compact().unwrap();
    (0..KEYS).step_by(2).for_each(|i| db.put(key(i), "small").unwrap());
    db.compact().unwrap();
    db.wait_for_compaction().unwrap();
    let stats = || db.default_keyspace().stats();
    let share = stats().blob_garbage_bytes as f64 / stats().blob_bytes as f64;
    assert!((0.4..0.6).contains(&share), "{share}");
    let before = db.stats().write;
    db.default_keyspace().set_options(&[("blob_garbage", "0.3")]).unwrap();
    db.wait_for_compaction().unwrap();
    assert_eq!(stats().blob_garbage_bytes, 0);
    let moved = db.stats().write.blob_write_bytes - before.blob_write_bytes;
    assert!((stats().blob_bytes..stats().blob_bytes * 11 / 10).contains(&moved), "{moved}");
    for i in 0..KEYS {
        let expected = if i % 2 == 0 { b"small".to_vec() } else { value(i, 1) };
        assert_eq!(db.get(key(i)).unwrap().unwrap(), expected);
    }
    // Moved once, and not again.
    let before = db.stats().write.compactions;
    db.wait_for_compaction().unwrap();
    assert_eq!(db.stats().write.compactions, before);
}

#[test]
fn snapshots_iterators_and_values_outlive_the_files_that_they_see() {
    let fs = MemFs::new();
    let db = open(&fs);
    fill(&db, 1);
    let (snapshot, mut iter) = (db.snapshot(), db.iter());
    let held = db.get(key(7)).unwrap().unwrap();
    iter.next().unwrap().unwrap();
    for round in 2..5 {
        fill(&db, round);
        db.compact().unwrap();
    }
    db.wait_for_compaction().unwrap();
    (0..KEYS).for_each(|i| assert_eq!(snapshot.get(key(i)).unwrap().unwrap(), value(i, 1)));
    assert_eq!(snapshot.iter().count(), KEYS as usize);
    for i in 1..KEYS {
        assert_eq!(iter.next().unwrap().unwrap().1, value(i, 1));
    }
    let with_snapshot = db.default_keyspace().stats().blob_bytes;
    drop((iter, snapshot));
    db.compact().unwrap();
    db.wait_for_compaction().unwrap();
    let without = db.default_keyspace().stats().blob_bytes;
    assert!(without < with_snapshot * 3 / 4, "{without} of {with_snapshot}");
    assert_eq!(held, value(7, 1));
    drop(db);
    assert_eq!(blob_bytes(&fs), without);
}

#[test]
fn a_checkpoint_has_its_own_names_of_the_files() {
    let fs = MemFs::new();
    let db = open(&fs);
    fill(&db, 1);
    db.checkpoint("copy").unwrap();
    fill(&db, 2);
    db.compact().unwrap();
    drop(db);
    let copy = options(&fs).open("copy").unwrap();
    assert!(copy.verify().unwrap().problems.is_empty());
    (0..KEYS).for_each(|i| assert_eq!(copy.get(key(i)).unwrap().unwrap(), value(i, 1)));
}

#[test]
fn operands_filters_and_range_deletes_see_whole_values() {
    let fs = MemFs::new();
    let mut options = options(&fs);
    options.keyspace.merge_operator = Some("append".into());
    options.keyspace.auto_compaction = false;
    let db = options.open(DIR).unwrap();
    fill(&db, 1);
    (0..KEYS).step_by(3).for_each(|i| db.default_keyspace().merge(key(i), "!").unwrap());
    db.flush().unwrap();
    db.default_keyspace().delete_range(key(100)..key(200)).unwrap();
    let check = || {
        let mut seen = Vec::new();
        for item in db.iter() {
            let (at, value_seen) = item.unwrap();
            let i: u32 = std::str::from_utf8(&at[4..]).unwrap().parse().unwrap();
            let mut expected = value(i, 1);
            expected.extend(i.is_multiple_of(3).then_some(b'!'));
            assert_eq!(value_seen, expected);
            assert_eq!(db.get(&at).unwrap().unwrap(), expected);
            seen.push(i);
        }
        let mut back: Vec<_> = db.iter().rev().map(|item| item.unwrap().1.len()).collect();
        back.reverse();
        assert_eq!(back.len(), seen.len());
        assert_eq!(seen, (0..100).chain(200..KEYS).collect::<Vec<_>>());
    };
    check();
    db.flush().unwrap();
    check();
    db.compact().unwrap();
    check();
    // Operands folded onto a value in a blob file made a new value, which is in one too.
    assert!(db.default_keyspace().stats().table_bytes < 64 << 10);
}

#[test]
fn the_threshold_may_change_at_any_time() {
    let fs = MemFs::new();
    let mut off = options(&fs);
    off.keyspace.blob_threshold = 0;
    let db = off.open(DIR).unwrap();
    fill(&db, 1);
    assert_eq!(blob_bytes(&fs), 0);
    db.default_keyspace().set_options(&[("blob_threshold", "1 KiB")]).unwrap();
    (0..KEYS).step_by(2).for_each(|i| db.put(key(i), value(i, 2)).unwrap());
    db.compact().unwrap();
    assert!(db.default_keyspace().stats().table_bytes < 64 << 10, "compaction separates, too");
    db.default_keyspace().set_options(&[("blob_threshold", "0")]).unwrap();
    let again = |i: &u32| i % 4 != 1;
    (0..KEYS).filter(again).for_each(|i| db.put(key(i), value(i, 3)).unwrap());
    db.compact().unwrap();
    db.wait_for_compaction().unwrap();
    let stats = db.default_keyspace().stats();
    assert_eq!(stats.blob_files, 0, "what was moved out of half-empty files is in tables again");
    (0..KEYS).for_each(|i| {
        assert_eq!(db.get(key(i)).unwrap().unwrap(), value(i, if again(&i) { 3 } else { 1 }));
    });
}

#[test]
fn a_damaged_value_is_an_error_of_its_reads_alone_and_verify_names_the_file() {
    let fs = MemFs::new();
    let db = open(&fs);
    fill(&db, 1);
    db.close().unwrap();
    let path = files(&fs, ".blb").remove(0);
    let mut bytes = read_file(&fs, &path).unwrap();
    bytes[100] ^= 1;
    fs.create(&path, Usage::Table).unwrap().append(&bytes).unwrap();
    let db = open(&fs);
    let wrong: Vec<u32> = (0..KEYS).filter(|&i| db.get(key(i)).is_err()).collect();
    assert_eq!(wrong.len(), 1);
    (0..KEYS).filter(|i| !wrong.contains(i)).for_each(|i| {
        assert_eq!(db.get(key(i)).unwrap().unwrap(), value(i, 1));
    });
    assert!(matches!(db.get(key(wrong[0])), Err(ReadError::Storage(error)) if error.path() == path));
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    assert!(db.multi_get(&keys).is_err());
    assert!(db.iter().any(|item| item.is_err()));
    let report = db.verify().unwrap();
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    let name = path.file_name().unwrap().to_string_lossy();
    let file = report.files.iter().find(|file| file.file == name).unwrap();
    assert_eq!((file.kind.name(), file.problems.len()), ("blob file", 1));
    assert_eq!(db.stats().damaged_tables.len(), 1);
}

#[test]
fn a_lost_file_is_refused_or_loses_only_its_values() {
    for cut in [false, true] {
        let fs = MemFs::new();
        let db = open(&fs);
        fill(&db, 1);
        db.close().unwrap();
        let path = files(&fs, ".blb").remove(1);
        let bytes = read_file(&fs, &path).unwrap();
        match cut {
            true => fs.create(&path, Usage::Table).unwrap().append(&bytes[..bytes.len() - 1]).unwrap(),
            false => fs.remove(&path).unwrap(),
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        let error = options(&fs).open(DIR).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        for salvage in [false, true] {
            if salvage {
                tamis_doctor::salvage(DIR, options(&fs), false).unwrap();
            }
            let lenient = Options { on_damage: OnDamage::Quarantine, ..options(&fs) };
            let db = lenient.open(DIR).unwrap();
            assert!(
                db.stats().warnings.iter().any(|warning| warning.contains(name)),
                "{:?}",
                db.stats().warnings
            );
            let lost = (0..KEYS).filter(|&i| match db.get(key(i)) {
                Ok(found) => {
                    assert_eq!(found.unwrap(), value(i, 1));
                    false
                }
                Err(_) => true,
            });
            assert!((1..KEYS as usize / 2).contains(&lost.count()));
            let report = db.verify().unwrap();
            assert!(report.problems.iter().any(|problem| problem.contains(name)), "{:?}", report.problems);
            db.close().unwrap();
        }
    }
}

#[test]
fn files_that_nothing_names_are_removed_at_opening() {
    let fs = MemFs::new();
    let db = open(&fs);
    fill(&db, 1);
    db.close().unwrap();
    let before = files(&fs, ".blb");
    fs.create(&Path::new(DIR).join("009999.blb"), Usage::Table).unwrap().append(b"left over").unwrap();
    let db = open(&fs);
    db.close().unwrap();
    assert_eq!(files(&fs, ".blb"), before);
}

#[test]
fn salvage_without_a_manifest_keeps_the_values() {
    let fs = MemFs::new();
    let db = open(&fs);
    fill(&db, 1);
    (0..KEYS).step_by(2).for_each(|i| db.put(key(i), value(i, 2)).unwrap());
    db.flush().unwrap();
    db.close().unwrap();
    for path in files(&fs, "").iter().filter(|path| path.to_string_lossy().contains("MANIFEST")) {
        fs.remove(path).unwrap();
    }
    tamis_doctor::salvage(DIR, options(&fs), false).unwrap();
    let db = open(&fs);
    (0..KEYS).for_each(|i| assert_eq!(db.get(key(i)).unwrap().unwrap(), value(i, 2 - i % 2)));
    db.close().unwrap();
    assert!(open(&fs).verify().unwrap().problems.is_empty());
}

/// Each flush leaves a small file. Merges join them, and no value is rewritten more than a few
/// times for that.
#[test]
fn small_files_are_joined() {
    for compaction in [CompactionChoice::Leveling, CompactionChoice::Tiering] {
        let fs = MemFs::new();
        let mut options = options(&fs);
        options.keyspace.compaction = compaction;
        options.keyspace.blob_file_bytes = 4 << 20;
        let db = options.open(DIR).unwrap();
        for part in 0..100 {
            (0..KEYS).filter(|i| i % 100 == part).for_each(|i| db.put(key(i), value(i, 1)).unwrap());
            db.flush().unwrap();
            db.wait_for_compaction().unwrap();
        }
        let (stats, write) = (db.default_keyspace().stats(), db.stats().write);
        assert!(stats.blob_files < 30, "{compaction:?}: {} files", stats.blob_files);
        let times = write.blob_write_bytes as f64 / write.user_bytes as f64;
        // From 6 KB to 1 MiB, a file can double seven times; some of its values move once more as
        // garbage. What a log has was not written for that.
        assert!((0.5..8.0).contains(&times), "{compaction:?}: written {times} times");
        (0..KEYS).for_each(|i| assert_eq!(db.get(key(i)).unwrap().unwrap(), value(i, 1)));
        assert!(db.verify().unwrap().problems.is_empty());
        let before = db.stats().write.compactions;
        db.wait_for_compaction().unwrap();
        assert_eq!(db.stats().write.compactions, before, "nothing is merged for that alone");
    }
}

/// A value of a file that is rewritten cannot be read: its reference stays, the others move, and
/// that is tried once.
#[test]
fn an_unreadable_value_does_not_stop_the_rewrite_of_its_file() {
    let fs = MemFs::new();
    let mut settings = copying(&fs);
    settings.keyspace.blob_file_bytes = 1 << 20;
    settings.keyspace.memtable_bytes = 2 << 20;
    settings.keyspace.merge_operator = Some("append".into());
    let db = settings.clone().open(DIR).unwrap();
    fill(&db, 1);
    db.compact().unwrap();
    db.close().unwrap();
    let path = files(&fs, ".blb").remove(0);
    let mut bytes = read_file(&fs, &path).unwrap();
    // The records are those of the keys, in order.
    bytes[5 * (LEN + 9) + 100] ^= 1;
    fs.create(&path, Usage::Table).unwrap().append(&bytes).unwrap();
    let db = settings.open(DIR).unwrap();
    let kept = |i: &u32| i % 3 == 2;
    (0..KEYS).filter(|i| !kept(i)).for_each(|i| db.put(key(i), "small").unwrap());
    // The first merge makes garbage of two thirds of the file, and is followed by one that moves
    // the rest.
    db.compact().unwrap();
    db.wait_for_compaction().unwrap();
    assert!(db.default_keyspace().stats().blob_files > 1, "values have moved");
    // What applies to the value stays with it.
    db.default_keyspace().merge(key(5), "!").unwrap();
    db.compact().unwrap();
    assert_eq!(db.stats().write.set_aside, 0);
    for i in 0..KEYS {
        match db.get(key(i)) {
            Ok(found) if !kept(&i) => assert_eq!(found.unwrap(), b"small"[..]),
            Ok(found) => assert_eq!((i == 5, found.unwrap()), (false, value(i, 1).into())),
            Err(_) => assert_eq!(i, 5),
        }
    }
    assert!(files(&fs, ".blb").contains(&path), "the damaged value is still there");
    // Written again, nothing refers to it.
    db.put(key(5), value(5, 2)).unwrap();
    db.compact().unwrap();
    db.wait_for_compaction().unwrap();
    (0..KEYS).filter(kept).for_each(|i| {
        assert_eq!(db.get(key(i)).unwrap().unwrap(), value(i, if i == 5 { 2 } else { 1 }));
    });
    db.close().unwrap();
    assert!(!files(&fs, ".blb").contains(&path));
}

/// A blob file is missing that tables refer to, and its number is larger than that of any other
/// file: without a manifest, only the references tell of it.
#[test]
fn the_number_of_a_missing_file_is_not_given_to_another() {
    for compacted in [false, true] {
        let fs = MemFs::new();
        let db = copying(&fs).open(DIR).unwrap();
        fill(&db, 1);
        if compacted {
            db.compact().unwrap();
            db.default_keyspace().set_options(&[("blob_garbage", "0.05")]).unwrap();
            (0..KEYS).step_by(9).for_each(|i| db.put(key(i), "small").unwrap());
            db.compact().unwrap();
            db.wait_for_compaction().unwrap();
        }
        db.close().unwrap();
        for part in ["MANIFEST", ".log"] {
            files(&fs, "").iter().filter(|path| path.to_string_lossy().contains(part)).for_each(|path| {
                fs.remove(path).unwrap();
            });
        }
        let largest = files(&fs, "").into_iter().filter(|path| path.extension().is_some()).max().unwrap();
        assert_eq!(largest.extension().unwrap(), "blb", "{:?}", files(&fs, ""));
        fs.remove(&largest).unwrap();
        tamis_doctor::salvage(DIR, options(&fs), false).unwrap();
        let db = Options { on_damage: OnDamage::Quarantine, ..options(&fs) }.open(DIR).unwrap();
        for i in 0..KEYS {
            match db.get(key(i)) {
                Ok(Some(found)) => assert!(found == value(i, 1) || compacted && found == *b"small", "{i}"),
                Ok(None) => assert!(!compacted, "{i}"),
                Err(_) => {}
            }
        }
        (0..KEYS).for_each(|i| db.put(key(i), value(i, 2)).unwrap());
        db.flush().unwrap();
        (0..KEYS).for_each(|i| assert_eq!(db.get(key(i)).unwrap().unwrap(), value(i, 2)));
        assert!(!files(&fs, ".blb").contains(&largest), "the number was given to another file");
    }
}

#[test]
fn dropping_a_keyspace_drops_its_files() {
    let fs = MemFs::new();
    let db = open(&fs);
    let other = db.create_keyspace("other", options(&fs).keyspace).unwrap();
    (0..KEYS).for_each(|i| other.put(key(i), value(i, 1)).unwrap());
    other.flush().unwrap();
    let held = other.get(key(1)).unwrap().unwrap();
    assert!(blob_bytes(&fs) > 0);
    db.drop_keyspace("other").unwrap();
    drop(other);
    assert_eq!(held, value(1, 1));
    drop(db);
    assert_eq!(blob_bytes(&fs), 0);
}
