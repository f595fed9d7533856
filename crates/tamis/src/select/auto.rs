//! `filter = auto`: a filter per table or one for the whole tree, whichever makes the keyspace's
//! reads faster. Reads miss nothing while one replaces the other.
//!
//! # What is in force
//!
//! | stage | who answers | new tables have |
//! | --- | --- | --- |
//! | [`PerTable`](Stage::PerTable) | the tables' filters | a filter |
//! | [`Building`](Stage::Building) | the tables' filters, while the global filter is built behind them | a filter |
//! | [`Global`](Stage::Global) | the global filter | what they have under `grf`; a filter if that is what they are about to need |
//!
//! The rule of [`tamis_model::tree_filter`] says which filter is *wanted*, from the runs of the
//! tree and the reads seen by the [`QuerySampler`]. Background threads ask it whenever they look
//! for work. From per-table to global, the filter is built from the tables' keys and takes over
//! with the version published when it is complete. In the other direction, new tables get filters
//! at once, and the global filter is dropped when the last table without one is gone. Until then it
//! stays complete and answers alone: probing it costs less than probing it and each table's filter.
//!
//! A merge writes tables for the tree that it leaves behind. A full compaction of a tree of twenty
//! runs writes filters, and the global filter goes with the tables that needed it.
//!
//! # Hysteresis
//!
//! The other filter must save a fifth of a read's time
//! ([`MARGIN`](tamis_model::tree_filter::MARGIN)). After a change, the next one needs a new round:
//! the oldest run or a quarter of the entries has been rewritten. Without a declared `workload`,
//! nothing changes before [`FEWEST_READS`] reads were seen: without reads there is nothing to gain.
//!
//! # What is stored
//!
//! The choice is not stored: a table written for a global filter says so, and a tree with such
//! tables opens under it. While the global filter is in force, its partitions are saved as under
//! `grf`. Their files stay until an opening that finds the other filter in force. Images from
//! before a time without the global filter still deny no key: what holds for them (see
//! [`global`](super::global)) depends on the tree's tables, not on the filter that answered
//! meanwhile.
//!
//! # Threads and locks
//!
//! The stage changes under the filter's [`work`](super::global::Grf::work) and the database's
//! `state` together, so it cannot change while either is held. Flushes and ingestions note an epoch
//! and publish its tables under one `state` lock. If the stage is then `PerTable`, they note none,
//! and a later build finds their tables in the version. Readers see the stage only as the selector
//! of their version.
//!
//! The verdict is a leaf lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use tamis_base::collections::HashSet;
use tamis_base::ids::TableId;
use tamis_model::tree_filter::{self, Comparison, Costs, Reads, Runs, TreeFilter as Kind};

use crate::options::{KeyMapChoice, KeyspaceOptions};
use crate::select::queries::QuerySampler;
use crate::sync::Mutex;
use crate::tree::open_table::{OpenTable, TableFilter};
use crate::tree::version::Version;

/// Reads seen before the first change.
const FEWEST_READS: u64 = 1 << 14;

/// A new round begins once this share of a tree's entries is rewritten.
const ROUND: f64 = 0.25;

/// What answers for a keyspace. See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    PerTable,
    Building,
    Global,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Stage::PerTable => "per-table",
            Stage::Building => "per-table, building the global filter",
            Stage::Global => "global",
        }
    }
}

/// The filter that `filter = auto` has chosen, and why. Times are in nanoseconds, for the part of a
/// read that depends on the filter, by the [rule](tamis_model::tree_filter).
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct AutoFilterStats {
    /// What answers: `per-table`, `global`, or `per-table, building the global filter`.
    pub in_force: String,
    /// The filter that the rule wants: `per-table` or `global`. New tables are written for it.
    pub wanted: String,
    /// The time of a read of the current tree and mix under a filter per table; 0 without runs.
    pub per_table_ns: f64,
    /// The same under a global filter.
    pub global_ns: f64,
    /// Tables without their own filter, which need the global filter.
    pub tables_without_own_filter: usize,
    /// Changes of the answering filter since the database was opened.
    pub changes: u64,
    /// Why, in words.
    pub reason: String,
}

/// The rule's last verdict.
#[derive(Debug)]
struct Verdict {
    wanted: Kind,
    /// The tables of the tree at the last change of `wanted`; `None` if unchanged since opening.
    since: Option<HashSet<TableId>>,
}

/// Chooses the filter of one keyspace. See the [module](self).
#[derive(Debug)]
pub(crate) struct Auto {
    queries: Arc<QuerySampler>,
    stage: AtomicU8,
    verdict: Mutex<Verdict>,
    changes: AtomicU64,
    bits_per_key: f64,
    ordered: bool,
    costs: Costs,
    /// Whether a workload is declared: the rule then needs no observation.
    declared: bool,
    /// Whether the tree is opened read-only: its writer's choice stays.
    pub(super) read_only: bool,
}

impl Auto {
    /// Returns the chooser for a tree about which nothing is known yet.
    pub(crate) fn new(
        options: &KeyspaceOptions,
        queries: &Arc<QuerySampler>,
        costs: Costs,
        read_only: bool,
    ) -> Auto {
        Auto {
            queries: queries.clone(),
            stage: AtomicU8::new(Stage::PerTable as u8),
            verdict: Mutex::new(Verdict { wanted: Kind::PerTable, since: None }),
            changes: AtomicU64::new(0),
            bits_per_key: options.bits_per_key,
            ordered: options.key_map != KeyMapChoice::Digest,
            costs,
            declared: options.workload.is_some(),
            read_only,
        }
    }

    /// Begins with the filter that the stored tables were written for. Call before any read.
    pub(crate) fn open(&self, tables: &[Arc<OpenTable>]) {
        if tables.iter().any(needs_global) {
            self.set_stage(Stage::Global);
            self.verdict.lock().wanted = Kind::Global;
        }
    }

    pub(super) fn stage(&self) -> Stage {
        [Stage::PerTable, Stage::Building, Stage::Global][usize::from(self.stage.load(Relaxed))]
    }

    fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u8, Relaxed);
    }

    /// Reports whether new tables of a tree whose runs will have these `entries` are written for
    /// the global filter, without their own.
    pub(crate) fn lists_keys(&self, entries: Vec<f64>) -> bool {
        if self.stage() != Stage::Global {
            return false;
        }
        // Until the rule has decided, add only tables for a global filter to tables written for
        // one: otherwise the tree, reopened, would lack its filter until one is built.
        let wanted = self.verdict.lock().wanted;
        wanted == Kind::Global && (!self.may_decide() || self.compare(wanted, entries).filter == wanted)
    }

    /// Reports whether enough reads are known to decide.
    fn may_decide(&self) -> bool {
        !self.read_only && (self.declared || self.queries.rates().1 >= FEWEST_READS)
    }

    fn compare(&self, current: Kind, entries: Vec<f64>) -> Comparison {
        let rates = self.queries.rates().0;
        let reads = Reads {
            absent_gets: rates.absent_gets,
            existing_gets: rates.gets - rates.absent_gets,
            empty_ranges: rates.empty_ranges,
            filled_ranges: rates.ranges - rates.empty_ranges + rates.seeks,
        };
        let runs = Runs { entries, bits_per_key: self.bits_per_key, ordered: self.ordered };
        tree_filter::compare(Some(current), &runs, &reads, &self.costs)
    }

    /// Asks the rule about the current version and returns the filter wanted from now on. O(tables)
    /// if that may change.
    fn decide(&self, version: &Version) -> Kind {
        let mut verdict = self.verdict.lock();
        if !self.may_decide() {
            return verdict.wanted;
        }
        let best = self.compare(verdict.wanted, entries_of_runs(version)).filter;
        if best != verdict.wanted && verdict.since.as_ref().is_none_or(|since| is_new_round(version, since)) {
            verdict.wanted = best;
            verdict.since = Some(version.tables.iter().map(|table| table.meta.id).collect());
        }
        verdict.wanted
    }

    /// Asks the rule about the current version. Reports whether it wants a global filter, or tables
    /// still need one. O(tables).
    pub(super) fn needs_global(&self, version: &Version) -> bool {
        self.decide(version) == Kind::Global || version.tables.iter().any(needs_global)
    }

    /// Makes a change. Call with [`work`](super::global::Grf::work) and `state` held.
    pub(super) fn enter(&self, stage: Stage) {
        self.set_stage(stage);
        // Building changes nothing for readers.
        self.changes.fetch_add(u64::from(stage != Stage::Building), Relaxed);
    }

    /// Returns what is in force for a version, and why.
    pub(crate) fn report(&self, version: &Version) -> AutoFilterStats {
        let wanted = self.verdict.lock().wanted;
        let comparison = self.compare(wanted, entries_of_runs(version));
        let without = version.tables.iter().filter(|table| needs_global(table)).count();
        let (stage, other) = (self.stage(), comparison.filter != wanted);
        let times = format!(
            "{} runs take {:.0} ns of a read with a filter per table and {:.0} with one for the tree",
            version.runs.len(),
            comparison.per_table_ns,
            comparison.global_ns
        );
        let reason = match stage {
            _ if self.read_only => "opened for reading alone: what its writer has chosen".to_owned(),
            _ if !self.may_decide() => {
                format!("fewer than {FEWEST_READS} reads seen, and no workload declared")
            }
            Stage::Global if wanted == Kind::PerTable => {
                format!("{times}; {without} tables still need the one for the tree")
            }
            _ if other => format!("{times}; the next round may change it"),
            _ => times,
        };
        AutoFilterStats {
            in_force: stage.name().to_owned(),
            wanted: if wanted == Kind::Global { "global" } else { "per-table" }.to_owned(),
            per_table_ns: comparison.per_table_ns,
            global_ns: comparison.global_ns,
            tables_without_own_filter: without,
            changes: self.changes.load(Relaxed),
            reason,
        }
    }
}

/// Reports whether a table has no own filter because it was written for a global one.
fn needs_global(table: &Arc<OpenTable>) -> bool {
    matches!(table.filter, TableFilter::Keys | TableFilter::Global)
}

/// Returns the entries of each run, newest first.
fn entries_of_runs(version: &Version) -> Vec<f64> {
    let entries =
        |tables: &[Arc<OpenTable>]| tables.iter().map(|table| table.meta.entries).sum::<u64>() as f64;
    version.runs.iter().map(|run| entries(&version.tables[run.tables.clone()])).collect()
}

/// Reports whether the oldest run, or a quarter of the entries, was written after the tree had the
/// tables in `since`.
fn is_new_round(version: &Version, since: &HashSet<TableId>) -> bool {
    let sum = |tables: &mut dyn Iterator<Item = &Arc<OpenTable>>| {
        tables.map(|t| t.meta.entries).sum::<u64>() as f64
    };
    let is_new = |table: &&Arc<OpenTable>| !since.contains(&table.meta.id);
    let written = sum(&mut version.tables.iter().filter(is_new));
    let oldest = version.runs.last().map_or(&[][..], |run| &version.tables[run.tables.clone()]);
    oldest.iter().all(|table| is_new(&table)) || written >= ROUND * sum(&mut version.tables.iter())
}
