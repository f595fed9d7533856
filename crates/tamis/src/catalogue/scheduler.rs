//! The scheduler: which background work is under way, which is due next, and which has to wait
//! after a failure.
//!
//! # Invariants
//!
//! * At most one thread flushes a keyspace at a time. Of the keyspaces that are neither being
//!   flushed nor in backoff, the one whose sealed memtables hold back the oldest log is flushed
//!   first, its oldest memtables first.
//! * A table is an input of at most one compaction: the inputs of a [started](Scheduler::start)
//!   plan are busy until it [ends](Scheduler::end), successful or not.
//! * While a caller compacts a keyspace by hand, no automatic compaction of it starts.
//! * A search for work looks at the keyspaces that changed since nothing was due there, and at
//!   [`IN_TURN`] others, so that it also finds work that becomes due by time alone. Its cost does
//!   not grow with the number of unchanged keyspaces.
//! * Failed work backs off, longer each time, until it succeeds: it is never given up. A merge that
//!   ran out of space is also retried once there is clearly more room. A lack of room, or a
//!   failure, is warned of once until a merge succeeds again.
//!
//! # Threads and locks
//!
//! The scheduler is behind the `state` lock, beside the [catalogue](crate::catalogue) whose tables
//! it hands out. Policies do not see it: they plan from a shape that
//! [`Session::shape`](crate::session::Session::shape) assembles.
//!
//! # Poison
//!
//! A job whose thread panics still ends, so that no other thread waits for it. By then writes have
//! stopped for good, and nothing more is published.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tamis_base::collections::{HashMap, HashSet};
use tamis_base::ids::{KeyspaceId, LogId, TableId};
use tamis_policy::compaction::plan::Plan;
use tamis_policy::compaction::shape::RunningJob;

use crate::catalogue::Directory;
use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::progress::{ActiveJob, Progress};
use crate::compaction::blobs::BlobInputs;
use crate::error::{StorageError, WriteError};
use crate::gate::backoff::{Backoff, RETRY, RETRY_COMPACTION, RETRY_WITHOUT_ROOM};
use crate::read::MemtableSlot;
use crate::tree::open_table::OpenTable;

/// How many unchanged keyspaces each search for work looks at.
pub(crate) const IN_TURN: usize = 32;

/// What background work is doing in one keyspace.
#[derive(Debug, Default)]
struct Jobs {
    flushing: bool,
    /// The backoff after a failed flush.
    flush_backoff: Option<Backoff>,
    /// Inputs of running compactions.
    busy: HashSet<TableId>,
    running: Vec<ActiveJob>,
    /// Whether a caller is compacting by hand.
    manual: bool,
    /// The backoff after a failed compaction.
    backoff: Option<Backoff>,
    /// Why a compaction that is due lacks room, in words.
    no_room: Option<String>,
    /// Whether a failure or a lack of room was already warned of.
    warned: bool,
    /// Tables emptied by range deletes and dropped unread, whose files may still exist. Nothing was
    /// made from them, so no origin records them; the next merge checks which are gone.
    dropped: Vec<TableId>,
    /// The oldest log of its sealed memtables, which is its place in the flush queue.
    sealed_in: Option<LogId>,
}

impl Jobs {
    /// Reports whether there is nothing to remember.
    fn is_over(&self) -> bool {
        let idle = !self.flushing && !self.manual && self.running.is_empty() && self.busy.is_empty();
        let fails = self.flush_backoff.is_some() || self.backoff.is_some() || self.no_room.is_some();
        idle && !fails && !self.warned && self.dropped.is_empty() && self.sealed_in.is_none()
    }
}

/// Which keyspaces a search for work looks at, and in which order.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// Keyspaces that changed since nothing was due there.
    changed: BTreeSet<KeyspaceId>,
    /// The last of them where work was found. Others come first, so that none starves.
    served: KeyspaceId,
    /// The last keyspace that was looked at in turn.
    turn: KeyspaceId,
    /// How many keyspaces were looked at.
    #[cfg(test)]
    pub(crate) looks: usize,
}

impl Rounds {
    /// Records that something may be due now.
    pub(crate) fn note_change(&mut self, keyspace: KeyspaceId) {
        self.changed.insert(keyspace);
    }

    /// Records that something may be due in each of these keyspaces.
    pub(crate) fn note_all(&mut self, keyspaces: &Directory) {
        self.changed.extend(keyspaces.keys());
    }

    /// Records that nothing is due until something changes.
    pub(crate) fn note_nothing(&mut self, keyspace: KeyspaceId) {
        self.changed.remove(&keyspace);
    }

    /// Records that work was found.
    pub(crate) fn note_work(&mut self, keyspace: KeyspaceId) {
        self.changed.insert(keyspace);
        self.served = keyspace;
    }

    /// Returns the keyspaces of `all` whose turn it is, changed or not.
    pub(crate) fn in_turn(&self, all: &Directory) -> Vec<Arc<KeyspaceInner>> {
        let most = all.len().min(IN_TURN);
        all.after(&self.turn).chain(all.iter()).map(|(_, keyspace)| keyspace.clone()).take(most).collect()
    }

    /// Returns the keyspaces of `all` that the next search looks at: those that changed, and those
    /// whose turn it is.
    pub(crate) fn next(&mut self, all: &Directory) -> Vec<Arc<KeyspaceInner>> {
        let in_turn = self.in_turn(all);
        if let Some(last) = in_turn.last() {
            self.turn = last.id;
        }
        let ordered = self.changed.range(self.served + 1..).chain(self.changed.range(..=self.served));
        let mut found: Vec<_> = ordered.filter_map(|id| all.get(id).cloned()).collect();
        if found.len() != self.changed.len() {
            // Some were dropped.
            self.changed.retain(|id| all.contains_key(id));
        }
        found.extend(in_turn.into_iter().filter(|keyspace| !self.changed.contains(&keyspace.id)));
        #[cfg(test)]
        {
            self.looks += found.len();
        }
        found
    }
}

/// A started plan.
#[derive(Debug)]
pub(crate) struct Job {
    number: u64,
    pub(crate) progress: Arc<Progress>,
}

impl Job {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

/// The background work of one database.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    jobs: HashMap<KeyspaceId, Jobs>,
    last_job: u64,
    /// The keyspaces to search for the next compaction.
    pub(crate) rounds: Rounds,
    /// The keyspaces with sealed memtables, by the oldest log of these memtables.
    sealed: BTreeMap<(LogId, KeyspaceId), Arc<KeyspaceInner>>,
}

impl Scheduler {
    /// Changes what is remembered of a keyspace, and forgets it once there is nothing to remember.
    fn change<T>(&mut self, keyspace: KeyspaceId, change: impl FnOnce(&mut Jobs) -> T) -> T {
        let jobs = self.jobs.entry(keyspace).or_default();
        let result = change(jobs);
        if jobs.is_over() {
            self.jobs.remove(&keyspace);
        }
        result
    }

    fn get(&self, keyspace: KeyspaceId) -> Option<&Jobs> {
        self.jobs.get(&keyspace)
    }

    /// Records that something may be due in a keyspace now.
    pub(crate) fn note_change(&mut self, keyspace: KeyspaceId) {
        self.rounds.note_change(keyspace);
    }

    /// Records which memtables of a keyspace are sealed. Must be called whenever that changes.
    pub(crate) fn note_memtables(&mut self, keyspace: &Arc<KeyspaceInner>) {
        let oldest = match keyspace.is_dropped() {
            true => None,
            false => keyspace.view.load().memtables.sealed.last().cloned(),
        };
        let oldest = oldest.map(|slot| slot.first_log.load(Ordering::Relaxed));
        let before = self.get(keyspace.id).and_then(|jobs| jobs.sealed_in);
        if before == oldest {
            return;
        }
        before.iter().for_each(|log| drop(self.sealed.remove(&(*log, keyspace.id))));
        oldest.iter().for_each(|log| drop(self.sealed.insert((*log, keyspace.id), keyspace.clone())));
        self.change(keyspace.id, |jobs| jobs.sealed_in = oldest);
    }

    /// Returns the keyspaces with sealed memtables.
    pub(crate) fn sealed(&self) -> Vec<Arc<KeyspaceInner>> {
        self.sealed.values().cloned().collect()
    }

    /// Returns the oldest log that holds writes of sealed memtables of other keyspaces than
    /// `without`.
    pub(crate) fn oldest_sealed_log(&self, without: KeyspaceId) -> Option<LogId> {
        self.sealed.keys().find(|(_, id)| *id != without).map(|(log, _)| *log)
    }

    /// Forgets a keyspace that was dropped.
    pub(crate) fn note_dropped_keyspace(&mut self, keyspace: &Arc<KeyspaceInner>) {
        self.note_memtables(keyspace);
        self.rounds.note_nothing(keyspace.id);
        self.change(keyspace.id, |jobs| {
            (jobs.backoff, jobs.flush_backoff, jobs.no_room, jobs.warned) = (None, None, None, false);
            jobs.dropped.clear();
        });
    }

    /// Returns the memtables to flush next into one run, newest first: the oldest sealed ones of
    /// the keyspace that holds back the oldest log. Skips keyspaces that are being flushed or in
    /// backoff.
    pub(crate) fn next_flush(&self) -> Option<(Arc<KeyspaceInner>, Vec<Arc<MemtableSlot>>)> {
        let held_back = |jobs: &Jobs| {
            jobs.flushing || jobs.flush_backoff.as_ref().is_some_and(|backoff| !backoff.is_over())
        };
        let keyspace = self.sealed.values().find(|ks| !self.get(ks.id).is_some_and(held_back))?.clone();
        let sealed = &keyspace.view.load().memtables.sealed;
        debug_assert!(!sealed.is_empty(), "the queue was told of each change");
        // After a failure, say on a full disk, flush what needs the least room.
        let failed = self.get(keyspace.id).is_some_and(|jobs| jobs.flush_backoff.is_some());
        let together = Scheduler::flushed_together(
            sealed.iter().rev().map(|slot| slot.memtable.used_bytes() as u64),
            keyspace.options.memtable_bytes,
            keyspace.options.max_memtables - 1,
        );
        let together = if failed { 1 } else { together };
        let slots = sealed[sealed.len() - together..].to_vec();
        Some((keyspace, slots))
    }

    /// Returns how many sealed memtables, given by their sizes, oldest first, to flush into one
    /// run. Several in one run spare each read and merge a run, and versions overwritten from one
    /// memtable to the next need not be written. But writers may wait for the flush, now or soon.
    /// So at most about two full memtables (of `full` bytes) go together, or one if `most` are
    /// sealed, as many as there may be.
    pub(crate) fn flushed_together(
        sizes: impl ExactSizeIterator<Item = u64>,
        full: u64,
        most: usize,
    ) -> usize {
        // Sealed memtables are somewhat larger than `full`.
        let limit = if sizes.len() < most { full.saturating_mul(5) / 2 } else { full };
        let mut total = 0;
        let fits = |size: &u64| {
            total += size;
            total <= limit
        };
        sizes.take_while(fits).count().max(1)
    }

    pub(crate) fn start_flush(&mut self, keyspace: KeyspaceId) {
        self.change(keyspace, |jobs| jobs.flushing = true);
    }

    pub(crate) fn end_flush(&mut self, keyspace: KeyspaceId) {
        self.change(keyspace, |jobs| jobs.flushing = false);
    }

    pub(crate) fn is_flushing(&self, keyspace: KeyspaceId) -> bool {
        self.get(keyspace).is_some_and(|jobs| jobs.flushing)
    }

    /// Records that a flush failed. Returns whether it is the first failure in a row.
    pub(crate) fn flush_failed(&mut self, keyspace: KeyspaceId, error: &StorageError) -> bool {
        self.change(keyspace, |jobs| {
            let before = jobs.flush_backoff.take();
            let first = before.is_none();
            jobs.flush_backoff = Some(Backoff::after(before, RETRY, error));
            first
        })
    }

    /// Ends the backoff of a keyspace's flushes: one succeeded, or should be retried now.
    pub(crate) fn allow_flushes(&mut self, keyspace: KeyspaceId) {
        self.change(keyspace, |jobs| jobs.flush_backoff = None);
    }

    /// Ends the backoff of all flushes.
    pub(crate) fn allow_all_flushes(&mut self) {
        self.jobs.retain(|_, jobs| {
            jobs.flush_backoff = None;
            !jobs.is_over()
        });
    }

    /// Reports whether a flush is in backoff.
    pub(crate) fn retries_flushes(&self) -> bool {
        self.jobs.values().any(|jobs| jobs.flush_backoff.is_some())
    }

    /// Returns an error if flushes of the keyspace fail repeatedly. For callers that wait for one.
    pub(crate) fn check_flushes(&self, keyspace: KeyspaceId) -> Result<(), WriteError> {
        suspended(self.get(keyspace).and_then(|jobs| jobs.flush_backoff.as_ref()?.told()))
    }

    /// Like [`check_flushes`](Self::check_flushes), for all keyspaces.
    pub(crate) fn check_all_flushes(&self) -> Result<(), WriteError> {
        self.jobs.keys().try_for_each(|&keyspace| self.check_flushes(keyspace))
    }

    /// Returns an error if flushes or compactions of the keyspace fail repeatedly, or if no
    /// compaction runs and one that is due lacks room. For callers that wait for a compaction.
    pub(crate) fn check_compactions(&self, keyspace: KeyspaceId) -> Result<(), WriteError> {
        self.check_flushes(keyspace)?;
        let jobs = self.get(keyspace).filter(|jobs| jobs.running.is_empty());
        suspended(
            jobs.and_then(|jobs| jobs.backoff.as_ref().and_then(Backoff::told).or(jobs.no_room.as_deref())),
        )
    }

    /// Reports whether a caller compacts the keyspace by hand.
    pub(crate) fn is_manual(&self, keyspace: KeyspaceId) -> bool {
        self.get(keyspace).is_some_and(|jobs| jobs.manual)
    }

    /// Reports whether automatic merges of the keyspace must not start, given this many free bytes.
    pub(crate) fn holds_back(&self, keyspace: KeyspaceId, free: Option<u64>) -> bool {
        let waits = |backoff: &Backoff| !backoff.is_over() && !backoff.has_more_room(free);
        self.get(keyspace).is_some_and(|jobs| jobs.backoff.as_ref().is_some_and(waits))
    }

    /// Reports whether compactions of the keyspace are in backoff.
    pub(crate) fn is_aside(&self, keyspace: KeyspaceId) -> bool {
        self.get(keyspace).is_some_and(|jobs| jobs.backoff.as_ref().is_some_and(|backoff| !backoff.is_over()))
    }

    /// Records whether a compaction that is due lacks room. Returns the reason recorded before.
    pub(crate) fn note_room(&mut self, keyspace: KeyspaceId, lacks: Option<String>) -> Option<String> {
        if lacks.is_none() && !self.jobs.contains_key(&keyspace) {
            return None;
        }
        self.change(keyspace, |jobs| std::mem::replace(&mut jobs.no_room, lacks))
    }

    /// Returns the keyspaces in which a compaction that is due lacks room.
    pub(crate) fn lacking_room(&self) -> Vec<KeyspaceId> {
        let lacking = self.jobs.iter().filter(|(_, jobs)| jobs.no_room.is_some());
        lacking.map(|(&id, _)| id).collect()
    }

    /// Reports whether to warn of a problem with compactions: once until one succeeds.
    pub(crate) fn should_warn(&mut self, keyspace: KeyspaceId) -> bool {
        self.change(keyspace, |jobs| !std::mem::replace(&mut jobs.warned, true))
    }

    /// Starts a plan: from now on its inputs are busy.
    pub(crate) fn start(&mut self, keyspace: &KeyspaceInner, plan: &Plan) -> Job {
        self.last_job += 1;
        let number = self.last_job;
        let levels = || plan.inputs.iter().map(|input| input.level);
        let shape = RunningJob {
            input_levels: (levels().min().unwrap_or(0), levels().max().unwrap_or(0)),
            output_level: plan.output_level,
            output: plan.output,
            range: plan.range.clone(),
        };
        let progress = Arc::new(Progress::new(plan, input_bytes(keyspace, plan, None)));
        self.change(keyspace.id, |jobs| {
            jobs.busy.extend(plan.tables());
            jobs.running.push(ActiveJob { number, shape, progress: progress.clone() });
        });
        Job { number, progress }
    }

    /// Ends a job: its inputs are no longer busy.
    pub(crate) fn end(&mut self, keyspace: KeyspaceId, plan: &Plan, job: &Job) {
        self.change(keyspace, |jobs| {
            plan.tables().for_each(|id| _ = jobs.busy.remove(&id));
            jobs.running.retain(|running| running.number != job.number);
        });
        self.rounds.note_change(keyspace);
    }

    /// Records that a merge succeeded.
    pub(crate) fn merged(&mut self, keyspace: KeyspaceId) {
        self.change(keyspace, |jobs| (jobs.backoff, jobs.warned) = (None, false));
    }

    /// Records that a compaction failed, with this many free bytes.
    pub(crate) fn compaction_failed(
        &mut self,
        keyspace: KeyspaceId,
        error: &StorageError,
        free: Option<u64>,
    ) {
        self.change(keyspace, |jobs| {
            let retry = if error.is_out_of_space() { RETRY_WITHOUT_ROOM } else { RETRY_COMPACTION };
            let backoff = Backoff::after(jobs.backoff.take(), retry, error);
            jobs.backoff = Some(Backoff { short: free.filter(|_| error.is_out_of_space()), ..backoff });
        });
    }

    /// Returns the running compactions of a keyspace.
    pub(crate) fn running(&self, keyspace: KeyspaceId) -> &[ActiveJob] {
        self.get(keyspace).map_or(&[], |jobs| &jobs.running)
    }

    /// Returns the tables of a keyspace that are inputs of running compactions. `None`, like an
    /// empty set, means none.
    pub(crate) fn busy(&self, keyspace: KeyspaceId) -> Option<&HashSet<TableId>> {
        self.get(keyspace).map(|jobs| &jobs.busy)
    }

    /// Reports whether nothing is running, automatically or by hand.
    pub(crate) fn is_idle(&self) -> bool {
        !self.jobs.values().any(|jobs| jobs.flushing || jobs.manual || !jobs.running.is_empty())
    }

    /// Returns the bytes that running compactions may still write.
    pub(crate) fn promised(&self) -> u64 {
        self.jobs.values().flat_map(|jobs| &jobs.running).map(|job| job.progress.may_write()).sum()
    }

    /// Cancels all running compactions and returns their numbers.
    pub(crate) fn cancel(&self) -> Vec<u64> {
        let cancel = |job: &ActiveJob| {
            job.progress.cancel();
            job.number
        };
        self.jobs.values().flat_map(|jobs| &jobs.running).map(cancel).collect()
    }

    /// Reports whether any of these compactions is running.
    pub(crate) fn runs_any(&self, numbers: &[u64]) -> bool {
        self.jobs.values().flat_map(|jobs| &jobs.running).any(|job| numbers.contains(&job.number))
    }

    /// Begins a caller's compaction of the keyspace. Returns `false` while another caller's runs.
    pub(crate) fn start_manual(&mut self, keyspace: KeyspaceId) -> bool {
        self.change(keyspace, |jobs| !std::mem::replace(&mut jobs.manual, true))
    }

    pub(crate) fn end_manual(&mut self, keyspace: KeyspaceId) {
        self.change(keyspace, |jobs| jobs.manual = false);
        self.rounds.note_change(keyspace);
    }

    /// Reports whether a caller compacts any keyspace by hand.
    pub(crate) fn has_manual(&self) -> bool {
        self.jobs.values().any(|jobs| jobs.manual)
    }

    /// Records tables that were dropped unread.
    pub(crate) fn note_dropped(&mut self, keyspace: KeyspaceId, tables: impl Iterator<Item = TableId>) {
        self.change(keyspace, |jobs| jobs.dropped.extend(tables));
    }

    /// Returns the tables that were dropped unread and are not known to be gone.
    pub(crate) fn dropped(&self, keyspace: KeyspaceId) -> Vec<TableId> {
        self.get(keyspace).map_or_else(Vec::new, |jobs| jobs.dropped.clone())
    }

    /// Records that dropped tables are gone.
    pub(crate) fn forget_dropped(&mut self, keyspace: KeyspaceId, gone: &HashSet<TableId>) {
        self.change(keyspace, |jobs| jobs.dropped.retain(|id| !gone.contains(id)));
    }

    /// Returns the keyspaces of which anything is remembered.
    pub(crate) fn known(&self) -> impl Iterator<Item = KeyspaceId> + '_ {
        self.jobs.keys().copied()
    }

    /// Returns what fails and is being retried in a keyspace: the kind of work, and why.
    pub(crate) fn troubles(&self, keyspace: KeyspaceId) -> Vec<(&'static str, &str)> {
        let Some(jobs) = self.get(keyspace) else { return Vec::new() };
        let flushes = jobs.flush_backoff.as_ref().map(|backoff| ("flushes", &*backoff.cause));
        let compactions = jobs.backoff.as_ref().map(|backoff| ("compactions", &*backoff.cause));
        let no_room = jobs.no_room.as_deref().map(|cause| ("compactions", cause));
        [flushes, compactions, no_room].into_iter().flatten().collect()
    }
}

fn suspended(cause: Option<&str>) -> Result<(), WriteError> {
    cause.map_or(Ok(()), |cause| Err(WriteError::Suspended { cause: cause.to_owned() }))
}

/// Returns the bytes of the plan's inputs, including the values in blob files that a merge would
/// move with `room` bytes free.
pub(crate) fn input_bytes(keyspace: &KeyspaceInner, plan: &Plan, room: Option<u64>) -> u64 {
    let inputs: HashSet<TableId> = plan.tables().collect();
    let view = keyspace.view.load();
    let tables = view.version.tables.iter().filter(|table| inputs.contains(&table.meta.id));
    let tables: Vec<Arc<OpenTable>> = tables.cloned().collect();
    let shaping = keyspace.shaping.load();
    let blobs = BlobInputs::of(&tables, &view.version, &shaping.options, plan.max_table_bytes, room);
    tables.iter().map(|table| table.meta.file_bytes).sum::<u64>() + blobs.moved_bytes(&tables)
}

#[cfg(test)]
mod tests;
