//! Calls that may take long, and can be given up from outside: by Ctrl-C, or by another language's
//! way to interrupt a thread.
//!
//! Whoever makes the call says how to find out ([`interruptible`]). What waits or works for long in
//! that thread asks now and then ([`is_interrupted`]), and returns an error once the answer is yes.
//! Other threads of the engine never ask.
//!
//! The question runs code that is not ours and may wait for other threads: nobody asks with a lock
//! of the engine held.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::sync;

/// How often the question is asked.
pub(crate) const INTERVAL: Duration = Duration::from_millis(50);

#[derive(Clone, Copy)]
struct LastAsked {
    question: fn() -> bool,
    last: Option<Instant>,
    /// A yes is final.
    yes: bool,
}

thread_local! {
    static ASKED: Cell<Option<LastAsked>> = const { Cell::new(None) };
}

/// Makes a call that this thread gives up once `question` says yes: waits for locks, compactions,
/// flushes and verifications ask it every 50 ms, without a lock held, and then fail with
/// [`TransactionError::Interrupted`](crate::TransactionError::Interrupted) or
/// [`AdminError::Interrupted`](crate::AdminError::Interrupted). A call that does not wait asks
/// nothing, and costs nothing more.
///
/// For bindings to languages whose threads can be interrupted.
pub fn interruptible<T>(question: fn() -> bool, call: impl FnOnce() -> T) -> T {
    struct Before(Option<LastAsked>);
    impl Drop for Before {
        fn drop(&mut self) {
            ASKED.set(self.0);
        }
    }
    let _before = Before(ASKED.replace(Some(LastAsked { question, last: None, yes: false })));
    call()
}

/// Reports whether this thread's call is to be given up. Asks at most every 50 ms, so that a loop
/// may call this at each step. Never with a lock held.
pub fn is_interrupted() -> bool {
    ASKED.get().is_some_and(ask)
}

/// Reports whether this thread's call can be given up: then it waits for at most [`INTERVAL`] at a
/// time.
pub(crate) fn is_possible() -> bool {
    ASKED.get().is_some()
}

#[cold]
fn ask(asked: LastAsked) -> bool {
    let is_due = asked.last.is_none_or(|last| sync::since(last) >= INTERVAL);
    if asked.yes || !is_due {
        return asked.yes;
    }
    // It may make calls of its own: none of them asks again.
    ASKED.set(None);
    let yes = (asked.question)();
    ASKED.set(Some(LastAsked { last: Some(sync::now()), yes, ..asked }));
    yes
}
