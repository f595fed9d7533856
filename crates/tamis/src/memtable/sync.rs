//! The primitives of the publish protocol, switchable to model-checked versions.
//!
//! A unit-test build with `--cfg loom` replaces the atomics and the mutex that order a write before
//! a read by loom's, and turns [`Published`] into a tracked cell, so that a read that is not
//! ordered after the write of an entry fails the model instead of being a silent data race. Purely
//! statistical counters stay with `std`.

#[cfg(not(all(test, loom)))]
pub(super) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicUsize, Ordering},
};

#[cfg(all(test, loom))]
pub(super) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicUsize, Ordering},
};

/// Data that is complete before it is published and never changes afterwards.
#[cfg(not(all(test, loom)))]
#[repr(transparent)]
pub(super) struct Published<T>(T);

#[cfg(not(all(test, loom)))]
impl<T: Copy> Published<T> {
    pub(super) fn new(value: T) -> Self {
        Published(value)
    }

    #[inline(always)]
    pub(super) fn get(&self) -> T {
        self.0
    }
}

/// Data that is complete before it is published and never changes afterwards; the model checks the
/// order.
#[cfg(all(test, loom))]
pub(super) struct Published<T>(loom::cell::UnsafeCell<T>);

#[cfg(all(test, loom))]
impl<T: Copy> Published<T> {
    pub(super) fn new(value: T) -> Self {
        Published(loom::cell::UnsafeCell::new(value))
    }

    pub(super) fn get(&self) -> T {
        // SAFETY: nothing writes the cell after `new`; that `new` happened before is what the model
        // checks.
        self.0.with(|value| unsafe { *value })
    }
}
