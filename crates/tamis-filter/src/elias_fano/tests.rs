use std::sync::Arc;

use proptest::prelude::*;

use super::*;

/// Encodes `values` behind `lead` bits, with their directory.
fn coded(values: &[u64], buckets: u64, width: u32, lead: u64) -> (Arc<[u64]>, Sequence, Directory) {
    let count = values.len() as u64;
    let directory = Directory::new(1, count, buckets);
    let sequence = Sequence::new(directory.end() * 64 + lead, count, buckets, width);
    let end = u128::from(directory.end() * 64 + lead) + Sequence::bits_for(count, buckets, width);
    let mut words = vec![0; end.div_ceil(64) as usize];
    sequence.encode(&mut words, values.iter().copied());
    directory.fill(&mut words, &sequence);
    (words.into(), sequence, directory)
}

/// Compares every kind of search with a linear one.
fn same_as_plain(values: &[u64], buckets: u64, width: u32, lead: u64, queries: &[(u64, u64)]) {
    let (words, sequence, directory) = coded(values, buckets, width, lead);
    let universe = buckets << width;
    for bucket in 0..=buckets {
        assert_eq!(
            directory.start_of(&words, &sequence, bucket),
            sequence.scan(&words, bucket),
            "start of bucket {bucket}"
        );
    }
    for &(a, b) in queries {
        let (a, b) = (a % universe, b % universe);
        let (first, last) = (a.min(b), a.max(b));
        let next = values.get(values.partition_point(|&value| value < first)).copied();
        let any = next.is_some_and(|next| next <= last);
        let found = sequence.any_within(&words, first, last, |b| directory.start_of(&words, &sequence, b));
        assert_eq!(found, any, "{first}..={last} by directory");
        let found = sequence.any_within(&words, first, last, |b| sequence.scan(&words, b));
        assert_eq!(found, any, "{first}..={last} by scan");
        assert_eq!(sequence.successor(&words, first), next, "successor of {first}");
    }
}

/// Queries at and around every value and between neighbours.
fn around(values: &[u64], universe: u64) -> Vec<(u64, u64)> {
    let mut queries = vec![(0, universe - 1), (0, 0), (universe - 1, universe - 1)];
    for (i, &value) in values.iter().enumerate() {
        let next = values.get(i + 1).copied().unwrap_or(universe);
        let (below, above) = (value.saturating_sub(1), (value + 1).min(universe - 1));
        queries.extend([(value, value), (below, below), (above, above), (value, above), (below, value)]);
        if next > value + 1 {
            queries.extend([(value + 1, next - 1), (value + 1, next.min(universe - 1))]);
        }
    }
    queries
}

#[test]
fn shapes_of_all_densities_are_searched_correctly() {
    // Full buckets, long gaps, runs of ones across windows, repeated values, and empty sequences.
    let crowd: Vec<u64> = (0..5000).map(|i| 700_000 + i).collect();
    let ends: Vec<u64> = [0; 70].into_iter().chain([(1 << 20) - 1; 70]).collect();
    let even: Vec<u64> = (0..4096).map(|i| i * 256 + i % 251).collect();
    let two: Vec<u64> = (0..900).chain((1 << 20) - 900..1 << 20).collect();
    for values in [&crowd, &ends, &even, &two, &vec![], &vec![0], &vec![(1 << 20) - 1]] {
        for width in [0, 1, 7, 8, 12, 20] {
            let (buckets, queries) = (1 << (20 - width), around(values, 1 << 20));
            // Without low bits the blocks are too long for a scan of each bucket.
            let buckets_checked = if width < 7 { 3..3 } else { 0..1 };
            for lead in buckets_checked {
                same_as_plain(values, buckets, width, lead * 37, &queries);
            }
            let (words, sequence, directory) = coded(values, buckets, width, 5);
            for &(first, last) in &queries {
                let any = values.get(values.partition_point(|&v| v < first)).is_some_and(|&v| v <= last);
                let start_of = |b| directory.start_of(&words, &sequence, b);
                assert_eq!(
                    sequence.any_within(&words, first, last, start_of),
                    any,
                    "{first}..={last} {width}"
                );
            }
        }
    }
}

#[test]
fn the_widest_universe_is_searched_correctly() {
    let values = [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX];
    for width in [58, 61, 63] {
        let (words, sequence, directory) = coded(&values, 1 << (64 - width), width, 1);
        let start_of = |b| directory.start_of(&words, &sequence, b);
        for value in values {
            assert!(sequence.any_within(&words, value, value, start_of));
            assert_eq!(sequence.successor(&words, value), Some(value));
        }
        assert!(!sequence.any_within(&words, 2, u64::MAX / 2 - 1, start_of));
        assert!(sequence.any_within(&words, 2, u64::MAX / 2, start_of));
        assert!(!sequence.any_within(&words, u64::MAX / 2 + 1, u64::MAX - 2, start_of));
        assert_eq!(sequence.successor(&words, 2), Some(u64::MAX / 2));
    }
}

/// Reads the sequence bit by bit, following the description of its layout.
#[test]
fn a_bit_by_bit_reader_finds_the_values() {
    let values: Vec<u64> = (0..3000u64).map(|i| i * i / 7).collect();
    for (width, lead) in [(0, 0), (3, 17), (9, 63)] {
        let buckets = (values[values.len() - 1] >> width) + 3;
        let (words, sequence, _) = coded(&values, buckets, width, lead);
        let bit = |at: u64| words[(at / 64) as usize] >> (at % 64) & 1;
        let (unary, low) = (sequence.at, sequence.at + values.len() as u64 + buckets);
        let (mut bucket, mut found) = (0, Vec::new());
        for at in unary..low {
            if bit(at) == 0 {
                bucket += 1;
                continue;
            }
            let from = low + found.len() as u64 * u64::from(width);
            found.push((0..u64::from(width)).fold(bucket << width, |value, i| value | bit(from + i) << i));
        }
        assert_eq!((found, bucket), (values.clone(), buckets));
    }
}

#[test]
#[should_panic = "beyond the universe"]
fn a_value_beyond_the_universe_is_rejected() {
    coded(&[3, 68], 16, 2, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn searches_agree_with_linear_ones(
        steps in prop::collection::vec(prop_oneof![Just(0u64), 0u64..5, 0u64..2000, 0u64..200_000], 0..400),
        width in 3u32..18,
        lead in 0u64..64,
        queries in prop::collection::vec((any::<u64>(), prop_oneof![0u64..100, any::<u64>()]), 0..60),
    ) {
        let values: Vec<u64> = steps.iter().scan(0, |at, step| { *at += step; Some(*at) }).collect();
        let buckets = (values.last().copied().unwrap_or(0) >> width) + 1;
        prop_assume!(buckets < 20_000);
        let mut queries: Vec<_> = queries.iter().map(|&(a, len)| (a, a.saturating_add(len))).collect();
        queries.extend(around(&values, buckets << width));
        same_as_plain(&values, buckets, width, lead, &queries);
    }

    #[test]
    fn every_search_terminates_on_random_words(
        words in prop::collection::vec(any::<u64>(), 0..60),
        count in 0u64..2000,
        buckets in 1u64..3000,
        width in 0u32..40,
        queries in prop::collection::vec((any::<u64>(), any::<u64>()), 1..40),
    ) {
        let words: Arc<[u64]> = words.into();
        let directory = Directory::new(0, count, buckets);
        let sequence = Sequence::new(directory.end() * 64, count, buckets, width);
        for (a, b) in queries {
            let (a, b) = (a % (buckets << width), b % (buckets << width));
            let (first, last) = (a.min(b), a.max(b));
            sequence.any_within(&words, first, last, |b| directory.start_of(&words, &sequence, b));
            sequence.any_within(&words, first, last, |b| sequence.scan(&words, b));
            sequence.successor(&words, first);
        }
    }
}
