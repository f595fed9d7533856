//! Decided when a filter is built: which combinations have their own codes, and the lengths of
//! fingerprints.
//!
//! # Lengths
//! A level's length must not depend on the bucket: an entry moves between buckets, and its key is
//! then unknown. So building decides on one length per level, at least [`MIN_WIDTH`]. A deep level
//! has nearly all entries and short codes, so it can have long fingerprints; a small level gets
//! what the codes of its combinations leave over. Among all choices for which at most [`MISFITS`]
//! of the buckets of four lack the bits, the one with the lowest rate is taken. (Malleable
//! fingerprints are the paper's; the method for finding their lengths is not.) A combination
//! without enough bits is not an error: such a bucket holds fewer entries, and the others go
//! elsewhere.

use std::collections::BTreeMap;

use crate::global::RunTag;
use crate::global::prefix_code::{canonical, code_lengths};

use super::codebook::{Combination, LOAD, MAX_CODE, MAX_WIDTH, MIN_WIDTH, SLOTS, Symbols, choose};

/// Share of buckets of a full filter that may lack the bits for their four entries.
const MISFITS: f64 = 0.05;
/// Maximum number of runs with a symbol of their own.
const MAX_SYMBOLS: usize = 240;
/// Share of the entries attributed to unexpected runs.
const OTHERS: f64 = 1e-4;
/// Minimum probability of an escape code: it will be needed whatever the expectations.
const ESCAPE: f64 = 1.0 / 64.0;

/// The symbols with their probabilities.
pub(super) struct Alphabet {
    pub(super) tags: Vec<Option<RunTag>>,
    probabilities: Vec<f64>,
    pub(super) empty: u8,
    pub(super) other: u8,
    /// Symbols of one group have equal lengths: group 0 is "empty", then levels, the last is
    /// "other".
    pub(super) groups: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq)]
enum Symbol {
    Run(RunTag),
    Empty,
    Other,
}

impl Alphabet {
    pub(super) fn new(shares: &[(RunTag, f64)]) -> Self {
        let mut shares = shares.to_vec();
        // Ties are broken by tag, for a deterministic order.
        shares.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let sum: f64 = shares.iter().map(|(_, share)| share).sum::<f64>().max(f64::MIN_POSITIVE);
        let rest = shares.split_off(shares.len().min(MAX_SYMBOLS));
        let others = (rest.iter().map(|(_, share)| share).sum::<f64>() / sum).max(OTHERS);
        let mut symbols: Vec<(Symbol, f64)> =
            shares.iter().map(|&(tag, share)| (Symbol::Run(tag), share / sum * LOAD)).collect();
        symbols.extend([(Symbol::Empty, 1.0 - LOAD), (Symbol::Other, others)]);
        symbols.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut levels: Vec<u8> = shares.iter().map(|(tag, _)| tag.level).collect();
        levels.sort_unstable();
        levels.dedup();
        let group = |symbol: &(Symbol, f64)| match symbol.0 {
            Symbol::Empty => 0,
            // At most `MAX_SYMBOLS` of them.
            Symbol::Run(tag) => 1 + levels.partition_point(|&level| level < tag.level) as u8,
            Symbol::Other => 1 + levels.len() as u8,
        };
        let place = |which: Symbol| symbols.iter().position(|(s, _)| *s == which).unwrap_or(0) as u8;
        let sum: f64 = symbols.iter().map(|(_, p)| p).sum();
        Alphabet {
            tags: symbols
                .iter()
                .map(|(s, _)| if let Symbol::Run(tag) = s { Some(*tag) } else { None })
                .collect(),
            probabilities: symbols.iter().map(|(_, p)| p / sum).collect(),
            empty: place(Symbol::Empty),
            other: place(Symbol::Other),
            groups: symbols.iter().map(group).collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.tags.len()
    }

    /// Codes, the last of which are the escapes, with their probabilities. Fingerprint lengths are
    /// not decided yet.
    pub(super) fn code(&self) -> (Vec<Combination>, Vec<f64>) {
        let mut cutoff = 2f64.powi(-(MAX_CODE as i32));
        loop {
            let mut combinations = self.probable(cutoff);
            let nothing = [self.empty; SLOTS];
            if combinations.iter().all(|(symbols, _)| *symbols != nothing) {
                // It has no entries for an escape to count.
                combinations.push((nothing, cutoff));
            }
            for (i, escaped) in self.escaped(&combinations).into_iter().enumerate() {
                let mut symbols = [self.other; SLOTS];
                symbols[i + 1..].fill(self.empty);
                combinations.push((symbols, escaped.max(ESCAPE)));
            }
            let probabilities: Vec<f64> = combinations.iter().map(|(_, p)| *p).collect();
            let lens = code_lengths(&probabilities);
            if lens.iter().all(|&len| u32::from(len) <= MAX_CODE) {
                let codes = canonical(&lens);
                let made =
                    combinations.iter().zip(lens.iter().zip(codes)).map(|((symbols, _), (&len, code))| {
                        Combination { symbols: *symbols, widths: [0; SLOTS], code: code as u16, len }
                    });
                return (made.collect(), probabilities);
            }
            cutoff *= 1.5;
        }
    }

    /// Returns the total probability of the combinations of one to four entries that are not among
    /// these.
    fn escaped(&self, known: &[(Symbols, f64)]) -> [f64; SLOTS] {
        let empty = self.probabilities[usize::from(self.empty)];
        let mut escaped = std::array::from_fn(|i| {
            choose(4, i as u64 + 1) as f64 * empty.powi(3 - i as i32) * (1.0 - empty).powi(i as i32 + 1)
        });
        for (symbols, p) in known {
            let entries = symbols.iter().filter(|symbol| **symbol != self.empty).count();
            if let Some(i) = entries.checked_sub(1) {
                escaped[i] -= p;
            }
        }
        escaped
    }

    /// Returns all combinations of at least this probability.
    fn probable(&self, cutoff: f64) -> Vec<(Symbols, f64)> {
        let p = &self.probabilities;
        let mut found = Vec::new();
        for a in 0..p.len() {
            if 24.0 * p[a].powi(4) < cutoff {
                break;
            }
            for b in a..p.len() {
                if 24.0 * p[a] * p[b].powi(3) < cutoff {
                    break;
                }
                for c in b..p.len() {
                    if 24.0 * p[a] * p[b] * p[c].powi(2) < cutoff {
                        break;
                    }
                    for d in c..p.len() {
                        let symbols = [a as u8, b as u8, c as u8, d as u8];
                        let probability = orders(symbols) * p[a] * p[b] * p[c] * p[d];
                        if 24.0 * p[a] * p[b] * p[c] * p[d] < cutoff {
                            break;
                        }
                        if probability >= cutoff {
                            found.push((symbols, probability));
                        }
                    }
                }
            }
        }
        found
    }
}

/// Returns the number of orders of four sorted symbols.
fn orders(symbols: Symbols) -> f64 {
    let (mut orders, mut alike) = (24.0, 1.0);
    for pair in symbols.windows(2) {
        alike = if pair[0] == pair[1] { alike + 1.0 } else { 1.0 };
        orders /= alike;
    }
    orders
}

/// The bit costs of buckets, symbols of one group being alike.
pub(super) struct Costs {
    /// Bits of the code, groups of the slots, probability.
    buckets: Vec<(u32, [u8; SLOTS], f64)>,
    /// Share of the entries by group.
    shares: Vec<f64>,
    /// Probability of a slot by group.
    slots: Vec<f64>,
    /// Bits of the escapes with their numbers.
    escapes: [u32; SLOTS],
}

impl Costs {
    pub(super) fn new(
        alphabet: &Alphabet,
        combinations: &[Combination],
        probabilities: &[f64],
        rank_bits: [u32; SLOTS],
    ) -> Self {
        let groups = usize::from(alphabet.groups.iter().copied().max().unwrap_or(0)) + 1;
        let mut slots = vec![0.0; groups];
        for (&group, p) in alphabet.groups.iter().zip(&alphabet.probabilities) {
            slots[usize::from(group)] += p;
        }
        let mut shares = slots.clone();
        shares[0] = 0.0;
        let sum: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= sum);
        let mut buckets: BTreeMap<(u32, [u8; SLOTS]), f64> = BTreeMap::new();
        let (known, escapes) = combinations.split_at(combinations.len() - SLOTS);
        for (combination, p) in known.iter().zip(probabilities) {
            let mut groups = combination.symbols.map(|symbol| alphabet.groups[usize::from(symbol)]);
            groups.sort_unstable();
            *buckets.entry((u32::from(combination.len), groups)).or_default() += p;
        }
        Costs {
            buckets: buckets.into_iter().map(|((len, groups), p)| (len, groups, p)).collect(),
            shares,
            slots,
            escapes: std::array::from_fn(|i| rank_bits[i] + u32::from(escapes[i].len)),
        }
    }

    pub(super) fn shortest(&self) -> Vec<u8> {
        let mut widths = vec![MIN_WIDTH as u8; self.shares.len()];
        widths[0] = 0;
        widths
    }

    /// Returns the share of buckets of a full filter that lack the bits for their entries; 1 if a
    /// bucket of two entries does.
    fn misfits(&self, widths: &[u8], bits: u32) -> f64 {
        let longest = widths.iter().copied().max().unwrap_or(0);
        if self.escapes[0].max(self.escapes[1] + u32::from(longest)) + u32::from(longest) > bits {
            return 1.0;
        }
        // The share of all buckets by number of entries and total fingerprint bits; after
        // subtracting those with their own codes, this leaves the escaped ones.
        let sums = SLOTS * usize::from(longest) + 1;
        let mut shares = vec![vec![0.0; sums]; SLOTS + 1];
        shares[0][0] = 1.0;
        for _ in 0..SLOTS {
            let mut next = vec![vec![0.0; sums]; SLOTS + 1];
            for (group, (&width, p)) in widths.iter().zip(&self.slots).enumerate() {
                for entries in 0..SLOTS {
                    for sum in 0..sums - usize::from(width) {
                        next[entries + usize::from(group > 0)][sum + usize::from(width)] +=
                            p * shares[entries][sum];
                    }
                }
            }
            shares = next;
        }
        let mut misfits = 0.0;
        for (len, groups, p) in &self.buckets {
            let sum: u32 = groups.iter().map(|&group| u32::from(widths[usize::from(group)])).sum();
            let entries = groups.iter().filter(|&&group| group > 0).count();
            shares[entries][sum as usize] -= p;
            if len + sum > bits {
                misfits += p;
            }
        }
        for (escape, shares) in self.escapes.iter().zip(&shares[1..]) {
            let room = bits.saturating_sub(*escape) as usize;
            misfits += shares.iter().skip(room + 1).sum::<f64>().max(0.0);
        }
        misfits
    }

    fn rate(&self, widths: &[u8]) -> f64 {
        self.shares.iter().zip(widths).skip(1).map(|(share, &width)| share * 0.5f64.powi(width.into())).sum()
    }

    /// Returns the lengths by group for buckets of this many bits. For each length of the largest
    /// group the others are lengthened as long as they fit, always where it helps most.
    pub(super) fn best_widths(&self, bits: u32) -> Option<Vec<u8>> {
        let groups = self.shares.len();
        let largest = (1..groups).max_by(|&a, &b| self.shares[a].total_cmp(&self.shares[b]))?;
        let mut best: Option<(f64, Vec<u8>)> = None;
        for width in MIN_WIDTH..=MAX_WIDTH {
            let mut widths = self.shortest();
            widths[largest] = width as u8;
            if self.misfits(&widths, bits) > MISFITS {
                break;
            }
            let mut open: Vec<usize> = (1..groups).filter(|&group| group != largest).collect();
            loop {
                let gain = |group: usize| self.shares[group] * 0.5f64.powi(widths[group].into());
                let Some(group) = open.iter().copied().max_by(|&a, &b| gain(a).total_cmp(&gain(b))) else {
                    break;
                };
                widths[group] += 1;
                let fits = u32::from(widths[group]) <= MAX_WIDTH && self.misfits(&widths, bits) <= MISFITS;
                if !fits {
                    widths[group] -= 1;
                    open.retain(|&g| g != group);
                }
            }
            let rate = self.rate(&widths);
            if best.as_ref().is_none_or(|(least, _)| rate < *least) {
                best = Some((rate, widths));
            }
        }
        best.map(|(_, widths)| widths)
    }
}
