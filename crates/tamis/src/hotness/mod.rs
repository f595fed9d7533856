//! Decides which filter units are in memory: tracks the hotness of segments and adjusts their units to it.
//!
//! ElasticBF (Li et al., USENIX ATC 2019, section 3). A table is cut into segments of neighbouring keys. Each segment has a
//! group of up to [`MAX_UNITS`] filter units of equal size and equal false positive rate r. The first k of them are in memory
//! and together pass r^k of the absent keys. A [`Manager`] tracks how often each segment is asked for keys that it does not
//! hold, and moves units to where they save the most reads, within a byte budget. It does no I/O: it decides what to load and
//! unload, and is notified of the outcome.
//!
//! | file | what |
//! | --- | --- |
//! | `mod` | types; adding and removing tables; completed loads |
//! | `clock` | logical time, decay, expiry (3.3) |
//! | `queues` | segments in their queues, by units and by last access (3.4) |
//! | `adjust` | accesses and the adjustments they cause (3.4), free bytes, budget changes |
//! | `inherit` | what new tables inherit from old ones (3.3, figure 8) |
//! | `persist` | serialized hotness |
//! | `report` | statistics; the marginal value of bytes |
//! | `sampler` | which gets are counted; the only thread-safe part |
//!
//! # Differences from the paper
//!
//! * The paper's frequency counts all accesses. Here only accesses for a key that is not in the segment count: if the key is
//!   there, the block is read anyway and no filter can help. All accesses count for expiry, as in the paper, and in a second
//!   counter for reports.
//! * Frequencies decay by half every eight lifetimes. Otherwise a segment that was hot long ago would stay expensive forever.
//! * The budget is in bytes. Units of different tables differ in size, so several may have to be evicted for one.
//! * A load costs a read. It has to save more than that within one window ([`PAYS`](adjust::PAYS)), and the saving must exceed
//!   the noise of the counts ([`NOISE`](adjust::NOISE)).
//! * A new segment's hotness is a mean over runs weighted by keys; that of a flushed table is taken from the runs below it.
//!
//! # Invariants
//!
//! * The bytes of all units held by segments, including those being loaded, never exceed the budget.
//! * A segment has units 0..k for one k, and is in queue k. A unit at or above k that is being loaded is no longer wanted.
//! * At most one load of a given unit of a segment is in flight.
//! * An adjustment by an access never raises the expected number of reads; only expired segments lose units to it.
//!
//! # Threads
//!
//! The manager is a plain value; to share it, wrap it in a mutex. It never blocks and never calls out. The sampler is used by
//! all reading threads and documents its own rules.
//!
//! # Costs
//!
//! An access is O(1): a hash lookup, a move in a list, and at most [`LOOKS`](adjust::LOOKS) segments examined if a unit is
//! wanted and no bytes are free. Memory: 60 bytes per segment plus the handle of its start key. These pass over all segments:
//! `report`, and `set_budget` if units have to be evicted. These pass over the segments of some tables: `add_table`,
//! `remove_table`, `inherited`, `fill`, `encode`.

mod adjust;
mod clock;
mod inherit;
mod persist;
mod queues;
mod report;
mod sampler;
#[cfg(test)]
mod tests;

use crate::collections::HashMap;

use crate::ids::TableId;
use crate::key::{KeyBytes, KeyEnd};

pub(crate) use inherit::Origin;
pub(crate) use persist::decode_hotness;
pub(crate) use report::Marginal;
pub(crate) use sampler::{Sample, Sampler};

use adjust::Refusal;
use clock::Clock;
use queues::{End, Queues, Segment, Slot};
use report::{Counts, Wanting};

/// The maximum number of units per segment.
pub(crate) const MAX_UNITS: u8 = 16;

/// One segment of one table. Table ids are unique in the database and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SegmentId {
    pub(crate) table: TableId,
    /// Position in the table, in key order.
    pub(crate) segment: u32,
}

/// A table as described to the manager.
#[derive(Clone, Debug)]
pub(crate) struct TableSpec {
    pub(crate) id: TableId,
    /// Units per segment; at most [`MAX_UNITS`] are used.
    pub(crate) units: u8,
    /// The false positive rate of one unit, 0 to 1. The rate of k units is its k-th power.
    pub(crate) rate: f64,
    /// Ascending by key; each segment ends where the next begins.
    pub(crate) segments: Vec<SegmentSpec>,
    /// The end of the last segment.
    pub(crate) end: KeyEnd,
}

/// A segment of a [`TableSpec`].
#[derive(Clone, Debug)]
pub(crate) struct SegmentSpec {
    /// A lower bound on the segment's keys.
    pub(crate) start: KeyBytes,
    pub(crate) keys: u64,
    /// Memory of one unit, in bytes. A segment whose units have no bytes gets none.
    pub(crate) unit_bytes: u64,
}

/// How hotness is measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HotnessConfig {
    /// A segment that is not asked during this many gets of the database is expired. `None`: as many gets as there are
    /// segments, at least 1000, times the gets that one counted get stands for.
    pub(crate) life_time: Option<u64>,
    /// Whether new tables inherit hotness from old ones. Without it, they start cold.
    pub(crate) inheritance: bool,
}

/// How hot a segment is, as inherited and as stored in the manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Hotness {
    /// Lookups of keys that the segment does not hold, per get of the database.
    pub(crate) misses: f64,
    /// All lookups that asked the segment, per get of the database.
    pub(crate) asked: f64,
    /// Whether it counts as accessed now; otherwise it counts as expired.
    pub(crate) recent: bool,
}

/// A unit to load. Units of a segment are enabled in index order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) segment: SegmentId,
    pub(crate) unit: u8,
    pub(crate) bytes: u64,
}

/// A segment that lost units: it keeps its first `units` units only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unload {
    pub(crate) segment: SegmentId,
    pub(crate) units: u8,
}

/// The result of an access: what to unload first, then what to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Adjustment {
    pub(crate) unload: Vec<Unload>,
    pub(crate) load: Load,
}

/// The outcome of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The unit is in memory.
    Done,
    /// It cannot be read. The segment does without it, and without those above it, until its table is removed.
    Unreadable,
    /// The load was skipped: overload, or shutdown. It may be requested again.
    Skipped,
}

/// A known table.
#[derive(Debug)]
struct Table {
    id: TableId,
    rate: f64,
    starts: Box<[KeyBytes]>,
    end: KeyEnd,
    slots: Box<[Slot]>,
}

/// The hotness of all segments of a database, and which of their units are in memory. See the [module](self).
#[derive(Debug)]
pub(crate) struct Manager {
    clock: Clock,
    inheritance: bool,
    budget: u64,
    /// Bytes of all units held by segments, including those being loaded. At most `budget`.
    held: u64,
    /// The part of `held` that is being loaded.
    reserved: u64,
    places: HashMap<TableId, u32>,
    tables: Vec<Option<Table>>,
    free_places: Vec<u32>,
    queues: Queues,
    wanting: Wanting,
    /// The last search for victims that failed.
    refusal: Option<Refusal>,
    counts: Counts,
}

impl Manager {
    /// Creates a manager without tables.
    pub(crate) fn new(config: HotnessConfig, budget_bytes: u64) -> Manager {
        Manager {
            clock: Clock::new(config.life_time),
            inheritance: config.inheritance,
            budget: budget_bytes,
            held: 0,
            reserved: 0,
            places: HashMap::default(),
            tables: Vec::new(),
            free_places: Vec::new(),
            queues: Queues::default(),
            wanting: Wanting::default(),
            refusal: None,
            counts: Counts::default(),
        }
    }

    /// Advances logical time by this many gets of the database, whether or not they asked a segment.
    pub(crate) fn advance(&mut self, gets: u64) {
        self.clock.advance(gets);
    }

    /// Sets the sampling interval: one get in `interval` is counted; 1 initially.
    pub(crate) fn sample(&mut self, interval: u32) {
        self.clock.sample(interval);
    }

    /// Adds a table, with the hotness of each of its segments in key order. It has no units yet: call [`fill`](Manager::fill).
    /// O(segments · log segments).
    pub(crate) fn add_table(&mut self, spec: TableSpec, hotness: Vec<Hotness>) {
        debug_assert!(!self.places.contains_key(&spec.id), "table {} is known already", spec.id);
        debug_assert_eq!(spec.segments.len(), hotness.len());
        self.remove_table(spec.id);
        let place = self.free_places.pop().unwrap_or_else(|| {
            self.tables.push(None);
            (self.tables.len() - 1) as u32
        });
        self.clock.add_segments(spec.segments.len());

        // The coldest are linked first, so they end up nearest to the end that loses units first.
        let hotness_of = |index: usize| hotness.get(index).copied().unwrap_or_default();
        let mut order: Vec<usize> = (0..spec.segments.len()).collect();
        order.sort_by(|&a, &b| hotness_of(a).misses.total_cmp(&hotness_of(b).misses));
        let mut slots = vec![Slot::NONE; order.len()];
        for index in order {
            let SegmentSpec { keys, unit_bytes, .. } = spec.segments[index];
            let limit = if unit_bytes == 0 { 0 } else { spec.units.min(MAX_UNITS) };
            let warmth = self.clock.warmth(hotness_of(index));
            let keys = u32::try_from(keys).unwrap_or(u32::MAX);
            slots[index] =
                self.queues.insert(Segment::new(place, index as u32, keys, unit_bytes, limit, warmth));
        }
        self.tables[place as usize] = Some(Table {
            id: spec.id,
            rate: if spec.rate.is_nan() { 1.0 } else { spec.rate.clamp(0.0, 1.0) },
            starts: spec.segments.into_iter().map(|segment| segment.start).collect(),
            end: spec.end,
            slots: slots.into(),
        });
        self.places.insert(spec.id, place);
    }

    /// Removes a table and all units of its segments. Loads in flight for it are unwanted when they complete. Does nothing if
    /// the table is unknown. O(segments).
    pub(crate) fn remove_table(&mut self, id: TableId) {
        let Some(place) = self.places.remove(&id) else { return };
        let Some(table) = self.tables[place as usize].take() else { return };
        for &slot in &table.slots {
            self.shrink(slot, 0);
            self.queues.remove(slot);
        }
        self.clock.remove_segments(table.slots.len());
        self.free_places.push(place);
    }

    /// Reports a finished load; called once per load, in any order. `true`: the segment holds the unit. `false`: drop it and
    /// all higher units of the segment; they no longer count because the table was removed, this load or one below it failed,
    /// or the budget shrank meanwhile. O(1).
    pub(crate) fn loaded(&mut self, load: &Load, outcome: Outcome) -> bool {
        let Some(slot) = self.slot(load.segment) else { return false };
        let segment = &mut self.queues[slot];
        if !segment.end_load(load.unit) {
            return false;
        }
        if outcome == Outcome::Unreadable {
            segment.limit = segment.limit.min(load.unit);
        }
        let (wanted, bytes) = (load.unit < segment.units(), segment.unit_bytes);
        if wanted {
            self.reserved -= bytes;
        }
        if wanted && outcome == Outcome::Done {
            self.counts.loads += 1;
            self.counts.loaded_bytes += bytes;
            return true;
        }
        self.counts.failed += u64::from(outcome == Outcome::Unreadable);
        self.shrink(slot, load.unit);
        false
    }

    /// Takes all units from `units` on from a segment, including those being loaded.
    fn shrink(&mut self, slot: Slot, units: u8) {
        let segment = &self.queues[slot];
        let Some(lost) = segment.units().checked_sub(units).filter(|&lost| lost > 0) else { return };
        self.held -= u64::from(lost) * segment.unit_bytes;
        self.reserved -= u64::from(segment.under_way_from(units)) * segment.unit_bytes;
        let end = if self.clock.expired(segment.last) { End::Lru } else { End::Mru };
        self.queues.set_units(slot, units, end);
    }

    /// Marks the next unit of a segment as being loaded.
    fn reserve(&mut self, slot: Slot) -> Load {
        let segment = &mut self.queues[slot];
        let (unit, bytes) = (segment.units(), segment.unit_bytes);
        segment.begin_load(unit);
        self.queues.set_units(slot, unit + 1, End::Mru);
        self.held += bytes;
        self.reserved += bytes;
        debug_assert!(self.held <= self.budget);
        Load { segment: self.id(slot), unit, bytes }
    }

    /// Unused bytes of the budget.
    fn free(&self) -> u64 {
        self.budget - self.held
    }

    fn table(&self, id: TableId) -> Option<&Table> {
        self.tables[*self.places.get(&id)? as usize].as_ref()
    }

    fn slot(&self, id: SegmentId) -> Option<Slot> {
        self.table(id.table)?.slots.get(id.segment as usize).copied()
    }

    fn id(&self, slot: Slot) -> SegmentId {
        let segment = &self.queues[slot];
        SegmentId { table: self.table_of(segment).id, segment: segment.index }
    }

    fn table_of(&self, segment: &Segment) -> &Table {
        self.tables[segment.place as usize].as_ref().expect("a segment goes with its table")
    }
}
