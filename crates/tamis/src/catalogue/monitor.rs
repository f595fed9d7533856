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
        self.wait_for(state, Duration::from_secs(1))
    }

    /// Waits for a change of the state, at most as long as a flag set without a signal may go
    /// unnoticed.
    pub(crate) fn wait_briefly<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.wait_for(state, Duration::from_millis(20))
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
