//! The machine as the engine's threads, locks and pauses call it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tamis::simulation::{Point, Scheduler, TaskId};

use super::inner::{On, State, Thread};
use super::{MACHINE, Machine};

impl Scheduler for Machine {
    fn point(&self, _: Point) {
        self.step(self.inner(), false);
    }

    fn park(&self, on: usize, timeout: Option<Duration>) {
        let mut inner = self.inner();
        let mut until = timeout.map(|timeout| inner.clock + timeout);
        // Conditions occasionally wake a thread spuriously.
        if inner.random.u32(..512) == 0 {
            let soon = inner.clock + Duration::from_micros(50);
            until = Some(until.map_or(soon, |until| until.min(soon)));
        }
        let me = inner.running as usize;
        inner.threads[me].state = State::Waiting { on: On::Address(on), until };
        self.step(inner, true);
    }

    fn unpark(&self, on: usize, all: bool) {
        let mut inner = self.inner();
        let waits =
            |thread: &Thread| matches!(thread.state, State::Waiting { on: On::Address(at), .. } if at == on);
        let mut waiting: Vec<usize> =
            (0..inner.threads.len()).filter(|id| waits(&inner.threads[*id])).collect();
        if !all && waiting.len() > 1 {
            let chosen = waiting[inner.random.usize(..waiting.len())];
            waiting = vec![chosen];
        }
        for id in waiting {
            inner.threads[id].state = State::Ready;
        }
    }

    fn sleep(&self, duration: Duration) {
        let mut inner = self.inner();
        let (me, until) = (inner.running as usize, inner.clock + duration);
        inner.threads[me].state = State::Waiting { on: On::Time, until: Some(until) };
        self.step(inner, true);
    }

    fn now(&self) -> Instant {
        self.origin + self.inner().clock
    }

    fn register(&self, name: &str) -> io::Result<TaskId> {
        let mut inner = self.inner();
        if inner.refused_threads > 0 {
            inner.refused_threads -= 1;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let id = inner.threads.len() as TaskId;
        let priority = inner.random.u64(1 << 32..1 << 33);
        let (name, baton) = (name.to_owned(), Arc::default());
        let thread = Thread { name, state: State::Ready, priority, baton, place: None };
        inner.threads.push(thread);
        Ok(id)
    }

    fn begin(&self, task: TaskId) {
        MACHINE.with(|machine| *machine.borrow_mut() = self.this.upgrade());
        self.wait_for_baton(self.inner(), task);
    }

    fn end(&self, task: TaskId, _panicked: bool) {
        let mut inner = self.inner();
        inner.threads[task as usize].state = State::Ended;
        for thread in &mut inner.threads {
            if matches!(thread.state, State::Waiting { on: On::End(other), .. } if other == task) {
                thread.state = State::Ready;
            }
        }
        if task == 0 {
            inner.ended = true;
            self.over.notify_all();
            return;
        }
        if inner.running != task {
            // It was never started.
            return;
        }
        match inner.choose(true) {
            Some(next) => {
                inner.note(task << 32 | next);
                inner.running = next;
                inner.threads[next as usize].baton.notify_one();
            }
            None => drop(self.fail_with_places(inner, "deadlock: all threads wait".to_owned())),
        }
    }

    fn join(&self, task: TaskId) {
        let mut inner = self.inner();
        let me = inner.running as usize;
        if inner.threads[task as usize].state != State::Ended {
            inner.threads[me].state = State::Waiting { on: On::End(task), until: None };
        }
        self.step(inner, true);
    }
}
