//! What elastic filters tell about themselves.

use std::sync::atomic::Ordering::Relaxed;

use super::{Elastic, elastic};
use crate::db::inner::State;
use crate::key::KeyEnd;
use crate::table::UnitDirectory;

/// What the manager keeps of a segment.
const BOOKKEEPING: u64 = 60;

/// The elastic filters of a database. "A get" is one point lookup in any keyspace: the logical clock. Sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ElasticStats {
    /// What the units in memory may take.
    pub budget_bytes: u64,
    /// What they take, those on their way into memory included.
    pub used_bytes: u64,
    /// What is always in memory beside them: where segments begin, and what is known of their heat.
    pub index_bytes: u64,
    /// Gets since the database was made or opened, as far as they were counted.
    pub gets: u64,
    /// Gets after which a segment that none of them asked has expired.
    pub life_time: u64,
    /// One get of so many is counted now.
    pub sampling: u64,
    /// Segments of all tables.
    pub segments: u64,
    /// Keys in them.
    pub keys: u64,
    /// Segments with no unit enabled, with one, two and so on.
    pub by_units: Vec<u64>,
    /// Segments that have expired.
    pub expired: u64,
    /// E\[Extra_IO\] of the paper: block reads for nothing to be expected of a get.
    pub expected_extra_reads: f64,
    /// Units loaded since opening.
    pub loads: u64,
    /// Reads from files that this took. Neighbouring units of a new table come with one.
    pub load_reads: u64,
    /// Bytes that these reads brought.
    pub load_bytes: u64,
    /// Units that could not be loaded: the read failed, or the unit was damaged.
    pub failed_loads: u64,
    /// Units that others took the place of.
    pub evictions: u64,
    /// Times that a segment would have paid for one more unit and nothing had expired to make room.
    pub refused: u64,
    /// Counted gets that were not taken account of, because there were too many at once.
    pub dropped_samples: u64,
}

impl ElasticStats {
    /// Bits of units in memory for each key.
    pub fn bits_per_key(&self) -> f64 {
        if self.keys == 0 { 0.0 } else { self.used_bytes as f64 * 8.0 / self.keys as f64 }
    }
}

/// One segment of a table with an elastic filter: some thousand neighbouring keys.
#[derive(Clone, Debug, Default, PartialEq)]
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
    pub smallest: Vec<u8>,
    /// Where it ends: the next segment's smallest key, or the table's largest key (empty if that has no end).
    pub end: Vec<u8>,
    /// Its keys.
    pub keys: u64,
    /// Bytes of one of its units in memory.
    pub unit_bytes: u64,
    /// Its units in memory.
    pub enabled: u32,
    /// Its units in all.
    pub units: u32,
    /// Lookups of keys that it does not hold, for each get of the database: what its filter can save.
    pub heat: f64,
    /// Lookups of any keys that asked it, for each get of the database.
    pub asked: f64,
    /// Whether it has expired.
    pub expired: bool,
}

impl Elastic {
    /// What is in memory and why; `None` if no table has an elastic filter.
    pub(crate) fn report(&self) -> Option<ElasticStats> {
        let inner = self.inner();
        if inner.tables.is_empty() {
            return None;
        }
        let report = inner.manager.report();
        let directories = || inner.tables.values().map(|known| known.filter.directory());
        let most = directories().map(|directory| directory.units() as usize).max().unwrap_or(0);
        Some(ElasticStats {
            budget_bytes: self.budget.limit(),
            used_bytes: self.budget.used(),
            index_bytes: inner.tables.values().map(|known| known.filter.index_bytes() as u64).sum::<u64>()
                + report.segments * BOOKKEEPING,
            gets: report.gets,
            life_time: report.life_time,
            sampling: self.sampler.interval().into(),
            segments: report.segments,
            keys: directories().map(UnitDirectory::total_keys).sum(),
            by_units: report.by_units[..=most].to_vec(),
            expired: report.expired,
            expected_extra_reads: report.expected_reads,
            loads: report.loads,
            load_reads: self.load_reads.load(Relaxed),
            load_bytes: self.load_bytes.load(Relaxed),
            failed_loads: report.failed,
            evictions: report.unloads,
            refused: report.refused,
            dropped_samples: self.sampler.dropped(),
        })
    }

    /// See [`Db::segments`](crate::Db::segments).
    pub(crate) fn segments(&self, state: &State) -> Vec<SegmentStats> {
        let inner = self.inner();
        let mut all = Vec::new();
        for keyspace in state.keyspaces.values() {
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
                            keyspace: keyspace.name.clone(),
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
                            unit_bytes: filter.charge_of(segment),
                            enabled: filter.enabled(segment),
                            units: directory.units(),
                            heat: known.misses,
                            asked: known.asked,
                            expired: known.expired,
                        });
                    }
                }
            }
        }
        all
    }
}
