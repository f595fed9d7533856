//! Snapshots: the state of all keyspaces at one moment.
//!
//! A snapshot is a sequence number in the list of live snapshots; compactions keep every version
//! that a listed snapshot sees. Two kinds of keyspaces need more:
//!
//! * Where entries expire, the snapshot records the expiry horizon of its moment (see
//!   [`expiry`](crate::session::expiry)), so that what it sees does not change with time.
//! * Where the policy drops tables whose data was never deleted, the snapshot pins the view of its
//!   moment and reads from it: the view's tables stay on disk, and its memtables in memory. When a
//!   keyspace changes to such a policy, its view is added to all live snapshots before anything is
//!   dropped.
//!
//! The `snapshots` lock guards the list
//! ([`LiveSnapshots`](crate::session::live_snapshots::LiveSnapshots)). Reads from a snapshot take
//! no lock.

use std::sync::Arc;

use crate::api::place::Place;
use crate::handles::handle::{Db, Keyspace};
use crate::handles::pin::SnapshotPin;

/// The state of all keyspaces at the moment the snapshot was taken, unaffected by later writes.
/// Cheap to take and to clone; while it is alive, the versions that it sees stay on disk. It has
/// the read methods of [`Readable`](crate::Readable), no import needed: they read the default
/// keyspace. For any other keyspace, use [`Snapshot::keyspace`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let db = tamis::Db::open(dir.path())?;
/// db.put("key", "old")?;
/// let before = db.snapshot();
/// db.put("key", "new")?;
/// assert_eq!(before.get("key")?.unwrap(), "old");
/// assert_eq!(db.get("key")?.unwrap(), "new");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Snapshot {
    db: Db,
    pin: Arc<SnapshotPin>,
}

debug_as!(Snapshot, "Snapshot", snapshot => "seq": snapshot.pin.seq, "path": snapshot.db.inner().dir);

impl Snapshot {
    pub(crate) fn new(db: &Db) -> Snapshot {
        Snapshot { db: db.clone(), pin: SnapshotPin::new(db.handle(), false) }
    }

    /// Returns the sequence number up to which the snapshot sees writes.
    pub fn seq(&self) -> u64 {
        self.pin.seq
    }

    /// Returns the snapshot's view of one keyspace.
    ///
    /// # Panics
    ///
    /// If the keyspace belongs to another open database, whose sequence numbers are unrelated.
    pub fn keyspace<'s>(&'s self, keyspace: &'s Keyspace) -> SnapshotView<'s> {
        let same = self.db.handle().inner.instance == keyspace.handle.inner.instance;
        assert!(same, "keyspace `{}` and the snapshot belong to different open databases", keyspace.name());
        SnapshotView { snapshot: self, keyspace }
    }

    pub(crate) fn default_place(&self) -> Place<'_> {
        Place::pinned(self.db.default_keyspace(), &self.pin)
    }
}

/// One keyspace as a [`Snapshot`] sees it. It has the read methods of
/// [`Readable`](crate::Readable); no import needed.
#[derive(Clone, Copy)]
pub struct SnapshotView<'s> {
    snapshot: &'s Snapshot,
    keyspace: &'s Keyspace,
}

debug_as!(SnapshotView<'_>, "SnapshotView", view => "seq": view.snapshot.pin.seq, "keyspace": view.keyspace.name());

impl SnapshotView<'_> {
    pub(crate) fn pinned_place(&self) -> Place<'_> {
        Place::pinned(self.keyspace, &self.snapshot.pin)
    }
}
