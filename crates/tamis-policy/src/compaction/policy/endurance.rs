//! Millions of flushes on shapes alone: asserts what policies promise, on trees without entries.
//!
//! A table is a key range with an expected number of entries; a merge computes the expected number
//! for inputs whose keys are independent and uniformly distributed. The shape is changed in place,
//! so a flush costs microseconds. Order by age and the results of reads are checked by the
//! simulator.

use std::sync::Arc;

use tamis_base::epochs::{EpochMap, EpochSegment};
use tamis_base::key::{KeyBytes, KeyEnd};
use tamis_base::meta::{TableExtra, TableMeta};
use tamis_filter::Digest;

use crate::compaction::plan::{OutputRun, Plan, Work, is_guard};
use crate::compaction::policy::CompactionPolicy;
use crate::compaction::shape::{LevelShape, RunShape, Shape, TableShape};

/// Bytes of an entry.
const ENTRY: f64 = 16.0;

/// Entries of a flush or a table, uniformly distributed over the keys `from..to`.
#[derive(Clone, Copy, Debug)]
struct Spread {
    from: u32,
    to: u32,
    entries: f64,
}

struct Tree<P> {
    policy: P,
    shape: Shape,
    next_epoch: u64,
    next_id: u64,
    random: u64,
    flushed: f64,
    compacted: f64,
    plans: u64,
}

fn key(of: u32) -> KeyBytes {
    of.to_be_bytes()[..].into()
}

fn number(key: &[u8]) -> u32 {
    u32::from_be_bytes(key.try_into().expect("a key of this simulation"))
}

impl<P: CompactionPolicy> Tree<P> {
    fn new(policy: P, levels: usize) -> Self {
        let shape = Shape { levels: vec![LevelShape::default(); levels], ..Shape::default() };
        Tree { policy, shape, next_epoch: 1, next_id: 1, random: 7, flushed: 0.0, compacted: 0.0, plans: 0 }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn random(&mut self, below: u32) -> u32 {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.random >> 33) % u64::from(below)) as u32
    }

    fn table(&mut self, spread: Spread, written: (u64, u64), (lo, hi): (u64, u64)) -> TableShape {
        let meta = TableMeta {
            id: self.id(),
            file_bytes: (spread.entries * ENTRY) as u64,
            smallest: key(spread.from),
            largest: KeyEnd::Excluded(key(spread.to)),
            entries: spread.entries as u64,
            deletes: 0,
            range_tombstones: 0,
            raw_bytes: (spread.entries * ENTRY) as u64,
            min_seq: 1,
            max_seq: hi - 1,
            epochs: EpochMap::from_segments(vec![EpochSegment { start: key(spread.from), lo, hi }])
                .expect("a map"),
            extra: TableExtra { written, ..TableExtra::default() },
        };
        TableShape { meta: Arc::new(meta), busy: false, free: true }
    }

    fn flush(&mut self, spread: Spread) {
        let now = self.shape.now;
        let epoch = self.next_epoch;
        self.next_epoch += 1;
        let table = self.table(spread, (now, now), (epoch, epoch + 1));
        self.flushed += table.bytes() as f64;
        let id = self.id();
        self.shape.levels[0].runs.insert(0, RunShape { id, tables: vec![table] });
    }

    fn settle(&mut self) {
        for _ in 0..100_000 {
            let Some(plan) = self.policy.plan(&self.shape) else { return };
            self.apply(&plan);
        }
        panic!("the tree never becomes idle");
    }

    fn apply(&mut self, plan: &Plan) {
        self.plans += 1;
        let mut inputs = Vec::new();
        for input in &plan.inputs {
            let runs = &mut self.shape.levels[input.level].runs;
            let at = runs.iter().position(|run| run.id == input.run).expect("an input run");
            inputs.extend(runs[at].tables.extract_if(.., |table| input.tables.contains(&table.id())));
            if runs[at].tables.is_empty() {
                runs.remove(at);
            }
        }
        let outputs = match plan.work {
            Work::Drop => return,
            Work::Move => inputs,
            Work::Merge => self.merge(plan, &inputs),
        };
        let id = match plan.output {
            OutputRun::Into(id) => id,
            OutputRun::New => self.id(),
        };
        let runs = &mut self.shape.levels[plan.output_level].runs;
        let at = runs.partition_point(|run| run.id > id);
        if runs.get(at).is_none_or(|run| run.id != id) {
            runs.insert(at, RunShape { id, tables: Vec::new() });
        }
        let tables = &mut runs[at].tables;
        tables.extend(outputs);
        tables.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
        assert!(tables.windows(2).all(|pair| !pair[0].meta.overlaps(&pair[1].meta)), "outputs overlap");
    }

    fn merge(&mut self, plan: &Plan, inputs: &[TableShape]) -> Vec<TableShape> {
        let spread = |table: &TableShape| {
            let KeyEnd::Excluded(end) = &table.meta.largest else { unreachable!("as tables are made") };
            let entries = table.meta.file_bytes as f64 / ENTRY;
            Spread { from: number(&table.meta.smallest), to: number(end), entries }
        };
        let spreads: Vec<Spread> = inputs.iter().map(spread).collect();
        let written = || inputs.iter().map(|table| table.meta.extra.written);
        let span = (written().map(|w| w.0).min().unwrap(), written().map(|w| w.1).max().unwrap());
        let hulls = || inputs.iter().map(|table| table.meta.epochs.hull());
        let lowest = if plan.bottommost { 0 } else { hulls().map(|hull| hull.0).min().unwrap() };
        let epochs = (lowest, hulls().map(|hull| hull.1).max().unwrap());
        let mut cuts: Vec<u32> = spreads.iter().flat_map(|spread| [spread.from, spread.to]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let borders: Vec<u32> = plan.borders.iter().map(|border| number(border)).collect();
        let mut outputs: Vec<Spread> = Vec::new();
        let mut open: Option<Spread> = None;
        for part in cuts.windows(2) {
            let over: Vec<&Spread> =
                spreads.iter().filter(|s| s.from <= part[0] && part[1] <= s.to).collect();
            if over.is_empty() {
                continue;
            }
            let absent: f64 =
                over.iter().map(|s| 1.0 - (s.entries / f64::from(s.to - s.from)).min(1.0)).product();
            let density = 1.0 - absent;
            // Pieces of the part at whose ends the table may end: at known guards, at borders, or
            // when it is full.
            let mut at = part[0];
            while at < part[1] {
                let is_border = borders.binary_search(&at).is_ok()
                    || plan.guard_bits.is_some_and(|bits| {
                        let digest = Digest::of(&at.to_be_bytes());
                        is_guard(digest, bits) && (digest.get() >> 32) as f64 <= density * f64::from(u32::MAX)
                    });
                let is_full = open.is_some_and(|t| t.entries * ENTRY >= plan.max_table_bytes as f64);
                if is_border || is_full {
                    outputs.extend(open.take());
                }
                // Keys are taken in steps; a guard can only be at the start of a step.
                let step = if plan.guard_bits.is_some() { STEP } else { u32::MAX / 2 };
                let next = (at / step * step + step).min(part[1]);
                let table = open.get_or_insert(Spread { from: at, to: at, entries: 0.0 });
                table.to = next;
                table.entries += density * f64::from(next - at);
                at = next;
            }
        }
        outputs.extend(open);
        let made = outputs.into_iter().map(|spread| self.table(spread, span, epochs)).collect::<Vec<_>>();
        self.compacted += made.iter().map(|table| table.bytes() as f64).sum::<f64>();
        made
    }

    fn bytes(&self) -> u64 {
        self.shape.levels.iter().map(LevelShape::bytes).sum()
    }

    fn write_amplification(&self) -> f64 {
        (self.flushed + self.compacted) / self.flushed
    }

    /// The greatest number of tables over one key, per level.
    fn depths(&self) -> Vec<usize> {
        let depth = |level: &LevelShape| {
            let over = |key: &[u8]| level.tables().filter(|table| table.meta.covers(key)).count();
            level.tables().map(|table| over(&table.meta.smallest)).max().unwrap_or(0)
        };
        self.shape.levels.iter().map(depth).collect()
    }

    fn tables(&self) -> usize {
        self.shape.levels.iter().flat_map(LevelShape::tables).count()
    }

    /// Checks the promised numbers of runs and tables (and the promised space, if `live` keys
    /// live). Returns the depth of the fullest level relative to its bound, and the space relative
    /// to its bound.
    fn check(&self, live: Option<u32>) -> (f64, f64) {
        let promise = self.policy.promise(&self.shape);
        let most = promise.tables.expect("a bound");
        assert!(self.tables() <= most, "{} tables of {most}", self.tables());
        let mut fullest = 0f64;
        for (level, depth) in self.depths().into_iter().enumerate() {
            let most = promise.runs_per_level[level].expect("a bound");
            assert!(depth <= most, "level {level}: {depth} of {most}");
            fullest = fullest.max(depth as f64 / most.max(1) as f64);
        }
        let space = live.zip(promise.space_amplification).map_or(0.0, |(live, promised)| {
            let space = self.bytes() as f64 / (f64::from(live) * ENTRY);
            assert!(space <= promised, "{space} times the live data, {promised} promised");
            space / promised
        });
        (fullest, space)
    }

    #[expect(clippy::print_stdout, reason = "measurements, visible with --nocapture")]
    fn report(&self, what: &str, flushes: u64, fullest: f64, space: f64) {
        let written = self.write_amplification();
        let promised = self.policy.promise(&self.shape).write_amplification.expect("a bound");
        println!(
            "{what}: {flushes} flushes, {} plans; written {written:.2} of {promised:.2}; at most {:.0} % of the \
             runs and {:.0} % of the space promised",
            self.plans,
            100.0 * fullest,
            100.0 * space,
        );
        assert!(written <= promised, "{what}: {written} of {promised}");
    }
}

/// Keys that a merge of this simulation takes at once.
const STEP: u32 = 64;

mod runs {
    use std::time::Duration;

    use super::*;
    use crate::compaction::policy::{fifo::Fifo, fragmented::Fragmented, time_window::TimeWindow};
    use crate::compaction::settings::Settings;

    const KEYS: u32 = 1 << 15;
    const FLUSH: u32 = 16;

    fn settings(level0_runs: usize) -> Settings {
        Settings {
            memtable_bytes: u64::from(FLUSH) * ENTRY as u64,
            level0_runs,
            slowdown_runs: 2 * level0_runs,
            stop_runs: 4 * level0_runs,
            ..Settings::default()
        }
    }

    #[test]
    fn fragments_keep_their_promises_over_a_million_flushes() {
        for (ratio, name) in [(2, "T = 2"), (4, "T = 4"), (10, "T = 10")] {
            let level0_runs = 100;
            let policy = Fragmented::new(&Settings {
                size_ratio: ratio.into(),
                table_bytes: 1024 * ENTRY as u64,
                levels: 6,
                ..settings(level0_runs)
            });
            let mut tree = Tree::new(policy, 6);
            let (mut fullest, mut space) = (0f64, 0f64);
            let flushes = 350_000u64;
            for i in 0..flushes {
                // Thousands of flushes over all keys, then as many in a narrow moving range.
                let hot = (i / 20_000) % 3 == 2;
                let (from, width) = if hot { (tree.random(KEYS - 2048), 2048) } else { (0, KEYS) };
                tree.flush(Spread { from, to: from + width, entries: f64::from(FLUSH) });
                if (i + 1) % level0_runs as u64 == 0 {
                    tree.settle();
                    if (i / level0_runs as u64).is_multiple_of(20) {
                        // After 20,000 flushes nearly every key has been written.
                        let reached = tree.check((i > 20_000).then_some(KEYS));
                        (fullest, space) = (fullest.max(reached.0), space.max(reached.1));
                    }
                }
            }
            tree.report(&format!("fragmented, {name}"), flushes, fullest, space);
        }
    }

    #[test]
    fn first_in_first_out_keeps_its_promises_over_a_million_flushes() {
        let retain_bytes = 64 * u64::from(FLUSH) * ENTRY as u64;
        let policy = Fifo::new(&Settings { retain_bytes, table_bytes: 1 << 40, ..settings(4) });
        let mut tree = Tree::new(policy, 1);
        let mut fullest = 0f64;
        for i in 0..1_000_000u64 {
            let entries = 4 + tree.random(FLUSH - 3);
            tree.flush(Spread { from: 0, to: 1 << 30, entries: f64::from(entries) });
            tree.settle();
            assert!(tree.bytes() <= retain_bytes);
            if i.is_multiple_of(97) {
                fullest = fullest.max(tree.check(None).0);
            }
        }
        tree.report("fifo", 1_000_000, fullest, 0.0);
    }

    #[test]
    fn time_windows_keep_their_promises_over_a_million_flushes() {
        let policy = TimeWindow::new(&Settings {
            retain_bytes: 1000 * u64::from(FLUSH) * ENTRY as u64,
            time_window: Some(Duration::from_secs(200)),
            table_bytes: 1 << 40,
            ..settings(4)
        });
        let mut tree = Tree::new(policy, 1);
        let mut fullest = 0f64;
        for i in 0..1_000_000u64 {
            tree.shape.now += 1;
            if i.is_multiple_of(10_007) {
                tree.shape.now = tree.shape.now.saturating_sub(500);
            }
            tree.flush(Spread { from: 0, to: 1 << 30, entries: f64::from(FLUSH) });
            tree.settle();
            if i.is_multiple_of(97) {
                fullest = fullest.max(tree.check(None).0);
            }
        }
        tree.report("time-window", 1_000_000, fullest, 0.0);
    }
}

/// Flushes far smaller than a table.
mod small_flushes {
    use super::*;
    use crate::compaction::policy::policy_for;
    use crate::compaction::policy::tests::Named;
    use crate::compaction::settings::{Form, Granularity, Settings};

    /// Flushes in a full table.
    const TABLE: u64 = 4096;
    const FLUSH: u32 = 8;

    /// Every policy with every granularity that its options allow, by size and by flush count.
    fn all() -> Vec<Settings> {
        use Form::*;
        use Granularity::*;
        let flush = u64::from(FLUSH) * ENTRY as u64;
        let mut all = Vec::new();
        for form in [Leveling, Tiering, LazyLeveling, Hybrid(2), Fragmented, Fifo, TimeWindow] {
            for granularity in [Full, Partial, Partitioned] {
                for deterministic in [false, true] {
                    let settings = Settings {
                        form,
                        granularity,
                        deterministic,
                        size_ratio: 4.into(),
                        memtable_bytes: TABLE * flush,
                        table_bytes: TABLE * flush,
                        ..Settings::default()
                    };
                    if settings.are_consistent() {
                        // Flushed before they are full, and small memtables.
                        all.extend([settings.clone(), Settings { memtable_bytes: flush, ..settings }]);
                    }
                }
            }
        }
        all
    }

    fn name(settings: &Settings) -> String {
        let Settings { form, granularity, deterministic, memtable_bytes, .. } = settings;
        format!("{form}, {granularity:?}, counted: {deterministic}, memtables of {memtable_bytes} bytes")
    }

    #[expect(clippy::print_stdout, reason = "measurements, visible with --nocapture")]
    fn report(settings: &Settings, tree: &Tree<Named>) {
        let (tables, written) = (tree.tables(), tree.write_amplification());
        let promised = tree.policy.promise(&tree.shape).write_amplification.expect("a bound");
        println!(
            "{}: {tables} tables, written {written:.2} of {promised:.2}, {} plans",
            name(settings),
            tree.plans
        );
        let is_full = settings.memtable_bytes < settings.table_bytes;
        assert!(!is_full || written <= promised, "{}: {written} of {promised}", name(settings));
    }

    fn tree(settings: &Settings) -> Tree<Named> {
        Tree::new(Named(policy_for(settings)), settings.levels)
    }

    /// The tables beyond those of the promise without the keys at which a policy cuts its tables on
    /// purpose.
    fn tables_for_walls(tree: &Tree<Named>, table_bytes: u64) -> usize {
        let runs: usize = tree.shape.levels.iter().map(|level| level.runs.len()).sum();
        tree.tables().saturating_sub((tree.bytes() * 2 / table_bytes) as usize + 16 * runs)
    }

    /// Regression: 1,500 flushes of ten records with ascending keys left 1,500 files under every
    /// policy, as tables that overlap nothing were moved down and never merged.
    #[test]
    fn ascending_flushes_do_not_leave_a_table_each() {
        for settings in all() {
            let mut tree = tree(&settings);
            for i in 0..2_000 {
                tree.shape.now += 10;
                tree.flush(Spread { from: i * FLUSH, to: (i + 1) * FLUSH, entries: f64::from(FLUSH) });
                tree.settle();
                if i % 23 == 0 {
                    tree.check(None);
                }
            }
            report(&settings, &tree);
            assert_eq!(tables_for_walls(&tree, settings.table_bytes), 0, "{}", name(&settings));
        }
    }

    /// The same where flushes fall into gaps anywhere.
    #[test]
    fn scattered_flushes_do_not_leave_a_table_each() {
        for settings in all() {
            let mut tree = tree(&settings);
            for i in 0..500 {
                tree.shape.now += 10;
                let from = tree.random(1 << 20);
                tree.flush(Spread { from, to: from + FLUSH, entries: f64::from(FLUSH) });
                tree.settle();
                if i % 23 == 0 {
                    tree.check(None);
                }
            }
            report(&settings, &tree);
        }
    }

    /// A caller that compacts gets rid of nearly all of them, whatever is there.
    #[test]
    fn a_manual_compaction_joins_what_an_earlier_version_left() {
        for settings in all() {
            let mut tree = tree(&settings);
            let made: Vec<TableShape> = (0..1_500)
                .map(|i| {
                    let spread = Spread { from: i * FLUSH, to: (i + 1) * FLUSH, entries: f64::from(FLUSH) };
                    tree.table(spread, (1, 1), (1, 2))
                })
                .collect();
            let id = tree.id();
            let level = if tree.policy.drops_data() { 0 } else { settings.levels - 1 };
            tree.shape.levels[level].runs.push(RunShape { id, tables: made });
            while let Some(plan) = tree.policy.manual(&tree.shape, None) {
                assert!(tree.plans < 100, "{}: too many steps", name(&settings));
                tree.apply(&plan);
            }
            assert!(tree.tables() <= 16, "{}: {} tables", name(&settings), tree.tables());
            assert!(tree.policy.drops_data() || tree.tables() <= 2, "{}: {}", name(&settings), tree.tables());
        }
    }
}
