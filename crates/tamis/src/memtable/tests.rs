//! Behaviour of the memtable against an ordered map, at its limits, and under concurrent reads.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use proptest::prelude::*;
use tamis_base::key::{Kind, MAX_KEY_BYTES, MAX_SEQNO, RangeTombstone, SeqNo, compare_versions};
use tamis_filter::Digest;

use super::node::COMPARISONS;
use super::{MemCursor, Memtable};

type Model = BTreeMap<(Vec<u8>, Reverse<SeqNo>), (Kind, Vec<u8>)>;

fn memtable() -> Arc<Memtable> {
    Arc::new(Memtable::new(1 << 20))
}

fn put(memtable: &Memtable, key: &[u8], seq: SeqNo, value: &[u8]) {
    memtable.insert(key, Digest::of(key), seq, Kind::Put, value);
}

/// The cursor's current version, in the model's terms.
fn here(cursor: &MemCursor) -> Option<(Vec<u8>, SeqNo, Kind, Vec<u8>)> {
    let row = |c: &MemCursor| (c.key().to_vec(), c.seq(), c.kind(), c.version().3.to_vec());
    cursor.valid().then(|| row(cursor))
}

type Row<'a> = (&'a (Vec<u8>, Reverse<SeqNo>), &'a (Kind, Vec<u8>));

fn row((key, value): Row<'_>) -> (Vec<u8>, SeqNo, Kind, Vec<u8>) {
    (key.0.clone(), key.1.0, value.0, value.1.clone())
}

/// Keys that share prefixes, end within the first eight bytes or hold zeros, to cover every path of
/// the comparison.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 255]), 0..5),
        prop::collection::vec(prop::sample::select(vec![0u8, 1]), 7..11),
        any::<u16>().prop_map(|n| format!("table/row/{n}").into_bytes()),
    ]
}

fn operations() -> impl Strategy<Value = Vec<(Vec<u8>, bool, Vec<u8>)>> {
    let value = prop::collection::vec(any::<u8>(), 0..80);
    prop::collection::vec((keys(), any::<bool>(), value), 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn reads_and_cursors_agree_with_an_ordered_map(
        operations in operations(),
        probes in prop::collection::vec((keys(), 0u64..220), 1..40),
        steps in prop::collection::vec(any::<bool>(), 0..20),
    ) {
        let memtable = Arc::new(Memtable::new(64 << 10));
        let mut model = Model::new();
        for (i, (key, is_put, value)) in operations.iter().enumerate() {
            // Sequence numbers mostly rise, as in a log shared by several keyspaces, but not
            // always.
            let seq = if i % 10 == 9 { 1000 - i as u64 } else { i as u64 + 1 };
            let (kind, value) = match (is_put, i % 3) {
                (false, _) => (Kind::Delete, Vec::new()),
                (true, 0) => (Kind::Merge, value.clone()),
                (true, _) => (Kind::Put, value.clone()),
            };
            memtable.insert(key, Digest::of(key), seq, kind, &value);
            model.insert((key.clone(), Reverse(seq)), (kind, value));
        }
        prop_assert_eq!(memtable.entries(), model.len());
        prop_assert_eq!(memtable.data_bytes(), model.iter().map(|(k, v)| k.0.len() + v.1.len()).sum::<usize>());
        prop_assert_eq!(memtable.max_seq(), model.keys().map(|k| k.1.0).max());
        prop_assert_eq!(memtable.min_seq(), model.keys().map(|k| k.1.0).min());

        let mut cursor = memtable.cursor();
        cursor.seek_to_first();
        for expected in &model {
            prop_assert_eq!(here(&cursor), Some(row(expected)));
            cursor.next();
        }
        prop_assert!(!cursor.valid());
        cursor.seek_to_last();
        for expected in model.iter().rev() {
            prop_assert_eq!(here(&cursor), Some(row(expected)));
            cursor.prev();
        }
        prop_assert!(!cursor.valid());

        for (key, snapshot) in &probes {
            let from = (key.clone(), Reverse(*snapshot));
            let newest = model.range(from.clone()..).next().filter(|(k, _)| k.0 == *key);
            let found = memtable.get(key, *snapshot);
            prop_assert_eq!(found.map(|e| (e.seq, e.kind, e.value.to_vec())),
                newest.map(|(k, v)| (k.1.0, v.0, v.1.clone())));
            prop_assert!(newest.is_none() || memtable.may_contain(Digest::of(key)));

            cursor.seek(key, *snapshot);
            prop_assert_eq!(here(&cursor), model.range(from.clone()..).next().map(row));
            let mut at = from;
            for &forward in &steps {
                if !cursor.valid() {
                    break;
                }
                at = (cursor.key().to_vec(), Reverse(cursor.seq()));
                if forward {
                    cursor.next();
                    prop_assert_eq!(here(&cursor), model.range(at.clone()..).nth(1).map(row));
                } else {
                    cursor.prev();
                    prop_assert_eq!(here(&cursor), model.range(..at.clone()).next_back().map(row));
                }
            }
            cursor.seek_before(&at.0);
            prop_assert_eq!(here(&cursor), model.range(..(at.0, Reverse(MAX_SEQNO))).next_back().map(row));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// A cursor that goes backward keeps the way to where it stands; what was inserted since lies
    /// beside that way.
    #[test]
    fn a_cursor_finds_what_was_inserted_before_each_move(
        steps in prop::collection::vec((0..6u8, 0..3u8, 1..90u32), 1..120),
    ) {
        let memtable = memtable();
        let mut model = std::collections::BTreeSet::new();
        let mut cursor = memtable.cursor();
        let mut seq = 0;
        for (step, hot, count) in steps {
            let at = cursor.valid().then(|| (cursor.key().to_vec(), Reverse(cursor.seq())));
            match (step, at) {
                // Versions of few keys, or of many.
                (0 | 1, _) => {
                    for i in 0..count {
                        seq += 1;
                        let key = if hot == 0 { vec![b'h', i as u8 % 3] } else { vec![hot, i as u8, seq as u8] };
                        put(&memtable, &key, seq, b"");
                        model.insert((key, Reverse(seq)));
                    }
                    continue;
                }
                (2, Some(at)) => {
                    cursor.next();
                    let expected = model.range((Excluded(at), Unbounded)).next();
                    let found = here(&cursor).map(|row| (row.0, Reverse(row.1)));
 prop_assert_eq!(found.as_ref(), expected);
                }
                (3 | 4, Some(mut at)) => {
                    for _ in 0..count % 8 {
                        cursor.prev();
                        let expected = model.range(..at).next_back();
                        let found = here(&cursor).map(|row| (row.0, Reverse(row.1)));
 prop_assert_eq!(found.as_ref(), expected);
                        let Some(next) = expected else { break };
                        at = next.clone();
                    }
                }
                (5, _) => cursor.seek_before(&[b'h', hot]),
                _ => cursor.seek_to_last(),
            }
        }
    }
}

/// Each step back searched from the head, over all levels.
#[test]
fn a_step_back_costs_a_few_comparisons() {
    const VERSIONS: u64 = if cfg!(miri) { 300 } else { 50_000 };
    let memtable = memtable();
    for seq in 1..=VERSIONS {
        put(&memtable, &(seq.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40).to_be_bytes(), seq, b"");
    }
    let mut cursor = memtable.cursor();
    cursor.seek_to_last();
    let (before, mut steps) = (COMPARISONS.get(), 0);
    while cursor.valid() {
        cursor.prev();
        steps += 1;
    }
    assert_eq!(steps, VERSIONS);
    let each = (COMPARISONS.get() - before) as f64 / steps as f64;
    assert!(each < 8.0, "{each} comparisons for each step");
}

#[test]
fn an_empty_memtable_finds_nothing_and_has_no_ends() {
    let memtable = memtable();
    assert!(memtable.is_empty());
    assert_eq!(memtable.get(b"", MAX_SEQNO), None);
    assert_eq!((memtable.min_seq(), memtable.max_seq()), (None, None));
    let mut cursor = memtable.cursor();
    assert!(!cursor.valid());
    for go in [MemCursor::seek_to_first, MemCursor::seek_to_last] {
        go(&mut cursor);
        assert!(!cursor.valid());
    }
    cursor.seek(b"", MAX_SEQNO);
    assert!(!cursor.valid());
    cursor.seek_before(b"x");
    assert!(!cursor.valid());
}

#[test]
fn keys_and_values_of_every_size_round_trip() {
    let memtable = memtable();
    let long_a = vec![b'a'; MAX_KEY_BYTES];
    let mut long_b = long_a.clone();
    *long_b.last_mut().unwrap() = b'b';
    let big: Vec<u8> = (0..5_000_000u32).map(|i| (i * 7) as u8).collect();
    let rows: [(&[u8], &[u8]); 6] = [
        (b"", b"the empty key"),
        (b"a", b""),
        (&long_a, &big[..100_000]),
        (&long_b, &big),
        (b"b", &big[..32]),
        (b"c", &big[..33]),
    ];
    for (i, (key, value)) in rows.iter().enumerate().rev() {
        put(&memtable, key, i as u64, value);
    }
    for (i, (key, value)) in rows.iter().enumerate() {
        let entry = memtable.get(key, MAX_SEQNO).unwrap();
        assert_eq!(entry.seq, i as u64);
        assert!(entry.value == *value, "value {i}");
    }
    let mut cursor = memtable.cursor();
    cursor.seek_to_first();
    for (key, _) in rows {
        assert!(cursor.key() == key);
        cursor.next();
    }
    assert!(memtable.memory_bytes() > memtable.data_bytes());
}

#[test]
#[should_panic(expected = "too long")]
fn a_key_beyond_the_limit_is_refused() {
    put(&memtable(), &vec![0; MAX_KEY_BYTES + 1], 1, b"");
}

#[test]
fn a_refused_insertion_does_not_harm_the_next_one() {
    let memtable = memtable();
    put(&memtable, b"a", 1, b"1");
    let other = memtable.clone();
    thread::spawn(move || put(&other, &vec![0; MAX_KEY_BYTES + 1], 2, b"")).join().unwrap_err();
    put(&memtable, b"b", 3, b"3");
    assert_eq!(memtable.entries(), 2);
    assert_eq!(memtable.get(b"b", MAX_SEQNO).unwrap().value, b"3");
}

#[test]
fn a_snapshot_sees_the_newest_of_many_versions_below_it() {
    let memtable = memtable();
    for i in 0..1000u64 {
        // Out of order: the sequence number decides, not the time of insertion.
        let seq = (i * 7919) % 1000 + 1;
        put(&memtable, b"key", seq * 2, &seq.to_le_bytes());
        put(&memtable, b"key\0", seq * 2, b"another key");
    }
    assert_eq!(memtable.get(b"key", 1), None);
    for seq in 1..=1000u64 {
        for snapshot in [seq * 2, seq * 2 + 1] {
            let entry = memtable.get(b"key", snapshot).unwrap();
            assert_eq!((entry.seq, entry.value), (seq * 2, &seq.to_le_bytes()[..]));
        }
    }
}

#[test]
fn a_pinned_value_outlives_memtable_and_cursor() {
    let memtable = memtable();
    put(&memtable, b"k", 1, b"value");
    let mut cursor = memtable.cursor();
    cursor.seek_to_first();
    let from_cursor = cursor.pinned_value();
    let from_get = memtable.get_pinned(b"k", MAX_SEQNO).unwrap();
    assert!(memtable.get_pinned(b"absent", MAX_SEQNO).is_none());
    drop((cursor, memtable));
    assert_eq!((from_get.seq, from_get.kind), (1, Kind::Put));
    let moved =
        thread::spawn(move || (from_cursor.to_vec(), from_get.value.clone().to_vec())).join().unwrap();
    assert_eq!(moved, (b"value".to_vec(), b"value".to_vec()));
}

#[test]
fn memtables_cursors_and_pinned_values_may_move_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    let memtable = memtable();
    put(&memtable, b"k", 1, b"value");
    let mut cursor = memtable.cursor();
    cursor.seek_to_first();
    shared(&memtable);
    shared(&cursor);
    shared(&cursor.pinned_value());
    let key = thread::spawn(move || cursor.key().to_vec()).join().unwrap();
    assert_eq!(key, b"k");
}

#[test]
fn range_tombstones_are_listed_in_order_without_the_empty_ones() {
    let memtable = memtable();
    assert!(!memtable.has_range_tombstones());
    let before = memtable.memory_bytes();
    memtable.insert_range_tombstone(b"b", Some(b"d"), 5);
    memtable.insert_range_tombstone(b"c", None, 7);
    memtable.insert_range_tombstone(b"z", Some(b"z"), 9);
    assert!(memtable.has_range_tombstones() && !memtable.is_empty());
    assert_eq!(memtable.entries(), 0);
    assert!(memtable.memory_bytes() > before);
    assert_eq!(
        memtable.range_tombstones(),
        [
            RangeTombstone { start: b"b"[..].into(), end: Some(b"d"[..].into()), seq: 5 },
            RangeTombstone { start: b"c"[..].into(), end: None, seq: 7 }
        ]
    );
    assert_eq!((memtable.min_seq(), memtable.max_seq()), (Some(5), Some(9)));
}

/// Each keyspace used to allocate its filter (80 MiB for the largest memtables) and a chunk of
/// memory when the database was opened, so a manifest of a few kilobytes with many keyspaces could
/// exhaust the memory.
#[test]
fn an_unused_memtable_takes_almost_no_memory() {
    let memtable = Memtable::new(4 << 30);
    assert_eq!(memtable.memory_bytes(), 0);
    assert!(!memtable.may_contain(Digest::of(b"key")));
    put(&memtable, b"key", 1, b"value");
    assert!(memtable.may_contain(Digest::of(b"key")) && !memtable.may_contain(Digest::of(b"absent")));
    assert!(memtable.memory_bytes() <= 4 << 10, "{} bytes", memtable.memory_bytes());
}

/// A small memtable had the chunks and the filter of a full one.
#[test]
fn memory_and_filters_grow_with_the_entries() {
    let memtable = Memtable::new(64 << 20);
    let filters =
        |memtable: &Memtable| memtable.shared.filters.iter().filter(|filter| filter.get().is_some()).count();
    let mut seen = Vec::new();
    for i in 0..if cfg!(miri) { 1000 } else { 40_000u32 } {
        let digest = Digest::of(&i.to_be_bytes());
        memtable.insert(&i.to_be_bytes(), digest, i.into(), Kind::Put, b"value");
        assert!(memtable.may_contain(digest));
        if seen.len() < filters(&memtable) {
            seen.push(i);
        }
        let (used, held) = (memtable.used_bytes(), memtable.memory_bytes());
        assert!(held >= used - 200 && held <= 4096 + 3 * used, "{held} bytes for {used}");
    }
    let expected = [0, 16 * super::KEYS_PER_LINE as u32, 512 * super::KEYS_PER_LINE as u32];
    assert_eq!(seen, &expected[..seen.len()]);
    assert_eq!(seen.len(), if cfg!(miri) { 2 } else { 3 });
    let present = (0..memtable.entries() as u32).all(|i| memtable.may_contain(Digest::of(&i.to_be_bytes())));
    assert!(present, "a key is found in the filter of its time");
    let absent =
        (1 << 30..(1 << 30) + 10_000u32).filter(|i| memtable.may_contain(Digest::of(&i.to_be_bytes())));
    assert!(absent.count() < 200);
}

/// Writers that find a filter full at the same time agree on the next one.
#[test]
fn no_key_is_missed_while_several_writers_change_filters() {
    const KEYS: u32 = if cfg!(miri) { 300 } else { 20_000 };
    let memtable = Memtable::new(64 << 20);
    thread::scope(|scope| {
        for writer in 0..4u32 {
            let memtable = &memtable;
            scope.spawn(move || {
                for i in (0..KEYS).map(|i| i * 4 + writer) {
                    put(memtable, &i.to_be_bytes(), i.into(), b"");
                    assert!(memtable.may_contain(Digest::of(&i.to_be_bytes())));
                }
            });
        }
    });
    assert!((0..4 * KEYS).all(|i| memtable.may_contain(Digest::of(&i.to_be_bytes()))));
}

/// What nested range tombstones take in memory grew with the square of their number, and so it was
/// counted: a memtable was full after a few thousand of them.
#[test]
fn nested_range_tombstones_take_memory_in_proportion_to_their_number() {
    let memtable = Memtable::new(64 << 20);
    let mut bytes = [0; 3];
    let mut count = 0u32;
    for bytes in &mut bytes {
        for _ in 0..20_000 {
            let (start, end) = (count.to_be_bytes(), (u32::MAX - count).to_be_bytes());
            count += 1;
            memtable.insert_range_tombstone(&start, Some(&end), count.into());
        }
        *bytes = memtable.memory_bytes();
    }
    assert_eq!(bytes[2] - bytes[1], bytes[1] - bytes[0]);
    assert!(bytes[2] / 60_000 < 500, "{bytes:?}");
    let mut fragments = 0;
    memtable.range_map().for_each(|_| fragments += 1);
    assert_eq!(fragments, 2 * count - 1);
}

#[test]
fn the_filter_passes_every_key_and_few_others() {
    let with = Memtable::new(1 << 20);
    for i in 0..2000u32 {
        put(&with, &i.to_be_bytes(), i.into(), b"");
    }
    assert!((0..2000u32).all(|i| with.may_contain(Digest::of(&i.to_be_bytes()))));
    let wrong = (2000..12_000u32).filter(|i| with.may_contain(Digest::of(&i.to_be_bytes()))).count();
    assert!(wrong < 200, "{wrong} of 10000 absent keys pass at over 80 bits per key");
}

/// One writer, readers in both directions and at snapshots: the order always holds, a version is
/// whole or absent, and every version up to a published sequence number is present.
#[test]
fn readers_during_writes_see_whole_versions_in_order() {
    const VERSIONS: u64 = if cfg!(miri) { 200 } else { 30_000 };
    fn key_of(seq: u64) -> [u8; 9] {
        // Every third version belongs to a recurring key.
        let mixed = if seq.is_multiple_of(3) { seq % 30 } else { seq.wrapping_mul(0x9E37_79B9_7F4A_7C15) };
        let mut key = [0; 9];
        key[..8].copy_from_slice(&mixed.to_be_bytes());
        key[8] = seq as u8 & 1;
        key
    }
    fn value_of(seq: u64) -> Vec<u8> {
        seq.to_le_bytes().repeat(seq as usize % 12)
    }

    let memtable = Arc::new(Memtable::new(256 << 10));
    let published = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicBool::new(false));
    let (ready, go) = mpsc::channel();
    let readers: Vec<_> = (0..3u64)
        .map(|reader| {
            let (memtable, published, done) = (memtable.clone(), published.clone(), done.clone());
            let ready = ready.clone();
            thread::spawn(move || {
                ready.send(()).unwrap();
                let (mut rounds, mut probe) = (0u64, reader + 1);
                while rounds == 0 || !done.load(Ordering::Acquire) {
                    rounds += 1;
                    let visible = published.load(Ordering::Acquire);
                    for _ in 0..50 {
                        probe = probe.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        let seq = (probe >> 33) % (visible + 1);
                        if seq == 0 {
                            continue;
                        }
                        assert!(memtable.may_contain(Digest::of(&key_of(seq))));
                        let entry = memtable.get(&key_of(seq), seq).expect("a published version is there");
                        assert_eq!((entry.seq, entry.value), (seq, &value_of(seq)[..]));
                    }
                    let mut cursor = memtable.cursor();
                    if reader == 0 {
                        cursor.seek_to_last()
                    } else {
                        cursor.seek_to_first()
                    }
                    let (mut seen, mut last) = (0, None::<(Vec<u8>, u64)>);
                    while cursor.valid() {
                        let seq = cursor.seq();
                        assert_eq!(
                            (cursor.key(), cursor.version().3),
                            (&key_of(seq)[..], &value_of(seq)[..])
                        );
                        seen += u64::from(seq <= visible);
                        if let Some((key, before)) = &last {
                            let order = compare_versions(key, *before, cursor.key(), seq);
                            assert_eq!(order.is_gt(), reader == 0);
                            assert!(order.is_ne());
                        }
                        last = Some((cursor.key().to_vec(), seq));
                        if reader == 0 { cursor.prev() } else { cursor.next() }
                    }
                    assert_eq!(seen, visible, "versions up to the published sequence number");
                }
            })
        })
        .collect();
    for _ in &readers {
        go.recv().unwrap();
    }
    let mut seq = 0;
    while seq < VERSIONS {
        let mut writer = memtable.writer();
        for _ in 0..10 {
            seq += 1;
            let key = key_of(seq);
            writer.insert(&key, Digest::of(&key), seq, Kind::Put, &value_of(seq));
        }
        drop(writer);
        published.store(seq, Ordering::Release);
    }
    done.store(true, Ordering::Release);
    for reader in readers {
        reader.join().unwrap();
    }
}

#[test]
fn writers_take_turns_without_losing_versions() {
    let memtable = memtable();
    let writers: Vec<_> = (0..4u64)
        .map(|writer| {
            let memtable = memtable.clone();
            thread::spawn(move || {
                for i in 0..2000u64 {
                    put(&memtable, &(i % 97).to_be_bytes(), i * 4 + writer, b"value of some length");
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(memtable.entries(), 8000);
    assert_eq!(memtable.data_bytes(), 8000 * 28);
    let mut cursor = memtable.cursor();
    cursor.seek_to_first();
    let mut linked = 0;
    while cursor.valid() {
        linked += 1;
        cursor.next();
    }
    assert_eq!(linked, 8000);
}

/// A writer that found the position of the last insertion taken took the head and the end for its
/// neighbours, and walked all versions between them: two writers at a time got slower with every
/// version, until they seemed to hang.
#[test]
fn a_writer_beside_another_does_not_walk_the_list() {
    let memtable = memtable();
    for i in 0..if cfg!(miri) { 100 } else { 50_000u64 } {
        put(&memtable, &(i * 2).to_be_bytes(), i + 1, b"");
    }
    let mut first = memtable.writer();
    let mut other = memtable.writer();
    let key = 40_001u64.to_be_bytes();
    let before = COMPARISONS.get();
    other.insert(&key, Digest::of(&key), 1 << 20, Kind::Put, b"");
    let compared = COMPARISONS.get() - before;
    assert!(compared < 200, "{compared} comparisons");
    first.insert(&[0xff; 8], Digest::of(&[0xff; 8]), 1 << 21, Kind::Put, b"");
    assert_eq!(memtable.get(&key, MAX_SEQNO).unwrap().seq, 1 << 20);
}

#[test]
fn an_estimate_is_exact_for_few_and_near_for_many() {
    let memtable = Memtable::new(1 << 20);
    let keys: Vec<String> = (0..20_000).map(|i| format!("{i:05}")).collect();
    for (i, key) in keys.iter().enumerate() {
        memtable.insert(key.as_bytes(), Digest::of(key.as_bytes()), i as u64 + 1, Kind::Put, b"v");
    }
    for (from, to) in [(0, 20_000), (100, 110), (5000, 5000), (1000, 3000), (19_990, 20_000), (0, 63)] {
        let end = keys.get(to).map(String::as_bytes);
        let found = memtable.estimate(keys[from].as_bytes(), end);
        let exact = to - from;
        if exact < 64 {
            assert_eq!(found, exact, "{from}..{to}");
        } else {
            assert!((exact / 2..exact * 2).contains(&found), "{found} of {exact}");
        }
    }
    assert_eq!(Memtable::new(1 << 20).estimate(b"", None), 0);
}
