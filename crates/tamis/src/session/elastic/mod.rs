//! Elastic filters of an open database: which units are in memory, which threads sample gets, and
//! which load units.
//!
//! Y. Li et al., "ElasticBF" (ATC 2019), sections 3.3 to 3.5. The bookkeeping and the rules are in
//! [`Manager`]; this module connects it with readers, files and versions.
//!
//! # Threads
//!
//! * *Readers* probe the units in [`ElasticFilter`] and pass the probes of sampled gets to the
//!   [`Sampler`]. They share no lock with another reader and wait for nothing.
//! * *One background thread* ([`Elastic::work`]) takes the samples, lets the manager decide, takes
//!   units out of use, and loads others, several files at once. It starts with the first table that
//!   has an elastic filter.
//! * *The thread that publishes a version* ([`Elastic::change`], under the `state` lock) reports
//!   added and removed tables.
//!
//! `inner` is the last lock in the database's order: no other is taken while it is held (but the
//! one that frees units), and no file is read. A load is requested under it, done without it, and
//! installed under it if the table still exists and still wants it. So a compaction may drop a
//! table, or the budget shrink, at any moment; the loaded data is then discarded.
//!
//! # Memory
//!
//! With [memory for reads](crate::memory) that is divided between blocks and units, background
//! threads change the budget and the capacity of the block cache; also those of other databases
//! that share it.
//!
//! The budget covers directories, words, the manager's records and units. Units replaced or evicted
//! while a get probes them are freed when it ends. If more than a [`SLACK`]th of the budget is
//! waiting to be freed, nothing is loaded.

pub(crate) mod report;
pub(crate) mod save;
pub(crate) mod saved;
mod share;
mod worker;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use tamis_base::collections::{HashMap, HashSet};
use tamis_base::ids::TableId;
use tamis_base::key::BorderKey;
use tamis_files::table::cache::{BlockCache, Resizing};
use tamis_files::table::{ElasticFilter, Retired, Table, retire};
use tamis_policy::hotness::{
    Hotness, HotnessConfig, Manager, Origin, SegmentId, Segments, TableSpec, decode_hotness,
};

use crate::clock::{Clock, SystemClock};
use crate::memory::{Membership, SharedReadMemory, Use};
use crate::options::Options;
use crate::read::{AllReads, View};
use crate::records::RecordCache;
use crate::sampling::Sampler;
use crate::session::elastic::saved::Saved;
use crate::sync::thread::JoinHandle;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::tree::open_table::{OpenTable, TableFilter};
use crate::tree::version::{Run, Version};

/// Unreachable units may take this part of the budget.
const SLACK: u64 = 64;

/// A cache that may grow is made for at least this many blocks.
const LEAST_BLOCKS: u64 = 64;

/// State shared by all elastic filters of one database.
#[derive(Debug)]
pub(crate) struct Elastic {
    pub(crate) sampler: Arc<Sampler>,
    /// Bytes of unreachable units that a get may still be probing.
    retired: Arc<AtomicU64>,
    /// Whether the sampling interval adapts to the number of gets.
    adapts: bool,
    /// Tells when the hotness is to be saved.
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
    /// Signalled when all loads for new tables are done.
    settled: Condvar,
    load_reads: AtomicU64,
    load_bytes: AtomicU64,
    /// Set if the caches and the units share one limit.
    shared: Option<Shared>,
    worker: Mutex<Worker>,
    leaving: AtomicBool,
}

/// One limit shared by the block cache, the units and the record cache.
#[derive(Debug)]
pub(crate) struct Shared {
    cache: Arc<BlockCache>,
    records: Arc<RecordCache>,
    spared: Mutex<Spared>,
    /// The count of gets, including those that probe no elastic filter.
    counters: Arc<AllReads>,
    membership: Membership,
    /// The limit that the database was opened with; `None` if other databases share it, too.
    own: Option<u64>,
}

/// What a report of the record cache's worth continues from.
#[derive(Debug, Default)]
struct Spared {
    touches: u64,
    fetches: u64,
    last_hits: u64,
    reads: f64,
}

#[derive(Debug)]
enum Worker {
    /// The database is being opened, or has been closed.
    MayNot,
    /// The thread starts with the first table.
    May,
    Runs(JoinHandle<()>),
}

/// The state of the tables of the current versions.
#[derive(Debug)]
struct Inner {
    manager: Manager,
    tables: HashMap<TableId, Known>,
    /// The number of loads under way.
    under_way: usize,
    /// Whether a panic occurred or the background thread could not be started; nothing more is
    /// loaded then.
    dead: bool,
    /// The number of gets reported to the manager.
    gets: u64,
    saved: Saved,
}

/// A table with an elastic filter.
#[derive(Clone, Debug)]
struct Known {
    filter: Arc<ElasticFilter>,
    table: Arc<Table>,
}

impl Elastic {
    /// Creates the elastic filters of the database in `dir`, the block cache, and the record cache
    /// if there is one. The caches may share their limit with the units, and with other databases.
    pub(crate) fn new(
        options: &Options,
        dir: &Path,
        counters: &Arc<AllReads>,
    ) -> (Arc<Elastic>, Arc<BlockCache>, Option<Arc<RecordCache>>) {
        let block_bytes = options.keyspace.block_bytes;
        let own = (options.read_memory_bytes > 0).then_some(options.read_memory_bytes);
        let memory = options.shared_read_memory.clone().or_else(|| own.map(SharedReadMemory::new));
        let (cache, budget, records, shared) = match memory.map(|memory| (memory.bytes(), memory.join(dir))) {
            None => {
                let cache = Arc::new(BlockCache::new(options.cache_bytes, block_bytes));
                let records = match options.record_cache_bytes {
                    0 => None,
                    bytes => Some(Arc::new(RecordCache::new(bytes, bytes, 0))),
                };
                (cache, options.filter_budget_bytes, records, None)
            }
            Some((total, membership)) => {
                let step_bytes = membership.step();
                // The least that the market may leave this cache: a 32nd of the total where no
                // other database joins, and a 128th where up to four do.
                let least_bytes = if own.is_some() { 2 * step_bytes } else { step_bytes / 2 };
                // A cache created without capacity could not grow.
                let capacity = membership.bytes(Use::Blocks).max(LEAST_BLOCKS * block_bytes.max(1));
                let resizing = Resizing { least_bytes, step_bytes };
                let cache = Arc::new(BlockCache::with_ghost(capacity, block_bytes, resizing));
                let records = Arc::new(RecordCache::new(membership.bytes(Use::Records), total, step_bytes));
                let (counters, spared) = (counters.clone(), Mutex::default());
                let shared = Shared {
                    cache: cache.clone(),
                    records: records.clone(),
                    spared,
                    counters,
                    membership,
                    own,
                };
                (cache, 0, Some(records), Some(shared))
            }
        };
        let config =
            HotnessConfig { life_time: options.filter_life_time, inheritance: options.heat_inheritance };
        let clock = options.clock.clone().unwrap_or_else(|| Arc::new(SystemClock));
        let elastic = Arc::new(Elastic {
            sampler: Arc::new(Sampler::new(options.heat_sampling.map_or(1, |gets| gets as u32))),
            retired: Arc::default(),
            adapts: options.heat_sampling.is_none(),
            inner: Mutex::new(Inner {
                manager: Manager::new(config, budget),
                tables: HashMap::default(),
                under_way: 0,
                dead: false,
                gets: 0,
                saved: Saved::at_opening(clock.now()),
            }),
            clock,
            settled: Condvar::new(),
            load_reads: AtomicU64::new(0),
            load_bytes: AtomicU64::new(0),
            shared,
            worker: Mutex::new(Worker::MayNot),
            leaving: AtomicBool::new(false),
        });
        elastic.join_shared();
        (elastic, cache, records)
    }

    /// After a panic under the lock, units stay as they are until their tables are removed, and no
    /// others are loaded. Publishing a version must not panic because of it: filters only save
    /// reads.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock();
        if self.inner.was_poisoned() {
            inner.dead = true;
            // The old one may be in any intermediate state.
            inner.manager = Manager::new(HotnessConfig::default(), 0);
            inner.under_way = 0;
            self.inner.clear_poison();
        }
        inner
    }

    /// Registers all tables of a database being opened: each keyspace's view. `stored` is their
    /// hotness from the manifest.
    pub(crate) fn opened<'v>(
        self: &Arc<Self>,
        views: impl Iterator<Item = &'v View>,
        stored: impl Fn(TableId) -> Option<&'v [u8]>,
    ) {
        let mut inner = self.inner();
        for version in views.filter(|view| asks(view)).map(|view| &view.version) {
            for run in &version.runs {
                let tables = &version.tables[run.tables.clone()];
                let run_segments = segments_of(tables);
                for (table, filter) in elastic(tables) {
                    let spec = spec_of(table, filter);
                    let known =
                        stored(table.meta.id).and_then(|bytes| decode_hotness(bytes, spec.segments.count()));
                    let hotness = known
                        .unwrap_or_else(|| inner.manager.inherited(&spec, Origin::Nothing, run_segments));
                    inner.add(table, filter, spec, hotness);
                }
            }
        }
    }

    /// Registers a new version of a keyspace. Call under the `state` lock, when readers see it.
    /// Costs a walk over the tables of both versions if any has an elastic filter, and per new
    /// segment a lookup of the segments that it inherits hotness from.
    pub(crate) fn change(self: &Arc<Self>, old: &View, new: &View) {
        let asked = asks(new);
        let (old, new) = (&old.version, &new.version);
        if elastic(&old.tables).next().is_none() && elastic(&new.tables).next().is_none() {
            return;
        }
        let ids =
            |version: &Version| -> HashSet<TableId> { version.tables.iter().map(|t| t.meta.id).collect() };
        let (before, after) = (ids(old), ids(new));
        let gone: Vec<&Arc<OpenTable>> = old.tables.iter().filter(|t| !after.contains(&t.meta.id)).collect();
        let mut inner = self.inner();
        for (place, run) in new.runs.iter().enumerate().filter(|_| asked) {
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
                let hotness = inner.manager.inherited(&spec, origin, run_segments);
                inner.add(table, filter, spec, hotness);
            }
        }
        let mut retired: Vec<_> = gone.iter().flat_map(|table| inner.remove(table.meta.id)).collect();
        // The directories of the new tables may leave less room for units.
        let budget = inner.manager.budget();
        let unload = inner.manager.set_budget(budget);
        retired.extend(inner.unload(unload));
        let work = !inner.tables.is_empty();
        drop(inner);
        retire(retired, &self.retired);
        if work {
            self.start_if_allowed();
            self.sampler.wake();
        }
    }

    /// Removes a dropped keyspace.
    pub(crate) fn dropped(&self, version: &Version) {
        let mut inner = self.inner();
        let retired = version.tables.iter().flat_map(|table| inner.remove(table.meta.id)).collect();
        drop(inner);
        retire(retired, &self.retired);
        // Others may get the freed memory.
        self.sampler.wake();
    }

    /// Waits until the units of all new tables are loaded, or cannot be.
    pub(crate) fn settle(&self) {
        let mut inner = self.inner();
        while !inner.dead
            && !self.leaving.load(Relaxed)
            && (inner.manager.is_due() || inner.under_way > 0)
            && !inner.tables.is_empty()
        {
            // The thread may have been asleep since before this was due.
            self.sampler.wake();
            drop(self.settled.wait_timeout(inner, Duration::from_millis(100)));
            inner = self.inner();
        }
    }

    /// Returns the segment's lookups of absent keys per get.
    pub(crate) fn hotness_of(&self, id: SegmentId) -> f64 {
        self.inner().manager.segments_of(id.table).nth(id.segment as usize).map_or(0.0, |known| known.misses)
    }
}

impl Inner {
    fn add(
        &mut self,
        table: &Arc<OpenTable>,
        filter: &Arc<ElasticFilter>,
        spec: TableSpec,
        hotness: Vec<Hotness>,
    ) {
        self.manager.add_table(spec, hotness);
        self.tables.insert(table.meta.id, Known { filter: filter.clone(), table: table.table.clone() });
    }

    /// Forgets a table, if it is known. Returns its units.
    fn remove(&mut self, id: TableId) -> Vec<Retired> {
        let Some(known) = self.tables.remove(&id) else { return Vec::new() };
        self.manager.remove_table(id);
        known.filter.clear()
    }
}

/// Reports whether single tables' filters are probed. Under a global filter they are not, so older
/// tables need no units.
fn asks(view: &View) -> bool {
    !view.selector.is_global()
}

/// Returns the tables with an elastic filter.
fn elastic(tables: &[Arc<OpenTable>]) -> impl Iterator<Item = (&Arc<OpenTable>, &Arc<ElasticFilter>)> {
    tables.iter().filter_map(|table| match &table.filter {
        TableFilter::Elastic(filter) => Some((table, filter)),
        _ => None,
    })
}

fn segments_of(tables: &[Arc<OpenTable>]) -> u64 {
    elastic(tables).map(|(_, filter)| filter.directory().segments() as u64).sum()
}

fn spec_of(table: &OpenTable, filter: &Arc<ElasticFilter>) -> TableSpec {
    TableSpec {
        id: table.meta.id,
        rates: filter.directory().rates(),
        segments: Arc::new(SegmentsOf(filter.clone())),
        end: table.meta.largest.clone(),
        fixed_bytes: filter.fixed_bytes(),
    }
}

/// The segments of a table, as the manager asks for them.
#[derive(Debug)]
struct SegmentsOf(Arc<ElasticFilter>);

impl Segments for SegmentsOf {
    fn count(&self) -> usize {
        self.0.directory().segments()
    }

    fn start(&self, segment: usize) -> BorderKey {
        self.0.directory().first_key(segment)
    }

    fn keys(&self, segment: usize) -> u64 {
        self.0.directory().keys(segment)
    }

    fn bytes(&self, segment: usize, units: u8) -> u64 {
        self.0.bytes(segment, units)
    }
}
