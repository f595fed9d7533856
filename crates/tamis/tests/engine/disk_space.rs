//! Space on disk: bounded by a stated sum, however busy the database is; and a full disk accepts
//! what frees some.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tamis::io::FileSystem;
use tamis::{Db, Keyspace, KeyspaceOptions, Options, ReadError, WriteError};
use tamis_testkit::{FaultPlan, FaultyFs, OpClass, Rng};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn used(fs: &FaultyFs) -> u64 {
    fs.files().iter().map(|(_, len)| len).sum()
}

fn count(fs: &FaultyFs, suffix: &str) -> usize {
    fs.files().iter().filter(|(path, _)| path.to_string_lossy().ends_with(suffix)).count()
}

/// Incompressible.
fn value(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..len).map(|_| next()).collect()
}

fn key(i: u32) -> String {
    format!("key {i:06}")
}

fn on(fs: &FaultyFs) -> Options {
    fs.create_dir_all(Path::new("/db")).unwrap();
    let mut options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
    options.keyspace.memtable_bytes = 64 * KIB;
    options.keyspace.table_bytes = 64 * KIB;
    options
}

/// Waits for a state that background work brings about.
fn until(what: &str, db: &Db, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}: {:?}", db.stats().troubles);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The sum that `docs/deletes.md` states.
fn stated(db: &Db) -> u64 {
    let stats = db.stats();
    let trees: u64 = stats.keyspaces.iter().map(|ks| ks.table_bytes + ks.blob_bytes).sum();
    let flushes: u64 = stats.keyspaces.iter().map(|ks| ks.memtable_bytes).sum();
    let merges: u64 = stats.jobs.iter().map(|job| job.bytes_in).sum();
    // What a thread has replaced and not removed is no more than the tree was when it did.
    let removals = trees + flushes;
    let readers = stats.readers_table_bytes + stats.readers_blob_bytes;
    let logs = stats.log_allocated_bytes + stats.retained_log_bytes;
    trees + flushes + merges + removals + readers + logs + stats.reserve_bytes + 2 * MIB
}

/// Logs, tables and blob files were removed only when nothing was to be flushed. While one memtable
/// after the other was full, a database of 20 MiB grew without limit, to 3.6 GiB in a minute.
#[test]
fn obsolete_files_do_not_wait_for_an_idle_moment() {
    for blob_threshold in [0, 1000] {
        let fs = FaultyFs::new(1);
        let mut options = on(&fs);
        (options.keyspace.blob_threshold, options.recycled_logs) = (blob_threshold, 0);
        let db = options.open("/db").unwrap();
        let value = value(7, 4000);
        let mut most = 0;
        for i in 0..5000 {
            db.put(key(i % 100), &value).unwrap();
            if i % 50 == 0 {
                let before = stated(&db);
                let used = used(&fs);
                let sum = before.max(stated(&db));
                assert!(used <= sum, "{used} bytes are used, {sum} stated at {i}: {:?}", fs.files());
                most = most.max(used);
            }
        }
        assert!(most < 10 * MIB, "{most} bytes of 20 MB written");
    }
}

/// A file that could not be removed stayed until the next opening.
#[test]
fn a_file_that_could_not_be_removed_is_tried_again() {
    let fs = FaultyFs::new(4);
    let db = on(&fs).open("/db").unwrap();
    let fill = || (0..500).for_each(|i| db.put(key(i), value(i.into(), 100)).unwrap());
    fill();
    db.compact().unwrap();
    let iter = db.iter();
    fill();
    db.compact().unwrap();
    let tables = || {
        db.stats().keyspaces[0]
            .levels
            .iter()
            .flat_map(|level| &level.runs)
            .map(|run| run.tables)
            .sum::<usize>()
    };
    assert!(count(&fs, ".tam") > tables(), "the iterator keeps some");
    let (failures, fail_at) = (fs.failures(), Some(fs.operations()));
    fs.plan(FaultPlan { fail_at, only: Some(OpClass::Name), sticky: true, ..FaultPlan::none() });
    drop(iter);
    until("an attempt", &db, || fs.failures() > failures);
    fs.plan(FaultPlan::none());
    until("the files go", &db, || count(&fs, ".tam") == tables());
}

/// A dropped keyspace kept its files as long as any handle of it lived.
#[test]
fn the_files_of_a_dropped_keyspace_go_with_the_last_reader() {
    for blob_threshold in [0, 100] {
        let fs = FaultyFs::new(2);
        let db = on(&fs).open("/db").unwrap();
        let options = KeyspaceOptions { blob_threshold, ..on(&fs).keyspace };
        let gone = db.create_keyspace("gone", options).unwrap();
        (0..500).for_each(|i| gone.put(key(i), value(i.into(), 500)).unwrap());
        gone.flush().unwrap();
        gone.put("in memory", "value").unwrap();
        let snapshot = db.snapshot();
        let held = gone.get(key(1)).unwrap().unwrap();
        let mut iter = gone.iter();
        assert_eq!(iter.next().unwrap().unwrap().0, "in memory");
        db.drop_keyspace("gone").unwrap();

        let is_dropped = |error: ReadError| matches!(error, ReadError::Dropped { .. });
        assert!(is_dropped(gone.get(key(1)).unwrap_err()));
        assert!(is_dropped(gone.iter().next().unwrap().unwrap_err()));
        assert!(is_dropped(gone.iter().next_back().unwrap().unwrap_err()));
        assert!(is_dropped(gone.iter().seek("a").unwrap_err()));
        assert!(is_dropped(snapshot.keyspace(&gone).iter().next().unwrap().unwrap_err()));
        let mut refreshed = gone.iter();
        refreshed.refresh(&gone);
        assert!(is_dropped(refreshed.next().unwrap().unwrap_err()) && refreshed.next().is_none());

        // The iterator shows what it began with.
        assert!(count(&fs, ".tam") > 0);
        assert_eq!(iter.by_ref().map(|item| item.unwrap().1).collect::<Vec<_>>().len(), 500);
        drop(iter);
        until("the files go", &db, || count(&fs, ".tam") == 0 && count(&fs, ".blb") == 0);
        assert_eq!(held, value(1, 500), "a value that was returned stays");
        drop(gone);
    }
}

/// A drop was refused while writes were suspended, though it might have been what ends that.
#[test]
fn a_drop_is_accepted_while_writes_are_suspended_for_lack_of_space() {
    let fs = FaultyFs::new(3);
    let db = Options { recycled_logs: 0, ..on(&fs) }.open("/db").unwrap();
    let big = db.create_keyspace("big", on(&fs).keyspace).unwrap();
    (0..6000).for_each(|i| big.put(key(i), value(i.into(), 500)).unwrap());
    big.compact().unwrap();
    until("a reserve", &db, || db.stats().reserve_bytes > 0);
    let small = db.create_keyspace("small", KeyspaceOptions { memtable_bytes: 8 * MIB, ..on(&fs).keyspace });
    let small = small.unwrap();
    // Neither what is free nor the reserve has room for this.
    (0..3000).for_each(|i| small.put(key(i), value(i.into(), 500)).unwrap());
    fs.set_capacity(Some(used(&fs) + 500));
    fs.plan(FaultPlan { fail_at: Some(fs.operations()), only: Some(OpClass::Sync), ..FaultPlan::none() });
    db.sync().unwrap_err();
    until("no room", &db, || db.stats().suspended.is_some_and(|why| why.contains("no storage space")));
    until("the reserve", &db, || db.stats().write.reserves_spent == 1);
    db.drop_keyspace("big").unwrap();
    until("writes resume", &db, || db.put("key", "value").is_ok());
    (0..3000).for_each(|i| assert_eq!(small.get(key(i)).unwrap().unwrap(), value(i.into(), 500)));
}

/// How space is given back on a full disk.
#[derive(Clone, Copy, Debug)]
enum Way {
    Range,
    Ranges,
    Keys,
    Drop,
}

struct Full {
    seed: u64,
    way: Way,
    options: Options,
    capacity: u64,
    value: usize,
    keys: u32,
}

fn drawn(fs: &FaultyFs, seed: u64) -> Full {
    let mut rng = Rng::new(seed);
    let mut pick = |from: &[&str]| from[rng.up_to(from.len() - 1)].to_owned();
    let mut options = on(fs);
    let mut set = |name: &str, values: &[&str]| {
        let value = pick(values);
        options.set(name, &value).unwrap();
        value
    };
    set("keyspace.memtable_bytes", &["16 KiB", "64 KiB", "256 KiB", "64 MiB"]);
    set("keyspace.table_bytes", &["32 KiB", "64 KiB", "1 MiB"]);
    let kinds = ["leveling", "leveling", "lazy-leveling", "tiering", "fragmented", "fifo"];
    match &*set("keyspace.compaction", &kinds) {
        "fifo" => {}
        "fragmented" => _ = set("keyspace.blob_threshold", &["0", "0", "300"]),
        _ => {
            set("keyspace.blob_threshold", &["0", "0", "300"]);
            set("keyspace.deterministic", &["false", "false", "true"]);
        }
    }
    set("keyspace.max_memtables", &["2", "3"]);
    // Without a reserve nothing is promised.
    set("reserve_bytes", &["64 KiB", "64 KiB", "64 MiB", "64 MiB"]);
    set("recycled_logs", &["0", "2"]);
    set("durability", &["buffered", "buffered", "sync"]);
    if set("keyspace.level0_runs", &["2", "4"]) == "2" {
        set("keyspace.slowdown_runs", &["3"]);
        set("keyspace.stop_runs", &["4"]);
    }
    let ways = [Way::Range, Way::Ranges, Way::Drop, Way::Keys];
    let way = ways[rng.up_to(ways.len() - 1)];
    let capacity = [MIB, 2 * MIB, 4 * MIB][rng.up_to(2)];
    let value = [100, 500, 2000][rng.up_to(2)];
    let keys = (capacity as usize * [1, 4][rng.up_to(1)] / value) as u32;
    Full { seed, way, options, capacity, value, keys }
}

/// What is acknowledged, by keyspace and key: the number of its last write.
type Written = BTreeMap<(usize, u32), u32>;

impl Full {
    fn value(&self, i: u32) -> Vec<u8> {
        value(i.into(), self.value)
    }

    /// Writes until nothing is accepted any more; `None` if the disk does not fill up.
    fn fill(&self, spaces: &[Keyspace]) -> Option<Written> {
        let (mut written, mut refused) = (Written::new(), 0);
        for i in 0..(self.capacity as usize * 12 / self.value) as u32 {
            let at = (i.wrapping_mul(0x9E37_79B9) >> 8) % self.keys;
            let space = i as usize % 2;
            match spaces[space].put(key(at), self.value(i)) {
                Ok(()) => {
                    written.insert((space, at), i);
                }
                Err(WriteError::Suspended { .. } | WriteError::Storage(_)) => {
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(other) => panic!("{other}"),
            }
            if refused == 20 {
                return Some(written);
            }
        }
        None
    }

    /// Deletes, and returns what is left.
    fn free(&self, db: &Db, spaces: &[Keyspace], mut written: Written) -> Written {
        let accepted = |what: &str, delete: &dyn Fn() -> Result<(), String>| {
            until(&format!("{}: {what} is accepted", self.seed), db, || delete().is_ok());
        };
        let told = |result: Result<(), WriteError>| result.map_err(|error| error.to_string());
        let all = key(0)..key(self.keys);
        match self.way {
            Way::Range => {
                spaces.iter().for_each(|ks| accepted("a range", &|| told(ks.delete_range(all.clone()))));
                written.clear();
            }
            Way::Ranges => {
                let step = self.keys.div_ceil(8);
                for part in 0..8 {
                    let range = key(part * step)..key((part + 1) * step);
                    spaces.iter().for_each(|ks| accepted("a part", &|| told(ks.delete_range(range.clone()))));
                }
                written.clear();
            }
            Way::Keys => {
                // What they free depends on merges that fit. Where that is not enough, a range
                // delete has to be accepted.
                let soon = |is_so: &dyn Fn() -> bool| {
                    (0..200).any(|_| {
                        std::thread::sleep(Duration::from_millis(if is_so() { return true } else { 10 }));
                        false
                    })
                };
                let all_accepted =
                    written.keys().all(|&(space, at)| soon(&|| spaces[space].delete(key(at)).is_ok()));
                if !all_accepted || !soon(&|| db.put("last", "value").is_ok()) {
                    spaces.iter().for_each(|ks| accepted("a range", &|| told(ks.delete_range(all.clone()))));
                }
                written.clear();
            }
            Way::Drop => {
                accepted("a drop", &|| db.drop_keyspace("other").map_err(|error| error.to_string()));
                written.retain(|&(space, _), _| space == 0);
            }
        }
        written
    }

    fn check(&self, db: &Db, left: &Written) {
        let space = db.default_keyspace();
        for at in 0..self.keys {
            let expected = left.get(&(0, at)).map(|&i| self.value(i));
            assert_eq!(space.get(key(at)).unwrap().as_deref(), expected.as_deref(), "{} {at}", self.seed);
        }
    }
}

fn run_full(seed: u64) -> Option<Way> {
    let fs = FaultyFs::new(seed);
    let full = drawn(&fs, seed);
    fs.set_capacity(Some(full.capacity));
    let db = full.options.clone().open("/db").unwrap();
    let other = db.create_keyspace("other", full.options.keyspace.clone()).unwrap();
    let spaces = [db.default_keyspace().clone(), other];
    let written = full.fill(&spaces)?;
    let left = full.free(&db, &spaces, written);
    until(&format!("{seed}: {:?}: writes resume", full.way), &db, || db.put("last", "value").is_ok());
    full.check(&db, &left);
    drop((spaces, db));
    let db = full.options.clone().open("/db").unwrap();
    full.check(&db, &left);
    Some(full.way)
}

/// On some full disks deletes were refused for ever, or freed nothing: blob files did not count for
/// the reserve, a small disk had none, a full level 0 stopped deletes like all writes, logs grew
/// unseen to more than there was room for in tables, merges took the room that their own edits
/// needed, and deletes of single keys took what a range delete needs. `TAMIS_FULL_DISKS=0..300`
/// tries more.
#[test]
fn whatever_the_options_deletes_are_accepted_on_a_full_disk_and_free_space() {
    let seeds = std::env::var("TAMIS_FULL_DISKS").ok().map_or(0..20, |seeds| {
        let (from, to) = seeds.split_once("..").expect("FROM..TO");
        from.parse().expect("a number")..to.parse().expect("a number")
    });
    let (mut filled, mut failed) = (0, Vec::new());
    for seed in seeds.clone() {
        match std::panic::catch_unwind(|| run_full(seed)) {
            Ok(way) => filled += u64::from(way.is_some()),
            Err(_) => failed.push(seed),
        }
    }
    assert_eq!(failed, [], "of {filled} that filled up");
    assert!(filled * 2 >= seeds.end - seeds.start, "{filled} filled up");
}
