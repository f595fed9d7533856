//! Monkey: how to divide filter memory among runs of different sizes.
//!
//! N. Dayan, M. Athanassoulis, S. Idreos, "Monkey: Optimal Navigable Key-Value Store" (SIGMOD
//! 2017), section 4: for a given memory, the filters of all runs together have the fewest false
//! positives if the rate of each is proportional to its size. ElasticBF (ATC 2019) and GRF (SIGMOD
//! 2024) compare themselves with it. The engine uses `tamis_filter::theory::monkey`; a test holds
//! the two to the same numbers.
//!
//! # The solution
//! With n_i keys and b_i bits per key, run i has the rate `r_i = e^(-b_i (ln 2)^2)`. Minimise `Σ
//! w_i r_i` (w_i: how often a run is probed for a key it does not have; 1 each for absent keys)
//! subject to `Σ n_i b_i = B`. By Lagrange `w_i r_i (ln 2)^2 = λ n_i`, so `r_i = s·n_i/w_i`; a run
//! for which that is 1 or more gets no filter, and the others share its bits. [`allocate`] finds s
//! exactly: the memory for a given s decreases with s.
//!
//! # As an entropy
//! If all runs have filters, `Σ r_i` is `e^(-b (ln 2)^2 + H ln 2)`, where H is the entropy in bits
//! of the run of a random key: Monkey pays the same price as a *global* filter that stores a
//! compressed run number with each key. That is what GRF's section 2.1 means by "fundamentally the
//! same"; see [`sum_by_entropy`].

use crate::bloom::{self, LN2_SQUARED};
use crate::grf;

/// A run whose filter is to be sized.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Run {
    /// Number of keys.
    pub keys: u64,
    /// How often it is probed for a key that it does not have, in any unit: only the ratios count.
    /// Negative, infinite and NaN are treated as 0; such a run gets no filter.
    pub weight: f64,
}

/// A division of filter memory, in the order of the runs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Allocation {
    /// Bits per key of each run.
    pub bits: Vec<f64>,
    /// False-positive rate of each run: 1 without bits, 0 without keys.
    pub rates: Vec<f64>,
}

impl Allocation {
    /// Returns the expected number of pages read by a lookup of an absent key: the sum of the
    /// rates.
    pub fn sum(&self) -> f64 {
        self.rates.iter().sum()
    }
}

/// Returns the sum of rates with the same bits per key everywhere: Monkey's baseline.
pub fn uniform_sum(keys: &[u64], bits_per_key: f64) -> f64 {
    keys.iter().filter(|&&keys| keys > 0).map(|_| bloom::ideal_rate(bits_per_key)).sum()
}

/// Returns the best division of `bits_per_key` times the number of keys, if all runs are probed
/// equally often. Runs without keys get nothing and have rate 0. A budget that is NaN or below 0 is
/// treated as 0, above 4096 bits per key as 4096. O(n log n).
pub fn allocate(keys: &[u64], bits_per_key: f64) -> Allocation {
    allocate_weighted(&keys.iter().map(|&keys| Run { keys, weight: 1.0 }).collect::<Vec<_>>(), bits_per_key)
}

/// The same if runs are probed unequally often: minimises `Σ w_i r_i`. With tables as runs, this is
/// the bound that ElasticBF's units (its Equation 2) can approach.
pub fn allocate_weighted(runs: &[Run], bits_per_key: f64) -> Allocation {
    let budget = if bits_per_key > 0.0 { bits_per_key.min(4096.0) } else { 0.0 };
    let mut allocation = Allocation {
        bits: vec![0.0; runs.len()],
        rates: runs.iter().map(|run| if run.keys > 0 { 1.0 } else { 0.0 }).collect(),
    };
    let all: f64 = runs.iter().map(|run| run.keys as f64).sum();
    // Runs that may get a filter, with ln(n/w), in the order in which they qualify for one.
    let mut order: Vec<(usize, f64, f64)> = (0..runs.len())
        .filter(|&at| runs[at].keys > 0 && runs[at].weight > 0.0 && runs[at].weight.is_finite())
        .map(|at| (at, runs[at].keys as f64, (runs[at].keys as f64).ln() - runs[at].weight.ln()))
        .collect();
    order.sort_by(|a, b| a.2.total_cmp(&b.2));
    if budget == 0.0 || order.is_empty() {
        return allocation;
    }
    // With the first m runs filtered, ln s = -(B (ln 2)^2 + Σ n ln(n/w)) / Σ n. More runs join
    // while their rate s·n/w would still be below 1; that raises no other rate, so the first that
    // would not ends the loop.
    let nats = budget * all * LN2_SQUARED;
    let (mut sum, mut weighted, mut ln_s, mut filtered) = (0.0, 0.0, 0.0, 0);
    for &(_, n, demand) in &order {
        // Before the first run any s works.
        if filtered > 0 && ln_s + demand >= 0.0 {
            break;
        }
        sum += n;
        weighted += n * demand;
        ln_s = -(nats + weighted) / sum;
        filtered += 1;
    }
    for &(at, _, demand) in &order[..filtered] {
        let ln_rate = (ln_s + demand).min(0.0);
        allocation.bits[at] = -ln_rate / LN2_SQUARED;
        allocation.rates[at] = ln_rate.exp();
    }
    allocation
}

/// Returns the sum of rates of the best division if all runs get filters, from the entropy of the
/// runs' shares: see the module documentation. Otherwise a lower bound of [`Allocation::sum`].
pub fn sum_by_entropy(keys: &[u64], bits_per_key: f64) -> f64 {
    let shares: Vec<f64> = keys.iter().map(|&keys| keys as f64).collect();
    let bits = if bits_per_key > 0.0 { bits_per_key.min(4096.0) } else { 0.0 };
    (grf::entropy_bits(&shares) * std::f64::consts::LN_2 - bits * LN2_SQUARED).exp()
}

/// Returns Monkey's closed form (section 4.2 there), for a tree of many levels of ratio
/// `size_ratio` and `runs` equal runs per level: the sum of rates at `bits_per_key`.
///
/// The rates fall by T from each level to the one above. With filters everywhere, the last level's
/// rate is `T^(1/(T-1)) e^(-b (ln 2)^2)`, and the sum is `runs · T^(T/(T-1))/(T-1) · e^(-b (ln
/// 2)^2)`. Where that rate would be 1 or more, the last level has no filter and the others, with T
/// times fewer keys, get all its bits; and so on. Ratios below 2 are treated as 2, runs below 1 as
/// 1. For a real tree of L levels the relative error is about `L / T^L`.
///
/// Infinite without bits, as the number of levels is unlimited.
pub fn limit_sum(size_ratio: u32, runs: u32, bits_per_key: f64) -> f64 {
    let (t, runs) = (f64::from(size_ratio.max(2)), f64::from(runs.max(1)));
    let mut bits = bits_per_key;
    if bits.is_nan() || bits <= f64::MIN_POSITIVE {
        return f64::INFINITY;
    }
    let mut unfiltered = 0.0;
    let last = |bits: f64| t.ln() / (t - 1.0) - bits * LN2_SQUARED;
    while last(bits) >= 0.0 {
        unfiltered += 1.0;
        bits *= t;
    }
    runs * (unfiltered + last(bits).exp() * t / (t - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tamis_filter::theory;

    #[test]
    fn the_engine_divides_the_same_way() {
        for (keys, bits) in [
            (vec![1_000, 10_000, 100_000, 1_000_000], 10.0),
            (vec![1_000_000, 7, 7, 40_000], 2.0),
            (vec![500, 500], 5.0),
            (vec![1_000, 0, 1_000_000_000], 0.1),
            (vec![3, 30, 300], 0.01),
            (vec![0, 0], 10.0),
            (vec![], 10.0),
            (vec![5, 6], f64::NAN),
        ] {
            let (ours, engine) = (allocate(&keys, bits).bits, theory::monkey(&keys, bits));
            assert_eq!(ours.len(), engine.len());
            for (ours, engine) in ours.iter().zip(&engine) {
                // The engine gives no run more than 64.
                assert!((ours.min(64.0) - engine).abs() < 1e-9, "{keys:?} at {bits}: {ours} {engine}");
            }
        }
    }

    /// Tries all divisions of the bits among three runs in steps of 1/400.
    #[test]
    fn no_division_on_a_fine_grid_is_better() {
        for (keys, weights) in [
            ([1u64, 10, 100], [1.0, 1.0, 1.0]),
            ([1, 1, 2], [1.0, 1.0, 1.0]),
            ([1, 10, 100], [1.0, 5.0, 300.0]),
            ([40, 10, 10], [0.0, 2.0, 0.5]),
        ] {
            for bits in [0.05, 0.5, 3.0, 10.0] {
                let runs: Vec<Run> =
                    keys.iter().zip(weights).map(|(&keys, weight)| Run { keys, weight }).collect();
                let all = bits * keys.iter().sum::<u64>() as f64;
                let reads = |rates: &[f64]| -> f64 { rates.iter().zip(weights).map(|(r, w)| r * w).sum() };
                let ours = allocate_weighted(&runs, bits);
                let spent: f64 = ours.bits.iter().zip(keys).map(|(bits, keys)| bits * keys as f64).sum();
                assert!((spent - all).abs() < 1e-9 * all, "{spent} of {all}");
                let (steps, mut least) = (400, f64::INFINITY);
                for first in 0..=steps {
                    for second in 0..=steps - first {
                        let parts = [first, second, steps - first - second];
                        let rates: Vec<f64> = parts
                            .iter()
                            .zip(keys)
                            .map(|(&part, keys)| {
                                bloom::ideal_rate(all * part as f64 / steps as f64 / keys as f64)
                            })
                            .collect();
                        least = least.min(reads(&rates));
                    }
                }
                let ours = reads(&ours.rates);
                assert!(ours <= least * (1.0 + 1e-12), "{keys:?} {weights:?} {bits}: {ours}, grid {least}");
                // The grid has a point near the optimum, so the bound is tight.
                assert!(least <= ours * 1.2, "{keys:?} {weights:?} {bits}: {ours}, grid {least}");
            }
        }
    }

    #[test]
    fn the_sum_falls_and_matches_the_entropy() {
        let keys = [1_000, 10_000, 100_000, 1_000_000];
        let (before, after) = (uniform_sum(&keys, 10.0), allocate(&keys, 10.0).sum());
        assert!((before - 4.0 * 0.008_19).abs() < 1e-4, "{before}");
        assert!(after < before / 2.0, "{after}");
        assert!((sum_by_entropy(&keys, 10.0) / after - 1.0).abs() < 1e-9);
        // Few bits: the large runs have no filter, and the entropy is a bound only.
        let few = allocate(&keys, 0.1);
        assert_eq!(*few.rates.last().unwrap(), 1.0);
        assert!(sum_by_entropy(&keys, 0.1) < few.sum());
    }

    #[test]
    fn many_levels_converge_to_the_closed_form() {
        for (t, levels) in [(2u64, 30u32), (4, 16), (10, 10)] {
            for runs in [1, t - 1, t] {
                for bits in [0.02, 0.3, 1.0, 3.0, 10.0] {
                    let keys: Vec<u64> =
                        (0..levels).flat_map(|level| vec![t.pow(level); runs as usize]).collect();
                    let (exact, closed) =
                        (allocate(&keys, bits).sum(), limit_sum(t as u32, runs as u32, bits));
                    assert!(
                        (exact / closed - 1.0).abs() < 1e-5,
                        "T = {t}, {runs} runs, {bits}: {exact} {closed}"
                    );
                }
            }
        }
        assert_eq!(limit_sum(10, 1, 0.0), f64::INFINITY);
    }

    proptest! {
        #[test]
        fn every_budget_is_spent_and_no_rate_exceeds_one(
            keys in prop::collection::vec(0u64..1 << 40, 0..12), bits in 0.001..40.0f64,
        ) {
            let allocation = allocate(&keys, bits);
            let all = bits * keys.iter().map(|&keys| keys as f64).sum::<f64>();
            let spent: f64 = allocation.bits.iter().zip(&keys).map(|(bits, &keys)| bits * keys as f64).sum();
            prop_assert!((spent - all).abs() <= 1e-9 * all);
            prop_assert!(allocation.rates.iter().all(|rate| (0.0..=1.0).contains(rate)));
            prop_assert!(allocation.sum() <= uniform_sum(&keys, bits) * (1.0 + 1e-9));
            // Proportional where there are filters, and no larger run has one where a smaller has
            // none.
            for (i, &a) in keys.iter().enumerate() {
                for (j, &b) in keys.iter().enumerate() {
                    let (p, q) = (allocation.rates[i], allocation.rates[j]);
                    if a > 0 && b > 0 && p < 1.0 && q < 1.0 && p > 1e-300 && q > 1e-300 {
                        prop_assert!((p / q / (a as f64 / b as f64) - 1.0).abs() < 1e-6);
                    }
                    prop_assert!(!(a > b && b > 0) || p >= q * (1.0 - 1e-9));
                }
            }
        }

        #[test]
        fn no_nan(runs in prop::collection::vec((any::<u64>(), any::<f64>()), 0..6), bits in any::<f64>()) {
            let runs: Vec<Run> = runs.into_iter().map(|(keys, weight)| Run { keys, weight }).collect();
            let allocation = allocate_weighted(&runs, bits);
            prop_assert!(allocation.bits.iter().chain(&allocation.rates).all(|x| x.is_finite() && *x >= 0.0));
            prop_assert!(!limit_sum(runs.len() as u32, 3, bits).is_nan());
            let keys: Vec<u64> = runs.iter().map(|run| run.keys).collect();
            prop_assert!(!sum_by_entropy(&keys, bits).is_nan() && !uniform_sum(&keys, bits).is_nan());
        }
    }
}
