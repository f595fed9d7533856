//! Compares walks with a sorted list of all keys: none is skipped, no bound is too late, and every
//! walk makes progress.

use proptest::prelude::*;

use super::*;
use crate::global::Ahead;

/// Returns a partition with keys of some tables, most of them in the last level, and its contents.
pub(super) fn filled(
    kind: usize,
    spec: &PartitionSpec,
    built: u64,
    flushes: &[u64],
) -> (Partition, BTreeSet<(Key, Epochs)>) {
    let last = epochs(0, 100);
    let mut all: BTreeSet<(Key, Epochs)> = (0..built).map(|i| (key(kind, i), last)).collect();
    let of = |entries: &BTreeSet<(Key, Epochs)>| batch(entries.iter().map(|(key, epochs)| (key, *epochs)));
    let mut partition = Partition::build(&of(&all), 100, spec).expect("sound");
    let mut next = built;
    for (flush, &keys) in (100..).zip(flushes) {
        let table = epochs(flush, flush + 1);
        let new: BTreeSet<_> = (next..next + keys).map(|i| (key(kind, i), table)).collect();
        next += keys;
        let cuts = Cuts::of((100..=flush).map(|flush| epochs(flush, flush + 1)).chain([last]));
        partition = partition.insert(&of(&new), &cuts);
        all.extend(new);
    }
    (partition, all)
}

fn lower(partition: &Partition, number: u64) -> Key {
    let mut key = b"overwritten".to_vec();
    partition.lower_key(number, &mut key);
    key
}

/// Checks that a walk from `from` to `end` finds all keys, with correct bounds. Returns the number
/// of steps.
fn forwards(
    partition: &Partition,
    all: &BTreeSet<(Key, Epochs)>,
    from: &Key,
    end: Option<&Key>,
    most: usize,
) -> usize {
    let (mut from, mut out): (Key, Ahead) = (from.clone(), Ahead { most, ..Ahead::default() });
    for stretches in 1.. {
        assert!(partition.ahead(&from, end.map(|end| &end[..]), &mut out));
        let until = out.until.map(|until| lower(partition, until));
        let within = |key: &Key| {
            *key >= from && until.as_ref().is_none_or(|u| key < u) && end.is_none_or(|end| key < end)
        };
        for (key, table) in all.iter().filter(|(key, _)| within(key)) {
            let found = out.found.iter();
            let found = found
                .filter(|(epochs, number)| epochs.intersects(*table) && lower(partition, *number) <= *key);
            assert!(found.count() > 0, "{key:?} of {table:?} from {from:?} on: {out:?}");
        }
        match until {
            Some(until) if until > from => from = until,
            Some(until) => panic!("from {from:?} the walk got to {until:?}"),
            None => return stretches,
        }
    }
    unreachable!()
}

fn backwards(
    partition: &Partition,
    all: &BTreeSet<(Key, Epochs)>,
    before: Option<&Key>,
    start: &Key,
) -> usize {
    let (mut before, mut out) = (before.cloned(), Ahead::default());
    for stretches in 1.. {
        assert!(partition.behind(before.as_deref(), start, &mut out));
        let until = out.until.map(|until| lower(partition, until));
        let within = |key: &Key| {
            before.as_ref().is_none_or(|b| key < b) && until.as_ref().is_none_or(|u| key >= u) && key >= start
        };
        for (key, table) in all.iter().filter(|(key, _)| within(key)) {
            let found = out.found.iter().filter(|(epochs, number)| {
                epochs.intersects(*table) && (*number == NO_BOUND || *key < lower(partition, *number))
            });
            assert!(found.count() > 0, "{key:?} of {table:?} below {before:?}: {out:?}");
        }
        match until {
            Some(until) if before.as_ref().is_none_or(|before| until < *before) => before = Some(until),
            Some(until) => panic!("below {before:?} the walk got to {until:?}"),
            None => return stretches,
        }
    }
    unreachable!()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn walks_skip_nothing(
        kind in 0..KINDS,
        map in prop::sample::select(&MAPS[..]),
        bits_per_key in 2.0..30.0,
        built in 0u64..700,
        flushes in prop::collection::vec(0u64..60, 0..6),
        ends in prop::collection::vec((0u64..1000, 0..3usize), 6),
        most in prop::sample::select(vec![0usize, 1, 8]),
    ) {
        let spec = PartitionSpec { bits_per_key, ..spec_of(map) };
        let (partition, all) = filled(kind, &spec, built, &flushes);
        prop_assume!(partition.reason().chosen != MapChoice::Digest);
        let ends: Vec<Key> = ends.into_iter().map(|(i, change)| {
            let mut end = key(kind, i);
            match change {
                0 => {}
                1 => end.push(0),
                _ => { end.pop(); }
            }
            end
        }).collect();
        forwards(&partition, &all, &Vec::new(), None, most);
        backwards(&partition, &all, None, &Vec::new());
        for pair in ends.chunks(2) {
            forwards(&partition, &all, &pair[0], None, 0);
            forwards(&partition, &all, &pair[0], Some(&pair[1]), most);
            backwards(&partition, &all, Some(&pair[0]), &Vec::new());
            backwards(&partition, &all, Some(&pair[0]), &pair[1]);
        }
    }
}

#[test]
fn short_empty_ranges_mostly_name_nothing() {
    let (partition, all) = filled(0, &spec(MapChoice::Learned), 20_000, &[500, 500]);
    let mut out = Ahead::default();
    let (mut empty, mut denied) = (0, 0);
    for i in 0..2_000 {
        let from = random(i, 77);
        let end = from.saturating_add(1 << 40).to_be_bytes().to_vec();
        let from = from.to_be_bytes().to_vec();
        if all.range((from.clone(), Epochs { lo: 0, hi: 0 })..(end.clone(), Epochs { lo: 0, hi: 0 })).count()
            > 0
        {
            continue;
        }
        assert!(partition.ahead(&from, Some(&end), &mut out));
        empty += 1;
        denied += usize::from(out.found.is_empty());
        assert_eq!(out.until, None, "a short range is one stretch");
    }
    // The rate for points is 2.2 %, and these ranges are short.
    assert!(denied * 100 > empty * 95, "{denied} of {empty}");
}

#[test]
fn a_walk_takes_one_step_per_segment() {
    let (partition, all) = filled(0, &spec(MapChoice::Learned), 20_000, &[]);
    let segments = partition.inner.map.segments();
    assert!(segments > 100);
    assert!(forwards(&partition, &all, &Vec::new(), None, 0) <= segments);
    assert!(backwards(&partition, &all, None, &Vec::new()) <= segments);
}

#[test]
fn digests_carry_no_order() {
    let (partition, _) = filled(0, &spec(MapChoice::Digest), 100, &[]);
    let mut out = Ahead { found: vec![(epochs(0, 1), 0)], until: Some(1), ..Ahead::default() };
    assert!(!partition.ahead(b"", None, &mut out));
    assert!(out.found.is_empty() && out.until.is_none());
    assert!(!partition.behind(None, b"", &mut out));
}

/// A partition of no keys used to take later keys for integers of eight bytes, and the trailing
/// zeros of a number for bytes of the key. The lower key of a number then came after a shorter key,
/// and a walk that ended there missed that key: an iterator skipped it.
#[test]
fn a_partition_of_no_keys_accepts_keys_of_any_length() {
    for map in [MapChoice::Learned, MapChoice::Mixed, MapChoice::Local] {
        let built = Partition::build(&Batch::new(), 1, &spec(map)).unwrap();
        let keys: BTreeSet<Key> =
            (0..4000u32).map(|i| i.to_be_bytes()[..4 - i as usize % 3].to_vec()).collect();
        let cuts = Cuts::of([epochs(0, 1), epochs(1, 2)]);
        let partition = built.insert(&batch(keys.iter().map(|key| (key, epochs(1, 2)))), &cuts);
        let all: BTreeSet<(Key, Epochs)> = keys.iter().map(|key| (key.clone(), epochs(1, 2))).collect();
        for key in keys.iter().step_by(7) {
            for zeros in 1..=5 {
                let end = [&key[..], &[0; 5][..zeros]].concat();
                forwards(&partition, &all, key, Some(&end), 0);
                backwards(&partition, &all, Some(&end), key);
            }
        }
        forwards(&partition, &all, &Key::new(), None, 0);
        backwards(&partition, &all, None, &Key::new());
    }
}

/// Numbers of short keys have fewer bits than the line of an edge covers.
#[test]
fn the_greatest_key_is_found_backwards() {
    for len in 1..9usize {
        for map in [MapChoice::Learned, MapChoice::Mixed, MapChoice::Local] {
            let last = epochs(0, 100);
            let keys = [0u8, 20, 40, 60, 80, 100, 120, 140, 160, 180, 200, 0xff]
                .map(|first| (vec![first; len], last));
            let all: BTreeSet<(Key, Epochs)> = keys.into_iter().collect();
            let entries = batch(all.iter().map(|(key, epochs)| (key, *epochs)));
            let partition = Partition::build(&entries, 100, &spec(map)).expect("sound");
            backwards(&partition, &all, None, &Vec::new());
            backwards(&partition, &all, Some(&vec![0xff; 9]), &vec![0xff; len]);
        }
    }
}

#[test]
fn walks_over_segments_in_pieces_skip_nothing() {
    for (map, bits_per_key) in [(MAPS[5 - 1], 12.0), (MAPS[3], 16.0), (MAPS[2], 14.0)] {
        let spec = PartitionSpec { bits_per_key, ..spec_of(map) };
        let (partition, all) = filled(7, &spec, 9000, &[40, 700, 3, 3]);
        assert!(partition.inner.map.is_in_pieces(), "{map:?}");
        consistent(&partition);
        for (key, table) in &all {
            assert!(
                named(&partition, key).iter().any(|epochs| epochs.intersects(*table)),
                "{key:?} of {table:?}"
            );
        }
        let ends: Vec<Key> =
            (0..6).map(|i| all.iter().nth(i * 1600).map(|(key, _)| key.clone()).expect("so many")).collect();
        for pair in ends.windows(2) {
            forwards(&partition, &all, &pair[0], Some(&pair[1]), 8);
            backwards(&partition, &all, Some(&pair[1]), &pair[0]);
        }
    }
}

/// A walk through a whole segment of a mixed map is worth it only where that excludes some runs.
#[test]
fn walks_that_would_name_nearly_all_runs_are_known() {
    let keys: BTreeSet<Key> = (0..20_000).map(|i| key(0, i)).collect();
    let build = |choice: MapChoice, run: &dyn Fn(usize) -> u64| {
        let entries = keys.iter().enumerate().map(|(i, key)| (key, epochs(run(i), run(i) + 1)));
        Partition::build(&batch(entries), 0, &spec(choice)).expect("sound")
    };
    let first = keys.first().expect("there are some");
    let next = keys.iter().nth(1);
    let in_vain = |partition: &Partition| partition.walks_in_vain(first, next.map(|key| &key[..]));
    let equal = |i: usize| i as u64 % 9;
    // One run has all but a few.
    let skewed = |i: usize| if i.is_multiple_of(500) { i as u64 / 500 % 8 + 1 } else { 0 };
    assert!(in_vain(&build(MapChoice::Mixed, &equal)));
    assert!(!in_vain(&build(MapChoice::Mixed, &skewed)));
    assert!(!in_vain(&build(MapChoice::Learned, &equal)));
    let local = build(MapChoice::Local, &equal);
    assert!(local.walks_in_vain(first, None), "a seek walks through a segment");
    assert!(
        !local.walks_in_vain(first, Some(&[&first[..], b"\0"].concat())),
        "a short range is a short stretch"
    );
    let image = Partition::from_bytes(&build(MapChoice::Mixed, &equal).to_bytes()).expect("its own bytes");
    assert!(in_vain(&image));
}
