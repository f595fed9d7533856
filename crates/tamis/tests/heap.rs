//! The report of a database's memory explains its heap, as counted in the allocator. The test is
//! alone in its program, because the memory of others would count too.

#![allow(missing_docs, clippy::print_stderr, reason = "tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tamis::options::{Compression, CompressionPerLevel, FilterChoice, ReadMode};
use tamis::{KeyspaceOptions, Options};

static HEAP: AtomicUsize = AtomicUsize::new(0);

/// The system allocator, with a count of the bytes that are allocated.
struct Counting;

// SAFETY: every call is passed on unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HEAP.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's promises are those that `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HEAP.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn key(i: u32) -> String {
    format!("{:08x}", i.wrapping_mul(0x9E37_79B9))
}

/// Memtables below 16 MiB are on the heap, blocks go to the cache, filters are read into memory,
/// and those of the two keyspaces are a table's and a tree's.
#[test]
fn the_report_explains_nine_tenths_of_the_heap() {
    const KEYS: u32 = 150_000;
    let dir = tempfile::tempdir().unwrap();
    let before = HEAP.load(Relaxed);
    let keyspace = KeyspaceOptions {
        memtable_bytes: 8 << 20,
        compression: CompressionPerLevel::uniform(Compression::Lz4),
        ..KeyspaceOptions::default()
    };
    let options = Options {
        cache_bytes: 8 << 20,
        read_mode: ReadMode::Buffered,
        keyspace: keyspace.clone(),
        ..Options::default()
    };
    let db = options.open(dir.path()).unwrap();
    let filtered = KeyspaceOptions { filter: FilterChoice::Grf.into(), ..keyspace };
    let second = db.create_keyspace("second", filtered).unwrap();
    for i in 0..KEYS {
        db.put(key(i), [7; 100]).unwrap();
        second.put(key(i), b"small").unwrap();
    }
    db.flush().unwrap();
    db.wait_for_compaction().unwrap();
    for i in 0..KEYS / 4 {
        db.put(key(i), [8; 100]).unwrap();
    }
    for i in 0..KEYS {
        assert!(db.get(key(i)).unwrap().is_some());
    }
    let report = db.memory_report();
    let heap = (HEAP.load(Relaxed) - before) as f64;
    let explained = report.total() as f64;
    eprintln!("{explained} of {heap} bytes: {:.1} %: {report:?}", explained / heap * 100.0);
    assert!(explained >= heap * 0.9 && explained <= heap * 1.1, "{explained} of {heap} bytes: {report:?}");
    assert!(report.memtables > 4 << 20 && report.block_cache > 4 << 20);
    assert!(
        report.filters > 100_000
            && report.global_filters > 100_000
            && report.indexes > 0
            && report.metadata > 0
    );
}
