//! The `state` lock and its condition variable.
//!
//! # Threads
//!
//! Any thread may lock the state for bookkeeping and for edits of the manifest, including their
//! sync, but never during a flush or a compaction; and any thread may wait for a change of the
//! state. A thread that changes something that another may wait for notifies afterwards. A waiting
//! thread checks its condition again after at most a second, since a few flags are set by threads
//! that cannot take the lock.
//!
//! # Poison
//!
//! A panic under the lock leaves a state that cannot be trusted: the next thread that takes the
//! lock stops writes for good. Reads take no lock and go on; so does the bookkeeping that closing
//! needs.

use std::sync::Arc;
use std::time::Duration;

use crate::catalogue::state::State;
use crate::gate::Gate;
use crate::gate::backoff::RETRY;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// After this time, a waiting thread looks for flags that were set without the lock.
const LONG: Duration = Duration::from_secs(1);

/// The same for flags that are set without a signal.
const SHORT: Duration = Duration::from_millis(20);

/// The state shared by the background work and the writers of one database.
#[derive(Debug)]
pub(crate) struct Monitor {
    state: Mutex<State>,
    changed: Arc<Condvar>,
    gate: Arc<Gate>,
}

impl Monitor {
    pub(crate) fn new(state: State, gate: &Arc<Gate>) -> Monitor {
        Monitor { state: Mutex::new(state), changed: gate.changed(), gate: gate.clone() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.state.lock();
        if self.state.was_poisoned() {
            self.gate.stop(&"a panic while the database's state was being changed");
        }
        state
    }

    /// Wakes the threads that wait for a change of the state.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Waits for a change of the state, for at most a second.
    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.wait_for(state, LONG)
    }

    /// Waits for a change of the state, at most as long as a flag set without a signal may go
    /// unnoticed.
    pub(crate) fn wait_briefly<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.wait_for(state, SHORT)
    }

    /// Waits for a change of the state, or until failed work may be retried.
    pub(crate) fn wait_for_retry<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let fails = self.gate.check_health().is_err() || state.scheduler.retries_flushes();
        if fails { self.wait_for(state, RETRY.0) } else { self.wait(state) }
    }

    pub(crate) fn wait_for<'a>(&self, state: MutexGuard<'a, State>, most: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, most)
    }

    /// Stops all writes for good, after a panic. Must not be called with the state locked.
    pub(crate) fn poison(&self, cause: &dyn std::fmt::Display) {
        self.gate.stop(cause);
        let _state = self.lock();
        self.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::catalogue::tests::session;
    use crate::options::KeyspaceOptions;

    /// Without the signal, the wait would last an hour.
    #[test]
    fn whoever_waits_for_a_change_learns_that_writes_have_stopped() {
        let db = session(1, &KeyspaceOptions::default(), |_| ());
        thread::scope(|threads| {
            let hour = Duration::from_secs(3600);
            let mut state = db.state();
            threads.spawn(|| db.monitor.poison(&"a panic"));
            loop {
                state = db.monitor.wait_for(state, hour);
                if db.gate.stopped().is_some() {
                    break;
                }
            }
        });
    }
}
