//! In deterministic shapes, the levels are the digits of the number of flushes.

use super::family::{Way, layered, ways};
use super::*;
use crate::compaction::policy::layered::draft::Kind;
use crate::compaction::settings::Form;

/// The contents of flush number `flush`.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// New keys over the whole key space.
    Random,
    /// The same few keys again and again.
    Updates,
    /// Deletes of everything, with an occasional put.
    Deletes,
    /// Often no entries at all: a number, but no run.
    Empty,
}

fn load(sim: &mut Sim<Layered>, load: Load) {
    let (keys, deletes): (Vec<u16>, usize) = match load {
        Load::Random => ((0..FLUSH).map(|_| sim.random(3000) as u16).collect(), 1),
        Load::Updates => ((0..FLUSH).map(|i| (i % 7) as u16).collect(), 0),
        Load::Deletes => ((0..FLUSH).map(|i| (i * 40) as u16).collect(), 15),
        Load::Empty if sim.random(3) > 0 => (Vec::new(), 0),
        Load::Empty => ((0..4).map(|_| sim.random(3000) as u16).collect(), 2),
    };
    if keys.is_empty() {
        sim.seq += 1;
    } else {
        sim.flush(keys, deletes);
    }
}

/// The number of flushes in the mixed radix of the levels: the digit of each level from 0 to the
/// last but one.
fn digits(sim: &Sim<Layered>, layout: &Layout) -> Vec<u64> {
    let blocks = sim.policy.blocks(&sim.shape(), layout);
    let mut rest = sim.seq - blocks.from;
    let mut digits = vec![rest % sim.policy.level0_runs as u64];
    rest /= sim.policy.level0_runs as u64;
    for level in 1..layout.last {
        let radix = blocks.flushes[level] / blocks.flushes[level - 1];
        digits.push(rest % radix);
        rest /= radix;
    }
    digits
}

/// With a fixed base level and no empty run, every level's number of runs is its digit; a leveling
/// level has one unless its digit is 0.
fn check_digits(sim: &Sim<Layered>) {
    let shape = sim.shape();
    let layout = sim.policy.layout(&shape);
    for (level, digit) in digits(sim, &layout).into_iter().enumerate() {
        let expected = match sim.policy.kind(level, layout.last) {
            Kind::Tiering => digit,
            Kind::Leveling => digit.min(1),
        };
        let runs = shape.runs(level).len() as u64;
        assert_eq!(runs, expected, "level {level} after {} flushes: {layout:?} {:?}", sim.seq, sim.policy);
    }
}

/// A tree whose last level is so large that the base is level 1 and stays there.
fn filled(way: Way, levels: usize, seed: u64) -> Sim<Layered> {
    let mut sim = Sim::new(layered(way, levels), levels, seed);
    if sim.policy.leveling > 0 {
        let entries: Entries = (0..30_000u16).map(|k| (k, (0, false))).collect();
        let table = sim.table(entries, (0, 0), |smallest, _| EpochMap::flush(smallest.clone(), 0));
        sim.levels[levels - 1].push((1, vec![table]));
        sim.policy.base_bytes = 1;
    }
    sim
}

#[test]
fn the_shape_is_the_number_of_flushes_in_the_radix_of_the_levels() {
    for way in ways().into_iter().filter(|way| way.deterministic) {
        for (size_ratio, levels) in [(2, 4), (3, 4), (4, 3)] {
            for kind in [Load::Random, Load::Updates] {
                let mut sim = filled(Way { size_ratio, ..way }, levels, 5);
                sim.policy.table_bytes = 5000;
                // A full round of every tree, and into the next.
                for _ in 0..200 {
                    load(&mut sim, kind);
                    sim.settle();
                    check_digits(&sim);
                }
                sim.check_reads();
            }
        }
    }
}

#[test]
fn the_shape_depends_neither_on_keys_nor_on_how_jobs_overlap() {
    // The same number of flushes gives the same runs per level, whatever their contents and however
    // jobs overlap, as long as no run is empty. But for full merges into several leveling levels,
    // where updates count.
    for way in ways().into_iter().filter(|way| way.deterministic) {
        let other = if layered(way, 4).stretches() { Load::Random } else { Load::Updates };
        let shapes: Vec<Vec<usize>> = [(Load::Random, 1), (Load::Random, 4), (other, 3)]
            .into_iter()
            .map(|(kind, threads)| {
                let mut sim = filled(way, 4, 7);
                sim.policy.table_bytes = 5000;
                for _ in 0..150 {
                    load(&mut sim, kind);
                    sim.work(threads);
                }
                sim.settle();
                sim.check_reads();
                sim.levels.iter().map(Vec::len).collect()
            })
            .collect();
        assert!(shapes.windows(2).all(|pair| pair[0] == pair[1]), "{shapes:?} {way:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Where runs or whole blocks turn out empty, a level holds fewer runs than its digit, never
    /// more, and nothing newer or older than its block, according to the epochs.
    #[test]
    fn blocks_stay_separate_whatever_is_deleted(
        seed: u64,
        way in prop::sample::select(ways().into_iter().filter(|way| way.deterministic).collect::<Vec<_>>()),
        size_ratio in 2u64..5,
        threads in 1usize..4,
        flushes in 20usize..150,
    ) {
        let mut sim = filled(Way { size_ratio, ..way }, 4, seed);
        for i in 0..flushes {
            load(&mut sim, [Load::Empty, Load::Deletes, Load::Random][i / 7 % 3]);
            sim.work(threads);
        }
        // A flush that leaves an entry, so that the count is visible.
        sim.flush([1, 2, 3], 0);
        sim.settle();
        sim.check_reads();
        let shape = sim.shape();
        let layout = sim.policy.layout(&shape);
        let blocks = sim.policy.blocks(&shape, &layout);
        for (level, digit) in digits(&sim, &layout).into_iter().enumerate() {
            prop_assert!(shape.runs(level).len() as u64 <= digit, "level {} {:?}", level, sim.policy);
            let begun = sim.seq - (sim.seq - blocks.from) % blocks.flushes[level];
            let newest = shape.runs(level).iter().flat_map(|run| &run.tables).map(|t| t.meta.epochs.hull().1 - 1);
            prop_assert!(newest.into_iter().all(|newest| newest > begun), "level {} holds an old block", level);
        }
    }
}

#[test]
fn a_small_tree_moves_its_base_up_at_the_end_of_a_round() {
    for way in ways().into_iter().filter(|way| way.deterministic && way.choice != Form::Tiering) {
        let mut sim = Sim::new(layered(way, 5), 5, 3);
        sim.policy.table_bytes = 5000;
        let mut base = sim.policy.layout(&sim.shape()).base;
        assert_eq!(base, 4, "an empty tree fills its last level");
        for flush in 1..=400u64 {
            sim.flush(
                (0..FLUSH).map(|i| ((flush as usize * FLUSH + i * 7919) % 30_000) as u16).collect::<Vec<_>>(),
                0,
            );
            sim.settle();
            let now = sim.policy.layout(&sim.shape()).base;
            if now != base {
                assert!(now < base, "the base moves up as the data grows");
                let levels_between = (1..4).filter(|&n| sim.bytes(n) > 0).count();
                assert_eq!(levels_between, 0, "the base moves in the middle of a round: {way:?}");
                base = now;
            }
        }
        assert!(base < 3, "400 flushes leave the base at level {base}: {way:?}");
        sim.check_reads();
    }
}

#[test]
fn a_round_ends_with_the_merge_that_leaves_one_run() {
    for way in ways().into_iter().filter(|way| way.deterministic) {
        let mut sim = filled(way, 4, 9);
        sim.policy.table_bytes = 5000;
        let mut rounds = 0;
        for _ in 0..200 {
            load(&mut sim, Load::Random);
            while let Some(plan) = sim.policy.plan(&sim.shape()) {
                let shape = sim.shape();
                let ends = sim.policy.ends_round(&shape, &plan);
                sim.begin(&shape, plan);
                sim.finish(0);
                let below_level0: usize = sim.levels[1..].iter().map(Vec::len).sum();
                assert_eq!(ends, below_level0 <= 1, "{way:?}");
                rounds += usize::from(ends);
            }
        }
        assert!(rounds > 1, "{way:?}");
    }
}
