//! Test helpers common to all integer filters made of nodes.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::Verify;
use crate::format::WordFilter;
use crate::keys::{KeyList, KeyRange};
use crate::range::{IntegerProbe, Next, RangeFilter, RangeSpec};
use crate::words::Words;

/// Returns key number `i` of a uniform set; each `stream` is a different set.
pub(crate) fn uniform(stream: u64, i: u64) -> u64 {
    super::hash(stream.wrapping_mul(0x5851_f42d_4c95_7f2d), 9, i)
}

pub(crate) fn uniform_keys(n: u64) -> Vec<u64> {
    let mut keys: Vec<u64> = (0..n).map(|i| uniform(1, i)).collect();
    keys.sort_unstable();
    keys
}

/// Generates adversarial keys: at both ends, dense, clustered, with trailing zeros, repeated.
pub(crate) fn key_sets() -> impl Strategy<Value = Vec<u64>> {
    let key = prop_oneof![any::<u64>(), 0..300u64, u64::MAX - 300..=u64::MAX, Just(0), Just(u64::MAX)];
    let loose = prop::collection::vec(key, 0..60);
    let dense = (any::<u64>(), 0u64..400, 1u64..4)
        .prop_map(|(start, n, step)| (0..n).map(|i| start.wrapping_add(i * step)).collect::<Vec<_>>());
    let high = (prop::collection::vec(any::<u64>(), 0..60), 0u32..64)
        .prop_map(|(keys, shift)| keys.into_iter().map(|key| key >> shift << shift).collect::<Vec<_>>());
    let paths = (any::<u64>(), 0u32..64).prop_map(|(key, n)| (0..n).map(|bit| key ^ 1 << bit).collect());
    (prop_oneof![loose, dense, high, paths], any::<bool>()).prop_map(|(mut keys, twice)| {
        if twice {
            keys.extend_from_within(..);
        }
        keys
    })
}

/// Checks that no key is rejected, alone or in any range, and that empty filters and reversed
/// ranges yield nothing.
pub(crate) fn holds<W: Words, F: WordFilter<W> + IntegerProbe>(filter: &F, keys: &[u64]) {
    assert_eq!(filter.head().keys, keys.len() as u64);
    for (i, &key) in keys.iter().enumerate() {
        assert!(filter.contains(key), "{key:#x}");
        let (near, far) = (uniform(2, i as u64) % 100, uniform(3, i as u64) >> (i % 64));
        for below in [0, 1, near, far, key] {
            for above in [0, 1, near, far, u64::MAX - key] {
                let (first, last) = (key.saturating_sub(below), key.saturating_add(above));
                assert!(filter.contains_range(first, last), "{key:#x} in {first:#x}..={last:#x}");
            }
        }
        if key > 0 {
            assert!(!filter.contains_range(key, key - 1));
        }
    }
    assert!(!filter.contains_range(u64::MAX, 0));
    if keys.is_empty() {
        assert!(!filter.contains_range(0, u64::MAX) && !filter.contains(0) && !filter.contains(u64::MAX));
        assert_eq!(filter.next(0), Next::Nothing);
        assert_eq!(filter.expected_rate(5), Some(0.0));
    } else {
        assert!(filter.contains_range(0, u64::MAX));
    }
}

/// Checks that the filter of `spec`, serialized and opened both ways, still gives the same answers.
pub(crate) fn round_trips(spec: RangeSpec, keys: &[u64], bits_per_key: f64) -> Result<(), TestCaseError> {
    let bytes: Vec<[u8; 8]> = keys.iter().map(|key| key.to_be_bytes()).collect();
    let list: KeyList = bytes.iter().map(|key| &key[..]).collect();
    let distinct: BTreeSet<u64> = keys.iter().copied().collect();
    let filter = RangeFilter::build(spec, &list, bits_per_key, 7, Verify::Yes).unwrap();
    prop_assert_eq!(filter.keys(), distinct.len() as u64);
    let bytes = filter.to_bytes();
    let opened = RangeFilter::open(&bytes).unwrap();
    let view = RangeFilter::open_view(&bytes).unwrap();
    prop_assert_eq!(opened.to_bytes(), bytes.clone());
    for i in 0..200u64 {
        let (at, len) = (uniform(4, i) >> (i % 64), uniform(5, i) >> (i % 60));
        let near = keys.get(i as usize % keys.len().max(1)).map_or(at, |key| key.wrapping_add(i % 7));
        for first in [at, near] {
            let (first, last) = (first.to_be_bytes(), first.saturating_add(len).to_be_bytes());
            let range = KeyRange::closed(&first, &last);
            let answer = filter.contains_range(range);
            prop_assert_eq!(opened.contains_range(range), answer);
            prop_assert_eq!(view.contains_range(range), answer);
        }
    }
    for cut in [0, 8, bytes.len() / 2] {
        prop_assert!(RangeFilter::open(&bytes[cut + 1..]).is_err());
    }
    Ok(())
}

/// Returns words as bytes.
pub(crate) fn bytes_of(words: &[u64]) -> Vec<[u8; 8]> {
    words.iter().map(|word| word.to_le_bytes()).collect()
}

/// Probes a filter, made of arbitrary words, with everything.
pub(crate) fn exercise<F: IntegerProbe>(filter: &F) {
    for i in 0..20u64 {
        let (at, len) = (uniform(6, i) >> (i * 3), uniform(7, i) >> (i * 3));
        filter.contains(at);
        filter.contains_range(at, at.saturating_add(len));
        filter.contains_range(at, at.saturating_add(i));
        if let Some(rate) = filter.expected_rate(len) {
            assert!((0.0..=1.0 + 1e-9).contains(&rate), "{rate}");
        }
    }
    filter.contains(u64::MAX);
    filter.contains_range(0, u64::MAX);
    filter.contains_range(u64::MAX - 70, u64::MAX);
    let _ = filter.next(3);
}

/// Returns the false-positive rate for `queries` uniformly drawn ranges of `len` numbers.
pub(crate) fn rate_far(filter: &impl IntegerProbe, keys: &[u64], len: u64, queries: u64) -> f64 {
    rate_of(filter, keys, (0..queries).map(|i| (uniform(8, i).min(u64::MAX - len), len)))
}

/// The same for ranges that start 1 to `distance` above a key.
pub(crate) fn rate_near(
    filter: &impl IntegerProbe,
    keys: &[u64],
    distance: u64,
    len: u64,
    queries: u64,
) -> f64 {
    let start = |i| {
        let key = keys[(uniform(9, i) % keys.len() as u64) as usize];
        key.saturating_add(1 + uniform(10, i) % distance).min(u64::MAX - len)
    };
    rate_of(filter, keys, (0..queries).map(|i| (start(i), len)))
}

/// The same for ranges given by start and length; ranges that hold a key are excluded.
pub(crate) fn rate_of(
    filter: &impl IntegerProbe,
    keys: &[u64],
    ranges: impl Iterator<Item = (u64, u64)>,
) -> f64 {
    let (mut asked, mut affirmed) = (0u64, 0u64);
    for (first, len) in ranges {
        let last = first + (len - 1);
        let next = keys.partition_point(|key| *key < first);
        if keys.get(next).is_none_or(|key| *key > last) {
            asked += 1;
            affirmed += u64::from(filter.contains_range(first, last));
        }
    }
    affirmed as f64 / asked as f64
}

/// Generates words to change, and the bits to change in them.
pub(crate) fn damage() -> impl Strategy<Value = Vec<(usize, u64)>> {
    prop::collection::vec((0usize..24, prop_oneof![any::<u64>(), (0u32..64).prop_map(|b| 1 << b)]), 1..4)
}
