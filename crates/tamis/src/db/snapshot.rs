//! Snapshots: the state of all keyspaces at one moment.

use std::any::Any;
use std::ops::RangeBounds;
use std::sync::Arc;

use crate::db::keyspace::Keyspace;
use crate::db::{Db, Handle};
use crate::error::ReadError;
use crate::key::SeqNo;
use crate::read::{Bounds, Iter};
use crate::slice::Slice;

/// Keeps the versions that a snapshot sees from being dropped by compactions.
#[derive(Debug)]
pub(crate) struct SnapshotPin {
    handle: Arc<Handle>,
    seq: SeqNo,
}

impl SnapshotPin {
    pub(crate) fn new(handle: &Arc<Handle>) -> Arc<SnapshotPin> {
        let db = &handle.inner;
        // Under the lock, so that a merge that has read the list has seen a visible number at or below ours.
        let mut live = db.snapshots.lock().expect("snapshots");
        let seq = db.visible();
        *live.entry(seq).or_insert(0) += 1;
        drop(live);
        Arc::new(SnapshotPin { handle: handle.clone(), seq })
    }
}

impl Drop for SnapshotPin {
    fn drop(&mut self) {
        let mut live = self.handle.inner.snapshots.lock().expect("snapshots");
        if let Some(count) = live.get_mut(&self.seq) {
            *count -= 1;
            if *count == 0 {
                live.remove(&self.seq);
            }
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
    fn seq(&self) -> Option<SeqNo> {
        Some(self.snapshot.pin.seq)
    }

    /// The value of `key`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>, ReadError> {
        Ok(self.keyspace.lookup(key.as_ref(), self.seq())?.value())
    }

    /// The values of `keys`, in their order.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>, ReadError> {
        self.keyspace.lookup_many(keys, self.seq())
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
        self.keyspace.scan(bounds, self.seq(), Some(pin))
    }
}
