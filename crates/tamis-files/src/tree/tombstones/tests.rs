use proptest::prelude::*;

use super::*;

fn key(k: u8) -> KeyBytes {
    [k][..].into()
}

fn tombstone(start: u8, end: Option<u8>, seq: SeqNo) -> RangeTombstone {
    RangeTombstone { start: key(start), end: end.map(key), seq }
}

/// The definition: the newest tombstone over the key that is visible to the reader.
fn naive_cover(tombstones: &[RangeTombstone], k: u8, snapshot: SeqNo) -> SeqNo {
    let covers = |t: &&RangeTombstone| t.start[0] <= k && t.end.as_ref().is_none_or(|end| k < end[0]);
    tombstones.iter().filter(covers).map(|t| t.seq).filter(|seq| *seq <= snapshot).max().unwrap_or(0)
}

#[test]
fn bytes_that_encode_never_writes_are_rejected() {
    for (bytes, why) in [
        (&[][..], "no count"),
        (&[1][..], "no fragment"),
        (&[1, 0, 1, 5, 1, 5, 1, 1], "an empty range"),
        (&[1, 1, 1, 9, 1, 1], "touches nothing"),
        (&[1, 4, 1, 5, 1, 6, 1, 1], "an unknown flag"),
        (&[1, 2, 1, 5, 0], "no sequence numbers"),
        (&[1, 2, 1, 5, 1, 0], "sequence number 0"),
        (&[1, 2, 1, 5, 2, 3, 3], "a distance down to 0"),
        (&[1, 2, 1, 5, 2, 3, 0], "one sequence number twice"),
        (&[1, 2, 1, 5, 1, 3, 0], "bytes behind the end"),
        (&[2, 2, 1, 5, 1, 3, 2, 1, 6, 1, 2], "a fragment behind one without end"),
        (&[2, 0, 1, 1, 1, 5, 1, 3, 1, 1, 6, 1, 3], "equal neighbours"),
        (&[2, 0, 1, 1, 1, 5, 1, 3, 0, 1, 5, 1, 6, 1, 4], "a touching start written out"),
    ] {
        assert_eq!(Tombstones::decode(bytes), None, "{why}");
    }
    let mut huge = vec![1, 2, 1, 5];
    huge.put_varint(u64::MAX);
    assert_eq!(Tombstones::decode(&huge), None, "a length beyond the end allocates nothing");
}

fn any_tombstones() -> impl Strategy<Value = Vec<RangeTombstone>> {
    let one = (0u8..40, prop::option::weighted(0.9, 0u8..40), 0u64..30);
    prop::collection::vec(one.prop_map(|(start, end, seq)| tombstone(start, end, seq)), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn cover_agrees_with_the_definition(tombstones in any_tombstones(), snapshot in 0u64..32) {
        let set = Tombstones::fragment(tombstones.clone());
        for k in 0..42 {
            prop_assert_eq!(set.cover(&[k], snapshot), naive_cover(&tombstones, k, snapshot));
            if let Some(fragment) = set.fragment_at(&[k]) {
                prop_assert!(fragment.start[0] <= k && fragment.end.as_ref().is_none_or(|end| k < end[0]));
            }
        }
    }

    #[test]
    fn a_cover_is_the_same_all_around(tombstones in any_tombstones(), snapshot in 0u64..32) {
        let set = Tombstones::fragment(tombstones.clone());
        for k in 0..42 {
            let around = set.cover_around(&[k], snapshot);
            prop_assert!(around.holds(&[k]));
            for other in (0..42).filter(|other| around.holds(&[*other])) {
                prop_assert_eq!(around.seq, naive_cover(&tombstones, other, snapshot));
            }
        }
    }

    #[test]
    fn fragments_for_readers_are_those_of_all_without_what_no_reader_can_tell_apart(
        tombstones in any_tombstones(), readers in prop::collection::btree_set(0u64..32, 0..6),
    ) {
        let readers: Vec<SeqNo> = readers.into_iter().collect();
        let all = Tombstones::fragment(tombstones.clone());
        prop_assert_eq!(Tombstones::fragment_for(tombstones, &readers), all.retain_visible(&readers, false));
    }

    #[test]
    fn merging_equals_fragmenting_all_at_once(a in any_tombstones(), b in any_tombstones()) {
        let merged = Tombstones::merge(&[Tombstones::fragment(a.clone()), Tombstones::fragment(b.clone())]);
        prop_assert_eq!(merged, Tombstones::fragment([a, b].concat()));
    }

    #[test]
    fn clipping_keeps_exactly_the_part_within_the_bounds(
        tombstones in any_tombstones(), lower in 0u8..42, upper in prop::option::of(0u8..42),
    ) {
        let clipped = Tombstones::fragment(tombstones.clone()).clip(&[lower], upper.as_ref().map(std::slice::from_ref));
        for k in 0..42 {
            let inside = k >= lower && upper.is_none_or(|upper| k < upper);
            prop_assert_eq!(clipped.cover(&[k], 30), if inside { naive_cover(&tombstones, k, 30) } else { 0 });
        }
        prop_assert_eq!(&Tombstones::fragment(clipped.iter().collect()), &clipped, "the invariants hold");
    }

    #[test]
    fn a_compaction_preserves_what_readers_see(
        tombstones in any_tombstones(), readers in prop::collection::btree_set(0u64..32, 0..5), bottommost: bool,
    ) {
        let readers: Vec<SeqNo> = readers.into_iter().collect();
        let set = Tombstones::fragment(tombstones);
        let kept = set.retain_visible(&readers, bottommost);
        let newest = readers.last().copied().unwrap_or(0);
        for (k, reader) in (0..42).flat_map(|k| readers.iter().copied().chain(newest..32).map(move |r| (k, r))) {
            let (before, after) = (set.cover(&[k], reader), kept.cover(&[k], reader));
            let dropped = bottommost && before <= readers.first().copied().unwrap_or(0) && after == 0;
            prop_assert!(before == after || dropped, "key {} at {}: {} became {}", k, reader, before, after);
        }
        prop_assert_eq!(&Tombstones::fragment(kept.iter().collect()), &kept, "the invariants hold");
    }

    #[test]
    fn the_binary_form_round_trips(tombstones in any_tombstones()) {
        let set = Tombstones::fragment(tombstones);
        let mut bytes = Vec::new();
        set.encode(&mut bytes);
        prop_assert_eq!(Tombstones::decode(&bytes), Some(set));
        for end in 0..bytes.len() {
            prop_assert_eq!(Tombstones::decode(&bytes[..end]), None);
        }
    }

    #[test]
    fn decoded_tombstones_satisfy_the_invariants(
        tombstones in any_tombstones(), changes in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 1..4),
    ) {
        let mut bytes = Vec::new();
        Tombstones::fragment(tombstones).encode(&mut bytes);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(set) = Tombstones::decode(&bytes) {
            prop_assert_eq!(&Tombstones::fragment(set.iter().collect()), &set);
            let mut again = Vec::new();
            set.encode(&mut again);
            prop_assert_eq!(again, bytes, "one form for one set");
        }
    }
}

#[test]
fn memory_is_that_of_fragments_keys_and_numbers() {
    let set = Tombstones::fragment(vec![tombstone(1, Some(5), 7), tombstone(1, Some(5), 9)]);
    assert_eq!(set.memory_bytes(), size_of::<Fragment>() + 2 + 2 * size_of::<SeqNo>());
    let endless = Tombstones::fragment(vec![tombstone(1, None, 7)]);
    assert_eq!(endless.memory_bytes(), size_of::<Fragment>() + 1 + size_of::<SeqNo>());
}

/// A set of nested tombstones had the square of their number in it before a flush reduced it.
#[test]
fn nested_tombstones_are_fragmented_in_proportion_to_their_number() {
    let key = |i: u32| -> KeyBytes { i.to_be_bytes()[..].into() };
    let count = 50_000;
    let nested =
        |i: u32| RangeTombstone { start: key(i), end: Some(key(2 * count - i)), seq: u64::from(i) + 1 };
    let set = Tombstones::fragment_for((0..count).map(nested).collect(), &[7, u64::from(count)]);
    assert_eq!(set.len(), 2 * count as usize - 1);
    assert!(set.fragments().iter().all(|fragment| fragment.seqs.len() <= 2));
    assert_eq!((set.cover(&key(30), 7), set.cover(&key(30), u64::from(count))), (7, 31));
}
