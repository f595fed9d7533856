use proptest::prelude::*;

use super::*;
use crate::global::model::{Lists, Tree, batch, probe, refs, spec, steps};

fn tag(level: u8, slot: u32) -> RunTag {
    RunTag { level, slot }
}

/// Keys `from..to`, as a batch.
fn numbers(from: u64, to: u64) -> Batch {
    let keys: Vec<Vec<u8>> = (from..to).map(|n| n.to_be_bytes().to_vec()).collect();
    batch(&keys)
}

use crate::global::Batch;

/// `n` keys spread over the runs of a full tree as is expected of it.
fn full_tree(n: u64, spec: &RunIndexSpec) -> Lists {
    let mut from = 0;
    let mut lists = Lists::new();
    for (tag, share) in spec.shares() {
        let to = (from + (share * n as f64).round() as u64).min(n);
        lists.push((numbers(from, to), tag));
        from = to;
    }
    lists
}

fn ten_times(bits_per_key: f64, capacity: u64) -> RunIndexSpec {
    RunIndexSpec { bits_per_key, capacity, slots: vec![10, 10, 1], ratio: 10.0, segment: 32 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_key_is_denied_through_random_changes(steps in steps(), bits in 5.0f64..40.0, own_tags: bool) {
        let mut tree = Tree::default();
        let slots = if own_tags { vec![4, 4, 1] } else { vec![] };
        let spec = RunIndexSpec { bits_per_key: bits, slots, ..spec(400) };
        let mut index = Chucky::build(&[], &spec).unwrap();
        for step in &steps {
            let (removed, added) = tree.step(step);
            let changed = index.change(&refs(&removed), &refs(&added));
            // Too full: built anew for as many as there are and half as many again.
            index = changed.unwrap_or_else(|| {
                let lists = tree.lists();
                let spec = RunIndexSpec { capacity: tree.entries() * 3 / 2, ..spec.clone() };
                Chucky::build(&refs(&lists), &spec).unwrap()
            });
            tree.check(&index);
        }
        // With all runs gone nothing is left, not even by mistake.
        let lists = tree.lists();
        let emptied = index.change(&refs(&lists), &[]).unwrap();
        prop_assert_eq!(emptied.entries(), 0);
        for key in tree.runs.values().flatten() {
            prop_assert!(probe(&emptied, key).is_empty());
        }
    }
}

#[test]
fn rates_are_near_those_of_the_average_fingerprint() {
    let n = 200_000;
    for bits in [8.0, 10.0, 12.0, 16.0] {
        let spec = ten_times(bits, n);
        let lists = full_tree(n, &spec);
        let filter = Chucky::build(&refs(&lists), &spec).unwrap();
        let strangers = 100_000u64;
        let mut named = 0;
        for stranger in 0..strangers {
            let key = (n + stranger).to_be_bytes();
            filter.probe(&key, Digest::of(&key), &mut |_| named += 1);
        }
        let rate = named as f64 / strangers as f64;
        let expected = filter.expected_rate();
        let average = 8.0 * 0.5f64.powf(filter.fingerprint_bits());
        let memory = filter.memory_bytes() as f64 * 8.0 / n as f64;
        println!(
            "{bits} bits/key: {memory:.2} used, load {:.3}, {} aside, fingerprint {:.2} bits (bucket {}), rate {rate:.5}, \
             expected {expected:.5}, 8 * 2^-F {average:.5}",
            filter.load(),
            filter.set_aside(),
            filter.fingerprint_bits(),
            filter.bucket_bits(),
        );
        assert!((0.85..1.15).contains(&(rate / expected)), "{rate} is not {expected}");
        assert!(rate < 1.3 * average, "{rate} of {average}");
        assert!(filter.load() > 0.94, "{}", filter.load());
    }
}
