//! Unit costs, measured on this machine by the engine's own paths.
//!
//! Small databases in memory, of eight runs each, one for every kind of filter, are asked as a program would ask them. What a
//! question costs by itself is what is left when the fixed part and the runs searched in vain (by the engine's counters) are
//! taken away. So T_P is what a filter costs *here*, with finding its table, dispatch and prefetching, not what it costs in a
//! loop of its own. What does not fit a small database is measured apart: latencies of memory by size, and the device, by
//! reads of a file.
//!
//! Every cost is the lower quartile of passes, taken in turns where two are compared; what noise makes negative is 0.

use std::path::PathBuf;
use std::time::Instant;

use tamis_filter::Digest;

use super::Machine;
use super::device;
use super::reads::Bench;
use crate::error::Error;
use crate::options::Options;

/// How thoroughly to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Effort {
    /// About a tenth of a second: for opening a database. Costs may be off by a third, those of ranges under global filters by
    /// more, since small ones know less.
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
    /// Where the database is or will be: what is read for T_D, and written as a log is, is a file that is made there and removed
    /// again. Without one the data is taken to stay in memory, and the device and the log to cost nothing.
    pub directory: Option<PathBuf>,
    /// Read mode, file system, block size and durability of the database; nothing else of them counts.
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

    /// With entries of which thousands fit into memory. Costs are by entry and by byte, so longer ones are told from these.
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

/// The longest keys that are measured.
const MOST_KEY_BYTES: usize = 1024;

/// The longest values that are measured.
const MOST_VALUE_BYTES: usize = 4096;

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

impl Calibration {
    /// Costs that are known from elsewhere, for keys and values of these lengths.
    pub fn of(machine: Machine, key_bytes: usize, value_bytes: usize) -> Calibration {
        Calibration { machine, effort: Effort::Full, key_bytes, value_bytes, took_ns: 0 }
    }

    /// Measures. Nothing stays of it: what it makes in [`Setup::directory`] is removed, also if it fails.
    ///
    /// # Errors
    /// Those of the file system, and of databases in memory.
    pub fn measure(setup: &Setup) -> Result<Calibration, Error> {
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
        // A thread that merges takes the core of one that asks as often as no other is free.
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
            Effort::Quick => Sizes { keys: 96, ops: 48, passes: 5 },
            Effort::Full => Sizes { keys: 1024, ops: 256, passes: 13 },
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

/// Nanoseconds for each of `count` things: of several passes the one that a quarter of them beat. Whatever else runs on a
/// machine only adds to times, so what a thing costs is nearer to the shorter ones; the least of all would be luck.
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
