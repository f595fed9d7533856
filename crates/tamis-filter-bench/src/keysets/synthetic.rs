//! Integers drawn from distributions, and places made into integers.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Normal};

/// Draws enough for `keys` members and as many keys held out, whatever the split does.
fn draws(keys: usize) -> usize {
    keys * 2 + keys / 8 + 200
}

/// Uniform integers, in no order; some may repeat.
pub(super) fn uniform(keys: usize, seed: u64) -> Vec<u64> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..draws(keys)).map(|_| random.random()).collect()
}

/// Normally distributed integers around the middle.
pub(super) fn normal(keys: usize, seed: u64) -> Vec<u64> {
    let mut random = StdRng::seed_from_u64(seed ^ 1);
    let normal = Normal::new(2f64.powi(63), 2f64.powi(59)).expect("a positive deviation");
    // A double has 53 bits: the lowest come from elsewhere, or keys would only be multiples of 1024.
    (0..draws(keys)).map(|_| normal.sample(&mut random) as u64 ^ random.random_range(0..2048u64)).collect()
}

/// The Morton code of a place: the bits of longitude and latitude, each as a 32-bit share of its range, in turn.
pub(super) fn cell(latitude: f64, longitude: f64) -> u64 {
    let share = |degrees: f64, half: f64| ((degrees + half) / (2.0 * half) * 2f64.powi(32)) as u32;
    spread(share(longitude, 180.0)) << 1 | spread(share(latitude, 90.0))
}

/// The bits of `x` at the even positions.
fn spread(x: u32) -> u64 {
    let mut x = u64::from(x);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        x = (x | x << shift) & mask;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_the_first_bits_of_their_cells() {
        let lyon = cell(45.749, 4.848);
        let villeurbanne = cell(45.766, 4.879);
        let sydney = cell(-33.868, 151.207);
        assert!((lyon ^ villeurbanne).leading_zeros() > (lyon ^ sydney).leading_zeros());
        assert_eq!(cell(-90.0, -180.0), 0);
        assert_eq!(cell(90.0, 180.0), u64::MAX);
    }

    #[test]
    fn bits_are_spread_to_even_positions() {
        assert_eq!(spread(0b1011), 0b100_0101);
        assert_eq!(spread(u32::MAX), 0x5555_5555_5555_5555);
    }

    #[test]
    fn draws_are_reproducible_and_normal_ones_lie_around_the_middle() {
        assert_eq!(uniform(10, 3), uniform(10, 3));
        assert_ne!(uniform(10, 3), uniform(10, 4));
        let near = normal(1000, 1).iter().filter(|key| key.abs_diff(1 << 63) < 1 << 60).count();
        let all = normal(1000, 1).len();
        assert!((0.9..0.99).contains(&(near as f64 / all as f64)), "95 % lie within two deviations");
    }
}
