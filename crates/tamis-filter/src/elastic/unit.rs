//! One unit of a group: its bits, its bytes, and where a key's bits are in it.

use std::fmt;
use std::sync::Arc;

use super::ElasticLayout;
use crate::blocked::portable::position;
use crate::bloom::{BloomScheme, IndependentDigests, SECOND_HASH, reduce};
use crate::digest::Digest;
use crate::error::FilterError;
use crate::format::{self, Envelope, FilterInfo, FilterKind, Head};
use crate::theory;
use crate::words::{Borrowed, Owned, Words};

/// Words of a cache line.
pub(super) const LINE_WORDS: usize = 8;

/// Rotation whose sums `x + i * rotated(x)` keep all but a few bits of `x`, for every `i` that
/// occurs: as a multiplication modulo 2^64 - 1, it shares no large factor with the modulus.
const ROTATION: u32 = 33;

/// Turns a term of the sequence into the positions in a line: an odd constant, drawn at random.
const LOW: u64 = 0xd1b5_4a32_d192_ed03;

/// Words of a unit's block for one key in the interleaved layout.
pub(super) const BLOCK_WORDS: usize = theory::INTERLEAVED_BITS as usize / 64;

/// How scheme and layout are encoded.
const HOW: [(u8, BloomScheme, ElasticLayout); 7] = [
    (0, BloomScheme::Rotation, ElasticLayout::Standard),
    (1, BloomScheme::DoubleHashing, ElasticLayout::Standard),
    (2, BloomScheme::Independent, ElasticLayout::Standard),
    (3, BloomScheme::Rotation, ElasticLayout::Interleaved),
    (4, BloomScheme::Rotation, ElasticLayout::Blocked),
    (5, BloomScheme::DoubleHashing, ElasticLayout::Blocked),
    (7, BloomScheme::DoubleHashing, ElasticLayout::Interleaved),
];

/// What all units of a group have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) salt: u64,
    pub(super) keys: u64,
    /// Words of one unit.
    pub(super) words: u64,
    pub(super) units: u8,
    pub(super) probes: u8,
    pub(super) scheme: BloomScheme,
    pub(super) layout: ElasticLayout,
}

/// The first term and the step from which a key's positions are derived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sequence {
    first: u64,
    step: u64,
}

impl Sequence {
    #[inline(always)]
    fn term(self, i: u64) -> u64 {
        self.first.wrapping_add(self.step.wrapping_mul(i))
    }
}

impl Shape {
    /// Invariants of every shape, built or read.
    pub(super) fn check(&self) -> Result<(), FilterError> {
        let (most, whole) = match self.layout {
            ElasticLayout::Standard => (theory::MAX_PROBES, 1),
            ElasticLayout::Blocked => (theory::MAX_BLOCKED_PROBES, LINE_WORDS as u64),
            ElasticLayout::Interleaved => (theory::MAX_BLOCKED_PROBES, BLOCK_WORDS as u64),
        };
        if !(1..=most).contains(&u32::from(self.probes)) {
            return Err(FilterError::Probes(self.probes));
        }
        if self.words == 0 || !self.words.is_multiple_of(whole) {
            return Err(FilterError::Corrupt("unit size"));
        }
        if self.scheme == BloomScheme::Independent {
            if self.layout != ElasticLayout::Standard {
                return Err(FilterError::Parameter("independent units cannot be blocked"));
            }
            if u32::from(self.units) * u32::from(self.probes) > theory::MAX_PROBES {
                return Err(FilterError::Parameter("a group has at most 30 independent probes"));
            }
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn sequence(&self, digest: Digest) -> Sequence {
        let first = digest.remix(self.salt);
        let step = match self.scheme {
            BloomScheme::DoubleHashing => digest.remix(self.salt ^ SECOND_HASH),
            BloomScheme::Rotation | BloomScheme::Independent => first.rotate_left(ROTATION),
        };
        Sequence { first, step: step | 1 }
    }

    /// Returns the first term of unit `index` of the standard layout.
    #[inline(always)]
    fn first_term(&self, index: u8, sequence: Sequence) -> u64 {
        sequence.term(u64::from(index) * u64::from(self.probes))
    }

    /// Returns the terms of the probes of unit `index` of the standard layout.
    #[inline(always)]
    pub(super) fn terms(&self, index: u8, sequence: Sequence) -> impl Iterator<Item = u64> + use<> {
        let first = self.first_term(index, sequence);
        (0..u64::from(self.probes)).map(move |i| first.wrapping_add(sequence.step.wrapping_mul(i)))
    }

    /// Returns the line of a key in unit `index` of the blocked layout, and the seed of its
    /// positions there.
    #[inline(always)]
    pub(super) fn line(&self, index: u8, sequence: Sequence) -> (usize, u32) {
        let term = sequence.term(index.into());
        let line = reduce(term, self.words / LINE_WORDS as u64) as usize;
        (line, (term.wrapping_mul(LOW) >> 32) as u32)
    }

    /// Returns the first word of a key's block, which has the same place in every unit of the
    /// interleaved layout.
    #[inline(always)]
    pub(super) fn block(&self, sequence: Sequence) -> usize {
        reduce(sequence.first, self.words / BLOCK_WORDS as u64) as usize * BLOCK_WORDS
    }

    pub(super) fn set(&self, words: &mut [u64], index: u8, sequence: Sequence) {
        match self.layout {
            ElasticLayout::Standard => {
                let mut term = self.first_term(index, sequence);
                for _ in 0..self.probes {
                    let (word, bit) = split(reduce(term, self.words * 64));
                    words[word] |= bit;
                    term = term.wrapping_add(sequence.step);
                }
            }
            ElasticLayout::Blocked => {
                let (line, low) = self.line(index, sequence);
                for i in 0..usize::from(self.probes) {
                    let (word, bit) = split(position(low, i) as u64);
                    words[line * LINE_WORDS + word] |= bit;
                }
            }
            ElasticLayout::Interleaved => {
                let (block, low) = (self.block(sequence), low(index, sequence));
                for i in 0..usize::from(self.probes) {
                    let (word, bit) = split(position_in_block(low, i) as u64);
                    words[block + word] |= bit;
                }
            }
        }
    }

    /// Word and bit of every probe of an independent unit.
    pub(super) fn independent<'a>(
        &self,
        index: u8,
        digests: &'a IndependentDigests,
    ) -> impl Iterator<Item = (usize, u64)> + use<'a> {
        let Self { salt, words, .. } = *self;
        let (from, count) = (usize::from(index) * usize::from(self.probes), self.probes.into());
        digests
            .as_slice()
            .iter()
            .skip(from)
            .take(count)
            .map(move |digest| split(reduce(digest.remix(salt), words * 64)))
    }

    pub(super) fn set_independent(&self, words: &mut [u64], index: u8, digests: &IndependentDigests) {
        self.independent(index, digests).for_each(|(word, bit)| words[word] |= bit);
    }

    /// Checks that scheme and number of digests fit.
    pub(super) fn check_independent(&self, digests: &IndependentDigests) -> Result<(), FilterError> {
        if self.scheme != BloomScheme::Independent {
            return Err(FilterError::WrongScheme(self.scheme));
        }
        let (need, have) = (usize::from(self.units) * usize::from(self.probes), digests.as_slice().len());
        if have < need { Err(FilterError::TooFewDigests { need, have }) } else { Ok(()) }
    }
}

/// Returns the seed of a key's positions in its block of unit `index` of the interleaved layout.
#[inline(always)]
pub(super) fn low(index: u8, sequence: Sequence) -> u32 {
    (sequence.term(index.into()).wrapping_mul(LOW) >> 32) as u32
}

/// Returns the position, below [`theory::INTERLEAVED_BITS`], of probe `i`.
#[inline(always)]
pub(super) fn position_in_block(low: u32, i: usize) -> usize {
    position(low, i) >> 1
}

/// Splits a bit number into word and bit.
#[inline(always)]
pub(super) fn split(bit: u64) -> (usize, u64) {
    ((bit / 64) as usize, 1 << (bit % 64))
}

/// One unit of an [`ElasticGroup`](crate::ElasticGroup): a small Bloom filter that knows which one
/// of which group it is. Cloning shares the bits.
#[derive(Clone)]
pub struct ElasticUnit<W: Words = Owned> {
    shape: Shape,
    index: u8,
    words: W,
    /// Where the payload starts in `words`: at a cache line, if the layout wants that and the words
    /// are owned.
    start: usize,
}

/// A unit over borrowed bytes. Any alignment is correct; a blocked unit that does not start at a
/// multiple of 64 touches two cache lines per probe.
pub type ElasticUnitRef<'a> = ElasticUnit<Borrowed<'a>>;

impl ElasticUnit {
    /// Creates a unit without keys.
    pub(super) fn zeroed(shape: Shape, index: u8) -> Self {
        let spare = Self::spare(shape.layout);
        let len = shape.words as usize;
        let words: Owned = std::iter::repeat_n(0, len + spare).collect();
        // Allocations may start any multiple of 8 bytes into a line; `spare` words reach the next
        // line.
        let start = (words.as_ptr().addr().wrapping_neg() % 64 / 8).min(spare);
        Self { shape, index, words, start }
    }

    /// The payload of a newly created unit.
    pub(super) fn payload_mut(&mut self) -> &mut [u64] {
        let words = Arc::get_mut(&mut self.words).expect("a new unit is not shared");
        &mut words[self.start..self.start + self.shape.words as usize]
    }

    /// The payload's position in memory.
    #[cfg(test)]
    pub(super) fn address(&self) -> usize {
        self.words[self.start..].as_ptr().addr()
    }

    /// Returns what [`ElasticUnit::memory_bytes`] will be for a unit opened from `encoded_len`
    /// bytes, for planning before anything is read.
    pub fn memory_of(layout: ElasticLayout, encoded_len: usize) -> usize {
        size_of::<Self>() + encoded_len.saturating_sub(format::TRAILER_LEN) + Self::spare(layout) * 8
    }

    /// Extra words that let the payload start at a cache line.
    fn spare(layout: ElasticLayout) -> usize {
        match layout {
            ElasticLayout::Standard => 0,
            ElasticLayout::Blocked | ElasticLayout::Interleaved => LINE_WORDS - 1,
        }
    }

    /// Opens bytes written by [`ElasticUnit::write_to`], copying the payload into aligned memory.
    /// Linear.
    ///
    /// # Errors
    /// Any opening error of [`FilterError`], if the bytes are not exactly one undamaged unit.
    pub fn open(bytes: &[u8]) -> Result<Self, FilterError> {
        let view = ElasticUnit::open_ref(bytes)?;
        let mut unit = Self::zeroed(view.shape, view.index);
        unit.payload_mut().iter_mut().enumerate().for_each(|(at, word)| *word = view.words.word(at));
        Ok(unit)
    }

    /// Returns a view of `bytes`, which must be exactly one unit. Linear, because the checksum is
    /// verified.
    ///
    /// # Errors
    /// As [`ElasticUnit::open`].
    pub fn open_ref(bytes: &[u8]) -> Result<ElasticUnitRef<'_>, FilterError> {
        let view = ElasticUnitRef::open_unverified(bytes)?;
        format::verify_checksum(bytes)?;
        Ok(view)
    }
}

impl<'a> ElasticUnitRef<'a> {
    /// Like [`ElasticUnit::open_ref`] without verifying the checksum: O(1), for bytes that were
    /// verified before. On damaged bytes a probe may answer wrongly; neither this nor a probe
    /// panics.
    ///
    /// # Errors
    /// As [`ElasticUnit::open`], except [`FilterError::Checksum`].
    pub fn open_unverified(bytes: &'a [u8]) -> Result<Self, FilterError> {
        let envelope = Envelope::read(bytes)?;
        if envelope.kind != FilterKind::ElasticUnit {
            return Err(FilterError::WrongKind(envelope.kind));
        }
        let (Head { salt, keys, params: [place, how] }, words) = (envelope.head, envelope.words());
        let (index, units) = (place & 15, (place >> 4) + 1);
        if index >= units {
            return Err(FilterError::Corrupt("unit number"));
        }
        let (_, scheme, layout) = *HOW
            .iter()
            .find(|(code, ..)| *code == how >> 5)
            .ok_or(FilterError::Corrupt("scheme and layout"))?;
        let shape =
            Shape { salt, keys, words: words.count() as u64, units, probes: how & 31, scheme, layout };
        shape.check()?;
        Ok(Self { shape, index, words, start: 0 })
    }
}

impl<W: Words> ElasticUnit<W> {
    /// Word `at` of the payload; 0 beyond the end.
    pub(super) fn payload_word(&self, at: usize) -> u64 {
        self.words.word(self.start + at)
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns whether all bits of a key are set, for the standard layout. Stops at the first clear
    /// bit: each may be a cache miss. `shape` is that of the unit; a caller probing many units
    /// passes one for all.
    #[inline(always)]
    pub(super) fn holds_anywhere(&self, shape: &Shape, sequence: Sequence) -> bool {
        let mut term = shape.first_term(self.index, sequence);
        for _ in 0..shape.probes {
            let (word, bit) = split(reduce(term, shape.words * 64));
            if self.words.word_within(self.start + word) & bit == 0 {
                return false;
            }
            term = term.wrapping_add(sequence.step);
        }
        true
    }

    /// The same for the blocked layout. Tests every bit: a branch per probe costs more in
    /// mispredictions than it saves.
    #[inline(always)]
    pub(super) fn holds_in_line(&self, shape: &Shape, sequence: Sequence) -> bool {
        let (line, low) = shape.line(self.index, sequence);
        let start = self.start + line * LINE_WORDS;
        let mut all = 1;
        for i in 0..usize::from(shape.probes) {
            let at = position(low, i);
            all &= self.words.word_within(start + at / 64) >> (at % 64);
        }
        all & 1 == 1
    }

    /// The same for the interleaved layout.
    #[inline(always)]
    pub(super) fn holds_in_block(&self, shape: &Shape, sequence: Sequence) -> bool {
        let (start, low) = (self.start + shape.block(sequence), low(self.index, sequence));
        let mut all = 1;
        for i in 0..usize::from(shape.probes) {
            let at = position_in_block(low, i);
            all &= self.words.word_within(start + at / 64) >> (at % 64);
        }
        all & 1 == 1
    }

    pub(super) fn holds_independent(&self, digests: &IndependentDigests) -> bool {
        self.shape
            .independent(self.index, digests)
            .all(|(word, bit)| self.words.word_within(self.start + word) & bit != 0)
    }

    #[inline]
    pub(super) fn prefetch_for(&self, sequence: Sequence) {
        match self.shape.layout {
            ElasticLayout::Standard => {}
            ElasticLayout::Blocked => {
                let (line, _) = self.shape.line(self.index, sequence);
                self.words.prefetch(self.start + line * LINE_WORDS);
            }
            ElasticLayout::Interleaved => self.words.prefetch(self.start + self.shape.block(sequence)),
        }
    }

    /// Returns whether the run may hold the key, according to this unit. For several units of a
    /// group, [`ElasticSet::contains`](crate::ElasticSet::contains) remixes the digest only once. A
    /// unit of scheme [`BloomScheme::Independent`] cannot answer from one digest and returns
    /// `true`.
    #[inline]
    pub fn contains(&self, digest: Digest) -> bool {
        let (shape, sequence) = (&self.shape, self.shape.sequence(digest));
        match (shape.scheme, shape.layout) {
            (BloomScheme::Independent, _) => true,
            (_, ElasticLayout::Standard) => self.holds_anywhere(shape, sequence),
            (_, ElasticLayout::Blocked) => self.holds_in_line(shape, sequence),
            (_, ElasticLayout::Interleaved) => self.holds_in_block(shape, sequence),
        }
    }

    /// Number of the unit in its group, from 0.
    pub fn index(&self) -> u32 {
        self.index.into()
    }

    /// Units in the group, at most [`MAX_ELASTIC_UNITS`](crate::MAX_ELASTIC_UNITS).
    pub fn group_units(&self) -> u32 {
        self.shape.units.into()
    }

    /// Returns the salt of the group, which identifies it.
    pub fn salt(&self) -> u64 {
        self.shape.salt
    }

    /// How probes are derived.
    pub fn scheme(&self) -> BloomScheme {
        self.shape.scheme
    }

    /// Where the bits are.
    pub fn layout(&self) -> ElasticLayout {
        self.shape.layout
    }

    /// Returns the number of bits set and tested per key.
    pub fn probes(&self) -> u32 {
        self.shape.probes.into()
    }

    /// Keys the group was built over.
    pub fn keys(&self) -> u64 {
        self.shape.keys
    }

    /// Bits this unit spends per key, rounding included; infinite for no keys.
    pub fn bits_per_key(&self) -> f64 {
        (self.shape.words * 64) as f64 / self.shape.keys as f64
    }

    /// Returns the theoretical false-positive rate of this unit alone; 0 for no keys.
    pub fn expected_rate(&self) -> f64 {
        let Shape { keys, words, layout, .. } = self.shape;
        match layout {
            _ if keys == 0 => 0.0,
            ElasticLayout::Standard => theory::bloom_rate(self.bits_per_key(), self.probes()),
            ElasticLayout::Blocked => {
                theory::blocked_bloom_rate_of(keys, words / LINE_WORDS as u64, self.probes())
            }
            ElasticLayout::Interleaved => theory::interleaved_rates(self.bits_per_key(), self.probes(), 1)[1],
        }
    }

    /// Returns the bytes held in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.words.count() * 8
    }

    /// Serializes the unit.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_to(&mut out);
        out
    }

    /// Returns the number of bytes [`ElasticUnit::write_to`] appends.
    pub fn encoded_len(&self) -> usize {
        format::TRAILER_LEN + self.shape.words as usize * 8
    }

    /// Appends the unit's bytes to `out`. To probe a blocked one in place later, start it at a
    /// multiple of 64.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_len());
        let Shape { salt, keys, words, units, probes, scheme, layout } = self.shape;
        let place = self.index | (units - 1) << 4;
        let code = HOW.iter().find(|known| (known.1, known.2) == (scheme, layout));
        let how = probes | code.expect("shapes of other combinations are rejected").0 << 5;
        let head = Head { salt, keys, params: [place, how] };
        let payload = (self.start..self.start + words as usize).map(|at| self.words.word(at));
        format::write(FilterKind::ElasticUnit, head, payload, words, out);
    }
}

impl<W: Words> FilterInfo for ElasticUnit<W> {
    fn kind(&self) -> FilterKind {
        FilterKind::ElasticUnit
    }

    fn keys(&self) -> u64 {
        ElasticUnit::keys(self)
    }

    fn bits_per_key(&self) -> f64 {
        ElasticUnit::bits_per_key(self)
    }

    fn memory_bytes(&self) -> usize {
        ElasticUnit::memory_bytes(self)
    }
}

impl<W: Words> fmt::Debug for ElasticUnit<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElasticUnit")
            .field("index", &self.index)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}
