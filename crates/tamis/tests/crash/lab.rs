//! The test bench: options that make everything happen often, seeds, and detection of panics in
//! background threads.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Once};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tamis::options::{BloomHashing, CompactionChoice, FilterChoice, MergeGranularity};
use tamis::{Db, KeyspaceOptions, OpenError, Options};
use tamis_doctor::SalvageReport;
use tamis_testkit::{CrashMode, FaultyFs};

pub(crate) const DIR: &str = "/db";

pub(crate) const MODES: [CrashMode; 3] = [CrashMode::KeepAll, CrashMode::DropUnsynced, CrashMode::Random];

/// Multiplier for the default number of cases.
pub(crate) fn scale() -> usize {
    std::env::var("TAMIS_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// The tree shapes that the suite covers.
pub(crate) const SHAPES: [(CompactionChoice, MergeGranularity, bool); 12] = {
    use CompactionChoice::*;
    use MergeGranularity::*;
    [
        (Leveling, Auto, false),
        (Tiering, Auto, false),
        (LazyLeveling, Partitioned, false),
        (Fragmented, Auto, false),
        (Leveling, Full, false),
        (Leveling, Partitioned, false),
        (Hybrid(2), Partial, false),
        (LazyLeveling, Full, true),
        (Fifo, Auto, false),
        (TimeWindow, Auto, false),
        (Tiering, Auto, true),
        (Hybrid(2), Partitioned, true),
    ]
};

/// The filters that the suite covers besides the default: a global one, which is in files and in
/// the key lists of tables, and is built while everything else continues; one that comes and goes;
/// and an elastic one, whose units are loaded meanwhile.
pub(crate) const FILTERS: [FilterChoice; 3] =
    [FilterChoice::Grf, FilterChoice::Auto, FilterChoice::Elastic(BloomHashing::Rotation)];

std::thread_local! {
    static SHAPE: Cell<usize> = const { Cell::new(0) };
    static FILTER: Cell<FilterChoice> = const { Cell::new(FilterChoice::BlockedBloom) };
}

/// Sets the filter of whatever this thread opens and creates from now on.
pub(crate) fn set_filter(filter: FilterChoice) {
    FILTER.set(filter);
}

/// Sets the shape of whatever this thread opens and creates from now on to this one of [`SHAPES`]
/// (modulo their number).
pub(crate) fn set_shape(shape: usize) {
    SHAPE.set(shape % SHAPES.len());
}

/// Tiny memtables, tables and levels: a few dozen writes flush, roll logs and compact.
pub(crate) fn tiny_keyspace() -> KeyspaceOptions {
    let (compaction, merge, deterministic) = SHAPES[SHAPE.get()];
    KeyspaceOptions {
        compaction,
        merge,
        deterministic,
        filter: FILTER.get().into(),
        filter_unit_bytes: 128,
        memtable_bytes: 4 << 10,
        table_bytes: 4 << 10,
        block_bytes: 256,
        // Half of the values.
        blob_threshold: 350,
        // With half of the shapes, logs that are two thirds large values become blob files.
        blob_garbage: if SHAPE.get().is_multiple_of(2) { 0.8 } else { 0.3 },
        blob_file_bytes: 4 << 10,
        level0_runs: 2,
        size_ratio: 2.into(),
        levels: 4,
        // With `filter = auto`, the filter changes at almost every number of runs.
        workload: (FILTER.get() == FilterChoice::Auto)
            .then(|| "empty-range 1, empty-get 8".parse().expect("a workload")),
        ..KeyspaceOptions::default()
    }
}

pub(crate) fn tiny(fs: &FaultyFs) -> Options {
    Options {
        background_threads: 1,
        cache_bytes: 64 << 10,
        // Not enough for all units.
        filter_budget_bytes: 2000,
        heat_sampling: Some(1),
        max_log_bytes: 16 << 10,
        keyspace: tiny_keyspace(),
        file_system: Some(Arc::new(fs.clone())),
        ..Options::default()
    }
}

pub(crate) fn open(fs: &FaultyFs) -> Result<Db, OpenError> {
    tiny(fs).open(DIR)
}

/// Salvages a database and opens it. Returns what was found, too.
pub(crate) fn open_salvaged(options: Options) -> Result<(Db, SalvageReport), OpenError> {
    let report = tamis_doctor::salvage(DIR, options.clone(), false)?;
    Ok((options.open(DIR)?, report))
}

/// Opens a database that must exist.
pub(crate) fn open_existing(fs: &FaultyFs, dir: impl AsRef<Path>) -> Result<Db, OpenError> {
    Options { create_if_missing: false, ..tiny(fs) }.open(dir)
}

/// Checks that every table and blob file belongs to the tree.
pub(crate) fn assert_no_leftovers(fs: &FaultyFs, db: &Db, context: &str) {
    let count = |extension: &str| {
        fs.files().iter().filter(|(path, _)| path.extension().is_some_and(|e| e == extension)).count()
    };
    let stats = db.stats();
    let tables: usize =
        stats.keyspaces.iter().flat_map(|k| &k.levels).flat_map(|l| &l.runs).map(|r| r.tables).sum();
    assert_eq!(count("tam"), tables, "{context}");
    let blobs: usize = stats.keyspaces.iter().map(|keyspace| keyspace.blob_files).sum();
    assert_eq!(count("blb"), blobs, "{context}");
}

/// A runner whose random numbers depend on `seed` alone.
pub(crate) fn runner(seed: u64, config: Config) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { failure_persistence: None, ..config };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// Returns one value of a strategy.
pub(crate) fn sample<S: Strategy>(strategy: &S, seed: u64) -> S::Value {
    strategy.new_tree(&mut runner(seed, Config::default())).expect("a value").current()
}

/// More memory in one allocation than anything here may need, whatever a damaged length says.
const HUGE_BYTES: usize = 64 << 20;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

/// The system allocator, which remembers the largest allocation.
struct Watched;

// SAFETY: every call is passed on unchanged to the system allocator, which upholds the contract.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Relaxed);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Relaxed);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        LARGEST.fetch_max(new_size, Relaxed);
        // SAFETY: the caller's promises about `ptr`, `layout` and `new_size` are passed on.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises about `ptr` and `layout` are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// Fails if anything requested a huge allocation.
pub(crate) fn assert_no_huge_allocation() {
    let largest = LARGEST.load(Relaxed);
    assert!(largest < HUGE_BYTES, "an allocation of {largest} bytes was requested");
}

static BACKGROUND_PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// From the first call on, records panics in the engine's own threads.
pub(crate) fn listen_for_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let thread = std::thread::current();
            if let Some(name) = thread.name().filter(|name| name.starts_with("tamis-")) {
                BACKGROUND_PANICS.lock().unwrap_or_else(|e| e.into_inner()).push(format!("{name}: {info}"));
            }
            usual(info);
        }));
    });
}

/// Fails if a background thread of any database panicked.
pub(crate) fn assert_no_background_panics(context: &dyn std::fmt::Display) {
    let panics = BACKGROUND_PANICS.lock().unwrap_or_else(|e| e.into_inner()).clone();
    assert!(panics.is_empty(), "background threads panicked: {panics:?}\n{context}");
}
