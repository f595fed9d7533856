use proptest::prelude::*;
use tamis_base::key::MAX_KEY_BYTES;

use super::*;
use crate::codec::Encode;

fn encoded<K: AsRef<[u8]>>(keys: &[K]) -> Vec<u8> {
    let mut builder = KeyListBuilder::new();
    keys.iter().for_each(|key| assert!(builder.add(key.as_ref())));
    builder.finish()
}

fn range(bytes: &[u8], start: &[u8], end: Option<&[u8]>) -> Vec<Vec<u8>> {
    let list = KeyListReader::open(bytes).expect("a valid list");
    let mut cursor = list.range(start, end);
    std::iter::from_fn(|| cursor.next().expect("a valid list").map(<[u8]>::to_vec)).collect()
}

/// Keys with much in common: few letters, all lengths around those that do not fit half a byte,
/// including the empty key.
fn keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let letters = || prop::sample::select(vec![0u8, 1, b'a', 0xFF]);
    let key = prop_oneof![
        4 => prop::collection::vec(letters(), 0..5),
        2 => (0..40usize, letters(), prop::collection::vec(letters(), 0..40))
            .prop_map(|(n, letter, tail)| [vec![letter; n], tail].concat()),
        2 => any::<u64>().prop_map(|n| n.to_be_bytes().to_vec()),
        2 => (0..500u64).prop_map(|n| n.to_be_bytes().to_vec()),
    ];
    prop::collection::btree_set(key, 0..300).prop_map(|keys| keys.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_list_returns_the_keys_of_every_range(keys in keys(), picks in prop::collection::vec((any::<u16>(), 0..3u8), 2..12)) {
        let bytes = encoded(&keys);
        let list = KeyListReader::open(&bytes).unwrap();
        prop_assert_eq!(list.len(), keys.len() as u64);
        prop_assert_eq!(list.bounds(), keys.first().map(|k| &k[..]).zip(keys.last().map(|k| &k[..])));
        prop_assert_eq!(&range(&bytes, &[], None), &keys);
        let border = |(pick, kind): (u16, u8)| -> Vec<u8> {
            let key = keys.get(usize::from(pick) % keys.len().max(1)).cloned().unwrap_or_default();
            match kind {
                0 => key,
                1 => [&key[..], &[0]].concat(),
                _ => key[..key.len() / 2].to_vec(),
            }
        };
        let borders: Vec<Vec<u8>> = picks.into_iter().map(border).collect();
        for start in &borders {
            for end in borders.iter().map(Some).chain([None]) {
                let expected: Vec<_> =
                    keys.iter().filter(|key| *key >= start && end.is_none_or(|end| *key < end)).cloned().collect();
                prop_assert_eq!(range(&bytes, start, end.map(|k| &k[..])), expected, "{:?} {:?}", start, end);
            }
        }
    }

    #[test]
    fn no_changed_byte_yields_a_key(keys in keys(), at in any::<prop::sample::Index>(), bit in 0..8u32) {
        let mut bytes = encoded(&keys);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(KeyListReader::open(&bytes).is_err());
        bytes.truncate(at);
        prop_assert!(KeyListReader::open(&bytes).is_err());
    }
}

#[test]
fn long_lists_have_several_chunks_and_a_range_decodes_only_its_own() {
    let keys: Vec<[u8; 8]> = (0..20_000u64).map(|i| (i * 7).to_be_bytes()).collect();
    let mut bytes = encoded(&keys);
    for (from, to) in [(0, 1), (4095, 4097), (4096, 4096), (8191, 12_289), (12_000, 20_000), (19_999, 20_000)]
    {
        let end = keys.get(to).map(|key| &key[..]);
        let found = range(&bytes, &keys[from], end);
        assert!(
            found.iter().map(|key| &key[..]).eq(keys[from..to].iter().map(|key| &key[..])),
            "{from} to {to}"
        );
    }
    // The first chunk does not decode; keys in other chunks are still found, and its own keys are
    // an error.
    bytes[0..100].fill(0);
    reseal(&mut bytes);
    assert_eq!(range(&bytes, &keys[5000], Some(&keys[5003])).len(), 3);
    let list = KeyListReader::open(&bytes).unwrap();
    let mut cursor = list.range(&[], None);
    assert_eq!(cursor.next(), Ok(Some(&keys[0][..])));
    assert!(cursor.next().is_err());
    assert_eq!(cursor.key(), Some(&keys[0][..]), "the last key before the error");
    assert_eq!(cursor.next(), Ok(None));
}

fn reseal(bytes: &mut [u8]) {
    let at = bytes.len() - 16;
    let sum = xxhash_rust::xxh3::xxh3_64(&bytes[..at]);
    bytes[at..at + 8].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn the_longest_keys_fit_and_chunks_of_them_stay_small() {
    let keys: Vec<Vec<u8>> = (0..20u8).map(|i| vec![i; MAX_KEY_BYTES]).collect();
    let bytes = encoded(&keys);
    assert_eq!(range(&bytes, &[], None), keys);
    assert_eq!(range(&bytes, &keys[7], Some(&keys[9])), keys[7..9]);
    let nested: Vec<Vec<u8>> = (0..100).map(|i| vec![7; MAX_KEY_BYTES - 100 + i]).collect();
    let bytes = encoded(&nested);
    assert_eq!(range(&bytes, &[], None), nested);
    assert!(bytes.len() < 3 * MAX_KEY_BYTES, "{}", bytes.len());
}

#[test]
fn a_repeated_key_is_not_added() {
    let mut builder = KeyListBuilder::new();
    for (key, is_new) in [("", true), ("", false), ("a", true), ("a", false), ("a", false), ("ab", true)] {
        assert_eq!(builder.add(key.as_bytes()), is_new, "{key}");
    }
    assert_eq!(range(&builder.finish(), &[], None), [&b""[..], b"a", b"ab"]);
}

#[test]
fn an_empty_list_is_valid() {
    let bytes = KeyListBuilder::new().finish();
    assert_eq!(bytes.len(), TRAILER_BYTES);
    let list = KeyListReader::open(&bytes).unwrap();
    assert_eq!((list.len(), list.bounds(), list.range(&[], None).next()), (0, None, Ok(None)));
}

/// The format as in `docs/formats/tables.md`, byte by byte: it must remain readable.
#[test]
fn the_bytes_match_the_documentation() {
    let long = [&b"cd"[..], &[b'x'; 20]].concat();
    let longer = [&long[..], b"y"].concat();
    let bytes = encoded(&[&b"ab"[..], b"ac", b"cd", &long, &longer]);
    let mut expected = Vec::new();
    expected.extend_from_slice(b"\x10c");
    expected.extend_from_slice(b"\x01cd");
    expected.extend_from_slice(&[0x2F, 19 - 15]);
    expected.extend_from_slice(&[b'x'; 20]);
    expected.extend_from_slice(&[0xF0, 22 - 15, b'y']);
    let chunk = expected.len() as u64;
    expected.put_bytes(&longer);
    expected.put_varint(chunk);
    expected.put_varint(5);
    expected.put_bytes(b"ab");
    let directory = expected.len() as u64 - chunk;
    expected.put_u64(5);
    expected.put_u64(directory);
    expected.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    let sum = xxhash_rust::xxh3::xxh3_64(&expected);
    expected.put_u64(sum);
    expected.extend_from_slice(b"tamis\0kl");
    assert_eq!(bytes, expected);
}

/// Lists with correct checksums that no builder makes: rejected, or an error before a key that is
/// out of order.
#[test]
fn hostile_lists_are_rejected_without_taking_memory() {
    let list = |chunks: &[u8], directory: &dyn Fn(&mut Vec<u8>), keys: u64, version: u32| {
        let mut bytes = chunks.to_vec();
        directory(&mut bytes);
        let directory_bytes = (bytes.len() - chunks.len()) as u64;
        bytes.put_u64(keys);
        bytes.put_u64(directory_bytes);
        bytes.put_u32(version);
        bytes.put_u32(0);
        bytes.put_u64(0);
        bytes.extend_from_slice(&MAGIC);
        reseal(&mut bytes);
        bytes
    };
    let entry = |out: &mut Vec<u8>, len: u64, keys: u64, first: &[u8]| {
        out.put_varint(len);
        out.put_varint(keys);
        out.put_bytes(first);
    };
    let one = |len: u64, keys: u64, first: &'static [u8]| {
        move |out: &mut Vec<u8>| {
            out.put_bytes(b"z");
            entry(out, len, keys, first);
        }
    };
    let sound = list(b"\x00z", &one(2, 2, b"a"), 2, 1);
    assert_eq!(range(&sound, &[], None), [b"a", b"z"]);
    for (what, bytes) in [
        ("version", list(b"\x00z", &one(2, 2, b"a"), 2, 2)),
        ("more keys than bytes", list(b"\x00z", &one(2, 1 << 60, b"a"), 1 << 60, 1)),
        ("a chunk of no keys", list(b"", &one(0, 0, b"a"), 0, 1)),
        ("chunks beyond the bytes", list(b"\x00z", &one(u64::MAX, 2, b"a"), 2, 1)),
        ("bytes of no chunk", list(b"\x00z\x00", &one(2, 2, b"a"), 2, 1)),
        ("another number of keys", list(b"\x00z", &one(2, 2, b"a"), 3, 1)),
        ("a first key behind the last", list(b"", &one(0, 1, b"zz"), 1, 1)),
        ("a last key and no chunk", list(b"", &|out| out.put_bytes(b"z"), 0, 1)),
        ("bytes and no directory", list(b"\x00z", &|_| {}, 0, 1)),
        (
            "chunks out of order",
            list(
                b"",
                &|out| {
                    out.put_bytes(b"z");
                    entry(out, 0, 1, b"b");
                    entry(out, 0, 1, b"a");
                },
                2,
                1,
            ),
        ),
    ] {
        assert!(KeyListReader::open(&bytes).is_err(), "{what}");
    }
    for (what, bytes) in [
        ("descending", list(b"\x00A", &one(2, 2, b"a"), 2, 1)),
        ("equal", list(b"\x00a", &one(2, 2, b"a"), 2, 1)),
        ("shared more than there is", list(b"\x20z", &one(2, 2, b"a"), 2, 1)),
        ("shared less than there is", list(b"\x01az", &one(3, 2, b"a"), 2, 1)),
        ("a rest beyond the chunk", list(b"\x05z", &one(2, 2, b"a"), 2, 1)),
        (
            "a length that overflows",
            list(b"\x0f\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01z", &one(12, 2, b"a"), 2, 1),
        ),
        ("bytes behind the keys", list(b"\x00z\x00\x00", &one(4, 2, b"a"), 2, 1)),
        ("another last key", list(b"\x00y", &one(2, 2, b"a"), 2, 1)),
        (
            "overlapping chunks",
            list(
                b"\x00z\x00z",
                &|out| {
                    out.put_bytes(b"z");
                    entry(out, 2, 2, b"a");
                    entry(out, 2, 2, b"b");
                },
                4,
                1,
            ),
        ),
    ] {
        let list = KeyListReader::open(&bytes).unwrap_or_else(|e| panic!("{what}: {e:?}"));
        let mut cursor = list.range(&[], None);
        let (mut last, mut failed) = (None, false);
        loop {
            match cursor.next() {
                Ok(Some(key)) => {
                    assert!(last.as_deref() < Some(key), "{what}");
                    last = Some(key.to_vec());
                }
                Ok(None) => break,
                Err(_) => failed = true,
            }
        }
        assert!(failed, "{what}");
    }
}

#[test]
fn integers_take_about_six_bytes() {
    // As dense as a table of a database of a hundred million random integers.
    let mut random = 1u64;
    let mut keys: Vec<u64> = (0..100_000u64)
        .map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            0x7000_0000_0000_0000 + (random >> 12) * 4
        })
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let keys: Vec<[u8; 8]> = keys.into_iter().map(u64::to_be_bytes).collect();
    let per_key = encoded(&keys).len() as f64 / keys.len() as f64;
    assert!((5.0..7.0).contains(&per_key), "{per_key} bytes per key");
}
