//! The gate of a session: whether it accepts writes now, and if not, why.
//!
//! Whether the session takes writes, only the gate knows. A write that it lets pass may still find
//! no room: on the device (the [reserve](reserve)), for a session that has not begun
//! ([`begin`](crate::jobs::begin)), or behind compactions that do not proceed
//! ([`scheduler`](crate::catalogue::scheduler)). A session is in one [`Phase`](phase::Phase); that
//! type's table has all transitions. The reason why writes fail is kept beside the phase.
//!
//! # Threads
//!
//! Any thread may ask, with one load while nothing is in the way. The causes are behind leaf
//! mutexes: a phase is entered after its cause is stored, and left before its cause is removed.
//! Writes may be suspended with or without the log's lock held. Only the flush thread resumes them,
//! and takes that lock to begin the new log, so that a group leader that found no suspension first
//! finishes its group in the old log. `close` is called under the log's lock and `end` under the
//! state's, so neither happens while another thread holds that lock.

pub(crate) mod backoff;
pub(crate) mod pace;
pub(crate) mod reserve;
pub(crate) mod room;

pub(crate) mod phase;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use phase::{Access, Closing, Phases, Step};
use tamis_base::ids::LogId;

use crate::error::{StorageError, WriteError};
use crate::gate::backoff::{Backoff, RETRY};
use crate::observe::Observer;
use crate::observe::events::Event;
use crate::observe::write_counters::WriteCounters;
use crate::sync::{Condvar, Mutex, Process};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Gate {
    dir: PathBuf,
    /// The process that opened the database.
    process: Process,
    phases: Phases,
    stopped: OnceLock<String>,
    suspended: Mutex<Option<Suspension>>,
    /// Why a session that waits for room could not begin.
    waits: Mutex<String>,
    counters: Arc<WriteCounters>,
    observer: Arc<Observer>,
    /// The [monitor](crate::catalogue::monitor)'s.
    changed: Arc<Condvar>,
}

/// A suspension of writes until the logs are replaced.
#[derive(Clone, Debug)]
struct Suspension {
    cause: String,
    /// The log begun in place of the abandoned ones.
    begun: Option<LogId>,
    /// The backoff if the last attempt to resume failed.
    backoff: Option<Backoff>,
}

impl Gate {
    pub(crate) fn new(
        dir: &Path,
        read_only: bool,
        counters: &Arc<WriteCounters>,
        observer: &Arc<Observer>,
    ) -> Gate {
        Gate {
            dir: dir.to_owned(),
            process: Process::current(),
            phases: Phases::new(if read_only { Access::ReadOnly } else { Access::Open }),
            stopped: OnceLock::new(),
            suspended: Mutex::default(),
            waits: Mutex::default(),
            counters: counters.clone(),
            observer: observer.clone(),
            changed: Arc::default(),
        }
    }

    pub(crate) fn changed(&self) -> Arc<Condvar> {
        self.changed.clone()
    }

    /// Reports whether this process opened the database, rather than a process that it was forked
    /// from.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.process.is_current()
    }

    /// Returns an error in the child of a fork. There, locks may be held forever by threads that do
    /// not exist, so this comes before any lock.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), StorageError> {
        match self.is_ours() {
            true => Ok(()),
            false => Err(self.forked()),
        }
    }

    #[cold]
    pub(crate) fn forked(&self) -> StorageError {
        StorageError::Forked { path: self.dir.clone() }
    }

    /// Returns an error if nothing may be written now. A session that waits for room begins in
    /// [`Session::check_ready`](crate::session::Session::check_ready), not here.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<(), WriteError> {
        self.check_process()?;
        if self.phases.is_open() { Ok(()) } else { self.refusal() }
    }

    #[cold]
    fn refusal(&self) -> Result<(), WriteError> {
        let phase = self.phases.get();
        if phase.access == Access::ReadOnly {
            return Err(WriteError::ReadOnly);
        }
        if phase.closing != Closing::Here {
            return Err(WriteError::Closed);
        }
        self.check_health()
    }

    /// Returns an error if writes are suspended or have stopped, in whatever phase else.
    pub(crate) fn check_health(&self) -> Result<(), WriteError> {
        if let Some(cause) = self.stopped() {
            return Err(WriteError::Poisoned { cause: cause.clone() });
        }
        self.suspended().map_or(Ok(()), |cause| Err(WriteError::Suspended { cause }))
    }

    /// Like [`check_writable`](Self::check_writable), but succeeds while writes are suspended: for
    /// work that frees space.
    pub(crate) fn check_open(&self) -> Result<(), WriteError> {
        match self.check_writable() {
            Err(WriteError::Suspended { .. }) => Ok(()),
            checked => checked,
        }
    }

    /// Reports whether the database was opened read-only.
    #[inline]
    pub(crate) fn is_read_only(&self) -> bool {
        self.phases.get().access == Access::ReadOnly
    }

    /// Reports whether background work should end as soon as possible.
    pub(crate) fn cancels(&self) -> bool {
        let phase = self.phases.get();
        phase.closing >= Closing::Closed || self.stopped().is_some()
    }

    /// Announces that the database is being closed. Returns `false` if that was done before.
    pub(crate) fn leave(&self) -> bool {
        self.phases.take(Step::Leave)
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.phases.get().closing != Closing::Here
    }

    /// Records that no write is under way any more, and cancels background work. Under the log's
    /// lock, after [`leave`](Self::leave).
    pub(crate) fn close(&self) {
        self.phases.take(Step::Close);
    }

    /// Tells the background threads to end. With the state locked.
    pub(crate) fn end(&self) {
        self.phases.take(Step::End);
    }

    /// Reports whether background threads should end. Called with the state locked; between calls,
    /// threads wait for a change of the state.
    pub(crate) fn has_ended(&self) -> bool {
        self.phases.get().closing == Closing::Ending
    }

    /// Returns why writes stopped for good.
    pub(crate) fn stopped(&self) -> Option<&String> {
        if self.phases.is_open() { None } else { self.stopped.get() }
    }

    /// Returns why writes are suspended.
    pub(crate) fn suspended(&self) -> Option<String> {
        if self.phases.get().access != Access::Suspended {
            return None;
        }
        self.suspended.lock().as_ref().map(|suspension| suspension.cause.clone())
    }

    /// Returns why nothing can be written now, though it may be later.
    pub(crate) fn held_up(&self) -> Option<String> {
        let waits = || self.is_waiting().then(|| self.waits.lock().clone());
        self.suspended().or_else(waits)
    }

    /// Reports whether the session has not begun yet for lack of room.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        !self.phases.is_open() && self.phases.get().access == Access::Waiting
    }

    /// Records that the session waits for room.
    pub(crate) fn note_waiting(&self, error: &StorageError) {
        *self.waits.lock() = error.to_string();
        self.phases.take(Step::Wait);
    }

    /// Records that a waiting session has begun.
    pub(crate) fn begin(&self) {
        self.phases.take(Step::Begin);
    }

    /// Records why writes stop for good, unless they have stopped already. Callers that hold no
    /// lock wake waiting threads with
    /// [`Monitor::poison`](crate::catalogue::monitor::Monitor::poison).
    #[cold]
    pub(crate) fn stop(&self, cause: &dyn std::fmt::Display) {
        let first = self.stopped.set(cause.to_string()).is_ok();
        self.phases.take(Step::Stop);
        if first {
            log::error!("{}: writes stop: {cause}", self.dir.display());
            self.observer.raise(|| Event::WritesStopped { cause: cause.to_string() });
        }
    }

    /// Suspends writes: a log, or the record of which logs count, may not be safely on disk.
    #[cold]
    pub(crate) fn suspend(&self, error: &StorageError) {
        {
            let mut suspended = self.suspended.lock();
            if suspended.is_none() {
                log::error!("{}: writes are suspended: {error}", self.dir.display());
                *suspended = Some(Suspension { cause: error.to_string(), begun: None, backoff: None });
                self.counters.suspensions.add(1);
                self.observer.raise(|| Event::WritesSuspended { cause: error.to_string() });
                self.phases.take(Step::Suspend);
            }
        }
        // The `state` lock may be held here: a thread that misses the signal checks again within a
        // second.
        self.changed.notify_all();
    }

    /// Reports whether writes are suspended and an attempt to resume them is due.
    pub(crate) fn resume_is_due(&self) -> bool {
        let due = |suspension: &Suspension| suspension.backoff.as_ref().is_none_or(Backoff::is_over);
        !self.phases.is_open() && self.suspended.lock().as_ref().is_some_and(due)
    }

    /// Returns the log begun in place of the abandoned ones, if there is one yet. `None` if writes
    /// are not suspended.
    pub(crate) fn replacement_log(&self) -> Option<Option<LogId>> {
        self.suspended.lock().as_ref().map(|suspension| suspension.begun)
    }

    pub(crate) fn note_replacement_log(&self, log: LogId) {
        self.suspended.lock().as_mut().expect("the flush thread alone resumes").begun = Some(log);
    }

    /// Ends the suspension and returns its cause. With the `state` locked: the next failed edit
    /// suspends writes again.
    pub(crate) fn end_suspension(&self) -> Option<String> {
        let mut suspended = self.suspended.lock();
        self.phases.take(Step::Resume);
        let cause = suspended.take()?.cause;
        self.observer.raise(|| Event::WritesResumed { cause: cause.clone() });
        Some(cause)
    }

    /// Records that an attempt to resume failed.
    pub(crate) fn stays_suspended(&self, error: &StorageError) {
        if let Some(suspension) = self.suspended.lock().as_mut() {
            let before = suspension.backoff.take();
            if before.is_none() {
                log::warn!("{}: writes stay suspended: {error}", self.dir.display());
            }
            suspension.backoff = Some(Backoff::after(before, RETRY, error));
            suspension.cause = error.to_string();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::observe::events::EventListener;

    fn gate(read_only: bool) -> (Gate, Arc<Observer>, Arc<std::sync::Mutex<Vec<Event>>>) {
        let events = Arc::<std::sync::Mutex<Vec<Event>>>::default();
        let told = events.clone();
        let listener: Arc<dyn EventListener> =
            Arc::new(move |event: &Event| told.lock().unwrap().push(event.clone()));
        let observer = Observer::new(Path::new("/db"), &[listener], None);
        (Gate::new(Path::new("/db"), read_only, &Arc::default(), &observer), observer, events)
    }

    thread_local! {
        /// The warnings of this thread, if it wants to know them.
        static WARNED: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
    }

    struct Log;

    impl log::Log for Log {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &log::Record<'_>) {
            WARNED.with_borrow_mut(|all| {
                all.iter_mut().for_each(|warned| warned.push(record.args().to_string()));
            });
        }

        fn flush(&self) {}
    }

    /// What is logged as a warning meanwhile.
    fn warned(act: impl FnOnce()) -> Vec<String> {
        // Another test may have set it.
        let _ = log::set_logger(&Log);
        log::set_max_level(log::LevelFilter::Warn);
        WARNED.set(Some(Vec::new()));
        act();
        WARNED.take().unwrap()
    }

    fn failure(what: &str) -> StorageError {
        StorageError::io("write", Path::new("x"), std::io::Error::other(what.to_owned()))
    }

    #[test]
    fn writes_stop_once_and_for_the_first_reason() {
        let (gate, observer, events) = gate(false);
        gate.check_writable().unwrap();
        assert_eq!(gate.stopped(), None);
        gate.stop(&"first");
        gate.stop(&"second");
        assert_eq!(gate.stopped().unwrap(), "first");
        let refused = gate.check_writable().unwrap_err();
        assert!(matches!(refused, WriteError::Poisoned { cause } if cause == "first"));
        assert!(gate.cancels() && !gate.is_waiting() && !gate.is_leaving());
        observer.queue().end();
        observer.queue().deliver();
        assert_eq!(*events.lock().unwrap(), [Event::WritesStopped { cause: "first".into() }]);
    }

    #[test]
    fn a_session_waits_for_room_until_it_begins() {
        let (gate, ..) = gate(false);
        assert_eq!((gate.is_waiting(), gate.held_up()), (false, None));
        gate.note_waiting(&failure("full"));
        assert_eq!((gate.is_waiting(), gate.held_up()), (true, Some(failure("full").to_string())));
        assert_eq!(gate.suspended(), None);
        gate.begin();
        assert_eq!((gate.is_waiting(), gate.held_up()), (false, None));
        gate.check_writable().unwrap();
    }

    #[test]
    fn writes_are_suspended_for_the_first_reason_until_they_resume() {
        let (gate, observer, events) = gate(false);
        assert!(!gate.resume_is_due());
        gate.suspend(&failure("first"));
        gate.suspend(&failure("second"));
        let cause = failure("first").to_string();
        assert_eq!((gate.is_waiting(), gate.held_up()), (false, Some(cause.clone())));
        let refused = gate.check_writable().unwrap_err();
        assert!(matches!(refused, WriteError::Suspended { cause: why } if why == cause));
        gate.check_open().unwrap();
        assert!(gate.resume_is_due());
        assert_eq!(gate.replacement_log(), Some(None));
        gate.note_replacement_log(7);
        assert_eq!(gate.replacement_log(), Some(Some(7)));
        gate.stays_suspended(&failure("again"));
        let again = failure("again").to_string();
        assert_eq!((gate.suspended(), gate.resume_is_due()), (Some(again.clone()), false));
        assert_eq!(gate.end_suspension(), Some(again.clone()));
        assert_eq!((gate.suspended(), gate.replacement_log(), gate.end_suspension()), (None, None, None));
        gate.check_writable().unwrap();
        assert!(gate.phases.is_open(), "nothing is in the way of a write");
        observer.queue().end();
        observer.queue().deliver();
        let told = [Event::WritesSuspended { cause }, Event::WritesResumed { cause: again }];
        assert_eq!(*events.lock().unwrap(), told);
        assert_eq!(gate.counters.suspensions.get(), 1);
    }

    #[test]
    fn of_attempts_to_resume_that_fail_the_first_is_logged() {
        let (gate, ..) = gate(false);
        assert_eq!(warned(|| gate.stays_suspended(&failure("none"))), [""; 0], "nothing is suspended");
        gate.suspend(&failure("first"));
        let told = warned(|| gate.stays_suspended(&failure("second")));
        assert_eq!(told, [format!("/db: writes stay suspended: {}", failure("second"))]);
        assert_eq!(warned(|| gate.stays_suspended(&failure("third"))), [""; 0]);
    }

    #[test]
    fn nothing_is_written_while_a_database_is_being_closed_or_only_read() {
        let (closing, ..) = gate(false);
        assert!(closing.leave() && !closing.leave());
        assert!(closing.is_leaving() && !closing.cancels() && !closing.has_ended());
        assert!(matches!(closing.check_writable(), Err(WriteError::Closed)));
        closing.close();
        assert!(closing.cancels() && !closing.has_ended());
        closing.end();
        assert!(closing.has_ended());
        let (reading, ..) = gate(true);
        assert!(reading.is_read_only() && !reading.is_waiting());
        assert!(matches!(reading.check_writable(), Err(WriteError::ReadOnly)));
        assert!(matches!(reading.check_open(), Err(WriteError::ReadOnly)));
    }
}
