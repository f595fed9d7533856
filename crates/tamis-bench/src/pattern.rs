//! The distribution of accessed keys: Zipf's law with any skew, a share of absent keys, and a
//! locality.
//!
//! Ranks are drawn by Zipf's law over all keys; skew 0 is uniform. With a *locality* of L the key
//! space is cut into neighbourhoods of L adjacent keys, and rank r goes to the (r mod L)-th key of
//! the neighbourhood that is r / L-th in a random order. L = 1 is the scrambled Zipf distribution
//! of YCSB: hot keys lie anywhere. A larger L keeps them together, as in production traces, where
//! hotness follows key prefixes (Cao, Dong, Vemuri, Du: "Characterizing, Modeling, and Benchmarking
//! RocksDB Key-Value Workloads at Facebook", FAST 2020).
//!
//! An absent key lies at a random place in the gap after the existing key of a rank drawn in the
//! same way. So a key range is as hot for absent keys as for existing ones, while absent keys are
//! hardly ever repeated: otherwise, whether a filter passes a single very hot absent key could
//! decide a whole figure.
//!
//! Invariants: [`draw`](Pattern::draw) is a function of the placement and of the generator's state
//! alone; the map from ranks to keys is a bijection; every [`gap`](Pattern::gap) is below
//! [`GAP_KEYS`], so its key does not exist.
//!
//! A pattern is immutable and may be used by any number of threads, each with its own generator. A
//! draw costs tens of nanoseconds and no memory; it is part of the preparation of a chunk of
//! operations, which is not timed.

use crate::error::BenchError;
use crate::keys::GAP_KEYS;
use crate::random::{Permutation, Random};
use crate::zipf::Ranks;

/// The largest exponent accepted. With 4 the hottest key gets 92 % of all reads.
pub const MAX_SKEW: f64 = 4.0;

/// The parameters of a pattern, independent of the placement of its hot keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PatternSpec {
    /// Zipf's exponent, 0 (uniform) to [`MAX_SKEW`].
    pub skew: f64,
    /// The percentage of gets of absent keys.
    pub absent_percent: u64,
    /// The number of keys in a neighbourhood, 1 to all.
    pub locality: u64,
}

impl PatternSpec {
    /// Rejects parameters that are impossible for `keys` keys; the error names the program's flags.
    pub fn check(&self, keys: u64) -> Result<(), BenchError> {
        let why = if !(0.0..=MAX_SKEW).contains(&self.skew) {
            format!("--skew must be 0 (uniform) to {MAX_SKEW}, not {}", self.skew)
        } else if self.absent_percent > 100 {
            format!("--absent must be 0 to 100 percent, not {}", self.absent_percent)
        } else if self.locality == 0 || self.locality > keys {
            format!("--locality must be 1 to the number of keys, {keys}, not {}", self.locality)
        } else {
            return Ok(());
        };
        Err(BenchError::Request(why))
    }
}

/// A source of keys by their rank in key order, for sets whose keys are
/// [ordered](crate::KeySet::is_ordered) or whose order is [given](Pattern::in_order).
#[derive(Clone, Debug)]
pub struct Pattern {
    spec: PatternSpec,
    ranks: Ranks,
    /// The places of whole neighbourhoods. Keys after the last whole one have the last ranks.
    places: Permutation,
    neighbourhoods: u64,
    /// The numbers of the keys in key order, unless it is that of the numbers.
    order: Option<Vec<u64>>,
}

impl Pattern {
    /// Creates a pattern over `keys` keys; `placement` determines only the places of the
    /// neighbourhoods. Fails as [`PatternSpec::check`] does.
    pub fn new(keys: u64, spec: PatternSpec, placement: u64) -> Result<Pattern, BenchError> {
        spec.check(keys)?;
        let neighbourhoods = keys / spec.locality;
        let places = Permutation::new(neighbourhoods, Random::part(placement, 0x706C_6163).next_u64());
        Ok(Pattern { spec, ranks: Ranks::new(keys, spec.skew), places, neighbourhoods, order: None })
    }

    /// Returns the pattern for a set with these keys in [ascending](crate::KeySet::ascending)
    /// order. Absent keys need an ordered set.
    pub fn in_order(self, order: Vec<u64>) -> Pattern {
        Pattern { order: Some(order), ..self }
    }

    /// Returns Zipf's exponent.
    pub fn skew(&self) -> f64 {
        self.spec.skew
    }

    /// Returns the number of the key with a rank, 0 being the hottest.
    #[inline]
    pub fn key_of(&self, rank: u64) -> u64 {
        let (neighbourhood, within) = (rank / self.spec.locality, rank % self.spec.locality);
        let place = match neighbourhood < self.neighbourhoods {
            true => self.places.at(neighbourhood) * self.spec.locality + within,
            false => rank,
        };
        self.order.as_ref().map_or(place, |order| order[place as usize])
    }

    /// Draws the number of a key.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        self.key_of(self.ranks.draw(random))
    }

    /// Decides whether a get is for an absent key, and if so returns its place in the gap after the
    /// key drawn.
    #[inline]
    pub fn gap(&self, random: &mut Random) -> Option<u64> {
        random.chance(self.spec.absent_percent).then(|| random.below(GAP_KEYS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeySet;

    fn pattern(keys: u64, skew: f64, absent_percent: u64, locality: u64, placement: u64) -> Pattern {
        Pattern::new(keys, PatternSpec { skew, absent_percent, locality }, placement).unwrap()
    }

    #[test]
    fn every_key_has_one_rank() {
        for (keys, locality) in [(1000, 1), (1000, 7), (1000, 1000), (1024, 64), (1, 1), (10, 4)] {
            let pattern = pattern(keys, 0.99, 0, locality, 3);
            let mut seen: Vec<u64> = (0..keys).map(|rank| pattern.key_of(rank)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..keys), "{keys} keys, locality {locality}");
        }
    }

    /// Frequencies by rank follow the law, wherever the keys lie.
    #[test]
    fn keys_are_drawn_as_often_as_their_ranks_say() {
        const DRAWS: u64 = 200_000;
        for (skew, locality) in [(0.0, 1), (0.8, 16), (1.0, 1), (1.4, 16)] {
            let pattern = pattern(500, skew, 50, locality, 1);
            let mut random = Random::new(9);
            let mut counts = vec![0u64; 500];
            for _ in 0..DRAWS {
                counts[pattern.draw(&mut random) as usize] += 1;
            }
            let total: f64 = (1..=500).map(|r| f64::from(r).powf(-skew)).sum();
            for rank in [0u64, 1, 5, 50, 499] {
                let expected = DRAWS as f64 * ((rank + 1) as f64).powf(-skew) / total;
                let got = counts[pattern.key_of(rank) as usize] as f64;
                assert!(
                    (got - expected).abs() < 5.0 * expected.sqrt() + 1.0,
                    "{skew} {rank}: {got} of {expected}"
                );
            }
        }
    }

    #[test]
    fn locality_keeps_hot_keys_together_and_its_absence_scatters_them() {
        let near = |locality| {
            let pattern = pattern(100_000, 0.99, 0, locality, 4);
            (0..63u64).filter(|&rank| pattern.key_of(rank).abs_diff(pattern.key_of(rank + 1)) == 1).count()
        };
        assert_eq!(near(64), 63);
        assert!(near(1) <= 2);
        // Neighbourhoods themselves are scattered.
        let pattern = pattern(100_000, 0.99, 0, 64, 4);
        let first: Vec<u64> = (0..50).map(|n| pattern.key_of(n * 64)).collect();
        assert!(first.windows(2).filter(|pair| pair[0] < pair[1]).count() < 40);
    }

    #[test]
    fn hot_keys_of_a_set_without_order_are_neighbours_too() {
        let keys = KeySet::uniform(10_000, 8, 1).unwrap();
        let pattern = pattern(10_000, 1.2, 0, 16, 3).in_order(keys.ascending());
        let key_of = |rank| {
            let mut key = Vec::new();
            keys.existing(pattern.key_of(rank), &mut key);
            u64::from_be_bytes(key.try_into().unwrap())
        };
        // Sixteen neighbours of ten thousand random keys are about a six-hundredth of the space apart.
        for hot in [0, 16, 320] {
            let distance = key_of(hot + 15).abs_diff(key_of(hot));
            assert!(distance > 0 && distance < u64::MAX / 200, "{hot}: {distance}");
        }
        let mut seen: Vec<u64> = (0..10_000).map(|rank| pattern.key_of(rank)).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..10_000));
    }

    #[test]
    fn absent_keys_lie_beside_the_key_drawn_and_have_the_requested_share() {
        let keys = KeySet::sequential(2000, 16).unwrap();
        let pattern = pattern(2000, 0.99, 30, 8, 5);
        let mut random = Random::new(2);
        let mut absent = 0;
        for _ in 0..20_000 {
            let i = pattern.draw(&mut random);
            let Some(gap) = pattern.gap(&mut random) else { continue };
            absent += 1;
            let (mut key, mut low) = (Vec::new(), Vec::new());
            keys.gap_key(i, gap, &mut key);
            keys.existing(i, &mut low);
            assert!(!keys.contains(&key) && low < key);
            if i + 1 < 2000 {
                let mut high = Vec::new();
                keys.existing(i + 1, &mut high);
                assert!(key < high);
            }
        }
        // Six standard deviations of the share.
        assert!((5_600..=6_400).contains(&absent), "{absent}");
        let always = self::pattern(10, 0.0, 100, 1, 1);
        assert!((0..100).all(|_| always.gap(&mut random).is_some()));
        let never = self::pattern(10, 0.0, 0, 1, 1);
        assert!((0..100).all(|_| never.gap(&mut random).is_none()));
    }

    #[test]
    fn draws_depend_on_the_seed_and_placement_moves_the_hot_keys() {
        let draws = |placement, seed| {
            let pattern = pattern(100_000, 1.2, 50, 16, placement);
            let mut random = Random::new(seed);
            (0..200).map(|_| (pattern.draw(&mut random), pattern.gap(&mut random))).collect::<Vec<_>>()
        };
        assert_eq!(draws(1, 1), draws(1, 1));
        assert_ne!(draws(1, 1), draws(1, 2));
        let hot = |placement| {
            let pattern = pattern(100_000, 1.2, 50, 16, placement);
            (0..160).map(|rank| pattern.key_of(rank)).collect::<std::collections::BTreeSet<u64>>()
        };
        // Ten neighbourhoods of 6250: two placements hardly share one.
        assert!(hot(1).intersection(&hot(2)).count() <= 32);
    }

    #[test]
    fn impossible_parameters_are_rejected_by_the_name_of_their_flag() {
        let refused = |skew, absent_percent, locality| {
            let spec = PatternSpec { skew, absent_percent, locality };
            Pattern::new(100, spec, 1).unwrap_err().to_string()
        };
        assert!(refused(-1.0, 0, 1).contains("--skew"));
        assert!(refused(f64::NAN, 0, 1).contains("--skew"));
        assert!(refused(5.0, 0, 1).contains("--skew"));
        assert!(refused(1.0, 101, 1).contains("--absent"));
        assert!(refused(1.0, 0, 0).contains("--locality"));
        assert!(refused(1.0, 0, 101).contains("100"));
    }
}
