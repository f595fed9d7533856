//! Dense tables in simulated trees of every shape; `tests/engine/deletes.rs` has databases.

use super::*;
use crate::compaction::policy::{Pressure, Promise, policy_for};
use crate::compaction::released;
use crate::compaction::settings::{Form, Granularity, Settings};
use crate::compaction::shape::KeyRange;
use crate::compaction::simulator::{ENTRY, FLUSH, Sim};

const TABLE_BYTES: u64 = FLUSH as u64 * ENTRY;

/// A policy that also compacts tables with at least this many deletes, or with deletes of this age;
/// with `None` none.
#[derive(Debug)]
struct With {
    policy: Box<dyn CompactionPolicy>,
    least: Option<u64>,
    age: Option<Duration>,
}

impl CompactionPolicy for With {
    fn plan(&self, shape: &Shape) -> Option<Plan> {
        let deletes = || plan_from(self.least?, shape, &*self.policy, TABLE_BYTES);
        let overdue = || overdue(shape, &*self.policy, self.age?, TABLE_BYTES);
        self.policy.plan(shape).or_else(overdue).or_else(deletes)
    }
    fn write_pressure(&self, shape: &Shape) -> Pressure {
        self.policy.write_pressure(shape)
    }
    fn debt(&self, shape: &Shape) -> u64 {
        self.policy.debt(shape)
    }
    fn level_targets(&self, shape: &Shape) -> Vec<u64> {
        self.policy.level_targets(shape)
    }
    fn promise(&self, shape: &Shape) -> Promise {
        self.policy.promise(shape)
    }
    fn manual(&self, shape: &Shape, range: Option<&KeyRange>) -> Option<Plan> {
        self.policy.manual(shape, range)
    }
    fn deepen(&self, shape: &Shape, spot: &Spot<'_>, reason: Reason) -> Option<Plan> {
        self.policy.deepen(shape, spot, reason)
    }
    fn ends_round(&self, shape: &Shape, plan: &Plan) -> bool {
        self.policy.ends_round(shape, plan)
    }
    fn name(&self) -> String {
        self.policy.name()
    }
}

/// Every shape that is not dropped by age.
fn shapes() -> Vec<(Form, Granularity)> {
    use Form::{Fragmented, Hybrid, LazyLeveling, Leveling, Tiering};
    use Granularity::{Full, Partial, Partitioned};
    vec![
        (Leveling, Partial),
        (Leveling, Full),
        (Leveling, Partitioned),
        (Tiering, Full),
        (LazyLeveling, Partial),
        (LazyLeveling, Partitioned),
        (Hybrid(2), Full),
        (Hybrid(2), Partial),
        (Fragmented, Partial),
    ]
}

fn sim((form, granularity): (Form, Granularity), least: Option<u64>) -> Sim<With> {
    let settings = Settings {
        form,
        granularity,
        memtable_bytes: TABLE_BYTES,
        table_bytes: TABLE_BYTES,
        size_ratio: 4.into(),
        level0_runs: 4,
        levels: 6,
        slowdown_runs: 8,
        stop_runs: 12,
        ..Settings::default()
    };
    Sim::new(With { policy: policy_for(&settings), least, age: None }, 6, 7)
}

fn deletes(sim: &Sim<With>) -> u64 {
    sim.tables().map(|table| table.deletes).sum()
}

#[test]
fn a_stretch_of_deleted_keys_is_gone_once_nothing_is_due() {
    for shape in shapes() {
        let (with, without) = (sim(shape, Some(16)), sim(shape, None));
        let left = [with, without].map(|mut sim| {
            for i in 0..80u16 {
                sim.flush(i * 32..i * 32 + 32, 0);
                sim.work(2);
            }
            sim.settle();
            // A flush each, as of a larger memtable.
            sim.flush(320..1280, 16);
            sim.flush(1280..1300, 16);
            sim.settle();
            sim.check_reads();
            let dense: Vec<_> = sim.tables().filter(|t| t.deletes * 2 >= t.entries).cloned().collect();
            assert!(sim.policy.least.is_none() || dense.is_empty(), "{shape:?}: {dense:?}");
            deletes(&sim)
        });
        assert_eq!(left[0], 0, "{shape:?}");
        assert!(left[1] > 0, "{shape:?}: it would have happened anyway");
    }
}

#[test]
fn histories_with_many_deletes_settle_and_lose_nothing() {
    for shape in shapes() {
        let mut sim = sim(shape, Some(4));
        for round in 0..300 {
            let from = sim.random(4000);
            let keys: Vec<u16> = match round % 3 {
                0 => (0..FLUSH).map(|_| sim.random(4000) as u16).collect(),
                _ => (from..from + FLUSH * (1 + round % 5)).map(|key| key as u16).collect(),
            };
            let deletes_in_16 = [0, 1, 8, 15, 16][sim.random(5)];
            sim.flush(keys, deletes_in_16);
            sim.work(3);
            if round % 20 == 0 {
                sim.check_reads();
            }
        }
        sim.settle();
        sim.check_reads();
    }
}

#[test]
fn old_deletes_are_gone_whatever_the_shape_and_young_ones_stay() {
    const AGE: u64 = 1000;
    for shape in shapes() {
        let mut sim = sim(shape, None);
        sim.policy.age = Some(Duration::from_secs(AGE));
        sim.now = 1_000_000;
        for round in 0..150 {
            let keys: Vec<u16> = (0..FLUSH).map(|_| sim.random(4000) as u16).collect();
            sim.flush(keys, [0, 1, 16][round % 3]);
            sim.now += 7;
            sim.work(3);
        }
        sim.now += AGE;
        sim.settle();
        assert_eq!(deletes(&sim), 0, "{shape:?}");
        sim.check_reads();

        sim.flush(100..120, 16);
        sim.now += AGE - AGE / 4 - 1;
        sim.settle();
        assert_eq!(deletes(&sim), 20, "{shape:?}");
        sim.now += 1;
        sim.settle();
        assert_eq!(deletes(&sim), 0, "{shape:?}");
        sim.check_reads();
    }
}

#[test]
fn the_oldest_delete_is_held_by_an_older_snapshot_alone() {
    let mut sim = sim((Form::Leveling, Granularity::Partial), None);
    sim.now = 1000;
    sim.flush(0..320, 0);
    sim.flush(0..8, 16);
    sim.flush(8..16, 0);
    let mut shape = sim.shape();
    shape.now += 100;
    let due = |shape: &Shape, age| {
        overdue(shape, &*sim.policy.policy, Duration::from_secs(age), TABLE_BYTES).is_some()
    };
    assert!(due(&shape, 133) && !due(&shape, 134));
    shape.snapshots = vec![1];
    assert!(!due(&shape, 10));
    shape.snapshots = vec![2];
    assert!(due(&shape, 10));
}

/// What is unknown counts as older than it is, never as younger.
#[test]
fn a_delete_is_at_most_as_old_as_recorded() {
    let times = |known: &[(SeqNo, u64)]| DeleteTimes {
        known: known.iter().map(|&(seq, since)| OldestDelete { seq, since }).collect(),
        now: 1000,
    };
    let since = |times: &DeleteTimes, seq| times.oldest(seq).since;
    let merged = times(&[(20, 200), (10, 100), (30, 250)]);
    let found = [5, 10, 19, 20, 29, 30, 99].map(|seq| since(&merged, seq));
    assert_eq!(found, [100, 100, 100, 200, 200, 250, 250]);
    assert_eq!(since(&times(&[]), 7), 1000, "a filter made it");
    assert_eq!(since(&DeleteTimes::of_flush(Some(400), 1000), 7), 400);
    assert_eq!(since(&DeleteTimes::of_flush(None, 1000), 7), 1000);
}

#[test]
fn level_0_collects_while_flushes_follow_quickly() {
    let mut sim = sim((Form::Leveling, Granularity::Partial), Some(16));
    sim.now = 1000;
    sim.flush(0..320, 0);
    sim.settle();
    sim.flush(0..160, 16);
    let mut shape = sim.shape();
    let mut is_due = |change: fn(&mut Shape)| {
        change(&mut shape);
        plan_from(16, &shape, &*sim.policy.policy, TABLE_BYTES).is_some()
    };
    assert!(!is_due(|_| {}) && !is_due(|shape| shape.now += 4));
    assert!(is_due(|shape| shape.now += 1), "flushes have paused");
    assert!(!is_due(|shape| shape.now -= 1));
    assert!(is_due(|shape| shape.settling = true), "somebody waits");
}

/// Overwrites with some deletes among them are compacted exactly as without any of this.
#[test]
fn ordinary_writes_are_rewritten_no_more_than_before() {
    for shape in shapes() {
        let written = |least| {
            let mut sim = sim(shape, least);
            for _ in 0..400 {
                let keys: Vec<u16> = (0..FLUSH).map(|_| sim.random(6000) as u16).collect();
                sim.flush(keys, 2);
                sim.work(1);
            }
            sim.settle();
            (sim.flushed_bytes, sim.compacted_bytes, sim.moves)
        };
        assert_eq!(written(Some(16)), written(None), "{shape:?}");
    }
}

#[test]
fn deletes_that_lie_thin_over_the_next_level_wait() {
    let written = |least| {
        let mut sim = sim((Form::Leveling, Granularity::Partial), least);
        for i in 0..80u16 {
            sim.flush(i * 32..i * 32 + 32, 0);
            sim.work(2);
        }
        sim.settle();
        let before = sim.compacted_bytes;
        for i in 0..40 {
            sim.flush((0..40).map(|key| key * 64 + i), 16);
            sim.settle();
        }
        sim.check_reads();
        (sim.compacted_bytes - before) as f64 / (40 * 40 * ENTRY) as f64
    };
    let (with, without) = (written(Some(16)), written(None));
    assert!(with < without + PAYS as f64 * 2.0, "{with} {without}");
}

#[test]
fn a_snapshot_holds_a_table_and_no_longer() {
    let mut sim = sim((Form::Leveling, Granularity::Partial), Some(16));
    sim.flush(0..320, 0);
    sim.settle();
    sim.flush(0..160, 16);
    let mut shape = sim.shape();
    let plan = |shape: &Shape| plan_from(16, shape, &*sim.policy.policy, TABLE_BYTES);
    assert!(plan(&shape).is_some());
    shape.snapshots = vec![1, 9];
    assert_eq!(plan(&shape), None, "one sees the values");
    shape.snapshots = vec![2, 9];
    assert!(plan(&shape).is_some(), "all see the deletes");
    assert_eq!(plan_from(161, &shape, &*sim.policy.policy, TABLE_BYTES), None, "few deletes");
}

#[test]
fn a_merge_is_expected_to_lose_what_its_deletes_hide() {
    let of = |entries, deletes, file_bytes| {
        let mut table = released::tests::table(1, "a", "z", &[]);
        let meta = std::sync::Arc::make_mut(&mut table.meta);
        (meta.entries, meta.deletes, meta.file_bytes) = (entries, deletes, file_bytes);
        table
    };
    let (newer, older) = (of(300, 300, 3000), of(1000, 0, 100_000));
    let expected = |newer: &TableShape, left, bottommost| {
        expected_bytes([(newer, 1.0), (&older, left)].into_iter(), bottommost)
    };
    assert_eq!(expected(&newer, 1.0, true), 70_000);
    assert_eq!(expected(&newer, 1.0, false), 73_000, "the deletes themselves stay");
    assert_eq!(expected(&newer, 0.5, true), 20_000, "a range delete hides half of it");
    assert_eq!(expected(&of(2000, 2000, 9000), 1.0, true), 0);
    assert_eq!(expected(&of(0, 0, 1000), 1.0, true), 101_000);
}
