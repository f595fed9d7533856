use proptest::prelude::*;

use super::build::slots_for;
use super::layout::MAX_SLOTS;
use super::*;
use crate::point::{PointFilter, PointFilterRef};
use crate::words::Borrowed;

fn member(i: u64) -> Digest {
    Digest::of(&i.to_le_bytes())
}

fn members(n: u64) -> Vec<Digest> {
    (0..n).map(member).collect()
}

/// Returns digests of absent keys: as random as real digests, and cheaper.
fn stranger(i: u64) -> Digest {
    Digest::from_u64(Digest::from_u64(i).remix(0xfeed))
}

fn hits(filter: &Ribbon, from: u64, n: u64) -> u64 {
    (from..from + n).filter(|&i| filter.contains(stranger(i))).count() as u64
}

fn bytes_of(words: &[u64]) -> Vec<[u8; 8]> {
    words.iter().map(|word| word.to_le_bytes()).collect()
}

/// The answer according to the filter format, slot by slot.
fn reference(filter: &Ribbon, digest: Digest) -> bool {
    let words = filter.words();
    let (slots, upper) = (words[0] & ((1 << 36) - 1), words[0] >> 36);
    let lower = u64::from(filter.head().params[0]);
    if slots == 0 {
        return false;
    }
    let base = |block: u64| 1 + block * lower + block.saturating_sub(upper);
    let slot = |slot: u64, column: u64| {
        let (block, width) = (slot / 64, (slots - slot / 64 * 64).min(64));
        let bit = base(block) * 64 + column * width + slot % 64;
        words[(bit / 64) as usize] >> (bit % 64) & 1
    };
    let seed = u64::from(filter.head().params[1]).wrapping_mul(0x81e9_2b5b_98ba_91ad);
    let hash = digest.remix(filter.head().salt ^ seed);
    let fold = |factor: u64| {
        let product = u128::from(hash) * u128::from(factor);
        product as u64 ^ (product >> 64) as u64
    };
    let starts = if slots < 128 { 1 } else { slots - 127 };
    let start = ((u128::from(hash) * u128::from(starts)) >> 64) as u64;
    let coefficients =
        u128::from(fold(0xdd2d_8167_82f2_681f) | 1) | u128::from(fold(0xa63a_de4f_9013_6cc3)) << 64;
    let result = fold(0x9ced_8f42_c62a_2f51);
    (0..lower + u64::from(start / 64 >= upper)).all(|column| {
        let chosen = (start..slots.min(start + 128)).filter(|i| coefficients >> (i - start) & 1 == 1);
        chosen.fold(0, |parity, i| parity ^ slot(i, column)) == result >> (63 - column) & 1
    })
}

/// Checks that the filter holds its keys and answers for absent keys as the format says, over owned
/// and borrowed words.
fn answers_as_the_format_says(filter: &Ribbon, digests: &[Digest]) {
    let bytes = bytes_of(filter.words());
    let view = Ribbon::from_parts(filter.head(), Borrowed(&bytes)).unwrap();
    for &digest in digests {
        assert!(filter.contains(digest) && view.contains(digest), "{filter:?} denies {digest:?}");
        assert!(reference(filter, digest));
    }
    for digest in (0..60).map(stranger) {
        let expected = reference(filter, digest);
        assert_eq!((filter.contains(digest), view.contains(digest)), (expected, expected), "{filter:?}");
        filter.prefetch(digest);
        view.prefetch(digest);
    }
}

/// The filter takes exactly the requested words, unless no column can be added to any start.
fn spends_what_is_asked(filter: &Ribbon, asked: f64) {
    let budget = ((filter.keys() as f64 * asked / 64.0).ceil() as u64).max(2);
    spends(&filter.layout, budget);
}

fn spends(layout: &Layout, budget: u64) {
    let (words, slots, columns) = (layout.words(), layout.slots(), layout.lower_columns());
    assert!(words <= budget, "{layout:?}: {words} of {budget}");
    if words < budget && columns < MAX_COLUMNS {
        // One more column in the blocks from that of the last start on would exceed the budget.
        let from = slots.saturating_sub(128) / 64;
        let more = Layout::new(slots, columns, from).words();
        assert!(layout.upper() == layout.blocks() && more > budget, "{layout:?}: {words} of {budget}");
    }
}

#[test]
fn every_small_number_of_keys_works() {
    for n in 1..=400 {
        let digests = members(n);
        for asked in [0.2, 1.0, 7.05, 24.0] {
            let filter = Ribbon::build(&digests, asked, n).unwrap();
            spends_what_is_asked(&filter, asked);
            if n % 7 == 1 || n < 5 {
                answers_as_the_format_says(&filter, &digests);
            } else {
                assert!(digests.iter().all(|&d| filter.contains(d)));
            }
        }
    }
}

#[test]
fn every_number_of_columns_works() {
    let digests = members(700);
    for asked in (1..=64 * 4).map(|i| f64::from(i) / 4.0) {
        let filter = Ribbon::build(&digests, asked, 1).unwrap();
        spends_what_is_asked(&filter, asked);
        answers_as_the_format_says(&filter, &digests[..50]);
        assert!(digests.iter().all(|&d| filter.contains(d)));
    }
}

#[test]
fn a_filter_without_keys_rejects_everything() {
    let filter = Ribbon::build(&[], 10.0, 3).unwrap();
    assert_eq!(hits(&filter, 0, 1000), 0);
    assert_eq!((filter.expected_rate(), filter.words().len(), filter.keys()), (0.0, 1, 0));
    filter.prefetch(stranger(0));
    let opened = PointFilter::open(&PointFilter::from(filter).to_bytes()).unwrap();
    assert!((0..1000).all(|i| !opened.contains(stranger(i))));
}

#[test]
fn invalid_sizes_are_rejected() {
    for bits in [0.0, -1.0, 64.1, f64::NAN, f64::INFINITY] {
        assert!(matches!(Ribbon::build(&members(3), bits, 0), Err(FilterError::BitsPerKey(_))));
    }
}

#[test]
fn a_key_may_come_more_than_once() {
    let one = Ribbon::build(&[member(1); 5000], 8.0, 0).unwrap();
    assert_eq!((one.keys(), one.words().len()), (1, 2));
    let scattered: Vec<_> = (0..20_000).map(|i| member(i * 7919 % 300)).collect();
    for asked in [0.5, 8.3] {
        let filter = Ribbon::build(&scattered, asked, 0).unwrap();
        assert_eq!(filter.head().params[1], 0);
        answers_as_the_format_says(&filter, &members(300));
    }
}

/// Digests with a structure that the hash must not pass on to the equations.
#[test]
fn structured_digests_work_at_the_first_seeds() {
    let patterns: [fn(u64) -> u64; 6] =
        [|i| i, |i| i << 40, |i| i | i << 32, |i| !i, |i| i.reverse_bits(), |i| i.wrapping_mul(0x1_0001)];
    for pattern in patterns {
        let digests: Vec<_> = (0..5000).map(|i| Digest::from_u64(pattern(i))).collect();
        let mut seeds = 0;
        for salt in 0..8 {
            let filter = Ribbon::build(&digests, 7.0, salt).unwrap();
            assert!(digests.iter().all(|&d| filter.contains(d)));
            let strangers = (6000..16_000).filter(|&i| filter.contains(Digest::from_u64(pattern(i)))).count();
            let rate = strangers as f64 / 10_000.0;
            assert!((rate / filter.expected_rate() - 1.0).abs() < 0.5, "{rate} {}", filter.expected_rate());
            seeds += u32::from(filter.head().params[1]);
        }
        assert!(seeds <= 12, "{seeds} seeds more than filters");
    }
}

/// If coefficients are random, as many equations as slots are solvable in 29 % of all cases; one
/// linear relation among the coefficients makes it 0.
#[test]
fn coefficients_have_full_rank() {
    let trials = 2000;
    let solvable = (0..trials)
        .filter(|&salt| {
            let layout = Layout::fitting(100, 100);
            let digests: Vec<_> = (0..100).map(|i| stranger(salt * 100 + i)).collect();
            build::solvable(&layout, &digests, SpreadSalt::new(salt))
        })
        .count();
    let share = solvable as f64 / trials as f64;
    assert!((share - 0.289).abs() < 0.04, "{share}");
}

#[test]
fn a_seed_that_fails_is_followed_by_one_that_does_not() {
    for (n, least) in [(20, 0.4), (500, 0.65), (5000, 0.65)] {
        let digests = members(n);
        let rounds = 100_000 / n.max(500);
        let mut first = 0;
        for salt in 0..rounds {
            let filter = Ribbon::build(&digests, 9.0, salt << 8).unwrap();
            let [_, seed] = filter.head().params;
            assert!(digests.iter().all(|&d| filter.contains(d)), "seed {seed}");
            assert!(seed < 12, "{seed}");
            first += u64::from(seed == 0);
        }
        let share = first as f64 / rounds as f64;
        assert!((least..0.999).contains(&share), "{n} keys: the first seed does in {share}");
    }
}

#[test]
fn later_attempts_take_more_slots() {
    for keys in [1, 2, 100, 1 << 20, 3_900_000_000] {
        let slots: Vec<_> = (0..96).map(|attempt| slots_for(keys, attempt)).collect();
        assert!(slots.is_sorted() && slots[0] == slots[3] && slots[3] < slots[4]);
        assert!(slots[0] > keys && slots[0] as f64 <= keys as f64 * 1.1 + 1.0 && slots[95] > 2 * slots[0]);
    }
    assert!(slots_for(3_900_000_000, 0) <= MAX_SLOTS);
    assert_eq!(slots_for(u64::MAX, 95), u64::MAX);
}

/// Rates with fractional columns, with less than one bit per key (some keys accepted untested), and
/// in narrow filters.
#[test]
fn rates_meet_theory() {
    for n in [40, 150, 30_000] {
        let digests = members(n);
        let draws = (6000 / n).max(1);
        for asked in [0.3, 0.8, 1.0, 2.6, 4.9, 7.05, 8.5] {
            let filters: Vec<_> =
                (0..draws).map(|salt| Ribbon::build(&digests, asked, salt).unwrap()).collect();
            let theory = filters.iter().map(Ribbon::expected_rate).sum::<f64>() / draws as f64;
            // Four standard deviations within a tenth.
            let each = (1600.0 / theory) as u64 / draws + 1;
            let found: u64 = filters.iter().zip(0..).map(|(filter, i)| hits(filter, i * each, each)).sum();
            let rate = found as f64 / (each * draws) as f64;
            assert!((rate / theory - 1.0).abs() < 0.1, "{n} keys {asked} b/key: {rate} against {theory}");
        }
    }
}

#[test]
fn seven_bits_are_worth_one_percent() {
    let filter = Ribbon::build(&members(300_000), 7.05, 0).unwrap();
    assert!(filter.bits_per_key() < 7.051, "{}", filter.bits_per_key());
    assert!((0.0085..0.0097).contains(&filter.expected_rate()), "{}", filter.expected_rate());
    let rate = hits(&filter, 0, 600_000) as f64 / 600_000.0;
    assert!((rate / filter.expected_rate() - 1.0).abs() < 0.06, "{rate}");
}

#[test]
fn each_start_has_the_rate_of_its_columns() {
    let filter = Ribbon::build(&members(20_000), 4.6, 0).unwrap();
    let mut seen = [[0u32; 2]; 2];
    for digest in (0..200_000).map(stranger) {
        let block = filter.layout.locate(digest.mix(filter.spread)).block();
        let more = filter.layout.columns(block) - filter.layout.lower_columns();
        seen[more as usize][usize::from(filter.contains(digest))] += 1;
    }
    for (columns, [no, yes]) in (filter.layout.lower_columns() as i32..).zip(seen) {
        let (rate, theory) = (f64::from(yes) / f64::from(yes + no), 0.5f64.powi(columns));
        assert!(yes + no > 20_000 && (rate / theory - 1.0).abs() < 0.12, "{columns}: {rate}");
    }
}

#[test]
fn runs_with_neighbouring_salts_err_independently() {
    let digests = members(20_000);
    let (a, b) = (Ribbon::build(&digests, 3.1, 1).unwrap(), Ribbon::build(&digests, 3.1, 2).unwrap());
    let n = 400_000;
    let (mut in_a, mut in_b, mut both) = (0, 0, 0);
    for digest in (0..n).map(stranger) {
        let (x, y) = (a.contains(digest), b.contains(digest));
        in_a += u64::from(x);
        in_b += u64::from(y);
        both += u64::from(x && y);
    }
    let expected = in_a as f64 * in_b as f64 / n as f64;
    assert!((both as f64 / expected - 1.0).abs() < 4.0 / expected.sqrt(), "{both} {expected}");
}

// Verified by a script that shares no code with the crate: the filter holds its keys and rejects
// most absent ones.
const FIXTURE: &str = "\
    0d00000010000000ad65bb3c0a1f547cd8de47694482e5cd8c2beec519781d0007000000000000000c00000000000000\
    04000000000000000e03000154464c312b06d9e8151a98cf";

#[test]
fn the_fixture_matches_a_fresh_build() {
    let hex = |digests: &[Digest], asked| -> String {
        let bytes = PointFilter::from(Ribbon::build(digests, asked, 7).unwrap()).to_bytes();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let digests: Vec<_> = (0..12).map(|i| Digest::of(format!("key-{i}").as_bytes())).collect();
    assert_eq!(hex(&digests, 20.0), FIXTURE);
    // Lower, upper and cut blocks; the checksum stands for the bytes.
    assert!(hex(&members(1000), 5.5).ends_with("dcd254ff77ce4613"));
}

#[test]
fn four_words_are_read_whole_or_as_zeros() {
    let words = Owned::from([1, 2, 3, 4, 5]);
    let bytes = bytes_of(&words);
    for at in [0, 1, 2, 4, 5, usize::MAX] {
        let expected = if at < 2 { std::array::from_fn(|i| words[at + i]) } else { [0; 4] };
        assert_eq!((words.four(at), Borrowed(&bytes).four(at)), (expected, expected));
    }
}

#[test]
fn contradictory_parameters_are_rejected() {
    let filter = Ribbon::build(&members(1000), 6.5, 0).unwrap();
    let (head, words) = (filter.head(), filter.words().clone());
    let [columns, seed] = head.params;
    let open = |columns: u8, header: u64, words: &[u64]| {
        let mut words = words.to_vec();
        words[0] = header;
        let opened = Ribbon::from_parts(Head { params: [columns, seed], ..head }, Owned::from(words));
        opened.map(|_| ())
    };
    assert_eq!(open(columns, words[0], &words), Ok(()));
    assert_eq!(open(columns + 1, words[0], &words), Err(FilterError::Corrupt("size")));
    assert_eq!(open(columns, words[0] + 64, &words), Err(FilterError::Corrupt("size")));
    assert_eq!(open(columns, words[0], &words[1..]), Err(FilterError::Corrupt("size")));
    assert_eq!(open(columns, words[0] + (1 << 36), &words), Err(FilterError::Corrupt("size")));
    assert_eq!(open(columns, u64::MAX, &words), Err(FilterError::Corrupt("slots")));
    assert_eq!(open(columns, words[0] | 1 << 63, &words), Err(FilterError::Corrupt("blocks")));
    assert_eq!(open(columns, 0, &words[..1]), Err(FilterError::Corrupt("blocks")));
    assert_eq!(open(0, 0, &words[..1]), Ok(()));
    assert_eq!(open(0, 0, &words[..2]), Err(FilterError::Corrupt("size")));
    // One slot, and one column more than results have bits.
    assert_eq!(open(32, 1, &words[..2]), Err(FilterError::Corrupt("columns")));
    assert_eq!(open(32, 1 | 1 << 36, &words[..2]), Ok(()));
    assert_eq!(open(255, 1 | 1 << 36, &words[..2]), Err(FilterError::Corrupt("columns")));
}

/// A header with few enough slots that words can match it, and occasionally any header.
fn header() -> impl Strategy<Value = u64> {
    let some = (0u64..1000, 0u64..12).prop_map(|(slots, upper)| slots | upper << 36);
    prop_oneof![4 => some, 1 => any::<u64>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn no_false_negatives(
        seeds in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..50, (0u64..9).prop_map(|i| i << 60)], 0..600),
        bits in prop_oneof![0.01f64..1.5, 1.0f64..=64.0], salt: u64,
    ) {
        let digests: Vec<_> = seeds.into_iter().map(Digest::from_u64).collect();
        let filter = Ribbon::build(&digests, bits, salt).unwrap();
        prop_assert!((0.0..=1.0).contains(&filter.expected_rate()));
        prop_assert!(filter.memory_bytes() >= filter.words().len() * 8);
        let bytes = PointFilter::from(filter.clone()).to_bytes();
        let view = PointFilterRef::open(&bytes).unwrap();
        let opened = PointFilter::open(&bytes).unwrap();
        prop_assert!(digests.iter().all(|&d| filter.contains(d) && view.contains(d) && opened.contains(d)));
        prop_assert!((0..50).map(stranger).all(|d| filter.contains(d) == view.contains(d)));
        prop_assert_eq!(&opened.to_bytes(), &bytes);
        prop_assert_eq!(opened.expected_rate(), filter.expected_rate());
        let PointFilterRef::Ribbon(view) = view else { panic!("kind") };
        let copy = view.to_owned();
        prop_assert_eq!(copy.words(), filter.words());
        prop_assert_eq!(view.bits_per_key().to_bits(), filter.bits_per_key().to_bits());
    }

    #[test]
    fn layouts_use_their_words_and_open_again(
        slots in prop_oneof![1u64..500, 1u64..=MAX_SLOTS],
        words in prop_oneof![1u64..500, 1u64..1 << 32],
    ) {
        let layout = Layout::fitting(slots, words);
        spends(&layout, words + 1);
        let opened = Layout::open(layout.lower_columns() as u8, layout.header(), layout.words());
        prop_assert_eq!(opened, Ok(layout));
        for block in [0, 1, layout.whole() / 2, layout.whole().saturating_sub(1)] {
            prop_assert!(layout.base(block) + u64::from(layout.columns(block)) <= layout.base(block + 1));
        }
        for hash in [0, 1, u64::MAX, u64::MAX / 3] {
            let equation = layout.locate(hash);
            prop_assert!(equation.start < slots && equation.start + 128 <= slots.max(128));
        }
    }

    #[test]
    fn hostile_words_are_probed_without_panic(
        mut words in prop::collection::vec(any::<u64>(), 1..200),
        header in header(), columns in 0u8..35, seed: u8, salt: u64, keys: u64,
        fit in prop::bool::weighted(0.9),
    ) {
        words[0] = header;
        if fit {
            // Truncate to the length that the header asks for, where possible.
            let upper = header >> 36;
            let slots = header & ((1 << 36) - 1);
            let least = (slots / 64).saturating_mul(u64::from(columns)) + (slots / 64).saturating_sub(upper);
            let tail = (slots % 64 * (u64::from(columns) + u64::from(slots / 64 >= upper))).div_ceil(64);
            words.resize((1 + least + tail).min(2000) as usize, !salt);
        }
        let head = Head { salt, keys, params: [columns, seed] };
        let bytes = bytes_of(&words);
        let view = Ribbon::from_parts(head, Borrowed(&bytes));
        let owned = Ribbon::from_parts(head, Owned::from(words));
        prop_assert_eq!(view.is_ok(), owned.is_ok());
        if let (Ok(view), Ok(owned)) = (view, owned) {
            for digest in (0..30).map(|i| stranger(i ^ salt)) {
                owned.prefetch(digest);
                view.prefetch(digest);
                prop_assert_eq!(owned.contains(digest), view.contains(digest));
                prop_assert_eq!(owned.contains(digest), reference(&owned, digest));
            }
            prop_assert!((0.0..=1.0).contains(&owned.expected_rate()));
        }
    }

    #[test]
    fn damaged_filters_are_probed_without_panic(n in 0u64..400, bits in 0.5f64..20.0, at: usize, flip in 1u8..) {
        let mut bytes = PointFilter::from(Ribbon::build(&members(n), bits, n).unwrap()).to_bytes();
        let at = at % bytes.len();
        bytes[at] ^= flip;
        prop_assert!(PointFilterRef::open(&bytes).is_err());
        if let Ok(view) = PointFilterRef::open_unverified(&bytes) {
            for digest in (0..30).map(stranger) {
                view.contains(digest);
            }
        }
    }
}
