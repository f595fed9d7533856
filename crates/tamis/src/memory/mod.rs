//! Memory for reads, shared by several databases of one process. Memory for memtables is in
//! [`writes`].
//!
//! A [`SharedReadMemory`] is a number of bytes. Every database opened with it has a *share*, which
//! it divides between its block cache and the units of its elastic filters. The
//! [rule](tamis_policy::memory::rule) moves bytes to the databases where they save more block reads
//! per second; this module carries out its decisions.
//!
//! # Invariants
//!
//! * All shares together never exceed the total. When shares change, the shrinking ones release
//!   their memory before any other grows. (A block cache that was turned off may keep two blocks
//!   per shard, and filter units stay until the gets that use them end.)
//! * A database has a share from before it creates its cache until it is closed or fails to open.
//!   Its share then goes to the others at once.
//!
//! # Threads and locks
//!
//! Any thread may use a handle. One mutex guards the shares of all members. It is taken with no
//! database lock held, and comes before every database lock taken under it. Those are only the
//! locks of [`Member`]'s methods: the ones around the division within a member. Only background
//! threads report, at most every few hundredths of a second; one may wait while another evicts
//! memory that a database gives up. Reads and writes never wait for it.
//!
//! Members are held weakly. An upgraded member is dropped after the mutex is released, since
//! dropping it takes the mutex.

pub(crate) mod balance;
pub(crate) mod limit;
pub(crate) mod writes;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tamis_policy::memory::rule::{Reading, STEPS, Shares};

use crate::sync::{self, Mutex};

/// A step is at least this many bytes: the size of a block.
const LEAST_STEP: u64 = 4096;

/// Memory for the block caches and elastic filters of several databases in one process, divided
/// between them to save the most block reads. A handle: clones share the same memory.
///
/// Every database opened with it
/// ([`Options::shared_read_memory`](crate::Options::shared_read_memory)) has a share of it,
/// initially an equal one, and divides it between its block cache and the units of its elastic
/// filters. While the databases are in use, memory moves in steps of a 64th of the total, from
/// where a byte saves fewer block reads per second to where it saves more. A database keeps at
/// least a sixteenth of an equal share. A closed database leaves its share to the others.
///
/// ```
/// use tamis::options::SharedReadMemory;
/// use tamis::{Db, Options};
///
/// # let dir = tempfile::tempdir()?;
/// let memory = SharedReadMemory::new(64 << 20);
/// let options = Options { shared_read_memory: Some(memory.clone()), ..Options::default() };
/// let users = Db::open(dir.path().join("users"), options.clone())?;
/// let events = Db::open(dir.path().join("events"), options)?;
/// assert_eq!(memory.members().len(), 2);
/// memory.set_bytes(32 << 20);
/// events.close()?;
/// assert_eq!(users.stats().read_memory_bytes, 32 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedReadMemory(Arc<Pool>);

debug_as!(SharedReadMemory, "SharedReadMemory", memory => "bytes": memory.bytes(), "members": memory.0.inner.lock().members.len());

/// The share of one database in a [`SharedReadMemory`]. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ReadMemoryShare {
    /// The database's directory.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::path"))]
    pub path: PathBuf,
    /// Its share: the sum of the next two, plus any rounding remainder.
    pub bytes: u64,
    /// The capacity of its block cache.
    pub cache_bytes: u64,
    /// The budget of its elastic filters.
    pub filter_bytes: u64,
    /// The bytes in its block cache.
    pub cache_used_bytes: u64,
    /// The memory used by its elastic filters.
    pub filter_used_bytes: u64,
    /// How often its share has changed by a step.
    pub steps: u64,
}

/// A database as the shared memory sees it. The methods are called with the memory's lock held, and
/// must take no lock that is held while reporting, joining or leaving.
pub(crate) trait Member: Debug + Send + Sync {
    /// Brings cache and filters within `bytes` before it returns.
    fn set_share(&self, bytes: u64);

    /// Adds to `share` what the database uses.
    fn usage(&self, share: &mut ReadMemoryShare);
}

#[derive(Debug)]
struct Pool {
    started: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    shares: Shares,
    members: BTreeMap<u64, Joined>,
    next: u64,
}

#[derive(Debug)]
struct Joined {
    path: PathBuf,
    /// The share that it was last told.
    told: u64,
    /// `None` while the member is being created.
    member: Option<Weak<dyn Member>>,
}

/// Members to be dropped when the lock is released.
type Held = Vec<Arc<dyn Member>>;

impl SharedReadMemory {
    /// Creates memory of this many bytes, with no databases yet.
    pub fn new(bytes: u64) -> SharedReadMemory {
        let inner = Inner { shares: Shares::new(bytes), members: BTreeMap::new(), next: 0 };
        SharedReadMemory(Arc::new(Pool { started: sync::now(), inner: Mutex::new(inner) }))
    }

    /// Returns the total in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.inner.lock().shares.total()
    }

    /// Changes the total. All databases keep their proportions. Memory beyond their new shares is
    /// evicted before this returns; larger shares fill with later gets.
    pub fn set_bytes(&self, bytes: u64) {
        self.change(|inner| inner.shares.resize(bytes));
    }

    /// Returns the shares of all open databases, in the order of opening. They are consistent:
    /// together they never exceed the total.
    pub fn members(&self) -> Vec<ReadMemoryShare> {
        let mut held = Held::new();
        let inner = self.0.inner.lock();
        let share = |(&id, joined): (&u64, &Joined)| {
            let (bytes, steps) = inner.shares.of(id);
            let mut share =
                ReadMemoryShare { path: joined.path.clone(), bytes, steps, ..ReadMemoryShare::default() };
            if let Some(member) = joined.member.as_ref().and_then(Weak::upgrade) {
                member.usage(&mut share);
                held.push(member);
            }
            share
        };
        inner.members.iter().map(share).collect()
    }

    /// Reports whether both are the same memory.
    pub(crate) fn is_same(&self, other: &SharedReadMemory) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Adds a database. The others give up its share before this returns. Do not call with a
    /// database lock held.
    pub(crate) fn join(&self, path: &Path) -> Membership {
        let id = self.change(|inner| {
            let id = inner.next;
            inner.next += 1;
            inner.shares.join(id);
            let (told, _) = inner.shares.of(id);
            inner.members.insert(id, Joined { path: path.to_owned(), told, member: None });
            id
        });
        Membership { memory: self.clone(), id }
    }

    /// Changes the shares and tells the members.
    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut held = Held::new();
        let mut inner = self.0.inner.lock();
        let changed = change(&mut inner);
        inner.tell(&mut held);
        changed
    }
}

impl Inner {
    /// Tells the members whose shares have changed, shrinking ones first.
    fn tell(&mut self, held: &mut Held) {
        for grows in [false, true] {
            for (&id, joined) in &mut self.members {
                let (bytes, _) = self.shares.of(id);
                if bytes == joined.told || (bytes > joined.told) != grows {
                    continue;
                }
                if let Some(member) = joined.member.as_ref().and_then(Weak::upgrade) {
                    member.set_share(bytes);
                    held.push(member);
                }
                joined.told = bytes;
            }
        }
    }
}

/// A database's place in shared memory. Dropping it leaves the share to the others.
#[derive(Debug)]
pub(crate) struct Membership {
    memory: SharedReadMemory,
    id: u64,
}

impl Membership {
    /// Returns the current share, and the step size for the current total, in bytes.
    pub(crate) fn share(&self) -> (u64, u64) {
        let inner = self.memory.0.inner.lock();
        (inner.shares.of(self.id).0, (inner.shares.total() / STEPS).max(LEAST_STEP))
    }

    /// Registers the database and tells it its share.
    pub(crate) fn attach(&self, member: Weak<dyn Member>) {
        let mut held = Held::new();
        let mut inner = self.memory.0.inner.lock();
        let (bytes, _) = inner.shares.of(self.id);
        if let (Some(joined), Some(known)) = (inner.members.get_mut(&self.id), member.upgrade()) {
            joined.member = Some(member);
            joined.told = bytes;
            known.set_share(bytes);
            held.push(known);
        }
    }

    /// Reports what bytes are worth to the database, and lets the rule move a step. Do not call
    /// with a database lock held.
    pub(crate) fn report(&self, reading: Reading) {
        self.report_at(sync::since(self.memory.0.started), reading);
    }

    fn report_at(&self, now: Duration, reading: Reading) {
        let mut held = Held::new();
        let mut inner = self.memory.0.inner.lock();
        inner.shares.observe(self.id, now, reading);
        if inner.shares.turn(now) {
            inner.tell(&mut held);
        }
    }

    /// Gives the share to the others, after `release` has freed the memory that it covered. Later
    /// calls do nothing. Do not call with a database lock held.
    pub(crate) fn leave(&self, release: impl FnOnce()) {
        self.memory.change(|inner| {
            if inner.members.remove(&self.id).is_some() {
                release();
                inner.shares.leave(self.id);
            }
        });
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.leave(|| {});
    }
}

#[cfg(test)]
mod tests;
