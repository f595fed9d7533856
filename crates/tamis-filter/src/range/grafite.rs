//! Grafite: a range filter whose rate no choice of keys and queries can degrade (M. Costa, P.
//! Ferragina, G. Vinciguerra, "Grafite: Taming Adversarial Queries with Optimal Range Filters",
//! SIGMOD 2024).
//!
//! Integers are cut into blocks of `r`; a block as a whole is rotated by a hash of its number:
//! `h(x) = (q(x / r) + x) mod r`. Neighbours stay neighbours, so a range maps to at most a few
//! intervals of hashes, and the sorted hashes of the keys are searched for one within them. For a
//! key of another block `h` equals a given hash with probability `1 / r`, so an empty range of `l`
//! integers is answered wrongly with probability at most `l * n / r`, about `l / 2^(b - 2)` at `b`
//! bits per key, whatever the keys and the queries, provided that the salt is secret and that
//! queries do not depend on earlier answers.
//!
//! # Differences from the paper
//! * `q` is a multiply-shift with 128-bit coefficients (M. Dietzfelbinger, STACS 1996), pairwise
//!   independent on all 64-bit block numbers, instead of arithmetic modulo a prime: two
//!   multiplications and no division.
//! * `r` is not a power of two times `n` but the largest universe whose coding fits the requested
//!   bits.
//! * If that universe reaches 2^64 the hash is the identity, and the filter is exact.
//!
//! # Invariants
//! * Hashes lie below `r = buckets << width`, the universe of the [`Sequence`].
//! * A query that spans `r` integers or more is `true` if there is any key, because it covers every
//!   hash.
//!
//! # Threads
//! Immutable after building; shared freely.

use crate::bloom::{MAX_UNITS, units_for};
use crate::digest::Digest;
use crate::elias_fano::{Directory, Sequence};
use crate::error::FilterError;
use crate::format::{FilterInfo, FilterKind, Head, WordFilter};
use crate::range::{IntegerProbe, Next};
use crate::words::{Owned, Words};

/// Number of words before the directory: buckets, hashes.
const HEADER: u64 = 2;

/// A filter over integers by a locality-preserving hash. Cloning shares its memory (with the
/// default words).
///
/// Best where queries lie close to keys, which defeats every filter that learns where keys are or
/// stores their prefixes; see [`Snarf`](crate::Snarf) for other queries.
#[derive(Clone, Debug)]
pub struct Grafite<W: Words = Owned> {
    head: Head,
    words: W,
    hashes: u64,
    rotation: Rotation,
    sequence: Sequence,
    directory: Directory,
}

/// The hash function.
#[derive(Clone, Copy, Debug)]
struct Rotation {
    /// `r`; 0 stands for 2^64.
    modulus: u64,
    /// `2^64 / r` rounded down, or one less.
    reciprocal: u64,
    factor: u128,
    summand: u128,
}

impl Rotation {
    fn new(modulus: u64, salt: u64) -> Self {
        let word = |i| Digest::from_u64(i).remix(salt);
        let wide = |i| u128::from(word(i)) << 64 | u128::from(word(i + 1));
        let reciprocal = u64::MAX.checked_div(modulus).unwrap_or(0);
        Self { modulus, reciprocal, factor: wide(0), summand: wide(2) }
    }

    /// Returns the number of the block of `key`, and its offset in it; `modulus` is not 0.
    #[inline(always)]
    fn split(&self, key: u64) -> (u64, u64) {
        // The product is less than one below the true quotient, so at most one is missing.
        let block = ((u128::from(key) * u128::from(self.reciprocal)) >> 64) as u64;
        let offset = key - block * self.modulus;
        if offset >= self.modulus { (block + 1, offset - self.modulus) } else { (block, offset) }
    }

    /// Returns the rotation of a block: a number below `modulus`.
    #[inline(always)]
    fn shift(&self, block: u64) -> u64 {
        let hash = (self.factor.wrapping_mul(u128::from(block)).wrapping_add(self.summand) >> 64) as u64;
        ((u128::from(hash) * u128::from(self.modulus)) >> 64) as u64
    }

    /// Returns `shift + offset` modulo `modulus`; both are below it.
    #[inline(always)]
    fn rotate(&self, shift: u64, offset: u64) -> u64 {
        let room = self.modulus - shift;
        if offset >= room { offset - room } else { offset + shift }
    }

    #[inline]
    fn hash(&self, key: u64) -> u64 {
        if self.modulus == 0 {
            return key;
        }
        let (block, offset) = self.split(key);
        self.rotate(self.shift(block), offset)
    }
}

impl Grafite {
    /// Builds a filter over `keys`, in any order; duplicates are allowed. It takes `bits_per_key`,
    /// plus up to three words, and less where everything is known exactly. Below 3 bits per key it
    /// filters hardly anything. Takes the time to sort the keys twice, and 16 bytes per key.
    ///
    /// # Errors
    /// [`FilterError::BitsPerKey`] and [`FilterError::TooLarge`] for invalid sizes.
    pub fn build(keys: &[u64], bits_per_key: f64, salt: u64) -> Result<Self, FilterError> {
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        let (head, words) = Self::encode(&sorted, bits_per_key, salt)?;
        Self::from_parts(head, words.into())
    }

    /// Returns the parameters and words of a filter over `keys`, which ascend (and may repeat).
    pub(crate) fn encode(
        keys: &[u64],
        bits_per_key: f64,
        salt: u64,
    ) -> Result<(Head, Vec<u64>), FilterError> {
        let all = keys.len() as u64;
        units_for(all, bits_per_key, 64.0)?;
        let bits = (all as f64 * bits_per_key).floor();
        let distinct = keys.chunk_by(|a, b| a == b).count() as u64;
        // With few bits many hashes are equal, which leaves room for a larger universe. Sequential
        // keys collide less than random keys: if they then do not fit, the universe is sized for
        // all.
        let (mut buckets, mut width) = crowded_universe(distinct, bits);
        let mut hashes = hashes_of(keys, Rotation::new(modulus(buckets, width), salt));
        if !Layout::new(hashes.len() as u64, buckets, width).fits(bits) {
            (buckets, width) = universe(distinct, bits);
            hashes = hashes_of(keys, Rotation::new(modulus(buckets, width), salt));
        }
        let count = hashes.len() as u64;
        let layout = Layout::new(count, buckets, width);
        if layout.words > u128::from(MAX_UNITS) {
            return Err(FilterError::TooLarge { keys: all });
        }
        let mut words = vec![0; layout.words as usize];
        words[..HEADER as usize].copy_from_slice(&[buckets, count]);
        layout.sequence.encode(&mut words, hashes);
        layout.directory.fill(&mut words, &layout.sequence);
        Ok((Head { salt, keys: all, params: [width as u8, 0] }, words))
    }
}

/// Returns the hashes of `keys`, ascending and distinct.
fn hashes_of(keys: &[u64], rotation: Rotation) -> Vec<u64> {
    let mut hashes: Vec<u64> = keys.iter().map(|&key| rotation.hash(key)).collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

/// Returns buckets and width of the largest universe in which `count` hashes can be coded in `bits`
/// bits, directory included.
fn universe(count: u64, bits: f64) -> (u64, u32) {
    let (per_bit, per_bucket) = Directory::SHARES;
    let values = count as f64;
    // The directory's three parts are whole words; a small filter has none.
    let bits = if 3 * count > Directory::LEAST { bits - 192.0 } else { bits };
    let of_width = |width: u32| {
        let spare = bits - values * (f64::from(width) + 1.0 + per_bit);
        // Without low bits equal hashes are stored once, so there are at most as many as buckets.
        let least = if width == 0 { bits / 2.0 } else { 0.0 };
        let buckets = spare.max(least) / (1.0 + per_bit + per_bucket);
        (buckets as u128).min(1 << (64 - width)) << width
    };
    // Among equal universes the last has the widest low bits.
    let (universe, width) = (0..64).map(|width| (of_width(width), width)).max().unwrap_or_default();
    if universe == 0 {
        return (1, 0);
    }
    if universe == 1 << 64 {
        // The smallest coding has one or two buckets per value.
        let width = (u64::MAX / count.max(1)).ilog2();
        return ((1u128 << (64 - width)) as u64, width);
    }
    ((universe >> width) as u64, width)
}

/// Like [`universe`], for the number of hashes expected to be distinct if they are random.
fn crowded_universe(keys: u64, bits: f64) -> (u64, u32) {
    let (all, mut count) = (keys as f64, keys);
    for _ in 0..4 {
        let (buckets, width) = universe(count, bits);
        let places = buckets as f64 * f64::from(width).exp2();
        // At least three standard deviations above the mean.
        let distinct = places * -(-all / places).exp_m1() + 3.0 * all.sqrt();
        count = (distinct as u64).min(keys);
    }
    universe(count, bits)
}

/// Returns `buckets << width`, at most 2^64, which is represented as 0.
fn modulus(buckets: u64, width: u32) -> u64 {
    (u128::from(buckets) << width) as u64
}

/// The layout of the words.
struct Layout {
    sequence: Sequence,
    directory: Directory,
    /// Total number of words.
    words: u128,
}

impl Layout {
    /// Requires `count + buckets` below 2^63.
    fn new(count: u64, buckets: u64, width: u32) -> Self {
        let directory = Directory::new(HEADER, count, buckets);
        let at = directory.end() * 64;
        let bits = Sequence::bits_for(count, buckets, width);
        let sequence = Sequence::new(at, count, buckets, width);
        Self { sequence, directory, words: u128::from(directory.end()) + bits.div_ceil(64) }
    }

    /// Returns whether everything except the header and the padding of the last word is within
    /// `bits`.
    fn fits(&self, bits: f64) -> bool {
        self.words as f64 * 64.0 <= bits + (HEADER as f64 + 1.0) * 64.0
    }
}

impl<W: Words> Grafite<W> {
    /// Returns whether a hash lies in `first..=last`.
    #[inline]
    fn any(&self, first: u64, last: u64) -> bool {
        let start_of = |bucket| self.directory.start_of(&self.words, &self.sequence, bucket);
        self.sequence.any_within(&self.words, first, last, start_of)
    }

    /// Returns whether a key may lie at offsets `first..=last` of a block that is rotated by
    /// `shift`.
    #[inline]
    fn any_in_block(&self, shift: u64, first: u64, last: u64) -> bool {
        let (from, to) = (self.rotation.rotate(shift, first), self.rotation.rotate(shift, last));
        if from <= to {
            self.any(from, to)
        } else {
            self.any(from, self.rotation.modulus - 1) || self.any(0, to)
        }
    }

    /// Returns `r`, the size of the universe of hashes; `None` if the hash is the identity and the
    /// filter exact.
    pub fn modulus(&self) -> Option<u64> {
        (self.rotation.modulus != 0).then_some(self.rotation.modulus)
    }
}

impl<W: Words> WordFilter<W> for Grafite<W> {
    const KIND: FilterKind = FilterKind::Grafite;

    fn from_parts(head: Head, words: W) -> Result<Self, FilterError> {
        let (buckets, hashes) = (words.word(0), words.word(1));
        let [width, zero] = head.params;
        if width > 63 || zero != 0 {
            return Err(FilterError::Corrupt("grafite parameters"));
        }
        let bits = words.count() as u128 * 64;
        let sizes = u128::from(buckets) + u128::from(hashes);
        let width = u32::from(width);
        if buckets == 0 || sizes > bits || u128::from(buckets) << width > 1 << 64 {
            return Err(FilterError::Corrupt("grafite size"));
        }
        let Layout { sequence, directory, words: needed } = Layout::new(hashes, buckets, width);
        if needed > words.count() as u128 {
            return Err(FilterError::Corrupt("grafite size"));
        }
        let rotation = Rotation::new(modulus(buckets, width), head.salt);
        Ok(Self { head, words, hashes, rotation, sequence, directory })
    }

    fn head(&self) -> Head {
        self.head
    }

    fn words(&self) -> &W {
        &self.words
    }
}

impl<W: Words> IntegerProbe for Grafite<W> {
    #[inline]
    fn contains(&self, key: u64) -> bool {
        let hash = self.rotation.hash(key);
        self.hashes != 0 && self.any(hash, hash)
    }

    #[inline]
    fn contains_range(&self, first: u64, last: u64) -> bool {
        if first > last || self.hashes == 0 {
            return false;
        }
        let rotation = &self.rotation;
        if rotation.modulus == 0 {
            return self.any(first, last);
        }
        if last - first >= rotation.modulus - 1 {
            return true;
        }
        let ((block, from), (last_block, to)) = (rotation.split(first), rotation.split(last));
        let shift = rotation.shift(block);
        if block == last_block {
            return self.any_in_block(shift, from, to);
        }
        // Fewer than `modulus` integers: the blocks are neighbours.
        self.any_in_block(shift, from, rotation.modulus - 1)
            || self.any_in_block(rotation.shift(last_block), 0, to)
    }

    fn next(&self, _from: u64) -> Next<u64> {
        if self.hashes == 0 { Next::Nothing } else { Next::Unknown }
    }

    /// The probability that one of the stored hashes lies among those of the range. The paper
    /// bounds their mean number, `keys * hashes / r`, which is much higher for rates beyond a
    /// tenth.
    fn expected_rate(&self, keys: u64) -> Option<f64> {
        let Some(modulus) = self.modulus() else { return Some(0.0) };
        let (few, many) = (self.hashes.min(keys), self.hashes.max(keys));
        if few == 0 {
            return Some(0.0);
        }
        // Each of the few misses all of the many, which are distinct.
        let share = (many as f64 / modulus as f64).min(1.0);
        Some(-(few as f64 * (-share).ln_1p()).exp_m1())
    }
}

impl<W: Words> FilterInfo for Grafite<W> {
    fn kind(&self) -> FilterKind {
        FilterKind::Grafite
    }

    fn keys(&self) -> u64 {
        self.head.keys
    }

    fn bits_per_key(&self) -> f64 {
        self.words.count() as f64 * 64.0 / self.head.keys as f64
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.words.count() * 8
    }
}

#[cfg(test)]
mod tests;
