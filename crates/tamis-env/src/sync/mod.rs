//! The scheduler interface: every lock, condition, thread, pause and clock read of an engine above
//! `io`.
//!
//! Without the feature `simulation` these are zero-cost wrappers of `std`. With it, a thread that
//! belongs to a simulated machine (see `simulated`) calls that machine's scheduler instead: one
//! such thread runs at a time, a seed decides which, and time passes only while all of them wait.
//! Other threads behave as without the feature.
//!
//! Two rules apply to users of this module:
//!
//! * **Locking never panics.** A thread that panics while it holds a lock leaves its partial
//!   changes behind, and [`Mutex::was_poisoned`] reports it. The users of the engine's two large
//!   locks (`state`, `log`) check that and stop writes; published data is immutable, so reads
//!   continue.
//! * **Nothing here may be called while a lock of another kind is held** (a shard of a cache crate,
//!   say), except to wake others: in a simulation the thread may be suspended at any call, and the
//!   others would wait for a lock whose owner never runs.

use std::sync::{LockResult, PoisonError, TryLockError};
use std::time::{Duration, Instant};

mod bell;
pub mod channel;
mod process;
#[cfg(feature = "simulation")]
pub mod simulated;
pub mod thread;

pub use bell::Bell;
pub use process::Process;

/// A mutex whose [`lock`](Mutex::lock) cannot fail.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

/// A guard that gives access to the value of a [`Mutex`].
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    /// `None` only while the guard is being dropped or waits for a condition.
    guard: Option<std::sync::MutexGuard<'a, T>>,
    lock: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    /// Creates an unlocked mutex around `value`.
    pub const fn new(value: T) -> Self {
        Mutex(std::sync::Mutex::new(value))
    }

    /// Acquires the lock, waiting if necessary.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(feature = "simulation")]
        if let Some(machine) = simulated::current() {
            machine.point(simulated::Point::Lock);
            loop {
                match self.try_take() {
                    Some(guard) => return self.guard(guard),
                    None => machine.park(self.address(), None),
                }
            }
        }
        self.guard(ignore_poison(self.0.lock()))
    }

    /// Acquires the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.try_take().map(|guard| self.guard(guard))
    }

    /// Reports whether a thread panicked while it held the lock.
    #[inline]
    pub fn was_poisoned(&self) -> bool {
        self.0.is_poisoned()
    }

    /// Clears the poisoning.
    pub fn clear_poison(&self) {
        self.0.clear_poison();
    }

    /// Returns the guarded value, poisoned or not.
    pub fn into_inner(self) -> T {
        ignore_poison(self.0.into_inner())
    }

    fn try_take(&self) -> Option<std::sync::MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[inline]
    fn guard<'a>(&'a self, guard: std::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard { guard: Some(guard), lock: self }
    }

    #[cfg(feature = "simulation")]
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

fn ignore_poison<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

impl<T> MutexGuard<'_, T> {
    /// Releases the lock, and notifies a simulated machine.
    #[inline]
    fn release(&mut self) {
        if self.guard.take().is_some() {
            #[cfg(feature = "simulation")]
            if let Some(machine) = simulated::current() {
                machine.unpark(self.lock.address(), true);
            }
        }
        let _ = self.lock;
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.release();
    }
}

impl<T> std::ops::Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.guard.as_ref().expect("a guard in use holds its lock")
    }
}

impl<T> std::ops::DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("a guard in use holds its lock")
    }
}

/// A condition variable. Each is used with one lock only.
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// Creates a condition variable without waiters.
    pub const fn new() -> Self {
        Condvar(std::sync::Condvar::new())
    }

    /// Releases the lock, waits for a notification (or a spurious wakeup), and acquires the lock
    /// again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_until(guard, None)
    }

    /// Like [`wait`](Condvar::wait), but no longer than `timeout`.
    pub fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, timeout: Duration) -> MutexGuard<'a, T> {
        self.wait_until(guard, Some(timeout))
    }

    fn wait_until<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Option<Duration>,
    ) -> MutexGuard<'a, T> {
        let lock = guard.lock;
        #[cfg(feature = "simulation")]
        if let Some(machine) = simulated::current() {
            // No other simulated thread runs between the two, so no notification is missed.
            guard.release();
            machine.park(self.address(), timeout);
            return lock.lock();
        }
        let held = guard.guard.take().expect("a guard in use holds its lock");
        let held = match timeout {
            None => ignore_poison(self.0.wait(held)),
            Some(timeout) => ignore_poison(self.0.wait_timeout(held, timeout)).0,
        };
        lock.guard(held)
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        #[cfg(feature = "simulation")]
        if let Some(machine) = simulated::current() {
            machine.unpark(self.address(), false);
        }
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        #[cfg(feature = "simulation")]
        if let Some(machine) = simulated::current() {
            machine.unpark(self.address(), true);
        }
        self.0.notify_all();
    }

    #[cfg(feature = "simulation")]
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// A monotonic time, as background work measures it.
#[inline]
pub fn now() -> Instant {
    #[cfg(feature = "simulation")]
    if let Some(machine) = simulated::current() {
        return machine.now();
    }
    Instant::now()
}

/// Returns the time since `then`.
#[inline]
pub fn since(then: Instant) -> Duration {
    now().saturating_duration_since(then)
}

/// A point between two steps of a lock-free algorithm where a simulated machine may switch threads.
/// Otherwise does nothing.
#[inline(always)]
pub fn point() {
    #[cfg(feature = "simulation")]
    if let Some(machine) = simulated::current() {
        machine.point(simulated::Point::Step);
    }
}

/// Spins for a few microseconds until `done`. Pointless, and therefore skipped, where only one
/// thread runs at a time.
#[inline]
pub fn spin_until(done: impl Fn() -> bool) {
    #[cfg(feature = "simulation")]
    if simulated::current().is_some() {
        return;
    }
    let backoff = crossbeam_utils::Backoff::new();
    while !done() && !backoff.is_completed() {
        backoff.snooze();
    }
}

/// Lets other threads run until `done`, or until `limit` has passed: for waits shorter than it
/// takes to sleep and be woken. In a simulation, where time passes only while all threads wait, it
/// sleeps.
pub fn wait_up_to(limit: Duration, done: impl Fn() -> bool) {
    #[cfg(feature = "simulation")]
    if simulated::current().is_some() {
        return thread::sleep(limit);
    }
    let started = Instant::now();
    while !done() && started.elapsed() < limit {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_under_a_lock_is_reported_and_does_not_lock_out_others() {
        let lock = Mutex::new(1);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            *lock.lock() = 2;
            let _held = lock.lock();
            panic!("while the lock is held");
        }));
        assert!(panicked.is_err() && lock.was_poisoned());
        assert_eq!(*lock.lock(), 2);
        assert!(lock.try_lock().is_some());
        lock.clear_poison();
        assert!(!lock.was_poisoned());
        assert_eq!(lock.into_inner(), 2);
    }

    #[test]
    fn a_taken_lock_is_not_taken_twice() {
        let lock = Mutex::new(());
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_waiter_is_notified_or_times_out() {
        let (lock, condition) = (Mutex::new(false), Condvar::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *lock.lock() = true;
                condition.notify_all();
            });
            let mut seen = lock.lock();
            while !*seen {
                seen = condition.wait(seen);
            }
        });
        drop(condition.wait_timeout(lock.lock(), Duration::from_millis(1)));
        assert!(lock.try_lock().is_some());
    }
}
