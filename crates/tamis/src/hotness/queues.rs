//! Multi-Queue (3.4): all segments, each in the queue for its number of units, ordered by last access.
//!
//! Nodes live in a slab and are linked by index in both directions. From the least recently used end of a queue, expired
//! segments come first, with two exceptions: a segment that loses units without being expired, and one that gains them without
//! being accessed, go to an end where their neighbours may be older or younger. Searches stop at the first segment that is not
//! expired, so such a segment hides others for at most one lifetime; there is no other effect. All operations are O(1).

use std::ops::{Index, IndexMut};

use super::MAX_UNITS;
use super::clock::Warmth;

/// A segment's index in the slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(u32);

impl Slot {
    pub(super) const NONE: Slot = Slot(u32::MAX);
}

/// One segment: 56 bytes.
#[derive(Debug)]
pub(super) struct Segment {
    /// Lookups of absent keys per get, and all lookups per get, as of `last`.
    pub(super) misses: f64,
    pub(super) asked: f64,
    /// Time of the last access.
    pub(super) last: u64,
    pub(super) unit_bytes: u64,
    pub(super) keys: u32,
    /// Its table's index in the manager, and its own index in the table.
    pub(super) place: u32,
    pub(super) index: u32,
    older: Slot,
    newer: Slot,
    /// Loads in flight, one bit per unit. Bits from `units` on belong to units that are no longer wanted.
    under_way: u16,
    units: u8,
    /// The maximum number of units. `units` never exceeds it.
    pub(super) limit: u8,
}

impl Segment {
    pub(super) fn new(
        place: u32,
        index: u32,
        keys: u32,
        unit_bytes: u64,
        limit: u8,
        warmth: Warmth,
    ) -> Segment {
        let Warmth { misses, asked, last } = warmth;
        let (older, newer) = (Slot::NONE, Slot::NONE);
        Segment {
            misses,
            asked,
            last,
            unit_bytes,
            keys,
            place,
            index,
            older,
            newer,
            under_way: 0,
            units: 0,
            limit,
        }
    }

    /// The number of units held, including those being loaded.
    pub(super) fn units(&self) -> u8 {
        self.units
    }

    /// Reports whether any of its units is being loaded, wanted or not.
    pub(super) fn is_loading(&self) -> bool {
        self.under_way != 0
    }

    /// Reports whether the last of its units is being loaded.
    pub(super) fn last_is_loading(&self) -> bool {
        self.units > 0 && self.under_way & 1 << (self.units - 1) != 0
    }

    /// Reports whether a unit that is no longer wanted is being loaded.
    pub(super) fn has_stray_load(&self) -> bool {
        self.under_way.checked_shr(u32::from(self.units)).is_some_and(|stray| stray != 0)
    }

    /// The number of its units from this one on that are being loaded.
    pub(super) fn under_way_from(&self, unit: u8) -> u32 {
        (unit..self.units).filter(|unit| self.under_way & 1 << unit != 0).count() as u32
    }

    pub(super) fn begin_load(&mut self, unit: u8) {
        debug_assert_eq!(self.under_way & 1 << unit, 0);
        self.under_way |= 1 << unit;
    }

    /// Clears the unit's bit; returns whether it was being loaded.
    pub(super) fn end_load(&mut self, unit: u8) -> bool {
        let bit = 1u16.checked_shl(u32::from(unit)).unwrap_or(0);
        let was = self.under_way & bit != 0;
        self.under_way &= !bit;
        was
    }
}

/// An end of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The least recently used segments, which lose units first.
    Lru,
    /// The most recently used segments.
    Mru,
}

#[derive(Clone, Copy, Debug)]
struct List {
    oldest: Slot,
    newest: Slot,
    len: usize,
}

#[derive(Debug)]
pub(super) struct Queues {
    nodes: Vec<Segment>,
    free: Vec<Slot>,
    lists: [List; MAX_UNITS as usize + 1],
}

impl Default for Queues {
    fn default() -> Queues {
        let empty = List { oldest: Slot::NONE, newest: Slot::NONE, len: 0 };
        Queues { nodes: Vec::new(), free: Vec::new(), lists: [empty; MAX_UNITS as usize + 1] }
    }
}

impl Index<Slot> for Queues {
    type Output = Segment;

    fn index(&self, slot: Slot) -> &Segment {
        &self.nodes[slot.0 as usize]
    }
}

impl IndexMut<Slot> for Queues {
    fn index_mut(&mut self, slot: Slot) -> &mut Segment {
        &mut self.nodes[slot.0 as usize]
    }
}

impl Queues {
    /// Inserts a segment at the most recently used end of its queue.
    pub(super) fn insert(&mut self, segment: Segment) -> Slot {
        let slot = match self.free.pop() {
            Some(slot) => {
                self[slot] = segment;
                slot
            }
            None => {
                self.nodes.push(segment);
                Slot(self.nodes.len() as u32 - 1)
            }
        };
        self.link(slot, End::Mru);
        slot
    }

    /// Removes a segment. The slot must not be used again.
    pub(super) fn remove(&mut self, slot: Slot) {
        self.unlink(slot);
        self.free.push(slot);
    }

    /// Moves a segment to an end of its queue.
    pub(super) fn move_to(&mut self, slot: Slot, end: End) {
        self.unlink(slot);
        self.link(slot, end);
    }

    /// Moves a segment to an end of the queue of `units`.
    pub(super) fn set_units(&mut self, slot: Slot, units: u8, end: End) {
        debug_assert!(units <= self[slot].limit.max(self[slot].units));
        self.unlink(slot);
        self[slot].units = units;
        self.link(slot, end);
    }

    /// The number of segments with `units` units.
    pub(super) fn len(&self, units: u8) -> usize {
        self.lists[usize::from(units)].len
    }

    /// The segments with `units` units, from one end to the other.
    pub(super) fn from(&self, end: End, units: u8) -> impl Iterator<Item = Slot> + '_ {
        let list = &self.lists[usize::from(units)];
        let first = match end {
            End::Lru => list.oldest,
            End::Mru => list.newest,
        };
        let some = |slot: Slot| (slot != Slot::NONE).then_some(slot);
        std::iter::successors(some(first), move |&slot| {
            some(match end {
                End::Lru => self[slot].newer,
                End::Mru => self[slot].older,
            })
        })
    }

    /// All segments.
    pub(super) fn all(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..=MAX_UNITS).flat_map(|units| self.from(End::Lru, units))
    }

    fn link(&mut self, slot: Slot, end: End) {
        let units = usize::from(self[slot].units);
        let list = self.lists[units];
        let (older, newer) = match end {
            End::Lru => (Slot::NONE, list.oldest),
            End::Mru => (list.newest, Slot::NONE),
        };
        (self[slot].older, self[slot].newer) = (older, newer);
        self.join(units, older, slot);
        self.join(units, slot, newer);
        self.lists[units].len += 1;
    }

    fn unlink(&mut self, slot: Slot) {
        let Segment { older, newer, units, .. } = self[slot];
        self.join(usize::from(units), older, newer);
        self.lists[usize::from(units)].len -= 1;
    }

    /// Makes two segments neighbours. `NONE` stands for the outside of an end.
    fn join(&mut self, units: usize, older: Slot, newer: Slot) {
        match older {
            Slot::NONE => self.lists[units].oldest = newer,
            older => self[older].newer = newer,
        }
        match newer {
            Slot::NONE => self.lists[units].newest = older,
            newer => self[newer].older = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(index: u32) -> Segment {
        Segment::new(0, index, 1, 1, 3, Warmth { misses: 0.0, asked: 0.0, last: 0 })
    }

    fn indexes(queues: &Queues, end: End, units: u8) -> Vec<u32> {
        queues.from(end, units).map(|slot| queues[slot].index).collect()
    }

    #[test]
    fn a_segment_takes_56_bytes() {
        assert_eq!(size_of::<Segment>(), 56);
    }

    #[test]
    fn segments_move_between_ends_and_queues() {
        let mut queues = Queues::default();
        let [a, b, c] = [0, 1, 2].map(|index| queues.insert(segment(index)));
        assert_eq!(indexes(&queues, End::Lru, 0), [0, 1, 2]);
        assert_eq!(indexes(&queues, End::Mru, 0), [2, 1, 0]);
        queues.move_to(b, End::Mru);
        queues.move_to(c, End::Lru);
        assert_eq!(indexes(&queues, End::Lru, 0), [2, 0, 1]);
        queues.set_units(a, 3, End::Mru);
        queues.set_units(b, 3, End::Lru);
        assert_eq!(indexes(&queues, End::Lru, 3), [1, 0]);
        assert_eq!((queues.len(0), queues.len(3)), (1, 2));
        queues.remove(c);
        assert_eq!(indexes(&queues, End::Mru, 0), []);
        assert_eq!(queues.insert(segment(9)), c, "the slot is reused");
        assert_eq!(queues.all().count(), 3);
    }

    #[test]
    fn loads_of_units_no_longer_held_are_strays() {
        let mut segment = segment(0);
        segment.limit = MAX_UNITS;
        segment.units = MAX_UNITS;
        segment.begin_load(15);
        segment.begin_load(3);
        assert!(segment.last_is_loading() && !segment.has_stray_load());
        assert_eq!(
            (segment.under_way_from(0), segment.under_way_from(4), segment.under_way_from(16)),
            (2, 1, 0)
        );
        segment.units = 4;
        assert!(segment.has_stray_load() && segment.last_is_loading());
        assert!(segment.end_load(15) && !segment.end_load(15) && !segment.end_load(200));
        assert!(!segment.has_stray_load() && segment.is_loading());
    }
}
