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
        // Those ahead of a waiter may now wait for it, through this one; then order alone no longer
        // holds it up.
        table.wake();
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
                // Another waiter may have been left asleep because this one was awake.
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
mod tests {
    use super::*;

    const NO_TIME: Duration = Duration::ZERO;

    fn key(key: &str) -> Target {
        Target::key(key.as_bytes())
    }

    fn range(start: &str, end: &str) -> Target {
        let end = (!end.is_empty()).then(|| end.as_bytes().to_vec());
        Target::range((start.as_bytes().to_vec(), end))
    }

    fn granted(locks: &Locks, owner: Owner, target: Target, mode: Mode) -> bool {
        locks.acquire(owner, (0, "k"), &target, mode, NO_TIME).is_ok()
    }

    #[test]
    fn shared_locks_are_shared_and_exclusive_ones_are_not() {
        use Mode::{Exclusive, Shared};
        let cases = [
            (key("b"), Shared, key("b"), Shared, true),
            (key("b"), Shared, key("b"), Exclusive, false),
            (key("b"), Exclusive, key("b"), Shared, false),
            (key("b"), Exclusive, key("c"), Exclusive, true),
            (key("b"), Exclusive, range("a", "b"), Shared, true),
            (key("b"), Exclusive, range("a", "c"), Shared, false),
            (range("a", "c"), Shared, key("b"), Shared, true),
            (range("a", "c"), Shared, key("b"), Exclusive, false),
            (range("a", "c"), Shared, key("c"), Exclusive, true),
            (range("a", "c"), Exclusive, range("b", ""), Shared, false),
            (range("a", "c"), Exclusive, range("c", ""), Exclusive, true),
            (range("b", ""), Exclusive, key("z"), Exclusive, false),
        ];
        for (first, held, second, asked, expected) in cases {
            let locks = Locks::default();
            assert!(granted(&locks, 1, first.clone(), held));
            assert_eq!(granted(&locks, 2, second.clone(), asked), expected, "{first:?} {second:?}");
            assert!(granted(&locks, 1, second.clone(), asked) || expected, "its own never block");
            assert!(locks.acquire(3, (1, "other"), &second, asked, NO_TIME).is_ok(), "another keyspace");
            locks.release(1);
            locks.release(2);
            locks.release(3);
            assert_eq!(locks.held(), 0);
        }
    }

    #[test]
    fn requests_conflict_if_owners_differ_and_one_place_is_asked_for_exclusively() {
        use Mode::{Exclusive, Shared};
        let request = |owner, keyspace, target, mode| Request { owner, keyspace, target, mode };
        let first = request(1, 0, range("a", "c"), Exclusive);
        for (other, conflicts) in [
            (request(2, 0, key("b"), Exclusive), true),
            (request(2, 0, key("b"), Shared), true),
            (request(1, 0, key("b"), Exclusive), false),
            (request(2, 1, key("b"), Exclusive), false),
            (request(2, 0, key("c"), Exclusive), false),
        ] {
            assert_eq!((first.conflicts(&other), other.conflicts(&first)), (conflicts, conflicts));
        }
        let shared = request(1, 0, range("a", "c"), Shared);
        assert!(!shared.conflicts(&request(2, 0, key("b"), Shared)));
    }

    #[test]
    fn memory_grows_with_the_keys_that_are_locked() {
        let locks = Locks::default();
        let taken = |locks: &Locks, target: Target| {
            let before = locks.memory_bytes();
            assert!(granted(locks, 1, target, Mode::Exclusive));
            locks.memory_bytes() - before
        };
        let (short, long) = (taken(&locks, key("a")), taken(&locks, key("a longer key")));
        assert_eq!((short - 2, long - 24), (taken(&locks, range("b", "c")), short - 2));
        locks.release(1);
        assert_eq!(locks.memory_bytes(), 0);
    }

    #[test]
    fn a_shared_lock_becomes_exclusive_if_nobody_shares_it() {
        let locks = Locks::default();
        assert!(granted(&locks, 1, key("a"), Mode::Shared));
        assert!(granted(&locks, 1, key("a"), Mode::Exclusive));
        assert!(!granted(&locks, 2, key("a"), Mode::Shared));
        assert!(granted(&locks, 1, key("a"), Mode::Shared), "it stays exclusive");
        assert!(!granted(&locks, 2, key("a"), Mode::Shared));
        assert!(granted(&locks, 1, key("b"), Mode::Shared));
        locks.release_shared(1);
        assert!(granted(&locks, 2, key("b"), Mode::Exclusive));
        assert!(!granted(&locks, 2, key("a"), Mode::Shared));
    }

    /// Three transactions deadlock, on keys and a range: the last one is told which waits for
    /// which.
    #[test]
    fn a_deadlock_is_named() {
        let locks = Locks::default();
        for (owner, name) in [(1, "a"), (2, "b"), (3, "c")] {
            assert!(granted(&locks, owner, key(name), Mode::Exclusive));
        }
        let long = Duration::from_secs(60);
        std::thread::scope(|scope| {
            let wait = |owner, target| locks.acquire(owner, (0, "k"), &target, Mode::Shared, long);
            let one = scope.spawn(move || wait(1, key("b")));
            let two = scope.spawn(move || wait(2, range("c", "d")));
            while locks.table.lock().waiting.len() < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let Err(NotGranted::Deadlock(cycle)) = wait(3, key("a")) else { panic!("no deadlock was found") };
            let step = |step: &WaitsFor| {
                (step.transaction, String::from_utf8_lossy(&step.key).into_owned(), step.holder)
            };
            let cycle: Vec<_> = cycle.iter().map(step).collect();
            assert_eq!(cycle, [(3, "a".into(), 1), (1, "b".into(), 2), (2, "c".into(), 3)]);
            locks.release(3);
            two.join().unwrap().unwrap();
            locks.release(2);
            one.join().unwrap().unwrap();
        });
    }

    #[test]
    fn two_that_want_to_become_exclusive_do_not_wait_for_ever() {
        let locks = Locks::default();
        assert!(granted(&locks, 1, key("a"), Mode::Shared) && granted(&locks, 2, key("a"), Mode::Shared));
        let long = Duration::from_secs(60);
        std::thread::scope(|scope| {
            let one = scope.spawn(|| locks.acquire(1, (0, "k"), &key("a"), Mode::Exclusive, long));
            while locks.table.lock().waiting.is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let refused = locks.acquire(2, (0, "k"), &key("a"), Mode::Exclusive, long);
            assert!(matches!(refused, Err(NotGranted::Deadlock(cycle)) if cycle.len() == 2));
            locks.release(2);
            one.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_timeout_names_the_holders() {
        let locks = Locks::default();
        for owner in [1, 2] {
            assert!(granted(&locks, owner, key("a"), Mode::Shared));
        }
        let refused = locks.acquire(3, (0, "k"), &range("", ""), Mode::Exclusive, Duration::from_millis(5));
        assert_eq!(refused, Err(NotGranted::Timeout { holders: vec![1, 2] }));
        assert!(locks.table.lock().waiting.is_empty());
    }

    /// The first of the waiters no longer blocked are woken; those that they would block sleep on.
    /// A waiter that is still blocked holds up shared requests behind it, but no exclusive ones.
    #[test]
    fn those_who_can_go_on_together_are_woken() {
        use Mode::{Exclusive, Shared};
        let mut table = Table::default();
        let request = |owner, target, mode| Request { owner, keyspace: 0, target, mode };
        table.grant(request(1, key("x"), Exclusive));
        let waiting = [
            request(2, range("a", ""), Exclusive),
            request(3, key("b"), Shared),
            request(4, key("b"), Exclusive),
            request(5, key("b"), Shared),
            request(6, range("c", "d"), Exclusive),
        ];
        for request in waiting {
            let (name, place) = (String::new(), Arc::default());
            table.waiting.push(Waiting { request, name, place, overtaken: false });
        }
        let woken = |table: &Table| -> Vec<Owner> {
            let woken = table.unblocked();
            let is_woken = |waiting: &&Waiting| woken.iter().any(|one| Arc::ptr_eq(one, &waiting.place));
            table.waiting.iter().filter(is_woken).map(|waiting| waiting.request.owner).collect()
        };
        assert_eq!(woken(&table), [4, 6]);
        assert!(table.keyspaces.get_mut(&0).unwrap().give_up(1, &key("x"), Exclusive));
        assert_eq!(woken(&table), [2]);
    }

    /// Waits until `count` transactions wait for locks.
    fn until_waiting(locks: &Locks, count: usize) {
        while locks.table.lock().waiting.len() < count {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Two readers with overlapping locks used to keep a writer out forever, each arriving while
    /// the other was inside.
    #[test]
    fn readers_that_overlap_do_not_starve_a_writer() {
        let locks = Locks::default();
        let long = Duration::from_secs(60);
        assert!(granted(&locks, 1, key("a"), Mode::Shared));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| locks.acquire(2, (0, "k"), &range("a", "c"), Mode::Exclusive, long));
            until_waiting(&locks, 1);
            assert!(!granted(&locks, 3, key("a"), Mode::Shared), "the writer comes first");
            assert!(!granted(&locks, 3, range("b", ""), Mode::Shared));
            assert!(granted(&locks, 3, key("c"), Mode::Shared), "the writer does not want it");
            assert!(granted(&locks, 1, key("b"), Mode::Shared), "the writer waits for it anyway");
            locks.release(1);
            writer.join().unwrap().unwrap();
            assert!(!granted(&locks, 3, key("a"), Mode::Shared));
        });
        locks.release(2);
        assert!(granted(&locks, 3, key("a"), Mode::Shared));
    }

    /// A waits its turn behind B, which waits for C. When C starts to wait for A, A may go before
    /// B: no held lock closes a cycle.
    #[test]
    fn the_order_of_waiters_makes_no_deadlock() {
        let locks = Locks::default();
        let (a, b, c) = (1, 2, 3);
        let long = Duration::from_secs(60);
        let wait = |owner, name, mode| locks.acquire(owner, (0, "k"), &key(name), mode, long);
        assert!(granted(&locks, c, key("shared"), Mode::Shared));
        assert!(granted(&locks, a, key("own"), Mode::Exclusive));
        std::thread::scope(|scope| {
            let second = scope.spawn(move || wait(b, "shared", Mode::Exclusive));
            until_waiting(&locks, 1);
            let first = scope.spawn(move || wait(a, "shared", Mode::Shared));
            until_waiting(&locks, 2);
            let third = scope.spawn(move || wait(c, "own", Mode::Exclusive));
            first.join().unwrap().unwrap();
            locks.release(a);
            third.join().unwrap().unwrap();
            locks.release(c);
            second.join().unwrap().unwrap();
        });
    }

    /// A waiter that lost its lock to a later request loses it to no other.
    #[test]
    fn a_waiter_is_overtaken_once() {
        let mut table = Table::default();
        let request = |owner| Request { owner, keyspace: 0, target: key("a"), mode: Mode::Exclusive };
        let (name, place) = (String::new(), Arc::default());
        table.waiting.push(Waiting { request: request(1), name, place, overtaken: false });
        assert_eq!(table.blocking(&request(2)), []);
        table.waiting[0].overtaken = true;
        assert_eq!(table.blocking(&request(2)), [1]);
        assert_eq!(table.blocking(&request(1)), []);
    }

    #[test]
    fn a_waiter_that_finds_the_lock_taken_again_is_overtaken() {
        let locks = Locks::default();
        let request = |owner| Request { owner, keyspace: 0, target: key("a"), mode: Mode::Exclusive };
        assert!(granted(&locks, 1, key("a"), Mode::Exclusive));
        std::thread::scope(|scope| {
            let waiter = scope
                .spawn(|| locks.acquire(2, (0, "k"), &key("a"), Mode::Exclusive, Duration::from_secs(60)));
            until_waiting(&locks, 1);
            {
                let mut table = locks.table.lock();
                assert!(!table.waiting[0].overtaken);
                assert!(table.keyspaces.get_mut(&0).unwrap().give_up(1, &key("a"), Mode::Exclusive));
                // It cannot look before another has the lock.
                table.wake();
                table.grant(request(3));
            }
            let started = Instant::now();
            while !locks.table.lock().waiting[0].overtaken {
                assert!(started.elapsed() < Duration::from_secs(20));
                std::thread::sleep(Duration::from_millis(1));
            }
            locks.release(3);
            waiter.join().unwrap().unwrap();
        });
        locks.release(2);
    }

    /// Threads that want overlapping keys and ranges, and retry after a deadlock, all finish, and
    /// none is inside together with one that excludes it. A waiter left asleep would time out.
    #[test]
    fn nobody_is_left_asleep() {
        const KEYS: [&str; 4] = ["a", "b", "c", "d"];
        let locks = Locks::default();
        let inside: [std::sync::atomic::AtomicI32; 4] = Default::default();
        let run = |thread: usize| {
            use std::sync::atomic::Ordering::SeqCst;
            let mut random = thread + 1;
            let mut draw = |below: usize| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (random >> 33) % below
            };
            for _ in 0..300 {
                let owner = locks.owner();
                let mut locked: Vec<(usize, usize, Mode)> = Vec::new();
                for _ in 0..=draw(3) {
                    let (from, to) = (draw(4), draw(4));
                    let mode = if draw(3) == 0 { Mode::Shared } else { Mode::Exclusive };
                    let (to, target) = match from < to {
                        true => (to, range(KEYS[from], KEYS[to])),
                        false => (from + 1, key(KEYS[from])),
                    };
                    match locks.acquire(owner, (0, "k"), &target, mode, Duration::from_secs(60)) {
                        Ok(()) => locked.push((from, to, mode)),
                        Err(NotGranted::Deadlock(_)) => break,
                        Err(timeout) => panic!("{timeout:?}"),
                    }
                }
                // A place counts the readers inside; a writer adds more than all readers together
                // could.
                let mut mine = [0; 4];
                for (from, to, mode) in locked {
                    let weight = if mode == Mode::Shared { 1 } else { 1000 };
                    (from..to).for_each(|place| mine[place] = weight.max(mine[place]));
                }
                for (place, weight) in mine.into_iter().enumerate().filter(|(_, weight)| *weight > 0) {
                    let others = inside[place].fetch_add(weight, SeqCst);
                    assert!(if weight == 1 { others < 1000 } else { others == 0 }, "{others} inside");
                }
                std::thread::yield_now();
                (0..4).for_each(|place| _ = inside[place].fetch_sub(mine[place], SeqCst));
                locks.release(owner);
            }
        };
        std::thread::scope(|scope| (0..6).for_each(|thread| _ = scope.spawn(move || run(thread))));
        assert_eq!((locks.held(), locks.table.lock().waiting.len()), (0, 0));
    }
}
