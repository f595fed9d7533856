//! The byte format: fixtures that must open forever, and hostile bytes that must do no harm.

use proptest::prelude::*;
use tamis_filter::format::TRAILER_LEN;
use tamis_filter::{
    BlockedBloom, Bloom, BloomScheme, Digest, FilterError, FilterKind, IndependentDigests, PointFilter,
    PointFilterRef,
};

// Computed from `docs/formats/filters.md` by a separate script, not by this crate.
const BLOCKED: &str = "\
    ba000002458010000ac2402a00090140240940522041202000c1481068008020140180a080810405838004048c002010\
    0020211205050000101875846a004005001c30000102008204008810080020000800290900040029000301c100100008\
    004200000102108390020b001b0100280008950013440a0288c00000200000a007000000000000000c00000000000000\
    02000000000000001002000154464c3131c0539a7c22574f";
const ROTATION: &str = "\
    06a00222b2f20110ca222aa8010ce2260700000000000000040000000000000002000000000000000e01010154464c31\
    bf2cd18781e588b9";
const DOUBLE: &str = "\
    76c20a4498c58c2418c4211518a1a2550700000000000000040000000000000002000000000000000e01020154464c31\
    716624ddc8f74a8f";
const INDEPENDENT: &str = "\
    5420268ec2b9310a1274d05b502c32980700000000000000040000000000000002000000000000000e01030154464c31\
    7cdcf80c3279185c";

const TREES: [&[u8]; 4] = [b"ash", b"birch", b"cedar", b""];

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn trees() -> Vec<Digest> {
    TREES.map(Digest::of).to_vec()
}

fn numbered() -> Vec<Digest> {
    (0..12).map(|i| Digest::of(format!("key-{i}").as_bytes())).collect()
}

/// One small filter of each kind and scheme.
fn samples() -> Vec<PointFilter> {
    let independent = TREES.map(|key| IndependentDigests::of(key, 14));
    vec![
        BlockedBloom::build(&numbered(), 64.0, 7).unwrap().into(),
        Bloom::build(&trees(), 20.0, BloomScheme::Rotation, 7).unwrap().into(),
        Bloom::build(&trees(), 20.0, BloomScheme::DoubleHashing, 7).unwrap().into(),
        Bloom::build_independent(independent.into_iter(), 20.0, 7).unwrap().into(),
    ]
}

#[test]
fn new_filters_match_the_fixtures_byte_for_byte() {
    for (filter, fixture) in samples().iter().zip([BLOCKED, ROTATION, DOUBLE, INDEPENDENT]) {
        assert_eq!(filter.to_bytes(), unhex(fixture), "{filter:?}");
        assert_eq!(filter.encoded_len(), fixture.len() / 2);
    }
}

#[test]
fn fixtures_open_and_hold_their_keys() {
    for (fixture, keys, kind) in [
        (BLOCKED, numbered(), FilterKind::BlockedBloom),
        (ROTATION, trees(), FilterKind::Bloom),
        (DOUBLE, trees(), FilterKind::Bloom),
    ] {
        let bytes = unhex(fixture);
        let owned = PointFilter::open(&bytes).unwrap();
        let view = PointFilter::open_ref(&bytes).unwrap();
        assert_eq!((owned.kind(), view.kind(), owned.keys()), (kind, kind, keys.len() as u64));
        assert!(keys.iter().all(|&d| owned.contains(d) && view.contains(d)));
        assert_eq!(owned.expected_rate(), view.expected_rate());
        assert_eq!(owned.bits_per_key(), view.bits_per_key());
        let strangers = (0..1000u64).filter(|i| owned.contains(Digest::of(&i.to_le_bytes()))).count();
        assert!(strangers < 50, "{strangers}");
    }
    let PointFilter::Bloom(independent) = PointFilter::open(&unhex(INDEPENDENT)).unwrap() else {
        panic!("kind")
    };
    for key in TREES {
        assert_eq!(independent.contains_independent(&IndependentDigests::of(key, 14)), Ok(true));
    }
}

#[test]
fn views_answer_like_owners_at_every_alignment() {
    let digests: Vec<_> = (0..3000u64).map(|i| Digest::of(&i.to_le_bytes())).collect();
    for filter in [
        PointFilter::from(BlockedBloom::build(&digests[..1000], 4.0, 1).unwrap()),
        PointFilter::from(Bloom::build(&digests[..1000], 4.0, BloomScheme::Rotation, 1).unwrap()),
    ] {
        let bytes = filter.to_bytes();
        let mut buffer = vec![0xff; bytes.len() + 64];
        let mut aligned = 0;
        for offset in 0..64 {
            let place = &mut buffer[offset..][..bytes.len()];
            place.copy_from_slice(&bytes);
            let view = PointFilterRef::open(place).unwrap();
            if let PointFilterRef::BlockedBloom(view) = view {
                aligned += u32::from(view.is_aligned());
            }
            assert!(digests.iter().step_by(7).all(|&d| view.contains(d) == filter.contains(d)));
        }
        assert_eq!(aligned, u32::from(filter.kind() == FilterKind::BlockedBloom));
    }
}

#[test]
fn every_truncation_and_every_flipped_bit_is_rejected() {
    for filter in samples() {
        let bytes = filter.to_bytes();
        for len in 0..bytes.len() {
            assert!(PointFilter::open(&bytes[..len]).is_err(), "cut to {len}");
            assert!(PointFilter::open(&bytes[len + 1..]).is_err(), "cut from {len}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(PointFilter::open(&flipped).is_err(), "bit {bit}");
            // Unverified bytes may answer anything, quickly and without a panic.
            exercise(&flipped);
        }
        let longer = [&[0; 64], &bytes[..]].concat();
        assert_eq!(PointFilter::open(&longer).unwrap_err(), FilterError::Corrupt("bytes before the payload"));
    }
}

#[test]
fn unknown_versions_and_kinds_are_named() {
    let bytes = samples()[0].to_bytes();
    let trailer = bytes.len() - TRAILER_LEN;
    let with = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[trailer + at] = value;
        PointFilter::open(&bytes).unwrap_err()
    };
    assert_eq!(with(27, 2), FilterError::UnknownVersion(2));
    assert_eq!(with(25, 9), FilterError::UnknownKind(9));
    assert_eq!(with(26, 1), FilterError::Corrupt("scheme"));
    assert_eq!(with(24, 17), FilterError::Probes(17));
    assert_eq!(with(24, 0), FilterError::Probes(0));
    assert_eq!(with(23, 0xff), FilterError::Corrupt("size"));
    assert!(matches!(with(16, 3), FilterError::Truncated { .. }));
    assert_eq!(with(32, bytes[trailer + 32] ^ 1), FilterError::Checksum);
}

/// Opens without the checksum, which would hide most of the parser from random bytes, and probes
/// everything.
fn exercise(bytes: &[u8]) {
    let Ok(view) = PointFilterRef::open_unverified(bytes) else { return };
    for i in 0..8u64 {
        view.contains(Digest::from_u64(i.wrapping_mul(0x2545_f491_4f6c_dd1d)));
    }
    assert!((0.0..=1.0).contains(&view.expected_rate()));
    assert!(view.to_owned().memory_bytes() < bytes.len() + 200);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(PointFilter::open(&bytes).is_err());
        exercise(&bytes);
    }

    #[test]
    fn a_plausible_trailer_on_random_bytes_never_panics(
        mut bytes in prop::collection::vec(any::<u8>(), 0..400),
        salt: u64, keys: u64,
        units in prop_oneof![0u64..8, any::<u64>()],
        probes in 0u8..32, kind in 0u8..4, scheme in 0u8..4,
    ) {
        for field in [salt, keys, units] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&[probes, kind, scheme, 1]);
        bytes.extend_from_slice(b"TFL1\0\0\0\0\0\0\0\0");
        exercise(&bytes);
    }

    #[test]
    fn bytes_round_trip(seeds in prop::collection::vec(any::<u64>(), 0..500), bits in 0.1f64..64.0, salt: u64) {
        let digests: Vec<_> = seeds.into_iter().map(Digest::from_u64).collect();
        let blocked = BlockedBloom::build(&digests, bits, salt).unwrap();
        let bloom = Bloom::build(&digests, bits, BloomScheme::DoubleHashing, salt).unwrap();
        for filter in [PointFilter::from(blocked), PointFilter::from(bloom)] {
            let bytes = filter.to_bytes();
            let opened = PointFilter::open(&bytes).unwrap();
            prop_assert!(digests.iter().all(|&d| opened.contains(d)));
            prop_assert_eq!(opened.to_bytes(), bytes);
        }
    }
}
