use proptest::prelude::*;

use super::*;
use crate::global::model::{Lists, Tree, batch, check_walks, key, lower, probe, refs, spec, steps};

fn tag(level: u8, slot: u32) -> RunTag {
    RunTag { level, slot }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_key_is_rejected_through_random_changes(
        steps in steps(),
        bounds in prop::collection::vec((key(), prop::option::of(key())), 12),
        segment in 1u32..20, start_at in 0usize..8,
    ) {
        let mut tree = Tree::default();
        // Built over the result of some steps; otherwise all keys would fall into one segment.
        for step in &steps[..start_at.min(steps.len())] {
            tree.step(step);
        }
        let spec = RunIndexSpec { segment, ..spec(400) };
        let mut filter = Remix::build(&refs(&tree.lists()), &spec).unwrap();
        tree.check(&filter);
        for step in &steps[start_at.min(steps.len())..] {
            let (removed, added) = tree.step(step);
            filter = match filter.change(&refs(&removed), &refs(&added)) {
                Some(changed) => changed,
                None => {
                    prop_assert!(tree.entries() > 800, "there was room");
                    Remix::build(&refs(&tree.lists()), &RunIndexSpec { capacity: 2 * tree.entries(), ..spec.clone() }).unwrap()
                }
            };
            tree.check(&filter);
        }
        check_walks(&filter, &tree, &bounds);
        let lists = tree.lists();
        let emptied = filter.change(&refs(&lists), &[]).unwrap();
        for keys in tree.runs.values() {
            keys.iter().for_each(|key| assert!(probe(&emptied, key).is_empty()));
        }
    }

    #[test]
    fn walks_cover_the_whole_key_space(keys in prop::collection::btree_set(key(), 0..200), segment in 1u32..9) {
        let lists: Lists = vec![(batch(&keys), tag(0, 0))];
        let filter = Remix::build(&refs(&lists), &RunIndexSpec { segment, ..spec(0) }).unwrap();
        let (mut out, mut from, mut steps) = (TagsAhead::default(), Vec::new(), 0);
        loop {
            filter.ahead(&from, None, &mut out);
            steps += 1;
            let Some(until) = out.until else { break };
            from = lower(&filter, until);
        }
        let mut before: Option<Vec<u8>> = None;
        let mut back = 0;
        loop {
            filter.behind(before.as_deref(), &[], &mut out);
            back += 1;
            let Some(until) = out.until else { break };
            before = Some(lower(&filter, until));
        }
        prop_assert_eq!((steps, back), (filter.segments(), filter.segments()));
    }
}

/// Returns big-endian numbers.
fn numbers(numbers: impl IntoIterator<Item = u64>) -> crate::global::Batch {
    let keys: Vec<Vec<u8>> = numbers.into_iter().map(|n| n.to_be_bytes().to_vec()).collect();
    batch(&keys)
}

#[test]
fn a_segment_names_the_runs_of_its_keys_and_no_others() {
    let spec = RunIndexSpec { segment: 32, ..spec(0) };
    // Run 1 has keys in every tenth segment.
    let (all, some) = (numbers(0..32_000), numbers((0..32_000).step_by(320)));
    let filter = Remix::build(&[(&all, tag(2, 0)), (&some, tag(0, 0))], &spec).unwrap();
    assert_eq!(filter.segments(), 1000);
    let named = (0..32_000u64).map(|key| probe(&filter, &key.to_be_bytes()).len()).sum::<usize>();
    assert_eq!(named, 32_000 + 100 * 32);
    let bits = filter.memory_bytes() as f64 * 8.0 / 32_000.0;
    assert!(bits < 5.0, "{bits}");
}

#[test]
fn bits_of_a_run_are_cleared_when_the_run_is_gone() {
    let spec = RunIndexSpec { segment: 10, ..spec(0) };
    let (old, new) = (numbers(0..100), numbers((0..100).step_by(2)));
    let filter = Remix::build(&[(&old, tag(1, 0))], &spec).unwrap();
    let count =
        |filter: &Remix| (0..100u64).map(|key| probe(filter, &key.to_be_bytes()).len()).sum::<usize>();
    let half = numbers(0..50);
    let filter = filter.change(&[(&half, tag(1, 0))], &[]).unwrap();
    assert_eq!(count(&filter), 100, "a part of the run is left");
    assert!(filter.change(&[(&old, tag(1, 0))], &[]).is_none(), "more than there is");
    assert!(filter.change(&[(&half, tag(1, 1))], &[]).is_none(), "no such run");
    // The name is reused in the change that releases it.
    let rest = numbers(50..100);
    let filter =
        filter.change(&[(&rest, tag(1, 0))], &[(&numbers([3, 4]), tag(1, 0)), (&new, tag(0, 0))]).unwrap();
    assert_eq!(count(&filter), 100 + 10);
    assert_eq!(filter.entries(), 52);
}

#[test]
fn runs_without_their_own_bit_share_one() {
    let spec = RunIndexSpec { segment: 2, ..spec(10_000) };
    let lists: Lists = (0..100)
        .map(|slot| (numbers(u64::from(slot) * 10..u64::from(slot) * 10 + 10), tag(0, slot)))
        .collect();
    let filter = Remix::build(&refs(&lists), &spec).unwrap();
    let check = |filter: &Remix, lists: &[(crate::global::Batch, RunTag)]| {
        for (batch, tag) in lists {
            batch.keys().iter().for_each(|key| assert!(probe(filter, key).contains(tag), "{tag:?}"));
        }
    };
    check(&filter, &lists);
    let filter = filter.change(&refs(&lists)[..50], &[]).unwrap();
    check(&filter, &lists[50..]);
    // New runs get the bits of removed ones; runs on the shared bit stay there.
    let again: Lists = lists[..50].iter().map(|(batch, t)| (batch.clone(), tag(1, t.slot))).collect();
    let filter = filter.change(&[], &refs(&again)).unwrap();
    check(&filter, &lists[50..]);
    check(&filter, &again);
    let filter = filter.change(&refs(&lists)[50..], &[]).unwrap();
    check(&filter, &again);
    assert!(probe(&filter, &700u64.to_be_bytes()).is_empty());
}

#[test]
fn invalid_sizes_are_rejected() {
    assert!(Remix::build(&[], &RunIndexSpec { segment: 0, ..spec(0) }).is_err());
    let filter = Remix::build(&[], &RunIndexSpec { segment: u32::MAX, ..spec(0) }).unwrap();
    assert_eq!((filter.segments(), filter.entries()), (1, 0));
    let filter = filter.change(&[], &[(&numbers([7]), tag(0, 0)), (&numbers([]), tag(0, 1))]).unwrap();
    assert_eq!(probe(&filter, b"").len(), 1);
    assert!(
        filter.change(&[], &[(&numbers(0..9), tag(0, 2))]).is_none(),
        "ten keys, and it was made for one"
    );
}
