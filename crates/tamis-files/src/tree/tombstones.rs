//! Range tombstones, cut into disjoint fragments.
//!
//! A range tombstone deletes every older version in `[start, end)`. Overlapping tombstones are
//! *fragmented*, that is, cut at each other's borders, so one binary search finds all the
//! tombstones over a key.
//!
//! Invariants of [`Tombstones`]:
//! * Fragments are sorted by start, disjoint and never empty; only the last may be unbounded.
//! * A fragment has at least one sequence number; they descend strictly and are never 0.
//! * Adjacent fragments differ in their sequence numbers, so equal sets of deletes are equal
//!   values.
//!
//! The values are immutable, so any thread may read them.
//!
//! Nested tombstones cost space: `n` of them, each within the one before, make `2n − 1` fragments
//! with `n²` sequence numbers in total. Tables therefore get only the numbers that readers can tell
//! apart ([`fragment_for`](Tombstones::fragment_for)): in each fragment, one per snapshot and one
//! for all other readers.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use crate::codec::{Decoder, Encode};

pub use tamis_base::key::RangeTombstone;
use tamis_base::key::{Cover, KeyBytes, MAX_SEQNO, SeqNo};

/// The sequence number of range tombstones in a table built outside a database, until the table is
/// ingested.
pub const EXTERNAL_TOMBSTONE_SEQ: SeqNo = 1;

/// A key range covered by the same tombstones throughout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The first key.
    pub start: KeyBytes,
    /// The exclusive end of the range; `None` if unbounded.
    pub end: Option<KeyBytes>,
    /// The tombstones over the range, newest first.
    pub seqs: Box<[SeqNo]>,
}

impl Fragment {
    /// The newest tombstone visible at `snapshot`, or 0.
    pub(crate) fn visible_at(&self, snapshot: SeqNo) -> SeqNo {
        let newer = self.seqs.partition_point(|&seq| seq > snapshot);
        self.seqs.get(newer).copied().unwrap_or(0)
    }

    fn ends_behind(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_none_or(|end| &end[..] > key)
    }
}

/// A set of range tombstones, fragmented.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tombstones {
    fragments: Vec<Fragment>,
}

impl Tombstones {
    /// Returns the approximate heap memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let keys =
            |fragment: &Fragment| fragment.start.len() + fragment.end.as_ref().map_or(0, |end| end.len());
        self.fragments
            .iter()
            .map(|fragment| size_of_val(fragment) + keys(fragment) + fragment.seqs.len() * 8)
            .sum()
    }

    /// Cuts tombstones at each other's borders. Empty ranges, reversed ranges and tombstones with
    /// sequence number 0 delete nothing and are dropped. O(n log n + size of the result).
    #[inline]
    pub fn fragment(tombstones: Vec<RangeTombstone>) -> Self {
        Self::fragment_with(tombstones, |open| open.keys().rev().copied().collect())
    }

    /// Like [`fragment`](Self::fragment), with only the numbers that readers can tell apart, as
    /// [`retain_visible`](Self::retain_visible) would leave them.
    ///
    /// Cost: O((n + size of the result) · log n).
    pub fn fragment_for(tombstones: Vec<RangeTombstone>, readers: &[SeqNo]) -> Self {
        Self::fragment_with(tombstones, |open| {
            let newest = readers.last().copied().unwrap_or(0);
            let mut seqs: Vec<SeqNo> =
                open.range((Excluded(newest), Unbounded)).rev().map(|(&seq, _)| seq).collect();
            let mut readers = readers;
            // Take the newest tombstone that the newest reader sees, skip the readers that also see
            // it, and repeat with the next reader.
            while let Some(&reader) = readers.last()
                && let Some((&seq, _)) = open.range(..=reader).next_back()
            {
                seqs.push(seq);
                readers = &readers[..readers.partition_point(|&reader| reader < seq)];
            }
            seqs.into_boxed_slice()
        })
    }

    /// Fragments tombstones, letting `seqs` choose each fragment's numbers, newest first, from all
    /// those over it.
    fn fragment_with(
        tombstones: Vec<RangeTombstone>,
        seqs: impl Fn(&BTreeMap<SeqNo, usize>) -> Box<[SeqNo]>,
    ) -> Self {
        let is_empty = |t: &RangeTombstone| t.seq == 0 || t.end.as_ref().is_some_and(|end| *end <= t.start);
        // Starts (true) and ends (false) of tombstones.
        let mut borders: Vec<(KeyBytes, SeqNo, bool)> = Vec::with_capacity(2 * tombstones.len());
        for t in tombstones.into_iter().filter(|t| !is_empty(t)) {
            borders.push((t.start, t.seq, true));
            borders.extend(t.end.map(|end| (end, t.seq, false)));
        }
        borders.sort_unstable_by(|a, b| a.0.cmp(&b.0));

        let mut result = Tombstones::default();
        // How many tombstones with each sequence number cover the current range. The count may
        // exceed one, as pieces of one tombstone that was cut elsewhere may overlap.
        let mut open: BTreeMap<SeqNo, usize> = BTreeMap::new();
        for stretch in borders.chunk_by(|a, b| a.0 == b.0) {
            let key = &stretch[0].0;
            if let Some(last) = result.fragments.last_mut()
                && last.end.is_none()
            {
                last.end = Some(key.clone());
            }
            for &(_, seq, begins) in stretch {
                let count = open.entry(seq).or_insert(0);
                // Ends and starts at one key come in any order, so the count may dip below zero.
                *count = if begins { count.wrapping_add(1) } else { count.wrapping_sub(1) };
            }
            for (_, seq, _) in stretch {
                if open.get(seq) == Some(&0) {
                    open.remove(seq);
                }
            }
            if !open.is_empty() {
                result.push(Fragment { start: key.clone(), end: None, seqs: seqs(&open) });
            }
        }
        result
    }

    /// Appends a fragment, joining it with the last one if they touch and have equal sequence
    /// numbers.
    fn push(&mut self, fragment: Fragment) {
        match self.fragments.last_mut() {
            Some(last) if last.end.as_ref() == Some(&fragment.start) && last.seqs == fragment.seqs => {
                last.end = fragment.end;
            }
            _ => self.fragments.push(fragment),
        }
    }

    /// Reports whether there are no tombstones.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// The number of fragments.
    #[inline]
    pub fn len(&self) -> usize {
        self.fragments.len()
    }

    /// The fragments in key order.
    #[inline]
    pub fn fragments(&self) -> &[Fragment] {
        &self.fragments
    }

    /// Every tombstone of every fragment, by key, then newest first.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = RangeTombstone> + '_ {
        self.fragments.iter().flat_map(|f| {
            f.seqs.iter().map(|&seq| RangeTombstone { start: f.start.clone(), end: f.end.clone(), seq })
        })
    }

    /// Returns the sequence number of the newest tombstone over `key` visible at `snapshot`, or 0:
    /// versions of `key` with a smaller sequence number are deleted. O(log n).
    #[inline]
    pub fn cover(&self, key: &[u8], snapshot: SeqNo) -> SeqNo {
        self.fragment_at(key).map_or(0, |fragment| fragment.visible_at(snapshot))
    }

    /// Like [`cover`](Self::cover), with the range of keys around `key` that share the answer.
    /// O(log n).
    pub fn cover_around(&self, key: &[u8], snapshot: SeqNo) -> Cover {
        let next = self.fragments.partition_point(|f| &f.start[..] <= key);
        let until = self.fragments.get(next).map(|f| f.start.clone());
        match self.fragments[..next].last() {
            Some(f) if f.ends_behind(key) => {
                Cover { from: Some(f.start.clone()), until: f.end.clone(), seq: f.visible_at(snapshot) }
            }
            before => Cover { from: before.and_then(|f| f.end.clone()), until, seq: 0 },
        }
    }

    /// Returns the fragment that contains `key`. O(log n).
    #[inline]
    pub fn fragment_at(&self, key: &[u8]) -> Option<&Fragment> {
        let next = self.fragments.partition_point(|f| &f.start[..] <= key);
        self.fragments[..next].last().filter(|f| f.ends_behind(key))
    }

    /// Returns the same ranges with sequence number `to`, if all tombstones have the number `from`;
    /// otherwise `None`.
    pub fn renumbered(mut self, from: SeqNo, to: SeqNo) -> Option<Tombstones> {
        for fragment in &mut self.fragments {
            match &mut *fragment.seqs {
                [seq] if *seq == from => *seq = to,
                _ => return None,
            }
        }
        Some(self)
    }

    /// Returns the part of the tombstones within `[lower, upper)`; unbounded above if `upper` is
    /// `None`.
    pub fn clip(&self, lower: &[u8], upper: Option<&[u8]>) -> Tombstones {
        let from = self.fragments.partition_point(|f| !f.ends_behind(lower));
        let mut result = Tombstones::default();
        for fragment in &self.fragments[from..] {
            if upper.is_some_and(|upper| &fragment.start[..] >= upper || lower >= upper) {
                break;
            }
            let mut fragment = fragment.clone();
            if &fragment.start[..] < lower {
                fragment.start = lower.into();
            }
            if let Some(upper) = upper.filter(|upper| fragment.ends_behind(upper)) {
                fragment.end = Some(upper.into());
            }
            result.fragments.push(fragment);
        }
        result
    }

    /// Returns all tombstones of several sets.
    #[inline]
    pub fn merge<'a>(sets: impl IntoIterator<Item = &'a Tombstones>) -> Tombstones {
        Self::fragment(sets.into_iter().flat_map(Tombstones::iter).collect())
    }

    /// Like [`merge`](Self::merge), with only the numbers that readers can tell apart, as
    /// [`retain_visible`](Self::retain_visible) would leave them.
    #[inline]
    pub fn merge_for<'a>(sets: impl IntoIterator<Item = &'a Tombstones>, readers: &[SeqNo]) -> Tombstones {
        Self::fragment_for(sets.into_iter().flat_map(Tombstones::iter).collect(), readers)
    }

    /// Returns the tombstones that a compaction keeps. `readers` are the sequence numbers at which
    /// reads may happen, ascending: all snapshots and, last, the newest visible number. Of the
    /// tombstones between two readers only the newest matters. Those newer than every reader all
    /// stay, as new readers may come between them.
    ///
    /// With `bottommost` (no older data lies below the compaction in its key range), a tombstone
    /// that even the oldest reader sees is dropped too, because the same compaction drops
    /// everything it deletes.
    pub fn retain_visible(&self, readers: &[SeqNo], bottommost: bool) -> Tombstones {
        let oldest = readers.first().copied().unwrap_or(0);
        let mut result = Tombstones::default();
        for fragment in &self.fragments {
            let mut stripe_of_last = usize::MAX;
            let kept = fragment.seqs.iter().copied().filter(|&seq| {
                // The index of the oldest reader that sees it. No reader can distinguish tombstones
                // that share this index.
                let stripe = readers.partition_point(|&reader| reader < seq);
                let is_newest = stripe == readers.len() || stripe != stripe_of_last;
                stripe_of_last = stripe;
                is_newest && !(bottommost && seq <= oldest)
            });
            let seqs: Box<[SeqNo]> = kept.collect();
            if !seqs.is_empty() {
                result.push(Fragment { start: fragment.start.clone(), end: fragment.end.clone(), seqs });
            }
        }
        result
    }

    /// Appends the binary form: the number of fragments, then for each a flags byte, its borders
    /// and its sequence numbers, the first absolute and the others as differences. A start equal to
    /// the previous fragment's end is omitted.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.fragments.len() as u64);
        let mut previous_end: Option<&KeyBytes> = None;
        for fragment in &self.fragments {
            let touches = previous_end == Some(&fragment.start);
            out.put_u8(if touches { TOUCHES } else { 0 } | if fragment.end.is_none() { ENDLESS } else { 0 });
            if !touches {
                out.put_bytes(&fragment.start);
            }
            if let Some(end) = &fragment.end {
                out.put_bytes(end);
            }
            out.put_varint(fragment.seqs.len() as u64);
            let mut previous = None;
            for &seq in &fragment.seqs {
                out.put_varint(previous.map_or(seq, |previous: SeqNo| previous - seq));
                previous = Some(seq);
            }
            previous_end = fragment.end.as_ref();
        }
    }

    /// Decodes the output of [`encode`](Self::encode); `None` for any other bytes. Allocates at
    /// most a small multiple of `bytes`.
    pub fn decode(bytes: &[u8]) -> Option<Tombstones> {
        let mut input = Decoder::new(bytes);
        let mut result = Tombstones::default();
        for _ in 0..input.varint()? {
            let flags = input.u8().filter(|flags| *flags <= TOUCHES | ENDLESS)?;
            let previous_end = match result.fragments.last() {
                // Nothing follows an unbounded range.
                Some(last) => Some(last.end.as_ref()?),
                None => None,
            };
            let start: KeyBytes = match flags & TOUCHES {
                0 => input.bytes()?.into(),
                _ => previous_end?.clone(),
            };
            let end: Option<KeyBytes> = match flags & ENDLESS {
                0 => Some(input.bytes()?.into()),
                _ => None,
            };
            if end.as_ref().is_some_and(|end| *end <= start) {
                return None;
            }
            match previous_end {
                Some(previous) if *previous > start || (*previous == start) != (flags & TOUCHES != 0) => {
                    return None;
                }
                _ => {}
            }
            let seqs = decode_seqs(&mut input)?;
            if flags & TOUCHES != 0 && result.fragments.last().is_some_and(|last| last.seqs == seqs) {
                return None;
            }
            result.fragments.push(Fragment { start, end, seqs });
        }
        input.is_empty().then_some(result)
    }
}

/// The fragment starts where the previous one ends.
const TOUCHES: u8 = 1;
/// The fragment has no end.
const ENDLESS: u8 = 2;

fn decode_seqs(input: &mut Decoder<'_>) -> Option<Box<[SeqNo]>> {
    let count = input.varint_usize().filter(|count| (1..=input.remaining()).contains(count))?;
    let mut seqs = Vec::with_capacity(count);
    seqs.push(input.varint().filter(|seq| (1..=MAX_SEQNO).contains(seq))?);
    for i in 1..count {
        let distance = input.varint().filter(|distance| *distance > 0)?;
        seqs.push(seqs[i - 1].checked_sub(distance).filter(|seq| *seq > 0)?);
    }
    Some(seqs.into_boxed_slice())
}

#[cfg(test)]
mod tests;
