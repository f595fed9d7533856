//! What a step of an experiment gives: rows of several kinds.

use serde::{Deserialize, Serialize};
use tamis_bench::measure::Measurement;

use crate::elastic::database::LoadRow;
use crate::figures::Row;
use crate::figures::rows::row;

/// Memory is told to be another than asked for from this share on.
const TOLERANCE: f64 = 0.15;

/// One side at one point of a figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReadRow {
    /// `read`.
    pub kind: String,
    /// The side's name.
    pub side: String,
    /// What varies; empty if nothing does.
    pub point: String,
    /// What tables are read from: a device's name, `disk` past the page cache, `mapped` through it.
    pub device: String,
    /// Emulated devices: reads of tables that an operation waited for or had done beside, mean of the rounds.
    pub device_reads_per_op: Option<f64>,
    /// What these took together, in nanoseconds.
    pub device_ns_per_op: Option<f64>,
    /// Of these reads so many took longer than the device takes, as the file system below did.
    pub late_reads_per_op: Option<f64>,
    /// The setting that varies, where it is a number: see [`Vary`](crate::elastic::Vary).
    pub setting: Option<f64>,
    /// Zipf's exponent.
    pub skew: f64,
    /// Absent keys among those asked for, in percent.
    pub absent_percent: u64,
    /// Keys in a neighbourhood.
    pub locality: u64,
    /// Unmeasured gets before the first round.
    pub warmup: u64,
    /// The fastest round.
    pub min_ns: f64,
    /// The slowest round.
    pub max_ns: f64,
    /// Operations a second by the clock on the wall in the slowest round.
    pub min_ops_per_second: f64,
    /// The same in the fastest round.
    pub max_ops_per_second: f64,
    /// Runs searched in vain, mean of the rounds; `None` for mixes that write.
    pub in_vain_per_op: Option<f64>,
    /// The same in the first round.
    pub in_vain_first: Option<f64>,
    /// The same in the last round.
    pub in_vain_last: Option<f64>,
    /// Data blocks touched, mean of the rounds.
    pub blocks_per_op: f64,
    /// Filters that said "maybe" of a key that was not there, mean of the rounds.
    pub false_positives_mean: f64,
    /// Reads that loaded units, mean of the rounds.
    pub load_reads_per_op: f64,
    /// Whether filter memory follows the heat.
    pub elastic: bool,
    /// Whether a filter was asked for, and none is in memory at the end.
    pub without_filter: bool,
    /// Bytes of filters in memory at the end.
    pub filter_memory: u64,
    /// The same by entries, in bits.
    pub memory_bits_per_key: f64,
    /// Bits a key that the filters may take.
    pub bits_asked: f64,
    /// Elastic filters: what is in memory beside the units.
    pub index_bytes: u64,
    /// Their segments.
    pub segments: u64,
    /// Segments with no unit in memory, with one and so on: `10/20/3/0/0/0/1`.
    pub by_units: String,
    /// Segments that have expired.
    pub expired: u64,
    /// The life time in gets.
    pub life_time: u64,
    /// One get of so many is counted.
    pub sampling: u64,
    /// E\[Extra_IO\] as the engine reckons.
    pub expected_extra_reads: f64,
    /// Units that others took the place of, since opening.
    pub evictions: u64,
    /// Times that nothing had expired to make room.
    pub refused: u64,
    /// Units that were asked for and did not come into use: unreadable, or no room when they came.
    pub failed_loads: u64,
    /// The round of median time, with its counters.
    #[serde(flatten)]
    pub measurement: Measurement,
}

impl ReadRow {
    pub(super) fn spends_otherwise(&self) -> bool {
        // An elastic filter may well need less than it is given.
        let share = self.memory_bits_per_key / self.bits_asked - 1.0;
        self.bits_asked > 0.0 && !self.without_filter && share > if self.elastic { 0.02 } else { TOLERANCE }
    }
}

/// A device that is not here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MissingRow {
    /// `missing`.
    pub kind: String,
    /// What varies.
    pub point: String,
    /// The device's name.
    pub device: String,
    /// Why.
    pub why: String,
}

/// One window of a shift.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WindowRow {
    /// `window`.
    pub kind: String,
    /// The experiment.
    pub experiment: String,
    /// The side's name.
    pub side: String,
    /// What varies.
    pub point: String,
    /// Zipf's exponent.
    pub skew: f64,
    /// Keys in a neighbourhood.
    pub locality: u64,
    /// Gets up to the window's end.
    pub gets: u64,
    /// Whether the hot keys have moved.
    pub moved: bool,
    /// Runs searched in vain.
    pub in_vain_per_get: f64,
    /// Data blocks touched.
    pub blocks_per_get: f64,
    /// Reads that loaded units.
    pub load_reads_per_get: f64,
    /// Mean nanoseconds.
    pub ns_per_get: f64,
}

/// What a shift did to one side, in reads in vain a get.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShiftRow {
    /// `shift`.
    pub kind: String,
    /// The experiment.
    pub experiment: String,
    /// The side's name.
    pub side: String,
    /// What varies.
    pub point: String,
    /// Zipf's exponent.
    pub skew: f64,
    /// Keys in a neighbourhood.
    pub locality: u64,
    /// Steady state before.
    pub before: f64,
    /// The first window after.
    pub first: f64,
    /// Steady state at the end.
    pub end: f64,
    /// Gets until nine tenths of the way from `first` to `end` are gone; `None` if there was none to go.
    pub gets_to_recover: Option<u64>,
}

/// How one table was asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableRow {
    /// `table`.
    pub kind: String,
    /// The experiment.
    pub experiment: String,
    /// The side's name.
    pub side: String,
    /// What varies.
    pub point: String,
    /// Zipf's exponent.
    pub skew: f64,
    /// Keys in a neighbourhood.
    pub locality: u64,
    /// The level.
    pub level: usize,
    /// The run's id.
    pub run: u64,
    /// The table's number.
    pub table: u64,
    /// How often a get asked it.
    pub asked_per_get: f64,
    /// Of so many gets.
    pub gets: u64,
    /// (Most − least) / mean over 64 parts of its keys.
    pub spread: f64,
}

/// The rows of a step.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    /// Databases, each once.
    pub(super) loads: Vec<LoadRow>,
    /// Figures in rounds.
    pub(super) reads: Vec<ReadRow>,
    /// Windows of shifts.
    pub(super) windows: Vec<WindowRow>,
    /// What shifts did.
    pub(super) shifts: Vec<ShiftRow>,
    /// Tables.
    pub(super) tables: Vec<TableRow>,
    /// Devices that are not here.
    pub(super) missing: Vec<MissingRow>,
}

impl Rows {
    /// Keeps a base's row, unless it is there.
    pub(super) fn add_load(&mut self, load: LoadRow) {
        let same = |row: &&LoadRow| row.filter == load.filter && row.point == load.point;
        if !self.loads.iter().any(|row| same(&row)) {
            self.loads.push(load);
        }
    }

    /// All of them, databases first.
    pub(super) fn into_rows(self) -> Vec<Row> {
        let rounds = self.loads.iter().map(row).chain(self.reads.iter().map(row));
        let windows = self.windows.iter().map(row).chain(self.shifts.iter().map(row));
        let others = self.tables.iter().map(row).chain(self.missing.iter().map(row));
        rounds.chain(windows).chain(others).collect()
    }
}
