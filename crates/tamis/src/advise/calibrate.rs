//! Unit costs, measured on this machine by the engine's own paths.
//!
//! Small databases in memory, of eight runs each, one for every kind of filter, are asked as a program would ask them. What a
//! question costs by itself is what is left when the fixed part and the runs searched in vain (by the engine's counters) are
//! taken away. So T_P is what a filter costs *here*, with finding its table, dispatch and prefetching, not what it costs in a
//! loop of its own. What does not fit a small database is measured apart: latencies of memory by size, and the device, by
//! reads of a file.
//!
//! Every cost is the median of passes that are taken by turns where two are compared; what noise makes negative is 0.

use std::collections::HashMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tamis_filter::Digest;

use super::apply::{choice_of, read_path_of};
use super::filters;
use super::{Machine, ProbeCost, ReadPath, Selector};
use crate::db::Db;
use crate::error::{Error, StorageError};
use crate::io::{Access, DirectFs, DiskFs, FileSystem, MemFs, Usage};
use crate::options::{Compression, FilterChoice, Options};

/// How thoroughly to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Effort {
    /// Some tens of milliseconds: for opening a database. Costs may be off by a third.
    Quick,
    /// One to two seconds.
    #[default]
    Full,
}

/// What to measure for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Setup {
    /// Bytes of keys.
    pub key_bytes: usize,
    /// Bytes of values.
    pub value_bytes: usize,
    /// How thoroughly.
    pub effort: Effort,
    /// Where the database is or will be: what is read for T_D is a file that is made there and removed again. Without one
    /// the data is taken to stay in memory, and the device to cost nothing.
    pub directory: Option<PathBuf>,
    /// Read mode, file system and block size of the database; nothing else of them counts.
    pub options: Options,
}

impl Setup {
    /// For keys and values of these lengths, in memory, thoroughly.
    pub fn new(key_bytes: usize, value_bytes: usize) -> Setup {
        Setup { key_bytes, value_bytes, effort: Effort::Full, directory: None, options: Options::default() }
    }

    /// With another effort.
    pub fn effort(mut self, effort: Effort) -> Setup {
        self.effort = effort;
        self
    }

    /// For a database in `directory` with these options.
    pub fn database(mut self, directory: impl Into<PathBuf>, options: &Options) -> Setup {
        self.directory = Some(directory.into());
        self.options = options.clone();
        self
    }

    fn is_quick(&self) -> bool {
        self.effort == Effort::Quick
    }
}

/// The unit costs of a machine.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Calibration {
    /// The costs. They may be changed, to ask what another device would be worth.
    pub machine: Machine,
    /// How thoroughly they were measured.
    pub effort: Effort,
    /// For keys of so many bytes.
    pub key_bytes: usize,
    /// And values of so many.
    pub value_bytes: usize,
    /// Nanoseconds that measuring took.
    pub took_ns: u64,
}

/// Runs of the databases that are asked.
pub(super) const RUNS: usize = 8;
/// Entries of a scan.
const SCAN: usize = 50;

impl Calibration {
    /// Measures. Nothing stays of it: what it makes in [`Setup::directory`] is removed, also if it fails.
    ///
    /// # Errors
    /// Those of the file system, and of databases in memory.
    pub fn measure(setup: &Setup) -> Result<Calibration, Error> {
        let started = Instant::now();
        let mut machine = Machine::default();
        let shape = Sizes::of(setup);
        measure_keys(&mut machine, setup, &shape);
        measure_reads(&mut machine, setup, &shape)?;
        measure_filters(&mut machine, setup, &shape)?;
        measure_writes(&mut machine, setup, &shape)?;
        measure_memory(&mut machine, setup);
        measure_device(&mut machine, setup)?;
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        // A thread that merges takes the core of one that asks as often as no other is free.
        machine.background_share = 1.0 / cores as f64;
        machine.page_cache_bytes = half_of_memory();
        Ok(Calibration {
            machine,
            effort: setup.effort,
            key_bytes: setup.key_bytes,
            value_bytes: setup.value_bytes,
            took_ns: started.elapsed().as_nanos() as u64,
        })
    }
}

/// How much is asked.
pub(super) struct Sizes {
    /// Keys of one run.
    pub(super) keys: usize,
    /// Operations of one pass.
    pub(super) ops: usize,
    /// Passes.
    pub(super) passes: usize,
}

impl Sizes {
    fn of(setup: &Setup) -> Sizes {
        match setup.effort {
            Effort::Quick => Sizes { keys: 96, ops: 128, passes: 3 },
            Effort::Full => Sizes { keys: 2048, ops: 1024, passes: 7 },
        }
    }
}

/// Key `i` of set `set`: spread over the whole key space, of the length that is asked for, at least eight.
pub(super) fn key(setup: &Setup, set: u64, i: usize) -> Vec<u8> {
    let spread = Digest::from_u64(i as u64).remix(set + 1);
    // The greatest numbers stay free: keys behind all others.
    let mut key = (spread >> 1).to_be_bytes().to_vec();
    key.resize(setup.key_bytes.max(8), 0x2e);
    key
}

/// The median of a pass's nanoseconds for each of `count` things.
pub(super) fn median_ns(passes: usize, count: usize, mut pass: impl FnMut(usize)) -> f64 {
    let mut times: Vec<f64> = (0..passes.max(1))
        .map(|at| {
            let started = Instant::now();
            pass(at);
            started.elapsed().as_nanos() as f64 / count.max(1) as f64
        })
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A database in memory whose compactions wait.
fn in_memory(setup: &Setup, filter: FilterChoice, bits: f64) -> Options {
    let mut options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
    options.background_threads = 1;
    options.sub_jobs = 1;
    options.cache_bytes = 0;
    options.keyspace.auto_compaction = false;
    options.keyspace.read_compaction = false;
    options.keyspace.memtable_bytes = 64 << 20;
    options.keyspace.block_bytes = setup.options.keyspace.block_bytes;
    options.keyspace.compression = Compression::None.into();
    options.keyspace.filter = filter.into();
    options.keyspace.bits_per_key = bits;
    options
}

/// Eight runs of the same key space.
fn filled(setup: &Setup, options: Options, sizes: &Sizes) -> Result<Db, Error> {
    let db = Db::open("/calibration", options)?;
    let value = vec![0x61; setup.value_bytes];
    for run in 0..RUNS {
        for i in 0..sizes.keys {
            db.put(key(setup, run as u64, i), &value)?;
        }
        db.flush()?;
    }
    db.settle_filters()?;
    Ok(db)
}

/// Keys that no set has.
fn absent(setup: &Setup, sizes: &Sizes) -> Vec<Vec<u8>> {
    (0..sizes.ops * sizes.passes).map(|i| key(setup, 1 << 32, i)).collect()
}

fn measure_keys(machine: &mut Machine, setup: &Setup, sizes: &Sizes) {
    let keys = absent(setup, sizes);
    machine.digest_ns = median_ns(sizes.passes, sizes.ops, |pass| {
        let sum = keys[pass * sizes.ops..][..sizes.ops]
            .iter()
            .fold(0u64, |sum, key| sum ^ Digest::of(black_box(key)).remix(0));
        black_box(sum);
    });
}

/// Gets of keys, a pass at a time.
fn gets(db: &Db, keys: &[Vec<u8>], sizes: &Sizes) -> Result<f64, Error> {
    let mut failed = None;
    let ops = sizes.ops.min(keys.len());
    let ns = median_ns(sizes.passes, ops, |pass| {
        let start = (pass * ops) % (keys.len() + 1 - ops);
        for key in &keys[start..start + ops] {
            match db.get(key) {
                Ok(value) => drop(black_box(value)),
                Err(error) => failed = Some(error),
            }
        }
    });
    failed.map_or(Ok(ns), |error| Err(error.into()))
}

/// Iterators from keys on, each for so many entries; with `width` up to an end so far behind.
fn iterations(
    db: &Db,
    keys: &[Vec<u8>],
    sizes: &Sizes,
    entries: usize,
    width: Option<u64>,
) -> Result<f64, Error> {
    let mut failed = None;
    let ops = (sizes.ops / 4).max(16).min(keys.len());
    let ns = median_ns(sizes.passes, ops, |pass| {
        let start = (pass * ops) % (keys.len() + 1 - ops);
        for key in &keys[start..start + ops] {
            let items = match width {
                None => db.range(&key[..]..),
                Some(width) => {
                    let mut end = key.clone();
                    let at = u64::from_be_bytes(key[..8].try_into().unwrap_or_default());
                    end[..8].copy_from_slice(&at.saturating_add(width).to_be_bytes());
                    db.range(&key[..]..&end[..])
                }
            };
            for item in items.take(entries) {
                match item {
                    Ok(item) => drop(black_box(item)),
                    Err(error) => failed = Some(error),
                }
            }
        }
    });
    failed.map_or(Ok(ns), |error| Err(error.into()))
}

/// Gets, searches, cursors, steps: by databases without filters.
fn measure_reads(machine: &mut Machine, setup: &Setup, sizes: &Sizes) -> Result<(), Error> {
    let db = filled(setup, in_memory(setup, FilterChoice::None, 10.0), sizes)?;
    let absent = absent(setup, sizes);
    // Behind all keys: no run covers them.
    let behind: Vec<Vec<u8>> = (0..sizes.ops)
        .map(|i| {
            let mut key = key(setup, 0, i);
            key[0] |= 0x80;
            key
        })
        .collect();
    gets(&db, &absent, sizes)?;
    machine.get_ns = gets(&db, &behind, sizes)?;
    machine.iterator_ns = iterations(&db, &behind, sizes, 1, Some(64))?;
    machine.cursor_ns =
        ((iterations(&db, &absent, sizes, 1, Some(64))? - machine.iterator_ns) / RUNS as f64).max(0.0);
    let one = iterations(&db, &absent, sizes, 1, None)?;
    let step_of_all = (iterations(&db, &absent, sizes, SCAN, None)? - one) / (SCAN - 1) as f64;
    db.compact()?;
    let present: Vec<Vec<u8>> =
        (0..sizes.ops * sizes.passes).map(|i| key(setup, (i % RUNS) as u64, (i * 37) % sizes.keys)).collect();
    gets(&db, &present, sizes)?;
    machine.search_ns = (gets(&db, &present, sizes)? - machine.get_ns).max(0.0);
    let one = iterations(&db, &absent, sizes, 1, None)?;
    let step_of_one = (iterations(&db, &absent, sizes, SCAN, None)? - one) / (SCAN - 1) as f64;
    machine.next_ns = step_of_one.max(0.0);
    machine.merge_step_ns = ((step_of_all - step_of_one) / (RUNS as f64).log2()).max(0.0);
    machine.measured_bytes =
        db.stats().keyspaces.iter().map(|keyspace| keyspace.table_bytes).sum::<u64>() as f64;
    db.close()?;
    measure_unpacking(machine, setup, sizes, &present)
}

/// What a get of a compressed block takes longer where no cache has it.
fn measure_unpacking(
    machine: &mut Machine,
    setup: &Setup,
    sizes: &Sizes,
    present: &[Vec<u8>],
) -> Result<(), Error> {
    let mut options = in_memory(setup, FilterChoice::None, 10.0);
    options.keyspace.compression = Compression::Lz4.into();
    let db = filled(setup, options, sizes)?;
    db.compact()?;
    gets(&db, present, sizes)?;
    machine.unpack_ns = (gets(&db, present, sizes)? - machine.get_ns - machine.search_ns).max(0.0);
    Ok(db.close()?)
}

/// T_P of every selector, and what building it costs.
fn measure_filters(machine: &mut Machine, setup: &Setup, sizes: &Sizes) -> Result<(), Error> {
    let absent = absent(setup, sizes);
    let mut late = Vec::new();
    let building = filters::building(setup, sizes);
    for selector in Selector::ALL {
        let Some(choice) = choice_of(selector).filter(|_| selector != Selector::None) else { continue };
        let mut options = in_memory(setup, choice, 14.0);
        // All units of elastic filters in memory would be more than anybody has: two of them, eight bits.
        if selector == Selector::Elastic {
            options.keyspace.filter_units = 2;
        }
        let db = filled(setup, options, sizes)?;
        let mut cost = asked(&db, sizes, machine, selector, &absent)?;
        if selector.keeps_order() && !selector.is_global() {
            late.push(opened_late(&db, sizes, machine, &cost, &absent)?);
        }
        db.close()?;
        let (build_ns, copy_ns) = building.get(&selector).copied().unwrap_or_default();
        (cost.build_ns, cost.copy_ns) = (build_ns, copy_ns);
        machine.probes.push((selector, cost));
    }
    late.sort_unstable_by(f64::total_cmp);
    machine.late_open_ns = late.get(late.len() / 2).copied().unwrap_or_default().max(0.0);
    Ok(())
}

/// What questions to the filters of one database cost, without what runs cost that were searched in vain.
fn asked(
    db: &Db,
    sizes: &Sizes,
    machine: &mut Machine,
    selector: Selector,
    absent: &[Vec<u8>],
) -> Result<ProbeCost, Error> {
    gets(db, absent, sizes)?;
    let before = db.stats().read;
    let get_ns = gets(db, absent, sizes)?;
    let read = db.stats().read - before;
    let searched = read.runs_searched as f64 / read.gets.max(1) as f64;
    let left = (get_ns - machine.get_ns - searched * machine.search_ns).max(0.0);
    let before = db.stats().read;
    let range_ns = iterations(db, absent, sizes, 1, Some(16))?;
    let ranges = db.stats().read - before;
    let opened = ranges.seeks as f64 / ranges.scans.max(1) as f64;
    let probes = ranges.range_probes as f64 / ranges.scans.max(1) as f64;
    let range_left = (range_ns - machine.iterator_ns - opened * machine.cursor_ns).max(0.0);
    let mut cost = ProbeCost::default();
    if selector.is_global() {
        // In one run the same question is asked about one run only.
        db.compact()?;
        db.settle_filters()?;
        gets(db, absent, sizes)?;
        let before = db.stats().read;
        let of_one = gets(db, absent, sizes)?;
        let read = db.stats().read - before;
        let searched = read.runs_searched as f64 / read.gets.max(1) as f64;
        let of_one = (of_one - machine.get_ns - searched * machine.search_ns).max(0.0);
        let named = ((left - of_one) / (RUNS - 1) as f64).max(0.0);
        // Four filters tell; the least of them has least of everything else in it.
        machine.named_run_ns = match machine.named_run_ns {
            0.0 => named,
            known => known.min(named),
        };
        cost.point_ns = of_one;
    } else {
        cost.point_ns = left * read.gets.max(1) as f64 / (read.filter_probes.max(1) as f64);
    }
    cost.range_ns = if probes > 0.0 { range_left / probes } else { cost.point_ns };
    Ok(cost)
}

/// What a run costs more that is opened while a scan goes on.
fn opened_late(
    db: &Db,
    sizes: &Sizes,
    machine: &Machine,
    cost: &ProbeCost,
    absent: &[Vec<u8>],
) -> Result<f64, Error> {
    let before = db.stats().read;
    let ns = iterations(db, absent, sizes, SCAN, None)?;
    let read = db.stats().read - before;
    let scans = read.scans.max(1) as f64;
    let (opened, probes) = (read.seeks as f64 / scans, read.range_probes as f64 / scans);
    let steps = SCAN as f64 * (machine.next_ns + machine.merge_step_ns * (RUNS as f64).log2());
    let left = ns - machine.iterator_ns - probes * cost.range_ns - opened * machine.cursor_ns - steps;
    Ok(left / (opened - 1.0).max(1.0))
}

/// Puts, and what flushes and merges take for an entry and a byte.
fn measure_writes(machine: &mut Machine, setup: &Setup, sizes: &Sizes) -> Result<(), Error> {
    let entries = sizes.keys * RUNS;
    let mut merged = Vec::new();
    for (at, value_bytes) in [setup.value_bytes, setup.value_bytes + 512].into_iter().enumerate() {
        let db = Db::open("/calibration", in_memory(setup, FilterChoice::None, 10.0))?;
        let value = vec![0x61; value_bytes];
        let mut puts = Vec::new();
        for run in 0..RUNS {
            let keys: Vec<Vec<u8>> = (0..sizes.keys).map(|i| key(setup, run as u64, i)).collect();
            let started = Instant::now();
            for key in &keys {
                db.put(key, &value)?;
            }
            puts.push(started.elapsed().as_nanos() as f64 / sizes.keys as f64);
            db.flush()?;
        }
        puts.sort_unstable_by(f64::total_cmp);
        if at == 0 {
            machine.put_ns = puts[puts.len() / 2];
        }
        let started = Instant::now();
        db.compact()?;
        merged.push(started.elapsed().as_nanos() as f64 / entries as f64);
        db.close()?;
    }
    machine.merge_byte_ns = ((merged[1] - merged[0]) / 512.0).max(0.0);
    let bytes = (setup.key_bytes + setup.value_bytes + 8) as f64;
    machine.merge_entry_ns = (merged[0] - bytes * machine.merge_byte_ns).max(0.0);
    Ok(())
}

/// Latencies of memory: a chain of accesses, each of which says where the next one is.
fn measure_memory(machine: &mut Machine, setup: &Setup) {
    let largest: usize = if setup.is_quick() { 8 << 20 } else { 128 << 20 };
    let mut words = vec![0u64; largest / 8];
    // Every line has some content of its own, so that no two pages are one.
    for (at, line) in words.chunks_mut(8).enumerate() {
        line[0] = Digest::from_u64(at as u64).remix(7);
    }
    let steps = if setup.is_quick() { 2_000 } else { 20_000 };
    let mut bytes = 256usize << 10;
    while bytes <= largest {
        let lines = (bytes / 64) as u64;
        let ns = median_ns(3, steps, |pass| {
            let mut at = pass as u64;
            for _ in 0..steps {
                let line = (u128::from(at.wrapping_mul(0x9e37_79b9_7f4a_7c15)) * u128::from(lines)) >> 64;
                at = at.wrapping_add(words[line as usize * 8]);
            }
            black_box(at);
        });
        // Larger sets never answer sooner.
        let ns = ns.max(machine.latency.last().map_or(0.0, |(_, ns)| *ns));
        machine.latency.push((bytes as f64, ns));
        bytes *= 4;
    }
}

/// A file that is removed when it is no longer needed.
struct Scratch<'f> {
    fs: &'f dyn FileSystem,
    path: PathBuf,
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // What cannot be removed now is found by whoever looks at the directory; there is nobody to tell.
        let _ = self.fs.remove(&self.path);
    }
}

/// T_D: random blocks of a file, past the page cache and out of it.
fn measure_device(machine: &mut Machine, setup: &Setup) -> Result<(), Error> {
    let Some(directory) = &setup.directory else { return Ok(()) };
    let (plain, direct): (Arc<dyn FileSystem>, Arc<dyn FileSystem>) = match &setup.options.file_system {
        Some(fs) => (fs.clone(), fs.clone()),
        None => (Arc::new(DiskFs::new()), Arc::new(DirectFs::new())),
    };
    let failed = |path: &Path, e: &std::io::Error| Error::from(StorageError::io("measure with", path, e));
    plain.create_dir_all(directory).map_err(|e| failed(directory, &e))?;
    let name = format!("calibration-{}.tmp", std::process::id());
    let scratch = Scratch { fs: &*plain, path: directory.join(name) };
    let path = &scratch.path;
    let blocks: usize = if setup.is_quick() { 256 } else { 4096 };
    const BLOCK: usize = 4096;
    let reads = if setup.is_quick() { 24 } else { 256 };
    let write = || -> std::io::Result<()> {
        let mut file = plain.create(path, Usage::Table)?;
        let mut piece = vec![0u8; 256 * BLOCK];
        for at in 0..blocks / 256 {
            for (i, word) in piece.chunks_exact_mut(8).enumerate() {
                word.copy_from_slice(
                    &Digest::from_u64((at * piece_words() + i) as u64).remix(3).to_le_bytes(),
                );
            }
            file.append(&piece)?;
        }
        file.sync()
    };
    write().map_err(|e| failed(path, &e))?;
    let time = |fs: &dyn FileSystem| -> std::io::Result<f64> {
        let file = fs.open(path, Access::Random)?;
        let mut buffer = vec![0u8; BLOCK];
        let mut error = None;
        let ns = median_ns(3, reads / 3, |pass| {
            for i in 0..reads / 3 {
                let at = Digest::from_u64((pass * reads + i) as u64).remix(11) as usize % blocks;
                if let Err(e) = file.read_exact_at(&mut buffer, (at * BLOCK) as u64) {
                    error = Some(e);
                }
            }
        });
        black_box(&buffer);
        error.map_or(Ok(ns), Err)
    };
    machine.page_ns = time(&*plain).map_err(|e| failed(path, &e))?;
    // Where there is no direct I/O the device is a memory.
    machine.device_ns = time(&*direct).unwrap_or(machine.page_ns);
    if read_path_of(&setup.options) == ReadPath::Mapped {
        // A fault that finds its page costs about what the copy does, and only once.
        machine.page_ns = 0.0;
    }
    Ok(())
}

/// Words of eight bytes in a piece of the file.
fn piece_words() -> usize {
    256 * 4096 / 8
}

/// Half of the machine's memory: what the page cache can have of it.
fn half_of_memory() -> f64 {
    match crate::io::memory_bytes() {
        0 => f64::MAX,
        bytes => bytes as f64 / 2.0,
    }
}

/// Costs of building, by selector: ns a key, and of global filters ns for each entry copied at a flush.
pub(super) type Building = HashMap<Selector, (f64, f64)>;
