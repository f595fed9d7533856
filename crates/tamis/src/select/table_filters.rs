//! The first selector: one filter per table.

use std::ops::Range;
use std::sync::Arc;

use tamis_filter::{BlockedBloom, BloomScheme, Digest, PointFilter, probe_selected};

use crate::key::MAX_SEQNO;
use crate::read::ReadCost;
use crate::select::{Candidate, Candidates, MAX_STEP, Probe, RunSelector};
use crate::table::TableLookup;
use crate::tree::open_table::{OpenTable, TableFilter};
use crate::tree::version::Version;

/// Asks the filter of the one table per run that covers the key.
///
/// When every table has a pinned cache-line-blocked Bloom filter (the default), these lie side by side here:
/// all lines that a step needs are known before the first is looked at, so their cache misses overlap.
#[derive(Debug)]
pub(crate) struct TableFilters {
    /// One per table of the version, if all have one; else empty.
    blocked: Vec<BlockedBloom>,
}

impl TableFilters {
    pub(crate) fn new(tables: &[Arc<OpenTable>]) -> Self {
        let blocked = tables.iter().map(|t| match &t.filter {
            TableFilter::Pinned(PointFilter::BlockedBloom(filter)) => Some(filter.clone()),
            _ => None,
        });
        TableFilters { blocked: blocked.collect::<Option<Vec<_>>>().unwrap_or_default() }
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
        if self.blocked.is_empty() || !probe.sharing() {
            return select_one_by_one(version, probe, runs, out, cost);
        }
        let digest = probe.digest_for_filter(cost);
        let (mut tables, mut places, mut count) = ([0u32; MAX_STEP], [0usize; MAX_STEP], 0);
        for run in runs {
            if let Some(table) = version.table_for(&version.runs[run], probe.key, probe.prefix) {
                (tables[count], places[count]) = (table as u32, run);
                count += 1;
            }
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

    fn prefetch(&self, version: &Version, probe: &Probe<'_>, digest: Digest, runs: Range<usize>) {
        if self.blocked.is_empty() {
            return;
        }
        for run in runs {
            if let Some(table) = version.table_for(&version.runs[run], probe.key, probe.prefix) {
                self.blocked[table].prefetch(digest);
            }
        }
    }
}

/// The general case: filters of any kind, unpinned filters, tables without one, or no hash sharing.
fn select_one_by_one(
    version: &Version,
    probe: &mut Probe<'_>,
    runs: Range<usize>,
    out: &mut Candidates,
    cost: &mut ReadCost,
) {
    for run in runs {
        let Some(table) = version.table_for(&version.runs[run], probe.key, probe.prefix) else { continue };
        let answer = ask(&version.tables[table], probe, cost);
        if let Some(maybe) = answer {
            cost.filter_probes += 1;
            cost.filter_negatives += u64::from(!maybe);
        }
        if answer == Some(false) {
            check_rejection(version, table, probe.key);
        } else {
            out.push(Candidate { run, table, filtered: answer.is_some() });
        }
    }
}

/// The answer of a table's filter; `None` if it has none that can be used.
fn ask(table: &OpenTable, probe: &mut Probe<'_>, cost: &mut ReadCost) -> Option<bool> {
    match &table.filter {
        TableFilter::None | TableFilter::Damaged => None,
        TableFilter::Pinned(filter) => Some(ask_filter(filter, probe, cost)),
        TableFilter::Cached => {
            let filter = table.cached_filter()?;
            Some(ask_filter(&filter, probe, cost))
        }
    }
}

/// The answer of one filter, whatever digests its kind takes.
pub(crate) fn ask_filter(filter: &PointFilter, probe: &mut Probe<'_>, cost: &mut ReadCost) -> bool {
    match filter {
        PointFilter::Bloom(bloom) if bloom.scheme() == BloomScheme::Independent => {
            // A filter that asks for more digests than there can be is damaged: it may not deny anything.
            bloom.contains_independent(probe.independent(bloom.probes(), cost)).unwrap_or(true)
        }
        _ => filter.contains(probe.digest_for_filter(cost)),
    }
}

/// No false negative, ever: in debug builds every rejection is checked against the data.
#[inline]
fn check_rejection(version: &Version, table: usize, key: &[u8]) {
    if cfg!(debug_assertions) {
        let table = &version.tables[table];
        // A table that cannot be read is the reader's error to report, not the filter's.
        if let Ok(found) = table.table.get(key, None, MAX_SEQNO, &mut ()) {
            assert!(
                matches!(found, TableLookup::Absent),
                "the filter of table {} denies a key that it holds: {key:?}",
                table.meta.id
            );
        }
    }
}
