//! Elastic filters of an open database: which units are in memory, who counts what is asked, who loads.
//!
//! Y. Li et al., "ElasticBF" (ATC 2019), sections 3.3 to 3.5. The bookkeeping and the rules are in [`Manager`]; here it meets
//! readers, files and versions.
//!
//! # Threads
//!
//! * *Readers* ask the units in [`ElasticFilter`] and hand what counted gets asked to the [`Sampler`]. They take no lock
//!   that another reader takes, and wait for nothing.
//! * *One background thread* ([`Elastic::work`]) takes the samples, lets the manager decide, takes units out of use, and
//!   loads others, several files at once. It exists as soon as there is a table with an elastic filter.
//! * *Whoever publishes a version* ([`Elastic::change`], under the `state` lock) tells of tables that came and went.
//!
//! `inner` is the last lock in the database's order: no other is taken while it is held, and no file is read. A load is
//! asked for under it, done without it, and installed under it if the table is still there; so a compaction may drop a
//! table at any moment, and what was read for it is thrown away.

mod report;
mod worker;

use crate::collections::{HashMap, HashSet};
use crate::sync::thread::JoinHandle;
use crate::sync::{self, Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::db::inner::DbInner;
use crate::db::read_memory::Divider;
use crate::heat::{
    Adjustment, Heat, HeatConfig, Load, Manager, Origin, Sampler, SegmentId, SegmentSpec, TableSpec,
    decode_heat,
};
use crate::ids::TableId;
use crate::options::Options;
use crate::read::AllReads;
use crate::read::View;
use crate::table::Table;
use crate::table::cache::BlockCache;
use crate::table::{Budget, ElasticFilter};
use crate::tree::open_table::{OpenTable, TableFilter};
use crate::tree::version::{Run, Version};

pub use report::{ElasticStats, SegmentStats};

/// Edits of the manifest that come anyway bring the heat along so often; a byte or two for each segment. A crash loses what was
/// learned since.
const SAVE_EVERY: Duration = Duration::from_secs(30);

/// What all elastic filters of one database share.
#[derive(Debug)]
pub(crate) struct Elastic {
    pub(crate) sampler: Arc<Sampler>,
    budget: Arc<Budget>,
    /// Whether the sampling interval follows the number of gets.
    adapts: bool,
    inner: Mutex<Inner>,
    /// Signalled when nothing is left to load for tables that came.
    settled: Condvar,
    load_reads: AtomicU64,
    load_bytes: AtomicU64,
    /// Where block cache and units share one limit.
    shared: Option<Shared>,
    worker: Mutex<Worker>,
    leaving: AtomicBool,
}

/// One limit for two.
#[derive(Debug)]
struct Shared {
    cache: Arc<BlockCache>,
    divider: Mutex<Divider>,
    /// Where gets are counted, those too that ask no elastic filter.
    counters: Arc<AllReads>,
}

#[derive(Debug)]
enum Worker {
    /// The database is being opened, or has been closed.
    MayNot,
    /// It is to start with the first table.
    May,
    Runs(JoinHandle<()>),
}

/// What is known of the tables of the current versions.
#[derive(Debug)]
struct Inner {
    manager: Manager,
    tables: HashMap<TableId, Known>,
    /// Loads for tables that came; none of them is under way.
    waiting: Vec<Load>,
    /// Loads that are under way.
    under_way: usize,
    /// Something panicked, or the background thread cannot be started: nothing more is loaded.
    dead: bool,
    /// Gets that the manager was told of.
    gets: u64,
    /// When the manifest was told of the heat, and how many gets there had been.
    saved: (Instant, u64),
}

/// A table with an elastic filter.
#[derive(Clone, Debug)]
struct Known {
    filter: Arc<ElasticFilter>,
    table: Arc<Table>,
}

impl Elastic {
    /// As the options say, with the block cache, which may share its limit with the units.
    pub(crate) fn new(options: &Options, counters: &Arc<AllReads>) -> (Arc<Elastic>, Arc<BlockCache>) {
        let block_bytes = options.keyspace.block_bytes;
        let (cache, budget, shared) = match options.read_memory_bytes {
            0 => {
                let cache = Arc::new(BlockCache::new(options.cache_bytes, block_bytes));
                (cache, options.filter_budget_bytes, None)
            }
            total => {
                let divider = Divider::new(total, total / 2);
                let cache = Arc::new(divider.cache(block_bytes));
                let budget = divider.split().filters;
                (
                    cache.clone(),
                    budget,
                    Some(Shared { cache, divider: Mutex::new(divider), counters: counters.clone() }),
                )
            }
        };
        let config =
            HeatConfig { life_time: options.filter_life_time, inheritance: options.heat_inheritance };
        let elastic = Arc::new(Elastic {
            sampler: Arc::new(Sampler::new(options.heat_sampling.map_or(1, |gets| gets as u32))),
            budget: Arc::new(Budget::new(budget)),
            adapts: options.heat_sampling.is_none(),
            inner: Mutex::new(Inner {
                manager: Manager::new(config, budget),
                tables: HashMap::default(),
                waiting: Vec::new(),
                under_way: 0,
                dead: false,
                gets: 0,
                saved: (sync::now(), 0),
            }),
            settled: Condvar::new(),
            load_reads: AtomicU64::new(0),
            load_bytes: AtomicU64::new(0),
            shared,
            worker: Mutex::new(Worker::MayNot),
            leaving: AtomicBool::new(false),
        });
        (elastic, cache)
    }

    /// If somebody panicked with it, units stay as they are until their tables go, and no others come. Who publishes a
    /// version must not panic for it, too: filters are there to save reads.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock();
        if self.inner.was_poisoned() {
            inner.dead = true;
            // The old one may be halfway through anything.
            inner.manager = Manager::new(HeatConfig::default(), 0);
            inner.waiting.clear();
            inner.under_way = 0;
            self.inner.clear_poison();
        }
        inner
    }

    /// Tells of all tables of a database that is being opened: each keyspace's view. `stored` is what the manifest knows
    /// of their heat.
    pub(crate) fn opened<'v>(
        self: &Arc<Self>,
        views: impl Iterator<Item = &'v View>,
        stored: impl Fn(TableId) -> Option<&'v [u8]>,
    ) {
        let mut inner = self.inner();
        let mut came = Vec::new();
        for version in views.filter(|view| asks(view)).map(|view| &view.version) {
            for run in &version.runs {
                let tables = &version.tables[run.tables.clone()];
                let run_segments = segments_of(tables);
                for (table, filter) in elastic(tables) {
                    let spec = spec_of(table, filter);
                    let known =
                        stored(table.meta.id).and_then(|bytes| decode_heat(bytes, spec.segments.len()));
                    let heat = known
                        .unwrap_or_else(|| inner.manager.inherited(&spec, Origin::Nothing, run_segments));
                    came.push(inner.add(table, filter, spec, heat));
                }
            }
        }
        let loads = inner.manager.fill(&came);
        inner.waiting.extend(loads);
    }

    /// Tells of a new version of a keyspace. Under the `state` lock, when readers see it. Costs a walk over the tables of both
    /// where any has an elastic filter, and per segment that came a look at those that it takes its heat from.
    pub(crate) fn change(self: &Arc<Self>, old: &View, new: &View) {
        let asked = asks(new);
        let (old, new) = (&old.version, &new.version);
        if !asked || elastic(&old.tables).next().is_none() && elastic(&new.tables).next().is_none() {
            return;
        }
        let ids =
            |version: &Version| -> HashSet<TableId> { version.tables.iter().map(|t| t.meta.id).collect() };
        let (before, after) = (ids(old), ids(new));
        let gone: Vec<&Arc<OpenTable>> = old.tables.iter().filter(|t| !after.contains(&t.meta.id)).collect();
        let mut inner = self.inner();
        let mut came = Vec::new();
        for (place, run) in new.runs.iter().enumerate() {
            let tables = &new.tables[run.tables.clone()];
            let run_segments = segments_of(tables);
            for (table, filter) in elastic(tables).filter(|(table, _)| !before.contains(&table.meta.id)) {
                let spec = spec_of(table, filter);
                let known = |tables: &[Arc<OpenTable>], gone: bool| -> Vec<TableId> {
                    let overlapping = tables.iter().filter(|other| {
                        let id = other.meta.id;
                        other.meta.overlaps(&table.meta)
                            && inner.tables.contains_key(&id)
                            && !(gone && after.contains(&id))
                    });
                    overlapping.map(|other| other.meta.id).collect()
                };
                let of_runs = |version: &Version, runs: &[Run], gone| -> Vec<Vec<TableId>> {
                    let ids = runs.iter().map(|run| known(&version.tables[run.tables.clone()], gone));
                    ids.filter(|ids| !ids.is_empty()).collect()
                };
                let merged = of_runs(old, &old.runs, true);
                let older =
                    if merged.is_empty() { of_runs(new, &new.runs[place + 1..], false) } else { Vec::new() };
                let origin = match (&merged[..], &older[..]) {
                    ([], []) => Origin::Nothing,
                    ([], older) => Origin::Flushed(older),
                    (merged, _) => Origin::Merged(merged),
                };
                let heat = inner.manager.inherited(&spec, origin, run_segments);
                came.push(inner.add(table, filter, spec, heat));
            }
        }
        gone.iter().for_each(|table| inner.remove(table.meta.id));
        let loads = inner.manager.fill(&came);
        inner.waiting.extend(loads);
        for Adjustment { unload, load } in inner.manager.take_for(&came) {
            inner.unload(unload);
            inner.waiting.push(load);
        }
        let work = !inner.tables.is_empty();
        drop(inner);
        if work {
            self.start_if_allowed();
            self.sampler.wake();
        }
    }

    /// Tells of a keyspace that is no more.
    pub(crate) fn dropped(&self, version: &Version) {
        let mut inner = self.inner();
        version.tables.iter().for_each(|table| inner.remove(table.meta.id));
    }

    /// Waits until the units of all tables that came are loaded, or cannot be.
    pub(crate) fn settle(&self) {
        let mut inner = self.inner();
        while !inner.dead
            && !self.leaving.load(Relaxed)
            && (!inner.waiting.is_empty() || inner.under_way > 0)
            && !inner.tables.is_empty()
        {
            drop(self.settled.wait_timeout(inner, Duration::from_millis(100)));
            inner = self.inner();
        }
    }

    /// What the next edit of the manifest is to say of the heat of every table: nothing if that was done a moment ago.
    pub(crate) fn heat_to_save(&self) -> Vec<(TableId, Vec<u8>)> {
        {
            let mut inner = self.inner();
            let (when, gets) = inner.saved;
            if sync::since(when) < SAVE_EVERY || gets == inner.gets {
                return Vec::new();
            }
            inner.saved = (sync::now(), inner.gets);
        }
        self.heat()
    }

    /// What the manifest is to remember of the heat of every table.
    pub(crate) fn heat(&self) -> Vec<(TableId, Vec<u8>)> {
        let inner = self.inner();
        if inner.dead {
            // What was saved before is nearer to the truth.
            return Vec::new();
        }
        let mut heat: Vec<_> =
            inner.tables.keys().filter_map(|&id| Some((id, inner.manager.encode(id)?))).collect();
        heat.sort_unstable_by_key(|(id, _)| *id);
        heat
    }

    /// Lookups of absent keys that asked a segment, for each get.
    pub(crate) fn heat_of(&self, id: SegmentId) -> f64 {
        self.inner().manager.segments_of(id.table).nth(id.segment as usize).map_or(0.0, |known| known.misses)
    }
}

impl Inner {
    fn add(
        &mut self,
        table: &Arc<OpenTable>,
        filter: &Arc<ElasticFilter>,
        spec: TableSpec,
        heat: Vec<Heat>,
    ) -> TableId {
        let id = table.meta.id;
        self.manager.add_table(spec, heat);
        self.tables.insert(id, Known { filter: filter.clone(), table: table.table.clone() });
        id
    }

    fn remove(&mut self, id: TableId) {
        if let Some(known) = self.tables.remove(&id) {
            self.manager.remove_table(id);
            self.waiting.retain(|load| load.segment.table != id);
            known.filter.clear();
        }
    }
}

/// Whether anybody asks the filters of single tables. Under a global filter, which a keyspace has or has not as long as the
/// database is open, nobody does: tables of a life before are better off without units.
fn asks(view: &View) -> bool {
    !view.selector.is_global()
}

/// The tables with an elastic filter.
fn elastic(tables: &[Arc<OpenTable>]) -> impl Iterator<Item = (&Arc<OpenTable>, &Arc<ElasticFilter>)> {
    tables.iter().filter_map(|table| match &table.filter {
        TableFilter::Elastic(filter) => Some((table, filter)),
        _ => None,
    })
}

fn segments_of(tables: &[Arc<OpenTable>]) -> u64 {
    elastic(tables).map(|(_, filter)| filter.directory().segments() as u64).sum()
}

fn spec_of(table: &OpenTable, filter: &ElasticFilter) -> TableSpec {
    let directory = filter.directory();
    TableSpec {
        id: table.meta.id,
        units: directory.units() as u8,
        rate: directory.rate(),
        segments: (0..directory.segments())
            .map(|segment| SegmentSpec {
                start: directory.first_key(segment).into(),
                keys: directory.keys(segment),
                unit_bytes: filter.charge_of(segment),
            })
            .collect(),
        end: table.meta.largest.clone(),
    }
}

impl DbInner {
    /// See [`Db::segments`](crate::Db::segments).
    pub(crate) fn segments(&self) -> Vec<SegmentStats> {
        self.elastic.segments(&self.state())
    }
}
