//! What a point of an experiment gives: a row for each database and for each of its figures.

use serde::{Deserialize, Serialize};
use tamis_bench::measure::Measurement;

/// One database as it was loaded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadRow {
    /// `load`.
    pub kind: String,
    /// The experiment.
    pub experiment: String,
    /// The side's name.
    pub filter: String,
    /// What varies: `10 bits`, `2 leveling`; empty if nothing does.
    pub point: String,
    /// Bits a key that all sides were given, where they vary.
    pub bits: Option<f64>,
    /// Leveling levels, where they vary.
    pub leveling_levels: Option<usize>,
    /// Keys put before the first measurement.
    pub keys: u64,
    /// Sorted runs then.
    pub runs: usize,
    /// Sorted runs after the last measurement.
    pub runs_at_end: usize,
    /// Bits a key that the filter was given; 0 without a filter.
    pub bits_asked: f64,
    /// Memory of the filters.
    pub filter_bytes: u64,
    /// The same by entries, in bits.
    pub filter_bits_per_key: f64,
    /// Of loading, flushes and the wait for compaction included.
    pub load_ns_per_key: f64,
    /// Half of the puts took at most so long.
    pub put_p50_ns: u64,
    /// 99 of 100 puts took at most so long.
    pub put_p99_ns: u64,
    /// Half of the flushes took at most so long.
    pub flush_p50_ns: u64,
    /// 99 of 100 flushes took at most so long.
    pub flush_p99_ns: u64,
    /// Bytes written by bytes given, log included, before the first measurement.
    pub load_write_amplification: f64,
    /// The same after the last measurement.
    pub write_amplification: f64,
    /// Whether a filter was asked for, and none is in memory: the figures are those of no filter.
    pub without_filter: bool,
}

/// Memory is told to be another than asked for from this share on.
const TOLERANCE: f64 = 0.15;

impl LoadRow {
    /// Whether a filter takes clearly more or less memory than it was given.
    pub(super) fn spends_otherwise(&self) -> bool {
        !self.without_filter
            && self.bits_asked > 0.0
            && (self.filter_bits_per_key / self.bits_asked - 1.0).abs() > TOLERANCE
    }
}

/// One side's median of a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReadRow {
    /// `read`.
    pub kind: String,
    /// The side's name.
    pub side: String,
    /// See [`LoadRow::point`].
    pub point: String,
    /// See [`LoadRow::bits`].
    pub bits: Option<f64>,
    /// See [`LoadRow::leveling_levels`].
    pub leveling_levels: Option<usize>,
    /// The fastest round.
    pub min_ns: f64,
    /// The slowest round.
    pub max_ns: f64,
    /// Operations a second by the clock on the wall in the slowest round.
    pub min_ops_per_second: f64,
    /// The same in the fastest round.
    pub max_ops_per_second: f64,
    /// Of an empty get that touches no block, the part that filters take; `None` where it was not measured.
    pub filter_ns: Option<f64>,
    /// The round of median time, with its counters.
    #[serde(flatten)]
    pub measurement: Measurement,
}
