//! The standard Bloom filter, with the three ways of deriving *k* indices that the hash-sharing
//! paper compares.
//!
//! A key sets *k* bits anywhere in the filter. [`BloomScheme::Rotation`] and
//! [`BloomScheme::DoubleHashing`] derive all of them from one digest; [`BloomScheme::Independent`]
//! spends *k* hashes per key and is the baseline.
//!
//! # Invariants
//! * The payload is a whole number (at least 1) of 64-bit words; bit `i` is bit `i % 64` of word `i
//!   / 64`.
//! * Index `i` of a key is `(h + i*delta)` reduced to the number of bits by a widening
//!   multiplication, so the *top* bits decide; `h` is the remixed digest. Its rotation by half a
//!   word is what the paper calls bit rotation: the paper's formula shifts left 17 and right 15,
//!   which on 64 bits overlaps instead of rotating, so a true rotation is used here. Half a word,
//!   so that the top bits of `delta` are those bits of `h` that fast reduction ignores.
//! * No false negatives: building and probing go through the same iteration.
//!
//! # Threads
//! Immutable after `build`; shared freely.

use std::fmt;
use std::sync::Arc;

use crate::digest::{Digest, SpreadSalt};
use crate::error::FilterError;
use crate::theory;

/// How a standard Bloom filter derives its *k* indices. The numbers are part of the format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum BloomScheme {
    /// One digest; the step between indices is the digest rotated.
    Rotation = 1,
    /// One digest; the step between indices is a second, independent remix of it.
    DoubleHashing = 2,
    /// *k* digests of the key under *k* seeds.
    Independent = 3,
}

/// Salt difference between the two hashes of double hashing: any constant that callers do not use
/// as a difference between their own salts.
pub(crate) const SECOND_HASH: u64 = 0xa93f_99f2_e8a4_987f;

/// The digests of one key under seeds `0..k`, for [`BloomScheme::Independent`] only: a separate
/// type, so that it cannot be mistaken for the shared digest.
#[derive(Clone, Copy, Debug)]
pub struct IndependentDigests {
    digests: [Digest; theory::MAX_PROBES as usize],
    len: u8,
}

impl IndependentDigests {
    /// Hashes `key` `k` times (at most [`theory::MAX_PROBES`]; larger values are capped).
    pub fn of(key: &[u8], k: u32) -> Self {
        let len = k.min(theory::MAX_PROBES);
        let mut digests = [Digest::from_u64(0); theory::MAX_PROBES as usize];
        for (seed, digest) in digests.iter_mut().take(len as usize).enumerate() {
            *digest = Digest::seeded(key, seed as u64);
        }
        Self { digests, len: len as u8 }
    }

    /// The digests, seed 0 first.
    pub fn as_slice(&self) -> &[Digest] {
        &self.digests[..usize::from(self.len)]
    }
}

/// The parameters of a standard filter: everything but its bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BloomShape {
    pub(crate) salt: u64,
    /// The precomputed salt: saves two multiplications per probe.
    spread: SpreadSalt,
    pub(crate) keys: u64,
    pub(crate) words: u64,
    pub(crate) probes: u8,
    pub(crate) scheme: BloomScheme,
}

impl BloomShape {
    pub(crate) fn of(salt: u64, keys: u64, words: u64, probes: u8, scheme: BloomScheme) -> Self {
        Self { salt, spread: SpreadSalt::new(salt), keys, words, probes, scheme }
    }

    /// The shape for `keys` keys at `bits_per_key`, rounded up to whole words.
    fn new(keys: u64, bits_per_key: f64, scheme: BloomScheme, salt: u64) -> Result<Self, FilterError> {
        let words = units_for(keys, bits_per_key, 64.0)?;
        Ok(Self::of(salt, keys, words, theory::optimal_probes(bits_per_key) as u8, scheme))
    }

    fn bits(&self) -> u64 {
        self.words * 64
    }

    pub(crate) fn bits_per_key(&self) -> f64 {
        self.bits() as f64 / self.keys as f64
    }

    pub(crate) fn expected_rate(&self) -> f64 {
        if self.keys == 0 { 0.0 } else { theory::bloom_rate(self.bits_per_key(), u32::from(self.probes)) }
    }

    /// First hash and step of a one-digest scheme. The step is odd: a zero step would make the
    /// filter probe one bit.
    #[inline]
    fn start_and_step(&self, digest: Digest) -> (u64, u64) {
        let h = digest.mix(self.spread);
        let step = match self.scheme {
            BloomScheme::DoubleHashing => digest.remix(self.salt ^ SECOND_HASH),
            BloomScheme::Rotation | BloomScheme::Independent => h.rotate_left(32),
        };
        (h, step | 1)
    }

    /// Returns whether all bits of a one-digest key are set; `word(i)` reads word `i < words`.
    ///
    /// Four bits are tested together before the first branch. Whether a single bit is set for an
    /// absent key is a coin toss that no processor predicts; whether all four are is predictable.
    /// Their cache misses overlap, too.
    #[inline]
    fn contains(&self, digest: Digest, word: impl Fn(usize) -> u64) -> bool {
        if self.scheme == BloomScheme::Independent {
            return true; // one digest cannot rule out a key here
        }
        let (mut h, step) = self.start_and_step(digest);
        let bits = self.bits();
        let mut next = || {
            let index = reduce(h, bits);
            h = h.wrapping_add(step);
            word((index / 64) as usize) >> (index % 64)
        };
        let mut left = self.probes;
        while left >= 4 {
            if next() & next() & next() & next() & 1 == 0 {
                return false;
            }
            left -= 4;
        }
        let mut all = 1;
        for _ in 0..left {
            all &= next();
        }
        all & 1 == 1
    }

    fn contains_independent(
        &self,
        digests: &IndependentDigests,
        word: impl Fn(usize) -> u64,
    ) -> Result<bool, FilterError> {
        let digests = self.check_independent(digests)?;
        Ok(digests.iter().all(|d| bit(reduce(d.remix(self.salt), self.bits()), &word)))
    }

    /// Returns the digests the filter uses, if the scheme and their number fit.
    fn check_independent<'a>(&self, digests: &'a IndependentDigests) -> Result<&'a [Digest], FilterError> {
        if self.scheme != BloomScheme::Independent {
            return Err(FilterError::WrongScheme(self.scheme));
        }
        let (need, have) = (usize::from(self.probes), digests.as_slice().len());
        digests.as_slice().get(..need).ok_or(FilterError::TooFewDigests { need, have })
    }
}

/// Returns the units of `unit_bits` bits (words or lines, at least 1) that `keys` keys need, after
/// rejecting invalid sizes.
pub(crate) fn units_for(keys: u64, bits_per_key: f64, unit_bits: f64) -> Result<u64, FilterError> {
    if !(bits_per_key > 0.0 && bits_per_key <= 64.0) {
        return Err(FilterError::BitsPerKey(bits_per_key));
    }
    let units = (keys as f64 * bits_per_key / unit_bits).ceil();
    if units > MAX_UNITS as f64 {
        return Err(FilterError::TooLarge { keys });
    }
    Ok((units as u64).max(1))
}

/// Maximum number of words or lines in a filter. A line is chosen by the top bits of a hash and the
/// bits in it by the low 32, so beyond 2^32 lines the two would no longer be independent.
pub(crate) const MAX_UNITS: u64 = 1 << 32;

/// Maps a hash uniformly to `0..n` by its top bits.
#[inline]
pub(crate) fn reduce(hash: u64, n: u64) -> u64 {
    ((u128::from(hash) * u128::from(n)) >> 64) as u64
}

#[inline]
fn bit(index: u64, word: impl Fn(usize) -> u64) -> bool {
    word((index / 64) as usize) >> (index % 64) & 1 == 1
}

/// A standard Bloom filter over a run's digests. Cloning shares the bits.
#[derive(Clone)]
pub struct Bloom {
    words: Arc<[u64]>,
    shape: BloomShape,
}

impl Bloom {
    /// Builds a filter of `digests.len()` keys with `round(bits_per_key * ln 2)` probes per key.
    /// O(keys * probes) random writes.
    ///
    /// # Errors
    /// [`FilterError::BitsPerKey`] and [`FilterError::TooLarge`] for invalid sizes;
    /// [`FilterError::WrongScheme`] for [`BloomScheme::Independent`], which needs
    /// [`Bloom::build_independent`].
    pub fn build(
        digests: &[Digest],
        bits_per_key: f64,
        scheme: BloomScheme,
        salt: u64,
    ) -> Result<Self, FilterError> {
        if scheme == BloomScheme::Independent {
            return Err(FilterError::WrongScheme(scheme));
        }
        let shape = BloomShape::new(digests.len() as u64, bits_per_key, scheme, salt)?;
        Self::filled(shape, |words| {
            for &digest in digests {
                let (mut h, step) = shape.start_and_step(digest);
                for _ in 0..shape.probes {
                    set(words, reduce(h, shape.bits()));
                    h = h.wrapping_add(step);
                }
            }
            Ok(())
        })
    }

    /// Builds a filter of [`BloomScheme::Independent`] from the digests of each key, of which there
    /// must be at least [`theory::optimal_probes`]`(bits_per_key)` per key.
    ///
    /// # Errors
    /// Same as [`Bloom::build`], and [`FilterError::TooFewDigests`].
    pub fn build_independent(
        keys: impl ExactSizeIterator<Item = IndependentDigests>,
        bits_per_key: f64,
        salt: u64,
    ) -> Result<Self, FilterError> {
        let shape = BloomShape::new(keys.len() as u64, bits_per_key, BloomScheme::Independent, salt)?;
        Self::filled(shape, |words| {
            for key in keys {
                for digest in shape.check_independent(&key)? {
                    set(words, reduce(digest.remix(shape.salt), shape.bits()));
                }
            }
            Ok(())
        })
    }

    fn filled(
        shape: BloomShape,
        fill: impl FnOnce(&mut [u64]) -> Result<(), FilterError>,
    ) -> Result<Self, FilterError> {
        let mut words: Arc<[u64]> = std::iter::repeat_n(0, shape.words as usize).collect();
        if let Some(words) = Arc::get_mut(&mut words) {
            fill(words)?;
        }
        Ok(Self { words, shape })
    }

    /// Copies a payload of `shape.words` little-endian words.
    pub(crate) fn from_payload(shape: BloomShape, payload: &[[u8; 8]]) -> Self {
        Self { words: payload.iter().map(|word| u64::from_le_bytes(*word)).collect(), shape }
    }

    pub(crate) fn shape(&self) -> BloomShape {
        self.shape
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Returns whether the run may hold the key. Up to `probes` cache misses, in groups of four
    /// that overlap. A filter of scheme [`BloomScheme::Independent`] cannot answer from one digest
    /// and returns `true`.
    #[inline]
    pub fn contains(&self, digest: Digest) -> bool {
        self.shape.contains(digest, |i| self.words[i])
    }

    /// Same as [`Bloom::contains`] for [`BloomScheme::Independent`].
    ///
    /// # Errors
    /// [`FilterError::WrongScheme`] for another scheme, [`FilterError::TooFewDigests`].
    pub fn contains_independent(&self, digests: &IndependentDigests) -> Result<bool, FilterError> {
        self.shape.contains_independent(digests, |i| self.words[i])
    }

    /// How the indices are derived.
    pub fn scheme(&self) -> BloomScheme {
        self.shape.scheme
    }

    /// Returns the number of keys the filter was built over.
    pub fn keys(&self) -> u64 {
        self.shape.keys
    }

    /// Returns the number of bits set and tested per key.
    pub fn probes(&self) -> u32 {
        u32::from(self.shape.probes)
    }

    /// Returns the salt digests are remixed with.
    pub fn salt(&self) -> u64 {
        self.shape.salt
    }

    /// Returns the bits used per key, rounding included; infinite for no keys.
    pub fn bits_per_key(&self) -> f64 {
        self.shape.bits_per_key()
    }

    /// Returns the theoretical false-positive rate; 0 for no keys. It assumes independent probes in
    /// a large filter: with a few hundred keys or fewer, absent keys more often share start and
    /// step with a key. At 16 bits per key the rate is 1.2 times as high for 200 keys and three
    /// times as high for 20.
    pub fn expected_rate(&self) -> f64 {
        self.shape.expected_rate()
    }

    /// Returns the bytes held in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.words)
    }
}

fn set(words: &mut [u64], index: u64) {
    words[(index / 64) as usize] |= 1 << (index % 64);
}

impl fmt::Debug for Bloom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bloom").field("shape", &self.shape).finish_non_exhaustive()
    }
}

/// A standard Bloom filter probed in place over borrowed bytes. Needs no alignment.
#[derive(Clone, Copy)]
pub struct BloomRef<'a> {
    words: &'a [[u8; 8]],
    shape: BloomShape,
}

impl<'a> BloomRef<'a> {
    pub(crate) fn new(shape: BloomShape, words: &'a [[u8; 8]]) -> Self {
        Self { words, shape }
    }

    /// Same as [`Bloom::bits_per_key`].
    pub fn bits_per_key(&self) -> f64 {
        self.shape.bits_per_key()
    }

    /// Same as [`Bloom::expected_rate`].
    pub fn expected_rate(&self) -> f64 {
        self.shape.expected_rate()
    }

    /// Same as [`Bloom::contains`].
    #[inline]
    pub fn contains(&self, digest: Digest) -> bool {
        self.shape.contains(digest, |i| u64::from_le_bytes(self.words[i]))
    }

    /// Same as [`Bloom::contains_independent`].
    ///
    /// # Errors
    /// As [`Bloom::contains_independent`].
    pub fn contains_independent(&self, digests: &IndependentDigests) -> Result<bool, FilterError> {
        self.shape.contains_independent(digests, |i| u64::from_le_bytes(self.words[i]))
    }

    /// Copies the filter into owned memory.
    pub fn to_owned(&self) -> Bloom {
        Bloom::from_payload(self.shape, self.words)
    }
}

impl fmt::Debug for BloomRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BloomRef").field("shape", &self.shape).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_sizes_are_rejected() {
        for bits in [0.0, -1.0, 64.1, f64::NAN, f64::INFINITY] {
            assert!(matches!(
                Bloom::build(&[], bits, BloomScheme::Rotation, 0),
                Err(FilterError::BitsPerKey(_))
            ));
        }
        assert_eq!(units_for(u64::MAX, 1.0, 64.0), Err(FilterError::TooLarge { keys: u64::MAX }));
        assert_eq!(units_for(0, 10.0, 64.0), Ok(1));
    }

    #[test]
    fn an_empty_filter_holds_nothing() {
        let filter = Bloom::build(&[], 10.0, BloomScheme::Rotation, 3).unwrap();
        assert!((0..1000u64).all(|i| !filter.contains(Digest::from_u64(i))));
        assert_eq!(filter.expected_rate(), 0.0);
    }

    #[test]
    fn schemes_cannot_be_mixed_up() {
        let few = IndependentDigests::of(b"k", 3);
        let build = |d: IndependentDigests| Bloom::build_independent([d].into_iter(), 10.0, 0);
        assert_eq!(build(few).unwrap_err(), FilterError::TooFewDigests { need: 7, have: 3 });
        let key = IndependentDigests::of(b"k", 7);
        let filter = build(key).unwrap();
        assert_eq!(filter.contains_independent(&key), Ok(true));
        assert_eq!(filter.contains_independent(&IndependentDigests::of(b"other", 7)), Ok(false));
        assert!(filter.contains(Digest::of(b"other")), "one digest must not yield a false negative");
        let shared = Bloom::build(&[Digest::of(b"k")], 10.0, BloomScheme::Rotation, 0).unwrap();
        assert_eq!(shared.contains_independent(&key), Err(FilterError::WrongScheme(BloomScheme::Rotation)));
        assert!(Bloom::build(&[], 10.0, BloomScheme::Independent, 0).is_err());
    }
}
