//! Rows of a step of an experiment, of several kinds.

use serde::{Deserialize, Serialize};
use tamis_bench::measure::Measurement;

use crate::elastic::database::LoadRow;
use crate::figures::Row;
use crate::figures::rows::row;

/// One side at one point of a figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReadRow {
    /// `read`.
    pub kind: String,
    /// The side's name.
    pub side: String,
    /// The varied settings; empty if nothing varies.
    pub point: String,
    /// The storage of tables: a device's name, `disk` bypassing the page cache, `mapped` through it.
    pub device: String,
    /// Emulated devices: reads of tables by an operation, including concurrent ones; mean of the rounds.
    pub device_reads_per_op: Option<f64>,
    /// Their total duration in nanoseconds.
    pub device_ns_per_op: Option<f64>,
    /// The number of these reads that took longer than the device, because of the file system below.
    pub late_reads_per_op: Option<f64>,
    /// The varied setting, if it is a number: see [`Vary`](crate::elastic::Vary).
    pub setting: Option<f64>,
    /// Zipf's exponent.
    pub skew: f64,
    /// Absent keys in percent.
    pub absent_percent: u64,
    /// Number of keys in a neighbourhood.
    pub locality: u64,
    /// Number of unmeasured gets before the first round.
    pub warmup: u64,
    /// Whether the placement of filters had settled then; `None` if that was not asked.
    pub warmup_settled: Option<bool>,
    /// Duration of an operation in the fastest round.
    pub min_ns: f64,
    /// Duration of an operation in the slowest round.
    pub max_ns: f64,
    /// Operations per second of wall-clock time in the slowest round.
    pub min_ops_per_second: f64,
    /// Operations per second of wall-clock time in the fastest round.
    pub max_ops_per_second: f64,
    /// Runs searched without finding the key, mean of the rounds; `None` for mixes that write.
    pub in_vain_per_op: Option<f64>,
    /// The same in the first round.
    pub in_vain_first: Option<f64>,
    /// The same in the last round.
    pub in_vain_last: Option<f64>,
    /// Data blocks read, from the cache or not, mean of the rounds.
    pub blocks_per_op: f64,
    /// False positives of filters, mean of the rounds.
    pub false_positives_mean: f64,
    /// Reads that loaded units, mean of the rounds.
    pub load_reads_per_op: f64,
    /// Whether filter memory follows hotness.
    pub elastic: bool,
    /// Whether a filter was requested but none is in memory at the end.
    pub without_filter: bool,
    /// Bytes of filters in memory at the end, with directories and all that manages them.
    pub filter_memory: u64,
    /// The same in bits per entry.
    pub memory_bits_per_key: f64,
    /// Requested filter bits per key.
    pub bits_asked: f64,
    /// Elastic filters: the part of it besides the units.
    pub index_bytes: u64,
    /// Elastic filters: number of segments.
    pub segments: u64,
    /// Numbers of segments with no unit in memory, with one and so on: `10/20/3/0/0/0/1`.
    pub by_units: String,
    /// The life time in gets.
    pub life_time: u64,
    /// One in this number of gets is counted.
    pub sampling: u64,
    /// The engine's estimate of E\[Extra_IO\].
    pub expected_extra_reads: f64,
    /// Number of units replaced by others since opening.
    pub evictions: u64,
    /// Number of requested units that did not come into use: unreadable, or without space when they were loaded.
    pub failed_loads: u64,
    /// The round of median time, with its counters.
    #[serde(flatten)]
    pub measurement: Measurement,
}

/// A device that is not available.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MissingRow {
    /// `missing`.
    pub kind: String,
    /// The varied settings.
    pub point: String,
    /// The device's name.
    pub device: String,
    /// Why.
    pub why: String,
}

/// The `kind` of windows before the first round.
pub(super) const WARMUP: &str = "warmup";

/// One window of gets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WindowRow {
    /// `window`, or `warmup` before the first round.
    pub kind: String,
    /// The experiment.
    pub experiment: String,
    /// The side's name.
    pub side: String,
    /// The varied settings.
    pub point: String,
    /// Zipf's exponent.
    pub skew: f64,
    /// Number of keys in a neighbourhood.
    pub locality: u64,
    /// Number of gets until the window's end.
    pub gets: u64,
    /// Whether the hot keys have moved.
    pub moved: bool,
    /// Runs searched without finding the key.
    pub in_vain_per_get: f64,
    /// Data blocks read, from the cache or not.
    pub blocks_per_get: f64,
    /// Reads that loaded units.
    pub load_reads_per_get: f64,
    /// Mean nanoseconds.
    pub ns_per_get: f64,
    /// Bits of filter memory per entry after it, as in [`ReadRow::memory_bits_per_key`].
    pub memory_bits_per_key: f64,
}

/// The effect of a shift on one side, in wasted reads per get.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShiftRow {
    /// `shift`.
    pub kind: String,
    /// The experiment.
    pub experiment: String,
    /// The side's name.
    pub side: String,
    /// The varied settings.
    pub point: String,
    /// Zipf's exponent.
    pub skew: f64,
    /// Number of keys in a neighbourhood.
    pub locality: u64,
    /// Steady state before the shift.
    pub before: f64,
    /// The first window after the shift.
    pub first: f64,
    /// Steady state at the end.
    pub end: f64,
    /// Number of gets until nine tenths of the way from `first` to `end` are covered; `None` if there was no increase.
    pub gets_to_recover: Option<u64>,
}

/// The effect of a restart on one side, in wasted reads per get.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RestartRow {
    /// `restart`.
    pub kind: String,
    /// The experiment.
    pub experiment: String,
    /// The side's name.
    pub side: String,
    /// `closed`, `crashed` or `cold`.
    pub way: String,
    /// The varied settings.
    pub point: String,
    /// Zipf's exponent.
    pub skew: f64,
    /// Number of keys in a neighbourhood.
    pub locality: u64,
    /// Settled rate before the restart.
    pub before: f64,
    /// The first window after it.
    pub first: f64,
    /// The mean of the last windows.
    pub end: f64,
    /// Number of gets before the first window within a tenth of `before`; `None` if there was none.
    pub gets_until_back: Option<u64>,
    /// Reads wasted until then in addition to those of as many gets before.
    pub more_wasted: f64,
}

/// Queries of one table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableRow {
    /// `table`.
    pub kind: String,
    /// The experiment.
    pub experiment: String,
    /// The side's name.
    pub side: String,
    /// The varied settings.
    pub point: String,
    /// Zipf's exponent.
    pub skew: f64,
    /// Number of keys in a neighbourhood.
    pub locality: u64,
    /// The level.
    pub level: usize,
    /// The id of the run.
    pub run: u64,
    /// The number of the table.
    pub table: u64,
    /// Queries of the table per get.
    pub asked_per_get: f64,
    /// Number of gets.
    pub gets: u64,
    /// (Maximum − minimum) / mean over 64 parts of its keys.
    pub spread: f64,
}

/// The rows of a step.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    /// Databases, each once.
    pub(super) loads: Vec<LoadRow>,
    /// Measurements in rounds.
    pub(super) reads: Vec<ReadRow>,
    /// Windows of gets before the first round.
    pub(super) warmups: Vec<WindowRow>,
    /// Windows of gets.
    pub(super) windows: Vec<WindowRow>,
    /// Effects of shifts.
    pub(super) shifts: Vec<ShiftRow>,
    /// Effects of restarts.
    pub(super) restarts: Vec<RestartRow>,
    /// Tables.
    pub(super) tables: Vec<TableRow>,
    /// Devices that are not available.
    pub(super) missing: Vec<MissingRow>,
}

impl Rows {
    /// Adds a base's row unless present.
    pub(super) fn add_load(&mut self, load: LoadRow) {
        let same = |row: &&LoadRow| row.filter == load.filter && row.point == load.point;
        if !self.loads.iter().any(|row| same(&row)) {
            self.loads.push(load);
        }
    }

    /// Returns all rows, databases first.
    pub(super) fn into_rows(self) -> Vec<Row> {
        let rounds = self.loads.iter().map(row).chain(self.reads.iter().map(row));
        let windows = self.warmups.iter().chain(&self.windows).map(row).chain(self.shifts.iter().map(row));
        let windows = windows.chain(self.restarts.iter().map(row));
        let others = self.tables.iter().map(row).chain(self.missing.iter().map(row));
        rounds.chain(windows).chain(others).collect()
    }
}
