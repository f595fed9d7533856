//! The interface between threads and the simulated machine that schedules them.
//!
//! The threads of a simulation are operating system threads, of which one runs at a time: a thread
//! runs until it calls its [`Scheduler`], which may let another one run before it returns.
//! Everything between two calls is one step, and a schedule is the sequence of threads that ran the
//! steps.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The id of a simulated thread. Never reused within one simulation.
pub type TaskId = u64;

/// The place where a thread yields to the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// Before taking a lock.
    Lock,
    /// Between two steps of a lock-free algorithm.
    Step,
    /// Before an operation on a file.
    File,
}

/// A simulated machine. The running thread calls every method, which returns when it is that
/// thread's turn again.
pub trait Scheduler: Send + Sync {
    /// Lets other threads run.
    fn point(&self, point: Point);

    /// Waits until another thread [`unpark`](Scheduler::unpark)s the address `on`, or until
    /// `timeout` has passed.
    fn park(&self, on: usize, timeout: Option<Duration>);

    /// Wakes one or all of the threads that wait for the address `on`. Does not block.
    fn unpark(&self, on: usize, all: bool);

    /// Waits for `duration`.
    fn sleep(&self, duration: Duration);

    /// Returns the machine's time.
    fn now(&self) -> Instant;

    /// Registers a thread that will be started. Does not block. Returns the system's error if it is
    /// out of threads.
    fn register(&self, name: &str) -> io::Result<TaskId>;

    /// Called by the thread `task` when it begins, before anything else.
    fn begin(&self, task: TaskId);

    /// Called when the thread `task` has ended or was never started. If the thread itself calls
    /// this, it no longer runs in the simulation.
    fn end(&self, task: TaskId, panicked: bool);

    /// Waits for the end of `task`.
    fn join(&self, task: TaskId);
}

thread_local! {
    static CURRENT: RefCell<Option<Task>> = const { RefCell::new(None) };
}

/// The calling thread's machine.
#[inline]
pub(crate) fn current() -> Option<Arc<dyn Scheduler>> {
    // A thread that is being torn down belongs to no machine.
    CURRENT.try_with(|current| current.borrow().as_ref().map(|task| task.0.machine.clone())).ok().flatten()
}

/// Returns the calling thread's id, if it belongs to a machine.
pub(crate) fn current_task() -> Option<Task> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// Makes the calling thread the thread `id` of a machine while `work` runs.
pub fn run_in<T>(machine: &Arc<dyn Scheduler>, id: TaskId, work: impl FnOnce() -> T) -> T {
    Task::new(machine.clone(), id).run(work)
}

/// Lets other threads run, if the calling thread belongs to a machine. For file systems, which are
/// called from within the engine.
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
    /// It was woken while it was not waiting.
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

    /// Runs the thread's work on the calling operating system thread.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        /// Reports the end of the thread, by return or panic.
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

    /// The operating system could not start a thread for it.
    pub(crate) fn never_ran(&self) {
        self.0.machine.end(self.0.id, false);
    }

    pub(crate) fn wait(&self) {
        // A thread outside the machine waits in the operating system.
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
