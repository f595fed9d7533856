//! A simulated tree for testing policies: real merges of real keys, in memory, with jobs that run
//! in parallel and end in any order. After every step it checks that no two jobs conflict and that
//! runs stay sorted; on request, it checks that every key reads back and that epochs are disjoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use tamis_base::collections::{HashMap, HashSet};
use tamis_base::epochs::EpochMap;
use tamis_base::ids::{RunId, TableId};
use tamis_base::key::{KeyBytes, KeyEnd};
use tamis_base::meta::{OldestDelete, TableExtra, TableMeta};
use tamis_filter::Digest;

use crate::compaction::plan::{OutputRun, Plan, Work, is_guard};
use crate::compaction::policy::layered::Layered;
use crate::compaction::policy::{CompactionPolicy, Pressure};
use crate::compaction::settings::Settings;
use crate::compaction::shape::{KeyRange, LevelShape, RunShape, RunningJob, Shape, TableShape};

/// Bytes of an entry on the simulated disk.
pub(crate) const ENTRY: u64 = 10;
/// Keys in a flush.
pub(crate) const FLUSH: usize = 32;

/// A key's newest version: when it was written, and whether it is a delete.
pub(crate) type Version = (u64, bool);
pub(crate) type Entries = Vec<(u16, Version)>;

pub(crate) struct Job {
    pub(crate) plan: Plan,
}

pub(crate) struct Sim<P> {
    pub(crate) policy: P,
    /// Per level the runs, newest first, each with its tables in key order.
    pub(crate) levels: Vec<Vec<(RunId, Vec<Arc<TableMeta>>)>>,
    pub(crate) content: HashMap<TableId, Entries>,
    pub(crate) jobs: Vec<Job>,
    /// The expected result of reading each key.
    pub(crate) expected: BTreeMap<u16, Version>,
    pub(crate) next_id: u64,
    pub(crate) seq: u64,
    pub(crate) random: u64,
    pub(crate) flushed_bytes: u64,
    pub(crate) compacted_bytes: u64,
    pub(crate) moves: usize,
    /// The newest version dropped for its age or for lack of space: anything written up to then may
    /// be gone.
    pub(crate) dropped: u64,
    /// The time that shapes report.
    pub(crate) now: u64,
    /// When each number was flushed.
    pub(crate) times: HashMap<u64, u64>,
    pub(crate) expired: u64,
    pub(crate) room: Option<u64>,
}

impl<P: CompactionPolicy> Sim<P> {
    pub(crate) fn new(policy: P, levels: usize, seed: u64) -> Self {
        Sim {
            levels: vec![Vec::new(); levels],
            policy,
            content: HashMap::default(),
            jobs: Vec::new(),
            expected: BTreeMap::new(),
            next_id: 1,
            seq: 0,
            random: seed,
            flushed_bytes: 0,
            compacted_bytes: 0,
            moves: 0,
            dropped: 0,
            now: 0,
            times: HashMap::default(),
            expired: 0,
            room: None,
        }
    }

    /// Puts the same tree, including its running jobs, under another policy.
    pub(crate) fn under<Q: CompactionPolicy>(self, policy: Q) -> Sim<Q> {
        Sim {
            policy,
            levels: self.levels,
            content: self.content,
            jobs: self.jobs,
            expected: self.expected,
            next_id: self.next_id,
            seq: self.seq,
            random: self.random,
            flushed_bytes: self.flushed_bytes,
            compacted_bytes: self.compacted_bytes,
            moves: self.moves,
            dropped: self.dropped,
            now: self.now,
            times: self.times,
            expired: self.expired,
            room: self.room,
        }
    }

    /// The greatest number of tables over any key ever written, per level: what a read may have to
    /// check.
    pub(crate) fn depths(&self) -> Vec<usize> {
        let over = |runs: &[(RunId, Vec<Arc<TableMeta>>)], key: u16| {
            let bytes = key.to_be_bytes();
            let covers = |tables: &[Arc<TableMeta>]| {
                let at = tables.partition_point(|table| !table.largest.reaches(&bytes));
                tables.get(at).is_some_and(|table| table.covers(&bytes))
            };
            runs.iter().filter(|(_, tables)| covers(tables)).count()
        };
        let deepest = |runs: &Vec<_>| self.expected.keys().map(|&key| over(runs, key)).max().unwrap_or(0);
        self.levels.iter().map(deepest).collect()
    }

    pub(crate) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn random(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) as usize % below
    }

    pub(crate) fn table(
        &mut self,
        entries: Entries,
        written: (u64, u64),
        epochs: impl FnOnce(&KeyBytes, &KeyEnd) -> EpochMap,
    ) -> Arc<TableMeta> {
        let id = self.id();
        let smallest: KeyBytes = entries[0].0.to_be_bytes()[..].into();
        let largest = KeyEnd::Included(entries[entries.len() - 1].0.to_be_bytes()[..].into());
        let deletes = entries.iter().filter(|(_, (_, is_delete))| *is_delete);
        let oldest = deletes.map(|(_, (seq, _))| *seq).min();
        let oldest_delete =
            oldest.map(|seq| OldestDelete { seq, since: self.times.get(&seq).copied().unwrap_or(written.0) });
        let meta = TableMeta {
            id,
            file_bytes: entries.len() as u64 * ENTRY,
            entries: entries.len() as u64,
            deletes: entries.iter().filter(|(_, (_, is_delete))| *is_delete).count() as u64,
            range_tombstones: 0,
            raw_bytes: entries.len() as u64 * ENTRY,
            min_seq: entries.iter().map(|(_, (seq, _))| *seq).min().unwrap(),
            max_seq: entries.iter().map(|(_, (seq, _))| *seq).max().unwrap(),
            epochs: epochs(&smallest, &largest),
            extra: TableExtra { written, oldest_delete, ..TableExtra::default() },
            smallest,
            largest,
        };
        self.content.insert(id, entries);
        Arc::new(meta)
    }

    pub(crate) fn flush(&mut self, keys: impl IntoIterator<Item = u16>, deletes_in_16: usize) {
        self.seq += 1;
        self.times.insert(self.seq, self.now);
        let mut versions = BTreeMap::new();
        for key in keys {
            versions.insert(key, (self.seq, self.random(16) < deletes_in_16));
        }
        self.expected.extend(&versions);
        let epoch = self.seq;
        let written = (self.now, self.now);
        let table = self.table(versions.into_iter().collect(), written, |smallest, _| {
            EpochMap::flush(smallest.clone(), epoch)
        });
        self.flushed_bytes += table.file_bytes;
        let run = self.id();
        self.levels[0].insert(0, (run, vec![table]));
    }

    pub(crate) fn shape(&self) -> Shape {
        let busy: HashSet<TableId> = self.jobs.iter().flat_map(|job| job.plan.tables()).collect();
        let table = |meta: &Arc<TableMeta>| {
            let busy = busy.contains(&meta.id);
            TableShape { meta: meta.clone(), busy, free: !busy }
        };
        let run = |(id, tables): &(RunId, Vec<Arc<TableMeta>>)| RunShape {
            id: *id,
            tables: tables.iter().map(table).collect(),
        };
        let running = self
            .jobs
            .iter()
            .map(|Job { plan }| {
                let levels = || plan.inputs.iter().map(|input| input.level);
                RunningJob {
                    input_levels: (levels().min().unwrap(), levels().max().unwrap()),
                    output_level: plan.output_level,
                    output: plan.output,
                    range: plan.range.clone(),
                }
            })
            .collect();
        let levels =
            self.levels.iter().map(|runs| LevelShape { runs: runs.iter().map(run).collect() }).collect();
        Shape {
            levels,
            running,
            room: self.room,
            now: self.now,
            expired: self.expired,
            snapshots: Vec::new(),
            settling: false,
        }
    }

    /// Starts the most urgent job after checking its plan.
    pub(crate) fn start(&mut self) -> bool {
        let shape = self.shape();
        let Some(plan) = self.policy.plan(&shape) else { return false };
        self.begin(&shape, plan);
        true
    }

    pub(crate) fn begin(&mut self, shape: &Shape, plan: Plan) {
        let tables: HashMap<TableId, &TableShape> =
            shape.levels.iter().flat_map(|level| level.tables()).map(|t| (t.id(), t)).collect();
        let inputs: Vec<&TableShape> =
            plan.tables().map(|id| *tables.get(&id).expect("an input is in the tree")).collect();
        assert!(inputs.iter().all(|table| !table.busy), "a busy input: {plan:?}");
        assert_eq!(Some(&plan.range), KeyRange::hull(inputs.iter().copied()).as_ref());
        assert!(plan.borders.is_sorted() && plan.borders.iter().all(|b| plan.range.largest.reaches(b)));
        self.jobs.push(Job { plan });
    }

    /// Ends job `i`: its outputs replace its inputs.
    pub(crate) fn finish(&mut self, i: usize) {
        let Job { plan } = self.jobs.remove(i);
        self.check_age(&plan);
        let inputs: HashSet<TableId> = plan.tables().collect();
        let mut taken: Vec<Arc<TableMeta>> = Vec::new();
        for runs in &mut self.levels {
            for (_, tables) in runs.iter_mut() {
                taken.extend(tables.extract_if(.., |table| inputs.contains(&table.id)));
            }
            runs.retain(|(_, tables)| !tables.is_empty());
        }
        assert_eq!(taken.len(), inputs.len());
        let outputs = match plan.work {
            Work::Move => {
                self.moves += 1;
                taken
            }
            Work::Merge => self.merge(&plan, &taken),
            Work::Drop => {
                self.dropped = taken.iter().map(|t| t.max_seq).max().unwrap_or(0).max(self.dropped);
                Vec::new()
            }
        };
        if outputs.is_empty() {
            return;
        }
        let id = match plan.output {
            OutputRun::Into(id) => id,
            OutputRun::New => self.id(),
        };
        let level = &mut self.levels[plan.output_level];
        let at = level.partition_point(|(run, _)| *run > id);
        if level.get(at).is_none_or(|(run, _)| *run != id) {
            level.insert(at, (id, Vec::new()));
        }
        let tables = &mut level[at].1;
        tables.extend(outputs);
        tables.sort_by(|a, b| a.smallest.cmp(&b.smallest));
        assert!(tables.windows(2).all(|pair| !pair[0].overlaps(&pair[1])), "outputs overlap: {plan:?}");
    }

    /// Checks that every table outside the plan that shares keys with inputs is newer than all of
    /// them or older than all of them, and that the outputs go between.
    pub(crate) fn check_age(&self, plan: &Plan) {
        let inputs: HashSet<TableId> = plan.tables().collect();
        let is_input = |t: &Arc<TableMeta>| inputs.contains(&t.id);
        let id = match plan.output {
            OutputRun::Into(id) => id,
            OutputRun::New => u64::MAX,
        };
        // Places in age order: by level, then by run number, descending.
        let place = |level: usize, run: RunId| (level, std::cmp::Reverse(run));
        let output = place(plan.output_level, id);
        let all = || {
            self.levels.iter().enumerate().flat_map(move |(level, runs)| {
                runs.iter().flat_map(move |(run, tables)| tables.iter().map(move |t| (place(level, *run), t)))
            })
        };
        let inside: Vec<_> = all().filter(|(_, t)| is_input(t)).collect();
        for (outside_at, outside) in all().filter(|(_, t)| !is_input(t)) {
            for &(input_at, input) in inside.iter().filter(|(_, t)| t.overlaps(outside)) {
                if plan.work == Work::Drop {
                    assert!(outside_at < input_at, "a table older than the dropped ones remains: {plan:?}");
                } else {
                    assert_ne!(outside_at, output, "the output run keeps an overlapping table: {plan:?}");
                    let (before, after) = (outside_at < input_at, outside_at < output);
                    assert_eq!(before, after, "{input:?} passes {outside:?}: {plan:?}");
                }
            }
        }
    }

    pub(crate) fn merge(&mut self, plan: &Plan, inputs: &[Arc<TableMeta>]) -> Vec<Arc<TableMeta>> {
        let mut newest: BTreeMap<u16, Version> = BTreeMap::new();
        for (key, version) in inputs.iter().flat_map(|table| self.content.remove(&table.id).unwrap()) {
            newest.entry(key).and_modify(|known| *known = version.max(*known)).or_insert(version);
        }
        if plan.bottommost {
            newest.retain(|_, (_, is_delete)| !*is_delete);
        }
        let parts: Vec<(&EpochMap, &[u8], &KeyEnd)> =
            inputs.iter().map(|t| (&t.epochs, &t.smallest[..], &t.largest)).collect();
        let spans = || inputs.iter().map(|t| t.extra.written);
        let written = (spans().map(|s| s.0).min().unwrap(), spans().map(|s| s.1).max().unwrap());
        let mut outputs = Vec::new();
        let mut entries: Entries = Vec::new();
        let mut newest = newest.into_iter().peekable();
        while let Some((key, version)) = newest.next() {
            entries.push((key, version));
            let is_full = entries.len() as u64 * ENTRY >= plan.max_table_bytes;
            let is_half_full = entries.len() as u64 * ENTRY >= plan.max_table_bytes / 2;
            let at_edge =
                is_half_full && newest.peek().is_some_and(|(next, _)| is_between(&plan.edges, key, *next));
            let at_border = newest.peek().is_some_and(|(next, _)| {
                plan.guard_bits.is_some_and(|bits| is_guard(Digest::of(&next.to_be_bytes()), bits))
                    || is_between(&plan.borders, key, *next)
            });
            if is_full || at_border || at_edge || newest.peek().is_none() {
                let table = self.table(std::mem::take(&mut entries), written, |smallest, largest| {
                    let map = EpochMap::merge(&parts, smallest, largest);
                    if plan.bottommost { map.reaching_down() } else { map }
                });
                self.compacted_bytes += table.file_bytes;
                let mut meta = (*table).clone();
                meta.extra.stretch.clone_from(&plan.stretch);
                outputs.push(Arc::new(meta));
            }
        }
        outputs
    }

    /// Runs jobs until the tree is idle.
    pub(crate) fn settle(&mut self) {
        for job in 0.. {
            assert!(
                job < 10_000,
                "a plan without progress is repeated forever: {:?}",
                self.policy.plan(&self.shape())
            );
            while self.start() {}
            if self.jobs.is_empty() {
                return;
            }
            let i = self.random(self.jobs.len());
            self.finish(i);
        }
    }

    /// Simulates the time between two flushes: up to `threads` jobs run, and some end.
    pub(crate) fn work(&mut self, threads: usize) {
        for _ in 0..4 {
            while self.jobs.len() < threads && self.start() {}
            if !self.jobs.is_empty() && self.random(2) == 0 {
                let i = self.random(self.jobs.len());
                self.finish(i);
            }
        }
        while self.policy.write_pressure(&self.shape()) == Pressure::Stop {
            while self.jobs.len() < threads && self.start() {}
            assert!(!self.jobs.is_empty(), "writes wait, but no job is running");
            let i = self.random(self.jobs.len());
            self.finish(i);
        }
    }

    /// Returns the tables from the newest data to the oldest.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TableMeta>> {
        self.levels.iter().flatten().flat_map(|(_, tables)| tables)
    }

    pub(crate) fn bytes(&self, level: usize) -> u64 {
        self.levels[level].iter().flat_map(|(_, tables)| tables).map(|t| t.file_bytes).sum()
    }

    /// Checks that every key reads as last written and that the tables over it have disjoint
    /// epochs.
    pub(crate) fn check_reads(&self) {
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
                None if expected.0 <= self.dropped => {}
                None => assert!(expected.1, "key {key} is lost: {expected:?}"),
                Some(found) => assert_eq!(found, expected, "key {key}"),
            }
            intervals.retain(|(lo, hi)| lo < hi);
            intervals.sort_unstable();
            assert!(intervals.windows(2).all(|w| w[0].1 <= w[1].0), "epochs at key {key}: {intervals:?}");
        }
    }
}

/// Reports whether a table that ends at one of `keys` ends between these two.
fn is_between(keys: &[KeyBytes], last: u16, next: u16) -> bool {
    let at = keys.partition_point(|key| key[..] <= last.to_be_bytes()[..]);
    keys.get(at).is_some_and(|key| key[..] <= next.to_be_bytes()[..])
}

/// Leveling with memtables and tables of `batch` bytes, for building a tree that another policy
/// takes over.
pub(crate) fn small_leveling(batch: u64, levels: usize) -> Layered {
    Layered::new(&Settings {
        memtable_bytes: batch,
        table_bytes: batch,
        size_ratio: 4.into(),
        level0_runs: 4,
        levels,
        slowdown_runs: 8,
        stop_runs: 12,
        ..Settings::default()
    })
}
