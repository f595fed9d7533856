use proptest::prelude::*;

use super::*;
use crate::bloom::Bloom;
use crate::format::{self, Filter, FilterInfo, FilterKind, Head};
use crate::point::PointFilter;

const SHARED: [BloomScheme; 2] = [BloomScheme::Rotation, BloomScheme::DoubleHashing];
const LAYOUTS: [ElasticLayout; 3] =
    [ElasticLayout::Standard, ElasticLayout::Blocked, ElasticLayout::Interleaved];

fn spec(units: u32, bits_per_key: f64, scheme: BloomScheme, layout: ElasticLayout) -> ElasticSpec {
    ElasticSpec { units, bits_per_key, scheme, layout }
}

fn members(n: u64) -> Vec<Digest> {
    (0..n).map(|i| Digest::of(&i.to_le_bytes())).collect()
}

/// Returns digests of absent keys: uniform, from their own mixer, because hashing would dominate
/// the tests' time.
fn stranger(i: u64) -> Digest {
    let x = (i + 1).wrapping_mul(0x6eed_0e9d_a4d9_4a4f);
    let x = (x ^ (x >> 32)).wrapping_mul(0x6eed_0e9d_a4d9_4a4f);
    Digest::from_u64(x ^ (x >> 29))
}

fn choose(n: usize, k: usize) -> f64 {
    (0..k).map(|i| (n as f64 - i as f64) / (i + 1) as f64).product()
}

/// Separability: `j` units of 4 bits are equivalent to a filter of `4 j` bits. Measured as the mean
/// over all sets of `j` of 8 units, which needs a tenth of the queries that one set of 6 would need
/// for the same certainty.
#[test]
fn any_units_together_match_theory() {
    let digests = members(100_000);
    for layout in LAYOUTS {
        for scheme in SHARED {
            let group = ElasticGroup::build(spec(8, 4.0, scheme, layout), &digests, 42, Verify::No).unwrap();
            let mut by_count = [0u64; 9];
            const QUERIES: u64 = 3_000_000;
            for i in 0..QUERIES {
                by_count[group.units.iter().filter(|unit| unit.contains(stranger(i))).count()] += 1;
            }
            for j in 1..=6 {
                let sets: f64 =
                    by_count.iter().enumerate().map(|(n, &hits)| hits as f64 * choose(n, j)).sum();
                let rate = sets / choose(8, j) / QUERIES as f64;
                // Equal to the rate of one filter with three probes per unit and all their bits.
                let theory = match layout {
                    ElasticLayout::Standard => theory::bloom_rate(4.0 * j as f64, 3 * j as u32),
                    ElasticLayout::Blocked => theory::blocked_bloom_rate(4.0, 3).powi(j as i32),
                    ElasticLayout::Interleaved => theory::interleaved_rates(4.0, 3, 6)[j],
                };
                assert!((group.expected_rate(j as u32) / theory - 1.0).abs() < 0.02);
                let off = rate / theory - 1.0;
                let certain = if j < 5 { 0.03 } else { 0.1 };
                assert!(
                    off.abs() < certain,
                    "{layout:?} {scheme:?} {j}: {rate} is off by {off} from {theory}"
                );
            }
        }
    }
}

/// Table 3 of the hash-sharing paper: seven units of one probe each, 10 bits per key in all, 10,000
/// keys.
#[test]
fn seven_units_of_one_probe_are_one_filter_of_ten_bits() {
    const KEYS: u64 = 10_000;
    const QUERIES: u64 = 100_000;
    let digests = members(KEYS);
    let sum = |each: &dyn Fn(u64) -> f64| (0..10).map(each).sum::<f64>() / 10.0;
    let theory = theory::bloom_rate(10.0, 7);
    for scheme in SHARED {
        let one = sum(&|salt| {
            let filter = Bloom::build(&digests, 10.0, scheme, salt).unwrap();
            assert_eq!(filter.probes(), 7);
            (0..QUERIES).filter(|&i| filter.contains(stranger(i))).count() as f64 / QUERIES as f64
        });
        for layout in LAYOUTS {
            let seven = sum(&|salt| {
                let spec = spec(7, 10.0 / 7.0, scheme, layout);
                assert_eq!(spec.probes(), 1);
                let set = ElasticGroup::build(spec, &digests, salt, Verify::No).unwrap().set(7);
                (0..QUERIES).filter(|&i| set.contains(stranger(i))).count() as f64 / QUERIES as f64
            });
            assert!((seven / theory - 1.0).abs() < 0.1, "{scheme:?} {layout:?}: {seven} against {theory}");
            assert!(
                (seven / one - 1.0).abs() < 0.1,
                "{scheme:?} {layout:?}: {seven} against one filter's {one}"
            );
        }
    }
    let keys: Vec<_> = (0..KEYS).map(|i| IndependentDigests::of(&i.to_le_bytes(), 7)).collect();
    let spec = spec(7, 10.0 / 7.0, BloomScheme::Independent, ElasticLayout::Standard);
    let set = ElasticGroup::build_independent(spec, &keys, 3).unwrap().set(7);
    assert!(keys.iter().all(|key| set.contains_independent(key).unwrap()));
    let queries = 400_000u64;
    let strangers = (0..queries).map(|i| IndependentDigests::of(&(i + KEYS).to_le_bytes(), 7));
    let rate = strangers.filter(|key| set.contains_independent(key).unwrap()).count() as f64 / queries as f64;
    assert!((rate / theory - 1.0).abs() < 0.1, "independent: {rate} against {theory}");
    assert!(set.contains(stranger(0)), "one digest must not yield a false negative");
}

#[test]
fn a_spec_knows_the_rates_before_anything_is_built() {
    let spec = spec(6, 4.0, BloomScheme::Rotation, ElasticLayout::Standard);
    assert_eq!((spec.probes(), spec.expected_rate(0)), (3, 1.0));
    let group = ElasticGroup::build(spec, &members(50_000), 1, Verify::Yes).unwrap();
    for loaded in 0..=6 {
        let (early, late) = (spec.expected_rate(loaded), group.set(loaded).expected_rate());
        assert!((early / late - 1.0).abs() < 0.01, "{early} {late}");
    }
    assert_eq!(ElasticSet::<Owned>::new(7).expected_rate(), 1.0);
    assert!((spec.expected_rate(6) / 1e-5 - 1.0).abs() < 0.02);
}

#[test]
fn units_of_other_groups_are_rejected() {
    let digests = members(1000);
    let base = spec(4, 4.0, BloomScheme::Rotation, ElasticLayout::Standard);
    let build =
        |spec, keys: usize, salt| ElasticGroup::build(spec, &digests[..keys], salt, Verify::Yes).unwrap();
    let group = build(base, 1000, 5);
    let mut set = ElasticSet::new(5);
    assert!(set.contains(stranger(1)), "no unit, no denial");
    set.load(group.units()[2].clone()).unwrap();
    let other = FilterError::Parameter("the unit belongs to another group");
    for foreign in [
        build(base, 1000, 6),
        build(base, 500, 5),
        build(ElasticSpec { units: 5, ..base }, 1000, 5),
        build(ElasticSpec { scheme: BloomScheme::DoubleHashing, ..base }, 1000, 5),
        build(ElasticSpec { layout: ElasticLayout::Blocked, ..base }, 1000, 5),
        build(ElasticSpec { bits_per_key: 5.0, ..base }, 1000, 5),
    ] {
        assert_eq!(set.load(foreign.units()[0].clone()), Err(other.clone()));
    }
    assert_eq!(ElasticSet::new(4).load(group.units()[0].clone()), Err(other));
    assert_eq!(set.load(group.units()[2].clone()), Err(FilterError::Parameter("the unit is already loaded")));
    set.load(group.units()[0].clone()).unwrap();
    assert_eq!(set.loaded().iter().map(ElasticUnit::index).collect::<Vec<_>>(), [0, 2]);
    assert!(set.unload(1).is_none());
    assert_eq!(set.unload(0).map(|unit| unit.index()), Some(0));
    assert_eq!(set.loaded().len(), 1);
}

#[test]
fn invalid_parameters_are_rejected() {
    let base = spec(4, 4.0, BloomScheme::Rotation, ElasticLayout::Standard);
    let build = |spec| ElasticGroup::build(spec, &[], 0, Verify::Yes).map(|_| ());
    for units in [0, 17, u32::MAX] {
        assert!(matches!(build(ElasticSpec { units, ..base }), Err(FilterError::Parameter(_))));
    }
    for bits_per_key in [0.0, -1.0, 64.1, f64::NAN] {
        assert!(matches!(build(ElasticSpec { bits_per_key, ..base }), Err(FilterError::BitsPerKey(_))));
    }
    let independent = ElasticSpec { scheme: BloomScheme::Independent, ..base };
    assert_eq!(build(independent), Err(FilterError::WrongScheme(BloomScheme::Independent)));
    let few = [IndependentDigests::of(b"k", 11)];
    let independently = |spec| ElasticGroup::build_independent(spec, &few, 0).map(|_| ());
    assert_eq!(independently(independent), Err(FilterError::TooFewDigests { need: 12, have: 11 }));
    assert_eq!(independently(base), Err(FilterError::WrongScheme(BloomScheme::Rotation)));
    let many = ElasticSpec { units: 11, ..independent };
    assert!(matches!(independently(many), Err(FilterError::Parameter(_))));
    let blocked = ElasticSpec { layout: ElasticLayout::Blocked, ..independent };
    assert!(matches!(independently(blocked), Err(FilterError::Parameter(_))));
}

#[test]
fn owned_lines_are_cache_lines() {
    for keys in [1, 100, 5000, 200_000] {
        let spec = spec(2, 4.0, BloomScheme::Rotation, ElasticLayout::Blocked);
        let group = ElasticGroup::build(spec, &members(keys), 0, Verify::Yes).unwrap();
        for unit in group.units() {
            assert_eq!(unit.address() % 64, 0);
            assert_eq!(ElasticUnit::open(&unit.to_bytes()).unwrap().address() % 64, 0);
            assert_eq!((unit.encoded_len() - format::TRAILER_LEN) % 64, 0);
            assert!(unit.memory_bytes() < unit.encoded_len() + 150);
        }
    }
}

#[test]
fn every_truncation_and_every_flipped_bit_is_rejected() {
    for layout in LAYOUTS {
        let spec = spec(3, 9.0, BloomScheme::DoubleHashing, layout);
        let group = ElasticGroup::build(spec, &members(20), 7, Verify::Yes).unwrap();
        let bytes = group.units()[1].to_bytes();
        for len in 0..bytes.len() {
            assert!(
                ElasticUnit::open(&bytes[..len]).is_err() && ElasticUnit::open(&bytes[len + 1..]).is_err()
            );
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(ElasticUnit::open(&flipped).is_err(), "bit {bit}");
            exercise(&flipped);
        }
    }
}

#[test]
fn a_unit_is_no_filter_of_another_kind() {
    let spec = spec(1, 10.0, BloomScheme::Rotation, ElasticLayout::Standard);
    let unit = ElasticGroup::build(spec, &members(9), 0, Verify::Yes).unwrap().units()[0].to_bytes();
    let wrong = Some(FilterError::WrongKind(FilterKind::ElasticUnit));
    assert_eq!(PointFilter::open(&unit).err(), wrong);
    assert_eq!(Filter::open(&unit).err(), wrong);
    let bloom =
        PointFilter::from(Bloom::build(&members(9), 10.0, BloomScheme::Rotation, 0).unwrap()).to_bytes();
    assert_eq!(ElasticUnit::open(&bloom).err(), Some(FilterError::WrongKind(FilterKind::Bloom)));
}

/// Opens without the checksum, which would hide most of the parser, and probes everything.
fn exercise(bytes: &[u8]) {
    let Ok(view) = ElasticUnitRef::open_unverified(bytes) else { return };
    assert!((0.0..=1.0).contains(&view.expected_rate()));
    assert!(view.index() < view.group_units());
    for i in 0..8 {
        view.contains(stranger(i));
    }
    let digests = IndependentDigests::of(b"key", 30);
    let mut set = ElasticSet::new(view.salt());
    set.prefetch(stranger(0));
    set.load(view).unwrap();
    set.prefetch(stranger(0));
    let _ = (set.contains(stranger(9)), set.contains_independent(&digests));
}

/// Computed from the format's description by a script that shares no code with this crate.
#[test]
fn bits_are_those_of_the_format() {
    let digests = [0, u64::MAX, 0x0123_4567_89ab_cdef].map(Digest::from_u64);
    let words: [(_, _, &[u64]); 4] = [
        (ElasticLayout::Standard, BloomScheme::Rotation, &[0x8304_1a0a_d057_20e1, 0x0782_2c11_481f_4160]),
        (
            ElasticLayout::Standard,
            BloomScheme::DoubleHashing,
            &[0xb274_2b14_5b05_409a, 0x4071_3788_1c4b_d146],
        ),
        (
            ElasticLayout::Blocked,
            BloomScheme::Rotation,
            &[
                0x0000_0440_6001_b000,
                0x0080_0000_0400_000a,
                0x8008_1048_0000_0000,
                0x4000_0002_1000_0100,
                0x0022_0001_0000_0180,
                0x2000_0000_8020_0080,
                0x4d00_0100_0101_2000,
                0x80010080,
            ],
        ),
        (
            ElasticLayout::Blocked,
            BloomScheme::DoubleHashing,
            &[
                0x0402_0006_0400_c000,
                0x0000_0014_0001_8001,
                0x0000_00a0_0000_0080,
                0x0000_0800_0104_0680,
                0x0028_6000_0080_4000,
                0x1120_8000_0400_0200,
                0x0000_9000_8000_0110,
                0x8000_0800_0000_0008,
            ],
        ),
    ];
    for (layout, scheme, words) in words {
        let group = ElasticGroup::build(spec(4, 30.0, scheme, layout), &digests, 7, Verify::Yes).unwrap();
        let bytes = group.units()[2].to_bytes();
        let (payload, trailer) = bytes.split_at(words.len() * 8);
        assert_eq!(payload, words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
        let how = group.units()[2].probes() as u8 | (scheme as u8 - 1) << 5 | (layout as u8) << 7;
        assert_eq!(trailer[24..28], [0x32, 7, how, 1]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn no_subset_rejects_a_key(
        seeds in prop::collection::vec(prop_oneof![any::<u64>(), Just(0), Just(u64::MAX)], 0..200),
        units in 1u32..=16, bits in prop_oneof![0.1f64..64.0, Just(64.0)], salt: u64,
        loaded: u16, scheme in 0usize..2, layout in 0usize..3, offset in 0usize..64,
    ) {
        let digests: Vec<_> = seeds.into_iter().map(Digest::from_u64).collect();
        let spec = spec(units, bits, SHARED[scheme], LAYOUTS[layout]);
        let group = ElasticGroup::build(spec, &digests, salt, Verify::Yes).unwrap();
        prop_assert_eq!(group.units().len(), units as usize);
        let places: Vec<Vec<u8>> = group.units().iter().map(|unit| {
            let mut place = vec![0xff; offset];
            unit.write_to(&mut place);
            place
        }).collect();
        let (mut owned, mut views) = (ElasticSet::new(salt), ElasticSet::new(salt));
        for (unit, place) in group.units().iter().zip(&places).rev() {
            let bytes = &place[offset..];
            prop_assert_eq!(bytes.len(), unit.encoded_len());
            prop_assert_eq!(unit.kind(), FilterKind::ElasticUnit);
            if loaded >> unit.index() & 1 == 1 {
                owned.load(ElasticUnit::open(bytes).unwrap()).unwrap();
                views.load(ElasticUnit::open_ref(bytes).unwrap()).unwrap();
            }
        }
        for unit in owned.loaded() {
            prop_assert_eq!(unit.to_bytes(), &places[unit.index() as usize][offset..]);
        }
        prop_assert!(digests.iter().all(|&digest| owned.contains(digest) && views.contains(digest)));
        // The first units in memory together answer as each by itself; more and fewer are copies of
        // them.
        let stack = ElasticStack::of(&group.units()[0]);
        let (most, few) = (units, 1 + u32::from(loaded) % units);
        let mut lines = vec![ElasticLine::ZERO; stack.lines(few)];
        group.units()[..few as usize].iter().for_each(|unit| stack.put(&mut lines, few, unit).unwrap());
        let mut all = vec![ElasticLine::ZERO; stack.lines(most)];
        stack.copy((&lines, few), (&mut all, most));
        group.units()[few as usize..].iter().for_each(|unit| stack.put(&mut all, most, unit).unwrap());
        let mut again = vec![ElasticLine::ZERO; stack.lines(few)];
        stack.copy((&all, most), (&mut again, few));
        prop_assert!(digests.iter().all(|&digest| stack.contains(&all, most, digest)));
        for i in 0..100 {
            let first = group.set(few).contains(stranger(i));
            prop_assert_eq!(stack.contains(&lines, few, stranger(i)), first);
            prop_assert_eq!(stack.contains(&again, few, stranger(i)), first);
            prop_assert_eq!(stack.contains(&all, most, stranger(i)), group.set(most).contains(stranger(i)));
            stack.prefetch(&lines, few, stranger(i));
            let located = stack.locate(&lines, few, stranger(i));
            prop_assert_eq!(located.is_some(), spec.layout == ElasticLayout::Interleaved);
            prop_assert!(located.is_none_or(|located| located.contains() == first));
        }
        let strange = ElasticGroup::build(spec, &digests, salt ^ 1, Verify::No).unwrap();
        prop_assert!(stack.put(&mut lines, few, &strange.units()[0]).is_err(), "a unit of another group");
        for i in 0..100 {
            let each = owned.loaded().iter().all(|unit| unit.contains(stranger(i)));
            prop_assert_eq!(owned.contains(stranger(i)), each);
            prop_assert_eq!(views.contains(stranger(i)), each);
            prop_assert!(!digests.is_empty() || !each || owned.loaded().is_empty());
        }
    }

    #[test]
    fn plausible_trailers_on_random_words_do_no_harm(
        words in prop::collection::vec(any::<u64>(), 0..40), salt: u64, keys: u64, params: [u8; 2],
    ) {
        let mut bytes = Vec::new();
        let head = Head { salt, keys, params };
        format::write(FilterKind::ElasticUnit, head, words.iter().copied(), words.len() as u64, &mut bytes);
        exercise(&bytes);
    }
}
