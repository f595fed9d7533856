//! The small formats: data blocks, filters, key lists, range tombstones.

use tamis_base::key::{KeyBytes, MAX_SEQNO, SeqNo};
use tamis_files::table::{BlockView, InBlock, KeyListBuilder, KeyListReader};
use tamis_files::tree::tombstones::{RangeTombstone, Tombstones};
use tamis_filter::{
    Digest, ElasticUnit, ElasticUnitRef, Filter, FilterError, KeyRange, Next, PointFilter, RangeFilter,
    RangeFilterRef, RangeProbe,
};

use crate::reseal;

/// Checks the content of an uncompressed data block.
pub fn data_block(bytes: &[u8]) {
    let Ok(view) = BlockView::parse(bytes) else { return };
    let entries: Option<Vec<(Vec<u8>, SeqNo)>> = (0..view.len()).map(|i| entry(&view, i)).collect();
    let beyond = view.len();
    assert!(view.copy_key(beyond, &mut Vec::new()).is_err(), "there is nothing behind the last entry");
    let probes: [&[u8]; 4] = [b"", b"key", &[0xFF; 9], bytes];
    for key in probes {
        interrogate(&view, key);
    }
    let Some(entries) = entries else { return };
    let is_before = |a: &(Vec<u8>, SeqNo), b: &(Vec<u8>, SeqNo)| a.0 < b.0 || (a.0 == b.0 && a.1 > b.1);
    let sorted = entries.windows(2).all(|pair| is_before(&pair[0], &pair[1]));
    for (i, (key, seq)) in entries.iter().enumerate().step_by((entries.len() / 64).max(1)) {
        interrogate(&view, key);
        if sorted && *seq <= MAX_SEQNO {
            assert_eq!(view.lower_bound(key, *seq), Ok(i), "a search in a sorted block finds every entry");
            let (found, _) = view.find(key, None, *seq).expect("every entry was read before");
            assert_eq!(found, InBlock::Here(i));
        }
    }
}

/// Reads everything about one entry in every possible way; `None` if any of it is damaged.
fn entry(view: &BlockView<'_>, i: usize) -> Option<(Vec<u8>, SeqNo)> {
    let _ = (view.kind(i), view.value(i));
    let mut key = Vec::new();
    view.copy_key(i, &mut key).ok()?;
    assert_eq!(view.compare_key(i, &key), Ok(std::cmp::Ordering::Equal));
    assert_eq!(view.key_equals(i, &key), Ok(true));
    key.push(0);
    assert_eq!(view.key_equals(i, &key), Ok(false));
    assert_eq!(view.compare_key(i, &key), Ok(std::cmp::Ordering::Less));
    key.pop();
    let (record, group) = (view.key_record(i), view.group_record(i));
    let (record, group) = (record.expect("it was read before"), group.expect("it was read before"));
    let mut assembled = Vec::new();
    match view.key_of(record, group, &mut assembled, &mut 0).expect("it was read before") {
        Some(whole) => assert_eq!(whole.len, key.len(), "a whole key is the key"),
        None => assert_eq!(assembled, key),
    }
    Some((key, view.seq(i).ok()?))
}

fn interrogate(view: &BlockView<'_>, key: &[u8]) {
    for snapshot in [0, 1, MAX_SEQNO] {
        let _ = view.lower_bound(key, snapshot);
        for digest in [None, Some(Digest::of(key)), Some(Digest::from_u64(u64::MAX))] {
            if let Ok((InBlock::Here(index), _)) = view.find(key, digest, snapshot) {
                assert_eq!(view.key_equals(index, key), Ok(true), "the entry of another key");
                assert!(view.seq(index).is_ok_and(|seq| seq <= snapshot), "an entry that is too new");
            }
        }
    }
}

/// Checks a serialized filter of any kind, including its checksum.
pub fn filter(bytes: &[u8]) {
    check_filter(bytes);
    check_range_filter(bytes);
    check_elastic_unit(bytes);
    let sealed = reseal::filter(bytes);
    if sealed != bytes {
        assert!(
            !matches!(Filter::open(&sealed), Err(FilterError::Checksum)),
            "the checksum differs from that in the format description"
        );
        check_filter(&sealed);
        check_range_filter(&sealed);
        check_elastic_unit(&sealed);
    }
}

/// Checks one unit of an elastic group, loaded alone.
fn check_elastic_unit(bytes: &[u8]) {
    let Ok(unit) = ElasticUnitRef::open_unverified(bytes) else { return };
    assert!(unit.index() < unit.group_units(), "a unit beyond its group");
    for digest in (0..50u64).map(|i| Digest::of(&i.to_le_bytes())) {
        let _ = unit.contains(digest);
    }
    assert!((0.0..=1.0).contains(&unit.expected_rate()), "a rate of {}", unit.expected_rate());
    if let Ok(owned) = ElasticUnit::open(bytes) {
        assert_eq!(owned.to_bytes(), bytes, "the encoding of a unit is unique");
    }
}

fn check_range_filter(bytes: &[u8]) {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let Ok(view) = RangeFilterRef::open_unverified(bytes) else { return };
    let numbers = [0, 1, 0xff, 1 << 32, u64::MAX - 1, u64::MAX].map(u64::to_be_bytes);
    let keys = || {
        let words: [&[u8]; 7] = [b"", b"\0", b"a", b"ab\xff", b"abcdefghij", b"\xff", &[0xff; 20]];
        words.into_iter().chain(numbers.iter().map(|n| &n[..]))
    };
    let owned = RangeFilter::open(bytes);
    for key in keys() {
        let answers = |f: &dyn RangeProbe| {
            (f.contains_key(key, Digest::of(key)), f.next(key), f.contains_range(KeyRange::from(key)))
        };
        let answer = answers(&view);
        if let Next::NotBelow(next) = &answer.1 {
            assert!(next[..] >= *key, "the next key is before the one it follows");
        }
        if let Ok(owned) = &owned {
            assert_eq!(answers(owned), answer);
        }
        for end in keys() {
            for range in [
                KeyRange::closed(key, end),
                KeyRange::new(Excluded(key), Excluded(end)),
                KeyRange::new(Unbounded, Included(end)),
            ] {
                assert!(!(view.contains_range(range) && range.is_empty()), "something in an empty range");
            }
        }
    }
    let _ = (view.kind(), view.keys(), view.bits_per_key(), view.memory_bytes());
    for keys in [0, 1, 1000, u64::MAX] {
        assert!(view.expected_rate(keys).is_none_or(|rate| (0.0..=1.0).contains(&rate)));
    }
    if let Ok(owned) = owned {
        assert_eq!(owned.to_bytes(), bytes, "the encoding of a filter is unique");
        assert!(owned.memory_bytes() <= 2 * bytes.len() + 4096, "more memory than the bytes justify");
    }
}

fn check_filter(bytes: &[u8]) {
    use tamis_filter::PointFilterRef;
    let digests =
        (0..200u64).map(|i| Digest::of(&i.to_le_bytes())).chain([0, 1, u64::MAX].map(Digest::from_u64));
    let unverified = PointFilterRef::open_unverified(bytes);
    if let Ok(filter) = &unverified {
        digests.clone().for_each(|digest| _ = filter.contains(digest));
        let _ = (filter.kind(), filter.bits_per_key(), filter.expected_rate());
    }
    let (borrowed, owned) = (PointFilter::open_ref(bytes), PointFilter::open(bytes));
    assert_eq!(borrowed.is_ok(), owned.is_ok());
    let (Ok(borrowed), Ok(owned)) = (borrowed, owned) else { return };
    let unverified = unverified.expect("what can be opened can be opened unverified");
    assert_eq!(owned.to_bytes(), bytes, "the encoding of a filter is unique");
    assert_eq!(owned.encoded_len(), bytes.len());
    assert!(owned.memory_bytes() <= bytes.len() + 256, "a filter takes more memory than its bytes justify");
    assert!((0.0..=1.0).contains(&owned.expected_rate()), "a rate of {}", owned.expected_rate());
    for digest in digests {
        let answer = owned.contains(digest);
        assert_eq!((borrowed.contains(digest), unverified.contains(digest)), (answer, answer));
    }
}

/// Checks a table's key list, as it is and with its checksum corrected.
pub fn key_list(bytes: &[u8]) {
    check_key_list(bytes);
    check_key_list(&reseal::key_list(bytes));
}

fn check_key_list(bytes: &[u8]) {
    let Ok(list) = KeyListReader::open(bytes) else { return };
    let (keys, sound) = keys_in(&list, &[], None);
    assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "keys ascend, whatever the bytes");
    assert!(keys.len() as u64 <= list.len());
    if sound {
        assert_eq!(keys.len() as u64, list.len());
        let bounds = keys.first().map(Vec::as_slice).zip(keys.last().map(Vec::as_slice));
        assert_eq!(list.bounds(), bounds);
        let mut again = KeyListBuilder::new();
        keys.iter().for_each(|key| assert!(again.add(key)));
        let again = again.finish();
        let again = KeyListReader::open(&again).expect("a reader opens what a builder made");
        assert_eq!(keys_in(&again, &[], None), (keys.clone(), true));
    }
    let mut borders: Vec<Vec<u8>> = keys.iter().step_by(1 + keys.len() / 8).cloned().collect();
    borders.extend(borders.clone().iter().map(|key| [key, &[0][..]].concat()));
    borders.push(Vec::new());
    for start in &borders {
        for end in borders.iter().map(|end| Some(&end[..])).chain([None]) {
            let (found, found_all) = keys_in(&list, start, end);
            if sound {
                let inside = keys.iter().filter(|key| *key >= start && end.is_none_or(|end| &key[..] < end));
                assert!(found_all && found.iter().eq(inside), "keys from {start:?} to {end:?}");
            }
        }
    }
}

/// Returns the keys of a range, and whether all of them could be read.
fn keys_in(list: &KeyListReader<'_>, start: &[u8], end: Option<&[u8]>) -> (Vec<Vec<u8>>, bool) {
    let (mut cursor, mut keys) = (list.range(start, end), Vec::new());
    loop {
        match cursor.next() {
            Ok(Some(key)) => keys.push(key.to_vec()),
            Ok(None) => return (keys, true),
            Err(_) => {
                assert_eq!(cursor.next(), Ok(None), "nothing comes after damage");
                return (keys, false);
            }
        }
    }
}

/// Checks a table's range tombstones.
pub fn tombstones(bytes: &[u8]) {
    let Some(set) = Tombstones::decode(bytes) else { return };
    let mut again = Vec::new();
    set.encode(&mut again);
    assert_eq!(again, bytes, "the encoding of range tombstones is unique");
    let all: Vec<RangeTombstone> = set.iter().collect();
    if all.len() > 256 {
        return;
    }
    assert_eq!(Tombstones::fragment(all.clone()), set, "fragmenting again changes nothing");
    assert_eq!(Tombstones::merge([&set, &set]), set, "merging a set with itself changes nothing");

    let mut borders: Vec<KeyBytes> =
        set.fragments().iter().flat_map(|f| [Some(f.start.clone()), f.end.clone()]).flatten().collect();
    borders.extend(borders.clone().iter().map(|key| [key, &[0][..]].concat().into()));
    borders.extend([[][..].into(), [0xFF; 3][..].into()]);
    let snapshots = [0, 1, MAX_SEQNO / 2, MAX_SEQNO];
    let covers =
        |t: &RangeTombstone, key: &[u8]| *t.start <= *key && t.end.as_ref().is_none_or(|end| **end > *key);
    for key in &borders {
        for snapshot in snapshots.into_iter().chain(all.iter().map(|t| t.seq)) {
            let expected = all.iter().filter(|t| covers(t, key) && t.seq <= snapshot).map(|t| t.seq).max();
            assert_eq!(set.cover(key, snapshot), expected.unwrap_or(0), "at {key:?} as of {snapshot}");
        }
        assert_eq!(set.fragment_at(key).is_some(), all.iter().any(|t| covers(t, key)));
    }
    if let [lower, .., upper] = &borders[..] {
        let clipped = set.clip(lower, Some(upper));
        for key in &borders {
            let inside = lower <= key && key < upper;
            let expected = if inside { set.cover(key, MAX_SEQNO) } else { 0 };
            assert_eq!(
                clipped.cover(key, MAX_SEQNO),
                expected,
                "clipping changes what is deleted at {key:?}"
            );
        }
    }
    // Readers must not notice what a compaction drops.
    let readers = [MAX_SEQNO / 2, MAX_SEQNO];
    let kept = set.retain_visible(&readers, false);
    for key in &borders {
        for reader in readers {
            assert_eq!(
                kept.cover(key, reader),
                set.cover(key, reader),
                "at {key:?} for the reader at {reader}"
            );
        }
    }
}
