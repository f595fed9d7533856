//! Codes of individual runs.

use crate::bits;
use crate::global::RunTag;
use crate::global::prefix_code::{canonical, code_lengths};
use crate::words::Owned;

/// Minimum assumed share of a run, which bounds the length of its code.
const LEAST_SHARE: f64 = 1e-4;
/// Maximum number of runs with their own symbol.
const MAX_SYMBOLS: usize = 250;

/// Codes of runs.
#[derive(Debug)]
pub(super) struct TagCoder {
    /// By symbol, the most frequent first; `None` for the runs without a symbol of their own.
    pub(super) tags: Vec<Option<RunTag>>,
    /// Ascending.
    symbols: Vec<(RunTag, u8)>,
    pub(super) other: u8,
    /// Code and length of each symbol except the first, first bit lowest.
    pub(super) codes: Vec<(u32, u8)>,
    /// By length: the first code (first bit highest), the number of codes, and where they begin in `order`.
    lengths: Vec<(u32, u32, u32)>,
    /// Symbols in the order of their codes.
    order: Vec<u8>,
}

impl TagCoder {
    pub(super) fn new(shares: &[(RunTag, f64)]) -> Self {
        let sum: f64 = shares.iter().map(|(_, share)| share).sum::<f64>().max(f64::MIN_POSITIVE);
        let mut sorted: Vec<(Option<RunTag>, f64)> =
            shares.iter().map(|(tag, share)| (Some(*tag), (share / sum).max(LEAST_SHARE))).collect();
        sorted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let rest: f64 = sorted.split_off(sorted.len().min(MAX_SYMBOLS)).iter().map(|(_, share)| share).sum();
        sorted.push((None, rest.max(LEAST_SHARE)));
        sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
        let shares: Vec<f64> = sorted[1..].iter().map(|(_, share)| *share).collect();
        let lens = code_lengths(&shares);
        let mut order: Vec<u8> = (1..sorted.len()).map(|symbol| symbol as u8).collect();
        order.sort_by_key(|symbol| lens[usize::from(*symbol) - 1]);
        let longest = usize::from(lens.iter().copied().max().unwrap_or(0));
        let (mut lengths, mut code, mut start) = (Vec::new(), 0, 0);
        for len in 0..=longest {
            let count = lens.iter().filter(|&&l| usize::from(l) == len).count() as u32;
            lengths.push((code, count, start));
            code = (code + count) << 1;
            start += count;
        }
        let tags: Vec<Option<RunTag>> = sorted.into_iter().map(|(tag, _)| tag).collect();
        let mut symbols: Vec<(RunTag, u8)> =
            tags.iter().enumerate().filter_map(|(at, tag)| Some(((*tag)?, at as u8))).collect();
        symbols.sort_unstable();
        TagCoder {
            symbols,
            other: tags.iter().position(Option::is_none).unwrap_or(0) as u8,
            tags,
            codes: canonical(&lens).into_iter().zip(lens).collect(),
            lengths,
            order,
        }
    }

    pub(super) fn symbol(&self, tag: RunTag) -> u8 {
        let at = self.symbols.binary_search_by_key(&tag, |(tag, _)| *tag);
        at.map_or(self.other, |at| self.symbols[at].1)
    }

    /// Returns the bits of a symbol's code, without the flag.
    pub(super) fn bits(&self, symbol: u8) -> u64 {
        usize::from(symbol).checked_sub(1).map_or(0, |at| u64::from(self.codes[at].1))
    }

    /// Returns the average bits per entry.
    pub(super) fn expected_bits(&self, shares: &[(RunTag, f64)]) -> f64 {
        let sum: f64 = shares.iter().map(|(_, share)| share).sum::<f64>().max(f64::MIN_POSITIVE);
        1.0 + shares.iter().map(|(tag, share)| share / sum * self.bits(self.symbol(*tag)) as f64).sum::<f64>()
    }

    /// Decodes the symbol whose code is at a bit, and returns it with the bit after it.
    pub(super) fn decode(&self, words: &Owned, at: u64) -> (u8, u64) {
        let (window, mut code) = (bits::read(words, at, 32), 0);
        for (len, &(first, count, start)) in (0u64..).zip(&self.lengths) {
            if len > 0 {
                code = code << 1 | (window >> (len - 1) & 1) as u32;
            }
            if let Some(nth) = code.checked_sub(first).filter(|nth| *nth < count) {
                return (self.order[(start + nth) as usize], at + len);
            }
        }
        // Codes are complete, and this coder wrote them.
        (self.other, at)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.tags.len()
            * (size_of::<Option<RunTag>>() + size_of::<(RunTag, u8)>() + size_of::<(u32, u8)>() + 1)
            + self.lengths.len() * size_of::<(u32, u32, u32)>()
    }
}
