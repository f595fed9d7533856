//! Commits: how a batch gets through the log into the memtables and becomes visible to readers.
//!
//! Most batches commit alone: they need no sync, have no condition, and delete no ranges. Their
//! writer holds the [log](crate::log)'s lock while it makes room (where it may wait for a flush)
//! and appends its record. It then inserts its operations in parallel with other writers, and makes
//! them visible in its turn.
//!
//! Others commit in groups. A writer that finds no leader takes the log and commits its own batch
//! together with all those queued in the meantime: as one log record, with one sync if any of them
//! asks for it. The others sleep until their result is available, or until they become leader
//! themselves; while one group is synced, the next one forms. A transaction's batch has a
//! [`Condition`]: the leader leaves the batch out of the group if the condition does not hold.
//!
//! # Invariants
//!
//! The order of steps within a commit is what the engine's guarantees rest on: conditions are
//! judged; room is made (which may stall); the record is appended; it is synced if requested
//! (earlier logs first); [gaps](crate::read::Gaps) learn of the keys; the operations are inserted
//! into the memtables; the new sequence number becomes visible; the writers are notified. No step
//! computes a digest: each batch brings the digests of its keys.
//!
//! Sequence numbers become visible in log order, without gaps: a reader that sees one sees every
//! write up to it.
//!
//! # Threads and locks
//!
//! Any thread may commit, with no lock held. Between its append and its turn, a batch that commits
//! alone is *in flight*. To see every logged write in the memtables, hold the log lock by
//! [`lock_log`](Session::lock_log), which waits for the batches in flight. Leaders do so, and hold
//! it until their group is visible; so does sealing. The queue, each waiting writer and the turns
//! have leaf locks.
//!
//! The [turns](crate::session::committer::turns) of batches in flight form a ring. A thread that
//! has finished its batch publishes all batches that are finished in order. A thread that loses its
//! processor between its append and its turn holds up others; but once it runs again, it makes them
//! visible without waiting for any of them to run. A number is published by a `SeqCst` store and
//! awaited by `SeqCst` loads, and so is the count of threads that sleep until then: either the
//! publisher sees the sleeper, or the sleeper sees the number.
//!
//! # Choices
//!
//! * **The leader inserts for its followers.** RocksDB wakes them to insert in parallel, and wakes
//!   them again when all are done. Here the batches that need no group insert in parallel anyway.
//!   Whether waking followers would be faster for synced groups has not been measured.
//!
//! # Failures and poison
//!
//! If appending or syncing fails, no writer is told of success and nothing becomes visible. Writes
//! are suspended until the log is replaced ([`health`](crate::jobs::health)), since the record may
//! or may not be on disk. If the leader panics, its followers get an error and the next writer
//! leads: it finds the log's lock poisoned and stops writes for good. If a writer panics in flight,
//! nothing after it ever becomes visible, the batches in flight get an error, and writes stop for
//! good.

mod timed;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::Guard;
use smallvec::SmallVec;
use tamis_base::ids::KeyspaceId;
use tamis_base::key::SeqNo;
use tamis_files::wal::ops::BatchOp;
use tamis_filter::Digest;
use tamis_policy::compaction::policy::Pressure;

use crate::batch::WriteBatch;
use crate::catalogue::Directory;
use crate::catalogue::filled::Filled;
use crate::catalogue::keyspace::KeyspaceInner;
use crate::conflicts::condition::Condition;
use crate::conflicts::footprint::KeyspaceFootprint;
use crate::error::{StorageError, TransactionError, WriteError};
use crate::gate::reserve::frees_room;
use crate::log::Current;
use crate::memtable::{InLog, MemWriter, Memtable};
use crate::observe::latency;
use crate::read::{View, WORTH};
use crate::session::Session;
use crate::session::committer::turns::Ticket;
use crate::session::committer::{DAMAGED, Members, PANICKED, panicked};
use crate::sync;

impl Session {
    /// Commits a batch; an empty batch with `sync` makes everything before it durable.
    pub(crate) fn write(&self, batch: WriteBatch, sync: bool) -> Result<(), WriteError> {
        self.commit(batch, sync, None)
    }

    /// Commits a batch if its `condition` holds, or unconditionally without one. On success, the
    /// condition has its verdict.
    #[inline]
    pub(crate) fn commit(
        &self,
        batch: WriteBatch,
        sync: bool,
        condition: Option<&Arc<Condition>>,
    ) -> Result<(), WriteError> {
        let is_timed = sync || condition.is_some() || latency::is_due() || self.observed.observer.times_all();
        let timed = is_timed.then(|| self.begin_timed(&batch, batch.byte_len(), sync, condition.is_some()));
        let result = self.commit_untimed(batch, sync, condition);
        // The time of a refused commit is not worth recording.
        if let Some(timed) = timed.filter(|_| result.is_ok()) {
            self.end_timed(timed);
        }
        result
    }

    /// Commits, without a sync, a put that is the only operation of `batch` and has no value there:
    /// it is `value`, which is copied into the log and, if it does not stay there, the memtable.
    pub(crate) fn put_large(&self, batch: &WriteBatch, value: &[u8]) -> Result<(), WriteError> {
        let is_timed = latency::is_due() || self.observed.observer.times_all();
        let bytes = batch.byte_len() + value.len();
        let timed = is_timed.then(|| self.begin_timed(batch, bytes, false, false));
        let result = self.admit(batch).and_then(|()| self.commit_alone(batch, Some(value)));
        if let Some(timed) = timed.filter(|_| result.is_ok()) {
            self.end_timed(timed);
        }
        result
    }

    /// Checks that a batch is as it was built, if writes are protected.
    #[inline]
    fn check_intact(&self, batch: &WriteBatch) -> Result<(), WriteError> {
        if self.options.protect_writes && !batch.is_intact() {
            let what = "a batch changed in memory before it was committed";
            return Err(StorageError::corrupt(&self.dir, None, what).into());
        }
        Ok(())
    }

    /// Checks the same after the batch was logged and inserted. If it changed, the log or a memtable
    /// may have a wrong record: writes stop for good, and readers never see the batch.
    #[inline]
    fn check_inserted(&self, batch: &WriteBatch) -> Result<(), WriteError> {
        if self.options.protect_writes && !batch.is_intact() {
            self.gate.stop(&DAMAGED);
            return Err(WriteError::Poisoned { cause: DAMAGED.to_owned() });
        }
        Ok(())
    }

    /// Checks that a batch may be written. Comes before any lock.
    #[inline]
    fn admit(&self, batch: &WriteBatch) -> Result<(), WriteError> {
        self.check_ready()?;
        batch.check()?;
        self.space.reserve.admit(batch)?;
        self.check_operators(batch)
    }

    /// One call, so that the batch is moved only once.
    #[inline(always)]
    fn commit_untimed(
        &self,
        mut batch: WriteBatch,
        sync: bool,
        condition: Option<&Arc<Condition>>,
    ) -> Result<(), WriteError> {
        if self.options.protect_writes {
            batch.protect();
        }
        self.admit(&batch)?;
        if batch.is_empty() && !sync {
            return Ok(());
        }
        if !sync && condition.is_none() && batch.digests().len() == batch.len() {
            return self.commit_alone(&batch, None);
        }
        let commit = |log: &mut Current, members: Members<'_>, sync| self.commit_group(log, members, sync);
        if condition.is_none() && self.is_stopped(&batch) && frees_room(&batch) {
            // Not in a group with writes that wait for the room that this one frees.
            let members = Members { batches: std::iter::once(&batch).collect(), conditions: SmallVec::new() };
            return commit(&mut self.lock_log(), members, sync);
        }
        self.committer.submit(batch, sync, condition.cloned(), || self.lock_log(), commit)
    }

    /// Reports whether the shape of a tree that the batch writes to forbids writes.
    fn is_stopped(&self, batch: &WriteBatch) -> bool {
        let directory = self.keyspaces.directory.load();
        let mut written = batch.keyspaces().iter().filter_map(|id| directory.get(id));
        written.any(|keyspace| keyspace.pressure.get() == Pressure::Stop)
    }

    /// Logs a batch of single keys, inserts it in parallel with other writers, and makes it visible
    /// once all earlier batches are. With a `value`, the batch is one put that lacks it.
    fn commit_alone(&self, batch: &WriteBatch, value: Option<&[u8]>) -> Result<(), WriteError> {
        // The length of a value takes up to five bytes, of which the batch has one.
        let (bytes, count) =
            (batch.byte_len() + value.map_or(0, |value| value.len() + 4), batch.len() as u64);
        let directory = self.keyspaces.directory.load();
        let mut in_flight = InFlight { db: self, ticket: None };
        let (last, logged);
        let targets = {
            let mut log = self.log.lock();
            self.gate.check_writable()?;
            self.make_room(&mut log, &[batch], bytes)?;
            if self.committer.turns.are_taken() && !self.wait_for_flights(&log) {
                return Err(panicked());
            }
            let targets = Targets::of(&directory, batch.keyspaces(), &log, &self.keyspaces.filled);
            // The insertion needs it after the append.
            targets.prefetch(batch.digests()[0]);
            let stays = match value {
                None => targets.leave_in_log(batch),
                Some(value) => targets.leaves_in_log(value),
            };
            let readable = stays.then(|| self.log.readable(&mut log)).flatten();
            self.check_intact(batch)?;
            let offset = match value {
                None => self.log.append(&mut log, count, std::iter::once(batch.bytes()))?,
                Some(value) => {
                    let (head, len) = batch.around_value(value);
                    let first = self.log.append(&mut log, count, [head, &len, value].into_iter())?;
                    first + (head.len() + len.len()) as u64
                }
            };
            logged = readable.map(|log| (log, offset));
            in_flight.ticket = Some(self.committer.turns.take());
            last = log.assign(count);
            self.count(count, bytes);
            targets
        };
        sync::point();
        let in_log = logged.as_ref().map(|(log, offset)| InLog { log, offset: *offset });
        targets.insert(batch, value, in_log, last - count);
        self.check_inserted(batch)?;
        self.note_deletes(&targets);
        in_flight.land(last)?;
        self.expiry.note_visible();
        Ok(())
    }

    /// Counts writes. The caller holds the log's lock.
    fn count(&self, writes: u64, bytes: usize) {
        self.observed.write_counters.writes.add_locked(writes);
        self.observed.write_counters.user_bytes.add_locked(bytes as u64);
    }

    /// Checks that merge operands only go to keyspaces with a merge operator, and that nothing is
    /// written to keyspaces that lack an operator.
    pub(crate) fn check_operators(&self, batch: &WriteBatch) -> Result<(), WriteError> {
        if self.keyspaces.lacks_operators {
            let directory = self.keyspaces.directory.load();
            let mut keyspaces = batch.keyspaces().iter().filter_map(|id| directory.get(id));
            keyspaces.try_for_each(|keyspace| keyspace.check_operators())?;
        }
        let directory = (!batch.merged().is_empty()).then(|| self.keyspaces.directory.load());
        let Some(directory) = directory else { return Ok(()) };
        let mut merged = batch.merged().iter().filter_map(|id| directory.get(id));
        match merged.find(|keyspace| keyspace.operators.merge.is_none()) {
            Some(keyspace) => Err(WriteError::NoMergeOperator { name: keyspace.name().to_owned() }),
            None => Ok(()),
        }
    }

    /// Logs the batches whose conditions hold as one record, inserts them into memtables and makes
    /// them visible.
    fn commit_group(
        &self,
        log: &mut Current,
        mut members: Members<'_>,
        sync: bool,
    ) -> Result<(), WriteError> {
        self.gate.check_writable()?;
        if !members.conditions.is_empty() {
            self.leave_out_refused(log, &mut members);
            if members.batches.is_empty() {
                return Ok(());
            }
        }
        let batches = &members.batches[..];
        let bytes: usize = batches.iter().map(|b| b.byte_len()).sum();
        let count: u64 = batches.iter().map(|b| b.len() as u64).sum();
        if count == 0 {
            // Who writes nothing asks for a sync.
            return Ok(self.log.sync(log)?);
        }
        self.make_room(log, batches, bytes)?;
        let directory = self.keyspaces.directory.load();
        let of =
            |batch: &&WriteBatch| Targets::of(&directory, batch.keyspaces(), log, &self.keyspaces.filled);
        let targets: SmallVec<[Targets; 4]> = batches.iter().map(of).collect();
        let stays = batches.iter().zip(&targets).any(|(batch, targets)| targets.leave_in_log(batch));
        let readable = stays.then(|| self.log.readable(log)).flatten();
        batches.iter().try_for_each(|batch| self.check_intact(batch))?;
        let offset = self.log.append(log, count, batches.iter().map(|batch| batch.bytes()))?;
        if sync {
            self.log.sync(log)?;
        }
        let mut in_log = readable.as_ref().map(|log| InLog { log, offset });
        let mut seq = log.last_seq();
        for (batch, targets) in batches.iter().zip(&targets) {
            // Cannot fail: the batches were checked.
            targets.insert(batch, None, in_log, seq);
            self.check_inserted(batch)?;
            self.note_deletes(targets);
            seq += batch.len() as u64;
            if let Some(place) = &mut in_log {
                place.offset += batch.byte_len() as u64;
            }
        }
        let last = log.assign(count);
        sync::point();
        self.committer.publish(last);
        self.expiry.note_visible();
        self.count(count, bytes);
        Ok(())
    }

    /// Judges the conditions of a group in order, and leaves out the batches whose condition does
    /// not hold.
    #[cold]
    fn leave_out_refused(&self, log: &Current, members: &mut Members<'_>) {
        let all = std::mem::take(&mut members.batches);
        let (before, mut last) = (log.last_seq(), log.last_seq());
        for (batch, condition) in all.into_iter().zip(&members.conditions) {
            let seq = last + batch.len() as u64;
            if condition.is_none_or(|condition| self.judge(condition, before, &members.batches, seq)) {
                members.batches.push(batch);
                last = seq;
            }
        }
    }

    fn make_room(&self, log: &mut Current, batches: &[&WriteBatch], bytes: usize) -> Result<(), WriteError> {
        let mut written: SmallVec<[KeyspaceId; 4]> = SmallVec::new();
        for &id in batches.iter().flat_map(|batch| batch.keyspaces()) {
            if !written.contains(&id) {
                written.push(id);
            }
        }
        let directory = self.keyspaces.directory.load();
        let frees = || batches.iter().all(|batch| frees_room(batch));
        let growth = self.log.growth(log, bytes);
        if growth > 0 {
            self.look_ahead(bytes, growth);
            self.space.reserve.admit_growth(batches)?;
        }
        let seal = |log: &mut Current, keyspaces: &[Arc<KeyspaceInner>]| {
            if !self.wait_for_flights(log) {
                return Err(StorageError::io("commit to", &self.dir, std::io::Error::other(PANICKED)));
            }
            self.seal(log, keyspaces)
        };
        let written = written.iter().filter_map(|id| directory.get(id));
        self.throttle.make_room(&self.log, log, written, bytes, &frees, &seal)
    }

    /// Notes when deletes were written, if tombstones have a maximum age.
    #[inline]
    fn note_deletes(&self, targets: &Targets) {
        if self.expiry.ages_deletes() {
            let now = self.now();
            let slots = targets.0.iter().filter_map(|(_, view)| Some(&view.as_ref()?.memtables.active));
            slots.for_each(|slot| slot.note_deletes(now));
        }
    }
}

/// A batch between its append and its turn to become visible.
struct InFlight<'d> {
    db: &'d Session,
    /// `None` before the append, and after landing.
    ticket: Option<Ticket>,
}

impl InFlight<'_> {
    /// Makes the batch visible, after all earlier ones.
    fn land(mut self, last: SeqNo) -> Result<(), WriteError> {
        let landed = self.ticket.take().is_some_and(|ticket| self.db.committer.land(ticket, last));
        landed.then_some(()).ok_or_else(panicked)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        // Only in a panic after the append.
        if self.ticket.is_some() {
            // First, so that no write follows those that waited in vain. Nobody waits for them with
            // the state locked.
            self.db.monitor.poison(&PANICKED);
            self.db.committer.give_up();
        }
    }
}

/// The memtables of a batch's keyspaces. Valid until these are sealed, and sealing waits for
/// batches in flight.
struct Targets(SmallVec<[Target; 2]>);

/// A keyspace's view, unless the keyspace was dropped.
type Target = (KeyspaceId, Option<Guard<Arc<View>>>);

impl Targets {
    /// Looks them up. The caller holds the log's lock.
    fn of(directory: &Directory, keyspaces: &[KeyspaceId], log: &Current, filled: &Filled) -> Targets {
        let target = |id: &KeyspaceId| {
            let Some(keyspace) = directory.get(id) else { return (*id, None) };
            let view = keyspace.view.load();
            let active = &view.memtables.active;
            if active.memtable.is_empty() {
                active.first_log.store(log.id(), Ordering::Relaxed);
                filled.add(keyspace, log.id());
            }
            (*id, Some(view))
        };
        Targets(keyspaces.iter().map(target).collect())
    }

    /// Prefetches what the insertion of a key touches first.
    #[inline]
    fn prefetch(&self, digest: Digest) {
        if let [(_, Some(view))] = &self.0[..] {
            view.memtables.active.memtable.prefetch(digest);
        }
    }

    /// Reports whether a value of the batch is to stay in the log.
    #[inline]
    fn leave_in_log(&self, batch: &WriteBatch) -> bool {
        // Most batches are smaller than any such value.
        self.leaves_in_log(batch.bytes())
            && batch.ops().flatten().any(|op| match op {
                BatchOp::Put { keyspace, value, .. } => {
                    self.memtable(keyspace).is_some_and(|memtable| memtable.leaves_in_log(value.len()))
                }
                _ => false,
            })
    }

    /// Reports whether a value like this is to stay in the log, in any of the keyspaces.
    #[inline]
    fn leaves_in_log(&self, value: &[u8]) -> bool {
        let mut views = self.0.iter().filter_map(|(_, view)| view.as_ref());
        views.any(|view| view.memtables.active.memtable.leaves_in_log(value.len()))
    }

    fn memtable(&self, keyspace: KeyspaceId) -> Option<&Memtable> {
        let (_, view) = self.0.iter().find(|(id, _)| *id == keyspace)?;
        Some(&view.as_ref()?.memtables.active.memtable)
    }

    /// Inserts the operations of a batch; their numbers start after `seq`. With a `value`, the batch
    /// is one put that lacks it. `in_log` is the place of the batch, or of that value, if large ones
    /// are to stay there.
    fn insert(&self, batch: &WriteBatch, value: Option<&[u8]>, in_log: Option<InLog<'_>>, mut seq: SeqNo) {
        let deletes_ranges = batch.digests().len() < batch.len();
        for (id, view) in self.0.iter().filter_map(|(id, view)| Some((*id, view.as_ref()?))) {
            if deletes_ranges {
                tell_gaps(view, batch, seq, id);
            } else if !view.gaps.is_empty() {
                view.gaps.written(batch.ops().filter_map(|op| live_key(&op.ok()?, id)));
            }
        }
        let mut digests = batch.digests().iter();
        let mut current: Option<(KeyspaceId, Option<(&View, MemWriter<'_>)>)> = None;
        for op in batch.ops() {
            let mut op = op.expect("a batch decodes what it encoded");
            if let (Some(all), BatchOp::Put { value, .. }) = (value, &mut op) {
                *value = all;
            }
            seq += 1;
            let id = op.keyspace();
            if current.as_ref().map(|c| c.0) != Some(id) {
                let view = self.0.iter().find(|target| target.0 == id).and_then(|target| target.1.as_ref());
                current = Some((id, view.map(|view| (&***view, view.memtables.active.memtable.writer()))));
            }
            let digest = op.key().map(|_| *digests.next().expect("a batch has a digest of each key"));
            // Writes to a keyspace dropped since the batch was built are discarded.
            if let Some((_, Some((view, writer)))) = &mut current {
                let place = in_log.map(|place| match (op, value) {
                    (BatchOp::Put { value, .. }, None) => {
                        let within = value.as_ptr().addr() - batch.bytes().as_ptr().addr();
                        InLog { offset: place.offset + within as u64, ..place }
                    }
                    _ => place,
                });
                writer.insert_op(&op, digest, seq, place);
                if let BatchOp::Delete { key, .. } = op {
                    view.gaps.deletions().note(key);
                }
            }
        }
    }
}

/// Tells the gaps of a keyspace about a batch with range deletes, in the order of its operations.
/// Their numbers start after `seq`. Only leaders commit such batches, so no write has a larger
/// number.
#[cold]
fn tell_gaps(view: &View, batch: &WriteBatch, mut seq: SeqNo, id: KeyspaceId) {
    // In a small memtable a reader gets past the deleted entries in no time, and finds the rest
    // deleted table by table.
    let is_worth_it = view.memtables.active.memtable.entries() as u64 >= WORTH;
    for op in batch.ops().filter_map(Result::ok) {
        seq += 1;
        match op {
            BatchOp::DeleteRange { keyspace, start, end } if keyspace == id && is_worth_it => {
                view.gaps.deleted(start, end, seq);
            }
            op => view.gaps.written(live_key(&op, id).into_iter()),
        }
    }
}

/// Returns the key to which an operation on this keyspace gives a value.
fn live_key<'b>(op: &BatchOp<'b>, id: KeyspaceId) -> Option<&'b [u8]> {
    match *op {
        BatchOp::Put { keyspace, key, .. } | BatchOp::Merge { keyspace, key, .. } if keyspace == id => {
            Some(key)
        }
        _ => None,
    }
}

impl Session {
    /// Commits a batch if its condition holds. Returns the sequence number of its last write.
    pub(crate) fn write_if(
        &self,
        batch: WriteBatch,
        sync: bool,
        mut condition: Condition,
    ) -> Result<SeqNo, TransactionError> {
        debug_assert!(!batch.is_empty(), "a batch without writes is not judged");
        if condition.parts.iter().any(KeyspaceFootprint::has_ranges) {
            self.judge_ahead(&mut condition)
                .inspect_err(|_| self.observed.write_counters.conflicts.add(1))?;
        }
        let condition = Arc::new(condition);
        self.commit(batch, sync, Some(&condition))?;
        condition.verdict().map_err(TransactionError::from)
    }
}

#[cfg(test)]
mod tests;
