//! One complete simulation.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use tamis::clock::Clock;
use tamis::{Db, Durability};
use tamis_testkit::FaultyFs;

use crate::client::contents::stated;
use crate::client::{BOUND, Client, Shared};
use crate::disk::{Disk, Loss};
use crate::feed::Copy;
use crate::listener::Listener;
use crate::machine::{Handle, Machine, Report};
use crate::oracle::Oracle;
use crate::plan::{End, Plan, Session};
use crate::settings;

mod looks;

use looks::change_second;

/// The steps after which a plan of a few hundred operations is considered hung.
const MOST_STEPS: u64 = 5_000_000;

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
        let clients = plan.sessions.iter().map(|session| session.clients.len()).max().unwrap_or(0);
        let mut world = World {
            // The listener is one more.
            oracle: Arc::new(Mutex::new(Oracle::new(clients + 1))),
            clients,
            copy: plan.copy.map(|how| Arc::new(Mutex::new(Copy::new(how)))),
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
    /// The most clients of a session.
    clients: usize,
    /// The copy that follows the changes. Only one thread at a time uses it.
    copy: Option<Arc<Mutex<Copy>>>,
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
            others: self.plan.others.iter().map(settings::keyspace_options).collect(),
            spaces: Mutex::default(),
            largest: AtomicU64::new(0),
            closing: AtomicBool::new(false),
        }
    }

    fn session(&mut self, session: &Session) -> Result<(), String> {
        let disk = Disk::new(self.machine.clone(), self.files.clone(), &session.faults, session.overlaps);
        let shared = Arc::new(self.shared(session, disk.clone()));
        let listener = Listener::new(self.machine.clone(), &session.listener);
        if let Some(db) = self.open(&shared, Some(&listener))? {
            self.look(&shared, &db)?;
            if !disk.has_crashed() {
                shared.largest.store(stated(&db).0, Relaxed);
                change_second(&shared, &db, session)?;
                listener.attach(Client { number: self.clients, shared: shared.clone(), db: db.clone() });
                self.work(session, &shared, &db);
                if self.copy.is_some() {
                    listener.detach();
                }
                self.goes_on(&shared, &db)?;
                self.compare(&shared, &db)?;
            }
            self.end(session.end, &shared, &listener, db)?;
        }
        let (files, loss) = disk.left();
        self.files = files;
        // Nothing more becomes durable until the database is reopened.
        self.loss = match (self.loss, loss) {
            (None | Some(Loss::Nothing), Some(loss)) => Some(loss),
            (before, _) => before,
        };
        if let (Some(Loss::Unsynced | Loss::Random), Some(copy)) = (self.loss, &self.copy) {
            copy.lock().unwrap_or_else(PoisonError::into_inner).power_failed();
        }
        if let Some(nth) = session.lose {
            self.look_without_a_log(nth.into(), session)?;
        }
        Ok(())
    }

    /// Lets all clients and the copy do their work.
    fn work(&self, session: &Session, shared: &Arc<Shared>, db: &Db) {
        let mut threads = Vec::new();
        for (number, ops) in session.clients.iter().enumerate() {
            let client = Client { number, shared: shared.clone(), db: db.clone() };
            let ops = ops.clone();
            if let Ok(thread) = self.machine.start(&format!("client-{number}"), move || client.work(&ops)) {
                threads.push(thread);
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        let follows = self.copy.clone().map(|copy| {
            let (machine, stop) = (self.machine.clone(), stop.clone());
            let (shared, db) = (shared.clone(), db.clone());
            self.machine.start("copy", move || {
                let mut copy = copy.lock().unwrap_or_else(PoisonError::into_inner);
                if let Err(what) = copy.follow(&shared, &db, &stop) {
                    machine.fail(what);
                }
            })
        });
        threads.into_iter().for_each(Handle::join);
        stop.store(true, Relaxed);
        follows.into_iter().flatten().for_each(Handle::join);
    }

    /// Compares the copy with the database, which nobody changes.
    fn compare(&self, shared: &Shared, db: &Db) -> Result<(), String> {
        let Some(copy) = self.copy.as_ref().filter(|_| !shared.disk.has_crashed()) else { return Ok(()) };
        let mut copy = copy.lock().unwrap_or_else(PoisonError::into_inner);
        self.machine.within(BOUND, || "a comparison with the copy".to_owned(), || copy.compare(shared, db))
    }

    fn end(&self, end: End, shared: &Shared, listener: &Listener, db: Db) -> Result<(), String> {
        if end == End::Close {
            shared.closing.store(true, Relaxed);
        } else {
            listener.detach();
        }
        if let End::Crash(loss) = end
            && !shared.disk.has_crashed()
        {
            shared.disk.crash(loss);
        }
        shared.spaces().clear();
        self.machine.within(
            BOUND,
            || format!("the end of a session ({end:?})"),
            || {
                let closed = match end {
                    End::Close => db.close(),
                    End::Drop | End::Crash(_) => {
                        drop(db);
                        Ok(())
                    }
                };
                listener.detach();
                shared.closing.store(false, Relaxed);
                match closed {
                    Ok(()) if end == End::Close => {
                        let mut oracle = shared.oracle();
                        let now = oracle.stamp();
                        oracle.synced(now);
                        Ok(())
                    }
                    Ok(()) => Ok(()),
                    Err(error) => shared.excuse("closing", &error, None),
                }
            },
        )
    }
}
