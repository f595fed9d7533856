//! The default selector: one filter per table.

use std::ops::{Bound, Range};
use std::sync::Arc;

use smallvec::SmallVec;
use tamis_files::table::{ElasticFilter, FoundUnits, pin};
use tamis_filter::{
    BlockedBloom, BloomScheme, Digest, Filter, KeyRange, Next, PointFilter, RangeFilter, probe_pairs,
    probe_selected,
};
use tamis_policy::hotness::SegmentId;

use super::accesses::AccessSampler;
use super::checks::{check_gap, check_rejection};
use super::elastic::{self, Segments};
use super::probe::{LeanKey, Probe};
use super::run_selector::{Candidate, Candidates, MAX_BATCH, MAX_STEP, RunSelector};
use crate::observe::cost::ReadCost;
use crate::sampling::Sampler;
use crate::tree::open_table::{OpenTable, TableFilter};
use crate::tree::version::Version;

/// One probe of [`RunSelector::select_many`]: a table, a digest, and the places of the key and the
/// run.
#[derive(Clone, Copy)]
struct PairProbe {
    pair: (u32, Digest),
    key: u8,
    run: u8,
}

/// Probes answered at once.
const PROBES: usize = 16;

/// Probes the filter of the one table per run that covers the key.
///
/// If every table has a pinned cache-line-blocked Bloom filter (the default), the filters lie
/// contiguously here. All lines that a step needs are then known before the first is read, so their
/// cache misses overlap.
#[derive(Debug)]
pub(crate) struct TableFilters {
    /// One per table of the version, if all have one; else empty.
    blocked: Vec<BlockedBloom>,
    /// The same for elastic filters that can locate a key's bits before they are probed.
    elastic: Vec<Arc<ElasticFilter>>,
    /// Whether any table has a range filter.
    ranges: bool,
    /// Counts sampled probes, if any table has an elastic filter.
    sampler: Option<Arc<Sampler>>,
    /// Counts sampled probes if memory is allocated by access and no table has an elastic filter.
    accesses: Option<Arc<AccessSampler>>,
}

impl TableFilters {
    pub(crate) fn new(
        tables: &[Arc<OpenTable>],
        sampler: &Arc<Sampler>,
        accesses: Option<&Arc<AccessSampler>>,
    ) -> Self {
        let elastic = tables.iter().any(|t| matches!(t.filter, TableFilter::Elastic(_)));
        let blocked = tables.iter().map(|t| match pinned(t) {
            Some(Filter::Point(PointFilter::BlockedBloom(filter))) => Some(filter.clone()),
            _ => None,
        });
        let located = tables.iter().map(|t| match &t.filter {
            TableFilter::Elastic(filter) => Some(filter).filter(|filter| filter.locates()).cloned(),
            _ => None,
        });
        TableFilters {
            blocked: blocked.collect::<Option<Vec<_>>>().unwrap_or_default(),
            elastic: located.collect::<Option<Vec<_>>>().unwrap_or_default(),
            ranges: tables.iter().any(|t| t.range_filter.is_some()),
            sampler: elastic.then(|| sampler.clone()),
            accesses: accesses.filter(|_| !elastic).cloned(),
        }
    }

    /// Returns how many bytes of the filters probed at once lie in mapped files.
    #[cfg(test)]
    pub(crate) fn in_place_bytes(&self) -> usize {
        self.blocked.iter().map(BlockedBloom::in_place_bytes).sum()
    }
}

impl RunSelector for TableFilters {
    fn select(
        &self,
        version: &Version,
        probe: &mut Probe<'_>,
        runs: Range<usize>,
        out: &mut Candidates,
        cost: &mut ReadCost,
    ) {
        if !self.elastic.is_empty() && probe.sharing() {
            return self.select_elastic(version, probe, runs, out, cost);
        }
        if self.blocked.is_empty() || !probe.sharing() {
            return self.select_one_by_one(version, probe, runs, out, cost);
        }
        let digest = probe.digest_for_filter(cost);
        let (mut tables, mut places, mut count) = ([0u32; MAX_STEP], [0usize; MAX_STEP], 0);
        for run in runs {
            if let Some(table) = version.table_for(&version.runs[run], probe.key, probe.prefix) {
                (tables[count], places[count]) = (table as u32, run);
                count += 1;
            }
        }
        if let Some(accesses) = &self.accesses {
            accesses.note(version, probe, tables[..count].iter().map(|&table| table as usize));
        }
        let mut maybe = probe_selected(&self.blocked, &tables[..count], digest);
        cost.filter_probes += count as u64;
        cost.filter_negatives += count as u64 - u64::from(maybe.count_ones());
        if cfg!(debug_assertions) {
            let denied = (0..count).filter(|i| maybe & (1 << i) == 0);
            denied.for_each(|i| check_rejection(version, tables[i] as usize, probe.key));
        }
        while maybe != 0 {
            let i = maybe.trailing_zeros() as usize;
            maybe &= maybe - 1;
            out.push(Candidate { run: places[i], table: tables[i] as usize, filtered: true });
        }
    }

    fn answers_many(&self) -> bool {
        !self.blocked.is_empty() || !self.elastic.is_empty()
    }

    fn select_many(
        &self,
        version: &Version,
        keys: &[LeanKey<'_>],
        runs: Range<usize>,
        masks: &mut [u32],
        cost: &mut ReadCost,
    ) {
        if !self.elastic.is_empty() {
            return elastic::select_many(&self.elastic, version, keys, runs, masks, cost);
        }
        // All lines are being fetched before the first is read.
        let mut asked: SmallVec<[PairProbe; 2 * MAX_BATCH]> = SmallVec::new();
        for (run, place) in runs.zip(0..) {
            let run = &version.runs[run];
            for (key, k) in keys.iter().zip(0..) {
                if let Some(table) = version.table_for(run, key.key, key.prefix) {
                    self.blocked[table].prefetch(key.digest);
                    asked.push(PairProbe { pair: (table as u32, key.digest), key: k, run: place });
                }
            }
        }
        masks[..keys.len()].fill(0);
        cost.filter_probes += asked.len() as u64;
        for group in asked.chunks(PROBES) {
            let mut pairs = [(0, Digest::from_u64(0)); PROBES];
            for (pair, asked) in pairs.iter_mut().zip(group) {
                *pair = asked.pair;
            }
            let mut maybe = probe_pairs(&self.blocked, &pairs[..group.len()]);
            cost.filter_negatives += group.len() as u64 - u64::from(maybe.count_ones());
            if cfg!(debug_assertions) {
                let denied = (0..group.len()).filter(|i| maybe & (1 << i) == 0).map(|i| &group[i]);
                denied
                    .for_each(|a| check_rejection(version, a.pair.0 as usize, keys[usize::from(a.key)].key));
            }
            while maybe != 0 {
                let asked = &group[maybe.trailing_zeros() as usize];
                maybe &= maybe - 1;
                masks[usize::from(asked.key)] |= 1 << asked.run;
            }
        }
    }

    fn prefetch(&self, version: &Version, probe: &Probe<'_>, digest: Digest, runs: Range<usize>) {
        let pin = self.sampler.as_ref().map(|_| pin());
        for run in runs {
            let Some(table) = version.table_for(&version.runs[run], probe.key, probe.prefix) else {
                continue;
            };
            match self.blocked.get(table) {
                Some(filter) => filter.prefetch(digest),
                None => match &version.tables[table].filter {
                    TableFilter::Elastic(filter) => {
                        if let Some(pin) = &pin {
                            filter.find(probe.key, probe.prefix, Some(digest), pin);
                        }
                    }
                    _ => prefetch_pinned(&version.tables[table], digest),
                },
            }
        }
    }
}

/// Returns the filter of a table that keeps one pinned.
fn pinned(table: &OpenTable) -> Option<&Filter> {
    match &table.filter {
        TableFilter::Pinned(filter) => filter.get(),
        _ => None,
    }
}

/// Prefetches the first cache line that the filter of a table will read.
fn prefetch_pinned(table: &OpenTable, digest: Digest) {
    if let Some(Filter::Point(filter)) = pinned(table) {
        filter.prefetch(digest);
    }
}

impl TableFilters {
    /// Reports whether any table has a range filter, so that [`next`](Self::next) and
    /// [`may_hold`](Self::may_hold) can tell anything.
    #[inline]
    pub(crate) fn answers_ranges(&self) -> bool {
        self.ranges
    }

    /// Draws whether a batch key is sampled and therefore looked up individually. Called once for
    /// each key that [`select_many`](RunSelector::select_many) would serve, before that call.
    pub(crate) fn samples(&self) -> bool {
        match (&self.sampler, &self.accesses) {
            (Some(sampler), _) => sampler.tick(),
            (_, Some(accesses)) => accesses.tick(),
            _ => false,
        }
    }

    /// Called when a sampled get finishes (see [`Probe::counted`]).
    pub(crate) fn ended(&self, version: &Version, probe: &mut Probe<'_>) {
        match (&self.sampler, &self.accesses, probe.counted()) {
            (Some(sampler), _, Some(asked)) => sampler.record(asked.needed()),
            (_, Some(accesses), Some(asked)) => accesses.record(version, asked),
            _ => {}
        }
    }

    /// Returns what is known about the first key at or after `from` in `table` (its number within
    /// the version). The key matters only if it lies before `end`.
    pub(crate) fn next(
        &self,
        version: &Version,
        table: usize,
        from: &[u8],
        end: Option<&[u8]>,
        cost: &mut ReadCost,
    ) -> Next<Vec<u8>> {
        let table = &version.tables[table];
        // Without an end only an order-preserving filter can answer.
        if !table.range_filter.is_some_and(|kind| end.is_some() || kind.is_ordered()) {
            return Next::Unknown;
        }
        let next = table.with_filter(|filter| match filter {
            Filter::Range(filter) => {
                cost.range_probes += 1;
                let range =
                    KeyRange::new(Bound::Included(from), end.map_or(Bound::Unbounded, Bound::Excluded));
                if end.is_some() && !filter.contains_range(range) { Next::Nothing } else { filter.next(from) }
            }
            Filter::Point(_) => Next::Unknown,
        });
        let next = next.unwrap_or(Next::Unknown);
        let negative = match &next {
            Next::Nothing => true,
            Next::NotBelow(key) => key[..] > *from,
            Next::Unknown => false,
        };
        cost.range_negatives += u64::from(negative);
        match &next {
            Next::Nothing => check_gap(table, Bound::Included(from), end),
            Next::NotBelow(key) => check_gap(table, Bound::Included(from), Some(key)),
            Next::Unknown => {}
        }
        next
    }

    /// Reports whether `table` may hold a key in `range`; `None` if nothing is known.
    pub(crate) fn may_hold(
        &self,
        version: &Version,
        table: usize,
        range: KeyRange<'_>,
        cost: &mut ReadCost,
    ) -> Option<bool> {
        let table = &version.tables[table];
        table.range_filter?;
        let answer = table.with_filter(|filter| match filter {
            Filter::Point(_) => None,
            Filter::Range(filter) => Some(filter.contains_range(range)),
        });
        let maybe = answer.flatten()?;
        cost.range_probes += 1;
        cost.range_negatives += u64::from(!maybe);
        if !maybe && let Bound::Excluded(end) = range.end {
            check_gap(table, range.start, Some(end));
        }
        Some(maybe)
    }

    /// All tables have elastic filters.
    fn select_elastic(
        &self,
        version: &Version,
        probe: &mut Probe<'_>,
        runs: Range<usize>,
        out: &mut Candidates,
        cost: &mut ReadCost,
    ) {
        let digest = probe.digest_for_filter(cost);
        let segments = Segments::of(&self.elastic, version, probe, runs);
        if segments.is_empty() {
            return;
        }
        if let Some(sampler) = &self.sampler
            && let Some(counted) = probe.count_with(|| sampler.tick())
        {
            segments.note(version, counted);
        }
        segments.probe(&self.elastic, version, (probe.key, digest), out, cost);
    }

    /// The general case: filters of any kind, unpinned filters, tables without a filter, or no hash
    /// sharing.
    fn select_one_by_one(
        &self,
        version: &Version,
        probe: &mut Probe<'_>,
        runs: Range<usize>,
        out: &mut Candidates,
        cost: &mut ReadCost,
    ) {
        let (mut tables, mut places, mut count) = ([0usize; MAX_STEP], [0usize; MAX_STEP], 0);
        let shared = probe.sharing().then(|| probe.digest_for_filter(cost));
        // One pin for all runs: see `table::units::reclaim`.
        let pin = self.sampler.as_ref().map(|_| pin());
        let mut units: SmallVec<[FoundUnits<'_>; MAX_STEP]> = SmallVec::new();
        for run in runs {
            let Some(table) = version.table_for(&version.runs[run], probe.key, probe.prefix) else {
                continue;
            };
            match (&version.tables[table].filter, shared) {
                (TableFilter::Elastic(filter), _) => {
                    if let Some(pin) = &pin {
                        units.push(filter.find(probe.key, probe.prefix, shared, pin));
                    }
                }
                (_, Some(digest)) => prefetch_pinned(&version.tables[table], digest),
                _ => {}
            }
            (tables[count], places[count]) = (table, run);
            count += 1;
        }
        if let Some(accesses) = &self.accesses {
            accesses.note(version, probe, tables[..count].iter().copied());
        }
        let mut units = units.into_iter();
        for (&table, &run) in tables[..count].iter().zip(&places) {
            let answer = match &version.tables[table].filter {
                TableFilter::Elastic(filter) => units.next().map(|found| {
                    let id = version.tables[table].meta.id;
                    if let Some(asked) =
                        self.sampler.as_ref().and_then(|sampler| probe.count_with(|| sampler.tick()))
                    {
                        asked.push(table, SegmentId { table: id, segment: found.segment as u32 });
                    }
                    elastic::ask(filter, &found, probe, cost)
                }),
                _ => version.tables[table].with_filter(|filter| ask_filter(filter, probe, cost)),
            };
            take_answer(version, (run, table), answer, probe.key, out);
        }
    }
}

/// Makes a table a candidate unless its filter was probed and denies the key.
pub(crate) fn take_answer(
    version: &Version,
    (run, table): (usize, usize),
    answer: Option<bool>,
    key: &[u8],
    out: &mut Candidates,
) {
    match answer {
        Some(false) => check_rejection(version, table, key),
        answer => out.push(Candidate { run, table, filtered: answer.is_some() }),
    }
}

/// Returns the answer of one filter of any kind. Counts the probe.
pub(crate) fn ask_filter(filter: &Filter, probe: &mut Probe<'_>, cost: &mut ReadCost) -> bool {
    let maybe = match filter {
        Filter::Point(PointFilter::Bloom(bloom)) if bloom.scheme() == BloomScheme::Independent => {
            // A filter that needs more digests than possible is damaged and must not deny anything.
            bloom.contains_independent(probe.independent(bloom.probes(), cost)).unwrap_or(true)
        }
        Filter::Point(filter) => filter.contains(probe.digest_for_filter(cost)),
        Filter::Range(filter @ RangeFilter::Surf(_)) => {
            filter.contains_key(probe.key, probe.digest_for_filter(cost))
        }
        // The others use the key alone.
        Filter::Range(filter) => filter.contains_key(probe.key, Digest::from_u64(0)),
    };
    cost.filter_probes += 1;
    cost.filter_negatives += u64::from(!maybe);
    maybe
}
