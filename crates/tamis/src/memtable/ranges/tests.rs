use proptest::prelude::*;

use super::*;

fn key(i: u16) -> KeyBytes {
    i.to_be_bytes()[..].into()
}

fn range(start: u16, end: Option<u16>, seq: SeqNo) -> RangeTombstone {
    RangeTombstone { start: key(start), end: end.map(key), seq }
}

/// The newest of `list` over `key` that a reader at `snapshot` sees.
fn oracle(list: &[RangeTombstone], key: &[u8], snapshot: SeqNo) -> SeqNo {
    let over = |t: &&RangeTombstone| *t.start <= *key && t.ends_behind(key) && t.seq <= snapshot;
    list.iter().filter(over).map(|t| t.seq).max().unwrap_or(0)
}

fn check_invariants(link: &Link) {
    let Some(node) = link else { return };
    for child in [&node.left, &node.right] {
        assert!(child.as_ref().is_none_or(|child| child.priority <= node.priority));
        check_invariants(child);
    }
}

fn check(ranges: &Ranges, map: &RangeMap, list: &[RangeTombstone], keys: u16) {
    check_invariants(&map.root);
    let mut fragments: Vec<RangeTombstone> = Vec::new();
    map.for_each(|fragment| {
        let last = fragments.last();
        assert!(last.is_none_or(|last| last.end.as_ref().is_some_and(|end| *end <= fragment.start)));
        assert!(fragment.ends_behind(&fragment.start));
        fragments.push(fragment.clone());
    });
    assert!(fragments.len() < 2 * list.len().max(1));
    let newest = list.last().map_or(0, |last| last.seq);
    for snapshot in 0..=newest + 1 {
        for i in 0..keys + 2 {
            let key = key(i);
            let expected = oracle(list, &key, snapshot);
            assert_eq!(ranges.cover(&key, snapshot), expected, "{key:?} at {snapshot}");
            let around = ranges.around(map, &key, snapshot);
            assert_eq!(around.seq, expected, "{key:?} at {snapshot}");
            assert!(around.holds(&key), "{around:?} around {key:?}");
            for other in (0..keys + 2).map(super::tests::key).filter(|other| around.holds(other)) {
                assert_eq!(oracle(list, &other, snapshot), expected, "{other:?} in {around:?} at {snapshot}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Against a list that is searched as a whole, for readers at every number, old maps among
    /// them.
    #[test]
    fn every_reader_finds_the_newest_tombstone_that_it_sees(
        ops in prop::collection::vec((0u16..24, prop::option::weighted(0.9, 1u16..12), 1u64..3), 0..40),
        kept_at in 0usize..40,
    ) {
        let (ranges, mut list, mut seq) = (Ranges::default(), Vec::new(), 0);
        let mut kept = (RangeMap::default(), 0);
        for (i, &(start, len, distance)) in ops.iter().enumerate() {
            seq += distance;
            let tombstone = range(start, len.map(|len| start + len), seq);
            ranges.insert(tombstone.clone());
            list.push(tombstone);
            if i == kept_at {
                kept = (ranges.map(), seq);
            }
        }
        check(&ranges, &ranges.map(), &list, 36);
        // An iterator's map, for a reader at its time and before.
        let (map, until) = kept;
        for snapshot in 0..=until {
            for i in 0..38 {
                let found = ranges.around(&map, &key(i), snapshot);
                prop_assert_eq!(found.seq, oracle(&list, &key(i), snapshot));
            }
        }
    }
}

/// Readers at snapshots go by blocks: the number of tombstones that they look at does not grow with
/// all that are newer.
#[test]
fn nested_and_moving_tombstones_are_found_at_every_number() {
    let shapes: [fn(u16) -> (u16, u16); 3] = [|i| (i, 400 - i), |i| (0, i + 1), |i| (180 - i, 190 + i)];
    for shape in shapes {
        let (ranges, mut list) = (Ranges::default(), Vec::new());
        for i in 0..180 {
            let (start, end) = shape(i);
            let tombstone = range(start, Some(end), u64::from(i) + 1);
            ranges.insert(tombstone.clone());
            list.push(tombstone);
        }
        let map = ranges.map();
        for snapshot in 0..182 {
            for i in 0..402 {
                assert_eq!(ranges.around(&map, &key(i), snapshot).seq, oracle(&list, &key(i), snapshot));
            }
        }
    }
}

/// A cutoff that moves leaves one fragment, and a path through the tree stays short however
/// tombstones come.
#[test]
fn the_tree_is_small_and_shallow() {
    fn depth(link: &Link) -> usize {
        link.as_ref().map_or(0, |node| 1 + depth(&node.left).max(depth(&node.right)))
    }
    let mut fragments = 0;
    let ranges = Ranges::default();
    for i in 0..20_000 {
        ranges.insert(range(0, Some(i + 1), u64::from(i) + 1));
    }
    ranges.map().for_each(|_| fragments += 1);
    assert_eq!(fragments, 1);
    // The last three cut fragments in two.
    type Shape = fn(u16) -> (u16, u16);
    let shapes: [(&str, Shape); 5] = [
        ("ascending", |i| (2 * i, 2 * i + 1)),
        ("descending", |i| (40_000 - 2 * i, 40_001 - 2 * i)),
        ("pieces, ascending", |i| if i == 0 { (0, 50_000) } else { (2 * i, 2 * i + 1) }),
        ("pieces, descending", |i| if i == 0 { (0, 50_000) } else { (40_000 - 2 * i, 40_001 - 2 * i) }),
        ("nested", |i| (i, 50_000 - i)),
    ];
    for (name, shape) in shapes {
        let ranges = Ranges::default();
        for i in 0..20_000 {
            let (start, end) = shape(i);
            ranges.insert(range(start, Some(end), u64::from(i) + 1));
        }
        let root = ranges.map().root;
        check_invariants(&root);
        let depth = depth(&root);
        assert!(depth < 60, "{name}: {depth}");
    }
}

/// Readers load a number and then search while tombstones are inserted: each sees all up to its
/// number and none after.
#[test]
fn readers_during_insertions_see_what_their_number_says() {
    const COUNT: u16 = if cfg!(miri) { 60 } else { 2000 };
    let (ranges, visible) = (Ranges::default(), std::sync::atomic::AtomicU64::new(0));
    std::thread::scope(|scope| {
        let reader = || {
            let mut last = 0;
            while last < u64::from(COUNT) {
                last = visible.load(Ordering::Acquire);
                let map = ranges.map();
                for back in 0..4 {
                    let snapshot = last.saturating_sub(back * 7);
                    // Number i deletes the keys up to i, so the newest visible one is over all of
                    // these.
                    for i in [0, snapshot / 2, snapshot.saturating_sub(1)] {
                        let key = key(i as u16);
                        assert_eq!(ranges.cover(&key, snapshot), snapshot);
                        assert_eq!(ranges.around(&map, &key, snapshot).seq, snapshot);
                    }
                }
            }
        };
        let readers = [(); 2].map(|()| scope.spawn(reader));
        for i in 1..=COUNT {
            ranges.insert(range(0, Some(i), i.into()));
            visible.store(i.into(), Ordering::Release);
        }
        readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
    });
}
