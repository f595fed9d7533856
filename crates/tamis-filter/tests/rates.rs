//! Measured false-positive rates against theory. Everything is seeded by counters, so a run repeats
//! exactly. Hundreds of rates are compared, among which deviations of three standard deviations do
//! occur: the numbers of queries put the tolerance at four, except for the few rates so low that
//! this would take most of the time.

use tamis_filter::{BlockedBloom, Bloom, BloomScheme, Digest, IndependentDigests, theory};

fn member(i: u64) -> Digest {
    Digest::of(&i.to_le_bytes())
}

/// Returns digests of absent keys: uniform, from their own mixer, because hashing would dominate
/// the tests' time.
fn stranger(i: u64) -> Digest {
    let x = (i + 1).wrapping_mul(0x6eed_0e9d_a4d9_4a4f);
    let x = (x ^ (x >> 32)).wrapping_mul(0x6eed_0e9d_a4d9_4a4f);
    Digest::from_u64(x ^ (x >> 29))
}

fn members(n: u64) -> Vec<Digest> {
    (0..n).map(member).collect()
}

/// Returns the number of queries after which a rate of `p` is known within `tolerance` at four
/// standard deviations (three for the lowest).
fn queries(p: f64, tolerance: f64) -> u64 {
    let deviations: f64 = if p < 4e-4 { 3.0 } else { 4.0 };
    ((deviations / tolerance).powi(2) / p).ceil() as u64
}

fn measure(n: u64, contains: impl Fn(Digest) -> bool) -> f64 {
    (0..n).filter(|&i| contains(stranger(i))).count() as f64 / n as f64
}

/// Returns the number of filters (salts) to average over: one filter of few keys is itself a random
/// draw, off by a few percent.
fn draws(keys: u64) -> u64 {
    (200_000 / keys).max(1)
}

/// Returns the rate over all draws of a filter, with as many queries as its `theory` needs for
/// `tolerance`.
fn averaged(draws: u64, theory: f64, tolerance: f64, rate: impl Fn(u64, u64) -> f64) -> f64 {
    let each = queries(theory, tolerance).div_ceil(draws);
    (0..draws).map(|salt| rate(salt, each)).sum::<f64>() / draws as f64
}

fn standard_within_five_percent(keys: u64, scheme: BloomScheme, bits: impl Iterator<Item = u32>) {
    let digests = members(keys);
    for b in bits {
        let build = |salt| Bloom::build(&digests, f64::from(b), scheme, salt).unwrap();
        let theory = build(0).expected_rate();
        let rate = averaged(draws(keys), theory, 0.05, |salt, n| {
            let filter = build(salt);
            measure(n, |d| filter.contains(d))
        });
        let off = rate / theory - 1.0;
        assert!(off.abs() < 0.05, "{scheme:?} {keys} keys {b} b/key: {rate} against {theory}");
    }
}

#[test]
fn rotation_meets_theory_on_ten_thousand_keys() {
    standard_within_five_percent(10_000, BloomScheme::Rotation, 1..=20);
}

#[test]
fn rotation_meets_theory_on_a_million_keys() {
    standard_within_five_percent(1_000_000, BloomScheme::Rotation, 1..=20);
}

#[test]
fn double_hashing_meets_theory() {
    standard_within_five_percent(10_000, BloomScheme::DoubleHashing, 1..=16);
    standard_within_five_percent(1_000_000, BloomScheme::DoubleHashing, [4, 10, 16].into_iter());
}

#[test]
fn independent_hashing_meets_theory() {
    for b in [1u32, 5, 10, 13] {
        let k = theory::optimal_probes(f64::from(b));
        let key = |i: u64| IndependentDigests::of(&i.to_le_bytes(), k);
        let keys: Vec<_> = (0..10_000).map(key).collect();
        let filter = Bloom::build_independent(keys.into_iter(), f64::from(b), 1).unwrap();
        let theory = filter.expected_rate();
        let n = queries(theory, 0.05);
        let hits = (0..n).filter(|i| filter.contains_independent(&key(i + (1 << 40))).unwrap()).count();
        let rate = hits as f64 / n as f64;
        assert!((rate / theory - 1.0).abs() < 0.05, "{b} b/key: {rate} against {theory}");
    }
}

#[test]
fn blocked_meets_theory() {
    for keys in [10_000, 1_000_000] {
        let digests = members(keys);
        for b in 1..=20 {
            let build = |salt| BlockedBloom::build(&digests, f64::from(b), salt).unwrap();
            let theory = build(0).expected_rate();
            let rate = averaged(draws(keys), theory, 0.08, |salt, n| {
                let filter = build(salt);
                measure(n, |d| filter.contains(d))
            });
            assert!((rate / theory - 1.0).abs() < 0.10, "{keys} keys {b} b/key: {rate} against {theory}");
        }
    }
}

#[test]
fn blocked_at_ten_bits_stays_below_one_percent() {
    let filter = BlockedBloom::build(&members(300_000), 10.0, 0).unwrap();
    assert_eq!(filter.probes(), 6);
    assert!(measure(400_000, |d| filter.contains(d)) < 0.0101);
}

/// Runs share one digest per key. With neighbouring salts, whether sizes are equal or not, a key
/// that fools one must be no likelier to fool the other.
#[test]
fn false_positives_of_runs_that_share_a_digest_are_independent() {
    let digests = members(60_000);
    let n = 1_000_000;
    for (size_a, size_b) in [(60_000, 60_000), (60_000, 6_000), (60_000, 20_001)] {
        for (salt_a, salt_b) in [(0, 1), (1, 2), (41, 42), (7, 1 << 63)] {
            let build = |size: usize, salt| BlockedBloom::build(&digests[..size], 4.0, salt).unwrap();
            let (a, b) = (build(size_a, salt_a), build(size_b, salt_b));
            joint(n, |d| a.contains(d), |d| b.contains(d), &format!("{size_a} {size_b} {salt_a} {salt_b}"));
        }
        let build =
            |size: usize, salt| Bloom::build(&digests[..size], 4.0, BloomScheme::Rotation, salt).unwrap();
        let (a, b) = (build(size_a, 1), build(size_b, 2));
        joint(n, |d| a.contains(d), |d| b.contains(d), &format!("rotation {size_a} {size_b}"));
    }
}

fn joint(n: u64, a: impl Fn(Digest) -> bool, b: impl Fn(Digest) -> bool, what: &str) {
    let (mut in_a, mut in_b, mut both) = (0u64, 0u64, 0u64);
    for d in (0..n).map(stranger) {
        let (x, y) = (a(d), b(d));
        in_a += u64::from(x);
        in_b += u64::from(y);
        both += u64::from(x & y);
    }
    let expected = in_a as f64 * in_b as f64 / n as f64;
    // `expected` is about 20,000 joint hits, so four standard deviations are 3 %.
    let tolerance = 4.0 / expected.sqrt();
    assert!((both as f64 / expected - 1.0).abs() < tolerance, "{what}: {both} joint, {expected} expected");
}

/// The purpose of the salt: without it, equal runs err together.
#[test]
fn one_salt_for_two_runs_correlates_their_false_positives() {
    let digests = members(40_000);
    let a = BlockedBloom::build(&digests[..20_000], 4.0, 3).unwrap();
    let b = BlockedBloom::build(&digests[..20_400], 4.0, 3).unwrap();
    let n = 200_000;
    let both = measure(n, |d| a.contains(d) && b.contains(d));
    let product = measure(n, |d| a.contains(d)) * measure(n, |d| b.contains(d));
    assert!(both > 1.05 * product, "{both} {product}");
}
