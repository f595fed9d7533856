//! One complete simulation.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tamis::clock::Clock;
use tamis::options::CompactionChoice;
use tamis::simulation::Scheduler;
use tamis::{Db, Durability, Keyspace, OpenError};
use tamis_testkit::{CrashMode, FaultyFs};

use crate::client::{Client, SECOND, Shared, everything, stated};
use crate::disk::{Disk, Loss};
use crate::machine::{Machine, Report};
use crate::oracle::Oracle;
use crate::plan::{End, Plan, Session};
use crate::settings;

/// The number of checks, every tenth of a second, whether writes have resumed.
const RESUMES: u32 = 300;

/// The steps after which a plan of a few hundred operations is considered hung.
const MOST_STEPS: u64 = 3_000_000;

const DIR: &str = "/db";

/// Carries out a plan.
pub fn run(plan: &Plan) -> Report {
    run_telling(plan, false)
}

/// Carries out a plan; with `tells`, prints events on standard error.
pub fn run_telling(plan: &Plan, tells: bool) -> Report {
    let machine = Machine::new(plan.seed ^ 0x5EED, plan.strategy, MOST_STEPS);
    if tells {
        machine.tell_all();
    }
    let (plan, inside) = (plan.clone(), machine.clone());
    machine.run(move || {
        let mut world = World {
            oracle: Arc::new(Mutex::new(Oracle::new(
                plan.sessions.iter().map(|s| s.clients.len()).max().unwrap_or(0),
            ))),
            files: FaultyFs::new(plan.seed),
            loss: None,
            machine: inside,
            plan,
        };
        for number in 0..world.plan.sessions.len() {
            let session = world.plan.sessions[number].clone();
            world.machine.tell(|| format!("session {number}"));
            if let Err(what) = world.session(&session) {
                world.machine.fail(format!("session {number}: {what}"));
            }
        }
        if let Err(what) = world.last_look() {
            world.machine.fail(format!("at the end: {what}"));
        }
    })
}

struct World {
    plan: Plan,
    machine: Arc<Machine>,
    files: FaultyFs,
    oracle: Arc<Mutex<Oracle>>,
    /// The loss of the last session, if it crashed.
    loss: Option<Loss>,
}

/// Seconds since 1970 on a simulated machine.
#[derive(Debug)]
struct Time(std::sync::Weak<Machine>);

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Machine")
    }
}

impl Clock for Time {
    fn now(&self) -> u64 {
        1_700_000_000 + self.0.upgrade().map_or(0, |machine| machine.seconds())
    }
}

impl World {
    /// Returns the state shared by the clients of a session on this disk.
    fn shared(&self, session: &Session, disk: Disk) -> Shared {
        let mut options = settings::options(&session.options);
        options.file_system = Some(Arc::new(disk.clone()));
        options.clock = Some(Arc::new(Time(Arc::downgrade(&self.machine))));
        Shared {
            machine: self.machine.clone(),
            disk,
            oracle: self.oracle.clone(),
            keys: self.plan.keys,
            always_synced: options.durability == Durability::Sync,
            options,
            largest: AtomicU64::new(0),
        }
    }

    fn session(&mut self, session: &Session) -> Result<(), String> {
        let disk = Disk::new(self.machine.clone(), self.files.clone(), &session.faults);
        let shared = Arc::new(self.shared(session, disk.clone()));
        if let Some((db, spaces)) = self.open(&shared)? {
            self.look(&shared, &db)?;
            if !disk.has_crashed() {
                shared.largest.store(stated(&db).0, Relaxed);
                self.work(session, &shared, &db, &spaces);
                self.goes_on(&shared, &db)?;
            }
            drop(spaces);
            self.end(session.end, &shared, db)?;
        }
        let (files, loss) = disk.left();
        self.files = files;
        // Nothing more becomes durable until the database is reopened.
        self.loss = match (self.loss, loss) {
            (None | Some(Loss::Nothing), Some(loss)) => Some(loss),
            (before, _) => before,
        };
        if let Some(nth) = session.lose {
            self.look_without_a_log(nth.into(), session)?;
        }
        Ok(())
    }

    /// Removes one log from a copy of the files: either the opening fails, or everything must still
    /// be there.
    fn look_without_a_log(&self, nth: usize, session: &Session) -> Result<(), String> {
        let copy = self.files.after_crash(CrashMode::KeepAll);
        let is_log = |path: &Path| {
            path.parent() == Some(Path::new(DIR)) && path.extension().is_some_and(|e| e == "log")
        };
        let mut logs = copy.files().into_iter().map(|(path, _)| path).filter(|path| is_log(path));
        let Some(log) = logs.nth(nth) else { return Ok(()) };
        let shared = self.shared(session, Disk::new(self.machine.clone(), copy, &[]));
        tamis::io::FileSystem::remove(&shared.disk, &log).map_err(|error| error.to_string())?;
        let Ok(db) = shared.options.clone().open(DIR) else { return Ok(()) };
        let seen = everything(&db).map_err(|error| format!("without {}: {error}", log.display()))??;
        let checked = shared.oracle().clone().recover(&seen, self.loss, true);
        checked.map_err(|what| format!("without {}: {what}", log.display()))
    }

    /// Opens the database with its keyspaces. `None` if a disk fault explains a failed opening.
    fn open(&self, shared: &Shared) -> Result<Option<(Db, [Keyspace; 2])>, String> {
        let db = match shared.options.clone().open(DIR) {
            Ok(db) => db,
            // The keyspace is deeper than these options allow.
            Err(OpenError::Incompatible { .. }) => return Ok(None),
            Err(error) => return shared.excuse("opening", &error, None).map(|()| None),
        };
        let second = match db.keyspace(SECOND) {
            Ok(keyspace) => keyspace,
            Err(_) => match db.create_keyspace(SECOND, settings::keyspace_options(&self.plan.second)) {
                Ok(keyspace) => keyspace,
                Err(error) => return shared.excuse("making a keyspace", &error, None).map(|()| None),
            },
        };
        let spaces = [db.default_keyspace().clone(), second];
        Ok(Some((db, spaces)))
    }

    /// Checks the contents after an opening, which makes them durable.
    fn look(&mut self, shared: &Shared, db: &Db) -> Result<(), String> {
        while !shared.disk.has_crashed() {
            let failures = shared.disk.failures();
            match everything(db) {
                Ok(seen) => {
                    let begun = db.stats().suspended.is_none();
                    shared.oracle().recover(&seen?, self.loss, begun)?;
                    self.loss = None;
                    return Ok(());
                }
                Err(error) => shared.excuse("reading after opening", &error, Some(failures))?,
            }
        }
        Ok(())
    }

    fn work(&self, session: &Session, shared: &Arc<Shared>, db: &Db, spaces: &[Keyspace; 2]) {
        let mut threads = Vec::new();
        for (number, ops) in session.clients.iter().enumerate() {
            let client = Client { number, shared: shared.clone(), db: db.clone(), spaces: spaces.clone() };
            let ops = ops.clone();
            if let Ok(thread) = self.machine.start(&format!("client-{number}"), move || client.work(&ops)) {
                threads.push(thread);
            }
        }
        threads.into_iter().for_each(crate::machine::Handle::join);
    }

    /// On a healed disk, writes must resume by themselves and a scrub must find no damage.
    fn goes_on(&self, shared: &Shared, db: &Db) -> Result<(), String> {
        shared.disk.heal();
        let mut refused = None;
        for _ in 0..RESUMES {
            if shared.disk.has_crashed() {
                return Ok(());
            }
            let result =
                db.flush().map_err(|e| e.to_string()).and_then(|()| db.sync().map_err(|e| e.to_string()));
            let Err(error) = result else {
                let problems = db.stats().scrub.map(|scrub| scrub.problems).unwrap_or_default();
                // Failed reads are not damage.
                return match problems.iter().find(|what| !what.contains("could not")) {
                    Some(problem) => {
                        Err(format!("the scrub found damage on a disk that does not corrupt data: {problem}"))
                    }
                    None => Ok(()),
                };
            };
            refused = Some(error);
            self.machine.sleep(Duration::from_millis(100));
        }
        match refused.filter(|_| !shared.disk.has_crashed()) {
            Some(error) => Err(format!("writes have not resumed on a healthy disk: {error}")),
            None => Ok(()),
        }
    }

    fn end(&self, end: End, shared: &Shared, db: Db) -> Result<(), String> {
        match end {
            End::Crash(loss) if !shared.disk.has_crashed() => {
                shared.disk.crash(loss);
                drop(db);
            }
            End::Close => match db.close() {
                Ok(()) => {
                    let mut oracle = shared.oracle();
                    let now = oracle.stamp();
                    oracle.synced(now);
                }
                Err(error) => shared.excuse("closing", &error, None)?,
            },
            End::Drop | End::Crash(_) => drop(db),
        }
        Ok(())
    }

    /// Opens the database once more on a healthy disk: everything must be present and sound.
    fn last_look(&mut self) -> Result<(), String> {
        let Some(session) = self.plan.sessions.last().cloned() else { return Ok(()) };
        let shared = self.shared(&session, Disk::new(self.machine.clone(), self.files.clone(), &[]));
        let Some((db, spaces)) = self.open(&shared)? else { return Ok(()) };
        self.look(&shared, &db)?;
        db.verify().map_err(|error| format!("verification: {error}"))?;
        spaces.iter().try_for_each(compacted)?;
        drop(spaces);
        db.close().map_err(|error| format!("closing: {error}"))
    }
}

/// Compacts a keyspace, and checks that no more tables are left than its bytes are worth.
fn compacted(keyspace: &Keyspace) -> Result<(), String> {
    // The compaction may put others into effect.
    let options = keyspace.options();
    keyspace.compact().map_err(|error| format!("compaction: {error}"))?;
    let stats = keyspace.stats();
    let tables: usize = stats.levels.iter().flat_map(|level| &level.runs).map(|run| run.tables).sum();
    let most = stats.table_bytes * 2 / options.table_bytes + 1;
    // Fragments end at guards besides.
    if tables as u64 > most && options.compaction != CompactionChoice::Fragmented {
        return Err(format!(
            "a compaction of `{}` leaves {tables} tables of {} bytes: more than {most}",
            stats.name, stats.table_bytes
        ));
    }
    Ok(())
}
