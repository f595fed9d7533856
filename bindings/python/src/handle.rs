//! The open database behind all Python objects, and what keeps those safe after a close and after a fork.
//!
//! A close ends the engine's work at once, whatever Python objects still live: they share one [`Core`], which every call asks first. The
//! engine's own handles live on in them, so that memory that they refer to is freed after its last user.
//!
//! After a fork the child has the memory of the engine without its threads, and perhaps a lock that one of them held. So nothing of
//! it may be called there, not even a destructor: every call is refused, and [`Held`] leaks what it holds.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use tamis::Db;
use tamis::maintenance::interruptible;
use tamis_bindings::Publisher;

use crate::errors::{OrRaise, closed, ended, forked, invalid_argument};

thread_local! {
    /// What a handler of signals has raised in this thread during a call that was given up for it.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs the handlers of signals that have come, in Python's main thread, and reports whether one has raised an exception.
fn is_interrupted() -> bool {
    Python::try_attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(raised) => {
            RAISED.set(Some(raised));
            true
        }
    })
    .unwrap_or(false)
}

/// Makes a call detached, and gives it up once a handler of signals raises an exception (Ctrl-C), which is the answer then.
pub(crate) fn patiently<R: Send>(py: Python<'_>, call: impl FnOnce() -> PyResult<R> + Send) -> PyResult<R> {
    let answer = py.detach(|| interruptible(is_interrupted, call));
    match RAISED.take() {
        Some(raised) => Err(raised),
        None => answer,
    }
}

/// Fails in any interpreter but the main one: others may end, or not end, while threads of the engine need them.
pub(crate) fn refuse_subinterpreters() -> PyResult<()> {
    // SAFETY: this thread is attached to an interpreter, which is asked for its number.
    let number = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    match number {
        0 => Ok(()),
        _ => Err(PyImportError::new_err("tamis does not work in subinterpreters, only in the main one")),
    }
}

/// How often this process has been forked off another one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// The process in which something was made.
#[derive(Clone, Copy, Debug)]
struct Origin(u64);

impl Origin {
    fn now() -> Origin {
        Origin(FORKS.load(Relaxed))
    }

    /// Reports whether it is this one.
    fn is_here(self) -> bool {
        self.0 == FORKS.load(Relaxed)
    }
}

/// Notes that this process was just forked off another one.
#[pyfunction]
pub(crate) fn _after_fork_in_child() {
    FORKS.fetch_add(1, Relaxed);
}

/// A part of the engine that is dropped only by the process that made it.
#[derive(Debug)]
pub(crate) struct Held<T> {
    value: ManuallyDrop<T>,
    origin: Origin,
}

impl<T> Held<T> {
    pub(crate) fn new(value: T) -> Held<T> {
        Held { value: ManuallyDrop::new(value), origin: Origin::now() }
    }

    /// Returns the value.
    pub(crate) fn into_inner(mut self) -> T {
        // SAFETY: `self` is forgotten right away, so the value is neither used nor dropped through it again.
        let value = unsafe { ManuallyDrop::take(&mut self.value) };
        std::mem::forget(self);
        value
    }
}

impl<T: Clone> Clone for Held<T> {
    fn clone(&self) -> Held<T> {
        Held { value: self.value.clone(), origin: self.origin }
    }
}

impl<T> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> std::ops::DerefMut for Held<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        if self.origin.is_here() {
            // SAFETY: this is the only place that drops the value, and `into_inner` forgets what it takes from.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// An open database, shared by all Python objects that stand for a part of it.
pub(crate) struct Core {
    /// `None` only while it is dropped.
    db: Option<Held<Db>>,
    /// What publishes its metrics; it is dropped first.
    publisher: Mutex<Option<Held<Publisher>>>,
    closed: AtomicBool,
}

impl Core {
    pub(crate) fn new(db: Db, publisher: Option<Publisher>) -> Core {
        Core {
            db: Some(Held::new(db)),
            publisher: Mutex::new(publisher.map(Held::new)),
            closed: AtomicBool::new(false),
        }
    }

    /// Returns the database, if it may be used.
    pub(crate) fn db(&self) -> PyResult<&Db> {
        let Some(db) = &self.db else { return Err(closed()) };
        if !db.origin.is_here() {
            return Err(forked());
        }
        if self.closed.load(Relaxed) {
            return Err(closed());
        }
        Ok(db)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.db().is_err()
    }

    /// Closes the database; a second call does nothing.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Ok(db) = self.db() else { return Ok(()) };
        if self.closed.swap(true, Relaxed) {
            return Ok(());
        }
        let (publisher, db) = (self.take_publisher(), db.clone());
        py.detach(|| {
            drop(publisher);
            db.close()
        })
        .or_raise()
    }

    fn take_publisher(&self) -> Option<Held<Publisher>> {
        self.publisher.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let Some(db) = self.db.take() else { return };
        // The end of the last handle waits for threads that may be waiting for the interpreter, to run a merge operator.
        let mut db = Some((self.take_publisher(), db));
        let detached = Python::try_attach(|py| {
            let db = db.take();
            py.detach(move || drop(db));
        });
        if detached.is_none() {
            drop(db);
        }
    }
}

/// Something that ends before the object that stands for it: a snapshot that was released, a transaction that was committed.
pub(crate) struct Slot<T> {
    value: Mutex<Option<Held<T>>>,
    /// The thread that holds the lock, by [`this_thread`]; otherwise 0.
    user: AtomicUsize,
    /// Elsewhere the lock may be held for good, by a thread that is not there.
    origin: Origin,
    /// What is said of it afterwards.
    ended: &'static str,
}

impl<T> Slot<T> {
    pub(crate) fn new(value: T, ended: &'static str) -> Slot<T> {
        Slot {
            value: Mutex::new(Some(Held::new(value))),
            user: AtomicUsize::new(0),
            origin: Origin::now(),
            ended,
        }
    }

    /// Calls `op` with the value, one thread at a time.
    pub(crate) fn with<R>(&self, op: impl FnOnce(&mut T) -> PyResult<R>) -> PyResult<R> {
        if !self.origin.is_here() {
            return Err(forked());
        }
        match &mut *self.lock()?.value {
            Some(value) => op(value),
            None => Err(ended(self.ended)),
        }
    }

    /// Calls `op` with the value if no other thread is using it: never waits.
    pub(crate) fn with_now<R>(&self, op: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        self.value.try_lock().ok()?.as_deref_mut().and_then(op)
    }

    /// Takes the value out, if it is there and was made by this process.
    pub(crate) fn take(&self) -> PyResult<Option<T>> {
        if self.origin.is_here() { Ok(self.lock()?.value.take().map(Held::into_inner)) } else { Ok(None) }
    }

    /// Takes the value out, or says that it is gone.
    pub(crate) fn end(&self) -> PyResult<T> {
        self.take()?.ok_or_else(|| ended(self.ended))
    }

    /// Waits for other threads. A read may run Python code, of a merge operator, in the thread that holds the lock: there the wait
    /// would have no end.
    fn lock(&self) -> PyResult<Using<'_, T>> {
        if self.user.load(Relaxed) == this_thread() {
            return Err(invalid_argument("a merge operator cannot use the object that is being read with"));
        }
        // A panic in between leaves a whole value behind, or none.
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        self.user.store(this_thread(), Relaxed);
        Ok(Using { value, user: &self.user })
    }
}

/// The lock of a slot, while a thread holds it.
struct Using<'a, T> {
    value: MutexGuard<'a, Option<Held<T>>>,
    user: &'a AtomicUsize,
}

impl<T> Drop for Using<'_, T> {
    fn drop(&mut self) {
        // Before the lock is released, as fields are dropped after this.
        self.user.store(0, Relaxed);
    }
}

/// Returns a number that no other running thread has, and is not 0.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
