use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::digest::Digest;
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

/// Checks that every key, and ranges around it whose ends touch it, its neighbours and the knots,
/// are accepted, and that `next` never skips a key.
fn holds(keys: &[u64], filter: &Snarf) {
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    for (i, &key) in sorted.iter().enumerate() {
        assert!(filter.contains(key), "{key}");
        let before = if i == 0 { 0 } else { sorted[i - 1] + 1 };
        let after = sorted.get(i + 1).map_or(u64::MAX, |next| next - 1);
        let (below, above) = (key.saturating_sub(1), key.saturating_add(1));
        let ends = [(key, key), (below, key), (key, above), (before, key), (key, after), (before, after)];
        for (first, last) in ends.into_iter().chain([(0, key), (key, u64::MAX), (before.midpoint(key), key)])
        {
            assert!(filter.contains_range(first, last), "{key} in {first}..={last}");
        }
        for from in [key, below.max(before), before, before.midpoint(key)] {
            match filter.next(from) {
                Next::NotBelow(next) => {
                    assert!((from..=key).contains(&next), "next of {from}: {next}, not {key}")
                }
                other => panic!("next of {from}: {other:?}, but {key} follows"),
            }
        }
    }
    let (Some(&first), Some(&last)) = (sorted.first(), sorted.last()) else { return };
    if let Some(above) = last.checked_add(1) {
        assert_eq!(filter.next(above), Next::Nothing);
        assert!(!filter.contains_range(above, u64::MAX));
    }
    if let Some(below) = first.checked_sub(1) {
        assert_eq!(filter.next(0), Next::NotBelow(first));
        assert!(!filter.contains_range(0, below));
    }
}

fn within_budget(filter: &Snarf, bits_per_key: f64) {
    let (spent, asked) = (filter.words.count() as f64 * 64.0, bits_per_key * filter.keys() as f64);
    assert!(spent <= asked + 320.0, "{spent} bits spent, {asked} asked");
}

/// Generates keys in runs, clusters and gaps of all sizes, with both ends of the integers.
fn adversarial_keys() -> impl Strategy<Value = Vec<u64>> {
    let step = prop_oneof![Just(0u64), Just(1), 0u64..4, 0u64..1000, (0u32..60).prop_map(|log| 1 << log)];
    let runs = prop::collection::vec((step, 1usize..200), 0..12);
    (any::<u64>(), runs, prop::collection::vec(prop_oneof![any::<u64>(), Just(0), Just(u64::MAX)], 0..5))
        .prop_map(|(start, runs, mut keys)| {
            let mut at = start >> (start % 64);
            for (step, times) in runs {
                keys.extend((0..times).map(|_| {
                    at = at.wrapping_add(step);
                    at
                }));
            }
            keys
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]
    #[test]
    fn no_false_negative(keys in adversarial_keys(), bits in prop_oneof![0.01f64..=64.0, 2.0f64..20.0]) {
        let filter = Snarf::build(&keys, bits).unwrap();
        holds(&keys, &filter);
        within_budget(&filter, bits);
        let bytes = bytes(&filter.words);
        let opened = Snarf::from_parts(filter.head, Borrowed(&bytes)).unwrap();
        for &key in &keys {
            for x in [key, key.wrapping_add(1), key.rotate_left(7)] {
                prop_assert_eq!(opened.contains(x), filter.contains(x));
                prop_assert_eq!(opened.next(x), filter.next(x));
                let last = x.saturating_add(9);
                prop_assert_eq!(opened.contains_range(x, last), filter.contains_range(x, last));
            }
        }
    }

    #[test]
    fn lines_are_monotone_and_inverted_exactly(
        gap in prop_oneof![1u64..5000, any::<u64>().prop_map(|gap| gap.max(1)), (0u32..64).prop_map(|log| 1 << log)],
        positions in 1..=crate::line::MAX_POSITIONS,
        offsets in prop::collection::vec(any::<u64>(), 2..40),
    ) {
        let line = Line::new(gap, positions);
        let mut offsets: Vec<u64> = offsets.iter().map(|offset| offset % gap).chain([0, gap - 1]).collect();
        offsets.sort_unstable();
        let at: Vec<u64> = offsets.iter().map(|&offset| line.position(offset)).collect();
        prop_assert!(at.is_sorted() && at[at.len() - 1] < positions);
        for (&offset, &position) in offsets.iter().zip(&at) {
            let first = line.first_at(position);
            prop_assert!(first <= offset && line.position(first) == position);
            prop_assert!(first == 0 || line.position(first - 1) < position);
            let ideal = u128::from(offset) * u128::from(positions) / u128::from(gap);
            prop_assert!(gap <= positions || ideal - u128::from(position) <= 3, "{} not {}", position, ideal);
        }
        if gap <= positions {
            prop_assert_eq!(at, offsets);
        }
    }

    #[test]
    fn knot_search_matches_linear_search(
        mut knots in prop::collection::vec(any::<u64>(), 1..700), asked in prop::collection::vec(any::<u64>(), 0..40),
    ) {
        knots.sort_unstable();
        let directory = Knots::new(3, knots.len() as u64);
        let mut words = vec![0; 3];
        words.extend(&knots);
        words.resize(directory.end() as usize, 0);
        directory.fill(&mut words);
        let words = Owned::from(words);
        let around = knots.iter().flat_map(|&knot| [knot, knot.saturating_sub(1), knot.saturating_add(1)]);
        for key in around.chain(asked) {
            let expected = knots.partition_point(|&knot| knot <= key).saturating_sub(1);
            prop_assert_eq!(directory.locate(&words, key), expected as u64);
        }
    }

    #[test]
    fn random_words_never_panic(
        words in prop::collection::vec(any::<u64>(), 0..60),
        sizes in (0u64..40, 0u64..200, 0u64..300),
        width in 0u8..33,
        queries in prop::collection::vec((any::<u64>(), any::<u64>()), 0..30),
    ) {
        let head = Head { salt: 0, keys: 5, params: [width, 0] };
        let mut sized = words.clone();
        sized.splice(0..sized.len().min(2), [sizes.0, sizes.1 | sizes.2 << 32]);
        for words in [words, sized] {
            let bytes = bytes(&words);
            let (Ok(owned), Ok(borrowed)) =
                (Snarf::from_parts(head, Owned::from(words)), Snarf::from_parts(head, Borrowed(&bytes)))
            else { continue };
            for &(first, last) in &queries {
                prop_assert_eq!(owned.contains(first), borrowed.contains(first));
                prop_assert_eq!(owned.contains_range(first, last), borrowed.contains_range(first, last));
                prop_assert_eq!(owned.next(first), borrowed.next(first));
                if let Next::NotBelow(next) = owned.next(first) {
                    prop_assert!(next >= first);
                }
            }
        }
    }

    #[test]
    fn mutated_filters_never_panic(
        n in 0u64..3000,
        bits in 1.0f64..20.0,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 1..8),
        queries in prop::collection::vec((any::<u64>(), any::<u64>()), 0..50),
    ) {
        let mut keys: Vec<u64> = (0..n).map(|i| random(i, 1) >> (n % 50)).collect();
        keys.sort_unstable();
        let (head, mut words) = Snarf::encode(&keys, bits).unwrap();
        for (at, value) in changes {
            let at = at.index(words.len());
            words[at] ^= value >> (value % 64);
        }
        if let Ok(filter) = Snarf::from_parts(head, Owned::from(words)) {
            for (first, len) in queries {
                let first = first >> (n % 50);
                filter.contains(first);
                filter.contains_range(first, first.saturating_add(len >> (len % 64)));
                filter.next(first);
            }
        }
    }
}

#[test]
fn invalid_parameters_are_rejected() {
    for bits in [0.0, -1.0, 64.1, f64::NAN, f64::INFINITY] {
        assert!(matches!(Snarf::build(&[], bits), Err(FilterError::BitsPerKey(_))));
    }
    let keys: Vec<u64> = (0..1000).map(|i| i * i).collect();
    let (head, words) = Snarf::encode(&keys, 10.0).unwrap();
    let open = |head, words: &[u64]| Snarf::from_parts(head, Owned::from(words)).map(|_| ());
    assert_eq!(open(head, &words), Ok(()));
    assert!(open(head, &words[..words.len() - 1]).is_err(), "cut");
    assert!(open(Head { params: [32, 0], ..head }, &words).is_err(), "width");
    assert!(open(Head { params: [head.params[0], 1], ..head }, &words).is_err(), "second parameter");
    let changes = [(0, u64::MAX), (0, words[0] + 20), (1, u64::MAX), (1, 1 << 20), (1, words[1] + (1 << 40))];
    for (at, value) in changes {
        let mut words = words.clone();
        words[at] = value;
        assert!(open(head, &words).is_err(), "word {at} {value}");
    }
    let longer: Vec<u64> = words.iter().copied().chain([7; 9]).collect();
    assert_eq!(open(head, &longer), Ok(()), "the words of a key map may follow");
}

/// Decodes positions following the description of the format, without the code that reads them.
#[test]
fn a_straightforward_reader_finds_the_positions() {
    let key = |i| if i < 700 { i * 3 } else { random(i, 1).max(1 << 40) };
    let mut keys: Vec<u64> = (0..2000).map(key).collect();
    keys.sort_unstable();
    let (head, words) = Snarf::encode(&keys, 11.0).unwrap();
    let (width, count) = (u64::from(head.params[0]), words[0] as usize);
    let (room, buckets) = (words[1] & 0xffff_ffff, words[1] >> 32);
    let knots = &words[2..2 + count];
    let (mut start, mut level) = (2 + count, knots.to_vec());
    while level.len() > 16 {
        level = level.into_iter().step_by(16).collect();
        assert_eq!(words[start..start + level.len()], level);
        start += level.len();
    }
    let bit = |at: u64| words[start + (at / 64) as usize] >> (at % 64) & 1;
    let mut exact = 0;
    for (at, pair) in knots.windows(2).enumerate() {
        let (gap, positions) = (pair[1] - pair[0], buckets << width);
        let position = |offset: u64| {
            let cut = (64 - gap.leading_zeros()).saturating_sub(32);
            let slope = (positions << 32) / ((gap >> cut) + 1);
            ((u128::from(offset) * u128::from(slope)) >> (32 + cut)) as u64
        };
        let inner = keys.iter().filter(|&&key| pair[0] < key && key < pair[1]).map(|key| key - pair[0]);
        let unary = at as u64 * (room * (width + 1) + buckets);
        for (rank, offset) in (0..).zip(inner) {
            let value = if gap <= positions { offset } else { position(offset) };
            let low = unary + room + buckets + rank * width;
            assert_eq!(bit(unary + (value >> width) + rank), 1);
            assert!((0..width).all(|i| bit(low + i) == value >> i & 1));
            exact += u64::from(gap <= positions);
        }
    }
    assert!(exact > 100 && exact < 1900, "both formulas are used: {exact}");
}

#[test]
fn the_words_of_the_format_are_stable() {
    let keys: Vec<u64> = (0..5000).map(|i| random(i, 1) >> (i % 3)).collect();
    let filter = Snarf::build(&keys, 10.0).unwrap();
    assert_eq!(xxhash_rust::xxh3::xxh3_64(bytes(&filter.words).as_flattened()), 0x223ab8acb4f9e3da);
}

#[test]
fn few_keys_and_no_keys() {
    let none = Snarf::build(&[], 10.0).unwrap();
    assert!(!none.contains(0) && !none.contains_range(0, u64::MAX));
    assert_eq!((none.next(0), none.expected_rate(1), none.smooth_rate()), (Next::Nothing, Some(0.0), 0.0));
    for keys in [&[0][..], &[u64::MAX], &[0, u64::MAX], &[7; 1000], &[3, 4], &[3, 5], &[0, 1, u64::MAX]] {
        for bits in [0.1, 1.0, 2.0, 5.0, 10.0, 64.0] {
            let filter = Snarf::build(keys, bits).unwrap();
            holds(keys, &filter);
            within_budget(&filter, bits);
        }
    }
    let two = Snarf::build(&[10, 1 << 60], 10.0).unwrap();
    assert!(!two.contains_range(11, (1 << 60) - 1), "nothing lies between two knots");
    assert!(!two.contains_range(12, 11) && !two.contains_range(1 << 60, 10), "reversed ranges");
}

/// From too few bits for any position to bits for more positions than the arithmetic supports.
#[test]
fn few_keys_around_a_wide_gap_are_held_at_any_size() {
    for n in 3..20u64 {
        for (step, gap) in [(1, 1 << 20), (1 << 30, 1 << 50), (1 << 44, 1 << 62), (1 << 33, 1 << 36)] {
            for at in 1..n {
                let keys: Vec<u64> = (0..n).map(|i| i * step + u64::from(i >= at) * gap).collect();
                for bits in 10..=64 {
                    let filter = Snarf::build(&keys, f64::from(bits)).unwrap();
                    assert!(keys.iter().all(|&key| filter.contains(key)));
                    within_budget(&filter, f64::from(bits));
                }
            }
        }
    }
}

/// The two bugs of public code: a key that is a segment's border, and a range that starts at one.
#[test]
fn keys_at_borders_and_ranges_from_borders_are_held() {
    for keys in [
        (0..5000u64).map(|i| i * 1000).collect::<Vec<_>>(),
        (0..5000).map(|i| random(i, 1)).collect(),
        (0..5000).map(|i| i / 50 * 1_000_000_007 + i % 50).collect(),
    ] {
        for bits in [1.0, 3.0, 8.0, 12.0, 40.0, 64.0] {
            let filter = Snarf::build(&keys, bits).unwrap();
            let count = filter.knots.count();
            assert!(count > 10);
            for at in 0..count {
                let knot = filter.knots.get(&filter.words, at);
                assert!(filter.contains(knot) && keys.contains(&knot));
                assert!(
                    filter.contains_range(knot, knot) && filter.contains_range(knot, knot.saturating_add(1))
                );
                assert!(filter.contains_range(knot.saturating_sub(1), knot));
                assert!(filter.contains_range(knot.saturating_sub(1), knot.saturating_add(1)));
            }
            holds(&keys, &filter);
        }
    }
}

#[test]
fn dense_keys_are_known_exactly_and_cost_little() {
    let keys: Vec<u64> = (0..20_000u64).map(|i| (1 << 50) + i * 2).collect();
    let filter = Snarf::build(&keys, 20.0).unwrap();
    assert!(filter.bits_per_key() < 6.0, "{}", filter.bits_per_key());
    let all = (1 << 50) - 5..(1 << 50) + 40_100;
    let odd = all.filter(|x| x % 2 == 1 || *x < 1 << 50 || *x > (1 << 50) + 39_998);
    assert!(odd.clone().count() > 20_000 && odd.into_iter().all(|x| !filter.contains(x)));
    assert_eq!(filter.next((1 << 50) + 1), Next::NotBelow((1 << 50) + 2));
    holds(&keys, &filter);
}

/// Returns the rate over `queries` single integers that are not keys.
fn rate(filter: &Snarf, set: &BTreeSet<u64>, query: impl Fn(u64) -> u64) -> f64 {
    let empty: Vec<u64> = (0..60_000).map(query).filter(|x| !set.contains(x)).collect();
    empty.iter().filter(|&&x| filter.contains(x)).count() as f64 / empty.len() as f64
}

fn meets_the_smooth_rate(sample: impl Fn(u64, u64) -> u64) {
    let keys: Vec<u64> = (0..40_000).map(|i| sample(i, 1)).collect();
    let set: BTreeSet<u64> = keys.iter().copied().collect();
    for bits in [4.0, 6.5, 8.0, 10.0] {
        let filter = Snarf::build(&keys, bits).unwrap();
        within_budget(&filter, bits);
        assert!(filter.bits_per_key() > bits - 0.02, "{} of {bits} bits used", filter.bits_per_key());
        let smooth = filter.smooth_rate();
        // Knots and their tree take at most half a bit, the coding two.
        assert!(smooth < 1.1 / 2f64.powf(bits - 2.6), "{smooth} at {bits}");
        let found = rate(&filter, &set, |i| sample(i, 9));
        // At least 300 hits or so, hence three standard deviations, and knots whose segments are
        // not quite even.
        assert!((0.8..1.25).contains(&(found / smooth)), "{found} against {smooth} at {bits}");
    }
}

#[test]
fn the_rate_is_met_on_uniform_keys() {
    meets_the_smooth_rate(random);
}

#[test]
fn the_rate_is_met_on_keys_of_a_skewed_density() {
    meets_the_smooth_rate(|i, salt| ((random(i, salt) as f64 / 2f64.powi(64)).powi(4) * 1e18) as u64);
}

/// Five clusters, a hundred thousand times as dense as the whole: the rate between keys is that of
/// smooth keys, and ranges between clusters are never false positives.
#[test]
fn the_rate_is_met_in_tight_clusters() {
    let clustered =
        |i, salt| random(i, salt + 1) % 5 * 3_000_000_000_000_000_000 + random(i, salt) % (1 << 44);
    meets_the_smooth_rate(clustered);
    let keys: Vec<u64> = (0..40_000).map(|i| clustered(i, 1)).collect();
    let filter = Snarf::build(&keys, 10.0).unwrap();
    assert!((0..20_000).all(|i| !filter.contains((1 << 50) + random(i, 3) % (1 << 61))));
}

/// Uniform keys are better served with fewer knots and more positions, keys of varying density with
/// more knots.
#[test]
fn segment_length_follows_the_smoothness_of_the_keys() {
    let uniform: Vec<u64> = (0..30_000).map(|i| random(i, 1)).collect();
    let (mut at, mut log) = (0.0, 0.0f64);
    let wandering = (0..30_000).map(|i| {
        let unit = |salt| (random(i, salt) >> 11) as f64 / (1u64 << 53) as f64;
        log = (log + unit(1) - 0.5).clamp(-12.0, 12.0);
        at += 1e6 * log.exp() * unit(2);
        at as u64
    });
    let wandering: Vec<u64> = wandering.collect();
    let knots = |keys: &[u64]| Snarf::build(keys, 10.0).unwrap().knots.count();
    assert_eq!(knots(&uniform), 30_000u64.div_ceil(256) + 1);
    assert!(knots(&wandering) > 30_000 / 70, "{}", knots(&wandering));
}

#[test]
fn next_skips_empty_space() {
    let keys: Vec<u64> = (0..10_000u64).map(|i| random(i, 1)).collect();
    let set: BTreeSet<u64> = keys.iter().copied().collect();
    let filter = Snarf::build(&keys, 10.0).unwrap();
    let (mut skipped, mut possible) = (0u128, 0u128);
    for from in (0..5000).map(|i| random(i, 2)) {
        let Some(&key) = set.range(from..).next() else { continue };
        let Next::NotBelow(next) = filter.next(from) else { panic!("{key} follows {from}") };
        assert!((from..=key).contains(&next));
        assert!(next == from || !filter.contains_range(from, next - 1), "it is the first that is not denied");
        skipped += u128::from(next - from);
        possible += u128::from(key - from);
    }
    assert!(skipped * 100 > possible * 95, "{skipped} of {possible}");
}

/// Round-trips byte strings, most of them longer than the eight bytes that become a number, through
/// the serialized form.
#[test]
fn bytes_round_trip_to_the_same_filter() {
    for n in [0u64, 1, 2, 300, 3000] {
        let strings = (0..n).map(|i| format!("user/{:x}/{}", random(i, 1) >> (i % 40), i % 7).into_bytes());
        let keys: KeyList = strings.collect::<Vec<_>>().iter().map(Vec::as_slice).collect();
        let filter = RangeFilter::build(RangeSpec::Snarf, &keys, 14.0, 3, Verify::Yes).unwrap();
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
            let Next::NotBelow(next) = view.next(&key[..key.len() - 1]) else { panic!("{key:?} follows") };
            assert!(next.as_slice() <= key);
        }
        for i in 0..500 {
            let first = format!("user/{:x}", random(i, 5) >> (i % 40)).into_bytes();
            let last = [&first[..], b"/zz"].concat();
            let range = KeyRange::closed(&first, &last);
            assert_eq!(view.contains_range(range), filter.contains_range(range));
            assert_eq!(opened.contains_range(range), filter.contains_range(range));
            assert_eq!(view.next(&first), filter.next(&first));
        }
    }
}
