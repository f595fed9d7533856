//! The costs of gets, iterators, filters and writes, measured on small in-memory databases.
//!
//! Each kind of filter has a database of eight runs. The same reads alternate between keys behind
//! all others, which no run covers, and absent keys among them: the difference is the cost of eight
//! runs. Runs searched in vain are subtracted by the engine's counters.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::apply::choice_of;
use super::calibrate::{RUNS, Setup, Sizes, key, quiet_ns};
use super::{Machine, ProbeCost, Selector, filters};
use tamis::Db;
use tamis::Options;
use tamis::io::MemFs;
use tamis::options::{Compression, FilterChoice};
use tamis::stats::ReadCost;
use tamis::{Error, OpenError};

/// How much larger the databases for filters of the whole tree are, and the limit of their size in
/// bytes.
const GLOBAL_SIZE: usize = 4;
const GLOBAL_BYTES: usize = 16 << 20;
/// Bytes flushed and merged repeatedly beside gets.
const MERGED_BYTES: usize = 2 << 20;
/// How long gets are timed beside merges.
const ROUND: Duration = Duration::from_millis(10);
/// Merges are never free: all cores share memory and caches.
const LEAST_SHARE: f64 = 0.05;
/// Entries of a scan.
const SCAN: usize = 50;
/// Width of the empty ranges that are read.
const WIDTH: u64 = 16;

impl Filling {
    /// Returns the cost of flushing `keys` keys, including what is done in the background.
    fn flush_ns(&self, keys: usize) -> f64 {
        let late = self.all - self.puts - self.flushes.iter().sum::<f64>() / RUNS as f64;
        (middle(&self.flushes[1..]) + late.max(0.0)) * keys as f64
    }
}

/// The measurements of one calibration.
pub(super) struct Bench<'a> {
    setup: &'a Setup,
    sizes: Sizes,
    /// Keys that no run has, all over the key space.
    absent: Keys,
    /// More such keys, for warming up: a processor learns the branches of some thousand keys by
    /// heart.
    others: Keys,
    /// Keys behind all stored ones.
    behind: Keys,
    /// Keys that the databases have.
    present: Keys,
    /// Flushes without a filter, of few keys and of many, in ns.
    plain: [f64; 2],
    /// Finding out which of eight runs cover a key, in ns.
    cover_ns: f64,
    /// The same for an iterator whose range is empty in all of them.
    pass_ns: f64,
    late: Vec<f64>,
    /// One run without a filter: the fixed part is measured anew beside each filter of the whole
    /// tree, since the speed of a shared machine varies from one moment to the next.
    one_run: Option<Db>,
}

/// Keys of one length, contiguous: a caller has its key at hand, and fetching it is not part of a
/// get's cost.
struct Keys {
    bytes: Vec<u8>,
    each: usize,
}

impl Keys {
    fn of(keys: impl Iterator<Item = Vec<u8>>) -> Keys {
        let mut all = Keys { bytes: Vec::new(), each: 1 };
        for key in keys {
            all.each = key.len().max(1);
            all.bytes.extend(key);
        }
        all
    }

    /// Returns `count` keys, starting at the `first`.
    fn from(&self, first: usize, count: usize) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.each).skip(first).take(count)
    }
}

/// The time filling a database took, in ns per key.
struct Filling {
    /// Flushes, in order.
    flushes: Vec<f64>,
    /// Puts.
    puts: f64,
    /// Everything, until filters are complete.
    all: f64,
}

impl<'a> Bench<'a> {
    pub(super) fn new(setup: &'a Setup, sizes: Sizes) -> Bench<'a> {
        let count = sizes.ops * sizes.passes;
        let behind = |i| {
            let mut key = key(setup, 0, i);
            key[0] |= 0x80;
            key
        };
        Bench {
            setup,
            absent: Keys::of((0..count).map(|i| key(setup, 1 << 32, i))),
            others: Keys::of((0..count).map(|i| key(setup, 1 << 33, i))),
            behind: Keys::of((0..count).map(behind)),
            present: Keys::of((0..count).map(|i| key(setup, (i % RUNS) as u64, (i * 37) % sizes.keys))),
            sizes,
            plain: [0.0; 2],
            cover_ns: 0.0,
            pass_ns: 0.0,
            late: Vec::new(),
            one_run: None,
        }
    }

    /// Returns options for an in-memory database without automatic compactions.
    fn options(&self, filter: FilterChoice, bits: f64, keys: usize) -> Options {
        let mut options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
        options.operators = self.setup.options.operators.clone();
        options.background_threads = 1;
        options.cache_bytes = 0;
        options.keyspace.auto_compaction = false;
        // All runs are in level 0; a filter of the whole tree sizes its codes for the possible
        // number of runs.
        options.keyspace.level0_runs = RUNS;
        options.keyspace.read_compaction = false;
        // Room for one run and no more: memory for logs and memtables is prepared at once.
        let entry = self.setup.key_bytes.max(8) + self.setup.value_bytes + 128;
        options.keyspace.memtable_bytes = (2 * keys * (entry + 512) + (64 << 10)) as u64;
        options.keyspace.block_bytes = self.setup.options.keyspace.block_bytes;
        options.keyspace.compression = Compression::None.into();
        options.keyspace.filter = filter.into();
        options.keyspace.bits_per_key = bits;
        options
    }

    /// Returns the number of keys per run if eight runs have `bytes` bytes together.
    fn keys_in(&self, bytes: usize) -> usize {
        bytes / RUNS / (self.setup.key_bytes.max(8) + self.setup.value_bytes + 8)
    }

    /// Fills a database with eight runs over the same key space.
    fn filled(&self, options: Options, keys: usize) -> Result<(Db, Filling), Error> {
        let db = options.open("/calibration")?;
        let value = vec![0x61; self.setup.value_bytes];
        let mut flushes = Vec::new();
        let (begun, mut puts) = (Instant::now(), 0.0);
        for run in 0..RUNS {
            let started = Instant::now();
            for i in 0..keys {
                db.put(key(self.setup, run as u64, i), &value)?;
            }
            puts += started.elapsed().as_nanos() as f64 / (keys * RUNS) as f64;
            let started = Instant::now();
            db.flush()?;
            flushes.push(started.elapsed().as_nanos() as f64 / keys as f64);
        }
        db.wait_for_filters()?;
        let all = begun.elapsed().as_nanos() as f64 / (keys * RUNS) as f64;
        Ok((db, Filling { flushes, puts, all }))
    }

    /// Returns the nanoseconds per get.
    fn gets(&self, db: &Db, keys: &Keys) -> Result<f64, Error> {
        let mut failed = None;
        let ops = self.sizes.ops;
        let ns = quiet_ns(self.sizes.passes, ops, |pass| {
            for key in keys.from(pass * ops, ops) {
                match db.get(key) {
                    Ok(value) => drop(black_box(value)),
                    Err(error) => failed = Some(error),
                }
            }
        });
        failed.map_or(Ok(ns), |error| Err(error.into()))
    }

    /// Returns the nanoseconds per iterator that reads `entries` entries; with `width`, up to an
    /// end that far behind its start.
    fn iterations(&self, db: &Db, keys: &Keys, entries: usize, width: Option<u64>) -> Result<f64, Error> {
        let mut failed = None;
        let ops = (self.sizes.ops / entries.clamp(4, 16)).max(8);
        let ns = quiet_ns(self.sizes.passes, ops, |pass| {
            for key in keys.from(pass * self.sizes.ops, ops) {
                let items = match width {
                    None => db.range(key..),
                    Some(width) => {
                        let mut end = key.to_vec();
                        let at = u64::from_be_bytes(key[..8].try_into().unwrap_or_default());
                        end[..8].copy_from_slice(&at.saturating_add(width).to_be_bytes());
                        db.range(key..&end[..])
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

    /// Returns the cost of `work`, in nanoseconds and in counters.
    fn counted(&self, db: &Db, work: impl FnOnce() -> Result<f64, Error>) -> Result<(f64, ReadCost), Error> {
        let before = db.stats().read;
        let ns = work()?;
        Ok((ns, db.stats().read - before))
    }

    /// Measures gets, searches, cursors and steps on databases without filters.
    pub(super) fn reads(&mut self, machine: &mut Machine) -> Result<(), Error> {
        let (db, filling) =
            self.filled(self.options(FilterChoice::None, 10.0, self.sizes.keys), self.sizes.keys)?;
        self.plain[1] = filling.flush_ns(self.sizes.keys);
        self.gets(&db, &self.others)?;
        let of_all = self.gets(&db, &self.behind)?;
        let passed = self.iterations(&db, &self.behind, 1, Some(WIDTH))?;
        let opened = self.iterations(&db, &self.absent, 1, Some(WIDTH))?;
        let all = self.step(&db)?;
        let vain_ns = self.vain(&db)?;
        db.compact()?;
        machine.iterator_ns = self.iterations(&db, &self.behind, 1, Some(WIDTH))?;
        machine.cursor_ns = ((opened - machine.iterator_ns) / RUNS as f64).max(0.0);
        self.pass_ns = (passed - machine.iterator_ns).max(0.0);
        machine.get_ns = self.gets(&db, &self.behind)?;
        self.cover_ns = (of_all - machine.get_ns).max(0.0);
        machine.vain_ns = vain_ns + self.cover_ns / RUNS as f64;
        let one = self.step(&db)?;
        machine.next_ns = one;
        machine.merge_step_ns = ((all - one) / (RUNS as f64).log2()).max(0.0);
        machine.search_ns = self.search(&db, &self.present)?;
        machine.measured_bytes = table_bytes(&db);
        self.one_run = Some(db);
        // Values repeat one byte, so blocks are stored compressed.
        let mut options = self.options(FilterChoice::None, 10.0, self.sizes.keys);
        options.keyspace.compression = Compression::Lz4.into();
        let (db, _) = self.filled(options, self.sizes.keys)?;
        db.compact()?;
        machine.unpack_ns = (self.search(&db, &self.present)? - machine.search_ns).max(0.0);
        Ok(db.close()?)
    }

    /// Returns what searching one run adds to a get.
    fn search(&self, db: &Db, present: &Keys) -> Result<f64, Error> {
        self.gets(db, present)?;
        Ok((self.gets(db, present)? - self.gets(db, &self.behind)?).max(0.0))
    }

    /// Returns what searching one of eight runs in vain adds to a get.
    fn vain(&self, db: &Db) -> Result<f64, Error> {
        self.gets(db, &self.others)?;
        let searched = self.gets(db, &self.absent)? - self.gets(db, &self.behind)?;
        Ok((searched / RUNS as f64).max(0.0))
    }

    /// Returns the cost of one step of an iterator.
    fn step(&self, db: &Db) -> Result<f64, Error> {
        let one = self.iterations(db, &self.absent, 1, None)?;
        Ok(((self.iterations(db, &self.absent, SCAN, None)? - one) / (SCAN - 1) as f64).max(0.0))
    }

    /// Measures how many memory misses a search and a cursor wait for, on a database that exceeds
    /// the processor's nearer caches. Needs the latencies.
    pub(super) fn distance(&mut self, machine: &mut Machine) -> Result<(), Error> {
        let keys = self.keys_in(16 << 20);
        let (db, _) = self.filled(self.options(FilterChoice::None, 10.0, keys), keys)?;
        // Different keys in each pass, so that none is read twice.
        let count = self.sizes.ops * self.sizes.passes;
        let stride = (keys * RUNS / count).max(1);
        let present = (0..count).map(|i| key(self.setup, (i % RUNS) as u64, (i * stride / RUNS * 31) % keys));
        let present = Keys::of(present);
        // Resembles a database that has been read for a while: the caches hold what they can of it.
        let warm = |db: &Db| -> Result<(), Error> {
            for i in (0..keys).step_by(8) {
                for run in 0..RUNS as u64 {
                    drop(black_box(db.get(key(self.setup, run, i))?));
                }
            }
            Ok(())
        };
        warm(&db)?;
        self.iterations(&db, &self.absent, 1, Some(WIDTH))?;
        let opened = self.iterations(&db, &self.absent, 1, Some(WIDTH))?;
        let fixed = self.iterations(&db, &self.behind, 1, Some(WIDTH))?;
        let cursor_ns = (opened - fixed + self.pass_ns) / RUNS as f64;
        let vain_ns = self.vain(&db)? + self.cover_ns / RUNS as f64;
        db.compact()?;
        warm(&db)?;
        let search_ns = (self.gets(&db, &present)? - self.gets(&db, &self.behind)?).max(0.0);
        let bytes = table_bytes(&db);
        db.close()?;
        let further = machine.latency_ns(bytes) - machine.latency_ns(machine.measured_bytes);
        if further > 1.0 {
            machine.search_misses = ((search_ns - machine.search_ns) / further).clamp(0.0, 8.0);
            machine.vain_misses = ((vain_ns - machine.vain_ns) / further).clamp(0.0, 8.0);
            machine.cursor_misses = ((cursor_ns - machine.cursor_ns) / further).clamp(0.0, 8.0);
        }
        Ok(())
    }

    /// Measures T_P of every selector, and the cost of building it.
    pub(super) fn filters(&mut self, machine: &mut Machine) -> Result<(), Error> {
        let building = filters::building(self.setup, &self.sizes);
        for selector in Selector::ALL {
            let Some(choice) = choice_of(selector).filter(|_| selector != Selector::None) else { continue };
            let mut options = self.options(choice, 14.0, self.sizes.keys);
            if selector == Selector::Elastic {
                // All units in memory would be unrealistic: two of them, eight bits.
                options.keyspace.filter_units = 2;
            }
            let (mut db, filling) = match self.filled(options, self.sizes.keys) {
                // A filter that the program does not register is not available here either.
                Err(Error::Open(OpenError::Unregistered { .. })) => continue,
                filled => filled?,
            };
            if selector.is_global() && !self.setup.is_quick() {
                // One filter for all runs is larger than any single run's, which makes its probes
                // slower.
                db.close()?;
                let keys =
                    (GLOBAL_SIZE * self.sizes.keys).min(self.keys_in(GLOBAL_BYTES)).max(self.sizes.keys);
                db = self.filled(self.options(choice, 14.0, keys), keys)?.0;
            }
            let mut cost = self.asked(&db, machine, selector)?;
            db.close()?;
            cost.build_ns = building.get(&selector).copied().unwrap_or_default();
            if selector.is_global() {
                cost.copy_ns = filters::copying(self.setup, &self.sizes, selector);
                (cost.build_ns, cost.change_ns) = self.upkeep(choice, &cost, &filling)?;
            }
            machine.probes.push((selector, cost));
        }
        if let Some(db) = self.one_run.take() {
            db.close()?;
        }
        machine.late_open_ns = middle(&self.late).max(0.0);
        Ok(())
    }

    /// Returns the cost of filter probes in one database, without the cost of runs searched in
    /// vain.
    fn asked(&mut self, db: &Db, machine: &Machine, selector: Selector) -> Result<ProbeCost, Error> {
        self.gets(db, &self.others)?;
        let (ns, read) = self.counted(db, || self.gets(db, &self.absent))?;
        // A filter for the whole tree is probed for keys behind all others, too.
        let passing = match &self.one_run {
            Some(one_run) if selector.is_global() => one_run,
            _ => db,
        };
        let behind = self.gets(passing, &self.behind)?;
        let each = |count: u64, of: u64| count as f64 / of.max(1) as f64;
        let cover_ns = if selector.is_global() { 0.0 } else { self.cover_ns };
        let left = |ns: f64, behind: f64, read: &ReadCost| {
            (ns - behind + cover_ns - each(read.runs_searched, read.gets) * machine.vain_ns).max(0.0)
        };
        let point = left(ns, behind, &read);
        let (range_ns, ranges) = self.counted(db, || self.iterations(db, &self.absent, 1, Some(WIDTH)))?;
        let passed = self.iterations(passing, &self.behind, 1, Some(WIDTH))?;
        let fixed = if selector.is_global() { passed } else { passed - self.pass_ns };
        let opened = each(ranges.seeks, ranges.scans);
        let probes = each(ranges.range_probes, ranges.scans);
        let mut cost = ProbeCost::default();
        cost.point_ns = point / each(read.filter_probes, read.gets).max(1.0);
        cost.range_ns = match probes > 0.0 {
            true => (range_ns - fixed - opened * machine.cursor_ns).max(0.0) / probes.max(1.0),
            false => cost.point_ns,
        };
        if selector.keeps_order() {
            let asks = if selector.is_global() { 1.0 } else { RUNS as f64 };
            let (ns, read) = self.counted(db, || self.iterations(db, &self.absent, 1, None))?;
            let opened = each(read.seeks, read.scans);
            let step = machine.next_ns + machine.merge_step_ns * opened.max(1.0).log2();
            cost.seek_ns = ((ns - fixed - opened * machine.cursor_ns - step) / asks).max(0.0);
        }
        if selector.keeps_order() && !selector.is_global() {
            let (ns, read) = self.counted(db, || self.iterations(db, &self.absent, SCAN, None))?;
            let opened = each(read.seeks, read.scans);
            let steps = SCAN as f64 * (machine.next_ns + machine.merge_step_ns * (RUNS as f64).log2());
            let left = ns - fixed - RUNS as f64 * cost.seek_ns - opened * machine.cursor_ns - steps;
            self.late.push(left / (opened - 1.0).max(1.0));
        }
        if selector.is_global() {
            // In a single run the same probe concerns one run only.
            db.compact()?;
            db.wait_for_filters()?;
            self.gets(db, &self.others)?;
            let (ns, read) = self.counted(db, || self.gets(db, &self.absent))?;
            let of_one = left(ns, behind, &read);
            cost.run_ns = ((point - of_one) / (RUNS - 1) as f64).max(0.0);
            for asked in [&mut cost.point_ns, &mut cost.range_ns, &mut cost.seek_ns] {
                *asked = (*asked - RUNS as f64 * cost.run_ns).max(0.0);
            }
        }
        Ok(cost)
    }

    /// Returns the extra cost of a flush under a global filter, in the foreground or background,
    /// without copying: per key, and independent of keys, in ns. Measured by flushes of many keys,
    /// `filling`, and of few; `Quick` assumes that nothing depends on the keys.
    fn upkeep(
        &mut self,
        choice: FilterChoice,
        cost: &ProbeCost,
        filling: &Filling,
    ) -> Result<(f64, f64), Error> {
        let (few, many) = (self.sizes.keys / 4, self.sizes.keys);
        let copied = |keys: usize| cost.copy_ns * (keys * RUNS / 2) as f64;
        let of_many = (filling.flush_ns(many) - self.plain[1] - copied(many)).max(0.0);
        if self.setup.is_quick() {
            return Ok((0.0, of_many));
        }
        let flush_few = |choice| -> Result<f64, Error> {
            let (db, filling) = self.filled(self.options(choice, 14.0, few), few)?;
            db.close()?;
            Ok(filling.flush_ns(few))
        };
        let with = flush_few(choice)?;
        if self.plain[0] == 0.0 {
            self.plain[0] = flush_few(FilterChoice::None)?;
        }
        let of_few = (with - self.plain[0] - copied(few)).max(0.0);
        let each = ((of_many - of_few) / (many - few) as f64).max(0.0);
        Ok((each, (of_many - each * many as f64).max(0.0)))
    }

    /// Measures how much slower gets are while another thread flushes and merges without a pause:
    /// between 0, where that thread has its own core and the caches suffice for both, and 1, where
    /// the two take turns.
    pub(super) fn background(&self, machine: &mut Machine) -> Result<(), Error> {
        let (db, _) =
            self.filled(self.options(FilterChoice::None, 10.0, self.sizes.keys), self.sizes.keys)?;
        db.compact()?;
        let round = || -> Result<f64, Error> {
            let started = Instant::now();
            // Long enough for the scheduler to have moved a thread between cores.
            while started.elapsed() < ROUND / 4 {
                self.gets(&db, &self.present)?;
            }
            let (started, mut rounds) = (Instant::now(), 0.0);
            loop {
                self.gets(&db, &self.present)?;
                rounds += 1.0;
                if started.elapsed() >= ROUND {
                    return Ok(started.elapsed().as_nanos() as f64 / rounds);
                }
            }
        };
        /// Stops the other thread however this one's part ends.
        struct Stop<'s>(&'s AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                // Relaxed: the flag only says that nothing new should start.
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let keys = self.keys_in(MERGED_BYTES).clamp(16, self.sizes.keys);
        let mut slower = Vec::new();
        for _ in 0..5 {
            let alone = round()?;
            let stop = AtomicBool::new(false);
            let beside = std::thread::scope(|scope| {
                let work = scope.spawn(|| -> Result<(), Error> {
                    while !stop.load(Ordering::Relaxed) {
                        let (db, _) = self.filled(self.options(FilterChoice::None, 10.0, keys), keys)?;
                        db.compact()?;
                        db.close()?;
                    }
                    Ok(())
                });
                let stopping = Stop(&stop);
                let beside = round();
                drop(stopping);
                match work.join() {
                    Ok(done) => done.and(beside),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            })?;
            slower.push(beside / alone - 1.0);
        }
        machine.background_share = middle(&slower).clamp(LEAST_SHARE, 1.0);
        Ok(db.close()?)
    }

    /// Measures puts, and the cost of flushes and merges per entry and per byte.
    pub(super) fn writes(&self, machine: &mut Machine) -> Result<(), Error> {
        let entries = self.sizes.keys * RUNS;
        let mut merged = Vec::new();
        for more in [0, 512] {
            let db = self.options(FilterChoice::None, 10.0, self.sizes.keys).open("/calibration")?;
            let value = vec![0x61; self.setup.value_bytes + more];
            let mut puts = Vec::new();
            for run in 0..RUNS {
                let keys: Vec<Vec<u8>> =
                    (0..self.sizes.keys).map(|i| key(self.setup, run as u64, i)).collect();
                let started = Instant::now();
                for key in &keys {
                    db.put(key, &value)?;
                }
                puts.push(started.elapsed().as_nanos() as f64 / self.sizes.keys as f64);
                db.flush()?;
            }
            if more == 0 {
                machine.put_ns = middle(&puts);
            }
            let started = Instant::now();
            db.compact()?;
            merged.push(started.elapsed().as_nanos() as f64 / entries as f64);
            db.close()?;
        }
        let bytes = (self.setup.key_bytes + self.setup.value_bytes + 8) as f64;
        // Bytes cannot account for more than the whole cost.
        machine.merge_byte_ns = ((merged[1] - merged[0]) / 512.0).clamp(0.0, merged[0] / bytes);
        machine.merge_entry_ns = merged[0] - bytes * machine.merge_byte_ns;
        Ok(())
    }
}

fn middle(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn table_bytes(db: &Db) -> f64 {
    db.stats().keyspaces.iter().map(|keyspace| keyspace.table_bytes).sum::<u64>() as f64
}
