//! Decides when to free the memory of units that readers may still be probing.
//!
//! Readers probe units without a lock. A get *pins* the present generation once and then follows
//! the words of one segment per run. A change replaces a segment's word and hands the old memory to
//! [`retire`], which puts it into the present generation and begins the next one. A generation
//! keeps the next one alive. So a generation is freed, with the memory retired into it, once no pin
//! of it or of an older one is left.
//!
//! # Why no freed memory is probed
//!
//! A reader pins generation `g` and then finds memory in a word. Let that memory be retired into
//! `r`.
//!
//! * If `r` is `g` or younger, the pin keeps `g` alive, and `g` keeps `r` alive.
//! * If `r` is older than `g`, the word was replaced before `retire` began the generation after `r`
//!   with a releasing store. `g` is that generation or a younger one, and the load that pinned it
//!   acquires. So the reader saw the new word or a newer one, a contradiction.
//!
//! `model` checks this under loom, with this code and that of [`Word`](super::word::Word).
//!
//! # Threads
//!
//! Any thread may pin at any time. A pin is short: it lasts for one get. A thread suspended during
//! a pin delays the freeing of all memory retired meanwhile, which is why retired bytes are counted
//! ([`Retired`]). One list of generations serves the whole process, as a get's pin must cover every
//! segment that it may reach. Any thread may retire; the lock makes its two steps one.
//!
//! Pinning is one load of an [`ArcSwap`](arc_swap::ArcSwap) and writes to no memory that other
//! threads write to.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, OnceLock, PoisonError};

use tamis_filter::ElasticLine;

/// The pointer to the present generation, and references to generations.
#[cfg(not(all(test, loom)))]
mod sync {
    pub(super) use arc_swap::ArcSwap as Present;
    pub(super) use std::sync::{Arc as Shared, Mutex};

    pub(super) type Guard<T> = arc_swap::Guard<Shared<T>>;
}

#[cfg(all(test, loom))]
use super::model::present as sync;

use sync::{Guard, Mutex, Present, Shared};

/// The generations of the units of all databases in the process.
static UNITS: LazyLock<Generations<Retired>> = LazyLock::new(Generations::new);

/// Frees memory `R` by dropping it, once no pin older than its retirement is left.
#[derive(Debug)]
pub(super) struct Generations<R> {
    present: Present<Generation<R>>,
    /// Held while one generation succeeds another.
    retiring: Mutex<()>,
}

impl<R> Generations<R> {
    pub(super) fn new() -> Generations<R> {
        Generations { present: Present::from_pointee(Generation::new()), retiring: Mutex::new(()) }
    }

    /// Pins the present generation.
    #[inline]
    pub(super) fn pin(&self) -> Pin<R> {
        Pin { _generation: self.present.load() }
    }

    /// Takes memory that no word leads to. Frees it once no pin is left under which it may have
    /// been found.
    pub(super) fn retire(&self, memory: Vec<R>) {
        let _retiring = self.retiring.lock().unwrap_or_else(PoisonError::into_inner);
        let next = Shared::new(Generation::new());
        let present = self.present.load_full();
        // Both are still empty, as each generation is succeeded only once.
        let _ = present.retired.set(memory);
        let _ = present.next.set(next.clone());
        self.present.store(next);
    }
}

#[derive(Debug)]
pub(super) struct Generation<R> {
    retired: OnceLock<Vec<R>>,
    next: OnceLock<Shared<Generation<R>>>,
}

impl<R> Generation<R> {
    fn new() -> Generation<R> {
        Generation { retired: OnceLock::new(), next: OnceLock::new() }
    }
}

impl<R> Drop for Generation<R> {
    fn drop(&mut self) {
        // Drop generations one by one rather than recursively: there may be a million.
        let mut next = self.next.take();
        while let Some(mut generation) = next.and_then(Shared::into_inner) {
            next = generation.next.take();
        }
    }
}

/// While this lives, memory found in a word since it was taken is not freed.
#[derive(Debug)]
pub struct Pin<R = Retired> {
    _generation: Guard<Generation<R>>,
}

/// Pins the present generation. A thread should hold few pins at a time, as each beyond the eighth
/// costs more.
#[inline]
pub fn pin() -> Pin {
    UNITS.pin()
}

/// Memory that no word leads to. Its bytes are counted until it is freed.
#[derive(Debug)]
pub struct Retired {
    lines: NonNull<ElasticLine>,
    count: usize,
    bytes: u64,
    counter: Option<Arc<AtomicU64>>,
}

// SAFETY: it owns its lines, which are plain integers, and no method gives access to them.
unsafe impl Send for Retired {}
// SAFETY: as above.
unsafe impl Sync for Retired {}

impl Retired {
    /// Takes over `count` lines.
    ///
    /// # Safety
    /// They were allocated as a boxed slice of `count` lines, which its owner gives up. No word
    /// leads to them.
    pub(super) unsafe fn new(lines: NonNull<ElasticLine>, count: usize, bytes: u64) -> Retired {
        Retired { lines, count, bytes, counter: None }
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        let slice = NonNull::slice_from_raw_parts(self.lines, self.count);
        // SAFETY: the promise made to `new`. Readers that found the lines have ended, by the
        // argument in the module header.
        drop(unsafe { Box::from_raw(slice.as_ptr()) });
        if let Some(counter) = &self.counter {
            counter.fetch_sub(self.bytes, Relaxed);
        }
    }
}

/// Frees memory as soon as no get can be probing it, which may be at once. `counter` includes its
/// bytes until then.
pub fn retire(mut memory: Vec<Retired>, counter: &Arc<AtomicU64>) {
    if memory.is_empty() {
        return;
    }
    for retired in &mut memory {
        counter.fetch_add(retired.bytes, Relaxed);
        retired.counter = Some(counter.clone());
    }
    UNITS.retire(memory);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: u64) -> Retired {
        let lines = Box::leak(vec![ElasticLine::ZERO; 3].into_boxed_slice());
        // SAFETY: the box was just given up.
        unsafe { Retired::new(NonNull::from(lines).cast(), 3, bytes) }
    }

    /// Waits for pins of other tests in this process.
    fn until_freed(counter: &AtomicU64) {
        for _ in 0..10_000 {
            if counter.load(Relaxed) == 0 {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("{} bytes were never freed", counter.load(Relaxed));
    }

    #[test]
    fn what_is_retired_is_freed_when_the_last_older_pin_ends() {
        let counter = Arc::new(AtomicU64::new(0));
        let first = pin();
        retire(vec![block(5), block(7)], &counter);
        let second = pin();
        retire(vec![block(11)], &counter);
        assert_eq!(counter.load(Relaxed), 23);
        drop(second);
        assert_eq!(counter.load(Relaxed), 23, "the first pin keeps all that was retired after it");
        let third = pin();
        drop(first);
        until_freed(&counter);
        drop(third);
    }

    #[test]
    fn a_long_list_of_generations_is_freed_without_recursion() {
        let counter = Arc::new(AtomicU64::new(0));
        let first = pin();
        let count = if cfg!(miri) { 50 } else { 100_000 };
        (0..count).for_each(|_| retire(vec![block(1)], &counter));
        assert_eq!(counter.load(Relaxed), count);
        drop(first);
        until_freed(&counter);
    }
}
