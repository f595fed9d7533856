//! Probes of elastic filters by gets, and their sampling.
//!
//! A probe finds its data in three steps: the segment, its word, and the lines of its units. A get
//! makes each step for all runs before the next; a batch makes it for all keys. The cache misses of
//! a step thus overlap. One pin covers all steps.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use tamis_files::table::{ElasticFilter, FoundUnits, pin};
use tamis_filter::{BloomScheme, Digest, ElasticProbe};
use tamis_policy::hotness::SegmentId;

use super::checks::check_rejection;
use super::probe::{LeanKey, Probe, SampledProbes};
use super::run_selector::{Candidate, Candidates, MAX_BATCH, MAX_STEP};
use crate::observe::cost::ReadCost;
use crate::tree::version::Version;

/// The segments that a get probes in one step: one per run with a table that covers the key.
pub(super) struct Segments {
    count: usize,
    /// Places of the runs, numbers of the tables within the version, and numbers of the segments
    /// within their tables.
    runs: [u32; MAX_STEP],
    tables: [u32; MAX_STEP],
    segments: [u32; MAX_STEP],
}

impl Segments {
    /// The first step. All tables of the version have elastic filters: `filters`.
    #[inline(always)]
    pub(super) fn of(
        filters: &[Arc<ElasticFilter>],
        version: &Version,
        probe: &Probe<'_>,
        runs: Range<usize>,
    ) -> Segments {
        let none = [0; MAX_STEP];
        let mut of = Segments { count: 0, runs: none, tables: none, segments: none };
        for run in runs {
            if let Some(table) = version.table_for(&version.runs[run], probe.key, probe.prefix) {
                let segment = filters[table].seek(probe.key, probe.prefix);
                (of.runs[of.count], of.tables[of.count], of.segments[of.count]) =
                    (run as u32, table as u32, segment as u32);
                of.count += 1;
            }
        }
        of
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Notes the segments for a sampled get.
    #[cold]
    pub(super) fn note(&self, version: &Version, counted: &mut SampledProbes) {
        for (&table, &segment) in self.tables[..self.count].iter().zip(&self.segments) {
            let table = table as usize;
            counted.push(table, SegmentId { table: version.tables[table].meta.id, segment });
        }
    }

    /// The other steps. Appends the tables that may hold the key, whose digest is `digest`.
    #[inline(always)]
    pub(super) fn probe(
        &self,
        filters: &[Arc<ElasticFilter>],
        version: &Version,
        (key, digest): (&[u8], Digest),
        out: &mut Candidates,
        cost: &mut ReadCost,
    ) {
        let pin = pin();
        let mut located: SmallVec<[Option<ElasticProbe<'_>>; MAX_STEP]> = SmallVec::new();
        for (&table, &segment) in self.tables[..self.count].iter().zip(&self.segments) {
            located.push(filters[table as usize].locate(segment as usize, digest, &pin));
        }
        let (mut maybe, mut asked) = (0u32, 0);
        for (i, located) in located.iter().enumerate() {
            maybe |= u32::from(located.as_ref().is_none_or(ElasticProbe::first_accept)) << i;
            asked += u64::from(located.is_some());
        }
        let candidates = out.len();
        while maybe != 0 {
            let i = maybe.trailing_zeros() as usize;
            maybe &= maybe - 1;
            if located[i].as_ref().is_none_or(ElasticProbe::others_accept) {
                let (run, table) = (self.runs[i] as usize, self.tables[i] as usize);
                // A segment without units is a filter that denies nothing.
                out.push(Candidate { run, table, filtered: true });
            }
        }
        cost.filter_probes += asked;
        cost.filter_negatives += (self.count - (out.len() - candidates)) as u64;
        if cfg!(debug_assertions) {
            let admitted = |table: u32| out[candidates..].iter().any(|c| c.table == table as usize);
            for &table in self.tables[..self.count].iter().filter(|&&table| !admitted(table)) {
                check_rejection(version, table as usize, key);
            }
        }
    }
}

/// See [`RunSelector::select_many`](super::run_selector::RunSelector::select_many). All tables of
/// the version have elastic filters: `filters`.
pub(super) fn select_many(
    filters: &[Arc<ElasticFilter>],
    version: &Version,
    keys: &[LeanKey<'_>],
    runs: Range<usize>,
    masks: &mut [u32],
    cost: &mut ReadCost,
) {
    masks[..keys.len()].fill(0);
    let pin = pin();
    // One run at a time: the keys of a batch already have more cache misses than the processor
    // overlaps.
    for (run, place) in runs.zip(0..) {
        let run = &version.runs[run];
        let mut segments: SmallVec<[(u32, u32, u32); MAX_BATCH]> = SmallVec::new();
        for (key, k) in keys.iter().zip(0..) {
            if let Some(table) = version.table_for(run, key.key, key.prefix) {
                segments.push((k, table as u32, filters[table].seek(key.key, key.prefix) as u32));
            }
        }
        let mut located: SmallVec<[Option<ElasticProbe<'_>>; MAX_BATCH]> = SmallVec::new();
        for &(k, table, segment) in &segments {
            let digest = keys[k as usize].digest;
            located.push(filters[table as usize].locate(segment as usize, digest, &pin));
        }
        for (&(k, table, _), located) in segments.iter().zip(&located) {
            let maybe = located.as_ref().is_none_or(ElasticProbe::contains);
            masks[k as usize] |= u32::from(maybe) << place;
            cost.filter_probes += u64::from(located.is_some());
            cost.filter_negatives += u64::from(!maybe);
            if !maybe {
                check_rejection(version, table as usize, keys[k as usize].key);
            }
        }
    }
}

/// Reports whether the found segment may hold the probe's key. Without units in memory it may.
#[inline]
pub(super) fn ask(
    filter: &ElasticFilter,
    found: &FoundUnits<'_>,
    probe: &mut Probe<'_>,
    cost: &mut ReadCost,
) -> bool {
    if found.units() == 0 {
        return true;
    }
    cost.filter_probes += 1;
    let directory = filter.directory();
    let maybe = match directory.spec().scheme {
        BloomScheme::Independent => {
            let digests = probe.independent(directory.units() * directory.probes(), cost);
            // Units that need more digests than possible are damaged and must not deny anything.
            found.contains_independent(digests).unwrap_or(true)
        }
        _ => found.contains(probe.digest_for_filter(cost)),
    };
    cost.filter_negatives += u64::from(!maybe);
    maybe
}
