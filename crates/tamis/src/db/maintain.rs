//! Flushing, compacting and waiting on request.

use std::sync::Arc;

use crate::compaction::plan::{OutputRun, Plan, PlanInput, Reason, Work};
use crate::compaction::shape::{KeyRange, Shape, TableShape};
use crate::db::compact::Ended;
use crate::db::inner::{DbInner, KeyspaceInner, State};
use crate::db::jobs::{CancelToken, CompactOptions};
use crate::error::AdminError;
use crate::key::SeqNo;
use crate::tree::meta::KeyspaceId;

impl DbInner {
    /// Seals the memtables of `keyspaces` and waits until they are tables.
    pub(crate) fn flush(&self, keyspaces: &[Arc<KeyspaceInner>]) -> Result<(), AdminError> {
        self.check_writable()?;
        {
            let mut log = self.lock_log();
            if keyspaces.iter().any(|ks| !ks.view.load().active.memtable.is_empty()) {
                self.seal(&mut log, keyspaces).inspect_err(|e| self.poison(e))?;
            }
        }
        let waiting = |ks: &Arc<KeyspaceInner>| !ks.is_dropped() && !ks.view.load().sealed.is_empty();
        let mut state = self.state();
        while keyspaces.iter().any(waiting) {
            self.check_writable()?;
            state = self.wait(state);
        }
        Ok(())
    }

    /// Waits until nothing is running or due that may run: compactions that are paused or find no room do not count.
    pub(crate) fn settle(&self) -> Result<(), AdminError> {
        self.check_writable()?;
        let busy = |state: &State, ks: &KeyspaceInner| {
            let (flushing, compacting) = state
                .jobs
                .get(&ks.id)
                .map_or((false, false), |jobs| (jobs.flushing, !jobs.running.is_empty()));
            let flushes = flushing || !ks.view.load().sealed.is_empty();
            let compacts = || compacting || self.next_plan(state, ks).is_some();
            flushes || !self.background.is_paused() && compacts()
        };
        let mut state = self.state();
        while state.keyspaces.values().any(|ks| busy(&state, ks)) {
            self.check_writable()?;
            state = self.wait(state);
        }
        Ok(())
    }

    /// A rewrite of one table of the last level that still holds what only a snapshot needed that is gone by
    /// now. Every rewrite leaves a table whose sequence numbers are all forgotten, so this comes to an end.
    fn cleaning(&self, shape: &Shape, keyspace: &KeyspaceInner, range: Option<&KeyRange>) -> Option<Plan> {
        let oldest = self.live_snapshots().first().copied().unwrap_or(SeqNo::MAX);
        let level = shape.deepest().filter(|&level| level > 0)?;
        let run = shape.levels[level].runs.first()?;
        let within = |t: &TableShape| range.is_none_or(|range| range.overlaps_table(t));
        let needless = |t: &TableShape| !t.busy && (1..=oldest).contains(&t.meta.max_seq);
        let table = run.tables.iter().find(|t| needless(t) && within(t))?;
        Some(Plan {
            inputs: vec![PlanInput { level, run: run.id, tables: vec![table.id()] }],
            output_level: level,
            output: OutputRun::Into(run.id),
            range: table.range(),
            max_table_bytes: keyspace.shaping.load().options.table_bytes,
            borders: Vec::new(),
            reason: Reason::Manual,
            work: Work::Merge,
            guard_bits: None,
            bottommost: true,
        })
    }

    /// Flushes a keyspace and merges what overlaps `range` (everything if `None`) into its last level, in the
    /// calling thread and what helpers it finds.
    pub(crate) fn compact_within(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        range: Option<&KeyRange>,
        options: &CompactOptions,
    ) -> Result<(), AdminError> {
        self.flush(std::slice::from_ref(keyspace))?;
        let mut state = self.state();
        // Alone: no automatic job and no other caller works on this keyspace meanwhile.
        while state.jobs.entry(keyspace.id).or_default().manual {
            self.check_writable()?;
            if options.cancel.is_cancelled() {
                return Err(AdminError::Cancelled);
            }
            state = self.wait_briefly(state);
        }
        state.jobs.entry(keyspace.id).or_default().manual = true;
        drop(state);
        let _manual = Manual { db: self, keyspace: keyspace.id };
        self.compact_alone(keyspace, range, &options.cancel)
    }

    fn compact_alone(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        range: Option<&KeyRange>,
        cancel: &CancelToken,
    ) -> Result<(), AdminError> {
        loop {
            self.background.room.refresh(&*self.fs, &self.dir);
            let mut state = self.state();
            self.check_writable()?;
            if cancel.is_cancelled() {
                return Err(AdminError::Cancelled);
            }
            if keyspace.is_dropped() {
                return Ok(());
            }
            let waits = !state.jobs.entry(keyspace.id).or_default().running.is_empty();
            if waits || self.background.is_paused() {
                drop(self.wait_briefly(state));
                continue;
            }
            let shape = self.shape(&state, keyspace);
            let next = keyspace.shaping.load().policy.manual(&shape, range);
            let Some(plan) = next.or_else(|| self.cleaning(&shape, keyspace, range)) else {
                if range.is_none() {
                    // All is in the last level: no round is under way.
                    self.begin_round(&mut state, keyspace);
                }
                return Ok(());
            };
            if let Some((needed, free)) = self.lack_of_room(keyspace, &plan, shape.room) {
                return Err(AdminError::NoRoom { keyspace: keyspace.name.clone(), needed, free });
            }
            let job = self.register(&mut state, keyspace, &plan);
            drop(state);
            match self.run_plan(keyspace, &plan, &job, Some(cancel)) {
                Ok(Ended::Done) => {}
                // Who closes the database or drops the keyspace is asked about at the next turn.
                Ok(Ended::Cancelled) if self.cancelled() || keyspace.is_dropped() => {}
                Ok(Ended::Cancelled) => return Err(AdminError::Cancelled),
                Ok(Ended::OutOfRoom(error)) => return Err(error.into()),
                Err(error) => {
                    self.poison(&error);
                    return Err(error.into());
                }
            }
        }
    }
}

/// Ends a caller's compaction of a keyspace, even by a panic: closing waits for it.
struct Manual<'d> {
    db: &'d DbInner,
    keyspace: KeyspaceId,
}

impl Drop for Manual<'_> {
    fn drop(&mut self) {
        if let Ok(mut state) = self.db.state.lock() {
            state.jobs.entry(self.keyspace).or_default().manual = false;
        }
        self.db.changed.notify_all();
    }
}
