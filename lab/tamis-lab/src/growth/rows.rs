//! Conversion between measurements and rows.

use serde::{Deserialize, Serialize};
use tamis_bench::measure::Measurement;

use crate::figures::Row;
use crate::figures::compare::Measured;
use crate::figures::rows::records;

/// The `kind` of an [`OpRow`].
pub(super) const OP: &str = "op";
/// The `kind` of a [`LoadRow`].
pub(super) const LOAD: &str = "load";

/// One operation of one side at one point: the round of median time with its counters, and the tree as it was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct OpRow {
    /// `op`.
    pub(super) kind: String,
    /// The filter.
    pub(super) side: String,
    /// Requested filter bits per key.
    pub(super) bits_asked: f64,
    /// Requested number of runs; 0 where the tree has the policy's shape.
    pub(super) runs_asked: u64,
    /// Runs of each level: `3/0/1`.
    pub(super) shape: String,
    /// The fastest round.
    pub(super) min_ns: f64,
    /// The slowest round.
    pub(super) max_ns: f64,
    /// The mean of all operations of a round with what interrupted them, where `ns_per_op` is the median of short pieces.
    pub(super) mean_ns: f64,
    /// Puts: nanoseconds of flush and compaction after a round, per put.
    pub(super) settle_ns_per_op: f64,
    /// Memory of all filters with their directories, per key.
    pub(super) memory_bits_per_key: f64,
    /// Memory of all indexes, per key.
    pub(super) index_bits_per_key: f64,
    /// Bytes of the table files.
    pub(super) table_bytes: u64,
    /// Memory of the database by its own account; mapped files are not part of it.
    pub(super) database_bytes: u64,
    /// Memory of the process, pages of mapped files included.
    pub(super) resident_bytes: u64,
    /// The part of it that is no file.
    pub(super) anonymous_bytes: u64,
    /// Memory that was available for programs and the page cache; 0 if unknown.
    pub(super) available_bytes: u64,
    /// Whether all tables fit into that memory; `None` if it is unknown.
    pub(super) fits_page_cache: Option<bool>,
    /// Size of the processor's second-level cache; 0 if unknown.
    pub(super) l2_bytes: u64,
    /// Size of the third-level one.
    pub(super) l3_bytes: u64,
    /// The round of median time.
    #[serde(flatten)]
    pub(super) measurement: Measurement,
}

impl OpRow {
    /// Returns the time of an operation.
    pub(super) fn ns(&self) -> Measured {
        Measured::new(self.measurement.ns_per_op, self.min_ns, self.max_ns)
    }

    /// Returns the memory of filters and indexes per key, in bytes.
    pub(super) fn lookup_bytes_per_key(&self) -> f64 {
        (self.memory_bits_per_key + self.index_bits_per_key) / 8.0
    }

    /// Reports whether the row has the necessary values, which rows of another version, or edited ones, may lack.
    fn is_sound(&self) -> bool {
        let m = &self.measurement;
        let times = [m.ns_per_op, self.min_ns, self.max_ns];
        !self.side.is_empty()
            && !m.workload.is_empty()
            && m.keys > 0
            && times.iter().all(|time| time.is_finite() && *time > 0.0)
    }

    fn place(&self) -> (&str, &str, u64, u64) {
        (&self.side, &self.measurement.workload, self.measurement.keys, self.runs_asked)
    }
}

/// The loading of one side at one point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct LoadRow {
    /// `load`.
    pub(super) kind: String,
    /// The filter.
    pub(super) side: String,
    /// Number of keys put.
    pub(super) keys: u64,
    /// Requested number of runs; 0 where the tree has the policy's shape.
    pub(super) runs_asked: u64,
    /// Number of flushes.
    pub(super) flushes: u64,
    /// Nanoseconds per put in the calls that put.
    pub(super) put_ns: f64,
    /// Nanoseconds per put waiting for flushes.
    pub(super) flush_ns: f64,
    /// Nanoseconds per put waiting for compactions.
    pub(super) compaction_ns: f64,
    /// Bytes written to files, including logs, per byte put.
    pub(super) write_amplification: f64,
}

/// Returns all readable rows of operations in order of points; the last one of each side, operation and point.
pub(super) fn ops(rows: &[Row]) -> Vec<OpRow> {
    let mut ops: Vec<OpRow> = Vec::new();
    for row in records::<OpRow>(rows, OP).into_iter().filter(OpRow::is_sound) {
        match ops.iter_mut().find(|other| other.place() == row.place()) {
            Some(other) => *other = row,
            None => ops.push(row),
        }
    }
    ops.sort_by_key(|row| (row.measurement.keys, row.runs_asked));
    ops
}

/// Returns all readable rows of loads in order of points; the last one of each side and point.
pub(super) fn loads(rows: &[Row]) -> Vec<LoadRow> {
    let mut loads: Vec<LoadRow> = Vec::new();
    for row in records::<LoadRow>(rows, LOAD).into_iter().filter(|row| row.keys > 0 && row.put_ns > 0.0) {
        let place = |row: &LoadRow| (row.side.clone(), row.keys, row.runs_asked);
        match loads.iter_mut().find(|other| place(other) == place(&row)) {
            Some(other) => *other = row,
            None => loads.push(row),
        }
    }
    loads.sort_by_key(|row| (row.keys, row.runs_asked));
    loads
}
