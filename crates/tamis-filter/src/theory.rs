//! Expected false-positive rates: the basis for sizing the filters and for their tests.
//!
//! Pure arithmetic on `f64`; no allocation. Sources: B. Bloom, "Space/time trade-offs in hash
//! coding with allowable errors" (CACM 1970) for the standard filter; F. Putze, P. Sanders, J.
//! Singler, "Cache-, Hash- and Space-Efficient Bloom Filters" (WEA 2007), section 3, for the
//! blocked one as a Poisson mixture of small standard filters. Here the small filters get a
//! second-order term, since at 512 bits the spread of the number of set bits is worth about 1 %.

/// Bits per one cache line of a blocked filter.
pub const LINE_BITS: u32 = 512;

/// Bits of the block of one unit that a key's bits lie in, where units are interleaved.
pub const INTERLEAVED_BITS: u32 = 256;

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

/// Returns the rate of a standard filter of `bits_per_key` with `k` probes: `(1 - e^(-k/b))^k`. 1
/// for a filter without bits.
pub fn bloom_rate(bits_per_key: f64, k: u32) -> f64 {
    if bits_per_key.is_nan() || bits_per_key <= 0.0 {
        return 1.0;
    }
    (-(-f64::from(k) / bits_per_key).exp_m1()).powi(k as i32)
}

/// Returns the number of probes that minimises [`bloom_rate`]: `b ln 2` rounded, within
/// `1..=`[`MAX_PROBES`].
pub fn optimal_probes(bits_per_key: f64) -> u32 {
    // A float-to-integer cast saturates and maps NaN to 0, so the clamp sees every input.
    ((bits_per_key * std::f64::consts::LN_2).round() as u32).clamp(1, MAX_PROBES)
}

/// Returns the number of probes that minimises [`blocked_bloom_rate`], within
/// `1..=`[`MAX_BLOCKED_PROBES`]; 6 at 10 bits per key. Fewer than in a standard filter, because
/// crowded lines, which cause most of the false positives, favour fewer.
pub fn optimal_blocked_probes(bits_per_key: f64) -> u32 {
    1 + BLOCKED_STEPS.iter().filter(|step| bits_per_key >= **step).count() as u32
}

/// Returns the rate of a blocked filter of `bits_per_key` with `k` probes and many lines: the rate
/// of one line, averaged over the Poisson-distributed number of keys in it. Costs about `512/b`
/// steps.
pub fn blocked_bloom_rate(bits_per_key: f64, k: u32) -> f64 {
    if bits_per_key.is_nan() || bits_per_key <= 0.0 {
        return 1.0;
    }
    let load = f64::from(LINE_BITS) / bits_per_key;
    mixture(load, k, |j| load / j)
}

/// Like [`blocked_bloom_rate`] for exactly `keys` keys over `lines` lines: the load of a line is
/// binomial, which matters when there are few lines.
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

/// Returns the rates of 0, 1, … `units` units of `bits_per_key` with `k` probes each whose bits for
/// one key lie side by side in one block of [`INTERLEAVED_BITS`] of each unit: as the units share
/// the load of a block, a crowded one is crowded in all of them, and the joint rate is the mean of
/// a power, not the power of the mean (5 % more bits at six units of three). Costs about `256/b`
/// steps.
pub fn interleaved_rates(bits_per_key: f64, k: u32, units: u32) -> Vec<f64> {
    let mut rates = vec![0.0; units as usize + 1];
    if bits_per_key.is_nan() || bits_per_key <= 0.0 {
        return vec![1.0; units as usize + 1];
    }
    let load = f64::from(INTERLEAVED_BITS) / bits_per_key;
    each_load(
        INTERLEAVED_BITS,
        -load,
        load,
        k,
        |j| load / j,
        |chance, rate| {
            let mut all = chance;
            for joint in &mut rates {
                *joint += all;
                all *= rate;
            }
        },
    );
    rates.iter_mut().for_each(|rate| *rate = rate.clamp(0.0, 1.0));
    rates[0] = 1.0;
    rates
}

fn mixture(load: f64, k: u32, ratio: impl Fn(f64) -> f64) -> f64 {
    mixture_from(-load, load, k, ratio)
}

/// Sum over loads `j` of `P(j) * line_rate(j)`, where `ln P(0) = ln_p` and `P(j) / P(j-1) =
/// ratio(j)`.
fn mixture_from(ln_p: f64, load: f64, k: u32, ratio: impl Fn(f64) -> f64) -> f64 {
    let mut sum = 0.0;
    each_load(LINE_BITS, ln_p, load, k, ratio, |chance, rate| sum += chance * rate);
    sum.clamp(0.0, 1.0)
}

/// Calls `add` with `P(j)` and the rate of a block of `bits` for every load `j` that occurs.
fn each_load(
    bits: u32,
    mut ln_p: f64,
    load: f64,
    k: u32,
    ratio: impl Fn(f64) -> f64,
    mut add: impl FnMut(f64, f64),
) {
    // Beyond 16 keys per bit every line is full to within 1e-6; the bound also keeps hostile
    // trailers cheap.
    if load > 16.0 * f64::from(bits) {
        return add(1.0, 1.0);
    }
    let last = load + 12.0 * load.sqrt() + 30.0;
    let mut j = 0.0;
    while j <= last {
        if j > 0.0 {
            let step = ratio(j);
            if step <= 0.0 {
                break; // a binomial ends at its number of keys
            }
            ln_p += step.ln();
        }
        add(ln_p.exp(), block_rate(bits, j, k));
        j += 1.0;
    }
}

/// [`block_rate`] of a cache line.
fn line_rate(keys: f64, k: u32) -> f64 {
    block_rate(LINE_BITS, keys, k)
}

/// Rate of one block of `bits` holding `keys` keys: `E[(X/m)^k]` for the number `X` of set bits
/// after `k * keys` throws, to second order around the mean.
fn block_rate(bits: u32, keys: f64, k: u32) -> f64 {
    if keys <= 0.0 {
        return 0.0;
    }
    let m = f64::from(bits);
    let throws = keys * f64::from(k);
    let clear = (throws * (-1.0 / m).ln_1p()).exp();
    let two_clear = (throws * (-2.0 / m).ln_1p()).exp();
    let fill = 1.0 - clear;
    let variance = (clear - clear * clear) / m + (1.0 - 1.0 / m) * (two_clear - clear * clear);
    let pairs = f64::from(k * (k - 1) / 2);
    (fill.powi(k as i32) * (1.0 + pairs * variance.max(0.0) / (fill * fill))).min(1.0)
}

/// `(ln 2)^2`: a filter of `b` bits per key lets `e^(-b (ln 2)^2)` of all absent keys pass.
const LN2_SQUARED: f64 = std::f64::consts::LN_2 * std::f64::consts::LN_2;

/// The most bits per key that [`monkey`] and [`mnemosyne`] give a filter.
const MOST_BITS: f64 = 64.0;

/// Returns the bits per key for each of several runs with `keys` keys that minimise the expected
/// false positives of probing all of them, with the same total size as `bits_per_key` everywhere.
/// The rate of a run becomes proportional to its size (N. Dayan, M. Athanassoulis, S. Idreos,
/// "Monkey: Optimal Navigable Key-Value Store", SIGMOD 2017, section 4, there for whole levels). A
/// run whose rate would reach 1 gets no filter and its bits go to the others; no run gets more than
/// 64. Runs without keys get 0. O(n log n).
pub fn monkey(keys: &[u64], bits_per_key: f64) -> Vec<f64> {
    mnemosyne(keys, &vec![1.0; keys.len()], bits_per_key)
}

/// Returns the bits per key for each of several tables with `keys` keys, which are asked for absent
/// keys `misses` times in any unit (say, per get), that minimise the expected false positives, with
/// the same total size as `bits_per_key` everywhere. The rate of a table becomes proportional to
/// its keys per miss (Z. Zhu, Y. Wei, J. H. Mun, M. Athanassoulis, "Mnemosyne: Dynamic
/// Workload-Aware BF Tuning via Accurate Statistics in LSM trees", PACMMOD 3(3), 2025). A table
/// whose rate would reach 1 gets no filter and its bits go to the others; no table gets more than
/// 64. Tables without keys or misses get 0. With equal misses this is [`monkey`]. O(n log n).
///
/// # Panics
///
/// Panics if `keys` and `misses` differ in length.
pub fn mnemosyne(keys: &[u64], misses: &[f64], bits_per_key: f64) -> Vec<f64> {
    let division = Division::of(keys, misses, bits_per_key);
    keys.iter()
        .zip(misses)
        .map(|(&keys, &misses)| division.bits(keys as f64, misses).min(MOST_BITS))
        .collect()
}

/// Returns the false positives that remain if each of several segments with `keys` keys, asked for
/// absent keys `misses` times, may have any real number of bits per key, `bits_per_key` on average:
/// the sum of `misses * min(1, s * keys / misses)` for the `s` that uses up the bits. In the unit
/// of `misses`: of lookups per get it makes wasted reads per get.
///
/// It is a lower bound for every placement of standard filters over these segments, of whole units
/// (ElasticBF) or of any other granularity: the rate is convex in the bits, so this division, which
/// follows from one Lagrange multiplier, is the best (the same problem as in [`mnemosyne`], without
/// its cap of 64 bits). O(n log n).
///
/// # Panics
///
/// Panics if `keys` and `misses` differ in length.
pub fn continuous(keys: &[u64], misses: &[f64], bits_per_key: f64) -> f64 {
    let division = Division::of(keys, misses, bits_per_key);
    let wasted = keys.iter().zip(misses).filter(|(_, misses)| **misses > 0.0);
    wasted.map(|(&keys, &misses)| misses * division.rate(keys as f64, misses)).sum()
}

/// The best division of filter memory between tables: the common factor `s` of their rates, `s *
/// keys / misses`. It also tells the bits of tables that were not among those it was computed from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Division {
    ln_s: f64,
}

impl Division {
    /// Divides `bits_per_key` per key between tables of `keys` keys that are asked for absent keys
    /// `misses` times. See [`mnemosyne`].
    ///
    /// # Panics
    ///
    /// Panics if `keys` and `misses` differ in length.
    pub fn of(keys: &[u64], misses: &[f64], bits_per_key: f64) -> Division {
        assert_eq!(keys.len(), misses.len(), "each table has its keys and its misses");
        let none = Division { ln_s: f64::INFINITY };
        if bits_per_key.is_nan() || bits_per_key <= 0.0 {
            return none;
        }
        let mut order: Vec<(f64, f64)> = keys
            .iter()
            .zip(misses)
            .filter(|(keys, misses)| **keys > 0 && **misses > 0.0 && misses.is_finite())
            .map(|(&keys, &misses)| (keys as f64, keys as f64 / misses))
            .collect();
        order.sort_unstable_by(|a, b| a.1.total_cmp(&b.1));
        // With rate p = s*r for r = n/z, `s` follows from  sum of n * -ln(s*r) = budget * (ln 2)^2.
        let budget = LN2_SQUARED * bits_per_key * keys.iter().map(|&n| n as f64).sum::<f64>();
        let mut sum: f64 = order.iter().map(|(n, _)| n).sum();
        let mut weighted: f64 = order.iter().map(|(n, ratio)| n * ratio.ln()).sum();
        while let Some(&(n, ratio)) = order.last() {
            let ln_s = -(budget + weighted) / sum;
            if ln_s + ratio.ln() < 0.0 {
                return Division { ln_s };
            }
            order.pop();
            sum -= n;
            weighted -= n * ratio.ln();
        }
        none
    }

    /// Returns the bits per key of a table; 0 if it is better off without a filter.
    pub fn bits(&self, keys: f64, misses: f64) -> f64 {
        if keys > 0.0 && misses > 0.0 { (-self.ln_rate(keys, misses) / LN2_SQUARED).max(0.0) } else { 0.0 }
    }

    /// Returns the false-positive rate of a table with these [`bits`](Self::bits).
    pub fn rate(&self, keys: f64, misses: f64) -> f64 {
        match (keys > 0.0, misses > 0.0) {
            (false, _) => 0.0,
            (true, false) => 1.0,
            (true, true) => self.ln_rate(keys, misses).min(0.0).exp(),
        }
    }

    fn ln_rate(&self, keys: f64, misses: f64) -> f64 {
        self.ln_s + (keys / misses).ln()
    }
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

    /// Wasted lookups of a division.
    fn wasted(misses: &[f64], bits: &[f64]) -> f64 {
        misses.iter().zip(bits).map(|(z, bits)| z * (-bits * LN2_SQUARED).exp()).sum()
    }

    #[test]
    fn mnemosyne_is_the_best_division_on_a_fine_grid() {
        // Four tables; the last of each case is better off without a filter.
        for (keys, misses, budget) in [
            ([100u64, 100, 400, 100], [1.0, 0.1, 0.5, 1e-4], 4.0),
            ([10, 1_000, 200, 5_000], [1.0, 1.0, 3.0, 0.01], 2.0),
            ([50, 50, 50, 50], [1.0, 2.0, 4.0, 1e-3], 1.0),
        ] {
            let bits = mnemosyne(&keys, &misses, budget);
            let all = budget * keys.iter().sum::<u64>() as f64;
            let spent: f64 = keys.iter().zip(&bits).map(|(&n, b)| n as f64 * b).sum();
            assert!((spent / all - 1.0).abs() < 1e-9, "{keys:?}: {bits:?}");
            assert_eq!(bits[3], 0.0, "{keys:?}: {bits:?}");
            let best = wasted(&misses, &bits);
            assert!((continuous(&keys, &misses, budget) / best - 1.0).abs() < 1e-9);
            // Every division of the memory into sixtieths.
            const PARTS: usize = 60;
            let (mut grid, mut divisions) = (f64::INFINITY, 0);
            for a in 0..=PARTS {
                for b in 0..=PARTS - a {
                    for c in 0..=PARTS - a - b {
                        let parts = [a, b, c, PARTS - a - b - c];
                        let of = |i: usize| parts[i] as f64 / PARTS as f64 * all / keys[i] as f64;
                        grid = grid.min(wasted(&misses, &[of(0), of(1), of(2), of(3)]));
                        divisions += 1;
                    }
                }
            }
            assert!(divisions > 30_000);
            assert!(best <= grid * (1.0 + 1e-9), "{keys:?}: {best} against {grid}");
            assert!(grid < best * 1.1, "the grid comes near it: {best} against {grid}");
        }
    }

    #[test]
    fn mnemosyne_of_equal_accesses_is_monkey() {
        // Three runs of which each get asks one table: the tables of a run share its gets by their
        // keys.
        let runs = [1_000u64, 12_000, 300_000];
        let tables = [1u64, 4, 30];
        let per_run = monkey(&runs, 5.0);
        let (mut keys, mut misses) = (Vec::new(), Vec::new());
        for (run, count) in runs.iter().zip(tables) {
            for _ in 0..count {
                keys.push(run / count);
                misses.push(1.0 / count as f64);
            }
        }
        let mut bits = mnemosyne(&keys, &misses, 5.0).into_iter();
        for (run, count) in per_run.iter().zip(tables) {
            for bits in bits.by_ref().take(count as usize) {
                assert!((bits - run).abs() < 1e-9, "{bits} and {run}");
            }
        }
        // The unit of accesses does not matter.
        let thousand: Vec<f64> = misses.iter().map(|z| z * 1e3).collect();
        let (one, other) = (mnemosyne(&keys, &misses, 5.0), mnemosyne(&keys, &thousand, 5.0));
        assert!(one.iter().zip(&other).all(|(a, b)| (a - b).abs() < 1e-9), "{one:?} {other:?}");
    }

    #[test]
    fn the_continuous_bound_is_below_uniform_bits_and_below_whole_units() {
        // Segments with hotness as of a Zipf distribution.
        let keys = vec![500u64; 64];
        let misses: Vec<f64> = (1..=64).map(|rank| 1.0 / f64::from(rank)).collect();
        let all: f64 = misses.iter().sum();
        let mut last = all;
        for bits in [0.5, 1.0, 2.0, 4.0, 8.0] {
            let bound = continuous(&keys, &misses, bits);
            assert!(bound < last && bound < all * (-bits * LN2_SQUARED).exp(), "{bits}: {bound}");
            last = bound;
            // Units of three bits, each put where it saves most until the same memory is used up.
            let mut units = vec![0.0; keys.len()];
            for _ in 0..(bits * keys.len() as f64 / 3.0) as usize {
                let gain = |i: &usize| misses[*i] * (-units[*i] * LN2_SQUARED).exp();
                let best = (0..keys.len()).max_by(|a, b| gain(a).total_cmp(&gain(b))).unwrap();
                units[best] += 3.0;
            }
            assert!(wasted(&misses, &units) >= bound * (1.0 - 1e-9), "{bits}");
        }
        assert_eq!(continuous(&keys, &misses, 0.0), all, "no filter stops anything without bits");
        assert!((continuous(&[500, 500], &[2.0, 2.0], 4.0) - 4.0 * (-4.0 * LN2_SQUARED).exp()).abs() < 1e-12);
    }

    #[test]
    fn odd_tables_are_divided_too() {
        assert_eq!(mnemosyne(&[], &[], 10.0), Vec::<f64>::new());
        assert_eq!(mnemosyne(&[5, 5], &[1.0, 1.0], f64::NAN), [0.0, 0.0]);
        assert_eq!(mnemosyne(&[5, 0, 5], &[1.0, 1.0, 0.0], 10.0), [20.0, 0.0, 0.0]);
        assert_eq!(mnemosyne(&[5, 1_000_000], &[1.0, 0.0], 10.0), [MOST_BITS, 0.0]);
        assert_eq!(mnemosyne(&[5, 5], &[0.0, 0.0], 10.0), [0.0, 0.0]);
        assert_eq!(continuous(&[5, 0], &[0.0, 3.0], 10.0), 0.0, "an absent table wastes nothing");
    }
}
