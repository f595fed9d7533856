//! Sizes and rates against theory; large tries with mixed forms.

use super::*;

fn integers(n: u64) -> KeyList {
    let mut numbers: Vec<u64> = (0..n).map(random).collect();
    numbers.sort_unstable();
    let mut keys = KeyList::new();
    numbers.iter().for_each(|number| keys.push(&number.to_be_bytes()));
    keys
}

/// Returns the size in bits per key, and the share of `probes` uniform points and of ranges of
/// `width` that are answered "maybe".
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
fn sizes_and_rates_of_uniform_integers_match_theory() {
    let n = 50_000;
    let keys = integers(n);
    // By depth, with an expected load of n / 256^depth keys per cell: a node is a cell of two keys
    // or more; a label is a cell of the next depth with a key, unless that key was already alone; a
    // leaf is a key that is alone from there on. A uniform point reaches a leaf if it falls into
    // its cell.
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
    // Two dense levels, two sparse ones.
    assert!(base.shape.dense_nodes > 250 && base.shape.sparse_labels > 0);
    for key in keys.iter() {
        assert!(base.contains_key(key, Digest::of(key)) && base.contains_range(KeyRange::closed(key, key)));
    }
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
    // Ranges are tiny compared to the gaps between prefixes: they err like points.
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

/// Keys whose trie has dense and sparse levels, wide nodes and long chains side by side at one
/// depth, and keys that are prefixes of others.
fn mixed_keys() -> BTreeSet<Key> {
    let mut keys: BTreeSet<Key> = (0..10_000u64).map(|i| random(i).to_be_bytes().to_vec()).collect();
    for i in 0..1500u16 {
        let node = [&[0x80][..], &i.to_be_bytes()].concat();
        if i % 5 < 4 {
            let chain = [&node[..], &[i as u8; 3]].concat();
            keys.extend([[&chain[..], &[1]].concat(), chain]);
        } else {
            keys.extend((0..i as u8 | 15).map(|label| [&node[..], &[label]].concat()));
        }
    }
    keys
}

#[test]
fn large_mixed_tries_answer_like_their_leaves() {
    let keys = mixed_keys();
    let numbered: Vec<&Key> = keys.iter().collect();
    for suffix in SUFFIXES {
        let filter = build(&keys, suffix, 24.0);
        let shape = filter.shape;
        assert!(shape.dense_nodes > 0 && shape.sparse_blocks() > 20 && shape.has_ends, "{shape:?}");
        for (i, key) in numbered.iter().enumerate() {
            assert!(filter.contains_key(key, Digest::of(key)));
            assert!(filter.contains_range(KeyRange::closed(key, key)));
            let last = numbered[(i + 2).min(numbered.len() - 1)];
            assert!(
                filter.contains_range(KeyRange::new(Bound::Included(key), Bound::Excluded(last)))
                    || key == &last
            );
            let Next::NotBelow(next) = filter.next(&key[..key.len() - 1]) else { panic!("no successor") };
            assert!(next <= key.to_vec());
        }
        let leaves = leaves(&keys, filter.suffix_bits().1 as usize);
        for i in 0..150u64 {
            let mut low = numbered[(random(i) % numbered.len() as u64) as usize].clone();
            let at = (random(i + 1000) % low.len() as u64) as usize;
            low[at] = low[at].wrapping_add(1);
            let mut high = low.clone();
            high[at.saturating_sub(1)] = high[at.saturating_sub(1)].saturating_add(2);
            for range in [KeyRange::closed(&low, &high), KeyRange::closed(&low, &low), KeyRange::from(&low)] {
                assert_eq!(filter.contains_range(range), model_holds(&leaves, range), "{range:?}");
            }
            assert_eq!(filter.next(&low), model_next(&leaves, &low), "{low:?}");
        }
    }
}
