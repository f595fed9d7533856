//! The state of the filter: what it has, what it lacks, and the selectors of versions.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use tamis_base::collections::HashSet;
use tamis_base::epochs::EpochMap;
use tamis_base::ids::TableId;
use tamis_base::key::KeyBytes;
use tamis_base::meta::TableMeta;
use tamis_filter::global::{Epoch, MapChoice};

use super::cell::{Cell, CellDirectory};
use super::selector::{GlobalSelector, LiveTables};
use super::span::holds;
use super::young::Young;
use crate::error::StorageError;
use crate::options::{KeyMapChoice, KeyspaceOptions, PrefixFilter};
use crate::select::keys::KeyNotes;
use crate::select::queries::QuerySampler;
use crate::sync::{Mutex, MutexGuard};
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

/// Held by the one thread at a time that changes cells.
#[derive(Debug, Default)]
pub(crate) struct Work;

/// The global filter of one keyspace. See the module documentation.
#[derive(Debug)]
pub(crate) struct Grf {
    pub(super) spec: Spec,
    /// What readers ask for.
    pub(super) queries: Arc<QuerySampler>,
    /// The reads observed at the last review of key maps.
    pub(super) reviewed: AtomicU64,
    pub(super) directory: ArcSwap<CellDirectory>,
    /// Flushed tables whose keys are not added yet.
    pub(super) young: Mutex<Young>,
    /// Epochs of tables whose keys are not in the filter: flushed and ingested tables whose keys are
    /// not added yet, and tables in `unread`.
    pub(super) missing: Mutex<Vec<Epoch>>,
    /// Tables whose keys cannot be read because of damage.
    pub(super) unread: Mutex<HashSet<TableId>>,
    /// In a followed database: tables that may have keys missing from the filter, whatever their
    /// epochs.
    pub(super) unseen: Mutex<HashSet<TableId>>,
    /// Epochs taken for tables that are not published yet.
    pub(super) unpublished: Arc<Mutex<Vec<Epoch>>>,
    /// Whether images were looked for. Set under `state`.
    pub(super) loaded: AtomicBool,
    /// What was found while keys were read.
    pub(crate) notes: KeyNotes,
    /// The tables of the live versions.
    pub(super) alive: Mutex<Vec<Weak<Vec<Arc<TableMeta>>>>>,
    pub(super) work: Mutex<Work>,
    /// Cells that were replaced while older versions used them.
    pub(super) old: Mutex<Vec<Weak<Cell>>>,
    pub(super) counts: Counts,
}

/// The relevant options.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) bits_per_key: f64,
    pub(super) map: MapChoice,
    pub(super) prefixes: PrefixFilter,
}

/// Counters since the database was opened.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) inserted: AtomicU64,
    pub(super) insert_ns: AtomicU64,
    pub(super) built: AtomicU64,
    pub(super) build_ns: AtomicU64,
    pub(super) collected: AtomicU64,
    pub(super) collect_ns: AtomicU64,
    pub(super) images_loaded: AtomicU64,
    pub(super) images_saved: AtomicU64,
}

/// An epoch whose tables are not published yet. Drop it once they are, or never will be.
#[derive(Debug)]
pub(crate) struct TakenEpoch {
    epochs: Arc<Mutex<Vec<Epoch>>>,
    epoch: Epoch,
}

impl Drop for TakenEpoch {
    fn drop(&mut self) {
        let mut epochs = self.epochs.lock();
        if let Some(at) = epochs.iter().position(|epoch| *epoch == self.epoch) {
            epochs.swap_remove(at);
        }
    }
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
            reviewed: AtomicU64::new(0),
            directory: ArcSwap::from_pointee(CellDirectory::new(vec![(KeyBytes::default(), Cell::empty())])),
            young: Mutex::default(),
            missing: Mutex::default(),
            unread: Mutex::default(),
            unseen: Mutex::default(),
            unpublished: Arc::default(),
            loaded: AtomicBool::new(false),
            notes: KeyNotes::default(),
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

    /// Records that an epoch was taken for future tables. Call under the `state` lock under which
    /// it was taken.
    pub(crate) fn note_taken(&self, epoch: Epoch) -> TakenEpoch {
        self.unpublished.lock().push(epoch);
        TakenEpoch { epochs: self.unpublished.clone(), epoch }
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
    pub(crate) fn clear(&self, _work: &Work, tables: &[Arc<OpenTable>]) {
        self.directory.store(Arc::new(CellDirectory::new(vec![(KeyBytes::default(), Cell::empty())])));
        *self.young.lock() = Young::default();
        self.unread.lock().clear();
        self.unseen.lock().clear();
        self.forget_missing(tables);
    }

    /// Records that some keys of the table are not in the filter. The tables it is merged into hold
    /// the recorded epochs at each of its keys. Call before making a version that relies on cells
    /// without its keys.
    pub(super) fn note_incomplete(&self, table: &OpenTable) {
        let segments = table.meta.epochs.segments().iter();
        segments.filter(|s| s.lo < s.hi).for_each(|s| self.note_missing(s.hi - 1));
    }

    /// Records a table whose keys are unreadable because of damage, so that reading is not retried.
    pub(super) fn note_unread(&self, table: &OpenTable, why: &StorageError) {
        self.note_incomplete(table);
        self.unread.lock().insert(table.meta.id);
        self.notes.note_damaged(table.meta.id, why);
    }

    /// Reports whether the filter lacks keys of a table with these epochs.
    pub(super) fn lacks(&self, epochs: &EpochMap) -> bool {
        let missing = self.missing.lock();
        missing.iter().any(|epoch| holds(epochs, *epoch))
    }

    /// Records a version as live: codes must distinguish its tables until the result is dropped.
    pub(crate) fn note_live(&self, tables: &[Arc<OpenTable>]) -> LiveTables {
        let live: LiveTables = Arc::new(tables.iter().map(|table| table.meta.clone()).collect());
        let mut alive = self.alive.lock();
        alive.retain(|version| version.strong_count() > 0);
        alive.push(Arc::downgrade(&live));
        live
    }

    /// Returns the selector of a version; under the `state` lock.
    pub(crate) fn selector(&self, version: &Version) -> GlobalSelector {
        let tables = &version.tables;
        let live = self.note_live(tables);
        // A table that cannot be read may hold range tombstones, which no filter knows.
        let lost = |table: &Arc<OpenTable>| table.table.why_lost().is_some();
        let unseen = self.unseen.lock();
        let lacking = |table: &Arc<OpenTable>| {
            lost(table) || unseen.contains(&table.meta.id) || self.lacks(&table.meta.epochs)
        };
        let lacking = tables.iter().map(lacking).collect();
        drop(unseen);
        let young = self.young.lock();
        let young = tables.iter().map(|table| young.filter_of(table).cloned()).collect();
        let directory = self.directory.load_full();
        GlobalSelector::new(directory, self.spec.prefixes, live, version, lacking, young)
    }

    /// Returns the tables of all live versions, each once, and the `coming` ones. A later version
    /// has only the cuts of these tables, and cuts beyond all of them.
    pub(super) fn alive(&self, coming: &[Arc<OpenTable>]) -> Vec<Arc<TableMeta>> {
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
