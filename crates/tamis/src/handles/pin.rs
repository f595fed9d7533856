//! A snapshot's handle in the list of [live snapshots](crate::session::live_snapshots): while it
//! lives, what the snapshot sees is kept.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use tamis_base::ids::KeyspaceId;
use tamis_base::key::SeqNo;

use crate::catalogue::{Directory, Sorted};
use crate::handles::handle::Handle;
use crate::read::View;
use crate::session::live_snapshots::{PinnedViews, ViewList};

/// Keeps compactions from dropping the data that a snapshot sees.
pub(crate) struct SnapshotPin {
    handle: Arc<Handle>,
    pub(crate) seq: SeqNo,
    pub(crate) held: Arc<PinnedViews>,
}

debug_as!(SnapshotPin, "SnapshotPin", pin => "seq": pin.seq);

impl SnapshotPin {
    /// Costs a lock and a visit to every keyspace whose entries expire or whose policy drops data.
    /// `transaction`: whether the snapshot is a transaction's.
    pub(crate) fn new(handle: &Arc<Handle>, transaction: bool) -> Arc<SnapshotPin> {
        let db = &handle.inner;
        let taken = db.now();
        if !db.gate.is_ours() {
            // In a forked child, where nobody reads from the snapshot.
            let held =
                PinnedViews { taken, transaction, expired: Default::default(), views: OnceLock::new() };
            return Arc::new(SnapshotPin { handle: handle.clone(), seq: db.visible(), held: Arc::new(held) });
        }
        // Under the lock: a merge that has already read the list saw a visible number at or below
        // ours, and raised no horizon above ours.
        let mut live = db.snapshots.lock();
        let (seq, expired, views) = loop {
            let directory = db.keyspaces.directory.load();
            let views = views_to_hold(&directory, handle.follower.is_some());
            let horizons =
                directory.aging.values().map(|keyspace| (keyspace.id, db.expiry.expired(keyspace)));
            let expired = horizons.filter(|(_, expired)| *expired > 0).collect();
            let seq = db.visible();
            // A view replaced meanwhile may lack the newest of the writes up to `seq`.
            let current = |(id, view): &(KeyspaceId, Arc<View>)| {
                directory.get(id).is_some_and(|keyspace| Arc::ptr_eq(&keyspace.view.load(), view))
            };
            if Arc::ptr_eq(&directory, &db.keyspaces.directory.load()) && views.iter().all(current) {
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

/// Returns the views of the keyspaces whose policy drops data; with `all`, those of every keyspace,
/// because another process merges and does not know of the snapshot.
fn views_to_hold(directory: &Sorted, all: bool) -> ViewList {
    let held: &Directory = if all { directory } else { &directory.dropping };
    held.values().map(|keyspace| (keyspace.id, keyspace.view.load_full())).collect()
}

impl Drop for SnapshotPin {
    fn drop(&mut self) {
        if !self.handle.inner.gate.is_ours() {
            // In a forked child: dropping the last reference to a view returns its memory under a
            // lock that nobody may release here.
            std::mem::forget(self.held.clone());
            return;
        }
        let mut live = self.handle.inner.snapshots.lock();
        live.remove(self.seq, &self.held);
        drop(live);
        if self.held.transaction {
            self.handle.inner.trim_history();
        }
        // Dropping `self.held` releases the views, after the lock.
    }
}
