//! Models of [`ArcSwap`](arc_swap::ArcSwap) and [`Arc`](std::sync::Arc), whose insides loom cannot
//! see. They are built on loom's atomics and promise no more than the originals do.
//!
//! * A load returns what was stored last, together with a reference to it. It acquires what the
//!   store released and orders nothing else. In particular, it does not order two loads, as a lock
//!   would.
//! * A store releases and acquires.
//! * Dropping a reference releases; dropping the last one acquires all the others.
//!
//! One word holds the pointer and the number of its loads, so a load is one step. Replacing the
//! pointer adds that number to the reference count.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

pub(in crate::table::units) use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// Bits of the word that count loads.
const LOADS: u32 = 16;

/// How many references the pointer itself counts as: more than it will ever have loads.
const OWN: u64 = 1 << LOADS;

#[derive(Debug)]
struct Counted<T> {
    /// References, including the pointer's own.
    count: AtomicU64,
    value: T,
}

/// Like `Arc`.
#[derive(Debug)]
pub(in crate::table::units) struct Shared<T>(NonNull<Counted<T>>);

/// What a load returns.
pub(in crate::table::units) type Guard<T> = Shared<T>;

// SAFETY: as for `Arc`.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as for `Arc`.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(in crate::table::units) fn new(value: T) -> Shared<T> {
        Shared(NonNull::from(Box::leak(Box::new(Counted { count: AtomicU64::new(1), value }))))
    }

    /// Gives up `references` references and reports whether they were the last ones.
    fn release(&self, references: u64) -> bool {
        // SAFETY: a reference keeps it alive.
        let last = unsafe { self.0.as_ref() }.count.fetch_sub(references, Ordering::Release) == references;
        if last {
            fence(Ordering::Acquire);
        }
        last
    }

    /// Gives up `references` references, including this one, and returns the value if they were the
    /// last ones.
    fn release_all(self, references: u64) -> Option<T> {
        let this = ManuallyDrop::new(self);
        this.release(references).then(|| {
            // SAFETY: it came from a box, and nobody else has a reference.
            unsafe { Box::from_raw(this.0.as_ptr()) }.value
        })
    }

    pub(in crate::table::units) fn into_inner(this: Self) -> Option<T> {
        this.release_all(1)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        // SAFETY: this reference keeps it alive.
        unsafe { self.0.as_ref() }.count.fetch_add(1, Ordering::Relaxed);
        Shared(self.0)
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this reference keeps it alive.
        &unsafe { self.0.as_ref() }.value
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        if self.release(1) {
            // SAFETY: it came from a box, and nobody else has a reference.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

/// Like `ArcSwap`.
#[derive(Debug)]
pub(in crate::table::units) struct Present<T> {
    /// The address and, in the low bits, the number of loads since it was stored.
    word: AtomicU64,
    value: PhantomData<Shared<T>>,
}

impl<T> Present<T> {
    pub(in crate::table::units) fn from_pointee(value: T) -> Present<T> {
        Present { word: AtomicU64::new(Self::word(Shared::new(value))), value: PhantomData }
    }

    /// Turns a reference into the pointer's own references.
    fn word(value: Shared<T>) -> u64 {
        let value = ManuallyDrop::new(value);
        // SAFETY: the reference keeps it alive.
        unsafe { value.0.as_ref() }.count.fetch_add(OWN - 1, Ordering::Relaxed);
        (value.0.as_ptr().expose_provenance() as u64) << LOADS
    }

    /// Returns a reference that is already counted.
    fn reference(word: u64) -> Shared<T> {
        let address = std::ptr::with_exposed_provenance_mut((word >> LOADS) as usize);
        Shared(NonNull::new(address).expect("the address of a box"))
    }

    pub(in crate::table::units) fn load(&self) -> Guard<T> {
        Self::reference(self.word.fetch_add(1, Ordering::Acquire))
    }

    pub(in crate::table::units) fn load_full(&self) -> Shared<T> {
        self.load()
    }

    pub(in crate::table::units) fn store(&self, value: Shared<T>) {
        let old = self.word.swap(Self::word(value), Ordering::AcqRel);
        Self::give_up(old);
    }

    /// Gives up the pointer's own references, except those that its loads have taken.
    fn give_up(word: u64) {
        drop(Self::reference(word).release_all(OWN - word % OWN));
    }
}

impl<T> Drop for Present<T> {
    fn drop(&mut self) {
        Self::give_up(self.word.load(Ordering::Relaxed));
    }
}
