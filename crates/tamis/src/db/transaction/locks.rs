//! Locks on keys and ranges, for transactions that would rather wait than conflict.
//!
//! # Invariants
//!
//! * Of two transactions that hold locks on the same key, directly or by a range, both hold shared ones.
//! * Locks are only added until a transaction ends; then all of them go at once. A transaction that is prepared gives up its shared ones.
//! * A transaction waits for one lock at a time. Whoever begins to wait first looks for a cycle of those who wait for each other, which
//!   the new edge would close: it gets [`Deadlock`] instead. Those who wait look again whenever a lock was given up.
//!
//! Nothing is fair: a shared lock may be granted while an exclusive one is waited for. Timeouts bound every wait.
//!
//! # Threads
//!
//! One leaf lock over the whole table, held for searches among the locks held in a keyspace. Any thread may ask, with no lock of the engine
//! held.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::{Duration, Instant};

use crate::collections::HashMap;
use crate::error::WaitsFor;
use crate::ids::KeyspaceId;
use crate::read::pending::{Span, reaches};
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
    Key(Vec<u8>),
    /// Not empty.
    Range(Span),
}

impl Target {
    /// The key, or the first one.
    fn first(&self) -> &[u8] {
        match self {
            Target::Key(key) => key,
            Target::Range((start, _)) => start,
        }
    }

    fn overlaps(&self, (start, end): &Span) -> bool {
        match self {
            Target::Key(key) => start <= key && reaches(end.as_deref(), key),
            Target::Range((from, to)) => reaches(to.as_deref(), start) && reaches(end.as_deref(), from),
        }
    }
}

/// Why a lock was not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotGranted {
    /// It was held by others for too long.
    Timeout { holders: Vec<Owner> },
    /// To wait for it would be to wait for oneself: each waits for a lock that the next one holds.
    Deadlock(Vec<WaitsFor>),
}

/// Who holds a key, and how.
type Holders = Vec<(Owner, Mode)>;

/// The locks of a keyspace.
#[derive(Debug, Default)]
struct InKeyspace {
    keys: BTreeMap<Vec<u8>, Holders>,
    ranges: Vec<(Span, Owner, Mode)>,
}

/// A transaction that waits.
#[derive(Debug)]
struct Waiting {
    keyspace: String,
    key: Vec<u8>,
    holders: Vec<Owner>,
}

#[derive(Debug, Default)]
struct Table {
    keyspaces: HashMap<KeyspaceId, InKeyspace>,
    waiting: BTreeMap<Owner, Waiting>,
    last_owner: Owner,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    table: Mutex<Table>,
    changed: Condvar,
}

fn compatible(held: Mode, asked: Mode) -> bool {
    held == Mode::Shared && asked == Mode::Shared
}

impl InKeyspace {
    /// Returns the others who hold something that is not compatible with the request, each once.
    fn blocking(&self, owner: Owner, target: &Target, mode: Mode) -> Vec<Owner> {
        let blocks = |(holder, held): &(Owner, Mode)| *holder != owner && !compatible(*held, mode);
        let mut found: Vec<Owner> = match target {
            Target::Key(key) => {
                self.keys.get(key).into_iter().flatten().filter(|h| blocks(h)).map(|h| h.0).collect()
            }
            Target::Range((start, end)) => {
                let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let keys = self.keys.range::<[u8], _>((Bound::Included(&start[..]), end));
                keys.flat_map(|(_, holders)| holders).filter(|h| blocks(h)).map(|h| h.0).collect()
            }
        };
        let ranges = self
            .ranges
            .iter()
            .filter(|(span, holder, held)| blocks(&(*holder, *held)) && target.overlaps(span));
        found.extend(ranges.map(|(_, holder, _)| *holder));
        found.sort_unstable();
        found.dedup();
        found
    }

    fn grant(&mut self, owner: Owner, target: Target, mode: Mode) {
        match target {
            Target::Key(key) => {
                let holders = self.keys.entry(key).or_default();
                match holders.iter_mut().find(|(holder, _)| *holder == owner) {
                    Some((_, held)) => *held = mode.max(*held),
                    None => holders.push((owner, mode)),
                }
            }
            Target::Range(span) => self.ranges.push((span, owner, mode)),
        }
    }

    fn give_up(&mut self, gone: impl Fn(Owner, Mode) -> bool) {
        self.keys.retain(|_, holders| {
            holders.retain(|(owner, mode)| !gone(*owner, *mode));
            !holders.is_empty()
        });
        self.ranges.retain(|(_, owner, mode)| !gone(*owner, *mode));
    }
}

impl Table {
    /// Returns the cycle that `owner` would close by waiting as it is registered.
    fn cycle(&self, owner: Owner) -> Option<Vec<WaitsFor>> {
        let mut path: Vec<(Owner, Owner)> = Vec::new();
        let mut seen = Vec::new();
        self.leads_to(owner, owner, &mut path, &mut seen).then(|| {
            let step = |&(from, to): &(Owner, Owner)| {
                let Waiting { keyspace, key, .. } = &self.waiting[&from];
                WaitsFor { transaction: from, keyspace: keyspace.clone(), key: key.clone(), holder: to }
            };
            path.iter().map(step).collect()
        })
    }

    fn leads_to(
        &self,
        from: Owner,
        to: Owner,
        path: &mut Vec<(Owner, Owner)>,
        seen: &mut Vec<Owner>,
    ) -> bool {
        let Some(waiting) = self.waiting.get(&from) else { return false };
        for &holder in &waiting.holders {
            path.push((from, holder));
            if holder == to {
                return true;
            }
            if !seen.contains(&holder) {
                seen.push(holder);
                if self.leads_to(holder, to, path, seen) {
                    return true;
                }
            }
            path.pop();
        }
        false
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
        target: Target,
        mode: Mode,
        timeout: Duration,
    ) -> Result<(), NotGranted> {
        let started: Instant = sync::now();
        let mut table = self.table.lock();
        loop {
            let holders = table.keyspaces.entry(keyspace).or_default().blocking(owner, &target, mode);
            if holders.is_empty() {
                table.waiting.remove(&owner);
                table.keyspaces.entry(keyspace).or_default().grant(owner, target, mode);
                return Ok(());
            }
            let left = timeout.saturating_sub(sync::since(started));
            let waiting =
                Waiting { keyspace: name.to_owned(), key: target.first().to_vec(), holders: holders.clone() };
            table.waiting.insert(owner, waiting);
            let cycle = table.cycle(owner);
            if cycle.is_some() || left.is_zero() {
                table.waiting.remove(&owner);
                return Err(cycle.map_or(NotGranted::Timeout { holders }, NotGranted::Deadlock));
            }
            table = self.changed.wait_timeout(table, left);
        }
    }

    /// Gives an exclusive lock to a transaction that held it before the database was opened. Nobody else holds any yet.
    pub(crate) fn restore(&self, owner: Owner, keyspace: KeyspaceId, target: Target) {
        self.table.lock().keyspaces.entry(keyspace).or_default().grant(owner, target, Mode::Exclusive);
    }

    /// Gives up all locks of a transaction.
    pub(crate) fn release(&self, owner: Owner) {
        self.give_up(|holder, _| holder == owner);
    }

    /// Gives up the shared locks of a transaction.
    pub(crate) fn release_shared(&self, owner: Owner) {
        self.give_up(|holder, mode| holder == owner && mode == Mode::Shared);
    }

    fn give_up(&self, gone: impl Fn(Owner, Mode) -> bool) {
        let mut table = self.table.lock();
        table.keyspaces.retain(|_, keyspace| {
            keyspace.give_up(&gone);
            !(keyspace.keys.is_empty() && keyspace.ranges.is_empty())
        });
        drop(table);
        self.changed.notify_all();
    }

    /// The number of locks held.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        let table = self.table.lock();
        table.keyspaces.values().map(|k| k.keys.values().map(Vec::len).sum::<usize>() + k.ranges.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_TIME: Duration = Duration::ZERO;

    fn key(key: &str) -> Target {
        Target::Key(key.as_bytes().to_vec())
    }

    fn range(start: &str, end: &str) -> Target {
        let end = (!end.is_empty()).then(|| end.as_bytes().to_vec());
        Target::Range((start.as_bytes().to_vec(), end))
    }

    fn granted(locks: &Locks, owner: Owner, target: Target, mode: Mode) -> bool {
        locks.acquire(owner, (0, "k"), target, mode, NO_TIME).is_ok()
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
            assert!(locks.acquire(3, (1, "other"), second, asked, NO_TIME).is_ok(), "another keyspace");
            locks.release(1);
            locks.release(2);
            locks.release(3);
            assert_eq!(locks.held(), 0);
        }
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

    /// Three transactions that wait in a circle, by keys and a range: the last one is told who waits for whom.
    #[test]
    fn a_deadlock_is_named() {
        let locks = Locks::default();
        for (owner, name) in [(1, "a"), (2, "b"), (3, "c")] {
            assert!(granted(&locks, owner, key(name), Mode::Exclusive));
        }
        let long = Duration::from_secs(60);
        std::thread::scope(|scope| {
            let wait = |owner, target| locks.acquire(owner, (0, "k"), target, Mode::Shared, long);
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
            let one = scope.spawn(|| locks.acquire(1, (0, "k"), key("a"), Mode::Exclusive, long));
            while locks.table.lock().waiting.is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let refused = locks.acquire(2, (0, "k"), key("a"), Mode::Exclusive, long);
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
        let refused = locks.acquire(3, (0, "k"), range("", ""), Mode::Exclusive, Duration::from_millis(5));
        assert_eq!(refused, Err(NotGranted::Timeout { holders: vec![1, 2] }));
        assert!(locks.table.lock().waiting.is_empty());
    }
}
