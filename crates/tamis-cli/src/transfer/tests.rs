//! Whatever is written reads back exactly, and nothing else reads at all.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

type Data = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

const FORMATS: [TransferFormat; 2] = [TransferFormat::Jsonl, TransferFormat::Binary];

fn items(data: &Data) -> Vec<Item> {
    let of = |(name, entries): (&String, &BTreeMap<Vec<u8>, Vec<u8>>)| {
        let entries = entries.iter().map(|(key, value)| Item::Entry(key.clone(), value.clone()));
        std::iter::once(Item::Keyspace(name.clone())).chain(entries).collect::<Vec<_>>()
    };
    data.iter().flat_map(of).collect()
}

fn written(items: &[Item], format: TransferFormat) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), format).unwrap();
    for item in items {
        match item {
            Item::Keyspace(name) => writer.keyspace(name).unwrap(),
            Item::Entry(key, value) => writer.entry(key, value).unwrap(),
        }
    }
    writer.finish().unwrap()
}

/// Returns the items, or where it is bad and how.
fn read(bytes: &[u8]) -> Result<Vec<Item>, (String, String)> {
    let bad = |error| match error {
        TransferError::Bad { place, what } => (place, what),
        TransferError::Io(error) => panic!("{error}"),
    };
    Reader::new(bytes).map_err(bad)?.map(|item| item.map_err(bad)).collect()
}

fn small() -> Vec<Item> {
    let entry = |key: &[u8], value: &[u8]| Item::Entry(key.to_vec(), value.to_vec());
    vec![
        Item::Keyspace("default".into()),
        entry(b"", b"empty key"),
        entry(b"a\n\"\\\0", "Zürich".as_bytes()),
        entry(b"\xff\x00", b""),
        Item::Keyspace("leer / \u{1F980}".into()),
        Item::Keyspace("users".into()),
        entry(b"k", &[0xFE; 30]),
    ]
}

#[test]
fn the_lines_are_what_the_documents_say() {
    let text = String::from_utf8(written(&small(), TransferFormat::Jsonl)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        (lines[0], lines[1], lines[4], lines[8]),
        (
            r#"{"tamis_export":1}"#,
            r#"{"keyspace":"default"}"#,
            r#"{"key_hex":"ff00","value":""}"#,
            r#"{"end":{"entries":4,"keyspaces":3}}"#
        )
    );
    assert_eq!(lines[3], r#"{"key":"a\n\"\\\u0000","value":"Zürich"}"#);
    assert_eq!(lines.len(), 9);
}

#[test]
fn the_bytes_are_what_the_documents_say() {
    let bytes = written(
        &[Item::Keyspace("k".into()), Item::Entry(b"ab".to_vec(), b"c".to_vec())],
        TransferFormat::Binary,
    );
    assert_eq!(&bytes[..12], b"TAMISEXP\x01\0\0\0");
    assert_eq!((&bytes[12..21], bytes[29]), (&b"\x01\x01\0\0\0\0\0\0\0"[..], b'k'));
    assert_eq!(
        bytes[21..29],
        xxhash_rust::xxh3::xxh3_64_with_seed(b"\x01\x01\0\0\0\0\0\0\0k", 0).to_le_bytes()
    );
    assert_eq!(&bytes[30..39], b"\x02\x0b\0\0\0\0\0\0\0");
    assert_eq!(&bytes[47..58], b"\x02\0\0\0\x01\0\0\0abc");
    assert_eq!((bytes[58], &bytes[75..]), (3, &b"\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0"[..]));
}

#[test]
fn whatever_is_cut_off_or_added_is_noticed() {
    for format in FORMATS {
        let whole = written(&small(), format);
        assert_eq!(read(&whole), Ok(small()));
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err(), "{format:?}, cut at {end}");
        }
        for more in [&b"\n"[..], b"{}", b"\0", b"{\"keyspace\":\"more\"}\n", &whole] {
            assert!(read(&[&whole, more].concat()).is_err(), "{format:?}, then {more:?}");
        }
    }
}

#[test]
fn every_flipped_bit_of_the_binary_form_is_noticed() {
    let whole = written(&small(), TransferFormat::Binary);
    for bit in 0..8 * whole.len() {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&bytes).is_err(), "bit {bit}");
    }
}

#[test]
fn frames_cannot_be_left_out_doubled_or_exchanged() {
    let many: Vec<Item> = std::iter::once(Item::Keyspace("k".into()))
        .chain((0..40_000u32).map(|i| Item::Entry(i.to_be_bytes().to_vec(), vec![7; 20])))
        .collect();
    let whole = written(&many, TransferFormat::Binary);
    assert!(read(&whole).is_ok_and(|items| items == many));
    let mut starts = vec![12];
    while starts.last().unwrap() < &whole.len() {
        let at = *starts.last().unwrap();
        let length = u64::from_le_bytes(whole[at + 1..at + 9].try_into().unwrap());
        starts.push(at + 17 + length as usize);
    }
    let frames: Vec<&[u8]> = starts.windows(2).map(|pair| &whole[pair[0]..pair[1]]).collect();
    assert!(frames.len() > 5);
    let made = |frames: &[&[u8]]| read(&[&whole[..12], &frames.concat()].concat());
    assert!(made(&frames).is_ok());
    for at in 0..frames.len() - 1 {
        let mut without = frames.clone();
        without.remove(at);
        let mut doubled = frames.clone();
        doubled.insert(at, frames[at]);
        let mut exchanged = frames.clone();
        exchanged.swap(at, at + 1);
        for wrong in [without, doubled, exchanged] {
            assert!(made(&wrong).is_err(), "frame {at}");
        }
    }
}

#[test]
fn announced_lengths_are_not_believed() {
    let mut bytes = b"TAMISEXP\x01\0\0\0\x02".to_vec();
    for length in [1u64 << 32, 1 << 40, u64::MAX] {
        bytes.truncate(13);
        bytes.extend(length.to_le_bytes());
        bytes.extend([0; 8]);
        let (_, what) = read(&bytes).unwrap_err();
        assert!(what.contains("cut off") || what.contains("no export has"), "{what}");
    }
    // Entries that go beyond a frame whose checksum is right.
    for payload in [&b"\x01\0\0\0"[..], b"\xff\xff\xff\xff\xff\xff\xff\xffab", b"\x02\0\0\0\x01\0\0\0ab"] {
        let mut writer = binary_frames(&[(1, b"k"), (2, payload)]);
        let (place, what) = read(&writer).unwrap_err();
        assert!(what.contains("beyond its frame") && place == "byte 30", "{place}: {what}");
        writer.clear();
    }
    for (frames, what) in [
        (&[(2u8, &b"\x01\0\0\0\0\0\0\0a"[..])][..], "before any keyspace"),
        (&[(1, b"")], "a name of 1 to 255 bytes"),
        (&[(1, b"\xff")], "not UTF-8"),
        (&[(1, b"k"), (1, b"k")], "comes twice"),
        (&[(1, b"k"), (9, b"")], "unknown kind 9"),
        (&[(1, b"k"), (3, b"short")], "malformed"),
        (&[(1, b"k"), (3, &[0; 16])], "are left"),
    ] {
        let (_, found) = read(&binary_frames(frames)).unwrap_err();
        assert!(found.contains(what), "{what}: {found}");
    }
    let long = [&(MAX_KEY_BYTES as u32 + 1).to_le_bytes()[..], &[0; 4], &[b'x'; MAX_KEY_BYTES + 1]].concat();
    assert!(read(&binary_frames(&[(1, b"k"), (2, &long)])).unwrap_err().1.contains("too long"));
    assert!(read(b"TAMISEXP\x02\0\0\0").unwrap_err().1.contains("version 2"));
}

/// Frames with right checksums.
fn binary_frames(frames: &[(u8, &[u8])]) -> Vec<u8> {
    let mut bytes = b"TAMISEXP\x01\0\0\0".to_vec();
    for (number, (kind, payload)) in frames.iter().enumerate() {
        let head = [&[*kind][..], &(payload.len() as u64).to_le_bytes()].concat();
        let checked = [&head, *payload].concat();
        bytes.extend(&head);
        bytes.extend(xxhash_rust::xxh3::xxh3_64_with_seed(&checked, number as u64).to_le_bytes());
        bytes.extend(*payload);
    }
    bytes
}

#[test]
fn wrong_lines_are_named() {
    let head = "{\"tamis_export\":1}\n{\"keyspace\":\"k\"}\n";
    for (line, what) in [
        ("{\"key\":\"a\"}", "`value` or `value_hex`"),
        ("{\"key\":\"a\",\"key_hex\":\"61\",\"value\":\"\"}", "`key` or `key_hex`"),
        ("{\"key\":\"a\",\"key\":\"b\",\"value\":\"\"}", "duplicate field"),
        ("{\"key\":\"a\",\"value\":\"\",\"more\":1}", "unknown field"),
        ("{\"key\":\"a\",\"value\":1}", "string"),
        ("{\"key\":\"\\ud800\",\"value\":\"\"}", "not a line"),
        ("{\"key_hex\":\"6\",\"value\":\"\"}", "odd number"),
        ("{\"key\":\"a\",\"value\":\"\",\"keyspace\":\"x\"}", "a keyspace, an entry, or the end"),
        ("{\"keyspace\":\"k\"}", "comes twice"),
        ("{\"keyspace\":\"\"}", "a name of 1 to 255 bytes"),
        ("{\"tamis_export\":1}", "a keyspace, an entry, or the end"),
        ("{\"end\":{\"keyspaces\":1,\"entries\":1}}", "are left"),
        ("", "not a line"),
        ("[]", "not a line"),
        ("\u{FF}", "not a line"),
    ] {
        let (place, found) = read(format!("{head}{line}\n").as_bytes()).unwrap_err();
        assert!(found.contains(what) && place == "line 3", "{line}: {place}: {found}");
    }
    assert!(read(b"{\"tamis_export\":7}\n").unwrap_err().1.contains("version 7"));
    assert!(read(b"{\"key\":\"a\",\"value\":\"b\"}\n").unwrap_err().1.contains("no export"));
    assert!(
        read(b"{\"tamis_export\":1}\n{\"key\":\"a\",\"value\":\"b\"}\n")
            .unwrap_err()
            .1
            .contains("before any")
    );
    assert!(read(b"a,b\n").unwrap_err().1.contains("no export"));
    assert!(read(b"{}\n").unwrap_err().1.contains("no export"));
    assert!(read(b"").unwrap_err().1.contains("no export"));
}

fn data() -> impl Strategy<Value = Data> {
    let bytes =
        || prop_oneof![prop::collection::vec(any::<u8>(), 0..40), "\\PC{0,12}".prop_map(String::into_bytes)];
    let entries = prop::collection::btree_map(bytes(), bytes(), 0..20);
    prop::collection::btree_map("[^\\p{Cc}]{1,20}", entries, 0..4)
}

proptest! {
    #[test]
    fn everything_reads_back(data in data()) {
        for format in FORMATS {
            prop_assert_eq!(read(&written(&items(&data), format)), Ok(items(&data)));
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, data in data(), at: prop::sample::Index) {
        let _ = read(&bytes);
        for format in FORMATS {
            let mut whole = written(&items(&data), format);
            let head = &whole[..whole.len().min(12)];
            let _ = read(&[head, &bytes].concat());
            let at = at.index(whole.len());
            whole.splice(at..at, bytes.iter().copied());
            // What reads is what an export of something would be: it can be written again.
            if let Ok(found) = read(&whole) {
                prop_assert_eq!(read(&written(&found, format)), Ok(found.clone()));
            }
        }
    }
}
