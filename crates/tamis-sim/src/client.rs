//! One client: carries out its operations and checks every answer against the oracle.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::simulation::Scheduler;
use tamis::{AdminError, Db, Durability, Iter, Keyspace, Options, ReadError, Slice, Snapshot, WriteBatch};

use crate::disk::Disk;
use crate::machine::Machine;
use crate::oracle::{Candidates, Effect, Oracle, Seen, Within, effects, key, value};
use crate::plan::{Change, Op, Space};

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
    /// The number of keys of each client in each keyspace.
    pub keys: u8,
    /// Whether every acknowledged write survives a power cut.
    pub always_synced: bool,
    /// The largest trees that were seen in the session, in bytes.
    pub largest: AtomicU64,
}

/// A running client.
pub struct Client {
    /// Its number.
    pub number: usize,
    /// The shared state.
    pub shared: Arc<Shared>,
    /// The database.
    pub db: Db,
    /// Its two keyspaces.
    pub spaces: [Keyspace; 2],
}

struct Pinned {
    snapshot: Snapshot,
    known: Candidates,
}

type Failure = String;

/// The most snapshots that a client keeps.
const MOST_SNAPSHOTS: usize = 60;

impl Shared {
    /// Locks the oracle.
    pub fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
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
        if explained || self.disk.has_crashed() {
            self.machine.tell(|| format!("{what} failed: {error}"));
            return Ok(());
        }
        Err(format!("{what} failed without a disk fault: {error}"))
    }
}

impl Client {
    /// Carries out operations until the machine crashes.
    pub fn work(&self, ops: &[Op]) {
        let mut pinned = VecDeque::new();
        for (at, op) in ops.iter().enumerate() {
            if self.shared.disk.has_crashed() {
                break;
            }
            let result = self.carry_out(op, &mut pinned);
            self.shared.machine.tell(|| format!("client {} did {at}: {op:?}", self.number));
            if let Err(what) = result {
                let number = self.number;
                self.shared.machine.fail(format!("client {number}, operation {at} ({op:?}): {what}"));
            }
        }
    }

    fn carry_out(&self, op: &Op, pinned: &mut VecDeque<Pinned>) -> Result<(), Failure> {
        match op {
            Op::Write { changes, synced } => self.write(changes, *synced),
            Op::Ingest { space, from, to } => self.ingest(*space, *from, *to),
            Op::Sync => {
                let moment = self.shared.oracle().stamp();
                match self.db.sync() {
                    Ok(()) => self.shared.oracle().synced(moment),
                    Err(error) => self.shared.excuse("a sync", &error, None)?,
                }
                Ok(())
            }
            Op::Overwrite { space, times } => self.overwrite(*space, *times),
            Op::Get { space, client, key: k } => {
                let bytes = key(usize::from(*client), *k);
                let within =
                    Within { space: Some(*space), client: Some(usize::from(*client)), key: Some(*k) };
                self.observe(&within, || {
                    let value = self.space(*space).get(&bytes)?;
                    Ok(value.map(|value| ((*space, bytes.clone()), value.to_vec())).into_iter().collect())
                })
            }
            Op::MultiGet { space, client } => {
                let client = usize::from(*client);
                let keys: Vec<Vec<u8>> = (0..self.shared.keys).map(|k| key(client, k)).collect();
                let within = Within { space: Some(*space), client: Some(client), key: None };
                self.observe(&within, || {
                    let values = self.space(*space).multi_get(&keys)?;
                    Ok(found(*space, keys.iter().zip(values)))
                })
            }
            Op::Scan { space, client, reverse } => {
                let client = client.map(usize::from);
                let within = Within { space: Some(*space), client, key: None };
                let keyspace = self.space(*space);
                self.observe_iterator(&within, *space, *reverse, || match client {
                    Some(client) => keyspace.prefix(&key(client, 0)[..2]),
                    None => keyspace.iter(),
                })
            }
            Op::Snapshot => {
                self.pin(pinned);
                Ok(())
            }
            Op::Versions { space, key, count, len } => (0..*count).try_for_each(|_| {
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
            Op::Flush => self.administer("a flush", self.db.flush()),
            Op::Compact { space } => self.administer("a compaction", self.space(*space).compact()),
            Op::Checkpoint => self.checkpoint(),
            Op::ReadOnly => self.read_only(),
            Op::SetOption { space, name, value } => {
                match self.space(*space).set_options(&[(name, value)]) {
                    // Options that do not fit the keyspace are rejected.
                    Ok(()) | Err(AdminError::Options(_)) => Ok(()),
                    Err(error) => self.shared.excuse("a change of options", &error, None),
                }
            }
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

    fn space(&self, space: Space) -> &Keyspace {
        &self.spaces[usize::from(space)]
    }

    fn administer(&self, what: &str, result: Result<(), AdminError>) -> Result<(), Failure> {
        match result {
            Ok(()) => Ok(()),
            Err(error) => self.shared.excuse(what, &error, None),
        }
    }

    fn write(&self, changes: &[Change], synced: bool) -> Result<(), Failure> {
        let number = self.shared.oracle().next(self.number);
        let mut batch = WriteBatch::new();
        let mut all = Vec::new();
        for change in changes {
            let effects = effects(self.number, number, change);
            match change {
                Change::DeleteRange { space, from, to } => {
                    let range = key(self.number, *from)..key(self.number, *to);
                    batch.delete_range_in(self.space(*space), range);
                }
                _ => effects.iter().for_each(|effect| match effect {
                    Effect::Put((space, key), value) => _ = batch.put_in(self.space(*space), key, value),
                    Effect::Append((space, key), operand) => {
                        batch.merge_in(self.space(*space), key, operand);
                    }
                    Effect::Delete((space, key)) => _ = batch.delete_in(self.space(*space), key),
                }),
            }
            all.extend(effects);
        }
        let began = self.shared.oracle().begin(self.number, all);
        debug_assert_eq!(began, number);
        let durability = if synced { Durability::Sync } else { self.shared.options.durability };
        match self.db.write_with(batch, durability) {
            Ok(()) => {
                let durable = synced || self.shared.always_synced;
                self.shared.oracle().acknowledged(self.number, number, durable);
                Ok(())
            }
            Err(error) => {
                self.shared.oracle().failed(self.number, number);
                self.shared.excuse("a write", &error, None)
            }
        }
    }

    /// Overwrites the client's keys. However busy that keeps the database, the space in use stays
    /// within the sum that `docs/deletes.md` states.
    fn overwrite(&self, space: Space, times: u16) -> Result<(), Failure> {
        // The files of readers that have gone, such as the look at all contents after an opening,
        // are removed within a second.
        self.shared.machine.sleep(Duration::from_secs(1));
        for n in 0..times {
            let key = (n % u16::from(self.shared.keys)) as u8;
            self.write(&[Change::Put { space, key, len: 900 }], false)?;
            if n % 8 == 0 && !self.shared.disk.was_hurt() {
                let before = stated(&self.db);
                let used = self.shared.disk.used(self.db.path());
                let after = stated(&self.db);
                let seen = before.0.max(after.0);
                let largest = self.shared.largest.fetch_max(seen, Relaxed).max(seen);
                // What each thread has replaced and not yet removed.
                let removals = (self.shared.options.background_threads as u64 + 1) * largest;
                let sum = before.1.max(after.1) + removals;
                if used > sum && !self.shared.disk.has_crashed() {
                    return Err(format!("{used} bytes are in use, but the stated sum is {sum}"));
                }
            }
        }
        Ok(())
    }

    fn ingest(&self, space: Space, from: u8, to: u8) -> Result<(), Failure> {
        let number = self.shared.oracle().next(self.number);
        // A session that crashed may have left a file of this number.
        let path = format!("/external-{}-{number}-{}", self.number, self.shared.oracle().stamp());
        let path = Path::new(&path);
        let written: Vec<(Vec<u8>, Vec<u8>)> =
            (from..to).map(|k| (key(self.number, k), value(self.number, number, 30))).collect();
        let build = || {
            let fs = Arc::new(self.shared.disk.clone());
            let options = self.space(space).options();
            let mut builder = ExternalTableBuilder::create_on(fs, path, &options)?;
            written.iter().try_for_each(|(key, value)| builder.put(key, value))?;
            builder.finish()
        };
        if let Err(error) = build() {
            return self.shared.excuse("building a table", &error, None);
        }
        let all =
            written.iter().map(|(key, value)| Effect::Put((space, key.clone()), value.clone())).collect();
        self.shared.oracle().begin(self.number, all);
        match self.space(space).ingest(&[path], IngestOptions::default()) {
            Ok(_) => {
                // An ingestion survives a power cut when it returns.
                self.shared.oracle().acknowledged(self.number, number, true);
                Ok(())
            }
            Err(error) => {
                self.shared.oracle().failed(self.number, number);
                self.shared.excuse("an ingestion", &error, None)
            }
        }
    }

    /// Reads and checks the answer.
    fn observe(
        &self,
        within: &Within,
        read: impl FnOnce() -> Result<Seen, ReadError>,
    ) -> Result<(), Failure> {
        let failures = self.shared.disk.failures();
        let began = self.shared.oracle().stamp();
        let seen = match read() {
            Ok(seen) => seen,
            Err(error) => return self.shared.excuse("a read", &error, Some(failures)),
        };
        let mut oracle = self.shared.oracle();
        let ended = oracle.stamp();
        oracle.check(&seen, within, began, ended).map(drop)
    }

    /// Checks that an iterator shows the state at its creation.
    fn observe_iterator(
        &self,
        within: &Within,
        space: Space,
        reverse: bool,
        make: impl FnOnce() -> Iter,
    ) -> Result<(), Failure> {
        let failures = self.shared.disk.failures();
        let began = self.shared.oracle().stamp();
        let iterator = make();
        let ended = self.shared.oracle().stamp();
        match collect(space, iterator, reverse) {
            Ok(seen) => self.shared.oracle().check(&seen?, within, began, ended).map(drop),
            Err(error) => self.shared.excuse("an iterator", &error, Some(failures)),
        }
    }

    fn pin(&self, pinned: &mut VecDeque<Pinned>) {
        if pinned.len() == MOST_SNAPSHOTS {
            pinned.pop_front();
        }
        let began = self.shared.oracle().stamp();
        let snapshot = self.db.snapshot();
        let mut oracle = self.shared.oracle();
        let ended = oracle.stamp();
        pinned.push_back(Pinned { snapshot, known: oracle.window(began, ended) });
    }

    fn read_snapshot(&self, pinned: &mut Pinned, reverse: bool) -> Result<(), Failure> {
        let failures = self.shared.disk.failures();
        let mut all = Seen::new();
        for space in 0..2u8 {
            let keyspace = pinned.snapshot.keyspace(self.space(space));
            let read = collect(space, keyspace.iter(), reverse).and_then(|seen| {
                let Ok(seen) = seen else { return Ok(seen) };
                for ((_, key), value) in &seen {
                    if keyspace.get(key)?.as_deref() != Some(value) {
                        return Ok(Err(format!("a get and an iterator differ at a snapshot: {key:?}")));
                    }
                }
                Ok(Ok(seen))
            });
            match read {
                Ok(seen) => all.extend(seen?),
                Err(error) => return self.shared.excuse("a snapshot", &error, Some(failures)),
            }
        }
        let checked = self.shared.oracle().check_further(&all, &Within::ALL, &pinned.known);
        pinned.known = checked.map_err(|what| format!("at the snapshot: {what}"))?;
        Ok(())
    }

    fn checkpoint(&self) -> Result<(), Failure> {
        let path = format!("/checkpoint-{}-{}", self.number, self.shared.oracle().stamp());
        let path = Path::new(&path);
        let began = self.shared.oracle().stamp();
        let made = self.db.checkpoint(path);
        let ended = self.shared.oracle().stamp();
        if let Err(error) = made {
            return self.shared.excuse("a checkpoint", &error, None);
        }
        let opened = self.shared.options.clone().open(path);
        let checked = match opened {
            Ok(copy) => self.check_copy("a checkpoint", &copy, began, ended),
            Err(error) => self.shared.excuse("opening a checkpoint", &error, None),
        };
        // A directory that cannot be removed now does no harm.
        let _ = tamis::io::FileSystem::remove_dir_all(&self.shared.disk, path);
        checked
    }

    fn read_only(&self) -> Result<(), Failure> {
        let began = self.shared.oracle().stamp();
        let opened = self.shared.options.clone().open_read_only(self.db.path());
        let ended = self.shared.oracle().stamp();
        match opened {
            Ok(copy) => match everything(&copy) {
                Ok(seen) => {
                    let checked = self.shared.oracle().check_files(&seen?, began, ended);
                    checked.map_err(|error| format!("a read-only opening: {error}"))
                }
                Err(error) => self.shared.excuse("a read-only opening", &error, None),
            },
            Err(error) => self.shared.excuse("a read-only opening", &error, None),
        }
    }

    fn check_copy(&self, what: &str, copy: &Db, began: u64, ended: u64) -> Result<(), Failure> {
        match everything(copy) {
            Ok(seen) => {
                let checked = self.shared.oracle().check(&seen?, &Within::ALL, began, ended);
                checked.map(drop).map_err(|error| format!("{what}: {error}"))
            }
            Err(error) => self.shared.excuse(what, &error, None),
        }
    }
}

/// Returns the bytes of all trees and memtables, and the space that they take with logs, readers,
/// and what is being merged.
pub fn stated(db: &Db) -> (u64, u64) {
    let stats = db.stats();
    let trees: u64 =
        stats.keyspaces.iter().map(|ks| ks.table_bytes + ks.blob_bytes + ks.memtable_bytes).sum();
    let merges: u64 = stats.jobs.iter().map(|job| job.bytes_in).sum();
    let readers = stats.readers_table_bytes + stats.readers_blob_bytes;
    let logs = stats.log_allocated_bytes + stats.retained_log_bytes;
    (trees, trees + merges + readers + logs)
}

fn found<'k>(space: Space, values: impl Iterator<Item = (&'k Vec<u8>, Option<Slice>)>) -> Seen {
    values.filter_map(|(key, value)| Some(((space, key.clone()), value?.to_vec()))).collect()
}

/// Returns all entries of an iterator, checking their order.
fn collect(space: Space, iterator: Iter, reverse: bool) -> Result<Result<Seen, Failure>, ReadError> {
    let mut seen = Seen::new();
    let mut last: Option<Vec<u8>> = None;
    let items: Box<dyn Iterator<Item = _>> =
        if reverse { Box::new(iterator.rev()) } else { Box::new(iterator) };
    for item in items {
        let (key, value) = item?;
        let key = key.to_vec();
        let in_order = last.as_ref().is_none_or(|last| if reverse { key < *last } else { key > *last });
        if !in_order {
            return Ok(Err(format!("an iterator goes to {key:?} after {last:?}")));
        }
        last = Some(key.clone());
        seen.insert((space, key), value.to_vec());
    }
    Ok(Ok(seen))
}

/// Returns the whole contents of a database with the two keyspaces.
pub fn everything(db: &Db) -> Result<Result<Seen, Failure>, ReadError> {
    let mut all = Seen::new();
    for (space, keyspace) in [(0, Some(db.default_keyspace().clone())), (1, db.keyspace(SECOND).ok())] {
        let Some(keyspace) = keyspace else { continue };
        let forward = match collect(space, keyspace.iter(), false)? {
            Ok(seen) => seen,
            Err(what) => return Ok(Err(what)),
        };
        match collect(space, keyspace.iter(), true)? {
            Ok(backward) if backward == forward => {}
            Ok(_) => return Ok(Err("an iterator returns different entries forwards and backwards".into())),
            Err(what) => return Ok(Err(what)),
        }
        let keys: Vec<Vec<u8>> = forward.keys().map(|(_, key)| key.clone()).collect();
        let values = keyspace.multi_get(&keys)?;
        if found(space, keys.iter().zip(values)) != forward {
            return Ok(Err("gets and an iterator return different values".into()));
        }
        all.extend(forward);
    }
    Ok(Ok(all))
}

/// The name of the second keyspace.
pub const SECOND: &str = "second";
