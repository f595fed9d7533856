//! The live snapshots, and what each of them holds. See [`snapshot`](crate::api::snapshot).

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use tamis_base::ids::KeyspaceId;
use tamis_base::key::SeqNo;

use crate::read::View;

pub(crate) type ViewList = Vec<(KeyspaceId, Arc<View>)>;

/// What a live snapshot pins besides its place in the list.
#[derive(Debug)]
pub(crate) struct PinnedViews {
    /// When the snapshot was taken, in seconds since 1970.
    pub(crate) taken: u64,
    /// Whether a transaction reads from it and may ask for writes made after it.
    pub(crate) transaction: bool,
    /// Expiry horizons of the keyspaces where something had expired.
    pub(crate) expired: Vec<(KeyspaceId, SeqNo)>,
    /// Pinned views of the keyspaces whose policy drops data. Usually there are none and this stays
    /// unset, which keeps taking and dropping a snapshot cheap. Views are only ever added, under
    /// the `snapshots` lock.
    pub(crate) views: OnceLock<ArcSwap<ViewList>>,
}

impl PinnedViews {
    /// Returns the expiry horizon of a keyspace.
    pub(crate) fn expired(&self, keyspace: KeyspaceId) -> SeqNo {
        self.expired.iter().find(|(id, _)| *id == keyspace).map_or(0, |(_, expired)| *expired)
    }

    /// Returns the view to read a keyspace from if that is not the current one. Load the current
    /// view before calling this: `None` then means that nothing had been dropped from that view.
    pub(crate) fn view(&self, keyspace: KeyspaceId) -> Option<Arc<View>> {
        let views = self.views.get()?.load();
        views.iter().find(|(id, _)| *id == keyspace).map(|(_, view)| view.clone())
    }

    /// Returns all pinned views.
    pub(crate) fn views(&self) -> Option<Arc<ViewList>> {
        self.views.get().map(ArcSwap::load_full)
    }
}

/// The live snapshots, oldest first. Each reads its sequence number under the lock, so they are
/// taken in ascending order: a new one goes to the end. Adding and removing one moves little,
/// whether snapshots end in the order they were taken or right away.
#[derive(Debug, Default)]
pub(crate) struct LiveSnapshots(VecDeque<(SeqNo, Arc<PinnedViews>)>);

impl LiveSnapshots {
    pub(crate) fn add(&mut self, seq: SeqNo, held: Arc<PinnedViews>) {
        debug_assert!(self.0.back().is_none_or(|(last, _)| *last <= seq), "numbers only grow");
        self.0.push_back((seq, held));
    }

    pub(crate) fn remove(&mut self, seq: SeqNo, held: &Arc<PinnedViews>) {
        let first = self.0.partition_point(|(other, _)| *other < seq);
        let place = self.0.range(first..).position(|(_, other)| Arc::ptr_eq(other, held));
        debug_assert!(place.is_some(), "a live snapshot is in the list");
        if let Some(place) = place {
            self.0.remove(first + place);
        }
    }

    pub(crate) fn holders(&self) -> impl Iterator<Item = &Arc<PinnedViews>> {
        self.0.iter().map(|(_, held)| held)
    }

    /// Returns the sequence numbers, ascending, each once.
    pub(crate) fn numbers(&self) -> Vec<SeqNo> {
        let mut numbers: Vec<SeqNo> = self.0.iter().map(|(seq, _)| *seq).collect();
        numbers.dedup();
        numbers
    }

    /// Returns the snapshots of each sequence number, ascending.
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

    /// Returns the sequence number at which the oldest open transaction began.
    pub(crate) fn oldest_transaction(&self) -> Option<SeqNo> {
        self.0.iter().find(|(_, held)| held.transaction).map(|(seq, _)| *seq)
    }
}
