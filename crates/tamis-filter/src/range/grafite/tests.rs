use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::format::{Filter, Verify};
use crate::keys::{KeyList, KeyRange};
use crate::range::{RangeFilter, RangeSpec};
use crate::words::Borrowed;

fn random(i: u64, salt: u64) -> u64 {
    Digest::from_u64(i).remix(salt)
}

fn bytes(words: &[u64]) -> Vec<[u8; 8]> {
    words.iter().map(|word| word.to_le_bytes()).collect()
}

/// Every key and every range that holds one is accepted.
fn holds(keys: &[u64], filter: &Grafite) {
    let room = filter.modulus().unwrap_or(u64::MAX);
    for &key in keys {
        assert!(filter.contains(key), "{key}");
        for len in [0, 1, 2, 63, room / 2, room.saturating_sub(2), room - 1, room, u64::MAX] {
            for (below, above) in [(len, 0), (0, len), (len / 2, len - len / 2)] {
                let (first, last) = (key.saturating_sub(below), key.saturating_add(above));
                assert!(filter.contains_range(first, last), "{key} in {first}..={last}");
            }
        }
    }
}

fn within_budget(filter: &Grafite, bits_per_key: f64) {
    let (spent, asked) = (filter.words.count() as f64 * 64.0, bits_per_key * filter.keys() as f64);
    assert!(spent <= asked + 192.0, "{spent} bits spent, {asked} asked");
}

fn adversarial_keys() -> impl Strategy<Value = Vec<u64>> {
    let near = |base: u64| (0u64..200).prop_map(move |i| base.wrapping_add(i).wrapping_sub(100));
    let key = prop_oneof![
        any::<u64>(),
        near(0),
        near(u64::MAX / 2),
        Just(0),
        Just(u64::MAX),
        (0u32..64).prop_map(|bit| 1 << bit)
    ];
    prop::collection::vec(key, 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn no_false_negative(keys in adversarial_keys(), bits in 0.01f64..=64.0, salt: u64) {
        let filter = Grafite::build(&keys, bits, salt).unwrap();
        holds(&keys, &filter);
        within_budget(&filter, bits);
        let bytes = bytes(&filter.words);
        let opened = Grafite::from_parts(filter.head, Borrowed(&bytes)).unwrap();
        for &key in &keys {
            for x in [key, key.wrapping_add(1), key.rotate_left(7)] {
                prop_assert_eq!(opened.contains(x), filter.contains(x));
                let last = x.saturating_add(9);
                prop_assert_eq!(opened.contains_range(x, last), filter.contains_range(x, last));
            }
        }
    }

    /// Checks the hash, its blocks and its wrapping against the definition, word for word.
    #[test]
    fn ranges_are_answered_according_to_the_definition(
        keys in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..5000], 1..60),
        bits in 0.5f64..9.0,
        salt: u64,
        queries in prop::collection::vec((prop_oneof![any::<u64>(), 0u64..6000], 0u64..700), 1..60),
    ) {
        let filter = Grafite::build(&keys, bits, salt).unwrap();
        let Some(r) = filter.modulus() else { return Ok(()) };
        let word = |i| u128::from(Digest::from_u64(i).remix(salt));
        let hash = |x: u64| {
            let block = u128::from(x / r);
            let q = (((word(0) << 64 | word(1)).wrapping_mul(block)).wrapping_add(word(2) << 64 | word(3))) >> 64;
            (((q * u128::from(r)) >> 64) + u128::from(x)) % u128::from(r)
        };
        let set: BTreeSet<u128> = keys.iter().map(|&key| hash(key)).collect();
        let edges = keys.iter().flat_map(|&key| [key / r * r, (key / r * r).saturating_sub(1)]);
        let edges = edges.flat_map(|x| [3, r - 1, r].map(|len| (x, len)));
        for (first, len) in queries.into_iter().chain(edges) {
            let last = first.saturating_add(len);
            let expected = last - first >= r - 1 || (first..=last).take(1000).any(|x| set.contains(&hash(x)));
            prop_assert_eq!(filter.contains_range(first, last), expected, "{}..={} modulo {}", first, last, r);
            prop_assert_eq!(filter.contains(first), set.contains(&hash(first)));
        }
    }

    #[test]
    fn random_words_never_panic(
        words in prop::collection::vec(any::<u64>(), 0..40),
        sizes in (0u64..3000, 0u64..3000),
        width in 0u8..66,
        salt: u64,
        queries in prop::collection::vec((any::<u64>(), any::<u64>()), 0..30),
    ) {
        let head = Head { salt, keys: 5, params: [width, 0] };
        let mut sized = words.clone();
        sized.splice(0..sized.len().min(2), [sizes.0, sizes.1]);
        for words in [words, sized] {
            let bytes = bytes(&words);
            let (Ok(owned), Ok(borrowed)) = (
                Grafite::from_parts(head, Owned::from(words)), Grafite::from_parts(head, Borrowed(&bytes)),
            ) else { continue };
            for &(first, last) in &queries {
                prop_assert_eq!(owned.contains(first), borrowed.contains(first));
                prop_assert_eq!(owned.contains_range(first, last), borrowed.contains_range(first, last));
                owned.contains_range(first, first.saturating_add(last % 100));
            }
        }
    }

    #[test]
    fn mutated_filters_never_panic(
        n in 0u64..3000,
        bits in 1.0f64..20.0,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 1..8),
        queries in prop::collection::vec((any::<u64>(), 0u64..100_000), 0..50),
    ) {
        let keys: Vec<u64> = (0..n).map(|i| if n % 2 == 0 { i } else { random(i, 1) }).collect();
        let (head, mut words) = Grafite::encode(&keys, bits, 1).unwrap();
        for (at, value) in changes {
            let at = at.index(words.len());
            words[at] ^= value >> (value % 64);
        }
        if let Ok(filter) = Grafite::from_parts(head, Owned::from(words)) {
            for (first, len) in queries {
                filter.contains(first);
                filter.contains_range(first, first.saturating_add(len));
            }
        }
    }
}

#[test]
fn invalid_parameters_are_rejected() {
    for bits in [0.0, -1.0, 64.1, f64::NAN, f64::INFINITY] {
        assert!(matches!(Grafite::build(&[], bits, 0), Err(FilterError::BitsPerKey(_))));
    }
    let (head, words) = Grafite::encode(&[1, 2, 3], 10.0, 0).unwrap();
    let open = |head, words: &[u64]| Grafite::from_parts(head, Owned::from(words)).map(|_| ());
    assert_eq!(open(head, &words), Ok(()));
    assert!(open(head, &words[..words.len() - 1]).is_err(), "cut");
    assert!(open(Head { params: [64, 0], ..head }, &words).is_err(), "width");
    assert!(open(Head { params: [63, 0], ..head }, &words).is_err(), "universe");
    assert!(open(Head { params: [head.params[0], 1], ..head }, &words).is_err(), "second parameter");
    for (at, value) in [(0, 0), (0, u64::MAX), (0, 1 << 40), (1, u64::MAX), (1, 1 << 40)] {
        let mut words = words.clone();
        words[at] = value;
        assert!(open(head, &words).is_err(), "word {at} {value}");
    }
    let longer: Vec<u64> = words.iter().copied().chain([7; 9]).collect();
    assert_eq!(open(head, &longer), Ok(()), "the words of a key map may follow");
}

#[test]
fn the_words_of_the_format_are_stable() {
    let keys: Vec<u64> = (0..5000).map(|i| random(i, 1) >> (i % 3)).collect();
    let filter = Grafite::build(&keys, 10.0, 7).unwrap();
    assert_eq!(xxhash_rust::xxh3::xxh3_64(bytes(&filter.words).as_flattened()), 0x876fb69a4ef3750e);
}

#[test]
fn few_keys_and_no_keys() {
    let none = Grafite::build(&[], 10.0, 1).unwrap();
    assert!(!none.contains(0) && !none.contains_range(0, u64::MAX));
    assert_eq!((none.expected_rate(1), none.next(0)), (Some(0.0), Next::Nothing));
    for keys in [&[0][..], &[u64::MAX], &[0, u64::MAX], &[7; 1000]] {
        for bits in [0.1, 1.0, 2.0, 5.0, 64.0] {
            holds(keys, &Grafite::build(keys, bits, 9).unwrap());
        }
    }
    let one = Grafite::build(&[1 << 40], 10.0, 1).unwrap();
    assert!(!one.contains_range(2, 1), "a reversed range");
    let denied = (0..1000u64).filter(|&i| !one.contains(random(i, 4))).count();
    assert!(denied > 900, "{denied}");
}

#[test]
fn enough_bits_make_the_filter_exact() {
    let keys: Vec<u64> = (0..500).map(|i| random(i, 2)).chain([0, u64::MAX]).collect();
    let filter = Grafite::build(&keys, 64.0, 5).unwrap();
    assert_eq!((filter.modulus(), filter.expected_rate(1 << 60)), (None, Some(0.0)));
    let set: BTreeSet<u64> = keys.iter().copied().collect();
    for i in 0..20_000 {
        let (first, last) = (random(i, 3), random(i, 3).saturating_add(random(i, 4) >> (4 + i % 60)));
        assert_eq!(filter.contains_range(first, last), set.range(first..=last).next().is_some());
    }
    holds(&keys, &filter);
    assert!(filter.bits_per_key() < 60.0, "no more than the coding of the exact set takes");
}

/// Returns the false-positive rate over empty ranges of `len` integers that start at the values
/// `start` returns.
fn rate(filter: &Grafite, set: &BTreeSet<u64>, queries: u64, len: u64, start: impl Fn(u64) -> u64) -> f64 {
    let ranges = (0..queries).map(|i| (start(i), start(i).saturating_add(len - 1)));
    let empty: Vec<_> = ranges.filter(|&(first, last)| set.range(first..=last).next().is_none()).collect();
    empty.iter().filter(|&&(first, last)| filter.contains_range(first, last)).count() as f64
        / empty.len() as f64
}

#[test]
fn the_bound_is_met_by_uniform_queries_and_by_queries_next_to_keys() {
    let keys: Vec<u64> = (0..20_000).map(|i| random(i, 1)).collect();
    let set: BTreeSet<u64> = keys.iter().copied().collect();
    for bits in [3.0, 4.0, 6.0, 8.5, 10.0, 12.5] {
        let filter = Grafite::build(&keys, bits, 11).unwrap();
        within_budget(&filter, bits);
        assert!(filter.bits_per_key() > bits * 0.98, "{} of {bits} bits used", filter.bits_per_key());
        let promised = filter.expected_rate(1).unwrap();
        assert!(promised < 1.12 / 2f64.powf(bits - 2.0), "{promised} at {bits}");
        let starts: [&dyn Fn(u64) -> u64; 2] =
            [&|i| random(i, 2), &|i| keys[i as usize % keys.len()].saturating_add(1 + i % 9)];
        for (what, start) in starts.iter().enumerate() {
            for len in [1, 4, 16, 64] {
                let (found, expected) = (rate(&filter, &set, 30_000, len, start), filter.expected_rate(len));
                let expected = expected.unwrap();
                // Four standard deviations of the queries, plus the variation between salts.
                let noise = 4.0 * (expected / 30_000.0).sqrt() + 0.07 * expected;
                assert!((found - expected).abs() < noise, "{what} {len} {bits}: {found} against {expected}");
            }
        }
    }
}

/// Sequential keys fall into few blocks, and whole key ranges collide at once: a single filter may
/// be lucky or not. The bound applies to the average over salts.
#[test]
fn the_bound_holds_on_average_for_sequential_keys() {
    let keys: Vec<u64> = (0..1000).map(|i| 5_000_000 + i).collect();
    let set: BTreeSet<u64> = keys.iter().copied().collect();
    let starts: [&dyn Fn(u64) -> u64; 3] =
        [&|i| random(i, 2), &|i| 5_001_000 + i * 977, &|i| 4_900_000 - random(i, 3) % 4_000_000];
    for (what, start) in starts.iter().enumerate() {
        for len in [1, 16] {
            let filters = (0..600).map(|salt| Grafite::build(&keys, 8.0, salt).unwrap());
            let (found, bound) = filters
                .map(|filter| (rate(&filter, &set, 100, len, start), filter.expected_rate(len).unwrap()))
                .fold((0.0, 0.0), |(found, bound), of| (found + of.0 / 600.0, bound + of.1 / 600.0));
            assert!(found < bound * 1.2, "{what} {len}: {found} against {bound}");
        }
    }
}

#[test]
fn salts_make_different_filters() {
    let keys: Vec<u64> = (0..2000).map(|i| random(i, 1)).collect();
    let (a, b) = (Grafite::build(&keys, 6.0, 1).unwrap(), Grafite::build(&keys, 6.0, 2).unwrap());
    let asked = (0..50_000).map(|i| random(i, 7));
    let both = asked.clone().filter(|&x| a.contains(x) && b.contains(x)).count() as f64 / 50_000.0;
    let expected = a.expected_rate(1).unwrap() * b.expected_rate(1).unwrap();
    assert!((0.7..1.3).contains(&(both / expected)), "{both} against {expected}");
}

/// Round-trips byte strings, most of them longer than the eight bytes that become a number, through
/// the serialized form.
#[test]
fn bytes_round_trip_to_the_same_filter() {
    for n in [0u64, 1, 2, 300, 3000] {
        let strings = (0..n).map(|i| format!("user/{:x}/{}", random(i, 1) >> (i % 40), i % 7).into_bytes());
        let keys: KeyList = strings.collect::<Vec<_>>().iter().map(Vec::as_slice).collect();
        let filter = RangeFilter::build(RangeSpec::Grafite, &keys, 14.0, 3, Verify::Yes).unwrap();
        let bytes = filter.to_bytes();
        assert_eq!(bytes.len(), filter.encoded_len());
        let opened = RangeFilter::open(&bytes).unwrap();
        assert_eq!(Filter::open(&bytes).unwrap().to_bytes(), bytes);
        let view = RangeFilter::open_view(&bytes).unwrap();
        opened.check(&keys).unwrap();
        for key in keys.iter() {
            assert!(
                view.contains_key(key, Digest::of(key)) && view.contains_range(KeyRange::closed(key, key))
            );
        }
        for i in 0..500 {
            let first = format!("user/{:x}", random(i, 5) >> (i % 40)).into_bytes();
            let last = [&first[..], b"/zz"].concat();
            let range = KeyRange::closed(&first, &last);
            assert_eq!(view.contains_range(range), filter.contains_range(range));
            assert_eq!(opened.contains_range(range), filter.contains_range(range));
        }
    }
}
