//! Statistics of the filters, the marginal value of their bytes, and the continuous bound.

use tamis_base::ids::TableId;

use super::{MAX_UNITS, Manager, SegmentId};

/// All filters together.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What tables take without any unit, and the manager itself, in bytes.
    pub fixed: u64,
    /// Bytes of units, those being loaded included.
    pub held: u64,
    /// Gets since the start.
    pub gets: u64,
    /// In gets.
    pub life_time: u64,
    pub segments: u64,
    /// The number of segments with 0, 1, … units, including those being loaded.
    pub by_units: [u64; MAX_UNITS as usize + 1],
    /// The paper's E: expected wasted block reads per get, with all units that are in memory or
    /// being loaded.
    pub expected_reads: f64,
    /// The same if each segment had the best number of bits, which need not be whole units, and
    /// these took nothing beside themselves.
    pub least_reads: f64,
    /// Reads per get and byte that the cheapest unit in memory saves, about.
    pub price: f64,
    /// Units loaded.
    pub loads: u64,
    /// Units taken from segments for others, or because the budget shrank.
    pub unloads: u64,
    /// Loads of known tables that ended at a unit that could not be read.
    pub failed: u64,
}

/// One segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SegmentReport {
    pub id: SegmentId,
    /// Units held, including those being loaded.
    pub units: u8,
    /// Lookups of keys that the segment does not hold, per get of the database.
    pub misses: f64,
    /// All lookups that asked it, per get of the database.
    pub asked: f64,
    /// The share of its block reads that the block cache does not answer.
    pub cost: f64,
    /// The fraction of lookups of keys that it does not hold that its units let pass.
    pub rate: f64,
}

/// The marginal value of the filters' bytes, in reads per get and byte. Other block caches can be
/// valued in the same unit, so the border between the two can be moved to where bytes save more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Marginal {
    /// Reads saved by one more byte; 0 if a step's bytes are already free.
    pub gain: f64,
    /// Reads caused by one byte less. The part of a step that free bytes cover costs nothing.
    pub loss: f64,
}

impl Manager {
    /// The marginal value of adding or removing `step` bytes, as of the last adjustment. O(1).
    pub fn marginal(&self, step: u64) -> Marginal {
        let (step, free) = (step.max(1), self.budget.saturating_sub(self.used()));
        if free >= step {
            return Marginal { gain: 0.0, loss: 0.0 };
        }
        Marginal { gain: self.price, loss: self.price * (step - free) as f64 / step as f64 }
    }

    /// Returns the statistics of all filters. O(segments).
    pub fn report(&self) -> Report {
        let mut by_units = [0; MAX_UNITS as usize + 1];
        for segment in self.tables.values().flat_map(|table| &table.segments) {
            by_units[usize::from(segment.claimed())] += 1;
        }
        Report {
            fixed: self.fixed,
            held: self.held,
            gets: self.clock.gets(),
            life_time: self.clock.life_time(),
            segments: self.clock.segments(),
            by_units,
            expected_reads: self.expected_reads(),
            least_reads: self.least_reads(),
            price: self.price,
            loads: self.counts.loads,
            unloads: self.counts.unloads,
            failed: self.counts.failed,
        }
    }

    /// The continuous bound: see [`Report::least_reads`].
    fn least_reads(&self) -> f64 {
        let (mut keys, mut misses) = (Vec::new(), Vec::new());
        for table in self.tables.values() {
            for (i, segment) in table.segments.iter().enumerate() {
                keys.push(table.shape.keys(i));
                misses.push(self.clock.frequency(segment.misses));
            }
        }
        let all: u64 = keys.iter().sum();
        tamis_filter::theory::continuous(&keys, &misses, self.budget as f64 * 8.0 / all.max(1) as f64)
    }

    /// The segments of a table in key order; empty if the table is unknown.
    pub fn segments_of(&self, table: TableId) -> impl Iterator<Item = SegmentReport> + '_ {
        let known = self.tables.get(&table);
        let segments = known.map_or(&[][..], |table| &table.segments);
        (0..).zip(segments).map(move |(index, segment)| SegmentReport {
            id: SegmentId { table, segment: index },
            units: segment.claimed(),
            misses: self.clock.frequency(segment.misses),
            asked: self.clock.frequency(segment.asked),
            cost: f64::from(segment.cost) / f64::from(u8::MAX),
            rate: known.map_or(1.0, |table| table.rates[usize::from(segment.claimed())]),
        })
    }
}
