use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn a_walk_over_exact_nodes_is_exact(
        keys in prop::collection::vec(prop_oneof![0u64..300, any::<u64>(), u64::MAX - 300..], 1..20),
        (first, len) in (prop_oneof![0u64..300, any::<u64>(), u64::MAX - 300..], 0u64..200),
        kept: u16,
    ) {
        let last = first.saturating_add(len);
        let kept = u64::from(kept) | 1;
        let held = |height: u32, prefix: u64| keys.iter().any(|key| key >> height == prefix);
        let mut asked = BTreeSet::new();
        let top = kept.ilog2();
        let answer = walk((first, last), kept, 64, |height, prefix| {
            assert!(kept >> height & 1 == 1);
            assert!(asked.insert((height, prefix)), "asked twice");
            held(height, prefix)
        });
        let exact = keys.iter().any(|key| (first..=last).contains(key));
        if (last >> top) - (first >> top) < 64 {
            prop_assert_eq!(answer, exact);
        } else {
            prop_assert!(answer);
        }
    }

    #[test]
    fn shifting_preserves_what_a_range_holds(
        keys in prop::collection::vec(any::<u64>(), 1..5), shift in 0u32..64, first: u64, last: u64,
    ) {
        let mut keys: Vec<u64> = keys.iter().map(|key| key >> shift << shift).collect();
        keys.sort_unstable();
        let nodes = Nodes::of(&keys);
        prop_assert!(nodes.shift >= shift);
        let exact = keys.iter().any(|key| (first..=last).contains(key));
        let (from, to) = shifted(first, last, nodes.shift);
        prop_assert_eq!(keys.iter().any(|key| (from..=to).contains(&(key >> nodes.shift))), exact);
        for height in 0..64 {
            let mut nodes_held: Vec<u64> = keys.iter().map(|key| key >> nodes.shift >> height).collect();
            nodes_held.dedup();
            prop_assert_eq!(nodes.counts[height], nodes_held.len() as u64);
        }
    }
}

#[test]
fn work_is_bounded() {
    for kept in [1, 1 << 63 | 1, u64::MAX, 0b1001_0001] {
        let mut asked = 0u32;
        let answer = walk((0, u64::MAX), kept, 64, |height, _| {
            asked += 1;
            height > 0
        });
        assert!(answer && asked <= MAX_ASKED);
    }
    assert!(!walk((5, 4), 1, 64, |_, _| true));
}

#[test]
fn rates_of_ranges_follow_from_those_of_nodes() {
    let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
    close(expected_rate(&[0.01], 64, 1), 0.01);
    close(expected_rate(&[0.01], 64, 3), 1.0 - 0.99f64.powi(3));
    close(expected_rate(&[0.01, 0.5], 64, 1), 0.005);
    // Two numbers: equally often in one node or in two.
    let (one, two) = (0.5 * (1.0 - 0.99 * 0.99), 1.0 - 0.995 * 0.995);
    close(expected_rate(&[0.01, 0.5], 64, 2), (one + two) / 2.0);
    assert_eq!(expected_rate(&[0.01], 64, 65), 1.0);
    // At one of 16 offsets, 1010 numbers touch 65 nodes of 16, at the others 64.
    let rate = expected_rate(&[0.0; 5], 64, 1010);
    assert!((0.045..0.08).contains(&rate), "{rate}");
    assert_eq!(expected_rate(&[0.01; 64], 64, 0), 0.0);
    assert!(expected_rate(&[0.1; 64], 64, u64::MAX) < 1.0);
}
