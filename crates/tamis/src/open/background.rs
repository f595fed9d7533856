//! The threads of an open database: one flushes, others compact, one may sync the log periodically,
//! one may [scrub](crate::work::scrub), and one calls the
//! [listeners](crate::observe).
//!
//! A worker takes the `state` lock, looks for a job, registers it, works without the lock, and
//! commits the result under it. A failed flush or compaction is undone and retried later, and the
//! flush thread replaces logs that could not be written; [`health`](crate::work::health) has the
//! rules. Only a panic stops writes for good.
//!
//! `background_threads` threads compact. A large merge takes up to as many less one as helpers for
//! its parts; that is also the number of helpers for all merges together. Callers that compact by
//! hand come on top.

use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use std::time::Duration;

use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::state::State;
use crate::error::WriteError;
use crate::observe::Observer;
use crate::open::follow::{Follower, follow_loop};
use crate::options::Durability;
use crate::read::MemtableSlot;
use crate::session::Session;
use crate::sync;
use crate::sync::Mutex;
use crate::sync::thread::{self, JoinHandle};
use crate::work::guarded::guarded;
use crate::work::scrub::scrub_loop;

/// The threads of an open database; joined by [`join`](Workers::join).
#[derive(Debug, Default)]
pub(crate) struct Workers {
    work: Vec<JoinHandle<()>>,
    events: Option<EventThread>,
}

/// The thread that calls the listeners.
#[derive(Debug)]
struct EventThread {
    /// `None` once it is joined.
    thread: Option<JoinHandle<()>>,
    id: Arc<OnceLock<ThreadId>>,
    observer: Arc<Observer>,
}

impl EventThread {
    /// Starts it, if there are listeners.
    fn start(db: &Arc<Session>) -> std::io::Result<Option<EventThread>> {
        let observer = db.observed.observer.clone();
        if !observer.queue().has_listeners() {
            return Ok(None);
        }
        let id = Arc::<OnceLock<ThreadId>>::default();
        let (queue, own) = (observer.clone(), id.clone());
        // Without the database, which may be dropped by a listener.
        let thread = thread::spawn("tamis-events".into(), move || {
            let _ = own.set(std::thread::current().id());
            queue.queue().deliver();
        })?;
        Ok(Some(EventThread { thread: Some(thread), id, observer }))
    }
}

impl Drop for EventThread {
    /// If another thread could not be started, this one has nothing to wait for.
    fn drop(&mut self) {
        self.observer.queue().end();
    }
}

impl Workers {
    pub(crate) fn start(db: &Arc<Session>) -> std::io::Result<Workers> {
        {
            let mut state = db.state();
            let State { catalogue, scheduler, filters, .. } = &mut *state;
            scheduler.rounds.note_all(catalogue.keyspaces());
            filters.note_all(catalogue);
            let has_tables = |keyspace: &&Arc<KeyspaceInner>| !keyspace.view.load().version.runs.is_empty();
            let keyspaces = state.catalogue.keyspaces().values().filter(has_tables);
            keyspaces.for_each(|keyspace| db.update_pressure(&state, keyspace));
        }
        db.elastic.allow_worker();
        let mut workers = Workers { events: EventThread::start(db)?, ..Workers::default() };
        let mut spawn = |name: String, work: fn(&Session)| -> std::io::Result<()> {
            let db = db.clone();
            workers.work.push(thread::spawn(name, move || work(&db))?);
            Ok(())
        };
        spawn("tamis-flush".into(), flush_loop)?;
        for i in 0..db.options.background_threads {
            spawn(format!("tamis-compact-{i}"), compaction_loop)?;
        }
        if matches!(db.options.durability, Durability::Every(_)) {
            spawn("tamis-sync".into(), sync_loop)?;
        }
        if db.options.scrub_bytes_per_second > 0 {
            spawn("tamis-scrub".into(), scrub_loop)?;
        }
        Ok(workers)
    }

    /// For a database opened read-only: builds the global filters, if there are any.
    pub(crate) fn start_reading(db: &Arc<Session>) -> std::io::Result<Workers> {
        db.elastic.allow_worker();
        let mut workers = Workers { events: EventThread::start(db)?, ..Workers::default() };
        let is_due = {
            let State { filters, catalogue, .. } = &mut *db.state();
            filters.note_all(catalogue);
            filters.next(catalogue).is_some()
        };
        if is_due {
            let db = db.clone();
            workers.work.push(thread::spawn("tamis-filter".into(), move || db.build_filters())?);
        }
        Ok(workers)
    }

    /// For a database that follows a writer.
    pub(crate) fn start_following(
        db: &Arc<Session>,
        follower: &Arc<Mutex<Follower>>,
    ) -> std::io::Result<Workers> {
        db.elastic.allow_worker();
        let mut workers = Workers { events: EventThread::start(db)?, ..Workers::default() };
        let (db, follower) = (db.clone(), follower.clone());
        workers.work.push(thread::spawn("tamis-follow".into(), move || follow_loop(&db, &follower))?);
        Ok(workers)
    }

    /// Waits for all threads that work; the gate must have ended. Returns what
    /// [`end_events`](Self::end_events) takes.
    pub(crate) fn join(mut self) -> Workers {
        for thread in self.work.drain(..) {
            if thread.join().is_err() {
                log::error!("a background thread of the database panicked");
            }
        }
        self
    }

    /// Waits until the listeners have been told of everything, unless one of them is the caller.
    /// With no lock held.
    pub(crate) fn end_events(self) {
        let Some(mut events) = self.events else { return };
        events.observer.queue().end();
        let is_caller = events.id.get() == Some(&std::thread::current().id());
        if let Some(thread) = events.thread.take().filter(|_| !is_caller)
            && thread.join().is_err()
        {
            log::error!("the thread of the event listeners panicked");
        }
    }
}

fn flush_loop(db: &Session) {
    loop {
        if let Some(memory) = &db.options.shared_write_memory {
            memory.balance();
        }
        let mut state = db.state();
        if db.gate.has_ended() {
            return;
        }
        match ToFlush::next(db, &mut state) {
            ToFlush::Nothing => {
                drop(state);
                db.remove_obsolete();
                db.retry_beginning();
                db.keep_reserve();
                db.save_hotness();
                db.keyspaces.chunks.release_if_idle(sync::now());
                db.log.prepare(false);
                db.log.trim();
                db.log.release_if_idle(sync::now());
                db.expire_logs();
                db.seal_as_asked();
                db.seal_old_deletes();
                db.seal_if_full();
                state = db.state();
                db.save_times(&mut state);
                if !db.gate.has_ended() && matches!(ToFlush::next(db, &mut state), ToFlush::Nothing) {
                    drop(db.monitor.wait_for_retry(state));
                }
            }
            ToFlush::Everything => {
                drop(state);
                guarded(db, "replacing the log", || db.resume());
                db.remove_obsolete();
            }
            ToFlush::Memtables(keyspace, slots) => {
                state.scheduler.start_flush(keyspace.id);
                drop(state);
                // First: the writer may need it before the flush ends.
                let size: u64 = slots.iter().map(|slot| slot.memtable.used_bytes() as u64).sum();
                db.log.prepare(size >= keyspace.options.memtable_bytes / 2);
                db.log.trim();
                let flushed = guarded(db, "a flush", || db.flush_memtables(&keyspace, &slots));
                if let Some(Err(error)) = &flushed {
                    db.flush_failed(&keyspace, error);
                }
                db.state().scheduler.end_flush(keyspace.id);
                db.monitor.notify();
                // Not when there is nothing to flush: that may never be.
                db.remove_obsolete();
                // While a disk fills up, this thread stays busy until it is full.
                db.keep_reserve();
            }
        }
    }
}

/// The next task of the flush thread.
enum ToFlush {
    Nothing,
    /// The oldest ones of a keyspace, newest first, for one run.
    Memtables(Arc<KeyspaceInner>, Vec<Arc<MemtableSlot>>),
    /// All memtables, to replace logs that could not be written.
    Everything,
}

impl ToFlush {
    fn next(db: &Session, state: &mut State) -> ToFlush {
        match db.gate.check() {
            Err(WriteError::Suspended { .. }) if db.gate.resume_is_due() => ToFlush::Everything,
            Err(_) => ToFlush::Nothing,
            Ok(()) => state
                .scheduler
                .next_flush()
                .map_or(ToFlush::Nothing, |(keyspace, slots)| ToFlush::Memtables(keyspace, slots)),
        }
    }
}

/// How far the threads that compact step behind others of the process, as a nice value.
const COMPACTION_NICE: usize = 10;

fn compaction_loop(db: &Session) {
    // Helpers of a merge inherit it.
    thread::lower_priority(COMPACTION_NICE);
    let mut walked = false;
    loop {
        // Without the lock: the file system may be slow.
        db.space.room.refresh(&*db.fs, &db.dir);
        let mut state = db.state();
        if db.gate.has_ended() {
            return;
        }
        // Filters first: that is quick, and it is what reads need most.
        if db.gate.stopped().is_none()
            && let Some((keyspace, task)) = state.next_filter_work()
        {
            state.filters.start(keyspace.id);
            drop(state);
            guarded(db, "work on a filter", || db.work_on_filter(&keyspace, task));
            continue;
        }
        // Not twice in a row: compactions must not wait for as long as keys are deleted.
        if !std::mem::take(&mut walked)
            && !db.gate.cancels()
            && let Some((keyspace, stretch)) = db.next_deletions(&state)
        {
            walked = true;
            drop(state);
            guarded(db, "a walk over deleted keys", || db.walk_over_deletions(&keyspace, &stretch));
            continue;
        }
        let next = match db.gate.cancels() {
            true => None,
            false => db.next_compaction(&mut state).or_else(|| db.next_for_reads(&mut state)),
        };
        let Some((keyspace, plan)) = next else {
            drop(db.monitor.wait(state));
            continue;
        };
        let job = db.start(&mut state, &keyspace, &plan);
        drop(state);
        // Failures are recorded in the keyspace's jobs.
        guarded(db, "a compaction", || db.run_plan(&keyspace, &plan, &job, None).map(drop));
    }
}

fn sync_loop(db: &Session) {
    let Durability::Every(period) = db.options.durability else { return };
    let mut state = db.state();
    while !db.gate.has_ended() {
        // The condition variable is shared: sleep out the period, whatever the signal.
        let started = sync::now();
        while sync::since(started) < period && !db.gate.has_ended() {
            let left = period.saturating_sub(sync::since(started)).max(Duration::from_micros(100));
            state = db.monitor.wait_for(state, left);
        }
        drop(state);
        let mut log = db.lock_log();
        if db.gate.check().is_ok() {
            // A failure has suspended writes.
            let _ = db.log.sync(&mut log);
        }
        drop(log);
        state = db.state();
    }
}
