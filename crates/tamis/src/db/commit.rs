//! Group commit: one writer leads, others follow.
//!
//! A writer that finds no leader takes the log and commits its own batch together with all those queued in the meantime, as
//! one log record, with one sync if any of them asks for it. The others sleep until their result is available, or until they
//! become leader themselves.
//!
//! The order within a commit is the engine's guarantee: room is made (which may stall); the record is appended; it is synced if
//! requested (earlier logs first); the operations are inserted into the memtables; the new sequence number becomes visible; the
//! writers are notified. If appending or syncing fails, no writer is told of success, nothing becomes visible, and writes are
//! suspended until the log is replaced ([`health`](super::health)), since the record may or may not be on disk.

use crate::sync::{self, Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;
use tamis_filter::Digest;

use crate::batch::{BatchOp, WriteBatch};
use crate::db::inner::{DbInner, KeyspaceInner};
use crate::db::log::Current;
use crate::error::WriteError;
use crate::ids::KeyspaceId;
use crate::key::{Kind, SeqNo};
use crate::memtable::Memtable;
use crate::read::MemtableSlot;

/// Batches beyond this many bytes wait for the next group, so that one group's latency stays bounded.
const MAX_GROUP_BYTES: usize = 1 << 20;

pub(crate) type Directory = crate::collections::HashMap<KeyspaceId, Arc<KeyspaceInner>>;

/// Writers waiting for the leader.
#[derive(Debug, Default)]
pub(crate) struct CommitQueue {
    inner: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    leading: bool,
    pending: VecDeque<Pending>,
}

#[derive(Debug)]
struct Pending {
    batch: WriteBatch,
    sync: bool,
    waiter: Arc<Waiter>,
}

/// The place where one writer waits for its turn. The turn, and whether the writer sleeps, are behind the lock; `given` shows
/// without the lock that there is a turn, for a writer that has not gone to sleep yet. It publishes nothing (`Relaxed`): the
/// turn is taken under the lock.
#[derive(Debug, Default)]
struct Waiter {
    given: AtomicBool,
    turn: Mutex<(Option<Turn>, bool)>,
    changed: Condvar,
}

#[derive(Debug)]
enum Turn {
    Done(Result<(), WriteError>),
    Lead(WriteBatch, bool),
}

impl Waiter {
    fn give(&self, turn: Turn) {
        let mut state = self.turn.lock();
        state.0 = Some(turn);
        self.given.store(true, Ordering::Relaxed);
        // Waking a thread costs a system call whether or not it sleeps.
        if state.1 {
            self.changed.notify_one();
        }
    }

    /// An unsynced commit takes a microsecond or two, while going to sleep and being woken take several: so spin for about as
    /// long first.
    fn wait(&self) -> Turn {
        sync::spin_until(|| self.given.load(Ordering::Relaxed));
        let mut state = self.turn.lock();
        loop {
            match state.0.take() {
                Some(turn) => return turn,
                None => {
                    state.1 = true;
                    state = self.changed.wait(state);
                    state.1 = false;
                }
            }
        }
    }
}

impl DbInner {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.inner.lock()
    }

    /// Commits a batch; an empty batch with `sync` makes everything before it durable.
    pub(crate) fn write(&self, batch: WriteBatch, sync: bool) -> Result<(), WriteError> {
        self.check_ready()?;
        batch.check()?;
        self.background.reserve.admit(&batch)?;
        self.check_operators(&batch)?;
        if batch.is_empty() && !sync {
            return Ok(());
        }
        let waiter = {
            let mut queue = self.queue();
            if queue.leading {
                let waiter = Arc::<Waiter>::default();
                queue.pending.push_back(Pending { batch, sync, waiter: waiter.clone() });
                waiter
            } else {
                queue.leading = true;
                drop(queue);
                return self.lead(batch, sync);
            }
        };
        match waiter.wait() {
            Turn::Done(result) => result,
            Turn::Lead(batch, sync) => self.lead(batch, sync),
        }
    }

    /// Checks that merge operands only go to keyspaces with a merge operator.
    fn check_operators(&self, batch: &WriteBatch) -> Result<(), WriteError> {
        let directory = (!batch.merged().is_empty()).then(|| self.directory.load());
        let Some(directory) = directory else { return Ok(()) };
        let mut merged = batch.merged().iter().filter_map(|id| directory.get(id));
        match merged.find(|keyspace| keyspace.operators.merge.is_none()) {
            Some(keyspace) => Err(WriteError::NoMergeOperator { name: keyspace.name.clone() }),
            None => Ok(()),
        }
    }

    fn lead(&self, batch: WriteBatch, sync: bool) -> Result<(), WriteError> {
        let mut log = self.log.lock();
        let mut group: SmallVec<[Pending; 4]> = SmallVec::new();
        {
            let mut queue = self.queue();
            let mut bytes = batch.byte_len();
            while let Some(next) = queue.pending.front() {
                bytes += next.batch.byte_len();
                if bytes > MAX_GROUP_BYTES {
                    break;
                }
                group.extend(queue.pending.pop_front());
            }
        }
        let sync = sync || group.iter().any(|p| p.sync);
        let batches: SmallVec<[&WriteBatch; 8]> =
            std::iter::once(&batch).chain(group.iter().map(|p| &p.batch)).collect();
        let result = self.commit(&mut log, &batches, sync);
        drop(log);
        for pending in &group {
            pending.waiter.give(Turn::Done(result.clone()));
        }
        let mut queue = self.queue();
        match queue.pending.pop_front() {
            Some(next) => next.waiter.give(Turn::Lead(next.batch, next.sync)),
            None => queue.leading = false,
        }
        result
    }

    fn commit(&self, log: &mut Current, batches: &[&WriteBatch], sync: bool) -> Result<(), WriteError> {
        self.health.check_writable()?;
        let bytes: usize = batches.iter().map(|b| b.byte_len()).sum();
        let count: u64 = batches.iter().map(|b| b.len() as u64).sum();
        if count > 0 {
            self.make_room(log, batches, bytes)?;
            self.log.append(log, count, batches.iter().map(|batch| batch.bytes()))?;
        }
        if sync {
            self.log.sync(log)?;
        }
        if count > 0 {
            self.apply(log, batches, bytes);
            let last = log.assign(count);
            sync::point();
            self.visible_seq.store(last, Ordering::Release);
            self.note_time();
            self.write_counters.writes.add(count);
        }
        Ok(())
    }

    fn make_room(&self, log: &mut Current, batches: &[&WriteBatch], bytes: usize) -> Result<(), WriteError> {
        let mut written: SmallVec<[KeyspaceId; 4]> = SmallVec::new();
        for &id in batches.iter().flat_map(|batch| batch.keyspaces()) {
            if !written.contains(&id) {
                written.push(id);
            }
        }
        let directory = self.directory.load_full();
        let seal = |log: &mut Current, keyspaces: &[Arc<KeyspaceInner>]| self.seal(log, keyspaces);
        self.throttle.make_room(&self.log, log, &directory, &written, bytes, &seal)
    }

    /// Inserts the operations into their keyspaces' memtables. Cannot fail: the batches were checked.
    fn apply(&self, log: &Current, batches: &[&WriteBatch], bytes: usize) {
        let directory = self.directory.load();
        let mut current: Option<(KeyspaceId, Option<Arc<MemtableSlot>>)> = None;
        let mut seq = log.last_seq();
        for op in batches.iter().flat_map(|b| b.ops()) {
            let op = op.expect("a batch decodes what it encoded");
            seq += 1;
            let id = op.keyspace();
            if current.as_ref().map(|c| c.0) != Some(id) {
                let slot = directory.get(&id).map(|ks| ks.view.load().memtables.active.clone());
                if let Some(slot) = slot.as_ref().filter(|s| s.memtable.is_empty()) {
                    slot.first_log.store(log.id(), Ordering::Relaxed);
                }
                current = Some((id, slot));
            }
            // Writes to a keyspace dropped since the batch was built are discarded.
            if let Some((_, Some(slot))) = &current {
                insert(&slot.memtable, &op, seq);
            }
        }
        self.write_counters.user_bytes.add(bytes as u64);
    }
}

pub(crate) fn new_memtable(options: &crate::options::KeyspaceOptions) -> Arc<Memtable> {
    // With 32-bit addresses the largest budget does not fit; no memtable can be that full there.
    let budget = usize::try_from(options.memtable_bytes).unwrap_or(usize::MAX);
    Arc::new(Memtable::new(budget, options.memtable_filter))
}

/// Inserts one operation into a memtable, hashing its key once.
pub(crate) fn insert(memtable: &Memtable, op: &BatchOp<'_>, seq: SeqNo) {
    match op {
        BatchOp::Put { key, value, .. } => memtable.insert(key, Digest::of(key), seq, Kind::Put, value),
        BatchOp::Merge { key, operand, .. } => {
            memtable.insert(key, Digest::of(key), seq, Kind::Merge, operand);
        }
        BatchOp::Delete { key, .. } => memtable.insert(key, Digest::of(key), seq, Kind::Delete, &[]),
        BatchOp::DeleteRange { start, end, .. } => memtable.insert_range_tombstone(start, *end, seq),
        BatchOp::Ingestion { .. } => {}
    }
}
