//! What single merges take: full levels are skipped, groups overlap perfectly, pickers choose as
//! documented.

use super::family::{Way, check_promise, layered, ways};
use super::*;
use crate::compaction::plan::{OutputRun, Work};
use crate::compaction::settings::{Form, Granularity, Picker};

/// Executes what is due, one job at a time, and passes each plan and its shape to `see`.
fn watch(sim: &mut Sim<Layered>, mut see: impl FnMut(&Sim<Layered>, &Shape, &Plan)) {
    loop {
        let shape = sim.shape();
        let Some(plan) = sim.policy.plan(&shape) else { return };
        see(sim, &shape, &plan);
        sim.begin(&shape, plan);
        sim.finish(0);
    }
}

fn way(choice: Form, merge: Granularity) -> Way {
    Way { choice, merge, deterministic: false, picker: Picker::LeastOverlap, size_ratio: 4 }
}

fn random_flush(sim: &mut Sim<Layered>, keys: usize) {
    let batch: Vec<u16> = (0..FLUSH).map(|_| sim.random(keys) as u16).collect();
    sim.flush(batch, 1);
}

#[test]
fn a_full_merge_takes_every_level_that_would_be_due_and_writes_nothing_twice() {
    for way in ways().into_iter().filter(|way| way.merge == Granularity::Full) {
        let mut sim = Sim::new(layered(way, 5), 5, 13);
        let mut deep = 0;
        for _ in 0..600 {
            random_flush(&mut sim, 30_000);
            let mut plans = 0;
            watch(&mut sim, |_, _, plan| {
                plans += 1;
                deep += usize::from(plan.inputs.first().unwrap().level + 1 < plan.output_level);
            });
            // In pure tiering, level 0 is merged alone if the others are large.
            assert!(plans <= 1 || way.choice == Form::Tiering, "a merge made another one due: {way:?}");
            check_promise(&sim);
        }
        assert!(deep > 3, "only {deep} merges went over more than one level: {way:?}");
        sim.check_reads();
    }
}

/// The merge that empties a full level took level 0 along. Nothing else may read level 0 then, so it
/// filled up with flushes, and writers stopped for as long as gigabytes were merged.
#[test]
fn level_0_is_merged_while_a_full_level_below_it_is() {
    let way = Way { size_ratio: 10, ..way(Form::Tiering, Granularity::Full) };
    let mut sim = Sim::new(layered(way, 5), 5, 17);
    let mut beside = 0;
    for _ in 0..400 {
        random_flush(&mut sim, 30_000);
        loop {
            let shape = sim.shape();
            let Some(plan) = sim.policy.plan(&shape) else { break };
            let is_long = plan.inputs.iter().any(|input| input.level > 0);
            let running = shape.running.len();
            beside += usize::from(!is_long && running > 0);
            sim.begin(&shape, plan);
            // Those of level 0 end at once, a long one when the next begins.
            match is_long {
                true if running > 0 => sim.finish(0),
                true => {}
                false => sim.finish(running),
            }
        }
        let runs = sim.shape().runs(0).len();
        assert!(runs <= 4, "{runs} runs wait in level 0");
    }
    assert!(beside > 10, "{beside} merges of level 0 beside others");
    sim.check_reads();
}

#[test]
fn groups_overlap_perfectly_and_leave_what_came_later() {
    for way in ways().into_iter().filter(|way| way.merge == Granularity::Partitioned) {
        let mut sim = Sim::new(layered(way, 4), 4, 17);
        let (mut groups, mut moved, mut group_bytes, mut whole_bytes) = (0, 0, 0u64, 0u64);
        for _ in 0..250 {
            random_flush(&mut sim, 8_000);
            watch(&mut sim, |sim, shape, plan| {
                let named: Vec<u64> = plan.tables().collect();
                if plan.reason != Reason::Partition {
                    return;
                }
                groups += 1;
                moved += usize::from(plan.work == Work::Move);
                assert_eq!(plan.output_level, 3);
                let input = |t: &&TableShape| named.contains(&t.id());
                let of = |level: usize| shape.levels[level].tables();
                let drained =
                    || shape.runs(2)[first_drained(sim, shape)..].iter().flat_map(|run| &run.tables);
                assert!(of(2).filter(input).count() == drained().filter(input).count(), "{plan:?}");
                for table in drained().chain(of(3)).filter(|t| !input(t)) {
                    let touches = of(2).chain(of(3)).filter(input).any(|i| i.meta.overlaps(&table.meta));
                    assert!(!touches, "a group straddles {table:?}: {plan:?}");
                }
                assert!(of(2).any(|t| input(&t)));
                group_bytes += of(3).filter(input).map(TableShape::bytes).sum::<u64>();
                whole_bytes += of(3).map(TableShape::bytes).sum::<u64>();
                assert!(!sim.policy.is_partitioned(&sim.policy.layout(shape), 3));
            });
            let shape = sim.shape();
            let is_draining = sim.policy.is_draining(&shape, &sim.policy.layout(&shape));
            assert!(!is_draining, "a draining level is left half full: {way:?}");
        }
        assert!(groups > 30 && moved < groups, "{groups} groups, {moved} moved: {way:?}");
        assert!(group_bytes < whole_bytes / 4, "groups are small parts of the last level: {way:?}");
        sim.check_reads();
        let last: Vec<u64> =
            sim.levels[3].iter().flat_map(|(_, tables)| tables).map(|t| t.file_bytes).collect();
        let small = last.iter().filter(|&&bytes| bytes < sim.policy.table_bytes / 4).count();
        assert!(
            small * 5 < last.len(),
            "{small} of {} tables of the last level are small: {way:?}",
            last.len()
        );
    }
}

/// A tree of 4 levels with full tables of `FLUSH` keys at level 2, where keys are `i · step`, and a
/// last level.
fn two_levels(way: Way) -> Sim<Layered> {
    let mut sim = Sim::new(layered(way, 4), 4, 1);
    let run = |level: usize, keys: std::ops::Range<u16>, epoch: u64, sim: &mut Sim<Layered>| {
        let tables = keys
            .step_by(FLUSH)
            .map(|from| {
                let entries: Entries =
                    (from..from + FLUSH as u16).map(|key| (key * 4, (epoch, false))).collect();
                sim.expected.extend(entries.iter().copied());
                sim.table(entries, (0, 0), |smallest, _| EpochMap::flush(smallest.clone(), epoch))
            })
            .collect();
        let id = sim.id();
        sim.levels[level].insert(0, (id, tables));
    };
    run(3, 0..3200, 1, &mut sim);
    run(2, 0..1600, 2, &mut sim);
    run(2, 800..2400, 3, &mut sim);
    sim.seq = 3;
    sim
}

#[test]
fn a_level_is_draining_from_its_first_merged_group_to_its_last() {
    let mut sim = two_levels(way(Form::LazyLeveling, Granularity::Partitioned));
    let is_draining = |sim: &Sim<Layered>| {
        let shape = sim.shape();
        sim.policy.is_draining(&shape, &sim.policy.layout(&shape))
    };
    assert!(!is_draining(&sim), "no group has left yet");
    let shape = sim.shape();
    let layout = sim.policy.layout(&shape);
    let group = sim.policy.plan_group(&shape, &layout).unwrap();
    assert_eq!(group.inputs.iter().map(|input| input.level).collect::<Vec<_>>(), [2, 3]);
    sim.begin(&shape, group);
    sim.finish(0);
    assert!(is_draining(&sim), "a group is in the last level");
    // Level 0 is due, into level 2 or a level above it. What comes is left for the next time.
    for _ in 0..4 {
        random_flush(&mut sim, 6000);
    }
    let mut filled_by = Vec::new();
    watch(&mut sim, |sim, shape, plan| {
        let draining = sim.policy.is_draining(shape, &sim.policy.layout(shape));
        let new = shape.runs(2)[..first_drained(sim, shape)].iter().flat_map(|run| &run.tables);
        let takes_new = new.map(TableShape::id).any(|id| plan.tables().any(|named| named == id));
        assert!(!(draining && takes_new && plan.output_level == 3), "{plan:?}");
        filled_by.push((plan.reason, draining));
    });
    assert!(filled_by.contains(&(Reason::Partition, true)));
    assert!(!is_draining(&sim));
    sim.check_reads();
}

/// The number of runs of level 2 that groups leave alone.
fn first_drained(sim: &Sim<Layered>, shape: &Shape) -> usize {
    shape.runs(2).len() - sim.policy.drained(shape, 2, 3).len()
}

/// Nothing entered a draining level, and level 0 had nowhere else to go: writers stopped for the 20
/// seconds that the last level took to be rewritten.
#[test]
fn level_0_is_merged_while_the_level_below_it_drains() {
    let way = Way { size_ratio: 10, ..way(Form::LazyLeveling, Granularity::Partitioned) };
    let mut sim = Sim::new(layered(way, 4), 4, 17);
    let (mut beside, mut groups, mut slowed) = (0, 0, 0);
    for _ in 0..1000 {
        let shape = sim.shape();
        let pressure = sim.policy.write_pressure(&shape);
        slowed += usize::from(pressure != Pressure::None);
        if pressure != Pressure::Stop {
            random_flush(&mut sim, 30_000);
        }
        let target = sim.policy.layout(&shape).targets[2].max(sim.policy.base_bytes);
        let full = shape.levels[2].bytes() / target;
        assert!(full <= 6 + 1, "level 2 has {full} times its target");
        // Two threads. Groups are slow: one ends with each flush.
        if !sim.shape().running.is_empty() {
            sim.finish(0);
        }
        while sim.shape().running.len() < 2 {
            let shape = sim.shape();
            let Some(plan) = sim.policy.plan(&shape) else { break };
            let is_group = plan.reason == Reason::Partition;
            let running = shape.running.len();
            sim.begin(&shape, plan);
            groups += usize::from(is_group);
            beside += usize::from(!is_group && running > 0);
            if !is_group {
                sim.finish(running);
            }
        }
        let runs = sim.shape().runs(0).len();
        assert!(runs <= 4, "{runs} runs wait in level 0");
    }
    assert!(groups > 50 && beside > 10 && slowed > 10, "{groups} groups, {beside} beside, {slowed} slowed");
    sim.check_reads();
}

#[test]
fn a_table_ingested_below_does_not_start_draining() {
    let mut sim = two_levels(way(Form::LazyLeveling, Granularity::Partitioned));
    sim.seq = 9;
    let entries: Entries = (0..8).map(|key| (60_000 + key, (9, false))).collect();
    sim.expected.extend(entries.iter().copied());
    let table = sim.table(entries, (0, 0), |smallest, _| EpochMap::flush(smallest.clone(), 9));
    sim.levels[3][0].1.push(table);
    let shape = sim.shape();
    assert!(!sim.policy.is_draining(&shape, &sim.policy.layout(&shape)));
}

#[test]
fn pieces_of_a_stack_come_from_its_oldest_run_and_include_newer_tables_over_them() {
    let mut sim = two_levels(way(Form::LazyLeveling, Granularity::Partial));
    let shape = sim.shape();
    let layout = sim.policy.layout(&shape);
    let oldest = shape.runs(2)[1].id;
    let mut with_newer = 0;
    for _ in 0..200 {
        let shape = sim.shape();
        let Some(plan) = sim.policy.plan_pieces(&shape, &layout, 2, 3, 0, Reason::RunCount) else { break };
        let last = plan.inputs.iter().rfind(|input| input.level == 2).unwrap();
        if shape.runs(2).len() == 2 {
            assert_eq!(last.run, oldest);
        }
        with_newer += usize::from(plan.inputs.iter().filter(|input| input.level == 2).count() == 2);
        assert!(matches!(plan.output, OutputRun::Into(_)));
        sim.begin(&shape, plan);
        sim.finish(0);
        sim.check_reads();
    }
    assert!(with_newer > 5);
    assert!(sim.levels[2].is_empty());
}

#[test]
fn round_robin_takes_every_part_of_the_key_space_in_turn() {
    let way = Way { picker: Picker::RoundRobin, ..way(Form::Leveling, Granularity::Partial) };
    let mut sim = Sim::new(layered(way, 4), 4, 21);
    let mut starts: Vec<Vec<u8>> = Vec::new();
    for _ in 0..800 {
        random_flush(&mut sim, 30_000);
        watch(&mut sim, |_, _, plan| {
            if plan.inputs[0].level == 2 && plan.output_level == 3 {
                starts.push(plan.range.smallest.to_vec());
            }
        });
    }
    let descents = starts.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!(starts.len() > 100, "only {} steps", starts.len());
    // A step back is the start of a new turn.
    assert!(descents * 5 < starts.len(), "{descents} turns in {} steps", starts.len());
}

#[test]
fn debt_grows_with_the_work_due_and_stalls_writers() {
    for way in ways() {
        let mut sim = Sim::new(layered(way, 4), 4, 2);
        sim.policy.stop_runs = 1000;
        sim.policy.slowdown_runs = 1000;
        for _ in 0..100 {
            random_flush(&mut sim, 8000);
            sim.settle();
        }
        assert_eq!(sim.policy.debt(&sim.shape()), 0, "nothing is due: {way:?}");
        let mut debts = Vec::new();
        for _ in 0..40 {
            random_flush(&mut sim, 8000);
            debts.push(sim.policy.debt(&sim.shape()));
        }
        assert!(debts.is_sorted() || way.deterministic, "{debts:?} {way:?}");
        assert!(debts[39] >= 36 * 20 * ENTRY, "{debts:?} {way:?}");
        sim.policy.stop_debt = debts[39];
        sim.policy.slowdown_debt = debts[39] / 2;
        assert_eq!(sim.policy.write_pressure(&sim.shape()), Pressure::Stop);
        sim.policy.stop_debt += 1;
        assert!(matches!(sim.policy.write_pressure(&sim.shape()), Pressure::Slowdown(_)));
        sim.settle();
        assert_eq!(sim.policy.write_pressure(&sim.shape()), Pressure::None);
    }
}
