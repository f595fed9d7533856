//! Tests common to all fingerprint filters.

use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::*;

use super::peel::Peeled;
use super::*;
use crate::format::{TRAILER_LEN, WordFilter};
use crate::words::{Borrowed, Owned};
use crate::{BinaryFuse, Cuckoo, PointFilter, PointFilterRef, PointSpec, Verify, Xor};

const SPECS: [PointSpec; 3] = [PointSpec::BinaryFuse, PointSpec::Xor, PointSpec::Cuckoo];

fn digests(range: Range<u64>) -> Vec<Digest> {
    range.map(|i| Digest::of(&i.to_le_bytes())).collect()
}

/// Returns digests that are not among `digests`.
fn strangers(n: u64) -> impl Iterator<Item = Digest> {
    (0..n).map(|i| Digest::of(&(i + (1 << 40)).to_le_bytes()))
}

fn build(spec: PointSpec, digests: &[Digest], bits: f64, salt: u64) -> PointFilter {
    PointFilter::build(spec, digests, bits, salt, Verify::Yes).unwrap()
}

fn head_and_width(filter: &PointFilter) -> (Head, u32) {
    match filter {
        PointFilter::BinaryFuse(filter) => (filter.head(), filter.fingerprint_bits()),
        PointFilter::Xor(filter) => (filter.head(), filter.fingerprint_bits()),
        PointFilter::Cuckoo(filter) => (filter.head(), filter.fingerprint_bits()),
        _ => panic!("not a fingerprint filter"),
    }
}

/// Returns the share of `n` absent keys that are accepted.
fn rate(filter: &PointFilter, n: u64) -> f64 {
    strangers(n).filter(|&digest| filter.contains(digest)).count() as f64 / n as f64
}

// Computed from `docs/formats/filters.md` by a separate script, not by this crate: the digests of
// [`numbered`].
const FUSE: &str = "\
    000200005000800ea2050080842c28000400c0cf10010000008e050f0000000007000000000000001400000000000000\
    04000000000000000504030154464c31c5b9d2f0179f7c83";
const XOR: &str = "\
    b85000003be000dd9137b900417707a4a841c03e000000000e9f00009000000000000000000000000000000000000000\
    0000004c0000000000000000000000000700000000000000140000000000000008000000000000000805000154464c31\
    095e52dc15d2e8a4";
const CUCKOO: &str = "\
    657b0300d0570a0000671ebd01d0aede3a0029de2506009fb392d934e846000007000000000000001400000000000000\
    04000000000000000906000154464c3191bc5e8f6b68e272";

fn numbered() -> Vec<Digest> {
    (1..=20u64).map(|i| Digest::from_u64(i.wrapping_mul(0x0123_4567_89ab_cdef))).collect()
}

#[test]
fn filters_built_from_the_format_description_hold_their_keys() {
    for (fixture, spec) in [FUSE, XOR, CUCKOO].into_iter().zip(SPECS) {
        let digit = |i| u8::from_str_radix(&fixture[i..i + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..fixture.len()).step_by(2).map(digit).collect();
        let filter = PointFilter::open(&bytes).unwrap();
        assert_eq!((filter.check(&numbered()), filter.keys()), (Ok(()), 20), "{spec:?}");
        let theory = filter.expected_rate();
        assert!((rate(&filter, 200_000) / theory - 1.0).abs() < 0.15, "{spec:?}: {theory}");
        assert_eq!(filter.kind(), build(spec, &[], 8.0, 0).kind());
        assert_eq!(filter.to_bytes(), bytes);
    }
}

#[test]
fn rates_match_theory() {
    for (keys, widths) in [(10_000, [3.9, 6.5, 9.9, 11.6]), (200_000, [5.0, 6.3, 8.4, 9.6])] {
        let digests = digests(0..keys);
        for spec in SPECS {
            for bits in widths {
                let filter = build(spec, &digests, bits, keys);
                // Some 2,500 false positives, of which 10 % is five standard deviations.
                let theory = filter.expected_rate();
                let got = rate(&filter, (2500.0 / theory) as u64);
                assert!((got / theory - 1.0).abs() < 0.1, "{spec:?} {keys} {bits}: {got} against {theory}");
                let width = head_and_width(&filter).1;
                let narrow = if spec == PointSpec::Cuckoo { 8.0 } else { 1.0 };
                assert!(theory < 1.05 * narrow * 0.5f64.powi(width as i32), "{spec:?} {width}: {theory}");
            }
        }
    }
}

#[test]
fn every_width_is_used_and_holds_its_keys_owned_and_borrowed() {
    let digests = digests(0..700);
    for spec in SPECS {
        let mut widths = std::collections::BTreeSet::new();
        for bits in (8..=256).map(|quarters| f64::from(quarters) / 4.0) {
            let filter = build(spec, &digests, bits, 3);
            widths.insert(head_and_width(&filter).1);
            let bytes = [&[0xa5], &filter.to_bytes()[..]].concat();
            let view = PointFilterRef::open(&bytes[1..]).unwrap();
            assert!(digests.iter().all(|&digest| view.contains(digest)), "{spec:?} {bits}");
            assert!(strangers(300).all(|digest| view.contains(digest) == filter.contains(digest)));
            let owned = view.to_owned();
            assert_eq!(owned.to_bytes(), bytes[1..]);
            assert!(digests.iter().all(|&digest| owned.contains(digest)), "{spec:?} {bits}");
            assert_eq!(owned.bits_per_key(), view.bits_per_key());
            assert_eq!(owned.expected_rate(), view.expected_rate());
        }
        let least = if spec == PointSpec::Cuckoo { 3 } else { 1 };
        assert!(widths.into_iter().eq(least..=32), "{spec:?}");
    }
}

#[test]
fn bits_are_at_most_and_nearly_the_requested_number() {
    for keys in (1..100).chain([128, 333, 1000, 3001, 20_000]) {
        let digests = digests(0..keys);
        for spec in SPECS {
            for bits in [4.0, 7.3, 10.0, 16.0, 30.0] {
                let filter = build(spec, &digests, bits, 0);
                let (what, width) = (format!("{spec:?} {keys} {bits}"), head_and_width(&filter).1);
                let (asked, used) = (keys as f64 * bits, filter.bits_per_key() * keys as f64);
                assert!(used < asked + 64.0, "{what}: {used}");
                // One bit more per slot would have been too many; a cuckoo filter uses what is left
                // for buckets.
                let unused = if spec == PointSpec::Cuckoo { 128.0 } else { used / f64::from(width) + 64.0 };
                assert!(width == 32 || used + unused >= asked, "{what}: {used}, {width}");
            }
        }
    }
}

/// A budget divided over runs may leave the largest next to nothing. Such a filter is useless but
/// valid.
#[test]
fn next_to_no_bits_accept_everything() {
    let mut digests = digests(0..3000);
    for spec in SPECS {
        for (bits, least) in [(0.02, 0.99), (0.5, 0.9), (1.0, 0.9), (1.2, 0.4)] {
            let filter = build(spec, &digests, bits, 4);
            let (got, theory) = (rate(&filter, 5000), filter.expected_rate());
            assert!(theory >= least && (got - theory).abs() < 0.05, "{spec:?} {bits}: {got} {theory}");
            assert!(filter.bits_per_key() <= bits + 64.0 / 3000.0);
            let bytes = filter.to_bytes();
            let view = PointFilterRef::open(&bytes).unwrap();
            assert!(digests.iter().all(|&digest| view.contains(digest)));
        }
    }
    for bits in 1..40 {
        // Four bits per key have room for fingerprints, however few the keys.
        let few = &digests[..bits];
        assert!(SPECS.iter().all(|&spec| head_and_width(&build(spec, few, 4.0, 1)).1 > 0), "{bits}");
    }
    digests.extend_from_within(..);
    assert!(SPECS.iter().all(|&spec| build(spec, &digests, 0.1, 4).keys() == 3000));
}

#[test]
fn absurd_sizes_are_rejected() {
    let digests = digests(0..10);
    for (spec, bits) in SPECS.into_iter().flat_map(|s| [0.0, -1.0, 64.1, f64::NAN].map(|bits| (s, bits))) {
        let error = PointFilter::build(spec, &digests, bits, 0, Verify::Yes).unwrap_err();
        assert!(matches!(error, FilterError::BitsPerKey(_)), "{error}");
    }
}

#[test]
fn a_filter_without_keys_holds_nothing() {
    for spec in SPECS {
        let filter = build(spec, &[], 10.0, 5);
        assert_eq!((filter.keys(), filter.expected_rate(), rate(&filter, 5000)), (0, 0.0, 0.0), "{spec:?}");
        assert_eq!(filter.encoded_len(), 8 + TRAILER_LEN);
        let bytes = filter.to_bytes();
        let view = PointFilterRef::open(&bytes).unwrap();
        assert!(strangers(5000).all(|digest| !view.contains(digest)), "{spec:?}");
    }
}

/// Duplicates make peeling impossible, so they must be found, even where a slot gets so many that
/// its count wraps.
#[test]
fn versions_of_a_key_count_once() {
    for keys in [1, 2, 50, 1200] {
        let once = digests(0..keys);
        for copies in [2, 3, 64, 65, 256] {
            let many: Vec<_> = (0..copies).flat_map(|_| once.iter().copied()).collect();
            for spec in SPECS {
                let (filter, same) = (build(spec, &once, 9.0, 8), build(spec, &many, 9.0, 8));
                assert_eq!(
                    (same.keys(), same.encoded_len()),
                    (keys, filter.encoded_len()),
                    "{spec:?} {keys}"
                );
                assert_eq!(head_and_width(&same), head_and_width(&filter), "{spec:?} {keys}");
                assert!(once.iter().all(|&digest| same.contains(digest)));
            }
        }
        // One version too many in a large run.
        let mut more = digests(0..5000);
        more.push(more[keys as usize]);
        assert!(SPECS.iter().all(|&spec| build(spec, &more, 9.0, 8).keys() == 5000));
    }
}

/// Digests are hashes, so these do not occur in practice; but nothing must break if they do, and
/// similar absent keys should be told apart.
#[test]
fn low_entropy_digests_are_held_and_told_apart() {
    let makes: [fn(u64) -> u64; 7] = [
        |i| i,
        |i| !i,
        |i| i << 32,
        |i| i << 46,
        |i| i.reverse_bits(),
        |i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        |i| (i & 0xff) << 56 | i >> 8,
    ];
    for (make, number) in makes.into_iter().zip(0..) {
        let digest = |i| Digest::from_u64(make(i));
        let members: Vec<_> = (0..20_000).map(digest).collect();
        for spec in SPECS {
            let filter = build(spec, &members, 10.0, number);
            let hits = (20_000..220_000).filter(|&i| filter.contains(digest(i))).count();
            let expected = 200_000.0 * filter.expected_rate();
            assert!((hits as f64) < 1.3 * expected, "{spec:?} {number}: {hits} of {expected}");
        }
    }
}

#[test]
fn another_salt_is_found_when_the_first_fails() {
    for spec in [PointSpec::BinaryFuse, PointSpec::Xor] {
        let (mut retried, mut built) = (0, 0);
        for (keys, salt) in (1..300).flat_map(|keys| [0, 7, 1 << 40, u64::MAX].map(|salt| (keys, salt))) {
            let digests = digests(0..keys);
            let filter = build(spec, &digests, 8.0, salt);
            built += 1;
            retried += u32::from(head_and_width(&filter).0.salt != salt);
            assert!(
                PointFilter::open(&filter.to_bytes()).unwrap().check(&digests).is_ok(),
                "{spec:?} {keys}"
            );
        }
        assert!(retried > 0, "{spec:?}: the retry was not tested");
        assert!(retried < built / 5, "{spec:?}: {retried} of {built} salts failed");
    }
}

/// Runs share a digest per key: under neighbouring salts, a key that fools one must not be likelier
/// to fool the other.
#[test]
fn filters_of_neighbouring_salts_err_independently() {
    let digests = digests(0..30_000);
    for spec in SPECS {
        let [a, b] = [4, 5].map(|salt| build(spec, &digests, 6.0, salt));
        let n = 400_000;
        let both = strangers(n).filter(|&digest| a.contains(digest) && b.contains(digest)).count() as f64;
        let expected = n as f64 * rate(&a, n) * rate(&b, n);
        assert!((both - expected).abs() < 4.5 * expected.sqrt(), "{spec:?}: {both} against {expected}");
    }
}

#[test]
fn a_run_large_enough_to_be_ordered_is_held() {
    let digests = digests(0..70_000);
    for spec in SPECS {
        // `build` probes all keys.
        assert_eq!(build(spec, &digests, 9.5, 1).keys(), 70_000);
    }
}

fn three_slots_within_bounds(slots: impl Slots, hash: u64) {
    let [a, b, c] = slots.of(hash);
    assert!(a < b && b < c && c < slots.count(), "{hash:x}: {a} {b} {c} of {}", slots.count());
}

/// Opens a filter over `words`, borrowed; if that works, probes it and its owned copy. Returns
/// whether it worked.
macro_rules! exercise {
    ($kind:ident, $head:expr, $words:expr) => {{
        let head: Head = $head;
        let bytes: Vec<[u8; 8]> = $words.iter().map(|word: &u64| word.to_le_bytes()).collect();
        let owned = $kind::from_parts(head, Owned::from(&$words[..]));
        let borrowed = $kind::from_parts(head, Borrowed(&bytes));
        assert_eq!(owned.is_ok(), borrowed.is_ok(), "{head:?}");
        if let (Ok(owned), Ok(borrowed)) = (&owned, &borrowed) {
            let rate = owned.expected_rate();
            assert!((0.0..=1.0).contains(&rate), "{head:?}: {rate}");
            for digest in (0..40u64).map(|i| Digest::from_u64(i.wrapping_mul(0x2545_f491_4f6c_dd1d))) {
                owned.prefetch(digest);
                borrowed.prefetch(digest);
                assert_eq!(owned.contains(digest), borrowed.contains(digest), "{head:?}");
            }
        }
        owned.is_ok()
    }};
}

#[test]
fn any_head_over_any_words_is_rejected_or_answers() {
    let mut opened = [0; 3];
    let mut words = Vec::new();
    for i in 0..90u64 {
        words.push(if i % 7 == 0 { u64::MAX } else { Digest::from_u64(i).remix(1) });
        for first in (0..=33).chain([64, 128, 255]) {
            for (second, keys) in [(0, 0), (0, 1), (0, u64::MAX), (2, 9), (5, 9), (18, 9), (19, 9), (255, 9)]
            {
                let head = Head { salt: i, keys, params: [first, second] };
                opened[0] += u32::from(exercise!(BinaryFuse, head, words));
                opened[1] += u32::from(exercise!(Xor, head, words));
                opened[2] += u32::from(exercise!(Cuckoo, head, words));
            }
        }
    }
    assert!(opened.iter().all(|opened| *opened > 1000), "{opened:?}");
    for size in [0, 1 << 20] {
        let words = vec![u64::MAX; size];
        for second in 0..=19 {
            let head = Head { salt: 1, keys: 5, params: [32, second] };
            let fuse = exercise!(BinaryFuse, head, words);
            assert_eq!(fuse, size > 0 && second <= 18, "{second}");
        }
    }
}

#[test]
fn words_that_no_slot_needs_are_rejected() {
    let opens = |spec, count: usize, params| {
        let (head, words) = (Head { salt: 0, keys: 1, params }, Owned::from(vec![0; count]));
        match spec {
            PointSpec::BinaryFuse => BinaryFuse::from_parts(head, words).is_ok(),
            PointSpec::Xor => Xor::from_parts(head, words).is_ok(),
            _ => Cuckoo::from_parts(head, words).is_ok(),
        }
    };
    let counts = |spec, params| (0..70).filter(|&count| opens(spec, count, params)).collect::<Vec<_>>();
    // Segments of 128 bytes, at least three.
    assert_eq!(counts(PointSpec::BinaryFuse, [8, 7]), [48, 64]);
    // Three blocks of half words: four words would be two halves too many.
    assert_eq!(counts(PointSpec::Xor, [32, 0])[..6], [2, 3, 5, 6, 8, 9]);
    // Buckets of two words.
    assert!(counts(PointSpec::Cuckoo, [32, 0]).into_iter().eq((2..70).step_by(2)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn no_false_negative(
        numbers in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..40, (0u64..40).prop_map(|i| i << 58)], 0..300),
        bits in 4.0f64..=64.0,
        salt: u64,
    ) {
        let digests: Vec<_> = numbers.iter().map(|&number| Digest::from_u64(number)).collect();
        for spec in SPECS {
            let filter = build(spec, &digests, bits, salt);
            prop_assert!(digests.iter().all(|&digest| filter.contains(digest)));
            let bytes = filter.to_bytes();
            let view = PointFilterRef::open(&bytes).unwrap();
            prop_assert!(digests.iter().all(|&digest| view.contains(digest)));
        }
    }

    #[test]
    fn damaged_bytes_are_rejected_or_answer(
        keys in 0u64..200, bits in 4.0f64..=64.0, hits in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6),
    ) {
        for spec in SPECS {
            let mut bytes = build(spec, &digests(0..keys), bits, 1).to_bytes();
            let len = bytes.len();
            // Half of the mutations hit the trailer, which opening relies on.
            for (i, &(at, byte)) in hits.iter().enumerate() {
                let at = if i % 2 == 0 { at % len } else { len - 1 - at % TRAILER_LEN };
                // A different kind is not under test here.
                if at != len - TRAILER_LEN + 25 {
                    bytes[at] ^= byte;
                }
            }
            if let Ok(view) = PointFilterRef::open_unverified(&bytes) {
                let rate = view.expected_rate();
                prop_assert!((0.0..=1.0).contains(&rate), "{rate}");
                let owned = view.to_owned();
                for digest in digests(0..50) {
                    prop_assert_eq!(view.contains(digest), owned.contains(digest));
                    owned.prefetch(digest);
                }
            }
        }
    }

    #[test]
    fn slots_are_distinct_and_in_bounds(first: u64, words in 1usize..400, width in 1u8..=32, segment_bits in 0u8..=18) {
        let words: Owned = vec![0; words].into();
        let head = Head { salt: 0, keys: 1, params: [width, segment_bits] };
        let hashes = [first, 0, u64::MAX, first | u64::MAX << 32, first & 0xffff_ffff];
        if let Ok(filter) = BinaryFuse::from_parts(head, Arc::clone(&words)) {
            hashes.into_iter().for_each(|hash| three_slots_within_bounds(filter.parts().0, hash));
        }
        if let Ok(filter) = Xor::from_parts(Head { params: [width, 0], ..head }, words) {
            hashes.into_iter().for_each(|hash| three_slots_within_bounds(filter.parts().0, hash));
        }
    }

    /// The loads of a probe match the definition, up to the last slot.
    #[test]
    fn loads_of_all_sizes_agree(words in prop::collection::vec(any::<u64>(), 1..20)) {
        let words: Owned = words.into();
        let bytes = words.bytes().unwrap_or_default();
        let word = |at: usize| words[at];
        for width in 1..=32u32 {
            for slot in 0..words.len() as u64 * 64 / u64::from(width) {
                let at = slot * u64::from(width);
                let expected = bits::read(&words, at, width);
                let same = |got: u64| got & bits::mask(width) == expected;
                prop_assert!(same(field(word, at, width)), "{width} {slot}");
                if !bytes.is_empty() {
                    prop_assert!(same(unaligned(bytes, at)), "{width} {slot}");
                    let whole = match width {
                        8 => aligned::<1>(bytes, slot),
                        16 => aligned::<2>(bytes, slot),
                        32 => aligned::<4>(bytes, slot),
                        _ => expected,
                    };
                    prop_assert!(same(whole), "{width} {slot}");
                }
            }
        }
    }
}
