//! Counts which tables gets ask, for `filter_allocation = mnemosyne`. Only a random sample counts,
//! so that reading threads seldom write to shared memory.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tamis_policy::hotness::SegmentId;
use thread_local::ThreadLocal;

use super::probe::{Probe, SampledProbes};
use crate::sampling::Stride;
use crate::tree::version::Version;

/// One get in this many is counted.
const INTERVAL: u32 = 16;

/// Sampled gets after which counts are halved: a million gets.
const ERA: u64 = 1 << 16;

/// Samples the gets of one keyspace. Any thread may call it; each draws its own numbers.
#[derive(Debug, Default)]
pub(crate) struct AccessSampler {
    strides: ThreadLocal<Stride>,
    /// Sampled gets so far. Relaxed, as are the counters of tables.
    sampled: AtomicU64,
}

impl AccessSampler {
    /// Called once for each get; returns whether it is sampled.
    #[inline]
    pub(crate) fn tick(&self) -> bool {
        self.strides.get_or(|| Stride::new(self.strides.iter().count(), INTERVAL)).tick(INTERVAL)
    }

    /// If the get is sampled, notes the tables (their numbers within the version) that it asks
    /// next, newest run first.
    #[inline]
    pub(super) fn note(&self, version: &Version, probe: &mut Probe<'_>, tables: impl Iterator<Item = usize>) {
        if let Some(asked) = probe.count_with(|| self.tick()) {
            for table in tables {
                asked.push(table, SegmentId { table: version.tables[table].meta.id, segment: 0 });
            }
        }
    }

    /// Counts a sampled get that has ended.
    pub(super) fn record(&self, version: &Version, asked: &SampledProbes) {
        self.sampled.fetch_add(1, Relaxed);
        let era = self.era();
        for (table, held) in asked.needed_tables() {
            version.tables[table].accesses.count(era, held);
        }
    }

    /// Returns the era that the tables' counts refer to.
    pub(crate) fn era(&self) -> u64 {
        self.sampled.load(Relaxed) / ERA
    }
}
