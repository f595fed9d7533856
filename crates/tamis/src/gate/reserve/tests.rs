//! A full disk with a reserve, from the first write that finds no room until writes succeed again.

use std::path::Path;
use std::time::Instant;

use tamis_testkit::{CrashMode, FaultPlan, FaultyFs};

use super::*;
use crate::io::FileSystem;
use crate::{Db, Options};

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

/// A reserve without a database around it.
fn alone(fs: &Arc<dyn FileSystem>) -> Reserve {
    let observer = crate::observe::Observer::new(Path::new(DIR), &[], None);
    let warnings = Arc::new(Warnings::new(Path::new(DIR), &observer));
    let options = Options { reserve_bytes: 1 << 30, ..Options::default() };
    Reserve::new(DIR.into(), fs, &options, &Arc::default(), &Arc::default(), &warnings)
}

/// Lets the reserve look at once.
fn follow(reserve: &Reserve, tables: u64) {
    reserve.keeping.lock().looked = None;
    reserve.follow(|| (tables, 0, 0));
}

const MIB: u64 = 1 << 20;

#[test]
fn a_reserve_changes_when_what_it_should_be_has_doubled_or_halved() {
    let fs = FaultyFs::new(10);
    fs.create_dir_all(Path::new(DIR)).unwrap();
    let reserve = alone(&(Arc::new(fs.clone()) as Arc<dyn FileSystem>));
    let held = |sixteenth: u64| {
        follow(&reserve, PART_OF_TABLES * sixteenth);
        assert_eq!(fs.file_len(&reserve_path(Path::new(DIR))).unwrap(), reserve.held());
        reserve.held()
    };
    assert_eq!(held(4 * MIB), 4 * MIB);
    assert_eq!(held(2 * MIB + STEP), 4 * MIB);
    assert_eq!(held(8 * MIB - STEP), 4 * MIB);
    assert_eq!(held(2 * MIB), 2 * MIB);
    assert_eq!(held(4 * MIB - STEP), 2 * MIB);
    assert_eq!(held(4 * MIB), 4 * MIB);
    follow(&reserve, 0);
    assert_eq!(reserve.held(), 0);
    assert!(!fs.exists(&reserve_path(Path::new(DIR))).unwrap());
}

/// What is left of a file that could not be made is nobody's, and it may hold the last space.
#[test]
fn a_reserve_that_could_not_be_made_is_gone() {
    let mut failed = 0;
    for at in 0.. {
        let fs = FaultyFs::new(11);
        fs.create_dir_all(Path::new(DIR)).unwrap();
        let reserve = alone(&(Arc::new(fs.clone()) as Arc<dyn FileSystem>));
        follow(&reserve, PART_OF_TABLES * MIB);
        assert_eq!(reserve.held(), MIB);
        // The first operation is the question for the free space.
        fs.plan(FaultPlan { fail_at: Some(fs.operations() + 1 + at), ..FaultPlan::none() });
        let failures = fs.failures();
        follow(&reserve, PART_OF_TABLES * 4 * MIB);
        let has_failed = fs.failures() > failures;
        fs.plan(FaultPlan::none());
        let is_there = fs.exists(&reserve_path(Path::new(DIR))).unwrap();
        if !has_failed {
            assert_eq!((reserve.held(), is_there), (4 * MIB, true));
            break;
        }
        failed += 1;
        assert_eq!((reserve.held(), is_there), (0, false), "{at}");
    }
    assert!(failed > 0);
}

/// A file system that reserves no space, and says that it does.
#[derive(Debug)]
struct Unreserved(FaultyFs);

#[derive(Debug)]
struct Growing(Box<dyn crate::io::WriteFile>);

impl crate::io::WriteFile for Growing {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }

    fn preallocate(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn truncate_to_written(&mut self) -> io::Result<()> {
        self.0.truncate_to_written()
    }
}

impl FileSystem for Unreserved {
    fn create(&self, path: &Path, usage: Usage) -> io::Result<Box<dyn crate::io::WriteFile>> {
        Ok(Box::new(Growing(self.0.create(path, usage)?)))
    }

    fn reuse(&self, old: &Path, new: &Path) -> io::Result<Box<dyn crate::io::WriteFile>> {
        Ok(Box::new(Growing(self.0.reuse(old, new)?)))
    }

    fn open(&self, path: &Path, access: crate::io::Access) -> io::Result<Arc<dyn crate::io::ReadFile>> {
        self.0.open(path, access)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.remove_dir_all(path)
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.link_or_copy(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.exists(path)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.0.file_len(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn crate::io::DirLock>>> {
        self.0.lock(path)
    }

    fn available_space(&self, path: &Path) -> io::Result<Option<u64>> {
        self.0.available_space(path)
    }
}

#[test]
fn where_no_space_can_be_reserved_no_file_is_left() {
    let fs: Arc<dyn FileSystem> = Arc::new(Unreserved(FaultyFs::new(13)));
    fs.create_dir_all(Path::new(DIR)).unwrap();
    let reserve = alone(&fs);
    for _ in 0..2 {
        follow(&reserve, PART_OF_TABLES * MIB);
        assert_eq!((reserve.held(), fs.list(Path::new(DIR)).unwrap()), (0, vec![]));
        assert!(reserve.keeping.lock().impossible);
    }
}

#[test]
fn a_full_disk_is_told_once_until_there_is_room() {
    let fs = FaultyFs::new(12);
    fs.create_dir_all(Path::new(DIR)).unwrap();
    let reserve = alone(&(Arc::new(fs.clone()) as Arc<dyn FileSystem>));
    assert_eq!(reserve.kept(16 * MIB), MIB);
    reserve.refuse().unwrap();
    reserve.fill(MIB, "one file");
    reserve.fill(2 * MIB, "another");
    let trouble = reserve.trouble();
    let told = |reserve: &Reserve| reserve.warnings.all();
    assert_eq!(told(&reserve).len(), 1);
    assert!(told(&reserve)[0].starts_with("one file: no storage space is left"), "{:?}", told(&reserve));
    assert!(trouble.ends_with("3.1 MiB are free"), "{trouble}");
    assert!(matches!(reserve.refuse(), Err(WriteError::Suspended { cause }) if cause == trouble));
    // Too little, and then enough.
    fs.set_capacity(Some(3 * MIB));
    follow(&reserve, 0);
    assert!(reserve.is_full());
    fs.set_capacity(Some(4 * MIB));
    follow(&reserve, 0);
    assert!(!reserve.is_full());
    assert_eq!((reserve.missing.load(Relaxed), told(&reserve).len()), (0, 2));
    reserve.refuse().unwrap();
    // It is told again.
    reserve.fill(3 * MIB, "a third");
    assert_eq!(told(&reserve).len(), 3);
}

#[test]
fn a_memtable_needs_at_least_the_space_of_its_entries() {
    let memtable = crate::memtable::Memtable::with_chunks(1 << 20, 0, None);
    let slot = MemtableSlot::new(Arc::new(memtable), 1);
    assert_eq!(bytes_of(&slot), 0);
    let op = BatchOp::Put { keyspace: 0, key: b"key", value: &[7; 1000] };
    slot.memtable.writer().insert_op(&op, op.key().map(tamis_filter::Digest::of), 1, None);
    assert!((1000..2000).contains(&bytes_of(&slot)), "{}", bytes_of(&slot));
}
