//! Zipf-distributed ranks by rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to
//! generate variates from monotone discrete distributions", 1996): constant time and space for any
//! number of ranks.

use crate::random::Random;

/// A distribution over ranks `0..n` where rank `r` has a weight of `(r + 1)^-exponent`.
#[derive(Clone, Debug)]
pub struct Zipf {
    n: f64,
    exponent: f64,
    /// The integral of the weight up to `n + 1/2`, and the one from which rank 1's own bar starts.
    upper: f64,
    lower: f64,
    /// Draws that lie this close below their rank are accepted without a closer look.
    squeeze: f64,
}

impl Zipf {
    /// Creates a distribution over `n` ranks. The exponent must be positive (0.99 is YCSB's).
    pub fn new(n: u64, exponent: f64) -> Self {
        assert!(n > 0 && exponent > 0.0);
        let mut zipf = Zipf { n: n as f64, exponent, upper: 0.0, lower: 0.0, squeeze: 0.0 };
        zipf.upper = zipf.integral(zipf.n + 0.5);
        zipf.lower = zipf.integral(1.5) - 1.0;
        zipf.squeeze = 2.0 - zipf.integral_inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    /// Draws a rank, 0 being the most frequent.
    pub fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.upper + random.unit() * (self.lower - self.upper);
            let x = self.integral_inverse(u);
            let k = x.round().clamp(1.0, self.n);
            if k - x <= self.squeeze || u >= self.integral(k + 0.5) - self.weight(k) {
                return k as u64 - 1;
            }
        }
    }

    fn weight(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    fn integral(&self, x: f64) -> f64 {
        match 1.0 - self.exponent {
            0.0 => x.ln(),
            e => (x.powf(e) - 1.0) / e,
        }
    }

    fn integral_inverse(&self, y: f64) -> f64 {
        match 1.0 - self.exponent {
            0.0 => y.exp(),
            e => (1.0 + e * y).max(0.0).powf(1.0 / e),
        }
    }
}

/// A distribution over ranks `0..n` with any skew, including none.
#[derive(Clone, Debug)]
pub enum Ranks {
    /// This many ranks with equal weights.
    Uniform(u64),
    /// By Zipf's law.
    Zipf(Zipf),
}

impl Ranks {
    /// Creates a distribution over `n` ranks (not 0) with this exponent; 0 is uniform. It must not
    /// be negative.
    pub fn new(n: u64, exponent: f64) -> Self {
        if exponent == 0.0 { Ranks::Uniform(n) } else { Ranks::Zipf(Zipf::new(n, exponent)) }
    }

    /// Draws a rank, 0 being the most frequent.
    pub fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Ranks::Uniform(n) => random.below(*n),
            Ranks::Zipf(zipf) => zipf.draw(random),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_drawn_as_often_as_their_weights_say() {
        const RANKS: u64 = 1000;
        const DRAWS: u32 = 400_000;
        for exponent in [0.0, 0.5, 0.99, 1.0, 1.2, 1.4] {
            let ranks = Ranks::new(RANKS, exponent);
            let mut random = Random::new(5);
            let mut counts = vec![0u32; RANKS as usize];
            for _ in 0..DRAWS {
                counts[ranks.draw(&mut random) as usize] += 1;
            }
            let total: f64 = (1..=RANKS).map(|r| (r as f64).powf(-exponent)).sum();
            for rank in [0usize, 1, 2, 9, 99, 999] {
                let expected = f64::from(DRAWS) * ((rank + 1) as f64).powf(-exponent) / total;
                let got = f64::from(counts[rank]);
                // Five standard deviations of a Poisson count.
                let near = (got - expected).abs() < 5.0 * expected.sqrt() + 1.0;
                assert!(near, "exponent {exponent}, rank {rank}: {got} of {expected}");
            }
        }
    }

    #[test]
    fn a_single_rank_is_always_drawn() {
        let mut random = Random::new(1);
        let zipf = Zipf::new(1, 0.99);
        assert!((0..100).all(|_| zipf.draw(&mut random) == 0));
    }
}
