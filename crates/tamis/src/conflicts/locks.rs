//! Locks on keys and ranges, for transactions that would rather wait than conflict.
//!
//! # Invariants
//!
//! * If two transactions hold locks on the same key, directly or through a range, both locks are
//!   shared.
//! * Locks are only added until a transaction ends; then all of them are released at once. A
//!   transaction that is prepared releases its shared locks.
//! * A transaction waits for one lock at a time. Before it sleeps, it looks for a cycle of
//!   transactions that wait for each other; if it would close one, it gets
//!   [`Deadlock`](NotGranted::Deadlock) instead. What blocks a transaction is computed from the
//!   locks held at that moment, so it is never out of date.
//! * Whenever locks are released, waiters that are no longer blocked are woken, longest waiting
//!   first, except those that one woken before would block. A woken waiter that finds itself
//!   blocked again wakes others in its place. So a transaction sleeps only while a held lock, or a
//!   transaction that is awake, is in its way.
//!
//! # Order
//!
//! A shared request waits behind every earlier exclusive request that it conflicts with; otherwise
//! overlapping readers would keep a writer out forever. An exclusive request may overtake a waiter
//! once, while the waiter is waking up: handing a lock to a sleeping thread would leave the lock
//! idle until the thread wakes. A waiter that was overtaken cannot be overtaken again.
//!
//! One exception keeps this order from closing a cycle: a transaction is not held up by waiters
//! that wait for it, directly or through others. So every cycle consists of held locks alone.
//!
//! # Cost
//!
//! A lock costs a search among the locks held in its keyspace; releasing all locks costs one search
//! for each.
//!
//! # Threads
//!
//! One leaf lock over the whole table, held for such searches. Any thread may call, holding no lock
//! of the engine.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use tamis_base::ids::KeyspaceId;

use crate::error::WaitsFor;
use crate::interrupt;
use crate::read::pending::{PendingSpan, reaches};
use crate::sync::{self, Condvar, Mutex};

/// The number of a transaction that holds locks, unique while the database is open.
pub(crate) type Owner = u64;

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

/// What a lock is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Key(Arc<[u8]>),
    /// Never empty.
    Range(Arc<PendingSpan>),
}

impl Target {
    pub(crate) fn key(key: &[u8]) -> Target {
        Target::Key(key.into())
    }

    pub(crate) fn range(span: PendingSpan) -> Target {
        Target::Range(Arc::new(span))
    }

    /// Returns the key, or the first key of the range.
    pub(crate) fn first(&self) -> &[u8] {
        match self {
            Target::Key(key) => key,
            Target::Range(span) => &span.0,
        }
    }

    fn overlaps(&self, other: &Target) -> bool {
        match (self, other) {
            (Target::Key(a), Target::Key(b)) => a == b,
            (Target::Key(key), Target::Range(span)) | (Target::Range(span), Target::Key(key)) => {
                span.0[..] <= key[..] && reaches(span.1.as_deref(), key)
            }
            (Target::Range(a), Target::Range(b)) => {
                reaches(a.1.as_deref(), &b.0) && reaches(b.1.as_deref(), &a.0)
            }
        }
    }
}

/// Why a lock was not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotGranted {
    /// Others held it for too long.
    Timeout { holders: Vec<Owner> },
    /// Waiting would deadlock: each transaction waits for a lock that the next one holds.
    Deadlock(Vec<WaitsFor>),
    /// The calling thread was interrupted and no longer wants the lock.
    Interrupted,
}

/// The holders of a key, each with its mode.
type Holders = SmallVec<[(Owner, Mode); 1]>;

/// The locks of a keyspace.
#[derive(Debug, Default)]
struct InKeyspace {
    keys: BTreeMap<Arc<[u8]>, Holders>,
    ranges: Vec<(Arc<PendingSpan>, Owner, Mode)>,
}

/// A lock request.
#[derive(Debug)]
struct Request {
    owner: Owner,
    keyspace: KeyspaceId,
    target: Target,
    mode: Mode,
}

/// A waiting transaction.
#[derive(Debug)]
struct Waiting {
    request: Request,
    /// The keyspace's name, for errors.
    name: String,
    place: Arc<Parking>,
    /// Whether it was woken and found the lock taken by another.
    overtaken: bool,
}

/// Where a transaction waits. `called` is only a hint for a waiter that spins; whether it can
/// proceed is read under the table's lock, so `Relaxed` suffices.
#[derive(Debug, Default)]
struct Parking {
    called: AtomicBool,
    woken: Condvar,
}

impl Parking {
    fn wake(&self) {
        self.called.store(true, Relaxed);
        self.woken.notify_one();
    }
}

#[derive(Debug, Default)]
struct Table {
    keyspaces: BTreeMap<KeyspaceId, InKeyspace>,
    /// What each transaction holds, for releasing it.
    held: BTreeMap<Owner, Vec<(KeyspaceId, Target)>>,
    /// In the order in which they began to wait.
    waiting: Vec<Waiting>,
    last_owner: Owner,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    table: Mutex<Table>,
}

impl Locks {
    /// Returns roughly how much memory the locks take. O(locks).
    pub(crate) fn memory_bytes(&self) -> usize {
        // Each lock is listed by target and by owner, in trees whose nodes are half full.
        const OVERHEAD: usize = 4 * size_of::<(Owner, Target)>();
        let table = self.table.lock();
        let targets = table.held.values().flatten().map(|(_, target)| match target {
            Target::Key(key) => OVERHEAD + 2 * key.len(),
            Target::Range(_) => OVERHEAD,
        });
        targets.sum::<usize>() + table.waiting.capacity() * size_of::<Waiting>()
    }
}

fn compatible(held: Mode, asked: Mode) -> bool {
    held == Mode::Shared && asked == Mode::Shared
}

impl Request {
    fn conflicts(&self, other: &Request) -> bool {
        self.owner != other.owner
            && self.keyspace == other.keyspace
            && !compatible(self.mode, other.mode)
            && self.target.overlaps(&other.target)
    }
}

impl InKeyspace {
    /// Returns the other owners of locks incompatible with the request, each once.
    fn blocking(&self, owner: Owner, target: &Target, mode: Mode) -> Vec<Owner> {
        let blocks = |(holder, held): &(Owner, Mode)| *holder != owner && !compatible(*held, mode);
        let mut found: Vec<Owner> = match target {
            Target::Key(key) => {
                self.keys.get(key).into_iter().flatten().filter(|h| blocks(h)).map(|h| h.0).collect()
            }
            Target::Range(span) => {
                let end = span.1.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let keys = self.keys.range::<[u8], _>((Bound::Included(&span.0[..]), end));
                keys.flat_map(|(_, holders)| holders).filter(|h| blocks(h)).map(|h| h.0).collect()
            }
        };
        for (span, holder, held) in &self.ranges {
            if blocks(&(*holder, *held)) && target.overlaps(&Target::Range(span.clone())) {
                found.push(*holder);
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Grants a lock. Reports whether the owner did not hold the target before.
    fn grant(&mut self, owner: Owner, target: Target, mode: Mode) -> bool {
        match target {
            Target::Key(key) => {
                let holders = self.keys.entry(key).or_default();
                match holders.iter_mut().find(|(holder, _)| *holder == owner) {
                    Some((_, held)) => {
                        *held = mode.max(*held);
                        return false;
                    }
                    None => holders.push((owner, mode)),
                }
            }
            Target::Range(span) => self.ranges.push((span, owner, mode)),
        }
        true
    }

    /// Releases a lock if it is held in a mode up to `most`; reports whether it was.
    fn give_up(&mut self, owner: Owner, target: &Target, most: Mode) -> bool {
        let gone = |holder: Owner, mode: Mode| holder == owner && mode <= most;
        match target {
            Target::Key(key) => {
                let Some(holders) = self.keys.get_mut(key) else { return false };
                let before = holders.len();
                holders.retain(|(holder, mode)| !gone(*holder, *mode));
                let given_up = holders.len() < before;
                if holders.is_empty() {
                    self.keys.remove(key);
                }
                given_up
            }
            Target::Range(span) => {
                let place =
                    self.ranges.iter().position(|(held, holder, mode)| held == span && gone(*holder, *mode));
                place.map(|place| self.ranges.swap_remove(place)).is_some()
            }
        }
    }
}

impl Table {
    /// Returns the transactions that block a request, each once: holders, or if there are none,
    /// earlier waiters.
    fn blocking(&self, request: &Request) -> Vec<Owner> {
        let holders = self.holders(request);
        if holders.is_empty() { self.ahead(request).collect() } else { holders }
    }

    fn holders(&self, Request { owner, keyspace, target, mode }: &Request) -> Vec<Owner> {
        self.keyspaces.get(keyspace).map_or_else(Vec::new, |locks| locks.blocking(*owner, target, *mode))
    }

    /// Returns the waiters that a request must let go first.
    fn ahead<'t>(&'t self, request: &'t Request) -> impl Iterator<Item = Owner> + 't {
        let ahead = self.queued_before(request).map(|waiting| waiting.request.owner);
        ahead.filter(|waiter| !self.leads_to(*waiter, request.owner, &mut Vec::new()))
    }

    /// Returns the waiters whose turn comes before a request's.
    fn queued_before<'t>(&'t self, request: &'t Request) -> impl Iterator<Item = &'t Waiting> + 't {
        let earlier = self.waiting.iter().take_while(|waiting| waiting.request.owner != request.owner);
        earlier.filter(|waiting| {
            (request.mode == Mode::Shared || waiting.overtaken) && waiting.request.conflicts(request)
        })
    }

    /// Reports whether one transaction waits for another: directly or through others, for a lock or
    /// for its turn.
    fn leads_to(&self, from: Owner, to: Owner, seen: &mut Vec<Owner>) -> bool {
        let Some(waiting) = self.waiting(from) else { return false };
        let queued = self.queued_before(&waiting.request).map(|before| before.request.owner);
        self.holders(&waiting.request).into_iter().chain(queued).any(|next| {
            next == to
                || !seen.contains(&next) && {
                    seen.push(next);
                    self.leads_to(next, to, seen)
                }
        })
    }

    fn grant(&mut self, Request { owner, keyspace, target, mode }: Request) {
        if self.keyspaces.entry(keyspace).or_default().grant(owner, target.clone(), mode) {
            self.held.entry(owner).or_default().push((keyspace, target));
        }
    }

    fn waiting(&self, owner: Owner) -> Option<&Waiting> {
        self.waiting.iter().find(|waiting| waiting.request.owner == owner)
    }

    /// Returns the cycle that `owner` closes by waiting, if it does. `owner` is registered as
    /// waiting.
    fn cycle(&self, owner: Owner) -> Option<Vec<WaitsFor>> {
        let mut path: Vec<(Owner, Owner)> = Vec::new();
        let mut seen = Vec::new();
        self.closes(owner, owner, &mut path, &mut seen).then(|| {
            let step = |&(from, to): &(Owner, Owner)| {
                let Waiting { request, name, .. } =
                    self.waiting(from).expect("the path is of those who wait");
                let key = request.target.first().to_vec();
                WaitsFor { transaction: from, keyspace: name.clone(), key, holder: to }
            };
            path.iter().map(step).collect()
        })
    }

    /// Finds a path of held locks from one transaction to another.
    fn closes(&self, from: Owner, to: Owner, path: &mut Vec<(Owner, Owner)>, seen: &mut Vec<Owner>) -> bool {
        let Some(waiting) = self.waiting(from) else { return false };
        for holder in self.holders(&waiting.request) {
            path.push((from, holder));
            if holder == to {
                return true;
            }
            if !seen.contains(&holder) {
                seen.push(holder);
                if self.closes(holder, to, path, seen) {
                    return true;
                }
            }
            path.pop();
        }
        false
    }

    /// Wakes waiters that are no longer blocked.
    fn wake(&self) {
        self.unblocked().iter().for_each(|place| place.wake());
    }

    /// Returns the waiters to wake after locks were released: see the module documentation.
    fn unblocked(&self) -> Vec<Arc<Parking>> {
        let mut chosen: Vec<&Waiting> = Vec::new();
        for waiting in &self.waiting {
            if self.blocking(&waiting.request).is_empty()
                && !chosen.iter().any(|before| before.request.conflicts(&waiting.request))
            {
                chosen.push(waiting);
            }
        }
        chosen.into_iter().map(|waiting| waiting.place.clone()).collect()
    }
}

impl Locks {
    /// Returns the number of a new transaction.
    pub(crate) fn owner(&self) -> Owner {
        let mut table = self.table.lock();
        table.last_owner += 1;
        table.last_owner
    }

    /// Acquires a lock, waiting for others up to `timeout`. `name` is the keyspace's, for errors.
    pub(crate) fn acquire(
        &self,
        owner: Owner,
        (keyspace, name): (KeyspaceId, &str),
        target: &Target,
        mode: Mode,
        timeout: Duration,
    ) -> Result<(), NotGranted> {
        let mut request = Request { owner, keyspace, target: target.clone(), mode };
        let mut table = self.table.lock();
        let mut holders = table.blocking(&request);
        if holders.is_empty() {
            table.grant(request);
            return Ok(());
        }
        let started: Instant = sync::now();
        let place = Arc::<Parking>::default();
        table.waiting.push(Waiting {
            request,
            name: name.to_owned(),
            place: place.clone(),
            overtaken: false,
        });
        let (mut slept, mut interrupted) = (false, false);
        loop {
            let left = timeout.saturating_sub(sync::since(started));
            let cycle = if holders.is_empty() { None } else { table.cycle(owner) };
            if holders.is_empty() || cycle.is_some() || left.is_zero() || interrupted {
                let index = table.waiting.iter().position(|waiting| waiting.request.owner == owner);
                request = table.waiting.remove(index.expect("it is registered")).request;
                if holders.is_empty() {
                    table.grant(request);
                    return Ok(());
                }
                // It no longer blocks anyone.
                table.wake();
                if interrupted {
                    return Err(NotGranted::Interrupted);
                }
                return Err(cycle.map_or(NotGranted::Timeout { holders }, NotGranted::Deadlock));
            }
            // Short transactions hold their locks for less time than it takes to go to sleep and be
            // woken.
            table = if slept && interrupt::is_possible() {
                drop(place.woken.wait_timeout(table, left.min(interrupt::INTERVAL)));
                interrupted = interrupt::is_interrupted();
                self.table.lock()
            } else if slept {
                place.woken.wait_timeout(table, left)
            } else {
                slept = true;
                drop(table);
                sync::spin_until(|| place.called.load(Relaxed));
                self.table.lock()
            };
            let is_called = place.called.swap(false, Relaxed);
            let index = table.waiting.iter().position(|waiting| waiting.request.owner == owner);
            let index = index.expect("it is registered");
            holders = table.blocking(&table.waiting[index].request);
            if !holders.is_empty() {
                table.waiting[index].overtaken |= is_called;
                // Others may have been left asleep because this one was awake. And those ahead of a
                // waiter may wait for it now, through this one; then order alone no longer holds it
                // up.
                table.wake();
            }
        }
    }

    /// Gives an exclusive lock to a transaction that held it before the database was opened. No
    /// other transaction holds any lock yet.
    pub(crate) fn restore(&self, owner: Owner, keyspace: KeyspaceId, target: Target) {
        self.table.lock().grant(Request { owner, keyspace, target, mode: Mode::Exclusive });
    }

    /// Releases all locks of a transaction.
    pub(crate) fn release(&self, owner: Owner) {
        self.give_up(owner, Mode::Exclusive);
    }

    /// Releases the shared locks of a transaction.
    pub(crate) fn release_shared(&self, owner: Owner) {
        self.give_up(owner, Mode::Shared);
    }

    /// Releases the locks that a transaction holds in a mode up to `most`.
    fn give_up(&self, owner: Owner, most: Mode) {
        let mut guard = self.table.lock();
        let table = &mut *guard;
        let Some(mut held) = table.held.remove(&owner) else { return };
        held.retain(|(keyspace, target)| {
            !table.keyspaces.get_mut(keyspace).is_some_and(|locks| locks.give_up(owner, target, most))
        });
        if !held.is_empty() {
            table.held.insert(owner, held);
        }
        let unblocked = if table.waiting.is_empty() { Vec::new() } else { table.unblocked() };
        drop(guard);
        unblocked.iter().for_each(|place| place.wake());
    }

    /// The number of locks held.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        let table = self.table.lock();
        table
            .keyspaces
            .values()
            .map(|k| k.keys.values().map(Holders::len).sum::<usize>() + k.ranges.len())
            .sum()
    }
}

#[cfg(test)]
mod tests;
