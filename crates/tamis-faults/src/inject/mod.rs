//! Transparent injection of failures into numbered system calls of this process.
//!
//! A seccomp filter hands every file call of the engine's threads to a separate thread
//! (`SECCOMP_RET_USER_NOTIF`). That thread counts the calls by kind and continues them, answers
//! with an error in the kernel's place, or ends the process. So calls are caught whatever their
//! origin: some of the engine's calls are made without the C library (`fallocate`, `flock`), where
//! `LD_PRELOAD` does not see them, and a call costs microseconds instead of strace's stops. It
//! needs no privileges.
//!
//! The deciding thread must never wait for the others: it allocates nothing and takes no lock,
//! since a thread that is stopped in a call may hold the allocator's.
//!
//! Not caught: io_uring (tables are read through it only where they are not mapped, and never
//! written), and page faults of mappings.

mod filter;
mod listener;
mod plan;
mod sites;

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

use listener::{Answer, Call, Listener};
pub(crate) use plan::{Errno, How, Kill, Plan, When};
pub(crate) use sites::SITES;

/// The plan and the counts. Atomics only: see the module's documentation.
#[derive(Debug)]
struct Desk {
    armed: AtomicBool,
    /// Whether syncs succeed without being executed.
    skip_syncs: AtomicBool,
    /// Calls while armed, by site.
    calls: [AtomicU64; SITES.len()],
    /// Calls that change files, since the last [`phase`](Injector::phase).
    changes: AtomicU64,
    /// Number of calls that were not executed or not reported as the kernel would have.
    fired: AtomicU64,
    plan: Option<Plan>,
    kill_at: AtomicU64,
    /// The listener's descriptor must not be mistaken for one of the engine's.
    listening: AtomicUsize,
}

static DESK: OnceLock<Desk> = OnceLock::new();

/// The injector of the calling thread and of the threads that it starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Injector {
    desk: &'static Desk,
    kill: Option<(&'static str, u64)>,
}

impl Injector {
    /// Catches the calls of this thread and of those that it starts later. May be called once per
    /// process. No call fails before [`arm`](Self::arm).
    pub(crate) fn install(plan: Option<Plan>, kill: Option<Kill>) -> io::Result<Injector> {
        let desk = DESK.get_or_init(|| Desk {
            armed: AtomicBool::new(false),
            skip_syncs: AtomicBool::new(false),
            calls: std::array::from_fn(|_| AtomicU64::new(0)),
            changes: AtomicU64::new(0),
            fired: AtomicU64::new(0),
            plan,
            kill_at: AtomicU64::new(u64::MAX),
            listening: AtomicUsize::new(0),
        });
        let deciding = std::thread::Builder::new().name("faults-decide".into()).spawn(move || {
            let descriptor = loop {
                match desk.listening.load(SeqCst) {
                    0 => std::thread::yield_now(),
                    descriptor => break descriptor,
                }
            };
            Listener::new(descriptor as i32).serve(|call| desk.decide(call));
        })?;
        drop(deciding);
        let descriptor = listener::install(&filter::program())?;
        desk.listening.store(descriptor as usize, SeqCst);
        // Leaked once per process.
        let kill = kill.map(|kill| (&*kill.phase.leak(), kill.at));
        Ok(Injector { desk, kill })
    }

    pub(crate) fn arm(&self) {
        self.desk.armed.store(true, SeqCst);
    }

    pub(crate) fn disarm(&self) {
        self.desk.armed.store(false, SeqCst);
    }

    /// Lets syncs succeed from now on without being executed.
    pub(crate) fn skip_syncs(&self) {
        self.desk.skip_syncs.store(true, SeqCst);
    }

    /// Begins a phase of the session: calls that change files are counted from one again.
    pub(crate) fn phase(&self, name: &str) {
        self.desk.kill_at.store(u64::MAX, SeqCst);
        self.desk.changes.store(0, SeqCst);
        if let Some((phase, at)) = self.kill
            && phase == name
        {
            self.desk.kill_at.store(at, SeqCst);
        }
    }

    /// Returns the number of calls that change files since the phase began.
    pub(crate) fn changes(&self) -> u64 {
        self.desk.changes.load(SeqCst)
    }

    /// Returns the number of injected failures.
    pub(crate) fn fired(&self) -> u64 {
        self.desk.fired.load(SeqCst)
    }

    /// Reports whether the plan was carried out and no later call will fail.
    pub(crate) fn is_over(&self) -> bool {
        let last = self.desk.plan.as_ref().and_then(|plan| Some((plan.site, plan.last()?)));
        last.is_some_and(|(site, last)| self.desk.calls[site].load(SeqCst) >= last)
    }

    /// Returns the number of calls while armed, by name.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        SITES.iter().zip(&self.desk.calls).map(|(site, calls)| (site.name, calls.load(SeqCst)))
    }
}

impl Desk {
    fn decide(&self, call: &Call) -> Answer {
        let Some(at) = sites::find(call.number) else { return Answer::GoOn };
        let site = &SITES[at];
        if sites::is_sync(site) && self.skip_syncs.load(SeqCst) {
            return Answer::Pretend;
        }
        if sites::changes_files(site, &call.args) {
            let number = self.changes.fetch_add(1, SeqCst) + 1;
            if number == self.kill_at.load(SeqCst) {
                return Answer::Kill;
            }
        }
        if !self.armed.load(SeqCst) {
            return Answer::GoOn;
        }
        let number = self.calls[at].fetch_add(1, SeqCst) + 1;
        match &self.plan {
            Some(plan) if plan.site == at && plan.hits(number) => {
                self.fired.fetch_add(1, SeqCst);
                match plan.when {
                    When::Before => Answer::Fail(plan.errno.number()),
                    When::After => Answer::DoAndFail(plan.errno.number()),
                    When::Short => Answer::DoHalf,
                }
            }
            _ => Answer::GoOn,
        }
    }
}
