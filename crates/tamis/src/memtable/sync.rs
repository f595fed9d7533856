//! The primitives of the publish protocol, switchable to model-checked versions.
//!
//! A unit-test build with `--cfg loom` uses loom's atomics and mutex for whatever orders a write
//! before a read. It also turns [`Published`] into a tracked cell: a read not ordered after the
//! write of an entry then fails the model instead of being a silent data race. Purely statistical
//! counters stay with `std`.

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

/// Data complete before it is published, never changed afterwards.
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

/// Data complete before it is published, never changed afterwards. The model checks the order.
#[cfg(all(test, loom))]
pub(super) struct Published<T>(loom::cell::UnsafeCell<T>);

#[cfg(all(test, loom))]
impl<T: Copy> Published<T> {
    pub(super) fn new(value: T) -> Self {
        Published(loom::cell::UnsafeCell::new(value))
    }

    pub(super) fn get(&self) -> T {
        // SAFETY: nothing writes the cell after `new`, and the model checks that `new` happened
        // before.
        self.0.with(|value| unsafe { *value })
    }
}
