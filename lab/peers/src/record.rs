//! The measurement of one round of one workload on one engine: one JSON object per line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engines::Inside;

/// The conditions of a row. Rows of equal conditions and different systems are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Conditions {
    /// The suite's name on the command line: `settled`, `load`, `steady`, …
    pub suite: String,
    /// The workload's name.
    pub workload: String,
    /// Number of keys when the suite begins.
    pub keys: u64,
    /// Size of a key in bytes, or the mean where lengths differ.
    pub key_bytes: u64,
    /// Where the keys come from: `uniform` are random ones of one length.
    #[serde(default = "uniform")]
    pub key_set: String,
    /// Mean size of a value in bytes.
    pub value_bytes: u64,
    /// Number of threads.
    pub threads: usize,
    /// Size of the block cache in bytes.
    pub cache_bytes: u64,
    /// Filter bits per key.
    pub filter_bits: u32,
    /// Whether reads bypass the page cache.
    pub direct_io: bool,
    /// Whether the page cache contained nothing of the database at the start.
    pub cold: bool,
    /// Whether every write was synced.
    pub sync: bool,
    /// Whether compaction had finished; otherwise it was held back.
    pub settled: bool,
    /// `none` or `lz4`.
    pub compression: String,
    /// Which keys are hot, in words, unless it is the workload that says so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hot_keys: String,
    /// Limit of all memory of the process, its page cache included. `None`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn uniform() -> String {
    "uniform".to_owned()
}

/// One round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The conditions.
    pub conditions: Conditions,
    /// The system: an engine's name, for tamis with the name of its variant (`tamis`, `tamis-grf`, …).
    pub system: String,
    /// Version of the engine.
    pub version: String,
    /// The engine's options that were set, as it spells them.
    pub options: BTreeMap<String, String>,
    /// Number of the round, from 0.
    pub round: u32,
    /// The reason if the engine could not be measured; figures are 0 then.
    #[serde(default)]
    pub refused: Option<String>,
    /// Where a put is when it returns, in words: see [`Engine::durability`](crate::engines::Engine::durability).
    #[serde(default)]
    pub durability: String,
    /// The figures.
    pub figures: Figures,
}

impl Row {
    /// Reports whether it only has counted instructions: under callgrind no other figure means anything.
    pub fn is_counted(&self) -> bool {
        self.figures.instructions_per_op > 0.0
    }
}

/// The measured values. `*_per_op` are means over `ops` operations; a `multi-get` counts as one operation per key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Number of operations over all threads.
    pub ops: u64,
    /// Mean nanoseconds of one operation on its thread.
    pub ns_per_op: f64,
    /// Operations per second over all threads.
    pub ops_per_second: f64,
    /// Quantiles of the durations of single operations in nanoseconds: of every put or batch if there is nothing but puts,
    /// otherwise from a sample.
    pub p50_ns: u64,
    /// See `p50_ns`.
    pub p99_ns: u64,
    /// See `p50_ns`.
    pub p999_ns: u64,
    /// The duration in nanoseconds that all but one in ten thousand puts or batches do not exceed. 0 if nothing was put.
    #[serde(default)]
    pub put_p9999_ns: u64,
    /// The longest put or batch in nanoseconds. 0 if nothing was put.
    #[serde(default)]
    pub slowest_put_ns: u64,
    /// Number of puts that returned in each second of the run, the last of which may be incomplete.
    #[serde(default)]
    pub puts_by_second: Vec<u32>,
    /// Nanoseconds from the start of the first thread to the end of the last, including the preparation of keys, values and
    /// expected answers, which `ns_per_op` and `ops_per_second` exclude. Divided by the operations.
    #[serde(default)]
    pub wall_ns_per_op: f64,
    /// Nanoseconds of the opening right before the operations, with none of the files in the page cache. 0 if there was
    /// none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub open_ns: u64,
    /// Nanoseconds from the last operation until compaction had finished, for workloads that write.
    pub settle_ns: u64,
    /// Processor time of the process per operation: user and system time, including background threads; until
    /// compaction had finished for workloads that write. Includes key generation and checks, which are the same for all
    /// engines.
    pub cpu_ns_per_op: f64,
    /// Instructions of one operation, counted by callgrind in a pass of its own, whose row has no other figures: those of the calling
    /// thread, with the check of the answer. 0 if not counted.
    #[serde(default)]
    pub instructions_per_op: f64,
    /// Bytes requested from the system, whether from the page cache or the device. Excludes mapped files.
    pub read_bytes_per_op: f64,
    /// Bytes read from the device for the process, including mapped files.
    pub device_read_bytes_per_op: f64,
    /// Read calls of the process. Excludes io_uring.
    #[serde(default)]
    pub reads_per_op: f64,
    /// Faults of mapped pages that were read from the device.
    #[serde(default)]
    pub major_faults_per_op: f64,
    /// Bytes written to files, including logs, until compaction had finished, divided by the bytes of keys and values
    /// put. 0 if nothing was put.
    pub write_amplification: f64,
    /// Size of the files in the database's directory divided by the size of all keys and values, right after the last
    /// operation. 0 if nothing was put.
    #[serde(default)]
    pub space_amplification_before_settling: f64,
    /// Size of the files in the database's directory divided by the size of all keys and values, at the end.
    pub space_amplification: f64,
    /// Anonymous memory of the process after the round: caches, memtables, filters. Excludes mapped files.
    pub resident_bytes: u64,
    /// The engine's own statistics after the round.
    pub inside: Inside,
}
