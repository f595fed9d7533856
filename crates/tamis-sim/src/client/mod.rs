//! One client: carries out its operations and checks every answer against the oracle.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tamis::simulation::Scheduler;
use tamis::{AdminError, Db, Keyspace, KeyspaceOptions, Options};

use crate::disk::Disk;
use crate::machine::Machine;
use crate::oracle::{Life, Oracle, Spaces, Within, key};
use crate::plan::{Change, Op, Space};

pub mod contents;
mod copies;
mod followers;
pub mod reads;
mod spaces;
mod writes;

use contents::found;
use followers::Followed;
use reads::Pinned;

/// The state shared by all clients of a session.
pub struct Shared {
    /// The machine.
    pub machine: Arc<Machine>,
    /// Its disk.
    pub disk: Disk,
    /// The oracle. Never locked while the engine is called.
    pub oracle: Arc<Mutex<Oracle>>,
    /// The options for opening other copies.
    pub options: Options,
    /// The options of keyspaces that come and go, each for every so many of them.
    pub others: Vec<KeyspaceOptions>,
    /// The keyspaces that there are. Never locked while the engine is called.
    pub spaces: Mutex<BTreeMap<Space, Known>>,
    /// The number of keys of each client in each keyspace.
    pub keys: u8,
    /// Whether every acknowledged write survives a power cut.
    pub always_synced: bool,
    /// The largest trees that were seen in the session, in bytes.
    pub largest: AtomicU64,
    /// Somebody has begun to close the database.
    pub closing: AtomicBool,
}

/// A keyspace that there is.
#[derive(Clone)]
pub struct Known {
    /// Its handle.
    pub keyspace: Keyspace,
    /// Its life.
    pub life: Life,
}

/// What a client keeps from one operation to the next.
#[derive(Default)]
pub struct Kept {
    pinned: VecDeque<Pinned>,
    follower: Option<Followed>,
}

/// The bound of an operation while the disk works.
///
/// A database here holds at most a few MiB, in some hundred tables. To write a table takes the disk
/// about 3 ms and to read it 1 ms, so to rewrite the whole tree takes 2 s. An operation that has to
/// wait for all background work waits for some rewrites of each level, of which there are six at
/// most, and for pauses of the engine, which are at most a second each.
pub const BOUND: Duration = Duration::from_secs(60);

/// A running client.
pub struct Client {
    /// Its number.
    pub number: usize,
    /// The shared state.
    pub shared: Arc<Shared>,
    /// The database.
    pub db: Db,
}

type Failure = String;

impl Shared {
    /// Locks the oracle.
    pub fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the list of keyspaces.
    pub fn spaces(&self) -> MutexGuard<'_, BTreeMap<Space, Known>> {
        self.spaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts an error that a disk fault explains. `failures` is the number of failed disk
    /// operations when the operation began.
    pub fn excuse(
        &self,
        what: &str,
        error: &dyn std::fmt::Display,
        failures: Option<u64>,
    ) -> Result<(), Failure> {
        let explained = match failures {
            Some(before) => self.disk.failures() > before,
            None => self.disk.was_hurt(),
        };
        if explained || self.disk.has_crashed() || self.closing.load(Relaxed) {
            self.machine.tell(|| format!("{what} failed: {error}"));
            return Ok(());
        }
        Err(format!("{what} failed without a disk fault: {error}"))
    }

    /// Like `excuse`, for an operation on keyspaces that somebody may have dropped.
    fn excuse_in(
        &self,
        mut lives: impl Iterator<Item = Life>,
        what: &str,
        error: &dyn std::fmt::Display,
        failures: Option<u64>,
    ) -> Result<(), Failure> {
        if lives.any(|life| self.oracle().may_be_dropped(life)) {
            self.machine.tell(|| format!("{what} failed: {error}"));
            return Ok(());
        }
        self.excuse(what, error, failures)
    }
}

impl Client {
    /// Carries out operations until the machine crashes.
    pub fn work(&self, ops: &[Op]) {
        let mut kept = Kept::default();
        for (at, op) in ops.iter().enumerate() {
            if self.shared.disk.has_crashed() {
                break;
            }
            self.step(at, op, &mut kept);
        }
    }

    /// Carries out one operation, which must end in time.
    pub fn step(&self, at: usize, op: &Op, kept: &mut Kept) {
        let machine = &self.shared.machine;
        let what = || format!("client {}, operation {at} ({op:?})", self.number);
        let result = machine.within(BOUND, what, || self.carry_out(op, kept));
        machine.tell(|| format!("client {} did {at}: {op:?}", self.number));
        if let Err(why) = result {
            machine.fail(format!("{}: {why}", what()));
        }
    }

    fn carry_out(&self, op: &Op, kept: &mut Kept) -> Result<(), Failure> {
        let pinned = &mut kept.pinned;
        match op {
            Op::Write { changes, synced } => self.write(changes, *synced),
            Op::Ingest { space, from, to } => {
                self.space(*space).map_or(Ok(()), |known| self.ingest(&known, *from, *to))
            }
            Op::Sync => {
                let moment = self.shared.oracle().stamp();
                match self.db.sync() {
                    Ok(()) => self.shared.oracle().synced(moment),
                    Err(error) => self.shared.excuse("a sync", &error, None)?,
                }
                Ok(())
            }
            Op::Overwrite { space, times } => self.overwrite(*space, *times),
            Op::Get { space, client, key: k } => self.get(*space, usize::from(*client), *k),
            Op::MultiGet { space, client } => self.multi_get(*space, usize::from(*client)),
            Op::Scan { space, client, reverse } => self.scan(*space, client.map(usize::from), *reverse),
            Op::Snapshot => {
                self.pin(pinned);
                Ok(())
            }
            Op::Versions { space, key, count, len } => (0..*count).try_for_each(|_| {
                self.shared.machine.renew();
                self.write(&[Change::Put { space: *space, key: *key, len: *len }], false)?;
                self.pin(pinned);
                Ok(())
            }),
            Op::ReadSnapshot { reverse } => {
                let Some(mut next) = pinned.pop_front() else { return Ok(()) };
                self.read_snapshot(&mut next, *reverse)?;
                pinned.push_back(next);
                Ok(())
            }
            Op::DropSnapshots => {
                pinned.drain(pinned.len() / 2..);
                Ok(())
            }
            Op::Flush => self.administer(None, "a flush", self.db.flush()),
            Op::Compact { space } => {
                let Some(known) = self.space(*space) else { return Ok(()) };
                self.administer(Some(known.life), "a compaction", known.keyspace.compact())
            }
            Op::Checkpoint => self.checkpoint(),
            Op::ReadOnly => self.read_only(),
            Op::Follow { by_itself } => self.follow(&mut kept.follower, *by_itself),
            Op::Unfollow => {
                kept.follower = None;
                Ok(())
            }
            Op::SetOption { space, name, value } => {
                let Some(known) = self.space(*space) else { return Ok(()) };
                let changed = known.keyspace.set_options(&[(name, value)]);
                self.administer(Some(known.life), "a change of options", changed)
            }
            Op::Create { from, count } => self.create_spaces(*from, *count),
            Op::Drop { from, count } => self.drop_spaces(*from, *count),
            Op::List => self.list_spaces(),
            Op::Verify => {
                let failures = self.shared.disk.failures();
                match self.db.verify() {
                    Ok(_) => Ok(()),
                    Err(error) => self.shared.excuse("verification", &error, Some(failures)),
                }
            }
            Op::Pause { millis } => {
                self.shared.machine.sleep(Duration::from_millis(u64::from(*millis)));
                Ok(())
            }
        }
    }

    fn space(&self, space: Space) -> Option<Known> {
        self.shared.spaces().get(&space).cloned()
    }

    fn administer(
        &self,
        life: Option<Life>,
        what: &str,
        result: Result<(), AdminError>,
    ) -> Result<(), Failure> {
        match result {
            // Options that do not fit the keyspace are rejected.
            Ok(()) | Err(AdminError::Options(_)) => Ok(()),
            Err(error) => self.shared.excuse_in(life.into_iter(), what, &error, None),
        }
    }
}

/// The name of the second keyspace.
pub const SECOND: &str = "second";

/// The name of the first one.
const DEFAULT: &str = "default";
