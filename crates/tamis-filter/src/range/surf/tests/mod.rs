//! Tests answers against a model of the leaves, and against the keys themselves.

mod cases;
mod hostile;
mod rates;

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

/// A reproducible generator, independent of the crate's own mixers.
fn random(i: u64) -> u64 {
    let x = (i + 1).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

/// A small alphabet that includes the bytes that implementations use as markers or at which carries
/// end.
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
    let sets = prop_oneof![
        prop::collection::btree_set(key(), 0..40),
        // All of the same length: leaves may be known to the last byte.
        prop::collection::btree_set(prop::collection::vec(byte(), 3), 0..60),
        // Wide nodes, with many words of labels.
        prop::collection::btree_set(prop::collection::vec(any::<u8>(), 1..3), 0..600),
    ];
    // The common prefix of the run.
    let prefix = prop_oneof![Just(vec![]), prop::collection::vec(byte(), 0..20)];
    (sets, prefix).prop_map(|(keys, prefix)| keys.iter().map(|key| [&prefix[..], key].concat()).collect())
}

fn bound(keys: impl Strategy<Value = Key>) -> impl Strategy<Value = Bound<Key>> {
    keys.prop_flat_map(|key| {
        prop::sample::select(vec![Bound::Included(key.clone()), Bound::Excluded(key), Bound::Unbounded])
    })
}

fn bounds() -> impl Strategy<Value = Vec<Bounds>> {
    prop::collection::vec((bound(key()), bound(key())), 0..30)
}

/// Generates ranges that touch the keys of the set: borders, gaps, prefixes.
fn near(keys: &BTreeSet<Key>) -> Vec<Bounds> {
    let mut ranges = vec![(Bound::Unbounded, Bound::Unbounded)];
    if let (Some(first), Some(last)) = (keys.first(), keys.last()) {
        // Around the common prefix: at each of its bytes, below, above, and where it ends.
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        for cut in 0..common {
            let place = |byte: u8| [&first[..cut], &[byte]].concat();
            let bounds = [first[cut].wrapping_sub(1), first[cut], first[cut].wrapping_add(1)].map(place);
            for low in &bounds {
                ranges.push((Bound::Unbounded, Bound::Included(low.clone())));
                ranges.push((Bound::Excluded(low.clone()), Bound::Unbounded));
                for high in &bounds {
                    ranges.push((Bound::Excluded(low.clone()), Bound::Excluded(high.clone())));
                    ranges.push((Bound::Included(low.clone()), Bound::Included(high.clone())));
                    ranges.push((Bound::Excluded(low.clone()), Bound::Included(high.clone())));
                }
            }
        }
    }
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

/// The keys one leaf stands for, by definitions that have nothing in common with a trie: `lowest`
/// may be the key, no key before it may, and none from `beyond` on may.
struct Leaf {
    path: usize,
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
            return Leaf { path: key.len(), lowest: key.clone(), beyond: None, whole: true };
        }
        // The bits kept, in whole bytes, and the position of the last of them.
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
        Leaf { path, lowest: kept, beyond: (!beyond.is_empty()).then_some(beyond), whole }
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
    leaves.iter().find(reaches).map_or(Next::Nothing, |leaf| {
        // A successor of a key longer than the filter knows guarantees no more than this.
        let most = leaf.lowest.len().min(leaf.path + search::MOST_BEYOND);
        Next::NotBelow(leaf.lowest[..most].to_vec().max(from.clone()))
    })
}

fn holds(keys: &BTreeSet<Key>, range: KeyRange<'_>) -> bool {
    keys.iter().any(|key| range.contains(key))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn answers_match_the_leaves_and_never_reject_a_key(
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
        let bounds = near(&keys).into_iter().filter_map(|(low, _)| match low {
            Bound::Included(key) | Bound::Excluded(key) => Some(key),
            Bound::Unbounded => None,
        });
        for from in from.into_iter().chain(ends).chain(bounds) {
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
            // With another key's digest, the leaf's hash bits differ, except for keys known from
            // the trie alone.
            if hash_bits >= 20 && !leaves.iter().any(|leaf| leaf.whole && leaf.lowest == *key) {
                prop_assert!(!filter.contains_key(key, Digest::from_u64(!Digest::of(key).get())));
            }
        }
    }

    #[test]
    fn a_filter_read_back_answers_like_the_one_written(
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
        let beside = keys.iter().flat_map(|key| {
            let (mut next, mut longer) = (key.clone(), key.clone());
            longer.push(0);
            next.last_mut().into_iter().for_each(|byte| *byte = byte.wrapping_add(1));
            [next, longer, key[..key.len().saturating_sub(1)].to_vec()]
        });
        for key in probes.into_iter().chain(beside) {
            let key = &key;
            let digest = Digest::of(key);
            let length = keys.iter().any(|k| k.len() <= key.len()) && keys.iter().any(|k| k.len() >= key.len());
            let path = model_holds(&leaves, KeyRange::closed(key, key));
            prop_assert_eq!(filter.contains_key(key, digest), length && path);
            // 28 or more suffix bits: no chance hit in these few probes.
            if mixed.suffix_bits().0 >= 28 {
                prop_assert_eq!(mixed.contains_key(key, digest), keys.contains(key));
            }
        }
    }
}
