//! Waking many threads by one system call.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

#[cfg(feature = "simulation")]
use super::simulated;

/// A place where threads sleep until it rings. Waking `n` threads that sleep in a
/// [`Condvar`](super::Condvar) each takes `n` system calls, and on a virtual machine as many
/// interrupts of another processor; one ring wakes all.
///
/// Who sleeps waits for something else than the ring, which it looks at between
/// [`rings`](Bell::rings) and [`wait`](Bell::wait):
///
/// ```
/// # use std::sync::atomic::{AtomicBool, Ordering::{Acquire, Release}};
/// # let (bell, done) = (tamis_env::sync::Bell::default(), AtomicBool::new(false));
/// # std::thread::scope(|scope| {
/// scope.spawn(|| {
///     done.store(true, Release);
///     bell.ring();
/// });
/// loop {
///     let rings = bell.rings();
///     if done.load(Acquire) {
///         break;
///     }
///     bell.wait(rings);
/// }
/// # });
/// ```
///
/// Any thread may call anything. A ring that a sleeper has not counted comes after it looked, and
/// so [`wait`](Bell::wait) returns: the system compares the count as it puts the thread to sleep. A
/// ring whose thread sees no sleeper comes before that comparison: both write what the other reads,
/// in one total order (`SeqCst`; the system's comparison has a full barrier before it).
#[derive(Debug, Default)]
pub struct Bell {
    rings: AtomicU32,
    sleepers: AtomicU32,
}

impl Bell {
    /// Returns how often it rang, modulo 2^32.
    pub fn rings(&self) -> u32 {
        self.rings.load(SeqCst)
    }

    /// Returns how many threads sleep or are about to; those of a simulation are not counted.
    pub fn sleepers(&self) -> u32 {
        self.sleepers.load(SeqCst)
    }

    /// Sleeps until it has rung after `rings`, or for no reason.
    pub fn wait(&self, rings: u32) {
        #[cfg(feature = "simulation")]
        if let Some(machine) = simulated::current() {
            // No other simulated thread runs between the two, so no ring is missed.
            if self.rings() == rings {
                machine.park(self.address(), None);
            }
            return;
        }
        self.sleepers.fetch_add(1, SeqCst);
        atomic_wait::wait(&self.rings, rings);
        self.sleepers.fetch_sub(1, SeqCst);
    }

    /// Wakes all who sleep.
    pub fn ring(&self) {
        self.rings.fetch_add(1, SeqCst);
        #[cfg(feature = "simulation")]
        if let Some(machine) = simulated::current() {
            machine.unpark(self.address(), true);
        }
        if self.sleepers() > 0 {
            atomic_wait::wake_all(&self.rings);
        }
    }

    #[cfg(feature = "simulation")]
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// Threads that take turns, each turn known only by a number: the test would not end if a ring
    /// were lost.
    #[test]
    fn no_ring_is_lost() {
        const THREADS: u64 = 4;
        let rounds = if cfg!(miri) { 50 } else { 5_000 };
        let (bell, turn) = (Bell::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for me in 0..THREADS {
                let (bell, turn) = (&bell, &turn);
                scope.spawn(move || {
                    for round in 0..rounds {
                        loop {
                            let rings = bell.rings();
                            if turn.load(SeqCst) == round * THREADS + me {
                                break;
                            }
                            bell.wait(rings);
                        }
                        turn.fetch_add(1, SeqCst);
                        bell.ring();
                    }
                });
            }
        });
        assert_eq!(turn.into_inner(), THREADS * rounds);
        assert_eq!(bell.sleepers(), 0);
    }

    #[test]
    fn a_ring_that_was_not_counted_ends_the_wait() {
        let bell = Bell::default();
        let rings = bell.rings();
        bell.ring();
        bell.wait(rings);
        assert_eq!(bell.rings(), rings + 1);
    }
}
