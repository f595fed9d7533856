//! A get allocates nothing, as counted in the allocator. The test is alone in its program, because
//! the allocations of other threads would count too.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tamis::options::{BloomHashing, Compression, CompressionPerLevel, FilterChoice};
use tamis::{Db, Options};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system allocator, with a counter per thread.
struct Counting;

fn count() {
    ALLOCATIONS.with(|n| n.set(n.get() + 1));
}

// SAFETY: every call is passed on unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those that `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations<T>(what: impl FnOnce() -> T) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    let kept = what();
    let counted = ALLOCATIONS.with(Cell::get) - before;
    drop(kept);
    counted
}

const RUNS: u32 = 12;

fn key(i: u32, run: u32) -> String {
    format!("key{i:04}-{run:02}")
}

/// Twelve runs in mapped tables, a nonempty memtable, range tombstones in both.
fn filled(dir: &std::path::Path, filter: FilterChoice, with_tombstones: bool) -> Db {
    // What a get checks in elastic filters is recorded only for the sampled gets.
    let mut options = Options { heat_sampling: Some(1 << 16), ..Options::default() };
    options.keyspace.auto_compaction = false;
    options.keyspace.filter = filter.into();
    options.keyspace.compression = CompressionPerLevel::uniform(Compression::None);
    let db = options.open(dir).expect("opening");
    for run in 0..RUNS {
        for i in 0..300 {
            db.put(key(i, run), [b'v'; 100]).expect("a write");
        }
        if with_tombstones {
            db.delete_range(key(290, run)..key(291, run)).expect("a write");
        }
        if run + 1 < RUNS {
            db.flush().expect("a flush");
        }
    }
    db
}

#[test]
fn a_get_allocates_nothing() {
    assert!(allocations(|| vec![1u8; 10]) > 0, "the counter counts");
    // Separate digests need memory.
    let how = BloomHashing::Independent;
    let independent = [FilterChoice::Bloom(how), FilterChoice::Elastic(how)];
    let filters = FilterChoice::all().filter(|filter| !independent.contains(filter));
    for filter in filters {
        for with_tombstones in [false, true] {
            let dir = tempfile::tempdir().expect("a directory");
            let db = filled(dir.path(), filter, with_tombstones);
            let in_tables: Vec<_> = (0..280).map(|i| key(i, i % (RUNS - 1))).collect();
            let in_memory: Vec<_> = (0..280).map(|i| key(i, RUNS - 1)).collect();
            let absent: Vec<_> = (0..280).map(|i| key(i, 99)).collect();
            let deleted: Vec<_> = (0..RUNS).map(|run| key(290, run)).collect();
            for (keys, what) in
                [(&in_tables, "table"), (&in_memory, "memory"), (&absent, "nowhere"), (&deleted, "deleted")]
            {
                // The first get of a thread creates its counters, and the first access to a block
                // verifies its checksum.
                keys.iter().for_each(|key| drop(db.get(key).expect("a get")));
                for key in keys {
                    let found = allocations(|| db.get(key).expect("a get"));
                    assert_eq!(found, 0, "get of {key} ({what}), {filter:?}, tombstones {with_tombstones}");
                    let found = allocations(|| db.contains_key(key).expect("a get"));
                    assert_eq!(
                        found, 0,
                        "contains of {key} ({what}), {filter:?}, tombstones {with_tombstones}"
                    );
                }
            }
            assert!(in_tables.iter().chain(&in_memory).all(|key| db.contains_key(key).expect("a get")));
            assert!(!absent.iter().any(|key| db.contains_key(key).expect("a get")));
        }
    }
}
