//! Background work on global filters: building and rebuilding partitions, and inserting the keys of ingested tables.
//!
//! One thread at a time works on a keyspace's filter. It builds without a lock, from the tables of the version that was
//! current; see [`Grf`] for how concurrent changes are included. A failure does not affect answers: the partition is read
//! without the filter, or with the old one. The work is retried when the tree has changed.
//!
//! [`FilterUpkeep`] is behind the `state` lock and holds bookkeeping alone. Work counts as failed while it is under way, so that a
//! panic in it leaves the mark of a failure; writes have stopped for good by then.

use std::sync::Arc;

use crate::collections::HashSet;
use crate::db::catalogue::Catalogue;
use crate::db::inner::{DbInner, KeyspaceInner};
use crate::error::{AdminError, StorageError, WriteError};
use crate::ids::KeyspaceId;
use crate::select::{Grf, Task, TreeFilter};
use crate::tree::version::Version;

/// Which keyspaces' filters are being worked on. Behind the `state` lock.
#[derive(Debug, Default)]
pub(crate) struct FilterUpkeep {
    working: HashSet<KeyspaceId>,
    /// The keyspaces where the last work failed, or is under way: it must not be retried before the tree has changed.
    failed: HashSet<KeyspaceId>,
}

impl FilterUpkeep {
    /// Returns the next work on a filter of any keyspace.
    pub(crate) fn next(&self, catalogue: &Catalogue) -> Option<(Arc<KeyspaceInner>, Task)> {
        catalogue.keyspaces().values().find_map(|keyspace| Some((keyspace.clone(), self.task(keyspace)?)))
    }

    /// Returns the work due for a keyspace's filter, unless a thread is already working on it.
    fn task(&self, keyspace: &KeyspaceInner) -> Option<Task> {
        let held = self.working.contains(&keyspace.id) || self.failed.contains(&keyspace.id);
        if held { None } else { keyspace.filter.task(&keyspace.view.load().version) }
    }

    /// Reports whether work on a keyspace's filter is under way or due.
    pub(crate) fn is_busy(&self, keyspace: &KeyspaceInner) -> bool {
        self.working.contains(&keyspace.id) || self.task(keyspace).is_some()
    }

    /// Marks the start of work. Until the work succeeds it counts as failed: a change of the tree in the meantime clears that
    /// mark, and so is not forgotten if the work does fail.
    pub(crate) fn start(&mut self, keyspace: KeyspaceId) {
        self.working.insert(keyspace);
        self.failed.insert(keyspace);
    }

    /// Marks the end of work. If it is not `done` and the tree has changed meanwhile, the change may be what it needed.
    fn end(&mut self, keyspace: KeyspaceId, done: bool) {
        self.working.remove(&keyspace);
        if done {
            self.failed.remove(&keyspace);
        }
    }

    pub(crate) fn tree_changed(&mut self, keyspace: KeyspaceId) {
        self.failed.remove(&keyspace);
    }
}

impl DbInner {
    /// Does the work that is due, after [`start`](FilterUpkeep::start), and marks its end, even in a panic.
    pub(crate) fn work_on_filter(&self, keyspace: &KeyspaceInner, task: Task) {
        let TreeFilter::Grf(grf) = &keyspace.filter else { return };
        let work = std::panic::AssertUnwindSafe(|| match task {
            Task::Build(span) => self.build_filter(keyspace, grf, span),
            Task::Insert => Ok(self.insert_into_filter(keyspace, grf)),
        });
        let result = std::panic::catch_unwind(work);
        self.warn_of_filter(keyspace);
        self.state().filters.end(keyspace.id, matches!(result, Ok(Ok(true))));
        self.monitor.notify();
        match result {
            Ok(Ok(_)) => {}
            Ok(Err(why)) => {
                log::warn!("keyspace `{}`: its global filter is not complete: {why}", keyspace.name);
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn build_filter(
        &self,
        keyspace: &KeyspaceInner,
        grf: &Grf,
        span: crate::select::Span,
    ) -> Result<bool, StorageError> {
        let version = {
            let mut work = grf.work();
            // From here on every flush is recorded, or is in the version already.
            grf.begin_build(&mut work);
            keyspace.view.load().version.clone()
        };
        let levels = self.levels_above_last(keyspace, &version);
        let built = grf.build(&version, span, levels).inspect_err(|_| grf.end_build(&mut grf.work()))?;
        built
            .warnings
            .iter()
            .for_each(|warning| self.warn(format!("keyspace `{}`: {warning}", keyspace.name)));
        let complete = built.is_complete();
        let mut work = grf.work();
        grf.catch_up(&mut work, &built);
        let replaced = {
            let state = self.state();
            let replaced = grf.install(&work, built);
            state.catalogue.publish_selector(keyspace);
            replaced
        };
        drop(version);
        grf.shrink(&work, replaced);
        Ok(complete)
    }

    /// Returns the number of levels above the last that flushed data passes through on its way there.
    fn levels_above_last(&self, keyspace: &KeyspaceInner, version: &Version) -> usize {
        let last = version.runs.last().map_or(0, |run| run.level);
        let targets = {
            let state = self.state();
            keyspace.shaping.load().policy.level_targets(&self.shape(&state, keyspace))
        };
        // Where sizes count, levels without a target are skipped.
        let used = |level: &usize| targets.get(*level).is_some_and(|target| *target > 0);
        match targets.iter().any(|target| *target > 0) {
            true => 1 + (1..last).filter(used).count(),
            false => last.max(1),
        }
    }

    fn insert_into_filter(&self, keyspace: &KeyspaceInner, grf: &Grf) -> bool {
        let mut work = grf.work();
        let version = keyspace.view.load().version.clone();
        let done = grf.insert_lacking(&mut work, &version);
        self.state().catalogue.publish_selector(keyspace);
        done
    }

    /// Forwards the warnings of a keyspace's filter.
    pub(crate) fn warn_of_filter(&self, keyspace: &KeyspaceInner) {
        let warnings = keyspace.filter.take_warnings().into_iter();
        warnings.for_each(|warning| self.warn(format!("keyspace `{}`: {warning}", keyspace.name)));
    }

    /// Waits until no keyspace's filter has work under way or due.
    pub(crate) fn settle_filters(&self) -> Result<(), AdminError> {
        let mut state = self.state();
        loop {
            if !state.catalogue.keyspaces().values().any(|keyspace| state.filters.is_busy(keyspace)) {
                drop(state);
                self.elastic.settle();
                return Ok(());
            }
            match self.read_only {
                true if state.closing => return Err(WriteError::Closed.into()),
                true => {}
                false => self.health.check_writable()?,
            }
            state = self.monitor.wait(state);
        }
    }

    /// Does all work that is due: the only background thread of a database opened read-only.
    pub(crate) fn build_filters(&self) {
        loop {
            let task = {
                let mut state = self.state();
                if state.closing {
                    return;
                }
                let task = state.filters.next(&state.catalogue);
                if let Some((keyspace, _)) = &task {
                    state.filters.start(keyspace.id);
                }
                task
            };
            match task {
                Some((keyspace, task)) => self.work_on_filter(&keyspace, task),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tamis_testkit::{FaultPlan, FaultyFs, OpClass};

    use super::*;
    use crate::key::KeyBytes;
    use crate::options::FilterChoice;
    use crate::options::ReadMode;
    use crate::select::Span;
    use crate::{Db, Options};

    fn opened() -> (FaultyFs, Db) {
        let fs = FaultyFs::new(1);
        let mut options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
        options.read_mode = ReadMode::Buffered;
        options.keyspace.filter = FilterChoice::Grf.into();
        (fs, Db::open("/db", options).expect("opening"))
    }

    /// Builds everything on a device whose next read fails.
    fn work_that_fails(fs: &FaultyFs, db: &DbInner, keyspace: &KeyspaceInner) {
        fs.plan(FaultPlan { fail_at: Some(0), only: Some(OpClass::Read), ..FaultPlan::none() });
        db.work_on_filter(keyspace, Task::Build(Span { start: KeyBytes::default(), end: None }));
    }

    /// Failed work was to be retried when the tree changed, but a change during the work was forgotten: if nothing more was
    /// written, the tree was read without a filter until the database was opened again.
    #[test]
    fn a_change_of_the_tree_during_failing_work_allows_a_retry() {
        let (fs, db) = opened();
        let (inner, keyspace) = (db.inner(), &db.default_keyspace().inner);
        // This thread does the work, so no other does.
        inner.state().filters.start(keyspace.id);
        db.put("key", "value").expect("a write");
        db.flush().expect("a flush");
        work_that_fails(&fs, inner, keyspace);
        assert_eq!(fs.failures(), 1);
        db.settle_filters().expect("settling");
        let filter = db.default_keyspace().stats().global_filter.expect("a filter");
        assert_eq!((filter.unbuilt, filter.partitions), (0, 1), "{filter:?}");
    }

    #[test]
    fn failed_work_is_not_retried_before_the_tree_has_changed() {
        let (fs, db) = opened();
        let (inner, keyspace) = (db.inner(), &db.default_keyspace().inner);
        inner.state().filters.working.insert(keyspace.id);
        db.put("key", "value").expect("a write");
        db.flush().expect("a flush");
        inner.state().filters.start(keyspace.id);
        work_that_fails(&fs, inner, keyspace);
        db.settle_filters().expect("settling");
        let unbuilt = || db.default_keyspace().stats().global_filter.expect("a filter").unbuilt;
        assert_eq!(unbuilt(), 1);
        db.put("other", "value").expect("a write");
        db.flush().expect("a flush");
        db.settle_filters().expect("settling");
        assert_eq!(unbuilt(), 0);
    }
}
