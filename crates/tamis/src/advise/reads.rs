//! What gets, iterators, filters and writes cost, by small databases in memory.
//!
//! Each kind of filter has a database of eight runs. There the same questions are asked in turns of keys behind all others,
//! which no run covers, and of absent keys among them: the difference is what eight runs cost. What was searched in vain is
//! taken from it by the engine's counters.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use super::apply::choice_of;
use super::calibrate::{RUNS, Setup, Sizes, key, quiet_ns};
use super::{Machine, ProbeCost, Selector, filters};
use crate::db::Db;
use crate::error::Error;
use crate::io::MemFs;
use crate::options::{Compression, FilterChoice, Options};
use crate::read::ReadCost;

/// Entries of a scan.
const SCAN: usize = 50;
/// Width of the empty ranges that are asked about.
const WIDTH: u64 = 16;

/// The questions of one calibration.
pub(super) struct Bench<'a> {
    setup: &'a Setup,
    sizes: Sizes,
    /// Keys that no run has, all over the key space.
    absent: Vec<Vec<u8>>,
    /// Keys behind all that there are.
    behind: Vec<Vec<u8>>,
    /// Keys that the databases have.
    present: Vec<Vec<u8>>,
    /// Flushes and all without a filter, in ns for each key.
    plain: (f64, f64),
    late: Vec<f64>,
    named: Vec<f64>,
}

/// What filling a database took, in ns for each key.
struct Filling {
    /// Flushes, in order.
    flushes: Vec<f64>,
    /// All of it, until filters are complete.
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
            absent: (0..count).map(|i| key(setup, 1 << 32, i)).collect(),
            behind: (0..count).map(behind).collect(),
            present: (0..count).map(|i| key(setup, (i % RUNS) as u64, (i * 37) % sizes.keys)).collect(),
            sizes,
            plain: (0.0, 0.0),
            late: Vec::new(),
            named: Vec::new(),
        }
    }

    /// A database in memory whose compactions wait.
    fn options(&self, filter: FilterChoice, bits: f64) -> Options {
        let mut options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
        options.background_threads = 1;
        options.sub_jobs = 1;
        options.cache_bytes = 0;
        options.keyspace.auto_compaction = false;
        options.keyspace.read_compaction = false;
        options.keyspace.memtable_bytes = 64 << 20;
        options.keyspace.block_bytes = self.setup.options.keyspace.block_bytes;
        options.keyspace.compression = Compression::None.into();
        options.keyspace.filter = filter.into();
        options.keyspace.bits_per_key = bits;
        options
    }

    /// Eight runs of the same key space.
    fn filled(&self, options: Options, keys: usize) -> Result<(Db, Filling), Error> {
        let db = Db::open("/calibration", options)?;
        let value = vec![0x61; self.setup.value_bytes];
        let mut flushes = Vec::new();
        let begun = Instant::now();
        for run in 0..RUNS {
            for i in 0..keys {
                db.put(key(self.setup, run as u64, i), &value)?;
            }
            let started = Instant::now();
            db.flush()?;
            flushes.push(started.elapsed().as_nanos() as f64 / keys as f64);
        }
        db.settle_filters()?;
        let all = begun.elapsed().as_nanos() as f64 / (keys * RUNS) as f64;
        Ok((db, Filling { flushes, all }))
    }

    /// Nanoseconds of a get.
    fn gets(&self, db: &Db, keys: &[Vec<u8>]) -> Result<f64, Error> {
        let mut failed = None;
        let ops = self.sizes.ops;
        let ns = quiet_ns(self.sizes.passes, ops, |pass| {
            for key in &keys[pass * ops..][..ops] {
                match db.get(key) {
                    Ok(value) => drop(black_box(value)),
                    Err(error) => failed = Some(error),
                }
            }
        });
        failed.map_or(Ok(ns), |error| Err(error.into()))
    }

    /// Nanoseconds of an iterator that reads `entries` entries; with `width` up to an end so far behind.
    fn iterations(
        &self,
        db: &Db,
        keys: &[Vec<u8>],
        entries: usize,
        width: Option<u64>,
    ) -> Result<f64, Error> {
        let mut failed = None;
        let ops = (self.sizes.ops / entries.clamp(4, 16)).max(8);
        let ns = quiet_ns(self.sizes.passes, ops, |pass| {
            for key in &keys[pass * self.sizes.ops..][..ops] {
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

    /// What `work` costs, in nanoseconds and in counters.
    fn counted(&self, db: &Db, work: impl FnOnce() -> Result<f64, Error>) -> Result<(f64, ReadCost), Error> {
        let before = db.stats().read;
        let ns = work()?;
        Ok((ns, db.stats().read - before))
    }

    /// Gets, searches, cursors, steps: by databases without filters.
    pub(super) fn reads(&mut self, machine: &mut Machine) -> Result<(), Error> {
        let (db, filling) = self.filled(self.options(FilterChoice::None, 10.0), self.sizes.keys)?;
        self.plain = (middle(&filling.flushes), filling.all);
        self.gets(&db, &self.absent)?;
        machine.get_ns = self.gets(&db, &self.behind)?;
        machine.iterator_ns = self.iterations(&db, &self.behind, 1, Some(WIDTH))?;
        let opened = self.iterations(&db, &self.absent, 1, Some(WIDTH))?;
        machine.cursor_ns = ((opened - machine.iterator_ns) / RUNS as f64).max(0.0);
        machine.vain_ns = self.vain(&db)?;
        let all = self.step(&db)?;
        db.compact()?;
        let one = self.step(&db)?;
        machine.next_ns = one;
        machine.merge_step_ns = ((all - one) / (RUNS as f64).log2()).max(0.0);
        machine.search_ns = self.search(&db, &self.present)?;
        machine.measured_bytes = table_bytes(&db);
        db.close()?;
        // Half of what is stored unpacks to itself, as text does.
        let mut options = self.options(FilterChoice::None, 10.0);
        options.keyspace.compression = Compression::Lz4.into();
        let (db, _) = self.filled(options, self.sizes.keys)?;
        db.compact()?;
        machine.unpack_ns = (self.search(&db, &self.present)? - machine.search_ns).max(0.0);
        Ok(db.close()?)
    }

    /// What searching one run adds to a get.
    fn search(&self, db: &Db, present: &[Vec<u8>]) -> Result<f64, Error> {
        self.gets(db, present)?;
        Ok((self.gets(db, present)? - self.gets(db, &self.behind)?).max(0.0))
    }

    /// What searching one of eight runs in vain adds to a get.
    fn vain(&self, db: &Db) -> Result<f64, Error> {
        self.gets(db, &self.absent)?;
        let searched = self.gets(db, &self.absent)? - self.gets(db, &self.behind)?;
        Ok((searched / RUNS as f64).max(0.0))
    }

    /// One step of an iterator.
    fn step(&self, db: &Db) -> Result<f64, Error> {
        let one = self.iterations(db, &self.absent, 1, None)?;
        Ok(((self.iterations(db, &self.absent, SCAN, None)? - one) / (SCAN - 1) as f64).max(0.0))
    }

    /// How many misses of memory a search and a cursor wait for: by a database that the processor's nearer caches do not hold.
    /// After the latencies are known.
    pub(super) fn distance(&mut self, machine: &mut Machine) -> Result<(), Error> {
        let keys = (16 << 20) / RUNS / (self.setup.key_bytes.max(8) + self.setup.value_bytes + 8);
        let (db, _) = self.filled(self.options(FilterChoice::None, 10.0), keys)?;
        // Other keys in each pass, so that none is asked twice.
        let count = self.sizes.ops * self.sizes.passes;
        let stride = (keys * RUNS / count).max(1);
        let present: Vec<Vec<u8>> =
            (0..count).map(|i| key(self.setup, (i % RUNS) as u64, (i * stride / RUNS * 31) % keys)).collect();
        // As a database is that has been read for a while: what the caches can hold of it is there.
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
        let cursor_ns = (opened - fixed) / RUNS as f64;
        let vain_ns = self.vain(&db)?;
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

    /// T_P of every selector, and what building it costs.
    pub(super) fn filters(&mut self, machine: &mut Machine) -> Result<(), Error> {
        let building = filters::building(self.setup, &self.sizes);
        for selector in Selector::ALL {
            let Some(choice) = choice_of(selector).filter(|_| selector != Selector::None) else { continue };
            let mut options = self.options(choice, 14.0);
            if selector == Selector::Elastic {
                // All units in memory would be more than anybody has: two of them, eight bits.
                options.keyspace.filter_units = 2;
            }
            let (db, filling) = self.filled(options, self.sizes.keys)?;
            let mut cost = self.asked(&db, machine, selector)?;
            db.close()?;
            cost.build_ns = building.get(&selector).copied().unwrap_or_default();
            if selector.is_global() {
                cost.copy_ns = filters::copying(self.setup, &self.sizes, selector);
                cost.build_ns = self.upkeep(&filling, cost.copy_ns);
            }
            machine.probes.push((selector, cost));
        }
        machine.late_open_ns = middle(&self.late).max(0.0);
        machine.named_run_ns = middle(&self.named).max(0.0);
        for (selector, cost) in &mut machine.probes {
            if selector.is_global() {
                // The questions were about eight runs.
                cost.point_ns = (cost.point_ns - RUNS as f64 * machine.named_run_ns).max(0.0);
            }
        }
        Ok(())
    }

    /// What questions to the filters of one database cost, without what runs cost that were searched in vain.
    fn asked(&mut self, db: &Db, machine: &Machine, selector: Selector) -> Result<ProbeCost, Error> {
        self.gets(db, &self.absent)?;
        let (ns, read) = self.counted(db, || self.gets(db, &self.absent))?;
        let behind = self.gets(db, &self.behind)?;
        let each = |count: u64, of: u64| count as f64 / of.max(1) as f64;
        // Debug builds look at the data after each denial, which is not the filter's to pay.
        let checked = |negatives: u64| if cfg!(debug_assertions) { negatives } else { 0 };
        let left = |ns: f64, behind: f64, read: &ReadCost| {
            let searched = read.runs_searched + checked(read.filter_negatives);
            (ns - behind - each(searched, read.gets) * machine.vain_ns).max(0.0)
        };
        let point = left(ns, behind, &read);
        let (range_ns, ranges) = self.counted(db, || self.iterations(db, &self.absent, 1, Some(WIDTH)))?;
        let fixed = self.iterations(db, &self.behind, 1, Some(WIDTH))?;
        let opened = each(ranges.seeks + checked(ranges.range_negatives), ranges.scans);
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
            let opened = each(read.seeks + checked(read.range_negatives), read.scans);
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
            // In one run the same question is about one run only.
            db.compact()?;
            db.settle_filters()?;
            self.gets(db, &self.absent)?;
            let (ns, read) = self.counted(db, || self.gets(db, &self.absent))?;
            let of_one = left(ns, self.gets(db, &self.behind)?, &read);
            self.named.push(((point - of_one) / (RUNS - 1) as f64).max(0.0));
            cost.point_ns = point;
        }
        Ok(cost)
    }

    /// What a key costs more until it is in the filter of a tree of a few runs: at its flush, or in the background. What is known
    /// of copying is taken from that.
    fn upkeep(&self, filling: &Filling, copy_ns: f64) -> f64 {
        let at_flush = middle(&filling.flushes[1..]) - self.plain.0;
        (at_flush.max(filling.all - self.plain.1) - copy_ns * RUNS as f64 / 2.0).max(0.0)
    }

    /// Puts, and what flushes and merges take for an entry and a byte.
    pub(super) fn writes(&self, machine: &mut Machine) -> Result<(), Error> {
        let entries = self.sizes.keys * RUNS;
        let mut merged = Vec::new();
        for more in [0, 512] {
            let db = Db::open("/calibration", self.options(FilterChoice::None, 10.0))?;
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
        // Bytes cost no more than all that there is.
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
