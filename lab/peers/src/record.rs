//! What one round of one workload on one engine took: one JSON object a line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engines::Inside;

/// Of which conditions a row tells. Rows of equal conditions and different systems are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Conditions {
    /// The suite, as the command line names it: `settled`, `runs`, `load`, `ycsb`, `mixgraph`, `cold`, `direct`, `keys`.
    pub suite: String,
    /// The workload's name.
    pub workload: String,
    /// Keys that exist when the suite begins.
    pub keys: u64,
    /// Bytes of a key.
    pub key_bytes: u64,
    /// Bytes of a value, on average.
    pub value_bytes: u64,
    /// Threads side by side.
    pub threads: usize,
    /// The block cache in bytes.
    pub cache_bytes: u64,
    /// Filter bits for a key.
    pub filter_bits: u32,
    /// Whether reads go past the page cache.
    pub direct_io: bool,
    /// Whether the page cache held nothing of the database at the start.
    pub cold: bool,
    /// Whether every write was synced.
    pub sync: bool,
    /// Whether compaction had finished, as opposed to: was held back.
    pub settled: bool,
    /// `none` or `lz4`.
    pub compression: String,
}

/// One round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Under which conditions.
    pub conditions: Conditions,
    /// The system: an engine's name, for tamis with the name of its variant (`tamis`, `tamis-grf`, …).
    pub system: String,
    /// The engine's version.
    pub version: String,
    /// The engine's options that were set, in its own words.
    pub options: BTreeMap<String, String>,
    /// From 0 on.
    pub round: u32,
    /// Why the engine could not be measured, if it could not; figures are 0 then.
    #[serde(default)]
    pub refused: Option<String>,
    /// The figures.
    pub figures: Figures,
}

/// What was measured. `*_per_op` are means over `ops` operations; an operation of a `multi-get` is one key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Operations over all threads.
    pub ops: u64,
    /// Mean nanoseconds of one operation on its thread.
    pub ns_per_op: f64,
    /// Operations per second over all threads.
    pub ops_per_second: f64,
    /// Quantiles of single operations, in nanoseconds; of a sample of them.
    pub p50_ns: u64,
    /// See `p50_ns`.
    pub p99_ns: u64,
    /// See `p50_ns`.
    pub p999_ns: u64,
    /// Nanoseconds from the last operation until compaction was done, for workloads that write.
    pub settle_ns: u64,
    /// Processor time of the process, user and system, background threads included, by operation; until compaction was
    /// done for workloads that write. The making of keys and the checks, the same for all engines, count.
    pub cpu_ns_per_op: f64,
    /// Bytes that the process asked the system to read, from the page cache or the device. Nothing of mapped files.
    pub read_bytes_per_op: f64,
    /// Bytes that the device read for the process, mapped files included.
    pub device_read_bytes_per_op: f64,
    /// Bytes that the process wrote to files, logs included, until compaction was done, by the bytes of keys and values
    /// put. 0 if nothing was put.
    pub write_amplification: f64,
    /// Bytes of the files in the database's directory by the bytes of all keys and values there.
    pub space_amplification: f64,
    /// Anonymous memory of the process after the round: caches, memtables, filters. Not mapped files.
    pub resident_bytes: u64,
    /// What the engine says of itself after the round.
    pub inside: Inside,
}
