//! Snapshots: the state of all keyspaces at one moment.
//!
//! A snapshot is a sequence number in the list of live ones, which compactions go by: they keep every version that it
//! sees. Two kinds of keyspaces need more:
//!
//! * Where entries expire, the snapshot takes the horizon of its moment along (see [`expiry`](super::expiry)), so that
//!   what it sees does not change with time.
//! * Where the policy drops tables that nobody deleted anything of, the snapshot holds on to the view of its moment, and
//!   reads from that: its tables stay on disk, and its memtables in memory. A keyspace that gets such a policy later
//!   has its view given to all snapshots that live then, before anything is dropped.
//!
//! The list is behind the `snapshots` lock. Reads from a snapshot take no lock.

use crate::collections::HashMap;
use std::any::Any;
use std::ops::RangeBounds;
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::db::inner::{DbInner, KeyspaceInner};
use crate::db::keyspace::Keyspace;
use crate::db::{Db, Handle};
use crate::error::ReadError;
use crate::ids::KeyspaceId;
use crate::key::SeqNo;
use crate::read::View;
use crate::read::{Bounds, Iter};
use crate::slice::Slice;

type Views = Vec<(KeyspaceId, Arc<View>)>;

/// What a live snapshot holds on to beside its place in the list.
#[derive(Debug)]
pub(crate) struct Held {
    /// When it was taken, in seconds since 1970.
    pub(crate) taken: u64,
    /// Horizons of the keyspaces where something had expired.
    expired: Vec<(KeyspaceId, SeqNo)>,
    /// Views of the keyspaces whose policy drops data. Only ever added to, under the `snapshots` lock.
    views: ArcSwapOption<Views>,
}

impl Held {
    /// The horizon of a keyspace.
    pub(crate) fn expired(&self, keyspace: KeyspaceId) -> SeqNo {
        self.expired.iter().find(|(id, _)| *id == keyspace).map_or(0, |(_, expired)| *expired)
    }

    /// The view to read a keyspace from, if not from the current one. A reader loads the current view before it asks:
    /// if there is none yet, nothing had been dropped from that one.
    pub(crate) fn view(&self, keyspace: KeyspaceId) -> Option<Arc<View>> {
        let views = self.views.load();
        views.as_ref()?.iter().find(|(id, _)| *id == keyspace).map(|(_, view)| view.clone())
    }

    /// All views.
    pub(crate) fn views(&self) -> Option<Arc<Views>> {
        self.views.load_full()
    }
}

/// Keeps what a snapshot sees from being dropped.
#[derive(Debug)]
pub(crate) struct SnapshotPin {
    handle: Arc<Handle>,
    pub(crate) seq: SeqNo,
    pub(crate) held: Arc<Held>,
}

impl SnapshotPin {
    /// Costs a lock and a look at every keyspace.
    pub(crate) fn new(handle: &Arc<Handle>) -> Arc<SnapshotPin> {
        let db = &handle.inner;
        let taken = db.now();
        // Under the lock, so that a merge that has read the list has seen a visible number at or below ours, and has
        // raised no horizon above ours.
        let mut live = db.snapshots.lock();
        let (seq, expired, views) = loop {
            let directory = db.directory.load_full();
            let views = views_to_hold(&directory);
            let horizons = directory.values().map(|keyspace| (keyspace.id, db.expired(keyspace)));
            let expired = horizons.filter(|(_, expired)| *expired > 0).collect();
            let seq = db.visible();
            // A view that was replaced may lack the newest of the writes up to `seq`.
            let current = |(id, view): &(KeyspaceId, Arc<View>)| {
                directory.get(id).is_some_and(|keyspace| Arc::ptr_eq(&keyspace.view.load(), view))
            };
            if Arc::ptr_eq(&directory, &db.directory.load()) && views.iter().all(current) {
                break (seq, expired, views);
            }
        };
        let views = ArcSwapOption::new((!views.is_empty()).then(|| Arc::new(views)));
        let held = Arc::new(Held { taken, expired, views });
        live.entry(seq).or_default().push(held.clone());
        drop(live);
        Arc::new(SnapshotPin { handle: handle.clone(), seq, held })
    }
}

/// The views of the keyspaces whose policy drops data.
fn views_to_hold(directory: &HashMap<KeyspaceId, Arc<KeyspaceInner>>) -> Views {
    let drops = |keyspace: &&Arc<KeyspaceInner>| keyspace.shaping.load().policy.drops_data();
    directory.values().filter(drops).map(|keyspace| (keyspace.id, keyspace.view.load_full())).collect()
}

impl Drop for SnapshotPin {
    fn drop(&mut self) {
        let mut live = self.handle.inner.snapshots.lock();
        if let Some(held) = live.get_mut(&self.seq) {
            held.retain(|held| !Arc::ptr_eq(held, &self.held));
            if held.is_empty() {
                live.remove(&self.seq);
            }
        }
        // The views go after the lock, with `self.held`.
    }
}

impl DbInner {
    /// Gives the keyspace's view to all live snapshots if its policy drops data. Called with the policy in place and
    /// under the `state` lock, so that nothing is dropped meanwhile: the view still has all that they see.
    pub(crate) fn hold_for_snapshots(&self, keyspace: &KeyspaceInner) {
        if !keyspace.shaping.load().policy.drops_data() {
            return;
        }
        let live = self.snapshots.lock();
        for held in live.values().flatten().filter(|held| held.view(keyspace.id).is_none()) {
            let mut views = held.views.load_full().map_or_else(Views::new, |views| (*views).clone());
            views.push((keyspace.id, keyspace.view.load_full()));
            held.views.store(Some(Arc::new(views)));
        }
    }
}

/// The state of all keyspaces at the moment it was taken, unchanged by anything written later. Cheap to take
/// and to clone; while it lives, the versions that it sees stay on disk.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let db = tamis::Db::open(dir.path(), tamis::Options::default())?;
/// db.put("key", "old")?;
/// let before = db.snapshot();
/// db.put("key", "new")?;
/// assert_eq!(before.get("key")?.unwrap(), "old");
/// assert_eq!(db.get("key")?.unwrap(), "new");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot {
    db: Db,
    pin: Arc<SnapshotPin>,
}

impl Snapshot {
    pub(crate) fn new(db: &Db) -> Snapshot {
        Snapshot { db: db.clone(), pin: SnapshotPin::new(db.handle()) }
    }

    /// The sequence number up to which the snapshot sees writes.
    pub fn seq(&self) -> u64 {
        self.pin.seq
    }

    /// The snapshot's view of one keyspace.
    ///
    /// # Panics
    ///
    /// If the keyspace belongs to another open database: its writes have another order.
    pub fn of<'s>(&'s self, keyspace: &'s Keyspace) -> SnapshotView<'s> {
        let same = self.db.handle().inner.instance == keyspace.handle.inner.instance;
        assert!(same, "keyspace `{}` belongs to another open database than the snapshot", keyspace.name());
        SnapshotView { snapshot: self, keyspace }
    }

    fn default_view(&self) -> SnapshotView<'_> {
        self.of(self.db.default_keyspace())
    }

    /// The value of `key` in the default keyspace.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>, ReadError> {
        self.default_view().get(key)
    }

    /// The values of `keys` in the default keyspace, in their order.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>, ReadError> {
        self.default_view().multi_get(keys)
    }

    /// Whether the default keyspace holds `key`.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool, ReadError> {
        self.default_view().contains(key)
    }

    /// All keys of the default keyspace.
    pub fn iter(&self) -> Iter {
        self.default_view().iter()
    }

    /// The keys of the default keyspace in a range.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        self.default_view().range(range)
    }

    /// The keys of the default keyspace that start with `prefix`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.default_view().prefix(prefix)
    }
}

/// One keyspace as a [`Snapshot`] sees it.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotView<'s> {
    snapshot: &'s Snapshot,
    keyspace: &'s Keyspace,
}

impl SnapshotView<'_> {
    fn pin(&self) -> Option<&SnapshotPin> {
        Some(&self.snapshot.pin)
    }

    /// The value of `key`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>, ReadError> {
        Ok(self.keyspace.lookup(key.as_ref(), self.pin())?.value())
    }

    /// The values of `keys`, in their order.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>, ReadError> {
        self.keyspace.lookup_many(keys, self.pin())
    }

    /// Whether the keyspace holds `key`.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool, ReadError> {
        Ok(self.get(key)?.is_some())
    }

    /// All keys.
    pub fn iter(&self) -> Iter {
        self.scan(Bounds::default())
    }

    /// The keys in a range.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        self.scan(Bounds::of(&range))
    }

    /// The keys that start with `prefix`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.scan(Bounds::prefix(prefix.as_ref()))
    }

    fn scan(&self, bounds: Bounds) -> Iter {
        let pin: Arc<dyn Any + Send + Sync> = self.snapshot.pin.clone();
        self.keyspace.scan(bounds, self.pin(), Some(pin))
    }
}
