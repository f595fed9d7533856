//! Running compactions: their progress, and how other threads pause or cancel them.
//!
//! # Locking
//!
//! The list of jobs is behind the `state` lock. A job's [`Progress`] is shared with the threads that work on it and consists
//! of atomics: counters and flags that publish no other memory (`Relaxed`). A thread that sets a flag holds the `state` lock
//! while it does so, or takes it afterwards, before it signals `changed`; a waiting thread checks the flag under that lock.
//! So no signal is lost.
//!
//! A pause is a count of guards. It changes under the `state` lock too; reading it without the lock is only a quick check
//! that there is no pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::compaction::execute::Helpers;
use crate::compaction::plan::{Plan, Reason, Work};
use crate::compaction::shape::RunningJob;
use crate::compaction::writer::JobControl;
use crate::db::inner::{DbInner, KeyspaceInner, State};
use crate::db::pace::{Pace, Urgency};
use crate::db::reserve::Reserve;
use crate::db::room::Room;
use crate::error::StorageError;
use crate::options::Options;
use crate::sync;

/// State shared by the background work of one database.
#[derive(Debug)]
pub(crate) struct Background {
    pub(crate) pace: Pace,
    pub(crate) room: Room,
    pub(crate) reserve: Reserve,
    pub(crate) helpers: Helpers,
    /// The number of live pause guards.
    pauses: AtomicUsize,
    /// The recent rate at which flushes turn memtable bytes into tables, in bytes per second; 0: unknown.
    pub(crate) flush_rate: AtomicU64,
    /// The database is being closed: stalled writers must release the log.
    pub(crate) leaving: AtomicBool,
}

impl Background {
    pub(crate) fn new(options: &Options) -> Background {
        Background {
            pace: Pace::new(options.background_bytes_per_second),
            room: Room::default(),
            reserve: Reserve::default(),
            helpers: Helpers::new(options.sub_jobs.saturating_sub(1)),
            pauses: AtomicUsize::new(0),
            flush_rate: AtomicU64::new(0),
            leaving: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.pauses.load(Relaxed) > 0
    }

    /// Records that a memtable of `bytes` bytes was flushed. The cost per byte is averaged with equal weight on this flush: a
    /// slow flush shows at once, and after it the rate at most doubles with each flush.
    pub(crate) fn note_flush(&self, bytes: u64, took: Duration) {
        let now = (bytes as f64 / took.as_secs_f64().max(1e-6)).max(1.0);
        let rate = match self.flush_rate.load(Relaxed) {
            0 => now,
            before => 2.0 / (1.0 / before as f64 + 1.0 / now),
        };
        // Only the single flush thread writes it.
        self.flush_rate.store((rate as u64).max(1), Relaxed);
    }
}

/// A registered compaction.
#[derive(Debug)]
pub(crate) struct ActiveJob {
    pub(crate) number: u64,
    pub(crate) shape: RunningJob,
    pub(crate) progress: Arc<Progress>,
}

/// The progress of a running compaction. Sizes are in bytes.
#[derive(Debug)]
pub(crate) struct Progress {
    reason: Reason,
    work: Work,
    runs_in: usize,
    pub(crate) bytes_in: u64,
    pub(crate) parts: AtomicUsize,
    written: AtomicU64,
    cancelled: AtomicBool,
}

impl Progress {
    pub(crate) fn new(plan: &Plan, bytes_in: u64) -> Progress {
        Progress {
            reason: plan.reason,
            work: plan.work,
            runs_in: plan.inputs.len(),
            bytes_in,
            parts: AtomicUsize::new(1),
            written: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
        }
    }

    /// Reports whether cancellation was requested.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    /// Reports whether the job drops tables without reading them.
    pub(crate) fn drops(&self) -> bool {
        self.work == Work::Drop
    }

    /// Returns the number of bytes that the job may still write: at most as many as it reads, and none if it only moves or
    /// drops tables.
    pub(crate) fn may_write(&self) -> u64 {
        match self.work {
            Work::Merge => self.bytes_in.saturating_sub(self.written.load(Relaxed)),
            Work::Move | Work::Drop => 0,
        }
    }
}

/// A running compaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    pub(crate) fn all(db: &DbInner, state: &State) -> Vec<JobStats> {
        let paused = db.background.is_paused();
        let of_keyspace = |keyspace: &Arc<KeyspaceInner>| {
            let jobs = state.jobs.get(&keyspace.id).map_or(&[][..], |jobs| &jobs.running);
            let name = keyspace.name.clone();
            jobs.iter().map(move |job| JobStats {
                keyspace: name.clone(),
                reason: reason(job.progress.reason).to_owned(),
                work: work(job.progress.work).to_owned(),
                input_levels: job.shape.input_levels,
                output_level: job.shape.output_level,
                runs_in: job.progress.runs_in,
                bytes_in: job.progress.bytes_in,
                bytes_written: job.progress.written.load(Relaxed),
                parts: job.progress.parts.load(Relaxed),
                paused: paused && job.progress.work == Work::Merge,
            })
        };
        state.keyspaces.values().flat_map(of_keyspace).collect()
    }
}

fn work(work: Work) -> &'static str {
    match work {
        Work::Merge => "merge",
        Work::Move => "move",
        Work::Drop => "drop",
    }
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Level0Runs => "level 0 runs",
        Reason::LevelSize => "level size",
        Reason::RunCount => "run count",
        Reason::FlushCount => "flush count",
        Reason::Joining => "joining",
        Reason::Partition => "partition",
        Reason::Guard => "guard",
        Reason::Window => "window",
        Reason::Expired => "expired",
        Reason::Covered => "covered",
        Reason::Retention => "retention",
        Reason::Released => "released",
        Reason::Reads => "reads",
        Reason::Manual => "manual",
    }
}

/// Cancels compactions that a caller requested. Pass the token in [`CompactOptions`], keep a clone, and call
/// [`cancel`](CancelToken::cancel) from any thread.
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
        // It publishes no other memory.
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
    pub(crate) db: &'j DbInner,
    pub(crate) keyspace: &'j KeyspaceInner,
    pub(crate) progress: &'j Progress,
    pub(crate) cancel: Option<&'j CancelToken>,
}

impl CompactionControl<'_> {
    /// Reports whether the job should end. Takes no lock.
    pub(crate) fn gives_up(&self) -> bool {
        self.progress.is_cancelled()
            || self.cancel.is_some_and(CancelToken::is_cancelled)
            || self.keyspace.is_dropped()
            || self.db.cancelled()
    }
}

impl JobControl for CompactionControl<'_> {
    fn go_on(&self, written: u64) -> bool {
        self.progress.written.fetch_add(written, Relaxed);
        if self.db.background.is_paused() {
            let mut state = self.db.state();
            while self.db.background.is_paused() && !self.gives_up() {
                state = self.db.wait_briefly(state);
            }
        }
        if self.gives_up() {
            return false;
        }
        self.db.pace(Urgency::Compaction, written, &|| self.gives_up());
        !self.gives_up()
    }
}

/// Paces a flush; cancels it when the database is closed, if it may be cancelled.
pub(crate) struct FlushControl<'d> {
    pub(crate) db: &'d DbInner,
    pub(crate) cancellable: bool,
}

impl JobControl for FlushControl<'_> {
    fn go_on(&self, written: u64) -> bool {
        if !self.cancellable {
            // Opening waits for it, so it runs unthrottled.
            return true;
        }
        self.db.pace(Urgency::Flush, written, &|| self.db.cancelled());
        !self.db.cancelled()
    }
}

/// A guard that pauses compactions: while it is alive, none starts, and running ones wait. See
/// [`Db::pause_compaction`](crate::Db::pause_compaction).
#[derive(Debug)]
#[must_use = "the pause ends when this is dropped"]
pub struct CompactionPause {
    db: Arc<DbInner>,
}

impl CompactionPause {
    pub(crate) fn new(db: &Arc<DbInner>) -> CompactionPause {
        let _state = db.state();
        db.background.pauses.fetch_add(1, Relaxed);
        CompactionPause { db: db.clone() }
    }
}

impl Drop for CompactionPause {
    fn drop(&mut self) {
        // The pause must end even if the lock is poisoned.
        let state = self.db.state.lock();
        self.db.background.pauses.fetch_sub(1, Relaxed);
        drop(state);
        self.db.changed.notify_all();
    }
}

/// Failed work in backoff: it is not retried for a while.
#[derive(Clone, Debug)]
pub(crate) struct Aside {
    until: Instant,
    pause: Duration,
    tries: u32,
    cause: String,
    /// Free bytes on the device when the work failed for lack of room.
    short: Option<u64>,
}

/// The backoff after a compaction failure: initial and maximum.
pub(crate) const RETRY_COMPACTION: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Additional free bytes needed before work that ran out of space is retried ahead of schedule.
const MORE_ROOM_BYTES: u64 = 64 << 10;

impl Aside {
    /// Returns the backoff after one more failure: twice the previous delay, within `(first, longest)`.
    pub(crate) fn after(
        before: Option<Aside>,
        (first, longest): (Duration, Duration),
        error: &StorageError,
    ) -> Aside {
        let (pause, tries) = before.map_or((first, 1), |before| (before.pause * 2, before.tries + 1));
        let pause = pause.min(longest);
        Aside { until: sync::now() + pause, pause, tries, cause: error.to_string(), short: None }
    }

    /// Records the free bytes at which the work ran out of space.
    pub(crate) fn short_of_room(self, free: Option<u64>) -> Aside {
        Aside { short: free, ..self }
    }

    pub(crate) fn is_over(&self) -> bool {
        sync::now() >= self.until
    }

    /// Reports whether there is clearly more free space than when the work ran out of it.
    pub(crate) fn has_more_room(&self, free: Option<u64>) -> bool {
        self.short.zip(free).is_some_and(|(then, now)| now > then + then / 4 + MORE_ROOM_BYTES)
    }

    /// Returns the number of consecutive failures.
    pub(crate) fn tries(&self) -> u32 {
        self.tries
    }

    /// Returns the last failure.
    pub(crate) fn cause(&self) -> &str {
        &self.cause
    }
}

impl DbInner {
    /// Reports whether background work should end as soon as possible.
    pub(crate) fn cancelled(&self) -> bool {
        self.closed.load(Relaxed) || self.health.stopped().is_some()
    }

    fn pace(&self, urgency: Urgency, bytes: u64, give_up: &dyn Fn() -> bool) {
        let waited = self.background.pace.wait(urgency, bytes, give_up);
        self.write_counters.pace_nanos.add(waited.as_nanos() as u64);
    }

    /// Returns the number of bytes that a new compaction may write; see [`room`](crate::db::room). O(keyspaces + jobs).
    pub(crate) fn room(&self, state: &State) -> Option<u64> {
        let free = self.background.room.free()?;
        let running = state.jobs.values().flat_map(|jobs| &jobs.running);
        let promised: u64 = running.map(|job| job.progress.may_write()).sum();
        let memtables = state.keyspaces.values().map(|keyspace| {
            let view = keyspace.view.load();
            let full = view.memtables.iter().filter(|slot| !slot.memtable.is_empty());
            full.map(|slot| slot.memtable.memory_bytes() as u64).sum::<u64>()
        });
        Some(free.saturating_sub(promised.saturating_add(memtables.sum())))
    }

    /// Cancels all running compactions, and waits until they have ended.
    pub(crate) fn cancel_compactions(&self) {
        let mut state = self.state();
        let mut ended = Vec::new();
        for job in state.jobs.values().flat_map(|jobs| &jobs.running) {
            job.progress.cancelled.store(true, Relaxed);
            ended.push(job.number);
        }
        self.changed.notify_all();
        let runs = |state: &State| {
            state.jobs.values().flat_map(|jobs| &jobs.running).any(|job| ended.contains(&job.number))
        };
        while runs(&state) {
            state = self.wait(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn one_slow_flush_lowers_the_rate_at_once() {
        let background = Background::new(&Options::default());
        let rate = || background.flush_rate.load(Relaxed);
        background.note_flush(1 << 20, Duration::from_millis(1));
        assert_eq!(rate(), 1000 << 20);
        background.note_flush(1 << 20, Duration::from_secs(1));
        assert!(((1 << 20)..=(2 << 20)).contains(&rate()), "{}", rate());
        background.note_flush(1 << 20, Duration::from_millis(1));
        assert!(((2 << 20)..=(4 << 20)).contains(&rate()), "{}", rate());
    }

    #[test]
    fn failed_work_backs_off_further_each_time_but_is_never_given_up() {
        let full = StorageError::io("write", Path::new("x"), std::io::ErrorKind::StorageFull.into());
        let mut aside = None;
        let mut pauses = Vec::new();
        for tries in 1..=9 {
            let next = Aside::after(aside.take(), RETRY_COMPACTION, &full);
            assert_eq!(next.tries(), tries);
            pauses.push(next.pause.as_secs());
            aside = Some(next);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert!(!aside.as_ref().unwrap().is_over());
        let short = aside.unwrap().short_of_room(Some(1 << 20));
        assert!(!short.has_more_room(Some(1 << 20)) && !short.has_more_room(None));
        assert!(short.has_more_room(Some(2 << 20)));
    }
}
