//! The lock on a database's directory.
//!
//! # Unix
//!
//! The lock is `flock`, which belongs to the open file, not to the process: a second opening in
//! this process is refused, too, even by another copy of this library, and to close some other
//! descriptor of the file releases nothing. (With record locks, of `fcntl`, both go wrong
//! silently.) The price is that a child of a fork has the open file as well. So:
//!
//! * In a child, the copies of the descriptors are closed at once, by a
//!   [handler](crate::sync::Process): the lock goes with the process that took it, also when that
//!   one is killed.
//! * A lock that is given up is released by a call, for all who have the file open: a child that
//!   came into being past the handlers keeps nobody out once its parent has closed the database. If
//!   such a parent is killed, the child keeps the lock until it ends or executes another program.
//! * What is given up in a child is not there any more, and releases nothing.
//!
//! [`HELD`] knows the open files. Its lock is held over a fork, by the thread that forks, so that
//! the child sees each of them either not open yet, or known. No other lock is taken under it.
//!
//! # Windows
//!
//! The file is open and shared with nobody. There is no fork.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::DirLock;
use super::place::Places;

/// What tells a locked file from others.
#[cfg(unix)]
type Identity = (u64, u64);
#[cfg(not(unix))]
type Identity = std::path::PathBuf;

#[derive(Debug)]
struct Held {
    number: u64,
    identity: Identity,
    #[cfg_attr(not(unix), expect(dead_code, reason = "held by being open"))]
    file: File,
}

/// Locks, and the number of the next.
type Locks = (Vec<Held>, u64);

/// The locks that this process holds.
static HELD: Mutex<Locks> = Mutex::new((Vec::new(), 0));

/// A panic leaves nothing half done: each change is one call.
fn held() -> MutexGuard<'static, Locks> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One of the locks.
#[derive(Debug)]
pub(super) struct DiskLock {
    number: u64,
}

impl DirLock for DiskLock {}

impl Drop for DiskLock {
    fn drop(&mut self) {
        let mut held = held();
        let found = held.0.iter().position(|lock| lock.number == self.number);
        let Some(lock) = found.map(|at| held.0.swap_remove(at)) else { return };
        #[cfg(unix)]
        if let Err(e) = rustix::fs::flock(&lock.file, rustix::fs::FlockOperation::Unlock) {
            log::warn!("a directory could not be unlocked: {e}");
        }
        drop(lock);
    }
}

/// Takes the lock named by `path`, unless somebody holds it.
pub(super) fn take(places: &Places, path: &Path) -> io::Result<Option<DiskLock>> {
    let mut held = held();
    let Some((file, identity)) = open_locked(places, path)? else { return Ok(None) };
    let number = held.1;
    held.1 += 1;
    held.0.push(Held { number, identity, file });
    Ok(Some(DiskLock { number }))
}

/// Reports whether this process holds the lock named by `path`.
pub(super) fn is_held_here(places: &Places, path: &Path) -> io::Result<bool> {
    #[cfg(unix)]
    let identity = places.identity(path)?;
    #[cfg(not(unix))]
    let identity = places.canonical(path)?;
    Ok(held().0.iter().any(|lock| lock.identity == identity))
}

#[cfg(unix)]
fn open_locked(places: &Places, path: &Path) -> io::Result<Option<(File, Identity)>> {
    use rustix::fs::{FlockOperation, flock};
    use std::os::unix::fs::MetadataExt;
    crate::sync::Process::watch()?;
    let file = places.open_or_create(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            let file_is = file.metadata()?;
            Ok(Some((file, (file_is.dev(), file_is.ino()))))
        }
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

#[cfg(windows)]
fn open_locked(places: &Places, path: &Path) -> io::Result<Option<(File, Identity)>> {
    /// `ERROR_SHARING_VIOLATION`: the file is open elsewhere, and this call asks for exclusive
    /// access.
    const SHARING_VIOLATION: i32 = 32;
    match places.open_alone(path) {
        Ok(file) => Ok(Some((file, places.canonical(path)?))),
        Err(e) if e.raw_os_error() == Some(SHARING_VIOLATION) => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(not(any(unix, windows)))]
fn open_locked(_: &Places, _: &Path) -> io::Result<Option<(File, Identity)>> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(unix)]
thread_local! {
    /// The guard of [`HELD`] from before a fork until after it.
    static OVER_A_FORK: std::cell::RefCell<Option<MutexGuard<'static, Locks>>> =
        const { std::cell::RefCell::new(None) };
}

/// Called by the thread that forks, before it does.
#[cfg(unix)]
pub(crate) fn before_fork() {
    // A thread that has lost its thread-locals is about to end, and forks without the guard.
    let _ = OVER_A_FORK.try_with(|guard| *guard.borrow_mut() = Some(held()));
}

/// Called by the same thread after the fork, in the parent and in the child.
#[cfg(unix)]
pub(crate) fn after_fork(in_child: bool) {
    let _ = OVER_A_FORK.try_with(|guard| {
        if let Some(mut held) = guard.borrow_mut().take()
            && in_child
        {
            // Closes the files; the memory stays.
            held.0.clear();
        }
    });
}
