//! Sizes, rates, choices of map, and growth.

use std::collections::BTreeSet;

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
    for map in [MapChoice::Learned, MapChoice::Digest, MapChoice::Mixed, MapChoice::Local] {
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
        let bits = partition.memory_bytes() as f64 * 8.0 / partition.keys() as f64;
        assert!((9.5..10.3).contains(&bits), "{map:?}: {bits} bits per key");
        let (expected, rate) = (
            partition.expected_rate(),
            measured(&partition, (1 << 30..(1 << 30) + 30_000).map(|i| key(0, i))),
        );
        assert!(expected < 1.0 / 32.0, "{map:?}: {expected}");
        assert!((rate / expected - 1.0).abs() < 0.2, "{map:?}: expected {expected}, measured {rate}");
        assert!(partition.code_bits() < 1.7, "{map:?}: {}", partition.code_bits());
        // Readers of the previous round need about a tenth of the entries.
        let rest = partition.shrink();
        // With fewer bits, some share a position.
        let others = partition.entries() - partition.last_entries();
        assert!((others - others / 20..=others).contains(&rest.entries()), "{} of {others}", rest.entries());
        assert!(rest.last_is_unknown() && rest.last_entries() == 0);
        assert!(rest.memory_bytes() * 10 < partition.memory_bytes() * 4, "{}", rest.memory_bytes());
    }
}

#[test]
fn the_map_is_chosen_by_its_rate_on_held_out_keys() {
    let uniform = build(0, 20_000, MapChoice::Auto).reason();
    assert_eq!(uniform.chosen, MapChoice::Learned);
    // Half a thousand keys are held out: four standard deviations.
    let most = uniform.ideal_rate + 4.0 * (uniform.ideal_rate / 500.0).sqrt();
    assert!(uniform.holdout_rate.is_some_and(|rate| rate < most), "{uniform:?}");
    // A dense series: each number has its own position.
    assert_eq!(build(2, 20_000, MapChoice::Auto).reason().chosen, MapChoice::Learned);
    let names = build(3, 20_000, MapChoice::Auto);
    assert!(names.reason().holdout_rate.is_some_and(|rate| rate > 0.5));
    // The digest has a part in the positions, in one way or the other.
    let ordered_alone = build(3, 20_000, MapChoice::Learned).inner.map.cells();
    assert!(names.inner.map.cells() < ordered_alone);
    // All keys share the eight bytes that the map sees.
    let keys: Vec<Key> = (0..20_000u64)
        .map(|i| [&0u64.wrapping_sub(i & 1).to_be_bytes()[..], &random(i, 3).to_be_bytes()].concat())
        .collect();
    // With ranges, the order of the two numbers is worth something.
    let spec = spec_of((MapChoice::Auto, 0.0));
    let blind = Partition::build(&batch(keys.iter().map(|key| (key, LAST))), 1000, &spec).expect("sound");
    assert_eq!(blind.reason().chosen, MapChoice::Digest);
    for partition in [&names, &blind] {
        let rate = measured(partition, (0..20_000u64).map(|i| [&key(3, i)[..], b"/"].concat()));
        assert!(rate < 0.05, "{rate}");
    }
}

/// Ranges of such keys open all runs under every map. What that costs once hid that a mixed map
/// lets three times as many absent keys pass as the digest.
#[test]
fn where_order_tells_nothing_points_choose_the_map() {
    let clumps = |i: u64| {
        [&b"station "[..], &[b'a' + (random(i, 1) % 7) as u8; 9], &random(i, 2).to_be_bytes()].concat()
    };
    let keys: BTreeSet<Key> = (0..20_000).map(clumps).collect();
    let runs = |i: usize| epochs(i as u64 % 25, i as u64 % 25 + 1);
    let of = |needs_order: bool| {
        let mix = QueryMix { needs_order, ..QueryMix::default() };
        let entries = keys.iter().enumerate().map(|(i, key)| (key, runs(i)));
        Partition::build(&batch(entries), 0, &PartitionSpec { mix, ..spec(MapChoice::Auto) }).expect("sound")
    };
    assert_eq!(of(false).reason().chosen, MapChoice::Digest);
    assert_ne!(
        of(true).reason().chosen,
        MapChoice::Digest,
        "prefixes are asked only where there is an order"
    );
}

/// A seek to a key that is there was taken for a range of that number alone, at which a local map
/// is good. But it walks through the rest of the segment and opens what it meets there: a filter
/// chosen for ranges and seeks made each seek open 9 of 19 runs.
#[test]
fn seeks_to_existing_keys_cost_what_a_walk_to_the_end_of_the_segment_does() {
    let keys: BTreeSet<Key> = (0..80_000).map(|i| key(0, i)).collect();
    // One run has nine keys of ten.
    let run = |i: usize| if i.is_multiple_of(10) { i as u64 / 10 % 18 + 1 } else { 0 };
    let runs = |i: usize| epochs(run(i), run(i) + 1);
    let of = |with_seeks: bool| {
        let behind = |by: u64| {
            move |key: &Key| {
                let number = u64::from_be_bytes(key[..].try_into().expect("eight bytes"));
                (number + by).to_be_bytes().to_vec()
            }
        };
        let some = || keys.iter().step_by(397);
        let mut ranges: Vec<(Key, Option<Key>)> =
            some().map(behind(1)).zip(some().map(behind(65)).map(Some)).collect();
        if with_seeks {
            ranges.extend(some().map(|key| (key.clone(), None)));
        }
        let mix = QueryMix { range_share: 0.5, ranges, ..QueryMix::default() };
        let spec = PartitionSpec { bits_per_key: 14.0, mix, ..spec(MapChoice::Auto) };
        let entries = keys.iter().enumerate().map(|(i, key)| (key, runs(i)));
        Partition::build(&batch(entries), 0, &spec).expect("sound").reason().chosen
    };
    assert_eq!(of(false), MapChoice::Local, "ranges right behind keys");
    assert_eq!(of(true), MapChoice::Learned);
}

/// One line per segment leaves most positions to the gaps between clusters.
#[test]
fn clusters_get_pieces_that_tell_them_apart() {
    let keys: Vec<Key> = (0..40_000).map(|i| key(7, i)).collect();
    let (held, kept): (Vec<Key>, Vec<Key>) =
        keys.into_iter().partition(|key| Digest::of(key).remix(3).is_multiple_of(8));
    let partition =
        Partition::build(&batch(kept.iter().map(|key| (key, LAST))), 1000, &spec(MapChoice::Learned))
            .expect("sound");
    assert!(partition.inner.map.is_in_pieces());
    let rate = measured(&partition, held.into_iter());
    assert!(rate < 0.2, "{rate}");
}

#[test]
fn a_number_shared_by_many_keys_gets_many_blocks_of_a_mixed_map() {
    let keys: Vec<Key> =
        (0..10_000u64).map(|i| [&(i % 50 / 49 * i).to_be_bytes()[..], &i.to_be_bytes()].concat()).collect();
    let partition =
        Partition::build(&batch(keys.iter().map(|key| (key, LAST))), 1000, &spec(MapChoice::Mixed))
            .expect("sound");
    // All but two hundred keys are in one segment of three or so, which has its share of the
    // positions only.
    assert!(partition.largest_block() < 512, "{}", partition.largest_block());
    assert!(keys.iter().all(|key| named(&partition, key) == [epochs(0, 1000)]));
}

/// New keys of a series all come after the last knot. They used to share the edge's last position,
/// so every probe for a new key hit every new table.
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
            // The codes of twenty equal tables take 4.5 bits of the ten.
            assert!(rate < 0.3, "{map:?}, {per_flush} a flush, backwards {sign}: {rate}");
            assert!(partition.largest_block() < 400, "{}", partition.largest_block());
        }
    }
}

#[test]
fn keys_outside_the_prefix_are_clamped_and_stay_findable() {
    let name = |i: u64| format!("a long common prefix/{:08}", random(i, 8) % 100_000_000).into_bytes();
    let keys: Vec<Key> = (0..3000).map(name).collect();
    for map in [MapChoice::Learned, MapChoice::Mixed, MapChoice::Local] {
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
    let keys: Vec<Key> = (0..1000).map(|i| key(0, i)).collect();
    let spec = PartitionSpec { bits_per_key: 40.0, ..spec(MapChoice::Digest) };
    let partition = Partition::build(&batch(keys.iter().map(|key| (key, LAST))), 1000, &spec).expect("sound");
    let cuts = Cuts::of([LAST, epochs(1000, 1001), epochs(1001, 1002)]);
    let n = partition.entries();
    assert_eq!(n, 1000, "with so many bits no two keys share a position");
    let twice = partition.insert(&table(1000, 1001), &cuts).insert(&table(1001, 1002), &cuts);
    assert_eq!(twice.entries(), n + 2, "two tables, two entries");
    assert_eq!(twice.insert(&table(1001, 1002), &cuts).entries(), n + 2, "the same again");
    let merged = twice.collect(0, &Cuts::of([LAST, epochs(1000, 1002), epochs(1002, 1003)]));
    assert_eq!(merged.entries(), n + 1, "they are in one table");
    assert_eq!(named(&merged, &one[0]).len(), 2);
    let all = merged.collect(0, &Cuts::of([epochs(0, 1002), epochs(1002, 1003)]));
    assert_eq!((all.entries(), all.last_entries()), (n, n), "all in the last level");
    // An entry whose table is gone is dropped; those of "last", too.
    let gone = twice.collect(0, &Cuts::of([LAST, epochs(1001, 1002)]));
    assert_eq!(gone.entries(), n + 1);
    let gone = twice.collect(1001, &Cuts::of([epochs(1000, 1001), epochs(1001, 1002)]));
    assert_eq!((gone.entries(), gone.last_entries()), (2, 1), "the oldest run was dropped");
    // Part of the table has older keys than the rest.
    let partly = twice.collect(1000, &Cuts::of([LAST, epochs(0, 1002), epochs(1002, 1003)]));
    assert_eq!((partly.entries(), partly.last_entries()), (n, n));
}

#[test]
fn invalid_specifications_are_rejected() {
    let wrong = |change: fn(&mut PartitionSpec)| {
        let mut spec = spec(MapChoice::Auto);
        change(&mut spec);
        Partition::build(&Batch::new(), 0, &spec).is_err()
    };
    assert!(wrong(|spec| spec.bits_per_key = 0.0) && wrong(|spec| spec.bits_per_key = f64::NAN));
    assert!(wrong(|spec| spec.bits_per_key = 65.0) && wrong(|spec| spec.bits_per_key = -1.0));
    assert!(!wrong(|_| ()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A batch is encoded with other codes, and maybe fewer bits of positions, than the same keys
    /// one after the other. But both name the tables of all keys, and with many bits no others.
    #[test]
    fn one_batch_or_many_give_the_same_answers(
        kind in 0..KINDS,
        map in prop::sample::select(&MAPS[..]),
        built in 1u64..500,
        new in prop::collection::vec(0u64..400, 1..30),
        parts in 1usize..6,
    ) {
        let keys: BTreeSet<Key> = (0..built).map(|i| key(kind, i)).collect();
        let of = |part: &[(Key, Epochs)]| batch(part.iter().map(|(key, epochs)| (key, *epochs)));
        let old: Vec<_> = keys.iter().map(|key| (key.clone(), LAST)).collect();
        let spec = PartitionSpec { bits_per_key: 50.0, ..spec_of(map) };
        let partition = Partition::build(&of(&old), 1000, &spec).expect("sound");
        let tables = [LAST, epochs(1000, 1004), epochs(1004, 1005), epochs(1005, 1006)];
        let cuts = Cuts::of(tables);
        let new: Vec<(Key, Epochs)> =
            new.iter().map(|&i| (key(kind, i), tables[1 + i as usize % 3])).collect();
        let at_once = partition.insert(&of(&new), &cuts);
        let mut in_parts = partition.clone();
        for part in new.chunks(new.len().div_ceil(parts).max(1)) {
            in_parts = in_parts.insert(&of(part), &cuts);
        }
        for partition in [&at_once, &in_parts] {
            consistent(partition);
            for (key, _) in new.iter().chain(&old) {
                let of_key = |list: &[(Key, Epochs)]| {
                    list.iter().filter(|(k, _)| k == key).map(|(_, table)| *table).collect::<BTreeSet<_>>()
                };
                let wanted: BTreeSet<Epochs> = of_key(&old).union(&of_key(&new)).copied().collect();
                let named = named(partition, key);
                let found: BTreeSet<Epochs> = tables
                    .iter()
                    .copied()
                    .filter(|table| named.iter().any(|named| named.intersects(*table)))
                    .collect();
                prop_assert!(found.is_superset(&wanted), "{key:?}: {found:?}, not {wanted:?}");
                if map.0 == MapChoice::Digest {
                    prop_assert_eq!(found, wanted, "{:?}", key);
                }
            }
        }
    }
}

/// Equal runs, one after the other; then all of them merged into one, and into two of unequal size.
///
/// Memory was for entries once. Where there are few positions many keys are one entry, so each
/// encoding had less memory, cut bits and joined more: of 6 bits a key 4.2 were in use in a tree of
/// 19 runs, which named three times as many runs in vain.
#[test]
fn memory_is_what_was_asked_for_and_rates_are_those_of_theory() {
    let keys = 120_000u64;
    for (bits_per_key, map) in [
        (10.0, MapChoice::Digest),
        (10.0, MapChoice::Learned),
        (14.0, MapChoice::Mixed),
        (8.0, MapChoice::Digest),
        (6.0, MapChoice::Digest),
        (6.0, MapChoice::Learned),
    ] {
        for runs in [1, 4, 19, 74] {
            // Codes alone take more than that.
            if bits_per_key < (runs as f64).log2() {
                continue;
            }
            let what = format!("{runs} runs, {bits_per_key} bits, {map:?}");
            let spec = PartitionSpec { bits_per_key, ..spec(map) };
            let (mut tables, mut partition) = (Vec::new(), None::<Partition>);
            for run in 0..runs {
                let table = epochs(run, run + 1);
                tables.push(table);
                let keys: Vec<Key> =
                    (run * keys / runs..(run + 1) * keys / runs).map(|i| key(0, i)).collect();
                let new = batch(keys.iter().map(|key| (key, table)));
                partition = Some(match partition {
                    None => Partition::build(&new, 0, &spec).expect("sound"),
                    Some(partition) => partition.insert(&new, &Cuts::of(tables.iter().copied())),
                });
            }
            let piled = partition.expect("there are runs");
            let open = epochs(runs, runs + 1);
            let merged = piled.collect(0, &Cuts::of([epochs(0, runs), open]));
            let half = runs.div_ceil(2);
            let two = piled.collect(0, &Cuts::of([epochs(0, half), epochs(half, runs.max(half + 1)), open]));
            for (when, partition) in [("piled up", &piled), ("merged", &merged), ("in two", &two)] {
                let bits = partition.memory_bytes() as f64 * 8.0 / keys as f64;
                // How many versions of a key became one is estimated, and an ordered map is less
                // even than chance.
                let off = (partition.keys() as f64 / keys as f64 - 1.0).abs();
                let most = if when == "piled up" { 0.01 } else { 0.25 };
                assert!(off < most, "{what}, {when}: {} keys", partition.keys());
                // What was merged has lost bits that it no longer would have to: it can be far
                // smaller. Nor are there more positions than when the first run was all: below a
                // bit or two per entry, halving the load saves less than a bit. What is saved as
                // entries join when positions lose a bit is left for those to come.
                let least = match (when, runs) {
                    ("piled up", 74) => 0.85,
                    ("piled up", _) => 0.90,
                    _ => 0.0,
                };
                assert!(bits < bits_per_key * 1.02, "{what}, {when}: {bits} bits");
                assert!(bits > bits_per_key * least, "{what}, {when}: {bits} bits");
                // A random position has as many entries as there are for one, a coarse one twice as
                // many. An ordered map has edges without keys, and segments that are fuller than
                // others. Where most positions are taken, coarse blocks have fewer entries.
                let layout = partition.inner.set.layout;
                let coarse = f64::from(layout.coarse) / layout.blocks() as f64;
                let load = partition.entries() as f64 / layout.positions as f64 * (1.0 + coarse);
                let expected = partition.expected_rate();
                let unevenness = if map == MapChoice::Digest { 1.03 } else { 1.4 };
                assert!(
                    (load * 0.9..load * unevenness).contains(&expected),
                    "{what}, {when}: {expected}, {load}"
                );
                let rate = measured(partition, (1 << 30..(1 << 30) + 60_000).map(|i| key(0, i)));
                let deviation = 4.0 * (expected / 60_000.0).sqrt() + 0.06 * expected;
                assert!((rate - expected).abs() < deviation, "{what}, {when}: {rate}, expected {expected}");
                // Where hardly a bit per entry is left for positions, Elias-Fano coding has other
                // costs.
                let is_left = bits_per_key - (runs as f64).log2();
                if when == "piled up" && is_left > 3.0 {
                    // Two bits for Elias-Fano coding, the directory of one to two buckets per
                    // entry, and the knots.
                    let overhead = 2.0 + 0.56 + if map == MapChoice::Digest { 0.0 } else { 0.8 };
                    let exponent = bits - overhead - partition.code_bits();
                    assert!(rate < (-exponent).exp2(), "{what}: {rate}, codes {}", partition.code_bits());
                    // The newest runs may still have the long codes of epochs to come.
                    let codes = partition.code_bits();
                    assert!(codes < (runs as f64).log2() + 1.0, "{what}: codes {codes}");
                }
            }
            consistent(&two);
        }
    }
}

/// After a crash, an ingestion or a merge that a follower sees, tables are inserted whose keys are
/// there already. Each time they were counted again, and the partition took more memory than it
/// may.
#[test]
fn keys_that_are_inserted_again_count_once() {
    for (bits_per_key, map) in
        [(6.0, MapChoice::Digest), (10.0, MapChoice::Learned), (10.0, MapChoice::Mixed)]
    {
        let spec = PartitionSpec { bits_per_key, ..spec(map) };
        let of = |keys: std::ops::Range<u64>, table| {
            let keys: Vec<Key> = keys.map(|i| key(0, i)).collect();
            batch(keys.iter().map(|key| (key, table)))
        };
        let mut partition = Partition::build(&of(0..20_000, LAST), 1000, &spec).expect("sound");
        let mut tables = vec![LAST];
        for flush in 0..12 {
            let table = epochs(1000 + flush, 1001 + flush);
            tables.push(table);
            let new = of(20_000 + flush * 800..20_800 + flush * 800, table);
            let cuts = Cuts::of(tables.iter().copied());
            let once = partition.insert(&new, &cuts);
            assert_eq!(once.keys(), partition.keys() + 800, "{map:?}");
            partition = once.insert(&new, &cuts);
            // Cut positions may join a key with one of the same table that is not there; there are
            // few of them.
            assert!(
                partition.keys() - once.keys() < 40,
                "{map:?}: {} keys more",
                partition.keys() - once.keys()
            );
            let all = partition.insert(&of(0..20_000, LAST), &cuts);
            assert!(
                all.keys() - partition.keys() < 400,
                "{map:?}: {} keys more",
                all.keys() - partition.keys()
            );
        }
        consistent(&partition);
    }
}

/// All keys are overwritten ten times, and each time both versions become one.
#[test]
fn versions_of_a_key_count_once_after_a_merge() {
    for map in [MapChoice::Digest, MapChoice::Learned] {
        let keys: Vec<Key> = (0..20_000).map(|i| key(0, i)).collect();
        let of = |table| batch(keys.iter().map(|key| (key, table)));
        let spec = spec(map);
        let mut partition = Partition::build(&of(epochs(0, 1)), 0, &spec).expect("sound");
        for round in 1..=10 {
            let both = [epochs(0, round), epochs(round, round + 1)];
            partition = partition.insert(&of(both[1]), &Cuts::of(both));
            let most = partition.keys();
            assert!((38_000..=46_000).contains(&most), "{map:?}, round {round}: {most} keys");
            partition = partition.collect(0, &Cuts::of([epochs(0, round + 1), epochs(round + 1, round + 2)]));
            let left = partition.keys();
            assert!((19_000..=24_000).contains(&left), "{map:?}, round {round}: {left} keys");
        }
        consistent(&partition);
    }
}

/// A partition of no keys had a single position, and one of a few keys one for two of them. The
/// segments that new keys got had no more, so that every probe named every table. Besides, an entry
/// right before an edge made the edge seem occupied, and new keys stayed in it.
#[test]
fn a_partition_of_few_keys_that_grows_keeps_its_rate() {
    // Not a local map: it keeps neighbours together, and the bits that are cut as it grows are
    // those that tell them apart.
    for map in [MapChoice::Learned, MapChoice::Digest, MapChoice::Mixed, MapChoice::Auto] {
        for built in [0, 1, 10, 200] {
            let keys: Vec<Key> = (0..built).map(|i| key(2, i)).collect();
            let of = |keys: &[Key], table| batch(keys.iter().map(|key| (key, table)));
            let mut partition = Partition::build(&of(&keys, LAST), 1000, &spec(map)).expect("sound");
            let (mut tables, mut all) = (vec![LAST], keys);
            for flush in 0..10 {
                let table = epochs(1000 + flush, 1001 + flush);
                let keys: Vec<Key> = (0..400).map(|i| key(2, 200 + flush * 400 + i)).collect();
                tables.push(table);
                partition = partition.insert(&of(&keys, table), &Cuts::of(tables.iter().copied()));
                all.extend(keys);
            }
            consistent(&partition);
            assert!(all.iter().all(|key| !named(&partition, key).is_empty()));
            let present: BTreeSet<Key> = all.into_iter().collect();
            let absent =
                (200..4200).map(|i| (1_000_000 + i * 10 + 5 + random(i, 6) % 20).to_be_bytes().to_vec());
            let rate = measured(&partition, absent.filter(|key| !present.contains(key)));
            // Ten tables take 3.5 bits of the ten; a digest map has its positions for good.
            assert!(rate < 0.25, "{map:?}, built of {built}: {rate}");
        }
    }
}

/// Returns the entries of the blocks that a batch goes to, each block counted once: what an
/// insertion encodes, at most.
fn touched(partition: &Partition, batch: &Batch) -> u64 {
    let inner = &*partition.inner;
    let block = |(key, digest, _): (&[u8], _, _)| {
        inner.set.layout.block(inner.map.position(key, digest) >> inner.cut)
    };
    let blocks: BTreeSet<u64> =
        batch.iter().map(block).filter(|&at| at < inner.set.blocks() as u64).collect();
    blocks.into_iter().map(|at| inner.set.count(at as usize)).sum()
}

/// Inserts `new` in flushes of a thousand, and builds anew whenever the partition is crowded.
/// Returns the partition, the entries encoded for each inserted key (a rebuild encodes all), and
/// the entries of the largest block on the way.
fn with_upkeep(old: &[Key], new: &[Key], map: MapChoice) -> (Partition, f64, usize) {
    let of = |keys: &[(Key, Epochs)]| batch(keys.iter().map(|(key, table)| (key, *table)));
    let mut all: Vec<(Key, Epochs)> = old.iter().map(|key| (key.clone(), LAST)).collect();
    let mut partition = Partition::build(&of(&all), 1000, &spec(map)).expect("sound");
    assert!(!partition.is_crowded());
    let (mut tables, mut encoded, mut largest) = (vec![LAST], 0u64, 0);
    for (epoch, keys) in (1000..).zip(new.chunks(1000)) {
        let table = epochs(epoch, epoch + 1);
        tables.push(table);
        let flush: Vec<(Key, Epochs)> = keys.iter().map(|key| (key.clone(), table)).collect();
        encoded += touched(&partition, &of(&flush)) + flush.len() as u64;
        partition = partition.insert(&of(&flush), &Cuts::of(tables.iter().copied()));
        largest = largest.max(partition.largest_block());
        all.extend(flush);
        if partition.is_crowded() {
            let restored = Partition::from_bytes(&partition.to_bytes()).expect("its own bytes");
            assert!(restored.is_crowded());
            partition = Partition::build(&of(&all), 1000, &spec(map)).expect("sound");
            assert!(!partition.is_crowded());
            encoded += all.len() as u64;
        }
    }
    consistent(&partition);
    assert!(
        all.iter().all(|(key, table)| named(&partition, key).iter().any(|named| named.intersects(*table)))
    );
    (partition, encoded as f64 / new.len() as f64, largest)
}

/// A cluster of new keys between two old ones: one position for all of a table's, or a block of all
/// their digests, for good.
#[test]
fn a_cluster_between_two_keys_makes_a_partition_crowded() {
    let old: Vec<Key> = (0..30_000).map(|i| key(0, i)).collect();
    let cluster = |i: u64| ((1 << 62) + 12_345 + (random(i, 6) >> 32)).to_be_bytes().to_vec();
    let new: Vec<Key> = (0..20_000).map(cluster).collect();
    for map in [MapChoice::Learned, MapChoice::Mixed, MapChoice::Auto, MapChoice::Local, MapChoice::Digest] {
        let (partition, encoded, largest) = with_upkeep(&old, &new, map);
        assert!(largest < 1500, "{map:?}: a block of {largest} entries");
        // By digest, a thousand keys go to all of the blocks.
        let most = if map == MapChoice::Digest { 60.0 } else { 30.0 };
        assert!(encoded < most, "{map:?}: {encoded} entries for a new key");
        let rate = measured(&partition, (1 << 20..(1 << 20) + 20_000).map(cluster));
        assert!(rate < 0.5, "{map:?}: {rate}");
    }
}

/// Keys with another beginning have one number: the smallest or the largest.
#[test]
fn keys_with_another_beginning_make_a_partition_crowded() {
    let name = |beginning: &str, i: u64| {
        format!("{beginning}/{:012}", random(i, 8) % 1_000_000_000_000).into_bytes()
    };
    let old: Vec<Key> = (0..30_000).map(|i| name("accounts/first", i)).collect();
    let new: Vec<Key> = (0..20_000).map(|i| name("blobs/second", i)).collect();
    for map in [MapChoice::Learned, MapChoice::Mixed, MapChoice::Auto, MapChoice::Local] {
        let of = |keys: &[Key], table| batch(keys.iter().map(|key| (key, table)));
        let partition = Partition::build(&of(&old, LAST), 1000, &spec(map)).expect("sound");
        let table = epochs(1000, 1001);
        let grown = partition.insert(&of(&new[..3000], table), &Cuts::of([LAST, table]));
        assert!(grown.is_crowded(), "{map:?}: {}", grown.largest_block());
        assert!(
            !partition.insert(&of(&old[..3000], table), &Cuts::of([LAST, table])).is_crowded(),
            "{map:?}"
        );
    }
}
