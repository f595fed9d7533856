//! What a simulated machine decides for the threads that belong to it.
//!
//! Threads of a simulation are threads of the operating system of which one runs at a time: a thread runs until it calls its
//! [`Scheduler`], which may let another one run before it returns. So everything between two calls is one step, and a schedule
//! is the list of who ran after each.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The number of a simulated thread. Never used twice within one simulation.
pub type TaskId = u64;

/// Where a thread asks whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// It is about to take a lock.
    Lock,
    /// It is between two steps of an algorithm without locks.
    Step,
    /// It is about to operate on a file.
    File,
}

/// A simulated machine. Every method is called by the thread whose turn it is, and returns when it is its turn again.
pub trait Scheduler: Send + Sync {
    /// Others may run.
    fn point(&self, point: Point);

    /// Waits until another thread [`unpark`](Scheduler::unpark)s the address `on`, or until `timeout` is over.
    fn park(&self, on: usize, timeout: Option<Duration>);

    /// Lets the threads that wait for the address `on` go on, one of them or all. Does not wait.
    fn unpark(&self, on: usize, all: bool);

    /// Waits for `duration`.
    fn sleep(&self, duration: Duration);

    /// The machine's time.
    fn now(&self) -> Instant;

    /// A thread will be started. Does not wait. An error is what the system says that has no more threads to give.
    fn register(&self, name: &str) -> io::Result<TaskId>;

    /// The thread `task` begins: called by it before anything else.
    fn begin(&self, task: TaskId);

    /// The thread `task` has ended or was never started. After this call by the thread itself it does not run any more in
    /// the simulation.
    fn end(&self, task: TaskId, panicked: bool);

    /// Waits for the end of `task`.
    fn join(&self, task: TaskId);
}

thread_local! {
    static CURRENT: RefCell<Option<Task>> = const { RefCell::new(None) };
}

/// The machine that the calling thread belongs to.
#[inline]
pub(crate) fn current() -> Option<Arc<dyn Scheduler>> {
    // A thread that is being torn down belongs to none.
    CURRENT.try_with(|current| current.borrow().as_ref().map(|task| task.0.machine.clone())).ok().flatten()
}

/// The calling thread, if it belongs to a machine.
pub(crate) fn current_task() -> Option<Task> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// Makes the calling thread the thread `id` of a machine for as long as `work` takes.
pub fn run_in<T>(machine: &Arc<dyn Scheduler>, id: TaskId, work: impl FnOnce() -> T) -> T {
    Task::new(machine.clone(), id).run(work)
}

/// Lets others run, if the calling thread belongs to a machine: for file systems, which are called from within the engine.
pub fn point(point: Point) {
    if let Some(machine) = current() {
        machine.point(point);
    }
}

/// A thread of a machine.
#[derive(Clone)]
pub(crate) struct Task(Arc<Known>);

struct Known {
    machine: Arc<dyn Scheduler>,
    id: TaskId,
    /// Somebody woke it while it was not asleep.
    woken: AtomicBool,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Task({})", self.0.id)
    }
}

impl dyn Scheduler {
    pub(crate) fn register_task(self: &Arc<Self>, name: &str) -> io::Result<Task> {
        Ok(Task::new(self.clone(), self.register(name)?))
    }
}

impl Task {
    fn new(machine: Arc<dyn Scheduler>, id: TaskId) -> Task {
        Task(Arc::new(Known { machine, id, woken: AtomicBool::new(false) }))
    }

    /// Does the thread's work on the calling thread of the operating system.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        /// Says that the thread has ended, however it has.
        struct Ending<'a>(&'a Task);
        impl Drop for Ending<'_> {
            fn drop(&mut self) {
                CURRENT.with(|current| current.borrow_mut().take());
                self.0.0.machine.end(self.0.0.id, std::thread::panicking());
            }
        }
        self.0.machine.begin(self.0.id);
        CURRENT.with(|current| *current.borrow_mut() = Some(self.clone()));
        let _ending = Ending(self);
        work()
    }

    /// The operating system gave no thread for it.
    pub(crate) fn never_ran(&self) {
        self.0.machine.end(self.0.id, false);
    }

    pub(crate) fn wait(&self) {
        // Who is not of the machine waits in the operating system.
        if current().is_some() {
            self.0.machine.join(self.0.id);
        }
    }

    pub(crate) fn unpark(&self) {
        self.0.woken.store(true, Relaxed);
        self.0.machine.unpark(self.address(), true);
    }

    pub(crate) fn park_timeout(&self, timeout: Duration) {
        if !self.0.woken.swap(false, Relaxed) {
            self.0.machine.park(self.address(), Some(timeout));
            self.0.woken.store(false, Relaxed);
        }
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}
