//! Adjustments (3.4): which unit is worth its bytes, and which segments give them up.
//!
//! A segment's next unit gains f · W · (r^k − r^(k+1)): the wasted block reads that it saves in one window W if the segment's
//! access rate stays the same. The value of its last unit is computed the same way. The expected number of wasted block reads
//! per get, the paper's E, is the sum of f · r^k.
//!
//! Counts are noisy: of segments with equal access rates, some seem twice as hot as others. Each access picks the best of many
//! such differences, so units would move back and forth between equals, at one read each. Hence a unit moves from one segment
//! to another only if its gain at the low end of the confidence interval exceeds the loss at the high end ([`NOISE`]). In the
//! simulated tree of the tests this leaves a fifth of the loads under a uniform workload and a sixth under a skewed one, and
//! improves the choice of units.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use smallvec::SmallVec;

use super::queues::{End, Slot};
use super::{Adjustment, Load, MAX_UNITS, Manager, SegmentId, Unload};
use crate::ids::TableId;

/// What an adjustment has to gain beyond its loss, in reads per window: the read that it costs.
pub(super) const PAYS: f64 = 1.0;

/// The margin, in standard deviations of the counts, by which a unit must be worth more to the segment that receives it than to
/// the one that gives it up. Counts of segments with equal access rates differ; without the margin they take each other's units
/// forever.
pub(super) const NOISE: f64 = 1.0;

/// The number of segments that one access examines for units to take.
pub(super) const LOOKS: usize = 32;

/// How long a refusal stands, as a fraction of a lifetime: little expires within it.
const A_WHILE: u64 = 64;

/// A search for victims that found none. Until something more has expired, a segment that needs as many bytes and offers no
/// more for them need not search. Most accesses want a unit, and nearly all are refused.
#[derive(Debug)]
pub(super) struct Refusal {
    need: u64,
    most: f64,
    until: u64,
}

impl Refusal {
    fn holds(&self, need: u64, most: f64, now: u64) -> bool {
        now < self.until && need >= self.need && most <= self.most
    }
}

/// An offer to gain or lose one unit of a segment.
struct Offer {
    /// Reads per window and byte; negated where the cheapest comes first.
    rank: f64,
    /// Ties: the segment accessed last comes last, then by slot. This makes the order total and deterministic.
    last: u64,
    slot: Slot,
}

impl Ord for Offer {
    fn cmp(&self, other: &Offer) -> Ordering {
        let ties = || other.last.cmp(&self.last).then(other.slot.cmp(&self.slot));
        self.rank.total_cmp(&other.rank).then_with(ties)
    }
}

impl PartialOrd for Offer {
    fn partial_cmp(&self, other: &Offer) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Offer {
    fn eq(&self, other: &Offer) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Offer {}

impl Manager {
    /// Records that a get asked the segment's filter; it stands for `weight` gets. `held`: the key was found in the segment.
    /// Returns the change to make now, if any. Segments of unknown tables are ignored. O(1).
    ///
    /// One more unit is paid for with free bytes or, if there are not enough, by expired segments. It must be worth more than
    /// their loss plus the read for the load; otherwise nothing happens. A segment has at most one adjustment in flight.
    pub(crate) fn access(&mut self, id: SegmentId, weight: u32, held: bool) -> Option<Adjustment> {
        let slot = self.slot(id)?;
        let (step, segment) = (self.clock.step(weight), &mut self.queues[slot]);
        let decay = self.clock.decay(segment.last);
        segment.misses = segment.misses * decay + if held { 0.0 } else { step };
        segment.asked = segment.asked * decay + step;
        segment.last = self.clock.now();
        self.queues.move_to(slot, End::Mru);
        self.improve(slot)
    }

    fn improve(&mut self, slot: Slot) -> Option<Adjustment> {
        let segment = &self.queues[slot];
        if segment.units() >= segment.limit || segment.is_loading() {
            return None;
        }
        let won = self.gain(slot) * self.clock.window();
        if won <= PAYS {
            return None;
        }
        let need = segment.unit_bytes.saturating_sub(self.free());
        let most = self.at_least(slot, won) - PAYS;
        let now = self.clock.now();
        if self.refusal.as_ref().is_some_and(|last| last.holds(need, most, now)) {
            self.counts.refused += 1;
            return None;
        }
        let Some(victims) = self.victims(slot, need, most) else {
            self.refusal = Some(Refusal { need, most, until: now + self.clock.life_time() / A_WHILE });
            self.counts.refused += 1;
            let (id, worth) = (self.id(slot), self.gain(slot) / self.queues[slot].unit_bytes as f64);
            self.wanting.note(id, worth, &self.clock);
            return None;
        };
        let unload = victims.into_iter().map(|victim| self.give_up(victim)).collect();
        Some(Adjustment { unload, load: self.reserve(slot) })
    }

    /// Expired segments whose last units add up to `need` bytes and are together worth less than `most` reads per window. Each
    /// queue may examine its share of what the queues before it left over, so expensive segments at the end of one queue do not
    /// hide those of another.
    fn victims(&self, wanting: Slot, need: u64, most: f64) -> Option<SmallVec<[Slot; 4]>> {
        let mut victims = SmallVec::new();
        if need == 0 {
            return Some(victims);
        }
        let top = (1..=MAX_UNITS).rev().find(|&units| self.queues.len(units) > 0)?;
        let window = self.clock.window();
        let (mut bytes, mut lost) = (0u64, 0.0);
        let mut looks = LOOKS;
        for units in (1..=top).rev() {
            for slot in self.queues.from(End::Lru, units).take(looks / usize::from(units)) {
                looks -= 1;
                let segment = &self.queues[slot];
                if !self.clock.expired(segment.last) {
                    break;
                }
                let loss = self.at_most(slot, self.loss(slot) * window);
                if slot == wanting || segment.last_is_loading() || lost + loss >= most {
                    continue;
                }
                lost += loss;
                bytes = bytes.saturating_add(segment.unit_bytes);
                victims.push(slot);
                if bytes >= need {
                    // A large unit found late may make small ones unnecessary.
                    victims.retain(|&mut slot| {
                        let less = bytes - self.queues[slot].unit_bytes;
                        let needed = less < need;
                        bytes = if needed { bytes } else { less };
                        needed
                    });
                    return Some(victims);
                }
            }
        }
        None
    }

    /// Reads per window that the next unit gains, if the count is one deviation too high.
    fn at_least(&self, slot: Slot, reads: f64) -> f64 {
        reads - NOISE * self.deviation(slot, self.queues[slot].units(), reads)
    }

    /// Reads per window that the last unit saves, if the count is one deviation too low.
    fn at_most(&self, slot: Slot, reads: f64) -> f64 {
        reads + NOISE * self.deviation(slot, self.queues[slot].units() - 1, reads)
    }

    /// The standard deviation of the reads per window that one unit beyond `units` is estimated to save. Accesses are random:
    /// the variance of the decayed sum is ln 2 / 2 times that of their number in a window, times the square of the weight of
    /// one counted access.
    fn deviation(&self, slot: Slot, units: u8, reads: f64) -> f64 {
        let rate = self.table_of(&self.queues[slot]).rate;
        let each = self.clock.sampling() * rate.powi(i32::from(units)) * (1.0 - rate);
        (reads * each * std::f64::consts::LN_2 / 2.0).sqrt()
    }

    fn give_up(&mut self, slot: Slot) -> Unload {
        let units = self.queues[slot].units() - 1;
        self.shrink(slot, units);
        self.counts.unloads += 1;
        Unload { segment: self.id(slot), units }
    }

    /// Gives free bytes to the segments of these tables, where a byte saves most first, as long as there are bytes and units
    /// worth anything. For tables that were just added. Several units of one segment may be requested at once; they may be
    /// loaded in any order. O(n · log n) in the segments of the tables and the units.
    pub(crate) fn fill(&mut self, tables: &[TableId]) -> Vec<Load> {
        let mut offers = self.offers(tables);
        let (mut loads, mut grown) = (Vec::new(), Vec::new());
        while let Some(Offer { slot, .. }) = offers.pop() {
            if self.free() == 0 {
                break;
            }
            if self.queues[slot].unit_bytes > self.free() {
                continue;
            }
            loads.push(self.reserve(slot));
            grown.push(slot);
            offers.extend(self.offer(slot));
        }
        self.relink(grown);
        loads
    }

    /// Takes units from expired segments for tables that were just added, after [`fill`](Manager::fill), as accesses would, but
    /// without waiting for them. O((n + units) · log n) in the segments of the tables.
    pub(crate) fn take_for(&mut self, tables: &[TableId]) -> Vec<Adjustment> {
        let mut offers = self.offers(tables);
        let (mut adjustments, mut grown) = (Vec::new(), Vec::new());
        while let Some(Offer { slot, .. }) = offers.pop() {
            let won = self.gain(slot) * self.clock.window();
            let need = self.queues[slot].unit_bytes.saturating_sub(self.free());
            if won <= PAYS {
                continue;
            }
            let Some(victims) = self.victims(slot, need, self.at_least(slot, won) - PAYS) else { continue };
            let unload = victims.into_iter().map(|victim| self.give_up(victim)).collect();
            adjustments.push(Adjustment { unload, load: self.reserve(slot) });
            grown.push(slot);
            offers.extend(self.offer(slot));
        }
        self.relink(grown);
        adjustments
    }

    /// The next units of all segments of some tables.
    fn offers(&self, tables: &[TableId]) -> BinaryHeap<Offer> {
        let mut tables = tables.to_vec();
        tables.sort_unstable();
        tables.dedup();
        let slots = tables.iter().filter_map(|&id| self.table(id)).flat_map(|table| &table.slots);
        slots.filter_map(|&slot| self.offer(slot)).collect()
    }

    /// Puts segments into their queues as if they had been accessed now, the coldest first. Expired ones go to the other end,
    /// the coldest outermost.
    fn relink(&mut self, mut slots: Vec<Slot>) {
        slots.sort_unstable();
        slots.dedup();
        slots.sort_by(|&a, &b| self.frequency(a).total_cmp(&self.frequency(b)));
        let (expired, recent): (Vec<Slot>, Vec<Slot>) =
            slots.into_iter().partition(|&slot| self.clock.expired(self.queues[slot].last));
        recent.into_iter().for_each(|slot| self.queues.move_to(slot, End::Mru));
        expired.into_iter().rev().for_each(|slot| self.queues.move_to(slot, End::Lru));
    }

    /// The value of a segment's next unit, if it can have one and that is worth anything.
    fn offer(&self, slot: Slot) -> Option<Offer> {
        let segment = &self.queues[slot];
        if segment.units() >= segment.limit || segment.has_stray_load() {
            return None;
        }
        let rank = self.gain(slot) / segment.unit_bytes as f64;
        (rank > 0.0).then_some(Offer { rank, last: segment.last, slot })
    }

    /// Changes the budget. If segments now hold more than that, the units whose bytes save least are evicted, expired or not,
    /// including units being loaded. O(1) if nothing is evicted, else O(segments + evicted units · log segments).
    pub(crate) fn set_budget(&mut self, bytes: u64) -> Vec<Unload> {
        self.budget = bytes;
        if self.held <= bytes {
            return Vec::new();
        }
        let offers = (1..=MAX_UNITS).flat_map(|units| self.queues.from(End::Lru, units));
        let mut offers: BinaryHeap<Offer> = offers.map(|slot| self.sale(slot)).collect();
        let mut shrunk = Vec::new();
        while self.held > bytes
            && let Some(Offer { slot, .. }) = offers.pop()
        {
            let left = self.give_up(slot).units;
            shrunk.push(slot);
            if left > 0 {
                offers.push(self.sale(slot));
            }
        }
        debug_assert!(self.held <= self.budget);
        shrunk.sort_unstable();
        shrunk.dedup();
        let unload = |&slot| Unload { segment: self.id(slot), units: self.queues[slot].units() };
        shrunk.iter().map(unload).collect()
    }

    /// The value of a segment's last unit.
    fn sale(&self, slot: Slot) -> Offer {
        let segment = &self.queues[slot];
        Offer { rank: -self.loss(slot) / segment.unit_bytes as f64, last: segment.last, slot }
    }

    /// Lookups of keys that the segment does not hold, per get, as of now.
    pub(super) fn frequency(&self, slot: Slot) -> f64 {
        let segment = &self.queues[slot];
        segment.misses * self.clock.decay(segment.last)
    }

    /// The fraction of lookups of absent keys that the segment's units let pass.
    pub(super) fn rate(&self, slot: Slot) -> f64 {
        let segment = &self.queues[slot];
        self.table_of(segment).rate.powi(i32::from(segment.units()))
    }

    /// Reads per get that the segment's next unit would save.
    pub(super) fn gain(&self, slot: Slot) -> f64 {
        self.frequency(slot) * self.rate(slot) * (1.0 - self.table_of(&self.queues[slot]).rate)
    }

    /// Reads per get that the segment's last unit saves; 0 if it has none.
    pub(super) fn loss(&self, slot: Slot) -> f64 {
        let segment = &self.queues[slot];
        let Some(below) = segment.units().checked_sub(1) else { return 0.0 };
        let rate = self.table_of(segment).rate;
        self.frequency(slot) * rate.powi(i32::from(below)) * (1.0 - rate)
    }
}
