//! Promises over a million flushes, on shapes alone: tables are ranges of an abstract key space
//! with a share of its keys, and a merge computes the size of the union of uniformly random sets.
//! No entries, no files: a flush costs microseconds.
//!
//! `cargo test -p tamis-policy shapes_only -- --nocapture` prints the measurements beside the
//! promises.

use std::sync::Arc;

use tamis_base::epochs::EpochSegment;
use tamis_base::key::KeyBytes;
use tamis_base::meta::{TableExtra, TableMeta};

use super::family::{Way, layered};
use super::*;
use crate::compaction::plan::{OutputRun, Work};
use crate::compaction::settings::{Form, Granularity, Picker};

/// Keys of a flush.
const KEYS: f64 = 100.0;
const SPACE: f64 = (1u64 << 32) as f64;

/// The sizes of a tree whose keys are drawn from `universe` at random.
pub(super) struct Sizes {
    pub(super) policy: Layered,
    pub(super) shape: Shape,
    next_epoch: u64,
    universe: f64,
    /// Keys of a flush.
    pub(super) flush_keys: f64,
    /// Whether no key is written twice, as in a load; otherwise each is drawn from the whole
    /// universe.
    pub(super) distinct: bool,
    next_id: u64,
    /// Share of the universe ever written.
    pub(super) live: f64,
    pub(super) total: u64,
    pub(super) flushed: u64,
    pub(super) written: u64,
}

/// A key range of a run: from, to, and the share of all keys there that it holds.
type Stretch = (f64, f64, f64);

fn position(key: &[u8]) -> f64 {
    f64::from(u32::from_be_bytes(key.try_into().unwrap()))
}

fn key(position: f64) -> KeyBytes {
    (position as u32).to_be_bytes()[..].into()
}

impl Sizes {
    pub(super) fn new(policy: Layered, universe: f64) -> Self {
        let shape = Shape { levels: vec![LevelShape::default(); policy.levels], ..Shape::default() };
        Sizes {
            policy,
            shape,
            next_epoch: 1,
            universe,
            flush_keys: KEYS,
            distinct: false,
            next_id: 1,
            live: 0.0,
            total: 0,
            flushed: 0,
            written: 0,
        }
    }

    fn bytes_of(&self, (from, to, share): Stretch) -> f64 {
        (to - from) / SPACE * self.universe * share * ENTRY as f64
    }

    fn table(&mut self, from: f64, to: f64, bytes: f64, (lo, hi): (u64, u64)) -> TableShape {
        self.next_id += 1;
        let (smallest, bytes) = (key(from), (bytes as u64).max(1));
        let epochs = EpochMap::from_segments(vec![EpochSegment { start: smallest.clone(), lo, hi }]).unwrap();
        let meta = TableMeta {
            id: self.next_id,
            file_bytes: bytes,
            largest: KeyEnd::Excluded(key(to)),
            smallest,
            entries: bytes / ENTRY,
            deletes: 0,
            range_tombstones: 0,
            raw_bytes: bytes,
            min_seq: lo,
            max_seq: hi,
            epochs,
            extra: TableExtra::default(),
        };
        self.total += bytes;
        self.written += bytes;
        TableShape { meta: Arc::new(meta), busy: false, free: true }
    }

    pub(super) fn flush(&mut self) {
        let epoch = self.next_epoch;
        self.next_epoch = epoch + 1;
        let share = self.flush_keys / self.universe;
        self.live = if self.distinct { self.live + share } else { 1.0 - (1.0 - self.live) * (1.0 - share) };
        let bytes = self.flush_keys * ENTRY as f64;
        let mut table = self.table(0.0, SPACE - 1.0, bytes, (epoch, epoch + 1));
        Arc::make_mut(&mut table.meta).extra.written = (self.shape.now, self.shape.now);
        self.flushed += table.bytes();
        self.next_id += 1;
        self.shape.levels[0].runs.insert(0, RunShape { id: self.next_id, tables: vec![table] });
    }

    /// Executes what is due until nothing is.
    fn settle(&mut self) {
        for steps in 0.. {
            let Some(plan) = self.policy.plan(&self.shape) else { return };
            assert!(steps < 100_000, "compaction does not terminate: {plan:?}");
            self.apply(&plan);
        }
    }

    pub(super) fn apply(&mut self, plan: &Plan) {
        let mut runs: Vec<Vec<TableShape>> = Vec::new();
        for input in &plan.inputs {
            let run = self.shape.levels[input.level].runs.iter_mut().find(|run| run.id == input.run).unwrap();
            let first = run.tables.iter().position(|table| table.id() == input.tables[0]).unwrap();
            let tables: Vec<TableShape> = run.tables.drain(first..first + input.tables.len()).collect();
            assert!(tables.iter().zip(&input.tables).all(|(table, id)| table.id() == *id));
            runs.push(tables);
        }
        self.shape.levels.iter_mut().for_each(|level| level.runs.retain(|run| !run.tables.is_empty()));
        let mut outputs = match plan.work {
            Work::Move => runs.into_iter().flatten().collect(),
            _ => self.merge(plan, &runs),
        };
        let id = match plan.output {
            OutputRun::Into(id) => id,
            OutputRun::New => self.next_id + 1,
        };
        self.next_id += 1;
        let runs = &mut self.shape.levels[plan.output_level].runs;
        let at = runs.partition_point(|run| run.id > id);
        if runs.get(at).is_none_or(|run| run.id != id) {
            runs.insert(at, RunShape { id, tables: Vec::new() });
        }
        runs[at].tables.append(&mut outputs);
        runs[at].tables.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
        assert!(runs[at].tables.windows(2).all(|pair| !pair[0].meta.overlaps(&pair[1].meta)));
    }

    fn merge(&mut self, plan: &Plan, runs: &[Vec<TableShape>]) -> Vec<TableShape> {
        let hulls = || runs.iter().flatten().map(|table| table.meta.epochs.hull());
        let lo = if plan.bottommost { 0 } else { hulls().map(|hull| hull.0).min().unwrap() };
        let epochs = (lo, hulls().map(|hull| hull.1).max().unwrap());
        let stretches: Vec<Vec<Stretch>> = runs
            .iter()
            .map(|tables| {
                let stretch = |t: &TableShape| {
                    let KeyEnd::Excluded(end) = &t.meta.largest else { panic!("all ends are excluded") };
                    let (from, to) = (position(&t.meta.smallest), position(end));
                    (from, to, t.bytes() as f64 / self.bytes_of((from, to, 1.0)))
                };
                tables.iter().map(stretch).collect()
            })
            .collect();
        self.total -= runs.iter().flatten().map(TableShape::bytes).sum::<u64>();
        let borders: Vec<f64> = plan.borders.iter().map(|border| position(border)).collect();
        let edges: Vec<f64> = plan.edges.iter().map(|edge| position(edge)).collect();
        let ends = borders.iter().chain(&edges).copied();
        let mut cuts: Vec<f64> = stretches.iter().flatten().flat_map(|s| [s.0, s.1]).chain(ends).collect();
        cuts.sort_by(f64::total_cmp);
        cuts.dedup();
        let mut places = vec![0; runs.len()];
        let (mut outputs, mut start, mut bytes) = (Vec::new(), None, 0.0);
        let max = plan.max_table_bytes as f64;
        for pair in cuts.windows(2) {
            let (mut from, to) = (pair[0], pair[1]);
            let (mut absent, mut sum) = (1.0, 0.0f64);
            for (run, place) in stretches.iter().zip(&mut places) {
                while run.get(*place).is_some_and(|s| s.1 <= from) {
                    *place += 1;
                }
                let share = run.get(*place).filter(|s| s.0 <= from).map_or(0.0, |s| s.2.min(1.0));
                absent *= 1.0 - share;
                sum += share;
            }
            let share = if self.distinct { sum.min(1.0) } else { 1.0 - absent };
            let is_among = |keys: &[f64]| keys.binary_search_by(|key| key.total_cmp(&from)).is_ok();
            if bytes > 0.0 && (is_among(&borders) || bytes >= max / 2.0 && is_among(&edges)) {
                outputs.push(self.table(start.take().unwrap(), from, bytes, epochs));
                bytes = 0.0;
            }
            while share > 0.0 && from < to {
                let room = (max - bytes).max(1.0) / self.bytes_of((0.0, SPACE, share)) * SPACE;
                let end = if from + room >= to { to } else { (from + room).ceil().min(to) };
                start = start.or(Some(from));
                bytes += self.bytes_of((from, end, share));
                from = end;
                if bytes >= max {
                    outputs.push(self.table(start.take().unwrap(), end, bytes, epochs));
                    bytes = 0.0;
                }
            }
        }
        if let Some(start) = start {
            outputs.push(self.table(start, cuts[cuts.len() - 1], bytes, epochs));
        }
        for table in &mut outputs {
            Arc::make_mut(&mut table.meta).extra.stretch.clone_from(&plan.stretch);
        }
        outputs
    }
}

/// Measurements and promises.
#[derive(Debug, Default)]
struct Measured {
    runs: usize,
    promised_runs: usize,
    space: f64,
    promised_space: f64,
    writes: f64,
    promised_writes: f64,
}

/// Runs `flushes` flushes, the first part of them to fill the tree; checks every level's runs,
/// space and writes.
fn measure(way: Way, universe: f64, warm: usize, flushes: usize) -> Measured {
    let mut policy = layered(way, 7);
    policy.base_bytes = 4 * KEYS as u64 * ENTRY;
    policy.table_bytes = (universe.min(flushes as f64 * KEYS) * ENTRY as f64 / 50.0) as u64;
    let mut sizes = Sizes::new(policy, universe);
    let mut measured = Measured::default();
    let mut start = (0, 0);
    for flush in 0..flushes {
        sizes.flush();
        sizes.settle();
        if flush == warm {
            start = (sizes.flushed, sizes.written);
        }
        // Not a divisor of any block of flushes, so that every phase of a round is seen.
        if flush % 7 == 0 || flush + 1 == flushes {
            let promise = sizes.policy.promise(&sizes.shape);
            for (level, bound) in promise.runs_per_level.iter().enumerate() {
                let runs = sizes.shape.runs(level).len();
                assert!(runs <= bound.unwrap(), "level {level}: {runs} runs of {bound:?} {way:?}");
            }
            let tables = sizes.shape.levels.iter().flat_map(|level| level.tables()).count();
            let most = promise.tables.unwrap();
            assert!(tables <= most, "{tables} tables of {most} after {flush} flushes {way:?}");
            let space = sizes.total as f64 / (sizes.live * universe * ENTRY as f64);
            let bound = promise.space_amplification.unwrap();
            assert!(space <= bound * 1.01, "space {space} of {bound} after {flush} flushes {way:?}");
            if flush >= warm {
                measured.runs = measured.runs.max(sizes.shape.levels.iter().map(|l| l.runs.len()).sum());
                measured.promised_runs = promise.runs_per_level.iter().flatten().sum();
                measured.space = measured.space.max(space);
                measured.promised_space = measured.promised_space.max(bound);
                measured.promised_writes = measured.promised_writes.max(promise.write_amplification.unwrap());
            }
        }
    }
    measured.writes = (sizes.written - start.1) as f64 / (sizes.flushed - start.0) as f64;
    assert!(measured.writes <= measured.promised_writes * 1.01, "{measured:?} {way:?}");
    measured
}

#[test]
fn promises_hold_over_a_million_flushes() {
    use Form::*;
    use Granularity::*;
    let ways = [
        (Leveling, Partial, false),
        (Leveling, Full, false),
        (Leveling, Partitioned, false),
        (Leveling, Full, true),
        (Tiering, Full, false),
        (Tiering, Full, true),
        (LazyLeveling, Partial, false),
        (LazyLeveling, Full, false),
        (LazyLeveling, Partitioned, false),
        (LazyLeveling, Partitioned, true),
        (Hybrid(2), Partial, false),
        (Hybrid(2), Partitioned, false),
    ];
    let mut table = String::from(
        "policy | merge | counted | T | runs | promised | space | promised | writes | promised\n",
    );
    let mut flushes = 0;
    for (choice, merge, deterministic) in ways {
        for size_ratio in [2, 4, 10] {
            let picker = Picker::LeastOverlap;
            let way = Way { choice, merge, deterministic, picker, size_ratio };
            let m = measure(way, 60_000.0, 5_000, 28_000);
            flushes += 28_000;
            table += &format!(
                "{choice} | {merge:?} | {deterministic} | {size_ratio} | {} | {} | {:.2} | {:.2} | {:.1} | {:.1}\n",
                m.runs, m.promised_runs, m.space, m.promised_space, m.writes, m.promised_writes,
            );
        }
    }
    assert!(flushes > 1_000_000);
    #[expect(clippy::print_stdout, reason = "measurements, visible with --nocapture")]
    {
        println!("{table}");
    }
}

#[test]
fn promises_hold_at_every_size_of_a_growing_tree() {
    use Form::*;
    for way in super::family::ways().into_iter().filter(|way| way.choice != Hybrid(3)) {
        measure(Way { size_ratio: 4, ..way }, 1e9, 100, 6_000);
    }
}
