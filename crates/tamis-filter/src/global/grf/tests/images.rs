//! Bytes of partitions: what was changed on the way is either rejected, or a filter that answers
//! something.

use proptest::prelude::*;

use super::walks::filled;
use super::*;
use crate::global::Ahead;

/// Calls everything that a partition can do.
fn exercise(partition: &Partition, kind: usize) {
    let (mut out, mut bound) = (Ahead { most: 3, ..Ahead::default() }, Vec::new());
    for i in 0..60 {
        let key = key(kind, i * 7);
        let digest = Digest::of(&key);
        partition.prefetch(partition.position(&key, digest));
        let mut found = 0;
        partition.probe(&key, digest, |_| found += 1);
        // A probe goes through 32 slots at a time and asks for the end of the block after that, so
        // bits that stand for more entries than the block has add up to 31.
        assert!(found <= partition.entries() + 31);
        if partition.ahead(&key, None, &mut out) {
            let numbers = out.found.iter().map(|(_, number)| *number).chain(out.until);
            numbers.for_each(|number| partition.lower_key(number, &mut bound));
        }
        if partition.behind(Some(&key), b"", &mut out) {
            let numbers = out.found.iter().map(|(_, number)| *number).chain(out.until);
            numbers.filter(|&n| n != NO_BOUND).for_each(|number| partition.lower_key(number, &mut bound));
        }
    }
    assert!(partition.code_bits() >= 0.0 && partition.expected_rate() >= 0.0);
    assert!(partition.largest_block() as u64 <= partition.entries());
    let keys: Vec<Key> = (0..40).map(|i| key(kind, i * 13)).collect();
    let cuts = Cuts::of([epochs(0, 100), epochs(100, 101), epochs(101, 103)]);
    for table in [epochs(0, 100), epochs(102, 103), epochs(103, 104)] {
        let all = batch(keys.iter().map(|key| (key, table)));
        let one = batch(keys.iter().take(1).map(|key| (key, table)));
        for batch in [all, one] {
            assert!(!partition.insert(&batch, &cuts).to_bytes().is_empty());
        }
    }
    for derived in [partition.collect(0, &cuts), partition.shrink()] {
        assert!(!derived.to_bytes().is_empty());
    }
    assert!(!partition.to_bytes().is_empty());
}

/// How bytes are changed.
#[derive(Clone, Debug)]
enum Change {
    Flip(usize, u8),
    /// Overwrites a field near the front, where the parameters are.
    Field(usize, u32),
    Truncate(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let value = prop_oneof![any::<u32>(), 0u32..80, Just(u32::MAX), (0u32..32).prop_map(|bit| 1 << bit)];
    prop_oneof![
        4 => (any::<usize>(), 0u8..8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        4 => (any::<usize>(), value).prop_map(|(at, value)| Change::Field(at, value)),
        1 => any::<usize>().prop_map(Change::Truncate),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn changed_bytes_never_panic(
        kind in 0..KINDS,
        map in prop::sample::select(&MAPS[..]),
        bits_per_key in 1.0..20.0,
        built in 0u64..600,
        flushes in prop::collection::vec(0u64..60, 0..4),
        changes in prop::collection::vec(change(), 1..4),
    ) {
        let spec = PartitionSpec { bits_per_key, ..spec_of(map) };
        let mut bytes = filled(kind, &spec, built, &flushes).0.to_bytes();
        for change in changes {
            let len = bytes.len().max(1);
            match change {
                Change::Flip(at, bit) => bytes.iter_mut().skip(at % len).take(1).for_each(|byte| *byte ^= 1 << bit),
                Change::Field(at, value) => {
                    let at = at % (len / 4).max(1) * 4;
                    bytes.iter_mut().skip(at).zip(value.to_le_bytes()).for_each(|(byte, new)| *byte = new);
                }
                Change::Truncate(to) => bytes.truncate(to % len),
            }
        }
        if let Ok(partition) = Partition::from_bytes(&bytes) {
            exercise(&partition, kind);
        }
    }

    #[test]
    fn random_bytes_are_rejected(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(Partition::from_bytes(&bytes).is_err());
    }
}

/// Every field of the parameters, each with the values that break arithmetic.
#[test]
fn hostile_parameters_never_panic() {
    for map in MAPS {
        let bytes = filled(0, &spec_of(map), 150, &[20]).0.to_bytes();
        let mut accepted = 0;
        for at in (0..bytes.len().min(260)).step_by(4).chain((260..bytes.len() - 4).step_by(44)) {
            for value in [0, 1, 7, 48, 56, 63, 64, 4095, 1 << 20, 1 << 31, u32::MAX] {
                let mut bytes = bytes.clone();
                bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
                if let Ok(partition) = Partition::from_bytes(&bytes) {
                    accepted += 1;
                    exercise(&partition, 0);
                }
            }
        }
        assert!(accepted > 50, "only {accepted} images were accepted");
    }
}

/// The bytes of pieces, each changed in several ways.
#[test]
fn hostile_pieces_never_panic() {
    let partition = filled(7, &spec_of(MAPS[4]), 5000, &[40]).0;
    let map = &partition.inner.map;
    assert!(map.is_in_pieces());
    let (bytes, mut before) = (partition.to_bytes(), Vec::new());
    map.encode(&mut before);
    // The pieces are the last part of the map, which stands behind 100 bytes.
    let end = 100 + before.len();
    assert!(bytes[100..].starts_with(&before));
    let mut accepted = 0;
    for at in end - 35 * 9 - 4..end {
        for change in [1, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= change;
            if let Ok(partition) = Partition::from_bytes(&bytes) {
                accepted += 1;
                exercise(&partition, 7);
            }
        }
    }
    assert!(accepted > 50, "only {accepted} images were accepted");
}

#[test]
fn other_versions_and_more_bytes_are_rejected() {
    let bytes = filled(0, &spec(MapChoice::Learned), 300, &[20]).0.to_bytes();
    assert!(Partition::from_bytes(&bytes).is_ok());
    assert!(Partition::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
    assert!(Partition::from_bytes(&bytes[..bytes.len() - 1]).is_err());
    let mut other = bytes;
    other[0] += 1;
    assert!(Partition::from_bytes(&other).is_err());
}
