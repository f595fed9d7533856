//! GRF: rates and code sizes of a filter for a whole tree that names the run of each key.
//!
//! H. Wang et al., "GRF: A Global Range Filter for LSM-Trees with Shape Encoding" (SIGMOD 2024),
//! sections 2, 4.2 to 4.4 and 5. Rates are fractions in `0..=1`, sizes bits per key. The tree is as
//! in [`lookup`](crate::lookup): the paper's L levels with ratio T, "full" meaning that each level
//! holds its maximum.
//!
//! A key's code says which run it is in: one bit if in the last level; for each level above that,
//! one more indicator bit, one more digit (a position in Shape Encoding) and one more extra
//! fingerprint bit ([`code_bits`]).
//!
//! All but [`global_rate`] is the paper's theory. The filter of tamis has no digits: its codes have
//! lengths by the shares of the runs, near the entropy, so that its rate follows from
//! [`entropy_bits`].
//!
//! # Where the paper errs or rounds
//! * **Section 4.3.1**: the mean over rounds `z = 1..T-1` of `1 + 1/(2z)` is `1 + H/(2(T-1))` with
//!   the harmonic number H of `T-1`, for which the paper writes `ln(T-1)`. At T = 10 this gives
//!   1.16, not 1.12; at T = 2 it gives 1.5, not 1 ([`average_factor`], [`paper_average_factor`]).
//! * **Section 4.4**: "the last m-th level accounts for `1/T^(m-1)` of all keys" sums to `T/(T-1)`.
//!   The printed `T/(T-1) + T(2+log T)/(T-1)²` gives 1.77 bits at T = 10, where the paper says 1.6.
//!   With shares that sum to 1 it is `1 + (2+log T)/(T-1)`, 1.59: the number is right and the
//!   formula too high by a factor of `T/(T-1)`. Digits of whole bits (4 at T = 10) give 1.67.
//! * **Section 4.4**, without garbage collection above the last two levels: the bound
//!   `(1+(L-1)(2+log T))/T²` is below 0.2 bits at T = 10 for up to 4 levels; with 5 it is 0.22. The
//!   actual increase is smaller, 0.10, as those codes replace shorter ones ([`uncollected_bits`]).
//! * **Section 4.4**: "better than local SNARFs with more than 5 runs": at equal bits from 4.5 (4.6
//!   with the exact mean) runs on ([`break_even_runs`]).
//! * **Section 5**: the waiting buffer's 0.8 bits per key for 64-bit keys at T = 10 are 0.64 for
//!   the keys alone; codes of 16 bits each would give 0.8 ([`waiting_buffer_bits`]).
//! * A level momentarily holds T runs, and digits then range up to T inclusive: [`Policy::Tiering`]
//!   notes this.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::lookup::{Policy, Tree};
use crate::numbers::{Ordered, bits, fraction, normalized};

/// Bits that SNARF takes beyond those of the position: 2 of Golomb coding, 1 of model and
/// directory.
pub const SNARF_OVERHEAD: f64 = 3.0;
/// Bits that GRF takes beyond those of the position: SNARF's, and up to 2 of code.
pub const GRF_OVERHEAD: f64 = 5.0;
/// Bits per entry that the filter of tamis takes beyond those of position and run, measured: 2 of
/// Elias–Fano coding, the rest of map and directory.
pub const GLOBAL_OVERHEAD: f64 = 2.4;

/// Returns the rate at which a random slot of the position space is taken, with `2^position_bits`
/// slots per key: `2^-position_bits`. 1 for none.
pub fn position_rate(position_bits: f64) -> f64 {
    fraction((-bits(position_bits)).exp2())
}

/// Section 2: bits of a position in Golomb coding, with `2^position_bits` slots per key: `2 +
/// log2(M/N)`.
pub fn golomb_bits(position_bits: f64) -> f64 {
    2.0 + bits(position_bits).max(0.0)
}

/// Section 4.4: the rate of SNARF with this many bits per key, `2^-(b-3)`.
pub fn snarf_rate(bits_per_key: f64) -> f64 {
    position_rate(bits(bits_per_key) - SNARF_OVERHEAD)
}

/// Section 4.4: the rate of GRF at the beginning of a compaction round, `2^-(b-5)`.
pub fn rate(bits_per_key: f64) -> f64 {
    position_rate(bits(bits_per_key) - GRF_OVERHEAD)
}

/// Returns the expected number of entries of the filter of tamis, of all runs together, that an
/// absent key matches: `2^-(b - 2.4 - H)`, where H is the entropy of the runs' `shares` of the
/// entries, in any unit ([`entropy_bits`]), and at most the number of runs. O(n).
///
/// This holds for codes as short as the entropy, and for a map that spreads keys evenly, as the
/// digest does. One partition of 2^16 keys came to 1.0 times this for one run, and to 1.5 to 2.0
/// times for 4 to 74 of equal size, whose codes are longer by 0.3 to 1.1 bits. A map that keeps the
/// order of uniform keys came to 1.0 to 1.5 times as much as the digest, with 74 runs to 2.4 to 3.
pub fn global_rate(bits_per_key: f64, shares: &[f64]) -> f64 {
    let position_bits = bits(bits_per_key) - GLOBAL_OVERHEAD - entropy_bits(shares);
    (-position_bits).exp2().min(shares.len().max(1) as f64)
}

/// Section 4.3.1: the mean rate over the round after the `rounds`-th last-level compaction,
/// relative to that at its beginning: `1 + 1/(2z)`, as keys grow by `1/z` and the filter's
/// positions do not. `rounds` below 1 are treated as 1.
pub fn round_factor(rounds: u32) -> f64 {
    1.0 + 0.5 / f64::from(rounds.max(1))
}

/// Section 4.3.1: the mean of [`round_factor`] over the `T-1` rounds that fill the last level: 1.16
/// at T = 10. Ratios below 2 are treated as 2. O(T) up to a thousand, O(1) beyond.
pub fn average_factor(size_ratio: u32) -> f64 {
    /// Euler's constant.
    const GAMMA: f64 = 0.577_215_664_901_532_9;
    let rounds = size_ratio.max(2) - 1;
    let n = f64::from(rounds);
    let harmonic = if rounds <= 1000 {
        // Smallest terms first.
        (1..=rounds).rev().map(|z| 1.0 / f64::from(z)).sum()
    } else {
        // The next term is 1/(120 n^4).
        n.ln() + GAMMA + 0.5 / n - 1.0 / (12.0 * n * n)
    };
    1.0 + harmonic / (2.0 * n)
}

/// The same formula as printed, `1 + ln(T-1)/(2(T-1))`: 1.12 at T = 10. Too low, by up to
/// `0.5/(T-1)`.
pub fn paper_average_factor(size_ratio: u32) -> f64 {
    let rounds = f64::from(size_ratio.max(2) - 1);
    1.0 + rounds.ln() / (2.0 * rounds)
}

/// Section 4.4: the mean rate over all rounds: [`rate`] times [`average_factor`].
pub fn average_rate(bits_per_key: f64, size_ratio: u32) -> f64 {
    fraction(rate(bits_per_key) * average_factor(size_ratio))
}

/// Returns the number of runs from which on GRF has a lower rate than one SNARF per run with the
/// same bits per key: `4` times [`average_factor`].
pub fn break_even_runs(size_ratio: u32) -> f64 {
    (GRF_OVERHEAD - SNARF_OVERHEAD).exp2() * average_factor(size_ratio)
}

/// The range of a code's digit: 0 to T - 1, or to T where a level may hold T runs. With leveling a
/// digit counts the merges into the level (section 5, generalization 3).
pub fn radix(tree: Tree, policy: Policy) -> u32 {
    let t = tree.clamped().size_ratio;
    match policy {
        Policy::Leveling | Policy::TieringAtRest => t,
        Policy::Tiering => t + 1,
    }
}

/// The encoding of digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Digits {
    /// `log2` of the radix bits, not necessarily whole: the paper's formulas, and the cost of
    /// coding all digits of a key as one number.
    Fractional,
    /// A whole number of bits each.
    Whole,
}

impl Digits {
    /// Returns the bits of one digit. A radix below 2 needs none.
    pub fn bits(self, radix: u32) -> f64 {
        let bits = f64::from(radix.max(1)).log2();
        match self {
            Digits::Fractional => bits,
            Digits::Whole => f64::from(u32::BITS - radix.saturating_sub(1).leading_zeros()),
        }
    }
}

/// Returns the number of shapes of a tree within one compaction round: the radix to the power of
/// the levels above the last. A float, since it overflows soon.
pub fn shapes(tree: Tree, policy: Policy) -> f64 {
    f64::from(radix(tree, policy)).powi(tree.clamped().levels as i32 - 1)
}

/// The same with a radix per level, without the last level (section 5, generalization 4). 1 for
/// none. Radices below 1 are treated as 1.
pub fn shapes_of(radices: &[u32]) -> f64 {
    radices.iter().map(|&radix| f64::from(radix.max(1))).product()
}

/// Section 4.2: bits of a full Shape Encoding, before any garbage collection and without indicators
/// and extra bits: a digit for each level above the last.
pub fn full_shape_bits(tree: Tree, policy: Policy, digits: Digits) -> f64 {
    f64::from(tree.clamped().levels - 1) * digits.bits(radix(tree, policy))
}

/// Section 4.4: bits of the code of a key `above` levels above the last, after collection: `above`
/// indicators of 0 and one indicator of 1, `above` digits, and `above` extra fingerprint bits.
pub fn code_bits(above: u32, digit_bits: f64) -> f64 {
    1.0 + f64::from(above) * (2.0 + bits(digit_bits).max(0.0))
}

/// Section 4.4: the mean of [`code_bits`] over the keys of a full tree, by their exact shares.
pub fn mean_code_bits(tree: Tree, policy: Policy, digits: Digits) -> f64 {
    let digit = digits.bits(radix(tree, policy));
    tree.level_shares().iter().rev().zip(0..).map(|(share, above)| share * code_bits(above, digit)).sum()
}

/// The limit of [`mean_code_bits`] for many levels: `1 + (2+digit)/(T-1)`.
pub fn limit_code_bits(size_ratio: u32, digit_bits: f64) -> f64 {
    1.0 + (2.0 + bits(digit_bits).max(0.0)) / f64::from(size_ratio.max(2) - 1)
}

/// Section 4.4's closed form as printed: `T/(T-1) + T(2+digit)/(T-1)²`. `T/(T-1)` times
/// [`limit_code_bits`].
pub fn paper_code_bits(size_ratio: u32, digit_bits: f64) -> f64 {
    let t = f64::from(size_ratio.max(2));
    t / (t - 1.0) + t * (2.0 + bits(digit_bits).max(0.0)) / (t - 1.0).powi(2)
}

/// Section 4.4: additional bits per key over [`mean_code_bits`] if the codes of the last two levels
/// are collected and all others are still complete.
pub fn uncollected_bits(tree: Tree, policy: Policy, digits: Digits) -> f64 {
    let digit = digits.bits(radix(tree, policy));
    let full = code_bits(tree.clamped().levels - 1, digit);
    let shares = tree.level_shares();
    shares.iter().rev().zip(0..).skip(2).map(|(share, above)| share * (full - code_bits(above, digit))).sum()
}

/// The paper's bound on it, `(1 + (L-1)(2+digit))/T²`.
pub fn paper_uncollected_bits(tree: Tree, digit_bits: f64) -> f64 {
    let (levels, t) = tree.numbers();
    code_bits(levels as u32 - 1, digit_bits) / (t * t)
}

/// Section 4.2, cross-round snapshots: the fraction of a full tree's entries that an old filter
/// keeps, those above the last level; about `1/T`.
pub fn shrunk_share(tree: Tree) -> f64 {
    let shares = tree.level_shares();
    shares[..shares.len() - 1].iter().sum()
}

/// Section 5, generalization 2: bits per key of a waiting buffer in which `1/T²` of the keys wait,
/// each with `entry_bits`.
pub fn waiting_buffer_bits(size_ratio: u32, entry_bits: f64) -> f64 {
    bits(entry_bits).max(0.0) / f64::from(size_ratio.max(2)).powi(2)
}

/// Returns the fraction of all keys that each run of a full tree holds, newest first; the last
/// level is one run, as in GRF (lazy leveling).
pub fn run_shares(tree: Tree, policy: Policy) -> Vec<f64> {
    let runs = policy.runs(tree);
    let mut levels = tree.level_shares();
    let last = levels.pop().unwrap_or(1.0);
    let level = |share: f64| std::iter::repeat_n(share / f64::from(runs), runs as usize);
    levels.into_iter().flat_map(level).chain([last]).collect()
}

/// Returns the bits of a binary run number among `runs` runs. 0 for one.
pub fn fixed_bits(runs: u64) -> u32 {
    u64::BITS - runs.saturating_sub(1).leading_zeros()
}

/// Returns the entropy in bits of a distribution given by shares in any unit: a lower bound for
/// every code of single keys. Negative, infinite and NaN shares are treated as 0; 0 for an empty
/// distribution.
pub fn entropy_bits(shares: &[f64]) -> f64 {
    let of = normalized(shares.iter().copied());
    of.iter().filter(|&&p| p > 0.0).map(|&p| -p * p.log2()).sum::<f64>().max(0.0)
}

/// Returns the mean length in bits of a Huffman code for this distribution: a run number as GRF_H
/// and Chucky (without its combinations) store it. Shares as in [`entropy_bits`]; 0 if at most one
/// is positive. O(n log n).
///
/// A code of single keys takes at least one bit each, however rare the others are. Chucky codes
/// combinations of keys and so gets below that, towards the entropy.
pub fn huffman_bits(shares: &[f64]) -> f64 {
    // Each merge of the two rarest lengthens all codes in them by one bit.
    let mut heap: BinaryHeap<Reverse<Ordered>> = normalized(shares.iter().copied())
        .into_iter()
        .filter(|&p| p > 0.0)
        .map(|p| Reverse(Ordered(p)))
        .collect();
    let mut bits = 0.0;
    while let (Some(Reverse(a)), Some(Reverse(b))) = (heap.pop(), heap.pop()) {
        bits += a.0 + b.0;
        heap.push(Reverse(Ordered(a.0 + b.0)));
        if heap.len() == 1 {
            break;
        }
    }
    bits
}

#[cfg(test)]
mod tests;
