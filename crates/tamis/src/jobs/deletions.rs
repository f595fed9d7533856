//! Walks over stretches of deleted keys, ahead of readers.
//!
//! Compaction threads do these walks between their jobs: see `Deletions` of the gaps for when and
//! how far. A walk is an iteration of the current state, and finds [gaps](crate::read::Gaps) like
//! any other. Its reads are not counted, since no caller asked for them. Keyspaces whose compaction
//! is held back, or whose reads must cost the same each time (`deterministic`), are left alone.

use std::sync::Arc;

use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::state::State;
use crate::read::{Bounds, ReadCounters, Standpoint, Stretch};
use crate::session::Session;

impl Session {
    /// Returns a keyspace with a stretch that is due for a walk.
    pub(crate) fn next_deletions(&self, state: &State) -> Option<(Arc<KeyspaceInner>, Stretch)> {
        let due = |keyspace: &Arc<KeyspaceInner>| {
            let options = &keyspace.shaping.load().options;
            if !options.auto_compaction || options.deterministic {
                return None;
            }
            let stretch = keyspace.view.load().gaps.deletions().take()?;
            Some((keyspace.clone(), stretch))
        };
        if self.background.is_paused() {
            return None;
        }
        state.scheduler.rounds.in_turn(state.catalogue.keyspaces()).iter().find_map(due)
    }

    /// Walks over the dead keys around the stretch's place. A read that fails is left to a reader.
    pub(crate) fn walk_over_deletions(&self, keyspace: &KeyspaceInner, stretch: &Stretch) {
        let Stretch { key, limit } = stretch;
        let counters = Arc::new(ReadCounters::default());
        // Keys alone: values cost more, may run a merge operator, and may fail for reasons of their
        // own.
        let walk = |bounds| {
            let at = self.read_now(keyspace);
            at.iter(bounds, counters.clone(), None).with_patience(*limit).keys()
        };
        let (before, behind) = (..&key[..], &key[..]..);
        // Where entries expire, a backward walk finds no gap.
        let expires = self.read_now(keyspace).horizon > 0;
        let back = if expires { None } else { walk(Bounds::of(&before)).next_back() };
        for walked in [back, walk(Bounds::of(&behind)).next()] {
            if let Some(Err(error)) = walked {
                log::debug!("a walk over deleted keys ended: {error}");
            }
        }
        let view = keyspace.view.load();
        let at = Standpoint { seq: self.visible(), edition: view.edition, rotation: view.rotation };
        view.gaps.deletions().walked(view.gaps.jump(key, at).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::io::MemFs;

    /// A stretch of deleted keys becomes known without any read.
    #[test]
    fn what_was_deleted_is_walked_over_in_the_background() {
        let options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
        let db = options.open("/db").unwrap();
        let key = |i: u32| format!("key{i:06}");
        for i in 0..6000 {
            db.put(key(i), "value").unwrap();
            if i == 3000 {
                db.flush().unwrap();
            }
        }
        for i in 1000..5000 {
            db.delete(key(i)).unwrap();
        }
        let inner = db.inner();
        let view = || db.default_keyspace().inner.view.load();
        let from = std::time::Instant::now();
        // From a key behind the head of the stretch to one before its end: deletions after the last
        // noted place are not known yet.
        let mut last = None;
        while last.as_ref().is_none_or(|end: &Vec<u8>| *end < key(4900).into_bytes()) {
            assert!(from.elapsed().as_secs() < 60, "{last:?}");
            std::thread::sleep(std::time::Duration::from_millis(5));
            let _wakes = inner.state();
            inner.monitor.notify();
            let at = Standpoint { seq: inner.visible(), edition: view().edition, rotation: view().rotation };
            let jump = view().gaps.jump(key(1001).as_bytes(), at);
            last = jump.map(|jump| jump.end.unwrap_or_default());
        }
        let before = db.stats().read;
        assert_eq!(db.range(key(1000)..).next().unwrap().unwrap().0, key(5000));
        let used = db.stats().read - before;
        assert!(used.tombstones_skipped < 200, "{used:?}");
        assert_eq!(db.range(..key(5000)).next_back().unwrap().unwrap().0, key(999));
        assert_eq!(db.iter().count(), 2000);
    }

    /// A walk ends at once if keys around a deleted one are live, and gives up if a stretch is
    /// longer than is worth it.
    #[test]
    fn a_walk_passes_no_more_dead_keys_than_it_was_told_to() {
        let options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
        let db = options.open("/db").unwrap();
        let key = |i: u32| format!("key{i:06}");
        for i in 0..3000 {
            db.put(key(i), "value").unwrap();
        }
        for i in 500..560 {
            db.delete(key(i)).unwrap();
        }
        let keyspace = &db.default_keyspace().inner;
        let stand = || {
            let view = keyspace.view.load();
            Standpoint { seq: db.inner().visible(), edition: view.edition, rotation: view.rotation }
        };
        let walk = |at: u32, limit| {
            db.inner().walk_over_deletions(keyspace, &Stretch { key: key(at).into_bytes(), limit });
            let jump = |of: u32| keyspace.view.load().gaps.jump(key(of).as_bytes(), stand());
            [500, 510, 530, 559].map(|of| jump(of).is_some())
        };
        assert_eq!(walk(2000, 1000), [false; 4]);
        assert_eq!(walk(530, 5), [false, false, true, false]);
        assert_eq!(walk(530, 1000), [true; 4]);
        assert_eq!(db.range(key(500)..).next().unwrap().unwrap().0, key(560));
        assert_eq!(db.iter().count(), 2940);
    }
}
