//! Statistics of the filters, and the marginal value of their bytes.

use super::adjust::LOOKS;
use super::clock::Clock;
use super::queues::{End, Slot};
use super::{MAX_UNITS, Manager, SegmentId};
use crate::ids::TableId;

/// The number of segments that are remembered after being refused a unit.
const WANTING: usize = 16;

/// The number of segments examined at an end of a queue to value bytes.
const HANDFUL: usize = LOOKS / 4;

/// Counters since the start.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) loads: u64,
    pub(super) loaded_bytes: u64,
    pub(super) unloads: u64,
    pub(super) refused: u64,
    pub(super) failed: u64,
}

/// All filters together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Report {
    pub(crate) budget: u64,
    /// Bytes of units in memory.
    pub(crate) used: u64,
    /// Bytes of units being loaded.
    pub(crate) reserved: u64,
    /// Gets since the start.
    pub(crate) gets: u64,
    /// In gets.
    pub(crate) life_time: u64,
    pub(crate) segments: u64,
    /// The number of segments with 0, 1, … units, including those being loaded.
    pub(crate) by_units: [u64; MAX_UNITS as usize + 1],
    /// The number of segments that were not asked during a lifetime.
    pub(crate) expired: u64,
    /// The paper's E: expected wasted block reads per get, with all units that are in memory or being loaded.
    pub(crate) expected_reads: f64,
    /// Loads that completed and were still wanted, and their bytes.
    pub(crate) loads: u64,
    pub(crate) loaded_bytes: u64,
    /// Units taken from segments for others, or because the budget shrank.
    pub(crate) unloads: u64,
    /// The number of times a unit would have paid off but the bytes were not available.
    pub(crate) refused: u64,
    /// Units of known tables that could not be read.
    pub(crate) failed: u64,
}

/// One segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SegmentReport {
    pub(crate) id: SegmentId,
    pub(crate) keys: u64,
    pub(crate) unit_bytes: u64,
    /// Units held, including those being loaded.
    pub(crate) units: u8,
    pub(crate) loading: bool,
    /// Lookups of keys that the segment does not hold, per get of the database.
    pub(crate) misses: f64,
    /// All lookups that asked it, per get of the database.
    pub(crate) asked: f64,
    pub(crate) expired: bool,
    /// The fraction of lookups of keys that it does not hold that its units let pass.
    pub(crate) rate: f64,
}

/// The marginal value of the filters' bytes, in reads per get and byte. Other block caches can be valued in the same unit, so
/// the border between the two can be moved to where bytes save more.
///
/// Both are estimates from a few segments, good for a step that is small relative to the budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Marginal {
    /// Reads saved by one more byte: the mean over the segments that were lately refused a unit and would gain most from one,
    /// or the gain of the best of the segments accessed last if none was refused. 0 if a step's bytes are already free.
    pub(crate) gain: f64,
    /// Reads caused by one byte less: what the cheapest of the least recently used units saves. The part of a step that free
    /// bytes cover costs nothing.
    pub(crate) loss: f64,
}

/// The segments that would have gained most from a unit they were refused.
#[derive(Debug, Default)]
pub(super) struct Wanting(Vec<Want>);

#[derive(Debug)]
struct Want {
    id: SegmentId,
    /// Reads per get and byte, as of `at`.
    worth: f64,
    at: u64,
}

impl Wanting {
    /// Records a refusal; drops the least valuable one if there are too many.
    pub(super) fn note(&mut self, id: SegmentId, worth: f64, clock: &Clock) {
        let want = Want { id, worth, at: clock.now() };
        if let Some(known) = self.0.iter_mut().find(|known| known.id == id) {
            *known = want;
        } else if self.0.len() < WANTING {
            self.0.push(want);
        } else {
            let now = |want: &Want| want.worth * clock.decay(want.at);
            let least = self.0.iter_mut().min_by(|a, b| now(a).total_cmp(&now(b)));
            if let Some(least) = least.filter(|least| now(least) < worth) {
                *least = want;
            }
        }
    }
}

impl Manager {
    /// The marginal value of adding or removing `step` bytes. O(1).
    pub(crate) fn marginal(&self, step: u64) -> Marginal {
        let step = step.max(1);
        if self.free() >= step {
            return Marginal { gain: 0.0, loss: 0.0 };
        }
        let per_byte = |slot: Slot, reads: f64| reads / self.queues[slot].unit_bytes as f64;
        let wants = |&slot: &Slot| {
            let segment = &self.queues[slot];
            segment.units() < segment.limit && !self.clock.expired(segment.last)
        };
        let refused = self.wanting.0.iter().filter(|want| !self.clock.expired(want.at));
        let refused = refused.filter_map(|want| self.slot(want.id)).filter(wants);
        let (reads, bytes) = refused.fold((0.0, 0.0), |(reads, bytes), slot| {
            (reads + self.gain(slot), bytes + self.queues[slot].unit_bytes as f64)
        });
        let accessed = (0..MAX_UNITS).flat_map(|units| self.queues.from(End::Mru, units).take(HANDFUL));
        let gain = if bytes > 0.0 {
            reads / bytes
        } else {
            accessed.filter(wants).map(|slot| per_byte(slot, self.gain(slot))).fold(0.0, f64::max)
        };
        let left = (1..=MAX_UNITS).flat_map(|units| self.queues.from(End::Lru, units).take(HANDFUL));
        let cheapest = left.map(|slot| per_byte(slot, self.loss(slot))).min_by(f64::total_cmp);
        let taken = (step - self.free()) as f64 / step as f64;
        Marginal { gain, loss: taken * cheapest.unwrap_or(0.0) }
    }

    /// Returns the statistics of all filters. O(segments).
    pub(crate) fn report(&self) -> Report {
        let expired = |&slot: &Slot| self.clock.expired(self.queues[slot].last);
        let mut by_units = [0; MAX_UNITS as usize + 1];
        for (units, count) in (0..).zip(&mut by_units) {
            *count = self.queues.len(units) as u64;
        }
        Report {
            budget: self.budget,
            used: self.held - self.reserved,
            reserved: self.reserved,
            gets: self.clock.gets(),
            life_time: self.clock.life_time(),
            segments: self.clock.segments(),
            by_units,
            expired: self.queues.all().filter(expired).count() as u64,
            expected_reads: self.queues.all().map(|slot| self.frequency(slot) * self.rate(slot)).sum(),
            loads: self.counts.loads,
            loaded_bytes: self.counts.loaded_bytes,
            unloads: self.counts.unloads,
            refused: self.counts.refused,
            failed: self.counts.failed,
        }
    }

    /// The segments of a table in key order; empty if the table is unknown.
    pub(crate) fn segments_of(&self, table: TableId) -> impl Iterator<Item = SegmentReport> + '_ {
        let slots = self.table(table).map_or(&[][..], |table| &table.slots);
        slots.iter().map(|&slot| {
            let segment = &self.queues[slot];
            SegmentReport {
                id: self.id(slot),
                keys: u64::from(segment.keys),
                unit_bytes: segment.unit_bytes,
                units: segment.units(),
                loading: segment.is_loading(),
                misses: self.frequency(slot),
                asked: segment.asked * self.clock.decay(segment.last),
                expired: self.clock.expired(segment.last),
                rate: self.rate(slot),
            }
        })
    }
}
