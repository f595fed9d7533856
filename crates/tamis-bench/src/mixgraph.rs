//! The workload `mixgraph`, known to RocksDB's users from its benchmark program db_bench.
//!
//! It models ZippyDB, a service with many small values: Cao, Dong, Vemuri, Du, "Characterizing,
//! Modeling, and Benchmarking RocksDB Key-Value Workloads at Facebook" (FAST 2020), section 7. The
//! parameters are those of RocksDB's documentation for the model with key ranges ("prefix_dist"):
//!
//! * 83 % gets, 14 % puts, 3 % scans.
//! * The keys in key order are cut into [`RANGES`] ranges of equal size. The i-th hottest is
//!   accessed in proportion to `a e^(b i) + c e^(d i)`; its place is random. The hottest gets 79 %
//!   of all operations, the next 6 %.
//! * In a range, the share of its x hottest keys is `a x^b`, up to x = 4·10^7, where it reaches 1;
//!   a hash maps x to a key. If a range holds fewer keys, the shares of the x that map to one key
//!   add up. So hot keys are close together, but not adjacent.
//! * A scan's length follows the generalized Pareto distribution with shape 2.517 and scale 14.236,
//!   modulo 10,000. Half read at most 27 entries; the 5 % that would read more than 10,000 spread
//!   over 0 to 10,000, so the mean is about 570.
//! * Values have the lengths of [`ValueSizes::Pareto`](crate::value::ValueSizes::Pareto), if the
//!   run uses them.
//!
//! Differences from db_bench: it derives the range, the key, the kind of operation and the lengths
//! from one random number; here each is drawn independently, as the paper found them hardly
//! correlated. A key's value keeps its length. Keys after the last whole range belong to a range.
//! Scans read at least one entry. Operations run back to back, without a daily rhythm. Neither has
//! deletes, although ZippyDB has 6 %.
//!
//! Invariants: the ranges and their hot keys depend only on the number of keys, so a second run, or
//! another engine's, uses the same ones; every key belongs to one range.
//!
//! A [`KeyRanges`] is immutable and may be used by any number of threads, each with its own
//! generator. It takes a few hundred bytes; a draw costs a power and a search among 30 ranges.

use crate::pareto::Pareto;
use crate::random::{Permutation, Random, mix64};

/// The percentage of gets.
pub const GET_PERCENT: u64 = 83;

/// The percentage of puts. The other operations are scans.
pub const PUT_PERCENT: u64 = 14;

/// The number of ranges, unless there are fewer keys.
pub const RANGES: u64 = 30;

/// The exclusive upper limit of a scan's length.
pub const SCAN_LIMIT: u64 = 10_000;

/// The lengths of scans, before the modulo.
const SCANS: Pareto = Pareto { shape: 2.517, scale: 14.236 };

/// The factors and exponents of the hotness of ranges.
const RANGE_HOTNESS: [(f64, f64); 2] = [(14.18, -2.917), (0.0164, -0.08082)];

/// The factor and the exponent of the share of the hottest keys of a range.
const KEY_SHARE: (f64, f64) = (0.002312, 0.3467);

/// The seed that determines which ranges are hot.
const PLACEMENT: u64 = 0x6D69_7867_7261_7068;

/// Keys in key order, drawn from ranges of different hotness.
#[derive(Clone, Debug)]
pub struct KeyRanges {
    keys: u64,
    /// The cumulative share of the hottest ranges.
    shares: Vec<f64>,
    /// Maps i to the i-th hottest range.
    places: Permutation,
}

impl KeyRanges {
    /// Creates the ranges of `keys` keys, at least 1.
    pub fn new(keys: u64) -> KeyRanges {
        let ranges = RANGES.min(keys.max(1));
        let hotness = |i: u64| RANGE_HOTNESS.iter().map(|(a, b)| a * (b * i as f64).exp()).sum::<f64>();
        let total: f64 = (1..=ranges).map(hotness).sum();
        let shares = (1..=ranges).scan(0.0, |sum, i| {
            *sum += hotness(i) / total;
            Some(*sum)
        });
        KeyRanges { keys: keys.max(1), shares: shares.collect(), places: Permutation::new(ranges, PLACEMENT) }
    }

    /// Draws a key: its position in key order, below the number of keys.
    pub fn draw(&self, random: &mut Random) -> u64 {
        let drawn = random.unit();
        // The sum of all shares may be a little less than 1.
        let rank = self.shares.partition_point(|&share| share <= drawn).min(self.shares.len() - 1);
        let range = self.places.at(rank as u64);
        let places = self.range(range);
        let (factor, exponent) = KEY_SHARE;
        let hot = (random.unit() / factor).powf(1.0 / exponent).ceil() as u64;
        let hash = mix64(mix64(hot) ^ range);
        let width = places.end - places.start;
        places.start + ((u128::from(hash) * u128::from(width)) >> 64) as u64
    }

    /// Returns the positions of the keys of a range.
    fn range(&self, range: u64) -> std::ops::Range<u64> {
        let ranges = self.shares.len() as u64;
        let start = |range: u64| (u128::from(self.keys) * u128::from(range) / u128::from(ranges)) as u64;
        start(range)..start(range + 1)
    }
}

/// Draws the number of entries that a scan reads: 1 to [`SCAN_LIMIT`]` - 1`.
pub fn scan_length(random: &mut Random) -> u64 {
    ((SCANS.draw(random) % SCAN_LIMIT as f64) as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 200_000;

    /// Five standard deviations of a Poisson count.
    fn near(got: u64, expected: f64) -> bool {
        (got as f64 - expected).abs() < 5.0 * expected.sqrt() + 1.0
    }

    /// From the formula as db_bench's documentation has it.
    fn hotness(i: i32) -> f64 {
        14.18 * (-2.917 * f64::from(i)).exp() + 0.0164 * (-0.08082 * f64::from(i)).exp()
    }

    #[test]
    fn ranges_are_as_hot_as_the_two_exponentials_say() {
        const KEYS: u64 = 300_000;
        let ranges = KeyRanges::new(KEYS);
        let mut random = Random::new(3);
        let mut counts = vec![0u64; 30];
        for _ in 0..DRAWS {
            counts[(ranges.draw(&mut random) * 30 / KEYS) as usize] += 1;
        }
        let in_key_order = counts.clone();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        assert_ne!(in_key_order, counts, "hot ranges may be anywhere");
        let total: f64 = (1..=30).map(hotness).sum();
        for (i, &count) in counts.iter().enumerate().take(3) {
            let expected = hotness(i as i32 + 1) / total * DRAWS as f64;
            assert!(near(count, expected), "range {i}: {count} of {expected}");
        }
        // Ranges of similar hotness may swap ranks; sums of many do not change.
        let (coldest, expected) = (counts[20..].iter().sum(), (21..=30).map(hotness).sum::<f64>() / total);
        assert!(near(coldest, expected * DRAWS as f64), "{coldest} of {}", expected * DRAWS as f64);
        assert!(counts[0] as f64 > 0.78 * DRAWS as f64 && counts[29] > 0);
    }

    /// The range is wide enough that two ranks rarely map to one key, so the x hottest keys have
    /// the share of the law.
    #[test]
    fn in_a_range_hot_keys_have_the_share_of_the_power_law() {
        let ranges = KeyRanges::new(1 << 50);
        let mut random = Random::new(4);
        let mut counts = std::collections::HashMap::new();
        let hottest = ranges.range(ranges.places.at(0));
        let mut inside = 0u64;
        for _ in 0..DRAWS {
            let place = ranges.draw(&mut random);
            if hottest.contains(&place) {
                inside += 1;
                *counts.entry(place).or_insert(0u64) += 1;
            }
        }
        let key = |x: u64| {
            let hash = mix64(mix64(x) ^ ranges.places.at(0));
            hottest.start + ((u128::from(hash) * u128::from(hottest.end - hottest.start)) >> 64) as u64
        };
        for x in [1u64, 10, 100, 1000] {
            let got: u64 = (1..=x).map(|x| counts.get(&key(x)).copied().unwrap_or(0)).sum();
            let expected = 0.002312 * (x as f64).powf(0.3467) * inside as f64;
            assert!(near(got, expected), "{x}: {got} of {expected}");
        }
    }

    #[test]
    fn every_key_belongs_to_one_range_and_draws_stay_inside() {
        for keys in [1u64, 2, 7, 29, 30, 31, 1000, u64::MAX] {
            let ranges = KeyRanges::new(keys);
            let mut end = 0;
            for range in 0..RANGES.min(keys) {
                let places = ranges.range(range);
                assert!(places.start == end && places.end > places.start, "{keys} keys, range {range}");
                end = places.end;
            }
            assert_eq!(end, keys);
            let mut random = Random::new(5);
            assert!((0..2000).all(|_| ranges.draw(&mut random) < keys));
        }
    }

    #[test]
    fn scans_have_the_lengths_of_the_formula() {
        let mut random = Random::new(6);
        let lengths: Vec<u64> = (0..DRAWS).map(|_| scan_length(&mut random)).collect();
        assert!(lengths.iter().all(|&length| (1..SCAN_LIMIT).contains(&length)));
        let above = |x: f64| (1.0 + 2.517 * x / 14.236).powf(-1.0 / 2.517);
        for x in [1u64, 10, 27, 100, 1000, 5000] {
            // Lengths modulo the limit come from every multiple of it. The distant ones count with
            // their share.
            let wraps = (1..1000).map(|n| {
                let from = n as f64 * SCAN_LIMIT as f64;
                above(from + x as f64) - above(from + SCAN_LIMIT as f64 - 1.0)
            });
            let far = above(1000.0 * SCAN_LIMIT as f64) * (1.0 - x as f64 / SCAN_LIMIT as f64);
            let share = above(x as f64) - above(SCAN_LIMIT as f64 - 1.0) + wraps.sum::<f64>() + far;
            let got = lengths.iter().filter(|&&length| length > x).count() as u64;
            assert!(near(got, share * DRAWS as f64), "{x}: {got} of {}", share * DRAWS as f64);
        }
        let mut sorted = lengths.clone();
        sorted.sort_unstable();
        // The mean of the formula is 569, and the standard deviation of a length about 1,700.
        let (median, mean) = (sorted[sorted.len() / 2], lengths.iter().sum::<u64>() / DRAWS);
        assert!((26..=28).contains(&median) && (549..=589).contains(&mean), "{median} {mean}");
    }
}
