//! The keyspaces whose active memtables may hold writes, by the oldest log of these memtables. Of
//! ten thousand keyspaces usually few do, so a search for writes that are not in tables need not
//! visit the others. Keyspaces with sealed memtables are in the
//! [scheduler](crate::catalogue::scheduler)'s queue.
//!
//! # Threads
//!
//! The holder of the log's lock adds a keyspace before it appends a write to it, if the active
//! memtable is empty. A thread that replaces the memtable removes the keyspace, with the log's lock
//! held and nothing in flight. A drop always removes it: a writer that had looked up the keyspace
//! before does not add it again. The list has a leaf lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tamis_base::ids::{KeyspaceId, LogId};

use crate::catalogue::keyspace::KeyspaceInner;
use crate::sync::Mutex;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Filled(Mutex<FilledList>);

#[derive(Debug, Default)]
struct FilledList {
    /// How often the whole list was read.
    #[cfg(test)]
    lists: usize,
    keyspaces: BTreeMap<KeyspaceId, (LogId, Arc<KeyspaceInner>)>,
    by_log: BTreeSet<(LogId, KeyspaceId)>,
}

impl FilledList {
    fn remove(&mut self, keyspace: KeyspaceId) {
        if let Some((log, _)) = self.keyspaces.remove(&keyspace) {
            self.by_log.remove(&(log, keyspace));
        }
    }
}

impl Filled {
    /// Adds a keyspace whose active memtable is empty and about to get a write that is in `log`.
    pub(crate) fn add(&self, keyspace: &Arc<KeyspaceInner>, log: LogId) {
        let mut list = self.0.lock();
        // An earlier write may have failed.
        list.remove(keyspace.id);
        if !keyspace.is_dropped() {
            list.keyspaces.insert(keyspace.id, (log, keyspace.clone()));
            list.by_log.insert((log, keyspace.id));
        }
    }

    /// Removes a keyspace that has a fresh active memtable, or that was dropped.
    pub(crate) fn remove(&self, keyspace: KeyspaceId) {
        self.0.lock().remove(keyspace);
    }

    /// Returns the keyspaces, in order of id.
    pub(crate) fn list(&self) -> Vec<Arc<KeyspaceInner>> {
        #[cfg(test)]
        {
            self.0.lock().lists += 1;
        }
        self.0.lock().keyspaces.values().map(|(_, keyspace)| keyspace.clone()).collect()
    }

    #[cfg(test)]
    pub(crate) fn lists(&self) -> usize {
        self.0.lock().lists
    }

    /// Returns the keyspaces whose active memtables hold back this log or an earlier one.
    pub(crate) fn holding_back(&self, log: LogId) -> Vec<Arc<KeyspaceInner>> {
        let list = self.0.lock();
        let held = list.by_log.range(..=(log, KeyspaceId::MAX));
        held.map(|(_, id)| list.keyspaces[id].1.clone()).collect()
    }

    /// Returns the oldest log that may hold writes of active memtables of other keyspaces than
    /// `without`.
    pub(crate) fn oldest_log(&self, without: Option<KeyspaceId>) -> Option<LogId> {
        let list = self.0.lock();
        list.by_log.iter().find(|(_, id)| Some(*id) != without).map(|(log, _)| *log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::tests::session;
    use crate::options::KeyspaceOptions;

    /// A log that nothing holds back any more would never be removed.
    #[test]
    fn a_keyspace_holds_back_the_log_that_it_was_added_with_last() {
        let db = session(2, &KeyspaceOptions::default(), |_| ());
        let state = db.state();
        let [first, second] = [0, 1].map(|id| state.catalogue.keyspaces().get(&id).unwrap().clone());
        let filled = Filled::default();
        let held = |log| filled.holding_back(log).iter().map(|keyspace| keyspace.id).collect::<Vec<_>>();
        filled.add(&first, 5);
        filled.add(&second, 6);
        assert_eq!((held(4), held(5), held(6)), (vec![], vec![0], vec![0, 1]));
        // The write that it was added for has failed.
        filled.add(&first, 7);
        assert_eq!((held(5), held(6), held(7)), (vec![], vec![1], vec![1, 0]));
        assert_eq!([None, Some(0), Some(1)].map(|id| filled.oldest_log(id)), [Some(6), Some(6), Some(7)]);
        filled.remove(0);
        assert_eq!((filled.oldest_log(Some(1)), filled.list().len()), (None, 1));
        second.let_go();
        filled.add(&second, 8);
        assert_eq!((filled.oldest_log(None), filled.list().len()), (None, 0), "it was dropped");
    }
}
