//! Codes of symbols: directly addressable, so that the code of one entry of a block is read without
//! decoding those before it (N. Brisaboa, S. Ladra, G. Navarro, "DACs: Bringing direct access to
//! variable-length codes", 2013).
//!
//! Symbols are numbered by falling frequency. A code is cut into *levels*. On a level of `width`
//! bits the values below `literals` are symbols; every other value says that the symbol is on the
//! next level:
//!
//! ```text
//! level 0   width 2, literals 3     00 01 10: symbols 0 1 2      11: on the next level
//! level 1   width 3                 000 … 111: symbols 3 … 10
//! ```
//!
//! If the next level is the last one, several values may lead there; which one it was is then the
//! high part of the symbol's number. The entries of a block store each level as bit planes: bit `j`
//! of all values, then bit `j + 1`. So the entries that go on are found 64 at a time, and the place
//! of an entry on the next level is a count of ones.
//!
//! Widths and literals are those that cost fewest bits for the given frequencies: within a tenth of
//! a bit of a Huffman code where frequencies are equal or fall geometrically.
//!
//! A Huffman code takes a bit at least. If one symbol is so frequent that less would do, the ranks
//! of all others stand before the levels (`exceptions.rs`), which have their symbols only, from 1
//! on.

use crate::bits::{Appender, mask};

use super::exceptions::{Exceptions, MAX_LOW};
use super::set::Bits;

/// What exceptions must save, in bits per entry: finding one costs more than reading a level.
const LEAST_GAIN: f64 = 0.1;
/// Maximum width of a level.
const MAX_WIDTH: u32 = 12;
/// Maximum number of symbols.
pub(super) const MAX_SYMBOLS: usize = 1 << MAX_WIDTH;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Level {
    width: u32,
    /// Number of values that are symbols; all of them on the last level.
    literals: u32,
}

/// The code of an alphabet. Without levels: the alphabet has one symbol, whose code is empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Names {
    /// Whether entries of other symbols than 0 are exceptions; the levels are theirs, then.
    exceptions: Option<Exceptions>,
    levels: Vec<Level>,
}

impl Names {
    /// Returns the cheapest code for symbols of these frequencies, which fall.
    ///
    /// # Panics
    /// If there are more than [`MAX_SYMBOLS`].
    pub(super) fn new(weights: &[f64]) -> Self {
        let count = weights.len();
        assert!(count <= MAX_SYMBOLS, "a code has at most {MAX_SYMBOLS} symbols");
        if count <= 1 {
            return Self::default();
        }
        // rest[i]: the frequency of all symbols from `i` on.
        let mut rest = vec![0.0; count + 1];
        for at in (0..count).rev() {
            rest[at] = rest[at + 1] + weights[at];
        }
        // best[i]: cost of the levels from symbol `i` on, their first level, and whether the next
        // one is the last.
        let mut best = vec![(0.0, Level { width: 0, literals: 0 }, 0); count + 1];
        for at in (0..count).rev() {
            let left = count - at;
            let last = width_for(left);
            let mut chosen = (f64::from(last) * rest[at], Level { width: last, literals: 1 << last }, 0);
            for width in 1..last {
                let values = 1usize << width;
                let single = at + values - 1;
                if single < count {
                    let cost = f64::from(width) * rest[at] + best[single].0;
                    if cost < chosen.0 {
                        chosen = (cost, Level { width, literals: values as u32 - 1 }, 0);
                    }
                }
                for tail in 1..=MAX_WIDTH - width {
                    // The fewest values that lead on such that all symbols fit; `left` exceeds
                    // `values`.
                    let groups = (left - values).div_ceil((1 << tail) - 1);
                    let Some(literals) = values.checked_sub(groups).filter(|literals| *literals > 0) else {
                        continue;
                    };
                    let cost =
                        f64::from(width) * rest[at] + f64::from(tail) * rest[(at + literals).min(count)];
                    if cost < chosen.0 {
                        chosen = (cost, Level { width, literals: literals as u32 }, tail);
                    }
                }
            }
            best[at] = chosen;
        }
        let (coding, cost) = Exceptions::of_share(rest[1] / rest[0]);
        let cost = cost * rest[0] + best[1].0 + LEAST_GAIN * rest[0];
        let exceptions = (cost < best[0].0).then_some(coding);
        let (mut levels, mut at) = (Vec::new(), usize::from(exceptions.is_some()));
        // A single symbol needs no code.
        while count - at > 1 {
            let (_, level, tail) = best[at];
            levels.push(level);
            if tail > 0 {
                levels.push(Level { width: tail, literals: 1 << tail });
                break;
            }
            if level.literals == 1 << level.width {
                break;
            }
            at += level.literals as usize;
        }
        Self { exceptions, levels }
    }

    /// Returns the code with these widths and literals, see [`Names::levels`]; `None` if it is not
    /// one that [`Names::new`] can return.
    pub(super) fn from_levels(levels: &[(u32, u32)]) -> Option<Self> {
        let (exceptions, levels) = match levels.split_first() {
            Some((&(0, low), levels)) if (1..=MAX_LOW).contains(&low) => (Some(Exceptions { low }), levels),
            _ => (None, levels),
        };
        let levels: Vec<Level> = levels.iter().map(|&(width, literals)| Level { width, literals }).collect();
        let Some((last, upper)) = levels.split_last() else { return Some(Self { exceptions, levels }) };
        let is_width = |width| (1..=MAX_WIDTH).contains(&width);
        let sound = is_width(last.width)
            && last.literals == 1 << last.width
            && upper.len() < MAX_WIDTH as usize * 4
            && upper.iter().all(|level| is_width(level.width) && level.literals < 1 << level.width);
        // Only the level before the last one may lead on by several values.
        let single = |(_, others): (&Level, &[Level])| {
            others.iter().all(|level| level.literals + 1 == 1 << level.width)
        };
        (sound && upper.split_last().is_none_or(single)).then_some(Self { exceptions, levels })
    }

    /// Returns the widths and literals of the levels; if there are exceptions, first 0 and their
    /// low bits.
    pub(super) fn levels(&self) -> Vec<(u32, u32)> {
        let exceptions = self.exceptions.map(|exceptions| (0, exceptions.low));
        exceptions.into_iter().chain(self.levels.iter().map(|level| (level.width, level.literals))).collect()
    }

    /// Returns the bits of the longest codes, rounded up such that it is enough for any number of
    /// entries.
    pub(super) fn longest(&self) -> u32 {
        let exceptions = self.exceptions.map_or(0, |exceptions| exceptions.bits_of_one() + 1);
        exceptions + self.levels.iter().map(|level| level.width).sum::<u32>()
    }

    /// Returns the bits of a symbol's code.
    pub(super) fn bits(&self, symbol: u16) -> f64 {
        let (mut left, mut bits) = (u32::from(symbol), 0);
        if let Some(exceptions) = self.exceptions {
            let Some(other) = left.checked_sub(1) else { return exceptions.bits_of_all() };
            (left, bits) = (other, exceptions.bits_of_one());
        }
        for level in &self.levels {
            bits += level.width;
            if left < level.literals {
                break;
            }
            left -= level.literals;
        }
        f64::from(bits) + self.exceptions.map_or(0.0, Exceptions::bits_of_all)
    }

    /// Calls `push` with width and value of the parts of the codes of `symbols`: at most 64 bits at
    /// a time, in the order in which they are stored.
    pub(super) fn encode(&self, symbols: &[u16], scratch: &mut Scratch, mut push: impl FnMut(u32, u64)) {
        let Scratch { left, values, ranks } = scratch;
        left.clear();
        left.extend(symbols.iter().map(|&symbol| u32::from(symbol)));
        if let Some(exceptions) = self.exceptions {
            ranks.clear();
            ranks.extend((0..).zip(symbols).filter(|(_, symbol)| **symbol > 0).map(|(rank, _)| rank));
            exceptions.encode(symbols.len() as u64, ranks, &mut push);
            left.retain_mut(|symbol| {
                *symbol = symbol.wrapping_sub(1);
                *symbol != u32::MAX
            });
        }
        for (at, level) in self.levels.iter().enumerate() {
            let tail = self.levels.get(at + 1).filter(|_| at + 2 == self.levels.len()).map(|last| last.width);
            values.clear();
            values.extend(left.iter().map(|&symbol| match (symbol.checked_sub(level.literals), tail) {
                (None, _) => symbol,
                (Some(rest), Some(tail)) => level.literals + (rest >> tail),
                (Some(_), None) => level.literals,
            }));
            for plane in 0..level.width {
                for chunk in values.chunks(32) {
                    let bits = (0..)
                        .zip(chunk)
                        .fold(0, |bits, (i, value)| bits | u64::from(value >> plane & 1) << i);
                    push(chunk.len() as u32, bits);
                }
            }
            left.retain_mut(|symbol| match symbol.checked_sub(level.literals) {
                None => false,
                Some(rest) => {
                    *symbol = tail.map_or(rest, |tail| rest & mask(tail) as u32);
                    true
                }
            });
        }
    }

    /// Appends the codes of `count` entries, which begin at bit `at`, with those of more entries
    /// among them: each with the rank of the entry that it comes before. `new` is used up.
    pub(super) fn splice(
        &self,
        bits: Bits<'_>,
        mut at: u64,
        mut count: u64,
        new: &mut Vec<(u64, u32)>,
        out: &mut Appender<'_>,
    ) {
        if let Some(exceptions) = self.exceptions {
            let (mut old, mut all) = (Vec::new(), Vec::new());
            let stored = exceptions.ranks(bits, at, count, &mut old);
            let (mut before, mut more) = (0, 0);
            let after = count + new.len() as u64;
            new.retain_mut(|(rank, symbol)| {
                while let Some(&known) = old.get(before).filter(|known| **known < *rank) {
                    all.push(known + more);
                    before += 1;
                }
                if *symbol > 0 {
                    all.push(*rank + more);
                }
                more += 1;
                *rank = before as u64;
                *symbol = symbol.wrapping_sub(1);
                *symbol != u32::MAX
            });
            all.extend(old[before..].iter().map(|known| known + more));
            exceptions.encode(after, &all, |width, value| out.push(width, value));
            (at, count) = (stored.end, stored.count);
        }
        for (nth, level) in self.levels.iter().enumerate() {
            let tail =
                self.levels.get(nth + 1).filter(|_| nth + 2 == self.levels.len()).map(|last| last.width);
            let planes = Planes { bits, at, count, width: level.width };
            let value = |symbol: u32| match (symbol.checked_sub(level.literals), tail) {
                (None, _) => symbol,
                (Some(rest), Some(tail)) => level.literals + (rest >> tail),
                (Some(_), None) => level.literals,
            };
            for plane in 0..level.width {
                let start = at + u64::from(plane) * count;
                let mut from = start;
                for &(rank, symbol) in new.iter() {
                    bits.copy(from, start + rank, out);
                    from = start + rank;
                    out.push(1, u64::from(value(symbol) >> plane & 1));
                }
                bits.copy(from, start + count, out);
            }
            if nth + 1 == self.levels.len() {
                return;
            }
            let mut on = None;
            new.retain_mut(|(rank, symbol)| match symbol.checked_sub(level.literals) {
                None => false,
                Some(rest) => {
                    let (before, total) = planes.going_on(level.literals, *rank);
                    on = Some(total);
                    (*rank, *symbol) = (before, tail.map_or(rest, |tail| rest & mask(tail) as u32));
                    true
                }
            });
            at += count * u64::from(level.width);
            count = on.unwrap_or_else(|| planes.going_on(level.literals, 0).1);
        }
    }

    /// Returns the symbol of entry `rank` of `count`, whose codes begin at bit `at`; also of
    /// hostile bits some number.
    #[inline]
    pub(super) fn symbol(&self, bits: Bits<'_>, mut at: u64, mut count: u64, mut rank: u64) -> u32 {
        let (mut before, mut group) = (0u32, 0u32);
        if let Some(exceptions) = self.exceptions {
            let (stored, nth) = exceptions.find(bits, at, count, rank);
            let Some(nth) = nth else { return 0 };
            (at, count, rank, before) = (stored.end, stored.count, nth, 1);
        }
        for (nth, level) in self.levels.iter().enumerate() {
            let planes = Planes { bits, at, count, width: level.width };
            let value = planes.value(rank);
            if nth + 1 == self.levels.len() {
                return before + (group << level.width) + value;
            }
            if value < level.literals {
                return before + value;
            }
            (rank, count) = planes.going_on(level.literals, rank);
            group = value - level.literals;
            at += planes.count * u64::from(level.width);
            before += level.literals;
        }
        before
    }

    /// Appends the symbols of all entries.
    pub(super) fn decode(&self, bits: Bits<'_>, at: u64, count: u64, out: &mut Vec<u32>) {
        let Some(exceptions) = self.exceptions else { return self.decode_levels(bits, at, count, out) };
        let (mut ranks, mut symbols) = (Vec::new(), Vec::new());
        let stored = exceptions.ranks(bits, at, count, &mut ranks);
        self.decode_levels(bits, stored.end, stored.count, &mut symbols);
        let first = out.len();
        out.resize(first + count as usize, 0);
        ranks.iter().zip(symbols).for_each(|(rank, symbol)| out[first + *rank as usize] = symbol + 1);
    }

    fn decode_levels(&self, bits: Bits<'_>, mut at: u64, count: u64, out: &mut Vec<u32>) {
        let first = out.len();
        out.resize(first + count as usize, 0);
        let mut open: Vec<u32> = Vec::new();
        let (mut count, mut before) = (count, 0);
        let mut values = Vec::new();
        for (nth, level) in self.levels.iter().enumerate() {
            let planes = Planes { bits, at, count, width: level.width };
            planes.values(&mut values);
            at += count * u64::from(level.width);
            let is_last = nth + 1 == self.levels.len();
            let mut kept = 0;
            for (i, &value) in (0u32..).zip(&values) {
                let entry = if nth == 0 { i } else { open[i as usize] };
                let symbol = &mut out[first + entry as usize];
                if is_last {
                    // So far it holds the number of the group.
                    *symbol = before + (*symbol << level.width) + value;
                } else if value < level.literals {
                    *symbol = before + value;
                } else {
                    *symbol = value - level.literals;
                    if nth == 0 {
                        open.push(entry);
                    } else {
                        open[kept] = entry;
                    }
                    kept += 1;
                }
            }
            open.truncate(kept);
            count = kept as u64;
            before += level.literals;
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.levels.capacity() * size_of::<Level>()
    }
}

/// Buffers of [`Names::encode`].
#[derive(Default)]
pub(super) struct Scratch {
    left: Vec<u32>,
    values: Vec<u32>,
    ranks: Vec<u64>,
}

/// Returns the bits that tell `count` symbols apart.
fn width_for(count: usize) -> u32 {
    usize::BITS - (count - 1).leading_zeros()
}

/// The powers of two.
const BITS: [u32; 32] = {
    let mut bits = [0; 32];
    let mut at = 0;
    while at < 32 {
        bits[at] = 1 << at;
        at += 1;
    }
    bits
};

/// The values of one level, as bit planes.
#[derive(Clone, Copy)]
struct Planes<'a> {
    bits: Bits<'a>,
    at: u64,
    count: u64,
    width: u32,
}

impl Planes<'_> {
    /// Returns the value of entry `rank`.
    #[inline]
    fn value(&self, rank: u64) -> u32 {
        (0..self.width).fold(0, |value, plane| {
            value | (self.bits.read(self.at + u64::from(plane) * self.count + rank, 1) as u32) << plane
        })
    }

    /// Returns how many values before `rank`, and in total, are at least `literals`.
    #[inline]
    fn going_on(&self, literals: u32, rank: u64) -> (u64, u64) {
        let (mut before, mut total, mut start) = (0, 0, 0);
        while start < self.count {
            let width = (self.count - start).min(32);
            let (mut greater, mut equal) = (0u64, mask(width as u32));
            for plane in (0..self.width).rev() {
                let place = self.at + u64::from(plane) * self.count + start;
                let ones = self.bits.read(place, width as u32);
                if literals >> plane & 1 == 1 {
                    equal &= ones;
                } else {
                    greater |= equal & ones;
                    equal &= !ones;
                }
            }
            let on = greater | equal;
            total += u64::from(on.count_ones());
            before += u64::from((on & mask(rank.saturating_sub(start).min(width) as u32)).count_ones());
            start += width;
        }
        (before, total)
    }

    /// Writes all values to `out`, which is overwritten.
    fn values(&self, out: &mut Vec<u32>) {
        out.clear();
        out.resize(self.count as usize, 0);
        for plane in 0..self.width {
            for (chunk, values) in (0u64..).zip(out.chunks_mut(32)) {
                let place = self.at + u64::from(plane) * self.count + chunk * 32;
                let ones = self.bits.read(place, values.len() as u32) as u32;
                // Without shifts by varying numbers, so that it can be done for several values at
                // once.
                for (value, bit) in values.iter_mut().zip(&BITS) {
                    *value |= u32::from(ones & bit != 0) << plane;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stored(names: &Names, symbols: &[u16], start: u64) -> Vec<u8> {
        let mut words = vec![0u64; symbols.len() + 10];
        let mut appender = Appender::new(&mut words, start);
        names.encode(symbols, &mut Scratch::default(), |width, value| appender.push(width, value));
        appender.finish();
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn cost(weights: &[f64]) -> f64 {
        let names = Names::new(weights);
        let total: f64 = weights.iter().sum();
        (0..).zip(weights).map(|(symbol, weight)| names.bits(symbol) * weight / total).sum()
    }

    #[test]
    fn codes_are_near_the_entropy() {
        let entropy = |weights: &[f64]| {
            let total: f64 = weights.iter().sum();
            weights.iter().map(|w| -w / total * (w / total).log2()).sum::<f64>()
        };
        let tiering: Vec<f64> = [16.0, 4.0, 1.0].iter().flat_map(|&w| [w; 3]).collect();
        let halves: Vec<f64> = (0..8).map(|i| 0.5f64.powi(i)).collect();
        for (weights, more) in [(vec![1.0; 19], 0.2), (tiering, 0.2), (halves, 0.1), (vec![1.0; 2], 0.0)] {
            let (cost, entropy) = (cost(&weights), entropy(&weights));
            assert!(cost <= entropy + more + 1e-9, "{weights:?}: {cost} against {entropy}");
        }
        // Trees whose last level has most keys: less than a bit.
        let leveling: Vec<f64> = (0..4).map(|i| 0.1f64.powi(i)).collect();
        let nines: Vec<f64> = (1..4).flat_map(|i| vec![0.1f64.powi(i); 9]).collect();
        let lazy: Vec<f64> = std::iter::once(10.0).chain(nines).collect();
        for (weights, most) in [(leveling, 0.65), (lazy, 1.0)] {
            let (cost, entropy) = (cost(&weights), entropy(&weights));
            assert!(cost <= entropy + 0.2 && cost < most, "{weights:?}: {cost} against {entropy}");
        }
        assert_eq!(cost(&[1.0]), 0.0);
    }

    proptest! {
        #[test]
        fn each_symbol_comes_back(
            mut weights in prop::collection::vec(1e-4f64..1.0, 1..300),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 0..300),
            start in 0u64..70,
            first in prop_oneof![Just(1.0), 10.0f64..1e5],
        ) {
            weights.sort_by(|a, b| b.total_cmp(a));
            weights[0] *= first;
            let names = Names::new(&weights);
            let levels = names.levels();
            prop_assert_eq!(Names::from_levels(&levels), Some(names.clone()));
            let symbols: Vec<u16> = picks.iter().map(|pick| pick.index(weights.len()) as u16).collect();
            let bytes = stored(&names, &symbols, start);
            let bits = Bits(&bytes);
            let count = symbols.len() as u64;
            let mut decoded = Vec::new();
            names.decode(bits, start, count, &mut decoded);
            let wanted: Vec<u32> = symbols.iter().map(|&symbol| symbol.into()).collect();
            prop_assert_eq!(&decoded, &wanted);
            for (rank, &symbol) in (0..).zip(&wanted) {
                prop_assert_eq!(names.symbol(bits, start, count, rank), symbol);
            }
        }

        #[test]
        fn codes_are_spliced_in(
            mut weights in prop::collection::vec(1e-4f64..1.0, 1..100),
            first in prop_oneof![Just(1.0), 10.0f64..1e5],
            picks in prop::collection::vec(prop_oneof![Just(None), any::<prop::sample::Index>().prop_map(Some)], 0..200),
            more in prop::collection::vec((0u64..=200, any::<prop::sample::Index>()), 1..40),
            start in 0u64..70,
        ) {
            weights.sort_by(|a, b| b.total_cmp(a));
            weights[0] *= first;
            let names = Names::new(&weights);
            let symbol = |pick: &prop::sample::Index| pick.index(weights.len()) as u16;
            let old: Vec<u16> = picks.iter().map(|pick| pick.as_ref().map_or(0, symbol)).collect();
            let mut new: Vec<(u64, u32)> =
                more.iter().map(|(rank, pick)| ((*rank).min(old.len() as u64), symbol(pick).into())).collect();
            new.sort_by_key(|(rank, _)| *rank);
            let mut wanted: Vec<u32> = old.iter().map(|&symbol| symbol.into()).collect();
            new.iter().rev().for_each(|&(rank, symbol)| wanted.insert(rank as usize, symbol));
            let bytes = stored(&names, &old, start);
            let mut words = vec![0u64; wanted.len() * 2 + 20];
            let mut out = Appender::new(&mut words, 5);
            names.splice(Bits(&bytes), start, old.len() as u64, &mut new, &mut out);
            out.finish();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let mut decoded = Vec::new();
            names.decode(Bits(&bytes), 5, wanted.len() as u64, &mut decoded);
            prop_assert_eq!(decoded, wanted);
        }

        #[test]
        fn hostile_bits_decode_to_something(
            mut levels in prop::collection::vec((prop_oneof![0u32..14, any::<u32>()], 0u32..5000), 0..6),
            exceptions in prop::option::of(0u32..12),
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            count in 0u64..500,
        ) {
            exceptions.into_iter().for_each(|low| levels.insert(0, (0, low)));
            if let Some(names) = Names::from_levels(&levels) {
                let mut out = Vec::new();
                names.decode(Bits(&bytes), 3, count, &mut out);
                for rank in 0..count {
                    let _ = names.symbol(Bits(&bytes), 3, count, rank);
                }
            }
        }
    }
}
