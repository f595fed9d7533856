//! The queue of writers, and the newest visible write: how batches form groups, and how sequence
//! numbers become visible in log order. See [`commit`](crate::write::commit).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gathering::Gathering;
use smallvec::SmallVec;
use tamis_base::key::SeqNo;
use turns::{Ticket, Turns};

use crate::batch::WriteBatch;
use crate::conflicts::condition::Condition;
use crate::error::WriteError;
use crate::log::Current;
use crate::sync::{self, Bell, Condvar, Mutex, MutexGuard};

pub(crate) const PANICKED: &str = "a panic while writes were committed";

pub(crate) const DAMAGED: &str = "a batch changed in memory while it was committed";

pub(crate) fn panicked() -> WriteError {
    WriteError::Poisoned { cause: PANICKED.to_owned() }
}

/// Batches beyond this many bytes wait for the next group, so that one group's latency stays
/// bounded.
const MAX_GROUP_BYTES: usize = 1 << 20;

/// The queue of writers, and the newest visible write.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) queue: Mutex<CommitQueue>,
    bells: [Bell; 3],
    visible_seq: AtomicU64,
    pub(crate) turns: Turns,
    gathering: Gathering,
    /// A writer in flight panicked: no later number will become visible.
    broken: AtomicBool,
    /// The number of threads that sleep until a number is visible. Raised under `asleep`.
    sleeping: AtomicUsize,
    asleep: Mutex<()>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct CommitQueue {
    /// Whether a writer leads. Until it ends, all others queue.
    pub(crate) leading: bool,
    pub(crate) pending: VecDeque<QueuedCommit>,
    /// How many groups were formed.
    groups: usize,
    /// The size of the last group, and when it ended.
    last: Option<(usize, Instant)>,
}

impl CommitQueue {
    /// Queues a batch. The next leader sleeps at a bell of its own, so that it is woken alone. The
    /// members of its group sleep at another, so that one ring wakes all of them, but not the group
    /// after it.
    fn push(&mut self, batch: WriteBatch, sync: bool, condition: Option<Arc<Condition>>) -> Arc<Waiter> {
        let bell = if self.pending.is_empty() { HEIR } else { 1 + self.groups % 2 };
        let waiter = Arc::new(Waiter { bell, given: AtomicBool::new(false), turn: Mutex::default() });
        self.pending.push_back(QueuedCommit { batch, sync, condition, waiter: waiter.clone() });
        waiter
    }
}

#[derive(Debug)]
pub(crate) struct QueuedCommit {
    batch: WriteBatch,
    sync: bool,
    condition: Option<Arc<Condition>>,
    waiter: Arc<Waiter>,
}

/// The batches of a group in the order in which they commit, the leader's first.
#[derive(Debug)]
pub(crate) struct Members<'g> {
    pub(crate) batches: SmallVec<[&'g WriteBatch; 8]>,
    /// The conditions under which they commit; empty if no batch has one.
    pub(crate) conditions: SmallVec<[Option<&'g Condition>; 4]>,
}

/// Where one writer waits for its turn. The turn is stored before `given` is set (`Release` and
/// `Acquire`), and `given` is set before the bell rings.
#[derive(Debug)]
struct Waiter {
    /// Where it sleeps. Others may sleep there, too, so it is sometimes woken for nothing.
    bell: usize,
    given: AtomicBool,
    turn: Mutex<Option<Turn>>,
}

/// The bell of the writer that leads next.
const HEIR: usize = 0;

#[expect(clippy::large_enum_variant, reason = "one per waiting writer, moved once")]
#[derive(Debug)]
enum Turn {
    Done(Result<(), WriteError>),
    Lead(Lead),
}

/// What a writer leads with.
#[derive(Debug)]
struct Lead {
    batch: WriteBatch,
    sync: bool,
    condition: Option<Arc<Condition>>,
    /// How many writers are expected to commit again (the members of the group that just ended),
    /// and how many others are queued.
    returning: usize,
    waiting: usize,
}

impl Waiter {
    /// Stores the turn. The caller then rings the bell.
    fn give(&self, turn: Turn) {
        *self.turn.lock() = Some(turn);
        self.given.store(true, Ordering::Release);
    }

    /// An unsynced commit takes a microsecond or two, while going to sleep and being woken take
    /// several: so spin for about as long first. A sync takes longer than that anyway, and others
    /// make better use of the processor.
    fn wait(&self, bells: &[Bell], sync: bool) -> Turn {
        if !sync {
            sync::spin_until(|| self.given.load(Ordering::Relaxed));
        }
        let bell = &bells[self.bell];
        loop {
            let rings = bell.rings();
            if self.given.load(Ordering::Acquire) {
                return self.turn.lock().take().expect("stored before it was given");
            }
            bell.wait(rings);
        }
    }
}

/// The writers that follow a leader. On drop, even in a panic, they get the result, and the next
/// writer becomes leader.
struct CommitGroup<'c> {
    committer: &'c Committer,
    followers: SmallVec<[QueuedCommit; 4]>,
    /// `None` if the leader panicked.
    result: Option<Result<(), WriteError>>,
}

impl CommitGroup<'_> {
    /// Takes queued writers, up to a limit that includes the leader's `bytes`.
    fn gather(&mut self, mut bytes: usize) {
        let mut queue = self.committer.queue.lock();
        while let Some(next) = queue.pending.front() {
            bytes += next.batch.byte_len();
            if bytes > MAX_GROUP_BYTES {
                break;
            }
            self.followers.extend(queue.pending.pop_front());
        }
        queue.groups += 1;
    }
}

impl Drop for CommitGroup<'_> {
    fn drop(&mut self) {
        let result = self.result.take().unwrap_or_else(|| Err(panicked()));
        let (bells, members) = (&self.committer.bells, self.followers.len() + 1);
        {
            let mut queue = self.committer.queue.lock();
            queue.last = Some((members, sync::now()));
            match queue.pending.pop_front() {
                // First, so that it gathers its group while this group's followers are woken.
                Some(QueuedCommit { batch, sync, condition, waiter }) => {
                    let waiting = queue.pending.len();
                    drop(queue);
                    waiter.give(Turn::Lead(Lead { batch, sync, condition, returning: members, waiting }));
                    bells[waiter.bell].ring();
                }
                None => queue.leading = false,
            }
        }
        let mut due = [false; 3];
        for QueuedCommit { waiter, .. } in &self.followers {
            waiter.give(Turn::Done(result.clone()));
            due[waiter.bell] = true;
        }
        bells.iter().zip(due).filter(|(_, due)| *due).for_each(|(bell, _)| bell.ring());
    }
}

impl Committer {
    pub(crate) fn new(visible_seq: SeqNo) -> Committer {
        Committer {
            queue: Mutex::default(),
            bells: Default::default(),
            visible_seq: AtomicU64::new(visible_seq),
            turns: Turns::default(),
            gathering: Gathering::default(),
            broken: AtomicBool::new(false),
            sleeping: AtomicUsize::new(0),
            asleep: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Returns the newest sequence number visible to readers. Load the view before this.
    #[inline]
    pub(crate) fn visible(&self) -> SeqNo {
        sync::point();
        self.visible_seq.load(Ordering::Acquire)
    }

    /// Returns how many writers wait.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> usize {
        self.queue.lock().pending.len()
    }

    /// Makes everything up to `seq` visible. Only for opening, following, the holder of the log's
    /// lock while nothing is in flight, and [`Turns::finish`].
    pub(crate) fn publish(&self, seq: SeqNo) {
        self.visible_seq.store(seq, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
    }

    /// Makes a batch in flight visible by its last number once all earlier ones are, and returns
    /// when it is visible. Returns `false` if that will never happen.
    pub(crate) fn land(&self, ticket: Ticket, last: SeqNo) -> bool {
        self.turns.finish(ticket, last, |last| self.publish(last));
        self.wait_for(last)
    }

    /// Gives up: whatever is not visible by now never will be.
    pub(crate) fn give_up(&self) {
        self.broken.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        // A thread that has checked and is about to sleep holds the lock.
        drop(self.asleep.lock());
        self.changed.notify_all();
    }

    /// Sleeps until everything up to `seq` is visible or never will be, for at most `limit`. May
    /// return early. For readers.
    pub(crate) fn sleep_until(&self, seq: SeqNo, limit: Duration) {
        let asleep = self.asleep.lock();
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        if self.visible_seq.load(Ordering::SeqCst) < seq && !self.broken.load(Ordering::SeqCst) {
            drop(self.changed.wait_timeout(asleep, limit));
        }
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
    }

    /// Waits until everything up to `seq` is visible. Returns `false` if that will never happen.
    pub(crate) fn wait_for(&self, seq: SeqNo) -> bool {
        let is_there = || self.visible_seq.load(Ordering::SeqCst) >= seq;
        let is_broken = || self.broken.load(Ordering::SeqCst);
        sync::spin_until(|| is_there() || is_broken());
        if !is_there() && !is_broken() {
            let mut asleep = self.asleep.lock();
            self.sleeping.fetch_add(1, Ordering::SeqCst);
            while !is_there() && !is_broken() {
                asleep = self.changed.wait(asleep);
            }
            self.sleeping.fetch_sub(1, Ordering::SeqCst);
        }
        is_there()
    }

    /// Commits a batch, possibly with others, and returns its result. The leader calls `lock`, then
    /// `commit` with the batches of its group and whether to sync them.
    pub(crate) fn submit<'l>(
        &self,
        batch: WriteBatch,
        sync: bool,
        condition: Option<Arc<Condition>>,
        lock: impl FnOnce() -> MutexGuard<'l, Current>,
        commit: impl FnOnce(&mut Current, Members<'_>, bool) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let waiter = {
            let mut queue = self.queue.lock();
            if queue.leading {
                queue.push(batch, sync, condition)
            } else {
                queue.leading = true;
                // This writer is the first of the last group to come back, unless that group ended
                // long ago.
                let last = queue.last.filter(|(_, ended)| sync && self.gathering.is_recent(*ended));
                drop(queue);
                let returning = last.map_or(0, |(members, _)| members - 1);
                return self.lead(Lead { batch, sync, condition, returning, waiting: 0 }, lock, commit);
            }
        };
        match waiter.wait(&self.bells, sync) {
            Turn::Done(result) => result,
            Turn::Lead(lead) => self.lead(lead, lock, commit),
        }
    }

    fn lead<'l>(
        &self,
        Lead { batch, sync, condition, returning, waiting }: Lead,
        lock: impl FnOnce() -> MutexGuard<'l, Current>,
        commit: impl FnOnce(&mut Current, Members<'_>, bool) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let mut group = CommitGroup { committer: self, followers: SmallVec::new(), result: None };
        let result = {
            if sync && returning > 0 {
                self.await_members(returning, waiting);
            }
            let mut current = lock();
            group.gather(batch.byte_len());
            let sync = sync || group.followers.iter().any(|follower| follower.sync);
            let batches = std::iter::once(&batch).chain(group.followers.iter().map(|f| &f.batch)).collect();
            let mut members = Members { batches, conditions: SmallVec::new() };
            if condition.is_some() || group.followers.iter().any(|follower| follower.condition.is_some()) {
                let others = group.followers.iter().map(|follower| follower.condition.as_deref());
                members.conditions.extend(std::iter::once(condition.as_deref()).chain(others));
            }
            let started = sync.then(sync::now);
            let result = commit(&mut current, members, sync);
            started.inspect(|&started| self.gathering.note_group(sync::since(started)));
            result
        };
        group.result = Some(result.clone());
        result
    }

    /// Gives the members of the previous group, which are being woken, time to join the next one.
    /// `waiting` other writers are already queued.
    fn await_members(&self, returning: usize, waiting: usize) {
        let Some(limit) = self.gathering.limit(returning) else { return };
        // Only a leader takes writers out of the queue.
        let missing = || (waiting + returning).saturating_sub(self.queue.lock().pending.len());
        sync::wait_up_to(limit, || missing() == 0);
        self.gathering.note_returned(returning - missing(), returning);
    }
}

mod gathering;
pub(crate) mod turns;

#[cfg(test)]
mod tests;
