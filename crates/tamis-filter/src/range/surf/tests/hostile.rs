//! Words that no builder produced.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn hostile_words_terminate_quickly_and_do_not_panic(
        keys in key_set(),
        probes in prop::collection::vec(key(), 1..20),
        suffix in prop::sample::select(SUFFIXES.to_vec()),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0u32..4), 0..40),
        header in prop::option::of(prop::collection::vec((0u64..600, 0u64..600), 5)),
        params in prop::option::of(any::<[u8; 2]>()),
    ) {
        let filter = build(&keys, suffix, 30.0);
        let mut words = filter.words().to_vec();
        let mut head = filter.head();
        head.params = params.unwrap_or(head.params);
        for (at, value, how) in &damage {
            let at = at.index(words.len());
            // After the header, most damaged filters still open; with damage in it, almost none do.
            words[at] = match how {
                0 => *value,
                1 => words[at] ^ 1 << (value % 64),
                2 => u64::MAX,
                _ => 0,
            };
        }
        if let Some(header) = header {
            for (word, (low, high)) in words.iter_mut().zip(header) {
                *word = low | high << 32;
            }
        } else {
            words[..5].copy_from_slice(&filter.words()[..5]);
        }
        exercise(head, &words, &probes);
    }

    #[test]
    fn random_words_under_a_fitting_header_do_not_panic(
        counts in (1u32..20, 1u32..300, 0u32..300, 0u32..600),
        (height, shortest, longest) in (0u32..60, any::<u32>(), any::<u32>()),
        (shift, ends, prefix_len) in (0u32..10, any::<bool>(), prop_oneof![Just(0u32), 0u32..40]),
        params in (0u8..33, 0u8..33),
        seed: u64,
        probes in prop::collection::vec(key(), 1..20),
    ) {
        let (dense_nodes, sparse_nodes, dense_children, sparse_labels) = counts;
        let counts = shape::Counts {
            dense_nodes,
            nodes: dense_nodes + sparse_nodes,
            sparse_labels: sparse_labels + sparse_nodes,
            dense_children: dense_children.min(dense_nodes + sparse_nodes - 1),
            dense_leaves: 50,
            height,
            shortest: shortest.min(longest),
            longest: longest.max(shortest),
            prefix_len,
            hint_shift: shift,
            has_ends: ends,
        };
        let params = [params.0, params.1];
        if let Some((shape, len)) = counts.shape(params) {
            let mut words: Vec<u64> = (0..len).map(|i| random(seed.wrapping_add(i))).collect();
            words[..shape::HEADER].copy_from_slice(&shape.header());
            let head = Head { salt: 1, keys: 1 << 40, params };
            let words: Owned = words.into();
            // This header opens, so the rest of the test is not skipped.
            prop_assert_eq!(Shape::read(head, &words).is_ok(), height <= dense_nodes + sparse_nodes);
            exercise(head, &words, &probes);
        }
    }
}

/// Where the labels of a node do not ascend, the label after one is not above it: the fuzzer found
/// a successor that was before its key, which sends a loop over successors round forever.
#[test]
fn labels_that_do_not_ascend_yield_no_successor_before_its_key() {
    let keys = [&b"b1"[..], b"b2", b"c"].map(<[u8]>::to_vec).into();
    let filter = build(&keys, SurfSuffix::None, 64.0);
    let mut words = filter.words().to_vec();
    let labels = u64::from_le_bytes(*b"bc12\0\0\0\0");
    let at = words
        .iter()
        .position(|word| *word == labels)
        .expect("the root has `b` and `c`, then come `1` and `2`");
    words[at] = u64::from_le_bytes(*b"ba12\0\0\0\0");
    let damaged = Surf::from_parts(filter.head(), Owned::from(words)).unwrap();
    assert_eq!(filter.next(b"b3"), Next::NotBelow(b"c".to_vec()));
    assert_eq!(damaged.next(b"b3"), Next::Unknown);
}

/// Probes the filter that the words open as, owned and borrowed.
fn exercise(head: Head, words: &[u64], probes: &[Key]) {
    let bytes: Vec<[u8; 8]> = words.iter().map(|word| word.to_le_bytes()).collect();
    let owned = Surf::from_parts(head, Owned::from(words));
    let view = Surf::from_parts(head, Borrowed(&bytes));
    assert_eq!(owned.is_ok(), view.is_ok());
    let (Ok(owned), Ok(view)) = (owned, view) else { return };
    for key in probes {
        let digest = Digest::of(key);
        assert_eq!(owned.contains_key(key, digest), view.contains_key(key, digest));
        assert_eq!(owned.next(key), view.next(key));
        if let Next::NotBelow(next) = owned.next(key) {
            assert!(next.len() <= key.len() + words.len() * 8 + 100, "a successor of {} bytes", next.len());
            assert!(next >= *key, "{next:?} is before {key:?}");
        }
        for other in probes {
            for range in [
                KeyRange::closed(key, other),
                KeyRange::new(Bound::Excluded(key), Bound::Excluded(other)),
                KeyRange::from(key),
            ] {
                assert_eq!(owned.contains_range(range), view.contains_range(range));
            }
        }
    }
}
