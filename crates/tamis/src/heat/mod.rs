//! Which filter units are in memory: the heat of segments, and the adjustments that follow from it.
//!
//! ElasticBF (Li et al., USENIX ATC 2019, section 3). A table is cut into segments of neighbouring keys. Each segment
//! has a group of up to [`MAX_UNITS`] filter units of equal size and equal rate of false positives; the first k of
//! them are in memory, and together let r^k of the absent keys pass. A [`Manager`] knows how often each segment is
//! asked for keys that it does not hold and moves units to where they save most reads, within a budget of bytes. It
//! does no I/O: it says what to load and what to let go, and is told how that went.
//!
//! | file | what |
//! | --- | --- |
//! | `mod` | vocabulary; tables that come and go; loads that end |
//! | `clock` | logical time, decay, expiry (3.3) |
//! | `queues` | segments in their queues, by units and by last access (3.4) |
//! | `adjust` | accesses and what they move (3.4), free bytes, another budget |
//! | `inherit` | what new tables take over from old ones (3.3, figure 8) |
//! | `persist` | heat as bytes |
//! | `report` | what is seen from outside; what bytes are worth |
//! | `sampler` | which gets are counted; the only part for several threads |
//!
//! # Where it differs from the paper
//!
//! * The paper's frequency counts all accesses. Here only those count for which the key is not in the segment: for a
//!   key that is there the block is read anyway, and no filter can help. All accesses count for expiry, as in the
//!   paper, and in a second counter for reports.
//! * Frequencies decay, by half in every eight life times. Without that a segment that was hot long ago would be dear
//!   for ever.
//! * The budget is in bytes. Units of different tables differ in size, so several may have to go for one.
//! * A load costs a read. It has to promise more than that within one window ([`PAYS`](adjust::PAYS)), and what it wins
//!   must be more than the noise of the counts ([`NOISE`](adjust::NOISE)).
//! * A new segment's heat is a mean weighted by keys, over runs, and that of a flushed table is taken from the runs below it.
//!
//! # Invariants
//!
//! * The bytes of all units that segments have, those under way included, never exceed the budget.
//! * A segment has units 0..k for one k, and sits in queue k. A unit under way at or above k is no longer wanted.
//! * Of one unit of one segment at most one load is under way.
//! * An adjustment by an access never raises the expected number of reads; only expired segments lose by it.
//!
//! # Threads
//!
//! The manager is a plain value. Whoever shares it puts it into a mutex; nothing of it blocks or calls out. The sampler is for
//! all reading threads and says itself what they may do.
//!
//! # Costs
//!
//! An access is O(1): a hash lookup, a move in a list, and at most [`LOOKS`](adjust::LOOKS) segments looked at if a
//! unit is wanted and no bytes are free. Memory: 60 bytes a segment and the handle of its start key. Passes over
//! all segments: `report`, and `set_budget` if units have to go. Passes over the segments of some tables: `add_table`,
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
pub(crate) use persist::decode_heat;
pub(crate) use report::Marginal;
pub(crate) use sampler::{Sample, Sampler};

use adjust::Refusal;
use clock::Clock;
use queues::{End, Queues, Segment, Slot};
use report::{Counts, Wanting};

/// The most units that a segment can have.
pub(crate) const MAX_UNITS: u8 = 16;

/// One segment of one table. Table ids are unique in the database and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SegmentId {
    pub(crate) table: TableId,
    /// Its place in the table, by key.
    pub(crate) segment: u32,
}

/// A table as the manager knows it.
#[derive(Clone, Debug)]
pub(crate) struct TableSpec {
    pub(crate) id: TableId,
    /// Units of each segment; no more than [`MAX_UNITS`] are ever used.
    pub(crate) units: u8,
    /// The false positive rate of one unit, 0 to 1. That of k units is its k-th power.
    pub(crate) rate: f64,
    /// Ascending by key; each ends where the next begins.
    pub(crate) segments: Vec<SegmentSpec>,
    /// Where the last segment ends.
    pub(crate) end: KeyEnd,
}

/// A segment of a [`TableSpec`].
#[derive(Clone, Debug)]
pub(crate) struct SegmentSpec {
    /// No key of the segment is before this.
    pub(crate) start: KeyBytes,
    pub(crate) keys: u64,
    /// What one of its units takes in memory. A segment with units of no bytes has none.
    pub(crate) unit_bytes: u64,
}

/// How heat is measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeatConfig {
    /// A segment that is not asked during so many gets of the database is expired. `None`: as many as there are
    /// segments, at least 1000, times the gets that one that is counted stands for.
    pub(crate) life_time: Option<u64>,
    /// Whether new tables take over heat from old ones. Without, they begin with none.
    pub(crate) inheritance: bool,
}

/// How hot a segment is, as it is inherited and kept in the manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Heat {
    /// Lookups of keys that the segment does not hold, per get of the database.
    pub(crate) misses: f64,
    /// All lookups that asked it, per get of the database.
    pub(crate) asked: f64,
    /// Whether it counts as accessed now. If not, it counts as expired.
    pub(crate) recent: bool,
}

/// A unit to be loaded. Units of a segment are enabled in the order of their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) segment: SegmentId,
    pub(crate) unit: u8,
    pub(crate) bytes: u64,
}

/// A segment that lost units: it is to have its first `units` units and no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unload {
    pub(crate) segment: SegmentId,
    pub(crate) units: u8,
}

/// What an access leads to: first what goes, then what comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Adjustment {
    pub(crate) unload: Vec<Unload>,
    pub(crate) load: Load,
}

/// How a load ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The unit is in memory.
    Done,
    /// It cannot be read. The segment goes without it, and without those above it, as long as its table is known.
    Unreadable,
    /// It was not done: too much to do, or closing. It may be asked for again.
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

/// Heat of all segments of a database, and which of their units are in memory. See the module.
#[derive(Debug)]
pub(crate) struct Manager {
    clock: Clock,
    inheritance: bool,
    budget: u64,
    /// Bytes of all units that segments have, those under way included. At most `budget`.
    held: u64,
    /// The part of `held` that is under way.
    reserved: u64,
    places: HashMap<TableId, u32>,
    tables: Vec<Option<Table>>,
    free_places: Vec<u32>,
    queues: Queues,
    wanting: Wanting,
    /// The last search for victims in vain.
    refusal: Option<Refusal>,
    counts: Counts,
}

impl Manager {
    /// A manager that knows no table.
    pub(crate) fn new(config: HeatConfig, budget_bytes: u64) -> Manager {
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

    /// So many gets of the database went by, whether or not they asked a segment.
    pub(crate) fn advance(&mut self, gets: u64) {
        self.clock.advance(gets);
    }

    /// One get of so many is counted; 1 at first.
    pub(crate) fn sample(&mut self, interval: u32) {
        self.clock.sample(interval);
    }

    /// A new table, with the heat of each of its segments in the order of their keys. It has no units yet: call
    /// [`fill`](Manager::fill). O(segments · log segments).
    pub(crate) fn add_table(&mut self, spec: TableSpec, heat: Vec<Heat>) {
        debug_assert!(!self.places.contains_key(&spec.id), "table {} is known already", spec.id);
        debug_assert_eq!(spec.segments.len(), heat.len());
        self.remove_table(spec.id);
        let place = self.free_places.pop().unwrap_or_else(|| {
            self.tables.push(None);
            (self.tables.len() - 1) as u32
        });
        self.clock.add_segments(spec.segments.len());

        // The coldest are linked first, so they are nearest to the end from which units are taken.
        let heat_of = |index: usize| heat.get(index).copied().unwrap_or_default();
        let mut order: Vec<usize> = (0..spec.segments.len()).collect();
        order.sort_by(|&a, &b| heat_of(a).misses.total_cmp(&heat_of(b).misses));
        let mut slots = vec![Slot::NONE; order.len()];
        for index in order {
            let SegmentSpec { keys, unit_bytes, .. } = spec.segments[index];
            let limit = if unit_bytes == 0 { 0 } else { spec.units.min(MAX_UNITS) };
            let warmth = self.clock.warmth(heat_of(index));
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

    /// The table is gone, with all that its segments have. Loads that are under way for it will not be wanted when
    /// they end. Nothing if it is not known. O(segments).
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

    /// A load that was asked for has ended; this is told once for each, in any order. `true`: the unit is one that the
    /// segment has. `false`: drop it, and all units of the segment above it. They count no more: the table is gone,
    /// the load came to nothing, one below did, or the budget shrank meanwhile. O(1).
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

    /// Takes all units from `units` on away from a segment, those under way included.
    fn shrink(&mut self, slot: Slot, units: u8) {
        let segment = &self.queues[slot];
        let Some(lost) = segment.units().checked_sub(units).filter(|&lost| lost > 0) else { return };
        self.held -= u64::from(lost) * segment.unit_bytes;
        self.reserved -= u64::from(segment.under_way_from(units)) * segment.unit_bytes;
        let end = if self.clock.expired(segment.last) { End::Lru } else { End::Mru };
        self.queues.set_units(slot, units, end);
    }

    /// Notes that the next unit of a segment is under way.
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

    /// Bytes of the budget that nobody has.
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
