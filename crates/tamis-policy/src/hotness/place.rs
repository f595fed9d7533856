//! Which units are worth their bytes (3.4).
//!
//! The next unit of a segment with f misses per get, each of which costs c reads (c < 1 where the
//! block cache answers some), is worth `f · c · (r(k) − r(k + 1))` reads per get, where r(k) is the
//! rate of k units, and takes some bytes. The best placement within a budget has a *price*: all
//! units that are worth more per byte are in memory, and no others, as the value of a segment's
//! units falls from one to the next. [`Manager::adjust`] finds the price by bisection.
//!
//! Frequencies are estimates, and a load costs a read. So units move only for a reason:
//!
//! * a unit in memory stays until it is worth less than the price divided by [`HYSTERESIS`];
//! * of a unit to be loaded the value counts with a frequency somewhat below the estimate, of one
//!   to be given up with one somewhat above it, by [`NOISE`] standard deviations of the count that
//!   it comes from;
//! * a unit for which another goes must save more than a read within a window;
//! * loads cost at most [`LOADS`] of the block reads that the filters let pass, after what new
//!   tables have brought along.
//!
//! How far this is from the bound, which any real number of bits for each segment would reach, is
//! in `docs/elastic-filters.md`, and measured by the simulation in the tests.

use std::cmp::Ordering;

use tamis_base::ids::TableId;

use super::{Load, Manager, Segment, SegmentId, Segments, Table, Unload};

/// By how much a unit must be worth more than one in memory to take its place.
pub(super) const HYSTERESIS: f64 = 1.25;

/// The standard deviations of a count that count for the units in memory.
pub(super) const NOISE: f64 = 0.5;

/// Reads for loads, as a share of those that the filters let pass.
pub(super) const LOADS: f64 = 0.01;

/// Saved-up reads for loads, per segment.
const MOST_CREDIT: f64 = 0.5;

/// Fewer counted accesses than this are no reason to adjust.
const FEWEST_ACCESSES: u64 = 500;

/// More bytes than any tree has units.
const MOST_ROOM: u64 = 1 << 60;

/// The precision of the price.
const PRECISION: f64 = 0.005;

/// What to unload first, then what to load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adjustment {
    /// What to give up, before anything is loaded.
    pub unload: Vec<Unload>,
    /// What to load.
    pub load: Vec<Load>,
}

/// A segment as the placement sees it.
struct Place<'t> {
    shape: &'t dyn Segments,
    table: u32,
    index: u32,
    /// Reads per get and byte of a unit, if it let everything pass before and nothing behind it;
    /// with a frequency below the estimate, and above it.
    low: f64,
    high: f64,
    /// Bytes of one unit, on average.
    unit_bytes: f64,
    claimed: u8,
    limit: u8,
    fixed: bool,
}

impl Place<'_> {
    fn bytes(&self, units: u8) -> u64 {
        self.shape.bytes(self.index as usize, units)
    }

    /// Reads per get and byte that unit `unit` is worth if it is to be loaded.
    fn gain(&self, rates: &[f64], unit: u8) -> f64 {
        self.low * step(rates, unit)
    }

    /// The same if it is in memory.
    fn loss(&self, rates: &[f64], unit: u8) -> f64 {
        self.high * step(rates, unit)
    }

    /// The number of units at this price.
    fn units(&self, rates: &[f64], price: f64) -> u8 {
        let mut units = self.claimed;
        if self.fixed {
            return units;
        }
        while units < self.limit && self.gain(rates, units) > price {
            units += 1;
        }
        if units == self.claimed {
            while units > 0 && self.loss(rates, units - 1) * HYSTERESIS < price {
                units -= 1;
            }
        }
        units
    }
}

/// The share of the absent keys that this unit rejects and those before it let pass.
fn step(rates: &[f64], unit: u8) -> f64 {
    rates[usize::from(unit)] - rates[usize::from(unit) + 1]
}

/// A change of one segment, ranked by what it is worth.
struct Change {
    worth: f64,
    place: usize,
    units: u8,
}

impl Change {
    fn order(a: &Change, b: &Change) -> Ordering {
        a.worth.total_cmp(&b.worth).then(b.place.cmp(&a.place))
    }
}

impl Manager {
    /// Reports whether enough has changed for an adjustment.
    pub fn adjusts(&self) -> bool {
        self.due || self.accesses >= FEWEST_ACCESSES.max(self.count() / 4)
    }

    /// Reports whether tables came or went, or the budget changed, since the last adjustment.
    pub fn is_due(&self) -> bool {
        self.due
    }

    /// Decides anew which units are to be in memory. What is unloaded is no longer held; what is to
    /// be loaded is reserved. A segment whose load is under way is left alone.
    pub fn adjust(&mut self) -> Adjustment {
        let passed = self.expected_reads() * self.accesses as f64 * self.clock.sampling();
        let most = (self.count() as f64 * MOST_CREDIT).max(self.credit);
        self.credit = (self.credit + LOADS * passed / self.runs().max(1.0)).min(most);
        (self.accesses, self.due) = (0, false);
        let room = self.budget.saturating_sub(self.fixed).min(MOST_ROOM);
        let ids: Vec<TableId> = self.tables.keys().copied().collect();
        let rates: Vec<&[f64]> = self.tables.values().map(|table| &*table.rates).collect();
        let places = self.places();
        let total = |price: f64| -> u64 {
            places.iter().map(|place| place.bytes(place.units(rates[place.table as usize], price))).sum()
        };
        let (low, price) = find_price(total, room, self.price);

        // Those who give at this price, the cheapest last; and those who take at a price slightly
        // lower, the best last: units of equal value may not all find room.
        let (mut giving, mut taking) = (Vec::new(), Vec::new());
        for (at, place) in places.iter().enumerate() {
            let rates = rates[place.table as usize];
            let (units, more) = (place.units(rates, price), place.units(rates, low));
            if units < place.claimed {
                let worth = -place.loss(rates, place.claimed - 1);
                giving.push(Change { worth, place: at, units });
            } else if more > place.claimed {
                let worth = place.gain(rates, place.claimed);
                taking.push(Change { worth, place: at, units: more });
            }
        }
        giving.sort_unstable_by(Change::order);
        taking.sort_unstable_by(Change::order);

        let window = self.clock.window();
        let mut adjustment = Adjustment::default();
        let mut free = room as i64 - self.held as i64;
        let mut give = |free: &mut i64, worth: f64| -> Option<(usize, u8)> {
            let next: &Change = giving.last().filter(|next| -next.worth * HYSTERESIS < worth)?;
            let (place, units) = (&places[next.place], next.units);
            *free += (place.bytes(place.claimed) - place.bytes(units)) as i64;
            let given = (next.place, units);
            giving.pop();
            Some(given)
        };
        let mut shrunk: Vec<(usize, u8)> = Vec::new();
        let mut grown: Vec<(usize, u8)> = Vec::new();
        while free < 0 {
            match give(&mut free, f64::INFINITY) {
                Some(given) => shrunk.push(given),
                None => break,
            }
        }
        let mut credit = self.credit;
        for Change { place: at, units, worth } in taking.into_iter().rev() {
            let place = &places[at];
            let rates = rates[place.table as usize];
            let mut to = units;
            // As many of its units as find room, the first ones first.
            while to > place.claimed {
                let need = (place.bytes(to) - place.bytes(place.claimed)) as i64;
                let saved = (place.claimed..to).map(|unit| place.gain(rates, unit)).sum::<f64>();
                let reads = f64::from(to - place.claimed);
                let scarce = free < need;
                let pays = !scarce || saved * place.unit_bytes * window > reads;
                if !pays || reads > credit {
                    to -= 1;
                    continue;
                }
                while free < need {
                    match give(&mut free, worth) {
                        Some(given) => shrunk.push(given),
                        None => break,
                    }
                }
                if free >= need {
                    break;
                }
                to -= 1;
            }
            if to > place.claimed {
                free -= (place.bytes(to) - place.bytes(place.claimed)) as i64;
                credit -= f64::from(to - place.claimed);
                grown.push((at, to));
            }
        }
        let id = |at: usize| SegmentId { table: ids[places[at].table as usize], segment: places[at].index };
        let shrunk: Vec<_> =
            shrunk.into_iter().map(|(at, units)| Unload { segment: id(at), units }).collect();
        let grown: Vec<_> = grown
            .into_iter()
            .map(|(at, to)| Load { segment: id(at), from: places[at].claimed, to })
            .collect();
        (self.credit, self.price) = (credit, price);
        for unload in &shrunk {
            self.unload(*unload);
        }
        for load in &grown {
            self.reserve(*load);
        }
        debug_assert!(self.held - self.reserved <= room, "{} of {room}", self.held);
        adjustment.unload = shrunk;
        adjustment.load = grown;
        adjustment
    }

    /// Changes the budget. If segments now hold more than that, units whose bytes save least are
    /// evicted.
    pub fn set_budget(&mut self, bytes: u64) -> Vec<Unload> {
        // A larger budget is to be used, whatever the loads cost.
        self.credit += (bytes.saturating_sub(self.budget) / 64) as f64;
        self.budget = bytes;
        self.due = true;
        if self.used() <= bytes || self.held == 0 {
            return Vec::new();
        }
        let room = bytes.saturating_sub(self.fixed);
        let ids: Vec<TableId> = self.tables.keys().copied().collect();
        let rates: Vec<Box<[f64]>> = self.tables.values().map(|table| table.rates.clone()).collect();
        let mut places = self.places();
        // The last unit of each, again and again; a heap would save little, as this is rare.
        let mut sales = std::collections::BinaryHeap::new();
        let sale = |places: &[Place<'_>], at: usize| {
            let place = &places[at];
            let loss = place.loss(&rates[place.table as usize], place.claimed - 1);
            Sale { loss, place: at }
        };
        for at in 0..places.len() {
            if places[at].claimed > 0 {
                sales.push(sale(&places, at));
            }
        }
        let (mut held, mut shrunk) = (self.held, Vec::new());
        while held > room
            && let Some(Sale { place: at, .. }) = sales.pop()
        {
            let place = &mut places[at];
            held -= place.bytes(place.claimed) - place.bytes(place.claimed - 1);
            place.claimed -= 1;
            shrunk.push(at);
            if place.claimed > 0 {
                sales.push(sale(&places, at));
            }
        }
        shrunk.sort_unstable();
        shrunk.dedup();
        let unloads: Vec<Unload> = shrunk
            .into_iter()
            .map(|at| {
                let place = &places[at];
                let segment = SegmentId { table: ids[place.table as usize], segment: place.index };
                Unload { segment, units: place.claimed }
            })
            .collect();
        unloads.iter().for_each(|&unload| self.unload(unload));
        unloads
    }

    /// All segments that can have units, as the placement sees them.
    fn places(&self) -> Vec<Place<'_>> {
        let mut places = Vec::with_capacity(self.count() as usize);
        for (number, table) in (0..).zip(self.tables.values()) {
            for (index, segment) in table.segments.iter().enumerate().filter(|(_, segment)| segment.limit > 0)
            {
                let most = table.shape.bytes(index, segment.limit);
                let unit_bytes = (most as f64 / f64::from(segment.limit)).max(1.0);
                let frequency = self.clock.frequency(segment.misses);
                let noise = NOISE / (self.clock.counted(frequency) + 1.0).sqrt();
                let worth = frequency * cost(segment) / unit_bytes;
                places.push(Place {
                    shape: &*table.shape,
                    table: number,
                    index: index as u32,
                    low: worth * (1.0 - noise),
                    high: worth * (1.0 + noise),
                    unit_bytes,
                    claimed: segment.claimed(),
                    limit: segment.limit,
                    fixed: segment.loading > 0,
                });
            }
        }
        places
    }

    fn unload(&mut self, Unload { segment: id, units }: Unload) {
        let Some(table) = self.tables.get_mut(&id.table) else { return };
        let index = id.segment as usize;
        let segment = &mut table.segments[index];
        let (before, after) = (segment.claimed(), segment.units.min(units));
        if segment.loading > 0 {
            // What is being loaded finds that nobody waits for it.
            self.reserved -=
                table.shape.bytes(index, segment.loading) - table.shape.bytes(index, segment.units);
            segment.loading = 0;
        }
        self.held -= table.shape.bytes(index, before) - table.shape.bytes(index, after);
        self.counts.unloads += u64::from(segment.units - after);
        segment.units = after;
    }

    /// Reports whether the segment still waits for this load.
    pub fn wants(&self, load: &Load) -> bool {
        let segment = self.tables.get(&load.segment.table);
        let segment = segment.and_then(|table| table.segments.get(load.segment.segment as usize));
        segment.is_some_and(|segment| (segment.units, segment.loading) == (load.from, load.to))
    }

    fn reserve(&mut self, load: Load) {
        let Some(table) = self.tables.get_mut(&load.segment.table) else { return };
        let index = load.segment.segment as usize;
        let bytes = table.shape.bytes(index, load.to) - table.shape.bytes(index, load.from);
        table.segments[index].loading = load.to;
        self.held += bytes;
        self.reserved += bytes;
    }

    /// The paper's E: expected wasted block reads per get, with all units that are held or being
    /// loaded.
    pub(super) fn expected_reads(&self) -> f64 {
        let of = |table: &Table| -> f64 {
            let reads = |segment: &Segment| {
                self.clock.frequency(segment.misses) * table.rates[usize::from(segment.claimed())]
            };
            table.segments.iter().map(reads).sum()
        };
        self.tables.values().map(of).sum()
    }

    /// The number of segments that an average get asks: counted accesses come in groups of as many.
    fn runs(&self) -> f64 {
        let asked = |table: &Table| -> f64 {
            table.segments.iter().map(|segment| self.clock.frequency(segment.asked)).sum()
        };
        self.tables.values().map(asked).sum()
    }
}

/// The reads that a miss costs: one, unless the block cache answers. Never nothing, as the cache
/// changes its mind.
fn cost(segment: &Segment) -> f64 {
    f64::from(segment.cost.max(8)) / f64::from(u8::MAX)
}

/// A unit to be evicted; the cheapest is the greatest.
struct Sale {
    loss: f64,
    place: usize,
}

impl Ord for Sale {
    fn cmp(&self, other: &Sale) -> Ordering {
        other.loss.total_cmp(&self.loss).then(other.place.cmp(&self.place))
    }
}

impl PartialOrd for Sale {
    fn partial_cmp(&self, other: &Sale) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Sale {
    fn eq(&self, other: &Sale) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Sale {}

/// Returns two prices close to each other: at the higher one `total` is within `room`, at the lower
/// one it is not, unless it is at any price above 0. `guess` is the price as it was.
fn find_price(total: impl Fn(f64) -> u64, room: u64, guess: f64) -> (f64, f64) {
    if total(0.0) <= room {
        return (0.0, 0.0);
    }
    // Values are reads per get and byte: below 1 and, where they matter at all, far above this.
    const LOWEST: f64 = 1e-30;
    /// The widest step of the search.
    const FASTEST: f64 = 1e4;
    let mut high = if guess > LOWEST { guess } else { 1e-9 };
    let mut low = high;
    let mut factor = 1.05;
    if total(high) <= room {
        while low > LOWEST && total(low) <= room {
            high = low;
            low = (low / factor).max(LOWEST);
            factor = (factor * factor).min(FASTEST);
        }
    } else {
        while total(high) > room && high < 1e30 {
            low = high;
            high *= factor;
            factor = (factor * factor).min(FASTEST);
        }
    }
    low = low.max(LOWEST);
    while high / low > 1.0 + PRECISION {
        let middle = (high * low).sqrt();
        if total(middle) <= room {
            high = middle;
        } else {
            low = middle;
        }
    }
    (low, high)
}
