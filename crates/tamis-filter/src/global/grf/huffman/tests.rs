use proptest::prelude::*;

use super::*;
use crate::global::model::{Lists, Tree, batch, check_walks, key, probe, refs, spec, steps};

fn tag(level: u8, slot: u32) -> RunTag {
    RunTag { level, slot }
}

/// Returns big-endian numbers.
fn numbers(numbers: impl IntoIterator<Item = u64>) -> Batch {
    let keys: Vec<Vec<u8>> = numbers.into_iter().map(|n| n.to_be_bytes().to_vec()).collect();
    batch(&keys)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_key_is_rejected_through_random_changes(
        steps in steps(),
        bounds in prop::collection::vec((key(), prop::option::of(key())), 12),
        bits in 3.0f64..20.0, start_at in 0usize..8, own_tags: bool,
    ) {
        let mut tree = Tree::default();
        for step in &steps[..start_at.min(steps.len())] {
            tree.step(step);
        }
        let slots = if own_tags { vec![4, 4, 1] } else { vec![] };
        let spec = RunIndexSpec { bits_per_key: bits, slots, ..spec(400) };
        let mut filter = GrfHuffman::build(&refs(&tree.lists()), &spec).unwrap();
        tree.check(&filter);
        for step in &steps[start_at.min(steps.len())..] {
            let (removed, added) = tree.step(step);
            filter = match filter.change(&refs(&removed), &refs(&added)) {
                Some(changed) => changed,
                None => {
                    // Keys of a series pile up where three bits leave hardly any positions.
                    let (mut tried, removed, added) = (filter.clone(), refs(&removed), refs(&added));
                    let shift = tried.extend(&added);
                    let tried = tried.apply(&removed, &added, shift).expect("what is removed was there");
                    let is_crowded = super::super::is_crowded(tried.set.largest(), tried.built_largest);
                    prop_assert!(tree.entries() > 800 || is_crowded, "there was room");
                    let spec = RunIndexSpec { capacity: 2 * tree.entries(), ..spec.clone() };
                    GrfHuffman::build(&refs(&tree.lists()), &spec).unwrap()
                }
            };
            tree.check(&filter);
        }
        if filter.answers_ranges() {
            check_walks(&filter, &tree, &bounds);
        }
        let lists = tree.lists();
        let emptied = filter.change(&refs(&lists), &[]).unwrap();
        prop_assert_eq!(emptied.entries(), 0);
        for key in tree.runs.values().flatten() {
            prop_assert!(probe(&emptied, key).is_empty());
        }
    }
}

/// Returns `n` keys of a full tree, spread over its runs as expected, at random positions in the
/// key space.
fn full_tree(n: u64, spec: &RunIndexSpec) -> Lists {
    let mut keys: Vec<u64> = (0..n).map(|n| Digest::from_u64(n).remix(1)).collect();
    let mut lists = Lists::new();
    for (tag, share) in spec.shares() {
        let mut run = keys.split_off(keys.len() - ((share * n as f64).round() as usize).min(keys.len()));
        run.sort_unstable();
        lists.push((numbers(run), tag));
    }
    lists
}

#[test]
fn codes_take_little_more_than_one_bit() {
    let n = 100_000;
    let spec = RunIndexSpec { bits_per_key: 10.0, slots: vec![10, 10, 1], ..spec(n) };
    let lists = full_tree(n, &spec);
    let filter = GrfHuffman::build(&refs(&lists), &spec).unwrap();
    assert_eq!(filter.map_choice(), MapChoice::Learned);
    let bits = filter.memory_bytes() as f64 * 8.0 / filter.entries() as f64;
    let strangers = 100_000;
    let mut named = 0;
    for stranger in 0..strangers {
        let key = Digest::from_u64(stranger).remix(2).to_be_bytes();
        filter.probe(&key, Digest::of(&key), &mut |_| named += 1);
    }
    let rate = f64::from(named) / strangers as f64;
    assert!(filter.code_bits() < 1.7, "{} bits", filter.code_bits());
    assert!(bits < 10.1, "{bits} bits per key");
    // One bit per key is for knots and directory, a little more than two is the overhead of
    // Elias-Fano coding.
    assert!(rate < 0.5f64.powf(10.0 - 3.25 - filter.code_bits()), "{rate} with {bits} bits per key");
}

#[test]
fn keys_in_time_order_get_their_own_blocks() {
    let spec = spec(4000);
    let mut filter = GrfHuffman::build(&[(&numbers(0..2000), tag(2, 0))], &spec).unwrap();
    for flush in 0..4 {
        let keys = numbers(2000 + flush * 500..2500 + flush * 500);
        filter = filter.change(&[], &[(&keys, tag(0, flush as u32))]).unwrap();
    }
    let found = (0..4000u64).map(|key| probe(&filter, &key.to_be_bytes()).len()).sum::<usize>();
    assert_eq!(found, 4000, "each key names its run alone");
    assert!(probe(&filter, &4500u64.to_be_bytes()).is_empty());
}

/// Keys of other runs came between two neighbours of the last level: all of them had one position,
/// each probe of it read all of their tags, each from the start of the block, and gets took 15
/// milliseconds.
#[test]
fn keys_that_pile_up_are_left_to_a_new_map() {
    let spec = RunIndexSpec { slots: vec![10, 1], ..spec(40_000) };
    let last = numbers((0..20_000).map(|at| at << 40));
    let filter = GrfHuffman::build(&[(&last, tag(1, 0))], &spec).unwrap();
    let spread = numbers((0..2000).map(|at| at << 43 | 1 << 30));
    assert!(filter.change(&[], &[(&spread, tag(0, 0))]).is_some());
    let piled = numbers((0..2000).map(|at| 77 << 40 | 1 << 30 | at << 1));
    assert!(filter.change(&[], &[(&piled, tag(0, 0))]).is_none());
    let anew = GrfHuffman::build(&[(&last, tag(1, 0)), (&piled, tag(0, 0))], &spec).unwrap();
    let more = numbers((0..500).map(|at| 77 << 40 | 1 << 30 | at << 3 | 1));
    assert!(anew.change(&[], &[(&more, tag(0, 1))]).is_some(), "the new map has room there");
}

#[test]
fn unexpected_runs_share_a_symbol() {
    let lists: Lists =
        (0..400).map(|slot| (numbers(u64::from(slot) * 4..u64::from(slot) * 4 + 4), tag(1, slot))).collect();
    let filter = GrfHuffman::build(&refs(&lists), &spec(0)).unwrap();
    let check = |filter: &GrfHuffman, lists: &[(Batch, RunTag)]| {
        for (batch, tag) in lists {
            batch.keys().iter().for_each(|key| assert!(probe(filter, key).contains(tag)));
        }
    };
    check(&filter, &lists);
    assert!(filter.change(&[(&lists[399].0, tag(7, 7))], &[]).is_none(), "such a run never came");
    let filter = filter.change(&refs(&lists)[200..], &[]).unwrap();
    check(&filter, &lists[..200]);
    assert_eq!(filter.entries(), 800);
}

#[test]
fn invalid_sizes_are_rejected() {
    let build =
        |bits_per_key, capacity| GrfHuffman::build(&[], &RunIndexSpec { bits_per_key, ..spec(capacity) });
    for bits in [0.0, -1.0, 65.0, f64::NAN] {
        assert!(matches!(build(bits, 10), Err(FilterError::BitsPerKey(_))));
    }
    assert!(matches!(build(10.0, u64::MAX), Err(FilterError::TooLarge { .. })));
    let filter = build(0.01, 1).unwrap();
    assert!(probe(&filter, b"k").is_empty());
    let one = filter.change(&[], &[(&numbers([7]), tag(0, 0))]).unwrap();
    assert!(probe(&one, &7u64.to_be_bytes()).contains(&tag(0, 0)));
    assert!(filter.change(&[(&numbers([7]), tag(0, 0))], &[]).is_none(), "it is not there");
    assert!(one.change(&[], &[(&numbers(0..9), tag(0, 1))]).is_none(), "ten keys, and it was made for one");
}

/// The number after the greatest one came out as the greatest, and the key with that number was
/// rejected.
#[test]
fn the_greatest_key_is_found_backwards() {
    // Numbers of short keys have fewer bits; one with more was taken for a small number.
    (1..9).for_each(greatest_from_behind);
}

fn greatest_from_behind(len: usize) {
    let mut batch = Batch::new();
    for first in [0, 20, 40, 60, 80, 100, 120, 140, 160, 180, 200, 0xff] {
        let key = vec![first; len];
        batch.push(&key, Digest::of(&key), Epochs::ALL);
    }
    let tag = RunTag { level: 0, slot: 0 };
    let spec = RunIndexSpec { bits_per_key: 10.0, capacity: 12, slots: vec![4, 1], ratio: 4.0, segment: 32 };
    let filter = GrfHuffman::build(&[(&batch, tag)], &spec).expect("sound");
    let (mut out, mut bound) = (TagsAhead::default(), Vec::new());
    for before in [None, Some(&[0xff; 9][..])] {
        assert!(filter.behind(before, &vec![0xff; len], &mut out));
        let &(found, number) = out.found.first().expect("the key is there");
        assert_eq!(found, tag);
        if let Some(number) = number {
            filter.lower_key(number, &mut bound);
            assert!(bound[..] > vec![0xff; len][..], "{len}: {bound:?} {out:?}");
        }
    }
}
