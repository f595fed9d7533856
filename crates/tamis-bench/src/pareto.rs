//! The generalized Pareto distribution of the lengths of values and scans.
//!
//! Its survival function is `(1 + k x / s)^(-1/k)` for shape `k > 0` and scale `s`; the lower end
//! is 0. The form and the parameters used here are those of Cao, Dong, Vemuri, Du, "Characterizing,
//! Modeling, and Benchmarking RocksDB Key-Value Workloads at Facebook" (FAST 2020). A draw costs
//! one power.

use crate::random::Random;

/// A generalized Pareto distribution that begins at 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pareto {
    /// The weight of the tail, above 0. From 1 on there is no mean.
    pub shape: f64,
    /// The scale, above 0.
    pub scale: f64,
}

impl Pareto {
    /// Returns the share of draws above `x`, which must not be negative.
    pub fn above(self, x: f64) -> f64 {
        (1.0 + self.shape * x / self.scale).powf(-1.0 / self.shape)
    }

    /// Returns the `x` above which a share of draws lies, rounded up. The share is above 0 and at
    /// most 1.
    pub fn whole(self, share: f64) -> f64 {
        (self.scale / self.shape * (share.powf(-self.shape) - 1.0)).ceil()
    }

    /// Draws a number, rounded up. 0 occurs once in 2^53 draws.
    pub fn draw(self, random: &mut Random) -> f64 {
        self.whole(share_of(random.next_u64()))
    }
}

/// Maps any 64 bits to a share above 0 and at most 1.
pub(crate) fn share_of(bits: u64) -> f64 {
    ((bits >> 11) + 1) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_draws_match_the_formula() {
        const DRAWS: usize = 200_000;
        for pareto in [Pareto { shape: 0.2615, scale: 25.45 }, Pareto { shape: 2.517, scale: 14.236 }] {
            let mut random = Random::new(11);
            let draws: Vec<f64> = (0..DRAWS).map(|_| pareto.draw(&mut random)).collect();
            for x in [1.0, 5.0, 25.0, 60.0, 200.0, 900.0] {
                let expected = pareto.above(x) * DRAWS as f64;
                let got = draws.iter().filter(|&&draw| draw > x).count() as f64;
                // Five standard deviations of a Poisson count.
                assert!(
                    (got - expected).abs() < 5.0 * expected.sqrt() + 1.0,
                    "{pareto:?} {x}: {got} of {expected}"
                );
            }
        }
    }

    #[test]
    fn every_bit_pattern_gives_a_length() {
        let pareto = Pareto { shape: 2.517, scale: 14.236 };
        assert_eq!(share_of(u64::MAX), 1.0);
        assert_eq!(pareto.whole(share_of(u64::MAX)), 0.0);
        let longest = pareto.whole(share_of(0));
        assert!(longest.is_finite() && longest > 1e30, "{longest}");
    }
}
