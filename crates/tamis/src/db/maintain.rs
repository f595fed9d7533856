//! Flushing, compacting and waiting on request.

use std::sync::Arc;

use crate::compaction::plan::{OutputRun, Plan, PlanInput, Reason, Work};
use crate::compaction::shape::Shape;
use crate::db::expiry::expired_tables;
use crate::db::inner::{DbInner, KeyspaceInner, State};
use crate::error::AdminError;
use crate::key::SeqNo;
use crate::tree::meta::{KeyspaceId, TableMeta};

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

    /// Waits until nothing is running or due.
    pub(crate) fn settle(&self) -> Result<(), AdminError> {
        self.check_writable()?;
        let busy = |state: &State, ks: &KeyspaceInner| {
            !ks.view.load().sealed.is_empty()
                || !state.jobs.get(&ks.id).is_none_or(|jobs| jobs.idle())
                || self.next_plan(state, ks).is_some()
        };
        let mut state = self.state();
        while state.keyspaces.values().any(|ks| busy(&state, ks)) {
            self.check_writable()?;
            state = self.wait(state);
        }
        Ok(())
    }

    /// A rewrite of one table of the last level that still holds what only a snapshot needed that is gone by
    /// now. Every rewrite leaves a table whose sequence numbers are all forgotten, so this comes to an end. Where they
    /// are kept, it leaves one without deletes, and with nothing pinned for snapshots that were gone when it began.
    fn cleaning(&self, shape: &Shape, keyspace: &KeyspaceInner) -> Option<Plan> {
        let oldest = self.live_snapshots().first().copied().unwrap_or(SeqNo::MAX);
        let level = shape.deepest().filter(|&level| level > 0)?;
        let run = shape.levels[level].runs.first()?;
        let keep_seq = keyspace.age.keep_seq();
        let unclean = |meta: &TableMeta| {
            let deletes = meta.deletes > 0 || meta.range_tombstones > 0;
            let unpinned = |pin: &(SeqNo, u64)| shape.snapshots.binary_search(&pin.0).is_err();
            (1..=oldest).contains(&meta.max_seq) && (deletes || !keep_seq)
                || keep_seq && meta.extra.pinned.iter().any(unpinned)
        };
        let table = run.tables.iter().find(|t| !t.busy && unclean(&t.meta))?;
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

    /// Flushes and merges a keyspace into its last level, in the calling thread.
    pub(crate) fn compact_all(&self, keyspace: &Arc<KeyspaceInner>) -> Result<(), AdminError> {
        self.flush(std::slice::from_ref(keyspace))?;
        let mut state = self.state();
        // Alone: no automatic job and no other caller works on this keyspace meanwhile.
        while state.jobs.entry(keyspace.id).or_default().manual {
            state = self.wait(state);
        }
        state.jobs.entry(keyspace.id).or_default().manual = true;
        drop(state);
        let _manual = Manual { db: self, keyspace: keyspace.id };
        self.compact_alone(keyspace)
    }

    fn compact_alone(&self, keyspace: &Arc<KeyspaceInner>) -> Result<(), AdminError> {
        let mut state = self.state();
        loop {
            if let Err(error) = self.check_writable() {
                break Err(error.into());
            }
            if keyspace.is_dropped() {
                break Ok(());
            }
            if !state.jobs.entry(keyspace.id).or_default().running.is_empty() {
                state = self.wait(state);
                continue;
            }
            let shape = self.shape(&state, keyspace);
            let next = keyspace
                .shaping
                .load()
                .policy
                .manual(&shape, None)
                .or_else(|| expired_tables(&shape))
                .or_else(|| self.cleaning(&shape, keyspace));
            let Some(plan) = next else {
                // All is in the last level: no round is under way.
                self.begin_round(&mut state, keyspace);
                break Ok(());
            };
            let job = self.register(&mut state, keyspace, &plan);
            drop(state);
            let result = self.run_plan(keyspace, &plan, job);
            state = self.state();
            if let Err(error) = result {
                drop(state);
                self.poison(&error);
                break Err(error.into());
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
