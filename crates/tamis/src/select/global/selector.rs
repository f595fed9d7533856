//! One version's view of the global filter: maps the codes that a key matches to candidate tables.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use tamis_base::key::{KeyBytes, KeyEnd, prefix_of};
use tamis_base::meta::TableMeta;
use tamis_filter::global::{Ahead, Epoch, Epochs, NO_BOUND, Partition};
use tamis_filter::{Digest, Filter};

use super::cell::{Cell, CellDirectory};
use super::span::spans_within;
use crate::observe::cost::ReadCost;
use crate::options::PrefixFilter;
use crate::select::checks::check_rejection;
use crate::select::probe::{LeanKey, Probe};
use crate::select::run_selector::{Candidate, Candidates, MAX_STEP, RunSelector, WholeTree};
use crate::select::table_filters::{ask_filter, take_answer};
use crate::selector::RangeRuns;
use crate::tree::open_table::OpenTable;
use crate::tree::version::{Run, Version};

/// The most empty ranges that one iterator probe skips.
const EMPTY_STRETCHES: usize = 16;

/// Batch keys whose cache misses overlap. Each holds a partition; a thread can hold eight cheaply.
const AT_ONCE: usize = 8;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct GlobalSelector {
    directory: Arc<CellDirectory>,
    /// The key prefixes that the cells know.
    prefixes: PrefixFilter,
    by_epoch: RunsByEpoch,
    /// By run, the hull of its tables' epochs.
    hulls: Vec<Epochs>,
    /// By run, whether all its tables have the epochs of the hull at each of their keys.
    uniform_runs: Vec<bool>,
    /// By table, its epochs, if the same at each of its keys.
    uniform: Vec<Option<Epochs>>,
    /// By run, whether some of its tables have keys that the filter lacks.
    lacking_runs: Vec<bool>,
    /// By table; empty if the filter lacks none.
    lacking: Vec<bool>,
    /// By table, its own filter while it is [young](super::young).
    young: Vec<Option<Arc<Filter>>>,
    /// Keeps the version among the live ones.
    _alive: LiveTables,
}

/// The tables of a version, which counts as live while this is held.
pub(crate) type LiveTables = Arc<Vec<Arc<TableMeta>>>;

/// Codes of the entries that match a key: as many as the runs that its few neighbours lie in.
type Codes = SmallVec<[Epochs; 32]>;

/// The runs of a version in epoch order, so that a code finds its runs without checking all others.
#[derive(Debug)]
struct RunsByEpoch {
    /// Sorted by first epoch: the hull of a run's epochs, the latest epoch end so far, and the run.
    runs: Vec<(Epochs, Epoch, u32)>,
}

impl RunsByEpoch {
    fn new(hulls: &[Epochs]) -> RunsByEpoch {
        let mut runs: Vec<_> = (0..).zip(hulls).map(|(run, hull)| (*hull, hull.hi, run)).collect();
        runs.sort_unstable_by_key(|(hull, _, run)| (hull.lo, *run));
        let mut latest = 0;
        for (_, end, _) in &mut runs {
            latest = latest.max(*end);
            *end = latest;
        }
        RunsByEpoch { runs }
    }

    /// Calls `met` with each run that has epochs in common with `code`. Costs a binary search and
    /// one step per such run, if the epochs of runs are disjoint.
    #[inline]
    fn meeting(&self, code: Epochs, mut met: impl FnMut(u32)) {
        let end = self.runs.partition_point(|(hull, ..)| hull.lo < code.hi);
        for &(hull, latest, run) in self.runs[..end].iter().rev() {
            if latest <= code.lo {
                break;
            }
            if hull.intersects(code) {
                met(run);
            }
        }
    }
}

impl GlobalSelector {
    pub(super) fn new(
        directory: Arc<CellDirectory>,
        prefixes: PrefixFilter,
        alive: LiveTables,
        version: &Version,
        lacking: Vec<bool>,
        young: Vec<Option<Arc<Filter>>>,
    ) -> GlobalSelector {
        let Version { runs, tables, .. } = version;
        let uniform = |table: &Arc<OpenTable>| match table.meta.epochs.segments() {
            [one] => Some(Epochs { lo: one.lo, hi: one.hi }),
            _ => None,
        };
        let hull = |run: &Run| {
            let spans = tables[run.tables.clone()].iter().map(|table| table.meta.epochs.hull());
            let spans = spans.filter(|(lo, hi)| lo < hi);
            let (lo, hi) = spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or_default();
            Epochs { lo, hi }
        };
        let hulls: Vec<Epochs> = runs.iter().map(hull).collect();
        let uniform: Vec<Option<Epochs>> = tables.iter().map(uniform).collect();
        let uniform_runs = runs.iter().zip(&hulls);
        let uniform_runs =
            uniform_runs.map(|(run, hull)| uniform[run.tables.clone()].iter().all(|t| *t == Some(*hull)));
        let lacking_runs = runs.iter().map(|run| lacking[run.tables.clone()].contains(&true)).collect();
        GlobalSelector {
            directory,
            prefixes,
            uniform_runs: uniform_runs.collect(),
            by_epoch: RunsByEpoch::new(&hulls),
            hulls,
            uniform,
            lacking_runs,
            lacking: if lacking.contains(&true) { lacking } else { Vec::new() },
            young,
            _alive: alive,
        }
    }

    /// Reports whether a table meets one of `codes` at `key`.
    #[inline]
    fn meets(&self, version: &Version, table: usize, key: &[u8], codes: &[Epochs]) -> bool {
        let epochs = match self.uniform[table] {
            Some(epochs) => epochs,
            None => {
                let (lo, hi) = version.tables[table].meta.epochs.at(key);
                Epochs { lo, hi }
            }
        };
        codes.iter().any(|code| code.intersects(epochs))
    }

    #[inline]
    fn lacks(&self, table: usize) -> bool {
        self.lacking.get(table).copied().unwrap_or(false)
    }

    /// Probes a table that the global filter knows nothing about, by the table's own filter if any.
    fn ask_table(
        &self,
        version: &Version,
        (run, table): (usize, usize),
        probe: &mut Probe<'_>,
        out: &mut Candidates,
        cost: &mut ReadCost,
    ) {
        let answer = match &self.young[table] {
            Some(filter) => Some(ask_filter(filter, probe, cost)),
            None => version.tables[table].with_filter(|filter| ask_filter(filter, probe, cost)),
        };
        take_answer(version, (run, table), answer, probe.key, out);
    }

    #[cold]
    fn ask_all_tables(
        &self,
        version: &Version,
        probe: &mut Probe<'_>,
        runs: Range<usize>,
        out: &mut Candidates,
        cost: &mut ReadCost,
    ) {
        for run in runs {
            if let Some(table) = version.table_for(&version.runs[run], probe.key, probe.prefix) {
                self.ask_table(version, (run, table), probe, out, cost);
            }
        }
    }

    /// Returns a bit for each run with a table that the global filter knows nothing about, and that
    /// may have the key.
    fn mask_of_lacking(
        &self,
        version: &Version,
        key: &LeanKey<'_>,
        runs: Range<usize>,
        cost: &mut ReadCost,
    ) -> u32 {
        let mut mask = 0;
        for run in runs.clone().filter(|run| self.lacking_runs[*run]) {
            let table = version.table_for(&version.runs[run], key.key, key.prefix);
            let Some(table) = table.filter(|table| self.lacks(*table)) else { continue };
            let mut denies = |filter: &Filter| match filter {
                Filter::Point(filter) => {
                    cost.filter_probes += 1;
                    !filter.contains(key.digest)
                }
                Filter::Range(_) => false,
            };
            let denied = match &self.young[table] {
                Some(filter) => denies(filter),
                None => version.tables[table].with_filter(denies).unwrap_or(false),
            };
            mask |= u32::from(!denied) << (run - runs.start);
        }
        mask
    }

    /// Returns this cell's codes of the longest known prefix that all keys from `start` up to `end`
    /// share.
    fn prefix_codes(
        &self,
        cell: &Cell,
        start: &[u8],
        end: Option<&[u8]>,
        cost: &mut ReadCost,
    ) -> Option<Codes> {
        let prefix = self.prefixes.covering(start, end)?;
        let partition = cell.prefixes.load();
        let partition = partition.as_ref()?;
        cost.digests += 1;
        let mut codes = Codes::new();
        partition.probe(prefix, Digest::of(prefix), |code| codes.push(code));
        if partition.last_is_unknown() {
            codes.push(Epochs { lo: 0, hi: partition.base() });
        }
        Some(codes)
    }

    /// Reports whether a walk `within` a part of a range would name nearly all runs, with no known
    /// prefix of the `whole` range to exclude any.
    fn walks_in_vain(
        &self,
        partition: &Partition,
        within: (&[u8], Option<&[u8]>),
        whole: (&[u8], Option<&[u8]>),
    ) -> bool {
        partition.walks_in_vain(within.0, within.1) && self.prefixes.covering(whole.0, whole.1).is_none()
    }

    /// Returns a key after all keys of the version; `None` if a table has no end.
    fn end(version: &Version) -> Option<Vec<u8>> {
        let mut end = Vec::new();
        for run in &version.runs {
            match &version.tables[run.tables.end - 1].meta.largest {
                KeyEnd::Included(key) => end = end.max([key, &[0][..]].concat()),
                KeyEnd::Excluded(key) => end = end.max(key.to_vec()),
                KeyEnd::Unbounded => return None,
            }
        }
        Some(end)
    }

    /// Reports whether some table of `run`, whose hull meets `code`, overlaps the keys from `start`
    /// up to `end` and meets it there.
    fn meets_within(
        &self,
        version: &Version,
        run: usize,
        code: Epochs,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> bool {
        if self.uniform_runs[run] {
            // True of any table. A table without keys in the range costs a bounds check, not a
            // block read.
            return true;
        }
        let tables = &version.runs[run].tables;
        let first = version.first_reaching(tables, start);
        (first..tables.end)
            .take_while(|&table| end.is_none_or(|end| version.tables[table].meta.smallest[..] < *end))
            .any(|table| match self.uniform[table] {
                Some(epochs) => epochs.intersects(code),
                None => {
                    let epochs = &version.tables[table].meta.epochs;
                    spans_within(epochs, start, end).any(|span| span.intersects(code))
                }
            })
    }

    /// Lists in `out` the runs that meet a code found by the walk, each with its first bound, and
    /// the runs that the filter knows nothing about.
    fn list_runs(&self, version: &Version, walk: Walk<'_>, out: &mut RangeRuns) {
        let Walk { partition, ahead, start, end, backward, prefix } = walk;
        let mut numbers: SmallVec<[(u32, u64); 32]> = SmallVec::new();
        for &(code, number) in &ahead.found {
            self.by_epoch.meeting(code, |run| {
                if self.meets_within(version, run as usize, code, start, end) {
                    numbers.push((run, number));
                }
            });
        }
        let last = Epochs { lo: 0, hi: partition.base() };
        let last_is_unknown = partition.last_is_unknown();
        let unknown =
            |run: usize| self.lacking_runs[run] || last_is_unknown && self.hulls[run].intersects(last);
        let some_unknown = last_is_unknown || !self.lacking.is_empty();
        if some_unknown {
            numbers.extend(
                (0..).zip(&self.hulls).map(|(run, _)| (run, 0)).filter(|(run, _)| unknown(*run as usize)),
            );
        }
        numbers.sort_unstable();
        let mut bound = Vec::new();
        // A run merged from several runs may meet several codes.
        for of_run in numbers.chunk_by(|a, b| a.0 == b.0) {
            let run = of_run[0].0 as usize;
            if some_unknown && unknown(run) {
                out.push(run, if backward { end.expect("backward walks have an end") } else { start });
                continue;
            }
            let (_, number) = of_run[if backward { of_run.len() - 1 } else { 0 }];
            let has_prefix = |code: &Epochs| {
                code.intersects(self.hulls[run]) && self.meets_within(version, run, *code, start, end)
            };
            if prefix.is_some_and(|codes| !codes.iter().any(has_prefix)) {
                continue;
            }
            match number {
                NO_BOUND => bound.clear(),
                number => partition.lower_key(number, &mut bound),
            }
            if !backward {
                out.push(run, if bound[..] > *start { &bound } else { start });
            } else {
                let end = end.expect("backward walks have an end");
                out.push(run, if bound[..] < *end && bound[..] > *start { &bound } else { end });
            }
        }
    }
}

/// A walk through part of one partition.
struct Walk<'w> {
    partition: &'w Partition,
    ahead: &'w Ahead,
    start: &'w [u8],
    end: Option<&'w [u8]>,
    backward: bool,
    /// The codes of the known prefix, if any, that all keys between start and end share.
    prefix: Option<&'w Codes>,
}

impl RunSelector for GlobalSelector {
    fn select(
        &self,
        version: &Version,
        probe: &mut Probe<'_>,
        runs: Range<usize>,
        out: &mut Candidates,
        cost: &mut ReadCost,
    ) {
        let digest = probe.digest_for_filter(cost);
        let cell = self.directory.cell(self.directory.find(probe.key, probe.prefix));
        let partition = cell.partition.load();
        let Some(partition) = &*partition else {
            return self.ask_all_tables(version, probe, runs, out, cost);
        };
        cost.filter_probes += 1;
        let mut codes = Codes::new();
        partition.probe(probe.key, digest, |code| codes.push(code));
        if partition.last_is_unknown() {
            codes.push(Epochs { lo: 0, hi: partition.base() });
        }
        if !codes.is_empty() || !self.lacking.is_empty() {
            let mut met: SmallVec<[u32; 64]> = SmallVec::new();
            codes.iter().for_each(|code| self.by_epoch.meeting(*code, |run| met.push(run)));
            if !self.lacking.is_empty() {
                met.extend((0..).zip(&self.lacking_runs).filter(|(_, lacks)| **lacks).map(|(run, _)| run));
            }
            met.sort_unstable();
            met.dedup();
            for run in met.into_iter().map(|run| run as usize).filter(|run| runs.contains(run)) {
                let Some(table) = version.table_for(&version.runs[run], probe.key, probe.prefix) else {
                    continue;
                };
                if self.lacks(table) {
                    self.ask_table(version, (run, table), probe, out, cost);
                } else if self.meets(version, table, probe.key, &codes) {
                    out.push(Candidate { run, table, filtered: true });
                }
            }
        }
        cost.filter_negatives += u64::from(out.is_empty());
        if cfg!(debug_assertions) {
            for run in runs {
                let table = version.table_for(&version.runs[run], probe.key, probe.prefix);
                if let Some(table) = table.filter(|table| !out.iter().any(|c| c.table == *table)) {
                    check_rejection(version, table, probe.key);
                }
            }
        }
    }

    fn answers_many(&self) -> bool {
        // A mask has a bit for each run.
        self.hulls.len() <= MAX_STEP
    }

    fn select_many(
        &self,
        version: &Version,
        keys: &[LeanKey<'_>],
        runs: Range<usize>,
        masks: &mut [u32],
        cost: &mut ReadCost,
    ) {
        let everywhere = u32::MAX >> (u32::BITS as usize - runs.len().clamp(1, MAX_STEP));
        for (keys, masks) in keys.chunks(AT_ONCE).zip(masks.chunks_mut(AT_ONCE)) {
            let cell_of = |key: &LeanKey<'_>| self.directory.cell(self.directory.find(key.key, key.prefix));
            let partitions: SmallVec<[_; AT_ONCE]> =
                keys.iter().map(|key| cell_of(key).partition.load()).collect();
            let mut positions = [0; AT_ONCE];
            for ((position, key), partition) in positions.iter_mut().zip(keys).zip(&partitions) {
                if let Some(partition) = &**partition {
                    *position = partition.position(key.key, key.digest);
                    partition.prefetch_directory(*position);
                }
            }
            for (position, partition) in positions.iter().zip(&partitions) {
                partition.iter().for_each(|partition| partition.prefetch(*position));
            }
            for (((mask, key), position), partition) in
                masks.iter_mut().zip(keys).zip(positions).zip(&partitions)
            {
                let Some(partition) = &**partition else {
                    *mask = everywhere;
                    continue;
                };
                *mask = 0;
                let mut codes = Codes::new();
                partition.probe_at(position, |code| codes.push(code));
                if partition.last_is_unknown() {
                    codes.push(Epochs { lo: 0, hi: partition.base() });
                }
                for code in &codes {
                    self.by_epoch.meeting(*code, |run| {
                        let run = run as usize;
                        let table = || version.table_for(&version.runs[run], key.key, key.prefix);
                        if runs.contains(&run)
                            && table().is_some_and(|table| self.meets(version, table, key.key, &codes))
                        {
                            *mask |= 1 << (run - runs.start);
                        }
                    });
                }
                if !self.lacking.is_empty() {
                    *mask |= self.mask_of_lacking(version, key, runs.clone(), cost);
                }
                cost.filter_probes += 1;
                cost.filter_negatives += u64::from(*mask == 0);
                if cfg!(debug_assertions) {
                    for run in runs.clone().filter(|run| *mask >> (run - runs.start) & 1 == 0) {
                        let table = version.table_for(&version.runs[run], key.key, key.prefix);
                        table.into_iter().for_each(|table| check_rejection(version, table, key.key));
                    }
                }
            }
        }
    }

    fn prefetch(&self, _version: &Version, probe: &Probe<'_>, digest: Digest, _runs: Range<usize>) {
        let cell = self.directory.cell(self.directory.find(probe.key, probe.prefix));
        if let Some(partition) = &*cell.partition.load() {
            partition.prefetch(partition.position(probe.key, digest));
        }
    }
}

impl WholeTree for GlobalSelector {
    fn ahead(
        &self,
        version: &Version,
        from: &[u8],
        end: Option<&[u8]>,
        out: &mut RangeRuns,
        cost: &mut ReadCost,
    ) -> bool {
        let (mut at, mut start) = (self.directory.find(from, prefix_of(from)), KeyBytes::from(from));
        let found = Vec::with_capacity(version.runs.len());
        let mut ahead = Ahead { found, most: out.wanted(), until: None };
        for _ in 0..EMPTY_STRETCHES {
            let guard = self.directory.cell(at).partition.load();
            let Some(partition) = &*guard else { break };
            let border = self.directory.end(at);
            let stop = match (border.map(|border| &border[..]), end) {
                (Some(border), Some(end)) => Some(border.min(end)),
                (border, end) => border.or(end),
            };
            (ahead.until, _) = (None, ahead.found.clear());
            let in_vain = || self.walks_in_vain(partition, (&start, stop), (&start, end));
            if in_vain() || !partition.ahead(&start, stop, &mut ahead) {
                break;
            }
            let mut until = Vec::new();
            let stop = match ahead.until {
                Some(number) => {
                    partition.lower_key(number, &mut until);
                    match stop {
                        Some(stop) if stop <= &until[..] => Some(stop),
                        _ => Some(&until[..]),
                    }
                }
                None => stop,
            };
            let prefix = self.prefix_codes(self.directory.cell(at), &start, end, cost);
            let prefix = prefix.as_ref();
            let walk = Walk { partition, ahead: &ahead, start: &start, end: stop, backward: false, prefix };
            self.list_runs(version, walk, out);
            let over = stop.is_none_or(|stop| end.is_some_and(|end| stop >= end));
            if over || out.runs().len() > 0 {
                // With keys at hand, the rest is probed when needed.
                if let Some(stop) = stop.filter(|_| !over) {
                    out.end_at(stop);
                }
                return true;
            }
            start = stop.expect("not over").into();
            if border == Some(&start) {
                at += 1;
            }
        }
        if start[..] > *from {
            out.end_at(&start);
            return true;
        }
        false
    }

    fn behind(
        &self,
        version: &Version,
        before: Option<&[u8]>,
        start: &[u8],
        out: &mut RangeRuns,
        cost: &mut ReadCost,
    ) -> bool {
        let end;
        let before = match before {
            Some(before) => before,
            None => match Self::end(version) {
                Some(key) => {
                    end = key;
                    &end
                }
                None => return false,
            },
        };
        // A key at a border starts the next range; the keys below it belong to this one.
        let at = self.directory.find(before, prefix_of(before));
        let mut at = if self.directory.start(at)[..] == *before { at.saturating_sub(1) } else { at };
        let mut stop = KeyBytes::from(before);
        let mut ahead = Ahead::default();
        for _ in 0..EMPTY_STRETCHES {
            let guard = self.directory.cell(at).partition.load();
            let Some(partition) = &*guard else { break };
            let border = self.directory.start(at);
            let floor: &[u8] = (&border[..]).max(start);
            (ahead.until, _) = (None, ahead.found.clear());
            let in_vain = || self.walks_in_vain(partition, (floor, Some(&stop)), (start, Some(&stop)));
            if stop[..] <= *start || in_vain() || !partition.behind(Some(&stop), floor, &mut ahead) {
                break;
            }
            let mut until = Vec::new();
            if let Some(number) = ahead.until {
                partition.lower_key(number, &mut until);
            }
            let from: &[u8] = floor.max(&until[..]);
            let prefix = self.prefix_codes(self.directory.cell(at), start, Some(&stop), cost);
            let prefix = prefix.as_ref();
            let walk =
                Walk { partition, ahead: &ahead, start: from, end: Some(&stop), backward: true, prefix };
            self.list_runs(version, walk, out);
            let over = from <= start;
            if over || out.runs().len() > 0 {
                if !over {
                    out.end_at(from);
                }
                return true;
            }
            if from == &border[..] {
                at -= 1;
            }
            stop = from.into();
        }
        if stop[..] < *before {
            out.end_at(&stop);
            return true;
        }
        false
    }
}
