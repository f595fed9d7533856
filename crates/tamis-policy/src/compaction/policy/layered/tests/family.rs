//! All policies of the family with all parameters: random histories, policy switches, manual
//! compactions.

use tamis_base::meta::TableMeta;

use super::*;
use crate::compaction::plan::Work;
use crate::compaction::settings::{Form, Granularity, Picker};
use crate::compaction::shape::RunShape;

/// The parameters that distinguish the policies of the family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) choice: Form,
    pub(super) merge: Granularity,
    pub(super) deterministic: bool,
    pub(super) picker: Picker,
    pub(super) size_ratio: u64,
}

pub(super) fn layered(way: Way, levels: usize) -> Layered {
    let settings = Settings {
        form: way.choice,
        granularity: way.merge,
        deterministic: way.deterministic,
        picker: way.picker,
        ..Settings::default()
    };
    assert!(settings.are_consistent(), "{way:?}");
    let like = Layered::new(&settings);
    let Layered { form, leveling, granularity, picker, deterministic, .. } = like;
    Layered { form, leveling, granularity, picker, deterministic, ..policy(way.size_ratio, levels) }
}

/// Every policy with every granularity that its options allow, by size and by flush count.
pub(super) fn ways() -> Vec<Way> {
    use Form::*;
    let mut ways = Vec::new();
    for choice in [Leveling, Tiering, LazyLeveling, Hybrid(1), Hybrid(2), Hybrid(3)] {
        for merge in [Granularity::Full, Granularity::Partial, Granularity::Partitioned] {
            for deterministic in [false, true] {
                let settings =
                    Settings { form: choice, granularity: merge, deterministic, ..Settings::default() };
                if settings.are_consistent() {
                    let (picker, size_ratio) = (Picker::LeastOverlap, 3);
                    ways.push(Way { choice, merge, deterministic, picker, size_ratio });
                }
            }
        }
    }
    ways
}

fn any_way() -> impl Strategy<Value = Way> {
    let pickers = [Picker::LeastOverlap, Picker::RoundRobin, Picker::MostTombstones, Picker::Oldest];
    (
        prop::sample::select(ways()),
        prop::sample::select(pickers.to_vec()),
        prop::sample::select(vec![2, 3, 4, 10]),
    )
        .prop_map(|(way, picker, size_ratio)| Way { picker, size_ratio, ..way })
}

/// Checks what every policy promises for a tree in which nothing is due.
pub(super) fn check_promise(sim: &Sim<Layered>) {
    let shape = sim.shape();
    let promise = sim.policy.promise(&shape);
    for (level, runs) in shape.levels.iter().enumerate() {
        let bound = promise.runs_per_level[level].expect("every level has a bound");
        assert!(
            runs.runs.len() <= bound,
            "level {level}: {} runs of {bound} {:?}",
            runs.runs.len(),
            sim.policy
        );
    }
    let (tables, most) = (sim.tables().count(), promise.tables.expect("a bound"));
    assert!(tables <= most, "{tables} tables of {most} {:?}", sim.policy);
    let layout = sim.policy.layout(&shape);
    for level in 1..layout.last {
        if layout.counts_bytes && !sim.policy.deterministic {
            let (bytes, target) = (sim.bytes(level), layout.targets[level]);
            assert!(bytes <= target, "level {level}: {bytes} of {target} {:?}", sim.policy);
        }
    }
}

fn random_keys(sim: &mut Sim<Layered>, kind: usize, cursor: usize) -> Vec<u16> {
    let from = sim.random(2000);
    let key = |i: usize, sim: &mut Sim<Layered>| match kind {
        0 => sim.random(2200),
        1 => from + sim.random(200),
        _ => (cursor + i) % 2200,
    };
    (0..FLUSH).map(|i| key(i, sim) as u16).collect()
}

type Phase = (Way, usize, usize, usize);

/// Flushes and merges in several phases, then manual compactions of a range and of everything.
fn history(seed: u64, levels: usize, threads: usize, phases: Vec<Phase>) -> Result<(), TestCaseError> {
    let mut sim = Sim::new(layered(phases[0].0, levels), levels, seed);
    let mut cursor = 0;
    for (way, kind, deletes, flushes) in phases {
        sim.policy = layered(way, levels);
        for _ in 0..flushes {
            let keys = random_keys(&mut sim, kind, cursor);
            cursor += FLUSH;
            sim.flush(keys, deletes);
            sim.work(threads);
            prop_assert!(sim.levels[0].len() <= sim.policy.stop_runs);
        }
        sim.check_reads();
    }
    sim.settle();
    sim.check_reads();
    check_promise(&sim);
    let range = KeyRange {
        smallest: 700u16.to_be_bytes()[..].into(),
        largest: KeyEnd::Excluded(900u16.to_be_bytes()[..].into()),
    };
    manual_to_the_end(&mut sim, Some(&range));
    sim.check_reads();
    let shape = sim.shape();
    let runs = shape.levels.iter().flat_map(|level| &level.runs);
    let concerned = runs.filter(|run| run.tables.iter().any(|table| range.overlaps_table(table))).count();
    prop_assert!(concerned <= 1, "{} runs lie in a range that was compacted", concerned);
    let before: HashSet<TableId> = sim.tables().map(|table| table.id).collect();
    manual_to_the_end(&mut sim, None);
    sim.check_reads();
    let runs: usize = sim.levels.iter().map(Vec::len).sum();
    prop_assert!(runs <= 1, "a manual compaction leaves {} runs", runs);
    // Tables that were left alone below the range's old data may hold deletes that are no longer
    // needed: rewriting those is up to the callers, not the policies.
    let is_clean = |table: &TableMeta| table.deletes == 0 || sim.moves > 0 || before.contains(&table.id);
    prop_assert!(sim.tables().all(|table| is_clean(table)));
    Ok(())
}

/// Regression: the next level down held two runs and none of the range, and the range stayed where
/// it was.
#[test]
fn a_range_continues_below_a_stack_that_holds_none_of_it() {
    let full = |choice, size_ratio| Way {
        choice,
        merge: Granularity::Full,
        deterministic: false,
        picker: Picker::LeastOverlap,
        size_ratio,
    };
    let phases = vec![(full(Form::Leveling, 2), 2, 0, 39), (full(Form::Tiering, 3), 2, 0, 53)];
    history(0, 5, 1, phases).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// Every phase has its own policy, which leads the shape left by the previous one to its own.
    #[test]
    fn every_policy_and_every_switch_reads_back_and_keeps_its_promise(
        seed: u64,
        levels in 2usize..7,
        threads in 1usize..6,
        phases in prop::collection::vec((any_way(), 0usize..3, 0usize..17, 5usize..60), 1..5),
    ) {
        history(seed, levels, threads, phases)?;
    }

    /// A nearly full device makes plans smaller or impossible, never wrong.
    #[test]
    fn plans_fit_the_remaining_room(seed: u64, way in any_way(), room in 1u64..60, flushes in 5usize..80) {
        let mut sim = Sim::new(layered(way, 5), 5, seed);
        sim.policy.slowdown_runs = 1000;
        sim.policy.stop_runs = 1000;
        for i in 0..flushes {
            let keys = random_keys(&mut sim, i % 2, 0);
            sim.flush(keys, 3);
            sim.room = (i % 3 > 0).then_some(room * FLUSH as u64 * ENTRY / 2);
            while let Some(plan) = sim.policy.plan(&sim.shape()) {
                let shape = sim.shape();
                let bytes: u64 = input_runs(&shape, &plan.tables().collect::<Vec<_>>()).1;
                prop_assert!(plan.work == Work::Move || shape.room.is_none_or(|room| bytes <= room));
                prop_assert_eq!(sim.policy.needs(&shape), None);
                sim.begin(&shape, plan);
                sim.finish(0);
            }
            let mut shape = sim.shape();
            if let Some(needs) = sim.policy.needs(&shape) {
                prop_assert!(Some(needs) > shape.room, "a plan that fits is made");
                shape.room = Some(needs);
                prop_assert!(sim.policy.plan(&shape).is_some(), "a plan is made with that much room");
            } else {
                shape.room = None;
                prop_assert!(sim.policy.plan(&shape).is_none(), "a blocked plan reports the room it needs");
            }
        }
        sim.check_reads();
    }
}

/// Runs and bytes of the named tables.
fn input_runs(shape: &Shape, named: &[u64]) -> (usize, u64) {
    let holds = |run: &&RunShape| run.tables.iter().any(|t| named.contains(&t.id()));
    let runs = shape.levels.iter().flat_map(|level| &level.runs).filter(holds);
    let tables = shape.levels.iter().flat_map(|level| level.tables()).filter(|t| named.contains(&t.id()));
    (runs.count(), tables.map(TableShape::bytes).sum())
}

fn manual_to_the_end(sim: &mut Sim<Layered>, range: Option<&KeyRange>) {
    loop {
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
}
