//! The filter of a keyspace, of whatever kind: the source of the selectors of its versions.

use std::ops::Range;
use std::sync::Arc;

use tamis_model::tree_filter::Costs;

use super::accesses::AccessSampler;
use super::auto::{Auto, AutoFilterStats, Stage};
#[cfg(feature = "unstable-selector")]
use super::external::External;
use super::global::{GlobalFilterStats, Grf, Switch, Task, Work, YoungTable};
use super::selector::Selector;
use super::table_filters::TableFilters;
use crate::operators::KeyspaceOperators;
use crate::options::{FilterAllocation, FilterChoice, KeyspaceOptions, Options, ReadMode};
use crate::sampling::Sampler;
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

/// The source of the selectors of a keyspace's versions.
#[derive(Debug)]
pub(crate) enum TreeFilter {
    /// Each table has its own filter. Probes of elastic filters are sampled; if filter memory is
    /// allocated by access, so are probes of other filters.
    PerTable(Arc<Sampler>, Arc<AccessSampler>),
    /// One filter for all versions of the tree.
    Global(Box<GlobalFilter>),
    /// A filter that the program supplies.
    #[cfg(feature = "unstable-selector")]
    External(Box<External>),
}

impl TreeFilter {
    /// Returns the filter that the keyspace's options ask for, for a tree about which nothing is
    /// known yet. `read_only`: no tables are written while it is open.
    pub(crate) fn new(
        options: &KeyspaceOptions,
        database: &Options,
        read_only: bool,
        sampler: &Arc<Sampler>,
        _operators: &KeyspaceOperators,
    ) -> TreeFilter {
        #[cfg(feature = "unstable-selector")]
        if let Some(kind) = &_operators.selector {
            return TreeFilter::External(Box::new(External::new(&**kind, options)));
        }
        let choice = options.filter.of_tree();
        if !matches!(choice, Some(FilterChoice::Grf | FilterChoice::Auto)) {
            return TreeFilter::PerTable(sampler.clone(), Arc::default());
        }
        let grf = Grf::new(options);
        let auto = (choice == Some(FilterChoice::Auto)).then(|| {
            let costs = match database.read_mode {
                ReadMode::Direct => Costs::DIRECT,
                _ => Costs::MEMORY,
            };
            (Auto::new(options, grf.queries(), costs, read_only), sampler.clone())
        });
        TreeFilter::Global(Box::new(GlobalFilter { grf, auto }))
    }

    /// Returns the filter for the tables of a flush of `entries` entries.
    pub(crate) fn for_flush(
        &self,
        options: &KeyspaceOptions,
        version: &Version,
        entries: u64,
    ) -> FilterChoice {
        self.for_table(options, 0, || {
            let run =
                |tables: Range<usize>| version.tables[tables].iter().map(|table| table.meta.entries).sum();
            let runs = version.runs.iter().map(|run_of| run(run_of.tables.clone()));
            std::iter::once(entries).chain(runs).collect()
        })
    }

    /// Returns the filter for new tables at `level` of a tree whose runs will have these entries,
    /// newest first.
    pub(crate) fn for_table(
        &self,
        options: &KeyspaceOptions,
        level: usize,
        runs: impl FnOnce() -> Vec<u64>,
    ) -> FilterChoice {
        let Some(auto) = self.global().and_then(GlobalFilter::auto) else { return options.filter.at(level) };
        let entries = runs().into_iter().map(|entries| entries as f64).collect();
        if auto.lists_keys(entries) { FilterChoice::Grf } else { FilterChoice::BlockedBloom }
    }

    /// Returns the global filter, if there is one or may be.
    pub(crate) fn global(&self) -> Option<&GlobalFilter> {
        match self {
            TreeFilter::Global(global) => Some(global),
            _ => None,
        }
    }

    /// Returns the sampler of probes that guides the allocation of filter memory; `None` for a
    /// filter of the whole tree.
    pub(crate) fn accesses(&self) -> Option<&Arc<AccessSampler>> {
        match self {
            TreeFilter::PerTable(_, accesses) => Some(accesses),
            _ => None,
        }
    }

    /// Returns the selector of a new version, the successor of the previous call's version. Call
    /// under the `state` lock.
    pub(crate) fn selector(&self, version: &Version, allocation: FilterAllocation) -> Selector {
        match self {
            TreeFilter::PerTable(sampler, accesses) => {
                let accesses = (allocation == FilterAllocation::Mnemosyne).then_some(accesses);
                Selector::PerTable(TableFilters::new(&version.tables, sampler, accesses), None)
            }
            TreeFilter::Global(global) => global.selector(version),
            #[cfg(feature = "unstable-selector")]
            TreeFilter::External(filter) => Selector::External(filter.selector(version)),
        }
    }

    /// Returns the warnings since the last call.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        match self {
            TreeFilter::PerTable(..) => Vec::new(),
            TreeFilter::Global(global) => global.grf.notes.take_warnings(),
            #[cfg(feature = "unstable-selector")]
            TreeFilter::External(filter) => filter.take_warnings(),
        }
    }

    /// Returns the statistics of the filter, if one for the tree is in force or being built.
    pub(crate) fn report(&self) -> Option<GlobalFilterStats> {
        match self {
            TreeFilter::PerTable(..) => None,
            TreeFilter::Global(global) => (global.stage() != Stage::PerTable).then(|| global.grf.report()),
            #[cfg(feature = "unstable-selector")]
            TreeFilter::External(filter) => Some(filter.report()),
        }
    }
}

/// The global filter of a keyspace: always in force under `filter = grf`; under `filter = auto`,
/// while it pays. What keeps it up asks here which [work](Task) is due.
#[derive(Debug)]
pub(crate) struct GlobalFilter {
    pub(crate) grf: Grf,
    /// Under `filter = auto`: the choice, and the sampler for elastic filters that tables may have
    /// from before.
    auto: Option<(Auto, Arc<Sampler>)>,
}

impl GlobalFilter {
    fn auto(&self) -> Option<&Auto> {
        self.auto.as_ref().map(|(auto, _)| auto)
    }

    fn stage(&self) -> Stage {
        self.auto().map_or(Stage::Global, Auto::stage)
    }

    /// Passes the tables of a stored tree to the filter, before any read.
    pub(crate) fn open(&self, tables: &[Arc<OpenTable>]) {
        if let Some(auto) = self.auto() {
            auto.open(tables);
        }
    }

    /// Reports whether the filter is in force, so that its images are kept on disk. Call under the
    /// `state` lock, before any read, or after background work has ended.
    pub(crate) fn is_in_force(&self) -> bool {
        self.stage() == Stage::Global
    }

    /// Returns what `filter = auto` has chosen for a version, and why.
    pub(crate) fn choice(&self, version: &Version) -> Option<AutoFilterStats> {
        self.auto().map(|auto| auto.report(version))
    }

    fn selector(&self, version: &Version) -> Selector {
        let (Some((auto, sampler)), grf) = (&self.auto, &self.grf) else {
            return Selector::Global(self.grf.selector(version));
        };
        let per_table = || TableFilters::new(&version.tables, sampler, None);
        match auto.stage() {
            Stage::PerTable => {
                // A later build includes them.
                grf.forget_missing(&version.tables);
                Selector::PerTable(per_table(), None)
            }
            Stage::Building => Selector::PerTable(per_table(), Some(grf.note_live(&version.tables))),
            Stage::Global => Selector::Global(grf.selector(version)),
        }
    }

    /// Prepares to publish flushed tables before their keys are in the filter, if it is in force or
    /// being built. Call with no lock held.
    pub(crate) fn young_of(&self, tables: &[Arc<OpenTable>]) -> Vec<YoungTable> {
        // Under `state` it may be another. Then the tables need no filter, or lack theirs.
        if self.stage() == Stage::PerTable { Vec::new() } else { self.grf.young_of(tables) }
    }

    /// Records flushed tables that are published next. Call under the `state` lock under which they
    /// are.
    pub(crate) fn note_flushed(&self, tables: &[Arc<OpenTable>], young: Vec<YoungTable>) {
        if self.stage() == Stage::PerTable {
            return;
        }
        match young.is_empty() {
            true => self.grf.note_young(tables.iter().map(YoungTable::without_filter).collect()),
            false => self.grf.note_young(young),
        }
    }

    /// Returns the background work due, including images if the database `saves` any. Call under
    /// the `state` lock.
    pub(crate) fn task(&self, version: &Version, saves: bool) -> Option<Task> {
        let Some(auto) = self.auto() else { return self.grf.task(version, saves) };
        match (auto.stage(), auto.needs_global(version)) {
            (Stage::PerTable, true) if !auto.read_only => Some(Task::Switch(Switch::Begin)),
            (Stage::PerTable, _) => None,
            (_, false) => Some(Task::Switch(Switch::Leave)),
            (Stage::Building, _) => self.grf.task(version, false).or(Some(Task::Switch(Switch::Answer))),
            (Stage::Global, _) => self.grf.task(version, saves),
        }
    }

    /// Makes the change, if still due. Call with `work` and `state` held; the caller publishes a
    /// selector before it releases either.
    pub(crate) fn switch(&self, work: &Work, switch: Switch, version: &Version) {
        let Some(auto) = self.auto().filter(|_| self.task(version, false) == Some(Task::Switch(switch)))
        else {
            return;
        };
        match switch {
            Switch::Begin => {
                self.grf.forget_missing(&version.tables);
                auto.enter(Stage::Building);
            }
            Switch::Answer => auto.enter(Stage::Global),
            Switch::Leave => {
                auto.enter(Stage::PerTable);
                self.grf.clear(work, &version.tables);
            }
        }
    }
}
