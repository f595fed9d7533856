//! Several databases share the memory for reads.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tamis::io::MemFs;
use tamis::options::{FilterChoice, SharedReadMemory};
use tamis::stats::ReadMemoryShare;
use tamis::{Db, Durability, Options};
use tamis_testkit::Rng;

use crate::{absent, fill, fits, get_one, key, quiet, settle, small, stats, value, wait_until};

const TOTAL: u64 = 1 << 20;
const KEYS: u64 = 6000;
/// A get under way while the cache is turned off may leave its blocks behind: at most two a shard,
/// and there is one shard.
const LEFT_BEHIND: u64 = 2 << 10;

/// Options of a database whose memory for reads is shared.
fn sharing(memory: &SharedReadMemory) -> Options {
    let defaults = Options::default();
    Options {
        cache_bytes: defaults.cache_bytes,
        filter_budget_bytes: defaults.filter_budget_bytes,
        shared_read_memory: Some(memory.clone()),
        durability: Durability::Buffered,
        ..small(Arc::new(MemFs::new()), 0)
    }
}

fn open(options: &Options, dir: &str) -> Db {
    options.clone().open(Path::new(dir)).expect("opening")
}

fn filled(options: &Options, dir: &str) -> Db {
    let db = open(options, dir);
    fill(&db, KEYS);
    db
}

fn share(memory: &SharedReadMemory, dir: &str) -> ReadMemoryShare {
    memory.members().into_iter().find(|share| share.path == Path::new(dir)).expect("a member")
}

/// The shares of one moment are within the total, and what is used within them.
fn check(memory: &SharedReadMemory, total: u64) {
    let members = memory.members();
    let limits: u64 = members.iter().map(|share| share.cache_bytes + share.filter_bytes).sum();
    assert!(limits <= total && members.iter().map(|share| share.bytes).sum::<u64>() <= total, "{members:?}");
    for share in &members {
        assert!(share.cache_bytes + share.filter_bytes <= share.bytes, "{share:?}");
        assert!(share.cache_used_bytes <= share.cache_bytes.max(LEFT_BEHIND), "{share:?}");
    }
}

/// Tells threads to stop, also after a failure.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Gets everywhere in a database until told to stop.
fn read_all(db: &Db, seed: u64, stop: &AtomicBool) {
    let mut rng = Rng::new(seed);
    while !stop.load(Relaxed) {
        get_one(db, &mut rng, &(0..KEYS), KEYS);
    }
}

#[test]
fn the_busy_database_gets_more_and_a_closed_one_leaves_its_share() {
    let memory = SharedReadMemory::new(TOTAL);
    let options = sharing(&memory);
    let mut fixed = options.clone();
    fixed.keyspace.filter = FilterChoice::BlockedBloom.into();
    let (hot, cold, plain) = (filled(&options, "/hot"), filled(&options, "/cold"), filled(&fixed, "/plain"));
    assert!(memory.members().iter().all(|share| share.bytes.abs_diff(TOTAL / 3) < 8), "nobody has read yet");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| read_all(&hot, 1, &stop));
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                check(&memory, TOTAL);
                std::thread::yield_now();
            }
        });
        let _stopping = Stopping(&stop);
        let bytes = |dir| share(&memory, dir).bytes;
        let mut rng = Rng::new(3);
        wait_until("the hot one to get more", || {
            // Seldom read, but still.
            get_one(&cold, &mut rng, &(0..KEYS), KEYS);
            bytes("/hot") > TOTAL * 7 / 16
                && bytes("/cold") < TOTAL * 5 / 16
                && bytes("/plain") < TOTAL * 5 / 16
        });
    });
    let (all, mine) = (hot.stats(), share(&memory, "/hot"));
    assert_eq!(all.read_memory_bytes, mine.bytes);
    assert_eq!((all.cache_capacity_bytes, stats(&hot).budget_bytes), (mine.cache_bytes, mine.filter_bytes));
    assert!(mine.steps > 4 && mine.filter_used_bytes > 0 && mine.cache_used_bytes > 0, "{mine:?}");
    assert_eq!(plain.stats().elastic, None);

    // A closed database keeps nothing, but its other handles can be read.
    let handle = cold.clone();
    let before = share(&memory, "/hot").bytes;
    cold.close().expect("closing");
    assert_eq!(memory.members().len(), 2);
    assert!(share(&memory, "/hot").bytes > before);
    check(&memory, TOTAL);
    let left = handle.stats();
    assert_eq!((left.read_memory_bytes, left.cache_capacity_bytes, left.cache_used_bytes), (0, 0, 0));
    assert_eq!(stats(&handle).used_bytes, stats(&handle).index_bytes);
    (0..KEYS).step_by(7).for_each(|i| assert_eq!(handle.get(key(i)).expect("a get").unwrap(), value(i)));
    assert_eq!(handle.stats().cache_used_bytes, 0);
    drop(plain);
    assert_eq!(share(&memory, "/hot").bytes, TOTAL);
    drop(hot);
    assert_eq!(memory.members(), []);
}

/// The other way round: a database that was idle gets memory back as soon as it is read.
#[test]
fn memory_follows_the_reads_from_one_database_to_another() {
    let memory = SharedReadMemory::new(TOTAL);
    let options = sharing(&memory);
    let (one, two) = (filled(&options, "/one"), filled(&options, "/two"));
    for (busy, dir, seed) in [(&one, "/one", 1), (&two, "/two", 2)] {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| read_all(busy, seed, &stop));
            let _stopping = Stopping(&stop);
            wait_until("the busy one to get more", || share(&memory, dir).bytes > TOTAL * 9 / 16);
        });
    }
}

/// A smaller total holds from the moment that the call returns, while both databases are read.
#[test]
fn the_total_changes_in_use() {
    let memory = SharedReadMemory::new(TOTAL);
    let options = sharing(&memory);
    let dbs = [filled(&options, "/one"), filled(&options, "/two")];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stopping = Stopping(&stop);
        for (seed, db) in (0..).zip(&dbs) {
            scope.spawn({
                let stop = &stop;
                move || read_all(db, seed, stop)
            });
        }
        for bytes in [TOTAL / 2, TOTAL / 16, 0, 1000, TOTAL / 4, 8 * TOTAL, TOTAL] {
            memory.set_bytes(bytes);
            assert_eq!(memory.bytes(), bytes);
            for _ in 0..20 {
                check(&memory, bytes);
                for db in &dbs {
                    let (all, elastic) = (db.stats(), stats(db));
                    assert!(
                        all.cache_used_bytes <= bytes.max(LEFT_BEHIND)
                            && fits(&elastic, elastic.budget_bytes),
                        "{all:?}"
                    );
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    });
    dbs.iter().for_each(quiet);
    for db in &dbs {
        let all = db.stats();
        assert!(all.cache_used_bytes > 0, "the cache is on again: {all:?}");
        assert!(stats(db).used_bytes > stats(db).index_bytes, "so are units");
    }
}

/// Databases open and close while another is read and written; every answer is right, and the
/// shares are always within the total.
#[test]
fn databases_come_and_go_while_others_are_used() {
    let memory = SharedReadMemory::new(TOTAL);
    let options = sharing(&memory);
    let steady = filled(&options, "/steady");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| read_all(&steady, 5, &stop));
        scope.spawn(|| {
            let mut rng = Rng::new(6);
            while !stop.load(Relaxed) {
                let i = rng.below(KEYS);
                steady.put(key(i), value(i)).expect("a put");
                check(&memory, TOTAL);
            }
        });
        let visitors = (0..2u64).map(|visitor| {
            let memory = &memory;
            scope.spawn(move || {
                let (options, dir) = (sharing(memory), format!("/visitor{visitor}"));
                for round in 0..8u64 {
                    let db = open(&options, &dir);
                    for i in 0..300 {
                        db.put(key(i), value(i + round)).expect("a put");
                    }
                    settle(&db);
                    for i in 0..300 {
                        assert_eq!(db.get(key(i)).expect("a get").unwrap(), value(i + round));
                        assert_eq!(db.get(absent(i)).expect("a get"), None);
                    }
                    if round % 2 == 0 {
                        db.close().expect("closing");
                    }
                }
            })
        });
        let visitors: Vec<_> = visitors.collect();
        let _stopping = Stopping(&stop);
        visitors.into_iter().for_each(|visitor| visitor.join().expect("no failure"));
    });
    assert_eq!(share(&memory, "/steady").bytes, TOTAL);
    (0..KEYS).for_each(|i| assert_eq!(steady.get(key(i)).expect("a get").unwrap(), value(i)));
}

#[test]
fn a_failed_opening_takes_nothing() {
    let memory = SharedReadMemory::new(TOTAL);
    let options = sharing(&memory);
    let db = filled(&options, "/db");
    let other = sharing(&memory);
    open(&other, "/other").close().expect("closing");
    let mut incompatible = other.clone();
    incompatible.keyspace.compaction_filter = Some("unknown".into());
    incompatible.open("/other").expect_err("nobody registered that filter");
    options.clone().open("/db").expect_err("it is open already");
    Options { create_if_missing: false, ..options.clone() }.open("/missing").expect_err("there is none");
    assert_eq!((memory.members().len(), share(&memory, "/db").bytes), (1, TOTAL));
    let reader = other.open_read_only("/other").expect("opening");
    assert_eq!(memory.members().len(), 2);
    // Thirds of halves are rounded.
    assert!((TOTAL / 2).abs_diff(reader.stats().read_memory_bytes) < 4);
    drop((db, reader));
    assert_eq!(memory.members(), []);
}

#[test]
fn a_limit_of_its_own_contradicts_shared_memory() {
    let memory = SharedReadMemory::new(TOTAL);
    let options = sharing(&memory);
    for (name, value) in [
        ("cache_bytes", "1 MiB"),
        ("filter_budget_bytes", "0"),
        ("read_memory_bytes", "1 MiB"),
        ("auto_memory_bytes", "1 MiB"),
    ] {
        let mut both = options.clone();
        both.set(name, value).expect("an option");
        let why = both.open("/db").expect_err("both are limits").to_string();
        assert!(why.contains(name) && why.contains("shared_read_memory"), "{why}");
    }
    assert_eq!(memory.members(), []);
    let db = open(&options, "/db");
    for why in [db.set_filter_budget(1000), db.set_read_memory(TOTAL)] {
        let why = why.expect_err("the memory is shared").to_string();
        assert!(why.contains("shared_read_memory"), "{why}");
    }
    let same = Options { shared_read_memory: Some(memory.clone()), ..options.clone() };
    let other = Options { shared_read_memory: Some(SharedReadMemory::new(TOTAL)), ..options.clone() };
    assert!(same == options && other != options && options != Options::default());
}
