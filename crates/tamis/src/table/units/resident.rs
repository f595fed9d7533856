//! The elastic filter of one table as the read path uses it: for each segment the units that are in memory now.
//!
//! Y. Li et al., "ElasticBF: Elastic Bloom Filter with Hotness Awareness for Boosting Read Performance in Large Key-Value
//! Stores" (ATC 2019), section 3. Which units are in memory is decided elsewhere (`db/elastic`); here they are probed.
//!
//! # Threads
//!
//! Any thread may probe at any time without a lock: a segment's units are behind one [`ArcSwapOption`] and are replaced as a
//! whole. Changes ([`enable`](ElasticFilter::enable), [`keep`](ElasticFilter::keep)) are made by one thread at a time, the
//! holder of the lock of [`Elastic`](crate::db::elastic::Elastic). A reader that loaded the units before a change may probe
//! them after it, which is equally correct: no subset of a segment's units rejects any of its keys.
//!
//! # Memory
//!
//! Every unit in memory carries a [`Charge`] that was taken from the [`Budget`] before the unit was read, and is returned when
//! the last reader drops the unit. So the budget holds at every moment, not only between changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::{ArcSwapOption, Guard};
use tamis_filter::{Digest, ElasticSet, ElasticUnit, FilterError};

use super::UnitDirectory;

/// The byte budget of all units in memory.
///
/// Orderings: the counter guards nothing but itself, so all accesses are relaxed; the compare-exchange alone ensures that it
/// never exceeds the limit.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    limit: AtomicU64,
    used: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Budget {
        Budget { limit: AtomicU64::new(limit), used: AtomicU64::new(0) }
    }

    /// Changes the limit. If it is below the current use, nothing can be taken until enough has been returned.
    pub(crate) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Relaxed);
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Takes bytes, if that many are left.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        let limit = self.limit();
        let more = |used: u64| used.checked_add(bytes).filter(|&used| used <= limit);
        self.used.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Charge { budget: self.clone(), bytes })
    }
}

/// Bytes taken from a budget; returned on drop.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Relaxed);
    }
}

/// The units of one segment that are in memory.
#[derive(Clone, Debug)]
struct Enabled {
    set: ElasticSet,
    /// One per unit of the set, in the same order.
    charges: Vec<Arc<Charge>>,
}

/// The units to probe for a key: a segment, and its units at that moment.
#[derive(Debug)]
pub(crate) struct FoundUnits {
    pub(crate) segment: usize,
    units: Guard<Option<Arc<Enabled>>>,
}

impl FoundUnits {
    /// The units to probe; `None` if none is in memory.
    #[inline]
    pub(crate) fn units(&self) -> Option<&ElasticSet> {
        self.units.as_ref().map(|enabled| &enabled.set)
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct ElasticFilter {
    directory: UnitDirectory,
    /// One per segment; `None` if no unit is in memory.
    segments: Box<[ArcSwapOption<Enabled>]>,
}

impl ElasticFilter {
    /// Creates a filter with no unit in memory yet.
    pub(crate) fn new(directory: UnitDirectory) -> ElasticFilter {
        let segments = (0..directory.segments()).map(|_| ArcSwapOption::empty()).collect();
        ElasticFilter { directory, segments }
    }

    pub(crate) fn directory(&self) -> &UnitDirectory {
        &self.directory
    }

    /// The segment that `key`, whose [`prefix_of`](crate::key::prefix_of) is `prefix`, belongs to, if it is in the table.
    #[inline]
    pub(crate) fn segment_of(&self, key: &[u8], prefix: u64) -> usize {
        self.directory.segment_of(key, prefix)
    }

    /// Returns the segment of a key with its units, and prefetches the first of them.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], prefix: u64, digest: Option<Digest>) -> FoundUnits {
        let segment = self.segment_of(key, prefix);
        let units = self.segments[segment].load();
        if let (Some(enabled), Some(digest)) = (&*units, digest) {
            enabled.set.prefetch(digest);
        }
        FoundUnits { segment, units }
    }

    /// Puts a unit of a segment into use.
    ///
    /// # Errors
    /// [`FilterError::Parameter`] if it is in use already, or is not a unit of the segment.
    pub(crate) fn enable(
        &self,
        segment: usize,
        unit: ElasticUnit,
        charge: Charge,
    ) -> Result<(), FilterError> {
        let slot = &self.segments[segment];
        let mut enabled = match &*slot.load() {
            Some(enabled) => Enabled::clone(enabled),
            None => {
                let set = ElasticSet::new(self.directory.salt(segment));
                Enabled { set, charges: Vec::new() }
            }
        };
        let place = enabled.set.loaded().partition_point(|other| other.index() < unit.index());
        enabled.set.load(unit)?;
        enabled.charges.reserve_exact(1);
        enabled.charges.insert(place, Arc::new(charge));
        slot.store(Some(Arc::new(enabled)));
        Ok(())
    }

    /// Disables all units of a segment but the first `units`.
    pub(crate) fn keep(&self, segment: usize, units: u8) {
        let slot = &self.segments[segment];
        let Some(enabled) = slot.load_full() else { return };
        let kept = enabled.set.loaded().partition_point(|unit| unit.index() < u32::from(units));
        if kept == 0 {
            slot.store(None);
        } else if kept < enabled.charges.len() {
            let mut fewer = Enabled::clone(&enabled);
            while let Some(last) = fewer.set.loaded().get(kept).map(ElasticUnit::index) {
                fewer.set.unload(last);
            }
            fewer.charges.truncate(kept);
            slot.store(Some(Arc::new(fewer)));
        }
    }

    /// Disables all units: the table has left the tree. Remaining readers do without them.
    pub(crate) fn clear(&self) {
        self.segments.iter().for_each(|slot| slot.store(None));
    }

    /// The number of units of a segment in memory.
    pub(crate) fn enabled(&self, segment: usize) -> u32 {
        self.segments[segment].load().as_ref().map_or(0, |enabled| enabled.charges.len() as u32)
    }

    /// Bytes of the units in memory.
    pub(crate) fn unit_bytes(&self) -> u64 {
        let of = |slot: &ArcSwapOption<Enabled>| {
            slot.load().as_ref().map_or(0, |enabled| enabled.charges.iter().map(|c| c.bytes).sum::<u64>())
        };
        self.segments.iter().map(of).sum()
    }

    /// What a unit of a segment takes from the budget: its memory, and that of its charge.
    pub(crate) fn charge_of(&self, segment: usize) -> u64 {
        // An `Arc` has two counts before its contents, and there is the pointer to it.
        let charge = size_of::<Charge>() + 3 * size_of::<usize>();
        (self.directory.unit_memory_bytes(segment) + charge) as u64
    }

    /// Bytes outside the budget: the directory, and the structures for segments that have units.
    pub(crate) fn index_bytes(&self) -> usize {
        let holders = self.segments.iter().filter(|slot| slot.load().is_some()).count();
        let holder = size_of::<Enabled>() + 2 * size_of::<usize>();
        self.directory.memory_bytes() + size_of_val(&*self.segments) + holders * holder
    }
}
