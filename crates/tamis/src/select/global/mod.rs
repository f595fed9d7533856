//! The global filter of a keyspace: GRF over its whole tree (H. Wang et al., "GRF: A Global Range
//! Filter for LSM-Trees with Shape Encoding", SIGMOD 2024), for any compaction policy.
//!
//! # Structure
//! The key space is divided into ranges of tens of thousands of keys. Each range has a
//! [`Partition`] in a [`Cell`]; a [`Directory`] lists the cells in key order. A partition entry is
//! a position and a *code*, which names epochs (numbers of flushes). A table records the epochs it
//! may hold. The candidates for a key are the tables whose epochs meet a code that the key matches
//! ([`selector`]). Compactions do not touch the filter; only the tables' epochs move.
//!
//! A partition is built from the tables of its range ([`gather`]). Rebuilding after a last-level
//! compaction and repairing damage are the same operation. Opening needs neither where *images* of
//! the partitions are on disk ([`saved`]). A flushed table has a list of its keys, since these must
//! be added. A merged table adds no keys and has no list; if it must be read, its data is.
//!
//! # Updates
//! * **Flush**: adds its keys to the cells of the current directory, then publishes its version.
//!   Readers of older versions skip entries whose epochs none of their tables has.
//! * **Compaction, move, drop**: change nothing. The new version has the same directory.
//! * **Ingestion**: publishes its tables at once, with [`missing`](Grf::missing) epochs. Tables
//!   that hold one are candidates for every key until a background thread has added their keys.
//! * **Following a writer** in another process: tables arrive that were not flushed or merged here.
//!   A table is [`unseen`](Grf::unseen) if it may have keys of a flush that was not published when
//!   the last version was made. Unseen tables are candidates for every key until they are added
//!   like ingested ones ([`follow`](crate::db)).
//! * **Rebuild** of a key range: builds cells from the keys of one version's tables, adds what was
//!   flushed meanwhile (the paper's waiting buffer; here the flushed tables themselves), then
//!   publishes a version with the new directory. Older versions keep their directory. If one is
//!   still being read, its cell is shrunk to the entries of upper levels, and its last level
//!   becomes a candidate for every key. (The paper probes the new filter instead, which would deny
//!   keys that the compaction dropped but the old version has.)
//! * **Codes** are shortened whenever a partition is written, as far as the live versions allow
//!   ([`Cuts`]). This is the paper's garbage collection, with "live versions" in place of "the
//!   oldest snapshot".
//!
//! # Images
//! An image is a partition on disk, for one key range, with an epoch *until*
//! ([`images`](tamis_files::images)). It is saved with the `until` of [`Grf::until`], which
//! guarantees: if a current or future table holds a key of the range with only epochs below
//! `until`, the filter has that key. This holds because `until` excludes these epochs:
//! * [`Grf::missing`] epochs that a table holds. They include those of damaged tables: the last
//!   epoch of a damaged table suffices, as the table, and what it is merged into, then ends above
//!   `until`.
//! * [`Grf::unpublished`] epochs, whose tables are still being written.
//! * Epochs not taken yet.
//!
//! The partition is taken under the locks under which `until` is computed, so no flush is half
//! done.
//!
//! *A cell made from an image denies no key.* Let a table of the version at opening hold a key of
//! the range, with the epochs `[lo, hi)` there.
//! * `hi <= until`: the key came from tables that existed when the image was taken, or it would
//!   have a later epoch. Merges only join epochs, so such a table had epochs within `[lo, hi)`. Its
//!   key was thus in the filter, with a code that meets its epochs and therefore `[lo, hi)`.
//!   Compactions in between do not matter, nor that the image's codes are from an older tree: a
//!   code is an interval of epochs, not a place in the tree.
//! * `hi > until`: the table belongs to the image's log, even if `lo < until`. Its keys are added
//!   as by a flush, before the cell is published ([`Grf::load`]). Keys already in the image are
//!   added again; equal entries are one.
//!
//! Entries of tables left unpublished by a crash name epochs at or above `until`, which other
//! flushes may get. They cause false positives, nothing else. The edit that names an image follows
//! the edits of all tables in the image, so recovery never finds a tree with the image but without
//! these tables. The edit also keeps epochs below `until` from being taken again. Cuts miss no
//! table: once a cell is loaded, every table it has entries for is in a live version or gone.
//!
//! A cell serves its image's range, except where a newer image counts, like a cell whose range a
//! rebuild has cut. A partition built under other options still denies no key: it is used until the
//! range is rebuilt, which is due at once. Its prefixes are used only under the same
//! `prefix_filter`.
//!
//! # Threads
//! Readers load a version, its directory and a cell's partition, all immutable, without waiting.
//! Writers:
//! * [`Grf::work`] is held by a thread that adds keys, from before the first cell changes until the
//!   version that needs them is published, and by a rebuild while it publishes. It is taken before
//!   the database's `state` lock. Flushes and rebuilds thus never see each other half done, and a
//!   flush's version gets the directory that the flush has filled.
//! * The current directory is replaced under `work` and `state` together; it may be read under
//!   either.
//! * A cell's partition is replaced under `work`, and stored (Release) before the view that needs
//!   its entries. A reader that has loaded that view (Acquire) therefore sees them.
//! * [`Grf::alive`], [`Grf::unread`] and [`Grf::unpublished`] are leaf locks, held briefly; so is
//!   [`Grf::missing`], under [`Grf::unseen`].

use crate::sync::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use tamis_base::collections::HashSet;
use tamis_base::epochs::EpochMap;
use tamis_base::ids::TableId;
use tamis_base::key::{KeyBytes, prefix_of};
use tamis_base::meta::TableMeta;
use tamis_filter::global::{Cuts, Epoch, Epochs, MapChoice, Partition};

use crate::error::StorageError;
use crate::options::{KeyMapChoice, KeyspaceOptions, PrefixFilter};
use crate::select::keys::KeysRead;
use crate::select::{QuerySampler, Warnings};
use crate::tree::open_table::OpenTable;

mod gather;
mod mix;
mod report;
mod saved;
mod selector;
#[cfg(test)]
mod tests;
mod upkeep;

pub(crate) use gather::Span;
pub use report::{GlobalFilterStats, KeyMapStats};
pub(crate) use saved::{Moment, Part, Restored, TakenEpoch};
pub(crate) use selector::GlobalSelector;
pub(crate) use upkeep::Task;

/// The current partition of one key range.
#[derive(Debug)]
pub(crate) struct Cell {
    /// The range it was built for. Directories may use it for a smaller range; newer cells have the
    /// rest.
    start: KeyBytes,
    end: Option<KeyBytes>,
    /// None before it is built.
    partition: ArcSwapOption<Partition>,
    /// The known prefixes of its keys, as keys, if prefixes are filtered. Replaced before
    /// `partition`, so that a reader that finds a key there finds its prefixes here.
    prefixes: ArcSwapOption<Partition>,
    /// The tables of the oldest run that it was built from.
    oldest: Vec<u64>,
    /// Whether it was built under other options and is due for a rebuild.
    is_outdated: bool,
    chosen: mix::Chosen,
    saved: saved::Saved,
}

impl Cell {
    fn empty() -> Arc<Cell> {
        Arc::new(Cell {
            start: KeyBytes::default(),
            end: None,
            partition: ArcSwapOption::empty(),
            prefixes: ArcSwapOption::empty(),
            oldest: Vec::new(),
            is_outdated: false,
            chosen: mix::Chosen::default(),
            saved: saved::Saved::default(),
        })
    }

    /// Returns the bytes of the cell and its place in a directory, without partitions.
    fn memory_bytes(&self) -> usize {
        // The directory repeats the start and its first bytes.
        let keys = 2 * self.start.len() + self.end.as_ref().map_or(0, |end| end.len());
        let place = size_of::<(KeyBytes, Arc<Cell>)>() + size_of::<u64>();
        size_of::<Cell>() + place + keys + self.oldest.len() * size_of::<u64>()
    }

    /// Returns the cuts of these tables within the cell.
    fn cuts(&self, metas: &[Arc<TableMeta>]) -> Cuts {
        let within = metas.iter().filter(|meta| self.overlaps(meta));
        Cuts::of(within.flat_map(|meta| spans_within(&meta.epochs, &self.start, self.end.as_deref())))
    }

    fn overlaps(&self, meta: &TableMeta) -> bool {
        meta.largest.reaches(&self.start) && self.end.as_ref().is_none_or(|end| meta.smallest < *end)
    }
}

/// All cells of a tree, in key order without gaps: the first starts at the empty key. Immutable.
#[derive(Debug)]
pub(crate) struct Directory {
    /// The start of each range, and its cell.
    parts: Vec<(KeyBytes, Arc<Cell>)>,
    /// `prefix_of` of the starts.
    prefixes: Vec<u64>,
}

impl Directory {
    fn new(parts: Vec<(KeyBytes, Arc<Cell>)>) -> Directory {
        debug_assert!(parts.first().is_some_and(|(start, _)| start.is_empty()));
        debug_assert!(parts.windows(2).all(|pair| pair[0].0 < pair[1].0));
        Directory { prefixes: parts.iter().map(|(start, _)| prefix_of(start)).collect(), parts }
    }

    /// Returns the number of the range that holds `key`, whose `prefix_of` is `prefix`.
    #[inline]
    fn find(&self, key: &[u8], prefix: u64) -> usize {
        let below = self.prefixes.partition_point(|&start| start < prefix);
        let ties = self.prefixes[below..].iter().take_while(|&&start| start == prefix).count();
        let after = below + self.parts[below..below + ties].partition_point(|(start, _)| &start[..] <= key);
        after.saturating_sub(1)
    }

    #[inline]
    fn cell(&self, at: usize) -> &Cell {
        &self.parts[at].1
    }

    #[inline]
    fn start(&self, at: usize) -> &KeyBytes {
        &self.parts[at].0
    }

    /// Returns the end of the range.
    fn end(&self, at: usize) -> Option<&KeyBytes> {
        self.parts.get(at + 1).map(|(start, _)| start)
    }

    fn span(&self, at: usize) -> Span {
        Span { start: self.start(at).clone(), end: self.end(at).cloned() }
    }

    /// Returns the directory with `parts` in place of everything from `start` up to `end`.
    fn with(&self, start: &KeyBytes, end: Option<&KeyBytes>, parts: Vec<(KeyBytes, Arc<Cell>)>) -> Directory {
        let mut all: Vec<(KeyBytes, Arc<Cell>)> =
            self.parts.iter().filter(|(at, _)| at < start).cloned().collect();
        all.extend(parts);
        if let Some(end) = end {
            let at_end = self.find(end, prefix_of(end));
            all.push((end.clone(), self.parts[at_end].1.clone()));
            all.extend(self.parts.iter().filter(|(at, _)| at > end).cloned());
        }
        // Adjacent ranges of one cell become one range.
        all.dedup_by(|next, kept| Arc::ptr_eq(&next.1, &kept.1));
        Directory::new(all)
    }
}

/// State of the work that one thread at a time does.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Tables flushed since the current rebuild began; `None` without a rebuild.
    since: Option<Vec<Arc<OpenTable>>>,
}

/// The global filter of one keyspace. See the module documentation.
#[derive(Debug)]
pub(crate) struct Grf {
    spec: Spec,
    /// What readers ask for.
    queries: Arc<QuerySampler>,
    reviewed: mix::Reviewed,
    directory: ArcSwap<Directory>,
    /// Epochs of tables whose keys are not in the filter: ingested tables whose keys are not added
    /// yet, and tables in `unread`.
    missing: Mutex<Vec<Epoch>>,
    /// Tables whose keys cannot be read because of damage.
    unread: Mutex<HashSet<TableId>>,
    /// In a followed database: tables that may have keys missing from the filter, whatever their
    /// epochs.
    unseen: Mutex<HashSet<TableId>>,
    /// Epochs taken for tables that are not published yet.
    unpublished: Arc<Mutex<Vec<Epoch>>>,
    /// Whether images were looked for. Set under `state`.
    loaded: AtomicBool,
    warnings: Warnings,
    /// The tables of the live versions.
    alive: Mutex<Vec<Weak<Vec<Arc<TableMeta>>>>>,
    work: Mutex<Work>,
    /// Cells that were replaced while older versions used them.
    old: Mutex<Vec<Weak<Cell>>>,
    counts: Counts,
}

/// The relevant options.
#[derive(Clone, Debug)]
struct Spec {
    bits_per_key: f64,
    map: MapChoice,
    prefixes: PrefixFilter,
}

/// Counters since the database was opened.
#[derive(Debug, Default)]
struct Counts {
    inserted: AtomicU64,
    insert_ns: AtomicU64,
    built: AtomicU64,
    build_ns: AtomicU64,
    read: KeysRead,
    images_loaded: AtomicU64,
    images_saved: AtomicU64,
}

impl Grf {
    /// Returns the filter of a tree about which nothing is known yet.
    pub(crate) fn new(options: &KeyspaceOptions) -> Grf {
        Grf {
            spec: Spec {
                bits_per_key: options.bits_per_key,
                map: match options.key_map {
                    KeyMapChoice::Auto => MapChoice::Auto,
                    KeyMapChoice::Learned => MapChoice::Learned,
                    KeyMapChoice::Digest => MapChoice::Digest,
                    KeyMapChoice::Mixed => MapChoice::Mixed,
                    KeyMapChoice::Local => MapChoice::Local,
                },
                prefixes: options.prefix_filter,
            },
            queries: Arc::new(QuerySampler::new(options.workload.as_ref())),
            reviewed: mix::Reviewed::default(),
            directory: ArcSwap::from_pointee(Directory::new(vec![(KeyBytes::default(), Cell::empty())])),
            missing: Mutex::default(),
            unread: Mutex::default(),
            unseen: Mutex::default(),
            unpublished: Arc::default(),
            loaded: AtomicBool::new(false),
            warnings: Warnings::default(),
            alive: Mutex::default(),
            work: Mutex::default(),
            old: Mutex::default(),
            counts: Counts::default(),
        }
    }

    /// Returns the sampler of the keyspace's reads.
    pub(crate) fn queries(&self) -> &Arc<QuerySampler> {
        &self.queries
    }

    /// Locks the work. Taken before the `state` lock; see the module documentation.
    pub(crate) fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock()
    }

    /// Records the epoch of tables published without their keys in the filter. Call before their
    /// version is made.
    pub(crate) fn note_missing(&self, epoch: Epoch) {
        let mut missing = self.missing.lock();
        // A table that cannot be read is reported repeatedly.
        if !missing.contains(&epoch) {
            missing.push(epoch);
        }
    }

    /// Records tables about to be published that may have keys missing from the filter. Call before
    /// their version is made. `has` says which tables the version has; others are forgotten.
    pub(crate) fn note_unseen(&self, tables: impl Iterator<Item = TableId>, has: impl Fn(TableId) -> bool) {
        let mut unseen = self.unseen.lock();
        unseen.retain(|id| has(*id));
        unseen.extend(tables);
    }

    /// Reports whether any table is `unseen`.
    pub(crate) fn has_unseen(&self) -> bool {
        !self.unseen.lock().is_empty()
    }

    /// Forgets the missing epochs that these tables hold: a filter built from them lacks nothing.
    pub(crate) fn forget_missing(&self, tables: &[Arc<OpenTable>]) {
        let mut missing = self.missing.lock();
        missing.retain(|epoch| !tables.iter().any(|table| holds(&table.meta.epochs, *epoch)));
    }

    /// Drops all partitions, for a tree with these tables that is no longer read through the
    /// filter. Versions still read through it keep their directory.
    pub(crate) fn clear(&self, work: &Work, tables: &[Arc<OpenTable>]) {
        debug_assert!(work.since.is_none(), "no build is under way");
        self.directory.store(Arc::new(Directory::new(vec![(KeyBytes::default(), Cell::empty())])));
        self.unread.lock().clear();
        self.unseen.lock().clear();
        self.forget_missing(tables);
    }

    /// Records that some keys of the table are not in the filter. The tables it is merged into hold
    /// the recorded epochs at each of its keys. Call before making a version that relies on cells
    /// without its keys.
    fn note_incomplete(&self, table: &OpenTable) {
        let segments = table.meta.epochs.segments().iter();
        segments.filter(|s| s.lo < s.hi).for_each(|s| self.note_missing(s.hi - 1));
    }

    /// Records a table whose keys are unreadable because of damage, so that reading is not retried.
    fn note_unread(&self, table: &OpenTable, why: &StorageError) {
        self.note_incomplete(table);
        let id = table.meta.id;
        self.unread.lock().insert(id);
        self.warnings
            .add(id, || format!("table {id} is searched for every key, without the global filter: {why}"));
    }

    /// Returns the warnings since the last call.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        self.warnings.take()
    }

    /// Reports whether the filter lacks keys of a table with these epochs.
    fn lacks(&self, epochs: &EpochMap) -> bool {
        let missing = self.missing.lock();
        missing.iter().any(|epoch| holds(epochs, *epoch))
    }

    /// Returns the selector of a version; under the `state` lock.
    pub(crate) fn selector(
        &self,
        runs: &[crate::tree::version::Run],
        tables: &[Arc<OpenTable>],
    ) -> GlobalSelector {
        let metas: Arc<Vec<Arc<TableMeta>>> =
            Arc::new(tables.iter().map(|table| table.meta.clone()).collect());
        {
            let mut alive = self.alive.lock();
            alive.retain(|version| version.strong_count() > 0);
            alive.push(Arc::downgrade(&metas));
        }
        // A table that cannot be read may hold range tombstones, which no filter knows.
        let lost = |table: &Arc<OpenTable>| table.table.why_lost().is_some();
        let unseen = self.unseen.lock();
        let lacking = |table: &Arc<OpenTable>| {
            lost(table) || unseen.contains(&table.meta.id) || self.lacks(&table.meta.epochs)
        };
        let lacking = tables.iter().map(lacking).collect();
        drop(unseen);
        GlobalSelector::new(self.directory.load_full(), self.spec.prefixes, metas, runs, tables, lacking)
    }

    /// Returns the tables of all live versions, each once, and the `coming` ones. A later version
    /// has only the cuts of these tables, and cuts beyond all of them.
    fn alive(&self, coming: &[Arc<OpenTable>]) -> Vec<Arc<TableMeta>> {
        let alive: Vec<_> = {
            let alive = self.alive.lock();
            alive.iter().filter_map(Weak::upgrade).collect()
        };
        let metas =
            alive.iter().flat_map(|version| version.iter()).chain(coming.iter().map(|table| &table.meta));
        let mut metas: Vec<Arc<TableMeta>> = metas.cloned().collect();
        metas.sort_unstable_by_key(|meta| meta.id);
        metas.dedup_by(|a, b| Arc::ptr_eq(a, b));
        metas
    }
}

/// Reports whether a table with these epochs may hold writes of the flush `epoch`.
fn holds(epochs: &EpochMap, epoch: Epoch) -> bool {
    epochs.segments().iter().any(|s| (s.lo..s.hi).contains(&epoch))
}

/// Returns the epochs of a table in the range from `start` up to `end`.
fn spans_within(epochs: &EpochMap, start: &[u8], end: Option<&[u8]>) -> impl Iterator<Item = Epochs> {
    let segments = epochs.segments();
    let first = segments.partition_point(|segment| &segment.start[..] <= start).saturating_sub(1);
    let last = end.map_or(segments.len(), |end| segments.partition_point(|segment| &segment.start[..] < end));
    // A key before the first segment belongs to that segment.
    let within = &segments[first..last.max(first + 1)];
    within.iter().filter(|s| s.lo < s.hi).map(|s| Epochs { lo: s.lo, hi: s.hi })
}

#[cfg(all(test, loom))]
mod model;
