//! A full disk with a reserve, from the first write that finds no room until writes succeed again.

use std::path::Path;
use std::time::Instant;

use tamis_testkit::{CrashMode, FaultPlan, FaultyFs};

use super::*;
use crate::io::FileSystem;
use crate::{Db, Options};

mod alone;

const DIR: &str = "/db";

fn options(fs: &FaultyFs) -> Options {
    let mut options = Options { file_system: Some(std::sync::Arc::new(fs.clone())), ..Options::default() };
    options.recycled_logs = 0;
    options.keyspace.memtable_bytes = 64 << 10;
    options.keyspace.table_bytes = 32 << 10;
    options
}

fn used(fs: &FaultyFs) -> u64 {
    fs.files().iter().map(|(_, len)| len).sum()
}

fn value(i: u32) -> Vec<u8> {
    // Incompressible.
    let mut x = u64::from(i) + 1;
    (0..500)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        })
        .collect()
}

fn key(i: u32) -> String {
    format!("key {i:06}")
}

/// Writes two megabytes of tables, with a reserve.
fn filled(fs: &FaultyFs, keys: u32) -> Db {
    fs.create_dir_all(Path::new(DIR)).unwrap();
    let db = options(fs).open(DIR).unwrap();
    (0..keys).for_each(|i| db.put(key(i), value(i)).unwrap());
    db.compact().unwrap();
    db
}

fn until(db: &Db, what: &str, is_so: impl Fn(&Db) -> bool) {
    let started = Instant::now();
    while !is_so(db) {
        assert!(started.elapsed() < Duration::from_secs(20), "{what}: {:?}", db.stats().troubles);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Writes until the disk is full. Returns the number of keys written.
fn fill_up(fs: &FaultyFs, db: &Db, from: u32, room: u64) -> u32 {
    fs.set_capacity(Some(used(fs) + room));
    let mut taken = from;
    let started = Instant::now();
    let mut refused = 0;
    while refused < 20 {
        match db.put(key(taken), value(taken)) {
            Ok(()) => taken += 1,
            Err(WriteError::Suspended { .. } | WriteError::Storage(_)) => {
                refused += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(other) => panic!("{other}"),
        }
        assert!(started.elapsed() < Duration::from_secs(120));
    }
    taken
}

#[test]
fn a_reserve_follows_the_tables() {
    let fs = FaultyFs::new(1);
    let db = filled(&fs, 5000);
    until(&db, "a reserve", |db| db.stats().reserve_bytes > 0);
    let tables: u64 = db.default_keyspace().stats().table_bytes;
    let held = db.stats().reserve_bytes;
    assert!(held <= tables / MOST_OF_TABLES && held >= STEP, "{held} of {tables}");
    assert_eq!(fs.file_len(&reserve_path(Path::new(DIR))).unwrap(), held);
    db.default_keyspace().delete_range::<&str>(..).unwrap();
    db.compact().unwrap();
    until(&db, "it goes with the tables", |db| db.stats().reserve_bytes == 0);
    assert!(!fs.exists(&reserve_path(Path::new(DIR))).unwrap());
    // A database configured without a reserve removes an existing one.
    (0..5000).for_each(|i| db.put(key(i), value(i)).unwrap());
    db.compact().unwrap();
    until(&db, "a reserve", |db| db.stats().reserve_bytes > 0);
    db.close().unwrap();
    let db = Options { reserve_bytes: 0, ..options(&fs) }.open(DIR).unwrap();
    until(&db, "none", |db| db.stats().reserve_bytes == 0);
}

/// A full disk accepted no deletes, so that space could be freed only from outside.
#[test]
fn on_a_full_disk_deletes_and_compactions_make_room_by_themselves() {
    let fs = FaultyFs::new(2);
    let db = filled(&fs, 5000);
    until(&db, "a reserve", |db| db.stats().reserve_bytes > 0);
    let taken = fill_up(&fs, &db, 5000, 400 << 10);
    // On a slow machine a compaction may have freed enough for another reserve meanwhile, which the
    // next writes spend. A put may be told of a table that found no room instead.
    until(&db, "only deletes are accepted", |db| {
        let refused = db.put(key(0), value(0)).map_err(|error| error.to_string());
        // The reserve may not be needed yet: that a flush would not fit is known before.
        refused.is_err_and(|why| why.contains("only deletes"))
            && db.stats().troubles.iter().any(|what| what.contains("only deletes"))
    });
    // Half of the data is deleted, first key by key, then by a range.
    until(&db, "deletes", |db| db.delete(key(0)).is_ok());
    for i in (1..taken / 2).step_by(2) {
        until(&db, "deletes", |db| db.delete(key(i)).is_ok());
    }
    until(&db, "range deletes", |db| db.default_keyspace().delete_range(key(0)..key(taken / 2)).is_ok());
    until(&db, "compaction makes room", |db| {
        let _ = db.compact();
        db.stats().troubles.is_empty() && db.stats().reserve_bytes > 0
    });
    db.put(key(0), "again").unwrap();
    for i in 1..taken {
        let expected = (i >= taken / 2).then(|| value(i));
        assert_eq!(db.get(key(i)).unwrap().as_deref(), expected.as_deref(), "{i}");
    }
    // Everything is there after a power failure, too.
    db.sync().unwrap();
    let after = fs.after_crash(CrashMode::DropUnsynced);
    drop(db);
    after.set_capacity(None);
    let db = options(&after).open(DIR).unwrap();
    assert_eq!(db.iter().count() as u32, taken - taken / 2 + 1);
}

/// An opening on a full disk could not even begin a log.
#[test]
fn an_opening_on_a_full_disk_releases_the_reserve() {
    let fs = FaultyFs::new(3);
    let db = filled(&fs, 5000);
    until(&db, "a reserve", |db| db.stats().reserve_bytes > 0);
    (0..50).for_each(|i| db.put(key(i), "new").unwrap());
    let killed = fs.after_crash(CrashMode::KeepAll);
    drop(db);
    // The next opening removes the log that was created ahead, which would leave room; after that
    // there is none.
    let db = options(&killed).open(DIR).unwrap();
    until(&db, "a reserve", |db| db.stats().reserve_bytes > 0);
    db.put(key(0), "newer").unwrap();
    let fs = killed.after_crash(CrashMode::KeepAll);
    drop(db);
    fs.set_capacity(Some(used(&fs)));
    let db = options(&fs).open(DIR).unwrap();
    assert_eq!(db.stats().suspended, None);
    assert!(db.put("key", "value").unwrap_err().to_string().contains("only deletes"));
    (0..100).for_each(|i| db.delete(key(i)).unwrap());
    db.default_keyspace().delete_range(key(100)..key(4000)).unwrap();
    until(&db, "room", |db| {
        let _ = db.compact();
        db.stats().troubles.is_empty()
    });
    db.put("key", "value").unwrap();
    assert_eq!(db.iter().count(), 1001);
}

/// Nothing depends on the file, whatever happens to it.
#[test]
fn a_reserve_that_cannot_be_created_or_released_does_no_harm() {
    let fs = FaultyFs::new(4);
    let db = filled(&fs, 5000);
    until(&db, "a reserve", |db| db.stats().reserve_bytes > 0);
    fs.remove(&reserve_path(Path::new(DIR))).unwrap();
    let taken = fill_up(&fs, &db, 5000, 100 << 10);
    fs.set_capacity(None);
    until(&db, "writes", |db| db.put("key", "value").is_ok());
    assert_eq!(db.iter().count() as u32, taken + 1);
    until(&db, "a new one", |db| db.stats().reserve_bytes > 0);
}

/// Fills the disk, deletes, and frees space again, while one operation fails, or all of them from
/// one on. No acknowledged write is lost, and if the machine keeps running, writes resume.
#[test]
fn no_error_and_no_crash_around_the_reserve_loses_anything() {
    let prepared = {
        let fs = FaultyFs::new(5);
        let db = filled(&fs, 2600);
        until(&db, "a reserve", |db| db.stats().reserve_bytes > 0);
        db.close().unwrap();
        fs.after_crash(CrashMode::KeepAll)
    };
    let (mut at, mut spent) = (0, 0);
    // Points spread over the whole sequence.
    for round in 0..20 {
        let sticky = round % 2 == 1;
        let fs = prepared.after_crash(CrashMode::KeepAll);
        fs.set_capacity(Some(used(&fs) + (100 << 10)));
        let error = if round % 3 == 0 { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
        let fail_at = Some(fs.operations() + at);
        at = (at * 5 + 7) % 400;
        fs.plan(FaultPlan { fail_at, error, sticky, only: None, partial_append: round % 5 == 0 });
        let mut acknowledged = Vec::new();
        if let Ok(db) = options(&fs).open(DIR) {
            let mut refused = 0;
            for i in 0..600u32 {
                if i == 30 {
                    // Others fill the rest.
                    fs.set_capacity(Some(used(&fs)));
                }
                let mut batch = WriteBatch::new();
                batch.put(format!("new {i:06}"), value(i));
                match db.write_with(batch, crate::Durability::Sync) {
                    Ok(()) => acknowledged.push(i),
                    Err(_) => {
                        refused += 1;
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
                if refused > 20 {
                    break;
                }
            }
            let mut batch = WriteBatch::new();
            batch.delete_range(key(0)..key(1000));
            let mut deleted = db.write_with(batch, crate::Durability::Sync).is_ok();
            spent += db.stats().write.reserves_spent;
            if !sticky {
                fs.plan(FaultPlan::none());
                fs.set_capacity(None);
                until(&db, "writes", |db| db.put("last", "value").is_ok());
                until(&db, "deletes", |db| db.delete_range(key(0)..key(1000)).is_ok());
                deleted = true;
                db.sync().unwrap();
            }
            for i in &acknowledged {
                assert_eq!(
                    db.get(format!("new {i:06}")).unwrap().as_deref(),
                    Some(&value(*i)[..]),
                    "{round}"
                );
            }
            for mode in [CrashMode::KeepAll, CrashMode::DropUnsynced, CrashMode::Random] {
                let after = fs.after_crash(mode);
                after.set_capacity(None);
                let db = options(&after).open(DIR).unwrap_or_else(|e| panic!("{round} {mode:?}: {e}"));
                for i in &acknowledged {
                    assert!(db.get(format!("new {i:06}")).unwrap().is_some(), "{round} {mode:?} {i}");
                }
                assert!(!deleted || db.get(key(10)).unwrap().is_none(), "{round} {mode:?}");
                assert!(db.get(key(1500)).unwrap().is_some(), "{round} {mode:?}");
                assert_eq!(db.verify().unwrap().problems, Vec::<String>::new(), "{round} {mode:?}");
            }
        }
    }
    assert!(spent > 0, "the reserve was never needed");
}

/// Small memtables kept the logs at about one size, by which it was seen whether they grow. Others
/// grew by the header of a record alone, time after time, since only the operations were counted
/// where it was looked.
#[test]
fn what_is_in_memory_can_always_be_flushed() {
    for (seed, memtable_bytes) in [(6, 8 << 10), (7, 64 << 20)] {
        for bytes in [90, 200, 333, 480, 500] {
            let fs = FaultyFs::new(seed);
            fs.create_dir_all(Path::new(DIR)).unwrap();
            fs.set_capacity(Some(3 << 20));
            let mut options = options(&fs);
            // A reserve would be spent by a flush that does not fit.
            options.reserve_bytes = 0;
            (options.keyspace.memtable_bytes, options.keyspace.auto_compaction) = (memtable_bytes, false);
            let db = options.open(DIR).unwrap();
            let put = |i: u32| db.put(key(i), &value(i)[..bytes]);
            let taken = (0..100_000).take_while(|&i| put(i).is_ok()).count() as u32;
            until(&db, "a flush", |db| db.flush().is_ok());
            let write = db.stats().write;
            assert_eq!((write.failed_flushes, write.suspensions), (0, 0), "{memtable_bytes} {bytes}");
            assert!(u64::from(taken) * bytes as u64 > 1 << 20, "{taken} of {bytes}");
        }
    }
}

/// Deletes of single keys took the last bytes. Then nothing was accepted any more, not even what
/// frees space without a merge.
#[test]
fn a_range_delete_is_accepted_where_deletes_of_single_keys_are_no_longer() {
    let fs = FaultyFs::new(8);
    fs.create_dir_all(Path::new(DIR)).unwrap();
    fs.set_capacity(Some(2 << 20));
    let mut options = options(&fs);
    options.keyspace.auto_compaction = false;
    let db = options.open(DIR).unwrap();
    let taken = (0..100_000).take_while(|&i| db.put(key(i), value(i)).is_ok()).count() as u32;
    until(&db, "single deletes are refused", |db| {
        let refused = (0..2000).find_map(|i| db.delete(key(i % taken)).err());
        refused.is_some_and(|error| error.to_string().contains("only range deletes and drops"))
    });
    db.delete_range(key(0)..key(taken)).unwrap();
    until(&db, "it is in a table", |db| db.flush().is_ok());
    db.compact().unwrap();
    until(&db, "writes", |db| db.put("key", "value").is_ok());
}

/// The logs of writes in memory held the space that was missing.
#[test]
fn on_a_full_disk_everything_in_memory_becomes_tables() {
    let fs = FaultyFs::new(9);
    fs.create_dir_all(Path::new(DIR)).unwrap();
    fs.set_capacity(Some(4 << 20));
    let mut options = options(&fs);
    options.keyspace.memtable_bytes = 64 << 20;
    let db = options.open(DIR).unwrap();
    let gone = db.create_keyspace("gone", crate::KeyspaceOptions::default()).unwrap();
    let put = |i: u32| db.put(key(i), value(i)).and_then(|()| gone.put(key(i), value(i)));
    assert!((0..100_000).any(|i| put(i).is_err()));
    until(&db, "a drop", |db| db.drop_keyspace("gone").is_ok());
    until(&db, "writes", |db| db.put("key", "value").is_ok());
}
