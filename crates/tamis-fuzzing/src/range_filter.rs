//! Checks range filters against a set of their keys.

use std::collections::BTreeSet;
use std::ops::Bound::{self, Excluded, Included, Unbounded};

use tamis_filter::{
    Digest, KeyList, KeyRange, Next, RangeFilter, RangeFilterRef, RangeProbe, RangeSpec, SurfSuffix, Verify,
};
use tamis_testkit::fuzz::Input;

const SPECS: [RangeSpec; 10] = [
    RangeSpec::Surf(SurfSuffix::None),
    RangeSpec::Surf(SurfSuffix::Hash),
    RangeSpec::Surf(SurfSuffix::Real),
    RangeSpec::Surf(SurfSuffix::Mixed),
    RangeSpec::Snarf,
    RangeSpec::Rosetta { max_range: 1 },
    RangeSpec::Rosetta { max_range: 64 },
    RangeSpec::Rosetta { max_range: u64::MAX },
    RangeSpec::REncoder,
    RangeSpec::Grafite,
];

/// Lengths of the common prefix of all keys; the map to integers cuts the longest.
const PREFIXES: [usize; 8] = [0, 0, 0, 1, 7, 8, 70, 1026];

type Set = BTreeSet<Vec<u8>>;

/// Compares a range filter with a set of its keys.
///
/// The first bytes choose kind, size, salt and the common prefix of the keys; then come the keys,
/// then bounds of ranges.
pub fn range_filter(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let spec = SPECS[usize::from(input.byte()) % SPECS.len()];
    // Up to 64 bits per key, in steps of a quarter.
    let bits = (1.0 + f64::from(input.byte())) / 4.0;
    let salt = match input.byte() {
        255 => u64::MAX,
        salt => salt.into(),
    };
    let shape = input.byte();
    let prefix = vec![b'p'; PREFIXES[usize::from(shape & 7)]];
    let count = input.byte();
    let pushed: Vec<Vec<u8>> = (0..count).map(|_| key(&mut input, &prefix, shape)).collect();
    let list: KeyList = pushed.iter().map(|key| &key[..]).collect();
    let keys: Set = pushed.into_iter().collect();

    let mut bounds: Vec<Vec<u8>> = Vec::new();
    while !input.is_empty() && bounds.len() < 6 {
        bounds.push(key(&mut input, &prefix, shape));
    }
    // Neighbours of some keys: the bounds that are easily confused with others.
    for key in keys.iter().step_by(1 + keys.len() / 2) {
        bounds.extend([key.clone(), [key, &[0][..]].concat(), key[..key.len() / 2].to_vec()]);
        let mut near = key.clone();
        if let Some(last) = near.last_mut() {
            *last = last.wrapping_add(1);
            bounds.push(near);
        }
    }
    let filter = RangeFilter::build(spec, &list, bits, salt, Verify::No)
        .unwrap_or_else(|e| panic!("{spec:?} of {} keys at {bits} bits: {e}", keys.len()));
    let written = filter.to_bytes();
    assert_eq!(written.len(), filter.encoded_len());
    let view = RangeFilterRef::open_ref(&written).expect("a written filter can be opened");
    let sorted: KeyList = keys.iter().map(|key| &key[..]).collect();
    let again = RangeFilter::build(spec, &sorted, bits, salt, Verify::No).expect("it was built before");
    assert!(again.to_bytes() == written, "{spec:?}: the order of the keys changes the bytes");
    assert_eq!(filter.keys(), keys.len() as u64);
    for filter in [&filter as &dyn RangeProbe, &view] {
        compare(spec, filter, &keys, &bounds);
    }
}

/// Returns a key as one byte of `input` selects: a number of eight bytes, or up to eleven arbitrary
/// bytes.
fn key(input: &mut Input<'_>, prefix: &[u8], shape: u8) -> Vec<u8> {
    let how = input.byte();
    let mut key = prefix.to_vec();
    if shape & 8 != 0 {
        // Far apart, or close together; up from zero, or down from the largest number.
        let number = u64::from(input.word()) << (how & 63) | u64::from(input.byte());
        let number = if how & 64 != 0 { !number } else { number };
        key.extend_from_slice(&number.to_be_bytes());
        return key;
    }
    // Some keys do not have the common prefix.
    if how & 0xf0 == 0xf0 {
        key.truncate(usize::from(input.byte()));
    }
    key.extend((0..how % 12).map(|_| input.byte()));
    key
}

fn compare(spec: RangeSpec, filter: &dyn RangeProbe, keys: &Set, bounds: &[Vec<u8>]) {
    for key in keys {
        assert!(filter.contains_key(key, Digest::of(key)), "{spec:?} denies {key:?}");
        assert!(filter.contains_range(KeyRange::closed(key, key)), "{spec:?} denies {key:?} as a range");
    }
    assert_eq!(filter.contains_range(KeyRange::ALL), !keys.is_empty(), "{spec:?} of the whole key space");
    for low in bounds {
        let successor = keys.range::<[u8], _>((Included(&low[..]), Unbounded)).next();
        match filter.next(low) {
            Next::Nothing => assert_eq!(successor, None, "{spec:?}: there is a key from {low:?} on"),
            Next::NotBelow(next) => {
                assert!(next >= *low, "{spec:?}: {next:?} is before {low:?}");
                assert!(
                    successor.is_none_or(|key| *key >= next),
                    "{spec:?}: {next:?} is too far for {low:?}"
                );
            }
            Next::Unknown => assert!(!keys.is_empty(), "{spec:?} of no keys knows that"),
        }
        for (start, end) in [
            (Included(&low[..]), Unbounded),
            (Excluded(&low[..]), Unbounded),
            (Unbounded, Included(&low[..])),
            (Unbounded, Excluded(&low[..])),
        ] {
            compare_range(spec, filter, keys, (start, end));
        }
        for high in bounds {
            for start in [Included(&low[..]), Excluded(&low[..])] {
                for end in [Included(&high[..]), Excluded(&high[..])] {
                    compare_range(spec, filter, keys, (start, end));
                }
            }
        }
    }
}

fn compare_range(
    spec: RangeSpec,
    filter: &dyn RangeProbe,
    keys: &Set,
    (start, end): (Bound<&[u8]>, Bound<&[u8]>),
) {
    let range = KeyRange::new(start, end);
    let answer = filter.contains_range(range);
    if range.is_empty() {
        assert!(!answer, "{spec:?}: a key in the empty range {range:?}");
        return;
    }
    if let Some(key) = keys.range::<[u8], _>((start, end)).next() {
        assert!(range.contains(key));
        assert!(answer, "{spec:?} denies {key:?} in {range:?}");
    }
}
