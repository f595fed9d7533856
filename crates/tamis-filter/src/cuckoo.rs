//! The cuckoo filter: B. Fan, D. G. Andersen, M. Kaminsky, M. D. Mitzenmacher, "Cuckoo Filter:
//! Practically Better Than Bloom" (CoNEXT 2014), with buckets of four.
//!
//! A key is a fingerprint that lies in one of two buckets, and the second bucket follows from the
//! first and the fingerprint alone, so that fingerprints can move while the filter is built. A
//! probe reads two places where [`BinaryFuse`](crate::BinaryFuse) reads three, but it compares
//! against eight fingerprints, which therefore have to be three bits wider for the same rate.
//!
//! # Invariants
//! * Fingerprints have 2 to 32 bits and are not zero: zero is a free slot.
//! * The table has as many buckets as fit into the payload, not only a power of two as in the
//!   paper: the other bucket of `i` is `c - i` modulo the number of buckets, `c` being a hash of
//!   the fingerprint. This mapping is its own inverse.
//! * Fingerprints are the widest that leave an expected load of at most 0.95; the number of buckets
//!   is then the largest that fits.
//! * Every key has been placed. There is no stash, and no "full" state that accepts everything.
//! * A fingerprint is stored once per pair of buckets: nothing is ever deleted from the filter, so
//!   a second key with the same fingerprint and pair is already covered. (The paper stores it
//!   again, which makes narrow fingerprints overflow.)
//!
//! # Threads
//! Immutable after building. Cloning shares the words.

use std::fmt;

use crate::bits;
use crate::bloom::{reduce, units_for};
use crate::digest::{Digest, SpreadSalt};
use crate::error::FilterError;
use crate::fingerprints::{MAX_KEYS, MAX_WIDTH, field, hash, salt_of};
use crate::format::{FilterKind, Head, WordFilter};
use crate::point::distinct;
use crate::words::{Owned, Words};

/// Slots in a bucket.
const BUCKET: u32 = 4;

/// Narrowest fingerprint: one bit would allow only one nonzero value.
const MIN_WIDTH: u32 = 2;

/// Maximum expected load. At 0.98 a table of buckets of four can no longer be filled.
const MAX_LOAD: f64 = 0.95;

/// Moves before an attempt is given up. At [`MAX_LOAD`] even a few hundred are rare.
const MAX_MOVES: u32 = 5000;

/// Salts tried at each width. Only tables of very few buckets need more than one.
const ATTEMPTS: u64 = 16;

/// Widths tried, each one bit narrower with more buckets in the same space.
const WIDTHS: u32 = 4;

/// A cuckoo filter over a run's digests. Cloning shares the words.
#[derive(Clone, Copy)]
pub struct Cuckoo<W: Words = Owned> {
    head: Head,
    spread: SpreadSalt,
    shape: Shape,
    words: W,
}

/// Width of the fingerprints, number of buckets, and what follows from them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    width: u32,
    buckets: u64,
    /// Number of possible fingerprints.
    values: u64,
    /// Fields compared at a time: a bucket, or half of one if a bucket has more than 64 bits.
    lanes: u32,
    /// A one in each of the fields that are compared at a time.
    ones: u64,
}

impl Shape {
    /// The largest table that fits into `units` words.
    fn new(width: u32, units: u64) -> Self {
        let lanes = if width * BUCKET <= 64 { BUCKET } else { BUCKET / 2 };
        Self {
            width,
            buckets: units * 64 / u64::from(BUCKET * width),
            values: bits::mask(width),
            lanes,
            ones: (0..lanes).fold(0, |ones, lane| ones | 1 << (lane * width)),
        }
    }

    fn units(&self) -> u64 {
        bits::words_for(self.buckets * u64::from(BUCKET * self.width))
    }

    /// Returns the odds that two hashes share their fingerprint and their pair of buckets: there
    /// are `buckets / 2` pairs for each fingerprint, and one pair if there is one bucket.
    fn collision(&self) -> f64 {
        (2.0 / self.buckets as f64).min(1.0) / self.values as f64
    }

    /// Returns the odds that one of `keys` hashes collides with another one.
    fn any_collision(&self, keys: u64) -> f64 {
        -(keys as f64 * (-self.collision()).ln_1p()).exp_m1()
    }

    /// Returns the share of the slots that `keys` keys will take. Colliding keys share a slot,
    /// which matters for narrow fingerprints; infinite without slots.
    fn load(&self, keys: u64) -> f64 {
        if self.buckets == 0 {
            return f64::INFINITY;
        }
        self.any_collision(keys) / self.collision() / (self.buckets * u64::from(BUCKET)) as f64
    }

    /// Returns the fingerprint of a hash, and the two buckets that may hold it.
    #[inline(always)]
    fn locate(&self, hash: u64, spread: SpreadSalt) -> (u64, [u64; 2]) {
        // The top bits choose the bucket, the low half the fingerprint.
        let fingerprint = 1 + (((hash & bits::mask(32)) * self.values) >> 32);
        let first = reduce(hash, self.buckets);
        (fingerprint, [first, self.other(first, fingerprint, spread)])
    }

    /// Returns the other bucket of a fingerprint in bucket `bucket`; it may be the same one.
    #[inline(always)]
    fn other(&self, bucket: u64, fingerprint: u64, spread: SpreadSalt) -> u64 {
        let sum = reduce(self::hash(Digest::from_u64(fingerprint), spread), self.buckets);
        if sum >= bucket { sum - bucket } else { sum + self.buckets - bucket }
    }

    /// Returns whether a bucket holds a fingerprint.
    #[inline(always)]
    fn holds(&self, word: impl Fn(usize) -> u64, bucket: u64, fingerprint: u64) -> bool {
        let at = bucket * u64::from(BUCKET * self.width);
        let bits = self.lanes * self.width;
        let first = self.any_equal(field(&word, at, bits), fingerprint);
        if self.lanes == BUCKET {
            return first;
        }
        first | self.any_equal(field(&word, at + u64::from(bits), bits), fingerprint)
    }

    /// Returns whether one of the lowest [`Shape::lanes`] fields equals `fingerprint`, whatever is
    /// above them: after an exclusive or, whether one is zero. Subtracting one from every field
    /// borrows from the top bit of a zero field; a field above it may then wrongly look like zero,
    /// too, but the answer is already right.
    #[inline(always)]
    fn any_equal(&self, fields: u64, fingerprint: u64) -> bool {
        let diff = fields ^ (fingerprint * self.ones);
        diff.wrapping_sub(self.ones) & !diff & (self.ones << (self.width - 1)) != 0
    }
}

impl Cuckoo {
    /// Builds a filter of all digests, in any order; duplicates count once. Sorts the digests
    /// unless they are already in ascending order, then takes expected linear time and 16 bytes of
    /// temporary memory per bucket.
    ///
    /// # Errors
    /// [`FilterError::BitsPerKey`] for values outside `(0, 64]`, [`FilterError::TooLarge`] beyond
    /// 2^31 keys, [`FilterError::Construction`] if no salt and no width lets every key be placed,
    /// which has not been observed.
    pub fn build(digests: &[Digest], bits_per_key: f64, salt: u64) -> Result<Self, FilterError> {
        let digests = distinct(digests);
        let keys = digests.len() as u64;
        let units = units_for(keys, bits_per_key, 64.0)?;
        if keys > MAX_KEYS {
            return Err(FilterError::TooLarge { keys });
        }
        let fits = |&width: &u32| Shape::new(width, units).load(keys) <= MAX_LOAD;
        // The narrowest always fit: there are fewer distinct fingerprints than a bucket has slots.
        let widest = (MIN_WIDTH..=MAX_WIDTH).rev().find(fits).unwrap_or(MIN_WIDTH);
        for width in (MIN_WIDTH..=widest).rev().take(WIDTHS as usize) {
            let shape = Shape::new(width, units);
            for attempt in 0..ATTEMPTS {
                let salt = salt_of(salt, attempt);
                if let Some(table) = place(&digests, shape, salt) {
                    let head = Head { salt, keys, params: [width as u8, 0] };
                    return Self::from_parts(head, pack(&table, shape));
                }
            }
        }
        Err(FilterError::Construction { keys })
    }
}

/// A bucket under construction; zeros are free, and come last.
type Bucket = [u32; BUCKET as usize];

/// Places a fingerprint for every digest, or gives up.
fn place(digests: &[Digest], shape: Shape, salt: u64) -> Option<Vec<Bucket>> {
    let spread = SpreadSalt::new(salt);
    let mut table = vec![Bucket::default(); shape.buckets as usize];
    let mut random = salt;
    for &digest in digests {
        let (fingerprint, [first, second]) = shape.locate(hash(digest, spread), spread);
        let (mut fingerprint, buckets) = (fingerprint as u32, [first as usize, second as usize]);
        if buckets.iter().any(|&bucket| table[bucket].contains(&fingerprint)) {
            continue;
        }
        // Choose the emptier of the two, which delays the moves.
        let free = |table: &[Bucket], bucket: usize| table[bucket].iter().filter(|slot| **slot == 0).count();
        let mut bucket = buckets[usize::from(free(&table, buckets[1]) > free(&table, buckets[0]))];
        let mut moves = 0;
        loop {
            if let Some(slot) = table[bucket].iter_mut().find(|slot| **slot == 0) {
                *slot = fingerprint;
                break;
            }
            if moves == MAX_MOVES {
                return None;
            }
            moves += 1;
            // A Weyl sequence, mixed: the same walk on every machine.
            random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let victim = Digest::from_u64(random).remix(0) >> 62;
            std::mem::swap(&mut fingerprint, &mut table[bucket][victim as usize]);
            bucket = shape.other(bucket as u64, u64::from(fingerprint), spread) as usize;
        }
    }
    Some(table)
}

fn pack(table: &[Bucket], shape: Shape) -> Owned {
    let mut words: Owned = std::iter::repeat_n(0, shape.units() as usize).collect();
    if let Some(words) = std::sync::Arc::get_mut(&mut words) {
        let slots = table.iter().flatten();
        for (&fingerprint, at) in slots.zip((0u64..).step_by(shape.width as usize)) {
            bits::write(words, at, shape.width, u64::from(fingerprint));
        }
    }
    words
}

impl<W: Words> WordFilter<W> for Cuckoo<W> {
    const KIND: FilterKind = FilterKind::Cuckoo;

    fn from_parts(head: Head, words: W) -> Result<Self, FilterError> {
        let [width, second] = head.params;
        let width = u32::from(width);
        if !(MIN_WIDTH..=MAX_WIDTH).contains(&width) {
            return Err(FilterError::Corrupt("fingerprint width"));
        }
        if second != 0 {
            return Err(FilterError::Corrupt("second parameter"));
        }
        let shape = Shape::new(width, words.count() as u64);
        if shape.buckets == 0 || shape.units() != words.count() as u64 {
            return Err(FilterError::Corrupt("size"));
        }
        Ok(Self { head, spread: SpreadSalt::new(head.salt), shape, words })
    }

    fn head(&self) -> Head {
        self.head
    }

    fn words(&self) -> &W {
        &self.words
    }
}

impl<W: Words> Cuckoo<W> {
    /// Returns whether the run may hold the key. Two cache misses, which overlap.
    #[inline]
    pub fn contains(&self, digest: Digest) -> bool {
        let shape = self.shape;
        let (fingerprint, [a, b]) = shape.locate(hash(digest, self.spread), self.spread);
        // `from_parts` checked that the words hold all buckets.
        let word = |at| self.words.word_within(at);
        // Both are tested regardless of the first result: a branch on it would be mispredicted.
        shape.holds(word, a, fingerprint) | shape.holds(word, b, fingerprint)
    }

    /// Prefetches the two lines that [`Cuckoo::contains`] will read.
    #[inline]
    pub fn prefetch(&self, digest: Digest) {
        let (_, buckets) = self.shape.locate(hash(digest, self.spread), self.spread);
        for bucket in buckets {
            self.words.prefetch((bucket * u64::from(BUCKET * self.shape.width) / 64) as usize);
        }
    }

    /// Returns the number of distinct keys the filter was built over.
    pub fn keys(&self) -> u64 {
        self.head.keys
    }

    /// Returns the bits in a fingerprint: 2 to 32.
    pub fn fingerprint_bits(&self) -> u32 {
        self.shape.width
    }

    /// Returns the bits used per key, rounding included; infinite for no keys.
    pub fn bits_per_key(&self) -> f64 {
        (self.words.count() * 64) as f64 / self.head.keys as f64
    }

    /// Returns the theoretical false-positive rate; 0 for no keys.
    ///
    /// An absent key is a false positive exactly if some key has its fingerprint and its pair of
    /// buckets. There are `m/2` pairs of `m` buckets for each of `2^f - 1` fingerprints, hence `1 -
    /// (1 - 2/(m (2^f - 1)))^keys`. In a lightly loaded table with many fingerprint values that is
    /// the paper's `8 * load / 2^f`.
    pub fn expected_rate(&self) -> f64 {
        self.shape.any_collision(self.head.keys)
    }

    /// Returns the bytes held in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.words.count() * 8
    }

    /// Copies the filter into owned memory.
    pub fn to_owned(&self) -> Cuckoo {
        Cuckoo { head: self.head, spread: self.spread, shape: self.shape, words: self.words.to_owned_words() }
    }
}

impl<W: Words> fmt::Debug for Cuckoo<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuckoo").field("head", &self.head).field("shape", &self.shape).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn load_is_the_share_of_slots_in_use() {
        let digests: Vec<_> = (0..20_000u64).map(|i| Digest::of(&i.to_le_bytes())).collect();
        for (width, units) in [(3, 1000), (5, 1600), (6, 1900), (8, 2700), (12, 4100)] {
            let shape = Shape::new(width, units);
            let table = place(&digests, shape, 9).unwrap();
            let used = table.iter().flatten().filter(|slot| **slot != 0).count() as f64;
            let expected = shape.load(20_000) * (shape.buckets * 4) as f64;
            assert!((used / expected - 1.0).abs() < 0.02, "{width}: {used} used, {expected} expected");
        }
    }

    #[test]
    fn full_tables_are_rejected() {
        // One bucket takes four fingerprints, so at most four keys with distinct ones.
        let digests: Vec<_> = (0..5).map(Digest::from_u64).collect();
        let shape = Shape { buckets: 1, ..Shape::new(32, 2) };
        assert!(place(&digests[..4], shape, 0).is_some());
        assert!(place(&digests, shape, 0).is_none());
    }

    #[test]
    fn every_load_up_to_the_limit_can_be_placed() {
        for keys in (1..60).chain([100, 1000, 30_000]) {
            let digests: Vec<_> = (0..keys).map(|i: u64| Digest::of(&i.to_le_bytes())).collect();
            for bits in [2.1, 4.22, 6.01, 8.43, 9.48, 13.7, 16.9, 27.4] {
                let filter = Cuckoo::build(&digests, bits, keys).unwrap();
                assert!(digests.iter().all(|&digest| filter.contains(digest)), "{keys} {bits}");
                let least = if keys < 1000 { 0.0 } else { bits * 0.95 - 1.0 };
                assert!(f64::from(filter.fingerprint_bits()) >= least, "{keys} {bits}: {filter:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn the_other_bucket_of_the_other_bucket_is_the_first(
            buckets in prop_oneof![1u64..20, any::<u32>().prop_map(|b| u64::from(b) + 1), 1u64..1 << 36],
            at: u64, fingerprint in 1u64..1 << 32, salt: u64,
        ) {
            let (spread, first) = (SpreadSalt::new(salt), at % buckets);
            let shape = Shape { buckets, ..Shape::new(32, 2) };
            let second = shape.other(first, fingerprint, spread);
            prop_assert!(second < buckets);
            prop_assert_eq!(shape.other(second, fingerprint, spread), first);
        }

        #[test]
        fn buckets_hold_exactly_their_four_fields(
            words in prop::collection::vec(prop_oneof![any::<u64>(), Just(0), Just(u64::MAX), Just(1)], 4..40),
            width in MIN_WIDTH..=MAX_WIDTH, near: bool, other: u64,
        ) {
            let words: Owned = words.into();
            let shape = Shape::new(width, words.len() as u64);
            for bucket in 0..shape.buckets {
                let at = |slot: u64| (bucket * 4 + slot) * u64::from(width);
                let fields: [u64; 4] = std::array::from_fn(|slot| bits::read(&words, at(slot as u64), width));
                let flip = if near { 1 << (other % u64::from(width)) } else { 0 };
                for fingerprint in fields.map(|field| field ^ flip).into_iter().chain([1, other & shape.values]) {
                    let held = shape.holds(|at| words[at], bucket, fingerprint);
                    prop_assert_eq!(held, fields.contains(&fingerprint), "{} of {:?}", fingerprint, fields);
                }
            }
        }
    }
}
