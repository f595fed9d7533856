//! Snapshots: the state of all keyspaces at one moment.
//!
//! A snapshot is a sequence number in the list of live snapshots, and compactions keep every
//! version that a listed snapshot sees. Two kinds of keyspaces need more:
//!
//! * Where entries expire, the snapshot records the expiry horizon at its moment (see
//!   [`expiry`](super::expiry)), so that what it sees does not change with time.
//! * Where the policy drops tables whose data was never deleted, the snapshot pins the view of its
//!   moment and reads from it: the view's tables stay on disk, and its memtables in memory. When a
//!   keyspace changes to such a policy, its view is added to all live snapshots before anything is
//!   dropped.
//!
//! The list ([`LiveSnapshots`]) is behind the `snapshots` lock. Reads from a snapshot take no lock.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use tamis_base::ids::KeyspaceId;
use tamis_base::key::SeqNo;

use crate::db::catalogue::{Directory, Sorted};
use crate::db::inner::{DbInner, KeyspaceInner};
use crate::db::keyspace::Keyspace;
use crate::db::readable::Place;
use crate::db::{Db, Handle};
use crate::read::View;

type Views = Vec<(KeyspaceId, Arc<View>)>;

/// What a live snapshot pins besides its place in the list.
#[derive(Debug)]
pub(crate) struct PinnedViews {
    /// When it was taken, in seconds since 1970.
    pub(crate) taken: u64,
    /// Whether a transaction reads from it, and may ask for the writes after it.
    pub(crate) transaction: bool,
    /// Horizons of the keyspaces where something had expired.
    expired: Vec<(KeyspaceId, SeqNo)>,
    /// Pinned views of the keyspaces whose policy drops data; unset while there is none, which is
    /// usual and cheap to begin and end. Views are only ever added, under the `snapshots` lock.
    views: OnceLock<ArcSwap<Views>>,
}

impl PinnedViews {
    /// Returns the expiry horizon of a keyspace.
    pub(crate) fn expired(&self, keyspace: KeyspaceId) -> SeqNo {
        self.expired.iter().find(|(id, _)| *id == keyspace).map_or(0, |(_, expired)| *expired)
    }

    /// Returns the view to read a keyspace from, if it is not the current one. A reader must load
    /// the current view before calling this: `None` then means that nothing had been dropped from
    /// that view.
    pub(crate) fn view(&self, keyspace: KeyspaceId) -> Option<Arc<View>> {
        let views = self.views.get()?.load();
        views.iter().find(|(id, _)| *id == keyspace).map(|(_, view)| view.clone())
    }

    /// Returns all pinned views.
    pub(crate) fn views(&self) -> Option<Arc<Views>> {
        self.views.get().map(ArcSwap::load_full)
    }
}

/// The live snapshots, oldest first. They are taken in the order of their numbers, since each reads
/// its number under the lock: so a new one goes to the end, and beginning and ending one moves
/// little, whether snapshots end in the order in which they began or at once.
#[derive(Debug, Default)]
pub(crate) struct LiveSnapshots(VecDeque<(SeqNo, Arc<PinnedViews>)>);

impl LiveSnapshots {
    fn add(&mut self, seq: SeqNo, held: Arc<PinnedViews>) {
        debug_assert!(self.0.back().is_none_or(|(last, _)| *last <= seq), "numbers only grow");
        self.0.push_back((seq, held));
    }

    fn remove(&mut self, seq: SeqNo, held: &Arc<PinnedViews>) {
        let first = self.0.partition_point(|(other, _)| *other < seq);
        let place = self.0.range(first..).position(|(_, other)| Arc::ptr_eq(other, held));
        debug_assert!(place.is_some(), "a live snapshot is in the list");
        if let Some(place) = place {
            self.0.remove(first + place);
        }
    }

    fn holders(&self) -> impl Iterator<Item = &Arc<PinnedViews>> {
        self.0.iter().map(|(_, held)| held)
    }

    /// Returns the numbers, ascending, each once.
    pub(crate) fn numbers(&self) -> Vec<SeqNo> {
        let mut numbers: Vec<SeqNo> = self.0.iter().map(|(seq, _)| *seq).collect();
        numbers.dedup();
        numbers
    }

    /// Returns the snapshots of each number, ascending.
    pub(crate) fn by_number(&self) -> Vec<(SeqNo, Vec<&Arc<PinnedViews>>)> {
        let mut found: Vec<(SeqNo, Vec<&Arc<PinnedViews>>)> = Vec::new();
        for (seq, held) in &self.0 {
            match found.last_mut() {
                Some((last, group)) if last == seq => group.push(held),
                _ => found.push((*seq, vec![held])),
            }
        }
        found
    }

    /// Returns where the oldest open transaction began.
    pub(crate) fn oldest_transaction(&self) -> Option<SeqNo> {
        self.0.iter().find(|(_, held)| held.transaction).map(|(seq, _)| *seq)
    }
}

/// Keeps the data that a snapshot sees from being dropped.
pub(crate) struct SnapshotPin {
    handle: Arc<Handle>,
    pub(crate) seq: SeqNo,
    pub(crate) held: Arc<PinnedViews>,
}

debug_as!(SnapshotPin, "SnapshotPin", pin => "seq": pin.seq);

impl SnapshotPin {
    /// Costs a lock and a visit to every keyspace whose entries expire or whose policy drops data.
    /// `transaction`: whether it is that of a transaction.
    pub(crate) fn new(handle: &Arc<Handle>, transaction: bool) -> Arc<SnapshotPin> {
        let db = &handle.inner;
        let taken = db.now();
        if !db.gate.is_ours() {
            // Nobody reads from it.
            let held =
                PinnedViews { taken, transaction, expired: Default::default(), views: OnceLock::new() };
            return Arc::new(SnapshotPin { handle: handle.clone(), seq: db.visible(), held: Arc::new(held) });
        }
        // Under the lock, so that a merge that has already read the list has seen a visible number
        // at or below ours, and has raised no horizon above ours.
        let mut live = db.snapshots.lock();
        let (seq, expired, views) = loop {
            let directory = db.directory.load();
            let views = views_to_hold(&directory, db.follower.is_some());
            let horizons =
                directory.aging.values().map(|keyspace| (keyspace.id, db.expiry.expired(keyspace)));
            let expired = horizons.filter(|(_, expired)| *expired > 0).collect();
            let seq = db.visible();
            // A view replaced meanwhile may lack the newest of the writes up to `seq`.
            let current = |(id, view): &(KeyspaceId, Arc<View>)| {
                directory.get(id).is_some_and(|keyspace| Arc::ptr_eq(&keyspace.view.load(), view))
            };
            if Arc::ptr_eq(&directory, &db.directory.load()) && views.iter().all(current) {
                break (seq, expired, views);
            }
        };
        let views = match views.is_empty() {
            true => OnceLock::new(),
            false => OnceLock::from(ArcSwap::from_pointee(views)),
        };
        let held = Arc::new(PinnedViews { taken, transaction, expired, views });
        live.add(seq, held.clone());
        drop(live);
        Arc::new(SnapshotPin { handle: handle.clone(), seq, held })
    }
}

/// Returns the views of the keyspaces whose policy drops data, or of `all` where another process
/// merges and does not know of the snapshot.
fn views_to_hold(directory: &Sorted, all: bool) -> Views {
    let held: &Directory = if all { directory } else { &directory.dropping };
    held.values().map(|keyspace| (keyspace.id, keyspace.view.load_full())).collect()
}

impl Drop for SnapshotPin {
    fn drop(&mut self) {
        if !self.handle.inner.gate.is_ours() {
            // Whoever holds a view last gives its memory back, under a lock that nobody may release
            // here.
            std::mem::forget(self.held.clone());
            return;
        }
        let mut live = self.handle.inner.snapshots.lock();
        live.remove(self.seq, &self.held);
        drop(live);
        if self.held.transaction {
            self.handle.inner.trim_history();
        }
        // The views are released after the lock, when `self.held` is dropped.
    }
}

impl DbInner {
    /// Pins the keyspace's view in all live snapshots if its policy drops data. Called with the
    /// policy in place and under the `state` lock, so that nothing is dropped meanwhile and the
    /// view still holds all that they see.
    pub(crate) fn hold_for_snapshots(&self, keyspace: &KeyspaceInner) {
        if !keyspace.shaping.load().policy.drops_data() {
            return;
        }
        let live = self.snapshots.lock();
        for held in live.holders().filter(|held| held.view(keyspace.id).is_none()) {
            let mut views = held.views().map_or_else(Views::new, |views| (*views).clone());
            views.push((keyspace.id, keyspace.view.load_full()));
            match held.views.get() {
                Some(known) => known.store(Arc::new(views)),
                None => _ = held.views.set(ArcSwap::from_pointee(views)),
            }
        }
    }
}

/// The state of all keyspaces at the moment the snapshot was taken, unaffected by later writes.
/// Cheap to take and to clone; while it is alive, the versions that it sees stay on disk. Its reads
/// are those of [`Readable`](crate::Readable), which need no import here; they read the default
/// keyspace, and those of [`Snapshot::of`] any other.
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
    pub fn of<'s>(&'s self, keyspace: &'s Keyspace) -> SnapshotView<'s> {
        let same = self.db.handle().inner.instance == keyspace.handle.inner.instance;
        assert!(same, "keyspace `{}` and the snapshot belong to different open databases", keyspace.name());
        SnapshotView { snapshot: self, keyspace }
    }

    pub(super) fn default_place(&self) -> Place<'_> {
        Place::pinned(self.db.default_keyspace(), &self.pin)
    }
}

/// One keyspace as a [`Snapshot`] sees it. Its reads are those of [`Readable`](crate::Readable),
/// which need no import here.
#[derive(Clone, Copy)]
pub struct SnapshotView<'s> {
    snapshot: &'s Snapshot,
    keyspace: &'s Keyspace,
}

debug_as!(SnapshotView<'_>, "SnapshotView", view => "seq": view.snapshot.pin.seq, "keyspace": view.keyspace.name());

impl SnapshotView<'_> {
    pub(super) fn pinned_place(&self) -> Place<'_> {
        Place::pinned(self.keyspace, &self.snapshot.pin)
    }
}
