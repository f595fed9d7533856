//! A copy of the database elsewhere, which follows it by a named consumer of its changes.
//!
//! The copy has the two keyspaces that are never dropped. It survives every crash of the simulated
//! machine, so a copy that takes only durable changes must always be a state of the database. After
//! a power failure, another copy starts over with a snapshot; so does every copy after an ingestion,
//! whose entries are not in the log.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tamis::Db;
use tamis::changes::{Change, Changes, ChangesError, Consumer, OperationKind};
use tamis::simulation::Scheduler;

use crate::client::contents::space_of;
use crate::client::reads::fixed_at;
use crate::client::{BOUND, Shared};
use crate::oracle::{FIXED_SPACES, Life, Seen};
use crate::plan::Copying;

/// The consumer's name.
const NAME: &str = "copy";

/// How long the copy waits for a change.
const WAIT: Duration = Duration::from_millis(20);

/// The copy is compared with the oracle after one in so many changes.
const ONE_IN: u64 = 8;

/// A copy.
pub struct Copy {
    how: Copying,
    entries: Seen,
    /// The last change in it. `None`: it has to start over.
    position: Option<u64>,
    /// The operations of each client that it has shown.
    least: Vec<usize>,
    /// A failed sync may have made the engine give up a log, now or earlier.
    hurt: bool,
    applied: u64,
}

impl Copy {
    /// Creates an empty copy.
    pub fn new(how: Copying) -> Copy {
        Copy { how, entries: Seen::new(), position: None, least: Vec::new(), hurt: false, applied: 0 }
    }

    /// A power failure took back writes that may be in the copy.
    pub fn power_failed(&mut self) {
        if !self.how.durable {
            self.start_over_later();
        }
    }

    fn start_over_later(&mut self) {
        self.position = None;
        self.least.clear();
    }

    /// Follows the database until `stop`.
    pub fn follow(&mut self, shared: &Shared, db: &Db, stop: &AtomicBool) -> Result<(), String> {
        shared.machine.within(
            BOUND,
            || "the copy".to_owned(),
            || {
                while !stop.load(Relaxed) && !shared.disk.has_crashed() {
                    if !self.follow_once(shared, db, Some(stop))? {
                        shared.machine.sleep(WAIT);
                    }
                    shared.machine.renew();
                }
                Ok(())
            },
        )
    }

    /// Applies all changes of a database that nobody changes and that is synced, and compares.
    pub fn compare(&mut self, shared: &Shared, db: &Db) -> Result<(), String> {
        if !self.follow_once(shared, db, None)? {
            return Ok(());
        }
        let failures = shared.disk.failures();
        match fixed_at(db, &db.snapshot(), false) {
            Ok(Ok(seen)) if self.entries == seen => Ok(()),
            Ok(Err(what)) => Err(what),
            Ok(Ok(_)) => Err("the copy that followed the changes is not like the database".to_owned()),
            Err(error) => shared.excuse("a snapshot for comparison", &error, Some(failures)),
        }
    }

    /// Follows until `stop`, or to the end of the changes; false if that had to be given up.
    fn follow_once(&mut self, shared: &Shared, db: &Db, stop: Option<&AtomicBool>) -> Result<bool, String> {
        let followed = self.try_to_follow(shared, db, stop);
        self.hurt |= shared.disk.was_hurt();
        match followed {
            Ok(()) => Ok(true),
            Err(Stop::Wrong(what)) => Err(format!("the copy: {what}")),
            Err(Stop::Gone(error)) if self.hurt => {
                shared.machine.tell(|| format!("the copy starts over: {error}"));
                self.start_over_later();
                Ok(false)
            }
            Err(Stop::Gone(error) | Stop::Failed(error)) => {
                shared.excuse("the copy", &error, None).map(|()| false)
            }
        }
    }

    fn try_to_follow(&mut self, shared: &Shared, db: &Db, stop: Option<&AtomicBool>) -> Result<(), Stop> {
        let consumer = db.change_consumer(NAME)?;
        if self.position.is_none() {
            self.start(shared, db, &consumer)?;
        }
        let mut changes = consumer.changes()?.durable_only(self.how.durable);
        while !stop.is_some_and(|stop| stop.load(Relaxed)) && !shared.disk.has_crashed() {
            shared.machine.renew();
            let Some(change) = self.next(&mut changes, stop.is_some())? else {
                match stop {
                    Some(_) => continue,
                    None => return Ok(()),
                }
            };
            if !self.apply(&change)? {
                // An ingestion: what it brought is in the keyspaces.
                self.position = None;
                self.start(shared, db, &consumer)?;
                // What is before the snapshot is acknowledged, and may be gone.
                changes = consumer.changes()?.durable_only(self.how.durable);
            }
            self.applied += 1;
            if self.applied.is_multiple_of(ONE_IN) {
                let checked = shared.oracle().check_lagging(&self.entries, &mut self.least);
                checked.map_err(Stop::Wrong)?;
            }
            if self.applied.is_multiple_of(u64::from(self.how.acknowledges)) {
                // Not more, though the copy may have more: the reader still needs what is between.
                consumer.acknowledge(changes.last_seq())?;
            }
        }
        Ok(())
    }

    fn next(&self, changes: &mut Changes, waits: bool) -> Result<Option<Change>, Stop> {
        Ok(if waits { changes.wait(WAIT)? } else { changes.poll()? })
    }

    /// Copies everything at a snapshot.
    fn start(&mut self, shared: &Shared, db: &Db, consumer: &Consumer) -> Result<(), Stop> {
        let snapshot = db.snapshot();
        let entries = fixed_at(db, &snapshot, false).map_err(|error| Stop::Failed(error.to_string()))?;
        let entries = entries.map_err(Stop::Wrong)?;
        if self.how.durable {
            db.sync().map_err(|error| Stop::Failed(error.to_string()))?;
        }
        (self.entries, self.position) = (entries, Some(snapshot.seq()));
        let checked = shared.oracle().check_lagging(&self.entries, &mut self.least);
        checked.map_err(Stop::Wrong)?;
        consumer.acknowledge(snapshot.seq())?;
        Ok(())
    }

    /// Applies a change, unless the copy has it. False for an ingestion.
    fn apply(&mut self, change: &Change) -> Result<bool, Stop> {
        let position = self.position.unwrap_or(0);
        if change.last_seq() <= position {
            return Ok(true);
        }
        if change.first_seq() <= position {
            let what = format!("a change from {} comes after {position}", change.first_seq());
            return Err(Stop::Wrong(what));
        }
        if self.how.durable && !change.is_durable() {
            return Err(Stop::Wrong(format!("change {} is not durable", change.last_seq())));
        }
        self.position = Some(change.last_seq());
        for operation in change.operations() {
            if operation.kind == OperationKind::Ingestion {
                return Ok(false);
            }
            let space = operation.keyspace.and_then(space_of).filter(|space| *space < FIXED_SPACES);
            let Some(space) = space else { continue };
            let place = |key: &[u8]| (Life::fixed(space), key.to_vec());
            match operation.kind {
                OperationKind::Put { key, value } => _ = self.entries.insert(place(key), value.to_vec()),
                OperationKind::Merge { key, operand } => {
                    self.entries.entry(place(key)).or_default().extend_from_slice(operand);
                }
                OperationKind::Delete { key } => _ = self.entries.remove(&place(key)),
                OperationKind::DeleteRange { start, end } => self.entries.retain(|(life, key), _| {
                    *life != Life::fixed(space)
                        || key.as_slice() < start
                        || end.is_some_and(|end| key.as_slice() >= end)
                }),
                _ => return Err(Stop::Wrong(format!("an unknown operation: {operation:?}"))),
            }
        }
        Ok(true)
    }
}

/// Why the copy does not go on.
enum Stop {
    /// The next changes are gone.
    Gone(String),
    /// An operation failed.
    Failed(String),
    /// The changes are wrong.
    Wrong(String),
}

impl From<ChangesError> for Stop {
    fn from(error: ChangesError) -> Stop {
        match error {
            ChangesError::FellBehind { .. } | ChangesError::Ahead { .. } => Stop::Gone(error.to_string()),
            error => Stop::Failed(error.to_string()),
        }
    }
}
