//! How skewed reads are, estimated from how often two of them are for the same key.
//!
//! Under Zipf's law with exponent s over n keys, the key of rank i is read with probability i^−s /
//! H(n, s), so two gets are for the same key with probability Σ p² = H(n, 2s) / H(n, s)². That
//! grows with s from 1/n to nearly 1, and is inverted by bisection.

/// Number of ranks summed one by one; beyond them the sum is an integral (Euler–Maclaurin, two
/// terms).
const EXACT: u64 = 256;
/// The largest exponent that is distinguished.
const STEEPEST: f64 = 4.0;

/// Returns H(n, s), the sum of i^−s for i from 1 to n. Relative error below 1e-6 for s from 0 to 8.
fn harmonic(n: f64, s: f64) -> f64 {
    let exact = n.min(EXACT as f64) as u64;
    let head: f64 = (1..=exact).map(|i| (i as f64).powf(-s)).sum();
    let (a, b) = (exact as f64, n);
    if b <= a {
        return head;
    }
    let area = match (s - 1.0).abs() < 1e-9 {
        true => (b / a).ln(),
        false => (b.powf(1.0 - s) - a.powf(1.0 - s)) / (1.0 - s),
    };
    head + area + (b.powf(-s) - a.powf(-s)) / 2.0
}

/// Returns the probability that two reads under Zipf's law with exponent `skew` over `keys` keys
/// are for the same one.
pub fn zipf_collisions(skew: f64, keys: f64) -> f64 {
    let keys = if keys.is_finite() { keys.max(1.0) } else { 1.0 };
    let skew = if skew.is_finite() { skew.clamp(0.0, STEEPEST) } else { 0.0 };
    harmonic(keys, 2.0 * skew) / harmonic(keys, skew).powi(2)
}

/// Returns the exponent of Zipf's law over `keys` keys under which two reads are for the same key
/// with probability `collisions`: 0 where that is no more than chance, at most 4. About 50
/// evaluations of two sums.
pub fn zipf_exponent(collisions: f64, keys: f64) -> f64 {
    let (mut low, mut high) = (0.0, STEEPEST);
    if !collisions.is_finite() || collisions <= zipf_collisions(low, keys) {
        return 0.0;
    }
    if collisions >= zipf_collisions(high, keys) {
        return STEEPEST;
    }
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if zipf_collisions(middle, keys) < collisions {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_match_those_over_all_ranks() {
        for n in [1u64, 2, 255, 256, 257, 100_000] {
            for s in [0.0, 0.5, 0.99, 1.0, 1.2, 2.0, 4.0] {
                let exact: f64 = (1..=n).map(|i| (i as f64).powf(-s)).sum();
                let got = harmonic(n as f64, s);
                assert!((got / exact - 1.0).abs() < 1e-6, "{n} {s}: {got} for {exact}");
            }
        }
    }

    #[test]
    fn the_exponent_is_recovered() {
        for keys in [100.0, 1e4, 1e6, 1e9] {
            for skew in [0.3, 0.6, 0.99, 1.2, 2.0] {
                let back = zipf_exponent(zipf_collisions(skew, keys), keys);
                assert!((back - skew).abs() < 1e-3, "{keys} keys: {back} for {skew}");
            }
            assert_eq!(zipf_exponent(0.5 / keys, keys), 0.0, "less than chance");
        }
        assert_eq!(zipf_exponent(1.0, 1e6), STEEPEST);
        assert_eq!(zipf_exponent(f64::NAN, 1e6), 0.0);
        assert_eq!(zipf_exponent(0.1, f64::NAN), 0.0);
    }
}
