//! Building a ribbon filter: banding, then back-substitution.
//!
//! Banding is Gaussian elimination on the fly. A key's equation goes to the slot of its first
//! coefficient; if that slot is taken, the two equations are added, which clears that coefficient,
//! and the sum moves on to its next one. As nothing moves to the left, the rows from any slot on
//! determine the slots from there on: this is what lets upper blocks have an extra column.
//! Back-substitution then goes from the last slot to the first and keeps the last 128 solved slots,
//! per column, in two words.
//!
//! # Memory
//! 20 bytes per slot, so about 21 per key, in addition to the filter; freed at the end. Banding
//! writes at the pace of its cache misses, [`AHEAD`] of which are outstanding at once.

use std::sync::Arc;

use crate::bits;
use crate::bloom::units_for;
use crate::digest::{Digest, SpreadSalt};
use crate::error::FilterError;
use crate::format::{Head, WordFilter};
use crate::words::{Owned, prefetch};

use super::layout::{BLOCK, Equation, HEADER, Layout, MAX_SLOTS, WIDTH};
use super::{GROUP, MAX_COLUMNS, Ribbon, WANTED, halves, seeded};

/// Keys between the prefetch of a row and its use.
const AHEAD: usize = 16;

/// Seeds tried; the first [`PATIENCE`] with the same number of slots, each later one with 1/64 more
/// slots.
const ATTEMPTS: u32 = 96;
const PATIENCE: u32 = 4;

impl Ribbon {
    /// Builds a filter over `digests`, of which consecutive duplicates count once (others work,
    /// too, but take their share of the space). It takes `bits_per_key` rounded up to whole words,
    /// at least two words. It takes fewer only where no probe could gain from more: beyond 32 bits
    /// per slot, and in filters of up to about 190 keys, which take a whole number of bits per
    /// slot. Below one bit per key, a share of all keys, absent ones included, is accepted
    /// untested.
    ///
    /// Two passes over the slots; in large filters one cache miss per key, overlapped; 21 bytes of
    /// temporary memory per key.
    ///
    /// # Errors
    /// [`FilterError::BitsPerKey`] unless `0 < bits_per_key <= 64`; [`FilterError::TooLarge`]
    /// beyond 2^32 slots (about 3.9 billion keys), 2^32 words, or the available memory.
    /// [`FilterError::Construction`] after 96 attempts with up to four times the slots, which does
    /// not happen for digests of distinct keys.
    pub fn build(digests: &[Digest], bits_per_key: f64, salt: u64) -> Result<Self, FilterError> {
        let repeats = digests.windows(2).filter(|pair| pair[0] == pair[1]).count();
        let keys = (digests.len() - repeats) as u64;
        let words = units_for(keys, bits_per_key, 64.0)?;
        let finish = |layout: Layout, seed: u8, words: Owned| {
            let head = Head { salt, keys, params: [layout.lower_columns() as u8, seed] };
            Self::from_parts(head, words)
        };
        if keys == 0 {
            return finish(Layout::EMPTY, 0, Owned::from([Layout::EMPTY.header()]));
        }
        let words = words.saturating_sub(HEADER).max(1);
        let mut band = Band::default();
        for attempt in 0..ATTEMPTS {
            let slots = slots_for(keys, attempt);
            if slots > MAX_SLOTS {
                return Err(FilterError::TooLarge { keys });
            }
            let layout = Layout::fitting(slots, words);
            let seed = attempt as u8;
            band.clear(slots).ok_or(FilterError::TooLarge { keys })?;
            if band.fill(&layout, digests, seeded(salt, seed)) {
                return finish(layout, seed, band.solve(&layout));
            }
        }
        Err(FilterError::Construction { keys })
    }
}

/// Returns the slots for the equations of `keys >= 1` keys at attempt `attempt`.
pub(super) fn slots_for(keys: u64, attempt: u32) -> u64 {
    let slots = keys.saturating_add(spare_slots(keys));
    let steps = u64::from(attempt.saturating_sub(PATIENCE - 1));
    slots.saturating_add(steps.saturating_mul(slots / 64 + 1))
}

/// Returns the slots beyond one per key with which about four seeds in five succeed, or three in
/// five for a filter below a few hundred keys, where seeds are cheap and slots dear.
///
/// By simulation with random equations: up to about 10,000 keys, 1 % succeeds every other time and
/// 1.5 % four times in five. Beyond that the longest backlog within the filter decides, so each
/// doubling costs the same again.
fn spare_slots(keys: u64) -> u64 {
    const SHARE: f64 = 0.015;
    const SHARE_PER_DOUBLING: f64 = 0.004;
    const FIRST_DOUBLING: f64 = 13.3;
    let doublings = ((keys as f64).log2() - FIRST_DOUBLING).max(0.0);
    (keys as f64 * (SHARE + SHARE_PER_DOUBLING * doublings)) as u64 + 1
}

/// The rows of the equations in echelon form: the one of slot `i` has its first coefficient there,
/// or is all zero.
#[derive(Default)]
struct Band {
    rows: Vec<u128>,
    /// The wanted parity of column `i` is bit `31 - i`.
    results: Vec<u32>,
}

impl Band {
    /// Allocates `slots` empty rows; `None` if there is not enough memory.
    fn clear(&mut self, slots: u64) -> Option<()> {
        let slots = usize::try_from(slots).ok()?;
        self.rows.clear();
        self.results.clear();
        self.rows.try_reserve_exact(slots).ok()?;
        self.results.try_reserve_exact(slots).ok()?;
        self.rows.resize(slots, 0);
        self.results.resize(slots, 0);
        Some(())
    }

    /// Adds the equations of all digests. `false` if they contradict each other.
    fn fill(&mut self, layout: &Layout, digests: &[Digest], spread: SpreadSalt) -> bool {
        // Coefficients behind the last slot of a filter narrower than the ribbon are ignored.
        let mask = if layout.slots() < WIDTH { (1 << layout.slots()) - 1 } else { u128::MAX };
        let mut pending = [Equation::default(); AHEAD];
        for (i, digest) in digests.iter().enumerate() {
            let next = layout.locate(digest.mix(spread));
            prefetch(&self.rows[next.start as usize]);
            prefetch(&self.results[next.start as usize]);
            let due = std::mem::replace(&mut pending[i % AHEAD], next);
            if i >= AHEAD && !self.add(layout, mask, &due) {
                return false;
            }
        }
        pending.iter().take(digests.len()).all(|equation| self.add(layout, mask, equation))
    }

    /// Adds one equation; `false` if it contradicts existing ones.
    fn add(&mut self, layout: &Layout, mask: u128, equation: &Equation) -> bool {
        let columns = layout.columns(equation.block());
        if columns == 0 {
            return true; // this key has no equations
        }
        let mut slot = equation.start as usize;
        let mut row = equation.coefficients() & mask;
        let mut result = equation.result;
        loop {
            let there = &mut self.rows[slot];
            if *there == 0 {
                *there = row;
                self.results[slot] = result;
                return true;
            }
            row ^= *there;
            result ^= self.results[slot];
            if row == 0 {
                // The same equation again, or one that follows from others, in the relevant columns
                // or not.
                return result >> (MAX_COLUMNS - columns) == 0;
            }
            let zeros = row.trailing_zeros();
            row >>= zeros;
            slot += zeros as usize;
        }
    }

    /// Returns the words of a filter that satisfies all equations. Slots without a row are 0.
    fn solve(&self, layout: &Layout) -> Owned {
        // Collecting an iterator of known length writes straight into the shared allocation: no
        // copy of the filter.
        let mut shared: Owned = std::iter::repeat_n(0, layout.words() as usize).collect();
        if let Some(words) = Arc::get_mut(&mut shared) {
            words[0] = layout.header();
            self.solve_into(layout, words);
        }
        shared
    }

    /// Same as [`Band::solve`], into words of zeros.
    fn solve_into(&self, layout: &Layout, words: &mut [u64]) {
        let mut window = [Window::default(); MAX_COLUMNS as usize / GROUP];
        let window = &mut window[..(layout.most_columns() as usize).div_ceil(GROUP)];
        for block in (0..layout.blocks()).rev() {
            let from = (block * BLOCK) as usize;
            let to = ((block + 1) * BLOCK).min(layout.slots()) as usize;
            for (&row, &result) in self.rows[from..to].iter().zip(&self.results[from..to]).rev() {
                for (group, window) in window.iter_mut().enumerate() {
                    window.step(row, result << (group * GROUP));
                }
            }
            // The low halves now start with the block.
            let solved = window.iter().flat_map(|window| window.low).take(layout.columns(block) as usize);
            if block < layout.whole() {
                let base = layout.base(block) as usize;
                words[base..].iter_mut().zip(solved).for_each(|(word, slots)| *word = slots);
            } else {
                for (column, slots) in solved.enumerate() {
                    bits::write(words, layout.tail_bit(column as u64), layout.tail() as u32, slots);
                }
            }
        }
    }
}

/// The 128 slots from the current one on, that in the lowest bit, of four columns.
#[derive(Clone, Copy, Default)]
struct Window {
    low: [u64; GROUP],
    high: [u64; GROUP],
}

impl Window {
    /// Moves down by a slot and solves it from the slot's row, for the four top bits of `result`.
    /// Written over arrays so that compilers vectorise it.
    #[inline(always)]
    fn step(&mut self, row: u128, result: u32) {
        let (row_low, row_high) = (row as u64, (row >> 64) as u64);
        for (i, (low, high)) in self.low.iter_mut().zip(&mut self.high).enumerate() {
            *high = *high << 1 | *low >> 63;
            *low <<= 1;
            // The new slot is 0 so far, so the parity of the others says what it must be. A zero
            // row leaves it 0.
            let mut odd = halves((*low & row_low) ^ (*high & row_high)) ^ (result & WANTED[i]);
            for shift in [16, 8, 4, 2, 1] {
                odd ^= odd >> shift;
            }
            *low |= u64::from(odd & 1);
        }
    }
}

/// Returns whether the equations of all digests can be satisfied at once.
#[cfg(test)]
pub(super) fn solvable(layout: &Layout, digests: &[Digest], spread: SpreadSalt) -> bool {
    let mut band = Band::default();
    band.clear(layout.slots()).is_some() && band.fill(layout, digests, spread)
}
