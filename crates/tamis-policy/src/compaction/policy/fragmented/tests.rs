//! The policy on the simulated tree.

use proptest::prelude::*;
use tamis_base::key::KeyEnd;

use super::guards::place;
use super::*;
use crate::compaction::plan::{OutputRun, Work};
use crate::compaction::policy::layered::Layered;
use crate::compaction::simulator::{ENTRY, FLUSH, Sim, small_leveling};

const BATCH: u64 = FLUSH as u64 * ENTRY;

fn policy(size_ratio: u64, levels: usize) -> Fragmented {
    Fragmented {
        size_ratio: size_ratio.into(),
        level0_runs: 4,
        memtable_bytes: BATCH,
        levels,
        table_bytes: BATCH,
        runs_limits: (8, 12),
        debt_limits: (1 << 40, 1 << 41),
    }
}

fn leveled(levels: usize) -> Layered {
    small_leveling(BATCH, levels)
}

/// Checks the promise for a tree in which nothing is due, with `live` live bytes.
fn check_promise(sim: &Sim<Fragmented>, live: Option<u64>) {
    let shape = sim.shape();
    let promise = sim.policy.promise(&shape);
    for (level, depth) in sim.depths().into_iter().enumerate() {
        let most = promise.runs_per_level[level].unwrap();
        assert!(depth <= most, "level {level}: {depth} tables over a key, {most} promised");
    }
    assert_eq!(sim.policy.debt(&shape), 0);
    assert_eq!(sim.policy.write_pressure(&shape), Pressure::None);
    let total: u64 = (0..sim.levels.len()).map(|n| sim.bytes(n)).sum();
    if let (Some(live), Some(factor)) = (live, promise.space_amplification) {
        assert!(
            total as f64 <= live as f64 * factor,
            "{total} bytes for {live} live ones, {factor} promised"
        );
    }
}

fn flush_some<P: CompactionPolicy>(sim: &mut Sim<P>, kind: usize, cursor: &mut usize, deletes: usize) {
    let from = sim.random(2000);
    let keys: Vec<u16> = (0..FLUSH)
        .map(|i| match kind {
            0 => sim.random(2200),
            1 => from + sim.random(200),
            _ => (*cursor + i) % 2200,
        } as u16)
        .collect();
    *cursor += FLUSH;
    sim.flush(keys, deletes);
}

fn uniform_flushes(sim: &mut Sim<Fragmented>, flushes: usize, keys: usize, threads: usize, deletes: usize) {
    for _ in 0..flushes {
        let batch: Vec<u16> = (0..FLUSH).map(|_| sim.random(keys) as u16).collect();
        sim.flush(batch, deletes);
        sim.work(threads);
    }
}

fn run_manual(sim: &mut Sim<Fragmented>, range: Option<&KeyRange>) {
    for _ in 0..100_000 {
        while let Some(plan) = sim.policy.manual(&sim.shape(), range) {
            let shape = sim.shape();
            assert_eq!(plan.reason, Reason::Manual);
            sim.begin(&shape, plan);
        }
        if sim.jobs.is_empty() {
            return;
        }
        let i = sim.random(sim.jobs.len());
        sim.finish(i);
    }
    panic!("a manual compaction does not terminate");
}

#[test]
#[expect(clippy::print_stdout, reason = "measurements, visible with --nocapture")]
fn promises_hold_over_thousands_of_random_flushes() {
    for (size_ratio, levels) in [(2, 7), (4, 7), (10, 7)] {
        let mut sim = Sim::new(policy(size_ratio, levels), levels, 11);
        for _ in 0..3 {
            uniform_flushes(&mut sim, 250, 10_000, 2, 0);
            sim.check_reads();
        }
        sim.settle();
        let live = sim.expected.len() as u64 * ENTRY;
        check_promise(&sim, Some(live));
        let written = (sim.flushed_bytes + sim.compacted_bytes) as f64 / sim.flushed_bytes as f64;
        let promise = sim.policy.promise(&sim.shape());
        let total: u64 = (0..levels).map(|n| sim.bytes(n)).sum();
        println!(
            "T = {size_ratio}: written {written:.2} of {:.0}, space {:.2} of {:.2}, depths {:?}, runs {:?} of {:?}",
            promise.write_amplification.unwrap(),
            total as f64 / live as f64,
            promise.space_amplification.unwrap(),
            sim.depths(),
            sim.levels.iter().map(Vec::len).collect::<Vec<_>>(),
            promise.runs_per_level.iter().flatten().collect::<Vec<_>>(),
        );
        assert!(written <= promise.write_amplification.unwrap(), "T = {size_ratio}: {written}");
        let used = (1..levels).filter(|&n| sim.bytes(n) > 0).count();
        assert!(used >= 2, "only {used} levels");
    }
}

#[test]
fn fragments_rewrite_less_than_leveling() {
    let mut fragmented = Sim::new(policy(4, 6), 6, 5);
    let mut leveling = Sim::new(leveled(6), 6, 5);
    for _ in 0..600 {
        let keys: Vec<u16> = (0..FLUSH).map(|_| fragmented.random(8_000) as u16).collect();
        fragmented.flush(keys.clone(), 0);
        fragmented.work(2);
        leveling.flush(keys, 0);
        leveling.work(2);
    }
    assert!(
        fragmented.compacted_bytes < leveling.compacted_bytes,
        "{} and {} bytes",
        fragmented.compacted_bytes,
        leveling.compacted_bytes
    );
}

#[test]
fn ascending_keys_are_moved_and_never_rewritten() {
    let mut sim = Sim::new(policy(4, 5), 5, 3);
    for i in 0..1000u16 {
        sim.flush(i * 32..i * 32 + 32, 0);
        sim.work(2);
    }
    sim.settle();
    sim.check_reads();
    check_promise(&sim, Some(sim.expected.len() as u64 * ENTRY));
    assert_eq!(sim.compacted_bytes, 0);
    assert!(sim.moves > 0);
}

#[test]
fn fragments_go_on_top_and_only_the_last_level_is_read() {
    let mut sim = Sim::new(policy(4, 6), 6, 3);
    let mut in_place = 0;
    for _ in 0..800 {
        let batch: Vec<u16> = (0..FLUSH).map(|_| sim.random(20_000) as u16).collect();
        sim.flush(batch, 0);
        while let Some(plan) = sim.policy.plan(&sim.shape()) {
            let reads_output =
                plan.work == Work::Merge && plan.inputs.iter().any(|input| input.level == plan.output_level);
            in_place += usize::from(reads_output);
            assert!(
                !reads_output || plan.output_level == 5 && plan.inputs.iter().all(|input| input.level == 5)
            );
            let shape = sim.shape();
            sim.begin(&shape, plan);
            sim.finish(0);
        }
    }
    assert!(in_place > 0);
    assert!((1..5).any(|level| sim.depths()[level] > 1), "levels are stacks of fragments");
}

#[test]
fn tables_do_not_straddle_guards_known_when_they_were_written() {
    let mut sim = Sim::new(policy(4, 6), 6, 3);
    // Every key exists already, so every guard is known.
    for from in 0..625u16 {
        sim.flush((0..32).map(|i| from + i * 625), 0);
    }
    sim.settle();
    run_manual(&mut sim, None);
    uniform_flushes(&mut sim, 400, 20_000, 3, 0);
    sim.settle();
    let shape = sim.shape();
    let layout = sim.policy.layout(&shape);
    let (mut tables, mut across) = (0, 0);
    for level in 1..6 {
        for table in shape.levels[level].tables() {
            tables += 1;
            across += usize::from(!layout.guards.within(level, &table.range()).is_empty());
        }
    }
    assert!(tables > 100 && across == 0, "{across} of {tables} tables");
}

#[test]
fn many_groups_are_compacted_concurrently() {
    let mut sim = Sim::new(policy(4, 6), 6, 3);
    let mut most = 0;
    for _ in 0..800 {
        let batch: Vec<u16> = (0..FLUSH).map(|_| sim.random(20_000) as u16).collect();
        sim.flush(batch, 0);
        while sim.jobs.len() < 8 && sim.start() {}
        most = most.max(sim.jobs.len());
        while sim.jobs.len() > 4 {
            let i = sim.random(sim.jobs.len());
            sim.finish(i);
        }
        sim.work(8);
    }
    sim.check_reads();
    assert!(most >= 5, "only {most} jobs at once");
}

#[test]
fn deletes_are_dropped_where_nothing_older_lies() {
    let mut sim = Sim::new(policy(4, 5), 5, 3);
    uniform_flushes(&mut sim, 300, 3000, 2, 6);
    run_manual(&mut sim, None);
    sim.check_reads();
    assert!(sim.tables().all(|table| table.deletes == 0));
}

#[test]
fn a_manual_compaction_ends_with_one_run_in_the_last_level_and_no_deletes() {
    for seed in 0..6 {
        let mut sim = Sim::new(policy(4, 5), 5, seed);
        uniform_flushes(&mut sim, 300, 4000, 3, 2);
        run_manual(&mut sim, None);
        sim.check_reads();
        let used: Vec<(usize, usize)> =
            (0..5).map(|n| (n, sim.levels[n].len())).filter(|(_, runs)| *runs > 0).collect();
        assert_eq!(used, [(4, 1)]);
        assert!(sim.tables().all(|table| table.deletes == 0));
        let (moves, written) = (sim.moves, sim.compacted_bytes);
        run_manual(&mut sim, None);
        assert_eq!(
            (moves, written),
            (sim.moves, sim.compacted_bytes),
            "a second compaction has nothing to do"
        );
    }
}

#[test]
fn a_manual_compaction_of_a_range_leaves_the_rest_alone() {
    let mut sim = Sim::new(policy(4, 5), 5, 9);
    uniform_flushes(&mut sim, 400, 8000, 1, 1);
    sim.settle();
    let range = KeyRange {
        smallest: 100u16.to_be_bytes()[..].into(),
        largest: KeyEnd::Excluded(200u16.to_be_bytes()[..].into()),
    };
    run_manual(&mut sim, Some(&range));
    sim.check_reads();
    let shape = sim.shape();
    let concerned: Vec<(usize, usize)> = (0..5)
        .map(|n| (n, shape.runs(n).iter().filter(|r| !range.overlap(&r.tables).is_empty()).count()))
        .filter(|(_, runs)| *runs > 0)
        .collect();
    assert_eq!(concerned, [(4, 1)]);
    assert!((1..4).any(|n| sim.bytes(n) > 0), "data outside the range stays");
}

#[test]
fn a_fragment_goes_into_the_oldest_run_that_is_free_and_has_only_free_runs_above() {
    let mut sim = Sim::new(policy(4, 3), 3, 1);
    let mut run = |id, spans: &[(u16, u16)]| {
        let tables = spans.iter().map(|&(from, to)| {
            let entries = vec![(from, (1, false)), (to, (1, false))];
            sim.table(entries, (0, 0), |smallest, _| tamis_base::epochs::EpochMap::flush(smallest.clone(), 1))
        });
        let tables = tables.collect();
        sim.levels[1].insert(0, (id, tables));
    };
    run(10, &[(0, 9), (50, 59)]);
    run(20, &[(20, 29)]);
    run(30, &[(0, 9)]);
    let range = |from: u16, to: u16| KeyRange {
        smallest: from.to_be_bytes()[..].into(),
        largest: KeyEnd::Included(to.to_be_bytes()[..].into()),
    };
    let shape = sim.shape();
    assert_eq!(place(&shape, 1, &range(70, 80)), OutputRun::Into(10));
    assert_eq!(place(&shape, 1, &range(55, 80)), OutputRun::Into(20));
    assert_eq!(
        place(&shape, 1, &range(25, 26)),
        OutputRun::Into(30),
        "run 10 is free, but below run 20's table"
    );
    assert_eq!(place(&shape, 1, &range(5, 6)), OutputRun::New);
    assert_eq!(place(&shape, 2, &range(5, 6)), OutputRun::New);
}

#[test]
fn write_pressure_follows_level_0_and_the_debt() {
    let mut sim = Sim::new(policy(4, 4), 4, 1);
    let mut felt = Vec::new();
    for _ in 0..12 {
        sim.flush([1, 2, 3], 0);
        felt.push(sim.policy.write_pressure(&sim.shape()));
    }
    assert_eq!(felt[..7], [Pressure::None; 7]);
    assert!(felt[7..11].iter().all(|felt| matches!(felt, Pressure::Slowdown(_))), "{felt:?}");
    assert_eq!(felt[11], Pressure::Stop);
    let mut sim = Sim::new(Fragmented { debt_limits: (1, 5 * ENTRY), ..policy(4, 4) }, 4, 1);
    for _ in 0..3 {
        sim.flush([1, 2, 3], 0);
    }
    assert_eq!(sim.policy.write_pressure(&sim.shape()), Pressure::None);
    sim.flush([1, 2, 3], 0);
    assert_eq!(sim.policy.write_pressure(&sim.shape()), Pressure::Stop);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn concurrent_jobs_never_conflict_and_every_key_reads_back(
        seed: u64,
        (size_ratio, levels) in prop::sample::select(vec![(2, 3), (2, 8), (3, 5), (4, 4), (10, 3)]),
        threads in 1usize..6,
        // Flushes by kind (all over the keys, in a window, ascending), and the share of deletes.
        phases in prop::collection::vec((0usize..3, 0usize..17, 5usize..40), 1..6),
    ) {
        let mut sim = Sim::new(policy(size_ratio, levels), levels, seed);
        let mut cursor = 0;
        for (kind, deletes, flushes) in phases {
            for _ in 0..flushes {
                flush_some(&mut sim, kind, &mut cursor, deletes);
                sim.work(threads);
                prop_assert!(sim.levels[0].len() <= 12);
            }
            sim.check_reads();
        }
        sim.settle();
        sim.check_reads();
        check_promise(&sim, None);
    }

    #[test]
    fn a_leveled_tree_becomes_fragmented_with_jobs_of_both_policies_running(
        seed: u64,
        levels in 3usize..7,
        threads in 1usize..6,
        before in (0usize..3, 0usize..8, 5usize..120),
        after in (0usize..3, 0usize..8, 0usize..120),
    ) {
        let mut sim = Sim::new(leveled(levels), levels, seed);
        let mut cursor = 0;
        for _ in 0..before.2 {
            flush_some(&mut sim, before.0, &mut cursor, before.1);
            sim.work(threads);
        }
        let mut sim = sim.under(policy(3, levels));
        for _ in 0..after.2 {
            flush_some(&mut sim, after.0, &mut cursor, after.1);
            sim.work(threads);
        }
        sim.check_reads();
        sim.settle();
        sim.check_reads();
        check_promise(&sim, None);
        run_manual(&mut sim, None);
        sim.check_reads();
        prop_assert!(sim.levels.iter().flatten().count() <= 1);
    }
}
