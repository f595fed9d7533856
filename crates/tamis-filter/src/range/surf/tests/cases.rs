//! Single cases: borders, faults known of other implementations, unusual shapes.

use super::*;

#[test]
fn bytes_that_others_use_as_terminators_are_ordinary() {
    // A key, the key with ff after it, and zeros: the published sparse form writes 255 for "a key ends here".
    let keys: BTreeSet<Key> = [&b"k"[..], b"k\xff", b"k\xff\xff", b"k\0", b"", b"\xff", b"\0"]
        .iter()
        .map(|key| key.to_vec())
        .collect();
    let filter = build(&keys, SurfSuffix::None, 1.0);
    assert_eq!(filter.shape.dense_nodes, 0, "the sparse form is tested");
    let holds = |key: &[u8]| filter.contains_key(key, Digest::of(key));
    assert!(keys.iter().all(|key| holds(key)));
    assert!(!holds(b"k\x01") && !holds(b"k\xfe") && !holds(b"j") && !holds(b"\xfe"));
    // Without the key itself, the same trie denies it.
    let keys: BTreeSet<Key> = keys.into_iter().filter(|key| key != b"k" && key != b"k\xff").collect();
    let filter = build(&keys, SurfSuffix::None, 1.0);
    assert!(!filter.contains_key(b"k", Digest::of(b"k")));
    let gap = KeyRange::new(Bound::Excluded(b"\x01"), Bound::Excluded(b"k\0"));
    assert!(!filter.contains_range(gap));
}

#[test]
fn labels_at_the_end_of_a_section_are_found() {
    // Label counts around every multiple of a word's eight: the public code read bytes behind its last label.
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
    let deep: BTreeSet<Key> =
        (0..4u8).map(|i| [vec![b'x'; 5000 + usize::from(i % 2)], vec![i]].concat()).collect();
    let filter = build(&deep, SurfSuffix::Real, 10.0);
    assert!(deep.iter().all(|key| filter.contains_key(key, Digest::of(key))));
    assert_eq!(filter.next(b""), Next::NotBelow([vec![b'x'; 5000], vec![0]].concat()));
    assert!(!filter.contains_range(KeyRange::closed(&[b'x'; 4999], &[b'x'; 5000])));
    assert!(filter.contains_range(KeyRange::closed(&[b'x'; 4999], &[b'x'; 5002])));
}

#[test]
fn parameters_that_make_no_sense_are_refused() {
    let keys = list(&BTreeSet::from([b"a".to_vec()]));
    for bits in [0.0, -1.0, f64::NAN, 64.5, f64::INFINITY] {
        assert!(matches!(Surf::build(&keys, SurfSuffix::None, bits, 0), Err(FilterError::BitsPerKey(_))));
    }
}
