//! Updates and deletes lengthen the blocks of leveling levels, so that each is merged down when it
//! is nearly full.

use super::family::{Way, check_promise, layered};
use super::*;
use crate::compaction::policy::layered::counted::MOST;
use crate::compaction::settings::{Form, Granularity, Picker};

const LEVELS: usize = 4;
const RATIO: u64 = 4;
const LAST: usize = LEVELS - 1;

/// Leveling by full merges, over a last level so large that the base is level 1 and stays there.
fn leveled() -> Sim<Layered> {
    let way = Way {
        choice: Form::Leveling,
        merge: Granularity::Full,
        deterministic: true,
        picker: Picker::LeastOverlap,
        size_ratio: RATIO,
    };
    let mut sim = Sim::new(layered(way, LEVELS), LEVELS, 17);
    let entries: Entries = (0..60_000u16).map(|key| (key, (0, false))).collect();
    let table = sim.table(entries, (0, 0), |smallest, _| EpochMap::flush(smallest.clone(), 0));
    sim.levels[LAST].push((1, vec![table]));
    sim.policy.base_bytes = 1;
    sim.policy.table_bytes = 5000;
    sim
}

/// Flushes once: `updates` in 32 of the entries are of 40 hot keys, the others of keys that hardly
/// repeat.
fn flush(sim: &mut Sim<Layered>, updates: usize) {
    let mut keys: std::collections::BTreeSet<u16> = (0..updates).map(|_| sim.random(40) as u16).collect();
    while keys.len() < FLUSH {
        keys.insert(40 + sim.random(59_900) as u16);
    }
    sim.flush(keys, 0);
}

/// The end of a round: what it merged out of level 1 and the level above, and out of all levels
/// above the last, in flushes without superseded entries; and the number of its flushes.
#[derive(Debug)]
struct Round {
    level1: f64,
    level2: f64,
    flushes: u64,
}

/// Runs to the ends of `count` rounds.
fn rounds(sim: &mut Sim<Layered>, count: usize, updates: usize) -> Vec<Round> {
    let (mut rounds, mut begun) = (Vec::new(), sim.seq);
    while rounds.len() < count {
        flush(sim, updates);
        while let Some(plan) = sim.policy.plan(&sim.shape()) {
            let shape = sim.shape();
            if plan.output_level == LAST {
                let flushes = |levels: Range<usize>| {
                    levels.map(|level| sim.bytes(level)).sum::<u64>() as f64 / (FLUSH as u64 * ENTRY) as f64
                };
                let (level1, level2) = (flushes(0..2), flushes(0..3));
                rounds.push(Round { level1, level2, flushes: sim.seq - begun });
                begun = sim.seq;
            }
            sim.begin(&shape, plan);
            sim.finish(0);
        }
    }
    sim.check_reads();
    check_promise(sim);
    rounds
}

/// The capacities of levels 1 and 2: their blocks, in flushes, where nothing is superseded.
const BLOCKS: [f64; 2] = [16.0, 64.0];

#[test]
fn at_fifty_percent_updates_levels_are_nearly_full_when_they_are_merged_down() {
    let mut sim = leveled();
    let rounds = rounds(&mut sim, 6, FLUSH / 2);
    // Before anything is known, T batches leave level 2 at less than seven tenths.
    assert_eq!(rounds[0].flushes, BLOCKS[1] as u64);
    assert!(rounds[0].level2 < 0.7 * BLOCKS[1], "{rounds:?}");
    for round in &rounds[2..] {
        assert!((0.85..=1.05).contains(&(round.level2 / BLOCKS[1])), "{rounds:?}");
        assert!((0.85..=1.1).contains(&(round.level1 / BLOCKS[0])), "{rounds:?}");
    }
    // The estimate has settled, and no round is cut short by a change of lengths.
    assert!(rounds[3..].windows(2).all(|pair| pair[0].flushes.abs_diff(pair[1].flushes) <= 8), "{rounds:?}");
    assert!(rounds[3..].iter().all(|round| round.flushes >= BLOCKS[1] as u64 * 3 / 2), "{rounds:?}");
}

#[test]
fn deletes_of_what_a_level_holds_count_like_updates() {
    // Deletes stay in the levels above the last, one for each key: those of hot keys supersede each
    // other.
    let mut sim = leveled();
    let hot = |sim: &mut Sim<Layered>| {
        let keys: std::collections::BTreeSet<u16> = (0..FLUSH).map(|_| sim.random(100) as u16).collect();
        sim.flush(keys, 8);
    };
    let begun = sim.seq;
    for _ in 0..BLOCKS[1] as u64 {
        hot(&mut sim);
        sim.settle();
    }
    let layout = sim.policy.layout(&sim.shape());
    let blocks = sim.policy.blocks(&sim.shape(), &layout);
    // A hundred keys would never fill a level: the limit applies.
    assert_eq!(blocks.from, begun + BLOCKS[1] as u64);
    let most = MOST * BLOCKS[1] as u64;
    assert!((most * 3 / 4..=most).contains(&blocks.flushes[2]), "{blocks:?}");
}

#[test]
fn without_updates_blocks_keep_the_length_of_the_size_ratio() {
    let mut sim = leveled();
    for round in rounds(&mut sim, 4, 0) {
        assert_eq!(round.flushes, BLOCKS[1] as u64);
    }
    assert_eq!(sim.policy.blocks(&sim.shape(), &sim.policy.layout(&sim.shape())).from, 0);
}

#[test]
fn a_change_of_the_workload_costs_one_round() {
    let mut sim = leveled();
    rounds(&mut sim, 4, FLUSH / 2);
    let after = rounds(&mut sim, 3, 0);
    // The round under way has its length, and levels exceed their capacity by the factor of the
    // estimate at most.
    assert!(after[0].level2 < 2.2 * BLOCKS[1], "{after:?}");
    assert!(after[1..].iter().all(|round| round.flushes <= BLOCKS[1] as u64 + 8), "{after:?}");
}

#[test]
fn updates_cause_fewer_rewrites_than_with_blocks_of_plain_length() {
    let written = |stretched: bool| {
        let mut sim = leveled();
        while sim.seq < 2000 {
            flush(&mut sim, FLUSH / 2);
            sim.settle();
            if !stretched {
                for runs in &mut sim.levels {
                    for table in runs.iter_mut().flat_map(|(_, tables)| tables) {
                        std::sync::Arc::make_mut(table).extra.stretch = None;
                    }
                }
            }
        }
        sim.compacted_bytes as f64 / sim.flushed_bytes as f64
    };
    let (plain, stretched) = (written(false), written(true));
    assert!(stretched < 0.75 * plain, "{stretched} with the estimate, {plain} without");
}

/// A record of another tree, or a crafted one, must neither stop compaction nor end in a panic.
#[test]
fn any_stretch_in_a_record_is_survived() {
    use tamis_base::meta::Stretch;
    let stretches = [
        (u64::MAX >> 8, vec![]),
        (0, vec![u64::MAX; 64]),
        (3, vec![0; 2]),
        (64, vec![1, u64::MAX, 0, 7, 9]),
        (1, vec![256, 300, 256]),
    ];
    for (from, factors) in stretches {
        let mut sim = leveled();
        let stretch = Stretch { from, factors };
        std::sync::Arc::make_mut(&mut sim.levels[LAST][0].1[0]).extra.stretch = Some(stretch.clone());
        for _ in 0..400 {
            flush(&mut sim, FLUSH / 2);
            sim.work(2);
            assert!(sim.levels[0].len() < sim.policy.stop_runs, "{stretch:?}");
        }
        sim.settle();
        sim.check_reads();
        check_promise(&sim);
        let known = sim.policy.stretch(&sim.shape(), &sim.policy.layout(&sim.shape())).unwrap();
        assert_ne!(known, stretch, "the merges of a round replace it");
    }
}
