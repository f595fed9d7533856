//! Checks the operations of workloads against their definitions, counted over many prepared
//! operations.

use std::collections::HashMap;

use super::*;
use crate::progress::NoProgress;
use crate::run::Fill;
use crate::value::ValueSizes;

const KEYS: u64 = 60_000;
const OPS: u64 = 100_000;

/// One prepared operation: the action, the number of its key, and the length of its value.
type Asked = (Action, u64, usize);

/// Returns the operations of the first of two threads, and the fill of the database.
fn asked(workload: Workload, loaded: u64) -> (Vec<Asked>, Fill) {
    let keys = KeySet::uniform(KEYS, 8, 1).unwrap();
    let mut fill = Fill::random(&keys, 5);
    fill.loaded = loaded;
    let spec = RunSpec {
        workload,
        keys: &keys,
        value_bytes: ValueSizes::Pareto,
        threads: 2,
        ops: 2 * OPS,
        seed: 9,
        fill: fill.clone(),
        pattern: None,
        progress: &NoProgress,
    };
    let order = keys.ascending();
    let mut source = Source::new(&spec, &order, 0, 2);
    let mut numbers = HashMap::new();
    for i in 0..KEYS {
        let mut key = Vec::new();
        keys.existing(i, &mut key);
        numbers.insert(key, i);
    }
    let (mut asked, mut done) = (Vec::new(), 0);
    while done < OPS {
        let count = source.chunk_ops().min(OPS - done);
        let chunk = source.prepare(done, count);
        for op in &chunk.ops {
            let value = if op.other.is_empty() { op.value_bytes } else { op.other.len() };
            assert_eq!(value, op.value_bytes, "a put value has the length expected later");
            asked.push((op.action, numbers[&chunk.bytes[op.key.clone()]], value));
        }
        done += count;
    }
    (asked, fill)
}

fn share(asked: &[Asked], of: impl Fn(&Action) -> bool) -> f64 {
    asked.iter().filter(|(action, ..)| of(action)).count() as f64 / asked.len() as f64
}

/// Reports whether a share of draws is within five standard deviations of a probability.
fn near(share: f64, expected: f64, draws: usize) -> bool {
    (share - expected).abs() < 5.0 * (expected * (1.0 - expected) / draws as f64).sqrt() + 1e-9
}

/// Returns the keys' numbers and frequencies, most frequent first.
fn popular(asked: &[Asked]) -> Vec<(u64, u64)> {
    let mut counts = HashMap::new();
    for (_, key, _) in asked {
        *counts.entry(*key).or_insert(0u64) += 1;
    }
    let mut counts: Vec<(u64, u64)> = counts.into_iter().collect();
    counts.sort_unstable_by_key(|&(key, count)| (std::cmp::Reverse(count), key));
    counts
}

/// Returns the share of the `rank`-th of `n` keys by Zipf's law, 1 being the first.
fn zipf(rank: u64, n: u64) -> f64 {
    let total: f64 = (1..=n).map(|r| (r as f64).powf(-0.99)).sum();
    (rank as f64).powf(-0.99) / total
}

/// Cooper and others, "Benchmarking cloud serving systems with YCSB" (SoCC 2010), table 2, and
/// workload F of the program.
#[test]
fn ycsb_mixes_are_the_standard_ones() {
    let get = |action: &Action| matches!(action, Action::GetExisting);
    let put = |action: &Action| matches!(action, Action::Put);
    let modify = |action: &Action| matches!(action, Action::Modify);
    let scan = |action: &Action| matches!(action, Action::Seek(_));
    let loaded = KEYS * 9 / 10;
    for (workload, gets, puts, modifies, scans) in [
        (Workload::YcsbA, 0.5, 0.5, 0.0, 0.0),
        (Workload::YcsbB, 0.95, 0.05, 0.0, 0.0),
        (Workload::YcsbC, 1.0, 0.0, 0.0, 0.0),
        (Workload::YcsbD, 0.95, 0.05, 0.0, 0.0),
        (Workload::YcsbE, 0.0, 0.05, 0.0, 0.95),
        (Workload::YcsbF, 0.5, 0.0, 0.5, 0.0),
    ] {
        // Inserts are one in twenty until all keys are loaded: 6,000 of the 200,000 operations of
        // both threads.
        let (mut asked, _) = asked(workload, loaded);
        if workload.inserts() {
            let held_back = (KEYS - loaded) as usize * INSERT_EVERY as usize / 2;
            asked.truncate(held_back);
        }
        for (of, expected) in
            [(&get as &dyn Fn(&Action) -> bool, gets), (&put, puts), (&modify, modifies), (&scan, scans)]
        {
            let got = share(&asked, of);
            assert!(near(got, expected, asked.len()), "{workload}: {got} of {expected}");
        }
    }
}

#[test]
fn ycsb_reads_keys_by_zipfs_law_scattered_over_the_key_space() {
    for workload in [Workload::YcsbA, Workload::YcsbB, Workload::YcsbC, Workload::YcsbE, Workload::YcsbF] {
        let (asked, _) = asked(workload, KEYS);
        let popular = popular(&asked);
        for rank in [1u64, 2, 3] {
            let (got, expected) = (popular[rank as usize - 1].1, zipf(rank, KEYS));
            assert!(near(got as f64 / OPS as f64, expected, OPS as usize), "{workload} {rank}: {got}");
        }
        let first_100: u64 = popular[..100].iter().map(|&(_, count)| count).sum();
        let expected: f64 = (1..=100).map(|rank| zipf(rank, KEYS)).sum();
        let got = first_100 as f64 / OPS as f64;
        // By chance, a few keys beyond the first hundred rank before some of those.
        assert!((got - expected).abs() < 0.01, "{workload}: {got} of {expected}");
        // Numbers of uniform keys are scattered over the key space; so hot numbers may not be those
        // of the ranks either.
        let low = popular[..100].iter().filter(|&&(key, _)| key < KEYS / 2).count();
        assert!((25..=75).contains(&low), "{workload}: {low} of 100 hot keys in the first half");
    }
}

/// "Latest": Zipf's law over the age of keys.
#[test]
fn ycsb_d_reads_the_latest_keys_most_often() {
    let loaded = KEYS * 9 / 10;
    let (asked, fill) = asked(Workload::YcsbD, loaded);
    let (mut inserted, mut ranks, mut gets) = (Vec::new(), HashMap::new(), 0usize);
    let age_of_loaded: HashMap<u64, u64> =
        (0..loaded).map(|place| (fill.at(place), loaded - 1 - place)).collect();
    for (action, key, _) in asked {
        if action == Action::Put {
            assert!(!age_of_loaded.contains_key(&key), "an insert is of a key that is not loaded");
            inserted.push(key);
            continue;
        }
        // This thread's inserts are newer than the loaded keys; it does not know of other threads'
        // inserts.
        let rank = match inserted.iter().rev().position(|&other| other == key) {
            Some(age) => age as u64,
            None => inserted.len() as u64 + age_of_loaded[&key],
        };
        *ranks.entry(rank).or_insert(0u64) += 1;
        gets += 1;
    }
    assert!(inserted.len() > 2000, "{}", inserted.len());
    for rank in [0u64, 1, 2, 10] {
        let got = ranks[&rank] as f64 / gets as f64;
        assert!(near(got, zipf(rank + 1, loaded), gets), "{rank}: {got}");
    }
}

#[test]
fn ycsb_e_scans_1_to_100_entries_uniformly() {
    let (asked, _) = asked(Workload::YcsbE, KEYS);
    let mut counts = [0usize; LONGEST_SCAN + 1];
    for (action, ..) in &asked {
        let Action::Seek(behind) = action else { panic!("no key is left to insert: {action:?}") };
        counts[behind + 1] += 1;
    }
    assert_eq!(counts[0], 0);
    for (length, &count) in counts.iter().enumerate().skip(1) {
        assert!(near(count as f64 / OPS as f64, 0.01, OPS as usize), "{length}: {count}");
    }
}

#[test]
fn mixgraph_gets_puts_and_scans_in_its_shares_and_reads_hot_ranges_of_the_key_order() {
    let (asked, _) = asked(Workload::Mixgraph, KEYS);
    let scan = |action: &Action| matches!(action, Action::Seek(_));
    for (of, expected) in [
        (&(|action: &Action| *action == Action::GetExisting) as &dyn Fn(&Action) -> bool, 0.83),
        (&|action: &Action| *action == Action::Put, 0.14),
        (&scan, 0.03),
    ] {
        let got = share(&asked, of);
        assert!(near(got, expected, asked.len()), "{got} of {expected}");
    }
    assert!(
        asked.iter().all(|(action, ..)| !matches!(action, Action::Seek(behind) if *behind + 1 >= 10_000))
    );

    // The position of each key in key order.
    let order = KeySet::uniform(KEYS, 8, 1).unwrap().ascending();
    let mut place = vec![0u64; KEYS as usize];
    for (at, &i) in order.iter().enumerate() {
        place[i as usize] = at as u64;
    }
    let hotness = |i: u64| 14.18 * (-2.917 * i as f64).exp() + 0.0164 * (-0.08082 * i as f64).exp();
    let total: f64 = (1..=30).map(hotness).sum();
    for of in [&scan as &dyn Fn(&Action) -> bool, &|action: &Action| !matches!(action, Action::Seek(_))] {
        let mut ranges = [0u64; 30];
        for (_, key, _) in asked.iter().filter(|(action, ..)| of(action)) {
            ranges[(place[*key as usize] * 30 / KEYS) as usize] += 1;
        }
        let draws: u64 = ranges.iter().sum();
        ranges.sort_unstable_by(|a, b| b.cmp(a));
        for (i, &range) in ranges.iter().enumerate().take(2) {
            let (got, expected) = (range as f64 / draws as f64, hotness(i as u64 + 1) / total);
            assert!(near(got, expected, draws as usize), "range {i}: {got} of {expected}");
        }
    }
}

/// Some keys may be held back for inserts; none of them is read.
#[test]
fn only_loaded_keys_are_accessed() {
    for workload in [Workload::Mixgraph, Workload::YcsbA, Workload::YcsbC] {
        let loaded = KEYS * 9 / 10;
        let (asked, fill) = asked(workload, loaded);
        let there: std::collections::HashSet<u64> = (0..loaded).map(|place| fill.at(place)).collect();
        assert!(asked.iter().all(|(_, key, _)| there.contains(key)), "{workload}");
    }
}

#[test]
fn values_have_the_length_of_their_key() {
    let (asked, _) = asked(Workload::Mixgraph, KEYS);
    let mut lengths = HashMap::new();
    for (_, key, value) in asked {
        assert_eq!(*lengths.entry(key).or_insert(value), value);
    }
    assert!(lengths.values().collect::<std::collections::HashSet<_>>().len() > 100);
}
