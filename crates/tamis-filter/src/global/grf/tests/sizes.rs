//! Sizes, rates, choices of map, and growth.

use super::*;
use proptest::prelude::*;

const LAST: Epochs = Epochs { lo: 0, hi: 1000 };

fn build(kind: usize, keys: u64, map: MapChoice) -> Partition {
    let keys: Vec<Key> = (0..keys).map(|i| key(kind, i)).collect();
    Partition::build(&batch(keys.iter().map(|key| (key, LAST))), 1000, &spec(map)).expect("sound")
}

fn measured(partition: &Partition, absent: impl Iterator<Item = Key>) -> f64 {
    let (mut asked, mut hits) = (0u32, 0u32);
    for key in absent {
        asked += 1;
        partition.probe(&key, Digest::of(&key), |_| hits += 1);
    }
    f64::from(hits) / f64::from(asked)
}

#[test]
fn ten_bits_per_key_keep_the_rate_below_one_in_thirty_two() {
    for map in [MapChoice::Learned, MapChoice::Digest, MapChoice::Mixed] {
        let mut partition = build(0, 1 << 15, map);
        // Nine runs each of a hundred flushes, ten and one: a tenth more keys in total.
        let (mut tables, mut next) = (vec![LAST], 1000);
        for flushes in [100u64, 10, 1].into_iter().flat_map(|flushes| [flushes; 9]) {
            let table = epochs(next, next + flushes);
            next += flushes;
            tables.push(table);
            let keys =
                (table.lo * 33 / 10..table.hi * 33 / 10).map(|i| key(0, 1 << 20 | i)).collect::<Vec<_>>();
            let cuts = Cuts::of(tables.iter().copied());
            partition = partition.insert(&batch(keys.iter().map(|key| (key, table))), &cuts);
        }
        consistent(&partition);
        let bits = partition.memory_bytes() as f64 * 8.0 / partition.entries() as f64;
        assert!((9.5..10.3).contains(&bits), "{map:?}: {bits} bits per entry");
        let (expected, rate) = (
            partition.expected_rate(),
            measured(&partition, (1 << 30..(1 << 30) + 30_000).map(|i| key(0, i))),
        );
        assert!(expected < 1.0 / 32.0, "{map:?}: {expected}");
        assert!((rate / expected - 1.0).abs() < 0.2, "{map:?}: expected {expected}, measured {rate}");
        assert!(partition.code_bits() < 1.7, "{map:?}: {}", partition.code_bits());
        // Readers of the previous round need about a tenth of the entries.
        let rest = partition.shrink();
        assert_eq!(rest.entries(), partition.entries() - partition.last_entries());
        assert!(rest.last_is_unknown() && rest.last_entries() == 0);
        assert!(rest.memory_bytes() * 10 < partition.memory_bytes() * 4, "{}", rest.memory_bytes());
    }
}

#[test]
fn the_map_is_chosen_by_its_rate_on_held_out_keys() {
    let uniform = build(0, 20_000, MapChoice::Auto).reason();
    assert_eq!(uniform.chosen, MapChoice::Learned);
    assert!(uniform.holdout_rate.is_some_and(|rate| rate < 1.5 * uniform.ideal_rate));
    // A dense series: each number has its own position.
    assert_eq!(build(2, 20_000, MapChoice::Auto).reason().chosen, MapChoice::Learned);
    let names = build(3, 20_000, MapChoice::Auto);
    assert!(names.reason().holdout_rate.is_some_and(|rate| rate > 0.5));
    assert_eq!(names.reason().chosen, MapChoice::Mixed);
    // All keys share the eight bytes that the map sees.
    let keys: Vec<Key> = (0..20_000u64)
        .map(|i| [&0u64.wrapping_sub(i & 1).to_be_bytes()[..], &random(i, 3).to_be_bytes()].concat())
        .collect();
    let blind = Partition::build(&batch(keys.iter().map(|key| (key, LAST))), 1000, &spec(MapChoice::Auto))
        .expect("sound");
    assert_eq!(blind.reason().chosen, MapChoice::Digest);
    for partition in [&names, &blind] {
        let rate = measured(partition, (0..20_000u64).map(|i| [&key(3, i)[..], b"/"].concat()));
        assert!(rate < 0.05, "{rate}");
    }
}

#[test]
fn a_number_shared_by_many_keys_gets_many_blocks_of_a_mixed_map() {
    let keys: Vec<Key> =
        (0..10_000u64).map(|i| [&(i % 50 / 49 * i).to_be_bytes()[..], &i.to_be_bytes()].concat()).collect();
    let partition =
        Partition::build(&batch(keys.iter().map(|key| (key, LAST))), 1000, &spec(MapChoice::Mixed))
            .expect("sound");
    assert!(partition.largest_block() < 256, "{}", partition.largest_block());
    assert!(keys.iter().all(|key| named(&partition, key) == [epochs(0, 1000)]));
}

/// New keys of a series all come after the last knot. They used to share the edge's last position, so every probe for
/// a new key hit every new table.
#[test]
fn a_growing_series_keeps_its_rate() {
    for (map, per_flush) in [(MapChoice::Learned, 700), (MapChoice::Learned, 5), (MapChoice::Mixed, 700)] {
        let number = |i: u64| i * 1000 + random(i, 4) % 900;
        for sign in [false, true] {
            let key = |i: u64| {
                (if sign { (1 << 50) - number(i) } else { (1 << 40) + number(i) }).to_be_bytes().to_vec()
            };
            let keys: Vec<Key> = (0..4000).map(key).collect();
            let mut partition =
                Partition::build(&batch(keys.iter().map(|key| (key, LAST))), 1000, &spec(map))
                    .expect("sound");
            let mut tables = vec![LAST];
            for flush in 0..20 {
                let keys: Vec<Key> = (0..per_flush).map(|i| key(4000 + flush * per_flush + i)).collect();
                let table = epochs(1000 + flush, 1001 + flush);
                tables.push(table);
                let cuts = Cuts::of(tables.iter().copied());
                partition = partition.insert(&batch(keys.iter().map(|key| (key, table))), &cuts);
                assert!(
                    keys.iter().all(|key| named(&partition, key).iter().any(|named| named.intersects(table)))
                );
            }
            consistent(&partition);
            let absent = (4000..4000 + 20 * per_flush).map(|i| {
                let mut key = key(i);
                key[7] ^= 1;
                let next = u64::from_be_bytes(key[..].try_into().expect("eight bytes"));
                (next.wrapping_add(if sign { 400 } else { 450 })).to_be_bytes().to_vec()
            });
            let rate = measured(&partition, absent);
            assert!(rate < 0.1, "{map:?}, {per_flush} a flush, backwards {sign}: {rate}");
            assert!(partition.largest_block() < 400, "{}", partition.largest_block());
        }
    }
}

#[test]
fn keys_outside_the_prefix_are_clamped_and_stay_findable() {
    let name = |i: u64| format!("a long common prefix/{:08}", random(i, 8) % 100_000_000).into_bytes();
    let keys: Vec<Key> = (0..3000).map(name).collect();
    for map in [MapChoice::Learned, MapChoice::Mixed] {
        let mut partition =
            Partition::build(&batch(keys.iter().map(|key| (key, LAST))), 1000, &spec(map)).expect("sound");
        let mut all: Vec<(Key, Epochs)> = Vec::new();
        for (epoch, prefix) in
            (1000..).zip(["", "a", "a long common", "a long common prefix0", "b", "\u{7f}", "a"])
        {
            let table = epochs(epoch, epoch + 1);
            let keys: Vec<Key> = (0..60)
                .map(|i| {
                    [prefix.as_bytes(), &random(epoch * 100 + i, 5).to_be_bytes()[..i as usize % 9]].concat()
                })
                .collect();
            let cuts = Cuts::of((1000..epoch).map(|epoch| epochs(epoch, epoch + 1)).chain([LAST]));
            partition = partition.insert(&batch(keys.iter().map(|key| (key, table))), &cuts);
            all.extend(keys.into_iter().map(|key| (key, table)));
            consistent(&partition);
        }
        for (key, table) in &all {
            assert!(named(&partition, key).contains(table), "{key:?} of {table:?}");
        }
        assert!(keys.iter().all(|key| named(&partition, key).contains(&epochs(0, 1000))));
    }
}

#[test]
fn equal_entries_become_one() {
    let one = [key(0, 1)];
    let table = |lo, hi| batch(one.iter().map(|key| (key, epochs(lo, hi))));
    let partition = build(0, 1000, MapChoice::Learned);
    let cuts = Cuts::of([LAST, epochs(1000, 1001), epochs(1001, 1002)]);
    // Some of the built keys share a position.
    let n = partition.entries();
    let twice = partition.insert(&table(1000, 1001), &cuts).insert(&table(1001, 1002), &cuts);
    assert_eq!(twice.entries(), n + 2, "two tables, two entries");
    assert_eq!(twice.insert(&table(1001, 1002), &cuts).entries(), n + 2, "the same again");
    let merged = twice.collect(&Cuts::of([LAST, epochs(1000, 1002), epochs(1002, 1003)]), 0);
    assert_eq!(merged.entries(), n + 1, "they are in one table");
    assert_eq!(named(&merged, &one[0]).len(), 2);
    let all = merged.collect(&Cuts::of([epochs(0, 1002), epochs(1002, 1003)]), 0);
    assert_eq!((all.entries(), all.last_entries()), (n, n), "all in the last level");
    // An entry whose table is gone is dropped.
    let gone = twice.collect(&Cuts::of([LAST, epochs(1001, 1002)]), 0);
    assert_eq!(gone.entries(), n + 1);
}

#[test]
fn invalid_specifications_are_rejected() {
    let wrong = |change: fn(&mut PartitionSpec)| {
        let mut spec = spec(MapChoice::Auto);
        change(&mut spec);
        Partition::build(&Batch::new(), 0, &spec).is_err()
    };
    assert!(wrong(|spec| spec.bits_per_key = 0.0) && wrong(|spec| spec.bits_per_key = f64::NAN));
    assert!(wrong(|spec| spec.bits_per_key = 65.0) && wrong(|spec| spec.growth = 0.9));
    assert!(wrong(|spec| spec.growth = f64::INFINITY) && wrong(|spec| spec.radices.clear()));
    assert!(!wrong(|_| ()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn one_batch_or_many_give_the_same_result(
        kind in 0..KINDS,
        map in prop::sample::select(&[MapChoice::Learned, MapChoice::Digest, MapChoice::Mixed][..]),
        built in 1u64..500,
        new in prop::collection::vec(0u64..400, 1..30),
        parts in 1usize..6,
    ) {
        let partition = build(kind, built, map);
        let tables = [LAST, epochs(1000, 1004), epochs(1004, 1005), epochs(1005, 1006)];
        let cuts = Cuts::of(tables);
        // No key in an edge: knots over one batch differ from those over many.
        let inner = &partition.inner.map;
        let new: Vec<(Key, Epochs)> = new.iter().map(|&i| (key(kind, i), tables[1 + i as usize % 3]))
            .filter(|(key, _)| (1..inner.segments().max(2) - 1).contains(&inner.segment(inner.keys.clamped(key))))
            .collect();
        let of = |part: &[(Key, Epochs)]| batch(part.iter().map(|(key, epochs)| (key, *epochs)));
        let at_once = partition.insert(&of(&new), &cuts);
        let mut in_parts = partition.clone();
        for part in new.chunks(new.len().div_ceil(parts).max(1)) {
            in_parts = in_parts.insert(&of(part), &cuts);
        }
        prop_assert_eq!(contents(&at_once), contents(&in_parts));
        consistent(&at_once);
    }
}
