//! The simulated machine: the scheduler and the clock.
//!
//! Threads of a simulation are threads of the operating system that pass a baton:
//! [`Inner::running`] has it, all others wait. A thread that calls the machine may have to pass it
//! on; the next thread, like every other decision here, is drawn from one seeded generator. Nothing
//! depends on real time, on addresses or on the operating system's scheduling, so equal seeds and
//! equal programs give equal schedules; [`Report::trace`] shows whether they did.
//!
//! Time advances by only a few microseconds per step while any thread can run, and jumps to the
//! next deadline when none can. If no thread can run and there is no deadline, the threads are
//! deadlocked, which is a failure.
//!
//! An operation of a client has a bound on the machine's time ([`Machine::within`]). Time that passes
//! while the disk is disturbed does not count.
//!
//! After a failure the threads stay where they are: unwinding them would run the engine's code in
//! states created by the failure. To collect several failures, run each simulation in its own
//! process.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tamis::simulation::{Scheduler, TaskId, run_in};

mod duties;
mod inner;
mod places;
mod scheduler;

use inner::Inner;

/// The strategy for choosing the next thread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Strategy {
    /// At one in `every` steps the baton goes to any runnable thread.
    Random {
        /// The mean number of steps between changes.
        every: u32,
    },
    /// The runnable thread with the highest priority runs; at one in `every` steps the running
    /// thread gets the lowest. (Probabilistic concurrency testing: finds orders that need few,
    /// unlikely changes.)
    Priorities {
        /// The mean number of steps between changes.
        every: u32,
    },
}

/// The result of a simulation.
#[derive(Clone, Debug)]
pub struct Report {
    /// The failure, if any.
    pub failure: Option<String>,
    /// The number of decisions.
    pub steps: u64,
    /// A checksum over all of them: equal for equal runs.
    pub trace: u64,
    /// The time that passed on the machine.
    pub clock: Duration,
    /// The operation that took the most of it, and how much.
    pub longest: (String, Duration),
}

/// A simulated machine.
pub struct Machine {
    this: Weak<Machine>,
    inner: Mutex<Inner>,
    /// Signalled when the first thread ends or the simulation fails.
    over: Condvar,
    /// Signalled when a thread told where it is.
    told: Condvar,
    /// The origin of the machine's time.
    origin: Instant,
    most_steps: u64,
    tells: AtomicBool,
}

thread_local! {
    /// The machine that the thread belongs to, for the panic hook.
    static MACHINE: RefCell<Option<Arc<Machine>>> = const { RefCell::new(None) };
}

/// The real time after which a thread is assumed to run without ever calling the machine.
const PATIENCE: Duration = Duration::from_secs(120);

impl Machine {
    /// Creates a machine that considers a program hung after `most_steps`.
    pub fn new(seed: u64, strategy: Strategy, most_steps: u64) -> Arc<Machine> {
        let inner = Inner::new(seed, strategy);
        Arc::new_cyclic(|this| Machine {
            this: this.clone(),
            inner: Mutex::new(inner),
            over: Condvar::new(),
            told: Condvar::new(),
            origin: Instant::now(),
            most_steps,
            tells: AtomicBool::new(false),
        })
    }

    /// Runs `work` as the first thread of the machine, until it ends or the simulation fails.
    /// Threads that outlive it are left alone.
    pub fn run(self: &Arc<Machine>, work: impl FnOnce() + Send + 'static) -> Report {
        places::tell_of_panics();
        let first = self.start("first", work).expect("the first thread");
        debug_assert_eq!(first.id, 0);
        let mut inner = self.inner();
        let started = Instant::now();
        while !inner.ended && inner.failure.is_none() {
            let left = PATIENCE.saturating_sub(started.elapsed());
            if left.is_zero() {
                let running = inner.threads[inner.running as usize].name.clone();
                inner.failure = Some(format!("thread `{running}` runs without ever calling the machine"));
            }
            inner = self.over.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let report = Report {
            failure: inner.failure.clone(),
            steps: inner.steps,
            trace: inner.trace,
            clock: inner.clock,
            longest: inner.duties.longest.clone(),
        };
        drop(inner);
        if report.failure.is_none() {
            let _ = first.thread.join();
        }
        report
    }

    /// Starts a thread of the machine; called by a thread of the machine, or for the first one.
    pub fn start(
        self: &Arc<Machine>,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<Handle> {
        let id = self.register(name)?;
        let machine: Arc<dyn Scheduler> = self.clone();
        let named = std::thread::Builder::new().name(name.to_owned());
        let thread = named.spawn(move || run_in(&machine, id, work));
        match thread {
            Ok(thread) => Ok(Handle { machine: self.clone(), id, thread }),
            Err(error) => {
                self.end(id, false);
                Err(error)
            }
        }
    }

    /// Fails the simulation. Does not return.
    pub fn fail(&self, why: String) -> ! {
        let mut inner = self.inner();
        inner.fail(why);
        self.over.notify_all();
        self.stop_here(inner)
    }

    /// Makes the creation of the next `count` threads fail.
    pub fn refuse_threads(&self, count: u32) {
        self.inner().refused_threads = count;
    }

    /// Prints an event if verbose.
    pub fn tell(&self, what: impl FnOnce() -> String) {
        if self.tells.load(Relaxed) {
            let (steps, clock) = {
                let inner = self.inner();
                (inner.steps, inner.clock)
            };
            eprintln!("{steps:>8} {:>12.6} s  {}", clock.as_secs_f64(), what());
        }
    }

    /// Prints all events from now on.
    pub fn tell_all(&self) {
        self.tells.store(true, Relaxed);
    }

    /// Draws a number below `bound` from the seeded generator.
    pub fn draw(&self, bound: u64) -> u64 {
        self.inner().random.u64(..bound.max(1))
    }

    /// Returns the machine's time since its start.
    pub fn clock(&self) -> Duration {
        self.inner().clock
    }

    /// Returns the machine's time in seconds since its start.
    pub fn seconds(&self) -> u64 {
        self.clock().as_secs()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until the process ends.
    fn stop_here(&self, inner: MutexGuard<'_, Inner>) -> ! {
        drop(inner);
        loop {
            std::thread::park();
        }
    }

    /// Takes one step, then passes the baton on if it must or may.
    fn step<'a>(&'a self, mut inner: MutexGuard<'a, Inner>, must: bool) {
        inner.steps += 1;
        let me = inner.running;
        let moment = Duration::from_micros(inner.random.u64(..3));
        inner.clock += moment;
        inner.wake_who_is_due();
        let next = inner.choose(must);
        let hung = match next {
            None => Some("deadlock: all threads wait".to_owned()),
            Some(_) if inner.steps > self.most_steps => {
                Some(format!("it has not ended after {} steps", self.most_steps))
            }
            Some(_) => inner.overdue(),
        };
        if let Some(why) = hung {
            inner = self.fail_with_places(inner, why);
        }
        let Some(next) = next.filter(|_| inner.failure.is_none()) else {
            self.over.notify_all();
            self.stop_here(inner)
        };
        inner.note(me << 32 | next);
        self.hand_over(inner, me, next);
    }

    fn hand_over<'a>(&'a self, mut inner: MutexGuard<'a, Inner>, me: TaskId, next: TaskId) {
        if me == next {
            return;
        }
        inner.running = next;
        inner.threads[next as usize].baton.notify_one();
        self.wait_for_baton(inner, me);
    }

    fn wait_for_baton<'a>(&'a self, mut inner: MutexGuard<'a, Inner>, me: TaskId) {
        let baton = inner.threads[me as usize].baton.clone();
        while inner.running != me {
            if inner.wants_place_of(me) {
                inner = self.tell_place(inner, me);
            } else {
                inner = baton.wait(inner).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// A handle for joining a thread of the machine.
pub struct Handle {
    machine: Arc<Machine>,
    id: TaskId,
    thread: std::thread::JoinHandle<()>,
}

impl Handle {
    /// Waits for the thread's end; called by a thread of the machine.
    pub fn join(self) {
        Scheduler::join(&*self.machine, self.id);
        let _ = self.thread.join();
    }
}
