//! Seeded random numbers.

/// A seeded generator of random numbers (SplitMix64): equal seeds give equal numbers, on every
/// machine and in every version, so the seed of a failed test is enough to repeat it.
///
/// Not for cryptography. All 64-bit seeds are equally good, even consecutive ones. Drawing a number
/// takes a few instructions.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates the generator for `seed`.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// Creates the generator for a name and a number: for tests with many cases, each with its own
    /// numbers.
    pub fn named(name: &str, number: u64) -> Self {
        // FNV-1a, seeded with the number.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        Rng(name.bytes().fold(number, mix))
    }

    /// Returns any number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 up to but excluding `bound`. The bias towards smaller numbers is
    /// negligible unless the bound is huge.
    ///
    /// # Panics
    ///
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// Like [`below`](Rng::below), for lengths and positions.
    ///
    /// # Panics
    ///
    /// If `bound` is 0.
    pub fn index(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    /// Returns a number from 0 to `most`, both included.
    pub fn up_to(&mut self, most: usize) -> usize {
        match (most as u64).checked_add(1) {
            Some(choices) => self.below(choices) as usize,
            None => self.next_u64() as usize,
        }
    }

    /// Returns true with probability `eighths`/8.
    pub fn chance(&mut self, eighths: usize) -> bool {
        self.up_to(7) < eighths
    }

    /// Returns true with probability 1/`odds`.
    ///
    /// # Panics
    ///
    /// If `odds` is 0.
    pub fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    /// Returns one of `all`.
    ///
    /// # Panics
    /// If `all` is empty.
    pub fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())].clone()
    }

    /// Shuffles `all`.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for i in (1..all.len()).rev() {
            all.swap(i, self.index(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let mut rng = Rng::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn draws_are_within_their_bounds_and_reach_them() {
        let mut rng = Rng::named("bounds", 1);
        let (mut below, mut up_to) = ([false; 5], [false; 5]);
        for _ in 0..200 {
            below[rng.index(5)] = true;
            up_to[rng.up_to(4)] = true;
            assert!(!rng.chance(0) && rng.chance(8) && rng.one_in(1));
        }
        assert_eq!((below, up_to), ([true; 5], [true; 5]));
        let mut order: Vec<u64> = (0..50).collect();
        rng.shuffle(&mut order);
        assert!(!order.is_sorted());
        order.sort_unstable();
        assert!(order.into_iter().eq(0..50));
        assert_eq!(rng.pick(&["only"]), "only");
    }
}
