//! The memory budget, and the limit shared with the block cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tamis::io::{FileSystem, MemFs};
use tamis::options::FilterChoice;
use tamis::stats::Stats;
use tamis::{Db, Durability, Options};
use tamis_testkit::Rng;

use crate::{fill, fits, get_one, key, one_each, open, settle, small, stats, value};

/// Checks the database continuously while `work` runs.
fn watched(db: &Db, look: impl Fn(&Db) + Sync, work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                look(db);
            }
        });
        work();
        done.store(true, Relaxed);
    });
}

/// Runs readers, a writer and compactions concurrently.
fn busy(db: &Db, keys: u64, gets: u64) {
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                for at in 0..gets {
                    let hot = at / 1000 * 317 % (keys - 500);
                    get_one(db, &mut rng, &(hot..hot + 500), keys);
                }
            });
        }
        scope.spawn(move || {
            let mut rng = Rng::new(77);
            for _ in 0..gets / 2 {
                let i = rng.below(keys);
                db.put(key(i), value(i)).expect("a put");
            }
        });
    });
}

/// Returns the statistics of a moment between two steps of a shared limit: else its sides are not
/// of one moment.
fn undivided(db: &Db) -> Stats {
    loop {
        let [before, all, after] = [(); 3].map(|()| db.stats());
        let capacity = all.cache_capacity_bytes;
        if before.cache_capacity_bytes == capacity && after.cache_capacity_bytes == capacity {
            return all;
        }
    }
}

#[test]
fn the_budget_is_never_exceeded() {
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new());
    let db = open(&small(fs.clone(), u64::MAX));
    fill(&db, 6000);
    let (one, fixed) = (one_each(&db).0, stats(&db).index_bytes);
    db.close().expect("closing");
    for budget in [fixed + (one - fixed) / 3, one, 2 * one] {
        let db = open(&small(fs.clone(), budget));
        let look = |db: &Db| {
            let stats = stats(db);
            assert!(fits(&stats, budget), "{} of {budget}", stats.used_bytes);
        };
        watched(&db, look, || busy(&db, 6000, 8000));
        settle(&db);
        let stats = stats(&db);
        assert!(stats.used_bytes > budget / 2, "{stats:?}");
        assert!(stats.loads > 0, "{stats:?}");
        db.close().expect("closing");
    }
}

#[test]
fn without_a_budget_every_block_is_read() {
    let db = open(&small(Arc::new(MemFs::new()), 0));
    fill(&db, 2000);
    let before = db.stats().read;
    (0..2000).for_each(|i| assert_eq!(db.get(crate::absent(i)).expect("a get"), None));
    let cost = db.stats().read - before;
    assert_eq!(cost.filter_probes, 0);
    assert!(cost.false_positives >= 1900, "{cost:?}");
    assert_eq!((stats(&db).used_bytes, stats(&db).loads), (stats(&db).index_bytes, 0));
}

/// Regression: tables from an earlier life kept the whole budget in use, although none of them was
/// probed.
#[test]
fn tables_behind_a_global_filter_take_no_unit_memory() {
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new());
    let mut options = small(fs.clone(), u64::MAX);
    options.keyspace.auto_compaction = false;
    let db = open(&options);
    fill(&db, 2000);
    assert!(stats(&db).used_bytes > 0);
    db.close().expect("closing");
    options.keyspace.filter = FilterChoice::Grf.into();
    let db = open(&options);
    assert_eq!((db.stats().elastic, db.segments()), (None, Vec::new()));
    (0..2000).for_each(|i| assert_eq!(db.get(key(i)).expect("a get").unwrap(), value(i)));
    db.put(key(2000), value(2000)).expect("a put");
    settle(&db);
    assert_eq!(db.stats().elastic, None);
    db.close().expect("closing");
    // Some of the tables are probed again.
    options.keyspace.filter = tamis::options::FilterPolicy::elastic();
    let db = open(&options);
    assert!(stats(&db).used_bytes > 0);
    (0..=2000).for_each(|i| assert_eq!(db.get(key(i)).expect("a get").unwrap(), value(i)));
}

/// A limit of 1 MiB for reads is never exceeded, however it is divided.
#[test]
fn a_limit_shared_by_cache_and_units_holds_and_is_divided() {
    const LIMIT: u64 = 1 << 20;
    let mut options = small(Arc::new(MemFs::new()), 0);
    (options.read_memory_bytes, options.durability) = (LIMIT, Durability::Buffered);
    let db = open(&options);
    fill(&db, 12_000);
    let look = |db: &Db| {
        let all = undivided(db);
        let elastic = all.elastic.expect("elastic filters");
        assert!(elastic.budget_bytes + all.cache_capacity_bytes <= LIMIT, "{elastic:?}");
        assert!(fits(&elastic, elastic.budget_bytes));
    };
    watched(&db, look, || busy(&db, 12_000, 20_000));
    let all = db.stats();
    assert!(all.cache_capacity_bytes >= LIMIT / 32 && all.cache_used_bytes > 0, "{all:?}");
    assert!(all.elastic.expect("elastic filters").used_bytes > 0);
}

/// Readers get while the budget falls to nothing and rises again. It holds from the moment that a
/// call returns.
#[test]
fn the_budget_changes_in_use() {
    let db = open(&small(Arc::new(MemFs::new()), 256 << 10));
    fill(&db, 6000);
    busy(&db, 6000, 5000);
    // Without waiting, compactions may be under way whose output has no units yet.
    settle(&db);
    let full = stats(&db).used_bytes;
    assert!(full > 16 << 10, "{full}");
    let look = |db: &Db| assert!(fits(&stats(db), 256 << 10));
    watched(&db, look, || {
        for budget in [full / 2, full / 8, 0] {
            db.set_filter_budget(budget).expect("a budget of its own");
            let now = stats(&db);
            assert!(now.budget_bytes == budget && fits(&now, budget), "{now:?}");
            busy(&db, 6000, 2000);
        }
        settle(&db);
        assert_eq!(stats(&db).used_bytes, stats(&db).index_bytes);
        db.set_filter_budget(256 << 10).expect("a budget of its own");
        busy(&db, 6000, 20_000);
        settle(&db);
    });
    assert!(stats(&db).used_bytes > full / 2, "{:?}", stats(&db));
    assert!(db.set_read_memory(1 << 20).is_err(), "there is no shared budget");
}

#[test]
fn the_budget_shared_with_the_cache_changes_in_use() {
    const LIMIT: u64 = 1 << 20;
    let mut options = small(Arc::new(MemFs::new()), 0);
    (options.read_memory_bytes, options.durability) = (LIMIT, Durability::Buffered);
    let db = open(&options);
    fill(&db, 12_000);
    busy(&db, 12_000, 10_000);
    for limit in [LIMIT / 4, LIMIT / 8, LIMIT, 4 * LIMIT, LIMIT / 2] {
        db.set_read_memory(limit).expect("a shared budget");
        let look = |db: &Db| {
            let all = undivided(db);
            let elastic = all.elastic.as_ref().expect("elastic filters");
            assert!(elastic.budget_bytes + all.cache_capacity_bytes <= limit, "{limit}: {elastic:?}");
            assert!(fits(elastic, elastic.budget_bytes));
            assert!(all.cache_used_bytes <= all.cache_capacity_bytes, "{limit}: {all:?}");
        };
        look(&db);
        watched(&db, look, || busy(&db, 12_000, 5000));
    }
    assert!(db.set_read_memory(LIMIT / 9).is_err(), "shares would be smaller than the cache can be");
    assert!(db.set_filter_budget(1 << 20).is_err(), "the budget is shared");
}

#[test]
fn impossible_options_are_refused() {
    let refused = |text: &str| Options::from_text(text).unwrap_err().to_string();
    for allocation in ["monkey", "mnemosyne"] {
        let why = refused(&format!("keyspace.filter = elastic\nkeyspace.filter_allocation = {allocation}"));
        assert!(why.contains("filter_allocation") && why.contains("elastic"), "{why}");
    }
    let why = refused("keyspace.filter = elastic-independent\nkeyspace.filter_units = 16");
    assert!(why.contains("filter_units") && why.contains("at most 15"), "{why}");
    assert!(refused("filter_life_time = 0").contains("auto"));
    assert!(refused("keyspace.filter_unit_bytes = 1").contains("128"));
    let mixed = "keyspace.filter = blocked-bloom,blocked-bloom,elastic\nfilter_life_time = 5000\nheat_sampling = auto";
    let options = Options::from_text(mixed).expect("levels may differ");
    assert_eq!((options.filter_life_time, options.heat_sampling), (Some(5000), None));
    assert_eq!(Options::from_text(&options.to_text()).expect("its own text"), options);
}
