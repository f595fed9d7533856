//! The keyspaces whose memtables may hold something. Of ten thousand keyspaces mostly few do, and nobody who looks for writes that are not in
//! tables has to visit the others.
//!
//! # Threads
//!
//! The holder of the log's lock adds a keyspace before the first insertion into its active memtable, and marks the memtable. Whoever holds the
//! `state` lock, under which views change, takes a keyspace out again if no memtable of it is marked. Both happen under the leaf lock of
//! this list: a writer that marks a memtable after that was looked at adds the keyspace after it was taken out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::db::inner::KeyspaceInner;
use crate::ids::{KeyspaceId, LogId};
use crate::read::MemtableSlot;
use crate::sync::Mutex;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Filled(Mutex<BTreeMap<KeyspaceId, Arc<KeyspaceInner>>>);

impl Filled {
    /// Adds a keyspace whose active memtable is about to get its first entry.
    pub(crate) fn add(&self, keyspace: &Arc<KeyspaceInner>, active: &MemtableSlot) {
        if active.is_marked() {
            return;
        }
        active.mark();
        let mut filled = self.0.lock();
        // A writer may have looked it up before it was dropped.
        if !keyspace.is_dropped() {
            filled.insert(keyspace.id, keyspace.clone());
        }
    }

    /// Takes a keyspace out if its memtables hold nothing, or if it was dropped. Under the `state` lock.
    pub(crate) fn tidy(&self, keyspace: &KeyspaceInner) {
        let mut filled = self.0.lock();
        if keyspace.is_dropped() || !keyspace.view.load().memtables.iter().any(|slot| slot.is_marked()) {
            filled.remove(&keyspace.id);
        }
    }

    /// Returns the keyspaces whose active memtables hold back this log or an earlier one.
    pub(crate) fn holding_back(&self, log: LogId) -> Vec<Arc<KeyspaceInner>> {
        let holds = |ks: &&Arc<KeyspaceInner>| {
            let active = &ks.view.load().memtables.active;
            !active.memtable.is_empty() && active.first_log.load(Relaxed) <= log
        };
        self.0.lock().values().filter(holds).cloned().collect()
    }

    /// Returns the oldest log that holds writes which are in no table once `flushed` is, at the latest `current`: of this keyspace, and of
    /// all. Under the `state` lock.
    pub(crate) fn floors(
        &self,
        keyspace: KeyspaceId,
        current: LogId,
        flushed: impl Fn(&Arc<MemtableSlot>) -> bool,
    ) -> (LogId, LogId) {
        let (mut own, mut all) = (current, current);
        for filled in self.0.lock().values() {
            let view = filled.view.load();
            let waiting = view.memtables.iter().filter(|slot| !slot.memtable.is_empty() && !flushed(slot));
            let oldest = waiting.map(|slot| slot.first_log.load(Relaxed)).min().unwrap_or(current);
            all = all.min(oldest);
            if filled.id == keyspace {
                own = oldest;
            }
        }
        (own, all)
    }

    /// Returns the keyspaces, in the order of their numbers.
    pub(crate) fn list(&self) -> Vec<Arc<KeyspaceInner>> {
        self.0.lock().values().cloned().collect()
    }
}
