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
//! After a failure the threads stay where they are: unwinding them would run the engine's code in
//! states created by the failure. To collect several failures, run each simulation in its own
//! process.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tamis::simulation::{Point, Scheduler, TaskId, run_in};

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
}

/// A simulated machine.
pub struct Machine {
    this: Weak<Machine>,
    inner: Mutex<Inner>,
    /// Signalled when the first thread ends or the simulation fails.
    over: Condvar,
    /// The origin of the machine's time.
    origin: Instant,
    most_steps: u64,
    tells: AtomicBool,
}

struct Inner {
    random: fastrand::Rng,
    strategy: Strategy,
    clock: Duration,
    threads: Vec<Thread>,
    running: TaskId,
    steps: u64,
    trace: u64,
    failure: Option<String>,
    ended: bool,
    /// The number of next threads whose creation fails.
    refused_threads: u32,
}

struct Thread {
    name: String,
    state: State,
    priority: u64,
    baton: Arc<Condvar>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Ready,
    Waiting { on: On, until: Option<Duration> },
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum On {
    Address(usize),
    End(TaskId),
    Time,
}

thread_local! {
    /// The machine that the thread belongs to, for the panic hook.
    static MACHINE: RefCell<Option<Arc<Machine>>> = const { RefCell::new(None) };
}

/// The limit of the machine's time.
const LONGEST: Duration = Duration::from_secs(2 * 3600);

/// The real time after which a thread is assumed to run without ever calling the machine.
const PATIENCE: Duration = Duration::from_secs(120);

impl Machine {
    /// Creates a machine that considers a program hung after `most_steps`.
    pub fn new(seed: u64, strategy: Strategy, most_steps: u64) -> Arc<Machine> {
        let inner = Inner {
            random: fastrand::Rng::with_seed(seed),
            strategy,
            clock: Duration::ZERO,
            threads: Vec::new(),
            running: 0,
            steps: 0,
            trace: 0,
            failure: None,
            ended: false,
            refused_threads: 0,
        };
        Arc::new_cyclic(|this| Machine {
            this: this.clone(),
            inner: Mutex::new(inner),
            over: Condvar::new(),
            origin: Instant::now(),
            most_steps,
            tells: AtomicBool::new(false),
        })
    }

    /// Runs `work` as the first thread of the machine, until it ends or the simulation fails.
    /// Threads that outlive it are left alone.
    pub fn run(self: &Arc<Machine>, work: impl FnOnce() + Send + 'static) -> Report {
        tell_of_panics();
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

    /// Returns the machine's time in seconds since its start.
    pub fn seconds(&self) -> u64 {
        self.inner().clock.as_secs()
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
    fn step(&self, mut inner: MutexGuard<'_, Inner>, must: bool) {
        inner.steps += 1;
        if inner.steps > self.most_steps {
            let most = self.most_steps;
            inner.fail(format!("it has not ended after {most} steps"));
        }
        if inner.clock > LONGEST {
            let (hours, who) = (LONGEST.as_secs() / 3600, inner.waiting());
            inner.fail(format!("it has not ended after {hours} hours of its time:\n{who}"));
        }
        if inner.failure.is_some() {
            self.over.notify_all();
            self.stop_here(inner);
        }
        let me = inner.running;
        let moment = Duration::from_micros(inner.random.u64(..3));
        inner.clock += moment;
        inner.wake_who_is_due();
        let Some(next) = inner.choose(must) else {
            let who = inner.waiting();
            inner.fail(format!("deadlock: all threads wait:\n{who}"));
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

    fn wait_for_baton(&self, mut inner: MutexGuard<'_, Inner>, me: TaskId) {
        let baton = inner.threads[me as usize].baton.clone();
        while inner.running != me {
            inner = baton.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Inner {
    fn fail(&mut self, why: String) {
        if self.failure.is_none() {
            self.failure = Some(why);
        }
    }

    fn note(&mut self, what: u64) {
        let mixed = (self.trace ^ what ^ (self.clock.as_nanos() as u64)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.trace = mixed ^ (mixed >> 29);
    }

    fn wake_who_is_due(&mut self) {
        let clock = self.clock;
        for thread in &mut self.threads {
            if matches!(thread.state, State::Waiting { until: Some(until), .. } if until <= clock) {
                thread.state = State::Ready;
            }
        }
    }

    /// Chooses the next thread: the running one unless it cannot run or a change is due. `None` if
    /// no thread ever can.
    fn choose(&mut self, must: bool) -> Option<TaskId> {
        let (every, priorities) = match self.strategy {
            Strategy::Random { every } => (every, false),
            Strategy::Priorities { every } => (every, true),
        };
        let change = self.random.u32(..every.max(1)) == 0;
        if priorities && change {
            let last = self.threads.iter().map(|thread| thread.priority).min().unwrap_or(0);
            self.threads[self.running as usize].priority = last.saturating_sub(1);
        }
        if !must && !change && !priorities {
            return Some(self.running);
        }
        loop {
            let ready = || (0..).zip(&self.threads).filter(|(_, thread)| thread.state == State::Ready);
            let count = ready().count();
            if count > 0 {
                let chosen = match priorities {
                    true => ready().max_by_key(|(id, thread)| (thread.priority, std::cmp::Reverse(*id))),
                    false => {
                        let nth = self.random.usize(..count);
                        ready().nth(nth)
                    }
                };
                return chosen.map(|(id, _)| id);
            }
            let deadlines = self.threads.iter().filter_map(|thread| match thread.state {
                State::Waiting { until, .. } => until,
                State::Ready | State::Ended => None,
            });
            self.clock = deadlines.min()?;
            self.wake_who_is_due();
        }
    }

    /// Describes what each thread waits for.
    fn waiting(&self) -> String {
        let mut text = String::new();
        for thread in &self.threads {
            let what = match thread.state {
                State::Waiting { on: On::Address(_), .. } => "a lock or a condition".to_owned(),
                State::Waiting { on: On::End(id), .. } => {
                    format!("the end of `{}`", self.threads[id as usize].name)
                }
                State::Waiting { on: On::Time, .. } => "time to pass".to_owned(),
                State::Ready | State::Ended => continue,
            };
            let _ = writeln!(text, "  `{}` waits for {what}", thread.name);
        }
        text
    }
}

impl Scheduler for Machine {
    fn point(&self, _: Point) {
        self.step(self.inner(), false);
    }

    fn park(&self, on: usize, timeout: Option<Duration>) {
        let mut inner = self.inner();
        let mut until = timeout.map(|timeout| inner.clock + timeout);
        // Conditions occasionally wake a thread spuriously.
        if inner.random.u32(..512) == 0 {
            let soon = inner.clock + Duration::from_micros(50);
            until = Some(until.map_or(soon, |until| until.min(soon)));
        }
        let me = inner.running as usize;
        inner.threads[me].state = State::Waiting { on: On::Address(on), until };
        self.step(inner, true);
    }

    fn unpark(&self, on: usize, all: bool) {
        let mut inner = self.inner();
        let waits =
            |thread: &Thread| matches!(thread.state, State::Waiting { on: On::Address(at), .. } if at == on);
        let mut waiting: Vec<usize> =
            (0..inner.threads.len()).filter(|id| waits(&inner.threads[*id])).collect();
        if !all && waiting.len() > 1 {
            let chosen = waiting[inner.random.usize(..waiting.len())];
            waiting = vec![chosen];
        }
        for id in waiting {
            inner.threads[id].state = State::Ready;
        }
    }

    fn sleep(&self, duration: Duration) {
        let mut inner = self.inner();
        let (me, until) = (inner.running as usize, inner.clock + duration);
        inner.threads[me].state = State::Waiting { on: On::Time, until: Some(until) };
        self.step(inner, true);
    }

    fn now(&self) -> Instant {
        self.origin + self.inner().clock
    }

    fn register(&self, name: &str) -> io::Result<TaskId> {
        let mut inner = self.inner();
        if inner.refused_threads > 0 {
            inner.refused_threads -= 1;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let id = inner.threads.len() as TaskId;
        let priority = inner.random.u64(1 << 32..1 << 33);
        let thread = Thread { name: name.to_owned(), state: State::Ready, priority, baton: Arc::default() };
        inner.threads.push(thread);
        Ok(id)
    }

    fn begin(&self, task: TaskId) {
        MACHINE.with(|machine| *machine.borrow_mut() = self.this.upgrade());
        self.wait_for_baton(self.inner(), task);
    }

    fn end(&self, task: TaskId, _panicked: bool) {
        let mut inner = self.inner();
        inner.threads[task as usize].state = State::Ended;
        for thread in &mut inner.threads {
            if matches!(thread.state, State::Waiting { on: On::End(other), .. } if other == task) {
                thread.state = State::Ready;
            }
        }
        if task == 0 {
            inner.ended = true;
            self.over.notify_all();
            return;
        }
        if inner.running != task {
            // It was never started.
            return;
        }
        match inner.choose(true) {
            Some(next) => {
                inner.note(task << 32 | next);
                inner.running = next;
                inner.threads[next as usize].baton.notify_one();
            }
            None => {
                let who = inner.waiting();
                inner.fail(format!("deadlock: all threads wait:\n{who}"));
                self.over.notify_all();
            }
        }
    }

    fn join(&self, task: TaskId) {
        let mut inner = self.inner();
        let me = inner.running as usize;
        if inner.threads[task as usize].state != State::Ended {
            inner.threads[me].state = State::Waiting { on: On::End(task), until: None };
        }
        self.step(inner, true);
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

/// Makes every panic of a simulated thread fail its simulation, even one that the engine would
/// catch.
fn tell_of_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let machine = MACHINE.with(|machine| machine.borrow().clone());
            let Some(machine) = machine else { return before(panic) };
            let thread = std::thread::current();
            let trace = std::backtrace::Backtrace::force_capture().to_string();
            let own: Vec<&str> = trace.lines().filter(|line| line.contains("tamis")).take(40).collect();
            let name = thread.name().unwrap_or("?");
            machine.fail(format!("thread `{name}` panicked: {panic}\n{}", own.join("\n")));
        }));
    });
}
