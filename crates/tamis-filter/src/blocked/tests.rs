use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::format::{Filter, SharedBytes};
use crate::point::PointFilter;
use crate::{FilterError, PointSpec, Verify};

fn digests(range: std::ops::Range<u64>) -> Vec<Digest> {
    range.map(|i| Digest::of(&i.to_le_bytes())).collect()
}

#[test]
fn the_kernel_of_this_machine_and_the_portable_one_agree_on_random_lines() {
    let mut seen = [0u32; 2];
    for i in 0..40_000u64 {
        let hash = Digest::from_u64(i).remix(1);
        // Dense lines: otherwise random hashes would hardly ever match and only negatives would be
        // compared.
        let density = 1 + i % 7;
        let line = Line(std::array::from_fn(|w| {
            (0..density).fold(0, |acc, d| acc | Digest::from_u64(i * 64 + w as u64 * 4).remix(d + 2) as u32)
        }));
        let (low, probes) = (hash as u32, (hash >> 32) as u8 % 16 + 1);
        let expected = portable::line_contains(&line, low, probes);
        assert_eq!(line_contains(&line, low, probes), expected, "{line:?} {low} {probes}");
        let mut bytes = [0u8; 64];
        for (to, from) in bytes.chunks_exact_mut(4).zip(line.0) {
            to.copy_from_slice(&from.to_le_bytes());
        }
        assert_eq!(portable::line_contains(&bytes, low, probes), expected);
        assert_eq!(line_contains(&bytes, low, probes), expected);
        seen[usize::from(expected)] += 1;
    }
    assert!(seen.iter().all(|n| *n > 5000), "both outcomes were compared: {seen:?}");
}

#[test]
fn the_kernel_of_this_machine_sees_every_single_missing_bit() {
    for probes in 1..=16u8 {
        for low in [0u32, 1, 0xdead_beef, u32::MAX] {
            let mut line = Line::ZERO;
            portable::line_insert(&mut line, low, probes);
            assert!(line_contains(&line, low, probes));
            for i in 0..usize::from(probes) {
                let at = portable::position(low, i);
                let mut without = line;
                without.0[at / 32] &= !(1 << (at % 32));
                assert!(!line_contains(&without, low, probes), "{probes} {low} {i}");
            }
        }
    }
}

#[test]
fn invalid_sizes_are_rejected() {
    for bits in [0.0, -3.0, 64.5, f64::NAN, f64::NEG_INFINITY] {
        assert!(matches!(BlockedBloom::build(&[], bits, 0), Err(FilterError::BitsPerKey(_))));
    }
}

#[test]
fn an_empty_filter_holds_nothing() {
    let filter = BlockedBloomBuilder::new().finish(10.0, 5).unwrap();
    assert!(digests(0..5000).into_iter().all(|d| !filter.contains(d)));
    assert_eq!((filter.line_bytes(), filter.keys(), filter.expected_rate()), (64, 0, 0.0));
    assert_eq!(probe_many_keys(&filter, &digests(0..64)), 0);
}

#[test]
fn versions_of_one_key_count_once() {
    let mut builder = BlockedBloomBuilder::with_capacity(3);
    for key in [b"a", b"a", b"b", b"a"] {
        builder.add(Digest::of(key));
    }
    assert_eq!(builder.len(), 3);
    let twice: Vec<_> = digests(0..1000).into_iter().flat_map(|d| [d, d]).collect();
    let filter = BlockedBloom::build(&twice, 10.0, 0).unwrap();
    assert_eq!((filter.keys(), filter.line_bytes() / 64), (1000, 20));
}

#[test]
fn batches_agree_with_single_probes() {
    let filters: Vec<_> = (0..70u64)
        .map(|i| {
            let from = i * 40;
            BlockedBloom::build(&digests(from..from + 1 + i * 50), 1.0 + (i % 40) as f64, i).unwrap()
        })
        .collect();
    for n in [0usize, 1, 7, 8, 9, 18, 31, 32, 33, 63, 64] {
        let chosen: Vec<u32> = (0..n as u32).map(|j| (j * 37 + 5) % 70).collect();
        for d in digests(0..300) {
            let got = probe_selected(&filters, &chosen, d);
            let want = chosen
                .iter()
                .enumerate()
                .fold(0, |acc, (j, &i)| acc | u64::from(filters[i as usize].contains(d)) << j);
            assert_eq!(got, want);
        }
        let keys = digests(60..60 + n as u64);
        let want =
            keys.iter().enumerate().fold(0, |acc, (j, &d)| acc | u64::from(filters[2].contains(d)) << j);
        assert_eq!(probe_many_keys(&filters[2], &keys), want);
        let pairs: Vec<_> = chosen.iter().copied().zip(keys).collect();
        let want = pairs
            .iter()
            .enumerate()
            .fold(0, |acc, (j, &(i, d))| acc | u64::from(filters[i as usize].contains(d)) << j);
        assert_eq!(probe_pairs(&filters, &pairs), want);
    }
}

#[test]
#[should_panic(expected = "at most 64")]
fn a_batch_of_65_panics() {
    let filter = BlockedBloom::build(&digests(0..1), 10.0, 0).unwrap();
    probe_many_keys(&filter, &digests(0..65));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn batches_agree_with_one_probe_after_the_other(
        seeds in prop::collection::vec(any::<u64>(), 1..32), bits in 0.5f64..40.0, salt: u64,
    ) {
        let half: Vec<_> = seeds.iter().step_by(2).map(|&s| Digest::from_u64(s)).collect();
        let filter = BlockedBloom::build(&half, bits, salt).unwrap();
        let batch = Batch::<32>::locate(&seeds, |&s| (&filter, Digest::from_u64(s)));
        prop_assert_eq!(batch.test(), batch.test_each());
        prop_assert_eq!(batch.test() & 0x5555_5555 & ((1 << seeds.len()) - 1), 0x5555_5555 & ((1 << seeds.len()) - 1));
    }
}

/// Bytes from byte `shift` of a cache line on.
struct Placed {
    lines: Vec<Line>,
    shift: usize,
    len: usize,
}

impl Placed {
    fn bytes(bytes: &[u8], shift: usize) -> SharedBytes {
        let mut lines = vec![Line::ZERO; (shift + bytes.len()).div_ceil(64)];
        for (i, &byte) in bytes.iter().enumerate().map(|(i, byte)| (shift + i, byte)) {
            let word = &mut lines[i / 64].0[i % 64 / 4];
            let mut bytes = word.to_ne_bytes();
            bytes[i % 4] = byte;
            *word = u32::from_ne_bytes(bytes);
        }
        Arc::new(Placed { lines, shift, len: bytes.len() })
    }
}

impl AsRef<[u8]> for Placed {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: a line is 64 bytes of integers.
        let (_, bytes, _) = unsafe { self.lines.align_to::<u8>() };
        &bytes[self.shift..self.shift + self.len]
    }
}

#[cfg(target_endian = "little")]
#[test]
fn a_filter_on_cache_lines_stays_where_it_is_and_any_other_is_copied() {
    let (keys, others) = (digests(0..500), digests(500..3000));
    let built = PointFilter::from(BlockedBloom::build(&keys, 10.0, 7).unwrap());
    let bytes = built.to_bytes();
    for shift in [0, 1, 4, 32, 63] {
        let placed = Placed::bytes(&bytes, shift);
        let opened = Filter::open_in_place(Arc::clone(&placed)).unwrap();
        let in_place = shift == 0;
        assert_eq!(Arc::strong_count(&placed), 1 + usize::from(in_place), "the filter keeps what it uses");
        assert_eq!(opened.in_place_bytes(), if in_place { bytes.len() - 40 } else { 0 });
        assert_eq!(opened.memory_bytes(), built.memory_bytes(), "memory counts wherever it is");
        drop(placed);
        let copy = opened.clone();
        assert_eq!(opened.to_bytes(), bytes);
        drop(opened);
        let Filter::Point(copy) = copy else { panic!("a point filter") };
        assert!(keys.iter().all(|&key| copy.contains(key)));
        assert!(others.iter().all(|&key| copy.contains(key) == built.contains(key)));
    }
}

#[test]
fn bytes_in_place_are_checked_like_others() {
    let keys = digests(0..300);
    let bytes = PointFilter::from(BlockedBloom::build(&keys, 10.0, 7).unwrap()).to_bytes();
    for cut in [0, 1, 40, 64, bytes.len() - 64, bytes.len() - 1] {
        assert!(Filter::open_in_place(Placed::bytes(&bytes[..cut], 0)).is_err(), "{cut}");
    }
    for at in (0..bytes.len()).step_by(13) {
        let mut bad = bytes.clone();
        bad[at] ^= 4;
        assert!(Filter::open_in_place(Placed::bytes(&bad, 0)).is_err(), "{at}");
    }
    let ribbon = PointFilter::build(PointSpec::Ribbon, &keys, 10.0, 1, Verify::No).unwrap();
    let opened = Filter::open_in_place(Placed::bytes(&ribbon.to_bytes(), 0)).unwrap();
    assert_eq!((opened.in_place_bytes(), opened.to_bytes()), (0, ribbon.to_bytes()));
}
