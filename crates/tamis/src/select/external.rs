//! A filter for the whole tree, supplied by the program. See [`crate::selector`] for its contract.
//!
//! A probe counts as one for any number of runs, and as one negative if it names no run.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use tamis_filter::Digest;

use super::checks::check_rejection;
use super::global::GlobalFilterStats;
use super::keys::{KeyNotes, for_each_key};
use super::probe::Probe;
use super::run_selector::{Candidate, Candidates, RunSelector, WholeTree};
use crate::error::StorageError;
use crate::observe::cost::ReadCost;
use crate::options::KeyspaceOptions;
use crate::selector::{
    KeysUnavailable, RangeRuns, SelectorKind, SelectorRun, SelectorSpec, SelectorTable, TreeSelector,
    VersionSelector,
};
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

/// The filter of one keyspace. Its methods are called under the `state` lock.
#[derive(Debug)]
pub(crate) struct External {
    name: String,
    filter: Box<dyn TreeSelector>,
    notes: Arc<KeyNotes>,
}

impl External {
    pub(crate) fn new(kind: &dyn SelectorKind, options: &KeyspaceOptions) -> External {
        let runs = |level: usize| match level {
            0 => options.level0_runs as u32,
            level if level + 1 < options.levels => options.size_ratio.at(level).min(64) as u32,
            _ => 1,
        };
        let spec = SelectorSpec {
            bits_per_key: options.bits_per_key,
            runs_per_level: (0..options.levels).map(runs).collect(),
            size_ratio: options.size_ratio.at(1) as f64,
        };
        External { name: kind.name().to_owned(), filter: kind.create(&spec), notes: Arc::default() }
    }

    /// Returns the selector of a version, the successor of the previous call's version.
    pub(crate) fn selector(&self, version: &Version) -> ExternalSelector {
        let table = |table: &Arc<OpenTable>| -> Arc<dyn SelectorTable> {
            Arc::new(Table { table: table.clone(), notes: self.notes.clone() })
        };
        let runs = version.runs.iter().map(|run| SelectorRun {
            level: run.level,
            id: run.id,
            tables: version.tables[run.tables.clone()].iter().map(table).collect(),
        });
        ExternalSelector(self.filter.next_version(&runs.collect::<Vec<_>>()))
    }

    /// Returns the warnings since the last call.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        self.notes.take_warnings()
    }

    /// Returns the statistics of the filter.
    pub(crate) fn report(&self) -> GlobalFilterStats {
        let stats = self.filter.stats();
        let [keys_from_lists, keys_from_data, damaged_lists] = self.notes.counts();
        GlobalFilterStats {
            kind: self.name.clone(),
            entries: stats.entries,
            bytes: stats.bytes,
            inserted: stats.inserted,
            rebuilt: stats.rebuilt,
            keys_from_lists,
            keys_from_data,
            damaged_lists,
            ..GlobalFilterStats::default()
        }
    }
}

/// A table as the filter sees it.
#[derive(Debug)]
struct Table {
    table: Arc<OpenTable>,
    notes: Arc<KeyNotes>,
}

impl SelectorTable for Table {
    fn id(&self) -> u64 {
        self.table.meta.id
    }

    fn entries(&self) -> u64 {
        self.table.meta.entries
    }

    fn for_each_key(&self, f: &mut dyn FnMut(&[u8])) -> Result<(), KeysUnavailable> {
        let (id, notes) = (self.table.meta.id, &self.notes);
        let mut keys = 0;
        let mut counted = |key: &[u8]| {
            keys += 1;
            f(key);
        };
        match for_each_key(&self.table, &[], None, &mut counted) {
            Ok(source) => {
                notes.note_read(id, source, keys);
                Ok(())
            }
            Err(why @ StorageError::Corrupt(_)) => {
                notes.note_damaged(id, &why);
                Err(KeysUnavailable::Damaged)
            }
            Err(why) => {
                log::warn!("table {id} is read without the global filter for now: {why}");
                Err(KeysUnavailable::Now)
            }
        }
    }
}

/// The selector of one version.
#[derive(Debug)]
pub(crate) struct ExternalSelector(Arc<dyn VersionSelector>);

impl RunSelector for ExternalSelector {
    fn select(
        &self,
        version: &Version,
        probe: &mut Probe<'_>,
        runs: Range<usize>,
        out: &mut Candidates,
        cost: &mut ReadCost,
    ) {
        let mut named: SmallVec<[(usize, bool); 8]> = SmallVec::new();
        let digest = probe.digest_for_filter(cost);
        self.0.probe(probe.key, digest, &mut |run| {
            if runs.contains(&run) {
                named.push((run, true));
            }
        });
        cost.filter_probes += 1;
        cost.filter_negatives += u64::from(named.is_empty());
        named.extend(self.0.unknown_runs().iter().filter(|run| runs.contains(run)).map(|&run| (run, false)));
        // Newest first; a false positive may name a run twice.
        named.sort_unstable();
        named.dedup();
        for &(run, filtered) in &named {
            if let Some(table) = version.table_for(&version.runs[run], probe.key, probe.prefix) {
                out.push(Candidate { run, table, filtered });
            }
        }
        if cfg!(debug_assertions) {
            for run in runs.filter(|run| !named.iter().any(|(named, _)| named == run)) {
                if let Some(table) = version.table_for(&version.runs[run], probe.key, probe.prefix) {
                    check_rejection(version, table, probe.key);
                }
            }
        }
    }

    fn prefetch(&self, _: &Version, probe: &Probe<'_>, digest: Digest, _: Range<usize>) {
        self.0.prefetch(probe.key, digest);
    }
}

impl WholeTree for ExternalSelector {
    fn ahead(
        &self,
        _: &Version,
        from: &[u8],
        end: Option<&[u8]>,
        out: &mut RangeRuns,
        _: &mut ReadCost,
    ) -> bool {
        self.0.ahead(from, end, out)
    }

    fn behind(
        &self,
        _: &Version,
        before: Option<&[u8]>,
        start: &[u8],
        out: &mut RangeRuns,
        _: &mut ReadCost,
    ) -> bool {
        self.0.behind(before, start, out)
    }
}
