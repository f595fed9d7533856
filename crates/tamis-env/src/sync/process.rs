//! Which process this is, for what a fork copies and must not be used on both sides.
//!
//! The child of a `fork` has a copy of the memory and one thread. A lock that another thread held
//! stays locked there for ever, the threads that would do the work are not there, and the
//! descriptors write to the parent's files. So whatever owns threads, locks or files notes the
//! [`Process`] that it was made in, and refuses to work in another one.
//!
//! The number of the process changes in the handlers that [`Process::watch`] registers
//! (`pthread_atfork`): to compare it is a load from memory, where `getpid` is a system call of some
//! 50 ns, as much as a get from memory. Two ways past the handlers remain: a bare `clone` system
//! call, which a process of several threads may only use to `exec`, and `vfork`, whose child may do
//! nothing else either.
//!
//! On systems without `fork` there is one process.

#[cfg(unix)]
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// How many forks lie between the process that began and this one. Changed only in a child, while
/// it has one thread, so that every later load sees it (`Relaxed`).
#[cfg(unix)]
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, as far as its children and parents have to tell it from themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// Returns the present process.
    #[inline]
    pub fn current() -> Process {
        #[cfg(unix)]
        return Process(FORKS.load(Relaxed));
        #[cfg(not(unix))]
        Process(0)
    }

    /// Reports whether this is the present process, and not one that it was forked from. A load and
    /// a comparison.
    #[inline]
    pub fn is_current(self) -> bool {
        self == Process::current()
    }

    /// Lets forks be noticed from now on. Any thread may call it, any number of times.
    ///
    /// # Errors
    ///
    /// The system has no memory for the handlers.
    pub fn watch() -> std::io::Result<()> {
        #[cfg(unix)]
        {
            static REGISTERED: std::sync::OnceLock<i32> = std::sync::OnceLock::new();
            // SAFETY: the handlers are functions of this program that do not unwind. They run in
            // the thread that forks: the first takes one lock, of which the others release their
            // copy, and in the child, where only calls are allowed that are safe in a signal
            // handler, besides that a counter is raised and descriptors are closed.
            let register = || unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
            match *REGISTERED.get_or_init(register) {
                0 => {}
                code => return Err(std::io::Error::from_raw_os_error(code)),
            }
        }
        Ok(())
    }
}

#[cfg(unix)]
extern "C" fn before() {
    crate::io::before_fork();
}

#[cfg(unix)]
extern "C" fn in_parent() {
    crate::io::after_fork(false);
}

#[cfg(unix)]
extern "C" fn in_child() {
    FORKS.fetch_add(1, Relaxed);
    crate::io::after_fork(true);
}
