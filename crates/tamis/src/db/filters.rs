//! Background work on global filters: building and rebuilding partitions, and inserting the keys of ingested tables.
//!
//! One thread at a time works on a keyspace's filter. It builds without a lock, from the tables of the version that was
//! current; see [`Grf`] for how concurrent changes are included. A failure does not affect answers: the partition is read
//! without the filter, or with the old one. The work is retried when the tree has changed.

use std::sync::Arc;

use crate::db::inner::{DbInner, KeyspaceInner, State};
use crate::error::{AdminError, StorageError, WriteError};
use crate::select::{Grf, Task, TreeFilter};
use crate::tree::version::Version;

impl DbInner {
    /// Returns the next work on a filter of any keyspace.
    pub(crate) fn next_filter_task(&self, state: &State) -> Option<(Arc<KeyspaceInner>, Task)> {
        state.keyspaces.values().find_map(|keyspace| {
            let task = self.filter_task(state, keyspace)?;
            Some((keyspace.clone(), task))
        })
    }

    /// Returns the work due for a keyspace's filter, unless a thread is already working on it.
    pub(crate) fn filter_task(&self, state: &State, keyspace: &KeyspaceInner) -> Option<Task> {
        let held = |jobs: &crate::db::inner::Jobs| jobs.filtering || jobs.filter_failed;
        match state.jobs.get(&keyspace.id).is_some_and(held) {
            true => None,
            false => keyspace.filter.task(&keyspace.view.load().version),
        }
    }

    /// Does the work that is due, after [`start_filtering`](crate::db::inner::Jobs::start_filtering), and marks its end.
    pub(crate) fn work_on_filter(&self, keyspace: &KeyspaceInner, task: Task) {
        let TreeFilter::Grf(grf) = &keyspace.filter else { return };
        let work = std::panic::AssertUnwindSafe(|| match task {
            Task::Build(span) => self.build_filter(keyspace, grf, span),
            Task::Insert => Ok(self.insert_into_filter(keyspace, grf)),
        });
        let result = std::panic::catch_unwind(work);
        self.warn_of_filter(keyspace);
        let mut state = self.state();
        let jobs = state.jobs.entry(keyspace.id).or_default();
        jobs.filtering = false;
        // If it failed and the tree has changed meanwhile, the change may be what it needed: see `Jobs::start_filtering`.
        match result {
            Ok(Ok(done)) => jobs.filter_failed &= !done,
            Ok(Err(why)) => {
                log::warn!("keyspace `{}`: its global filter is not complete: {why}", keyspace.name);
            }
            Err(panic) => {
                drop(state);
                self.changed.notify_all();
                std::panic::resume_unwind(panic);
            }
        }
        drop(state);
        self.changed.notify_all();
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
            let mut state = self.state();
            let replaced = grf.install(&work, built);
            self.publish_filter(&mut state, keyspace);
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
        self.publish_filter(&mut self.state(), keyspace);
        done
    }

    /// Publishes a version of the same tables with a new selector.
    fn publish_filter(&self, state: &mut State, keyspace: &KeyspaceInner) {
        let view = keyspace.view.load_full();
        if keyspace.is_dropped() || !state.tree.keyspaces.contains_key(&keyspace.id) {
            return;
        }
        let version = self.build_version(&state.tree, keyspace, &view.version, &[]);
        keyspace.view.store(Arc::new(keyspace.view_of(view.memtables.clone(), version)));
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
            let filtering = |ks: &KeyspaceInner| state.jobs.get(&ks.id).is_some_and(|jobs| jobs.filtering);
            let busy = |ks: &Arc<KeyspaceInner>| filtering(ks) || self.filter_task(&state, ks).is_some();
            if !state.keyspaces.values().any(busy) {
                drop(state);
                self.elastic.settle();
                return Ok(());
            }
            match self.read_only {
                true if state.closing => return Err(WriteError::Closed.into()),
                true => {}
                false => self.check_writable()?,
            }
            state = self.wait(state);
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
                let task = self.next_filter_task(&state);
                if let Some((keyspace, _)) = &task {
                    state.jobs.entry(keyspace.id).or_default().start_filtering();
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
        inner.state().jobs.entry(keyspace.id).or_default().start_filtering();
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
        inner.state().jobs.entry(keyspace.id).or_default().filtering = true;
        db.put("key", "value").expect("a write");
        db.flush().expect("a flush");
        inner.state().jobs.entry(keyspace.id).or_default().start_filtering();
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
