//! What was measured, as rows.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::figures::Row;

/// Where and how a point was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Setting {
    /// The step's name.
    pub(super) point: String,
    /// The device's name.
    pub(super) device: String,
    /// Whether its latency was added, as opposed to measured.
    pub(super) emulated: bool,
    /// Absent keys in percent of all gets: 100 α.
    pub(super) absent_percent: f64,
    /// The exponent of Zipf's law, 0 for uniform.
    pub(super) skew: f64,
    /// Bytes of a key.
    pub(super) key_bytes: u64,
    /// Bytes of a value.
    pub(super) value_bytes: u64,
    /// Bits of filter a key.
    pub(super) bits_per_key: f64,
    /// `leveling` or `tiering`.
    pub(super) shape: String,
    /// Levels: L.
    pub(super) levels: u64,
    /// The size ratio: T.
    pub(super) size_ratio: u64,
    /// Sorted runs.
    pub(super) runs: u64,
    /// Keys in all runs.
    pub(super) keys: u64,
    /// Gets of each side in a round.
    pub(super) ops: u64,
    /// Rounds.
    pub(super) rounds: u64,
}

/// One side at one point. Times are nanoseconds; those of a get are, piece by piece, of the piece's median round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct GetRow {
    /// `get`.
    pub(super) kind: String,
    #[serde(flatten)]
    pub(super) setting: Setting,
    /// `each` (a digest for each filter) or `shared`.
    pub(super) side: String,
    /// A get.
    pub(super) ns_per_op: f64,
    /// The least with any one round left out.
    pub(super) min_ns: f64,
    /// The most with any one round left out.
    pub(super) max_ns: f64,
    /// Of a get: digests.
    pub(super) hash_ns: f64,
    /// Of a get: questions to filters.
    pub(super) probe_ns: f64,
    /// Of a get: reads of blocks.
    pub(super) data_ns: f64,
    /// Of a get: what is left.
    pub(super) rest_ns: f64,
    /// Whether the parts took longer than the whole, so that nothing is left.
    pub(super) parts_exceed: bool,
    /// Digests a get.
    pub(super) digests_per_op: f64,
    /// Filters asked a get.
    pub(super) filters_per_op: f64,
    /// Filters that let a key through that was not there, a get.
    pub(super) false_positives_per_op: f64,
    /// Blocks a get.
    pub(super) blocks_per_op: f64,
    /// Reads of the device a get.
    pub(super) reads_per_op: f64,
    /// T_H: one digest.
    pub(super) digest_ns: f64,
    /// T_P: one question.
    pub(super) filter_ns: f64,
    /// T_D: one read; 0 if there was none.
    pub(super) read_ns: f64,
    /// Reads, of all, that took longer than the emulated device.
    pub(super) late_reads: u64,
}

/// Both sides at one point, in percent of the time without sharing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct GainRow {
    /// `gain`.
    pub(super) kind: String,
    #[serde(flatten)]
    pub(super) setting: Setting,
    /// Of the times of the two rows.
    pub(super) gain_percent: f64,
    /// The least with any one round left out.
    pub(super) min_percent: f64,
    /// The greatest with any one round left out.
    pub(super) max_percent: f64,
    /// Of the gain, what digests alone are: the difference of their times, which is what the paper's gain is.
    pub(super) digests_percent: f64,
    /// The least of that with any one round left out.
    pub(super) digests_min_percent: f64,
    /// The most of that with any one round left out.
    pub(super) digests_max_percent: f64,
    /// What the paper's equation makes of the measured times.
    pub(super) model_percent: f64,
    /// The same with the rest in the cost.
    pub(super) model_with_rest_percent: f64,
}

/// A device that is not here.
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

/// A row that rows of a file can be made of.
pub(super) fn to_row(row: &impl Serialize) -> Row {
    match serde_json::to_value(row) {
        Ok(Value::Object(row)) => row,
        _ => Row::new(),
    }
}

/// All rows of a figure by kind. What cannot be understood is left out.
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

    /// The gains that `wanted` takes, in the order of measuring.
    pub(super) fn gains_where(&self, wanted: impl Fn(&Setting) -> bool) -> Vec<&GainRow> {
        self.gains.iter().filter(|row| wanted(&row.setting)).collect()
    }

    /// A side's row at the point of `setting`.
    pub(super) fn side(&self, setting: &Setting, side: &str) -> Option<&GetRow> {
        self.gets.iter().find(|row| row.setting.point == setting.point && row.side == side)
    }
}

fn parsed<R: DeserializeOwned>(rows: &[Row], kind: &str, point: impl Fn(&R) -> &String) -> Vec<R> {
    let of_kind = rows.iter().filter(|row| row.get("kind").and_then(Value::as_str) == Some(kind));
    let read = of_kind.filter_map(|row| serde_json::from_value(Value::Object(row.clone())).ok());
    // Without a point there is nothing to find it by.
    read.filter(|row| !point(row).is_empty()).collect()
}
