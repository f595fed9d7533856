//! The phase that a session is in, in one byte, and all transitions between phases.

#[cfg(all(test, loom))]
use loom::sync::atomic::AtomicU8;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// What a session can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Access {
    Open,
    /// Opened read-only.
    ReadOnly,
    /// The disk had no room for the session to begin.
    Waiting,
    /// A log, or the record of which logs count, may not be safely on disk.
    Suspended,
    /// After a panic.
    Stopped,
}

/// How far closing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Closing {
    Here,
    /// `close` was called: writes are refused, and threads that wait while they hold a lock give
    /// up.
    Leaving,
    /// No write is under way: background work is canceled.
    Closed,
    /// Background work ends.
    Ending,
}

/// What changes a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Wait,
    Begin,
    Suspend,
    Resume,
    Stop,
    Leave,
    Close,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    pub(super) access: Access,
    pub(super) closing: Closing,
}

impl Phase {
    const ACCESSES: [Access; 5] =
        [Access::Open, Access::ReadOnly, Access::Waiting, Access::Suspended, Access::Stopped];
    const CLOSINGS: [Closing; 4] = [Closing::Here, Closing::Leaving, Closing::Closed, Closing::Ending];

    fn of(byte: u8) -> Phase {
        let (access, closing) = (usize::from(byte & 7), usize::from(byte >> 3));
        Phase { access: Phase::ACCESSES[access], closing: Phase::CLOSINGS[closing] }
    }

    fn byte(self) -> u8 {
        self.access as u8 | (self.closing as u8) << 3
    }

    /// The table of transitions. `None`: the step changes nothing here.
    fn after(self, step: Step) -> Option<Phase> {
        use {Access::*, Closing::*};
        let to = |access| Some(Phase { access, ..self });
        let at = |closing| Some(Phase { closing, ..self });
        match (step, self.access, self.closing) {
            (Step::Wait, Open, Here) => to(Waiting),
            (Step::Begin, Waiting, _) => to(Open),
            // A waiting session has a log only when it is about to begin.
            (Step::Suspend, Open | Waiting, _) => to(Suspended),
            (Step::Resume, Suspended, _) => to(Open),
            (Step::Stop, Open | Waiting | Suspended, _) => to(Stopped),
            (Step::Leave, _, Here) => at(Leaving),
            (Step::Close, _, Leaving) => at(Closed),
            (Step::End, _, Closed) => at(Ending),
            _ => None,
        }
    }
}

/// A session's phase, shared by several threads.
///
/// Each change is one exchange, so of two threads that take the same step at the same time, each
/// learns which was first. `AcqRel` and `Acquire`: a thread that sees a phase sees what was stored
/// for it, such as the cause.
#[derive(Debug)]
pub(super) struct Phases(AtomicU8);

impl Phases {
    pub(super) fn new(access: Access) -> Phases {
        Phases(AtomicU8::new(Phase { access, closing: Closing::Here }.byte()))
    }

    /// Reports whether nothing is in the way of a write.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        // The byte of `Open` and `Here`.
        self.0.load(Acquire) == 0
    }

    #[inline]
    pub(super) fn get(&self) -> Phase {
        Phase::of(self.0.load(Acquire))
    }

    /// Takes a step. Returns `false` if it changes nothing.
    pub(super) fn take(&self, step: Step) -> bool {
        let next = |byte| Phase::of(byte).after(step).map(Phase::byte);
        self.0.fetch_update(AcqRel, Acquire, next).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const STEPS: [Step; 8] = [
        Step::Wait,
        Step::Begin,
        Step::Suspend,
        Step::Resume,
        Step::Stop,
        Step::Leave,
        Step::Close,
        Step::End,
    ];

    fn all() -> impl Iterator<Item = Phase> {
        let of = |access| Phase::CLOSINGS.into_iter().map(move |closing| Phase { access, closing });
        Phase::ACCESSES.into_iter().flat_map(of)
    }

    #[test]
    fn a_byte_is_a_phase() {
        all().for_each(|phase| assert_eq!(Phase::of(phase.byte()), phase));
        assert!(Phases::new(Access::Open).is_open());
        assert!(all().filter(|phase| phase.byte() == 0).count() == 1);
    }

    /// What must hold for the table, whatever it says.
    #[test]
    fn no_step_leads_back() {
        for (phase, step) in all().flat_map(|phase| STEPS.map(|step| (phase, step))) {
            let Some(next) = phase.after(step) else { continue };
            assert!(next != phase && next.closing >= phase.closing, "{phase:?} {step:?}");
            let stopped = phase.access == Access::Stopped;
            assert!(!stopped || next.access == Access::Stopped, "{phase:?} {step:?}");
            let opens = next.access == Access::Open && phase.access != Access::Open;
            assert!(!opens || matches!(step, Step::Begin | Step::Resume), "{phase:?} {step:?}");
            let is_reader = phase.access == Access::ReadOnly;
            assert!(!is_reader || next.access == Access::ReadOnly, "{phase:?} {step:?}");
        }
    }

    #[test]
    fn every_phase_ends() {
        for phase in all() {
            let leave = [Step::Leave, Step::Close, Step::End].into_iter();
            let end = leave.fold(phase, |phase, step| phase.after(step).unwrap_or(phase));
            assert_eq!(end.closing, Closing::Ending, "{phase:?}");
        }
    }
}

/// Threads that suspend, resume, stop and close at the same time.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::sync::atomic::Ordering::Relaxed;
    use loom::thread;

    #[test]
    fn what_stops_stays_and_one_thread_closes() {
        loom::model(|| {
            let phases = Arc::new(Phases::new(Access::Open));
            let closer = {
                let phases = phases.clone();
                thread::spawn(move || phases.take(Step::Leave) && phases.take(Step::Close))
            };
            let stopper = {
                let phases = phases.clone();
                thread::spawn(move || assert!(phases.take(Step::Stop)))
            };
            phases.take(Step::Suspend);
            let before = phases.get();
            phases.take(Step::Resume);
            let after = phases.get();
            assert!(after.closing >= before.closing);
            assert!(before.access != Access::Stopped || after == before || after.closing > before.closing);
            let mine = phases.take(Step::Leave) && phases.take(Step::Close);
            stopper.join().unwrap();
            assert_eq!(u8::from(closer.join().unwrap()) + u8::from(mine), 1);
            assert_eq!(phases.get(), Phase { access: Access::Stopped, closing: Closing::Closed });
        });
    }

    #[test]
    fn who_sees_a_phase_sees_its_cause() {
        loom::model(|| {
            let phases = Arc::new(Phases::new(Access::Open));
            let cause = Arc::new(AtomicBool::new(false));
            let stopper = {
                let (phases, cause) = (phases.clone(), cause.clone());
                thread::spawn(move || {
                    cause.store(true, Relaxed);
                    phases.take(Step::Stop);
                })
            };
            if phases.get().access == Access::Stopped {
                assert!(cause.load(Relaxed));
            }
            stopper.join().unwrap();
        });
    }
}
