//! Measurements as rows.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::figures::Row;

/// The setting of a point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Setting {
    /// The step's name.
    pub(super) point: String,
    /// The device's name.
    pub(super) device: String,
    /// Whether the device's latency was emulated.
    pub(super) emulated: bool,
    /// Absent keys in percent of all gets: 100 α.
    pub(super) absent_percent: f64,
    /// The exponent of Zipf's law, 0 for uniform.
    pub(super) skew: f64,
    /// Size of a key in bytes.
    pub(super) key_bytes: u64,
    /// Size of a value in bytes.
    pub(super) value_bytes: u64,
    /// Filter bits per key.
    pub(super) bits_per_key: f64,
    /// `leveling` or `tiering`.
    pub(super) shape: String,
    /// Number of levels: L.
    pub(super) levels: u64,
    /// The size ratio: T.
    pub(super) size_ratio: u64,
    /// Number of sorted runs.
    pub(super) runs: u64,
    /// Number of keys in all runs.
    pub(super) keys: u64,
    /// Number of gets of each side in a round.
    pub(super) ops: u64,
    /// Number of rounds.
    pub(super) rounds: u64,
}

/// One side at one point. Times are nanoseconds; those of a get are sums over pieces of each piece's median round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct GetRow {
    /// `get`.
    pub(super) kind: String,
    #[serde(flatten)]
    pub(super) setting: Setting,
    /// `each` (a digest for each filter) or `shared`.
    pub(super) side: String,
    /// Filter bits per key in memory, with all that the filters keep.
    pub(super) filter_bits_per_key: f64,
    /// Duration of a get.
    pub(super) ns_per_op: f64,
    /// Minimum with any one round left out.
    pub(super) min_ns: f64,
    /// Maximum with any one round left out.
    pub(super) max_ns: f64,
    /// Part of a get: digests.
    pub(super) hash_ns: f64,
    /// Part of a get: queries of filters.
    pub(super) probe_ns: f64,
    /// Part of a get: reads of blocks.
    pub(super) data_ns: f64,
    /// Part of a get: the remainder.
    pub(super) rest_ns: f64,
    /// Whether the parts took longer than the whole, so that nothing is left.
    pub(super) parts_exceed: bool,
    /// Digests per get.
    pub(super) digests_per_op: f64,
    /// Filters queried per get.
    pub(super) filters_per_op: f64,
    /// False positives of filters per get.
    pub(super) false_positives_per_op: f64,
    /// Blocks per get.
    pub(super) blocks_per_op: f64,
    /// Reads of the device per get.
    pub(super) reads_per_op: f64,
    /// T_H: one digest.
    pub(super) digest_ns: f64,
    /// T_P: one query of a filter.
    pub(super) filter_ns: f64,
    /// T_D: one read; 0 if there were none.
    pub(super) read_ns: f64,
    /// Number of reads that took longer than the emulated device.
    pub(super) late_reads: u64,
}

/// Both sides at one point; percentages refer to the time without sharing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct GainRow {
    /// `gain`.
    pub(super) kind: String,
    #[serde(flatten)]
    pub(super) setting: Setting,
    /// The gain, from the times of the two rows.
    pub(super) gain_percent: f64,
    /// Minimum with any one round left out.
    pub(super) min_percent: f64,
    /// Maximum with any one round left out.
    pub(super) max_percent: f64,
    /// The digests' part of the gain: the difference of their times, which corresponds to the paper's gain.
    pub(super) digests_percent: f64,
    /// Minimum of that with any one round left out.
    pub(super) digests_min_percent: f64,
    /// Maximum of that with any one round left out.
    pub(super) digests_max_percent: f64,
    /// The prediction of the paper's equation from the measured times.
    pub(super) model_percent: f64,
    /// The prediction with the rest included in the cost.
    pub(super) model_with_rest_percent: f64,
}

/// A device that is not available.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct MissingRow {
    /// `missing`.
    pub(super) kind: String,
    /// The step's name.
    pub(super) point: String,
    /// The device's name.
    pub(super) device: String,
    /// Why.
    pub(super) why: String,
}

/// The side with a digest for each filter.
pub(super) const EACH: &str = "each";
/// The side with one digest.
pub(super) const SHARED: &str = "shared";

/// Converts a row to one that can be stored.
pub(super) fn to_row(row: &impl Serialize) -> Row {
    match serde_json::to_value(row) {
        Ok(Value::Object(row)) => row,
        _ => Row::new(),
    }
}

/// All rows of a figure by kind. Unreadable ones are skipped.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) gets: Vec<GetRow>,
    pub(super) gains: Vec<GainRow>,
    pub(super) missing: Vec<MissingRow>,
}

impl Measured {
    pub(super) fn of(rows: &[Row]) -> Measured {
        Measured {
            gets: parsed(rows, "get", |row: &GetRow| &row.setting.point),
            gains: parsed(rows, "gain", |row: &GainRow| &row.setting.point),
            missing: parsed(rows, "missing", |row: &MissingRow| &row.point),
        }
    }

    /// Returns the gains that satisfy `wanted`, in the order of measuring.
    pub(super) fn gains_where(&self, wanted: impl Fn(&Setting) -> bool) -> Vec<&GainRow> {
        self.gains.iter().filter(|row| wanted(&row.setting)).collect()
    }

    /// Returns a side's row at the point of `setting`.
    pub(super) fn side(&self, setting: &Setting, side: &str) -> Option<&GetRow> {
        self.gets.iter().find(|row| row.setting.point == setting.point && row.side == side)
    }
}

fn parsed<R: DeserializeOwned>(rows: &[Row], kind: &str, point: impl Fn(&R) -> &String) -> Vec<R> {
    let of_kind = rows.iter().filter(|row| row.get("kind").and_then(Value::as_str) == Some(kind));
    let read = of_kind.filter_map(|row| serde_json::from_value(Value::Object(row.clone())).ok());
    // Rows without a point cannot be looked up.
    read.filter(|row| !point(row).is_empty()).collect()
}
