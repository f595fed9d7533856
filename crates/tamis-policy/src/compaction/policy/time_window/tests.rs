//! The policy on the simulated tree.

use proptest::prelude::*;

use super::*;
use crate::compaction::simulator::{ENTRY, FLUSH, Sim, small_leveling};

const BATCH: u64 = FLUSH as u64 * ENTRY;

fn policy(retain_bytes: u64, fan_in: usize) -> TimeWindow {
    TimeWindow {
        retention: Retention { retain_bytes, time_to_live: None },
        window: 100,
        fan_in,
        slowdown_runs: 8,
        stop_runs: 12,
        memtable_bytes: BATCH,
        table_bytes: 2 * BATCH,
        debt_limits: (1 << 40, 1 << 41),
    }
}

fn random_flush<P: CompactionPolicy>(sim: &mut Sim<P>, keys: usize, deletes: usize) {
    let batch: Vec<u16> = (0..FLUSH).map(|_| sim.random(keys) as u16).collect();
    sim.flush(batch, deletes);
}

/// The windows of level 0 from the oldest to the newest, with their numbers of runs.
fn windows(sim: &Sim<TimeWindow>) -> Vec<(u64, usize)> {
    let shape = sim.shape();
    let runs = by_age(&shape);
    sim.policy.windows(&runs).iter().map(|window| (window.number, window.runs.len())).collect()
}

#[test]
fn an_ended_window_becomes_one_run_and_others_stay_untouched() {
    let mut sim = Sim::new(policy(u64::MAX, 4), 1, 1);
    for i in 0..50 {
        sim.now = 1000 + 10 * i;
        random_flush(&mut sim, 2000, 1);
        sim.work(2);
    }
    sim.settle();
    sim.check_reads();
    let found = windows(&sim);
    assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [10, 11, 12, 13, 14]);
    assert!(found[..4].iter().all(|(_, runs)| *runs == 1), "{found:?}");
    assert!((2..=8).contains(&found[4].1), "{found:?}");
    let old: Vec<u64> = sim.levels[0].iter().skip(found[4].1).map(|(id, _)| *id).collect();
    for i in 50..60 {
        sim.now = 1000 + 10 * i;
        random_flush(&mut sim, 2000, 1);
        sim.settle();
    }
    assert!(sim.levels[0].iter().map(|(id, _)| *id).collect::<Vec<_>>().ends_with(&old));
}

#[test]
fn a_window_is_written_a_logarithmic_number_of_times() {
    let mut sim = Sim::new(policy(u64::MAX, 4), 1, 1);
    sim.policy.window = 1 << 30;
    for _ in 0..1000 {
        random_flush(&mut sim, 60_000, 0);
        sim.settle();
        assert!(sim.levels[0].len() <= 3 * 7);
    }
    sim.now = 1 << 31;
    sim.settle();
    assert_eq!(sim.levels[0].len(), 1);
    let written = (sim.flushed_bytes + sim.compacted_bytes) as f64 / sim.flushed_bytes as f64;
    let promised = sim.policy.promise(&sim.shape()).write_amplification.unwrap();
    assert!(written < promised && promised <= 9.0, "{written} of {promised}");
}

#[test]
fn windows_in_the_future_do_not_stall_writes_forever() {
    let mut sim = Sim::new(policy(u64::MAX, 4), 1, 1);
    sim.policy.fan_in = 8;
    for now in [1000, 2000, 3000] {
        sim.now = now;
        (0..7).for_each(|_| random_flush(&mut sim, 500, 0));
    }
    sim.now = 500;
    assert!(!sim.start(), "three windows of seven runs, all of them open");
    assert_ne!(sim.policy.write_pressure(&sim.shape()), Pressure::Stop);
}

#[test]
fn mixed_sizes_are_merged_when_there_are_too_many_runs() {
    let mut sim = Sim::new(policy(u64::MAX, 4), 1, 1);
    let mut most = 0;
    for i in 0..60u16 {
        let size = if i % 2 == 0 { 400 } else { 40 };
        sim.flush(0..size, 0);
        sim.settle();
        let allowed = 3 * (sim.policy.merges(sim.bytes(0)) as usize + 1);
        assert!(sim.levels[0].len() <= allowed.max(8), "{} of {allowed}", sim.levels[0].len());
        most = most.max(sim.levels[0].len());
    }
    assert!(sim.compacted_bytes > 0 && most >= 8);
}

#[test]
fn data_left_by_leveling_is_oldest_and_dropped_first() {
    let leveled = small_leveling(BATCH, 4);
    let mut sim = Sim::new(leveled, 4, 3);
    for _ in 0..100 {
        random_flush(&mut sim, 3000, 1);
        sim.work(2);
    }
    let mut sim = sim.under(policy(40 * BATCH, 4));
    for i in 0..100 {
        sim.now = 10_000 + 20 * i;
        random_flush(&mut sim, 3000, 1);
        sim.work(2);
        sim.check_reads();
    }
    sim.settle();
    assert_eq!(sim.shape().deepest(), Some(0));
    assert!(sim.bytes(0) <= 40 * BATCH);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn nothing_dropped_reappears_and_the_rest_reads_as_written_whatever_the_clock_does(
        seed: u64,
        retain in prop::sample::select(vec![1, 7, 40, 1 << 40]),
        fan_in in 2usize..6,
        threads in 1usize..4,
        keys in prop::sample::select(vec![20usize, 400, 2200]),
        deletes in 0usize..17,
        lag in prop::option::of(5u64..60),
        // How far the clock advances at each flush, and how often it jumps to a random time.
        step in 0u64..60,
        jumps in 0usize..3,
        flushes in 1usize..150,
    ) {
        let mut sim = Sim::new(policy(retain * BATCH, fan_in), 1, seed);
        let mut no_jumps_since = 0;
        for i in 0..flushes {
            sim.now += step;
            if jumps > 0 && sim.random(40) < jumps {
                sim.now = sim.random(5000) as u64;
                no_jumps_since = i;
            }
            random_flush(&mut sim, keys, deletes);
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
        let shape = sim.shape();
        let promised = sim.policy.promise(&shape).runs_per_level[0].unwrap();
        prop_assert!(sim.levels[0].len() <= promised, "{} runs of {promised}", sim.levels[0].len());
        let found = windows(&sim);
        prop_assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let over = sim.now / 100;
        prop_assert!(found.iter().all(|(number, runs)| *number >= over || *runs == 1), "{found:?} at {over}");
        if no_jumps_since == 0 {
            prop_assert!(found.len() as u64 <= sim.now / 100 + 1);
        }
        let newest = sim.levels[0].first().map_or(0, |(_, t)| t.iter().map(|t| t.file_bytes).sum());
        prop_assert!(sim.bytes(0) <= (retain * BATCH).max(newest));
        prop_assert_eq!(sim.policy.debt(&shape), 0);
        prop_assert_ne!(sim.policy.write_pressure(&shape), Pressure::Stop);
    }
}
