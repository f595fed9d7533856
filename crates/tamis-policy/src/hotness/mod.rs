//! Decides which filter units are in memory: tracks the hotness of segments and moves units to
//! where they save most.
//!
//! ElasticBF (Li et al., USENIX ATC 2019, section 3). A table is cut into segments of neighbouring
//! keys. Each segment has a group of up to [`MAX_UNITS`] filter units. The first k of them are in
//! memory and together pass some share of the absent keys. A [`Manager`] tracks how often each
//! segment is asked for keys that it does not hold, and decides which units are to be in memory,
//! within a byte budget. It does no I/O: it says what to load and unload, and is notified of the
//! outcome.
//!
//! | file | what |
//! | --- | --- |
//! | `mod` | types; adding and removing tables; completed loads |
//! | `clock` | logical time and decay (3.3) |
//! | `place` | which units are worth their bytes (3.4) |
//! | `inherit` | what new tables inherit from old ones (3.3, figure 8) |
//! | `persist` | serialized hotness |
//! | `report` | statistics; the marginal value of bytes; the continuous bound |
//!
//! # Differences from the paper
//!
//! * The paper's frequency counts all accesses. Here only accesses for a key that is not in the
//!   segment count: if the key is there, the block is read anyway and no filter can help. All
//!   accesses are a second counter, for flushed tables and reports.
//! * Frequencies decay. Otherwise a segment that was hot long ago would stay expensive forever.
//! * A miss counts as much as reads of its segment cost: those that the block cache answers cost
//!   nothing.
//! * Units move by value. The paper takes them from segments that were not accessed for a lifetime,
//!   in the order of a multi-queue; nothing moves there while nothing expires, however much another
//!   segment would save.
//! * The budget is in bytes, and covers what is always in memory as well.
//! * A new segment's hotness is a mean over runs weighted by keys; that of a flushed table is taken
//!   from the runs below it.
//!
//! # Invariants
//!
//! * The bytes of all units that segments hold or load, with the tables' fixed bytes, never exceed
//!   the budget, unless the fixed bytes alone do: then no segment holds a unit.
//! * A segment holds units 0..k for one k. At most one load of a segment is under way; it brings
//!   the units from k on.
//!
//! # Threads
//!
//! The manager is a plain value; to share it, wrap it in a mutex. It never blocks and never calls
//! out, except to ask a table's [`Segments`] for sizes and borders. The engine decides which gets
//! are counted, and by whom.
//!
//! # Costs
//!
//! An access is O(1). [`adjust`](Manager::adjust) passes over all segments some ten times, at some
//! nanoseconds each; it is due after a quarter as many accesses. Memory: [`SEGMENT_BYTES`] bytes a
//! segment. `report` and `set_budget` pass over all segments, `add_table`, `inherited`, `encode`
//! over those of a table.

mod clock;
mod inherit;
mod persist;
mod place;
mod report;
/// Counters since the start.
#[derive(Debug, Default)]
struct Counts {
    pub(super) loads: u64,
    pub(super) unloads: u64,
    pub(super) failed: u64,
}

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use clock::Clock;
use tamis_base::ids::TableId;
use tamis_base::key::{BorderKey, KeyEnd};

pub use inherit::{Origin, Range, reaches, share};
pub use persist::decode_hotness;
pub use place::Adjustment;
pub use report::Marginal;

/// The maximum number of units per segment.
pub const MAX_UNITS: u8 = 16;

/// The manager's memory per segment, in bytes.
pub const SEGMENT_BYTES: u64 = size_of::<Segment>() as u64;
const _: () = assert!(SEGMENT_BYTES == 12, "the documents name this number");

/// One segment of one table. Table ids are unique in the database and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId {
    /// The table.
    pub table: TableId,
    /// Position in the table, in key order.
    pub segment: u32,
}

/// The segments of a table, in key order: what is always the same about them.
pub trait Segments: std::fmt::Debug + Send + Sync {
    /// The number of segments.
    fn count(&self) -> usize;

    /// A lower bound on a segment's keys that those of the segment before do not reach.
    fn start(&self, segment: usize) -> BorderKey;

    /// The number of keys.
    fn keys(&self, segment: usize) -> u64;

    /// Memory of the first `units` units, in bytes. Each unit takes about the same.
    fn bytes(&self, segment: usize, units: u8) -> u64;
}

/// A table as described to the manager.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// Its number.
    pub id: TableId,
    /// The false positive rates of 0, 1, … all units of a segment together, descending; at most
    /// [`MAX_UNITS`] units are used.
    pub rates: Vec<f64>,
    /// Its segments.
    pub segments: Arc<dyn Segments>,
    /// The end of the last segment.
    pub end: KeyEnd,
    /// Memory that the table takes without any unit, in bytes, without the manager's own.
    pub fixed_bytes: u64,
}

/// How hotness is measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct HotnessConfig {
    /// The window over which counts are halved is eight of these, in gets. `None`: it follows the
    /// number of segments.
    pub life_time: Option<u64>,
    /// Whether new tables inherit hotness from old ones. Without it, they start cold.
    pub inheritance: bool,
}

/// How hot a segment is, as inherited and as stored in the manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hotness {
    /// Lookups of keys that the segment does not hold, per get of the database.
    pub misses: f64,
    /// All lookups that asked the segment, per get of the database.
    pub asked: f64,
}

/// Whether a get read a block of a segment's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockRead {
    /// It did not search the table.
    #[default]
    None,
    /// The block cache had it.
    Cached,
    /// From the file, or from its mapping.
    Fetched,
}

/// A segment that a counted get asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The segment.
    pub id: SegmentId,
    /// The number of gets it stands for.
    pub weight: u32,
    /// Whether the segment held the key.
    pub held: bool,
    /// Whether it read a block there.
    pub read: BlockRead,
}

/// Units to load: those of a segment from `from` to `to`. It holds the units before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The segment.
    pub segment: SegmentId,
    /// The first unit to load.
    pub from: u8,
    /// The unit behind the last one.
    pub to: u8,
}

/// A segment that lost units: it keeps its first `units` units only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unload {
    /// The segment.
    pub segment: SegmentId,
    /// The number of units that stay.
    pub units: u8,
}

/// The outcome of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The units are in memory.
    Done,
    /// The units before this one are in memory. It cannot be read: the segment does without it, and
    /// without those above it, until its table is removed.
    Unreadable(u8),
}

/// One segment.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// Lookups of absent keys per get, and all lookups per get, in the clock's scale.
    misses: f32,
    asked: f32,
    /// The share of the segment's block reads that the block cache does not answer, in 255ths.
    cost: u8,
    /// The number of units held.
    units: u8,
    /// The number of units that it will hold after the load under way; 0 if there is none.
    loading: u8,
    /// The maximum number of units.
    limit: u8,
}

impl Segment {
    /// The number of units held, or to be held after the load under way.
    #[inline]
    fn claimed(&self) -> u8 {
        self.units.max(self.loading)
    }
}

/// A known table.
#[derive(Debug)]
struct Table {
    rates: Box<[f64]>,
    shape: Arc<dyn Segments>,
    end: KeyEnd,
    segments: Box<[Segment]>,
    fixed_bytes: u64,
}

/// The hotness of all segments of a database, and which of their units are in memory. See the
/// [module](self).
#[derive(Debug)]
pub struct Manager {
    clock: Clock,
    inheritance: bool,
    budget: u64,
    /// The fixed bytes of all tables, and the manager's own.
    fixed: u64,
    /// Bytes of all units held or being loaded.
    held: u64,
    /// The part of `held` that is being loaded.
    reserved: u64,
    // Ordered, so that equal databases adjust alike.
    tables: BTreeMap<TableId, Table>,
    /// Counted accesses since the last adjustment, and whether one is due whatever their number.
    accesses: u64,
    due: bool,
    /// Reads that loads may still cost.
    credit: f64,
    /// The value per byte at which units are worth their place, as of the last adjustment.
    price: f64,
    counts: Counts,
}

impl Manager {
    /// Creates a manager without tables.
    pub fn new(config: HotnessConfig, budget_bytes: u64) -> Manager {
        Manager {
            clock: Clock::new(config.life_time),
            inheritance: config.inheritance,
            budget: budget_bytes,
            fixed: 0,
            held: 0,
            reserved: 0,
            tables: BTreeMap::new(),
            accesses: 0,
            due: false,
            credit: 0.0,
            price: 0.0,
            counts: Counts::default(),
        }
    }

    /// Advances logical time by this many gets of the database, whether or not they asked a
    /// segment.
    pub fn advance(&mut self, gets: u64) {
        if let Some(factor) = self.clock.advance(gets) {
            for segment in self.tables.values_mut().flat_map(|table| &mut table.segments) {
                segment.misses *= factor;
                segment.asked *= factor;
            }
        }
    }

    /// Sets the sampling interval: one get in `interval` is counted; 1 initially.
    pub fn sample(&mut self, interval: u32) {
        self.clock.sample(interval);
    }

    /// Adds a table, with the hotness of each of its segments in key order. It has no units before
    /// the next [`adjust`](Manager::adjust). O(segments).
    pub fn add_table(&mut self, spec: TableSpec, hotness: Vec<Hotness>) {
        debug_assert!(!self.tables.contains_key(&spec.id), "table {} is known already", spec.id);
        debug_assert_eq!(spec.segments.count(), hotness.len());
        self.remove_table(spec.id);
        let count = spec.segments.count();
        self.clock.add_segments(count);
        let most = spec.rates.len().saturating_sub(1).min(MAX_UNITS.into()) as u8;
        let segments = (0..count).map(|segment| {
            let known = hotness.get(segment).copied().unwrap_or_default();
            let limit = if spec.segments.bytes(segment, 1) == 0 { 0 } else { most };
            let (misses, asked) = (self.clock.scaled(known.misses), self.clock.scaled(known.asked));
            Segment { misses, asked, cost: u8::MAX, units: 0, loading: 0, limit }
        });
        let segments: Box<[Segment]> = segments.collect();
        let fixed_bytes = spec.fixed_bytes + count as u64 * SEGMENT_BYTES;
        self.fixed += fixed_bytes;
        // The first units of a table lie side by side in its file: loading them costs next to
        // nothing.
        self.credit += count as f64 * f64::from(most);
        self.due = true;
        let table =
            Table { rates: spec.rates.into(), shape: spec.segments, end: spec.end, segments, fixed_bytes };
        self.tables.insert(spec.id, table);
    }

    /// Removes a table and all units of its segments. Loads under way for it are unwanted when they
    /// complete. Does nothing if the table is unknown. O(segments).
    pub fn remove_table(&mut self, id: TableId) {
        let Some(table) = self.tables.remove(&id) else { return };
        for (index, segment) in table.segments.iter().enumerate() {
            self.held -= table.shape.bytes(index, segment.claimed());
            if segment.loading > 0 {
                self.reserved -=
                    table.shape.bytes(index, segment.loading) - table.shape.bytes(index, segment.units);
            }
        }
        self.clock.remove_segments(table.segments.len());
        self.fixed -= table.fixed_bytes;
        self.due = true;
    }

    /// Records that a get asked the segment's filter; it stands for `weight` gets. Segments of
    /// unknown tables are ignored. O(1).
    pub fn access(&mut self, sample: &Sample) {
        let step = self.clock.step(sample.weight);
        let Some(segment) = self.segment(sample.id) else { return };
        if !sample.held {
            segment.misses += step;
        }
        segment.asked += step;
        match sample.read {
            BlockRead::None => {}
            BlockRead::Cached => segment.cost -= segment.cost.div_ceil(8),
            BlockRead::Fetched => segment.cost += (u8::MAX - segment.cost).div_ceil(8),
        }
        self.accesses += 1;
    }

    /// Reports a finished load; called once per load, in any order. Returns the number of units
    /// that the segment is to hold from now on, of which those that this load brought count only if
    /// it was done. `None`: the table was removed. O(1).
    pub fn loaded(&mut self, load: &Load, outcome: Outcome) -> Option<u8> {
        let table = self.tables.get_mut(&load.segment.table)?;
        let index = load.segment.segment as usize;
        let (shape, segment) = (table.shape.clone(), table.segments.get_mut(index)?);
        let (units, loading) = (segment.units, segment.loading);
        if loading == 0 {
            return Some(units);
        }
        let reached = match outcome {
            Outcome::Done => loading,
            Outcome::Unreadable(bad) => bad.clamp(units, loading),
        };
        (segment.units, segment.loading) = (reached, 0);
        if let Outcome::Unreadable(_) = outcome {
            segment.limit = reached;
            self.counts.failed += 1;
        }
        self.reserved -= shape.bytes(index, loading) - shape.bytes(index, units);
        self.held -= shape.bytes(index, loading) - shape.bytes(index, reached);
        self.counts.loads += u64::from(reached - units);
        Some(reached)
    }

    /// The limit of all bytes.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes in use: units, those being loaded, and what is fixed.
    pub fn used(&self) -> u64 {
        self.fixed + self.held
    }

    fn segment(&mut self, id: SegmentId) -> Option<&mut Segment> {
        self.tables.get_mut(&id.table)?.segments.get_mut(id.segment as usize)
    }

    /// The number of known segments.
    fn count(&self) -> u64 {
        self.clock.segments()
    }
}
