//! The policy against a simulated tree: real merges of real keys, but in memory, with jobs that run side by
//! side and end in any order. The tree checks after every step that no two jobs conflict and that runs stay
//! sorted, and when asked that every key reads back and that epochs are disjoint.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::compaction::shape::{LevelShape, RunningJob};
use crate::key::KeyEnd;
use crate::tree::epochs::EpochMap;
use crate::tree::meta::{RunId, TableId, TableMeta};

/// Bytes of an entry on the simulated disk.
const ENTRY: u64 = 10;
/// Keys in a flush.
const FLUSH: usize = 32;

/// What a key's newest version says: when it was written, and whether it is a delete.
type Version = (u64, bool);
type Entries = Vec<(u16, Version)>;

struct Job {
    plan: Plan,
}

struct Sim {
    policy: Leveled,
    levels: Vec<Vec<(RunId, Vec<Arc<TableMeta>>)>>,
    content: HashMap<TableId, Entries>,
    jobs: Vec<Job>,
    /// What every key should read as.
    expected: BTreeMap<u16, Version>,
    next_id: u64,
    seq: u64,
    random: u64,
    flushed_bytes: u64,
    compacted_bytes: u64,
    moves: usize,
}

fn policy(size_ratio: u64, levels: usize) -> Leveled {
    Leveled {
        size_ratio,
        level0_runs: 4,
        base_bytes: 4 * FLUSH as u64 * ENTRY,
        levels,
        table_bytes: FLUSH as u64 * ENTRY,
        slowdown_runs: 8,
        stop_runs: 12,
    }
}

impl Sim {
    fn new(policy: Leveled, seed: u64) -> Self {
        Sim {
            levels: vec![Vec::new(); policy.levels],
            policy,
            content: HashMap::new(),
            jobs: Vec::new(),
            expected: BTreeMap::new(),
            next_id: 1,
            seq: 0,
            random: seed,
            flushed_bytes: 0,
            compacted_bytes: 0,
            moves: 0,
        }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn random(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) as usize % below
    }

    fn table(
        &mut self,
        entries: Entries,
        epochs: impl FnOnce(&KeyBytes, &KeyEnd) -> EpochMap,
    ) -> Arc<TableMeta> {
        let id = self.id();
        let smallest: KeyBytes = entries[0].0.to_be_bytes()[..].into();
        let largest = KeyEnd::Included(entries[entries.len() - 1].0.to_be_bytes()[..].into());
        let meta = TableMeta {
            id,
            file_bytes: entries.len() as u64 * ENTRY,
            entries: entries.len() as u64,
            deletes: entries.iter().filter(|(_, (_, is_delete))| *is_delete).count() as u64,
            range_tombstones: 0,
            raw_bytes: entries.len() as u64 * ENTRY,
            min_seq: 0,
            max_seq: self.seq,
            epochs: epochs(&smallest, &largest),
            smallest,
            largest,
        };
        self.content.insert(id, entries);
        Arc::new(meta)
    }

    fn flush(&mut self, keys: impl IntoIterator<Item = u16>, deletes_in_16: usize) {
        self.seq += 1;
        let mut versions = BTreeMap::new();
        for key in keys {
            versions.insert(key, (self.seq, self.random(16) < deletes_in_16));
        }
        self.expected.extend(&versions);
        let epoch = self.seq;
        let table = self
            .table(versions.into_iter().collect(), |smallest, _| EpochMap::flush(smallest.clone(), epoch));
        self.flushed_bytes += table.file_bytes;
        let run = self.id();
        self.levels[0].insert(0, (run, vec![table]));
    }

    fn shape(&self) -> Shape {
        let busy: Vec<TableId> = self.jobs.iter().flat_map(|job| job.plan.tables()).collect();
        let table = |meta: &Arc<TableMeta>| TableShape { meta: meta.clone(), busy: busy.contains(&meta.id) };
        let run = |(id, tables): &(RunId, Vec<Arc<TableMeta>>)| RunShape {
            id: *id,
            tables: tables.iter().map(table).collect(),
        };
        let running = self
            .jobs
            .iter()
            .map(|job| RunningJob { output_level: job.plan.output_level, range: job.plan.range.clone() })
            .collect();
        let levels =
            self.levels.iter().map(|runs| LevelShape { runs: runs.iter().map(run).collect() }).collect();
        Shape { levels, running }
    }

    /// Starts the most urgent job, after checking the plan.
    fn start(&mut self) -> bool {
        let shape = self.shape();
        let Some(plan) = self.policy.plan(&shape) else { return false };
        self.begin(&shape, plan);
        true
    }

    fn begin(&mut self, shape: &Shape, plan: Plan) {
        let tables: Vec<&TableShape> = shape.levels.iter().flat_map(|level| level.tables()).collect();
        let inputs: Vec<&TableShape> = plan
            .tables()
            .map(|id| *tables.iter().find(|t| t.id() == id).expect("an input is in the tree"))
            .collect();
        assert!(inputs.iter().all(|table| !table.busy), "a busy input: {plan:?}");
        assert_eq!(Some(&plan.range), KeyRange::hull(inputs.iter().copied()).as_ref());
        assert!(plan.borders.is_sorted() && plan.borders.iter().all(|b| plan.range.largest.reaches(b)));
        if plan.inputs[0].level == 0 {
            assert!(!self.jobs.iter().any(|job| job.plan.inputs[0].level == 0), "two jobs from level 0");
        }
        self.jobs.push(Job { plan });
    }

    /// Ends job `i`: its outputs replace its inputs.
    fn finish(&mut self, i: usize) {
        let Job { plan } = self.jobs.remove(i);
        let inputs: Vec<TableId> = plan.tables().collect();
        let mut taken: Vec<Arc<TableMeta>> = Vec::new();
        for runs in &mut self.levels {
            for (_, tables) in runs.iter_mut() {
                taken.extend(tables.extract_if(.., |table| inputs.contains(&table.id)));
            }
            runs.retain(|(_, tables)| !tables.is_empty());
        }
        assert_eq!(taken.len(), inputs.len());
        let outputs = if plan.trivial_move {
            self.moves += 1;
            taken
        } else {
            self.merge(&plan, &taken)
        };

        let level = &mut self.levels[plan.output_level];
        match plan.output {
            OutputRun::New => assert!(level.is_empty(), "two jobs filled an empty level"),
            OutputRun::Into(id) => assert!(level.first().is_none_or(|(run, _)| *run == id)),
        }
        if level.is_empty() {
            self.next_id += 1;
            let id = if let OutputRun::Into(id) = plan.output { id } else { self.next_id };
            level.push((id, Vec::new()));
        }
        level[0].1.extend(outputs);
        level[0].1.sort_by(|a, b| a.smallest.cmp(&b.smallest));
        level.retain(|(_, tables)| !tables.is_empty());
        for tables in level.iter().map(|(_, tables)| tables) {
            assert!(tables.windows(2).all(|pair| !pair[0].overlaps(&pair[1])), "outputs overlap: {plan:?}");
        }
    }

    fn merge(&mut self, plan: &Plan, inputs: &[Arc<TableMeta>]) -> Vec<Arc<TableMeta>> {
        let mut newest: BTreeMap<u16, Version> = BTreeMap::new();
        for (key, version) in inputs.iter().flat_map(|table| self.content.remove(&table.id).unwrap()) {
            newest.entry(key).and_modify(|known| *known = version.max(*known)).or_insert(version);
        }
        if plan.bottommost {
            newest.retain(|_, (_, is_delete)| !*is_delete);
        }
        let parts: Vec<(&EpochMap, &[u8], &KeyEnd)> =
            inputs.iter().map(|t| (&t.epochs, &t.smallest[..], &t.largest)).collect();
        let mut outputs = Vec::new();
        let mut entries: Entries = Vec::new();
        let mut newest = newest.into_iter().peekable();
        while let Some((key, version)) = newest.next() {
            entries.push((key, version));
            let is_full = entries.len() as u64 * ENTRY >= plan.max_table_bytes;
            let at_border = newest.peek().is_some_and(|(next, _)| {
                plan.borders
                    .iter()
                    .any(|border| key.to_be_bytes()[..] < border[..] && border[..] <= next.to_be_bytes()[..])
            });
            if is_full || at_border || newest.peek().is_none() {
                let table = self.table(std::mem::take(&mut entries), |smallest, largest| {
                    let map = EpochMap::merge(&parts, smallest, largest);
                    if plan.bottommost { map.reaching_down() } else { map }
                });
                self.compacted_bytes += table.file_bytes;
                outputs.push(table);
            }
        }
        outputs
    }

    /// Runs jobs until none is due.
    fn settle(&mut self) {
        loop {
            while self.start() {}
            if self.jobs.is_empty() {
                return;
            }
            let i = self.random(self.jobs.len());
            self.finish(i);
        }
    }

    /// Between two flushes: up to `threads` jobs run, some end.
    fn work(&mut self, threads: usize) {
        for _ in 0..4 {
            while self.jobs.len() < threads && self.start() {}
            if !self.jobs.is_empty() && self.random(2) == 0 {
                let i = self.random(self.jobs.len());
                self.finish(i);
            }
        }
        while self.policy.write_pressure(&self.shape()) == Pressure::Stop {
            while self.jobs.len() < threads && self.start() {}
            assert!(!self.jobs.is_empty(), "writes wait, and nothing is done about it");
            let i = self.random(self.jobs.len());
            self.finish(i);
        }
    }

    /// Tables from the newest data to the oldest.
    fn tables(&self) -> impl Iterator<Item = &Arc<TableMeta>> {
        self.levels.iter().flatten().flat_map(|(_, tables)| tables)
    }

    fn bytes(&self, level: usize) -> u64 {
        self.levels[level].iter().flat_map(|(_, tables)| tables).map(|t| t.file_bytes).sum()
    }

    /// Every key reads as it was written last, and the tables over it have disjoint epochs.
    fn check_reads(&self) {
        for (&key, &expected) in &self.expected {
            let bytes = key.to_be_bytes();
            let mut found = None;
            let mut intervals = Vec::new();
            for table in self.tables().filter(|table| table.covers(&bytes)) {
                intervals.push(table.epochs.at(&bytes));
                let entries = &self.content[&table.id];
                if let (None, Ok(i)) = (found, entries.binary_search_by_key(&key, |(k, _)| *k)) {
                    found = Some(entries[i].1);
                    let (lo, hi) = table.epochs.at(&bytes);
                    assert!((lo..hi).contains(&entries[i].1.0));
                }
            }
            match found {
                None => assert!(expected.1, "key {key} is lost: {expected:?}"),
                Some(found) => assert_eq!(found, expected, "key {key}"),
            }
            intervals.retain(|(lo, hi)| lo < hi);
            intervals.sort_unstable();
            assert!(intervals.windows(2).all(|w| w[0].1 <= w[1].0), "epochs at key {key}: {intervals:?}");
        }
    }

    fn check_settled(&self) {
        let shape = self.shape();
        let targets = self.policy.level_targets(&shape);
        assert!(self.levels[0].len() < self.policy.level0_runs, "level 0 has {} runs", self.levels[0].len());
        for (level, &target) in targets.iter().enumerate().take(shape.deepest().unwrap_or(0)).skip(1) {
            assert!(self.bytes(level) <= target, "level {level}: {} of {target}", self.bytes(level));
        }
    }
}

fn uniform_flushes(sim: &mut Sim, flushes: usize, keys: usize, threads: usize) {
    for _ in 0..flushes {
        let batch: Vec<u16> = (0..FLUSH).map(|_| sim.random(keys) as u16).collect();
        sim.flush(batch, 1);
        sim.work(threads);
    }
}

#[test]
fn write_amplification_and_space_stay_within_the_documented_bounds_over_thousands_of_flushes() {
    // The last number is what the policy did when this was written, and a tenth more.
    for (size_ratio, levels, usual) in [(4, 7, 11.2), (10, 7, 12.7)] {
        let mut sim = Sim::new(policy(size_ratio, levels), 11);
        for _ in 0..6 {
            uniform_flushes(&mut sim, 500, 30_000, 2);
            sim.check_reads();
        }
        sim.settle();
        sim.check_settled();
        let used = (1..levels).filter(|&n| sim.bytes(n) > 0).count();
        assert!(used >= 3 || size_ratio == 10, "only {used} levels");
        let measured = (sim.flushed_bytes + sim.compacted_bytes) as f64 / sim.flushed_bytes as f64;
        let bound = 1.0 + 2.0 + (used - 1) as f64 * (size_ratio + 2) as f64;
        assert!(measured < usual && usual < bound, "T = {size_ratio}: {measured} of {bound}");
        let total: u64 = (0..levels).map(|n| sim.bytes(n)).sum();
        let live = sim.expected.values().filter(|(_, is_delete)| !is_delete).count() as u64 * ENTRY;
        let above = sim.policy.base_bytes + live / (size_ratio - 1);
        assert!(total <= live + above + live / 50, "T = {size_ratio}: {total} bytes for {live} live ones");
    }
}

#[test]
fn ascending_keys_are_moved_and_never_rewritten() {
    let mut sim = Sim::new(policy(10, 5), 3);
    for i in 0..1000u16 {
        sim.flush(i * 32..i * 32 + 32, 0);
        sim.work(2);
    }
    sim.settle();
    sim.check_settled();
    sim.check_reads();
    assert_eq!(sim.compacted_bytes, 0);
    assert!(sim.moves > 0);
}

#[test]
fn deletes_are_not_moved_below_everything_but_dropped_there() {
    let mut sim = Sim::new(policy(10, 5), 3);
    for i in 0..200u16 {
        sim.flush(i * 32..i * 32 + 32, 4);
        sim.work(2);
    }
    sim.settle();
    sim.check_reads();
    let last = sim.shape();
    assert!(last.levels[4].tables().count() > 100);
    assert!(last.levels[4].tables().all(|table| table.meta.deletes == 0));
}

#[test]
fn more_levels_are_used_when_the_options_allow_them() {
    let mut sim = Sim::new(policy(4, 3), 5);
    uniform_flushes(&mut sim, 600, 20_000, 1);
    sim.settle();
    assert!(sim.policy.level_targets(&sim.shape())[1] > sim.policy.base_bytes);
    sim.policy.levels = 6;
    sim.levels.resize(6, Vec::new());
    sim.settle();
    sim.check_settled();
    sim.check_reads();
    assert!(sim.shape().deepest() > Some(2));
    assert!(sim.policy.level_targets(&sim.shape()).iter().any(|&t| t > 0 && t <= sim.policy.base_bytes));
}

#[test]
fn a_manual_compaction_ends_with_everything_in_the_last_level_and_no_deletes() {
    let mut sim = Sim::new(policy(4, 5), 9);
    uniform_flushes(&mut sim, 300, 4000, 2);
    loop {
        while let Some(plan) = sim.policy.manual(&sim.shape(), None) {
            let shape = sim.shape();
            assert_eq!(plan.reason, Reason::Manual);
            sim.begin(&shape, plan);
        }
        if sim.jobs.is_empty() {
            break;
        }
        let i = sim.random(sim.jobs.len());
        sim.finish(i);
    }
    sim.check_reads();
    let used: Vec<usize> = (0..5).filter(|&n| sim.bytes(n) > 0).collect();
    assert_eq!(used, [4]);
    assert!(sim.tables().all(|table| table.deletes == 0));
}

#[test]
fn a_manual_compaction_of_a_range_leaves_the_rest_alone() {
    let mut sim = Sim::new(policy(4, 5), 9);
    uniform_flushes(&mut sim, 300, 4000, 1);
    sim.settle();
    let range = KeyRange {
        smallest: 100u16.to_be_bytes()[..].into(),
        largest: KeyEnd::Excluded(200u16.to_be_bytes()[..].into()),
    };
    while let Some(plan) = sim.policy.manual(&sim.shape(), Some(&range)) {
        let shape = sim.shape();
        sim.begin(&shape, plan);
        sim.finish(0);
    }
    sim.check_reads();
    let shape = sim.shape();
    let concerned: Vec<usize> =
        (0..5).filter(|&n| shape.levels[n].tables().any(|t| range.overlaps_table(t))).collect();
    assert_eq!(concerned, [4]);
    assert!(sim.bytes(3) > 0, "what does not overlap stays");
}

#[test]
fn writers_feel_the_pressure_of_level_0() {
    let mut sim = Sim::new(policy(4, 4), 1);
    let mut felt = Vec::new();
    for _ in 0..12 {
        sim.flush([1, 2, 3], 0);
        felt.push(sim.policy.write_pressure(&sim.shape()));
    }
    assert_eq!(felt[..7], [Pressure::None; 7]);
    assert_eq!(felt[7..11], [Pressure::Slowdown; 4]);
    assert_eq!(felt[11], Pressure::Stop);
}

#[test]
fn targets_follow_the_last_level() {
    let mut sim = Sim::new(policy(10, 5), 1);
    let base = sim.policy.base_bytes;
    assert_eq!(
        sim.policy.level_targets(&sim.shape()),
        [0, 0, 0, 0, base],
        "an empty tree fills its last level"
    );
    let entries: Entries = (0..20_000u16).map(|k| (k, (1, false))).collect();
    let table = sim.table(entries, |smallest, _| EpochMap::flush(smallest.clone(), 1));
    sim.levels[4].push((1, vec![table]));
    assert_eq!(sim.policy.level_targets(&sim.shape()), [0, 200, 2_000, 20_000, 200_000]);
    sim.policy.base_bytes = 2_000;
    assert_eq!(
        sim.policy.level_targets(&sim.shape()),
        [0, 0, 2_000, 20_000, 200_000],
        "level 0 goes to level 2"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn concurrent_jobs_never_conflict_and_every_key_reads_back(
        seed: u64,
        (size_ratio, levels) in prop::sample::select(vec![(2, 3), (2, 8), (3, 5), (4, 4), (10, 3)]),
        threads in 1usize..6,
        // Flushes by kind: all over the keys, in a window, one key after the other; and how many are deletes.
        phases in prop::collection::vec((0usize..3, 0usize..17, 5usize..40), 1..6),
    ) {
        let mut sim = Sim::new(policy(size_ratio, levels), seed);
        let mut cursor = 0;
        for (kind, deletes, flushes) in phases {
            for _ in 0..flushes {
                let from = sim.random(2000);
                let keys: Vec<u16> = (0..FLUSH)
                    .map(|i| match kind {
                        0 => sim.random(2200),
                        1 => from + sim.random(200),
                        _ => (cursor + i) % 2200,
                    } as u16)
                    .collect();
                cursor += FLUSH;
                sim.flush(keys, deletes);
                sim.work(threads);
                prop_assert!(sim.levels[0].len() <= sim.policy.stop_runs);
            }
            sim.check_reads();
        }
        sim.settle();
        sim.check_reads();
        sim.check_settled();
    }
}
