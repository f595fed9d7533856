//! The policy on the simulated tree.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::compaction::simulator::{ENTRY, FLUSH, Sim, small_leveling};

const BATCH: u64 = FLUSH as u64 * ENTRY;

fn policy(retain_bytes: u64, joined_beyond: usize) -> Fifo {
    Fifo {
        retention: Retention { retain_bytes, time_to_live: None },
        joined_beyond,
        memtable_bytes: BATCH,
        table_bytes: 2 * BATCH,
        debt_limits: (1 << 40, 1 << 41),
    }
}

fn total<P: CompactionPolicy>(sim: &Sim<P>) -> u64 {
    (0..sim.levels.len()).map(|n| sim.bytes(n)).sum()
}

fn random_flush<P: CompactionPolicy>(sim: &mut Sim<P>, keys: usize, deletes: usize) {
    let batch: Vec<u16> = (0..FLUSH).map(|_| sim.random(keys) as u16).collect();
    sim.flush(batch, deletes);
}

#[test]
fn a_run_without_sequence_numbers_expires_by_its_flush_time() {
    let mut sim = Sim::new(policy(u64::MAX, 100), 1, 1);
    sim.policy.retention.time_to_live = Some(Duration::from_secs(100));
    sim.now = 1000;
    sim.flush(0..32, 0);
    let without_numbers = |table: &std::sync::Arc<tamis_base::meta::TableMeta>| {
        std::sync::Arc::new(tamis_base::meta::TableMeta { min_seq: 0, max_seq: 0, ..(**table).clone() })
    };
    let table = without_numbers(&sim.levels[0][0].1[0]);
    sim.levels[0][0].1[0] = table;
    sim.expired = 50;
    assert!(!sim.start(), "sequence numbers reset by merges do not make new data old");
    sim.now = 1100;
    assert!(!sim.start());
    sim.now = 1101;
    assert!(sim.start());
}

#[test]
fn runs_in_key_order_are_joined_without_being_read() {
    let mut sim = Sim::new(policy(u64::MAX, 4), 1, 1);
    for i in 0..400u16 {
        sim.flush(i * 32..i * 32 + 32, 0);
        sim.work(2);
    }
    sim.settle();
    sim.check_reads();
    assert_eq!(sim.compacted_bytes, 0);
    assert!(sim.moves > 10 && sim.levels[0].len() < 80, "{} runs", sim.levels[0].len());
}

#[test]
fn joined_runs_span_no_more_than_an_eighth_of_the_time_to_live() {
    let mut sim = Sim::new(policy(u64::MAX, 4), 1, 1);
    sim.policy.retention.time_to_live = Some(Duration::from_secs(800));
    for i in 0..300 {
        sim.now = 1000 + 30 * i;
        random_flush(&mut sim, 2000, 0);
        sim.work(2);
    }
    sim.settle();
    assert!(sim.compacted_bytes > 0);
    let spans = sim.levels[0].iter().map(|(_, tables)| {
        let written = || tables.iter().map(|table| table.extra.written);
        written().map(|w| w.1).max().unwrap() - written().map(|w| w.0).min().unwrap()
    });
    assert!(spans.max().unwrap() <= 100);
}

#[test]
fn a_leveled_tree_is_dropped_from_the_deepest_level_up() {
    let leveled = small_leveling(BATCH, 5);
    let mut sim = Sim::new(leveled, 5, 3);
    for _ in 0..300 {
        random_flush(&mut sim, 4000, 1);
        sim.work(2);
    }
    let mut sim = sim.under(policy(30 * BATCH, 10));
    let mut deepest = sim.shape().deepest();
    assert!(deepest > Some(1));
    for _ in 0..200 {
        random_flush(&mut sim, 4000, 1);
        sim.work(2);
        let now = sim.shape().deepest();
        assert!(now <= deepest);
        deepest = now;
        sim.check_reads();
    }
    assert_eq!(deepest, Some(0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn nothing_dropped_reappears_and_the_rest_reads_as_written(
        seed: u64,
        retain in prop::sample::select(vec![1, 7, 40, 1 << 40]),
        joined_beyond in 1usize..20,
        threads in 1usize..4,
        keys in prop::sample::select(vec![20usize, 400, 2200]),
        deletes in 0usize..17,
        lag in prop::option::of(1u64..60),
        flushes in 1usize..150,
    ) {
        let mut sim = Sim::new(policy(retain * BATCH, joined_beyond), 1, seed);
        for i in 0..flushes {
            // Sometimes with ascending keys, so that joins are moves.
            if i % 20 > 14 {
                let from = (i % 60) * 32;
                sim.flush((from..from + 32).map(|key| key as u16), deletes);
            } else {
                random_flush(&mut sim, keys, deletes);
            }
            if let Some(lag) = lag {
                sim.expired = sim.seq.saturating_sub(lag);
            }
            sim.work(threads);
            if i % 10 == 0 {
                sim.check_reads();
            }
        }
        sim.settle();
        sim.check_reads();
        let newest = sim.levels[0].first().map_or(0, |(_, t)| t.iter().map(|t| t.file_bytes).sum());
        prop_assert!(total(&sim) <= (retain * BATCH).max(newest));
        let shape = sim.shape();
        let most = sim.policy.promise(&shape).runs_per_level[0].unwrap();
        prop_assert!(sim.levels[0].len() <= most, "{} runs of {most}", sim.levels[0].len());
        prop_assert!(sim.levels[0].iter().all(|(_, tables)| tables.iter().any(|t| t.max_seq > sim.expired)));
        prop_assert_eq!(sim.policy.debt(&shape), 0);
    }
}
