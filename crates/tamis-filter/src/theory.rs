//! Expected false-positive rates: the basis for sizing the filters and for their tests.
//!
//! Pure arithmetic on `f64`; no allocation. Sources: B. Bloom, "Space/time trade-offs in hash coding with allowable
//! errors" (CACM 1970) for the standard filter; F. Putze, P. Sanders, J. Singler, "Cache-, Hash- and Space-Efficient
//! Bloom Filters" (WEA 2007), section 3, for the blocked one as a Poisson mixture of small standard filters. Here the
//! small filters get a second-order term, since at 512 bits the spread of the number of set bits is worth about 1 %.

/// Bits per one cache line of a blocked filter.
pub const LINE_BITS: u32 = 512;

/// Largest number of probes in a standard filter.
pub const MAX_PROBES: u32 = 30;

/// Largest number of probes in a blocked filter.
pub const MAX_BLOCKED_PROBES: u32 = 16;

/// Bits per key from which `i + 2` probes beat `i + 1` in a blocked filter: where the curves of
/// [`blocked_bloom_rate`] cross (a test recomputes them).
const BLOCKED_STEPS: [f64; 15] = [
    2.082, 3.584, 5.104, 6.673, 8.317, 10.057, 11.920, 13.930, 16.120, 18.522, 21.176, 24.126, 27.423,
    31.129, 35.313,
];

/// Returns the rate of a standard filter of `bits_per_key` with `k` probes: `(1 - e^(-k/b))^k`. 1 for a filter without bits.
pub fn bloom_rate(bits_per_key: f64, k: u32) -> f64 {
    if bits_per_key.is_nan() || bits_per_key <= 0.0 {
        return 1.0;
    }
    (-(-f64::from(k) / bits_per_key).exp_m1()).powi(k as i32)
}

/// Returns the number of probes that minimises [`bloom_rate`]: `b ln 2` rounded, within `1..=`[`MAX_PROBES`].
pub fn optimal_probes(bits_per_key: f64) -> u32 {
    // A float-to-integer cast saturates and maps NaN to 0, so the clamp sees every input.
    ((bits_per_key * std::f64::consts::LN_2).round() as u32).clamp(1, MAX_PROBES)
}

/// Returns the number of probes that minimises [`blocked_bloom_rate`], within `1..=`[`MAX_BLOCKED_PROBES`]; 6 at 10
/// bits per key. Fewer than in a standard filter, because crowded lines, which cause most of the false positives,
/// favour fewer.
pub fn optimal_blocked_probes(bits_per_key: f64) -> u32 {
    1 + BLOCKED_STEPS.iter().filter(|step| bits_per_key >= **step).count() as u32
}

/// Returns the rate of a blocked filter of `bits_per_key` with `k` probes and many lines: the rate of one line,
/// averaged over the Poisson-distributed number of keys in it. Costs about `512/b` steps.
pub fn blocked_bloom_rate(bits_per_key: f64, k: u32) -> f64 {
    if bits_per_key.is_nan() || bits_per_key <= 0.0 {
        return 1.0;
    }
    let load = f64::from(LINE_BITS) / bits_per_key;
    mixture(load, k, |j| load / j)
}

/// Like [`blocked_bloom_rate`] for exactly `keys` keys over `lines` lines: the load of a line is binomial, which
/// matters when there are few lines.
pub fn blocked_bloom_rate_of(keys: u64, lines: u64, k: u32) -> f64 {
    match (keys, lines) {
        (0, _) => 0.0,
        (_, 0) => 1.0,
        (n, 1) => line_rate(n as f64, k),
        (n, l) => {
            let (n, odds) = (n as f64, 1.0 / (l as f64 - 1.0));
            let load = n / l as f64;
            // ln P(no key) = n ln(1 - 1/l); the mixture starts there.
            mixture_from(n * (-1.0 / l as f64).ln_1p(), load, k, |j| (n - j + 1.0) / j * odds)
        }
    }
}

fn mixture(load: f64, k: u32, ratio: impl Fn(f64) -> f64) -> f64 {
    mixture_from(-load, load, k, ratio)
}

/// Sum over loads `j` of `P(j) * line_rate(j)`, where `ln P(0) = ln_p` and `P(j) / P(j-1) = ratio(j)`.
fn mixture_from(mut ln_p: f64, load: f64, k: u32, ratio: impl Fn(f64) -> f64) -> f64 {
    // Beyond 16 keys per bit every line is full to within 1e-6; the bound also keeps hostile trailers cheap.
    if load > 16.0 * f64::from(LINE_BITS) {
        return 1.0;
    }
    let last = load + 12.0 * load.sqrt() + 30.0;
    let (mut sum, mut j) = (0.0, 0.0);
    while j <= last {
        if j > 0.0 {
            let step = ratio(j);
            if step <= 0.0 {
                break; // a binomial ends at its number of keys
            }
            ln_p += step.ln();
        }
        sum += ln_p.exp() * line_rate(j, k);
        j += 1.0;
    }
    sum.clamp(0.0, 1.0)
}

/// Rate of one line holding `keys` keys: `E[(X/m)^k]` for the number `X` of set bits after `k * keys` throws, to
/// second order around the mean.
fn line_rate(keys: f64, k: u32) -> f64 {
    if keys <= 0.0 {
        return 0.0;
    }
    let m = f64::from(LINE_BITS);
    let throws = keys * f64::from(k);
    let clear = (throws * (-1.0 / m).ln_1p()).exp();
    let two_clear = (throws * (-2.0 / m).ln_1p()).exp();
    let fill = 1.0 - clear;
    let variance = (clear - clear * clear) / m + (1.0 - 1.0 / m) * (two_clear - clear * clear);
    let pairs = f64::from(k * (k - 1) / 2);
    (fill.powi(k as i32) * (1.0 + pairs * variance.max(0.0) / (fill * fill))).min(1.0)
}

/// Returns the bits per key for each of several runs with `keys` keys that minimise the expected false positives of
/// probing all of them, with the same total size as `bits_per_key` everywhere. The rate of a run becomes proportional
/// to its size (N. Dayan, M. Athanassoulis, S. Idreos, "Monkey: Optimal Navigable Key-Value Store", SIGMOD 2017,
/// section 4, there for whole levels). A run whose rate would reach 1 gets no filter and its bits go to the others;
/// no run gets more than 64. Runs without keys get 0. O(n log n).
pub fn monkey(keys: &[u64], bits_per_key: f64) -> Vec<f64> {
    const LN2_SQUARED: f64 = std::f64::consts::LN_2 * std::f64::consts::LN_2;
    let mut bits = vec![0.0; keys.len()];
    if bits_per_key.is_nan() || bits_per_key <= 0.0 {
        return bits;
    }
    let mut order: Vec<usize> = (0..keys.len()).filter(|&run| keys[run] > 0).collect();
    order.sort_unstable_by_key(|&run| keys[run]);
    // With rate p = s*n, `s` follows from  sum of n * -ln(s*n) = budget * (ln 2)^2.
    let budget = LN2_SQUARED * bits_per_key * order.iter().map(|&run| keys[run] as f64).sum::<f64>();
    let mut sum: f64 = order.iter().map(|&run| keys[run] as f64).sum();
    let mut weighted: f64 = order.iter().map(|&run| keys[run] as f64 * (keys[run] as f64).ln()).sum();
    while let Some(&largest) = order.last() {
        let n = keys[largest] as f64;
        let ln_s = -(budget + weighted) / sum;
        if ln_s + n.ln() < 0.0 {
            for &run in &order {
                bits[run] = (-(ln_s + (keys[run] as f64).ln()) / LN2_SQUARED).min(64.0);
            }
            break;
        }
        order.pop();
        sum -= n;
        weighted -= n * n.ln();
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn textbook_rates() {
        assert!((bloom_rate(10.0, 7) - 0.008_194).abs() < 1e-5);
        assert_eq!(optimal_probes(10.0), 7);
        assert_eq!(optimal_probes(0.1), 1);
        assert_eq!(optimal_probes(64.0), 30);
        assert_eq!(optimal_probes(f64::NAN), 1);
        assert_eq!(bloom_rate(0.0, 3), 1.0);
    }

    #[test]
    fn blocking_costs_a_little_and_wants_fewer_probes() {
        let blocked = blocked_bloom_rate(10.0, 6);
        assert!((0.0094..0.0099).contains(&blocked), "{blocked}");
        assert_eq!(optimal_blocked_probes(10.0), 6);
        for bits in 1..=20 {
            let b = f64::from(bits);
            assert!(
                blocked_bloom_rate(b, optimal_blocked_probes(b)) >= bloom_rate(b, optimal_probes(b)) * 0.99
            );
        }
    }

    #[test]
    fn the_probe_table_is_where_the_curves_cross() {
        for (i, &step) in BLOCKED_STEPS.iter().enumerate() {
            let k = i as u32 + 1;
            assert!(
                blocked_bloom_rate(step - 0.003, k) < blocked_bloom_rate(step - 0.003, k + 1),
                "below {step}"
            );
            assert!(
                blocked_bloom_rate(step + 0.003, k) > blocked_bloom_rate(step + 0.003, k + 1),
                "above {step}"
            );
        }
    }

    #[test]
    fn binomial_tends_to_poisson_and_ends_well() {
        let (keys, lines) = (1_000_000, 19_532);
        let exact = blocked_bloom_rate_of(keys, lines, 6);
        let poisson = blocked_bloom_rate(lines as f64 * 512.0 / keys as f64, 6);
        assert!((exact / poisson - 1.0).abs() < 0.005, "{exact} {poisson}");
        assert_eq!(blocked_bloom_rate_of(0, 5, 6), 0.0);
        assert!(blocked_bloom_rate_of(u64::MAX, u64::MAX, 6) < 1e-6);
        assert_eq!(blocked_bloom_rate_of(u64::MAX, 2, 6), 1.0);
        assert!((blocked_bloom_rate_of(10_000, 1, 6) - 1.0).abs() < 1e-9);
        // Two keys over two lines: half of the time they share a line.
        let two = blocked_bloom_rate_of(2, 2, 1);
        assert!((two - 1.0 / 512.0).abs() < 1e-5, "{two}");
    }

    #[test]
    fn monkey_beats_every_neighbouring_division_of_the_same_bits() {
        let rate = |bits: f64| (-bits * std::f64::consts::LN_2.powi(2)).exp();
        for (keys, budget) in [
            (vec![1_000, 10_000, 100_000, 1_000_000], 10.0),
            (vec![1_000_000, 7, 7, 40_000], 2.0),
            (vec![500, 500], 5.0),
            (vec![1_000, 0, 1_000_000_000], 0.1),
        ] {
            let bits = monkey(&keys, budget);
            let spent: f64 = keys.iter().zip(&bits).map(|(&n, b)| n as f64 * b).sum();
            let all = budget * keys.iter().sum::<u64>() as f64;
            assert!(spent <= all * (1.0 + 1e-9), "{keys:?}: {bits:?}");
            // What the cap of 64 bits takes from the largest is not spent; otherwise all is.
            assert!(bits.contains(&64.0) || spent >= all * (1.0 - 1e-9), "{keys:?}: {bits:?}");
            let sum = |bits: &[f64]| -> f64 {
                keys.iter().zip(bits).filter(|(n, _)| **n > 0).map(|(_, &b)| rate(b)).sum()
            };
            for (from, to) in [(0, 1), (1, 0), (0, keys.len() - 1), (keys.len() - 1, 0)] {
                let moved = (bits[from] * keys[from] as f64).min(all * 0.01);
                if keys[to] == 0 || moved == 0.0 || bits[to] == 64.0 {
                    continue;
                }
                let mut other = bits.clone();
                other[from] -= moved / keys[from] as f64;
                other[to] += moved / keys[to] as f64;
                assert!(sum(&other) >= sum(&bits) * (1.0 - 1e-9), "{keys:?}: {bits:?} against {other:?}");
            }
        }
        assert_eq!(monkey(&[], 10.0), Vec::<f64>::new());
        assert_eq!(monkey(&[5, 0], f64::NAN), [0.0, 0.0]);
    }
}
