//! Flushing, compacting and waiting on request.

use std::ops::Range;
use std::sync::{Arc, Weak};

use tamis_base::ids::{KeyspaceId, TableId};
use tamis_base::key::SeqNo;
use tamis_base::meta::TableMeta;
use tamis_policy::compaction::plan::{OutputRun, Plan, PlanInput, Reason, Work};
use tamis_policy::compaction::shape::{KeyRange, Shape, TableShape};

use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::state::State;
use crate::error::AdminError;
use crate::interrupt;
use crate::jobs::compact::PlanEnd;
use crate::jobs::control::{CancelToken, CompactOptions, Settling};
use crate::jobs::covered::covered_tables;
use crate::read::MemtableSlot;
use crate::session::Session;
use crate::session::expiry::expired_tables;
use crate::sync::MutexGuard;

impl Session {
    /// Seals the memtables of `keyspaces` and waits until they are tables. Does not wait for
    /// memtables that are sealed meanwhile: writers may fill memtables as fast as they are flushed.
    pub(crate) fn flush(&self, keyspaces: &[Arc<KeyspaceInner>]) -> Result<(), AdminError> {
        self.check_ready()?;
        let mut due: Vec<(&Arc<KeyspaceInner>, Vec<Weak<MemtableSlot>>)> = {
            let mut log = self.lock_log();
            if keyspaces.iter().any(|ks| !ks.view.load().memtables.active.memtable.is_empty()) {
                self.seal(&mut log, keyspaces)?;
            }
            let sealed = |ks: &Arc<KeyspaceInner>| -> Vec<_> {
                ks.view.load().memtables.sealed.iter().map(Arc::downgrade).collect()
            };
            let due = keyspaces.iter().map(|ks| (ks, sealed(ks)));
            due.filter(|(_, sealed)| !sealed.is_empty()).collect()
        };
        let waiting = |(ks, due): &(&Arc<KeyspaceInner>, Vec<Weak<MemtableSlot>>)| {
            let is_due = |slot: &Arc<MemtableSlot>| due.iter().any(|due| due.as_ptr() == Arc::as_ptr(slot));
            !ks.is_dropped() && ks.view.load().memtables.sealed.iter().any(is_due)
        };
        let mut state = self.state();
        // Earlier failures are retried now.
        for (keyspace, _) in &due {
            state.scheduler.allow_flushes(keyspace.id);
        }
        self.monitor.notify();
        // One after the other: the next ones are tables by then, or are checked next.
        while let Some(one) = due.last() {
            if !waiting(one) {
                due.pop();
                continue;
            }
            self.gate.check_writable()?;
            state.scheduler.check_flushes(one.0.id)?;
            state = self.wait_or_give_up(state)?;
        }
        Ok(())
    }

    /// Waits for a change of the state, in a call that can be [interrupted](interrupt).
    fn wait_or_give_up<'s>(
        &'s self,
        state: MutexGuard<'s, State>,
    ) -> Result<MutexGuard<'s, State>, AdminError> {
        if !interrupt::is_possible() {
            return Ok(self.monitor.wait(state));
        }
        drop(self.monitor.wait_for(state, interrupt::INTERVAL));
        if interrupt::is_interrupted() {
            return Err(AdminError::Interrupted);
        }
        Ok(self.state())
    }

    /// Waits until no work is running, and none is due that can run: compactions that are paused or
    /// lack room do not count.
    pub(crate) fn wait_for_compaction(&self) -> Result<(), AdminError> {
        self.gate.check_process()?;
        self.check_ready()?;
        let busy = |state: &State, ks: &KeyspaceInner| {
            let flushes = state.scheduler.is_flushing(ks.id) || !ks.view.load().memtables.sealed.is_empty();
            let compacts =
                || !state.scheduler.running(ks.id).is_empty() || self.next_plan(state, ks).is_some();
            flushes || state.filters.is_busy(ks) || !self.background.is_paused() && compacts()
        };
        let _settling = Settling::new(self);
        let mut state = self.state();
        // Starts at the last keyspace that was busy. At the end all are checked once more, without
        // a wait.
        let mut from = None;
        loop {
            self.ripen(&mut state, None);
            let all = state.catalogue.keyspaces();
            let found = match from {
                None => all.values().find(|ks| busy(&state, ks)),
                Some(id) => {
                    let again = all.get(&id).into_iter().chain(all.after(&id).map(|(_, ks)| ks));
                    again.into_iter().find(|ks| busy(&state, ks))
                }
            };
            match found.map(|ks| ks.id) {
                None if from.is_none() => break,
                None => from = None,
                Some(busy) => {
                    from = Some(busy);
                    self.gate.check_writable()?;
                    state.scheduler.check_all_flushes()?;
                    // Work may become due by time alone.
                    state.scheduler.note_change(busy);
                    self.monitor.notify();
                    state = self.wait_or_give_up(state)?;
                }
            }
        }
        drop(state);
        // Callers want to see the final set of files.
        self.log.remove_obsolete();
        self.files.garbage.remove_all(&*self.fs);
        Ok(())
    }

    /// Returns a rewrite of one table of the last level that still holds data kept only for a
    /// released snapshot. A rewrite leaves a table without sequence numbers, so this ends. Where
    /// sequence numbers are kept, it leaves a table without deletes, and with nothing pinned for
    /// snapshots that were released before it began. `cleaned` are the table numbers of earlier
    /// rewrites' outputs (and perhaps of other files in between): operands that cannot be merged
    /// keep their sequence numbers, and rewriting them again would never end.
    fn cleaning(
        &self,
        shape: &Shape,
        keyspace: &KeyspaceInner,
        range: Option<&KeyRange>,
        cleaned: &[Range<TableId>],
    ) -> Option<Plan> {
        let oldest = self.live_snapshots().first().copied().unwrap_or(SeqNo::MAX);
        let level = shape.deepest().filter(|&level| level > 0)?;
        // Only the oldest run has nothing below it.
        let run = shape.levels[level].runs.last()?;
        let keep_seq = keyspace.age.keep_seq();
        let unclean = |meta: &TableMeta| {
            let deletes = meta.deletes > 0 || meta.range_tombstones > 0;
            let unpinned = |pin: &(SeqNo, u64)| shape.snapshots.binary_search(&pin.0).is_err();
            (1..=oldest).contains(&meta.max_seq) && (deletes || !keep_seq)
                || keep_seq && meta.extra.pinned.iter().any(unpinned)
        };
        let within = |t: &TableShape| range.is_none_or(|range| range.overlaps_table(t));
        let due = |t: &&TableShape| {
            let was_cleaned = cleaned.iter().any(|numbers| numbers.contains(&t.id()));
            !t.busy && !was_cleaned && within(t) && unclean(&t.meta)
        };
        let table = run.tables.iter().find(due)?;
        // A small table stays one table: pieces of it would be joined again, and then rewritten
        // again.
        let full = keyspace.shaping.load().options.table_bytes;
        let max_table_bytes = if table.bytes() > full { full } else { u64::MAX };
        Some(Plan {
            inputs: vec![PlanInput { level, run: run.id, tables: vec![table.id()] }],
            output_level: level,
            output: OutputRun::Into(run.id),
            range: table.range(),
            max_table_bytes,
            borders: Vec::new(),
            edges: Vec::new(),
            reason: Reason::Manual,
            work: Work::Merge,
            guard_bits: None,
            bottommost: true,
            stretch: None,
        })
    }

    /// Flushes a keyspace and merges what overlaps `range` (everything if `None`) into its last
    /// level, in the calling thread and any helpers available.
    pub(crate) fn compact_within(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        range: Option<&KeyRange>,
        options: &CompactOptions,
    ) -> Result<(), AdminError> {
        keyspace.check_operators()?;
        self.flush(std::slice::from_ref(keyspace))?;
        let mut state = self.state();
        // Exclusively: no automatic job and no other caller works on this keyspace meanwhile.
        while !state.scheduler.start_manual(keyspace.id) {
            self.gate.check_writable()?;
            if options.cancel.is_cancelled() {
                return Err(AdminError::Cancelled);
            }
            drop(self.monitor.wait_briefly(state));
            if interrupt::is_interrupted() {
                return Err(AdminError::Interrupted);
            }
            state = self.state();
        }
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
        let mut cleaned: Vec<Range<TableId>> = Vec::new();
        loop {
            if interrupt::is_interrupted() {
                return Err(AdminError::Interrupted);
            }
            // Ask anew, since the caller may just have made room.
            self.space.room.ask(&*self.fs, &self.dir);
            let mut state = self.state();
            self.gate.check_writable()?;
            if cancel.is_cancelled() {
                return Err(AdminError::Cancelled);
            }
            if keyspace.is_dropped() {
                return Ok(());
            }
            let waits = !state.scheduler.running(keyspace.id).is_empty();
            if waits || self.background.is_paused() {
                drop(self.monitor.wait_briefly(state));
                continue;
            }
            if let Some(damage) = self.damage_within(keyspace, range) {
                // Damaged data could not be merged, and the entries that it shadows must not count
                // as dropped.
                return Err(damage.into());
            }
            let shape = self.shape(&state, keyspace);
            let shaping = keyspace.shaping.load_full();
            // Work that needs no room comes first. A policy that drops tables itself goes by the
            // age of whole runs.
            let covered = (!shaping.policy.drops_data())
                .then(|| covered_tables(&shape, &keyspace.view.load().version, range))
                .flatten();
            let wanted = covered.or_else(|| shaping.policy.manual(&shape, range)).or_else(|| {
                // A policy plans nothing that does not fit; with unlimited room it returns the plan
                // that it would have made.
                shaping.policy.manual(&Shape { room: None, ..shape.clone() }, range)
            });
            // Expired tables may be anywhere, so drop them only when compacting the whole keyspace.
            let wanted = wanted.or_else(|| range.is_none().then(|| expired_tables(&shape)).flatten());
            let cleaning = wanted.is_none();
            let Some(plan) = wanted.or_else(|| self.cleaning(&shape, keyspace, range, &cleaned)) else {
                if range.is_none() {
                    // Everything is in the last level: no round is under way.
                    self.begin_round(&mut state, keyspace);
                }
                return Ok(());
            };
            if let Some((needed, free)) = self.lack_of_room(keyspace, &plan, shape.room) {
                return Err(AdminError::NoRoom { keyspace: keyspace.name().to_owned(), needed, free });
            }
            let job = self.start(&mut state, keyspace, &plan);
            drop(state);
            let first_new = self.files.numbers.next();
            let result = self.run_plan(keyspace, &plan, &job, Some(cancel));
            if cleaning {
                cleaned.push(first_new..self.files.numbers.next());
            }
            match result {
                Ok(PlanEnd::Done) => {}
                // The next iteration detects closing and dropping.
                Ok(PlanEnd::Cancelled) if self.gate.cancels() || keyspace.is_dropped() => {}
                // As above: the interruption cancelled it.
                Ok(PlanEnd::Cancelled) if interrupt::is_interrupted() => {}
                Ok(PlanEnd::Cancelled) => return Err(AdminError::Cancelled),
                Ok(PlanEnd::Undone(error)) | Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Ends a caller's compaction of a keyspace, even on a panic, since closing waits for it.
struct Manual<'d> {
    db: &'d Session,
    keyspace: KeyspaceId,
}

impl Drop for Manual<'_> {
    fn drop(&mut self) {
        self.db.monitor.lock().scheduler.end_manual(self.keyspace);
        self.db.monitor.notify();
    }
}
