//! What has to end within a bound of the machine's time.
//!
//! A bound counts only the time in which the disk works: while it is disturbed nothing is overdue,
//! and when it works again, everything begun gets its whole time anew.

use std::time::Duration;

use tamis::simulation::TaskId;

use super::Machine;
use super::inner::Inner;

/// Something that a thread has begun.
#[derive(Clone, Debug)]
struct Duty {
    task: TaskId,
    what: String,
    bound: Duration,
    /// When it began, or was last [renewed](Machine::renew).
    since: Duration,
    due: Duration,
}

/// Everything begun.
#[derive(Debug, Default)]
pub(super) struct Duties {
    begun: Vec<Duty>,
    /// No duty is due before.
    first_due: Duration,
    /// The disk is disturbed until then, at the latest.
    disturbed: Option<Duration>,
    /// What took longest of all that ended undisturbed, and how long.
    pub(super) longest: (String, Duration),
}

impl Duties {
    fn schedule(&mut self) {
        self.first_due = self.begun.iter().map(|duty| duty.due).min().unwrap_or(Duration::MAX);
    }

    fn renew(&mut self, now: Duration, which: impl Fn(&Duty) -> bool) {
        for duty in self.begun.iter_mut().filter(|duty| which(duty)) {
            let took = now.saturating_sub(duty.since);
            if took > self.longest.1 {
                self.longest = (duty.what.clone(), took);
            }
            (duty.since, duty.due) = (now, now + duty.bound);
        }
        self.schedule();
    }
}

impl Inner {
    /// Says what is overdue, if anything is.
    pub(super) fn overdue(&mut self) -> Option<String> {
        let now = self.clock;
        if let Some(until) = self.duties.disturbed {
            if now < until {
                return None;
            }
            self.work_again();
        }
        if now <= self.duties.first_due {
            return None;
        }
        let duty = self.duties.begun.iter().find(|duty| duty.due < now)?;
        let (took, bound) = (now.saturating_sub(duty.since), duty.bound);
        Some(format!(
            "{} has not ended after {:.1} s of the machine's time; its bound is {} s",
            duty.what,
            took.as_secs_f64(),
            bound.as_secs()
        ))
    }

    fn work_again(&mut self) {
        self.duties.disturbed = None;
        let now = self.clock;
        for duty in &mut self.duties.begun {
            (duty.since, duty.due) = (now, now + duty.bound);
        }
        self.duties.schedule();
    }
}

impl Machine {
    /// Does `work` of the calling thread, which must not take longer than `bound`.
    pub fn within<T>(&self, bound: Duration, what: impl FnOnce() -> String, work: impl FnOnce() -> T) -> T {
        {
            let mut inner = self.inner();
            let (task, now) = (inner.running, inner.clock);
            inner.duties.begun.push(Duty { task, what: what(), bound, since: now, due: now + bound });
            inner.duties.schedule();
        }
        let result = work();
        let mut inner = self.inner();
        let (task, now) = (inner.running, inner.clock);
        if let Some(at) = inner.duties.begun.iter().rposition(|duty| duty.task == task) {
            let duty = inner.duties.begun.remove(at);
            let took = now.saturating_sub(duty.since);
            if inner.duties.disturbed.is_none() && took > inner.duties.longest.1 {
                inner.duties.longest = (duty.what, took);
            }
            inner.duties.schedule();
        }
        result
    }

    /// Begins the time of the calling thread's work anew: one of its parts has ended.
    pub fn renew(&self) {
        let mut inner = self.inner();
        let (task, now) = (inner.running, inner.clock);
        inner.duties.renew(now, |duty| duty.task == task);
    }

    /// Says that the disk is disturbed for `most` at the longest, or that it works again.
    pub fn disturb(&self, most: Option<Duration>) {
        let mut inner = self.inner();
        match most {
            Some(most) => inner.duties.disturbed = Some(inner.clock + most),
            None if inner.duties.disturbed.is_some() => inner.work_again(),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tamis::simulation::Scheduler;

    use super::*;
    use crate::machine::{Report, Strategy};

    const BOUND: Duration = Duration::from_secs(3);

    fn run(work: impl FnOnce(&Machine) + Send + 'static) -> Report {
        let machine = Machine::new(1, Strategy::Random { every: 2 }, 10_000);
        let inside: Arc<Machine> = machine.clone();
        machine.run(move || work(&inside))
    }

    #[test]
    fn work_that_takes_too_long_fails_with_its_name_and_what_threads_wait_for() {
        let report = run(|machine| {
            machine.within(BOUND, || "a long sleep".to_owned(), || machine.sleep(2 * BOUND));
        });
        let failure = report.failure.unwrap();
        assert!(failure.starts_with("a long sleep has not ended"), "{failure}");
        assert!(failure.contains("`first`"), "{failure}");
    }

    #[test]
    fn only_the_time_in_which_the_disk_works_counts() {
        let report = run(|machine| {
            machine.within(
                BOUND,
                || "work".to_owned(),
                || {
                    machine.disturb(Some(5 * BOUND));
                    machine.sleep(4 * BOUND);
                    machine.disturb(None);
                    machine.sleep(BOUND / 2);
                    machine.renew();
                    machine.sleep(BOUND / 2);
                },
            );
        });
        assert_eq!(report.failure, None);
        assert!(report.longest.1 < BOUND, "{:?}", report.longest);
        let report = run(|machine| {
            machine.within(
                BOUND,
                || "work".to_owned(),
                || {
                    machine.disturb(Some(BOUND));
                    machine.sleep(4 * BOUND);
                    machine.sleep(2 * BOUND);
                },
            );
        });
        assert!(report.failure.is_some(), "the disturbance ended by itself");
    }
}
