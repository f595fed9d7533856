//! What a database's counters tell of its workload.

use super::apply::read_path_of;
use super::{Data, Keys, Workload};
use crate::db::{KeyspaceStats, Stats};
use crate::options::{Compression, Options};

/// The operations and the data of a database, from its counters.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Observed {
    /// The operations between two readings of the counters.
    pub workload: Workload,
    /// What is stored, at the second reading.
    pub data: Data,
    /// How many operations there were.
    pub operations: u64,
    /// What the counters do not tell, and what was assumed instead.
    pub unknown: Vec<String>,
}

impl Observed {
    /// From two readings of [`Db::stats`](crate::Db::stats), the earlier one first, of a database with these options. Keyspaces
    /// are taken together, since counters of reads are; the data is that of the default one.
    ///
    /// Gets of absent keys are those that searched no run with success, less what memtables are likely to have answered.
    /// Iterators that read on through less than a block's worth of entries count as seeks. The counters know no skew and no
    /// distance of absent keys from present ones; what is not known is said in `unknown`.
    pub fn between(before: &Stats, after: &Stats, options: &Options) -> Observed {
        let (read, write) = (after.read - before.read, after.write - before.write);
        let mut unknown = Vec::new();
        let gets = read.gets as f64;
        let stored = after.keyspaces.first();
        let empty = if read.filter_probes > 0 || read.gets == 0 {
            // A run searched in vain was a false positive; what memtables answered searched none.
            let found = (read.runs_searched.saturating_sub(read.false_positives) as f64).min(gets);
            gets - (found / (1.0 - in_memtables(stored))).min(gets)
        } else {
            gets * without_filters(stored, read.runs_searched as f64 / gets, &mut unknown)
        };
        let scans = read.scans as f64;
        let data = data_of(after, options);
        // A scan's blocks beyond the first of each cursor are what it read on through.
        let in_block = (data.block_bytes as f64 / data.entry_bytes()).max(1.0);
        let blocks = read.block_reads.saturating_sub(read.runs_searched + read.seeks) as f64;
        let further = if scans > 0.0 { blocks * in_block / scans } else { 0.0 };
        let mut workload = Workload {
            empty_gets: empty,
            existing_gets: gets - empty,
            puts: write.writes as f64,
            ..Workload::default()
        };
        if scans > 0.0 {
            // Iterators without an end, or ranges: those that filters kept from opening anything were empty.
            let opened = (read.seeks as f64 / scans).min(1.0);
            workload.empty_ranges = scans * (1.0 - opened);
            if further >= 1.0 {
                workload.scans = scans * opened;
                workload.scan_entries = 1.0 + further / opened.max(f64::MIN_POSITIVE);
            } else {
                workload.seeks = scans * opened;
            }
            unknown.push("how wide ranges are; taken to be 64 integers where they were empty".to_owned());
        }
        unknown.push("whether reads are skewed; taken to ask for all keys alike".to_owned());
        unknown.push("whether absent keys lie right behind present ones; taken to lie anywhere".to_owned());
        let operations = read.gets + read.scans + write.writes;
        Observed { workload, data, operations, unknown }
    }
}

/// The data of the default keyspace.
fn data_of(stats: &Stats, options: &Options) -> Data {
    let keyspace = stats.keyspaces.first();
    let of = |f: fn(&KeyspaceStats) -> u64| keyspace.map_or(0, f);
    let entries = of(|k| k.entries) + of(|k| k.memtable_entries);
    let on_disk = of(|k| k.entries).max(1) as f64;
    let raw = of(|k| k.raw_bytes) as f64 / on_disk;
    let key_bytes = keyspace.and_then(key_bytes).unwrap_or(8.0).min(raw.max(1.0));
    let mut data = Data::new(entries.max(1), key_bytes, (raw - key_bytes).max(0.0));
    data.keys = if key_bytes <= 8.0 { Keys::Integers } else { Keys::Strings };
    data.memtable_bytes = options.keyspace.memtable_bytes;
    data.block_bytes = options.keyspace.block_bytes;
    data.read_path = read_path_of(options);
    data.compressed = options.keyspace.compression.at(options.keyspace.levels) != Compression::None;
    data
}

/// The mean length of the keys at the ends of runs: all that is known of keys without reading tables.
fn key_bytes(keyspace: &KeyspaceStats) -> Option<f64> {
    let runs = keyspace.levels.iter().flat_map(|level| &level.runs);
    let ends = runs.flat_map(|run| [&run.smallest, &run.largest]).filter(|key| !key.is_empty());
    let lengths: Vec<usize> = ends.map(Vec::len).collect();
    (!lengths.is_empty()).then(|| lengths.iter().sum::<usize>() as f64 / lengths.len() as f64)
}

/// The share of the entries that are in memtables, and not all of them.
fn in_memtables(keyspace: Option<&KeyspaceStats>) -> f64 {
    let Some(keyspace) = keyspace else { return 0.0 };
    let all = (keyspace.entries + keyspace.memtable_entries).max(1) as f64;
    (keyspace.memtable_entries as f64 / all).min(0.9)
}

/// The share of absent keys where no filter was asked: a get of one searches every run, others stop at the key's.
fn without_filters(keyspace: Option<&KeyspaceStats>, searched: f64, unknown: &mut Vec<String>) -> f64 {
    let runs = keyspace.into_iter().flat_map(|k| k.levels.iter().flat_map(|level| &level.runs));
    let entries: Vec<f64> = runs.map(|run| run.entries as f64).collect();
    let all: f64 = entries.iter().sum();
    if entries.len() < 2 || all == 0.0 {
        unknown.push("how many gets found nothing: no filter was asked; taken to be none".to_owned());
        return 0.0;
    }
    let present: f64 = (1..).zip(&entries).map(|(at, run)| f64::from(at) * run / all).sum();
    ((searched - present) / (entries.len() as f64 - present)).clamp(0.0, 1.0)
}
