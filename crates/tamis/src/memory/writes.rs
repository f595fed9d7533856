//! Memory for memtables, shared by several databases of one process.
//!
//! # The rule
//!
//! Whenever the memtables of all databases have taken another 64th of the total (1 MiB at most),
//! the writing thread checks all of them. Once active memtables exceed half of the total, the
//! largest of all is due for a flush: its database gets a request, and seals the memtable before
//! its next write or, without writes, in its flush thread. So an idle database gives up memory when
//! a busy one needs it. Beyond the total, each writer flushes its own database, unless that holds
//! next to nothing, and waits for that flush. It does not wait for other databases, whose flushes
//! may fail.
//!
//! # Invariants
//!
//! * Only a database's own threads seal its memtables, under its own locks: a request is just a
//!   flag.
//! * A request is repeated while its reason lasts, so none is lost for good.
//!
//! # Threads and locks
//!
//! Any thread may use a handle. One leaf mutex guards the list of members. Writers take it with
//! their database's log lock held; under it they take another leaf, the lock of a database's list
//! of filled memtables. The flags and counters publish nothing (`Relaxed`): a thread that sees one
//! late acts at the next check.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};

use crate::memory::balance::Balance;
use crate::sync::Mutex;

/// Memtables take at most this many bytes between two checks.
const MOST_UNSEEN: u64 = 1 << 20;

/// Memtables take at most this fraction of the total between two checks.
const UNSEEN_SHARE: u64 = 64;

/// Beyond the total, active memtables together may still grow to this fraction of it.
const EXCESS_SHARE: u64 = 8;

/// Memory for the memtables of several databases in one process. A handle: clones share the same
/// memory.
///
/// It limits the memtables of all databases opened with it
/// ([`Options::shared_write_memory`](crate::Options::shared_write_memory)) together. Beyond half of
/// it, the largest active memtable is flushed, even in an idle database. Beyond all of it, writers
/// wait for flushes of their database; small memtables may take an eighth more. The check runs
/// whenever memtables have taken another 64th of it, at most 1 MiB. If a database's flushes fail,
/// its memtables stay and count; so do memtables that opening fills from a log. The limits of each
/// database and keyspace (`memtable_budget_bytes`, `memtable_bytes`) also apply.
///
/// ```
/// use tamis::options::SharedWriteMemory;
/// use tamis::Options;
///
/// # let dir = tempfile::tempdir()?;
/// let memory = SharedWriteMemory::new(64 << 20);
/// let options = Options::default().shared_write_memory(Some(memory.clone()));
/// let users = options.clone().open(dir.path().join("users"))?;
/// let events = options.open(dir.path().join("events"))?;
/// users.put("anna", "1")?;
/// assert!(memory.used_bytes() > 0 && memory.used_bytes() < 64 << 20);
/// assert_eq!(memory.members().len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedWriteMemory(Arc<Pool>);

debug_as!(SharedWriteMemory, "SharedWriteMemory", memory =>
    "bytes": memory.bytes(),
    "members": memory.0.members.lock().joined.len()
);

/// How much of a [`SharedWriteMemory`] one database's memtables take. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WriteMemoryUse {
    /// The database's directory.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::path"))]
    pub path: PathBuf,
    /// Memtables being written to.
    pub active_bytes: u64,
    /// Memtables being flushed or waiting for a flush.
    pub sealed_bytes: u64,
}

/// The memtables of one database, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InMemtables {
    pub(crate) active: u64,
    /// The largest active memtable.
    pub(crate) largest: u64,
    pub(crate) sealed: u64,
}

/// A database as the shared memory sees it. The methods take leaf locks only.
pub(crate) trait Writer: Debug + Send + Sync {
    fn in_memtables(&self) -> InMemtables;

    /// Makes the flush thread check whether sealing is wanted.
    fn wake(&self);
}

#[derive(Debug)]
struct Pool {
    total: AtomicU64,
    /// Gives unneeded memory to reads, if reads and writes share one limit.
    balance: Option<Arc<Balance>>,
    /// Bytes taken since the last check.
    unseen: AtomicU64,
    members: Mutex<Members>,
}

#[derive(Debug, Default)]
struct Members {
    joined: BTreeMap<u64, Joined>,
    next: u64,
}

#[derive(Debug)]
struct Joined {
    path: PathBuf,
    writer: Weak<dyn Writer>,
    asked: Arc<AtomicBool>,
}

impl Pool {
    /// Counts the memtables of every member. Also returns the members: if this is a member's last
    /// reference, the caller drops it after the mutex is released.
    fn count(&self) -> Vec<(Counted, Arc<dyn Writer>)> {
        let members = self.members.lock();
        let count = |joined: &Joined| {
            let writer = joined.writer.upgrade()?;
            let counted = Counted {
                path: joined.path.clone(),
                asked: joined.asked.clone(),
                bytes: writer.in_memtables(),
            };
            Some((counted, writer))
        };
        members.joined.values().filter_map(count).collect()
    }

    fn used(&self) -> u64 {
        self.count().iter().map(|(counted, _)| counted.bytes.active + counted.bytes.sealed).sum()
    }
}

/// The result of checking all memtables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Whether they exceed the total.
    pub(crate) is_over: bool,
    /// If so, memtables larger than this are flushed, in bytes.
    pub(crate) most: u64,
}

struct Counted {
    path: PathBuf,
    asked: Arc<AtomicBool>,
    bytes: InMemtables,
}

impl SharedWriteMemory {
    /// Creates memory of this many bytes, with no databases yet.
    pub fn new(bytes: u64) -> SharedWriteMemory {
        SharedWriteMemory::within(bytes, None)
    }

    /// Like `new`, as part of a limit for reads and writes.
    pub(super) fn within(bytes: u64, balance: Option<Arc<Balance>>) -> SharedWriteMemory {
        let (total, unseen) = (AtomicU64::new(bytes), AtomicU64::new(0));
        SharedWriteMemory(Arc::new(Pool { total, balance, unseen, members: Mutex::default() }))
    }

    /// Gives reads what memtables leave of the common limit, if there is one. Do not call with a
    /// database lock held.
    pub(crate) fn balance(&self) {
        if let Some(balance) = &self.0.balance {
            balance.follow(self.used_bytes());
        }
    }

    /// Returns the total in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.total.load(Relaxed)
    }

    /// Changes the total. If the new total is smaller, memtables beyond it are flushed as databases
    /// are written to.
    pub fn set_bytes(&self, bytes: u64) {
        self.0.total.store(bytes, Relaxed);
    }

    /// Returns the memory of all open databases' memtables. Visits every keyspace that has anything
    /// in memory.
    pub fn used_bytes(&self) -> u64 {
        self.0.used()
    }

    /// Returns the memory of each open database's memtables, in the order of opening.
    pub fn members(&self) -> Vec<WriteMemoryUse> {
        let each = |(counted, _): (Counted, _)| WriteMemoryUse {
            path: counted.path,
            active_bytes: counted.bytes.active,
            sealed_bytes: counted.bytes.sealed,
        };
        self.0.count().into_iter().map(each).collect()
    }

    /// Reports whether both are the same memory.
    pub(crate) fn is_same(&self, other: &SharedWriteMemory) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Adds a database.
    pub(crate) fn join(&self, path: &Path, writer: Arc<dyn Writer>) -> WriteMembership {
        let asked = Arc::<AtomicBool>::default();
        let mut members = self.0.members.lock();
        let id = members.next;
        members.next += 1;
        let joined = Joined { path: path.to_owned(), writer: Arc::downgrade(&writer), asked: asked.clone() };
        members.joined.insert(id, joined);
        WriteMembership { memory: self.clone(), id, asked, _writer: writer }
    }
}

/// A database's place in shared memory for writes, until it leaves or is dropped.
#[derive(Debug)]
pub(crate) struct WriteMembership {
    memory: SharedWriteMemory,
    id: u64,
    asked: Arc<AtomicBool>,
    /// Other members hold it only while counting.
    _writer: Arc<dyn Writer>,
}

impl WriteMembership {
    /// Notes that memtables have taken `bytes` more. When a check is due, checks all memtables,
    /// requests a flush if needed, and returns what it saw.
    pub(crate) fn note(&self, bytes: u64) -> Option<Look> {
        let (pool, total) = (&self.memory.0, self.memory.bytes());
        let unseen = pool.unseen.fetch_add(bytes, Relaxed) + bytes;
        if unseen < (total / UNSEEN_SHARE).min(MOST_UNSEEN) {
            return None;
        }
        pool.unseen.store(0, Relaxed);
        let counted = pool.count();
        let waiting = || counted.iter().filter(|(c, _)| !c.asked.load(Relaxed));
        if waiting().map(|(c, _)| c.bytes.active).sum::<u64>() > total / 2
            && let Some((largest, writer)) = waiting().max_by_key(|(c, _)| c.bytes.largest)
        {
            largest.asked.store(true, Relaxed);
            if !Arc::ptr_eq(&largest.asked, &self.asked) {
                writer.wake();
            }
        }
        let used: u64 = counted.iter().map(|(c, _)| c.bytes.active + c.bytes.sealed).sum();
        Some(Look { is_over: used > total, most: total / (EXCESS_SHARE * counted.len().max(1) as u64) })
    }

    /// Reports whether this database has been asked to seal its largest memtable.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Relaxed)
    }

    /// Ends the request, after sealing or if there is nothing left to seal.
    pub(crate) fn note_sealed(&self) {
        self.asked.store(false, Relaxed);
    }

    /// Reports whether all memtables exceed the total.
    pub(crate) fn is_over(&self) -> bool {
        self.memory.0.used() > self.memory.bytes()
    }

    /// Leaves the memory. Later calls do nothing.
    pub(crate) fn leave(&self) {
        self.memory.0.members.lock().joined.remove(&self.id);
    }
}

impl Drop for WriteMembership {
    fn drop(&mut self) {
        self.leave();
    }
}
