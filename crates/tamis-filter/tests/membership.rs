//! A filter never rejects a key it was built over.

use proptest::prelude::*;
use tamis_filter::{
    AtomicBlockedBloom, BlockedBloom, BlockedBloomBuilder, Bloom, BloomScheme, Digest, IndependentDigests,
    probe_many_keys, probe_selected,
};

fn all_filters_hold(keys: &[Vec<u8>], bits: f64, salt: u64) {
    let digests: Vec<_> = keys.iter().map(|key| Digest::of(key)).collect();
    for scheme in [BloomScheme::Rotation, BloomScheme::DoubleHashing] {
        let filter = Bloom::build(&digests, bits, scheme, salt).unwrap();
        assert!(digests.iter().all(|&d| filter.contains(d)), "{scheme:?}");
    }

    let independent = |key: &Vec<u8>| IndependentDigests::of(key, 30);
    let filter = Bloom::build_independent(keys.iter().map(independent), bits, salt).unwrap();
    assert!(keys.iter().all(|key| filter.contains_independent(&independent(key)).unwrap()));

    let mut builder = BlockedBloomBuilder::new();
    digests.iter().for_each(|&d| builder.add(d));
    let filters = [
        BlockedBloom::build(&digests, bits, salt).unwrap(),
        BlockedBloom::build(&[], bits, salt).unwrap(),
        builder.finish(bits, !salt).unwrap(),
    ];
    let atomic = AtomicBlockedBloom::for_keys(keys.len() as u64, bits, salt).unwrap();
    for &d in &digests {
        atomic.insert(d);
        assert!(atomic.contains(d));
        assert_eq!(probe_selected(&filters, &[0, 2, 1], d), 0b011);
        assert!(filters[0].contains(d));
    }
    for group in digests.chunks(64) {
        let all = u64::MAX >> (64 - group.len());
        assert_eq!(probe_many_keys(&filters[0], group), all);
    }
}

#[test]
fn odd_keys_are_held() {
    let odd = [vec![], vec![0], vec![0; 8], vec![0xff; 8], vec![0; 1000], vec![0xff; 1000]];
    for bits in [0.1, 1.0, 10.0, 64.0] {
        all_filters_hold(&odd, bits, 0);
        all_filters_hold(&vec![vec![]; 100], bits, u64::MAX);
    }
}

#[test]
fn digests_of_all_zeros_and_all_ones_are_held() {
    for value in [0, u64::MAX, 1, 1 << 63] {
        let d = Digest::from_u64(value);
        for salt in [0, 1, u64::MAX] {
            assert!(Bloom::build(&[d], 10.0, BloomScheme::Rotation, salt).unwrap().contains(d));
            assert!(BlockedBloom::build(&[d; 3], 10.0, salt).unwrap().contains(d));
        }
    }
}

#[test]
fn a_filter_larger_than_the_build_window_holds_every_key() {
    for n in [0u64, 1, 15, 16, 17, 31, 32, 33, 20_000] {
        let digests: Vec<_> = (0..n).map(|i| Digest::of(&i.to_be_bytes())).collect();
        let filter = BlockedBloom::build(&digests, 8.0, n).unwrap();
        assert!(digests.iter().all(|&d| filter.contains(d)), "{n}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn no_false_negative(
        keys in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..40),
                (0u8..3, 0usize..4).prop_map(|(byte, len)| vec![byte.wrapping_sub(1); len]),
            ],
            1..300,
        ),
        bits in 0.05f64..=64.0,
        salt: u64,
    ) {
        all_filters_hold(&keys, bits, salt);
    }
}
