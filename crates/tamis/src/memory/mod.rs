//! Memory for reads, of one database or shared by several of one process. Memory for memtables is
//! in [`writes`].
//!
//! A [`SharedReadMemory`] is a number of bytes, which a [market](tamis_policy::memory) divides
//! between the [uses](Use) of all databases opened with it; this module carries out its decisions.
//! A database with a limit of its own is the only one of its memory.
//!
//! # Invariants
//!
//! * All uses together never exceed the total. When their bytes change, the shrinking ones release
//!   memory before any other grows. (A block cache that was turned off may keep two blocks per
//!   shard, and filter units stay until the gets that use them end.)
//! * A database has a share from before it creates its cache until it is closed or fails to open.
//!   Its share then goes to the others at once.
//!
//! # Threads and locks
//!
//! Any thread may use a handle. One mutex guards the market. It is taken with no database lock
//! held, and comes before every database lock taken under it. Those are only the locks of
//! [`Member`]'s methods: the ones around a change of the filters' budget and of the cache's
//! capacity. Only background threads report, at most every few hundredths of a second; one may wait
//! while another evicts memory that a database gives up. Reads and writes never wait for it.
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

use tamis_policy::memory::{Market, Reading};

use crate::sync::Mutex;

/// A step is at least this many bytes: the size of a block.
const LEAST_STEP: u64 = 4096;

/// Memory for the block caches, elastic filters and record caches of several databases in one
/// process, divided between them to save the most block reads. A handle: clones share the same
/// memory.
///
/// Every database opened with it
/// ([`Options::shared_read_memory`](crate::Options::shared_read_memory)) has a share of it,
/// initially an equal one: a third each for its block cache, the units of its elastic filters and its
/// record cache. While the databases are in use, memory moves in steps of a 64th of the total, from
/// where a byte saves fewer block reads to where it saves more, within a database or between two.
/// Worths are compared over the same number of gets of all databases. A database keeps at least
/// three 32nds of an equal share. A closed database leaves its share to the others.
///
/// ```
/// use tamis::options::SharedReadMemory;
/// use tamis::Options;
///
/// # let dir = tempfile::tempdir()?;
/// let memory = SharedReadMemory::new(64 << 20);
/// let options = Options::default().shared_read_memory(Some(memory.clone()));
/// let users = options.clone().open(dir.path().join("users"))?;
/// let events = options.open(dir.path().join("events"))?;
/// assert_eq!(memory.members().len(), 2);
/// memory.set_bytes(32 << 20);
/// events.close()?;
/// assert_eq!(users.stats().read_memory_bytes, 32 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedReadMemory(Arc<Mutex<Inner>>);

debug_as!(SharedReadMemory, "SharedReadMemory", memory => "bytes": memory.bytes(), "members": memory.0.lock().members.len());

/// The share of one database in a [`SharedReadMemory`]. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ReadMemoryShare {
    /// The database's directory.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::path"))]
    pub path: PathBuf,
    /// Its share: the sum of the next three.
    pub bytes: u64,
    /// The capacity of its block cache.
    pub cache_bytes: u64,
    /// The budget of its elastic filters.
    pub filter_bytes: u64,
    /// The capacity of its record cache.
    pub record_bytes: u64,
    /// The bytes in its block cache.
    pub cache_used_bytes: u64,
    /// The memory used by its elastic filters.
    pub filter_used_bytes: u64,
    /// The bytes in its record cache.
    pub record_used_bytes: u64,
    /// The number of steps that the three gave or took.
    pub steps: u64,
}

/// What a database uses memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    /// The block cache.
    Blocks,
    /// The units of elastic filters.
    Filters,
    /// The record cache.
    Records,
}

/// All uses.
pub(crate) const USES: [Use; 3] = [Use::Blocks, Use::Filters, Use::Records];

/// A database as the shared memory sees it. The methods are called with the memory's lock held, and
/// must take no lock that is held while reporting, joining or leaving.
pub(crate) trait Member: Debug + Send + Sync {
    /// Brings a use within `bytes` before it returns.
    fn set_bytes(&self, of: Use, bytes: u64);

    /// Returns the bytes that a use has filled.
    fn used_bytes(&self, of: Use) -> u64;
}

#[derive(Debug)]
struct Inner {
    market: Market<Use>,
    members: BTreeMap<u64, Joined>,
    next: u64,
}

#[derive(Debug)]
struct Joined {
    path: PathBuf,
    /// The bytes that each use was last told. Together with those of the others never above the
    /// total.
    told: BTreeMap<Use, u64>,
    /// `None` while the member is being created.
    member: Option<Weak<dyn Member>>,
}

/// Members to be dropped when the lock is released.
type Held = Vec<Arc<dyn Member>>;

impl SharedReadMemory {
    /// Creates memory of this many bytes, with no databases yet.
    pub fn new(bytes: u64) -> SharedReadMemory {
        let inner = Inner { market: Market::new(bytes), members: BTreeMap::new(), next: 0 };
        SharedReadMemory(Arc::new(Mutex::new(inner)))
    }

    /// Returns the total in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.lock().market.total()
    }

    /// Changes the total. All databases keep their proportions. Memory beyond their new shares is
    /// evicted before this returns; larger shares fill with later gets.
    pub fn set_bytes(&self, bytes: u64) {
        self.change(|inner| inner.market.resize(bytes));
    }

    /// Returns the shares of all open databases, in the order of opening. They are consistent:
    /// together they never exceed the total.
    pub fn members(&self) -> Vec<ReadMemoryShare> {
        let mut held = Held::new();
        let inner = self.0.lock();
        let share = |(&id, joined): (&u64, &Joined)| {
            let member = joined.member.as_ref().and_then(Weak::upgrade);
            let used = |of| member.as_ref().map_or(0, |member| member.used_bytes(of));
            let share = ReadMemoryShare {
                path: joined.path.clone(),
                bytes: joined.told.values().sum(),
                cache_bytes: joined.told[&Use::Blocks],
                filter_bytes: joined.told[&Use::Filters],
                record_bytes: joined.told[&Use::Records],
                cache_used_bytes: used(Use::Blocks),
                filter_used_bytes: used(Use::Filters),
                record_used_bytes: used(Use::Records),
                steps: inner.market.steps_of(id),
            };
            held.extend(member);
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
            inner.market.join(id, &USES);
            let told = USES.map(|of| (of, 0)).into();
            inner.members.insert(id, Joined { path: path.to_owned(), told, member: None });
            id
        });
        Membership { memory: self.clone(), id }
    }

    /// Changes the division and tells the members.
    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut held = Held::new();
        let mut inner = self.0.lock();
        let changed = change(&mut inner);
        inner.tell(&mut held);
        changed
    }
}

impl Inner {
    /// Tells the members what has changed, shrinking uses first. A member that is being dropped
    /// shrinks when it leaves, which tells the others again: until then none grows.
    fn tell(&mut self, held: &mut Held) {
        for grows in [false, true] {
            let mut is_told = true;
            for ((id, of), bytes) in self.market.bytes() {
                let joined = self.members.get_mut(&id).expect("every owner is a member");
                let told = joined.told.entry(of).or_default();
                if bytes == *told || (bytes > *told) != grows {
                    continue;
                }
                if let Some(member) = &joined.member {
                    let Some(member) = member.upgrade() else {
                        is_told = false;
                        continue;
                    };
                    member.set_bytes(of, bytes);
                    held.push(member);
                }
                *told = bytes;
            }
            if !is_told {
                return;
            }
        }
    }
}

/// A database's place in memory for reads. Dropping it leaves the share to the others.
#[derive(Debug)]
pub(crate) struct Membership {
    memory: SharedReadMemory,
    id: u64,
}

impl Membership {
    /// Returns the bytes that a use gets at present.
    pub(crate) fn bytes(&self, of: Use) -> u64 {
        self.memory.0.lock().market.bytes_of(self.id, of)
    }

    /// Returns the size of a step at present, at least that of a block.
    pub(crate) fn step(&self) -> u64 {
        self.memory.0.lock().market.step().max(LEAST_STEP)
    }

    /// Registers the database and tells it its bytes.
    pub(crate) fn attach<M: Member + 'static>(&self, member: &Arc<M>) {
        let mut inner = self.memory.0.lock();
        let joined = inner.members.get_mut(&self.id).expect("it has not left");
        joined.told.iter().for_each(|(&of, &bytes)| member.set_bytes(of, bytes));
        let member: Weak<M> = Arc::downgrade(member);
        joined.member = Some(member);
    }

    /// Reports the gets so far and what bytes are worth to the database, and lets a step move. Do
    /// not call with a database lock held.
    pub(crate) fn report(&self, gets: u64, readings: impl IntoIterator<Item = (Use, Reading)>) {
        let mut held = Held::new();
        let mut inner = self.memory.0.lock();
        if inner.market.report(self.id, gets, readings) {
            inner.tell(&mut held);
        }
    }

    /// Changes the total, for all members.
    pub(crate) fn set_total(&self, bytes: u64) {
        self.memory.set_bytes(bytes);
    }

    /// Gives the share to the others, after `release` has freed the memory that it covered. Later
    /// calls do nothing. Do not call with a database lock held.
    pub(crate) fn leave(&self, release: impl FnOnce()) {
        self.memory.change(|inner| {
            if inner.members.remove(&self.id).is_some() {
                release();
                inner.market.leave(self.id);
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
