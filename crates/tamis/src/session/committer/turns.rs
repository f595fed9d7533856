//! The order in which batches in flight become visible.
//!
//! A ring with a place for each batch: empty, or the last sequence number of a finished batch. The
//! first unpublished place is `next`. A thread that finishes its batch publishes from there for as
//! long as places are finished.
//!
//! # Invariants
//! * Turns are taken in log order, so the numbers of consecutive places are consecutive.
//! * At most [`PLACES`] turns are taken but not published; beyond that, the taker waits.
//!
//! # Threads
//! [`take`](Turns::take) and [`are_taken`](Turns::are_taken) are for the holder of the log's lock,
//! `finish` for any thread. One thread at a time publishes: the one that set `publishing`. A thread
//! that finds the flag set leaves its batch to the publisher, which looks once more after it
//! cleared the flag. Setting and clearing are exchanges with `AcqRel`: the exchange that clears the
//! flag comes after the one that found it set, so the publisher then sees that thread's place.
//! `next` is stored with `Release` after places are emptied, and loaded with `Acquire` before they
//! are taken again.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use tamis_base::key::SeqNo;

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicBool, AtomicU64};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The most batches in flight.
const PLACES: usize = if cfg!(all(test, loom)) { 2 } else { 256 };

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Turns {
    /// The last numbers of finished batches; 0 for an empty place.
    places: Box<[AtomicU64]>,
    /// How many turns were taken.
    taken: AtomicU64,
    /// How many turns were published.
    next: AtomicU64,
    publishing: AtomicBool,
}

/// The turn of one batch.
#[derive(Debug)]
pub(crate) struct Ticket(u64);

impl Default for Turns {
    fn default() -> Turns {
        Turns {
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            taken: AtomicU64::new(0),
            next: AtomicU64::new(0),
            publishing: AtomicBool::new(false),
        }
    }
}

impl Turns {
    fn place(&self, turn: u64) -> &AtomicU64 {
        &self.places[turn as usize % PLACES]
    }

    /// Reports whether all turns are taken until one is published.
    pub(crate) fn are_taken(&self) -> bool {
        self.taken.load(Relaxed) - self.next.load(Acquire) >= PLACES as u64
    }

    /// Takes the next turn. There must be one.
    pub(crate) fn take(&self) -> Ticket {
        debug_assert!(!self.are_taken());
        let turn = self.taken.load(Relaxed);
        self.taken.store(turn + 1, Relaxed);
        Ticket(turn)
    }

    /// Notes that a batch is finished, whose last number is `last` (not 0). Everything that is
    /// finished in order gets published, by this thread or by another.
    pub(crate) fn finish(&self, ticket: Ticket, last: SeqNo, publish: impl Fn(SeqNo)) {
        self.place(ticket.0).store(last, Release);
        while !self.publishing.swap(true, AcqRel) {
            let (mut next, mut done) = (self.next.load(Relaxed), 0);
            loop {
                match self.place(next).load(Acquire) {
                    0 => break,
                    last => done = last,
                }
                self.place(next).store(0, Relaxed);
                next += 1;
            }
            if done > 0 {
                // First, since a thread that sees the number may take the next turns.
                self.next.store(next, Release);
                publish(done);
            }
            self.publishing.swap(false, AcqRel);
            // A thread may have come too late to be seen, but too early to find the flag cleared.
            if self.place(next).load(Acquire) == 0 {
                break;
            }
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::Arc;
    use loom::thread;

    use loom::sync::atomic::Ordering::SeqCst;

    use super::*;

    /// ```sh
    /// RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test -p tamis --lib committer::turns
    /// ```
    #[test]
    fn everything_is_published_in_order_and_nothing_is_left() {
        loom::model(|| {
            let turns = Arc::new(Turns::default());
            let visible = Arc::new(AtomicU64::new(0));
            let publish = |visible: &AtomicU64, last: u64| {
                assert!(visible.load(SeqCst) < last, "out of order");
                visible.store(last, SeqCst);
            };
            let (first, second) = (turns.take(), turns.take());
            assert!(turns.are_taken());
            let other = thread::spawn({
                let (turns, visible) = (turns.clone(), visible.clone());
                move || turns.finish(second, 2, |last| publish(&visible, last))
            });
            turns.finish(first, 1, |last| publish(&visible, last));
            other.join().unwrap();
            assert_eq!(visible.load(SeqCst), 2);
            // The places are used again.
            let third = turns.take();
            turns.finish(third, 3, |last| publish(&visible, last));
            assert_eq!(visible.load(SeqCst), 3);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_batch_waits_for_those_before_it_and_takes_those_after_it_along() {
        let turns = Turns::default();
        let published = std::cell::RefCell::new(Vec::new());
        let publish = |last| published.borrow_mut().push(last);
        for round in 0..2 * PLACES as u64 {
            let from = round * 10;
            let [first, second, third] = [(); 3].map(|()| turns.take());
            turns.finish(second, from + 4, publish);
            assert!(published.borrow().is_empty());
            turns.finish(first, from + 2, publish);
            assert_eq!(published.take(), [from + 4]);
            turns.finish(third, from + 9, publish);
            assert_eq!(published.take(), [from + 9]);
        }
    }

    #[test]
    fn no_more_turns_are_taken_than_there_are_places() {
        let turns = Turns::default();
        let all: Vec<_> = (0..PLACES).map(|_| turns.take()).collect();
        assert!(turns.are_taken());
        for (i, turn) in all.into_iter().enumerate() {
            turns.finish(turn, i as u64 + 1, |_| {});
            assert!(!turns.are_taken());
        }
    }
}
