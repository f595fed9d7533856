//! Where threads are, for the reports of failures.

use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tamis::simulation::TaskId;

use super::inner::{Inner, State};
use super::{MACHINE, Machine};

/// The real time that the threads of a hung machine get to tell where they are.
const PATIENCE: Duration = Duration::from_secs(10);

/// The functions that are named of each thread.
const DEPTH: usize = 4;

impl Inner {
    pub(super) fn wants_place_of(&self, task: TaskId) -> bool {
        self.asks_places && self.threads[task as usize].place.is_none()
    }
}

impl Machine {
    /// Fails, and says what each thread waits for and where.
    pub(super) fn fail_with_places<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        why: String,
    ) -> MutexGuard<'a, Inner> {
        inner.asks_places = true;
        let me = inner.running as usize;
        if inner.threads[me].state != State::Ended {
            inner = self.tell_place(inner, me as TaskId);
        }
        inner.threads.iter().for_each(|thread| thread.baton.notify_all());
        let started = Instant::now();
        while inner.threads.iter().any(|thread| thread.state != State::Ended && thread.place.is_none()) {
            let left = PATIENCE.saturating_sub(started.elapsed());
            if left.is_zero() {
                break;
            }
            inner = self.told.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let who = inner.waiting();
        inner.fail(format!("{why}:\n{who}"));
        self.over.notify_all();
        inner
    }

    /// Notes where the calling thread, which is `me`, is.
    pub(super) fn tell_place<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
        me: TaskId,
    ) -> MutexGuard<'a, Inner> {
        drop(inner);
        let frames = frames(usize::MAX);
        let is_engine =
            |frame: &&String| !["tamis_sim", "tamis_env", "simulat"].iter().any(|own| frame.contains(own));
        let named: Vec<&str> =
            frames.iter().filter(is_engine).map(|frame| frame.trim()).take(DEPTH).collect();
        let place = if named.is_empty() { String::new() } else { format!(" in {}", named.join(", ")) };
        let mut inner = self.inner();
        inner.threads[me as usize].place = Some(place);
        self.told.notify_all();
        inner
    }
}

/// Returns the engine's and the simulation's functions that the calling thread is in.
fn frames(most: usize) -> Vec<String> {
    let trace = std::backtrace::Backtrace::force_capture().to_string();
    trace.lines().filter(|line| line.contains("tamis")).take(most).map(str::to_owned).collect()
}

/// Makes every panic of a simulated thread fail its simulation, even one that the engine would
/// catch.
pub(super) fn tell_of_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let machine = MACHINE.with(|machine| machine.borrow().clone());
            let Some(machine) = machine else { return before(panic) };
            let thread = std::thread::current();
            let own = frames(40).join("\n");
            let name = thread.name().unwrap_or("?");
            machine.fail(format!("thread `{name}` panicked: {panic}\n{own}"));
        }));
    });
}
