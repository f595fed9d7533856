//! The catalogue: which keyspaces exist, which tables make up their trees, and the manifest that
//! records both.
//!
//! # Invariants
//!
//! * A table and its name are durable before an edit names it; a file is removed only after the
//!   edit that drops it.
//! * The tree in memory is that of the versions in use. Only durable edits change it, but for
//!   counters that the next edit records: epochs taken, the next file number, and the times of
//!   writes that a power failure took back.
//! * The effect of a failed edit on disk is unknown, so no edit builds on it: the next one first
//!   writes a new manifest of the tree in memory and switches to it
//!   ([`settle`](Catalogue::settle)). Until then, nothing is removed that either manifest may name.
//! * A version shares open tables with its predecessor: a table is opened once.
//!
//! # Threads and locks
//!
//! The catalogue is behind the `state` lock, and so is each change of a keyspace's view. The jobs
//! and the list of log files are behind the same lock: an edit is chosen, made durable and
//! published under one lock, together with the jobs that it ends and the logs that it releases.
//! [`Keyspaces`] and [`FileNumbers`] are read without a lock: the first by writers and statistics,
//! the second by any thread that creates a file.
//!
//! # Failures and poison
//!
//! A failed edit publishes nothing and leaves the tree in memory as it was. After a panic under the
//! lock the tree may be in any state, and no more edits are made.

pub(crate) mod age;
pub(crate) mod filled;
pub(crate) mod filter_files;
pub(crate) mod filter_upkeep;
pub(crate) mod keyspace;
pub(crate) mod log_files;
pub(crate) mod monitor;
pub(crate) mod old_views;
pub(crate) mod pressure;
pub(crate) mod progress;
pub(crate) mod read_debts;
pub(crate) mod reshaping;
pub(crate) mod retained;
pub(crate) mod scheduler;
pub(crate) mod scrubbed;
pub(crate) mod shaping;
pub(crate) mod state;
pub(crate) mod stored_options;
pub(crate) mod tuning;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use tamis_base::collections::{HashMap, HashSet, SharedMap};
use tamis_base::ids::{FilterFileId, KeyspaceId, TableId};
use tamis_base::key::SeqNo;
use tamis_files::tree::edit::VersionEdit;
use tamis_files::tree::files::manifest_path;
use tamis_files::tree::manifest::{Manifest, prepare_current, set_current, switch_current};
use tamis_files::tree::state::ManifestState;

use crate::catalogue::filter_files::FilterFiles;
use crate::catalogue::keyspace::KeyspaceInner;
use crate::error::{StorageError, WriteError};
use crate::gate::Gate;
use crate::io::FileSystem;
use crate::read::{Memtables, View};
use crate::tree::garbage::Garbage;
use crate::tree::new_tables::NewTables;
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

/// The keyspaces by id, that is, in order of creation.
pub(crate) type Directory = SharedMap<KeyspaceId, Arc<KeyspaceInner>>;

/// The keyspaces, and the subsets that the engine itself visits. Copies share the maps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sorted {
    all: Directory,
    names: SharedMap<Arc<str>, KeyspaceId>,
    /// Those whose entries expire, or once did.
    pub(crate) aging: Directory,
    /// Those whose policy drops data that was never deleted.
    pub(crate) dropping: Directory,
    /// Those with a filter for the whole tree.
    pub(crate) filtered: Directory,
}

impl Sorted {
    /// Returns the keyspace of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Arc<KeyspaceInner>> {
        self.all.get(self.names.get(name)?)
    }

    fn add(&mut self, keyspace: &Arc<KeyspaceInner>) {
        let add = |to: &mut Directory| _ = to.insert(keyspace.id, keyspace.clone());
        add(&mut self.all);
        if keyspace.age.keep_seq() {
            add(&mut self.aging);
        }
        if keyspace.filter.global().is_some() {
            add(&mut self.filtered);
        }
        if keyspace.shaping.load().policy.drops_data() {
            add(&mut self.dropping);
        }
    }

    fn remove(&mut self, keyspace: KeyspaceId) {
        for from in [&mut self.all, &mut self.aging, &mut self.dropping, &mut self.filtered] {
            from.remove(&keyspace);
        }
    }
}

impl std::ops::Deref for Sorted {
    type Target = Directory;

    fn deref(&self) -> &Directory {
        &self.all
    }
}

/// The keyspaces, for threads that do not take `state`.
#[derive(Debug)]
pub(crate) struct Keyspaces(ArcSwap<Sorted>);

impl Keyspaces {
    pub(crate) fn load(&self) -> Guard<Arc<Sorted>> {
        self.0.load()
    }

    pub(crate) fn load_full(&self) -> Arc<Sorted> {
        self.0.load_full()
    }
}

/// The numbers of files and runs. Each is assigned once. They publish nothing (`Relaxed`).
#[derive(Debug)]
pub(crate) struct FileNumbers(AtomicU64);

impl FileNumbers {
    pub(crate) fn from(first: u64) -> FileNumbers {
        FileNumbers(AtomicU64::new(first))
    }

    /// Returns a new number.
    pub(crate) fn take(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number that will be assigned next.
    pub(crate) fn next(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn counter(&self) -> &AtomicU64 {
        &self.0
    }
}

/// The state after a failed edit: it is unknown whether the edit is on disk, and perhaps even which
/// manifest is in force.
#[derive(Debug, Default)]
struct Unsettled {
    cause: String,
    /// Tables that only a failed edit names.
    tables: Vec<Arc<OpenTable>>,
    /// Filter files that only a failed edit names.
    filter_files: Vec<FilterFileId>,
    /// Manifests that may be in force, apart from the previous one.
    manifests: Vec<PathBuf>,
}

/// Tables that are open but in no version yet.
pub(crate) type Opened = HashMap<TableId, Arc<OpenTable>>;

/// A keyspace whose tree an edit has changed, with its view before and after.
pub(crate) type Published = (Arc<KeyspaceInner>, Arc<View>, Arc<View>);

/// The durable tree and its keyspaces.
#[derive(Debug)]
pub(crate) struct Catalogue {
    dir: PathBuf,
    fs: Arc<dyn FileSystem>,
    garbage: Arc<Garbage>,
    numbers: Arc<FileNumbers>,
    gate: Arc<Gate>,
    filter_files: Arc<FilterFiles>,
    /// `None` before the session has begun, in a read-only database, and once the database is
    /// closed.
    manifest: Option<Manifest>,
    manifest_number: u64,
    /// Set if the last edit failed.
    unsettled: Option<Unsettled>,
    tree: ManifestState,
    keyspaces: Sorted,
    published: Arc<Keyspaces>,
}

impl Catalogue {
    /// Creates the catalogue of a database whose session has not begun: `tree` was read from the
    /// manifest with this number.
    pub(crate) fn new(
        (dir, fs): (PathBuf, &Arc<dyn FileSystem>),
        garbage: &Arc<Garbage>,
        numbers: &Arc<FileNumbers>,
        gate: &Arc<Gate>,
        filter_files: &Arc<FilterFiles>,
        (tree, manifest_number): (ManifestState, u64),
        keyspaces: Directory,
    ) -> Catalogue {
        let mut sorted = Sorted::default();
        keyspaces.values().for_each(|keyspace| sorted.add(keyspace));
        sorted.names = tree.names().clone();
        Catalogue {
            dir,
            fs: fs.clone(),
            garbage: garbage.clone(),
            numbers: numbers.clone(),
            gate: gate.clone(),
            filter_files: filter_files.clone(),
            manifest: None,
            manifest_number,
            unsettled: None,
            tree,
            published: Arc::new(Keyspaces(ArcSwap::from_pointee(sorted.clone()))),
            keyspaces: sorted,
        }
    }

    /// Returns the keyspaces as published.
    pub(crate) fn published(&self) -> Arc<Keyspaces> {
        self.published.clone()
    }

    pub(crate) fn tree(&self) -> &ManifestState {
        &self.tree
    }

    pub(crate) fn keyspaces(&self) -> &Sorted {
        &self.keyspaces
    }

    /// Returns the keyspace of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Arc<KeyspaceInner>> {
        self.keyspaces.get(&self.tree.named(name)?)
    }

    /// Reports whether edits can be made.
    pub(crate) fn is_open(&self) -> bool {
        self.manifest.is_some()
    }

    /// Returns the length of the manifest in force, in bytes; `None` if no edits can be made.
    pub(crate) fn manifest_len(&self) -> Option<u64> {
        self.manifest.as_ref().map(Manifest::len)
    }

    pub(crate) fn manifest_number(&self) -> u64 {
        self.manifest_number
    }

    /// Returns why the manifest has to be rewritten, if it does.
    pub(crate) fn unsettled(&self) -> Option<&str> {
        self.unsettled.as_ref().map(|unsettled| &*unsettled.cause)
    }

    /// Returns a new epoch of a keyspace; `None` if it was dropped.
    pub(crate) fn take_epoch(&mut self, keyspace: KeyspaceId) -> Option<u64> {
        self.tree.take_epoch(keyspace)
    }

    /// Sets the next epoch of a keyspace, lower than it was.
    #[cfg(test)]
    pub(crate) fn forget_epochs(&mut self, keyspace: KeyspaceId, next: u64) {
        Arc::make_mut(self.tree.keyspaces.get_mut(&keyspace).expect("a keyspace")).next_epoch = next;
    }

    /// Adds a keyspace that a durable edit created.
    pub(crate) fn add(&mut self, keyspace: &Arc<KeyspaceInner>) {
        self.keyspaces.add(keyspace);
    }

    /// Publishes that a keyspace has a new policy.
    pub(crate) fn policy_changed(&mut self, keyspace: KeyspaceId) {
        let Some(keyspace) = self.keyspaces.get(&keyspace).cloned() else { return };
        self.keyspaces.remove(keyspace.id);
        self.keyspaces.add(&keyspace);
        self.publish_keyspaces();
    }

    /// Removes a keyspace that a durable edit dropped. Its files are removed after the last reader.
    pub(crate) fn remove(&mut self, keyspace: &KeyspaceInner) {
        keyspace.view.load().version.tables.iter().for_each(|table| table.mark_obsolete());
        self.forget(keyspace);
    }

    /// Forgets the times of writes after `seq`, which a power failure took back.
    pub(crate) fn cut_times_at(&mut self, seq: SeqNo) {
        self.tree.times.cut_at(seq);
    }

    /// Replaces the tree by a later one that the writer has made, in a database that follows it.
    /// Views are unchanged.
    pub(crate) fn follow(&mut self, tree: ManifestState, manifest_number: u64) {
        (self.tree, self.manifest_number) = (tree, manifest_number);
    }

    /// Returns the version of a keyspace that the tree describes, built from the tables of a former
    /// version and from `opened`. Takes time proportional to the keyspace's own tables.
    pub(crate) fn version(&self, keyspace: &KeyspaceInner, old: &Version, opened: &Opened) -> Arc<Version> {
        let known: HashMap<TableId, &Arc<OpenTable>> =
            old.tables.iter().map(|table| (table.meta.id, table)).collect();
        Version::build(&self.tree.keyspaces[&keyspace.id], Some(old), |id| {
            let table = opened.get(&id).or_else(|| known.get(&id).copied());
            table.expect("every table of the tree is open").clone()
        })
    }

    /// Removes a keyspace that the writer has dropped. Its files are the writer's to remove.
    pub(crate) fn forget(&mut self, keyspace: &KeyspaceInner) {
        keyspace.let_go();
        self.keyspaces.remove(keyspace.id);
    }

    /// Publishes the keyspaces after a change to them or to their names.
    pub(crate) fn publish_keyspaces(&mut self) {
        self.keyspaces.names = self.tree.names().clone();
        self.published.0.store(Arc::new(self.keyspaces.clone()));
    }

    /// Makes an edit durable and applies it to the tree in memory. `opened` are the new tables;
    /// `complete` adds what every edit records. On an error the tree is unchanged. The edit may or
    /// may not be on disk, so its tables stay until the next edit has begun a new manifest.
    /// Attempts nothing if the database is closed or writes have stopped for good.
    pub(crate) fn commit(
        &mut self,
        mut edit: VersionEdit,
        opened: NewTables,
        complete: impl FnOnce(&Catalogue, &mut VersionEdit),
    ) -> Result<(VersionEdit, Vec<Arc<OpenTable>>), StorageError> {
        // The caller started before the database was closed.
        if self.manifest.is_none() {
            return Err(self.refuses("the database is closed".to_owned()));
        }
        // After a panic the tree in memory may be in any state.
        let prepared = match self.gate.stopped() {
            Some(cause) => Err(self.refuses(format!("nothing is changed after an earlier failure: {cause}"))),
            None => self.settle().and_then(|()| {
                complete(self, &mut edit);
                // A copy that shares the tables: on any failure, the tree remains that of the
                // versions in use.
                self.tree_after(&edit)
            }),
        };
        let tree = prepared.inspect_err(|_| {
            // The edit was not written, so nothing names its files.
            self.filter_files.release(added_filters(&edit));
        })?;
        let manifest = self.manifest.as_mut().expect("checked above");
        let opened = opened.publish();
        if let Err(error) = manifest.append(&edit) {
            let unsettled = self.unsettle(&error);
            unsettled.tables.extend(opened);
            unsettled.filter_files.extend(added_filters(&edit));
            return Err(error);
        }
        let rolls = manifest.should_roll();
        self.filter_files.release(gone_filters(&self.tree, &tree, &edit));
        self.tree = tree;
        if rolls && let Err(error) = self.roll() {
            // The edit is durable whichever manifest is in force.
            log::warn!("{}: the manifest was not rolled: {error}", self.dir.display());
        }
        Ok((edit, opened))
    }

    fn refuses(&self, what: String) -> StorageError {
        StorageError::io("append to the manifest in", &self.dir, std::io::Error::other(what))
    }

    fn tree_after(&self, edit: &VersionEdit) -> Result<ManifestState, StorageError> {
        let mut tree = self.tree.clone();
        tree.apply(edit).map_err(|what| StorageError::corrupt(&self.dir, None, what))?;
        Ok(tree)
    }

    /// Publishes the changes of a durable edit in the trees of keyspaces. `change` returns a
    /// keyspace's new memtables. Returns the keyspaces that changed.
    pub(crate) fn publish(
        &self,
        edit: &VersionEdit,
        opened: &[Arc<OpenTable>],
        mut change: impl FnMut(KeyspaceId, &Memtables) -> Memtables,
    ) -> Vec<Published> {
        let mut touched: Vec<KeyspaceId> =
            edit.added.iter().map(|a| a.0).chain(edit.removed.iter().map(|r| r.0)).collect();
        touched.sort_unstable();
        touched.dedup();
        let opened = opened.iter().map(|table| (table.meta.id, table.clone())).collect();
        let publish = |keyspace: &Arc<KeyspaceInner>| {
            let old = keyspace.view.load_full();
            let version = self.version(keyspace, &old.version, &opened);
            let kept: HashSet<TableId> = version.tables.iter().map(|t| t.meta.id).collect();
            for table in old.version.tables.iter().filter(|t| !kept.contains(&t.meta.id)) {
                table.mark_obsolete();
            }
            let new = Arc::new(keyspace.view_of(change(keyspace.id, &old.memtables), version));
            keyspace.replace_view(new.clone());
            (keyspace.clone(), old, new)
        };
        touched.iter().filter_map(|id| self.keyspaces.get(id)).map(publish).collect()
    }

    /// Publishes a version of the same tables with a new selector.
    pub(crate) fn publish_selector(&self, keyspace: &KeyspaceInner) {
        let view = keyspace.view.load_full();
        if keyspace.is_dropped() || !self.tree.keyspaces.contains_key(&keyspace.id) {
            return;
        }
        let version = self.version(keyspace, &view.version, &Opened::default());
        keyspace.replace_view(Arc::new(keyspace.view_of(view.memtables.clone(), version)));
    }

    /// Records that the state on disk is unknown.
    fn unsettle(&mut self, error: &StorageError) -> &mut Unsettled {
        log::error!("{}: the manifest has to be rewritten: {error}", self.dir.display());
        let unsettled = self.unsettled.get_or_insert_default();
        unsettled.cause = error.to_string();
        unsettled
    }

    /// After a failed edit, writes the tree in memory to a new manifest and switches to it, so that
    /// the state on disk is known again.
    pub(crate) fn settle(&mut self) -> Result<(), StorageError> {
        if self.unsettled.is_none() {
            return Ok(());
        }
        self.roll()?;
        if let Some(unsettled) = self.unsettled.take() {
            unsettled.tables.iter().for_each(|table| table.mark_obsolete());
            self.filter_files.release(unsettled.filter_files);
            unsettled.manifests.into_iter().for_each(|path| self.garbage.push(path));
            log::info!("{}: a new manifest is in force", self.dir.display());
        }
        Ok(())
    }

    /// Writes the tree to a new manifest and switches to it. After an error either manifest may be
    /// in force.
    pub(crate) fn roll(&mut self) -> Result<(), StorageError> {
        let number = self.numbers.take();
        let path = |number| manifest_path(&self.dir, number);
        self.tree.next_file = number + 1;
        let manifest = match Manifest::create(&*self.fs, &self.dir, number, &self.tree) {
            Ok(manifest) => manifest,
            Err(error) => {
                // Nothing names the file, and it may be what filled the disk.
                self.garbage.push(path(number));
                return Err(error);
            }
        };
        if let Err(error) = set_current(&*self.fs, &self.dir, number) {
            let path = path(number);
            self.unsettle(&error).manifests.push(path);
            return Err(error);
        }
        if self.manifest.is_some() {
            self.garbage.push(path(self.manifest_number));
        }
        (self.manifest, self.manifest_number) = (Some(manifest), number);
        Ok(())
    }

    /// Switches to a manifest that begins a session with the tree as `edit` leaves it. `made` is
    /// set to its number once its file may exist. On an error nothing has changed in memory.
    pub(crate) fn begin(&mut self, edit: &VersionEdit, made: &mut Option<u64>) -> Result<(), NotBegun> {
        let mut tree = self.tree_after(edit)?;
        let number = self.numbers.take();
        tree.next_file = number + 1;
        *made = Some(number);
        let manifest = Manifest::create(&*self.fs, &self.dir, number, &tree)?;
        prepare_current(&*self.fs, &self.dir, number)?;
        switch_current(&*self.fs, &self.dir).map_err(NotBegun::Unknown)?;
        (self.manifest, self.manifest_number, self.tree) = (Some(manifest), number, tree);
        Ok(())
    }

    /// Ends all edits. Returns the manifest in force, for a last edit.
    pub(crate) fn end(&mut self) -> Option<Manifest> {
        self.manifest.take()
    }
}

/// Returns the filter files that an edit adds.
fn added_filters(edit: &VersionEdit) -> impl Iterator<Item = FilterFileId> {
    edit.added_filters.iter().map(|added| added.1)
}

/// Returns the filter files named by the tree before the edit, but not by the tree after it.
fn gone_filters(old: &ManifestState, new: &ManifestState, edit: &VersionEdit) -> Vec<FilterFileId> {
    let dropped = edit.drop_keyspaces.iter().filter_map(|id| old.keyspaces.get(id));
    let dropped = dropped.flat_map(|keyspace| keyspace.filter_files.keys().copied());
    let removed = edit.removed_filters.iter().map(|removed| removed.1);
    let named = |tree: &ManifestState, file: &FilterFileId| {
        tree.keyspaces.values().any(|keyspace| keyspace.filter_files.contains_key(file))
    };
    removed.chain(dropped).filter(|file| named(old, file) && !named(new, file)).collect()
}

/// Why a session did not begin.
#[derive(Debug)]
pub(crate) enum NotBegun {
    /// Nothing has changed: retrying is safe.
    Unchanged(StorageError),
    /// It is unknown which manifest is in force.
    Unknown(StorageError),
    /// The database is closed or poisoned.
    Stopped(WriteError),
}

impl From<StorageError> for NotBegun {
    fn from(error: StorageError) -> Self {
        NotBegun::Unchanged(error)
    }
}

#[cfg(test)]
pub(crate) mod tests;
