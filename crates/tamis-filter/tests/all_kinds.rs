//! What every filter guarantees, whatever its kind: no false negatives, one serialized form that
//! opens forever, no panic on hostile bytes, and about the theoretical rate.

use std::collections::BTreeSet;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::path::PathBuf;

use proptest::prelude::*;
use tamis_filter::{
    BloomScheme, Digest, Filter, FilterError, KeyList, KeyRange, Next, PointFilter, PointFilterRef,
    PointSpec, RangeFilter, RangeFilterRef, RangeProbe, RangeSpec, SurfSuffix, Verify,
};

const POINTS: [PointSpec; 7] = [
    PointSpec::Bloom(BloomScheme::Rotation),
    PointSpec::Bloom(BloomScheme::DoubleHashing),
    PointSpec::BlockedBloom,
    PointSpec::Ribbon,
    PointSpec::BinaryFuse,
    PointSpec::Xor,
    PointSpec::Cuckoo,
];

const RANGES: [RangeSpec; 9] = [
    RangeSpec::Surf(SurfSuffix::None),
    RangeSpec::Surf(SurfSuffix::Hash),
    RangeSpec::Surf(SurfSuffix::Real),
    RangeSpec::Surf(SurfSuffix::Mixed),
    RangeSpec::Snarf,
    RangeSpec::Rosetta { max_range: 64 },
    RangeSpec::Rosetta { max_range: 1 },
    RangeSpec::REncoder,
    RangeSpec::Grafite,
];

fn list(keys: &[Vec<u8>]) -> KeyList {
    keys.iter().map(|key| &key[..]).collect()
}

fn bytes_of(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &key[..])
}

/// Generates keys next to each other, at borders, and keys that share everything except the end.
fn keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let letter = || prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(0xfe), Just(0xff)];
    let short = prop::collection::vec(letter(), 0..6);
    let prefixed = prop::collection::vec(letter(), 0..3).prop_map(|end| [b"users/2024/", &end[..]].concat());
    let deep = prop::collection::vec(letter(), 0..3).prop_map(|end| [&[7u8; 70], &end[..]].concat());
    let dense = (0u64..2000).prop_map(|n| n.to_be_bytes().to_vec());
    let edges = prop_oneof![Just(0u64), Just(u64::MAX), (0..64u32).prop_map(|bit| 1 << bit), any::<u64>()]
        .prop_map(|n| n.to_be_bytes().to_vec());
    let steps = (0u64..600).prop_map(|n| (n * (1 << 20)).to_be_bytes().to_vec());
    let set = |key: BoxedStrategy<Vec<u8>>| prop::collection::vec(key, 0..300).boxed();
    prop_oneof![
        set(short.clone().boxed()),
        set(prefixed.clone().boxed()),
        set(deep.boxed()),
        set(dense.clone().boxed()),
        set(edges.clone().boxed()),
        set(steps.boxed()),
        set(prop_oneof![short, prefixed, dense, edges].boxed()),
    ]
}

fn bits() -> impl Strategy<Value = f64> {
    prop_oneof![Just(1.0), Just(3.5), Just(8.0), Just(10.0), Just(16.0), Just(22.3), Just(64.0)]
}

/// Generates range ends worth probing: the keys themselves, their neighbours, and arbitrary ones.
fn ends_around(keys: &[Vec<u8>], other: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut ends: Vec<Vec<u8>> = other.to_vec();
    for key in keys.iter().step_by(1 + keys.len() / 8) {
        ends.push(key.clone());
        ends.push([&key[..], &[0]].concat());
        let mut next = key.clone();
        if let Some(last) = next.last_mut() {
            *last = last.wrapping_add(1);
        }
        ends.push(next.clone());
        if let Some(last) = next.last_mut() {
            *last = last.wrapping_sub(2);
        }
        ends.push(next);
        ends.push(key[..key.len() / 2].to_vec());
    }
    ends
}

/// Checks everything that a filter over `keys` must not reject, and what it must know of empty
/// ranges.
fn check_range_filter(
    filter: &dyn RangeProbe,
    keys: &BTreeSet<Vec<u8>>,
    ends: &[Vec<u8>],
) -> Result<(), TestCaseError> {
    for key in keys {
        prop_assert!(filter.contains_key(key, Digest::of(key)), "denies {key:?}");
        for (start, end) in [
            (Included(key), Included(key)),
            (Included(key), Unbounded),
            (Unbounded, Included(key)),
            (Unbounded, Unbounded),
        ] {
            let range = KeyRange::new(start.map(|k| &k[..]), end.map(|k| &k[..]));
            prop_assert!(filter.contains_range(range), "denies {key:?} in {range:?}");
        }
    }
    for low in ends {
        let successor = keys.range::<[u8], _>((Included(&low[..]), Unbounded)).next();
        match filter.next(low) {
            Next::Nothing => prop_assert!(successor.is_none(), "nothing from {low:?} on, but {successor:?}"),
            Next::NotBelow(next) => {
                prop_assert!(next >= *low);
                prop_assert!(
                    successor.is_none_or(|key| *key >= next),
                    "{next:?} after {low:?}, but {successor:?}"
                );
            }
            Next::Unknown => {}
        }
        for high in ends {
            for (start, end) in [
                (Included(low.clone()), Included(high.clone())),
                (Included(low.clone()), Excluded(high.clone())),
                (Excluded(low.clone()), Included(high.clone())),
                (Excluded(low.clone()), Excluded(high.clone())),
                (Unbounded, Excluded(high.clone())),
                (Excluded(low.clone()), Unbounded),
            ] {
                let range = KeyRange::new(bytes_of(&start), bytes_of(&end));
                let answer = filter.contains_range(range);
                if range.is_empty() {
                    prop_assert!(!answer, "something in the empty range {range:?}");
                } else if let Some(key) = keys.range::<[u8], _>((bytes_of(&start), bytes_of(&end))).next() {
                    prop_assert!(answer, "denies {key:?} in {range:?}");
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn range_filters_reject_no_key(keys in keys(), bits in bits(), salt: u64, other in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..10), 0..4)) {
        let ends = ends_around(&keys, &other);
        let set: BTreeSet<Vec<u8>> = keys.iter().cloned().collect();
        for spec in RANGES {
            let filter = RangeFilter::build(spec, &list(&keys), bits, salt, Verify::Yes)
                .map_err(|e| TestCaseError::fail(format!("{spec:?}: {e}")))?;
            let named = |e: TestCaseError| TestCaseError::fail(format!("{spec:?} at {bits} bits: {e}"));
            check_range_filter(&filter, &set, &ends).map_err(named)?;
            let bytes = filter.to_bytes();
            prop_assert_eq!(bytes.len(), filter.encoded_len());
            let view = RangeFilterRef::open_ref(&bytes).map_err(|e| TestCaseError::fail(e.to_string()))?;
            check_range_filter(&view, &set, &ends).map_err(named)?;
            let again = RangeFilter::open(&bytes).unwrap();
            prop_assert_eq!(again.to_bytes(), bytes);
            prop_assert_eq!(again.keys(), set.len() as u64, "{:?}", spec);
            if set.is_empty() {
                prop_assert!(!filter.contains_key(b"x", Digest::of(b"x")), "{spec:?}");
                prop_assert!(!filter.contains_range(KeyRange::ALL), "{spec:?}");
            }
        }
    }

    #[test]
    fn point_filters_reject_no_key(
        digests in prop_oneof![
            prop::collection::vec(any::<u64>(), 0..2000),
            prop::collection::vec(0u64..50, 0..200),
            prop::collection::vec((0..64u32).prop_map(|bit| 1u64 << bit), 0..100),
            (0u64..3000).prop_map(|n| (0..n).collect()),
            (1u64..3).prop_map(|n| vec![u64::MAX; n as usize]),
        ],
        bits in bits(), salt: u64,
    ) {
        let digests: Vec<Digest> = digests.into_iter().map(Digest::from_u64).collect();
        for spec in POINTS {
            let filter = PointFilter::build(spec, &digests, bits, salt, Verify::Yes)
                .map_err(|e| TestCaseError::fail(format!("{spec:?} at {bits} bits: {e}")))?;
            prop_assert!(digests.iter().all(|&d| filter.contains(d)));
            let bytes = filter.to_bytes();
            prop_assert_eq!(bytes.len(), filter.encoded_len());
            let view = PointFilterRef::open(&bytes).unwrap();
            prop_assert!(digests.iter().all(|&d| view.contains(d)));
            prop_assert_eq!(&view.to_owned().to_bytes(), &bytes);
            for i in 0..200u64 {
                let stranger = Digest::of(&i.to_le_bytes());
                prop_assert_eq!(view.contains(stranger), filter.contains(stranger));
                prop_assert!(!digests.is_empty() || !filter.contains(stranger), "{spec:?} of nothing holds something");
            }
            prop_assert!((0.0..=1.0).contains(&filter.expected_rate()));
        }
    }
}

/// The same keys for every fixture: numbers with gaps, and words.
fn fixture_keys(range: bool) -> Vec<Vec<u8>> {
    let numbers = (1..200u64).map(|i| (i * i * 0x1234_5678_9abc).to_be_bytes().to_vec());
    let words = ["", "a", "tamis", "tamise", "tammy", "\u{ff}z"].map(|word| word.as_bytes().to_vec());
    if range { numbers.collect() } else { numbers.chain(words).collect() }
}

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format!("{name}.tfl"))
}

/// Filters written by earlier versions open and answer like today's, which have the same bytes.
/// `TAMIS_WRITE_FIXTURES=1` writes missing ones.
#[test]
fn fixtures_open_forever() {
    let numbers = fixture_keys(true);
    let mut made: Vec<(String, Filter, Vec<Vec<u8>>)> = Vec::new();
    for spec in POINTS {
        let keys = fixture_keys(false);
        let digests: Vec<Digest> = keys.iter().map(|key| Digest::of(key)).collect();
        let filter = PointFilter::build(spec, &digests, 10.0, 7, Verify::Yes).unwrap();
        let name = match spec {
            PointSpec::Bloom(scheme) => format!("bloom-{}", format!("{scheme:?}").to_lowercase()),
            _ => filter.kind().name().to_owned(),
        };
        made.push((name, filter.into(), keys));
    }
    for spec in RANGES {
        let surf = matches!(spec, RangeSpec::Surf(_));
        let keys = if surf { fixture_keys(false) } else { numbers.clone() };
        let bits = if surf { 20.0 } else { 12.0 };
        let filter = RangeFilter::build(spec, &list(&keys), bits, 7, Verify::Yes).unwrap();
        let name = match spec {
            RangeSpec::Surf(suffix) => format!("surf-{}", format!("{suffix:?}").to_lowercase()),
            RangeSpec::Rosetta { max_range } => format!("rosetta-{max_range}"),
            _ => filter.kind().name().to_owned(),
        };
        made.push((name, filter.into(), keys));
    }
    for (name, filter, keys) in made {
        let path = fixture(&name);
        if std::env::var_os("TAMIS_WRITE_FIXTURES").is_some() && !path.exists() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, filter.to_bytes()).unwrap();
        }
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let opened = Filter::open(&bytes).unwrap();
        assert_eq!(opened.kind(), filter.kind(), "{name}");
        for key in &keys {
            assert!(match &opened {
                Filter::Point(filter) => filter.contains(Digest::of(key)),
                Filter::Range(filter) =>
                    filter.contains_key(key, Digest::of(key))
                        && filter.contains_range(KeyRange::closed(key, key)),
            });
        }
        assert!(filter.to_bytes() == bytes, "{name}: today's bytes differ from the fixture's");
    }
}

/// Builds small filters of every kind.
fn samples() -> Vec<Filter> {
    let keys = fixture_keys(true);
    let digests: Vec<Digest> = keys.iter().map(|key| Digest::of(key)).collect();
    let points = POINTS.map(|spec| PointFilter::build(spec, &digests, 9.0, 3, Verify::Yes).unwrap().into());
    let ranges =
        RANGES.map(|spec| RangeFilter::build(spec, &list(&keys), 14.0, 3, Verify::Yes).unwrap().into());
    points.into_iter().chain(ranges).collect()
}

/// Probes unverified bytes in every possible way.
fn exercise(bytes: &[u8]) {
    if let Ok(filter) = PointFilterRef::open_unverified(bytes) {
        (0..32u64).for_each(|i| _ = filter.contains(Digest::of(&i.to_le_bytes())));
        assert!((0.0..=1.0).contains(&filter.expected_rate()));
    }
    let Ok(filter) = RangeFilterRef::open_unverified(bytes) else { return };
    let keys = fixture_keys(true);
    for pair in keys.windows(2).step_by(20) {
        let (low, high) = (&pair[0], &pair[1]);
        filter.contains_key(low, Digest::of(low));
        filter.next(high);
        for range in [KeyRange::closed(low, high), KeyRange::from(low), KeyRange::ALL] {
            filter.contains_range(range);
        }
    }
    for keys in [0, 1, 77, u64::MAX] {
        assert!(filter.expected_rate(keys).is_none_or(|rate| (0.0..=1.0).contains(&rate)));
    }
}

#[test]
fn every_truncation_and_every_flipped_bit_is_rejected() {
    for filter in samples() {
        let bytes = filter.to_bytes();
        for len in (0..bytes.len()).step_by(7) {
            assert!(Filter::open(&bytes[..len]).is_err());
            exercise(&bytes[..len]);
            exercise(&bytes[len..]);
        }
        for bit in (0..bytes.len() * 8).step_by(5).chain((bytes.len() - 48) * 8..bytes.len() * 8) {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Filter::open(&flipped).is_err(), "{:?}, bit {bit}", filter.kind());
            exercise(&flipped);
        }
        for at in (0..bytes.len() - 40).step_by(8) {
            for word in [0, 1, u64::MAX, 1 << 63, 0x0000_0001_0000_0001] {
                let mut wild = bytes.clone();
                wild[at..at + 8].copy_from_slice(&word.to_le_bytes());
                exercise(&wild);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_plausible_trailer_on_random_bytes_never_panics(
        words in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..300, Just(0), Just(u64::MAX)], 1..60),
        salt: u64, keys in prop_oneof![any::<u64>(), 0u64..1000],
        kind in prop::sample::select(vec![1u8, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20]),
        first in prop_oneof![0u8..40, any::<u8>()], second in prop_oneof![0u8..40, any::<u8>()],
    ) {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for field in [salt, keys, words.len() as u64] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&[first, kind, second, 1]);
        bytes.extend_from_slice(b"TFL1\0\0\0\0\0\0\0\0");
        exercise(&bytes);
    }
}

#[test]
fn absurd_parameters_are_rejected() {
    let digests: Vec<Digest> = (0..10u64).map(Digest::from_u64).collect();
    for bits in [0.0, -3.0, 65.0, f64::NAN, f64::INFINITY] {
        for spec in POINTS {
            let built = PointFilter::build(spec, &digests, bits, 0, Verify::Yes);
            assert!(matches!(built, Err(FilterError::BitsPerKey(_))), "{spec:?} at {bits}: {built:?}");
        }
        for spec in RANGES {
            let built = RangeFilter::build(spec, &list(&fixture_keys(true)), bits, 0, Verify::Yes);
            assert!(matches!(built, Err(FilterError::BitsPerKey(_))), "{spec:?} at {bits}: {built:?}");
        }
    }
    let zero = RangeFilter::build(RangeSpec::Rosetta { max_range: 0 }, &KeyList::new(), 10.0, 0, Verify::Yes);
    assert!(matches!(zero, Err(FilterError::Parameter(_))), "{zero:?}");
}

/// The check after building can actually fail.
#[test]
fn a_filter_that_lacks_a_key_fails_its_check() {
    let keys = fixture_keys(true);
    let (some, rest) = keys.split_at(keys.len() / 2);
    let digests = |keys: &[Vec<u8>]| -> Vec<Digest> { keys.iter().map(|key| Digest::of(key)).collect() };
    for spec in POINTS {
        let filter = PointFilter::build(spec, &digests(some), 12.0, 1, Verify::Yes).unwrap();
        assert_eq!(filter.check(&digests(some)), Ok(()));
        assert_eq!(filter.check(&digests(rest)), Err(FilterError::SelfCheck), "{spec:?}");
    }
    for spec in RANGES {
        let filter = RangeFilter::build(spec, &list(some), 16.0, 1, Verify::Yes).unwrap();
        assert_eq!(filter.check(&list(some)), Ok(()));
        assert_eq!(filter.check(&list(rest)), Err(FilterError::SelfCheck), "{spec:?}");
    }
}

#[test]
fn kinds_are_not_mixed_up() {
    for filter in samples() {
        let bytes = filter.to_bytes();
        match filter {
            Filter::Point(filter) => {
                let wrong = RangeFilter::open(&bytes).unwrap_err();
                assert_eq!(wrong, FilterError::WrongKind(filter.kind()));
            }
            Filter::Range(filter) => {
                let wrong = PointFilter::open(&bytes).unwrap_err();
                assert_eq!(wrong, FilterError::WrongKind(filter.kind()));
            }
        }
    }
}

/// Measured rates of point filters over many keys, against their own theory. The tolerance is four
/// standard errors of the measurement plus ten percent.
#[test]
fn point_rates_match_theory() {
    let digests: Vec<Digest> = (0..60_000u64).map(|i| Digest::of(&i.to_le_bytes())).collect();
    for spec in POINTS {
        for bits in [5.0, 9.0, 13.0] {
            let filter = PointFilter::build(spec, &digests, bits, 5, Verify::No).unwrap();
            assert!(filter.bits_per_key() < bits * 1.02, "{spec:?}: {} of {bits}", filter.bits_per_key());
            assert!(filter.bits_per_key() > bits * 0.85, "{spec:?}: {} of {bits}", filter.bits_per_key());
            let (queries, expected) = (400_000u64, filter.expected_rate());
            let strangers = (1 << 40..(1 << 40) + queries).map(|i: u64| Digest::of(&i.to_le_bytes()));
            let measured = strangers.filter(|&d| filter.contains(d)).count() as f64 / queries as f64;
            let tolerance = 4.0 * (expected / queries as f64).sqrt() + 0.1 * expected;
            assert!((measured - expected).abs() < tolerance, "{spec:?} at {bits}: {measured} for {expected}");
        }
    }
}
