//! Running compactions: their progress, and how other threads pause or cancel them.
//!
//! # Locking
//!
//! The list of jobs is the [scheduler](crate::catalogue::scheduler)'s, behind the `state` lock. A
//! job's [`Progress`] is shared with the threads that work on it. It consists of atomics: counters
//! and flags that publish no other memory (`Relaxed`). A thread that sets a flag holds the `state`
//! lock while it does so, or takes it afterwards, before it signals `changed`. A waiting thread
//! checks the flag under that lock. So no signal is lost.
//!
//! A pause is a count of guards. It changes under the `state` lock, too; reading it without the
//! lock is only a quick check for no pause.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use tamis_policy::compaction::plan::{Reason, Work};

use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::progress::Progress;
use crate::catalogue::state::State;
use crate::compaction::sink::JobControl;
use crate::gate::pace::Urgency;
use crate::interrupt;
use crate::session::Session;

/// A running compaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct JobStats {
    /// The keyspace's name.
    pub keyspace: String,
    /// Why it was started, in one or two words.
    pub reason: String,
    /// `merge`, `move` or `drop`.
    pub work: String,
    /// The levels of its inputs, shallowest and deepest.
    pub input_levels: (usize, usize),
    /// The level of its outputs.
    pub output_level: usize,
    /// The number of runs that it reads from.
    pub runs_in: usize,
    /// The bytes of its inputs.
    pub bytes_in: u64,
    /// The bytes written so far.
    pub bytes_written: u64,
    /// The number of key-range parts that it is split into.
    pub parts: usize,
    /// Whether it is waiting for the end of a pause.
    pub paused: bool,
}

impl JobStats {
    /// Returns the running compactions.
    pub(crate) fn all(state: &State, paused: bool) -> Vec<JobStats> {
        let of_keyspace = |keyspace: &Arc<KeyspaceInner>| {
            let name = keyspace.name().to_owned();
            state.scheduler.running(keyspace.id).iter().map(move |job| JobStats {
                keyspace: name.clone(),
                reason: reason_name(job.progress.reason).to_owned(),
                work: work_name(job.progress.work).to_owned(),
                input_levels: job.shape.input_levels,
                output_level: job.shape.output_level,
                runs_in: job.progress.runs_in,
                bytes_in: job.progress.bytes_in,
                bytes_written: job.progress.written.load(Relaxed),
                parts: job.progress.parts.load(Relaxed),
                paused: paused && job.progress.work == Work::Merge,
            })
        };
        state.catalogue.keyspaces().values().flat_map(of_keyspace).collect()
    }
}

pub(crate) fn work_name(work: Work) -> &'static str {
    match work {
        Work::Merge => "merge",
        Work::Move => "move",
        Work::Drop => "drop",
    }
}

pub(crate) fn reason_name(reason: Reason) -> &'static str {
    match reason {
        Reason::Level0Runs => "level 0 runs",
        Reason::LevelSize => "level size",
        Reason::RunCount => "run count",
        Reason::FlushCount => "flush count",
        Reason::Joining => "joining",
        Reason::SmallTables => "small tables",
        Reason::Partition => "partition",
        Reason::Guard => "guard",
        Reason::Window => "window",
        Reason::Expired => "expired",
        Reason::Covered => "covered",
        Reason::Retention => "retention",
        Reason::Released => "released",
        Reason::BlobGarbage => "blob-garbage",
        Reason::Deletes => "deletes",
        Reason::DeleteAge => "delete age",
        Reason::Reads => "reads",
        Reason::Manual => "manual",
    }
}

/// Cancels compactions that a caller requested. Pass the token in [`CompactOptions`], keep a clone,
/// and call [`cancel`](CancelToken::cancel) from any thread.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Creates a token that is not cancelled.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Cancels all compactions that hold this token. They end shortly afterwards, with
    /// [`AdminError::Cancelled`](crate::AdminError::Cancelled).
    pub fn cancel(&self) {
        // Publishes no other memory.
        self.0.store(true, Relaxed);
    }

    /// Reports whether the token was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Options of a compaction that a caller requests.
#[derive(Clone, Debug, Default)]
pub struct CompactOptions {
    /// Cancels the compaction early.
    pub cancel: CancelToken,
}

/// Pauses or cancels a compaction.
pub(crate) struct CompactionControl<'j> {
    pub(crate) db: &'j Session,
    pub(crate) keyspace: &'j KeyspaceInner,
    pub(crate) progress: &'j Progress,
    pub(crate) cancel: Option<&'j CancelToken>,
}

impl CompactionControl<'_> {
    /// Cancels the job, and thereby its parts in other threads, once the caller that it runs for
    /// [gives up](interrupt). Must not be called with a lock held.
    fn look_for_interruption(&self) {
        if interrupt::is_interrupted() {
            self.progress.cancel();
        }
    }

    /// Reports whether the job should end. Takes no lock.
    pub(crate) fn gives_up(&self) -> bool {
        self.progress.is_cancelled()
            || self.cancel.is_some_and(CancelToken::is_cancelled)
            || self.keyspace.is_dropped()
            || self.db.gate.cancels()
    }
}

impl JobControl for CompactionControl<'_> {
    fn go_on(&self, written: u64) -> bool {
        self.progress.written.fetch_add(written, Relaxed);
        if self.db.background.is_paused() {
            let mut state = self.db.state();
            while self.db.background.is_paused() && !self.gives_up() {
                drop(self.db.monitor.wait_briefly(state));
                self.look_for_interruption();
                state = self.db.state();
            }
        }
        self.look_for_interruption();
        if self.gives_up() {
            return false;
        }
        self.db.pace(Urgency::Compaction, written, &|| self.gives_up());
        let_writers_run();
        !self.gives_up()
    }
}

/// Flushes and merges compute without a pause. Without this, a writer that lost its processor to
/// one would wait milliseconds for the end of a time slice; with it, only for the end of a stretch
/// of work.
fn let_writers_run() {
    std::thread::yield_now();
}

/// Paces a flush. Cancels it when the database is closed, if it is `cancellable`.
pub(crate) struct FlushControl<'d> {
    pub(crate) db: &'d Session,
    pub(crate) cancellable: bool,
}

impl JobControl for FlushControl<'_> {
    fn go_on(&self, written: u64) -> bool {
        if !self.cancellable {
            // Opening waits for the flush, so it runs unthrottled.
            return true;
        }
        self.db.pace(Urgency::Flush, written, &|| self.db.gate.cancels());
        let_writers_run();
        !self.db.gate.cancels()
    }
}

/// A guard that pauses compactions: while it is alive, none starts, and running ones wait. See
/// [`Db::pause_compaction`](crate::Db::pause_compaction).
#[derive(Debug)]
#[must_use = "the pause ends when this is dropped"]
pub struct CompactionPause {
    db: Arc<Session>,
}

impl CompactionPause {
    pub(crate) fn new(db: &Arc<Session>) -> CompactionPause {
        let _state = db.state();
        db.background.pauses.fetch_add(1, Relaxed);
        CompactionPause { db: db.clone() }
    }
}

impl Drop for CompactionPause {
    fn drop(&mut self) {
        if !self.db.gate.is_ours() {
            return;
        }
        let state = self.db.monitor.lock();
        self.db.background.pauses.fetch_sub(1, Relaxed);
        drop(state);
        self.db.monitor.notify();
    }
}

/// While this is alive, compactions that could be put off are due.
pub(crate) struct Settling<'d>(&'d Session);

impl<'d> Settling<'d> {
    pub(crate) fn new(db: &'d Session) -> Settling<'d> {
        let mut state = db.state();
        db.background.settling.fetch_add(1, Relaxed);
        let State { scheduler, filters, catalogue, .. } = &mut *state;
        scheduler.rounds.note_all(catalogue.keyspaces());
        filters.note_all(catalogue);
        db.monitor.notify();
        Settling(db)
    }
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        let _state = self.0.monitor.lock();
        self.0.background.settling.fetch_sub(1, Relaxed);
    }
}
