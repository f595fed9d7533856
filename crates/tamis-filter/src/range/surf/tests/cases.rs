//! Individual cases: borders, known bugs of other implementations, unusual shapes.

use super::*;

#[test]
fn bytes_that_others_use_as_terminators_are_ordinary() {
    // A key, the key with ff after it, and zeros: the published sparse form writes 255 for "a key
    // ends here".
    let keys: BTreeSet<Key> = [&b"k"[..], b"k\xff", b"k\xff\xff", b"k\0", b"", b"\xff", b"\0"]
        .iter()
        .map(|key| key.to_vec())
        .collect();
    let filter = build(&keys, SurfSuffix::None, 1.0);
    assert_eq!(filter.shape.dense_nodes, 0, "the sparse form is tested");
    let holds = |key: &[u8]| filter.contains_key(key, Digest::of(key));
    assert!(keys.iter().all(|key| holds(key)));
    assert!(!holds(b"k\x01") && !holds(b"k\xfe") && !holds(b"j") && !holds(b"\xfe"));
    // Without the key itself, the same trie rejects it.
    let keys: BTreeSet<Key> = keys.into_iter().filter(|key| key != b"k" && key != b"k\xff").collect();
    let filter = build(&keys, SurfSuffix::None, 1.0);
    assert!(!filter.contains_key(b"k", Digest::of(b"k")));
    let gap = KeyRange::new(Bound::Excluded(b"\x01"), Bound::Excluded(b"k\0"));
    assert!(!filter.contains_range(gap));
}

#[test]
fn labels_at_the_end_of_a_section_are_found() {
    // Label counts around every multiple of a word's eight: the public code reads bytes past its
    // last label.
    for n in 2..40u8 {
        for offset in [0, 255 - n] {
            let keys: BTreeSet<Key> =
                (0..n).flat_map(|i| [vec![7, 9, offset + i], vec![7, 8, offset + i]]).collect();
            let filter = build(&keys, SurfSuffix::None, 1.0);
            for last in 0..=255 {
                let key = vec![7, 9, last];
                assert_eq!(
                    filter.contains_key(&key, Digest::of(&key)),
                    keys.contains(&key),
                    "{n} labels, {last}"
                );
            }
        }
    }
}

#[test]
fn no_key_one_key_and_the_empty_key() {
    for suffix in SUFFIXES {
        let none = build(&BTreeSet::new(), suffix, 10.0);
        assert!(!none.contains_range(KeyRange::ALL) && !none.contains_key(b"", Digest::of(b"")));
        assert_eq!((none.next(b""), none.expected_rate(1)), (Next::Nothing, Some(0.0)));
        assert_eq!(Surf::from_parts(none.head(), none.words().clone()).unwrap().shape, none.shape);

        let empty = build(&BTreeSet::from([vec![]]), suffix, 10.0);
        assert!(empty.contains_range(KeyRange::ALL) && empty.contains_key(b"", Digest::of(b"")));
        assert!(
            !empty.contains_key(b"\0", Digest::of(b"\0")) && !empty.contains_range(KeyRange::from(b"\0"))
        );
        assert_eq!((empty.next(b""), empty.next(b"\0")), (Next::NotBelow(vec![]), Next::Nothing));

        let one = build(&BTreeSet::from([b"one".to_vec()]), suffix, 64.0);
        assert!(one.contains_key(b"one", Digest::of(b"one")));
        assert!(!one.contains_key(b"two", Digest::of(b"two")));
        assert!(!one.contains_range(KeyRange::from(b"p")) && one.contains_range(KeyRange::from(b"one")));
    }
    let (list, same): (KeyList, KeyList) =
        ([&b"b"[..], b"a", b"b"].into_iter().collect(), [&b"a"[..], b"b"].into_iter().collect());
    let build = |list| Surf::build(list, SurfSuffix::Hash, 40.0, 1).unwrap();
    assert_eq!(build(&list).words(), build(&same).words());
}

#[test]
fn deep_tries_of_long_keys() {
    let x = |n| vec![b'x'; n];
    let mut deep: BTreeSet<Key> =
        (0..4u8).map(|i| [x(5000 + usize::from(i % 2)), vec![i]].concat()).collect();
    for (outside, prefix_len) in [(&b"xx"[..], 2), (b"z", 0), (b"", 0)] {
        deep.insert(outside.to_vec());
        let filter = build(&deep, SurfSuffix::Real, 10.0);
        assert_eq!((filter.shape.prefix_len, filter.shape.height), (prefix_len, 5002 - prefix_len));
        assert!(deep.iter().all(|key| filter.contains_key(key, Digest::of(key))));
        assert_eq!(filter.next(b"xxa"), Next::NotBelow([x(5000), vec![0]].concat()));
        assert!(!filter.contains_range(KeyRange::closed(&x(4999), &x(5000))));
        assert!(filter.contains_range(KeyRange::closed(&x(4999), &x(5002))));
    }
}

#[test]
fn invalid_parameters_are_rejected() {
    let keys = list(&BTreeSet::from([b"a".to_vec()]));
    for bits in [0.0, -1.0, f64::NAN, 64.5, f64::INFINITY] {
        assert!(matches!(Surf::build(&keys, SurfSuffix::None, bits, 0), Err(FilterError::BitsPerKey(_))));
    }
}

/// The sets in the fixtures: words that are prefixes of others, and pairs below each of 256 bytes.
fn fixture_keys() -> BTreeSet<Key> {
    let squares = (0..400u32).map(|i| (i * i).to_string().into_bytes());
    let pairs = (0..=255u8).flat_map(|i| [0, 1].map(|j| vec![i, i.wrapping_mul(7).wrapping_add(j), i]));
    squares.chain(pairs).collect()
}

#[test]
fn layout_matches_the_fixtures() {
    // Computed from `docs/formats/filters.md` by a separate script, not by this crate. All words, as
    // a polynomial.
    for (prefix, suffix, params, len, sum) in [
        ("", SurfSuffix::None, [0, 0], 221, 0xaf3c_1744_4d52_7f77),
        ("", SurfSuffix::Hash, [11, 0], 371, 0xe576_4ef3_a4af_0917),
        ("", SurfSuffix::Real, [0, 11], 371, 0xc1da_a013_badd_88ed),
        ("", SurfSuffix::Mixed, [6, 5], 371, 0xc6e3_9009_06aa_4eb4),
        ("all of them/", SurfSuffix::Mixed, [6, 5], 373, 0xa8ed_7bd5_27ad_34ca),
    ] {
        let keys = fixture_keys().iter().map(|key| [prefix.as_bytes(), key].concat()).collect();
        let filter = build(&keys, suffix, 26.4);
        let mix = |sum: u64, word: &u64| sum.wrapping_mul(0xd6e8_feb8_6659_fd93).wrapping_add(*word);
        let fold = filter.words().iter().fold(0, mix);
        assert_eq!((filter.head().params, filter.words().len(), fold), (params, len, sum));
    }
}

#[test]
fn inconsistent_headers_are_rejected() {
    let filter = build(&fixture_keys(), SurfSuffix::Mixed, 30.0);
    let (head, words) = (filter.head(), filter.words().to_vec());
    let opens = |head: Head, words: &[u64]| Surf::from_parts(head, Owned::from(words)).is_ok();
    assert!(opens(head, &words));
    assert!(!opens(head, &[&words[..], &[0]].concat()) && !opens(head, &words[1..]) && !opens(head, &[]));
    assert!(!opens(head, &words[..words.len() - 1]) && !opens(head, &words[..4]));
    assert!(!opens(Head { keys: 0, ..head }, &words) && !opens(Head { keys: 10, ..head }, &words));
    for params in [[33, 0], [0, 33], [255, 255], [0, 0], [head.params[0] + 1, head.params[1]]] {
        assert!(!opens(Head { params, ..head }, &words), "{params:?}");
    }
    // All words of the header, one field at a time: no count can be changed. Wrong lengths only
    // mislead.
    for (word, shift) in [(0, 0), (0, 32), (1, 0), (1, 32), (2, 0), (4, 0), (4, 8), (4, 9), (4, 63)] {
        let mut words = words.clone();
        words[word] = words[word].wrapping_add(1001 << shift);
        assert!(!opens(head, &words), "word {word}, bit {shift}");
    }
    for (word, value) in [(0, u64::MAX), (1, u64::MAX), (2, u64::MAX), (3, 7), (4, u64::MAX), (4, 10)] {
        let mut words = words.clone();
        words[word] = value;
        assert!(!opens(head, &words), "word {word}: {value:#x}");
    }
}

#[cfg(debug_assertions)]
#[test]
fn probes_do_not_hash() {
    use crate::digest::computed_on_this_thread;
    let filter = build(&fixture_keys(), SurfSuffix::Mixed, 30.0);
    let digest = Digest::of(b"16384");
    let before = computed_on_this_thread();
    assert!(filter.contains_key(b"16384", digest));
    assert!(filter.contains_range(KeyRange::closed(b"16384", b"16384")));
    assert_eq!(filter.next(b"16384"), Next::NotBelow(b"16384".to_vec()));
    assert_eq!(computed_on_this_thread(), before);
}
