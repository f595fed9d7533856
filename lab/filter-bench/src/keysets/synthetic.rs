//! Integers drawn from distributions.

use tamis_bench::random::Random;

/// Keys and queries use different streams of the seed, since queries would be keys otherwise.
const PARTS: u64 = 0x66_6B65_7973;

/// Returns a number of draws that suffices for `keys` members and the same number of held-out keys.
fn draws(keys: usize) -> usize {
    keys * 2 + keys / 8 + 200
}

/// Returns uniform integers, unordered, possibly with duplicates.
pub(super) fn uniform(keys: usize, seed: u64) -> Vec<u64> {
    let mut random = Random::part(seed, PARTS);
    (0..draws(keys)).map(|_| random.next_u64()).collect()
}

/// Returns normally distributed integers around the middle.
pub(super) fn normal(keys: usize, seed: u64) -> Vec<u64> {
    let mut random = Random::part(seed, PARTS + 1);
    let mut draw = || (2f64.powi(63) + 2f64.powi(59) * random.gauss()) as u64 ^ random.below(2048);
    // A double has 53 bits: the lowest are drawn separately, since keys would be multiples of 1024 otherwise.
    (0..draws(keys)).map(|_| draw()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_reproducible_and_normal_ones_lie_around_the_middle() {
        assert_eq!(uniform(10, 3), uniform(10, 3));
        assert_ne!(uniform(10, 3), uniform(10, 4));
        let near = normal(1000, 1).iter().filter(|key| key.abs_diff(1 << 63) < 1 << 60).count();
        let all = normal(1000, 1).len();
        assert!((0.9..0.99).contains(&(near as f64 / all as f64)), "95 % lie within two deviations");
    }
}
