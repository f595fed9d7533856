//! The machine's state: the threads, the clock, and the choice of the next thread.

use std::fmt::Write as _;
use std::sync::{Arc, Condvar};
use std::time::Duration;

use tamis::simulation::TaskId;

use super::Strategy;
use super::duties::Duties;

/// All that the machine's lock guards.
pub(super) struct Inner {
    pub(super) random: fastrand::Rng,
    pub(super) strategy: Strategy,
    pub(super) clock: Duration,
    pub(super) threads: Vec<Thread>,
    pub(super) running: TaskId,
    pub(super) steps: u64,
    pub(super) trace: u64,
    pub(super) failure: Option<String>,
    pub(super) ended: bool,
    /// The number of next threads whose creation fails.
    pub(super) refused_threads: u32,
    pub(super) duties: Duties,
    /// A failure waits for the places of all threads.
    pub(super) asks_places: bool,
}

/// A thread of the machine.
pub(super) struct Thread {
    pub(super) name: String,
    pub(super) state: State,
    pub(super) priority: u64,
    pub(super) baton: Arc<Condvar>,
    /// The functions of the engine in which it waits, once somebody asked.
    pub(super) place: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    Ready,
    Waiting { on: On, until: Option<Duration> },
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum On {
    Address(usize),
    End(TaskId),
    Time,
}

impl Inner {
    pub(super) fn new(seed: u64, strategy: Strategy) -> Inner {
        Inner {
            random: fastrand::Rng::with_seed(seed),
            strategy,
            clock: Duration::ZERO,
            threads: Vec::new(),
            running: 0,
            steps: 0,
            trace: 0,
            failure: None,
            ended: false,
            refused_threads: 0,
            duties: Duties::default(),
            asks_places: false,
        }
    }

    pub(super) fn fail(&mut self, why: String) {
        if self.failure.is_none() {
            self.failure = Some(why);
        }
    }

    pub(super) fn note(&mut self, what: u64) {
        let mixed = (self.trace ^ what ^ (self.clock.as_nanos() as u64)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.trace = mixed ^ (mixed >> 29);
    }

    pub(super) fn wake_who_is_due(&mut self) {
        let clock = self.clock;
        for thread in &mut self.threads {
            if matches!(thread.state, State::Waiting { until: Some(until), .. } if until <= clock) {
                thread.state = State::Ready;
            }
        }
    }

    /// Chooses the next thread: the running one unless it cannot run or a change is due. `None` if
    /// no thread ever can.
    pub(super) fn choose(&mut self, must: bool) -> Option<TaskId> {
        let (every, priorities) = match self.strategy {
            Strategy::Random { every } => (every, false),
            Strategy::Priorities { every } => (every, true),
        };
        let change = self.random.u32(..every.max(1)) == 0;
        if priorities && change {
            let last = self.threads.iter().map(|thread| thread.priority).min().unwrap_or(0);
            self.threads[self.running as usize].priority = last.saturating_sub(1);
        }
        if !must && !change && !priorities {
            return Some(self.running);
        }
        loop {
            let ready = || (0..).zip(&self.threads).filter(|(_, thread)| thread.state == State::Ready);
            let count = ready().count();
            if count > 0 {
                let chosen = match priorities {
                    true => ready().max_by_key(|(id, thread)| (thread.priority, std::cmp::Reverse(*id))),
                    false => {
                        let nth = self.random.usize(..count);
                        ready().nth(nth)
                    }
                };
                return chosen.map(|(id, _)| id);
            }
            let deadlines = self.threads.iter().filter_map(|thread| match thread.state {
                State::Waiting { until, .. } => until,
                State::Ready | State::Ended => None,
            });
            self.clock = deadlines.min()?;
            self.wake_who_is_due();
        }
    }

    /// Describes what each thread waits for.
    pub(super) fn waiting(&self) -> String {
        let mut text = String::new();
        for thread in &self.threads {
            let what = match thread.state {
                State::Waiting { on: On::Address(_), .. } => "a lock or a condition".to_owned(),
                State::Waiting { on: On::End(id), .. } => {
                    format!("the end of `{}`", self.threads[id as usize].name)
                }
                State::Waiting { on: On::Time, .. } => "time to pass".to_owned(),
                State::Ready => "its turn".to_owned(),
                State::Ended => continue,
            };
            let place = thread.place.as_deref().unwrap_or("");
            let _ = writeln!(text, "  `{}` waits for {what}{place}", thread.name);
        }
        text
    }
}
