//! The ribbon filter: a third smaller than a Bloom filter of the same rate, slower to build and to
//! probe. Suited to long-lived runs.
//!
//! Every key stands for one linear equation over GF(2) per column: the parity of the *slots* that
//! its 128 *coefficients* select, from its *start* on, is a bit of its *result*. Building solves
//! the equations of all keys; a probe evaluates those of one key. Start, coefficients and result
//! are hashes of the digest, so an absent key satisfies each of *r* equations with probability one
//! half: the rate is `2^-r`.
//!
//! Source: P. C. Dillinger, S. Walzer, "Ribbon filter: practically smaller than Bloom and Xor"
//! (2021): the standard ribbon filter of width 128, banded on the fly, with the interleaved
//! column-major layout. Differences:
//!
//! * Blocks have 64 slots rather than the width of the ribbon. An unaligned window of 128 slots
//!   then spans three words per column instead of four, and the last block may be cut at any slot,
//!   so no slot is lost to rounding.
//! * There is no "smash" of starts to the ends: with up to 128 slots all keys start at slot 0, and
//!   beyond that the backlog of equations that elimination pushes to the right fills the slots at
//!   the end. Simulation puts the overhead in slots at 1 to 2 % from 100 to 20,000 keys
//!   (`build.rs`).
//! * Results and both halves of the coefficients are three folded 128-bit products of one hash.
//!   Plain 64-bit products with a shift leave linear relations between coefficients, which cost one
//!   or two ranks in 128.
//!
//! # Size
//! Slots per key: 1.02 for 100 to 10,000 keys, 1.03 for 100,000, 1.04 for a million, 1.06 for
//! sixteen million. At 7.05 bits per key the rate is 0.83 % for 10,000 keys and 0.96 % for a
//! million, where a Bloom filter has 3.4 %. Besides the slots there is one word. A filter without
//! keys consists of that word alone.
//!
//! # Layout
//! `docs/formats/filters.md` specifies it bit by bit. Word 0 holds the number of slots and the first
//! *upper* block. A block is one word per column, columns side by side, so a probe reads three runs
//! of neighbouring words. Blocks below the upper ones have one column fewer, which uses the
//! requested bits to the word. A key has as many equations as the block it starts in has columns;
//! later blocks have no fewer.
//!
//! # Invariants
//! * `Layout::open` has proven that the words are exactly those of the layout, so probes stay in
//!   bounds; the contents of slots do not influence where a probe looks.
//! * There are at most [`MAX_COLUMNS`] columns, as many as a result has bits.
//! * Building and probing go through the same `Layout::locate`.
//!
//! # Threads
//! Immutable once built; shared freely.

mod build;
mod layout;

use std::fmt;

use crate::digest::{Digest, SpreadSalt};
use crate::error::FilterError;
use crate::format::{FilterKind, Head, WordFilter};
use crate::words::{Owned, Words};
use layout::{Equation, Layout};

/// Maximum number of columns: at 2^-32, an absent key that shares the digest of one of 2^32 keys is
/// as likely as a false positive, so more bits would not help.
const MAX_COLUMNS: u32 = 32;

/// Columns that a probe evaluates before it checks for a mismatch.
///
/// A branch per column is mispredicted once per probe, as half of the absent keys pass each column;
/// four columns pass one absent key in sixteen. Four parities also take at most about twice the
/// instructions of one.
const GROUP: usize = 4;

/// A ribbon filter. Cloning shares its words.
#[derive(Clone, Copy)]
pub struct Ribbon<W: Words = Owned> {
    head: Head,
    layout: Layout,
    spread: SpreadSalt,
    words: W,
}

impl<W: Words> WordFilter<W> for Ribbon<W> {
    const KIND: FilterKind = FilterKind::Ribbon;

    fn from_parts(head: Head, words: W) -> Result<Self, FilterError> {
        let [columns, seed] = head.params;
        let layout = Layout::open(columns, words.word(0), words.count() as u64)?;
        Ok(Self { head, layout, spread: seeded(head.salt, seed), words })
    }

    fn head(&self) -> Head {
        self.head
    }

    fn words(&self) -> &W {
        &self.words
    }
}

/// Returns the salt of seed `seed` among those that building tries. Seed 0 is the filter's own
/// salt; the step is large, so that no seed of a filter is the salt of a neighbouring run.
fn seeded(salt: u64, seed: u8) -> SpreadSalt {
    SpreadSalt::new(salt ^ u64::from(seed).wrapping_mul(0x81e9_2b5b_98ba_91ad))
}

impl<W: Words> Ribbon<W> {
    /// Returns whether the run may hold the key. Reads up to three runs of neighbouring words, 24
    /// bytes per column; for an absent key mostly those of the first four columns.
    #[inline]
    pub fn contains(&self, digest: Digest) -> bool {
        let equation = self.layout.locate(digest.mix(self.spread));
        // All but the windows at the very end lie within whole blocks.
        if equation.block() + 2 < self.layout.whole() {
            self.fulfils(&equation)
        } else {
            self.fulfils_at_the_end(&equation)
        }
    }

    #[inline(always)]
    fn fulfils(&self, equation: &Equation) -> bool {
        let block = equation.block();
        let masks = equation.masks();
        let columns = self.layout.columns(block) as usize;
        let first = self.layout.base(block) as usize;
        let second = self.layout.base(block + 1) as usize;
        let third = self.layout.base(block + 2) as usize;
        if columns < GROUP {
            for column in 0..columns {
                let word = |base: usize| self.words.word(base + column);
                let words = [word(first), word(second), word(third)];
                if !one_holds(words, masks, equation.result << column) {
                    return false;
                }
            }
            return true;
        }
        let last = columns - GROUP;
        let mut from = 0;
        loop {
            let four = |base: usize| self.words.four(base + from);
            let words = [four(first), four(second), four(third)];
            if !four_hold(words, masks, equation.result << from) {
                return false;
            }
            if from == last {
                return true;
            }
            // The last group may overlap the previous one: cheaper than single columns.
            from = (from + GROUP).min(last);
        }
    }

    /// The same where the window may leave the whole blocks, column by column.
    #[cold]
    #[inline(never)]
    fn fulfils_at_the_end(&self, equation: &Equation) -> bool {
        if self.layout.slots() == 0 {
            return false; // no keys
        }
        let (block, masks) = (equation.block(), equation.masks());
        (0..u64::from(self.layout.columns(block))).all(|column| {
            let slots = |block: u64| self.layout.read(&self.words, block, column);
            one_holds([slots(block), slots(block + 1), slots(block + 2)], masks, equation.result << column)
        })
    }

    /// Prefetches what [`Ribbon::contains`] will read first: the first columns of the three blocks
    /// of the window.
    #[inline]
    pub fn prefetch(&self, digest: Digest) {
        let block = self.layout.locate(digest.mix(self.spread)).block();
        for next in 0..3 {
            self.words.prefetch(self.layout.base(block + next) as usize);
        }
    }

    /// Returns the number of keys the filter was built over.
    pub fn keys(&self) -> u64 {
        self.head.keys
    }

    /// Returns the bits used per key, rounding included; infinite for no keys.
    pub fn bits_per_key(&self) -> f64 {
        (self.words.count() * 64) as f64 / self.head.keys as f64
    }

    /// Returns the theoretical false-positive rate: `2^-r`, averaged over the starts, some of which
    /// have one column more than the others; 0 for no keys.
    pub fn expected_rate(&self) -> f64 {
        if self.head.keys == 0 { 0.0 } else { self.layout.rate() }
    }

    /// Returns the bytes held in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.words.count() * 8
    }

    /// Copies the filter into owned memory.
    pub fn to_owned(&self) -> Ribbon {
        Ribbon {
            head: self.head,
            layout: self.layout,
            spread: self.spread,
            words: self.words.to_owned_words(),
        }
    }
}

impl<W: Words> fmt::Debug for Ribbon<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ribbon")
            .field("head", &self.head)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

/// The result bits of the first four columns.
const WANTED: [u32; GROUP] = [1 << 31, 1 << 30, 1 << 29, 1 << 28];

/// Returns whether the parity of one column's slots, under the masks, is the top bit of `result`.
#[inline(always)]
fn one_holds(words: [u64; 3], masks: [u64; 3], result: u32) -> bool {
    let selected = (words[0] & masks[0]) ^ (words[1] & masks[1]) ^ (words[2] & masks[2]);
    (halves(selected) ^ (result & WANTED[0])).count_ones().is_multiple_of(2)
}

/// Like [`one_holds`] for four columns and the four top bits of `result`. Written over arrays so
/// that compilers vectorise it, which is also why parity is folded: not every vector unit has a
/// population count.
#[inline(always)]
fn four_hold(words: [[u64; GROUP]; 3], masks: [u64; 3], result: u32) -> bool {
    let [a, b, c] = &words;
    let mut odd = [0; GROUP];
    for (i, odd) in odd.iter_mut().enumerate() {
        *odd = halves((a[i] & masks[0]) ^ (b[i] & masks[1]) ^ (c[i] & masks[2])) ^ (result & WANTED[i]);
        // Towards the top bit, where it can be read from all lanes at once.
        for shift in [16, 8, 4, 2, 1] {
            *odd ^= *odd << shift;
        }
    }
    (odd[0] | odd[1] | odd[2] | odd[3]) >> 31 == 0
}

/// 32 bits of the same parity.
#[inline(always)]
fn halves(word: u64) -> u32 {
    (word >> 32) as u32 ^ word as u32
}

#[cfg(test)]
mod tests;
