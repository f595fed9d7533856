//! Walks over the entries in key order, for iterators.
//!
//! A walk ends with the first segment that has entries to report, or after a few empty ones, and an
//! iterator that continues starts another walk from there. Forwards it may end within a segment,
//! after the requested number of entries ([`Ahead::most`]). It reports the entries whose positions
//! a key of the range may have; in a segment whose cells the digest divides, and all the more in
//! one without cells, these are more than the range has keys.

use std::ops::RangeInclusive;

use crate::global::Ahead;

use super::book::Book;
use super::map::{Kind, Map};
use super::names::{MAX_SYMBOLS, Names};
use super::set::Set;
use super::{NO_BOUND, Partition};

/// Segments without entries that a walk passes before it stops.
const EMPTY_SEGMENTS: usize = 8;

/// A walk to this many entries or fewer decodes one symbol at a time; longer ones do those of a
/// block together.
const FEW: usize = 16;

/// Symbols that a walk has room for without another allocation.
const USUAL: usize = 32;

/// Blocks whose symbols tell the shares of all.
const ASKED: usize = 16;
/// A walk that would meet this share of the symbols takes longer than it saves.
const NEARLY_ALL: f64 = 0.9;

/// Returns the share of the symbols that a walk through all of a segment is expected to meet; 0 if
/// walks end within segments.
pub(super) fn met_by_a_walk(map: &Map, set: &Set, book: &Book) -> f64 {
    if map.kind == Kind::Digest || map.cells() > 1 || book.gaps() < 2 {
        return 0.0;
    }
    let (mut counts, mut symbols) = (vec![0u32; book.gaps()], Vec::new());
    for at in (0..set.blocks()).step_by((set.blocks() / ASKED).max(1)) {
        set.each_of(&book.names, at, &mut symbols, &mut |_, symbol| {
            counts.get_mut(symbol as usize).into_iter().for_each(|count| *count += 1);
            true
        });
    }
    let all = f64::from(counts.iter().sum::<u32>().max(1));
    // The two edges have no keys.
    let in_segment = set.entries() as f64 / map.segments().saturating_sub(2).max(1) as f64;
    let met = |count: &u32| 1.0 - (1.0 - f64::from(*count) / all).powf(in_segment);
    counts.iter().map(met).sum::<f64>() / counts.len() as f64
}

/// Numbers of the keys that a walk covers, both included.
#[derive(Clone, Copy)]
struct Numbers {
    first: u64,
    last: u64,
}

impl Partition {
    /// Walks the entries from `from` on (keys >= `from`), up to `end` (excluded): to the end of the
    /// segment in which some are found, to the [`Ahead::most`] entries that suffice, or past a few
    /// empty segments. Writes to `out`, which is overwritten, what was found: each code with the
    /// lowest number. Every key from `from` up to the lower key of [`Ahead::until`] is covered, and
    /// that lower key is after `from`.
    ///
    /// Returns `false` if the map has no order, being based on digests; `out` is then empty.
    pub fn ahead(&self, from: &[u8], end: Option<&[u8]>, out: &mut Ahead) -> bool {
        out.found.clear();
        out.until = None;
        let Some(walker) = self.walker() else { return false };
        let book = &self.inner.book;
        let Ahead { found, until, most } = out;
        *until = walker.ahead(from, end, *most, |symbol, number| found.push((book.epochs(symbol), number)));
        true
    }

    /// Reports whether a walk is expected to tell next to nothing, and would take longer than it
    /// saves: it reaches through a whole segment, and that has entries of nearly all codes. `first`
    /// and `end` are the keys between which it would have to walk.
    pub fn walks_in_vain(&self, first: &[u8], end: Option<&[u8]>) -> bool {
        let map = &self.inner.map;
        let in_segment = || match (map.kind, end) {
            // A range within the blocks of a local map is a stretch of few positions.
            (Kind::Local { bits }, Some(end)) => {
                let (first, last) = (map.keys.clamped(first), map.keys.clamped(end));
                last.saturating_sub(first) >> bits > 1
            }
            _ => true,
        };
        self.inner.met_by_a_walk >= NEARLY_ALL && in_segment()
    }

    /// The same backwards: keys below `before` (`None`: all), not below `start`. Each code has the
    /// highest number: all its keys in the range lie below that number's lower key, or anywhere in
    /// the range if it is [`NO_BOUND`]. Every key below `before` and not below the lower key of
    /// [`Ahead::until`] is covered, and that key is below `before`.
    pub fn behind(&self, before: Option<&[u8]>, start: &[u8], out: &mut Ahead) -> bool {
        out.found.clear();
        out.until = None;
        let Some(walker) = self.walker() else { return false };
        let book = &self.inner.book;
        let Ahead { found, until, .. } = out;
        *until = walker.behind(before, start, |symbol, number| found.push((book.epochs(symbol), number)));
        true
    }

    fn walker(&self) -> Option<Walker<'_>> {
        let inner = &*self.inner;
        // Young entries have other symbols.
        let all = (inner.young == 0).then(|| inner.book.gaps());
        Walker::new(&inner.map, &inner.set, &inner.book.names, inner.cut, all)
    }
}

/// What a walk reads: the entries of a set by the order of their map.
pub(super) struct Walker<'a> {
    map: &'a Map,
    set: &'a Set,
    names: &'a Names,
    cut: u32,
    /// The number of symbols that entries have, if it is known.
    all: Option<usize>,
}

impl<'a> Walker<'a> {
    /// Returns `None` if the map has no order. `cut` is the number of low bits of the map's
    /// positions that the set does not have; `all` the number of symbols that entries have, if it
    /// is known.
    pub(super) fn new(
        map: &'a Map,
        set: &'a Set,
        names: &'a Names,
        cut: u32,
        all: Option<usize>,
    ) -> Option<Self> {
        (map.kind != Kind::Digest).then_some(Self { map, set, names, cut, all })
    }

    /// [`Partition::ahead`] in terms of symbols: calls `found` once with each symbol and its lowest
    /// number, and returns the number at which the walk ended.
    pub(super) fn ahead(
        &self,
        from: &[u8],
        end: Option<&[u8]>,
        most: usize,
        mut found: impl FnMut(u32, u64),
    ) -> Option<u64> {
        let map = self.map;
        let first = map.keys.clamped(from);
        let last = map.last_before(end).filter(|&last| first <= last)?;
        let numbers = Numbers { first, last };
        let (start, stop) = (map.segment(first), map.segment(last));
        let (mut stretches, mut met) = (Vec::new(), Vec::with_capacity(USUAL));
        for segment in start..=stop {
            let walk = Stretch { segment, numbers, most, backward: false };
            let cut = self.find(walk, &mut stretches, &mut met);
            for &(symbol, position) in &met {
                found(symbol, map.first_number(segment, position));
            }
            // With every symbol met, entries behind have nothing to add.
            if cut.is_some() || self.all == Some(met.len()) {
                return cut;
            }
            if segment < stop && (!met.is_empty() || segment - start + 1 >= EMPTY_SEGMENTS) {
                return map.upper(segment);
            }
        }
        None
    }

    /// The same for [`Partition::behind`], with the number after each symbol's highest.
    pub(super) fn behind(
        &self,
        before: Option<&[u8]>,
        start: &[u8],
        mut found: impl FnMut(u32, u64),
    ) -> Option<u64> {
        let map = self.map;
        let first = map.keys.clamped(start);
        let last = map.last_before(before).filter(|&last| first <= last)?;
        let numbers = Numbers { first, last };
        let (start, stop) = (map.segment(last), map.segment(first));
        let (mut stretches, mut met) = (Vec::new(), Vec::with_capacity(USUAL));
        for segment in (stop..=start).rev() {
            let walk = Stretch { segment, numbers, most: 0, backward: true };
            self.find(walk, &mut stretches, &mut met);
            for &(symbol, position) in &met {
                let behind = map.number_behind(segment, position);
                // Numbers above the greatest possible one stand for no key.
                found(symbol, behind.filter(|&number| number <= map.keys.max()).unwrap_or(NO_BOUND));
            }
            if segment > stop && (!met.is_empty() || start - segment + 1 >= EMPTY_SEGMENTS) {
                return Some(map.lower(segment));
            }
        }
        None
    }

    /// Writes to `met`, which is overwritten, the symbols of the entries of a segment that a key
    /// with one of these numbers may match, each once: forwards with the first of the map's
    /// positions that these entries can have, backwards with the last. Returns the number at which
    /// it ended if that is within the segment. `stretches` is overwritten.
    fn find(
        &self,
        walk: Stretch,
        stretches: &mut Vec<RangeInclusive<u64>>,
        met: &mut Vec<(u32, u64)>,
    ) -> Option<u64> {
        met.clear();
        let map = self.map;
        let Stretch { segment, numbers, most, backward } = walk;
        let upper = map.upper(segment);
        let has_cells = map.cells() > 1;
        map.stretches(segment, numbers.first, numbers.last, stretches);
        let (mut count, mut cut) = (0, None);
        let mut seen = [0u64; MAX_SYMBOLS / 64];
        let (mut symbols, mut decoded) = (Vec::new(), None);
        for stretch in stretches.iter() {
            let (from, to) = (stretch.start() >> self.cut, stretch.end() >> self.cut);
            let mut first_cell = None;
            self.set.each_place_from(from, |position, place| {
                if position > to {
                    return false;
                }
                // The last position that shares its known bits.
                let end = position | u64::from(self.set.layout.cut(position));
                if end < from {
                    return true;
                }
                let (position, end) = (position << self.cut, ((end + 1) << self.cut) - 1);
                if !backward && has_cells && most > 0 && count >= most {
                    let at = map.first_number(segment, position);
                    let begins =
                        *first_cell.get_or_insert_with(|| map.first_number(segment, *stretch.start()));
                    // All numbers before that one have an earlier position.
                    if at > numbers.first && at > begins && upper.is_none_or(|upper| at < upper) {
                        cut = Some(at);
                        return false;
                    }
                }
                count += 1;
                let symbol = if most > 0 && most <= FEW {
                    self.set.symbol(self.names, place)
                } else {
                    if !decoded.is_some_and(|known| place.is_near(known)) {
                        self.set.symbols(self.names, place, &mut symbols);
                        decoded = Some(place);
                    }
                    symbols[place.rank()]
                };
                let is_first = seen.get_mut(symbol as usize / 64).is_none_or(|word| {
                    let before = std::mem::replace(word, *word | 1 << (symbol % 64));
                    before >> (symbol % 64) & 1 == 0
                });
                if is_first {
                    met.push((symbol, if backward { end } else { position }));
                } else if backward {
                    let known = met.iter_mut().filter(|(known, _)| *known == symbol);
                    known.for_each(|(_, last)| *last = end.max(*last));
                }
                backward || self.all != Some(met.len())
            });
        }
        cut
    }
}

/// The part of a segment that a walk needs.
#[derive(Clone, Copy)]
struct Stretch {
    segment: usize,
    numbers: Numbers,
    /// Number of entries after which it may end, if not 0; forwards only.
    most: usize,
    backward: bool,
}
