//! Compactions that run: what they have done so far, and how others hold them up or end them.
//!
//! # Who may do what
//!
//! The list of jobs is behind the `state` lock; a job's [`Progress`] is shared with the threads that work on it and is
//! all atomics. They are counters and flags that publish no other memory (`Relaxed`): whoever sets a flag does so, or
//! goes through the `state` lock afterwards, before it signals `changed`, and whoever waits looks at the flag under
//! that lock, so no signal is lost.
//!
//! A pause is a number of guards. Its changes are made under the `state` lock too; reading it without is for the
//! threads that only want to know quickly that there is none.

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

/// What background work of one database shares.
#[derive(Debug)]
pub(crate) struct Background {
    pub(crate) pace: Pace,
    pub(crate) room: Room,
    pub(crate) reserve: Reserve,
    pub(crate) helpers: Helpers,
    /// Guards of pauses that live.
    pauses: AtomicUsize,
    /// Bytes of memtables that a flush turns into tables in a second, lately; 0: not known.
    pub(crate) flush_rate: AtomicU64,
    /// Somebody is closing the database: stalled writers are to let go of the log.
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

    /// Notes that a memtable of so many bytes was flushed. Half of the time that a byte is taken to cost is what it
    /// cost now: a slow flush tells at once, and after it the rate doubles at most each time.
    pub(crate) fn note_flush(&self, bytes: u64, took: Duration) {
        let now = (bytes as f64 / took.as_secs_f64().max(1e-6)).max(1.0);
        let rate = match self.flush_rate.load(Relaxed) {
            0 => now,
            before => 2.0 / (1.0 / before as f64 + 1.0 / now),
        };
        // Only the one flushing thread writes it.
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

/// What is known of a running compaction. Sizes in bytes.
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

    /// Whether somebody asked for its end.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    /// Whether the job drops tables unread.
    pub(crate) fn drops(&self) -> bool {
        self.work == Work::Drop
    }

    /// What the job may still write: no more than it reads, and nothing if it only moves or drops tables.
    pub(crate) fn may_write(&self) -> u64 {
        match self.work {
            Work::Merge => self.bytes_in.saturating_sub(self.written.load(Relaxed)),
            Work::Move | Work::Drop => 0,
        }
    }
}

/// A compaction that is running.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobStats {
    /// The keyspace's name.
    pub keyspace: String,
    /// Why it was started, in a word or two.
    pub reason: String,
    /// `merge`, `move` or `drop`.
    pub work: String,
    /// The levels of its inputs, from the first to the last.
    pub input_levels: (usize, usize),
    /// The level of its outputs.
    pub output_level: usize,
    /// Runs that it reads of.
    pub runs_in: usize,
    /// Bytes of its inputs.
    pub bytes_in: u64,
    /// Bytes written so far.
    pub bytes_written: u64,
    /// The parts of the key range that it is done in.
    pub parts: usize,
    /// Whether it waits for the end of a pause.
    pub paused: bool,
}

impl JobStats {
    /// The jobs that run now.
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

/// Ends a compaction that somebody asked for: give it along in [`CompactOptions`], keep a clone, and call
/// [`cancel`](CancelToken::cancel) from any thread.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that nobody has cancelled.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Asks all that were given this token to give up. They do so within moments, with
    /// [`AdminError::Cancelled`](crate::AdminError::Cancelled).
    pub fn cancel(&self) {
        // Nothing else is published with it.
        self.0.store(true, Relaxed);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// How a compaction that is asked for is done.
#[derive(Clone, Debug, Default)]
pub struct CompactOptions {
    /// Ends it early.
    pub cancel: CancelToken,
}

/// Holds up a compaction, or ends it.
pub(crate) struct CompactionControl<'j> {
    pub(crate) db: &'j DbInner,
    pub(crate) keyspace: &'j KeyspaceInner,
    pub(crate) progress: &'j Progress,
    pub(crate) cancel: Option<&'j CancelToken>,
}

impl CompactionControl<'_> {
    /// Whether the job is to end. Takes no lock.
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

/// Holds up a flush; ends it when the database is closed, if it may be ended.
pub(crate) struct FlushControl<'d> {
    pub(crate) db: &'d DbInner,
    pub(crate) cancellable: bool,
}

impl JobControl for FlushControl<'_> {
    fn go_on(&self, written: u64) -> bool {
        if !self.cancellable {
            // Opening waits for it: as fast as it can.
            return true;
        }
        self.db.pace(Urgency::Flush, written, &|| self.db.cancelled());
        !self.db.cancelled()
    }
}

/// While it lives, no compaction starts, and those that run wait. See
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
        // Even if the lock is poisoned, the pause must end.
        let state = self.db.state.lock();
        self.db.background.pauses.fetch_sub(1, Relaxed);
        drop(state);
        self.db.changed.notify_all();
    }
}

/// Work that failed and is not tried for a while.
#[derive(Clone, Debug)]
pub(crate) struct Aside {
    until: Instant,
    pause: Duration,
    tries: u32,
    cause: String,
    /// Free bytes on the device when the work failed for want of room.
    short: Option<u64>,
}

/// How long a compaction that failed is left alone, the first time and at most.
pub(crate) const RETRY_COMPACTION: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// So much more must be free, in bytes, before what found no room is tried earlier than planned.
const MORE_ROOM_BYTES: u64 = 64 << 10;

impl Aside {
    /// After one failure more: twice as long as the time before, within `(first, longest)`.
    pub(crate) fn after(
        before: Option<Aside>,
        (first, longest): (Duration, Duration),
        error: &StorageError,
    ) -> Aside {
        let (pause, tries) = before.map_or((first, 1), |before| (before.pause * 2, before.tries + 1));
        let pause = pause.min(longest);
        Aside { until: sync::now() + pause, pause, tries, cause: error.to_string(), short: None }
    }

    /// Of work that found no more room than this.
    pub(crate) fn short_of_room(self, free: Option<u64>) -> Aside {
        Aside { short: free, ..self }
    }

    pub(crate) fn is_over(&self) -> bool {
        sync::now() >= self.until
    }

    /// Whether there is clearly more room than when the work failed for want of it.
    pub(crate) fn has_more_room(&self, free: Option<u64>) -> bool {
        self.short.zip(free).is_some_and(|(then, now)| now > then + then / 4 + MORE_ROOM_BYTES)
    }

    /// How often the work failed in a row.
    pub(crate) fn tries(&self) -> u32 {
        self.tries
    }

    /// The last failure.
    pub(crate) fn cause(&self) -> &str {
        &self.cause
    }
}

impl DbInner {
    /// Whether background work is to end as soon as it can.
    pub(crate) fn cancelled(&self) -> bool {
        self.closed.load(Relaxed) || self.health.stopped().is_some()
    }

    fn pace(&self, urgency: Urgency, bytes: u64, give_up: &dyn Fn() -> bool) {
        let waited = self.background.pace.wait(urgency, bytes, give_up);
        self.write_counters.pace_nanos.add(waited.as_nanos() as u64);
    }

    /// Bytes that a new compaction may write; see [`room`](crate::db::room). O(keyspaces + jobs).
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

    /// Ends all compactions that run, and waits until they are gone.
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
    fn one_slow_flush_tells_at_once() {
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
    fn what_is_set_aside_is_tried_less_and_less_often_but_never_given_up() {
        let full = StorageError::io("write", Path::new("x"), &std::io::ErrorKind::StorageFull.into());
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
