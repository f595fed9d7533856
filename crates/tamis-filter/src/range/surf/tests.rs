use std::collections::BTreeSet;
use std::ops::Bound;

use proptest::prelude::*;

use super::*;
use crate::format::Verify;
use crate::keys::{KeyList, prefix_end};
use crate::range::{RangeFilter, RangeFilterRef, RangeSpec};
use crate::words::Borrowed;

const SUFFIXES: [SurfSuffix; 4] = [SurfSuffix::None, SurfSuffix::Hash, SurfSuffix::Real, SurfSuffix::Mixed];

type Key = Vec<u8>;
type Bounds = (Bound<Key>, Bound<Key>);

fn list(keys: &BTreeSet<Key>) -> KeyList {
    keys.iter().map(|key| &key[..]).collect()
}

fn build(keys: &BTreeSet<Key>, suffix: SurfSuffix, bits: f64) -> Surf {
    Surf::build(&list(keys), suffix, bits, 7).unwrap()
}

fn range((start, end): &Bounds) -> KeyRange<'_> {
    KeyRange::new(start.as_ref().map(|key| &key[..]), end.as_ref().map(|key| &key[..]))
}

/// Repeats like a generator, and is none of the crate's own mixers.
fn random(i: u64) -> u64 {
    let x = (i + 1).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

/// Few bytes, among them those that implementations use as markers or that end carries.
fn byte() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![0, 1, 0xfe, 0xff, b'a'])
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![
        4 => prop::collection::vec(byte(), 0..6),
        1 => prop::collection::vec(any::<u8>(), 0..6),
        1 => prop::collection::vec(byte(), 40).prop_map(|tail| [&b"a long prefix, the same for many keys"[..], &tail].concat()),
    ]
}

fn key_set() -> impl Strategy<Value = BTreeSet<Key>> {
    prop_oneof![
        prop::collection::btree_set(key(), 0..40),
        // All of one length: leaves may be known to the last byte.
        prop::collection::btree_set(prop::collection::vec(byte(), 3), 0..60),
        // Wide nodes, of many words of labels.
        prop::collection::btree_set(prop::collection::vec(any::<u8>(), 1..3), 0..600),
    ]
}

fn bound(keys: impl Strategy<Value = Key>) -> impl Strategy<Value = Bound<Key>> {
    keys.prop_flat_map(|key| {
        prop::sample::select(vec![Bound::Included(key.clone()), Bound::Excluded(key), Bound::Unbounded])
    })
}

fn bounds() -> impl Strategy<Value = Vec<Bounds>> {
    prop::collection::vec((bound(key()), bound(key())), 0..30)
}

/// Ranges that touch the keys of the set: borders, gaps, prefixes.
fn near(keys: &BTreeSet<Key>) -> Vec<Bounds> {
    let mut ranges = vec![(Bound::Unbounded, Bound::Unbounded)];
    let mut last: Option<&Key> = None;
    for key in keys.iter().take(100) {
        let after = [&key[..], &[0]].concat();
        ranges.push((Bound::Included(key.clone()), Bound::Included(key.clone())));
        ranges.push((Bound::Excluded(key.clone()), Bound::Excluded(after.clone())));
        ranges.push((Bound::Included(after), Bound::Unbounded));
        ranges.push((Bound::Unbounded, Bound::Excluded(key.clone())));
        if let Some(last) = last {
            ranges.push((Bound::Excluded(last.clone()), Bound::Excluded(key.clone())));
            ranges.push((Bound::Excluded(last.clone()), Bound::Included(key.clone())));
        }
        for cut in 0..key.len().min(8) {
            let end = prefix_end(&key[..cut]).map_or(Bound::Unbounded, Bound::Excluded);
            ranges.push((Bound::Included(key[..cut].to_vec()), end));
        }
        last = Some(key);
    }
    ranges
}

/// What one leaf stands for, by definitions that have nothing in common with a trie: `lowest` may be the key, none
/// before it may, and none from `beyond` on may.
struct Leaf {
    lowest: Key,
    beyond: Option<Key>,
    whole: bool,
}

fn leaves(keys: &BTreeSet<Key>, real_bits: usize) -> Vec<Leaf> {
    let all: Vec<&Key> = keys.iter().collect();
    let shortest = all.iter().map(|key| key.len()).min().unwrap_or(0);
    let longest = all.iter().map(|key| key.len()).max().unwrap_or(0);
    let shared = |a: &Key, b: &Key| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let leaf = |(i, &key): (usize, &&Key)| {
        let before = if i == 0 { 0 } else { shared(all[i - 1], key) };
        let path = before.max(all.get(i + 1).map_or(0, |next| shared(key, next))) + 1;
        if path > key.len() {
            return Leaf { lowest: key.clone(), beyond: None, whole: true };
        }
        // The bits kept, in whole bytes, and the place of the last of them.
        let bits = path * 8 + real_bits;
        let mut kept = key.clone();
        kept.resize(bits.div_ceil(8), 0);
        let last = 1u8 << (bits.div_ceil(8) * 8 - bits);
        *kept.last_mut().unwrap() &= !(last - 1);
        let mut beyond = kept.clone();
        let mut carry = last;
        while let Some(byte) = beyond.last_mut() {
            let (sum, over) = byte.overflowing_add(carry);
            *byte = sum;
            if !over {
                break;
            }
            beyond.pop();
            carry = 1;
        }
        let whole = path == longest || shortest == longest && bits >= longest * 8;
        while kept.len() > path && kept.last() == Some(&0) {
            kept.pop();
        }
        kept.resize(kept.len().max(shortest), 0);
        Leaf { lowest: kept, beyond: (!beyond.is_empty()).then_some(beyond), whole }
    };
    all.iter().enumerate().map(leaf).collect()
}

fn model_holds(leaves: &[Leaf], range: KeyRange<'_>) -> bool {
    !range.is_empty()
        && leaves.iter().any(|leaf| {
            if leaf.whole {
                return range.contains(&leaf.lowest);
            }
            let reaches = match range.start {
                Bound::Included(low) | Bound::Excluded(low) => {
                    leaf.beyond.as_ref().is_none_or(|end| low < &end[..])
                }
                Bound::Unbounded => true,
            };
            let starts = match range.end {
                Bound::Included(high) => &leaf.lowest[..] <= high,
                Bound::Excluded(high) => &leaf.lowest[..] < high,
                Bound::Unbounded => true,
            };
            reaches && starts
        })
}

fn model_next(leaves: &[Leaf], from: &Key) -> Next<Key> {
    let reaches = |leaf: &&Leaf| match (&leaf.beyond, leaf.whole) {
        (_, true) => leaf.lowest >= *from,
        (beyond, false) => beyond.as_ref().is_none_or(|end| from < end),
    };
    leaves
        .iter()
        .find(reaches)
        .map_or(Next::Nothing, |leaf| Next::NotBelow(leaf.lowest.clone().max(from.clone())))
}

fn holds(keys: &BTreeSet<Key>, range: KeyRange<'_>) -> bool {
    keys.iter().any(|key| range.contains(key))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn answers_are_those_of_the_leaves_and_never_deny_a_key(
        keys in key_set(),
        ranges in bounds(),
        from in prop::collection::vec(key(), 0..20),
        suffix in prop::sample::select(SUFFIXES.to_vec()),
        bits in prop::sample::select(vec![1.0, 30.0, 40.0, 50.0, 64.0]),
    ) {
        let filter = build(&keys, suffix, bits);
        let (hash_bits, real_bits) = filter.suffix_bits();
        let leaves = leaves(&keys, real_bits as usize);
        for bounds in ranges.iter().chain(&near(&keys)) {
            let range = range(bounds);
            let answer = filter.contains_range(range);
            prop_assert!(answer || !holds(&keys, range), "false negative: {bounds:?}");
            prop_assert_eq!(answer, model_holds(&leaves, range), "{:?}, {} real bits", bounds, real_bits);
        }
        let ends = keys.iter().flat_map(|key| [key.clone(), [&key[..], &[0]].concat()]).take(100);
        for from in from.into_iter().chain(ends) {
            let answer = filter.next(&from);
            prop_assert_eq!(&answer, &model_next(&leaves, &from));
            let successor = keys.range(from..).next();
            match answer {
                Next::Nothing => prop_assert_eq!(successor, None),
                Next::NotBelow(key) => prop_assert!(successor.is_none_or(|successor| key <= *successor)),
                Next::Unknown => prop_assert!(false, "unknown"),
            }
        }
        for key in &keys {
            prop_assert!(filter.contains_key(key, Digest::of(key)));
            // With another key's digest, the leaf's hash bits differ, but for keys known from the trie alone.
            if hash_bits >= 20 && !leaves.iter().any(|leaf| leaf.whole && leaf.lowest == *key) {
                prop_assert!(!filter.contains_key(key, Digest::from_u64(!Digest::of(key).get())));
            }
        }
    }

    #[test]
    fn a_filter_read_back_answers_as_the_one_written(
        keys in key_set(),
        ranges in bounds(),
        suffix in prop::sample::select(SUFFIXES.to_vec()),
        bits in 1.0f64..64.0,
    ) {
        let filter = RangeFilter::build(RangeSpec::Surf(suffix), &list(&keys), bits, 3, Verify::Yes).unwrap();
        let bytes = filter.to_bytes();
        prop_assert_eq!(bytes.len(), filter.encoded_len());
        let owned = RangeFilter::open(&bytes).unwrap();
        let mut shifted = vec![0xff; bytes.len() + 3];
        shifted[3..].copy_from_slice(&bytes);
        let view = RangeFilterRef::open_ref(&shifted[3..]).unwrap();
        prop_assert_eq!(owned.keys(), keys.len() as u64);
        for bounds in ranges.iter().chain(&near(&keys)) {
            let range = range(bounds);
            let answer = filter.contains_range(range);
            prop_assert_eq!((answer, answer), (owned.contains_range(range), view.contains_range(range)));
            if let Bound::Included(key) | Bound::Excluded(key) = &bounds.0 {
                prop_assert_eq!(filter.next(key), owned.next(key));
                prop_assert_eq!(filter.next(key), view.next(key));
                let digest = Digest::of(key);
                prop_assert_eq!(filter.contains_key(key, digest), view.contains_key(key, digest));
            }
        }
    }

    #[test]
    fn points_are_exact_up_to_their_suffix(keys in key_set(), probes in prop::collection::vec(key(), 0..60)) {
        let filter = build(&keys, SurfSuffix::None, 1.0);
        let mixed = build(&keys, SurfSuffix::Mixed, 64.0);
        let leaves = leaves(&keys, 0);
        for key in &probes {
            let digest = Digest::of(key);
            let length = keys.iter().any(|k| k.len() <= key.len()) && keys.iter().any(|k| k.len() >= key.len());
            let path = model_holds(&leaves, KeyRange::closed(key, key));
            prop_assert_eq!(filter.contains_key(key, digest), length && path);
            // 28 bits and more of suffix: no chance hit in these few probes.
            if mixed.suffix_bits().0 >= 28 {
                prop_assert_eq!(mixed.contains_key(key, digest), keys.contains(key));
            }
        }
    }

    #[test]
    fn hostile_words_end_quickly_and_do_not_panic(
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
            // Behind the header most damage opens; in it, nearly none.
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
        (shift, ends, params) in (0u32..9, any::<bool>(), (0u8..33, 0u8..33)),
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
            hint_shift: shift,
            has_ends: ends,
        };
        let params = [params.0, params.1];
        if let Some((shape, len)) = counts.shape(params) {
            let mut words: Vec<u64> = (0..len).map(|i| random(seed.wrapping_add(i))).collect();
            words[..shape::HEADER].copy_from_slice(&shape.header());
            let head = Head { salt: 1, keys: 1 << 40, params };
            let words: Owned = words.into();
            // The header is one that opens: what follows is not skipped.
            prop_assert_eq!(Shape::read(head, &words).is_ok(), height <= dense_nodes + sparse_nodes);
            exercise(head, &words, &probes);
        }
    }
}

/// Probes whatever the words open as, owned and borrowed.
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

fn integers(n: u64) -> KeyList {
    let mut numbers: Vec<u64> = (0..n).map(random).collect();
    numbers.sort_unstable();
    let mut keys = KeyList::new();
    numbers.iter().for_each(|number| keys.push(&number.to_be_bytes()));
    keys
}

/// Size in bits per key, and the share of `probes` uniform points and of ranges of `width` that are answered "maybe".
fn rates(filter: &Surf, probes: u64, width: u64) -> (f64, f64, f64) {
    let bits = filter.words().len() as f64 * 64.0 / filter.head().keys as f64;
    let rate = |maybe: &dyn Fn(u64) -> bool| {
        (0..probes).filter(|&i| maybe(random(u64::MAX / 2 + i))).count() as f64 / probes as f64
    };
    let point = rate(&|x| filter.contains_key(&x.to_be_bytes(), Digest::of(&x.to_be_bytes())));
    let range = rate(&|x| {
        let x = x.min(u64::MAX - width);
        filter.contains_range(KeyRange::closed(&x.to_be_bytes(), &(x + width - 1).to_be_bytes()))
    });
    (bits, point, range)
}

#[test]
fn uniform_integers_cost_and_err_as_theory_says() {
    let n = 50_000;
    let keys = integers(n);
    // By depth, with an expected load of n / 256^depth keys per cell: a node is a cell of two keys or more, a label a
    // cell of the next depth with a key, unless that key was alone before; a leaf is one that is alone from there on.
    // A uniform point meets a leaf if it falls into its cell.
    let (mut leaf_rate, mut expected) = (0.0, 0.0);
    for depth in 0..4 {
        let cells = 256f64.powi(depth);
        let load = n as f64 / cells;
        let next = load / 256.0;
        let alone = load * (-load).exp();
        let nodes = cells * (1.0 - (-load).exp() - alone);
        let labels = cells * (256.0 * (1.0 - (-next).exp()) - alone);
        leaf_rate += next * ((-next).exp() - (-load).exp());
        // A level is written in the smaller of the two forms.
        expected += f64::min(nodes * 608.0, labels * 10.44) / n as f64;
    }
    let base = Surf::build(&keys, SurfSuffix::None, 12.0, 1).unwrap();
    let (bits, point, _) = rates(&base, 200_000, 64);
    assert!((point / leaf_rate - 1.0).abs() < 0.03, "{point} against {leaf_rate}");
    assert!((bits / expected - 1.0).abs() < 0.03, "{bits} bits against {expected}");

    let hash = Surf::build(&keys, SurfSuffix::Hash, bits + 4.0, 1).unwrap();
    assert_eq!(hash.suffix_bits(), (4, 0));
    let (spent, hashed, _) = rates(&hash, 200_000, 64);
    assert!(spent <= bits + 4.0 + 64.0 / n as f64 && spent > bits + 3.0, "{spent}");
    assert!((hashed * 16.0 / point - 1.0).abs() < 0.06, "{hashed} against {point} / 16");
    assert_eq!(hash.expected_rate(1), Some(1.0 / 16.0));
    assert_eq!(hash.expected_rate(2), None);

    let real = Surf::build(&keys, SurfSuffix::Real, bits + 4.0, 1).unwrap();
    let (_, point_real, range_real) = rates(&real, 200_000, 64);
    assert!((point_real * 16.0 / point - 1.0).abs() < 0.06, "{point_real} against {point} / 16");
    // Ranges are tiny against the gaps between prefixes: they err as points do.
    assert!((range_real * 16.0 / point - 1.0).abs() < 0.06, "{range_real} against {point} / 16");
    let mixed = Surf::build(&keys, SurfSuffix::Mixed, bits + 8.0, 1).unwrap();
    assert_eq!(mixed.suffix_bits(), (4, 4));
    let (_, point_mixed, range_mixed) = rates(&mixed, 200_000, 64);
    assert!((point_mixed * 256.0 / point - 1.0).abs() < 0.25, "{point_mixed} against {point} / 256");
    assert!((range_mixed * 16.0 / point - 1.0).abs() < 0.06, "{range_mixed} against {point} / 16");
}

#[test]
fn consecutive_integers_are_held_exactly_in_few_bits() {
    let mut keys = KeyList::new();
    (1000..66_000u64).for_each(|i| keys.push(&(3 * i).to_be_bytes()));
    let filter = Surf::build(&keys, SurfSuffix::None, 10.0, 1).unwrap();
    let bits = filter.words().len() as f64 * 64.0 / keys.len() as f64;
    assert!(bits < 10.0, "{bits}");
    for i in 3000..50_000u64 {
        let (a, b) = (i.to_be_bytes(), (i + 1).to_be_bytes());
        assert_eq!(filter.contains_key(&a, Digest::of(&a)), i % 3 == 0);
        assert_eq!(
            filter.contains_range(KeyRange::new(Bound::Included(&a), Bound::Excluded(&b))),
            i % 3 == 0
        );
        assert_eq!(
            filter.contains_range(KeyRange::new(Bound::Excluded(&a), Bound::Included(&b))),
            i % 3 == 2
        );
        let next = i.next_multiple_of(3).to_be_bytes().to_vec();
        assert_eq!(filter.next(&a), Next::NotBelow(next));
    }
}
