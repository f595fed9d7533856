//! REMIX, semi-sorted: W. Zhong, C. Chen, X. Wu, S. Jiang, "REMIX: Efficient Range Query for
//! LSM-trees" (FAST 2021), as used in section 6.1 of the GRF paper.
//!
//! All keys of a tree in order are cut into segments of equally many keys. REMIX itself keeps the
//! segment's first key and, for each of its keys, the run. Here a segment keeps the *set* of its
//! runs, so that a flush does not need the sorted keys of the affected segments, and the border
//! between segments is a 64-bit number (see [`KeyMap`]). A point lookup therefore gets all runs of
//! a segment of 32 keys: nearly all runs, unless they are local in key space. That is the paper's
//! baseline, and it suits only long scans.
//!
//! # Invariants
//! * Segment `i` has the keys whose number is at least `borders[i]` and below `borders[i + 1]`; the
//!   first has all below, and the last has no end. Borders ascend strictly. Keys outside the common
//!   prefix have number 0 or the greatest number.
//! * For every number `b > 0` that is a border: a key has a number of at least `b` if and only if
//!   it is not below `lower_key(b)`. (The number is the key's bytes after the prefix, truncated or
//!   padded with zeros, and `lower_key` is these bytes without trailing zeros.)
//! * Bit `i` of a segment is set if run `tags[i]` has a key in it, or had one and still has keys
//!   elsewhere. The last bit stands for all runs that were added when the other bits were taken.
//!
//! # Threads
//! Immutable. A change copies the filter and then looks up the segment of each added key; removed
//! keys are only counted, until their run is gone and its bit can be cleared everywhere.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::digest::Digest;
use crate::error::FilterError;
use crate::global::run_index::for_each_key;
use crate::global::{RunIndex, RunIndexSpec, RunTag, Tagged, TagsAhead};
use crate::keys::{KeyList, KeyMap};
use crate::words::prefetch;

/// Number of runs with their own bit. The bit after them is shared by all others.
const OWN: usize = 63;

/// Maximum number of empty segments that one walk passes.
const MAX_EMPTY: usize = 64;

/// Maximum ratio of entries to capacity. Beyond it segments are too long to be useful.
const MAX_GROWTH: u64 = 2;

/// Sets of runs by segment. See the module documentation.
#[derive(Clone, Debug)]
pub struct Remix {
    map: Arc<KeyMap>,
    borders: Arc<[u64]>,
    segments: Vec<u64>,
    /// The run of each bit.
    tags: Vec<Option<RunTag>>,
    /// Runs that use the shared bit.
    others: Vec<RunTag>,
    /// Entries of each run.
    counts: BTreeMap<RunTag, u64>,
    capacity: u64,
}

impl Remix {
    /// Builds a filter of all keys of these runs, in segments of `spec.segment` distinct keys.
    ///
    /// # Errors
    /// [`FilterError::Parameter`] if a segment would have no keys.
    pub fn build(items: &[Tagged<'_>], spec: &RunIndexSpec) -> Result<Self, FilterError> {
        if spec.segment == 0 {
            return Err(FilterError::Parameter("a segment has at least one key"));
        }
        let mut keys = KeyList::new();
        for_each_key(&[], items, |change| {
            keys.push(change.key);
            Some(())
        });
        let map = KeyMap::growing(&keys);
        let mut borders = vec![0];
        for key in keys.iter().step_by(spec.segment as usize).skip(1) {
            let border = map.clamped(key);
            // Keys with the same number are never in two segments.
            if borders.last().is_none_or(|last| *last < border) {
                borders.push(border);
            }
        }
        let mut filter = Remix {
            map: Arc::new(map),
            segments: vec![0; borders.len()],
            borders: borders.into(),
            tags: vec![None; OWN],
            others: Vec::new(),
            counts: BTreeMap::new(),
            capacity: 0,
        };
        // The runs with the most keys get the bits.
        let mut sizes: BTreeMap<RunTag, u64> = BTreeMap::new();
        items.iter().for_each(|(batch, tag)| *sizes.entry(*tag).or_default() += batch.len() as u64);
        let mut largest: Vec<(RunTag, u64)> = sizes.into_iter().collect();
        largest.sort_by_key(|(_, keys)| std::cmp::Reverse(*keys));
        largest.iter().take(OWN).enumerate().for_each(|(bit, (tag, _))| filter.tags[bit] = Some(*tag));
        filter.add(items);
        filter.capacity = spec.capacity.max(filter.entries()).max(1);
        Ok(filter)
    }

    /// Returns the filter after a change of runs. `None` if there are more entries than twice the
    /// capacity, or if more were removed than ever added.
    pub fn change(&self, removed: &[Tagged<'_>], added: &[Tagged<'_>]) -> Option<Self> {
        let mut changed = self.clone();
        for &(batch, tag) in removed {
            let gone = distinct(batch).count() as u64;
            if gone > 0 {
                let entries = changed.counts.get_mut(&tag)?;
                *entries = entries.checked_sub(gone)?;
            }
        }
        // Removals first: a name may be reused in the same change.
        changed.forget();
        changed.add(added);
        (changed.entries() / MAX_GROWTH <= changed.capacity).then_some(changed)
    }

    /// Number of segments.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    fn add(&mut self, items: &[Tagged<'_>]) {
        for &(batch, tag) in items {
            let mut keys = distinct(batch).peekable();
            if keys.peek().is_none() {
                continue;
            }
            let bit = 1 << self.bit(tag);
            let (mut entries, mut at) = (0, 0);
            for key in keys {
                // Keys ascend, so segments do, and usually it is the same or the next one.
                let number = self.map.clamped(key);
                if self.borders.get(at + 1).is_some_and(|next| *next <= number) {
                    at += 1;
                    if self.borders.get(at + 1).is_some_and(|next| *next <= number) {
                        at = self.segment(number);
                    }
                }
                self.segments[at] |= bit;
                entries += 1;
            }
            *self.counts.entry(tag).or_default() += entries;
        }
    }

    /// Returns the bit of a run, allocating one if it has none.
    fn bit(&mut self, tag: RunTag) -> usize {
        if let Some(bit) = self.tags.iter().position(|held| *held == Some(tag)) {
            return bit;
        }
        if !self.others.contains(&tag) {
            if let Some(bit) = self.tags.iter().position(Option::is_none) {
                self.tags[bit] = Some(tag);
                return bit;
            }
            self.others.push(tag);
        }
        OWN
    }

    /// Clears the bits of runs that have no keys left.
    fn forget(&mut self) {
        self.counts.retain(|_, entries| *entries > 0);
        let mut stale = 0u64;
        for (bit, held) in self.tags.iter_mut().enumerate() {
            if held.is_some_and(|tag| !self.counts.contains_key(&tag)) {
                *held = None;
                stale |= 1 << bit;
            }
        }
        if !self.others.is_empty() {
            self.others.retain(|tag| self.counts.contains_key(tag));
            if self.others.is_empty() {
                stale |= 1 << OWN;
            }
        }
        if stale != 0 {
            self.segments.iter_mut().for_each(|runs| *runs &= !stale);
        }
    }

    /// Returns the segment of a number.
    #[inline]
    fn segment(&self, number: u64) -> usize {
        // The first border is 0.
        self.borders.partition_point(|border| *border <= number).saturating_sub(1)
    }

    /// Returns the runs of a set.
    #[inline]
    fn runs(&self, mut set: u64, found: &mut dyn FnMut(RunTag)) {
        while set != 0 {
            match self.tags.get(set.trailing_zeros() as usize) {
                Some(tag) => tag.iter().for_each(|tag| found(*tag)),
                None => self.others.iter().for_each(|tag| found(*tag)),
            }
            set &= set - 1;
        }
    }
}

/// Returns the keys of a batch, each once.
fn distinct(batch: &crate::global::Batch) -> impl Iterator<Item = &[u8]> {
    let mut last = None;
    batch.keys().iter().filter(move |key| last.replace(*key) != Some(*key))
}

impl RunIndex for Remix {
    fn probe(&self, key: &[u8], _: Digest, found: &mut dyn FnMut(RunTag)) {
        self.runs(self.segments[self.segment(self.map.clamped(key))], found);
    }

    fn prefetch(&self, key: &[u8], _: Digest) {
        // Finding the segment is most of the work, with a miss for each of its last steps, which
        // should not be paid twice. Start where the segment would be if numbers were spread evenly:
        let number = self.map.clamped(key);
        let (Some(first), Some(last)) = (self.borders.get(1), self.borders.last()) else { return };
        let share = number.saturating_sub(*first) as f64 / (last - first).max(1) as f64;
        let at = (share * self.borders.len() as f64) as usize;
        self.borders.get(at).into_iter().for_each(prefetch);
        self.segments.get(at).into_iter().for_each(prefetch);
    }

    fn answers_ranges(&self) -> bool {
        true
    }

    fn ahead(&self, from: &[u8], end: Option<&[u8]>, out: &mut TagsAhead) -> bool {
        out.clear();
        let end = end.map_or(u64::MAX, |end| self.map.clamped(end));
        let first = self.segment(self.map.clamped(from));
        for at in (first..self.segments.len()).take(MAX_EMPTY) {
            let set = self.segments[at];
            let bound = (at > first).then(|| self.borders[at]);
            self.runs(set, &mut |tag| out.found.push((tag, bound)));
            // A border after the number of `end` has its lower key after `end`.
            out.until = self.borders.get(at + 1).copied().filter(|next| *next <= end);
            if set != 0 || out.until.is_none() {
                break;
            }
        }
        true
    }

    fn behind(&self, before: Option<&[u8]>, start: &[u8], out: &mut TagsAhead) -> bool {
        out.clear();
        let mut last = self.segments.len() - 1;
        if let Some(before) = before {
            last = self.segment(self.map.clamped(before));
            let mut lowest = Vec::new();
            self.lower_key(self.borders[last], &mut lowest);
            // Keys below the lowest one of a segment belong to the previous one.
            if lowest == before {
                let Some(previous) = last.checked_sub(1) else { return true };
                last = previous;
            }
        }
        let start = self.map.clamped(start);
        for at in (0..=last).rev().take(MAX_EMPTY) {
            let set = self.segments[at];
            let bound = if at < last { Some(self.borders[at + 1]) } else { None };
            self.runs(set, &mut |tag| out.found.push((tag, bound)));
            // A border that `start` reaches is not above it. The first segment has no border.
            out.until = (at > 0).then(|| self.borders[at]).filter(|border| *border > start);
            if set != 0 || out.until.is_none() {
                break;
            }
        }
        true
    }

    fn lower_key(&self, at: u64, key: &mut Vec<u8>) {
        match at {
            0 => key.clear(),
            at => self.map.write_key_at(at, key),
        }
    }

    fn change(&self, removed: &[Tagged<'_>], added: &[Tagged<'_>]) -> Option<Arc<dyn RunIndex>> {
        Some(Arc::new(Remix::change(self, removed, added)?))
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + (self.borders.len() + self.segments.len()) * 8
            + self.tags.len() * size_of::<Option<RunTag>>()
            + (self.counts.len() * 2 + self.others.len()) * size_of::<(RunTag, u64)>()
    }

    fn entries(&self) -> u64 {
        self.counts.values().sum()
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }
}
