//! GRF_H: GRF's structure with the current run of each key in place of its shape (section 6.1 of the paper). The
//! paper uses it to show what Shape Encoding saves: here every merge must find and change the entry of each of its
//! keys.
//!
//! Keys are mapped to blocks and positions as in a [`Partition`], by the same maps, with one map for the whole tree.
//! An entry is a position with a tag. The run of most keys takes a one-bit flag as its tag; the others a Huffman code
//! after the flag, based on each run's expected share of the entries.
//!
//! ```text
//! block: positions in Elias–Fano coding
//!        one bit per entry: it is not of the most frequent run
//!        for each that is not, in order: its code
//! ```
//!
//! # Invariants
//! * The entries are a multiset of (position, symbol), one for each pair of a key and a run. It makes no difference
//!   which of several equal ones is removed.
//! * All runs without a symbol of their own share one.
//!
//! # Threads
//! Immutable. A change copies the filter, and decodes and re-encodes each affected block: with keys spread over the
//! tree, all of them. No run has extra bits of position (section 4.3.2), because these depend on the level.

mod coder;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::bits;
use crate::digest::Digest;
use crate::elias_fano::Sequence;
use crate::error::FilterError;
use crate::global::run_index::{expected_shares, for_each_key};
use crate::global::{Batch, Epochs, MapChoice, RunIndex, RunIndexSpec, RunTag, Tagged, TagsAhead};
use crate::words::{Owned, Words};

use super::map::{Kind, Map};
use super::{Partition, PartitionSpec};
use coder::TagCoder;

/// Bits of a directory word for the offset of a block; the rest is its number of entries.
const PLACE_BITS: u32 = 36;
/// Segments without entries that a walk passes before it ends.
const EMPTY_SEGMENTS: usize = 8;
/// Maximum ratio of entries to capacity.
const MAX_GROWTH: u64 = 2;
/// Maximum number of entries.
const MAX_ENTRIES: u64 = 1 << 28;

/// The filter of a whole tree, with a tag for each key. See the module documentation.
#[derive(Clone)]
pub struct GrfHuffman {
    map: Arc<Map>,
    coder: Arc<TagCoder>,
    shape: Shape,
    /// Offset and number of entries of each block, and the end.
    directory: Arc<[u64]>,
    words: Owned,
    entries: u64,
    capacity: u64,
    /// Runs without a symbol of their own, with their entries.
    others: Vec<(RunTag, u64)>,
}

/// The parameters shared by all blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    /// Low bits of the map's positions that are not kept.
    dropped: u32,
    /// Parameters of the Elias–Fano coding.
    width: u32,
    buckets: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Entry {
    position: u64,
    symbol: u8,
}

/// Entries added to a block, and those removed.
struct Step {
    block: usize,
    entry: Entry,
    added: bool,
}

impl GrfHuffman {
    /// Builds a filter of all keys of these runs, with room for `spec.capacity` entries.
    ///
    /// # Errors
    /// [`FilterError::BitsPerKey`] for values outside `(0, 64]`, [`FilterError::TooLarge`] beyond 2^28 entries.
    pub fn build(items: &[Tagged<'_>], spec: &RunIndexSpec) -> Result<Self, FilterError> {
        if !(spec.bits_per_key > 0.0 && spec.bits_per_key <= 64.0) {
            return Err(FilterError::BitsPerKey(spec.bits_per_key));
        }
        let mut counts: BTreeMap<RunTag, u64> = BTreeMap::new();
        items.iter().for_each(|(batch, tag)| *counts.entry(*tag).or_default() += batch.len() as u64);
        let entries = counts.values().sum::<u64>();
        let capacity = spec.capacity.max(entries).max(1);
        if capacity > MAX_ENTRIES {
            return Err(FilterError::TooLarge { keys: capacity });
        }
        let shares = expected_shares(&counts, capacity, spec);
        let coder = TagCoder::new(&shares);
        // The map of a partition whose entries are all of the last level, one bit each; the remaining code bits are
        // set aside.
        let mut distinct = Batch::new();
        for_each_key(&[], items, |change| {
            distinct.push(change.key, Digest::from_u64(change.digest), Epochs { lo: 0, hi: 1 });
            Some(())
        });
        let bits_per_key = (spec.bits_per_key - (coder.expected_bits(&shares) - 1.0)).max(1.0);
        let growth = (capacity as f64 / distinct.len().max(1) as f64).clamp(1.0, 1e6);
        let partition_spec = PartitionSpec { bits_per_key, growth, radices: vec![1], map: MapChoice::Auto };
        let partition = Partition::build(&distinct, 1, &partition_spec)?;
        let layout = partition.inner.layout;
        let map = partition.inner.map.clone();
        let blocks = map.blocks();
        let empty = GrfHuffman {
            map,
            coder: Arc::new(coder),
            shape: Shape { dropped: layout.extra, width: layout.width, buckets: layout.buckets },
            directory: vec![0; blocks + 1].into(),
            words: Owned::default(),
            entries: 0,
            capacity,
            others: Vec::new(),
        };
        empty.apply(&[], items, 0).ok_or(FilterError::Construction { keys: entries })
    }

    /// Returns the filter after a change of runs. `None` if there are more entries than twice the capacity, or if an
    /// entry to remove is not there.
    pub fn change(&self, removed: &[Tagged<'_>], added: &[Tagged<'_>]) -> Option<Self> {
        let mut changed = self.clone();
        let shift = changed.extend(added);
        let changed = changed.apply(removed, added, shift)?;
        (changed.entries / MAX_GROWTH <= changed.capacity).then_some(changed)
    }

    /// Returns the code bits per entry. Linear in the number of blocks.
    pub fn code_bits(&self) -> f64 {
        let blocks = (0..self.blocks()).map(|at| self.block(at).1).filter(|&count| count > 0);
        let codes = self.end() - blocks.map(|count| self.shape.positions(count)).sum::<u64>();
        codes as f64 / self.entries.max(1) as f64
    }

    /// Returns how keys are mapped to positions; never [`MapChoice::Auto`].
    pub fn map_choice(&self) -> MapChoice {
        match self.map.kind {
            Kind::Learned => MapChoice::Learned,
            Kind::Digest => MapChoice::Digest,
            Kind::Mixed => MapChoice::Mixed,
        }
    }

    fn blocks(&self) -> usize {
        self.directory.len() - 1
    }

    /// Bits of all blocks.
    fn end(&self) -> u64 {
        self.directory[self.blocks()] & bits::mask(PLACE_BITS)
    }

    /// Returns offset and number of entries of a block.
    #[inline]
    fn block(&self, at: usize) -> (u64, u64) {
        let word = self.directory[at];
        (word & bits::mask(PLACE_BITS), word >> PLACE_BITS)
    }

    /// Creates segments in empty edges for keys added there; returns the number of blocks by which the existing ones
    /// move.
    fn extend(&mut self, added: &[Tagged<'_>]) -> usize {
        if self.map.kind == Kind::Digest {
            return 0;
        }
        let mut numbers: Vec<u64> = added
            .iter()
            .flat_map(|(batch, _)| batch.keys().iter())
            .map(|key| self.map.keys.clamped(key))
            .collect();
        numbers.sort_unstable();
        let extended = self.map.extend(&numbers, |block| self.block(block).1 == 0);
        extended.map_or(0, |(map, shift)| {
            self.map = Arc::new(map);
            shift
        })
    }

    /// Returns the filter after removing `removed` and adding `added`, with its current map, which put `shift` blocks
    /// before the existing ones.
    fn apply(&self, removed: &[Tagged<'_>], added: &[Tagged<'_>], shift: usize) -> Option<Self> {
        let mut steps = Vec::new();
        let mut others: BTreeMap<RunTag, u64> = self.others.iter().copied().collect();
        for_each_key(removed, added, |change| {
            let spot = self.map.spot(change.key, Digest::from_u64(change.digest));
            let position = spot.position >> self.shape.dropped;
            for (tags, added) in [(&change.removed, false), (&change.added, true)] {
                for &tag in tags {
                    let symbol = self.coder.symbol(tag);
                    if symbol == self.coder.other {
                        let entries = others.entry(tag).or_default();
                        *entries = if added { *entries + 1 } else { entries.checked_sub(1)? };
                    }
                    steps.push(Step { block: spot.block, entry: Entry { position, symbol }, added });
                }
            }
            Some(())
        })?;
        steps.sort_unstable_by_key(|step| (step.block, step.entry, step.added));
        let mut writer =
            Writer { filter: self, directory: Vec::new(), words: Vec::new(), end: 0, entries: 0 };
        writer.words.reserve(self.words.len() + steps.len() / 4);
        let (mut rest, mut entries, mut merged) = (&steps[..], Vec::new(), Vec::new());
        for at in 0..self.map.blocks() {
            let old = at.checked_sub(shift).filter(|&old| old < self.blocks());
            let count = rest.iter().take_while(|step| step.block == at).count();
            let (here, behind) = rest.split_at(count);
            rest = behind;
            match old {
                Some(old) if here.is_empty() => writer.copy(old)?,
                _ => {
                    entries.clear();
                    if let Some(old) = old {
                        self.decode(old, &mut entries);
                    }
                    merge(&entries, here, &mut merged)?;
                    writer.block(&merged)?;
                }
            }
        }
        writer.directory.push(writer.end);
        Some(GrfHuffman {
            directory: writer.directory.into(),
            words: writer.words.into(),
            entries: writer.entries,
            others: others.into_iter().filter(|(_, entries)| *entries > 0).collect(),
            ..self.clone()
        })
    }

    /// Appends the entries of a block, in order.
    fn decode(&self, at: usize, out: &mut Vec<Entry>) {
        let (place, count) = self.block(at);
        if count == 0 {
            return;
        }
        let first = out.len();
        let positions = Sequence::new(place, count, self.shape.buckets, self.shape.width);
        positions.for_each(&self.words, |position| out.push(Entry { position, symbol: 0 }));
        let flags = place + self.shape.positions(count);
        let mut code = flags + count;
        for (rank, entry) in (0..).zip(&mut out[first..]) {
            if bits::read(&self.words, flags + rank, 1) == 1 {
                (entry.symbol, code) = self.coder.decode(&self.words, code);
            }
        }
    }

    /// Calls `found` with the symbol of every entry of a block with this position.
    fn matches(&self, at: usize, position: u64, mut found: impl FnMut(u8)) {
        let (place, count) = self.block(at);
        if count == 0 {
            return;
        }
        let positions = Sequence::new(place, count, self.shape.buckets, self.shape.width);
        let (rank, same) = positions.equal(&self.words, position);
        let flags = place + self.shape.positions(count);
        // Locating the codes means decoding those before them, so it is done only if needed.
        let mut codes = None;
        for rank in rank..rank + same {
            if bits::read(&self.words, flags + rank, 1) == 0 {
                found(0);
                continue;
            }
            let code = codes.unwrap_or_else(|| {
                let before = (0..rank).step_by(64).map(|start| {
                    bits::read(&self.words, flags + start, (rank - start).min(64) as u32).count_ones()
                });
                (0..before.sum::<u32>()).fold(flags + count, |at, _| self.coder.decode(&self.words, at).1)
            });
            let (symbol, behind) = self.coder.decode(&self.words, code);
            codes = Some(behind);
            found(symbol);
        }
    }

    /// The runs of a symbol.
    #[inline]
    fn name(&self, symbol: u8, found: &mut dyn FnMut(RunTag)) {
        match self.coder.tags[usize::from(symbol)] {
            Some(tag) => found(tag),
            None => self.others.iter().for_each(|(tag, _)| found(*tag)),
        }
    }

    /// Returns the largest number that a key below `end` can have; `None` if there is no such key.
    fn last_before(&self, end: Option<&[u8]>) -> Option<u64> {
        let Some(end) = end else { return Some(u64::MAX) };
        let number = self.map.keys.clamped(end);
        let mut lower = Vec::new();
        self.lower_key(number, &mut lower);
        // The lower key is the smallest key with the number of `end`.
        if lower == end { number.checked_sub(1) } else { Some(number) }
    }

    /// Reports the runs of a segment that may have a key with one of these numbers, each with the lowest number that
    /// such a key can have and the one after the highest (`None`: no bound).
    fn find(
        &self,
        segment: usize,
        (first, last): (u64, u64),
        entries: &mut Vec<Entry>,
        mut found: impl FnMut(RunTag, u64, Option<u64>),
    ) {
        entries.clear();
        self.map.blocks_of(segment).for_each(|block| self.decode(block, entries));
        let (lower, upper) = (self.map.lower(segment), self.map.upper(segment));
        if self.map.kind == Kind::Mixed {
            for entry in entries.iter() {
                self.name(entry.symbol, &mut |tag| found(tag, lower, upper));
            }
            return;
        }
        let line = self.map.line(segment);
        let dropped = self.shape.dropped;
        let first = line.position(first.saturating_sub(lower)) >> dropped;
        let last = line.position(last.min(upper.map_or(u64::MAX, |upper| upper - 1)) - lower) >> dropped;
        for entry in entries.iter().filter(|entry| (first..=last).contains(&entry.position)) {
            let begin = lower.saturating_add(line.first_at(entry.position << dropped));
            let next = (entry.position + 1) << dropped;
            let behind = if next < self.map.positions {
                let behind = lower.saturating_add(line.first_at(next));
                // No number after the greatest possible one can serve as a bound.
                let behind = upper.map_or(behind, |upper| behind.min(upper));
                Some(behind).filter(|&behind| behind < u64::MAX && behind <= self.map.keys.max())
            } else {
                upper
            };
            self.name(entry.symbol, &mut |tag| found(tag, begin, behind));
        }
    }
}

impl Shape {
    /// Bits of the positions of `count` entries.
    fn positions(&self, count: u64) -> u64 {
        count * (u64::from(self.width) + 1) + self.buckets
    }
}

/// Returns the entries of a block after several steps, all in order. `None` if one to remove is not there.
fn merge(entries: &[Entry], steps: &[Step], out: &mut Vec<Entry>) -> Option<()> {
    out.clear();
    let mut at = 0;
    for step in steps {
        let before = entries[at..].iter().take_while(|entry| **entry < step.entry).count();
        out.extend_from_slice(&entries[at..at + before]);
        at += before;
        if step.added {
            out.push(step.entry);
        } else {
            // Removals come before additions of an equal entry.
            entries.get(at).filter(|entry| **entry == step.entry)?;
            at += 1;
        }
    }
    out.extend_from_slice(&entries[at..]);
    Some(())
}

/// Writes blocks sequentially. Returns `None` for what the directory cannot hold.
struct Writer<'f> {
    filter: &'f GrfHuffman,
    directory: Vec<u64>,
    words: Vec<u64>,
    /// Bits written.
    end: u64,
    entries: u64,
}

impl Writer<'_> {
    fn start(&mut self, count: u64, bits: u64) -> Option<()> {
        if (self.end + bits) >> PLACE_BITS != 0 || count >> (64 - PLACE_BITS) != 0 {
            return None;
        }
        self.directory.push(self.end | count << PLACE_BITS);
        self.words.resize(bits::words_for(self.end + bits) as usize, 0);
        self.entries += count;
        Some(())
    }

    fn block(&mut self, entries: &[Entry]) -> Option<()> {
        debug_assert!(entries.is_sorted());
        let (shape, coder, count) = (self.filter.shape, &self.filter.coder, entries.len() as u64);
        if count == 0 {
            return self.start(0, 0);
        }
        let codes: u64 = entries.iter().map(|entry| coder.bits(entry.symbol)).sum();
        self.start(count, shape.positions(count) + count + codes)?;
        let positions = Sequence::new(self.end, count, shape.buckets, shape.width);
        positions.encode(&mut self.words, entries.iter().map(|entry| entry.position));
        let flags = self.end + shape.positions(count);
        let mut at = flags + count;
        for (rank, entry) in (0..).zip(entries) {
            if let Some(symbol) = usize::from(entry.symbol).checked_sub(1) {
                let (code, len) = coder.codes[symbol];
                bits::write(&mut self.words, flags + rank, 1, 1);
                bits::write(&mut self.words, at, u32::from(len), u64::from(code));
                at += u64::from(len);
            }
        }
        self.end = at;
        Some(())
    }

    /// Copies the next block from the previous filter.
    fn copy(&mut self, at: usize) -> Option<()> {
        let ((mut from, count), end) = (self.filter.block(at), self.filter.block(at + 1).0);
        self.start(count, end - from)?;
        while from < end {
            let width = (end - from).min(64) as u32;
            bits::write(&mut self.words, self.end, width, bits::read(&self.filter.words, from, width));
            from += u64::from(width);
            self.end += u64::from(width);
        }
        Some(())
    }
}

impl RunIndex for GrfHuffman {
    fn probe(&self, key: &[u8], digest: Digest, found: &mut dyn FnMut(RunTag)) {
        let spot = self.map.spot(key, digest);
        self.matches(spot.block, spot.position >> self.shape.dropped, |symbol| self.name(symbol, found));
    }

    fn prefetch(&self, key: &[u8], digest: Digest) {
        let (place, _) = self.block(self.map.spot(key, digest).block);
        self.words.prefetch((place / 64) as usize);
        self.words.prefetch((place / 64) as usize + 8);
    }

    fn answers_ranges(&self) -> bool {
        self.map.kind != Kind::Digest
    }

    fn ahead(&self, from: &[u8], end: Option<&[u8]>, out: &mut TagsAhead) -> bool {
        out.clear();
        if !self.answers_ranges() {
            return false;
        }
        let first = self.map.keys.clamped(from);
        let Some(last) = self.last_before(end).filter(|&last| first <= last) else { return true };
        let (start, stop) = (self.map.segment(first), self.map.segment(last));
        let mut entries = Vec::new();
        for segment in start..=stop {
            self.find(segment, (first, last), &mut entries, |tag, lower, _| {
                match out.found.iter_mut().find(|(known, _)| *known == tag) {
                    Some((_, bound)) => *bound = bound.map(|bound| bound.min(lower)),
                    None => out.found.push((tag, Some(lower))),
                }
            });
            if segment < stop && (!out.found.is_empty() || segment - start + 1 >= EMPTY_SEGMENTS) {
                out.until = self.map.upper(segment);
                break;
            }
        }
        true
    }

    fn behind(&self, before: Option<&[u8]>, start: &[u8], out: &mut TagsAhead) -> bool {
        out.clear();
        if !self.answers_ranges() {
            return false;
        }
        let first = self.map.keys.clamped(start);
        let Some(last) = self.last_before(before).filter(|&last| first <= last) else { return true };
        let (start, stop) = (self.map.segment(last), self.map.segment(first));
        let mut entries = Vec::new();
        for segment in (stop..=start).rev() {
            self.find(segment, (first, last), &mut entries, |tag, _, behind| {
                match out.found.iter_mut().find(|(known, _)| *known == tag) {
                    Some((_, bound)) => *bound = bound.zip(behind).map(|(a, b)| a.max(b)),
                    None => out.found.push((tag, behind)),
                }
            });
            if segment > stop && (!out.found.is_empty() || start - segment + 1 >= EMPTY_SEGMENTS) {
                out.until = Some(self.map.lower(segment));
                break;
            }
        }
        true
    }

    fn lower_key(&self, at: u64, key: &mut Vec<u8>) {
        match at {
            0 => key.clear(),
            at => self.map.keys.write_key_at(at, key),
        }
    }

    fn change(&self, removed: &[Tagged<'_>], added: &[Tagged<'_>]) -> Option<Arc<dyn RunIndex>> {
        Some(Arc::new(GrfHuffman::change(self, removed, added)?))
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + size_of::<Map>()
            + self.map.memory_bytes()
            + self.coder.memory_bytes()
            + (self.directory.len() + self.words.len()) * 8
    }

    fn entries(&self) -> u64 {
        self.entries
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }
}

impl fmt::Debug for GrfHuffman {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrfHuffman")
            .field("entries", &self.entries)
            .field("blocks", &self.blocks())
            .field("map", &self.map_choice())
            .finish_non_exhaustive()
    }
}
