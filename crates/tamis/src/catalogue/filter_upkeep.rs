//! Which work on global filters is due. The work itself is in [`filters`](crate::jobs::filters).

use std::sync::Arc;

use tamis_base::collections::HashSet;
use tamis_base::ids::KeyspaceId;

use crate::catalogue::Catalogue;
use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::scheduler::Rounds;
use crate::select::Task;

/// Which keyspaces' filters are being worked on. Behind the `state` lock.
#[derive(Debug, Default)]
pub(crate) struct FilterUpkeep {
    /// Whether images are saved.
    saves: bool,
    pub(crate) working: HashSet<KeyspaceId>,
    /// The keyspaces whose last work failed or is under way: it is not retried before the tree has
    /// changed.
    failed: HashSet<KeyspaceId>,
    /// The same of saving, which keeps no other work from being done.
    unsaved: HashSet<KeyspaceId>,
    /// Where to look for the next work.
    rounds: Rounds,
}

impl FilterUpkeep {
    pub(crate) fn new(saves: bool) -> FilterUpkeep {
        FilterUpkeep { saves, ..FilterUpkeep::default() }
    }

    /// Returns the next work on a filter of any keyspace.
    pub(crate) fn next(&mut self, catalogue: &Catalogue) -> Option<(Arc<KeyspaceInner>, Task)> {
        for keyspace in self.rounds.next(&catalogue.keyspaces().filtered) {
            if let Some(task) = self.task(&keyspace) {
                self.rounds.note_work(keyspace.id);
                return Some((keyspace, task));
            }
            self.rounds.note_nothing(keyspace.id);
        }
        None
    }

    /// Records that work may be due on each filter.
    pub(crate) fn note_all(&mut self, catalogue: &Catalogue) {
        self.rounds.note_all(&catalogue.keyspaces().filtered);
    }

    /// Returns the work due for a keyspace's filter, unless a thread is already working on it.
    fn task(&self, keyspace: &KeyspaceInner) -> Option<Task> {
        let held = self.working.contains(&keyspace.id) || self.failed.contains(&keyspace.id);
        let global = keyspace.filter.global().filter(|_| !held)?;
        global.task(&keyspace.view.load().version, self.saves && !self.unsaved.contains(&keyspace.id))
    }

    /// Reports whether work on a keyspace's filter is under way or due.
    pub(crate) fn is_busy(&self, keyspace: &KeyspaceInner) -> bool {
        self.working.contains(&keyspace.id) || self.task(keyspace).is_some()
    }

    /// Marks the start of work. Until the work succeeds it counts as failed. A change of the tree
    /// in the meantime clears that mark, so the change is not forgotten if the work does fail.
    pub(crate) fn start(&mut self, keyspace: KeyspaceId, task: &Task) {
        self.working.insert(keyspace);
        match task {
            Task::Save => self.unsaved.insert(keyspace),
            _ => self.failed.insert(keyspace),
        };
    }

    /// Marks the end of work. If it is not `done` and the tree has changed meanwhile, the change
    /// may be what it needed.
    pub(crate) fn end(&mut self, keyspace: KeyspaceId, done: bool) {
        self.working.remove(&keyspace);
        self.rounds.note_change(keyspace);
        if done {
            self.failed.remove(&keyspace);
            self.unsaved.remove(&keyspace);
        }
    }

    /// Records that work has become due on a keyspace's filter, which changes nothing for work that
    /// failed.
    pub(crate) fn note_due(&mut self, keyspace: KeyspaceId) {
        self.rounds.note_change(keyspace);
    }

    pub(crate) fn tree_changed(&mut self, keyspace: &KeyspaceInner) {
        self.failed.remove(&keyspace.id);
        self.unsaved.remove(&keyspace.id);
        if keyspace.filter.global().is_some() {
            self.rounds.note_change(keyspace.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::catalogue::scheduler::IN_TURN;
    use crate::catalogue::state::State;
    use crate::catalogue::tests::session;
    use crate::io::{FileSystem, MemFs};
    use crate::open;
    use crate::options::{KeyspaceOptions, Options};
    use crate::session::Session;

    /// Work that became due was found only when it was the keyspace's turn.
    #[test]
    fn work_is_found_where_it_may_have_become_due() {
        let options = KeyspaceOptions { filter: "grf".parse().unwrap(), ..KeyspaceOptions::default() };
        let count = 2 * IN_TURN as KeyspaceId + 4;
        // Two searches do not come to the last ones in turn.
        let (one, other) = (count - 2, count - 1);
        let db = session(count, &options, |db| {
            for id in [one, other] {
                let keyspace = db.keyspace(&id.to_string()).unwrap();
                keyspace.put("key", "value").unwrap();
                keyspace.flush().unwrap();
            }
        });
        let mut state = db.state();
        let State { catalogue, .. } = &mut *state;
        let keyspaces = [one, other].map(|id| catalogue.keyspaces().get(&id).unwrap().clone());
        let new = || FilterUpkeep::new(true);
        let next = |filters: &mut FilterUpkeep| filters.next(catalogue).map(|(keyspace, _)| keyspace.id);
        let task = new().task(&keyspaces[0]).unwrap();

        let mut filters = new();
        assert_eq!([(); 3].map(|()| next(&mut filters)), [None, None, Some(one)]);
        // Work that nobody takes does not keep others from being found.
        let mut filters = new();
        filters.note_all(catalogue);
        assert_eq!([(); 3].map(|()| next(&mut filters)), [Some(one), Some(other), Some(one)]);
        let mut filters = new();
        filters.note_due(one);
        assert_eq!(next(&mut filters), Some(one));
        let mut filters = new();
        filters.tree_changed(&keyspaces[0]);
        assert_eq!(next(&mut filters), Some(one));

        // Nobody else takes the same work, and nobody takes it again after a failure...
        let mut filters = new();
        filters.note_all(catalogue);
        filters.start(one, &task);
        filters.start(other, &task);
        assert!(filters.is_busy(&keyspaces[0]));
        assert_eq!(next(&mut filters), None);
        filters.end(other, false);
        assert!(!filters.is_busy(&keyspaces[1]));
        assert_eq!(next(&mut filters), None);
        // ... unless the tree has changed meanwhile.
        let mut filters = new();
        filters.start(one, &task);
        filters.tree_changed(&keyspaces[0]);
        assert_eq!(next(&mut filters), None);
        filters.end(one, false);
        assert_eq!(next(&mut filters), Some(one));
        let mut filters = new();
        filters.start(one, &task);
        filters.end(one, true);
        assert_eq!(next(&mut filters), Some(one), "the next part of it");
    }

    /// Opens a database with a filter that was never saved, and does all other work on it.
    fn unsaved() -> (Arc<Session>, Arc<KeyspaceInner>) {
        let fs = MemFs::new();
        let mut options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
        options.keyspace.filter = "grf".parse().unwrap();
        let dir = Path::new("/db");
        let db = options.clone().open(dir).unwrap();
        db.put("key", "value").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        for name in fs.list(dir).unwrap().iter().filter(|name| name.ends_with(".flt")) {
            fs.remove(&dir.join(name)).unwrap();
        }
        let db = open::open(dir, options, None).unwrap();
        let keyspace = db.state().catalogue.keyspaces().get(&0).unwrap().clone();
        while let Some(task) = FilterUpkeep::new(false).task(&keyspace) {
            db.work_on_filter(&keyspace, task);
        }
        (db, keyspace)
    }

    #[test]
    fn a_filter_is_saved_unless_that_failed_and_the_tree_is_the_same() {
        let (db, keyspace) = unsaved();
        let _state = db.state();
        let saves = |filters: &FilterUpkeep| matches!(filters.task(&keyspace), Some(Task::Save));
        let started = || {
            let mut filters = FilterUpkeep::new(true);
            assert!(saves(&filters));
            filters.start(keyspace.id, &Task::Save);
            assert!(!saves(&filters), "another thread does it");
            filters
        };
        assert!(!saves(&FilterUpkeep::new(false)));
        let mut filters = started();
        filters.end(keyspace.id, true);
        assert!(saves(&filters), "the next part of it");
        let mut filters = started();
        filters.end(keyspace.id, false);
        assert!(!saves(&filters), "it would fail again");
        filters.tree_changed(&keyspace);
        assert!(saves(&filters));
        let mut filters = started();
        filters.tree_changed(&keyspace);
        filters.end(keyspace.id, false);
        assert!(saves(&filters), "the change was forgotten");
    }

    #[test]
    fn a_filter_without_work_is_looked_at_once() {
        let options = KeyspaceOptions { filter: "grf".parse().unwrap(), ..KeyspaceOptions::default() };
        let count = IN_TURN + 4;
        let db = session(count as KeyspaceId, &options, |_| ());
        let state = db.state();
        let mut filters = FilterUpkeep::new(true);
        filters.note_all(&state.catalogue);
        let mut looks = || {
            let before = filters.rounds.looks;
            assert!(filters.next(&state.catalogue).is_none());
            filters.rounds.looks - before
        };
        assert_eq!([looks(), looks()], [count, IN_TURN]);
    }
}
