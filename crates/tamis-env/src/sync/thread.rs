//! The threads of an engine: named, and joined through this interface.

use std::io;
use std::thread::Builder;
use std::time::Duration;

#[cfg(feature = "simulation")]
use super::simulated::{self, Task};

/// The handle of a thread, to join it.
#[derive(Debug)]
pub struct JoinHandle<T> {
    thread: std::thread::JoinHandle<T>,
    #[cfg(feature = "simulation")]
    task: Option<Task>,
}

impl<T> JoinHandle<T> {
    /// Waits for the thread to end; returns its panic as an error.
    pub fn join(self) -> std::thread::Result<T> {
        #[cfg(feature = "simulation")]
        if let Some(task) = &self.task {
            task.wait();
        }
        self.thread.join()
    }

    /// Wakes the thread, or lets its next [`park_timeout`] return at once.
    pub fn unpark(&self) {
        #[cfg(feature = "simulation")]
        if let Some(task) = &self.task {
            task.unpark();
            return;
        }
        self.thread.thread().unpark();
    }
}

/// Starts a thread; fails if the system cannot provide one.
pub fn spawn<T: Send + 'static>(
    name: String,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    #[cfg(feature = "simulation")]
    if let Some(machine) = simulated::current() {
        let task = machine.register_task(&name)?;
        let running = task.clone();
        let thread = Builder::new().name(name).spawn(move || running.run(work));
        return match thread {
            Ok(thread) => Ok(JoinHandle { thread, task: Some(task) }),
            Err(error) => {
                task.never_ran();
                Err(error)
            }
        };
    }
    Ok(JoinHandle {
        thread: Builder::new().name(name).spawn(work)?,
        #[cfg(feature = "simulation")]
        task: None,
    })
}

/// Makes the calling thread step behind those with a lower nice value: by `nice`, and at most to
/// 19. Linux only, since elsewhere the value belongs to the whole process. Threads that it starts
/// inherit it.
pub fn lower_priority(nice: usize) {
    #[cfg(target_os = "linux")]
    if nice > 0 {
        use rustix::process::{getpriority_process, setpriority_process};
        // Without a process id, both are for the calling thread.
        let lowered = getpriority_process(None).and_then(|now| setpriority_process(None, now + nice as i32));
        if let Err(error) = lowered {
            log::debug!("a thread keeps its priority: {error}");
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = nice;
}

/// A scope for threads that borrow: all of them have ended when [`scope`] returns.
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    scope: &'scope std::thread::Scope<'scope, 'env>,
    #[cfg(feature = "simulation")]
    tasks: std::cell::RefCell<Vec<Task>>,
}

/// Like [`std::thread::scope`].
pub fn scope<'env, T>(work: impl for<'scope> FnOnce(&Scope<'scope, 'env>) -> T) -> T {
    std::thread::scope(|scope| {
        work(&Scope {
            scope,
            #[cfg(feature = "simulation")]
            tasks: Default::default(),
        })
    })
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Starts a thread; fails if the system cannot provide one.
    pub fn spawn<T: Send + 'scope>(
        &self,
        name: String,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> io::Result<ScopedJoinHandle<'scope, T>> {
        #[cfg(feature = "simulation")]
        if let Some(machine) = simulated::current() {
            let task = machine.register_task(&name)?;
            let running = task.clone();
            let thread = Builder::new().name(name).spawn_scoped(self.scope, move || running.run(work));
            return match thread {
                Ok(thread) => {
                    self.tasks.borrow_mut().push(task.clone());
                    Ok(ScopedJoinHandle { thread, task: Some(task) })
                }
                Err(error) => {
                    task.never_ran();
                    Err(error)
                }
            };
        }
        Ok(ScopedJoinHandle {
            thread: Builder::new().name(name).spawn_scoped(self.scope, work)?,
            #[cfg(feature = "simulation")]
            task: None,
        })
    }
}

#[cfg(feature = "simulation")]
impl Drop for Scope<'_, '_> {
    /// The underlying scope waits for its threads in the operating system, where a simulated thread
    /// must not wait.
    fn drop(&mut self) {
        self.tasks.borrow().iter().for_each(Task::wait);
    }
}

/// A thread of a [`Scope`].
#[derive(Debug)]
pub struct ScopedJoinHandle<'scope, T> {
    thread: std::thread::ScopedJoinHandle<'scope, T>,
    #[cfg(feature = "simulation")]
    task: Option<Task>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the thread to end; returns its panic as an error.
    pub fn join(self) -> std::thread::Result<T> {
        #[cfg(feature = "simulation")]
        if let Some(task) = &self.task {
            task.wait();
        }
        self.thread.join()
    }
}

/// Sleeps for a while.
pub fn sleep(duration: Duration) {
    #[cfg(feature = "simulation")]
    if let Some(machine) = simulated::current() {
        machine.sleep(duration);
        return;
    }
    std::thread::sleep(duration);
}

/// A thread that can be woken from [`park_timeout`].
#[derive(Debug)]
pub struct Thread(Kind);

#[derive(Debug)]
enum Kind {
    Real(std::thread::Thread),
    #[cfg(feature = "simulation")]
    Simulated(Task),
}

/// Returns the calling thread.
pub fn current() -> Thread {
    #[cfg(feature = "simulation")]
    if let Some(task) = simulated::current_task() {
        return Thread(Kind::Simulated(task));
    }
    Thread(Kind::Real(std::thread::current()))
}

impl Thread {
    /// Wakes the thread, or lets its next [`park_timeout`] return at once.
    pub fn unpark(&self) {
        match &self.0 {
            Kind::Real(thread) => thread.unpark(),
            #[cfg(feature = "simulation")]
            Kind::Simulated(task) => task.unpark(),
        }
    }
}

/// Waits until the calling thread is [unparked](Thread::unpark), at most for `timeout`.
pub fn park_timeout(timeout: Duration) {
    #[cfg(feature = "simulation")]
    if let Some(task) = simulated::current_task() {
        task.park_timeout(timeout);
        return;
    }
    std::thread::park_timeout(timeout);
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::process::getpriority_process;

    #[test]
    fn a_thread_steps_back_alone_and_with_those_it_starts() {
        let before = getpriority_process(None).unwrap();
        let nice = || getpriority_process(None).unwrap();
        let lowered = move || {
            super::lower_priority(3);
            (nice(), std::thread::spawn(nice).join().unwrap())
        };
        let expected = (before + 3).min(19);
        assert_eq!(std::thread::spawn(lowered).join().unwrap(), (expected, expected));
        assert_eq!(getpriority_process(None).unwrap(), before);
    }
}
