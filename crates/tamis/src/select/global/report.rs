//! Statistics of a global filter.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use tamis_filter::global::MapChoice;

use super::cell::Cell;
use super::grf::Grf;

/// A keyspace's global filter at one moment. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct GlobalFilterStats {
    /// `grf`, or the name of a filter supplied by the program.
    pub kind: String,
    /// Number of key ranges with their own partition.
    pub partitions: usize,
    /// Number of key ranges read without the filter: their partitions are not built yet or could
    /// not be.
    pub unbuilt: usize,
    /// Number of entries: one per key and run, minus joined ones, plus remaining entries of deleted
    /// keys.
    pub entries: u64,
    /// Memory of the current partitions and their directory.
    pub bytes: u64,
    /// Memory of old partitions used only by readers of older versions.
    pub old_bytes: u64,
    /// Bits of run codes per entry, if the filter has any.
    pub code_bits: f64,
    /// Expected number of entries that match a random absent key.
    pub expected_rate: f64,
    /// The kinds of key maps in use, the number of partitions of each, and why.
    pub maps: Vec<KeyMapStats>,
    /// Number of flushes and ingestions whose keys are not in the filter yet, or cannot be read.
    pub tables_outside: usize,
    /// Keys added since opening, without rebuilds, and the time this took in nanoseconds.
    pub inserted: (u64, u64),
    /// Rebuilds since opening, and the time they took in nanoseconds.
    pub rebuilt: (u64, u64),
    /// Partitions whose codes were collected since opening, without reading keys, and the time this
    /// took in nanoseconds.
    pub collected: (u64, u64),
    /// Keys read from the key lists of flushed and ingested tables since opening.
    pub keys_from_lists: u64,
    /// Keys read since opening from the data of tables without a key list, or with a damaged one:
    /// for rebuilds, and to add keys that the filter files lack.
    pub keys_from_data: u64,
    /// How often a key list was found damaged since opening. The keys then come from the data.
    pub damaged_lists: u64,
    /// Key ranges whose partition was read from a filter file since opening.
    pub images_loaded: u64,
    /// Partitions saved in filter files since opening.
    pub images_saved: u64,
}

/// The partitions of a global filter that use one kind of key map.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct KeyMapStats {
    /// `learned`, `digest`, `mixed` or `local`.
    pub map: String,
    /// Number of partitions that use it.
    pub partitions: usize,
    /// False positive rate of the learned map on keys held out at build time (a share of 1): the
    /// mean over the partitions where it was measured.
    pub holdout_rate: Option<f64>,
    /// The best rate that any map can have, for comparison.
    pub ideal_rate: f64,
}

impl Grf {
    /// Returns the statistics of the filter.
    pub(crate) fn report(&self) -> GlobalFilterStats {
        let directory = self.directory.load_full();
        let mut stats = GlobalFilterStats { kind: "grf".into(), ..GlobalFilterStats::default() };
        let mut maps: BTreeMap<&'static str, (usize, f64, usize, f64)> = BTreeMap::new();
        let mut last: Option<*const Cell> = None;
        for (_, cell) in &directory.parts {
            // One cell may serve two ranges with a newer one between them.
            if last.replace(std::sync::Arc::as_ptr(cell)) == Some(std::sync::Arc::as_ptr(cell)) {
                continue;
            }
            let Some(partition) = cell.partition.load_full() else {
                stats.unbuilt += 1;
                continue;
            };
            let entries = partition.entries();
            stats.bytes += cell.memory_bytes() as u64;
            stats.partitions += 1;
            stats.entries += entries;
            stats.bytes += partition.memory_bytes() as u64;
            stats.bytes += cell.prefixes.load_full().map_or(0, |prefixes| prefixes.memory_bytes() as u64);
            stats.code_bits += partition.code_bits() * entries as f64;
            stats.expected_rate += partition.expected_rate();
            let reason = partition.reason();
            let map = maps.entry(name(reason.chosen)).or_default();
            map.0 += 1;
            map.1 += reason.holdout_rate.unwrap_or(0.0);
            map.2 += usize::from(reason.holdout_rate.is_some());
            map.3 += reason.ideal_rate;
        }
        stats.code_bits /= stats.entries.max(1) as f64;
        stats.expected_rate /= stats.partitions.max(1) as f64;
        stats.maps = maps
            .into_iter()
            .map(|(map, (partitions, rate, measured, ideal))| KeyMapStats {
                map: map.into(),
                partitions,
                holdout_rate: (measured > 0).then(|| rate / measured as f64),
                ideal_rate: ideal / partitions as f64,
            })
            .collect();
        stats.old_bytes = {
            let mut old = self.old.lock();
            old.retain(|cell| cell.strong_count() > 0);
            let cells = old.iter().filter_map(std::sync::Weak::upgrade);
            let parts = |cell: std::sync::Arc<Cell>| {
                cell.partition.load_full().into_iter().chain(cell.prefixes.load_full())
            };
            cells.flat_map(parts).map(|partition| partition.memory_bytes() as u64).sum()
        };
        stats.bytes += self.young.lock().memory_bytes() as u64;
        stats.tables_outside = self.missing.lock().len();
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
        stats.inserted = (count(&self.counts.inserted), count(&self.counts.insert_ns));
        stats.rebuilt = (count(&self.counts.built), count(&self.counts.build_ns));
        stats.collected = (count(&self.counts.collected), count(&self.counts.collect_ns));
        [stats.keys_from_lists, stats.keys_from_data, stats.damaged_lists] = self.notes.counts();
        stats.images_loaded = count(&self.counts.images_loaded);
        stats.images_saved = count(&self.counts.images_saved);
        stats
    }
}

fn name(map: MapChoice) -> &'static str {
    match map {
        MapChoice::Auto => "auto",
        MapChoice::Learned => "learned",
        MapChoice::Digest => "digest",
        MapChoice::Mixed => "mixed",
        MapChoice::Local => "local",
    }
}
