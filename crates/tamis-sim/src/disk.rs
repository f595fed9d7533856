//! The simulated disk: a [`FaultyFs`] with latencies and with faults at given operations.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tamis::simulation::Scheduler;
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs, OpClass};

use crate::machine::Machine;

mod files;

/// The loss of a crash; see [`CrashMode`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Loss {
    /// The process dies; the system survives.
    Nothing,
    /// The power fails and all unsynced data is lost.
    Unsynced,
    /// The power fails and arbitrary sectors of unsynced data survive, one of them torn.
    Random,
}

impl Loss {
    fn mode(self) -> CrashMode {
        match self {
            Loss::Nothing => CrashMode::KeepAll,
            Loss::Unsynced => CrashMode::DropUnsynced,
            Loss::Random => CrashMode::Random,
        }
    }
}

/// A class of failing operations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Class {
    /// Any.
    Any,
    /// Reads, lengths, lists.
    Read,
    /// Appends.
    Write,
    /// Syncs.
    Sync,
    /// Creations, renames, removals.
    Name,
}

/// The error of a failing operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Error {
    /// The device fails (`EIO`).
    Device,
    /// The device is full (`ENOSPC`).
    Full,
}

/// A fault of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fault {
    /// Operations fail.
    Fail {
        /// The class of operations.
        class: Class,
        /// The error.
        error: Error,
        /// Whether only the first such operation fails, rather than all during the next
        /// `operations`.
        once: bool,
        /// The duration in operations.
        operations: u64,
    },
    /// There is room for only `bytes` more during the next `operations`.
    Full {
        /// The remaining space in bytes.
        bytes: u64,
        /// The duration in operations.
        operations: u64,
    },
    /// Everything takes longer during the next `operations`.
    Slow {
        /// The slowdown factor.
        factor: u32,
        /// The duration in operations.
        operations: u64,
    },
    /// The creation of the next threads fails, for a few seconds.
    NoThreads {
        /// The number of threads.
        count: u32,
    },
    /// The machine crashes.
    Crash {
        /// The loss.
        loss: Loss,
    },
}

/// A disk. Clones share it.
#[derive(Clone)]
pub struct Disk {
    files: FaultyFs,
    machine: Arc<Machine>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Whether files take in several reads before they complete one, and mapped pages are scarce.
    overlaps: bool,
    operations: AtomicU64,
    /// Future faults by operation, soonest last.
    faults: Mutex<Vec<(u64, Fault)>>,
    /// The operation at which the current fault ends.
    until: AtomicU64,
    /// The second of the machine's time at which it ends at the latest.
    latest: AtomicU64,
    factor: AtomicU64,
    /// Whether any operation may have failed.
    hurt: AtomicBool,
    crashed: AtomicBool,
    /// The files left by a crash, and its loss.
    left: Mutex<Option<(FaultyFs, Loss)>>,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Disk")
    }
}

impl Disk {
    /// Creates a disk over `files` with `faults`, by operation counted from now.
    pub fn new(machine: Arc<Machine>, files: FaultyFs, faults: &[(u64, Fault)], overlaps: bool) -> Disk {
        let mut faults = faults.to_vec();
        faults.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let disk = Disk {
            files,
            machine,
            shared: Arc::new(Shared { overlaps, faults: Mutex::new(faults), ..Shared::default() }),
        };
        // Faults of an earlier session are over.
        disk.calm();
        disk
    }

    /// Reports whether any fault has occurred that can make an operation fail.
    pub fn was_hurt(&self) -> bool {
        self.shared.hurt.load(Relaxed)
    }

    /// Returns the number of operations that failed because of a fault.
    pub fn failures(&self) -> u64 {
        self.files.failures()
    }

    /// Reports whether the machine has crashed.
    pub fn has_crashed(&self) -> bool {
        self.shared.crashed.load(Relaxed)
    }

    /// Returns the bytes of the tables, blob files and logs in a directory.
    pub fn used(&self, dir: &Path) -> u64 {
        let is_data = |path: &Path| {
            let kind = path.extension().and_then(|kind| kind.to_str());
            path.parent() == Some(dir) && matches!(kind, Some("tam" | "blb" | "log"))
        };
        self.files.files().iter().filter(|(path, _)| is_data(path)).map(|(_, len)| len).sum()
    }

    /// Crashes now.
    pub fn crash(&self, loss: Loss) {
        let left = self.files.crash(loss.mode());
        left.set_capacity(None);
        self.shared.crashed.store(true, Relaxed);
        *self.shared.left.lock().unwrap_or_else(PoisonError::into_inner) = Some((left, loss));
    }

    /// Returns the files for the next session and the loss of the last one.
    pub fn left(&self) -> (FaultyFs, Option<Loss>) {
        match &*self.shared.left.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((files, loss)) => (files.clone(), Some(*loss)),
            None => (self.files.clone(), None),
        }
    }

    /// Ends the current fault and cancels all future ones.
    pub fn heal(&self) {
        self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.calm();
    }

    fn calm(&self) {
        self.machine.refuse_threads(0);
        self.files.plan(FaultPlan::none());
        self.files.set_capacity(None);
        self.shared.factor.store(1, Relaxed);
        self.shared.until.store(u64::MAX, Relaxed);
        self.shared.latest.store(u64::MAX, Relaxed);
        self.machine.disturb(None);
    }

    /// Ends the current fault if it is due.
    fn calm_if_over(&self, number: u64) {
        let (until, latest) = (self.shared.until.load(Relaxed), self.shared.latest.load(Relaxed));
        if number >= until || self.machine.seconds() >= latest {
            self.calm();
        }
    }

    /// Begins an operation: a fault may occur, and time passes.
    fn begin(&self, microseconds: u64) {
        let number = self.shared.operations.fetch_add(1, Relaxed);
        self.calm_if_over(number);
        let due = {
            let mut faults = self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner);
            faults.pop_if(|(at, _)| *at <= number).map(|(_, fault)| fault)
        };
        if let Some(fault) = due {
            self.happen(fault, number);
        }
        let factor = self.shared.factor.load(Relaxed);
        let spread = 1 + self.machine.draw(4);
        self.machine.sleep(Duration::from_micros(microseconds * spread * factor));
    }

    /// Ends an operation: more time passes before its result is returned.
    fn end(&self, microseconds: u64) {
        if self.machine.draw(4) == 0 {
            self.machine.sleep(Duration::from_micros(microseconds * self.shared.factor.load(Relaxed)));
        }
    }

    /// Starts a fault that lasts until operation `until`, or for a few seconds if all threads only
    /// wait.
    fn lasts(&self, until: u64) {
        self.shared.until.store(until, Relaxed);
        self.shared.latest.store(self.machine.seconds() + LONGEST_SECONDS, Relaxed);
        self.machine.disturb(Some(Duration::from_secs(LONGEST_SECONDS)));
    }

    fn happen(&self, fault: Fault, number: u64) {
        self.machine.tell(|| format!("file operation {number}: {fault:?}"));
        match fault {
            Fault::Fail { class, error, once, operations } => {
                self.shared.hurt.store(true, Relaxed);
                self.lasts(number + operations);
                self.files.plan(FaultPlan {
                    fail_at: Some(0),
                    error: match error {
                        Error::Device => io::ErrorKind::Other,
                        Error::Full => io::ErrorKind::StorageFull,
                    },
                    sticky: !once,
                    only: match class {
                        Class::Any => None,
                        Class::Read => Some(OpClass::Read),
                        Class::Write => Some(OpClass::Write),
                        Class::Sync => Some(OpClass::Sync),
                        Class::Name => Some(OpClass::Name),
                    },
                    partial_append: true,
                });
            }
            Fault::Full { bytes, operations } => {
                self.shared.hurt.store(true, Relaxed);
                self.lasts(number + operations);
                let used: u64 = self.files.files().iter().map(|(_, len)| len).sum();
                self.files.set_capacity(Some(used + bytes));
            }
            Fault::Slow { factor, operations } => {
                self.shared.factor.store(factor.into(), Relaxed);
                self.lasts(number + operations);
            }
            Fault::NoThreads { count } => {
                self.shared.hurt.store(true, Relaxed);
                self.machine.refuse_threads(count);
                self.lasts(u64::MAX);
            }
            Fault::Crash { loss } => self.crash(loss),
        }
    }

    fn timed<T>(
        &self,
        (name, microseconds): (&str, u64),
        path: &Path,
        work: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        self.begin(microseconds);
        let result = work();
        self.machine.tell(|| {
            let result = result.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned());
            let thread = std::thread::current();
            format!("  {}: {name} {}: {result}", thread.name().unwrap_or("?"), path.display())
        });
        self.end(microseconds);
        result
    }
}

/// The maximum duration of a fault.
const LONGEST_SECONDS: u64 = 5;

/// The minimum durations of operations, in microseconds.
const READ: u64 = 40;
const WRITE: u64 = 3;
const SYNC: u64 = 300;
const NAME: u64 = 15;
const LOOK: u64 = 1;
