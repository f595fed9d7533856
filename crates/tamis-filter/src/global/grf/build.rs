//! Builds a partition: chooses the map, the number of positions and the book, and writes the
//! entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::FilterError;
use crate::global::{Batch, Cuts, Epoch, Epochs, MapChoice};
use crate::keys::KeyMap;

use super::book::Book;
use super::choose::{Trial, candidates, name};
use super::layout::Layout;
use super::map::{Kind, Knots, MOST_POSITIONS, Map, pieces_of};
use super::set::{Entry, Set};
use super::walk::met_by_a_walk;
use super::{Crowd, Inner, MapReason, Partition, PartitionSpec};

/// Target numbers of keys per segment to choose from, and whether these are divided into pieces.
/// Evenly spread keys need few knots, which take memory; clusters need pieces; many knots without
/// pieces are for keys that are far from even in a few places only.
const SEGMENTS: [(usize, bool); 4] = [(512, false), (FINE_KEYS, false), (1024, true), (512, true)];
/// The smallest of these, at number [`FINE`].
pub(super) const FINE_KEYS: usize = 128;
const FINE: usize = 1;
/// Fewer segments than this have no pieces.
const FEWEST_IN_PIECES: usize = 8;
/// With fewer segments than this, they get smaller.
const MANY_SEGMENTS: usize = 128;
/// Maximum number of keys of a new partition.
const MAX_KEYS: usize = 1 << 28;
/// The share of the budget that is planned for; the rest is for flushes until the next plan.
pub(super) const PLANNED: f64 = 0.985;
/// Fewer keys are planned for as if they were so many: the partition may grow, and positions per
/// segment stay as they are. It takes a few hundred bytes.
pub(super) const FEWEST: u64 = 512;
/// Maximum bits per key that the parts of fixed size are accounted for. Small partitions take more.
const MOST_FIXED: f64 = 0.2;
/// The same for partitions that are built of [`MANY`] keys, which would take more than was asked
/// for. Once they have grown they take less; smaller ones may grow more, and positions that they
/// were not given they do not get then.
const MOST_FIXED_OF_MANY: f64 = 0.5;
/// A little less than the engine builds a partition of where it can: some keys are joined.
const MANY: u64 = 7000;

/// Returns knots that cut numbers (ascending) into segments of about as many keys each; the last
/// lies after them all, if possible.
fn knots(numbers: &[u64], segment_keys: usize, max: u64) -> Vec<u64> {
    let Some(&last) = numbers.last() else { return Vec::new() };
    let segments = numbers.len().div_ceil(segment_keys);
    let mut knots: Vec<u64> = (0..segments).map(|at| numbers[at * numbers.len() / segments]).collect();
    knots.push(last.saturating_add(1).min(max));
    knots.dedup();
    knots.shrink_to_fit();
    knots
}

/// Returns the bits that are left for positions of the entries of [`planned`] keys. No more than
/// `most_fixed` bits per key are accounted for parts of fixed size.
pub(super) fn budget(
    bits_per_key: f64,
    keys: u64,
    map: &Map,
    book: &Book,
    symbol_bits: u64,
    most_fixed: f64,
) -> f64 {
    // Those to come have codes like the others.
    let symbol_bits = symbol_bits as f64 * planned(keys) as f64 / keys.max(1) as f64;
    let keys = planned(keys) as f64;
    let fixed = fixed_bytes(map, book) - map.heap_bytes();
    let knots = map.heap_bytes() as f64 * 8.0 / keys;
    // A partition that is small now may grow.
    let fixed = (fixed as f64 * 8.0 / keys).min(most_fixed);
    (bits_per_key * PLANNED - fixed - knots.min(1.0)) * keys - symbol_bits
}

/// Returns the number of keys that the layout of a partition with so many is made for, or of
/// entries.
pub(super) fn planned(keys: u64) -> u64 {
    keys.max(FEWEST)
}

/// Returns the most positions for which keys take `budget` bits with their codes, if they are
/// spread evenly; for each code the number of its keys and its bits. Keys of one code at one
/// position are one entry, so that where there are few positions there can be more.
fn most_positions(budget: f64, codes: &[(u64, f64)]) -> u64 {
    let keys: u64 = codes.iter().map(|(count, _)| count).sum();
    let codes = if keys == 0 { &[(1, 0.0)] } else { codes };
    let growth = planned(keys) as f64 / keys.max(1) as f64;
    let within = |positions: Option<u64>| {
        let distinct = |count: f64| match positions.map(|positions| positions as f64) {
            Some(positions) => -positions * (-count / positions).exp_m1(),
            None => count,
        };
        let entries = codes.iter().map(|&(count, bits)| (distinct(count as f64 * growth), bits));
        let (entries, bits) =
            entries.fold((0.0, 0.0), |(all, sum), (entries, bits)| (all + entries, sum + entries * bits));
        Layout::most_positions(budget - bits, entries.ceil() as u64, MOST_POSITIONS)
    };
    // With more positions there are more entries, and with these fewer positions: estimates
    // alternate around the answer and come closer. The last is one from below.
    let mut positions = within(None);
    for _ in 0..3 {
        let above = within(Some(positions));
        positions = within(Some(above)).max(positions);
    }
    positions
}

/// Returns the bits per key at most that the parts of fixed size are accounted for in a partition
/// built of so many entries.
pub(super) fn most_fixed(built: u64) -> f64 {
    if built < MANY { MOST_FIXED } else { MOST_FIXED_OF_MANY }
}

/// Returns the bytes of a partition beside its set.
pub(super) fn fixed_bytes(map: &Map, book: &Book) -> usize {
    size_of::<Inner>() + size_of::<Map>() + map.heap_bytes() + size_of::<Book>() + book.heap_bytes()
}

/// Returns the bits of the symbols of entries.
pub(super) fn symbol_bits(book: &Book, entries: &[Entry]) -> u64 {
    let mut counts = vec![0u64; book.symbols() as usize];
    entries.iter().for_each(|entry| counts[usize::from(entry.symbol)] += 1);
    let bits = (0..).zip(counts).map(|(symbol, count)| count as f64 * book.names.bits(symbol));
    bits.sum::<f64>().ceil() as u64
}

impl Partition {
    /// Builds the filter of `batch`. Entries of tables that hold epochs before `base` get the code
    /// "last". Valid for readers of the version that the batch was taken from and of later ones.
    ///
    /// Several passes over the keys, and a sort of the positions.
    ///
    /// # Errors
    /// [`FilterError::BitsPerKey`] and [`FilterError::TooLarge`] for an invalid specification.
    pub fn build(batch: &Batch, base: Epoch, spec: &PartitionSpec) -> Result<Partition, FilterError> {
        if !(spec.bits_per_key > 0.0 && spec.bits_per_key <= 64.0) {
            return Err(FilterError::BitsPerKey(spec.bits_per_key));
        }
        if batch.len() > MAX_KEYS {
            return Err(FilterError::TooLarge { keys: batch.len() as u64 });
        }
        let mut distinct: Vec<Epochs> = batch.iter().map(|(.., epochs)| epochs).collect();
        distinct.dedup();
        distinct.sort_unstable();
        distinct.dedup();
        let cuts = Cuts::of(distinct.iter().copied());
        let table = |epochs: Epochs| distinct.partition_point(|known| *known < epochs);
        let mut by_table = vec![0; distinct.len()];
        batch.iter().for_each(|(.., epochs)| by_table[table(epochs)] += 1);
        let mut counts: BTreeMap<Epochs, u64> = BTreeMap::new();
        let interval = |epochs| Book::interval(base, epochs, &cuts);
        distinct
            .iter()
            .zip(by_table)
            .for_each(|(&of, count)| *counts.entry(interval(of)).or_default() += count);
        let book = Book::new(base, &counts, 0, false);
        let symbols: Vec<u16> = distinct.iter().map(|&of| book.exact(interval(of))).collect();
        let codes: Vec<(u64, f64)> =
            counts.iter().map(|(of, count)| (*count, book.names.bits(book.exact(*of)))).collect();

        let keys = KeyMap::growing(batch.keys());
        let list = batch.keys();
        let is_first = |at: &usize| *at == 0 || list.get(*at) != list.get(*at - 1);
        let firsts: Vec<usize> = (0..batch.len()).filter(is_first).collect();
        let numbers: Vec<u64> = firsts.iter().map(|&at| keys.clamped(list.get(at))).collect();
        // The two edges are segments without keys: with few segments they would waste positions.
        let most = (numbers.len() / MANY_SEGMENTS).max(FINE_KEYS);
        let sizes = SEGMENTS.map(|(keys, in_pieces)| if in_pieces { keys } else { keys.min(most) });
        let uses_order = matches!(spec.map, MapChoice::Auto | MapChoice::Learned);
        let may_have_pieces =
            |size: usize| SEGMENTS[size].1 && uses_order && numbers.len() >= FEWEST_IN_PIECES * sizes[size];
        let knots_of = |size: usize| {
            let knots = knots(&numbers, sizes[size], keys.max());
            let pieces = if may_have_pieces(size) { pieces_of(&knots, &numbers) } else { Vec::new() };
            Knots { knots, pieces }
        };
        let all = batch.len() as u64;
        let most_fixed = most_fixed(all);
        let map_of = |kind: Kind, size: usize, knots: &Knots| {
            let knots = if kind == Kind::Digest { Knots::default() } else { knots.clone() };
            let of = |knots: Knots, taken: &Map| {
                let budget = budget(spec.bits_per_key, all, taken, &book, 0, most_fixed);
                Map::new(keys.clone(), kind, knots, most_positions(budget, &codes), sizes[size])
            };
            // Positions depend on what the map takes, which depends on its knots, and on whether it
            // has so many cells that these can have pieces.
            let map = of(knots.clone(), &Map::new(keys.clone(), kind, knots.clone(), 1, sizes[size]));
            if map.is_in_pieces() { of(knots, &map) } else { map }
        };
        let trial = Trial::new(&keys, list, &firsts, &numbers, &spec.mix, distinct.len());
        let mut maps: Vec<Map> = Vec::new();
        for (size, (_, in_pieces)) in SEGMENTS.into_iter().enumerate() {
            // What is even already gains nothing from pieces.
            if in_pieces && (!may_have_pieces(size) || maps.first().is_some_and(|map| trial.is_even(map))) {
                continue;
            }
            let knots = knots_of(size);
            // Pieces take memory that positions then lack.
            let per_segment = map_of(Kind::Ordered { cells: u64::MAX }, size, &knots);
            let per_segment = per_segment.positions() / per_segment.segments() as u64;
            for kind in candidates(spec.map, per_segment) {
                // Only order profits from one size or another; the digest takes the finest.
                let is_ordered = matches!(kind, Kind::Ordered { cells } if cells > 1);
                // A local map ignores the digest, and held-out keys rarely share the number of
                // another; keys that were asked for may.
                let is_blind = matches!(kind, Kind::Local { .. })
                    && spec.map == MapChoice::Auto
                    && keys.is_blind()
                    && spec.mix.points.is_empty();
                let has_order =
                    kind != Kind::Digest || spec.map == MapChoice::Digest || !spec.mix.needs_order;
                if is_blind || !has_order || !is_ordered && size != FINE {
                    continue;
                }
                let map = map_of(kind, size, &knots);
                if in_pieces && !map.is_in_pieces() {
                    continue;
                }
                maps.push(map);
            }
        }
        let (best, by_order) = trial.best(maps);
        let map = best.unwrap_or_else(|| map_of(Kind::Ordered { cells: 1 }, FINE, &knots_of(FINE)));
        let holdout_rate = by_order.filter(|_| spec.map == MapChoice::Auto && trial.points() > 0);
        let ideal_rate = 1.0 - (-(all as f64) / map.positions() as f64).exp();
        let reason = MapReason { chosen: name(map.kind), holdout_rate, ideal_rate };

        let place = |(key, digest, epochs): (&[u8], _, Epochs)| Entry {
            position: map.position(key, digest),
            symbol: symbols[table(epochs)],
        };
        let mut placed: Vec<Entry> = batch.iter().map(place).collect();
        placed.sort_unstable();
        placed.dedup();
        let is_blurred = placed.len() * 4 < batch.len() * 3;
        let symbol_bits = symbol_bits(&book, &placed);
        let budget = budget(spec.bits_per_key, all, &map, &book, symbol_bits, most_fixed);
        let (layout, cut) = Layout::fit(map.positions(), planned(placed.len() as u64), budget);
        let set = write(layout, cut, &mut placed, &book);
        let last = placed.iter().filter(|entry| Some(entry.symbol) == book.last).count() as u64;
        let largest = set.largest();
        let met_by_a_walk = met_by_a_walk(&map, &set, &book);
        let inner = Inner {
            built: all,
            keys: all,
            crowd: Crowd { built_largest: largest, largest, is_blurred, ..Crowd::default() },
            map: Arc::new(map),
            book: Arc::new(book),
            set,
            cut,
            bits_per_key: spec.bits_per_key,
            last,
            young: 0,
            reason,
            last_is_unknown: false,
            met_by_a_walk,
        };
        Ok(Partition { inner: Arc::new(inner) })
    }
}

/// Sorts entries whose positions ascend, and keeps one of each set of equal ones.
pub(super) fn order(entries: &mut Vec<Entry>) {
    let mut at = 1;
    while at < entries.len() {
        if entries[at - 1] <= entries[at] {
            at += 1;
            continue;
        }
        let position = entries[at].position;
        if entries[at - 1].position != position {
            // Only what was read from changed bytes is out of order.
            entries.sort_unstable();
            break;
        }
        let is_there = |entry: &&Entry| entry.position == position;
        let before = entries[..at].iter().rev().take_while(is_there).count();
        let after = entries[at..].iter().take_while(is_there).count();
        entries[at - before..at + after].sort_unstable();
        at += after;
    }
    entries.dedup();
}

/// Writes entries with positions of a map in a layout, after cutting `cut` bits from all positions.
/// `entries` ascend; they are changed into what was written.
pub(super) fn write(layout: Layout, cut: u32, entries: &mut Vec<Entry>, book: &Book) -> Set {
    if cut > 0 || layout.coarse > 0 {
        for entry in entries.iter_mut() {
            entry.position = layout.kept(entry.position >> cut);
        }
        order(entries);
    }
    Set::write(layout, &book.names, entries)
}
