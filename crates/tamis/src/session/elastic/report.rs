//! Statistics of elastic filters.

use std::sync::atomic::Ordering::Relaxed;

use tamis_base::key::KeyEnd;
use tamis_files::table::UnitDirectory;

use crate::catalogue::state::State;
use crate::session::elastic::{Elastic, elastic};

/// The elastic filters of a database. A "get" is one point lookup in any keyspace; gets are the
/// logical clock. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ElasticStats {
    /// The memory budget.
    pub budget_bytes: u64,
    /// The memory used: units, including those being loaded, and what is always in memory.
    pub used_bytes: u64,
    /// The part of it that is always in memory: segment boundaries and records of segments.
    pub index_bytes: u64,
    /// Memory of evicted units that gets are still using, in addition.
    pub retired_bytes: u64,
    /// Counted gets since the database was created or opened.
    pub gets: u64,
    /// What a get teaches counts half after eight times this many gets.
    pub life_time: u64,
    /// The current sampling interval: one get in this many is sampled.
    pub sampling: u64,
    /// The segments of all tables.
    pub segments: u64,
    /// The keys in them.
    pub keys: u64,
    /// The number of segments with no unit enabled, with one, two and so on.
    pub by_units: Vec<u64>,
    /// E\[Extra_IO\] of the paper: expected wasted block reads per get.
    pub expected_extra_reads: f64,
    /// The same if every segment had the best number of bits for its hotness, not necessarily whole
    /// units, and only these bits took memory: the lower bound for any filter of this size.
    pub least_extra_reads: f64,
    /// Units loaded since the database was opened.
    pub loads: u64,
    /// File reads for these loads. Adjacent units of a new table share one.
    pub load_reads: u64,
    /// Bytes fetched by these reads.
    pub load_bytes: u64,
    /// Units that could not be loaded: the read failed, or the unit was damaged.
    pub failed_loads: u64,
    /// Units replaced by others.
    pub evictions: u64,
    /// Sampled gets that were discarded because too many arrived at once.
    pub dropped_samples: u64,
}

impl ElasticStats {
    /// Returns the number of bits in memory per key, for any purpose.
    pub fn bits_per_key(&self) -> f64 {
        if self.keys == 0 { 0.0 } else { self.used_bytes as f64 * 8.0 / self.keys as f64 }
    }
}

/// One segment of a table with an elastic filter: several thousand adjacent keys.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SegmentStats {
    /// The keyspace's name.
    pub keyspace: String,
    /// The level of the table's run.
    pub level: usize,
    /// The run's id.
    pub run: u64,
    /// The table's number.
    pub table: u64,
    /// The segment's number within the table.
    pub segment: usize,
    /// Its smallest key.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::bytes"))]
    pub smallest: Vec<u8>,
    /// Its end: the next segment's smallest key, or the table's largest key (empty if unbounded).
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::bytes"))]
    pub end: Vec<u8>,
    /// The number of its keys.
    pub keys: u64,
    /// The bytes of one of its units in memory.
    pub unit_bytes: u64,
    /// The number of its units in memory.
    pub enabled: u32,
    /// The total number of its units.
    pub units: u32,
    /// Its hotness: lookups that its filter can save, of keys that it does not hold, per get of the
    /// database.
    pub hotness: f64,
    /// Lookups of any key that probed it, per get of the database.
    pub asked: f64,
    /// The recent share of its block reads that miss the block cache.
    pub uncached: f64,
}

impl Elastic {
    /// Returns the state of the filters; `None` if no table has an elastic filter.
    pub(crate) fn report(&self) -> Option<ElasticStats> {
        let inner = self.inner();
        if inner.tables.is_empty() {
            return None;
        }
        let report = inner.manager.report();
        let directories = || inner.tables.values().map(|known| known.filter.directory());
        let most = directories().map(|directory| directory.units() as usize).max().unwrap_or(0);
        // After a panic the manager knows nothing of the units that stay in use.
        let (used, fixed) = match inner.dead {
            true => inner.tables.values().map(|known| &known.filter).fold((0, 0), |(used, fixed), filter| {
                (used + filter.memory_bytes(), fixed + filter.fixed_bytes())
            }),
            false => (report.fixed + report.held, report.fixed),
        };
        Some(ElasticStats {
            budget_bytes: inner.manager.budget(),
            used_bytes: used,
            index_bytes: fixed,
            retired_bytes: self.retired.load(Relaxed),
            gets: report.gets,
            life_time: report.life_time,
            sampling: self.sampler.interval().into(),
            segments: report.segments,
            keys: directories().map(UnitDirectory::total_keys).sum(),
            by_units: report.by_units[..=most].to_vec(),
            expected_extra_reads: report.expected_reads,
            least_extra_reads: report.least_reads,
            loads: report.loads,
            load_reads: self.load_reads.load(Relaxed),
            load_bytes: self.load_bytes.load(Relaxed),
            failed_loads: report.failed,
            evictions: report.unloads,
            dropped_samples: self.sampler.dropped(),
        })
    }

    /// See [`Db::segments`](crate::Db::segments).
    pub(crate) fn segments(&self, state: &State) -> Vec<SegmentStats> {
        let inner = self.inner();
        let mut all = Vec::new();
        for keyspace in state.catalogue.keyspaces().values() {
            let version = keyspace.view.load().version.clone();
            for run in &version.runs {
                for (table, filter) in elastic(&version.tables[run.tables.clone()]) {
                    let directory = filter.directory();
                    let largest = match &table.meta.largest {
                        KeyEnd::Included(key) | KeyEnd::Excluded(key) => key.to_vec(),
                        KeyEnd::Unbounded => Vec::new(),
                    };
                    for (segment, known) in inner.manager.segments_of(table.meta.id).enumerate() {
                        let next = segment + 1;
                        all.push(SegmentStats {
                            keyspace: keyspace.name().to_owned(),
                            level: run.level,
                            run: run.id,
                            table: table.meta.id,
                            segment,
                            smallest: directory.first_key(segment).to_vec(),
                            end: match next < directory.segments() {
                                true => directory.first_key(next).to_vec(),
                                false => largest.clone(),
                            },
                            keys: directory.keys(segment),
                            unit_bytes: filter.bytes(segment, 2) - filter.bytes(segment, 1),
                            enabled: filter.enabled(segment),
                            units: directory.units(),
                            hotness: known.misses,
                            asked: known.asked,
                            uncached: known.cost,
                        });
                    }
                }
            }
        }
        all
    }
}
