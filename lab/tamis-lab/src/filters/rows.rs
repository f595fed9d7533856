//! Rows of a point of an experiment: one for each database, and one for each of its measurements.

use serde::{Deserialize, Serialize};
use tamis_bench::measure::Measurement;

/// A loaded database.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadRow {
    /// `load`.
    pub kind: String,
    /// The experiment.
    pub experiment: String,
    /// The side's name.
    pub filter: String,
    /// The name of the keys.
    pub key_set: String,
    /// The varied value: `10 bits`, `2 leveling`; empty if nothing varies.
    pub point: String,
    /// Bits per key of all sides, where they vary.
    pub bits: Option<f64>,
    /// Number of leveling levels, where it varies.
    pub leveling_levels: Option<usize>,
    /// Number of keys put before the first measurement.
    pub keys: u64,
    /// Number of sorted runs before the first measurement.
    pub runs: usize,
    /// Number of sorted runs after the last measurement.
    pub runs_at_end: usize,
    /// Requested filter bits per key; 0 without a filter.
    pub bits_asked: f64,
    /// Memory of the filters in bytes, with directories and whatever else they keep.
    pub filter_bytes: u64,
    /// Memory of the filters in bits per entry.
    pub filter_bits_per_key: f64,
    /// Loading time, including flushes and the wait for compaction.
    pub load_ns_per_key: f64,
    /// Median duration of puts.
    pub put_p50_ns: u64,
    /// 99th percentile of the durations of puts.
    pub put_p99_ns: u64,
    /// Median duration of flushes.
    pub flush_p50_ns: u64,
    /// 99th percentile of the durations of flushes.
    pub flush_p99_ns: u64,
    /// Bytes written divided by bytes put, including the log, before the first measurement.
    pub load_write_amplification: f64,
    /// The same after the last measurement.
    pub write_amplification: f64,
    /// Whether a filter was requested but none is in memory: the figures are those of no filter.
    pub without_filter: bool,
}

/// One side's median round of a workload.
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
    /// Duration of an operation in the fastest round.
    pub min_ns: f64,
    /// Duration of an operation in the slowest round.
    pub max_ns: f64,
    /// Operations per second of wall-clock time in the slowest round.
    pub min_ops_per_second: f64,
    /// Operations per second of wall-clock time in the fastest round.
    pub max_ops_per_second: f64,
    /// The time of asking only the filters, for an operation of this workload; `None` where it was not measured.
    pub filter_ns: Option<f64>,
    /// The round of median time, with its counters.
    #[serde(flatten)]
    pub measurement: Measurement,
}
