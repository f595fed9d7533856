//! The standard Bloom filter: its false-positive rate, and the bits that rate costs.
//!
//! Z. Zhu et al., "Reducing Bloom Filter CPU Overhead in LSM-Trees on Modern Storage Devices"
//! (DAMON 2021), section 2, Equation 1. Bits are bits per key, rates are fractions in `0..=1`.
//!
//! The brackets around the equation's k are read as *rounded to nearest*: section 4.1 gives 1 to 9
//! probes for 1 to 13 bits, where `ceil` would give 10 and `floor` 0. The filters of this project
//! (`tamis_filter::theory`) do the same; tests hold the two to the same numbers.

/// `(ln 2)^2`: the reduction of an ideal Bloom filter's rate per bit per key, in nats.
pub const LN2_SQUARED: f64 = std::f64::consts::LN_2 * std::f64::consts::LN_2;

/// Largest k considered; the optimum for 43 bits. Beyond that a lookup costs more than it saves.
pub const MAX_PROBES: u32 = 30;

/// Returns the left side of Equation 1: the rate `(1 - e^(-k/b))^k` of a filter of `bits` per key
/// with `k` probes.
///
/// Returns 1 for a filter without bits (or of NaN bits) and for one without probes.
pub fn rate(bits: f64, k: u32) -> f64 {
    if bits.is_nan() || bits <= 0.0 || k == 0 {
        return 1.0;
    }
    (-(-f64::from(k) / bits).exp_m1()).powi(k.min(i32::MAX as u32) as i32)
}

/// Returns the right side of Equation 1: the number of probes that minimises the rate, `b ln 2` to
/// nearest, within `1..=`[`MAX_PROBES`].
pub fn optimal_probes(bits: f64) -> u32 {
    // The cast saturates and maps NaN to 0.
    ((bits * std::f64::consts::LN_2).round() as u32).clamp(1, MAX_PROBES)
}

/// Returns the rate with [`optimal_probes`] probes: 0.00819 at 10 bits.
pub fn optimal_rate(bits: f64) -> f64 {
    rate(bits, optimal_probes(bits))
}

/// Returns the rate if k could be fractional: `e^(-b (ln 2)^2)`, about `0.6185^b`, as used by
/// ElasticBF and Monkey. It is a lower bound for every k; with the best integer k the rate is at
/// most 4 % higher from 1.5 bits on, 1.5 % from 5, and 0.8 % from 8.
pub fn ideal_rate(bits: f64) -> f64 {
    if bits.is_nan() || bits <= 0.0 {
        return 1.0;
    }
    (-bits * LN2_SQUARED).exp()
}

/// Returns the bits per key of an ideal filter of this rate: the inverse of [`ideal_rate`]. Rates
/// below the smallest positive number are treated as that number (1475 bits), those above 1 and NaN
/// as 1 (no bits).
pub fn ideal_bits(rate: f64) -> f64 {
    if rate.is_nan() || rate >= 1.0 {
        return 0.0;
    }
    -rate.max(f64::MIN_POSITIVE).ln() / LN2_SQUARED
}

/// Returns the bits per key from which a filter with `k` probes has at most this rate: Equation 1
/// solved for b. `k` below 1 is treated as 1; rates as in [`ideal_bits`].
pub fn bits_with_probes(rate: f64, k: u32) -> f64 {
    if rate.is_nan() || rate >= 1.0 {
        return 0.0;
    }
    let k = f64::from(k.max(1));
    -k / (-rate.max(f64::MIN_POSITIVE).powf(1.0 / k)).ln_1p()
}

/// Returns the minimum bits per key for this rate with any integer k up to [`MAX_PROBES`]. Rates as
/// in [`ideal_bits`].
pub fn bits_for_rate(rate: f64) -> f64 {
    (1..=MAX_PROBES).map(|k| bits_with_probes(rate, k)).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tamis_filter::theory;

    #[test]
    fn the_engine_sizes_its_filters_by_the_same_numbers() {
        for tenths in 0..=800 {
            let bits = f64::from(tenths) / 10.0;
            assert_eq!(optimal_probes(bits), theory::optimal_probes(bits));
            for k in 1..=MAX_PROBES {
                assert_eq!(rate(bits, k), theory::bloom_rate(bits, k), "{bits} bits, k = {k}");
            }
        }
        assert_eq!(optimal_probes(f64::NAN), theory::optimal_probes(f64::NAN));
    }

    #[test]
    fn published_numbers() {
        // Section 4.1: 0.819 % at 10 bits; 1 to 9 probes for 1 to 13 bits, 7 at 10.
        assert!((ideal_rate(10.0) - 0.008_19).abs() < 5e-6);
        assert!((optimal_rate(10.0) - 0.008_19).abs() < 5e-6);
        assert_eq!((optimal_probes(1.0), optimal_probes(10.0), optimal_probes(13.0)), (1, 7, 9));
        // ElasticBF, section 3.2: 0.6185^b; about 0.001 % at 24 bits.
        assert!((ideal_rate(1.0) - 0.6185).abs() < 5e-5);
        assert!((ideal_rate(24.0) - 1e-5).abs() < 5e-7);
    }

    #[test]
    fn no_integer_number_of_probes_beats_the_ideal() {
        for tenths in 1..=430 {
            let bits = f64::from(tenths) / 10.0;
            for k in 1..=MAX_PROBES {
                assert!(rate(bits, k) >= ideal_rate(bits) * (1.0 - 1e-12), "{bits} {k}");
            }
            for (from, above) in [(1.5, 1.04), (5.0, 1.015), (8.0, 1.008)] {
                assert!(bits < from || optimal_rate(bits) <= ideal_rate(bits) * above, "{bits}");
            }
        }
    }

    #[test]
    fn bits_are_the_inverse_of_rates() {
        for tenths in 1..=430 {
            let bits = f64::from(tenths) / 10.0;
            assert!((ideal_bits(ideal_rate(bits)) - bits).abs() < 1e-9 * bits.max(1.0));
            for k in 1..=MAX_PROBES {
                let there = rate(bits, k);
                if there < 0.999 && there > 1e-300 {
                    assert!((bits_with_probes(there, k) / bits - 1.0).abs() < 1e-6, "{bits} {k}");
                }
            }
            let least = bits_for_rate(optimal_rate(bits));
            assert!(least <= bits * (1.0 + 1e-9), "{bits} {least}");
        }
        assert_eq!((ideal_bits(1.0), bits_for_rate(1.0), bits_for_rate(f64::NAN)), (0.0, 0.0, 0.0));
        assert!(ideal_bits(0.0).is_finite() && bits_for_rate(0.0).is_finite());
    }

    /// A rate is the share of the k-subsets of draws that hit only set bits; here computed by
    /// enumerating all fillings of a small filter.
    #[test]
    fn the_rate_is_close_to_that_of_all_fillings_of_a_small_filter() {
        // m bits, n keys with one probe each: all m^n fillings.
        let (m, n) = (8u32, 4u32);
        let fillings = m.pow(n);
        let set: u32 = (0..fillings)
            .map(|mut f| {
                let mut bits = 0u32;
                for _ in 0..n {
                    bits |= 1 << (f % m);
                    f /= m;
                }
                bits.count_ones()
            })
            .sum();
        let exact = f64::from(set) / f64::from(fillings) / f64::from(m);
        // 1 - (1 - 1/m)^n, which Equation 1 approximates by an exponential.
        assert!((exact - (1.0 - (1.0 - 1.0 / f64::from(m)).powi(n as i32))).abs() < 1e-12);
        assert!((rate(f64::from(m) / f64::from(n), 1) - exact).abs() < 0.05 * exact);
    }
}
