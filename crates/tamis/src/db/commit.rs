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
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use tamis_filter::Digest;

use crate::batch::{BatchOp, GroupHeader, WriteBatch};
use crate::compaction::policy::Pressure;
use crate::db::inner::{ClosedLog, DbInner, KeyspaceInner, State};
use crate::db::pressure::memtable_rate;
use crate::error::{StorageError, WriteError};
use crate::ids::{KeyspaceId, LogId};
use crate::io::Usage;
use crate::key::{Kind, SeqNo};
use crate::memtable::Memtable;
use crate::read::MemtableSlot;
use crate::tree::files::{first_log_path, log_path};
use crate::wal::{LogHeader, LogKind, LogWriter};

/// Batches beyond this many bytes wait for the next group, so that one group's latency stays bounded.
const MAX_GROUP_BYTES: usize = 1 << 20;

/// The maximum rate of slowed-down writes while compaction lags behind, in bytes per second.
const SLOWED_BYTES_PER_SECOND: f64 = 32e6;

pub(crate) type Directory = crate::collections::HashMap<KeyspaceId, Arc<KeyspaceInner>>;

/// The write-ahead log and state that only its owner may touch.
#[derive(Debug)]
pub(crate) struct LogState {
    /// `None` in a database that is open read-only.
    pub(crate) writer: Option<LogWriter>,
    pub(crate) id: LogId,
    /// The next log, if it was created but its name could not be synced.
    prepared: Option<(LogId, LogWriter)>,
    /// The last sequence number assigned.
    pub(crate) last_seq: SeqNo,
    /// Whether anything was appended since the last sync.
    pub(crate) dirty: bool,
    /// While writes are slowed down: when the writes so far should have completed.
    slowed_until: Option<Instant>,
    /// Bytes written since the budgets were last checked.
    unchecked_bytes: u64,
    header: Vec<u8>,
}

impl LogState {
    pub(crate) fn new(writer: Option<LogWriter>, id: LogId, last_seq: SeqNo) -> Self {
        LogState {
            writer,
            id,
            prepared: None,
            last_seq,
            dirty: false,
            slowed_until: None,
            unchecked_bytes: 0,
            header: Vec::new(),
        }
    }
}

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

    pub(crate) fn lock_log(&self) -> MutexGuard<'_, LogState> {
        let log = self.log.lock();
        if self.log.was_poisoned() {
            self.poison(&"a panic while the log was being written");
        }
        log
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
        let mut log = self.lock_log();
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

    fn commit(&self, log: &mut LogState, batches: &[&WriteBatch], sync: bool) -> Result<(), WriteError> {
        self.check_writable()?;
        let bytes: usize = batches.iter().map(|b| b.byte_len()).sum();
        let count: u64 = batches.iter().map(|b| b.len() as u64).sum();
        if count > 0 {
            self.make_room(log, batches, bytes)?;
            self.append(log, batches, count)?;
        }
        if sync && (log.dirty || count == 0) {
            self.sync_log(log)?;
        }
        if count > 0 {
            self.apply(log, batches, bytes);
            log.last_seq += count;
            sync::point();
            self.visible_seq.store(log.last_seq, Ordering::Release);
            self.note_time();
            self.write_counters.writes.add(count);
        }
        Ok(())
    }

    /// Appends a record. If that fails, writes are suspended.
    fn append(&self, log: &mut LogState, batches: &[&WriteBatch], count: u64) -> Result<(), StorageError> {
        let older_logs_synced = self.closed_logs.lock().is_empty();
        let mut header = std::mem::take(&mut log.header);
        header.clear();
        GroupHeader { first_seq: log.last_seq + 1, count, older_logs_synced }.encode(&mut header);
        let parts: SmallVec<[&[u8]; 8]> =
            std::iter::once(&header[..]).chain(batches.iter().map(|b| b.bytes())).collect();
        let writer = log.writer.as_mut().expect("a writable database has a log");
        self.reserve(writer, parts.iter().map(|part| part.len() as u64).sum());
        let before = writer.len();
        let result = writer.append(&parts);
        log.dirty = true;
        self.note_log(writer);
        self.write_counters.log_bytes.add(writer.len() - before);
        self.write_counters.groups.add(1);
        drop(parts);
        log.header = header;
        result.map(|_| ()).inspect_err(|error| self.suspend(error))
    }

    /// Syncs the log, earlier logs first. If that fails, writes are suspended.
    pub(crate) fn sync_log(&self, log: &mut LogState) -> Result<(), StorageError> {
        self.sync_closed_logs()?;
        if log.dirty {
            let writer = log.writer.as_mut().expect("a writable database has a log");
            writer.sync().inspect_err(|error| self.suspend(error))?;
            self.write_counters.log_syncs.add(1);
            log.dirty = false;
        }
        Ok(())
    }

    /// Takes the last log of a session out of use, synced. Returns a log that holds records, to be closed once the manifest
    /// is; an empty log is closed at once.
    pub(crate) fn end_log(&self, log: &mut LogState) -> Result<Option<LogWriter>, StorageError> {
        self.sync_log(log)?;
        if let Some((id, _)) = log.prepared.take() {
            // After a closed log that does not name it, it would look like damage.
            let path = log_path(&self.dir, id);
            self.fs.remove(&path).map_err(|e| StorageError::io("remove", &path, e))?;
        }
        match log.writer.take() {
            Some(writer) if writer.is_empty() => writer.close().map(|_| None),
            writer => Ok(writer),
        }
    }

    /// Takes the next sequence number for an ingestion whose first keyspace is `keyspace`; returns once the log up to it
    /// would survive a power failure, so that ingested data never outlives earlier writes. The number must become visible
    /// before the log lock is released. On failure, writes are suspended.
    pub(crate) fn log_ingestion(
        &self,
        log: &mut LogState,
        keyspace: KeyspaceId,
    ) -> Result<SeqNo, StorageError> {
        let logged = self.append(log, &[&WriteBatch::ingestion(keyspace)], 1);
        logged.and_then(|()| self.sync_log(log))?;
        log.last_seq += 1;
        Ok(log.last_seq)
    }

    /// Inserts the operations into their keyspaces' memtables. Cannot fail: the batches were checked.
    fn apply(&self, log: &LogState, batches: &[&WriteBatch], bytes: usize) {
        let directory = self.directory.load();
        let mut current: Option<(KeyspaceId, Option<Arc<MemtableSlot>>)> = None;
        let mut seq = log.last_seq;
        for op in batches.iter().flat_map(|b| b.ops()) {
            let op = op.expect("a batch decodes what it encoded");
            seq += 1;
            let id = op.keyspace();
            if current.as_ref().map(|c| c.0) != Some(id) {
                let slot = directory.get(&id).map(|ks| ks.view.load().memtables.active.clone());
                if let Some(slot) = slot.as_ref().filter(|s| s.memtable.is_empty()) {
                    slot.first_log.store(log.id, Ordering::Relaxed);
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

    /// Slows down, stalls and seals memtables so that the batch has room.
    fn make_room(&self, log: &mut LogState, batches: &[&WriteBatch], bytes: usize) -> Result<(), WriteError> {
        let directory = self.directory.load_full();
        let mut touched: SmallVec<[KeyspaceId; 4]> = SmallVec::new();
        for batch in batches {
            for &id in batch.keyspaces() {
                if !touched.contains(&id) {
                    touched.push(id);
                }
            }
        }
        let mut rate = None;
        for id in touched {
            let Some(keyspace) = directory.get(&id) else { continue };
            rate = slower(rate, self.throttle(keyspace)?);
            let full = {
                let view = keyspace.view.load();
                !view.memtables.active.memtable.is_empty()
                    && view.memtables.active.memtable.memory_bytes() as u64 >= keyspace.options.memtable_bytes
            };
            if full {
                self.wait_for_memtable(keyspace)?;
                self.seal(log, std::slice::from_ref(keyspace))?;
            }
        }
        self.slow_down(log, rate, bytes);
        self.keep_budgets(log, &directory, bytes)?;
        self.keep_log_space(log, &directory, bytes)
    }

    /// Keeps all memtables within their budget: once writable memtables exceed half of it, the largest is sealed early;
    /// beyond the whole budget, the writer waits for flushes. Checked only from time to time, since it visits every keyspace.
    fn keep_budgets(
        &self,
        log: &mut LogState,
        directory: &Directory,
        bytes: usize,
    ) -> Result<(), WriteError> {
        let budget = self.options.memtable_budget_bytes;
        log.unchecked_bytes += bytes as u64;
        if log.unchecked_bytes < (budget / 64).min(1 << 20) {
            return Ok(());
        }
        log.unchecked_bytes = 0;
        let active = |ks: &Arc<KeyspaceInner>| ks.view.load().memtables.active.memtable.memory_bytes() as u64;
        if directory.values().map(active).sum::<u64>() > budget / 2 {
            let largest = directory.values().max_by_key(|ks| active(ks));
            if let Some(keyspace) = largest.filter(|ks| !ks.view.load().memtables.active.memtable.is_empty())
            {
                self.wait_for_memtable(keyspace)?;
                self.seal(log, std::slice::from_ref(keyspace))?;
            }
        }
        let over = || {
            let views: Vec<_> = directory.values().map(|ks| ks.view.load()).collect();
            let all =
                views.iter().flat_map(|view| view.memtables.iter()).map(|m| m.memtable.memory_bytes() as u64);
            all.sum::<u64>() > budget && views.iter().any(|view| !view.memtables.sealed.is_empty())
        };
        if over() {
            let flushes = |state: &State| directory.values().try_for_each(|ks| self.check_flushes(state, ks));
            self.stall_while(over, flushes)?;
        }
        Ok(())
    }

    /// Waits while the tree's shape forbids writes; then returns the maximum write rate in bytes per second, if there is one.
    /// Costs a few loads without pressure.
    fn throttle(&self, keyspace: &KeyspaceInner) -> Result<Option<f64>, WriteError> {
        let by_memtables = {
            let (view, options) = (keyspace.view.load(), &keyspace.options);
            let is_last =
                !view.memtables.sealed.is_empty() && view.memtables.sealed.len() + 1 >= options.max_memtables;
            let full =
                || view.memtables.active.memtable.memory_bytes() as f64 / options.memtable_bytes as f64;
            let flushed_per_second = || self.background.flush_rate.load(Ordering::Relaxed);
            if is_last { memtable_rate(full(), flushed_per_second()) } else { None }
        };
        if keyspace.pressure.get() == Pressure::Stop {
            let stopped = || keyspace.pressure.get() == Pressure::Stop && !keyspace.is_dropped();
            self.stall_while(stopped, |state| self.check_compactions(state, keyspace))?;
        }
        let by_shape = match keyspace.pressure.get() {
            Pressure::Slowdown(severity) => Some(SLOWED_BYTES_PER_SECOND * (1.0 - severity.clamp(0.0, 0.95))),
            Pressure::None | Pressure::Stop => None,
        };
        Ok(slower(by_shape, by_memtables))
    }

    /// Sleeps until writes at `rate` would have progressed this far. Idle time between writes counts, so writers slower than
    /// the rate do not wait.
    fn slow_down(&self, log: &mut LogState, rate: Option<f64>, bytes: usize) {
        let Some(rate) = rate else {
            log.slowed_until = None;
            return;
        };
        let now = sync::now();
        let from = log.slowed_until.map_or(now, |until| until.max(now));
        let until = from + Duration::from_secs_f64(bytes as f64 / rate.max(1.0));
        log.slowed_until = Some(until);
        self.write_counters.slowdowns.add(1);
        // Each sleep costs a context switch: sleep at least a millisecond at a time.
        if until - now < Duration::from_millis(1) {
            return;
        }
        // Closing the database waits for the log: release it soon.
        while sync::now() < until && self.check_writable().is_ok() {
            sync::thread::sleep((until - sync::now().min(until)).min(Duration::from_millis(50)));
        }
        self.write_counters.slowdown_nanos.add(sync::since(now).as_nanos() as u64);
    }

    /// Waits until the keyspace may queue one more memtable for flushing.
    fn wait_for_memtable(&self, keyspace: &KeyspaceInner) -> Result<(), WriteError> {
        let full = |ks: &KeyspaceInner| ks.view.load().memtables.sealed.len() + 1 >= ks.options.max_memtables;
        if !full(keyspace) {
            return Ok(());
        }
        let full = || full(keyspace) && !keyspace.is_dropped();
        self.stall_while(full, |state| self.check_flushes(state, keyspace))
    }

    /// Waits for background work until the condition no longer holds, or until `check` reports that the work fails.
    pub(crate) fn stall_while(
        &self,
        mut condition: impl FnMut() -> bool,
        check: impl Fn(&State) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let started = sync::now();
        self.write_counters.stalls.add(1);
        let mut state = self.state();
        while condition() {
            self.check_writable()?;
            check(&state)?;
            state = self.wait(state);
        }
        drop(state);
        self.write_counters.stall_nanos.add(sync::since(started).as_nanos() as u64);
        Ok(())
    }

    /// Rolls the log and replaces the non-empty memtables of `keyspaces` by fresh ones; the old ones are due for flushing
    /// from now on.
    pub(crate) fn seal(
        &self,
        log: &mut LogState,
        keyspaces: &[Arc<KeyspaceInner>],
    ) -> Result<(), StorageError> {
        self.roll_log(log)?;
        let state = self.state();
        let pinning = self.keyspaces_pinning_logs(&state, log, 0);
        for keyspace in keyspaces.iter().chain(&pinning) {
            let old = keyspace.view.load_full();
            if old.memtables.active.memtable.is_empty() || keyspace.is_dropped() {
                continue;
            }
            let fresh = MemtableSlot::new(new_memtable(&keyspace.options), log.id);
            keyspace.view.store(Arc::new(old.with_memtables(old.memtables.rotated(fresh))));
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Ends the current log and starts the next, unless the current one is empty.
    pub(crate) fn roll_log(&self, log: &mut LogState) -> Result<(), StorageError> {
        if log.writer.as_ref().is_none_or(|w| w.is_empty()) {
            return Ok(());
        }
        let (id, writer) = self.next_log(log)?;
        self.note_log(&writer);
        let mut old = log.writer.replace(writer).expect("checked above");
        let finished = old.finish(Some(id));
        if let Err(error) = &finished {
            // The log ends with a torn record, after everything acknowledged; and the next log is empty.
            self.suspend(error);
        }
        // Before the file can get another name: the log of a finished checkpoint must not change.
        old.give_back();
        let closed = ClosedLog { id: log.id, bytes: old.len(), allocated: old.allocated(), linked: false };
        {
            let mut state = self.state();
            state.logs.push(closed);
            self.note_closed_logs(&state);
            state.current_log = id;
            self.closed_logs.lock().push((log.id, old));
        }
        log.id = id;
        log.dirty = false;
        finished.map(drop)
    }

    /// Creates the first log of a session. It has another name until its header is durable: an opening that fails midway, say
    /// on a full disk, must not leave a log with a torn header, which the next opening would take for damage. It reserves no
    /// space, which its opening may need.
    pub(crate) fn create_first_log(&self, id: LogId) -> Result<LogWriter, StorageError> {
        let (path, beside) = (log_path(&self.dir, id), first_log_path(&self.dir));
        let io = |operation, e| StorageError::io(operation, &path, e);
        let file = self.fs.create(&beside, Usage::Log).map_err(|e| io("create", e))?;
        let header = LogHeader { kind: LogKind::Writes, id, reused: false };
        let mut writer = LogWriter::create(file, &path, header)?;
        writer.sync()?;
        self.fs.rename(&beside, &path).map_err(|e| io("create", e))?;
        self.fs.sync_dir(&self.dir).map_err(|e| StorageError::io("sync", &self.dir, e))?;
        Ok(writer)
    }

    /// Returns the log that follows the current one, its name durable. If that fails, nothing has changed: the new file is
    /// kept for the next attempt, since a second log that no closing record names would be taken for damage.
    pub(crate) fn next_log(&self, log: &mut LogState) -> Result<(LogId, LogWriter), StorageError> {
        let (id, mut writer) = match log.prepared.take() {
            Some(prepared) => prepared,
            None => {
                let id = self.next_file.fetch_add(1, Ordering::Relaxed);
                let recycled = self.state().recyclable.pop();
                (id, self.create_log(id, recycled)?)
            }
        };
        self.reserve(&mut writer, 0);
        if let Err(e) = self.fs.sync_dir(&self.dir) {
            log.prepared = Some((id, writer));
            return Err(StorageError::io("sync", &self.dir, e));
        }
        Ok((id, writer))
    }

    /// Creates a log file, from an obsolete one if possible; its name is not durable yet. It has another name until its
    /// header is written, so that a failed attempt leaves no log behind.
    fn create_log(&self, id: LogId, recycled: Option<ClosedLog>) -> Result<LogWriter, StorageError> {
        let (path, beside) = (log_path(&self.dir, id), first_log_path(&self.dir));
        let io = |e| StorageError::io("create", &path, e);
        let file = match &recycled {
            Some(old) => self.fs.reuse(&log_path(&self.dir, old.id), &beside),
            None => self.fs.create(&beside, Usage::Log),
        };
        let header = LogHeader { kind: LogKind::Writes, id, reused: recycled.is_some() };
        let mut writer = LogWriter::create(file.map_err(io)?, &path, header)?;
        if let Some(old) = recycled {
            writer = writer.in_file_of(old.allocated);
        }
        self.fs.rename(&beside, &path).map_err(io)?;
        Ok(writer)
    }
}

/// Returns the slower of two rates, where `None` is unlimited.
fn slower(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
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
