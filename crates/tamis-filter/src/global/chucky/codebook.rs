//! The meaning of a bucket's bits: the combination of runs its slots belong to, and the lengths of
//! their fingerprints.
//!
//! A bucket of four slots begins with the code of its *combination*: the four symbols of its slots,
//! sorted. A symbol is a run, or "empty", or "other" for all runs without a symbol of their own.
//! Probable combinations have their own Huffman codes; the others share an escape code for each
//! number of entries, followed by the combination's number among all with that many entries. (That
//! is up to four bits less than plain run numbers, as the order of slots is irrelevant; and the
//! emptier a bucket is, the less its combination costs.) The remaining bits are fingerprints, whose
//! lengths depend on the level (`plan.rs`).
//!
//! # Invariants
//! * Symbols are numbered by falling probability. A combination is written in ascending order of
//!   symbols.
//! * Every bucket with one or two entries fits: otherwise a rare run that reaches a bucket first
//!   would block it.
//! * Codes have at most [`MAX_CODE`] bits, so one table lookup decodes them.

use std::collections::HashMap;

use crate::bits;
use crate::global::RunTag;

use super::plan::{Alphabet, Costs};

/// Slots in a bucket.
pub(super) const SLOTS: usize = 4;
/// Shortest fingerprint: the other bucket of an entry is derived from these bits, and with fewer
/// there would be too few candidate buckets.
pub(super) const MIN_WIDTH: u32 = 5;
/// Longest fingerprint.
pub(super) const MAX_WIDTH: u32 = 26;
/// Maximum bits of a bucket.
pub(super) const MAX_BUCKET: u32 = 128;
/// Share of slots in use when the filter is full.
pub(super) const LOAD: f64 = 0.95;
/// Maximum bits of a code.
pub(super) const MAX_CODE: u32 = 12;

/// Four symbols, ascending.
pub(super) type Symbols = [u8; SLOTS];

#[derive(Clone, Copy, Debug)]
pub(super) struct Combination {
    pub(super) symbols: Symbols,
    pub(super) widths: [u8; SLOTS],
    /// The code, first bit lowest.
    pub(super) code: u16,
    pub(super) len: u8,
}

/// See the module documentation. Immutable; shared by all filters derived from one build.
#[derive(Debug)]
pub(super) struct Codebook {
    /// Ascending tags.
    symbols: Vec<(RunTag, u8)>,
    /// The run of each symbol; `None` for "empty" and "other".
    tags: Vec<Option<RunTag>>,
    pub(super) empty: u8,
    pub(super) other: u8,
    widths: Vec<u8>,
    /// The last are the escapes for one, two, three and four entries.
    combinations: Vec<Combination>,
    codes: HashMap<Symbols, u16>,
    /// The combination, by the lowest bits of a bucket.
    table: Vec<u16>,
    /// Bits of the number of an escaped combination, by its number of entries less one.
    rank_bits: [u32; SLOTS],
    bucket_bits: u32,
}

/// The contents of a bucket, in ascending order of symbols.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bucket {
    pub(super) symbols: Symbols,
    /// Fingerprints, right-aligned.
    pub(super) prints: [u32; SLOTS],
}

impl Codebook {
    /// Creates a codebook for runs with these shares of the entries (positive; each tag occurs
    /// once), for buckets of `bucket_bits` or, if that is too few for the shortest fingerprints, as
    /// many bits as necessary.
    pub(super) fn new(shares: &[(RunTag, f64)], bucket_bits: u32) -> Self {
        let alphabet = Alphabet::new(shares);
        let (combinations, probabilities) = alphabet.code();
        let runs = alphabet.len() as u64 - 1;
        let rank_bits =
            std::array::from_fn(|i| u64::BITS - (choose(runs + i as u64, i as u64 + 1) - 1).leading_zeros());
        let costs = Costs::new(&alphabet, &combinations, &probabilities, rank_bits);
        let (bucket_bits, by_group) = (bucket_bits.clamp(4 * MIN_WIDTH, MAX_BUCKET)..=MAX_BUCKET)
            .find_map(|bits| costs.best_widths(bits).map(|widths| (bits, widths)))
            // Code, number and four of the shortest fingerprints take at most 60 bits, so this is
            // not reached.
            .unwrap_or_else(|| (MAX_BUCKET, costs.shortest()));
        let widths: Vec<u8> = alphabet.groups.iter().map(|&group| by_group[usize::from(group)]).collect();
        let mut combinations = combinations;
        for combination in &mut combinations {
            combination.widths = combination.symbols.map(|symbol| widths[usize::from(symbol)]);
        }
        let longest = combinations.iter().map(|c| c.len).max().unwrap_or(0);
        let mut table = vec![0; 1 << longest];
        let mut codes = HashMap::new();
        let escapes = combinations.len() - SLOTS;
        for (at, combination) in combinations.iter().enumerate() {
            for above in 0..1usize << (longest - combination.len) {
                table[above << combination.len | usize::from(combination.code)] = at as u16;
            }
            if at < escapes {
                codes.insert(combination.symbols, at as u16);
            }
        }
        let mut symbols: Vec<(RunTag, u8)> =
            alphabet.tags.iter().enumerate().filter_map(|(at, tag)| Some(((*tag)?, at as u8))).collect();
        symbols.sort_unstable();
        Codebook {
            symbols,
            empty: alphabet.empty,
            other: alphabet.other,
            tags: alphabet.tags,
            widths,
            combinations,
            codes,
            table,
            rank_bits,
            bucket_bits,
        }
    }

    pub(super) fn bucket_bits(&self) -> u32 {
        self.bucket_bits
    }

    /// Number of symbols.
    pub(super) fn len(&self) -> usize {
        self.tags.len()
    }

    /// Returns the symbol of a run.
    #[inline]
    pub(super) fn symbol(&self, tag: RunTag) -> u8 {
        let at = self.symbols.binary_search_by_key(&tag, |(tag, _)| *tag);
        at.map_or(self.other, |at| self.symbols[at].1)
    }

    /// Returns the run of a symbol, if it stands for a single run.
    #[inline]
    pub(super) fn tag(&self, symbol: u8) -> Option<RunTag> {
        self.tags[usize::from(symbol)]
    }

    /// Bits of the fingerprints of a symbol.
    #[inline]
    pub(super) fn width(&self, symbol: u8) -> u32 {
        u32::from(self.widths[usize::from(symbol)])
    }

    /// Bits of the shortest fingerprints.
    pub(super) fn shortest_width(&self) -> u32 {
        let widths = (0..self.len() as u8).filter(|&s| s != self.empty).map(|s| self.width(s));
        widths.min().unwrap_or(MIN_WIDTH)
    }

    /// Returns the symbols of a bucket, the lengths of its fingerprints and where they begin.
    #[inline]
    fn open(&self, bucket: u128) -> (Symbols, [u8; SLOTS], u32) {
        let code = bucket as usize & (self.table.len() - 1);
        let at = usize::from(self.table[code]);
        let combination = &self.combinations[at];
        let len = u32::from(combination.len);
        match (at + SLOTS).checked_sub(self.combinations.len()) {
            None => (combination.symbols, combination.widths, len),
            Some(i) => self.open_escape(bucket, i, len),
        }
    }

    /// The same for an escaped combination of `i + 1` entries.
    #[cold]
    fn open_escape(&self, bucket: u128, i: usize, len: u32) -> (Symbols, [u8; SLOTS], u32) {
        let mut rank = (bucket >> len) as u64 & bits::mask(self.rank_bits[i]);
        let mut symbols = [self.empty; SLOTS];
        // Among runs, the symbols after "empty" are one less.
        let mut above = self.len() as u64 - 1;
        for i in (0..=i as u64).rev() {
            let (mut lo, mut hi) = (0, above);
            while hi - lo > 1 {
                let mid = lo.midpoint(hi);
                if choose(mid + i, i + 1) <= rank { lo = mid } else { hi = mid }
            }
            rank -= choose(lo + i, i + 1).min(rank);
            symbols[i as usize] = lo as u8 + u8::from(lo >= u64::from(self.empty));
            above = lo + 1;
        }
        symbols.sort_unstable();
        (symbols, symbols.map(|symbol| self.widths[usize::from(symbol)]), len + self.rank_bits[i])
    }

    /// Returns the number of a combination among all with the same number of entries (the
    /// combinatorial number system, for multisets), and the number of such combinations, less one.
    /// The empty bucket is not one of them.
    fn rank(&self, symbols: Symbols) -> Option<(usize, u64)> {
        let runs = symbols.into_iter().filter(|&symbol| symbol != self.empty);
        let runs = runs.map(|symbol| u64::from(symbol) - u64::from(symbol > self.empty));
        let (count, rank) = (0..)
            .zip(runs)
            .fold((0, 0), |(_, rank), (i, symbol)| (i as usize + 1, rank + choose(symbol + i, i + 1)));
        Some((usize::checked_sub(count, 1)?, rank))
    }

    /// Calls `found` with the symbol of each slot whose fingerprint `print` (all 32 bits of it)
    /// begins with.
    #[inline]
    pub(super) fn probe(&self, bucket: u128, print: u32, mut found: impl FnMut(u8)) {
        let (symbols, widths, mut at) = self.open(bucket);
        for (symbol, width) in symbols.into_iter().zip(widths.map(u32::from)) {
            let held = (bucket >> at) as u64 & bits::mask(width);
            // No bits: an empty slot.
            if width != 0 && held == u64::from(print) >> (32 - width) {
                found(symbol);
            }
            at += width;
        }
    }

    /// Decodes the contents of a bucket.
    pub(super) fn decode(&self, bucket: u128) -> Bucket {
        let (symbols, widths, mut at) = self.open(bucket);
        let prints = widths.map(u32::from).map(|width| {
            let print = (bucket >> at) as u64 & bits::mask(width);
            at += width;
            print as u32
        });
        Bucket { symbols, prints }
    }

    /// Returns the bits of a bucket; `None` if there are too few. The symbols must ascend.
    pub(super) fn encode(&self, bucket: &Bucket) -> Option<u128> {
        let (mut code, mut at) = match self.codes.get(&bucket.symbols) {
            Some(&known) => {
                let known = &self.combinations[usize::from(known)];
                (u128::from(known.code), u32::from(known.len))
            }
            None => {
                let (i, rank) = self.rank(bucket.symbols)?;
                let escape = &self.combinations[self.combinations.len() - SLOTS + i];
                let code = u128::from(escape.code) | u128::from(rank) << escape.len;
                (code, u32::from(escape.len) + self.rank_bits[i])
            }
        };
        let bits: u32 = bucket.symbols.iter().map(|&symbol| self.width(symbol)).sum();
        if at + bits > self.bucket_bits {
            return None;
        }
        for (symbol, print) in bucket.symbols.into_iter().zip(bucket.prints) {
            let width = self.width(symbol);
            if width != 0 {
                code |= u128::from(print) << at;
                at += width;
            }
        }
        Some(code)
    }

    /// Returns a bucket of empty slots.
    pub(super) fn nothing(&self) -> Bucket {
        Bucket { symbols: [self.empty; SLOTS], prints: [0; SLOTS] }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.tags.len() * (size_of::<(RunTag, u8)>() + size_of::<Option<RunTag>>() + 1)
            + self.combinations.len() * (size_of::<Combination>() + 2 * size_of::<(Symbols, u16)>())
            + self.table.len() * 2
    }
}

/// Returns the number of ways to choose `k` of `n`.
pub(super) fn choose(n: u64, k: u64) -> u64 {
    (0..k).fold(1, |product, i| product * n.saturating_sub(i) / (i + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(levels: &[(u8, u32, f64)]) -> Vec<(RunTag, f64)> {
        levels
            .iter()
            .flat_map(|&(level, slots, share)| {
                (0..slots).map(move |slot| (RunTag { level, slot }, share / f64::from(slots)))
            })
            .collect()
    }

    #[test]
    fn combination_numbers_round_trip() {
        for runs in [1, 2, 7, 20] {
            let book = Codebook::new(&shares(&[(0, runs, 1.0)]), 64);
            let n = book.len() as u8;
            let all = (0..n)
                .flat_map(|a| (a..n).map(move |b| (a, b)))
                .flat_map(|(a, b)| (b..n).flat_map(move |c| (c..n).map(move |d| [a, b, c, d])));
            let mut seen = std::collections::BTreeSet::new();
            for symbols in all.filter(|symbols| *symbols != [book.empty; SLOTS]) {
                let (i, rank) = book.rank(symbols).unwrap();
                assert!(rank >> book.rank_bits[i] == 0);
                assert!(seen.insert((i, rank)), "{symbols:?}");
                assert_eq!(book.open_escape(u128::from(rank) << 3, i, 3).0, symbols);
            }
        }
    }

    #[test]
    fn every_combination_that_fits_round_trips() {
        let trees = [
            shares(&[(0, 1, 1.0)]),
            shares(&[(0, 4, 0.01), (1, 4, 0.09), (2, 1, 0.9)]),
            shares(&[(0, 3, 0.2), (1, 3, 0.3), (2, 3, 0.5)]),
            shares(&[(0, 1000, 1.0)]),
        ];
        for shares in trees {
            let book = Codebook::new(&shares, 38);
            let n = book.len().min(30) as u8;
            let mut fitting = 0;
            for code in 0..u32::from(n).pow(4) {
                let mut symbols: Symbols =
                    std::array::from_fn(|i| (code / u32::from(n).pow(i as u32)) as u8 % n);
                symbols.sort_unstable();
                let mut at = 0;
                let prints = symbols.map(|symbol| {
                    at += 1;
                    (0x9e37_79b9u32.wrapping_mul(code + at) as u64 & bits::mask(book.width(symbol))) as u32
                });
                let bucket = Bucket { symbols, prints };
                if let Some(bits) = book.encode(&bucket) {
                    fitting += 1;
                    assert!(book.bucket_bits() == 128 || bits >> book.bucket_bits() == 0);
                    assert_eq!(book.decode(bits), bucket);
                }
            }
            assert!(fitting > 0);
            let one = |symbol| {
                let mut symbols = [book.empty, book.empty, book.empty, symbol];
                symbols.sort_unstable();
                Bucket { symbols, prints: [0; 4] }
            };
            assert!((0..book.len() as u8).all(|symbol| book.encode(&one(symbol)).is_some()));
        }
    }
}
