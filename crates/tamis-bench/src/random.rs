//! Reproducible randomness: a generator, bijections on b-bit numbers, and permutations of `0..n`.
//!
//! Everything is a pure function of its seed, on every platform.

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
const ODD_A: u64 = 0xBF58_476D_1CE4_E5B9;
const ODD_B: u64 = 0x94D0_49BB_1331_11EB;

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection that leaves no visible
/// structure.
#[inline]
pub fn mix64(x: u64) -> u64 {
    let x = x.wrapping_add(GOLDEN);
    let x = (x ^ (x >> 30)).wrapping_mul(ODD_A);
    let x = (x ^ (x >> 27)).wrapping_mul(ODD_B);
    x ^ (x >> 31)
}

/// SplitMix64: 8 bytes of state, any seed, period 2^64.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates a generator for `seed`.
    pub fn new(seed: u64) -> Self {
        Random { state: mix64(seed) }
    }

    /// Creates an independent generator for a part (a thread, a phase) of the work driven by
    /// `seed`.
    pub fn part(seed: u64, part: u64) -> Self {
        Random::new(mix64(seed) ^ mix64(part.wrapping_mul(ODD_B)))
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let drawn = mix64(self.state);
        self.state = self.state.wrapping_add(GOLDEN);
        drawn
    }

    /// Returns a number in `0..n`; the bias is below `n / 2^64`. `n` must not be 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        debug_assert!(n > 0);
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Returns a number in `low..=high`, which must not be empty.
    #[inline]
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        debug_assert!(low <= high);
        match (high - low).checked_add(1) {
            Some(n) => low + self.below(n),
            None => self.next_u64(),
        }
    }

    /// Returns an index below `len`, which must not be 0.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns a normally distributed number with mean 0 and standard deviation 1 (Box and Muller).
    /// Takes two draws.
    pub fn gauss(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Returns a number in `[0, 1)`.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns true with a probability of `percent` in 100.
    #[inline]
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A seeded bijection on `0..2^bits`: rounds of "xor a key, fold the upper half onto the lower,
/// multiply by an odd number", each of which is invertible.
#[derive(Clone, Debug)]
pub struct Bijection {
    mask: u64,
    fold: u32,
    keys: [u64; Bijection::ROUNDS],
    multipliers: [u64; Bijection::ROUNDS],
    inverses: [u64; Bijection::ROUNDS],
}

impl Bijection {
    const ROUNDS: usize = 4;

    /// Creates a bijection on numbers of `bits` bits, 1 to 64.
    pub fn new(bits: u32, seed: u64) -> Self {
        assert!((1..=64).contains(&bits), "a bijection works on 1 to 64 bits");
        let mut random = Random::part(seed, 0x6B65_7973);
        let mask = u64::MAX >> (64 - bits);
        let keys = std::array::from_fn(|_| random.next_u64() & mask);
        let multipliers: [u64; Bijection::ROUNDS] = std::array::from_fn(|_| random.next_u64() | 1);
        Bijection {
            mask,
            fold: bits.div_ceil(2),
            keys,
            multipliers,
            inverses: multipliers.map(inverse_of_odd),
        }
    }

    /// Returns the image of `x`.
    #[inline]
    pub fn forward(&self, x: u64) -> u64 {
        let mut x = x;
        for round in 0..Bijection::ROUNDS {
            x ^= self.keys[round];
            x ^= x.checked_shr(self.fold).unwrap_or(0);
            x = x.wrapping_mul(self.multipliers[round]) & self.mask;
        }
        x ^ x.checked_shr(self.fold).unwrap_or(0)
    }

    /// Returns the number whose image is `y`.
    #[inline]
    pub fn inverse(&self, y: u64) -> u64 {
        // Folding by at least half the bits is its own inverse.
        let mut y = y ^ y.checked_shr(self.fold).unwrap_or(0);
        for round in (0..Bijection::ROUNDS).rev() {
            y = y.wrapping_mul(self.inverses[round]) & self.mask;
            y ^= y.checked_shr(self.fold).unwrap_or(0);
            y ^= self.keys[round];
        }
        y
    }
}

/// Returns the inverse of an odd number modulo 2^64, by Newton's iteration: every step doubles the
/// correct bits.
fn inverse_of_odd(a: u64) -> u64 {
    let mut x = a;
    for _ in 0..6 {
        x = x.wrapping_mul(2u64.wrapping_sub(a.wrapping_mul(x)));
    }
    x
}

/// A seeded permutation of `0..len`, in constant space: a bijection on the next power of two,
/// walked until it lands inside (fewer than two steps on average).
#[derive(Clone, Debug)]
pub struct Permutation {
    len: u64,
    bijection: Bijection,
}

impl Permutation {
    /// Creates a permutation of `0..len`.
    pub fn new(len: u64, seed: u64) -> Self {
        let bits = (64 - len.saturating_sub(1).leading_zeros()).max(1);
        Permutation { len, bijection: Bijection::new(bits, seed) }
    }

    /// Returns the image of `i`, which must be below the length.
    #[inline]
    pub fn at(&self, i: u64) -> u64 {
        debug_assert!(i < self.len);
        let mut x = self.bijection.forward(i);
        while x >= self.len {
            x = self.bijection.forward(x);
        }
        x
    }

    /// Returns the number whose image is `y`, which must be below the length.
    #[inline]
    pub fn place_of(&self, y: u64) -> u64 {
        debug_assert!(y < self.len);
        let mut x = self.bijection.inverse(y);
        while x >= self.len {
            x = self.bijection.inverse(x);
        }
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bijection_is_undone_by_its_inverse(bits in 1u32..=64, seed: u64, x: u64) {
            let b = Bijection::new(bits, seed);
            let x = x & (u64::MAX >> (64 - bits));
            let y = b.forward(x);
            prop_assert!(y <= u64::MAX >> (64 - bits));
            prop_assert_eq!(b.inverse(y), x);
        }
    }

    #[test]
    fn a_permutation_reaches_every_number_once() {
        for len in [1u64, 2, 3, 10, 1000, 1024, 1025] {
            let p = Permutation::new(len, 7);
            let mut seen: Vec<u64> = (0..len).map(|i| p.at(i)).collect();
            assert!((0..len).all(|i| p.place_of(seen[i as usize]) == i));
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..len), "length {len}");
        }
    }

    #[test]
    fn small_inputs_spread_over_the_whole_range() {
        let b = Bijection::new(64, 1);
        let upper_half = (0..10_000).filter(|&i| b.forward(i) >> 63 == 1).count();
        assert!((4_700..5_300).contains(&upper_half), "{upper_half}");
        let mut low: Vec<u64> = (0..10_000).map(|i| b.forward(i) & 0xFF).collect();
        low.sort_unstable();
        low.dedup();
        assert_eq!(low.len(), 256);
    }

    #[test]
    fn draws_stay_in_range_and_differ_between_parts() {
        let mut r = Random::new(3);
        assert!(
            (0..1000).all(|_| r.below(7) < 7
                && (0.0..1.0).contains(&r.unit())
                && (5..=9).contains(&r.within(5, 9)))
        );
        assert!((0..1000).all(|_| r.within(u64::MAX, u64::MAX) == u64::MAX && r.index(3) < 3));
        assert!((0..64).map(|_| r.within(0, u64::MAX)).any(|n| n > u64::MAX / 2));
        assert_ne!(Random::part(3, 0).next_u64(), Random::part(3, 1).next_u64());
    }
}
