//! A listener of the database's events: at each of the first events it carries out an operation, as
//! one more client, and it checks that events come in an order that makes sense.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tamis::events::{Event, EventListener};
use tamis::simulation::Scheduler;

use crate::client::{Client, Kept};
use crate::machine::Machine;
use crate::plan::Op;

/// A listener. One thread of the database calls it.
pub struct Listener {
    machine: Arc<Machine>,
    state: Mutex<State>,
    /// It carries out an operation.
    busy: AtomicBool,
}

#[derive(Default)]
struct State {
    /// `None` before the database is open, and once the listener must no longer use it.
    client: Option<Arc<Client>>,
    /// Those to come, soonest last, with their places in the plan.
    ops: Vec<(usize, Op)>,
    notes: Notes,
}

/// What the events so far have told.
#[derive(Default)]
struct Notes {
    /// Events are missing.
    lost: bool,
    flushes: i64,
    stalls: i64,
    suspensions: i64,
    compactions: HashSet<u64>,
}

impl Notes {
    fn note(&mut self, event: &Event) -> Result<(), String> {
        let mut ended_without_beginning = false;
        match event {
            Event::Lost { .. } => self.lost = true,
            Event::FlushBegan(_) => self.flushes += 1,
            Event::FlushEnded(_) => self.flushes -= 1,
            Event::StallBegan { .. } => self.stalls += 1,
            Event::StallEnded { .. } => self.stalls -= 1,
            Event::WritesSuspended { .. } => self.suspensions += 1,
            Event::WritesResumed { .. } => self.suspensions -= 1,
            Event::CompactionBegan(info) if !self.compactions.insert(info.job) => {
                return Err(format!("compaction {} began twice", info.job));
            }
            Event::CompactionEnded(outcome) => {
                ended_without_beginning = !self.compactions.remove(&outcome.job);
            }
            _ => {}
        }
        let below = [self.flushes, self.stalls, self.suspensions].iter().any(|count| *count < 0);
        match (below || ended_without_beginning) && !self.lost {
            true => Err(format!("something ended that had not begun: {event:?}")),
            false => Ok(()),
        }
    }
}

impl Listener {
    /// Creates a listener that will carry out these operations.
    pub fn new(machine: Arc<Machine>, ops: &[Op]) -> Arc<Listener> {
        let ops = ops.iter().cloned().enumerate().rev().collect();
        let state = Mutex::new(State { ops, ..State::default() });
        Arc::new(Listener { machine, state, busy: AtomicBool::new(false) })
    }

    /// Lets it carry out operations from now on.
    pub fn attach(&self, client: Client) {
        self.state().client = Some(Arc::new(client));
    }

    /// Takes the database away from it, once it has ended its operation.
    pub fn detach(&self) {
        // Not dropped under the lock: the last handle waits for the delivery of all events.
        let client = self.state().client.take();
        drop(client);
        while self.busy.load(Relaxed) {
            self.machine.sleep(Duration::from_millis(1));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventListener for Listener {
    fn event(&self, event: &Event) {
        let noted = self.state().notes.note(event);
        if let Err(what) = noted {
            self.machine.fail(format!("a listener: {what}"));
        }
        let next = {
            let mut state = self.state();
            let client = state.client.clone().filter(|client| !client.shared.disk.has_crashed());
            client.and_then(|client| Some((client, state.ops.pop()?)))
        };
        let Some((client, (at, op))) = next else { return };
        self.busy.store(true, Relaxed);
        client.step(at, &op, &mut Kept::default());
        drop(client);
        self.busy.store(false, Relaxed);
    }
}
