//! The workload, derived from a database's counters.

use super::apply::read_path_of;
use super::{Data, Keys, ReadPath, Workload};
use crate::db::{KeyspaceStats, Stats};
use crate::options::{Compression, Options};
use crate::table::ReadCost;
use crate::tree::meta::TableMeta;

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
    /// Derives both from two readings of [`Db::stats`](crate::Db::stats), the earlier one first, of a database with these
    /// options. Keyspaces are combined, since the counters are; the data and the skew are those of the default keyspace.
    pub fn between(before: &Stats, after: &Stats, options: &Options) -> Observed {
        let data = data_of(after, options);
        let skew = after.keyspaces.first().and_then(|keyspace| keyspace.read_skew);
        let (workload, unknown) =
            workload_of(after.read - before.read, (after.write - before.write).writes, skew);
        let operations = operations_of(after.read - before.read, (after.write - before.write).writes);
        Observed { workload, data, operations, unknown }
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

/// Returns the number of reads and writes; an iterator counts as one.
pub(crate) fn operations_of(read: ReadCost, writes: u64) -> u64 {
    read.gets + read.scans + writes
}

/// Iterators that return at most this many entries on average count as seeks.
const SEEK_ENTRIES: f64 = 2.0;

/// Returns the operations that the counters show, and a list of what they do not show.
pub(crate) fn workload_of(read: ReadCost, writes: u64, skew: Option<f64>) -> (Workload, Vec<String>) {
    let mut unknown = Vec::new();
    let found = read.found.min(read.gets);
    let empty_scans = read.empty_scans.min(read.scans);
    let mut workload = Workload {
        empty_gets: (read.gets - found) as f64,
        existing_gets: found as f64,
        empty_ranges: empty_scans as f64,
        puts: writes as f64,
        ..Workload::default()
    };
    let scans = (read.scans - empty_scans) as f64;
    let entries = read.entries as f64 / scans.max(1.0);
    if entries > SEEK_ENTRIES {
        (workload.scans, workload.scan_entries) = (scans, entries);
    } else {
        workload.seeks = scans;
    }
    if empty_scans > 0 {
        unknown.push("the width of empty ranges; assumed to be 64 integers".to_owned());
    }
    match skew {
        Some(skew) => workload.skew = skew,
        None if found > 0 => {
            unknown.push(
                "the skew of reads (too few gets, or only multi-gets); assumed to be uniform".to_owned(),
            );
        }
        None => {}
    }
    if read.gets > found || empty_scans > 0 {
        unknown.push("whether absent keys lie right behind present ones; assumed to lie anywhere".to_owned());
    }
    (workload, unknown)
}

/// Returns the data of tables, supplemented by the options.
pub(crate) fn data_of_tables(tables: &[&TableMeta], options: &Options) -> Data {
    let entries: u64 = tables.iter().map(|table| table.entries).sum();
    let raw = tables.iter().map(|table| table.raw_bytes).sum::<u64>() as f64 / entries.max(1) as f64;
    let ends: Vec<f64> = tables.iter().map(|table| table.smallest.len() as f64).collect();
    let key_bytes = match ends.len() {
        0 => 8.0,
        count => ends.iter().sum::<f64>() / count as f64,
    };
    data(entries, key_bytes, raw, options)
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
fn data(entries: u64, key_bytes: f64, raw: f64, options: &Options) -> Data {
    let key_bytes = key_bytes.min(raw.max(1.0));
    let mut data = Data::new(entries.max(1), key_bytes, (raw - key_bytes).max(0.0));
    data.keys = if key_bytes <= 8.0 { Keys::Integers } else { Keys::Strings };
    data.memtable_bytes = options.keyspace.memtable_bytes;
    data.block_bytes = options.keyspace.block_bytes;
    data.read_path = read_path_of(options);
    data.compressed = options.keyspace.compression.at(options.keyspace.levels) != Compression::None;
    data
}

/// Returns the mean length of the keys at the ends of runs: all that is known of keys without reading tables.
fn key_bytes(keyspace: &KeyspaceStats) -> Option<f64> {
    let runs = keyspace.levels.iter().flat_map(|level| &level.runs);
    let ends = runs.flat_map(|run| [&run.smallest, &run.largest]).filter(|key| !key.is_empty());
    let lengths: Vec<usize> = ends.map(Vec::len).collect();
    (!lengths.is_empty()).then(|| lengths.iter().sum::<usize>() as f64 / lengths.len() as f64)
}
