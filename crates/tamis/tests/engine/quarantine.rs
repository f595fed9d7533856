//! A database with one lost table: the rest works, and no read of the lost part returns a wrong
//! answer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tamis::io::{FileSystem, MemFs, Usage, read_file};
use tamis::options::{CompactionChoice, FilterChoice, OnDamage};
use tamis::{Db, Keyspace, KeyspaceOptions, OpenError, Options};

const DIR: &str = "db";
const KEYS: u32 = 600;

fn keyspace_options(filter: FilterChoice) -> KeyspaceOptions {
    KeyspaceOptions {
        filter: filter.into(),
        memtable_bytes: 64 << 10,
        table_bytes: 4 << 10,
        block_bytes: 256,
        filter_unit_bytes: 128,
        ..KeyspaceOptions::default()
    }
}

fn options(fs: &MemFs, filter: FilterChoice) -> Options {
    Options {
        keyspace: keyspace_options(filter),
        cache_bytes: 64 << 10,
        file_system: Some(Arc::new(fs.clone())),
        ..Options::default()
    }
}

fn quarantining(fs: &MemFs, filter: FilterChoice) -> Options {
    Options { on_damage: OnDamage::Quarantine, ..options(fs, filter) }
}

fn key(i: u32) -> String {
    format!("key {i:05}")
}

/// Creates several tables in the last level, a run with every tenth key above them, and another
/// keyspace. Returns the file of a table in the middle of the last level, and the keys in it.
fn filled(fs: &MemFs, filter: FilterChoice) -> (PathBuf, std::ops::Range<u32>) {
    let db = options(fs, filter).open(DIR).unwrap();
    let other = db.create_keyspace("other", keyspace_options(filter)).unwrap();
    for i in 0..KEYS {
        db.put(key(i), format!("old {i} {:0>40}", i * 7919)).unwrap();
        other.put(key(i), "other").unwrap();
    }
    db.compact().unwrap();
    db.default_keyspace().set_options(&[("auto_compaction", "false")]).unwrap();
    for i in (0..KEYS).step_by(10) {
        db.put(key(i), format!("new {i}")).unwrap();
    }
    db.flush().unwrap();
    let mut tables = db.default_keyspace().tables();
    tables.sort_by(|a, b| (a.level, &a.smallest).cmp(&(b.level, &b.smallest)));
    let deepest = tables.last().unwrap().level;
    let last: Vec<_> = tables.into_iter().filter(|table| table.level == deepest).collect();
    assert!(last.len() > 4, "{} tables", last.len());
    let table = &last[last.len() / 2];
    let number = |key: &[u8]| std::str::from_utf8(&key[4..]).unwrap().parse::<u32>().unwrap();
    let keys = number(&table.smallest)..number(&last[last.len() / 2 + 1].smallest);
    db.close().unwrap();
    (Path::new(DIR).join(format!("{:06}.tam", table.id)), keys)
}

fn overwrite(fs: &MemFs, path: &Path, bytes: &[u8]) {
    let beside = path.with_extension("new");
    fs.create(&beside, Usage::Log).unwrap().append(bytes).unwrap();
    fs.rename(&beside, path).unwrap();
}

fn value_of(i: u32) -> String {
    if i.is_multiple_of(10) { format!("new {i}") } else { format!("old {i} {:0>40}", i * 7919) }
}

/// Keys outside `lost` read correctly in every way; reads of keys in it fail, except where a newer
/// run holds the key.
fn look(keyspace: &Keyspace, lost: &std::ops::Range<u32>) {
    for i in 0..KEYS {
        match keyspace.get(key(i)) {
            Ok(value) => {
                assert!(!lost.contains(&i) || i.is_multiple_of(10), "{i} was read from a lost table");
                assert_eq!(value.as_deref(), Some(value_of(i).as_bytes()), "{i}");
            }
            Err(error) => assert!(lost.contains(&i), "{i}: {error}"),
        }
    }
    // Nobody can tell whether keys in the lost range exist.
    assert!(keyspace.get(key(lost.start) + "x").is_err());
    assert_eq!(keyspace.get(key(lost.end) + "x").unwrap(), None);
    let pairs = |iter: &mut dyn Iterator<Item = Result<(tamis::Slice, tamis::Slice), tamis::ReadError>>| {
        let mut keys = Vec::new();
        for item in iter {
            match item {
                Ok((key, _)) => keys.push(key.to_vec()),
                Err(_) => return (keys, false),
            }
        }
        (keys, true)
    };
    let expected = |range: std::ops::Range<u32>| range.map(|i| key(i).into_bytes()).collect::<Vec<_>>();
    assert_eq!(pairs(&mut keyspace.iter()), (expected(0..lost.start), false));
    let backwards: Vec<_> = expected(lost.end..KEYS).into_iter().rev().collect();
    // Backwards, the newest version of a key comes last: only the next table shows whether there is
    // another one.
    let (found, whole) = pairs(&mut keyspace.iter().rev());
    assert!(
        !whole && backwards.starts_with(&found) && found.len() + 1 >= backwards.len(),
        "{} keys",
        found.len()
    );
    assert_eq!(pairs(&mut keyspace.range(key(lost.end)..)), (expected(lost.end..KEYS), true));
    assert_eq!(pairs(&mut keyspace.range(..key(lost.start))), (expected(0..lost.start), true));
    assert!(keyspace.multi_get(&[key(0), key(lost.start + 1)]).is_err() || lost.start % 10 == 9);
    assert_eq!(keyspace.multi_get(&[key(0), key(KEYS - 1)]).unwrap().len(), 2);
}

/// A table that a newer version had written was taken for a damaged one: with `quarantine`, an
/// older version opened the database without it, and took writes.
#[test]
fn a_table_of_a_newer_format_is_refused_and_not_set_aside() {
    let fs = MemFs::new();
    let (table, _) = filled(&fs, FilterChoice::BlockedBloom);
    let mut bytes = read_file(&fs, &table).unwrap();
    let footer = bytes.len() - 64;
    bytes[footer + 40..footer + 44].copy_from_slice(&9u32.to_le_bytes());
    let sum = xxhash_rust::xxh3::xxh3_64_with_seed(&bytes[footer..footer + 48], footer as u64);
    bytes[footer + 48..footer + 56].copy_from_slice(&sum.to_le_bytes());
    overwrite(&fs, &table, &bytes);
    for options in [options(&fs, FilterChoice::BlockedBloom), quarantining(&fs, FilterChoice::BlockedBloom)] {
        for opened in [options.clone().open(DIR), options.open_read_only(DIR)] {
            let error = opened.unwrap_err();
            assert!(matches!(error, OpenError::Storage(tamis::StorageError::Io(_))), "{error:?}");
            assert!(error.to_string().contains("a table of a newer format"), "{error}");
        }
    }
    assert_eq!(read_file(&fs, &table).unwrap(), bytes);
}

#[test]
fn one_lost_table_affects_nothing_else_whatever_the_filter() {
    for filter in FilterChoice::all() {
        let fs = MemFs::new();
        let (path, lost) = filled(&fs, filter);
        let sound = read_file(&fs, &path).unwrap();
        let mut damaged = sound.to_vec();
        let end = damaged.len();
        damaged[end - 10] ^= 0x40;
        for (how, bytes) in
            [("damaged", Some(&damaged[..])), ("cut", Some(&sound[..end / 2])), ("missing", None)]
        {
            match bytes {
                Some(bytes) => overwrite(&fs, &path, bytes),
                None => fs.remove(&path).unwrap(),
            }
            let refused = options(&fs, filter).open(DIR).err();
            assert!(matches!(refused, Some(OpenError::Storage(_))), "{filter:?} {how}: {refused:?}");
            let db = quarantining(&fs, filter).open(DIR).unwrap();
            db.wait_for_filters().unwrap();
            look(db.default_keyspace(), &lost);
            let named = db.stats().damaged_tables;
            assert_eq!(named.len(), 1, "{named:?}");
            assert!(named[0].quarantined && named[0].path == path, "{named:?}");
            let problems = db.verify().unwrap().problems;
            assert!(
                problems.iter().any(|what| what.contains(path.to_str().unwrap())),
                "{filter:?}: {problems:?}"
            );
            // The other keyspace is unchanged.
            let other = db.keyspace("other").unwrap();
            other.put("a", "b").unwrap();
            other.compact().unwrap();
            assert_eq!(other.iter().count(), KEYS as usize + 1);
            other.delete("a").unwrap();
            // This keyspace takes writes and flushes them, but refuses compaction.
            db.put("zzz", how).unwrap();
            db.flush().unwrap();
            let error = db.compact().unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()), "{error}");
            db.delete("zzz").unwrap();
            db.close().unwrap();
            overwrite(&fs, &path, &sound);
        }
        let db = options(&fs, filter).open(DIR).unwrap();
        assert!(db.stats().damaged_tables.is_empty());
        assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
        db.compact().unwrap();
        for i in 0..KEYS {
            assert_eq!(db.get(key(i)).unwrap().as_deref(), Some(value_of(i).as_bytes()), "{filter:?} {i}");
        }
    }
}

/// Data written over a lost table hides it: no read needs the table below. A filter of the whole
/// tree that comes from a file knows the keys of a lost table, but not its range tombstones: keys
/// that they delete were read from older tables.
#[test]
fn keys_deleted_by_a_lost_range_tombstone_are_not_read() {
    for filter in FilterChoice::all() {
        let fs = MemFs::new();
        let keyspace = KeyspaceOptions { auto_compaction: false, ..keyspace_options(filter) };
        let sound = Options { keyspace: keyspace.clone(), ..options(&fs, filter) };
        let db = sound.open(DIR).unwrap();
        (0..KEYS).for_each(|i| db.put(key(i), value_of(i)).unwrap());
        db.compact().unwrap();
        db.put(key(100), "new").unwrap();
        db.put(key(400), "new").unwrap();
        db.delete_range(key(200)..key(300)).unwrap();
        db.flush().unwrap();
        let newest = db.default_keyspace().tables().into_iter().max_by_key(|table| table.id).unwrap();
        db.close().unwrap();
        fs.remove(&Path::new(DIR).join(format!("{:06}.tam", newest.id))).unwrap();

        let db = Options { keyspace, ..quarantining(&fs, filter) }.open(DIR).unwrap();
        db.wait_for_filters().unwrap();
        for i in 0..KEYS {
            let value = db.get(key(i));
            match (100..=400).contains(&i) {
                true => assert!(value.is_err(), "{filter:?}: {i} was read beside a lost table"),
                false => {
                    assert_eq!(value.unwrap().as_deref(), Some(value_of(i).as_bytes()), "{filter:?}: {i}")
                }
            }
        }
        let keys = (200..300).map(key).collect::<Vec<_>>();
        assert!(db.multi_get(&keys).is_err(), "{filter:?}");
        assert!(db.range(key(200)..key(300)).next().unwrap().is_err(), "{filter:?}");
        assert!(db.range(key(200)..key(300)).next_back().unwrap().is_err(), "{filter:?}");
    }
}

#[test]
fn a_rewritten_lost_range_is_readable() {
    let fs = MemFs::new();
    let filter = FilterChoice::BlockedBloom;
    let (path, lost) = filled(&fs, filter);
    fs.remove(&path).unwrap();
    let db = quarantining(&fs, filter).open(DIR).unwrap();
    for i in lost.clone() {
        assert!(i.is_multiple_of(10) || db.get(key(i)).is_err());
        db.put(key(i), value_of(i)).unwrap();
        assert_eq!(db.get(key(i)).unwrap().as_deref(), Some(value_of(i).as_bytes()));
    }
}

/// Compactions and writes continue around a lost table, whatever the policy.
#[test]
fn writes_and_compactions_continue_around_a_lost_table() {
    use CompactionChoice::*;
    for compaction in [Leveling, Tiering, LazyLeveling, Hybrid(2), Fragmented, Fifo, TimeWindow] {
        let fs = MemFs::new();
        let mut options = quarantining(&fs, FilterChoice::BlockedBloom);
        options.keyspace.compaction = compaction;
        options.keyspace.memtable_bytes = 16 << 10;
        let db = options.clone().open(DIR).unwrap();
        let value = |i: u32, round: u32| format!("{i} {round} {:0>60}", i.wrapping_mul(2_654_435_761));
        let write = |db: &Db, round: u32| {
            for i in 0..800 {
                db.put(key(i * 7919 % 800), value(i * 7919 % 800, round)).unwrap();
            }
        };
        (0..3).for_each(|round| write(&db, round));
        db.wait_for_compaction().unwrap();
        let tables = db.default_keyspace().tables();
        let table = tables.iter().max_by_key(|table| (table.level, table.bytes)).unwrap();
        let path = Path::new(DIR).join(format!("{:06}.tam", table.id));
        db.close().unwrap();
        fs.remove(&path).unwrap();
        let db = options.clone().open(DIR).unwrap();
        (3..12).for_each(|round| write(&db, round));
        db.wait_for_compaction().unwrap();
        // Everything was written after the loss.
        for i in 0..800 {
            assert_eq!(
                db.get(key(i)).unwrap().as_deref(),
                Some(value(i, 11).as_bytes()),
                "{compaction:?} {i}"
            );
        }
        db.close().unwrap();
        let db = options.open(DIR).unwrap();
        assert_eq!(db.get(key(5)).unwrap().as_deref(), Some(value(5, 11).as_bytes()));
    }
}

/// A damaged block within a table that opens: the first reader to meet it gets the error, and
/// compactions then leave the table alone instead of failing forever.
#[test]
fn compactions_leave_a_table_with_known_damage_alone() {
    let fs = MemFs::new();
    let filter = FilterChoice::BlockedBloom;
    let (path, lost) = filled(&fs, filter);
    let mut bytes = read_file(&fs, &path).unwrap().to_vec();
    bytes[300] ^= 1;
    overwrite(&fs, &path, &bytes);
    let db = options(&fs, filter).open(DIR).unwrap();
    assert!(db.stats().damaged_tables.is_empty(), "no read has met the damage yet");
    let errors = lost.clone().filter(|i| db.get(key(*i)).is_err()).count();
    assert!(0 < errors && errors < lost.len(), "one block of several: {errors} of {}", lost.len());
    let named = db.stats().damaged_tables;
    assert!(named.len() == 1 && !named[0].quarantined && named[0].path == path, "{named:?}");
    db.default_keyspace().set_options(&[("auto_compaction", "true")]).unwrap();
    for round in 0..20 {
        for i in 0..lost.start {
            db.put(key(i), format!("{round} {i}")).unwrap();
        }
        db.flush().unwrap();
    }
    db.wait_for_compaction().unwrap();
    let failed = db.stats().write.set_aside;
    assert!(failed <= 1, "{failed} compactions met the known damage");
    assert_eq!(db.get(key(0)).unwrap().as_deref(), Some(&b"19 0"[..]));
}
