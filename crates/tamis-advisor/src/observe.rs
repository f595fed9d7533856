//! The workload, derived from a database's counters.

use super::apply::read_path_of;
use super::{Data, Keys, Operations, ReadPath, Workload};
use tamis::Options;
use tamis::options::Compression;
use tamis::stats::{KeyspaceStats, Stats};

/// The operations and the data of a database, from its counters.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Observed {
    /// The operations between two readings of the counters.
    pub workload: Workload,
    /// What is stored, at the second reading.
    pub data: Data,
    /// The number of operations.
    pub operations: u64,
    /// What the counters do not show, and what was assumed instead.
    pub unknown: Vec<String>,
}

impl Observed {
    /// Derives both from two readings of [`Db::stats`](tamis::Db::stats), the earlier one first, of
    /// a database with these options. Keyspaces are combined, since the counters are; the data and
    /// the skew are those of the default keyspace.
    pub fn between(before: &Stats, after: &Stats, options: &Options) -> Observed {
        let data = data_of(after, options);
        let skew = after.keyspaces.first().and_then(|keyspace| keyspace.read_skew);
        let operations = operations_between(before, after);
        let (workload, unknown) = Workload::observed(&operations, skew);
        Observed { workload, data, operations: operations.total(), unknown }
    }
}

impl Observed {
    /// Returns how blocks reach readers under these options.
    pub fn read_path(options: &Options) -> ReadPath {
        read_path_of(options)
    }

    /// Reports whether the blocks of the deepest level are compressed under these options.
    pub fn compresses(options: &Options) -> bool {
        options.keyspace.compression.at(options.keyspace.levels) != Compression::None
    }
}

/// Returns the operations between two readings.
fn operations_between(before: &Stats, after: &Stats) -> Operations {
    let read = after.read - before.read;
    Operations {
        gets: read.gets,
        found: read.found,
        scans: read.scans,
        empty_scans: read.empty_scans,
        entries: read.entries,
        writes: (after.write - before.write).writes,
    }
}

/// Returns the data of the default keyspace.
fn data_of(stats: &Stats, options: &Options) -> Data {
    let keyspace = stats.keyspaces.first();
    let of = |f: fn(&KeyspaceStats) -> u64| keyspace.map_or(0, f);
    let entries = of(|k| k.entries) + of(|k| k.memtable_entries);
    let on_disk = of(|k| k.entries).max(1) as f64;
    let raw = of(|k| k.raw_bytes) as f64 / on_disk;
    data(entries, keyspace.and_then(key_bytes).unwrap_or(8.0), raw, options)
}

/// Describes `entries` entries of `raw` bytes each, `key_bytes` of which are the key.
pub(crate) fn data(entries: u64, key_bytes: f64, raw: f64, options: &Options) -> Data {
    let key_bytes = key_bytes.min(raw.max(1.0));
    let mut data = Data::new(entries.max(1), key_bytes, (raw - key_bytes).max(0.0));
    data.keys = if key_bytes <= 8.0 { Keys::Integers } else { Keys::Strings };
    data.memtable_bytes = options.keyspace.memtable_bytes;
    data.block_bytes = options.keyspace.block_bytes;
    data.read_path = read_path_of(options);
    data.compressed = options.keyspace.compression.at(options.keyspace.levels) != Compression::None;
    data
}

/// Returns the mean length of the keys at the ends of runs: all that is known of keys without
/// reading tables.
fn key_bytes(keyspace: &KeyspaceStats) -> Option<f64> {
    let runs = keyspace.levels.iter().flat_map(|level| &level.runs);
    let ends = runs.flat_map(|run| [&run.smallest, &run.largest]).filter(|key| !key.is_empty());
    let lengths: Vec<usize> = ends.map(Vec::len).collect();
    (!lengths.is_empty()).then(|| lengths.iter().sum::<usize>() as f64 / lengths.len() as f64)
}
