//! The first units of a group, as they lie in memory together.
//!
//! Units are stored one by one, so that any number of them can be read. In memory those in use lie
//! in one piece of whole cache lines. In the interleaved layout it has, for each block of a unit,
//! that block of every unit in use, side by side:
//!
//! ```text
//! unit 0: A0 B0 C0 …        two units in use: A0 A1 B0 B1 C0 C1 …        a key has its bits in A0 and A1, or in B0 and B1, …
//! unit 1: A1 B1 C1 …
//! ```
//!
//! In the other layouts the units follow one another. Which units are in use, and where the lines
//! are, is the caller's business; an [`ElasticStack`] only knows what all units of the group have
//! in common.

use super::unit::{BLOCK_WORDS, LINE_WORDS, Sequence, Shape, low, position_in_block, split};
use super::{ElasticLayout, ElasticSpec, ElasticUnit};
use crate::bloom::{BloomScheme, IndependentDigests};
use crate::digest::Digest;
use crate::error::FilterError;
use crate::words::{Words, prefetch};

/// Blocks of a line, in the interleaved layout.
const LINE_BLOCKS: usize = LINE_WORDS / BLOCK_WORDS;

/// A cache line of a stack.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct ElasticLine([[u64; BLOCK_WORDS]; LINE_BLOCKS]);

impl ElasticLine {
    /// A line without bits.
    pub const ZERO: ElasticLine = ElasticLine([[0; BLOCK_WORDS]; LINE_BLOCKS]);

    /// Word `at` of consecutive lines.
    #[inline(always)]
    fn word(lines: &[ElasticLine], at: usize) -> u64 {
        lines[at / LINE_WORDS].0[at % LINE_WORDS / BLOCK_WORDS][at % BLOCK_WORDS]
    }

    fn set_word(lines: &mut [ElasticLine], at: usize, value: u64) {
        lines[at / LINE_WORDS].0[at % LINE_WORDS / BLOCK_WORDS][at % BLOCK_WORDS] = value;
    }
}

/// Where a key has its bits in a stack of the interleaved layout, for probing many stacks: all are
/// located, and their lines prefetched, before the first is probed. See [`ElasticStack::locate`].
#[derive(Clone, Copy, Debug)]
pub struct ElasticProbe<'l> {
    lines: &'l [ElasticLine],
    /// The number of the key's block in unit 0; those of the other units follow.
    first: usize,
    units: u8,
    probes: u8,
    sequence: Sequence,
}

impl ElasticProbe<'_> {
    /// Same as [`ElasticStack::contains`].
    ///
    /// # Panics
    /// If there are fewer than [`ElasticStack::lines`] lines, or no units.
    #[inline]
    pub fn contains(&self) -> bool {
        self.first_accept() && self.others_accept()
    }

    /// Returns whether the first two units accept the key, or the only one: mostly one cache line,
    /// and no branch on which of them denies it. Denies nearly all absent keys.
    ///
    /// # Panics
    /// As [`ElasticProbe::contains`].
    #[inline(always)]
    pub fn first_accept(&self) -> bool {
        let second = usize::from(self.units > 1);
        self.accepts(0) & self.accepts(second) & 1 == 1
    }

    /// Returns whether all other units accept the key.
    ///
    /// # Panics
    /// As [`ElasticProbe::contains`].
    #[inline(never)]
    pub fn others_accept(&self) -> bool {
        (2..usize::from(self.units)).all(|unit| self.accepts(unit) & 1 == 1)
    }

    /// Whether a unit accepts the key, as the lowest bit of the result.
    #[inline(always)]
    fn accepts(&self, unit: usize) -> u64 {
        let at = self.first + unit;
        let block = &self.lines[at / LINE_BLOCKS].0[at % LINE_BLOCKS];
        let low = low(unit as u8, self.sequence);
        // The numbers of probes that the usual sizes of units have.
        match self.probes {
            2 => bit(low, 0, block) & bit(low, 1, block),
            3 => bit(low, 0, block) & bit(low, 1, block) & bit(low, 2, block),
            probes => (0..usize::from(probes)).fold(1, |all, probe| all & bit(low, probe, block)),
        }
    }
}

/// The bit of a probe as the lowest bit of the result.
#[inline(always)]
fn bit(low: u32, probe: usize, block: &[u64; BLOCK_WORDS]) -> u64 {
    let at = position_in_block(low, probe);
    block[at / 64] >> (at % 64)
}

/// Where the bits of a group's first units are when they lie in memory together.
///
/// ```
/// use tamis_filter::{
///     BloomScheme, Digest, ElasticGroup, ElasticLayout, ElasticLine, ElasticSpec, ElasticStack, Verify,
/// };
///
/// let keys: Vec<Digest> = (0..1000u32).map(|key| Digest::of(&key.to_le_bytes())).collect();
/// let (scheme, layout) = (BloomScheme::Rotation, ElasticLayout::Interleaved);
/// let spec = ElasticSpec { units: 8, bits_per_key: 3.0, scheme, layout };
/// let group = ElasticGroup::build(spec, &keys, 42, Verify::Yes)?;
/// let stack = ElasticStack::of(&group.units()[0]);
/// let mut lines = vec![ElasticLine::ZERO; stack.lines(2)];
/// stack.put(&mut lines, 2, &group.units()[0])?;
/// stack.put(&mut lines, 2, &group.units()[1])?;
/// assert!(stack.contains(&lines, 2, keys[7]));
/// # Ok::<(), tamis_filter::FilterError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ElasticStack {
    shape: Shape,
}

impl ElasticStack {
    /// Returns the stack of the group that a unit belongs to.
    pub fn of<W: Words>(unit: &ElasticUnit<W>) -> ElasticStack {
        ElasticStack { shape: unit.shape() }
    }

    /// Returns the stack of a group by its parameters: `probes` a unit, and the group's salt, keys
    /// and words of a unit.
    ///
    /// # Errors
    /// Those of opening a unit of that shape.
    pub fn new(
        spec: ElasticSpec,
        probes: u8,
        (salt, keys, words): (u64, u64, u64),
    ) -> Result<ElasticStack, FilterError> {
        let ElasticSpec { units, scheme, layout, .. } = spec;
        let units = u8::try_from(units).unwrap_or(u8::MAX);
        let shape = Shape { salt, keys, words, units, probes, scheme, layout };
        shape.check()?;
        Ok(ElasticStack { shape })
    }

    /// Returns the same for another group of the same kind, of the same table, say. `words` must be
    /// a positive multiple of the layout's; a probe of any other stack answers arbitrarily.
    #[inline]
    pub fn of_group(self, salt: u64, keys: u64, words: u64) -> ElasticStack {
        ElasticStack { shape: Shape { salt, keys, words, ..self.shape } }
    }

    /// Returns the number of lines that `units` units take.
    #[inline]
    pub fn lines(&self, units: u32) -> usize {
        (self.shape.words as usize * units as usize).div_ceil(LINE_WORDS)
    }

    /// Returns the place of word `word` of a unit in the lines of `units` units.
    #[inline(always)]
    fn place(&self, units: u32, unit: u32, word: usize) -> usize {
        match self.shape.layout {
            ElasticLayout::Interleaved => {
                (word / BLOCK_WORDS * units as usize + unit as usize) * BLOCK_WORDS + word % BLOCK_WORDS
            }
            ElasticLayout::Standard | ElasticLayout::Blocked => {
                unit as usize * self.shape.words as usize + word
            }
        }
    }

    /// Copies a unit to its place in the lines of the first `units` units.
    ///
    /// # Errors
    /// [`FilterError::Parameter`] if it is no unit of this group, or not one of the first `units`.
    ///
    /// # Panics
    /// If there are fewer than [`ElasticStack::lines`] lines.
    pub fn put<W: Words>(
        &self,
        lines: &mut [ElasticLine],
        units: u32,
        unit: &ElasticUnit<W>,
    ) -> Result<(), FilterError> {
        if unit.shape() != self.shape || unit.index() >= units {
            return Err(FilterError::Parameter("the unit belongs to another group"));
        }
        for word in 0..self.shape.words as usize {
            let at = self.place(units, unit.index(), word);
            ElasticLine::set_word(lines, at, unit.payload_word(word));
        }
        Ok(())
    }

    /// Copies the units that both stacks have from the lines of `from.1` units to those of `to.1`.
    ///
    /// # Panics
    /// If there are fewer than [`ElasticStack::lines`] lines on either side.
    pub fn copy(&self, from: (&[ElasticLine], u32), to: (&mut [ElasticLine], u32)) {
        for unit in 0..from.1.min(to.1) {
            for word in 0..self.shape.words as usize {
                let (source, target) = (self.place(from.1, unit, word), self.place(to.1, unit, word));
                ElasticLine::set_word(to.0, target, ElasticLine::word(from.0, source));
            }
        }
    }

    /// Returns whether the run may hold the key, that is, whether all of the first `units` units,
    /// which `lines` has, accept it. Remixes the digest once, and stops at the first unit that
    /// rejects. A group of scheme [`BloomScheme::Independent`] cannot answer from one digest and
    /// returns `true`.
    ///
    /// # Panics
    /// If there are fewer than [`ElasticStack::lines`] lines.
    #[inline]
    pub fn contains(&self, lines: &[ElasticLine], units: u32, digest: Digest) -> bool {
        let shape = &self.shape;
        let word = |at: usize| ElasticLine::word(lines, at);
        match (shape.scheme, shape.layout) {
            (BloomScheme::Independent, _) => true,
            (_, ElasticLayout::Interleaved) => self.place_of_key(lines, units, digest).contains(),
            (_, ElasticLayout::Blocked) => (0..units).all(|unit| {
                let (start, sequence) = (self.place(units, unit, 0), shape.sequence(digest));
                shape.positions_in_line(unit as u8, sequence).all(|(at, bit)| word(start + at) & bit != 0)
            }),
            (_, ElasticLayout::Standard) => (0..units).all(|unit| {
                let (start, sequence) = (self.place(units, unit, 0), shape.sequence(digest));
                shape.positions(unit as u8, sequence).all(|(at, bit)| word(start + at) & bit != 0)
            }),
        }
    }

    #[inline(always)]
    fn place_of_key<'l>(&self, lines: &'l [ElasticLine], units: u32, digest: Digest) -> ElasticProbe<'l> {
        let shape = &self.shape;
        let sequence = shape.sequence(digest);
        let first = (shape.block(sequence) / BLOCK_WORDS) * units as usize;
        ElasticProbe { lines, first, units: units as u8, probes: shape.probes, sequence }
    }

    /// Returns where a key has its bits in the first `units` units, which `lines` has, and
    /// prefetches what the first two will read; `None` in other layouts than the interleaved one.
    #[inline(always)]
    pub fn locate<'l>(
        &self,
        lines: &'l [ElasticLine],
        units: u32,
        digest: Digest,
    ) -> Option<ElasticProbe<'l>> {
        if self.shape.layout != ElasticLayout::Interleaved || self.shape.scheme == BloomScheme::Independent {
            return None;
        }
        let probe = self.place_of_key(lines, units, digest);
        if let Some(line) = lines.get(probe.first / LINE_BLOCKS) {
            prefetch(line);
        }
        Some(probe)
    }

    /// Same as [`ElasticStack::contains`] for [`BloomScheme::Independent`].
    ///
    /// # Errors
    /// [`FilterError::WrongScheme`] for another scheme, [`FilterError::TooFewDigests`].
    pub fn contains_independent(
        &self,
        lines: &[ElasticLine],
        units: u32,
        digests: &IndependentDigests,
    ) -> Result<bool, FilterError> {
        self.shape.check_independent(digests)?;
        let word = |at: usize| ElasticLine::word(lines, at);
        Ok((0..units).all(|unit| {
            let start = self.place(units, unit, 0);
            self.shape.independent(unit as u8, digests).all(|(at, bit)| word(start + at) & bit != 0)
        }))
    }

    /// Prefetches what the first unit will read, except in the standard layout.
    #[inline]
    pub fn prefetch(&self, lines: &[ElasticLine], units: u32, digest: Digest) {
        let sequence = self.shape.sequence(digest);
        let at = match self.shape.layout {
            ElasticLayout::Standard => return,
            ElasticLayout::Blocked => match self.shape.positions_in_line(0, sequence).next() {
                Some((at, _)) => at,
                None => return,
            },
            ElasticLayout::Interleaved => self.shape.block(sequence) * units as usize,
        };
        if let Some(line) = lines.get(at / LINE_WORDS) {
            prefetch(line);
        }
    }
}

impl Shape {
    /// Word and bit of every probe of a unit of the standard layout.
    #[inline(always)]
    fn positions(&self, index: u8, sequence: Sequence) -> impl Iterator<Item = (usize, u64)> {
        let bits = self.words * 64;
        self.terms(index, sequence).map(move |term| split(crate::bloom::reduce(term, bits)))
    }

    /// Word and bit of every probe of a unit of the blocked layout.
    #[inline(always)]
    fn positions_in_line(&self, index: u8, sequence: Sequence) -> impl Iterator<Item = (usize, u64)> {
        let (line, low) = self.line(index, sequence);
        (0..usize::from(self.probes)).map(move |i| {
            let (word, bit) = split(crate::blocked::portable::position(low, i) as u64);
            (line * LINE_WORDS + word, bit)
        })
    }
}
