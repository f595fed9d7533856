use proptest::prelude::*;

use super::*;
use crate::range::RangeSpec;
use crate::range::dyadic::testing::*;
use crate::words::Borrowed;

/// Opens and exercises a filter over arbitrary words, owned and borrowed.
fn survives(head: Head, words: &[u64]) {
    if let Ok(filter) = REncoder::<Owned>::from_parts(head, words.into()) {
        exercise(&filter);
    }
    if let Ok(filter) = REncoder::from_parts(head, Borrowed(&bytes_of(words))) {
        exercise(&filter);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn no_key_is_rejected(keys in key_sets(), bits in prop_oneof![0.1f64..64.0, Just(64.0)], salt: u64) {
        holds(&REncoder::build(&keys, bits, salt).unwrap(), &keys);
    }

    #[test]
    fn bytes_round_trip(keys in key_sets(), bits in 1.0f64..30.0) {
        round_trips(RangeSpec::REncoder, &keys, bits)?;
    }

    #[test]
    fn hostile_words_do_no_harm(
        body in prop::collection::vec(prop_oneof![any::<u64>(), Just(u64::MAX)], 0..40),
        levels in 0u64..70, shift in 0u64..70, rows in 0u64..9, lines in prop_oneof![0u64..6, any::<u64>()],
        salt: u64, keys: u64, params in prop_oneof![3 => Just([0, 0]), 1 => any::<[u8; 2]>()],
    ) {
        let mut words = vec![levels | shift << 8 | rows << 16 | 1 << 24, lines, 0, 0, 0, 0, 0, 0];
        words.extend(&body);
        survives(Head { salt, keys, params }, &words);
        survives(Head { salt, keys, params }, &body);
    }

    #[test]
    fn damaged_filters_do_no_harm(
        keys in key_sets(),
        damage in damage(),
    ) {
        let (head, mut words) = REncoder::encode(&crate::range::dyadic::ascending(&keys), 12.0, 3).unwrap();
        for (at, bits) in damage {
            let at = at % words.len();
            words[at] ^= bits;
        }
        survives(head, &words);
        words.truncate(words.len() / 2);
        survives(head, &words);
    }
}

#[test]
fn one_and_two_keys_at_the_ends_are_held() {
    for keys in [&[0][..], &[u64::MAX], &[0, u64::MAX], &[1 << 63], &[1 << 63, 1], &[]] {
        for bits in [0.5, 10.0, 64.0] {
            holds(&REncoder::build(keys, bits, 1).unwrap(), keys);
        }
    }
}

#[test]
fn invalid_parameters_are_rejected() {
    for bits in [0.0, -3.0, 65.0, f64::NAN] {
        assert!(matches!(REncoder::build(&[1], bits, 0), Err(FilterError::BitsPerKey(_))));
    }
}

#[test]
fn contradictory_headers_are_rejected() {
    let (head, words) = REncoder::encode(&uniform_keys(100), 18.0, 1).unwrap();
    let open = |head: Head, words: Vec<u64>| REncoder::<Owned>::from_parts(head, words.into()).map(|_| ());
    assert_eq!(open(head, words.clone()), Ok(()));
    assert_eq!(open(head, [&words[..], &[1, 2, 3]].concat()), Ok(()), "a key map may follow");
    for len in 0..words.len() {
        assert!(open(head, words[..len].to_vec()).is_err(), "cut to {len}");
    }
    assert!(open(Head { params: [1, 0], ..head }, words.clone()).is_err());
    for (at, bit) in (25..64).map(|bit| (0, bit)).chain((2..8).map(|at| (at, 5))).chain([
        (1, 33),
        (0, 7),
        (0, 14),
        (0, 19),
    ]) {
        let mut words = words.clone();
        words[at] ^= 1 << bit;
        assert!(open(head, words).is_err(), "word {at} bit {bit}");
    }
}

/// The fill at which the paper stops is also where the rate is lowest.
#[test]
fn about_half_of_the_bits_are_set() {
    let keys = uniform_keys(20_000);
    for bits in [8.0, 10.0, 14.0, 18.0, 26.0, 40.0] {
        let filter = REncoder::build(&keys, bits, 1).unwrap();
        let words = &filter.words()[LINE..];
        assert_eq!(words.len(), (20_000.0 * bits / 512.0).ceil() as usize * LINE);
        let set: u32 = words.iter().map(|word| word.count_ones()).sum();
        let fill = f64::from(set) / (words.len() * 64) as f64;
        assert!((0.4..0.58).contains(&fill), "{bits}: {fill}");
    }
}

/// Heights above clusters of keys have few nodes and cost few bits, but they reject nothing within
/// a cluster. Dozens of them used to be kept, which made rates within a cluster ten times as high.
#[test]
fn heights_that_reject_nothing_are_not_kept() {
    let number = |i: u64, stream| (uniform(1, i % 200) & !0xfff) + uniform(stream, i) % 4096;
    let mut keys: Vec<u64> = (0..20_000).map(|i| number(i, 2)).collect();
    keys.sort_unstable();
    keys.dedup();
    for (bits, point, range) in [(10.0, 0.015, 0.15), (14.0, 0.006, 0.035), (18.0, 0.005, 0.012)] {
        let filter = REncoder::build(&keys, bits, 1).unwrap();
        assert_eq!(filter.levels(), REncoder::build(&uniform_keys(20_000), bits, 1).unwrap().levels());
        for (len, most) in [(1, point), (16, range)] {
            let rate = rate_of(&filter, &keys, (0..50_000).map(|i| (number(i, 3), len)));
            assert!(rate < most, "{bits} {len}: {rate}");
        }
    }
    let dense: Vec<u64> = (0..20_000).map(|i| i * 4).collect();
    let filter = REncoder::build(&dense, 14.0, 1).unwrap();
    assert_eq!((filter.levels(), filter.expected_rate(1)), (1, None));
    assert!(!filter.contains(1) && !filter.contains_range(5, 7), "low bits that no key has set");
}

#[test]
fn rates_meet_theory_far_from_keys() {
    let keys = uniform_keys(50_000);
    for (bits, len, queries) in
        [(8.0, 1, 100_000), (10.0, 1, 200_000), (10.0, 64, 10_000), (14.0, 16, 100_000), (18.0, 64, 150_000)]
    {
        let filter = REncoder::build(&keys, bits, 1).unwrap();
        let (theory, rate) = (filter.expected_rate(len).unwrap(), rate_far(&filter, &keys, len, queries));
        assert!((rate / theory - 1.0).abs() < 0.1, "{bits} {len}: {rate} against {theory}");
    }
}

/// Order-preserving filters fail next to keys. At a distance of 1, half of the ranges differ from
/// the key in nothing but the lowest height, of `ROWS` bits.
#[test]
fn ranges_next_to_keys_are_rejected_too() {
    let keys = uniform_keys(20_000);
    let filter = REncoder::build(&keys, 22.0, 1).unwrap();
    for (distance, len, most) in [(1, 1, 0.09), (64, 1, 0.003), (16, 16, 0.012), (64, 64, 0.006)] {
        let rate = rate_near(&filter, &keys, distance, len, 40_000);
        assert!(rate < most, "{distance} {len}: {rate}");
    }
}

#[test]
fn a_view_answers_from_borrowed_words() {
    let (head, words) = REncoder::encode(&[5, 70], 16.0, 1).unwrap();
    let bytes = bytes_of(&words);
    holds(&REncoder::from_parts(head, Borrowed(&bytes)).unwrap(), &[5, 70]);
}

/// Computed from the format's description by a script that shares no code with this crate.
#[test]
fn words_match_the_format() {
    let keys: Vec<u64> = (1..=100u64).map(|i| (i * i * i).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let filter = REncoder::build(&keys, 64.0, 5).unwrap();
    assert_eq!(filter.head(), Head { salt: 5, keys: 100, params: [0, 0] });
    let words: &[u64] = filter.words();
    assert_eq!(words[..LINE], [15 | 3 << 16 | 1 << 24, 13, 0, 0, 0, 0, 0, 0]);
    // Folded, since there are 112 of them.
    let fold = |x: u64, word: &u64| x.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(*word);
    assert_eq!(words.iter().fold(0, fold), 0x2473_5aa3_e0a7_ba88);
}
