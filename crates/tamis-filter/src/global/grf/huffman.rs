//! GRF_H: GRF's structure with the current run of each key in place of its shape (section 6.1 of
//! the paper). The paper uses it to show what Shape Encoding saves: here every merge must find and
//! change the entry of each of its keys.
//!
//! It has the parts of a [`Partition`], one of each for the whole tree: a map from keys to
//! positions, a set of entries, and codes of symbols that are near the entropy (`names.rs`; the
//! paper has Huffman codes). But a symbol stands for a run. How frequent each will be is estimated
//! when the filter is built, and stays.
//!
//! # Invariants
//! * The entries are a multiset of (position, symbol), one for each pair of a key and a run. It
//!   makes no difference which of several equal ones is removed.
//! * All runs without a symbol of their own share one. Their entries are counted run by run.
//! * A bit of the positions that a change cut is never asked for again ([`Layout::refit`]), so an
//!   entry stays the one that its key leads to.
//!
//! # Threads
//! Immutable. A change decodes all entries and encodes them anew: with keys spread over the tree, a
//! merge changes every block. No run has extra bits of position (section 4.3.2), because these
//! depend on the level.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::digest::Digest;
use crate::error::FilterError;
use crate::global::run_index::{expected_shares, for_each_key};
use crate::global::{Batch, Epochs, MapChoice, QueryMix, RunIndex, RunIndexSpec, RunTag, Tagged, TagsAhead};

use super::build::{FEWEST, PLANNED};
use super::choose::name;
use super::layout::{Layout, Lost};
use super::map::{Kind, MOST_POSITIONS, Map};
use super::names::Names;
use super::set::{Entry, Set};
use super::walk::Walker;
use super::{NO_BOUND, Partition, PartitionSpec};

/// Minimum assumed share of a run, which bounds the length of its code.
const LEAST_SHARE: f64 = 1e-4;
/// Maximum number of runs with their own symbol.
const MOST_RUNS: usize = 250;
/// Maximum ratio of entries to capacity.
const MAX_GROWTH: u64 = 2;
/// Maximum number of entries.
const MAX_ENTRIES: u64 = 1 << 28;

/// The runs that symbols stand for.
#[derive(Debug)]
struct Runs {
    /// By symbol, the most frequent first; `None` for the runs without a symbol of their own.
    tags: Vec<Option<RunTag>>,
    /// Ascending.
    symbols: Vec<(RunTag, u16)>,
    /// The symbol of the runs without one of their own.
    other: u16,
    names: Names,
}

impl Runs {
    /// Returns symbols for runs with these expected shares, and the expected bits of a code.
    fn new(shares: &[(RunTag, f64)]) -> (Self, f64) {
        let sum: f64 = shares.iter().map(|(_, share)| share).sum::<f64>().max(f64::MIN_POSITIVE);
        let mut sorted: Vec<(Option<RunTag>, f64)> =
            shares.iter().map(|(tag, share)| (Some(*tag), (share / sum).max(LEAST_SHARE))).collect();
        sorted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let rest: f64 = sorted.split_off(sorted.len().min(MOST_RUNS)).iter().map(|(_, share)| share).sum();
        sorted.push((None, rest.max(LEAST_SHARE)));
        sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
        let weights: Vec<f64> = sorted.iter().map(|(_, share)| *share).collect();
        let names = Names::new(&weights);
        let total: f64 = weights.iter().sum();
        let bits = (0..).zip(&weights).map(|(symbol, share)| names.bits(symbol) * share);
        let bits = bits.sum::<f64>() / total;
        let tags: Vec<Option<RunTag>> = sorted.into_iter().map(|(tag, _)| tag).collect();
        let mut symbols: Vec<(RunTag, u16)> =
            (0..).zip(&tags).filter_map(|(symbol, tag)| Some(((*tag)?, symbol))).collect();
        symbols.sort_unstable();
        let other = tags.iter().position(Option::is_none).unwrap_or(0) as u16;
        (Self { tags, symbols, other, names }, bits)
    }

    fn symbol(&self, tag: RunTag) -> u16 {
        let at = self.symbols.binary_search_by_key(&tag, |(tag, _)| *tag);
        at.map_or(self.other, |at| self.symbols[at].1)
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.tags.capacity() * size_of::<Option<RunTag>>()
            + self.symbols.capacity() * size_of::<(RunTag, u16)>()
            + self.names.heap_bytes()
    }
}

/// The filter of a whole tree, with a tag for each key. See the module documentation.
#[derive(Clone)]
pub struct GrfHuffman {
    map: Arc<Map>,
    runs: Arc<Runs>,
    set: Arc<Set>,
    /// Low bits of the map's positions that the set does not have.
    cut: u32,
    bits_per_key: f64,
    /// Expected bits of a code.
    code_bits: f64,
    capacity: u64,
    /// Entries of the largest block when it was built.
    built_largest: u64,
    /// Runs without a symbol of their own, with their entries.
    others: Vec<(RunTag, u64)>,
}

/// An entry added, or removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    entry: Entry,
    added: bool,
}

impl GrfHuffman {
    /// Builds a filter of all keys of these runs, with room for `spec.capacity` entries. Chooses
    /// the map as for a [`Partition`] that would have the bits that codes leave.
    ///
    /// # Errors
    /// [`FilterError::BitsPerKey`] for values outside `(0, 64]`, [`FilterError::TooLarge`] beyond
    /// 2^28 entries.
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
        let (runs, code_bits) = Runs::new(&expected_shares(&counts, capacity, spec));
        // A partition whose entries are all of the last level, which takes no bits.
        let mut distinct = Batch::new();
        for_each_key(&[], items, |change| {
            distinct.push(change.key, Digest::from_u64(change.digest), Epochs { lo: 0, hi: 1 });
            Some(())
        });
        let bits_per_key = (spec.bits_per_key - code_bits).max(1.0);
        let partition_spec = PartitionSpec { bits_per_key, map: MapChoice::Auto, mix: QueryMix::default() };
        let partition = Partition::build(&distinct, 1, &partition_spec)?;
        let layout = Layout { positions: 1, width: 0, coarse: 0 };
        let mut empty = GrfHuffman {
            map: partition.inner.map.clone(),
            set: Arc::new(Set::write(layout, &runs.names, &[])),
            runs: Arc::new(runs),
            cut: 0,
            bits_per_key: spec.bits_per_key,
            code_bits,
            capacity,
            built_largest: 0,
            others: Vec::new(),
        };
        let (planned, budget) = empty.plan(0);
        empty.map = Arc::new(empty.map.resized(Layout::most_positions(budget, planned, MOST_POSITIONS)));
        let full = empty.apply(&[], items, 0).ok_or(FilterError::Construction { keys: entries })?;
        Ok(GrfHuffman { built_largest: full.set.largest(), ..full })
    }

    /// Returns the filter after a change of runs. `None` if there are more entries than twice the
    /// capacity, if keys pile up where the map does not tell them apart, or if an entry to remove
    /// is not there. Decodes and encodes all entries.
    pub fn change(&self, removed: &[Tagged<'_>], added: &[Tagged<'_>]) -> Option<Self> {
        let mut changed = self.clone();
        let shift = changed.extend(added);
        let changed = changed.apply(removed, added, shift)?;
        let is_crowded = super::is_crowded(changed.set.largest(), changed.built_largest);
        (changed.set.entries() / MAX_GROWTH <= changed.capacity && !is_crowded).then_some(changed)
    }

    /// Returns the code bits per entry. Linear in the number of blocks.
    pub fn code_bits(&self) -> f64 {
        self.set.symbol_bits() as f64 / self.set.entries().max(1) as f64
    }

    /// Returns how keys are mapped to positions; never [`MapChoice::Auto`].
    pub fn map_choice(&self) -> MapChoice {
        name(self.map.kind)
    }

    /// Returns the number of entries that a layout is for, and the bits that they can take without
    /// their codes: those of a full filter, or of what it holds if that is more.
    fn plan(&self, entries: u64) -> (u64, f64) {
        let planned = self.capacity.max(entries).max(FEWEST);
        let fixed = (self.memory_bytes() - self.set.heap_bytes()) as f64 * 8.0 / planned as f64;
        // As for a partition: what is small now may grow.
        let per_entry = self.bits_per_key * PLANNED - self.code_bits - fixed.min(1.0);
        (planned, per_entry * planned as f64)
    }

    /// Creates segments in empty edges for keys added there; returns by how many positions the
    /// existing ones move.
    fn extend(&mut self, added: &[Tagged<'_>]) -> u64 {
        if self.map.kind == Kind::Digest {
            return 0;
        }
        let keys = added.iter().flat_map(|(batch, _)| batch.keys().iter());
        let mut numbers: Vec<u64> = keys.map(|key| self.map.keys.clamped(key)).collect();
        numbers.sort_unstable();
        let extended = self.map.extend(&numbers, |of| self.set.is_empty(of, self.cut), 2 << self.cut);
        extended.map_or(0, |(map, shift)| {
            self.map = Arc::new(map);
            shift
        })
    }

    /// Returns the filter after removing `removed` and adding `added`, with its current map, which
    /// put `shift` positions before the existing ones.
    fn apply(&self, removed: &[Tagged<'_>], added: &[Tagged<'_>], shift: u64) -> Option<Self> {
        let mut steps = Vec::new();
        let mut others: BTreeMap<RunTag, u64> = self.others.iter().copied().collect();
        let mut entries = self.set.entries();
        for_each_key(removed, added, |change| {
            let position = self.map.position(change.key, Digest::from_u64(change.digest));
            for (tags, added) in [(&change.removed, false), (&change.added, true)] {
                for &tag in tags {
                    let symbol = self.runs.symbol(tag);
                    if symbol == self.runs.other {
                        let entries = others.entry(tag).or_default();
                        *entries = if added { *entries + 1 } else { entries.checked_sub(1)? };
                    }
                    entries = if added { entries + 1 } else { entries.checked_sub(1)? };
                    steps.push(Step { entry: Entry { position, symbol }, added });
                }
            }
            Some(())
        })?;
        let (planned, budget) = self.plan(entries);
        let lost: Lost = self.set.layout.lost(self.cut, shift);
        let (layout, cut) = Layout::refit(self.map.positions(), planned, budget, lost);
        let kept = |position: u64| layout.kept(position >> cut);
        let mut old: Vec<Entry> = Vec::with_capacity(self.set.entries() as usize);
        self.set.each_from(&self.runs.names, 0, |position, symbol| {
            old.push(Entry { position: kept((position << self.cut) + shift), symbol: symbol as u16 });
            true
        });
        // Positions that have become equal have their symbols out of order.
        old.sort();
        steps.iter_mut().for_each(|step| step.entry.position = kept(step.entry.position));
        steps.sort_unstable();
        let set = Set::write(layout, &self.runs.names, &merge(&old, &steps)?);
        Some(GrfHuffman {
            set: Arc::new(set),
            cut,
            others: others.into_iter().filter(|(_, entries)| *entries > 0).collect(),
            ..self.clone()
        })
    }

    /// The runs of a symbol.
    #[inline]
    fn name(&self, symbol: u32, mut found: impl FnMut(RunTag)) {
        match self.runs.tags.get(symbol as usize) {
            Some(Some(tag)) => found(*tag),
            _ => self.others.iter().for_each(|(tag, _)| found(*tag)),
        }
    }

    fn walker(&self) -> Option<Walker<'_>> {
        Walker::new(&self.map, &self.set, &self.runs.names, self.cut, None)
    }
}

/// Returns entries after several steps, all in order. `None` if one to remove is not there.
fn merge(entries: &[Entry], steps: &[Step]) -> Option<Vec<Entry>> {
    let mut out = Vec::with_capacity(entries.len() + steps.len());
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
    Some(out)
}

impl RunIndex for GrfHuffman {
    fn probe(&self, key: &[u8], digest: Digest, found: &mut dyn FnMut(RunTag)) {
        let position = self.map.position(key, digest) >> self.cut;
        self.set.probe(&self.runs.names, position, |symbol| self.name(symbol, &mut *found));
    }

    fn prefetch(&self, key: &[u8], digest: Digest) {
        self.set.prefetch(self.map.position(key, digest) >> self.cut);
    }

    fn answers_ranges(&self) -> bool {
        self.map.kind != Kind::Digest
    }

    fn ahead(&self, from: &[u8], end: Option<&[u8]>, out: &mut TagsAhead) -> bool {
        out.clear();
        let Some(walker) = self.walker() else { return false };
        let TagsAhead { found, until } = out;
        *until = walker.ahead(from, end, 0, |symbol, number| {
            self.name(symbol, |tag| found.push((tag, Some(number))));
        });
        true
    }

    fn behind(&self, before: Option<&[u8]>, start: &[u8], out: &mut TagsAhead) -> bool {
        out.clear();
        let Some(walker) = self.walker() else { return false };
        let TagsAhead { found, until } = out;
        *until = walker.behind(before, start, |symbol, number| {
            self.name(symbol, |tag| found.push((tag, Some(number).filter(|&number| number != NO_BOUND))));
        });
        true
    }

    fn lower_key(&self, at: u64, key: &mut Vec<u8>) {
        self.map.lower_key(at, key);
    }

    fn change(&self, removed: &[Tagged<'_>], added: &[Tagged<'_>]) -> Option<Arc<dyn RunIndex>> {
        Some(Arc::new(GrfHuffman::change(self, removed, added)?))
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + size_of::<Map>()
            + self.map.heap_bytes()
            + self.runs.memory_bytes()
            + size_of::<Set>()
            + self.set.heap_bytes()
            + self.others.capacity() * size_of::<(RunTag, u64)>()
    }

    fn entries(&self) -> u64 {
        self.set.entries()
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }
}

impl fmt::Debug for GrfHuffman {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrfHuffman")
            .field("entries", &self.set.entries())
            .field("blocks", &self.set.blocks())
            .field("map", &self.map_choice())
            .finish_non_exhaustive()
    }
}
