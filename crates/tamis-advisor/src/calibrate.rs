//! Unit costs, measured on this machine by the engine's own paths.
//!
//! Small in-memory databases of eight runs each, one for every kind of filter, are read as a
//! program would read them. The cost of a probe is the remainder after subtracting the fixed part
//! and the runs searched in vain (by the engine's counters). T_P is therefore what a filter costs
//! *here*, including finding its table, dispatch and prefetching, not its cost in a loop of its
//! own. What does not fit a small database is measured separately: memory latency by size, and the
//! device, by reads of a file.
//!
//! Every cost is the lower quartile of several passes, which alternate where two costs are
//! compared. Noise that would make a cost negative yields 0.

use std::path::PathBuf;
use std::time::Instant;

use tamis_filter::Digest;

use super::Machine;
use super::device;
use super::reads::Bench;
use tamis::Error;
use tamis::Options;

/// How thoroughly to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Effort {
    /// About a tenth of a second: for opening a database. Costs may be off by a third, those of
    /// ranges under global filters by more, because small global filters exclude less.
    Quick,
    /// One to two seconds.
    #[default]
    Full,
}

/// The parameters of a measurement.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Setup {
    /// Bytes of keys.
    pub key_bytes: usize,
    /// Bytes of values.
    pub value_bytes: usize,
    /// How thoroughly.
    pub effort: Effort,
    /// Where the database is or will be. A file created here, and removed again, is written as a
    /// log is and read for T_D. Without a directory the data is assumed to stay in memory, and the
    /// device and the log to cost nothing.
    pub directory: Option<PathBuf>,
    /// Read mode, file system, block size and durability of the database; the other options are
    /// ignored.
    pub options: Options,
}

impl Setup {
    /// Returns a setup for keys and values of these lengths, in memory, with full effort.
    pub fn new(key_bytes: usize, value_bytes: usize) -> Setup {
        Setup { key_bytes, value_bytes, effort: Effort::Full, directory: None, options: Options::default() }
    }

    /// Sets the effort.
    pub fn effort(mut self, effort: Effort) -> Setup {
        self.effort = effort;
        self
    }

    /// Sets the directory and the options of the database.
    pub fn database(mut self, directory: impl Into<PathBuf>, options: &Options) -> Setup {
        self.directory = Some(directory.into());
        self.options = options.clone();
        self
    }

    /// Limits lengths so that thousands of entries fit into memory. Costs are per entry and per
    /// byte, so those of longer entries follow from these.
    fn clamped(&self) -> Setup {
        let mut setup = self.clone();
        setup.key_bytes = setup.key_bytes.min(MOST_KEY_BYTES);
        setup.value_bytes = setup.value_bytes.min(MOST_VALUE_BYTES);
        setup
    }

    pub(super) fn is_quick(&self) -> bool {
        self.effort == Effort::Quick
    }
}

/// The longest keys measured.
const MOST_KEY_BYTES: usize = 1024;

/// The longest values measured.
const MOST_VALUE_BYTES: usize = 4096;

/// The unit costs of a machine.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Calibration {
    /// The costs. They may be changed, for example to find out what another device would be worth.
    pub machine: Machine,
    /// How thoroughly they were measured.
    pub effort: Effort,
    /// The length of keys, in bytes.
    pub key_bytes: usize,
    /// The length of values, in bytes.
    pub value_bytes: usize,
    /// Time the measurement took, in nanoseconds.
    pub took_ns: u64,
}

/// Runs per measured database.
pub(super) const RUNS: usize = 8;

impl Calibration {
    /// Returns a calibration with costs known from elsewhere, for keys and values of these lengths.
    pub fn of(machine: Machine, key_bytes: usize, value_bytes: usize) -> Calibration {
        Calibration { machine, effort: Effort::Full, key_bytes, value_bytes, took_ns: 0 }
    }

    /// Measures. Everything created in [`Setup::directory`] is removed, even on failure.
    ///
    /// # Errors
    /// Errors of the file system and of in-memory databases.
    pub fn measure(setup: &Setup) -> Result<Calibration, Error> {
        // The checks that debug builds make on filters must not count.
        tamis::without_rejection_checks(|| Calibration::measure_all(setup))
    }

    fn measure_all(setup: &Setup) -> Result<Calibration, Error> {
        let started = Instant::now();
        let setup = &setup.clamped();
        let mut machine = Machine::default();
        let sizes = Sizes::of(setup);
        device::memory(&mut machine, setup);
        device::digest(&mut machine, setup, &sizes);
        device::device(&mut machine, setup)?;
        let mut bench = Bench::new(setup, sizes);
        bench.reads(&mut machine)?;
        bench.filters(&mut machine)?;
        bench.writes(&mut machine)?;
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        // A merging thread takes the core of a reading one as often as no other core is free.
        machine.background_share = 1.0 / cores as f64;
        if setup.effort == Effort::Full {
            bench.distance(&mut machine)?;
            bench.background(&mut machine)?;
        }
        machine.page_cache_bytes = device::half_of_memory();
        Ok(Calibration {
            machine,
            effort: setup.effort,
            key_bytes: setup.key_bytes,
            value_bytes: setup.value_bytes,
            took_ns: started.elapsed().as_nanos() as u64,
        })
    }
}

/// The amount of measuring.
pub(super) struct Sizes {
    /// Keys per run.
    pub(super) keys: usize,
    /// Operations per pass.
    pub(super) ops: usize,
    /// Passes.
    pub(super) passes: usize,
}

impl Sizes {
    fn of(setup: &Setup) -> Sizes {
        match setup.effort {
            Effort::Quick => Sizes { keys: 96, ops: 48, passes: 5 },
            Effort::Full => Sizes { keys: 1024, ops: 256, passes: 13 },
        }
    }
}

/// Returns key `i` of set `set`: spread over the whole key space, of the requested length, at least
/// eight bytes.
pub(super) fn key(setup: &Setup, set: u64, i: usize) -> Vec<u8> {
    let spread = Digest::from_u64(i as u64).remix(set + 1);
    // The upper half stays free, for keys behind all others.
    let mut key = (spread >> 1).to_be_bytes().to_vec();
    key.resize(setup.key_bytes.max(8), 0x2e);
    key
}

/// Returns the nanoseconds for each of `count` things: the lower quartile of several passes. Other
/// load on the machine only adds to times, so the true cost is nearer to the shorter ones; the
/// minimum would be luck.
pub(super) fn quiet_ns(passes: usize, count: usize, mut pass: impl FnMut(usize)) -> f64 {
    let mut times: Vec<f64> = (0..passes.max(1))
        .map(|at| {
            let started = Instant::now();
            pass(at);
            started.elapsed().as_nanos() as f64 / count.max(1) as f64
        })
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 4]
}
